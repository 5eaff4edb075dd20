"""Tables: what the learners take, and how its values become codes and codes become its values again.

:func:`read_table` takes CSV and Parquet files, frames, arrays and sparse matrices. Its result has the rows as codes and
the variables that the columns are. Each variable carries its encoding (:mod:`margmap.circuit.encoding`), into the
circuit and its file too. :func:`encode` makes codes of new rows in the same way, :func:`decode` the way back.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Encoding, LongArray, Name, Named, Variable
from margmap.circuit.evidence import cell_of
from margmap.errors import DataError, DroppedColumnWarning, QueryError
from margmap.foundation.numerals import number_of
from margmap.learn.column_kinds import DEFAULT_BINS, MAX_VALUES, Cut, Dropped, Rule, variable_of
from margmap.learn.raw_columns import RawColumn, RawTable, Words, joined, missing_words, place, read_raw

__all__ = [
    "MAX_VALUES",
    "CodedRows",
    "Codes",
    "Table",
    "decode",
    "decode_column",
    "encode",
    "read_table",
    "read_tables",
]

Codes: TypeAlias = NDArray[np.uint8]
Unknown: TypeAlias = Literal["error", "missing"]

# How errors name the option, for Python and the command line, that takes something for missing.
_LENIENT = "unknown='missing' (--unknown-missing) takes"


class CodedRows(NamedTuple):
    """Complete rows of values from 0, and the variables that the columns are."""

    codes: Codes
    variables: tuple[Variable, ...]

    @property
    def cardinality(self) -> LongArray:
        """The number of values of each column."""
        return np.array([v.cardinality for v in self.variables], dtype=np.int64)


@dataclass(frozen=True)
class Table:
    """Rows as codes, the variables that the columns are, and the columns that were left out.

    ``codes`` has a row for each row and a column for each variable: the number of the value, -1 where it is missing. If
    a column stays real numbers, all are floats, and NaN is missing.
    """

    codes: NDArray[Any]
    variables: tuple[Variable, ...]
    dropped: tuple[Dropped, ...] = ()

    def __post_init__(self) -> None:
        self.codes.flags.writeable = False

    @property
    def encoding(self) -> tuple[Encoding, ...]:
        """How each column is encoded; that of a column of plain numbers from 0 is of kind ``codes``."""
        return tuple(encoding_of(variable) for variable in self.variables)

    @property
    def names(self) -> tuple[Name, ...]:
        """The names of the columns."""
        return tuple(variable.name for variable in self.variables)

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which entries are missing."""
        absent: NDArray[np.bool_] = np.isnan(self.codes) if self.codes.dtype.kind == "f" else self.codes < 0
        return absent

    def schema(self) -> list[dict[str, Any]]:
        """What each column is: name, kind, entries, values with how often each occurs, missing entries, bin edges."""
        found = []
        for i, (variable, encoding) in enumerate(zip(self.variables, self.encoding, strict=True)):
            column, absent = self.codes[:, i], self.missing[:, i]
            facts: dict[str, Any] = {"name": variable.name, "kind": encoding.kind, "entries": encoding.entries}
            facts |= {"rows": len(self), "missing": int(absent.sum())}
            if variable.continuous:
                facts |= {"least": float(column[~absent].min()), "most": float(column[~absent].max())}
            else:
                counts = np.bincount(column[~absent].astype(np.int64), minlength=variable.cardinality)
                facts |= {"values": [variable.label(x) for x in range(variable.cardinality)], "counts": counts.tolist()}
            found.append({**facts, "edges": list(encoding.edges)} if encoding.kind == "bins" else facts)
        return found

    def __len__(self) -> int:
        return len(self.codes)


def encoding_of(variable: Variable) -> Encoding:
    """The encoding of a variable, also of one that never was a column of a table."""
    if variable.encoding is not None:
        return variable.encoding
    if variable.continuous:
        return Encoding("continuous", "float")
    return Encoding("states", "text") if variable.states else Encoding("codes", "int")


