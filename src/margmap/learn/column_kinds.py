"""What kind of variable a column of a table becomes: named states, codes that keep their values, bins, or real numbers.

Texts and truth values are states. Whole numbers of few different values are codes, and only the values that occur are
states. Other numbers are put into bins, by default of equally many rows. Dates, identifiers and columns without any
entry are no use to a model: they are left out, and the reason is told.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Encoding, FloatArray, Name, Variable
from margmap.circuit.encoding import bin_names, number_text
from margmap.circuit.evidence import shortened
from margmap.errors import DataError
from margmap.learn.raw_columns import Origin, RawColumn, Words, place

#: A column may take this many values.
MAX_VALUES = 256
#: A column of whole numbers of a table has codes if it has at most this many different ones.
MAX_CODES = 20
#: How many bins there are if nothing else is said.
DEFAULT_BINS = 8

# Texts, nearly all different, or whole numbers, all different and rising, are identifiers if there are more than these.
_FEW, _NEARLY_ALL = 20, 0.9
_DATE = re.compile(r"\d{4}-\d{1,2}(-\d{1,2}([T ].*)?)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?|\d{4}/\d{1,2}/\d{1,2}.*")
# Numbers as 3,14 and 1,234.50 are written, and whole ones beside them.
_COMMA = re.compile(r"[+-]?\d+(,\d+)*(\.\d*)?")

#: A number of bins, the edges between them, or None: no bins, but codes.
Cut: TypeAlias = "int | Sequence[float] | None"


class Dropped(NamedTuple):
    """A column that the model does not have, and why."""

    name: Name
    reason: str


@dataclass(frozen=True)
class Rule:
    """How numbers are cut, what is missing, and which columns stay real numbers (True: all that would be cut)."""

    words: Words
    bins: Cut | Mapping[Any, Cut]
    continuous: bool | frozenset[str]

    def cut(self, name: Name) -> tuple[bool, Cut]:
        """Whether the bins of a column were asked for by its name, and what they are."""
        if isinstance(self.bins, Mapping):
            for key in (name, str(name)):
                if key in self.bins:
                    return True, self.bins[key]
            return False, DEFAULT_BINS
        return False, self.bins

    def stays_real(self, name: Name) -> bool:
        """Whether a column was named as one of real numbers."""
        return not isinstance(self.continuous, bool) and str(name) in self.continuous


def variable_of(column: RawColumn, rule: Rule, origin: Origin, what: str) -> Variable | Dropped:
    """The variable that a column becomes."""
    where = place(what, column.name)
    if column.entries == "date":
        return Dropped(column.name, "dates are no use as they are: make columns such as month or weekday of them")
    if column.overflow is not None:
        return _too_many(column.name, *column.overflow, where, f"more than {column.overflow[0]}")
    if column.absent.all():
        return Dropped(column.name, "all its entries are missing")
    if column.numbers is None:
        return _of_texts(column, rule, where)
    return _of_numbers(column, column.numbers, rule, origin, where)


def _of_texts(column: RawColumn, rule: Rule, where: str) -> Variable | Dropped:
    assert column.ids is not None
    seen = int((np.bincount(column.ids[column.ids >= 0]) > 0).sum())
    present = int((~column.absent).sum())
    if rule.cut(column.name)[0] or rule.stays_real(column.name):
        text = column.texts[int(column.ids[column.ids >= 0][0])]
        raise DataError(f"{where}: bins or real numbers were asked for, but it has texts such as {shortened(text)}")
    if not column.fixed and seen > _FEW and all(_DATE.fullmatch(text) for text in column.texts):
        return Dropped(column.name, "dates are no use as they are: make columns such as month or weekday of them")
    commas = [text for text in column.texts if "," in text]
    if not column.fixed and seen > _FEW and commas and all(_COMMA.fullmatch(text) for text in column.texts):
        return Dropped(
            column.name, f"numbers with commas, such as {commas[0]}: write a decimal point, and no other mark"
        )
    if not column.fixed and seen > _FEW and seen >= _NEARLY_ALL * present:
        return _too_many(column.name, seen, present, where, str(seen))
    if len(column.texts) > MAX_VALUES:
        return _too_many(column.name, len(column.texts), present, where, str(len(column.texts)))
    encoding = Encoding("states", "bool" if column.entries == "bool" else "text", missing=rule.words.own)
    return Variable(column.name, len(column.texts), column.texts, encoding)


def _too_many(name: Name, seen: int, present: int, where: str, shown: str) -> Dropped:
    """The fate of a column of so many texts: an identifier is left out, anything else is for the user to decide."""
    if seen >= _NEARLY_ALL * present:
        return Dropped(name, f"{shown} different values in {present} rows: an identifier, not a variable")
    raise DataError(
        f"{where}: {shown} different values, and {MAX_VALUES} are the most: put them into groups, or choose other "
        "columns with columns="
    )


def _of_numbers(column: RawColumn, numbers: NDArray[Any], rule: Rule, origin: Origin, where: str) -> Variable | Dropped:
    name, entries = column.name, "int" if column.entries == "bool" else column.entries
    assert entries in ("int", "float")
    asked, cut = rule.cut(name)
    own = rule.words.own
    if rule.stays_real(name):
        return Variable(name, 0, (), Encoding("continuous", entries, missing=own))
    present = numbers[~column.absent] if column.absent.any() else numbers
    if origin == "matrix" and entries == "int" and not asked and present.max() < MAX_VALUES:
        _refuse_negative(numbers, where)
        return Variable(name, max(2, int(present.max()) + 1))
    values = np.unique(present)
    if entries == "int" and not asked and origin != "table" and values[-1] < MAX_VALUES:
        _refuse_negative(numbers, where)
        few = True
    else:
        few = values.size <= MAX_CODES
        if entries == "int" and not asked and values.size > _FEW and _is_identifier(present, values):
            return Dropped(
                name, f"{values.size} different whole numbers, rising from row to row: an identifier, not a variable"
            )
    if (asked and cut is None) or (entries == "int" and not asked and few):
        return _codes(name, values, entries, own, where, named=origin == "table")
    if rule.continuous is True:
        return Variable(name, 0, (), Encoding("continuous", entries, missing=own))
    edges = bin_edges(present, DEFAULT_BINS if cut is None else cut, where)
    return binned(name, edges, present, entries == "int", own)


def _is_identifier(present: NDArray[Any], values: NDArray[Any]) -> bool:
    return values.size == present.size and bool((np.diff(present) > 0).all())


def _codes(
    name: Name, values: NDArray[Any], entries: Any, own: tuple[str, ...], where: str, *, named: bool
) -> Variable:
    """Codes keep their values as names; where these are 0, 1, 2, ... anyway, they need none."""
    if values.size > MAX_VALUES:
        raise DataError(f"{where}: {values.size} different values, and {MAX_VALUES} are the most: put them into bins")
    top = values.size - 1
    if values[0] == 0 and values[-1] == top:
        return Variable(name, max(2, values.size), (), Encoding("codes", entries, missing=own) if named else None)
    states = tuple(number_text(float(x)) for x in values)
    return Variable(name, values.size, states, Encoding("codes", entries, missing=own))


def _refuse_negative(numbers: NDArray[Any], where: str) -> None:
    below = numbers < 0
    if below.any():
        row = int(np.flatnonzero(below)[0])
        raise DataError(
            f"{where}, row {row} (counted from 0): {number_text(float(numbers[row]))} is negative, and values without "
            "names count from 0: say so with missing= if it stands for a missing entry, or give the columns names"
        )


def binned(
    name: Name, edges: Sequence[float], present: NDArray[Any], whole: bool, missing: tuple[str, ...]
) -> Variable:
    """The variable whose values are the bins between these edges; ``present`` are the numbers that were seen."""
    place = np.searchsorted(np.asarray(edges, dtype=np.float64), present, side="right")
    middles = []
    for i in range(len(edges) + 1):
        inside = present[place == i]
        if inside.size:
            middle = float(np.quantile(inside, 0.5, method="nearest" if whole else "linear"))
        elif 0 < i < len(edges):
            middle = (edges[i - 1] + edges[i]) / 2
        else:
            middle = edges[0] if i == 0 else edges[-1]
        middles.append(middle)
    names = bin_names(edges)
    encoding = Encoding("bins", "int" if whole else "float", tuple(edges), tuple(middles), missing)
    return Variable(name, len(names), names, encoding)


def bin_edges(present: NDArray[Any], cut: int | Sequence[float], where: str) -> list[float]:
    """The edges between bins: those given, or such that each bin has about as many rows."""
    if isinstance(cut, bool | str | float):
        raise DataError(f"{where}: bins={cut!r}: give a number of bins, a list of edges, or None for codes")
    if not isinstance(cut, int | np.integer):
        try:
            edges = [float(edge) for edge in cut]
        except (TypeError, ValueError):
            raise DataError(f"{where}: bins={shortened(cut)}: give a number of bins, or a list of edges") from None
        if not edges or not all(map(math.isfinite, edges)) or any(a >= b for a, b in pairwise(edges)):
            raise DataError(f"{where}: the edges of bins must be finite numbers that rise, not {shortened(cut)}")
        if len(edges) >= MAX_VALUES:
            raise DataError(f"{where}: {len(edges)} edges, and {MAX_VALUES} bins are the most")
        return edges
    if not 2 <= cut <= MAX_VALUES:
        raise DataError(f"{where}: bins={cut}: give a number from 2 to {MAX_VALUES}")
    return quantile_edges(np.sort(present).astype(np.float64), int(cut))


def quantile_edges(ordered: FloatArray, bins: int) -> list[float]:
    """Edges that divide sorted numbers into parts of about equal size, each the shortest number that divides so.

    Equal numbers stay together, so that there can be fewer bins; where the wanted place is inside of a run of equal
    numbers, the edge goes to the nearer end of it.
    """
    found: list[float] = []
    for i in range(1, bins):
        at = ordered.size * i // bins
        low, high = (int(np.searchsorted(ordered, ordered[at], side=side)) for side in ("left", "right"))
        at = low if at - low <= high - at or high == ordered.size else high
        if at == 0:
            at = high
        if 0 < at < ordered.size:
            edge = shortest_between(float(ordered[at - 1]), float(ordered[at]))
            if not found or edge > found[-1]:
                found.append(edge)
    return found


def shortest_between(below: float, above: float) -> float:
    """A number with few digits that is more than ``below`` and at most ``above``."""
    if above == int(above) and below == int(below) and above - below <= 1:
        return above
    scale = math.floor(math.log10(max(abs(above), abs(below), above - below)))
    for digits in range(-scale, 17 - scale):
        try:
            edge = float(f"{math.floor(above * 10.0**digits) / 10.0**digits:.15g}")
        except OverflowError:
            break
        if below < edge <= above:
            return edge
    return above
