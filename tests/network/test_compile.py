"""Compiled networks against enumeration and plain elimination."""

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

import margmap as mm
import plain_elimination as plain
from margmap.network.compile import _intern_rows, predict
from margmap.network.relevance import Problem, barren, separated


def build(cardinality, factors, kind="bayes"):
    return mm.Network([mm.Variable(f"v{i}", c) for i, c in enumerate(cardinality)], factors, kind)


def instance(seed, n=7, **options):
    rng = np.random.default_rng(seed)
    kind = "bayes" if seed % 3 else "markov"
    cardinality, factors = plain.random_network(rng, n, kind=kind, **options)
    while True:  # evidence that is possible
        observed = rng.permutation(n)[: int(rng.integers(0, 3))].tolist()
        evidence = {v: int(rng.integers(cardinality[v])) for v in observed}
        if plain.eliminate(cardinality, factors, evidence) > 0:
            break
    free = [v for v in range(n) if v not in evidence]
    query = rng.permutation(free)[: int(rng.integers(1, len(free) + 1))].tolist()
    return cardinality, factors, kind, query, evidence


def named(evidence):
    return {f"v{v}": x for v, x in evidence.items()}


@pytest.mark.parametrize("seed", range(40))
def test_every_state_has_the_probability_of_the_network(seed):
    cardinality, factors, kind, _, _ = instance(seed, 6)
    if plain.eliminate(cardinality, factors, {}) == 0:
        pytest.skip("a Markov network of zeros")
    circuit = mm.compile(build(cardinality, factors, kind))
    properties = circuit.properties
    assert (properties.smooth, properties.decomposable, properties.structured, properties.deterministic) == (True,) * 4
    states = list(itertools.product(*(range(c) for c in cardinality)))
    expected = [math.prod(np.asarray(t)[tuple(s[v] for v in scope)] for scope, t in factors) for s in states]
    np.testing.assert_allclose(np.exp(mm.log_likelihood(circuit, np.array(states))), expected, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("seed", range(60))
def test_marginal_map_agrees_with_enumeration_every_way(seed):
    cardinality, factors, kind, query, evidence = instance(seed)
    network = build(cardinality, factors, kind)
    ranked = plain.best_states(cardinality, factors, query, evidence)
    names = [f"v{v}" for v in query]
    results = [
        mm.marginal_map(mm.compile(network), names, named(evidence)),
        mm.marginal_map(mm.compile(network, names, named(evidence)), names, named(evidence)),
        mm.marginal_map(network, names, named(evidence)),
        mm.marginal_map(network, names, named(evidence), method="frontier"),
        mm.marginal_map(network, names, named(evidence), method="elimination"),
    ]
    total = math.log(plain.eliminate(cardinality, factors, evidence))
    for result in results:
        assert result.status == "optimal"
        assert result.log_prob == pytest.approx(math.log(ranked[0][0]), abs=1e-10)
        assert result.log_conditional == pytest.approx(math.log(ranked[0][0]) - total, abs=1e-10)
        state = tuple(result.state[name] for name in names)
        assert {q: p for p, q in ranked}[state] == pytest.approx(ranked[0][0], rel=1e-10)
    best = [p for p, _ in ranked[:5] if p > 0]
    top = mm.marginal_map(network, names, named(evidence), k=5).top
    np.testing.assert_allclose([math.exp(r.log_prob) for r in top], best, rtol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_a_circuit_for_one_query_has_its_marginals(seed):
    cardinality, factors, kind, query, evidence = instance(seed + 1000, 9)
    circuit = mm.compile(build(cardinality, factors, kind), [f"v{v}" for v in query], named(evidence))
    assert set(circuit.names) == {f"v{v}" for v in [*query, *evidence]}
    assert circuit.properties.structured
    table = plain.eliminate(cardinality, factors, evidence, tuple(query))
    assert math.exp(mm.log_marginal(circuit, named(evidence))) == pytest.approx(table.sum(), rel=1e-11)
    for v in query:
        one = table.sum(axis=tuple(a for a, u in enumerate(query) if u != v))
        for x in range(cardinality[v]):
            p = math.exp(mm.log_marginal(circuit, {**named(evidence), f"v{v}": x}))
            assert p == pytest.approx(one[x], rel=1e-11, abs=1e-300)


def test_equal_rows_and_zeros_make_the_circuit_small():
    """A noisy chain of 40 variables whose tables do not depend on one of the two parents in half of the contexts."""
    variables = [mm.Variable(i) for i in range(40)]
    factors = [([0], [0.5, 0.5]), ([0, 1], [[0.9, 0.1], [0.9, 0.1]])]
    factors += [([i - 2, i - 1, i], [[[0.9, 0.1], [0.9, 0.1]], [[1.0, 0.0], [0.25, 0.75]]]) for i in range(2, 40)]
    network = mm.Network(variables, factors)
    plan = predict(network)
    circuit = mm.compile(network)
    assert plan.width == 2
    assert circuit.num_edges < plan.edges
    assert mm.log_marginal(circuit) == pytest.approx(0, abs=1e-12)


def chain(n=30):
    """X0 -> X1 -> ... of two values."""
    variables = [mm.Variable(f"x{i}", 2, ("lo", "hi")) for i in range(n)]
    table = [[0.8, 0.2], [0.3, 0.7]]
    return mm.Network(variables, [([0], [0.5, 0.5]), *(([i - 1, i], table) for i in range(1, n))])


def test_values_are_given_and_come_back_by_state_name():
    result = mm.marginal_map(chain(), ["x3"], {"x2": "hi", "x4": "hi"})
    assert result.state == {"x3": "hi"}
    with pytest.raises(mm.QueryError, match="no state 'mid'"):
        mm.marginal_map(chain(), ["x3"], {"x2": "mid"})
    with pytest.raises(mm.QueryError, match="unknown variable 'y'"):
        mm.marginal_map(chain(), ["y"])
    with pytest.raises(mm.QueryError, match="both queried and observed"):
        mm.marginal_map(chain(), ["x3"], {"x3": "lo"})
    with pytest.raises(mm.QueryError, match="queried twice"):
        mm.marginal_map(chain(), ["x3", "x3"])
    with pytest.raises(mm.QueryError, match="give a list"):
        mm.marginal_map(chain(), "x3")


def test_barren_and_separated_variables():
    network = chain(10)
    assert barren(network, [2], [4]) == {5, 6, 7, 8, 9}
    assert separated(network, [6], [4]) == {0, 1, 2, 3}
    assert separated(network, [6], []) == set()
    plan = predict(network, ["x6"], {"x4": "lo"})
    assert {bucket.variable for bucket in plan.buckets} == {0, 1, 2, 3, 5, 6}
    assert {bucket.variable for bucket in plan.buckets if bucket.live} <= {5, 6}


def test_mpe_and_empty_queries():
    network = chain(5)
    mpe = mm.marginal_map(network, None, {"x0": "hi"})
    assert list(mpe.state) == ["x1", "x2", "x3", "x4"]
    nothing = mm.marginal_map(network, [], {"x0": "hi"})
    assert nothing.state == {}
    assert math.exp(nothing.log_prob) == pytest.approx(0.5)
    assert mm.marginal_map(network, [], {}).log_prob == pytest.approx(0, abs=1e-12)
    assert mm.marginal_map(network, [], {"x0": "hi"}, "elimination").log_prob == pytest.approx(math.log(0.5))
    with pytest.raises(mm.QueryError, match="nothing is queried"):
        mm.compile(network, [], {})


def test_impossible_evidence_and_networks_of_zeros():
    variables = [mm.Variable("a"), mm.Variable("b")]
    network = mm.Network(variables, [([0], [0.0, 1.0]), ([0, 1], [[0.5, 0.5], [1.0, 0.0]])])
    for evidence in ({"a": 0}, {"b": 1}):
        with pytest.raises(mm.ImpossibleEvidenceError):
            mm.marginal_map(network, None, evidence)
    assert mm.log_marginal(mm.compile(network), {"b": 1}) == -math.inf
    with pytest.raises(mm.StructureError, match="every state probability 0"):
        mm.compile(mm.Network(variables, [([0, 1], [[0.0, 0.0], [0.0, 0.0]])], "markov"))
    with pytest.raises(mm.StructureError, match="every state probability 0"):
        mm.compile(mm.Network(variables, [([0], [0.0, 1.0]), ([0, 1], [[1.0, 1.0], [0.0, 0.0]])], "markov"))


def test_numbers_far_outside_of_doubles_do_not_underflow():
    n = 400
    factors = [([i, i + 1], [[1e-300, 2e-300], [3e-300, 1e-300]]) for i in range(n - 1)]
    network = mm.Network([mm.Variable(i) for i in range(n)], factors, "markov")
    transfer = np.array([[1.0, 2.0], [3.0, 1.0]])
    value, log_z = np.ones(2), 0.0
    for _ in range(n - 1):
        value = transfer @ value
        log_z += math.log(value.max())
        value /= value.max()
    log_z += math.log(value.sum()) + (n - 1) * math.log(1e-300)
    assert mm.log_marginal(mm.compile(network)) == pytest.approx(log_z, rel=1e-13)
    best = mm.marginal_map(network, None)
    assert best.log_prob == pytest.approx((n - 1) * math.log(1e-300) + 200 * math.log(3) + 199 * math.log(2), rel=1e-12)


def log_of(p):
    return Decimal(p.numerator).ln() - Decimal(p.denominator).ln()


@pytest.mark.parametrize("seed", range(30))
def test_evidence_that_is_almost_certain_keeps_its_digits(seed):
    """Every second variable is observed, with 1 - p(e) between 1e-15 and 1e-9; sums of fractions are the judge."""
    rng, n = np.random.default_rng(seed), 6
    factors = []
    for i in range(n):
        scope = [*rng.permutation(i)[: int(rng.integers(0, 3))].tolist(), i]
        table = rng.random([2] * len(scope)) + 0.05
        if i % 2 == 0:
            table[..., 0] = 10.0 ** rng.uniform(-15, -9.5, table.shape[:-1])
            table[..., 1] = 1 - table[..., 0]
        factors.append((scope, table / table.sum(axis=-1, keepdims=True)))
    network = build([2] * n, factors)
    evidence = dict.fromkeys(range(0, n, 2), 1)
    hidden = [v for v in range(n) if v not in evidence]
    query = hidden if seed % 2 else hidden[:1]  # with all of them, every variable is asked or observed
    exact = {}
    for state in itertools.product(range(2), repeat=n):
        if all(state[v] == x for v, x in evidence.items()):
            p = math.prod(Fraction(float(f.table[tuple(state[v] for v in f.scope)])) for f in network.factors)
            q = tuple(state[v] for v in query)
            exact[q] = exact.get(q, 0) + p
    names = [f"v{v}" for v in query]
    compiled = mm.compile(network, names, named(evidence))
    total = log_of(sum(exact.values()))
    assert -1e-8 < total < 0
    for result in (
        mm.marginal_map(network, names, named(evidence), "elimination"),
        mm.marginal_map(network, names, named(evidence), "frontier"),
        mm.marginal_map(compiled, names, named(evidence)),
    ):
        log_prob = log_of(exact[tuple(result.state[name] for name in names)])
        assert abs(Decimal(result.log_prob) - log_prob) < Decimal("1e-15") * max(1, -log_prob)
        assert abs(Decimal(result.log_prob - result.log_conditional) - total) < Decimal("1e-15")
        assert log_of(max(exact.values())) <= Decimal(result.log_upper)


def grid(side):
    rng = np.random.default_rng(0)
    at = [[side * r + c for c in range(side)] for r in range(side)]
    pairs = [(at[r][c], at[r][c + 1]) for r in range(side) for c in range(side - 1)]
    pairs += [(at[r][c], at[r + 1][c]) for r in range(side - 1) for c in range(side)]
    variables = [mm.Variable(i) for i in range(side * side)]
    return mm.Network(variables, [(pair, rng.random((2, 2)) + 0.1) for pair in pairs], "markov")


def test_limits_say_width_size_and_what_could_help():
    with pytest.raises(mm.LimitError, match=r"width \d+, .* table entries predicted .* compile for one query"):
        mm.compile(grid(40))

    def enough(progress):
        assert progress.state is None

    wide = mm.marginal_map(grid(40), list(range(0, 1600, 3)), on_progress=enough)  # no circuit, but a state and bounds
    assert wide.status == "interrupted"
    assert -math.inf < wide.log_prob <= wide.log_upper < math.inf
    network = grid(8)
    with pytest.raises(mm.LimitError, match=r"passed max_edges=2000 edges|predicted"):
        mm.compile(network, max_edges=2000)
    with pytest.raises(mm.QueryError, match="max_edges=0"):
        mm.compile(network, max_edges=0)
    stopped = mm.marginal_map(network, [0, 5], time_limit=1e-9)
    best = mm.marginal_map(network, [0, 5]).log_prob
    assert stopped.status == "time_limit"
    assert set(stopped.state) == {0, 5}
    assert stopped.log_prob <= best + 1e-9 <= stopped.log_upper + 2e-9
    observed = {i: 0 for i in range(1600) if (i + i // 40) % 2}
    assert mm.marginal_map(grid(40), None, observed).status == "optimal"


def test_elimination_is_asked_for_and_refused():
    network = chain(8)
    assert mm.marginal_map(network, ["x1"], {"x0": "hi"}).method == "elimination"
    with pytest.raises(mm.QueryError, match="finds one state only"):
        mm.marginal_map(network, ["x1"], method="elimination", k=2)
    with pytest.raises(mm.QueryError, match="unknown method 'guess'"):
        mm.marginal_map(network, ["x1"], method="guess")
    with pytest.raises(mm.QueryError, match="has no option 'depth'"):
        mm.marginal_map(network, ["x1"], method="frontier", depth=3)


def test_where_rounding_hides_the_proof_a_circuit_is_compiled():
    n = 1500
    table = [[1, 1e-300], [2e-300, 0.5]]
    network = mm.Network([mm.Variable(i) for i in range(n)], [([i, i + 1], table) for i in range(n - 1)], "markov")
    eliminated = mm.marginal_map(network, list(range(0, n, 2)), method="elimination")
    assert eliminated.status == "precision_limit"
    result = mm.marginal_map(network, list(range(0, n, 2)))
    assert (result.method, result.status) == ("frontier", "optimal")
    assert set(result.state.values()) == {0}
    assert result.log_prob <= eliminated.log_upper
    assert eliminated.log_prob <= result.log_upper


def test_progress_is_told():
    seen = []
    network = grid(5)
    mm.compile(network, on_table=lambda done, total: seen.append((done, total)))
    plan = predict(network)
    assert seen[-1] == (plan.entries, plan.entries)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_networks_are_checked():
    a, b = mm.Variable("a"), mm.Variable("b", 3)
    with pytest.raises(mm.StructureError, match="'a' is there twice"):
        mm.Network([a, a], [])
    with pytest.raises(mm.StructureError, match="variable 'b' has no table"):
        mm.Network([a, b], [([0], [0.5, 0.5])])
    with pytest.raises(mm.StructureError, match="table of 'b' has 5 numbers, but its variables need 6"):
        mm.Network([a, b], [([0], [0.5, 0.5]), ([0, 1], [0.2] * 5)])
    with pytest.raises(mm.StructureError, match="continuous"):
        mm.Network([mm.Variable("x", 0)], [])
    with pytest.raises(mm.StructureError, match="no variable number 7"):
        mm.Network([a], [([7], [1.0])], "markov")
    with pytest.raises(mm.StructureError, match="'bayes' or 'markov'"):
        mm.Network([a], [([0], [0.5, 0.5])], "belief")
    with pytest.raises(mm.QueryError, match="no parents"):
        mm.Network([a], [([0], [0.5, 0.5])], "markov").parents("a")
    with pytest.raises(ValueError, match="read-only"):
        mm.Network([a], [([0], [0.5, 0.5])]).factors[0].table[0] = 1.0


def test_a_compiled_network_is_saved_and_read_again(tmp_path):
    circuit = mm.compile(chain(6))
    mm.save(circuit, tmp_path / "chain.json.gz")
    again = mm.load(tmp_path / "chain.json.gz")
    query = {"query": ["x1", "x4"], "evidence": {"x5": "hi"}}
    assert mm.marginal_map(again, **query).state == mm.marginal_map(circuit, **query).state


def exact_best(cardinality, factors, query, evidence):
    """The largest p(q, e) as a fraction of the tables as they are."""
    tables = [(scope, np.asarray(table)) for scope, table in factors]
    totals = {}
    for state in itertools.product(*([evidence[v]] if v in evidence else range(c) for v, c in enumerate(cardinality))):
        value = Fraction(1)
        for scope, table in tables:
            x = float(table[tuple(state[v] for v in scope)])
            if x == 0:
                break
            value *= Fraction(x)
        else:
            key = tuple(state[v] for v in query)
            totals[key] = totals.get(key, 0) + value
    return max(totals.values())


def test_the_upper_bound_of_elimination_is_sound_to_the_last_bit():
    """No state is above log_upper, in exact numbers; often neither the sums nor the answer's own value would do."""
    short = 0
    for seed in range(2000, 2060):
        cardinality, factors, kind, query, evidence = instance(seed, 6)
        network = build(cardinality, factors, kind)
        r = mm.marginal_map(network, [f"v{v}" for v in query], named(evidence), method="elimination")
        best = exact_best(cardinality, factors, query, evidence)
        with localcontext() as context:
            context.prec = 40
            exact = Decimal(best.numerator).ln() - Decimal(best.denominator).ln()
            assert Decimal(r.log_upper) >= exact, seed
            short += Decimal(r.log_prob) < exact
    assert short > 10


def test_values_that_are_almost_as_good():
    """The better value of every variable is better by little only; the maxima must still be those."""
    rng = np.random.default_rng(3)
    for margin in (5e-3, 1e-4, 1e-7):
        tables = [np.exp(margin * rng.permutation(2) + np.zeros((2, 2))) for _ in range(12)]
        pairs = list(itertools.pairwise(range(13)))
        factors = [(pair, table * np.exp(rng.uniform(-1, 1))) for pair, table in zip(pairs, tables, strict=True)]
        network = build([2] * 13, factors, "markov")
        best = sum(math.log(np.asarray(table).max()) for _, table in factors)
        for method in ("elimination", "frontier", "auto"):
            r = mm.marginal_map(network, None, method=method)
            assert r.log_prob == pytest.approx(best, abs=1e-11)
            assert r.status == "optimal"
        # The first two variables hidden: one table more is a sum.
        best = sum(math.log(np.asarray(table).max()) for _, table in factors[2:])
        best += math.log((np.asarray(factors[0][1]) @ np.asarray(factors[1][1])).sum(axis=0).max())
        r = mm.marginal_map(network, [f"v{i}" for i in range(2, 13)], method="elimination")
        assert r.log_prob == pytest.approx(best, abs=1e-11)


@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-9])
def test_tables_that_almost_fall_apart(noise):
    """A table that differs from a product by little is not one."""
    rng = np.random.default_rng(5)
    for _ in range(10):
        factors = []
        for pair in itertools.combinations(range(4), 2):
            a, b = rng.uniform(0.5, 1.5, (2, 3))
            factors.append((pair, np.outer(a, b) * (1 + noise * rng.uniform(-1, 1, (3, 3)))))
        ranked = plain.best_states([3] * 4, factors, [0, 2], {})
        for method in ("elimination", "frontier"):
            r = mm.marginal_map(build([3] * 4, factors, "markov"), ["v0", "v2"], method=method)
            assert r.log_prob == pytest.approx(math.log(ranked[0][0]), abs=1e-12)


def test_tables_fall_apart_along_any_variable_and_stay_whole_otherwise():
    rng = np.random.default_rng(11)
    for number in range(200):
        sizes = [int(n) for n in rng.integers(2, 6, int(rng.integers(2, 5)))]
        variables = [mm.Variable(i, n) for i, n in enumerate(sizes)]
        axis = int(rng.integers(len(sizes)))
        table = rng.random(sizes) * (rng.random(sizes) < 0.8) + 0.1 * (number % 2)
        single = rng.random(sizes[axis]) * (rng.random(sizes[axis]) < 0.8) + 0.1
        product = table.take([0], axis=axis) * single.reshape([-1 if a == axis else 1 for a in range(len(sizes))])
        made = {}
        for name, some in (("whole", table), ("product", product)):
            if not some.max() > 0:
                continue
            network = mm.Network(variables, [(range(len(sizes)), some)], kind="markov")
            problem = Problem(network, range(len(sizes)), {})
            made[name] = [factor.scope for factor in problem.factors]
            whole = np.ones([problem.values[v].size for v in range(len(sizes))])
            for scope, part in problem.factors:
                whole = whole * part.reshape([n if v in scope else 1 for v, n in enumerate(whole.shape)])
            left = some[np.ix_(*problem.values)]
            assert np.allclose(whole * math.exp(problem.log_constant), left, rtol=1e-13)
        for scope in made.get("product", ()):
            assert axis not in scope or len(scope) == 1
        if number % 2 and len(sizes) > 2:  # no zeros, and chance makes no product of three variables
            assert made["whole"] == [tuple(range(len(sizes)))]


def test_tables_of_the_smallest_doubles_are_not_taken_apart():
    """5e-324 times 0.25 is 0 in doubles, so the first table looks like a product; then the second value is possible."""
    a, b = mm.Variable("a"), mm.Variable("b")
    first, second = [[0.745892404930233, 0.25], [5e-324, 0.0]], [[0.5, 2e-323], [0.0, 1.0]]
    network = mm.Network([a, b], [((1, 0), first), ((0, 1), second), ((1,), [0.25, 5e-324])], "markov")
    for method in ("auto", "frontier", "branch", "brute"):
        r = mm.marginal_map(network, ["a"], method=method, k=2)
        assert [ranked.state for ranked in r.top] == [{"a": 0}]
        assert r.status == "optimal"


def test_rows_are_one_node_only_if_they_are_equal():
    """So many that their hashes collide: rows with other children or other weights stay apart, rounding aside."""
    n = 3000
    weights = np.log(np.tile([0.25, 0.75], (n, 1)))
    children = np.stack([np.arange(n), np.arange(n) % 7], axis=1).astype(np.int32)
    number, first, sums, edges = _intern_rows(weights, children)
    assert (len(set(number.tolist())), len(first), sums, edges) == (n, n, n, 2 * n)
    same = np.zeros((n, 2), dtype=np.int32)
    number, *_ = _intern_rows(weights - np.arange(n)[:, None] * 1e-9, same)
    assert len(set(number.tolist())) == n
    number, *_ = _intern_rows(weights, same)
    assert set(number.tolist()) == {0}
    number, *_ = _intern_rows(np.where(np.arange(n)[:, None] % 2 == [0, 1], weights, -np.inf), children)
    assert len(set(number.tolist())) > n // 2
