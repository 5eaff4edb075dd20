"""The values of a query circuit under a state: one pass up, for all nodes or some."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import STEP, TINY, decoded, log_of, plus
from margmap.inference.dense import block_values, last_row
from margmap.solve.query_circuit import Flat


@kernel
def log_value(f: Flat, state: IntArray) -> float:
    """The log value of a state."""
    value, exponent = np.zeros(f.kind.size), np.zeros(f.kind.size)
    evaluate(f, state, value, exponent)
    return log_of(value[f.kind.size - 1], exponent[f.kind.size - 1])


@kernel
def evaluate(f: Flat, state: IntArray, value: FloatArray, exponent: FloatArray) -> None:
    """Every node's value under a state, as a pair; the exponent of a zero is 0."""
    evaluate_nodes(f, range(f.kind.size), state, value, exponent)


@kernel
def evaluate_blocks(f: Flat, rows: IntArray | None, state: IntArray, value: FloatArray, exponent: FloatArray) -> None:
    """The same where the first rows of dense blocks are known (:func:`~margmap.solve.query_circuit.rows_of`)."""
    evaluate_range(f, rows, state, value, exponent, 0, f.kind.size)


@kernel
def evaluate_range(
    f: Flat,
    rows: IntArray | None,
    state: IntArray,
    value: FloatArray,
    exponent: FloatArray,
    begin: int,
    stop_before: int,
) -> None:
    """The same for a range of nodes; no dense block lies across its ends."""
    if rows is None:
        evaluate_nodes(f, range(begin, stop_before), state, value, exponent)
        return
    n = begin
    while n < stop_before:
        end = n + 1
        if rows[n] >= 0:
            end = last_row(rows, n)
            if block_values(f.start, f.child, f.weight, n, end, value, exponent):
                n = end
                continue
        while end < stop_before and rows[end] < 0:
            end += 1
        evaluate_nodes(f, range(n, end), state, value, exponent)
        n = end


@kernel
def evaluate_nodes(f: Flat, nodes: Iterable[int], state: IntArray, value: FloatArray, exponent: FloatArray) -> None:
    """The values of some nodes, children first, from those of their children."""
    kind, start, child, weight = f.kind, f.start, f.child, f.weight
    for n in nodes:
        power = 0.0
        if kind[n] == PRODUCT:
            v = 1.0
            for e in range(start[n], start[n + 1]):
                v *= value[child[e]]
                power += exponent[child[e]]
                if v < TINY:
                    if v == 0:
                        power = 0.0
                        break
                    v /= TINY
                    power -= STEP
        elif kind[n] == SUM:
            v, plain = 0.0, True
            for e in range(start[n], start[n + 1]):
                plain &= exponent[child[e]] == 0 and weight[e] > 0
                v += weight[e] * value[child[e]]
            if not plain:
                v = 0.0
                for e in range(start[n], start[n + 1]):
                    w, shift = decoded(weight[e])
                    v, power = plus(v, power, w * value[child[e]], shift + exponent[child[e]])
            if 0 < v < TINY:
                v /= TINY
                power -= STEP
        else:
            v = 1.0 if state[f.var[n]] == f.value[n] else 0.0
        value[n], exponent[n] = v, power
