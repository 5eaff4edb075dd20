"""``margmap learn``: a circuit from a table, by any of the learners, with a line of progress and the best so far."""

from __future__ import annotations

import inspect
import math
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from margmap.cli.base import STOPPED
from margmap.cli.inputs import given
from margmap.cli.options import DataFolder, Json, argument, flag, option
from margmap.cli.output import filled_bar, print_json, print_table, report, spinner, telling
from margmap.cli.table_options import Columns, Delimiter, Header, Missing, parse_columns
from margmap.errors import DroppedColumnWarning, FormatError, LostNamesWarning, NoSplitWarning, QueryError
from margmap.foundation.numerals import number_of
from margmap.foundation.wording import listed

if TYPE_CHECKING:
    from margmap.circuit import Circuit
    from margmap.learn import Growth
    from margmap.learn.table import Table

_DATA = "A table: .csv (header or not), .csv.gz or .parquet; or the name of a dataset."
_LEARNER = "strudel, chow-liu, mixture, hclt or trees. Without: strudel, or hclt where cells are missing."
_BINS = "Bins for numbers that are no codes, such as 5; or of a column: age=4, age=18/25/65 (edges), age=codes."
_RESUME = "Go on from a model that the same learner made before, with its encoding."
_COMPONENTS = "Components of a mixture, or trees; after strudel: fit a mixture of K on its structure."

#: The functions of :mod:`margmap.learn` behind the names of learners.
LEARNERS = {
    "strudel": "learn_strudel",
    "chow-liu": "chow_liu",
    "mixture": "learn_mixture",
    "hclt": "learn_hclt",
    "trees": "learn_trees",
}

# The options that say when a learner ends, by which its bar is filled.
_ENDS = ("time_limit", "max_edges", "iterations", "epochs")


class Outcome(NamedTuple):
    """What came of a learner: the circuit, why it ended, how many rounds it took, mean log-likelihoods, seconds."""

    circuit: Circuit
    reason: str
    iterations: int
    best_iteration: int
    train: float
    valid: float
    seconds: float


def learn(
    data: Annotated[Path, argument("DATA", _DATA)],
    output: Annotated[
        Path | None, option("MODEL", "The circuit to write, such as model.json.", "--output", "-o")
    ] = None,
    describe: Annotated[bool, flag("--describe", "Say what the columns are taken for, and learn nothing.")] = False,
    learner: Annotated[str | None, option("NAME", _LEARNER, "--learner", "-l")] = None,
    valid: Annotated[Path | None, option("FILE", "Rows that decide which circuit is the best.")] = None,
    bins: Annotated[list[str] | None, option("N|COL=N,...", _BINS)] = None,
    missing: Missing = None,
    columns: Columns = None,
    header: Header = None,
    delimiter: Delimiter = None,
    time_limit: Annotated[float | None, option("S", "Stop after this many seconds.", min=0)] = None,
    max_edges: Annotated[int | None, option("N", "Stop when the circuit is this large.", min=1)] = None,
    iterations: Annotated[int | None, option("N", "Stop after this many splits, or rounds of EM.", min=0)] = None,
    epochs: Annotated[int | None, option("N", "How often hclt goes over the rows.", min=1)] = None,
    latent: Annotated[int | None, option("N", "Hidden states of hclt for each column.", min=1)] = None,
    patience: Annotated[int | None, option("N", "Stop after this many rounds that did not help.", min=0)] = None,
    tries: Annotated[int | None, option("N", "How many variables to try for each split.", min=1)] = None,
    components: Annotated[int | None, option("K", _COMPONENTS, min=1)] = None,
    seed: Annotated[int | None, option("S", "For random choices.", min=0)] = None,
    resume: Annotated[Path | None, option("MODEL", _RESUME)] = None,
    folder: DataFolder = None,
    json: Json = False,
) -> None:
    """Learn a circuit from a table. Ctrl-C ends early and writes the best circuit so far."""
    if learner is not None and learner.replace("_", "-") not in LEARNERS:
        raise QueryError(f"there is no learner {learner!r}: known are {', '.join(LEARNERS)}")
    if output is None and not describe:
        raise typer.BadParameter("give --output MODEL, or --describe to see what the columns are taken for")
    if output is not None and not describe:
        _check_output(output)
    start = _load(resume)
    reading = given(header=header, delimiter=delimiter, missing=missing, bins=_parse_bins(bins))
    reading |= given(columns=parse_columns("--columns", columns))
    train, checked = _read_data(data, valid, folder, start, reading)
    if describe:
        _describe(train, json)
        return
    assert output is not None
    _check_values(output, train)
    chosen = _chosen(learner, train)
    if start is not None and (latent is not None or (components is not None and chosen != "strudel")):
        raise QueryError(
            f"--{'components' if latent is None else 'latent'} does not go with --resume: the model has it"
        )
    limits = given(time_limit=time_limit, max_edges=max_edges, iterations=iterations, epochs=epochs, patience=patience)
    options = given(tries=tries, latent=latent, seed=seed, resume=start)
    mixed = chosen == "strudel" and (components or 1) > 1
    options |= {} if mixed or components is None else {"k" if chosen == "trees" else "components": components}
    found = _run(chosen, train, checked, limits | options)
    if mixed and found.reason != "interrupted":
        then = {"components": components, "structure": found.circuit, **given(seed=seed)}
        found = _after(found, _run("mixture", train, checked, then))
    _write(found, output, chosen, json)
    if found.reason == "interrupted":
        raise typer.Exit(STOPPED)


