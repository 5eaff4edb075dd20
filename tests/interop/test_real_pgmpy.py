"""Models of pgmpy itself: its four kinds of discrete models, there and back."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import howto
import margmap as mm
from real import agree, check_marginal_map, states_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    models = pytest.importorskip("pgmpy.models", reason="pgmpy is not installed")
    from pgmpy.factors.discrete import DiscreteFactor, TabularCPD
    from pgmpy.inference import VariableElimination
pytestmark = pytest.mark.filterwarnings("ignore")


def bayesian(seed):
    """A random network of five variables of two and three states."""
    rng = np.random.default_rng(seed)
    size = {name: int(rng.integers(2, 4)) for name in "abcde"}
    states = {name: [f"{name}{i}" for i in range(n)] for name, n in size.items()}
    model = models.DiscreteBayesianNetwork()
    model.add_nodes_from(size)
    for i, name in enumerate(size):
        # pgmpy makes no junction tree of a network that falls apart.
        parents = [parent for j, parent in enumerate(list(size)[:i]) if j == i - 1 or rng.random() < 0.4]
        model.add_edges_from((parent, name) for parent in parents)
        table = rng.dirichlet([1.0] * size[name], size=math.prod(size[p] for p in parents)).T
        own = {v: states[v] for v in (name, *parents)}
        model.add_cpds(TabularCPD(name, size[name], table, parents or None, [size[p] for p in parents] or None, own))
    assert model.check_model()
    return model


def log_joint(model, network):
    """Log-likelihoods of rows, from the product of all factors that pgmpy multiplies."""
    factors = [cpd.to_factor() for cpd in model.get_cpds()] if hasattr(model, "get_cpds") else list(model.get_factors())
    whole = factors[0].copy()
    for factor in factors[1:]:
        whole = whole * factor
    column = {v.name: i for i, v in enumerate(network.variables)}

    def value(rows):
        with np.errstate(divide="ignore"):
            return np.log([whole.values[tuple(row[column[v]] for v in whole.variables)] for row in np.asarray(rows)])

    return value


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["bayes", "markov", "factor graph", "junction tree"])
def test_likelihoods_and_answers(kind, seed):
    bayes = bayesian(seed)
    model = {
        "bayes": lambda: bayes,
        "markov": bayes.to_markov_model,
        "factor graph": lambda: bayes.to_markov_model().to_factor_graph(),
        "junction tree": bayes.to_junction_tree,
    }[kind]()
    network = mm.as_model(model)
    assert network.kind == ("bayes" if kind == "bayes" else "markov")
    assert set(network.names) == set("abcde")
    circuit = mm.compile(network)
    rows = states_of(network)
    agree(circuit, rows, log_joint(bayes, network)(rows), 1e-9)
    without_states = [mm.Variable(v.name, v.cardinality) for v in network.variables]
    plain = mm.compile(mm.Network(without_states, network.factors, network.kind))
    check_marginal_map(plain, log_joint(bayes, network), 1e-9)
    query, evidence = ["a", "d"], {"c": "c1"}
    theirs = VariableElimination(bayes).map_query(query, evidence=evidence, show_progress=False)
    ours = mm.marginal_map(model, query, evidence)
    assert mm.log_marginal(circuit, {**evidence, **theirs}) == pytest.approx(ours.log_prob, abs=1e-9)


def test_a_factor_graph_made_by_hand():
    graph = models.FactorGraph()
    graph.add_nodes_from(["x", "y"])
    one = DiscreteFactor(["x", "y"], [2, 3], [1, 2, 3, 4, 5, 6.0])
    two = DiscreteFactor(["y"], [3], [0.5, 0.0, 2.0])
    graph.add_factors(one, two)
    graph.add_nodes_from([one, two])
    graph.add_edges_from([("x", one), ("y", one), ("y", two)])
    circuit = mm.compile(mm.as_model(graph))
    for x in range(2):
        for y in range(3):
            expected = one.values[x, y] * two.values[y]
            assert math.exp(mm.log_marginal(circuit, {"x": x, "y": y})) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_there_and_back(seed):
    network = mm.as_model(bayesian(seed))
    model = mm.to_pgmpy(network)
    assert isinstance(model, models.DiscreteBayesianNetwork)
    assert model.check_model()
    again = mm.as_model(model)
    assert again.variables == network.variables
    for mine, other in zip(network.factors, again.factors, strict=True):
        assert mine.scope == other.scope
        np.testing.assert_allclose(mine.table, other.table, rtol=1e-15)


def test_markov_networks_there_and_back():
    rng = np.random.default_rng(0)
    variables = [mm.Variable("a"), mm.Variable(7, 3), mm.Variable("c", 2, ("yes", "no")), mm.Variable("free", 4)]
    factors = [([0, 1], rng.random((2, 3))), ([], 2.5), ([2, 1, 0], rng.random((2, 3, 2)))]
    network = mm.Network(variables, factors, "markov")
    model = mm.to_pgmpy(network)
    assert isinstance(model, models.DiscreteMarkovNetwork)
    assert model.check_model()
    again = mm.as_model(model)
    assert again.variables == network.variables
    rows = states_of(network)
    agree(mm.compile(again), rows, mm.log_likelihood(mm.compile(network), rows), 1e-9)


def test_what_cannot_be_read():
    for model, message in (
        (models.DynamicBayesianNetwork(), "DynamicBayesianNetwork of pgmpy has no end"),
        (models.LinearGaussianBayesianNetwork([("a", "b")]), "no table"),
        (models.MarkovChain(["a"], [2]), "MarkovChain is no Bayesian or Markov network"),
        (models.DiscreteBayesianNetwork([("a", "b")]), "variable 'a' has no table .* fit its parameters first"),
    ):
        with pytest.raises(mm.MargmapError, match=message):
            mm.as_model(model)


def test_howto(tmp_path):
    howto.run("pgmpy", tmp_path)
