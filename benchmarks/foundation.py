"""Seconds of what every query rests on, beside what was aimed at: import, read, reduce, evaluate.

    .venv/bin/python benchmarks/foundation.py

Each figure is the best of several runs after one that warms up (and compiles). Needs ../shared/data.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import margmap as mm
from margmap.io.evidence_rows import read_matrix
from margmap.io.formats import load_circuit
from margmap.solve.reduce import reduce

DATA = Path(__file__).parent.parent.parent / "shared" / "data"
MODEL = DATA / "psdd" / "plants.psdd.gz"
INSTANCES = DATA / "mmap_instances" / "plants.json"
ROWS = DATA / "debd" / "plants" / "plants.test.data.gz"

IMPORT = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def best_of(times: int, work: Callable[[], object]) -> float:
    work()
    best = float("inf")
    for _ in range(times):
        begun = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begun)
    return best


def import_seconds(module: str, times: int = 5) -> float:
    code = IMPORT.format(module)
    run = [subprocess.run([sys.executable, "-c", code], capture_output=True, check=True) for _ in range(times)]
    return min(float(done.stdout) for done in run)


def show(what: str, seconds: float, target: float | None = None) -> None:
    aim = "" if target is None else f"   target {target * 1e3:7.0f} ms   {'ok' if seconds <= target else 'MISSED'}"
    print(f"{what:<58} {seconds * 1e3:9.2f} ms{aim}")


def main() -> None:
    show("import margmap", import_seconds("margmap"))
    show("import margmap.solve, which brings numpy and numba", import_seconds("margmap.solve"))
    missing = [path for path in (MODEL, INSTANCES, ROWS) if not path.exists()]
    if missing:
        print(f"{missing[0]} is not there: the other figures need ../shared/data")
        return
    circuit = load_circuit(MODEL)
    instance = next(i for i in json.loads(INSTANCES.read_text())["instances"] if i["proportion"] == "q30e30h40")
    query, evidence = instance["query"], instance["evidence"]
    rows = read_matrix(ROWS).astype(int)
    print(f"plants: {circuit!r}, {len(rows)} test rows")
    show("read plants.psdd.gz", best_of(5, lambda: load_circuit(MODEL)), 1.0)
    show("reduce it, 30% query, 30% evidence, 40% hidden", best_of(20, lambda: reduce(circuit, query, evidence)), 0.05)
    show("log-likelihood of the test split", best_of(5, lambda: mm.log_likelihood(circuit, rows)), 1.0)
    show("one log_marginal", best_of(20, lambda: mm.log_marginal(circuit, evidence)), 0.5)


if __name__ == "__main__":
    main()
