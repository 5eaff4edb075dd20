"""Strudel's step (Dang, Vergari and Van den Broeck, PGM 2020): split an element of a decision on a variable.

The element (prime, sub) becomes one element for every value of the variable. Below it, every node that has the variable
in its scope is conditioned on the value, and every node up to a given depth is copied; all others are shared. Only rows
that go through the element move, from the nodes that were there to their copies, so a split looks at the nodes that it
copies and at their rows, and at nothing else.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel
from margmap.learn.decision_circuit import (
    BORN,
    ELEMENTS,
    FREE_ELEMENT,
    FREE_NODE,
    HEAP,
    LIVE_ELEMENTS,
    LIVE_NODES,
    NODES,
    NONE,
    SINGLES,
    SPLITS,
    TICK,
    Net,
    node_tally,
)

#: Why :func:`grow` came back.
EXHAUSTED, PAUSED, NO_ROOM = range(3)

EDGE_FLOW, EDGE_RANDOM = range(2)
VAR_MI, VAR_RANDOM = range(2)

# The low bits of a key in the queue: older elements first among those with equally many rows.
_AGE = (1 << 36) - 1


@kernel
def grow(
    net: Net,
    edges: int,
    variables: int,
    tries: int,
    depth: int,
    alpha: float,
    strength: float,
    inherit: bool,
    least_rows: int,
    least_gain: float,
    most_splits: int,
    most_edges: int,
    needed: LongArray,
) -> int:
    """Split the next elements of the queue until one of the limits; ``needed`` says what there was no room for."""
    done = 0
    while net.size[HEAP] > 0:
        if done >= most_splits or 3 * net.size[LIVE_ELEMENTS] - net.size[SINGLES] >= most_edges:
            return PAUSED
        if net.key.size < net.size[HEAP] + 1:
            needed[:] = 0, 0, 1
            return NO_ROOM
        key, e = _pop(net)
        if net.born[e] != _AGE - (key & _AGE):
            continue
        if edges == EDGE_FLOW and net.n[e] != key >> 36:
            push(net, e, edges, least_rows)
            continue
        columns = _choose(net, e, variables, tries, alpha)
        if columns.size == 0:
            continue
        best, best_gain = -1, -np.inf
        for column in columns:
            if least_gain > -np.inf or columns.size > 1:
                touched = _collect(net, e, column, depth)
                _mark(net, e, column)
                gain = _gain(net, e, column, touched, depth, strength, inherit)
                _unmark(net, e, net.n[e], net.valid_n[e])
                if gain > best_gain:
                    best, best_gain = column, gain
            else:
                best, best_gain = column, 0.0
        if best < 0 or best_gain <= least_gain:
            continue
        touched = _collect(net, e, best, depth)
        values = net.values[best]
        new_elements, queue = values, values
        for m in touched:
            new_elements += values * net.arity[m]
        queue += new_elements
        if (
            net.place.size < net.size[NODES] + values * touched.size
            or net.owner.size < net.size[ELEMENTS] + new_elements
            or net.key.size < net.size[HEAP] + queue + 1
        ):
            net.size[HEAP] += 1
            _up(net, key, e, int(net.size[HEAP]) - 1)
            needed[:] = values * touched.size, new_elements, queue + 1
            return NO_ROOM
        _mark(net, e, best)
        n, valid_n = net.n[e], net.valid_n[e]
        _split(net, e, best, touched, depth, strength, inherit, edges, least_rows)
        _unmark(net, e, n, valid_n)  # the slice is the same, now shared by several elements
        net.size[SPLITS] += 1
        done += 1
    return EXHAUSTED


# ---- the queue -------------------------------------------------------------------------------------------------------


@kernel
def push(net: Net, e: int, edges: int, least_rows: int) -> None:
    """Queue an element: by its rows (eFLOW) or in a random order."""
    if net.n[e] < least_rows or net.left[net.place[net.owner[e]]] < 0:
        return
    first = np.int64(net.n[e]) if edges == EDGE_FLOW else np.int64(draw(net) & np.uint64((1 << 26) - 1))
    net.size[HEAP] += 1
    _up(net, first << 36 | (_AGE - net.born[e]), e, int(net.size[HEAP]) - 1)


@kernel
def draw(net: Net) -> np.uint64:
    """The next number of a xorshift generator."""
    x = net.random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    net.random[0] = x
    high: np.uint64 = x >> np.uint64(20)
    return high


@kernel
def _up(net: Net, key: int, e: int, i: int) -> None:
    while i > 0 and net.key[(i - 1) // 2] < key:
        net.key[i], net.queued[i] = net.key[(i - 1) // 2], net.queued[(i - 1) // 2]
        i = (i - 1) // 2
    net.key[i], net.queued[i] = key, e


@kernel
def _pop(net: Net) -> tuple[int, int]:
    key, e = net.key[0], net.queued[0]
    last = int(net.size[HEAP]) - 1
    net.size[HEAP] = last
    moved, moved_e = net.key[last], net.queued[last]
    i = 0
    while 2 * i + 1 < last:
        c = 2 * i + 1
        if c + 1 < last and net.key[c + 1] > net.key[c]:
            c += 1
        if net.key[c] <= moved:
            break
        net.key[i], net.queued[i] = net.key[c], net.queued[c]
        i = c
    net.key[i], net.queued[i] = moved, moved_e
    return key, e


@kernel
def fill_queue(net: Net, order: IntArray, edges: int, least_rows: int) -> None:
    """Queue all elements of the nodes in ``order``."""
    net.size[HEAP] = 0
    for m in order:
        e = net.head[m]
        while e >= 0:
            push(net, e, edges, least_rows)
            e = net.after[e]


# ---- which variable --------------------------------------------------------------------------------------------------


@kernel
def _choose(net: Net, e: int, variables: int, tries: int, alpha: float) -> LongArray:
    """The columns to try. vMI: those with the largest sum of mutual information with the others, on the element's rows.

    A variable with one literal below the element has one value on its rows, so those with two values can be split on.
    """
    place = net.place[net.owner[e]]
    lo, hi, rows = net.lo[place], net.hi[place], net.n[e]
    words = (rows + 63) // 64
    first = net.literal_of[lo]
    # One bitset for each value but 0 of each column.
    bits = np.zeros((net.literal_of[hi] - first - (hi - lo), words), dtype=np.uint64)
    base = np.zeros(hi - lo, dtype=np.int64)
    for j in range(lo, hi):
        base[j - lo] = net.literal_of[j] - first - (j - lo) - 1
    for i in range(rows):
        r = net.rows[place, net.at[e] + i]
        one = np.uint64(1) << np.uint64(i & 63)
        for j in range(lo, hi):
            x = net.train[r, j]
            if x:
                bits[base[j - lo] + x, i >> 6] |= one
    ones = np.zeros(bits.shape[0], dtype=np.int64)
    for b in range(bits.shape[0]):
        for w in range(words):
            ones[b] += _popcount(bits[b, w])
    varies = np.zeros(hi - lo, dtype=np.int64)
    free = 0
    for j in range(lo, hi):
        seen, zeros = 0, np.int64(rows)
        for x in range(1, net.values[j]):
            k = ones[base[j - lo] + x]
            zeros -= k
            if k > 0:
                seen += 1
        if seen + (zeros > 0) > 1:
            varies[free] = j
            free += 1
    found = np.zeros(min(tries, free), dtype=np.int64)
    if free == 0:
        return found
    if variables == VAR_RANDOM:
        found[:] = varies[np.int64(draw(net) % np.uint64(free))]
        return found[:1]
    score = np.zeros(free)
    for a in range(free):
        for b in range(a):
            mi = _information(net, bits, ones, base, varies[a], varies[b], lo, rows, alpha)
            score[a] += mi
            score[b] += mi
    for t in range(found.size):
        top = 0
        for a in range(free):
            if score[a] > score[top]:
                top = a
        found[t] = varies[top]
        score[top] = -1.0
    return found


@kernel
def _information(
    net: Net,
    bits: NDArray[np.uint64],
    ones: LongArray,
    base: LongArray,
    i: int,
    j: int,
    lo: int,
    rows: int,
    alpha: float,
) -> float:
    words = bits.shape[1]
    a, b = net.values[i], net.values[j]
    total = rows + alpha * a * b
    bi, bj = base[i - lo], base[j - lo]
    if a == 2 and b == 2:
        n11 = 0
        one, two = bits[bi + 1], bits[bj + 1]
        for w in range(words):
            n11 += _popcount(one[w] & two[w])
        n1, m1 = ones[bi + 1], ones[bj + 1]
        px, py = (n1 + 2 * alpha) / total, (m1 + 2 * alpha) / total
        return (
            _term(n11 + alpha, px * py, total)
            + _term(n1 - n11 + alpha, px * (1 - py), total)
            + _term(m1 - n11 + alpha, (1 - px) * py, total)
            + _term(rows - n1 - m1 + n11 + alpha, (1 - px) * (1 - py), total)
        )
    table = np.zeros((a, b))
    for x in range(1, a):
        for y in range(1, b):
            n = 0
            for w in range(words):
                n += _popcount(bits[bi + x, w] & bits[bj + y, w])
            table[x, y] = n
    for x in range(1, a):
        table[x, 0] = ones[bi + x] - table[x].sum()
    for y in range(1, b):
        table[0, y] = ones[bj + y] - table[:, y].sum()
    table[0, 0] = rows - table.sum()
    table += alpha
    value = 0.0
    for x in range(a):
        for y in range(b):
            value += _term(table[x, y], table[x].sum() / total * table[:, y].sum() / total, total)
    return value


@kernel
def _term(count: float, product: float, total: float) -> float:
    return count / total * math.log(count / total / product) if count > 0 else 0.0


@kernel
def _popcount(x: np.uint64) -> int:
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


# ---- what a split touches --------------------------------------------------------------------------------------------


@kernel
def _collect(net: Net, e: int, column: int, depth: int) -> IntArray:
    """The nodes below an element that have the column in their scope or are near, parents first; their slots, too."""
    net.size[TICK] += 1
    tick = net.size[TICK]
    top = net.depth[net.place[net.owner[e]]]
    found = np.zeros(64, dtype=np.int32)
    size = 0
    for c in (net.prime[e], net.sub[e]):
        if _near(net, c, column, top + depth):
            net.stamp[c], net.slot[c] = tick, size
            found[size] = c
            size += 1
    i = 0
    while i < size:
        m = found[i]
        i += 1
        if net.left[net.place[m]] < 0:
            continue
        f = net.head[m]
        while f >= 0:
            for c in (net.prime[f], net.sub[f]):
                if net.stamp[c] != tick and _near(net, c, column, top + depth):
                    if size == found.size:
                        larger = np.zeros(2 * size, dtype=np.int32)
                        larger[:size] = found
                        found = larger
                    net.stamp[c], net.slot[c] = tick, size
                    found[size] = c
                    size += 1
            f = net.after[f]
    return found[:size]


@kernel
def _near(net: Net, c: int, column: int, deepest: int) -> bool:
    place = net.place[c]
    if net.literal[c] >= 0:
        return False
    return bool(net.lo[place] <= column < net.hi[place] or net.depth[place] <= deepest)


@kernel
def _mark(net: Net, e: int, column: int) -> None:
    """Write on the element's rows the value of the column, plus 1."""
    place = net.place[net.owner[e]]
    for i in range(net.at[e], net.at[e] + net.n[e]):
        r = net.rows[place, i]
        net.mark[r] = np.int16(net.train[r, column]) + np.int16(1)
    for i in range(net.valid_at[e], net.valid_at[e] + net.valid_n[e]):
        r = net.valid_rows[place, i]
        net.valid_mark[r] = np.int16(net.valid[r, column]) + np.int16(1)


