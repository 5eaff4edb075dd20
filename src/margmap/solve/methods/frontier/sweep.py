"""One sweep of the frontier over the scopes of a circuit, compiled. Idea and proof are in ``docs/algorithms.md``.

Everything is relative to the output bounds: the value of a node under a partial state is divided by the node's bound,
so that it lies in [0, 1], and the weight of an edge is its share. A *vector* holds the values, under one assignment of
a scope's variables, of the nodes of that scope which the rest of the circuit uses.
"""

from __future__ import annotations

import math
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.matrices import add_rows, row_products, times_vector
from margmap.foundation.pairs import EPS, LN2, TINY, log_of
from margmap.foundation.sorting import descending, nth_largest
from margmap.solve.methods.frontier.pending import Pending, Use, Uses
from margmap.solve.methods.frontier.scope_tree import Plan
from margmap.solve.output_bounds import LOWEST_FLOOR
from margmap.solve.query_circuit import LEAF, SMALLEST, Flat

LANES = 16
ROWS = 64

Marks = NDArray[np.uint8]

#: What a sweep returns.
Swept: TypeAlias = tuple[bool, FloatArray, IntArray, float, int]


@kernel
def sweep(
    f: Flat,
    rows: IntArray,
    share: FloatArray,
    least: float,
    plan: Plan,
    pending: Pending | None,
    variables: int,
    log_floor: float,
    most: int,
    pairs: int,
    best_of: int,
    stop: LongArray,
) -> tuple[bool, FloatArray, NDArray[np.int32], float, int]:
    """Go up the scopes keeping at most ``most`` vectors of each; look for states with a log value above ``log_floor``.

    Surplus vectors are merged into their entrywise maximum, which stands for no state but keeps the bound. A join looks
    at no more than twice ``pairs`` pairs of vectors one by one; what the others can reach is merged too. The sweep
    ends early when another thread sets ``stop[0]`` or it has done about ``stop[1]`` multiplications. ``least`` is the
    smallest product of the shares on a way through sums alone: it tells when something may become too small for a
    double; then it is raised to ``SMALLEST``. So no value is under the true one by more than rounding. ``rows`` has the
    first rows of dense blocks, see :mod:`margmap.inference.dense`; it is empty for a circuit with few of them.

    Returns whether the sweep came to its end, the log values of the ``best_of`` best states found, those states, an
    upper bound of the log value of every state that was merged or is not above the floor, and the width of the widest
    frontier. If there are ``best_of`` states, none of the others has a larger value than the last of them.

    ``pending`` has the constraints on the state, if there are any: beside its vector, each assignment then has how much
    it uses of every row that is not decided yet, and its toll, the log of what the prices have taken from its values.
    A vector makes way only for one that every completion suits as well, and that is as large without the tolls. The
    machine code for None, which is what most queries have, does nothing of this.
    """
    frontier = new_frontier(f, plan)
    frontier.outside[f.kind.size - 1] = 1.0
    root_scope = np.int64(plan.scope[f.kind.size - 1])
    none_done = np.zeros(plan.node_at.size - 1, dtype=np.bool_)
    end, kept, exponent, widest = go_up(
        f, rows, share, least, plan, pending, frontier, new_vectors(), none_done, root_scope, -1,
        0.0, log_floor, most, pairs, best_of, stop, stop[1:],
    )  # fmt: skip
    if end != TO_THE_END:
        nothing = np.zeros(0), np.zeros((0, variables), dtype=np.int32)
        return end == NOTHING_ABOVE, nothing[0], nothing[1], log_floor if end == NOTHING_ABOVE else np.inf, widest
    values, states, upper = read_off(f, plan, frontier, kept, exponent, variables, log_floor)
    return True, values, states, upper, widest


class Frontier(NamedTuple):
    """What a sweep knows of nodes, scopes and steps; the threads of one sweep share it, each for scopes of its own."""

    #: Of each node its outside bound, as used outside of its scope and in all, and the largest value kept of it.
    outside: FloatArray
    total: FloatArray
    limit: FloatArray
    #: Of each scope the smallest entry, but for zeros, of its vectors; where they begin, how many they are, and whose
    #: they are: the number that :func:`go_up` was given.
    smallest: FloatArray
    vector_at: LongArray
    width: LongArray
    owner: LongArray
    #: The first step of each scope, and where the back-pointers of each step begin: step j of a scope joins what its
    #: first j + 1 parts gave with part j + 1.
    step_at: LongArray
    pointer_at: LongArray


class Vectors(NamedTuple):
    """The vectors in use, one set behind the other, and the back-pointers of all; both grow."""

    entries: FloatArray
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    merged: Marks
    #: How many entries and how many pointers there are.
    size: int
    pointers: int


# How a pass over scopes ends: stopped, at the root, or with nothing that is above the floor.
STOPPED, TO_THE_END, NOTHING_ABOVE = 0, 1, 2


