"""``margmap plot``: a figure of what ``margmap solve --trace`` wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from margmap.cli.options import Json, argument, option
from margmap.cli.output import report, spinner


def plot(
    trace: Annotated[Path, argument("TRACE.csv", "What `solve --trace` wrote.")],
    output: Annotated[Path, option("FILE", "The figure to write: .png, .svg or .pdf.", "--output", "-o")],
    json: Json = False,
) -> None:
    """Draw the bounds and the size of the circuit in each iteration of a solver."""
    with spinner("Drawing ..."):
        from margmap import plot as figures

        rows = figures.read_trace(trace)
        figures.save(rows, output)
    facts = {"trace": str(trace), "output": str(output), "iterations": len(rows)}
    report(json, facts, f"wrote {output}: {len(rows)} iterations")
