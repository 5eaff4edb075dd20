"""Upper bounds on a reduced circuit: of every node, of the root through every edge, of the root under every literal.

The proofs are in ``docs/algorithms.md``. All passes after the first work with *shares*: the share of an edge is its
child's bound times its weight, over the bound of its node, so that every number is relative to the root's bound.
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, LongArray
from margmap.circuit.structure import Bits, intern_scopes
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import EPS, STEP, TINY, UP, decoded, log_of, moved, normal, plus, raised
from margmap.solve.query_circuit import LEAF, SMALLEST, Flat, Runner, to_the_end

Flags = NDArray[np.bool_]

# Relative values of one pass of conditional bounds; more literals are done in several passes.
CONDITIONAL_ROOM = 5_000_000


class Supports(NamedTuple):
    """Which values of which variables are possible below each node.

    Bit ``v`` of the ``k``-th group of ``words`` words says that variable ``v`` can have value ``k``.
    """

    can: Bits
    words: int


class Bounds(NamedTuple):
    """Output bounds (Algorithm 1) and what follows from them."""

    #: Sums whose children exclude each other: they take the maximum.
    deterministic: Flags
    #: The bound of node n is ``value[n] * 2**exponent[n]``.
    value: FloatArray
    exponent: FloatArray
    #: For each edge below a sum, ``weight * bound of the child / bound of the node``, at least ``TINY``; 1 below
    #: products.
    share: FloatArray
    #: log of the root's bound.
    log_upper: float
    #: Whether all shares are what they say: none was raised to ``TINY``.
    faithful: bool = True
    #: The smallest product of the shares on a way through sums alone, at least ``SMALLEST``.
    least: float = 1.0


class View(NamedTuple):
    """A circuit with its bounds; ``log_factor`` is what has been taken out of it."""

    flat: Flat
    log_factor: float
    supports: Supports
    bounds: Bounds

    @property
    def log_upper(self) -> float:
        """log of the root's bound, with what was taken out."""
        return raised(self.log_factor, self.bounds.log_upper)


def view_of(flat: Flat, log_factor: float, cardinality: IntArray, run: Runner = to_the_end) -> View:
    """The bounds of a circuit, which may be the empty one, that of no state."""
    supports = find_supports(flat, cardinality, run)
    if flat.num_nodes == 0:
        nothing = np.zeros(0)
        return View(flat, log_factor, supports, Bounds(np.zeros(0, np.bool_), nothing, nothing, nothing, -np.inf))
    return View(flat, log_factor, supports, output_bounds(flat, find_deterministic(flat, supports, run), run))


