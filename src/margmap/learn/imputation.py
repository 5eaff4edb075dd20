"""Imputation: the missing cells of each row become the most likely combination of values, proven by the solver.

A row's answer is that of :func:`margmap.marginal_map`: its missing cells, or those of the chosen columns, are the
query, its other cells the evidence, and what is missing elsewhere is summed out. Rows that are equal are asked once.
On a latent tree, rows are solved by a kernel of their own (:mod:`margmap.learn.tree_completion`). On other circuits
they are grouped by which cells are missing: where the cells of a group have few combinations of values, these are all
evaluated, for many rows in one pass; every other row is reduced and solved by itself.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Circuit, FloatArray, Name
from margmap.circuit.evidence import is_frame, names_of
from margmap.circuit.model import as_model
from margmap.circuit.properties import require_tractable
from margmap.distribute.executors import Kept, WorkerDied, answer_of, open_executor, submit
from margmap.errors import DataError, ImpossibleEvidenceError, MargmapError, QueryError
from margmap.foundation.limits import TOLERANCE, Limits
from margmap.inference.queries import log_likelihood, posteriors
from margmap.inference.scaled import scaled
from margmap.learn.table import Table, Unknown, decode_column, encode
from margmap.learn.tree_completion import complete, state_tree
from margmap.network.compile import compile as compile_network
from margmap.network.network import Network
from margmap.solve.marginal_map import circuit_map
from margmap.solve.question import Question, check_limits

# Combinations of values of a row's missing cells that are evaluated one by one, many rows at once.
_FEW_STATES = 64
# Evaluations that are held in memory at once, and rows that travel to another process together.
_AT_ONCE, _CHUNK = 1 << 16, 64


@dataclass(frozen=True)
class Imputed:
    """Rows with their missing cells filled in, and what is known of each answer."""

    #: In the form of what was given: a frame, an array, a :class:`margmap.learn.Table`, or for a file a list of rows.
    table: Any
    #: log p of each row with the cells that were filled in, those that are still missing summed out.
    log_prob: FloatArray = field(repr=False)
    #: log p of the cells that were filled in, given the others; 0 where nothing was missing.
    log_conditional: FloatArray = field(repr=False)
    #: ``optimal`` where no completion is more likely; otherwise why the solver stopped, or ``failed``.
    status: tuple[str, ...] = field(repr=False)
    #: Why rows failed, by their numbers from 0; their cells are as they were.
    errors: dict[int, str] = field(default_factory=dict, repr=False)
    #: The rows as the model's codes, -1 (NaN among real numbers) where a cell is still missing.
    codes: NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0)), repr=False)

    def __len__(self) -> int:
        return len(self.status)


def impute(
    model: object,
    table: Any,
    columns: Sequence[Name] | None = None,
    *,
    jobs: int = 1,
    time_limit: float | None = None,
    unknown: Unknown = "error",
) -> Imputed:
    """Fill in the missing cells of each row with their most likely combination of values.

    ``model`` is a circuit, best one that was learned from a table, whose values it then speaks, or anything else that
    :func:`margmap.as_model` takes. ``table`` is a frame, an array of codes (-1 or NaN where missing), a
    :class:`margmap.learn.Table` or the path of a file; columns with names are found by them. With ``columns`` only
    these are filled in, by their most likely combination with all other missing cells summed out; otherwise all are,
    jointly. A cell of a column in bins becomes the median of its bin. Real numbers (Gaussian leaves) are integrated out
    while the other cells are found, and become their mean given the whole row.

    ``time_limit`` is in seconds, for each row; ``jobs`` is the number of processes. ``unknown="missing"`` fills in
    cells with values that the model does not know, and columns that are not there. A row that is impossible under the
    model has the status ``failed``, its cells stay as they are, and ``errors`` says why.

    >>> import margmap as mm
    >>> circuit = mm.learn.chow_liu([[0, 0], [1, 1], [1, 1]])
    >>> mm.impute(circuit, [[-1, 1], [0, -1]]).table.tolist()
    [[1, 1], [0, 0]]
    """
    check_limits(time_limit, jobs=jobs)
    circuit = _circuit(model)
    codes = table.codes if isinstance(table, Table) else codes_of(circuit, table, unknown)
    asked = _asked(circuit, columns)
    found = impute_codes(circuit, codes, asked, jobs, time_limit)
    return Imputed(_filled(circuit, table, codes, found.codes), *found[1:], found.codes)


class Completed(NamedTuple):
    """Rows of codes filled in, and the fields of :class:`Imputed` about them."""

    codes: NDArray[Any]
    log_prob: FloatArray
    log_conditional: FloatArray
    status: tuple[str, ...]
    errors: dict[int, str]


def codes_of(circuit: Circuit, table: Any, unknown: Unknown = "error") -> NDArray[Any]:
    """Rows of anything that is a table as codes of the circuit's variables; -1 among plain numbers is missing."""
    if isinstance(table, list | np.ndarray):
        array = np.asarray(table, dtype=object if isinstance(table, list) else None)
        plain = np.array([not v.continuous and v.encoding is None and not v.states for v in circuit.variables])
        if array.ndim == 2 and array.shape[1] != plain.size:
            raise DataError(f"the rows have {array.shape[1]} columns, but the model has {plain.size} variables")
        if array.ndim == 2 and plain.any() and array.dtype.kind in "ifO":
            with np.errstate(invalid="ignore"):
                hole: Any = None if array.dtype == object else np.nan
                table = np.where((array == -1) & plain, hole, array)
    return encode(circuit, table, unknown)