def progress(now: Growth, part: float | None) -> str:
    """One line: how far it is and how long it takes, if there is a limit to tell by, then likelihoods and size."""
    bar = "" if part is None else filled_bar(part, 20, "#.") + " "
    size = f", {now.edges} edges" if now.edges else ""
    numbers = f"train {now.train:.4f}{_valid(now.valid, '.4f')}{size}, {now.seconds:.0f} s"
    left = f", at most {now.seconds * (1 - part) / part:.0f} s left" if part is not None and 0.01 < part < 1 else ""
    return f"{bar}iteration {now.iteration}: {numbers}{left}"


def _valid(mean: float, digits: str) -> str:
    return "" if math.isnan(mean) else f", valid {mean:{digits}}"


def _load(resume: Path | None) -> Circuit | None:
    if resume is None:
        return None
    with spinner(f"Loading {resume} ..."):
        from margmap.io.formats import load_circuit

        return load_circuit(resume)


def _parse_bins(texts: list[str] | None) -> Any:
    """What ``--bins 5`` or ``--bins age=4,income=10000/20000`` says; None without it."""
    parts = [part.strip() for text in texts or () for part in text.split(",")]
    whole = [part for part in parts if "=" not in part]
    if not parts:
        return None
    if whole and len(parts) > 1:
        raise QueryError("--bins: give one number for all columns, or COLUMN=N for each that is meant")
    if whole:
        return _cut(whole[0], whole[0])
    return {name.strip(): _cut(cut.strip(), part) for part in parts for name, _, cut in [part.rpartition("=")]}


def _cut(text: str, part: str) -> int | list[float] | None:
    if text == "codes":
        return None
    numbers = [number_of(piece) for piece in text.split("/")]
    if len(numbers) == 1 and isinstance(numbers[0], int):
        return numbers[0]
    if any(number is None for number in numbers):
        raise QueryError(f"--bins {part}: write a number of bins, edges such as 18/25/65, or codes")
    return [float(number) for number in numbers if number is not None]


def _read_data(
    data: Path, valid: Path | None, folder: Path | None, start: Circuit | None, reading: dict[str, Any]
) -> tuple[Table, Table | None]:
    """Training and validation rows: of files, or of one of the twenty datasets where there is no file of its name."""
    with spinner(f"Reading {data} ..."), telling(DroppedColumnWarning):
        from margmap.learn.datasets import DATASETS, load_dataset
        from margmap.learn.table import Table, read_both

        source: Any = data
        checked: Any = valid
        if str(data) in DATASETS and not data.is_file():
            splits = load_dataset(str(data), folder)
            source, checked = splits.train, splits.valid if valid is None else valid
        table, more = read_both(source, checked, None if start is None else start.variables, **reading)
        return table, None if more is None else Table(more, table.variables)


def _describe(table: Table, json: bool) -> None:
    """What the columns of a table are taken for, and which are left out."""
    schema = table.schema()
    dropped = [each._asdict() for each in table.dropped]
    if json:
        print_json({"rows": len(table), "columns": schema, "dropped": dropped})
        return
    rows = []
    for column in schema:
        values = column.get("values")
        shown = (
            f"{column['least']:g} to {column['most']:g}"
            if values is None
            else listed(dict(zip(values, column["counts"], strict=True)), of="in all")
        )
        rows.append((column["name"], column["kind"], "" if values is None else len(values), column["missing"], shown))
    print(f"{len(table)} rows, {len(schema)} columns, {sum(column['missing'] for column in schema)} missing entries")
    print_table(("column", "kind", "values", "missing", "value=rows"), rows)
    for each in table.dropped:
        print(f"left out: {each.name} ({each.reason})")
    for column in schema:
        words = _words_among_numbers(column)
        if words:
            said = " ".join(f"--missing {shlex.quote(word)}" for word in words)
            print(f"{column['name']} has numbers and {', '.join(words)}: if that stands for missing, say {said}")


def _words_among_numbers(column: Mapping[str, Any]) -> list[str]:
    """The one or two texts of a column of texts that are no numbers, where all others are."""
    texts = column["values"] if column["kind"] == "states" else []
    words = [text for text in texts if number_of(text) is None]
    return words if len(words) <= 2 < len(texts) - len(words) else []


