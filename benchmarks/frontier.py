"""The default solver beside what one evaluation of the circuit costs: all figures and ratios of one run.

    .venv/bin/python benchmarks/frontier.py
    .venv/bin/python benchmarks/frontier.py --quick
    .venv/bin/python benchmarks/frontier.py --quick --parts instances

Kernels are warm, and the time of a query includes reduction and the re-evaluation of the answer. "evaluation" is one
log_marginal of the full circuit with the evidence and the answer as evidence, on one core and edge by edge, as it was
in commit a9b9579: names to codes one by one, as is written down here, the pass that ``scale.py`` has written down, a
logarithm. So the measure stays the same when the library gets quicker. --quick leaves out the iterative solver, whose
runs take a minute or so, and takes fewer repetitions and seeds. Without ../shared/data only the generated circuits are
measured.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import margmap as mm
from margmap.bench.generators import latent_tree, partition_tree
from margmap.circuit import FloatArray, IntArray, Name, Value
from margmap.circuit.observation import Between, Weights
from margmap.circuit.properties import require_tractable
from margmap.foundation.pairs import log_of
from margmap.inference.scaled import scaled
from margmap.io.formats import load_circuit
from margmap.solve.methods.frontier.scope_tree import make_plan
from margmap.solve.output_bounds import output_bounds
from margmap.solve.reduce import reduce
from margmap.solve.supports import find_deterministic, find_supports
from scale import edge_by_edge

DATA = Path(__file__).parent.parent.parent / "shared" / "data"

PARTS = ("instances", "mnist", "latent", "crossing")

#: The instances on which the iterative solver takes more than a second if it does not fix variables.
SLOW = [("ad", 0), ("ad", 1), ("ad", 2), ("ad", 3), ("cwebkb", 1)]


class Question(NamedTuple):
    """One query, and what is known of its answer."""

    name: str
    circuit: mm.Circuit
    query: list[Name] | None
    evidence: dict[Name, Value]
    log_optimum: float | None = None

    def ask(self, method: str = "auto", **options: Any) -> mm.Result:
        """The answer, which must be the optimum if the status says so."""
        r = mm.marginal_map(self.circuit, self.query, self.evidence, method, **options)
        if self.log_optimum is not None and r.status == "optimal":
            assert math.isclose(r.log_prob, self.log_optimum, rel_tol=1e-9), f"{self.name}: {r.log_prob} is wrong"
        return r


class Timed(NamedTuple):
    """Seconds of a query and of one evaluation by the clock, both by the processor, and the answer."""

    seconds: float
    evaluation: float
    computing: float
    evaluation_computing: float
    result: mm.Result

    @property
    def ratio(self) -> float:
        """Evaluations that the query costs."""
        return self.seconds / self.evaluation

    @property
    def computing_ratio(self) -> float:
        """The same by the processor."""
        return self.computing / self.evaluation_computing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no iterative solver, fewer repetitions and seeds")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    given = parser.parse_args()
    quick = given.quick
    warm_up()
    repeat, seeds = (3, 3) if quick else (5, 5)
    if not (DATA / "mmap_instances").is_dir():
        print(f"{DATA / 'mmap_instances'} is not there: only generated circuits")
        given.parts = [part for part in given.parts if part in ("latent", "crossing")]
    work = {
        "instances": lambda: shared_instances(repeat, quick),
        "mnist": lambda: mnist(repeat),
        "latent": lambda: latent_trees(repeat),
        "crossing": lambda: crossing_scopes(seeds),
    }
    for part in given.parts:
        work[part]()


def shared_instances(repeat: int, quick: bool) -> None:
    print(
        f"{'instance':<16}{'query':>7}{'edges':>10}{'ms':>10}{'evaluation':>12}{'ratio':>8}{'rounds':>8}{'widest':>8}"
    )
    ratios, computing, calls, slow = [], [], [], {}
    for path in sorted((DATA / "mmap_instances").glob("*.json")):
        data = json.loads(path.read_text())
        circuit = load_circuit(DATA / data["circuit"])
        for number, instance in enumerate(data["instances"]):
            evidence: dict[Name, Value] = {int(name): value for name, value in instance["evidence"].items()}
            name = f"{path.stem} {number}"
            question = Question(name, circuit, instance["query"], evidence, instance["log_optimum"])
            timed = measure(question, repeat)
            row(question, timed)
            ratios.append(timed.ratio)
            computing.append(timed.computing_ratio)
            if path.stem == "nltcs":
                calls.append(timed.seconds)
            if (path.stem, number) in SLOW:
                slow[name] = (question, timed)
    target("48 instances, median ratio", statistics.median(ratios), 3.5)
    target("48 instances, worst ratio", max(ratios), 12)
    target("48 instances, by the processor, median ratio", statistics.median(computing), 3.5)
    target("48 instances, by the processor, worst ratio", max(computing), 12)
    target("nltcs, slowest call in ms", max(calls) * 1e3, 9.99)
    if not quick:
        ours = theirs = fixing = 0.0
        for name, (question, timed) in slow.items():
            plain = question.ask("iterative", time_limit=120, fix=False)
            full = question.ask("iterative", time_limit=120)
            ours, theirs, fixing = ours + timed.seconds, theirs + plain.seconds, fixing + full.seconds
            print(
                f"{name:<16}iterative without fixing {plain.seconds:8.2f} s ({plain.status}), "
                f"as it is {full.seconds:.3f} s ({full.status}), frontier {timed.seconds * 1e3:.2f} ms"
            )
        target("times faster than iterative without fixing, in total", theirs / ours, 100, at_least=True)
        print(f"times faster than iterative as it is, in total: {fixing / ours:.1f}")
    memory()


def mnist(repeat: int) -> None:
    circuit = load_circuit(DATA / "other" / "mnist_cats8_181.jpc.gz")
    for asked, observed in ((30, 30), (50, 20), (50, 0), (100, 0)):
        question = partly(f"MNIST {asked}/{observed}", circuit, asked, observed, seed=4)
        timed = measure(question, repeat)
        row(question, timed)
        if asked == 100:
            target("MNIST, 784 pixels, ratio", timed.ratio, 300)
            stages(question)
    memory()


def latent_trees(repeat: int) -> None:
    for concentration in (1.0, 0.1):
        circuit = latent_tree(0, concentration=concentration)
        for asked, observed in ((30, 30), (100, 0)):
            name = f"latent {concentration:g} {asked}/{observed}"
            question = partly(name, circuit, asked, observed, seed=0)
            timed = measure(question, min(repeat, 2))
            row(question, timed)
            stages(question)
    memory()


def crossing_scopes(seeds: int) -> None:
    for what, asked, observed in (("all 40", 100, 0), ("30/30/40", 30, 30), ("50/20/30", 50, 20)):
        seconds = []
        for seed in range(seeds):
            circuit = partition_tree(seed)
            question = partly(f"crossing {seed}", circuit, asked, observed, seed)
            r = question.ask(time_limit=10)
            seconds.append(r.seconds)
            shown = f"{r.seconds:8.3f} s, {r.details.get('search_nodes', 0)} search nodes, {r.status}, gap {r.gap:.2g}"
            print(f"crossing scopes, {circuit.num_edges} edges, {what}, seed {seed}: {shown}", flush=True)
        target(f"crossing scopes, {what}, median seconds", statistics.median(seconds), 1)
        target(f"crossing scopes, {what}, worst seconds", max(seconds), 1)
    memory()


def partly(name: str, circuit: mm.Circuit, asked: int, observed: int, seed: int) -> Question:
    """So many percent of the variables asked for, so many observed at the values of one sampled row."""
    n = len(circuit.variables)
    order = np.random.default_rng(seed).permutation(n).tolist()
    sample = mm.sample(circuit, 1, seed=seed)[0]
    cut, end = round(n * asked / 100), round(n * (asked + observed) / 100)
    evidence: dict[Name, Value] = {circuit.names[i]: int(sample[i]) for i in order[cut:end]}
    return Question(name, circuit, [circuit.names[i] for i in order[:cut]], evidence)


def measure(question: Question, repeat: int) -> Timed:
    r = question.ask()
    everything = question.evidence | r.state
    seconds, computing = best_of(repeat, question.ask)
    one, one_computing = evaluation(question.circuit, everything, repeat)
    return Timed(seconds, one, computing, one_computing, r)


def evaluation(circuit: mm.Circuit, everything: dict[Name, Value], repeat: int) -> tuple[float, float]:
    """Seconds of one evaluation, by the clock and by the processor."""
    s = scaled(circuit)

    def once() -> float:
        require_tractable(circuit)
        codes, reals = one_by_one(circuit, everything)
        value, exponent = np.zeros(s.kind.size), np.zeros(s.kind.size)
        edge_by_edge(s, codes, reals, value, exponent)
        return log_of(value[-1] * s.total, exponent[-1] + s.total_exponent)

    assert math.isclose(once(), mm.log_marginal(circuit, everything), rel_tol=1e-9)
    return best_of(repeat, once)


def one_by_one(circuit: mm.Circuit, everything: dict[Name, Value]) -> tuple[IntArray, FloatArray]:
    """Names and values as codes, each looked at by itself, as commit a9b9579 did it."""
    observed: dict[int, Any] = {}
    seen: set[int] = set()
    for name, given in everything.items():
        column = circuit.index(name)
        variable = circuit.variables[column]
        assert column not in seen
        seen.add(column)
        value = variable.value(given)
        if value is not None:
            observed[column] = value
    assert not any(isinstance(value, Weights | Between) for value in observed.values())
    codes, reals = circuit.cardinality.copy(), np.full(len(circuit.variables), np.nan)
    for column, value in observed.items():
        if circuit.variables[column].continuous:
            reals[column] = value
        else:
            codes[column] = value
    return codes, reals


def best_of(times: int, work: Callable[[], object]) -> tuple[float, float]:
    """The least seconds by the clock, and by the processor."""
    best = computing = math.inf
    for _ in range(times):
        begun, processor = time.perf_counter(), time.process_time()
        work()
        best, computing = min(best, time.perf_counter() - begun), min(computing, time.process_time() - processor)
    return best, computing


def row(question: Question, timed: Timed) -> None:
    r = timed.result
    size = f"{len(r.state):>7}{question.circuit.num_edges:>10}"
    work = f"{r.details.get('rounds', 0):>8}{r.details.get('widest', 0):>8}"
    print(
        f"{question.name:<16}{size}{timed.seconds * 1e3:>10.2f}{timed.evaluation * 1e3:>12.3f}{timed.ratio:>8.1f}{work}"
        + ("" if r.status == "optimal" else f"  {r.status}, gap {r.gap:.3g}"),
        flush=True,
    )


def stages(question: Question) -> None:
    """Where the time of a query goes; what is left after these is climbing, sweeping and scoring the answer."""
    begun = time.perf_counter()
    reduced = reduce(question.circuit, question.query, question.evidence)
    at = [("reduce", time.perf_counter())]
    planned = make_plan(reduced.flat, reduced.cardinality.size)
    at.append(("plan", time.perf_counter()))
    assert planned is not None
    deterministic = find_deterministic(planned[0], find_supports(planned[0], reduced.cardinality))
    at.append(("determinism", time.perf_counter()))
    output_bounds(planned[0], deterministic)
    at.append(("bounds", time.perf_counter()))
    times = [after - before for (_, after), before in zip(at, [begun, *(when for _, when in at)], strict=False)]
    shown = ", ".join(f"{name} {seconds * 1e3:.2f}" for (name, _), seconds in zip(at, times, strict=True))
    print(f"    of which in ms: {shown}; {reduced.num_edges} edges after reduction")


def target(what: str, value: float, aim: float, at_least: bool = False) -> None:
    holds = value >= aim if at_least else value <= aim
    print(f"{what:<62}{value:>10.2f}   target {aim:g} {'ok' if holds else 'MISSED'}", flush=True)


def memory() -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    target("peak memory of the process so far, in GB", peak / 1e9, 1)
    print(flush=True)


def warm_up() -> None:
    """Compile, or load, every kernel before the clock runs."""
    for circuit in (latent_tree(0, variables=8, states=4), partition_tree(0, variables=12, levels=2)):
        for method in ("auto", "branch", "iterative"):
            mm.marginal_map(circuit, None, method=method)
            mm.marginal_map(circuit, [0, 1, 2], {3: 1}, method=method)
        mm.log_marginal(circuit, {0: 1})
        mm.sample(circuit, 1)


if __name__ == "__main__":
    main()
