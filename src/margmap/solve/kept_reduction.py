"""The reduction for one query under evidence that changes little by little.

:func:`margmap.solve.reduce.reduce_codes` makes, for every node that the query can still reach, a node of the reduced
circuit: its *form*, times a factor. A form depends on nothing but the node's part of the circuit. So the forms are kept
in a store, each distinct one once, and where the evidence changes, only nodes above the change get new ones. What the
root reaches in the store is the reduced circuit: the same nodes with the same weights as from scratch, in the order of
a walk from the root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import GAUSSIAN, PRODUCT, Circuit, FloatArray, IntArray, KindArray, LongArray
from margmap.circuit.scopes import Scopes
from margmap.errors import ImpossibleEvidenceError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits
from margmap.foundation.pairs import STEP, TINY, plus
from margmap.inference.kept_values import NONE, KeptValues
from margmap.inference.passes import leaf_value
from margmap.inference.scaled import Scaled, is_dense, scaled
from margmap.solve.forms import Forms, Query, Store, build
from margmap.solve.methods.frontier.kept import KeptFrontier, Known, first_nodes, learn, longer
from margmap.solve.query_circuit import Flat, equal_node, log_factor_of
from margmap.solve.reduce import Reduced, impossible, most_children, query_of
from margmap.solve.reduce_sparse import Known as KnownValue
from margmap.solve.result import Outcome

S = TypeVar("S", bound=np.generic)
T = TypeVar("T")

#: Of a node that is about to get a form.
WANTED = -2

#: The store is emptied when it holds this many times what the last query needed, and this many edges at least.
MOST_TIMES, LEAST_EDGES = 3, 100_000


_KINDS = (np.int8, np.int64, np.int32, np.float64, np.int32, np.int32, np.int32, np.int64, np.int32)


class KeptReduction:
    """The reduction of a circuit for a query under the evidence it was last brought to, for one thread at a time."""

    def __init__(self, circuit: Circuit, columns: Sequence[int]) -> None:
        self.circuit, self.columns = circuit, list(columns)
        self.names = tuple(circuit.variables[c].name for c in columns)
        self.values = KeptValues(circuit)
        self.query = query_of(circuit, columns)
        self._most_children = most_children(circuit, self.query)
        nodes = circuit.num_nodes
        self.forms = Forms(np.full(nodes, NONE, dtype=np.int32), np.ones(nodes), np.zeros(nodes))
        self._nodes = np.empty(nodes, dtype=np.int32)  # room for a list of nodes
        # Values under a state, and the question in which they were computed, side by side; and the exponents. Then the
        # row they belong to, and of each scope the question in which one of its variables was last another one.
        self._under, self._under_power = np.zeros((nodes, 2)), np.zeros(nodes)
        self._row, self._since = _no_row(circuit), np.zeros(len(circuit.scopes.bits), dtype=np.int64)
        self._questions, self._no_powers, self._depth = 0, True, circuit.depth + 2
        # The size of the store for which it is known how many bytes all takes, and how many.
        self._weighed, self._takes = (0, 0), 0
        #: The state that was the last answer.
        self.answer: IntArray | None = None
        self._frontier = KeptFrontier(circuit, columns, self.query)
        self._empty()

    @staticmethod
    def bytes_of(circuit: Circuit) -> int:
        """The room that it takes at least."""
        return KeptValues.bytes_of(circuit) + 49 * circuit.num_nodes

    @property
    def nbytes(self) -> int:
        """The room that it takes."""
        return self.bytes_of(self.circuit) + self._store_bytes + self._frontier.nbytes

    def _empty(self) -> None:
        """A store with nothing but the indicators of the query."""
        self.forms.number.fill(NONE)
        #: Whether no factor of a form has had a power of two so far.
        self._plain = True
        self._frontier.empty()
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
        if nodes <= old.kind.size and edges <= old.child.size:
            return
        if nodes > old.kind.size:
            room = max(1024, nodes, 2 * old.kind.size)
            kind, var, value = _filled(old.kind, room, 0), _filled(old.var, room, -1), _filled(old.value, room, -1)
            slots = np.full(1 << (2 * room - 1).bit_length(), -1, dtype=np.int32)
            start = _filled(old.start, room + 1, 0)
            seen_at, place = _filled(old.seen_at, room, -1), _filled(old.place, room, -1)
            self.store = old = Store(kind, start, old.child, old.weight, var, value, slots, seen_at, place)
            if old.child.size:
                _fill_slots(old, int(self.query.first_leaf[-1]), self.count)
        if edges > old.child.size:
            room = max(4096, edges, 3 * old.child.size // 2)
            self.store = old._replace(child=longer(old.child, room), weight=longer(old.weight, room))
        self._store_bytes = sum([array.nbytes for array in self.store])

    def reduce(self, codes: IntArray, reals: FloatArray) -> Reduced:
        """What :func:`~margmap.solve.reduce.reduce_codes` gives for this evidence."""
        return self._guarded(lambda: self._reduced(*self._bring(codes, reals)))

    def solve(
        self, codes: IntArray, reals: FloatArray, limits: Limits, most_bytes: int
    ) -> tuple[Reduced, Outcome | None]:
        """The same, and the answer for one state if what is kept of the questions before proves it in one sweep.

        The reduced circuit has no nodes then: nobody needs them. ``most_bytes`` is what all that is kept may take.
        """
        return self._guarded(lambda: self._solve(codes, reals, limits, most_bytes))

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except ImpossibleEvidenceError:
            raise
        except BaseException:  # interrupted on the way: what is half done is begun anew the next time
            self.values.forget()
            self._row = _no_row(self.circuit)
            raise

    def _solve(
        self, codes: IntArray, reals: FloatArray, limits: Limits, most_bytes: int
    ) -> tuple[Reduced, Outcome | None]:
        frontier = self._frontier
        evidence, rounding = self._bring(codes, reals, learning=self.answer is not None and frontier.count > 0)
        root = int(self.forms.number[-1])
        if self.answer is None or not self._fits(most_bytes):
            return self._reduced(evidence, rounding), None
        frontier.add(self.store, self.count)
        outcome = frontier.solve(self.store, root, self.answer, limits)
        if outcome is None:
            return self._reduced(evidence, rounding), None
        flat = first_nodes(self.store, 0)  # nobody needs them any more
        self._empty_if_mostly_old(frontier.edges)
        needed = None if is_dense(self.circuit) else self._scored(outcome.states[0], codes, reals)
        return Reduced(flat, self.names, self.query.cardinality, evidence, rounding, needed=needed), outcome

    def _fits(self, most_bytes: int) -> bool:
        """Whether all that the frontier keeps of the store fits so many bytes; worked out when the store has grown."""
        size = (self.store.kind.size, self.store.child.size)
        if size != self._weighed:
            self._weighed, frontier = size, self._frontier
            self._takes = self.nbytes - frontier.nbytes + frontier.bytes_for(self.store)
        return self._takes <= most_bytes

    def _scored(self, state: IntArray, codes: IntArray, reals: FloatArray) -> KnownValue:
        """The value of the circuit under the evidence and a state: computed here, where no other thread changes it."""
        row = codes.copy()
        row[self.columns] = state
        s, values, scopes = scaled(self.circuit), self.values, self.circuit.scopes
        known = (values.value, values.exponent, self._under, self._under_power, *self._row, scopes, self._since)
        no_powers = bool(s.plain and values.powers[0] == 0)
        while True:
            self._questions += 1
            if no_powers != self._no_powers:  # exponents were not written, or will not be
                self._since[:], self._no_powers = self._questions, no_powers
            found, root = _score(s, self.query.asked, row, reals, *known, self._questions, self._depth, no_powers)
            if found:
                return KnownValue(row, root)
            no_powers = False

    def _bring(self, codes: IntArray, reals: FloatArray, learning: bool = False) -> tuple[tuple[float, float], float]:
        """Bring the forms to a row; its probability, and how far, relatively, the root can be under the exact one.

        ``learning`` says that all that the frontier wants to know of the new forms is to be found out as well, if all
        that it wants to know of the others is known.
        """
        s, dense, frontier = scaled(self.circuit), is_dense(self.circuit), self._frontier
        forms, query, value, exponent = self.forms, self.query, self.values.value, self.values.exponent
        if self.values.update(codes, reals, forms.number):
            self._empty()
        if value[-1] == 0:
            raise impossible()
        learning = learning and not dense and frontier.count == self.count
        plain = bool(self._plain and s.plain and self.values.powers[0] == 0)
        given = (s, s.rows if dense else None, value, exponent, query, forms, self._nodes, self._depth)
        more, wanted = (self._most_children, plain, learning, self.count), -1
        while True:
            known = frontier.known(self.store, whole=learning)
            wanted, edges, count, plain, faithful, least = _new_forms(*given, *more, self.store, known, wanted)
            if count >= 0:
                break
            self._grow(self.count + wanted, int(self.store.start[self.count]) + edges)
        self.count, self._plain = count, self._plain and plain
        if learning:
            frontier.added(count, faithful, least)
        factor, power = forms.factor[-1], forms.exponent[-1]
        log_factor = 0.0 if factor == 1 and power == 0 else float(log_factor_of(factor, power))
        return (float(value[-1] * s.total), float(exponent[-1] + s.total_exponent)), s.rounding + abs(log_factor)

    def _reduced(self, evidence: tuple[float, float], rounding: float) -> Reduced:
        """The reduced circuit in arrays of its own."""
        flat = Flat(*_reached(self.store, self.forms.number[-1], self.count))
        self._empty_if_mostly_old(flat.num_edges)
        return Reduced(flat, self.names, self.query.cardinality, evidence, rounding, self.answer)

    def _empty_if_mostly_old(self, edges: int) -> None:
        """Empty the store if it has many times the edges of the last circuit."""
        if self.store.start[self.count] > max(LEAST_EDGES, MOST_TIMES * edges):
            self._empty()


def _no_row(circuit: Circuit) -> tuple[IntArray, FloatArray]:
    """Codes and reals that no row has."""
    return np.full(len(circuit.variables), -1, dtype=np.int32), np.full(len(circuit.variables), np.nan)


def _filled(array: NDArray[S], size: int, fill: int) -> NDArray[S]:
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
def _new_forms(
    s: Scaled,
    rows: IntArray | None,
    value: FloatArray,
    exponent: FloatArray,
    query: Query,
    forms: Forms,
    nodes: IntArray,
    depth: int,
    most_children: int,
    without_powers: bool,
    learning: bool,
    count: int,
    store: Store,
    known: Known,
    wanted: int,
) -> tuple[int, int, int, bool, bool, float]:
    """Make the forms that the root needs and that are not there yet, and write down their scopes.

    Returns how many nodes of the circuit they are for, the room that their edges take at most, and how many nodes the
    store then has; -1 if it has no room. Then the nodes are listed in ``nodes``, and the next call is told how many
    are ``wanted``, which is negative otherwise.
    """
    edges = 0
    if wanted < 0:
        wanted, edges = _wanted(s, value, query, forms.number, depth, nodes)
        if rows is not None:
            nodes[:wanted].sort()  # children come first all the same, and the rows of a block one after the other
        if count + wanted > store.kind.size or store.start[count] + edges > store.child.size:
            return wanted, edges, -1, without_powers, True, 1.0
    order = nodes[:wanted]
    never, last_edge = np.zeros(1, dtype=np.int64), store.child.size
    after = build(
        s, rows, order, value, exponent, query, forms, store, count, last_edge, most_children, never, without_powers
    )
    number, scope_of, circuit_scope, scope = forms.number, known.scope_of, known.circuit_scope, known.scope
    for n in order:
        if number[n] >= count:
            scope[number[n]] = scope_of[circuit_scope[n]]
        without_powers &= forms.exponent[n] == 0
    faithful, least = True, 1.0
    if learning and after > count:
        last = store.start[after]
        flat = Flat(
            store.kind[:after], store.start[: after + 1], store.child[:last], store.weight[:last],
            store.var[:after], store.value[:after],
        )  # fmt: skip
        faithful, least = learn(flat, None, known, count)
    return wanted, edges, after, without_powers, faithful, least


@kernel
def _wanted(
    s: Scaled, value: FloatArray, query: Query, number: IntArray, depth: int, order: IntArray
) -> tuple[int, int]:
    """Write down the nodes without a form that the root needs; how many, and the room that their edges take at most."""
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
    return found, edges


@kernel
def _score(
    s: Scaled,
    asked: NDArray[np.bool_],
    codes: IntArray,
    reals: FloatArray,
    value: FloatArray,
    exponent: FloatArray,
    under: FloatArray,
    under_power: FloatArray,
    last_codes: IntArray,
    last_reals: FloatArray,
    scopes: Scopes,
    since: LongArray,
    now: int,
    depth: int,
    no_powers: bool,
) -> tuple[bool, tuple[float, float]]:
    """The root's value under the evidence and a state of the query, from the values under the evidence alone.

    A walk from the root: what has no query variable keeps its value, what is zero under the evidence stays zero, and
    so does a product with one child that is. The same to the last bit as a pass over all nodes. ``under`` has the value
    of each node beside the number of the question that it was computed in; ``now`` is that of this one. A value stays
    as long as no variable of the node's scope is another one: ``since`` has the last question in which one was, and
    becomes, as does the last row, that of this question.

    ``no_powers`` says that under the evidence all exponents are 0, so that they are not looked at here. Where a value
    then needs one all the same, the first result is False, and nothing is known.
    """
    kind, start, child, weight, shift = s.kind, s.start, s.child, s.weight, s.shift
    var, table_start, table, table_shift = s.var, s.table_start, s.table, s.table_shift
    scope, bits = scopes.id, scopes.bits
    for x in range(codes.size):
        same = reals[x] == last_reals[x] or (np.isnan(reals[x]) and np.isnan(last_reals[x]))
        if not same or codes[x] != last_codes[x]:
            last_codes[x], last_reals[x] = codes[x], reals[x]
            word, bit = x >> 6, np.uint64(1) << np.uint64(x & 63)
            for t in range(since.size):
                if bits[t, word] & bit:
                    since[t] = now
    stack, edge = np.empty(depth, dtype=np.int32), np.empty(depth, dtype=np.int64)
    stack[0], edge[0], height = kind.size - 1, start[kind.size - 1], 1
    while height > 0:
        n = stack[height - 1]
        e, end, below = edge[height - 1], start[n + 1], -1
        while e < end:
            c = child[e]
            if kind[n] == PRODUCT:
                if asked[c] and under[c, 1] < since[scope[c]]:
                    below = c
                    break
                if asked[c] and under[c, 0] == 0:
                    break
            elif weight[e] > 0 and value[c] > 0 and under[c, 1] < since[scope[c]]:
                below = c
                break
            e += 1
        edge[height - 1] = e
        if below >= 0:
            stack[height], edge[height] = below, start[below]
            height += 1
            continue
        height -= 1
        v, power, plain = 1.0, 0.0, True
        if kind[n] == GAUSSIAN:
            v, power = leaf_value(s, n, codes, reals)
        elif kind[n] < PRODUCT:
            x = table_start[n] + codes[var[n]]
            v, power = table[x], table_shift[x]
        elif kind[n] == PRODUCT:
            for e in range(start[n], start[n + 1]):
                c = child[e]
                v *= under[c, 0] if asked[c] else value[c]
                if not no_powers:
                    power += under_power[c] if asked[c] else exponent[c]
                if v < TINY:
                    if v == 0:
                        power = 0.0
                        break
                    v /= TINY
                    power -= STEP
        else:
            v = 0.0
            for e in range(start[n], start[n + 1]):
                c = child[e]
                plain &= no_powers or shift[e] == 0
                if value[c] > 0 and weight[e] > 0:
                    plain &= no_powers or under_power[c] == 0
                    v += weight[e] * under[c, 0]
            if not plain:
                v, power = 0.0, 0.0
                for e in range(start[n], start[n + 1]):
                    c = child[e]
                    if value[c] > 0 and weight[e] > 0:
                        v, power = plus(v, power, weight[e] * under[c, 0], shift[e] + under_power[c])
            if 0 < v < TINY:
                v /= TINY
                power -= STEP
        if no_powers and power != 0:
            return False, (0.0, 0.0)
        under[n, 0], under[n, 1] = v, now
        if not no_powers:
            under_power[n] = power
    return True, (under[kind.size - 1, 0], under_power[kind.size - 1] if not no_powers else 0.0)


@kernel
def _reached(
    store: Store, root: int, count: int
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray]:
    """The nodes of the store that a node reaches, as arrays of their own, in the order of the store."""
    number, marks = store.place, np.zeros(root + 1, dtype=np.bool_)
    order = np.empty(count, dtype=np.int32)
    marks[root] = True
    edges, at = 0, count
    for n in range(root, -1, -1):
        if marks[n]:
            at -= 1
            order[at] = n
            edges += store.start[n + 1] - store.start[n]
            for e in range(store.start[n], store.start[n + 1]):
                marks[store.child[e]] = True
    order = order[at:]
    found = order.size
    for i in range(found):
        number[order[i]] = i
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
