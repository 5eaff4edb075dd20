"""Threads of one process: how many a call may use, and how independent pieces of compiled work are shared among them.

Kernels let go of Python's lock, so that threads run them at once. Who divides work into pieces does so by the size of
the work alone, never by the number of threads: the numbers that come out are the same to the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from threading import Lock
from typing import TypeVar

from margmap.errors import QueryError
from margmap.foundation.cores import usable_cores
from margmap.foundation.jit import interprets

T = TypeVar("T")

#: The environment's word on how many threads a call may use.
VARIABLE = "MARGMAP_THREADS"

_asked: ContextVar[int | None] = ContextVar("margmap_threads", default=None)


class _Pool:
    """Helpers for all calls of this process, made when first needed."""

    executor: ThreadPoolExecutor | None = None
    lock = Lock()


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

    under_way: list[Future[None]] = [_helpers().submit(work) for _ in range(helpers)]
    work()
    for future in under_way:
        if not future.cancel():  # one that has not begun has nothing left to do
            future.result()
    if failed:
        raise failed[0]
    return [results[number] for number in range(len(calls))]


def _helpers() -> ThreadPoolExecutor:
    with _Pool.lock:
        if _Pool.executor is None:
            most = max(usable_cores(), os.cpu_count() or 1)
            _Pool.executor = ThreadPoolExecutor(most, thread_name_prefix="margmap")
        return _Pool.executor


def _begin_anew() -> None:
    """In a process that was forked the helpers are not there."""
    _Pool.executor, _Pool.lock = None, Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
