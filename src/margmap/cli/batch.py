"""What ``solve --batch`` does: a file of rows in, a file of answers out, and nothing lost in between.

Answers are added to a file beside the output, one JSON object a line after a first line that says which job they belong
to. Started again, the command goes on after the last whole line. At the end the output is written from that file.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from margmap.cli.output import bar, json_text, printable, spinner
from margmap.errors import FormatError, QueryError
from margmap.foundation.interrupts import staying
from margmap.io.journal import Journal

if TYPE_CHECKING:
    from margmap.circuit import Circuit, Name
    from margmap.network.network import Network
    from margmap.solve.batch import Answer

#: The first columns of a CSV of answers; the query's variables follow.
COLUMNS = ("row", "status", "log_prob", "log_conditional", "log_upper", "gap", "method", "seconds", "error")

#: Seconds and answers after which the answers so far are made to last.
SAVE_SECONDS, SAVE_ROWS = 0.5, 1000


class Summary(NamedTuple):
    """How a batch ended."""

    rows: int
    #: How many rows ended with each status.
    ended: Mapping[str, int]
    #: Whether Ctrl-C came before the last row.
    interrupted: bool

    @property
    def done(self) -> int:
        """Rows that have an answer."""
        return sum(self.ended.values())

    def __str__(self) -> str:
        named = [f"{number} {status.replace('_', ' ')}" for status, number in sorted(self.ended.items())]
        return ", ".join(named) or "no rows"


def solve_batch(
    path: Path,
    model: Circuit | Network,
    rows: Path,
    output: Path,
    query: list[Name] | None,
    method: str,
    time_limit: float | None,
    options: Mapping[str, Any],
    *,
    header: bool | None = None,
    jobs: int | None = None,
    dask: str | None = None,
) -> Summary:
    """Answer each row of a file, going on where an earlier run of the same job stopped."""
    if not output.absolute().parent.is_dir():
        raise FormatError("there is no such folder", path=output.absolute().parent)
    if rows.exists() and not (rows.is_file() or rows.is_dir()):
        raise FormatError("rows are read more than once: write them to a file first", path=rows)
    with spinner(f"Reading {rows} ..."):
        from margmap import __version__
        from margmap.distribute.executors import open_executor
        from margmap.foundation.limits import Limits
        from margmap.io.evidence_rows import read_rows
        from margmap.solve.batch import marginal_map_many
        from margmap.solve.result import Result

        columns = _variables(model, query)
        if not _is_jsonl(output):
            _require_distinct(columns)
        total = sum(1 for _ in read_rows(model, rows, None, header).cells)
        job = {
            "version": __version__,
            "model": _digest(path),
            "rows": _digest(rows),
            "query": query,
            "method": method,
            "time_limit": time_limit,
            "header": header,
            "options": dict(options),
        }
    with ExitStack() as stack:
        part = stack.enter_context(Part(output.with_name(output.name + ".part"), job))
        interrupted = False
        if part.done < total:
            with spinner("Preparing ..."):
                executor = None if dask is None else stack.enter_context(open_executor(jobs, dask))
                answers = marginal_map_many(
                    model,
                    query,
                    rows,
                    method,
                    time_limit,
                    header=header,
                    start=part.done,
                    jobs=jobs if executor is None else None,
                    executor=executor,
                    **options,
                )
            limits = Limits()
            try:
                # Ctrl-C must not come between writing an answer and knowing that it is written.
                with staying(), limits.catching_interrupts(), bar("Solving", total, part.done) as advance:
                    for answer in answers:
                        if isinstance(answer, Result) and answer.status == "interrupted" and answer.state is None:
                            raise KeyboardInterrupt  # as if it had not been begun
                        part.add(answer)
                        advance(1)
                        if limits.interrupted:
                            raise KeyboardInterrupt
            except KeyboardInterrupt:
                interrupted = True
            finally:
                part.save()
        summary = Summary(total, dict(part.ended), interrupted)
        if not interrupted:
            part.finish(output, columns)
    return summary


class Part:
    """The answers so far, in a file that only grows."""

    def __init__(self, path: Path, job: Mapping[str, Any]) -> None:
        self.path, self._job = path, json.loads(json.dumps(job))
        #: How many rows are done, from the first on, and how many of them ended with each status.
        self.done = 0
        self.ended: Counter[str] = Counter()
        self._lines: list[str] = []
        self._finished = False
        self._saved = time.monotonic()

    def __enter__(self) -> Part:
        self._journal = Journal(self.path)
        try:
            self._resume()
        except BaseException:
            self._journal.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._journal.close()
        if self._finished:
            self.path.unlink(missing_ok=True)

    def add(self, answer: Answer) -> None:
        """Take the answer of the next row."""
        self._lines.append(json_text(_record(self.done, answer)))
        self.done += 1
        self.ended[answer.status] += 1
        if len(self._lines) >= SAVE_ROWS or time.monotonic() > self._saved + SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Write what was taken so that it lasts."""
        lines = self._lines.copy()
        self._lines.clear()  # whatever happens below, nothing is written twice
        self._journal.append(*lines)
        self._saved = time.monotonic()

    def finish(self, output: Path, columns: Sequence[Name]) -> None:
        """Write the output; this file is not needed any more."""
        from margmap.io.files import write_lines

        records = (json.loads(line) for line in self._journal.lines())
        next(records)
        write_lines(output, map(json_text, records) if _is_jsonl(output) else _csv(records, columns))
        self._finished = True

    def _resume(self) -> None:
        """Count the answers of an earlier run of the same job, and cut off what it did not write to its end."""
        lines = self._journal.lines()
        first = next(lines, None)
        if first is None:
            self._lines.append(json_text({"job": self._job}))
            self.save()
            return
        before = _object(first).get("job")
        if not isinstance(before, dict):
            raise FormatError("this is not a file of answers in progress: move it away", path=self.path)
        different = [name.replace("_", " ") for name in self._job if before.get(name) != self._job[name]]
        if different:
            raise FormatError(
                f"holds {sum(1 for _ in lines)} answers of another job (different: {', '.join(different)}): finish "
                "that one with its own options, write to another file, or remove this one",
                path=self.path,
            )
        kept = len(first)
        for line in lines:
            record = _object(line)
            if record.get("row") != self.done or not isinstance(record.get("status"), str):
                break
            kept += len(line)
            self.done += 1
            self.ended[record["status"]] += 1
        self._journal.cut(kept)


