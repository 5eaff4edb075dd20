"""Converters of tensor libraries, on objects in the shape of the libraries' classes that compute their own likelihood.

Each fake has the attributes that a converter reads, named as in the library, and a method ``value(rows)`` that computes
what the library documents, with plain numpy and no numbers of nodes. The real libraries are in ``test_real_*.py``.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import margmap as mm
from margmap.circuit.layers import Layers
from margmap.circuit.leaves import CATEGORICAL, INDICATOR


class Tensor:
    """A tensor on some device: numpy cannot take it as it is."""

    def __init__(self, array):
        self.array = np.asarray(array)

    def detach(self):
        return self

    def cpu(self):
        return self

    def numpy(self):
        return self.array

    def __array__(self, *_):
        raise TypeError("copy the tensor to host memory first")


def fake(library, **classes):
    """Give classes the module of a library, by which they are recognised."""
    for name, made in classes.items():
        made.__module__, made.__qualname__, made.__name__ = library, name, name


def states(circuit):
    return np.array(list(itertools.product(*(range(v.cardinality) for v in circuit.variables))))


def compare(circuit, model, tolerance=1e-12):
    """Likelihoods of all states, and a marginal MAP question, beside the model's own numbers."""
    rows = states(circuit)
    theirs = np.asarray(model.value(rows), dtype=np.float64).ravel()
    ours = np.exp(mm.log_likelihood(circuit, rows))
    assert np.abs(ours - theirs).max() <= tolerance * theirs.max()
    if theirs.max() == 0:
        return
    asked = len(circuit.variables) // 2 or 1
    totals = {}
    for state, p in zip(rows[:, :asked].tolist(), theirs.tolist(), strict=True):
        totals[tuple(state)] = totals.get(tuple(state), 0.0) + p
    result = mm.marginal_map(model, circuit.names[:asked])
    assert result.status == "optimal"
    assert math.exp(result.log_prob) == pytest.approx(max(totals.values()), rel=1e-9)


def simplex(rng, *shape):
    made = rng.random(shape) + 0.01
    return made / made.sum(axis=-1, keepdims=True)


# Layers themselves ------------------------------------------------------------------------------------------------


def test_layers_leave_out_edges_of_weight_0_and_nodes_that_are_not_reached():
    layers = Layers()
    leaf = layers.leaves(INDICATOR, 0, [[0.0], [1.0], [2.0]])
    layers.leaves(INDICATOR, 1, [[0.0]])
    sums = layers.sums(leaf, [[-1.0, -np.inf, -0.5], [-np.inf] * 3])
    circuit = layers.circuit([mm.Variable("a", 3), mm.Variable("b")], int(sums[0]))
    assert (circuit.num_nodes, circuit.num_edges) == (3, 2)
    assert mm.log_likelihood(circuit, [[0, -1], [1, -1], [2, -1]]) == pytest.approx([-1.0, -np.inf, -0.5])
    nothing = layers.circuit([mm.Variable("a", 3), mm.Variable("b")], int(sums[1]))
    assert mm.log_likelihood(nothing, [[0, -1]]) == pytest.approx([-np.inf])


def test_one_child_is_the_node_itself():
    layers = Layers()
    leaf = layers.leaves(INDICATOR, 0, [[0.0], [1.0]])
    assert layers.products(leaf[:, None]).tolist() == leaf.tolist()
    assert layers.sums(leaf[:, None], np.zeros((2, 1))).tolist() == leaf.tolist()
    assert layers.sums(leaf[:, None], np.full((2, 1), 0.5)).tolist() != leaf.tolist()


def test_tables_above_1_are_shifted_into_a_sum():
    layers = Layers()
    table = np.log([[0.2, 0.8], [3.0, 5.0], [0.5, 2.0]])
    ids = layers.tables(0, table)
    for i in range(3):
        circuit = layers.circuit([mm.Variable("a")], int(ids[i]))
        assert mm.log_likelihood(circuit, [[0], [1]]) == pytest.approx(table[i], abs=1e-14)
    assert layers.circuit([mm.Variable("a")], int(ids[0])).kind.tolist() == [CATEGORICAL]


# pyjuice ----------------------------------------------------------------------------------------------------------


