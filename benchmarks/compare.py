"""Is this commit slower than another one? The same queries in both, in turn, the best of several rounds.

    .venv/bin/python benchmarks/compare.py --against HEAD~1
    .venv/bin/python benchmarks/compare.py --against v0.1.0 --method iterative --rounds 3

The queries are the instances of ../shared/data. Each round is a process of its own with kernels that are warm; rounds
of the two commits alternate, so that whatever else the machine does falls on both. Printed are the seconds of all
queries together, the median of the ratios, and the queries that changed most. Answers must agree.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"


def one_round(method: str, repeats: int) -> dict[str, tuple[float, float]]:
    """In a process of one of the commits: seconds and log p of every query, best of some repeats."""
    import margmap as mm

    found = {}
    for path in sorted((DATA / "mmap_instances").glob("*.json")):
        circuit = mm.load(DATA / "psdd" / f"{path.stem}.psdd.gz")
        for i, instance in enumerate(json.loads(path.read_text())["instances"]):
            evidence = {int(name): value for name, value in instance["evidence"].items()}
            best, log_prob = math.inf, 0.0
            for repeat in range(repeats + 1):  # the first one warms what a circuit keeps
                begun = time.perf_counter()
                log_prob = mm.marginal_map(circuit, instance["query"], evidence, method).log_prob
                best = min(best, time.perf_counter() - begun) if repeat else best
            found[f"{path.stem} {i}"] = (best, log_prob)
    return found


def measured(source: Path, method: str, repeats: int) -> dict[str, Any]:
    """One round with the package in ``source``."""
    command = [sys.executable, __file__, "--worker", "--method", method, "--repeats", str(repeats)]
    env = {**os.environ, "PYTHONPATH": str(source / "src")}
    found: dict[str, Any] = json.loads(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REV", default="HEAD~1", help="the commit to compare with")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="of each query in a round")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(one_round(options.method, options.repeats)))
        return
    if not DATA.is_dir():
        sys.exit(f"no shared data at {DATA}")
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", other, options.against], cwd=ROOT, check=True)
        try:
            sources = {"before": other, "now": ROOT}
            for source in sources.values():
                measured(source, options.method, 1)  # compiles
            best: dict[str, dict[str, float]] = {"before": {}, "now": {}}
            values: dict[str, float] = {}
            for number in range(options.rounds):
                for which, source in sources.items():
                    print(f"round {number + 1}, {which}", file=sys.stderr)
                    for name, (seconds, log_prob) in measured(source, options.method, options.repeats).items():
                        best[which][name] = min(best[which].get(name, math.inf), seconds)
                        if not math.isclose(values.setdefault(name, log_prob), log_prob, rel_tol=1e-9):
                            sys.exit(f"{name}: {log_prob!r} where the other has {values[name]!r}")
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)
    before, now = best["before"], best["now"]
    ratios = {name: now[name] / before[name] for name in now}
    total = sum(now.values()) / sum(before.values())
    print(f"method {options.method}, {len(now)} queries, best of {options.rounds} rounds, against {options.against}")
    print(f"total {1000 * sum(before.values()):.1f} ms -> {1000 * sum(now.values()):.1f} ms: ratio {total:.3f}")
    print(f"median of the ratios {statistics.median(ratios.values()):.3f}")
    for name in sorted(ratios, key=lambda name: ratios[name])[-5:]:
        print(f"  {name}: {1000 * before[name]:.2f} ms -> {1000 * now[name]:.2f} ms, {ratios[name]:.2f}")


if __name__ == "__main__":
    main()
