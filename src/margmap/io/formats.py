"""The table of file formats: circuits, vtrees and networks, chosen by a file's suffix; reading and writing by it.

A new format is one module in this folder with ``read(lines, path)`` and, if it can be written, ``write(value)``, and
one line in ``FORMATS``; if it is binary, with ``read(path, limit)`` and ``write(value, file)``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, overload

from margmap.circuit import Circuit
from margmap.circuit.logic import RootedTheory
from margmap.circuit.model import as_circuit
from margmap.circuit.vtree import Vtree
from margmap.errors import FormatError, LostNamesWarning, StructureError
from margmap.foundation.wording import did_you_mean
from margmap.interop.pyagrum import read_with_pyagrum
from margmap.io import ac, bif, jpc, json, mmz, nnf, psdd, sdd, spn, uai, vtree, xmlbif
from margmap.io.files import place_of, read_lines, suffix_of, write_lines, write_with
from margmap.io.weights import Names, Weights, circuit_of_theory
from margmap.network.network import Network

CircuitFormat: TypeAlias = Literal["psdd", "jpc", "spn", "ac", "json", "nnf", "sdd", "mmz"]
NetworkFormat: TypeAlias = Literal["bif", "uai", "xmlbif", "bifxml", "xml", "xdsl", "dsl", "net"]
File: TypeAlias = "str | PathLike[str]"


class Format(NamedTuple):
    """What files of one suffix hold, and how they are read and written."""

    holds: type[Circuit] | type[Vtree] | type[Network]
    #: From the lines of a file and its path; if it is binary, from its path and the limit on bytes.
    read: Callable[..., Any]
    #: The lines of a file; if it is binary, nothing, but into a file; None if this format is only read.
    write: Callable[..., Any] | None = None
    #: Whether the reader opens the file itself, because it is one of another library; it gets no lines.
    opens: bool = False
    #: Whether files hold a theory, which becomes a circuit with the weights of its literals.
    theory: bool = False
    binary: bool = False
    #: Whether its files keep the names of variables and states, and how the columns of a table became variables.
    named: bool = False


#: Every format by its name, which is also the suffix of its files, with or without ``.gz`` after it.
FORMATS = {
    "psdd": Format(Circuit, psdd.read, psdd.write),
    "jpc": Format(Circuit, jpc.read, jpc.write),
    "spn": Format(Circuit, spn.read, spn.write),
    "ac": Format(Circuit, ac.read, ac.write),
    "vtree": Format(Vtree, vtree.read, vtree.write),
    "json": Format(Circuit, json.read, json.write, named=True),
    "nnf": Format(Circuit, nnf.read, theory=True),
    "sdd": Format(Circuit, sdd.read, theory=True),
    "mmz": Format(Circuit, mmz.read, mmz.write, binary=True, named=True),
    "bif": Format(Network, bif.read),
    "uai": Format(Network, uai.read),
    "xmlbif": Format(Network, xmlbif.read),
    "bifxml": Format(Network, xmlbif.read),
    "xml": Format(Network, xmlbif.read),
    "xdsl": Format(Network, read_with_pyagrum, opens=True),
    "dsl": Format(Network, read_with_pyagrum, opens=True),
    "net": Format(Network, read_with_pyagrum, opens=True),
}

#: The models that come with the package, by the names that stand for their files.
BUNDLED = {
    file.name.split(".")[0]: file
    for file in (Path(__file__).parents[1] / "models").glob("*")
    if suffix_of(file) in FORMATS
}

_KINDS: dict[type, str] = {Circuit: "circuit", Vtree: "vtree", Network: "network"}


def formats_of(*kinds: type) -> tuple[str, ...]:
    """The names of the formats that hold values of these kinds."""
    return tuple(name for name, format in FORMATS.items() if format.holds in kinds)


@overload
def load(
    path: File,
    format: CircuitFormat,
    *,
    limit: int | None = ...,
    weights: Weights | None = ...,
    names: Names | None = ...,
    vtree: Vtree | File | None = ...,
) -> Circuit: ...
@overload
def load(path: File, format: Literal["vtree"], *, limit: int | None = ...) -> Vtree: ...
@overload
def load(path: File, format: NetworkFormat, *, limit: int | None = ...) -> Network: ...
@overload
def load(
    path: File,
    format: str | None = None,
    *,
    limit: int | None = ...,
    weights: Weights | None = ...,
    names: Names | None = ...,
    vtree: Vtree | File | None = ...,
) -> Any: ...
def load(
    path: File,
    format: str | None = None,
    *,
    limit: int | None = None,
    weights: Weights | None = None,
    names: Names | None = None,
    vtree: Vtree | File | None = None,
) -> Any:
    """Read a circuit, a network or a vtree, whichever the file's suffix says; ``format`` overrides the suffix.

    A name without a suffix that is no file is that of a model that comes with the package: ``clinic`` or ``digits``.
    Type checkers know what is read if ``format`` is given, or from :func:`load_circuit`, :func:`load_network` and
    :func:`load_vtree`. ``limit`` bounds the unpacked size in bytes. Without it 4 GiB are the most, or what
    MARGMAP_MAX_BYTES says, and gzip data may not unpack to 200 times its size.

    A Boolean theory (``.nnf``, ``.sdd``) becomes a circuit with ``weights``: a dict from literals, or from names and
    numbers of variables, or a file of weights; without them models are counted. ``names`` says what the variables are
    called, a dict from numbers or a file. ``vtree`` is that of an SDD, by default the file of that suffix beside it.
    """
    return _load(path, format, limit, (Circuit, Vtree, Network), weights=weights, names=names, vtree=vtree)


def load_circuit(path: File, format: str | None = None, *, limit: int | None = None, **theory: Any) -> Circuit:
    """:func:`load` for a file that must hold a circuit."""
    return _load(path, format, limit, (Circuit,), **theory)  # type: ignore[no-any-return]


def load_vtree(path: File, format: str | None = None, *, limit: int | None = None) -> Vtree:
    """:func:`load` for a file that must hold a vtree."""
    return _load(path, format, limit, (Vtree,))  # type: ignore[no-any-return]


def load_network(path: File, format: str | None = None, *, limit: int | None = None) -> Network:
    """Read a BIF, UAI or XMLBIF file; ``format`` overrides the suffix, ``limit`` bounds the unpacked size in bytes."""
    return _load(path, format, limit, (Network,))  # type: ignore[no-any-return]


def save(value: Circuit | Vtree, path: File, format: str | None = None) -> None:
    """Write a circuit or a vtree, gzipped if the name ends in ``.gz``; a failure leaves the old file as it was.

    A circuit that was learned from a table loses its names and bins in formats that number variables and values; a
    :class:`~margmap.errors.LostNamesWarning` says so.
    """
    place = place_of(path)
    name = _chosen(place, format, Circuit, Vtree)
    chosen = FORMATS[name]
    value = value if isinstance(value, Vtree) else as_circuit(value, "what a file can hold is")
    if not isinstance(value, chosen.holds):
        hint = "save margmap.vtree_of(circuit)" if name == "vtree" else "a vtree is saved as .vtree"
        raise FormatError(f"a {_KINDS[type(value)]} cannot be written as {name}: {hint}", path=place)
    write = chosen.write
    if write is None:
        known = ", ".join(f".{name}" for name in formats_of(Circuit) if FORMATS[name].write is not None)
        raise FormatError(f"{name} files are only read: save a circuit as one of {known}", path=place)
    try:
        if chosen.binary:
            write_with(place, lambda file: write(value, file))
        else:
            write_lines(place, write(value))
    except FormatError as error:
        if error.path is not None:
            raise
        raise FormatError(str(error), path=place) from error
    if isinstance(value, Circuit) and (lost := lost_names(value, name)) is not None:
        warnings.warn(f"{place}: {lost}", LostNamesWarning, stacklevel=2)


def lost_names(circuit: Circuit, format: str) -> str | None:
    """What a file of this format does not keep of the table that a circuit was learned from; None if nothing."""
    encoded = [variable for variable in circuit.variables if variable.encoding is not None]
    if not encoded or FORMATS[format].named:
        return None
    able = " or ".join(f".{name}" for name, format in FORMATS.items() if format.named and format.write is not None)
    binned = sum(variable.bins is not None for variable in encoded)
    bins = f", and {binned} of them with bins" if binned else ""
    return (
        f"{format} files number variables and values: the names of {len(encoded)} columns and of their values{bins}, "
        f"are not in the file, so that it does not understand the values of the table; save as {able} to keep them"
    )


def load_model(path: Path, format: str | None = None) -> Circuit | Network:
    """The circuit or the network in a file, whichever its name or ``format`` says it holds."""
    return (load_network if is_network_file(path, format) else load_circuit)(path, format)


def is_network_file(path: Path, format: str | None = None) -> bool:
    """Whether a file holds a network, by its name or by the format that was said."""
    return format_name(path, format) in formats_of(Network)


def format_name(path: Path, format: str | None = None) -> str:
    """The format that was said, or else that of the file's suffix; it may be none that is known."""
    return suffix_of(model_file(path)) if format is None else format.lower().lstrip(".")


