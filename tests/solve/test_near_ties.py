"""Every bound is needed to the last digit: solvers that know a state just below the best must still find the best one.

These tests are there to see broken bounds; ``scripts/mutate.py`` breaks them one by one.
"""

import itertools
import math

import numpy as np
import pytest
from test_parallel import Here

import margmap as mm
import naive
from counts import THOROUGH, cases
from margmap.circuit import CATEGORICAL, Parts, Variable, assemble
from margmap.foundation import limits as limits_module
from margmap.foundation.limits import Limits, Stopped
from margmap.solve import share_query as parallel
from margmap.solve.methods import maxspn as search
from margmap.solve.methods.branch_and_bound import Search
from margmap.solve.methods.frontier import solve as frontier
from margmap.solve.methods.frontier.scope_tree import make_plan
from margmap.solve.methods.frontier.sweep import sweep
from margmap.solve.output_bounds import view_of
from margmap.solve.reduce import reduce
from planted import MARGINS, beyond_doubles, factors, halves, mislead, near_tie
from problems import SORTS, STRUCTURED, Problem, check_bounds, check_optimal, coins, make

DISCRETE = [sort for sort in SORTS if "continuous" not in sort and sort not in ("extreme weights", "few variables")]
METHODS = ["frontier", "branch", "best-first", "iterative", "search"]


def near_ties(first, each, sorts=DISCRETE):
    """Problems with a planted state, every sort with every margin."""
    for (i, sort), margin in itertools.product(enumerate(sorts), MARGINS):
        for seed in range(first + 10 * i, first + 10 * i + each):
            found = near_tie(sort, seed, margin)
            if found is not None:
                yield sort, *found


@pytest.mark.parametrize("method", METHODS)
def test_a_state_known_just_below_the_best(method, monkeypatch):
    """The best state is found however little it is better than the one that the solver begins with."""
    solved = 0
    for sort, p, planted in near_ties(30_000, cases(1)):
        if method == "frontier" and sort not in STRUCTURED:
            continue
        mislead(monkeypatch, planted)
        options = [{}, {"width": 1}] if method == "frontier" else [{}]
        if method == "iterative":
            options = [{}, {"fix": False, "regroup": False, "heuristic": "Pruned"}]
        for given in options:
            check_optimal(p, mm.marginal_map(p.circuit, p.query, p.evidence, method, **given))
        solved += 1
    assert solved > 40


@pytest.mark.parametrize("method", METHODS)
def test_a_gap_that_was_asked_for_is_no_smaller_than_it_says(method, monkeypatch):
    """The planted state may be the answer, since it is within the gap; but the bound must not be under the best."""
    kept = 0
    for (i, sort), margin in itertools.product(enumerate(DISCRETE), (0.04, 0.09, 0.14, 0.19)):
        found = near_tie(sort, 31_000 + i, margin)
        if found is None or (method == "frontier" and sort not in STRUCTURED):
            continue
        p, planted = found
        mislead(monkeypatch, planted)
        r = mm.marginal_map(p.circuit, p.query, p.evidence, method, gap=0.2)
        check_bounds(p, r)
        assert r.status == "optimal"
        assert r.gap <= 0.2
        kept += p.codes(r.state) == tuple(planted.tolist())
    assert kept > 3


@pytest.mark.parametrize("method", METHODS)
def test_states_that_are_all_alike(method, monkeypatch):
    """Many states lie within a hundredth of a nat of the best, so that bounds have to tell apart the last values."""
    for seed, spread in itertools.product(range(6), (1e-3, 1e-4)):
        rng = np.random.default_rng([seed, 8])
        circuit = coins(rng, variables=5, components=3, spread=spread)
        query = list(range(5))
        p = Problem(f"seed {seed}, spread {spread}", circuit, query, {}, naive.marginal_map(circuit, query))
        assert p.best - naive.log(p.ranked[-1][0]) < 0.05
        mislead(monkeypatch, np.array(p.ranked[-1][1], np.int32))
        check_optimal(p, mm.marginal_map(circuit, None, method=method))


