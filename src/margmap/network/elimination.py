"""Variable elimination on a network, without a circuit: sums over the hidden variables, then maxima over the query.

With the hidden variables eliminated first, what is left is a maximum over products of tables, and elimination goes on
with max in place of sum (bucket elimination; Dechter, 1999). Only one table at a time is needed, and the best value for
each context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, IntArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import raised
from margmap.network.compile import Bucket, Prediction, bucket_table, log_tables, sum_out
from margmap.network.log_model import largest_finite
from margmap.network.relevance import Problem

ByteArray: TypeAlias = NDArray[np.uint8]


class Eliminated(NamedTuple):
    """The best state of the query, as codes, and what is known of it."""

    state: list[int]
    log_prob: float
    log_evidence: float
    #: No state has a larger log probability; all rounding is in it.
    log_upper: float


def eliminate(
    problem: Problem, plan: Prediction, asked: Sequence[int], watch: Callable[[int, int], None]
) -> Eliminated:
    """The most likely state of the columns asked for, by a plan that has all others first.

    ``watch`` is called after every table; it may raise.
    """
    return _Elimination(problem, plan, asked, watch).answer()


def bytes_of(plan: Prediction, problem: Problem) -> int:
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

    def answer(self) -> Eliminated:
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
        codes = {v: int(self.problem.values[v][x]) for v, x in index.items()}
        codes |= {v: x for v, x in self.problem.fixed.items() if v in wanted}
        # The constant is the same for all states: only what is added to it afterwards can hide a better one.
        log_prob = self._score(index) + self.problem.log_constant
        log_upper = raised(log_max, self.problem.log_constant, rounding + self.problem.rounding)
        return Eliminated([codes[v] for v in self.asked], log_prob, log_evidence + self.problem.log_constant, log_upper)

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
