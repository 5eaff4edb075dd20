"""Tables as they come: CSV and Parquet files, frames, arrays and sparse matrices, as columns of numbers or of texts.

A CSV file is read once, in blocks of lines. A column keeps the number of each entry among its different texts; when
these become many and all are numbers, it keeps the numbers instead. So a file of 10^6 rows takes a few bytes a cell.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import IntArray, Name, first_repeat
from margmap.circuit.encoding import Entries
from margmap.circuit.evidence import MISSING_WORDS, is_frame, is_missing
from margmap.errors import DataError, FormatError, MissingExtraError
from margmap.foundation.numerals import is_plain, number_of
from margmap.io.files import place_of, stream_lines
from margmap.io.reading import shorten

#: Where rows come from: a matrix without names, lines of a file without names, or a table with names.
Origin: TypeAlias = Literal["matrix", "lines", "table"]

#: What stands for a missing entry in every table, besides the words of pandas.
QUESTION_MARK = "?"

# Lines of a file that are taken at once, and those that its delimiter and header are guessed by.
_BLOCK, _LOOK = 1 << 14, 200
# A column of a file with more different entries than these keeps numbers, if all are numbers; no more texts are kept.
_MANY_NUMBERS, _MANY_TEXTS = 4096, 100_000
_DELIMITERS = (",", ";", "\t", "|")
# What divides cells too seldom to be guessed.
_SELDOM = (":", " ")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")


@dataclass(frozen=True)
class RawColumn:
    """The entries of a column: ``numbers``, NaN where missing; or the numbers of ``texts``, -1 where missing."""

    name: Name
    entries: Entries | Literal["date"]
    numbers: NDArray[Any] | None = None
    ids: IntArray | None = None
    texts: tuple[str, ...] = ()
    #: Whether the texts are all that there can be, in their own order: the categories of a frame.
    fixed: bool = False
    #: Where there were more texts than are kept: how many, and in how many rows.
    overflow: tuple[int, int] | None = None

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.numbers) if self.numbers is not None else 0 if self.ids is None else len(self.ids)

    @property
    def absent(self) -> NDArray[np.bool_]:
        """Which entries are missing."""
        if self.numbers is None:
            return np.zeros(0, dtype=np.bool_) if self.ids is None else self.ids < 0
        return np.isnan(self.numbers) if self.numbers.dtype.kind == "f" else np.zeros(self.size, dtype=np.bool_)


@dataclass(frozen=True)
class RawTable:
    """Columns of one length, where they come from, and what messages call them."""

    columns: tuple[RawColumn, ...]
    rows: int
    origin: Origin
    what: str

    @property
    def names(self) -> list[Name]:
        """The names of the columns."""
        return [column.name for column in self.columns]


@dataclass(frozen=True)
class Words:
    """The texts that stand for a missing entry, and the numbers among them."""

    texts: frozenset[str]
    numbers: tuple[float, ...]
    #: Those that are not missing everywhere.
    own: tuple[str, ...]
    #: Whether any text among the numbers of a long column is missing too.
    any_text: bool = False


def missing_words(missing: Any) -> Words:
    """What ``missing=`` names, one text or number or several, with what is missing in every table."""
    given = [missing] if isinstance(missing, str | int | float) else list(missing or ())
    own = dict.fromkeys([QUESTION_MARK, *(str(word).strip() for word in given)])
    numbers = tuple(x for x in map(number_of, own) if x is not None and x == x)
    return Words(MISSING_WORDS | set(own), numbers, tuple(own))


def read_raw(
    source: Any, what: str, words: Words, header: bool | None = None, delimiter: str | None = None
) -> RawTable:
    """The columns of anything that is a table."""
    if isinstance(source, str | PathLike):
        path = place_of(source)
        if is_parquet(path):
            return _of_frame(read_parquet(path), str(path), words)
        return _of_file(path, words, header, delimiter)
    if hasattr(source, "to_pandas") and not hasattr(source, "iloc"):  # polars, pyarrow
        source = source.to_pandas()
    if is_frame(source) and hasattr(source, "iloc"):
        return _of_frame(source, what, words)
    return _of_array(source, what, words)


def place(what: str, name: Name, row: int | None = None) -> str:
    """Where something is, for messages; a column without a name of its own is named by its number from 1."""
    column = f"the column named {name}" if isinstance(name, int) else f"column {name}"
    return f"{what}, {column}" if row is None else f"{what}, row {row} (counted from 0), {column}"


def checked_names(names: Sequence[Name], what: str) -> None:
    """Refuse two columns of one name: 3 and "3" are the same, as everywhere in margmap."""
    texts = [str(name) for name in names]
    if len(set(texts)) != len(texts):
        raise DataError(f"{what} has two columns called {first_repeat(texts)!r}: rename one")


def joined(one: RawColumn, two: RawColumn, what: str) -> RawColumn:
    """The entries of two tables in one column."""
    dates = [column for column in (one, two) if column.entries == "date"]
    if len(dates) == 2 or (dates and (two if dates[0] is one else one).absent.all()):
        return dates[0]
    if not dates and (one.overflow is not None or two.overflow is not None):
        parts = [(len(each.texts), each.size) if each.overflow is None else each.overflow for each in (one, two)]
        return RawColumn(one.name, "text", overflow=(parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]))
    if dates or (one.numbers is None) != (two.numbers is None):
        for empty, other in ((one, two), (two, one)):
            if not dates and empty.absent.all():
                return _lengthened(other, empty.size, before=empty is one)
        kinds = ["dates" if c.entries == "date" else "text" if c.numbers is None else "numbers" for c in (one, two)]
        said = f"{kinds[0]} in {what} and {kinds[1]} in the validation data"
        raise DataError(f"column {one.name} has {said}: make them alike")
    if one.numbers is not None and two.numbers is not None:
        entries = one.entries if one.entries == two.entries else "float"
        return replace(one, entries=entries, numbers=np.concatenate((one.numbers, two.numbers)))
    assert one.ids is not None
    assert two.ids is not None
    texts = tuple(dict.fromkeys((*one.texts, *two.texts)))
    place = {text: i for i, text in enumerate(texts)}
    moved = np.array([*(place[text] for text in two.texts), -1], dtype=np.int32)[two.ids]
    entries = one.entries if one.entries == two.entries else "text"
    return replace(one, entries=entries, texts=texts, ids=np.concatenate((one.ids, moved)))


def _lengthened(column: RawColumn, rows: int, *, before: bool) -> RawColumn:
    """A column with missing entries before or after its own."""
    around = (rows, 0) if before else (0, rows)
    if column.numbers is not None:
        return replace(column, numbers=np.pad(column.numbers.astype(np.float64), around, constant_values=np.nan))
    assert column.ids is not None
    return replace(column, ids=np.pad(column.ids, around, constant_values=-1))


# -- files


def is_parquet(path: Path) -> bool:
    """Whether a file is one of Parquet, by its name."""
    return path.suffix.lower() in (".parquet", ".pq")


def read_parquet(path: Path) -> Any:
    """The frame in a Parquet file."""
    try:
        import pandas
        import pyarrow
    except ImportError:
        raise MissingExtraError(
            f"{path}: Parquet files need pandas and pyarrow: pip install 'margmap[tables]'"
        ) from None
    try:
        return pandas.read_parquet(path, engine="pyarrow")
    except FileNotFoundError:
        raise FormatError("there is no such file", path=path) from None
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise FormatError(f"not a Parquet file that can be read: {shorten(str(error))}", path=path) from error


def _of_file(path: Path, words: Words, header: bool | None, delimiter: str | None) -> RawTable:
    file = text_rows(path, words, header, delimiter)
    names: list[Name] = list(range(1, file.width + 1))
    if file.names is not None:
        names = [cell.strip() or f"column {i}" for i, cell in enumerate(file.names, 1)]
        checked_names(names, str(path))
    columns = [_TextColumn(name, words, path) for name in names]
    count = 0
    for block in _blocks(file.rows):
        for column, cells in zip(columns, zip(*block, strict=True), strict=True):
            column.add(cells)
        count += len(block)
    if not count:
        raise FormatError("the file has a header and no rows", path=path)
    origin: Origin = "lines" if file.names is None else "table"
    return RawTable(tuple(column.finished() for column in columns), count, origin, str(path))


class TextRows(NamedTuple):
    """The cells of a CSV file as they are written, its rows one by one."""

    #: The first line where it is a header, otherwise None.
    names: list[str] | None
    rows: Iterator[list[str]]
    width: int
    delimiter: str


def text_rows(path: Path, words: Words, header: bool | None = None, delimiter: str | None = None) -> TextRows:
    """The rows of a CSV file; its header and its delimiter are guessed where they are not given."""
    delimiter = "\t" if delimiter == "tab" else delimiter
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise DataError(f"delimiter={delimiter!r}: give one character, such as ';' or a tab")
    lines = stream_lines(path)
    first = list(islice(lines, _LOOK))
    chosen = _guessed_delimiter(first) if delimiter is None else delimiter
    ended = (f"{line}\n" for line in chain(first, lines))  # a cell in quotes may have more than one line
    rows = _checked_rows(csv.reader(ended, delimiter=chosen, strict=True), path, chosen)
    look = list(islice(rows, _LOOK))
    if not look:
        raise FormatError("the file has no rows", path=path)
    _check_delimiter(look, delimiter, path)
    names = look[0] if (looks_like_header(look, words) if header is None else header) else None
    return TextRows(names, chain(look[1:] if names is not None else look, rows), len(look[0]), chosen)


def _guessed_delimiter(lines: Sequence[str]) -> str:
    """The character that cuts all lines into the same number of cells, more than one; the comma if there is none."""
    best, most = ",", 1
    for delimiter in _DELIMITERS:
        try:
            widths = {len(cells) for cells in csv.reader(lines, delimiter=delimiter) if any(map(str.strip, cells))}
        except csv.Error:
            continue
        if len(widths) == 1 and max(widths) > most:
            best, most = delimiter, max(widths)
    if most == 1:  # ragged lines: the one that is in the first line
        best = max(_DELIMITERS, key=lambda delimiter: lines[0].count(delimiter))
        best = best if best in lines[0] else ","
    return best


def _check_delimiter(rows: Sequence[Sequence[str]], said: str | None, path: Path) -> None:
    """Refuse lines of one cell that another delimiter would divide; one that is seldom, where none was said."""
    if len(rows[0]) > 1:
        return
    for other in _DELIMITERS if said is not None else _SELDOM:
        times = {row[0].strip().count(other) for row in rows}
        if other != said and 0 not in times and (said is not None or (len(times) == 1 and len(rows) > 1)):
            raise FormatError(
                f"every line is one cell with {other!r} in it: "
                + (
                    f"the delimiter is {other!r}, perhaps, not {said!r}"
                    if said is not None
                    else f"if it divides cells, say delimiter={other!r} (--delimiter), otherwise delimiter=','"
                ),
                path=path,
                line=1,
            )


def _checked_rows(reader: Any, path: Path, delimiter: str) -> Iterator[list[str]]:
    """The cells of each line; an empty line is a missing entry in a file of one column, and no row in others."""
    width = 0
    try:
        for cells in reader:
            if len(cells) != width:
                blank = not cells or (len(cells) == 1 and not cells[0].strip())
                if blank and width != 1:
                    continue
                if width and not blank:
                    raise FormatError(
                        f"{len(cells)} values, but the lines before have {width} (cells are divided by {delimiter!r})",
                        path=path,
                        line=reader.line_num,
                    )
                width = width or len(cells)
            yield cells or [""]
    except csv.Error as error:
        raise FormatError(f"not a table of cells: {error}", path=path, line=reader.line_num) from None


def _blocks(rows: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    while block := list(islice(rows, _BLOCK)):
        yield block


def looks_like_header(rows: Sequence[Sequence[str]], words: Words) -> bool:
    """Whether the first of these rows has names: texts, above a column of numbers or such as are in no other row.

    A first row with a number or a missing entry in it is no header, but its first cell may be empty, as pandas writes
    it above the index, and one above a column of empty cells, as behind a delimiter that ends every line.
    """
    below = [[row[i].strip() for row in rows[1:]] for i in range(len(rows[0]))]
    names = [(i, cell.strip()) for i, cell in enumerate(rows[0]) if cell.strip() or any(below[i])]
    never = MISSING_WORDS | {QUESTION_MARK}
    if any(number_of(name) is not None or (name in never and (i or name)) for i, name in names):
        return False
    if not any(name for _, name in names):
        return False
    new = True
    for i, name in names:
        entries = {*below[i]} - words.texts
        if entries and all(number_of(text) is not None for text in entries):
            return True
        new = new and name not in entries
    return new and len(rows) > 1


class _Numbering(dict[str, int]):
    """The number of each text, in the order in which they are first asked for."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self)
        return number


