"""Run the tests that need the real libraries of others, each in an environment of its own.

    python scripts/interop.py                 # every library; `make interop` does this
    python scripts/interop.py pyjuice cirkit  # some of them

A library is a file ``tests/interop/requirements/NAME.txt`` and tests in ``tests/interop/test_real_NAME.py``. The file
lists the packages with their versions, as pip takes them. Two comments in it are read here:

    # environment: torch              libraries that name the same environment share one
    # without dependencies: x==1.0    packages that are installed without what they ask for

An environment is a folder of ``--folder``, made anew when the lists change. When the time of ``--minutes`` is up,
nothing new is begun; a library's tests have five minutes at least. Where a package cannot be installed, for want of a
network or of a wheel for this Python, its tests do not run, and the note at the end says so and why. The exit code is 1
if a test failed, and 0 otherwise.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests" / "interop"
#: What the tests themselves need, beside margmap.
TOOLS = ("pytest>=8", "hypothesis>=6.90")
#: Where torch has its builds without CUDA; used where it answers.
TORCH = "https://download.pytorch.org/whl/cpu"


class Library(NamedTuple):
    """A library, the environment that its tests run in, and what to install there."""

    name: str
    environment: str
    packages: tuple[str, ...]
    alone: tuple[str, ...]

    @property
    def tests(self) -> Path:
        """The file of its tests."""
        return TESTS / f"test_real_{self.name}.py"

    @property
    def versions(self) -> str:
        """The packages whose versions are fixed."""
        return ", ".join(line.replace("==", " ") for line in (*self.packages, *self.alone) if "==" in line)


class Row(NamedTuple):
    """A line of the note: what became of a library's tests."""

    name: str
    versions: str
    outcome: str
    seconds: float


def main() -> int:
    """Set up the environments, run the tests, print the note, and return 1 if a test failed."""
    known = [read(path) for path in sorted((TESTS / "requirements").glob("*.txt"))]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ", ".join(library.name for library in known)
    parser.add_argument("libraries", nargs="*", help=f"which ones (all: {names})")
    parser.add_argument("--folder", type=Path, default=ROOT / ".interop", help="where the environments are")
    parser.add_argument("--minutes", type=float, default=15.0, help="begin nothing new after so long")
    parser.add_argument("--python", default=sys.executable, help="the Python to make them with")
    options = parser.parse_args()
    for name in options.libraries:
        if name not in {library.name for library in known}:
            parser.error(f"unknown library {name!r}: known are {names}")
    chosen = [library for library in known if not options.libraries or library.name in options.libraries]
    until = time.monotonic() + 60 * options.minutes
    rows: list[Row] = []
    failed = False
    for environment in dict.fromkeys(library.environment for library in chosen):
        # All of an environment's libraries are installed, so that its folder does not depend on which were chosen.
        folder = options.folder / environment
        members = [library for library in known if library.environment == environment]
        problems = prepared(folder, members, options.python, until)
        for library in (library for library in chosen if library.environment == environment):
            problem = problems.get(library.name) or ("the time is up" if time.monotonic() > until else "")
            if problem:
                row = Row(library.name, library.versions, f"not run: {problem}", 0.0)
            else:
                row = run(folder, library, until)
            failed = failed or row.outcome.startswith("FAILED")
            rows.append(row)
    print("\nInterop with real libraries:")
    for row in rows:
        print(f"  {row.name:<14}{row.versions}: {row.outcome}, {row.seconds:.0f} s")
    return 1 if failed else 0


def read(path: Path) -> Library:
    """A list of requirements."""
    text = path.read_text(encoding="utf-8")
    environment = re.search(r"^# environment: (\S+)$", text, re.MULTILINE)
    alone = re.findall(r"^# without dependencies: (.+)$", text, re.MULTILINE)
    packages = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return Library(
        path.stem, environment[1] if environment else path.stem, tuple(packages), tuple(" ".join(alone).split())
    )


def prepared(folder: Path, libraries: Sequence[Library], python: str, until: float) -> dict[str, str]:
    """Make an environment, unless it is there with the same packages; what went wrong, by library."""
    listed = [line for library in libraries for line in (*library.packages, "--", *library.alone)]
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    wanted = hashlib.sha256("\n".join([*listed, *TOOLS, project]).encode()).hexdigest()
    ready = folder / "ready"
    if ready.exists() and ready.read_text() == wanted:
        return {}
    print(f"{folder.name}: installing {', '.join(library.versions for library in libraries)}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    index = ["--extra-index-url", TORCH] if any("torch" in line for line in listed) and _answers(TORCH) else []
    pip = [
        str(_python(folder)),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
        *index,
    ]
    steps = [[python, "-m", "venv", str(folder)], [*pip, *TOOLS, "--editable", str(ROOT)]]
    problem = next(filter(None, (_attempted(step, until) for step in steps)), None)
    if problem:
        return {library.name: problem for library in libraries}
    problems = {}
    for library in libraries:
        steps = [[*pip, *library.packages]] if library.packages else []
        steps += [[*pip, "--no-deps", *library.alone]] if library.alone else []
        problem = next(filter(None, (_attempted(step, until) for step in steps)), None)
        if problem:
            problems[library.name] = problem
    if not problems:
        ready.write_text(wanted)
    return problems


def _attempted(step: Sequence[str], until: float) -> str | None:
    """Run a step of an installation; why it failed, if it did."""
    try:
        done = subprocess.run(step, capture_output=True, text=True, timeout=max(1.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return "the time is up"
    except OSError as error:
        return str(error)
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
    return f"cannot be installed here: {(lines or ['?'])[-1].strip()[:200]}"


def run(folder: Path, library: Library, until: float) -> Row:
    """Run a library's tests in its environment."""
    begun = time.monotonic()
    print(f"\n{library.name}: {library.versions}", flush=True)
    # Warnings are errors in our tests; other libraries have their own, also while their files are compiled.
    options = ("-p", "no:cacheprovider", "-W", "ignore", "-rs")
    command = [str(_python(folder)), "-m", "pytest", *options, str(library.tests)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MARGMAP_INTEROP": library.name}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=max(300.0, until - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        return Row(library.name, library.versions, "FAILED: the time is up", time.monotonic() - begun)
    print(done.stdout, end="", flush=True)
    last = next(
        (line for line in reversed(done.stdout.splitlines()) if re.search(r"\d+ (passed|failed|skip)", line)), ""
    )
    counts = ", ".join(re.findall(r"\d+ (?:passed|failed|skipped|errors?)", last)) or "no tests"
    outcome = counts if done.returncode in (0, 5) else f"FAILED: {counts}"
    return Row(library.name, library.versions, outcome, time.monotonic() - begun)


def _python(folder: Path) -> Path:
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/", timeout=5):
            return True
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
