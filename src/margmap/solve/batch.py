"""One model, many rows of evidence: answers in the order of the rows, on any executor, each row exactly once.

A worker gets the job (model, query, options) once and keeps it under a token. Rows travel in chunks of about a quarter
of a second of work. A chunk whose worker dies is tried again, its rows one by one. A row that was under way at two
deaths then runs alone, so that it is not blamed for others; if its worker dies twice more, the row has failed.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from queue import SimpleQueue
from threading import Lock
from typing import Any, ClassVar, NamedTuple, TypeAlias
from uuid import uuid4

import numpy as np

from margmap.circuit import Circuit, Name, Variable
from margmap.circuit.evidence import names_of
from margmap.circuit.model import as_model
from margmap.circuit.properties import require_tractable
from margmap.circuit.variable import Observed
from margmap.distribute.executors import (
    Kept,
    WorkerDied,
    answer_of,
    checked_executor,
    open_executor,
    submit,
    workers_of,
)
from margmap.errors import LimitError, MargmapError, QueryError
from margmap.foundation.cores import usable_cores
from margmap.foundation.limits import Limits, interrupt_heard
from margmap.foundation.threads import check_threads
from margmap.inference.scaled import scaled
from margmap.io.evidence_rows import Cells, Rows, observed_of, read_rows
from margmap.network.compile import compile as compile_network
from margmap.network.network import Network
from margmap.solve.marginal_map import marginal_map
from margmap.solve.methods import AUTO, METHODS, MethodName
from margmap.solve.question import check_constrained, check_limits, check_method
from margmap.solve.result import Result
from margmap.solve.rows_together import ROWS_AT_ONCE, RowsTogether, pays

__all__ = ["FailedRow", "marginal_map_many"]

Query: TypeAlias = "Sequence[Name] | None"

#: Seconds of work that are worth the way to a worker and back, and the most rows that travel together.
CHUNK_SECONDS = 0.25
CHUNK_ROWS = 256

#: Rows that can be evaluated in one pass travel together also if they take longer than that, but not than this.
PASS_SECONDS = 1.0

#: Values in the states of the answers that a job keeps, for rows that are equal to an earlier one.
KEPT_VALUES = 1_000_000

#: Chunks under way for each worker, so that none waits for the next one.
CHUNKS_PER_WORKER = 3

#: Rows begun but not yet delivered: a slow row holds up at most so many answers.
AHEAD = 4096

#: After so many deaths a row runs alone, and after so many it is given up.
ALONE_AFTER, MOST_DEATHS = 2, 4

# Seconds after which an executor is asked again how many workers it has.
_COUNT_SECONDS = 5.0


@dataclass(frozen=True)
class FailedRow:
    """What stands in the place of a result for a row that has none, and why."""

    #: The row's number, from 0.
    row: int
    error: str
    #: The name of the error's class, such as ``ImpossibleEvidenceError``.
    kind: str

    status: ClassVar[str] = "failed"


Answer: TypeAlias = Result | FailedRow


def marginal_map_many(
    model: object,
    query: Sequence[Name] | Sequence[Query] | None,
    evidence_rows: Any,
    method: MethodName = AUTO,
    time_limit: float | None = None,
    *,
    columns: Sequence[Name] | None = None,
    header: bool | None = None,
    start: int = 0,
    jobs: int | None = None,
    executor: Executor | None = None,
    **options: Any,
) -> Iterator[Answer]:
    """The answers of :func:`margmap.marginal_map` for many rows of evidence, in order, as they become known.

    ``model`` is what ``marginal_map`` takes.
    ``evidence_rows`` is an array or sparse matrix (one column for each variable, in the circuit's order, or those that
    ``columns`` names), a frame (its columns are variables), the path of a CSV file (a header of variables, or a column
    for each; ``header`` says which where the first line can be both), or an iterable of mappings or of lists. An entry
    that is None, NaN, empty, or -1 for a discrete variable is not observed; :mod:`margmap.circuit.evidence` has the
    rest, and :meth:`margmap.Variable.code` what a value means. Rows before number ``start`` are passed over. ``query``
    is one for all rows, or a list with one for each row; None asks for all that a row does not observe.

    A row that cannot be answered (evidence of probability 0, a value out of range) has a :class:`FailedRow` in its
    place. ``time_limit`` and further options are those of ``marginal_map`` and hold for each row. A row that is equal
    to an earlier one gets the same answer, if that was proven, without being asked again.

    The work is done by ``jobs`` processes of this machine (None: one a core; 1: in this process), each with one thread
    unless ``threads`` says otherwise, or by ``executor``:
    anything with the interface of ``concurrent.futures``, such as that of a Dask client or of
    :func:`margmap.distribute.executors.open_executor`. Ctrl-C ends the iteration with KeyboardInterrupt once the rows
    under way are answered and delivered; a second one ends it at once.
    """
    check_limits(time_limit, **{name: options[name] for name in ("k", "gap", "memory_limit") if name in options})
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise QueryError(f"jobs={jobs!r}: give the number of processes, at least 1, or None for one a core")
    if jobs is not None and executor is not None:
        raise QueryError("jobs and executor are both given: an executor has its own workers")
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise QueryError(f"start={start!r}: give the number of the first row to answer, from 0")
    model = as_model(model)
    common, queries = _queries(query)
    if common is not None:
        model.query_columns(common, ())
    rows = read_rows(model, evidence_rows, columns, header)
    model, options = _prepared(model, method, options)
    if queries is not None and rows.length is not None and rows.length != len(queries):
        raise QueryError(f"{len(queries)} queries for {rows.length} rows: give one query for all, or one for each")
    executor = checked_executor(executor)
    check_threads(options.get("threads"))
    job = _Job(model, rows.columns, common, method, time_limit, options)
    return _run(job, rows, queries, start, jobs, executor)


def _prepared(
    model: Circuit | Network, method: str, options: dict[str, Any]
) -> tuple[Circuit | Network, dict[str, Any]]:
    """The model as workers get it: of a network the circuit, if it is not too large for one."""
    if isinstance(model, Network) and (method not in METHODS or METHODS[method].takes == "circuit"):
        # Where all variables together are too many, each query by itself may need few enough of them.
        with suppress(LimitError):
            model = compile_network(model, max_edges=options.get("max_edges"))
            options = {name: value for name, value in options.items() if name != "max_edges"}
    if isinstance(model, Circuit):
        require_tractable(model)
    common = ("k", "gap", "memory_limit", "constraints", "differ_by", "threads")
    of_method = {name: x for name, x in options.items() if name not in common}
    if options.get("constraints") is not None or options.get("differ_by") is not None:
        check_constrained(method)
    if isinstance(model, Network):
        of_method.pop("max_edges", None)
    check_method(method, options.get("k", 1), of_method, "network" if isinstance(model, Network) else "circuit")
    return model, options


def _queries(query: Any) -> tuple[Query, Sequence[Query] | None]:
    """The query of all rows, or the queries of the rows if there is one for each."""
    if query is None:
        return None, None
    entries = names_of(query)
    own = [entry is None or not isinstance(entry, str | int | float | np.generic | Variable) for entry in entries]
    if any(own) and not all(own):
        raise QueryError("query mixes variables and lists of them: give one list of variables, or a list for each row")
    return (None, entries) if entries and all(own) else (entries, None)


class _Row(NamedTuple):
    """A row on its way: its number, the bytes of what a worker needs, how often a worker died with it.

    Bytes, because some executors look into what they are given, and whoever made the row may change it meanwhile.
    """

    number: int
    data: bytes
    deaths: int = 0


@dataclass(frozen=True)
class _Job:
    """All that the rows have in common."""

    model: Circuit | Network
    columns: tuple[int, ...]
    query: Query
    method: MethodName
    time_limit: float | None
    options: dict[str, Any]
    #: Held by the thread that has ``together``.
    lock: Lock = field(default_factory=Lock)
    #: The answers to rows so far, by what they ask: as many as have :data:`KEPT_VALUES` values together.
    known: dict[bytes, Result] = field(default_factory=dict)

    @cached_property
    def together(self) -> RowsTogether:
        """What the rows of a circuit have in common beyond this."""
        assert isinstance(self.model, Circuit)
        return RowsTogether(self.model)

    @cached_property
    def packed(self) -> bytes:
        """What travels to a worker."""
        fields = (self.model, self.columns, self.query, self.method, self.time_limit, self.options)
        return pickle.dumps(fields, protocol=5)

    def prepare(self) -> None:
        """Compute what does not depend on the rows, so that the first one has all of its time limit."""
        if isinstance(self.model, Circuit):
            require_tractable(self.model)
            _ = scaled(self.model)

    def answers(self, rows: Sequence[tuple[int, bytes]]) -> list[Answer]:
        """The results of some rows, or why there is none; after Ctrl-C those that were under way, the last of them."""
        fresh = {data: self._read(number, data) for number, data in rows if data not in self.known}
        with self._knowing(list(fresh.values())) as model:
            found: list[Answer] = []
            for number, data in rows:
                found.append(self._answer(model, number, data, fresh.get(data)))
                if interrupt_heard():
                    break
            return found

    def _read(self, number: int, data: bytes) -> tuple[Query, Observed] | FailedRow:
        """The query and the evidence of a row."""
        try:
            cells, query = pickle.loads(data)
            return self.query if query is None else query, observed_of(self.model, self.columns, cells)
        except Exception as error:  # one row's trouble is not that of the others
            return _failed(number, error)

    @contextmanager
    def _knowing(self, read: Sequence[tuple[Query, Observed] | FailedRow]) -> Iterator[Circuit | Network]:
        """The model, which knows the rows that it will be asked about, if that pays."""
        model = self.model
        observed = [row[1] for row in read if not isinstance(row, FailedRow)]
        plain = [row for row in observed if all(isinstance(value, int) for value in row.values())]
        if not isinstance(model, Circuit) or not pays(model, len(plain)) or not self.lock.acquire(blocking=False):
            yield model
            return
        try:
            self.together.expect([model.encoded(row)[0] for row in plain])
            yield model.remembering(self.together)
        finally:
            self.lock.release()

    def _answer(
        self,
        model: Circuit | Network,
        number: int,
        data: bytes,
        row: tuple[Query, Observed] | FailedRow | None,
    ) -> Answer:
        """The answer to a row; that to an equal one, if there is one."""
        begun, known = time.perf_counter(), self.known.get(data)
        if known is not None:
            return _again(known, time.perf_counter() - begun)
        row = self._read(number, data) if row is None else row
        if isinstance(row, FailedRow):
            return replace(row, row=number)
        try:
            result = marginal_map(model, *row, self.method, self.time_limit, **self.options)
        except Exception as error:
            return _failed(number, error)
        self._keep(data, result)
        return result

    def _keep(self, data: bytes, result: Result) -> None:
        """Keep a proven answer for rows that are equal, unless somebody is to be called for each row."""
        if result.status != "optimal" or any(callable(option) for option in self.options.values()):
            return
        most = KEPT_VALUES // max(1, sum(len(one.state) for one in result.top))
        if most > 0:
            self.known[data] = _again(result, result.seconds)  # whoever gets the answer may change it
        while len(self.known) > most:
            with suppress(KeyError, RuntimeError):  # another thread was quicker
                del self.known[next(iter(self.known))]


def _again(result: Result, seconds: float) -> Result:
    """The same answer to an equal row, with dictionaries of its own and the seconds that it took."""
    top = tuple([one._replace(state=dict(one.state)) for one in result.top])
    return replace(result, state=top[0].state if top else result.state, top=top, seconds=seconds)


def _failed(row: int, error: Exception) -> FailedRow:
    unexpected = "" if isinstance(error, MargmapError) else f"unexpected {type(error).__name__}: "
    return FailedRow(row, f"{unexpected}{error}", type(error).__name__)


#: In a worker, the jobs it has been sent, the newest last; in the process that drives, also its own.
_jobs = Kept(_Job)


def _work(token: str, packed: bytes | None, rows: Sequence[tuple[int, bytes]]) -> tuple[float, list[Answer]] | None:
    """Answer some rows in a worker, and say how long it took; None if the worker does not have the job yet."""
    new = token not in _jobs
    job = _jobs.find(token, packed)
    if job is None:
        return None
    if new:
        job.prepare()
    begun = time.perf_counter()
    answers = job.answers(rows)
    return time.perf_counter() - begun, answers


def _run(
    job: _Job, rows: Rows, queries: Sequence[Query] | None, start: int, jobs: int | None, executor: Executor | None
) -> Iterator[Answer]:
    alone = replace(job, options={"threads": 1, **job.options})
    if executor is not None:
        yield from _Batch(alone, rows, queries, start, executor).answers()
        return
    number = usable_cores() if jobs is None else jobs
    if rows.length is not None:
        number = max(1, min(number, rows.length - start))
    if number == 1:
        job.prepare()
        yield from _Batch(job, rows, queries, start, _Here()).answers()
        return
    with open_executor(number) as processes:
        yield from _Batch(alone, rows, queries, start, processes).answers()


class _Here(Executor):
    """This process, at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call the function now."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


