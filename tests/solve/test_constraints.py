"""Constraints on the answer against enumeration: all kinds mixed, all methods that take them, infeasible ones too."""

import itertools
import json
import math

import numpy as np
import pytest

import margmap as mm
import naive
import plain_elimination as plain
from circuits import columns, fixed
from counts import cases
from margmap.circuit import PRODUCT, SUM
from margmap.foundation.limits import Limits, Stopped
from margmap.solve import prices
from margmap.solve.hill_climb import Incumbents
from margmap.solve.methods import branch_and_bound
from margmap.solve.methods.frontier import solve as frontier
from margmap.solve.reduce import reduce
from margmap.solve.rows import UNLIMITED, rows_of
from problems import SORTS, STRUCTURED, make
from ruled import random_constraints

#: Problems a sort; MARGMAP_CONSTRAINED=90 makes them more than 2,000 circuits in all.
EACH = cases(4, "MARGMAP_CONSTRAINED")


def ruled(sort, seed, most=4):
    """A problem with constraints: it, they, and the feasible states with their log probabilities, best first."""
    p = make(sort, seed)
    rng = np.random.default_rng([seed, 7])
    constraints, holds = random_constraints(rng, p.circuit, p.query, most)
    variables = [p.circuit.variables[p.circuit.index(name)] for name in p.query]
    feasible = {}
    for probability, codes in p.ranked:
        state = {v.name: v.label(x) for v, x in zip(variables, codes, strict=True)}
        if holds(state):
            feasible[tuple(state.values())] = naive.log(probability)
    return p, constraints, feasible


def check(p, r, feasible, k=1):
    """Whatever the stop: states are feasible and scored right, and the optimum lies between the bounds."""
    possible = sorted((x for x in feasible.values() if x > -math.inf), reverse=True)
    best = possible[0] if possible else -math.inf
    assert best <= r.log_upper, f"{p.name}: {best} is above {r.log_upper}"
    assert r.log_prob <= best + 1e-10, p.name
    if r.status == "infeasible":
        assert not possible, f"{p.name}: {best} is feasible"
        assert (r.state, r.log_prob, r.log_upper, r.top) == (None, -math.inf, -math.inf, ())
        assert bool(feasible) == ("have probability 0" in str(r)), f"{p.name}: {r}"
        return
    if r.state is None:
        assert r.status != "optimal", p.name
        return
    for one in r.top:
        own = feasible[tuple(one.state.values())]
        assert math.isclose(one.log_prob, own, rel_tol=1e-11, abs_tol=1e-11), p.name
    assert len({tuple(one.state.values()) for one in r.top}) == len(r.top)
    if r.status == "optimal":
        assert np.allclose([one.log_prob for one in r.top], possible[:k], rtol=0, atol=2e-9), p.name
        if k == 1:
            assert r.gap <= 1e-9, p.name


@pytest.mark.parametrize("sort", SORTS)
def test_equals_enumeration(sort):
    ended = set()
    for seed in range(EACH):
        p, constraints, feasible = ruled(sort, seed)
        for method, options in [("auto", {}), ("branch", {}), ("brute", {}), ("frontier", {"width": 1 + seed % 3})]:
            k = 1 + (seed % 4 == 3)
            try:
                r = mm.marginal_map(p.circuit, p.query, p.evidence, method, constraints=constraints, k=k, **options)
            except mm.StructureError:
                assert method == "frontier", p.name
                assert sort not in STRUCTURED, p.name
                continue
            assert r.status in ("optimal", "infeasible"), f"{p.name}: {r.status}"
            check(p, r, feasible, k)
            ended.add(r.status)
    assert ended <= {"optimal", "infeasible"}


def begin_badly(monkeypatch):
    """No states from the search for prices, no climbing: sweeps and search alone must find and prove the best."""
    find, offer = prices._find_prices, Incumbents._offer_allowed
    monkeypatch.setattr(prices, "_find_prices", lambda *arguments: (find(*arguments)[0], ()))
    monkeypatch.setattr(Incumbents, "_offer_allowed", lambda self, state, climb, rows: offer(self, state, False, rows))
    for module in (frontier, branch_and_bound):
        monkeypatch.setattr(module, "lower_bound_state", lambda _flat, _max, n, *_: np.zeros(n, dtype=np.int32))


