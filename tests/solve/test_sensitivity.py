"""What would change the answer, against enumeration of all states of circuits and networks.

``MARGMAP_CASES=2000`` runs so many generated cases; the suite runs a small share of them.
"""

import itertools
import math
import sys

import pytest

import margmap as mm
import naive
import soft_cases
from circuits import columns
from counts import cases
from margmap.solve.sensitivity import STATES

CASES = cases(45, "MARGMAP_CASES")


def cases(count=CASES):
    made = 0
    for seed in range(50_000, 50_000 + 10 * count):
        case = (soft_cases.network_case if seed % 3 == 0 else soft_cases.circuit_case)(seed)
        if case is not None:
            made += 1
            yield case
        if made == count:
            return


def best_of(joint, at):
    """p(q) of every state of the query, from all states of the model."""
    parts = {}
    for p, state in joint:
        parts.setdefault(tuple(state[c] for c in at), []).append(p)
    return {q: math.fsum(ps) for q, ps in parts.items()}


def codes_of(case, state):
    known = [case.model.variables[c] for c in columns(case.model, list(state))]
    return tuple(v.states.index(x) if v.states else x for v, x in zip(known, state.values(), strict=True))


def check_survival(case, survives, state, values, current):
    """What is said of one observation; states closer than rounding may go either way."""
    best, own = max(values.values()), values[current]
    if own < best * (1 - 1e-7):
        assert survives is False, case.name
    elif own >= best * (1 - 1e-11):
        assert survives is True, case.name
    assert values[codes_of(case, state)] >= best * (1 - 1e-7), case.name


@pytest.mark.parametrize("states", [STATES, 1])
def test_every_observation_against_enumeration(states, monkeypatch):
    """With few best states at hand the bounds of all others decide more often."""
    monkeypatch.setattr(sys.modules["margmap.solve.sensitivity"], "STATES", states)
    solved = 0
    for number, case in enumerate(cases()):
        at = columns(case.model, case.query)
        discrete = {v.name: c for c, v in enumerate(case.model.variables) if v.cardinality}
        hidden = [n for n, c in discrete.items() if c not in at and not isinstance(case.evidence.get(n), int | str)]
        if isinstance(case.model, mm.Circuit):
            hidden = [n for n in hidden if discrete[n] in naive.mentioned(case.model)]
        look_at = hidden[: 1 + number % 3]
        found = mm.sensitivity(case.model, case.query, case.evidence, look_at=look_at)
        assert found.complete, case.name
        current = codes_of(case, found.answer.state)
        total = case.total
        changes = {(c.variable, c.value): c for c in found.changes}
        assert len(changes) == len(found.changes)
        for name in hidden:
            c, variable = discrete[name], case.model.variables[discrete[name]]
            changed = 0.0
            for x in range(variable.cardinality):
                one = changes.pop((name, variable.label(x)))
                kept = [(p, s) for p, s in case.joint if s[c] == x]
                p = math.fsum(q for q, _ in kept) / total
                assert one.probability == pytest.approx(p, rel=1e-9, abs=1e-12), case.name
                if p == 0:
                    assert one.state is None
                    continue
                values = best_of(kept, at)
                check_survival(case, one.survives, one.state, values, current)
                assert one.current == pytest.approx(values[current] / (p * total), rel=1e-8, abs=1e-12)
                changed += 0.0 if one.survives else p
            assert found.matters[name] == pytest.approx((changed, changed), abs=1e-9)
        solved += check_without(case, changes, at, current)
        check_looking(case, found, look_at, discrete, at, current)
        order = [c.survives is False if c.value is None else found.matters[c.variable][1] for c in found.changes]
        assert order == sorted(order, reverse=True), case.name
    assert solved > CASES // 4


def check_without(case, changes, at, current):
    """What is left are the observed variables: each without its own evidence, everything else as it was."""
    assert {name for name, value in changes if value is None} == {name for name, _ in changes}
    assert {name for name, _ in changes} == set(case.evidence)
    checked = 0
    for (name, _), one in changes.items():
        r = mm.marginal_map(case.model, case.query, {n: x for n, x in case.evidence.items() if n != name})
        evidence = {n: x for n, x in case.evidence.items() if n not in (name, *case.query)}
        if len(evidence) < len(case.evidence) - 1:  # a query variable has weights of its own
            continue
        own = mm.log_marginal(case.model, evidence | named(case, current))
        assert (one.survives is True) == (own >= r.log_prob - 1e-9), case.name
        checked += 1
    return checked


