"""Methods times instances, each run in a process of its own; what is finished is in a file at once and stays there.

The file is append-only: one line of JSON for each finished run, written whole and forced to disk before the next run is
begun. Started again, only what has no line yet is run. Each run is known by what it computes (the model's content, the
query and evidence, the method and its limits), not by names.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from margmap.bench.instances import Proportions, read
from margmap.errors import FormatError, QueryError
from margmap.foundation import jit
from margmap.foundation.memory import computed, physical_memory, resident
from margmap.io.journal import Journal

#: A process is killed this many seconds, or this part of the limit, after its time limit; its solver stops long before.
GRACE_SECONDS, GRACE_PART = 10.0, 0.25

#: A process is killed when it is this much larger than its memory limit; the solver's own limit comes first.
GRACE_BYTES = 1 << 30

#: How often a run is looked after.
WATCH_SECONDS = 0.1


class Method(NamedTuple):
    """A method, its options, and the name that the report gives it."""

    label: str
    name: str
    options: Mapping[str, Any]


class Task(NamedTuple):
    """One run to do: all that a process needs to know."""

    key: str
    dataset: str
    model: str
    instances: str
    instance: int
    proportions: Sequence[float]
    label: str
    method: str
    options: Mapping[str, Any]
    time_limit: float | None
    memory_limit: int | None
    trace: bool
    #: Whether seconds are those that the run computes, on a machine that has other work, and not those of the clock.
    computing: bool = False


class Finished(NamedTuple):
    """How far a benchmark is: runs finished before and now, runs in all, and the record that came last."""

    done: int
    total: int
    record: Mapping[str, Any] | None


def tasks_of(
    files: Sequence[Path],
    methods: Sequence[Method],
    time_limit: float | None = None,
    memory_limit: int | None = None,
    trace: bool = False,
    computing: bool = False,
) -> list[Task]:
    """Every method on every instance of the files.

    With ``computing`` seconds are those of the processor. A run has the same key either way: where the processor had
    nothing else to do, they are the same seconds.

    Every circuit has its first instance solved by every method before any has its second: wherever it is stopped, what
    is there is a fair sample.
    """
    time_limit = None if time_limit is None else float(time_limit)  # 20 and 20.0 are the same run
    if not methods:
        raise QueryError("no method to run: give at least one")
    if len({method.label for method in methods}) < len(methods):
        raise QueryError("two methods have the same label: name them, as in 'plain=iterative:regroup=false'")
    tasks = []
    for path in files:
        file = read(path)
        model = file.model_path(path)
        try:
            digest = hashlib.sha256(model.read_bytes()).hexdigest()
        except OSError as error:
            message = f"its model {file.model!r} cannot be read: {error.strerror or error}"
            raise FormatError(message, path=path) from None
        earlier: Counter[Proportions] = Counter()
        for index, instance in enumerate(file.instances):
            turn = earlier[instance.proportions]
            earlier[instance.proportions] += 1
            for number, method in enumerate(methods):
                asked = [list(instance.query), list(instance.evidence.items())]
                by = [method.label, method.name, sorted(method.options.items()), time_limit, memory_limit]
                key = hashlib.sha256(json.dumps([digest, *asked, *by]).encode()).hexdigest()[:32]
                where = (file.dataset, str(model.resolve()), str(Path(path).resolve()), index)
                what = (list(instance.proportions), method.label, method.name, dict(method.options))
                how = (time_limit, memory_limit, trace, computing)
                tasks.append((turn, number, Task._make((key, *where, *what, *how))))
    return [task for _, _, task in sorted(tasks, key=lambda entry: entry[:2])]


def run(
    tasks: Sequence[Task],
    output: Path,
    executor: Executor,
    at_once: int,
    on_finished: Callable[[Finished], None] = lambda _: None,
) -> int:
    """Do what the file has no record of yet, at most ``at_once`` at a time; the number of runs done now.

    Ctrl-C ends it: runs under way are given up and will be done the next time.
    """
    with Journal(output) as journal:
        known = {_key_of(line, output, number) for number, line in enumerate(journal.lines(), 1)}
        todo = [task for task in {task.key: task for task in tasks}.values() if task.key not in known]
        total = len(tasks)
        done = before = total - len(todo)
        on_finished(Finished(done, total, None))
        waiting = iter(todo)
        under_way: dict[Future[dict[str, Any]], Task] = {}
        try:
            while True:
                while len(under_way) < at_once and (task := next(waiting, None)) is not None:
                    under_way[executor.submit(run_one, task._asdict())] = task
                if not under_way:
                    return done - before
                # Woken now and then, so that Ctrl-C is heard on every system.
                for future in wait(under_way, timeout=1.0, return_when=FIRST_COMPLETED).done:
                    task = under_way.pop(future)
                    record = _record_of(future, task)
                    journal.append(json.dumps(record, allow_nan=False))
                    done += 1
                    on_finished(Finished(done, total, record))
        finally:
            for future in under_way:
                future.cancel()
            _end_all()


def _key_of(line: bytes, output: Path, number: int) -> str:
    try:
        return str(json.loads(line)["key"])
    except (ValueError, KeyError, TypeError, RecursionError):
        message = "not the record of a run; this file is for `bench run` alone: give another"
        raise FormatError(message, path=output, line=number) from None


def run_one(task: Mapping[str, Any]) -> dict[str, Any]:
    """One run in a process of its own; its record, whatever becomes of it."""
    begun = time.perf_counter()
    starter = _borrow()
    watch = _Watch(task)
    answer: dict[str, Any] = {}
    code: int | None = None
    try:
        assert starter.stdin is not None
        assert starter.stdout is not None
        with suppress(BrokenPipeError):  # how it ended is told below
            starter.stdin.write(json.dumps(task) + "\n")
            starter.stdin.flush()
        while code is None and (line := starter.stdout.readline()):
            try:
                message = json.loads(line)
            except ValueError:
                continue  # something that a library printed
            if message == "ready":
                watch.begin()
            elif isinstance(message, dict):
                if "pid" in message:
                    watch.pid = int(message["pid"])
                elif "ended" in message:
                    code = int(message["ended"])
                else:
                    answer = message
    finally:
        watch.end()
        _give_back(starter, alive=code is not None)
    record = _record(task, "killed", None) | answer
    if watch.reason is not None:
        record |= {"status": "killed", "error": watch.reason}
    elif not answer:
        record["error"] = _ending(starter.wait() if code is None else code)
    return record | {"wall_seconds": time.perf_counter() - begun, **_about()}


_RESULT = "edges variables state log_prob log_conditional log_upper gap"
_COST = "seconds load_seconds cpu_seconds peak_bytes trace"
_NOTHING: dict[str, Any] = dict.fromkeys([*_RESULT.split(), *_COST.split()])


def _record(task: Mapping[str, Any], status: str, error: str | None) -> dict[str, Any]:
    """The record of a run of which nothing is known but how it ended."""
    return {**{name: task[name] for name in task if name != "trace"}, "status": status, "error": error, **_NOTHING}


class _Watch:
    """Kills a process that does not keep its limits; ``reason`` says why."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        self.pid: int | None = None
        self.reason: str | None = None
        self._seconds, self._bytes = task["time_limit"], task["memory_limit"]
        self._computing = task["computing"]
        self._deadline = float("inf")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """The model is read: from now on the time limit counts."""
        if self._seconds is not None:
            self._deadline = self._now() + self._seconds + max(GRACE_SECONDS, GRACE_PART * self._seconds)

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def _now(self) -> float:
        if not self._computing:
            return time.perf_counter()
        return 0.0 if self.pid is None else computed(self.pid)

    def _look(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            if self.pid is None:
                continue
            if self._now() > self._deadline:
                reason = f"did not stop at its time limit of {self._seconds:g} s and was killed"
            elif self._bytes is not None and resident(self.pid) > self._bytes + GRACE_BYTES:
                reason = f"grew past its memory limit of {self._bytes} bytes and was killed"
            else:
                continue
            self.reason = reason
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            return


# Processes that start runs, each for one at a time: those that wait for the next, and all.
_idle: list[subprocess.Popen[str]] = []
_starters: set[subprocess.Popen[str]] = set()
_guard = threading.Lock()


def child_environment() -> dict[str, str]:
    """The variables of a process that starts runs: one thread, and machine code, which its first task loads.

    A run that began by interpreting would load or compile in the time that is measured. ``MARGMAP_THREADS`` may ask for
    more threads.
    """
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    code = {"MARGMAP_TIER": "compile", "MARGMAP_BACKGROUND": "0"} if jit.available() else {}
    return {"MARGMAP_THREADS": "1", **code, **os.environ, **threads}


def _borrow() -> subprocess.Popen[str]:
    with _guard:
        if _idle:
            return _idle.pop()
    # The pipe to it stays open: when it closes because this process has died, all below it ends as well.
    starter = subprocess.Popen(
        [sys.executable, "-m", "margmap.bench.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=child_environment(),
        start_new_session=True,  # Ctrl-C is for this process, which decides
    )
    with _guard:
        _starters.add(starter)
    return starter


def _give_back(starter: subprocess.Popen[str], alive: bool) -> None:
    with _guard:
        if alive and starter in _starters:
            _idle.append(starter)
            return
        _starters.discard(starter)
    _end(starter)


def _end(starter: subprocess.Popen[str]) -> None:
    """Without its stdin it ends itself, and first kills the run that is under way."""
    _close(starter.stdin)
    starter.wait()
    _close(starter.stdout)


def _close(pipe: IO[str] | None) -> None:
    assert pipe is not None
    with suppress(OSError):
        pipe.close()


def _end_all() -> None:
    with _guard:
        idle, busy = list(_idle), _starters.difference(_idle)
        _starters.clear()
        _idle.clear()
    for starter in busy:  # whoever waits for its answer does the rest
        _close(starter.stdin)
    for starter in idle:
        _end(starter)


def _record_of(future: Future[dict[str, Any]], task: Task) -> dict[str, Any]:
    try:
        return future.result()
    except Exception as error:  # a worker died, or could not start a process
        what = f"the worker failed: {type(error).__name__}: {error}"
        return _record(task._asdict(), "failed", what) | {"wall_seconds": None, **_about()}


def _ending(code: int) -> str:
    if code >= 0:
        return f"the process ended with exit code {code} and no answer"
    try:
        return f"the process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"the process was ended by signal {-code}"


def _version_of(package: str) -> str | None:
    """The installed version, without importing it; None if there is none."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def _about() -> dict[str, Any]:
    """The version and the machine."""
    import margmap

    processor = platform.processor()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    memory = physical_memory()
    host = {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory": int(memory) if math.isfinite(memory) else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numba": _version_of("numba"),
    }
    return {"margmap": margmap.__version__, "host": host}
