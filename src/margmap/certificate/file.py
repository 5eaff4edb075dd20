"""The file of a certificate: JSON, one line a block, described in docs/certificates.md."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

import numpy as np

from margmap.certificate.blocks import Cover
from margmap.circuit import Name
from margmap.circuit.observation import Weights
from margmap.errors import FormatError
from margmap.io.files import place_of, read_lines, write_lines
from margmap.io.reading import parse_json

FORMAT, VERSION = "margmap certificate", 1

MOST_EXPONENT = 10**9

# Gzipped certificates may unpack to more than a fixed multiple of their size only up to this many bytes.
ANY_RATIO = 1 << 20

# Numbers beyond this are no variable's name; error messages print names.
MOST_NAME = 10**1000


@dataclass(frozen=True)
class Certificate:
    """A claim about a query and its proof: ``state`` has at least ``log_lower``, no state more than ``log_upper``.

    ``covers`` has for each block of ``tree``, in the tree's order, vectors that bound what states above ``log_upper``
    could look like inside the block. :func:`margmap.verify` checks all of it.
    """

    query: tuple[Name, ...]
    #: The number of the value of each discrete variable, the value of each continuous one, or weights of all values.
    evidence: Mapping[Name, int | float | Weights]
    #: The number of the value of each query variable.
    state: tuple[int, ...]
    log_lower: float
    log_upper: float
    #: How close the bounds were to be when the proof was made. Whoever checks decides what counts as optimal.
    tolerance: float
    tree: tuple[int, ...]
    covers: tuple[Cover, ...]

    @property
    def gap(self) -> float:
        """How far the two bounds are apart, in nats."""
        return max(0.0, self.log_upper - self.log_lower)

    @property
    def vectors(self) -> int:
        """How many vectors the proof lists."""
        return sum(len(cover.vectors) for cover in self.covers)

    @property
    def numbers(self) -> int:
        """How many numbers these vectors have in all."""
        return sum(cover.vectors.size for cover in self.covers)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the certificate, gzipped if the name ends in ``.gz``; a failure leaves the old file as it was."""
        write_lines(place_of(path), self._lines())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Certificate:
        """Read a certificate. Whether it proves anything is for :func:`margmap.verify` to say."""
        return _Reader(place_of(path)).certificate()

    def _lines(self) -> Iterator[str]:
        fields = ("query", "evidence", "state", "log_lower", "log_upper", "tolerance", "tree")
        head = {"format": FORMAT, "version": VERSION, **{field: getattr(self, field) for field in fields}}
        evidence = [[name, _plain(value)] for name, value in self.evidence.items()]
        for key, value in (head | {"evidence": evidence}).items():
            yield f"{'{' if key == 'format' else ''}{json.dumps(key)}: {json.dumps(value)},"
        yield '"covers": ['
        for at, cover in enumerate(self.covers):
            numbers = (",".join(map(_short, row)) for row in cover.vectors.tolist())
            rows = ",".join(f"[{row}]" for row in numbers)
            yield f"[{cover.exponent},[{rows}]]{',' if at + 1 < len(self.covers) else ''}"
        yield "]}"


def _plain(value: int | float | Weights) -> object:
    return {"weights": list(value.values)} if isinstance(value, Weights) else value


def _short(number: float) -> str:
    return str(int(number)) if number in (0.0, 1.0) else repr(number)


