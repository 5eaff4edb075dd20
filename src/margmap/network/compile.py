"""Compile a network to a circuit: variable elimination that writes down what it adds and multiplies.

Eliminating v from its bucket, with context S (the other variables of the bucket), computes the table

    W[s, x] = product of the bucket's factors and of its children's messages,     message m[s] = sum over x of W[s, x].

The circuit has one node for each s with m[s] > 0: the sum over x of W[s, x] / m[s] times [v = x] times the nodes of the
children at their contexts. Equal rows (same weights, same children) make one node, so zeros, repeated parameters and
contexts that do not matter cost nothing in the circuit. The scopes are the subtrees of the bucket tree: the circuit is
smooth, decomposable, structured and deterministic. All tables are logs, so nothing underflows.

Compiled for one query, a bucket without query variables below it only passes its message on. If the hidden variables
can be eliminated first within the limit, the rest is deterministic over the query and solving it takes one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import INDICATOR, PRODUCT, SUM, Circuit, FloatArray, IntArray, KindArray, LongArray, Name
from margmap.circuit.model import as_network
from margmap.circuit.observation import Observation
from margmap.errors import LimitError, QueryError
from margmap.foundation.jit import kernel
from margmap.network.network import Network
from margmap.network.order import (
    SECONDS,
    TRIES,
    Graph,
    Order,
    best_order,
    graph_of,
)
from margmap.network.relevance import Problem
from margmap.network.virtual import with_virtual_evidence

#: Edges a circuit may have unless told otherwise: with the arrays that queries add, they fit in 8 GB.
MAX_EDGES = 1 << 26

#: Table entries that may be worked through for each edge of the limit; equal rows and zeros leave far fewer edges.
ENTRIES_PER_EDGE = 4

#: Predictions of this many times the entries that are allowed are out of reach, whatever the order or the limit.
HOPELESS = 1 << 12

# Hidden variables go first even if that costs this much more, or in any case up to this many entries.
CONSTRAINED_FACTOR = 8
CONSTRAINED_FREE = 1 << 22

# Log weights closer than this count as equal when nodes are shared: a few roundings of numbers near 1.
_QUANTA = float(1 << 46)

OnTable: TypeAlias = Callable[[int, int], None]
T = TypeVar("T", bound=np.generic)


class Bucket(NamedTuple):
    """A variable, the other variables of its table (last eliminated first), and what is multiplied in it."""

    variable: int
    context: tuple[int, ...]
    factors: tuple[int, ...]
    children: tuple[int, ...]
    #: Whether a query variable lies in it or below, so that it makes nodes.
    live: bool


@dataclass(frozen=True)
class Prediction:
    """What compiling will cost, known before any table is multiplied."""

    #: The width of the elimination order: the most variables that a table has besides the one it eliminates.
    width: int
    #: Entries of all tables; the circuit has at most this many sum edges, and mostly far fewer.
    entries: int
    #: Entries of the largest table.
    largest: int
    #: Edges of the circuit if no two nodes were equal.
    edges: int
    #: How the order was found, and whether hidden variables come first.
    order: str
    #: Bytes at the peak of compilation, for the tables alone.
    memory: int
    buckets: tuple[Bucket, ...] = field(repr=False)

    def __str__(self) -> str:
        return f"width {self.width}, {amount(self.entries)} table entries, at most {amount(self.edges)} edges"


def predict(
    network: object,
    query: Sequence[Name] | None = None,
    evidence: Mapping[Any, Observation] | None = None,
    *,
    seed: int = 0,
) -> Prediction:
    """The width and size of :func:`compile` with the same arguments."""
    problem, asked, _ = _problem(as_network(network), query, evidence)
    return plan_of(problem, asked, seed, MAX_EDGES)


def compile(
    network: object,
    query: Sequence[Name] | None = None,
    evidence: Mapping[Any, Observation] | None = None,
    *,
    max_edges: int | None = None,
    seed: int = 0,
    on_table: OnTable | None = None,
    plan: Prediction | None = None,
) -> Circuit:
    """The circuit of a network: smooth, decomposable, structured, deterministic if compiled for all queries.

    Without ``query`` and ``evidence`` it has all variables and answers everything. With them it is made for that query
    alone, and smaller: its variables are those queried and observed, and its values are p(query, evidence), the others
    summed out. (``query=None`` with evidence asks for all that is not observed.) A Markov network's circuit is not
    normalised: ``log_marginal(circuit)`` is the log of its partition function.

    The network may be a model of pgmpy. ``max_edges`` limits the circuit; before the work begins, the tables to work
    through are compared with four times as much. ``on_table(done, total)`` is called after each table with entries
    done and in all. ``plan`` is what :func:`predict` found for the same arguments, so that the order is not looked for
    again.
    """
    network, limit = as_network(network), checked_limit(max_edges)
    problem, asked, observed = _problem(network, query, evidence)
    one_query = query is not None or problem.observed
    included = asked | set(observed) if one_query else set(range(len(network.variables)))
    if not included:
        raise QueryError("nothing is queried or observed: the circuit would have no variables")
    plan = plan or plan_of(problem, asked, seed, limit)
    return compile_planned(problem, plan, included, limit, on_table, one_query=one_query)


def compile_planned(
    problem: Problem, plan: Prediction, included: set[int], limit: int, watch: OnTable | None, *, one_query: bool
) -> Circuit:
    """The circuit over the columns ``included``, in their order, by a plan for this very problem."""
    if plan.entries > ENTRIES_PER_EDGE * limit:
        raise LimitError(too_large(plan, limit, one_query=one_query, network=problem.network))
    return _Builder(problem, plan, included, limit, watch).circuit()


def _problem(
    network: Network, query: Sequence[Name] | None, evidence: Mapping[Any, Observation] | None
) -> tuple[Problem, set[int], dict[int, int]]:
    observed = network.observed(evidence)
    asked = network.asked(query, observed)
    given = with_virtual_evidence(network, observed)
    assert isinstance(given.model, Network)
    problem = Problem(given.model, None if query is None and not observed else asked, given.observed)
    problem.log_constant += given.log_factor
    return problem, set(asked), {column: value for column, value in observed.items() if column in given.observed}


def plan_of(problem: Problem, asked: set[int], seed: int, max_edges: int) -> Prediction:
    """The cheaper of an order without constraint and one with the hidden variables first."""
    free, first = plans(problem, asked, seed)
    if first is None:
        return free
    allowed = min(ENTRIES_PER_EDGE * max_edges, max(CONSTRAINED_FREE, CONSTRAINED_FACTOR * free.entries))
    return first if first.entries <= max(allowed, free.entries) else free


def plans(
    problem: Problem,
    asked: set[int],
    seed: int = 0,
    seconds: float = SECONDS,
    watch: Callable[[], None] | None = None,
    tries: int = TRIES,
    graph: Graph | None = None,
) -> tuple[Prediction, Prediction | None]:
    """Two ways to compile: any order, and one with the hidden variables first (None if that is no different).

    For each, no new order is tried after so many ``tries`` or ``seconds``. ``watch`` is called now and then; it may
    raise. ``graph`` is that of the problem, if it was made before.
    """
    columns = problem.open
    place = {column: i for i, column in enumerate(columns)}
    graph = graph or problem_graph(problem)
    wanted = [place[column] for column in columns if column in asked]

    def planned(order: Order, how: str) -> Prediction:
        return _buckets(problem, [columns[i] for i in order.variables], asked, f"{order.rule}{how}")

    best = partial(best_order, graph, tries=tries, seed=seed, seconds=seconds, watch=watch)
    free = planned(best(), "")
    if len(wanted) in (0, len(columns)):
        return free, None
    return free, planned(best(wanted), ", hidden variables first")


def problem_graph(problem: Problem) -> Graph:
    """The graph of a problem's open columns, in their order."""
    place = {column: i for i, column in enumerate(problem.open)}
    cardinality = [problem.values[column].size for column in problem.open]
    return graph_of(cardinality, [[place[v] for v in factor.scope] for factor in problem.factors])


