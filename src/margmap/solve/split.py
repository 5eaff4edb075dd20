"""Split: make the root branch on one variable, copying only what the choice changes."""

from __future__ import annotations

from functools import partial

import numpy as np

from margmap.circuit import SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.circuit.arrays import Bits
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.solve.query_circuit import Flat, rebuild, trimmed
from margmap.solve.supports import Supports


def split_size(flat: Flat, variable: int, supports: Supports) -> int:
    """How many edges :func:`split` would make before it shares equal nodes."""
    copies = _copies(flat, supports.can, supports.words, variable)
    return int((np.diff(flat.start) * np.maximum(copies, 1)).sum()) + int(copies[-1])


def split(flat: Flat, variable: int, supports: Supports, run: Runner = to_the_end) -> tuple[Flat, float]:
    """The same function as a sum over the values of ``variable``; also the log of a factor taken out.

    A node is copied only if it allows several values: one that does not mention the variable, or allows one value, is
    shared by the branches.
    """
    work = partial(_split, flat, supports.can, supports.words, variable)
    size = split_size(flat, variable, supports)
    result = Flat(*run(work, size, 24 * size + 12 * flat.num_nodes))
    return rebuild(result, np.ones(result.num_edges, dtype=np.bool_), run)


@kernel
def _copies(f: Flat, can: Bits, words: int, v: int) -> LongArray:
    """How many values of the variable each node allows; 0 where it is not in the scope."""
    count = np.zeros(f.kind.size, dtype=np.int64)
    for n in range(f.kind.size):
        for g in range(v >> 6, can.shape[1], words):
            count[n] += np.int64(can[n, g] >> np.uint64(v & 63) & np.uint64(1))
    return count


@kernel
def _split(
    f: Flat, can: Bits, words: int, v: int, stop: LongArray
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray]:
    n_old = f.kind.size
    copies = _copies(f, can, words, v)
    values = can.shape[1] // words
    room_nodes, room_edges = 1, copies[n_old - 1]
    for n in range(n_old):
        room_nodes += max(copies[n], 1)
        room_edges += max(copies[n], 1) * (f.start[n + 1] - f.start[n])
    kind = np.zeros(room_nodes, dtype=np.int8)
    start = np.zeros(room_nodes + 1, dtype=np.int64)
    child = np.zeros(room_edges, dtype=np.int32)
    weight = np.ones(room_edges)
    var = np.full(room_nodes, -1, dtype=np.int32)
    value = np.full(room_nodes, -1, dtype=np.int32)
    first = np.zeros(n_old, dtype=np.int32)  # the copies of a node stand together, in order of the value
    count, end = 0, 0
    for n in range(n_old):
        if stop[0] != 0:
            break
        first[n] = count
        for x in range(values):
            mine = (can[n, x * words + (v >> 6)] >> np.uint64(v & 63) & np.uint64(1)) != 0
            if copies[n] <= 1 and x > 0:
                break
            if copies[n] > 1 and not mine:
                continue
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                target = first[c]
                if copies[n] > 1 and copies[c] > 0:
                    if not (can[c, x * words + (v >> 6)] >> np.uint64(v & 63) & np.uint64(1)):
                        continue
                    if copies[c] > 1:
                        for y in range(x):
                            target += np.int32(can[c, y * words + (v >> 6)] >> np.uint64(v & 63) & np.uint64(1))
                child[end], weight[end] = target, f.weight[e]
                end += 1
            kind[count], var[count], value[count] = f.kind[n], f.var[n], f.value[n]
            count += 1
            start[count] = end
    if copies[n_old - 1] > 1:
        for i in range(copies[n_old - 1]):
            child[end] = first[n_old - 1] + i
            end += 1
        kind[count] = SUM
        count += 1
        start[count] = end
    return trimmed(kind, start, child, weight, var, value, count, end)
