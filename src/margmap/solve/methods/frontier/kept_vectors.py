"""A sweep that takes the vectors of many scopes from the questions before; the proof is in ``docs/algorithms.md``.

The vectors of a scope depend on nothing but the forms that the rest of the circuit uses, its *columns*, and on what
was dropped: whatever comes to no more than the floor if each column is multiplied by its outside bound. So they are
good for another question that uses these columns or fewer, as long as none of its outside bounds, over its floor, is
larger than the one that the vectors were made with, over the floor of then. To make that likely they are made for
bounds that are so many times larger than those of the question; its own bounds then leave fewer of them.

The floor is a guess: the answer of a question is about as far below the root's bound as that of the one before. If
there is a state above the floor, the sweep proves the best one. If not, the floor is lowered.

A sweep works on the store of forms itself. It comes to a scope from above, with the outside bounds of its columns, and
looks at the forms below only if what is kept of the scope is not good for them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.limits import quick
from margmap.foundation.pairs import UP, log_of
from margmap.foundation.sorting import descending
from margmap.solve.query_circuit import LEAF, Flat

#: Vectors are made for outside bounds up to so many times as large as those of the question.
ROOM = 20.0

#: By so much below the root's bound, more than the last answer was, the floor of a question is set; in nats.
BELOW = (0.45, 2.5, 6.0)

#: Answers farther below the root's bound, in nats, are not looked for in this way, nor where an outside bound is
#: larger: what is too small for a double is then always less than one rounding of the floor.
FARTHEST, LARGEST = 400.0, 1e90

#: The most vectors of a scope, the most pairs of vectors that a join looks at, and the most multiplications of a sweep;
#: beyond that other sweeps, which merge vectors, do better. So many questions are then not tried.
MOST, MOST_PAIRS, MOST_WORK, PAUSE = 256, 1 << 14, 3_000_000, 32

# Assignments that are evaluated at a time.
LANES = 8

#: How a sweep ends: with the best state, with none above the floor, for want of room to keep vectors in, or because
#: another sweep would do better: scopes are no tree, vectors are many, or it would take long.
FOUND, NONE_ABOVE, NO_ROOM, UNFIT = 0, 1, 2, 3


class Kept(NamedTuple):
    """The vectors of all scopes, as kernels take them; and how much room of each kind is taken.

    Scope s has ``columns[s]`` columns from ``column_at[s]`` on. Its ``vectors[s]`` vectors have their entries from
    ``entry_at[s]`` on, one vector behind the other, and their assignments from ``vector_at[s]`` on. There is room for
    ``column_room[s]`` columns and so on.
    """

    column_at: LongArray
    column_room: LongArray
    columns: LongArray
    entry_at: LongArray
    entry_room: LongArray
    vector_at: LongArray
    vector_room: LongArray
    vectors: LongArray
    #: What one number goes through on the way down from a scope to those below it, at most, and to be compared.
    operations: LongArray
    #: Of each column its form, and the largest outside bound, over the floor, that the vectors are good for.
    form: IntArray
    bound: FloatArray
    entry: FloatArray
    #: Of each vector its assignment. Assignment a puts ``left[a]`` and ``right[a]`` together, or, where ``right[a]`` is
    #: negative, gives the variable ``-1 - right[a]`` the value ``left[a]``.
    assignment: IntArray
    left: IntArray
    right: IntArray
    #: How much of the room for columns, entries, vectors and assignments is taken, how many forms ``Desk.seen`` lists,
    #: and how many sweeps there were.
    used: LongArray


# What ``Kept.used`` counts.
_COLUMNS, _ENTRIES, _VECTORS, _ASSIGNMENTS, _SEEN, _SWEEPS = 0, 1, 2, 3, 4, 5


class Desk(NamedTuple):
    """Room to work in, which is not made anew for each question."""

    #: Of each form its column in its scope's vectors, and its place among the columns that the question uses.
    column: IntArray
    used_column: IntArray
    #: Its outside bound as used outside of its scope, that in all, and the largest value left of it.
    outside: FloatArray
    total: FloatArray
    limit: FloatArray
    #: Its place among the nodes of its scope, and the last sweep that listed it as a node and as a column.
    place: IntArray
    listed: IntArray
    wanted: IntArray
    #: The columns of this question; lists of the nodes of scopes, of their products, and of the columns used above; the
    #: children of products, in the order of their scope's parts; a stack of nodes and edges.
    seen: IntArray
    nodes: IntArray
    products: IntArray
    out: IntArray
    factor: IntArray
    stack: IntArray
    stack_edge: LongArray
    #: Of each scope the part of another one that it is, and the sweep that found that; which of its vectors are left.
    part_of: LongArray
    part_place: LongArray
    part_sweep: LongArray
    left_over: IntArray
    #: Room for what lives as long as one scope is gone over.
    reals: FloatArray
    longs: LongArray
    ints: IntArray


_OF_SCOPES = (
    *("column_at", "column_room", "columns", "entry_at", "entry_room", "vector_at", "vector_room", "vectors"),
    *("operations", "part_of", "part_place", "part_sweep"),
)
_REALS = ("bound", "entry", "outside", "total", "limit", "reals")
_LONGS = (*_OF_SCOPES, "used", "stack_edge", "longs")
# Sweeps are counted in 32 bits, and few of the last ones are left out.
_MOST_SWEEPS = 2**31 - 16
_OF_FORMS = (
    *("column", "used_column", "outside", "total", "limit", "place", "listed", "wanted"),
    *("seen", "nodes", "products", "out", "stack", "stack_edge"),
)


class Best(NamedTuple):
    """The best state of a question, and what was done to prove it."""

    #: Its log value, relative to the root's bound.
    log_value: float
    state: IntArray
    #: How many sweeps there were, how many scopes the last one went over, and how many vectors the widest of them has.
    rounds: int
    scopes: int
    widest: int


class KeptVectors:
    """The vectors of a query's scopes from one question to the next, for one thread at a time."""

    def __init__(self, scopes: int, nodes: int) -> None:
        """For so many scopes, of a circuit with so many nodes."""
        self._sizes = {
            **dict.fromkeys(_OF_SCOPES, scopes),
            **dict.fromkeys(("form", "bound", "assignment"), 4096 + nodes),
            "entry": 16384 + 16 * nodes,
            "left": 8192 + 8 * nodes,
            "right": 8192 + 8 * nodes,
            "left_over": MOST * (scopes + 1),
            "used": 6,
            "reals": 1 << 15,
            "longs": 1 << 12,
            "ints": 1 << 14,
        }
        self._fixed_bytes = sum(size * _kind_of(name)().itemsize for name, size in self._sizes.items())
        #: How far the answer of the last question was below the root's bound, in nats; infinite if that is not known.
        self.gap = math.inf
        # So many questions are not tried, because the last one that was did not fit; and what one may take.
        self._pause, self._work = 0, 0
        self.empty()

    def empty(self) -> None:
        """Forget all vectors, and the forms that they are about."""
        self._kept: Kept | None = None
        self._desk: Desk | None = None
        #: The room that it takes.
        self.nbytes = 0

    def bytes_for(self, nodes: int, edges: int) -> int:
        """The room that it will take for so many forms with so many edges."""
        return int(self._fixed_bytes + nodes * _BYTES_OF_A_FORM + 4 * edges)

    def operations(self, scope: int) -> int:
        """What one number goes through on the way down from a scope, at most."""
        return 0 if self._kept is None else int(self._kept.operations[scope])

    def best(self, flat: Flat, share: FloatArray, scope: IntArray, variables: int) -> Best | None:
        """The best state of the circuit below the last form, if it is found at once; None if it is not."""
        if not self.gap < FARTHEST or self._pause > 0:
            self._pause = max(0, self._pause - 1)
            return None
        kept, desk = self._fitting(scope.size, share.size)
        if self._work < MOST_WORK:  # as long as kernels are interpreted
            self._work = quick(MOST_WORK)
        for rounds, below in enumerate(BELOW, 1):
            asked = (flat, share, scope, variables, kept, desk, math.exp(-self.gap - below))
            end, value, state, scopes, widest = sweep_again(*asked, ROOM, self._work)
            # Most of the room may be taken by what nobody needs any more; and less is needed for this question alone.
            for reason, room in ((NO_ROOM, ROOM), (NO_ROOM, 1.0), (UNFIT, 1.0)):
                if end == reason:
                    _forget_vectors(kept)
                    end, value, state, scopes, widest = sweep_again(*asked, room, self._work)
            if end == FOUND:
                log_value = float(log_of(value, 0.0))
                self.gap = max(0.0, -log_value)
                return Best(log_value, state, rounds, int(scopes), int(widest))
            if end != NONE_ABOVE:
                break
        self._pause = PAUSE
        return None

    def _fitting(self, nodes: int, edges: int) -> tuple[Kept, Desk]:
        """The arrays, with room for so many forms and edges."""
        kept, desk = self._kept, self._desk
        if kept is None or desk is None or kept.used[_SWEEPS] > _MOST_SWEEPS:
            kept = Kept(*[self._zeros(name) for name in Kept._fields])
            desk = Desk(*[self._zeros(name) for name in Desk._fields])
        elif nodes <= desk.place.size and edges <= desk.factor.size:
            return kept, desk
        if nodes > desk.place.size:
            desk = desk._replace(**{name: _with_zeros(getattr(desk, name), nodes) for name in _OF_FORMS})
        if edges > desk.factor.size:
            desk = desk._replace(factor=_with_zeros(desk.factor, edges))
        self._kept, self._desk = kept, desk
        self.nbytes = sum([array.nbytes for array in kept]) + sum([array.nbytes for array in desk])
        return kept, desk

    def _zeros(self, name: str) -> NDArray[Any]:
        return _with_zeros(np.zeros(0, dtype=_kind_of(name)), self._sizes.get(name, 0))