@kernel
def _unmark(net: Net, e: int, n: int, valid_n: int) -> None:
    place = net.place[net.owner[e]]
    for i in range(net.at[e], net.at[e] + n):
        net.mark[net.rows[place, i]] = 0
    for i in range(net.valid_at[e], net.valid_at[e] + valid_n):
        net.valid_mark[net.valid_rows[place, i]] = 0


@kernel
def _child_state(net: Net, c: int, column: int, value: int, state: NDArray[np.int8]) -> int:
    """What becomes of a child: 0 it is excluded, 1 it stays itself, 2 it gets a copy."""
    if net.stamp[c] == net.size[TICK]:
        return int(state[net.slot[c], value])
    if net.literal[c] >= 0 and net.lo[net.place[c]] == column:
        return 1 if net.literal[c] == value else 0
    return 1


@kernel
def _counts(net: Net, m: int, values: int) -> LongArray:
    """For every element of a node how many of its rows have which mark; 0 for rows that do not move."""
    place = net.place[m]
    found = np.zeros((net.arity[m], values + 1), dtype=np.int64)
    f, i = net.head[m], 0
    while f >= 0:
        for k in range(net.at[f], net.at[f] + net.n[f]):
            found[i, net.mark[net.rows[place, k]]] += 1
        f = net.after[f]
        i += 1
    return found


