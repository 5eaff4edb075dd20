"""Enumeration of every query state, compiled; the yardstick for the other methods and fine for small queries."""

from __future__ import annotations

import numpy as np

from margmap._jit import kernel
from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray
from margmap.errors import LimitError
from margmap.flat import Flat
from margmap.reduce import Reduced
from margmap.solve.result import Limits, Outcome, Status, Stopped

MOST_STATES = 1 << 24
STATES_AT_ONCE = 32


def solve(reduced: Reduced, limits: Limits) -> Outcome:
    """Score every state. Stopped early, the states not seen can hold at most the mass that is left."""
    states = 1
    for k in reduced.cardinality.tolist():
        states *= k
    if states > MOST_STATES:
        raise LimitError(
            f"method 'brute' would enumerate {states:.3g} states; it is refused above 2^24 = {MOST_STATES}. "
            "Query fewer variables or choose another method"
        )
    chunk = max(STATES_AT_ONCE, (1 << 22) // max(1, reduced.num_edges) // STATES_AT_ONCE * STATES_AT_ONCE)
    best, best_value, seen = np.zeros(reduced.cardinality.size, dtype=np.int32), 0.0, 0.0
    status: Status = "optimal"
    done = 0
    try:
        for first in range(0, states, chunk):
            if first:
                limits.check()
            done = min(first + chunk, states)
            at, value, mass = _enumerate(reduced.flat, reduced.cardinality, first, done)
            seen += mass
            if value > best_value:
                best, best_value = _decode(at, reduced.cardinality), value
    except Stopped as stop:
        status = stop.status
    upper = best_value if status == "optimal" else max(best_value, 1.0 - seen + 1e-9)
    return Outcome(best, float(np.log(upper)), status, {"states": done})


def _decode(number: int, cardinality: IntArray) -> IntArray:
    state = np.zeros(cardinality.size, dtype=np.int32)
    for i in range(cardinality.size - 1, -1, -1):
        number, state[i] = divmod(number, int(cardinality[i]))
    return state


@kernel
def _enumerate(f: Flat, cardinality: IntArray, first: int, last: int) -> tuple[int, float, float]:
    """The best state of a range, its value, and the sum of all values there."""
    q = cardinality.size
    values = np.zeros((f.kind.size, STATES_AT_ONCE))
    states = np.zeros((q, STATES_AT_ONCE), dtype=np.int32)
    best, best_value, mass = -1, -1.0, 0.0
    for begin in range(first, last, STATES_AT_ONCE):
        width = min(STATES_AT_ONCE, last - begin)
        for j in range(width):
            number = begin + j
            for i in range(q - 1, -1, -1):
                states[i, j] = number % cardinality[i]
                number //= cardinality[i]
        evaluate_states(f, states, values)
        for j in range(width):
            value = values[f.kind.size - 1, j]
            mass += value
            if value > best_value:
                best, best_value = begin + j, value
    return best, best_value, mass


@kernel
def evaluate_states(f: Flat, states: IntArray, values: FloatArray) -> None:
    """Every node's value under several states (columns) at once."""
    width = values.shape[1]
    for n in range(f.kind.size):
        if f.kind[n] == SUM:
            values[n] = 0.0
            for e in range(f.start[n], f.start[n + 1]):
                w, c = f.weight[e], f.child[e]
                for j in range(width):
                    values[n, j] += w * values[c, j]
        elif f.kind[n] == PRODUCT:
            values[n] = 1.0
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                for j in range(width):
                    values[n, j] *= values[c, j]
        else:
            for j in range(width):
                values[n, j] = 1.0 if states[f.var[n], j] == f.value[n] else 0.0
