"""Random circuits and queries for tests: seeded generators, and hypothesis strategies over their options."""

import math

import numpy as np
from hypothesis import strategies as st

import naive
from margmap import Variable, bernoulli, circuit_of
from margmap.circuit import BERNOULLI, BINOMIAL, CATEGORICAL, GAUSSIAN, INDICATOR, PRODUCT, SUM, Parts, assemble

#: Every sort of circuit that a solver must get right, as options of :func:`random_circuit`.
SORTS = {
    "structured": {},
    "unstructured": {"structured": False},
    "deterministic": {"deterministic": True},
    "deterministic unstructured": {"structured": False, "deterministic": True},
    "normalised": {"normalised": True, "zeros": False},
    "many values": {"values": (2, 3, 4), "variables": 4},
    "many values, deterministic": {"values": (3, 4), "variables": 4, "deterministic": True},
    "with continuous": {"continuous": True, "variables": 5},
    "with continuous, unstructured": {"continuous": True, "variables": 5, "structured": False, "values": (2, 3)},
    "extreme weights": {"spread": 30.0, "structured": False},
    "few variables": {"variables": 2, "values": (1, 2, 3)},
}


def without_sharing(circuit, most=4000):
    """The same circuit as a tree: each node once for each parent; shared again where that would be too many nodes."""
    parts, made = Parts.new(), {}

    def copied(n):
        if len(parts.kind) > most and n in made:
            return made[n]
        edges = slice(circuit.start[n], circuit.start[n + 1])
        params = circuit.param[circuit.param_start[n] : circuit.param_start[n + 1]].tolist()
        below = [copied(c) for c in circuit.child[edges].tolist()]
        if circuit.kind[n] == PRODUCT:
            made[n] = parts.product(below)
        elif circuit.kind[n] == SUM:
            made[n] = parts.sum(below, circuit.log_weight[edges].tolist())
        else:
            made[n] = parts.leaf(int(circuit.kind[n]), int(circuit.var[n]), params)
        return made[n]

    copied(circuit.root)
    return assemble(circuit.variables, parts)


def running_example():
    """The paper's Figure 1: p(X1, X2) is .378 at (1, 1), .222 at (1, 0), .256 at (0, 1) and .144 at (0, 0)."""
    x1, x2, x3 = (Variable(name) for name in ("X1", "X2", "X3"))
    upper = 0.7 * bernoulli(x2, 0.9) * x3[1] + 0.3 * x2[0] * x3[0]
    lower = 0.8 * bernoulli(x2, 0.8) * x3[1] + 0.2 * x2[0] * x3[0]
    return circuit_of(0.6 * x1[1] * upper + 0.4 * x1[0] * lower, [x1, x2, x3])


