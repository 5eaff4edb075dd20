"""Two small things that flat arrays need everywhere: where the slices of a CSR array start, and the bits of a word."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margmap.foundation.jit import kernel


def starts(sizes: ArrayLike) -> NDArray[np.int64]:
    """Where slices of these sizes begin when they lie one after the other, and where the last one ends."""
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)))


@kernel
def popcount(word: np.uint64) -> int:
    """The number of bits of ``word`` that are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int(np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56)))
