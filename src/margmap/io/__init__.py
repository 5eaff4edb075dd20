"""Files of circuits and vtrees: one module a format, chosen by the name's suffix, plain or gzipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, overload

from margmap.circuit import Circuit
from margmap.errors import FormatError, StructureError
from margmap.interop import as_circuit
from margmap.io import ac, jpc, native, psdd, spn
from margmap.io import vtree as vtree_file
from margmap.io.files import place_of, read_lines, write_lines
from margmap.vtree import Vtree

__all__ = ["FORMATS", "load", "load_circuit", "load_vtree", "save"]

CircuitFormat: TypeAlias = Literal["psdd", "jpc", "spn", "ac", "json"]
File: TypeAlias = "str | PathLike[str]"


class _Format(NamedTuple):
    holds: type[Circuit] | type[Vtree]
    read: Callable[[Sequence[str], Path], Circuit | Vtree]
    write: Callable[[Any], Iterable[str]]


_BY_NAME = {
    "psdd": _Format(Circuit, psdd.read, psdd.write),
    "jpc": _Format(Circuit, jpc.read, jpc.write),
    "spn": _Format(Circuit, spn.read, spn.write),
    "ac": _Format(Circuit, ac.read, ac.write),
    "vtree": _Format(Vtree, vtree_file.read, vtree_file.write),
    "json": _Format(Circuit, native.read, native.write),
}
#: The names of all formats; each is also the suffix of its files, with or without ``.gz`` after it.
FORMATS = tuple(_BY_NAME)


@overload
def load(path: File, format: CircuitFormat, *, limit: int | None = ...) -> Circuit: ...
@overload
def load(path: File, format: Literal["vtree"], *, limit: int | None = ...) -> Vtree: ...
@overload
def load(path: File, format: str | None = None, *, limit: int | None = ...) -> Circuit | Vtree: ...
def load(path: File, format: str | None = None, *, limit: int | None = None) -> Circuit | Vtree:
    """Read a circuit or a vtree; ``format`` overrides the suffix, ``limit`` bounds the unpacked size in bytes.

    Without it 4 GiB are the most, or what MARGMAP_MAX_BYTES says, and gzip data may not unpack to 200 times its size.
    """
    place = place_of(path)
    chosen = _BY_NAME[_choose(place, format)]
    try:
        return chosen.read(read_lines(place, limit), place)
    except StructureError as error:
        raise FormatError(str(error), path=place) from error


def load_circuit(path: File, format: str | None = None, *, limit: int | None = None) -> Circuit:
    """:func:`load` for a file that must hold a circuit."""
    name = _choose(place_of(path), format)
    if _BY_NAME[name].holds is not Circuit:
        raise FormatError("this is a vtree, not a circuit: load it with load_vtree", path=path)
    value = load(path, name, limit=limit)
    assert isinstance(value, Circuit)
    return value


def load_vtree(path: File, format: str | None = None, *, limit: int | None = None) -> Vtree:
    """:func:`load` for a file that must hold a vtree."""
    name = _choose(place_of(path), format)
    if _BY_NAME[name].holds is not Vtree:
        raise FormatError(f"this is a circuit ({name}), not a vtree: load it with load_circuit", path=path)
    value = load(path, name, limit=limit)
    assert isinstance(value, Vtree)
    return value


def save(value: Circuit | Vtree, path: File, format: str | None = None) -> None:
    """Write a circuit or a vtree, gzipped if the name ends in ``.gz``; a failure leaves the old file as it was."""
    place = place_of(path)
    name = _choose(place, format)
    chosen = _BY_NAME[name]
    value = value if isinstance(value, Vtree) else as_circuit(value, "what a file can hold is")
    if not isinstance(value, chosen.holds):
        hint = "save margmap.vtree_of(circuit)" if name == "vtree" else "a vtree is saved as .vtree"
        what = "circuit" if isinstance(value, Circuit) else "vtree"
        raise FormatError(f"a {what} cannot be written as {name}: {hint}", path=place)
    try:
        write_lines(place, chosen.write(value))
    except FormatError as error:
        if error.path is not None:
            raise
        raise FormatError(str(error), path=place) from error


def _choose(path: Path, format: str | None) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    name = format.lower().lstrip(".") if format is not None else suffixes[-1][1:] if suffixes else ""
    if name in ("bif", "uai", "xmlbif"):
        raise FormatError("this is a network, not a circuit: read it with load_network, then compile it", path=path)
    if name not in _BY_NAME:
        known = ", ".join(f".{known}" for known in FORMATS)
        if format is not None:
            raise FormatError(f"unknown format {format!r}: known are {', '.join(FORMATS)}", path=path)
        raise FormatError(
            f"unknown suffix {'.' + name!r}: known are {known}, each also with .gz. Under another name, say "
            "the format: format= in Python, --format (convert: --from, --to) on the command line",
            path=path,
        )
    return name