@kernel
def new_frontier(f: Flat, plan: Plan) -> Frontier:
    """A frontier at the beginning of a sweep."""
    n_nodes, n_scopes = f.kind.size, plan.node_at.size - 1
    step_at = np.zeros(n_scopes + 1, dtype=np.int64)
    for s in range(n_scopes):
        step_at[s + 1] = step_at[s] + max(1, plan.part_at[s + 1] - plan.part_at[s] - 1)
    vector_at, width = np.zeros(n_scopes, dtype=np.int64), np.zeros(n_scopes, dtype=np.int64)
    owner, pointer_at = np.full(n_scopes, -1, dtype=np.int64), np.zeros(step_at[n_scopes], dtype=np.int64)
    nodes = np.zeros(n_nodes), np.zeros(n_nodes), np.ones(n_nodes)
    return Frontier(nodes[0], nodes[1], nodes[2], np.ones(n_scopes), vector_at, width, owner, step_at, pointer_at)


@kernel
def new_vectors() -> Vectors:
    """No vectors."""
    left, right = np.zeros(1024, dtype=np.int32), np.zeros(1024, dtype=np.int32)
    return Vectors(np.zeros(4096), left, right, np.zeros(1024, dtype=np.uint8), 0, 0)


@kernel
def go_up(
    f: Flat,
    rows: IntArray,
    share: FloatArray,
    least: float,
    plan: Plan,
    pending: Pending | None,
    frontier: Frontier,
    begun: Vectors,
    done: NDArray[np.bool_],
    root_scope: int,
    owner: int,
    exponent: float,
    log_floor: float,
    most: int,
    pairs: int,
    best_of: int,
    stop: LongArray,
    work: LongArray,
) -> tuple[int, Vectors, float, int]:
    """Go up all scopes below one, itself included: the part of :func:`sweep` that takes time.

    The outside bounds of the nodes of ``root_scope`` are known. Scopes that are ``done`` have their vectors in
    ``begun``, and are not gone into. Every set of vectors is divided by a power of two near its largest entry, so that
    little underflows, however many variables there are. The products of a scope have one child in each part, so they
    all lack the same factor; ``2**exponent`` is what all the sets in use now lack together, and the floor moves with
    it. ``work`` has the multiplications that are left, and ``stop[0]`` ends it all.

    Returns how it ended, the vectors, the new exponent and the width of the widest frontier.
    """
    outside, total, limit = frontier.outside, frontier.total, frontier.limit
    smallest, vector_at, width = frontier.smallest, frontier.vector_at, frontier.width
    step_at, pointer_at, n_scopes = frontier.step_at, frontier.pointer_at, plan.node_at.size - 1
    vectors, left, right, merged = begun.entries, begun.left, begun.right, begun.merged
    top, pointers = begun.size, begun.pointers
    part_at, part, out_at, out = plan.part_at, plan.part, plan.out_at, plan.out
    # Beside each pointer its toll, and beside each step what its vectors use, at least and at most, of the open rows.
    tolls = np.zeros(1024)
    use_low, use_high = np.zeros(1024, dtype=np.int64), np.zeros(1024, dtype=np.int64)
    use_at = np.zeros(step_at[n_scopes], dtype=np.int64)
    uses = 0

    kept, kept_merged = np.zeros((0, 0)), np.zeros(0, dtype=np.uint8)
    kept_left, kept_right = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
    kept_use = None if pending is None else _no_use(0, 0)
    widest = 1
    stack, turn = np.zeros(n_scopes, dtype=np.int64), np.zeros(n_scopes, dtype=np.int64)
    begin_at = np.zeros(n_scopes, dtype=np.int64)  # where the vectors of the scopes on the stack will begin
    stack[0], begin_at[0] = root_scope, top
    depth = 1
    while depth > 0:
        s = stack[depth - 1]
        parts = part_at[s + 1] - part_at[s]
        if turn[depth - 1] == 0:
            enter(f, rows, share, plan, s, outside, total)
        if turn[depth - 1] < parts and done[part[part_at[s] + turn[depth - 1]]]:
            turn[depth - 1] += 1
            continue
        if turn[depth - 1] < parts:
            # The bounds outside of this part, with those of its siblings that are done already tightened.
            push(f, plan, s, turn[depth - 1], total, limit, outside)
            t = part[part_at[s] + turn[depth - 1]]
            turn[depth - 1] += 1
            stack[depth], turn[depth], begin_at[depth] = t, 0, top
            depth += 1
            continue
        depth -= 1
        if stop[0] != 0:
            return STOPPED, begun, exponent, widest
        entries = out_at[s + 1] - out_at[s]
        base = begin_at[depth]
        for j in range(max(1, parts - 1)):
            step = step_at[s] + j
            away = 4 * EPS * (abs(log_floor) + abs(exponent)) if log_floor > -np.inf else 0.0
            floor = np.exp(min(log_floor - exponent * LN2 - away, 700.0))
            if floor < LOWEST_FLOOR:
                floor = -1.0  # too far below to tell: drop nothing for its bound
            if parts == 0:
                careful = least <= SMALLEST
                kept, kept_left, kept_right, kept_merged, kept_use = _values(
                    f, rows, share, plan, pending, step, s, outside, floor, most, best_of, careful
                )
            else:
                t = part[part_at[s] + j + 1]
                size = out_at[t + 1] - out_at[t]
                other = vectors[vector_at[t] : vector_at[t] + width[t] * size].reshape((width[t], size))
                other_at = pointer_at[step_at[t + 1] - 1]
                other_merged = merged[other_at : other_at + width[t]]
                other_use = None
                if pending is not None:
                    last = step_at[t + 1] - 1
                    other_use = _uses(use_low, use_high, tolls, use_at[last], other_at, width[t], pending.open[last])
                if j == 0:
                    t0 = part[part_at[s]]
                    size0, at0 = out_at[t0 + 1] - out_at[t0], vector_at[t0]
                    first = vectors[at0 : at0 + width[t0] * size0].reshape((width[t0], size0))
                    first_at = pointer_at[step_at[t0 + 1] - 1]
                    kept_merged = merged[first_at : first_at + width[t0]]
                    if pending is not None:
                        last = step_at[t0 + 1] - 1
                        open_rows = pending.open[last]
                        kept_use = _uses(use_low, use_high, tolls, use_at[last], first_at, width[t0], open_rows)
                    kept = _gather(plan, s, first)
                    smallest[s] = smallest[t0]
                careful = smallest[s] * smallest[t] * least <= SMALLEST
                kept, kept_left, kept_right, kept_merged, kept_use = _join(
                    f, rows, share, plan, pending, step, s, j,
                    kept, kept_merged, kept_use, other, other_merged, other_use,
                    total, limit, outside, floor, most, pairs, best_of, careful, stop, work,
                )  # fmt: skip
                if stop[0] != 0:
                    return STOPPED, begun, exponent, widest
            found = kept.shape[0]
            highest = kept.max() if found > 0 else 0.0
            if highest == 0:
                return NOTHING_ABOVE, begun, exponent, widest
            power = math.frexp(highest)[1]
            exponent += power
            smallest[s] = _rescale(kept, 2.0**-power)
            widest = max(widest, found)
            if pointers + found > left.size:
                left = _grown(left, pointers + found)
                right = _grown(right, pointers + found)
                more = np.zeros(left.size, dtype=np.uint8)
                more[:pointers] = merged[:pointers]
                merged = more
            pointer_at[step_at[s] + j] = pointers
            if pending is not None and kept_use is not None:
                if left.size > tolls.size:
                    longer = np.zeros(left.size)
                    longer[:pointers] = tolls[:pointers]
                    tolls = longer
                tolls[pointers : pointers + found] = kept_use.toll
                columns = pending.open[step]
                if uses + found * columns > use_low.size:
                    use_low = _longer(use_low, uses + found * columns)
                    use_high = _longer(use_high, uses + found * columns)
                use_at[step] = uses
                for r in range(found):
                    for i in range(columns):
                        use_low[uses], use_high[uses] = kept_use.low[r, i], kept_use.high[r, i]
                        uses += 1
            left[pointers : pointers + found] = kept_left
            right[pointers : pointers + found] = kept_right
            merged[pointers : pointers + found] = kept_merged
            pointers += found
        found = kept.shape[0]
        if base + found * entries > vectors.size:
            wider = np.zeros(2 * (base + found * entries))
            wider[:base] = vectors[:base]
            vectors = wider
        for i in range(entries):
            highest = 0.0
            for r in range(found):
                vectors[base + r * entries + i] = kept[r, i]
                highest = max(highest, kept[r, i])
            limit[out[out_at[s] + i]] = highest
        vector_at[s], width[s], frontier.owner[s] = base, found, owner
        top = base + found * entries
    return TO_THE_END, Vectors(vectors, left, right, merged, top, pointers), exponent, widest


