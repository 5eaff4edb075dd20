"""The options that several commands have, and the short forms in which every command declares its own.

A command's parameters are its options: ``time_limit: Annotated[float | None, option("S", "Stop after ...")] = None`` is
``--time-limit S``. The function of a command therefore has as many parameters as the command has options.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def option(metavar: str, help: str, *names: str, **rules: Any) -> Any:
    """An option with a value, called like its parameter unless ``names`` are given; ``rules`` are those of typer."""
    return typer.Option(*names, metavar=metavar, help=help, **rules)


def flag(name: str, help: str) -> Any:
    """An option without a value: its name, or several in the form ``--verbose -v``."""
    return typer.Option(*name.split(" "), help=help)


def argument(metavar: str, help: str) -> Any:
    """What is named by its place on the command line."""
    return typer.Argument(metavar=metavar, help=help)


_MODEL = "A circuit (.psdd .jpc .spn .ac .json .nnf .sdd) or a network (.bif .uai .xml), also .gz."
_INSTANCE = """JSON with "query" (a list) and "evidence" (an object), in place of the two options; \
the way to write names that contain '=' or ','."""
_DATA = "The folder of the datasets, or set MARGMAP_DATA."
_EVIDENCE = "Observed values: 1=0,4=1, age=young|old, age!=old, test=pos:0.7|neg:0.3, x>=3, x=18..25."
_QUERY = "Variables to find the best state of. Without: MPE."

Model = Annotated[Path, argument("MODEL", _MODEL)]
Format = Annotated[str | None, option("F", "The model's format, where its name does not say it.")]
Json = Annotated[bool, flag("--json", "Print one JSON object and nothing else.")]
MaxEdges = Annotated[int | None, option("N", "How large a circuit a network may be compiled to.", min=1)]
Evidence = Annotated[list[str] | None, option("V=X,...", _EVIDENCE, "--evidence", "-e")]
Query = Annotated[list[str] | None, option("V,...", _QUERY, "--query", "-q")]
Instance = Annotated[Path | None, option("FILE", _INSTANCE)]
Index = Annotated[int | None, option("I", 'Which entry of a list "instances" in it, from 0.')]
Dask = Annotated[str | None, option("tcp://HOST:8786", "Work on a Dask cluster; or: local.")]
DataFolder = Annotated[Path | None, option("DIR", _DATA, "--data")]
