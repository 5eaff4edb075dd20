"""The promises at the edges of what doubles can hold: no false proof, nothing possible that becomes impossible."""

import itertools
import json
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

import margmap as mm
from counts import cases
from margmap.circuit import BERNOULLI, CATEGORICAL, INDICATOR, Parts, assemble
from margmap.solve.methods.frontier.scope_tree import make_plan
from margmap.solve.methods.frontier.sweep import _evaluate_sums
from margmap.solve.output_bounds import view_of
from margmap.solve.prune import keep_without
from margmap.solve.query_circuit import rebuild
from margmap.solve.reduce import reduce
from margmap.solve.values import log_value as score

METHODS = ["auto", "frontier", "iterative", "branch", "best-first", "search", "brute"]
SEVERAL = ["auto", "frontier", "branch", "best-first", "brute"]


HALF = math.log(0.5)


def share_that_underflows():
    """A term of 1e-180 times 1e-148 beside one whose bound is 1e-320, but whose best state has only 1e-332.

    The first is 489 fair coins and certainty elsewhere; the second 1,049 fair coins and 60 mixtures that prefer other
    values. Also the log of the best value.
    """
    coins, blocks, fair = 1049, 60, 489
    parts = Parts.new()
    coin = [parts.leaf(BERNOULLI, v, [HALF, HALF]) for v in range(coins)]
    sure = [parts.leaf(INDICATOR, v, [1.0]) for v in range(coins + blocks)]
    mixed = []
    for v in range(coins, coins + blocks):
        two = [parts.leaf(BERNOULLI, v, [math.log(p), math.log1p(-p)]) for p in (0.1, 0.8)]
        mixed.append(parts.sum(two, [HALF, HALF]))
    first = parts.product(coin[:fair] + sure[fair:])
    second = parts.product(coin + mixed)
    parts.sum([first, second], [math.log(1e-180), 0.0])
    c = assemble([mm.Variable(v) for v in range(coins + blocks)], parts)
    both = math.log(1e-180) + fair * HALF, coins * HALF + blocks * math.log(0.45)
    return c, float(np.logaddexp(*both))


def spread_of(method):
    """The bound of ``search``, a marginal, is too weak for a thousand variables: it must stop, and stay sound."""
    return ("time_limit", 0.5) if method == "search" else ("optimal", 60)


@pytest.mark.parametrize("method", ["auto", "frontier", "iterative", "branch", "search"])
def test_a_share_that_underflows_is_not_impossible(method):
    c, best = share_that_underflows()
    status, seconds = spread_of(method)
    r = mm.marginal_map(c, None, method=method, time_limit=seconds)
    assert r.log_upper >= best - 1e-12
    assert r.status == status
    if status == "optimal":
        assert r.log_prob == pytest.approx(best, abs=1e-9)


def factor_that_underflows():
    """Once the likelier halves of two sums are pruned, their other weights, 1e-149 and 1e-299, meet in a product.

    The query variable 0 says which of two components it is; the other has 1,489 fair coins, 0.5 nats less likely.
    """
    coins = (600, 1100)
    parts, variables = Parts.new(), 3 + sum(coins)
    one = [parts.leaf(INDICATOR, v, [1.0]) for v in range(variables)]
    zero = [parts.leaf(INDICATOR, v, [0.0]) for v in range(variables)]
    fair = [parts.leaf(BERNOULLI, v, [HALF, HALF]) for v in range(variables)]
    sums, at = [], 3
    for i, (n, small) in enumerate(zip(coins, (1e-149, 1e-299), strict=True)):
        spread = parts.product([zero[1 + i], *fair[at : at + n]])
        sure = parts.product([one[1 + i], *zero[at : at + n]])
        sums.append(parts.sum([spread, sure], [math.log1p(-small), math.log(small)]))
        at += n
    left = parts.product([one[0], *sums])
    right = parts.product([zero[0], zero[1], zero[2], *fair[3 : 3 + 1489], *zero[3 + 1489 :]])
    parts.sum([left, right], [HALF, HALF])
    return assemble([mm.Variable(v) for v in range(variables)], parts), HALF + math.log(1e-149) + math.log(1e-299)


@pytest.mark.parametrize("method", ["auto", "frontier", "iterative", "branch", "search"])
def test_a_factor_that_underflows_while_the_circuit_is_rebuilt(method):
    c, best = factor_that_underflows()
    status, seconds = spread_of(method)
    r = mm.marginal_map(c, None, method=method, time_limit=seconds)
    assert r.log_upper >= best - 1e-12
    assert r.status == status
    if status == "optimal":
        assert r.state[0] == 1
        assert r.log_prob == pytest.approx(best, abs=1e-9)


