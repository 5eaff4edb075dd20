"""``margmap impute``: a table with its missing cells filled in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from margmap.cli.inputs import given, load_model, parse_names
from margmap.cli.options import Format, Json, Model, argument, flag, option
from margmap.cli.output import report, spinner
from margmap.cli.table_options import ROWS, UNKNOWN, Delimiter, Header, Missing
from margmap.errors import FormatError

if TYPE_CHECKING:
    from margmap.learn.imputation import Imputed

_COLUMNS = "Fill in these only, with all other missing cells summed out."
_SCORES = "Add the columns log_prob, log_conditional and status."
_SCORE_NAMES = ("log_prob", "log_conditional", "status")


def impute(
    model: Model,
    rows: Annotated[Path, argument("ROWS", ROWS)],
    output: Annotated[
        Path, option("FILE", "The table to write, as ROWS is: .csv, .csv.gz or .parquet.", "--output", "-o")
    ],
    columns: Annotated[list[str] | None, option("V,...", _COLUMNS)] = None,
    jobs: Annotated[int, option("N", "Processes; threads on a latent tree.", "--jobs", "-j", min=1)] = 1,
    time_limit: Annotated[float | None, option("S", "Seconds for each row.", min=0)] = None,
    unknown: Annotated[bool, flag("--unknown-missing", UNKNOWN)] = False,
    scores: Annotated[bool, flag("--scores", _SCORES)] = False,
    missing: Missing = None,
    header: Header = None,
    delimiter: Delimiter = None,
    format: Format = None,
    json: Json = False,
) -> None:
    """Fill in the missing cells of each row with their most likely combination of values, proven exact."""
    names = parse_names("--columns", columns)
    loaded = load_model(model, format)
    with spinner(f"Reading {rows} ..."):
        from margmap.learn.imputation import impute as fill
        from margmap.learn.table import Table, encode

        reading = given(header=header, delimiter=delimiter, missing=missing)
        _check_output(rows, output)
        codes = encode(loaded, rows, "missing" if unknown else "error", **reading)
        table = Table(codes, loaded.variables)
    with spinner(f"Filling in {len(table)} rows ..."):
        found = fill(loaded, table, names, jobs=jobs, time_limit=time_limit)
    with spinner(f"Writing {output} ..."):
        new = _New(loaded, table, found, scores)
        new.write(rows, output, **reading)
    by_status = {status: found.status.count(status) for status in dict.fromkeys(found.status)}
    number = int(new.cells.sum())
    facts: dict[str, Any] = {"output": str(output), "rows": len(found), "cells": number, "status": by_status}
    told = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in by_status.items())
    first = [f"row {row} (counted from 0): {why}" for row, why in sorted(found.errors.items())[:3]]
    report(json, facts, f"wrote {output}: {number} cells of {len(found)} rows filled in ({told})", *first)


def _check_output(rows: Path, output: Path) -> None:
    """Refuse before the work what cannot be written after it."""
    from margmap.learn.raw_columns import is_parquet

    if is_parquet(rows) != is_parquet(output):
        other = "a Parquet" if is_parquet(rows) else "a CSV"
        raise FormatError(
            f"the rows are {other} file, and so is what is written: let both names end alike", path=output
        )
    if not output.absolute().parent.is_dir():
        raise FormatError("there is no such folder", path=output.absolute().parent)


class _New(NamedTuple):
    """What was found for the missing cells of a file, whose other cells stay as they are written."""

    model: Any
    before: Any
    found: Imputed
    scores: bool

    @property
    def cells(self) -> Any:
        """Which cells are new."""
        return self.before.missing & ~self.found.table.missing

    def write(self, rows: Path, output: Path, **reading: Any) -> None:
        """Write the table with the new cells in it."""
        from margmap.io.files import write_lines, write_with
        from margmap.learn.raw_columns import is_parquet, read_parquet

        if is_parquet(rows):
            from margmap.learn.imputation import filled_frame

            frame = filled_frame(self.model, read_parquet(rows), self.found.codes, self.cells)
            if self.scores:
                frame = frame.assign(**{name: getattr(self.found, name) for name in _SCORE_NAMES})
            write_with(output, frame.to_parquet)
        else:
            write_lines(output, self.lines(rows, **reading))

    def lines(self, rows: Path, missing: Any = (), **reading: Any) -> Iterator[str]:
        """The lines of a CSV file with the new cells in them."""
        from margmap.io.files import csv_line
        from margmap.learn.raw_columns import missing_words, text_rows
        from margmap.learn.table import decode, places_of

        text = text_rows(rows, missing_words(missing), **reading)
        places = places_of(self.model.variables, text.names, text.width, str(rows))
        added = [i for i, place in enumerate(places) if place is None]
        at = [text.width + added.index(i) if place is None else place for i, place in enumerate(places)]
        if text.names is not None:
            names = [*text.names, *(str(self.model.names[i]) for i in added)]
            yield csv_line([*names, *(_SCORE_NAMES if self.scores else ())], text.delimiter)
        new, values = self.cells, decode(self.model, self.found.codes, numbers=True)
        for r, row in enumerate(text.rows):
            cells: list[Any] = [*row, *([""] * len(added))]
            for i in new[r].nonzero()[0].tolist():
                cells[at[i]] = values[r, i]
            if self.scores:
                cells += [getattr(self.found, name)[r] for name in _SCORE_NAMES]
            yield csv_line(cells, text.delimiter)
