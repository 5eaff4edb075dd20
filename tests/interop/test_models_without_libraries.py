"""Importers without the libraries: small objects in the shape of their classes.

The real libraries are compared in the other files of this folder, where they are installed.
"""

from __future__ import annotations

import math
import sys
from itertools import product
from types import ModuleType

import numpy as np
import pytest

import margmap as mm


def of_package(package: str):
    """A decorator: the class is as if it came from this package."""

    def change(cls):
        cls.__module__ = f"{package}.somewhere"
        return cls

    return change


def probability(circuit, state) -> float:
    return math.exp(mm.log_likelihood(circuit, [state])[0])


# PySDD


@of_package("pysdd")
class SddNode:
    """A node in the shape of PySDD's: a literal, a constant, or a list of pairs."""

    count = 0

    def __init__(self, what, manager):
        SddNode.count += 1
        self.id, self._what, self.manager, self.garbage_collected = SddNode.count, what, manager, False

    def is_decision(self):
        return isinstance(self._what, list)

    def is_literal(self):
        return isinstance(self._what, int) and not isinstance(self._what, bool)

    def is_true(self):
        return self._what is True

    @property
    def literal(self):
        return self._what

    def elements(self):
        return self._what


class Manager:
    def __init__(self, n):
        self.n = n

    def var_count(self):
        return self.n


@of_package("pysdd")
class WmcManager:
    def __init__(self, node, weights, logs):
        self.node, self._weights = node, weights
        self.zero_weight = -math.inf if logs else 0.0

    def literal_weight(self, literal):
        assert isinstance(literal, int)
        return self._weights[literal]


def xor(manager):
    """x1 differs from x2, and x3 is free."""
    x, y = ([SddNode(s * v, manager) for s in (1, -1)] for v in (1, 2))
    return SddNode([(x[0], y[1]), (x[1], y[0])], manager)


def test_sdd():
    node = xor(Manager(3))
    circuit = mm.as_model(node)
    assert circuit.names == (1, 2, 3)
    assert math.exp(mm.log_marginal(circuit, {})) == pytest.approx(4)
    circuit = mm.from_sdd(node, {1: 0.25, "y": (2.0, 3.0)}, ["x", "y", "z"])
    assert circuit.names == ("x", "y", "z")
    assert probability(circuit, (1, 0, 1)) == pytest.approx(0.25 * 2)
    assert probability(circuit, (0, 1, 0)) == pytest.approx(0.75 * 3)
    assert probability(circuit, (1, 1, 0)) == 0
    assert mm.marginal_map(node, [1]).log_prob == pytest.approx(math.log(2))


@pytest.mark.parametrize("logs", [False, True])
def test_sdd_with_the_weights_of_a_wmc_manager(logs):
    weights = {1: 0.5, -1: 2.0, 2: 0.0, -2: 3.0, 3: 1.0, -3: 0.25}
    given = {k: (math.log(w) if w else -math.inf) if logs else w for k, w in weights.items()}
    circuit = mm.as_model(WmcManager(xor(Manager(3)), given, logs))
    assert probability(circuit, (1, 0, 0)) == pytest.approx(0.5 * 3 * 0.25)
    assert probability(circuit, (0, 1, 0)) == 0
    with pytest.raises(mm.ModelError, match="has weights of its own"):
        mm.from_sdd(WmcManager(xor(Manager(3)), given, logs), {1: 0.5})


def test_sdd_that_cannot_be_read():
    manager = Manager(2)
    with pytest.raises(mm.StructureError, match="no model"):
        mm.from_sdd(SddNode(False, manager))
    assert math.exp(mm.log_marginal(mm.from_sdd(SddNode(True, manager)), {})) == pytest.approx(4)
    node = xor(manager)
    node.garbage_collected = True
    with pytest.raises(mm.ModelError, match="garbage collected"):
        mm.from_sdd(node)
    with pytest.raises(mm.ModelError, match=r"Manager cannot be read: give an SddNode or a WmcManager of PySDD"):
        mm.from_sdd(manager)
    with pytest.raises(mm.StructureError, match="literal 1 has weight -1"):
        mm.from_sdd(xor(manager), {1: -1})


