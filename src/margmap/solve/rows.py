"""Constraints as rows: each says that the costs of a state's literals add up to a number between two bounds.

Every constraint that a user can write is one such row (``docs/algorithms.md``): counts and budgets as they are, a
clause as "at least one", equality of two variables as "the number of the one and the complement of the other's add up
to the largest". Costs are whole numbers of at least 0, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from margmap.circuit import IntArray, LongArray
from margmap.errors import QueryError
from margmap.foundation.jit import kernel
from margmap.solve.supports import Flags

#: What no sum of costs reaches.
UNLIMITED = 1 << 60

# Nodes of the search for any state at all, after which it gives up.
MOST_NODES = 2000


class Rows(NamedTuple):
    """``low[r] <= sum over its entries i of cost[i, value of var[i]] <= high[r]``; row r's entries begin at ``at[r]``.

    A variable is a position in the query and has at most one entry in a row. A row without an upper end has
    ``UNLIMITED`` there.
    """

    at: LongArray
    var: LongArray
    cost: LongArray
    low: LongArray
    high: LongArray

    @property
    def number(self) -> int:
        """How many rows there are."""
        return int(self.low.size)

    def sums(self, states: IntArray) -> LongArray:
        """What each state, a row of codes, uses of each row."""
        parts = self.cost[np.arange(self.var.size), np.asarray(states)[:, self.var]]
        starts = np.concatenate((np.zeros((len(states), 1), np.int64), np.cumsum(parts, axis=1)), axis=1)
        return starts[:, self.at[1:]] - starts[:, self.at[:-1]]

    def allows(self, states: IntArray) -> Flags:
        """Which of some states satisfy all rows."""
        used = self.sums(states)
        return np.asarray(((used >= self.low) & (used <= self.high)).all(axis=1), dtype=np.bool_)

    def choose(self, rows: Sequence[int]) -> Rows:
        """Some of the rows."""
        entries = [np.arange(self.at[r], self.at[r + 1]) for r in rows]
        chosen = np.concatenate([np.zeros(0, np.int64), *entries])
        at = np.concatenate(([0], np.cumsum([e.size for e in entries]))).astype(np.int64)
        return Rows(at, self.var[chosen], self.cost[chosen], self.low[list(rows)], self.high[list(rows)])

    def join(self, other: Rows) -> Rows:
        """These rows and others over the same query."""
        return Rows(
            np.concatenate((self.at, other.at[1:] + self.at[-1])),
            *(np.concatenate(pair) for pair in zip(self[1:], other[1:], strict=True)),
        )


def rows_of(parts: Sequence[tuple[dict[int, list[int]], int, int]], cardinality: IntArray) -> Rows:
    """Rows from the costs of all values by variable, and both ends."""
    values = int(cardinality.max()) if cardinality.size else 1
    at = np.concatenate(([0], np.cumsum([len(costs) for costs, _, _ in parts]))).astype(np.int64)
    var, cost = np.zeros(at[-1], np.int64), np.zeros((at[-1], values), np.int64)
    i = 0
    for costs, _, _ in parts:
        if sum(max(c) for c in costs.values()) >= UNLIMITED:
            raise QueryError("the costs of a constraint add up to more than 2^60 of their common unit: round them")
        for variable, by_value in costs.items():
            var[i], cost[i, : len(by_value)] = variable, by_value
            i += 1
    low, high = (np.array([part[end] for part in parts], np.int64) for end in (1, 2))
    return Rows(at, var, cost, low, high)


def all_values(cardinality: IntArray) -> Flags:
    """By variable and value: whether there is such a value at all."""
    values = int(cardinality.max()) if cardinality.size else 1
    result: Flags = np.arange(values) < cardinality[:, None]
    return result


def propagate(rows: Rows, can: Flags) -> Flags | None:
    """The literals of ``can`` that every row, looked at alone, leaves possible; None if some variable has none left.

    A value goes if even the cheapest values of the other variables make it too much, or the dearest too little; again
    until nothing goes. On clauses this is unit propagation.
    """
    left = can.copy()
    return left if _propagate(rows, left) else None


def some_state(rows: Rows, can: Flags, most_nodes: int = MOST_NODES) -> IntArray | bool:
    """A state that satisfies all rows; False if there is none, True if none was found soon enough to say."""
    stack, nodes = [can], 0
    while stack:
        nodes += 1
        if nodes > most_nodes:
            return True
        left = propagate(rows, stack.pop())
        if left is None:
            continue
        open_variables = np.nonzero(left.sum(axis=1) > 1)[0]
        state: IntArray = left.argmax(axis=1).astype(np.int32)
        if open_variables.size == 0:
            return state
        # A variable that many rows mention decides most.
        mentions = np.bincount(rows.var, minlength=left.shape[0])
        variable = open_variables[np.argmax(mentions[open_variables])]
        if mentions[variable] == 0:  # no row mentions any that is open
            return state
        for value in np.nonzero(left[variable])[0][::-1]:
            part = left.copy()
            part[variable] = False
            part[variable, value] = True
            stack.append(part)
    return False


def conflict(rows: Rows, groups: Sequence[Sequence[int]], can: Flags) -> list[int] | None:
    """A smallest set of groups of rows, by inclusion, that no state satisfies; None if that is not soon known."""
    if some_state(rows, can) is not False:
        return None
    kept = list(range(len(groups)))
    for group in range(len(groups)):
        without = [g for g in kept if g != group]
        if some_state(rows.choose([r for g in without for r in groups[g]]), can) is False:
            kept = without
    return kept


@kernel
def _propagate(rows: Rows, can: Flags) -> bool:
    """Strike literals out in place; whether every variable has one left."""
    for v in range(can.shape[0]):
        any_left = False
        for x in range(can.shape[1]):
            any_left |= can[v, x]
        if not any_left:
            return False
    cheapest, dearest = np.zeros(rows.var.size, dtype=np.int64), np.zeros(rows.var.size, dtype=np.int64)
    changed = True
    while changed:
        changed = False
        for r in range(rows.low.size):
            least, most = np.int64(0), np.int64(0)
            for i in range(rows.at[r], rows.at[r + 1]):
                cheapest[i], dearest[i] = np.int64(1) << np.int64(61), -1
                for x in range(can.shape[1]):
                    if can[rows.var[i], x]:
                        cheapest[i] = min(cheapest[i], rows.cost[i, x])
                        dearest[i] = max(dearest[i], rows.cost[i, x])
                least += cheapest[i]
                most += dearest[i]
            if least > rows.high[r] or most < rows.low[r]:
                return False
            for i in range(rows.at[r], rows.at[r + 1]):
                for x in range(can.shape[1]):
                    if not can[rows.var[i], x]:
                        continue
                    dear = least - cheapest[i] + rows.cost[i, x] > rows.high[r]
                    if dear or most - dearest[i] + rows.cost[i, x] < rows.low[r]:
                        can[rows.var[i], x] = False
                        changed = True
    return True
