"""The reduction of a circuit without dense blocks: every edge that is left is copied, and then the circuit is rebuilt.

For circuits whose sums share no rows of children this is quicker than :mod:`margmap.solve.forms`, which looks at the
columns of dense blocks once; the circuit that comes out is the same.
"""

from __future__ import annotations

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.foundation.jit import kernel
from margmap.inference.passes import forward, share_weight
from margmap.inference.scaled import Scaled
from margmap.solve.forms import Query, leaf_share


@kernel
def edge_by_edge(
    s: Scaled, codes: IntArray, reals: FloatArray, query: Query, stop: LongArray
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray, float, float]:
    """The arrays of the circuit over the query with all its detours, and the root's value as a pair."""
    asked, first_leaf, cardinality, position = query.asked, query.first_leaf, query.cardinality, query.position
    n_old = s.kind.size
    value, exponent = np.empty(n_old), np.empty(n_old)
    forward(s, codes, reals, value, exponent)

    # What of the circuit the query can still reach, and how much room it will need.
    live = np.zeros(n_old, dtype=np.bool_)
    live[n_old - 1] = asked[n_old - 1] and value[n_old - 1] > 0
    share = np.empty(s.child.size)  # filled below live sums only
    room_nodes, room_edges = 0, 0
    for n in range(n_old - 1, -1, -1):
        if not live[n]:
            continue
        if stop[0] != 0:
            break
        room_nodes += 1
        if s.kind[n] < PRODUCT:
            room_edges += cardinality[position[s.var[n]]]
            continue
        for e in range(s.start[n], s.start[n + 1]):
            c = s.child[e]
            if s.kind[n] == PRODUCT:
                live[c] |= asked[c]
                room_edges += 1
            else:
                share[e] = share_weight(s, n, e, value, exponent)
                if share[e] != 0:
                    live[c] = True
                    room_edges += 1

    # The indicators come first, then one node for each that is left, still with all its detours.
    room_nodes += first_leaf[-1]
    kind = np.zeros(room_nodes, dtype=np.int8)
    start = np.zeros(room_nodes + 1, dtype=np.int64)
    child = np.zeros(room_edges, dtype=np.int32)
    weight = np.ones(room_edges)
    var = np.full(room_nodes, -1, dtype=np.int32)
    leaf_value = np.full(room_nodes, -1, dtype=np.int32)
    for q in range(cardinality.size):
        for x in range(cardinality[q]):
            var[first_leaf[q] + x], leaf_value[first_leaf[q] + x] = q, x
    count, end = first_leaf[-1], 0
    number = np.full(n_old, -1, dtype=np.int32)
    for n in range(n_old):
        if stop[0] != 0:
            break
        if not live[n]:
            continue
        if s.kind[n] < PRODUCT:
            q = position[s.var[n]]
            for x in range(cardinality[q]):
                part = leaf_share(s, n, x, cardinality[q])
                if part != 0:
                    child[end], weight[end] = first_leaf[q] + x, part
                    end += 1
            kind[count] = SUM
        elif s.kind[n] == PRODUCT:
            for e in range(s.start[n], s.start[n + 1]):
                if asked[s.child[e]]:
                    child[end] = number[s.child[e]]
                    end += 1
            kind[count] = PRODUCT
        else:
            for e in range(s.start[n], s.start[n + 1]):
                if share[e] != 0:
                    child[end], weight[end] = number[s.child[e]], share[e]
                    end += 1
            kind[count] = SUM
        number[n] = count
        count += 1
        start[count] = end
    root = n_old - 1
    return kind, start, child[:end].copy(), weight[:end].copy(), var, leaf_value, value[root], exponent[root]