class _Builder:
    """One random circuit. A node is made for a scope and the values each variable may still take below it."""

    def __init__(self, rng, variables, structured, deterministic, zeros, normalised, spread, most):
        self.rng, self.variables = rng, variables
        self.structured, self.deterministic, self.zeros = structured, deterministic, zeros
        self.normalised, self.spread, self.most = normalised, spread, most
        self.parts = Parts.new()
        self.alive = []  # whether each node is nonzero somewhere
        self.pool = {}  # (scope, allowed values) -> nodes
        self.splits = {}  # scope -> the one partition of it, if structured

    def chance(self, p):
        return self.rng.random() < p

    def leaf(self, kind, column, parameters):
        self.alive.append(kind in (INDICATOR, GAUSSIAN, BINOMIAL, BERNOULLI) or max(parameters) > -math.inf)
        return self.parts.leaf(kind, column, parameters)

    def product(self, children):
        self.alive.append(all(self.alive[c] for c in children))
        return self.parts.product(children)

    def sum(self, children):
        weights = self.log_weights(len(children))
        self.alive.append(any(self.alive[c] and w > -math.inf for c, w in zip(children, weights, strict=True)))
        return self.parts.sum(children, weights)

    def log_weights(self, k, most=math.inf):
        logs = self.rng.normal(0.0, self.spread, k)
        if self.zeros:
            zero = self.rng.random(k) < 0.12
            zero[self.rng.integers(k)] = False
            if not self.normalised and self.chance(0.03):
                zero[:] = True
            logs[zero] = -np.inf
        top = logs.max()
        if self.normalised or self.chance(0.3):
            logs = logs - np.logaddexp.reduce(logs) if top > -np.inf else logs
        elif most == 0 and top > 0:
            logs = logs - top
        return logs.tolist()

    def partition(self, scope):
        if scope not in self.splits or not self.structured:
            order = self.rng.permutation(sorted(scope))
            k = int(self.rng.integers(2, min(4, len(scope)) + 1))
            cuts = np.sort(self.rng.choice(np.arange(1, len(scope)), k - 1, replace=False))
            self.splits[scope] = [frozenset(part.tolist()) for part in np.split(order, cuts)]
        return self.splits[scope]

    def node(self, scope, allowed):
        """A node over ``scope``; ``allowed`` maps columns to the values they may take, if not to all."""
        key = (scope, tuple(sorted((c, v) for c, v in allowed.items() if c in scope)))
        pool = self.pool.setdefault(key, [])
        full = len(self.parts.kind) > self.most
        if pool and (full or len(pool) > 2 or self.chance(0.5)):
            return pool[self.rng.integers(len(pool))]
        if len(scope) == 1:
            made = self.one_variable(next(iter(scope)), allowed, full)
        elif full or self.chance(0.2):
            made = self.factors(scope, allowed)
        else:
            made = self.mixture(scope, allowed)
        if self.chance(0.08):
            made = self.product([made])
        if self.chance(0.08):
            made = self.sum([made])
        pool.append(made)
        return made

    def factors(self, scope, allowed):
        parts = self.partition(scope)
        if len(parts) > 2 and not self.structured and self.chance(0.3):  # a product directly below a product
            inner = self.product([self.node(part, allowed) for part in parts[1:]])
            return self.product([self.node(parts[0], allowed), inner])
        return self.product([self.node(part, allowed) for part in parts])

    def mixture(self, scope, allowed):
        branches = self.branches(scope, allowed)
        children = [self.factors(scope, branch) for branch in branches]
        if not self.deterministic:
            pool = [n for (s, _), nodes in self.pool.items() if s == scope for n in nodes]
            if pool and self.chance(0.3):  # a sum directly below a sum, or a child shared with another one
                children.append(pool[self.rng.integers(len(pool))])
            if self.chance(0.1):
                children.append(children[0])
        elif len(children) > 2 and self.chance(0.3):
            children = [children[0], self.sum(children[1:])]
        return self.sum(children)

    def branches(self, scope, allowed):
        """What is allowed below each child of a sum: if deterministic, different values of one variable."""
        if not self.deterministic:
            return [allowed] * int(self.rng.integers(1, 4))
        choices = [
            (c, allowed.get(c, tuple(range(self.variables[c].cardinality))))
            for c in sorted(scope)
            if self.variables[c].cardinality
        ]
        choices = [(c, values) for c, values in choices if len(values) > 1]
        if not choices:
            return [allowed]
        column, values = choices[self.rng.integers(len(choices))]
        cut = int(self.rng.integers(1, len(values)))
        groups = [(v,) for v in values] if self.chance(0.5) else [values[:cut], values[cut:]]
        return [{**allowed, column: group} for group in groups]

    def one_variable(self, column, allowed, full):
        cardinality = self.variables[column].cardinality
        if cardinality == 0:
            made = self.gaussian(column)
            if not full and not self.deterministic and self.chance(0.4):
                made = self.sum([made, self.gaussian(column)])
            return made
        values = allowed.get(column, tuple(range(cardinality)))
        restricted = len(values) < cardinality
        if len(values) == 1 or (not restricted and self.chance(0.15)):
            return self.leaf(INDICATOR, column, [float(values[self.rng.integers(len(values))])])
        if self.chance(0.35) and not full:
            children = [self.leaf(INDICATOR, column, [float(v)]) for v in values]
            if not self.deterministic and not restricted and self.chance(0.5):
                children.append(self.distribution(column, values))
            return self.sum(children)
        return self.distribution(column, values)

    def distribution(self, column, values):
        cardinality = self.variables[column].cardinality
        p = float(self.rng.random()) if not self.chance(0.1 * self.zeros) else float(self.rng.integers(2))
        yes, no = (math.log(q) if q > 0 else -math.inf for q in (p, 1 - p))
        if len(values) == cardinality == 2 and self.chance(0.5):
            return self.leaf(BERNOULLI, column, [yes, no])
        if len(values) == cardinality and self.chance(0.3):
            return self.leaf(BINOMIAL, column, [cardinality - 1.0, yes, no])
        logs = dict(zip(values, self.log_weights(len(values), most=0), strict=True))
        return self.leaf(CATEGORICAL, column, [logs.get(x, -math.inf) for x in range(cardinality)])

    def gaussian(self, column):
        mean, deviation = self.rng.uniform(-2, 2), self.rng.choice([0.25, 0.7, 1.5])
        return self.leaf(GAUSSIAN, column, [float(mean), float(deviation)])


