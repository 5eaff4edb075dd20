"""Runs toulbar2, started by :mod:`margmap.network.wcsp` as a process of its own so that it can be killed.

Usage: ``python wcsp_child.py FILE.wcsp BYTES``. It prints what toulbar2 says while it solves (every new solution with
its values, every new bound), and ``DONE`` at the end of a complete search. It imports nothing of margmap.
"""

from __future__ import annotations

import contextlib
import sys


def main(path: str, room: int) -> None:
    """Solve the problem of a file with at most ``room`` bytes more than now; 0 for as many as there are."""
    with contextlib.suppress(Exception):  # Linux: end with the process that started this one
        import ctypes
        import signal

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    import pytoulbar2

    if room > 0:
        import resource

        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[0])
        most = pages * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    problem = pytoulbar2.CFN(verbose=0)
    with contextlib.suppress(problem.Contradiction):  # no state costs less than the one to beat
        problem.Read(path)
        problem.Solve(showSolutions=1)
    sys.stdout.flush()
    print("\nDONE", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