class Nodes:
    def __init__(self, chs, blocks, size, params=None, source=None):
        self.chs, self.num_node_blocks, self.block_size = chs, blocks, size
        self.num_nodes = blocks * size
        self.params, self.source = params, source

    def is_input(self):
        return isinstance(self, InputNodes)

    def is_prod(self):
        return isinstance(self, ProdNodes)

    def get_source_ns(self):
        return self.source or self

    def get_params(self):
        return None if self.params is None else Tensor(self.params.astype(np.float32))


class BitSet(list):
    def to_list(self):
        return list(self)


class InputNodes(Nodes):
    def __init__(self, variable, dist, blocks, size, params, source=None):
        super().__init__([], blocks, size, params, source)
        self.scope, self.dist = BitSet([variable]), dist

    def value(self, rows):
        return self.dist.table(self.get_source_ns().params, self.num_nodes)[:, rows[:, self.scope[0]]].T


class ProdNodes(Nodes):
    def __init__(self, chs, edges, size):
        blocks = len(edges)
        super().__init__(chs, blocks, size)
        self.edge_ids = Tensor(edges)

    def value(self, rows):
        children = [child.value(rows).reshape(len(rows), -1, self.block_size) for child in self.chs]
        columns = [c[:, self.edge_ids.array[:, j]].reshape(len(rows), -1) for j, c in enumerate(children)]
        return np.prod(columns, axis=0)


class SumNodes(Nodes):
    def __init__(self, chs, blocks, size, edges, params, source=None):
        super().__init__(chs, blocks, size, params, source)
        self.edge_ids = Tensor(edges)

    def value(self, rows):
        width = self.chs[0].block_size
        below = np.concatenate([child.value(rows) for child in self.chs], axis=1).reshape(len(rows), -1, width)
        total = np.zeros((len(rows), self.num_node_blocks, self.block_size))
        params = self.get_source_ns().params.astype(np.float32).astype(np.float64)
        for e, (i, j) in enumerate(self.edge_ids.array.T):
            total[:, i] += below[:, j] @ params[e].T
        return total.reshape(len(rows), -1)


class Categorical:
    def __init__(self, num_cats):
        self.num_cats = num_cats

    def table(self, params, count):
        return params.astype(np.float32).astype(np.float64).reshape(count, self.num_cats)


class MaskedCategorical(Categorical):
    def __init__(self, num_cats, mask_mode):
        self.num_cats, self.mask_mode = num_cats, mask_mode

    def table(self, params, count):
        rows = params.astype(np.float32).astype(np.float64).reshape(count, -1)
        made = rows[:, : self.num_cats].copy()
        for row, full in zip(made, rows, strict=True):
            for x in range(self.num_cats):
                inside = full[self.num_cats] <= x < full[self.num_cats + 1]
                allowed = full[self.num_cats + x] > 0.5 if self.mask_mode == "full_mask" else inside
                if allowed == (self.mask_mode == "rev_range"):
                    row[x] = 0.0
        return made


class Bernoulli:
    def table(self, params, count):
        p = params.astype(np.float32).astype(np.float64)
        return np.stack((1 - p, p), axis=1)


class DiscreteLogistic:
    val_range, num_cats = (0.0, 2.0), 4

    def table(self, params, count):
        made = []
        for mean, scale in params.astype(np.float32).astype(np.float64).reshape(count, 2):
            below = [0.0, *(1 / (1 + math.exp((mean - end) / scale)) for end in (0.5, 1.0, 1.5)), 1.0]
            made.append(np.diff(below))
        return np.array(made)


class Indicator:
    num_states = 3

    def table(self, params, count):
        return (np.arange(3) == params.reshape(count, 1)).astype(float)


class Literal:
    def __init__(self, lit):
        self.lit = lit

    def table(self, params, count):
        return np.tile((np.arange(2) == self.lit).astype(float), (count, 1))


class SoftEvidenceCategorical:
    """Its parameters are only half of it."""

    num_cats = 3


class ExternalParamsSumNodes(SumNodes):
    external_params = "low rank"


fake("pyjuice.nodes", InputNodes=InputNodes, ProdNodes=ProdNodes, SumNodes=SumNodes)