@kernel
def read_off(
    f: Flat, plan: Plan, frontier: Frontier, kept: Vectors, exponent: float, variables: int, log_floor: float
) -> tuple[FloatArray, NDArray[np.int32], float]:
    """The log values of the states at the root, those states, and the bound of all that was merged."""
    # The root's vectors have one entry and come best first; by dominance no more than `best_of` stand for states, or
    # some more if there are tolls, for the order is that of the values with tolls.
    vector_at, step_at, pointer_at = frontier.vector_at, frontier.step_at, frontier.pointer_at
    vectors, left, right, merged, n_scopes = kept.entries, kept.left, kept.right, kept.merged, plan.node_at.size - 1
    root_scope = plan.scope[f.kind.size - 1]
    at, found = pointer_at[step_at[root_scope + 1] - 1], frontier.width[root_scope]
    upper, count = log_floor, 0
    for r in range(found):
        if merged[at + r] == 0:
            count += 1
        else:
            upper = max(upper, log_of(vectors[vector_at[root_scope] + r], exponent))
    values, states = np.zeros(count), np.zeros((count, variables), dtype=np.int32)
    count = 0
    stack, chosen = np.zeros(n_scopes, dtype=np.int64), np.zeros(n_scopes, dtype=np.int64)
    for r in range(found):
        if merged[at + r] != 0:
            continue
        values[count] = log_of(vectors[vector_at[root_scope] + r], exponent)
        stack[0], chosen[0] = root_scope, r
        depth = 1
        while depth > 0:
            depth -= 1
            s, i = stack[depth], chosen[depth]
            parts = plan.part_at[s + 1] - plan.part_at[s]
            if parts == 0:
                states[count, f.var[plan.node[plan.node_at[s]]]] = left[pointer_at[step_at[s]] + i]
            for j in range(parts - 2, -1, -1):
                pointer = pointer_at[step_at[s] + j] + i
                stack[depth], chosen[depth] = plan.part[plan.part_at[s] + j + 1], right[pointer]
                depth += 1
                i = left[pointer]
            if parts > 0:
                stack[depth], chosen[depth] = plan.part[plan.part_at[s]], i
                depth += 1
        count += 1
    return values, states, upper


