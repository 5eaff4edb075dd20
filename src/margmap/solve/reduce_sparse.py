"""The reduction of a circuit without dense blocks: what the root needs is copied edge by edge, and then rebuilt.

For circuits whose sums share no rows of children this is quicker than :mod:`margmap.solve.forms`, which looks at the
columns of dense blocks once; the circuit that comes out is the same. Under its evidence most nodes of a deterministic
circuit are zero, or nothing that is not zero leads to them: they are read once, in the pass up, and never again. The
answer is scored by computing those nodes again that the root needs and a state of the query can change.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import encoded
from margmap.inference.passes import forward_from, forward_nodes, forward_plain, share_weight
from margmap.inference.scaled import Scaled
from margmap.solve.forms import leaf_share
from margmap.solve.query_circuit import Flat, rebuild_until


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
    #: Empty if no value needs a power of two.
    exponent: FloatArray

    def root_with(self, s: Scaled, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
        """The root's value as a pair, under the same evidence and a state of the query.

        The same to the last bit as that of a pass over all nodes: all others keep their values, or are multiplied by 0.
        """
        exponent = self.exponent if self.exponent.size else np.zeros(self.value.size)
        forward_nodes(s, None, self.nodes, codes, reals, self.value, exponent)
        return float(self.value[-1]), float(exponent[-1])


class Known(NamedTuple):
    """The value of the circuit under one row; where a state is scored it stands in for :class:`Needed`."""

    codes: IntArray
    root: tuple[float, float]

    def root_with(self, s: Scaled, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
        """The root's value as a pair, under the row that it is known for."""
        assert np.array_equal(codes, self.codes)
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
    value = np.empty(s.kind.size)
    plain = forward_plain(s, codes, value)
    exponent = np.empty(0 if plain == s.kind.size else s.kind.size)
    if plain < s.kind.size:
        forward_from(s, plain, codes, reals, value, exponent)
    smallest, nodes = smallest_form(s, value, exponent, asked, stop)
    return smallest, (nodes, value, exponent), exponent[-1] if exponent.size > 0 else 0.0


@kernel
def smallest_form(
    s: Scaled, value: FloatArray, exponent: FloatArray, asked: Asked, stop: LongArray
) -> tuple[tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray, float], IntArray]:
    """The same from the values under the evidence: the arrays and the log of a factor; and the nodes that are needed.

    ``exponent`` is empty if no value needs a power of two.
    """
    nodes, edges = needed(s, asked, value, stop)
    f = copied(s, nodes, value, exponent, asked, edges, stop)
    return rebuild_until(f, np.ones(f.child.size, dtype=np.bool_), stop), nodes


@kernel
def needed(s: Scaled, asked: Asked, value: FloatArray, stop: LongArray) -> tuple[IntArray, int]:
    """The nodes with a query variable that the root needs, children first, and how many edges they have at most."""
    root = s.kind.size - 1
    marks = np.zeros(s.kind.size, dtype=np.bool_)
    nodes, at, edges = np.empty(s.kind.size, dtype=np.int32), s.kind.size, 0
    marks[root] = asked.meets[asked.scope[root]] and value[root] > 0
    for n in range(root, -1, -1):
        if not marks[n]:
            continue
        if stop[0] != 0:
            break
        at -= 1
        nodes[at] = n
        if s.kind[n] < PRODUCT:
            edges += asked.cardinality[asked.position[s.var[n]]]
            continue
        edges += s.start[n + 1] - s.start[n]
        for e in range(s.start[n], s.start[n + 1]):
            c = s.child[e]
            if s.kind[n] == PRODUCT:
                marks[c] |= asked.meets[asked.scope[c]]
            else:
                marks[c] |= s.weight[e] > 0 and value[c] > 0
    return np.copy(nodes[at:]), edges


@kernel
def copied(
    s: Scaled, nodes: IntArray, value: FloatArray, exponent: FloatArray, asked: Asked, edges: int, stop: LongArray
) -> Flat:
    """The circuit over the query with all its detours, from the nodes that the root needs; indicators come first.

    ``exponent`` is empty if no value needs a power of two.
    """
    first, cardinality = asked.first_leaf, asked.cardinality
    leaves = first[-1]
    kind, start = np.zeros(leaves + nodes.size, dtype=np.int8), np.zeros(leaves + nodes.size + 1, dtype=np.int64)
    child, weight = np.empty(edges, dtype=np.int32), np.ones(edges)
    var, code = np.full(kind.size, -1, dtype=np.int32), np.full(kind.size, -1, dtype=np.int32)
    for q in range(cardinality.size):
        for x in range(cardinality[q]):
            var[first[q] + x], code[first[q] + x] = q, x
    number = np.empty(s.kind.size, dtype=np.int32)  # what a node that is needed is called
    end = 0
    for i in range(nodes.size):
        if stop[0] != 0:
            break
        n = nodes[i]
        kind[leaves + i] = SUM
        if s.kind[n] < PRODUCT:
            q, table = asked.position[s.var[n]], s.table_start[n]
            for x in range(cardinality[q]):
                if s.plain:
                    part = min(encoded(s.table[table + x] / s.table[table + cardinality[q]], 0.0), 1.0)
                else:
                    part = leaf_share(s, n, x, cardinality[q])
                if part != 0:
                    child[end], weight[end] = first[q] + x, part
                    end += 1
        elif s.kind[n] == PRODUCT:
            kind[leaves + i] = PRODUCT
            for e in range(s.start[n], s.start[n + 1]):
                if asked.meets[asked.scope[s.child[e]]]:
                    child[end] = number[s.child[e]]
                    end += 1
        else:
            for e in range(s.start[n], s.start[n + 1]):
                c = s.child[e]
                if s.weight[e] > 0 and value[c] > 0:
                    if exponent.size > 0:
                        weight[end] = share_weight(s, n, e, value, exponent)
                    else:
                        weight[end] = encoded(s.weight[e] * value[c] / value[n], 0.0)
                    child[end] = number[c]
                    end += 1
        number[n] = leaves + i
        start[leaves + i + 1] = end
    return Flat(kind, start, child[:end], weight[:end], var, code)
