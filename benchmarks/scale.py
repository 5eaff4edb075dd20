"""Large circuits: all figures of one run, each beside what it is to be at most.

    .venv/bin/python benchmarks/scale.py                       # all but 51 M edges: an hour or so, quiet machine
    .venv/bin/python benchmarks/scale.py --quick               # the same figures of smaller circuits: some minutes
    .venv/bin/python benchmarks/scale.py --parts large --sizes 784x256 --seeds 5      # 51 M edges, and 4 GB

Parts: ``large`` (latent trees: what a query costs beside one evaluation, peak memory, how cost grows), ``learned``
(latent trees that were learned), ``session`` (100 changes of one variable beside queries from scratch) and ``batch``
(rows a second). The changes of a session are measured twice: first all of them in a row, as somebody explores a model,
and then all queries from scratch; then both in turn, so that each finds the caches as the other has left them. What
stays hard is in ``hard.py``.

An evaluation is one pass over the circuit edge by edge, on one core, as ``log_marginal`` did it before dense blocks
were multiplied: the pass is written down here, so that the measure stays the same when the library gets quicker. Every
size is built and saved in one process and answered in another, from the file, so that the peaks are their own. Kernels
are warm. Ratios to an evaluation are of the processor's seconds on one thread, the least of so many repetitions; what
two threads take by the clock, in turns with one, is printed beside them. MARGMAP_TIER and MARGMAP_BACKGROUND are set by
the script.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("MARGMAP_TIER", "compile")
os.environ.setdefault("MARGMAP_BACKGROUND", "0")

import numpy as np

import margmap as mm
from margmap.bench.generators import latent_tree
from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import STEP, TINY, plus
from margmap.inference import pieces
from margmap.inference.passes import leaf_value
from margmap.inference.scaled import Scaled, scaled
from margmap.io.formats import load_circuit

DATA = Path(__file__).parent.parent.parent / "shared" / "data"
PARTS = ("large", "learned", "session", "batch")

#: The circuits of sessions: a latent tree, and those of the shared data.
SESSIONS = sorted({"latent", "plants", *(path.stem for path in (DATA / "mmap_instances").glob("*.json"))})

#: Percentages of queried and observed variables; all queried is MPE.
MIXES = ((10, 10), (30, 30), (50, 20), (100, 0))
SIZES = ("150x64", "784x64", "784x128")
QUICK_SIZES = ("40x32", "150x32")
THREADS = 2


def target(what: str, value: float, aim: float) -> None:
    print(f"{what:<72}{value:>10.3g}   at most {aim:g}: {'ok' if value <= aim else 'MISSED'}", flush=True)


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


@kernel
def edge_by_edge(s: Scaled, codes: IntArray, reals: FloatArray, value: FloatArray, exponent: FloatArray) -> None:
    """The values of all nodes, as pairs, in one plain pass: what an evaluation is measured by."""
    for n in range(s.kind.size):
        if s.kind[n] == PRODUCT:
            v, power = 1.0, 0.0
            for e in range(s.start[n], s.start[n + 1]):
                v *= value[s.child[e]]
                power += exponent[s.child[e]]
                if v < TINY:
                    if v == 0:
                        power = 0.0
                        break
                    v /= TINY
                    power -= STEP
            value[n], exponent[n] = v, power
        elif s.kind[n] == SUM:
            v, power, plain = 0.0, 0.0, True
            for e in range(s.start[n], s.start[n + 1]):
                c = s.child[e]
                plain &= exponent[c] == 0 and s.shift[e] == 0
                v += s.weight[e] * value[c]
            if not plain:
                v = 0.0
                for e in range(s.start[n], s.start[n + 1]):
                    c = s.child[e]
                    v, power = plus(v, power, s.weight[e] * value[c], s.shift[e] + exponent[c])
            if 0 < v < TINY:
                v /= TINY
                power -= STEP
            value[n], exponent[n] = v, power
        else:
            value[n], exponent[n] = leaf_value(s, n, codes, reals)


def evaluation(circuit: mm.Circuit, given: dict[int, int], repeat: int) -> float:
    """Seconds of the processor of one evaluation."""
    s = scaled(circuit)
    codes, reals = circuit.encoded(circuit.observed(given))
    value, exponent = np.zeros(s.kind.size), np.zeros(s.kind.size)
    edge_by_edge(s, codes, reals, value, exponent)
    return best_of(repeat, lambda: edge_by_edge(s, codes, reals, value, exponent))[1]


def question(variables: int, asked: int, observed: int, seed: int) -> tuple[list[int], dict[int, int]]:
    """So many percent of the variables asked for, so many observed."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(variables).tolist()
    count = variables * asked // 100
    given = {i: int(rng.integers(2)) for i in order[count : count + variables * observed // 100]}
    return order[:count], given


def named(circuit: mm.Circuit, query: list[int], given: dict[int, int]) -> tuple[list[Any], dict[Any, int]]:
    """The same with the names of the variables."""
    names = circuit.names
    return [names[i] for i in query], {names[i]: value for i, value in given.items()}


def warm() -> float:
    """Load the kernels; the peak memory so far."""
    small = latent_tree(0, variables=6, states=12)
    mm.mpe(small)
    mm.marginal_map(small, [0, 1], {2: 1})
    mm.log_marginal(small, {0: 1})
    evaluation(small, {}, 1)
    least, pieces.LEAST_EDGES = pieces.LEAST_EDGES, 0
    mm.mpe(latent_tree(0, variables=100, states=8))
    pieces.LEAST_EDGES = least
    return peak()


def build(size: str, path: Path) -> None:
    variables, states = map(int, size.split("x"))
    before = warm()
    clock, _, circuit = best_of(1, lambda: latent_tree(0, variables=variables, states=states))
    saved, _, _ = best_of(1, lambda: mm.save(circuit, path))
    arrays = array_bytes(circuit)
    took = f"built in {clock:.1f} s, saved in {saved:.1f} s"
    print(f"{size}: {circuit.num_edges:,} edges, arrays of {arrays:.0f} MB; {took}")
    target(f"{size}: peak while built and saved, times the arrays", (peak() - before) / arrays, 3)


def answer(size: str, path: Path, seeds: int, repeat: int) -> None:
    """All mixes of one size; the last line, for the process that asked, has what it fits and sums up."""
    before = warm()
    loaded, _, circuit = best_of(1, lambda: mm.load(path))
    first, _, _ = best_of(1, lambda: mm.log_marginal(circuit, {0: 0}))
    print(f"{size}: loaded in {loaded:.2f} s, prepared and evaluated in {first:.2f} s", flush=True)
    ratios, busiest, longest, exact, variables = [], [], 0.0, True, len(circuit.variables)
    gains = []
    for asked, observed in MIXES:
        for seed in range(seeds):
            query, given = question(variables, asked, observed, seed)
            one = evaluation(circuit, given, repeat)
            alone = busy = clock = math.inf
            for _ in range(repeat):  # in turns, so that what else the machine does hits both
                seconds, used, first = best_of(1, partial(mm.marginal_map, circuit, query, given, threads=1))
                alone, busy = min(alone, seconds), min(busy, used)
                seconds, _, r = best_of(1, partial(mm.marginal_map, circuit, query, given, threads=THREADS))
                clock = min(clock, seconds)
                assert (first.state, first.log_prob, first.log_upper) == (r.state, r.log_prob, r.log_upper)
            gains.append(alone / clock)
            ratios.append(busy / one)
            busiest.append(busy)
            longest, exact = max(longest, clock), exact and r.status == "optimal"
            shown = f"{alone:.3f} s, {busy:.3f} of the processor, {busy / one:.1f} evaluations; "
            shown += f"{THREADS} threads {clock:.3f} s, {alone / clock:.2f} times as fast; {r.status}"
            print(f"{size}, {asked}/{observed}, seed {seed}: {shown}, log {r.log_prob:.6f}", flush=True)
    target(f"{size}: seconds of the longest query", longest, 60)
    if circuit.num_edges > 3_000_000:
        target(f"{size}: {THREADS} threads beside one, seconds, median", 1 / median(gains), 1 / 1.5)
    target(f"{size}: peak while answering, times the arrays", (peak() - before) / array_bytes(circuit), 3)
    print(json.dumps({"edges": circuit.num_edges, "ratios": ratios, "busy": median(busiest), "exact": exact}))


def large(sizes: list[str], seeds: int, repeat: int) -> None:
    """Latent trees of all sizes, and how cost grows with the edges."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            path = os.path.join(folder, f"{size}.mmz")
            for what in ("build", "answer"):
                step = ["--step", json.dumps([what, size, path]), "--seeds", str(seeds), "--repeat", str(repeat)]
                done = subprocess.run([sys.executable, __file__, *step], check=True, text=True, stdout=subprocess.PIPE)
                lines = done.stdout.splitlines()
                if what == "answer":
                    found.append(json.loads(lines.pop()))
                print("\n".join(lines), flush=True)
            os.remove(path)
    ratios = [ratio for one in found for ratio in one["ratios"]]
    target("latent trees: evaluations, median", median(ratios), 8)
    target("latent trees: evaluations, worst", max(ratios), 20)
    target("latent trees: sizes with a query that is not exact", sum(not one["exact"] for one in found), 0)
    if len(found) > 1:
        edges, busy = (np.log([one[what] for one in found]) for what in ("edges", "busy"))
        print(f"latent trees: a query's time grows with the edges to the power of {np.polyfit(edges, busy, 1)[0]:.2f}")


def learned(repeat: int, quick: bool) -> None:
    """Latent trees that were learned: from rows, in a few rounds of EM, and one in a file of another library."""
    circuits = {}
    for name, states in () if quick else (("plants", 64), ("tmovie", 64), ("c20ng", 32)):
        rows = mm.learn.load_dataset(name, DATA / "debd").train[:4000]
        circuits[f"{name}, {states} states"] = mm.learn.hclt(rows, latent=states, epochs=2)
    circuits["MNIST"] = load_circuit(DATA / "other" / "mnist_cats8_181.jpc.gz")
    ratios = []
    for name, circuit in circuits.items():
        print(f"{name}: {circuit.num_edges:,} edges")
        for asked, observed in MIXES:
            columns, seen = question(len(circuit.variables), asked, observed, 0)
            query, given = named(circuit, columns, seen)
            one = evaluation(circuit, given, repeat)
            _, busy, r = best_of(repeat, partial(mm.marginal_map, circuit, query, given, threads=1))
            ratios.append(busy / one)
            print(f"{name}, {asked}/{observed}: {busy:.4f} s, {busy / one:.1f} evaluations; {r.status}", flush=True)
    target("learned latent trees: evaluations, median", median(ratios), 8)
    target("learned latent trees: evaluations, worst", max(ratios), 20)


def session(changes: int, quick: bool, only: list[str], repeat: int) -> None:
    """Changes of one observed variable at a time, in a session and from scratch; each the least of the repetitions."""
    circuits = {}
    if "latent" in only:
        circuits["latent tree"] = latent_tree(0, variables=150 if quick else 784, states=32 if quick else 64)
    for path in [DATA / "mmap_instances" / f"{name}.json" for name in only]:
        if path.exists():
            circuits[path.stem] = load_circuit(DATA / json.loads(path.read_text())["circuit"])
    for name, circuit in circuits.items():
        query, given = named(circuit, *question(len(circuit.variables), 30, 30, 0))
        rng, rows, first = np.random.default_rng(0), [], given
        for _ in range(changes):
            changed = list(given)[int(rng.integers(len(given)))]
            given = {**given, changed: 1 - given[changed]}
            rows.append(given)
        for how, in_turn in (("in a row", False), ("in turn with queries from scratch", True)):
            kept, scratch = [math.inf] * changes, [math.inf] * changes
            for _ in range(repeat):  # each in a session of its own
                asked, answers = mm.Session(circuit), []
                asked.marginal_map(query, first)
                for i, row in enumerate(rows):
                    _, one, a = best_of(1, partial(asked.marginal_map, query, row))
                    kept[i] = min(kept[i], one)
                    answers.append(a.log_prob)
                    if in_turn:
                        scratch[i] = min(scratch[i], best_of(1, partial(mm.marginal_map, circuit, query, row))[1])
                for i, row in enumerate(() if in_turn else rows):
                    _, other, b = best_of(1, partial(mm.marginal_map, circuit, query, row))
                    assert math.isclose(answers[i], b.log_prob, rel_tol=1e-9)
                    scratch[i] = min(scratch[i], other)
            times = f"{1e3 * median(kept):.2f} ms beside {1e3 * median(scratch):.2f} ms"
            ratio = median(kept) / median(scratch)
            print(f"session on {name}: {changes} changes {how}, median {times} of the processor, {ratio:.3f}")
            if name in ("latent tree", "plants"):
                target(f"session on {name}: a change {how}", ratio, 0.3)


def batch(rows: int, quick: bool) -> None:
    """Rows with the same variables observed, in one batch on one core, and one query at a time."""
    circuit = latent_tree(0, variables=40 if quick else 150, states=16 if quick else 32)
    if not quick and (DATA / "mmap_instances" / "plants.json").exists():
        data = json.loads((DATA / "mmap_instances" / "plants.json").read_text())
        circuit = load_circuit(DATA / data["circuit"])
    variables = len(circuit.variables)
    asked, seen = question(variables, 30, 30, 0)
    query, _ = named(circuit, asked, seen)
    sample = mm.sample(circuit, rows, seed=0)
    table = np.full((rows, variables), -1)
    for column in seen:
        table[:, column] = sample[:, column]
    evidence = [{circuit.variables[column].name: int(row[column]) for column in seen} for row in table]
    _, together, answers = best_of(1, lambda: list(mm.marginal_map_many(circuit, query, table, jobs=1)))
    _, alone, singly = best_of(1, lambda: [mm.marginal_map(circuit, query, e) for e in evidence])
    assert all(math.isclose(a.log_prob, b.log_prob, rel_tol=1e-9) for a, b in zip(answers, singly, strict=True))
    target(f"batch of {rows} rows, beside the same queries one by one", together / alone, 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller circuits, shorter limits, fewer repetitions")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--sizes", nargs="*", metavar="VxS", help="variables and latent states")
    parser.add_argument(
        "--circuits",
        nargs="*",
        choices=SESSIONS,
        default=["latent", "plants"],
        help="of sessions: " + ", ".join(SESSIONS),
    )
    parser.add_argument("--changes", type=int, help="of the evidence in a session; 100 unless --quick")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--repeat", type=int)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    given = parser.parse_args()
    quick = given.quick
    seeds, repeat = given.seeds or (1 if quick else 3), given.repeat or (2 if quick else 3)
    if given.step:
        what, size, path = json.loads(given.step)
        build(size, Path(path)) if what == "build" else answer(size, Path(path), seeds, repeat)
        return
    work = {
        "large": lambda: large(given.sizes or list(QUICK_SIZES if quick else SIZES), seeds, repeat),
        "learned": lambda: learned(repeat, quick),
        "session": lambda: session(given.changes or (20 if quick else 100), quick, given.circuits, repeat),
        "batch": lambda: batch(50 if quick else 1000, quick),
    }
    warm()
    for part in given.parts:
        work[part]()


if __name__ == "__main__":
    main()
