"""What a solver answers with, and what it must stop at."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from margmap.circuit import IntArray, LongArray, Name
from margmap.foundation.interrupts import abandon, leave_if_allowed
from margmap.foundation.jit import on_compile
from margmap.foundation.pairs import EPS
from margmap.solve.query_circuit import to_the_end

Status: TypeAlias = Literal["optimal", "time_limit", "memory_limit", "precision_limit", "interrupted"]

#: Bounds closer than this (in nats, so about relatively in probability) count as equal.
TOLERANCE = 1e-9

#: Bytes that the tables of a solver may grow to unless told otherwise.
MEMORY = 1 << 31

#: Relative bounds under this are not compared: what underflow can have taken from them counts for nothing above it.
LOWEST_FLOOR = 2.0**-900

# How often a thread that runs compiled code is looked after, and how often at most the process is asked for its size.
WATCH_SECONDS = 0.02
MEMORY_SECONDS = 0.005

# Compiled work over fewer edges is over in some milliseconds and not worth a thread that can be stopped; nor is asking
# for the size of the process worth it before fewer bytes are taken.
QUICK_EDGES = 1_000_000
QUICK_BYTES = 1 << 20

T = TypeVar("T")


def log_or_nothing(value: float) -> float:
    """The logarithm, -inf for 0."""
    return float(np.log(value)) if value > 0 else -np.inf


def floor_of(log_floor: float, log_upper: float) -> float:
    """``exp(log_floor - log_upper)``, rounded down: a bound relative to ``log_upper`` that is not above it cannot win.

    Bounds near the smallest doubles have few digits and may have lost some to underflow, so that a floor down there
    becomes -1, which no bound is under.
    """
    rounding = 4 * EPS * (1 + abs(log_floor) + abs(log_upper)) if log_floor > -np.inf else 0.0
    value = float(np.exp(min(log_floor - log_upper - rounding, 700.0)))
    return value if value > LOWEST_FLOOR else -1.0


def resident() -> int:
    """Bytes of memory that this process has now; where the system does not tell, the most it ever had."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        try:
            import resource
        except ImportError:  # Windows: only what is predicted is held against the limit
            return 0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@cache