def model_file(path: Path) -> Path:
    """The file, or that of the package if there is none of this name and one of its models has it."""
    if path.suffix or path.parent != Path() or path.exists():
        return path
    return BUNDLED.get(path.name, path)


def _load(
    path: File,
    format: str | None,
    limit: int | None,
    kinds: tuple[type, ...],
    *,
    weights: Weights | None = None,
    names: Names | None = None,
    vtree: Vtree | File | None = None,
) -> Any:
    place = model_file(place_of(path))
    name = _chosen(place, format, *kinds)
    chosen = FORMATS[name]
    if not chosen.theory and not (weights is names is vtree is None):
        theories = " and ".join(f".{name}" for name, format in FORMATS.items() if format.theory)
        raise FormatError(f"weights, names and a vtree go with {theories} files: a {name} file has its own", path=place)
    if vtree is not None and name != "sdd":
        raise FormatError(f"a vtree goes with an SDD, not with a {name} file", path=place)
    if chosen.opens:
        return chosen.read((), place)
    try:
        if chosen.binary:
            return chosen.read(place, limit)
        found = chosen.read(read_lines(place, limit), place)
        if isinstance(found, RootedTheory):
            rooted = _with_vtree(found, vtree, place) if name == "sdd" else found
            return circuit_of_theory(rooted, weights, names)
        return found
    except StructureError as error:
        raise FormatError(str(error), path=place) from error


