"""Variable elimination and enumeration on networks in plain numpy, sharing no code with the package."""

import itertools
import math

import numpy as np


def random_network(rng, n, *, kind="bayes", most_parents=3, most_values=3, zeros=0.2, repeats=0.3):
    """Cardinalities and (scope, table) pairs, the child last; with zeros and equal rows, as real tables have."""
    cardinality = [int(rng.integers(1 if rng.random() < 0.1 else 2, most_values + 1)) for _ in range(n)]
    order = rng.permutation(n).tolist()
    factors = []
    for i, child in enumerate(order):
        parents = rng.permutation(order[:i]).tolist()[: int(rng.integers(0, most_parents + 1))]
        scope = [*parents, child]
        table = rng.random([cardinality[v] for v in scope]) + 0.05
        table[rng.random(table.shape) < zeros] = 0.0
        rows = table.reshape(-1, table.shape[-1])
        for row in rows:
            if row.sum() == 0:
                row[rng.integers(row.size)] = 1.0
            if rng.random() < repeats:
                row[:] = rows[0]
        if kind == "bayes":
            rows /= rows.sum(axis=1, keepdims=True)
        else:
            table *= 10 ** rng.uniform(-2, 2)
        factors.append((scope, table))
    return cardinality, factors


def eliminate(cardinality, factors, evidence, keep=()):
    """The table of p(keep, evidence), by summing out the variable with the smallest product first."""
    tables = []
    for scope, table in factors:
        at = tuple(evidence.get(v, slice(None)) for v in scope)
        tables.append(([v for v in scope if v not in evidence], np.asarray(table)[at]))
    left = [v for v in range(len(cardinality)) if v not in evidence and v not in keep]
    while left:
        joined = {v: set().union({v}, *(set(s) for s, _ in tables if v in s)) for v in left}
        v = min(left, key=lambda u: math.prod(cardinality[w] for w in joined[u]))
        left.remove(v)
        using = [part for part in tables if v in part[0]]
        tables = [part for part in tables if v not in part[0]]
        tables.append(multiply(cardinality, using, sorted(joined[v] - {v}), {v}))
    return multiply(cardinality, tables, list(keep), set())[1]


def multiply(cardinality, parts, out, summed):
    axes = [*out, *summed]
    product = np.ones([cardinality[v] for v in axes])
    for scope, table in parts:
        by_axis = sorted(range(len(scope)), key=lambda i: axes.index(scope[i]))
        shape = [cardinality[v] if v in scope else 1 for v in axes]
        product = product * np.transpose(table, by_axis).reshape(shape)
    return list(out), product.sum(axis=tuple(range(len(out), len(axes))))


def best_states(cardinality, factors, query, evidence):
    """All pairs (p(q, e), q), best first."""
    table = eliminate(cardinality, factors, evidence, tuple(query))
    states = itertools.product(*(range(cardinality[v]) for v in query))
    return sorted(((float(table[q]), q) for q in states), reverse=True)
