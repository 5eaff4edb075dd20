"""Slices of various lengths that lie one after the other in one array (compressed sparse rows)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def starts(sizes: ArrayLike) -> NDArray[np.int64]:
    """Where slices of these sizes begin when they lie one after the other, and where the last one ends."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)))
