"""Figures of a run: upper and lower bound and the circuit's size per iteration, as in the paper's Figure 2.

matplotlib is imported when a figure is made; it comes with ``pip install 'margmap[plot]'``.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from margmap.errors import FormatError, QueryError
from margmap.foundation.numerals import real_of
from margmap.io.files import csv_line, read_lines, write_bytes
from margmap.plot.picture import DPI, check_format, matplotlib, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from margmap.solve.result import Result

__all__ = ["FORMATS", "read_trace", "save", "trace", "trace_lines"]

#: What :func:`save` writes, by suffix.
FORMATS = ("png", "svg", "pdf")

_NEEDED = ("iteration", "pruned_upper", "pruned_lower", "pruned_edges", "split_upper", "split_lower", "split_edges")

Row: TypeAlias = Mapping[str, Any]


def trace(run: Result | Sequence[Row], axes: Sequence[Axes] | None = None) -> tuple[Axes, Axes]:
    """Draw both bounds above and the number of edges below, after pruning and after splitting in each iteration.

    ``run`` is a result with a trace, such as that of ``method="iterative"``, or the rows of :func:`read_trace`. A new
    pyplot figure is made unless two ``axes`` are given; the two that were drawn on are returned.
    """
    rows: list[Row] = [row.to_dict() for row in run.trace] if hasattr(run, "trace") else list(run)
    if not rows:
        why = "it was solved before the first" if getattr(run, "method", "iterative") == "iterative" else "no trace"
        raise QueryError(f"there are no iterations to draw: {why}; a trace comes from method='iterative'")
    if axes is None:
        pyplot = matplotlib("pyplot")
        axes = pyplot.subplots(2, sharex=True, layout="constrained", figsize=(6, 6))[1]
    top, bottom = axes
    # Two points an iteration: pruned at its number, split half a step on.
    at = [row["iteration"] + half for row in rows for half in (0.0, 0.5)]
    shown = {
        name: [_finite(row[f"{when}_{name}"]) for row in rows for when in ("pruned", "split")]
        for name in ("upper", "lower", "edges")
    }
    top.plot(at, shown["upper"], color="tab:red", marker=".", label="upper bound")
    top.plot(at, shown["lower"], color="tab:blue", marker=".", label="lower bound", linestyle="--")
    top.set_title("Bounds and size of the circuit in each iteration")
    top.set_ylabel("log p(q, e) (nats)")
    top.legend()
    bottom.plot(at, shown["edges"], color="tab:gray", linewidth=1)
    bottom.plot(at[::2], shown["edges"][::2], "v", color="tab:green", markersize=4, label="after pruning")
    bottom.plot(at[1::2], shown["edges"][1::2], "^", color="tab:orange", markersize=4, label="after splitting")
    bottom.set_ylabel("edges")
    bottom.set_ylim(bottom=0)
    bottom.set_xlabel("iteration")
    bottom.xaxis.set_major_locator(matplotlib("ticker").MaxNLocator(integer=True))
    bottom.legend()
    return top, bottom


def save(run: Result | Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Draw a trace into a PNG, SVG or PDF file, by its suffix; the file appears whole or not at all."""
    path = Path(path)
    form = check_format(path, FORMATS)
    figure = new_figure(6, 6)
    trace(run, figure.subplots(2, sharex=True))
    image = io.BytesIO()
    figure.savefig(image, format=form, dpi=DPI)
    write_bytes(path, image.getvalue())


def trace_lines(rows: Sequence[Any]) -> list[str]:
    """The iterations of ``result.trace`` as lines of a CSV file: a header, then one row each."""
    from margmap.solve.methods.iter_solve import Iteration, Snapshot

    nothing = Snapshot(0, 0, 0, 0, 0.0, 0.0)
    header = list((rows[0] if rows else Iteration(0, 0.0, 0.0, 0.0, 0, nothing, None, nothing)).to_dict())
    return [csv_line(cells) for cells in (header, *(row.to_dict().values() for row in rows))]


def read_trace(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of a file written by ``margmap solve --trace``, the columns a figure needs as numbers."""
    path = Path(path)
    rows: list[dict[str, Any]] = []
    reader = csv.DictReader(read_lines(path))
    try:
        missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise FormatError(f"not a trace: there is no column {missing[0]!r} in its first line", path=path, line=1)
        for row in reader:
            if None in row or None in row.values():
                raise FormatError("not as many cells as the header has", path=path, line=reader.line_num)
            numbers: dict[str, Any] = dict(row)
            for name in _NEEDED:
                try:
                    numbers[name] = real_of(row[name])
                except ValueError:
                    message = f"{row[name]!r} in column {name!r} is not a number"
                    raise FormatError(message, path=path, line=reader.line_num) from None
            rows.append(numbers)
    except csv.Error as error:
        raise FormatError(f"not a trace: {error}", path=path, line=max(1, reader.line_num)) from None
    return rows


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan
