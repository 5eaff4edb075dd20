"""Large circuits and hard ones: what a query costs beside one evaluation, peak memory, and auto beside its parts.

    .venv/bin/python benchmarks/scale.py                       # latent trees, 0.6 to 13 M edges; coins
    .venv/bin/python benchmarks/scale.py --sizes 784x256       # 51 M edges: some minutes, and 4 GB
    .venv/bin/python benchmarks/scale.py --hard 60 --sizes     # only the hard circuits, up to 60 s each
    .venv/bin/python benchmarks/scale.py --hard 0              # only the large ones

Every size is built and saved in one process and answered in another, from the file, so that the peaks are their own.
Kernels are warm. Seconds are of the clock, the best of so many repetitions; seconds of the processor stand beside them,
for machines that other work shares. Ratios are of the processor's seconds. Run it with MARGMAP_TIER=compile and
MARGMAP_BACKGROUND=0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import margmap as mm
from margmap.bench.generators import coin_mixture, latent_tree

#: Percentages of queried and observed variables; all queried is MPE.
MIXES = ((10, 10), (30, 30), (50, 20), (100, 0))
SIZES = ("150x64", "784x64", "784x128")


def peak() -> float:
    """The most memory this process has had at once, in MB."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def array_bytes(circuit: mm.Circuit) -> float:
    """The arrays of a circuit, in MB."""
    names = ("kind", "start", "child", "log_weight", "var", "param_start", "param")
    return float(sum(getattr(circuit, name).nbytes for name in names) / 2**20)


def best_of(repeat: int, work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Least seconds of the clock and of the processor, and the last result."""
    seconds, busy, result = [], [], None
    for _ in range(repeat):
        clock, processor = time.perf_counter(), time.process_time()
        result = work()
        seconds.append(time.perf_counter() - clock)
        busy.append(time.process_time() - processor)
    return min(seconds), min(busy), result


def warm() -> float:
    """Load the kernels; the peak memory so far."""
    small = latent_tree(0, variables=6, states=12)
    mm.mpe(small)
    mm.marginal_map(small, [0, 1], {2: 1})
    mm.log_marginal(small, {0: 1})
    return peak()


def build(size: str, path: Path) -> None:
    variables, states = map(int, size.split("x"))
    before = warm()
    clock, _, circuit = best_of(1, lambda: latent_tree(0, variables=variables, states=states))
    saved, _, _ = best_of(1, lambda: mm.save(circuit, path))
    arrays = array_bytes(circuit)
    times = (peak() - before) / arrays
    took = f"built in {clock:.1f} s, saved in {saved:.1f} s"
    print(f"{size}: {circuit.num_edges:,} edges, arrays of {arrays:.0f} MB; {took}")
    print(f"{size}: peak while built and saved {times:.2f} times the arrays (at most 3)", flush=True)


def answer(size: str, path: Path, seeds: int, repeat: int) -> None:
    before = warm()
    loaded, _, circuit = best_of(1, lambda: mm.load(path))
    first, _, _ = best_of(1, lambda: mm.log_marginal(circuit, {0: 0}))
    print(f"{size}: loaded in {loaded:.2f} s, prepared and evaluated in {first:.2f} s", flush=True)
    ratios, longest, variables = [], 0.0, len(circuit.variables)
    for asked, observed in MIXES:
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            order = rng.permutation(variables).tolist()
            count = variables * asked // 100
            given = {i: int(rng.integers(2)) for i in order[count : count + variables * observed // 100]}
            _, one, _ = best_of(repeat, lambda given=given: mm.log_marginal(circuit, given))
            query = order[:count]
            clock, busy, r = best_of(repeat, lambda q=query, e=given: mm.marginal_map(circuit, q, e))
            ratios.append(busy / one)
            longest = max(longest, clock)
            shown = f"{clock:.2f} s, {busy:.2f} of the processor, {busy / one:.1f} evaluations, {r.status}"
            print(f"{size}, {asked}/{observed}, seed {seed}: {shown}, log {r.log_prob:.6f}", flush=True)
    print(f"{size}: evaluations, median {median(ratios):.1f} (at most 8), worst {max(ratios):.1f} (at most 20)")
    times = (peak() - before) / array_bytes(circuit)
    print(f"{size}: longest {longest:.1f} s (at most 60); peak {times:.2f} times the arrays (at most 3)")


def hard(seconds: float) -> None:
    """Auto's gap beside the best gap that one method has after half of the time."""
    for components in (20, 60, 100):
        circuit = coin_mixture(1, components=components)
        for limit in [limit for limit in (1.0, 10.0, 60.0) if limit <= seconds]:
            alone = {
                method: mm.marginal_map(circuit, None, method=method, time_limit=limit / 2).gap
                for method in ("frontier", "branch", "iterative")
            }
            auto = mm.marginal_map(circuit, None, time_limit=limit).gap
            allowed = 1.1 * min(alone.values()) + 0.01
            shown = ", ".join(f"{method} {gap:.3f}" for method, gap in alone.items())
            met = "yes" if auto <= allowed else "NO"
            print(
                f"{components} coins, {limit:g} s: auto {auto:.3f}, allowed {allowed:.3f}: {met} ({shown})", flush=True
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", default=SIZES, metavar="VxS", help="variables and latent states")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--hard", type=float, default=10.0, metavar="SECONDS", help="the longest limit; 0: none")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        what, size, path = json.loads(given.step)
        build(size, Path(path)) if what == "build" else answer(size, Path(path), given.seeds, given.repeat)
        return
    with tempfile.TemporaryDirectory() as folder:
        for size in given.sizes:
            path = os.path.join(folder, f"{size}.mmz")
            for what in ("build", "answer"):
                step = ["--step", json.dumps([what, size, path])]
                counts = ["--seeds", str(given.seeds), "--repeat", str(given.repeat)]
                subprocess.run([sys.executable, __file__, *step, *counts], check=True)
            os.remove(path)
    if given.hard:
        hard(given.hard)


if __name__ == "__main__":
    main()
