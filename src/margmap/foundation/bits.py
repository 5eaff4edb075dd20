"""Sets as the bits of 64-bit words, for kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margmap.foundation.jit import kernel

Bits = NDArray[np.uint64]


@kernel
def popcount(word: np.uint64) -> int:
    """The number of bits of ``word`` that are set."""
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int(np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56)))


@kernel(interpreted=lambda into, other: np.bitwise_or(into, other, out=into))
def unite(into: Bits, other: Bits) -> None:
    """Add the members of a set to another."""
    for w in range(into.size):
        into[w] |= other[w]


@kernel(interpreted=np.array_equal)
def same_bits(one: Bits, other: Bits) -> bool:
    """Whether two sets have the same members."""
    for w in range(one.size):  # noqa: SIM110 - numba compiles this sooner
        if one[w] != other[w]:
            return False
    return True


@kernel(interpreted=lambda one, other: bool((one & other).any()))
def overlap(one: Bits, other: Bits) -> bool:
    """Whether two sets have a member in common."""
    for w in range(one.size):  # noqa: SIM110 - numba compiles this sooner
        if one[w] & other[w]:
            return True
    return False


@kernel(interpreted=lambda words, size: hash(words.tobytes()) & (size - 1))
def slot_of(words: Bits, size: int) -> int:
    """The place of a set in a hash table of ``size`` (a power of two) slots; interpreted, it is another one."""
    h = np.uint64(0x9E3779B97F4A7C15)
    for word in words:
        h = (h ^ word) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(29)
    return int(np.int64(h & np.uint64(size - 1)))