def _buckets(problem: Problem, order: Sequence[int], asked: set[int], rule: str) -> Prediction:
    """The bucket tree along an order and its size in exact numbers."""
    position = {column: i for i, column in enumerate(order)}
    size = {column: int(problem.values[column].size) for column in order}
    factors: list[list[int]] = [[] for _ in order]
    for number, factor in enumerate(problem.factors):
        factors[min(position[v] for v in factor.scope)].append(number)
    children: list[list[int]] = [[] for _ in order]
    buckets: list[Bucket] = []
    entries = edges = largest = width = held = memory = 0
    for i, v in enumerate(order):
        scope = {u for number in factors[i] for u in problem.factors[number].scope}
        for c in children[i]:
            scope.update(buckets[c].context)
        scope.discard(v)
        context = tuple(sorted(scope, key=lambda u: -position[u]))
        live = v in asked or any(buckets[c].live for c in children[i])
        buckets.append(Bucket(v, context, tuple(factors[i]), tuple(children[i]), live))
        rows = math.prod(size[u] for u in context)
        table = rows * size[v]
        entries, largest, width = entries + table, max(largest, table), max(width, len(context))
        if live:
            parts = sum(buckets[c].live for c in children[i]) + (v in asked)
            edges += table * (1 + (parts if parts > 1 else 0))
        memory = max(memory, held + table * (32 if live else 20))
        held += 12 * rows - sum(12 * math.prod(size[u] for u in buckets[c].context) for c in children[i])
        if context:
            children[min(position[u] for u in context)].append(i)
    return Prediction(width, entries, largest, edges, rule, memory, tuple(buckets))