def _with_vtree(rooted: RootedTheory, vtree: Vtree | File | None, path: Path) -> RootedTheory:
    """The theory of an SDD with the variables of its vtree, which may lie in a file beside it."""
    if vtree is None:
        vtree = beside(path, ".vtree", ".vtree.gz")
    if vtree is None:
        return rooted
    named = (vtree if isinstance(vtree, Vtree) else load_vtree(vtree, "vtree")).variables
    variables = [name for name in named if isinstance(name, int) and name > 0]
    if len(variables) < len(named):
        raise FormatError("the variables of the vtree have other names than 1, 2, ...", path=path)
    strange = min({v for v in rooted.theory.parts.var if v >= 0} - set(variables), default=None)
    if strange is not None:
        where = "vtree that was given" if isinstance(vtree, Vtree) else vtree
        raise FormatError(f"variable {strange} is not in the {where}: that is the vtree of another SDD", path=path)
    return rooted._replace(announced=variables)


def beside(path: Path, *suffixes: str) -> Path | None:
    """The first file with one of these suffixes and otherwise the name of this one, ``.gz`` apart; None without one."""
    whole = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    names = (whole.with_suffix("").name + suffix for suffix in suffixes)
    return next((place for name in names if (place := path.with_name(name)).is_file()), None)


def _chosen(path: Path, format: str | None, *kinds: type) -> str:
    """The format of a file that must hold a value of one of ``kinds``."""
    name = format_name(path, format)
    if name in formats_of(*kinds):
        return name
    known = formats_of(*kinds)
    if kinds == (Network,):
        raise FormatError(
            f"not a network by its name or format: known are {', '.join(known)} (margmap.load reads circuits too)",
            path=path,
        )
    if name in formats_of(Network):
        raise FormatError("this is a network, not a circuit: read it with load, then compile it", path=path)
    if name in FORMATS:
        is_, wanted = _KINDS[FORMATS[name].holds], _KINDS[kinds[0]]
        shown = is_ if is_ == name else f"{is_} ({name})"
        raise FormatError(f"this is a {shown}, not a {wanted}: load it with load_{is_}", path=path)
    if not path.suffix and path.parent == Path() and not path.exists():
        own = ", ".join(sorted(BUNDLED))
        raise FormatError(f"there is no such file, and the models that come with margmap are {own}", path=path)
    if format is not None:
        near = did_you_mean(name, formats_of(*kinds))
        raise FormatError(f"unknown format {format!r}: {near}known are {', '.join(formats_of(*kinds))}", path=path)
    shown = ", ".join(f".{known}" for known in formats_of(*kinds))
    raise FormatError(
        f"unknown suffix {'.' + name!r}: {did_you_mean(name, FORMATS)}known are {shown}, each also with .gz. "
        "Under another name, say the format: format= in Python, --format (convert: --from, --to) on the command line",
        path=path,
    )
