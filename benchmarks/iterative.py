"""Seconds and peak edges of the iterative solver on the 48 shared instances: plain and with regrouping, UB and Pruned.

    .venv/bin/python benchmarks/iterative.py
    .venv/bin/python benchmarks/iterative.py --only plants --time-limit 60

"plain" is the paper's algorithm with the corrected edge bounds and nothing else: no regrouping, no hill climbing, no
fixing of variables. "regroup" is the same with regrouping; "all" has all three on, the default. A run that reaches the
time limit shows the bounds it reached. Ratios compare what both settings solved. Needs ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import margmap as mm
from margmap.io.formats import load_circuit

DATA = Path(__file__).parent.parent.parent / "shared" / "data"
PLAIN = {"regroup": False, "climb": False, "fix": False}
SETTINGS: dict[str, dict[str, Any]] = {
    "UB plain": {"heuristic": "UB", **PLAIN},
    "Pruned plain": {"heuristic": "Pruned", **PLAIN},
    "UB regroup": {"heuristic": "UB", **PLAIN, "regroup": True},
    "Pruned regroup": {"heuristic": "Pruned", **PLAIN, "regroup": True},
    "UB all": {"heuristic": "UB"},
}


class Run(NamedTuple):
    """What one setting made of one instance."""

    seconds: float
    edges: int
    solved: bool
    note: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds for each run (default 20)")
    parser.add_argument("--only", metavar="NAME", action="append", help="only this dataset; may be repeated")
    parser.add_argument("--setting", metavar="S", action="append", choices=list(SETTINGS), help="only this setting")
    arguments = parser.parse_args()
    files = sorted((DATA / "mmap_instances").glob("*.json"))
    if arguments.only:
        unknown = set(arguments.only) - {path.stem for path in files}
        if unknown:
            parser.error(f"no instances of {', '.join(sorted(unknown))} in {DATA / 'mmap_instances'}")
        files = [path for path in files if path.stem in arguments.only]
    if not files:
        print(f"{DATA / 'mmap_instances'} is not there: this benchmark needs ../shared/data")
        return
    names = arguments.setting or list(SETTINGS)
    warm_up()
    runs: dict[str, list[Run]] = {name: [] for name in names}
    print(f"{'seconds / peak edges':<24}" + "".join(f"{name:>20}" for name in names))
    for path in files:
        data = json.loads(path.read_text())
        circuit = load_circuit(DATA / data["circuit"])
        for number, instance in enumerate(data["instances"]):
            row = [run(circuit, instance, SETTINGS[name], arguments.time_limit) for name in names]
            print(f"{path.stem + ' ' + str(number):<24}" + "".join(map(cell, row)), flush=True)
            for name, one in zip(names, row, strict=True):
                runs[name].append(one)
                if one.note:
                    print(f"    {name}: {one.note}", flush=True)
    summary(runs)


def run(circuit: mm.Circuit, instance: dict[str, Any], options: dict[str, Any], time_limit: float) -> Run:
    evidence = {int(name): value for name, value in instance["evidence"].items()}
    r = mm.marginal_map(circuit, instance["query"], evidence, "iterative", time_limit, **options)
    best = instance["log_optimum"]
    note = ""
    if r.status != "optimal":
        reached = f"{r.log_prob:.6f} <= log p <= {r.log_upper:.6f}, optimum {best:.6f}"
        note = f"{r.status.replace('_', ' ')} after {r.seconds:.1f} s, {r.details['iterations']} iterations: {reached}"
    elif not math.isclose(r.log_prob, best, rel_tol=1e-9):
        note = f"WRONG: {r.log_prob!r}, but the optimum is {best!r}"
    return Run(r.seconds, r.details["peak_edges"], r.status == "optimal", note)


def cell(one: Run) -> str:
    seconds = f"{one.seconds:.3f}" if one.solved else "stopped"
    return f"{seconds + ' / ' + format(one.edges, ','):>20}"


def summary(runs: dict[str, list[Run]]) -> None:
    lines = {
        "solved": [f"{sum(one.solved for one in rows)} of {len(rows)}" for rows in runs.values()],
        "total seconds": [f"{sum(one.seconds for one in rows):,.1f}" for rows in runs.values()],
        "total peak edges": [f"{sum(one.edges for one in rows):,}" for rows in runs.values()],
    }
    print()
    for title, cells in lines.items():
        print(f"{title:<24}" + "".join(f"{text:>20}" for text in cells))
    first, *others = runs
    for name in others:
        both = [(a, b) for a, b in zip(runs[first], runs[name], strict=True) if a.solved and b.solved]
        if both:
            seconds = sum(b.seconds for _, b in both) / sum(a.seconds for a, _ in both)
            edges = sum(b.edges for _, b in both) / sum(a.edges for a, _ in both)
            which = f"on the {len(both)} that both solved"
            print(f"{name} over {first}, {which}: seconds x {seconds:.3f}, peak edges x {edges:.3f}")


def warm_up() -> None:
    """Compile, or load, every kernel before the clock runs."""
    x, y = mm.Variable("x"), mm.Variable("y")
    first = mm.bernoulli(x, 0.9) * mm.bernoulli(y, 0.5)
    circuit = mm.circuit_of(0.5 * first + 0.5 * mm.bernoulli(x, 0.1) * mm.bernoulli(y, 0.1))
    for options in SETTINGS.values():
        mm.marginal_map(circuit, None, method="iterative", **options)


if __name__ == "__main__":
    main()
