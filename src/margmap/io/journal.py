"""A file of lines that only grows, so that a run which is killed at any moment can go on where it was.

One process at a time may write it. Every line that was added is on disk before :meth:`Journal.append` returns; a line
that a kill or a power cut left without its end is not counted, and is cut off by the next writer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from margmap.errors import FormatError


class Journal:
    """The lines of a file, and a way to add some; a context manager that holds the file's lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Set to have the file deleted at the end.
        self.finished = False

    def __enter__(self) -> Journal:
        try:
            self._file = self.path.open("a+b")
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._lock()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()
        if self.finished:
            self.path.unlink(missing_ok=True)

    def lines(self) -> Iterator[bytes]:
        """The whole lines, each with its end."""
        self._file.seek(0)
        for line in self._file:
            if not line.endswith(b"\n"):
                return
            yield line

    def keep(self, size: int) -> None:
        """Cut off what comes after so many bytes."""
        self._file.truncate(size)

    def append(self, lines: Iterable[str]) -> None:
        """Add lines, given without their ends, so that they last."""
        try:
            self._file.write("".join(line + "\n" for line in lines).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> FormatError:
        return FormatError(f"cannot be written: {error.strerror or error}", path=self.path)

    def _lock(self) -> None:
        """Refuse a second run that writes the same file at the same time; the lock ends with the process."""
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FormatError("another run is writing this file: wait for it, or stop it", path=self.path) from None