def one_hot(codes: Codes, first: LongArray) -> NDArray[np.float32]:
    """A column for every value of every column, 1 where the row has it; those of column i begin at ``first[i]``."""
    hot = np.zeros((codes.shape[0], int(first[-1])), dtype=np.float32)
    np.put_along_axis(hot, first[:-1] + codes.astype(np.int64), 1.0, axis=1)
    return hot


def read_table(
    source: Any,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    bins: Cut | Mapping[Any, Cut] = DEFAULT_BINS,
    missing: Any = (),
    columns: Sequence[Name] | None = None,
    continuous: bool | Sequence[Name] = False,
    unknown: Unknown = "error",
    variables: Named | Sequence[Variable] | None = None,
) -> Table:
    """Read a table, and make variables of its columns.

    ``source`` is the path of a CSV file (plain or gzipped) or a Parquet file, a frame, a matrix or a list of rows.
    ``header`` and ``delimiter`` are guessed where they are not given. ``bins`` is the number of bins for numbers that
    are no codes, a list of edges between them, or a mapping from columns to one of these or to None: no bins.
    ``missing`` names texts or numbers that stand for a missing entry, besides empty cells, ``NA`` and the other words
    of pandas, and ``?``. ``columns`` chooses columns by their names. ``continuous`` leaves numbers as they are: True
    for all that would go into bins, or the names of columns.

    With ``variables``, those of a table or a circuit, the rows are encoded as these say; ``unknown="missing"`` then
    takes a value that they do not have, and a column that is not there, for missing. Otherwise it is an error.

    >>> table = read_table([["sun", 21.5], ["rain", None], ["sun", 12.0]], bins=2)
    >>> table.variables[0].states, table.codes.tolist()
    (('rain', 'sun'), [[1, 1], [0, -1], [1, 0]])
    """
    words = replace(missing_words(missing), any_text=unknown == "missing")
    raw = chosen_columns(read_raw(source, "the data", words, header, delimiter), columns)
    if variables is not None:
        return Table(_encoded(_variables(variables), raw, unknown), _variables(variables))
    rule = _rule(raw, words, bins, continuous)
    return _table(raw, rule, insist=columns is not None)


def encode(
    variables: Named | Table | Sequence[Variable], rows: Any, unknown: Unknown = "error", **options: Any
) -> NDArray[Any]:
    """New rows as the codes that ``variables`` (of a table, a circuit, or a list of them) say; as :func:`read_table`.

    Columns with names are found by them, in any order, and others are left alone; a matrix has a column for each
    variable. ``options`` are ``header``, ``delimiter`` and ``missing`` of :func:`read_table`.
    """
    return read_table(rows, unknown=unknown, variables=_variables(variables), **options).codes


def decode(variables: Named | Table | Sequence[Variable], codes: Any, *, numbers: bool = False) -> NDArray[Any]:
    """Rows of codes in the values of the table, as an array of objects; None where missing.

    The value of a bin is its name, or with ``numbers`` the median of what was in it.
    """
    own = _variables(variables)
    array = np.asarray(codes)
    if array.ndim != 2 or array.shape[1] != len(own):
        raise DataError(f"the codes are an array of shape {array.shape}, and there are {len(own)} variables")
    found = np.empty(array.shape, dtype=object)
    for i, variable in enumerate(own):
        found[:, i] = decode_column(variable, array[:, i], numbers=numbers)
    return found


def decode_column(variable: Variable, codes: NDArray[Any], *, numbers: bool = False) -> NDArray[Any]:
    """The codes of one variable in the values of the table, as an array of objects; None where missing."""
    encoding = encoding_of(variable)
    found = np.full(len(codes), None, dtype=object)
    absent = np.isnan(codes) if codes.dtype.kind == "f" else codes < 0
    if variable.continuous:
        found[~absent] = codes[~absent].astype(np.float64).tolist()
        return found
    values = np.array([*_values(variable, encoding, numbers), None], dtype=object)
    at = np.where(absent, variable.cardinality, codes).astype(np.int64)
    if at.size and (at.min() < 0 or at.max() > variable.cardinality):
        raise DataError(f"variable {variable.name!r}: a code is out of range 0 to {variable.cardinality - 1}")
    decoded: NDArray[Any] = values[at]
    return decoded


