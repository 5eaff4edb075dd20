"""How much memory this process has, and how much the machine has."""

from __future__ import annotations

import os
import sys
from functools import cache


def resident() -> int:
    """Bytes of memory that this process has now; where the system does not tell, the most it ever had."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        try:
            import resource
        except ImportError:  # Windows: only what is predicted is held against the limit
            return 0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@cache
def physical_memory() -> float:
    """Bytes of memory that the machine has; no end where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return float("inf")
