"""The file of a certificate: JSON, one line a block, described in docs/certificates.md."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from margmap.certificate.blocks import Cover
from margmap.circuit import Name
from margmap.errors import FormatError
from margmap.io.files import read_lines, write_lines

FORMAT, VERSION = "margmap certificate", 1

MOST_EXPONENT = 10**9


@dataclass(frozen=True)
class Certificate:
    """A claim about a query and its proof: ``state`` has at least ``log_lower``, no state more than ``log_upper``.

    ``covers`` has for each block of ``tree``, in the tree's order, vectors that bound what states above ``log_upper``
    could look like inside the block. :func:`margmap.verify` checks all of it.
    """

    query: tuple[Name, ...]
    #: The number of the value of each discrete variable, the value of each continuous one.
    evidence: Mapping[Name, int | float]
    #: The number of the value of each query variable.
    state: tuple[int, ...]
    log_lower: float
    log_upper: float
    #: The bounds count as equal, and the state as optimal, if they are this close.
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
        write_lines(Path(path), self._lines())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Certificate:
        """Read a certificate. Whether it proves anything is for :func:`margmap.verify` to say."""
        return _Reader(Path(path)).certificate()

    def _lines(self) -> Iterator[str]:
        head = {
            "format": FORMAT,
            "version": VERSION,
            "query": list(self.query),
            "evidence": [[name, value] for name, value in self.evidence.items()],
            "state": list(self.state),
            "log_lower": self.log_lower,
            "log_upper": self.log_upper,
            "tolerance": self.tolerance,
            "tree": list(self.tree),
        }
        for key, value in head.items():
            yield f"{'{' if key == 'format' else ''}{json.dumps(key)}: {json.dumps(value)},"
        yield '"covers": ['
        for at, cover in enumerate(self.covers):
            numbers = (",".join(map(_short, row)) for row in cover.vectors.tolist())
            rows = ",".join(f"[{row}]" for row in numbers)
            yield f"[{cover.exponent},[{rows}]]{',' if at + 1 < len(self.covers) else ''}"
        yield "]}"


def _short(number: float) -> str:
    return str(int(number)) if number in (0.0, 1.0) else repr(number)


class _Reader:
    """Any bytes become a certificate or a FormatError that names the field."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = read_lines(path)
        try:
            data = json.loads("\n".join(lines), parse_constant=self._constant)
        except json.JSONDecodeError as error:
            raise FormatError(f"not valid JSON: {error.msg}; is it truncated?", path=path, line=error.lineno) from None
        except RecursionError:
            raise FormatError("not a certificate: the JSON is nested too deeply", path=path) from None
        except ValueError as error:
            raise FormatError(f"not valid JSON: {error}", path=path) from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            self._refuse(f'not a certificate: expected an object with "format": "{FORMAT}"')
        if type(data.get("version")) is not int or data["version"] != VERSION:
            self._refuse(f'"version" must be {VERSION}, the only one that this margmap reads')
        self.data: dict[str, Any] = data

    def certificate(self) -> Certificate:
        query = tuple(self._name("query", name) for name in self._list("query"))
        state = tuple(self._whole("state", code) for code in self._list("state"))
        tree = tuple(self._whole("tree", token) for token in self._list("tree"))
        covers = self._list("covers")
        if len(state) != len(query):
            self._refuse(f'"state" has {len(state)} values for the {len(query)} variables of "query"')
        if len(covers) != len(tree):
            self._refuse(f'"covers" has {len(covers)} blocks, "tree" has {len(tree)}')
        return Certificate(
            query,
            self._evidence(),
            state,
            self._number("log_lower", self.data.get("log_lower")),
            self._number("log_upper", self.data.get("log_upper")),
            self._number("tolerance", self.data.get("tolerance")),
            tree,
            tuple(self._cover(f'"covers", block {at}', cover) for at, cover in enumerate(covers)),
        )

    def _evidence(self) -> dict[Name, int | float]:
        found: dict[Name, int | float] = {}
        for pair in self._list("evidence"):
            if not isinstance(pair, list) or len(pair) != 2:
                self._refuse('"evidence" must be a list of pairs of a variable and a value')
            name = self._name("evidence", pair[0])
            if name in found:
                self._refuse(f'"evidence" has variable {name!r} twice')
            found[name] = pair[1] if type(pair[1]) is int else self._number("evidence", pair[1])
        return found

    def _cover(self, where: str, cover: object) -> Cover:
        if not isinstance(cover, list) or len(cover) != 2 or not isinstance(cover[1], list):
            self._refuse(f"{where}: expected [exponent, [vector, ...]]")
        exponent = self._whole(where, cover[0])
        if abs(exponent) > MOST_EXPONENT:
            self._refuse(f"{where}: exponent {exponent} is out of range")
        rows = cover[1]
        width = len(rows[0]) if rows and isinstance(rows[0], list) else 0
        for row in rows:
            if not isinstance(row, list) or len(row) != width or not set(map(type, row)) <= {int, float}:
                self._refuse(f"{where}: a vector is not a list of numbers, as many as in the first")
        try:
            vectors = np.array(rows, dtype=np.float64).reshape(len(rows), width)
        except OverflowError:
            self._refuse(f"{where}: a number is out of the range of floats")
        if vectors.size and not (vectors.min() >= 0 and vectors.max() < math.inf):
            self._refuse(f"{where}: a number is negative or not finite")
        return Cover(exponent, vectors)

    def _list(self, field: str) -> list[Any]:
        value = self.data.get(field)
        if not isinstance(value, list):
            self._refuse(f'"{field}" must be a list')
        return value

    def _name(self, field: str, name: object) -> Name:
        if type(name) is not int and type(name) is not str:
            self._refuse(f'"{field}": a variable is an integer or a string')
        return name

    def _whole(self, field: str, value: object) -> int:
        if type(value) is not int or abs(value) > 1 << 62:
            self._refuse(f'"{field}" has something in it that is not a whole number within range')
        return value

    def _number(self, field: str, value: object) -> float:
        if type(value) not in (int, float):
            self._refuse(f'"{field}" must be a number')
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self._refuse(f'"{field}" must be a finite number')
        return number

    def _constant(self, token: str) -> NoReturn:
        self._refuse(f"{token} is not JSON")

    def _refuse(self, message: str) -> NoReturn:
        raise FormatError(message.replace('""', '"'), path=self.path)
