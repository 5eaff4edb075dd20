"""The commands ``margmap bench generate | run | report``, one file each."""

from __future__ import annotations

import typer

from margmap.cli.base import register
from margmap.cli.bench import generate, report, run

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    help="Compare methods on circuits: draw instances, run everything on them, report.",
)
register(bench, generate.generate, run.run, report.report)
