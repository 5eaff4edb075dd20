"""A journal: a file of JSON lines that only grows, for one process at a time, of which every line written lasts.

Lines are appended whole and forced to disk. What a crash left half-written at the end is cut off when the journal is
opened again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from margmap.errors import FormatError


class Journal:
    """The journal in the file ``path``, which is made if it is not there; closed at the end of a ``with`` block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: IO[bytes] = path.open("a+b")
        except OSError as error:
            raise FormatError(f"cannot be written: {error.strerror or error}", path=path) from error
        try:
            self._lock()
            self.cut(sum(map(len, self.lines())))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file, and of the lock on it."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def lines(self) -> Iterator[bytes]:
        """The whole lines from the first on, with their line breaks."""
        self._file.seek(0)
        return (line for line in self._file if line.endswith(b"\n"))

    def append(self, *lines: str) -> None:
        """Add lines so that they last."""
        content = "".join(f"{line}\n" for line in lines).encode()
        try:
            while (
                content
            ):  # at once, but for a full disk or a signal; past the buffer, which would try again on closing
                content = content[os.write(self._file.fileno(), content) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise FormatError(f"cannot be written: {error.strerror or error}", path=self.path) from error

    def cut(self, size: int) -> None:
        """Keep the first ``size`` bytes."""
        self._file.truncate(size)

    def _lock(self) -> None:
        """Refuse a second process that writes the same file at the same time; the lock ends with the process."""
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise FormatError("another run is writing this file: wait for it, or stop it", path=self.path) from None
