"""Good states to start from: Algorithm 4 of the paper, then one-flip hill climbing with exact values of every flip."""

from __future__ import annotations

import numpy as np

from margmap._jit import kernel
from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray
from margmap.flat import LEAF, SMALLEST, Flat
from margmap.solve.bounds import Bounds, Flags, output_bounds
from margmap.solve.result import Limits

# Hill climbing looks at the clock after this many flips.
FLIPS_AT_ONCE = 16


class Incumbents:
    """The best states found so far, scored on the circuit the problem came with.

    Values are relative to that circuit's first output bound, which keeps them far from underflow.
    """

    def __init__(self, flat: Flat, bounds: Bounds, cardinality: IntArray, limits: Limits, most: int = 1) -> None:
        self._flat = flat._replace(weight=bounds.share)
        self._log_scale = bounds.log_upper
        self._cardinality = cardinality
        self._limits = limits
        self._most = most
        #: Log values and states, best first, all different; replaced as a whole.
        self.ranked: tuple[tuple[float, IntArray], ...] = ()

    @property
    def best(self) -> tuple[IntArray, float]:
        """The best state and its log value; some state and -inf if there is none yet."""
        if not self.ranked:
            return np.zeros(self._cardinality.size, dtype=np.int32), -np.inf
        return self.ranked[0][1], self.ranked[0][0]

    @property
    def floor(self) -> float:
        """What a state must exceed to be among the best: the log value of the last of them, if there are enough."""
        return self.ranked[-1][0] if len(self.ranked) == self._most else -np.inf

    def offer(self, state: IntArray, climb: bool) -> bool:
        """Score a state, climb from it if asked to, keep it if it is among the best; whether there is a new best."""
        before = self.best[1]
        state, value = state.copy(), -1.0
        while True:
            higher = _climb(self._flat, state, FLIPS_AT_ONCE if climb else 0)
            self._keep(state, higher)
            if not climb or higher <= value:
                return self.best[1] > before
            value = higher
            self._limits.check()

    def offer_neighbours(self) -> None:
        """Fill up the best states with those that differ from the best in one variable."""
        if self._most > 1 and self.ranked:
            best = self.best[0]
            for leaf, value in _neighbours(self._flat, best, self._most):
                state = best.copy()
                state[self._flat.var[int(leaf)]] = self._flat.value[int(leaf)]
                self._keep(state, value)

    def _keep(self, state: IntArray, value: float) -> None:
        # Under the smallest normal number values lose their digits: products get stuck at it.
        log_value = float(np.log(value)) + self._log_scale if value > SMALLEST else -np.inf
        # The very first is kept even if its value underflows: it is possible, which all zeros may not be.
        if (log_value > self.floor or not self.ranked) and not any(
            np.array_equal(state, known) for _, known in self.ranked
        ):
            ranked = sorted((*self.ranked, (log_value, state.copy())), key=lambda pair: -pair[0])
            self.ranked = tuple(ranked[: self._most])


def lower_bound_state(flat: Flat, deterministic: Flags, variables: int) -> IntArray:
    """Algorithm 4: take the maximum at deterministic sums and at every sum above one, follow it down."""
    take_max = _at_or_above(flat, deterministic)
    state = np.zeros(variables, dtype=np.int32)
    _extract(flat, output_bounds(flat, take_max).share, state)
    return state


@kernel
def _at_or_above(f: Flat, deterministic: Flags) -> Flags:
    result: Flags = deterministic.copy()
    for n in range(f.kind.size):
        for e in range(f.start[n], f.start[n + 1]):
            result[n] |= result[f.child[e]]
    return result


@kernel
def _extract(f: Flat, share: FloatArray, state: IntArray) -> None:
    stack = np.zeros(f.kind.size, dtype=np.int32)
    stack[0] = f.kind.size - 1
    height = 1
    while height > 0:
        height -= 1
        n = stack[height]
        if f.kind[n] == LEAF:
            state[f.var[n]] = f.value[n]
        elif f.kind[n] == PRODUCT:
            for e in range(f.start[n], f.start[n + 1]):
                stack[height] = f.child[e]
                height += 1
        else:
            best = f.start[n]
            for e in range(f.start[n] + 1, f.start[n + 1]):
                if share[e] > share[best]:
                    best = e
            stack[height] = f.child[best]
            height += 1


@kernel
def _climb(f: Flat, state: IntArray, flips: int) -> float:
    """Up to ``flips`` times change the one variable that gains most; returns the value of ``state``, changed in place.

    The circuit is linear in the indicators of each variable, so the root's derivative by an indicator is the value of
    the state with that variable changed: one pass down gives all flips.
    """
    n_nodes = f.kind.size
    value, slope = np.zeros(n_nodes), np.zeros(n_nodes)
    current = 0.0
    for step in range(flips + 1):
        _evaluate(f, state, value)
        current = value[n_nodes - 1]
        if step == flips:
            break
        _differentiate(f, value, slope)
        best, gain = -1, current * (1 + 1e-12)
        for n in range(n_nodes):
            if f.kind[n] == LEAF and slope[n] > gain:
                best, gain = n, slope[n]
        if best < 0:
            break
        state[f.var[best]] = f.value[best]
    return current


@kernel
def _neighbours(f: Flat, state: IntArray, most: int) -> FloatArray:
    """The leaves whose literals give the best states if set in ``state``, and the values of those states."""
    value, slope = np.zeros(f.kind.size), np.zeros(f.kind.size)
    _evaluate(f, state, value)
    _differentiate(f, value, slope)
    for n in range(f.kind.size):
        if f.kind[n] != LEAF or state[f.var[n]] == f.value[n]:
            slope[n] = 0.0
    order = np.argsort(-slope)[:most]
    result = np.zeros((order.size, 2))
    for i in range(order.size):
        result[i, 0] = order[i]
        result[i, 1] = slope[order[i]]
    return result


@kernel
def _evaluate(f: Flat, state: IntArray, value: FloatArray) -> None:
    for n in range(f.kind.size):
        if f.kind[n] == PRODUCT:
            v = 1.0
            for e in range(f.start[n], f.start[n + 1]):
                v *= value[f.child[e]]
            value[n] = v
        elif f.kind[n] == SUM:
            v = 0.0
            for e in range(f.start[n], f.start[n + 1]):
                v += f.weight[e] * value[f.child[e]]
            value[n] = v
        else:
            value[n] = 1.0 if state[f.var[n]] == f.value[n] else 0.0


@kernel
def _differentiate(f: Flat, value: FloatArray, slope: FloatArray) -> None:
    """The derivative of the root by every node."""
    n_nodes = f.kind.size
    slope[:] = 0.0
    slope[n_nodes - 1] = 1.0
    for n in range(n_nodes - 1, -1, -1):
        if slope[n] == 0:
            continue
        if f.kind[n] == SUM:
            for e in range(f.start[n], f.start[n + 1]):
                slope[f.child[e]] += slope[n] * f.weight[e]
        elif f.kind[n] == PRODUCT:
            zeros, product = 0, slope[n]
            for e in range(f.start[n], f.start[n + 1]):
                if value[f.child[e]] > 0:
                    product *= value[f.child[e]]
                else:
                    zeros += 1
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                if zeros == 0:
                    slope[c] += product / value[c]
                elif zeros == 1 and value[c] <= 0:
                    slope[c] += product
