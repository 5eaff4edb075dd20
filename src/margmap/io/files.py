"""Bytes in, bytes out: gzip by content, a limit against decompression bombs, files that appear whole or not at all."""

from __future__ import annotations

import gzip
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, cast

from margmap.errors import FormatError

#: More decompressed bytes than this are refused.
DEFAULT_LIMIT = 4 << 30

_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_LINES_PER_WRITE = 1 << 14


def read_lines(path: Path, limit: int = DEFAULT_LIMIT) -> list[str]:
    """The lines of a text file, gzipped or not; a file that is no text or has nothing in it is refused."""
    with _explained(path):
        data = _read_bytes(path, limit)
    text = _decoded(data, path, 1)
    if not text.strip():
        raise FormatError("the file is empty", path=path)
    return text.split("\n")


def stream_lines(path: Path, limit: int = DEFAULT_LIMIT) -> Iterator[str]:
    """The same lines one by one, for a file that need not fit into memory."""
    size, number, empty = 0, 0, True
    with _explained(path), path.open("rb") as raw:
        source, packed = _unpacked(raw)
        while data := source.readline(limit - size + 1):
            size, number = size + len(data), number + 1
            if size > limit:
                raise _too_large(path, limit, packed)
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


def _replace(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write beside the target and move the result there, so that a failure leaves what was there before."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise FormatError("this is a folder: name a file", path=path)
    scratch = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
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


def _write(raw: BinaryIO, lines: Iterable[str], *, compress: bool) -> None:
    # No name and no time in the gzip header: the same circuit gives the same bytes.
    out = cast(BinaryIO, gzip.GzipFile("", "wb", 6, raw, mtime=0)) if compress else raw
    rest = iter(lines)
    for first in rest:
        block = chain((first,), islice(rest, _LINES_PER_WRITE))
        out.write("".join(line + "\n" for line in block).encode())
    if compress:
        out.close()


def _read_bytes(path: Path, limit: int) -> bytes:
    with path.open("rb") as raw:
        source, packed = _unpacked(raw)
        chunks, size = [], 0
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                raise _too_large(path, limit, packed)
            chunks.append(chunk)
    return b"".join(chunks)


def _unpacked(raw: BinaryIO) -> tuple[BinaryIO, bool]:
    """What is in a file, and whether that is compressed in it."""
    packed = raw.read(2) == _GZIP_MAGIC
    raw.seek(0)
    return (cast(BinaryIO, gzip.GzipFile(fileobj=raw, mode="rb")) if packed else raw), packed


def _too_large(path: Path, limit: int, packed: bool) -> FormatError:
    what = "it unpacks to" if packed else "it holds"
    return FormatError(f"{what} more than {limit} bytes: pass a larger limit= to read it", path=path)


def _decoded(data: bytes, path: Path, line: int) -> str:
    """Bytes as text; ``line`` is the number of their first line."""
    zero = data.find(b"\0")
    if zero >= 0:
        raise FormatError("a binary file, not text", path=path, line=line + data.count(b"\n", 0, zero))
    try:
        return data.decode("utf-8-sig" if line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line += data.count(b"\n", 0, error.start)
        raise FormatError("not UTF-8 text: is this a binary file?", path=path, line=line) from None


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say of a file that cannot be read why, and what to do."""
    try:
        yield
    except FileNotFoundError:
        raise FormatError("there is no such file", path=path) from None
    except IsADirectoryError:
        raise FormatError("this is a folder, not a file", path=path) from None
    except PermissionError:
        raise FormatError("no permission to read this file", path=path) from None
    except EOFError:
        raise FormatError("the gzip data ends early: the file is truncated, fetch it again", path=path) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"the gzip data is damaged ({error}): fetch the file again", path=path) from None
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror or error}", path=path) from error
