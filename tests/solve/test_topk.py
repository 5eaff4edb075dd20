"""The k best states: those of sorted enumeration, all different, in order, with a proof that none is missing."""

import math

import numpy as np
import pytest

import margmap as mm
from counts import cases
from margmap import Variable, bernoulli, circuit_of
from margmap.demo import load_model
from problems import SORTS, UNSTRUCTURED, hard, laminar, make


def check_ranks(p, r, k, method):
    name = f"{p.name}, k = {k}, {method}"
    values = {q: probability for probability, q in p.ranked}
    expected = [math.log(probability) for probability, _ in p.ranked[:k] if probability > 0]
    states = [p.codes(one.state) for one in r.top]
    assert r.status == "optimal", name
    assert len(states) == len(expected), f"{name}: {len(states)} states, enumeration has {len(expected)}"
    assert len(set(states)) == len(states), f"{name}: a state comes twice"
    assert [one.log_prob for one in r.top] == sorted((one.log_prob for one in r.top), reverse=True), name
    for one, state, log_prob in zip(r.top, states, expected, strict=True):
        assert one.log_prob == pytest.approx(math.log(values[state]), rel=1e-11, abs=1e-11), name
        assert one.log_prob == pytest.approx(log_prob, rel=1e-9, abs=1e-9), name
        assert one.log_prob - one.log_conditional == pytest.approx(r.log_prob - r.log_conditional, abs=1e-9), name
    assert (r.state, r.log_prob, r.log_conditional) == r.top[0], name
    assert r.log_upper >= p.best - 1e-12 * max(1.0, abs(p.best)), name


@pytest.mark.parametrize("sort", SORTS)
def test_equals_sorted_enumeration(sort):
    for seed in range(5000, 5000 + cases(9)):
        p = make(sort, seed)
        k = 1 + seed % 6
        runs = [("branch", {}), ("auto", {}), ("frontier", {}), ("frontier", {"width": 1 + seed // 6 % 3})]
        for method, options in runs:
            try:
                r = mm.marginal_map(p.circuit, p.query, p.evidence, method, k=k, **options)
            except mm.StructureError:
                assert method == "frontier", p.name
                assert sort in UNSTRUCTURED, p.name
                break
            check_ranks(p, r, k, method)
            assert len(r.top) <= k


@pytest.mark.parametrize("method", ["auto", "branch", "brute"])
def test_the_upper_bound_is_sound_to_the_last_bit(method):
    """No state, not even the best one itself, has a larger probability than log_upper says."""
    for sort in ("structured", "laminar", "latent tree", "unstructured"):
        for seed in range(5100, 5110):
            p = make(sort, seed)
            r = mm.marginal_map(p.circuit, p.query, p.evidence, method, k=1 + seed % 3)
            assert r.log_upper >= p.exact_best(), p.name


@pytest.mark.parametrize("method", ["auto", "frontier", "branch", "brute"])
def test_more_than_there_are(method):
    for seed in range(6000, 6010):
        p = make("few variables", seed)
        for k in (len(p.ranked), len(p.ranked) + 1, 1000):
            check_ranks(p, mm.marginal_map(p.circuit, p.query, p.evidence, method, k=k), k, method)


@pytest.mark.parametrize("method", ["auto", "frontier", "branch", "brute"])
def test_ties(method):
    """All eight states are equally likely: any k of them will do, but different ones."""
    c = circuit_of(bernoulli(Variable("a"), 0.5) * bernoulli(Variable("b"), 0.5) * bernoulli(Variable("c"), 0.5))
    for k in range(1, 11):
        r = mm.marginal_map(c, None, method=method, k=k)
        assert r.status == "optimal"
        assert len({tuple(one.state.values()) for one in r.top}) == len(r.top) == min(k, 8)
        assert [one.log_prob for one in r.top] == pytest.approx([math.log(1 / 8)] * min(k, 8))


def test_ties_in_mixtures():
    for sort in ("equal weights", "structured", "laminar"):
        for seed in range(7000, 7020):
            p = make(sort, seed)
            tied = sum(value >= p.ranked[0][0] * (1 - 1e-12) for value, _ in p.ranked)
            check_ranks(p, mm.marginal_map(p.circuit, p.query, p.evidence, "frontier", k=tied), tied, "frontier")


def test_stopped_early_what_is_listed_is_right():
    c = hard()
    for method, options in (("frontier", {"memory_limit": 1 << 17}), ("branch", {"time_limit": 0.3})):
        r = mm.marginal_map(c, None, method=method, k=4, **options)
        assert r.status in ("memory_limit", "time_limit")
        assert 1 <= len({tuple(one.state.values()) for one in r.top}) == len(r.top) <= 4
        for one in r.top:
            assert one.log_prob == pytest.approx(mm.log_marginal(c, one.state), rel=1e-12)
        assert r.log_prob < r.log_upper


def test_the_second_best_is_the_best_of_the_rest():
    """On more variables than can be enumerated: fixing any variable to another value gives nothing above the second."""
    c = laminar(np.random.default_rng(9), 14)
    r = mm.marginal_map(c, None, k=3)
    assert (r.status, len(r.top)) == ("optimal", 3)
    rest = max(
        mm.marginal_map(c, None, {v: 1 - x}).log_prob
        for v, x in r.state.items()
        if mm.log_marginal(c, {v: 1 - x}) > -math.inf
    )
    assert r.top[1].log_prob == pytest.approx(rest, rel=1e-9)


def test_on_the_bundled_model():
    c = load_model()
    r = mm.marginal_map(c, ["illness", "course"], {"season": "winter", "age": "senior"}, k=5)
    every = mm.marginal_map(c, ["illness", "course"], {"season": "winter", "age": "senior"}, k=100, method="brute")
    assert [one.state for one in r.top] == [one.state for one in every.top[:5]]
    assert math.fsum(math.exp(one.log_conditional) for one in every.top) == pytest.approx(1)


def test_a_method_that_finds_one_state_says_so():
    with pytest.raises(mm.QueryError, match="method 'iterative' finds one state only"):
        mm.marginal_map(load_model(), ["illness"], method="iterative", k=2)
