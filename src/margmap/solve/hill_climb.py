"""Hill climbing: the best states so far, and one-flip climbing with exact values of every flip."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits
from margmap.foundation.matrices import add_rows
from margmap.foundation.pairs import STEP, TINY, decoded, log_of, moved
from margmap.foundation.sorting import descending
from margmap.inference.dense import no_powers
from margmap.solve.output_bounds import Bounds
from margmap.solve.parts import downwards, upwards
from margmap.solve.query_circuit import LEAF, Flat
from margmap.solve.rows import Rows
from margmap.solve.values import evaluate, evaluate_blocks, evaluate_range, log_value

# Hill climbing looks at the clock after this many flips, or fewer on a circuit with many edges.
FLIPS_AT_ONCE = 16
EDGES_AT_ONCE = 5_000_000

# Changes of one variable that are looked at where constraints may forbid the best of them.
NEIGHBOURS = 256


class Incumbents:
    """The best states found so far, scored on the circuit the problem came with; only those that satisfy all rows."""

    def __init__(
        self,
        flat: Flat,
        bounds: Bounds,
        cardinality: IntArray,
        limits: Limits,
        most: int = 1,
        rows: Rows | None = None,
    ) -> None:
        # Relative to the bounds, good states have values near 1, which are quickest to compute with.
        self._flat = flat._replace(weight=bounds.share) if bounds.faithful else flat
        self._log_scale = bounds.log_upper if bounds.faithful else 0.0
        self._rows_of_blocks, self._parts = bounds.rows, bounds.parts
        self._cardinality = cardinality
        #: Whoever goes on within other limits puts them here.
        self.limits = limits
        self._most = most
        self._rows = rows
        #: Log values and states, best first, all different; replaced as a whole.
        self.ranked: tuple[tuple[float, IntArray], ...] = ()

    @cached_property
    def _groups(self) -> IntArray:
        groups: IntArray = neighbourhoods(self._flat, self._cardinality.size)
        return groups

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
        if self._rows is not None:
            self._offer_allowed(state, climb, self._rows)
            return self.best[1] > before
        flips = max(1, min(FLIPS_AT_ONCE, EDGES_AT_ONCE // max(1, self._flat.num_edges))) if climb else 0
        state, top, begun = state.copy(), -np.inf, False
        value, exponent = np.empty(self._flat.num_nodes), np.empty(self._flat.num_nodes)
        while True:
            if self._parts is None or self._rows_of_blocks is None:
                higher = _climb(self._flat, self._rows_of_blocks, state, flips, value, exponent, begun)
            else:
                given = (self._flat, self._rows_of_blocks, self._parts, self._groups)
                higher = _climb_by_parts(*given, state, flips, value, exponent, begun)
            self.keep(state, higher)
            if not climb or higher <= top:
                return self.best[1] > before
            top, begun = higher, True
            self.limits.check()

    def offer_neighbours(self) -> None:
        """Fill up the best states with those that differ from the best in one variable."""
        if self._most > 1 and self.ranked:
            best = self.best[0]
            for leaf, _ in neighbours(self._flat, best, self._most):
                state = best.copy()
                state[self._flat.var[int(leaf)]] = self._flat.value[int(leaf)]
                self.offer(state, climb=False)

    def _offer_allowed(self, state: IntArray, climb: bool, rows: Rows) -> None:
        """The same within constraints: of the changes of one variable, the best that they allow."""
        if not rows.allows(state[None])[0]:
            return
        state, value = state.copy(), float(log_value(self._flat, state))
        self.keep(state, value)
        while climb and value > -np.inf:
            self.limits.check()
            leaves = neighbours(self._flat, state, NEIGHBOURS)
            around = np.repeat(state[None], len(leaves), axis=0)
            changed = leaves[:, 0].astype(np.int64)
            around[np.arange(len(leaves)), self._flat.var[changed]] = self._flat.value[changed]
            gaining = np.nonzero(rows.allows(around) & (leaves[:, 1] > value + 1e-12))[0]
            if gaining.size == 0:
                return
            state = around[gaining[0]]
            higher = float(log_value(self._flat, state))
            self.keep(state, higher)
            if higher <= value:
                return
            value = higher

    def keep(self, state: IntArray, log_value: float) -> None:
        """Take a state of this log value among the best, if it is one of them."""
        log_value += self._log_scale
        if log_value > self.floor and not any(np.array_equal(state, known) for _, known in self.ranked):
            ranked = sorted((*self.ranked, (log_value, state.copy())), key=lambda pair: -pair[0])
            self.ranked = tuple(ranked[: self._most])


def _climb_by_parts(
    flat: Flat,
    rows: IntArray,
    parts: LongArray,
    groups: IntArray,
    state: IntArray,
    flips: int,
    value: FloatArray,
    exponent: FloatArray,
    begun: bool,
) -> float:
    """What :func:`_climb` does, the passes of each round by several threads, ``groups`` being the neighbourhoods."""
    nodes = flat.num_nodes
    slope, before = np.zeros(nodes), state.copy()

    def evaluated() -> float:
        upwards(parts, nodes, lambda begin, end: evaluate_range(flat, rows, state, value, exponent, begin, end))
        return float(log_of(value[-1], exponent[-1]))

    current = float(log_of(value[-1], exponent[-1])) if begun else evaluated()
    for _ in range(flips):
        if value[-1] == 0:
            break
        slope.fill(0.0)
        slope[-1] = 1.0 / value[-1]
        downwards(parts, nodes, lambda begin, end: _differentiate_range(flat, rows, value, exponent, slope, begin, end))
        leaves = int(parts[0])
        best_gain, best_value = np.zeros(state.size), np.zeros(state.size, dtype=np.int32)
        best = _best_flips(flat, slope, leaves, best_gain, best_value)
        if best_value[best] < 0:
            break
        before[:] = state
        gaining = best_value >= 0
        state[gaining] = best_value[gaining]
        together = evaluated()
        alone = current + float(np.log(best_gain[best]))
        if gaining.sum() > 1 and together < alone:
            state[:] = before
            if 1 < change_apart(groups, best_gain, best_value, state) < gaining.sum():
                together = evaluated()
        if gaining.sum() > 1 and together < alone:
            state[:] = before
            state[best] = best_value[best]
            together = evaluated()
        if together < current:
            state[:] = before
            current = evaluated()
            break
        current = together
    return current


@kernel
def change_apart(groups: IntArray, best_gain: FloatArray, best_value: IntArray, state: IntArray) -> int:
    """In each group of neighbours make the change that gains most; how many there are."""
    best_of = np.full(groups.max() + 1, -1, dtype=np.int32)
    changed = 0
    for v in range(state.size):
        if best_value[v] >= 0:
            changed += best_of[groups[v]] < 0
            if best_of[groups[v]] < 0 or best_gain[v] > best_gain[best_of[groups[v]]]:
                best_of[groups[v]] = v
    for v in range(state.size):
        if best_value[v] >= 0 and best_of[groups[v]] == v:
            state[v] = best_value[v]
    return changed


@kernel
def neighbourhoods(f: Flat, variables: int) -> IntArray:
    """For each variable the first product in which it meets another one; a number of its own if there is none."""
    meeting = np.arange(f.kind.size, f.kind.size + variables).astype(np.int32)
    alone = np.full(f.kind.size, -1, dtype=np.int32)  # the variable of a node that has only one
    for n in range(f.kind.size):
        if f.kind[n] == LEAF:
            alone[n] = f.var[n]
        elif f.kind[n] == SUM:
            alone[n] = alone[f.child[f.start[n]]]
        else:
            for e in range(f.start[n], f.start[n + 1]):
                v = alone[f.child[e]]
                if v >= 0 and meeting[v] >= f.kind.size:
                    meeting[v] = n
    return meeting


@kernel
def _best_flips(f: Flat, slope: FloatArray, leaves: int, best_gain: FloatArray, best_value: IntArray) -> int:
    """For each variable the value that raises the root most, or -1, and by which factor; the best variable of all."""
    best_gain[:] = 1 + 1e-12
    best_value[:] = -1
    for n in range(leaves):
        if f.kind[n] == LEAF and slope[n] > best_gain[f.var[n]]:
            best_gain[f.var[n]] = slope[n]
            best_value[f.var[n]] = f.value[n]
    return int(np.argmax(best_gain))


@kernel
def _climb(
    f: Flat, rows: IntArray | None, state: IntArray, flips: int, value: FloatArray, exponent: FloatArray, begun: bool
) -> float:
    """Up to ``flips`` times change variables so that the value rises; the log value of ``state``, changed in place.

    ``value`` and ``exponent`` get the values of all nodes; if it has ``begun``, they have those of ``state`` already.

    The circuit is linear in the indicators of each variable, so the root's derivative by an indicator is the value of
    the state with that variable changed: one pass down gives all flips. All that gain are made at once if together they
    gain more than the best alone. Where they do not, the reason are mostly neighbours, each of which gains as long as
    the other stays; so the best one of each group of neighbours is tried before the best alone.
    """
    n_nodes = f.kind.size
    slope = np.zeros(n_nodes)
    best_gain, best_value = np.zeros(state.size), np.zeros(state.size, dtype=np.int32)
    before = state.copy()
    if not begun:
        evaluate_blocks(f, rows, state, value, exponent)
    for _ in range(flips):
        if value[n_nodes - 1] == 0:
            break
        current = log_of(value[n_nodes - 1], exponent[n_nodes - 1])
        _differentiate(f, rows, value, exponent, slope)
        best = _best_flips(f, slope, n_nodes, best_gain, best_value)
        if best_value[best] < 0:
            break
        before[:] = state
        gaining = 0
        for v in range(state.size):
            if best_value[v] >= 0:
                state[v] = best_value[v]
                gaining += 1
        evaluate_blocks(f, rows, state, value, exponent)
        together = log_of(value[n_nodes - 1], exponent[n_nodes - 1])
        alone = current + np.log(best_gain[best])
        if gaining > 2 and together < alone:
            state[:] = before
            if 1 < change_apart(neighbourhoods(f, state.size), best_gain, best_value, state) < gaining:
                evaluate_blocks(f, rows, state, value, exponent)
                together = log_of(value[n_nodes - 1], exponent[n_nodes - 1])
        if gaining > 1 and together < alone:
            state[:] = before
            state[best] = best_value[best]
            evaluate_blocks(f, rows, state, value, exponent)
            together = log_of(value[n_nodes - 1], exponent[n_nodes - 1])
        if together < current:  # the derivatives were beyond doubles, and the gain was none
            state[:] = before
            evaluate_blocks(f, rows, state, value, exponent)
            break
    return log_of(value[n_nodes - 1], exponent[n_nodes - 1])


@kernel
def neighbours(f: Flat, state: IntArray, most: int) -> FloatArray:
    """The leaves whose literals give the best states if set in ``state``, and the log values of those states."""
    n_nodes = f.kind.size
    value, exponent, slope = np.zeros(n_nodes), np.zeros(n_nodes), np.zeros(n_nodes)
    evaluate(f, state, value, exponent)
    if value[n_nodes - 1] == 0:
        return np.zeros((0, 2))
    _differentiate(f, None, value, exponent, slope)
    for n in range(n_nodes):
        if f.kind[n] != LEAF or state[f.var[n]] == f.value[n]:
            slope[n] = 0.0
    order = descending(slope)[:most]
    result = np.zeros((order.size, 2))
    for i in range(order.size):
        result[i, 0] = order[i]
        result[i, 1] = log_of(slope[order[i]] * value[n_nodes - 1], exponent[n_nodes - 1])
    return result


@kernel
def _differentiate(f: Flat, rows: IntArray | None, value: FloatArray, exponent: FloatArray, slope: FloatArray) -> None:
    """The derivative of the root by every node, over the root's value, times the node's own ``2**exponent``.

    Good enough to choose where to climb; what is found is evaluated again.
    """
    slope[:] = 0.0
    slope[f.kind.size - 1] = 1.0 / value[f.kind.size - 1]
    _differentiate_range(f, rows, value, exponent, slope, 0, f.kind.size)


@kernel
def _differentiate_range(
    f: Flat,
    rows: IntArray | None,
    value: FloatArray,
    exponent: FloatArray,
    slope: FloatArray,
    begin: int,
    stop_before: int,
) -> None:
    """What the nodes of a range add to the derivatives by their children, parents first."""
    n = stop_before
    while n > begin:
        n -= 1
        if rows is not None and rows[n] >= 0:
            first = n
            while first > 0 and rows[first - 1] == rows[n]:
                first -= 1
            children = f.child[f.start[n] : f.start[n + 1]]
            if no_powers(children, exponent) and not exponent[first : n + 1].any():
                gained = np.zeros(children.size)
                add_rows(f.weight[f.start[first] : f.start[n + 1]], slope[first : n + 1], gained)
                for i in range(children.size):
                    slope[children[i]] += gained[i]
                n = first
                continue
        if slope[n] == 0:
            continue
        if f.kind[n] == SUM:
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                w, shift = decoded(f.weight[e])
                slope[c] += moved(slope[n] * w, shift + exponent[c] - exponent[n])
        elif f.kind[n] == PRODUCT:
            zeros, power = 0, -exponent[n]
            product = slope[n]
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                if value[c] > 0:
                    product *= value[c]
                    power += exponent[c]
                    if product < TINY and product > 0:
                        product /= TINY
                        power -= STEP
                else:
                    zeros += 1
            if zeros > 1:
                continue
            product = moved(product, power)
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                if zeros == 0:
                    slope[c] += product / value[c]
                elif value[c] <= 0:
                    slope[c] += product
