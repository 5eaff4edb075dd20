"""Frontier and branch against enumeration on circuits of every sort; frontier's widths, nesting, scaling and limits."""

import math
import os
import signal
import threading
import time

import numpy as np
import pytest

import margmap as mm
from counts import cases
from margmap.circuit import BERNOULLI, INDICATOR, Parts, Variable, assemble
from margmap.foundation.jit import on_compile
from margmap.solve.hill_climb import Incumbents
from margmap.solve.methods.frontier import solve as frontier
from problems import SORTS, STRUCTURED, UNSTRUCTURED, check_bounds, check_optimal, hard, make, stop_at_every_moment

#: Of each sort.
EACH = cases(50, "MARGMAP_EACH")


@pytest.mark.parametrize("sort", SORTS)
def test_equals_enumeration(sort):
    """Both methods on every circuit, frontier also with a first width of 1, 2 or 3; on some, in fractions."""
    refused = 0
    for seed in range(EACH):
        p = make(sort, seed)
        exact = p.exact_best() if seed % 40 == 0 else -math.inf
        runs = [(("branch", "best-first")[seed % 2], {}), ("frontier", {}), ("frontier", {"width": 1 + seed % 3})]
        for method, options in runs[: 2 + seed % 2]:
            try:
                r = mm.marginal_map(p.circuit, p.query, p.evidence, method, **options)
            except mm.StructureError:
                assert method == "frontier", p.name
                assert sort in UNSTRUCTURED, p.name
                refused += 1
                break
            check_optimal(p, r)
            assert r.method == method, p.name
            assert r.log_upper >= exact, f"{p.name}: {method} has an upper bound below the exact optimum"
    assert refused < EACH
    assert (refused > 0) == (sort in UNSTRUCTURED)


class Weak(Incumbents):
    """Takes what it is offered without improving it."""

    def offer(self, state, climb):
        return super().offer(state, climb=False)


def sweep_only(monkeypatch):
    """Nothing is pruned between sweeps, and no search takes turns with them."""
    monkeypatch.setattr(frontier._Turns, "prune", lambda self, view, log_floor, log_upper: (view, log_upper))
    monkeypatch.setattr(frontier._Turns, "take", lambda self, view, log_upper, turn=None: log_upper)


@pytest.mark.parametrize("sort", STRUCTURED)
def test_equals_enumeration_from_a_bad_start(sort, monkeypatch):
    """Without hill climbing, and from a state that may be impossible: the sweeps alone must find and prove it."""
    sweep_only(monkeypatch)
    monkeypatch.setattr(frontier, "Incumbents", Weak)
    monkeypatch.setattr(
        frontier, "lower_bound_state", lambda _flat, _max, variables, *_: np.zeros(variables, dtype=np.int32)
    )
    rounds = 0
    for seed in range(1000, 1000 + cases(20)):
        p = make(sort, seed)
        for width in (1 + seed % 3, 64):
            r = mm.marginal_map(p.circuit, p.query, p.evidence, "frontier", width=width)
            check_optimal(p, r)
            rounds = max(rounds, r.details["rounds"])
    if sort in ("dense", "laminar", "laminar, many values", "coins", "latent tree", "latent tree, many values"):
        assert rounds > 1


@pytest.mark.parametrize("sort", STRUCTURED)
def test_bounds_hold_under_any_width_limit(sort, monkeypatch):
    stopped = 0
    for weak in (False, True):
        if weak:
            monkeypatch.setattr(frontier, "Incumbents", Weak)
            sweep_only(monkeypatch)
        for seed in range(2000, 2000 + cases(12)):
            p = make(sort, seed)
            for width in (1, 2, 3):
                r = mm.marginal_map(p.circuit, p.query, p.evidence, "frontier", width=width, max_width=width)
                check_bounds(p, r)
                assert r.status in ("optimal", "memory_limit"), p.name
                assert (r.status == "optimal") == (r.gap <= 1e-9), p.name
                stopped += r.status != "optimal"
            r = mm.marginal_map(p.circuit, p.query, p.evidence, "frontier", width=1, max_width=0)
            check_bounds(p, r)
    if sort in ("coins", "latent tree", "laminar", "latent tree, many values"):
        assert stopped > 0