@kernel
def _node_state(
    net: Net, m: int, column: int, count: LongArray, copied: bool, state: NDArray[np.int8], ok: NDArray[np.int8]
) -> None:
    """Fill in the node's row of ``state``, and for each of its elements and each value whether the element survives."""
    slot, values = net.slot[m], net.values[column]
    place = net.place[m]
    leaf = net.left[place] < 0
    for v in range(values):
        survives, same = False, True
        f, i, rows = net.head[m], 0, 0
        while f >= 0:
            a, b = 1, 1
            if not leaf:
                a = _child_state(net, net.prime[f], column, v, state)
                b = _child_state(net, net.sub[f], column, v, state)
            ok[i, v] = 1 if a > 0 and b > 0 else 0
            survives = survives or ok[i, v] > 0
            same = same and a == 1 and b == 1
            rows += count[i, v + 1]
            f = net.after[f]
            i += 1
        if leaf and net.lo[place] == column:
            state[slot, v] = 2
        elif not survives:
            state[slot, v] = 0
        elif same and not (copied and rows > 0):
            state[slot, v] = 1  # nothing to condition; and a copy without rows has nothing of its own to say
        else:
            state[slot, v] = 2


@kernel
def _dirichlet(count: FloatArray, prior: FloatArray, size: int) -> float:
    """The log of the chance of a sequence with these counts, its distribution unknown, with a Dirichlet prior."""
    value, n, total = 0.0, 0.0, 0.0
    for i in range(size):
        n += count[i]
        total += prior[i]
        if count[i] > 0:
            value += math.lgamma(count[i] + prior[i]) - math.lgamma(prior[i])
    return value + math.lgamma(total) - math.lgamma(n + total) if n > 0 else 0.0


