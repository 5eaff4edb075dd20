"""How answers are put into words, the same in Python and on the command line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from itertools import islice
from typing import Any


def listed(values: Mapping[Any, Any], most: int = 12, of: str = "variables") -> str:
    """Values as ``a=1, b=0``; if there are more than ``most``, only the first, and how many there are."""
    shown = ", ".join(f"{name}={value}" for name, value in list(values.items())[:most])
    return shown + (f", ... ({len(values)} {of})" if len(values) > most else "")


#: Names that are compared with a misspelt one, and how alike, from 0 to 1, two must be for one to be suggested.
MOST_NAMES, ALIKE = 20_000, 0.7


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """``did you mean 'HYPOVOLEMIA'? `` if one of the names is much like the one given; otherwise nothing.

    For messages about names that are not known. Upper and lower case count as alike.
    """
    try:
        wrong = str(given).strip().casefold()
    except ValueError:  # an integer of more digits than Python writes
        return ""
    best, most = None, ALIKE
    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(wrong[:100])
    for name in islice(known, MOST_NAMES):
        right = str(name).casefold()[:100]
        matcher.set_seq1(right)
        if wrong and matcher.real_quick_ratio() > most and matcher.quick_ratio() > most and matcher.ratio() > most:
            best, most = name, matcher.ratio()
    return "" if best is None else f"did you mean {best!r}? "


def probability_text(log_prob: float, log_conditional: float) -> str:
    """The probability of a state q, with the evidence e and given it; p(e) may be out of reach, then without that."""
    given = "" if math.isnan(log_conditional) else f", p(q | e) = {math.exp(log_conditional):.6g}"
    return f"log p(q, e) = {log_prob:.6f}{given}"


def spelled(status: str) -> str:
    """A status for people: ``time limit``."""
    return status.replace("_", " ")


def many(number: int, thing: str) -> str:
    """``1 vector``, ``2 vectors``."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def counted(ended: Mapping[str, int]) -> str:
    """How many ended with each status, such as ``2 failed, 5 optimal``."""
    return ", ".join(f"{number} {spelled(status)}" for status, number in sorted(ended.items()))
