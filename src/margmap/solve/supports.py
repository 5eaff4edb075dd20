"""Which values of which variables are possible below each node, and what follows: which sums are Q-deterministic."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, IntArray, LongArray
from margmap.circuit.arrays import Bits
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.solve.parts import upwards
from margmap.solve.query_circuit import LEAF, Flat

Flags = NDArray[np.bool_]


class Supports(NamedTuple):
    """Which values of which variables are possible below each node.

    Bit ``v`` of the ``k``-th group of ``words`` words says that variable ``v`` can have value ``k``.
    """

    can: Bits
    words: int


def find_supports(
    flat: Flat,
    cardinality: IntArray,
    run: Runner = to_the_end,
    rows: IntArray | None = None,
    parts: LongArray | None = None,
) -> Supports:
    """The possible values of every variable below every node; ``rows`` are the first rows of dense blocks, if known."""
    words, groups = support_words(cardinality)
    room = 8 * groups * words * flat.num_nodes

    def work(stop: LongArray) -> Bits:
        can = np.zeros((flat.num_nodes, groups * words), dtype=np.uint64)
        upwards(parts, flat.num_nodes, lambda begin, end: supports_of_range(flat, rows, words, can, begin, end, stop))
        return can

    return Supports(run(work, room // 8 + flat.num_edges, room), words)


def support_words(cardinality: IntArray) -> tuple[int, int]:
    """How many words a group of :class:`Supports` has, and how many groups there are."""
    return max(1, -(-cardinality.size // 64)), int(cardinality.max()) if cardinality.size else 1


def no_supports(cardinality: IntArray) -> Supports:
    """The supports of a view that has none."""
    return Supports(np.zeros((0, 0), dtype=np.uint64), support_words(cardinality)[0])


def possible(supports: Supports, variables: int) -> Flags:
    """By variable and value: whether the root can be other than zero with it."""
    groups = supports.can[-1].reshape(-1, supports.words)
    bits = np.unpackbits(groups.view(np.uint8), axis=1, bitorder="little")[:, :variables]
    result: Flags = bits.T != 0
    return result


def undecided(supports: Supports, variables: int) -> Flags:
    """The variables with more than one value possible below the root."""
    result: Flags = possible(supports, variables).sum(axis=1) > 1
    return result


def find_deterministic(
    flat: Flat,
    supports: Supports,
    run: Runner = to_the_end,
    rows: IntArray | None = None,
    parts: LongArray | None = None,
) -> Flags:
    """The sums any two children of which exclude each other on some variable (Q-determinism, a sufficient test)."""

    def work(stop: LongArray) -> Flags:
        found = np.zeros(flat.num_nodes, dtype=np.bool_)
        given = (flat, rows, supports.can, supports.words, found)
        upwards(parts, flat.num_nodes, lambda begin, end: deterministic_range(*given, begin, end, stop))
        return found

    return run(work, supports.can.size + flat.num_edges, flat.num_nodes)


def deterministic_if_plain(
    flat: Flat,
    cardinality: IntArray,
    run: Runner = to_the_end,
    rows: IntArray | None = None,
    parts: LongArray | None = None,
) -> Flags | None:
    """What :func:`find_deterministic` finds, where it can be told without supports, as in most latent trees.

    None where it takes them.
    """

    return run(partial(flags_if_plain, flat, cardinality, rows, parts), flat.num_edges, 2 * flat.num_nodes)


def flags_if_plain(
    flat: Flat, cardinality: IntArray, rows: IntArray | None, parts: LongArray | None, stop: LongArray
) -> Flags | None:
    """What :func:`deterministic_if_plain` does, for work that goes on with it."""
    found, whole = np.zeros(flat.num_nodes, dtype=np.bool_), np.zeros(flat.num_nodes, dtype=np.bool_)
    given = (flat, rows, cardinality, whole, found)
    told = upwards(parts, flat.num_nodes, lambda begin, end: _plain_range(*given, begin, end, stop))
    return found if all(told) else None


@kernel
def _plain_range(
    f: Flat,
    rows: IntArray | None,
    cardinality: IntArray,
    whole: Flags,
    result: Flags,
    begin: int,
    end: int,
    stop: LongArray,
) -> bool:
    """Which sums of a range are deterministic; False if that cannot be told of all. All flags are False before.

    A node is ``whole`` if below it every value of every variable of its scope is possible. Whatever is possible at
    another child of the same sum is then possible here too, so that the two do not exclude each other.
    """
    for n in range(begin, end):
        if stop[0] != 0:
            break
        if rows is not None and 0 <= rows[n] < n:
            whole[n], result[n] = whole[rows[n]], result[rows[n]]
        elif f.kind[n] == LEAF:
            whole[n] = cardinality[f.var[n]] == 1
        else:
            all_whole, any_whole, indicators = True, False, True
            for e in range(f.start[n], f.start[n + 1]):
                all_whole &= whole[f.child[e]]
                any_whole |= whole[f.child[e]]
                indicators &= f.kind[f.child[e]] == LEAF
            if f.kind[n] == PRODUCT:
                whole[n] = all_whole
            elif f.start[n + 1] - f.start[n] == 1:
                whole[n], result[n] = all_whole, True
            elif indicators:
                whole[n] = f.start[n + 1] - f.start[n] == cardinality[f.var[f.child[f.start[n]]]]
                result[n] = True
            elif any_whole:
                whole[n] = True
            else:
                return False
    return True


@kernel
def supports_of_range(
    f: Flat, rows: IntArray | None, words: int, can: Bits, begin: int, end: int, stop: LongArray
) -> None:
    """The possible values below the nodes of a range; all bits are 0 before."""
    for n in range(begin, end):
        if stop[0] != 0:
            break
        if rows is not None and 0 <= rows[n] < n:  # the same children
            can[n] = can[rows[n]]
            continue
        if f.kind[n] == LEAF:
            can[n, f.value[n] * words + (f.var[n] >> 6)] = np.uint64(1) << np.uint64(f.var[n] & 63)
        for e in range(f.start[n], f.start[n + 1]):
            for w in range(can.shape[1]):
                can[n, w] |= can[f.child[e], w]


@kernel(inline=True)
def exclude(can: Bits, words: int, a: int, b: int) -> bool:
    """Whether some variable below nodes ``a`` and ``b`` (of one scope) has no value possible in both."""
    for w in range(words):
        scope, common = np.uint64(0), np.uint64(0)
        for g in range(w, can.shape[1], words):
            scope |= can[a, g]
            common |= can[a, g] & can[b, g]
        if scope != common:
            return True
    return False


@kernel
def deterministic_range(
    f: Flat, rows: IntArray | None, can: Bits, words: int, result: Flags, begin: int, end: int, stop: LongArray
) -> None:
    """Which sums of a range are deterministic; all flags are False before."""
    for n in range(begin, end):
        if f.kind[n] != SUM:
            continue
        if rows is not None and 0 <= rows[n] < n:
            result[n] = result[rows[n]]
            continue
        result[n] = True
        for e in range(f.start[n] + 1, f.start[n + 1]):
            if stop[0] != 0:
                return
            for other in range(f.start[n], e):
                if not exclude(can, words, f.child[e], f.child[other]):
                    result[n] = False
                    break
            if not result[n]:
                break
