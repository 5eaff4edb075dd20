"""Branch coverage of the package, with kernels interpreted so that coverage can see into them.

    .venv/bin/python scripts/measure_coverage.py                # `make coverage` does this
    .venv/bin/python scripts/measure_coverage.py tests/io       # some of the tests

Interpreted kernels are slow, so the tests that need compiled speed are left out by their marks; the figure is a floor.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The share of lines and branches below which this script fails.
FLOOR = 92


def main() -> None:
    """Run the tests under coverage in this process's Python and print the table by room."""
    asked = sys.argv[1:] or ["tests"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "MARGMAP_BACKGROUND": "0"}
    command = [
        sys.executable,
        "-m",
        "coverage",
        "run",
        "--branch",
        "--parallel-mode",
        "--source=margmap",
        "-m",
        "pytest",
    ]
    tests = subprocess.run([*command, "-q", "-n", "0", *asked], cwd=ROOT, env=environment)
    subprocess.run([sys.executable, "-m", "coverage", "combine", "--quiet"], cwd=ROOT, check=True)
    table = [sys.executable, "-m", "coverage", "report", "--skip-covered", f"--fail-under={FLOOR}"]
    report = subprocess.run(table, cwd=ROOT)
    sys.exit(tests.returncode or report.returncode)


if __name__ == "__main__":
    main()