def physical_memory() -> float:
    """Bytes of memory that the machine has; no end where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return np.inf


class Stopped(Exception):
    """A limit was reached."""

    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status: Status = status


class Limits:
    """When to stop: after some seconds, at Ctrl-C, when the bounds are ``gap`` nats apart; how much room to take."""

    def __init__(
        self, time_limit: float | None = None, gap: float = TOLERANCE, memory_limit: int | None = None
    ) -> None:
        #: When this began, by its own clock.
        self.begun = time.perf_counter()
        self.deadline = np.inf if time_limit is None else self.begun + time_limit
        self.gap = max(gap, TOLERANCE)
        #: Bytes the tables of a solver may grow to.
        self.memory = MEMORY if memory_limit is None else memory_limit
        # With a limit that was asked for, what the process may grow to.
        self._most_resident = None if memory_limit is None else resident() + memory_limit
        self._resident, self._resident_at = 0, -np.inf
        self.interrupted = self._insisted = False
        #: Seconds spent compiling kernels so far; they are not counted against the time limit.
        self.compiling = 0.0
        self._compiling_since: float | None = None

    def clock(self) -> float:
        """Seconds, not counting compilation; only differences mean anything."""
        return time.perf_counter() - self.compiling

    def check(self) -> None:
        """Raise :class:`Stopped` if it is time to stop; solvers call it every few milliseconds of work."""
        if self.interrupted:
            raise Stopped("interrupted")
        if self._compiling_since is None and self.clock() >= self.deadline:
            raise Stopped("time_limit")
        if self.memory_left() < 0:
            raise Stopped("memory_limit")

    @property
    def holds_memory(self) -> bool:
        """Whether a memory limit was asked for, so that the growth of the process is held against it."""
        return self._most_resident is not None

    def memory_left(self) -> float:
        """Bytes that may still be taken; without a limit that was asked for, what the tables may grow to."""
        if self._most_resident is None:
            return self.memory
        now = time.perf_counter()
        if now > self._resident_at + MEMORY_SECONDS:
            self._resident, self._resident_at = resident(), now
        return self._most_resident - self._resident

    def allow(self, room: int) -> None:
        """Raise :class:`Stopped` if so many bytes more would be too many, before they are taken."""
        if room < QUICK_BYTES:
            return
        if room > (physical_memory() if self._most_resident is None else self.memory_left()):
            raise Stopped("memory_limit")

    def not_counting_compilation(self) -> AbstractContextManager[None]:
        """Inside, the clock stands still while kernels are compiled, which happens once on a machine."""

        def ended() -> None:
            assert self._compiling_since is not None
            self.compiling += time.perf_counter() - self._compiling_since
            self._compiling_since = None

        def started() -> None:
            self._compiling_since = time.perf_counter()
            if self.interrupted:  # nobody waits for one kernel after the other
                raise Stopped("interrupted")

        return on_compile(started, ended)

    def reserve(self, seconds: float) -> None:
        """Stop so much earlier, for what is to be done after the solver; at most half of the time that is left."""
        self.deadline -= min(seconds, max(0.0, self.deadline - self.clock()) / 2)

    def late(self, seconds: float) -> bool:
        """Whether the time limit has been passed by so much."""
        return self.clock() >= self.deadline + seconds

    def until(self, deadline: float) -> Limits:
        """The same limits with an earlier deadline; Ctrl-C reaches both."""
        return _Earlier(self, min(deadline, self.deadline))

    def run(self, work: Callable[[LongArray], T], edges: int = QUICK_EDGES, room: int = 0, *, wait: bool = True) -> T:
        """Run compiled work in a thread; set the first of the two flags it is given when it is time to stop.

        The second is how much work it may do: no end. Compiled code lets go of Python's lock, so that this thread can
        watch the clock and Ctrl-C meanwhile. What the work returns when it is stopped is never seen: this raises
        :class:`Stopped`, also if it would need more ``room`` in bytes than is left. Work over few ``edges`` is done at
        once. With ``wait=False``, for work that is slow to look at its flag, its end is not waited for.
        """
        self.allow(room)
        if edges < QUICK_EDGES:
            return to_the_end(work, edges)
        self.check()
        stop = np.array([0, np.iinfo(np.int64).max])
        future: Future[T] = Future()
        thread = threading.Thread(target=_keep_result, args=(future, work, stop), daemon=True)
        thread.start()
        try:
            while True:
                try:
                    return future.result(timeout=WATCH_SECONDS)
                except FutureTimeout:
                    self.check()
        finally:
            stop[0] = 1
            if wait:
                thread.join()
            else:
                abandon(thread)

    @contextmanager
    def catching_interrupts(self) -> Iterator[None]:
        """Inside, the first Ctrl-C makes :meth:`check` stop the solver, which then returns what it knows.

        Raising KeyboardInterrupt instead would hit compiled code, which turns it into other errors or loses it. The
        second Ctrl-C raises it all the same. Only the main thread can catch signals; elsewhere nothing changes.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        self._outer_handler = signal.signal(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, self._outer_handler)
            if self._insisted:  # whatever became of it inside
                raise KeyboardInterrupt from None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            self._insisted = True
            if callable(self._outer_handler):
                self._outer_handler(number, frame)
            raise KeyboardInterrupt
        self.interrupted = True
        outer = getattr(self._outer_handler, "__self__", None)
        if isinstance(outer, Limits):  # a batch around this query must know too
            outer._interrupt(number, frame)
        elif self._compiling_since is not None:  # in another thread, which cannot be stopped
            leave_if_allowed()