def _check_output(output: Path) -> None:
    """Refuse before the work what cannot be written after it."""
    from margmap.circuit import Circuit
    from margmap.io.formats import FORMATS, format_name, formats_of

    known = [name for name in formats_of(Circuit) if FORMATS[name].write is not None]
    if format_name(output) not in known:
        raise FormatError(f"the name says no format: end it in {', '.join('.' + name for name in known)}", path=output)
    if not output.absolute().parent.is_dir():
        raise FormatError("there is no such folder", path=output.parent)


def _check_values(output: Path, train: Table) -> None:
    """The same of what the table has."""
    from margmap.io.formats import format_name

    if format_name(output) == "psdd" and any(variable.cardinality != 2 for variable in train.variables):
        raise FormatError("psdd is for binary variables, and the data has others: write .json", path=output)


def _chosen(learner: str | None, train: Table) -> str:
    """The learner that was named, or one that can do with what the table has."""
    import margmap.learn as module

    if learner is not None:
        return learner.replace("_", "-")
    incomplete = bool(train.missing.any()) or any(variable.continuous for variable in train.variables)
    return "hclt" if incomplete and hasattr(module, LEARNERS["hclt"]) else "strudel"


def _run(name: str, train: Table, valid: Table | None, options: dict[str, Any]) -> Outcome:
    """Learn with a line of progress on a terminal."""
    with spinner("Learning ...") as show:
        import margmap.learn as module

        function: Callable[..., Any] = getattr(module, LEARNERS[name])
        known = inspect.signature(function).parameters
        for option in options:
            if option not in known:
                shown = "components" if option == "k" else option.replace("_", "-")
                raise QueryError(f"--{shown} does not go with the learner {name}")
        begun = time.perf_counter()
        if name == "chow-liu":
            circuit = function(train, **options)
            on_train, on_valid = (_mean_likelihood(circuit, rows) for rows in (train, valid))
            return Outcome(circuit, "finished", 0, 0, on_train, on_valid, time.perf_counter() - begun)
        rounds = {each: known[each].default for each in ("epochs", "iterations") if each in known}
        limits = {each: most for each, most in (rounds | options).items() if each in _ENDS and most}

        def tell(now: Any) -> None:
            told = _told(now, time.perf_counter() - begun)
            reached = {"time_limit": told.seconds, "max_edges": told.edges}
            parts = (reached.get(each, told.iteration) / most for each, most in limits.items())
            show(progress(told, max(parts, default=None)))

        told_by = next(name for name in ("on_progress", "on_iteration") if name in known)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSplitWarning)
            found = function(train, valid, **options, **{told_by: tell})
    if getattr(found, "warning", None) is not None:
        print(f"margmap: {found.warning}", file=sys.stderr)
    if name == "mixture":
        on_train, on_valid = (_mean_likelihood(found.circuit, rows) for rows in (train, valid))
        done, seconds = found.history[-1].iteration, time.perf_counter() - begun
        return Outcome(found.circuit, found.reason, done, done, on_train, on_valid, seconds)
    last, best = found.last, found.best
    return Outcome(found.circuit, found.reason, last.iteration, best.iteration, best.train, best.valid, last.seconds)


def _told(now: Any, seconds: float) -> Growth:
    """What a learner told of its progress, also one that does not know its size and its time."""
    from margmap.learn import Growth

    return Growth(now.iteration, now.train, now.valid, getattr(now, "edges", 0), getattr(now, "seconds", seconds))


def _after(first: Outcome, then: Outcome) -> Outcome:
    """A mixture that was fitted after a structure was learned: its circuit, and the story of both."""
    reason = "interrupted" if then.reason == "interrupted" else first.reason
    both = then._replace(reason=reason, iterations=first.iterations, best_iteration=first.best_iteration)
    return both._replace(seconds=first.seconds + then.seconds)


def _write(found: Outcome, output: Path, learner: str, json: bool) -> None:
    """Write the model, and say what was learned."""
    with spinner(f"Writing {output} ..."), telling(LostNamesWarning):
        from margmap.io.formats import save

        save(found.circuit, output)
    facts: Mapping[str, Any] = {
        "output": str(output),
        "learner": learner,
        **{name: value for name, value in found._asdict().items() if name not in ("circuit", "seconds")},
        "nodes": found.circuit.num_nodes,
        "edges": found.circuit.num_edges,
        "seconds": found.seconds,
    }
    what = "splits" if learner == "strudel" else "rounds"
    rounds = (
        f" after {found.iterations} {what}, {found.seconds:.3g} s; the circuit is that after {found.best_iteration}"
    )
    report(
        json,
        facts,
        f"wrote {output}: {found.circuit!r}",
        f"mean log-likelihood: train {found.train:.6f}" + _valid(found.valid, ".6f"),
        f"ended by {found.reason.replace('_', ' ')}{rounds}"
        if learner != "chow-liu"
        else f"the best tree, {found.seconds:.3g} s",
    )


def _mean_likelihood(circuit: Circuit, table: Table | None) -> float:
    """The mean log-likelihood of rows; NaN if there are none."""
    from margmap.inference.queries import log_likelihood

    return math.nan if table is None else float(log_likelihood(circuit, table.codes).mean())
