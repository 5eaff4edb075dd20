"""What is counted for rounding covers what rounding does, measured with fractions on circuits that pile it up."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

import margmap as mm
from enumeration import reduced_problems, root_values, states_of
from margmap import marginal_map
from margmap.circuit import BERNOULLI, PRODUCT, SUM, Parts, Variable, assemble
from margmap.foundation.limits import Limits, Stopped
from margmap.foundation.pairs import decoded, encoded, from_log, lowered, plus, raised
from margmap.inference.queries import value_pair
from margmap.inference.scaled import _scaled, scaled
from margmap.solve import conditional_bounds as bounds_module
from margmap.solve.conditional_bounds import conditional_bounds
from margmap.solve.edge_bounds import edge_bounds
from margmap.solve.methods import brute_force as brute
from margmap.solve.methods import maxspn as search
from margmap.solve.methods.branch_and_bound import _upto
from margmap.solve.methods.frontier import solve as frontier
from margmap.solve.methods.frontier.scope_tree import make_plan, rounding_of
from margmap.solve.methods.frontier.sweep import enter, push
from margmap.solve.output_bounds import floor_of, view_of
from margmap.solve.query_circuit import NO_ROWS, added, rebuild
from margmap.solve.query_circuit import rounding_of as rounding_of_pass
from margmap.solve.reduce import reduce
from margmap.solve.regroup import _times, regroup
from margmap.solve.report import _status
from margmap.solve.split import split
from margmap.solve.values import evaluate
from planted import beyond_doubles
from problems import decimal_log


def markov_mixture(rng, length, states=3):
    """A hidden Markov model with the same tables everywhere: far from its ends every step rounds in the same way."""
    parts = Parts.new()
    coins = rng.uniform(0.3, 0.7, states)
    table = np.log(rng.dirichlet(np.ones(states), states)).tolist()
    after = None
    for t in range(length - 1, -1, -1):
        here = [parts.leaf(BERNOULLI, t, [math.log(p), math.log1p(-p)]) for p in coins]
        if after is not None:
            here = [parts.product([leaf, below]) for leaf, below in zip(here, after, strict=True)]
        after = [parts.sum(here, row) for row in table]
    return assemble([Variable(i) for i in range(length)], parts, after[0])


#: The unit of exact numbers: doubles down to 1e-70 are whole multiples of it, and what is rounded off is nothing.
ONE = 1 << 300


def whole(x):
    return int(Fraction(float(x)) * ONE)


def outside_bounds(flat, plan, share):
    """What a sweep computes on its way down, before any scope is done, in doubles and in whole numbers over ONE."""
    n = flat.num_nodes
    outside, total, limit = np.zeros(n), np.zeros(n), np.ones(n)
    exact_outside, exact_total = [0] * n, [0] * n
    outside[-1], exact_outside[-1] = 1.0, ONE
    exact_share = [whole(x) for x in share]
    stack = [int(plan.scope[n - 1])]
    while stack:
        s = stack.pop()
        nodes = plan.node[plan.node_at[s] : plan.node_at[s + 1]].tolist()
        enter(flat, NO_ROWS, share, plan, s, outside, total)
        for i in reversed(nodes):
            if plan.column[i] >= 0:
                exact_total[i] += exact_outside[i]
            if flat.kind[i] == SUM:
                for e in range(flat.start[i], flat.start[i + 1]):
                    exact_total[flat.child[e]] += exact_share[e] * exact_total[i] // ONE
        for j, t in enumerate(plan.part[plan.part_at[s] : plan.part_at[s + 1]].tolist()):
            push(flat, plan, s, j, total, limit, outside)
            products = [i for i in nodes if flat.kind[i] == PRODUCT]
            parts = plan.part_at[s + 1] - plan.part_at[s]
            for k, i in enumerate(products):
                exact_outside[plan.factor[plan.factor_at[s] + k * parts + j]] += exact_total[i]
            stack.append(t)
    return outside, exact_outside


def test_the_rounding_of_outside_bounds_is_counted():
    """It covers what a bound is too small by, and that is more than the rounding of any one scope."""
    most = 0.0
    for seed in (7, 22, 32):  # which round down at every step
        reduced = reduce(markov_mixture(np.random.default_rng(seed), 700), None)
        flat, plan = make_plan(reduced.flat, 700)
        share = view_of(flat, 0.0, reduced.cardinality).bounds.share.copy()
        for n in np.flatnonzero(flat.kind == SUM):  # so that steps far from the ends come to be all the same
            share[flat.start[n] : flat.start[n + 1]] /= share[flat.start[n] : flat.start[n + 1]].sum()
        outside, exact = outside_bounds(flat, plan, share)
        counted = rounding_of(flat, plan) - rounding_of_pass(flat)
        for found, true in zip(outside.tolist(), exact, strict=True):
            if true:
                short = (true - whole(found)) / true
                assert short <= counted
                most = max(most, short)
        nodes, parts = np.diff(plan.node_at), np.diff(plan.part_at)
        one_scope = np.finfo(np.float64).eps * float((2 * nodes + parts + 4).max())
    assert most > one_scope


def test_the_rounding_of_scopes_beside_the_way_is_counted():
    """A product of many parts gathers the roundings of all of them, though each is only one step below the root."""
    names = [mm.Variable(f"x{i}") for i in range(120)]
    pairs = [
        sum(0.125 * mm.bernoulli(a, 0.1 * i + 0.1) * mm.bernoulli(b, 0.9 - 0.1 * i) for i in range(8))
        for a, b in zip(names[::2], names[1::2], strict=True)
    ]
    product = pairs[0]
    for pair in pairs[1:]:
        product = product * pair
    reduced = reduce(mm.circuit_of(product, names), None)
    flat, plan = make_plan(reduced.flat, len(names))
    on_the_way = np.finfo(np.float64).eps * float((2 * np.diff(plan.node_at) + np.diff(plan.part_at) + 4).max() * 3)
    assert rounding_of(flat, plan) > rounding_of_pass(flat) > on_the_way


def test_the_frontier_adds_its_rounding_to_its_bound(monkeypatch):
    reduced = reduce(markov_mixture(np.random.default_rng(0), 12), None)
    assert 0 < rounding_of(*make_plan(reduced.flat, 12)) < 1e-12
    plain = frontier.solve(reduced, Limits())
    monkeypatch.setattr(frontier, "rounding_of", lambda *_: 0.125)
    moved = frontier.solve(reduced, Limits())
    assert moved.log_upper - plain.log_upper == pytest.approx(0.125, abs=1e-12)


@pytest.mark.parametrize("room", [1, 30])
def test_tightened_bounds_of_several_passes_hold(room, monkeypatch):
    """Each pass tightens with its own variables only."""
    monkeypatch.setattr(bounds_module, "CONDITIONAL_ROOM", room)
    for reduced in reduced_problems(81_000, 60):
        states = states_of(reduced.cardinality)
        values = root_values(reduced.flat, states)
        bounds = view_of(reduced.flat, 0.0, reduced.cardinality).bounds
        asked = np.ones(len(reduced.cardinality), dtype=np.bool_)
        tight = conditional_bounds(reduced.flat, bounds, reduced.cardinality, asked, tighten=True)
        for v, k in enumerate(reduced.cardinality):
            for x in range(k):
                assert tight[v, x] * math.exp(bounds.log_upper) >= values[states[:, v] == x].max() * (1 - 1e-12)


# Rounded up: what is computed as a bound is not under the exact number, not even by the last bit.


def exact_bounds(flat, take_max, given=None):
    """Algorithm 1 in fractions, with all values of one variable but one forbidden if ``given`` says so."""
    m = []
    for n in range(flat.num_nodes):
        edges = range(flat.start[n], flat.start[n + 1])
        terms = [Fraction(float(flat.weight[e])) * m[flat.child[e]] for e in edges]
        if flat.kind[n] == PRODUCT:
            m.append(math.prod(terms))
        elif flat.kind[n] == SUM:
            m.append(max(terms) if take_max[n] else sum(terms))
        else:
            m.append(Fraction(0 if given and flat.var[n] == given[0] and flat.value[n] != given[1] else 1))
    return m


def exact_edge_bounds(flat, take_max, share):
    """The rule of the two end points in fractions, of shares as they are."""
    n_nodes = flat.num_nodes
    high, low = [Fraction(0)] * n_nodes, [Fraction(0)] * n_nodes
    high[-1] = Fraction(1)
    result = [Fraction(0)] * flat.num_edges
    for n in range(n_nodes - 1, -1, -1):
        for e in range(flat.start[n], flat.start[n + 1]):
            edge_high, edge_low, part = high[n], low[n], Fraction(float(share[e])) * (high[n] - low[n])
            if flat.kind[n] == SUM and take_max[n]:
                edge_high = min(low[n] + part, high[n])
            elif flat.kind[n] == SUM:
                edge_low = min(high[n] - part, high[n])
            result[e] = edge_high
            c = flat.child[e]
            high[c], low[c] = max(high[c], edge_high), max(low[c], edge_low)
    return result


def test_bounds_are_rounded_up():
    """Of nodes, of shares, of edges, of literals."""
    for reduced in reduced_problems(82_000, 60):
        flat = reduced.flat
        if (flat.weight < 0).any():
            continue
        bounds = view_of(flat, 0.0, reduced.cardinality).bounds
        found = [Fraction(float(v)) * Fraction(2) ** int(x) for v, x in zip(bounds.value, bounds.exponent, strict=True)]
        exact = exact_bounds(flat, bounds.deterministic)
        assert all(a >= b for a, b in zip(found, exact, strict=True))
        with localcontext() as context:
            context.prec = 50
            assert Decimal(bounds.log_upper) >= decimal_log(found[-1])
        for n in np.flatnonzero(flat.kind == SUM):
            for e in range(flat.start[n], flat.start[n + 1]):
                term = Fraction(float(flat.weight[e])) * found[flat.child[e]]
                assert Fraction(float(bounds.share[e])) * found[n] >= term
        edges = exact_edge_bounds(flat, bounds.deterministic, bounds.share)
        ours = edge_bounds(flat, bounds)
        assert all(Fraction(float(a)) >= b for a, b in zip(ours, edges, strict=True))
        asked = np.ones(len(reduced.cardinality), dtype=np.bool_)
        relative = conditional_bounds(flat, bounds, reduced.cardinality, asked)
        for v, k in enumerate(reduced.cardinality):
            for x in range(k):
                given = exact_bounds(flat, bounds.deterministic, (v, x))[-1]
                assert Fraction(float(relative[v, x])) * found[-1] >= given


def exact_roots(flat, states):
    """The root under every state, in fractions."""
    roots = []
    for state in states.tolist():
        m = []
        for n in range(flat.num_nodes):
            edges = range(flat.start[n], flat.start[n + 1])
            terms = [Fraction(float(flat.weight[e])) * m[flat.child[e]] for e in edges]
            if flat.kind[n] == PRODUCT:
                m.append(math.prod(terms))
            elif flat.kind[n] == SUM:
                m.append(sum(terms))
            else:
                m.append(Fraction(int(state[flat.var[n]] == flat.value[n])))
        roots.append(m[-1] if m else Fraction(0))
    return roots


def test_circuits_that_are_rebuilt_are_rounded_up():
    """Under every state the new circuit times the factor is not under the old one, whatever was folded together."""
    checked = 0
    for i, reduced in enumerate(reduced_problems(83_000, 40)):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        if (flat.weight < 0).any() or len(states) > 64:
            continue
        rng = np.random.default_rng(i)
        keep = rng.random(flat.num_edges) < 0.8
        zeroed = flat._replace(weight=np.where(keep, flat.weight, 0.0))
        view = view_of(flat, 0.0, reduced.cardinality)
        for old, (new, log_factor) in (
            (zeroed, rebuild(flat, keep)),
            (flat, regroup(flat, view.supports, view.bounds.deterministic)),
            (flat, split(flat, int(rng.integers(len(reduced.cardinality))), view.supports)),
        ):
            with localcontext() as context:
                context.prec = 50
                for before, after in zip(exact_roots(old, states), exact_roots(new, states), strict=True):
                    assert (after == 0) == (before == 0)
                    if before:
                        checked += 1
                        assert decimal_log(after) + Decimal(log_factor) >= decimal_log(before)
    assert checked > 1000


def alike(count):
    """A tree of products over so many equal mixtures: whatever one of them is rounded by, all are."""
    parts = Parts.new()
    nodes = []
    for v in range(count):
        leaves = [parts.leaf(BERNOULLI, v, [math.log(p), math.log1p(-p)]) for p in (0.7, 0.61)]
        nodes.append(parts.sum(leaves, [math.log(0.3), math.log(0.7)]))
    while len(nodes) > 1:
        nodes = [parts.product(nodes[i : i + 2]) for i in range(0, len(nodes), 2)]
    return assemble([Variable(v) for v in range(count)], parts, nodes[0])


def test_the_rounding_of_one_pass_is_counted():
    """A product gathers what all its children were rounded by, in the circuit as given and in the reduced one."""
    count = 1 << 12
    circuit = alike(count)
    reduced = reduce(circuit, None)
    state = np.ones(count, np.int32)
    value, exponent = np.zeros(reduced.num_nodes), np.zeros(reduced.num_nodes)
    evaluate(reduced.flat, state, value, exponent)
    flat = reduced.flat
    top = int(np.flatnonzero(flat.kind == PRODUCT)[0])
    mixtures = set(flat.child[flat.start[top] : flat.start[top + 1]].tolist())
    (one,) = {exact_roots(_upto(flat, n), state[None, :])[0] for n in mixtures}
    with localcontext() as context:
        context.prec = 60
        # The reduced circuit has the same weights everywhere.
        exact = count * decimal_log(one)
        found = Decimal(float(value[-1])).ln() + int(exponent[-1]) * Decimal(2).ln()
        assert abs(found - exact) <= Decimal(rounding_of_pass(flat))
        # The circuit as given has logarithms, which are what they are.
        terms = [Decimal(math.log(w)) + Decimal(math.log(p)) for w, p in ((0.3, 0.7), (0.7, 0.61))]
        exact = count * sum(term.exp() for term in terms).ln()
        pair = value_pair(circuit, state.copy(), np.full(count, np.nan))
        found = Decimal(float(pair[0])).ln() + int(pair[1]) * Decimal(2).ln()
        away = abs(found - exact)
        assert away <= Decimal(scaled(circuit).rounding)
        assert away > 1000 * Decimal(float(np.finfo(np.float64).eps))


def test_the_rounding_of_the_circuit_is_in_the_answer():
    circuit = alike(4)
    plain = marginal_map(circuit, None)
    circuit.__dict__["_kept"][_scaled] = scaled(circuit)._replace(rounding=0.125)
    moved = marginal_map(circuit, None)
    assert moved.log_upper - plain.log_upper == pytest.approx(0.25, abs=1e-9)
    assert moved.status == "precision_limit"
    assert marginal_map(circuit, [], {0: 1}).log_upper >= 0.25 + math.log(0.3 * 0.7 + 0.7 * 0.61) - 1e-9


def test_search_raises_its_bounds_by_the_rounding_of_a_pass(monkeypatch):
    reduced = reduce(alike(8), None)

    def stopped(*arguments, real=search._search):
        real(*arguments[:-1], np.array([0, 1]))
        raise Stopped("time_limit")

    monkeypatch.setattr(search, "_search", stopped)
    plain = search.solve(reduced, Limits()).log_upper
    monkeypatch.setattr(search, "rounding_of", lambda _flat: -0.125)  # the marginal of all states is 1, and no more
    assert search.solve(reduced, Limits()).log_upper == pytest.approx(
        plain - 1.0, abs=1e-9
    )  # of the root, then of a literal


def test_sums_of_logarithms_are_rounded_to_the_safe_side():
    rng = np.random.default_rng(0)
    close = 0
    for _ in range(500):
        terms = (rng.normal(0, 1, 4) * 10.0 ** rng.integers(-8, 8, 4)).tolist()
        exact = sum(map(Fraction, terms))
        assert Fraction(lowered(*terms)) <= exact <= Fraction(raised(*terms))
        close += abs(Fraction(raised(*terms)) - exact) < Fraction(1, 10**6)
    assert close > 300
    for _ in range(500):
        value, exponent = float(rng.uniform(0.5, 1)), float(rng.integers(-5000, -501))
        low, high = decoded(encoded(value, exponent))
        assert Fraction(low) * Fraction(2) ** int(high) >= Fraction(value) * Fraction(2) ** int(exponent) * (
            1 - Fraction(1, 10**15)
        )
        with localcontext() as context:
            context.prec = 40
            weight = Decimal(encoded(value, exponent)) * Decimal(2).ln()
            assert weight >= Decimal(value).ln() + int(exponent) * Decimal(2).ln()


@pytest.mark.parametrize("far", [1.0, 700.0, 1e5])
def test_floors_are_rounded_down(far):
    """A floor drops what is certainly not above it; one too small to be compared drops nothing."""
    rng = np.random.default_rng(1)
    with localcontext() as context:
        context.prec = 40
        for _ in range(300):
            log_upper = float(rng.normal(0, far))
            log_floor = log_upper - float(rng.exponential(1.0))
            found = floor_of(log_floor, log_upper)
            assert Decimal(found) <= (Decimal(log_floor) - Decimal(log_upper)).exp()
            assert found > 0
    assert floor_of(-1000.0, 0.0) == floor_of(-math.inf, 0.0) == -1.0


def test_pairs_add_up():
    """Sums and exponentials keep all digits, however far apart the powers of two are."""
    rng = np.random.default_rng(2)
    for _ in range(1000):
        values = np.ldexp(rng.uniform(0.5, 1, 2), rng.integers(-1000, 1, 2))  # as products of two small values are
        exponents = rng.integers(-3000, 1, 2) + rng.integers(-60, 60, 2)
        if rng.random() < 0.7:  # about the same size in all
            exponents[1] = exponents[0] + math.frexp(values[0])[1] - math.frexp(values[1])[1] + int(rng.integers(-3, 4))
        exact = sum(Fraction(float(v)) * Fraction(2) ** int(x) for v, x in zip(values, exponents, strict=True))
        value, exponent = plus(values[0], float(exponents[0]), values[1], float(exponents[1]))
        found = Fraction(value) * Fraction(2) ** int(exponent)
        assert abs(found - exact) <= exact * Fraction(1, 10**15)
    with localcontext() as context:
        context.prec = 50
        for log in (-rng.exponential(10.0 ** rng.uniform(0, 7, 500))).tolist():
            value, exponent = from_log(log, 0.0)
            away = Decimal(value).ln() + int(exponent) * Decimal(2).ln() - Decimal(log)
            assert abs(away) < Decimal("1e-15")


def test_fewer_states_than_asked_for_are_optimal_only_if_there_are_no_more():
    limits = Limits()
    assert _status("optimal", -np.inf, [-1.0], 3, limits) == "optimal"
    assert _status("optimal", -50.0, [-1.0], 3, limits) == "precision_limit"
    assert _status("time_limit", -50.0, [-1.0], 3, limits) == "time_limit"
    assert _status("memory_limit", -1.0, [-1.0], 1, limits) == "optimal"
    for away in (5e-3, 1e-6, 5e-8):
        assert _status("optimal", -1.0 + away, [-1.0], 1, limits) == "precision_limit"
        assert _status("time_limit", -1.0 + away, [-1.0], 1, limits) == "time_limit"
    assert _status("time_limit", -1.0 + 5e-3, [-1.0], 1, Limits(gap=0.01)) == "optimal"


def test_enumeration_bounds_what_rounding_hides():
    """The bound on all other states is that of the last one listed, and a little more."""
    for reduced in reduced_problems(84_000, 20):
        values = np.sort(root_values(reduced.flat, states_of(reduced.cardinality)))[::-1]
        values = values[values > 0]
        for k in (1, 2, 3):
            if len(values) > k:
                outcome = brute.solve(reduced, Limits(), k=k)
                assert outcome.log_upper > math.log(values[k - 1]) - 1e-13
                assert outcome.log_upper < math.log(values[k - 1]) + 1e-12


def test_weights_are_rounded_up():
    """Sums and products of weights, also of those that are kept as logarithms."""
    rng = np.random.default_rng(4)
    with localcontext() as context:
        context.prec = 40
        two = Decimal(2)

        def number(weight):
            return Decimal(weight) if weight >= 0 else (Decimal(weight) * two.ln()).exp()

        for _ in range(1000):
            a, b = (
                float(-rng.uniform(501, 3000)) if rng.random() < 0.3 else float(2.0 ** -rng.uniform(0, 30))
                for _ in range(2)
            )
            if a < 0 and b < 0 and rng.random() < 0.5:
                b = a + float(rng.uniform(0, 1)) * min(3.0, -500 - a)
            assert number(added(a, b)) >= number(a) + number(b)
            assert number(_times(a, b)) >= number(a) * number(b)


def log_roots(flat, states):
    """The log of the root under every state, of weights that may be logarithms."""
    values = []
    for n in range(flat.num_nodes):
        edges = range(flat.start[n], flat.start[n + 1])
        logs = [
            w * math.log(2) if w < 0 else np.log(w) if w > 0 else -np.inf for w in flat.weight[edges.start : edges.stop]
        ]
        below = [values[flat.child[e]] + log for e, log in zip(edges, logs, strict=True)]
        if flat.kind[n] == PRODUCT:
            values.append(np.sum(below, axis=0))
        elif flat.kind[n] == SUM:
            values.append(np.logaddexp.reduce(below, axis=0))
        else:
            values.append(np.where(states[:, flat.var[n]] == flat.value[n], 0.0, -np.inf))
    return values[-1] if values else np.full(len(states), -np.inf)


@pytest.mark.parametrize("size", [100.0, 400.0, 2000.0])
def test_rebuilt_beyond_doubles(size):
    """Nothing changes its value when edges fall, factors move up and equal edges are added, however small it is."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        circuit, _ = beyond_doubles(rng, size=size)
        reduced = reduce(circuit, None)
        flat, states = reduced.flat, states_of(reduced.cardinality)
        keep = rng.random(flat.num_edges) < 0.7
        keep |= np.repeat(flat.kind == PRODUCT, np.diff(flat.start))
        old = log_roots(flat._replace(weight=np.where(keep, flat.weight, 0.0)), states)
        new, log_factor = rebuild(flat, keep)
        assert log_roots(new, states) + log_factor == pytest.approx(old, rel=1e-11, abs=1e-9)
        view = view_of(flat, 0.0, reduced.cardinality)
        groups, log_factor = regroup(flat, view.supports, view.bounds.deterministic)
        assert log_roots(groups, states) + log_factor == pytest.approx(log_roots(flat, states), rel=1e-11, abs=1e-9)