# ProbLog


class Node:
    def __init__(self, children=()):
        self.children = children


@of_package("problog")
class DDNNF:
    """A compiled program: nodes, weights, names, evidence."""

    LABEL_NAMED = "named"

    def __init__(self, nodes, weights, names, evidence=()):
        self._nodes, self._weights, self._names, self._evidence = nodes, weights, names, evidence

    def __iter__(self):
        for i, (kind, children) in enumerate(self._nodes, 1):
            yield i, Node(children), kind

    def extract_weights(self, semiring):
        return {k: (1.0, 1.0) if w is True else w for k, w in self._weights.items()}

    def get_weights(self):
        return self._weights

    def get_names_with_label(self):
        return self._names

    def evidence(self):
        return list(self._evidence)


@pytest.fixture
def problog(monkeypatch):
    """As much of ProbLog as reading a compiled program takes."""
    package, evaluator = ModuleType("problog"), ModuleType("problog.evaluator")
    evaluator.SemiringProbability = object
    monkeypatch.setitem(sys.modules, "problog", package)
    monkeypatch.setitem(sys.modules, "problog.evaluator", evaluator)


#  1: a, 2: b, 3: c, which is true if a and b are; 4: nothing has a name here, it is as a.
AND = [
    ("atom", ()),
    ("atom", ()),
    ("atom", ()),
    ("atom", ()),
    ("conj", (1, 2, 3, 4)),
    ("conj", (1, -2, -3, 4)),
    ("disj", (2, -2)),
    ("conj", (-1, -3, -4, 7)),
    ("disj", (5, 6, 8)),
]
WEIGHTS = {1: (0.25, 0.75), 2: (0.5, 0.5), 3: True, 4: True}
NAMES = [("a", 1, "named"), ("b", 2, "named"), ("extra", 4, "named"), ("c", 3, "query"), ("also", 3, "query")]


def test_problog(problog):
    names = [*NAMES, ("\\+a", -1, "query"), ("t", 0, "query"), ("never", None, "query")]
    circuit = mm.as_model(DDNNF(AND, WEIGHTS, names))
    assert sorted(circuit.names) == ["a", "also", "b", "c", "never", "t"]
    total = 0.0
    for a, b in product((0, 1), repeat=2):
        state = {"a": a, "b": b, "c": a * b, "also": a * b, "t": 1, "never": 0}
        found = math.exp(mm.log_marginal(circuit, state))
        assert found == pytest.approx((0.25, 0.75)[1 - a] * 0.5)
        total += found
    assert math.exp(mm.log_marginal(circuit, {})) == pytest.approx(total) == pytest.approx(1)


def test_problog_evidence_is_fixed(problog):
    model = DDNNF(AND, WEIGHTS, NAMES, [("c", -3)])
    assert math.exp(mm.log_marginal(model, {})) == pytest.approx(1 - 0.125)
    assert math.exp(mm.log_marginal(model, {"a": 1})) == pytest.approx(0.125)
    result = mm.marginal_map(model, ["a", "c"])
    assert result.state == {"a": 0, "c": 0}
    with pytest.raises(mm.ModelError, match="the evidence c of this program is impossible"):
        mm.from_problog(DDNNF(AND, WEIGHTS, NAMES, [("c", None)]))
    with pytest.raises(mm.ModelError, match="evidence for c and against it"):
        mm.from_problog(DDNNF(AND, WEIGHTS, NAMES, [("c", 3), ("c", -3)]))