class _Reader:
    """Any bytes become a certificate or a FormatError that names the field."""

    def __init__(self, path: Path) -> None:
        self.path = path
        data = parse_json(read_lines(path, any_ratio=ANY_RATIO), path)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            self._refuse(f'not a certificate: expected an object with "format": "{FORMAT}"')
        if type(data.get("version")) is not int or data["version"] != VERSION:
            self._refuse(f'"version" must be {VERSION}, the only one that this margmap reads')
        self.data: dict[str, Any] = {"log_lower": None, "log_upper": None, "tolerance": None, **data}

    def certificate(self) -> Certificate:
        found = Certificate(
            tuple(self._list("query")),
            self._evidence(),
            tuple(self._list("state")),
            self.data["log_lower"],
            self.data["log_upper"],
            self.data["tolerance"],
            tuple(self._list("tree")),
            tuple(self._cover(f'"covers", block {at}', cover) for at, cover in enumerate(self._list("covers"))),
        )
        if flaw := flaw_of(found):
            self._refuse(flaw)
        return found

    def _evidence(self) -> dict[Name, int | float | Weights]:
        found: dict[Name, int | float | Weights] = {}
        for pair in self._list("evidence"):
            if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) not in (int, str):
                self._refuse('"evidence" must be a list of pairs of a variable and a value')
            if pair[0] in found:
                self._refuse(f'"evidence" has variable {pair[0]!r} twice')
            found[pair[0]] = self._weights(pair[1]) if isinstance(pair[1], dict) else pair[1]
        return found

    def _weights(self, given: dict[str, Any]) -> Weights:
        numbers = given.get("weights")
        if list(given) != ["weights"] or not isinstance(numbers, list) or not all(map(_is_weight, numbers)):
            self._refuse('"evidence": an object must be {"weights": [...]}, with finite numbers of at least 0')
        return Weights(tuple(map(float, numbers)))

    def _cover(self, where: str, cover: object) -> Cover:
        if not isinstance(cover, list) or len(cover) != 2 or not isinstance(cover[1], list):
            self._refuse(f"{where}: expected [exponent, [vector, ...]]")
        rows = cover[1]
        width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
        for row in rows:
            if not isinstance(row, list) or len(row) != width or not set(map(type, row)) <= {int, float}:
                self._refuse(f"{where}: a vector is not a list of numbers, as many as in the first")
        try:
            vectors = np.array(rows, dtype=np.float64).reshape(len(rows), width)
        except OverflowError:
            self._refuse(f"{where}: a number is out of the range of floats")
        return Cover(cover[0], vectors)

    def _list(self, field: str) -> list[Any]:
        value = self.data.get(field)
        if not isinstance(value, list):
            self._refuse(f'"{field}" must be a list')
        return value

    def _refuse(self, message: str) -> NoReturn:
        raise FormatError(message, path=self.path)


def flaw_of(certificate: Certificate) -> str:
    """What makes a certificate none, whether it came from a file or not; empty if its parts are what they should be."""
    c = certificate
    observed = list(c.evidence) if isinstance(c.evidence, Mapping) else None
    for field, names in (("query", c.query), ("evidence", observed)):
        if not _all(_is_name, names):
            return f'"{field}": a variable is an integer or a string'
    for field, whole in (("state", c.state), ("tree", c.tree)):
        if not _all(_is_whole, whole):
            return f'"{field}" has something in it that is not a whole number within range'
    numbers = {"log_lower": c.log_lower, "log_upper": c.log_upper, "tolerance": c.tolerance}
    for field, value in (*numbers.items(), *(("evidence", value) for value in c.evidence.values())):
        if isinstance(value, Weights):
            if field != "evidence" or not _all(_is_weight, value.values):
                return f'"{field}": weights must be finite numbers of at least 0'
        elif not _is_finite(value):
            return f'"{field}" must be a finite number'
    if len(c.state) != len(c.query):
        return f'"state" has {len(c.state)} values for the {len(c.query)} variables of "query"'
    if not _all(lambda cover: isinstance(cover, Cover), c.covers):
        return '"covers" must be a list of covers'
    if len(c.covers) != len(c.tree):
        return f'"covers" has {len(c.covers)} blocks, "tree" has {len(c.tree)}'
    for at, cover in enumerate(c.covers):
        if not _is_whole(cover.exponent) or abs(cover.exponent) > MOST_EXPONENT:
            return f'"covers", block {at}: the exponent is no whole number within {MOST_EXPONENT:g}'
        vectors = cover.vectors
        if not isinstance(vectors, np.ndarray) or vectors.ndim != 2 or vectors.dtype != np.float64:
            return f'"covers", block {at}: its vectors are no matrix of doubles'
        if vectors.size and not (vectors.min() >= 0 and vectors.max() < math.inf):
            return f'"covers", block {at}: a number is negative or not finite'
    return ""


def _all(is_one: Callable[[object], bool], items: object) -> bool:
    return isinstance(items, tuple | list) and all(map(is_one, items))


def _is_name(name: object) -> bool:
    return isinstance(name, str) or (_is_integer(name) and abs(name) < MOST_NAME)


def _is_whole(value: object) -> bool:
    return _is_integer(value) and abs(value) <= 1 << 62


def _is_finite(value: object) -> bool:
    return (_is_integer(value) or isinstance(value, float)) and abs(value) <= sys.float_info.max


def _is_weight(value: object) -> bool:
    return _is_finite(value) and value >= 0  # type: ignore[operator]


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
