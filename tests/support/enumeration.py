"""Reduced circuits by enumeration: every node's value in every state, in numpy, sharing no code with the package.

A table of values has one row a node and one column a state of the query. The generators give many small circuits of
every sort, each the reduced circuit of a random circuit under a random query and evidence.
"""

import itertools
import math

import numpy as np

from circuits import random_circuit, random_instance
from margmap.circuit import BERNOULLI, Parts, Variable, assemble
from margmap.solve.reduce import reduce

LEAF, PRODUCT, SUM = 0, 5, 6

#: Options of `random_circuit`, turn by turn: with few nodes and with many, structured or not, exclusive sums or not.
SORTS = [
    {"structured": structured, "deterministic": deterministic, "values": values, "zeros": zeros, "most": most}
    for structured in (True, False)
    for deterministic in (False, False, True)
    for values, zeros, most in (((2,), True, 60), ((2,), False, 120), ((2, 3, 4), True, 80))
]


def problem(seed):
    """A random circuit of 4 to 7 variables (4 if some have more than two values), a query and evidence."""
    rng = np.random.default_rng(seed)
    sort = SORTS[seed % len(SORTS)]
    variables = 4 if sort["values"] != (2,) else 4 + seed // len(SORTS) % 4
    circuit = random_circuit(rng, variables=variables, **sort)
    query, evidence = random_instance(rng, circuit)
    while len(query) < 2 and rng.random() < 0.9:  # one variable alone is decided before the first iteration
        query, evidence = random_instance(rng, circuit)
    return circuit, query, evidence


def reduced_problems(first, count):
    """The reduced circuits of ``count`` problems that have at least one edge left."""
    seed = first
    while count > 0:
        reduced = reduce(*problem(seed))
        seed += 1
        if reduced.num_edges:
            count -= 1
            yield reduced


def states_of(cardinality):
    return np.array(list(itertools.product(*(range(k) for k in cardinality))))


def edges_of(flat):
    """(node, edge, child), parents in the order of their numbers."""
    for n in range(len(flat.kind)):
        for e in range(flat.start[n], flat.start[n + 1]):
            yield n, e, int(flat.child[e])


def values_of(flat, states):
    values = np.zeros((len(flat.kind), len(states)))
    for n in range(len(flat.kind)):
        edges = range(flat.start[n], flat.start[n + 1])
        if flat.kind[n] == PRODUCT:
            values[n] = 1
            for e in edges:
                values[n] *= values[flat.child[e]]
        elif flat.kind[n] == SUM:
            for e in edges:
                values[n] += flat.weight[e] * values[flat.child[e]]
        else:
            assert flat.kind[n] == LEAF
            values[n] = states[:, flat.var[n]] == flat.value[n]
    return values


def root_values(flat, states):
    """The root's value in every state; zeros for the empty circuit."""
    return values_of(flat, states)[-1] if len(flat.kind) else np.zeros(len(states))


def active(flat, values):
    """For each node the states in its context: it and all nodes on some path from the root are nonzero."""
    context = np.zeros(values.shape, dtype=bool)
    context[-1] = values[-1] > 0
    for n, _, c in sorted(edges_of(flat), reverse=True):
        context[c] |= context[n] & (values[c] > 0)
    return context


def restricted_optima(flat, values):
    """For each edge the largest value of the root over the states that have the edge in their subcircuit."""
    context = active(flat, values)
    best = np.zeros(len(flat.child))
    for n, e, c in edges_of(flat):
        best[e] = np.where(context[n] & (values[c] > 0), values[-1], 0).max()
    return best


def supports(flat):
    """For each node the possible values of each variable in its scope."""
    found = []
    for n in range(len(flat.kind)):
        mine = {int(flat.var[n]): {int(flat.value[n])}} if flat.kind[n] == LEAF else {}
        for e in range(flat.start[n], flat.start[n + 1]):
            for v, xs in found[flat.child[e]].items():
                mine.setdefault(v, set()).update(xs)
        found.append(mine)
    return found


def exclusive_sums(flat):
    """The sums every two children of which have no value of some variable in common."""
    below = supports(flat)
    answer = np.zeros(len(flat.kind), dtype=bool)
    for n in range(len(flat.kind)):
        children = flat.child[flat.start[n] : flat.start[n + 1]].tolist()
        answer[n] = flat.kind[n] == SUM and all(
            any(not below[a][v] & below[b][v] for v in below[a]) for a, b in itertools.combinations(children, 2)
        )
    return answer


def algorithm_1(flat, take_max, allowed=None):
    """Output bounds; ``allowed`` (variable, value) sets the other indicators of that variable to zero."""
    m = np.zeros(len(flat.kind))
    for n in range(len(flat.kind)):
        terms = [flat.weight[e] * m[flat.child[e]] for e in range(flat.start[n], flat.start[n + 1])]
        if flat.kind[n] == LEAF:
            m[n] = 0 if allowed and flat.var[n] == allowed[0] and flat.value[n] != allowed[1] else 1
        elif flat.kind[n] == PRODUCT:
            m[n] = math.prod(terms)
        else:
            m[n] = max(terms) if take_max[n] else math.fsum(terms)
    return m


def algorithm_2(flat, take_max, siblings):
    """Edge bounds with one slope: ``siblings=False`` is the rule as printed, ``True`` the corrected one.

    r is the bound, t the factor with which a node's loss reaches the root.
    """
    m = algorithm_1(flat, take_max)
    r, t = np.zeros(len(flat.kind)), np.full(len(flat.kind), np.inf)
    r[-1], t[-1] = m[-1], 1.0
    result = np.zeros(len(flat.child))
    for n in range(len(flat.kind) - 1, -1, -1):
        children = flat.child[flat.start[n] : flat.start[n + 1]]
        for e in range(flat.start[n], flat.start[n + 1]):
            c = flat.child[e]
            result[e] = r[n]
            slope = t[n] * flat.weight[e]
            if flat.kind[n] == PRODUCT and siblings:
                slope *= math.prod(m[s] for s in children if s != c)
            if flat.kind[n] == SUM and take_max[n]:
                result[e] += t[n] * (flat.weight[e] * m[c] - m[n])
            r[c], t[c] = max(r[c], result[e]), min(t[c], slope)
    return result


def mixture(variables, components, seed=1, spread=0.1):
    """A mixture of independent coins, the hard case: no sum excludes anything, and no component stands out."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.5 - spread, 0.5 + spread, (components, variables))
    parts = Parts.new()
    rows = [[parts.leaf(BERNOULLI, i, [math.log(x), math.log1p(-x)]) for i, x in enumerate(row)] for row in p]
    parts.sum([parts.product(row) for row in rows], [-math.log(components)] * components)
    return assemble([Variable(i) for i in range(variables)], parts), p


def mixture_optimum(p):
    """The log of the best state's probability, all states at once."""
    total = 0
    for row in p:
        state = np.ones(1)
        for x in row:
            state = np.concatenate([state * (1 - x), state * x])
        total = total + state
    return math.log(total.max() / len(p))
