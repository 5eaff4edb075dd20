"""The checker's own view of a circuit: is it smooth and decomposable, what is a state worth, what bounds it from above.

Nothing here is shared with the solvers. :func:`enclose` evaluates a state in intervals. :func:`fold` makes the *upper
circuit*: a circuit over the query variables alone that is nowhere below the given one under the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.certificate.intervals import (
    MOST_LOG,
    UNIT,
    Pair,
    exp_pair,
    gauss_pair,
    less,
    over,
    pair_of,
    plain_above,
    plus,
    product_above,
    raised,
    times,
)
from margmap.circuit import (
    BERNOULLI,
    BINOMIAL,
    CATEGORICAL,
    GAUSSIAN,
    INDICATOR,
    PRODUCT,
    SUM,
    Circuit,
    FloatArray,
    IntArray,
    KindArray,
    LongArray,
)
from margmap.errors import StructureError
from margmap.foundation.jit import kernel
from margmap.foundation.sorting import descending

Bits = NDArray[np.uint64]
Flags = NDArray[np.bool_]

# Whether children exclude each other is looked at only where the sets of possible values take less room than this (in
# words) and a sum has no more children than that, and until so many words were looked at; elsewhere bounds are looser,
# which is safe.
SUPPORT_ROOM = 1 << 25
MOST_CHILDREN = 2000
MOST_LOOKS = 1 << 28

# Values of all leaves together; the circuits that are solved have fewer.
MOST_ENTRIES = 1 << 27


class Arrays(NamedTuple):
    """The arrays of a circuit, as kernels take them, and bounds of what every discrete leaf says of every value.

    Leaf n has ``table_start[n + 1] - table_start[n]`` of them: one a value, and the last for all values together.
    """

    kind: KindArray
    start: LongArray
    child: IntArray
    log_weight: FloatArray
    var: IntArray
    param_start: LongArray
    param: FloatArray
    table_start: LongArray
    #: Of every value a bound below, in the first row, and a bound above, in the second.
    mantissa: FloatArray
    exponent: LongArray


class Made(NamedTuple):
    """The nodes that :func:`fold` makes, with the fields of :class:`Upper`, in arrays with room for more."""

    kind: KindArray
    start: LongArray
    child: IntArray
    weight: FloatArray
    var: IntArray


class Upper(NamedTuple):
    """A circuit over the query that bounds the given one: p(q, e) <= ``scale`` * (value of the last node).

    The value of a node is about 1 at most, and never more than ``bound``. A leaf's ``child`` are values of its variable
    and ``weight`` what it says of them.
    """

    kind: KindArray
    start: LongArray
    child: IntArray
    weight: FloatArray
    #: The place of a leaf's variable in the query.
    var: IntArray
    bound: FloatArray
    scale: Pair


def prepare(circuit: Circuit) -> tuple[Arrays, frozenset[int]]:
    """Check what every claim about a circuit rests on, and bound its leaves. Also the variables below its root."""
    words = max(1, -(-len(circuit.variables) // 64))
    node, smooth, root = _first_violation(circuit.kind, circuit.start, circuit.child, circuit.var, words)
    if node >= 0:
        raise StructureError(f"node {node}: the circuit is not {'decomposable' if smooth else 'smooth'}")
    if circuit.log_weight.size and circuit.log_weight.max() > MOST_LOG:
        raise StructureError(f"a log weight is above {MOST_LOG:g}: nothing can be proven of such numbers")
    sizes = np.where(circuit.kind < GAUSSIAN, circuit.cardinality[circuit.var] + 1, 0)
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)))
    if start[-1] > max(MOST_ENTRIES, 4 * circuit.param.size):
        raise StructureError(f"the leaves have {start[-1]} values in all, more than {MOST_ENTRIES}")
    tables = _tables(circuit.kind, circuit.param_start, circuit.param, start)
    scope = np.flatnonzero(np.unpackbits(root.astype("<u8").view(np.uint8), bitorder="little"))
    c = circuit
    arrays = Arrays(c.kind, c.start, c.child, c.log_weight, c.var, c.param_start, c.param, start, *tables)
    return arrays, frozenset(scope.tolist())


def weighted(arrays: Arrays, weights: Mapping[int, Sequence[float]]) -> Arrays:
    """The same with the leaves of some variables multiplied by what evidence says of each value."""
    mantissa, exponent = arrays.mantissa.copy(), arrays.exponent.copy()
    for column, numbers in weights.items():
        _multiply(arrays.kind, arrays.var, arrays.table_start, mantissa, exponent, column, np.array(numbers))
    return arrays._replace(mantissa=mantissa, exponent=exponent)


def enclose(arrays: Arrays, codes: IntArray, reals: FloatArray) -> tuple[Pair, Pair]:
    """Two pairs between which the value of the circuit lies under one row of codes and real values."""
    return _value(arrays, codes, reals, False), _value(arrays, codes, reals, True)


def fold(arrays: Arrays, codes: IntArray, reals: FloatArray, position: IntArray, cardinality: IntArray) -> Upper:
    """The upper circuit. ``position`` is the place of each variable in the query, -1 for the others."""
    words = max(1, -(-cardinality.size // 64))
    groups = int(cardinality.max()) if cardinality.size else 1
    looks = MOST_LOOKS if arrays.kind.size * words * groups <= SUPPORT_ROOM else 0
    made, excluding, root, scale = _fold(arrays, codes, reals, position, words, groups, looks)
    # The nodes below the root, numbered anew; none if the root is a constant (-1).
    kind, start = made.kind[: root + 1], made.start[: root + 2]
    child, weight = made.child[: start[-1]], made.weight[: start[-1]]
    keep, sizes = _reached(kind, start, child), np.diff(start)
    edges = np.repeat(keep, sizes)
    inner = np.repeat(kind != INDICATOR, sizes)
    child[inner] = (np.cumsum(keep, dtype=np.int32) - np.int32(1))[child[inner]]
    kind, start = kind[keep], np.concatenate((start[:1], np.cumsum(sizes[keep])))
    child, weight, var = child[edges], weight[edges], made.var[: root + 1][keep]
    bound = _bounds(kind, start, child, weight, excluding[: root + 1][keep])
    return Upper(kind, start, child, weight, var, bound, scale)


@kernel
def _first_violation(
    kind: KindArray, start: LongArray, child: IntArray, var: IntArray, words: int
) -> tuple[int, bool, Bits]:
    """The first node that is not as it should be, and whether all sums up to there are smooth; -1 if there is none.

    Then the last is the scope of the root. Every distinct scope is stored once and found again through a hash table.
    """
    scope = np.zeros(kind.size, dtype=np.int32)
    bits = np.zeros((64, words), dtype=np.uint64)
    slots = _slots(kind.size)
    count = 0
    row = np.zeros(words, dtype=np.uint64)
    for n in range(kind.size):
        if kind[n] == SUM:
            scope[n] = scope[child[start[n]]]
            for e in range(start[n], start[n + 1]):
                if scope[child[e]] != scope[n]:
                    return n, False, row
            continue
        row[:] = 0
        if kind[n] == PRODUCT:
            for e in range(start[n], start[n + 1]):
                for w in range(words):
                    if row[w] & bits[scope[child[e]], w]:
                        return n, True, row
                    row[w] |= bits[scope[child[e]], w]
        else:
            row[var[n] >> 6] = np.uint64(1) << np.uint64(var[n] & 63)
        at = _hash(row, slots.size)
        while slots[at] >= 0 and not np.array_equal(bits[slots[at]], row):
            at = (at + 1) % slots.size
        if slots[at] < 0:
            if count == bits.shape[0]:
                wider = np.zeros((2 * count, words), dtype=np.uint64)
                wider[:count] = bits
                bits = wider
            bits[count] = row
            slots[at] = count
            count += 1
        scope[n] = slots[at]
    return -1, True, bits[scope[-1]].copy()


@kernel
def _slots(most: int) -> IntArray:
    """An empty hash table for ``most`` things: twice as many slots at least, and a power of 2."""
    size = 2
    while size < 2 * most:
        size *= 2
    return np.full(size, -1, dtype=np.int32)


@kernel
def _hash(words: Bits, size: int) -> int:
    """A place in a table of ``size`` slots, a power of 2."""
    h = np.uint64(1469598103934665603)
    for word in words:
        h = (h ^ word) * np.uint64(0x9FB21C651E98DF25)
        h ^= h >> np.uint64(32)
    return int(np.int64(h & np.uint64(size - 1)))


@kernel
def _tables(
    kind: KindArray, param_start: LongArray, param: FloatArray, start: LongArray
) -> tuple[FloatArray, LongArray]:
    """Bounds of what every discrete leaf says of each value, and in all; those of leaf n begin at ``start[n]``."""
    mantissa, exponent = np.zeros((2, start[-1])), np.zeros((2, start[-1]), dtype=np.int64)
    for n in range(kind.size):
        values, p = start[n + 1] - start[n] - 1, param_start[n]
        if values < 0:
            continue
        for side in range(2):
            up = side == 1
            total = (0.0, 0)
            ways = (0.5, 1)  # of choosing x out of all trials
            for x in range(values):
                one = (0.0, 0)
                if kind[n] == INDICATOR:
                    one = (0.5, 1) if x == param[p] else (0.0, 0)
                elif kind[n] == BERNOULLI:
                    one = exp_pair(param[p + 1 - x], up)
                elif kind[n] == CATEGORICAL:
                    one = exp_pair(param[p + x], up)
                elif kind[n] == BINOMIAL:
                    rest = values - 1 - x
                    one = times(ways, times(_power(param[p + 1], x, up), _power(param[p + 2], rest, up), up), up)
                    ways = over(times(ways, pair_of(float(rest), 0), up), pair_of(x + 1.0, 0), up)
                total = plus(total, one, up)
                mantissa[side, start[n] + x], exponent[side, start[n] + x] = one
            mantissa[side, start[n] + values], exponent[side, start[n] + values] = total
    return mantissa, exponent


@kernel
def _multiply(
    kind: KindArray,
    var: IntArray,
    start: LongArray,
    mantissa: FloatArray,
    exponent: LongArray,
    column: int,
    weight: FloatArray,
) -> None:
    """Multiply the bounds of a variable's leaves by a weight for each value, rounded away from the exact product."""
    for n in range(kind.size):
        if kind[n] >= GAUSSIAN or var[n] != column:
            continue
        for side in range(2):
            up = side == 1
            total = (0.0, 0)
            for x in range(weight.size):
                at = start[n] + x
                one = times((mantissa[side, at], exponent[side, at]), pair_of(weight[x], 0), up)
                mantissa[side, at], exponent[side, at] = one
                total = plus(total, one, up)
            mantissa[side, start[n] + weight.size], exponent[side, start[n] + weight.size] = total


