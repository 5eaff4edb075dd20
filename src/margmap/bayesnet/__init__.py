"""Bayesian and Markov networks: read them, compile them to circuits, ask them."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from margmap.bayesnet import bif, uai
from margmap.bayesnet.compile import Prediction, compile, predict
from margmap.bayesnet.network import Factor, Network
from margmap.bayesnet.pgmpy import from_pgmpy, read_xmlbif
from margmap.errors import FormatError
from margmap.io.files import place_of, read_lines

__all__ = [
    "FORMATS",
    "Factor",
    "Network",
    "Prediction",
    "compile",
    "from_pgmpy",
    "load_network",
    "network_format",
    "predict",
]

#: Formats of networks; each is also the suffix of its files, with or without ``.gz`` (not XMLBIF) after it.
FORMATS = ("bif", "uai", "xmlbif")


def load_network(path: str | PathLike[str], format: str | None = None, *, limit: int | None = None) -> Network:
    """Read a BIF, UAI or XMLBIF file; ``format`` overrides the suffix, ``limit`` bounds the unpacked size in bytes."""
    place = place_of(path)
    name = network_format(place, format)
    if name is None:
        known = ", ".join(FORMATS)
        raise FormatError(
            f"not a network by its name or format: known are {known} (margmap.load reads circuits)", path=place
        )
    if name == "xmlbif":
        return read_xmlbif(place)
    lines = read_lines(place, limit)
    return bif.read(lines, place) if name == "bif" else uai.read(lines, place)


def network_format(path: Path, format: str | None = None) -> str | None:
    """The format of a network by the file's name or as given; None if it is not one of a network."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    name = format.lower().lstrip(".") if format is not None else suffixes[-1][1:] if suffixes else ""
    return name if name in FORMATS else None
