"""Which columns of a file of rows are evidence, which are answers to compare with, and which are only carried along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from margmap.circuit.evidence import cell_of
from margmap.errors import FormatError, QueryError
from margmap.io.evidence_rows import BadRow, read_file

if TYPE_CHECKING:
    from margmap.circuit import Circuit, Name
    from margmap.network.network import Network

#: What stands in ``--carry`` for all columns.
ALL = "all"


class Extras(NamedTuple):
    """What a batch does with columns that are no evidence."""

    #: The column that says which row it is.
    id: str | None = None
    #: Columns that are copied to the answers, or all.
    carry: Sequence[str] = ()
    #: Whether the columns of the query are compared with the answers.
    truth: bool = False


class Layout(NamedTuple):
    """The columns of a file of rows by their places in it."""

    #: The model's columns that are observed, and their places.
    columns: tuple[int, ...]
    places: tuple[int, ...]
    #: The names and the places of columns that are copied, the id first.
    carried: tuple[tuple[str, int], ...]
    #: The columns of the model that are asked for and have a place in the file.
    truth: tuple[tuple[int, int], ...]
    #: Columns that the model does not have.
    ignored: tuple[str, ...]
    width: int


def layout_of(
    model: Circuit | Network, path: Path, header: bool | None, query: Sequence[Name] | None, extras: Extras
) -> Layout:
    """What the columns of a file are for."""
    file = read_file(model, path, _has_names(model, path, header, extras))
    names = [str(name) for name in model.names] if file.names is None else file.names
    if file.names is None and file.width != len(names):
        what = f"{file.width} cells and no header for the {len(names)} variables of the {model._what}"
        raise FormatError(f"{what}: write their names in the first line", path=path, line=file.line)
    if len(set(names)) != len(names):
        twice = next(name for name, number in Counter(names).items() if number > 1)
        raise FormatError(f"the header does not fit: {twice!r} is there twice", path=path, line=file.line)
    _check_extras(names, extras, path)
    asked = set() if query is None else set(model.query_columns(query, ()))
    learned = any(variable.encoding is not None for variable in model.variables)
    columns: list[tuple[int, int]] = []
    truth: list[tuple[int, int]] = []
    ignored: list[str] = []
    for place, name in enumerate(names):
        if name == extras.id:
            continue
        try:
            column = model.index(name)
        except QueryError as error:
            if not learned and name not in extras.carry:
                message = f"the header does not fit: {error}; --id or --carry names columns that are no variables"
                raise FormatError(message, path=path, line=file.line) from None
            ignored.append(name)
            continue
        (truth if column in asked else columns).append((column, place))
    if extras.truth and not truth:
        raise QueryError(f"--truth: {path} has no column of the query to compare with")
    copied = [name for name in names if name in extras.carry or ALL in extras.carry]
    shown = [*([] if extras.id is None else [extras.id]), *(name for name in copied if name != extras.id)]
    kept = {names[place] for _, place in truth}
    carried = tuple((name, names.index(name)) for name in shown if name not in kept)
    left = tuple(name for name in ignored if name not in copied)
    observed, places = zip(*columns, strict=True) if columns else ((), ())
    return Layout(tuple(observed), tuple(places), carried, tuple(truth), left, len(names))


def _has_names(model: Circuit | Network, path: Path, header: bool | None, extras: Extras) -> bool | None:
    """Whether the first line has names; a column that is named by an option must be in it."""
    return True if header is None and (extras.id is not None or extras.carry) else header


def _check_extras(names: Sequence[str], extras: Extras, path: Path) -> None:
    wanted = [*([] if extras.id is None else [extras.id]), *(name for name in extras.carry if name != ALL)]
    for name in wanted:
        if name not in names:
            raise FormatError(f"there is no column {name!r}: the first line has {', '.join(names)}", path=path)


def rows_of(model: Circuit | Network, path: Path, header: bool | None, extras: Extras) -> Iterator[list[str]]:
    """The cells of each row."""
    return read_file(model, path, _has_names(model, path, header, extras)).cells


def evidence_cells(layout: Layout, rows: Iterator[list[str]]) -> Iterator[list[str] | BadRow]:
    """Of each row the cells that are evidence."""
    for cells in rows:
        if len(cells) != layout.width:
            yield BadRow(f"the row has {len(cells)} values for {layout.width} columns")
        else:
            yield [cells[place] for place in layout.places]


class Scores:
    """How often the answers are what the rows have in the columns of the query."""

    def __init__(self, model: Circuit | Network, layout: Layout) -> None:
        self.model, self.layout = model, layout
        self.rows = self.right = 0
        self.by_name: dict[str, list[int]] = {str(model.names[column]): [0, 0] for column, _ in layout.truth}

    def compare(self, cells: Sequence[str], state: Mapping[str, Any]) -> bool | None:
        """Whether an answer has all values that a row has; None if there is nothing to compare."""
        if len(cells) != self.layout.width or not state:
            return None
        equal: list[bool] = []
        for column, place in self.layout.truth:
            variable = self.model.variables[column]
            said = cell_of(variable, cells[place])
            if said is None:
                continue
            try:
                right = variable.label(variable.code(said)) == state.get(str(variable.name))
            except QueryError:  # a value that the model never saw, which no answer can have
                right = False
            equal.append(right)
            counts = self.by_name[str(variable.name)]
            counts[0] += right
            counts[1] += 1
        if not equal:
            return None
        self.rows += 1
        self.right += all(equal)
        return all(equal)

    def facts(self) -> dict[str, Any]:
        """How many rows were compared, which part is right in all variables, and in each."""
        each = {name: right / number if number else None for name, (right, number) in self.by_name.items()}
        return {"compared": self.rows, "correct": self.right / self.rows if self.rows else None, "by_variable": each}