def test_weights_that_meet_in_a_product_are_multiplied_out_of_range():
    """Without the likelier halves of its sums the circuit is one term: its factor is the product of the weights."""
    c, best = factor_that_underflows()
    reduced = reduce(c, None)
    flat = reduced.flat
    state = np.zeros(reduced.cardinality.size, dtype=np.int32)
    state[:3] = 1
    others = np.zeros((state.size, 2), dtype=np.bool_)
    others[np.arange(3), 0] = True  # only the values of the best state are left of the first three variables
    smaller, log_factor = rebuild(flat, keep_without(flat, others))
    assert score(smaller, state) + log_factor == pytest.approx(best, abs=1e-9)
    assert score(smaller, state) + log_factor >= best - 1e-12


class TestGaussians:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize(("mean", "given"), [(1e-9, 1e8), (-1e-9, 1e8), (1e-7, -3e7)])
    def test_far_tails(self, method, mean, given):
        """The exponents differ by a tenth, less than the last digit of either."""
        x, q = mm.Variable("x", 0), mm.Variable("q")
        c = mm.circuit_of(0.5 * q[0] * mm.gaussian(x, 0, 1) + 0.5 * q[1] * mm.gaussian(x, mean, 1))
        r = mm.marginal_map(c, ["q"], {"x": given}, method=method)
        exact = [
            float(-((Fraction(given) - Fraction(m)) ** 2) / 2 + Fraction(given) ** 2 / 2)
            for m in (0.0, mean)  # relative to the first
        ]
        nearer = int(exact[1] > exact[0])
        assert r.state == {"q": nearer}
        assert r.status == "optimal"
        total = np.logaddexp(*exact)
        assert r.log_conditional == pytest.approx(exact[nearer] - total, abs=1e-9)
        best = (
            Fraction(given) ** 2 / -2 + Fraction(exact[nearer]) + Fraction(math.log(0.5) - 0.5 * math.log(2 * math.pi))
        )
        assert Fraction(r.log_upper) >= best - Fraction(1, 10**12)
        assert Fraction(r.log_upper) - best <= 2 * Fraction(math.ulp(r.log_prob)) + Fraction(2, 10**9)

    def test_narrow_and_distant(self):
        """A density whose logarithm is -2.7e50 is still possible."""
        x, q = mm.Variable("x", 0), mm.Variable("q")
        narrow = 4.27e-20
        c = mm.circuit_of(q[0] * mm.gaussian(x, 0.4297, narrow) + 1e-300 * q[1] * mm.gaussian(x, -0.8425, narrow))
        r = mm.marginal_map(c, ["q"], {"x": -1e6})
        assert r.state == {"q": 1}
        assert r.log_prob == pytest.approx(-((1e6 - 0.8425) ** 2) / 2 / narrow**2, rel=1e-9)
        assert r.log_upper >= r.log_prob
        assert mm.log_marginal(c, {"x": -1e6}) == pytest.approx(r.log_prob, rel=1e-9)

    def test_beyond_all_logarithms_is_refused(self):
        x, q = mm.Variable("x", 0), mm.Variable("q")
        c = mm.circuit_of(0.5 * q[0] * mm.gaussian(x, 0, 1) + 0.5 * q[1] * mm.gaussian(x, 1, 1))
        for ask in (
            lambda: mm.marginal_map(c, ["q"], {"x": 1e200}),
            lambda: mm.log_marginal(c, {"x": -1e200}),
            lambda: mm.log_likelihood(c, [[0, 1.0], [1, 1e200]] if c.names[0] == "q" else [[1.0, 0], [1e200, 1]]),
        ):
            with pytest.raises(mm.QueryError, match=r"'x'.*standard deviations"):
                ask()


def bulk(observed, log_p, spread):
    """Two components over one query variable, many observed ones with small probabilities that differ a little."""
    parts = Parts.new()
    components = []
    for x in (0, 1):
        leaves = [
            parts.leaf(CATEGORICAL, v + 1, [log_p + x * spread[v], math.log1p(-math.exp(log_p + x * spread[v]))])
            for v in range(observed)
        ]
        components.append(parts.product([parts.leaf(INDICATOR, 0, [float(x)]), *leaves]))
    parts.sum(components, [math.log(0.5)] * 2)
    return assemble([mm.Variable(v) for v in range(observed + 1)], parts)