class _TextColumn:
    """A column of a file on its way: numbers of texts, or numbers."""

    def __init__(self, name: Name, words: Words, path: Path) -> None:
        self.name, self.words, self.path = name, words, path
        self.numbering = _Numbering()
        self.ids: list[IntArray] = []
        self.numbers: list[NDArray[np.float64]] | None = None
        self.rows = 0
        self.text = False
        self.overflow: tuple[int, int] | None = None

    def add(self, cells: Sequence[str]) -> None:
        """Take the entries of some more rows."""
        self.rows += len(cells)
        if self.overflow is not None:
            return
        if self.numbers is not None:
            self.numbers.append(self._floats(cells))
            return
        self.ids.append(np.fromiter(map(self.numbering.__getitem__, cells), np.int32, len(cells)))
        if len(self.numbering) > _MANY_NUMBERS and not self.text:
            values = self._values()
            self.text = values is None
            if values is not None:
                self.numbers = [values[ids] for ids in self.ids]
                self.ids = []
                self.numbering = _Numbering()
        if len(self.numbering) > _MANY_TEXTS:
            self.overflow = len(self.numbering), self.rows
            self.ids = []

    def finished(self) -> RawColumn:
        """The column."""
        if self.overflow is not None:
            return RawColumn(self.name, "text", overflow=self.overflow)
        if self.numbers is None:
            values = self._values()
            ids = np.concatenate(self.ids)
            if values is None:
                return _text_column(self.name, ids, list(self.numbering), self.words)
            return _number_column(self.name, values[ids], self.words, place(str(self.path), self.name))
        return _number_column(self.name, np.concatenate(self.numbers), self.words, place(str(self.path), self.name))

    def _values(self) -> NDArray[np.float64] | None:
        """The number that each text is, NaN where it is missing; None if one is neither."""
        found = np.full(len(self.numbering), np.nan)
        for i, cell in enumerate(self.numbering):
            text = cell.strip()
            if text in self.words.texts:
                continue
            number = number_of(text)
            if number is None or _LEADING_ZERO.match(text):  # a code such as 007 is a text
                return None
            try:
                found[i] = float(number)
            except OverflowError:
                return None
        return found

    def _floats(self, cells: Sequence[str]) -> NDArray[np.float64]:
        if is_plain("".join(cells)):
            try:
                return np.array(list(map(float, cells)))
            except ValueError:
                pass
        found = np.full(len(cells), np.nan)
        for i, cell in enumerate(cells):
            text = cell.strip()
            if text not in self.words.texts:
                number = number_of(text)
                if number is None and self.words.any_text:
                    continue
                if number is None:
                    row = self.rows - len(cells) + i
                    raise DataError(
                        f"{place(str(self.path), self.name, row)}: {shorten(text)!r} is no number, "
                        f"but the {row} entries before are numbers: correct it, or name it in missing="
                    )
                found[i] = float(number)
        return found