def checked_limit(max_edges: int | None) -> int:
    """The limit asked for, or the usual one."""
    limit = MAX_EDGES if max_edges is None else max_edges
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise QueryError(f"max_edges={max_edges!r}: give a positive whole number")
    return limit


def too_large(
    plan: Prediction, limit: int, *, one_query: bool, hint: str | None = None, network: Network | None = None
) -> str:
    """Why a network is refused: its width, the predicted size, and what could help."""
    if hint is None and one_query:
        hint = "observe more variables, query fewer"
    elif hint is None:
        hint = "compile for one query (pass query and evidence), which drops what does not matter to it"
    allowed = ENTRIES_PER_EDGE * limit
    if network is not None and one_query:
        names = ", ".join(str(network.variables[v].name) for v in crowded(plan, network))
        hint += f" (most of the large tables have {names})"
    # Where thousands of times as much would be needed, that is no help.
    more = ", or raise max_edges (--max-edges)" if plan.entries <= HOPELESS * allowed else ""
    return (
        f"the network is too wide: width {plan.width}, {amount(plan.entries)} table entries predicted "
        f"(about {amount(plan.memory)} bytes at once), but max_edges={limit} allows "
        f"{amount(allowed)}; {hint}{more}"
    )


def crowded(plan: Prediction, network: Network, most: int = 3) -> list[int]:
    """The columns that are in the largest tables of a plan most often: observed, they would make it smaller."""
    sizes = [math.prod(network.variables[v].cardinality for v in (*b.context, b.variable)) for b in plan.buckets]
    largest = max(sizes, default=1)
    count: dict[int, int] = {}
    for bucket, size in zip(plan.buckets, sizes, strict=True):
        if size * 16 >= largest:
            for v in (*bucket.context, bucket.variable):
                count[v] = count.get(v, 0) + 1
    return sorted(count, key=lambda v: (-count[v], v))[:most]


def amount(number: int) -> str:
    """A count that may be astronomically large, in few characters."""
    if number < 1_000_000:
        return str(number)
    exponent = math.log10(number)
    return f"{10 ** (exponent % 1):.2f}e{int(exponent)}"


def log_tables(problem: Problem) -> list[FloatArray]:
    """The logs of all factors."""
    with np.errstate(divide="ignore"):
        return [np.log(factor.table) for factor in problem.factors]


def bucket_table(
    problem: Problem,
    buckets: Sequence[Bucket],
    bucket: Bucket,
    logs: Sequence[FloatArray],
    messages: Mapping[int, FloatArray],
) -> FloatArray:
    """log W of a bucket, over its context and, last, its variable."""
    axes = (*bucket.context, bucket.variable)
    table = np.zeros([problem.values[v].size for v in axes])
    for scope, array in bucket_parts(problem, buckets, bucket, logs, messages):
        table += spread(scope, array, axes)
    return table


