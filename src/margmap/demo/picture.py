"""Half-hidden digits and their completions as text for a terminal and as a labelled PNG, without other packages.

A PNG file is a few chunks around lines of grey values that zlib has packed (ISO/IEC 15948). Letters come from
:mod:`margmap.demo.letters`.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Name
from margmap.demo import SIDE, Comparison, Digit
from margmap.demo.letters import HEIGHT, drawn
from margmap.errors import FormatError
from margmap.io.files import write_bytes

#: What is above each of the :func:`panels`.
TITLES = ("seen", "marginal MAP", "MPE", "in truth")

_BLANK, _INK, _ASKED, _ASIDE = range(4)
# Of a pixel of each kind: its characters on a terminal, and its shade in the picture.
_TEXT = ("..", "##", "??", "  ")
_SHADE = (235, 20, 150, 255)
_LEGEND = ("blank", "ink", "asked for", "summed out")

#: Measures of the picture in its own pixels: a pixel of a digit, the space between digits, and a letter's dot.
SCALE, GAP, DOT = 14, 40, 2
_TILE = SIDE * SCALE
#: Where the first digit begins, from above and from the left.
TOP, LEFT = GAP + 3 * HEIGHT * DOT, GAP
STEP_DOWN, STEP_RIGHT = _TILE + HEIGHT * DOT + GAP // 2, _TILE + GAP


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


def write_demo(shown: Sequence[Digit], found: Sequence[Comparison], path: str | PathLike[str]) -> None:
    """The picture of ``margmap demo``: each digit with both answers, and how likely they are given the upper half."""
    rows = [panels(digit, answer) for digit, answer in zip(shown, found, strict=True)]
    write_picture(rows, path, [["", *map(percent, likely(answer))] for answer in found])


def likely(found: Comparison) -> tuple[float, float]:
    """The logarithms of the probabilities of both answers, given the evidence."""
    return found.marginal_map.log_conditional, found.log_projected


def percent(log_probability: float) -> str:
    """A probability as text."""
    return f"{100 * math.exp(log_probability):.1f} %"


def write_picture(
    rows: Sequence[Sequence[Sequence[int]]], path: str | PathLike[str], below: Sequence[Sequence[str]] = ()
) -> None:
    """Rows of pictures as a PNG file in shades of grey: a title above each column, a legend, texts below pictures."""
    place = Path(path)
    if place.suffix.lower() != ".png":
        raise FormatError("the picture is a PNG file: let its name end in .png", path=place)
    width = LEFT + len(TITLES) * STEP_RIGHT
    height = TOP + len(rows) * STEP_DOWN + 2 * HEIGHT * DOT
    image = np.full((height, width), 255, dtype=np.uint8)
    _write(image, GAP // 2, LEFT, "The middle of the lower half, given the upper half")
    for j, title in enumerate(TITLES):
        _write(image, TOP - HEIGHT * DOT - 6, LEFT + j * STEP_RIGHT, title)
    for i, pictures in enumerate(rows):
        for j, picture in enumerate(pictures):
            _tile(image, TOP + i * STEP_DOWN, LEFT + j * STEP_RIGHT, picture)
        for j, line in enumerate(below[i] if i < len(below) else ()):
            _write(image, TOP + i * STEP_DOWN + _TILE + 6, LEFT + j * STEP_RIGHT, line)
    _legend(image, TOP + len(rows) * STEP_DOWN)
    write_bytes(place, png(image))


def png(image: NDArray[np.uint8]) -> bytes:
    """An image in shades of grey as the bytes of a PNG file."""
    height, width = image.shape
    lines = np.zeros((height, 1 + width), dtype=np.uint8)  # each line begins with its filter: none
    lines[:, 1:] = image
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _tile(image: NDArray[np.uint8], top: int, left: int, picture: Sequence[int]) -> None:
    shades = np.array([_SHADE[kind] for kind in picture], dtype=np.uint8).reshape(SIDE, SIDE)
    image[top - 1 : top + _TILE + 1, left - 1 : left + _TILE + 1] = 190  # a thin frame
    image[top : top + _TILE, left : left + _TILE] = shades.repeat(SCALE, axis=0).repeat(SCALE, axis=1)


def _legend(image: NDArray[np.uint8], top: int) -> None:
    left = LEFT
    for shade, name in zip(_SHADE, _LEGEND, strict=True):
        image[top - 1 : top + SCALE + 1, left - 1 : left + SCALE + 1] = 130
        image[top : top + SCALE, left : left + SCALE] = shade
        _write(image, top, left + SCALE + 8, name)
        left += SCALE + 8 + drawn(name).shape[1] * DOT + GAP // 2


def _write(image: NDArray[np.uint8], top: int, left: int, line: str) -> None:
    dots = drawn(line).repeat(DOT, axis=0).repeat(DOT, axis=1)
    area = image[top : top + dots.shape[0], left : left + dots.shape[1]]
    area[dots[: area.shape[0], : area.shape[1]]] = 40


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
