"""The exact value of a state of the query: the hidden variables are summed out with the query fixed.

The order is looked for once, in the graph of the hidden variables alone, and everything that does not depend on the
state is laid out in flat arrays: for each bucket its axes, its parts and their strides. The message of a bucket is
kept. A state that differs from the last one in some variables costs only the buckets that mention them and those above.
There are two places for each message, so that a change can be tried and taken back at no cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, LongArray
from margmap.foundation.jit import interprets, kernel
from margmap.foundation.pairs import EPS
from margmap.network.log_model import LogModel
from margmap.network.order import MIN_FILL, MIN_WEIGHT, best_order, graph_of, interpreted_order

#: A stop flag that nobody sets.
GO_ON = np.zeros(2, dtype=np.int64)

#: The log of how many entries a first state is scored with at once, so that another order is not worth its time.
LIGHT = float(np.log(1 << 20))


class Layout(NamedTuple):
    """The buckets of the hidden variables and the tables in flat arrays; query-only tables are buckets without axes."""

    #: All log tables one after the other, then the two places of each message.
    data: FloatArray
    #: Bucket b has the axes ``axis_at[b]`` to ``axis_at[b + 1]``, the summed one last, of these lengths.
    axis_at: LongArray
    length: LongArray
    #: Bucket b has the parts ``part_at[b]`` to ``part_at[b + 1]``. Part p begins at ``offset[p]`` of the data if it is
    #: a table; it is the message of bucket ``child[p]`` if that is not -1.
    part_at: LongArray
    offset: LongArray
    child: LongArray
    #: Part p has one stride for each axis of its bucket, from ``stride_at[p]`` on.
    stride_at: LongArray
    stride: LongArray
    #: Part p has query variables ``known_at[p]`` to ``known_at[p + 1]``, each with its stride.
    known_at: LongArray
    known: LongArray
    known_stride: LongArray
    #: Where the two messages of a bucket are; the bucket that its message goes to, -1 for none.
    message: LongArray
    parent: LongArray
    #: Query variable v is mentioned by the buckets ``use_at[v]`` to ``use_at[v + 1]``.
    use_at: LongArray
    use: LongArray
    cardinality: LongArray
    #: Entries that each bucket works through.
    work: LongArray


class Outline(NamedTuple):
    """An order of the hidden variables; for each its context, its tables, the buckets it hears and the one it tells.

    Tables without hidden variables come last, each a bucket of its own.
    """

    order: list[int]
    contexts: list[tuple[int, ...]]
    members: list[list[int]]
    children: list[list[int]]
    parent: list[int]

    def work(self, model: LogModel) -> int:
        """Entries to work through for one state."""
        return sum(model.size((*context, v)) for context, v in zip(self.contexts, self.order, strict=True))

    def room(self, model: LogModel) -> int:
        """Bytes of the arrays: the tables and two messages a bucket."""
        return 8 * (model.entries + 2 * sum(model.size(context) for context in self.contexts))


def outline(model: LogModel, seconds: float = 0.5, check: Callable[[], None] | None = None) -> Outline:
    """Plan the scoring of a model: an order of its hidden variables and the buckets along it.

    With no seconds for it and no machine code loaded yet, it is one that is there before that would be.
    """
    hidden = model.hidden
    order = hidden_order(model, hidden, seconds, check)
    position = {v: i for i, v in enumerate(order)}
    count = len(order)
    members: list[list[int]] = [[] for _ in range(count)]
    alone: list[int] = []
    for number, factor in enumerate(model.factors):
        places = [position[v] for v in factor.scope if v in position]
        if places:
            members[min(places)].append(number)
        else:
            alone.append(number)
    children: list[list[int]] = [[] for _ in range(count)]
    contexts: list[tuple[int, ...]] = []
    parent: list[int] = []
    for i, v in enumerate(order):
        scope = {u for number in members[i] for u in model.factors[number].scope if u in position}
        for c in children[i]:
            scope.update(contexts[c])
        scope.discard(v)
        context = tuple(sorted(scope, key=lambda u: -position[u]))
        contexts.append(context)
        above = min((position[u] for u in context), default=-1)
        parent.append(above)
        if above >= 0:
            children[above].append(i)
    return Outline(order, contexts, members + [[number] for number in alone], children, parent)


def hidden_order(model: LogModel, hidden: Sequence[int], seconds: float, check: Callable[[], None] | None) -> list[int]:
    """An elimination order of the hidden variables when the query is fixed."""
    if not hidden:
        return []
    place = {v: i for i, v in enumerate(hidden)}
    scopes = [[place[v] for v in factor.scope if v in place] for factor in model.factors]
    graph = graph_of([model.cardinality[v] for v in hidden], [s for s in scopes if s])
    if seconds == 0 and interprets():
        found = interpreted_order(graph, MIN_WEIGHT)
        if found is not None and found.log_entries > LIGHT:
            found = min(found, interpreted_order(graph, MIN_FILL) or found, key=lambda order: order.log_entries)
    else:
        found = best_order(graph, seconds=seconds, watch=check)
    assert found is not None
    return [hidden[i] for i in found.variables]


def layout(model: LogModel, buckets: Outline) -> Layout:
    """The arrays of a plan."""
    order, contexts, members, children, parent = buckets
    start = np.concatenate([[0], np.cumsum([factor.table.size for factor in model.factors])]).astype(np.int64)
    axis_at, length, part_at, offset, child = [0], [], [0], [], []
    stride_at, stride, known_at, known, known_stride = [0], [], [0], [], []
    uses: list[list[int]] = [[] for _ in model.cardinality]
    message, work, size = [], [], 0
    for b, numbers in enumerate(members):
        axes = (*contexts[b], order[b]) if b < len(order) else ()
        length += [model.cardinality[v] for v in axes]
        axis_at.append(len(length))
        for number in numbers:
            factor = model.factors[number]
            steps = dict(zip(factor.scope, _strides(factor.table.shape), strict=True))
            offset.append(int(start[number]))
            child.append(-1)
            stride += [steps.get(v, 0) for v in axes]
            stride_at.append(len(stride))
            for v in factor.scope:
                if v not in axes:
                    known.append(v)
                    known_stride.append(steps[v])
                    if not uses[v] or uses[v][-1] != b:
                        uses[v].append(b)
            known_at.append(len(known))
        for c in children[b] if b < len(order) else ():
            steps = dict(zip(contexts[c], _strides([model.cardinality[v] for v in contexts[c]]), strict=True))
            offset.append(0)
            child.append(c)
            stride += [steps.get(v, 0) for v in axes]
            stride_at.append(len(stride))
            known_at.append(len(known))
        part_at.append(len(offset))
        message.append(int(start[-1]) + size)
        size += 2 * model.size(axes[:-1])  # 1 for a bucket without axes
        work.append(model.size(axes))
    data = np.zeros(int(start[-1]) + size)  # whose pages are taken when messages are written
    for number, factor in enumerate(model.factors):
        data[start[number] : start[number + 1]] = factor.table.reshape(-1)
    use_at = np.concatenate([[0], np.cumsum([len(use) for use in uses])])
    return Layout(
        data,
        _long(axis_at),
        _long(length),
        _long(part_at),
        _long(offset),
        _long(child),
        _long(stride_at),
        _long(stride),
        _long(known_at),
        _long(known),
        _long(known_stride),
        _long(message),
        _long([*parent, *([-1] * (len(members) - len(parent)))]),
        _long(use_at.tolist()),
        _long([b for use in uses for b in use]),
        _long(model.cardinality),
        _long(work),
    )


def _long(values: Sequence[int]) -> LongArray:
    return np.array(values, dtype=np.int64)


def _strides(shape: Sequence[int]) -> list[int]:
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return steps[::-1]


class Scorer:
    """Scores states of a model; each costs only what differs from the state that was kept last."""

    def __init__(self, model: LogModel, buckets: Outline | None = None) -> None:
        self.model, self.plan = model, layout(model, outline(model) if buckets is None else buckets)
        count = self.plan.parent.size
        #: Which of the two messages and values of each bucket belongs to the state that was kept last.
        self.which = np.zeros(count, dtype=np.int64)
        self.value = np.zeros((2, count))
        self.dirty = np.zeros(count, dtype=np.bool_)
        self.state = np.zeros(len(model.cardinality), dtype=np.int64)

    @property
    def work(self) -> int:
        """Table entries to work through for a state from scratch."""
        return int(self.plan.work.sum())

    @cached_property
    def rounding(self) -> float:
        """What rounding can have done to a score, in nats, beyond the model's own.

        Each bucket adds up its parts and sums over one variable; magnitudes are bounded by those of all its tables. A
        message is at most the sum of the largest absolute values of the tables below it plus the log of the number of
        states summed over.
        """
        plan, total = self.plan, 0.0
        at = np.cumsum([0, *(factor.table.size for factor in self.model.factors)])
        tables = plan.data[: at[-1]]
        tops = np.maximum.reduceat(np.where(np.isinf(tables), 0.0, np.abs(tables)), at[:-1]) if at.size > 1 else at[:0]
        largest = dict(zip(at.tolist(), tops.tolist(), strict=False))
        size: list[float] = []
        part_at, child, offset = plan.part_at.tolist(), plan.child.tolist(), plan.offset.tolist()
        axis_at, length, roots = plan.axis_at.tolist(), plan.length.tolist(), 0.0
        for b, parent in enumerate(plan.parent.tolist()):
            parts = range(part_at[b], part_at[b + 1])
            last = length[axis_at[b + 1] - 1] if axis_at[b + 1] > axis_at[b] else 1
            size.append(math.log(last) + sum(largest[offset[p]] if child[p] < 0 else size[child[p]] for p in parts))
            total += EPS * (len(parts) + 4 + last) * (1 + size[b])
            roots += size[b] if parent < 0 else 0.0
        return total + 2 * EPS * (abs(self.model.log_constant) + roots)

    def score(self, state: LongArray, stop: LongArray | None = None) -> float:
        """The log value of a state (an entry for each variable; those of hidden variables do not matter), kept."""
        self.state[:] = state
        self.dirty[:] = True
        evaluate(self.plan, self.state, self.dirty, self.which, self.value, GO_ON if stop is None else stop)
        accept(self.dirty, self.which)
        return self.kept

    @property
    def kept(self) -> float:
        """The log value of the state that was kept last."""
        values = self.value[self.which, np.arange(self.which.size)]
        return math.fsum([self.model.log_constant, *values.tolist()]) if np.isfinite(values).all() else -np.inf


def _steps(plan: Layout, _state: LongArray, dirty: NDArray[np.bool_], *_: object) -> float:
    """Roughly how much the dirty buckets take, in entries gone through one by one: numpy goes through tables."""
    return float(plan.work[dirty].sum() / 20 + 40 * np.count_nonzero(dirty))


def _evaluate_by_numpy(
    plan: Layout, state: LongArray, dirty: NDArray[np.bool_], which: LongArray, value: FloatArray, stop: LongArray
) -> tuple[int, float]:
    """The same where it is interpreted: a bucket's table at once."""
    impossible, change, data = 0, 0.0, plan.data
    for b in np.flatnonzero(dirty).tolist():
        if stop[0] != 0:
            return impossible, change
        # The variable that is summed out is the first axis here: numpy is slow at many short sums along the last.
        shape = np.roll(plan.length[plan.axis_at[b] : plan.axis_at[b + 1]], 1).tolist()
        table = np.zeros(shape)
        for p in range(plan.part_at[b], plan.part_at[b + 1]):
            c = int(plan.child[p])
            if c >= 0:
                end = plan.message[c + 1] if c + 1 < plan.message.size else data.size
                place = plan.message[c] + (which[c] ^ int(dirty[c])) * ((end - plan.message[c]) // 2)
            else:
                known = slice(plan.known_at[p], plan.known_at[p + 1])
                place = plan.offset[p] + int(state[plan.known[known]] @ plan.known_stride[known])
            steps = np.roll(8 * plan.stride[plan.stride_at[p] : plan.stride_at[p + 1]], 1)
            table += np.ndarray(shape, np.float64, data, 8 * place, steps.tolist())
        if shape:
            top = table.max(axis=0, keepdims=True)
            top[np.isinf(top)] = 0.0
            table -= top
            table = np.exp(table, out=table).sum(axis=0, keepdims=True)
            np.log(table, out=table)
            table += top
        begin = plan.message[b] + (which[b] ^ 1) * table.size
        data[begin : begin + table.size] = table.reshape(-1)
        if plan.parent[b] < 0:
            old, new = float(value[which[b], b]), float(data[begin])
            value[which[b] ^ 1, b] = new
            impossible += (new == -np.inf) - (old == -np.inf)
            change += (new if new > -np.inf else 0.0) - (old if old > -np.inf else 0.0)
    return impossible, change


@kernel(work=_steps, interpreted=_evaluate_by_numpy)
def evaluate(
    plan: Layout, state: LongArray, dirty: NDArray[np.bool_], which: LongArray, value: FloatArray, stop: LongArray
) -> tuple[int, float]:
    """Compute all dirty buckets into their other place; the children of a bucket have smaller numbers.

    What changes at the buckets that send no message: how many more of them are impossible (log 0), and by how much the
    sum of the others grows. Ends half-way if ``stop`` is set.
    """
    impossible, change = 0, 0.0
    data = plan.data
    index = np.zeros(64, dtype=np.int64)
    for b in range(plan.parent.size):
        if not dirty[b]:
            continue
        if stop[0] != 0:
            return impossible, change
        first = plan.part_at[b]
        count = plan.part_at[b + 1] - first
        a0 = plan.axis_at[b]
        axes = plan.axis_at[b + 1] - a0
        k = plan.length[a0 + axes - 1] if axes > 0 else 1
        at, step = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
        row, base = np.empty(k), np.zeros(k)
        parts = 0
        for p in range(first, first + count):
            c = plan.child[p]
            if c >= 0:
                half = ((plan.message[c + 1] if c + 1 < plan.message.size else data.size) - plan.message[c]) // 2
                place = plan.message[c] + (which[c] ^ (1 if dirty[c] else 0)) * half
            else:
                place = plan.offset[p]
                for j in range(plan.known_at[p], plan.known_at[p + 1]):
                    place += state[plan.known[j]] * plan.known_stride[j]
            begin = plan.stride_at[p]
            fixed = True
            for i in range(axes - 1):
                fixed = fixed and plan.stride[begin + i] == 0
            last = plan.stride[begin + axes - 1] if axes > 0 else 0
            if fixed:  # the same in all contexts
                for x in range(k):
                    base[x] += data[place + x * last]
            else:
                at[parts], step[parts] = place, p
                parts += 1
        half = 1
        if axes > 0:
            half = ((plan.message[b + 1] if b + 1 < plan.message.size else data.size) - plan.message[b]) // 2
        target = plan.message[b] + (which[b] ^ 1) * half
        for i in range(axes):
            index[i] = 0
        for r in range(half):
            if r & 1023 == 1023 and stop[0] != 0:
                return impossible, change
            top = -np.inf
            for x in range(k):
                row[x] = base[x]
            for p in range(parts):
                last = plan.stride[plan.stride_at[step[p]] + axes - 1]
                for x in range(k):
                    row[x] += data[at[p] + x * last]
            for x in range(k):
                top = max(top, row[x])
            if axes == 0 or top == -np.inf:
                data[target + r] = top
            else:
                total = 0.0
                for x in range(k):
                    total += np.exp(row[x] - top)
                data[target + r] = top + np.log(total)
            i = axes - 2  # the next context: the last axis but one runs fastest
            while i >= 0:
                index[i] += 1
                if index[i] < plan.length[a0 + i]:
                    for p in range(parts):
                        at[p] += plan.stride[plan.stride_at[step[p]] + i]
                    break
                index[i] = 0
                for p in range(parts):
                    at[p] -= plan.stride[plan.stride_at[step[p]] + i] * (plan.length[a0 + i] - 1)
                i -= 1
        if plan.parent[b] < 0:
            old, new = value[which[b], b], data[target]
            value[which[b] ^ 1, b] = new
            if old == -np.inf:
                impossible -= 1
            else:
                change -= old
            if new == -np.inf:
                impossible += 1
            else:
                change += new
    return impossible, change


@kernel
def mark(plan: Layout, variable: int, dirty: NDArray[np.bool_]) -> None:
    """Mark the buckets whose value depends on a query variable."""
    for u in range(plan.use_at[variable], plan.use_at[variable + 1]):
        b = plan.use[u]
        while b >= 0 and not dirty[b]:
            dirty[b] = True
            b = plan.parent[b]


@kernel
def accept(dirty: NDArray[np.bool_], which: LongArray) -> None:
    """Keep what was computed last."""
    for b in range(dirty.size):
        if dirty[b]:
            which[b] ^= 1
            dirty[b] = False
