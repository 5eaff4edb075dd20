"""Bytes in, bytes out: gzip by content, a limit against decompression bombs, files that appear whole or not at all."""

from __future__ import annotations

import gzip
import os
import secrets
import stat
import zlib
from collections.abc import Callable, Iterable
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
    try:
        data = _read_bytes(path, limit)
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
    zero = data.find(b"\0")
    if zero >= 0:
        raise FormatError("a binary file, not text", path=path, line=data.count(b"\n", 0, zero) + 1)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise FormatError("not UTF-8 text: is this a binary file?", path=path, line=line) from None
    if not text.strip():
        raise FormatError("the file is empty", path=path)
    return text.split("\n")


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
        packed = raw.read(2) == _GZIP_MAGIC
        raw.seek(0)
        source = cast(BinaryIO, gzip.GzipFile(fileobj=raw, mode="rb")) if packed else raw
        chunks, size = [], 0
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > limit:
                what = "it holds" if not packed else "it unpacks to"
                raise FormatError(f"{what} more than {limit} bytes: pass a larger limit= to read it", path=path)
            chunks.append(chunk)
    return b"".join(chunks)