def _values(variable: Variable, encoding: Encoding, numbers: bool) -> list[Any]:
    """What each code of a variable stands for."""
    if encoding.kind == "bins" and numbers:
        return [int(x) if encoding.entries == "int" else x for x in encoding.middles]
    if not variable.states:
        return list(range(variable.cardinality))
    if encoding.entries == "bool":
        return [state == "True" for state in variable.states]
    if encoding.kind == "codes":
        found = [number_of(state) for state in variable.states]
        return [float(x) if encoding.entries == "float" and x is not None else x for x in found]
    return list(variable.states)


# -- tables for the learners that need complete rows


def read_tables(
    data: Any, valid: Any = None, variables: Sequence[Variable] | None = None
) -> tuple[CodedRows, Codes | None]:
    """Training rows with their variables, and validation rows over the same ones, all complete.

    A column has the values of both. With ``variables`` given, those of a circuit to continue, the entries must fit.
    """
    table, checked = read_both(data, valid, variables)
    for rows, what in ((table.codes, "the data"), (checked, "the validation data")):
        if rows is None:
            continue
        if rows.dtype.kind == "f" or any(v.continuous for v in table.variables):
            raise DataError(f"{what} has columns of real numbers, and this learner needs discrete ones: use bins")
        if (rows < 0).any():
            row, column = (int(i) for i in np.argwhere(rows < 0)[0])
            raise DataError(
                f"{place(what, table.names[column], row)}: the value is missing, and this learner needs complete rows: "
                "drop such rows, or use a learner for missing values, such as hclt"
            )
    complete = CodedRows(np.ascontiguousarray(table.codes, dtype=np.uint8), table.variables)
    return complete, None if checked is None else np.ascontiguousarray(checked, dtype=np.uint8)


def read_both(
    data: Any, valid: Any = None, variables: Sequence[Variable] | None = None, **options: Any
) -> tuple[Table, NDArray[Any] | None]:
    """A table and the codes of validation rows; a column has the values of both. ``options`` as :func:`read_table`.

    Either may be a :class:`Table` already; validation rows are then encoded as it is.
    """
    if isinstance(data, Table):
        if variables is not None and tuple(variables) != data.variables:
            raise DataError("the table is encoded in another way than the variables of the circuit: give its source")
        checked = None if valid is None else valid.codes if isinstance(valid, Table) else encode(data, valid)
        if isinstance(valid, Table) and valid.variables != data.variables:
            raise DataError("the validation data is encoded in another way: read it with read_table(variables=...)")
        return data, checked
    words = missing_words(options.pop("missing", ()))
    given = {name: options.pop(name) for name in ("header", "delimiter") if name in options}
    columns = options.pop("columns", None)
    raw = chosen_columns(read_raw(data, "the data", words, **given), columns)
    more = None if valid is None else _like(raw, read_raw(valid, "the validation data", words, **given))
    if variables is not None:
        if raw.origin == "matrix" and len(variables) != len(raw.columns):
            raise DataError(f"the data has {len(raw.columns)} columns, but the circuit {len(variables)} variables")
        found = Table(_encoded(tuple(variables), raw, "error"), tuple(variables))
    else:
        both = raw if more is None else _joined(raw, more)
        rule = _rule(raw, words, options.pop("bins", DEFAULT_BINS), options.pop("continuous", False))
        whole = _table(both, rule, insist=columns is not None)
        found = Table(whole.codes[: raw.rows].copy(), whole.variables, whole.dropped)
        if more is not None:
            return found, whole.codes[raw.rows :]
    return found, None if more is None else _encoded(found.variables, more, "error")


