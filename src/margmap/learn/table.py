"""What the learners take: arrays, frames and sparse matrices of small non-negative integers, checked and packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import LongArray, Name, Variable, first_repeat
from margmap.errors import DataError
from margmap.foundation.numerals import is_plain

Codes: TypeAlias = NDArray[np.uint8]

#: A column may take the values 0 to this, less one.
MAX_VALUES = 256


class CodedRows(NamedTuple):
    """Complete rows of values from 0, and the variables that the columns are."""

    codes: Codes
    variables: tuple[Variable, ...]

    @property
    def cardinality(self) -> LongArray:
        """The number of values of each column."""
        return np.array([v.cardinality for v in self.variables], dtype=np.int64)


def one_hot(codes: Codes, first: LongArray) -> NDArray[np.float32]:
    """A column for every value of every column, 1 where the row has it; those of column i begin at ``first[i]``."""
    hot = np.zeros((codes.shape[0], int(first[-1])), dtype=np.float32)
    np.put_along_axis(hot, first[:-1] + codes.astype(np.int64), 1.0, axis=1)
    return hot


def read_tables(
    data: Any, valid: Any = None, variables: Sequence[Variable] | None = None
) -> tuple[CodedRows, Codes | None]:
    """Training rows with their variables, and validation rows over the same ones.

    A column has as many values as its largest entry asks for, in either of the two, and at least two. With
    ``variables`` given, those of a circuit to continue, the entries must fit them.
    """
    names, states, codes = _codes(data, "the data")
    checked: Codes | None = None
    if valid is not None:
        valid_names, valid_states, checked = _codes(valid, "the validation data")
        if checked.shape[1] != codes.shape[1]:
            raise DataError(
                f"the validation data has {checked.shape[1]} columns and the data {codes.shape[1]}: both need the same"
            )
        if valid_names is not None and names is not None and valid_names != names:
            i = next(i for i, (a, b) in enumerate(zip(names, valid_names, strict=True)) if a != b)
            raise DataError(
                f"column {i} is called {names[i]!r} in the data and {valid_names[i]!r} in the validation data"
            )
        if states != valid_states:
            states, (codes, checked) = _merged(states, valid_states, codes, checked)
    given = [(codes, "the data"), *([] if checked is None else [(checked, "the validation data")])]
    if variables is None:
        top = np.max([rows.max(axis=0) for rows, _ in given], axis=0)
        labels: Sequence[Name] = names if names is not None else range(1, codes.shape[1] + 1)
        variables = [
            Variable(name, len(states[i]), states[i]) if i in states else Variable(name, max(2, int(top[i]) + 1))
            for i, name in enumerate(labels)
        ]
    elif len(variables) != codes.shape[1]:
        raise DataError(f"the data has {codes.shape[1]} columns, but the circuit {len(variables)} variables")
    table = CodedRows(codes, tuple(variables))
    for rows, what in given:
        for i in np.flatnonzero(rows.max(axis=0) >= table.cardinality).tolist():
            raise DataError(
                f"{what} has the value {int(rows[:, i].max())} in column {i}, but variable "
                f"{variables[i].name!r} of the circuit takes 0 to {variables[i].cardinality - 1}"
            )
    return table, checked


def _codes(data: Any, what: str) -> tuple[list[Name] | None, dict[int, tuple[str, ...]], Codes]:
    """Column names (None where there are none), the labels of text columns, and the values."""
    names: list[Name] | None = None
    states: dict[int, tuple[str, ...]] = {}
    if hasattr(data, "columns") and hasattr(data, "iloc"):
        names = [_name(label) for label in data.columns]
        if not names:
            raise DataError(f"{what} has no columns")
        if len(set(names)) != len(names):
            raise DataError(f"{what} has two columns called {first_repeat(names)!r}: rename one")
        columns = [_frame_column(data.iloc[:, i], name, what) for i, name in enumerate(names)]
        states = {i: labels for i, (_, labels) in enumerate(columns) if labels}
        array: NDArray[Any] = np.column_stack([column for column, _ in columns])
    elif hasattr(data, "toarray") and hasattr(data, "nnz"):
        array = np.asarray(data.toarray())
    else:
        try:
            array = np.asarray(data)
        except ValueError:
            raise DataError(f"the rows of {what} do not all have the same length") from None
    if array.ndim != 2:
        shape = "rows of different lengths" if array.dtype == object else f"an array of {array.ndim} dimensions"
        raise DataError(f"{what} must be a matrix, one row an example and one column a variable, not {shape}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise DataError(f"{what} is empty: it has {array.shape[0]} rows and {array.shape[1]} columns")
    if array.dtype.kind not in "biuf":
        try:
            array = _floats(array)
        except (TypeError, ValueError, OverflowError):
            message = f"{what} must be numbers (values from 0); a frame may also have columns of text"
            raise DataError(message) from None
    return names, states, _small(array, names, what)


def _small(array: NDArray[Any], names: list[Name] | None, what: str) -> Codes:
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    with np.errstate(invalid="ignore"):
        bad = ~((array >= 0) & (array < MAX_VALUES))
        if array.dtype.kind == "f":
            bad |= array != np.floor(array)
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        value = array[row, column]
        where = f"{what}, row {row}, column {names[column] if names is not None else column} (counted from 0)"
        if np.isnan(value):
            raise DataError(f"{where}: the value is missing (NaN), and the learners need complete rows")
        if value < 0:
            raise DataError(f"{where}: {value} is negative, and values count from 0")
        if value >= MAX_VALUES and value == np.floor(value):
            raise DataError(f"{where}: {value} is too large, a column may have {MAX_VALUES} values, 0 to 255")
        raise DataError(f"{where}: {value} is not an integer; put a continuous column into bins first")
    return np.ascontiguousarray(array.astype(np.uint8))


def _floats(objects: NDArray[Any]) -> NDArray[np.float64]:
    """Objects as numbers, texts among them read as everywhere in margmap."""
    if objects.dtype != object or not all(is_plain(entry) for entry in objects.flat if isinstance(entry, str)):
        raise ValueError("a text is not a number")
    return objects.astype(np.float64)


def _frame_column(column: Any, name: Name, what: str) -> tuple[NDArray[Any], tuple[str, ...]]:
    """A column's numbers, or the numbers of its labels, which count in the order of the category or of the alphabet."""
    if bool(column.isna().any()):
        row = int(np.flatnonzero(np.asarray(column.isna()))[0])
        raise DataError(f"{what}, row {row}, column {name}: the value is missing, and the learners need complete rows")
    if hasattr(column, "cat"):
        labels = tuple(str(label) for label in column.cat.categories)
        numbers = np.asarray(column.cat.codes)
    else:
        values = np.asarray(column)
        if values.dtype.kind in "biuf":
            return values, ()
        if not all(isinstance(value, str) for value in values.tolist()):
            try:
                return _floats(values), ()
            except (TypeError, ValueError, OverflowError):
                raise DataError(f"{what}, column {name}: its entries are neither numbers nor text") from None
        labels = tuple(sorted(set(values.tolist())))
        numbers = np.searchsorted(np.array(labels), values.astype(str))
    if len(labels) > MAX_VALUES:
        raise DataError(f"{what}, column {name}: {len(labels)} different values, and {MAX_VALUES} are the most")
    return numbers, labels if len(labels) > 1 else (*labels, "(none)")


def _merged(
    one: dict[int, tuple[str, ...]], two: dict[int, tuple[str, ...]], codes: Codes, checked: Codes
) -> tuple[dict[int, tuple[str, ...]], tuple[Codes, Codes]]:
    """One numbering of the labels of both tables."""
    codes, checked = codes.copy(), checked.copy()
    states: dict[int, tuple[str, ...]] = {}
    for i in sorted(set(one) | set(two)):
        if i not in one or i not in two:
            raise DataError(f"column {i} is text in one of the data and the validation data, and numbers in the other")
        labels = tuple(dict.fromkeys((*one[i], *sorted(set(two[i]) - set(one[i])))))
        if len(labels) > 2 and "(none)" in labels:
            labels = tuple(label for label in labels if label != "(none)")
        states[i] = labels
        for rows, own in ((codes, one[i]), (checked, two[i])):
            lookup = np.array([labels.index(label) if label in labels else 0 for label in own], dtype=np.uint8)
            rows[:, i] = lookup[rows[:, i]]
    return states, (codes, checked)


def _name(label: Any) -> Name:
    if isinstance(label, np.integer):
        return int(label)
    return label if isinstance(label, int | str) and not isinstance(label, bool) else str(label)