def _kind_of(name: str) -> Any:
    return np.float64 if name in _REALS else np.int64 if name in _LONGS else np.int32


_BYTES_OF_A_FORM = sum(_kind_of(name)().itemsize for name in _OF_FORMS)


def _with_zeros(array: NDArray[Any], size: int) -> NDArray[Any]:
    longer = np.empty(size, dtype=array.dtype)
    longer[: array.size], longer[array.size :] = array, 0
    return longer


def _forget_vectors(kept: Kept) -> None:
    for array in (kept.columns, kept.column_room, kept.entry_room, kept.vector_room):
        array.fill(0)
    kept.used[: _ASSIGNMENTS + 1] = 0


# The columns of a frame, which stands for a scope on the way: its number; the part that comes next, -1 before its nodes
# are known; and where its lists are: columns, nodes, products, the children of products, parts.
_SCOPE, _TURN, _OUT, _OUT_END, _NODE, _NODE_END, _PRODUCT, _PRODUCT_END, _FACTOR, _PART, _PARTS = range(11)


@kernel(any_order=True)
def sweep_again(
    f: Flat,
    share: FloatArray,
    scope: IntArray,
    variables: int,
    kept: Kept,
    desk: Desk,
    floor: float,
    room: float,
    work: int,
) -> tuple[int, float, IntArray, int, int]:
    """The best state above a floor, relative to the root's bound, and the proof that no other comes before it.

    New vectors are made for outside bounds up to ``room`` times those of this question. ``work`` is how many
    multiplications it may take, about. Returns how it ended, the value of the state, the state, how many scopes were
    gone over, and how many vectors the widest of them has.
    """
    root, n_scopes, nothing = f.kind.size - 1, kept.columns.size, np.empty(0, dtype=np.int32)
    columns, column, entry, vectors, operations = kept.columns, desk.column, kept.entry, kept.vectors, kept.operations
    outside, total, limit, out, factor = desk.outside, desk.total, desk.limit, desk.out, desk.factor
    products, wanted, seen, used, used_column = desk.products, desk.wanted, desk.seen, kept.used, desk.used_column
    kind, start, nodes = f.kind, f.start, desk.nodes
    left_over, assignment, left, right, stack = desk.left_over, kept.assignment, kept.left, kept.right, desk.stack
    entry_at, vector_at, reals, longs = kept.entry_at, kept.vector_at, desk.reals, desk.longs
    used[_SWEEPS] += 1
    now = used[_SWEEPS]
    for i in range(used[_SEEN]):
        outside[seen[i]] = 0.0
    frame, part = np.zeros((n_scopes + 1, 11), dtype=np.int64), np.empty(n_scopes + 1, dtype=np.int64)
    # For each scope that was come to: its vectors that are left are ``left_over[row_at[s]:row_end[s]]``; and so many
    # times as large may outside bounds be for which its vectors are good.
    row_at, row_end, good_for = (
        np.empty(n_scopes, dtype=np.int64),
        np.empty(n_scopes, dtype=np.int64),
        np.empty(n_scopes),
    )
    out[0], outside[root], seen[0], used[_SEEN] = root, 1.0, root, 1
    frame[0, _SCOPE], frame[0, _TURN], frame[0, _OUT], frame[0, _OUT_END] = scope[root], -1, 0, 1
    depth, out_end, rows_end, expanded, widest = 1, 1, 0, 0, 1
    nodes_end, products_end, factor_end, part_end = 0, 0, 0, 0
    while depth > 0:
        d = depth - 1
        s, out_at, last_out = frame[d, _SCOPE], frame[d, _OUT], frame[d, _OUT_END]
        if frame[d, _TURN] < 0:
            good_for[s] = _good_for(kept, column, s, out, out_at, last_out, outside, floor, room)
            if good_for[s] == 0:
                expanded += 1
                frame[d, _TURN], frame[d, _NODE], frame[d, _PRODUCT] = 0, nodes_end, products_end
                frame[d, _FACTOR], frame[d, _PART] = factor_end, part_end
                nodes_end = _list_nodes(f, share, scope, desk, s, out_at, last_out, nodes_end, now)
                parts = -1
                if nodes_end >= 0:
                    parts, products_end, factor_end = _list_parts(
                        f, scope, desk, s, frame[d, _NODE], nodes_end, products_end, factor_end, part, part_end, now
                    )
                if parts < 0:
                    return UNFIT, 0.0, nothing, expanded, widest
                part_end += parts
                frame[d, _NODE_END], frame[d, _PRODUCT_END], frame[d, _PARTS] = nodes_end, products_end, parts
        turn, parts = frame[d, _TURN], frame[d, _PARTS]
        if 0 <= turn < parts:
            # The outside bounds of the columns of a part, with those of the parts before it tightened.
            at = frame[d, _FACTOR]
            depth += 1
            frame[d, _TURN] += 1
            frame[d + 1, _SCOPE], frame[d + 1, _TURN], frame[d + 1, _OUT] = part[frame[d, _PART] + turn], -1, out_end
            for i in range(frame[d, _PRODUCT], frame[d, _PRODUCT_END]):
                weight = total[products[i]]
                for k in range(parts):
                    if k != turn:
                        weight *= limit[factor[at + k]]
                c = factor[at + turn]
                if wanted[c] != now:
                    wanted[c], outside[c], used_column[c] = now, 0.0, out_end - frame[d + 1, _OUT]
                    out[out_end], seen[used[_SEEN]] = c, c
                    out_end += 1
                    used[_SEEN] += 1
                outside[c] += weight
                at += parts
            frame[d + 1, _OUT_END] = out_end
            continue
        if turn >= 0:
            good_for[s], worst = room, 0
            for j in range(frame[d, _PART], frame[d, _PART] + parts):
                good_for[s] = min(good_for[s], good_for[part[j]])
                worst = max(worst, operations[part[j]])
            end, count, found, whose, work = _vectors_of(
                f, share, kept, desk, frame[d], part, row_at, row_end, floor / good_for[s], work
            )
            if end == FOUND:
                # A bound of a node is a sum over all that is above it, so that each edge below a sum counts.
                operations[s] = worst + 2 * (frame[d, _NODE_END] - frame[d, _NODE] + last_out - out_at) + parts + 16
                for i in range(frame[d, _NODE], frame[d, _NODE_END]):
                    if kind[nodes[i]] == SUM:
                        operations[s] += start[nodes[i] + 1] - start[nodes[i]]
                end = _keep(kept, column, s, out, out_at, last_out, outside, floor / good_for[s], found, whose, count)
            if end != FOUND:
                return end, 0.0, nothing, expanded, widest
            widest = max(widest, count)
        # What the bounds of this question, with the same room, leave of the vectors.
        row_at[s], size = rows_end, last_out - out_at
        of, bounds, highest = _some(longs, 0, size), _some(reals, 0, size), _some(reals, size, size)
        for i in range(size):
            of[i], bounds[i], highest[i] = column[out[out_at + i]], outside[out[out_at + i]], 0.0
        work -= 2 * vectors[s] * size
        low, at = floor / good_for[s], entry_at[s]
        for r in range(vectors[s]):
            whole = 0.0
            if turn < 0:  # others were only now made, of what these bounds leave
                for i in range(size):
                    whole += bounds[i] * entry[at + of[i]]
            if turn >= 0 or not whole <= low:
                left_over[rows_end] = r
                rows_end += 1
                for i in range(size):
                    highest[i] = max(highest[i], entry[at + of[i]])
            at += columns[s]
        for i in range(size):
            limit[out[out_at + i]] = highest[i]
        row_end[s] = rows_end
        if rows_end == row_at[s]:
            return NONE_ABOVE, 0.0, nothing, expanded, widest
        depth -= 1
    s, best, height = scope[root], 0.0, 1
    for i in range(row_at[s], row_end[s]):
        value = entry[entry_at[s] + left_over[i] * columns[s] + column[root]]
        if value > best:
            best, stack[0] = value, assignment[vector_at[s] + left_over[i]]
    state = np.zeros(variables, dtype=np.int32)
    while height > 0:
        height -= 1
        a = stack[height]
        if right[a] < 0:
            state[-1 - right[a]] = left[a]
        else:
            stack[height], stack[height + 1] = left[a], right[a]
            height += 2
    return FOUND, best, state, expanded, widest