def chosen_columns(raw: RawTable, columns: Sequence[Name] | None) -> RawTable:
    """The columns of these names, in this order; all where none are named."""
    if columns is None:
        return raw
    by_name = {str(column.name): column for column in raw.columns}
    unknown = [name for name in columns if str(name) not in by_name]
    if unknown and not isinstance(columns, str):
        raise DataError(f"{raw.what} has no column {unknown[0]!r}: it has {', '.join(by_name)}")
    if not columns or isinstance(columns, str):
        raise DataError(f"columns={columns!r}: give a list of names of columns")
    return RawTable(tuple(by_name[str(name)] for name in columns), raw.rows, raw.origin, raw.what)


def _like(raw: RawTable, more: RawTable) -> RawTable:
    """Validation rows with the columns of the data, in its order."""
    if raw.origin == "table" and more.origin == "table":
        by_name = {column.name: column for column in more.columns}
        if set(raw.names) <= set(by_name):
            return RawTable(tuple(by_name[name] for name in raw.names), more.rows, more.origin, more.what)
    if len(more.columns) != len(raw.columns):
        raise DataError(
            f"the validation data has {len(more.columns)} columns and the data {len(raw.columns)}: both need the same"
        )
    if raw.origin == "table" and more.origin == "table":
        pairs = enumerate(zip(raw.names, more.names, strict=True))
        i, (one, two) = next(each for each in pairs if each[1][1] not in raw.names or each[1][0] not in more.names)
        raise DataError(f"column {i} is called {one!r} in the data and {two!r} in the validation data")
    return more


def _joined(raw: RawTable, more: RawTable) -> RawTable:
    pairs = zip(raw.columns, more.columns, strict=True)
    return RawTable(tuple(joined(a, b, raw.what) for a, b in pairs), raw.rows + more.rows, raw.origin, raw.what)


def _rule(raw: RawTable, words: Words, bins: Any, continuous: bool | Iterable[Name]) -> Rule:
    named = [*bins] if isinstance(bins, Mapping) else []
    real = [] if isinstance(continuous, bool) else [*continuous]
    known = set(map(str, raw.names))
    for option, names in (("bins", named), ("continuous", real)):
        for name in names:
            if str(name) not in known:
                raise DataError(
                    f"{option}= names the column {name!r}, but {raw.what} has {', '.join(map(str, raw.names))}"
                )
    return Rule(words, bins, continuous if isinstance(continuous, bool) else frozenset(map(str, real)))


def _table(raw: RawTable, rule: Rule, *, insist: bool) -> Table:
    """The table of raw columns; with ``insist``, and in a matrix, every one of them must be of use."""
    found = [(column, variable_of(column, rule, raw.origin, raw.what)) for column in raw.columns]
    dropped = tuple(result for _, result in found if isinstance(result, Dropped))
    kept = [(column, result) for column, result in found if isinstance(result, Variable)]
    if dropped and (insist or not kept or raw.origin == "matrix"):
        told = "; ".join(f"column {each.name}: {each.reason}" for each in dropped[:5])
        raise DataError(f"{raw.what}, {told}" + ("" if kept else "; no column is left"))
    for each in dropped:
        warnings.warn(f"column {each.name} is left out: {each.reason}", DroppedColumnWarning, stacklevel=4)
    own = tuple(variable for _, variable in kept)
    return Table(_stacked([_column_codes(v, c, raw.what, "error") for c, v in kept], own, raw.rows), own, dropped)


def _variables(given: Named | Table | Sequence[Variable]) -> tuple[Variable, ...]:
    return tuple(getattr(given, "variables", given))  # type: ignore[arg-type]


def places_of(variables: Sequence[Variable], names: Sequence[Name] | None, width: int, what: str) -> list[int | None]:
    """The column of each variable in a table of so many columns: by their names, None if not there; or in order."""
    if names is not None:
        by_name = {str(name).strip(): place for place, name in enumerate(names)}
        return [by_name.get(str(variable.name)) for variable in variables]
    numbered = [variable.name for variable in variables if isinstance(variable.name, int)]
    if len(numbered) == len(variables) < width and min(numbered) > 0 and max(numbered) <= width:
        return [name - 1 for name in numbered]  # columns of a file without names were left out
    if width != len(variables):
        raise DataError(f"{what} has {width} columns, but there are {len(variables)} variables")
    return [*range(width)]


