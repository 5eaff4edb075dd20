"""Converters of SPFlow, deeprob-kit and pomegranate, on objects in the shape of the libraries' classes.

Each fake module computes its own values [row, feature, channel, repetition] with numpy, as the library documents them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_layers_without_libraries import Tensor, compare, fake, simplex

import margmap as mm


class Shape(tuple):
    """Features, channels, repetitions."""


class Scope:
    def __init__(self, query, evidence=()):
        self.query, self.evidence = tuple(query), tuple(evidence)


class Module:
    """Weights are given as probabilities; SPFlow has their logarithms."""

    def __init__(self, inputs=None, weights=None, **given):
        self.inputs = inputs
        self.out_shape = None
        self.weights = weights
        self.log_weights = None if weights is None else Tensor(np.log(weights))
        vars(self).update(given)

    def below(self, rows):
        inputs = self.inputs if isinstance(self.inputs, list) else [self.inputs]
        values = [module.values(rows) for module in inputs]
        return [part for value in values for part in (value if isinstance(value, list) else [value])]

    def value(self, rows):
        return self.values(rows).ravel()


class Sum(Module):
    def values(self, rows):
        return np.einsum("bfir,fior->bfor", self.below(rows)[0], self.weights)


class RepetitionMixingLayer(Sum):
    def values(self, rows):
        return np.einsum("bfcr,fcr->bfc", self.below(rows)[0], self.weights)[..., None]


class ElementwiseSum(Module):
    def values(self, rows):
        parts = np.broadcast_arrays(*self.below(rows))
        made = np.einsum("ibfcr,fcoir->bfcor", np.stack(parts), self.weights)
        return made.reshape(*made.shape[:2], -1, made.shape[-1])


class Product(Module):
    def values(self, rows):
        return self.below(rows)[0].prod(axis=1, keepdims=True)


class ElementwiseProduct(Module):
    def values(self, rows):
        return np.prod(np.broadcast_arrays(*self.below(rows)), axis=0)


class OuterProduct(Module):
    def values(self, rows):
        made, *rest = self.below(rows)
        for part in rest:
            made = np.einsum("bfir,bfjr->bfijr", made, part).reshape(*made.shape[:2], -1, made.shape[-1])
        return made


class Factorize(Module):
    def values(self, rows):
        below, member = self.below(rows)[0], self.indices.array
        made = np.ones((len(rows), member.shape[1], below.shape[2], member.shape[2]))
        for i, o, r in np.argwhere(member):
            made[:, o, :, r] *= below[:, i, :, r]
        return made


class EinsumLayer(Module):
    def values(self, rows):
        left, right = self.below(rows)
        return np.einsum("bfir,bfjr,forij->bfor", left, right, self.weights)


class LinsumLayer(Module):
    def values(self, rows):
        left, right = self.below(rows)
        return np.einsum("bfir,bfir,fori->bfor", left, right, self.weights)


class Cat(Module):
    def values(self, rows):
        return np.concatenate(self.below(rows), axis=self.dim)


class SplitConsecutive(Module):
    def values(self, rows):
        return np.split(self.below(rows)[0], self.num_splits, axis=1)


class SplitInterleaved(Module):
    def values(self, rows):
        return [self.below(rows)[0][:, i :: self.num_splits] for i in range(self.num_splits)]


class SplitByIndex(Module):
    def values(self, rows):
        return [self.below(rows)[0][:, group] for group in self.indices]


class ProdConv(Module):
    def values(self, rows):
        below = self.below(rows)[0]
        side = math.isqrt(below.shape[1])
        high = (side + 2 * self.padding_h) // self.kernel_size_h
        wide = (side + 2 * self.padding_w) // self.kernel_size_w
        made = np.ones((len(rows), high * wide, *below.shape[2:]))
        for y in range(side):
            for x in range(side):
                oy, ox = (y + self.padding_h) // self.kernel_size_h, (x + self.padding_w) // self.kernel_size_w
                if oy < high and ox < wide:
                    made[:, oy * wide + ox] *= below[:, y * side + x]
        return made


class SumConv(Module):
    def values(self, rows):
        below, k = self.below(rows)[0], self.kernel_size
        side = math.isqrt(below.shape[1])
        made = []
        for f in range(below.shape[1]):
            y, x = divmod(f, side) if side >= k else (0, 0)
            made.append(np.einsum("bir,oir->bor", below[:, f], self.weights[:, :, y % k, x % k]))
        return np.stack(made, axis=1)


class RatSPN(Module):
    def values(self, rows):
        return self.root_node.values(rows)


class ImageWrapper(Module):
    def values(self, rows):
        return self.module.values(rows)


class SignedSum(Module):
    pass


class LeafModule(Module):
    parameter_fn = None

    def values(self, rows):
        tables = self.tables()  # [feature, channel, repetition, value]
        return np.stack([tables[f][..., rows[:, v]] for f, v in enumerate(self.scope.query)]).transpose(3, 0, 1, 2)


def softmax(logits):
    made = np.exp(logits)
    return made / made.sum(axis=-1, keepdims=True)


class Categorical(LeafModule):
    def tables(self):
        return softmax(self.logits.array)


class Histogram(Categorical):
    pass


class Bernoulli(LeafModule):
    def tables(self):
        p = 1 / (1 + np.exp(-self.logits.array))
        return np.stack((1 - p, p), axis=-1)


class Binomial(LeafModule):
    def tables(self):
        p, n = 1 / (1 + np.exp(-self.logits.array)), self.total_count.array
        return np.stack(
            [np.where(n >= k, comb(n, k) * p**k * (1 - p) ** np.maximum(n - k, 0), 0) for k in range(n.max() + 1)], -1
        )


def comb(n, k):
    return np.vectorize(math.comb)(n, k)


class CLTree(LeafModule):
    def values(self, rows):
        tables, parents = np.exp(self.log_cpt.array), self.parents.array
        made = np.ones((len(rows), len(parents), *tables.shape[1:3]))
        for i, parent in enumerate(parents):
            above = rows[:, self.scope.query[parent]] if parent >= 0 else np.zeros(len(rows), dtype=int)
            made[:, 0] *= tables[i][:, :, rows[:, self.scope.query[i]], above].transpose(2, 0, 1)
        return made


class Normal(LeafModule):
    pass


class Poisson(LeafModule):
    pass


CLASSES = [cls for cls in list(globals().values()) if isinstance(cls, type) and issubclass(cls, Module)]
fake("spflow.modules", **{cls.__name__: cls for cls in CLASSES})


def shaped(leaf, features, channels, repetitions=1):
    leaf.out_shape = Shape((features, channels, repetitions))
    return leaf


def categorical(rng, columns, channels, repetitions=1, values=2):
    logits = rng.normal(size=(len(columns), channels, repetitions, values))
    return shaped(Categorical(scope=Scope(columns), logits=Tensor(logits)), len(columns), channels, repetitions)


def total(rng, inputs, features, below, above, repetitions=1):
    weights = simplex(rng, features, above, repetitions, below).transpose(0, 3, 1, 2)
    made = Sum(inputs, weights)
    made.out_shape = Shape((features, above, repetitions))
    return made


def other_leaves(rng):
    binomial = Binomial(
        scope=Scope([1]), logits=Tensor(rng.normal(size=(1, 2, 1))), total_count=Tensor(np.array([[[2], [3]]]))
    )
    histogram = Histogram(
        scope=Scope([2]), logits=Tensor(rng.normal(size=(1, 2, 1, 3))), bin_edges=Tensor([-0.5, 0.5, 1.5, 2.5])
    )
    bernoulli = Bernoulli(scope=Scope([0]), logits=Tensor(rng.normal(size=(1, 2, 1))))
    return [shaped(leaf, 1, 2) for leaf in (bernoulli, binomial, histogram)]


def kinds_of_leaves(rng):
    return total(rng, Product(Cat(other_leaves(rng), dim=1)), 1, 2, 1)


def products(rng):
    leaves = other_leaves(rng)
    parts = [ElementwiseProduct(leaves), OuterProduct(leaves)]
    narrow = total(rng, leaves[0], 1, 2, 1)
    parts.append(ElementwiseProduct([narrow, *leaves[1:]]))
    return total(rng, Cat(parts, dim=2), 1, 2 + 8 + 2, 1)


def splits(rng):
    leaf = categorical(rng, range(4), 2)
    made = []
    for split in (
        SplitConsecutive(leaf, num_splits=2),
        SplitInterleaved(leaf, num_splits=2),
        SplitByIndex(leaf, num_splits=2, indices=[[3, 0], [1, 2]]),
    ):
        made += [Product(ElementwiseProduct([split])), Product(OuterProduct([split]))]
    return total(rng, Cat(made, dim=2), 1, 3 * (2 + 4), 1)


def elementwise_sums(rng):
    leaf = categorical(rng, range(3), 3)
    weights = simplex(rng, 1, 3, 2, 1, 2).transpose(0, 1, 2, 4, 3)
    made = ElementwiseSum([Product(leaf), Product(categorical(rng, range(3), 3))], weights)
    return total(rng, made, 1, 6, 1)


def repetitions(rng):
    """A random product of features for each repetition, as RAT-SPNs have, mixed at the top."""
    leaf = categorical(rng, range(5), 2, 3)
    member = np.zeros((5, 2, 3), dtype=float)
    for r in range(3):
        sides = rng.permutation([0, 1, 0, 1, int(rng.integers(2))])
        member[np.arange(5), sides, r] = 1
    factors = Factorize([leaf], indices=Tensor(member))
    parts = Product(total(rng, factors, 2, 2, 2, 3))
    mixing = RepetitionMixingLayer(parts, simplex(rng, 1, 2, 3))
    return RatSPN(root_node=ImageWrapper(module=total(rng, mixing, 1, 2, 1)))


def einsum(rng):
    split = SplitConsecutive(categorical(rng, range(4), 2, 2), num_splits=2)
    layer = EinsumLayer(split, simplex(rng, 2, 3, 2, 6).reshape(2, 3, 2, 6)[..., :4].reshape(2, 3, 2, 2, 2))
    top = EinsumLayer(SplitInterleaved(layer, num_splits=2), simplex(rng, 1, 1, 2, 9).reshape(1, 1, 2, 3, 3))
    return RepetitionMixingLayer(top, simplex(rng, 1, 1, 2))


def linsum(rng):
    left, right = categorical(rng, [0, 2], 3, 2), categorical(rng, [3, 1], 3, 2)
    layer = LinsumLayer([left, right], simplex(rng, 2, 2, 2, 3))
    return RepetitionMixingLayer(total(rng, Product(layer), 1, 2, 1, 2), simplex(rng, 1, 1, 2))


def convolution(rng):
    leaf = categorical(rng, range(9), 2)
    patches = ProdConv(leaf, kernel_size_h=2, kernel_size_w=2, padding_h=1, padding_w=1)
    weights = simplex(rng, 3, 2, 2, 1, 2).transpose(0, 4, 1, 2, 3)
    top = ProdConv(SumConv(patches, weights, kernel_size=2), kernel_size_h=2, kernel_size_w=2, padding_h=0, padding_w=0)
    return total(rng, top, 1, 3, 1)


def trees(rng):
    tables = np.log(simplex(rng, 4, 2, 1, 3, 3).swapaxes(-1, -2))
    tree = CLTree(scope=Scope([4, 0, 1, 3]), K=3, parents=Tensor([1, -1, 1, 2]), log_cpt=Tensor(tables))
    mixed = total(rng, shaped(tree, 4, 2), 4, 2, 1)
    return Product(Cat([mixed, categorical(rng, [2], 1, 1, 2)], dim=1))


SPFLOW = [
    *(kinds_of_leaves, products, splits, elementwise_sums, repetitions, einsum, linsum, convolution, trees),
]


@pytest.mark.parametrize("make", SPFLOW, ids=[make.__name__ for make in SPFLOW])
@pytest.mark.parametrize("seed", range(4))
def test_spflow(make, seed):
    model = make(np.random.default_rng(seed))
    compare(mm.from_spflow(model), model)


def test_spflow_normals():
    leaf = shaped(Normal(scope=Scope([0]), loc=Tensor([[[0.5]]]), scale=Tensor([[[2.0]]])), 1, 1)
    circuit = mm.as_model(leaf)
    assert mm.log_likelihood(circuit, [[0.5]]) == pytest.approx([-math.log(2 * math.sqrt(2 * math.pi))])
    with pytest.raises(mm.QueryError, match="continuous"):
        mm.marginal_map(leaf, [0])


def test_spflow_refusals():
    rng = np.random.default_rng(0)
    leaf = categorical(rng, [0, 1], 2)
    conditional = categorical(rng, [0], 1)
    conditional.parameter_fn = print
    given = categorical(rng, [0], 1)
    given.scope = Scope([0], [3])
    cyclic = Product(None)
    cyclic.inputs = cyclic
    nan = categorical(rng, [0], 1)
    nan.logits.array[0] = np.nan
    wide = Histogram(scope=Scope([2]), logits=Tensor(rng.normal(size=(1, 2, 1, 2))), bin_edges=Tensor([0.0, 2.5, 3.0]))
    unfit = CLTree(scope=Scope([0, 1]), K=2, parents=Tensor([-1, -1]), log_cpt=Tensor(np.zeros((2, 1, 1, 2, 2))))
    empty = ProdConv(leaf, kernel_size_h=1, kernel_size_w=1, padding_h=1, padding_w=1)
    lonely = Factorize([leaf], indices=Tensor(np.zeros((2, 1, 1))))
    refused = [
        (conditional, r"a Categorical leaf of SPFlow over variables \[0\] is conditional.*fixed parameters"),
        (given, "is conditional"),
        (shaped(Poisson(scope=Scope([5])), 1, 1), r"Poisson leaf of SPFlow over variables \[5\] cannot be read"),
        (wide, "density of a continuous variable"),
        (unfit, "has no tree yet"),
        (nan, "not a number"),
        (cyclic, "a Product lies below itself"),
        (SignedSum(leaf), r"SignedSum of SPFlow \(its weights may be negative\) cannot be read"),
        (total(rng, Product(leaf), 1, 2, 3), "Sum of SPFlow has 3 roots, and a circuit has one: .*one output channel"),
        (EinsumLayer([leaf], np.ones((1, 1, 1, 2, 2))), "EinsumLayer of SPFlow has 1 inputs"),
        (empty, "ProdConv of SPFlow has an empty patch"),
        (lonely, "Factorize of SPFlow has an output without inputs"),
        (Module(), "a Module of SPFlow is no module of a circuit"),
    ]
    for model, words in refused:
        with pytest.raises(mm.StructureError, match=words):
            mm.as_model(model)


# Graphs of nodes --------------------------------------------------------------------------------------------------


class Node:
    def __init__(self, scope, children=(), weights=None, **given):
        self.scope, self.children, self.weights = list(scope), list(children), weights
        vars(self).update(given)

    def value(self, rows):
        parts = [child.value(rows) for child in self.children]
        kind = type(self).__name__
        if kind == "Sum":
            return np.tensordot(np.asarray(self.weights, dtype=float), np.array(parts), 1)
        return np.prod(parts, axis=0) if kind == "Product" else self.probability(rows)

    def probability(self, rows):
        """The probability of each row; a value that the leaf does not have is impossible."""
        if hasattr(self, "tree"):
            tables = np.exp(self.log_factors) if hasattr(self, "log_factors") else np.exp(self.params).swapaxes(1, 2)
            tables = np.pad(tables, ((0, 0), (0, 9), (0, 9)))
            made = np.ones(len(rows))
            for i, parent in enumerate(self.tree):
                made = made * tables[i, rows[:, self.scope[i]], rows[:, self.scope[parent]] if parent >= 0 else 0]
            return made
        table = np.zeros(10)
        if hasattr(self, "categories"):
            table[self.categories] = self.probabilities
        elif hasattr(self, "breaks"):
            table[self.breaks[:-1]] = self.densities
        elif type(self).__name__ == "Bernoulli":
            table[:2] = 1 - self.p, self.p
        else:
            values = self.p.items() if isinstance(self.p, dict) else enumerate(self.p)
            for value, probability in values:
                table[value] = probability
        return table[rows[:, self.scope[0]]]


def node_classes(module):
    names = (
        *("Sum", "Product", "Bernoulli", "Categorical", "CategoricalDictionary", "Gaussian", "Histogram", "CLTree"),
        *("BinaryCLT", "Poisson"),
    )
    made = {name: type(name, (Node,), {}) for name in names}
    fake(module, **made)
    return made


SPN, DEEPROB = node_classes("spn.structure.Base"), node_classes("deeprob.spn.structure.node")


def spn_leaf(rng, variable):
    sort = int(rng.integers(4))
    if sort == 0:
        return SPN["Bernoulli"]([variable], p=float(rng.random()))
    if sort == 1:
        return SPN["Categorical"]([variable], p=simplex(rng, int(rng.integers(2, 4))).tolist())
    if sort == 2:
        values = rng.permutation(4)[:2].tolist()
        return SPN["CategoricalDictionary"]([variable], p=dict(zip(values, simplex(rng, 2).tolist(), strict=True)))
    return SPN["Histogram"]([variable], breaks=[0, 1, 2, 3], densities=simplex(rng, 3).tolist())


def spn_tree(rng):
    tables = simplex(rng, 3, 2, 2).swapaxes(1, 2)
    return SPN["CLTree"]([3, 1, 0], tree=[-1, 0, 1], log_factors=np.log(tables).tolist())


def deeprob_leaf(rng, variable):
    if rng.random() < 0.5:
        return DEEPROB["Bernoulli"]([variable], p=float(rng.random()))
    size = int(rng.integers(2, 4))
    return DEEPROB["Categorical"]([variable], categories=rng.permutation(size), probabilities=simplex(rng, size))


def deeprob_tree(rng):
    return DEEPROB["BinaryCLT"]([3, 1, 0], tree=np.array([1, -1, 1]), params=np.log(simplex(rng, 3, 2, 2)))


def graph(rng, classes, leaf, tree):
    """A sum over products of leaves that share some, one of them with a Chow-Liu tree."""
    shared = [leaf(rng, v) for v in range(4)]
    parts = [classes["Product"](range(4), [leaf(rng, v) if rng.random() < 0.5 else shared[v] for v in range(4)])]
    parts += [classes["Product"](range(4), [tree(rng), leaf(rng, 2)])]
    pair = classes["Sum"](
        [0, 1], [classes["Product"]([0, 1], [leaf(rng, 0), leaf(rng, 1)]) for _ in range(2)], [0.25, 0.75]
    )
    parts += [classes["Product"](range(4), [pair, *shared[2:]])]
    return classes["Sum"](range(4), parts, simplex(rng, 3))


@pytest.mark.parametrize("seed", range(12))
def test_nodes_of_spflow(seed):
    model = graph(np.random.default_rng(seed), SPN, spn_leaf, spn_tree)
    compare(mm.as_model(model), model)


@pytest.mark.parametrize("seed", range(12))
def test_nodes_of_deeprob(seed):
    model = graph(np.random.default_rng(seed), DEEPROB, deeprob_leaf, deeprob_tree)
    model.value = lambda rows: Node.value(model, rows)
    compare(mm.from_deeprob(model), model)


def test_a_deep_graph_of_nodes():
    node = SPN["Bernoulli"]([0], p=0.5)
    for depth in range(5000):
        node = SPN["Sum"]([0], [node, SPN["Bernoulli"]([0], p=depth / 5000)], [0.5, 0.5])
    circuit = mm.as_model(node)
    assert circuit.depth == 5000
    rows = np.array([[0], [1]])
    assert np.exp(mm.log_likelihood(circuit, rows)).sum() == pytest.approx(1.0)


def test_refusals_of_nodes():
    coin = SPN["Bernoulli"]([0], p=0.5)
    loop = SPN["Sum"]([0], [coin], [1.0])
    loop.children.append(loop)
    refused = [
        (SPN["Poisson"]([2]), r"Poisson leaf of SPFlow over variables \[2\] cannot be read: known are Bernoulli"),
        (SPN["Sum"]([0], [coin, coin], [1.5, -0.5]), "a Sum of SPFlow has a negative weight"),
        (SPN["Sum"]([0], [coin, coin], [1.0]), "has 2 children and 1 weights"),
        (SPN["Product"]([0], []), "has no leaves over variables"),
        (SPN["Product"]([0], [coin, SPN["Sum"]([1], [], [])]), "a Sum of SPFlow over variables .1. has no children"),
        (SPN["Sum"]([0], [coin, SPN["Gaussian"]([0], mean=0.0, stdev=1.0)], [0.5, 0.5]), "one is discrete and one"),
        (SPN["Bernoulli"]([0], p=None), "has no parameters: learn or set them first"),
        (SPN["CategoricalDictionary"]([0], p={0.5: 1.0}), "values other than 0, 1, 2"),
        (SPN["CategoricalDictionary"]([0], p={1 << 40: 1.0}), "1048576 values are the most"),
        (SPN["Histogram"]([0], breaks=[0.0, 0.5, 1.5], densities=[1.0, 0.5]), "density of a continuous variable"),
        (SPN["CLTree"]([0, 1], tree=[1, 0], log_factors=np.zeros((2, 2, 2))), "has a cycle|one root"),
        (SPN["CLTree"]([0, 1], tree=[-1, -1], log_factors=np.zeros((2, 2, 2))), "one root"),
        (loop, "a Sum lies below itself"),
        (DEEPROB["Sum"]([0], [coin], None), "learn it first"),
        (DEEPROB["BinaryCLT"]([0, 1], tree=None, params=None), "has no parameters"),
    ]
    for model, words in refused:
        with pytest.raises(mm.StructureError, match=words):
            mm.as_model(model)

    class RatSpn:
        pass

    fake("deeprob.spn.models.ratspn", RatSpn=RatSpn)
    with pytest.raises(mm.StructureError, match="RatSpn of deeprob-kit is no node"):
        mm.as_model(RatSpn())


# pomegranate ------------------------------------------------------------------------------------------------------


def distribution(name, probs):
    made = type(name, (), {"probs": probs})
    made.__module__ = "pomegranate.distributions"
    return made()


class BayesianNetwork:
    def __init__(self, distributions, parents):
        self.distributions, self._parents = distributions, parents


class FactorGraph:
    def __init__(self, factors, edges, marginals):
        self.factors, self._factor_edges, self.marginals = factors, edges, marginals


class DenseHMM:
    pass


fake("pomegranate", BayesianNetwork=BayesianNetwork, FactorGraph=FactorGraph, DenseHMM=DenseHMM)


def test_pomegranate():
    rng = np.random.default_rng(0)
    a, b = simplex(rng, 1, 2), simplex(rng, 1, 3)
    c = simplex(rng, 3, 2, 4)  # given b and a
    model = BayesianNetwork(
        [
            distribution("Categorical", Tensor(a.astype(np.float32))),
            distribution("Categorical", Tensor(b)),
            distribution("ConditionalCategorical", [Tensor(c)]),
        ],
        [(), (), (1, 0)],
    )
    network = mm.from_pomegranate(model, ["a", "b", "c"])
    assert network.parents("c") == ("b", "a")
    rows = np.array([[x, y, z] for x in range(2) for y in range(3) for z in range(4)])
    expected = a[0, rows[:, 0]] * b[0, rows[:, 1]] * c[rows[:, 1], rows[:, 0], rows[:, 2]]
    assert np.exp(mm.log_likelihood(network, rows)) == pytest.approx(expected, rel=1e-6)
    best = rows[expected.argmax()]
    assert list(mm.mpe(model).state.values()) == best.tolist()
    joint = simplex(rng, 2, 3) / 2
    graph = FactorGraph([distribution("JointCategorical", Tensor(joint.T))], [[1, 0]], [distribution("Categorical", a)])
    network = mm.as_model(graph)
    rows = rows[::4, :2]
    values = joint[rows[:, 0], rows[:, 1]] * a[0, rows[:, 0]]
    # A Markov network is divided by nothing: its likelihood is the product of its factors.
    assert mm.log_marginal(network) == pytest.approx(math.log(values.sum()))
    assert list(mm.mpe(graph).state.values()) == rows[values.argmax()].tolist()


def test_pomegranate_refusals():
    rng = np.random.default_rng(0)
    refused = [
        (DenseHMM(), "a DenseHMM of pomegranate is no network"),
        (BayesianNetwork([], []), "has no distributions: fit it first"),
        (BayesianNetwork([distribution("Normal", None)], [()]), "a Normal of pomegranate over columns .* is no table"),
        (BayesianNetwork([distribution("Categorical", None)], [()]), "has no probabilities: fit the model first"),
        (BayesianNetwork([distribution("Categorical", simplex(rng, 2, 3))], [()]), "table of 2 axes, and 1 variables"),
        (
            BayesianNetwork(
                [
                    distribution("Categorical", simplex(rng, 1, 2)),
                    distribution("ConditionalCategorical", [simplex(rng, 3, 2)]),
                ],
                [(), (0,)],
            ),
            "different numbers of values for column 0",
        ),
        (
            BayesianNetwork([distribution("ConditionalCategorical", [simplex(rng, 2, 2)])] * 2, [(1,), (0,)]),
            "the network has a cycle",
        ),
    ]
    for model, words in refused:
        with pytest.raises(mm.StructureError, match=words):
            mm.as_model(model)