@kernel
def _grown(array: NDArray[np.int32], needed: int) -> NDArray[np.int32]:
    wider = np.zeros(2 * needed, dtype=np.int32)
    wider[: array.size] = array
    return wider


@kernel
def _longer(array: LongArray, needed: int) -> LongArray:
    longer = np.zeros(2 * needed, dtype=np.int64)
    longer[: array.size] = array
    return longer


@kernel
def _uses(low: LongArray, high: LongArray, toll: FloatArray, at: int, toll_at: int, rows: int, columns: int) -> Uses:
    """What so many vectors use of the rows that are open at their step, from where it is kept."""
    return Uses(
        low[at : at + rows * columns].reshape((rows, columns)),
        high[at : at + rows * columns].reshape((rows, columns)),
        toll[toll_at : toll_at + rows],
    )


@kernel
def _no_use(vectors: int, columns: int) -> Uses:
    """Room for what so many vectors use."""
    low, high = np.zeros((vectors, columns), dtype=np.int64), np.zeros((vectors, columns), dtype=np.int64)
    return Uses(low, high, np.zeros(vectors))


@kernel
def _rescale(vectors: FloatArray, factor: float) -> float:
    """Multiply all entries by a power of two; the smallest result that is not zero."""
    smallest = 1.0
    for r in range(vectors.shape[0]):
        for i in range(vectors.shape[1]):
            vectors[r, i] *= factor
            if vectors[r, i] > 0:
                smallest = min(smallest, vectors[r, i])
    return smallest


@kernel
def enter(
    f: Flat, rows: IntArray, share: FloatArray, plan: Plan, s: int, outside: FloatArray, total: FloatArray
) -> None:
    """Outside bounds of all nodes of a scope, from those of the nodes used outside."""
    # Arrays by names of their own, here and below: numba counts who holds an array at every use of a tuple.
    kind, start, child, node, column = f.kind, f.start, f.child, plan.node, plan.column
    begin, i = plan.node_at[s], plan.node_at[s + 1]
    while i > begin:
        i -= 1
        n = node[i]
        if rows.size > 0 and rows[n] >= 0:
            first = n
            while i > begin and node[i - 1] == first - 1 and rows[first - 1] == rows[n]:
                first, i = first - 1, i - 1
            whole = total[first : n + 1].copy()
            for r in range(whole.size):
                if column[first + r] >= 0:
                    whole[r] += outside[first + r]
            if _far_from_zero(whole):  # then no product with a share is under SMALLEST
                total[first : n + 1] = whole
                gained = np.zeros(start[n + 1] - start[n])
                add_rows(share[start[first] : start[n + 1]], whole, gained)
                for c in range(gained.size):
                    total[child[start[n] + c]] += gained[c]
                continue
            i += n - first
        if column[n] >= 0:
            total[n] += outside[n]
        if kind[n] == SUM and total[n] > 0:
            for e in range(start[n], start[n + 1]):
                total[child[e]] += max(share[e] * total[n], SMALLEST)


@kernel
def _far_from_zero(values: FloatArray) -> bool:
    """Whether all of some numbers are 0, or so large that a product with a share, at least ``TINY``, is a double."""
    near = 0
    for x in values:
        near += 0 < x < TINY
    return near == 0


@kernel
def push(f: Flat, plan: Plan, s: int, j: int, total: FloatArray, limit: FloatArray, outside: FloatArray) -> None:
    """Outside bounds of the nodes of part ``j`` that the products of scope ``s`` use."""
    parts, at = plan.part_at[s + 1] - plan.part_at[s], plan.factor_at[s]
    kind, node, factor = f.kind, plan.node, plan.factor
    for i in range(plan.node_at[s], plan.node_at[s + 1]):
        n = node[i]
        if kind[n] == PRODUCT:
            weight = total[n]
            for k in range(parts):
                if k != j:
                    weight = _product(weight, limit[factor[at + k]])
            outside[factor[at + j]] += weight
            at += parts


@kernel
def _product(a: float, b: float) -> float:
    """``a * b``, not under ``SMALLEST`` unless one of them is 0."""
    return max(a * b, SMALLEST) if a > 0 and b > 0 else 0.0


