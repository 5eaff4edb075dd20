"""Strudel's step (Dang, Vergari and Van den Broeck, PGM 2020): split an element of a decision on a variable.

The element (prime, sub) becomes one element for every value of the variable. Below it, every node that has the variable
in its scope is conditioned on the value, and every node up to a given depth is copied; all others are shared. Only rows
that go through the element move, from the nodes that were there to their copies, so a split looks at the nodes that it
copies and at their rows, and at nothing else.

In all kernels ``d`` are the arrays of the decision circuit, ``rule`` the options, ``e`` the element that is split and
``column`` the variable that it is split on; ``m`` is a node, and ``touched`` are the nodes below the element that have
the column in their scope or are near, parents first. ``state[t, v]`` says what becomes of touched node t under value v:
EXCLUDED, SAME or COPIED.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, IntArray, LongArray
from margmap.foundation.bits import popcount
from margmap.foundation.jit import kernel
from margmap.learn.decision_circuit import (
    BORN,
    ELEMENTS,
    FREE_ELEMENT,
    FREE_NODE,
    LIVE_ELEMENTS,
    NODES,
    NONE,
    QUEUED,
    SINGLES,
    SPLITS,
    TICK,
    TRAINING,
    DecisionArrays,
    add_tally,
    elements,
)

#: Why :func:`split_next` came back.
EXHAUSTED, PAUSED, NO_ROOM = range(3)

#: What becomes of a node under a value: it is impossible, it stays as it is, it gets a copy of its own.
EXCLUDED, SAME, COPIED = range(3)

# The low bits of a key in the queue: older elements first among those with equally many rows.
_AGE_BITS = 36
_AGE = (1 << _AGE_BITS) - 1


class Rule(NamedTuple):
    """The options of :func:`margmap.learn.learn_strudel` that the kernels need."""

    #: Whether the edge to split is random and not the one with most rows (eFLOW).
    random_edge: bool
    #: Whether the variable is random and not one with the largest sum of mutual information (vMI).
    random_variable: bool
    #: How many variables are compared.
    tries: int
    #: Nodes up to this depth below the element get copies of their own.
    depth: int
    #: Added to every cell of a pair's counts before its mutual information is taken.
    alpha: float
    #: The weight, in rows, of the prior of a copy.
    strength: float
    #: Whether the prior of a copy is the distribution that it was copied from; otherwise it is even.
    inherit: bool
    #: Elements with fewer training rows are not split.
    least_rows: int
    #: A split must gain more than this, in nats.
    least_gain: float


@kernel
def split_next(d: DecisionArrays, rule: Rule, most_splits: int, most_edges: int, needed: LongArray) -> int:
    """Split the next elements of the queue until nothing is left, ``most_splits`` are done, or ``most_edges`` reached.

    Where there is no room for a split, ``needed`` gets the arguments of :meth:`DecisionCircuit.reserve`.
    """
    done = 0
    while d.size[QUEUED] > 0:
        if done >= most_splits or 3 * d.size[LIVE_ELEMENTS] - d.size[SINGLES] >= most_edges:
            return PAUSED
        if d.key.size < d.size[QUEUED] + 1:
            needed[:] = 0, 0, 1
            return NO_ROOM
        key, e = _pop(d)
        if d.born[e] != _AGE - (key & _AGE):
            continue
        if not rule.random_edge and d.n[TRAINING, e] != key >> _AGE_BITS:
            push(d, e, rule)
            continue
        columns = _choose(d, e, rule)
        if columns.size == 0:
            continue
        n = d.n[:, e].copy()
        best, best_gain = columns[0], np.inf
        if rule.least_gain > -np.inf or columns.size > 1:
            best_gain = -np.inf
            for column in columns:
                touched = _collect(d, e, column, rule)
                _mark(d, e, n, column)
                gain = _gain(d, e, column, touched, rule)
                if gain > best_gain:
                    best, best_gain = column, gain
        if best_gain > rule.least_gain:
            touched = _collect(d, e, best, rule)
            values = d.values[best]
            made = values
            for m in touched:
                made += values * d.arity[m]
            if (
                d.place.size < d.size[NODES] + values * touched.size
                or d.owner.size < d.size[ELEMENTS] + made
                or d.key.size < d.size[QUEUED] + values + made + 1
            ):
                _mark(d, e, n, NONE)
                _insert(d, key, e)
                needed[:] = values * touched.size, made, values + made + 1
                return NO_ROOM
            _mark(d, e, n, best)
            _split(d, e, best, touched, rule)
            d.size[SPLITS] += 1
            done += 1
        _mark(d, e, n, NONE)  # the slices are the same, now perhaps shared by several elements
    return EXHAUSTED


# ---- the queue -------------------------------------------------------------------------------------------------------


@kernel
def push(d: DecisionArrays, e: int, rule: Rule) -> None:
    """Queue an element: by its rows (eFLOW) or in a random order."""
    if d.n[TRAINING, e] < rule.least_rows or d.left[d.place[d.owner[e]]] < 0:
        return
    first = np.int64(draw(d) & np.uint64((1 << 26) - 1)) if rule.random_edge else np.int64(d.n[TRAINING, e])
    _insert(d, first << _AGE_BITS | (_AGE - d.born[e]), e)


@kernel
def draw(d: DecisionArrays) -> np.uint64:
    """The next number of a xorshift generator."""
    x = d.random[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    d.random[0] = x
    high: np.uint64 = x >> np.uint64(20)
    return high


@kernel
def _insert(d: DecisionArrays, key: int, e: int) -> None:
    """Put an element into the heap."""
    i = int(d.size[QUEUED])
    d.size[QUEUED] += 1
    while i > 0 and d.key[(i - 1) // 2] < key:
        d.key[i], d.queued[i] = d.key[(i - 1) // 2], d.queued[(i - 1) // 2]
        i = (i - 1) // 2
    d.key[i], d.queued[i] = key, e


@kernel
def _pop(d: DecisionArrays) -> tuple[int, int]:
    """Take the element with the largest key out of the heap; the key and the element."""
    key, e = d.key[0], d.queued[0]
    last = int(d.size[QUEUED]) - 1
    d.size[QUEUED] = last
    moved, moved_e = d.key[last], d.queued[last]
    i = 0
    while 2 * i + 1 < last:
        c = 2 * i + 1
        if c + 1 < last and d.key[c + 1] > d.key[c]:
            c += 1
        if d.key[c] <= moved:
            break
        d.key[i], d.queued[i] = d.key[c], d.queued[c]
        i = c
    d.key[i], d.queued[i] = moved, moved_e
    return key, e


@kernel
def fill_queue(d: DecisionArrays, rule: Rule) -> None:
    """Queue the elements of all nodes."""
    d.size[QUEUED] = 0
    for m in range(d.size[NODES]):
        for e in elements(d, m):
            push(d, e, rule)


# ---- which variable --------------------------------------------------------------------------------------------------


@kernel
def _choose(d: DecisionArrays, e: int, rule: Rule) -> LongArray:
    """The columns to try. vMI: those with the largest sum of mutual information with the others, on the element's rows.

    A variable with one literal below the element has one value on its rows, so those with two values can be split on.
    """
    place = d.place[d.owner[e]]
    lo, hi, rows = d.lo[place], d.hi[place], d.n[TRAINING, e]
    # One bitset for each value but 0 of each column: that of value x of column j is at base[j - lo] + x.
    base = np.zeros(hi - lo, dtype=np.int64)
    for j in range(lo, hi):
        base[j - lo] = d.literal_of[j] - d.literal_of[lo] - (j - lo) - 1
    bits = np.zeros((d.literal_of[hi] - d.literal_of[lo] - (hi - lo), (rows + 63) // 64), dtype=np.uint64)
    for i in range(rows):
        r = d.rows[place, d.at[TRAINING, e] + i]
        one = np.uint64(1) << np.uint64(i & 63)
        for j in range(lo, hi):
            x = d.data[r, j]
            if x:
                bits[base[j - lo] + x, i >> 6] |= one
    ones = np.zeros(bits.shape[0], dtype=np.int64)
    for b in range(bits.shape[0]):
        ones[b] = _in_both(bits[b], bits[b])
    varies = np.zeros(hi - lo, dtype=np.int64)
    free = 0
    for j in range(lo, hi):
        zeros, most = np.int64(rows), np.int64(0)
        for x in range(1, d.values[j]):
            zeros -= ones[base[j - lo] + x]
            most = max(most, ones[base[j - lo] + x])
        if max(most, zeros) < rows:
            varies[free] = j
            free += 1
    found = np.zeros(min(rule.tries, free), dtype=np.int64)
    if free == 0:
        return found
    if rule.random_variable:
        found[:] = varies[np.int64(draw(d) % np.uint64(free))]
        return found[:1]
    score = np.zeros(free)
    for a in range(free):
        i = varies[a]
        for b in range(a):
            j = varies[b]
            mi = _information(bits, ones, base[i - lo], base[j - lo], d.values[i], d.values[j], rows, rule.alpha)
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
    bits: NDArray[np.uint64], ones: LongArray, first: int, second: int, a: int, b: int, rows: int, alpha: float
) -> float:
    """The mutual information of two columns on ``rows`` rows.

    The columns have ``a`` and ``b`` values. The rows with value x > 0 of the first column are ``bits[first + x]``, and
    ``ones[first + x]`` is their number; ``second`` is the same of the second column. ``alpha`` is added to every count.
    """
    total = rows + alpha * a * b
    if a == 2 and b == 2:  # nearly always, and then much faster
        n11 = _in_both(bits[first + 1], bits[second + 1])
        n1, m1 = ones[first + 1], ones[second + 1]
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
            table[x, y] = _in_both(bits[first + x], bits[second + y])
        table[x, 0] = ones[first + x] - table[x].sum()
    for y in range(1, b):
        table[0, y] = ones[second + y] - table[:, y].sum()
    table[0, 0] = rows - table.sum()
    table += alpha
    value = 0.0
    for x in range(a):
        for y in range(b):
            value += _term(table[x, y], table[x].sum() / total * table[:, y].sum() / total, total)
    return value


@kernel
def _term(count: float, product: float, total: float) -> float:
    """p log(p / product) with p = ``count`` / ``total``, and 0 for a count of 0."""
    return count / total * math.log(count / total / product) if count > 0 else 0.0


@kernel
def _in_both(one: NDArray[np.uint64], two: NDArray[np.uint64]) -> int:
    """How many bits are set in both."""
    n = 0
    for w in range(one.size):
        n += popcount(one[w] & two[w])
    return n


# ---- what a split touches --------------------------------------------------------------------------------------------


@kernel
def _collect(d: DecisionArrays, e: int, column: int, rule: Rule) -> IntArray:
    """The touched nodes; node ``m`` among them has the stamp of this collection, and ``slot[m]`` is its place there."""
    d.size[TICK] += 1
    found = np.zeros(64, dtype=np.int32)
    size, i, f = 0, -1, e
    deepest = d.depth[d.place[d.owner[e]]] + rule.depth
    while True:
        while f >= 0:
            for c in (d.prime[f], d.sub[f]):
                place = d.place[c]
                near = d.lo[place] <= column < d.hi[place] or d.depth[place] <= deepest
                if near and d.literal[c] < 0 and d.stamp[c] != d.size[TICK]:
                    if size == found.size:
                        found = _doubled(found)
                    d.stamp[c], d.slot[c] = d.size[TICK], size
                    found[size] = c
                    size += 1
            f = d.after[f] if i >= 0 else NONE  # of the element that is split, not those after it
        i += 1
        if i == size:
            return found[:size]
        f = d.head[found[i]] if d.left[d.place[found[i]]] >= 0 else NONE


@kernel
def _doubled(array: IntArray) -> IntArray:
    """The array with as much room again."""
    larger = np.zeros(2 * array.size, dtype=np.int32)
    larger[: array.size] = array
    return larger


@kernel
def _mark(d: DecisionArrays, e: int, n: IntArray, column: int) -> None:
    """Write on the first ``n`` training and validation rows of an element the value of the column plus 1, or 0."""
    for part in range(2):
        for i in range(d.at[part, e], d.at[part, e] + n[part]):
            r = d.rows[d.place[d.owner[e]], i]
            d.mark[r] = np.int16(d.data[r, column]) + np.int16(1) if column >= 0 else np.int16(0)


@kernel
def _looked_up(d: DecisionArrays, c: int, column: int, value: int, table: IntArray, excluded: int, same: int) -> int:
    """What ``table`` has for child ``c`` under a value; ``excluded`` or ``same`` for a child that is not touched."""
    if d.stamp[c] == d.size[TICK]:
        return int(table[d.slot[c], value])
    return excluded if d.literal[c] >= 0 and d.lo[d.place[c]] == column and d.literal[c] != value else same


@kernel
def _counts(d: DecisionArrays, m: int, own: IntArray, values: int) -> LongArray:
    """For every element in ``own``, those of node m, how many of its training rows have which mark, 0 for none."""
    found = np.zeros((own.size, values + 1), dtype=np.int64)
    for i, f in enumerate(own):
        for k in range(d.at[TRAINING, f], d.at[TRAINING, f] + d.n[TRAINING, f]):
            found[i, d.mark[d.rows[d.place[m], k]]] += 1
    return found


@kernel
def _node_state(
    d: DecisionArrays, m: int, own: IntArray, column: int, count: LongArray, copied: bool, state: IntArray
) -> NDArray[np.bool_]:
    """Fill in the node's row of ``state``; for each of its elements and each value, whether the element survives.

    ``own`` are its elements and ``count`` their :func:`_counts`; ``copied`` says that it is to have copies even where
    nothing is conditioned.
    """
    place = d.place[m]
    leaf = d.left[place] < 0
    ok = np.ones((own.size, d.values[column]), dtype=np.bool_)
    for v in range(d.values[column]):
        survives, same, rows = False, True, 0
        for i, f in enumerate(own):
            if not leaf:
                a = _looked_up(d, d.prime[f], column, v, state, EXCLUDED, SAME)
                b = _looked_up(d, d.sub[f], column, v, state, EXCLUDED, SAME)
                ok[i, v] = a != EXCLUDED and b != EXCLUDED
                same = same and a == SAME and b == SAME
            survives = survives or ok[i, v]
            rows += count[i, v + 1]
        if leaf and d.lo[place] == column:
            state[d.slot[m], v] = COPIED
        elif not survives:
            state[d.slot[m], v] = EXCLUDED
        elif same and not (copied and rows > 0):
            state[d.slot[m], v] = SAME  # nothing to condition; and a copy without rows has nothing of its own to say
        else:
            state[d.slot[m], v] = COPIED
    return ok


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
def _gain(d: DecisionArrays, e: int, column: int, touched: IntArray, rule: Rule) -> float:
    """By how much a split makes the training rows more likely, the parameters of all copies integrated out.

    With inherited priors, what is compared is one distribution for all rows of a node with one for each of its copies,
    each drawn around it; without, the two Bayesian Dirichlet scores.
    """
    values = d.values[column]
    top = d.depth[d.place[d.owner[e]]]
    state = np.zeros((touched.size, values), dtype=np.int32)
    strength = max(rule.strength, 1e-3)
    gain = 0.0
    for t in range(touched.size - 1, -1, -1):
        m = touched[t]
        own, place = elements(d, m), d.place[m]
        size = own.size
        count = _counts(d, m, own, values)
        ok = _node_state(d, m, own, column, count, d.depth[place] <= top + rule.depth, state)
        total = 0.0
        theta, part, prior = np.zeros(size), np.zeros(size), np.zeros(size)
        for i, f in enumerate(own):
            theta[i] = d.n[TRAINING, f]
            total += theta[i]
        if total == 0:
            continue
        if rule.inherit:
            for i, f in enumerate(own):
                n = theta[i]
                theta[i] = max(1e-300, (n + d.strength[m] * d.prior[f]) / (total + d.strength[m]))
                gain -= n * math.log(theta[i]) if n > 0 else 0.0
        else:
            prior[:] = strength / size
            gain -= _dirichlet(theta, prior, size)
            theta[:] = 1.0
        # Group 0 is what stays: rows without a mark, and those whose value leaves the node as it is.
        at_column = d.left[place] < 0 and d.lo[place] == column
        for g in range(values + 1):
            if g > 0 and (state[t, g - 1] != COPIED or at_column):
                continue
            kept, mass = 0, 0.0
            for i in range(size):
                if g > 0 and not ok[i, g - 1]:
                    continue
                part[kept] = count[i, g]
                if g == 0:
                    for v in range(values):
                        if state[t, v] == SAME:
                            part[kept] += count[i, v + 1]
                prior[kept] = theta[i]
                mass += prior[kept]
                kept += 1
            for i in range(kept):
                prior[i] *= strength / mass
            gain += _dirichlet(part, prior, kept)
    # The element itself: its share is divided.
    counts = np.zeros(values)
    for k in range(d.at[TRAINING, e], d.at[TRAINING, e] + d.n[TRAINING, e]):
        counts[d.mark[d.rows[d.place[d.owner[e]], k]] - 1] += 1
    return gain + _dirichlet(counts, np.ones(values), int(values))


# ---- the split itself ------------------------------------------------------------------------------------------------


@kernel
def _split(d: DecisionArrays, e: int, column: int, touched: IntArray, rule: Rule) -> None:
    """Split an element whose rows are marked; there must be room for the new nodes and elements."""
    values = d.values[column]
    owner = d.owner[e]
    state = np.zeros((touched.size, values), dtype=np.int32)
    copy = np.full((touched.size, values), NONE, dtype=np.int32)
    lost = np.zeros(2)  # of the two log-likelihoods
    add_tally(d, owner, rule.inherit, 1.0, lost)
    for t in range(touched.size - 1, -1, -1):
        _copy_node(d, e, column, touched[t], rule, state, copy, lost)

    # The element keeps the first value that is possible and is followed by one for each of the others.
    a, b, share, n = d.prime[e], d.sub[e], d.prior[e], d.n[TRAINING, e]
    was, last = d.arity[owner], NONE
    fresh = np.full(values, NONE, dtype=np.int32)
    becomes = np.full(values, COPIED, dtype=np.int32)
    for v in range(values):
        prime, sub = _looked_up(d, a, column, v, copy, NONE, a), _looked_up(d, b, column, v, copy, NONE, b)
        if prime < 0 or sub < 0:
            continue
        if last < 0:
            last = e
            d.prime[e], d.sub[e] = prime, sub
            d.refs[prime] += 1
            d.refs[sub] += 1
            becomes[v] = SAME  # its rows stay in front
        else:
            last = _new_element(d, owner, last, prime, sub, share)
        fresh[v] = last
    if was == 1 and d.arity[owner] > 1:
        d.size[SINGLES] -= 1
    for part in range(2):
        _divide(d, part, e, becomes, fresh)
    d.born[e] = d.size[BORN]
    d.size[BORN] += 1
    for f in fresh:
        if f >= 0:
            d.prior[f] = share * (d.n[TRAINING, f] + 1.0) / (n + values)
            push(d, f, rule)
    add_tally(d, owner, rule.inherit, -1.0, lost)
    for part in range(2):
        d.tally[part] -= lost[part]
    _release(d, a)
    _release(d, b)
    # Copies that only excluded elements would have used, parents first.
    for t in range(touched.size):
        for v in range(values):
            new = copy[t, v]
            if state[t, v] == COPIED and d.literal[new] < 0 and d.refs[new] == 0 and d.head[new] >= 0:
                d.refs[new] = 1
                _release(d, new)


@kernel
def _copy_node(
    d: DecisionArrays, e: int, column: int, m: int, rule: Rule, state: IntArray, copy: IntArray, lost: FloatArray
) -> None:
    """Make the copies of a touched node for all values, and divide its rows among them.

    The node's rows of ``state`` and ``copy`` are filled in: ``copy[t, v]`` is what takes the place of touched node t
    under value v, NONE if that is impossible. What the two log-likelihoods lose is added to ``lost``.
    """
    t, place, own, values = d.slot[m], d.place[m], elements(d, m), d.values[column]
    leaf = d.left[place] < 0
    at_column = leaf and d.lo[place] == column
    near = d.depth[place] <= d.depth[d.place[d.owner[e]]] + rule.depth
    ok = _node_state(d, m, own, column, _counts(d, m, own, values), near, state)
    add_tally(d, m, rule.inherit, 1.0, lost)
    total = 0
    for f in own:
        total += d.n[TRAINING, f]
    mass = total + d.strength[m]
    for v in range(values):
        if at_column:
            copy[t, v] = d.literal_of[column] + v
        elif state[t, v] == SAME:
            copy[t, v] = m
        elif state[t, v] == COPIED:
            copy[t, v] = _new_node(d, place, rule.strength)
    fresh, last = np.full(values, NONE, dtype=np.int32), np.full(values, NONE, dtype=np.int32)
    for i, f in enumerate(own):
        theta = (d.n[TRAINING, f] + d.strength[m] * d.prior[f]) / mass if mass > 0 else d.prior[f]
        for v in range(values):
            fresh[v] = NONE
            if not at_column and state[t, v] == COPIED and ok[i, v]:
                prime, sub = d.prime[f], d.sub[f]
                if not leaf:
                    prime = _looked_up(d, prime, column, v, copy, NONE, prime)
                    sub = _looked_up(d, sub, column, v, copy, NONE, sub)
                fresh[v] = last[v] = _new_element(d, copy[t, v], last[v], prime, sub, theta)
        for part in range(2):
            _divide(d, part, f, state[t], fresh)
    add_tally(d, m, rule.inherit, -1.0, lost)
    for v in range(values):
        if not at_column and state[t, v] == COPIED:
            _finish(d, copy[t, v], rule)
            add_tally(d, copy[t, v], rule.inherit, -1.0, lost)


@kernel
def _divide(d: DecisionArrays, part: int, e: int, state: IntArray, fresh: IntArray) -> None:
    """Sort an element's rows: those that stay, then those of each value, which go to the element ``fresh`` has for it.

    ``part`` is TRAINING or VALIDATION; rows of a value whose ``state`` is SAME stay.
    """
    values, at, n = state.size, d.at[part, e], d.n[part, e]
    rows = d.rows[d.place[d.owner[e]]]
    number = np.zeros(values + 1, dtype=np.int64)
    for i in range(at, at + n):
        g = d.mark[rows[i]]
        number[0 if g > 0 and state[g - 1] == SAME else g] += 1
    where = np.zeros(values + 1, dtype=np.int64)
    for g in range(1, values + 1):
        where[g] = where[g - 1] + number[g - 1]
        if fresh[g - 1] >= 0 and state[g - 1] == COPIED:
            d.at[part, fresh[g - 1]] = at + where[g]
            d.n[part, fresh[g - 1]] = number[g]
    d.n[part, e] = number[0]
    if number[0] == n:
        return
    for i in range(at, at + n):
        g = d.mark[rows[i]]
        k = 0 if g > 0 and state[g - 1] == SAME else g
        d.scratch[where[k]] = rows[i]
        where[k] += 1
    for i in range(n):
        rows[at + i] = d.scratch[i]


@kernel
def _new_node(d: DecisionArrays, place: int, strength: float) -> int:
    """A node without elements at a vtree node; ``strength`` is the weight of its prior in rows."""
    m = d.size[FREE_NODE]
    if m >= 0:
        d.size[FREE_NODE] = d.head[m]
    else:
        m = d.size[NODES]
        d.size[NODES] += 1
    d.place[m], d.head[m], d.arity[m], d.refs[m], d.literal[m] = place, NONE, 0, 0, NONE
    d.strength[m], d.stamp[m] = strength, 0
    return int(m)


@kernel
def _new_element(d: DecisionArrays, m: int, last: int, prime: int, sub: int, prior: float) -> int:
    """Add an element without rows to node ``m`` behind its element ``last``, NONE if it is the node's first."""
    f = d.size[FREE_ELEMENT]
    if f >= 0:
        d.size[FREE_ELEMENT] = d.after[f]
    else:
        f = d.size[ELEMENTS]
        d.size[ELEMENTS] += 1
    d.owner[f], d.prime[f], d.sub[f], d.prior[f], d.born[f] = m, prime, sub, prior, d.size[BORN]
    d.at[:, f] = 0
    d.n[:, f] = 0
    d.size[BORN] += 1
    if sub >= 0:
        d.refs[prime] += 1
        d.refs[sub] += 1
        d.size[LIVE_ELEMENTS] += 1
    if last >= 0:
        d.after[f], d.after[last] = d.after[last], f
    else:
        d.after[f], d.head[m] = NONE, f
    d.arity[m] += 1
    return int(f)