def bucket_parts(
    problem: Problem,
    buckets: Sequence[Bucket],
    bucket: Bucket,
    logs: Sequence[FloatArray],
    messages: Mapping[int, FloatArray],
) -> list[tuple[tuple[int, ...], FloatArray]]:
    """What the table of a bucket is the sum of, the largest first; scopes are in the order of the bucket's axes.

    Small tables are added up among themselves, as far as one contains the other.
    """
    axes = (*bucket.context, bucket.variable)
    place = {v: i for i, v in enumerate(axes)}
    entries = math.prod(problem.values[v].size for v in axes)
    parts: list[tuple[tuple[int, ...], FloatArray]] = []
    for number in bucket.factors:
        scope = problem.factors[number].scope
        by_axis = sorted(range(len(scope)), key=lambda i: place[scope[i]])
        parts.append((tuple(scope[i] for i in by_axis), logs[number].transpose(by_axis)))
    parts += [(buckets[c].context, messages[c]) for c in bucket.children]
    parts.sort(key=lambda part: -part[1].size)
    merged: list[tuple[tuple[int, ...], FloatArray]] = []
    for scope, array in parts:
        for i, (larger, added) in enumerate(merged):
            if set(scope) <= set(larger) and added.size < entries:
                merged[i] = (larger, added + spread(scope, array, larger))
                break
        else:
            merged.append((scope, array))
    return merged


