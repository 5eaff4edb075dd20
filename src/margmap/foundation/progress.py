"""What a solver tells while it works."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Progress(NamedTuple):
    """The best state and the bounds so far; see ``on_progress`` of :func:`margmap.marginal_map`."""

    #: Seconds since the call began.
    seconds: float
    #: The log probability of the state, and a bound that no state exceeds.
    log_lower: float
    log_upper: float
    #: The best state found so far, None before there is one.
    state: Mapping[int | str, int | str] | None
    #: What is being done, in a few words.
    doing: str
