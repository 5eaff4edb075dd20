"""Rows a second of a batch on one process, on two, and on two Dask workers, with the ratios.

    nice -n -10 .venv/bin/python benchmarks/batch.py
    .venv/bin/python benchmarks/batch.py --rows 200 --repeat 1

A thousand rows of evidence for the MNIST circuit (samples of it) and for plants (its test rows): 30 % of the variables
are queried, 30 % observed, 40 % summed out, the same ones in every row. The executors are open and have answered some
rows before the clock starts, as those of a service or a cluster would; "from nothing" is the time with the start of two
processes in it. The ways take turns, and the best of the repeats counts, since others use the machine too. CPU time,
that of all processes together, says what the ways cost whoever else uses the machine (Linux only). All ways must give
the same answers.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import margmap as mm
from margmap.distribute.executors import open_executor
from margmap.foundation.cores import usable_cores
from margmap.io.formats import load_circuit

DATA = Path(__file__).parent.parent.parent / "shared" / "data"
PROCESSES = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    if not DATA.is_dir():
        raise SystemExit(f"no shared data at {DATA}")
    print(f"{given.rows} rows, best of {given.repeat}, {usable_cores()} cores, load {os.getloadavg()[0]:.1f}")
    plants = load_circuit(DATA / "psdd" / "plants.psdd.gz")
    tests = np.loadtxt(DATA / "debd" / "plants" / "plants.test.data.gz", delimiter=",", dtype=np.int8)
    mnist = load_circuit(DATA / "other" / "mnist_cats8_181.jpc.gz")
    for name, circuit, rows in (
        ("plants", plants, tests[: given.rows]),
        ("MNIST", mnist, mm.sample(mnist, given.rows, seed=1)),
    ):
        measure(name, circuit, rows, given.repeat)


def measure(name: str, circuit: mm.Circuit, rows: Any, repeat: int) -> None:
    order = np.random.default_rng(1).permutation(len(circuit.variables))
    third = round(0.3 * len(order))
    query = [circuit.variables[i].name for i in order[:third]]
    observed = [circuit.variables[i].name for i in order[third : 2 * third]]
    evidence = rows[:, order[third : 2 * third]]

    def ask(rows: Any = evidence, **where: Any) -> Iterable[mm.Result | mm.FailedRow]:
        return mm.marginal_map_many(circuit, query, rows, columns=observed, **where)

    with ExitStack() as stack:
        ways: dict[str, Callable[[Any], Iterable[Any]]] = {"1 process": lambda rows: ask(rows, jobs=1)}
        local = stack.enter_context(open_executor(PROCESSES))
        ways[f"{PROCESSES} processes"] = lambda rows: ask(rows, executor=local)
        try:
            cluster = stack.enter_context(open_executor(PROCESSES, "local"))
            ways[f"{PROCESSES} Dask workers"] = lambda rows: ask(rows, executor=cluster)
        except mm.MissingExtraError:
            print("no Dask: pip install 'margmap[cluster]'")
        answers: dict[str, list[Any]] = {}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        work: dict[str, list[float]] = {way: [] for way in ways}
        for run in ways.values():
            list(run(evidence[: 20 * PROCESSES]))
        for _ in range(repeat):
            for way, run in ways.items():
                begun, used = time.perf_counter(), cpu_seconds()
                answers[way] = [facts(answer) for answer in run(evidence)]
                seconds[way].append(time.perf_counter() - begun)
                work[way].append(cpu_seconds() - used)
    first = answers["1 process"]
    assert all(other == first for other in answers.values()), "the answers differ"
    assert len(first) == len(evidence)
    begun = time.perf_counter()
    assert len(list(ask(jobs=PROCESSES))) == len(evidence)
    cold = time.perf_counter() - begun
    best = {way: min(times) for way, times in seconds.items()}
    print(f"\n{name}: {circuit!r}, query {len(query)}, evidence {len(observed)}")
    for way, time_ in best.items():
        runs = ", ".join(f"{t:.2f}" for t in seconds[way])
        ratio = best["1 process"] / time_
        cpu = 1000 * min(work[way]) / len(evidence)
        rate = len(evidence) / time_
        print(f"  {way:15} {rate:8.1f} rows/s   {ratio:.2f} x one process   {cpu:6.2f} ms CPU a row   ({runs} s)")
    print(f"  {PROCESSES} processes from nothing {len(evidence) / cold:.1f} rows/s, {best['1 process'] / cold:.2f} x")
    if f"{PROCESSES} Dask workers" in best:
        share = best[f"{PROCESSES} processes"] / best[f"{PROCESSES} Dask workers"]
        print(f"  Dask at {100 * share:.0f} % of local processes")


def cpu_seconds() -> float:
    """CPU time of this process and all below it; NaN where the system does not tell."""
    ticks: dict[int, float] = {}
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        number = int(path.parent.name)
        ticks[number] = float(fields[11]) + float(fields[12])
        below.setdefault(int(fields[1]), []).append(number)
    if os.getpid() not in ticks:
        return float("nan")
    total, todo = 0.0, [os.getpid()]
    while todo:
        number = todo.pop()
        total += ticks[number]
        todo.extend(below.get(number, []))
    return total / os.sysconf("SC_CLK_TCK")


def facts(answer: mm.Result | mm.FailedRow) -> Any:
    """What all ways must agree in: the last digit of a bound depends on the rows that are answered together."""
    if isinstance(answer, mm.FailedRow):
        return answer
    return answer.status, answer.state, answer.log_prob, round(answer.log_upper, 9)


if __name__ == "__main__":
    main()
