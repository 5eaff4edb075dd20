"""What users give as evidence and as a query, brought into one form; whatever is not clear is refused.

Evidence is a mapping from variables to values, a pandas Series, or a frame of one row. None, NaN and pandas' NA and NaT
mean that nothing is observed. A Series and a frame are rows of a table, as :func:`margmap.marginal_map_many` takes
them; in tables an empty text, ``nan`` and the other words that pandas reads as missing, and -1 for a discrete variable,
mean the same, unless they are the name of a state or a number that falls in a bin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from margmap.errors import QueryError
from margmap.foundation.numerals import number_of

if TYPE_CHECKING:
    from margmap.circuit import Variable

#: The texts that pandas takes for a missing value when it reads a table.
MISSING_WORDS = frozenset(
    ["", "nan", "NaN", "-nan", "-NaN", "NA", "N/A", "n/a", "#N/A", "#N/A N/A", "#NA", "<NA>", "NULL", "null", "None"]
    + ["1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"]
)


def pairs_of(evidence: Any) -> tuple[Iterable[tuple[Any, Any]], bool]:
    """The variables of evidence with their values, and whether these are the cells of a table."""
    if evidence is None:
        return (), False
    if isinstance(evidence, Mapping):
        return evidence.items(), False
    if is_series(evidence):
        return zip(evidence.index, evidence.to_numpy(), strict=True), True
    if is_frame(evidence):
        rows = evidence.to_numpy()
        if len(rows) != 1:
            raise QueryError(
                f"evidence is a frame of {len(rows)} rows, and one is needed: ask for all of them at once with "
                "marginal_map_many, or give one, such as frame.iloc[0]"
            )
        return zip(evidence.columns, rows[0], strict=True), True
    what = f"evidence is of type {type(evidence).__name__}"
    if isinstance(evidence, np.ndarray | Sequence) and not isinstance(evidence, str | bytes):
        raise QueryError(
            f"{what}, which does not say which variables it is about: give a mapping such as {{'x': 1}}, or many rows, "
            "with their columns, to marginal_map_many"
        )
    raise QueryError(f"{what}: give a mapping from variables to values, such as {{'x': 1}}")


def is_series(given: Any) -> bool:
    """Whether this is a pandas Series, or looks like one."""
    return hasattr(given, "to_numpy") and hasattr(given, "index") and getattr(given, "ndim", None) == 1


def is_frame(given: Any) -> bool:
    """Whether this is a pandas frame, or looks like one."""
    return hasattr(given, "to_numpy") and hasattr(given, "columns")


def names_of(names: Any, what: str = "query") -> list[Any]:
    """The variables that a query, or another list of variables, names."""
    if isinstance(names, str):
        shown = shortened(names)
        raise QueryError(
            f"{what}={shown}: one text is the name of one variable, or a list of letters; give a list of variables, "
            f"such as {what}=[{shown}]"
        )
    entries: list[Any] | None = None
    if hasattr(names, "__iter__") and not isinstance(names, Mapping | bytes) and not is_frame(names):
        with suppress(TypeError):  # an array without dimensions
            entries = list(names)
    if entries is None:
        such = f", such as {what}=[{shortened(names)}]" if isinstance(names, int) else ""
        raise QueryError(f"{what}={shortened(names)} is of type {type(names).__name__}: give a list of variables{such}")
    return entries


def plain(value: Any) -> Any:
    """A number of numpy as one of Python; anything else as it is."""
    if type(value) in (int, float, str, bool):
        return value
    for numpy_type, python_type in ((np.bool_, bool), (np.integer, int), (np.floating, float)):
        if isinstance(value, numpy_type) and not isinstance(value, np.timedelta64):  # which numpy counts as integers
            return python_type(value)
    return value


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or what pandas or numpy have in its place."""
    if type(value) in (int, str, bool):
        return False
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and math.isnan(value)


def is_observed(variable: Variable, value: Any) -> bool:
    """Whether a value says anything. A NaN that can also be a state that pandas took for one is refused."""
    if not is_missing(value):
        return True
    if value is not None:
        _refuse_missing_word(variable, str(value))
    return False


def cell_of(variable: Variable, cell: Any) -> Any:
    """What a cell of a table says about a variable; None if nothing."""
    if isinstance(cell, str):
        text = cell.strip()
        if not text:
            if cell and cell in variable.states:
                return cell
            if "" in variable.states:
                _refuse_missing_word(variable, "an empty cell")
            return None
        if cell in variable.states or text in variable.states:
            return cell
        if variable.encoding is not None and variable.encoding.is_missing(text):
            return None
        number = number_of(text)
        if text in MISSING_WORDS or (isinstance(number, float) and math.isnan(number)):
            return None
    else:
        number = plain(cell)
        if variable.encoding is not None and variable.encoding.is_missing(number):
            return None
    minus_one = isinstance(number, int | float) and number == -1 and variable.bins is None
    return None if minus_one and not variable.continuous and not variable.called(-1) else cell


def _refuse_missing_word(variable: Variable, shown: str) -> None:
    words = [state for state in variable.states if state in MISSING_WORDS]
    if words:
        raise QueryError(
            f"variable {variable.name!r}: {shown} can mean that it is not observed, or its state {words[0]!r}, which "
            "pandas reads as missing: give None for the one and the name as text for the other "
            "(pandas.read_csv(..., keep_default_na=False) keeps it)"
        )


def shortened(value: object, most: int = 60) -> str:
    """Enough of a value to recognise it in a message."""
    try:
        text = repr(value)
    except Exception:  # an integer of more digits than Python writes, or an object's own trouble
        text = f"something of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[:most]}..."