def named(case, current):
    variables = [case.model.variables[c] for c in columns(case.model, case.query)]
    return {v.name: v.label(x) for v, x in zip(variables, current, strict=True)}


def check_looking(case, found, look_at, discrete, at, current):
    if not look_at:
        assert found.same_decision is None
        return
    low = high = 0.0
    where = [discrete[name] for name in look_at]
    for values in itertools.product(*(range(case.model.variables[c].cardinality) for c in where)):
        kept = [(p, s) for p, s in case.joint if tuple(s[c] for c in where) == values]
        p = math.fsum(q for q, _ in kept)
        if p > 0:
            of = best_of(kept, at)
            low += p if of[current] >= max(of.values()) * (1 - 1e-11) else 0.0
            high += p if of[current] >= max(of.values()) * (1 - 1e-7) else 0.0
    assert found.same_decision[0] <= high / case.total + 1e-9, case.name
    assert found.same_decision[1] >= low / case.total - 1e-9, case.name
    assert found.same_decision[1] - found.same_decision[0] < 1e-9, case.name


def test_stopped_early_nothing_false_is_said(monkeypatch):
    from margmap.foundation.limits import Limits, Stopped

    for case in cases(12):
        full = {(c.variable, c.value): c for c in mm.sensitivity(case.model, case.query, case.evidence).changes}
        for moment in (1, 3, 8, 20):
            asked = iter(range(1, 100_000))

            def check(_limits, asked=asked, moment=moment):
                if next(asked) >= moment:
                    raise Stopped("time_limit")

            with monkeypatch.context() as patched:
                patched.setattr(Limits, "check", check)
                found = mm.sensitivity(case.model, case.query, case.evidence)
            if found.answer.status == "optimal":
                for one in found.changes:
                    assert one.survives in (None, full[one.variable, one.value].survives)


@pytest.fixture
def repair():
    """A pump and a valve, either of which can make the pressure low; an alarm sees that."""
    pump, valve = mm.Variable("pump", 2, ("fine", "broken")), mm.Variable("valve", 2, ("fine", "stuck"))
    pressure, alarm = mm.Variable("pressure", 2, ("normal", "low")), mm.Variable("alarm", 2, ("quiet", "ringing"))
    tables = [
        ((0,), [0.95, 0.05]),
        ((1,), [0.9, 0.1]),
        ((0, 1, 2), [[[0.99, 0.01], [0.3, 0.7]], [[0.1, 0.9], [0.05, 0.95]]]),
        ((2, 3), [[0.98, 0.02], [0.1, 0.9]]),
    ]
    return mm.Network([pump, valve, pressure, alarm], tables)


def test_the_table_and_the_frame(repair):
    pandas = pytest.importorskip("pandas")
    found = mm.sensitivity(repair, ["valve"], {"alarm": "ringing"}, look_at=["pump", "pressure"])
    frame = found.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["variable", "value", "probability", "survives", "current", "matters", "different"]
    assert len(frame) == 5
    assert set(frame["variable"]) == {"pump", "pressure", "alarm"}
    told = found.to_dict()
    assert told["complete"]
    assert told["same_decision"][0] == told["same_decision"][1]
    assert found.answer.state == {"valve": "stuck"}
    broken = next(c for c in found.changes if c.variable == "pump" and c.value == "broken")
    assert broken.survives is False
    assert found.different(broken) == "valve=fine"


def test_what_cannot_be_looked_at_is_refused(repair):
    for names in (["valve"], ["alarm"]):
        with pytest.raises(mm.QueryError, match="look_at"):
            mm.sensitivity(repair, ["valve"], {"alarm": "ringing"}, look_at=names)
    with pytest.raises(mm.QueryError, match="look_at='pump'"):
        mm.sensitivity(repair, ["valve"], look_at="pump")