@pytest.mark.parametrize("gap", [0.0, 0.2])
@pytest.mark.parametrize("method", ["branch", "best-first"])
def test_what_factors_may_lose_together(method, gap, monkeypatch):
    """Of ten factors each may be missed by its part of the slack, not by all of it."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        circuit, planted, best = factors(rng, 10, (0.0, 0.05, 0.09, 1e-3, 1e-6, 0.011)[seed] or 1e-4)
        mislead(monkeypatch, planted)
        r = mm.marginal_map(circuit, None, method=method, gap=gap)
        assert r.status == "optimal"
        assert r.log_prob <= best + 1e-12 <= r.log_upper + 2e-12
        assert r.gap <= max(gap, 1e-9)


@pytest.mark.parametrize("threshold", [8e-3, 1e-4, 1e-7])
def test_a_search_finds_what_is_above_its_threshold(threshold):
    """Given a value to beat, whether or not a state with it is known."""
    for sort, p, _ in near_ties(32_000, 1):
        reduced = reduce(p.circuit, p.query, p.evidence)
        if reduced.num_edges == 0:
            continue
        best = p.best - reduced.log_scale
        found, status = Search(reduced.cardinality, Limits()).run(reduced.flat, best - threshold)
        assert status == "optimal"
        assert found.log_value == pytest.approx(best, abs=1e-10), f"{sort}: {p.name}"
        found, _ = Search(reduced.cardinality, Limits()).run(reduced.flat, best + 1e-7)
        assert found.state is None
        assert found.log_upper >= best


def test_many_cores_and_a_state_known_just_below_the_best(monkeypatch):
    """Subproblems are cut short at random; what comes back, and what is dropped, must not lose the best state."""
    rng = np.random.default_rng(0)

    class Short(Limits):
        def check(self):
            if rng.random() < 0.4:
                raise Stopped("time_limit")

    monkeypatch.setattr(parallel, "Limits", Short)
    monkeypatch.setattr(parallel, "FIRST_SECONDS", -1.0)
    sorts = ("coins", "dense", "latent tree", "partitions", "dense, unstructured", "many values, unstructured")
    tasks = 0
    for i, (sort, p, planted) in enumerate(near_ties(33_000, 3, sorts)):
        mislead(monkeypatch, planted)
        method = "branch" if i % 2 or sort not in STRUCTURED else "frontier"
        r = mm.marginal_map(p.circuit, p.query, p.evidence, method, executor=Here(i))
        check_optimal(p, r)
        tasks += r.details["tasks"]
    assert tasks > 100


# One sweep: whatever is dropped or merged, no state is above what it says.


def swept(p):
    """The arguments of a sweep over a problem, with the log values of all states that are possible, best first."""
    reduced = reduce(p.circuit, p.query, p.evidence)
    planned = make_plan(reduced.flat, reduced.cardinality.size)
    if planned is None or reduced.num_edges == 0:
        return None
    flat, plan = planned
    bounds = view_of(flat, 0.0, reduced.cardinality).bounds
    shift = reduced.log_scale + bounds.log_upper
    truth = [math.log(value) - shift for value, _ in p.ranked if value > 0]
    return (flat, bounds.share, bounds.least, plan, None, reduced.cardinality.size), np.array(truth)


def check_sweep(arguments, truth, log_floor, most, pairs, best_of, name):
    ended, values, states, upper, _ = sweep(*arguments, log_floor, most, pairs, best_of, np.array([0, 1 << 60]))
    assert ended, name
    assert len(values) == len(states) <= best_of, name
    assert len({tuple(state) for state in states.tolist()}) == len(states), name
    for rank in range(best_of):
        if rank < len(truth) and truth[rank] > log_floor:
            reached = max(upper, values[rank] if rank < len(values) else -np.inf)
            assert reached >= truth[rank] - 1e-11, f"{name}: state number {rank + 1} of {best_of} is lost"
        if rank < len(values) and values[rank] > -np.inf:  # without a floor an impossible state may fill the ranks
            assert np.abs(truth - values[rank]).min() < 1e-10, f"{name}: no state has this value"
    return upper


@pytest.mark.parametrize("sort", STRUCTURED)
def test_a_sweep_loses_nothing_above_its_bound(sort):
    """Widths and numbers of pairs so small that every limit is reached, floors just below the best, the k best."""
    rng = np.random.default_rng(list(sort.encode()))
    merged = 0
    for seed in range(34_000, 34_000 + cases(6)):
        found = near_tie(sort, seed, MARGINS[seed % 4]) if seed % 2 else None
        p = found[0] if found else make(sort, seed)
        if (known := swept(p)) is None:
            continue
        arguments, truth = known
        for most, pairs in ((1, 1), (2, 1), (3, 2), (8, 3), (1 << 20, 1 << 20), (1 << 20, 4)):
            for best_of in (1, 3):
                last = truth[min(best_of, len(truth)) - 1]
                floors = [-np.inf, last - 1e-7, last - 5e-3, last - rng.exponential(1.0)]
                for log_floor in floors:
                    name = f"{p.name}, most {most}, pairs {pairs}, floor {log_floor}"
                    upper = check_sweep(arguments, truth, log_floor, most, pairs, best_of, name)
                    merged += upper > log_floor
    if sort in ("coins", "dense", "latent tree", "laminar"):
        assert merged > 10


@pytest.mark.parametrize(("components", "spread"), [(8, 0.2), (5, 0.05), (12, 0.4)])
def test_wide_frontiers(components, spread):
    """More rows than fit a block, matrix products, sets that grow: two halves of 128 vectors each, 16,384 states."""
    circuit, table = halves(np.random.default_rng(components), 7, components, spread)
    truth = np.sort(np.log(table))[::-1]
    reduced = reduce(circuit, None)
    flat, plan = make_plan(reduced.flat, 14)
    bounds = view_of(flat, 0.0, reduced.cardinality).bounds
    arguments = (flat, bounds.share, bounds.least, plan, None, 14)
    truth = truth - bounds.log_upper
    for most in (8, 100, 1 << 14):
        for pairs in (1, 300, 1 << 20):
            for log_floor in (-np.inf, truth[0] - 1e-3, truth[2] - 1e-9, truth[40]):
                check_sweep(arguments, truth, log_floor, most, pairs, 1, f"{most}, {pairs}, {log_floor}")
    for log_floor in (-np.inf, truth[300] - 1e-4, truth[300] - 1e-9):
        check_sweep(arguments, truth, log_floor, 1 << 14, 1 << 20, 301, f"the 301 best above {log_floor}")
    for width in (1, 16, 512):
        r = mm.marginal_map(circuit, None, method="frontier", width=width, max_width=width)
        assert r.log_upper >= truth[0] + bounds.log_upper - 1e-12
    r = mm.marginal_map(circuit, None, k=3)
    assert [one.log_prob for one in r.top] == pytest.approx(truth[:3] + bounds.log_upper, abs=1e-11)


def test_joins_of_more_pairs_than_are_looked_at(monkeypatch):
    """As on wide real circuits, without lowering any limit: 256 vectors on each side, from a bad start."""
    circuit, table = halves(np.random.default_rng(3), 8, 10, 0.1)
    best = math.log(table.max())
    worst = table.argmin()
    mislead(monkeypatch, np.array([worst >> (15 - i) & 1 for i in range(16)], np.int32))
    for width in (110, 128, 200, 256):
        r = mm.marginal_map(circuit, None, method="frontier", width=width, max_width=width)
        assert r.log_upper >= best - 1e-12
        assert r.log_prob <= best + 1e-12
    monkeypatch.setattr(frontier, "PAIRS", 1)
    monkeypatch.setattr(frontier, "PAIRS_OF_ONE", 1)
    for width in (3, 16, 40):
        r = mm.marginal_map(circuit, None, method="frontier", width=width, max_width=width)
        assert r.log_upper >= best - 1e-12


# The k best, and what is known when a solver is stopped.


@pytest.mark.parametrize("method", ["frontier", "branch"])
def test_the_k_best_are_complete(method, monkeypatch):
    """None of them is missing, however close to the next one it is, and however the solver begins."""
    for i, (sort, p, planted) in enumerate(near_ties(35_000, 1)):
        if method == "frontier" and sort not in STRUCTURED:
            continue
        mislead(monkeypatch, planted)
        k = 2 + i % 4
        r = mm.marginal_map(p.circuit, p.query, p.evidence, method, k=k)
        expected = [math.log(value) for value, _ in p.ranked[:k] if value > 0]
        assert r.status == "optimal", p.name
        assert [one.log_prob for one in r.top] == pytest.approx(expected, abs=1e-9), p.name
        assert len({tuple(one.state.values()) for one in r.top}) == len(expected), p.name


def stop_at(monkeypatch, moment):
    """The solver is stopped when it looks at its limits for the so-manieth time."""
    asked = itertools.count(1)

    def check(_limits):
        if next(asked) >= moment:
            raise Stopped("time_limit")

    monkeypatch.setattr(Limits, "check", check)


def stopped_searches(monkeypatch, first, sorts):
    """Problems that begin with a planted state, each stopped at one moment after the other, also inside of kernels."""
    monkeypatch.setattr(limits_module, "QUICK_EDGES", 0)
    for _, p, planted in near_ties(first, 1, sorts):
        reduced = reduce(p.circuit, p.query, p.evidence)
        if reduced.num_edges == 0:
            continue
        values = {q: naive.log(value) - reduced.log_scale for value, q in p.ranked}
        mislead(monkeypatch, planted)
        for moment in (1, 2, 3, 5, 8, 12, 17, 23, 30, 40):
            stop_at(monkeypatch, moment)
            search_ = Search(reduced.cardinality, Limits())
            yield p, reduced, values, search_


SEARCHED = ("partitions", "coins", "dense, unstructured", "many values, unstructured", "latent tree, many values")


def test_a_stopped_search_leaves_every_better_state(monkeypatch):
    """Each state that is better than the best found is in a part that is left, and not above that part's bound."""
    parts = 0
    for p, reduced, values, search_ in stopped_searches(monkeypatch, 37_000, SEARCHED):
        try:
            found, status = search_.run(reduced.flat, -np.inf)
        except Stopped:
            continue  # before it began
        if status == "optimal":
            assert found.log_value == pytest.approx(max(values.values()), abs=1e-9), p.name
            continue
        parts += len(found.left) > 1
        for q, value in values.items():
            if value > found.log_value + 1e-9:
                of = [left for left in found.left if all(q[v] == x for v, x in left.fixed)]
                assert of, f"{p.name}: {q} is in no part"
                assert value <= max(left.log_upper for left in of) + 1e-11, f"{p.name}: {q} is above its bound"
                assert value <= found.log_upper + 1e-11, p.name
    assert parts > 10