def pyjuice_inputs(rng, variable, kind, blocks, size):
    count = blocks * size
    if kind == "Bernoulli":
        return InputNodes(variable, Bernoulli(), blocks, size, rng.random(count))
    if kind == "DiscreteLogistic":
        params = np.stack((rng.normal(1, 1, count), rng.random(count) + 0.1), axis=1).ravel()
        return InputNodes(variable, DiscreteLogistic(), blocks, size, params)
    if kind == "Indicator":
        return InputNodes(variable, Indicator(), blocks, size, rng.integers(0, 3, count).astype(float))
    if kind == "Literal":
        return InputNodes(variable, Literal(int(rng.integers(2))), blocks, size, None)
    if kind == "Categorical":
        return InputNodes(variable, Categorical(3), blocks, size, simplex(rng, count, 3).ravel())
    mode = kind
    masks = rng.integers(0, 2, (count, 3)) if mode == "full_mask" else np.sort(rng.integers(0, 4, (count, 2)), axis=1)
    params = np.concatenate((simplex(rng, count, 3), masks, np.ones((count, 1))), axis=1)
    return InputNodes(variable, MaskedCategorical(3, mode), blocks, size, params.ravel())


def pyjuice_sums(rng, chs, blocks, size, source=None, cls=SumNodes):
    below = sum(child.num_node_blocks for child in chs)
    member = rng.random((blocks, below)) < 0.6
    member[np.arange(blocks), rng.integers(0, below, blocks)] = True
    edges = np.argwhere(member).T if source is None else source.edge_ids.array
    edges = edges[:, rng.permutation(edges.shape[1])] if source is None else edges
    return cls(chs, blocks, size, edges, rng.random((edges.shape[1], size, chs[0].block_size)), source)


PYJUICE_LEAVES = (
    *("Bernoulli", "Categorical", "DiscreteLogistic", "Indicator", "Literal", "range", "rev_range", "full_mask"),
)


@pytest.mark.parametrize("seed", range(24))
def test_pyjuice(seed):
    rng = np.random.default_rng(seed)
    blocks, size = int(rng.integers(1, 4)), int(rng.choice([1, 2, 4]))
    leaves = [pyjuice_inputs(rng, v, PYJUICE_LEAVES[(seed + v) % 8], blocks, size) for v in range(4)]
    if seed % 3 == 0:  # tied leaves
        leaves[3] = InputNodes(3, leaves[2].dist, blocks, size, None, leaves[2])
    pairs = []
    for a, b in ((0, 1), (2, 3)):
        products = [ProdNodes([leaves[a], leaves[b]], rng.integers(0, blocks, (blocks, 2)), size) for _ in range(2)]
        pairs.append(pyjuice_sums(rng, products, blocks, size))
    top = ProdNodes(pairs, rng.integers(0, blocks, (3, 2)), size)
    root = pyjuice_sums(rng, [top], 1, 1)
    compare(mm.from_pyjuice(root), root)


def test_pyjuice_sparse_products_and_tied_sums():
    rng = np.random.default_rng(1)
    leaves = [pyjuice_inputs(rng, v, "Categorical", 2, 2) for v in range(4)]
    first = ProdNodes(leaves[:2], rng.integers(0, 4, (4, 2)), 1)  # one edge for each node
    second = ProdNodes(leaves[2:], rng.integers(0, 4, (4, 2)), 1)
    for product in (first, second):
        product.num_node_blocks, product.block_size, product.num_nodes = 2, 2, 4

    def value(rows):
        def product(ns):
            a, b = (child.value(rows) for child in ns.chs)
            return a[:, ns.edge_ids.array[:, 0]] * b[:, ns.edge_ids.array[:, 1]]

        weights = np.zeros((2, 2, 2, 2))
        params = left.params.astype(np.float32).astype(np.float64)
        for e, (i, j) in enumerate(left.edge_ids.array.T):
            weights[i, j] = params[e]
        dense = weights.transpose(0, 2, 1, 3).reshape(4, 4)
        return ((product(first) @ dense.T)[:, 0] * (product(second) @ dense.T)[:, 0])[:, None]

    left = pyjuice_sums(rng, [first], 2, 2)
    right = pyjuice_sums(rng, [second], 2, 2, source=left)
    root = ProdNodes([left, right], np.zeros((1, 2), dtype=int), 1)
    root.value = value
    compare(mm.from_pyjuice(root), root)