def _circuit(model: object) -> Circuit:
    known = as_model(model)
    circuit = compile_network(known) if isinstance(known, Network) else known
    require_tractable(circuit)
    return circuit


def _asked(circuit: Circuit, columns: Sequence[Name] | None) -> NDArray[np.bool_]:
    """The columns to fill in."""
    mentioned = np.zeros(len(circuit.variables), dtype=np.bool_)
    mentioned[list(circuit.mentioned)] = True
    if columns is None:
        return mentioned
    asked = np.zeros_like(mentioned)
    asked[circuit.query_columns(names_of(columns, "columns"), ())] = True
    for column in np.flatnonzero(asked & ~mentioned).tolist():
        raise QueryError(f"no leaf of the circuit mentions the variable {circuit.names[column]!r}: it has no values")
    return asked


def impute_codes(
    circuit: Circuit, codes: NDArray[Any], asked: NDArray[np.bool_], jobs: int = 1, time_limit: float | None = None
) -> Completed:
    """The same for rows of codes, -1 or NaN where missing, and marks of the columns to fill in."""
    distinct, back = _distinct(codes)
    missing = np.isnan(distinct) if distinct.dtype.kind == "f" else distinct < 0
    continuous = np.array([v.continuous for v in circuit.variables], dtype=np.bool_)
    wanted = missing & asked & ~continuous
    filled = distinct.copy()
    log_prob, log_conditional = np.full(len(distinct), -np.inf), np.zeros(len(distinct))
    status, errors = ["optimal"] * len(distinct), {}
    slow: list[tuple[int, list[int]]] = []
    left = _complete_on_tree(circuit, distinct, wanted, filled, log_prob, log_conditional, jobs)
    for pattern, rows in _patterns(wanted, left):
        if pattern.size == 0:
            log_prob[rows] = log_likelihood(circuit, distinct[rows])
        elif _few(circuit, pattern):
            _enumerate(circuit, distinct, pattern, rows, filled, log_prob, log_conditional)
        else:
            slow += [(int(row), pattern.tolist()) for row in rows]
    for row in np.flatnonzero(np.isneginf(log_prob)).tolist():
        if not wanted[row].any() or _few(circuit, np.flatnonzero(wanted[row])):
            status[row], errors[row] = "failed", _IMPOSSIBLE
    for (row, query), answer in zip(slow, _solved(circuit, distinct, slow, jobs, time_limit), strict=True):
        if isinstance(answer, str):
            status[row], errors[row] = "failed", answer
        else:
            status[row], state, log_prob[row], log_conditional[row] = answer
            filled[row, query] = state
    for row in np.flatnonzero((missing & asked & continuous).any(axis=1)).tolist():
        if status[row] != "failed":
            _fill_means(circuit, filled, row, asked & continuous)
    kept = {int(i): errors[int(row)] for i, row in enumerate(back) if int(row) in errors}
    return Completed(filled[back], log_prob[back], log_conditional[back], tuple(status[row] for row in back), kept)