def test_problog_models_that_cannot_be_read(problog, monkeypatch):
    with pytest.raises(mm.ModelError, match="no query and no evidence"):
        mm.from_problog(DDNNF([], {}, []))
    with pytest.raises(mm.ModelError, match=r"atom 1 of this problog\.DDNNF has a negative weight: -0\.25"):
        mm.from_problog(DDNNF(AND, WEIGHTS | {1: (-0.25, 1.25)}, NAMES))
    with pytest.raises(mm.ModelError, match=r"has a weight that is no probability .*densities"):
        mm.from_problog(DDNNF(AND, WEIGHTS | {1: ("?", "?")}, NAMES))
    monkeypatch.setitem(sys.modules, "problog.ddnnf_formula", None)
    with pytest.raises(mm.MissingExtraError, match="pip install problog"):
        mm.from_problog("0.3::a. query(a).")


# pyAgrum


class Labels:
    def __init__(self, name, labels):
        self._name, self._labels = name, labels

    def name(self):
        return self._name

    def labels(self):
        return self._labels


class Tensor:
    """The axes of the array are the names in reverse."""

    def __init__(self, names, array):
        self.names, self._array = names, np.array(array)

    def toarray(self):
        return self._array


@of_package("pyagrum")
class BayesNet:
    def __init__(self):
        self._variables = [Labels("a", ("0", "1")), Labels("b", ("lo", "mid", "hi")), Labels("c", ("1", "2"))]
        rng = np.random.default_rng(0)
        self.tables = [rng.dirichlet([1.0] * 2), rng.dirichlet([1.0] * 3, size=(2, 2)), rng.dirichlet([1.0] * 2)]
        self._tensors = [Tensor(("a",), self.tables[0]), Tensor(("b", "a", "c"), self.tables[1])]
        self._tensors.append(Tensor(("c",), self.tables[2]))

    def nodes(self):
        return range(3)

    def variable(self, node):
        return self._variables[node]

    def cpt(self, node):
        return self._tensors[node]


@of_package("pyagrum")
class MarkovRandomField:
    def __init__(self, network):
        self._network = network

    def nodes(self):
        return self._network.nodes()

    def variable(self, node):
        return self._network.variable(node)

    def factors(self):
        return [{0}, {0, 1, 2}, {2}]

    def factor(self, scope):
        return self._network.cpt(0 if scope == {0} else 2 if scope == {2} else 1)


def test_pyagrum():
    model = BayesNet()
    for given, kind in ((model, "bayes"), (MarkovRandomField(model), "markov")):
        network = mm.as_model(given)
        assert network.kind == kind
        assert [(v.name, v.states) for v in network.variables] == [
            ("a", ()),
            ("b", ("lo", "mid", "hi")),
            ("c", ("1", "2")),
        ]
        circuit = mm.compile(network)
        for a, b, c in product(range(2), range(3), range(2)):
            expected = model.tables[0][a] * model.tables[2][c] * model.tables[1][c, a, b]
            assert probability(circuit, (a, b, c)) == pytest.approx(expected, rel=1e-12)


def test_pyagrum_models_that_cannot_be_read():
    @of_package("pyagrum")
    class InfluenceDiagram(BayesNet):
        def utility(self, node):
            raise AssertionError

    @of_package("pyagrum")
    class LazyPropagation:
        def BN(self):
            raise AssertionError

    @of_package("pyagrum")
    class CredalNet:
        pass

    for kind, message in (
        (InfluenceDiagram, r"a pyagrum\..*InfluenceDiagram has decisions"),
        (LazyPropagation, r"LazyPropagation is an inference engine: give its network, \.BN\(\)"),
        (CredalNet, r"CredalNet cannot be read: give a BayesNet or a MarkovRandomField"),
    ):
        with pytest.raises(mm.ModelError, match=message):
            mm.as_model(kind())


@pytest.mark.parametrize("suffix", ["xdsl", "dsl", "net"])
def test_files_that_pyagrum_reads_say_so_without_it(tmp_path, monkeypatch, suffix):
    monkeypatch.setitem(sys.modules, "pyagrum", None)
    path = tmp_path / f"x.{suffix}"
    path.write_text("anything")
    with pytest.raises(mm.MissingExtraError, match=rf"x\.{suffix}: \.{suffix} files are read by pyAgrum.*pip install"):
        mm.load_network(path)


