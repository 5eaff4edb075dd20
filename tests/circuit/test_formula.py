"""Circuits written as formulas."""

import doctest
import math
from fractions import Fraction

import numpy as np
import pytest

import naive
from circuits import running_example
from margmap import (
    QueryError,
    StructureError,
    Variable,
    bernoulli,
    binomial,
    categorical,
    circuit_of,
    gaussian,
    indicator,
)
from margmap.circuit import BERNOULLI, CATEGORICAL, INDICATOR, PRODUCT, SUM
from margmap.circuit import formula as expression

A, B, C = Variable("a"), Variable("b"), Variable("c", 3)


def test_docstring():
    assert doctest.testmod(expression).failed == 0
    assert doctest.testmod(expression).attempted > 0


def test_running_example():
    c = running_example()
    assert c.names == ("X1", "X2", "X3")
    assert c.properties[:3] == (True, True, True)
    assert naive.probability(c, {0: 1, 1: 1}) == pytest.approx(0.378)


def test_chains_are_one_node():
    c = circuit_of(A[0] * B[1] * C[2])
    assert c.kind.tolist() == [INDICATOR] * 3 + [PRODUCT]
    c = circuit_of(0.2 * C[0] + 0.3 * C[1] + 0.5 * C[2])
    assert c.kind.tolist() == [INDICATOR] * 3 + [SUM]
    assert np.exp(c.log_weight) == pytest.approx([0.2, 0.3, 0.5])


def test_sum_builtin():
    c = circuit_of(sum(w * C[i] for i, w in enumerate([0.2, 0.3, 0.5])))
    assert c.kind.tolist() == [INDICATOR] * 3 + [SUM]


def test_a_shared_expression_is_a_shared_node():
    b = bernoulli(B, 0.3)
    c = circuit_of(0.5 * A[0] * b + 0.5 * A[1] * b)
    assert (c.kind == BERNOULLI).sum() == 1
    c = circuit_of(0.5 * A[0] * bernoulli(B, 0.3) + 0.5 * A[1] * bernoulli(B, 0.3))
    assert (c.kind == BERNOULLI).sum() == 2


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        (A[1], 1.0),
        (3 * A[1], 3.0),
        (A[1] * 3, 3.0),
        (2 * (0.25 * A[1]), 0.5),
        (0.5 * (0.5 * A[1] + 0.5 * A[1]), 0.5),
        ((0.5 * A[1]) * (0.5 * B[1]), 0.25),
        (0.5 * (0.2 * A[1] + 0.8 * A[0]) * B[1], 0.1),
        (0.5 * A[1] + 0.5 * (0.5 * A[1] + 0.5 * A[0]), 0.75),
        (0 * A[1] + 0.25 * A[1], 0.25),
        (np.float64(0.5) * A[1], 0.5),
        (A[1] * np.float64(0.5), 0.5),
        *((scalar(0.5) * A[1], 0.5) for scalar in (np.float16, np.float32, np.longdouble, Fraction)),
        *((A[1] * scalar(0.5), 0.5) for scalar in (np.float16, np.float32, np.longdouble, Fraction)),
        *((scalar(2) * A[1] + A[0], 2.0) for scalar in (np.int8, np.int64, np.uint8)),
        *((A[1] * scalar(2) + A[0], 2.0) for scalar in (np.int8, np.int64, np.uint8)),
        (np.float32(0.5) * (A[1] * B[1]) * np.int64(3), 1.5),
        (np.float32(0.5) * (0.5 * A[1] + 0.5 * A[0]), 0.25),
    ],
)
def test_weights_multiply_through(formula, value):
    c = circuit_of(formula)
    assert naive.probability(c, dict.fromkeys(range(len(c.variables)), 1)) == pytest.approx(value, rel=1e-14)


def test_leaves():
    g = Variable("g", 0)
    c = circuit_of(bernoulli(A, 0.25) * categorical(C, [0.1, 0.2, 0.7]) * binomial(B, 1, 0.4) * gaussian(g, 1, 2))
    assert np.exp(c.param[:2]) == pytest.approx([0.25, 0.75])
    assert np.exp(c.param[2:5]) == pytest.approx([0.1, 0.2, 0.7])
    assert np.exp(c.param[6:8]) == pytest.approx([0.4, 0.6])
    assert c.param[5] == 1
    assert c.param[8:].tolist() == [1, 2]


def test_sure_and_impossible_probabilities():
    c = circuit_of(bernoulli(A, 1) * bernoulli(B, 0) * categorical(C, [0, 1, 0]))
    assert c.param.tolist() == [0, -math.inf, -math.inf, 0, -math.inf, 0, -math.inf]


def test_small_probabilities_keep_their_complement():
    c = circuit_of(bernoulli(A, 1e-20))
    assert c.param[1] == -1e-20


