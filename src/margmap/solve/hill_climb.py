"""Hill climbing: the best states so far, and one-flip climbing with exact values of every flip."""

from __future__ import annotations

from typing import NamedTuple

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

# What a climb does next: a pass up, a pass down, or nothing.
_UP, _DOWN, _END = 0, 1, 2

# What the last pass was of: the state as it is, its derivatives, the state with all changes that gain, with the best of
# each group of neighbours, with the best of all; or the state as it was, where the changes gained nothing.
_AS_IT_IS, _DERIVATIVES, _TOGETHER, _APART, _ALONE, _AS_IT_WAS = range(6)


class Climb(NamedTuple):
    """A climb under way, as kernels take it."""

    #: The state, changed in place, and as it was before the changes that are being tried.
    state: IntArray
    before: IntArray
    #: Of every node its value as a pair, and the derivative of the root by it.
    value: FloatArray
    exponent: FloatArray
    slope: FloatArray
    #: For each variable the value that gains most, or -1, and by which factor; and its neighbourhood, -1 if not known.
    best_gain: FloatArray
    best_value: IntArray
    groups: IntArray
    #: What the last pass was of, how many rounds are left, the best variable, how many variables gain.
    phase: LongArray
    #: The log value before the changes, and with the best of them alone.
    log_values: FloatArray


def climb_from(state: IntArray, nodes: int, groups: IntArray) -> Climb:
    """A climb from a state in a circuit of so many nodes; ``groups`` are found when they are needed, if they are -1."""
    value, exponent, slope = np.empty(nodes), np.empty(nodes), np.empty(nodes)
    gains = np.zeros(state.size), np.zeros(state.size, dtype=np.int32)
    numbers = np.zeros(4, dtype=np.int64), np.zeros(2)
    return Climb(state.copy(), state.copy(), value, exponent, slope, *gains, groups, *numbers)


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
        log_factor: float = 0.0,
    ) -> None:
        # Relative to the bounds, good states have values near 1, which are quickest to compute with.
        self._flat = flat._replace(weight=bounds.share) if bounds.faithful else flat
        self._log_scale = log_factor + (bounds.log_upper if bounds.faithful else 0.0)
        self._rows_of_blocks, self._parts = bounds.rows, bounds.parts
        self._cardinality = cardinality
        #: Whoever goes on within other limits puts them here.
        self.limits = limits
        self._most = most
        self._rows = rows
        self._groups = np.full(cardinality.size, -1, dtype=np.int32)
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
        if self._rows is not None:
            self._offer_allowed(state, climb, self._rows)
            return self.best[1] > before
        flips = max(1, min(FLIPS_AT_ONCE, EDGES_AT_ONCE // max(1, self._flat.num_edges))) if climb else 0
        begun, top = climb_from(state, self._flat.num_nodes, self._groups), -np.inf
        while True:
            if self._parts is None or self._rows_of_blocks is None:
                higher = go_on(self._flat, self._rows_of_blocks, begun, flips, top == -np.inf)
            else:
                given = (self._flat, self._rows_of_blocks, self._parts)
                higher = go_on_by_parts(*given, begun, flips, top == -np.inf)
            self.keep(begun.state, higher)
            if begun.phase[1] > 0 or not climb or higher <= top:  # rounds are left: nothing gains any more
                return self.best[1] > before
            top = higher
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


def go_on_by_parts(flat: Flat, rows: IntArray, parts: LongArray, c: Climb, flips: int, first: bool) -> float:
    """What :func:`go_on` does, each pass by several threads."""
    nodes, what = flat.num_nodes, _UP
    c.phase[:2] = _AS_IT_IS, flips
    if not first:
        what = next_pass(flat, int(parts[0]), c)
    while what != _END:
        if what == _UP:
            upwards(parts, nodes, lambda begin, end: evaluate_range(flat, rows, *c[:1], *c[2:4], begin, end))
        else:
            c.slope.fill(0.0)
            c.slope[-1] = 1.0 / c.value[-1]
            downwards(parts, nodes, lambda begin, end: _differentiate_range(flat, rows, *c[2:5], begin, end))
        what = next_pass(flat, int(parts[0]), c)
    return float(log_of(c.value[-1], c.exponent[-1]))


@kernel
def go_on(f: Flat, rows: IntArray | None, c: Climb, flips: int, first: bool) -> float:
    """Up to ``flips`` times change variables so that the value rises; the log value of the state, changed in place.

    At the ``first`` call the values are those of no state yet. Rounds that are left over say that nothing gains.
    """
    c.phase[0], c.phase[1] = _AS_IT_IS, flips
    what = _UP
    if not first:
        what = next_pass(f, f.kind.size, c)
    while what != _END:
        if what == _UP:
            evaluate_blocks(f, rows, c.state, c.value, c.exponent)
        else:
            _differentiate(f, rows, c.value, c.exponent, c.slope)
        what = next_pass(f, f.kind.size, c)
    return log_of(c.value[f.kind.size - 1], c.exponent[f.kind.size - 1])


@kernel
def next_pass(f: Flat, leaves: int, c: Climb) -> int:
    """What to do after the pass that was the last one; the indicators are among the first ``leaves`` nodes.

    The circuit is linear in the indicators of each variable, so the root's derivative by an indicator is the value of
    the state with that variable changed: one pass down gives all flips. All that gain are made at once if together they
    gain more than the best alone. Where they do not, the reason are mostly neighbours, each of which gains as long as
    the other stays; so the best one of each group of neighbours is tried before the best alone.
    """
    root = f.kind.size - 1
    phase, best, gaining = c.phase[0], c.phase[2], c.phase[3]
    if phase == _AS_IT_WAS:
        return _END
    if phase == _DERIVATIVES:
        best = _best_flips(f, c.slope, leaves, c.best_gain, c.best_value)
        if c.best_value[best] < 0:
            c.phase[1] += 1  # this round changed nothing
            return _END
        c.before[:] = c.state
        gaining = 0
        for v in range(c.state.size):
            if c.best_value[v] >= 0:
                c.state[v] = c.best_value[v]
                gaining += 1
        c.log_values[1] = c.log_values[0] + np.log(c.best_gain[best])
        c.phase[0], c.phase[2], c.phase[3] = _TOGETHER, best, gaining
        return _UP
    here = log_of(c.value[root], c.exponent[root])
    if phase in (_TOGETHER, _APART) and gaining > 1 and here < c.log_values[1]:
        c.state[:] = c.before
        if phase == _TOGETHER and gaining > 2:
            if c.groups[0] < 0:
                c.groups[:] = neighbourhoods(f, c.state.size)
            if 1 < change_apart(c.groups, c.best_gain, c.best_value, c.state) < gaining:
                c.phase[0] = _APART
                return _UP
            c.state[:] = c.before
        c.state[best] = c.best_value[best]
        c.phase[0] = _ALONE
        return _UP
    if phase != _AS_IT_IS and here < c.log_values[0]:  # the derivatives were beyond doubles, and the gain was none
        c.state[:] = c.before
        c.phase[0] = _AS_IT_WAS
        c.phase[1] += 1
        return _UP
    if c.phase[1] == 0:
        return _END
    if c.value[root] == 0:
        return _END
    c.phase[0], c.log_values[0] = _DERIVATIVES, here
    c.phase[1] -= 1
    return _DOWN


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
