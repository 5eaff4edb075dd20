"""Completions on trees of latent variables: against enumeration, against the solver, and what is left to the solver."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import margmap as mm
from margmap.circuit import CATEGORICAL, GAUSSIAN, Circuit, Variable
from margmap.circuit.layers import Layers
from margmap.learn import imputation
from margmap.learn.tree_completion import complete, state_tree


def random_tree(seed: int, columns: int, *, sharp: float = 1.0, zeros: float = 0.0) -> Circuit:
    """A latent tree of any shape, with 1 to 4 states and 1 to 4 values a column; some weights are 0."""
    rng = np.random.default_rng(seed)
    states, values = rng.integers(1, 5, columns), rng.integers(1, 5, columns)
    parent = [-1, *(int(rng.integers(max(0, i - 3) if seed % 2 else 0, i)) for i in range(1, columns))]
    layers = Layers()

    def log_shares(*shape: int) -> np.ndarray:
        share = rng.dirichlet(np.full(shape[-1], sharp), shape[:-1])
        share = np.where(rng.random(shape) < zeros, 0.0, share)
        share[share.sum(axis=-1) == 0] = 1.0
        with np.errstate(divide="ignore"):
            return np.log(share / share.sum(axis=-1, keepdims=True))

    above: dict[int, np.ndarray] = {}
    for i in range(columns - 1, -1, -1):
        own = layers.leaves(CATEGORICAL, i, log_shares(states[i], values[i]))
        below = [above[c] for c in range(i + 1, columns) if parent[c] == i]
        nodes = layers.products(np.stack([own, *below], axis=-1))
        number = states[parent[i]] if i else 1
        above[i] = layers.sums(np.broadcast_to(nodes, (number, states[i])), log_shares(number, states[i]))
    return layers.circuit([Variable(f"c{i}", int(v)) for i, v in enumerate(values)], int(above[0][0]))


def random_rows(circuit: Circuit, seed: int, number: int, part: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, v.cardinality, number) for v in circuit.variables], axis=1)
    return np.where(rng.random(rows.shape) < part, -1, rows)


def by_enumeration(circuit: Circuit, row: np.ndarray, asked: list[int]) -> dict[tuple[int, ...], float]:
    sizes = [range(circuit.variables[c].cardinality) for c in asked]
    states = list(itertools.product(*sizes))
    rows = np.repeat(row[None], len(states), axis=0)
    rows[:, asked] = np.array(states).reshape(len(states), len(asked))
    return dict(zip(states, mm.log_likelihood(circuit, rows).tolist(), strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_best_of_all_completions(seed: int) -> None:
    circuit = random_tree(seed, 2 + seed % 6, sharp=(0.3, 1.0, 5.0)[seed % 3], zeros=0.3 * (seed % 4 == 3))
    tree = state_tree(circuit)
    assert tree is not None
    rows = random_rows(circuit, seed, 12)
    rng = np.random.default_rng(seed)
    asked = (rows < 0) & (rng.random(rows.shape) < (1.0 if seed % 2 else 0.6))
    found = complete(tree, rows, asked)
    for r, row in enumerate(rows):
        columns = np.flatnonzero(asked[r]).tolist()
        possible = by_enumeration(circuit, row, columns)
        mass = math.log(sum(math.exp(x) for x in possible.values()) or 5e-324)
        if max(possible.values()) == -math.inf:
            assert not found.solved[r]
            continue
        assert found.solved[r]
        assert found.log_prob[r] == pytest.approx(max(possible.values()), abs=1e-10)
        assert possible[tuple(found.codes[r, columns].tolist())] == pytest.approx(found.log_prob[r], abs=1e-10)
        assert found.log_evidence[r] == pytest.approx(mass, abs=1e-10)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_what_the_solver_proves_on_larger_trees(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = random_tree(100 + seed, 30, sharp=0.5)
    rows = random_rows(circuit, seed, 20, 0.6)
    fast = mm.impute(circuit, rows)
    monkeypatch.setattr(imputation, "state_tree", lambda _circuit: None)
    slow = mm.impute(circuit, rows)
    assert fast.status == slow.status == ("optimal",) * 20
    np.testing.assert_allclose(fast.log_prob, slow.log_prob, atol=1e-9)
    np.testing.assert_allclose(fast.log_conditional, slow.log_conditional, atol=1e-9)
    np.testing.assert_allclose(mm.log_likelihood(circuit, fast.table), fast.log_prob, atol=1e-9)


def test_threads_give_the_same() -> None:
    circuit = random_tree(7, 12)
    rows = random_rows(circuit, 7, 400)
    one, two = mm.impute(circuit, rows), mm.impute(circuit, rows, jobs=2)
    assert np.array_equal(one.table, two.table)
    assert np.array_equal(one.log_prob, two.log_prob)


def test_real_numbers_are_observed_or_integrated_out(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = Layers()
    kinds = layers.leaves(CATEGORICAL, 0, np.log([[0.9, 0.1], [0.2, 0.8]]))
    heights = layers.leaves(GAUSSIAN, 1, [[0.0, 1.0], [100.0, 2.0]])
    middle = layers.sums(np.broadcast_to(heights, (2, 2)), np.log([[0.7, 0.3], [0.1, 0.9]]))
    top = layers.sums(layers.products(np.stack([kinds, middle], axis=-1)), np.log([0.5, 0.5]))
    circuit = layers.circuit([Variable("kind", 2), Variable("height", 0)], int(top))
    rows = np.array([[np.nan, 1.5], [np.nan, 99.0], [np.nan, np.nan], [1.0, 50.0]])
    fast = mm.impute(circuit, rows, columns=["kind"])
    monkeypatch.setattr(imputation, "state_tree", lambda _circuit: None)
    slow = mm.impute(circuit, rows, columns=["kind"])
    np.testing.assert_allclose(fast.log_prob, slow.log_prob, atol=1e-9)
    np.testing.assert_allclose(fast.log_conditional, slow.log_conditional, atol=1e-9)
    np.testing.assert_array_equal(fast.codes, slow.codes)
    assert fast.codes[:, 0].tolist()[:2] == [0.0, 1.0]


def test_numbers_that_are_too_small_are_left_to_the_solver() -> None:
    """A state that almost nothing speaks for, and without which the row cannot be."""
    layers = Layers()
    below = layers.leaves(CATEGORICAL, 1, [[0.0, -500.0], [-800.0, 0.0]])
    middle = layers.sums(np.broadcast_to(below, (2, 2)), np.array([[0.0, -np.inf], [-np.inf, 0.0]]))
    own = layers.leaves(CATEGORICAL, 0, np.array([[-600.0, 0.0], [0.0, -np.inf]]))
    top = layers.sums(layers.products(np.stack([own, middle], axis=-1)), np.log([0.5, 0.5]))
    circuit = layers.circuit([Variable("a", 2), Variable("b", 2)], int(top))
    tree = state_tree(circuit)
    assert tree is not None
    rows = np.array([[-1, 1], [0, -1], [1, -1], [-1, -1]])
    assert not complete(tree, np.array([[1, 1]]), np.array([[False, False]])).solved[0]
    found = mm.impute(circuit, rows)
    assert set(found.status) == {"optimal"}
    for row, log_prob in zip(rows, found.log_prob, strict=True):
        best = max(by_enumeration(circuit, row, np.flatnonzero(row < 0).tolist()).values())
        assert log_prob == pytest.approx(best, abs=1e-9)


def test_only_trees_are_trees() -> None:
    rows = np.random.default_rng(0).integers(0, 2, (100, 6))
    assert state_tree(mm.learn.hclt(rows, latent=3, epochs=1)) is not None
    assert state_tree(mm.learn.trees(rows, k=3, iterations=2)) is None
    assert state_tree(mm.learn.strudel(rows, iterations=20)) is None
