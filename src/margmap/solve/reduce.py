"""Condition on the evidence and sum out the hidden variables in one pass: what is left is about the query alone.

In the reduced circuit every node is normalised (it sums to 1 over the query states), so its root is p(q | e) and the
constants of the hidden and observed parts are gone into one log scale, log p(e).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, Circuit, FloatArray, IntArray, KindArray, LongArray, Name
from margmap.circuit.observation import Observation
from margmap.circuit.properties import require_tractable
from margmap.circuit.scopes import number_by_appearance
from margmap.errors import ImpossibleEvidenceError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.foundation.memory import on_own_pages
from margmap.foundation.pairs import log_of, moved
from margmap.foundation.threads import at_once
from margmap.inference.dense import block_rows
from margmap.inference.passes import edge_share, forward, forward_dense
from margmap.inference.pieces import Pieces, pass_up, pieces_of
from margmap.inference.scaled import Scaled, is_dense, require_within_reach, scaled
from margmap.inference.soft import conditioned_circuit
from margmap.solve.forms import Forms, Query, Store, build, nothing_yet, room_for, slots_for, store_for, store_on
from margmap.solve.query_circuit import Flat, log_factor_of, rebuild
from margmap.solve.reduce_sparse import Asked, Known, Needed, edge_by_edge

if TYPE_CHECKING:
    from margmap.solve.shape import Shape


@dataclass(frozen=True)
class Reduced:
    """A marginal-MAP problem with nothing in it but the query."""

    flat: Flat
    #: Name and number of values of each query variable.
    names: tuple[Name, ...]
    cardinality: IntArray
    #: p(e) as a pair; the root of ``flat`` is p(q | e).
    evidence: tuple[float, float]
    #: How far, relatively, the root of ``flat`` can be under p(q | e).
    rounding: float
    #: A state that may be a good one to begin with: in a session the last answer to the same query.
    start: IntArray | None = None
    #: The parts of a large circuit, see :mod:`margmap.solve.parts`; for each node of it the first row of its dense
    #: block, or -1, and its scope, numbered as they first appear.
    parts: LongArray | None = None
    rows: IntArray | None = None
    scope: IntArray | None = None
    #: What scoring a state on the circuit as given can start from; None if nothing was kept for it.
    needed: Needed | Known | None = None
    #: How it is made once more; None if whoever asks needs it afterwards, so that no method may write over its arrays.
    again: Callable[[], Reduced] | None = None
    #: What it has in common with others that differ from it in their weights alone; None if none are known.
    shape: Shape | None = None

    @property
    def log_scale(self) -> float:
        """log p(e)."""
        return float(log_of(*self.evidence))

    @property
    def num_nodes(self) -> int:
        """Nodes of the reduced circuit."""
        return int(self.flat.kind.size)

    @property
    def num_edges(self) -> int:
        """Edges of the reduced circuit."""
        return int(self.flat.child.size)


def reduce(
    circuit: Circuit, query: Sequence[Name] | None, evidence: Mapping[Any, Observation] | None = None
) -> Reduced:
    """The circuit over the query variables that is left of ``circuit`` under ``evidence``."""
    require_tractable(circuit)
    observed = circuit.observed(evidence)
    columns = circuit.asked(query, observed)
    circuit, given = conditioned_circuit(circuit, observed)
    reduced = reduce_codes(circuit, columns, *circuit.encoded(given.observed))
    value, exponent = reduced.evidence
    return replace(reduced, evidence=(value, exponent + given.power), rounding=reduced.rounding + given.rounding)


def reduce_codes(
    circuit: Circuit, columns: Sequence[int], codes: IntArray, reals: FloatArray, run: Runner = to_the_end
) -> Reduced:
    """The same for a query and evidence already turned into columns and codes."""
    require_within_reach(circuit, reals)
    if circuit.memory is not None:
        kept: Reduced | None = circuit.memory.reduce(columns, codes, reals)
        if kept is not None:
            return kept
    if not is_dense(circuit):
        return _by_edges(circuit, columns, codes, reals, run)
    query, pieces = query_of(circuit, columns), pieces_of(circuit)
    if pieces is not None:
        found, layout = by_pieces(circuit, pieces, columns, query, codes, reals, run)
        return replace(of_root(circuit, columns, query.cardinality, *found), **layout)
    return of_root(circuit, columns, query.cardinality, *_by_blocks(circuit, query, codes, reals, run))


def of_root(
    circuit: Circuit,
    columns: Sequence[int],
    cardinality: IntArray,
    flat: Flat,
    log_factor: float,
    value: float,
    exponent: float,
    needed: Needed | None = None,
) -> Reduced:
    """A reduced circuit, given the factor taken out of it and the value of the root as a pair."""
    s, names = scaled(circuit), tuple([circuit.names[c] for c in columns])
    evidence = (value * s.total, exponent + s.total_exponent)
    # The root sums to 1, so that the factor taken out of it is 1 but for rounding.
    return Reduced(flat, names, cardinality, evidence, s.rounding + abs(log_factor), needed=needed)


def _by_edges(circuit: Circuit, columns: Sequence[int], codes: IntArray, reals: FloatArray, run: Runner) -> Reduced:
    """The reduced circuit of one without dense blocks."""
    asked = asked_of(circuit, columns)
    room = 32 * circuit.num_edges + 140 * circuit.num_nodes
    work = partial(edge_by_edge, scaled(circuit), codes, reals, asked)
    smallest, values, exponent = run(work, 4 * circuit.num_edges, room)
    flat, log_factor, needed = Flat(*smallest[:6]), float(smallest[6]), Needed(*values)
    value = float(needed.value[-1])
    if value == 0:
        raise impossible()
    return of_root(circuit, columns, asked.cardinality, flat, log_factor, value, float(exponent), needed)


def asked_of(circuit: Circuit, columns: Sequence[int]) -> Asked:
    """A query as the kernels of a circuit without dense blocks take it."""
    return Asked(*_asked(circuit, columns), circuit.scopes.id, circuit.scopes.meeting(columns))


def _by_blocks(
    circuit: Circuit, query: Query, codes: IntArray, reals: FloatArray, run: Runner
) -> tuple[Flat, float, float, float]:
    """The same with the columns of dense blocks looked at once."""
    work = partial(_reduce, scaled(circuit), codes, reals, query, most_children(circuit, query))
    room = 12 * circuit.num_edges + 96 * circuit.num_nodes
    arrays, count, log_factor, all_used, value, exponent = run(work, 4 * circuit.num_edges, room)
    if value == 0:
        raise impossible()
    flat = _without_room(Flat(*arrays), count)
    if not all_used:  # an indicator that nothing leads to goes
        flat, _ = rebuild(flat, np.ones(flat.num_edges, dtype=np.bool_), run)
    return flat, log_factor, value, exponent


def by_pieces(
    circuit: Circuit,
    pieces: Pieces,
    columns: Sequence[int],
    query: Query,
    codes: IntArray,
    reals: FloatArray,
    run: Runner,
) -> tuple[tuple[Flat, float, float, float], dict[str, Any]]:
    """The same for a large circuit in pieces, by several threads; and its parts, rows and scopes (:class:`Reduced`)."""
    room = 12 * circuit.num_edges + 96 * circuit.num_nodes
    work = partial(_pieces_reduced, circuit, pieces, circuit.scopes.within(columns), query, codes, reals)
    flat, log_factor, value, exponent, layout, all_used = run(work, 4 * circuit.num_edges, room)
    if value == 0:
        raise impossible()
    if not all_used:  # an indicator that nothing leads to goes
        return (rebuild(flat, np.ones(flat.num_edges, dtype=np.bool_), run)[0], log_factor, value, exponent), {}
    return (flat, log_factor, value, exponent), layout


def _pieces_reduced(
    circuit: Circuit,
    pieces: Pieces,
    same_scope: IntArray,
    query: Query,
    codes: IntArray,
    reals: FloatArray,
    stop: LongArray,
) -> tuple[Flat, float, float, float, dict[str, Any], bool]:
    """The reduced circuit, the log of a factor, the root's value as a pair, its parts, rows and scopes.

    And whether all indicators are used. Each piece has a range of the store to itself. Where forms turn out to be equal
    it is not filled, and the gaps that are left between them are closed at the end.
    """
    s, most, leaves = scaled(circuit), most_children(circuit, query), int(query.first_leaf[-1])
    # In one piece of memory, which takes fewer pages from the system.
    value, exponent, factor, power = on_own_pages(4 * circuit.num_nodes, np.float64).reshape(4, -1)
    pass_up(circuit, codes, reals, value, exponent)
    live, used = np.zeros(circuit.num_nodes, dtype=np.bool_), np.zeros(leaves, dtype=np.bool_)
    live[-1] = query.asked[-1] and value[-1] > 0

    def needed(nodes: IntArray) -> tuple[IntArray, int, int]:
        return _needed(s, value, query, nodes, live, used, stop)

    top = needed(pieces.top)
    sizes = [nodes.size for nodes in pieces.below]
    room = [*at_once([partial(needed, nodes) for nodes in pieces.below], sizes), top]
    first = np.cumsum([leaves] + [int(nodes) for _, nodes, _ in room])
    edge = np.cumsum([0] + [int(edges) for _, _, edges in room])
    # Each piece has a hash table of its own, and writes what its nodes have before they are made.
    edges = int(edge[-1])
    room_of_edges = on_own_pages(edges, np.int32), on_own_pages(edges, np.float64)
    store = store_on(query, int(first[-1]), *room_of_edges, np.empty(0, dtype=np.int32))
    forms = Forms(np.empty(s.kind.size, dtype=np.int32), factor, power)
    forms.number[-1] = -1  # if the query reaches nothing
    scopes = (circuit.scopes.id, same_scope, np.zeros(query.cardinality.size, dtype=np.int32))

    def made(i: int) -> tuple[int, IntArray, IntArray]:
        ends = (int(first[i]), int(first[i + 1]), int(edge[i]), int(edge[i + 1]))
        return _made(s, room[i][0], value, exponent, query, forms, store, *ends, most, *scopes, stop)

    found = at_once([partial(made, i) for i in range(len(pieces.below))], np.diff(edge)[:-1].tolist())
    found.append(made(len(pieces.below)))
    ends = [end for end, _, _ in found]
    flat, parts = _closed(store, leaves, first, ends, int(forms.number[-1]))
    log_factor = float(log_factor_of(forms.factor[-1], forms.exponent[-1])) if live[-1] else 0.0
    layout = {"parts": parts, **_rows_and_scopes(found, np.repeat(scopes[2], query.cardinality), flat.num_nodes)}
    return flat, log_factor, float(value[-1]), float(exponent[-1]), layout, bool(used.all())


def _rows_and_scopes(
    found: list[tuple[int, IntArray, IntArray]], of_leaves: IntArray, nodes: int
) -> dict[str, IntArray]:
    """The first rows of dense blocks and the scopes of so many nodes, from those of the ranges."""
    rows, scope = [np.full(of_leaves.size, -1, dtype=np.int32)], [of_leaves]
    begin = of_leaves.size
    for _, own_rows, own_scope in found:
        own_rows[own_rows >= 0] += np.int32(begin)
        rows.append(own_rows)
        scope.append(own_scope)
        begin += own_rows.size
    numbers = np.concatenate(scope)[:nodes]
    number_by_appearance(numbers, int(numbers.max(initial=0)) + 1)
    return {"rows": np.concatenate(rows)[:nodes], "scope": numbers}


def _closed(store: Store, leaves: int, first: LongArray, ends: list[int], root: int) -> tuple[Flat, LongArray]:
    """The circuit below a node of the store without the gaps between its ranges, and where the parts begin.

    Range ``i`` has its nodes from ``first[i]`` to ``ends[i]``.
    """
    parts = leaves + np.concatenate(([0], np.cumsum(np.array(ends) - first[:-1])))
    edges, moved_by = 0, first[:-1] - parts[:-1]
    for i, end in enumerate(ends):
        if moved_by[i] == 0 and edges == store.start[first[i]]:  # no gap so far
            edges = int(store.start[end])
        else:
            edges = _close(store, int(first[i]), end, edges, leaves, first, moved_by)
    at = int(np.searchsorted(first, root, side="right")) - 1
    size = root + 1 - int(first[at] - parts[at]) if root >= leaves else root + 1
    return _without_room(Flat(*store[:6]), size), np.minimum(parts[:-1], size)


def query_of(circuit: Circuit, columns: Sequence[int]) -> Query:
    """A query as kernels take it."""
    return Query(*_asked(circuit, columns), _of_scopes(circuit.scopes.meeting(columns), circuit.scopes.id))


def _of_scopes_by_numpy(meets: NDArray[np.bool_], scope: IntArray) -> NDArray[np.bool_]:
    return np.take(meets, scope)  # quicker than an index


@kernel(interpreted=_of_scopes_by_numpy)
def _of_scopes(meets: NDArray[np.bool_], scope: IntArray) -> NDArray[np.bool_]:
    """What holds for the scopes of nodes, for the nodes."""
    found = np.empty(scope.size, dtype=np.bool_)
    for n in range(scope.size):
        found[n] = meets[scope[n]]
    return found


def _asked(circuit: Circuit, columns: Sequence[int]) -> tuple[IntArray, IntArray, LongArray]:
    """The place in the query of each variable, the values of each query variable, and its first indicator."""
    cardinality = circuit.cardinality[list(columns)]
    first_leaf = np.zeros(len(columns) + 1, dtype=np.int64)
    np.cumsum(cardinality, out=first_leaf[1:])
    return positions(circuit, columns), cardinality, first_leaf


def most_children(circuit: Circuit, query: Query) -> int:
    """The most edges that a node can have in the reduced circuit."""
    return max(circuit.kept(_widest), int(query.cardinality.max(initial=0)))


def _widest(circuit: Circuit) -> int:
    return int(np.diff(circuit.start).max())


def _without_room(flat: Flat, nodes: int) -> Flat:
    """The first nodes of a circuit; copied only where that saves a good part of the memory."""
    edges = int(flat.start[nodes])
    kind, start, child, weight, var, value = flat
    arrays = (kind[:nodes], start[: nodes + 1], child[:edges], weight[:edges], var[:nodes], value[:nodes])
    spare = 4 * edges < 3 * child.size
    return Flat(*(array.copy() for array in arrays)) if spare else Flat(*arrays)


def heaviest_state(
    circuit: Circuit, columns: Sequence[int], codes: IntArray, reals: FloatArray
) -> tuple[IntArray, tuple[float, float]]:
    """Some possible state of the query, and p(e) as a pair, from one pass: at every sum follow the largest share.

    For a solver that was stopped before it had a state: the reduction takes several times as long.
    """
    s, position = scaled(circuit), positions(circuit, columns)
    state = np.zeros(len(columns), dtype=np.int32)
    asked = circuit.scopes.meeting(columns)
    cardinality = circuit.cardinality[list(columns)]
    value, exponent = _follow(s, codes, reals, position, cardinality, circuit.scopes.id, asked, state)
    if value == 0:
        raise impossible()
    return state, (value * s.total, exponent + s.total_exponent)


def positions(circuit: Circuit, columns: Sequence[int]) -> IntArray:
    """The place in the query of each variable of the circuit; -1 where it is not asked for."""
    position = np.full(len(circuit.variables), -1, dtype=np.int32)
    position[list(columns)] = np.arange(len(columns), dtype=np.int32)
    return position


def impossible() -> ImpossibleEvidenceError:
    """What is raised where p(e) is 0."""
    return ImpossibleEvidenceError("the evidence has probability 0: no state of the query is possible under it")


@kernel
def _follow(
    s: Scaled,
    codes: IntArray,
    reals: FloatArray,
    position: IntArray,
    cardinality: IntArray,
    scope: IntArray,
    asked_scope: NDArray[np.bool_],
    state: IntArray,
) -> tuple[float, float]:
    value, exponent = np.empty(s.kind.size), np.empty(s.kind.size)
    forward(s, codes, reals, value, exponent)
    root = s.kind.size - 1
    if value[root] <= 0:
        return 0.0, 0.0
    stack = np.empty(s.kind.size, dtype=np.int32)
    height = 0
    if asked_scope[scope[root]]:
        stack[0], height = root, 1
    while height > 0:
        height -= 1
        n = stack[height]
        if s.kind[n] < PRODUCT:
            q, table = position[s.var[n]], s.table_start[n]
            for x in range(cardinality[q]):
                best = table + state[q]
                share, power = s.table[table + x], s.table_shift[table + x]
                if share > 0 and (s.table[best] == 0 or moved(share, power - s.table_shift[best]) > s.table[best]):
                    state[q] = x
        elif s.kind[n] == PRODUCT:
            for e in range(s.start[n], s.start[n + 1]):
                if asked_scope[scope[s.child[e]]]:
                    stack[height] = s.child[e]
                    height += 1
        else:
            best, most = s.start[n], -1.0
            for e in range(s.start[n], s.start[n + 1]):
                share = edge_share(s, n, e, value, exponent)
                if share > most:
                    best, most = e, share
            stack[height] = s.child[best]
            height += 1
    return value[root], exponent[root]


@kernel
def _reduce(
    s: Scaled,
    codes: IntArray,
    reals: FloatArray,
    query: Query,
    most: int,
    stop: LongArray,
) -> tuple[tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray], int, float, bool, float, float]:
    """The reduced circuit in arrays with room at their ends, its number of nodes, the log of a factor taken out of it.

    And whether all indicators are used, and the root's value as a pair.
    """
    n_old = s.kind.size
    value, exponent = np.empty(n_old), np.empty(n_old)
    forward_dense(s, codes, reals, value, exponent)
    root = n_old - 1

    live, used = np.zeros(n_old, dtype=np.bool_), np.zeros(query.first_leaf[-1], dtype=np.bool_)
    live[root] = query.asked[root] and value[root] > 0
    nodes, edges = mark_live(s, value, query, np.arange(n_old).astype(np.int32), live, used, stop)
    leaves = query.first_leaf[-1]

    store = store_for(query, leaves + nodes, edges)
    all_used = True
    for leaf in range(leaves):
        all_used &= used[leaf]
    order = np.empty(nodes, dtype=np.int32)
    found = 0
    for n in range(n_old):
        if live[n]:
            order[found] = n
            found += 1
    forms = Forms(np.full(n_old, -1, dtype=np.int32), np.ones(n_old), np.zeros(n_old))
    build(s, s.rows, order[:found], value, exponent, query, forms, store, leaves, edges, most, stop)
    arrays = (store.kind, store.start, store.child, store.weight, store.var, store.value)
    log_factor = log_factor_of(forms.factor[root], forms.exponent[root]) if nodes > 0 else 0.0
    return arrays, forms.number[root] + 1, log_factor, all_used, value[root], exponent[root]


@kernel
def mark_live(
    s: Scaled,
    value: FloatArray,
    query: Query,
    order: IntArray,
    live: NDArray[np.bool_],
    used: NDArray[np.bool_],
    stop: LongArray,
) -> tuple[int, int]:
    """Mark what the query can still reach below those of some nodes that are marked, and the indicators that it uses.

    ``order`` has the nodes, children first, with all that lead to them from others marked; how much room they need.
    """
    nodes, edges, block = 0, 0, -1
    for i in range(order.size - 1, -1, -1):
        n = order[i]
        if not live[n]:
            continue
        if stop[0] != 0:
            break
        nodes += 1
        if s.kind[n] < PRODUCT:
            q = query.position[s.var[n]]
            edges += query.cardinality[q]
            for x in range(query.cardinality[q]):
                used[query.first_leaf[q] + x] |= s.table[s.table_start[n] + x] > 0
            continue
        edges += s.start[n + 1] - s.start[n]
        if s.kind[n] == PRODUCT:
            for e in range(s.start[n], s.start[n + 1]):
                live[s.child[e]] |= query.asked[s.child[e]]
        elif s.rows[n] < 0 or s.rows[n] != block:  # otherwise another row has marked the children
            for e in range(s.start[n], s.start[n + 1]):
                live[s.child[e]] |= s.weight[e] > 0 and value[s.child[e]] > 0
            if s.rows[n] >= 0:
                block = s.rows[n]
    return nodes, edges


@kernel
def _needed(
    s: Scaled,
    value: FloatArray,
    query: Query,
    nodes: IntArray,
    live: NDArray[np.bool_],
    used: NDArray[np.bool_],
    stop: LongArray,
) -> tuple[IntArray, int, int]:
    """Those of some nodes that the query can still reach (:func:`mark_live`), and the room that their forms need."""
    mark_live(s, value, query, nodes, live, used, stop)
    order, found = np.empty(nodes.size, dtype=np.int32), 0
    for n in nodes:
        order[found] = n
        found += live[n]
    order = order[:found].copy()
    room_nodes, room_edges = room_for(s, order, value, query)
    return order, room_nodes, room_edges


@kernel
def _made(
    s: Scaled,
    order: IntArray,
    value: FloatArray,
    exponent: FloatArray,
    query: Query,
    forms: Forms,
    store: Store,
    begin: int,
    end: int,
    first_edge: int,
    last_edge: int,
    most: int,
    scope: IntArray,
    same_scope: IntArray,
    of_variable: IntArray,
    stop: LongArray,
) -> tuple[int, IntArray, IntArray]:
    """Make the forms of a piece in its range of the store; the end of its nodes, their rows of dense blocks and scopes.

    Rows are counted from ``begin`` on. The scope of a node of the circuit is known, and ``same_scope`` has for it the
    first that has the same variables of the query; those of the query's own variables go to ``of_variable``.
    """
    slots = slots_for(order.size)
    store.start[begin] = first_edge
    nothing_yet(store, begin, end)
    own = Store(
        store.kind, store.start, store.child, store.weight, store.var, store.value, slots, store.seen_at, store.place
    )
    count = build(s, s.rows, order, value, exponent, query, forms, own, begin, last_edge, most, stop)
    rows = block_rows(store.kind[begin:count], store.start[begin : count + 1], store.child, store.weight, None)
    scopes = np.zeros(count - begin, dtype=np.int32)
    if stop[0] == 0:  # otherwise not all nodes have a form
        for n in order:
            if forms.number[n] >= begin:
                scopes[forms.number[n] - begin] = same_scope[scope[n]]
            if s.kind[n] < PRODUCT:
                of_variable[query.position[s.var[n]]] = same_scope[scope[n]]
    return count, rows, scopes


@kernel
def _close(store: Store, begin: int, end: int, edges: int, leaves: int, first: LongArray, moved_by: LongArray) -> int:
    """Move the nodes of a range of the store down to where the range before ended; the end of their edges.

    Range ``i`` begins at node ``first[i]`` and is moved by ``moved_by[i]``; there are ``edges`` edges before this one.
    """
    at = 0
    while first[at] != begin:
        at += 1
    own, to = moved_by[at], begin - moved_by[at]
    source = store.start[begin]
    size = store.start[end] - source
    for e in range(size):
        c = store.child[source + e]
        if c >= begin:
            c -= own
        elif c >= leaves:
            r = 0
            while first[r + 1] <= c:
                r += 1
            c -= moved_by[r]
        store.child[edges + e] = c
    for e in range(size):
        store.weight[edges + e] = store.weight[source + e]
    for n in range(end - begin):
        store.kind[to + n] = store.kind[begin + n]
        store.start[to + n] = edges + store.start[begin + n] - source
    store.start[to + end - begin] = edges + size
    return int(edges + size)
