"""Which variable to split or branch on: the (UB) heuristic of Choi, Friedman and Van den Broeck, 2022."""

from __future__ import annotations

import numpy as np

from margmap.circuit import FloatArray, IntArray
from margmap.solve.supports import Flags


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
