"""When to stop: the clock, the memory and Ctrl-C; and how compiled work is run so that it can be stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import AbstractContextManager
from contextvars import copy_context
from types import FrameType
from typing import Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

try:
    import _signal  # type: ignore[import-not-found]
except ImportError:  # another Python than CPython
    import signal as _signal

from margmap.foundation.interrupts import abandon, leave_if_allowed
from margmap.foundation.jit import SLOWER, compile_from_now_on, interpreting_too_long, interprets, on_compile
from margmap.foundation.memory import physical_memory, resident
from margmap.foundation.progress import Teller

LongArray: TypeAlias = NDArray[np.int64]
IntArray: TypeAlias = NDArray[np.int32]
Status: TypeAlias = Literal["optimal", "infeasible", "time_limit", "memory_limit", "precision_limit", "interrupted"]

#: Bounds closer than this (in nats, so about relatively in probability) count as equal.
TOLERANCE = 1e-9

#: Bytes that the tables of a solver may grow to unless told otherwise.
MEMORY = 1 << 31

# How often a thread that runs compiled code is looked after, and how often at most the process is asked for its size.
WATCH_SECONDS = 0.02
MEMORY_SECONDS = 0.005

# Compiled work over fewer edges is over in some milliseconds and not worth a thread that can be stopped; nor is asking
# for the size of the process worth it before fewer bytes are taken.
QUICK_EDGES = 1_000_000
QUICK_BYTES = 1 << 20

# The two numbers that work is given: whether to stop, and how much it may do.
_NO_STOP = (0, 2**63 - 1)

T = TypeVar("T")

# What limits count, and what results call seconds.
_seconds: Callable[[], float] = time.perf_counter


def count_computing() -> None:
    """From now on limits count what this process computes, all its threads together, and not what passes meanwhile.

    For measurements on a machine that has other work.
    """
    global _seconds
    _seconds = time.process_time


class Runner(Protocol):
    """Runs compiled work that looks, every so often, at the first of two numbers it is given and returns if it is set.

    ``edges`` says how long that may take, ``room`` how many bytes it will need. :meth:`Limits.run` is one.
    """

    def __call__(self, work: Callable[[LongArray], T], edges: int, room: int = 0) -> T:
        """What the work returns."""


def to_the_end(work: Callable[[LongArray], T], edges: int, room: int = 0) -> T:
    """Run compiled work here and now; nothing stops it."""
    return work(np.array(_NO_STOP))


def quick(compiled_work: int) -> int:
    """As much work as this is for compiled kernels, or so much less if they are interpreted."""
    return compiled_work // SLOWER if interprets() else compiled_work


class _Interpreted:
    """Instead of a result: the work was interpreted, and is worth compiling."""


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
        self.begun = _seconds()
        self.deadline = np.inf if time_limit is None else self.begun + time_limit
        self.gap = max(gap, TOLERANCE)
        #: Bytes the tables of a solver may grow to.
        self.memory = MEMORY if memory_limit is None else memory_limit
        # With a limit that was asked for, what the process may grow to.
        self._most_resident = None if memory_limit is None else resident() + memory_limit
        self._resident, self._resident_at = 0, -np.inf
        self.interrupted = self._insisted = False
        #: Who is told of the best state and the bounds, if anybody listens.
        self.teller: Teller | None = None
        #: Seconds spent compiling kernels so far; they are not counted against the time limit.
        self.compiling = 0.0
        self._compiling_since: float | None = None

    def clock(self) -> float:
        """Seconds, not counting compilation; only differences mean anything."""
        return _seconds() - self.compiling

    def check(self) -> None:
        """Raise :class:`Stopped` if it is time to stop; solvers call it every few milliseconds of work."""
        if self.teller is not None:
            self.teller.beat()
            self._heed()
        if self.interrupted:
            raise Stopped("interrupted")
        if self._compiling_since is None and self.clock() >= self.deadline:
            raise Stopped("time_limit")
        if self.memory_left() < 0:
            raise Stopped("memory_limit")

    def tell(
        self, doing: str, state: IntArray | None = None, log_lower: float = -np.inf, log_upper: float = np.inf
    ) -> None:
        """What a solver of the reduced circuit is doing and has found: a state's log value, a bound on all states.

        Raises :class:`Stopped` if whoever is told of it wants no more.
        """
        if self.teller is not None:
            self.teller.hear(doing, state, log_lower, log_upper)
            self._heed()

    def _heed(self) -> None:
        """What ``on_progress`` raises stops the call like Ctrl-C."""
        if self.teller is not None and self.teller.raised is not None:
            self.interrupted = True
            raise Stopped("interrupted")

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
            self.compiling += _seconds() - self._compiling_since
            self._compiling_since = None

        def started() -> None:
            self._compiling_since = _seconds()
            if self.interrupted:  # nobody waits for one kernel after the other
                raise Stopped("interrupted")

        return on_compile(started, ended)

    def reserve(self, seconds: float) -> None:
        """Stop so much earlier, for what is to be done after the solver; at most half of the time that is left."""
        self.deadline -= min(seconds, max(0.0, self.deadline - self.clock()) / 2)

    def late(self, seconds: float) -> bool:
        """Whether the time limit has been passed by so much."""
        return self.clock() >= self.deadline + seconds

    def until(self, deadline: float, *, silent: bool = False, look: Callable[[], None] = lambda: None) -> Limits:
        """The same limits with an earlier deadline; Ctrl-C reaches both.

        ``silent`` is for work on a part of the circuit, whose states and bounds are not those of the whole. ``look`` is
        called with every look at the clock; it may raise :class:`Stopped`.
        """
        return _Earlier(self, min(deadline, self.deadline), silent, look)

    def run(
        self,
        work: Callable[[LongArray], T],
        edges: int = QUICK_EDGES,
        room: int = 0,
        *,
        wait: bool = True,
        look: Callable[[], None] = lambda: None,
    ) -> T:
        """Run compiled work in a thread; set the first of the two flags it is given when it is time to stop.

        The second is how much work it may do: no end. Compiled code lets go of Python's lock, so that this thread can
        watch the clock and Ctrl-C meanwhile. What the work returns when it is stopped is never seen: this raises
        :class:`Stopped`, also if it would need more ``room`` in bytes than is left. Work over few ``edges`` is done at
        once. With ``wait=False``, for work that is slow to look at its flag, its end is not waited for. ``look`` is
        called meanwhile, every so often.
        """
        self.allow(room)
        if edges < QUICK_EDGES // SLOWER or edges < quick(QUICK_EDGES):
            return to_the_end(work, edges)
        self.check()
        found = self._watched(work, wait, look)
        if isinstance(found, _Interpreted):
            # Stopped because it is too much to interpret. Its results are new arrays, so it can begin again.
            found = self._watched(work, wait, look)
        assert not isinstance(found, _Interpreted)
        return found

    def _watched(self, work: Callable[[LongArray], T], wait: bool, look: Callable[[], None]) -> T | _Interpreted:
        """Run work in a thread and watch it; where its end is waited for, it may be found too much to interpret."""
        stop = np.array(_NO_STOP)
        future: Future[T] = Future()
        keep = (copy_context().run, _keep_result, future, work, stop)  # how many threads may be used holds there too
        thread = threading.Thread(target=keep[0], args=keep[1:], daemon=True)
        thread.start()
        try:
            while True:
                try:
                    return future.result(timeout=WATCH_SECONDS)
                except FutureTimeout:
                    look()
                    self.check()
                    if wait and interpreting_too_long(thread):
                        compile_from_now_on()
                        return _Interpreted()
        finally:
            stop[0] = 1
            if wait:
                thread.join()
            else:
                abandon(thread)

    def catching_interrupts(self) -> AbstractContextManager[None]:
        """Inside, the first Ctrl-C makes :meth:`check` stop the solver, which then returns what it knows.

        Raising KeyboardInterrupt instead would hit compiled code, which turns it into other errors or loses it. The
        second Ctrl-C raises it all the same. Only the main thread can catch signals; elsewhere nothing changes.
        """
        return _Catching(self)


class _Catching:
    """What :meth:`Limits.catching_interrupts` gives.

    Every question sets a handler twice. The functions of the module signal would look each one up in an enumeration,
    which takes some microseconds, before they call those that are called here.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits, self._before, self._catches = limits, None, False

    def __enter__(self) -> None:
        self._catches = threading.get_ident() == threading.main_thread().ident
        if self._catches:
            _listening.append(self._limits)
            self._before = _signal.getsignal(_signal.SIGINT)
            if self._before is not _on_interrupt:
                _Handler.before = _signal.signal(_signal.SIGINT, _on_interrupt)

    def __exit__(self, *_: object) -> None:
        if self._catches:
            _listening.remove(self._limits)
            if self._before is not _on_interrupt:
                _signal.signal(_signal.SIGINT, self._before)
            if self._limits._insisted:  # whatever became of it inside
                raise KeyboardInterrupt from None


