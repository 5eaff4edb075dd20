"""What each part of a method is worth: the same instances without it, on the circuits of the paper's experiment.

    .venv/bin/python benchmarks/paper.py circuits            # once: the circuits, some minutes
    .venv/bin/python benchmarks/ablation.py run              # 40 instances; goes on where it stopped
    .venv/bin/python benchmarks/ablation.py run --each 2     # and 40 more
    .venv/bin/python benchmarks/ablation.py check            # do the lines to change still stand in the sources?
    .venv/bin/python benchmarks/ablation.py report           # the tables of docs/benchmarks/paper/ablation.md

The methods have no options for this, and their machine code no tests of such options. A part is switched off in a copy
of the package in the folder for temporary files: each variant names the lines that are changed there, and the run of
that variant imports the copy. A line that has moved is an error; ``check`` names it without running anything.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from margmap.bench import runs
from margmap.learn import DATASETS
from paper import FIRST, ROOT, moved

RECORDS = FIRST.place / "ablation.jsonl"
PAGE = FIRST.place / "ablation.md"
#: Seconds and bytes of a run, and how many instances of each dataset and proportion.
SECONDS, BYTES, EACH = 10.0, 4 << 30, 1
#: Instances 0 to 9 of a file have the first proportions, the others the second.
OF_ONE = 10
#: Two values of one state differ by less than this; an answer that is further below the best one is wrong.
WRONG = 1e-6

SWEEP, FRONTIER = "solve/methods/frontier/sweep.py", "solve/methods/frontier/solve.py"


class Edit(NamedTuple):
    """A text that stands once in a file of the package, and what stands there in the copy."""

    file: str
    old: str
    new: str


class Variant(NamedTuple):
    """A method with a part switched off, or not yet switched on."""

    label: str
    about: str
    method: str
    options: dict[str, Any]
    edits: tuple[Edit, ...] = ()
    sound: bool = True


# The rule of the paper's Algorithm 2, with one slope a node. Everything is relative to the root's bound: the slope of a
# node is t of the paper, times the node's own bound.
ONE_SLOPE = '''@kernel
def _one_slope(
    f: Flat, deterministic: Flags, share: FloatArray, value: FloatArray, exponent: FloatArray, printed: bool,
    stop: LongArray,
) -> FloatArray:  # fmt: skip
    """Algorithm 2; ``printed`` leaves the siblings of products out, as the paper does, and what results is no bound."""
    n_nodes = f.kind.size
    high, slope = np.zeros(n_nodes), np.full(n_nodes, 1e300)
    high[n_nodes - 1] = slope[n_nodes - 1] = 1.0
    result = np.zeros(f.child.size)
    for n in range(n_nodes - 1, -1, -1):
        if stop[0] != 0:
            break
        for e in range(f.start[n], f.start[n + 1]):
            c = f.child[e]
            edge_high, edge_slope = high[n], slope[n]
            if f.kind[n] == SUM:
                if deterministic[n]:
                    edge_high = min(high[n] - slope[n] * (1 - min(share[e], 1.0)) + 1e-9 * high[n], high[n])
                edge_slope = slope[n] * share[e]
            elif printed:
                edge_slope = min(slope[n] * (value[c] / value[n]) * 2.0 ** (exponent[c] - exponent[n]), 1e300)
            result[e] = edge_high
            high[c] = max(high[c], edge_high)
            slope[c] = min(slope[c], edge_slope)
    return result


'''


def one_slope(printed: bool) -> tuple[Edit, ...]:
    """Iter-Solve with the rule of the paper, as printed or with the factor that is missing there."""
    call = "partial(_edge_bounds, flat, bounds.deterministic, bounds.share)"
    other = f"partial(_one_slope, flat, bounds.deterministic, bounds.share, bounds.value, bounds.exponent, {printed})"
    kernel = "@kernel\ndef _edge_bounds("
    file = "solve/edge_bounds.py"
    return Edit(file, call, other), Edit(file, kernel, ONE_SLOPE + kernel)


PLAIN = {"heuristic": "UB", "regroup": False, "climb": False, "fix": False}

NO_DOMINANCE = (
    Edit(
        SWEEP,
        "        if kept_merged[r] != 0:\n            continue\n        larger, more = True",
        "        if kept_merged[r] != 0 or vector.size > 1:\n            continue\n        larger, more = True",
    ),
)
NO_OUTSIDE = (Edit(SWEEP, "            if floor < LOWEST_FLOOR:\n", "            if True:\n"),)
NO_TIGHTENING = (
    Edit(
        SWEEP,
        "        if turn[depth - 1] == 0:\n            enter(",
        "        if turn[depth - 1] == 0:\n            before[s] = exponent\n            enter(",
    ),
    Edit(
        SWEEP,
        "    stack, turn = np.zeros(n_scopes",
        "    before = np.zeros(n_scopes)\n    stack, turn = np.zeros(n_scopes",
    ),
    Edit(
        SWEEP,
        "            limit[out[out_at[s] + i]] = highest\n",
        "            if before[s] - exponent < 900:\n                highest = 2.0 ** (before[s] - exponent)\n"
        "            limit[out[out_at[s] + i]] = highest\n",
    ),
)
NO_INCUMBENTS = (
    Edit(
        FRONTIER,
        "    if not incumbents.ranked or reduced.start is None:\n",
        "    if priced is not None:\n",
    ),
    Edit(
        FRONTIER,
        "            if k == 1 and log_upper > floor + slack and incumbents.ranked:\n",
        "            if k < 1:\n",
    ),
)
NO_REGROUP = (
    Edit(
        "solve/methods/branch_and_bound.py",
        "return regrouped(view_of(flat, log_factor, self._cardinality, run), self._cardinality, run)",
        "return view_of(flat, log_factor, self._cardinality, run)",
    ),
)

VARIANTS = (
    Variant("frontier", "everything", "frontier", {}),
    Variant(
        "frontier without dominance",
        "a vector is kept although another one is at least as large in every entry (at the root, where there is one "
        "entry, the best is taken)",
        "frontier",
        {},
        NO_DOMINANCE,
    ),
    Variant(
        "frontier without outside bounds",
        "nothing is dropped because the rest of the circuit cannot lift it above the best state known",
        "frontier",
        {},
        NO_OUTSIDE,
    ),
    Variant(
        "frontier without tightening",
        "the outside bounds of a scope take its siblings' output bounds, not what was really found there",
        "frontier",
        {},
        NO_TIGHTENING,
    ),
    Variant(
        "frontier without incumbents",
        "no state before the first sweep and no climbing between sweeps: what is known is what sweeps have found",
        "frontier",
        {},
        NO_INCUMBENTS,
    ),
    Variant(
        "frontier without regroup",
        "no regrouping in the search that wide sweeps take turns with; sweeps themselves have none",
        "frontier",
        {},
        NO_REGROUP,
    ),
    Variant(
        "printed rule",
        "Algorithm 2 as printed. It is no bound, so that an answer may be wrong although it is called optimal",
        "iterative",
        PLAIN,
        one_slope(True),
        sound=False,
    ),
    Variant(
        "corrected rule",
        "the same with the siblings of products multiplied in",
        "iterative",
        PLAIN,
        one_slope(False),
    ),
    Variant("two end points", "the rule of margmap; this is *UB* of the report", "iterative", PLAIN),
    Variant("+ regroup", "and exclusive children of adding sums grouped", "iterative", {**PLAIN, "regroup": True}),
    Variant(
        "+ climb",
        "and hill climbing from every state found",
        "iterative",
        {**PLAIN, "regroup": True, "climb": True},
    ),
    Variant(
        "+ fix",
        "and values that cannot win removed before each split; this is *UB regroup* of the report",
        "iterative",
        {"heuristic": "UB"},
    ),
)


def edited(text: str, edit: Edit) -> str:
    """The text of a file with one edit; a ValueError if its place is not there, or not the only one."""
    if text.count(edit.old) != 1:
        raise ValueError(f"{edit.file}: {edit.old!r} occurs {text.count(edit.old)} times, not once")
    return text.replace(edit.old, edit.new)


def copy_of(variant: Variant) -> Path:
    """The folder with the package that this variant runs: a copy of the sources, edited."""
    source = ROOT / "src"
    name = hashlib.sha256(f"{ROOT} {variant.label}".encode()).hexdigest()[:12]
    folder = Path(tempfile.gettempdir()) / f"margmap-ablation-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source, folder)  # with the machine code of the kernels that stay the same
    for edit in variant.edits:
        path = folder / "margmap" / edit.file
        path.write_text(edited(path.read_text(encoding="utf-8"), edit), encoding="utf-8")
    return folder


def run(
    variant: Variant,
    files: Sequence[Path],
    records: Path,
    seconds: float = SECONDS,
    each: int = EACH,
    jobs: int = 1,
) -> int:
    """Do what has no record yet, on the first ``each`` instances of each dataset and proportion; how many runs.

    Seconds are those of the processor, so that other work on the machine changes nothing. ``jobs`` runs are under way
    at once.
    """
    method = runs.Method(variant.label, variant.method, variant.options)
    tasks = runs.tasks_of(files, [method], seconds, BYTES, computing=True)
    tasks = [moved(task) for task in tasks if task.instance % OF_ONE < each]
    # Runs are done by processes of their own, which import the package from here, and find models from here.
    before, os.environ["PYTHONPATH"] = os.environ.get("PYTHONPATH", ""), str(copy_of(variant))
    at = Path.cwd()
    os.chdir(records.parent)
    try:
        with ThreadPoolExecutor(jobs) as executor:
            return runs.run(tasks, records, executor, jobs)
    finally:
        os.chdir(at)
        os.environ["PYTHONPATH"] = before


def report() -> None:
    """The page with the tables, from the records."""
    found = [json.loads(line) for line in RECORDS.read_text(encoding="utf-8").splitlines()]
    records = {(r["label"], r["dataset"], r["instance"]): r for r in found}
    parts = [variant for variant in VARIANTS if variant.method == "frontier"]
    steps = [variant for variant in VARIANTS if variant.method == "iterative"]
    lines = [
        "# What each part is worth",
        "",
        "The methods of [the paper's experiment](report.md) with parts switched off, on a part of its instances: "
        "frontier without one of its parts, and the paper's solver (`iterative`) with one part more in each row. A run "
        f"had {SECONDS:g} s, 4 GiB and one core. All seconds, also those of the limit, are of the processor, since "
        "other work shared the machine; an unsolved run counts as its limit. Made by `benchmarks/ablation.py report` "
        "from `ablation.jsonl`, which has a record of every run.",
        *part("Frontier", parts, records, "times"),
        *part("The paper's solver, step by step", steps, records, "steps"),
        *wrong_answers(records),
        "",
        "## To repeat",
        "",
        "```sh",
        "python benchmarks/paper.py circuits",
        "python benchmarks/ablation.py run",
        "python benchmarks/ablation.py report",
        "```",
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(PAGE)


Records = dict[tuple[str, str, int], dict[str, Any]]


def part(title: str, variants: list[Variant], records: Records, compared: str) -> list[str]:
    """A section: what the variants are, and how they did on the instances that all of them were run on."""
    each = {v.label: {(name, i) for label, name, i in records if label == v.label} for v in variants}
    most = max(map(len, each.values()))
    have = [v for v in variants if len(each[v.label]) == most]
    left = [v.label for v in variants if v not in have]
    same = sorted(set.intersection(*(each[v.label] for v in have)))
    lines = [
        "",
        f"## {title}",
        "",
        f"{len(same)} instances of {len({name for name, _ in same})} datasets, the same in every row.",
        "",
        "| | solved | mean s | median s | slowest s | total s | times the total of the "
        f"{'first' if compared == 'times' else 'last'} row |",
        "|:--|--:|--:|--:|--:|--:|--:|",
    ]
    seconds = {v.label: [counted(records[(v.label, *key)]) for key in same] for v in have}
    base = sum(seconds[have[0 if compared == "times" else -1].label])
    for v in have:
        own = seconds[v.label]
        solved = sum(records[(v.label, *key)]["status"] == "optimal" for key in same)
        name = v.label if v.sound else f"{v.label} (**unsound**)"
        times = f"{statistics.fmean(own):#.3g} | {statistics.median(own):#.3g} | {max(own):#.3g} | {sum(own):#.4g}"
        lines.append(f"| {name} | {solved} | {times} | {sum(own) / base:#.3g} |")
    if left:
        lines += ["", f"Not run to the end, and therefore not in the table: {', '.join(left)}."]
    return [*lines, "", *(f"- *{v.label}*: {v.about}." for v in have)]


def counted(record: dict[str, Any]) -> float:
    """The seconds of the processor that a run took, or its limit if it was not solved."""
    return float(record["cpu_seconds"]) if record["status"] == "optimal" else SECONDS


def wrong_answers(records: Records) -> list[str]:
    """How often each rule called an answer optimal that is not, where the best state is known."""
    best = {key[1:]: r["log_prob"] for key, r in records.items() if key[0] == "frontier" and r["status"] == "optimal"}
    lines = [
        "",
        "## Wrong answers",
        "",
        "Answers that a run called optimal, compared with the optimum that frontier proved. One more than "
        f"{WRONG:g} nats below it is wrong.",
        "",
        "| | called optimal | of these wrong | furthest below the optimum (nats) | no answer at the limit |",
        "|:--|--:|--:|--:|--:|",
    ]
    for v in VARIANTS:
        own = [(r, best[key[1:]]) for key, r in records.items() if key[0] == v.label and key[1:] in best]
        if not own or v.label == "frontier":
            continue
        claimed = [top - r["log_prob"] for r, top in own if r["status"] == "optimal"]
        wrong = [below for below in claimed if below > WRONG]
        worst = f"{max(wrong):.3g}" if wrong else "–"
        lines.append(f"| {v.label} | {len(claimed)} | {len(wrong)} | {worst} | {len(own) - len(claimed)} |")
    return [
        *lines,
        "",
        "The printed rule is run on margmap's reduced circuits, where what the evidence contributes stands in the "
        "weights of sums. On circuits that keep it at leaves, below products, the rule as printed leaves that out too. "
        "[The erratum](../../erratum.md) says what is wrong with it.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("check", "run", "report"))
    parser.add_argument("--each", type=int, default=EACH, help="instances of each dataset and proportion")
    parser.add_argument("--only", nargs="+", metavar="LABEL", help="these variants only")
    options = parser.parse_args()
    if options.step == "run":
        files = [FIRST.instances(name) for name in DATASETS]
        for variant in VARIANTS:
            if options.only is None or variant.label in options.only:
                print(f"{variant.label}: {run(variant, files, RECORDS, each=options.each)} runs done now", flush=True)
    elif options.step == "check":
        for edit in (edit for variant in VARIANTS for edit in variant.edits):
            edited((ROOT / "src" / "margmap" / edit.file).read_text(encoding="utf-8"), edit)
        print("every line to change is there")
    else:
        report()


if __name__ == "__main__":
    main()
