"""What every command of the command line shares: its exit codes, common options, and how it fails."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from margmap.cli.output import complain
from margmap.errors import MargmapError
from margmap.foundation.interrupts import INTERRUPTED, came, catching
from margmap.foundation.numerals import is_plain

#: Exit codes: 0 is for "optimal" or "done", typer itself uses 2 for wrong usage, and after Ctrl-C it is INTERRUPTED.
UNEXPECTED, BAD_INPUT, STOPPED, BROKEN_PIPE = 1, 2, 3, 141

P = ParamSpec("P")

Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A circuit (.psdd .jpc .spn .ac .json .nnf .sdd) or a network (.bif .uai .xml), also .gz.",
    ),
]
Format = Annotated[
    str | None, typer.Option("--format", metavar="F", help="The model's format, where its name does not say it.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def command_of(app: typer.Typer) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """What makes a function a command of ``app`` whose every failure is one line on stderr and an exit code."""

    def register(function: Callable[P, None]) -> Callable[P, None]:
        return app.command(name=function.__name__, cls=_class_for(function))(_guarded(function))

    return register


def _class_for(function: Callable[..., None]) -> type[TyperCommand]:
    """A command that reads the numbers among its options with ASCII digits only, as all of margmap does."""
    types = {name: {kind, *get_args(kind)} for name, kind in get_type_hints(function).items()}
    numbers = {name for name, kinds in types.items() if kinds & {int, float}}

    class Command(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            given = self.make_parser(ctx).parse_args(args=list(args))[0]
            param: Any
            for param in self.params:
                text = given.get(param.name)
                if param.name in numbers and isinstance(text, str) and not is_plain(text):
                    raise typer.BadParameter(f"{text!r} is not a number: write digits 0 to 9", ctx=ctx, param=param)
            return super().parse_args(ctx, args)

    return Command


def _guarded(function: Callable[P, None]) -> Callable[P, None]:
    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with catching():
                function(*args, **kwargs)
                sys.stdout.flush()
        except (typer.Exit, typer.BadParameter):
            raise
        except KeyboardInterrupt as error:
            interrupted(error)
        except BrokenPipeError as error:
            # Python flushes stdout once more when it ends; let that go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from error
        except Exception as error:
            if came():  # whatever it became on its way up
                interrupted(error)
            if isinstance(error, MargmapError):
                _fail(error, str(error), BAD_INPUT)
            what = f"unexpected {type(error).__name__}: {error}"
            _fail(error, f"{what}; please report this, with the output under MARGMAP_DEBUG=1", UNEXPECTED)

    return guarded


def interrupted(cause: BaseException | None = None) -> NoReturn:
    """End the command after Ctrl-C, with nothing to show for it."""
    print("margmap: interrupted", file=sys.stderr)
    raise typer.Exit(INTERRUPTED) from cause


def _fail(error: Exception, message: str, code: int) -> NoReturn:
    if os.environ.get("MARGMAP_DEBUG") == "1":
        raise error
    complain(message)
    raise typer.Exit(code) from error