_IMPOSSIBLE = "the cells that are there have probability 0 under the model"


def _distinct(codes: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The different rows, and which of them each row is."""
    rows = np.ascontiguousarray(np.where(np.isnan(codes), np.nan, codes) if codes.dtype.kind == "f" else codes)
    if not len(rows):
        return rows, np.zeros(0, dtype=np.int64)
    whole = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, back = np.unique(whole, return_index=True, return_inverse=True)
    return rows[first], back.reshape(-1)


def _complete_on_tree(
    circuit: Circuit,
    codes: NDArray[Any],
    wanted: NDArray[np.bool_],
    filled: NDArray[Any],
    log_prob: FloatArray,
    log_conditional: FloatArray,
    jobs: int,
) -> NDArray[np.int64]:
    """Fill in what a latent tree can be asked for quickly; the numbers of the rows that are left."""
    rows = np.flatnonzero(wanted.any(axis=1))
    tree = state_tree(circuit) if rows.size else None
    if tree is None:
        return np.arange(len(codes))
    found = complete(tree, codes[rows], wanted[rows], jobs)
    done = rows[found.solved]
    filled[done] = np.where(wanted[done], found.codes[found.solved], filled[done])
    log_prob[done] = found.log_prob[found.solved]
    log_conditional[done] = np.minimum(found.log_prob - found.log_evidence, 0.0)[found.solved]
    return np.setdiff1d(np.arange(len(codes)), done)


def _patterns(
    wanted: NDArray[np.bool_], left: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """The columns that some of the rows that are left want filled in, and these rows."""
    if not left.size:
        return
    _, which = np.unique(np.packbits(wanted[left], axis=1), axis=0, return_inverse=True)
    which = which.reshape(-1)
    order = np.argsort(which, kind="stable")
    for rows in np.split(left[order], np.flatnonzero(np.diff(which[order])) + 1):
        yield np.flatnonzero(wanted[rows[0]]), rows


def _few(circuit: Circuit, pattern: NDArray[np.int64]) -> bool:
    """Whether a pattern's combinations of values are few, and evaluated exactly enough to compare them."""
    states = 1
    for column in pattern.tolist():
        states *= circuit.variables[column].cardinality
        if states > _FEW_STATES:
            return False
    return 4 * scaled(circuit).rounding < TOLERANCE


def _enumerate(
    circuit: Circuit,
    codes: NDArray[Any],
    pattern: NDArray[np.int64],
    rows: NDArray[np.int64],
    filled: NDArray[Any],
    log_prob: FloatArray,
    log_conditional: FloatArray,
) -> None:
    """Evaluate every combination of values, for rows that all miss the same cells."""
    sizes = [circuit.variables[column].cardinality for column in pattern.tolist()]
    states = np.indices(sizes).reshape(len(sizes), -1).T
    for at in range(0, rows.size, max(1, _AT_ONCE // len(states))):
        some = rows[at : at + max(1, _AT_ONCE // len(states))]
        tried = np.repeat(codes[some], len(states), axis=0)
        tried[:, pattern] = np.tile(states, (some.size, 1))
        log = log_likelihood(circuit, tried).reshape(some.size, len(states))
        best = log.argmax(axis=1)
        top = log[np.arange(some.size), best]
        possible = top > -np.inf
        log_prob[some] = top
        with np.errstate(invalid="ignore"):
            log_conditional[some] = np.where(possible, -np.log(np.exp(log - top[:, None]).sum(axis=1)), -np.inf)
        filled[np.ix_(some[possible], pattern)] = states[best[possible]]


Answer = tuple[str, list[int], float, float] | str


def _solved(
    circuit: Circuit,
    codes: NDArray[Any],
    asked: Sequence[tuple[int, list[int]]],
    jobs: int,
    time_limit: float | None,
) -> Iterator[Answer]:
    """The answers for rows with their queries, in order."""
    job = _Job(circuit, time_limit)
    chunks = [asked[at : at + _CHUNK] for at in range(0, len(asked), _CHUNK)]
    work = [[(codes[row], query) for row, query in chunk] for chunk in chunks]
    if jobs == 1 or len(chunks) < 2:
        for rows in work:
            yield from job.answers(rows)
        return
    token, packed = uuid4().hex, pickle.dumps((circuit, time_limit), protocol=5)
    with open_executor(min(jobs, len(chunks))) as processes:
        futures: list[Future[list[Answer] | None]] = [submit(processes, _work, token, None, rows) for rows in work]
        for rows, future in zip(work, futures, strict=True):
            try:
                answers = answer_of(future)
                if answers is None:
                    answers = answer_of(submit(processes, _work, token, packed, rows))
            except WorkerDied:
                raise MargmapError("a worker process died (memory, perhaps): give jobs=1, or fewer rows") from None
            assert answers is not None
            yield from answers


class _Job:
    """What the rows have in common."""

    def __init__(self, circuit: Circuit, time_limit: float | None) -> None:
        self.circuit, self.time_limit = circuit, time_limit
        self.codes = [{v.label(x): x for x in range(v.cardinality)} for v in circuit.variables]
        require_tractable(circuit)
        _ = scaled(circuit)

    def answers(self, rows: Sequence[tuple[NDArray[Any], list[int]]]) -> list[Answer]:
        """The answer for each row and its query: status, state, log p(q, e), log p(q | e); or what is wrong."""
        return [self.answer(row, query) for row, query in rows]

    def answer(self, row: NDArray[Any], query: list[int]) -> Answer:
        values = row.tolist()
        variables = self.circuit.variables
        if row.dtype.kind == "f":
            present = np.flatnonzero(~np.isnan(row)).tolist()
            observed = {c: values[c] if variables[c].continuous else int(values[c]) for c in present}
        else:
            observed = {c: x for c, x in enumerate(values) if x >= 0}
        limits = Limits(self.time_limit)
        with limits.catching_interrupts(), limits.not_counting_compilation():
            try:
                found = circuit_map(Question(self.circuit, query, observed), limits)
            except ImpossibleEvidenceError:
                return _IMPOSSIBLE
            except MargmapError as error:
                return str(error)
        if limits.interrupted:
            raise KeyboardInterrupt
        assert found.state is not None
        state = [self.codes[c][found.state[variables[c].name]] for c in query]
        return found.status, state, found.log_prob, found.log_conditional


#: In a worker, the jobs that it has been sent.
_jobs = Kept(_Job)


def _work(token: str, packed: bytes | None, rows: Sequence[tuple[NDArray[Any], list[int]]]) -> list[Answer] | None:
    """Answer some rows in a worker; None if it does not have the job yet."""
    job = _jobs.find(token, packed)
    return None if job is None else job.answers(rows)


def _fill_means(circuit: Circuit, filled: NDArray[Any], row: int, wanted: NDArray[np.bool_]) -> None:
    """Missing real numbers become their mean given all that is in the row."""
    known = {
        v: (float(x) if v.continuous else v.label(int(x)))
        for v, x in zip(circuit.variables, filled[row].tolist(), strict=True)
        if x == x and (v.continuous or x >= 0)
    }
    found = posteriors(circuit, known)  # the Variable itself is a name that is always clear
    for column in np.flatnonzero(wanted & np.isnan(filled[row])).tolist():
        filled[row, column] = found.array(circuit.names[column])[0]


def _filled(circuit: Circuit, table: Any, before: NDArray[Any], after: NDArray[Any]) -> Any:
    """What was given, with new values in the cells that were missing before and are not now."""
    absent = np.isnan(before) if before.dtype.kind == "f" else before < 0
    still = np.isnan(after) if after.dtype.kind == "f" else after < 0
    new = absent & ~still
    if isinstance(table, Table):
        return Table(after.copy(), table.variables, table.dropped)
    if is_frame(table):
        return filled_frame(circuit, table, after, new)
    if isinstance(table, list | np.ndarray):
        return _filled_array(np.asarray(table), _values(circuit, after, new), new)
    whole = np.empty(after.shape, dtype=object)
    for i, variable in enumerate(circuit.variables):
        whole[:, i] = decode_column(variable, after[:, i], numbers=True)
    return whole.tolist()


def _values(circuit: Circuit, codes: NDArray[Any], new: NDArray[np.bool_]) -> dict[int, NDArray[Any]]:
    """The columns that have new cells, in the values of the table."""
    some = np.flatnonzero(new.any(axis=0)).tolist()
    return {i: decode_column(circuit.variables[i], codes[:, i], numbers=True) for i in some}


def _filled_array(array: NDArray[Any], values: dict[int, NDArray[Any]], new: NDArray[np.bool_]) -> NDArray[Any]:
    """The array with new values, in its own type if they fit it."""
    kinds = {type(x) for i, column in values.items() for x in column[new[:, i]]}
    if array.dtype.kind not in "biuf" or str in kinds:
        result = array.astype(object)
    else:
        result = array.astype(np.float64 if float in kinds else array.dtype)
    for i, column in values.items():
        result[new[:, i], i] = column[new[:, i]]
    return result


def filled_frame(circuit: Circuit, frame: Any, codes: NDArray[Any], new: NDArray[np.bool_]) -> Any:
    """A frame with the values of codes in the cells that are new; a column that it does not have is added."""
    result = frame.copy()
    places = {str(name): name for name in frame.columns}
    for i, column in _values(circuit, codes, new).items():
        name = circuit.names[i]
        if str(name) not in places:
            result[name] = column
            continue
        label = places[str(name)]
        own = frame[label]
        kept = _entries(own)
        filled = np.where(new[:, i], _written_like(column, kept[~np.asarray(own.isna())]), kept)
        result[label] = _like(own, filled, frame.index)
    return result


def _entries(column: Any) -> NDArray[Any]:
    """The entries of a frame's column; pandas would make floats of whole numbers that are categories."""
    if not hasattr(column.dtype, "categories"):
        return np.asarray(column, dtype=object)
    labels: NDArray[Any] = np.array([*column.cat.categories, None], dtype=object)
    return np.asarray(labels[np.asarray(column.cat.codes)])


def _written_like(values: NDArray[Any], present: NDArray[Any]) -> NDArray[Any]:
    """Values as the present entries of a column are written: the model may know truth values or numbers as texts."""
    kind = type(present[0]) if present.size else object
    if issubclass(kind, bool | np.bool_):
        truth = {"true": True, "false": False}
        return np.array([truth.get(str(x).lower(), x) for x in values], dtype=object)
    if issubclass(kind, str):
        return np.array([None if x is None else str(x) for x in values], dtype=object)
    return values


def _like(column: Any, values: NDArray[Any], index: Any) -> Any:
    """Values as a column of the type that it had, where they fit it."""
    import pandas

    categories = getattr(column.dtype, "categories", None)
    if categories is not None:  # a value may be new to this frame, and known to the model as the text of a label
        label = {str(each): each for each in categories}
        entries = [x if pandas.isna(x) else label.setdefault(str(x), x) for x in values]
        dtype = pandas.CategoricalDtype(list(label.values()), column.dtype.ordered)
        return pandas.Series(entries, index=index, name=column.name, dtype=dtype)
    made = pandas.Series(values, index=index, name=column.name)
    try:
        return made.astype(column.dtype)
    except (TypeError, ValueError):
        return made.infer_objects()
