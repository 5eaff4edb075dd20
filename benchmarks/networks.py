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
import sys
from collections import defaultdict
from pathlib import Path

import margmap as mm
from margmap.foundation import limits
from margmap.io import uai
from margmap.network import anytime

#: Seconds of the run before all others, which is not kept.
WARM_SECONDS = 3.0


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


def table(records: list[dict]) -> str:
    """One line for each family, method and limit: proofs, median and largest gap, latest first state and bound."""
    groups: dict[tuple, list[dict]] = defaultdict(list)
    for record in records:
        groups[record["name"].split("_")[0], record["method"], record["limit"]].append(record)
    lines = [
        "| family | method | limit | instances | proven | gap, median | gap, largest | state by | bound by | over by |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for (family, method, limit), group in sorted(groups.items()):
        gaps = sorted(math.inf if r["gap"] is None else r["gap"] for r in group)
        proven = sum(r["status"] == "optimal" for r in group)
        late_state, late_bound = (max(r[key] for r in group) for key in ("first_state", "first_bound"))
        lines.append(
            f"| {family} | {method} | {limit:g} s | {len(group)} | {proven} "
            f"| {gaps[len(gaps) // 2]:.3g} | {gaps[-1]:.3g} "
            f"| {late_state:.2f} s | {late_bound:.2f} s | {max(r['wall'] - limit for r in group):.2f} s |"
        )
    return "\n".join(lines)


def instances(records: list[dict]) -> str:
    """One line for each instance and method: the gap at each limit, and the state and the bound at the longest one."""
    groups: dict[tuple, dict[float, dict]] = defaultdict(dict)
    for record in records:
        groups[record["name"], record["method"]][record["limit"]] = record
    limits = sorted({record["limit"] for record in records})
    gaps = " | ".join(f"{limit:g} s" for limit in limits)
    lines = [
        f"| instance | method | state | bound | {gaps} | by | seconds |",
        "|---|---|---|---|" + "---|" * (len(limits) + 2),
    ]
    for (name, method), runs in sorted(groups.items()):
        last = runs[max(runs)]
        shown = " | ".join(gap_of(runs[limit]) if limit in runs else "" for limit in limits)
        state = "-" if last["log_prob"] is None else f"{last['log_prob']:.6f}"
        upper = "-" if last["log_upper"] is None else f"{last['log_upper']:.6f}"
        lines.append(f"| {name} | {method} | {state} | {upper} | {shown} | {last['used']} | {last['wall']:.1f} |")
    return "\n".join(lines)


def gap_of(record: dict) -> str:
    if record["status"] == "optimal":
        return "proven"
    return "no state" if record["gap"] is None or math.isinf(record["gap"]) else f"{record['gap']:.3g}"


def plot(records: list[dict], path: Path) -> None:
    """The gap against time: a panel for each family, a line for each instance at its longest limit; method auto."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    plt.rcParams.update({"svg.hashsalt": "margmap", "svg.fonttype": "none", "font.size": 8})
    longest: dict[str, dict] = {}
    for record in (record for record in records if record["method"] == "auto"):
        if record["limit"] >= longest.get(record["name"], record)["limit"]:
            longest[record["name"]] = record
    families = sorted({name.split("_")[0] for name in longest})
    rows = -(-len(families) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(8, 2.3 * rows), layout="constrained", squeeze=False)
    for family, axes in zip(families, panels.flat, strict=False):
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
    for axes in panels.flat[len(families) :]:
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
        print(table(records), instances(records), sep="\n\n")
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
    if arguments.without_toulbar2:
        anytime.available = lambda: False
    run(arguments.folder, names[0], "auto", WARM_SECONDS)
    with arguments.out.open("a") as out:
        for seconds in arguments.seconds:
            for method in arguments.methods:
                for name in names:
                    if (name, method, seconds) not in done:
                        record = run(arguments.folder, name, method, seconds)
                        out.write(json.dumps(record) + "\n")
                        out.flush()
                        print(name, method, seconds, record["status"], record["log_prob"], record["gap"], flush=True)


if __name__ == "__main__":
    main()
