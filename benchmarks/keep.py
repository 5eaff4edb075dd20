"""Run a benchmark and keep what it prints: docs/benchmarks/records/NAME.txt, which pages quote.

    .venv/bin/python benchmarks/keep.py certificates -- .venv/bin/python benchmarks/certificates.py

The first lines say with which command, commit and machine it was made, and how long it took by the clock and by the
processor. A page that quotes the record says so before and after, in comments that readers do not see:

    <!-- figures of certificates --> ... <!-- end of figures -->

tests/test_figures.py looks for every number between the two in the record.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shlex
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "docs" / "benchmarks" / "records"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="the name of the record")
    parser.add_argument("command", nargs="+", help="the benchmark, after --")
    given = parser.parse_args()
    begun = time.monotonic()
    lines = []
    with subprocess.Popen(given.command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode != 0:
        sys.exit(f"it ended with exit code {process.returncode}: nothing was kept")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    about = [
        f"# {shlex.join(given.command)}",
        f"# commit {commit()}, {datetime.now(timezone.utc):%Y-%m-%d}, "
        f"Python {platform.python_version()}, {processor()}, {os.cpu_count()} cores",
        f"# {time.monotonic() - begun:.0f} s of the clock, {used.ru_utime + used.ru_stime:.0f} s of the processor",
    ]
    PLACE.mkdir(exist_ok=True)
    (PLACE / f"{given.name}.txt").write_text("\n".join([*about, *lines]) + "\n", encoding="utf-8")


def commit() -> str:
    """The commit, and whether the code has changed since; pages may have."""
    named, changed = (
        subprocess.run(["git", *asked], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        for asked in (["describe", "--always"], ["diff", "--name-only", "HEAD", "--", "src", "benchmarks", "scripts"])
    )
    return f"{named or 'unknown'}{'-dirty' if changed else ''}"


def processor() -> str:
    """The name of the processor where the system tells it, else its family."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    main()
