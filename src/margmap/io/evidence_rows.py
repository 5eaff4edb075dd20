"""Many rows of evidence: arrays, frames, sparse matrices, CSV files or mappings, one row at a time.

An entry that is missing is not observed: None, NaN, an empty cell, and -1 for a discrete variable; see
:mod:`margmap.circuit.evidence`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, Name, Named, Variable
from margmap.circuit.evidence import cell_of, is_frame, is_series, names_of
from margmap.circuit.variable import Observed
from margmap.errors import FormatError, QueryError
from margmap.foundation.numerals import number_of, real_of
from margmap.io.files import read_lines, stream_lines
from margmap.io.reading import shorten

Cells: TypeAlias = "Mapping[Name, Any] | NDArray[Any] | Sequence[Any]"

# Rows of a sparse matrix that are made dense at once.
_BLOCK = 256


class Rows(NamedTuple):
    """Rows of cells. A row is a mapping, or has one cell for each of ``columns``."""

    columns: tuple[int, ...]
    cells: Iterator[Cells]
    #: How many there are, where that is known before they are read.
    length: int | None
    #: Whether a row may be read before those before it are answered; not one that somebody makes just then.
    ahead: bool = True


class OfFile:
    """Rows that come from a file, in whatever form: they are there already and may be read ahead."""

    def __init__(self, cells: Iterable[Cells]) -> None:
        self._cells = cells

    def __iter__(self) -> Iterator[Cells]:
        return iter(self._cells)


def read_rows(model: Named, given: Any, columns: Sequence[Name] | None = None, header: bool | None = None) -> Rows:
    """The rows of anything that has rows; a cell is looked at when its row is asked for.

    ``columns`` names the variables of the columns; otherwise a frame and a CSV file may name them, and where nothing
    does there is one column for each of the model's variables, in order. ``header`` says whether the first line of a
    file has names, for the rare file whose first line could be either.
    """
    named = None if columns is None else _columns(model, columns)
    if isinstance(given, str | PathLike):
        return _csv(model, Path(given), named, header)
    if isinstance(given, Mapping):
        raise QueryError("evidence_rows is one mapping: give a list of rows, or use marginal_map for one row")
    if is_series(given):
        raise QueryError("evidence_rows is one Series: give a frame of rows, or use marginal_map for one row")
    if is_frame(given):
        named = _columns(model, given.columns) if named is None else named
        given = given.to_numpy()
    if hasattr(given, "tocsr"):
        matrix = given.tocsr()
        dense = (matrix[i : i + _BLOCK].toarray() for i in range(0, matrix.shape[0], _BLOCK))
        return _sized(model, named, matrix.shape, chain.from_iterable(dense))
    if isinstance(given, np.ndarray):
        if given.ndim != 2 or given.dtype.kind not in "biufOU":
            raise QueryError(
                f"evidence_rows is an array of {given.ndim} dimensions and type {given.dtype}: give a matrix of "
                "values, one row a query and one column a variable"
            )
        return _sized(model, named, given.shape, iter(given))
    if not isinstance(given, Iterable):
        raise QueryError(f"evidence_rows is of type {type(given).__name__}: give an array, a frame, a list or a path")
    length = len(given) if isinstance(given, Sequence) else None
    ahead = length is not None or isinstance(given, OfFile)
    return Rows(_columns(model, None) if named is None else named, iter(given), length, ahead)


def read_matrix(path: Path) -> FloatArray:
    """A matrix from a file of comma-separated numbers without a header, gzipped or not; an empty cell is NaN.

    So is an empty line where there is one column; where there are several it is no row.
    """
    lines = read_lines(path)
    if not lines[-1]:  # the end of the last line begins no other
        del lines[-1]
    try:
        rows: FloatArray = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)
    except ValueError:
        rows = np.zeros((0, 0))
    if rows.shape[1] < 2 and len(rows) < len(lines):
        rows = np.array(_scanned(lines, path))  # slower, but allows empty cells and knows the line of an error
    return rows


def _scanned(lines: Sequence[str], path: Path) -> list[list[float]]:
    rows: list[list[float]] = []
    one = not any("," in line for line in lines)
    for number, line in enumerate(lines, 1):
        if not line.strip() and not one:
            continue
        cells = [cell.strip() or "nan" for cell in line.split(",")]
        try:
            row = [real_of(cell) for cell in cells]
        except ValueError:
            shown = shorten(next(cell for cell in cells if number_of(cell) is None))
            what = f"{shown!r} is not a number: rows are comma-separated numbers without a header"
            raise FormatError(what, path=path, line=number) from None
        if rows and len(row) != len(rows[0]):
            raise FormatError(f"{len(row)} values, but the lines before have {len(rows[0])}", path=path, line=number)
        rows.append(row)
    return rows


def observed_of(model: Named, columns: Sequence[int], cells: Any) -> Observed:
    """What a row observes."""
    if isinstance(cells, Mapping) or is_series(cells) or is_frame(cells):
        return Observed(model.observed(cells, table=True))
    if isinstance(cells, BadRow):
        raise QueryError(cells.reason)
    if isinstance(cells, str) or not isinstance(cells, Sequence | np.ndarray):
        raise QueryError(f"a row is of type {type(cells).__name__}: give a mapping, or a value for each column")
    if len(cells) != len(columns):
        raise QueryError(f"the row has {len(cells)} values for {len(columns)} columns")
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iu":
        numbers, values = model.plain_numbers, cells.tolist()
        if all(-1 <= x < numbers[column] for column, x in zip(columns, values, strict=True)):
            return Observed({column: x for column, x in zip(columns, values, strict=True) if x >= 0})
    row = {model.variables[column]: cell for column, cell in zip(columns, cells, strict=True)}
    return Observed(model.observed(row, table=True))


def _columns(model: Named, names: Iterable[Name] | None) -> tuple[int, ...]:
    """The columns of these variables, or of all."""
    return tuple(range(len(model.variables)) if names is None else model.query_columns(names_of(names, "columns"), ()))


def _sized(model: Named, named: tuple[int, ...] | None, shape: tuple[int, ...], cells: Iterator[Cells]) -> Rows:
    columns = _columns(model, None) if named is None else named
    if shape[1] != len(columns):
        what = f"the {model._what} has {len(columns)} variables" if named is None else f"{len(columns)} are named"
        raise QueryError(f"evidence_rows has {shape[1]} columns, but {what}: name the columns with columns=[...]")
    return Rows(columns, cells, shape[0])


class FileRows(NamedTuple):
    """The cells of a file's rows, and the names in its first line, None if that is a row."""

    names: list[str] | None
    cells: Iterator[list[str]]
    #: How many cells the first line has, and its number.
    width: int
    line: int