@kernel
def _power(log_base: float, times_: int, up: bool) -> Pair:
    """A probability of at most about 1, given by its log, to a whole power."""
    if times_ == 0:
        return 0.5, 1
    if log_base == -math.inf:
        return 0.0, 0
    log = log_base * times_
    return exp_pair(log + abs(log) * UNIT if up else log - abs(log) * UNIT, up)


@kernel
def _leaf(a: Arrays, n: int, codes: IntArray, reals: FloatArray, up: bool) -> Pair:
    """A bound of leaf n, from above or below, under the evidence; a code of -1 and NaN stand for all values."""
    v = a.var[n]
    if a.kind[n] == GAUSSIAN:
        if np.isnan(reals[v]):
            return 0.5, 1
        return gauss_pair(reals[v], a.param[a.param_start[n]], a.param[a.param_start[n] + 1], up)
    return a.mantissa[int(up), a.table_start[n] + codes[v]], a.exponent[int(up), a.table_start[n] + codes[v]]


@kernel
def _value(a: Arrays, codes: IntArray, reals: FloatArray, up: bool) -> Pair:
    """A bound of the circuit's value, from above or below, under the evidence."""
    mantissa, exponent = np.zeros(a.kind.size), np.zeros(a.kind.size, dtype=np.int64)
    for n in range(a.kind.size):
        value = (0.0, 0)
        if a.kind[n] < PRODUCT:
            value = _leaf(a, n, codes, reals, up)
        elif a.kind[n] == PRODUCT:
            value = (0.5, 1)
            for e in range(a.start[n], a.start[n + 1]):
                value = times(value, (mantissa[a.child[e]], exponent[a.child[e]]), up)
        else:
            for e in range(a.start[n], a.start[n + 1]):
                c = a.child[e]
                value = plus(value, times(exp_pair(a.log_weight[e], up), (mantissa[c], exponent[c]), up), up)
        mantissa[n], exponent[n] = value
    return mantissa[-1], exponent[-1]


