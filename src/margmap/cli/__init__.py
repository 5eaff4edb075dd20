"""The command ``margmap``: each command is a function in the file of its name, and is listed here.

Whatever needs numpy or numba is imported inside the commands, so that ``--help`` and ``--version`` answer at once; and
only the command that is run is imported.
"""

from __future__ import annotations

import io
import platform
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from margmap.cli.base import Commands, register
from margmap.foundation.interrupts import finish, take_over

if TYPE_CHECKING:
    app: typer.Typer

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
_OPTIONAL = [
    "matplotlib",
    "scikit-learn",
    "pandas",
    "pyarrow",
    "pgmpy",
    "pytoulbar2",
    "distributed",
    "uvicorn",
    "starlette",
]

_EXIT_CODES = (
    "Exit codes: 0 optimal, infeasible or done, 2 bad input or usage, 3 stopped before the proof was complete, "
    "130 Ctrl-C."
)


def make_app(names: Sequence[str] = _COMMANDS) -> typer.Typer:
    """The application with the commands of these names, and with ``bench`` if they are all."""
    app = typer.Typer(
        name="margmap",
        cls=Commands,
        context_settings={"help_option_names": ["-h", "--help"]},
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        help="Exact marginal MAP for probabilistic circuits: the most likely state of some variables, and the proof.",
        epilog=_EXIT_CODES,
    )
    if names is _COMMANDS:
        app.add_typer(import_module("margmap.cli.bench").bench)
    for name in names:
        register(app, getattr(import_module(f"margmap.cli.{name}"), name))
    app.callback()(_options)
    return app


def __getattr__(name: str) -> Any:
    if name == "app":
        globals()["app"] = make_app()
        return globals()["app"]
    raise AttributeError(f"module 'margmap.cli' has no attribute {name!r}")


def main() -> None:
    """Run the command that the process was started with."""
    take_over()
    for stream in (sys.stdout, sys.stderr):  # names may have characters that this terminal's encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        make_app(sys.argv[1:2] if sys.argv[1:2] and sys.argv[1] in _COMMANDS else _COMMANDS)(prog_name="margmap")
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
    from importlib import metadata

    found = {}
    for name in ("numpy", "numba", "rich", "typer", *_OPTIONAL):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print all versions and exit."),
    ] = False,
) -> None:
    pass
