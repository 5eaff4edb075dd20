"""Hidden Chow-Liu trees: the passes against the circuit and against enumeration, EM, missing cells, kinds of leaves."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import margmap as mm
import naive
from margmap.errors import DataError
from margmap.learn import hclt, latent_tree, learn_hclt
from margmap.learn.cells import pair_counts, read_cells
from margmap.learn.latent_passes import level_tree
from margmap.learn.latent_tree import LatentTree, learn_cells_tree
from rows_for_learning import MIXED, holes, mixed, tangled


@pytest.mark.parametrize("values", [2, 3])
@pytest.mark.parametrize("batch", [32, None])
def test_the_circuit_is_what_em_saw(values: int, batch: int | None) -> None:
    rows = holes(tangled(300, 7, values, seed=values), 0.2)
    found = learn_hclt(rows[:200], rows[200:], latent=5, epochs=4, batch=batch)
    circuit = found.circuit
    properties = circuit.properties
    assert properties.smooth
    assert properties.decomposable
    assert properties.structured
    assert properties.normalised
    assert mm.log_likelihood(circuit, rows[200:]).mean() == pytest.approx(found.best.valid, rel=1e-5)
    assert found.best.valid == max(now.valid for now in found.history)
    assert found.reason == "iterations"


@pytest.mark.parametrize("seed", range(6))
def test_em_on_all_rows_never_lowers_their_likelihood(seed: int) -> None:
    rows = holes(tangled(150, 6, 2 + seed % 2, seed=seed), 0.3 * (seed % 3), seed)
    found = learn_hclt(rows, latent=4, epochs=40, batch=None, pseudocount=0.0, seed=seed)
    likelihoods = [now.train for now in found.history]
    assert len(likelihoods) == 41
    assert min(np.diff(likelihoods)) > -1e-10
    assert likelihoods[-1] > likelihoods[0] + 0.05


def test_em_on_all_rows_never_lowers_the_likelihood_of_mixed_columns() -> None:
    rows = mixed(200)
    rows[np.random.default_rng(1).random(rows.shape) < 0.2] = np.nan
    found = learn_hclt(rows, latent=3, epochs=30, batch=None, pseudocount=0.0, leaves=MIXED)
    likelihoods = [now.train for now in found.history]
    assert min(np.diff(likelihoods)) > -1e-9
    last = mm.log_likelihood(found.circuit, rows).mean()
    assert last >= likelihoods[-1] - 1e-9


def test_one_step_of_em_is_that_of_enumeration() -> None:
    """Expected counts over all states of the latent variables, by plain loops, give the parameters after one step."""
    rows = holes(tangled(12, 3, 2, seed=4), 0.25)
    cells, _, kinds = read_cells(rows)
    tree = level_tree(learn_cells_tree(cells, 1.0).parent)
    model = LatentTree(cells, tree, kinds, 0.0)
    latent = 2
    p = model.begin(latent, np.random.default_rng(0), np.float64)
    places = range(tree.size)
    root, pair, leaf = np.zeros(latent), np.zeros(p.pair.shape), np.zeros((tree.size, 2, latent))
    total = 0.0
    for row in rows:
        weight = {}
        for states in itertools.product(range(latent), repeat=tree.size):
            value = p.root[states[0]]
            for i in places[1:]:
                value *= p.pair[i, states[tree.parent[i]], states[i]]
            for i in places:
                x = row[tree.column[i]]
                value *= 1.0 if x < 0 else p.leaf[i, x, states[i]]
            weight[states] = value
        mass = sum(weight.values())
        total += math.log(mass)
        for states, value in weight.items():
            root[states[0]] += value / mass
            for i in places[1:]:
                pair[i, states[tree.parent[i]], states[i]] += value / mass
            for i in places:
                if row[tree.column[i]] >= 0:
                    leaf[i, row[tree.column[i]], states[i]] += value / mass
    before = learn_hclt(rows, latent=latent, epochs=0, batch=None, pseudocount=0.0)
    after = learn_hclt(rows, latent=latent, epochs=1, batch=None, pseudocount=0.0)
    assert before.last.train == pytest.approx(total / len(rows), rel=1e-12)
    p.root = root / root.sum()
    p.pair[1:] = pair[1:] / pair[1:].sum(axis=2, keepdims=True)
    p.leaf[:, :2] = leaf / leaf.sum(axis=1, keepdims=True)
    expected = model.circuit(p)
    np.testing.assert_allclose(after.circuit.log_weight, expected.log_weight, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(after.circuit.param, expected.param, rtol=1e-9, atol=1e-9)


def test_pairs_are_counted_where_both_cells_are_present() -> None:
    rows = holes(tangled(200, 5, 3, seed=1), 0.4)
    cardinality = np.full(5, 3)
    joint = pair_counts(rows.astype(np.int32), cardinality)
    for i, j, x, y in itertools.product(range(5), range(5), range(3), range(3)):
        assert joint[3 * i + x, 3 * j + y] == ((rows[:, i] == x) & (rows[:, j] == y)).sum()


def test_the_tree_is_found_in_spite_of_missing_cells() -> None:
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 2, (4000, 1))
    for _ in range(5):  # a chain
        flip = rng.random((4000, 1)) < 0.1
        rows = np.hstack([rows, rows[:, -1:] ^ flip])
    cells, _, _ = read_cells(holes(rows, 0.3))
    parent = learn_cells_tree(cells, 1.0).parent.tolist()
    assert {frozenset((v, p)) for v, p in enumerate(parent) if p >= 0} == {frozenset((i, i + 1)) for i in range(5)}


def test_the_same_seed_gives_the_same_circuit() -> None:
    rows = holes(tangled(300, 6, seed=5), 0.1)
    one, two = (hclt(rows, latent=4, epochs=3, seed=7) for _ in range(2))
    other = hclt(rows, latent=4, epochs=3, seed=8)
    assert np.array_equal(one.log_weight, two.log_weight)
    assert np.array_equal(one.param, two.param)
    assert not np.array_equal(one.log_weight, other.log_weight)


def test_leaves_of_all_kinds() -> None:
    rows = mixed(600)
    found = learn_hclt(rows[:500], rows[500:], latent=4, epochs=20, leaves=MIXED)
    circuit = found.circuit
    assert [v.cardinality for v in circuit.variables] == [3, 7, 0, 2]
    kinds = {int(circuit.var[n]): int(circuit.kind[n]) for n in range(circuit.num_nodes) if circuit.var[n] >= 0}
    assert kinds == {0: naive.CATEGORICAL, 1: naive.BINOMIAL, 2: naive.GAUSSIAN, 3: naive.CATEGORICAL}
    assert mm.log_likelihood(circuit, rows[500:]).mean() == pytest.approx(found.best.valid, rel=1e-5)
    assert mm.marginal_map(circuit, [1, 2], {3: 50.0}).state == {1: 1, 2: 5}
    assert mm.marginal_map(circuit, [1, 2], {3: -10.0}).state == {1: 0, 2: 1}


def test_it_learns_more_than_a_tree_of_the_columns() -> None:
    rows = tangled(2200, 8, seed=6)
    train, valid, test = rows[:1500], rows[1500:1800], rows[1800:]
    tree = mm.log_likelihood(mm.learn.chow_liu(train), test).mean()
    found = learn_hclt(train, valid, latent=16, epochs=30, restarts=2)
    assert mm.log_likelihood(found.circuit, test).mean() > tree + 0.1


def test_marginal_map_on_what_was_learned_is_that_of_enumeration() -> None:
    rows = holes(tangled(200, 6, seed=8), 0.2)
    circuit = hclt(rows, latent=3, epochs=5)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        order = rng.permutation(6)
        query, evidence = sorted(order[:3].tolist()), {int(c): int(rng.integers(2)) for c in order[3:5]}
        found = mm.marginal_map(circuit, [c + 1 for c in query], {c + 1: x for c, x in evidence.items()})
        best = -math.inf
        for states in itertools.product(range(2), repeat=3):
            row = np.full(6, -1)
            row[query] = states
            for c, x in evidence.items():
                row[c] = x
            best = max(best, float(mm.log_likelihood(circuit, row[None])[0]))
        assert found.status == "optimal"
        assert found.log_prob == pytest.approx(best, abs=1e-9)


def test_limits_and_validation_end_a_run() -> None:
    rows = tangled(400, 6, seed=9)
    stopped = learn_hclt(rows, latent=4, epochs=1000, time_limit=0.0)
    assert stopped.reason == "time_limit"
    assert stopped.last.iteration == 1
    noise = np.random.default_rng(0).integers(0, 2, (60, 6))
    late = learn_hclt(noise[:40], noise[40:], latent=16, epochs=200, patience=3, pseudocount=0.0)
    assert late.reason == "patience"
    assert late.last.iteration - late.best.iteration == 3
    seen: list[int] = []

    def interrupt(now: mm.learn.Growth) -> None:
        seen.append(now.iteration)
        if now.iteration == 2:
            raise KeyboardInterrupt

    ended = learn_hclt(rows, latent=4, epochs=50, on_progress=interrupt)
    assert ended.reason == "interrupted"
    assert seen == [1, 2]


@pytest.mark.parametrize("option", [{"latent": 0}, {"epochs": -1}, {"batch": 0}, {"pseudocount": -1}, {"restarts": 0}])
def test_options_that_mean_nothing(option: dict[str, int]) -> None:
    with pytest.raises(DataError, match=next(iter(option))):
        hclt([[0, 1], [1, 0]], **option)


def test_one_column_and_one_state() -> None:
    assert hclt([[0], [1], [1]], latent=3, epochs=3, batch=None).properties.normalised
    alone = hclt([[0, 1], [1, 0], [1, 1]], latent=1, epochs=3, batch=None, pseudocount=0.0)
    assert np.exp(mm.log_likelihood(alone, [[1, 1]])[0]) == pytest.approx(4 / 9)


def test_no_batch_is_larger_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    step = latent_tree._Run.step

    def noted(self: Any, chosen: Any, size: float) -> float:
        sizes.append(chosen.size)
        return step(self, chosen, size)

    monkeypatch.setattr(latent_tree._Run, "step", noted)
    rows = tangled(130, 4, seed=0)
    for batch, expected in ((64, [13] * 10), (12, [12] * 9 + [11] * 2), (None, [130])):
        sizes.clear()
        learn_hclt(rows, latent=2, epochs=1, batch=batch)
        assert sizes == expected


def test_a_limit_of_time_that_is_far_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step shrinks with the time that is left, but not for what reading the rows and learning the tree took."""
    rows = tangled(200, 5, seed=1)
    for seconds, same in ((4.0, True), (50.0, False)):
        monkeypatch.setattr(latent_tree._Run, "seconds", lambda _, seconds=seconds: seconds)
        one, two = (learn_hclt(rows, latent=3, epochs=3, time_limit=limit).circuit for limit in (None, 100.0))
        assert np.array_equal(one.log_weight, two.log_weight) == same
