"""How much memory a process has, and how much the machine has."""

from __future__ import annotations

import os
import sys
from functools import cache


def resident(pid: int | None = None) -> int:
    """Bytes of memory that a process has now, by default this one.

    Where the system does not tell, it is the most that this process ever had, and 0 for another one.
    """
    try:
        with open(f"/proc/{pid or 'self'}/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return peak_memory() or 0 if pid is None else 0


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
