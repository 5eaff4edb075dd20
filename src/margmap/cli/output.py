"""What the command line prints: one JSON object, or text and small tables; and what a terminal shows meanwhile."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from margmap.foundation.wording import probability_text

MOST_ROWS = 40
COMPILING = "Compiling kernels (first run only): {} ..."


def report(json: bool, facts: Mapping[str, Any], *lines: str) -> None:
    """What came of a command: one JSON object with the facts if that was asked for, otherwise the lines."""
    if json:
        print_json(facts)
    else:
        print("\n".join(map(printable, lines)))


def print_json(data: Mapping[str, Any]) -> None:
    """One JSON object on one line."""
    print(json_text(data))


def json_text(data: Mapping[str, Any]) -> str:
    """JSON on one line; a number that JSON does not have, the log of 0 above all, is null."""
    return json.dumps(_finite(data), allow_nan=False)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]], most: int | None = MOST_ROWS) -> None:
    """A table without frames, cut after ``most`` rows."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 3, 0, 0), show_header=any(header), header_style="bold")
    for title in header:
        table.add_column(title, overflow="fold")
    for row in rows[:most]:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    Console(highlight=False).print(table)
    if most is not None and len(rows) > most:
        print(f"... and {len(rows) - most} more (use --json)")


def print_state(state: Mapping[Any, Any], log_prob: float, log_conditional: float) -> None:
    """A state as a table, and its probability."""
    print_table(("variable", "value"), list(state.items()))
    print(probability_text(log_prob, log_conditional))


def complain(message: str) -> None:
    """The one line on stderr that an error gets."""
    print(f"margmap: error: {printable(message)}", file=sys.stderr)


def printable(text: str) -> str:
    """The text on one line and without control characters: names come from files, and a terminal obeys them."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


@contextmanager
def telling(*categories: type[Warning]) -> Iterator[None]:
    """Print warnings of these categories on stderr as lines of margmap, each once, when the block is left."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        for category in categories:
            warnings.simplefilter("always", category)
        yield
    told = set()
    for one in caught:
        if isinstance(one.message, categories):
            if str(one.message) not in told:
                print(f"margmap: {printable(str(one.message))}", file=sys.stderr)
            told.add(str(one.message))
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


@contextmanager
def spinner(text: str) -> Iterator[Callable[..., None]]:
    """Show on a terminal's stderr what is being done, or that kernels are being compiled; elsewhere nothing.

    The function it gives replaces the text by other lines. Nothing may be printed inside the block: rich would
    send it to stderr.
    """
    if not sys.stderr.isatty():
        yield lambda *_lines: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(printable(text)), spinner="line") as status:
        from margmap.foundation import jit  # imports numpy: the spinner turns already

        shown: tuple[str, ...] = (text,)

        def show(*lines: str) -> None:
            nonlocal shown
            shown = lines
            status.update(Text("\n".join(map(printable, lines))))

        def compiling() -> None:
            status.update(Text(COMPILING.format(jit.compiled_so_far())))

        with jit.telling_elsewhere(), jit.on_compile(compiling, lambda: show(*shown)):
            yield show


@contextmanager
def bar(text: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
    """Show on a terminal's stderr how many of ``total`` are done; elsewhere nothing.

    The function it gives takes how many more are done, and a new text and a new total if there are any.
    """
    if not sys.stderr.isatty():
        yield lambda _more, _new="", _total=None: None
        return
    from rich import progress
    from rich.console import Console

    counts = (progress.BarColumn(), progress.MofNCompleteColumn(), progress.TimeElapsedColumn())
    columns = (progress.TextColumn("{task.description}", markup=False), *counts, progress.TimeRemainingColumn())
    with progress.Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(text, total=total, completed=done)
        yield lambda more, new=text, total=None: shown.update(
            task, advance=more, description=printable(new), total=total
        )


def filled_bar(part: float, width: int, marks: str) -> str:
    """A bar of text of which a part, from 0 to 1, is filled; ``marks`` are what is full and what is empty."""
    full = min(width, int(width * part))
    return marks[0] * full + marks[1] * (width - full)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