def _encoded(variables: tuple[Variable, ...], raw: RawTable, unknown: Unknown) -> NDArray[Any]:
    """Raw columns as the codes of variables that are known already."""
    if unknown not in ("error", "missing"):
        raise DataError(f"unknown={unknown!r}: give 'error' or 'missing'")
    names = raw.names if raw.origin == "table" else None
    places = places_of(variables, names, len(raw.columns), raw.what)
    gone = [variable.name for variable, place in zip(variables, places, strict=True) if place is None]
    if gone and (unknown == "error" or len(gone) == len(variables)):
        hint = "" if len(gone) == len(variables) else f"; {_LENIENT} a column that is not there for missing"
        raise DataError(f"{raw.what} has no column {gone[0]!r}: it has {', '.join(map(str, raw.names))}{hint}")
    columns = [None if place is None else raw.columns[place] for place in places]
    codes = [
        np.full(raw.rows, -1, dtype=np.int16) if column is None else _column_codes(variable, column, raw.what, unknown)
        for variable, column in zip(variables, columns, strict=True)
    ]
    return _stacked(codes, variables, raw.rows)


def _stacked(columns: Sequence[NDArray[Any]], variables: Sequence[Variable], rows: int) -> NDArray[Any]:
    real = any(variable.continuous for variable in variables)
    codes = np.empty((rows, len(columns)), dtype=np.float64 if real else np.int16)
    for i, (column, variable) in enumerate(zip(columns, variables, strict=True)):
        codes[:, i] = np.where(column < 0, np.nan, column) if real and not variable.continuous else column
    return codes


def _column_codes(variable: Variable, column: RawColumn, what: str, unknown: Unknown) -> NDArray[Any]:
    """The codes of a column; -1 where it is missing; of a continuous variable the numbers, NaN where missing."""
    if column.entries == "date" or column.overflow is not None:
        raise DataError(f"{place(what, column.name)}: its entries are no values of variable {variable.name!r}")
    if column.numbers is None:
        assert column.ids is not None
        table = _lookup(variable, column.texts, column.ids, what, unknown)
        return table[column.ids]
    absent, numbers = column.absent, column.numbers
    if variable.encoding is not None and variable.encoding.missing:
        words = [x for x in map(number_of, variable.encoding.missing) if x is not None]
        absent = absent | np.isin(numbers, words)
    if variable.continuous:
        return np.where(absent, np.nan, numbers.astype(np.float64))
    if variable.bins is not None:
        bins = np.searchsorted(np.array(variable.bins.edges), numbers, side="right").astype(np.int16)
        return np.where(absent, np.int16(-1), bins)
    plain = not variable.states and numbers.dtype.kind in "biu" and not absent.any()
    if plain and numbers.min() >= 0 and numbers.max() < variable.cardinality:
        return numbers.astype(np.int16)
    values, ids = np.unique(numbers, return_inverse=True)
    ids = np.where(absent, -1, ids.reshape(-1))
    table = _lookup(variable, values.tolist(), ids, what, unknown)
    return table[ids]


def _lookup(variable: Variable, values: Sequence[Any], ids: NDArray[Any], what: str, unknown: Unknown) -> NDArray[Any]:
    """For each of the different values of a column its code, and at the end that of a missing one."""
    real = variable.continuous
    found = np.full(len(values) + 1, np.nan if real else -1, dtype=np.float64 if real else np.int16)
    used = np.zeros(len(values) + 1, dtype=np.bool_)
    used[ids] = True
    for i, value in enumerate(values):
        if not used[i]:
            continue
        try:
            said = cell_of(variable, value) if isinstance(value, str) else value
            if said is not None:
                found[i] = variable.real(said) if real else variable.code(said)
        except QueryError as error:
            if unknown == "missing":
                continue
            row = int(np.flatnonzero(ids == i)[0])
            raise DataError(f"{place(what, variable.name, row)}: {error}; {_LENIENT} such values for missing") from None
    return found
