"""What a process has of the machine: memory, and time of the processor; and how much memory there is."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache
from mmap import PAGESIZE, mmap
from typing import TYPE_CHECKING, Any

# Smaller arrays are not worth pages of their own, in bytes.
_LEAST_OWN = 1 << 20

# A large page. Linux has small ones at both ends of a mapping unless its length is a multiple of this.
_LARGE_PAGE = 1 << 21

if TYPE_CHECKING:
    from numpy.typing import NDArray


def resident(pid: int | None = None) -> int:
    """Bytes of memory that a process has now, by default this one.

    Where the system does not tell, it is the most that this process ever had, and 0 for another one.
    """
    try:
        with open(f"/proc/{pid or 'self'}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return peak_memory() or 0 if pid is None else 0


def computed(pid: int) -> float:
    """Seconds that a process and its threads have computed so far; 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before may have any characters
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def peak_memory() -> int | None:
    """The most bytes of memory that this process ever had; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@cache
def physical_memory() -> float:
    """Bytes of memory that the machine has; no end where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return float("inf")


def on_own_pages(size: int, dtype: Any, *, large: bool = True) -> NDArray[Any]:
    """An array, of anything at first, whose memory goes back to the system with it.

    The allocator keeps what is freed of arrays up to some 32 MB, for each thread apart, so that a process may come to
    have several times what it needs. ``large`` pages make up for taking new ones from the system each time; an array
    that is written to in few places takes less in small ones.
    """
    import numpy as np

    number = size * np.dtype(dtype).itemsize
    if number < _LEAST_OWN or not hasattr(mmap, "madvise"):
        return np.empty(size, dtype=dtype)
    from mmap import MAP_ANONYMOUS, MAP_PRIVATE

    pages = mmap(-1, -(-number // _LARGE_PAGE) * _LARGE_PAGE if large else number, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    whole = (number + _LARGE_PAGE // 2) // _LARGE_PAGE * _LARGE_PAGE  # the last one only if half of it is needed
    if large and whole > 0:
        with suppress(ImportError, OSError):
            from mmap import MADV_HUGEPAGE

            pages.madvise(MADV_HUGEPAGE, 0, whole)
    return np.frombuffer(pages, dtype=dtype, count=size)


def let_go(array: NDArray[Any]) -> None:
    """Give the memory back that an array takes if it lies in a mapped file; what is read again is loaded again."""
    import numpy as np

    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    owner = base.obj if isinstance(base, memoryview) else base
    if not isinstance(owner, mmap) or not hasattr(owner, "madvise"):
        return
    from mmap import MADV_DONTNEED

    first = array.ctypes.data - np.frombuffer(owner, dtype=np.uint8).ctypes.data
    begin, end = -(-first // PAGESIZE) * PAGESIZE, (first + array.nbytes) // PAGESIZE * PAGESIZE
    if end > begin:
        owner.madvise(MADV_DONTNEED, begin, end - begin)
