"""``margmap impute``: a table with its missing cells filled in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from margmap.cli.inputs import load_model, parse_names
from margmap.cli.options import Format, Json, Model, argument, flag, option
from margmap.cli.output import report, spinner

if TYPE_CHECKING:
    from margmap.learn.imputation import Imputed
    from margmap.learn.raw_columns import TextRows

_ROWS = "A CSV file, .gz or not, with the columns of the table that the model was learned from."
_COLUMNS = "Fill in these only, with all other missing cells summed out."
_UNKNOWN = "Take values that the model does not know for missing, too."
_SCORES = "Add the columns log_prob, log_conditional and status."


def impute(
    model: Model,
    rows: Annotated[Path, argument("ROWS", _ROWS)],
    output: Annotated[Path, option("FILE", "The table to write.", "--output", "-o")],
    columns: Annotated[list[str] | None, option("V,...", _COLUMNS)] = None,
    jobs: Annotated[int, option("N", "Processes; threads on a latent tree.", "--jobs", "-j", min=1)] = 1,
    time_limit: Annotated[float | None, option("S", "Seconds for each row.", min=0)] = None,
    unknown: Annotated[bool, flag("--unknown-missing", _UNKNOWN)] = False,
    scores: Annotated[bool, flag("--scores", _SCORES)] = False,
    format: Format = None,
    json: Json = False,
) -> None:
    """Fill in the missing cells of each row with their most likely combination of values, proven exact."""
    names = parse_names("--columns", columns)
    loaded = load_model(model, format)
    with spinner(f"Reading {rows} ..."):
        from margmap.learn.imputation import impute as fill
        from margmap.learn.raw_columns import read_text

        text = read_text(rows)
        cells = _cells(text, loaded)
    with spinner(f"Filling in {len(text.rows)} rows ..."):
        found = fill(loaded, cells, names, jobs=jobs, time_limit=time_limit, unknown="missing" if unknown else "error")
    number = _write(output, text, found, loaded, scores)
    by_status = {status: found.status.count(status) for status in dict.fromkeys(found.status)}
    facts: dict[str, Any] = {"output": str(output), "rows": len(found), "cells": number, "status": by_status}
    told = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in by_status.items())
    first = [f"row {row} (counted from 0): {why}" for row, why in sorted(found.errors.items())[:3]]
    report(json, facts, f"wrote {output}: {number} cells of {len(found)} rows filled in ({told})", *first)


def _places(text: TextRows, model: Any) -> list[int | None]:
    """The place in the file of each of the model's variables: by the names of the header, or in order."""
    if text.names is None:
        return list(range(len(model.variables)))
    known = {name.strip(): i for i, name in enumerate(text.names)}
    return [known.get(str(name)) for name in model.names]


def _cells(text: TextRows, model: Any) -> Any:
    """The file as a matrix of texts with a column for each variable; None where a cell or a column is missing."""
    import numpy as np

    from margmap.errors import DataError
    from margmap.learn.raw_columns import missing_words

    places = _places(text, model)
    if text.names is None and len(text.rows[0]) != len(places):
        raise DataError(
            f"the rows have {len(text.rows[0])} cells and the model {len(places)} variables: give the file a header"
        )
    gone = [str(name) for name, place in zip(model.names, places, strict=True) if place is None]
    if len(gone) == len(places):
        raise DataError(f"the file has none of the model's variables: its header is {', '.join(text.names or ())}")
    words = missing_words(()).texts
    found = np.full((len(text.rows), len(places)), None, dtype=object)
    for i, place in enumerate(places):
        if place is not None:
            states = set(model.variables[i].states)
            column = [row[place].strip() for row in text.rows]
            found[:, i] = [None if cell in words and cell not in states else cell for cell in column]
    return found


def _write(output: Path, text: TextRows, found: Imputed, model: Any, scores: bool) -> int:
    """Write the file with new cells in it, and say how many there are."""
    import csv
    import io

    from margmap.io.files import write_bytes
    from margmap.learn.table import decode

    values = decode(model, found.codes, numbers=True)
    places = _places(text, model)
    before = _cells(text, model)
    width = len(text.rows[0]) if text.rows else 0
    added = [i for i, place in enumerate(places) if place is None]
    out, number = io.StringIO(), 0
    writer = csv.writer(out, delimiter=text.delimiter, lineterminator="\n")
    extra = ["log_prob", "log_conditional", "status"] if scores else []
    if text.names is not None:
        writer.writerow([*text.names, *(str(model.names[i]) for i in added), *extra])
    for r, row in enumerate(text.rows):
        cells = [*row[:width], *([""] * len(added))]
        for i, place in enumerate(places):
            if before[r, i] is None and values[r, i] is not None:
                at = place if place is not None else width + added.index(i)
                cells[at] = str(values[r, i])
                number += 1
        if scores:
            cells += [repr(float(found.log_prob[r])), repr(float(found.log_conditional[r])), found.status[r]]
        writer.writerow(cells)
    write_bytes(output, out.getvalue().encode())
    return number
