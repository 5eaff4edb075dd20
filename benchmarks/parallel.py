"""One hard query on one process and on two: seconds of each, and the ratio.

    .venv/bin/python benchmarks/parallel.py
    .venv/bin/python benchmarks/parallel.py --jobs 4 --limit 300 coins

Both answers must be proven and the same. The time of several processes includes starting them; "cpu" is what all of
them used together, so that on a busy machine the work can be compared where the time cannot. Queries: all variables
of random circuits whose scopes cross, and of mixtures of coins so much alike that frontiers get wide; without
../shared/data the networks are left out.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import margmap as mm
from bayesnet import queries
from frontier import warm_up
from margmap.bench.generators import partition_tree
from margmap.circuit import BERNOULLI, Parts, Variable, assemble

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


class Case(NamedTuple):
    """A model, a question, and the method."""

    model: Any
    query: list[Any] | None
    evidence: dict[Any, Any]
    method: str


def coins(seed: int, variables: int, components: int, spread: float) -> mm.Circuit:
    """A mixture of independent coins, all of them nearly fair."""
    rng = np.random.default_rng(seed)
    parts = Parts.new()
    rows = rng.uniform(0.5 - spread, 0.5 + spread, (components, variables))
    leaves = [[parts.leaf(BERNOULLI, i, [math.log(p), math.log1p(-p)]) for i, p in enumerate(row)] for row in rows]
    parts.sum([parts.product(row) for row in leaves], [-math.log(components)] * components)
    return assemble([Variable(i) for i in range(variables)], parts)


def _network(name: str) -> Case:
    network = mm.load_network(DATA / "bif" / f"{name}.bif.gz")
    return Case(network, *queries(network)[0], "frontier")


CASES: dict[str, Callable[[], Case]] = {
    "crossing": lambda: Case(partition_tree(1, variables=60, levels=3, children=7), None, {}, "branch"),
    "coins branch": lambda: Case(coins(0, 32, 20, 0.15), None, {}, "branch"),
    "coins frontier": lambda: Case(coins(0, 29, 18, 0.15), None, {}, "frontier"),
    "barley": lambda: _network("barley"),
    "diabetes": lambda: _network("diabetes"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases that begin so: {', '.join(CASES)}")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each run")
    options = parser.parse_args()
    warm_up()
    for name, make in CASES.items():
        if options.names and not name.startswith(tuple(options.names)):
            continue
        if name in ("barley", "diabetes") and not DATA.is_dir():
            continue
        case = make()
        one, many = (ask(case, jobs, options.limit) for jobs in (1, options.jobs))
        print(f"{name:<16}{show(one)}, {options.jobs} processes {show(many)}", end="")
        if one[1].status == many[1].status == "optimal":
            assert math.isclose(one[1].log_prob, many[1].log_prob, rel_tol=1e-9), (one[1].log_prob, many[1].log_prob)
            print(f", ratio {one[0] / many[0]:.2f}", end="")
        print(f" ({many[1].details.get('tasks', 0)} tasks)", flush=True)


def ask(case: Case, jobs: int, limit: float) -> tuple[float, mm.Result, float]:
    begun, used = time.perf_counter(), time.process_time()
    result = mm.marginal_map(case.model, case.query, case.evidence, case.method, limit, jobs=jobs)
    cpu = time.process_time() - used + result.details.get("worker_seconds", 0.0)
    return time.perf_counter() - begun, result, cpu


def show(timed: tuple[float, mm.Result, float]) -> str:
    seconds, result, used = timed
    return f"{seconds:8.2f} s (cpu {used:.2f} s)" + (
        "" if result.status == "optimal" else f" ({result.status}, gap {result.gap:.3g})"
    )


if __name__ == "__main__":
    main()
