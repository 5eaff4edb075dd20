"""Generated evidence that is not a single value, in every form that it can be given in, and its weights as numbers.

A case has the evidence twice: as a user gives it, and for enumeration as a weight for each value of each variable (1
and 0 for a single value or a set) and as values or intervals of continuous variables.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np

import margmap as mm
import naive
import plain_elimination as plain
from circuits import columns, fixed
from problems import SORTS, make


class Case(NamedTuple):
    name: str
    model: object
    query: list  # names
    evidence: dict  # as a user gives it
    weights: dict  # column -> weights
    reals: dict  # column -> value, or interval
    joint: list  # (p(state, e), state of all columns), all evidence in it

    @property
    def total(self):
        return math.fsum(p for p, _ in self.joint)

    def ranked(self, query=None):
        """All pairs (p(q, e), q), best first."""
        at = columns(self.model, self.query if query is None else query)
        parts = {}
        for p, state in self.joint:
            parts.setdefault(tuple(state[c] for c in at), []).append(p)
        return sorted(((math.fsum(ps), q) for q, ps in parts.items()), key=lambda pair: (-pair[0], pair[1]))


def given(rng, variable):
    """Evidence on a discrete variable in some form, and its weights."""
    k, label = variable.cardinality, variable.label
    some = sorted(rng.choice(k, int(rng.integers(1, k + 1)), replace=False).tolist())
    others = [x for x in range(k) if x not in some]
    mask = [1.0 if x in some else 0.0 for x in range(k)]
    form = int(rng.integers(6))
    if form == 0:
        return {label(x) for x in some}, mask
    if form == 1 and others:
        return mm.none_of(*map(label, others)), mask
    if form == 2 and not variable.states:
        return (min(some), None), [1.0 if x >= min(some) else 0.0 for x in range(k)]
    scale = float(rng.choice([1.0, 0.01, 37.0, 1e6]))
    weights = [scale * float(w) if rng.random() > 0.2 else 0.0 for w in rng.random(k)]
    if not any(weights):
        weights[some[0]] = scale
    return {label(x): w for x, w in enumerate(weights)}, weights


def weighted(joint, weights):
    return [(p * math.prod(w[state[c]] for c, w in weights.items()), state) for p, state in joint]


def circuit_case(seed):
    """A circuit of some sort, with a query and evidence of every kind; possible."""
    rng = np.random.default_rng([18, seed])
    problem = make(list(SORTS)[seed % len(SORTS)], seed)
    circuit, known = problem.circuit, fixed(problem.circuit, problem.evidence)
    evidence, weights = dict(problem.evidence), {}
    reals = {c: x for c, x in known.items() if circuit.variables[c].continuous}
    for c in naive.mentioned(circuit):
        v = circuit.variables[c]
        if c in known or rng.random() < 0.4:
            continue
        if v.continuous:
            low, high = sorted(rng.normal(0, 2, 2).tolist())
            low, high = (-math.inf if rng.random() < 0.3 else low), (math.inf if rng.random() < 0.3 else high)
            evidence[v.name] = (None if low == -math.inf else low, None if high == math.inf else high)
            reals[c] = (low, high)
        else:
            evidence[v.name], weights[c] = given(rng, v)
    states = naive.states_of(circuit, known)
    values = naive.node_values(circuit, states, reals)[-1]
    joint = weighted(zip(values, states, strict=True), weights)
    case = Case(f"circuit {seed}", circuit, problem.query, evidence, weights, reals, joint)
    return case if case.total > 0 else None


def network_case(seed, n=6):
    """A network with a query and evidence; None if it is impossible."""
    rng = np.random.default_rng([81, seed])
    kind = "bayes" if seed % 3 else "markov"
    cardinality, factors = plain.random_network(rng, n, kind=kind, zeros=0.15)
    names = [i if i % 2 else f"v{i}" for i in range(n)]
    states = [tuple(f"s{x}" for x in range(c)) if i % 3 == 0 else () for i, c in enumerate(cardinality)]
    network = mm.Network([mm.Variable(*parts) for parts in zip(names, cardinality, states, strict=True)], factors, kind)
    order = rng.permutation(n).tolist()
    query = order[: int(rng.integers(1, 4))]
    evidence, weights = {}, {}
    for c in range(n):
        v = network.variables[c]
        if c not in query and rng.random() < 0.25:
            x = int(rng.integers(v.cardinality))
            evidence[v.name], weights[c] = v.label(x), [1.0 if y == x else 0.0 for y in range(v.cardinality)]
        elif rng.random() < 0.5:
            evidence[v.name], weights[c] = given(rng, v)
    joint = []
    for state in itertools.product(*map(range, cardinality)):
        p = math.prod(float(np.asarray(t)[tuple(state[v] for v in scope)]) for scope, t in factors)
        joint.append((p, state))
    case = Case(f"network {seed}", network, [names[c] for c in query], evidence, weights, {}, weighted(joint, weights))
    return case if case.total > 0 else None
