"""The reduction of a circuit with few dense blocks: only what the root needs is looked at after the pass up.

Under its evidence most nodes of a deterministic circuit are zero, or nothing that is not zero leads to them: they are
read once, in the pass up, and never again. What is needed becomes its form (:mod:`margmap.solve.forms`). The answer is
scored by computing those nodes again that the root needs and a state of the query can change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.foundation.jit import kernel
from margmap.inference.passes import forward, forward_nodes
from margmap.inference.scaled import Scaled
from margmap.solve.forms import Forms, Query, Store, build, store_for
from margmap.solve.query_circuit import log_factor_of


class Asked(NamedTuple):
    """What is asked of a circuit without dense blocks, as kernels take it."""

    #: Place in the query of each variable, or -1; values of each query variable; its first indicator.
    position: IntArray
    cardinality: IntArray
    first_leaf: LongArray
    #: The scope of each node, and which scopes have a query variable.
    scope: IntArray
    meets: NDArray[np.bool_]


class Needed(NamedTuple):
    """The values under the evidence, and the nodes whose values a state of the query changes."""

    #: The nodes with a query variable that the root needs, children first.
    nodes: IntArray
    value: FloatArray
    exponent: FloatArray

    def root_with(self, s: Scaled, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
        """The root's value as a pair, under the same evidence and a state of the query.

        The same to the last bit as that of a pass over all nodes: all others keep their values, or are multiplied by 0.
        """
        forward_nodes(s, None, self.nodes, codes, reals, self.value, self.exponent)
        return float(self.value[-1]), float(self.exponent[-1])


class Known(NamedTuple):
    """The value of the circuit under one row; where a state is scored it stands in for :class:`Needed`."""

    codes: IntArray
    root: tuple[float, float]

    def root_with(self, s: Scaled, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
        """The root's value as a pair, under the row that it is known for."""
        assert codes.tobytes() == self.codes.tobytes()
        return self.root


@kernel
def edge_by_edge(
    s: Scaled, codes: IntArray, reals: FloatArray, asked: Asked, stop: LongArray
) -> tuple[
    tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray, float],
    tuple[IntArray, FloatArray, FloatArray],
    float,
]:
    """The arrays of the circuit over the query in its smallest form with the log of a factor taken out of it.

    And the nodes of :class:`Needed` with all values, and the root's exponent.
    """
    value, exponent = np.empty(s.kind.size), np.empty(s.kind.size)
    forward(s, codes, reals, value, exponent)
    smallest, nodes = smallest_form(s, value, exponent, asked, stop)
    return smallest, (nodes, value, exponent), exponent[-1]


@kernel
def smallest_form(
    s: Scaled, value: FloatArray, exponent: FloatArray, asked: Asked, stop: LongArray
) -> tuple[tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray, float], IntArray]:
    """The same from values under the evidence: the arrays and the log of a factor, and the nodes that are needed."""
    nodes, marks, edges, most = needed(s, asked, value, stop)
    query = Query(asked.position, asked.cardinality, asked.first_leaf, marks)
    leaves = asked.first_leaf[-1]
    store = store_for(query, leaves + nodes.size, edges)
    # Of each of these arrays only what belongs to nodes that are needed is read, after it was written.
    forms = Forms(np.empty(s.kind.size, dtype=np.int32), np.empty(s.kind.size), np.empty(s.kind.size))
    count, log_factor = np.int64(0), 0.0
    if nodes.size > 0:
        build(s, None, nodes, value, exponent, query, forms, store, leaves, edges, most, stop)
        root = s.kind.size - 1
        count, log_factor = forms.number[root] + 1, log_factor_of(forms.factor[root], forms.exponent[root])
    return (*used_of(store, leaves, count), log_factor), nodes


@kernel
def needed(s: Scaled, asked: Asked, value: FloatArray, stop: LongArray) -> tuple[IntArray, NDArray[np.bool_], int, int]:
    """The nodes with a query variable that the root needs, children first, as a list and as flags.

    And how many edges they have at most, all together and one of them.
    """
    kind, start, child, weight = s.kind, s.start, s.child, s.weight
    scope, meets, position, cardinality, var = asked.scope, asked.meets, asked.position, asked.cardinality, s.var
    root = kind.size - 1
    marks = np.zeros(-(-kind.size // 8) * 8, dtype=np.bool_)
    words = marks.view(np.uint64)
    nodes, at, edges, most = np.empty(kind.size, dtype=np.int32), kind.size, 0, 1
    marks[root] = meets[scope[root]] and value[root] > 0
    n = root + 1
    while n > 0 and stop[0] == 0:
        n -= 1
        if n & 7 == 7:  # most nodes are not needed
            while n > 0 and words[n >> 3] == 0:
                n -= 8
            if n < 0:
                break
        if not marks[n]:
            continue
        at -= 1
        nodes[at] = n
        size = cardinality[position[var[n]]] if kind[n] < PRODUCT else start[n + 1] - start[n]
        edges, most = edges + size, max(most, size)
        if kind[n] == PRODUCT:
            for e in range(start[n], start[n + 1]):
                marks[child[e]] |= meets[scope[child[e]]]
        elif kind[n] == SUM:
            for e in range(start[n], start[n + 1]):
                marks[child[e]] |= weight[e] > 0 and value[child[e]] > 0
    return np.copy(nodes[at:]), marks, edges, most


@kernel
def used_of(
    store: Store, leaves: int, count: int
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray]:
    """The first nodes of a store, of which the last is the root, without the indicators that nothing leads to."""
    edges = store.start[count]
    used = np.zeros(leaves, dtype=np.bool_)
    for e in range(edges):
        if store.child[e] < leaves:
            used[store.child[e]] = True
    if 0 < count <= leaves:
        used[count - 1] = True
    number, left = np.empty(leaves, dtype=np.int32), 0
    for n in range(leaves):
        number[n] = left
        left += used[n]
    gone = leaves - left
    size = left + max(0, count - leaves)
    kind, start = np.zeros(size, dtype=np.int8), np.zeros(size + 1, dtype=np.int64)
    var, code = np.full(size, -1, dtype=np.int32), np.full(size, -1, dtype=np.int32)
    child, weight = np.empty(edges, dtype=np.int32), store.weight[:edges].copy()
    for n in range(leaves):
        if used[n]:
            var[number[n]], code[number[n]] = store.var[n], store.value[n]
    for n in range(leaves, count):
        kind[n - gone], start[n - gone + 1] = store.kind[n], store.start[n + 1]
    for e in range(edges):
        c = store.child[e]
        child[e] = number[c] if c < leaves else c - gone
    return kind, start, child, weight, var, code
