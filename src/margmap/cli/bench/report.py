"""``margmap bench report``: tables and figures of what ``margmap bench run`` recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from margmap.cli import output as out
from margmap.cli.base import STOPPED
from margmap.cli.inputs import given
from margmap.cli.options import Json, argument, option

_OUTPUT = "The folder for report.md, its figures and index.html."
_REFERENCE = "The method that the others are compared with."
_WITHIN = "Cut all runs to so many seconds: what was not over by then counts as unsolved."
_COMMAND = "A command to show as how it was made; may be repeated."


def report(
    records: Annotated[Path, argument("RUNS.jsonl", "What `bench run` wrote.")],
    output: Annotated[Path, option("DIR", _OUTPUT, "--output", "-o")],
    reference: Annotated[str, option("LABEL", _REFERENCE)] = "frontier",
    title: Annotated[str | None, option("TEXT", "The heading of the report.")] = None,
    command: Annotated[list[str] | None, option("TEXT", _COMMAND)] = None,
    within: Annotated[float | None, option("S", _WITHIN, min=0.001)] = None,
    json: Json = False,
) -> None:
    """Write tables and figures: who solved what and how fast, and whether all agree. Exit code 3 if they do not."""
    with out.spinner("Reporting ..."):
        from margmap.bench.report import report as write
        from margmap.io.files import make_folder

        make_folder(output)
        found = write(records, output, reference=reference, commands=command or (), within=within, **given(title=title))
    lines = [f"wrote {path}" for path in found.written]
    if found.disagreements:
        lines.append(f"{found.disagreements} disagreements between methods: see the report")
    facts = {"written": [str(path) for path in found.written], "disagreements": found.disagreements}
    out.report(json, facts, *lines)
    if found.disagreements:
        raise typer.Exit(STOPPED)
