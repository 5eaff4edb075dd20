"""Products of matrices for kernels, in loops that vectorise: numba's own need scipy, whose import takes longer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margmap.foundation.jit import kernel


def _times_vector_by_numpy(rows: NDArray[np.float64], right: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    out[:] = rows.reshape(out.size, right.size) @ right


@kernel(any_order=True, interpreted=_times_vector_by_numpy)
def times_vector(rows: NDArray[np.float64], right: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """The inner products of a vector with the rows of a matrix, which stand one after the other."""
    matrix = rows.reshape((out.size, right.size))
    for r in range(out.size):
        total = 0.0
        for i in range(right.size):
            total += matrix[r, i] * right[i]
        out[r] = total


def _add_rows_by_numpy(rows: NDArray[np.float64], factor: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    out += factor @ rows.reshape(factor.size, out.size)


@kernel(interpreted=_add_rows_by_numpy)
def add_rows(rows: NDArray[np.float64], factor: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """Add to a vector the rows of a matrix, each times its factor."""
    matrix = rows.reshape((factor.size, out.size))
    for r in range(factor.size):
        if factor[r] != 0:
            for i in range(out.size):
                out[i] += matrix[r, i] * factor[r]


def _lowest_by_numpy(values: NDArray[np.float64]) -> float:
    return float(values.min())


@kernel(interpreted=_lowest_by_numpy, inline=True)
def lowest(values: NDArray[np.float64]) -> float:
    """The least of some numbers from 0 up, at least one: these are in the order of their bits as whole numbers."""
    bits = values.view(np.int64)
    low, at = bits[0], 0
    for i in range(bits.size):
        low = min(low, bits[i])
    while bits[at] != low:
        at += 1
    return float(values[at])


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
