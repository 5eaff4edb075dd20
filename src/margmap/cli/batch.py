"""What ``margmap solve --batch`` does: a file of rows in, a file of answers out, and nothing lost in between.

Answers are added to a journal beside the output, one JSON object a line after a first line that says which job they
belong to. Started again, the command goes on after the last whole line. At the end the output is written from it.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from margmap.cli.batch_rows import Extras, Layout, Scores, evidence_cells, layout_of, rows_of
from margmap.cli.output import bar, json_text, printable, spinner
from margmap.errors import FormatError, QueryError
from margmap.foundation.interrupts import staying
from margmap.io.files import csv_line, suffix_of, write_lines
from margmap.io.journal import Journal

if TYPE_CHECKING:
    from margmap.circuit import Circuit, Name
    from margmap.network.network import Network
    from margmap.solve.batch import Answer
    from margmap.solve.methods import MethodName

#: The first columns of a CSV of answers; the query's variables follow.
COLUMNS = ("row", "status", "log_prob", "log_conditional", "log_upper", "gap", "method", "seconds", "error")

_NONE = Extras()

#: Seconds and answers after which the answers so far are made to last.
SAVE_SECONDS, SAVE_ROWS = 0.5, 1000


class Job(NamedTuple):
    """The files of a batch, and what is asked of each row."""

    model: Path
    rows: Path
    query: list[Name] | None
    method: MethodName
    time_limit: float | None
    header: bool | None
    options: Mapping[str, Any]


class Summary(NamedTuple):
    """How a batch ended."""

    rows: int
    #: How many rows ended with each status.
    ended: Mapping[str, int]
    #: Whether Ctrl-C came before the last row.
    interrupted: bool
    #: With --truth, how often the answers were right.
    truth: Mapping[str, Any] | None = None


def solve_batch(
    model: Circuit | Network,
    job: Job,
    output: Path,
    jobs: int | None = None,
    dask: str | None = None,
    extras: Extras = _NONE,
) -> Summary:
    """Answer each row of a file, going on where an earlier run of the same job stopped.

    Columns of the query are no evidence; ``extras`` says what becomes of them, and of columns that are no variables.
    """
    if not output.absolute().parent.is_dir():
        raise FormatError("there is no such folder", path=output.absolute().parent)
    if job.rows.exists() and not (job.rows.is_file() or job.rows.is_dir()):
        raise FormatError("rows are read more than once: write them to a file first", path=job.rows)
    with spinner(f"Reading {job.rows} ..."):
        columns = _columns(model, job.query, output)
        layout = layout_of(model, job.rows, job.header, job.query, extras)
        _check_names(layout, columns, output)
        total, identity = _identity(model, job, layout, extras)
    if layout.ignored:
        print(
            f"margmap: columns that the model does not have: {', '.join(map(printable, layout.ignored))}",
            file=sys.stderr,
        )
    scores = Scores(model, layout) if extras.truth else None
    with Journal(output.with_name(output.name + ".part")) as journal:
        part = _Part(journal, identity)
        rows = _Rows(model, job, layout, extras)
        interrupted = part.done < total and not _fill(part, total, model, job, rows, jobs, dask)
        if not interrupted:
            records = (json.loads(line) for line in journal.lines())
            next(records)  # which job it is
            told = _with_extras(records, rows, scores)
            write_lines(
                output,
                map(json_text, told)
                if _is_jsonl(output)
                else _csv(told, columns, layout, extras, list(scores.by_name) if scores else []),
            )
    if not interrupted:
        journal.path.unlink(missing_ok=True)
    return Summary(total, dict(part.ended), interrupted, None if scores is None else scores.facts())


class _Rows(NamedTuple):
    """The rows of a job, which are read more than once."""

    model: Circuit | Network
    job: Job
    layout: Layout
    extras: Extras

    def cells(self) -> Iterator[list[str]]:
        """All cells of each row."""
        return rows_of(self.model, self.job.rows, self.job.header, self.extras)

    def evidence(self) -> Iterator[Any]:
        """The cells of each row that are evidence."""
        return evidence_cells(self.layout, self.cells())


def _with_extras(records: Iterator[dict[str, Any]], rows: _Rows, scores: Scores | None) -> Iterator[dict[str, Any]]:
    """The answers with the columns that are carried along, and whether they are right."""
    if not rows.layout.carried and scores is None:
        yield from records
        return
    for record, cells in zip(records, rows.cells(), strict=True):
        whole = len(cells) == rows.layout.width
        carried = {name: cells[place] if whole else None for name, place in rows.layout.carried}
        record = {**record, **({"carried": carried} if carried else {})}
        if scores is not None:
            names = {place: str(rows.model.names[column]) for column, place in rows.layout.truth}
            record["truth"] = {name: cells[place] if whole else None for place, name in names.items()}
            record["correct"] = scores.compare(cells, record.get("state") or {})
        yield record


def _check_names(layout: Layout, columns: Sequence[Name], output: Path) -> None:
    """Refuse a column that is carried along under the name of another of the answers."""
    if _is_jsonl(output):
        return
    for name, _ in layout.carried:
        if name in (*COLUMNS, "correct") or name in map(str, columns):
            raise QueryError(f"column {name!r} is called like a column of the answers: write to a .jsonl file instead")


def _identity(model: Circuit | Network, job: Job, layout: Layout, extras: Extras) -> tuple[int, dict[str, Any]]:
    """How many rows there are, and what tells this job from others: a digest for each of the files."""
    from margmap import __version__
    from margmap.io.formats import model_file

    digest, total = hashlib.sha256(repr(layout.columns).encode()), 0
    for cells in _Rows(model, job, layout, extras).evidence():
        digest.update(repr(cells).encode())
        total += 1
    contents = {"model": hashlib.sha256(model_file(job.model).read_bytes()).hexdigest(), "rows": digest.hexdigest()}
    options = {name: value for name, value in job.options.items() if name != "threads"}  # answers are the same with any
    return total, json.loads(json.dumps({"version": __version__, **job._asdict(), "options": options, **contents}))


def _fill(
    part: _Part, total: int, model: Circuit | Network, job: Job, rows: _Rows, jobs: int | None, dask: str | None
) -> bool:
    """Answer the rows that have no answer yet; whether all have one now, since Ctrl-C ends it early."""
    with ExitStack() as stack:
        with spinner("Preparing ..."):
            from margmap.distribute.executors import open_executor
            from margmap.foundation.limits import Limits
            from margmap.io.evidence_rows import OfFile
            from margmap.solve.batch import marginal_map_many
            from margmap.solve.result import Result

            where: dict[str, Any] = {"jobs": jobs}
            if dask is not None:
                where = {"executor": stack.enter_context(open_executor(jobs, dask))}
            observed = [model.variables[column] for column in rows.layout.columns]
            where |= {"columns": observed, "start": part.done, **job.options}
            evidence = OfFile(rows.evidence())
            answers = marginal_map_many(model, job.query, evidence, job.method, job.time_limit, **where)
        limits = Limits()
        try:
            # Ctrl-C must not come between writing an answer and knowing that it is written.
            with staying(), limits.catching_interrupts(), bar("Solving", total, part.done) as advance:
                for answer in answers:
                    if isinstance(answer, Result) and answer.status == "interrupted" and answer.state is None:
                        return False  # as if it had not been begun
                    part.add(answer)
                    advance(1)
                    if limits.interrupted:
                        return False
        except KeyboardInterrupt:
            return False
        finally:
            part.save()
    return True


class _Part:
    """The answers so far: a journal whose first line says which job they belong to."""

    def __init__(self, journal: Journal, job: Mapping[str, Any]) -> None:
        """Count the answers of an earlier run of the same job, and cut off what it did not write to its end."""
        self._journal = journal
        #: How many rows are done, from the first on, and how many of them ended with each status.
        self.done = 0
        self.ended: Counter[str] = Counter()
        self._new: list[str] = []
        self._saved = time.monotonic()
        lines = journal.lines()
        first = next(lines, None)
        if first is None:
            journal.append(json_text({"job": job}))
            return
        before = _object(first).get("job")
        if not isinstance(before, dict):
            raise FormatError("this is not a file of answers in progress: move it away", path=journal.path)
        if different := [name.replace("_", " ") for name in job if before.get(name) != job[name]]:
            raise FormatError(
                f"holds {sum(1 for _ in lines)} answers of another job (different: {', '.join(different)}): finish "
                "that one with its own options, write to another file, or remove this one",
                path=journal.path,
            )
        kept = len(first)
        for line in lines:
            record = _object(line)
            if record.get("row") != self.done or not isinstance(record.get("status"), str):
                break
            kept += len(line)
            self._count(record["status"])
        journal.cut(kept)

    def add(self, answer: Answer) -> None:
        """Take the answer of the next row."""
        from margmap.solve.batch import FailedRow

        if isinstance(answer, FailedRow):
            facts = {"status": answer.status, "error": printable(answer.error), "kind": answer.kind}
        else:
            facts = answer.to_dict()
        self._new.append(json_text({"row": self.done, **facts}))
        self._count(answer.status)
        if len(self._new) >= SAVE_ROWS or time.monotonic() > self._saved + SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write what was taken so that it lasts."""
        lines, self._new = self._new, []  # whatever happens below, nothing is written twice
        self._journal.append(*lines)
        self._saved = time.monotonic()

    def _count(self, status: str) -> None:
        self.done += 1
        self.ended[status] += 1


