"""Rows with holes, as the learners of latent trees and of mixtures of trees take them.

A cell is a code, the number of a value of its column, or -1 where it is missing. A column with Gaussian leaves has real
values in a table of its own, NaN where one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, IntArray, LongArray, Name, Variable
from margmap.errors import DataError
from margmap.foundation.slices import starts
from margmap.learn.table import MAX_VALUES

Leaf: TypeAlias = Literal["categorical", "binomial", "gaussian"]
LEAVES: tuple[Leaf, ...] = ("categorical", "binomial", "gaussian")

# A continuous column goes into so many bins where only its dependence on other columns matters.
_BINS = 8


class Cells(NamedTuple):
    """Rows of codes (-1: missing), the real values of the continuous columns, and the variables of all columns."""

    codes: IntArray
    #: A column for each continuous variable, in their order; NaN is missing.
    reals: FloatArray
    variables: tuple[Variable, ...]

    @property
    def cardinality(self) -> LongArray:
        """The number of values of each column; 0 is continuous."""
        return np.array([v.cardinality for v in self.variables], dtype=np.int64)

    @property
    def continuous(self) -> LongArray:
        """The continuous columns."""
        return np.flatnonzero(self.cardinality == 0)

    def take(self, rows: NDArray[Any]) -> Cells:
        """Some of the rows."""
        return Cells(self.codes[rows], self.reals[rows], self.variables)

    def binned(self) -> tuple[IntArray, LongArray]:
        """Codes and cardinalities with every continuous column in bins of equally many rows, for pairwise counts."""
        codes, cardinality = self.codes.copy(), self.cardinality
        for place, column in enumerate(self.continuous.tolist()):
            values = self.reals[:, place]
            present = ~np.isnan(values)
            edges = np.unique(np.quantile(values[present], np.arange(1, _BINS) / _BINS))
            codes[:, column] = np.where(present, np.searchsorted(edges, values, side="right"), -1)
            cardinality[column] = edges.size + 1
        return codes, cardinality


def pair_counts(codes: IntArray, cardinality: LongArray, weight: FloatArray | None = None) -> FloatArray:
    """How many rows have each pair of values, both cells present; a row may count as ``weight`` rows.

    Rows and columns of the matrix are the values of all columns, those of column i from ``starts(cardinality)[i]``.
    """
    first = starts(cardinality)
    joint = np.zeros((int(first[-1]), int(first[-1])))
    place = first[:-1] + codes.astype(np.int64)
    present = codes >= 0
    for at in range(0, codes.shape[0], _BLOCK):
        block = slice(at, at + _BLOCK)
        hot = np.zeros((place[block].shape[0], int(first[-1])), dtype=np.float32)
        row, column = np.nonzero(present[block])
        hot[row, place[block][row, column]] = 1.0
        joint += hot.T @ (hot if weight is None else hot * weight[block, None].astype(np.float32))
    return joint


# Zeros and ones are multiplied in single precision in blocks of so many rows: sums stay exact, and memory small.
_BLOCK = 1 << 13


def read_cells(
    data: Any, valid: Any = None, leaves: Mapping[Any, Leaf] | None = None
) -> tuple[Cells, Cells | None, tuple[Leaf, ...]]:
    """Rows to learn from, validation rows over the same variables, and the kind of leaf of each column."""
    array = np.asarray(data)
    checked = None if valid is None else np.asarray(valid)
    given = leaves or {}
    kinds: list[Leaf] = [given.get(i + 1, "categorical") for i in range(array.shape[1])]
    real = np.array([kind == "gaussian" for kind in kinds], dtype=np.bool_)
    both = [array] if checked is None else [array, checked]
    top = np.nanmax([np.nanmax(rows, axis=0) for rows in both], axis=0)
    variables = tuple(
        Variable(i + 1, 0 if real[i] else max(2, int(top[i]) + 1)) for i in range(array.shape[1])
    )
    made = [_cells(rows, real, variables) for rows in both]
    return made[0], made[1] if len(made) > 1 else None, tuple(kinds)


def _cells(array: NDArray[Any], real: NDArray[np.bool_], variables: tuple[Variable, ...]) -> Cells:
    codes = np.where(real | np.isnan(array.astype(np.float64)), -1, array).astype(np.int32)
    return Cells(codes, array[:, real].astype(np.float64), variables)
