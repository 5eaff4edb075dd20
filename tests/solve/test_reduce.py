"""The reduced circuit: p(q | e) and nothing else."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings

import naive
from circuits import SORTS, columns, fixed, instances, random_circuit, random_instance, running_example
from margmap import ImpossibleEvidenceError, QueryError, Variable, bernoulli, circuit_of, gaussian
from margmap.circuit import BERNOULLI, CATEGORICAL, INDICATOR, PRODUCT, SUM, Circuit, Parts, assemble
from margmap.circuit.builder import Arrays
from margmap.circuit.layers import Layers
from margmap.inference.passes import forward, forward_nodes
from margmap.inference.scaled import scaled
from margmap.solve.reduce import reduce, reduce_codes

A, B, G = Variable("a"), Variable("b", 3), Variable("g", 0)
LEAF = 0  # kind of an indicator in the reduced circuit


def flat_values(flat, states):
    """The value of every node under each state, in plain Python."""
    values = []
    for n in range(len(flat.kind)):
        edges = range(flat.start[n], flat.start[n + 1])
        below = [values[flat.child[e]] for e in edges]
        if flat.kind[n] == LEAF:
            values.append([float(state[flat.var[n]] == flat.value[n]) for state in states])
        elif flat.kind[n] == PRODUCT:
            values.append([math.prod(column) for column in zip(*below, strict=True)])
        else:
            weights = [flat.weight[e] if flat.weight[e] >= 0 else 2.0 ** flat.weight[e] for e in edges]
            values.append(
                [math.fsum(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*below, strict=True)]
            )
    return values


def check_reduced(c, query, evidence):
    r = reduce(c, query, evidence)
    asked, given_ = columns(c, query), fixed(c, evidence)
    f = r.flat

    # The numbers.
    evidence_probability = naive.probability(c, given_)
    assert r.log_scale == pytest.approx(naive.log(evidence_probability), rel=1e-10, abs=1e-10)
    assert r.cardinality.tolist() == [c.variables[i].cardinality for i in asked]
    states = list(itertools.product(*(range(k) for k in r.cardinality)))
    values = flat_values(f, states)
    expected = {q: p / evidence_probability for p, q in naive.marginal_map(c, asked, given_)}
    assert values[-1] == pytest.approx([expected[s] for s in states], rel=1e-9, abs=1e-290)

    # The shape.
    n = r.num_nodes
    assert len(f.start) == n + 1
    assert r.num_edges == f.start[-1] == len(f.child) == len(f.weight)
    scopes, seen, reached = [], set(), {n - 1}
    for i in range(n):
        below = f.child[f.start[i] : f.start[i + 1]].tolist()
        weights = f.weight[f.start[i] : f.start[i + 1]].tolist()
        if f.kind[i] == LEAF:
            assert below == []
            assert 0 <= f.value[i] < r.cardinality[f.var[i]]
            scopes.append({int(f.var[i])})
        else:
            assert f.kind[i] in (PRODUCT, SUM)
            assert len(below) > 1, "a node with one child is that child"
            assert len(set(below)) == len(below), "children with the same target are merged"
            assert max(below) < i
            assert (f.var[i], f.value[i]) == (-1, -1)
            assert weights == [1.0] * len(below) if f.kind[i] == PRODUCT else min(weights) > 0
            scopes.append(set().union(*(scopes[b] for b in below)))
            sizes = [len(scopes[b]) for b in below]
            assert len(scopes[i]) == (sum(sizes) if f.kind[i] == PRODUCT else min(sizes))
        key = (int(f.kind[i]), int(f.var[i]), int(f.value[i]), tuple(below), tuple(weights))
        assert key not in seen, "equal nodes are shared"
        seen.add(key)
        others = math.prod(k for q, k in enumerate(r.cardinality.tolist()) if q not in scopes[i])
        assert math.fsum(values[i]) / others == pytest.approx(1, rel=1e-9)
    for i in range(n - 1, -1, -1):
        if i in reached:
            reached.update(f.child[f.start[i] : f.start[i + 1]].tolist())
    assert reached == set(range(n)), "every node is below the root"


@pytest.mark.parametrize("sort", SORTS)
def test_equals_enumeration(sort):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        c = random_circuit(rng, **SORTS[sort])
        check_reduced(c, *random_instance(rng, c))


@pytest.mark.parametrize("sort", SORTS)
def test_a_state_is_scored_from_what_the_root_needs_to_the_last_bit(sort):
    """As by a pass over all nodes, also for several states in a row."""
    scored = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        c = random_circuit(rng, **SORTS[sort])
        query, evidence = random_instance(rng, c)
        scored += check_scores(c, query, evidence, rng)
    assert scored > 10 or sort == "dense"


def check_scores(c, query, evidence, rng):
    codes, reals = c.evidence_codes(evidence)
    reduced = reduce_codes(c, columns(c, query), codes, reals)
    if reduced.needed is None:
        return 0
    s, full = scaled(c), (np.empty(c.num_nodes), np.empty(c.num_nodes))
    for _ in range(3):
        codes[columns(c, query)] = (rng.random(len(query)) * reduced.cardinality).astype(np.int32)
        everything = np.arange(c.num_nodes, dtype=np.int32)
        forward_nodes(s, None, everything, codes, reals, *full)
        assert reduced.needed.root_with(s, codes, reals) == (full[0][-1], full[1][-1])
        again = np.empty(c.num_nodes), np.empty(c.num_nodes)
        forward(s, codes, reals, *again)
        assert np.array_equal(again, full)
    return 1


@settings(max_examples=150)
@given(instances())
def test_equals_enumeration_shrinking(instance):
    check_reduced(*instance)


@settings(max_examples=100)
@given(instances(possible=False))
def test_impossible_evidence_is_refused_and_only_that(instance):
    c, query, evidence = instance
    if naive.probability(c, fixed(c, evidence)) > 0:
        check_reduced(c, query, evidence)
    else:
        with pytest.raises(ImpossibleEvidenceError, match="the evidence has probability 0"):
            reduce(c, query, evidence)


def test_running_example():
    r = reduce(running_example(), ["X1", "X2"])
    assert r.log_scale == pytest.approx(0, abs=1e-15)
    assert flat_values(r.flat, [(1, 1), (1, 0), (0, 1), (0, 0)])[-1] == pytest.approx([0.378, 0.222, 0.256, 0.144])
    r = reduce(running_example(), ["X1"], {"X3": 0})
    assert math.exp(r.log_scale) == pytest.approx(0.26)
    assert (r.num_nodes, r.num_edges) == (3, 2)
    assert dict(zip(r.flat.value[r.flat.child].tolist(), r.flat.weight, strict=True)) == pytest.approx(
        {1: 9 / 13, 0: 4 / 13}
    )


def test_query_order_is_kept():
    c = running_example()
    r = reduce(c, ["X2", "X1"])
    assert flat_values(r.flat, [(0, 1)])[-1] == pytest.approx([0.222])


def test_no_query_means_all_that_is_mentioned_and_not_observed():
    c = circuit_of(bernoulli(A, 0.3) * gaussian(G, 0, 1) * B[1], [Variable("unused"), B, G, A])
    assert reduce(c, None, {"g": 0.5}).cardinality.tolist() == [3, 2]
    assert reduce(c, None, {"g": 0.5, "b": 1}).cardinality.tolist() == [2]
    with pytest.raises(QueryError, match="observe the continuous g, or give the query"):
        reduce(c, None, {"b": 1})
    with pytest.raises(ImpossibleEvidenceError):
        reduce(c, None, {"g": 0.5, "b": 0})


def test_empty_query():
    r = reduce(running_example(), [], {"X1": 1})
    assert (r.num_nodes, r.num_edges) == (0, 0)
    assert math.exp(r.log_scale) == pytest.approx(0.6)


def test_hidden_mixtures_fold_into_one_node():
    """Components that differ only in what they say of hidden variables are one after reduction."""
    h = Variable("h", 5)
    shared = bernoulli(A, 0.25)
    c = circuit_of(sum((i + 1) / 15 * h[i] * shared for i in range(5)))
    r = reduce(c, ["a"])
    assert (r.num_nodes, r.num_edges) == (3, 2)
    assert sorted(r.flat.weight) == pytest.approx([0.25, 0.75])


def test_equal_distributions_of_different_kinds_are_shared():
    c = circuit_of(0.5 * bernoulli(A, 0.5) * B[0] + 0.5 * (0.5 * A[0] + 0.5 * A[1]) * B[1])
    r = reduce(c, ["a"])
    assert (r.num_nodes, r.num_edges) == (3, 2)


def tiny(low):
    parts = Parts.new()
    leaves = [parts.leaf(INDICATOR, 0, [float(x)]) for x in range(2)]
    b = [parts.leaf(BERNOULLI, 1, [math.log(p), math.log1p(-p)]) for p in (0.5, 0.2)]
    parts.sum([parts.product(list(pair)) for pair in zip(leaves, b, strict=True)], [0.0, low])
    return assemble([Variable("a"), Variable("b")], parts)


def test_weights_below_the_smallest_float():
    r = reduce(tiny(-800.0), ["b"], {"a": 1})
    assert r.log_scale == pytest.approx(-800, rel=1e-12)
    assert flat_values(r.flat, [(0,), (1,)])[-1] == pytest.approx([0.8, 0.2])


def only_weight(flat):
    """The one weight that is kept as its logarithm, in nats."""
    (weight,) = flat.weight[flat.weight < 0]
    return weight * math.log(2)


@pytest.mark.parametrize("low", [-400.0, -700.0, -800.0, -1e5, -1e12])
def test_weights_too_small_for_a_double_are_kept_as_logarithms(low):
    r = reduce(tiny(low), ["a", "b"])
    assert flat_values(r.flat, [(0, 0)])[-1] == pytest.approx([0.5])
    assert only_weight(r.flat) == pytest.approx(low, rel=1e-14)
    assert only_weight(r.flat) >= low


@pytest.mark.parametrize("low", [-720.0, -800.0, -1e5])
def test_leaf_values_too_small_for_a_double_are_kept(low):
    """As a logarithm where the variable is asked for, and as part of log p(e) where it is evidence."""
    parts = Parts.new()
    b = parts.leaf(CATEGORICAL, 1, [0.0, low, -math.inf])
    parts.product([parts.leaf(BERNOULLI, 0, [math.log(0.3), math.log(0.7)]), b])
    c = assemble([Variable("a"), Variable("b", 3)], parts)
    r = reduce(c, ["a", "b"])
    assert flat_values(r.flat, [(0, 0), (0, 1), (0, 2)])[-1] == pytest.approx([0.7, 0, 0])
    assert only_weight(r.flat) == pytest.approx(low, rel=1e-14)
    assert (reduce(c, ["a"]).flat.weight > 0).all()
    r = reduce(c, ["a"], {"b": 1})
    assert r.log_scale == pytest.approx(low, rel=1e-14)
    assert flat_values(r.flat, [(0,), (1,)])[-1] == pytest.approx([0.7, 0.3])
    with pytest.raises(ImpossibleEvidenceError):
        reduce(c, ["a"], {"b": 2})


def test_evidence_below_the_smallest_float():
    n = 2000
    parts = Parts.new()
    components = []
    for x, p in ((0, 1e-3), (1, 1.001e-3)):
        leaves = [parts.leaf(BERNOULLI, i, [math.log(p), math.log1p(-p)]) for i in range(n)]
        components.append(parts.product([*leaves, parts.leaf(INDICATOR, n, [float(x)])]))
    parts.sum(components, [math.log(0.9), math.log(0.1)])
    c = assemble([Variable(i) for i in range(n + 1)], parts)
    r = reduce(c, [n], dict.fromkeys(range(n), 1))
    left, right = math.log(0.9) + n * math.log(1e-3), math.log(0.1) + n * math.log(1.001e-3)
    assert r.log_scale == pytest.approx(np.logaddexp(left, right), rel=1e-12)
    assert check_scores(c, [n], dict.fromkeys(range(n), 1), np.random.default_rng(0))
    assert check_scores(c, list(range(n)), {n: 1}, np.random.default_rng(0))  # the state alone is below it
    assert flat_values(r.flat, [(1,)])[-1] == pytest.approx([1 / (1 + math.exp(left - right))], rel=1e-8)


@pytest.mark.parametrize(
    ("query", "evidence", "message"),
    [
        (["X1"], {"X1": 0}, "variable 'X1' is both queried and observed"),
        (["X1", "X1"], {}, "variable 'X1' is queried twice"),
        (["Y"], {}, "unknown variable 'Y': the circuit has X1, X2, X3"),
        (["X1"], {"Y": 0}, "unknown variable 'Y': the circuit has X1, X2, X3"),
        (["X1"], {"X2": 5}, "variable 'X2': value 5 is out of range 0 to 1"),
        ("X1", {}, r"query='X1': one text .* give a list of variables, such as query=\['X1'\]"),
        (3, {}, r"query=3 is of type int: give a list of variables, such as query=\[3\]"),
    ],
)
def test_refused(query, evidence, message):
    with pytest.raises(QueryError, match=message):
        reduce(running_example(), query, evidence)


def test_continuous_query():
    c = circuit_of(bernoulli(A, 0.3) * gaussian(G, 0, 1))
    with pytest.raises(QueryError, match="variable 'g' is continuous: only discrete variables can be queried"):
        reduce(c, ["a", "g"])


def test_unmentioned_query():
    with pytest.raises(QueryError, match="variable 'b' is queried, but no leaf of the circuit mentions it"):
        reduce(circuit_of(bernoulli(A, 0.3), [A, B]), ["b"])


def test_does_not_touch_the_circuit():
    c = random_circuit(np.random.default_rng(3))
    before = [getattr(c, name).tolist() for name in ("kind", "child", "log_weight", "param")]
    reduce(c, None)
    assert [getattr(c, name).tolist() for name in ("kind", "child", "log_weight", "param")] == before


def dense_circuit(rng, width=9, values=3, tiny=False):
    """Two layers of sums over the same products, some leaves equal, some weights 0 or beyond doubles."""
    layers = Layers()

    def logs(*shape):
        drawn = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
        drawn[rng.random(shape) < 0.1 * (rng.random() < 0.5)] = 0.0
        with np.errstate(divide="ignore"):
            drawn = np.log(drawn)
        return drawn - 900.0 * (rng.random(shape) < 0.1) if tiny else drawn

    def leaves(column):
        made = layers.leaves(CATEGORICAL, column, logs(width, values))
        return made[rng.integers(0, width, width)] if rng.random() < 0.5 else made

    def product(first, second):
        return layers.products(np.stack((first, second), axis=-1))

    inner = layers.sums(product(leaves(0), leaves(1)), logs(width, width))
    other = layers.sums(leaves(2), logs(width, width))
    root = layers.sums(product(inner, other), logs(1, width))
    return layers.circuit([Variable(i, values) for i in range(3)], int(root[0]))


@pytest.mark.parametrize("tiny", [False, True])
def test_dense_blocks(tiny, monkeypatch):
    """Reduced with the blocks, without them being known, and edge by edge: the same circuit, and the right one.

    The rows of a block are added up in an order of their own, so that weights may differ in their last digits.
    """

    def reduced(circuit, dense):
        again = Circuit(
            circuit.variables, *(getattr(circuit, name) for name in Arrays._fields)
        )  # which keeps nothing of before
        monkeypatch.setattr("margmap.solve.reduce.is_dense", lambda _: dense is not None)
        if dense is False:
            scaled(again).rows[:] = -1
        return reduce(again, query, given_)

    blocks = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        c = dense_circuit(rng, tiny=tiny)
        given_ = {i: int(rng.integers(3)) for i in range(3) if rng.random() < 0.4}
        query = [i for i in range(3) if i not in given_ and rng.random() < 0.8]
        if not query or naive.probability(c, given_) == 0:
            continue
        blocks += int((scaled(c).rows >= 0).any())
        found = reduced(c, True)
        for expected in (reduced(c, False), reduced(c, None)):
            assert found.evidence == pytest.approx(expected.evidence, rel=1e-14)
            assert found.rounding == pytest.approx(expected.rounding, abs=1e-14)
            for array, other in zip(found.flat, expected.flat, strict=True):
                np.testing.assert_allclose(array, other, rtol=1e-13)
        if not tiny:
            check_reduced(c, query, given_)
    assert blocks > 20