@kernel
def _finish(d: DecisionArrays, m: int, rule: Rule) -> None:
    """A new node is complete: make its priors add up to 1 and queue its elements."""
    own = elements(d, m)
    mass = 0.0
    for f in own[::-1]:
        mass += d.prior[f]
    for f in own:
        d.prior[f] = d.prior[f] / mass if mass > 0 else 1.0 / own.size
        push(d, f, rule)
    if own.size == 1 and d.left[d.place[m]] >= 0:
        d.size[SINGLES] += 1


@kernel
def _release(d: DecisionArrays, c: int) -> None:
    """Node ``c`` has one parent less; a node without any goes, and so may those below it."""
    stack = np.full(64, c, dtype=np.int32)
    height = 1
    while height > 0:
        height -= 1
        m = stack[height]
        d.refs[m] -= 1
        if d.refs[m] > 0:
            continue
        inner = d.left[d.place[m]] >= 0
        if inner and d.arity[m] == 1:
            d.size[SINGLES] -= 1
        for f in elements(d, m):
            if inner:
                if height + 2 > stack.size:
                    stack = _doubled(stack)
                stack[height], stack[height + 1] = d.prime[f], d.sub[f]
                height += 2
                d.size[LIVE_ELEMENTS] -= 1
            d.born[f] = -1
            d.after[f] = d.size[FREE_ELEMENT]
            d.size[FREE_ELEMENT] = f
        d.head[m] = d.size[FREE_NODE]
        d.arity[m] = 0
        d.size[FREE_NODE] = m
