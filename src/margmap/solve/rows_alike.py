"""Rows whose reduced circuits differ in their weights alone: these are computed for many rows at once.

In a circuit that is not deterministic, such as a latent tree, evidence on the same variables leaves the same nodes and
edges, whatever was observed. The nodes and edges are then found once, from one row, and written down as a *recipe*:
which edges of the circuit go into which edge of the reduced one. For other rows the recipe is followed, many rows at a
time, with the operations of :func:`~margmap.solve.forms.build` in the same order. Whatever could make a row's circuit
another one is looked at on the way, and a row for which that is so is reduced by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import TINY, UP
from margmap.inference.scaled import Scaled
from margmap.solve.forms import Forms, Query, build, store_for
from margmap.solve.query_circuit import SMALL, Flat, log_factor_of
from margmap.solve.reduce_sparse import Asked, needed, used_of
from margmap.solve.shape import Shape
from margmap.solve.supports import Flags

# Comparisons an edge, of sums that have the same children, beyond which a circuit is not worth a recipe.
MOST_PAIRS = 8


class Recipe(NamedTuple):
    """What the nodes that a row's root needs become, as kernels take it; all but ``place`` by their order."""

    #: The nodes, children first, and the place of each node of the circuit among them, or -1.
    nodes: IntArray
    place: IntArray
    #: The node of the store that each of them becomes, how many edges it has, and whether it was made for this one.
    form: IntArray
    width: IntArray
    fresh: Flags
    #: Whether the factor before it is 1 in every row.
    one: Flags
    #: Where the entries of ``slot`` for the edges of each sum begin; the edge of the form that each of them goes into,
    #: or -1 for an edge to a child that is zero.
    slot_at: LongArray
    slot: IntArray
    #: Where the edges of each node of the store begin.
    start: LongArray


class Alike:
    """A recipe, and the circuits of a block of rows that were made by it."""

    def __init__(self, s: Scaled, value: FloatArray, exponent: FloatArray, asked: Asked, lanes: int) -> None:
        never = np.zeros(1, dtype=np.int64)
        flat, recipe, factor, power = _recipe(s, value, exponent, asked, never)
        self._flat, self._recipe, self._first_factor = Flat(*flat), Recipe(*recipe), factor
        self._factor = np.empty((recipe[0].size, lanes))
        self._weight = np.empty((lanes, self._flat.num_edges))
        # How many indicators the store has that the circuit lacks.
        self._gone = int(self._recipe.form[-1]) + 1 - self._flat.num_nodes
        pairs = _with_same_children(self._flat)
        #: Whether there is a recipe at all: a query leaf with values that are powers of two apart has none, nor has a
        #: root that is a single indicator.
        self.usable = pairs is not None and bool((power == 0).all()) and recipe[-1].size == recipe[2][-1] + 2
        self._all_pairs: IntArray = np.zeros((0, 2), dtype=np.int32) if pairs is None else pairs
        self._pairs, self._todo = self._all_pairs, np.zeros(0, dtype=np.int32)
        #: What these circuits have in common.
        self.shape = Shape()
        #: Which rows of the block have a circuit of their own.
        self.unfit = np.ones(lanes, dtype=np.bool_)

    @property
    def nodes(self) -> IntArray:
        """The nodes that the root needs."""
        return self._recipe.nodes

    def about(self, differs: Flags) -> None:
        """Which nodes of the circuit have another value in some rows: the others are the same in all of them."""
        recipe = self._recipe
        self._todo = np.flatnonzero(differs[recipe.nodes]).astype(np.int32)
        self._factor[:] = self._first_factor[:, None]
        self._weight[:] = self._flat.weight
        changing = np.zeros(self._flat.num_nodes, dtype=np.bool_)
        at = recipe.form[self._todo] - self._gone
        changing[at[at >= 0]] = True
        self._pairs = self._all_pairs[changing[self._all_pairs].any(axis=1)]

    def follow(self, s: Scaled, value: FloatArray) -> None:
        """Make the circuits of the rows whose values are the columns of ``value``."""
        self.unfit[:] = False
        _follow(s, self._recipe, self._todo, value, self._factor, self._weight, self.unfit)
        _compare(self._flat.start, self._pairs, self._weight, self.unfit)

    def circuit(self, lane: int) -> tuple[Flat, float]:
        """The reduced circuit of a row, and the log of a factor taken out of it."""
        flat = self._flat._replace(weight=self._weight[lane].copy())
        return flat, float(log_factor_of(float(self._factor[-1, lane]), 0.0))


