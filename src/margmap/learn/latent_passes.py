"""Expectation over trees of latent variables, many rows at once: values up, posteriors down, expected counts.

Every column v of the data has a latent variable with L states; the latent variables form a rooted tree. Columns are
numbered level by level, the root first and the children of a column side by side, so that a level is a slice of every
array. A pass is then one stack of matrix products for each level, (rows x L) times (L x L), and between them a kernel
that multiplies what the children say into the leaves and divides each row by its sum, whose logarithm is kept: nothing
underflows, in single precision either.

A missing cell says 1 for every state: it is summed out.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel

#: Single precision in mini-batch mode, double where EM is exact.
Floats: TypeAlias = NDArray[Any]


class LevelTree(NamedTuple):
    """A rooted tree over columns in the order of its levels.

    ``column[i]`` is the column of the data at place i, ``parent[i]`` the place of its parent (-1 at the root, place 0),
    ``first_child[i]`` to ``first_child[i + 1]`` are its children, ``level[d]`` to ``level[d + 1]`` is level d.
    """

    column: LongArray
    parent: LongArray
    first_child: LongArray
    level: LongArray

    @property
    def size(self) -> int:
        """The number of columns."""
        return int(self.column.size)


def level_tree(parent: IntArray) -> LevelTree:
    """The tree by levels, of the parent of each column (-1 at the root)."""
    below: list[list[int]] = [[] for _ in parent]
    root = -1
    for v, p in enumerate(parent.tolist()):
        if p >= 0:
            below[p].append(v)
        else:
            root = v
    column, parents, level, start = [root], [-1], [0], 0
    while start < len(column):
        end = len(column)
        level.append(end)
        for place in range(start, end):
            column.extend(below[column[place]])
            parents.extend([place] * len(below[column[place]]))
        start = end
    places = np.array(parents, dtype=np.int64)
    # Children stand side by side in the order of their parents: those of place i begin after those of all before it.
    number = np.bincount(places[1:], minlength=len(column)) if len(column) > 1 else np.zeros(1, dtype=np.int64)
    first = np.concatenate(([1], 1 + np.cumsum(number))).astype(np.int64)
    return LevelTree(np.array(column, dtype=np.int64), places, first, np.array(level, dtype=np.int64))


class Counts(NamedTuple):
    """Expected counts of a number of rows: of the root's states, of pairs of states, and of states with values.

    ``value[i, x, z]`` counts the rows with value x at place i in state z; ``moment[g, k, z]`` is the sum of the k-th
    power of the values of the g-th continuous column.
    """

    root: FloatArray
    pair: Floats
    value: FloatArray
    moment: FloatArray


class Scratch:
    """Room for the passes over a number of rows, used again for every batch."""

    def __init__(self, tree: LevelTree, latent: int, rows: int, dtype: Any) -> None:
        self.value = np.empty((tree.size, rows, latent), dtype=dtype)
        self.message = np.empty((tree.size, rows, latent), dtype=dtype)
        widest = int(np.diff(tree.level).max())
        self.below = np.empty((widest, rows, latent), dtype=dtype)


def values_up(
    tree: LevelTree,
    pair: Floats,
    root: FloatArray,
    leaf: Floats,
    codes: IntArray,
    dense: Floats,
    dense_at: LongArray,
    scratch: Scratch,
) -> FloatArray:
    """The log-likelihood of each row; the normalised values and messages of all places are left in ``scratch``.

    ``codes[i, b]`` is the value of row b at place i, a row of ``leaf[i]``, whose last row is that of a missing cell.
    Where ``dense_at[i]`` is not negative, the leaf's values are those of ``dense``, a row of the data a row there.
    """
    rows = codes.shape[1]
    value, message = scratch.value[:, :rows], scratch.message[:, :rows]
    log = np.zeros(rows)
    for d in range(tree.level.size - 2, -1, -1):
        lo, hi = int(tree.level[d]), int(tree.level[d + 1])
        _gather(lo, hi, tree.first_child, leaf, codes, dense, dense_at, message, value, log)
        if d > 0:
            np.matmul(value[lo:hi], pair[lo:hi].transpose(0, 2, 1), out=message[lo:hi])
    mass = value[0].astype(np.float64) @ root
    with np.errstate(divide="ignore"):
        return np.asarray(log + np.log(mass))


def counts_down(
    tree: LevelTree,
    pair: Floats,
    root: FloatArray,
    codes: IntArray,
    reals: FloatArray,
    dense_at: LongArray,
    scratch: Scratch,
    counts: Counts,
) -> None:
    """Add the expected counts of the rows of the last :func:`values_up`, whose values this overwrites."""
    rows = codes.shape[1]
    value, message = scratch.value[:, :rows], scratch.message[:, :rows]
    _root_posterior(root, value[0], counts.root)
    for d in range(1, tree.level.size - 1):
        lo, hi = int(tree.level[d]), int(tree.level[d + 1])
        _divide(lo, hi, tree.parent, value, message)
        counts.pair[lo:hi] += np.matmul(message[lo:hi].transpose(0, 2, 1), value[lo:hi])
        below = np.matmul(message[lo:hi], pair[lo:hi], out=scratch.below[: hi - lo, :rows])
        value[lo:hi] *= below
    _count_values(value, codes, reals, dense_at, counts.value, counts.moment)


@kernel
def _gather(
    lo: int,
    hi: int,
    first_child: LongArray,
    leaf: Floats,
    codes: IntArray,
    dense: Floats,
    dense_at: LongArray,
    message: Floats,
    value: Floats,
    log: FloatArray,
) -> None:
    """Leaves times the children's messages at the places of a level, each row divided by its sum."""
    rows, latent = value.shape[1], value.shape[2]
    work = np.empty(latent)
    for i in range(lo, hi):
        for b in range(rows):
            if dense_at[i] >= 0:
                for z in range(latent):
                    work[z] = dense[dense_at[i], b, z]
            else:
                code = codes[i, b]
                for z in range(latent):
                    work[z] = leaf[i, code, z]
            since = 0
            for c in range(first_child[i], first_child[i + 1]):
                for z in range(latent):
                    work[z] *= message[c, b, z]
                since += 1
                if since == 4:  # messages are at least about 1e-38 each: four of them are still doubles
                    since = 0
                    largest = 0.0
                    for z in range(latent):
                        largest = max(largest, work[z])
                    if 0.0 < largest < 1e-60:
                        log[b] += np.log(largest)
                        for z in range(latent):
                            work[z] /= largest
            total = 0.0
            for z in range(latent):
                total += work[z]
            if total > 0.0:
                log[b] += np.log(total)
                factor = 1.0 / total
                for z in range(latent):
                    value[i, b, z] = work[z] * factor
            else:
                log[b] = -np.inf
                for z in range(latent):
                    value[i, b, z] = 0.0


