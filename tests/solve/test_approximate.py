"""The approximate methods: a real state, its own value, and what each of them is by its definition."""

import math

import numpy as np
import pytest

import margmap as mm
from margmap.circuit import PRODUCT, SUM
from margmap.solve.approximate import APPROXIMATIONS
from margmap.solve.reduce import reduce
from problems import SORTS, make

every_method = pytest.mark.parametrize("method", APPROXIMATIONS)


def value_at(flat, n, state):
    """The value of a node under a state, by plain recursion."""
    edges = range(flat.start[n], flat.start[n + 1])
    if flat.kind[n] == SUM:
        return sum(flat.weight[e] * value_at(flat, flat.child[e], state) for e in edges)
    if flat.kind[n] == PRODUCT:
        return math.prod(value_at(flat, flat.child[e], state) for e in edges)
    return float(state[flat.var[n]] == flat.value[n])


def plain_argmax_product(flat, n):
    """The state that a node hands up."""
    if flat.start[n] == flat.start[n + 1]:
        return {int(flat.var[n]): int(flat.value[n])}
    states = [plain_argmax_product(flat, c) for c in flat.child[flat.start[n] : flat.start[n + 1]]]
    if flat.kind[n] == SUM:
        return max(states, key=lambda state: value_at(flat, n, state))
    return {v: x for state in states for v, x in state.items()}


def plain_greedy(p):
    """The most likely literal given all before it, again and again."""
    state = {}
    while len(state) < len(p.query):
        best = -math.inf
        for v in set(p.query) - set(state):
            variable = p.circuit.variables[p.circuit.index(v)]
            for x in range(variable.cardinality):
                value = mm.log_marginal(p.circuit, {**p.evidence, **state, v: variable.label(x)})
                if value > best + 1e-12:
                    best, literal = value, (v, variable.label(x))
        state[literal[0]] = literal[1]
    return state


@every_method
@pytest.mark.parametrize("sort", SORTS)
def test_a_real_state_with_its_own_value_never_above_the_optimum(sort, method):
    for seed in range(6000, 6010):
        p = make(sort, seed)
        a = mm.approximate(p.circuit, p.query, p.evidence, method)
        p.codes(a.state)
        assert a.log_prob == pytest.approx(mm.log_marginal(p.circuit, {**p.evidence, **a.state}), rel=1e-12)
        assert -math.inf < a.log_prob <= p.best + 1e-11 * max(1.0, abs(p.best)), p.name
        assert a.log_conditional == pytest.approx(a.log_prob - mm.log_marginal(p.circuit, p.evidence), abs=1e-9)
        assert a.method == method


@pytest.mark.parametrize("sort", SORTS)
def test_more_trees_are_no_worse_and_all_of_them_are_exact(sort):
    for seed in range(6020, 6030):
        p = make(sort, seed)
        one = mm.approximate(p.circuit, p.query, p.evidence, "best_tree").log_prob
        few = mm.approximate(p.circuit, p.query, p.evidence, "k_best_tree", k=5).log_prob
        beam = mm.approximate(p.circuit, p.query, p.evidence, "beam", k=5).log_prob
        assert one <= few + 1e-12 * abs(one)
        assert few <= beam + 1e-12 * abs(few)
        reduced = reduce(p.circuit, p.query, p.evidence)
        terms = count_terms(reduced.flat)
        if terms <= 3000:
            every = mm.approximate(p.circuit, p.query, p.evidence, "k_best_tree", k=terms)
            assert every.log_prob == pytest.approx(p.best, rel=1e-12, abs=1e-12), p.name


def count_terms(flat):
    """How many terms the polynomial has, written out."""
    terms = [1] * flat.num_nodes
    for n in range(flat.num_nodes):
        below = [terms[c] for c in flat.child[flat.start[n] : flat.start[n + 1]]]
        if below:
            terms[n] = sum(below) if flat.kind[n] == SUM else math.prod(below)
    return terms[-1]


@pytest.mark.parametrize("sort", ["structured", "dense", "many values, unstructured", "latent tree", "coins"])
def test_greedy_and_argmax_product_are_what_they_are_called(sort):
    for seed in range(6040, 6050):
        p = make(sort, seed)
        reduced = reduce(p.circuit, p.query, p.evidence)
        state = plain_argmax_product(reduced.flat, reduced.num_nodes - 1)
        expected = math.log(value_at(reduced.flat, reduced.num_nodes - 1, state)) + reduced.log_scale
        found = mm.approximate(p.circuit, p.query, p.evidence, "argmax_product").log_prob
        assert found == pytest.approx(expected, rel=1e-12), p.name
        expected = mm.log_marginal(p.circuit, {**p.evidence, **plain_greedy(p)})
        found = mm.approximate(p.circuit, p.query, p.evidence, "naive_greedy").log_prob
        assert found == pytest.approx(expected, rel=1e-12), p.name


@every_method
def test_values_below_the_smallest_float(method):
    x = [mm.Variable(i) for i in range(1200)]
    formula = mm.bernoulli(x[0], 0.55)
    for v in x[1:]:
        formula = formula * (0.5 * mm.bernoulli(v, 0.52) + 0.5 * mm.bernoulli(v, 0.54))
    a = mm.approximate(mm.circuit_of(formula), None, method=method)
    assert set(a.state.values()) == {1}
    assert a.log_prob == pytest.approx(math.log(0.55) + 1199 * math.log(0.53), rel=1e-12)


def test_nothing_asked_and_wrong_questions():
    a = mm.Variable("a")
    c = mm.circuit_of(mm.bernoulli(a, 0.3))
    assert mm.approximate(c, [], {"a": 1}).state == {}
    with pytest.raises(mm.QueryError, match="unknown method 'best'"):
        mm.approximate(c, ["a"], method="best")
    with pytest.raises(mm.QueryError, match="no option 'width'"):
        mm.approximate(c, ["a"], method="beam", width=3)
    with pytest.raises(mm.QueryError, match="k=0"):
        mm.approximate(c, ["a"], method="beam", k=0)
    with pytest.raises(mm.QueryError, match="no option 'k'"):
        mm.approximate(c, ["a"], method="best_tree", k=3)
    with pytest.raises(mm.ImpossibleEvidenceError):
        mm.approximate(mm.circuit_of(a[0] * mm.bernoulli(mm.Variable("b"), 0.5)), ["b"], {"a": 1})


def test_states_keep_their_labels():
    season = mm.Variable("season", 3, states=("spring", "summer", "winter"))
    c = mm.circuit_of(mm.categorical(season, [0.2, 0.5, 0.3]))
    assert mm.approximate(c, None).state == {"season": "summer"}
    assert isinstance(mm.approximate(c, None).log_prob, float)
    assert np.isclose(mm.approximate(c, None).log_prob, math.log(0.5))