@kernel(inline=True)
def _good_for(
    kept: Kept,
    column: IntArray,
    s: int,
    out: IntArray,
    begin: int,
    end: int,
    outside: FloatArray,
    floor: float,
    room: float,
) -> float:
    """How many times as large the outside bounds of some columns of a scope may be for which its vectors are good.

    At most ``room``; 0 if they are not good for these columns with these bounds.
    """
    columns, at, least = kept.columns[s], kept.column_at[s], room
    form, bound = kept.form, kept.bound
    if columns == 0:
        return 0.0
    for i in range(begin, end):
        p = out[i]
        c = column[p]
        if c >= columns or form[at + c] != p:
            return 0.0
        if not least * outside[p] <= bound[at + c] * floor:
            least = bound[at + c] * floor / outside[p]
    return least if least * UP >= 1 else 0.0


@kernel(inline=True)
def _list_nodes(
    f: Flat, share: FloatArray, scope: IntArray, desk: Desk, s: int, begin: int, end: int, nodes_end: int, now: int
) -> int:
    """List the nodes of a scope that some of its columns need, children first, and their outside bounds.

    Returns the new end of the list; -1 if a sum and its child are of different scopes, or if a bound is too large.
    """
    kind, start, child, out, listed, stack, edge = (
        f.kind, f.start, f.child, desk.out, desk.listed, desk.stack, desk.stack_edge,
    )  # fmt: skip
    nodes, place, total, outside, first = desk.nodes, desk.place, desk.total, desk.outside, nodes_end
    for i in range(begin, end):
        if listed[out[i]] == now:
            continue
        listed[out[i]] = now
        stack[0], edge[0], height = out[i], start[out[i]], 1
        while height > 0:
            n, below = stack[height - 1], -1
            if kind[n] == SUM:
                e = edge[height - 1]
                while e < start[n + 1] and below < 0:
                    if listed[child[e]] != now:
                        below = child[e]
                    e += 1
                edge[height - 1] = e
            if below >= 0:
                listed[below] = now
                stack[height], edge[height] = below, start[below]
                height += 1
                continue
            height -= 1
            if scope[n] != s:
                return -1
            nodes[nodes_end], place[n], total[n] = n, nodes_end - first, outside[n]
            nodes_end += 1
    for i in range(nodes_end - 1, first - 1, -1):
        n = nodes[i]
        if not total[n] <= LARGEST:
            return -1
        if kind[n] == SUM:
            for e in range(start[n], start[n + 1]):
                total[child[e]] += share[e] * total[n]
    return nodes_end


