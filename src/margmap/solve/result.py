"""What a solver answers with, and what it must stop at."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from margmap.circuit import IntArray, Name

Status: TypeAlias = Literal["optimal", "time_limit", "memory_limit", "interrupted"]

#: Bounds closer than this (in nats, so about relatively in probability) count as equal.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Limits:
    """When to stop: at a moment of :func:`time.perf_counter`, or when the bounds are this close (in nats)."""

    deadline: float = np.inf
    gap: float = TOLERANCE

    @classmethod
    def of(cls, time_limit: float | None = None, gap: float = TOLERANCE) -> Limits:
        """Limits counted from now."""
        return cls(np.inf if time_limit is None else time.perf_counter() + time_limit, max(gap, TOLERANCE))

    def passed(self) -> bool:
        """Whether the time is up."""
        return time.perf_counter() >= self.deadline


class Outcome(NamedTuple):
    """A solver's answer on the reduced circuit: codes of the best state and log bounds of max p(q | e)."""

    state: IntArray
    log_upper: float
    status: Status
    #: What the solver has to tell beyond that: iterations, widest frontier, why this method.
    details: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Result:
    """The answer to a marginal-MAP query.

    ``status`` is ``optimal`` exactly when ``gap`` (log_upper - log_prob, in nats) is within the tolerance asked for;
    otherwise it says why the solver stopped, and no state has a log probability above ``log_upper``.
    """

    status: Status
    state: dict[Name, int | str]
    #: log p(q, e) of the state, evaluated on the circuit as given.
    log_prob: float
    #: log p(q | e).
    log_conditional: float
    #: No state of the query has a larger log p(q, e).
    log_upper: float
    method: str
    #: Seconds spent on this call, reduction included.
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def gap(self) -> float:
        """How far, in nats, a better state could at most lie above this one; 0 when proven optimal to the last bit."""
        return max(0.0, self.log_upper - self.log_prob)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, with the keys of the command line's JSON."""
        return {
            "status": self.status,
            "state": {str(name): value for name, value in self.state.items()},
            "log_prob": self.log_prob,
            "log_conditional": self.log_conditional,
            "log_upper": self.log_upper,
            "gap": self.gap,
            "method": self.method,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        shown = list(self.state.items())[:12]
        state = ", ".join(f"{name}={value}" for name, value in shown)
        more = f", ... ({len(self.state)} variables)" if len(self.state) > len(shown) else ""
        proof = (
            "proven: no state is better"
            if self.status == "optimal"
            else f"stopped ({self.status.replace('_', ' ')}): a better state can have at most "
            f"log p = {self.log_upper:.6f}, {self.gap:.3g} nats more"
        )
        return (
            f"{state}{more}\n"
            f"log p(q, e) = {self.log_prob:.6f}, p(q | e) = {np.exp(self.log_conditional):.6g}\n"
            f"{proof}\n"
            f"method {self.method}, {self.seconds:.3g} s"
        )
