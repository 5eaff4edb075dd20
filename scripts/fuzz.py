"""Fuzz the readers: spoiled files by the hundred thousand, each with a watch on time and memory.

    python scripts/fuzz.py -n 100000                 # every reader
    python scripts/fuzz.py psdd bif -n 5000 --seed 7
    python scripts/fuzz.py uai --guided -n 20000     # by coverage, where atheris is installed

Each reader runs in a process of its own. An input that raises anything but a MargmapError, takes longer than
``--slow`` seconds, needs more than ``--memory`` MiB, or ends the process is kept in ``--crashes``. Of the inputs that a
reader accepts, every ``--use``-th is also checked, saved, evaluated and solved.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

FOLDER = Path(__file__).resolve().parents[1]
FIGURES = ("inputs", "accepted", "refused", "used", "crashes", "slowest", "seconds")


class TooSlow(BaseException):
    """Not an Exception, so that no reader catches it."""


def main() -> int:
    """Fuzz the readers that were named, print the figures, and return 1 if there was a crash."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("readers", nargs="*", help="which readers (all)")
    parser.add_argument("-n", type=int, default=1000, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slow", type=float, default=2.0, metavar="S", help="an input may take so long")
    parser.add_argument("--memory", type=int, default=2048, metavar="MIB", help="the process may grow by so much")
    parser.add_argument("--use", type=int, default=50, metavar="K", help="use every K-th accepted value; 0: none")
    parser.add_argument("--crashes", type=Path, default=Path("crashes"), metavar="DIR")
    parser.add_argument(
        "--rounds", type=int, default=1, help="take turns: the readers get their inputs in so many parts"
    )
    parser.add_argument("--guided", action="store_true", help="guided by coverage, with atheris")
    options = parser.parse_args()
    sys.path.insert(0, str(FOLDER / "tests" / "support"))
    options.crashes.mkdir(parents=True, exist_ok=True)
    if options.guided:
        os.environ["NUMBA_DISABLE_JIT"] = "1"  # atheris changes the functions that numba would compile
        work = _guided
    else:
        work = _plain
        _warm_up(options.readers)
    done: dict[str, dict[str, Any]] = {}
    for turn in range(options.rounds):
        for name in options.readers or _names():
            figures = done.setdefault(name, dict.fromkeys(FIGURES, 0))
            _watch(work, name, options, options.n * (turn + 1) // options.rounds, options.seed + turn, figures)
            (options.crashes / "figures.json").write_text(json.dumps(done, indent=1))
    _print(done)
    return 1 if any(figures["crashes"] for figures in done.values()) else 0


def _print(done: dict[str, dict[str, Any]]) -> None:
    print(f"{'reader':<10}" + "".join(f"{name:>12}" for name in FIGURES))
    for name, figures in done.items():
        cells = (f"{figures[key]:.3f}" if isinstance(figures[key], float) else str(figures[key]) for key in FIGURES)
        print(f"{name:<10}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


def _names() -> list[str]:
    # Read from the text, because --guided must be the first to import the module.
    text = (FOLDER / "tests" / "support" / "fuzzing.py").read_text()
    return re.findall(r'^    "(\w+)": Reader\(', text, re.MULTILINE)


def _warm_up(names: list[str]) -> None:
    """Read and use the valid files, so that the processes made from this one find everything compiled."""
    from fuzzing import READERS, use

    for name in names or READERS:
        # A folder for each: the vtree of one reader is not the one that an SDD finds beside it.
        with tempfile.TemporaryDirectory() as scratch:
            for seed in READERS[name].seeds:
                path = Path(scratch) / f"input.{READERS[name].suffix}"
                path.write_bytes(seed)
                use(READERS[name].read(path), Path(scratch))


def _watch(
    work: Callable[[_Watch, int, int], None],
    name: str,
    options: argparse.Namespace,
    most: int,
    seed: int,
    done: dict[str, Any],
) -> None:
    """Run a reader up to so many inputs in a process of its own, started again after an input that ended it."""
    while done["inputs"] < most:
        with tempfile.TemporaryDirectory(prefix="margmap-fuzz-", dir=_fast_folder()) as folder:
            scratch = Path(folder)
            child = os.fork()
            if child == 0:
                try:
                    work(_Watch(options, name, scratch), most - done["inputs"], seed)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
            state = scratch / "figures.json"
            seen, since = "", time.monotonic()
            while os.waitpid(child, os.WNOHANG)[0] == 0:
                time.sleep(0.1)
                now = state.read_text() if state.exists() else ""
                if now != seen:
                    seen, since = now, time.monotonic()
                elif time.monotonic() - since > 900:  # compiled code that never returns to Python
                    os.kill(child, signal.SIGKILL)
            figures = json.loads(state.read_text()) if state.exists() else dict.fromkeys(FIGURES, 0)
            if not figures.get("complete"):
                _keep(options.crashes, name, "dead", scratch.glob("input.*"), "the process ended")
                figures["crashes"] += 1
                figures["inputs"] = max(1, figures["inputs"])
            for key in FIGURES:
                done[key] = max(done[key], figures[key]) if key == "slowest" else done[key] + figures[key]
            seed += 1_000_003


class _Watch:
    """Runs inputs and counts."""

    def __init__(self, options: argparse.Namespace, name: str, scratch: Path) -> None:
        self.options, self.name, self.scratch = options, name, scratch
        self.figures: dict[str, Any] = dict.fromkeys(FIGURES, 0)
        self.path = scratch / "input"
        self.begun = time.perf_counter()
        self.kinds: dict[str, int] = {}
        signal.signal(signal.SIGPROF, self._alarm)  # CPU time: others may keep the machine busy

    def limit_memory(self) -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = used + self.options.memory * (1 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def run(self, data: bytes) -> None:
        from fuzzing import Broken, attempt, use

        figures = self.figures
        self.path.write_bytes(data)
        figures["inputs"] += 1
        signal.setitimer(signal.ITIMER_PROF, self.options.slow)
        begun = time.process_time()
        try:
            value, error = attempt(self.name, self.path)
            signal.setitimer(signal.ITIMER_PROF, 0)
            took = time.process_time() - begun
            figures["accepted" if error is None else "refused"] += 1
            if took > figures["slowest"]:
                figures["slowest"] = took
                (self.options.crashes / f"slowest-{self.name}").write_bytes(data)
            if error is None and self.options.use and figures["accepted"] % self.options.use == 1 % self.options.use:
                signal.setitimer(signal.ITIMER_PROF, 20 + self.options.slow)
                figures["used"] += 1
                use(value, self.scratch)
        except (Broken, TooSlow, MemoryError, RecursionError) as error:
            figures["crashes"] += 1
            what = str(error) or type(error).__name__
            kind = what[:60]
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            if self.kinds[kind] <= 3:
                _keep(self.options.crashes, self.name, "crash", [self.path], what + "\n" + traceback.format_exc())
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if figures["inputs"] % 500 == 0:
            self.report()

    def report(self, complete: bool = False) -> None:
        self.figures["seconds"] = time.perf_counter() - self.begun
        new = self.scratch / "figures.new"
        new.write_text(json.dumps(self.figures | {"complete": complete}))
        new.replace(self.scratch / "figures.json")

    def _alarm(self, signum: int, frame: FrameType | None) -> None:
        raise TooSlow(f"longer than {self.options.slow} s")


def _plain(watch: _Watch, count: int, seed: int) -> None:
    from fuzzing import READERS, fresh_input

    watch.path = watch.scratch / f"input.{READERS[watch.name].suffix}"
    rng = random.Random(f"{watch.name} {seed}")
    watch.limit_memory()
    for _ in range(count):
        watch.run(fresh_input(rng, watch.name))
    watch.report(complete=True)


def _guided(watch: _Watch, count: int, seed: int) -> None:
    try:
        import atheris
    except ImportError:
        sys.exit("--guided needs atheris: pip install atheris")
    with atheris.instrument_imports(include=["margmap.io", "margmap.network", "margmap.cli.inputs", "margmap.plot"]):
        from fuzzing import READERS, mutate
    reader = READERS[watch.name]
    watch.path = watch.scratch / f"input.{reader.suffix}"

    def change(data: bytes, most: int, number: int) -> bytes:
        rng = random.Random(number)
        return atheris.Mutate(data, most) if rng.random() < 0.3 else mutate(rng, data, reader.seeds)[:most]

    def one(data: bytes) -> None:
        watch.run(data)
        if watch.figures["inputs"] >= count:
            watch.report(complete=True)
            os._exit(0)

    corpus = watch.scratch / "corpus"
    corpus.mkdir()
    for number, text in enumerate(reader.seeds):
        (corpus / str(number)).write_bytes(text)
    arguments = ["fuzz", str(corpus), f"-seed={seed}", "-max_len=4000", "-verbosity=0", "-timeout=60"]
    atheris.Setup(arguments, one, custom_mutator=change)
    atheris.Fuzz()


def _keep(folder: Path, name: str, what: str, inputs: Any, note: str) -> None:
    for path in inputs:
        data = path.read_bytes()
        stem = f"{what}-{name}-{hash(data) & 0xFFFFFFFF:08x}"
        (folder / stem).write_bytes(data)
        (folder / f"{stem}.txt").write_text(note, encoding="utf-8", errors="backslashreplace")


def _fast_folder() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    sys.exit(main())
