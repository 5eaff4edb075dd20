"""The binary form ``.mmz``: a zip of plain arrays and a JSON header, for large circuits; described in docs/formats.md.

The arrays are those of :class:`margmap.circuit.Circuit`, each a member in numpy's ``.npy`` form. They are stored as
they are, at multiples of 64 bytes, and mapped into memory on reading: nothing is parsed or copied. Members that some
other program compressed are unpacked.
"""

from __future__ import annotations

import json
import struct
import zlib
from io import BytesIO
from mmap import mmap
from pathlib import Path
from typing import Any, BinaryIO, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Circuit, Variable
from margmap.circuit.builder import without_strays
from margmap.errors import FormatError
from margmap.io.files import map_bytes, refuse_pickle, too_large, unpacking_limits
from margmap.io.json import read_variable, written_variable
from margmap.io.reading import parse_json, shorten

VERSION = 1
HEADER = "header.json"

#: The arrays of a circuit and their types, in the order of the file.
ARRAYS = {
    "kind": "|i1",
    "start": "<i8",
    "child": "<i4",
    "log_weight": "<f8",
    "var": "<i4",
    "param_start": "<i8",
    "param": "<f8",
}

# Arrays begin at multiples of this in the file, so that they can be used where they lie.
_ALIGNMENT = 64
# Members of at most this size may be compressed to any degree.
_ANY_RATIO = 64 << 20
# The number of an extra field of a zip member that is there to move its data; readers of zip files skip it.
_PADDING = 0xD935
# What zipfile adds to a member's header for its size in 64 bits.
_WIDE = 20
_LOCAL = struct.Struct("<4s22xHH")
_DAMAGED = (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError, ValueError, struct.error)


def read(path: Path, limit: int | None = None) -> Circuit:
    """The circuit of a file; ``limit`` bounds the bytes of the file and of what it unpacks to."""
    file = _File(path, limit)
    given = file.header.get("variables")
    if not isinstance(given, list):
        raise FormatError('the header has no list of "variables"', path=path)
    variables: list[Variable] = [read_variable(entry, position, path) for position, entry in enumerate(given)]
    return without_strays(Circuit(variables, *(file.array(name, ARRAYS[name]) for name in ARRAYS)))


def write(circuit: Circuit, raw: BinaryIO) -> None:
    """Write a circuit into an open file."""
    arrays = {name: np.ascontiguousarray(getattr(circuit, name), dtype=dtype) for name, dtype in ARRAYS.items()}
    header: dict[str, Any] = {
        "format": "margmap",
        "version": VERSION,
        "arrays": {
            name: {"type": array.dtype.str, "count": array.size, "crc32": zlib.crc32(array.data)}
            for name, array in arrays.items()
        },
        "variables": [written_variable(variable) for variable in circuit.variables],
    }
    out = _Counted(raw)
    with ZipFile(cast(BinaryIO, out), "w", ZIP_STORED) as archive:
        archive.writestr(_member(HEADER), json.dumps(header, allow_nan=False))
        for name, array in arrays.items():
            member = _member(f"{name}.npy")
            padding = -(out.tell() + _LOCAL.size + len(member.filename) + 4 + _WIDE) % _ALIGNMENT
            member.extra = struct.pack("<HH", _PADDING, padding) + bytes(padding)
            with archive.open(member, "w", force_zip64=True) as inside:
                inside.write(_prefix(array.dtype, array.size))
                inside.write(array.data.cast("B") if array.size else b"")


def _member(name: str) -> ZipInfo:
    """A member of a zip file without the time, so that the same circuit gives the same bytes."""
    return ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))


def _prefix(dtype: np.dtype[Any], count: int) -> bytes:
    """The bytes before the numbers in numpy's ``.npy`` form, of which there is one way to write a list of numbers."""
    out = BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": dtype.str, "fortran_order": False, "shape": (count,)})
    return out.getvalue()