def _record(row: int, answer: Answer) -> dict[str, Any]:
    from margmap.solve.batch import FailedRow

    if isinstance(answer, FailedRow):
        return {"row": row, "status": answer.status, "error": printable(answer.error), "kind": answer.kind}
    return {"row": row, **answer.to_dict()}


def _object(line: bytes) -> dict[str, Any]:
    """The object on a line, or an empty one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _csv(records: Iterator[dict[str, Any]], columns: Sequence[Name]) -> Iterator[str]:
    names = [str(name) for name in columns]
    yield _csv_line([*COLUMNS, *names])
    for record in records:
        state = record.get("state") or {}
        yield _csv_line([record.get(name) for name in COLUMNS] + [state.get(name) for name in names])


def _csv_line(cells: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _variables(model: Circuit | Network, query: Sequence[Name] | None) -> list[Name]:
    """The variables that answers have columns for."""
    from margmap.circuit import Circuit

    if query is not None:
        return [model.names[column] for column in model.query_columns(query, ())]
    mentioned = model.mentioned if isinstance(model, Circuit) else range(len(model.variables))
    return [model.names[column] for column in sorted(mentioned) if not model.variables[column].continuous]


def _require_distinct(columns: Sequence[Name]) -> None:
    for name in columns:
        if str(name) in COLUMNS:
            raise QueryError(
                f"variable {name!r} is called like a column of the answers: write to a .jsonl file instead"
            )


def _is_jsonl(output: Path) -> bool:
    return output.name.lower().removesuffix(".gz").endswith(".jsonl")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