# The limits that listen to Ctrl-C, outermost first: those of a batch, and of the query in it that is under way.
_listening: list[Limits] = []


def interrupt_heard() -> bool:
    """Whether any limits that listen to Ctrl-C now have heard it."""
    return any(limits.interrupted for limits in _listening)


class _Handler:
    """What would hear Ctrl-C if no limits listened."""

    before: object = None


def _on_interrupt(number: int, frame: FrameType | None) -> None:
    again = [limits for limits in _listening if limits.interrupted]
    for limits in _listening:
        limits.interrupted = True
    if again:
        for limits in again:
            limits._insisted = True
        if callable(_Handler.before):
            _Handler.before(number, frame)
        raise KeyboardInterrupt
    if any(limits._compiling_since is not None for limits in _listening):  # in another thread, which cannot be stopped
        leave_if_allowed()


def _keep_result(future: Future[T], work: Callable[[LongArray], T], stop: LongArray) -> None:
    try:
        future.set_result(work(stop))
    except BaseException as error:
        future.set_exception(error)


class _Earlier(Limits):
    def __init__(self, limits: Limits, deadline: float, silent: bool, look: Callable[[], None]) -> None:
        super().__init__(None, limits.gap)
        self._look = look
        self.teller = None if silent else limits.teller
        self.begun, self.deadline, self.memory, self._outer = limits.begun, deadline, limits.memory, limits

    def clock(self) -> float:
        return self._outer.clock()

    def memory_left(self) -> float:
        return self._outer.memory_left()

    def allow(self, room: int) -> None:
        self._outer.allow(room)

    def _heed(self) -> None:
        self._outer._heed()

    def check(self) -> None:
        self._outer.check()  # which the teller of both is heard by
        self._look()
        if self._outer._compiling_since is None and self.clock() >= self.deadline:
            raise Stopped("time_limit")

    @property
    def holds_memory(self) -> bool:
        return self._outer.holds_memory
