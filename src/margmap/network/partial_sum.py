"""Sum out the hidden variables that are cheap, before anything else is tried.

Greedy elimination: of the hidden variables that are left, the one whose joined table is the smallest goes first, as
long as that table has at most ``limit`` entries. If none is left, what remains is a maximum over a product of tables:
a cost function network, for which there are strong solvers. Otherwise the few that remain are the hard part, and
whatever follows starts from a much smaller model.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

import numpy as np

from margmap.errors import ImpossibleEvidenceError
from margmap.foundation.pairs import EPS
from margmap.network.compile import sum_out
from margmap.network.log_model import LogFactor, LogModel, aligned, error_of, joined, largest_finite


def sum_out_cheap(model: LogModel, limit: int, check: Callable[[], None] = lambda: None) -> LogModel:
    """The model without the hidden variables whose elimination makes tables of at most ``limit`` entries.

    ``check`` is called before every elimination; it may raise. Variables keep their numbers.
    """
    alive: dict[int, LogFactor] = dict(enumerate(model.factors))
    using: dict[int, set[int]] = {}
    for number, factor in alive.items():
        for v in factor.scope:
            using.setdefault(v, set()).add(number)
    constants, rounding, fresh = [model.log_constant], model.rounding, len(alive)

    def bucket(v: int) -> set[int]:
        return {u for number in using[v] for u in alive[number].scope}

    version: dict[int, int] = {}
    heap: list[tuple[int, int, int]] = []

    def push(v: int) -> None:
        version[v] = version.get(v, -1) + 1
        size = model.size(bucket(v))
        if size <= limit:
            heapq.heappush(heap, (size, v, version[v]))

    for v in using:
        if v not in model.query:
            push(v)
    while heap:
        _, v, seen = heapq.heappop(heap)
        if version[v] != seen:
            continue
        check()
        parts = [alive.pop(number) for number in using[v]]
        context = sorted(bucket_of(parts) - {v}, key=lambda u: (u in model.query, u))
        table = joined(parts, [*context, v], model.cardinality)
        message = sum_out(table.reshape(-1, table.shape[-1]), True).reshape(table.shape[:-1])
        rounding += error_of(parts, model.cardinality[v])
        top = float(message.max())
        if top == -np.inf:
            raise ImpossibleEvidenceError("no state of the query is possible under the evidence")
        constants.append(top)
        message -= top
        for number in using.pop(v):
            for u in context:
                using[u].discard(number)
        version[v] += 1
        if context:
            alive[fresh] = LogFactor(tuple(context), message)
            for u in context:
                using[u].add(fresh)
            fresh += 1
        for u in context:
            if u not in model.query:
                push(u)
    kept, lost = absorbed(list(alive.values()))
    constant = math.fsum(constants)
    rounding += EPS * (abs(constant) + len(model.factors)) + lost
    return LogModel(model.cardinality, model.query, kept, constant, float(rounding))


def bucket_of(parts: list[LogFactor]) -> set[int]:
    """All variables of some tables."""
    return {u for part in parts for u in part.scope}


def absorbed(factors: list[LogFactor]) -> tuple[tuple[LogFactor, ...], float]:
    """The same product with tables added into larger ones that have all their variables, and what rounding can lose."""
    kept: list[LogFactor] = []
    lost = 0.0
    at: dict[int, list[int]] = {}
    for factor in sorted(factors, key=lambda factor: -len(factor.scope)):
        scope = set(factor.scope)
        rarest = min((at.get(v, []) for v in scope), key=len)
        for number in rarest:
            into = kept[number]
            if scope <= set(into.scope):
                place = {v: i for i, v in enumerate(into.scope)}
                kept[number] = LogFactor(into.scope, into.table + aligned(factor, place, len(into.scope)))
                lost += EPS * (largest_finite(into.table.reshape(-1)) + largest_finite(factor.table.reshape(-1)))
                break
        else:
            for v in factor.scope:
                at.setdefault(v, []).append(len(kept))
            kept.append(factor)
    return tuple(kept), lost