def test_files_through_pyagrum(tmp_path, monkeypatch):
    package = ModuleType("pyagrum")
    monkeypatch.setitem(sys.modules, "pyagrum", package)
    package.loadBN = lambda path: BayesNet()
    path = tmp_path / "x.xdsl"
    with pytest.raises(mm.FormatError, match=r"x\.xdsl: there is no such file"):
        mm.load_network(path)
    path.write_text("anything")
    assert mm.load_network(path).names == ("a", "b", "c")

    def refuse(path):
        raise RuntimeError("line 7 is wrong")

    package.loadBN = refuse
    with pytest.raises(mm.FormatError, match=r"x\.xdsl: pyAgrum cannot read it: RuntimeError: line 7 is wrong"):
        mm.load_network(path)
    package.loadBN = lambda path: Labels("x", ())
    with pytest.raises(mm.FormatError, match=r"x\.xdsl: .*Labels cannot be read"):
        mm.load_network(path)


# pgmpy and bnlearn


class Table:
    def __init__(self, variables, values, state_names=None):
        self.variables, self.values, self.state_names = variables, np.array(values, dtype=float), state_names or {}


class Graph:
    def __init__(self, nodes, tables):
        self._nodes, self._tables = nodes, tables

    def nodes(self):
        return self._nodes


@of_package("pgmpy")
class DiscreteBayesianNetwork(Graph):
    def get_cpds(self):
        return self._tables


@of_package("pgmpy")
class FactorGraph(Graph):
    def get_factors(self):
        return self._tables


@of_package("pgmpy")
class ClusterGraph(Graph):
    def get_factors(self):
        return self._tables


class JunctionTree(ClusterGraph):
    pass


TABLES = [Table(["a"], [0.5, 2.0]), Table(["b", "a"], [[1, 2], [3, 4], [5, 6]], {"b": ["x", "y", "z"], "a": [0, 1]})]


@pytest.mark.parametrize(
    "model",
    [
        FactorGraph(["a", "b", *TABLES], TABLES),
        FactorGraph(["a", "b", "phi_a", "phi_b_a"], TABLES),
        JunctionTree([("a",), ("b", "a")], TABLES),
        ClusterGraph([("a",), ("b", "a")], TABLES),
    ],
)
def test_pgmpy_graphs_whose_nodes_are_not_their_variables(model):
    network = mm.as_model(model)
    assert (network.kind, network.names) == ("markov", ("a", "b"))
    assert network.variables[1].states == ("x", "y", "z")
    circuit = mm.compile(network)
    for a, b in product(range(2), range(3)):
        assert probability(circuit, (a, b)) == pytest.approx((0.5, 2.0)[a] * TABLES[1].values[b, a])


def test_bnlearn_keeps_a_network_in_a_dict():
    model = {"model": DiscreteBayesianNetwork(["a"], [Table(["a"], [0.25, 0.75])]), "adjmat": None}
    assert mm.marginal_map(model, ["a"]).state == {"a": 1}
    assert mm.from_pgmpy(model).names == ("a",)
    with pytest.raises(mm.StructureError, match=r"variable 'a' has no table .* fit its parameters first"):
        mm.as_model({"model": DiscreteBayesianNetwork(["a"], [])})
    for wrong in ({}, {"model": 5}, {"model": None}):
        with pytest.raises(mm.ModelError, match="is no model"):
            mm.as_model(wrong)


def test_to_pgmpy_without_pgmpy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pgmpy.factors.discrete", None)
    network = mm.Network([mm.Variable("a")], [([0], [0.5, 0.5])])
    with pytest.raises(mm.MissingExtraError, match=r"margmap\[bn\]"):
        mm.to_pgmpy(network)
    with pytest.raises(mm.ModelError, match="this is a circuit already"):
        mm.to_pgmpy(mm.compile(network))


def test_the_error_for_what_is_no_model_lists_the_libraries():
    with pytest.raises(mm.ModelError, match=r"pgmpy.*problog.*pyagrum.*pysdd"):
        mm.as_model(object())
