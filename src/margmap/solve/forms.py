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
from margmap.foundation.pairs import EPS, EXACT, STEP, TINY, UP, decoded, encoded
from margmap.inference.passes import share_weight
from margmap.inference.scaled import Scaled
from margmap.solve.query_circuit import SMALL, added, equal_node, size_of


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


@kernel
def leaf_share(s: Scaled, n: int, x: int, cardinality: int) -> float:
    """The part that a value has of the total of a leaf of the query, as a weight that is not less than it."""
    table = s.table_start[n]
    total, power = s.table[table + cardinality], s.table_shift[table + cardinality]
    shift = s.table_shift[table + x] - power
    if abs(shift) > EXACT:
        shift += 8 * EPS * abs(shift)
    return min(encoded(s.table[table + x] / total, shift), 1.0)


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
    first_row: IntArray,
    order: IntArray,
    value: FloatArray,
    exponent: FloatArray,
    query: Query,
    forms: Forms,
    store: Store,
    count: int,
    most_children: int,
    stop: LongArray,
) -> int:
    """Make the forms of these nodes, children first; the number of nodes in the store afterwards.

    What :func:`~margmap.solve.query_circuit.rebuild` does with the shares of edges, and with the same roundings. The
    rows of a dense block (``first_row``, see :mod:`margmap.inference.dense`) have their children in common: these are
    looked at once, and a row is then a multiplication and a division an edge.
    """
    bits = store.weight.view(np.uint64)
    room = (np.empty(most_children, dtype=np.int32), np.empty(most_children))
    scratch = Scratch(room[0], room[1], room[0].copy(), room[0].copy(), room[1].copy())
    block, width = -1, 0
    for n in order:
        if stop[0] != 0:
            break
        begin = store.start[count]
        end = begin
        factor, power = 1.0, 0.0
        if s.kind[n] == PRODUCT:
            for e in range(s.start[n], s.start[n + 1]):
                c = s.child[e]
                if query.asked[c]:
                    store.child[end], store.weight[end] = forms.number[c], 1.0
                    end += 1
                    if forms.factor[c] != 1:
                        factor = factor * forms.factor[c] * UP
                    power += forms.exponent[c]
                    if factor < TINY:
                        factor /= TINY
                        power -= STEP
        elif s.kind[n] == SUM:
            if first_row[n] >= 0 and first_row[n] != block:
                block, width = first_row[n], _columns(s, n, value, exponent, forms, store.seen_at, scratch)
            dense = first_row[n] >= 0 and width > 1 and exponent[n] == 0
            if dense and _row(s, n, value[n], width, scratch, store.child, store.weight, begin):
                end = begin + width
            else:
                end, power = _terms(s, n, value, exponent, forms, store, scratch, begin)
        else:
            end, power = _indicators(s, n, query, store, scratch.share, begin)
        kind = PRODUCT if s.kind[n] == PRODUCT else SUM
        forms.exponent[n] = power
        if end == begin + 1:  # the node is its only child, times a factor
            forms.number[n] = store.child[begin]
            forms.factor[n] = factor if kind == PRODUCT else store.weight[begin]
            continue
        forms.factor[n] = factor
        found, slot = equal_node(
            store.kind, store.start, store.child, store.weight, bits, store.slots, kind, begin, end
        )
        if found < 0:
            found = count
            store.slots[slot], store.kind[count] = count, kind
            count += 1
            store.start[count] = end
        forms.number[n] = found
    return count


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
def _row(
    s: Scaled, n: int, total: float, width: int, scratch: Scratch, child: IntArray, weight: FloatArray, begin: int
) -> bool:
    """Write the edges of a row of a dense block; whether all shares are so large that they are plain weights."""
    first, small = s.start[n], False
    if width == s.start[n + 1] - first:
        for i in range(width):
            share = s.weight[first + i] * scratch.below[i] / total
            weight[begin + i] = share
            small |= share <= SMALL
    else:
        for i in range(width):
            share = s.weight[first + scratch.place[i]] * scratch.below[i] / total
            weight[begin + i] = share
            small |= share <= SMALL
    for i in range(width):
        child[begin + i] = scratch.target[i]
    return not small


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
    """Write the edges of any sum; their end, and the power of two that is taken out of it."""
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
