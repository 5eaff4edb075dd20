"""Compiled passes over a circuit: values up, flows down.

All passes run on the *scaled* circuit. Let M be the total mass of a leaf (or its largest density, if that is more), the
product of the children's M at a product, their weighted sum at a sum. Each node is divided by its M, and each weight
becomes ``weight * M_child / M_node``. Then every value lies in [0, 1] and everything is multiply and add, without exp
or log. What can still underflow is a product of many small values: the pass for one row carries a log scale beside
such a node, and the pass for many rows hands a row that falls under 1e-250 to it. Nothing larger is lost, because no
factor above a node exceeds 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from margmap._jit import kernel
from margmap.circuit import GAUSSIAN, PRODUCT, SUM, Circuit, FloatArray, IntArray, KindArray, LongArray
from margmap.structure import leaf_tables

ROWS_AT_ONCE = 32
TINY = 1e-150
LOWEST_LOG = -600.0


class Scaled(NamedTuple):
    """Flat arrays of a circuit in relative numbers, as kernels take them.

    The slice ``table_start[n]`` to ``table_start[n + 1]`` of ``table`` has, for a discrete leaf, one entry a value and
    then their sum; for a Gaussian its mean, deviation, and the relative total mass. ``log_table`` has the logs for the
    discrete leaves, also of what is too small for ``table``.
    """

    kind: KindArray
    start: LongArray
    child: IntArray
    weight: FloatArray
    log_weight: FloatArray
    var: IntArray
    table_start: LongArray
    table: FloatArray
    log_table: FloatArray
    log_total: float
    #: How far any computed root value, conditioned and rescaled or not, can be from the exact one, relatively.
    rounding: float


def scale(circuit: Circuit) -> Scaled:
    """The circuit in relative numbers; :attr:`Circuit.scaled` keeps it."""
    log_start, log_table = leaf_tables(circuit)
    start, table, relative_log_table, log_weight, log_total, operations = _scale(
        circuit.kind,
        circuit.start,
        circuit.child,
        circuit.log_weight,
        circuit.param_start,
        circuit.param,
        log_start,
        log_table,
    )
    return Scaled(
        circuit.kind,
        circuit.start,
        circuit.child,
        np.exp(log_weight),
        log_weight,
        circuit.var,
        start,
        table,
        relative_log_table,
        float(log_total),
        4 * np.finfo(np.float64).eps * float(operations),
    )


@kernel
def _scale(
    kind: KindArray,
    start: LongArray,
    child: IntArray,
    log_weight: FloatArray,
    param_start: LongArray,
    param: FloatArray,
    log_start: LongArray,
    log_table: FloatArray,
) -> tuple[LongArray, FloatArray, FloatArray, FloatArray, float, float]:
    """Bounds, relative weights and leaf tables; and a count of roundings on the worst way to the root.

    A product's value gathers the roundings of all its children, a sum's those of the worst child. The bounds themselves
    cancel along every such way, so only the rounding of each step counts, which in logs grows with their size.
    """
    n = kind.size
    bound = np.zeros(n)
    operations = np.zeros(n)
    relative = np.zeros(child.size)
    table_start = np.zeros(n + 1, dtype=np.int64)
    for i in range(n):
        size = 3 if kind[i] == GAUSSIAN else log_start[i + 1] - log_start[i] + 1 if kind[i] < GAUSSIAN else 0
        table_start[i + 1] = table_start[i] + size
    table = np.zeros(table_start[n])
    relative_log_table = np.zeros(table_start[n])
    for i in range(n):
        t = table_start[i]
        if kind[i] == GAUSSIAN:
            deviation = param[param_start[i] + 1]
            bound[i] = max(0.0, -np.log(deviation) - 0.5 * np.log(2 * np.pi))
            table[t] = param[param_start[i]]
            table[t + 1] = deviation
            table[t + 2] = np.exp(-bound[i])
            operations[i] = 8.0 + abs(bound[i])
        elif kind[i] < GAUSSIAN:
            top = -np.inf
            for x in range(log_start[i], log_start[i + 1]):
                top = max(top, log_table[x])
            shift = top if -np.inf < top < LOWEST_LOG else 0.0  # a shift costs digits, so only where it must be
            mass = 0.0
            for x in range(log_start[i], log_start[i + 1]):
                mass += np.exp(log_table[x] - shift)
            bound[i] = np.log(mass) + shift
            total = 0.0
            for x in range(log_start[i + 1] - log_start[i]):
                log_value = log_table[log_start[i] + x]
                table[t + x] = np.exp(log_value - shift) / mass if mass > 0 else 0.0
                relative_log_table[t + x] = log_value - bound[i] if mass > 0 else -np.inf
                total += table[t + x]
            table[table_start[i + 1] - 1] = total
            relative_log_table[table_start[i + 1] - 1] = np.log(total)
            operations[i] = 4.0 + log_start[i + 1] - log_start[i] + (abs(bound[i]) if mass > 0 else 0.0)
        elif kind[i] == PRODUCT:
            for e in range(start[i], start[i + 1]):
                bound[i] += bound[child[e]]
                operations[i] += operations[child[e]] + 2
            operations[i] += abs(bound[i]) if bound[i] > -np.inf else 0.0
        else:
            top = -np.inf
            for e in range(start[i], start[i + 1]):
                top = max(top, log_weight[e] + bound[child[e]])
            if top > -np.inf:
                mass = 0.0
                for e in range(start[i], start[i + 1]):
                    mass += np.exp(log_weight[e] + bound[child[e]] - top)
                bound[i] = top + np.log(mass)
            else:
                bound[i] = -np.inf
            for e in range(start[i], start[i + 1]):
                alive = bound[i] > -np.inf and bound[child[e]] > -np.inf
                relative[e] = log_weight[e] + bound[child[e]] - bound[i] if alive else -np.inf
                if relative[e] > -np.inf:
                    size = 4.0 + abs(log_weight[e]) + abs(bound[child[e]]) + abs(bound[i])
                    operations[i] = max(operations[i], operations[child[e]] + size)
            operations[i] += start[i + 1] - start[i]
    return table_start, table, relative_log_table, relative, bound[n - 1], operations[n - 1]


@kernel
def leaf_value(s: Scaled, n: int, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
    """The relative value of a leaf and its log scale under one row."""
    v = s.var[n]
    if s.kind[n] == GAUSSIAN:
        t = s.table_start[n]
        if np.isnan(reals[v]):
            return s.table[t + 2], 0.0
        z = (reals[v] - s.table[t]) / s.table[t + 1]
        at_mode = s.table[t + 2] * 0.3989422804014327 / s.table[t + 1]
        return at_mode, -0.5 * z * z
    t = s.table_start[n] + codes[v]
    if s.table[t] >= TINY:
        return s.table[t], 0.0
    if s.log_table[t] > -np.inf:
        return 1.0, s.log_table[t]
    return 0.0, 0.0


@kernel
def forward(s: Scaled, codes: IntArray, reals: FloatArray, value: FloatArray, log_scale: FloatArray) -> None:
    """The relative value of every node under one row, as ``value * exp(log_scale)``."""
    for n in range(s.kind.size):
        if s.kind[n] == PRODUCT:
            v, scaled = 1.0, 0.0
            for e in range(s.start[n], s.start[n + 1]):
                v *= value[s.child[e]]
                scaled += log_scale[s.child[e]]
                if v < TINY and v > 0:
                    scaled += np.log(v)
                    v = 1.0
            value[n], log_scale[n] = v, scaled
        elif s.kind[n] == SUM:
            # Two edges' terms are comparable only at one scale; most circuits never leave scale 0.
            top = -np.inf
            for e in range(s.start[n], s.start[n + 1]):
                c = s.child[e]
                if value[c] > 0 and s.log_weight[e] > -np.inf:
                    top = max(top, log_scale[c] + (0.0 if s.weight[e] > TINY else s.log_weight[e]))
            v = 0.0
            if top > -np.inf:
                for e in range(s.start[n], s.start[n + 1]):
                    c = s.child[e]
                    if value[c] <= 0:
                        continue
                    shift = log_scale[c] - top
                    w = s.weight[e]
                    if w <= TINY:
                        shift += s.log_weight[e]
                        w = 1.0
                    v += w * value[c] if shift == 0 else w * value[c] * np.exp(shift)
                if v < TINY:
                    top += np.log(v)
                    v = 1.0
            else:
                top = 0.0
            value[n], log_scale[n] = v, top
        else:
            value[n], log_scale[n] = leaf_value(s, n, codes, reals)


@kernel
def edge_share(s: Scaled, n: int, e: int, value: FloatArray, log_scale: FloatArray) -> float:
    """The part of sum ``n``'s value that comes through edge ``e``."""
    c = s.child[e]
    if value[c] <= 0 or value[n] <= 0:
        return 0.0
    shift = log_scale[c] - log_scale[n]
    w = s.weight[e]
    if w <= TINY:
        shift += s.log_weight[e]
        w = 1.0
    return float(w * value[c] / value[n] * (np.exp(shift) if shift != 0 else 1.0))


