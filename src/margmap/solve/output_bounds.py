"""Output bounds: an upper bound of every node over all states (Algorithm 1 of Choi, Friedman and Van den Broeck, 2022).

The proofs are in ``docs/algorithms.md``. All later passes work with *shares*: the share of an edge is its child's bound
times its weight, over the bound of its node, so that every number is relative to the root's bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, LongArray
from margmap.circuit.arrays import Bits
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.foundation.matrices import lowest, times_vector
from margmap.foundation.pairs import EPS, STEP, TINY, UP, decoded, log_of, moved, normal, plus, raised
from margmap.inference.dense import gathered, last_row, no_powers
from margmap.solve.parts import upwards
from margmap.solve.query_circuit import NO_ROWS, SMALLEST, Flat, rows_of
from margmap.solve.supports import (
    Flags,
    Supports,
    deterministic_if_plain,
    deterministic_range,
    find_deterministic,
    find_supports,
    flags_if_plain,
    no_supports,
    support_words,
    supports_of_range,
)

#: Relative bounds under this are not compared: what underflow can have taken from them counts for nothing above it.
LOWEST_FLOOR = 2.0**-900

#: What a pass for the bounds finds, see :func:`_bounds_of_all`.
Found: TypeAlias = tuple[FloatArray, FloatArray, FloatArray, bool, float]


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
    #: For each node the first row of its dense block, or -1; None if there are few such blocks.
    rows: IntArray | None = None
    #: The parts of a large circuit, see :mod:`margmap.solve.parts`.
    parts: LongArray | None = None

    @property
    def block_rows(self) -> IntArray:
        """``rows`` for kernels that have one machine code for all circuits: empty instead of None."""
        return NO_ROWS if self.rows is None else self.rows


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


def view_of(
    flat: Flat,
    log_factor: float,
    cardinality: IntArray,
    run: Runner = to_the_end,
    parts: LongArray | None = None,
    *,
    lean: bool = False,
    known: IntArray | None = None,
) -> View:
    """The bounds of a circuit, which may be the empty one, that of no state; ``parts`` are those of a large one.

    ``known`` are the first rows of its dense blocks, if whoever made it has found them.
    A ``lean`` view of a circuit with parts and dense blocks has no supports, which take a good part of what such a
    circuit takes.
    """
    rows = rows_of(flat, parts, known)
    lean = lean and parts is not None and rows is not None
    if parts is None and flat.num_nodes > 0:  # what is done one after the other below, in one call
        words, groups = support_words(cardinality)
        room = (8 * groups * words + 25) * flat.num_nodes + 8 * flat.num_edges
        work = partial(_view_of_all, flat, rows, words, groups)
        found = run(work, groups * words * flat.num_nodes + flat.num_edges, room)
        return View(flat, log_factor, Supports(found[0], words), _bounds(found[1], rows, None, *found[2:]))
    if lean:
        deterministic, supports = _deterministic(flat, cardinality, run, rows, parts), no_supports(cardinality)
    else:
        supports = find_supports(flat, cardinality, run, rows, parts)
        deterministic = find_deterministic(flat, supports, run, rows, parts)
    if flat.num_nodes == 0:
        nothing = np.zeros(0)
        return View(flat, log_factor, supports, Bounds(deterministic, nothing, nothing, nothing, -np.inf))
    return View(flat, log_factor, supports, output_bounds(flat, deterministic, run, rows, parts))


def relative_view(
    flat: Flat,
    cardinality: IntArray,
    run: Runner,
    parts: LongArray,
    known: IntArray | None = None,
    beside: Callable[[LongArray], None] | None = None,
) -> View | None:
    """A lean view in the memory that the circuit has: the shares are written over its weights.

    So its circuit is the one that is left when each node is divided by its bound, whose own bounds are 1. Where a share
    is too small for a double, or there are few dense blocks, it is None, and ``flat`` is of no use any more. ``beside``
    is done at the same time, if there are dense blocks; it may not look at the weights.
    """
    rows = rows_of(flat, parts, known)
    if rows is None:
        return None
    found = run(partial(_flags_and_bounds, flat, cardinality, rows, parts, beside), flat.num_edges, 26 * flat.num_nodes)
    if found is None:
        flags = _by_supports(flat, cardinality, run, rows, parts)
        work = partial(_bounds_of_all, flat, rows, flags, parts, flat.weight, beside=beside)
        found = flags, run(work, flat.num_edges, 24 * flat.num_nodes)
    deterministic, (value, exponent, share, faithful, least) = found
    log_upper = log_bound(value[-1], exponent[-1])
    ones, zeros = (np.broadcast_to(np.float64(x), flat.num_nodes) for x in (1.0, 0.0))  # which take no memory
    bounds = Bounds(deterministic, ones, zeros, share, 0.0, True, float(least), rows, parts)
    return View(flat, log_upper, no_supports(cardinality), bounds) if faithful else None


def _flags_and_bounds(
    flat: Flat,
    cardinality: IntArray,
    rows: IntArray,
    parts: LongArray,
    beside: Callable[[LongArray], None] | None,
    stop: LongArray,
) -> tuple[Flags, Found] | None:
    """The deterministic sums, and the bounds over the weights; None if the former cannot be told without supports."""
    flags = flags_if_plain(flat, cardinality, rows, parts, stop)
    return None if flags is None else (flags, _bounds_of_all(flat, rows, flags, parts, flat.weight, stop, beside))


def _deterministic(
    flat: Flat, cardinality: IntArray, run: Runner, rows: IntArray | None, parts: LongArray | None
) -> Flags:
    """The deterministic sums; supports are found and given back only where they are needed for it."""
    found = deterministic_if_plain(flat, cardinality, run, rows, parts)
    if found is None:
        found = _by_supports(flat, cardinality, run, rows, parts)
    return found


def _by_supports(
    flat: Flat, cardinality: IntArray, run: Runner, rows: IntArray | None, parts: LongArray | None
) -> Flags:
    """The deterministic sums, by supports that are given back afterwards."""
    return find_deterministic(flat, find_supports(flat, cardinality, run, rows, parts), run, rows, parts)


def output_bounds(
    flat: Flat,
    deterministic: Flags,
    run: Runner = to_the_end,
    rows: IntArray | None = None,
    parts: LongArray | None = None,
) -> Bounds:
    """Algorithm 1: the maximum at deterministic sums, the sum at the others, the product at products."""
    work = partial(_bounds_of_all, flat, rows, deterministic, parts, None)
    found = run(work, flat.num_edges, 24 * flat.num_nodes + 8 * flat.num_edges)
    return _bounds(deterministic, rows, parts, *found)


def _bounds(
    deterministic: Flags,
    rows: IntArray | None,
    parts: LongArray | None,
    value: FloatArray,
    exponent: FloatArray,
    share: FloatArray,
    faithful: bool,
    least: float,
) -> Bounds:
    log_upper = log_bound(value[-1], exponent[-1])
    return Bounds(deterministic, value, exponent, share, log_upper, faithful, float(least), rows, parts)


def log_bound(value: float, exponent: float) -> float:
    """The logarithm of a bound, rounded up."""
    log_upper = float(log_of(value, exponent))
    return log_upper + 2 * EPS * abs(log_upper)


def floor_of(log_floor: float, log_upper: float) -> float:
    """``exp(log_floor - log_upper)``, rounded down: a bound relative to ``log_upper`` that is not above it cannot win.

    Bounds near the smallest doubles have few digits and may have lost some to underflow, so that a floor down there
    becomes -1, which no bound is under.
    """
    rounding = 4 * EPS * (1 + abs(log_floor) + abs(log_upper)) if log_floor > -np.inf else 0.0
    value = float(np.exp(min(log_floor - log_upper - rounding, 700.0)))
    return value if value > LOWEST_FLOOR else -1.0


def _bounds_of_all(
    flat: Flat,
    rows: IntArray | None,
    take_max: Flags,
    parts: LongArray | None,
    share: FloatArray | None,
    stop: LongArray,
    beside: Callable[[LongArray], None] | None = None,
) -> Found:
    """The bounds of all nodes as pairs, all shares, whether they are what they say, and the least way.

    The shares are written to ``share``, which may be the weights, or to a new array. ``beside`` is done meanwhile.
    """
    value, exponent, way = np.ones(flat.num_nodes), np.zeros(flat.num_nodes), np.ones(flat.num_nodes)
    share = np.empty(flat.num_edges) if share is None else share
    given = (flat, rows, take_max, value, exponent, way, share)
    other = None if beside is None else partial(beside, stop)
    found = upwards(parts, flat.num_nodes, lambda begin, end: bounds_of_range(*given, begin, end, stop), other)
    return value, exponent, share, all(faithful for faithful, _ in found), min(least for _, least in found)


@kernel
def _view_of_all(
    f: Flat, rows: IntArray | None, words: int, groups: int, stop: LongArray
) -> tuple[Bits, Flags, FloatArray, FloatArray, FloatArray, bool, float]:
    """Supports, which sums are deterministic, and the bounds of a circuit without parts."""
    n_nodes = f.kind.size
    can, deterministic = np.zeros((n_nodes, groups * words), dtype=np.uint64), np.zeros(n_nodes, dtype=np.bool_)
    supports_of_range(f, rows, words, can, 0, n_nodes, stop)
    deterministic_range(f, rows, can, words, deterministic, 0, n_nodes, stop)
    return (can, deterministic, *bounds_of_whole(f, rows, deterministic, stop))


@kernel
def bounds_of_whole(
    f: Flat, rows: IntArray | None, take_max: Flags, stop: LongArray
) -> tuple[FloatArray, FloatArray, FloatArray, bool, float]:
    """What :func:`_bounds_of_all` gives for a circuit without parts."""
    value, exponent, way = np.ones(f.kind.size), np.zeros(f.kind.size), np.ones(f.kind.size)
    share = np.empty(f.child.size)
    faithful, least = bounds_of_range(f, rows, take_max, value, exponent, way, share, 0, f.kind.size, stop)
    return value, exponent, share, faithful, least


@kernel
def bounds_of_range(
    f: Flat,
    rows: IntArray | None,
    take_max: Flags,
    value: FloatArray,
    exponent: FloatArray,
    way: FloatArray,
    share: FloatArray,
    begin: int,
    stop_before: int,
    stop: LongArray,
) -> tuple[bool, float]:
    """Every bound is multiplied by a little more than its own rounding can have taken, and so is every share.

    Of the nodes from ``begin`` on; before, all values and ways are 1, exponents 0, and shares anything. ``share`` may
    be the array of the weights itself, since a share is written when its weight is not needed any more.
    """
    least, faithful = 1.0, True
    n, singly = begin - 1, 0
    while n + 1 < stop_before:
        n += 1
        if stop[0] != 0:
            break
        edges = f.start[n + 1] - f.start[n]
        if rows is not None and rows[n] >= 0 and n >= singly:
            end = last_row(rows, n)
            done, low = _block_bounds(f, n, end, take_max[n], value, exponent, way, share)
            least = min(least, low)
            n += done
            if n == end:
                n -= 1
                continue
            singly, edges = end, f.start[n + 1] - f.start[n]
        if f.kind[n] == PRODUCT:
            v, power = 1.0 + edges * EPS, 0.0
            for e in range(f.start[n], f.start[n + 1]):
                share[e] = 1.0
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
                term = f.weight[e] * value[f.child[e]]
                v = max(v, term) if take_max[n] else v + term
            if not plain:
                v, power = _sum_of_pairs(f, n, take_max[n], value, exponent)
                for e in range(f.start[n], f.start[n + 1]):
                    w, shift = decoded(f.weight[e])
                    share[e] = moved(w * value[f.child[e]], shift + exponent[f.child[e]] - power)
            v *= 1.0 + (edges + 4) * EPS
            for e in range(f.start[n], f.start[n + 1]):
                term = f.weight[e] * value[f.child[e]] if plain else share[e]
                share[e] = term / v * UP
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
    return faithful, least


@kernel
def _block_bounds(
    f: Flat,
    n: int,
    end: int,
    take_max: bool,
    value: FloatArray,
    exponent: FloatArray,
    way: FloatArray,
    share: FloatArray,
) -> tuple[int, float]:
    """The bounds of the rows ``n`` to ``end`` of a dense block, whose sums are all of a kind.

    Returns how many rows were done, up to the first with small numbers, which needs to be looked at singly; and the
    least of their ways. A share is a product with the reciprocal of the bound, so that it is rounded four times, which
    ``UP`` makes up for; and a way is at most what it is if the least share and the least way of a child come together.
    """
    children = f.child[f.start[n] : f.start[n + 1]]
    if not no_powers(children, exponent):
        return 0, 1.0
    below, least_way = gathered(children, value), lowest(gathered(children, way))
    size = children.size
    weights = f.weight[f.start[n] : f.start[end]].reshape((end - n, size))
    shares = share[f.start[n] : f.start[end]].reshape((end - n, size))
    if not take_max:
        times_vector(f.weight[f.start[n] : f.start[end]], below, value[n:end])
    least, row = 1.0, np.empty(size)
    for r in range(end - n):
        if take_max:
            top = 0.0
            for i in range(size):
                top = max(top, weights[r, i] * below[i])
            value[n + r] = top
        value[n + r] *= 1.0 + (size + 4) * EPS
        part = UP / value[n + r]
        for i in range(size):
            row[i] = weights[r, i] * below[i] * part
        low = lowest(row)
        if low < TINY or value[n + r] < TINY:
            return r, least
        for i in range(size):
            shares[r, i] = row[i]
        way[n + r] = max(low * least_way, SMALLEST)
        least = min(least, way[n + r])
    return end - n, least


@kernel
def _sum_of_pairs(f: Flat, n: int, take_max: bool, value: FloatArray, exponent: FloatArray) -> tuple[float, float]:
    """The sum or the maximum of a sum's terms, which are powers of two apart."""
    v, power = 0.0, 0.0
    for e in range(f.start[n], f.start[n + 1]):
        c = f.child[e]
        w, shift = decoded(f.weight[e])
        term = w * value[c]
        if take_max:
            if v == 0 or moved(term, shift + exponent[c] - power) > v:
                v, power = normal(term, shift + exponent[c])
        else:
            v, power = plus(v, power, term, shift + exponent[c])
    return v, power
