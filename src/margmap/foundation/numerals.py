"""Numbers in text, with ASCII digits only: the one way in which what a user or a file wrote becomes a number.

``int()`` and ``float()`` alone would also take ``4_9`` for 49 and the digits of other scripts. Readers of large files
ask :func:`is_plain` once for each line and convert its words with ``int()`` and ``float()`` themselves.
"""

from __future__ import annotations


def is_plain(text: str) -> bool:
    """Whether ``int()`` and ``float()`` take nothing in this text that is not written as numbers are."""
    return text.isascii() and "_" not in text


def whole_of(text: str) -> int:
    """The integer that a text is; a ValueError if it is none."""
    if not is_plain(text):
        raise ValueError(f"invalid literal for int() with base 10: {text!r}")
    return int(text)


def real_of(text: str) -> float:
    """The number that a text is, which may be ``inf`` or ``nan``; a ValueError if it is none."""
    if not is_plain(text):
        raise ValueError(f"could not convert string to float: {text!r}")
    return float(text)


def number_of(text: str) -> int | float | None:
    """The number that a text is, an integer where it is written as one; None if it is none."""
    for read in (whole_of, real_of):
        try:
            return read(text)
        except ValueError:
            pass
    return None