@kernel
def _evaluate_sums(
    f: Flat, rows: IntArray, share: FloatArray, plan: Plan, s: int, value: FloatArray, lanes: int, careful: bool
) -> None:
    """Values of the sums of a scope for several states at once, given those of its products or leaves.

    ``careful`` raises what is too small for a double to ``SMALLEST``.
    """
    kind, start, child, node, place = f.kind, f.start, f.child, plan.node, plan.place
    i, after = plan.node_at[s] - 1, plan.node_at[s + 1]
    while i + 1 < after:
        i += 1
        n = node[i]
        if rows.size > 0 and rows[n] >= 0 and not careful:
            end, last = n + 1, n + after - i
            while end < last and node[i + end - n] == end and rows[end] == rows[n]:
                end += 1
            children = child[start[n] : start[n + 1]]
            below, found = np.empty(children.size), np.empty(end - n)
            for k in range(lanes):
                for c in range(children.size):
                    below[c] = value[place[children[c]], k]
                times_vector(share[start[n] : start[end]], below, found)
                for r in range(end - n):
                    value[place[n] + r, k] = found[r]
            i += end - n - 1
            continue
        if kind[n] == SUM:
            row = place[n]
            for k in range(lanes):
                value[row, k] = 0.0
            for e in range(start[n], start[n + 1]):
                part, other = share[e], place[child[e]]
                for k in range(lanes):
                    value[row, k] += part * value[other, k]
                if careful:
                    for k in range(lanes):
                        if value[other, k] > 0:
                            value[row, k] = max(value[row, k], SMALLEST)


@kernel
def _covers(kept: FloatArray, r: int, vector: FloatArray, factor: float, used: Marks) -> bool:
    """Whether a kept vector is at least as large as another times a factor in every entry that matters."""
    covers = True
    for i in range(vector.size):
        if vector[i] * factor > kept[r, i] and used[i] != 0:
            covers = False
            break
    return covers


@kernel(inline=True)
def _dominated(
    kept: FloatArray, kept_merged: Marks, kept_use: Uses | None, count: int,
    vector: FloatArray, use: Use | None, used: Marks, free: Use | None, needed: int,
) -> bool:  # fmt: skip
    """Whether ``needed`` kept vectors that stand for states are at least as large in every entry that matters.

    With constraints they must also fit whatever completion the vector fits: use no more of a row than it, or so little
    that it never becomes too much, and no less, or so much that it is always enough.
    """
    for r in range(count):
        if kept_merged[r] != 0:
            continue
        larger, more = True, 0.0
        if kept_use is not None and use is not None and free is not None:
            for i in range(use.low.size):
                part = kept_use.low[r, i]
                if (part > use.low[i] and part > free.high[i]) or (part < use.high[i] and part < free.low[i]):
                    larger = False
                    break
            more = use.toll - kept_use.toll[r]  # by this, as a logarithm, the vector is larger than it looks
        if larger and more != 0:
            larger = _covers(kept, r, vector, 1.0 if more > 0 else np.exp(more), used)
            if larger and more > 0:
                larger = more < 700 and _covers(kept, r, vector, np.exp(more), used)
        elif larger:
            for i in range(vector.size):
                if vector[i] > kept[r, i] and used[i] != 0:
                    larger = False
                    break
        if larger:
            needed -= 1
            if needed == 0:
                return True
    return False


@kernel
def _values(
    f: Flat,
    rows: IntArray,
    share: FloatArray,
    plan: Plan,
    pending: Pending | None,
    step: int,
    s: int,
    outside: FloatArray,
    floor: float,
    most: int,
    best_of: int,
    careful: bool,
) -> tuple[FloatArray, NDArray[np.int32], NDArray[np.int32], Marks, Uses | None]:
    """The vectors of a single variable, one a value."""
    first, last, kind, node, out, place = plan.node_at[s], plan.node_at[s + 1], f.kind, plan.node, plan.out, plan.place
    out_at, entries = plan.out_at[s], plan.out_at[s + 1] - plan.out_at[s]
    leaves = 0
    for i in range(first, last):
        leaves += kind[node[i]] == LEAF
    value = np.zeros((last - first, leaves))
    code = np.zeros(leaves, dtype=np.int32)
    k = 0
    for i in range(first, last):
        if kind[node[i]] == LEAF:
            value[i - first, k] = 1.0
            code[k] = f.value[node[i]]
            k += 1
    _evaluate_sums(f, rows, share, plan, s, value, leaves, careful)
    score = np.zeros(leaves)
    used = np.zeros(entries, dtype=np.uint8)
    for i in range(entries):
        n = out[out_at + i]
        used[i] = outside[n] > 0
        for k in range(leaves):
            score[k] += outside[n] * value[place[n], k]
    kept = np.zeros((leaves, entries))
    kept_code, kept_merged = np.zeros(leaves, dtype=np.int32), np.zeros(leaves, dtype=np.uint8)
    vector, surplus = np.zeros(entries), np.zeros(entries)
    kept_use = use = lost = free = None
    if pending is not None:
        kept_use, free = _no_use(leaves, pending.open[step]), _free(pending, step)
        use, lost = _nothing_used(pending.open[step])
    count, merge = 0, False
    for k in descending(score):
        if score[k] <= floor:
            continue
        if pending is not None and use is not None:
            if not _fits_alone(pending, step, code[k], use):
                continue
            use = Use(use.low, use.high, pending.toll[f.var[node[first]], code[k]])
        for i in range(entries):
            vector[i] = value[place[out[out_at + i]], k]
        if _dominated(kept, kept_merged, kept_use, count, vector, use, used, free, best_of):
            continue
        if count >= most:
            merge = True
            surplus = np.maximum(surplus, vector)
            if pending is not None and use is not None and lost is not None:
                lost = _widened(lost, use)
        else:
            kept[count], kept_code[count] = vector, code[k]
            if pending is not None and kept_use is not None and use is not None:
                _put(kept_use, count, use)
            count += 1
    if merge and not _dominated(kept, kept_merged, kept_use, count, surplus, lost, used, free, best_of):
        kept[count], kept_merged[count] = surplus, 1
        if pending is not None and kept_use is not None and lost is not None:
            _put(kept_use, count, lost)
        count += 1
    return kept[:count], kept_code[:count], kept_code[:count], kept_merged[:count], _first_uses(kept_use, count)


