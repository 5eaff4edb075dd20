"""What every command shares: its exit codes, how it is registered with typer, and how it fails."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any, NoReturn, ParamSpec, get_args, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

from margmap.cli.output import complain
from margmap.errors import MargmapError
from margmap.foundation.interrupts import INTERRUPTED, came, catching
from margmap.foundation.numerals import is_plain

#: Exit codes: 0 is for "optimal" or "done", typer itself uses 2 for wrong usage, and after Ctrl-C it is INTERRUPTED.
UNEXPECTED, BAD_INPUT, STOPPED, BROKEN_PIPE = 1, 2, 3, 141

P = ParamSpec("P")


def register(app: typer.Typer, *functions: Callable[..., None]) -> None:
    """Make functions the commands of ``app``, called as they are; a failure is one line on stderr and an exit code."""
    for function in functions:
        app.command(name=function.__name__, cls=_class_for(function))(_guarded(function))


def _class_for(function: Callable[..., None]) -> type[TyperCommand]:
    """A command that reads the numbers among its options with ASCII digits only, as all of margmap does."""
    types = {name: {kind, *get_args(kind)} for name, kind in get_type_hints(function).items()}
    numbers = {name for name, kinds in types.items() if kinds & {int, float}}

    class Command(TyperCommand):
        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            given = self.make_parser(ctx).parse_args(args=list(args))[0]
            param: Any
            for param in self.get_params(ctx):
                _spare_pydantic(param, types.get(param.name, {bool}), given.get(param.name))
            for param in self.params:
                text = given.get(param.name)
                if param.name in numbers and isinstance(text, str) and not is_plain(text):
                    raise typer.BadParameter(f"{text!r} is not a number: write digits 0 to 9", ctx=ctx, param=param)
            return super().parse_args(ctx, args)

    return Command


class Commands(TyperGroup):
    """The application: its own options, ``--help`` and ``--version``, are flags."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command."""
        for param in self.get_params(ctx):
            _spare_pydantic(param, {bool}, None)
        return super().parse_args(ctx, args)


class _AsWritten:
    """In place of what typer makes with pydantic, whose import takes a tenth of a second: texts and paths as given."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self._read = read

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of a parameter; what was not given is None, or empty where several can be."""
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        return [self._read(one) for one in value] if several else self._read(value)


def _spare_pydantic(param: Any, kinds: set[Any], text: Any) -> None:
    """Let typer take a text or a path as it is, and a number that was not given as nothing, in this call only."""
    before = getattr(param, "_runtime_param", True)
    if before is not None and not isinstance(before, _AsWritten):
        return
    param._runtime_param = None
    written = {kind for kind in kinds if not isinstance(kind, UnionType)} - {type(None)}
    if written == {Path}:
        param._runtime_param = _AsWritten(Path)
    elif written <= {str, list[str], bool} or (text is None and param.default is None):
        param._runtime_param = _AsWritten(lambda value: value)


def _guarded(function: Callable[P, None]) -> Callable[P, None]:
    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with catching():
                function(*args, **kwargs)
                sys.stdout.flush()
                _compile_behind()
        except (typer.Exit, typer.BadParameter):
            raise
        except KeyboardInterrupt as error:
            interrupted(error)
        except BrokenPipeError as error:
            # Python flushes stdout once more when it ends; let that go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from error
        except Exception as error:
            if came():  # whatever Ctrl-C became on its way up
                interrupted(error)
            if os.environ.get("MARGMAP_DEBUG") == "1":
                raise
            if isinstance(error, MargmapError):
                complain(str(error))
                raise typer.Exit(BAD_INPUT) from error
            what = f"unexpected {type(error).__name__}: {error}"
            complain(f"{what}; please report this, with the output under MARGMAP_DEBUG=1")
            raise typer.Exit(UNEXPECTED) from error

    return guarded


def _compile_behind() -> None:
    """After an answer that was interpreted, let another process compile; see there."""
    jit = sys.modules.get("margmap.foundation.jit")
    if jit is not None and jit.interpreted_calls():
        jit.background.start()


def interrupted(cause: BaseException | None = None) -> NoReturn:
    """End the command after Ctrl-C, with nothing to show for it."""
    print("margmap: interrupted", file=sys.stderr)
    raise typer.Exit(INTERRUPTED) from cause
