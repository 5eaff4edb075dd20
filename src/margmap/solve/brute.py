"""Enumeration of every query state, compiled; the yardstick for the other methods and fine for small queries."""

from __future__ import annotations

from functools import partial

import numpy as np

from margmap._jit import kernel
from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, LongArray
from margmap.errors import LimitError
from margmap.flat import Flat
from margmap.reduce import Reduced
from margmap.solve.incumbent import lower_bound_state
from margmap.solve.result import Limits, Outcome, Status, Stopped, log_or_nothing

MOST_STATES = 1 << 24
STATES_AT_ONCE = 32


def solve(reduced: Reduced, limits: Limits, *, k: int = 1) -> Outcome:
    """Score every state. Stopped early, the states not seen can hold at most the mass that is left."""
    flat, cardinality = reduced.flat, reduced.cardinality
    count = count_states(cardinality)
    if count > MOST_STATES:
        raise LimitError(
            f"method 'brute' would enumerate {count:.3g} states; it is refused above 2^24 = {MOST_STATES}. "
            "Query fewer variables or choose another method"
        )
    chunk = max(STATES_AT_ONCE, (1 << 22) // max(1, reduced.num_edges) // STATES_AT_ONCE * STATES_AT_ONCE)
    best, best_values = np.zeros(0, dtype=np.int64), np.zeros(0)
    status: Status = "optimal"
    done, seen = 0, 0.0
    try:
        for first in range(0, count, chunk):
            if first:
                limits.check()
            last = min(first + chunk, count)
            work = partial(_enumerate, flat, cardinality, first, last)
            values = limits.run(work, flat.num_edges, 8 * STATES_AT_ONCE * flat.num_nodes)
            done = last
            seen += float(values.sum())
            values = np.concatenate((best_values, values))
            numbers = np.concatenate((best, np.arange(first, done)))
            order = np.argsort(-values, kind="stable")[:k]
            order = order[values[order] > 0]
            best, best_values = numbers[order], values[order]
    except Stopped as stop:
        status = stop.status
    states = [_decode(int(number), cardinality) for number in best]
    if not states:
        # All states seen are impossible; following the heaviest edges gives one that is not.
        states = [lower_bound_state(flat, np.ones(reduced.num_nodes, dtype=np.bool_), cardinality.size)]
    rest = float(best_values[-1]) if best.size == k else 0.0
    if status != "optimal":
        rest = max(rest, 1.0 - seen + 1e-9)
    return Outcome(states, log_or_nothing(rest), status, {"states": done})


def count_states(cardinality: IntArray) -> int:
    """How many states the query variables have."""
    count = 1
    for values in cardinality.tolist():
        count *= values
    return count


def _decode(number: int, cardinality: IntArray) -> IntArray:
    state = np.zeros(cardinality.size, dtype=np.int32)
    for i in range(cardinality.size - 1, -1, -1):
        number, state[i] = divmod(number, int(cardinality[i]))
    return state


@kernel
def _enumerate(f: Flat, cardinality: IntArray, first: int, last: int, stop: LongArray) -> FloatArray:
    """The values of a range of states, numbered with the last variable fastest."""
    values = np.zeros((f.kind.size, STATES_AT_ONCE))
    states = np.zeros((cardinality.size, STATES_AT_ONCE), dtype=np.int32)
    result = np.zeros(last - first)
    for begin in range(first, last, STATES_AT_ONCE):
        width = min(STATES_AT_ONCE, last - begin)
        for j in range(width):
            number = begin + j
            for i in range(cardinality.size - 1, -1, -1):
                states[i, j] = number % cardinality[i]
                number //= cardinality[i]
        _evaluate_states(f, states, values, stop)
        for j in range(width):
            result[begin - first + j] = values[f.kind.size - 1, j]
    return result


@kernel
def _evaluate_states(f: Flat, states: IntArray, values: FloatArray, stop: LongArray) -> None:
    """Every node's value under several states (columns) at once."""
    width = values.shape[1]
    for n in range(f.kind.size):
        if stop[0] != 0:
            return
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
