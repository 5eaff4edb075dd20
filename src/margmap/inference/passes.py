"""The passes over a scaled circuit: values up, flows down.

What can underflow is a product of many small values: the pass for one row keeps such a node as a pair of a value and a
power of two (see :mod:`margmap.foundation.pairs`), and the pass for many rows hands a row that falls under 1e-250 to
it. Nothing larger is lost, because no factor above a node exceeds 1.
"""

from __future__ import annotations

import math

import numpy as np

from margmap.circuit import GAUSSIAN, PRODUCT, SUM, FloatArray, IntArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import (
    EPS,
    EXACT,
    STEP,
    TINY,
    encoded,
    from_log,
    log_of,
    moved,
    plus,
    two_product,
    two_sum,
)
from margmap.inference.dense import block_values, last_row
from margmap.inference.scaled import Scaled

ROWS_AT_ONCE = 32


@kernel
def leaf_value(s: Scaled, n: int, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
    """The relative value of a leaf under one row, as a pair."""
    v, t = s.var[n], s.table_start[n]
    if s.kind[n] == GAUSSIAN:
        if np.isnan(reals[v]):
            return s.table[t + 2], s.table_shift[t + 2]
        # -z * z / 2 with twice the digits: far out, a difference of means can be less than its last digit.
        deviation, power = math.frexp(s.table[t + 1])
        away, lost = two_sum(reals[v], -s.table[t])
        away, lost = math.ldexp(away, -power), math.ldexp(lost, -power)
        z = away / deviation
        back, back_lost = two_product(z, deviation)
        z_low = ((away - back) - back_lost + lost) / deviation
        square, square_low = two_product(z, z)
        value, exponent = from_log(-0.5 * square, -0.5 * square_low - z * z_low)
        value, exponent = value * s.table[t + 3], exponent + s.table_shift[t + 3]
        return (value, exponent) if value >= TINY else (value / TINY, exponent - STEP)
    return s.table[t + codes[v]], s.table_shift[t + codes[v]]


@kernel
def forward(s: Scaled, codes: IntArray, reals: FloatArray, value: FloatArray, exponent: FloatArray) -> None:
    """The relative value of every node under one row, as pairs; the exponent of a zero is 0."""
    forward_from(s, forward_plain(s, codes, value), codes, reals, value, exponent)


@kernel
def forward_from(
    s: Scaled, plain: int, codes: IntArray, reals: FloatArray, value: FloatArray, exponent: FloatArray
) -> None:
    """The same where the nodes before ``plain`` have their values, and need no power of two."""
    exponent[:plain] = 0.0
    if plain < s.kind.size:
        forward_nodes(s, None, np.arange(plain, s.kind.size).astype(np.int32), codes, reals, value, exponent)


@kernel
def forward_plain(s: Scaled, codes: IntArray, value: FloatArray) -> int:
    """The values of the nodes before the first that needs a power of two; how many those are.

    Most rows of most circuits need none, and then half the numbers that a pass reads are zeros.
    """
    if not s.plain:
        return 0
    for n in range(s.kind.size):
        if s.kind[n] == SUM:
            v = 0.0
            for e in range(s.start[n], s.start[n + 1]):
                v += s.weight[e] * value[s.child[e]]
        elif s.kind[n] == PRODUCT:
            v = 1.0
            for e in range(s.start[n], s.start[n + 1]):
                v *= value[s.child[e]]
                if v < TINY:  # the next factor could take it out of the range of doubles
                    break
        else:
            v = s.table[s.table_start[n] + codes[s.var[n]]]
        if 0 < v < TINY:
            return n
        value[n] = v
    return int(s.kind.size)


@kernel
def forward_dense(s: Scaled, codes: IntArray, reals: FloatArray, value: FloatArray, exponent: FloatArray) -> None:
    """The same with a matrix product for each dense block."""
    forward_nodes(s, s.rows, None, codes, reals, value, exponent)


@kernel
def forward_nodes(
    s: Scaled,
    rows: IntArray | None,
    nodes: IntArray | None,
    codes: IntArray,
    reals: FloatArray,
    value: FloatArray,
    exponent: FloatArray,
) -> None:
    """The same for some nodes, children first, from the values of their children; None stands for all nodes.

    ``rows`` are the first rows of dense blocks; None, which has machine code of its own, stands for a circuit without.
    """
    size, i, singly = s.kind.size if nodes is None else nodes.size, 0, 0
    while i < size:
        n = i
        if nodes is not None:
            n = nodes[i]
        i += 1
        if rows is not None and rows[n] >= 0 and i > singly:
            end = last_row(rows, n)  # all rows have the same scope, so that all are among the nodes
            if block_values(s.start, s.child, s.weight, n, end, value, exponent):
                i += end - n - 1
                continue
            singly = i + end - n - 1
        if s.kind[n] == PRODUCT:
            v, power = 1.0, 0.0
            for e in range(s.start[n], s.start[n + 1]):
                v *= value[s.child[e]]
                power += exponent[s.child[e]]
                if v < TINY:
                    if v == 0:
                        power = 0.0
                        break
                    v /= TINY
                    power -= STEP
            value[n], exponent[n] = v, power
        elif s.kind[n] == SUM:
            v, power, plain = 0.0, 0.0, True
            for e in range(s.start[n], s.start[n + 1]):
                c = s.child[e]
                plain &= exponent[c] == 0 and s.shift[e] == 0
                v += s.weight[e] * value[c]
            if not plain:
                v, power = sum_of_pairs(s, n, value, exponent)
            if 0 < v < TINY:
                v /= TINY
                power -= STEP
            value[n], exponent[n] = v, power
        elif s.kind[n] == GAUSSIAN:
            value[n], exponent[n] = leaf_value(s, n, codes, reals)
        else:
            x = s.table_start[n] + codes[s.var[n]]
            value[n], exponent[n] = s.table[x], s.table_shift[x]


@kernel
def sum_of_pairs(s: Scaled, n: int, value: FloatArray, exponent: FloatArray) -> tuple[float, float]:
    """The value of a sum some of whose terms are powers of two apart: each is a pair."""
    v, power = 0.0, 0.0
    for e in range(s.start[n], s.start[n + 1]):
        c = s.child[e]
        v, power = plus(v, power, s.weight[e] * value[c], s.shift[e] + exponent[c])
    return v, power


@kernel
def share_pair(s: Scaled, n: int, e: int, value: FloatArray, exponent: FloatArray) -> tuple[float, float]:
    """The part of sum ``n``'s value that comes through edge ``e``, as a pair that may have a small value."""
    c = s.child[e]
    if value[c] <= 0 or value[n] <= 0:
        return 0.0, 0.0
    return s.weight[e] * value[c] / value[n], s.shift[e] + exponent[c] - exponent[n]


@kernel
def share_weight(s: Scaled, n: int, e: int, value: FloatArray, exponent: FloatArray) -> float:
    """The part of sum ``n``'s value that comes through edge ``e``, as a weight that is not less than it.

    Exponents beyond ``EXACT`` were rounded each time that one was added to another, at most once a node.
    """
    share, shift = share_pair(s, n, e, value, exponent)
    size = max(abs(s.shift[e]), abs(exponent[s.child[e]]), abs(exponent[n]))
    if size > EXACT:
        return min(encoded(share, shift + EPS * 3 * (s.kind.size + 8) * size), 1.0)
    return encoded(share, shift)


@kernel
def edge_share(s: Scaled, n: int, e: int, value: FloatArray, exponent: FloatArray) -> float:
    """The part of sum ``n``'s value that comes through edge ``e``; 0 if it is too small for a double."""
    share, shift = share_pair(s, n, e, value, exponent)
    return moved(share, shift)


@kernel
def flows(s: Scaled, value: FloatArray, exponent: FloatArray) -> FloatArray:
    """The probability that each node takes part, given the evidence behind ``value``: one pass down."""
    flow = np.zeros(s.kind.size)
    flow[-1] = 1.0
    for n in range(s.kind.size - 1, -1, -1):
        if flow[n] == 0:
            continue
        for e in range(s.start[n], s.start[n + 1]):
            if s.kind[n] == PRODUCT:
                flow[s.child[e]] += flow[n]
            else:
                flow[s.child[e]] += flow[n] * edge_share(s, n, e, value, exponent)
    return flow


@kernel
def log_values(s: Scaled, codes: IntArray, reals: FloatArray, out: FloatArray) -> None:
    """The log of the root for every row, many rows at a time.

    A row is a column of ``codes`` and of ``reals``; the latter has none at all if no variable is continuous.
    """
    rows = codes.shape[1]
    n_nodes = s.kind.size
    values = np.zeros((n_nodes, ROWS_AT_ONCE))
    one_value, one_exponent = np.zeros(n_nodes), np.zeros(n_nodes)
    one_code, one_real = np.zeros(codes.shape[0], dtype=np.int32), np.zeros(codes.shape[0])
    for first in range(0, rows, ROWS_AT_ONCE):
        width = min(ROWS_AT_ONCE, rows - first)
        for n in range(n_nodes):
            if s.kind[n] == SUM:
                values[n] = 0.0
                for e in range(s.start[n], s.start[n + 1]):
                    w, c = moved(s.weight[e], s.shift[e]), s.child[e]
                    for j in range(ROWS_AT_ONCE):
                        values[n, j] += w * values[c, j]
            elif s.kind[n] == PRODUCT:
                c = s.child[s.start[n]]
                for j in range(ROWS_AT_ONCE):
                    values[n, j] = values[c, j]
                for e in range(s.start[n] + 1, s.start[n + 1]):
                    c = s.child[e]
                    for j in range(ROWS_AT_ONCE):
                        values[n, j] *= values[c, j]
            elif s.kind[n] == GAUSSIAN:
                for j in range(width):
                    v, shift = leaf_value(s, n, codes[:, first + j], reals[:, first + j])
                    values[n, j] = moved(v, shift)
            else:
                t, v = s.table_start[n], s.var[n]
                for j in range(width):
                    x = t + codes[v, first + j]
                    values[n, j] = moved(s.table[x], s.table_shift[x])
        for j in range(width):
            root = values[n_nodes - 1, j]
            if root > 1e-250:
                out[first + j] = log_of(root * s.total, s.total_exponent)
            else:
                one_code[:] = codes[:, first + j]
                if reals.shape[1] > 0:
                    one_real[:] = reals[:, first + j]
                forward(s, one_code, one_real, one_value, one_exponent)
                out[first + j] = log_of(one_value[n_nodes - 1] * s.total, one_exponent[n_nodes - 1] + s.total_exponent)
