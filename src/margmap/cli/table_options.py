"""The options of commands that read tables: what is missing, which columns, header or not, the delimiter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from margmap.cli.options import flag, option
from margmap.errors import QueryError

_MISSING = "A text or number that stands for a missing cell, besides empty, NA, nan and ?; may be repeated."

#: What commands say of rows that a model is asked about, and of values in them that it does not know.
ROWS = "A table with the columns that the model was learned from: .csv, .csv.gz or .parquet."
UNKNOWN = "Take values that the model does not know, and columns that are not there, for missing."

Missing = Annotated[list[str] | None, option("WORD", _MISSING)]
Columns = Annotated[list[str] | None, option("C,...", "The columns to take, by their names; without: all.")]
Header = Annotated[bool | None, flag("--header/--no-header", "Whether the first line has names, if unclear.")]
Delimiter = Annotated[str | None, option("C", "What divides cells, where the guess is wrong; 'tab' for a tab.")]


def parse_columns(option: str, texts: Sequence[str] | None) -> list[str] | None:
    """Names of columns from ``--columns age,city --columns income``."""
    names = [name.strip() for text in texts or () for name in text.split(",")]
    if "" in names:
        raise QueryError(f"{option}: the name of a column is missing")
    return names or None
