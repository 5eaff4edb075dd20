"""Enumeration of every query state, compiled; the yardstick for the other methods and fine for small queries."""

from __future__ import annotations

from functools import partial

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, LongArray
from margmap.errors import LimitError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits, Status, Stopped
from margmap.foundation.pairs import TINY, log_of, raised
from margmap.solve.lower_bound import lower_bound_state
from margmap.solve.output_bounds import LOWEST_FLOOR
from margmap.solve.prices import Priced
from margmap.solve.query_circuit import Flat, rounding_of
from margmap.solve.reduce import Reduced
from margmap.solve.result import Outcome
from margmap.solve.values import evaluate

MOST_STATES = 1 << 24
STATES_AT_ONCE = 32

#: Edges that are evaluated between two looks at the limits.
EDGES_BETWEEN_LOOKS = 1 << 22


def solve(reduced: Reduced, limits: Limits, *, k: int = 1, priced: Priced | None = None) -> Outcome:
    """Score every state. Stopped early, the states not seen can hold at most the mass that is left.

    States that the constraints in ``priced`` do not allow are seen, but not among the best.
    """
    flat, cardinality = reduced.flat, reduced.cardinality
    count = count_states(cardinality)
    if count > MOST_STATES:
        raise LimitError(
            f"method 'brute' would enumerate {count:.3g} states; it is refused above 2^24 = {MOST_STATES}. "
            "Query fewer variables or choose another method"
        )
    chunk = max(STATES_AT_ONCE, EDGES_BETWEEN_LOOKS // max(1, reduced.num_edges) // STATES_AT_ONCE * STATES_AT_ONCE)
    best, best_logs = np.zeros(0, dtype=np.int64), np.zeros(0)
    status: Status = "optimal"
    rounding = 2 * rounding_of(flat)
    done, seen = 0, 0.0
    try:
        for first in range(0, count, chunk):
            if first:
                limits.check()
            last = min(first + chunk, count)
            work = partial(_enumerate, flat, cardinality, first, last)
            logs = limits.run(work, flat.num_edges, 8 * STATES_AT_ONCE * flat.num_nodes)
            done = last
            seen += float(np.exp(logs).sum())
            if priced is not None:
                logs[~priced.rows.allows(_decoded(np.arange(first, last), cardinality))] = -np.inf
            logs = np.concatenate((best_logs, logs))
            numbers = np.concatenate((best, np.arange(first, done)))
            order = np.argsort(-logs, kind="stable")[:k]
            order = order[logs[order] > -np.inf]
            best, best_logs = numbers[order], logs[order]
            if best.size:
                log_best = float(best_logs[0])
                log_upper = max(raised(log_best, rounding), _unseen(seen, rounding))
                limits.tell(f"{done} of {count} states", _decoded(best[:1], cardinality)[0], log_best, log_upper)
    except Stopped as stop:
        status = stop.status
    states = list(_decoded(best, cardinality))
    if not states and priced is None:
        # All states seen are impossible; following the heaviest edges gives one that is not.
        states = [lower_bound_state(flat, np.ones(reduced.num_nodes, dtype=np.bool_), cardinality.size)]
    log_upper = raised(float(best_logs[-1]), rounding) if best.size == k else -np.inf
    if status != "optimal":
        log_upper = max(log_upper, _unseen(seen, rounding))
    return Outcome(states, log_upper, status, {"states": done})


def count_states(cardinality: IntArray) -> int:
    """How many states the query variables have."""
    count = 1
    for values in cardinality.tolist():
        count *= values
    return count


def _unseen(seen: float, rounding: float) -> float:
    """A bound on the log value of the states not seen yet: the mass that those seen leave."""
    return raised(float(np.log(max(1.0 - seen * (1 - rounding), 0.0) + 1e-9)), rounding)


def _decoded(numbers: LongArray, cardinality: IntArray) -> IntArray:
    """The states with these numbers, a row each."""
    states = np.zeros((numbers.size, cardinality.size), dtype=np.int32)
    for i in range(cardinality.size - 1, -1, -1):
        numbers, states[:, i] = np.divmod(numbers, int(cardinality[i]))
    return states


@kernel(work=lambda f, _cardinality, first, last, _stop: (last - first) * f.child.size)
def _enumerate(f: Flat, cardinality: IntArray, first: int, last: int, stop: LongArray) -> FloatArray:
    """The log values of a range of states, numbered with the last variable fastest.

    Those that may be too small for plain doubles are evaluated once more, one by one.
    """
    value, exponent = np.zeros(f.kind.size), np.zeros(f.kind.size)
    enough = _enough(f)
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
            root = values[f.kind.size - 1, j]
            if root > enough or enough == 0:
                result[begin - first + j] = np.log(root)
            else:
                evaluate(f, states[:, j].copy(), value, exponent)
                result[begin - first + j] = log_of(value[f.kind.size - 1], exponent[f.kind.size - 1])
    return result


@kernel
def _enough(f: Flat) -> float:
    """What a value must exceed to have lost nothing that counts to underflow; 0 if nothing can underflow."""
    least = np.ones(f.kind.size)
    enough = LOWEST_FLOOR
    for n in range(f.kind.size):
        smallest = 1.0
        for e in range(f.start[n], f.start[n + 1]):
            if f.weight[e] < 0:  # left out of the plain evaluation
                enough = TINY * 2.0**100
            if f.kind[n] == PRODUCT:
                smallest *= least[f.child[e]]
            else:
                smallest = min(smallest, max(f.weight[e], 0.0) * least[f.child[e]])
        least[n] = smallest
    return 0.0 if least[f.kind.size - 1] > LOWEST_FLOOR else enough


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
                w, c = max(f.weight[e], 0.0), f.child[e]
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
