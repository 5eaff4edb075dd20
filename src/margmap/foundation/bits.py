"""Sets as the bits of 64-bit words, for kernels."""

from __future__ import annotations

import numpy as np

from margmap.foundation.jit import kernel


@kernel
def popcount(word: np.uint64) -> int:
    """The number of bits of ``word`` that are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int(np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56)))
