"""Questions that need marginal MAP, on models that come with the package: no files, no network.

*Digits* is what ``margmap demo`` shows: handwritten digits of which the upper half is seen. The model, learned by
``scripts/make_digits_model.py`` with :mod:`margmap.learn`, knows 64 pixels. Asked is the most likely ink in the middle
of the lower half, whatever the pixels on both sides of it are; the most likely *complete* lower half (MPE), cut down to
the middle, is another answer where many lower halves share a middle.

*Clinic*, made by ``scripts/make_demo_model.py``, describes a patient in twelve variables. Mild colds look much the same
in everybody, flu does not; so the most probable complete description of an old patient in winter is one of a mild cold,
while the most probable *illness and course*, with everything else summed out, is severe flu.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from margmap.circuit import Circuit, Name, Value
from margmap.errors import FormatError
from margmap.inference.queries import log_conditional
from margmap.io.files import write_bytes
from margmap.io.formats import BUNDLED, load_circuit
from margmap.solve.marginal_map import marginal_map, mpe
from margmap.solve.result import Result

MODEL = "clinic.json"
QUERY: tuple[Name, ...] = ("illness", "course")
EVIDENCE: dict[Name, Value] = {"season": "winter", "age": "senior"}

DIGITS_MODEL = "digits.psdd.gz"
DIGITS = "digits.txt"
#: Pixels in a row, and rows in a digit.
SIDE = 8
#: What is asked for: these columns of the lower half.
MIDDLE = range(2, 6)

_BLANK, _INK, _ASKED, _ASIDE = range(4)
# Of a pixel of each kind: its characters on a terminal, and its shade in the picture.
_TEXT = ("..", "##", "??", "  ")
_SHADE = (235, 20, 150, 255)
_SCALE, _GAP = 12, 12


def load_model() -> Circuit:
    """The clinic: twelve variables with named states."""
    return load_circuit(BUNDLED["clinic"])


def load_digits() -> Circuit:
    """The digits: 64 pixels, variable 1 the one on the upper left, 8 in a row."""
    return load_circuit(BUNDLED["digits"])


class Digit(NamedTuple):
    """A digit that the learner has not seen: what was meant, and its 64 pixels."""

    label: int
    pixels: tuple[int, ...]


def held_out() -> list[Digit]:
    """Some digits for which the two answers differ."""
    lines = (files("margmap") / "models" / DIGITS).read_text(encoding="ascii").split("\n")
    return [Digit(int(line[0]), tuple(map(int, line[2:]))) for line in lines if line]


def digit_query() -> list[Name]:
    """The variables asked for: the middle of the lower half."""
    return [SIDE * row + column + 1 for row in range(SIDE // 2, SIDE) for column in MIDDLE]


def digit_evidence(pixels: Sequence[int]) -> dict[Name, Value]:
    """The upper half of a digit."""
    return {i + 1: int(pixels[i]) for i in range(SIDE * SIDE // 2)}


@dataclass(frozen=True)
class Comparison:
    """The right answer to a question beside the one that a detour over MPE gives."""

    query: tuple[Name, ...]
    evidence: dict[Name, Value]
    marginal_map: Result
    mpe: Result
    #: The MPE state's values of the query variables.
    projected: dict[Name, int | str]
    #: log p(projected | evidence), at most that of the marginal MAP state.
    log_projected: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings for ``margmap demo --json``."""
        return {
            "query": list(self.query),
            "evidence": {str(name): value for name, value in self.evidence.items()},
            "marginal_map": self.marginal_map.to_dict(),
            "mpe": self.mpe.to_dict(),
            "projected_mpe": {
                "state": {str(name): value for name, value in self.projected.items()},
                "log_conditional": self.log_projected,
            },
        }


def compare(
    circuit: Circuit, query: Sequence[Name] = QUERY, evidence: Mapping[Name, Value] | None = None
) -> Comparison:
    """Answer a question both ways, by default that on the clinic: exact marginal MAP, and MPE cut down to the query."""
    known = dict(EVIDENCE if evidence is None else evidence)
    best = marginal_map(circuit, query, known)
    complete = mpe(circuit, known)
    if best.state is None or complete.state is None:  # without limits only Ctrl-C does that
        raise KeyboardInterrupt
    projected = {name: complete.state[name] for name in best.state}
    return Comparison(tuple(query), known, best, complete, projected, log_conditional(circuit, projected, known))


def complete_digit(circuit: Circuit, digit: Digit) -> Comparison:
    """Answer the question on a digit."""
    return compare(circuit, digit_query(), digit_evidence(digit.pixels))


#: What is above each of the :func:`panels`.
TITLES = ("seen", "marginal MAP", "MPE", "in truth")


def panels(digit: Digit, found: Comparison) -> list[list[int]]:
    """Four small pictures of 64 kinds of pixels: what is seen, the two answers, and the digit as it was written."""
    asked = {int(name) - 1 for name in found.query}
    half = SIDE * SIDE // 2
    upper = list(digit.pixels[:half])

    def lower(values: Mapping[Name, int | str] | None) -> list[int]:
        return [
            (_ASKED if values is None else int(values[i + 1])) if i in asked else _ASIDE
            for i in range(half, SIDE * SIDE)
        ]

    answers = [upper + lower(values) for values in (None, found.marginal_map.state, found.projected)]
    return [*answers, list(digit.pixels)]


def text(pictures: Sequence[Sequence[int]]) -> list[str]:
    """Pictures beside each other, for a terminal."""
    lines = ["   ".join(f"{title:<{2 * SIDE}}" for title in TITLES).rstrip()]
    for row in range(SIDE):
        parts = ["".join(_TEXT[p] for p in picture[SIDE * row : SIDE * row + SIDE]) for picture in pictures]
        lines.append("   ".join(parts).rstrip())
    return lines


def write_picture(rows: Sequence[Sequence[Sequence[int]]], path: str | PathLike[str]) -> None:
    """Rows of pictures as a PNG file, in shades of grey."""
    place = Path(path)
    if place.suffix.lower() != ".png":
        raise FormatError("the picture is a PNG file: let its name end in .png", path=place)
    step = SIDE * _SCALE + _GAP
    width, height = max(map(len, rows)) * step + _GAP, len(rows) * step + _GAP
    image = np.full((height, 1 + width), 255, dtype=np.uint8)
    image[:, 0] = 0  # each line of a PNG begins with its filter: none
    for i, pictures in enumerate(rows):
        for j, picture in enumerate(pictures):
            shades = np.array([_SHADE[kind] for kind in picture], dtype=np.uint8).reshape(SIDE, SIDE)
            tile = shades.repeat(_SCALE, axis=0).repeat(_SCALE, axis=1)
            top, left = i * step + _GAP, 1 + j * step + _GAP
            image[top : top + len(tile), left : left + len(tile)] = tile
    data = zlib.compress(image.tobytes(), 9)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")
    write_bytes(place, png)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