@kernel
def _gain(net: Net, e: int, column: int, touched: IntArray, depth: int, strength: float, inherit: bool) -> float:
    """By how much a split makes the training rows more likely, the parameters of all copies integrated out.

    With inherited priors, what is compared is one distribution for all rows of a node with one for each of its copies,
    each drawn around it; without, the two Bayesian Dirichlet scores.
    """
    values = net.values[column]
    top = net.depth[net.place[net.owner[e]]]
    state = np.zeros((touched.size, values), dtype=np.int8)
    strength = max(strength, 1e-3)
    gain = 0.0
    for t in range(touched.size - 1, -1, -1):
        m = touched[t]
        size = net.arity[m]
        count = _counts(net, m, values)
        ok = np.zeros((size, values), dtype=np.int8)
        _node_state(net, m, column, count, net.depth[net.place[m]] <= top + depth, state, ok)
        at_column = net.left[net.place[m]] < 0 and net.lo[net.place[m]] == column
        total = 0.0
        theta, part, prior = np.zeros(size), np.zeros(size), np.zeros(size)
        for i in range(size):
            for v in range(values + 1):
                theta[i] += count[i, v]
            total += theta[i]
        if total == 0:
            continue
        if inherit:
            f, i = net.head[m], 0
            while f >= 0:
                n = theta[i]
                theta[i] = max(1e-300, (n + net.strength[m] * net.prior[f]) / (total + net.strength[m]))
                gain -= n * math.log(theta[i]) if n > 0 else 0.0
                f = net.after[f]
                i += 1
        else:
            for i in range(size):
                prior[i] = strength / size
            gain -= _dirichlet(theta, prior, size)
        # Group 0 is what stays: rows without a mark, and those whose value leaves the node as it is.
        for g in range(values + 1):
            if g > 0 and (state[t, g - 1] < 2 or at_column):
                continue
            kept, mass = 0, 0.0
            for i in range(size):
                if g > 0 and ok[i, g - 1] == 0:
                    continue
                part[kept] = count[i, g]
                if g == 0:
                    for v in range(values):
                        if state[t, v] == 1:
                            part[kept] += count[i, v + 1]
                prior[kept] = theta[i] if inherit else 1.0
                mass += prior[kept]
                kept += 1
            for i in range(kept):
                prior[i] *= strength / mass
            gain += _dirichlet(part, prior, kept)
    # The element itself: its share is divided.
    counts = np.zeros(values)
    place = net.place[net.owner[e]]
    for k in range(net.at[e], net.at[e] + net.n[e]):
        counts[net.mark[net.rows[place, k]] - 1] += 1
    return gain + _dirichlet(counts, np.ones(values), int(values))