def _keep_result(future: Future[T], work: Callable[[LongArray], T], stop: LongArray) -> None:
    try:
        future.set_result(work(stop))
    except BaseException as error:
        future.set_exception(error)


class _Earlier(Limits):
    def __init__(self, limits: Limits, deadline: float) -> None:
        super().__init__(None, limits.gap)
        self.deadline, self.memory, self._outer = deadline, limits.memory, limits

    def clock(self) -> float:
        return self._outer.clock()

    def memory_left(self) -> float:
        return self._outer.memory_left()

    def allow(self, room: int) -> None:
        self._outer.allow(room)

    def check(self) -> None:
        self._outer.check()
        super().check()


class Outcome(NamedTuple):
    """A solver's answer on the reduced circuit: codes of the best states, best first, and a log bound of the others."""

    states: Sequence[IntArray]
    #: No state that is not among ``states`` has a larger log p(q | e).
    log_upper: float
    status: Status
    #: What the solver has to tell beyond that: iterations, widest frontier, why this method.
    details: Mapping[str, Any] = {}

    def because(self, why: str) -> Outcome:
        """The same with the reason why this method was chosen."""
        return self._replace(details={**self.details, "why": why})


class Ranked(NamedTuple):
    """One of the best states."""

    state: dict[Name, int | str]
    log_prob: float
    log_conditional: float


@dataclass(frozen=True)
class Result:
    """The answer to a marginal-MAP query.

    ``status`` is ``optimal`` exactly when the bounds met within the tolerance asked for: for a single state, when
    ``gap`` (log_upper - log_prob, in nats) is; for the ``k`` best, when no other state can come before the last one.
    (A circuit can be so large that rounding alone may amount to more than that; then a finished search counts up to
    1e-8 nats more.) Otherwise it says why the solver stopped. No state has a log probability above ``log_upper``.

    Stopped before any state was known, as while a network is compiled, ``state`` is None and ``log_prob`` minus
    infinity.
    """

    status: Status
    state: dict[Name, int | str] | None
    #: log p(q, e) of the state, evaluated on the circuit as given; -inf without a state.
    log_prob: float
    #: log p(q | e); -inf without a state.
    log_conditional: float
    #: No state of the query has a larger log p(q, e); inf if nothing is known.
    log_upper: float
    method: str
    #: Seconds spent on this call, reduction included, the first run's compilation of kernels not.
    seconds: float
    #: The best states in order, as many as were asked for and exist; the first is ``state``.
    top: tuple[Ranked, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Keep plain numbers: those of numpy show in ``repr`` and are not JSON."""
        for name in ("log_prob", "log_conditional", "log_upper", "seconds"):
            value = getattr(self, name)
            object.__setattr__(self, name, value if value is None else float(value))

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
        """Plain numbers and strings, with the keys of the command line's JSON; None for a number that JSON lacks."""
        return {
            "status": self.status,
            "state": None if self.state is None else {str(name): value for name, value in self.state.items()},
            "log_prob": _finite(self.log_prob),
            "log_conditional": _finite(self.log_conditional),
            "log_upper": _finite(self.log_upper),
            "gap": _finite(self.gap),
            "method": self.method,
            "seconds": self.seconds,
        }

    def __str__(self) -> str:
        how = f"method {self.method}, {self.seconds:.3g} s"
        if self.state is None:
            return f"{self.no_state}\n{how}"
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
            f"{how}"
        )

    @property
    def no_state(self) -> str:
        """What is known without a state, in one line."""
        bound = "" if self.log_upper == np.inf else f"; none has more than log p = {self.log_upper:.6f}"
        return f"no state yet: stopped ({self.status.replace('_', ' ')}) before one was found{bound}"


def without_state(status: Status, method: str, seconds: float, log_upper: float = np.inf) -> Result:
    """The answer of whoever was stopped before any state was known."""
    return Result(status, None, -np.inf, -np.inf, log_upper, method, seconds)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
