"""The reduction for one query under evidence that changes little by little.

:func:`margmap.solve.reduce.reduce_codes` makes, for every node that the query can still reach, a node of the reduced
circuit: its *form*, times a factor. A form depends on nothing but the node's part of the circuit. So the forms are kept
in a store, each distinct one once, and where the evidence changes, only nodes above the change get new ones. What the
root reaches in the store is the reduced circuit: the same nodes with the same weights as from scratch, in the order of
a walk from the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, Circuit, FloatArray, IntArray, KindArray, LongArray
from margmap.errors import ImpossibleEvidenceError
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import STEP, TINY, UP, decoded, encoded
from margmap.inference.kept_values import KeptValues, NodesAbove
from margmap.inference.passes import share_weight
from margmap.inference.scaled import Scaled, scaled
from margmap.solve.query_circuit import Flat, added, equal_node, log_factor_of, size_of
from margmap.solve.reduce import Reduced, impossible, leaf_share, positions

S = TypeVar("S", bound=np.generic)

#: Of a node without a form, and of one that is about to get it.
NONE, WANTED = -1, -2

#: The store is emptied when it holds this many times what the last query needed, and this many edges at least.
MOST_TIMES, LEAST_EDGES = 8, 100_000


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


_KINDS = (np.int8, np.int64, np.int32, np.float64, np.int32, np.int32, np.int32, np.int64, np.int32)


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


class KeptReduction:
    """The reduction of a circuit for a query under the evidence it was last brought to, for one thread at a time."""

    def __init__(self, circuit: Circuit, columns: Sequence[int], above: NodesAbove) -> None:
        self.circuit, self.columns = circuit, list(columns)
        self.names = tuple(circuit.variables[c].name for c in columns)
        self.values = KeptValues(circuit, above)
        cardinality = circuit.cardinality[self.columns]
        first_leaf = np.concatenate(([0], np.cumsum(cardinality))).astype(np.int64)
        asked = circuit.scopes.meeting(columns)[circuit.scopes.id]
        self.query = Query(positions(circuit, columns), cardinality, first_leaf, asked)
        self._most_children = max(int(np.diff(circuit.start).max()), int(cardinality.max()))
        nodes = circuit.num_nodes
        self.forms = Forms(np.full(nodes, NONE, dtype=np.int32), np.ones(nodes), np.zeros(nodes))
        self._lost = np.zeros(nodes, dtype=np.bool_)  # nowhere set between two queries
        self._empty()

    @staticmethod
    def bytes_of(circuit: Circuit) -> int:
        """The room that it takes at least."""
        return KeptValues.bytes_of(circuit) + 22 * circuit.num_nodes

    @property
    def nbytes(self) -> int:
        """The room that it takes."""
        return self.bytes_of(self.circuit) + sum(array.nbytes for array in self.store)

    def _empty(self) -> None:
        """A store with nothing but the indicators of the query."""
        self.forms.number.fill(NONE)
        leaves = int(self.query.first_leaf[-1])
        arrays: list[Any] = [np.zeros(0, dtype=kind) for kind in _KINDS]
        self.store = Store(*arrays)
        self._grow(leaves + 1, 0)
        self.store.var[:leaves] = np.repeat(np.arange(len(self.columns)), self.query.cardinality)
        self.store.value[:leaves] = np.arange(leaves) - np.repeat(self.query.first_leaf[:-1], self.query.cardinality)
        self.count = leaves

    def _grow(self, nodes: int, edges: int) -> None:
        """Make room for so many nodes and edges in all."""
        old = self.store
        if nodes > old.kind.size:
            room = max(1024, nodes, 2 * old.kind.size)
            kind, var, value = _longer(old.kind, room, 0), _longer(old.var, room, -1), _longer(old.value, room, -1)
            slots = np.full(1 << (2 * room - 1).bit_length(), -1, dtype=np.int32)
            start = _longer(old.start, room + 1, 0)
            seen_at, place = _longer(old.seen_at, room, -1), _longer(old.place, room, -1)
            self.store = old = Store(kind, start, old.child, old.weight, var, value, slots, seen_at, place)
            if old.child.size:
                _fill_slots(old, int(self.query.first_leaf[-1]), self.count)
        if edges > old.child.size:
            room = max(4096, edges, 2 * old.child.size)
            self.store = old._replace(child=_longer(old.child, room, 0), weight=_longer(old.weight, room, 0))

    def reduce(self, codes: IntArray, reals: FloatArray) -> Reduced:
        """What :func:`~margmap.solve.reduce.reduce_codes` gives for this evidence."""
        try:
            return self._reduce(codes, reals)
        except ImpossibleEvidenceError:
            raise
        except BaseException:  # interrupted on the way: what is half done is begun anew the next time
            self.values.forget()
            self._lost.fill(False)
            raise

    def _reduce(self, codes: IntArray, reals: FloatArray) -> Reduced:
        s = scaled(self.circuit)
        nodes = self.values.update(codes, reals)
        forms, query, value, exponent = self.forms, self.query, self.values.value, self.values.exponent
        if nodes is None:
            self._empty()
        else:
            _forget(s, nodes, self.values.changed, self._lost, forms)
            self.values.seen(nodes)
        if value[-1] == 0:
            raise impossible()
        order, more = _wanted(s, value, query, forms.number, self.circuit.depth + 2)
        self._grow(self.count + order.size, int(self.store.start[self.count]) + more)
        most = self._most_children
        self.count = _build(s, order, value, exponent, query, forms, self.store, self.count, most)
        kind, start, child, weight, var, code = _reached(self.store, forms.number[-1], self.count)
        log_factor = float(log_factor_of(forms.factor[-1], forms.exponent[-1]))
        if self.store.start[self.count] > max(LEAST_EDGES, MOST_TIMES * child.size):
            self._empty()
        evidence = (float(value[-1] * s.total), float(exponent[-1] + s.total_exponent))
        flat = Flat(kind, start, child, weight, var, code)
        return Reduced(flat, self.names, query.cardinality, evidence, s.rounding + abs(log_factor))


def _longer(array: NDArray[S], size: int, fill: int) -> NDArray[S]:
    longer = np.full(size, fill, dtype=array.dtype)
    longer[: array.size] = array
    return longer


@kernel
def _fill_slots(store: Store, first: int, count: int) -> None:
    """Put the nodes from the first on into the empty hash table."""
    bits = store.weight.view(np.uint64)
    for n in range(first, count):
        begin, end = store.start[n], store.start[n + 1]
        _, slot = equal_node(
            store.kind, store.start, store.child, store.weight, bits, store.slots, store.kind[n], begin, end
        )
        store.slots[slot] = n


@kernel
def _forget(s: Scaled, nodes: IntArray, changed: NDArray[np.bool_], lost: NDArray[np.bool_], forms: Forms) -> None:
    """Take the forms away that are others now: of sums whose children have other values, and of what is above them."""
    for n in nodes:
        if forms.number[n] == NONE:
            continue
        for e in range(s.start[n], s.start[n + 1]):
            c = s.child[e]
            if lost[c] or (s.kind[n] == SUM and changed[c]):
                forms.number[n], lost[n] = NONE, True
                break
    for n in nodes:
        lost[n] = False


@kernel
def _wanted(s: Scaled, value: FloatArray, query: Query, number: IntArray, depth: int) -> tuple[IntArray, int]:
    """The nodes without a form that the root needs, children first, and the room that their edges take at most."""
    order = np.empty(s.kind.size, dtype=np.int32)
    stack, edge = np.empty(depth, dtype=np.int32), np.empty(depth, dtype=np.int64)
    found, edges, height = 0, 0, 0
    root = s.kind.size - 1
    if number[root] == NONE:
        stack[0], edge[0], height = root, s.start[root], 1
        number[root] = WANTED
    while height > 0:
        n = stack[height - 1]
        pushed = False
        while edge[height - 1] < s.start[n + 1]:
            e = edge[height - 1]
            edge[height - 1] += 1
            c = s.child[e]
            if number[c] == NONE and query.asked[c] and value[c] > 0 and (s.kind[n] == PRODUCT or s.weight[e] > 0):
                number[c] = WANTED
                stack[height], edge[height] = c, s.start[c]
                height += 1
                pushed = True
                break
        if not pushed:
            order[found] = n
            found += 1
            height -= 1
            edges += query.cardinality[query.position[s.var[n]]] if s.kind[n] < PRODUCT else s.start[n + 1] - s.start[n]
    return order[:found].copy(), edges


@kernel
def _build(
    s: Scaled,
    order: IntArray,
    value: FloatArray,
    exponent: FloatArray,
    query: Query,
    forms: Forms,
    store: Store,
    count: int,
    most_children: int,
) -> int:
    """Make the forms of these nodes, children first; the number of nodes in the store afterwards.

    What :func:`~margmap.solve.query_circuit.rebuild` does with the shares of edges, and with the same roundings.
    """
    bits = store.weight.view(np.uint64)
    term, share = np.empty(most_children, dtype=np.int32), np.empty(most_children)
    for n in order:
        begin = store.start[count]
        end, terms = begin, 0
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
            top = -np.inf
            for e in range(s.start[n], s.start[n + 1]):
                c, w = s.child[e], share_weight(s, n, e, value, exponent)
                if w != 0:
                    term[terms], share[terms] = c, w
                    terms += 1
                    top = max(top, size_of(w, forms.factor[c], forms.exponent[c]))
            power = top
            for i in range(terms):
                c, w = term[i], share[i]
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
        else:
            q = query.position[s.var[n]]
            top = -np.inf
            for x in range(query.cardinality[q]):
                share[x] = leaf_share(s, n, x, query.cardinality[q])
                if share[x] != 0:
                    top = max(top, size_of(share[x], 1.0, 0.0))
            power = top
            for x in range(query.cardinality[q]):
                w = share[x]
                if w != 0:
                    if top != 0:
                        v, shift = decoded(w)
                        w = encoded(v * UP, shift - top)
                    store.child[end], store.weight[end] = query.first_leaf[q] + x, w
                    end += 1
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
def _reached(
    store: Store, root: int, count: int
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray]:
    """The nodes of the store that a node reaches, as arrays of their own, in the order of a walk, children first."""
    number = store.place
    order, stack = np.empty(count, dtype=np.int32), np.empty(count, dtype=np.int32)
    edge = np.empty(count, dtype=np.int64)  # of each node on the stack the next edge
    stack[0], edge[0], number[root] = root, store.start[root], WANTED
    found, edges, height = 0, 0, 1
    while height > 0:
        n = stack[height - 1]
        if edge[height - 1] < store.start[n + 1]:
            c = store.child[edge[height - 1]]
            edge[height - 1] += 1
            if number[c] == NONE:
                number[c] = WANTED
                stack[height], edge[height] = c, store.start[c]
                height += 1
            continue
        height -= 1
        number[n] = found
        order[found] = n
        found += 1
        edges += store.start[n + 1] - store.start[n]
    kind, start = np.zeros(found, dtype=np.int8), np.zeros(found + 1, dtype=np.int64)
    child, weight = np.zeros(edges, dtype=np.int32), np.zeros(edges)
    var, value = np.zeros(found, dtype=np.int32), np.zeros(found, dtype=np.int32)
    end = 0
    for i in range(found):
        n = order[i]
        kind[i], var[i], value[i] = store.kind[n], store.var[n], store.value[n]
        for e in range(store.start[n], store.start[n + 1]):
            child[end], weight[end] = number[store.child[e]], store.weight[e]
            end += 1
        start[i + 1] = end
    for i in range(found):
        number[order[i]] = NONE
    return kind, start, child, weight, var, value