@kernel
def _root_posterior(root: FloatArray, value: Floats, count: FloatArray) -> None:
    for b in range(value.shape[0]):
        total = 0.0
        for z in range(root.size):
            total += root[z] * value[b, z]
        for z in range(root.size):
            share = root[z] * value[b, z] / total if total > 0.0 else 0.0
            value[b, z] = share
            count[z] += share


@kernel
def _divide(lo: int, hi: int, parent: LongArray, value: Floats, message: Floats) -> None:
    """Every message becomes the posterior of the parent divided by it: what the rest of the row says to the child."""
    rows, latent = value.shape[1], value.shape[2]
    for i in range(lo, hi):
        p = parent[i]
        for b in range(rows):
            for z in range(latent):
                message[i, b, z] = value[p, b, z] / message[i, b, z] if message[i, b, z] > 0.0 else 0.0


@kernel
def _count_values(
    value: Floats, codes: IntArray, reals: FloatArray, dense_at: LongArray, count: FloatArray, moment: FloatArray
) -> None:
    for i in range(value.shape[0]):
        g = dense_at[i]
        for b in range(value.shape[1]):
            if g < 0:
                code = codes[i, b]
                for z in range(value.shape[2]):
                    count[i, code, z] += value[i, b, z]
            elif not np.isnan(reals[g, b]):
                x = reals[g, b]
                for z in range(value.shape[2]):
                    moment[g, 0, z] += value[i, b, z]
                    moment[g, 1, z] += value[i, b, z] * x
                    moment[g, 2, z] += value[i, b, z] * x * x