class _Builder:
    """Goes up the bucket tree and collects nodes, children before parents."""

    def __init__(
        self, problem: Problem, plan: Prediction, included: set[int], max_edges: int, on_table: OnTable | None
    ) -> None:
        self.problem, self.plan, self.max_edges, self.on_table = problem, plan, max_edges, on_table
        self.columns = sorted(included)
        self.kinds: list[KindArray] = []
        self.fan_in: list[LongArray] = []
        self.child: list[IntArray] = []
        self.weight: list[FloatArray] = []
        self.nodes = self.edges = 0
        # The indicators come first, one for each possible value of each variable that the circuit has.
        self.leaf_var: list[int] = []
        self.leaf_value: list[int] = []
        self.first_leaf: dict[int, int] = {}
        for place, column in enumerate(self.columns):
            self.first_leaf[column] = len(self.leaf_var)
            values = problem.values[column].tolist()
            self.leaf_var += [place] * len(values)
            self.leaf_value += values
        leaves = len(self.leaf_var)
        self._add(INDICATOR, np.zeros(leaves, dtype=np.int64), np.zeros(0, dtype=np.int32), np.zeros(0))

    def circuit(self) -> Circuit:
        """Compile all buckets and put the parts below one root."""
        logs = log_tables(self.problem)
        messages: dict[int, FloatArray] = {}
        nodes: dict[int, IntArray] = {}
        log_total = self.problem.log_constant
        done = 0
        roots: list[int] = []
        for number, bucket in enumerate(self.plan.buckets):
            table = bucket_table(self.problem, self.plan.buckets, bucket, logs, messages)
            shape = table.shape[:-1]
            rows = table.reshape(-1, table.shape[-1])
            message = sum_out(rows, not bucket.live).reshape(shape)
            if bucket.live:
                nodes[number] = self._nodes(bucket, rows, table.shape, nodes).reshape(shape)
            for c in bucket.children:
                messages.pop(c, None)
                nodes.pop(c, None)
            top = float(message.max())
            if top == -np.inf:
                raise self.problem.impossible()
            if abs(top) > 1:  # keeps digits: logs far from 0 have fewer behind the point
                log_total += top
                message -= top
            if bucket.context:
                messages[number] = message
            else:
                log_total += float(message)
                if bucket.live:
                    roots.append(int(nodes.pop(number)))
            done += rows.size
            del table, rows
            if self.on_table is not None:
                self.on_table(done, self.plan.entries)
        roots += [self.first_leaf[column] for column in self.columns if column in self.problem.fixed]
        self._root(roots, log_total)
        return self._assemble()

    def _nodes(self, bucket: Bucket, rows: FloatArray, shape: tuple[int, ...], nodes: dict[int, IntArray]) -> IntArray:
        """One node for each row that is alive (-1 elsewhere), equal rows sharing one."""
        axes = (*bucket.context, bucket.variable)
        leaf = self.first_leaf.get(bucket.variable, -1)
        below = [c for c in bucket.children if self.plan.buckets[c].live]
        count = rows.shape[1]
        # The product at each entry: which leaf, then which node of each child in turn; equal ones get one number.
        start = np.arange(count, dtype=np.int32) if leaf >= 0 else np.zeros(count, dtype=np.int32)
        key = _copied(start, rows.shape)
        steps: list[tuple[IntArray, IntArray]] = []
        flat = rows.reshape(-1)
        for c in below:
            ids = _copied(spread(self.plan.buckets[c].context, nodes[c], axes), shape)
            key, found = _intern_pairs(key, ids, flat)
            steps.append(found)
        width = len(below) + (leaf >= 0)
        made = int(steps[-1][0].size) if steps else count
        at = np.arange(made, dtype=np.int32)
        parts = np.zeros((made, width), dtype=np.int32)
        for i in range(len(steps) - 1, -1, -1):
            left, right = steps[i]
            parts[:, i + (leaf >= 0)] = right[at]
            at = left[at]
        if leaf >= 0:
            parts[:, 0] = leaf + at
        if width == 1:
            product = parts[:, 0].copy()
        else:
            product = self._add(PRODUCT, np.full(made, width), parts.reshape(-1), np.zeros(parts.size))
        row, first, sums, edges = _intern_rows(rows, key.reshape(rows.shape))
        self._room(edges)
        node, fan_in, child, weight = _sums(rows, key.reshape(rows.shape), first, product, int(sums), int(edges))
        numbers = self._add(SUM, fan_in, child, weight)
        single = node >= 0
        node[~single] = numbers
        return _look_up(row, node)

    def _root(self, roots: list[int], log_total: float) -> None:
        root = roots[0]
        if len(roots) > 1:
            children = np.array(roots, dtype=np.int32)
            root = int(self._add(PRODUCT, np.array([len(roots)]), children, np.zeros(len(roots)))[0])
        # Without evidence the tables of a Bayesian network sum to 1, and what is left of the log is rounding.
        exact = self.problem.network.kind == "bayes" and not self.problem.observed
        if not exact or root != self.nodes - 1:
            weight = np.array([0.0 if exact else log_total])
            self._add(SUM, np.array([1]), np.array([root], dtype=np.int32), weight)

    def _add(self, kind: int, fan_in: LongArray, child: IntArray, weight: FloatArray) -> IntArray:
        """Append nodes of one kind and return their numbers."""
        self._room(child.size)
        self.kinds.append(np.full(fan_in.size, kind, dtype=np.int8))
        self.fan_in.append(fan_in)
        self.child.append(child)
        self.weight.append(weight)
        numbers = np.arange(self.nodes, self.nodes + fan_in.size, dtype=np.int32)
        self.nodes += fan_in.size
        self.edges += child.size
        return numbers

    def _room(self, more: int) -> None:
        if self.edges + more > self.max_edges:
            raise LimitError(
                f"the circuit has passed max_edges={self.max_edges} edges while being compiled "
                f"(width {self.plan.width}, {amount(self.plan.entries)} table entries): "
                "compile for one query, observe more, or raise max_edges (--max-edges)"
            )

    def _assemble(self) -> Circuit:
        """The nodes that the root uses."""
        kind, fan_in = np.concatenate(self.kinds), np.concatenate(self.fan_in)
        child, weight = np.concatenate(self.child), np.concatenate(self.weight)
        self.child.clear()
        self.weight.clear()
        start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(fan_in)))
        keep = _reachable(start, child)
        var, value = np.full(kind.size, -1, dtype=np.int32), np.zeros(len(self.leaf_value))
        var[: len(self.leaf_var)] = self.leaf_var
        value[:] = self.leaf_value
        number = np.cumsum(keep, dtype=np.int32) - 1
        edges = np.repeat(keep, fan_in)
        child, weight = number[child[edges]], weight[edges]
        kind, fan_in, var = kind[keep], fan_in[keep], var[keep]
        value = value[keep[: value.size]]
        variables = [self.problem.network.variables[column] for column in self.columns]
        return Circuit(
            variables,
            kind,
            np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(fan_in))),
            child,
            weight,
            var,
            np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(kind == INDICATOR))),
            value,
        )


