"""Sorting and selecting for kernels: a few lines that compile in a fraction of the time that numba's own take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from margmap.foundation.jit import kernel

# Runs of this length are sorted by insertion.
_RUN = 12


def _descending_by_numpy(keys: NDArray[Any]) -> NDArray[np.int64]:
    return np.argsort(-keys, kind="stable")


@kernel(interpreted=_descending_by_numpy)
def descending(keys: NDArray[Any]) -> NDArray[np.int64]:
    """The positions of the keys, those of the largest first, equal ones in the order they have (merge sort)."""
    n = keys.size
    order, other = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for i in range(n):
        j = i
        while j % _RUN != 0 and keys[order[j - 1]] < keys[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    width = _RUN
    while width < n:
        for begin in range(0, n, 2 * width):
            middle, end = min(begin + width, n), min(begin + 2 * width, n)
            i, j = begin, middle
            for k in range(begin, end):
                if j >= end or (i < middle and keys[order[i]] >= keys[order[j]]):
                    other[k] = order[i]
                    i += 1
                else:
                    other[k] = order[j]
                    j += 1
        order, other = other, order
        width *= 2
    return order


def _nth_largest_by_numpy(values: NDArray[np.float64], n: int) -> float:
    return float(np.partition(values, values.size - n)[values.size - n])


@kernel(interpreted=_nth_largest_by_numpy)
def nth_largest(values: NDArray[np.float64], n: int) -> float:
    """The value that ``n - 1`` others come before when the largest come first (Hoare's selection)."""
    rest = values.copy()
    low, high, wanted = 0, rest.size - 1, n - 1
    while low < high:
        pivot = rest[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while rest[i] > pivot:
                i += 1
            while rest[j] < pivot:
                j -= 1
            if i <= j:
                rest[i], rest[j] = rest[j], rest[i]
                i += 1
                j -= 1
        if wanted <= j:
            high = j
        elif wanted >= i:
            low = i
        else:
            break
    return float(rest[wanted])
