"""Is this commit slower than another one? The same queries in both, in turn, the best of several rounds.

    .venv/bin/python benchmarks/compare.py --against HEAD~1
    .venv/bin/python benchmarks/compare.py --against v0.1.0 --method iterative --rounds 3
    .venv/bin/python benchmarks/compare.py --against HEAD~1 --networks
    .venv/bin/python benchmarks/compare.py --against HEAD~1 --networks alarm pigs --shares 30/30/40 --rounds 3

The queries are the instances of ../shared/data, or with ``--networks`` five queries on each of its networks for each of
some shares of queried, observed and hidden variables. Each round is a process of its own with kernels that are warm;
rounds of the two commits alternate, so that whatever else the machine does falls on both. Printed are the seconds of
all queries together, the median of the ratios, and the queries that changed most. Answers must agree, and what was
proven before must be proven now. ``--against`` may be a folder with the other commit, whose kernels then stay
compiled. ``--cpu`` counts seconds of computing instead, for a machine that is busy.

``--batch 1000`` asks for so many rows of evidence in one batch, in one process, on plants and on the MNIST circuit of
the shared data: 30 % of the variables queried, 30 % observed. Of a thousand such rows of plants many are equal, and
equal rows are answered once: with ``--distinct`` all rows are different.

``--changes 100`` asks a query of plants again and again, each time with one observed variable changed: in a session if
the commit has them, from scratch if it does not. The time is the median of one question.

``--equal 10000`` measures nothing: it asks one query of each of so many generated circuits, of all families in
:mod:`margmap.bench.generators`, and the instances, once in both commits, and compares the answers.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"


SHARES = ("10/10/80", "30/30/40", "50/20/30")

#: Queries that take longer than this many seconds are asked twice a round, since the first may load machine code, and
#: once if they take longer than that many. A network's query ends after so many.
LONG, VERY_LONG, NETWORK_LIMIT = 0.2, 5.0, 20.0


def circuit_cases() -> Iterator[tuple[str, Any, list[Any], dict[Any, Any], float | None]]:
    """The instances on the shared circuits: name, model, query, evidence, time limit."""
    import margmap as mm

    for path in sorted((DATA / "mmap_instances").glob("*.json")):
        circuit = mm.load(DATA / "psdd" / f"{path.stem}.psdd.gz")
        for i, instance in enumerate(json.loads(path.read_text())["instances"]):
            evidence = {int(name): value for name, value in instance["evidence"].items()}
            yield f"{path.stem} {i}", circuit, instance["query"], evidence, None


def network_cases(
    names: list[str], shares: list[str]
) -> Iterator[tuple[str, Any, list[Any], dict[Any, Any], float | None]]:
    """Five queries for each network and share; all networks if none is named."""
    import margmap as mm
    from bayesnet import queries

    for name in names or sorted(path.name.removesuffix(".bif.gz") for path in (DATA / "bif").glob("*.bif.gz")):
        network = mm.load_network(DATA / "bif" / f"{name}.bif.gz")
        for share in shares:
            asked, seen, _ = (int(word) / 100 for word in share.split("/"))
            for i, (query, evidence) in enumerate(queries(network, 5, asked, seen)):
                yield f"{name} {share} {i}", network, query, evidence, NETWORK_LIMIT


def batch_cases(rows: int, distinct: bool = False) -> Iterator[tuple[str, Any, list[Any], Any]]:
    """A circuit, a query, and so many rows that have the same variables observed."""
    import numpy as np

    import margmap as mm

    for name, path in (("plants", "psdd/plants.psdd.gz"), ("MNIST", "other/mnist_cats8_181.jpc.gz")):
        circuit = mm.load(DATA / path)
        order = np.random.default_rng(0).permutation(len(circuit.variables)).tolist()
        asked = len(order) * 30 // 100
        table = np.full((rows, len(order)), -1)
        seen = order[asked : 2 * asked]
        drawn = mm.sample(circuit, 20 * rows if distinct else rows, seed=0)[:, seen]
        table[:, seen] = list(dict.fromkeys(map(tuple, drawn.tolist())))[:rows] if distinct else drawn
        yield f"{name}, {rows} rows", circuit, [circuit.variables[c].name for c in order[:asked]], table


def one_batch(options: argparse.Namespace) -> dict[str, tuple[float, float, bool]]:
    """In a process of one of the commits: seconds of each batch, the sum of all log p, and whether all are proven."""
    import margmap as mm

    clock = time.process_time if options.cpu else time.perf_counter
    found = {}
    for name, circuit, query, table in batch_cases(options.batch, options.distinct):
        list(mm.marginal_map_many(circuit, query, table[:16], jobs=1))
        begun = clock()
        results = [r for r in mm.marginal_map_many(circuit, query, table, jobs=1) if isinstance(r, mm.Result)]
        seconds = clock() - begun
        proven = len(results) == options.batch and all(r.status == "optimal" for r in results)
        found[name] = (seconds, math.fsum(r.log_prob for r in results), proven)
    return found


def one_sequence(options: argparse.Namespace) -> dict[str, tuple[float, float, bool]]:
    """In a process of one of the commits: seconds of the median question, the sum of all log p, and the proof."""
    import numpy as np

    import margmap as mm

    clock = time.process_time if options.cpu else time.perf_counter
    circuit, rng = mm.load(DATA / "psdd/plants.psdd.gz"), np.random.default_rng(0)
    order = rng.permutation(len(circuit.variables)).tolist()
    asked = len(order) * 30 // 100
    query = [circuit.variables[c].name for c in order[:asked]]
    given = {circuit.variables[c].name: int(rng.integers(2)) for c in order[asked : 2 * asked]}
    session = mm.Session(circuit) if hasattr(mm, "Session") else None
    seconds, results = [], []
    for number in range(options.changes + 1):
        changed = list(given)[int(rng.integers(len(given)))]
        given = {**given, changed: 1 - given[changed]}
        begun = clock()
        try:
            one = session.marginal_map(query, given) if session else mm.marginal_map(circuit, query, given)
        except mm.ImpossibleEvidenceError:
            continue
        if number > 0:
            seconds.append(clock() - begun)
            results.append(one)
    proven = all(r.status == "optimal" for r in results)
    total = math.fsum(r.log_prob for r in results)
    return {f"plants, {len(results)} changes": (statistics.median(seconds), total, proven)}


def generated_cases(number: int) -> Iterator[tuple[str, Any, list[Any], dict[Any, Any], float | None]]:
    """Small circuits of all families, with a query and evidence drawn for each."""
    import numpy as np

    from margmap.bench import generators as g

    families = (
        lambda i: g.latent_tree(
            i, variables=4 + i % 9, states=2 + i % 11, values=2 + i % 2, concentration=(1, 0.05)[i % 2]
        ),
        lambda i: g.partition_tree(i, variables=6 + i % 5, levels=2),
        lambda i: g.coin_mixture(i, components=2 + i % 5, variables=6 + i % 5),
        lambda i: g.flat_latent_tree(i, variables=4 + i % 5, states=2 + i % 7),
        lambda i: g.learned_tree(i, variables=6 + i % 5, levels=2),
        lambda i: g.tree_ensemble(i, variables=6 + i % 5, trees=2 + i % 3),
    )
    for i in range(number):
        circuit, rng = families[i % len(families)](i), np.random.default_rng(i)
        order = rng.permutation(len(circuit.variables)).tolist()
        asked = 1 + int(rng.integers(len(order)))
        seen = order[asked : asked + int(rng.integers(len(order)))]
        evidence = {circuit.variables[c].name: int(rng.integers(circuit.variables[c].cardinality)) for c in seen}
        yield f"generated {i}", circuit, [circuit.variables[c].name for c in order[:asked]], evidence, None


def answers(number: int) -> dict[str, Any]:
    """In a process of one of the commits: log p, state and proof of every query."""
    import margmap as mm

    found = {}
    for name, model, query, evidence, _ in (*circuit_cases(), *generated_cases(number)):
        try:
            result = mm.marginal_map(model, query, evidence)
            found[name] = (result.log_prob, sorted(result.state.items()), result.status)
        except mm.ImpossibleEvidenceError:
            found[name] = (-math.inf, [], "impossible")
    return found


def require_equal(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Both commits have given the same answers; another state may have the same probability."""
    states = 0
    for name, (log_prob, state, status) in before.items():
        again = now[name]
        if status != again[2] or not (
            log_prob == again[0] or math.isclose(log_prob, again[0], rel_tol=1e-9, abs_tol=1e-9)
        ):
            sys.exit(f"{name}: {again} where the other has {before[name]}")
        states += state == again[1]
    print(f"{len(before)} queries: all statuses and probabilities are equal, and {states} of the states")


