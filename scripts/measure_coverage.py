"""Branch coverage of the package without its kernels, and the record of it.

    .venv/bin/python scripts/measure_coverage.py                      # `make coverage` does this
    .venv/bin/python scripts/measure_coverage.py --jobs 1             # one process
    .venv/bin/python scripts/measure_coverage.py tests/io tests/cli   # some of the tests: the table, no record
    .venv/bin/python scripts/measure_coverage.py --into F tests/io    # add to what is in the folder F; the rest later,
    .venv/bin/python scripts/measure_coverage.py --whole F            # until F has the whole suite: table and record

Kernels run as machine code, into which coverage cannot see, so ``[tool.coverage.report]`` of pyproject.toml leaves
functions with ``@kernel`` out. What the commands and workers do that tests start as processes of their own counts.
A run of the whole suite writes ``docs/coverage.json``, which docs/reliability.md quotes and the README shows, and fails
below the floor.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "coverage.json"
PAGE = ROOT / "docs" / "reliability.md"
README = ROOT / "README.md"
PLATE = ROOT / "docs" / "assets" / "coverage.svg"
#: The share of lines and branches, in percent, below which this script fails.
FLOOR = 92.0
#: Where the page has the figure.
QUOTED = re.compile(r"(Lines and branches of `src` without kernels: \*\*)([^*]+)(\*\*)")
#: Where the README has it: what a reader sees in place of the picture.
SHOWN = re.compile(r"(!\[coverage: )([^]]+)(\])")
#: What coverage counts in a file, by the names in its JSON report.
COUNTS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def main() -> None:
    """Run the tests under coverage in this process's Python, print what is missed, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="processes that run tests (default 2)")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="keep the data in this folder, with what is there")
    parser.add_argument("--whole", type=Path, metavar="FOLDER", help="run nothing: this folder has the whole suite")
    parser.add_argument("tests", nargs="*", help="files, folders or options of pytest (default: the whole suite)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="margmap-coverage-") as name:
        folder = (options.whole or options.into or Path(name)).resolve()
        folder.mkdir(exist_ok=True)
        failed = 0 if options.whole else run_tests(folder, options.tests, options.jobs)
        report = read_report(folder)
    by_room = rooms(report["files"])
    for room, share in by_room.items():
        print(f"{room:16} {share:5.1f} %")
    percent = share_of([report["totals"]])
    print(f"lines and branches without kernels: {percent:.1f} %, floor {FLOOR:.0f} %")
    if failed or options.tests or options.into:
        sys.exit(failed)
    keep({"percent": percent, "python": platform.python_version(), "rooms": by_room})
    sys.exit(percent < FLOOR)


def run_tests(folder: Path, tests: list[str], jobs: int) -> int:
    """The exit code of pytest; what it and its children went through is in ``folder``."""
    command = ["-m", "coverage", "run", f"--rcfile={ROOT / 'pyproject.toml'}", "-m", "pytest", "-n", str(jobs), *tests]
    return coverage(folder, command).returncode


def read_report(folder: Path) -> dict[str, dict[str, dict[str, dict[str, int]]]]:
    """The counts of all processes together, by file; the table of what is missed is printed on the way."""
    if any(folder.glob("data.*")):
        coverage(folder, ["-m", "coverage", "combine", "--quiet", "--append"]).check_returncode()
    coverage(folder, ["-m", "coverage", "report", "--show-missing", "--skip-covered", "--sort=cover"])
    coverage(folder, ["-m", "coverage", "json", "--quiet", "-o", str(folder / "report.json")]).check_returncode()
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def coverage(folder: Path, command: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run Python with this command where its data go to ``folder``."""
    environment = {**os.environ, "MARGMAP_BACKGROUND": "0", "COVERAGE_FILE": str(folder / "data")}
    return subprocess.run([sys.executable, *command], cwd=ROOT, env=environment)


def rooms(files: dict[str, dict[str, dict[str, int]]]) -> dict[str, float]:
    """The share of each folder of the package, in percent; files beside the folders stand for themselves together."""
    parts = defaultdict(list)
    for path, counted in files.items():
        inner = Path(path).parts[Path(path).parts.index("margmap") + 1 :]
        parts[inner[0] if len(inner) > 1 else "(top)"].append(counted["summary"])
    return {room: share_of(counts) for room, counts in sorted(parts.items())}


def share_of(counts: list[dict[str, int]]) -> float:
    """Lines and branches gone through, of all of them, in percent and rounded down to one digit."""
    lines, statements, taken, branches = (sum(count[name] for count in counts) for name in COUNTS)
    return (1000 * (lines + taken) // max(statements + branches, 1)) / 10


def quoted() -> str:
    """The figure that the page has now."""
    found = QUOTED.search(PAGE.read_text(encoding="utf-8"))
    assert found, f"{PAGE} does not say {QUOTED.pattern}"
    return found[2]


def keep(record: dict[str, object]) -> None:
    """Write the record, and the figure into the page that quotes it and the README that shows it."""
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    figure = f"{record['percent']} %"
    for path, place in ((PAGE, QUOTED), (README, SHOWN)):
        path.write_text(place.sub(rf"\g<1>{figure}\g<3>", path.read_text(encoding="utf-8")), encoding="utf-8")
    PLATE.write_text(plate("coverage", figure), encoding="utf-8")


def plate(label: str, value: str) -> str:
    """A small picture with a word on grey and a figure on green, or on light grey if it is none."""
    colour = "#287a33" if value[0].isdigit() else "#777"
    left, right = 7 * len(label) + 10, 7 * len(value) + 10
    text = 'y="14" fill="#fff" text-anchor="middle" font-family="Verdana,sans-serif" font-size="11"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img">'
        f"<title>{label}: {value}</title>"
        f'<rect width="{left}" height="20" fill="#555"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>'
        f'<text x="{left / 2}" {text}>{label}</text><text x="{left + right / 2}" {text}>{value}</text></svg>\n'
    )


if __name__ == "__main__":
    main()