@kernel(inline=True)
def _list_parts(
    f: Flat, scope: IntArray, desk: Desk, s: int, begin: int, end: int,
    products_end: int, factor_end: int, part: LongArray, part_end: int, now: int,
) -> tuple[int, int, int]:  # fmt: skip
    """List the products among some nodes of a scope, its parts, and by parts the children of the products.

    Returns how many parts there are, and the new ends of the lists of products and children. The parts are -1 if the
    products do not all have the same, or if one of them was another scope's part.
    """
    kind, start, child, nodes, products, factor = f.kind, f.start, f.child, desk.nodes, desk.products, desk.factor
    part_of, part_place, part_sweep, limit = desk.part_of, desk.part_place, desk.part_sweep, desk.limit
    parts = 0
    for i in range(begin, end):
        n = nodes[i]
        if kind[n] != PRODUCT:
            continue
        if parts == 0:
            for e in range(start[n], start[n + 1]):
                t = scope[child[e]]
                if part_sweep[t] == now:
                    return -1, 0, 0
                part_sweep[t], part_of[t], part_place[t] = now, s, parts
                part[part_end + parts] = t
                parts += 1
        if start[n + 1] - start[n] != parts:
            return -1, 0, 0
        for e in range(start[n], start[n + 1]):
            t = scope[child[e]]
            if part_sweep[t] != now or part_of[t] != s:
                return -1, 0, 0
            factor[factor_end + part_place[t]] = child[e]
            limit[child[e]] = 1.0
        products[products_end] = n
        products_end += 1
        factor_end += parts
    return parts, products_end, factor_end


