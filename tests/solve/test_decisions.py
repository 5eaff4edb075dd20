"""Decisions and most relevant explanations, against enumeration of all states.

``MARGMAP_CASES=2000`` runs so many generated cases; the suite runs a small share of them.
"""

import itertools
import math

import numpy as np
import pytest

import margmap as mm
import naive
import plain_elimination as plain
import soft_cases
from counts import cases

CASES = cases(60, "MARGMAP_CASES")


def decision_case(seed, n=6):
    rng = np.random.default_rng([5, seed])
    cardinality, factors = plain.random_network(rng, n, zeros=0.1)
    variables = [mm.Variable(f"v{i}", c) for i, c in enumerate(cardinality)]
    order = rng.permutation(n).tolist()
    decisions = order[: int(rng.integers(1, 3))]
    utilities = []
    for _ in range(int(rng.integers(1, 4))):
        scope = rng.permutation(n)[: int(rng.integers(1, 4))].tolist()
        table = rng.normal(0, float(rng.choice([1, 100])), [cardinality[v] for v in scope])
        if rng.random() < 0.15:
            table[...] = 3.0
        utilities.append((scope, table))
    weights = {}
    for v in order[2:]:
        if rng.random() < 0.3:
            weights[v] = [float(rng.random() > 0.3) * float(rng.random() + 0.1) for _ in range(cardinality[v])]
            if not any(weights[v]):
                weights[v][0] = 1.0
    return variables, cardinality, factors, decisions, utilities, weights


def expected(cardinality, factors, decisions, utilities, weights):
    """Expected utility of each decision given the evidence, which is None if it is an effect of a decision."""
    found = {}
    tables = [(scope, np.asarray(t)) for scope, t in factors if scope[-1] not in decisions]
    for state in itertools.product(*map(range, cardinality)):
        p = math.prod(float(t[tuple(state[v] for v in scope)]) for scope, t in tables)
        p *= math.prod(w[state[v]] for v, w in weights.items())
        worth = math.fsum(float(t[tuple(state[v] for v in scope)]) for scope, t in utilities)
        total = found.setdefault(tuple(state[v] for v in decisions), [0.0, 0.0])
        total[0] += p
        total[1] += p * worth
    return {d: (p, worth / p if p > 0 else math.nan) for d, (p, worth) in found.items()}


def test_decisions_against_enumeration():
    asked = refused = impossible = 0
    for seed in range(CASES):
        variables, cardinality, factors, decisions, utilities, weights = decision_case(seed)
        network = mm.Network(variables, factors)
        names = [f"v{v}" for v in decisions]
        evidence = {f"v{v}": dict(enumerate(w)) for v, w in weights.items()}
        given = [([f"v{v}" for v in scope], table) for scope, table in utilities]
        values = expected(cardinality, factors, decisions, utilities, weights)
        try:
            found = mm.best_decision(network, names, given, evidence, k=3)
        except mm.ImpossibleEvidenceError:
            impossible += 1
            assert max(p for p, _ in values.values()) == 0
            continue
        except mm.QueryError as error:
            refused += "effect of the decision" in str(error)
            continue
        asked += 1
        chances = [p for p, _ in values.values()]
        assert max(chances) == pytest.approx(min(chances), rel=1e-9)
        ranked = sorted((worth for _, worth in values.values()), reverse=True)
        size = max(1.0, *(float(np.abs(t).max()) for _, t in utilities))
        assert found.status == "optimal", seed
        assert values[tuple(found.decision.values())][1] == pytest.approx(ranked[0], abs=1e-8 * size), seed
        assert found.utility == pytest.approx(ranked[0], abs=1e-8 * size)
        assert found.upper >= ranked[0] - 1e-12 * size
        assert found.gap <= 1e-6 * size
        assert len(found.top) == min(3, len(values))
        for one, worth in zip(found.top, ranked, strict=False):
            assert one.utility == pytest.approx(worth, abs=1e-8 * size), seed
    assert asked > CASES // 3
    assert refused > CASES // 20
    assert asked + refused + impossible == CASES


@pytest.fixture
def umbrella():
    rain, take = mm.Variable("rain", 2, ("no", "yes")), mm.Variable("take", 2, ("no", "yes"))
    wet = mm.Variable("wet", 2, ("no", "yes"))
    tables = [((0,), [0.7, 0.3]), ((0, 1), [[0.9, 0.1], [0.2, 0.8]])]
    tables.append(((0, 1, 2), [[[1, 0], [1, 0]], [[0.1, 0.9], [0.8, 0.2]]]))
    return mm.Network([rain, take, wet], tables)


