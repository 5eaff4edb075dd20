"""Forms: what the nodes of a circuit become in the reduced circuit, each a node of its own times a factor.

A form depends on nothing but the node's part of the circuit, the query in it and the evidence in it. Equal forms are
one node of the store.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.matrices import lowest
from margmap.foundation.pairs import EPS, EXACT, STEP, TINY, UP, decoded, encoded
from margmap.inference.passes import share_weight
from margmap.inference.scaled import Scaled
from margmap.solve.query_circuit import (
    MANY_EDGES,
    SMALL,
    added,
    equal_node,
    finished_hash,
    hash_of_children,
    hash_of_weights,
    node_with_hash,
    size_of,
)


class Store(NamedTuple):
    """Forms, as the nodes of a :class:`~margmap.solve.query_circuit.Flat` with room at the ends of the arrays."""

    kind: KindArray
    start: LongArray
    child: IntArray
    weight: FloatArray
    var: IntArray
    value: IntArray
    #: A hash table of the nodes, whose size is a power of two.
    slots: IntArray
    #: For each node the edge of the sum being made that leads to it, or -1.
    seen_at: LongArray
    #: For each node its place in the circuit being made, or -1.
    place: IntArray


class Forms(NamedTuple):
    """For each node of the circuit its form in the store, and the factor ``factor * 2**exponent`` before it."""

    number: IntArray
    factor: FloatArray
    exponent: FloatArray


class Query(NamedTuple):
    """What is asked, as kernels take it."""

    #: Place in the query of each variable, or -1; values of each query variable; its first indicator in the store.
    position: IntArray
    cardinality: IntArray
    first_leaf: LongArray
    #: Which nodes have a query variable in their scope.
    asked: NDArray[np.bool_]


@kernel(inline=True)
def leaf_share(s: Scaled, n: int, x: int, cardinality: int) -> float:
    """The part that a value has of the total of a leaf of the query, as a weight that is not less than it."""
    table = s.table_start[n]
    total, power = s.table[table + cardinality], s.table_shift[table + cardinality]
    shift = s.table_shift[table + x] - power
    if abs(shift) > EXACT:
        shift += 8 * EPS * abs(shift)
    return min(encoded(s.table[table + x] / total, shift), 1.0)


@kernel
def store_for(query: Query, nodes: int, edges: int) -> Store:
    """A store with room for so many nodes and edges, which has the indicators of a query."""
    store = store_on(query, nodes, np.empty(edges, dtype=np.int32), np.empty(edges), slots_for(nodes))
    nothing_yet(store, query.first_leaf[-1], nodes)
    return store


@kernel
def store_on(query: Query, nodes: int, child: IntArray, weight: FloatArray, slots: IntArray) -> Store:
    """A store with room for so many nodes, in which the indicators of a query are all that is written."""
    store = Store(
        np.zeros(nodes, dtype=np.int8),
        np.zeros(nodes + 1, dtype=np.int64),
        child,
        weight,
        np.empty(nodes, dtype=np.int32),
        np.empty(nodes, dtype=np.int32),
        slots,
        np.empty(nodes, dtype=np.int64),
        np.empty(0, dtype=np.int32),
    )
    for q in range(query.cardinality.size):
        for x in range(query.cardinality[q]):
            leaf = query.first_leaf[q] + x
            store.var[leaf], store.value[leaf], store.seen_at[leaf] = q, x, -1
    return store


@kernel
def nothing_yet(store: Store, begin: int, end: int) -> None:
    """Write what nodes of a store have that are no indicators, before they are made."""
    for n in range(begin, end):
        store.var[n] = store.value[n] = -1
        store.seen_at[n] = -1


@kernel
def slots_for(nodes: int) -> IntArray:
    """An empty hash table for so many nodes."""
    size = 64
    while size < 2 * nodes:
        size *= 2
    return np.full(size, -1, dtype=np.int32)


class Scratch(NamedTuple):
    """Room for the children of one sum."""

    #: Of a sum the children with a share, and their shares.
    term: IntArray
    share: FloatArray
    #: Of a dense block the children that are not zero: form, place among the children, value.
    target: IntArray
    place: IntArray
    below: FloatArray


@kernel
def build(
    s: Scaled,
    rows: IntArray | None,
    order: IntArray,
    value: FloatArray,
    exponent: FloatArray,
    query: Query,
    forms: Forms,
    store: Store,
    count: int,
    last_edge: int,
    most_children: int,
    stop: LongArray,
    without_powers: bool = False,
) -> int:
    """Make the forms of these nodes, children first; the number of nodes in the store afterwards.

    Edges from ``last_edge`` on are not the caller's. What :func:`room_for` counts is room enough: when all of it is
    taken, a node that is left has a single term, and nothing is written of it.

    What :func:`~margmap.solve.query_circuit.rebuild` does with the shares of edges, and with the same roundings. The
    rows of a dense block (see :mod:`margmap.inference.dense`) have their children in common: these are looked at once,
    and a row is then a multiplication and a division an edge. ``rows`` is ``Scaled.rows``, or None for a circuit with
    few or small blocks, where that is not worth it; the forms are the same. ``without_powers`` says that all powers of
    two are 0 so far, those of weights, of values and of the factors of forms, so that they need not be looked at.
    """
    room = (np.empty(most_children, dtype=np.int32), np.empty(most_children))
    scratch = Scratch(room[0], room[1], room[0].copy(), room[0].copy(), room[1].copy())
    # All in one loop and with arrays: numba counts who holds an array at every call and for every use of a tuple.
    kind, start, child, weights, shift = s.kind, s.start, s.child, s.weight, s.shift
    number, factors, powers = forms.number, forms.factor, forms.exponent
    kinds, starts, to, weight, slots, seen_at = (
        store.kind, store.start, store.child, store.weight, store.slots, store.seen_at,
    )  # fmt: skip
    asked, bits = query.asked, store.weight.view(np.uint64)
    i, block, width = 0, -1, 0
    while i < order.size and stop[0] == 0:
        n, begin = order[i], starts[count]
        end, factor, power, full = begin, 1.0, 0.0, begin == last_edge
        if kind[n] == PRODUCT:
            for e in range(start[n], start[n + 1]):
                c = child[e]
                if asked[c]:
                    if full:
                        number[n] = number[c]
                    else:
                        to[end], weight[end] = number[c], 1.0
                    end += 1
                    if factors[c] != 1:
                        factor = factor * factors[c] * UP
                    if not without_powers:
                        power += powers[c]
                    if factor < TINY:
                        factor /= TINY
                        power -= STEP
        elif kind[n] < PRODUCT:
            end, power = _indicators(s, n, query, store, scratch.share, begin)
        else:
            if rows is not None:
                if rows[n] >= 0 and rows[n] != block:
                    block, width = rows[n], _columns(s, n, value, exponent, forms, seen_at, scratch)
                if rows[n] >= 0 and width > 1:
                    last = i + 1  # the rows that stand one after the other, in the circuit and in the order
                    while last < order.size and order[last] == n + last - i and rows[order[last]] == block:
                        last += 1
                    done, count = _rows(s, n, last - i, value, exponent, width, scratch, forms, store, count)
                    if done > 0:
                        i += done
                        continue
            plain = not full and (without_powers or exponent[n] == 0)
            for e in range(start[n], start[n + 1]):
                c = child[e]
                if not (weights[e] > 0 and value[c] > 0):
                    continue
                w = weights[e] * value[c] / value[n]
                plain &= w > SMALL and factors[c] > SMALL
                if not without_powers:
                    plain &= exponent[c] == 0 and shift[e] == 0 and powers[c] == 0
                if not plain:
                    break
                if factors[c] != 1:
                    w = w * factors[c] * UP
                at = number[c]
                if seen_at[at] >= 0:
                    weight[seen_at[at]] = (weight[seen_at[at]] + w) * UP
                else:
                    seen_at[at] = end
                    to[end], weight[end] = at, w
                    end += 1
            for e in range(begin, end):
                seen_at[to[e]] = -1
            if not plain:  # some number needs a power of two, or nothing may be written
                end, power = _terms(s, n, value, exponent, forms, store, scratch, begin)
        i += 1
        powers[n] = power
        without_powers &= power == 0
        if end <= begin + 1:  # the node is its only child, times a factor
            if end == begin:
                number[n], factors[n] = scratch.term[0], scratch.share[0]
            elif kind[n] == PRODUCT:
                number[n], factors[n] = number[n] if full else to[begin], factor
            else:
                number[n], factors[n] = to[begin], weight[begin]
            continue
        form, factors[n] = PRODUCT if kind[n] == PRODUCT else SUM, factor
        found, slot = equal_node(kinds, starts, to, weight, bits, slots, form, begin, end)
        if found < 0:
            found = count
            slots[slot], kinds[count] = count, form
            count += 1
            starts[count] = end
        number[n] = found
    return count


@kernel
def room_for(s: Scaled, order: IntArray, value: FloatArray, query: Query) -> tuple[int, int]:
    """How many nodes and edges the forms of these nodes have: all that are seen to be needed, so that it is enough.

    It is more than that where forms are equal, or edges of a sum lead to the same one.
    """
    nodes, edges, block, width = 0, 0, -1, 0
    for n in order:
        if s.kind[n] < PRODUCT:
            block = -1
            nodes, edges = nodes + 1, edges + query.cardinality[query.position[s.var[n]]]
            continue
        if s.kind[n] == PRODUCT:
            block, width = -1, 0
            for e in range(s.start[n], s.start[n + 1]):
                width += query.asked[s.child[e]]
        elif s.rows[n] < 0 or s.rows[n] != block:
            block, width = s.rows[n], 0
            for e in range(s.start[n], s.start[n + 1]):
                width += s.weight[e] > 0 and value[s.child[e]] > 0
        if width > 1:
            nodes, edges = nodes + 1, edges + width
    return nodes, edges


@kernel
def _columns(
    s: Scaled, n: int, value: FloatArray, exponent: FloatArray, forms: Forms, seen_at: LongArray, scratch: Scratch
) -> int:
    """How many children of a dense block are not zero, which go to ``scratch``; 0 if they need to be looked at singly.

    They do if two of them have the same form, or if a factor or a power of two comes with one.
    """
    width, plain = 0, True
    for e in range(s.start[n], s.start[n + 1]):
        c = s.child[e]
        if value[c] > 0:
            form = forms.number[c]
            plain &= exponent[c] == 0 and forms.factor[c] == 1 and forms.exponent[c] == 0 and seen_at[form] < 0
            seen_at[form] = 0
            scratch.target[width], scratch.place[width], scratch.below[width] = form, e - s.start[n], value[c]
            width += 1
    for i in range(width):
        seen_at[scratch.target[i]] = -1
    return width if plain else 0


@kernel
def _rows(
    s: Scaled,
    n: int,
    rows: int,
    value: FloatArray,
    exponent: FloatArray,
    width: int,
    scratch: Scratch,
    forms: Forms,
    store: Store,
    count: int,
) -> tuple[int, int]:
    """Make the forms of rows of a dense block, from row ``n`` on; how many were made, and the nodes in the store then.

    The first row that is not a matter of plain weights, because its value or a share is too small for one, ends it.
    """
    first, begin = s.start[n], store.start[count]
    matrix = s.weight[first : s.start[n + rows]].reshape((rows, s.start[n + 1] - first))
    target, place, below = scratch.target[:width], scratch.place[:width], scratch.below[:width]
    whole = width == matrix.shape[1]
    shares = store.weight[begin : begin + rows * width].reshape((rows, width))
    edges = store.child[begin : begin + rows * width].reshape((rows, width))
    bits = store.weight.view(np.uint64)
    children = hash_of_children(target, 0, width) if width >= MANY_EDGES else np.uint64(0)
    for r in range(rows):
        at = store.start[count]
        row = (at - begin) // width  # where it goes: before it stand only those rows that are new nodes
        total = value[n + r]
        if exponent[n + r] != 0:
            return r, count
        if whole:
            for i in range(width):
                shares[row, i] = matrix[r, i] * below[i] / total
        else:
            for i in range(width):
                shares[row, i] = matrix[r, place[i]] * below[i] / total
        if lowest(shares[row]) <= SMALL:
            return r, count
        for i in range(width):
            edges[row, i] = target[i]
        if width >= MANY_EDGES:
            hashed = finished_hash(SUM, children + hash_of_weights(bits, at, at + width))
            found, slot = node_with_hash(
                store.kind, store.start, store.child, store.weight, store.slots, SUM, at, at + width, hashed
            )
        else:
            found, slot = equal_node(
                store.kind, store.start, store.child, store.weight, bits, store.slots, SUM, at, at + width
            )
        if found < 0:
            found = count
            store.slots[slot], store.kind[count] = count, SUM
            count += 1
            store.start[count] = at + width
        forms.number[n + r], forms.factor[n + r], forms.exponent[n + r] = found, 1.0, 0.0
    return rows, count


@kernel
def _terms(
    s: Scaled,
    n: int,
    value: FloatArray,
    exponent: FloatArray,
    forms: Forms,
    store: Store,
    scratch: Scratch,
    begin: int,
) -> tuple[int, float]:
    """Write the edges of any sum; their end, and the power of two that is taken out of it.

    Of one with a single term nothing is written: its form and its factor are the first of ``scratch``.
    """
    end, terms, top = begin, 0, -np.inf
    for e in range(s.start[n], s.start[n + 1]):
        c, w = s.child[e], share_weight(s, n, e, value, exponent)
        if w != 0:
            scratch.term[terms], scratch.share[terms] = c, w
            terms += 1
            top = max(top, size_of(w, forms.factor[c], forms.exponent[c]))
    for i in range(terms):
        c, w = scratch.term[i], scratch.share[i]
        if forms.factor[c] != 1 or forms.exponent[c] != 0 or top != 0:
            v, shift = decoded(w)
            w = encoded(v * forms.factor[c] * UP, shift + forms.exponent[c] - top)
        at = forms.number[c]
        if terms == 1:
            scratch.term[0], scratch.share[0] = at, w
            return end, top
        if store.seen_at[at] >= 0:
            store.weight[store.seen_at[at]] = added(store.weight[store.seen_at[at]], w)
        else:
            store.seen_at[at] = end
            store.child[end], store.weight[end] = at, w
            end += 1
    for e in range(begin, end):
        store.seen_at[store.child[e]] = -1
    return end, top


@kernel
def _indicators(s: Scaled, n: int, query: Query, store: Store, share: FloatArray, begin: int) -> tuple[int, float]:
    """Write the edges of a leaf to the indicators of its variable; their end, and the power of two taken out of it."""
    q = query.position[s.var[n]]
    end, top = begin, -np.inf
    for x in range(query.cardinality[q]):
        share[x] = leaf_share(s, n, x, query.cardinality[q])
        if share[x] != 0:
            top = max(top, size_of(share[x], 1.0, 0.0))
    for x in range(query.cardinality[q]):
        w = share[x]
        if w != 0:
            if top != 0:
                v, shift = decoded(w)
                w = encoded(v * UP, shift - top)
            store.child[end], store.weight[end] = query.first_leaf[q] + x, w
            end += 1
    return end, top
