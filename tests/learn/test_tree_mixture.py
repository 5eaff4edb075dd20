"""Mixtures of trees with different structures."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import margmap as mm
from margmap.errors import DataError
from margmap.learn import learn_trees, trees
from margmap.learn.chow_liu_tree import RootedTree
from margmap.learn.tree_mixture import _count, _log_values
from rows_for_learning import holes, tangled


@pytest.mark.parametrize("values", [2, 3])
@pytest.mark.parametrize("part", [0.0, 0.2])
def test_the_circuit_is_what_em_saw(values: int, part: float) -> None:
    rows = holes(tangled(500, 7, values, seed=values), part)
    found = learn_trees(rows[:400], rows[400:], k=4, iterations=12)
    circuit, properties = found.circuit, found.circuit.properties
    assert properties.smooth
    assert properties.decomposable
    assert properties.normalised
    assert mm.log_likelihood(circuit, rows[400:]).mean() == pytest.approx(found.best.valid)
    assert found.best.valid == max(now.valid for now in found.history)
    alone = learn_trees(rows[:400], rows[400:], k=1, iterations=2)
    assert found.best.valid > alone.best.valid


def test_one_tree_is_the_chow_liu_tree() -> None:
    rows = tangled(300, 6, 3, seed=1)
    one = trees(rows, k=1, strength=0.0)
    tree = mm.learn.chow_liu(rows, pseudocount=0.0)
    assert mm.log_likelihood(one, rows) == pytest.approx(mm.log_likelihood(tree, rows))


@pytest.mark.parametrize("seed", range(5))
def test_with_fixed_trees_the_likelihood_never_falls(seed: int) -> None:
    rows = holes(tangled(200, 6, 2 + seed % 2, seed=seed), 0.25, seed)
    options = {"structure_iterations": 2, "iterations": 30, "tolerance": 0.0}
    found = learn_trees(rows, k=3, strength=0.0, seed=seed, **options)
    likelihoods = [now.train for now in found.history][2:]
    assert len(likelihoods) > 3
    assert min(np.diff(likelihoods)) > -1e-10


def test_a_pass_over_a_tree_is_enumeration() -> None:
    rng = np.random.default_rng(5)
    cardinality = np.array([2, 3, 2, 4])
    tree = RootedTree(np.array([1, -1, 1, 2], dtype=np.int32), np.array([1, 0, 2, 3], dtype=np.int32))
    table = rng.random((4, 4, 4))
    for v, size in enumerate(cardinality):
        table[v, :, size:] = 0.0
    table /= table.sum(axis=2, keepdims=True)
    codes = np.array([[-1, 0, -1, 2], [1, -1, -1, -1], [0, 2, 1, 3], [-1, -1, -1, -1]], dtype=np.int32)
    share = np.array([1.0, 0.5, 2.0, 0.25])
    expected, log = np.zeros_like(table), np.zeros(4)
    for r, row in enumerate(codes):
        weight = {}
        for states in itertools.product(*(range(int(size)) for size in cardinality)):
            if all(x in (-1, y) for x, y in zip(row, states, strict=True)):
                parents = [0 if p < 0 else states[p] for p in tree.parent]
                weight[states] = math.prod(table[v, parents[v], states[v]] for v in range(4))
        mass = sum(weight.values())
        log[r] = math.log(mass)
        for states, value in weight.items():
            for v, p in enumerate(tree.parent):
                expected[v, 0 if p < 0 else states[p], states[v]] += share[r] * value / mass
    found, counts = np.empty(4), np.zeros_like(table)
    _log_values(codes, cardinality, tree.order, tree.parent, table, found)
    _count(codes, cardinality, tree.order, tree.parent, table, share, counts)
    np.testing.assert_allclose(found, log, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(counts, expected, atol=1e-12)


def test_marginal_map_on_crossing_trees() -> None:
    rows = holes(tangled(400, 7, seed=3), 0.1)
    circuit = trees(rows, k=3, iterations=10)
    assert not circuit.properties.structured
    for seed in range(6):
        order = np.random.default_rng(seed).permutation(7)
        query, known = sorted(order[:4].tolist()), {int(c): seed % 2 for c in order[4:6]}
        found = mm.marginal_map(circuit, [c + 1 for c in query], {c + 1: x for c, x in known.items()})
        row = np.full((16, 7), -1)
        row[:, query] = list(itertools.product(range(2), repeat=4))
        for c, x in known.items():
            row[:, c] = x
        assert found.status == "optimal"
        assert found.log_prob == pytest.approx(mm.log_likelihood(circuit, row).max(), abs=1e-9)


def test_the_same_seed_gives_the_same_mixture() -> None:
    rows = holes(tangled(300, 6, seed=5), 0.1)
    one, two = (trees(rows, k=3, iterations=5, seed=2) for _ in range(2))
    assert np.array_equal(one.log_weight, two.log_weight)
    assert np.array_equal(one.child, two.child)


def test_what_it_refuses() -> None:
    with pytest.raises(DataError, match="k must be at least 1"):
        trees([[0, 1], [1, 0]], k=0)
    with pytest.raises(DataError, match="real numbers"):
        trees(mm.learn.read_table(np.random.default_rng(0).random((50, 2)), continuous=True))