def test_a_decision_does_not_say_anything_of_its_causes(umbrella):
    """People who see rain take an umbrella; taking one brings no rain."""
    costs = [(["wet"], [0, -10]), (["take"], [0, -1])]
    found = mm.best_decision(umbrella, ["take"], costs, k=2)
    assert found.decision == {"take": "yes"}
    assert found.utility == pytest.approx(-1 - 10 * 0.3 * 0.2)
    assert [one.utility for one in found.top] == pytest.approx([-1.6, -2.7])
    dry = mm.best_decision(umbrella, ["take"], costs, {"rain": "no"})
    assert (dry.decision, dry.utility) == ({"take": "no"}, pytest.approx(0.0, abs=1e-12))


def test_what_is_no_decision_is_refused(umbrella):
    good = [(["wet"], [0, -10])]
    for decisions, utilities, evidence, match in (
        (["take"], good, {"wet": "yes"}, "effect of the decision"),
        (["take"], good, {"take": "yes"}, "decided and observed"),
        ([], good, {}, "name the variables"),
        (["take"], [], {}, "list of pairs"),
        (["take"], [(["wet"], [1, 2, 3])], {}, "shape"),
        (["take"], [(["wet"], [1, math.inf])], {}, "not finite"),
        (["take"], [(["wet"], ["a", "b"])], {}, "not of numbers"),
        (["take"], [["wet"]], {}, "list of pairs"),
        (["nobody"], good, {}, "unknown variable"),
    ):
        with pytest.raises(mm.QueryError, match=match):
            mm.best_decision(umbrella, decisions, utilities, evidence)


def test_stopped_early_the_utility_is_below_the_bound(umbrella, monkeypatch):
    from margmap.foundation.limits import Limits, Stopped

    for seed in range(20):
        variables, cardinality, factors, decisions, utilities, _ = decision_case(seed)
        values = expected(cardinality, factors, decisions, utilities, {})
        best = max(worth for _, worth in values.values())
        given = [([f"v{v}" for v in scope], table) for scope, table in utilities]
        for moment in (1, 2, 5):
            asked = iter(range(1, 10_000))

            def check(_limits, asked=asked, moment=moment):
                if next(asked) >= moment:
                    raise Stopped("time_limit")

            with monkeypatch.context() as patched:
                patched.setattr(Limits, "check", check)
                found = mm.best_decision(mm.Network(variables, factors), [f"v{v}" for v in decisions], given)
            assert found.upper >= best - 1e-9 * max(1, abs(best))
            if found.decision is not None:
                assert found.utility <= best + 1e-9 * max(1, abs(best))


def factors_of(case, whole, candidates, most):
    """GBF of every assignment of candidates: (factor, assignment), from the joint with evidence and without."""
    p_e, p_all = math.fsum(p for p, _ in case.joint), math.fsum(p for p, _ in whole)
    found = []
    for size in range(1, most + 1):
        for chosen in itertools.combinations(candidates, size):
            for values in itertools.product(*(range(case.model.variables[c].cardinality) for c in chosen)):
                b = math.fsum(p for p, s in whole if all(s[c] == x for c, x in zip(chosen, values, strict=True)))
                a = math.fsum(p for p, s in case.joint if all(s[c] == x for c, x in zip(chosen, values, strict=True)))
                if b <= 0:
                    continue
                rest = [any(s[c] != x for c, x in zip(chosen, values, strict=True)) for _, s in whole]
                not_b = math.fsum(p for (p, _), out in zip(whole, rest, strict=True) if out) / p_all
                others = (p for p, s in case.joint if any(s[c] != x for c, x in zip(chosen, values, strict=True)))
                not_share = math.fsum(others) / p_e
                b, share = b / p_all, a / p_e
                if not_b == 0:
                    factor = 1.0
                elif not_share == 0:
                    factor = math.inf
                else:
                    factor = share * not_b / (b * not_share)
                found.append((factor, dict(zip(chosen, values, strict=True)), share, b))
    return sorted(found, key=lambda one: -one[0])


