"""Circuits whose best states are known because they were put there: near ties, and frontiers that get wide.

And solvers that are misled: they begin with a state that is planted just below the best, do not climb, and so have
nothing but their bounds to find the best one with.
"""

import math

import numpy as np

import naive
from circuits import columns, fixed
from margmap.circuit import BERNOULLI, CATEGORICAL, INDICATOR, SUM, Parts, Variable, assemble
from margmap.solve.hill_climb import Incumbents
from margmap.solve.lower_bound import lower_bound_state
from margmap.solve.methods import best_first
from margmap.solve.methods import branch_and_bound as branch
from margmap.solve.methods import iter_solve as iterative
from margmap.solve.methods import maxspn as search
from margmap.solve.methods.frontier import solve as frontier
from problems import Problem, make

#: By how many nats the planted state is worse than the best one.
MARGINS = (8e-3, 1e-3, 1e-5, 1e-7)


class Weak(Incumbents):
    """Takes what it is offered without improving it."""

    def offer(self, state, climb):
        return super().offer(state, climb=False)


def near_tie(sort, seed, margin):
    """A problem of a sort with one more component, a single state, that lifts it to ``margin`` nats below the best.

    Also the codes of that state, in the order of the query; None if there is no room for one.
    """
    p = make(sort, seed)
    rng = np.random.default_rng([seed, 7])
    best = p.ranked[0][0]
    open_ = [(value, q) for value, q in p.ranked if value < best * math.exp(-margin) * (1 - 1e-9)]
    if not open_ or any(v.continuous for v in p.circuit.variables):
        return None
    value, planted = open_[int(rng.integers(len(open_)))]
    asked, given = columns(p.circuit, p.query), fixed(p.circuit, p.evidence)
    code = {**dict.fromkeys(naive.mentioned(p.circuit), 0), **given, **dict(zip(asked, planted, strict=True))}
    circuit = with_component(p.circuit, code, best * math.exp(-margin) - value)
    ranked = naive.marginal_map(circuit, asked, given)
    return Problem(f"{p.name}, margin {margin}", circuit, p.query, p.evidence, ranked), np.array(planted, np.int32)


def with_component(circuit, code, weight):
    """The circuit plus ``weight`` where every variable (column -> value) is as given, for the variables it mentions."""
    parts = Parts(*(getattr(circuit, name).tolist() for name in Parts._fields))
    root = len(parts.kind) - 1
    leaves = [parts.leaf(INDICATOR, column, [float(x)]) for column, x in code.items()]
    parts.sum([root, parts.product(leaves) if len(leaves) > 1 else leaves[0]], [0.0, math.log(weight)])
    return assemble(circuit.variables, parts)


def mislead(monkeypatch, planted):
    """Every solver begins with the planted state, and is offered it again until what is left has one best state."""

    def first(flat, deterministic, variables, rows=None, parts=None):
        literals = set(zip(flat.var.tolist(), flat.value.tolist(), strict=True)) - {(-1, -1)}
        one_state = len(literals) == len({v for v, _ in literals})
        decided = one_state or deterministic[flat.kind == SUM].all()
        return lower_bound_state(flat, deterministic, variables, rows, parts) if decided else planted.copy()

    for module in (frontier, branch, best_first, iterative):
        monkeypatch.setattr(module, "Incumbents", Weak)
    for module in (frontier, branch, iterative):
        monkeypatch.setattr(module, "lower_bound_state", first)
    monkeypatch.setattr(best_first, "SPLIT_EDGES", 40)
    monkeypatch.setattr(search, "beam", lambda *_, **__: planted.copy())
    monkeypatch.setattr(search, "STAGE_EDGES", 0)


def halves(rng, half=7, components=8, spread=0.2):
    """A mixture of coins in two halves, each product a pair of products: wide frontiers meet at the root.

    Also the probabilities of all states by their numbers, the last variable fastest.
    """
    parts = Parts.new()
    p = rng.uniform(0.5 - spread, 0.5 + spread, (components, 2 * half))
    weight = rng.dirichlet(np.ones(components))
    products, total = [], 0.0
    for row, w in zip(p, weight, strict=True):
        leaves = [parts.leaf(BERNOULLI, i, [math.log(x), math.log1p(-x)]) for i, x in enumerate(row)]
        products.append(parts.product([parts.product(leaves[:half]), parts.product(leaves[half:])]))
        table = np.full(1, w)
        for x in row:
            table = np.outer(table, [1 - x, x]).reshape(-1)
        total = total + table
    parts.sum(products, np.log(weight).tolist())
    return assemble([Variable(i) for i in range(2 * half)], parts), total


def factors(rng, count, margin):
    """Independent factors, each with a planted state ``margin`` below its best; the planted state of all, the best."""
    parts, roots, planted, best = Parts.new(), [], [], 0.0
    size = 4
    for i in range(count):
        p = rng.uniform(0.2, 0.8, (3, size))
        table = 0.0
        products = []
        for row in p:
            leaves = [parts.leaf(BERNOULLI, size * i + j, [math.log(x), math.log1p(-x)]) for j, x in enumerate(row)]
            products.append(parts.product(leaves))
            one = np.ones(1)
            for x in row:
                one = np.outer(one, [1 - x, x]).reshape(-1)
            table = table + one / 3
        top = int(table.argmax())
        state = (1 << size) - 1 - top  # the opposite
        code = [state >> (size - 1 - j) & 1 for j in range(size)]
        more = table[top] * math.exp(-margin) - table[state]
        single = parts.product([parts.leaf(INDICATOR, size * i + j, [float(x)]) for j, x in enumerate(code)])
        roots.append(parts.sum([*products, single], [-math.log(3)] * 3 + [math.log(more)]))
        planted += code
        best += math.log(table[top])
    parts.product(roots)
    return assemble([Variable(i) for i in range(size * count)], parts), np.array(planted, np.int32), best


def beyond_doubles(rng, variables=6, states=3, size=400.0):
    """A latent tree whose tables span hundreds of nats; also the log value of every state, the last variable fastest.

    What is small is beyond all doubles beside what is large, and may still decide. Some values are impossible.
    """
    parts = Parts.new()
    codes = np.array(list(np.ndindex(*[2] * variables)))

    def logs(shape):
        return np.where(rng.random(shape) < 0.3, 0.0, -rng.exponential(size, shape))

    waiting = []  # of each subtree, nodes and their log values under all states
    for v in range(variables):
        rows = logs((states, 2))
        rows[rng.random(states) < 0.3, int(rng.integers(2))] = -np.inf
        waiting.append([(parts.leaf(CATEGORICAL, v, row.tolist()), row[codes[:, v]]) for row in rows])
    while len(waiting) > 1:
        first, second = waiting.pop(0), waiting.pop(0)
        both = [(parts.product([a, b]), x + y) for (a, x), (b, y) in zip(first, second, strict=True)]
        nodes, values = [n for n, _ in both], np.array([x for _, x in both])
        rows = logs((states if waiting else 1, states))
        waiting.append(
            [(parts.sum(nodes, row.tolist()), np.logaddexp.reduce(values + row[:, None], axis=0)) for row in rows]
        )
    root, values = waiting[0][0]
    return assemble([Variable(v) for v in range(variables)], parts, root), values
