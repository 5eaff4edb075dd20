"""The yardstick itself, against numbers worked out by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest

import naive
from circuits import SORTS, random_circuit, running_example
from margmap import Variable, binomial, categorical, circuit_of, gaussian


def test_running_example_by_hand():
    c = running_example()
    ranked = naive.marginal_map(c, [0, 1])
    assert [q for _, q in ranked] == [(1, 1), (0, 1), (1, 0), (0, 0)]
    assert [p for p, _ in ranked] == pytest.approx([0.378, 0.256, 0.222, 0.144], rel=1e-14)
    assert naive.probability(c) == pytest.approx(1, rel=1e-14)
    # X3 = 0 leaves 0.6 * 0.3 and 0.4 * 0.2, both with X2 = 0.
    assert naive.marginal_map(c, [0], {2: 0})[0] == (pytest.approx(0.18), (1,))
    assert naive.probability(c, {1: 1, 2: 0}) == 0
    assert naive.posteriors(c, {2: 0}) == {0: pytest.approx([0.08 / 0.26, 0.18 / 0.26]), 1: pytest.approx([1, 0])}


def test_joint_lists_every_state():
    c = running_example()
    pairs = naive.joint(c)
    assert len(pairs) == 8
    assert {s: p for p, s in pairs}[(1, 0, 1)] == pytest.approx(0.6 * 0.7 * 0.1)
    assert [s for _, s in naive.joint(c, {0: 1, 2: 0})] == [(1, 0, 0), (1, 1, 0)]


def test_log_likelihood_of_a_row_with_missing_entries():
    c = running_example()
    assert naive.log_likelihood(c, [1, 1, 1]) == pytest.approx(math.log(0.378))
    assert naive.log_likelihood(c, [1, None, None]) == pytest.approx(math.log(0.6))
    assert naive.log_likelihood(c, [None, None, None]) == pytest.approx(0, abs=1e-15)
    assert naive.log_likelihood(c, [1, 1, 0]) == -math.inf


def test_categorical_and_binomial_leaves():
    a, b = Variable("a", 3), Variable("b", 4)
    c = circuit_of(categorical(a, [0.2, 0.5, 0.3]) * binomial(b, 3, 0.3))
    assert naive.probability(c, {0: 2, 1: 1}) == pytest.approx(0.3 * 3 * 0.3 * 0.7**2)
    assert naive.marginal_map(c, [1, 0])[0] == (pytest.approx(0.5 * 3 * 0.3 * 0.7**2), (1, 1))
    assert naive.marginal_map(c, [0, 1])[-1] == (pytest.approx(0.2 * 0.3**3), (0, 3))


def test_gaussian_leaves():
    x, z = Variable("x", 0), Variable("z")
    c = circuit_of(0.5 * z[0] * gaussian(x, 0, 1) + 0.5 * z[1] * gaussian(x, 4, 2))
    assert naive.probability(c) == 1
    at_zero, at_one = 1 / math.sqrt(2 * math.pi), math.exp(-2) / (2 * math.sqrt(2 * math.pi))
    z_column = [v.name for v in c.variables].index("z")
    pairs = naive.marginal_map(c, [z_column], {1 - z_column: 0.0})
    assert pairs == [(pytest.approx(0.5 * at_zero), (0,)), (pytest.approx(0.5 * at_one), (1,))]
    # A half-and-half mixture of N(0, 1) and N(4, 2): mean 2, E x^2 = (1 + 20) / 2.
    assert naive.posteriors(c)[1 - z_column] == pytest.approx([2, math.sqrt(10.5 - 4)])


def test_exact_is_exact():
    c = running_example()
    best, state = naive.marginal_map(c, [0, 1], exact=True)[0]
    weights = [math.exp(math.log(w)) for w in (0.6, 0.7, 0.9)]
    assert state == (1, 1)
    assert best == math.prod(map(Fraction, weights))
    assert naive.optimum(c, [0, 1]) == best
    assert naive.log(best) == pytest.approx(math.log(0.378), rel=1e-14)
    assert naive.log(Fraction(0)) == -math.inf


def test_optimum_tells_near_ties_apart():
    x = Variable("x")
    c = circuit_of(0.5 * x[0] + (0.5 + 1e-15) * x[1])
    assert naive.optimum(c, [0]) == max(Fraction(math.exp(math.log(w))) for w in (0.5, 0.5 + 1e-15))


@pytest.mark.parametrize("sort", SORTS)
def test_exact_and_float_agree(sort):
    for seed in range(5):
        c = random_circuit(np.random.default_rng(seed), **SORTS[sort])
        query = [i for i in naive.mentioned(c) if not c.variables[i].continuous][:3]
        exact = naive.marginal_map(c, query, exact=True)
        assert float(exact[0][0]) == pytest.approx(naive.marginal_map(c, query)[0][0], rel=1e-12)
        assert naive.optimum(c, query) == exact[0][0]