@kernel
def _free(pending: Pending, step: int) -> Use:
    """For each row that is open after a step: what is always enough of it, and what is never too much."""
    low, high = np.zeros(pending.open[step], dtype=np.int64), np.zeros(pending.open[step], dtype=np.int64)
    for i in range(pending.entry_at[step], pending.entry_at[step + 1]):
        if pending.keep[i] >= 0:
            low[pending.keep[i]], high[pending.keep[i]] = pending.free_low[i], pending.free_high[i]
    return Use(low, high, 0.0)


@kernel
def _nothing_used(columns: int) -> tuple[Use, Use]:
    """Room for the use of one vector, and the least and the most use of none at all."""
    most = np.int64(1) << np.int64(62)
    room = Use(np.zeros(columns, dtype=np.int64), np.zeros(columns, dtype=np.int64), 0.0)
    return room, Use(np.full(columns, most), np.full(columns, -most), -np.inf)


@kernel
def _put(uses: Uses, r: int, use: Use) -> None:
    """Write down the use of a vector."""
    for i in range(use.low.size):
        uses.low[r, i], uses.high[r, i] = use.low[i], use.high[i]
    uses.toll[r] = use.toll


@kernel
def _widened(uses: Use, use: Use) -> Use:
    """The use of vectors that are merged, with that of one more."""
    for i in range(use.low.size):
        uses.low[i], uses.high[i] = min(uses.low[i], use.low[i]), max(uses.high[i], use.high[i])
    return Use(uses.low, uses.high, max(uses.toll, use.toll))


@kernel
def _first_uses(uses: Uses | None, count: int) -> Uses | None:
    """The uses of the first vectors."""
    if uses is None:
        return None
    return Uses(uses.low[:count], uses.high[:count], uses.toll[:count])


@kernel
def _fits_alone(pending: Pending, step: int, code: int, use: Use) -> bool:
    """Whether some completion of one value can satisfy all rows, each looked at alone; what it uses goes to ``use``."""
    for i in range(pending.entry_at[step], pending.entry_at[step + 1]):
        part = pending.cost[pending.first[i], code]
        if part < pending.low[i] or part > pending.high[i]:
            return False
        if pending.keep[i] >= 0:
            use.low[pending.keep[i]] = use.high[pending.keep[i]] = part
    return True


@kernel
def _fits(pending: Pending, step: int, first: Uses, a: int, second: Uses, b: int) -> bool:
    """Whether some completion of a pair of assignments can satisfy all rows, each looked at alone."""
    for i in range(pending.entry_at[step], pending.entry_at[step + 1]):
        low, high = np.int64(0), np.int64(0)
        if pending.first[i] >= 0:
            low, high = first.low[a, pending.first[i]], first.high[a, pending.first[i]]
        if pending.second[i] >= 0:
            low += second.low[b, pending.second[i]]
            high += second.high[b, pending.second[i]]
        if low > pending.high[i] or high < pending.low[i]:
            return False
    return True


@kernel
def _used(pending: Pending, step: int, first: Uses, a: int, second: Uses, b: int, use: Use) -> Use:
    """What a pair of assignments uses of the rows that stay open, written into ``use``."""
    for i in range(pending.entry_at[step], pending.entry_at[step + 1]):
        if pending.keep[i] >= 0:
            low, high = np.int64(0), np.int64(0)
            if pending.first[i] >= 0:
                low, high = first.low[a, pending.first[i]], first.high[a, pending.first[i]]
            if pending.second[i] >= 0:
                low += second.low[b, pending.second[i]]
                high += second.high[b, pending.second[i]]
            use.low[pending.keep[i]], use.high[pending.keep[i]] = low, high
    return Use(use.low, use.high, first.toll[a] + second.toll[b])


@kernel
def _gather(plan: Plan, s: int, first: FloatArray) -> FloatArray:
    """The vectors of a scope's first part, laid out by the scope's products."""
    parts, at, columns, factor = plan.part_at[s + 1] - plan.part_at[s], plan.factor_at[s], plan.column, plan.factor
    products = (plan.factor_at[s + 1] - at) // parts
    laid = np.empty((first.shape[0], products))
    for p in range(products):
        column = columns[factor[at + p * parts]]
        for r in range(first.shape[0]):
            laid[r, p] = first[r, column]
    return laid