def test_pyjuice_compiled_models_are_updated_first():
    class TensorCircuit:
        def __init__(self, root):
            self.root_ns, self.updated = root, False

        def update_parameters(self):
            self.updated = True
            self.root_ns.params = np.full_like(self.root_ns.params, 0.25)

    fake("pyjuice.model.tensorcircuit", TensorCircuit=TensorCircuit)
    rng = np.random.default_rng(0)
    root = pyjuice_sums(rng, [ProdNodes([pyjuice_inputs(rng, 7, "Categorical", 2, 1)], np.arange(2)[:, None], 1)], 1, 1)
    model = TensorCircuit(root)
    circuit = mm.as_model(model)
    assert model.updated
    assert circuit.names == (7,)
    assert np.exp(circuit.log_weight) == pytest.approx(np.full(circuit.num_edges, 0.25))
    named = mm.from_pyjuice(root, [f"x{i}" for i in range(8)])
    assert named.names == ("x7",)
    stated = mm.from_pyjuice(root, [mm.Variable(f"x{i}", 3, ("a", "b", "c")) for i in range(8)])
    assert mm.mpe(stated).state["x7"] in ("a", "b", "c")


def refusals():
    rng = np.random.default_rng(0)
    leaf = pyjuice_inputs(rng, 0, "Categorical", 2, 1)
    product = ProdNodes([leaf], np.arange(2)[:, None], 1)
    negative = pyjuice_sums(rng, [product], 1, 1)
    negative.params[0] = -0.5
    unset = pyjuice_sums(rng, [product], 1, 1)
    unset.params = None
    nan = pyjuice_sums(rng, [product], 1, 1)
    nan.params[0] = np.nan
    cyclic = pyjuice_sums(rng, [product], 1, 1)
    product_above = ProdNodes([cyclic], np.zeros((1, 1), dtype=int), 1)
    cyclic.chs = [product_above]
    outside = InputNodes(3, SoftEvidenceCategorical(), 1, 1, simplex(rng, 3))
    several = InputNodes(3, Categorical(3), 1, 1, simplex(rng, 3))
    several.scope.append(5)
    external = pyjuice_sums(rng, [product], 1, 1, cls=ExternalParamsSumNodes)
    blank = InputNodes(0, Categorical(2), 1, 1, None)
    return [
        (negative, "a sum of pyjuice has a negative weight"),
        (unset, r"SumNodes of pyjuice has no parameters: call init_parameters\(\)"),
        (nan, "a sum of pyjuice has a parameter that is not a number"),
        (cyclic, "a SumNodes lies below itself: a circuit has no cycles"),
        (leaf, r"InputNodes of pyjuice has 2 roots, and a circuit has one: .*summate"),
        (several, r"Categorical of pyjuice is over 2 variables"),
        (external, "ExternalParamsSumNodes of pyjuice takes its parameters from outside"),
        (blank, r"over variable 0 \(Categorical of pyjuice\) has no parameters"),
        (outside, "SoftEvidenceCategorical of pyjuice, which takes evidence from outside"),
    ]


@pytest.mark.parametrize(("model", "words"), refusals(), ids=[words[:40] for _, words in refusals()])
def test_pyjuice_refusals_name_the_class_and_what_to_do(model, words):
    with pytest.raises(mm.StructureError, match=words):
        mm.from_pyjuice(model)


def test_names_must_fit_the_columns():
    rng = np.random.default_rng(0)
    leaf = pyjuice_inputs(rng, 3, "Categorical", 1, 1)
    for wrong in (["a", "b"], "abcd", 4):
        with pytest.raises(mm.StructureError, match="one for each of 4 columns"):
            mm.from_pyjuice(leaf, wrong)
    with pytest.raises(mm.StructureError, match=r"variable 'd' is given with 2 values, and .* has 3 for column 3"):
        mm.from_pyjuice(leaf, ["a", "b", "c", mm.Variable("d", 2)])


# cirkit -----------------------------------------------------------------------------------------------------------


class Layer:
    """A layer of cirkit with its parameters as functions, as there."""

    def __init__(self, **given):
        for name, value in given.items():
            if isinstance(value, np.ndarray) and name != "scope_idx":
                value = (lambda kept: lambda: Tensor(kept))(value)
            setattr(self, name, Tensor(value) if name == "scope_idx" else value)