def test_a_stopped_search_for_the_k_best_bounds_the_others(monkeypatch):
    stops = 0
    for p, reduced, values, search_ in stopped_searches(monkeypatch, 38_000, SEARCHED):
        try:
            states, log_upper, status = search_.run_many(reduced.flat, 3)
        except Stopped:
            continue
        stops += status != "optimal"
        known = {tuple(state.tolist()) for state in states}
        assert all(value <= log_upper + 1e-9 for q, value in values.items() if q not in known), p.name
    assert stops > 20


@pytest.mark.parametrize("method", ["branch", "best-first"])
def test_factors_stopped_at_every_moment(method, monkeypatch):
    stops = 0
    for seed in range(3):
        circuit, planted, best = factors(np.random.default_rng(seed), 4, 0.05)
        mislead(monkeypatch, planted)
        for moment in range(1, 60, 1 if THOROUGH > 1 else 3):
            stop_at(monkeypatch, moment)
            r = mm.marginal_map(circuit, None, method=method)
            assert r.log_prob - 1e-12 <= best <= r.log_upper + 1e-12
            stops += r.status == "time_limit"
    assert stops > 8


def test_enumeration_stopped_at_every_chunk(monkeypatch):
    """The best state is among the last ones; until it is seen, the bound has room for it."""
    for seed in range(20):
        circuit, table = halves(np.random.default_rng(seed), 7, 20)
        if table.argmax() < table.size // 2:
            continue
        stop_at(monkeypatch, 1)
        r = mm.marginal_map(circuit, None, method="brute")
        assert r.status == "time_limit"
        assert r.details["states"] < table.size
        assert r.log_prob < math.log(table.max()) <= r.log_upper