def spread(scope: tuple[int, ...], array: NDArray[T], axes: tuple[int, ...]) -> NDArray[T]:
    """A view of an array over ``scope`` that broadcasts over ``axes``; both list variables in the same order."""
    sizes = dict(zip(scope, array.shape, strict=True))
    return array.reshape([sizes.get(v, 1) for v in axes])


def _copied(array: IntArray, shape: tuple[int, ...]) -> IntArray:
    """The array broadcast to a shape, flat: always a fresh one, so that kernels see one type only."""
    return np.array(np.broadcast_to(array, shape)).reshape(-1)


@kernel
def sum_out(rows: FloatArray, message_only: bool) -> FloatArray:
    """The log of each row's sum; unless only that is wanted, the rows are divided by it in place."""
    n, k = rows.shape
    message = np.empty(n)
    for i in range(n):
        top = rows[i, 0]
        for x in range(1, k):
            top = max(top, rows[i, x])
        if top == -np.inf:
            message[i] = -np.inf
            continue
        total = 0.0
        for x in range(k):
            total += np.exp(rows[i, x] - top)
        message[i] = top + np.log(total)
        if not message_only:
            for x in range(k):
                rows[i, x] -= message[i]
    return message


@kernel
def _mixed(h: np.uint64) -> np.uint64:
    h ^= h >> np.uint64(30)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(27)
    h *= np.uint64(0x94D049BB133111EB)
    h ^= h >> np.uint64(31)
    return h


