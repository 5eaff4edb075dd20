"""What is counted for rounding covers what rounding does, measured with fractions on circuits that pile it up."""

import math
from fractions import Fraction

import numpy as np
import pytest
from enumeration import reduced_problems, root_values, states_of

from margmap.circuit import BERNOULLI, PRODUCT, SUM, Parts, Variable, assemble
from margmap.reduce import reduce
from margmap.solve import bounds as bounds_module
from margmap.solve import frontier
from margmap.solve.bounds import conditional_bounds, view_of
from margmap.solve.plan import make_plan, rounding_of
from margmap.solve.result import Limits
from margmap.solve.sweep import _enter, _push


def markov_mixture(rng, length, states=3):
    """A hidden Markov model with the same tables everywhere: far from its ends every step rounds in the same way."""
    parts = Parts.new()
    coins = rng.uniform(0.3, 0.7, states)
    table = np.log(rng.dirichlet(np.ones(states), states)).tolist()
    after = None
    for t in range(length - 1, -1, -1):
        here = [parts.leaf(BERNOULLI, t, [math.log(p), math.log1p(-p)]) for p in coins]
        if after is not None:
            here = [parts.product([leaf, below]) for leaf, below in zip(here, after, strict=True)]
        after = [parts.sum(here, row) for row in table]
    return assemble([Variable(i) for i in range(length)], parts, after[0])


#: The unit of exact numbers: doubles down to 1e-70 are whole multiples of it, and what is rounded off is nothing.
ONE = 1 << 300


def whole(x):
    return int(Fraction(float(x)) * ONE)


def outside_bounds(flat, plan, share):
    """What a sweep computes on its way down, before any scope is done, in doubles and in whole numbers over ONE."""
    n = flat.num_nodes
    outside, total, limit = np.zeros(n), np.zeros(n), np.ones(n)
    exact_outside, exact_total = [0] * n, [0] * n
    outside[-1], exact_outside[-1] = 1.0, ONE
    exact_share = [whole(x) for x in share]
    stack = [int(plan.scope[n - 1])]
    while stack:
        s = stack.pop()
        nodes = plan.node[plan.node_at[s] : plan.node_at[s + 1]].tolist()
        _enter(flat, share, plan, s, outside, total)
        for i in reversed(nodes):
            if plan.column[i] >= 0:
                exact_total[i] += exact_outside[i]
            if flat.kind[i] == SUM:
                for e in range(flat.start[i], flat.start[i + 1]):
                    exact_total[flat.child[e]] += exact_share[e] * exact_total[i] // ONE
        for j, t in enumerate(plan.part[plan.part_at[s] : plan.part_at[s + 1]].tolist()):
            _push(flat, plan, s, j, total, limit, outside)
            for i in nodes:
                if flat.kind[i] == PRODUCT:
                    exact_outside[plan.factor[flat.start[i] + j]] += exact_total[i]
            stack.append(t)
    return outside, exact_outside


def test_the_rounding_of_outside_bounds_is_counted():
    """It covers what a bound is too small by, and that is more than the rounding of any one scope."""
    most = 0.0
    for seed in (1, 3, 7):  # the last rounds down at every step
        reduced = reduce(markov_mixture(np.random.default_rng(seed), 700), None)
        flat, plan = make_plan(reduced.flat, 700)
        share = view_of(flat, 0.0, reduced.cardinality).bounds.share
        outside, exact = outside_bounds(flat, plan, share)
        counted = rounding_of(flat, plan)
        for found, true in zip(outside.tolist(), exact, strict=True):
            if true:
                short = (true - whole(found)) / true
                assert short <= counted
                most = max(most, short)
        nodes, parts = np.diff(plan.node_at), np.diff(plan.part_at)
        one_step = np.finfo(np.float64).eps * float((2 * nodes + parts + 4).max())
    assert most > one_step


def test_the_frontier_adds_its_rounding_to_its_bound(monkeypatch):
    reduced = reduce(markov_mixture(np.random.default_rng(0), 12), None)
    assert 0 < rounding_of(*make_plan(reduced.flat, 12)) < 1e-12
    plain = frontier.solve(reduced, Limits())
    monkeypatch.setattr(frontier, "rounding_of", lambda _flat, _plan: 0.125)
    moved = frontier.solve(reduced, Limits())
    assert moved.log_upper - plain.log_upper == pytest.approx(0.125, abs=1e-12)


@pytest.mark.parametrize("room", [1, 30])
def test_tightened_bounds_of_several_passes_hold(room, monkeypatch):
    """Each pass tightens with its own variables only."""
    monkeypatch.setattr(bounds_module, "CONDITIONAL_ROOM", room)
    for reduced in reduced_problems(81_000, 60):
        states = states_of(reduced.cardinality)
        values = root_values(reduced.flat, states)
        bounds = view_of(reduced.flat, 0.0, reduced.cardinality).bounds
        asked = np.ones(len(reduced.cardinality), dtype=np.bool_)
        tight = conditional_bounds(reduced.flat, bounds, reduced.cardinality, asked, tighten=True)
        for v, k in enumerate(reduced.cardinality):
            for x in range(k):
                assert tight[v, x] * math.exp(bounds.log_upper) >= values[states[:, v] == x].max() * (1 - 1e-12)