@kernel
def _join(
    f: Flat, rows: IntArray, share: FloatArray, plan: Plan, pending: Pending | None, step: int, s: int, j: int,
    first: FloatArray, first_merged: Marks, first_use: Uses | None,
    second: FloatArray, second_merged: Marks, second_use: Uses | None,
    total: FloatArray, limit: FloatArray, outside: FloatArray,
    floor: float, most: int, pairs: int, best_of: int, careful: bool, stop: LongArray, work: LongArray,
) -> tuple[FloatArray, NDArray[np.int32], NDArray[np.int32], Marks, Uses | None]:  # fmt: skip
    """Join vectors over the first ``j + 1`` parts of a scope (by its products) with those of part ``j + 1``."""
    begin, end = plan.node_at[s], plan.node_at[s + 1]
    parts = plan.part_at[s + 1] - plan.part_at[s]
    final = j + 2 == parts
    products = first.shape[1]
    kind, start, node, factor, columns, out, place = (
        f.kind, f.start, plan.node, plan.factor, plan.column, plan.out, plan.place,
    )  # fmt: skip
    row, column, weight = (
        np.empty(products, dtype=np.int64),
        np.empty(products, dtype=np.int64),
        np.empty(products),
    )
    p, at = 0, plan.factor_at[s]
    cost = end - begin  # of one more vector: its products and sums, and then the comparison with those kept
    for i in range(begin, end):
        n = node[i]
        cost += start[n + 1] - start[n]
        if kind[n] == PRODUCT:
            row[p], column[p] = i - begin, columns[factor[at + j + 1]]
            weight[p] = total[n]
            for k in range(j + 2, parts):
                weight[p] = _product(weight[p], limit[factor[at + k]])
            p, at = p + 1, at + parts
    pair_first, pair_second, score, lost = _score(
        first, second, column, weight, floor, pairs, pending, step, first_use, second_use, stop, work
    )
    order = descending(score)
    if final:
        out_at, entries = plan.out_at[s], plan.out_at[s + 1] - plan.out_at[s]
        entry_row = np.empty(entries, dtype=np.int64)
        used = np.empty(entries, dtype=np.uint8)
        for i in range(entries):
            n = out[out_at + i]
            entry_row[i] = place[n]
            used[i] = outside[n] > 0
    else:
        entries = products
        entry_row = row
        used = np.zeros(entries, dtype=np.uint8)
        for i in range(entries):
            used[i] = weight[i] > 0

    room = min(64, order.size) + 1
    kept = np.empty((room, entries))
    kept_first, kept_second = np.zeros(room, dtype=np.int32), np.zeros(room, dtype=np.int32)
    kept_merged = np.zeros(room, dtype=np.uint8)
    kept_use = use = merged_use = free = None
    if pending is not None:
        kept_use, free = _no_use(room, pending.open[step]), _free(pending, step)
        use, merged_use = _nothing_used(pending.open[step])
    lanes = min(LANES, max(order.size, 1))
    value = np.empty((end - begin, lanes))
    vector, surplus = np.empty(entries), np.zeros(entries)
    count, merge = 0, False
    for at in range(0, order.size, lanes):
        work[0] -= lanes * (cost + 2 * count)
        if stop[0] != 0 or work[0] < 0:
            stop[0] = 1
            break
        filled = min(lanes, order.size - at)
        for k in range(filled):
            c = order[at + k]
            one, other = first[pair_first[c]], second[pair_second[c]]
            for p in range(products):
                value[row[p], k] = _product(one[p], other[column[p]]) if careful else one[p] * other[column[p]]
        if final:
            _evaluate_sums(f, rows, share, plan, s, value, filled, careful)
        for k in range(filled):
            c = order[at + k]
            for i in range(entries):
                vector[i] = value[entry_row[i], k]
            a, b = pair_first[c], pair_second[c]
            if pending is not None and use is not None and first_use is not None and second_use is not None:
                use = _used(pending, step, first_use, a, second_use, b, use)
            if _dominated(kept, kept_merged, kept_use, count, vector, use, used, free, best_of):
                continue
            if count >= most or first_merged[a] != 0 or second_merged[b] != 0:
                merge = True
                for i in range(entries):
                    surplus[i] = max(surplus[i], vector[i])
                if pending is not None and use is not None and merged_use is not None:
                    merged_use = _widened(merged_use, use)
                continue
            if count + 1 >= room:
                room *= 2
                wider = np.empty((room, entries))
                wider[:count] = kept[:count]
                kept = wider
                kept_first = _grown(kept_first, room)
                kept_second = _grown(kept_second, room)
                kept_merged = np.zeros(room, dtype=np.uint8)
                if pending is not None and kept_use is not None:
                    kept_use = _more_rows(kept_use, count, room)
            for i in range(entries):
                kept[count, i] = vector[i]
            if pending is not None and kept_use is not None and use is not None:
                _put(kept_use, count, use)
            kept_first[count], kept_second[count] = a, b
            count += 1
    if lost.size > 0:
        # Too many pairs to look at one by one: what they can reach at most.
        merge = True
        for at in range(0, lost.shape[0], lanes):
            filled = min(lanes, lost.shape[0] - at)
            for p in range(products):
                for k in range(filled):
                    value[row[p], k] = lost[at + k, p]
            if final:
                _evaluate_sums(f, rows, share, plan, s, value, filled, careful)
            for k in range(filled):
                for i in range(entries):
                    surplus[i] = max(surplus[i], value[entry_row[i], k])
        if (
            pending is not None
            and use is not None
            and merged_use is not None
            and first_use is not None
            and second_use is not None
        ):  # what all pairs together use at least and at most
            use = _used(pending, step, _together(first_use), 0, _together(second_use), 0, use)
            merged_use = _widened(merged_use, use)
    if merge and not _dominated(kept, kept_merged, kept_use, count, surplus, merged_use, used, free, best_of):
        kept[count], kept_merged[count] = surplus, 1
        if pending is not None and kept_use is not None and merged_use is not None:
            _put(kept_use, count, merged_use)
        count += 1
    return kept[:count], kept_first[:count], kept_second[:count], kept_merged[:count], _first_uses(kept_use, count)