def _text_column(name: Name, ids: IntArray, cells: Sequence[str], words: Words) -> RawColumn:
    """A column of texts, without the spaces around them, numbered in the order of the alphabet."""
    stripped = [cell.strip() for cell in cells]
    texts = sorted(set(stripped) - words.texts)
    place = {text: i for i, text in enumerate(texts)}
    moved = np.array([*(place.get(text, -1) for text in stripped), -1], dtype=np.int32)[ids]
    return RawColumn(name, "text", ids=moved, texts=tuple(texts))


def _number_column(name: Name, numbers: NDArray[Any], words: Words, where: str) -> RawColumn:
    """A column of numbers, NaN where an entry is one of those that stand for missing."""
    if words.numbers and np.isin(numbers, words.numbers).any():
        numbers = np.where(np.isin(numbers, words.numbers), np.nan, numbers)
    if numbers.dtype.kind != "f":
        return RawColumn(name, "bool" if numbers.dtype.kind == "b" else "int", numbers=numbers)
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0])
        raise DataError(f"{where}, row {row} (counted from 0): {numbers[row]} is not finite")
    present = numbers[~np.isnan(numbers)]
    whole = bool((present == np.floor(present)).all())
    return RawColumn(name, "int" if whole else "float", numbers=numbers)


# -- frames and arrays


