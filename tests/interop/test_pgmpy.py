"""Models of pgmpy; skipped where it is not installed."""

import warnings

import numpy as np
import pytest

import margmap as mm


class Table:
    """What a table of pgmpy looks like from outside."""

    def __init__(self, variables, values, state_names=None):
        self.variables, self.values, self.state_names = variables, np.array(values), state_names or {}


class Model:
    def __init__(self, nodes, tables):
        self._nodes, self._tables = nodes, tables

    def nodes(self):
        return self._nodes


class Bayes(Model):
    def get_cpds(self):
        return self._tables


class Markov(Model):
    def get_factors(self):
        return self._tables


def test_the_child_comes_first_in_pgmpy():
    states = {"a": ["t", "f"], "b": ["lo", "mid", "hi"]}
    tables = [Table(["a"], [0.25, 0.75], states), Table(["b", "a"], [[0.1, 0.2], [0.3, 0.3], [0.6, 0.5]], states)]
    network = mm.from_pgmpy(Bayes(["b", "a"], tables))
    assert network.names == ("b", "a")
    assert network.variables[0].states == ("lo", "mid", "hi")
    assert network.parents("b") == ("a",)
    np.testing.assert_allclose(network.factors[0].table, [[0.1, 0.3, 0.6], [0.2, 0.3, 0.5]])


def test_markov_models_and_models_that_cannot_be_read():
    network = mm.from_pgmpy(Markov([0, 1], [Table([0, 1], [[1.0, 2.0], [3.0, 4.0]])]))
    assert network.kind == "markov"
    assert network.variables[0].states == ()
    with pytest.raises(mm.StructureError, match="'b' has no table"):
        mm.from_pgmpy(Bayes(["a", "b"], [Table(["a"], [0.5, 0.5])]))
    with pytest.raises(mm.StructureError, match="no Bayesian or Markov network"):
        mm.from_pgmpy("a model")
    with pytest.raises(mm.StructureError, match="is no table"):
        mm.from_pgmpy(Bayes(["a"], ["gaussian"]))
    two = [Table(["a"], [0.5, 0.5], {"a": ["x", "y"]}), Table(["b", "a"], [[1, 1]], {"a": ["y", "x"]})]
    with pytest.raises(mm.StructureError, match="differently"):
        mm.from_pgmpy(Bayes(["a", "b"], two))


@pytest.fixture
def pgmpy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("pgmpy")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["asia", "cancer", "survey", "sachs", "child", "alarm", "insurance"])
def test_marginals_and_map_are_those_of_pgmpy(pgmpy, shared, name):
    import gzip

    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    path = shared / "bif" / f"{name}.bif.gz"
    model = BIFReader(string=gzip.decompress(path.read_bytes()).decode()).get_model()
    network, read = mm.from_pgmpy(model), mm.load_network(path)
    assert set(network.names) == set(read.names)
    circuit = mm.compile(network)
    engine = VariableElimination(model)
    rng = np.random.default_rng(0)
    row = dict(zip(circuit.names, mm.sample(circuit, 1, seed=2)[0].tolist(), strict=True))
    order = rng.permutation(list(circuit.names)).tolist()
    query, seen = order[:3], order[3 : 3 + max(1, len(order) // 10)]
    states = {v.name: v.states for v in network.variables}
    evidence = {v: states[v][row[v]] for v in seen}
    posterior = mm.posteriors(circuit, evidence)
    for v in query:
        found = engine.query([v], evidence=evidence, show_progress=False)
        by_state = dict(zip(found.state_names[v], found.values, strict=True))
        assert posterior[v] == pytest.approx({str(state): p for state, p in by_state.items()}, rel=1e-7, abs=1e-10)
    best = engine.map_query(query, evidence=evidence, show_progress=False)
    ours = mm.marginal_map(read, query, evidence)
    theirs = mm.log_marginal(circuit, {**evidence, **{v: best[v] for v in query}})
    assert ours.log_prob == pytest.approx(theirs, abs=1e-9)
