"""Mixtures of one structure."""

from __future__ import annotations

import numpy as np
import pytest

import margmap as mm
from margmap.learn import chow_liu, learn_mixture, mixture, strudel
from margmap.learn.mixture_em import clusters
from rows_for_learning import tangled


@pytest.mark.parametrize("values", [2, 3])
def test_em_improves_and_the_circuit_is_what_em_saw(values: int) -> None:
    rows = tangled(900, 8, values, seed=2)
    train, valid = rows[:700], rows[700:]
    structure = strudel(train, valid, iterations=10)
    found = learn_mixture(train, valid, 4, structure=structure, iterations=30)
    likelihoods = [r.train for r in found.history]
    assert len(likelihoods) > 3
    assert likelihoods[-1] > likelihoods[0]
    assert found.weights.sum() == pytest.approx(1)
    circuit = found.circuit
    assert circuit.properties.smooth
    assert circuit.properties.structured
    assert circuit.properties.normalised
    assert not circuit.properties.deterministic
    assert mm.log_marginal(circuit) == pytest.approx(0, abs=1e-9)
    best = max(r.valid for r in found.history)
    assert mm.log_likelihood(circuit, valid).mean() == pytest.approx(best)
    assert best > mm.log_likelihood(chow_liu(train), valid).mean()


def test_likelihood_never_falls_without_a_prior() -> None:
    rows = tangled(500, 6, seed=3)
    found = learn_mixture(rows, components=3, strength=0.0, pseudocount=0.0, iterations=40, tolerance=0.0)
    gains = np.diff([r.train for r in found.history])
    assert (gains > -1e-9).all()
    assert mm.log_likelihood(found.circuit, rows).mean() == pytest.approx(found.history[-1].train)


def test_components_start_apart_and_repeat_by_seed() -> None:
    rows = tangled(300, 6, seed=4)
    one, two = (learn_mixture(rows, components=3, seed=1, iterations=3) for _ in range(2))
    assert np.array_equal(one.circuit.log_weight, two.circuit.log_weight)
    assert np.unique(one.weights.round(6)).size > 1


def testclusters_find_what_is_apart() -> None:
    rows = np.array([[0, 0, 0, 0]] * 10 + [[1, 1, 1, 1]] * 5 + [[1, 1, 1, 0]] * 3, dtype=np.uint8)
    labels = clusters(rows, np.full(4, 2), 2, np.random.default_rng(0))
    assert len(set(labels[:10])) == len(set(labels[10:])) == 1
    assert labels[0] != labels[-1]


def test_one_component_is_the_circuit_itself() -> None:
    rows = tangled(100, 5, seed=5)
    alone = mixture(rows, components=1)
    assert alone.num_edges == chow_liu(rows).num_edges
    assert alone.properties.deterministic


def test_more_components_than_rows_and_bad_options() -> None:
    circuit = mixture([[0, 1], [1, 0]], components=4)
    assert mm.log_marginal(circuit) == pytest.approx(0, abs=1e-9)
    with pytest.raises(mm.DataError, match="at least 1 component"):
        mixture([[0, 1]], components=0)


def test_a_mixture_can_be_saved_and_solved(tmp_path) -> None:
    rows = tangled(200, 5, seed=6)
    circuit = mixture(rows, components=2, iterations=5)
    mm.save(circuit, tmp_path / "mixture.jpc")
    loaded = mm.load(tmp_path / "mixture.jpc", "jpc")
    assert mm.log_likelihood(loaded, rows) == pytest.approx(mm.log_likelihood(circuit, rows))
    assert mm.marginal_map(circuit, query=[1, 2], evidence={3: 1}).status == "optimal"