@kernel
def _fold(
    a: Arrays, codes: IntArray, reals: FloatArray, position: IntArray, words: int, groups: int, looks: int
) -> tuple[Made, Flags, int, Pair]:
    """Every node as a pair times a node of the new circuit (or as a pair alone, where there is nothing to ask).

    A product with one child that matters is that child, terms of a sum over the same node are added, what is 0 is left
    out, and a node that is there already is used again. All nodes are divided by a bound of their value.

    ``codes`` and ``reals`` are the evidence by variable, and ``position`` the place of each variable in the query, or
    -1. The values that a node allows are ``words`` words of bits for each of the ``groups`` largest numbers of values;
    ``looks`` is how many words may be looked at to find children that exclude each other. Also returned are which nodes
    are sums whose children do, the root (-1 if it is a constant) and its factor. All kinds of nodes are in one kernel
    because each adds to the same arrays.
    """
    n_old = a.kind.size
    target = np.full(n_old, -1, dtype=np.int32)  # -1 with a factor of 0 or more: a constant
    factor, exponent = np.zeros(n_old), np.zeros(n_old, dtype=np.int64)
    asked = np.zeros(n_old, dtype=np.bool_)
    room = a.child.size + a.mantissa.shape[1]
    most = 1
    for n in range(a.start.size - 1):
        most = max(most, a.start[n + 1] - a.start[n], a.table_start[n + 1] - a.table_start[n])
    kind, var = np.zeros(n_old, dtype=np.int8), np.full(n_old, -1, dtype=np.int32)
    start = np.zeros(n_old + 1, dtype=np.int64)
    child, weight = np.zeros(room, dtype=np.int32), np.zeros(room)
    made = Made(kind, start, child, weight, var)
    excluding = np.zeros(n_old, dtype=np.bool_)
    can = np.zeros((n_old if looks > 0 else 1, words * groups), dtype=np.uint64)
    slots = _slots(n_old)
    who = np.zeros(most, dtype=np.int32)
    term, term_exponent = np.zeros(most), np.zeros(most, dtype=np.int64)
    count = 0
    for n in range(n_old):
        if a.kind[n] < PRODUCT and position[a.var[n]] < 0:
            factor[n], exponent[n] = _leaf(a, n, codes, reals, True)
            continue
        what, size = SUM, 0
        bound = (0.0, 0)
        if a.kind[n] < PRODUCT:
            what = INDICATOR
            asked[n] = True
            for x in range(a.table_start[n + 1] - a.table_start[n] - 1):
                one = (a.mantissa[1, a.table_start[n] + x], a.exponent[1, a.table_start[n] + x])
                if one[0] > 0:
                    who[size], term[size], term_exponent[size] = x, one[0], one[1]
                    size += 1
            bound = _total(term, term_exponent, size, True)
        elif a.kind[n] == PRODUCT:
            what = PRODUCT
            bound = (0.5, 1)
            for e in range(a.start[n], a.start[n + 1]):
                c = a.child[e]
                asked[n] |= asked[c]
                bound = times(bound, (factor[c], exponent[c]), True)
                if target[c] >= 0:
                    who[size] = target[c]
                    size += 1
            who[:size] = who[descending(-who[:size])]
            if size < 2 and bound[0] > 0:
                factor[n], exponent[n] = bound
                target[n] = who[0] if size == 1 else -1
                continue
        else:
            asked[n] = asked[a.child[a.start[n]]]
            for e in range(a.start[n], a.start[n + 1]):
                c = a.child[e]
                one = times(exp_pair(a.log_weight[e], True), (factor[c], exponent[c]), True)
                if one[0] == 0:
                    continue
                if not asked[n]:
                    bound = plus(bound, one, True)
                    continue
                who[size], term[size], term_exponent[size] = target[c], one[0], one[1]
                size += 1
            if not asked[n]:
                factor[n], exponent[n] = bound
                continue
            size = _merge(who, term, term_exponent, size)
            apart = False
            if looks > 0 and size <= MOST_CHILDREN:
                apart, looked = _all_apart(can, words, who, size, looks)
                looks -= looked
            excluding[count] = apart
            bound = _total(term, term_exponent, size, apart)
            if size == 1:
                factor[n], exponent[n], target[n] = term[0], term_exponent[0], who[0]
                continue
        if bound[0] == 0:
            continue
        factor[n], exponent[n] = bound
        kind[count], var[count] = what, position[a.var[n]] if what == INDICATOR else -1
        end = start[count]
        for i in range(size):
            child[end + i] = who[i]
            weight[end + i] = 1.0
            if what != PRODUCT:
                weight[end + i] = plain_above(over((term[i], term_exponent[i]), bound, True))
        start[count + 1] = end + size
        target[n] = _found(made, slots, count)
        if target[n] == count:
            if looks > 0 and what == INDICATOR:
                for i in range(size):
                    can[count, who[i] * words + (var[count] >> 6)] = np.uint64(1) << np.uint64(var[count] & 63)
            elif looks > 0:
                looks -= size * words * groups
                for i in range(size):
                    can[count] |= can[who[i]]
            count += 1
    return made, excluding, target[-1], (factor[-1], exponent[-1])