def test_a_worker_sends_back_all_it_has_not_done(monkeypatch):
    """Whenever it is stopped, each of its parts is done, or comes back, whole or in smaller parts."""
    p = make("coins", 36_000)
    reduced = reduce(p.circuit, [v.name for v in p.circuit.variables])
    parts = [parallel.Part(((0, a), (1, b), (2, c)), 0.0) for a, b, c in itertools.product(range(2), repeat=3)]
    worst = 0
    for structured in (False, True):
        work = parallel.Work(reduced, structured, 1e-9, None)
        for moment in range(1, 40):
            stop_at(monkeypatch, moment)
            answer = work.attempt(parts, -100.0, Limits())
            begun = [part for part in answer.left if len(part.fixed) == 3]
            monkeypatch.undo()
            for part in parts:
                best = work.attempt([part], -100.0, Limits())
                covered = any(part.fixed == left.fixed[:3] for left in answer.left)
                assert covered or best.log_value <= max(answer.log_upper, answer.log_value) + 1e-12
            worst = max(worst, len(begun))
    assert worst == len(parts)


def test_search_below_the_smallest_float(monkeypatch):
    """The first dive of the search ends at the best state, although its value is no double.

    Every value is under 0.5: times more than that, the smallest double is still itself, not 0.
    """
    n = 900
    parts = Parts.new()
    parts.product([parts.leaf(CATEGORICAL, i, [math.log(p) for p in (0.3, 0.4, 0.3)]) for i in range(n)])
    circuit = assemble([Variable(i, 3) for i in range(n)], parts)
    real = search._search

    def stopped(*arguments):
        real(*arguments[:-1], np.array([0, n + 5]))
        raise Stopped("time_limit")

    monkeypatch.setattr(search, "_search", stopped)
    monkeypatch.setattr(search, "beam", lambda *_, **__: np.zeros(n, np.int32))
    monkeypatch.setattr(search, "STAGE_EDGES", 1 << 40)
    r = mm.marginal_map(circuit, None, method="search")
    assert r.log_prob == pytest.approx(n * math.log(0.4), rel=1e-12)
    assert r.log_prob < -750
    assert r.log_upper >= r.log_prob


