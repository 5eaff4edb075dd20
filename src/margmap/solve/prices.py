"""Prices on constraints: Lagrangian relaxation of a reduced circuit, so that its bounds know of the constraints.

A row ``t(q) <= high`` with a price of at least 0 changes p(q) into ``p(q) exp(price (high - t(q)))``, which is no less
for a state that satisfies the row; ``t(q) >= low`` likewise with a price of at most 0. Costs belong to literals, so
the factors ``exp(-price cost)`` are weights of leaves and the result is a circuit of the same shape. The root's bound
is convex in the prices; a few passes up and down find prices for which it is low. The proof is in
``docs/algorithms.md``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits
from margmap.foundation.pairs import EPS, UP, raised
from margmap.solve.hill_climb import Incumbents
from margmap.solve.output_bounds import View, view_of
from margmap.solve.prune import keep_without
from margmap.solve.query_circuit import LEAF, Flat, rebuild, rounding_of
from margmap.solve.reduce import Reduced
from margmap.solve.rows import Rows, propagate
from margmap.solve.supports import Flags, possible

# Passes that look for prices: for one row that can be violated, and for more of them.
PASSES, PASSES_MANY = 24, 60

# Prices are good enough when their next steps would move the log of the bound by less than about this.
CLOSE = 2e-3

# No literal is charged more than this, in nats, so that weights stay doubles.
HIGHEST_TOLL = 250.0


class Priced(NamedTuple):
    """A constrained problem: its rows, and a circuit of the literals that are left with tolls on them."""

    rows: Rows
    #: By variable and value: what the constraints and the circuit leave possible.
    can: Flags
    #: The reduced circuit as it came, for scoring states.
    whole: View
    flat: Flat
    #: By variable and value: the log of what was taken from the literal; the least of each variable is 0.
    toll: FloatArray
    #: No allowed state has a log value above that of ``flat`` plus this.
    offset: float
    #: How far, relatively, the rounding of tolls and weights can move two states against each other.
    rounding: float
    #: Allowed states that were met on the way to the prices.
    states: tuple[IntArray, ...]

    def incumbents(self, cardinality: IntArray, limits: Limits, k: int) -> Incumbents:
        """An empty list of best states that takes only what the constraints allow."""
        return Incumbents(self.whole.flat, self.whole.bounds, cardinality, limits, k, self.rows)


def charge(reduced: Reduced, rows: Rows, limits: Limits) -> Priced | None:
    """The problem with prices on its constraints; None if they leave nothing that is possible."""
    cardinality, run = reduced.cardinality, limits.run
    view = whole = view_of(reduced.flat, 0.0, cardinality, run)
    can = propagate(rows, possible(view.supports, cardinality.size))
    while can is not None and not (can == possible(view.supports, cardinality.size)).all():
        flat, log_factor = rebuild(view.flat, keep_without(view.flat, ~can), run)
        if flat.num_nodes == 0:
            return None
        view = view_of(flat, raised(view.log_factor, log_factor), cardinality, run)
        can = propagate(rows, possible(view.supports, cardinality.size))
    if can is None:
        return None
    prices, states = _find_prices(view, rows, can, limits)
    pen = np.zeros(can.shape)
    for r in np.nonzero(prices)[0]:
        entries = slice(int(rows.at[r]), int(rows.at[r + 1]))
        pen[rows.var[entries]] += prices[r] * rows.cost[entries]
    least = np.where(can, pen, np.inf).min(axis=1)
    toll = np.where(can, pen - least[:, None], 0.0)
    ends = np.where(prices > 0, rows.high, rows.low)
    terms = [*(prices * np.where(prices == 0, 0, ends)).tolist(), *(-least).tolist()]
    size = sum(map(abs, terms)) + cardinality.size * float(toll.max(initial=0.0)) + float(np.abs(pen).sum())
    rounding = 16 * EPS * (1 + rows.number) * size
    if not prices.any():
        return Priced(rows, can, whole, view.flat, toll, view.log_factor, 0.0, states)
    flat, log_factor = rebuild(*_with_tolls(view.flat, toll), run)
    offset = raised(view.log_factor, log_factor, math.fsum(terms), rounding)
    # Each weight that the rebuilding makes anew is rounded a few times.
    return Priced(rows, can, whole, flat, toll, offset, 2 * rounding + 8 * rounding_of(flat), states)


def _find_prices(view: View, rows: Rows, can: Flags, limits: Limits) -> tuple[FloatArray, tuple[IntArray, ...]]:
    """Prices with a low bound: each goes up while its row is exceeded on average, and steps shrink on the way back."""
    prices, states = np.zeros(rows.number), []
    span = np.where(can[rows.var], rows.cost, 0).max(axis=1) - np.where(can[rows.var], rows.cost, 1 << 61).min(axis=1)
    scale = np.maximum(np.maximum.reduceat(span, rows.at[:-1]), 1) if rows.number else np.zeros(0)
    step, before = 0.5 / scale if rows.number else np.zeros(0), np.zeros(rows.number)
    best, lowest = prices, np.inf
    passes = PASSES
    for turn in range(PASSES_MANY):
        if turn >= passes:
            break
        limits.check()
        log_bound, used, state = _relaxed(view, rows, can, prices)
        states.append(state)
        if not math.isfinite(log_bound):
            break
        if log_bound < lowest:
            best, lowest = prices, log_bound
        way = np.where(prices > 0, np.sign(used - rows.high), np.where(prices < 0, np.sign(used - rows.low), 0.0))
        way = np.where(prices == 0, np.where(used > rows.high, 1.0, np.where(used < rows.low, -1.0, 0.0)), way)
        if np.count_nonzero(way) > 1:
            passes = PASSES_MANY
        if not way.any():
            break
        step = np.where(way * before < 0, step / 2, np.where(way * before > 0, step * 1.7, step))
        if float((step * scale)[way != 0].max()) < CLOSE:
            break
        before = way
        after = prices + way * step
        after = np.where(prices * after < 0, 0.0, after)
        prices = np.clip(after, -HIGHEST_TOLL / scale / rows.number, HIGHEST_TOLL / scale / rows.number)
    return best, tuple(state for state in states if rows.allows(state[None])[0])


def _relaxed(view: View, rows: Rows, can: Flags, prices: FloatArray) -> tuple[float, FloatArray, IntArray]:
    """The bound at some prices, the average use of each row at it, and a state that it leads to."""
    pen = np.zeros(can.shape)
    weighed = rows.cost * np.repeat(prices, np.diff(rows.at))[:, None]
    np.add.at(pen, rows.var, weighed)
    least = np.where(can, pen, np.inf).min(axis=1)
    state = np.zeros(can.shape[0], dtype=np.int32)
    weight = np.exp(np.where(can, least[:, None] - pen, 0.0))
    value, flow = _pass(view.flat, view.bounds.share, view.bounds.deterministic, weight, state)
    ends = np.where(prices > 0, rows.high, rows.low)
    constant = float((prices * np.where(prices == 0, 0, ends)).sum() - least.sum())
    used = np.add.reduceat((flow[rows.var] * rows.cost).sum(axis=1), rows.at[:-1]) if rows.number else np.zeros(0)
    with np.errstate(divide="ignore"):
        return float(np.log(value)) + constant, used, state


@kernel
def _pass(f: Flat, share: FloatArray, take_max: Flags, weight: FloatArray, state: IntArray) -> tuple[float, FloatArray]:
    """The root's bound with weights on literals, relative to that without; how much of it flows through each literal.

    ``state`` becomes that of the largest share at every sum. Plain doubles: nothing is proven with these numbers.
    """
    n_nodes = f.kind.size
    value, flow = np.ones(n_nodes), np.zeros(n_nodes)
    through = np.zeros(weight.shape)
    on_way = np.zeros(n_nodes, dtype=np.bool_)
    for n in range(n_nodes):
        if f.kind[n] == LEAF:
            value[n] = weight[f.var[n], f.value[n]]
        elif f.kind[n] == PRODUCT:
            v = 1.0
            for e in range(f.start[n], f.start[n + 1]):
                v *= value[f.child[e]]
            value[n] = v
        else:
            v = 0.0
            for e in range(f.start[n], f.start[n + 1]):
                term = share[e] * value[f.child[e]]
                v = max(v, term) if take_max[n] else v + term
            value[n] = v
    if value[n_nodes - 1] <= 0:
        return 0.0, through
    flow[n_nodes - 1] = 1.0
    on_way[n_nodes - 1] = True
    for n in range(n_nodes - 1, -1, -1):
        if flow[n] == 0 and not on_way[n]:
            continue
        if f.kind[n] == LEAF:
            through[f.var[n], f.value[n]] += flow[n]
            if on_way[n]:
                state[f.var[n]] = f.value[n]
        elif f.kind[n] == PRODUCT:
            for e in range(f.start[n], f.start[n + 1]):
                flow[f.child[e]] += flow[n]
                on_way[f.child[e]] |= on_way[n]
        else:
            largest, most = f.start[n], -1.0
            for e in range(f.start[n], f.start[n + 1]):
                term = share[e] * value[f.child[e]]
                if term > most:
                    largest, most = e, term
            on_way[f.child[largest]] |= on_way[n]
            if take_max[n]:
                flow[f.child[largest]] += flow[n]
            elif value[n] > 0:
                for e in range(f.start[n], f.start[n + 1]):
                    flow[f.child[e]] += flow[n] * (share[e] * value[f.child[e]] / value[n])
    return value[n_nodes - 1], through


def _with_tolls(flat: Flat, toll: FloatArray) -> tuple[Flat, Flags]:
    """The circuit with each leaf below a sum of one edge, whose weight is what the toll leaves; and all its edges."""
    leaf = flat.kind == LEAF
    number = np.arange(flat.num_nodes) + np.cumsum(leaf)  # of each node, and of the sum above a leaf
    nodes = flat.num_nodes + int(leaf.sum())
    kind = np.zeros(nodes, dtype=np.int8)
    kind[number] = np.where(leaf, SUM, flat.kind)
    edges = np.zeros(nodes, dtype=np.int64)
    edges[number] = np.where(leaf, 1, np.diff(flat.start))
    start = np.concatenate(([0], np.cumsum(edges)))
    child = np.zeros(start[-1], dtype=np.int32)
    weight = np.ones(start[-1])
    of_leaf = np.zeros(start[-1], dtype=np.bool_)
    of_leaf[start[number[leaf]]] = True
    child[~of_leaf], weight[~of_leaf] = number[flat.child], flat.weight
    child[of_leaf] = number[leaf] - 1
    weight[of_leaf] = np.minimum(np.exp(-toll[flat.var[leaf], flat.value[leaf]]) * UP, 1.0)
    var, value = np.full(nodes, -1, dtype=np.int32), np.full(nodes, -1, dtype=np.int32)
    var[number[leaf] - 1], value[number[leaf] - 1] = flat.var[leaf], flat.value[leaf]
    return Flat(kind, start, child, weight, var, value), np.ones(child.size, dtype=np.bool_)
