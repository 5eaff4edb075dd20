"""The frontier in a session: bounds, scopes and values of the forms that are kept from one question to the next.

A session's reduction (:mod:`margmap.solve.kept_reduction`) keeps the nodes of reduced circuits, the forms, in a store
that grows at its end. All that the first sweep needs of a form depends on what is below it: its bound and shares, its
possible values, its scope, its value under a state. So it is worked out once, when the form is new. A question then
costs the forms above what changed, a plan of the nodes that its root reaches, and the sweep. Where the first sweep does
not prove the answer, the question goes the way of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Circuit, FloatArray, IntArray, LongArray
from margmap.circuit.arrays import Bits
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits, Stopped, quick
from margmap.foundation.pairs import EPS, log_of, raised
from margmap.inference.dense import block_rows
from margmap.inference.scaled import is_dense
from margmap.solve.forms import Query, Store
from margmap.solve.methods.frontier.kept_vectors import Best, KeptVectors
from margmap.solve.methods.frontier.scope_tree import operations_on_the_way, plan_of
from margmap.solve.methods.frontier.solve import FIRST_WIDTH, PAIRS, PAIRS_OF_ONE, QUICK_WORK, after_sweep
from margmap.solve.methods.frontier.sweep import sweep
from margmap.solve.output_bounds import bounds_of_range, log_bound
from margmap.solve.query_circuit import Flat, count_operations
from margmap.solve.result import Outcome
from margmap.solve.supports import Flags, deterministic_range, support_words, supports_of_range
from margmap.solve.values import evaluate_range, log_value

S = TypeVar("S", bound=np.generic)


#: No states.
NO_STATES = np.zeros((0, 0), dtype=np.int32)


class _Swept(NamedTuple):
    """What is found out about a circuit with one sweep above the value of a state."""

    #: Whether products skip no level of the tree of scopes; otherwise nothing but the number of edges is known.
    fits: bool
    edges: int
    scopes: int
    #: See :func:`~margmap.solve.methods.frontier.scope_tree.operations_on_the_way`.
    operations: int
    #: The log value of the state.
    floor: float
    #: Whether the sweep came to its end, what it returned, and the log values of its states on the circuit itself.
    ended: bool
    values: FloatArray
    states: IntArray
    logs: FloatArray
    upper: float
    widest: int


class Known(NamedTuple):
    """What is known of forms, as kernels take it."""

    #: The scopes of a circuit's nodes, the scopes that forms have for them, and those of the forms.
    circuit_scope: IntArray
    scope_of: IntArray
    scope: IntArray
    #: The words of a support; and of each form its support, whether it takes the maximum, its bound, its least way, the
    #: shares of its edges, and the roundings that its value gathers.
    words: int
    can: Bits
    deterministic: Flags
    value: FloatArray
    exponent: FloatArray
    way: FloatArray
    share: FloatArray
    operations: FloatArray


class KeptFrontier:
    """What is kept of the forms of a query, for one thread at a time."""

    def __init__(self, circuit: Circuit, columns: Sequence[int], query: Query) -> None:
        self._query, self._dense = query, is_dense(circuit)
        self._circuit_scope = circuit.scopes.id
        self._scope_of, self._scopes = _query_scopes(circuit, columns)
        self._words, self._groups = support_words(query.cardinality)
        self._vectors = KeptVectors(self._scopes, circuit.num_nodes)
        self.empty()

    def empty(self) -> None:
        """Forget all forms."""
        self.count = 0
        #: Edges of the circuit that was solved last.
        self.edges = 0
        # The least way and the faithfulness of all shares so far, see :class:`~margmap.solve.output_bounds.Bounds`.
        self._least, self._faithful = 1.0, True
        self._rows, self._scope = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        self._can = np.zeros((0, self._words * self._groups), dtype=np.uint64)
        self._deterministic = np.zeros(0, dtype=np.bool_)
        self._value, self._exponent, self._way, self._operations = (np.zeros(0) for _ in range(4))
        self._share = np.zeros(0)
        # A state, and the values of the first so many nodes under it, relative to their bounds.
        self._state: IntArray | None = None
        self._evaluated = 0
        self._under, self._under_power = np.zeros(0), np.zeros(0)
        self._vectors.empty()
        self._weigh()

    def _weigh(self) -> None:
        """Find out how many bytes it takes."""
        self._known: Known | None = None
        self._nbytes = sum([array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray)])

    @property
    def nbytes(self) -> int:
        """The room that it takes."""
        return self._nbytes + self._vectors.nbytes

    def bytes_for(self, store: Store) -> int:
        """The room that it will take for a store."""
        kept = 0 if self._dense else self._vectors.bytes_for(store.kind.size, store.child.size)
        return store.kind.size * (62 + 8 * self._words * self._groups) + 8 * store.child.size + kept

    def known(self, store: Store, whole: bool) -> Known:
        """What is known of the forms of a store, with room for all that it has room for; or only their scopes."""
        if store.kind.size > self._scope.size:
            self._scope = longer(self._scope, store.kind.size)
            leaves, cardinality = int(self._query.first_leaf[-1]), self._query.cardinality
            self._scope[:leaves] = self._scope_of[-cardinality.size :].repeat(cardinality)
            self._weigh()
        if whole:
            self._grow(store)
        if self._known is None:
            scopes = (self._circuit_scope, self._scope_of, self._scope)
            bounds = (self._value, self._exponent, self._way, self._share, self._operations)
            self._known = Known(*scopes, self._words, self._can, self._deterministic, *bounds)
        return self._known

    def add(self, store: Store, count: int) -> None:
        """Work out all that depends on a form alone, for those of the store up to ``count``."""
        begin = self.count
        if begin == count:
            return
        known = self.known(store, whole=True)
        flat, rows = first_nodes(store, count), None
        if self._dense:
            rows = self._rows[:count]
            rows[begin:] = block_rows(flat.kind[begin:], flat.start[begin:], flat.child, flat.weight, None)
            rows[begin:][rows[begin:] >= 0] += begin
        self.added(count, *learn(flat, rows, known, begin))

    def added(self, count: int, faithful: bool, least: float) -> None:
        """Everything is known of the forms up to ``count``; what :func:`learn` returned."""
        self._faithful, self._least = self._faithful and bool(faithful), min(self._least, float(least))
        self.count = count

    def _grow(self, store: Store) -> None:
        """As much room for each node and edge as the store has."""
        nodes, edges = store.kind.size, store.child.size
        if nodes <= self._value.size and edges <= self._share.size:
            return
        if nodes > self._value.size:
            for name in ("_rows", "_can", "_deterministic", "_value", "_exponent", "_way", "_operations"):
                setattr(self, name, longer(getattr(self, name), nodes))
            self._under, self._under_power = longer(self._under, nodes), longer(self._under_power, nodes)
        if edges > self._share.size:
            self._share = longer(self._share, edges)
        self._weigh()

    def solve(self, store: Store, root: int, start: IntArray, limits: Limits) -> Outcome | None:
        """The answer for the circuit below a node of the store, if one sweep proves it; ``start`` is a state.

        None if it does not, or if the state is impossible, or if products skip levels of the tree of scopes.
        """
        if not self._faithful or self._value[root] <= 0:
            return None
        log_whole, slack = log_bound(self._value[root], self._exponent[root]), limits.gap / 4
        whole, stopped = first_nodes(store, root + 1), None
        try:
            limits.check()
        except Stopped as raised_here:  # there is no time for a sweep; but there may be no need for one
            stopped = raised_here
        if not self._dense and stopped is None:
            best = self._vectors.best(whole, self._share, self._scope, start.size)
            if best is not None:
                return self._proven(best, root, log_whole)
        stop = np.array([stopped is not None, quick(QUICK_WORK)])
        if self._dense:
            swept = self._by_blocks(whole, start, log_whole, slack, stop)
        else:
            known = (whole, self._share, self._scope, self._scopes, store.place, self._least)
            swept = _Swept(*_one_sweep(*known, start, log_whole, slack, stop))
        self.edges = swept.edges
        if not swept.fits or swept.floor == -np.inf:
            return None
        rounding = EPS * (float(swept.operations) + float(self._operations[root]))
        state, floor, log_upper, least = start, swept.floor, log_whole, swept.floor + slack
        if log_whole > least:
            if stopped is None and not swept.ended:
                try:
                    swept = self._to_the_end(whole, store, start, log_whole, slack, limits)
                except Stopped as raised_here:
                    stopped = raised_here
            if stopped is not None:
                return Outcome([state], raised(max(log_upper, least), rounding), stopped.status)
            for one, value in zip(swept.states, swept.logs.tolist(), strict=True):
                if value > floor:
                    state, floor = one, value
            log_floor = least - log_whole
            merged, log_upper = after_sweep(swept.upper, swept.values, log_floor, log_whole, floor + slack, log_upper)
            if merged or log_upper > floor + slack + rounding:
                return None
        self._vectors.gap = max(0.0, log_whole - floor)
        rounds = int(log_whole > least)
        details: dict[str, Any] = {"rounds": rounds, "widest": swept.widest, "search_nodes": 0}
        why = f"the circuit is structured-decomposable: {swept.scopes} scopes, {self.edges} edges left"
        return Outcome([state], raised(max(log_upper, floor + slack), rounding), "optimal", details).because(why)

    def _proven(self, found: Best, root: int, log_whole: float) -> Outcome:
        """The outcome where vectors of the questions before have proven the best state."""
        rounding = EPS * (self._vectors.operations(int(self._scope[root])) + float(self._operations[root]))
        why = f"the circuit is structured-decomposable: {found.scopes} scopes were gone over again, of {self._scopes}"
        details = {"rounds": found.rounds, "widest": found.widest, "search_nodes": 0, "why": why}
        return Outcome([found.state], raised(found.log_value, log_whole, rounding), "optimal", details)

    def _to_the_end(
        self, whole: Flat, store: Store, start: IntArray, log_whole: float, slack: float, limits: Limits
    ) -> _Swept:
        """The sweep in a thread that is watched, for one that takes long."""
        if self._dense:
            return limits.run(lambda stop: self._by_blocks(whole, start, log_whole, slack, stop))
        known = (whole, self._share, self._scope, self._scopes, np.full(store.place.size, -1, dtype=np.int32))
        return _Swept(*limits.run(partial(_one_sweep, *known, self._least, start, log_whole, slack)))

    def _by_blocks(self, whole: Flat, start: IntArray, log_whole: float, slack: float, stop: LongArray) -> _Swept:
        """What :func:`_one_sweep` does, for a circuit of dense blocks, in the arrays of the store."""
        flat, rows = whole._replace(weight=self._share[: whole.num_edges]), self._rows[: whole.num_nodes]
        nodes, edges = _reached(whole, rows)
        factor, never = np.empty(whole.num_edges, dtype=np.int32), np.zeros(1, dtype=np.int64)
        fits, plan = plan_of(whole, nodes, self._scope, self._scopes, factor, never)
        if not fits:
            return _Swept(False, int(edges), 0, 0, -np.inf, False, np.zeros(0), NO_STATES, np.zeros(0), np.inf, 0)
        floor = log_whole + self._log_value(flat, rows, start)
        values, states, upper, widest, ended = np.zeros(0), NO_STATES, -np.inf, 0, True
        if floor > -np.inf and log_whole > floor + slack:
            log_floor, pairs = floor + slack - log_whole, PAIRS + PAIRS_OF_ONE * FIRST_WIDTH
            problem = (flat, rows, flat.weight, self._least, plan, None, start.size)
            ended, values, states, upper, widest = sweep(*problem, log_floor, FIRST_WIDTH, pairs, 1, stop)
        logs = np.array([log_whole + self._log_value(flat, rows, state) for state in states])
        scopes, operations = int(np.count_nonzero(np.diff(plan.node_at))), int(operations_on_the_way(flat, plan))
        found = (values, states, logs, float(upper), int(widest))
        return _Swept(True, int(edges), scopes, operations, floor, bool(ended), *found)

    def _log_value(self, flat: Flat, rows: IntArray, state: IntArray) -> float:
        """The log value of a state, relative to the root's bound."""
        if self._state is None or not np.array_equal(self._state, state):
            self._state, self._evaluated = state.copy(), 0
        evaluate_range(flat, rows, state, self._under, self._under_power, self._evaluated, flat.num_nodes)
        self._evaluated = max(self._evaluated, flat.num_nodes)
        return float(log_of(self._under[flat.num_nodes - 1], self._under_power[flat.num_nodes - 1]))


