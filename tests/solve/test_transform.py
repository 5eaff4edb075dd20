"""Prune, split, regroup, rebuild: what each may change and what not. Incumbents: Algorithm 4 and hill climbing."""

import math

import numpy as np
import pytest

from counts import cases
from enumeration import (
    LEAF,
    PRODUCT,
    SUM,
    algorithm_1,
    edges_of,
    exclusive_sums,
    reduced_problems,
    root_values,
    states_of,
    supports,
    values_of,
)
from margmap.circuit import BERNOULLI, Parts, Variable, assemble
from margmap.foundation.limits import Limits
from margmap.solve.edge_bounds import edge_bounds
from margmap.solve.hill_climb import Incumbents, _differentiate
from margmap.solve.lower_bound import lower_bound_state
from margmap.solve.output_bounds import output_bounds
from margmap.solve.query_circuit import Flat, rebuild, rows_of
from margmap.solve.reduce import reduce
from margmap.solve.regroup import regroup
from margmap.solve.split import split, split_size
from margmap.solve.supports import find_deterministic, find_supports
from margmap.solve.values import evaluate

BLOCKS = pytest.mark.parametrize("first", range(100_000, 108_000, 2000))
EACH = cases(50)


def bounded(flat, cardinality):
    return output_bounds(flat, find_deterministic(flat, find_supports(flat, cardinality)))


def all_edges(flat):
    return np.ones(flat.num_edges, dtype=np.bool_)


def same(found, expected):
    return (abs(found - expected) <= 1e-12 * expected).all()


def check_form(flat):
    """Children before parents, all of it reached, nothing to collapse, merge or share; smooth and decomposable."""
    assert flat.start[0] == 0
    assert flat.start[-1] == len(flat.child) == len(flat.weight)
    assert len(flat.start) == len(flat.kind) + 1
    assert (flat.weight > 0).all()
    reached = {len(flat.kind) - 1}
    below = supports(flat)
    seen = set()
    for n in range(len(flat.kind) - 1, -1, -1):
        children = flat.child[flat.start[n] : flat.start[n + 1]].tolist()
        weights = flat.weight[flat.start[n] : flat.start[n + 1]].tolist()
        assert n in reached
        assert all(c < n for c in children)
        reached.update(children)
        if flat.kind[n] == LEAF:
            assert children == []
            content = (LEAF, int(flat.var[n]), int(flat.value[n]))
        else:
            assert len(children) > 1
            assert len(set(children)) == len(children)
            content = (int(flat.kind[n]), tuple(children), tuple(weights))
            assert flat.var[n] == flat.value[n] == -1
        assert content not in seen
        seen.add(content)
        scopes = [set(below[c]) for c in children]
        if flat.kind[n] == SUM:
            assert all(scope == scopes[0] for scope in scopes)
        elif flat.kind[n] == PRODUCT:
            assert weights == [1.0] * len(weights)
            assert sum(map(len, scopes)) == len(set().union(*scopes))


@BLOCKS
def test_rebuild_with_every_edge_changes_no_value(first):
    for reduced in reduced_problems(first, EACH):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        check_form(flat)
        again, log_factor = rebuild(flat, all_edges(flat))
        check_form(again)
        assert again.num_edges <= flat.num_edges
        assert same(root_values(again, states) * math.exp(log_factor), root_values(flat, states))


@BLOCKS
def test_rebuild_without_some_edges(first):
    """The value of every state is that of the circuit with the weights of those edges set to 0, products included."""
    for i, reduced in enumerate(reduced_problems(first + 500, EACH)):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        keep = np.random.default_rng(i).random(flat.num_edges) < 0.8
        values = np.zeros((flat.num_nodes, len(states)))
        for n in range(flat.num_nodes):
            edges = range(flat.start[n], flat.start[n + 1])
            terms = [keep[e] * flat.weight[e] * values[flat.child[e]] for e in edges]
            if flat.kind[n] == LEAF:
                values[n] = states[:, flat.var[n]] == flat.value[n]
            else:
                values[n] = np.prod(terms, axis=0) if flat.kind[n] == PRODUCT else np.sum(terms, axis=0)
        small, log_factor = rebuild(flat, keep)
        assert small.num_edges <= keep.sum()
        if values[-1].max() == 0:
            assert small.num_nodes == 0
            continue
        check_form(small)
        assert same(root_values(small, states) * math.exp(log_factor), values[-1])


def test_rebuild_takes_out_a_factor_smaller_than_floats_can_be():
    parts = Parts.new()
    parts.product([parts.leaf(BERNOULLI, i, [math.log(1e-3), math.log1p(-1e-3)]) for i in range(500)])
    flat = reduce(assemble([Variable(i) for i in range(500)], parts), None).flat
    keep = flat.value[flat.child] != 0  # every variable is 1
    small, log_factor = rebuild(flat, keep)
    assert log_factor == pytest.approx(500 * math.log(1e-3), rel=1e-12)
    assert (small.kind == LEAF).sum() == 500