@kernel
def _reached(kind: KindArray, start: LongArray, child: IntArray) -> Flags:
    """Which nodes lie below the last one, itself among them."""
    keep = np.zeros(kind.size, dtype=np.bool_)
    keep[kind.size - 1 :] = True
    for n in range(kind.size - 1, -1, -1):
        if keep[n] and kind[n] != INDICATOR:
            for e in range(start[n], start[n + 1]):
                keep[child[e]] = True
    return keep


@kernel
def _merge(who: IntArray, term: FloatArray, term_exponent: LongArray, size: int) -> int:
    """Sort the terms of a sum by their nodes and add those of one node."""
    order = descending(-who[:size])
    sorted_who, sorted_term, sorted_exponent = who[order].copy(), term[order].copy(), term_exponent[order].copy()
    kept = 0
    for i in range(size):
        if kept > 0 and who[kept - 1] == sorted_who[i]:
            added = plus((term[kept - 1], term_exponent[kept - 1]), (sorted_term[i], sorted_exponent[i]), True)
            term[kept - 1], term_exponent[kept - 1] = added
        else:
            who[kept], term[kept], term_exponent[kept] = sorted_who[i], sorted_term[i], sorted_exponent[i]
            kept += 1
    return kept


@kernel
def _total(term: FloatArray, term_exponent: LongArray, size: int, apart: bool) -> Pair:
    """A bound of the sum of the first ``size`` terms: their largest if they exclude each other (``apart``)."""
    total = (0.0, 0)
    for i in range(size):
        one = (term[i], term_exponent[i])
        if not apart:
            total = plus(total, one, True)
        elif less(total, one):
            total = one
    return total