@pytest.mark.parametrize("size", [100.0, 400.0, 2000.0])
def test_a_sweep_beyond_doubles(size):
    """What is too small for a double counts as a little more, never as nothing."""
    for seed in range(cases(4)):
        circuit, values = beyond_doubles(np.random.default_rng(seed), size=size)
        reduced = reduce(circuit, None)
        flat, plan = make_plan(reduced.flat, 6)
        bounds = view_of(flat, 0.0, reduced.cardinality).bounds
        arguments = (flat, bounds.share, bounds.least, plan, None, 6)
        truth = np.sort(values[values > -np.inf])[::-1] - reduced.log_scale - bounds.log_upper
        among = int((truth > -740).sum())  # the last of so many is among the smallest doubles, or not far above
        every = len(truth)
        limits = [(1, 1, 1), (3, 2, 1), (99, 9999, 1), (8, 4, every), (99, 9999, every), (99, 9999, among)]
        for most, pairs, best_of in limits:
            for log_floor in (-np.inf, truth[best_of - 1] - 1e-3, truth[best_of - 1] - 1e-7, truth[-1] - 1.0):
                stop = np.array([0, 1 << 60])
                _, found, _, upper, _ = sweep(*arguments, log_floor, most, pairs, best_of, stop)
                found = np.sort(found)[::-1]  # among the smallest, an impossible state may come before a possible one
                for rank in range(best_of):
                    if truth[rank] > log_floor:
                        reached = max(upper, found[rank] if rank < len(found) else -np.inf)
                        assert reached >= truth[rank] - 1e-8, f"seed {seed}: state {rank} is lost above {log_floor}"


@pytest.mark.parametrize("method", ["frontier", "branch", "iterative", "search", "brute"])
def test_answers_beyond_doubles(method):
    for size, seed in itertools.product((100.0, 400.0, 2000.0), range(cases(2))):
        circuit, values = beyond_doubles(np.random.default_rng(100 + seed), size=size)
        several = 64 if method in ("frontier", "branch", "brute") else 1
        for k in {1, 5, several} if several > 1 else {1}:
            r = mm.marginal_map(circuit, None, method=method, k=k)
            expected = np.sort(values[values > -np.inf])[::-1][:k]
            assert r.status == "optimal"
            assert [one.log_prob for one in r.top] == pytest.approx(expected.tolist(), abs=1e-8, rel=1e-12)
            assert r.log_upper >= expected[0] - 1e-9
