"""What the command line prints: one JSON object, or text and small tables."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from margmap.solve.methods.iter_solve import Iteration
    from margmap.solve.result import Result

MOST_ROWS = 40
COMPILING = "Compiling kernels (first run only) ..."


def print_json(data: Mapping[str, Any]) -> None:
    """One JSON object on one line."""
    print(json_text(data))


def json_text(data: Mapping[str, Any]) -> str:
    """JSON on one line; a number that JSON does not have, the log of 0 above all, is null."""
    return json.dumps(_finite(data), allow_nan=False)


def print_table(header: Sequence[str], rows: Sequence[Sequence[object]], most: int = MOST_ROWS) -> None:
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
    if len(rows) > most:
        print(f"... and {len(rows) - most} more (use --json)")


def print_result(result: Result) -> None:
    """The state as a table, its probability, and what is proven of it."""
    if result.state is None:
        print(result.no_state)
        return
    print_table(("variable", "value"), list(result.state.items()))
    print(f"log p(q, e) = {result.log_prob:.6f}, p(q | e) = {math.exp(result.log_conditional):.6g}")
    print(proof(result))


def print_top(result: Result, asked: int) -> None:
    """The states after the best one, each by what it has different, and whether some could be missing."""
    if result.state is None:
        return
    rows = [
        (rank, f"{one.log_prob:.6f}", f"{math.exp(one.log_conditional):.6g}", _difference(result.state, one.state))
        for rank, one in enumerate(result.top, 1)
    ]
    print_table(("rank", "log p(q, e)", "p(q | e)", "different from the best in"), rows)
    if result.status != "optimal":
        print("there may be better states than the last of these")
    elif len(rows) < asked:
        print("there are no others: all other states have probability 0")


def _difference(best: Mapping[Any, Any], state: Mapping[Any, Any], most: int = 12) -> str:
    """The values that are not those of the best state."""
    changed = [f"{name}={value}" for name, value in state.items() if value != best[name]]
    return ", ".join(changed[:most]) + (f", ... ({len(changed)} in all)" if len(changed) > most else "")


def proof(result: Result) -> str:
    """What the bounds say, in one line."""
    from margmap.foundation.limits import TOLERANCE

    if result.gap <= TOLERANCE:
        return f"proven optimal: no state is better (bounds within {TOLERANCE:g} nats)"
    more = f"a better state can have at most log p = {result.log_upper:.6f}, {result.gap:.3g} nats more"
    if result.status == "optimal":
        return f"within the gap asked for: {more}"
    return f"stopped ({result.status.replace('_', ' ')}): {more}"


def complain(message: str) -> None:
    """The one line on stderr that an error gets."""
    print(f"margmap: error: {printable(message)}", file=sys.stderr)


def printable(text: str) -> str:
    """The text on one line and without control characters: names come from files, and a terminal obeys them."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


@contextmanager
def spinner(text: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal's stderr what is being done, or that kernels are being compiled; elsewhere nothing.

    The function it gives replaces the text. Nothing may be printed inside the block: rich would send it to stderr.
    """
    if not sys.stderr.isatty():
        yield lambda _text: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(printable(text)), spinner="line") as status:
        from margmap.foundation.jit import on_compile  # numba, the slow import: the spinner turns already

        shown = text

        def show(new: str) -> None:
            nonlocal shown
            shown = new
            status.update(Text(printable(new)))

        with on_compile(lambda: status.update(Text(COMPILING)), lambda: show(shown)):
            yield show


@contextmanager
def bar(text: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Show on a terminal's stderr how many of ``total`` are done; elsewhere nothing. The function adds some."""
    if not sys.stderr.isatty():
        yield lambda _more: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as shown:
        task = shown.add_task(text, total=total, completed=done)
        yield lambda more: shown.advance(task, more)


def progress(row: Iteration) -> str:
    """One iteration of a solver in one line."""
    now = row.split
    return (
        f"Solving ... iteration {row.iteration}: {now.lower:.6g} <= log p <= {now.upper:.6g}, "
        f"gap {max(0.0, now.upper - now.lower):.3g}, {now.edges} edges"
    )


def csv_lines(rows: Iterable[Sequence[float]], discrete: Sequence[bool]) -> Iterator[str]:
    """Rows as comma-separated numbers, those of discrete variables without a point."""
    for row in rows:
        yield ",".join(str(int(x)) if whole else repr(float(x)) for x, whole in zip(row, discrete, strict=True))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
