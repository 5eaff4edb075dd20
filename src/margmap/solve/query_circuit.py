"""The solvers' circuit: indicators, products and sums with plain weights; and the one way to make it smaller."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.foundation.pairs import EPS, STEP, TINY, UP, decoded, encoded, log_of, normal, plus
from margmap.inference.dense import block_rows, mostly_blocks
from margmap.solve.parts import upwards

LEAF = 0

# The product of two numbers above this is above TINY.
SMALL = 2.0**-249

# A bound that would vanish is kept at this instead: it may only grow by rounding.
SMALLEST = 2.0**-1000


#: Where kernels take the first rows of dense blocks, for a circuit with few of them.
NO_ROWS = np.empty(0, dtype=np.int32)

# Nodes of so many edges are hashed in a way of their own.
MANY_EDGES = 16


class Flat(NamedTuple):
    """Flat arrays, as kernels take them. Children come before parents; the last node is the root.

    Leaf ``n`` is the indicator of query variable ``var[n]`` (a position in the query) having ``value[n]``. Edges below
    a product have weight 1. A negative weight is the logarithm to base 2 of one that is too small to stand for itself,
    see :mod:`margmap.foundation.pairs`.
    """

    kind: KindArray
    start: LongArray
    child: IntArray
    weight: FloatArray
    var: IntArray
    value: IntArray

    @property
    def num_nodes(self) -> int:
        """Nodes, leaves included; 0 for the circuit that is zero everywhere."""
        return int(self.kind.size)

    @property
    def num_edges(self) -> int:
        """Edges, below sums and products alike."""
        return int(self.child.size)


def rows_of(flat: Flat, parts: LongArray | None = None, known: IntArray | None = None) -> IntArray | None:
    """For each node the first row of its dense block, or -1, see :mod:`margmap.inference.dense`.

    None if most edges are in none: kernels have machine code of its own for that. Whoever made the circuit may have
    found the rows on the way (``known``).
    """
    if known is not None:
        return known if mostly_blocks(flat.start, known) else None

    def work(begin: int, end: int) -> IntArray:  # whose children are others than those of other parts
        rows: IntArray = block_rows(flat.kind[begin:end], flat.start[begin : end + 1], flat.child, flat.weight, None)
        rows[rows >= 0] += np.int32(begin)
        return rows

    found = upwards(parts, flat.num_nodes, work)
    rows = found[0] if parts is None else np.concatenate(found)
    return rows if mostly_blocks(flat.start, rows) else None


def rebuild(flat: Flat, keep: NDArray[np.bool_], run: Runner = to_the_end) -> tuple[Flat, float]:
    """The circuit without the edges not kept, in its smallest form, and the log of a factor taken out of it.

    A product that lost a child is zero and goes, with all that only it used; a node with one child left becomes that
    child, its weight moving up; edges of one sum to the same child are added; equal nodes are shared. Whatever is
    computed is rounded up: under every state the new circuit times the factor is at least the old one.
    """
    work = partial(rebuild_until, flat, keep)
    kind, start, child, weight, var, value, log_factor = run(work, flat.num_edges, rebuild_room(flat))
    return Flat(kind, start, child, weight, var, value), float(log_factor)


def rebuild_room(flat: Flat) -> int:
    """Bytes that :func:`rebuild` takes at most: everything twice, a hash table, and what each old node becomes."""
    return 24 * flat.num_edges + 92 * flat.num_nodes


@kernel
def trimmed(
    kind: KindArray,
    start: LongArray,
    child: IntArray,
    weight: FloatArray,
    var: IntArray,
    value: IntArray,
    nodes: int,
    edges: int,
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray]:
    """The arrays of a circuit without the room at their ends."""
    return (
        kind[:nodes].copy(),
        start[: nodes + 1].copy(),
        child[:edges].copy(),
        weight[:edges].copy(),
        var[:nodes].copy(),
        value[:nodes].copy(),
    )


@kernel
def live_nodes(f: Flat, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The nodes that are not zero and that the root still reaches."""
    n_nodes = f.kind.size
    alive = np.zeros(n_nodes, dtype=np.bool_)
    for n in range(n_nodes):
        if f.kind[n] == SUM:
            for e in range(f.start[n], f.start[n + 1]):
                alive[n] |= keep[e] and f.weight[e] != 0 and alive[f.child[e]]
        else:
            alive[n] = True
            for e in range(f.start[n], f.start[n + 1]):
                alive[n] &= keep[e] and alive[f.child[e]]
    reached = np.zeros(n_nodes, dtype=np.bool_)
    if n_nodes > 0:
        reached[n_nodes - 1] = alive[n_nodes - 1]
    for n in range(n_nodes - 1, -1, -1):
        if reached[n]:
            for e in range(f.start[n], f.start[n + 1]):
                if keep[e] and f.weight[e] != 0 and alive[f.child[e]]:
                    reached[f.child[e]] = True
    return reached


