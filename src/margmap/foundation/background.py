"""Compiling behind: a process of low priority puts the machine code that most questions need into numba's cache.

One such process runs for a cache at a time, which a lock of the operating system sees to: it is gone with the process
that held it, however that ended. A *mark* in the cache says that the work is done for these sources, this Python, this
numba and this processor; processes look at it before they import numba. What the process compiles is not known here:
it runs ``margmap.warmup``.

Nothing heavy is imported here.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PACKAGE = Path(__file__).resolve().parents[1]

#: What the process runs; it is of low priority before it imports anything.
_CODE = "import os; hasattr(os, 'nice') and os.nice(19); import margmap.warmup; margmap.warmup.behind()"

#: Bytes of the disk that must be free before anything is compiled for it.
_ROOM = 200 << 20

# Seconds in which those who only look whether a process compiles let go of its lock.
_LOOKS = 1.0

# Seconds for which what was seen on the disk is believed.
_BELIEVED = 0.5


class _Seen:
    """What was last seen on the disk, and when; the process that this one started."""

    warm, warm_at = False, -1e9
    under_way, under_way_at = False, -1e9
    started: Any = None
    asked = False


_seen = _Seen()


def folder() -> Path | None:
    """Where the mark and the lock are: numba's cache, if it can be written to; None if nothing can."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "margmap"
    for place in (Path(given), home) if given else (_PACKAGE / "__pycache__", home):
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            if os.access(place, os.W_OK):
                return place
    return None


@functools.cache
def _key() -> str:
    """What machine code depends on: the sources, Python, numba, the processor."""
    import importlib.util

    parts = [sys.version, os.uname().machine if hasattr(os, "uname") else os.name, _processor()]
    for path, _, names in sorted(os.walk(_PACKAGE)):
        for name in sorted(names):
            if name.endswith(".py"):
                status = os.stat(os.path.join(path, name))
                parts.append(f"{path}/{name} {status.st_size} {status.st_mtime_ns}")
    numba = importlib.util.find_spec("numba")
    if numba is not None and numba.origin is not None:
        parts.append(f"{numba.origin} {os.stat(numba.origin).st_mtime_ns}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """The model and the abilities of the processor, for which machine code is made."""
    try:
        with open("/proc/cpuinfo", "rb") as file:
            lines = file.read(1 << 13).split(b"\n\n")[0].splitlines()
    except OSError:
        return os.environ.get("PROCESSOR_IDENTIFIER", "")
    return str([line for line in lines if line.startswith((b"model name", b"flags", b"Features", b"CPU part"))])


def is_warm() -> bool:
    """Whether the machine code that most questions need is in the cache."""
    now = time.monotonic()
    if not _seen.warm and now > _seen.warm_at + _BELIEVED:
        _seen.warm_at = now
        place = folder()
        with suppress(OSError):
            _seen.warm = place is not None and (place / f"margmap-{_key()}.warm").exists()
    return _seen.warm


def mark_warm() -> None:
    """Leave the mark; those of other sources go."""
    place = folder()
    if place is None:
        return
    with suppress(OSError):
        mark = place / f"margmap-{_key()}.warm"
        for old in place.glob("margmap-*.warm"):
            if old != mark and old.stat().st_mtime < time.time() - 30 * 86400:
                old.unlink()
        mark.touch()
        _seen.warm = True


def is_under_way() -> bool:
    """Whether a process compiles behind now."""
    now = time.monotonic()
    if now > _seen.under_way_at + _BELIEVED:
        _seen.under_way_at = now
        with sole() as mine:
            _seen.under_way = not mine and folder() is not None
    return _seen.under_way


@contextmanager
def sole() -> Iterator[bool]:
    """Whether this process is the one that may compile for the cache, inside the block; nobody is waited for."""
    file = _take()
    try:
        yield file is not None
    finally:
        if file is not None and file >= 0:
            os.close(file)


def _take(seconds: float = 0.0) -> int | None:
    """The open file with the cache's lock on it, which is let go when it is closed; None if another has it.

    Another is waited for so many seconds: who only looks whether one compiles holds the lock for a moment. Where there
    are no locks, -1.
    """
    place = folder()
    if place is None or fcntl is None:
        return None if place is None else -1
    try:
        file = os.open(place / "margmap-warmup.lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None
    if _lock(file, seconds):
        return file
    os.close(file)
    return None


@contextmanager
def locked(path: str, seconds: float = 10.0) -> Iterator[None]:
    """Nobody else is inside a block with this path, unless it was waited for so long; without locks, all are."""
    if fcntl is None:
        yield
        return
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:  # nothing can be written there
        yield
        return
    try:
        _lock(file, seconds)
        yield
    finally:
        os.close(file)


def _lock(file: int, seconds: float) -> bool:
    """Lock an open file, for which others are waited for so long; whether that succeeded."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        except OSError:  # a file system without locks
            return False
        else:
            return True


def is_worker() -> bool:
    """Whether this process was started by Python's multiprocessing, which need not be imported for that."""
    processes = sys.modules.get("multiprocessing.process")
    return processes is not None and processes.parent_process() is not None


def _is_wanted() -> bool:
    """Whether a process may be started from here: not from a worker, a test run or a continuous integration."""
    import importlib.util
    import shutil

    if os.environ.get("MARGMAP_BACKGROUND") == "0" or os.environ.get("MARGMAP_TIER", "auto") != "auto":
        return False
    if os.environ.get("CI") or "PYTEST_CURRENT_TEST" in os.environ or "pytest" in sys.modules:
        return False
    if is_worker() or "distributed.worker" in sys.modules or not sys.executable:
        return False
    if getattr(sys, "frozen", False) or importlib.util.find_spec("numba") is None:
        return False
    place = folder()
    return place is not None and shutil.disk_usage(place).free > _ROOM


def start() -> None:
    """Start the process that compiles behind, unless the work is done, is under way or is not wanted."""
    if _seen.asked:
        if _seen.started is not None:
            _seen.started.poll()  # so that it is not left as a zombie when it has ended
        return
    _seen.asked = True
    with suppress(OSError, ImportError, ValueError):
        if not _is_wanted() or is_warm():
            return
        # The lock is taken here and handed over: on a busy machine the process may not come to it for minutes.
        lock = _take(_LOOKS)
        if lock is None:
            return
        import subprocess

        environment = {**os.environ, "MARGMAP_TIER": "compile", "MARGMAP_BACKGROUND": "0", "NUMBA_NUM_THREADS": "1"}
        apart = 0x00000008 | 0x00000040 | 0x00000200 if os.name == "nt" else 0  # detached, idle priority, own group
        try:
            _seen.started = subprocess.Popen(
                [sys.executable, "-c", _CODE],
                cwd=_PACKAGE.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                creationflags=apart,
                pass_fds=(lock,) if lock >= 0 else (),
            )
        finally:
            if lock >= 0:
                os.close(lock)
        atexit.register(_let_go)


def _let_go() -> None:
    """The process goes on when this one ends, and Python need not warn of that."""
    if _seen.started is not None and _seen.started.returncode is None:
        _seen.started.returncode = 0
