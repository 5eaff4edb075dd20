"""``margmap sample``: rows drawn from a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from margmap.cli.inputs import load_model, parse_evidence
from margmap.cli.options import Evidence, Format, Json, MaxEdges, Model, flag, option
from margmap.cli.output import print_json, report, spinner

if TYPE_CHECKING:
    from margmap.circuit import Variable


def sample(
    model: Model,
    number: Annotated[int, option("N", "How many rows to draw.", "-n", min=0)] = 1,
    evidence: Evidence = None,
    codes: Annotated[bool, flag("--codes", "Numbers of values, also where the model knows the table's own.")] = False,
    seed: Annotated[int | None, option("S", "For the same rows every time.", min=0)] = None,
    output: Annotated[Path | None, option("FILE", "Write there, not to stdout.", "--output", "-o")] = None,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Draw rows from p(. | evidence), a column for each of the model's variables.

    A model that was learned from a table gives its values, below a header; any other, or --codes, numbers of values.
    """
    observed = parse_evidence("--evidence", evidence)
    loaded = load_model(model, format)
    with spinner("Sampling ..."):
        from margmap.inference import queries
        from margmap.io.files import write_lines

        drawn = queries.sample(loaded, number, observed, seed, max_edges=max_edges)
    names = {"variables": list(loaded.names)}
    rows, lines = drawn.tolist(), _numbers(loaded.variables, drawn)
    if not codes and any(variable.encoding is not None for variable in loaded.variables):
        rows, lines = _values(loaded, drawn)
    if output is not None:
        write_lines(output, lines)
        report(json, {**names, "output": str(output), "rows": number}, f"wrote {number} rows to {output}")
    elif json:
        print_json({**names, "rows": rows})
    else:
        for line in lines:
            print(line)


def _numbers(variables: Sequence[Variable], drawn: Any) -> list[str]:
    """Lines of comma-separated numbers."""
    kinds = [float if variable.continuous else int for variable in variables]
    return [",".join(repr(kind(x)) for kind, x in zip(kinds, row, strict=True)) for row in drawn]


def _values(model: Any, drawn: Any) -> tuple[list[list[Any]], list[str]]:
    """The rows in the values of the table, and the lines of a CSV file with a header."""
    import csv
    import io

    from margmap.learn.table import decode

    rows: list[list[Any]] = decode(model, drawn).tolist()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(model.names)
    writer.writerows(rows)
    return rows, text.getvalue().splitlines()