@kernel
def flows(s: Scaled, value: FloatArray, log_scale: FloatArray) -> FloatArray:
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
                flow[s.child[e]] += flow[n] * edge_share(s, n, e, value, log_scale)
    return flow


@kernel
def log_values(s: Scaled, codes: IntArray, reals: FloatArray, out: FloatArray) -> None:
    """The log of the root for every row, many rows at a time.

    A row is a column of ``codes`` and of ``reals``; the latter has none at all if no variable is continuous.
    """
    rows = codes.shape[1]
    n_nodes = s.kind.size
    values = np.zeros((n_nodes, ROWS_AT_ONCE))
    one_value, one_scale = np.zeros(n_nodes), np.zeros(n_nodes)
    one_code, one_real = np.zeros(codes.shape[0], dtype=np.int32), np.zeros(codes.shape[0])
    for first in range(0, rows, ROWS_AT_ONCE):
        width = min(ROWS_AT_ONCE, rows - first)
        for n in range(n_nodes):
            if s.kind[n] == SUM:
                w, c = s.weight[s.start[n]], s.child[s.start[n]]
                for j in range(ROWS_AT_ONCE):
                    values[n, j] = w * values[c, j]
                for e in range(s.start[n] + 1, s.start[n + 1]):
                    w, c = s.weight[e], s.child[e]
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
                    values[n, j] = v * np.exp(shift)
            else:
                t, v = s.table_start[n], s.var[n]
                for j in range(width):
                    values[n, j] = s.table[t + codes[v, first + j]]
        for j in range(width):
            root = values[n_nodes - 1, j]
            if root > 1e-250:
                out[first + j] = np.log(root) + s.log_total
            else:
                one_code[:] = codes[:, first + j]
                if reals.shape[1] > 0:
                    one_real[:] = reals[:, first + j]
                forward(s, one_code, one_real, one_value, one_scale)
                out[first + j] = np.log(one_value[n_nodes - 1]) + one_scale[n_nodes - 1] + s.log_total