def one_round(options: argparse.Namespace) -> dict[str, tuple[float, float, bool]]:
    """In a process of one of the commits: seconds, log p and proof of every query, best of some repeats."""
    import margmap as mm

    clock = time.process_time if options.cpu else time.perf_counter
    cases = circuit_cases() if options.networks is None else network_cases(options.networks, options.shares)
    found = {}
    for name, model, query, evidence, limit in cases:
        best, result = math.inf, None
        for repeat in range(options.repeats + 1):
            begun = clock()
            try:
                result = mm.marginal_map(model, query, evidence, options.method, limit)
            except mm.LimitError:  # an earlier commit refused what is too wide: that is no proof
                result = None
            seconds = clock() - begun
            best = min(best, seconds)
            if seconds > (LONG if repeat else VERY_LONG):
                break
        found[name] = (best, *((math.nan, False) if result is None else (result.log_prob, result.status == "optimal")))
    return found


def measured(source: Path, options: argparse.Namespace, repeats: int) -> dict[str, Any]:
    """One round with the package in ``source``."""
    command = [sys.executable, __file__, "--worker", "--method", options.method, "--repeats", str(repeats)]
    if options.cpu:
        command.append("--cpu")
    if options.equal is not None:
        command += ["--equal", str(options.equal)]
    if options.batch is not None:
        command += ["--batch", str(options.batch if repeats else 32)]
    if options.distinct:
        command.append("--distinct")
    if options.changes is not None:
        command += ["--changes", str(options.changes)]
    if options.networks is not None:
        command += ["--networks", *options.networks, "--shares", *options.shares]
    env = {**os.environ, "PYTHONPATH": str(source / "src"), "MARGMAP_BACKGROUND": "0", "MARGMAP_TIER": "compile"}
    found: dict[str, Any] = json.loads(subprocess.run(command, env=env, check=True, capture_output=True).stdout)
    return found