@BLOCKS
def test_pruning_keeps_the_optimum(first):
    """With the value of any state as incumbent, the best one included: no better state loses, and none ever gains."""
    for reduced in reduced_problems(first + 1000, EACH):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        before = root_values(flat, states)
        bounds = bounded(flat, reduced.cardinality)
        found = edge_bounds(flat, bounds) * math.exp(bounds.log_upper)
        for incumbent in np.unique(before[before > 0]):
            small, log_factor = rebuild(flat, found > incumbent * (1 + 1e-12))
            after = root_values(small, states) * math.exp(log_factor)
            better = before > incumbent * (1 + 1e-11)
            assert same(after[better], before[better])
            assert (after <= before * (1 + 1e-12)).all()
        # Just below the optimum the optimum itself stays.
        small, log_factor = rebuild(flat, found > before.max() * (1 - 1e-9))
        assert root_values(small, states).max() * math.exp(log_factor) == pytest.approx(before.max(), rel=1e-12)


@BLOCKS
def test_splitting_changes_no_value(first):
    for reduced in reduced_problems(first + 1500, EACH):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        before = root_values(flat, states)
        bound = bounded(flat, reduced.cardinality).log_upper
        for variable in range(len(reduced.cardinality)):
            found = find_supports(flat, reduced.cardinality)
            parts, log_factor = split(flat, variable, found)
            check_form(parts)
            assert parts.num_edges <= split_size(flat, variable, found)
            assert same(root_values(parts, states) * math.exp(log_factor), before)
            after = bounded(parts, reduced.cardinality)
            assert after.log_upper + log_factor <= bound + 1e-12
            possible = {int(x) for x in states[before > 0][:, variable]}
            if len(possible) > 1:
                # The root's children allow one value each, unless single-child detours were taken out.
                assert after.deterministic[-1] or parts.kind[-1] == PRODUCT


def test_splitting_on_every_variable_makes_the_bound_exact():
    """A sum that still adds then has one possible state: the same one, multiplied together in different orders."""
    for reduced in reduced_problems(110_000, 60):
        flat, log_factor = reduced.flat, 0.0
        states = states_of(reduced.cardinality)
        for variable in range(len(reduced.cardinality)):
            flat, more = split(flat, variable, find_supports(flat, reduced.cardinality))
            log_factor += more
        take_max = exclusive_sums(flat)
        for n in np.flatnonzero(~take_max & (flat.kind == SUM)):
            assert all(len(xs) == 1 for xs in supports(flat)[n].values())
        best = root_values(reduced.flat, states).max()
        assert algorithm_1(flat, take_max)[-1] * math.exp(log_factor) == pytest.approx(best, rel=1e-12)


def test_splitting_shares_what_the_variable_does_not_touch():
    """A product of two independent mixtures: splitting on a variable of one copies nothing of the other."""
    parts = Parts.new()
    roots = []
    for offset in (0, 3):
        terms = []
        for p in (0.2, 0.6, 0.7):
            leaves = [parts.leaf(BERNOULLI, offset + i, [math.log(p), math.log1p(-p)]) for i in range(3)]
            terms.append(parts.product(leaves))
        roots.append(parts.sum(terms, [math.log(w) for w in (0.2, 0.3, 0.5)]))
    parts.product(roots)
    reduced = reduce(assemble([Variable(i) for i in range(6)], parts), None)
    halves, _ = split(reduced.flat, 0, find_supports(reduced.flat, reduced.cardinality))
    about_others = [n for n, below in enumerate(supports(halves)) if set(below) == {3, 4, 5}]
    assert len(about_others) == len([n for n, below in enumerate(supports(reduced.flat)) if set(below) == {3, 4, 5}])


@BLOCKS
def test_regrouping_changes_no_value_and_loosens_no_bound(first):
    tighter = 0
    for reduced in reduced_problems(first + 200, EACH):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        found = find_supports(flat, reduced.cardinality)
        before = bounded(flat, reduced.cardinality)
        groups, log_factor = regroup(flat, found, before.deterministic)
        check_form(groups)
        assert same(root_values(groups, states) * math.exp(log_factor), root_values(flat, states))
        after = bounded(groups, reduced.cardinality).log_upper + log_factor
        assert after <= before.log_upper + 1e-12
        assert after >= math.log(root_values(flat, states).max()) - 1e-12
        tighter += after < before.log_upper - 1e-6
    assert tighter > 0