class _File:
    """A file whose header is read; its arrays are taken out one by one."""

    def __init__(self, path: Path, limit: int | None) -> None:
        self.path = path
        self.limit, self.ratio = unpacking_limits(path, limit)
        self.data: bytes | mmap = map_bytes(path, limit)
        head = self.data[:4]
        if len(head) == 0:
            raise FormatError("the file is empty", path=path)
        refuse_pickle(head[:2], path)
        if head != b"PK\3\4":
            raise FormatError("not an mmz file: it does not begin as a zip archive does", path=path)
        try:
            with ZipFile(BytesIO(self.data) if isinstance(self.data, bytes) else _Window(self.data)) as archive:
                listed = archive.infolist()
        except _DAMAGED as error:
            raise self.damaged(error) from None
        self.members = {member.filename: member for member in listed}
        if len(self.members) != len(listed):
            raise FormatError("a member of the zip archive is there twice", path=path)
        unpacked = sum(member.file_size for member in listed)
        if unpacked > self.limit:
            raise too_large(f"it unpacks to more than {self.limit} bytes", path)
        self.header = self._header()

    def damaged(self, error: object) -> FormatError:
        """The error for what is no proper zip file."""
        text = shorten(str(error)) or type(error).__name__
        return FormatError(f"the zip archive is damaged ({text}): fetch or save the file again", path=self.path)

    def _header(self) -> dict[str, Any]:
        try:
            text = bytes(self._bytes(HEADER)).decode("utf-8")
        except UnicodeDecodeError:
            raise FormatError("the header is not UTF-8 text", path=self.path) from None
        header = parse_json(text.split("\n"), self.path)
        if not isinstance(header, dict) or header.get("format") != "margmap":
            raise FormatError('not a circuit: expected a header with "format": "margmap"', path=self.path)
        if header.get("version") != VERSION:
            found = shorten(repr(header.get("version")))
            message = f"version {found} of the format is unknown, this margmap reads version {VERSION}"
            raise FormatError(message, path=self.path)
        return header

    def array(self, name: str, dtype: str) -> NDArray[Any]:
        """An array, where it lies in the file if it is not compressed, with the size and checksum of the header."""
        listed = self.header.get("arrays")
        entry = listed.get(name) if isinstance(listed, dict) else None
        if not isinstance(entry, dict) or type(entry.get("count")) is not int or type(entry.get("crc32")) is not int:
            raise FormatError(f'the header has no "type", "count" and "crc32" of the array {name!r}', path=self.path)
        if entry.get("type") != dtype:
            found = shorten(repr(entry.get("type")))
            raise FormatError(f"the array {name!r} has the type {found}, and {dtype!r} is expected", path=self.path)
        kind, count = np.dtype(dtype), entry["count"]
        member = f"{name}.npy"
        data = self._bytes(member)
        # The count is compared before a prefix is made of it, as it may have any number of digits.
        size = len(data) - len(_prefix(kind, 0))
        fits = 0 <= count <= max(size, 0) // kind.itemsize
        prefix = _prefix(kind, count) if fits else b""
        if not fits or len(data) != len(prefix) + count * kind.itemsize or data[: len(prefix)] != prefix:
            raise FormatError(f"the member {member!r} is no array of {shorten(str(count))} numbers", path=self.path)
        array = np.frombuffer(data, kind, count, len(prefix))
        if zlib.crc32(array.data) != entry["crc32"]:
            raise FormatError(f"the checksum of the array {name!r} is wrong: the file is damaged", path=self.path)
        return array if array.flags.aligned else array.copy()

    def _bytes(self, name: str) -> memoryview:
        """The bytes of a member: where they lie, or unpacked."""
        member = self.members.get(name)
        if member is None:
            raise FormatError(f"there is no {name!r} in the zip archive", path=self.path)
        data = memoryview(self.data)
        local = bytes(data[member.header_offset : member.header_offset + _LOCAL.size])
        if len(local) != _LOCAL.size or local[:4] != b"PK\3\4":
            raise self.damaged(f"no header of {name!r}")
        _, letters, extra = _LOCAL.unpack(local)
        start = member.header_offset + _LOCAL.size + letters + extra
        packed = data[start : start + member.compress_size]
        if len(packed) != member.compress_size or member.flag_bits & 1:
            raise self.damaged(f"{name!r} is {'encrypted' if member.flag_bits & 1 else 'cut off'}")
        if member.compress_type == ZIP_STORED and member.file_size == member.compress_size:
            found = packed
        elif member.compress_type == ZIP_DEFLATED:
            found = memoryview(self._unpacked(packed, member))
        else:
            raise FormatError(f"{name!r} is compressed in another way than by deflate", path=self.path)
        if name == HEADER and zlib.crc32(found) != member.CRC:  # arrays have checksums of their own
            raise self.damaged(f"the checksum of {name!r} is wrong")
        return found

    def _unpacked(self, packed: memoryview, member: ZipInfo) -> bytes:
        most = max(_ANY_RATIO, self.ratio * len(packed)) if self.ratio is not None else self.limit
        if member.file_size > most:
            raise too_large(f"{member.filename!r} unpacks to more than {self.ratio} times its size", self.path)
        unpacker = zlib.decompressobj(-15)
        try:
            data = unpacker.decompress(packed, member.file_size + 1)
        except zlib.error as error:
            raise self.damaged(error) from None
        if len(data) != member.file_size or not unpacker.eof:
            raise self.damaged(f"{member.filename!r} unpacks to another size than it says")
        return data


class _Counted:
    """A file to write to from beginning to end, as gzip files are: there is no way back in it."""

    def __init__(self, raw: BinaryIO) -> None:
        self.raw, self.size = raw, 0

    def write(self, data: bytes) -> int:
        self.raw.write(data)
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self.raw.flush()


class _Window:
    """Mapped bytes as a file to read from, which a mmap is in later versions of Python only."""

    def __init__(self, data: mmap) -> None:
        self.data, self.at = data, 0

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, len(self.data))[whence]
        if self.at < 0:
            raise ValueError("a place before the beginning of the file")
        return self.at

    def read(self, size: int = -1) -> bytes:
        end = len(self.data) if size is None or size < 0 else self.at + size
        piece = self.data[self.at : end]
        self.at += len(piece)
        return piece
