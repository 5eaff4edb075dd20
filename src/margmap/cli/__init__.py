"""The command ``margmap``: each command is a function in the file of its name, and is listed here.

Whatever needs numpy or numba is imported inside the commands, so that ``--help`` and ``--version`` answer at once.
"""

from __future__ import annotations

import io
import platform
import sys
from contextlib import suppress
from importlib import import_module, metadata
from typing import Annotated

import typer

from margmap.cli.base import register
from margmap.cli.bench import bench
from margmap.foundation.interrupts import finish, take_over

__all__ = ["app", "main"]

# The commands in the order of --help; each is the function of this name in the file of this name.
_COMMANDS = [
    "info",
    "convert",
    "marginal",
    "likelihood",
    "sample",
    "solve",
    "sensitivity",
    "verify",
    "approximate",
    "plot",
    "draw",
    "learn",
    "impute",
    "score",
    "datasets",
    "demo",
    "explore",
    "warmup",
]
# What the extras bring, for --version.
_OPTIONAL = ["matplotlib", "scikit-learn", "pandas", "pgmpy", "pytoulbar2", "distributed", "starlette"]

app = typer.Typer(
    name="margmap",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Exact marginal MAP for probabilistic circuits: the most likely state of some variables, and the proof.",
    epilog="Exit codes: 0 optimal or done, 2 bad input or usage, 3 stopped before the proof was complete, 130 Ctrl-C.",
)
app.add_typer(bench)
for _name in _COMMANDS:
    register(app, getattr(import_module(f"margmap.cli.{_name}"), _name))


def main() -> None:
    """Run the command that the process was started with."""
    take_over()
    for stream in (sys.stdout, sys.stderr):  # names may have characters that this terminal's encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="margmap")
    except SystemExit as end:
        finish(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)


def _show_version(wanted: bool) -> None:
    if wanted:
        from margmap import __version__

        print(f"margmap {__version__}")
        parts = ", ".join(f"{name} {found}" for name, found in _installed().items())
        print(f"Python {platform.python_version()} on {platform.system()}, with {parts}")
        raise typer.Exit


def _installed() -> dict[str, str]:
    """The installed versions of what margmap uses, none of which is imported."""
    found = {}
    for name in ("numpy", "numba", "rich", "typer", *_OPTIONAL):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print all versions and exit."),
    ] = False,
) -> None:
    pass