def _with_same_children(flat: Flat) -> IntArray | None:
    """All pairs of sums with the same children; None if they are too many to be compared."""
    groups: dict[bytes, list[int]] = {}
    for n in np.flatnonzero(flat.kind == SUM).tolist():
        groups.setdefault(flat.child[flat.start[n] : flat.start[n + 1]].tobytes(), []).append(n)
    if sum(len(group) ** 2 for group in groups.values()) > 2 * MOST_PAIRS * flat.num_edges:
        return None
    pairs = [(a, b) for group in groups.values() for i, b in enumerate(group) for a in group[:i]]
    return np.array(pairs, dtype=np.int32).reshape(-1, 2)


@kernel
def _recipe(
    s: Scaled, value: FloatArray, exponent: FloatArray, asked: Asked, stop: LongArray
) -> tuple[
    tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray],
    tuple[IntArray, IntArray, IntArray, IntArray, Flags, Flags, LongArray, IntArray, LongArray],
    FloatArray,
    FloatArray,
]:
    """The reduced circuit under some values, the recipe that it follows, and the factor of each node as a pair."""
    nodes, marks, edges, most = needed(s, asked, value, stop)
    query = Query(asked.position, asked.cardinality, asked.first_leaf, marks)
    leaves = asked.first_leaf[-1]
    store = store_for(query, leaves + nodes.size, edges)
    forms = Forms(np.empty(s.kind.size, dtype=np.int32), np.empty(s.kind.size), np.empty(s.kind.size))
    count = build(s, None, nodes, value, exponent, query, forms, store, leaves, edges, most, stop)
    place = np.full(s.kind.size, -1, dtype=np.int32)
    form, width = np.empty(nodes.size, dtype=np.int32), np.zeros(nodes.size, dtype=np.int32)
    fresh, one = np.zeros(nodes.size, dtype=np.bool_), np.zeros(nodes.size, dtype=np.bool_)
    factor, power = np.empty(nodes.size), np.empty(nodes.size)
    slot_at, slot = np.zeros(nodes.size + 1, dtype=np.int64), np.empty(edges, dtype=np.int32)
    made = leaves
    for i in range(nodes.size):
        n = nodes[i]
        place[n], form[i], factor[i], power[i] = i, forms.number[n], forms.factor[n], forms.exponent[n]
        at = slot_at[i]
        if s.kind[n] == SUM:
            for e in range(s.start[n], s.start[n + 1]):
                c = s.child[e]
                slot[at] = -1
                if s.weight[e] > 0 and value[c] > 0:
                    to = forms.number[c]
                    if store.seen_at[to] < 0:
                        store.seen_at[to] = width[i]
                        width[i] += 1
                    slot[at] = store.seen_at[to]
                at += 1
            for e in range(s.start[n], s.start[n + 1]):
                if s.weight[e] > 0 and value[s.child[e]] > 0:
                    store.seen_at[forms.number[s.child[e]]] = -1
            one[i] = width[i] > 1
        elif s.kind[n] == PRODUCT:
            one[i] = True
            for e in range(s.start[n], s.start[n + 1]):
                if marks[s.child[e]]:
                    width[i] += 1
                    one[i] &= one[place[s.child[e]]]
        else:
            q = asked.position[s.var[n]]
            for x in range(asked.cardinality[q]):
                width[i] += s.table[s.table_start[n] + x] > 0
            one[i] = factor[i] == 1
        slot_at[i + 1] = at
        if width[i] > 1 and form[i] == made:
            fresh[i] = True
            made += 1
    recipe = nodes, place, form, width, fresh, one, slot_at, slot[: slot_at[-1]].copy(), store.start[: count + 1].copy()
    return used_of(store, leaves, np.int64(form[-1] + 1)), recipe, factor, power


