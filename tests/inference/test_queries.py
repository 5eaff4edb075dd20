"""Likelihoods, marginals, posteriors and samples, against enumeration."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
from circuits import SORTS, circuits, fixed, instances, random_circuit, random_instance, running_example
from margmap import (
    ImpossibleEvidenceError,
    QueryError,
    Variable,
    bernoulli,
    circuit_of,
    gaussian,
    log_conditional,
    log_likelihood,
    log_marginal,
    posteriors,
    sample,
)
from margmap.circuit import BERNOULLI, BINOMIAL, CATEGORICAL, INDICATOR, Parts, assemble
from margmap.inference.passes import ROWS_AT_ONCE

A, B, G = Variable("a"), Variable("b", 3), Variable("g", 0)


def rows_of(circuit, rng, n):
    """Random rows with about a third of the entries missing (None)."""
    rows = []
    for _ in range(n):
        row = [int(rng.integers(v.cardinality)) if v.cardinality else float(rng.normal()) for v in circuit.variables]
        rows.append([None if rng.random() < 0.35 else x for x in row])
    return rows


def product_of_bernoullis(n, p):
    parts = Parts.new()
    parts.product([parts.leaf(BERNOULLI, i, [math.log(p), math.log1p(-p)]) for i in range(n)])
    return assemble([Variable(i) for i in range(n)], parts)


class TestLogLikelihood:
    @pytest.mark.parametrize("sort", SORTS)
    def test_against_enumeration(self, sort):
        for seed in range(30):
            rng = np.random.default_rng(seed)
            c = random_circuit(rng, **SORTS[sort])
            rows = rows_of(c, rng, 6)
            expected = [naive.log_likelihood(c, row) for row in rows]
            data = np.array([[np.nan if x is None else x for x in row] for row in rows])
            assert log_likelihood(c, data) == pytest.approx(expected, rel=1e-11, abs=1e-11)

    @given(circuits(continuous=False), st.integers(0, 1000))
    def test_minus_one_and_nan_are_the_same(self, c, seed):
        rows = rows_of(c, np.random.default_rng(seed), 5)
        as_int = np.array([[-1 if x is None else x for x in row] for row in rows])
        as_float = np.array([[np.nan if x is None else x for x in row] for row in rows])
        assert log_likelihood(c, as_int).tolist() == log_likelihood(c, as_float).tolist()

    @pytest.mark.parametrize("n", [0, 1, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE + 5])
    def test_any_number_of_rows(self, n):
        c = running_example()
        data = np.random.default_rng(n).integers(-1, 2, (n, 3))
        expected = [naive.log_likelihood(c, [None if x < 0 else x for x in row]) for row in data.tolist()]
        assert log_likelihood(c, data) == pytest.approx(expected, rel=1e-12)
        assert log_likelihood(c, data).shape == (n,)

    @pytest.mark.parametrize("dtype", [bool, np.uint8, np.int8, np.int64, np.float32, np.float64])
    def test_types_of_rows(self, dtype):
        c = running_example()
        data = np.array([[1, 1, 1], [0, 1, 1]], dtype=dtype)
        assert log_likelihood(c, data) == pytest.approx(np.log([0.378, 0.256]))
        assert log_likelihood(c, data.tolist()) == pytest.approx(np.log([0.378, 0.256]))
        assert log_likelihood(c, np.asfortranarray(data)) == pytest.approx(np.log([0.378, 0.256]))

    def test_one_row_alone(self):
        assert log_likelihood(running_example(), [1, 1, 1]) == pytest.approx([math.log(0.378)])

    def test_impossible_rows_are_minus_infinity(self):
        assert log_likelihood(running_example(), [[1, 1, 0], [1, 0, 0]]).tolist() == [
            -math.inf,
            pytest.approx(math.log(0.18)),
        ]

    def test_a_variable_that_no_leaf_mentions_is_ignored(self):
        c = circuit_of(bernoulli(A, 0.25), [B, A])
        assert log_likelihood(c, [[0, 1], [2, 1], [-1, 0]]) == pytest.approx(np.log([0.25, 0.25, 0.75]))

    def test_minus_one_is_a_value_of_a_continuous_variable(self):
        c = circuit_of(gaussian(G, -1, 2))
        assert log_likelihood(c, [[-1.0], [np.nan]]) == pytest.approx([-math.log(2 * math.sqrt(2 * math.pi)), 0])

    def test_densities_above_one(self):
        c = circuit_of(0.5 * A[1] * gaussian(G, 0, 1e-8) + 0.5 * A[0] * gaussian(G, 3, 1e6), [A, G])
        expected = [math.log(0.5) - math.log(1e-8) - 0.5 * math.log(2 * math.pi),
                    math.log(0.5) - math.log(1e6) - 0.5 * math.log(2 * math.pi)]  # fmt: skip
        assert log_likelihood(c, [[1, 0.0], [0, 3.0]]) == pytest.approx(expected)
        assert log_marginal(c) == pytest.approx(0, abs=1e-12)


class TestTinyNumbers:
    def test_product_of_2000_small_probabilities(self):
        c = product_of_bernoullis(2000, 1e-3)
        ones, zeros = np.ones(2000, dtype=int), np.zeros(2000, dtype=int)
        expected = [2000 * math.log(1e-3), 2000 * math.log1p(-1e-3)]
        assert log_likelihood(c, [ones, zeros]) == pytest.approx(expected, rel=1e-12)
        assert log_marginal(c, dict.fromkeys(range(2000), 1)) == pytest.approx(expected[0], rel=1e-12)
        assert posteriors(c, dict.fromkeys(range(1999), 1)).array(1999) == pytest.approx([0.999, 1e-3], rel=1e-9)
        assert sample(c, 2, dict.fromkeys(range(2000), 1), seed=0).tolist() == [[1] * 2000] * 2

    def test_a_mixture_below_the_smallest_float(self):
        """Two components, each under 1e-5000, whose ratio decides the posterior."""
        parts = Parts.new()
        components = []
        for x, p in ((0, 1e-3), (1, 1.001e-3)):
            leaves = [parts.leaf(BERNOULLI, i, [math.log(p), math.log1p(-p)]) for i in range(2000)]
            components.append(parts.product([*leaves, parts.leaf(INDICATOR, 2000, [float(x)])]))
        parts.sum(components, [math.log(0.9), math.log(0.1)])
        c = assemble([Variable(i) for i in range(2001)], parts)
        evidence = dict.fromkeys(range(2000), 1)
        left, right = math.log(0.9) + 2000 * math.log(1e-3), math.log(0.1) + 2000 * math.log(1.001e-3)
        assert log_marginal(c, evidence) == pytest.approx(np.logaddexp(left, right), rel=1e-12)
        assert posteriors(c, evidence).array(2000)[1] == pytest.approx(1 / (1 + math.exp(left - right)), rel=1e-8)
        drawn = sample(c, 4000, evidence, seed=1)[:, 2000].mean()
        assert drawn == pytest.approx(1 / (1 + math.exp(left - right)), abs=0.04)

    @pytest.mark.parametrize("low", [-800.0, -1e5])
    def test_weights_below_the_smallest_float(self, low):
        parts = Parts.new()
        leaves = [parts.leaf(INDICATOR, 0, [float(x)]) for x in range(3)]
        b = [parts.leaf(BERNOULLI, 1, [math.log(p), math.log1p(-p)]) for p in (0.5, 0.2, 0.9)]
        parts.sum([parts.product(list(pair)) for pair in zip(leaves, b, strict=True)], [0.0, low, low + 1])
        c = assemble([Variable("a", 3), Variable("b")], parts)
        assert log_likelihood(c, [[0, 1], [1, 1], [2, 1], [2, -1]]) == pytest.approx(
            [math.log(0.5), low + math.log(0.2), low + 1 + math.log(0.9), low + 1], rel=1e-12
        )
        assert log_conditional(c, {"b": 1}, {"a": 2}) == pytest.approx(math.log(0.9), rel=1e-9)
        assert posteriors(c, {"a": 1}).array("b") == pytest.approx([0.8, 0.2])

    @pytest.mark.parametrize("shift", [-800.0, 800.0, -1e6, 1e6])
    def test_all_weights_far_from_one(self, shift):
        parts = Parts.new()
        leaves = [parts.leaf(INDICATOR, 0, [float(x)]) for x in range(2)]
        parts.sum(leaves, [shift, shift + 1])
        c = assemble([A], parts)
        assert log_marginal(c) == pytest.approx(shift + math.log1p(math.e), rel=1e-12)
        assert log_likelihood(c, [[0], [1], [-1]]) == pytest.approx(
            [shift, shift + 1, shift + math.log1p(math.e)], rel=1e-12
        )
        assert posteriors(c).array("a") == pytest.approx(np.array([1, math.e]) / (1 + math.e))

    def test_tiny_leaf_probabilities(self):
        parts = Parts.new()
        parts.product([parts.leaf(BERNOULLI, i, [math.log(p), 0.0]) for i, p in enumerate([1e-140, 1e-200, 1e-300])])
        c = assemble([Variable(i) for i in range(3)], parts)
        assert log_likelihood(c, [[1, 1, 1], [0, 1, 1]]) == pytest.approx(
            [-640 * math.log(10), -500 * math.log(10)], rel=1e-12
        )

    @pytest.mark.parametrize("weight", [1e-140, 1e-160])
    def test_a_tiny_weight_on_a_tiny_leaf(self, weight):
        parts = Parts.new()
        leaf = parts.leaf(BERNOULLI, 0, [math.log(1e-250), 0.0])
        parts.sum([leaf, parts.leaf(INDICATOR, 0, [0.0])], [math.log(weight), 0.0])
        c = assemble([A], parts)
        expected = math.log(weight) + math.log(1e-250)
        assert log_likelihood(c, [[1]]) == pytest.approx([expected], rel=1e-12)

    @pytest.mark.parametrize("low", [-700.0, -744.0, -800.0, -1e6])
    def test_a_leaf_probability_below_the_smallest_float(self, low):
        parts = Parts.new()
        parts.leaf(CATEGORICAL, 0, [0.0, low, -math.inf])
        c = assemble([B], parts)
        assert log_likelihood(c, [[1], [0], [-1], [2]]) == pytest.approx([low, 0, 0, -math.inf], abs=1e-12)
        assert log_marginal(c, {"b": 1}) == pytest.approx(low)
        assert sample(c, 2, {"b": 1}).tolist() == [[1], [1]]

    def test_a_leaf_with_nothing_but_tiny_probabilities(self):
        parts = Parts.new()
        leaf = parts.leaf(CATEGORICAL, 0, [-900.0, -901.0, -2000.0])
        parts.sum([leaf, parts.leaf(INDICATOR, 0, [2.0])], [0.0, -2000.0])
        c = assemble([B], parts)
        assert log_marginal(c) == pytest.approx(-900 + math.log1p(math.exp(-1)), rel=1e-14)
        assert log_likelihood(c, [[0], [1], [2]]) == pytest.approx([-900, -901, -2000 + math.log(2)], rel=1e-14)
        assert posteriors(c).array("b") == pytest.approx(np.array([math.e, 1, 0]) / (1 + math.e))
        assert np.bincount(sample(c, 1000, seed=0)[:, 0]) == pytest.approx([731, 269], abs=60)

    def test_binomial_with_values_below_the_smallest_float(self):
        parts = Parts.new()
        parts.leaf(BINOMIAL, 0, [1000.0, math.log(1e-4), math.log1p(-1e-4)])
        c = assemble([Variable("n", 1001)], parts)
        assert log_likelihood(c, [[1000], [999]]) == pytest.approx(
            [1000 * math.log(1e-4), 999 * math.log(1e-4) + math.log(1000) + math.log1p(-1e-4)], rel=1e-12
        )

    def test_tiny_leaf_values_in_a_mixture(self):
        """Evidence possible only through leaf values that floats do not hold: their ratio decides."""
        a, b = Variable("a"), Variable("b")
        parts = Parts.new()
        components = []
        for x, low in ((0, -800.0), (1, -801.0)):
            leaf = parts.leaf(CATEGORICAL, 1, [0.0, low])
            components.append(parts.product([parts.leaf(INDICATOR, 0, [float(x)]), leaf]))
        parts.sum(components, [math.log(0.5), math.log(0.5)])
        c = assemble([a, b], parts)
        expected = np.array([math.e, 1]) / (1 + math.e)
        assert posteriors(c, {"b": 1}).array("a") == pytest.approx(expected)
        assert log_marginal(c, {"b": 1}) == pytest.approx(math.log(0.5) - 801 + math.log1p(math.e), rel=1e-14)
        assert log_likelihood(c, [[0, 1], [-1, 0]]) == pytest.approx([math.log(0.5) - 800, 0], abs=1e-11)

    def test_a_value_far_from_a_gaussian(self):
        c = circuit_of(0.5 * A[1] * gaussian(G, 0, 1) + 0.5 * A[0] * gaussian(G, 1, 1), [A, G])
        log_pdf = [-0.5 * (100.0 - m) ** 2 - 0.5 * math.log(2 * math.pi) + math.log(0.5) for m in (0, 1)]
        assert log_likelihood(c, [[1, 100.0], [0, 100.0], [-1, 100.0]]) == pytest.approx(
            [*log_pdf, np.logaddexp(*log_pdf)], rel=1e-12
        )
        ratio = math.exp(log_pdf[0] - log_pdf[1])
        assert posteriors(c, {"g": 100.0}).array("a") == pytest.approx([1 / (1 + ratio), ratio / (1 + ratio)], rel=1e-6)


class TestMarginals:
    @settings(max_examples=200)
    @given(instances(possible=False))
    def test_log_marginal(self, instance):
        c, _, evidence = instance
        assert log_marginal(c, evidence) == pytest.approx(
            naive.log(naive.probability(c, fixed(c, evidence))), rel=1e-11, abs=1e-11
        )

    @pytest.mark.parametrize("sort", SORTS)
    def test_equals_log_likelihood_with_missing_entries(self, sort):
        for seed in range(20):
            rng = np.random.default_rng(seed)
            c = random_circuit(rng, **SORTS[sort])
            for row in rows_of(c, rng, 3):
                evidence = c.labelled({i: x for i, x in enumerate(row) if x is not None})
                data = [np.nan if x is None else x for x in row]
                assert log_marginal(c, evidence) == pytest.approx(log_likelihood(c, data)[0], rel=1e-12, abs=1e-12)

    @settings(max_examples=200)
    @given(instances())
    def test_log_conditional(self, instance):
        c, query, evidence = instance
        given_ = fixed(c, evidence)
        state = naive.joint(c, given_)[0][1]
        target = {name: c.variables[c.index(name)].label(state[c.index(name)]) for name in query}
        p = naive.probability(c, {**given_, **fixed(c, target)})
        expected = naive.log(p) - naive.log(naive.probability(c, given_))
        assert log_conditional(c, target, evidence) == pytest.approx(expected, rel=1e-9, abs=1e-10)

    def test_by_hand(self):
        c = running_example()
        assert log_marginal(c) == pytest.approx(0, abs=1e-15)
        assert math.exp(log_marginal(c, {"X1": 1, "X2": 0})) == pytest.approx(0.222)
        assert math.exp(log_conditional(c, {"X2": 1}, {"X1": 0})) == pytest.approx(0.256 / 0.4)
        assert log_conditional(c, {}, {"X1": 0}) == 0
        assert log_marginal(c, {"X2": 1, "X3": 0}) == -math.inf

    def test_evidence_by_state_name_and_by_text(self):
        sky = Variable("sky", 2, ("clear", "cloudy"))
        c = circuit_of(0.3 * sky["clear"] + 0.7 * sky["cloudy"])
        assert math.exp(log_marginal(c, {"sky": "cloudy"})) == pytest.approx(0.7)
        for index in ("0", np.int8(1)):
            with pytest.raises(QueryError, match="its states are clear, cloudy"):
                log_marginal(c, {"sky": index})
        c = circuit_of(bernoulli(A, 0.7))
        assert math.exp(log_marginal(c, {"a": "0"})) == pytest.approx(0.3)
        assert math.exp(log_marginal(c, {"a": np.int8(1)})) == pytest.approx(0.7)


class TestPosteriors:
    @settings(max_examples=300)
    @given(instances())
    def test_against_enumeration(self, instance):
        c, _, evidence = instance
        expected = naive.posteriors(c, fixed(c, evidence))
        found = posteriors(c, evidence)
        assert list(found) == [c.variables[i].name for i in expected]
        for i, numbers in expected.items():
            tolerance = 1e-9 if c.variables[i].cardinality else 1e-6
            assert found.array(c.variables[i].name) == pytest.approx(numbers, rel=tolerance, abs=tolerance)

    @pytest.mark.parametrize("mean", [0.0, 1e6, -1e9, 1e12])
    def test_the_deviation_of_a_continuous_variable_far_from_zero(self, mean):
        c = circuit_of(0.3 * A[0] * gaussian(G, mean, 0.5) + 0.7 * A[1] * gaussian(G, mean + 2, 0.25), [A, G])
        expected = math.sqrt(0.3 * 0.25 + 0.7 * 0.0625 + 0.21 * 4)
        found = posteriors(c).array("g")
        assert found[0] - mean == pytest.approx(1.4, abs=1e-3)
        assert found[1] == pytest.approx(expected, rel=1e-9)
        assert posteriors(c, {"a": 1}).array("g") == pytest.approx([mean + 2, 0.25], rel=1e-15)

    def test_unmentioned_variables_are_left_out(self):
        assert list(posteriors(circuit_of(bernoulli(A, 0.5), [B, A]))) == ["a"]


class TestSample:
    @pytest.mark.parametrize("sort", SORTS)
    def test_frequencies(self, sort):
        for seed in (1, 2, 3):
            rng = np.random.default_rng(seed)
            c = random_circuit(rng, **SORTS[sort])
            _, evidence = random_instance(rng, c)
            n = 4000
            drawn = sample(c, n, evidence, seed=seed)
            assert drawn.shape == (n, len(c.variables))
            pairs = naive.joint(c, fixed(c, evidence))
            total = math.fsum(p for p, _ in pairs)
            discrete = [i for i, v in enumerate(c.variables) if v.cardinality]
            seen = {}
            for row in drawn[:, discrete].astype(int).tolist():
                seen[tuple(row)] = seen.get(tuple(row), 0) + 1
            possible = {tuple(s[i] for i in discrete): p / total for p, s in pairs if p > 0}
            assert set(seen) <= set(possible)
            for state, p in possible.items():
                assert seen.get(state, 0) == pytest.approx(n * p, abs=5 * math.sqrt(n * p * (1 - p)) + 3)

    def test_moments_of_a_continuous_variable(self):
        c = circuit_of(0.25 * A[0] * gaussian(G, -3, 0.5) + 0.75 * A[1] * gaussian(G, 2, 1.5), [G, A])
        drawn = sample(c, 20_000, seed=3)
        mean, deviation = naive.posteriors(c)[0]
        assert drawn[:, 0].mean() == pytest.approx(mean, abs=5 * deviation / math.sqrt(20_000))
        assert drawn[:, 0].std() == pytest.approx(deviation, rel=0.05)
        assert drawn[drawn[:, 1] == 0, 0].mean() == pytest.approx(-3, abs=0.05)
        given_one = sample(c, 100, {"a": 1, "g": 0.5}, seed=3)
        assert given_one.tolist() == [[0.5, 1.0]] * 100

    def test_seeds(self):
        c = running_example()
        assert sample(c, 50, seed=1).tolist() == sample(c, 50, seed=1).tolist()
        assert sample(c, 50, seed=1).tolist() != sample(c, 50, seed=2).tolist()
        assert sample(c, 50).tolist() != sample(c, 50).tolist()

    def test_numpy_global_generator_is_left_alone(self):
        before = np.random.get_state()[1].tolist()  # noqa: NPY002
        sample(running_example(), 10, seed=1)
        assert np.random.get_state()[1].tolist() == before  # noqa: NPY002

    def test_types_and_shapes(self):
        c = running_example()
        assert sample(c, 0).shape == (0, 3)
        assert np.issubdtype(sample(c, 3).dtype, np.integer)
        assert np.issubdtype(sample(circuit_of(gaussian(G, 0, 1)), 3).dtype, np.floating)

    def test_evidence_is_kept_and_an_unmentioned_variable_is_missing(self):
        c = circuit_of(bernoulli(A, 0.5), [B, A])
        assert sample(c, 3, {"a": 1}).tolist() == [[-1, 1]] * 3
        assert sample(c, 3, {"a": 1, "b": 2}).tolist() == [[2, 1]] * 3

    def test_a_negative_number(self):
        with pytest.raises(QueryError, match="cannot draw -1 samples"):
            sample(running_example(), -1)


class TestRefused:
    @pytest.mark.parametrize("ask", [posteriors, lambda c, e: sample(c, 1, e), lambda c, e: log_conditional(c, {}, e)])
    def test_impossible_evidence(self, ask):
        with pytest.raises(ImpossibleEvidenceError, match="the evidence has probability 0"):
            ask(running_example(), {"X2": 1, "X3": 0})

    @pytest.mark.parametrize("ask", [posteriors, lambda c, e: sample(c, 1, e), lambda c, e: log_conditional(c, {}, e)])
    def test_evidence_whose_density_has_no_logarithm(self, ask):
        """It is not impossible, but no number can say how unlikely it is."""
        for c in (circuit_of(bernoulli(A, 0.5) * gaussian(G, 0, 1)), circuit_of(0.5 * gaussian(G, 0, 1))):
            with pytest.raises(QueryError, match=r"'g': 1e[+]200 is more than 1e[+]150 standard deviations away"):
                ask(c, {"g": 1e200})

    @pytest.mark.parametrize("ask", [log_marginal, posteriors, lambda c, e: sample(c, 1, e)])
    @pytest.mark.parametrize(
        ("evidence", "message"),
        [
            ({"X9": 1}, "unknown variable 'X9': the circuit has X1, X2, X3"),
            ({"X1": 2}, "variable 'X1': value 2 is out of range 0 to 1"),
            ({"X1": "up"}, "variable 'X1' has no state 'up': it has no state names"),
            ({"X1": 0.5}, "is not an integer"),
            ({"X1": True}, "variable 'X1': True is no number: write 0 to 1"),
            ({"X1": "１"}, "variable 'X1' has no state '１'"),
            ({"X1": [1]}, r"variable 'X1': \[1\] can be a set"),
            ({"X1": 1j}, "variable 'X1': 1j is neither"),
            ({"X1": np.array([1])}, r"variable 'X1': array\(\[1\]\) can be a set"),
        ],
    )
    def test_bad_evidence(self, ask, evidence, message):
        with pytest.raises(QueryError, match=message):
            ask(running_example(), evidence)

    @pytest.mark.parametrize("value", [True, [1.0], 1j, 10**400, "1_0", "nan"])
    def test_bad_evidence_of_a_continuous_variable(self, value):
        with pytest.raises(QueryError, match="variable 'g'"):
            log_marginal(circuit_of(gaussian(G, 0, 1)), {"g": value})

    @pytest.mark.parametrize("ask", [log_marginal, posteriors, lambda c, e: log_conditional(c, e)])
    def test_a_variable_observed_under_two_names(self, ask):
        c = circuit_of(bernoulli(Variable(3), 0.5) * bernoulli(A, 0.5))
        with pytest.raises(QueryError, match="variable 3 is observed twice"):
            ask(c, {3: 1, "a": 0, "3": 0})

    def test_target_and_evidence_overlap(self):
        with pytest.raises(QueryError, match="variable 'X1' is both asked for and observed"):
            log_conditional(running_example(), {"X1": 1}, {"X1": 0})

    @pytest.mark.parametrize("rows", [[[0, 1]], [[0, 1, 1, 0]], [0], [], [[[0, 1, 1]]], 1])
    def test_rows_of_wrong_shape(self, rows):
        with pytest.raises(QueryError, match="but the circuit has 3 variables: one column each"):
            log_likelihood(running_example(), rows)

    @pytest.mark.parametrize("rows", [[["0", "1", "1"]], [[None, 1, 1]], [[0, 1, 1j]]])
    def test_rows_that_are_not_numbers(self, rows):
        with pytest.raises(QueryError, match="rows must be numbers"):
            log_likelihood(running_example(), rows)

    @pytest.mark.parametrize("bad", [2, -2, 0.5, np.inf, -np.inf, 1e300])
    def test_bad_entries_are_named(self, bad):
        with pytest.raises(
            QueryError, match=r"row index 1 \(counted from 0\), variable 'X2': .* is not a value from 0 to 1"
        ):
            log_likelihood(running_example(), [[0, 1, 1], [0, bad, 1]])

    def test_infinite_entry_of_a_continuous_variable(self):
        with pytest.raises(QueryError, match=r"row index 2 \(counted from 0\), variable 'g': -inf is not finite"):
            log_likelihood(circuit_of(gaussian(G, 0, 1)), [[0.0], [np.nan], [-np.inf]])