def layer_class(name, forward):
    made = type(name, (Layer,), {"forward": forward})
    made.__module__ = "cirkit.backend.torch.layers"
    return made


def number(function):
    return function().array


def summed(self, x):
    flat = x.transpose(0, 2, 1, 3).reshape(len(x), x.shape[2], -1)
    return np.einsum("fbi,foi->fbo", flat, number(self.weight))


Sum = layer_class("TorchSumLayer", summed)
Hadamard = layer_class("TorchHadamardLayer", lambda self, x: x.prod(axis=1))
CPT = layer_class("TorchCPTLayer", lambda self, x: np.einsum("fbi,foi->fbo", x.prod(axis=1), number(self.weight)))


def kronecker(x):
    made = x[:, 0]
    for i in range(1, x.shape[1]):
        made = (made[..., :, None] * x[:, i][..., None, :]).reshape(*made.shape[:2], -1)
    return made


Kronecker = layer_class("TorchKroneckerLayer", lambda self, x: kronecker(x))
Tucker = layer_class("TorchTuckerLayer", lambda self, x: np.einsum("fbi,foi->fbo", kronecker(x), number(self.weight)))


def tensor_dot(self, x):
    weight = number(self.weight)
    z = x[:, 0].reshape(x.shape[0], x.shape[2], weight.shape[2], -1)
    return np.einsum("fbjq,fkj->fbqk", z, weight).reshape(x.shape[0], x.shape[2], -1)


TensorDot = layer_class("TorchTensorDotLayer", tensor_dot)


def by_table(self, x):
    tables = self.tables()
    return np.stack([tables[f][:, x[f]].T for f in range(len(tables))])


def categorical_tables(self):
    return number(self.probs) if self.logits is None else np.exp(number(self.logits))


def binomial_tables(self):
    p = number(self.probs) if self.logits is None else 1 / (1 + np.exp(-number(self.logits)))
    n = self.total_count
    return np.stack([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)], axis=-1)


CategoricalLayer = layer_class("TorchCategoricalLayer", by_table)
CategoricalLayer.tables = categorical_tables
Embedding = layer_class("TorchEmbeddingLayer", by_table)
Embedding.tables = lambda self: number(self.weight)
BinomialLayer = layer_class("TorchBinomialLayer", by_table)
BinomialLayer.tables = binomial_tables
GaussianLayer = layer_class("TorchGaussianLayer", None)
ConstantLayer = layer_class("TorchConstantValueLayer", None)
PolynomialLayer = layer_class("TorchPolynomialLayer", None)


class Entry:
    def __init__(self, module, ids=None, index=None):
        self.module = module
        self.in_module_ids = [] if ids is None else [ids]
        self.in_fold_idx = [] if ids is None else [index]


class TorchCircuit:
    def __init__(self, *entries):
        self.address_book = entries

    def value(self, rows):
        outputs = []
        for entry in self.address_book:
            if not entry.in_module_ids:
                outputs.append(entry.module.forward(rows[:, entry.module.scope_idx.array[:, 0]].T))
                continue
            x = np.concatenate([outputs[i] for i in entry.in_module_ids[0]])
            index = entry.in_fold_idx[0]
            x = x[index if isinstance(index, tuple) else index.array]
            if entry.module is None:
                return x.ravel()
            outputs.append(entry.module.forward(x))
        return None


fake("cirkit.backend.torch.circuits", TorchCircuit=TorchCircuit)


def cirkit_leaves(rng, kind, columns, units, size):
    scope, folds = np.array(columns)[:, None], len(columns)
    if kind == "probs":
        return CategoricalLayer(scope_idx=scope, probs=simplex(rng, folds, units, size), logits=None)
    if kind == "logits":
        return CategoricalLayer(scope_idx=scope, probs=None, logits=rng.normal(0, 2, (folds, units, size)))
    if kind == "embedding":
        return Embedding(scope_idx=scope, weight=rng.random((folds, units, size)) * 3)
    given = {"probs": rng.random((folds, units)), "logits": None}
    if kind == "binomial logits":
        given = {"probs": None, "logits": rng.normal(size=(folds, units))}
    return BinomialLayer(scope_idx=scope, total_count=size - 1, **given)


