"""Bytes in, bytes out: gzip by content, limits against decompression bombs, files that appear whole or not at all."""

from __future__ import annotations

import csv
import gzip
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedReader, StringIO
from itertools import chain, islice
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import BinaryIO, cast

from margmap.errors import FormatError
from margmap.foundation.wording import did_you_mean

#: More bytes than this, unpacked, are refused.
DEFAULT_LIMIT = 4 << 30

#: Past the first 64 MiB, gzip data may unpack to this many times its packed size; circuits come to 3 to 20 times.
DEFAULT_RATIO = 200

#: The environment variable with another limit in bytes; like an explicit limit, it allows any ratio.
LIMIT_VARIABLE = "MARGMAP_MAX_BYTES"

_ANY_RATIO = 64 << 20
_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_LINES_PER_WRITE = 1 << 14

# What is said of a file that cannot be read, by the error that came of it.
_TROUBLE: dict[type[Exception], str] = {
    FileNotFoundError: "there is no such file",
    IsADirectoryError: "this is a folder, not a file",
    PermissionError: "no permission to read this file",
    EOFError: "the gzip data ends early: the file is truncated, fetch it again",
    gzip.BadGzipFile: "the gzip data is damaged ({}): fetch the file again",
    zlib.error: "the gzip data is damaged ({}): fetch the file again",
}


def place_of(path: object) -> Path:
    """The path that a user gave, refusing what is none."""
    if not isinstance(path, str | os.PathLike):
        raise FormatError(f"the path of a file is a text or a Path, not an object of type {type(path).__name__}")
    return Path(path)


def suffix_of(path: Path) -> str:
    """The suffix of a file's name, in small letters and without its point; that of ``model.psdd.gz`` is ``psdd``."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return suffixes[-1][1:] if suffixes else ""


def make_folder(folder: Path) -> None:
    """Make a folder unless it is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"cannot be made: {error.strerror or error}", path=folder) from None


def csv_line(cells: Iterable[object], delimiter: str = ",") -> str:
    """One line of a CSV file, without its end."""
    text = StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="").writerow(cells)
    return text.getvalue()


def read_lines(path: Path, limit: int | None = None, *, any_ratio: int | None = None) -> list[str]:
    """The lines of a text file, gzipped or not; a file that is no text or has nothing in it is refused."""
    data = bytearray()
    with _opened(path, limit, any_ratio) as source:
        while chunk := source.read():
            data += chunk
    text = _decoded(data, path, 1)
    if not text.strip():
        raise FormatError("the file is empty", path=path)
    return text.split("\n")


def stream_lines(path: Path, limit: int | None = None) -> Iterator[str]:
    """The same lines one by one, for a file that need not fit into memory."""
    number, empty = 0, True
    with _opened(path, limit) as source:
        while data := source.readline():
            number += 1
            line = _decoded(data, path, number).removesuffix("\n")
            empty = empty and not line.strip()
            yield line
    if empty:
        raise FormatError("the file is empty", path=path)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text, compressed if the name ends in .gz, all or nothing."""
    _replace(path, lambda raw: _write(raw, lines, compress=path.suffix.lower() == ".gz"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes, all or nothing."""
    _replace(path, lambda raw: raw.write(data))