def _object(line: bytes) -> dict[str, Any]:
    """The object on a line, or an empty one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _csv(
    records: Iterator[dict[str, Any]], columns: Sequence[Name], layout: Layout, extras: Extras, truth: Sequence[str]
) -> Iterator[str]:
    names = [str(name) for name in columns]
    carried = [name for name, _ in layout.carried]
    first, rest = (carried[:1], carried[1:]) if extras.id is not None else ([], carried)
    right = ["correct"] if extras.truth else []
    # The values to compare with stand beside those of the answer, as truth:NAME.
    compared = [name for name in names if name in truth] if extras.truth else []
    yield csv_line([*first, *COLUMNS, *names, *rest, *(f"truth:{name}" for name in compared), *right])
    for record in records:
        state, copied = record.get("state") or {}, record.get("carried") or {}
        cells = [*map(copied.get, first), *map(record.get, COLUMNS), *map(state.get, names), *map(copied.get, rest)]
        yield csv_line([*cells, *map((record.get("truth") or {}).get, compared), *map(record.get, right)])


def _columns(model: Circuit | Network, query: Sequence[Name] | None, output: Path) -> list[Name]:
    """The variables that answers have columns for."""
    from margmap.circuit import Circuit

    if query is not None:
        columns = model.query_columns(query, ())
    else:
        mentioned = model.mentioned if isinstance(model, Circuit) else range(len(model.variables))
        columns = [column for column in sorted(mentioned) if not model.variables[column].continuous]
    names = [model.names[column] for column in columns]
    for name in names:
        if str(name) in COLUMNS and not _is_jsonl(output):
            raise QueryError(
                f"variable {name!r} is called like a column of the answers: write to a .jsonl file instead"
            )
    return names


def _is_jsonl(output: Path) -> bool:
    return suffix_of(output) == "jsonl"