@kernel(inline=True)
def _some(room: NDArray[Any], begin: int, size: int) -> NDArray[Any]:
    """A part of some room, or an array of its own if there is not enough."""
    return room[begin : begin + size] if begin + size <= room.size else np.empty(size, dtype=room.dtype)


@kernel(inline=True)
def _vectors_of(
    f: Flat, share: FloatArray, kept: Kept, desk: Desk, frame: LongArray, part: LongArray,
    row_at: LongArray, row_end: LongArray, floor: float, work: int,
) -> tuple[int, int, FloatArray, IntArray, int]:  # fmt: skip
    """The vectors of a scope, of those that its variable or its parts give, and their assignments.

    Returns how that ended, how many there are, the vectors and their assignments, and the work that is left.
    """
    kind, start, child, nodes, products, factor, place = (
        f.kind, f.start, f.child, desk.nodes, desk.products, desk.factor, desk.place,
    )  # fmt: skip
    entry, columns, column, assignment, left, right, used = (
        kept.entry, kept.columns, desk.column, kept.assignment, kept.left, kept.right, kept.used,
    )  # fmt: skip
    out, outside, total, limit, used_column, left_over = (
        desk.out, desk.outside, desk.total, desk.limit, desk.used_column, desk.left_over,
    )  # fmt: skip
    node_at, size, parts = frame[_NODE], frame[_NODE_END] - frame[_NODE], frame[_PARTS]
    out_at, wide, first_part, first_factor = frame[_OUT], frame[_OUT_END] - frame[_OUT], frame[_PART], frame[_FACTOR]
    product_at, n_products = frame[_PRODUCT], frame[_PRODUCT_END] - frame[_PRODUCT]
    reals, longs, ints, count = desk.reals, desk.longs, desk.ints, 0
    first, whose = reals[:0].reshape((0, 0)), ints[:0]
    value, weight = _some(reals, 0, size * LANES).reshape((size, LANES)), _some(reals, size * LANES, n_products)
    # From here on the room for reals and for ints is free.
    reals_at, ints_at = size * LANES + n_products, 0
    larger_at, product_row = _some(longs, 0, MOST), _some(longs, MOST, n_products)
    out_row, of = _some(longs, MOST + n_products, wide), _some(longs, MOST + n_products + wide, n_products)
    longs_at = MOST + 2 * n_products + wide
    for p in range(n_products):
        product_row[p] = place[products[product_at + p]]
    for i in range(wide):
        out_row[i] = place[out[out_at + i]]
    if parts > 0:
        t = part[first_part]
        count, at = row_end[t] - row_at[t], first_factor
        first, whose = _some(reals, reals_at, count * n_products).reshape((count, n_products)), _some(ints, 0, count)
        reals_at, ints_at = reals_at + count * n_products, count
        for p in range(n_products):
            of[p] = column[factor[at]]
            at += parts
        for r in range(count):
            row = left_over[row_at[t] + r]
            whose[r], at = assignment[kept.vector_at[t] + row], kept.entry_at[t] + row * columns[t]
            for p in range(n_products):
                first[r, p] = entry[at + of[p]]
    for j in range(min(parts, 1), max(parts, 1)):
        final, second, whose_second = j >= parts - 1, reals[:0].reshape((0, 0)), ints[:0]
        if parts == 0:
            pair_first, pair_second, score, pairs = _some(ints, 0, size), ints[:0], _some(reals, reals_at, size), 0
            reals_at, ints_at = reals_at + size, size
            for i in range(size):
                score[i] = 0.0
                if kind[nodes[node_at + i]] == LEAF:
                    pair_first[pairs] = i
                    pairs += 1
        else:
            # The vectors of this part, and the pairs of vectors whose bounds are above the floor.
            t = part[first_part + j]
            n_second, wide_second, at = row_end[t] - row_at[t], 0, first_factor
            if count * n_second > MOST_PAIRS:
                return UNFIT, 0, first, whose, work
            for p in range(n_products):
                weight[p] = total[products[product_at + p]]
                for k in range(j + 1, parts):
                    weight[p] *= limit[factor[at + k]]
                of[p] = used_column[factor[at + j]]
                wide_second = max(wide_second, of[p] + 1)
                at += parts
            second = _some(reals, reals_at, n_second * wide_second).reshape((n_second, wide_second))
            reals_at += n_second * wide_second
            mixed, score = _some(reals, reals_at, wide_second), _some(reals, reals_at + wide_second, count * n_second)
            reals_at += wide_second + count * n_second
            whose_second, pair_first = _some(ints, ints_at, n_second), _some(ints, ints_at + n_second, count * n_second)
            pair_second = _some(ints, ints_at + n_second + count * n_second, count * n_second)
            ints_at += n_second + 2 * count * n_second
            source, at = _some(longs, longs_at, wide_second), first_factor
            for p in range(n_products):
                source[of[p]] = column[factor[at + j]]
                at += parts
            for r in range(n_second):
                row = left_over[row_at[t] + r]
                whose_second[r], at = assignment[kept.vector_at[t] + row], kept.entry_at[t] + row * columns[t]
                for k in range(wide_second):
                    second[r, k] = entry[at + source[k]]
            pairs = 0
            work -= count * (n_products + n_second * wide_second)
            for a in range(count):
                for k in range(wide_second):
                    mixed[k] = 0.0
                for p in range(n_products):
                    mixed[of[p]] += weight[p] * first[a, p]
                for b in range(n_second):
                    whole = 0.0
                    for k in range(wide_second):
                        whole += mixed[k] * second[b, k]
                    if not whole <= floor:
                        pair_first[pairs], pair_second[pairs], score[pairs] = a, b, whole
                        pairs += 1
        if used[_ASSIGNMENTS] + pairs > left.size:
            return NO_ROOM, 0, first, whose, work
        # Those that are nowhere larger than another one, of the pairs with the largest bounds first, are dropped.
        order = descending(score[:pairs])
        entries, found = wide if final else n_products, 0
        most = min(pairs, MOST)
        row_of = out_row if final else product_row
        best, whose_best = _some(reals, reals_at, most * entries).reshape((most, entries)), _some(ints, ints_at, most)
        reals_at, ints_at = reals_at + most * entries, ints_at + most
        for begin in range(0, pairs, LANES):
            filled = min(LANES, pairs - begin)
            work -= LANES * (size + n_products) + 4 * filled * found
            if work < 0:
                return UNFIT, 0, first, whose, work
            for k in range(filled):
                a = pair_first[order[begin + k]]
                if parts == 0:
                    for i in range(size):
                        value[i, k] = 0.0
                    value[a, k] = 1.0
                else:
                    b = pair_second[order[begin + k]]
                    for p in range(n_products):
                        value[product_row[p], k] = first[a, p] * second[b, of[p]]
            if final:
                for i in range(size):
                    n = nodes[node_at + i]
                    if kind[n] == SUM:
                        for k in range(LANES):
                            value[i, k] = 0.0
                        for e in range(start[n], start[n + 1]):
                            below = place[child[e]]
                            for k in range(LANES):
                                value[i, k] += share[e] * value[below, k]
            for k in range(filled):
                covered, whole = False, 0.0
                if parts == 0:
                    for i in range(wide):
                        whole += outside[out[out_at + i]] * value[row_of[i], k]
                    covered = whole <= floor
                for r in range(found):
                    if covered:
                        break
                    if value[row_of[larger_at[r]], k] > best[r, larger_at[r]]:
                        continue
                    covered = True
                    for i in range(entries):
                        if value[row_of[i], k] > best[r, i]:
                            covered, larger_at[r] = False, i
                            break
                if covered:
                    continue
                if found == MOST:
                    return UNFIT, 0, first, whose, work
                for i in range(entries):
                    best[found, i] = value[row_of[i], k]
                a, new = pair_first[order[begin + k]], used[_ASSIGNMENTS]
                if parts == 0:
                    n = nodes[node_at + a]
                    left[new], right[new] = f.value[n], -1 - f.var[n]
                else:
                    left[new], right[new] = whose[a], whose_second[pair_second[order[begin + k]]]
                whose_best[found], larger_at[found] = new, 0
                used[_ASSIGNMENTS] += 1
                found += 1
        first, whose, count = best, whose_best, found
        if count == 0:
            return NONE_ABOVE, 0, first, whose, work
    return FOUND, count, first, whose, work