@kernel
def _follow(
    s: Scaled,
    recipe: Recipe,
    todo: IntArray,
    value: FloatArray,
    factor: FloatArray,
    weight: FloatArray,
    unfit: Flags,
) -> None:
    """The weights of the reduced circuits of several rows, whose values are the columns of ``value``.

    A row is unfit if an edge that the recipe has is zero or small in it, one that the recipe lacks is not zero, or two
    nodes that are one in the recipe are different. What the recipe says of the nodes before ``todo`` is true of all.
    """
    kind, start, child, weights = s.kind, s.start, s.child, s.weight
    place, one, slots, width = recipe.place, recipe.one, recipe.slot, recipe.width
    lanes, most = value.shape[1], np.int64(1)
    for i in todo:
        most = max(most, np.int64(width[i]))
    part, away = np.empty((most, lanes)), np.zeros(lanes, dtype=np.int64)
    total = np.empty(lanes)
    for i in todo:
        n = recipe.nodes[i]
        for j in range(lanes):  # where it is zero, so is every share of it
            total[j] = value[n, j] if value[n, j] > 0 else 1.0
        if kind[n] == PRODUCT:
            if one[i]:
                continue
            for j in range(lanes):
                factor[i, j] = 1.0
            for e in range(start[n], start[n + 1]):
                k = place[child[e]]
                if k >= 0 and not one[k]:
                    for j in range(lanes):
                        f = factor[k, j]
                        factor[i, j] = factor[i, j] * f * UP if f != 1 else factor[i, j]
                        away[j] += not factor[i, j] >= TINY
        elif kind[n] == SUM:
            filled, at = 0, recipe.slot_at[i]
            for e in range(start[n], start[n + 1]):
                c, w, t = child[e], weights[e], slots[at]
                at += 1
                if t < 0:
                    if w > 0:
                        for j in range(lanes):
                            away[j] += value[c, j] > 0
                    continue
                k = place[c]
                if t == filled:
                    filled += 1
                    for j in range(lanes):
                        part[t, j] = w * value[c, j] / total[j]
                        away[j] += not part[t, j] > SMALL
                    if not one[k]:
                        for j in range(lanes):
                            f = factor[k, j]
                            part[t, j] = part[t, j] * f * UP if f != 1 else part[t, j]
                            away[j] += not f > SMALL
                else:  # as another edge to the same form
                    for j in range(lanes):
                        x, f = w * value[c, j] / total[j], factor[k, j]
                        away[j] += not (x > SMALL and f > SMALL)
                        x = x * f * UP if f != 1 else x
                        part[t, j] = (part[t, j] + x) * UP
            if width[i] == 1:
                for j in range(lanes):
                    factor[i, j] = part[0, j]
                continue
            begin = recipe.start[recipe.form[i]]
            for t in range(width[i]):
                for j in range(lanes):
                    if recipe.fresh[i]:
                        weight[j, begin + t] = part[t, j]
                    else:
                        away[j] += weight[j, begin + t] != part[t, j]
    for j in range(lanes):
        unfit[j] |= away[j] > 0


@kernel
def _compare(start: LongArray, pairs: IntArray, weight: FloatArray, unfit: Flags) -> None:
    """A row is unfit if two sums with the same children, which are two in the recipe, have the same weights in it."""
    for p in range(pairs.shape[0]):
        a, b = start[pairs[p, 0]], start[pairs[p, 1]]
        size = start[pairs[p, 0] + 1] - a
        for j in range(weight.shape[0]):
            if weight[j, a] == weight[j, b]:
                same = True
                for e in range(size):
                    same &= weight[j, a + e] == weight[j, b + e]
                unfit[j] |= same
