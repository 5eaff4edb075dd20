"""The marginals of a reduced circuit: of a partial assignment, and of every literal beside it, from two passes."""

from __future__ import annotations

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import TINY, decoded, log_of, moved
from margmap.solve.query_circuit import LEAF, SMALLEST, Flat
from margmap.solve.values import evaluate


def by_literal(flat: Flat, cardinality: IntArray) -> tuple[Flat, LongArray]:
    """The circuit with its leaves numbered by literal, as if each were a variable that is 0 or 1."""
    first = np.zeros(cardinality.size + 1, dtype=np.int64)
    np.cumsum(cardinality, out=first[1:])
    leaf = flat.kind == LEAF
    literal = np.full(flat.num_nodes, -1, dtype=np.int32)
    literal[leaf] = first[flat.var[leaf]] + flat.value[leaf]
    return flat._replace(var=literal, value=np.where(leaf, 1, -1).astype(np.int32)), first


@kernel
def score(f: Flat, first: LongArray, state: IntArray) -> float:
    """The log value of a state."""
    chosen = np.zeros(first[-1], dtype=np.int32)
    for v in range(state.size):
        chosen[first[v] + state[v]] = 1
    value, exponent = np.zeros(f.kind.size), np.zeros(f.kind.size)
    evaluate(f, chosen, value, exponent)
    return log_of(value[f.kind.size - 1], exponent[f.kind.size - 1])


@kernel
def marginals(f: Flat, allowed: IntArray, plain: bool, value: FloatArray, exponent: FloatArray) -> None:
    """Every node with the literals allowed summed out, as pairs.

    ``plain`` says that what falls below the smallest doubles does not matter: then all exponents are 0.
    """
    if not plain:
        evaluate(f, allowed, value, exponent)
        return
    exponent[: f.kind.size] = 0.0
    for n in range(f.kind.size):
        if f.kind[n] == PRODUCT:
            v = 1.0
            for e in range(f.start[n], f.start[n + 1]):
                v *= value[f.child[e]]
        elif f.kind[n] == SUM:
            v = 0.0
            for e in range(f.start[n], f.start[n + 1]):
                v += max(f.weight[e], TINY) * value[f.child[e]]
        else:
            v = float(allowed[f.var[n]])
        value[n] = v


@kernel
def flows(f: Flat, value: FloatArray, exponent: FloatArray, flow: FloatArray) -> int:
    """The part of the root's value that passes through each node: at an indicator, its marginal over the root's.

    What is reached at all gets at least :data:`SMALLEST`. The number of edges of the nodes reached.
    """
    root = f.kind.size - 1
    flow[: root + 1] = 0.0
    flow[root] = 1.0
    live_edges = 0
    for n in range(root, -1, -1):
        if flow[n] == 0:
            continue
        live_edges += f.start[n + 1] - f.start[n]
        if f.kind[n] == PRODUCT:
            for e in range(f.start[n], f.start[n + 1]):
                flow[f.child[e]] += flow[n]
        elif f.kind[n] == SUM:
            share = flow[n] / value[n]
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                if value[c] > 0:
                    w, shift = decoded(f.weight[e])
                    flow[c] += max(moved(share * w * value[c], shift + exponent[c] - exponent[n]), SMALLEST)
    return live_edges