def test_crossing_scopes_are_refused_and_branch_is_named():
    c = SORTS["partitions"](np.random.default_rng(0))
    with pytest.raises(mm.StructureError, match=r"two scopes of this one cross: use method='branch', or 'auto'"):
        mm.marginal_map(c, None, method="frontier")


def test_products_that_skip_levels():
    """One product over a, b, c at once, one over a and the pair (b, c), whose pair comes in two mixtures."""
    a, b, c = Variable("a"), Variable("b"), Variable("c", 3)
    pair = 0.6 * mm.bernoulli(b, 0.9) * c[1] + 0.4 * mm.bernoulli(b, 0.2) * mm.categorical(c, [0.2, 0.3, 0.5])
    nested = mm.bernoulli(a, 0.7) * pair
    flat = mm.bernoulli(a, 0.4) * mm.bernoulli(b, 0.1) * mm.categorical(c, [0.1, 0.1, 0.8])
    circuit = mm.circuit_of(0.45 * nested + 0.55 * flat, [a, b, c])
    r = mm.marginal_map(circuit, None, method="frontier")
    best = max(
        (mm.log_marginal(circuit, {"a": x, "b": y, "c": z}), (x, y, z))
        for x in range(2)
        for y in range(2)
        for z in range(3)
    )
    assert (r.status, tuple(r.state.values())) == ("optimal", best[1])
    assert r.log_prob == pytest.approx(best[0], rel=1e-14)


# Underflow: thousands of variables, values far below the smallest float.


def pairs_of_coins(rng, pairs):
    """Independent pairs, each a mixture of two products of coins; the tables p(a, b) are returned too."""
    parts = Parts.new()
    factors, tables = [], []
    for i in range(pairs):
        weight, p = rng.uniform(0.2, 0.8), rng.uniform(0.1, 0.9, (2, 2))
        products = [
            parts.product([parts.leaf(BERNOULLI, 2 * i + j, [math.log(x), math.log1p(-x)]) for j, x in enumerate(row)])
            for row in p
        ]
        factors.append(parts.sum(products, [math.log(weight), math.log1p(-weight)]))
        rows = [np.outer([1 - x, x], [1 - y, y]) for x, y in p]
        tables.append(weight * rows[0] + (1 - weight) * rows[1])
    while len(factors) > 1:  # a balanced tree of products
        factors = [
            parts.product(factors[i : i + 2]) if i + 1 < len(factors) else factors[i] for i in range(0, len(factors), 2)
        ]
    return assemble([Variable(i) for i in range(2 * pairs)], parts, factors[0]), tables


@pytest.mark.parametrize("method", ["frontier", "branch"])
def test_independent_pairs_below_the_smallest_float(method):
    c, tables = pairs_of_coins(np.random.default_rng(0), 1500 if method == "frontier" else 700)
    expected = math.fsum(math.log(table.max()) for table in tables)
    assert expected < -750 or method == "branch"
    r = mm.marginal_map(c, None, method=method)
    assert (r.status, len(r.state)) == ("optimal", 2 * len(tables))
    assert r.log_prob == pytest.approx(expected, rel=1e-12)
    for i, table in enumerate(tables):
        assert table[r.state[2 * i], r.state[2 * i + 1]] == pytest.approx(table.max(), rel=1e-8)
    # The first of each pair is asked for; the second is seen in every third pair, hidden in the others.
    seen = {2 * i + 1: i % 2 for i in range(0, len(tables), 3)}
    expected = 0.0
    for i, table in enumerate(tables):
        expected += math.log((table[:, seen[2 * i + 1]] if 2 * i + 1 in seen else table.sum(axis=1)).max())
    r = mm.marginal_map(c, range(0, 2 * len(tables), 2), seen, method=method)
    assert r.status == "optimal"
    assert r.log_prob == pytest.approx(expected, rel=1e-12)
    assert r.log_upper >= expected - 1e-11 * abs(expected)


def markov_chain(first, tables):
    """X0 -> X1 -> ... as a deterministic circuit: for each time and value one node for all that follows."""
    parts = Parts.new()
    n = len(tables) + 1
    leaves = [[parts.leaf(INDICATOR, t, [float(x)]) for x in range(2)] for t in range(n)]
    after = None
    for t in range(n - 1, -1, -1):
        here = leaves[t] if after is None else [parts.product([leaves[t][x], after[x]]) for x in range(2)]
        rows = [first] if t == 0 else tables[t - 1]
        after = [parts.sum(here, np.log(row).tolist()) for row in rows]
    return assemble([Variable(t) for t in range(n)], parts, after[0])