CIRKIT_LEAVES = ("probs", "logits", "embedding", "binomial", "binomial logits")


@pytest.mark.parametrize("seed", range(20))
def test_cirkit(seed):
    """Four leaf layers in one or two folded groups, an inner layer of every sort, and a sum with several inputs."""
    rng = np.random.default_rng(seed)
    units, kind = int(rng.integers(2, 4)), CIRKIT_LEAVES[seed % 5]
    first = cirkit_leaves(rng, kind, [2, 0], units, 3)
    second = cirkit_leaves(rng, "probs" if kind.startswith("binomial") else kind, [3, 1], units, 3 - seed // 10)
    entries = [Entry(first), Entry(second)]
    pairs = Tensor(rng.permutation([[0, 2], [1, 3]]))  # folds of both groups, [fold, input]
    inner = int(rng.integers(4))
    if inner == 0:
        entries += [Entry(Hadamard(), [0, 1], pairs)]
        entries += [Entry(Sum(weight=simplex(rng, 2, units, units)), [2], (slice(None), None))]
    elif inner == 1:
        entries += [Entry(CPT(weight=simplex(rng, 2, units, units)), [0, 1], pairs)]
    elif inner == 2:
        entries += [Entry(Tucker(weight=simplex(rng, 2, units, units**2)), [0, 1], pairs)]
    else:
        entries += [Entry(Kronecker(), [0, 1], pairs)]
        entries += [Entry(TensorDot(weight=simplex(rng, 2, 1, units)), [2], (slice(None), None))]
    last = len(entries) - 1
    entries += [Entry(Hadamard(), [last], (None,))]
    weight = simplex(rng, 1, 1, 2 * units) * (rng.random((1, 1, 2 * units)) < 0.8)
    weight[..., 0] += 0.1
    entries += [Entry(Sum(weight=weight), [last + 1], Tensor(np.zeros((1, 2), dtype=int)))]
    entries += [Entry(None, [last + 2], Tensor(np.array([0])))]
    model = TorchCircuit(*entries)
    compare(mm.from_cirkit(model), model)


def test_cirkit_refusals():
    rng = np.random.default_rng(0)
    leaf = cirkit_leaves(rng, "probs", [0], 2, 3)

    def over(layer, units=1):
        return TorchCircuit(Entry(leaf), Entry(layer, [0], (None,)), Entry(None, [1], Tensor([0])))

    refused = [
        (over(Sum(weight=np.array([[[1.5, -0.5]]]))), "TorchSumLayer of cirkit has a negative weight"),
        (over(Sum(weight=np.array([[[1.5, 0.5j]]]))), "parameters of type complex128"),
        (over(Sum(weight=simplex(rng, 1, 3, 2))), r"TorchCircuit of cirkit has 3 roots.*num_classes = 1"),
        (over(layer_class("TorchPICLayer", None)()), "a layer of cirkit is a TorchPICLayer: known are"),
        (TorchCircuit(Entry(PolynomialLayer(scope_idx=[[0]]))), "TorchPolynomialLayer: known are"),
        (TorchCircuit(Entry(ConstantLayer(scope_idx=[[]]))), "observed or integrated variables"),
        (TorchCircuit(Entry(CategoricalLayer(scope_idx=[[0, 1]]))), "is over several variables"),
        (TorchCircuit(Entry(leaf)), "has no output"),
        (GaussianLayer(), "cirkit.pipeline.compile"),
    ]
    for model, words in refused:
        with pytest.raises(mm.StructureError, match=words):
            mm.as_model(model)


def test_cirkit_gaussians():
    leaf = GaussianLayer(
        scope_idx=[[0], [1]], mean=np.array([[0.5], [1.0]]), stddev=np.array([[1.0], [2.0]]), log_partition=None
    )
    model = TorchCircuit(Entry(leaf), Entry(Hadamard(), [0], (None,)), Entry(None, [1], Tensor([0])))
    circuit = mm.from_cirkit(model)
    assert mm.log_likelihood(circuit, [[0.5, 1.0]]) == pytest.approx([-math.log(2 * math.pi * 2)])
    leaf.log_partition = lambda: Tensor([[0.0], [0.0]])
    with pytest.raises(mm.StructureError, match="log-partition of its own"):
        mm.from_cirkit(model)