class BadRow(NamedTuple):
    """What stands in the place of a row that cannot be understood, and why."""

    reason: str


def read_file(model: Named, path: Path, header: bool | None = None) -> FileRows:
    """The rows of a CSV file; ``header=None`` looks whether the first line has names of the model's variables."""
    lines = _parsed(path)
    blank, first = next(((i, cells) for i, cells in enumerate(lines) if not _is_blank(cells)), (0, None))
    if first is None:
        raise FormatError("the file has no rows", path=path)
    if header is None:
        header = _is_header(model, first, path)
    # In a file of one column an empty line is an empty cell; in others it is no row.
    one = len(first) == 1
    rest = (cells or [""] for cells in lines) if one else (cells for cells in lines if not _is_blank(cells))
    if header:
        return FileRows(_header(model, first), rest, len(first), 1 + blank)
    return FileRows(None, chain(([""] for _ in range(blank if one else 0)), (first,), rest), len(first), 1 + blank)


def _csv(model: Named, path: Path, named: tuple[int, ...] | None, header: bool | None) -> Rows:
    file = read_file(model, path, False if header is None and named is not None else header)
    if file.names is not None:
        try:
            found = _columns(model, file.names)
        except QueryError as error:
            raise FormatError(f"the header does not fit: {error}", path=path, line=file.line) from None
        return Rows(found if named is None else named, file.cells, None)
    columns = _columns(model, None) if named is None else named
    if file.width != len(columns):
        what = f"{file.width} cells and no header for the {len(columns)} variables of the {model._what}"
        raise FormatError(f"{what}: write their names in the first line", path=path, line=file.line)
    return Rows(columns, file.cells, None)


def _parsed(path: Path) -> Iterator[list[str]]:
    """The cells of each line."""
    reader = csv.reader(stream_lines(path), strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise FormatError(f"not comma-separated values: {error}", path=path, line=reader.line_num) from None


def _is_blank(cells: Sequence[str]) -> bool:
    return not cells or (len(cells) == 1 and not cells[0].strip())


def _header(model: Named, cells: Sequence[str]) -> list[str]:
    """The names in a first line, without the spaces around them that are not theirs."""
    names = {str(name) for name in model.names}
    return [cell if cell in names else cell.strip() for cell in cells]


def _is_header(model: Named, cells: Sequence[str], path: Path) -> bool:
    """Whether the first line of a file has names; a file that leaves it open is refused."""
    names = {str(name) for name in model.names}
    texts = _header(model, cells)
    known = [text in names for text in texts]
    header = all(known) and len(set(texts)) == len(texts)
    data = len(cells) == len(model.variables) and all(map(_is_value, model.variables, cells))
    if header and data:
        what = "the first line can be names and can be values: say which with --header or --no-header (header=)"
        raise FormatError(what, path=path, line=1)
    # A header that is wrong in a name is still one: as values it would be wrong too.
    return header or (not data and any(known) and any(number_of(text.strip() or "nan") is None for text in texts))


def _is_value(variable: Variable, text: str) -> bool:
    try:
        variable.value(cell_of(variable, text))
    except QueryError:
        return False
    return True
