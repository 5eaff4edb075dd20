"""Dense blocks: sums next to each other with the same children in the same order, as layered models have them.

What depends on the children alone is looked up once for a block, and a row is then a product of two vectors.
"""

from __future__ import annotations

import numpy as np

from margmap.circuit import SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.matrices import times_vector
from margmap.foundation.pairs import STEP, TINY

#: Sums of fewer edges gain nothing by being looked at together.
LEAST_EDGES = 8


@kernel
def block_rows(
    kind: KindArray, start: LongArray, child: IntArray, weight: FloatArray, shift: FloatArray | None
) -> IntArray:
    """For each node the first row of the dense block that it is a row of, or -1.

    Rows that have an edge of weight 0, or one so small that it has a power of two beside it (``shift``) or stands as
    its logarithm, are left out.
    """
    first = np.full(kind.size, -1, dtype=np.int32)
    head, width = -1, 0
    for n in range(kind.size):
        begin, size = start[n], start[n + 1] - start[n]
        if kind[n] != SUM or size < LEAST_EDGES:
            head = -1
            continue
        if head < 0 or width != size or not _same(child[begin : begin + size], child[start[head] : start[head] + size]):
            head, width = n, size
        plain = _all_plain(weight[begin : begin + size])
        if shift is not None and plain:
            plain = _all_zero(shift[begin : begin + size])
        if plain:
            first[n] = head
    return first


def _mostly_blocks_by_numpy(start: LongArray, rows: IntArray) -> bool:
    edges, beside = np.diff(start), (rows[1:] == rows[:-1]) & (rows[1:] >= 0)
    several = np.zeros(rows.size, dtype=np.bool_)
    several[:-1] = beside
    several[1:] |= beside
    return bool(2 * edges[several].sum() > start[-1])


@kernel(interpreted=_mostly_blocks_by_numpy)
def mostly_blocks(start: LongArray, rows: IntArray) -> bool:
    """Whether most edges are in dense blocks of several rows, so that it pays to look at each block as a whole."""
    edges = 0
    for n in range(rows.size):
        if rows[n] >= 0 and ((n > 0 and rows[n - 1] == rows[n]) or (n + 1 < rows.size and rows[n + 1] == rows[n])):
            edges += start[n + 1] - start[n]
    return bool(2 * edges > start[rows.size])


@kernel
def last_row(rows: IntArray, n: int) -> int:
    """The end of the rows of a block from row ``n`` on that stand one after the other."""
    end = n + 1
    while end < rows.size and rows[end] == rows[n]:
        end += 1
    return end


@kernel
def gathered(child: IntArray, value: FloatArray) -> FloatArray:
    """The values of a block's children."""
    found = np.empty(child.size)
    for i in range(child.size):
        found[i] = value[child[i]]
    return found


@kernel
def no_powers(child: IntArray, exponent: FloatArray) -> bool:
    """Whether no child of a block has a power of two beside its value."""
    other = 0
    for i in range(child.size):
        other += exponent[child[i]] != 0
    return bool(other == 0)


@kernel
def block_values(
    start: LongArray, child: IntArray, weight: FloatArray, n: int, end: int, value: FloatArray, exponent: FloatArray
) -> bool:
    """The values of the rows ``n`` to ``end`` of a block, from those of its children.

    False if they need more than that, because a child has a power of two beside its value.
    """
    children = child[start[n] : start[n + 1]]
    if not no_powers(children, exponent):
        return False
    times_vector(weight[start[n] : start[end]], gathered(children, value), value[n:end])
    for i in range(n, end):
        exponent[i] = 0.0
        if 0 < value[i] < TINY:
            value[i] /= TINY
            exponent[i] = -STEP
    return True


@kernel
def _same(one: IntArray, other: IntArray) -> bool:
    if one[0] != other[0]:
        return False
    differs = np.int32(0)
    for i in range(one.size):
        differs |= one[i] ^ other[i]
    return bool(differs == 0)


@kernel
def _all_plain(weight: FloatArray) -> bool:
    below = 0
    for i in range(weight.size):
        below += not weight[i] > 0
    return bool(below == 0)


@kernel
def _all_zero(shift: FloatArray) -> bool:
    other = 0
    for i in range(shift.size):
        other += shift[i] != 0
    return bool(other == 0)
