"""Rows to learn from, and a slow twin of what the learner keeps: every count from the circuit, row by row."""

from __future__ import annotations

import math

import numpy as np

import margmap as mm
from margmap.circuit import BERNOULLI, CATEGORICAL, INDICATOR, PRODUCT

# The rows of a test of ProbabilisticCircuits.jl (2021): its Chow-Liu circuit without smoothing has 48 parameters and a
# mean log-likelihood of -1.86368 on them.
JUICE_ROWS = np.array(
    [
        [1, 0, 1, 0, 1, 0, 1, 0, 1, 0],
        [1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0, 1, 1, 0, 1, 0, 0, 1, 0, 1],
    ]
)


def tangled(rows: int, columns: int, values: int = 2, seed: int = 0) -> np.ndarray:
    """Rows with much more than pairwise structure: noisy sums of earlier columns, two kinds of rows."""
    rng = np.random.default_rng(seed)
    data = rng.integers(0, values, (rows, columns))
    kind = rng.integers(0, 2, rows)
    for j in range(2, columns):
        a, b = rng.choice(j, 2, replace=False)
        made = np.where(kind == 1, data[:, a] + data[:, b], data[:, a] * data[:, b] + 1) % values
        data[:, j] = np.where(rng.random(rows) < 0.85, made, data[:, j])
    return data.astype(np.uint8)


def holes(rows: np.ndarray, part: float, seed: int = 0) -> np.ndarray:
    """The rows with a part of the cells missing."""
    return np.where(np.random.default_rng(seed).random(rows.shape) < part, -1, rows.astype(np.int64))


def mixed(number: int, seed: int = 0) -> np.ndarray:
    """Two kinds of rows: a code of three, a count of six, and a real number depend on the kind."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, number)
    code = np.where(rng.random(number) < 0.8, kind, 2)
    count = rng.binomial(6, np.where(kind == 1, 0.8, 0.2))
    real = rng.normal(np.where(kind == 1, 50.0, -10.0), 3.0)
    return np.column_stack([code, count, real, rng.integers(0, 2, number)])


#: The leaves that the columns of :func:`mixed` are meant to have.
MIXED = {2: "binomial", 3: "gaussian"}


def active_edges(circuit: mm.Circuit, row: np.ndarray) -> tuple[list[int], list[tuple[int, int]]]:
    """Which sum edges, and which values of which leaves, a complete row goes through, by plain recursion."""
    possible: dict[int, bool] = {}
    for n in range(circuit.num_nodes):
        below = circuit.child[circuit.start[n] : circuit.start[n + 1]]
        if circuit.kind[n] == INDICATOR:
            possible[n] = row[circuit.var[n]] == circuit.param[circuit.param_start[n]]
        elif circuit.kind[n] in (BERNOULLI, CATEGORICAL):
            possible[n] = True
        elif circuit.kind[n] == PRODUCT:
            possible[n] = all(possible[int(c)] for c in below)
        else:
            possible[n] = any(possible[int(c)] for c in below)
    edges: list[int] = []
    leaves: list[tuple[int, int]] = []
    todo = [circuit.root]
    while todo:
        n = todo.pop()
        span = range(circuit.start[n], circuit.start[n + 1])
        if circuit.kind[n] == PRODUCT:
            todo += [int(circuit.child[e]) for e in span]
        elif circuit.kind[n] in (BERNOULLI, CATEGORICAL):
            leaves.append((n, int(row[circuit.var[n]])))
        elif circuit.kind[n] != INDICATOR:
            (live,) = [e for e in span if possible[int(circuit.child[e])]]  # exactly one: the circuit is deterministic
            edges.append(live)
            todo.append(int(circuit.child[live]))
    return edges, leaves


def closed_form(circuit: mm.Circuit, rows: np.ndarray, pseudocount: float) -> tuple[np.ndarray, np.ndarray]:
    """The parameters that the rows give with an even prior: of all sum edges, and of all leaves as in `param`."""
    count, values = np.zeros(circuit.num_edges), np.zeros(circuit.param.size)
    for row in rows:
        edges, leaves = active_edges(circuit, row)
        for e in edges:
            count[e] += 1
        for n, value in leaves:
            at = int(circuit.param_start[n])
            values[at + (1 - value if circuit.kind[n] == BERNOULLI else value)] += 1
    for n in range(circuit.num_nodes):
        if circuit.kind[n] == 6:
            count[circuit.start[n] : circuit.start[n + 1]] = smooth(
                count[circuit.start[n] : circuit.start[n + 1]], pseudocount
            )
        elif circuit.kind[n] in (BERNOULLI, CATEGORICAL):
            span = slice(circuit.param_start[n], circuit.param_start[n + 1])
            values[span] = smooth(values[span], pseudocount)
    return count, values


def smooth(count: np.ndarray, pseudocount: float) -> np.ndarray:
    total = count.sum() + pseudocount
    return (count + pseudocount / count.size) / total if total > 0 else np.full(count.size, 1 / count.size)


def naive_information(x: np.ndarray, y: np.ndarray, a: int, b: int, alpha: float) -> float:
    """Mutual information in nats, straight from its definition."""
    total = len(x) + alpha * a * b
    joint = {(i, j): (sum((x == i) & (y == j)) + alpha) / total for i in range(a) for j in range(b)}
    left = {i: sum(joint[i, j] for j in range(b)) for i in range(a)}
    right = {j: sum(joint[i, j] for i in range(a)) for j in range(b)}
    return sum(p * math.log(p / (left[i] * right[j])) for (i, j), p in joint.items() if p > 0)