# ---- the split itself ------------------------------------------------------------------------------------------------


@kernel
def _split(
    net: Net,
    e: int,
    column: int,
    touched: IntArray,
    depth: int,
    strength: float,
    inherit: bool,
    edges: int,
    least_rows: int,
) -> None:
    values = net.values[column]
    size = net.size
    owner = net.owner[e]
    top = net.depth[net.place[owner]]
    state = np.zeros((touched.size, values), dtype=np.int8)
    copy = np.full((touched.size, values), NONE, dtype=np.int32)
    train, valid = node_tally(net, owner, inherit)
    fresh = np.zeros(values, dtype=np.int32)
    for t in range(touched.size - 1, -1, -1):
        m = touched[t]
        place = net.place[m]
        leaf = net.left[place] < 0
        at_column = leaf and net.lo[place] == column
        count = _counts(net, m, values)
        ok = np.zeros((net.arity[m], values), dtype=np.int8)
        _node_state(net, m, column, count, net.depth[place] <= top + depth, state, ok)
        one, two = node_tally(net, m, inherit)
        train += one
        valid += two
        total = 0
        for i in range(net.arity[m]):
            for v in range(values + 1):
                total += count[i, v]
        for v in range(values):
            if at_column:
                copy[t, v] = net.literal_of[column] + v
            elif state[t, v] == 1:
                copy[t, v] = m
            elif state[t, v] == 2:
                copy[t, v] = _new_node(net, place, strength)
        f, i = net.head[m], 0
        while f >= 0:
            theta = net.prior[f]
            if total + net.strength[m] > 0:
                n = 0
                for v in range(values + 1):
                    n += count[i, v]
                theta = (n + net.strength[m] * net.prior[f]) / (total + net.strength[m])
            for v in range(values):
                fresh[v] = NONE
                if not at_column and state[t, v] == 2 and ok[i, v] > 0:
                    a, b = net.prime[f], net.sub[f]
                    if not leaf:
                        a, b = _copy_of(net, a, column, v, copy), _copy_of(net, b, column, v, copy)
                    fresh[v] = _new_element(net, copy[t, v], a, b, theta)
            net.n[f] = _part(
                net.rows[place], net.at[f], net.n[f], net.mark, state[t], fresh, net.scratch, net.at, net.n
            )
            net.valid_n[f] = _part(
                net.valid_rows[place],
                net.valid_at[f],
                net.valid_n[f],
                net.valid_mark,
                state[t],
                fresh,
                net.scratch,
                net.valid_at,
                net.valid_n,
            )
            f = net.after[f]
            i += 1
        one, two = node_tally(net, m, inherit)
        train -= one
        valid -= two
        for v in range(values):
            if not at_column and state[t, v] == 2:
                one, two = _finish(net, copy[t, v], inherit, edges, least_rows)
                train -= one
                valid -= two

    # The element keeps the first value that is possible and is followed by one for each of the others.
    a, b, share, n = net.prime[e], net.sub[e], net.prior[e], net.n[e]
    place = net.place[owner]
    was = net.arity[owner]
    last, taken = e, False
    state_all = np.full(values, 2, dtype=np.int8)
    for v in range(values):
        fresh[v] = NONE
        pa, pb = _copy_of(net, a, column, v, copy), _copy_of(net, b, column, v, copy)
        if pa < 0 or pb < 0:
            continue
        if not taken:
            taken = True
            net.prime[e], net.sub[e] = pa, pb
            net.refs[pa] += 1
            net.refs[pb] += 1
            state_all[v] = 1  # its rows stay in front
            fresh[v] = e
            continue
        new = _new_element(net, NONE, pa, pb, share)
        net.owner[new] = owner
        net.after[new] = net.after[last]
        net.after[last] = new
        net.arity[owner] += 1
        last = new
        fresh[v] = new
    if was == 1 and net.arity[owner] > 1:
        size[SINGLES] -= 1
    net.n[e] = _part(net.rows[place], net.at[e], n, net.mark, state_all, fresh, net.scratch, net.at, net.n)
    net.valid_n[e] = _part(
        net.valid_rows[place],
        net.valid_at[e],
        net.valid_n[e],
        net.valid_mark,
        state_all,
        fresh,
        net.scratch,
        net.valid_at,
        net.valid_n,
    )
    net.born[e] = size[BORN]
    size[BORN] += 1
    for v in range(values):
        if fresh[v] >= 0:
            net.prior[fresh[v]] = share * (net.n[fresh[v]] + 1.0) / (n + values)
            push(net, fresh[v], edges, least_rows)
    one, two = node_tally(net, owner, inherit)
    net.tally[0] -= train - one
    net.tally[1] -= valid - two
    _release(net, a)
    _release(net, b)
    # Copies that only excluded elements would have used, parents first.
    for t in range(touched.size):
        for v in range(values):
            new = copy[t, v]
            if state[t, v] == 2 and net.literal[new] < 0 and net.refs[new] == 0 and net.head[new] >= 0:
                net.refs[new] = 1
                _release(net, new)


