"""Chow-Liu trees and their circuits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import margmap as mm
from margmap.learn import chow_liu
from margmap.learn.chow_liu_tree import learn_tree, mutual_information, root_at_centre
from margmap.learn.table import read_tables
from rows_for_learning import JUICE_ROWS, closed_form, naive_information, tangled


def juice_parameters(rows: np.ndarray, alpha: float) -> int:
    """The number of parameters as Juice counts them: it also has a sum, with one child, over every pair of siblings."""
    circuit = chow_liu(rows, alpha=alpha)
    tree = learn_tree(read_tables(rows)[0], alpha)
    leaf = np.isin(circuit.kind, (1, 2))
    own = int((np.repeat(circuit.kind, np.diff(circuit.start)) == 6).sum() + np.diff(circuit.param_start)[leaf].sum())
    return own + 2 * sum(max(0, len(below) - 1) for below in tree.children())


@pytest.mark.parametrize("join", ["balanced", "right"])
def test_the_regression_values_of_the_julia_package(join: str) -> None:
    circuit = chow_liu(JUICE_ROWS, alpha=0.0, pseudocount=0.0, join=join)
    assert mm.log_likelihood(circuit, JUICE_ROWS).mean() == pytest.approx(-1.86368, abs=1e-5)
    assert juice_parameters(JUICE_ROWS, 0.0) == 48


def test_the_regression_values_on_nltcs(shared) -> None:
    rows = mm.learn.load_dataset("nltcs", shared / "debd").train
    assert juice_parameters(rows, 1.0) == 74
    root = int(learn_tree(read_tables(rows)[0]).order[0])
    zeros = int((rows[:, root] == 0).sum())
    assert (zeros + 2) / (len(rows) + 4) == pytest.approx(0.7828236021007106)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_mutual_information(alpha: float) -> None:
    rows = tangled(40, 5, 3, seed=2)
    cardinality = np.array([3, 3, 3, 3, 4])
    found = mutual_information(rows, cardinality, alpha)
    for i, j in itertools.combinations(range(5), 2):
        expected = naive_information(rows[:, i], rows[:, j], cardinality[i], cardinality[j], alpha)
        assert found[i, j] == found[j, i] == pytest.approx(expected, abs=1e-12)


def test_the_tree_is_a_maximum_spanning_tree() -> None:
    rows = tangled(60, 5, seed=3)
    table, _ = read_tables(rows)
    weight = mutual_information(table.codes, table.cardinality)
    tree = learn_tree(table)
    got = sum(weight[v, p] for v, p in enumerate(tree.parent) if p >= 0)
    pairs = list(itertools.combinations(range(5), 2))

    def connected(edges: tuple[tuple[int, int], ...]) -> bool:
        group = list(range(5))
        for a, b in edges:
            group = [group[a] if g == group[b] else g for g in group]
        return len(set(group)) == 1

    best = max(sum(weight[e] for e in edges) for edges in itertools.combinations(pairs, 4) if connected(edges))
    assert got == pytest.approx(best)


def test_the_root_is_the_centre() -> None:
    chain = root_at_centre([0, 0, 1, 2, 3])
    assert chain.order[0] == 2
    assert chain.parent.tolist() == [1, 2, -1, 2, 3]
    assert root_at_centre([0]).order.tolist() == [0]
    assert root_at_centre([0, 0]).order[0] == 0
    star = root_at_centre([0, 0, 0, 0])
    assert star.order[0] == 0
    assert star.children() == [[1, 2, 3], [], [], []]


@pytest.mark.parametrize("join", ["balanced", "right"])
@pytest.mark.parametrize("values", [2, 3])
def test_the_circuit_has_all_properties_and_closed_form_parameters(join: str, values: int) -> None:
    rows = tangled(50, 7, values, seed=1)
    circuit = chow_liu(rows, pseudocount=0.7, join=join)
    assert circuit.properties[:5] == (True,) * 5
    assert mm.log_marginal(circuit) == pytest.approx(0, abs=1e-12)
    weights, params = closed_form(circuit, rows, 0.7)
    below_sum = np.repeat(circuit.kind, np.diff(circuit.start)) == 6
    assert np.exp(circuit.log_weight[below_sum]) == pytest.approx(weights[below_sum])
    leaf = np.repeat(np.isin(circuit.kind, (1, 2)), np.diff(circuit.param_start))
    assert np.exp(circuit.param[leaf]) == pytest.approx(params[leaf])


def test_the_likelihood_is_that_of_the_tree() -> None:
    """Without smoothing: minus all entropies plus the mutual information on the edges."""
    rows = tangled(80, 6, seed=5)
    table, _ = read_tables(rows)
    tree = learn_tree(table, 0.0)
    information = mutual_information(table.codes, table.cardinality, 0.0)
    share = rows.mean(axis=0)
    entropy = -(share * np.log(share) + (1 - share) * np.log(1 - share)).sum()
    edges = sum(information[v, p] for v, p in enumerate(tree.parent) if p >= 0)
    circuit = chow_liu(rows, alpha=0.0, pseudocount=0.0)
    assert mm.log_likelihood(circuit, rows).mean() == pytest.approx(edges - entropy)


def test_one_column_one_row_and_constant_columns() -> None:
    one = chow_liu([[1]])
    assert np.exp(mm.log_likelihood(one, [[1], [0]])) == pytest.approx([0.75, 0.25])
    row = chow_liu([[1, 0, 1]])
    assert row.properties[:5] == (True,) * 5
    assert mm.log_likelihood(row, [[1, 0, 1]])[0] == pytest.approx(3 * np.log(0.75))
    constant = chow_liu([[0, 1], [0, 0], [0, 1]], pseudocount=0.0)
    assert np.exp(mm.log_likelihood(constant, [[0, 1], [0, 0], [1, 0]])) == pytest.approx([2 / 3, 1 / 3, 0])


def test_a_long_chain_does_not_recurse() -> None:
    rng = np.random.default_rng(0)
    rows = (np.cumsum(rng.random((60, 1300)) < 0.02, axis=1) % 2).astype(np.uint8)
    circuit = chow_liu(rows)
    assert len(circuit.variables) == 1300
    assert circuit.properties.smooth


def test_the_vtree_is_that_of_the_tree() -> None:
    rows = tangled(50, 6, seed=1)
    circuit = chow_liu(rows)
    vtree = mm.vtree_of(circuit)
    assert set(vtree.variables) == {1, 2, 3, 4, 5, 6}
    assert circuit.names == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("option", [{"alpha": -1.0}, {"pseudocount": float("nan")}, {"join": "left"}])
def test_bad_options(option: dict[str, object]) -> None:
    with pytest.raises(mm.DataError, match=next(iter(option))):
        chow_liu([[0, 1]], **option)
