"""Constrained queries on the shared instances, beside the same queries without constraints.

    .venv/bin/python benchmarks/constraints.py
    .venv/bin/python benchmarks/constraints.py --repeat 1 --only ad

The constraint: at most half as many ones as the best state without it has, at least one fewer, so that it binds. An
instance whose best state has no ones at all must have one instead. Kernels are warm; the time of a query includes the
reduction and the evaluation of the answer, is CPU time (the machine may have other work), and the best of some
repetitions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import margmap as mm
from margmap.circuit import Name, Value
from margmap.io.formats import load_circuit

DATA = Path(__file__).parent.parent.parent / "shared" / "data"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each query")
    parser.add_argument("--only", default="", help="only the instances whose file begins like this")
    given = parser.parse_args()
    if not (DATA / "mmap_instances").is_dir():
        print(f"{DATA / 'mmap_instances'} is not there: nothing to measure")
        return
    ratios, exact = [], 0
    print(
        f"{'instance':<14}{'query':>6}{'ones':>6}{'at most':>8}{'ms':>9}{'within':>10}{'ratio':>7}{'widest':>8}  log p"
    )
    for path in sorted((DATA / "mmap_instances").glob(f"{given.only}*.json")):
        data = json.loads(path.read_text())
        circuit = load_circuit(DATA / data["circuit"])
        for number, instance in enumerate(data["instances"]):
            evidence: dict[Name, Value] = {int(name): value for name, value in instance["evidence"].items()}
            query = instance["query"]

            def free(circuit: mm.Circuit = circuit, query: list[Name] = query, evidence: dict = evidence) -> mm.Result:
                return mm.marginal_map(circuit, query, evidence)

            free()
            plain, seconds = timed(free, given.repeat)
            assert plain.state is not None
            ones = [name for name, value in plain.state.items() if value == 1]
            literals, most = [(name, 1) for name in query], str(len(ones) // 2) if ones else ">= 1"
            rule = mm.constraints.at_most(len(ones) // 2, literals) if ones else mm.constraints.at_least(1, literals)

            def within(
                circuit: mm.Circuit = circuit, query: list[Name] = query, evidence: dict = evidence, rule: object = rule
            ) -> mm.Result:
                return mm.marginal_map(circuit, query, evidence, constraints=[rule], time_limit=60)

            within()
            found, longer = timed(within, given.repeat)
            assert found.state is not None
            exact += found.status == "optimal"
            ratios.append(longer / seconds)
            print(
                f"{path.stem + ' ' + str(number):<14}{len(query):>6}{len(ones):>6}{most:>8}"
                f"{seconds * 1e3:>9.2f}{longer * 1e3:>10.2f}{longer / seconds:>7.1f}{found.details['widest']:>8}"
                f"  {found.log_prob:.4f} ({found.status}, without {plain.log_prob:.4f})",
                flush=True,
            )
    print(f"exact: {exact} of {len(ratios)}")
    print(f"times the query without constraints, median: {statistics.median(ratios):.2f} (at most 10)")
    print(f"the same, worst: {max(ratios):.1f}")


def timed(ask: Callable[[], mm.Result], repeat: int) -> tuple[mm.Result, float]:
    """The answer, and the CPU seconds of the fastest of some calls."""
    best, result = float("inf"), None
    for _ in range(repeat):
        begun = time.process_time()
        result = ask()
        best = min(best, time.process_time() - begun)
    assert result is not None
    return result, best


if __name__ == "__main__":
    main()
