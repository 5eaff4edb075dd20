"""Conditional bounds: an upper bound of the root given one value of one variable, for all of them in one pass."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, LongArray
from margmap.circuit.arrays import Bits
from margmap.circuit.scopes import intern_scopes
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.foundation.pairs import EPS, UP
from margmap.solve.output_bounds import Bounds
from margmap.solve.query_circuit import LEAF, SMALLEST, Flat
from margmap.solve.supports import Flags

# Relative values of one pass of conditional bounds; more literals are done in several passes.
CONDITIONAL_ROOM = 5_000_000


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
    ids, bits = intern_scopes(flat.kind, flat.start, flat.child, flat.var, words, True)
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


def tightest(relative: FloatArray, asked: Flags) -> float:
    """The log of the least bound, of those of the variables asked for, on all states: each has one of its values."""
    return float(np.log(max(relative[asked].max(axis=1).min(), SMALLEST)))


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
    variable_at, variable = _variables(bits, first, last)
    size = np.zeros(bits.shape[0], dtype=np.int64)  # literals of each scope in the window
    for s in range(size.size):
        for i in range(variable_at[s], variable_at[s + 1]):
            size[s] += cardinality[variable[i]]
    at = np.zeros(f.kind.size + 1, dtype=np.int64)
    for n in range(f.kind.size):
        at[n + 1] = at[n] + size[ids[n]]
    relative = np.zeros(at[-1])
    own = np.ones(f.kind.size)
    offset = np.zeros(cardinality.size, dtype=np.int64)  # where a variable's literals begin in the current scope
    for n in range(f.kind.size):
        if stop[0] != 0:
            return
        width, mine = size[ids[n]], at[n]
        mine_from, mine_to = variable_at[ids[n]], variable_at[ids[n] + 1]
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
                for i in range(mine_from, mine_to):
                    most = 0.0
                    for x in range(begin, begin + cardinality[variable[i]]):
                        most = max(most, relative[x])
                    own[n] = min(own[n], most)
                    begin += cardinality[variable[i]]
            if own[n] > 0:
                for i in range(width):
                    relative[mine + i] = min(relative[mine + i] / own[n] * UP, 1.0)
        else:
            begin = mine
            for i in range(mine_from, mine_to):
                offset[variable[i]] = begin
                begin += cardinality[variable[i]]
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                other = at[c]
                for i in range(variable_at[ids[c]], variable_at[ids[c] + 1]):
                    v = variable[i]
                    for x in range(cardinality[v]):
                        relative[offset[v] + x] = relative[other + x]
                    other += cardinality[v]
    top = f.kind.size - 1
    root = at[top]
    for i in range(variable_at[ids[top]], variable_at[ids[top] + 1]):
        v = variable[i]
        for x in range(cardinality[v]):
            result[v, x] = relative[root + x] * own[top] * UP
        root += cardinality[v]


@kernel
def _variables(bits: Bits, first: int, last: int) -> tuple[LongArray, IntArray]:
    """The variables of each scope that are in the window: ``variable[at[s]:at[s + 1]]`` for scope ``s``."""
    at = np.zeros(bits.shape[0] + 1, dtype=np.int64)
    for s in range(bits.shape[0]):
        at[s + 1] = at[s]
        for v in range(first, last):
            at[s + 1] += np.int64(bits[s, v >> 6] >> np.uint64(v & 63) & np.uint64(1))
    variable = np.zeros(at[-1], dtype=np.int32)
    end = 0
    for s in range(bits.shape[0]):
        for v in range(first, last):
            if bits[s, v >> 6] >> np.uint64(v & 63) & np.uint64(1):
                variable[end] = v
                end += 1
    return at, variable