def viterbi(first, tables):
    """The log probability of the best sequence of a Markov chain."""
    best = np.log(first)
    for table in tables:
        best = (best[:, None] + np.log(table)).max(axis=0)
    return best.max()


@pytest.mark.parametrize("length", [3000])
def test_markov_chain_below_the_smallest_float(length):
    rng = np.random.default_rng(1)
    first, tables = rng.dirichlet([2, 2]), rng.dirichlet([2, 2], (length - 1, 2))
    c = markov_chain(first, tables)
    r = mm.marginal_map(c, None, method="frontier")
    expected = viterbi(first, tables)
    assert expected < -750
    assert r.status == "optimal"
    assert r.log_prob == pytest.approx(expected, rel=1e-12)
    assert mm.log_marginal(c, r.state) == pytest.approx(expected, rel=1e-12)
    # With every other variable hidden what is left is a Markov chain again.
    steps = [tables[t] @ tables[t + 1] for t in range(0, length - 2, 2)]
    expected = viterbi(first, steps)
    r = mm.marginal_map(c, range(0, length, 2), method="frontier")
    assert r.status == "optimal"
    assert r.log_prob == pytest.approx(expected, rel=1e-12)


# Limits.


def test_time_limit_is_kept():
    begun = time.perf_counter()
    r = mm.marginal_map(hard(), None, method="frontier", time_limit=1)
    assert time.perf_counter() - begun < 3
    check_stopped(r, "time_limit")


def test_stopped_at_every_moment_the_bounds_hold(monkeypatch):
    sorts = ("coins", "latent tree", "laminar", "dense", "many values")
    assert stop_at_every_moment(monkeypatch, sorts, "frontier", width=1) > 50


def test_ctrl_c_from_outside():
    """The signal that a terminal sends, half a second after the start; a handler of our own takes one that is late."""
    before = signal.signal(signal.SIGINT, lambda *_: None)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        begun = time.perf_counter()
        r = mm.marginal_map(hard(), None, time_limit=20)
        assert time.perf_counter() - begun < 10
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    check_stopped(r, "interrupted")


def test_memory_limit_becomes_a_gap():
    r = mm.marginal_map(hard(), None, memory_limit=1 << 17)
    check_stopped(r, "memory_limit")
    assert r.method == "frontier"
    wider = mm.marginal_map(hard(), None, memory_limit=1 << 22)
    check_stopped(wider, "memory_limit")
    assert wider.details["widest"] > r.details["widest"]
    assert wider.log_upper <= r.log_upper


def check_stopped(r, status):
    c = hard()
    assert r.status == status
    assert len(r.state) == 40
    assert r.log_prob == pytest.approx(mm.log_marginal(c, r.state), rel=1e-12)
    assert -math.inf < r.log_prob < r.log_upper < 0
    assert 1e-9 < r.gap < 40


def test_a_gap_that_was_asked_for_ends_it_sooner():
    c = hard(16, 10)
    exact = mm.marginal_map(c, None, method="frontier")
    assert exact.status == "optimal"
    for gap in (0.5, 0.1):
        r = mm.marginal_map(c, None, method="frontier", gap=gap)
        assert r.status == "optimal"
        assert 1e-9 < r.gap <= gap
        assert r.log_prob <= exact.log_prob + 1e-12
        assert exact.log_prob <= r.log_upper


def test_a_second_question_compiles_nothing():
    c = SORTS["latent tree"](np.random.default_rng(3))
    mm.marginal_map(c, [0, 1, 2], {5: 1})
    compiled = []
    with on_compile(lambda: compiled.append("began"), lambda: None):
        for query, evidence in (([3, 4], {0: 1, 1: 0}), (None, {2: 1}), ([6, 5, 4, 3, 2], None), (None, None)):
            assert mm.marginal_map(c, query, evidence).status == "optimal"
        assert mm.marginal_map(c, None, k=3).status == "optimal"
        assert mm.marginal_map(c, None, gap=0.1, memory_limit=1 << 26).status == "optimal"
    assert compiled == []