@pytest.mark.parametrize(("observed", "log_p"), [(3000, -600.0), (20000, -600.0), (5000, -37.3)])
def test_many_observed_variables_of_small_probability(observed, log_p):
    rng = np.random.default_rng(observed)
    spread = rng.uniform(-1e-3, 1e-3, observed)
    spread[0] = -spread[1:].sum() + 1e-7  # the components differ by 1e-7 in all
    c = bulk(observed, log_p, spread)
    exact = []
    for x in (0, 1):
        leaves = [Fraction(float(log_p + x * s)) for s in spread]
        exact.append(sum(leaves, Fraction(math.log(0.5))))
    r = mm.marginal_map(c, [0], {v + 1: 0 for v in range(observed)})
    best = int(exact[1] > exact[0])
    assert r.state == {0: best}
    assert r.status == "optimal"
    assert Fraction(r.log_upper) >= exact[best]
    assert abs(Fraction(r.log_prob) - exact[best]) <= Fraction(math.ulp(r.log_prob)) + Fraction(1, 10**12)
    assert r.gap <= 1e-8 + 2 * math.ulp(r.log_prob)


class TestSeveralStates:
    @pytest.mark.parametrize("method", SEVERAL)
    @pytest.mark.parametrize("logs", [(0, -5, -800), (0, -800, -1600), (0, -1e5, -1e6), (-300, -690, -720)])
    def test_states_under_the_smallest_double_are_states(self, method, logs):
        a = mm.Variable("a", 4)
        parts = Parts.new()
        parts.leaf(CATEGORICAL, 0, [*map(float, logs), -math.inf])
        c = assemble([a], parts)
        for k in (2, 3, 4, 5):
            r = mm.marginal_map(c, ["a"], method=method, k=k)
            assert [ranked.state["a"] for ranked in r.top] == [0, 1, 2][:k]
            assert [ranked.log_prob for ranked in r.top] == pytest.approx(list(logs)[:k], rel=1e-12)
            assert r.status == "optimal"

    @pytest.mark.parametrize("method", SEVERAL)
    def test_products_that_underflow_are_ranked(self, method):
        logs = [(0.0, 0.0), (-300.0, -690.0), (-800.0, -460.0), (0.0, -5.0)]
        parts = Parts.new()
        parts.product([parts.leaf(CATEGORICAL, v, list(pair)) for v, pair in enumerate(logs)])
        c = assemble([mm.Variable(v) for v in range(4)], parts)
        values = sorted(
            (
                sum(pair[x] for pair, x in zip(logs, state, strict=True))
                for state in itertools.product((0, 1), repeat=4)
            ),
            reverse=True,
        )
        for k in (1, 7, 16, 20):
            r = mm.marginal_map(c, None, method=method, k=k)
            assert [ranked.log_prob for ranked in r.top] == pytest.approx(values[:k], abs=1e-9)
            assert r.status == "optimal"


def test_states_that_numbers_cannot_tell_apart_are_a_precision_limit():
    """At -1e30 nats the last digit of a double is 1e14 nats: no method can say which state is better."""
    parts = Parts.new()
    pairs = [(-1e30, 5.0), (-1e30, 0.0)]
    components = []
    for x, (far, near) in enumerate(pairs):
        leaf = parts.product([parts.leaf(INDICATOR, 0, [float(x)]), parts.leaf(CATEGORICAL, 1, [far, 0.0])])
        components.append(parts.sum([leaf], [near]))
    parts.sum(components, [0.0, 0.0])
    c = assemble([mm.Variable("a"), mm.Variable("b")], parts)
    for method in METHODS:
        r = mm.marginal_map(c, ["a"], {"b": 0}, method=method)
        assert r.status in ("precision_limit", "optimal")
        if r.status == "optimal":
            assert r.state == {"a": 0}
        assert Fraction(r.log_upper) >= Fraction(-1e30) + 5


@pytest.mark.parametrize("size", [1.7e308, -1.7e308, 1e305])
def test_log_weights_beyond_logarithms_are_refused(size):
    parts = Parts.new()
    leaf = parts.leaf(BERNOULLI, 0, [math.log(0.5)] * 2)
    parts.sum([parts.sum([leaf], [size])], [size])
    c = assemble([mm.Variable("a")], parts)
    with pytest.raises(mm.StructureError, match=r"node .*log-weights"):
        mm.marginal_map(c, ["a"])


@pytest.mark.parametrize("chain", [(656.79, -261.8, -631.8), (-0.1,) * 30, (1e3, -999.3, 0.7)])
def test_the_bound_of_an_empty_query_is_moved_up(chain):
    parts = Parts.new()
    node = parts.leaf(BERNOULLI, 0, [math.log(0.3), math.log(0.7)])
    for w in chain:
        node = parts.sum([node], [w])
    c = assemble([mm.Variable("a")], parts)
    r = mm.marginal_map(c, [], {"a": 1})
    exact = sum(map(Fraction, chain), Fraction(math.log(0.3)))
    assert r.status == "optimal"
    assert Fraction(r.log_upper) >= exact
    assert r.gap < 1e-9


