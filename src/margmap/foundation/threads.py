"""Threads of one process: how many a call may use, and how independent pieces of compiled work are shared among them.

Kernels let go of Python's lock, so that threads run them at once. Who divides work into pieces does so by the size of
the work alone, never by the number of threads: the numbers that come out are the same to the last bit.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from itertools import count
from queue import SimpleQueue
from threading import Lock, Thread
from typing import TypeVar

from margmap.errors import QueryError
from margmap.foundation.cores import usable_cores
from margmap.foundation.jit import interprets

T = TypeVar("T")

#: The environment's word on how many threads a call may use.
VARIABLE = "MARGMAP_THREADS"

_asked: ContextVar[int | None] = ContextVar("margmap_threads", default=None)


class _Helper(Thread):
    """A thread that does work for others when it is asked to."""

    def __init__(self) -> None:
        super().__init__(name="margmap", daemon=True)
        self._tasks = SimpleQueue[_Task]()
        self.start()

    def run(self) -> None:
        while True:
            self._tasks.get().do(self)

    def begin(self, task: _Task, cores: set[int]) -> None:
        """Do a task on one of some cores."""
        if sys.platform == "linux" and self.native_id is not None:
            with suppress(OSError):  # they may have been taken from this process meanwhile
                os.sched_setaffinity(self.native_id, cores)
        self._tasks.put(task)


class _Task:
    """Work that one helper does, unless it is too late for it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work, self._taken, self._done = work, Lock(), Lock()
        self._done.acquire()

    def do(self, helper: _Helper) -> None:
        try:
            if self._taken.acquire(blocking=False):
                self._work()
        finally:
            _helpers.idle.append(helper)  # before whoever waits goes on, and needs one again
            self._done.release()

    def end(self) -> None:
        """Wait until it is done if it has begun; otherwise it never will."""
        if not self._taken.acquire(blocking=False):
            self._done.acquire()


class _Helpers:
    """All helpers of this process, made when first needed; the one used last is the next one."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """In a process that was forked there are none."""
        self.idle, self.made, self.lock = deque[_Helper](), 0, Lock()

    def one(self) -> _Helper | None:
        """A helper that is idle; None if all have work, and there are as many as there may be."""
        with self.lock:
            if self.idle:
                return self.idle.pop()
            if self.made >= max(usable_cores(), os.cpu_count() or 1):
                return None
            helper = _Helper()
            self.made += 1
            return helper


_helpers = _Helpers()


def number_of_threads() -> int:
    """How many threads a call may use here: what :func:`using_threads` says, the environment, or one a core."""
    asked = _asked.get()
    if asked is not None:
        return asked
    given = os.environ.get(VARIABLE, "").strip()
    if not given:
        return usable_cores()
    if not given.isdecimal() or int(given) < 1:
        raise QueryError(f"{VARIABLE}={given}: set it to the number of threads, at least 1, or leave it unset")
    return int(given)


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that cannot be meant."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise QueryError(f"threads={threads!r}: give the number of threads, at least 1, or None for one a core")


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Inside, calls use so many threads; None changes nothing."""
    check_threads(threads)
    before = _asked.set(_asked.get() if threads is None else threads)
    try:
        yield
    finally:
        _asked.reset(before)


def at_once(calls: Sequence[Callable[[], T]], sizes: Sequence[float] | None = None) -> list[T]:
    """What independent calls return, in their order; done by this thread and by helpers, whoever is free.

    Where ``sizes`` say how much each call has to do, the largest is begun first, so that no thread waits long for the
    last one. What is interpreted is done by this thread alone, since only one thread at a time can interpret.
    """
    helpers = min(number_of_threads(), len(calls)) - 1
    if helpers < 1 or interprets():
        return [call() for call in calls]
    results: dict[int, T] = {}
    order = range(len(calls)) if sizes is None else sorted(range(len(calls)), key=lambda i: -sizes[i])
    places, failed = count(), list[BaseException]()

    def work() -> None:
        while not failed and (place := next(places)) < len(calls):
            number = order[place]
            try:
                results[number] = calls[number]()
            except BaseException as error:
                failed.append(error)

    under_way, cores = list[_Task](), _other_cores()
    while len(under_way) < helpers and (helper := _helpers.one()) is not None:
        under_way.append(_Task(work))
        helper.begin(under_way[-1], cores)
    work()
    for task in under_way:
        task.end()
    if failed:
        raise failed[0]
    return [results[number] for number in range(len(calls))]


def _other_cores() -> set[int]:
    """The cores that this thread may use, without the one that it is on if that is known and there are others.

    Helpers are kept to these. On a virtual machine Linux takes an idle core for one that the host needs: it leaves a
    thread on the core of the one that wakes it, often for milliseconds, while the other core has nothing to do.
    """
    if sys.platform != "linux":
        return set()
    usable = os.sched_getaffinity(0)
    return usable - {_core_asked()()} or usable


@cache
def _core_asked() -> Callable[[], int]:
    """What tells the core that a thread is on, or -1."""
    import ctypes

    try:
        found: Callable[[], int] = ctypes.PyDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return lambda: -1
    return found


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_helpers.begin_anew)