@kernel
def _copy_of(net: Net, c: int, column: int, value: int, copy: IntArray) -> int:
    if net.stamp[c] == net.size[TICK]:
        return int(copy[net.slot[c], value])
    if net.literal[c] >= 0 and net.lo[net.place[c]] == column and net.literal[c] != value:
        return NONE
    return c


@kernel
def _part(
    rows: IntArray,
    at: int,
    n: int,
    mark: NDArray[np.int16],
    state: NDArray[np.int8],
    fresh: IntArray,
    scratch: IntArray,
    new_at: IntArray,
    new_n: IntArray,
) -> int:
    """Sort a slice of rows: those that stay, then those of each value with a new element; return how many stay."""
    values = state.size
    number = np.zeros(values + 1, dtype=np.int64)
    for i in range(at, at + n):
        g = mark[rows[i]]
        number[0 if g > 0 and state[g - 1] == 1 else g] += 1
    stay = number[0]
    where = np.zeros(values + 1, dtype=np.int64)
    for g in range(1, values + 1):
        where[g] = where[g - 1] + number[g - 1]
        if fresh[g - 1] >= 0 and state[g - 1] == 2:
            new_at[fresh[g - 1]] = at + where[g]
            new_n[fresh[g - 1]] = number[g]
    if stay == n:
        return int(n)
    for i in range(at, at + n):
        g = mark[rows[i]]
        k = 0 if g > 0 and state[g - 1] == 1 else g
        scratch[where[k]] = rows[i]
        where[k] += 1
    for i in range(n):
        rows[at + i] = scratch[i]
    return int(stay)


