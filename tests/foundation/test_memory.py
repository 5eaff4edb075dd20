"""Memory: what a process has, and what it gives back."""

import sys
from mmap import ACCESS_READ, mmap

import numpy as np
import pytest

from margmap.foundation.memory import let_go, on_own_pages, resident


def test_a_mapped_array_is_given_back_and_still_there(tmp_path):
    numbers = np.arange(4_000_000, dtype=np.float64)
    (tmp_path / "numbers").write_bytes(b"some bytes before " * 4 + numbers.tobytes())
    with open(tmp_path / "numbers", "rb") as file:
        data = mmap(file.fileno(), 0, access=ACCESS_READ)
    mapped = np.frombuffer(memoryview(data), np.float64, numbers.size, 72)[1:]
    assert mapped.sum() == numbers.sum()
    before = resident()
    let_go(mapped)
    if sys.platform == "linux":
        assert before - resident() > 0.9 * mapped.nbytes
    assert np.array_equal(mapped, numbers[1:])


@pytest.mark.parametrize("array", [np.ones(100_000), np.frombuffer(bytes(80_000)), np.ones(0)])
def test_other_arrays_stay(array):
    before = array.copy()
    let_go(array)
    assert np.array_equal(array, before)


def test_large_pages_are_whole():
    """Linux has small ones at both ends of a mapping that is not as long as some large ones."""
    if not hasattr(mmap, "madvise"):
        pytest.skip("arrays lie on pages of their own only where the system can be told about them")
    for number in (300_000, 262_144, 1_000_000):
        large, small = (on_own_pages(number, np.float64, large=large) for large in (True, False))
        assert len(large.base.obj) == -(-large.nbytes // (1 << 21)) * (1 << 21)
        assert len(small.base.obj) == small.nbytes
        assert large.size == small.size == number


def test_an_array_on_pages_of_its_own_is_given_back():
    before, small = resident(), on_own_pages(10, np.int32)
    assert (small.size, small.dtype) == (10, np.int32)
    arrays = [on_own_pages(1_000_000, np.float64) for _ in range(4)]
    for array in arrays:
        array[:] = np.arange(array.size)
    assert all(array.flags.writeable and array[-1] == 999_999 for array in arrays)
    if sys.platform == "linux":
        assert resident() - before > 24_000_000
        del array, arrays
        assert resident() - before < 8_000_000