def random_circuit(
    rng,
    *,
    variables=6,
    values=(2,),
    structured=True,
    deterministic=False,
    zeros=True,
    normalised=False,
    continuous=False,
    spread=1.0,
    most=60,
    names=None,
):
    """A random smooth, decomposable circuit that is not zero everywhere.

    ``values`` are the cardinalities to choose from, ``spread`` the deviation of the log weights, ``most`` the number of
    nodes after which no more than necessary are added. With ``continuous`` one or two Gaussian variables are added.
    Variables that are given ``names`` have no names of states.
    """
    stated = names is None
    if names is None:
        names = [f"X{i}" for i in range(variables)] if rng.random() < 0.5 else list(range(1, variables + 1))
    listed = []
    for name in names:
        k = int(rng.choice(values))
        listed.append(Variable(name, k, tuple(f"s{x}" for x in range(k)) if stated and rng.random() < 0.2 else ()))
    if continuous:
        extra = [Variable(f"G{i}", 0) for i in range(int(rng.integers(1, 3)))]
        listed = [*extra, *listed] if rng.random() < 0.5 else [*listed, *extra]
    while True:
        builder = _Builder(rng, listed, structured, deterministic, zeros, normalised, spread, most)
        root = builder.node(frozenset(range(len(listed))), {})
        if builder.alive[root]:
            return assemble(listed, builder.parts, root)


def random_instance(rng, circuit, *, possible=True):
    """A query (names) and evidence (name -> value) with p(evidence) > 0, or with any values if not ``possible``."""
    discrete = [i for i, v in enumerate(circuit.variables) if not v.continuous]
    fixed = {}
    for i, v in enumerate(circuit.variables):
        if v.continuous and rng.random() < 0.6:
            fixed[i] = float(rng.normal(0, 1.5))
    if possible:
        states = [state for p, state in naive.joint(circuit, fixed) if p > 0]
        drawn = states[rng.integers(len(states))]
    else:
        drawn = [int(rng.integers(v.cardinality)) if v.cardinality else None for v in circuit.variables]
    sort = rng.random()
    order = rng.permutation(discrete).tolist()
    if sort < 0.15:
        query, observed = order, []
    elif sort < 0.3:
        query, observed = order[:1], order[1 : 1 + int(rng.integers(len(order)))]
    elif sort < 0.5:
        query, observed = order[: int(rng.integers(1, len(order) + 1))], []
    else:
        asked = int(rng.integers(1, len(order) + 1))
        query, observed = order[:asked], order[asked : asked + int(rng.integers(len(order) - asked + 1))]
    evidence = {circuit.variables[i].name: x for i, x in fixed.items()}
    for i in observed:
        v = circuit.variables[i]
        evidence[v.name] = v.label(drawn[i])
    return [circuit.variables[i].name for i in query], evidence


def columns(circuit, query):
    """The query as columns, for :mod:`naive`."""
    names = [v.name for v in circuit.variables]
    return [names.index(name) for name in query]


def fixed(circuit, evidence):
    """The evidence as column -> number, for :mod:`naive`."""
    answer = {}
    for i, v in enumerate(circuit.variables):
        if v.name in evidence:
            x = evidence[v.name]
            answer[i] = v.states.index(x) if isinstance(x, str) else x
    return answer


@st.composite
def circuits(draw, **given):
    """Circuits of every sort; options given here are not drawn."""
    options = {
        "variables": draw(st.integers(1, 6)),
        "values": draw(st.sampled_from([(2,), (2, 3), (1, 2, 4)])),
        "structured": draw(st.booleans()),
        "deterministic": draw(st.booleans()),
        "zeros": draw(st.booleans()),
        "normalised": draw(st.booleans()),
        "continuous": draw(st.booleans()),
        "spread": draw(st.sampled_from([1.0, 0.0, 10.0])),
        "most": draw(st.integers(5, 60)),
        **given,
    }
    if options["values"] != (2,):
        options["variables"] = min(options["variables"], 4)
    return random_circuit(np.random.default_rng(draw(st.integers(0, 10_000))), **options)


@st.composite
def instances(draw, possible=True, **given):
    """A circuit, a query and evidence for it."""
    circuit = draw(circuits(**given))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    return circuit, *random_instance(rng, circuit, possible=possible)
