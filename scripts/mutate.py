"""Do the tests see a broken bound? Break the lines on which soundness rests, one at a time, and run the tests.

    python scripts/mutate.py                 # all of them, about half an hour on one core; a Markdown table
    python scripts/mutate.py --only sweep    # those whose file, text or reason has "sweep" in it
    python scripts/mutate.py --check         # only: does every line of the list still stand in the sources?

The list is in ``mutations.py`` beside this file. Each break is made in a copy of ``src``, and the tests named for it
run with that copy. It is *seen* if a test fails; one that no test sees makes the exit code 1. Before that the same
tests run on the copy as it is, where all must pass. A test that does not end is stopped, and that does not count as
seen. The copies and their compiled kernels stay in the folder for temporary files, so that the next run compiles only
what has changed since: machine code is kept under what a kernel and all that it calls do (``foundation.jit``), and what
is compiled from a broken copy goes into a cache that only its own tests use. With ``MARGMAP_TIER=interpret`` nothing is
compiled, which is faster for breaks of large kernels that small tests see.
"""

from __future__ import annotations

import argparse
import functools
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parent.parent

#: Seconds that the tests of one break, and all tests together on the sources as they are, may take.
SECONDS, SECONDS_UNBROKEN = 300, 3600

# A break that is no program at all fails every test; that says nothing about the tests.
NO_PROGRAM = ("SyntaxError", "IndentationError", "NameError", "UnboundLocalError", "TypingError", "LoweringError")


class Outcome(NamedTuple):
    """What the tests said to a break."""

    mutation: Mutation
    seen: bool
    #: The test that failed, or why it does not count.
    by: str
    seconds: float


def broken(text: str, mutation: Mutation) -> str:
    """The text of a file with one break in it; a ValueError if the place is not there, or not the only one."""
    begin, end = 0, len(text)
    if mutation.after:
        if text.count(mutation.after) != 1:
            raise ValueError(f"{mutation.after!r} occurs {text.count(mutation.after)} times, not once")
        begin = text.index(mutation.after)
        following = re.compile(r"^ *(?:def |class |@)", re.MULTILINE).search(text, begin + len(mutation.after))
        end = following.start() if following else end
    part = text[begin:end]
    if part.count(mutation.old) != 1:
        raise ValueError(f"{mutation.old!r} occurs {part.count(mutation.old)} times, not once")
    if mutation.new == mutation.old:
        raise ValueError(f"{mutation.old!r} is not broken")
    return text[:begin] + part.replace(mutation.old, mutation.new) + text[end:]


def check(mutations: Iterable[Mutation], root: Path = ROOT) -> list[str]:
    """What is wrong with the list: texts that are not in the sources any more, tests that there are not."""
    complaints = []
    for mutation in mutations:
        where = f"{mutation.file}: {mutation.why}"
        try:
            broken((root / "src" / "margmap" / mutation.file).read_text(), mutation)
        except (OSError, ValueError) as error:
            complaints.append(f"{where}: {error}")
        if not mutation.tests:
            complaints.append(f"{where}: no test is named")
        for test in mutation.tests:
            path, *names = re.sub(r"\[.*", "", test).split("::")
            file = root / path
            text = file.read_text() if file.is_file() else ""
            if not names or not all(re.search(rf"^ *(?:def|class) {name}\b", text, re.MULTILINE) for name in names):
                complaints.append(f"{where}: there is no test {test}")
    return complaints


