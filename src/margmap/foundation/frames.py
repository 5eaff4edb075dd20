"""Tables as pandas frames, where pandas is installed; it is no dependency of margmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from margmap.errors import MissingExtraError


def frame(header: Sequence[object], rows: Sequence[Sequence[object]], index: Sequence[object] | None = None) -> Any:
    """A frame with these columns; two columns may have the same name."""
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("to_frame() needs pandas, which is not installed: pip install pandas") from None
    columns = list(header)
    made = pandas.DataFrame({i: [row[i] for row in rows] for i in range(len(columns))}, index=index)
    made.columns = columns
    return made
