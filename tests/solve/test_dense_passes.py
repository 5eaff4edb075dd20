"""Passes over a reduced circuit with dense blocks: block by block they find what they find edge by edge."""

import numpy as np
import pytest

from margmap.bench.generators import latent_tree
from margmap.circuit import INDICATOR, SUM
from margmap.foundation.pairs import EPS
from margmap.inference.dense import block_rows, mostly_blocks
from margmap.inference.passes import forward, forward_dense
from margmap.inference.scaled import scaled
from margmap.solve.hill_climb import _differentiate
from margmap.solve.lower_bound import lower_bound_state
from margmap.solve.methods.frontier.scope_tree import make_plan
from margmap.solve.methods.frontier.sweep import enter, sweep
from margmap.solve.output_bounds import output_bounds, view_of
from margmap.solve.query_circuit import NO_ROWS
from margmap.solve.reduce import reduce
from margmap.solve.supports import find_deterministic, find_supports
from margmap.solve.values import evaluate, evaluate_blocks


def instance(seed):
    """A reduced latent tree; some have weights that are small, some values that are impossible."""
    rng = np.random.default_rng(seed)
    concentration = (1.0, 0.02)[seed % 2]
    circuit = latent_tree(seed, variables=6, states=8 + seed % 5, values=2 + seed % 2, concentration=concentration)
    order = rng.permutation(6).tolist()
    observed = {i: int(rng.integers(2)) for i in order[4 : 4 + seed % 3]}
    return circuit, reduce(circuit, order[: 2 + seed % 3], observed), rng


def test_rows_that_stand_alone_are_no_blocks():
    """Compiled networks are full of sums with many children of their own: nothing is shared, and edges can go."""
    start = np.arange(0, 101, 10)
    alone, together = np.arange(10, dtype=np.int32), np.repeat(np.arange(0, 10, 2), 2).astype(np.int32)
    assert not mostly_blocks(start, alone)
    assert mostly_blocks(start, together)
    together[:5] = -1  # half of the edges, and one row whose block has no other
    assert not mostly_blocks(start, together)


def blocks_of(flat):
    """The blocks of a circuit, also where they are not most of it."""
    return block_rows(flat.kind, flat.start, flat.child, flat.weight, None)


def singly(rows):
    return np.full(rows.size, -1, dtype=np.int32)


@pytest.mark.parametrize("seed", range(12))
def test_block_by_block_equals_edge_by_edge(seed):
    _, reduced, rng = instance(seed)
    flat, rows = reduced.flat, blocks_of(reduced.flat)
    assert (rows >= 0).any()
    supports = find_supports(flat, reduced.cardinality, rows=rows)
    assert np.array_equal(supports.can, find_supports(flat, reduced.cardinality, rows=singly(rows)).can)
    deterministic = find_deterministic(flat, supports, rows=rows)
    assert np.array_equal(deterministic, find_deterministic(flat, supports, rows=singly(rows)))
    for flags in (deterministic, np.ones(flat.num_nodes, dtype=np.bool_)):
        bounds, expected = (output_bounds(flat, flags, rows=each) for each in (rows, singly(rows)))
        np.testing.assert_allclose(bounds.value, expected.value, rtol=1e-13)
        assert np.array_equal(bounds.exponent, expected.exponent)
        np.testing.assert_allclose(bounds.share, expected.share, rtol=1e-13)
        assert bounds.faithful == expected.faithful
        assert bounds.least <= expected.least * (1 + 1e-12)  # it may be too careful, and not the reverse
    variables = reduced.cardinality.size
    one, other = (lower_bound_state(flat, deterministic, variables, each) for each in (rows, singly(rows)))
    assert np.array_equal(one, other)
    state = (rng.random(variables) * reduced.cardinality).astype(np.int32)
    found, plain = (np.zeros((3, flat.num_nodes)) for _ in range(2))
    evaluate_blocks(flat, rows, state, found[0], found[1])
    evaluate(flat, state, plain[0], plain[1])
    if plain[0, -1] > 0:
        _differentiate(flat, rows, *found)
        _differentiate(flat, singly(rows), *plain)
    np.testing.assert_allclose(found, plain, rtol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_shares_and_bounds_are_rounded_up(seed):
    """A share times its node's bound is at least the term, in more digits than doubles have."""
    _, reduced, _ = instance(seed)
    flat, rows = reduced.flat, blocks_of(reduced.flat)
    bounds = output_bounds(flat, np.zeros(flat.num_nodes, dtype=np.bool_), rows=rows)
    wide = np.longdouble
    for n in np.flatnonzero(rows >= 0):
        edges = slice(flat.start[n], flat.start[n + 1])
        terms = flat.weight[edges].astype(wide) * bounds.value[flat.child[edges]].astype(wide)
        assert wide(bounds.value[n]) >= terms.sum()
        assert (bounds.share[edges].astype(wide) * wide(bounds.value[n]) >= terms).all()
        assert wide(bounds.value[n]) <= terms.sum() * (1 + 4 * (terms.size + 8) * EPS)


@pytest.mark.parametrize("seed", range(12))
def test_values_of_a_circuit(seed):
    circuit, _, rng = instance(seed)
    s = scaled(circuit)
    assert (s.rows >= 0).any()
    codes = np.array([rng.integers(v.cardinality + 1) for v in circuit.variables], dtype=np.int32)
    reals = np.full(codes.size, np.nan)
    found, plain = (np.zeros((2, circuit.num_nodes)) for _ in range(2))
    forward_dense(s, codes, reals, *found)
    forward(s, codes, reals, *plain)
    np.testing.assert_allclose(found, plain, rtol=1e-13)


def test_rows_of_blocks():
    """Rows are found by their children; those with a zero, or with a weight that is a logarithm, stand alone."""
    kind = np.array([INDICATOR] * 8 + [SUM] * 5, dtype=np.int8)
    start = np.concatenate((np.zeros(8), np.arange(6) * 8)).astype(np.int64)
    child = np.tile(np.arange(8, dtype=np.int32), 5)
    child[32:] = child[32:][::-1]
    weight = np.full(40, 0.125)
    weight[8], weight[23] = 0.0, -600.0
    assert block_rows(kind, start, child, weight, None)[8:].tolist() == [8, -1, -1, 8, 12]
    shift = np.zeros(40)
    shift[0] = -700.0
    assert block_rows(kind, start, child, weight, shift)[8:].tolist() == [-1, -1, -1, 8, 12]


@pytest.mark.parametrize("seed", range(12))
def test_a_sweep_block_by_block_equals_one_edge_by_edge(seed):
    _, reduced, _ = instance(seed)
    flat, plan = make_plan(reduced.flat, reduced.cardinality.size)
    bounds = view_of(flat, 0.0, reduced.cardinality).bounds
    blocks = blocks_of(flat)
    assert (blocks >= 0).any()
    for log_floor, most in ((-np.inf, 99), (-0.7, 99), (-np.inf, 2)):
        found, expected = (
            sweep(
                *(flat, rows, bounds.share, bounds.least, plan, None, reduced.cardinality.size),
                *(log_floor, most, 9999, 3, np.array([0, 1 << 60])),
            )
            for rows in (blocks, NO_ROWS)
        )
        assert found[0]
        assert expected[0]
        np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=1e-12)
        assert np.array_equal(found[2], expected[2])
        assert found[3] == pytest.approx(expected[3], abs=1e-12)


@pytest.mark.parametrize("power", [0, -400, -995])
def test_outside_bounds_of_blocks_are_never_too_small(power):
    """Near the smallest doubles each product counts as ``SMALLEST``, in a block as on an edge by itself."""
    for seed in range(12):
        _, reduced, _ = instance(seed)
        flat, plan = make_plan(reduced.flat, reduced.cardinality.size)
        bounds, scope = view_of(flat, 0.0, reduced.cardinality).bounds, plan.scope[flat.num_nodes - 1]
        outside, totals = np.zeros(flat.num_nodes), np.zeros((2, flat.num_nodes))
        outside[-1] = size = 2.0**power
        for rows, total in zip((blocks_of(flat), NO_ROWS), totals, strict=True):
            enter(flat, rows, bounds.share, plan, scope, outside, total)
            for s in plan.part[plan.part_at[scope] : plan.part_at[scope + 1]].tolist():
                inside = np.zeros(flat.num_nodes)
                inside[plan.out[plan.out_at[s] : plan.out_at[s + 1]]] = size
                enter(flat, rows, bounds.share, plan, s, inside, total)
        assert (totals[0] > 0).sum() > 2
        np.testing.assert_allclose(totals[0], totals[1], rtol=1e-12)