@contextmanager
def checked_out(which: str) -> Iterator[Path]:
    """The folder of a commit: one that is there already, or one that is made for this and removed."""
    if Path(which).is_dir():
        yield Path(which).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", other, which], cwd=ROOT, check=True)
        try:
            yield other
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="REV", default="HEAD~1", help="the commit to compare with, or its folder")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="of each query in a round")
    parser.add_argument("--networks", nargs="*", metavar="NAME", help="queries on networks, these or all")
    parser.add_argument("--shares", nargs="+", default=list(SHARES), help="percent queried/observed/hidden")
    parser.add_argument("--cpu", action="store_true", help="seconds of computing, not of the clock on the wall")
    parser.add_argument("--compiled", action="store_true", help="both have been run: no round before to compile")
    parser.add_argument("--equal", type=int, metavar="N", help="compare answers, on so many generated circuits too")
    parser.add_argument("--batch", type=int, metavar="N", help="batches of so many rows")
    parser.add_argument("--distinct", action="store_true", help="batches without equal rows")
    parser.add_argument("--changes", type=int, metavar="N", help="questions in a row, one observed variable changed")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        if options.batch is not None:
            print(json.dumps(one_batch(options)))
        elif options.changes is not None:
            print(json.dumps(one_sequence(options)))
        else:
            print(json.dumps(one_round(options) if options.equal is None else answers(options.equal)))
        return
    if not DATA.is_dir():
        sys.exit(f"no shared data at {DATA}")
    with checked_out(options.against) as other:
        sources = {"before": other, "now": ROOT}
        if options.equal is not None:
            require_equal(*(measured(source, options, 0) for source in sources.values()))
            return
        for source in () if options.compiled else sources.values():
            measured(source, options, 0)  # compiles
        best: dict[str, dict[str, float]] = {"before": {}, "now": {}}
        values: dict[str, float] = {}
        proven: dict[str, set[str]] = {"before": set(), "now": set()}
        for number in range(options.rounds):
            for which, source in sources.items():
                print(f"round {number + 1}, {which}", file=sys.stderr)
                for name, (seconds, log_prob, optimal) in measured(source, options, options.repeats).items():
                    best[which][name] = min(best[which].get(name, math.inf), seconds)
                    if not optimal:
                        continue
                    proven[which].add(name)
                    if not math.isclose(values.setdefault(name, log_prob), log_prob, rel_tol=1e-9):
                        sys.exit(f"{name}: {log_prob!r} where the other has {values[name]!r}")
    before, now = best["before"], best["now"]
    ratios = {name: now[name] / before[name] for name in now}
    total = sum(now.values()) / sum(before.values())
    print(f"method {options.method}, {len(now)} queries, best of {options.rounds} rounds, against {options.against}")
    print(f"total {1000 * sum(before.values()):.1f} ms -> {1000 * sum(now.values()):.1f} ms: ratio {total:.3f}")
    print(f"median of the ratios {statistics.median(ratios.values()):.3f}")
    lost = sorted(proven["before"] - proven["now"])
    print(f"proven {len(proven['before'])} -> {len(proven['now'])}; no longer: {', '.join(lost) or 'none'}")
    for name in sorted(ratios, key=lambda name: ratios[name])[-5:]:
        print(f"  {name}: {1000 * before[name]:.2f} ms -> {1000 * now[name]:.2f} ms, {ratios[name]:.2f}")


if __name__ == "__main__":
    main()