def rounding_of(flat: Flat) -> float:
    """How far, relatively, a pass over the circuit with plain sums and products can be from the exact values.

    A product's value gathers the roundings of all its children, a sum's those of the worst child.
    """
    return float(EPS * operations(flat, NO_ROWS)) if flat.num_nodes else 0.0


@kernel
def operations(f: Flat, rows: IntArray) -> float:
    """The roundings that the root's value gathers in a pass up; ``rows`` has the first rows of blocks, or nothing."""
    count = np.zeros(f.kind.size)
    count_operations(f, rows, count, 0)
    return float(count[f.kind.size - 1])


@kernel
def count_operations(f: Flat, rows: IntArray, count: FloatArray, begin: int) -> None:
    """The same for every node from ``begin`` on; ``count`` has zeros there."""
    for n in range(begin, f.kind.size):
        if rows.size > 0 and 0 <= rows[n] < n:  # the same children
            count[n] = count[rows[n]]
            continue
        for e in range(f.start[n], f.start[n + 1]):
            below = count[f.child[e]]
            count[n] = max(count[n], below) if f.kind[n] == SUM else count[n] + below
        count[n] += f.start[n + 1] - f.start[n] + 2


@kernel(inline=True)
def size_of(weight: float, factor: float, exponent: float) -> float:
    """The exponent that a term ``weight * factor * 2**exponent`` is measured by: 0 unless it is very small."""
    if weight > SMALL and factor > SMALL and exponent == 0:
        return 0.0
    value, power = decoded(weight)
    return normal(value * factor, power + exponent)[1]


@kernel(inline=True)
def added(a: float, b: float) -> float:
    """The sum of two weights, rounded up."""
    if a > 0 and b > 0:
        return (a + b) * UP
    value, exponent = decoded(a)
    other, other_exponent = decoded(b)
    value, exponent = plus(value, exponent, other, other_exponent)
    return encoded(value * UP, exponent)


@kernel
def hash_of_children(child: IntArray, begin: int, end: int) -> Any:
    """What the children of a node with many edges add to its hash."""
    factor = np.uint64(0x9E3779B97F4A7C15)
    h = np.uint64(0)
    for i in range(end - begin):
        h += np.uint64(child[begin + i]) * (np.uint64(i) * (factor - np.uint64(1)) + factor)
    return h


@kernel
def hash_of_weights(bits: NDArray[np.uint64], begin: int, end: int) -> Any:
    """What the weights of a node with many edges add to its hash."""
    factor, half = np.uint64(0xD6E8FEB86659FD93), np.uint64(32)
    h = np.uint64(0)
    for i in range(end - begin):
        h += (bits[begin + i] ^ (bits[begin + i] >> half)) * (np.uint64(i) * (factor - np.uint64(1)) + factor)
    return h


@kernel
def finished_hash(node_kind: int, edges: Any) -> Any:
    """The hash of a node with many edges, from what its children and weights add."""
    odd, fold = np.uint64(0xBF58476D1CE4E5B9), np.uint64(29)
    h = (edges ^ (edges >> np.uint64(32)) ^ np.uint64(node_kind)) * odd
    return h ^ (h >> fold)


@kernel(inline=True)
def _hash(child: IntArray, bits: NDArray[np.uint64], node_kind: int, begin: int, end: int) -> Any:
    """A hash of a node's kind and edges. Each step waits for the step before, so that of many edges it is a sum."""
    odd, fold, half = np.uint64(0xBF58476D1CE4E5B9), np.uint64(29), np.uint64(32)
    h = np.uint64(node_kind) * np.uint64(0x9E3779B97F4A7C15)
    if end - begin < MANY_EDGES:
        for e in range(begin, end):
            h = (h ^ np.uint64(child[e]) ^ bits[e]) * odd
            h ^= h >> fold
        return h
    # The same as finished_hash of both sums: a call that takes arrays would cost all nodes more than their own hash.
    one, other = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
    h = np.uint64(0)
    for i in range(end - begin):
        place = np.uint64(i)
        h += np.uint64(child[begin + i]) * (place * (one - np.uint64(1)) + one)
        h += (bits[begin + i] ^ (bits[begin + i] >> half)) * (place * (other - np.uint64(1)) + other)
    h = (h ^ (h >> half) ^ np.uint64(node_kind)) * odd
    return h ^ (h >> fold)


@kernel(inline=True)
def equal_node(
    kind: KindArray,
    start: LongArray,
    child: IntArray,
    weight: FloatArray,
    bits: NDArray[np.uint64],
    slots: IntArray,
    node_kind: int,
    begin: int,
    end: int,
) -> tuple[int, int]:
    """The node of this kind with the edges ``begin`` to ``end``, or -1, and its slot, where it is to be put if new.

    ``slots`` is a hash table whose size is a power of two; ``bits`` are those of the weights.
    """
    hashed = _hash(child, bits, node_kind, begin, end)
    return node_with_hash(kind, start, child, weight, slots, node_kind, begin, end, hashed)


