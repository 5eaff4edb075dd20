"""``margmap bench run``: every method on every instance, each run in a process of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from margmap.cli.base import STOPPED
from margmap.cli.inputs import parse_bytes, parse_options
from margmap.cli.options import Dask, Json, argument, flag, option
from margmap.cli.output import bar, report, spinner
from margmap.errors import QueryError
from margmap.foundation.wording import counted, did_you_mean
from margmap.solve.methods import AUTO, MethodName, methods_for

if TYPE_CHECKING:
    from margmap.bench.runs import Finished, Method

_FILES = "What `bench generate` wrote, or the like."
_OUTPUT = "Where each finished run adds its line."
_METHOD = "A method, such as 'plain=iterative:regroup=false,fix=false'; may be repeated. Without: auto."
_COMPUTING = "Count seconds of the processor, not of the clock: for a machine that has other work."
_MEMORY = "Bytes for each run, such as 2G (K, M or G)."


def run(
    files: Annotated[list[Path], argument("INSTANCES.json...", _FILES)],
    output: Annotated[Path, option("RUNS.jsonl", _OUTPUT, "--output", "-o")],
    method: Annotated[list[str] | None, option("[LABEL=]M[:O=X,...]", _METHOD, "--method", "-m")] = None,
    time_limit: Annotated[float | None, option("S", "Seconds for each run.", min=0.001)] = 60,
    memory_limit: Annotated[str | None, option("N", _MEMORY)] = None,
    jobs: Annotated[int, option("N", "Runs at the same time.", "--jobs", "-j", min=1)] = 1,
    dask: Dask = None,
    trace: Annotated[bool, flag("--trace", "Keep the bounds of every iteration, for Figure 2.")] = False,
    computing: Annotated[bool, flag("--computing", _COMPUTING)] = False,
    json: Json = False,
) -> None:
    """Run every method on every instance, each in a process of its own. Started again, it goes on where it was."""
    memory = parse_bytes("--memory-limit", memory_limit)
    methods = [_method(text) for text in method or [AUTO]]
    with spinner("Preparing ..."):
        from margmap.bench import runs
        from margmap.bench.child import warm_up

        tasks = runs.tasks_of(files, methods, time_limit, memory, trace, computing)
        for one in methods:  # refuses wrong options, and compiles the kernels that all runs will use
            warm_up(cast(MethodName, one.name), dict(one.options))
    interrupted = False
    ended: Counter[str] = Counter()
    shown = 0
    with _executor(jobs, dask) as (executor, at_once), bar("", len(tasks)) as advance:

        def tell(progress: Finished) -> None:
            nonlocal shown
            last = ""
            if (record := progress.record) is not None:
                ended[str(record["status"])] += 1
                seconds = "" if record["seconds"] is None else f" {record['seconds']:.3g} s"
                last = f"{record['dataset']} {record['label']}: {record['status']}{seconds}"
            advance(progress.done - shown, last)
            shown = progress.done

        try:
            runs.run(tasks, output, executor, at_once, tell)
        except KeyboardInterrupt:
            interrupted = True
    done = ended.total()
    facts = {"output": str(output), "tasks": len(tasks), "done": done, "ended": ended, "stopped": interrupted}
    how = counted(ended) or "nothing was left to do"
    lines = [f"{done} runs done now ({how}); all are in {output}", "stopped: start it again to go on"]
    report(json, facts, *lines[: 1 + interrupted])
    if interrupted:
        raise typer.Exit(STOPPED)


def _method(text: str) -> Method:
    """A method with its label and options, from ``[LABEL=]METHOD[:OPTION=VALUE,...]``."""
    from margmap.bench.runs import Method

    head, _, tail = text.partition(":")
    label, equals, name = (part.strip() for part in head.rpartition("="))
    known = [AUTO, *(one.name for one in methods_for("circuit"))]
    if name not in known:
        near = did_you_mean(name, known)
        raise QueryError(f"--method {text!r}: unknown method {name!r}; {near}choose {', '.join(known)}")
    if equals and not label:
        raise QueryError(f"--method {text!r}: the label before '=' is empty")
    return Method(label or name, name, parse_options(tail.split(","), name) if tail.strip() else {})


@contextmanager
def _executor(jobs: int, dask: str | None) -> Iterator[tuple[Executor, int]]:
    """Where runs are started from: threads here (each run has its own process anyway), or a cluster's workers."""
    if dask is None:
        with ThreadPoolExecutor(jobs) as threads:
            yield threads, jobs
        return
    from margmap.distribute.executors import open_executor, workers_of

    with open_executor(jobs, dask) as cluster:
        yield cluster, workers_of(cluster)
