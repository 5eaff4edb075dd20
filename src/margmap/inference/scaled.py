"""The scaled circuit: every node divided by its total mass, so that all values lie in [0, 1].

Let M be the total mass of a leaf (or its largest density, if that is more), the product of the children's M at a
product, their weighted sum at a sum. Each node is divided by its M, and each weight becomes
``weight * M_child / M_node``. Then everything is multiply and add, without exp or log, and no factor above a node
exceeds 1. Weights and table entries too small for doubles keep a power of two beside them
(:mod:`margmap.foundation.pairs`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from margmap.circuit import BINOMIAL, GAUSSIAN, PRODUCT, Circuit, FloatArray, IntArray, KindArray, LongArray
from margmap.circuit.leaves import leaf_tables
from margmap.errors import QueryError, StructureError
from margmap.foundation.jit import kernel
from margmap.foundation.memory import let_go
from margmap.foundation.pairs import EPS, EXACT, STEP, from_log, moved, normal, plus
from margmap.inference.dense import block_rows, mostly_blocks

#: Weights and total masses of nodes must lie between exp(-MOST_LOG) and exp(MOST_LOG).
MOST_LOG = 1e300

#: Evidence that is more standard deviations away from a Gaussian has a density that no logarithm can hold.
MOST_DEVIATIONS = 1e150

# What the exponent of a Gaussian errs by, in units of EPS, as long as it is at most EXACT.
_GAUSSIAN_ERROR = 64.0


class Scaled(NamedTuple):
    """Flat arrays of a circuit in relative numbers, as kernels take them.

    The weight of edge ``e`` is ``weight[e] * 2**shift[e]``; an edge that is impossible has weight 0. The slice
    ``table_start[n]`` to ``table_start[n + 1]`` of ``table`` (with ``table_shift`` in the same way) has, for a discrete
    leaf, one entry a value and then their sum; for a Gaussian its mean, its deviation, the relative total mass and the
    relative density at the mean.
    """

    kind: KindArray
    start: LongArray
    child: IntArray
    weight: FloatArray
    shift: FloatArray
    var: IntArray
    table_start: LongArray
    table: FloatArray
    table_shift: FloatArray
    #: For each node the first row of its dense block, or -1, see :mod:`margmap.inference.dense`.
    rows: IntArray
    #: Whether all leaves are discrete, and no weight or table entry needs a power of two.
    plain: bool
    #: The total mass of the circuit, as a pair.
    total: float
    total_exponent: float
    #: How far any computed root value can be from the exact one, relatively. Values that are powers of two beyond
    #: ``EXACT`` err more, see :func:`extra_rounding`.
    rounding: float


def scaled(circuit: Circuit) -> Scaled:
    """The circuit in relative numbers, which all passes run on; made once."""
    return circuit.kept(_scaled)


def is_dense(circuit: Circuit) -> bool:
    """Whether most edges are in dense blocks; found once for a circuit."""
    return circuit.kept(_is_dense)


def _is_dense(circuit: Circuit) -> bool:
    return mostly_blocks(circuit.start, scaled(circuit).rows)


def _scaled(circuit: Circuit) -> Scaled:
    log_start, log_table = leaf_tables(circuit)
    # Memory that is nowhere written to is not taken, and most circuits have no such small weights.
    shift = np.zeros(circuit.num_edges)
    start, table, table_shift, weight, plain, total, total_exponent, operations, beyond = _scale(
        circuit.kind,
        circuit.start,
        circuit.child,
        circuit.log_weight,
        circuit.param_start,
        circuit.param,
        log_start,
        log_table,
        shift,
    )
    let_go(circuit.log_weight)  # no pass needs them from now on
    if beyond >= 0:
        raise StructureError(
            f"node {beyond}: the log-weights on the way to it add up to more than {MOST_LOG:g}, "
            "which is beyond what logarithms in doubles can hold: scale the weights down"
        )
    rows = block_rows(circuit.kind, circuit.start, circuit.child, weight, shift)
    arrays = (circuit.kind, circuit.start, circuit.child, weight, shift, circuit.var, start, table, table_shift, rows)
    return Scaled(*arrays, bool(plain), float(total), float(total_exponent), 4 * EPS * float(operations))


def extra_rounding(s: Scaled, exponent: float) -> float:
    """What :attr:`Scaled.rounding` leaves out: a root value with such an exponent is a product of rounded powers."""
    size = abs(exponent) + 2 * abs(s.total_exponent)
    return 0.0 if size <= EXACT else EPS * size * (s.kind.size + 4)


def require_within_reach(circuit: Circuit, reals: FloatArray) -> None:
    """Refuse evidence so far from a Gaussian that the logarithm of its density is no number."""
    if not circuit.kept(_has_gaussians) or np.isnan(reals).all():
        return
    leaf = np.flatnonzero(circuit.kind == GAUSSIAN)
    given = reals[circuit.var[leaf]]
    observed = np.isfinite(given)
    leaf, given = leaf[observed], given[observed]
    mean, deviation = circuit.param[circuit.param_start[leaf]], circuit.param[circuit.param_start[leaf] + 1]
    with np.errstate(over="ignore"):
        far = ~(np.abs(given - mean) / deviation < MOST_DEVIATIONS)
    if far.any():
        at = int(np.flatnonzero(far)[0])
        name = circuit.variables[circuit.var[leaf[at]]].name
        raise QueryError(
            f"variable {name!r}: {given[at]:g} is more than {MOST_DEVIATIONS:g} standard deviations away from the "
            f"Gaussian of node {leaf[at]}, so the logarithm of its density is beyond the range of numbers"
        )


def _has_gaussians(circuit: Circuit) -> bool:
    return bool((circuit.kind == GAUSSIAN).any())


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
    shift: FloatArray,
) -> tuple[LongArray, FloatArray, FloatArray, FloatArray, bool, float, float, float, int]:
    """Relative leaf tables and weights, whether all are plain, the total mass, a count of roundings.

    And a node that is out of range, or -1.

    ``shift``, all zero, gets the powers of two of the weights.

    The count is of the operations on the worst way to the root: a product's value gathers the roundings of all its
    children, a sum's those of the worst child. The masses themselves cancel along every such way, so only the rounding
    of each step counts.
    """
    n = kind.size
    mass, exponent = np.zeros(n), np.zeros(n)
    operations = np.zeros(n)
    weight = np.zeros(child.size)
    table_start = np.zeros(n + 1, dtype=np.int64)
    beyond, plain = -1, True
    for i in range(n):
        size = 4 if kind[i] == GAUSSIAN else log_start[i + 1] - log_start[i] + 1 if kind[i] < GAUSSIAN else 0
        table_start[i + 1] = table_start[i] + size
    table, table_shift = np.zeros(table_start[n]), np.zeros(table_start[n])
    for i in range(n):
        t = table_start[i]
        if kind[i] == GAUSSIAN:
            plain = False
            deviation = param[param_start[i] + 1]
            value, power = normal(deviation, 0.0)
            value, power = normal(0.3989422804014327 / value, -power)
            mass[i], exponent[i] = (value, power) if power > 0 else (0.5, 1.0)
            table[t] = param[param_start[i]]
            table[t + 1] = deviation
            table[t + 2], table_shift[t + 2] = _settled(0.5 / mass[i], 1.0 - exponent[i])
            table[t + 3], table_shift[t + 3] = _settled(value / mass[i], power - exponent[i])
            operations[i] = 8.0 + _GAUSSIAN_ERROR
        elif kind[i] < GAUSSIAN:
            values = log_start[i + 1] - log_start[i]
            total, power, largest = 0.0, 0.0, 0.0
            for x in range(values):
                log_value = log_table[log_start[i] + x]
                if abs(log_value) > MOST_LOG and log_value > -np.inf:
                    beyond = i
                elif log_value > -np.inf:
                    largest = max(largest, abs(log_value))
                one, one_power = from_log(log_value, 0.0)
                total, power = plus(total, power, one, one_power)
            mass[i], exponent[i] = normal(total, power)
            last, lost = table_start[i + 1] - 1, 0.0
            for x in range(values):
                if mass[i] > 0:
                    one, one_power = from_log(log_table[log_start[i] + x], 0.0)
                    table[t + x], table_shift[t + x] = _settled(one / mass[i], one_power - exponent[i])
                    lost = max(lost, _lost(one_power, exponent[i], 0.0, table_shift[t + x]))
            total, power = 0.0, 0.0
            for x in range(values):
                total, power = plus(total, power, table[t + x], table_shift[t + x])
            table[last], table_shift[last] = _settled(total, power)
            operations[i] = 8.0 + values + lost
            if kind[i] == BINOMIAL:  # whose table is computed from logarithms of factorials
                trials = param[param_start[i]]
                operations[i] += 4 * (largest + trials * math.log(trials + 1.0))
        elif kind[i] == PRODUCT:
            value, power = 1.0, 0.0
            for e in range(start[i], start[i + 1]):
                value, power = normal(value * mass[child[e]], power + exponent[child[e]])
                operations[i] += operations[child[e]] + 2
            mass[i], exponent[i] = value, power
        else:
            total, power = 0.0, 0.0
            for e in range(start[i], start[i + 1]):
                if log_weight[e] > -np.inf and abs(log_weight[e]) > MOST_LOG:
                    beyond = i
                one, one_power = from_log(log_weight[e], 0.0)
                if mass[child[e]] > 0 and one > 0:
                    total, power = plus(total, power, one * mass[child[e]], one_power + exponent[child[e]])
            mass[i], exponent[i] = normal(total, power)
            for e in range(start[i], start[i + 1]):
                one, one_power = from_log(log_weight[e], 0.0)
                if mass[child[e]] > 0 and one > 0:
                    value = one * mass[child[e]] / mass[i]
                    weight[e], power = _settled(value, one_power + exponent[child[e]] - exponent[i])
                    if power != 0:
                        shift[e] = power
                        plain = False
                    size = 8.0 + _lost(one_power, exponent[child[e]], exponent[i], power)
                    operations[i] = max(operations[i], operations[child[e]] + size)
            operations[i] += start[i + 1] - start[i]
        if abs(exponent[i]) > MOST_LOG:
            beyond = i
    plain = plain and not table_shift.any()
    return table_start, table, table_shift, weight, plain, mass[n - 1], exponent[n - 1], operations[n - 1], beyond


@kernel
def _lost(a: float, b: float, c: float, shift: float) -> float:
    """What three exponents lost when they were added up to ``shift``, in units of EPS.

    Nothing if all are exact. If the result is large itself, whoever uses it allows for that (:func:`share_weight`).
    """
    size = abs(a) + abs(b) + abs(c)
    return size if size > max(EXACT, 4 * abs(shift)) else 0.0


@kernel
def _settled(value: float, exponent: float) -> tuple[float, float]:
    """The pair with exponent 0 if its value is then a double of at least TINY, otherwise with a value from 1/2 to 1."""
    value, exponent = normal(value, exponent)
    if exponent > -STEP:
        return moved(value, exponent), 0.0
    return value, exponent
