"""Ctrl-C: where it must wait a moment, and how the command line leaves.

Python calls a signal's handler wherever its main thread happens to be. An exception raised there while numba compiles,
or while compiled code calls back into Python, is lost or becomes another error. So code of that kind runs inside
:func:`held`, where Ctrl-C waits for its end; and the command line, which has nothing to keep as long as there is no
answer, does not wait but ends its process.

Nothing heavy is imported here: the command line begins with this module.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

#: Exit code after Ctrl-C, as a shell has it.
INTERRUPTED = 130

_WAITING = b"margmap: a kernel is being compiled; Ctrl-C takes effect after that, a second one at once\n"

# Packages in whose code an exception from a signal's handler is lost or becomes another: the compiler, and imports.
_FOREIGN = ("numba", "llvmlite", "importlib", "_frozen_importlib", "_frozen_importlib_external")

# Threads whose work nobody waits for any more have this name.
_ABANDONED = "margmap: given up"


class _Mode:
    """How this process is to take Ctrl-C. Only the command line changes it."""

    #: Whether the process may be ended at once where an exception would be lost.
    leaving = False
    #: Whether a command runs, which turns KeyboardInterrupt into its exit code.
    catching = False
    #: Whether Ctrl-C came while a command ran.
    came = False


_mode = _Mode()


def take_over() -> None:
    """For the command line, first of all: Ctrl-C ends the process with one line, or the command that runs."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return  # ignored, as in the background of a shell, or taken over already
    _mode.leaving = True
    signal.signal(signal.SIGINT, _on_interrupt)
    usual = sys.unraisablehook

    def unraisable(what: Any) -> None:
        if what.exc_type is KeyboardInterrupt:  # raised where Python cannot pass it on, such as in a finalizer
            leave()
        usual(what)

    sys.unraisablehook = unraisable


@contextmanager
def catching() -> Iterator[None]:
    """A command runs inside, and turns KeyboardInterrupt into its exit code."""
    _mode.catching, _mode.came = True, False
    try:
        yield
    finally:
        _mode.catching = False


@contextmanager
def staying() -> Iterator[None]:
    """Inside, the process has something to keep: Ctrl-C waits for kernels rather than end it at once."""
    before, _mode.leaving = _mode.leaving, False
    try:
        yield
    finally:
        _mode.leaving = before


def came() -> bool:
    """Whether Ctrl-C came while the command ran: then it is the cause of whatever error surfaced."""
    return _mode.came


def leave() -> NoReturn:
    """End the process at once, with one line on stderr."""
    with_cursor = b"\x1b[?25h\n" if os.isatty(2) else b""  # a spinner may have hidden it
    os.write(2, with_cursor + b"margmap: interrupted\n")
    os._exit(INTERRUPTED)


def leave_if_allowed() -> None:
    """End the process at once if this is the command line and it has nothing to keep."""
    if _mode.leaving:
        leave()


def _on_interrupt(_number: int, frame: FrameType | None) -> None:
    if not _mode.catching or _mode.came or _is_foreign(frame):
        leave()
    _mode.came = True
    raise KeyboardInterrupt


def _is_foreign(frame: FrameType | None) -> bool:
    """Whether foreign code is under way, in this frame or in one that waits for it."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _FOREIGN:
            return True
        frame = frame.f_back
    return False


@contextmanager
def held() -> Iterator[None]:
    """Inside, the first Ctrl-C waits for the end of the block, and says so; the second one does not wait.

    Only the main thread gets signals; elsewhere nothing changes.
    """
    before = signal.getsignal(signal.SIGINT)
    if (
        threading.current_thread() is not threading.main_thread()
        or not callable(before)
        or getattr(before, "holds", False)
    ):
        yield
        return
    holder = _Holder(before)
    signal.signal(signal.SIGINT, holder)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if holder.waiting:
            before(signal.SIGINT, sys._getframe())


class _Holder:
    holds = True

    def __init__(self, before: Callable[[int, FrameType | None], Any]) -> None:
        self.before, self.waiting, self.number = before, False, 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        leave_if_allowed()
        self.number += 1
        if self.number == 1:
            self.waiting = True
            os.write(2, _WAITING)
            return
        if self.waiting:  # whoever counts has not heard of the first one yet
            self.waiting = False
            self.before(number, frame)
        self.before(number, frame)


def abandon(thread: threading.Thread) -> None:
    """Do not wait for a daemon thread, not even when the command ends."""
    thread.name = _ABANDONED


def finish(code: int) -> NoReturn:
    """End the command. With work left that was given up, at once: Python's own end would run into it."""
    if any(thread.name == _ABANDONED for thread in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)
