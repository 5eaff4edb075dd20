"""Hard networks: families of the UAI marginal-MAP instances x methods x time limits, with states, bounds and proofs.

    python benchmarks/networks.py ../shared/data/uai_mmap --seconds 1 10 60 --methods auto andor --out networks.jsonl
    python benchmarks/networks.py --table networks.jsonl --plot networks.svg

Each run is a line of JSON with the value of the state, the bound, when each was first there, and the bounds over time,
from which a plot of gap against time can be made (``--plot FILE``, needs the extra ``plot``). Runs that are in the
file already are not made again. The first instance is solved once before, for some seconds, so that kernels are loaded.

With ``--computing`` seconds are those of the processor, for a machine that has other work: limits hold for what this
process computes, all threads together, but toulbar2 runs in another. With ``--without-toulbar2`` the method ``auto``
does as if the extra ``networks`` were not there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("MARGMAP_TIER", "compile")  # nothing is interpreted, also where the cache is not warm

import margmap as mm
from margmap.foundation import limits
from margmap.io import uai
from margmap.network import anytime

#: Seconds of the run before all others, which is not kept.
WARM_SECONDS = 3.0

#: What the records call a method that had to do without toulbar2.
WITHOUT = " without toulbar2"

#: AND/OR search with cost shifting on the instances that margmap used to refuse: proofs, and the gaps of the others.
PEER = {
    "Grids": ("0, no state", "92-1811"),
    "ImageAlignment": ("0, no state", "73-145"),
    "ObjectDetection": ("0", "crashes"),
    "Promedas": ("20 of 30", "0.3-3 (seven), 7-10 (three)"),
    "ProteinFolding": ("1 of 4", "crashes"),
    "Segmentation": ("1 of 3", "0.5, 9"),
    "wcsp": ("0", "29-895"),
}


def instance(folder: Path, name: str):
    network = mm.load_network(folder / f"{name}.uai.gz")
    query = uai.read_query(folder / f"{name}.uai.query", network)
    evidence = uai.read_evidence(folder / f"{name}.uai.evid", network)
    return network, query, evidence


def run(folder: Path, name: str, method: str, seconds: float) -> dict:
    network, query, evidence = instance(folder, name)
    trace: list[tuple[float, float, float]] = []

    def tell(progress: mm.Progress) -> None:
        if not trace or trace[-1][1:] != (progress.log_lower, progress.log_upper):
            trace.append((progress.seconds, progress.log_lower, progress.log_upper))

    clock = limits.Limits().clock
    begun = clock()
    result = mm.marginal_map(network, query, evidence, method, seconds, on_progress=tell)
    wall = clock() - begun
    first_state = next((t for t, lower, _ in trace if lower > -math.inf), wall)
    first_bound = next((t for t, _, upper in trace if upper < math.inf), wall)
    record = {"name": name, "method": method, "limit": seconds, "wall": wall, **result.to_dict()}
    record.pop("state")
    return {
        **record,
        "used": result.method,
        "method": method,
        "first_state": first_state,
        "first_bound": first_bound,
        "trace": [[round(t, 3), lower if math.isfinite(lower) else None, upper] for t, lower, upper in trace],
    }


def gap_at(record: dict, seconds: float) -> str:
    """The gap that a run had after so many seconds."""
    if record["status"] == "optimal" and record["seconds"] <= seconds:
        return "proven"
    _, lower, upper = ([row for row in record["trace"] if row[0] <= seconds] or [[0.0, None, math.inf]])[-1]
    if record["seconds"] <= seconds:
        lower, upper = record["log_prob"], record["log_upper"]
    return "no state" if lower is None else f"{upper - lower:.3g}"


def families(records: list[dict]) -> str:
    """One line for each family and method: proofs, gaps, the latest first state and bound, beside what a peer reports.

    Proofs are counted after 10 s and at the end, and limits that were passed by how much.
    """
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for record in records:
        for family in (record["name"].split("_")[0], "all"):
            groups[record["method"], family].append(record)
    lines = [
        "| family | instances | proven at 10 s | proven | gaps of the rest | latest state | latest bound "
        "| limits passed by at most | AND/OR search with cost shifting: proven | its gaps |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (method, family), group in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] == "all", item[0])):
        gaps = sorted(record["gap"] for record in group if record["status"] != "optimal")
        rest = "" if family == "all" else f"{gaps[0]:.3g} to {gaps[-1]:.3g}" if gaps else "-"
        proven = [sum(record["status"] == "optimal" and record["seconds"] <= t for record in group) for t in (10, 1e9)]
        late_state, late_bound = (max(record[key] for record in group) for key in ("first_state", "first_bound"))
        over = max(0.0, *(record["wall"] - record["limit"] for record in group))
        peer = " | ".join(PEER.get(family, ("", "")))
        name = family if method == "auto" else f"{family}, {method}"
        lines.append(
            f"| {name} | {len(group)} | {proven[0]} | {proven[1]} | {rest} "
            f"| {late_state:.2f} s | {late_bound:.2f} s | {over:.2f} s | {peer} |"
        )
    return "\n".join(lines)


def instances(records: list[dict]) -> str:
    """One line for each instance: state and bound at the end, gaps on the way, the method that it ended with."""
    limit = max(record["limit"] for record in records)
    lines = [
        f"| instance | state | bound | gap at 1 s | at 10 s | at {limit:g} s | by | seconds | first state |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in sorted(records, key=lambda record: record["name"]):
        state, upper = (f"{record[key]:.6f}" for key in ("log_prob", "log_upper"))
        gaps = " | ".join(gap_at(record, seconds) for seconds in (1, 10, math.inf))
        lines.append(
            f"| {record['name']} | {state} | {upper} | {gaps} | {record['used']} | {record['seconds']:.1f} "
            f"| {record['first_state']:.2f} |"
        )
    return "\n".join(lines)


def longest_runs(records: list[dict]) -> list[dict]:
    """For each instance and method the run with the longest limit, the last one if there are several."""
    longest: dict[tuple, dict] = {}
    for record in records:
        key = record["name"], record["method"]
        if record["limit"] >= longest.get(key, record)["limit"]:
            longest[key] = record
    return [*longest.values()]


def plot(records: list[dict], path: Path) -> None:
    """The gap against time: a panel for each family, a line for each instance at its longest limit; method auto."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    plt.rcParams.update({"svg.hashsalt": "margmap", "svg.fonttype": "none", "font.size": 8})
    longest = {record["name"]: record for record in longest_runs(records) if record["method"] == "auto"}
    names = sorted({name.split("_")[0] for name in longest})
    rows = -(-len(names) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(8, 2.3 * rows), layout="constrained", squeeze=False)
    for family, axes in zip(names, panels.flat, strict=False):
        for name, record in longest.items():
            points = [(t, max(upper - lower, 1e-9)) for t, lower, upper in record["trace"] if lower is not None]
            if name.split("_")[0] == family and points:
                points.append((record["seconds"], max(record["gap"], 1e-9)))
                axes.step(*zip(*points, strict=True), where="post", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel="gap in nats", title=family)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        low, high = axes.get_ylim()
        if high > 100 * low:
            axes.yaxis.set_minor_formatter(NullFormatter())
    for axes in panels.flat[len(names) :]:
        axes.set_visible(False)
    figure.suptitle("The gap against time, a line for each instance")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("../shared/data/uai_mmap"))
    parser.add_argument("--seconds", nargs="+", type=float, default=[1.0, 10.0, 60.0])
    parser.add_argument("--methods", nargs="+", default=["auto", "andor"])
    parser.add_argument("--only", default="", help="names that begin so")
    parser.add_argument("--computing", action="store_true", help="seconds of the processor")
    parser.add_argument("--without-toulbar2", action="store_true", help="as if the extra were not there")
    parser.add_argument("--out", type=Path, default=Path("networks.jsonl"))
    parser.add_argument("--table", type=Path, help="print the table of a file of runs, and do nothing else")
    parser.add_argument("--plot", type=Path, help="with --table: a file for the plot of gap against time")
    arguments = parser.parse_args()
    if arguments.table:
        records = [json.loads(line) for line in arguments.table.read_text().splitlines()]
        longest = longest_runs(records)
        ours = [record for record in longest if record["method"] == "auto"]
        print(families(longest), instances(ours), sep="\n\n")
        if arguments.plot:
            plot(records, arguments.plot)
        return
    done = set()
    if arguments.out.exists():
        lines = arguments.out.read_text().splitlines()
        done = {(r["name"], r["method"], r["limit"]) for r in map(json.loads, lines)}
    names = sorted(path.name.removesuffix(".uai.gz") for path in arguments.folder.glob(f"{arguments.only}*.uai.gz"))
    if not names:
        sys.exit(f"{arguments.folder}: no files NAME.uai.gz there")
    if arguments.computing:
        limits.count_computing()
    suffix = ""
    if arguments.without_toulbar2:
        anytime.available, suffix = (lambda: False), WITHOUT
    run(arguments.folder, names[0], "auto", WARM_SECONDS)
    with arguments.out.open("a") as out:
        for seconds in arguments.seconds:
            for method in arguments.methods:
                for name in names:
                    if (name, method + suffix, seconds) not in done:
                        record = {**run(arguments.folder, name, method, seconds), "method": method + suffix}
                        out.write(json.dumps(record) + "\n")
                        out.flush()
                        print(name, method, seconds, record["status"], record["log_prob"], record["gap"], flush=True)


if __name__ == "__main__":
    main()
