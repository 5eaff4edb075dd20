"""The random circuits to measure on: each is a distribution, and answers about small ones equal enumeration."""

import math

import numpy as np
import pytest

import margmap as mm
import naive
from margmap.bench import generators

FAMILIES = {
    "latent": (generators.latent_tree, {"variables": 6, "states": 9}),
    "flat": (generators.flat_latent_tree, {"variables": 6, "states": 9}),
    "crossing": (generators.partition_tree, {"variables": 7, "levels": 2}),
    "coins": (generators.coin_mixture, {"variables": 6, "components": 5}),
    "learned": (generators.learned_tree, {"variables": 7, "levels": 2}),
    "ensemble": (generators.tree_ensemble, {"variables": 6, "trees": 3}),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", range(3))
def test_answers_equal_enumeration(family, seed):
    make, options = FAMILIES[family]
    circuit = make(seed, **options)
    assert len(circuit.variables) == options["variables"]
    assert mm.log_marginal(circuit, {}) == pytest.approx(0, abs=1e-9)
    rng = np.random.default_rng(seed)
    order = rng.permutation(options["variables"]).tolist()
    query, given = order[:3], {order[3]: int(rng.integers(2))}
    r = mm.marginal_map(circuit, query, given)
    best = max(
        naive.probability(circuit, {**given, **dict(zip(query, state, strict=True))})
        for state in np.ndindex(*(2,) * len(query))
    )
    assert r.status == "optimal"
    assert r.log_prob == pytest.approx(math.log(best), abs=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_makes_the_same_circuit(family):
    make, options = FAMILIES[family]
    one, two, other = make(1, **options), make(1, **options), make(2, **options)
    assert np.array_equal(one.log_weight, two.log_weight)
    assert np.array_equal(one.param, two.param)
    assert not (np.array_equal(one.log_weight, other.log_weight) and np.array_equal(one.param, other.param))


def test_trees_of_an_ensemble_differ():
    """Each tree by itself has scopes that nest; together they cross."""
    single = generators.tree_ensemble(0, variables=12, trees=1)
    together = generators.tree_ensemble(0, variables=12, trees=6)
    assert generators_cross(together)
    assert not generators_cross(single)


def generators_cross(circuit):
    from margmap.circuit.scopes import scope_tree

    return scope_tree(circuit.scopes.bits) is None