def _of_frame(frame: Any, what: str, words: Words) -> RawTable:
    names = [_name(label) for label in frame.columns]
    if not names:
        raise DataError(f"{what} has no columns")
    checked_names(names, what)
    if not len(frame):
        raise DataError(f"{what} is empty: it has 0 rows and {len(names)} columns")
    columns = (_of_series(frame.iloc[:, i], name, what, words) for i, name in enumerate(names))
    return RawTable(tuple(columns), len(frame), "table", what)


def _of_series(series: Any, name: Name, what: str, words: Words) -> RawColumn:
    dtype = getattr(series, "dtype", None)
    where = place(what, name)
    if hasattr(dtype, "categories"):
        texts = [str(label) for label in series.cat.categories]
        kept = [text for text in texts if text.strip() not in words.texts]
        number = {text: i for i, text in enumerate(kept)}
        moved = np.array([*(number.get(text, -1) for text in texts), -1], dtype=np.int32)
        return RawColumn(name, "text", ids=moved[np.asarray(series.cat.codes)], texts=tuple(kept), fixed=True)
    kind = getattr(dtype, "kind", "O")
    if kind in "mM":
        return RawColumn(name, "date")
    if kind in "biuf":
        absent = np.asarray(series.isna())
        if kind == "b":
            ids = np.where(absent, -1, series.to_numpy(dtype=object, na_value=False).astype(bool)).astype(np.int32)
            return RawColumn(name, "bool", ids=ids, texts=("False", "True"), fixed=True)
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan) if absent.any() else series.to_numpy()
        if numbers.dtype.kind == "O":
            numbers = numbers.astype(np.float64)
        return _number_column(name, numbers, words, where)
    return _of_objects(series.to_numpy(dtype=object).tolist(), name, where, words)