def explanation_cases(count):
    made = 0
    for seed in range(90_000, 90_000 + 20 * count):
        case = (soft_cases.network_case if seed % 3 == 0 else soft_cases.circuit_case)(seed)
        if case is None or not case.evidence:
            continue
        columns = [c for c in range(len(case.model.variables)) if case.model.variables[c].cardinality]
        free = [c for c in columns if case.model.names[c] not in case.evidence]
        if isinstance(case.model, mm.Circuit):
            free = [c for c in free if c in naive.mentioned(case.model)]
        if not free:
            continue
        if isinstance(case.model, mm.Circuit):
            whole = naive.joint(case.model)
        else:
            states = itertools.product(*(range(v.cardinality) for v in case.model.variables))
            table = [(f.scope, f.table) for f in case.model.factors]
            whole = [(math.prod(float(t[tuple(s[v] for v in scope)]) for scope, t in table), s) for s in states]
        made += 1
        yield made, case, whole, free[:5]
        if made == count:
            return


def test_explanations_against_enumeration():
    infinite = 0
    for number, case, whole, free in explanation_cases(CASES):
        most = min(len(free), 1 + number % 4)
        ranked = factors_of(case, whole, free, most)
        names = [case.model.names[c] for c in free]
        found = mm.explain(case.model, case.evidence, names, most, k=3)
        assert found.status == "optimal"
        assert len(found.top) == min(3, len(ranked)), case.name
        for one, (factor, *_) in zip(found.top, ranked, strict=False):
            close(one.log_factor, naive.log(factor) if factor < math.inf else math.inf, case.name)
        known = {frozenset(x.items()): (f, share, b) for f, x, share, b in ranked}
        for one in found.top:
            codes = frozenset(
                (case.model.index(n), case.model.variables[case.model.index(n)].code(x)) for n, x in one.state.items()
            )
            factor, share, b = known[codes]
            close(one.log_factor, naive.log(factor) if factor < math.inf else math.inf, case.name)
            assert one.posterior == pytest.approx(share, abs=1e-9)
            assert one.prior == pytest.approx(b, abs=1e-9)
        infinite += found.log_factor == math.inf
        if found.log_factor == math.inf:
            sizes = [len(x) for f, x, *_ in ranked if f == math.inf]
            assert len(found.state) == min(sizes), case.name
    assert infinite > 0


def close(a, b, what):
    assert a == b or math.isclose(a, b, rel_tol=1e-7, abs_tol=1e-7), f"{what}: {a}, enumeration {b}"


def test_an_explanation_stopped_early_is_bounded(monkeypatch):
    from margmap.foundation.limits import Limits

    for _, case, whole, free in explanation_cases(10):
        ranked = factors_of(case, whole, free, len(free))
        for moment in (1, 2, 3):
            asked = iter(range(1, 100))
            with monkeypatch.context() as patched:
                patched.setattr(Limits, "late", lambda *_, asked=asked, moment=moment: next(asked) > moment)
                patched.setattr("margmap.solve.explain._AT_ONCE", 1)
                found = mm.explain(case.model, case.evidence, [case.model.names[c] for c in free])
            assert ranked[0][0] <= math.exp(min(found.log_upper, 700)) * (1 + 1e-7) or found.log_upper > 700
            assert found.log_factor <= naive.log(ranked[0][0]) + 1e-7 if ranked[0][0] < math.inf else True


def test_two_faults_explain_more_than_one():
    """Yuan's point: the explanation has the parts that matter and no others."""
    a, b, c = (mm.Variable(x) for x in "abc")
    out = mm.Variable("out")
    gate = np.zeros((2, 2, 2))
    gate[..., 0] = 1
    gate[1, 1] = [0.02, 0.98]
    network = mm.Network(
        [a, b, c, out], [((0,), [0.98, 0.02]), ((1,), [0.9, 0.1]), ((2,), [0.5, 0.5]), ((0, 1, 3), gate)]
    )
    found = mm.explain(network, {"out": 1}, ["a", "b", "c"])
    assert found.log_factor == math.inf
    assert found.state == {"a": 1}
    with pytest.raises(mm.QueryError, match="no evidence"):
        mm.explain(network)
    with pytest.raises(mm.QueryError, match="max_size"):
        mm.explain(network, {"out": 1}, max_size=0)
    with pytest.raises(mm.ImpossibleEvidenceError):
        mm.explain(mm.Network([a, out], [((0,), [1.0, 0.0]), ((0, 1), [[1, 0], [0, 1]])]), {"out": 1})
