"""The commands ``margmap bench generate | run | report``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from margmap.cli.base import STOPPED, Json, command_of
from margmap.cli.inputs import parse_bytes, parse_options, read_rows
from margmap.cli.output import print_json, printable, spinner
from margmap.errors import QueryError
from margmap.foundation.numerals import real_of

if TYPE_CHECKING:
    from margmap.bench.instances import Proportions
    from margmap.bench.runs import Finished, Method

bench = typer.Typer(
    name="bench",
    no_args_is_help=True,
    help="Compare methods on circuits: draw instances, run everything on them, report.",
)
_command = command_of(bench)


@_command
def generate(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Circuits to draw instances for.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write them to.")],
    proportions: Annotated[
        list[str] | None,
        typer.Option(
            "--proportions",
            metavar="Q/E/H",
            help="Percent of the variables queried, observed and hidden; may be repeated. "
            "Without: the paper's 30/30/40 and 50/20/30.",
        ),
    ] = None,
    number: Annotated[int, typer.Option("--number", "-n", metavar="N", min=1, help="How many of each.")] = 10,
    seed: Annotated[int, typer.Option("--seed", min=0, help="For the same instances every time.")] = 1,
    rows: Annotated[
        Path | None, typer.Option("--rows", metavar="ROWS.csv", help="Take the evidence from rows of data.")
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Also write the format of the paper's authors (binary variables).")
    ] = False,
    json: Json = False,
) -> None:
    """Draw instances: the variables divided at random, evidence of nonzero probability. One file for each circuit."""
    from margmap.bench import instances

    parts = [_proportions(text) for text in proportions] if proportions else list(instances.PAPER)
    names = [_dataset(model) for model in models]
    for name in names:
        if names.count(name) > 1:
            raise QueryError(f"two models are called {name!r}: their instances would go to the same file")
    data = None if rows is None else read_rows(rows)
    _make(output)
    written = []
    for name, model in zip(names, models, strict=True):
        with spinner(f"Drawing instances for {model} ..."):
            from margmap.io.formats import load_circuit

            circuit = load_circuit(model)
            drawn = instances.generate(circuit, parts, number, seed, data, name)
            path = output / f"{name}.json"
            file = instances.InstanceFile(name, instances.relative_model(model, path), seed, drawn)
            if csv:
                instances.write_csv(path.with_suffix(".csv"), drawn, circuit.variables)
            instances.write(path, file)
        written.append({"path": str(path), "dataset": name, "instances": len(drawn)})
    if json:
        print_json({"written": written})
        return
    for entry in written:
        print(f"wrote {printable(str(entry['path']))}: {entry['instances']} instances")


@_command
def run(
    files: Annotated[
        list[Path], typer.Argument(metavar="INSTANCES.json...", help="What `bench generate` wrote, or the like.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="RUNS.jsonl", help="Where each finished run adds its line.")
    ],
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            "-m",
            metavar="[LABEL=]M[:O=X,...]",
            help="A method, such as 'plain=iterative:regroup=false,fix=false'; may be repeated. Without: auto.",
        ),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="S", min=0.001, help="Seconds for each run.")
    ] = 60,
    memory_limit: Annotated[
        str | None, typer.Option("--memory-limit", metavar="N", help="Bytes for each run, such as 2G (K, M or G).")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", metavar="N", min=1, help="Runs at the same time.")] = 1,
    dask: Annotated[
        str | None, typer.Option("--dask", metavar="tcp://HOST:8786", help="Run on a Dask cluster; or: local.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Keep the bounds of every iteration, for Figure 2.")] = False,
    json: Json = False,
) -> None:
    """Run every method on every instance, each in a process of its own. Started again, it goes on where it was."""
    memory = None if memory_limit is None else parse_bytes("--memory-limit", memory_limit)
    methods = [_method(text) for text in method or ["auto"]]
    with spinner("Preparing ..."):
        from margmap.bench import runs
        from margmap.bench.child import warm_up

        tasks = runs.tasks_of(files, methods, time_limit, memory, trace)
        for one in methods:  # refuses wrong options, and compiles the kernels that all runs will use
            warm_up(one.name, dict(one.options))
    interrupted = False
    ended: dict[str, int] = {}
    with _executor(jobs, dask) as (executor, at_once), _display(len(tasks)) as show:

        def report(progress: Finished) -> None:
            if progress.record is not None:
                status = str(progress.record["status"])
                ended[status] = ended.get(status, 0) + 1
            show(progress)

        try:
            runs.run(tasks, output, executor, at_once, report)
        except KeyboardInterrupt:
            interrupted = True
    done = sum(ended.values())
    if json:
        print_json({"output": str(output), "tasks": len(tasks), "done": done, "ended": ended, "stopped": interrupted})
    else:
        how = ", ".join(f"{number} {status.replace('_', ' ')}" for status, number in sorted(ended.items()))
        print(f"{done} runs done now ({how or 'nothing was left to do'}); all are in {printable(str(output))}")
        if interrupted:
            print("stopped: start it again to go on")
    if interrupted:
        raise typer.Exit(STOPPED)


@_command
def report(
    records: Annotated[Path, typer.Argument(metavar="RUNS.jsonl", help="What `bench run` wrote.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="The folder for report.md, its figures and index.html."),
    ],
    reference: Annotated[
        str, typer.Option("--reference", metavar="LABEL", help="The method that the others are compared with.")
    ] = "frontier",
    title: Annotated[str | None, typer.Option("--title", help="The heading of the report.")] = None,
    command: Annotated[
        list[str] | None,
        typer.Option("--command", metavar="TEXT", help="A command to show as how it was made; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Write tables and figures: who solved what and how fast, and whether all agree. Exit code 3 if they do not."""
    _make(output)
    with spinner("Reporting ..."):
        from margmap.bench.report import report as write

        options: dict[str, Any] = {} if title is None else {"title": title}
        found = write(records, output, reference=reference, commands=command or (), **options)
    if json:
        print_json({"written": [str(path) for path in found.written], "disagreements": found.disagreements})
    else:
        for path in found.written:
            print(f"wrote {printable(str(path))}")
        if found.disagreements:
            print(f"{found.disagreements} disagreements between methods: see the report")
    if found.disagreements:
        raise typer.Exit(STOPPED)