class _Batch:
    """Rows on their way to workers and back."""

    def __init__(self, job: _Job, rows: Rows, queries: Sequence[Query] | None, start: int, executor: Executor) -> None:
        self.job, self.executor, self.token = job, executor, uuid4().hex
        self.length, self.ahead = rows.length, rows.ahead
        self.fresh = islice(_numbered(rows, queries), start, None)
        self.more = True
        #: Rows of lost chunks: to try again one by one, and to try alone.
        self.again: deque[_Row] = deque()
        self.alone: deque[_Row] = deque()
        self.done: SimpleQueue[tuple[int, Future[Any]]] = SimpleQueue()
        self.under_way: dict[int, tuple[list[_Row], Future[Any]]] = {}
        self.sent = 0
        self.ready: dict[int, Answer] = {}
        #: The number of the next row to read, and of the next one to deliver.
        self.reading = self.next = start
        self.limits = Limits()
        self.stopped = False
        #: What went wrong with reading the rows; raised when those before are delivered.
        self.trouble: Exception | None = None
        self.seconds_per_row: float | None = None
        self.last_size = 1
        #: Whether any worker has ever answered anything.
        self.heard = False
        self.workers, self.counted = 1, -np.inf

    def answers(self) -> Iterator[Answer]:
        _jobs[self.token] = self.job
        try:
            while True:
                while self.next in self.ready:
                    answer = self.ready.pop(self.next)
                    self.next += 1
                    yield answer
                with self.limits.catching_interrupts():
                    self.fill()
                    if not self.under_way:
                        break
                    self.take(*self.done.get())
            if self.stopped:
                raise KeyboardInterrupt
            if self.trouble is not None:
                raise self.trouble
        finally:
            _jobs.pop(self.token, None)
            for _, future in self.under_way.values():
                future.cancel()

    # -- to the workers

    def fill(self) -> None:
        """Send as many chunks as the workers can do with."""
        self.stopped = self.stopped or self.limits.interrupted
        if self.stopped:
            return
        here = isinstance(self.executor, _Here)
        # One for each worker until the first is back: none of them has the job yet, and it goes with each that asks.
        most = 1 if here else self.count_workers() * (CHUNKS_PER_WORKER if self.seconds_per_row is not None else 1)
        while len(self.under_way) < most:
            if self.again:
                self.send([self.again.popleft()])
            elif self.alone:
                if not self.under_way:
                    self.send([self.alone.popleft()])
                return  # until it is back
            elif self.more and self.reading - self.next < AHEAD:
                # Here, no row is read ahead of whoever makes them one by one.
                rows = self.read(self.size() if self.ahead or not here else 1)
                if rows:
                    self.send(rows)
            else:
                return

    def read(self, most: int) -> list[_Row]:
        rows: list[_Row] = []
        before = self.reading
        try:
            for number, cells, query in islice(self.fresh, most):
                self.reading = number + 1
                try:
                    rows.append(_Row(number, pickle.dumps((cells, query), protocol=5)))
                except Exception as error:
                    self.ready[number] = _failed(number, error)
            self.more = self.reading > before
        except Exception as error:
            self.trouble, self.more = error, False
        self.last_size = len(rows)
        return rows

    def size(self) -> int:
        """How many rows to send together: as many as take a quarter of a second, and a share of the last ones."""
        if self.seconds_per_row is None:
            return 1
        rows, pass_rows = (int(seconds / max(self.seconds_per_row, 1e-6)) for seconds in (CHUNK_SECONDS, PASS_SECONDS))
        size = min(max(rows, min(pass_rows, ROWS_AT_ONCE)), 2 * self.last_size, CHUNK_ROWS)
        if self.length is not None and not isinstance(self.executor, _Here):  # others are to have some of the last
            size = min(size, (self.length - self.reading) // (2 * self.workers))
        return size - size % ROWS_AT_ONCE if size > ROWS_AT_ONCE else max(size, 1)

    def count_workers(self) -> int:
        now = time.monotonic()
        if now > self.counted + _COUNT_SECONDS:
            self.workers, self.counted = workers_of(self.executor), now
        return self.workers

    def send(self, rows: list[_Row], packed: bytes | None = None) -> None:
        number = self.sent
        self.sent += 1
        future = submit(self.executor, _work, self.token, packed, [(row.number, row.data) for row in rows])
        self.under_way[number] = (rows, future)
        future.add_done_callback(lambda future: self.done.put((number, future)))

    # -- and back

    def take(self, number: int, future: Future[Any]) -> None:
        """What a worker sent: answers, the wish for the job, or nothing because it died."""
        rows, _ = self.under_way.pop(number)
        try:
            back = answer_of(future)
        except WorkerDied:
            self.lost(rows)
            return
        self.heard = True
        if back is None:
            self.send(rows, self.job.packed)
            return
        seconds, answers = back
        rate = seconds / len(rows)
        self.seconds_per_row = rate if self.seconds_per_row is None else (self.seconds_per_row + rate) / 2
        self.stopped = self.stopped or len(answers) < len(rows)
        for row, answer in zip(rows, answers, strict=False):
            if answer.status == "interrupted":
                self.stopped = True  # it is not finished, so it is not delivered
            else:
                self.ready[row.number] = answer

    def lost(self, rows: list[_Row]) -> None:
        """Try rows again whose worker died, or give them up."""
        for row in rows:
            deaths = row.deaths + 1
            if deaths >= MOST_DEATHS and not self.heard:
                raise MargmapError("all worker processes die before they do anything: see what they print")
            if deaths >= MOST_DEATHS:
                error = f"row {row.number} was given up: {MOST_DEATHS} times its worker process died (memory, perhaps)"
                self.ready[row.number] = FailedRow(row.number, error, "WorkerDied")
            else:
                (self.again if deaths < ALONE_AFTER else self.alone).append(row._replace(deaths=deaths))


def _numbered(rows: Rows, queries: Sequence[Query] | None) -> Iterator[tuple[int, Cells, Query]]:
    number = 0
    for cells in rows.cells:
        if queries is not None and number >= len(queries):
            raise QueryError(f"there are more rows than the {len(queries)} queries: give one for each")
        yield number, cells, None if queries is None else queries[number]
        number += 1
    if queries is not None and number < len(queries):
        raise QueryError(f"{len(queries)} queries for {number} rows: give one query for all, or one for each")