@pytest.mark.parametrize("method", ["frontier", "branch"])
def test_equals_enumeration_from_a_bad_start(method, monkeypatch):
    begin_badly(monkeypatch)
    for sort in ("dense", "coins", "latent tree", "latent tree, many values"):
        for seed in range(700, 700 + 2 * EACH):
            p, constraints, feasible = ruled(sort, seed)
            r = mm.marginal_map(p.circuit, p.query, p.evidence, method, constraints=constraints)
            assert r.status in ("optimal", "infeasible"), p.name
            check(p, r, feasible)


def log_value(flat, state):
    """The log of a reduced circuit's value at a state, node by node."""
    value = []
    for n, kind in enumerate(flat.kind):
        parts = [(flat.weight[e], value[flat.child[e]]) for e in range(flat.start[n], flat.start[n + 1])]
        if kind == SUM:
            value.append(math.fsum(w * v for w, v in parts))
        elif kind == PRODUCT:
            value.append(math.prod(v for _, v in parts))
        else:
            value.append(float(state[flat.var[n]] == flat.value[n]))
    return naive.log(value[-1])


def test_prices_take_nothing_from_a_state_that_satisfies_the_constraints():
    priced_states = 0
    for seed in range(10 * EACH):
        rng = np.random.default_rng([seed, 5])
        p = make(("dense", "coins", "latent tree")[seed % 3], seed)
        reduced = reduce(p.circuit, p.query, p.evidence)
        sizes = reduced.cardinality
        costs = {i: rng.integers(0, 9, int(size)).tolist() for i, size in enumerate(sizes)}
        least, most = (sum(end(c) for c in costs.values()) for end in (min, max))
        tight = least + max(1, (most - least) // 3)
        rows = rows_of([(costs, -UNLIMITED, tight) if seed % 2 else (costs, most + least - tight, UNLIMITED)], sizes)
        priced = prices.charge(reduced, rows, Limits())
        if priced is None:
            continue
        for state in itertools.product(*map(range, sizes)):
            if rows.allows(np.array([state], dtype=np.int32))[0]:
                own = log_value(reduced.flat, state)
                assert own <= log_value(priced.flat, state) + priced.offset, f"{p.name}: {state}"
                priced_states += priced.toll.any() and own > -math.inf
    assert priced_states > 20


def test_only_the_constraints_tell_vectors_apart(monkeypatch):
    """Independent variables: every vector has one entry, so that all but the constraints let one vector stay."""
    begin_badly(monkeypatch)
    names = list("abcdefgh")
    for seed in range(12 * EACH):
        rng = np.random.default_rng([seed, 99])
        table = rng.uniform(0.05, 0.95, len(names))
        circuit = mm.circuit_of(
            math.prod(
                (mm.bernoulli(mm.Variable(n), float(q)) for n, q in zip(names[1:], table[1:], strict=True)),
                start=mm.bernoulli(mm.Variable(names[0]), float(table[0])),
            )
        )
        constraints, holds = random_constraints(rng, circuit, names)
        feasible = {}
        for state in itertools.product((0, 1), repeat=len(names)):
            if holds(dict(zip(names, state, strict=True))):
                feasible[state] = float(np.log(np.where(state, table, 1 - table)).sum())

        class Name:
            name = f"coins {seed}"

        for k in (1, 3):
            r = mm.mpe(circuit, method="frontier", constraints=constraints, k=k)
            assert r.status in ("optimal", "infeasible"), seed
            check(Name, r, feasible, k)


@pytest.mark.parametrize("method", ["frontier", "branch", "brute"])
def test_stopped_at_every_moment(method, monkeypatch):
    stops = 0
    for sort in ("dense", "laminar, many values", "coins"):
        for seed in range(100, 100 + max(2, EACH // 4)):
            p, constraints, feasible = ruled(sort, seed)
            for moment in range(1, 60):
                asked = iter(range(1, 10_000))

                def stop(_limits, asked=asked, moment=moment):
                    if next(asked) >= moment:
                        raise Stopped("time_limit")

                with monkeypatch.context() as patch:
                    patch.setattr(Limits, "check", stop)
                    r = mm.marginal_map(p.circuit, p.query, p.evidence, method, constraints=constraints)
                check(p, r, feasible)
                if r.status != "time_limit":
                    break
                stops += 1
    assert stops > 0 or method == "brute"


def network_problem(seed):
    """A random network, Bayesian or Markov, with constraints; all feasible states with their log probabilities."""
    rng = np.random.default_rng([seed, 18])
    kind = "bayes" if seed % 3 else "markov"
    cardinality, factors = plain.random_network(rng, 6, kind=kind)
    while True:
        observed = rng.permutation(6)[: int(rng.integers(0, 3))].tolist()
        evidence = {v: int(rng.integers(cardinality[v])) for v in observed}
        if plain.eliminate(cardinality, factors, evidence) > 0:
            break
    free = [v for v in range(6) if v not in evidence]
    query = rng.permutation(free)[: int(rng.integers(1, len(free) + 1))].tolist()
    network = mm.Network([mm.Variable(f"v{i}", n) for i, n in enumerate(cardinality)], factors, kind)
    names = [f"v{v}" for v in query]
    constraints, holds = random_constraints(rng, network, names)
    ranked = plain.best_states(cardinality, factors, query, evidence)
    feasible = {q: naive.log(p) for p, q in ranked if holds(dict(zip(names, q, strict=True)))}
    return network, names, {f"v{v}": x for v, x in evidence.items()}, constraints, feasible


def test_networks_equal_enumeration():
    class Name:
        name = ""

    for seed in range(6 * EACH):
        network, names, evidence, constraints, feasible = network_problem(seed)
        Name.name = f"network {seed}"
        r = mm.marginal_map(network, names, evidence, constraints=constraints, k=1 + seed % 2)
        assert r.status in ("optimal", "infeasible"), seed
        check(Name, r, feasible, 1 + seed % 2)


@pytest.mark.parametrize("sort", ["dense", "coins", "laminar, many values", "dense, unstructured"])
def test_answers_that_differ(sort):
    """Each answer is the best of those that differ enough from all before it; fewer only if there are no more."""
    fewer = 0
    for seed in range(2 * EACH):
        p, constraints, feasible = ruled(sort, 300 + seed, most=1)
        constraints, feasible = (constraints, feasible) if seed % 2 else (None, ruled_by_nothing(p))
        far, k = 1 + seed % 3, 4
        r = mm.marginal_map(p.circuit, p.query, p.evidence, k=k, differ_by=far, constraints=constraints)
        before = []
        for one in [*r.top, None]:
            left = {
                q: x
                for q, x in feasible.items()
                if x > -math.inf and all(sum(a != b for a, b in zip(q, other, strict=True)) >= far for other in before)
            }
            if one is None:
                assert len(before) == k or not left, p.name
                fewer += len(before) < k
                break
            state = tuple(one.state.values())
            assert state in left, p.name
            assert math.isclose(one.log_prob, max(left.values()), abs_tol=2e-9), p.name
            before.append(state)
        assert r.status == ("optimal" if before else "infeasible"), p.name
        assert len(r.details.get("log_uppers", [])) == len(before)
    assert fewer > 0


def ruled_by_nothing(p):
    variables = [p.circuit.variables[p.circuit.index(name)] for name in p.query]
    return {
        tuple(v.label(x) for v, x in zip(variables, codes, strict=True)): naive.log(probability)
        for probability, codes in p.ranked
    }


def coin(names, p=0.9):
    """Independent coins."""
    product = mm.bernoulli(mm.Variable(names[0]), p)
    for name in names[1:]:
        product = product * mm.bernoulli(mm.Variable(name), p)
    return mm.circuit_of(product)


def test_a_conflict_is_a_smallest_one():
    circuit, c = coin("abcd"), mm.constraints
    rules = [c.at_most(3, [(x, 1) for x in "abcd"]), c.equal("a", "b"), c.allowed("a", [1]), c.allowed("b", [0])]
    r = mm.mpe(circuit, constraints=rules)
    assert r.status == "infeasible"
    assert list(r.conflict) == ["equal a, b", "a in 1", "b in 0"]
    assert r.to_dict()["state"] is r.to_dict()["log_prob"] is r.to_dict()["log_upper"] is None
    assert r.to_dict()["conflict"] == list(r.conflict)
    assert "equal a, b; a in 1; b in 0" in str(r)
    # What the evidence violates is said at once.
    r = mm.mpe(circuit, {"a": 1}, constraints=[c.at_most(0, [("a", 1)])])
    assert list(r.conflict) == ["at most 0 of a=1"]
    # All variables observed.
    for most, status in ((3, "infeasible"), (4, "optimal")):
        rule = c.at_most(most, [(x, 1) for x in "abcd"])
        assert mm.mpe(circuit, dict.fromkeys("abcd", 1), constraints=[rule]).status == status


def test_observed_variables_count():
    circuit, c = coin("abcd"), mm.constraints
    r = mm.mpe(circuit, {"a": 1}, constraints=[c.at_most(2, [(x, 1) for x in "abcd"])])
    assert sum(r.state.values()) == 1
    assert r.log_prob == pytest.approx(2 * math.log(0.9) + 2 * math.log(0.1))
    assert r.log_conditional == pytest.approx(math.log(0.9) + 2 * math.log(0.1))


def test_feasible_but_impossible_is_said():
    a, b = mm.Variable("a"), mm.Variable("b")
    circuit = mm.circuit_of(0.5 * a[0] * b[0] + 0.5 * a[1] * b[1])
    for method in ("auto", "branch", "brute"):
        r = mm.mpe(circuit, constraints=[mm.constraints.exactly(1, [("a", 1), ("b", 1)])], method=method)
        assert r.status == "infeasible"
        assert "all of them have probability 0" in str(r)


def test_what_does_not_take_constraints_says_so():
    circuit, rule = coin("ab"), mm.constraints.mutex([("a", 1), ("b", 1)])
    for method in ("iterative", "search"):
        with pytest.raises(
            mm.QueryError, match=f"method '{method}' does not take constraints.*frontier, branch, best-first, brute"
        ):
            mm.mpe(circuit, method=method, constraints=[rule])
    with pytest.raises(mm.QueryError, match="many cores"):
        mm.mpe(circuit, jobs=2, constraints=[rule])
    with pytest.raises(mm.QueryError, match="certificates do not cover constraints"):
        mm.certify(circuit, result=mm.mpe(circuit, constraints=[rule]))
    with pytest.raises(mm.QueryError, match="neither queried nor observed"):
        mm.marginal_map(circuit, ["a"], constraints=[rule])
    with pytest.raises(mm.QueryError, match="differ_by=0"):
        mm.mpe(circuit, k=2, differ_by=0)
    network = mm.Network([mm.Variable("a")], [([0], [0.5, 0.5])])
    with pytest.raises(mm.QueryError, match="method 'elimination' does not take constraints"):
        mm.mpe(network, method="elimination", constraints=[mm.constraints.allowed("a", [1])])
    wide, names, evidence, rules, _ = network_problem(4)
    with pytest.raises(mm.LimitError, match="constraints and differ_by need the network's circuit"):
        mm.marginal_map(wide, names, evidence, constraints=rules, max_edges=1)


def test_batches_take_constraints():
    circuit = coin("abcd")
    rules = [mm.constraints.at_most(2, [(x, 1) for x in "abcd"]), "if c=1 then d=1"]
    rows = [{"a": 1, "b": 1}, {"a": 0}, {"c": 1, "d": 0}]
    answers = list(mm.marginal_map_many(circuit, None, rows, jobs=1, constraints=rules))
    assert [r.status for r in answers] == ["optimal", "optimal", "infeasible"]
    assert answers[0].state == {"c": 0, "d": 0}
    assert sum(answers[1].state.values()) == 2
    with pytest.raises(mm.QueryError, match="does not take constraints"):
        mm.marginal_map_many(circuit, None, rows, "iterative", jobs=1, constraints=rules)


def test_a_thousand_variables_with_a_tight_budget():
    """Exact beside a knapsack done by dynamic programming, on independent coins."""
    rng = np.random.default_rng(3)
    n, limit = 300, 180
    p, cost = rng.uniform(0.55, 0.99, n), rng.integers(1, 9, n)
    names = [f"x{i}" for i in range(n)]
    product = mm.bernoulli(mm.Variable(names[0]), float(p[0]))
    for name, q in zip(names[1:], p[1:], strict=True):
        product = product * mm.bernoulli(mm.Variable(name), float(q))
    rule = mm.constraints.budget({(name, 1): int(x) for name, x in zip(names, cost, strict=True)}, limit)
    r = mm.mpe(mm.circuit_of(product), constraints=[rule])
    table = np.zeros(limit + 1)
    for q, x in zip(p, cost, strict=True):
        taken = np.concatenate((np.full(x, -np.inf), table[:-x])) + math.log(q)
        table = np.maximum(table + math.log1p(-q), taken)
    assert r.status == "optimal"
    assert r.log_prob == pytest.approx(table[-1], abs=1e-9)


def test_the_shared_instances_with_half_the_ones(shared):
    """The benchmark has all 48; here the small circuits, beside enumeration of the counts by another method."""
    data = json.loads((shared / "mmap_instances" / "nltcs.json").read_text())
    circuit = mm.load(shared / data["circuit"])
    for instance in data["instances"]:
        evidence = {int(name): value for name, value in instance["evidence"].items()}
        ones = sum(mm.marginal_map(circuit, instance["query"], evidence).state.values())
        rule = mm.constraints.at_most(ones // 2, [(name, 1) for name in instance["query"]])
        answers = [
            mm.marginal_map(circuit, instance["query"], evidence, method, constraints=[rule])
            for method in ("frontier", "branch", "brute")
        ]
        assert {r.status for r in answers} == {"optimal"}
        assert max(sum(r.state.values()) for r in answers) <= ones // 2
        assert max(r.log_prob for r in answers) - min(r.log_prob for r in answers) <= 1e-9


@pytest.mark.parametrize("sort", ["dense", "many values", "dense, unstructured"])
def test_with_evidence_that_is_no_single_value(sort):
    """A likelihood of a hidden variable beside the constraints: the sum over its values, each weighted."""
    mixed = 0
    for seed in range(500, 500 + 2 * EACH):
        p, constraints, _ = ruled(sort, seed)
        known = {*p.query, *p.evidence}
        hidden = [c for c in naive.mentioned(p.circuit) if p.circuit.variables[c].name not in known]
        if not hidden:
            continue
        variable = p.circuit.variables[hidden[0]]
        likelihood = {variable.label(x): (x + 1) / 4 for x in range(variable.cardinality)}
        asked, given = columns(p.circuit, p.query), fixed(p.circuit, p.evidence)
        total = {}
        for x in range(variable.cardinality):
            for probability, codes in naive.marginal_map(p.circuit, asked, {**given, hidden[0]: x}):
                total[codes] = total.get(codes, 0.0) + probability * (x + 1) / 4
        holds = random_constraints(np.random.default_rng([seed, 7]), p.circuit, p.query)[1]
        feasible = {}
        for codes, probability in total.items():
            labels = [p.circuit.variables[c].label(x) for c, x in zip(asked, codes, strict=True)]
            if holds(dict(zip(p.query, labels, strict=True))):
                feasible[tuple(labels)] = naive.log(probability)
        r = mm.marginal_map(p.circuit, p.query, {**p.evidence, variable.name: likelihood}, constraints=constraints)
        assert r.status in ("optimal", "infeasible"), p.name
        check(p, r, feasible)
        mixed += 1
    assert mixed > 0


def test_progress_tells_of_allowed_states_only():
    p, constraints, feasible = ruled("coins", 3)
    for method in ("frontier", "branch", "brute"):
        told = []
        r = mm.marginal_map(p.circuit, p.query, p.evidence, method, constraints=constraints, on_progress=told.append)
        best = max(feasible.values())
        assert r.status == "optimal"
        assert any(now.state is not None for now in told)
        for now in told:
            assert now.state is None or tuple(now.state.values()) in feasible
            assert now.log_lower <= best <= now.log_upper