def test_regrouping_by_hand():
    """Three exclusive products and one that is not: .4 + .3 + .2 + .1 becomes max(.4, .3, .2) + .1."""
    parts = Parts.new()
    leaves = {(v, x): parts.leaf(0, v, [float(x)]) for v in range(2) for x in range(3)}
    free = [parts.leaf(2, v, [math.log(1 / 3)] * 3) for v in range(2)]
    terms = [parts.product([leaves[0, x], leaves[1, x]]) for x in range(3)]
    parts.sum([*terms, parts.product(free)], [math.log(w) for w in (0.4, 0.3, 0.2, 0.1)])
    reduced = reduce(assemble([Variable(v, 3) for v in range(2)], parts), None)
    before = bounded(reduced.flat, reduced.cardinality)
    assert math.exp(before.log_upper) == pytest.approx(0.9 + 0.1 / 9)
    groups, log_factor = regroup(reduced.flat, find_supports(reduced.flat, reduced.cardinality), before.deterministic)
    after = bounded(groups, reduced.cardinality)
    assert math.exp(after.log_upper + log_factor) == pytest.approx(0.4 + 0.1 / 9)


@BLOCKS
def test_lower_bound_state(first):
    """Algorithm 4 gives a possible state, and the best one where all sums are exclusive."""
    exact = 0
    for reduced in reduced_problems(first + 700, EACH):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        values = root_values(flat, states)
        take_max = exclusive_sums(flat)
        state = lower_bound_state(flat, take_max, len(reduced.cardinality))
        (own,) = values[(states == state).all(axis=1)]
        assert 0 < own <= values.max()
        if take_max[flat.kind == SUM].all():
            exact += 1
            assert own == pytest.approx(values.max(), rel=1e-12)
    assert exact > 10


@BLOCKS
def test_flip_values(first):
    """The derivative by an indicator is the value of the state with that variable changed."""
    for i, reduced in enumerate(reduced_problems(first + 900, EACH)):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        values = values_of(flat, states)
        where = {tuple(state): s for s, state in enumerate(states.tolist())}
        for s in np.random.default_rng(i).choice(len(states), min(8, len(states)), replace=False):
            state = states[s].astype(np.int32)
            value, scale, slope = np.zeros(flat.num_nodes), np.zeros(flat.num_nodes), np.zeros(flat.num_nodes)
            evaluate(flat, state, value, scale)
            assert same(value * np.exp(scale), values[:, s])
            if value[-1] == 0:
                continue
            _differentiate(flat, rows_of(flat), value, scale, slope)
            for leaf in np.flatnonzero(flat.kind == LEAF):
                flipped = state.tolist()
                flipped[flat.var[leaf]] = int(flat.value[leaf])
                exact = values[-1][where[tuple(flipped)]]
                assert abs(slope[leaf] * values[-1, s] - exact) <= 1e-12 * exact


@BLOCKS
def test_climbing_ends_where_no_flip_is_better(first):
    for i, reduced in enumerate(reduced_problems(first + 300, EACH)):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        values = root_values(flat, states)
        incumbents = Incumbents(flat, bounded(flat, reduced.cardinality), reduced.cardinality, Limits())
        best = -math.inf
        for s in np.random.default_rng(i).choice(len(states), 3):
            start = states[s].astype(np.int32)
            kept = start.copy()
            improved = incumbents.offer(start, climb=False)
            assert (start == kept).all()
            offered = math.log(values[s]) if values[s] > 0 else -math.inf
            if abs(offered - best) > 1e-12 or offered == best == -math.inf:
                assert improved == (offered > best)
            best = max(best, offered)
            assert incumbents.best[1] == pytest.approx(best, abs=1e-12)
        if best == -math.inf:
            continue
        incumbents.offer(incumbents.best[0], climb=True)
        state, log_value = incumbents.best
        (own,) = values[(states == state).all(axis=1)]
        assert log_value == pytest.approx(math.log(own), abs=1e-12)
        neighbours = (states != state).sum(axis=1) == 1
        assert values[neighbours].max(initial=0) <= own * (1 + 1e-11)
        assert log_value >= best - 1e-12


def test_transformations_leave_their_input_alone():
    for reduced in reduced_problems(120_000, 20):
        flat = reduced.flat
        before = Flat(*(array.copy() for array in flat))
        found = find_supports(flat, reduced.cardinality)
        bounds = bounded(flat, reduced.cardinality)
        keep = edge_bounds(flat, bounds) > 0.5
        rebuild(flat, keep)
        split(flat, 0, found)
        regroup(flat, found, bounds.deterministic)
        lower_bound_state(flat, bounds.deterministic, len(reduced.cardinality))
        assert all((a == b).all() for a, b in zip(flat, before, strict=True))
        assert len(list(edges_of(flat))) == flat.num_edges
