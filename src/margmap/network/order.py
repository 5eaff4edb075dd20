"""Elimination orders: greedy, by several rules and with seeded ties, the best by predicted size.

Eliminating a variable joins its neighbours. Its *bucket* is the table over the variable and the neighbours it has then;
the predicted size is the number of entries of all buckets, which bounds the work and the number of sum edges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np

from margmap.circuit import FloatArray, LongArray
from margmap.circuit.arrays import Bits
from margmap.foundation.bits import popcount
from margmap.foundation.jit import kernel

MIN_FILL, MIN_WEIGHT, MIN_WEIGHTED_FILL = 0, 1, 2
RULES = ("min-fill", "min-weight", "weighted min-fill")
ALL_RULES = (MIN_FILL, MIN_WEIGHT, MIN_WEIGHTED_FILL)

#: Tries with random ties, after one of each rule; and the seconds after which no new one is begun.
TRIES = 60
SECONDS = 2.0


class Order(NamedTuple):
    """An order in which to eliminate variables, and what it costs."""

    #: Numbers of the variables, first to last.
    variables: tuple[int, ...]
    #: The largest number of variables in a bucket, less one: the width of the order.
    width: int
    #: Natural log of the number of entries of all buckets, and of the largest one.
    log_entries: float
    log_largest: float
    #: The rule that found it.
    rule: str


class Graph(NamedTuple):
    """Which variables share a table, as bits, and the logs of their numbers of values: all that an order depends on."""

    adjacent: Bits
    log_card: FloatArray


def graph_of(cardinality: Sequence[int], scopes: Sequence[Sequence[int]]) -> Graph:
    """The graph of factors over ``scopes``."""
    n = len(cardinality)
    adjacent = np.zeros((n, max(1, -(-n // 64))), dtype=np.uint64)
    by_length: dict[int, list[Sequence[int]]] = {}
    for scope in scopes:
        by_length.setdefault(len(scope), []).append(scope)
    for length, some in by_length.items():
        rows = np.array(some, dtype=np.int64).reshape(len(some), length)
        for i in range(length):
            for j in range(length):
                if i != j:
                    bits = np.uint64(1) << (rows[:, j] & 63).astype(np.uint64)
                    np.bitwise_or.at(adjacent, (rows[:, i], rows[:, j] >> 6), bits)
    return Graph(adjacent, np.log(np.asarray(cardinality, dtype=np.float64)))


def find_order(
    cardinality: Sequence[int],
    scopes: Sequence[Sequence[int]],
    last: Sequence[int] = (),
    *,
    tries: int = TRIES,
    seconds: float = SECONDS,
    seed: int = 0,
    watch: Callable[[], None] | None = None,
) -> Order:
    """The best order found for factors over ``scopes``; variables in ``last`` come after all others.

    ``watch`` is called before every try; it may raise.
    """
    return best_order(graph_of(cardinality, scopes), last, tries=tries, seconds=seconds, seed=seed, watch=watch)


def best_order(
    graph: Graph,
    last: Sequence[int] = (),
    *,
    tries: int = TRIES,
    seconds: float = SECONDS,
    seed: int = 0,
    watch: Callable[[], None] | None = None,
    rules: Sequence[int] = ALL_RULES,
) -> Order:
    """The same for a graph that is there already; ``rules`` are used in turn."""
    adjacent, log_card = graph
    n = log_card.size
    group = np.zeros(n, dtype=np.int64)
    group[list(last)] = 1
    begun = time.perf_counter()
    best: Order | None = None
    for attempt in range(tries + len(rules)):
        if watch is not None:
            watch()
        rule = rules[attempt % len(rules)]
        limit = np.inf if best is None else best.log_entries - 1e-12
        done, order, width, entries, largest = _eliminate(
            adjacent.copy(), log_card, group, rule, limit, seed * 7919 + attempt
        )
        if done:
            best = Order(tuple(order.tolist()), int(width), float(entries), float(largest), RULES[rule])
        if (attempt + 1 >= len(rules) or seconds < SECONDS) and time.perf_counter() - begun > seconds:
            break
        if best is not None and best.width <= 1:
            break  # a forest: no order has a smaller width
    assert best is not None
    return best


@kernel
def _members(bits: Bits, found: LongArray) -> int:
    count = 0
    for w in range(bits.size):
        word = bits[w]
        while word != 0:
            low = word & (~word + np.uint64(1))
            found[count] = 64 * w + popcount(low - np.uint64(1))
            count += 1
            word ^= low
    return count


@kernel
def _score(adjacent: Bits, log_card: FloatArray, v: int, rule: int, around: LongArray) -> float:
    """What eliminating ``v`` now would cost by the rule."""
    count = _members(adjacent[v], around)
    if rule == MIN_WEIGHT:
        total = log_card[v]
        for i in range(count):
            total += log_card[around[i]]
        return float(total)
    cost = 0.0
    for i in range(count):
        u = around[i]
        for w in range(adjacent.shape[1]):
            lacking = adjacent[v, w] & ~adjacent[u, w]
            if w == u >> 6:
                lacking &= ~(np.uint64(1) << np.uint64(u & 63))
            if lacking != 0:
                if rule == MIN_FILL:
                    cost += popcount(lacking)
                else:
                    while lacking != 0:
                        low = lacking & (~lacking + np.uint64(1))
                        cost += np.exp(log_card[u] + log_card[64 * w + popcount(low - np.uint64(1))])
                        lacking ^= low
    return cost


def _steps(_adjacent: Bits, log_card: FloatArray, group: LongArray, *_: object) -> float:
    """Roughly how many steps an order takes: with some variables last, those before them join large neighbourhoods."""
    n = log_card.size
    return float(n * n * (10 + (n / 8 if group.any() else 0)))


def interpreted_order(graph: Graph, rule: int, most: float = np.inf) -> Order | None:
    """One order by a rule (not the weighted one) without machine code: there before that would be loaded.

    None if a table would have more entries than the log ``most`` says.
    """
    log_card: list[float] = graph.log_card.tolist()
    near = [int.from_bytes(row.tobytes(), "little") for row in graph.adjacent.astype("<u8")]
    around = [set(_bits(row)) for row in near]

    def cost(v: int) -> float:
        if rule == MIN_WEIGHT:
            return sum([log_card[u] for u in around[v]], log_card[v])
        return sum([(near[v] & ~near[u]).bit_count() - 1 for u in around[v]])

    latest = [cost(v) for v in range(len(near))]
    waiting = [(latest[v], v) for v in range(len(near))]
    heapify(waiting)
    order, sizes, width = list[int](), list[float](), 0
    while waiting:
        now, v = heappop(waiting)
        if now != latest[v]:
            continue
        size = sum([log_card[u] for u in around[v]], log_card[v])
        if size > most:
            return None
        order.append(v)
        sizes.append(size)
        width = max(width, len(around[v]))
        changed = set(around[v])
        for u in around[v]:
            if rule != MIN_WEIGHT and len(around[v] - around[u]) > 1:  # a new edge may be one that another one lacked
                changed |= around[u]
            near[u] = (near[u] | near[v]) & ~(1 << u | 1 << v)
        for u in around[v]:
            around[u] |= around[v]
            around[u] -= {u, v}
        latest[v] = np.nan
        for u in changed - {v}:
            latest[u] = cost(u)
            heappush(waiting, (latest[u], u))
    return Order(tuple(order), width, float(np.logaddexp.reduce(sizes)), max(sizes, default=0.0), RULES[rule])


def _bits(word: int) -> Iterator[int]:
    while word:
        low = word & -word
        yield low.bit_length() - 1
        word ^= low


@kernel(work=_steps)
def _eliminate(
    adjacent: Bits, log_card: FloatArray, group: LongArray, rule: int, limit: float, seed: int
) -> tuple[bool, LongArray, int, float, float]:
    """One greedy order with random ties; given up once its log size passes ``limit``."""
    np.random.seed(seed % 4294967296)  # noqa: NPY002 - the kernel's own generator, not numpy's global one
    n = log_card.size
    order = np.zeros(n, dtype=np.int64)
    gone = np.zeros(n, dtype=np.bool_)
    stale = np.ones(n, dtype=np.bool_)
    score = np.zeros(n)
    around, other = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    width, largest, entries = 0, 0.0, -np.inf
    first_left = 0
    for v in range(n):
        first_left += group[v] == 0
    for step in range(n):
        now = 0 if step < first_left else 1
        chosen, ties, low = -1, 0, np.inf
        for v in range(n):
            if gone[v] or group[v] != now:
                continue
            if stale[v]:
                score[v] = _score(adjacent, log_card, v, rule, other)
                stale[v] = False
            if score[v] < low * (1 - 1e-9) or chosen < 0:
                chosen, ties, low = v, 1, score[v]
            elif score[v] <= low * (1 + 1e-9):
                ties += 1
                if np.random.random() * ties < 1:  # noqa: NPY002
                    chosen = v
        v = chosen
        order[step] = v
        gone[v] = True
        count = _members(adjacent[v], around)
        size = log_card[v]
        for i in range(count):
            size += log_card[around[i]]
        width, largest = max(width, count), max(largest, size)
        top = max(entries, size)
        entries = top + np.log(np.exp(entries - top) + np.exp(size - top))
        if entries > limit:
            return False, order, width, entries, largest
        for i in range(count):
            u = around[i]
            filled = False
            for w in range(adjacent.shape[1]):
                added = adjacent[v, w] & ~adjacent[u, w]
                if w == u >> 6:
                    added &= ~(np.uint64(1) << np.uint64(u & 63))
                if added != 0:
                    filled = True
                    adjacent[u, w] |= added
            adjacent[u, v >> 6] &= ~(np.uint64(1) << np.uint64(v & 63))
            stale[u] = True
            if filled and rule != MIN_WEIGHT:
                # A new edge at u may be one that a common neighbour was lacking.
                for j in range(_members(adjacent[u], other)):
                    stale[other[j]] = True
    return True, order, width, entries, largest
