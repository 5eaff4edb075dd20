"""How a column of a table became a variable: what its entries were, the edges of its bins, what stood for missing.

A variable that was learned from a table carries its encoding, and so do the files that can hold it (json and mmz). So
evidence, answers, samples and imputations speak the values of the table: ``{"age": 23.5}`` is the bin ``[18, 25)``.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

from margmap.circuit.evidence import plain
from margmap.errors import StructureError
from margmap.foundation.numerals import number_of

#: What the values of a variable are: names; whole numbers that are names; ranges of numbers; numbers as they are.
Kind: TypeAlias = Literal["states", "codes", "bins", "continuous"]
#: What the entries of the column were.
Entries: TypeAlias = Literal["text", "bool", "int", "float"]


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a column of a table is a variable.

    ``edges`` are the numbers between bins, rising: a bin has its lower edge and not its upper one, and the first and
    the last have no end. ``middles`` has a typical number of each bin, the median of what was in it. ``missing`` are
    the texts that stood for a missing entry, besides those that pandas takes for one.
    """

    kind: Kind = "states"
    entries: Entries = "text"
    edges: tuple[float, ...] = ()
    middles: tuple[float, ...] = ()
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or self.entries not in get_args(Entries):
            raise StructureError(f"an encoding of kind {self.kind!r} and entries {self.entries!r} is unknown")
        for name in ("edges", "middles"):
            numbers = getattr(self, name)
            if not all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in numbers):
                raise StructureError(f"the {name} of an encoding are not all finite numbers")
            object.__setattr__(self, name, tuple(map(float, numbers)))
        object.__setattr__(self, "missing", tuple(map(str, self.missing)))
        if any(a >= b for a, b in pairwise(self.edges)):
            raise StructureError("the edges of bins do not rise")
        if self.kind != "bins" and (self.edges or self.middles):
            raise StructureError(f"an encoding of kind {self.kind!r} has no edges and no middles: only bins have")
        if self.kind == "bins" and len(self.middles) != len(self.edges) + 1:
            raise StructureError(f"{len(self.edges)} edges make {len(self.edges) + 1} bins, not {len(self.middles)}")

    def bin_of(self, number: float) -> int:
        """The bin that a number falls in."""
        return bisect_right(self.edges, number)

    def is_missing(self, cell: Any) -> bool:
        """Whether a cell of a table is one of the texts, or the number of one, that stand for a missing entry."""
        if not self.missing:
            return False
        given = plain(cell)
        text = given.strip() if isinstance(given, str) else given
        number = number_of(text) if isinstance(text, str) else text
        return text in self.missing or (
            isinstance(number, int | float)
            and not isinstance(number, bool)
            and any(number_of(word) == number for word in self.missing)
        )

    def to_dict(self) -> dict[str, Any]:
        """What a file has of it."""
        lists = {name: list(getattr(self, name)) for name in ("edges", "middles", "missing")}
        return {"kind": self.kind, "entries": self.entries, **{name: x for name, x in lists.items() if x}}

    @staticmethod
    def from_dict(entry: object) -> Encoding:
        """The encoding that a file has; a StructureError says what is wrong with it."""
        known = {field.name for field in fields(Encoding)}
        if not isinstance(entry, dict) or not set(entry) <= known or "kind" not in entry:
            raise StructureError(f'an encoding is an object with "kind" and, if wanted, {", ".join(sorted(known))}')
        for name in ("kind", "entries"):
            if not isinstance(entry.get(name, ""), str):
                raise StructureError(f"the {name} of an encoding is no text")
        for name, kind in (("edges", (int, float)), ("middles", (int, float)), ("missing", (str,))):
            if not isinstance(entry.get(name, []), list) or not all(type(x) in kind for x in entry.get(name, [])):
                raise StructureError(
                    f"the {name} of an encoding are no list of {'texts' if kind == (str,) else 'numbers'}"
                )
        try:
            given: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in entry.items()}
            return Encoding(**given)
        except OverflowError:
            raise StructureError("a number of an encoding is out of the range of floats") from None


def number_text(number: float) -> str:
    """A number as short as it can be written."""
    return str(int(number)) if number == int(number) and abs(number) < 1e15 else repr(float(number))


def bin_names(edges: Sequence[float]) -> tuple[str, ...]:
    """What the bins between these edges are called."""
    if not edges:
        return ("(-inf, inf)",)
    texts = [number_text(edge) for edge in edges]
    inner = (f"[{a}, {b})" for a, b in pairwise(texts))
    return (f"(-inf, {texts[0]})", *inner, f"[{texts[-1]}, inf)")