def first_nodes(store: Store, nodes: int) -> Flat:
    """The first nodes of a store, without a copy."""
    edges = int(store.start[nodes])
    kind, start, child, weight, var, value = store[:6]
    return Flat(kind[:nodes], start[: nodes + 1], child[:edges], weight[:edges], var[:nodes], value[:nodes])


def longer(array: NDArray[S], size: int) -> NDArray[S]:
    """An array with room for so many entries, of which the first are those of another."""
    grown = np.empty((size, *array.shape[1:]), dtype=array.dtype)
    grown[: len(array)] = array
    grown[len(array) :] = 0  # memory is taken now, and not page by page in later questions
    return grown


def _query_scopes(circuit: Circuit, columns: Sequence[int]) -> tuple[IntArray, int]:
    """What of each scope of a circuit is asked for, as the number of a scope; behind them those of the query variables.

    And how many scopes that are. They are numbered in the order of the circuit's.
    """
    flags = np.zeros((len(columns) + 1, 64 * circuit.scopes.bits.shape[1]), dtype=np.bool_)
    flags[np.arange(len(columns)), list(columns)] = flags[-1, list(columns)] = True
    masks = np.packbits(flags, axis=1, bitorder="little").view(np.uint64)
    bits = np.concatenate((circuit.scopes.bits & masks[-1], masks[:-1]))
    _, first, same = np.unique(bits, axis=0, return_index=True, return_inverse=True)
    rank = np.empty(first.size, dtype=np.int32)
    rank[np.argsort(first)] = np.arange(first.size, dtype=np.int32)
    return rank[same.reshape(-1)], int(first.size)


