"""How many cores there are to use. Nothing here imports numpy: new processes ask before they limit their threads."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """How many threads or processes can run at once: the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
