"""What a solver answers with, and what it must stop at."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from margmap.circuit import IntArray, Name

Status: TypeAlias = Literal["optimal", "time_limit", "memory_limit", "interrupted"]

#: Bounds closer than this (in nats, so about relatively in probability) count as equal.
TOLERANCE = 1e-9


class Stopped(Exception):
    """A limit was reached."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status: Status = status


class Limits:
    """When to stop: after some seconds, at Ctrl-C, or when the bounds are ``gap`` nats apart."""

    def __init__(self, time_limit: float | None = None, gap: float = TOLERANCE) -> None:
        self.deadline = np.inf if time_limit is None else time.perf_counter() + time_limit
        self.gap = max(gap, TOLERANCE)
        self.interrupted = False

    def check(self) -> None:
        """Raise :class:`Stopped` if it is time to stop; solvers call it every few milliseconds of work."""
        if self.interrupted:
            raise Stopped("interrupted")
        if time.perf_counter() >= self.deadline:
            raise Stopped("time_limit")

    @contextmanager
    def catching_interrupts(self) -> Iterator[None]:
        """Inside, the first Ctrl-C makes :meth:`check` stop the solver, which then returns what it knows.

        Raising KeyboardInterrupt instead would hit compiled code, which turns it into other errors or loses it. The
        second Ctrl-C raises it all the same. Only the main thread can catch signals; elsewhere nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_number: int, _frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        before = signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


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

    @property
    def trace(self) -> Sequence[Any]:
        """One record an iteration, for the methods that have iterations."""
        trace: Sequence[Any] = self.details.get("trace", ())
        return trace

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
        if self.status == "optimal" and self.gap <= TOLERANCE:
            proof = "proven: no state is better"
        else:
            why = (
                "within the gap asked for" if self.status == "optimal" else f"stopped: {self.status.replace('_', ' ')}"
            )
            proof = f"{why}; a better state has at most log p = {self.log_upper:.6f}, {self.gap:.3g} nats more"
        return (
            f"{state}{more}\n"
            f"log p(q, e) = {self.log_prob:.6f}, p(q | e) = {np.exp(self.log_conditional):.6g}\n"
            f"{proof}\n"
            f"method {self.method}, {self.seconds:.3g} s"
        )