def _of_objects(entries: Sequence[Any], name: Name, where: str, words: Words) -> RawColumn:
    """A column of Python's own values, all of one kind but for the missing ones."""
    kinds: dict[str, int] = {}
    for row, entry in enumerate(entries):
        if not is_missing(entry) and not (isinstance(entry, str) and entry.strip() in words.texts):
            kinds.setdefault(_kind(entry), row)
    if not kinds:
        return RawColumn(name, "text", ids=np.full(len(entries), -1, dtype=np.int32))
    if len(kinds) > 1:
        (one, _), (two, row) = sorted(kinds.items(), key=lambda each: each[1])[:2]
        raise DataError(
            f"{where}, row {row} (counted from 0): {shorten(repr(entries[row]))} is {two}, but the entries before are "
            f"{one}: make them all alike, or name what stands for missing in missing="
        )
    (kind, row) = next(iter(kinds.items()))
    if kind == "a date":
        return RawColumn(name, "date")
    if kind not in _KINDS:
        raise DataError(f"{where}: its entries are neither numbers nor text, but {kind} in row {row} (counted from 0)")
    missing = [is_missing(entry) for entry in entries]
    if kind == "text":
        numbering = _Numbering()
        ids = np.fromiter(
            (-1 if gone else numbering[entry] for entry, gone in zip(entries, missing, strict=True)),
            np.int32,
            len(entries),
        )
        return _text_column(name, ids, list(numbering), words)
    gone_or_word = [gone or (isinstance(entry, str)) for entry, gone in zip(entries, missing, strict=True)]
    if kind == "true or false":
        ids = np.array([-1 if gone else int(x) for x, gone in zip(entries, gone_or_word, strict=True)], dtype=np.int32)
        return RawColumn(name, "bool", ids=ids, texts=("False", "True"), fixed=True)
    try:
        numbers = np.array([np.nan if gone else float(x) for x, gone in zip(entries, gone_or_word, strict=True)])
    except OverflowError:
        raise DataError(f"{where}: it has a number that is out of the range of floats") from None
    return _number_column(name, numbers, words, where)