@kernel(inline=True)
def _keep(
    kept: Kept, column: IntArray, s: int, out: IntArray, begin: int, end: int,
    outside: FloatArray, floor: float, found: FloatArray, whose: IntArray, count: int,
) -> int:  # fmt: skip
    """Keep the vectors of a scope, in the place of the last ones if it is large enough; whether there is room."""
    used, wide = kept.used, end - begin
    form, bound, entry, assignment = kept.form, kept.bound, kept.entry, kept.assignment
    kept.columns[s] = 0
    if wide > kept.column_room[s]:
        kept.column_at[s], kept.column_room[s] = used[_COLUMNS], wide + wide // 2
        used[_COLUMNS] += kept.column_room[s]
    if count * wide > kept.entry_room[s]:
        kept.entry_at[s], kept.entry_room[s] = used[_ENTRIES], count * wide + count * wide // 2
        used[_ENTRIES] += kept.entry_room[s]
    if count > kept.vector_room[s]:
        kept.vector_at[s], kept.vector_room[s] = used[_VECTORS], count + count // 2
        used[_VECTORS] += kept.vector_room[s]
    if used[_COLUMNS] > form.size or used[_ENTRIES] > entry.size or used[_VECTORS] > assignment.size:
        return NO_ROOM
    kept.columns[s], kept.vectors[s] = wide, count
    at = kept.column_at[s]
    for i in range(wide):
        p = out[begin + i]
        form[at + i], bound[at + i], column[p] = p, outside[p] / floor, i
    at = kept.entry_at[s]
    for r in range(count):
        assignment[kept.vector_at[s] + r] = whose[r]
        for i in range(wide):
            entry[at + i] = found[r, i]
        at += wide
    return FOUND
