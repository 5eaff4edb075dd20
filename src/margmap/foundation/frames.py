"""Tables as pandas frames, where pandas is installed; it is no dependency of margmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from margmap.errors import MissingExtraError


def pandas_for(what: str) -> Any:
    """The module pandas, or the error that says what needs it."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError(f"{what} needs pandas, which is not installed: pip install pandas") from None
    return pandas


def frame(header: Sequence[object], rows: Sequence[Sequence[object]], index: Sequence[object] | None = None) -> Any:
    """A frame with these columns; two columns may have the same name."""
    columns = list(header)
    made = pandas_for("to_frame()").DataFrame({i: [row[i] for row in rows] for i in range(len(columns))}, index=index)
    made.columns = columns
    return made
