"""Circuits and queries of every sort for the solvers, numbered by seeds, and what enumeration says of them."""

import math
from decimal import Decimal
from typing import NamedTuple

import numpy as np

import margmap as mm
import naive
from circuits import SORTS as RANDOM
from circuits import columns, fixed, random_circuit, random_instance
from margmap.bench.generators import latent_tree, partition_tree
from margmap.circuit import BERNOULLI, CATEGORICAL, INDICATOR, Parts, Variable, assemble
from margmap.foundation.limits import Limits, Stopped

TOLERANCE = 1e-9


def laminar(rng, variables=6, values=(2,), deterministic=False):
    """Scopes form a tree, but products skip levels of it: flat ones stand beside nested ones over the same scope."""
    listed = [Variable(i, int(rng.choice(values))) for i in range(variables)]
    parts = Parts.new()
    tree, pools = {}, {}

    def grow(scope):
        if len(scope) == 1:
            return
        cuts = np.sort(rng.choice(np.arange(1, len(scope)), int(rng.integers(1, min(3, len(scope)))), replace=False))
        tree[scope] = [tuple(part.tolist()) for part in np.split(np.array(scope), cuts)]
        for part in tree[scope]:
            grow(part)

    def blocks(scope):
        """The parts of a scope, some of them replaced by their own parts, and so on."""
        found = []
        for part in tree[scope]:
            found.extend(blocks(part) if part in tree and rng.random() < 0.5 else [part])
        return found

    def log_weights(k):
        logs = rng.normal(0, 1, k)
        logs[rng.random(k) < 0.1] = -np.inf
        logs[rng.integers(k)] = 0.0
        return logs.tolist()

    def one(column, value=None):
        if value is not None:
            return parts.leaf(INDICATOR, column, [float(value)])
        logs = log_weights(listed[column].cardinality)
        return parts.leaf(CATEGORICAL, column, (logs - np.logaddexp.reduce(logs)).tolist())

    def product(scope, given):
        return parts.product([node(block, given) for block in blocks(scope)])

    def node(scope, given):
        pool = pools.setdefault((scope, given if given and given[0] in scope else None), [])
        if pool and (len(pool) > 2 or rng.random() < 0.5):
            return pool[rng.integers(len(pool))]
        if len(scope) == 1:
            made = one(scope[0], given[1] if given and given[0] == scope[0] else None)
        elif deterministic and not (given and given[0] in scope):
            column = int(rng.choice(scope))
            children = [product(scope, (column, x)) for x in range(listed[column].cardinality)]
            made = parts.sum(children, log_weights(len(children)))
        else:
            children = [product(scope, given) for _ in range(int(rng.integers(1, 4)))]
            made = parts.sum(children, log_weights(len(children))) if len(children) > 1 else children[0]
        pool.append(made)
        return made

    root = tuple(rng.permutation(variables).tolist())
    grow(root)
    tops = [product(root, None) for _ in range(3)]
    return assemble(listed, parts, parts.sum([*tops, node(root, None)], [-1.0, -1.5, -2.0, -1.2]))


def coins(rng, variables=7, components=4, spread=0.4):
    """A mixture of independent coins that differ little: nothing excludes anything."""
    parts = Parts.new()
    rows = rng.uniform(0.5 - spread, 0.5 + spread, (components, variables))
    leaves = [[parts.leaf(BERNOULLI, i, [math.log(p), math.log1p(-p)]) for i, p in enumerate(row)] for row in rows]
    parts.sum([parts.product(row) for row in leaves], [-math.log(components)] * components)
    return assemble([Variable(i) for i in range(variables)], parts)


def _seed(rng):
    return int(rng.integers(1 << 30))


def hard(variables=40, components=20):
    """A mixture of coins so much alike that no solver finishes within seconds; its widest frontier explodes."""
    return coins(np.random.default_rng(1), variables, components, spread=0.1)


#: Circuits whose scopes form a tree, so that `frontier` takes them whatever the query.
STRUCTURED = {
    **{name: options for name, options in RANDOM.items() if options.get("structured", True)},
    "dense": {"variables": 7, "zeros": False, "spread": 0.3, "most": 120},
    "equal weights": {"spread": 0.0, "zeros": False},
    "laminar": laminar,
    "laminar, many values": lambda rng: laminar(rng, 4, (2, 3, 4)),
    "laminar, deterministic": lambda rng: laminar(rng, deterministic=True),
    "coins": coins,
    "latent tree": lambda rng: latent_tree(_seed(rng), variables=7, states=3),
    "latent tree, many values": lambda rng: latent_tree(_seed(rng), variables=4, states=3, values=3),
    "latent tree, peaked": lambda rng: latent_tree(_seed(rng), variables=7, states=4, concentration=0.2),
}

#: Circuits whose scopes may cross.
UNSTRUCTURED = {
    **{name: options for name, options in RANDOM.items() if not options.get("structured", True)},
    "dense, unstructured": {"variables": 7, "structured": False, "zeros": False, "spread": 0.3, "most": 120},
    "many values, unstructured": {"variables": 4, "structured": False, "values": (2, 3, 4)},
    "partitions": lambda rng: partition_tree(_seed(rng), variables=7, levels=2),
    "partitions, peaked": lambda rng: partition_tree(_seed(rng), variables=7, levels=2, concentration=0.2),
}

SORTS = {**STRUCTURED, **UNSTRUCTURED}


class Problem(NamedTuple):
    """A circuit, what is asked of it, and all answers with their probabilities, best first."""

    name: str
    circuit: object
    query: list
    evidence: dict
    ranked: list

    @property
    def best(self):
        return naive.log(self.ranked[0][0])

    def exact_best(self):
        """The optimum as a decimal logarithm of 60 digits."""
        best = naive.optimum(self.circuit, columns(self.circuit, self.query), fixed(self.circuit, self.evidence))
        return decimal_log(best)

    def codes(self, state):
        """A state of a result as numbers in the order of the query; it must be complete and well named."""
        assert list(state) == self.query, self.name
        known = [self.circuit.variables[i] for i in columns(self.circuit, self.query)]
        return tuple(v.states.index(x) if v.states else x for v, x in zip(known, state.values(), strict=True))


def make(sort, seed):
    """Problem number ``seed`` of a sort."""
    rng = np.random.default_rng([seed, *sort.encode()])
    options = SORTS[sort]
    circuit = options(rng) if callable(options) else random_circuit(rng, **options)
    query, evidence = random_instance(rng, circuit)
    while len(query) < 3 and rng.random() < 0.6:  # the fewer are asked for, the less there is to get wrong
        query, evidence = random_instance(rng, circuit)
    ranked = naive.marginal_map(circuit, columns(circuit, query), fixed(circuit, evidence))
    return Problem(f"sort {sort!r}, seed {seed}", circuit, query, evidence, ranked)


def decimal_log(fraction):
    return (Decimal(fraction.numerator) / Decimal(fraction.denominator)).ln()


def check_bounds(problem, r):
    """What holds of every answer, however early it was stopped: a real state, its own probability, both bounds."""
    values = {q: p for p, q in problem.ranked}
    own = naive.log(values[problem.codes(r.state)])
    assert math.isclose(r.log_prob, own, rel_tol=1e-11, abs_tol=1e-11), f"{problem.name}: {r.log_prob}, naive {own}"
    assert r.log_prob <= problem.best + 1e-11 * max(1.0, abs(problem.best)), problem.name
    assert problem.best <= r.log_upper, f"{problem.name}: optimum {problem.best}, upper bound {r.log_upper}"
    assert r.gap == max(0.0, r.log_upper - r.log_prob), problem.name


def check_optimal(problem, r):
    check_bounds(problem, r)
    assert r.status == "optimal", f"{problem.name}: {r.status}"
    assert r.gap <= TOLERANCE, f"{problem.name}: gap {r.gap}"
    assert r.log_prob >= problem.best - TOLERANCE, f"{problem.name}: {r.log_prob}, enumeration {problem.best}"


def stop_at_every_moment(monkeypatch, sorts, method, **options):
    """Stop at the first, second, ... time the solver looks at its limits, until it comes to its end; how often."""
    stops = 0
    for sort in sorts:
        for seed in range(4000, 4006):
            p = make(sort, seed)
            for moment in range(1, 60):
                asked = iter(range(1, 10_000))

                def check(_limits, asked=asked, moment=moment):
                    if next(asked) >= moment:
                        raise Stopped("time_limit")

                monkeypatch.setattr(Limits, "check", check)
                r = mm.marginal_map(p.circuit, p.query, p.evidence, method, k=1 + seed % 2, **options)
                check_bounds(p, r)
                assert r.status in ("optimal", "time_limit"), p.name
                if r.status == "optimal":
                    break
                stops += 1
    return stops