def test_indicator_by_state_name():
    light = Variable("light", 2, ("off", "on"))
    assert circuit_of(light["on"]).param.tolist() == [1]
    assert circuit_of(indicator(light, "off")).param.tolist() == [0]
    with pytest.raises(QueryError, match="no state 'dim'"):
        light["dim"]
    with pytest.raises(QueryError, match="its states are off, on"):
        light[1]


def test_order_of_variables():
    assert circuit_of(B[0] * A[0]).names == ("b", "a")
    assert circuit_of(B[0] * A[0], [A, B]).names == ("a", "b")
    unused = circuit_of(B[0] * A[0], [A, C, B])
    assert unused.names == ("a", "c", "b")
    assert unused.var[unused.kind == INDICATOR].tolist() == [2, 0]


def test_unlisted_variable():
    with pytest.raises(StructureError, match="variable 'b' is used but not listed"):
        circuit_of(A[0] * B[0], [A])


def test_two_variables_of_one_name():
    with pytest.raises(StructureError, match="variable 'a' is there twice"):
        circuit_of(A[0] * Variable("a", 3)[0])


@pytest.mark.parametrize("weight", [-1, -1e-300, math.nan, math.inf, -math.inf])
def test_bad_weights(weight):
    with pytest.raises(StructureError, match="is not a finite number of at least 0"):
        weight * A[0]


@pytest.mark.parametrize("weight", [1e-200, 1e200])
def test_weights_beyond_the_range_of_floats_together(weight):
    expected = pytest.approx(2 * math.log(weight), rel=1e-15)
    assert circuit_of(weight * (weight * A[0])).log_weight.tolist() == [expected]
    assert circuit_of((weight * A[0]) * (weight * B[0])).log_weight.tolist()[-1] == expected
    assert circuit_of(weight * (A[0] * weight) + A[1]).log_weight.tolist() == [expected, 0]


@pytest.mark.parametrize("weight", [True, False, np.True_, np.array([0.5]), np.array([1, 2]), 1j, np.complex64(1)])
def test_weights_that_are_no_real_numbers(weight):
    for multiply in (lambda: weight * A[0], lambda: A[0] * weight):
        with pytest.raises(TypeError, match="can be multiplied with a number or a circuit, not with"):
            multiply()


@pytest.mark.parametrize("other", [5, 0.5, None, "a", A, [A[0]], running_example()])
def test_a_circuit_of_something_else(other):
    with pytest.raises(StructureError, match=r"circuit_of takes an expression such as .*, not "):
        circuit_of(other)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_bad_probabilities(p):
    with pytest.raises(StructureError, match=f"variable 'a': {p} is not a probability"):
        bernoulli(A, p)
    with pytest.raises(StructureError, match="is not a probability"):
        binomial(A, 1, p)
    with pytest.raises(StructureError, match="is not a probability"):
        categorical(C, [p, 0.5, 0.5])


def test_probabilities_that_do_not_sum_to_one():
    with pytest.raises(StructureError, match=r"variable 'c': probabilities sum to 0\.9"):
        categorical(C, [0.2, 0.3, 0.4])


def test_leaves_that_do_not_fit_their_variable():
    with pytest.raises(StructureError, match="wrong number of parameters"):
        circuit_of(categorical(C, [0.5, 0.5]))
    with pytest.raises(StructureError, match="n trials need"):
        circuit_of(binomial(C, 5, 0.5))
    with pytest.raises(StructureError, match="two values"):
        circuit_of(bernoulli(C, 0.5))
    with pytest.raises(StructureError, match="deviation must be positive"):
        circuit_of(gaussian(Variable("g", 0), 0, 0))
    with pytest.raises(StructureError, match="cannot have a Gaussian leaf"):
        circuit_of(gaussian(A, 0, 1))


@pytest.mark.parametrize("other", [1, 0.5, "x", None, np.float64(1), np.int64(2), np.array([1, 2])])
def test_adding_something_else(other):
    for add in (lambda: A[0] + other, lambda: other + A[0]):
        with pytest.raises(TypeError, match="constant cannot be added"):
            add()


@pytest.mark.parametrize("other", ["x", None, [1]])
def test_multiplying_with_something_else(other):
    with pytest.raises(TypeError):
        A[0] * other


def test_deep_formulas_need_no_recursion():
    formula = 1.0 * A[0] + 1.0 * A[1]
    for _ in range(5000):
        formula = 0.5 * (formula * 1.0) + 0.5 * A[0]
    c = circuit_of(formula)
    assert c.depth > 4000
    formula = B[0]
    for _ in range(3000):
        formula = 1.0 * formula + 0 * B[1]
    assert circuit_of(A[0] * formula).num_nodes > 3


def test_expressions_are_frozen():
    leaf = categorical(C, [0.1, 0.2, 0.7])
    assert leaf.kind == CATEGORICAL
    with pytest.raises(AttributeError):
        leaf.kind = SUM
