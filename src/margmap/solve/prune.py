"""Shared by the solvers that transform circuits: open literals, what falls with a literal, where to branch."""

from __future__ import annotations

import numpy as np

from margmap.circuit import FloatArray, IntArray
from margmap.solve.bounds import Flags, Supports
from margmap.solve.query_circuit import Flat


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


def keep_without(flat: Flat, hopeless: Flags) -> Flags:
    """The edges to keep when the literals marked in ``hopeless`` (by variable and value) are set to zero."""
    leaf = flat.var >= 0
    dead = np.zeros(flat.num_nodes, dtype=np.bool_)
    dead[leaf] = hopeless[flat.var[leaf], flat.value[leaf]]
    keep: Flags = ~dead[flat.child]
    return keep


def choose_by_bounds(relative: FloatArray, cardinality: IntArray, free: Flags, floor: float) -> int:
    """The (UB) heuristic: among the variables with a value under the floor, or else among all, the tightest.

    ``relative`` are conditional bounds; ``free`` has at least one variable.
    """
    inside = np.arange(relative.shape[1]) < cardinality[:, None]
    least = np.where(inside, relative, np.inf).min(axis=1)
    decided = free & (least < floor)
    if decided.any():
        return int(np.argmin(np.where(decided, relative.max(axis=1), np.inf)))
    return int(np.argmin(np.where(free, relative.sum(axis=1), np.inf)))
