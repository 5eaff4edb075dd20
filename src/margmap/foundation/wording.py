"""How answers are put into words, the same in Python and on the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def listed(values: Mapping[Any, Any], most: int = 12, of: str = "variables") -> str:
    """Values as ``a=1, b=0``; if there are more than ``most``, only the first, and how many there are."""
    shown = ", ".join(f"{name}={value}" for name, value in list(values.items())[:most])
    return shown + (f", ... ({len(values)} {of})" if len(values) > most else "")


def probability_text(log_prob: float, log_conditional: float) -> str:
    """The probability of a state q, with the evidence e and given it; p(e) may be out of reach, then without that."""
    given = "" if math.isnan(log_conditional) else f", p(q | e) = {math.exp(log_conditional):.6g}"
    return f"log p(q, e) = {log_prob:.6f}{given}"


def spelled(status: str) -> str:
    """A status for people: ``time limit``."""
    return status.replace("_", " ")


def counted(ended: Mapping[str, int]) -> str:
    """How many ended with each status, such as ``2 failed, 5 optimal``."""
    return ", ".join(f"{number} {spelled(status)}" for status, number in sorted(ended.items()))