@kernel
def _new_node(net: Net, place: int, strength: float) -> int:
    size = net.size
    m = size[FREE_NODE]
    if m >= 0:
        size[FREE_NODE] = net.head[m]
    else:
        m = size[NODES]
        size[NODES] += 1
    net.place[m], net.head[m], net.arity[m], net.refs[m], net.literal[m] = place, NONE, 0, 0, NONE
    net.strength[m], net.stamp[m] = strength, 0
    size[LIVE_NODES] += 1
    return int(m)


@kernel
def _new_element(net: Net, m: int, prime: int, sub: int, prior: float) -> int:
    """Add an element to node ``m``, or to none yet; they are in reverse until :func:`_finish`."""
    size = net.size
    f = size[FREE_ELEMENT]
    if f >= 0:
        size[FREE_ELEMENT] = net.after[f]
    else:
        f = size[ELEMENTS]
        size[ELEMENTS] += 1
    net.prime[f], net.sub[f], net.prior[f] = prime, sub, prior
    net.at[f] = net.n[f] = net.valid_at[f] = net.valid_n[f] = 0
    net.born[f] = size[BORN]
    size[BORN] += 1
    if sub >= 0:
        net.refs[prime] += 1
        net.refs[sub] += 1
        size[LIVE_ELEMENTS] += 1
    if m >= 0:
        net.owner[f] = m
        net.after[f] = net.head[m]
        net.head[m] = f
        net.arity[m] += 1
    return int(f)


@kernel
def _finish(net: Net, m: int, inherit: bool, edges: int, least_rows: int) -> tuple[float, float]:
    """A new node is complete: put its elements in order, make its priors add up to 1, queue it."""
    previous, f, mass = NONE, net.head[m], 0.0
    while f >= 0:
        following = net.after[f]
        net.after[f] = previous
        mass += net.prior[f]
        previous, f = f, following
    net.head[m] = previous
    f = previous
    while f >= 0:
        net.prior[f] = net.prior[f] / mass if mass > 0 else 1.0 / net.arity[m]
        push(net, f, edges, least_rows)
        f = net.after[f]
    if net.arity[m] == 1 and net.left[net.place[m]] >= 0:
        net.size[SINGLES] += 1
    return node_tally(net, m, inherit)


@kernel
def _release(net: Net, c: int) -> None:
    """One parent less; a node without any goes, and so may those below it."""
    size = net.size
    stack = np.zeros(64, dtype=np.int32)
    stack[0] = c
    height = 1
    while height > 0:
        height -= 1
        m = stack[height]
        net.refs[m] -= 1
        if net.refs[m] > 0:
            continue
        inner = net.left[net.place[m]] >= 0
        if inner and net.arity[m] == 1:
            size[SINGLES] -= 1
        f = net.head[m]
        while f >= 0:
            following = net.after[f]
            if inner:
                if height + 2 > stack.size:
                    larger = np.zeros(2 * stack.size, dtype=np.int32)
                    larger[: stack.size] = stack
                    stack = larger
                stack[height], stack[height + 1] = net.prime[f], net.sub[f]
                height += 2
                size[LIVE_ELEMENTS] -= 1
            net.born[f] = -1
            net.after[f] = size[FREE_ELEMENT]
            size[FREE_ELEMENT] = f
            f = following
        net.head[m] = size[FREE_NODE]
        net.arity[m] = 0
        size[FREE_NODE] = m
        size[LIVE_NODES] -= 1