@kernel
def _intern_pairs(
    left: IntArray, right: IntArray, log_weight: FloatArray
) -> tuple[IntArray, tuple[IntArray, IntArray]]:
    """Number the distinct pairs in order of appearance; entries of weight 0 get -1."""
    n = left.size
    number = np.empty(n, dtype=np.int32)
    size = 1024
    slots = np.full(size, -1, dtype=np.int32)
    found_left, found_right = np.empty(512, dtype=np.int32), np.empty(512, dtype=np.int32)
    count = 0
    for i in range(n):
        if log_weight[i] == -np.inf:
            number[i] = -1
            continue
        a, b = left[i], right[i]
        slot = np.int64(_mixed((np.uint64(a) << np.uint64(32)) ^ np.uint64(b)) & np.uint64(size - 1))
        while True:
            at = slots[slot]
            if at < 0 or (found_left[at] == a and found_right[at] == b):
                break
            slot = (slot + 1) & (size - 1)
        if at < 0:
            if count == found_left.size:
                size *= 4
                slots = np.full(size, -1, dtype=np.int32)
                for j in range(count):
                    key = (np.uint64(found_left[j]) << np.uint64(32)) ^ np.uint64(found_right[j])
                    place = np.int64(_mixed(key) & np.uint64(size - 1))
                    while slots[place] >= 0:
                        place = (place + 1) & (size - 1)
                    slots[place] = j
                found_left = _longer(found_left, size // 2)
                found_right = _longer(found_right, size // 2)
                slot = np.int64(_mixed((np.uint64(a) << np.uint64(32)) ^ np.uint64(b)) & np.uint64(size - 1))
                while slots[slot] >= 0:
                    slot = (slot + 1) & (size - 1)
            at = np.int32(count)
            slots[slot] = at
            found_left[count], found_right[count] = a, b
            count += 1
        number[i] = at
    return number, (found_left[:count].copy(), found_right[:count].copy())


@kernel
def _longer(array: IntArray, size: int) -> IntArray:
    longer = np.empty(size, dtype=np.int32)
    longer[: array.size] = array
    return longer


@kernel
def _quantum(log_weight: float) -> int:
    """A whole number that is the same for log weights equal but for rounding."""
    if log_weight == -np.inf:
        return -(1 << 62)
    return int(np.rint(max(log_weight, -30000.0) * _QUANTA))


@kernel
def _row_hash(rows: FloatArray, key: IntArray, i: int) -> np.uint64:
    h: np.uint64 = np.uint64(0x9E3779B97F4A7C15)
    for x in range(rows.shape[1]):
        if rows[i, x] > -np.inf:
            h = _mixed(h ^ np.uint64(np.int64(_quantum(rows[i, x]))))
            h += np.uint64(key[i, x]) * np.uint64(0xD6E8FEB86659FD93)
        else:
            h = _mixed(h + np.uint64(1))
    return h


@kernel
def _same_row(rows: FloatArray, key: IntArray, i: int, j: int) -> bool:
    for x in range(rows.shape[1]):
        a, b = rows[i, x], rows[j, x]
        if (a == -np.inf) != (b == -np.inf):
            return False
        if a > -np.inf and (key[i, x] != key[j, x] or (a != b and (a < -30000 or _quantum(a) != _quantum(b)))):
            return False
    return True


@kernel
def _intern_rows(rows: FloatArray, key: IntArray) -> tuple[IntArray, LongArray, int, int]:
    """Number the distinct rows that are not zero; the first of each; how many need a sum, with how many edges."""
    n = rows.shape[0]
    number = np.empty(n, dtype=np.int32)
    size = 1024
    slots = np.full(size, -1, dtype=np.int32)
    first = np.empty(512, dtype=np.int64)
    count, sums, edges = 0, 0, 0
    for i in range(n):
        alive = 0
        for x in range(rows.shape[1]):
            alive += rows[i, x] > -np.inf
        if alive == 0:
            number[i] = -1
            continue
        slot = np.int64(_row_hash(rows, key, i) & np.uint64(size - 1))
        while slots[slot] >= 0 and not _same_row(rows, key, i, first[slots[slot]]):
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            if count == first.size:
                size *= 4
                slots = np.full(size, -1, dtype=np.int32)
                for j in range(count):
                    place = np.int64(_row_hash(rows, key, first[j]) & np.uint64(size - 1))
                    while slots[place] >= 0:
                        place = (place + 1) & (size - 1)
                    slots[place] = j
                longer = np.empty(size // 2, dtype=np.int64)
                longer[:count] = first
                first = longer
                slot = np.int64(_row_hash(rows, key, i) & np.uint64(size - 1))
                while slots[slot] >= 0:
                    slot = (slot + 1) & (size - 1)
            slots[slot] = count
            first[count] = i
            count += 1
            if alive > 1:
                sums += 1
                edges += alive
        number[i] = slots[slot]
    return number, first[:count].copy(), sums, edges


@kernel
def _sums(
    rows: FloatArray, key: IntArray, first: LongArray, product: IntArray, sums: int, edges: int
) -> tuple[IntArray, LongArray, IntArray, FloatArray]:
    """For each distinct row its product if it has only one, -1 if it needs a sum; and those sums."""
    node = np.empty(first.size, dtype=np.int32)
    fan_in = np.empty(sums, dtype=np.int64)
    child, weight = np.empty(edges, dtype=np.int32), np.empty(edges)
    s, e = 0, 0
    for j in range(first.size):
        i = first[j]
        begun = e
        only = -1
        alive = 0
        for x in range(rows.shape[1]):
            if rows[i, x] > -np.inf:
                alive += 1
                only = product[key[i, x]]
        if alive == 1:
            node[j] = only
            continue
        for x in range(rows.shape[1]):
            if rows[i, x] > -np.inf:
                child[e], weight[e] = product[key[i, x]], rows[i, x]
                e += 1
        fan_in[s] = e - begun
        s += 1
        node[j] = -1
    return node, fan_in, child, weight


@kernel
def _look_up(row: IntArray, node: IntArray) -> IntArray:
    found = np.empty(row.size, dtype=np.int32)
    for i in range(row.size):
        found[i] = node[row[i]] if row[i] >= 0 else -1
    return found


@kernel
def _reachable(start: LongArray, child: IntArray) -> NDArray[np.bool_]:
    keep = np.zeros(start.size - 1, dtype=np.bool_)
    keep[-1] = True
    for n in range(keep.size - 1, -1, -1):
        if keep[n]:
            for e in range(start[n], start[n + 1]):
                keep[child[e]] = True
    return keep