@kernel
def _all_apart(can: Bits, words: int, who: IntArray, size: int, most: int) -> tuple[bool, int]:
    """Whether any two nodes have a variable of which no value is possible in both, and how many words were looked at.

    False after more than ``most`` words.
    """
    looks = 0
    for i in range(size):
        for j in range(i):
            apart, looked = _apart(can[who[i]], can[who[j]], words)
            looks += looked
            if not apart or looks > most:
                return False, looks
    return True, looks


@kernel
def _apart(a: Bits, b: Bits, words: int) -> tuple[bool, int]:
    """Whether a variable has no value that both allow, and how many words were looked at.

    Word w of the g-th group of ``words`` words says which of 64 variables may have value g.
    """
    for w in range(words):
        mentioned, both = np.uint64(0), np.uint64(0)
        for g in range(w, a.size, words):
            mentioned |= a[g]
            both |= a[g] & b[g]
        if mentioned != both:
            return True, (w + 1) * (a.size // words)
    return False, a.size


@kernel
def _found(made: Made, slots: IntArray, n: int) -> int:
    """The number of the first node that is the same as node n, which is n itself if there is none before.

    ``slots`` is a hash table of the nodes before; n is added if it is new.
    """
    kind, start, child, weight, var = made
    size = start[n + 1] - start[n]
    h = np.uint64(np.int64(kind[n]) * 1000003 + var[n] + 1)
    for e in range(start[n], start[n + 1]):
        h = (h ^ np.uint64(child[e])) * np.uint64(0x9FB21C651E98DF25)
        h ^= h >> np.uint64(29)
        h = (h ^ np.uint64(math.floor(weight[e] * 4503599627370496.0))) * np.uint64(0xD6E8FEB86659FD93)
        h ^= h >> np.uint64(32)
    at = np.int64(h & np.uint64(slots.size - 1))
    while slots[at] >= 0:
        m = slots[at]
        same = kind[m] == kind[n] and var[m] == var[n] and start[m + 1] - start[m] == size
        i = 0
        while same and i < size:
            same = child[start[m] + i] == child[start[n] + i] and weight[start[m] + i] == weight[start[n] + i]
            i += 1
        if same:
            return int(m)
        at = (at + 1) % slots.size
    slots[at] = n
    return n


@kernel
def _bounds(kind: KindArray, start: LongArray, child: IntArray, weight: FloatArray, excluding: Flags) -> FloatArray:
    """What no value of a node exceeds: the sum, or the maximum where no two children are nonzero at once."""
    bound = np.ones(kind.size)
    for n in range(kind.size):
        if kind[n] == INDICATOR:
            bound[n] = weight[start[n] : start[n + 1]].max()
            continue
        if kind[n] == PRODUCT:
            for e in range(start[n], start[n + 1]):
                bound[n] = raised(bound[n] * bound[child[e]], 1)
            continue
        bound[n] = 0.0
        for e in range(start[n], start[n + 1]):
            one = product_above(weight[e], bound[child[e]])
            bound[n] = max(bound[n], one) if excluding[n] else bound[n] + one
        bound[n] = raised(bound[n], 2 * (start[n + 1] - start[n]))
    return bound