@kernel(inline=True)
def node_with_hash(
    kind: KindArray,
    start: LongArray,
    child: IntArray,
    weight: FloatArray,
    slots: IntArray,
    node_kind: int,
    begin: int,
    end: int,
    hashed: Any,
) -> tuple[int, int]:
    """The same for a node whose hash is known."""
    slot = np.int64(hashed & np.uint64(slots.size - 1))
    while slots[slot] >= 0:
        k = slots[slot]
        if kind[k] == node_kind and start[k + 1] - start[k] == end - begin:
            same = True
            for e in range(end - begin):
                if child[start[k] + e] != child[begin + e] or weight[start[k] + e] != weight[begin + e]:
                    same = False
                    break
            if same:
                return k, slot
        slot = (slot + 1) & (slots.size - 1)
    return -1, slot


@kernel
def log_factor_of(factor: float, exponent: float) -> float:
    """The logarithm of a factor that was taken out of a circuit, rounded up."""
    if factor == 1 and exponent == 0:
        return 0.0
    rest = log_of(factor, exponent)
    rest += 4 * EPS * (1 + abs(rest))
    return rest


@kernel
def rebuild_kernel(
    f: Flat, keep: NDArray[np.bool_]
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray, float]:
    """The same for kernels."""
    return rebuild_until(f, keep, np.zeros(1, dtype=np.int64))


@kernel
def rebuild_until(
    f: Flat, keep: NDArray[np.bool_], stop: LongArray
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray, float]:
    """What :func:`rebuild` does, for other kernels to call: the arrays of the circuit and the log of the factor."""
    live = live_nodes(f, keep)
    room_nodes, room_edges = 0, 0
    for n in range(f.kind.size):
        if live[n]:
            room_nodes += 1
            room_edges += f.start[n + 1] - f.start[n]
    kind = np.zeros(room_nodes, dtype=np.int8)
    start = np.zeros(room_nodes + 1, dtype=np.int64)
    child = np.zeros(room_edges, dtype=np.int32)
    weight = np.zeros(room_edges)
    bits = weight.view(np.uint64)
    var = np.full(room_nodes, -1, dtype=np.int32)
    leaf_value = np.full(room_nodes, -1, dtype=np.int32)
    count = 0

    # Each old node is a factor, `factor * 2**exponent`, times a new one.
    number = np.full(f.kind.size, -1, dtype=np.int32)
    factor, exponent = np.ones(f.kind.size), np.zeros(f.kind.size)
    seen_at = np.full(room_nodes, -1, dtype=np.int64)  # edge of the current sum that leads to a new node
    size = 64
    while size < 2 * room_nodes:
        size *= 2
    slots = np.full(size, -1, dtype=np.int32)

    for n in range(f.kind.size):
        if stop[0] != 0:
            break
        if not live[n]:
            continue
        begin = start[count]
        end = begin
        if f.kind[n] == PRODUCT:
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                child[end], weight[end] = number[c], 1.0
                end += 1
                if factor[c] != 1:
                    factor[n] = factor[n] * factor[c] * UP
                exponent[n] += exponent[c]
                if factor[n] < TINY:
                    factor[n] /= TINY
                    exponent[n] -= STEP
        elif f.kind[n] == SUM:
            top = -np.inf
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                if keep[e] and f.weight[e] != 0 and live[c]:
                    top = max(top, size_of(f.weight[e], factor[c], exponent[c]))
            exponent[n] = top
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                if not (keep[e] and f.weight[e] != 0 and live[c]):
                    continue
                w = f.weight[e]
                if factor[c] != 1 or exponent[c] != 0 or top != 0:
                    v, power = decoded(w)
                    w = encoded(v * factor[c] * UP, power + exponent[c] - top)
                if seen_at[number[c]] >= 0:
                    weight[seen_at[number[c]]] = added(weight[seen_at[number[c]]], w)
                else:
                    seen_at[number[c]] = end
                    child[end], weight[end] = number[c], w
                    end += 1
            for e in range(begin, end):
                seen_at[child[e]] = -1
        if end == begin + 1:
            number[n] = child[begin]
            if f.kind[n] == SUM:
                factor[n] = weight[begin]  # a double, since it was measured by its own size
            continue
        found, slot = -1, 0
        if f.kind[n] != LEAF:
            found, slot = equal_node(kind, start, child, weight, bits, slots, f.kind[n], begin, end)
        if found >= 0:
            number[n] = found
            continue
        if f.kind[n] == LEAF:
            var[count], leaf_value[count] = f.var[n], f.value[n]
        else:
            slots[slot] = count
        kind[count] = f.kind[n]
        number[n] = count
        count += 1
        start[count] = end
    edges = start[count]
    rest = log_factor_of(factor[f.kind.size - 1], exponent[f.kind.size - 1]) if room_nodes > 0 else 0.0
    return (*trimmed(kind, start, child, weight, var, leaf_value, count, edges), rest)
