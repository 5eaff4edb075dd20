"""Rows with holes, as the learners of latent trees and of mixtures of trees take them.

A cell is a code, the number of a value of its column, or -1 where it is missing. A column with Gaussian leaves has real
values in a table of its own, NaN where one is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, IntArray, LongArray, Variable
from margmap.circuit.variable import listed
from margmap.errors import DataError
from margmap.foundation.slices import starts
from margmap.learn.table import Table, read_both

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


# Zeros and ones are multiplied in single precision in blocks of so many rows: sums stay exact, and memory small.
_BLOCK = 1 << 13


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


def read_cells(
    data: Any,
    valid: Any = None,
    leaves: Mapping[Any, Leaf] | None = None,
    variables: Sequence[Variable] | None = None,
) -> tuple[Cells, Cells | None, tuple[Leaf, ...]]:
    """Rows to learn from, validation rows over the same variables, and the kind of leaf of each column.

    ``leaves`` has kinds by the names of columns; a column that it does not name has Gaussian leaves if the table leaves
    it real numbers, and categorical ones otherwise. With ``variables`` given, those of a circuit to continue, the
    entries must fit.
    """
    given = {str(name): kind for name, kind in (leaves or {}).items()}
    for name, kind in given.items():
        if kind not in LEAVES:
            raise DataError(f"leaves= says {kind!r} of column {name}: write {', '.join(map(repr, LEAVES))}")
    gaussian = [name for name, kind in (leaves or {}).items() if kind == "gaussian"]
    options = {"continuous": gaussian} if gaussian and not isinstance(data, Table) else {}
    table, checked = read_both(_with_holes(data, gaussian), _with_holes(valid, gaussian), variables, **options)
    known = set(map(str, table.names))
    for name in given:
        if name not in known:
            raise DataError(f"leaves= names the column {name}, but the data has {listed(table.names)}")
    kinds = tuple(_kind(variable, given.get(str(variable.name))) for variable in table.variables)
    made = [_cells(codes, table.variables) for codes in (table.codes, checked) if codes is not None]
    return made[0], made[1] if checked is not None else None, kinds


def _with_holes(data: Any, gaussian: Sequence[Any]) -> Any:
    """A matrix of numbers with NaN in place of -1, in the columns that have whole numbers from -1 only."""
    if not isinstance(data, np.ndarray | list) or (isinstance(data, np.ndarray) and data.dtype.kind not in "if"):
        return data
    try:
        array = np.asarray(data)
    except ValueError:  # rows of different lengths, which the table refuses in its own words
        return data
    if array.ndim != 2 or array.dtype.kind not in "if" or not (array == -1).any():
        return data
    numbers = array.astype(np.float64)
    whole = (np.isnan(numbers) | ((numbers >= -1) & (numbers == np.floor(numbers)))).all(axis=0)
    real = [int(name) - 1 for name in map(str, gaussian) if name.isdecimal() and 0 < int(name) <= len(whole)]
    whole[real] = False
    return np.where(whole & (numbers == -1), np.nan, numbers)


def cells_of(variables: Sequence[Variable], codes: NDArray[Any]) -> Cells:
    """Rows of codes as :func:`margmap.learn.encode` makes them."""
    return _cells(codes, tuple(variables))


def _kind(variable: Variable, asked: Leaf | None) -> Leaf:
    if (asked == "gaussian") != variable.continuous and asked is not None:
        what = "a column of real numbers" if variable.continuous else "a discrete column"
        raise DataError(f"column {variable.name!r}: {what} cannot have {asked} leaves")
    if asked is None:
        return "gaussian" if variable.continuous else "categorical"
    counts = tuple(map(str, range(variable.cardinality)))
    if asked == "binomial" and variable.states not in ((), counts):
        raise DataError(f"column {variable.name!r}: binomial leaves need the values 0 to n, not {variable.states}")
    return asked


def _cells(codes: NDArray[Any], variables: tuple[Variable, ...]) -> Cells:
    real = np.array([v.continuous for v in variables], dtype=np.bool_)
    if not real.any():
        return Cells(codes.astype(np.int32), np.zeros((len(codes), 0)), variables)
    known = np.where(real | np.isnan(codes), -1, codes)
    return Cells(known.astype(np.int32), np.ascontiguousarray(codes[:, real], dtype=np.float64), variables)
