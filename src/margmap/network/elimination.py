"""Marginal MAP on a network: compile for the query, or eliminate directly where the hidden variables can go first.

With the hidden variables eliminated first, what is left is a maximum over products of tables, and elimination goes on
with max in place of sum. No circuit is needed, only one table at a time and the best value for each context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Circuit, FloatArray, IntArray, LongArray, Name, Value
from margmap.errors import LimitError, QueryError
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import EPS, raised
from margmap.network.compile import (
    ENTRIES_PER_EDGE,
    MAX_EDGES,
    Bucket,
    Prediction,
    amount,
    bucket_table,
    log_tables,
    plans,
    sum_out,
    too_large,
)
from margmap.network.compile import compile as compile_network
from margmap.network.network import Network
from margmap.network.relevance import ROUNDING, Problem
from margmap.solve.result import TOLERANCE, Limits, Ranked, Result, Stopped, without_state

#: Tables up to this many entries in all are eliminated without a second thought; and what an entry takes.
QUICK_ENTRIES = 1 << 21
SECONDS_PER_ENTRY = 4e-8

#: How much more than compiling elimination may work through and hold: it keeps one table at a time and no nodes.
MORE_ENTRIES = 4
MAX_BYTES = 6 << 30

ByteArray: TypeAlias = NDArray[np.uint8]

# Elimination is preferred to compiling for another order while it costs at most this much more.
_FACTOR = 8


def network_map(
    network: Network,
    query: Sequence[Name] | None,
    evidence: Mapping[Name, Value] | None,
    method: str,
    time_limit: float | None,
    *,
    k: int,
    gap: float,
    memory_limit: int | None = None,
    max_edges: int | None = None,
    **rest: Any,
) -> Result:
    """What :func:`margmap.marginal_map` answers with for a network.

    Planning, compiling and elimination count against the limits. As long as they go on no state has a known
    probability: stopped before their end, the result has none. Its upper bound is that of all Bayesian networks, log 1.
    """
    limits = Limits(time_limit, gap, memory_limit)
    with limits.catching_interrupts(), limits.not_counting_compilation():
        try:
            return _solve(network, query, evidence, method, limits, k, gap, max_edges, rest)
        except Stopped as stopped:
            status = stopped.status
        except MemoryError:  # one table too large for the machine
            status = "memory_limit"
    log_upper = 0.0 if network.kind == "bayes" else np.inf
    return without_state(status, method, limits.clock() - limits.begun, log_upper)


def _solve(
    network: Network,
    query: Sequence[Name] | None,
    evidence: Mapping[Name, Value] | None,
    method: str,
    limits: Limits,
    k: int,
    gap: float,
    max_edges: int | None,
    rest: Mapping[str, Any],
) -> Result:
    from margmap.solve import ROUNDED, marginal_map

    begun = limits.begun
    limit = MAX_EDGES if max_edges is None else max_edges
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise QueryError(f"max_edges={max_edges!r}: give a positive whole number")
    observed = network.observed(evidence)
    asked = network.asked(query, observed)
    known = network.labelled(observed)

    def eliminate(plan: Prediction) -> Result:
        limits.allow(_bytes(plan, problem))
        result = limits.run(lambda stop: _Elimination(problem, plan, asked, _watch(stop)).result(gap), wait=False)
        return replace(result, seconds=limits.clock() - begun)

    if method == "elimination" and k > 1:
        raise QueryError("method 'elimination' finds one state only: for more use auto, which compiles a circuit")
    wanted: list[Any] = [network.variables[column] for column in asked]
    names = wanted
    method = method if asked or method != "elimination" else "auto"  # nothing to find the maximum of
    plan = fallback = None
    if method in ("auto", "elimination") and k == 1 and asked:
        # A tenth of the time may go into the search for good orders.
        seconds = (limits.deadline - begun) / 20

        def planning(stop: LongArray) -> tuple[Problem, tuple[Prediction, Prediction | None]]:
            problem = Problem(network, asked, observed)
            return problem, plans(problem, set(asked), seconds=seconds, watch=lambda: _look(stop))

        problem, (free, first) = limits.run(planning, wait=False)
        first = first or free
        room = first.entries <= MORE_ENTRIES * ENTRIES_PER_EDGE * limit and _bytes(first, problem) <= MAX_BYTES
        cheap = first.entries <= max(QUICK_ENTRIES, _FACTOR * free.entries)
        too_wide = free.entries > ENTRIES_PER_EDGE * limit
        if room and (cheap or too_wide or method == "elimination"):
            result = eliminate(first)
            if result.status == "optimal" or method == "elimination" or first.entries > ENTRIES_PER_EDGE * limit:
                return result
            free, room = first, False  # the tables span so many digits that logarithms cannot tell states apart
        if method == "elimination" or too_wide:
            cheaper = min(first, free, key=lambda plan: plan.entries)
            raise LimitError(too_large(cheaper, limit, one_query=True))
        plan, fallback = free, first if room else None
    # Where elimination would be expensive, the frontier gets as long as it would take.
    deadline = limits.deadline
    if fallback is not None:
        deadline = min(deadline, begun + 1.0 + SECONDS_PER_ENTRY * fallback.entries)
    elif not asked and not observed:
        names = list(network.variables[:1])
    if plan is not None:
        limits.allow(plan.memory)

    def compiling(stop: LongArray) -> Circuit:
        return compile_network(network, names, known, max_edges=limit, on_progress=_watch(stop), plan=plan)

    try:
        compiled = limits.run(compiling, wait=False)
    except LimitError:
        if fallback is None:
            raise
        return eliminate(fallback)
    spent = limits.clock() - begun
    left = None if deadline == np.inf else max(deadline - limits.clock(), 1e-3)
    memory = max(1, int(limits.memory_left())) if limits.holds_memory else None
    result = marginal_map(compiled, wanted, known, method, left, k=k, gap=gap, memory_limit=memory, **rest)
    if fallback is not None and result.status not in ("optimal", "interrupted"):
        # With no time left, or too many digits, what the frontier found still holds.
        with suppress(LimitError, Stopped):
            return eliminate(fallback)
    if result.state is None:
        raise Stopped(result.status)
    details = {**result.details, "compiled": f"{compiled!r} in {spent:.3g} s"}
    rounding = _compile_rounding(network)
    status = "precision_limit" if result.status == "optimal" and rounding > ROUNDED else result.status
    log_upper = raised(result.log_upper, rounding)
    return replace(result, status=status, log_upper=log_upper, seconds=limits.clock() - begun, details=details)


def _compile_rounding(network: Network) -> float:
    """How far, relatively, a value of a compiled circuit can be from the product of the network's tables.

    Each table becomes logarithms, which are added to others a few times, and may be taken apart into factors.
    """
    logs = 0.0
    for factor in network.factors:
        positive = factor.table[factor.table > 0]
        logs += 1 + (max(abs(np.log(positive.min())), abs(np.log(positive.max()))) if positive.size else 0.0)
    return float(16 * EPS * logs + 2 * ROUNDING * len(network.factors))


def _watch(stop: LongArray) -> Callable[[int, int], None]:
    """Called after every table: whoever waited for the work has given it up if the flag is set."""
    return lambda _done, _total: _look(stop)


def _look(stop: LongArray) -> None:
    if stop[0] != 0:
        raise Stopped("interrupted")


def _bytes(plan: Prediction, problem: Problem) -> int:
    """Memory of the elimination: the table, its maximum and what is being added; and one byte or more a context."""
    chosen = sum(
        int(np.prod([problem.values[v].size for v in bucket.context], dtype=object)) for bucket in plan.buckets
    )
    return 20 * plan.largest + 2 * chosen


class _Elimination:
    """Sums over the hidden variables, then maxima over the query, each along one order."""

    def __init__(
        self, problem: Problem, plan: Prediction, asked: Sequence[int], watch: Callable[[int, int], None]
    ) -> None:
        self.problem, self.plan, self.asked, self.watch = problem, plan, asked, watch
        self.logs = log_tables(problem)
        self.rounding = 0.0

    def result(self, gap: float) -> Result:
        """The best state, scored once more on the tables with its values put in."""
        buckets, wanted = self.plan.buckets, set(self.asked)
        messages: dict[int, FloatArray] = {}
        hidden = [i for i, bucket in enumerate(buckets) if bucket.variable not in wanted]
        query = [i for i, bucket in enumerate(buckets) if bucket.variable in wanted]
        chosen: dict[int, IntArray | ByteArray] = {}
        constant = self._run(hidden, messages, None)
        log_max = constant + self._run(query, dict(messages), chosen)
        rounding = self.rounding
        log_evidence = constant + self._run(query, messages, None)
        index: dict[int, int] = {}
        for i in reversed(query):
            context = tuple(index[v] for v in buckets[i].context)
            index[buckets[i].variable] = int(chosen[i][context])
        network = self.problem.network
        codes = {v: int(self.problem.values[v][x]) for v, x in index.items()}
        codes |= {v: x for v, x in self.problem.fixed.items() if v in wanted}
        state = {network.names[v]: network.variables[v].label(codes[v]) for v in self.asked}
        # The constant is the same for all states: only what is added to it afterwards can hide a better one.
        log_prob = self._score(index) + self.problem.log_constant
        log_evidence += self.problem.log_constant
        log_upper = max(raised(log_max, self.problem.log_constant, rounding + self.problem.rounding), log_prob)
        why = f"the hidden variables can go first: width {self.plan.width}, {amount(self.plan.entries)} table entries"
        return Result(
            status="optimal" if log_upper - log_prob <= max(gap, TOLERANCE) else "precision_limit",
            state=state,
            log_prob=log_prob,
            log_conditional=log_prob - log_evidence,
            log_upper=log_upper,
            method="elimination",
            seconds=0.0,
            top=(Ranked(state, log_prob, log_prob - log_evidence),),
            details={"why": why, "width": self.plan.width, "entries": self.plan.entries, "order": self.plan.order},
        )

    def _run(
        self, numbers: Sequence[int], messages: dict[int, FloatArray], chosen: dict[int, IntArray | ByteArray] | None
    ) -> float:
        """Eliminate the variables of some buckets, by maxima if ``chosen`` wants them; the log of the number left.

        ``rounding`` grows by what the additions of a table can lose: for each, half a unit in the last place of
        the largest sum that its parts can have.
        """
        total = 0.0
        for i in numbers:
            bucket = self.plan.buckets[i]
            parts = [self.logs[number] for number in bucket.factors] + [messages[c] for c in bucket.children]
            size = sum(largest_finite(part.reshape(-1)) for part in parts) + np.log(self._cardinality(bucket))
            self.rounding += np.finfo(np.float64).eps * (len(parts) + 4) * size
            table = bucket_table(self.problem, self.plan.buckets, bucket, self.logs, messages)
            shape, rows = table.shape[:-1], table.reshape(-1, table.shape[-1])
            if chosen is None:
                message = sum_out(rows, True).reshape(shape)
            else:
                message, best = _max_out(rows)
                message = message.reshape(shape)
                chosen[i] = (best.astype(np.uint8) if rows.shape[1] <= 256 else best).reshape(shape)
            del table, rows
            for c in bucket.children:
                del messages[c]
            top = float(message.max())
            if top == -np.inf:
                raise self.problem.impossible()
            total += top
            if bucket.context:
                message -= top
                messages[i] = message
            self.watch(0, 0)
        self.rounding += np.finfo(np.float64).eps * len(numbers) * abs(total)
        return total

    def _cardinality(self, bucket: Bucket) -> int:
        return int(self.problem.values[bucket.variable].size)

    def _score(self, index: Mapping[int, int]) -> float:
        """log p(q, e) of one state but for the constant: its values put in, the hidden variables summed out."""
        messages: dict[int, FloatArray] = {}
        buckets, wanted = self.plan.buckets, set(self.asked)
        total = 0.0
        for i, bucket in enumerate(buckets):
            axes = [v for v in (*bucket.context, bucket.variable) if v not in index]
            sizes = {v: self.problem.values[v].size for v in axes}
            table = np.zeros(list(sizes.values()))
            for number in bucket.factors:
                scope = self.problem.factors[number].scope
                left = [v for v in scope if v not in index]
                part = np.asarray(self.logs[number][tuple(index.get(v, slice(None)) for v in scope)])
                part = part.transpose(sorted(range(len(left)), key=lambda a: axes.index(left[a])))
                table = table + part.reshape([sizes[v] if v in left else 1 for v in axes])
            for c in bucket.children:
                context = set(buckets[c].context)
                table = table + messages.pop(c).reshape([sizes[v] if v in context else 1 for v in axes])
            if bucket.variable not in wanted:
                rows = np.ascontiguousarray(table).reshape(-1, table.shape[-1])
                table = sum_out(rows, True).reshape(table.shape[:-1])
            if bucket.context:
                messages[i] = table
            else:
                total += float(table)
        return total


@kernel
def _max_out(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """The largest entry of each row and where it is."""
    n, k = rows.shape
    message, best = np.empty(n), np.empty(n, dtype=np.int32)
    for i in range(n):
        at = 0
        for x in range(1, k):
            if rows[i, x] > rows[i, at]:
                at = x
        message[i], best[i] = rows[i, at], at
    return message, best


@kernel
def largest_finite(values: FloatArray) -> float:
    """The largest absolute value of those that are finite."""
    largest = 0.0
    for x in values:
        if x > -np.inf:
            largest = max(largest, abs(x))
    return largest