def _dataset(model: Path) -> str:
    return model.name.split(".")[0] or model.name


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise QueryError(f"{folder}: cannot be made: {error.strerror or error}") from None


def _proportions(text: str) -> Proportions:
    try:
        query, evidence, hidden = (real_of(part) / 100 for part in text.split("/"))
    except ValueError:
        raise QueryError(f"--proportions {text!r}: give three percentages, such as 30/30/40") from None
    return query, evidence, hidden


def _method(text: str) -> Method:
    from margmap.bench.runs import Method
    from margmap.solve.methods import METHODS

    head, _, tail = text.partition(":")
    label, equals, name = head.rpartition("=")
    label, name = label.strip() if equals else name.strip(), name.strip()
    if name != "auto" and name not in METHODS:
        raise QueryError(f"--method {text!r}: unknown method {name!r}; choose auto, {', '.join(METHODS)}")
    if not label:
        raise QueryError(f"--method {text!r}: the label before '=' is empty")
    return Method(label, name, parse_options(tail.split(","), name) if tail.strip() else {})


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


@contextmanager
def _display(total: int) -> Iterator[Callable[[Finished], None]]:
    """A progress bar on a terminal's stderr; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        row = bar.add_task("", total=total)

        def show(progress: Any) -> None:
            bar.update(row, completed=progress.done, description=_last(progress.record))

        yield show


def _last(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return ""
    from rich.markup import escape

    seconds = "" if record["seconds"] is None else f" {record['seconds']:.3g} s"
    return escape(printable(f"{record['dataset']} {record['label']}: {record['status']}{seconds}"))
