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
from margmap.errors import ImpossibleEvidenceError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.foundation.memory import on_own_pages
from margmap.foundation.pairs import log_of, moved
from margmap.foundation.threads import at_once
from margmap.inference.passes import edge_share, forward, forward_dense
from margmap.inference.pieces import Pieces, pass_up, pieces_of
from margmap.inference.scaled import Scaled, is_dense, require_within_reach, scaled
from margmap.inference.soft import conditioned_circuit
from margmap.solve.forms import Forms, Query, Store, build, room_for, store_for
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
    #: The parts of a large circuit, see :mod:`margmap.solve.parts`.
    parts: LongArray | None = None
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
        found, parts = by_pieces(circuit, pieces, query, codes, reals, run)
        return replace(of_root(circuit, columns, query.cardinality, *found), parts=parts)
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
    circuit: Circuit, pieces: Pieces, query: Query, codes: IntArray, reals: FloatArray, run: Runner
) -> tuple[tuple[Flat, float, float, float], LongArray | None]:
    """The same for a large circuit in pieces, by several threads; and the parts of the reduced circuit."""
    room = 12 * circuit.num_edges + 96 * circuit.num_nodes
    work = partial(_pieces_reduced, circuit, pieces, query, codes, reals)
    flat, log_factor, value, exponent, parts, all_used = run(work, 4 * circuit.num_edges, room)
    if value == 0:
        raise impossible()
    if not all_used:  # an indicator that nothing leads to goes
        return (rebuild(flat, np.ones(flat.num_edges, dtype=np.bool_), run)[0], log_factor, value, exponent), None
    return (flat, log_factor, value, exponent), parts


def _pieces_reduced(
    circuit: Circuit, pieces: Pieces, query: Query, codes: IntArray, reals: FloatArray, stop: LongArray
) -> tuple[Flat, float, float, float, LongArray, bool]:
    """The reduced circuit, the log of a factor, the root's value as a pair, the parts, whether all indicators are used.

    Each piece has a range of the store to itself. Where forms turn out to be equal it is not filled, and the gaps that
    are left between them are closed at the end.
    """
    s, most, leaves = scaled(circuit), most_children(circuit, query), int(query.first_leaf[-1])
    value, exponent, factor, power = (on_own_pages(circuit.num_nodes, np.float64) for _ in range(4))
    pass_up(circuit, codes, reals, value, exponent)
    live, used = np.zeros(circuit.num_nodes, dtype=np.bool_), np.zeros(leaves, dtype=np.bool_)
    live[-1] = query.asked[-1] and value[-1] > 0

    def needed(nodes: IntArray) -> tuple[IntArray, int, int]:
        mark_live(s, value, query, nodes, live, used, stop)
        order = nodes[np.take(live, nodes)]
        return order, *room_for(s, order, value, query)

    top = needed(pieces.top)
    room = [*at_once([partial(needed, nodes) for nodes in pieces.below]), top]
    first = np.cumsum([leaves] + [int(nodes) for _, nodes, _ in room])
    edge = np.cumsum([0] + [int(edges) for _, _, edges in room])
    store = _store_for(query, int(first[-1]), int(edge[-1]))
    forms = Forms(np.empty(s.kind.size, dtype=np.int32), factor, power)
    forms.number[-1] = -1  # if the query reaches nothing

    def made(i: int) -> int:
        order, nodes = room[i][0], slice(first[i], first[i + 1])
        slots = np.full(1 << max(6, (2 * order.size + 1).bit_length()), -1, dtype=np.int32)
        store.start[first[i]] = edge[i]
        own = store._replace(slots=slots)
        store.var[nodes] = store.value[nodes] = -1
        store.seen_at[nodes] = -1
        begin, last = int(first[i]), int(edge[i + 1])
        return int(build(s, s.rows, order, value, exponent, query, forms, own, begin, last, most, stop))

    ends = at_once([partial(made, i) for i in range(len(pieces.below))])
    ends.append(made(len(pieces.below)))
    flat, parts = _closed(store, leaves, first, ends, int(forms.number[-1]))
    log_factor = float(log_factor_of(forms.factor[-1], forms.exponent[-1])) if live[-1] else 0.0
    return flat, log_factor, float(value[-1]), float(exponent[-1]), parts, bool(used.all())


def _store_for(query: Query, nodes: int, edges: int) -> Store:
    """A store with room for so many nodes and edges, which has the indicators of a query and no hash table yet.

    What each node has before it is made is left to whoever makes it.
    """
    leaves = int(query.first_leaf[-1])
    store = Store(
        np.zeros(nodes, dtype=np.int8),
        np.zeros(nodes + 1, dtype=np.int64),
        on_own_pages(edges, np.int32),
        on_own_pages(edges, np.float64),
        np.empty(nodes, dtype=np.int32),
        np.empty(nodes, dtype=np.int32),
        np.empty(0, dtype=np.int32),
        np.empty(nodes, dtype=np.int64),
        np.empty(0, dtype=np.int32),
    )
    store.seen_at[:leaves] = -1
    store.var[:leaves] = np.repeat(np.arange(query.cardinality.size), query.cardinality)
    store.value[:leaves] = np.arange(leaves) - np.repeat(query.first_leaf[:-1], query.cardinality)
    return store


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
    asked = np.take(circuit.scopes.meeting(columns), circuit.scopes.id)  # quicker than an index
    return Query(*_asked(circuit, columns), asked)


def _asked(circuit: Circuit, columns: Sequence[int]) -> tuple[IntArray, IntArray, LongArray]:
    """The place in the query of each variable, the values of each query variable, and its first indicator."""
    cardinality = circuit.cardinality[list(columns)]
    first_leaf = np.zeros(len(columns) + 1, dtype=np.int64)
    np.cumsum(cardinality, out=first_leaf[1:])
    return positions(circuit, columns), cardinality, first_leaf


def most_children(circuit: Circuit, query: Query) -> int:
    """The most edges that a node can have in the reduced circuit."""
    return max(int(np.diff(circuit.start).max()), int(query.cardinality.max(initial=0)))


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