def write_with(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let a function write into an open file, compressed if the name ends in .gz, all or nothing."""
    _replace(path, lambda raw: _write_packed(raw, write) if path.suffix.lower() == ".gz" else write(raw))


def map_bytes(path: Path, limit: int | None = None) -> bytes | mmap:
    """The bytes of a file: mapped into memory if it is a plain one, read piece by piece if it is gzipped or a pipe."""
    with _opened(path, limit) as source:
        if not source.packed and source.maps:
            source.check_size(os.fstat(source.file.fileno()).st_size)
            return mmap(source.file.fileno(), 0, access=ACCESS_READ)
        data = bytearray()
        while chunk := source.read_any():
            data += chunk
    return bytes(data)


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write beside the target and move the result there, so that a failure leaves what was there before."""
    _refuse_zero(path)
    target = Path(os.path.realpath(path))
    scratch = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.tmp")
    try:
        if target.is_dir():
            raise FormatError("this is a folder: name a file", path=path)
        try:
            with scratch.open("xb") as raw:
                write(raw)
            if target.exists():
                scratch.chmod(stat.S_IMODE(target.stat().st_mode))
            scratch.replace(target)
        except BaseException:
            scratch.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FormatError(f"cannot be written: {error.strerror or error}", path=path) from error


def _write_packed(raw: BinaryIO, write: Callable[[BinaryIO], object]) -> None:
    with _packer(raw) as out:
        write(out)


def _packer(raw: BinaryIO) -> BinaryIO:
    # No name and no time in the gzip header: the same circuit gives the same bytes.
    return cast(BinaryIO, gzip.GzipFile("", "wb", 6, raw, mtime=0))


def _write(raw: BinaryIO, lines: Iterable[str], *, compress: bool) -> None:
    rest = iter(lines)
    # Where a line fails the packer is closed as well: later, when the file is gone, it could not end what it began.
    with _packer(raw) if compress else nullcontext(raw) as out:
        for first in rest:
            block = chain((first,), islice(rest, _LINES_PER_WRITE))
            out.write("".join(line + "\n" for line in block).encode())


class _Source:
    """The bytes in a file, unpacked piece by piece, so that nothing beyond the limits is ever held."""

    def __init__(self, raw: BufferedReader, path: Path, limit: int | None, any_ratio: int | None) -> None:
        self.path, self.any_ratio = path, _ANY_RATIO if any_ratio is None else any_ratio
        self.limit, ratio = unpacking_limits(path, limit)
        self.packed = raw.peek(2)[:2] == _GZIP_MAGIC  # no seeking: this may be a pipe
        self.ratio = ratio if self.packed else None
        self.file, self.raw = raw, _Counted(raw)
        self.stream = cast(BinaryIO, gzip.GzipFile(fileobj=cast(BinaryIO, self.raw), mode="rb") if self.packed else raw)
        self.size, self.line = 0, 1

    @property
    def maps(self) -> bool:
        """Whether this is a file with something in it, and no pipe or device."""
        found = os.fstat(self.file.fileno())
        return stat.S_ISREG(found.st_mode) and found.st_size > 0

    def read(self) -> bytes:
        """The next piece of a text, empty at the end."""
        return self._checked(self.stream.read(self._room()))

    def read_any(self) -> bytes:
        """The next piece of anything, empty at the end."""
        return self._counted(self.stream.read(self._room()))

    def readline(self) -> bytes:
        """The next line with its end, empty at the end of the file."""
        piece = self._checked(self.stream.readline(self._room()))
        pieces = [piece]
        while piece and not piece.endswith(b"\n"):  # a long line, or the last
            piece = self._checked(self.stream.readline(self._room()))
            pieces.append(piece)
        return b"".join(pieces)

    def _room(self) -> int:
        return min(_CHUNK, self.limit - self.size + 1)

    def _checked(self, data: bytes) -> bytes:
        if self.size == 0:
            refuse_pickle(data[:2], self.path)
        zero = data.find(b"\0")
        if zero >= 0:
            line = self.line + data.count(b"\n", 0, zero)
            raise FormatError("a binary file, not text", path=self.path, line=line)
        self.line += data.count(b"\n")
        return self._counted(data)

    def check_size(self, size: int) -> None:
        """Refuse more bytes than the limit."""
        if size > self.limit:
            what = "it unpacks to" if self.packed else "it holds"
            raise too_large(f"{what} more than {self.limit} bytes", self.path)

    def _counted(self, data: bytes) -> bytes:
        self.size += len(data)
        self.check_size(self.size)
        if self.ratio is not None and self.size > max(self.any_ratio, self.ratio * self.raw.size):
            raise too_large(f"it unpacks to more than {self.ratio} times its size, which no model should", self.path)
        return data


class _Counted:
    """A file to read from that counts its bytes."""

    def __init__(self, raw: BufferedReader) -> None:
        self.raw, self.size = raw, 0

    def read(self, size: int = -1) -> bytes:
        data = self.raw.read(size)
        self.size += len(data)
        return data


def unpacking_limits(path: Path, limit: int | None) -> tuple[int, int | None]:
    """The most bytes that a file may hold, unpacked, and the most times its packed size that may be (None: any)."""
    chosen = _environment_limit(path) if limit is None else limit
    return (DEFAULT_LIMIT, DEFAULT_RATIO) if chosen is None else (chosen, None)


def too_large(what: str, path: Path) -> FormatError:
    """The error for a file that unpacks to too much, with what to do if that is meant."""
    return FormatError(f"{what}: if you trust it, pass a larger limit= or set {LIMIT_VARIABLE}, in bytes", path=path)


def refuse_pickle(head: bytes, path: Path) -> None:
    """Refuse a file whose first bytes are those of a pickle, which no text begins with, and say how to convert it."""
    if len(head) == 2 and head[0] == 0x80 and head[1] <= 5:
        raise FormatError(
            "this is a Python pickle, which can run any code and is never opened here. If it is one of pyjuice that "
            "you trust, convert it where pyjuice is installed, in two lines: "
            f"circuit = margmap.from_pyjuice(pyjuice.load({str(path)!r})); "
            f"margmap.save(circuit, {str(path.with_suffix('.mmz'))!r})",
            path=path,
        )


def _environment_limit(path: Path) -> int | None:
    text = os.environ.get(LIMIT_VARIABLE, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise FormatError(f"cannot be read: {LIMIT_VARIABLE}={text!r} is not a number of bytes", path=path)
    return int(text) if text else None


def _refuse_zero(path: Path) -> None:
    if "\0" in str(path):
        raise FormatError("a file's name cannot have a zero character in it", path=path)


def _decoded(data: bytes | bytearray, path: Path, line: int) -> str:
    """Bytes as text; ``line`` is the number of their first line."""
    try:
        return data.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise FormatError("not UTF-8 text: is this a binary file?", path=path, line=line) from None


@contextmanager
def _opened(path: Path, limit: int | None, any_ratio: int | None = None) -> Iterator[_Source]:
    """What is in a file; if that cannot be read, the error says why, and what to do."""
    _refuse_zero(path)
    try:
        with path.open("rb") as raw:
            yield _Source(raw, path, limit, any_ratio)
    except (OSError, EOFError, zlib.error) as error:
        what = next((text for kind, text in _TROUBLE.items() if isinstance(error, kind)), "cannot be read: {}")
        why = (isinstance(error, OSError) and error.strerror) or error
        near = _near(path) if isinstance(error, FileNotFoundError) else ""
        raise FormatError(what.format(why) + near, path=path) from error


def _near(path: Path) -> str:
    """The file of a similar name and suffix in the same folder, as the end of a message; nothing if there is none."""
    suffix = suffix_of(path)
    try:
        files = [entry for entry in sorted(path.parent.iterdir()) if entry.is_file()]
    except OSError:
        return ""
    # A file of another kind is not what was meant, however it is called.
    alike = [file.name for file in files if suffix_of(file) == suffix or did_you_mean(suffix, [suffix_of(file)])]
    near = did_you_mean(path.name, alike)
    return f": {near.rstrip()}" if near else ""
