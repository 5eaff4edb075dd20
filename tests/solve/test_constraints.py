"""Constraints on the answer against enumeration: all kinds mixed, all methods that take them, infeasible ones too."""

import math
import os

import numpy as np
import pytest
from problems import SORTS, STRUCTURED, make
from ruled import random_constraints

import margmap as mm
import naive
from margmap.foundation.limits import Limits, Stopped

#: Problems a sort; MARGMAP_CONSTRAINED=90 makes them more than 2,000 circuits in all.
EACH = int(os.environ.get("MARGMAP_CONSTRAINED", "7"))


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