@kernel
def learn(f: Flat, rows: IntArray | None, known: Known, begin: int) -> tuple[bool, float]:
    """All that depends on a form alone, of those from ``begin`` on; returned is what :func:`bounds_of_range` does."""
    words, can, deterministic, value, exponent = (
        known.words, known.can, known.deterministic, known.value, known.exponent,
    )  # fmt: skip
    way, share, operations, count, stop = known.way, known.share, known.operations, f.kind.size, np.zeros(1, np.int64)
    for n in range(begin, count):
        can[n], deterministic[n] = 0, False
        value[n], exponent[n], way[n], operations[n] = 1.0, 0.0, 1.0, 0.0
    supports_of_range(f, rows, words, can, begin, count, stop)
    deterministic_range(f, rows, can, words, deterministic, begin, count, stop)
    if rows is None:
        count_operations(f, np.empty(0, dtype=np.int32), operations, begin)
    else:
        count_operations(f, rows, operations, begin)
    return bounds_of_range(f, rows, deterministic, value, exponent, way, share, begin, count, stop)


@kernel
def _one_sweep(
    f: Flat,
    share: FloatArray,
    scope: IntArray,
    n_scopes: int,
    number: IntArray,
    least: float,
    start: IntArray,
    log_whole: float,
    slack: float,
    stop: LongArray,
) -> tuple[bool, int, int, int, float, bool, FloatArray, IntArray, FloatArray, float, int]:
    """All of a :class:`_Swept`, of the circuit of the nodes that the root reaches, in arrays of its own.

    ``number`` has -1 for every node, before and after. All in one kernel: what goes to Python and back costs more than
    a small circuit's plan.
    """
    nodes, edges = _reached(f, None)
    kinds, starts, children, variables, codes = f.kind, f.start, f.child, f.var, f.value
    kind, begin = np.empty(nodes.size, dtype=np.int8), np.zeros(nodes.size + 1, dtype=np.int64)
    child, weight = np.empty(edges, dtype=np.int32), np.empty(edges)
    var, value = np.empty(nodes.size, dtype=np.int32), np.empty(nodes.size, dtype=np.int32)
    own, end = np.empty(nodes.size, dtype=np.int32), 0
    for i in range(nodes.size):
        n = nodes[i]
        number[n] = i
        kind[i], var[i], value[i], own[i] = kinds[n], variables[n], codes[n], scope[n]
        for e in range(starts[n], starts[n + 1]):
            child[end], weight[end] = number[children[e]], share[e]
            end += 1
        begin[i + 1] = end
    for n in nodes:
        number[n] = -1
    circuit = Flat(kind, begin, child, weight, var, value)
    factor, in_order = np.empty(edges, dtype=np.int32), np.arange(nodes.size).astype(np.int32)
    fits, plan = plan_of(circuit, in_order, own, n_scopes, factor, np.zeros(1, dtype=np.int64))
    values, states, upper, widest, ended = np.zeros(0), np.zeros((0, start.size), dtype=np.int32), -np.inf, 0, True
    scopes, operations, floor = 0, 0, -np.inf
    if fits:
        operations = operations_on_the_way(circuit, plan)
        for s in range(n_scopes):
            scopes += plan.node_at[s + 1] > plan.node_at[s]
        floor = log_whole + log_value(circuit, start)
        if floor > -np.inf and log_whole > floor + slack:
            log_floor, pairs = floor + slack - log_whole, PAIRS + PAIRS_OF_ONE * FIRST_WIDTH
            ended, values, states, upper, widest = sweep(
                circuit, np.empty(0, dtype=np.int32), weight, least, plan, None, start.size,
                log_floor, FIRST_WIDTH, pairs, 1, stop,
            )  # fmt: skip
    logs = np.empty(states.shape[0])
    for i in range(logs.size):
        logs[i] = log_whole + log_value(circuit, states[i])
    return fits, edges, scopes, operations, floor, ended, values, states, logs, upper, widest


@kernel
def _reached(f: Flat, rows: IntArray | None) -> tuple[IntArray, int]:
    """The nodes that the root reaches, children first, and their edges; rows of a dense block share their children."""
    kind, start, child, root = f.kind, f.start, f.child, f.kind.size - 1
    marks = np.zeros(8 * (root // 8 + 1), dtype=np.uint8)
    words = marks.view(np.uint64)  # most nodes of the store are not reached: they are looked at eight at a time
    order, at, block, edges = np.empty(kind.size, dtype=np.int32), kind.size, -1, 0
    marks[root], n = 1, root + 1
    while n > 0:
        n -= 1
        if n & 7 == 7:
            while n >= 0 and words[n >> 3] == 0:
                n -= 8
            if n < 0:
                break
        if marks[n] == 0:
            continue
        at -= 1
        order[at] = n
        edges += start[n + 1] - start[n]
        if rows is not None:
            if rows[n] >= 0 and rows[n] == block:
                continue
            block = rows[n]
        for e in range(start[n], start[n + 1]):
            marks[child[e]] = 1
    return np.copy(order[at:]), edges
