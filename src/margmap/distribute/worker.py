"""What a worker process is, set up when this is imported, which must be before numpy is: one thread, no Ctrl-C.

Only worker processes, and the process they are forked from, import this.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from typing import Any

#: What this and other libraries look at before they start threads of their own.
_THREADS = ("MARGMAP_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

for _name in _THREADS:
    os.environ.setdefault(_name, "1")


def begin() -> None:
    """The first thing that a worker does."""
    if hasattr(signal, "pthread_sigmask"):  # blocked, not ignored: solvers set a handler of their own
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    else:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    """A parent that is killed cannot tell its workers to stop."""
    parent.join()
    os._exit(1)