@kernel
def _together(uses: Uses) -> Uses:
    """What all vectors together use, as that of one."""
    low, high = uses.low[:1].copy(), uses.high[:1].copy()
    toll = uses.toll[:1].copy()
    for r in range(uses.toll.size):
        for i in range(uses.low.shape[1]):
            low[0, i], high[0, i] = min(low[0, i], uses.low[r, i]), max(high[0, i], uses.high[r, i])
        toll[0] = max(toll[0], uses.toll[r])
    return Uses(low, high, toll)


@kernel
def _more_rows(uses: Uses, count: int, rows: int) -> Uses:
    """The uses with room for more vectors; the first ``count`` are those there were."""
    larger = _no_use(rows, uses.low.shape[1])
    larger.low[:count], larger.high[:count] = uses.low[:count], uses.high[:count]
    larger.toll[:count] = uses.toll[:count]
    return larger


@kernel
def _score(
    first: FloatArray,
    second: FloatArray,
    column: LongArray,
    weight: FloatArray,
    floor: float,
    most: int,
    pending: Pending | None,
    step: int,
    first_use: Uses | None,
    second_use: Uses | None,
    stop: LongArray,
    work: LongArray,
) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray, FloatArray]:
    """The pairs of vectors whose bound is above the floor and that can satisfy the constraints, with their bounds.

    If there are more than ``most``, the best of them; the last result then has, for each first vector, entries that no
    pair left out exceeds.
    """
    n_first, n_second, columns = first.shape[0], second.shape[0], second.shape[1]
    room = min(n_first * n_second, 256, 2 * most)
    pair_first, pair_second = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    score = np.empty(room)
    count = 0
    cut = floor
    left_out = False
    rows = min(ROWS, n_first)
    mixed = np.empty((rows, columns))
    small = rows * n_second * columns < 4096
    bounds = np.empty((rows, n_second))
    for begin in range(0, n_first, rows):
        filled = min(rows, n_first - begin)
        work[0] -= filled * (n_second * columns + column.size)
        if stop[0] != 0 or work[0] < 0:
            stop[0] = 1
            break
        mixed[:] = 0.0
        for r in range(filled):
            for p in range(column.size):
                mixed[r, column[p]] += weight[p] * first[begin + r, p]
        if small:
            for r in range(filled):
                for q in range(n_second):
                    bound = 0.0
                    for i in range(columns):
                        bound += mixed[r, i] * second[q, i]
                    bounds[r, q] = bound
        else:
            bounds = row_products(mixed, second)
        for r in range(filled):
            for q in range(n_second):
                if bounds[r, q] <= cut:
                    left_out |= bounds[r, q] > floor
                    continue
                if (
                    pending is not None
                    and first_use is not None
                    and second_use is not None
                    and not _fits(pending, step, first_use, begin + r, second_use, q)
                ):
                    continue
                if count == room:
                    if count >= 2 * most:
                        # Keep the better half; from now on only pairs above it are of interest.
                        cut = max(cut, nth_largest(score[:count], most))
                        left_out = True
                        kept = 0
                        for i in range(count):
                            if score[i] > cut:
                                pair_first[kept], pair_second[kept] = pair_first[i], pair_second[i]
                                score[kept] = score[i]
                                kept += 1
                        count = kept
                        if bounds[r, q] <= cut:
                            continue
                    else:
                        room = min(2 * room, max(2 * most, room + 1))
                        pair_first, pair_second = _grown(pair_first[:count], room), _grown(pair_second[:count], room)
                        room = pair_first.size
                        longer = np.zeros(room)
                        longer[:count] = score[:count]
                        score = longer
                pair_first[count], pair_second[count] = begin + r, q
                score[count] = bounds[r, q]
                count += 1
    lost = np.zeros((0, column.size))
    if left_out:
        reach = np.zeros(columns)
        for q in range(n_second):
            for i in range(columns):
                reach[i] = max(reach[i], second[q, i])
        lost = np.zeros((n_first, column.size))
        for r in range(n_first):
            for p in range(column.size):
                lost[r, p] = _product(first[r, p], reach[column[p]])
    return pair_first[:count], pair_second[:count], score[:count], lost