_KINDS = ("text", "true or false", "a number")


def _kind(entry: Any) -> str:
    if isinstance(entry, str):
        return "text"
    if isinstance(entry, bool | np.bool_):
        return "true or false"
    if isinstance(entry, int | float | np.integer | np.floating) or type(entry).__name__ in ("Decimal", "Fraction"):
        return "a number"
    if type(entry).__name__ in ("date", "datetime", "Timestamp", "datetime64", "Period", "time", "Timedelta"):
        return "a date"
    return f"something of type {type(entry).__name__}"


def _of_array(source: Any, what: str, words: Words) -> RawTable:
    if isinstance(source, Mapping):
        raise DataError(f"{what} is a mapping: give a frame, such as pandas.DataFrame(...) of it, or a matrix")
    if hasattr(source, "toarray") and hasattr(source, "nnz"):
        array: NDArray[Any] = np.asarray(source.toarray())
    else:
        if isinstance(source, Iterable) and not hasattr(source, "__len__"):
            source = list(source)
        try:
            array = np.asarray(source)
            if array.dtype.kind in "USO" and not isinstance(source, np.ndarray):
                array = np.asarray(source, dtype=object)  # numpy would make texts of the numbers beside a text
        except ValueError:
            raise DataError(f"the rows of {what} do not all have the same length") from None
    if array.ndim != 2:
        shape = "rows of different lengths" if array.dtype == object else f"an array of {array.ndim} dimensions"
        raise DataError(f"{what} must be a matrix, one row an example and one column a variable, not {shape}")
    if array.shape[0] == 0 or array.shape[1] == 0:
        raise DataError(f"{what} is empty: it has {array.shape[0]} rows and {array.shape[1]} columns")
    if array.dtype.kind not in "biufOU":
        raise DataError(f"{what} must be numbers or text, and is of type {array.dtype}")
    columns = []
    for i in range(array.shape[1]):
        where = place(what, i + 1)
        if array.dtype.kind in "biuf":
            columns.append(_number_column(i + 1, array[:, i], words, where))
        else:
            columns.append(_of_objects(array[:, i].tolist(), i + 1, where, words))
    return RawTable(tuple(columns), array.shape[0], "matrix", what)


def _name(label: Any) -> Name:
    if isinstance(label, np.integer):
        return int(label)
    return label if isinstance(label, int | str) and not isinstance(label, bool) else str(label)