class Slot:
    """A copy of the sources, and the kernels that were compiled from it before it was broken."""

    def __init__(self, root: Path, home: Path, limit: float | None = None) -> None:
        self.seconds = SECONDS if limit is None else limit
        self.root, self.home, self.source = root, home, home / "src"
        self.kept, self.cache = home / "kernels", home / "kernels_of_this_run"
        shutil.rmtree(self.source, ignore_errors=True)
        shutil.copytree(root / "src", self.source, ignore=shutil.ignore_patterns("__pycache__"))
        self.kept.mkdir(exist_ok=True)
        self._begin_with_kernels()

    def _begin_with_kernels(self) -> None:
        """Copy the machine code that the sources have beside them to where numba looks for that of the copy."""
        for index in (self.root / "src").rglob("__pycache__/*.nbi"):
            folder = self.source / index.parent.parent.relative_to(self.root / "src")
            place = self.kept / f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"
            known = place / index.name
            if not known.exists() or known.stat().st_mtime < index.stat().st_mtime:
                place.mkdir(exist_ok=True)
                for file in index.parent.glob(f"{glob.escape(index.stem)}*.nb?"):
                    shutil.copy2(file, place)

    def run(self, tests: Sequence[str], cache: Path, seconds: float, *options: str) -> tuple[int, str]:
        """The exit code of pytest (-1 if it took too long) and what it printed."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(self.source), os.environ.get("PYTHONPATH", "")]),
            "NUMBA_CACHE_DIR": str(cache),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MARGMAP_TIER": os.environ.get("MARGMAP_TIER", "compile"),
            "MARGMAP_THOROUGH": os.environ.get("MARGMAP_THOROUGH", "3"),  # some breaks are seen by one case in hundreds
            "CI": "1",  # hypothesis always tries the same examples
        }
        fixed = ["-q", "-rfE", "--tb=short", "-p", "no:cacheprovider", "-o", "addopts=", "-W", "error"]
        command = [sys.executable, "-m", "pytest", *fixed, *options, *tests]
        try:
            ended = subprocess.run(
                command, cwd=self.root, env=environment, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return -1, ""
        return ended.returncode, ended.stdout + ended.stderr

    def unbroken(self, tests: Sequence[str]) -> str:
        """What fails on the copy as it is; kernels compiled meanwhile are kept."""
        code, printed = self.run(tests, self.kept, SECONDS_UNBROKEN)
        return "" if code == 0 else printed[-4000:] or "the tests take too long"

    def outcome(self, mutation: Mutation) -> Outcome:
        """Break one line, run its tests, mend it."""
        path = self.source / "margmap" / mutation.file
        whole = path.read_text()
        shutil.rmtree(self.cache, ignore_errors=True)
        # Links, not copies: numba replaces the files that it writes.
        shutil.copytree(self.kept, self.cache, copy_function=os.link)
        begun = time.perf_counter()
        try:
            path.write_text(broken(whole, mutation))
            code, printed = self.run(mutation.tests, self.cache, self.seconds, "-x")
        finally:
            path.write_text(whole)
        seconds = time.perf_counter() - begun
        failed = re.search(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", printed, re.MULTILINE)
        if code == 1 and failed and not any(re.search(rf"\b{word}\b", printed) for word in NO_PROGRAM):
            return Outcome(mutation, True, failed.group(1), seconds)
        if code == 0:
            return Outcome(mutation, False, "nothing", seconds)
        if code == -1:
            return Outcome(mutation, False, f"nothing: the tests do not end within {self.seconds:g} s", seconds)
        return Outcome(mutation, False, f"nothing: this is no program\n{printed[-3000:]}", seconds)


def run(
    mutations: Sequence[Mutation], jobs: int, say: Callable[[str], None], root: Path = ROOT, limit: float | None = None
) -> list[Outcome]:
    """Break every line; a RuntimeError if the tests fail on the sources as they are."""
    home = Path(tempfile.gettempdir()) / f"margmap-mutate-{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
    size = -(-len(mutations) // max(1, jobs))
    shares = [mutations[i : i + size] for i in range(0, len(mutations), size)]

    def work(number: int) -> list[Outcome]:
        place = home / str(number)
        place.mkdir(parents=True, exist_ok=True)
        slot = Slot(root, place, limit)
        tests = list(dict.fromkeys(test for mutation in shares[number] for test in mutation.tests))
        begun = time.perf_counter()
        if complaint := slot.unbroken(tests):
            raise RuntimeError(f"the tests fail before anything is broken:\n{complaint}")
        say(f"{len(tests)} tests pass unbroken, {time.perf_counter() - begun:.0f} s")
        found = []
        for mutation in shares[number]:
            found.append(slot.outcome(mutation))
            _, seen, by, seconds = found[-1]
            say(f"{'seen' if seen else 'NOT SEEN'}, {seconds:.0f} s: {mutation.file}: {mutation.why}: {by}")
        return found

    with ThreadPoolExecutor(max(1, len(shares))) as pool:
        return [outcome for found in pool.map(work, range(len(shares))) for outcome in found]


def table(outcomes: Iterable[Outcome]) -> str:
    """The outcomes as Markdown."""
    lines = ["| file | what was broken | seen by |", "|---|---|---|"]
    for mutation, seen, by, _ in outcomes:
        said = f"`{by.removeprefix('tests/')}`" if seen else f"**{by.splitlines()[0]}**"
        lines.append(f"| `{mutation.file}` | {mutation.why} | {said} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", metavar="PATTERN", help="a regular expression: only what it matches")
    parser.add_argument("--jobs", type=int, default=1, help="how many breaks at once")
    parser.add_argument("--seconds", type=float, help="how long the tests of one break may take")
    parser.add_argument("--list", action="store_true", help="list the breaks and do nothing")
    parser.add_argument("--check", action="store_true", help="only see whether the list still fits the sources")
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTATIONS if re.search(options.only, f"{m.file} {m.after} {m.old} {m.why}")]
    if options.list:
        print("\n".join(f"{m.file}: {m.why}" for m in chosen))
        return 0
    if complaints := check(chosen):
        print("\n".join(complaints), file=sys.stderr)
        return 1
    if options.check or not chosen:
        print(f"{len(chosen)} breaks fit the sources")
        return 0
    begun = time.perf_counter()
    try:
        say = functools.partial(print, file=sys.stderr, flush=True)
        outcomes = run(chosen, options.jobs, say, limit=options.seconds)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    missed = [outcome for outcome in outcomes if not outcome.seen]
    print(table(outcomes))
    print(f"\n{len(outcomes)} breaks, {len(outcomes) - len(missed)} seen, {time.perf_counter() - begun:.0f} s.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