def find_supports(flat: Flat, cardinality: IntArray, run: Runner = to_the_end) -> Supports:
    """The possible values of every variable below every node."""
    words = max(1, -(-cardinality.size // 64))
    groups = int(cardinality.max()) if cardinality.size else 1
    room = 8 * groups * words * flat.num_nodes
    return Supports(run(partial(_supports, flat, words, groups), room // 8 + flat.num_edges, room), words)


def find_deterministic(flat: Flat, supports: Supports, run: Runner = to_the_end) -> Flags:
    """The sums any two children of which exclude each other on some variable (Q-determinism, a sufficient test)."""
    work = partial(_deterministic, flat, supports.can, supports.words)
    return run(work, supports.can.size + flat.num_edges, flat.num_nodes)


def output_bounds(flat: Flat, deterministic: Flags, run: Runner = to_the_end) -> Bounds:
    """Algorithm 1: the maximum at deterministic sums, the sum at the others, the product at products."""
    work = partial(_output_bounds, flat, deterministic)
    value, exponent, share, faithful, least = run(work, flat.num_edges, 24 * flat.num_nodes + 8 * flat.num_edges)
    log_upper = log_of(value[-1], exponent[-1])
    return Bounds(deterministic, value, exponent, share, log_upper + 2 * EPS * abs(log_upper), faithful, float(least))


def edge_bounds(flat: Flat, bounds: Bounds, run: Runner = to_the_end) -> FloatArray:
    """Algorithm 2 with the two-end-point rule: for each edge, a bound of the root over all states that use it.

    Relative to the root's output bound. The rule printed in the paper is wrong, see ``docs/algorithms.md``.
    """
    work = partial(_edge_bounds, flat, bounds.deterministic, bounds.share)
    return run(work, flat.num_edges, 16 * flat.num_nodes + 8 * flat.num_edges)


def conditional_bounds(
    flat: Flat,
    bounds: Bounds,
    cardinality: IntArray,
    asked: Flags,
    run: Runner = to_the_end,
    tighten: bool = False,
) -> FloatArray:
    """For every value of the variables asked for, a bound of the root given it, relative to the root's output bound.

    One row a variable, padded with zeros. Each node carries the literals of its own scope only. On a large circuit this
    takes several passes. With ``tighten``, each node's own bound falls to what its
    best-telling variable allows: the state has one of its values, so no state exceeds the largest of their bounds.
    """
    words = max(1, -(-cardinality.size // 64))
    ids, bits = intern_scopes(flat.kind, flat.start, flat.child, flat.var, words)
    padded = np.zeros(64 * words, dtype=np.bool_)
    padded[: asked.size] = asked
    bits &= np.packbits(padded, bitorder="little").view(np.uint64)
    result = np.zeros((cardinality.size, int(cardinality.max()) if cardinality.size else 1))
    room = _conditional_room(ids, bits, cardinality)
    passes = -(-int(room.sum()) // CONDITIONAL_ROOM)
    edges = np.searchsorted(np.cumsum(room), np.arange(1, passes) * (room.sum() / max(passes, 1)))
    windows = [0, *sorted({int(e) + 1 for e in edges if e + 1 < cardinality.size}), cardinality.size]
    for first, last in itertools.pairwise(windows):
        entries = int(room[first:last].sum())
        work = partial(
            _conditional_bounds,
            *(flat, bounds.deterministic, bounds.share, ids, bits, cardinality, first, last, tighten, result),
        )
        run(work, entries + flat.num_edges, 8 * entries + 24 * flat.num_nodes)
    return result


@kernel
def _supports(f: Flat, words: int, groups: int, stop: LongArray) -> Bits:
    can = np.zeros((f.kind.size, groups * words), dtype=np.uint64)
    for n in range(f.kind.size):
        if stop[0] != 0:
            break
        if f.kind[n] == LEAF:
            can[n, f.value[n] * words + (f.var[n] >> 6)] = np.uint64(1) << np.uint64(f.var[n] & 63)
        for e in range(f.start[n], f.start[n + 1]):
            for w in range(can.shape[1]):
                can[n, w] |= can[f.child[e], w]
    return can


@kernel
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
def _deterministic(f: Flat, can: Bits, words: int, stop: LongArray) -> Flags:
    result = np.zeros(f.kind.size, dtype=np.bool_)
    for n in range(f.kind.size):
        if f.kind[n] != SUM:
            continue
        result[n] = True
        for e in range(f.start[n] + 1, f.start[n + 1]):
            if stop[0] != 0:
                return result
            for other in range(f.start[n], e):
                if not exclude(can, words, f.child[e], f.child[other]):
                    result[n] = False
                    break
            if not result[n]:
                break
    return result


@kernel
def _output_bounds(f: Flat, take_max: Flags, stop: LongArray) -> tuple[FloatArray, FloatArray, FloatArray, bool, float]:
    """Every bound is multiplied by a little more than its own rounding can have taken, and so is every share."""
    value, exponent = np.ones(f.kind.size), np.zeros(f.kind.size)
    way, least = np.ones(f.kind.size), 1.0
    share = np.ones(f.child.size)
    faithful = True
    for n in range(f.kind.size):
        if stop[0] != 0:
            break
        edges = f.start[n + 1] - f.start[n]
        if f.kind[n] == PRODUCT:
            v, power = 1.0 + edges * EPS, 0.0
            for e in range(f.start[n], f.start[n + 1]):
                v *= value[f.child[e]]
                power += exponent[f.child[e]]
                if v < TINY:
                    v /= TINY
                    power -= STEP
            value[n], exponent[n] = v, power
        elif f.kind[n] == SUM:
            v, power, plain = 0.0, 0.0, True
            for e in range(f.start[n], f.start[n + 1]):
                plain &= exponent[f.child[e]] == 0 and f.weight[e] > 0
                share[e] = f.weight[e] * value[f.child[e]]
                v = max(v, share[e]) if take_max[n] else v + share[e]
            if not plain:
                v, power = _sum_of_pairs(f, n, take_max[n], value, exponent, share)
            v *= 1.0 + (edges + 4) * EPS
            for e in range(f.start[n], f.start[n + 1]):
                share[e] = share[e] / v * UP
                if share[e] < TINY:
                    share[e] = TINY
                    faithful = False
                way[n] = min(way[n], share[e] * way[f.child[e]])
            way[n] = max(way[n], SMALLEST)
            least = min(least, way[n])
            if v < TINY:
                v /= TINY
                power -= STEP
            value[n], exponent[n] = v, power
    return value, exponent, share, faithful, least


@kernel
def _sum_of_pairs(
    f: Flat, n: int, take_max: bool, value: FloatArray, exponent: FloatArray, share: FloatArray
) -> tuple[float, float]:
    """The sum or the maximum of a sum's terms, which are powers of two apart; ``share`` gets the terms themselves."""
    v, power = 0.0, 0.0
    for e in range(f.start[n], f.start[n + 1]):
        c = f.child[e]
        w, shift = decoded(f.weight[e])
        share[e] = w * value[c]
        if take_max:
            if v == 0 or moved(share[e], shift + exponent[c] - power) > v:
                v, power = normal(share[e], shift + exponent[c])
        else:
            v, power = plus(v, power, share[e], shift + exponent[c])
    for e in range(f.start[n], f.start[n + 1]):
        share[e] = moved(share[e], decoded(f.weight[e])[1] + exponent[f.child[e]] - power)
    return v, power


@kernel
def _edge_bounds(f: Flat, deterministic: Flags, share: FloatArray, stop: LongArray) -> FloatArray:
    """``high``: the root's bound when the node has its own; ``low``: when it is 0; each the largest over all paths.

    Differences of nearly equal numbers lose digits, so that each result is raised by what it can have lost.
    """
    n_nodes = f.kind.size
    high, low = np.zeros(n_nodes), np.zeros(n_nodes)
    high[n_nodes - 1] = 1.0
    result = np.zeros(f.child.size)
    for n in range(n_nodes - 1, -1, -1):
        if stop[0] != 0:
            break
        for e in range(f.start[n], f.start[n + 1]):
            edge_high, edge_low = high[n], low[n]
            if f.kind[n] == SUM:
                if deterministic[n]:
                    edge_high = min((low[n] + share[e] * (high[n] - low[n])) * UP, high[n])
                else:
                    edge_low = min((high[n] - share[e] * (high[n] - low[n])) + 8 * EPS * high[n], high[n])
            result[e] = edge_high
            c = f.child[e]
            high[c] = max(high[c], edge_high)
            low[c] = max(low[c], edge_low)
    return result


@kernel
def _conditional_room(ids: IntArray, bits: Bits, cardinality: IntArray) -> LongArray:
    """For each variable, how many values a pass over its literals has to keep."""
    nodes = np.zeros(bits.shape[0], dtype=np.int64)
    for n in range(ids.size):
        nodes[ids[n]] += 1
    room = np.zeros(cardinality.size, dtype=np.int64)
    for s in range(bits.shape[0]):
        for v in range(cardinality.size):
            if bits[s, v >> 6] >> np.uint64(v & 63) & np.uint64(1):
                room[v] += nodes[s] * cardinality[v]
    return room


@kernel
def _conditional_bounds(
    f: Flat,
    deterministic: Flags,
    share: FloatArray,
    ids: IntArray,
    bits: Bits,
    cardinality: IntArray,
    first: int,
    last: int,
    tighten: bool,
    result: FloatArray,
    stop: LongArray,
) -> None:
    """``relative`` are bounds given a literal over the node's own bound, which is ``own`` times its output bound."""
    n_scopes = bits.shape[0]
    size = np.zeros(n_scopes, dtype=np.int64)  # literals of each scope in the window
    for s in range(n_scopes):
        for v in range(first, last):
            if bits[s, v >> 6] >> np.uint64(v & 63) & np.uint64(1):
                size[s] += cardinality[v]
    at = np.zeros(f.kind.size + 1, dtype=np.int64)
    for n in range(f.kind.size):
        at[n + 1] = at[n] + size[ids[n]]
    relative = np.zeros(at[-1])
    own = np.ones(f.kind.size)
    offset = np.zeros(cardinality.size, dtype=np.int64)  # where a variable's literals begin in the current scope
    for n in range(f.kind.size):
        if stop[0] != 0:
            return
        width = size[ids[n]]
        mine = at[n]
        up = 1.0 + (f.start[n + 1] - f.start[n] + 4) * EPS  # more than rounding can take from the terms of this node
        if f.kind[n] == PRODUCT:
            own[n] = up
            for e in range(f.start[n], f.start[n + 1]):
                own[n] *= own[f.child[e]]
        elif f.kind[n] == SUM:
            own[n] = 0.0
            for e in range(f.start[n], f.start[n + 1]):
                part = share[e] * own[f.child[e]] * up
                own[n] = max(own[n], part) if deterministic[n] else own[n] + part
        if width == 0:
            continue
        if f.kind[n] == LEAF:
            relative[mine + f.value[n]] = 1.0
        elif f.kind[n] == SUM:
            for e in range(f.start[n], f.start[n + 1]):
                other, part = at[f.child[e]], share[e] * own[f.child[e]] * up
                if deterministic[n]:
                    for i in range(width):
                        relative[mine + i] = max(relative[mine + i], part * relative[other + i])
                else:
                    for i in range(width):
                        relative[mine + i] += part * relative[other + i]
            if tighten:
                begin = mine
                for v in range(first, last):
                    if bits[ids[n], v >> 6] >> np.uint64(v & 63) & np.uint64(1):
                        most = 0.0
                        for x in range(cardinality[v]):
                            most = max(most, relative[begin + x])
                        own[n] = min(own[n], most)
                        begin += cardinality[v]
            if own[n] > 0:
                for i in range(width):
                    relative[mine + i] = min(relative[mine + i] / own[n] * UP, 1.0)
        else:
            begin = mine
            for v in range(first, last):
                if bits[ids[n], v >> 6] >> np.uint64(v & 63) & np.uint64(1):
                    offset[v] = begin
                    begin += cardinality[v]
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                if size[ids[c]] == 0:
                    continue
                other = at[c]
                for v in range(first, last):
                    if bits[ids[c], v >> 6] >> np.uint64(v & 63) & np.uint64(1):
                        for x in range(cardinality[v]):
                            relative[offset[v] + x] = relative[other + x]
                        other += cardinality[v]
    root = at[f.kind.size - 1]
    for v in range(first, last):
        if bits[ids[f.kind.size - 1], v >> 6] >> np.uint64(v & 63) & np.uint64(1):
            for x in range(cardinality[v]):
                result[v, x] = relative[root + x] * own[f.kind.size - 1] * UP
            root += cardinality[v]
