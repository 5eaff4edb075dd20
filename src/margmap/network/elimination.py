"""Variable elimination on a network, without a circuit: sums over the hidden variables, then maxima over the query.

With the hidden variables eliminated first, what is left is a maximum over products of tables, and elimination goes on
with max in place of sum (bucket elimination; Dechter, 1999). Only one table at a time is needed, and the best value for
each context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import raised
from margmap.network.compile import Bucket, Prediction, bucket_parts, log_tables, spread, sum_out
from margmap.network.log_model import largest_finite
from margmap.network.relevance import Problem

ByteArray: TypeAlias = NDArray[np.uint8]
Watch: TypeAlias = Callable[[int, int], None]

# The parts of a table that the kernel adds up, and how many rows it does between two looks at the clock.
_PARTS, _ROWS = 4, 1 << 20


class Eliminated(NamedTuple):
    """The best state of the query, as codes, and what is known of it."""

    state: list[int]
    log_prob: float
    #: No state has a larger log probability; all rounding is in it.
    log_upper: float


def bytes_of(plan: Prediction, problem: Problem) -> int:
    """Memory of the elimination: the table, its maximum and what is being added; and one byte or more a context."""
    chosen = sum(
        int(np.prod([problem.values[v].size for v in bucket.context], dtype=object)) for bucket in plan.buckets
    )
    return 20 * plan.largest + 2 * chosen


class Elimination:
    """Sums over the hidden variables, then maxima over the query, each along one order.

    The plan has all other variables before the columns asked for.
    """

    def __init__(self, problem: Problem, plan: Prediction, asked: Sequence[int]) -> None:
        self.problem, self.plan, self.asked = problem, plan, asked
        self.logs = log_tables(problem)
        self.rounding = 0.0
        # What is left of the hidden variables, for both passes over the query.
        self._constant = 0.0
        self._messages: dict[int, FloatArray] = {}

    def _query(self) -> list[int]:
        wanted = set(self.asked)
        return [i for i, bucket in enumerate(self.plan.buckets) if bucket.variable in wanted]

    def maximum(self, watch: Watch) -> Eliminated:
        """The best state, scored once more on the tables with its values put in.

        ``watch`` is called now and then; it may raise.
        """
        buckets, query, wanted = self.plan.buckets, self._query(), set(self.asked)
        hidden = [i for i, bucket in enumerate(buckets) if bucket.variable not in wanted]
        chosen: dict[int, IntArray | ByteArray] = {}
        self._constant = self._run(hidden, self._messages, None, watch)
        log_max = self._constant + self._run(query, dict(self._messages), chosen, watch)
        rounding = self.rounding
        index: dict[int, int] = {}
        for i in reversed(query):
            context = tuple(index[v] for v in buckets[i].context)
            index[buckets[i].variable] = int(chosen[i][context])
        codes = {v: int(self.problem.values[v][x]) for v, x in index.items()}
        codes |= {v: x for v, x in self.problem.fixed.items() if v in wanted}
        # The constant is the same for all states: only what is added to it afterwards can hide a better one.
        log_prob = self._score(index) + self.problem.log_constant
        log_upper = raised(log_max, self.problem.log_constant, rounding + self.problem.rounding)
        return Eliminated([codes[v] for v in self.asked], log_prob, log_upper)

    def log_evidence(self, watch: Watch) -> float:
        """log p(e): after :meth:`maximum`, the sum over the query in place of its maximum."""
        return self._constant + self._run(self._query(), self._messages, None, watch) + self.problem.log_constant

    def _run(
        self,
        numbers: Sequence[int],
        messages: dict[int, FloatArray],
        chosen: dict[int, IntArray | ByteArray] | None,
        watch: Watch,
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
            message, best = self._eliminated(bucket, messages, maximise=chosen is not None, watch=watch)
            if chosen is not None:
                chosen[i] = best
            for c in bucket.children:
                del messages[c]
            top = float(message.max())
            if top == -np.inf:
                raise self.problem.impossible()
            total += top
            if bucket.context:
                message -= top
                messages[i] = message
            watch(0, 0)
        self.rounding += np.finfo(np.float64).eps * len(numbers) * abs(total)
        return total

    def _eliminated(
        self, bucket: Bucket, messages: Mapping[int, FloatArray], *, maximise: bool, watch: Watch
    ) -> tuple[FloatArray, IntArray | ByteArray]:
        """The message of a bucket and, for a maximum, the best value in each context.

        The table itself is never made: its rows are added up from its parts one after the other.
        """
        axes = (*bucket.context, bucket.variable)
        shape = [self.problem.values[v].size for v in axes]
        parts = bucket_parts(self.problem, self.plan.buckets, bucket, self.logs, messages)
        while len(parts) > _PARTS:
            (scope, array), (other, more) = parts.pop(), parts.pop()
            union = tuple(v for v in axes if v in scope or v in other)
            parts.append((union, spread(scope, array, union) + spread(other, more, union)))
            parts.sort(key=lambda part: -part[1].size)
        parts += [((), np.zeros(()))] * (_PARTS - len(parts))
        steps = np.zeros((_PARTS, len(axes)), dtype=np.int64)
        for i, (scope, array) in enumerate(parts):
            step = array.size
            for v, n in zip(scope, array.shape, strict=True):
                step //= n
                steps[i, axes.index(v)] = step
        a, b, c, d = (np.ascontiguousarray(array).reshape(-1) for _, array in parts)
        rows = math.prod(shape[:-1])
        message = np.empty(rows)
        best = np.empty(rows if maximise else 0, dtype=np.uint8 if shape[-1] <= 256 else np.int32)
        lengths = np.array(shape, dtype=np.int64)
        for first in range(0, rows, _ROWS):
            _rows_out(a, b, c, d, steps, lengths, first, min(rows, first + _ROWS), maximise, message, best)
            watch(0, 0)
        return message.reshape(shape[:-1]), best.reshape(shape[:-1]) if maximise else best

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
def _rows_out(
    a: FloatArray,
    b: FloatArray,
    c: FloatArray,
    d: FloatArray,
    steps: LongArray,
    lengths: LongArray,
    first: int,
    last: int,
    maximise: bool,
    message: FloatArray,
    best: IntArray | ByteArray,
) -> None:
    """The maximum, or the log of the sum, of some rows of a table that is the sum of four parts.

    ``steps`` has a row for each part: by how much its place changes with each of the table's axes.
    """
    axes = lengths.size
    k = lengths[axes - 1]
    index = np.zeros(axes, dtype=np.int64)
    at = np.zeros(4, dtype=np.int64)
    rest = first
    for i in range(axes - 2, -1, -1):
        index[i] = rest % lengths[i]
        rest //= lengths[i]
        for p in range(4):
            at[p] += index[i] * steps[p, i]
    a0, b0, c0, d0 = at[0], at[1], at[2], at[3]
    a1, b1, c1, d1 = steps[0, axes - 1], steps[1, axes - 1], steps[2, axes - 1], steps[3, axes - 1]
    row = np.empty(k)
    for r in range(first, last):
        top, where = -np.inf, 0
        for x in range(k):
            value = a[a0 + x * a1] + b[b0 + x * b1] + c[c0 + x * c1] + d[d0 + x * d1]
            row[x] = value
            if value > top:
                top, where = value, x
        if maximise:
            best[r] = where
        elif top > -np.inf:
            total = 0.0
            for x in range(k):
                total += np.exp(row[x] - top)
            top += np.log(total)
        message[r] = top
        i = axes - 2
        while i >= 0:
            index[i] += 1
            if index[i] < lengths[i]:
                a0 += steps[0, i]
                b0 += steps[1, i]
                c0 += steps[2, i]
                d0 += steps[3, i]
                break
            index[i] = 0
            a0 -= steps[0, i] * (lengths[i] - 1)
            b0 -= steps[1, i] * (lengths[i] - 1)
            c0 -= steps[2, i] * (lengths[i] - 1)
            d0 -= steps[3, i] * (lengths[i] - 1)
            i -= 1