def test_a_gaussian_of_any_width_has_its_mass():
    """Deviations from the smallest to the largest double."""
    x, q = mm.Variable("x", 0), mm.Variable("q")
    for deviation in (5e-324, 1e-200, 1e-3, 1e300):
        c = mm.circuit_of(0.25 * q[0] * mm.gaussian(x, 0, deviation) + 0.75 * q[1] * mm.gaussian(x, 1, deviation))
        assert mm.log_marginal(c) == pytest.approx(0, abs=1e-12)
        r = mm.marginal_map(c, ["q"], {"x": 0.0}) if deviation >= 1e-140 else mm.marginal_map(c, ["q"])
        assert r.status == "optimal"
        expected = 1 if deviation > 1 or deviation < 1e-140 else 0
        assert r.state == {"q": expected}


def test_the_command_says_that_numbers_cannot_tell(tmp_path, as_users_start_it):
    parts = Parts.new()
    far = [parts.leaf(CATEGORICAL, 1, [-1e30, 0.0]) for _ in (0, 1)]
    both = [parts.product([parts.leaf(INDICATOR, 0, [float(x)]), far[x]]) for x in (0, 1)]
    parts.sum(both, [5.0, 0.0])
    mm.save(assemble([mm.Variable("a"), mm.Variable("b")], parts), tmp_path / "far.json")
    command = [
        sys.executable,
        "-m",
        "margmap",
        "solve",
        str(tmp_path / "far.json"),
        "--query",
        "a",
        "--evidence",
        "b=0",
    ]
    run = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    answer = json.loads(run.stdout)
    assert (run.returncode, answer["status"], run.stderr) == (3, "precision_limit", "")
    assert answer["log_upper"] >= -1e30
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 3
    assert "precision limit" in shown.stdout


def random_extremes(rng, variables=4):
    """A structured circuit, halves of halves, whose log weights lie far apart; and the log value of each state."""
    parts = Parts.new()
    values = {}

    def logs(n):
        return [float(x) for x in rng.choice([0, -1, -300, -600, -720, -1100], n)]

    def grow(first, last):
        """Some nodes over a range of variables, each with its log value under every state of them."""
        nodes = []
        if last - first == 1:
            for _ in range(3):
                own = logs(2)
                nodes.append(parts.leaf(CATEGORICAL, first, own))
                values[nodes[-1]] = {(x,): own[x] for x in (0, 1)}
            return nodes
        middle = (first + last) // 2
        left, right = grow(first, middle), grow(middle, last)
        products = []
        for _ in range(4):
            a, b = (int(rng.choice(side)) for side in (left, right))
            products.append(parts.product([a, b]))
            values[products[-1]] = {s + t: x + y for s, x in values[a].items() for t, y in values[b].items()}
        for _ in range(3):
            chosen, weights = rng.choice(products, 3, replace=False).tolist(), logs(3)
            nodes.append(parts.sum(chosen, weights))
            values[nodes[-1]] = {
                state: float(np.logaddexp.reduce([w + values[c][state] for w, c in zip(weights, chosen, strict=True)]))
                for state in values[chosen[0]]
            }
        return nodes

    root = grow(0, variables)[0]
    return assemble([mm.Variable(v) for v in range(variables)], parts, root), values[root]


@pytest.mark.parametrize("method", SEVERAL)
def test_all_states_of_circuits_beyond_doubles_are_found(method):
    rng = np.random.default_rng(12)
    for _ in range(cases(20)):
        c, exact = random_extremes(rng)
        r = mm.marginal_map(c, None, method=method, k=len(exact) + 1)
        assert r.status == "optimal"
        assert len(r.top) == len(exact)
        for ranked in r.top:
            assert ranked.log_prob == pytest.approx(exact[tuple(ranked.state.values())], rel=1e-12, abs=1e-9)
        assert [x.log_prob for x in r.top] == sorted((x.log_prob for x in r.top), reverse=True)


def test_sums_of_values_beyond_doubles_are_raised():
    """With care, what is possible stays possible: also a share of 1e-140 of a value of 1e-300."""
    parts = Parts.new()
    leaf = [parts.leaf(INDICATOR, 0, [float(x)]) for x in (0, 1)]
    parts.sum(leaf, [0.0, -320.0])
    reduced = reduce(assemble([mm.Variable("a")], parts), None)
    flat, plan = make_plan(reduced.flat, 1)
    bounds = view_of(flat, 0.0, reduced.cardinality).bounds
    rows, share = bounds.block_rows, bounds.share
    root, scope = flat.num_nodes - 1, int(plan.scope[-1])
    for careful in (True, False):
        value = np.zeros((flat.num_nodes, 2))
        value[plan.place[flat.child[np.argmin(share)]], 0] = 1e-300
        _evaluate_sums(flat, rows, share, plan, scope, value, 2, careful)
        assert (value[plan.place[root], 0] > 0) == careful
        assert value[plan.place[root], 1] == 0
