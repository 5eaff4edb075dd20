"""The table of file formats: circuits, vtrees and networks, chosen by a file's suffix; reading and writing by it.

A new format is one module in this folder with ``read(lines, path)`` and, if it can be written, ``write(value)``, and
one line in ``FORMATS``; if it is binary, with ``read(path, limit)`` and ``write(value, file)``.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, overload

from margmap.circuit import Circuit
from margmap.circuit.model import as_circuit
from margmap.circuit.vtree import Vtree
from margmap.errors import FormatError, StructureError
from margmap.interop.pgmpy import read_xmlbif
from margmap.io import ac, bif, jpc, json, mmz, psdd, spn, uai, vtree
from margmap.io.files import place_of, read_lines, write_lines, write_with
from margmap.network.network import Network

CircuitFormat: TypeAlias = Literal["psdd", "jpc", "spn", "ac", "json", "mmz"]
File: TypeAlias = "str | PathLike[str]"


class Format(NamedTuple):
    """What files of one suffix hold, and how they are read and written."""

    holds: type[Circuit] | type[Vtree] | type[Network]
    #: From the lines of a file and its path; if it is binary, from its path and the limit on bytes.
    read: Callable[..., Any]
    #: The lines of a file; if it is binary, nothing, but into a file; None if this format is only read.
    write: Callable[..., Any] | None = None
    binary: bool = False


#: Every format by its name, which is also the suffix of its files, with or without ``.gz`` after it.
FORMATS = {
    "psdd": Format(Circuit, psdd.read, psdd.write),
    "jpc": Format(Circuit, jpc.read, jpc.write),
    "spn": Format(Circuit, spn.read, spn.write),
    "ac": Format(Circuit, ac.read, ac.write),
    "vtree": Format(Vtree, vtree.read, vtree.write),
    "json": Format(Circuit, json.read, json.write),
    "mmz": Format(Circuit, mmz.read, mmz.write, binary=True),
    "bif": Format(Network, bif.read),
    "uai": Format(Network, uai.read),
    "xmlbif": Format(Network, read_xmlbif),
}

_KINDS: dict[type, str] = {Circuit: "circuit", Vtree: "vtree", Network: "network"}


def formats_of(*kinds: type) -> tuple[str, ...]:
    """The names of the formats that hold values of these kinds."""
    return tuple(name for name, format in FORMATS.items() if format.holds in kinds)


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
    return _load(path, format, limit, Circuit, Vtree)  # type: ignore[no-any-return]


def load_circuit(path: File, format: str | None = None, *, limit: int | None = None) -> Circuit:
    """:func:`load` for a file that must hold a circuit."""
    return _load(path, format, limit, Circuit)  # type: ignore[no-any-return]


def load_vtree(path: File, format: str | None = None, *, limit: int | None = None) -> Vtree:
    """:func:`load` for a file that must hold a vtree."""
    return _load(path, format, limit, Vtree)  # type: ignore[no-any-return]


def load_network(path: File, format: str | None = None, *, limit: int | None = None) -> Network:
    """Read a BIF, UAI or XMLBIF file; ``format`` overrides the suffix, ``limit`` bounds the unpacked size in bytes."""
    return _load(path, format, limit, Network)  # type: ignore[no-any-return]


def save(value: Circuit | Vtree, path: File, format: str | None = None) -> None:
    """Write a circuit or a vtree, gzipped if the name ends in ``.gz``; a failure leaves the old file as it was."""
    place = place_of(path)
    name = _chosen(place, format, Circuit, Vtree)
    chosen = FORMATS[name]
    value = value if isinstance(value, Vtree) else as_circuit(value, "what a file can hold is")
    if not isinstance(value, chosen.holds):
        hint = "save margmap.vtree_of(circuit)" if name == "vtree" else "a vtree is saved as .vtree"
        raise FormatError(f"a {_KINDS[type(value)]} cannot be written as {name}: {hint}", path=place)
    write = chosen.write
    assert write is not None
    try:
        if chosen.binary:
            write_with(place, lambda file: write(value, file))
        else:
            write_lines(place, write(value))
    except FormatError as error:
        if error.path is not None:
            raise
        raise FormatError(str(error), path=place) from error


def is_network_file(path: Path, format: str | None = None) -> bool:
    """Whether a file holds a network, by its name or by the format that was said."""
    return _suffix(path, format) in formats_of(Network)


def _load(path: File, format: str | None, limit: int | None, *kinds: type) -> Any:
    place = place_of(path)
    chosen = FORMATS[_chosen(place, format, *kinds)]
    if chosen.read is read_xmlbif:  # a reader of another library, which opens the file itself
        return read_xmlbif((), place)
    try:
        return chosen.read(place, limit) if chosen.binary else chosen.read(read_lines(place, limit), place)
    except StructureError as error:
        raise FormatError(str(error), path=place) from error


def _suffix(path: Path, format: str | None) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    return format.lower().lstrip(".") if format is not None else suffixes[-1][1:] if suffixes else ""


def _chosen(path: Path, format: str | None, *kinds: type) -> str:
    """The format of a file that must hold a value of one of ``kinds``."""
    name = _suffix(path, format)
    if name in formats_of(*kinds):
        return name
    known = formats_of(*kinds)
    if kinds == (Network,):
        raise FormatError(
            f"not a network by its name or format: known are {', '.join(known)} (margmap.load reads circuits)",
            path=path,
        )
    if name in formats_of(Network):
        raise FormatError("this is a network, not a circuit: read it with load_network, then compile it", path=path)
    if name in FORMATS:
        is_, wanted = _KINDS[FORMATS[name].holds], _KINDS[kinds[0]]
        shown = is_ if is_ == name else f"{is_} ({name})"
        raise FormatError(f"this is a {shown}, not a {wanted}: load it with load_{is_}", path=path)
    if format is not None:
        raise FormatError(f"unknown format {format!r}: known are {', '.join(formats_of(Circuit, Vtree))}", path=path)
    shown = ", ".join(f".{known}" for known in formats_of(Circuit, Vtree))
    raise FormatError(
        f"unknown suffix {'.' + name!r}: known are {shown}, each also with .gz. Under another name, say "
        "the format: format= in Python, --format (convert: --from, --to) on the command line",
        path=path,
    )
