"""Products of matrices for kernels, in loops that vectorise: numba's own need scipy, whose import takes longer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margmap.foundation.jit import kernel

# Columns of the result that are worked on at a time, so that they stay in the processor's first cache.
_COLUMNS = 512


def _row_products_by_numpy(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.dot(left, right.T))


@kernel(interpreted=_row_products_by_numpy)
def row_products(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inner products of all rows of ``left`` with all rows of ``right``: ``left @ right.T``."""
    rows, columns, inner = left.shape[0], right.shape[0], left.shape[1]
    result = np.zeros((rows, columns))
    flipped = np.zeros((inner, min(columns, _COLUMNS)))
    for begin in range(0, columns, _COLUMNS):
        size = min(_COLUMNS, columns - begin)
        for q in range(size):
            for i in range(inner):
                flipped[i, q] = right[begin + q, i]
        for r in range(0, rows - 1, 2):
            one, two = result[r, begin : begin + size], result[r + 1, begin : begin + size]
            for i in range(0, inner - 3, 4):
                a, b, c, d = left[r, i], left[r, i + 1], left[r, i + 2], left[r, i + 3]
                e, f, g, h = left[r + 1, i], left[r + 1, i + 1], left[r + 1, i + 2], left[r + 1, i + 3]
                for q in range(size):
                    x, y, z, w = flipped[i, q], flipped[i + 1, q], flipped[i + 2, q], flipped[i + 3, q]
                    one[q] += (a * x + b * y) + (c * z + d * w)
                    two[q] += (e * x + f * y) + (g * z + h * w)
            for i in range(inner - inner % 4, inner):
                for q in range(size):
                    one[q] += left[r, i] * flipped[i, q]
                    two[q] += left[r + 1, i] * flipped[i, q]
        if rows % 2 == 1:
            last = result[rows - 1, begin : begin + size]
            for i in range(inner):
                for q in range(size):
                    last[q] += left[rows - 1, i] * flipped[i, q]
    return result
