"""Branch and best-first: circuits without structure, factors, and sound bounds when they are stopped anywhere."""

import math
import time

import numpy as np
import pytest

import margmap as mm
from counts import cases
from margmap.circuit import BERNOULLI, Parts, Variable, assemble
from margmap.solve.hill_climb import Incumbents
from margmap.solve.methods import best_first
from margmap.solve.methods import branch_and_bound as branch
from problems import SORTS, check_optimal, coins, hard, make, partition_tree, stop_at_every_moment


class Weak(Incumbents):
    """Takes what it is offered without improving it."""

    def offer(self, state, climb):
        return super().offer(state, climb=False)


@pytest.mark.parametrize("sort", SORTS)
def test_equals_enumeration_without_hill_climbing(sort, monkeypatch):
    monkeypatch.setattr(branch, "Incumbents", Weak)
    monkeypatch.setattr(best_first, "Incumbents", Weak)
    for seed in range(3000, 3000 + cases(15)):
        p = make(sort, seed)
        monkeypatch.setattr(best_first, "SPLIT_EDGES", (0, 40, 1000)[seed % 3])
        for method in ("branch", "best-first"):
            check_optimal(p, mm.marginal_map(p.circuit, p.query, p.evidence, method))


@pytest.mark.parametrize("method", ["branch", "best-first"])
def test_stopped_at_every_moment_the_bounds_hold(method, monkeypatch):
    sorts = ("partitions", "dense, unstructured", "many values, unstructured", "coins", "latent tree")
    assert stop_at_every_moment(monkeypatch, sorts, method) > 60


def test_forty_variables_whose_scopes_cross():
    """No enumeration here: the answer is a local optimum, re-scored, and no sampled state or other query beats it."""
    c = partition_tree(0, variables=40, levels=3, children=2)
    assert not c.properties.structured
    r = mm.marginal_map(c, None, method="branch")
    assert r.status == "optimal"
    assert r.log_prob == pytest.approx(mm.log_marginal(c, r.state), rel=1e-13)
    for v, x in r.state.items():
        assert mm.log_marginal(c, {**r.state, v: 1 - x}) <= r.log_upper
    assert mm.log_likelihood(c, mm.sample(c, 5000, seed=0)).max() <= r.log_upper
    best = r
    for v in (3, 17):  # the best state given one of its own values is the same state, given another it is no better
        for x in range(2):
            r = mm.marginal_map(c, None, {v: x}, method="branch")
            assert r.status == "optimal"
            assert r.log_prob <= best.log_upper
            if best.state[v] == x:
                assert r.log_prob == pytest.approx(best.log_prob, rel=1e-12)


def test_factors_are_solved_one_by_one():
    """Thirty independent mixtures of eight coins: together 2^240 states, each for itself 256."""
    rng = np.random.default_rng(0)
    parts, factors, best = Parts.new(), [], 0.0
    for i in range(30):
        p = rng.uniform(0.1, 0.9, (3, 8))
        rows = [
            parts.product([parts.leaf(BERNOULLI, 8 * i + j, [math.log(x), math.log1p(-x)]) for j, x in enumerate(row)])
            for row in p
        ]
        factors.append(parts.sum(rows, [-math.log(3)] * 3))
        table = sum(np.prod(np.meshgrid(*[(1 - x, x) for x in row], indexing="ij"), axis=0) for row in p) / 3
        best += math.log(table.max())
    c = assemble([Variable(i) for i in range(240)], parts, parts.product(factors))
    r = mm.marginal_map(c, None, method="branch")
    assert r.status == "optimal"
    assert r.log_prob == pytest.approx(best, rel=1e-12)
    assert r.details["search_nodes"] < 30 * 256


def test_time_limit_is_kept():
    begun = time.perf_counter()
    r = mm.marginal_map(hard(), None, method="branch", time_limit=0.5)
    assert time.perf_counter() - begun < 2.5
    assert r.status == "time_limit"
    assert -math.inf < r.log_prob < r.log_upper < 0
    assert r.log_prob == pytest.approx(mm.log_marginal(hard(), r.state), rel=1e-12)


def test_a_gap_that_was_asked_for_ends_it_sooner():
    c = coins(np.random.default_rng(5), 14, 8, spread=0.2)
    exact = mm.marginal_map(c, None, method="branch")
    r = mm.marginal_map(c, None, method="branch", gap=0.5)
    assert (exact.status, r.status) == ("optimal", "optimal")
    assert 1e-9 < r.gap <= 0.5
    assert r.log_prob <= exact.log_prob + 1e-12
    assert exact.log_prob <= r.log_upper
    assert r.details["search_nodes"] < exact.details["search_nodes"]
