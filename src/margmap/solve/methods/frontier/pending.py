"""What a sweep keeps of constraints: for each of its steps, the rows that are open there and what they still allow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from margmap.circuit import FloatArray, IntArray, LongArray
from margmap.solve.methods.frontier.scope_tree import Plan
from margmap.solve.query_circuit import Flat
from margmap.solve.rows import UNLIMITED, Rows
from margmap.solve.supports import Flags


class Pending(NamedTuple):
    """The rows by step of the sweep; step g looks at the entries from ``entry_at[g]`` to ``entry_at[g + 1]``.

    A step joins two blocks of variables, or begins with one variable. Of each row that has variables in the new block
    it needs to know what the two parts use.
    """

    entry_at: LongArray
    #: The column of the row among those open after the first part, and after the second; -1 if it is not there. For a
    #: step that begins with a variable, ``first`` is the line of ``cost``.
    first: IntArray
    second: IntArray
    #: The column among those open after this step; -1 for a row that has all of its variables in the block.
    keep: IntArray
    #: What the block may use of the row at least and at most, so that some completion can satisfy it.
    low: LongArray
    high: LongArray
    #: Used at least so much, the lower end is met by every completion; at most so much, the upper end is.
    free_low: LongArray
    free_high: LongArray
    #: How many rows are open after each step.
    open: LongArray
    cost: LongArray
    #: By variable and value: the logarithm of what the prices have taken from the literal.
    toll: FloatArray


class Uses(NamedTuple):
    """What some vectors use, at least and at most, of the rows that are open at their step, and their tolls."""

    low: LongArray
    high: LongArray
    toll: FloatArray


class Use(NamedTuple):
    """The same of one vector."""

    low: LongArray
    high: LongArray
    toll: float


def pending_rows(flat: Flat, plan: Plan, rows: Rows, can: Flags, toll: FloatArray) -> Pending:
    """The rows as the sweep over a plan meets them; ``can`` are the literals that are left."""
    step_at = np.concatenate(([0], np.cumsum(np.maximum(1, np.diff(plan.part_at) - 1))))
    entries: list[list[tuple[int, ...]]] = [[] for _ in range(int(step_at[-1]))]
    parts = [plan.part[plan.part_at[s] : plan.part_at[s + 1]].tolist() for s in range(plan.part_at.size - 1)]
    _fill(entries, flat, plan, rows, can, parts, step_at.tolist())
    entry_at = np.concatenate(([0], np.cumsum([len(e) for e in entries]))).astype(np.int64)
    table = np.array([entry for step in entries for entry in step], dtype=np.int64).reshape(-1, 7)
    first, second, keep = (np.ascontiguousarray(table[:, i], dtype=np.int32) for i in range(3))
    low, high, free_low, free_high = (np.ascontiguousarray(table[:, i]) for i in range(3, 7))
    left = np.array([sum(entry[2] >= 0 for entry in step) for step in entries], dtype=np.int64)
    return Pending(entry_at, first, second, keep, low, high, free_low, free_high, left, rows.cost, toll)


def _fill(
    entries: list[list[tuple[int, ...]]],
    flat: Flat,
    plan: Plan,
    rows: Rows,
    can: Flags,
    parts: list[list[int]],
    step_at: list[int],
) -> None:
    """Append to each step its entries, going up the tree of scopes."""
    cheapest = np.where(can[rows.var], rows.cost, 2 * UNLIMITED).min(axis=1)
    dearest = np.where(can[rows.var], rows.cost, -1).max(axis=1)
    low, high = rows.low.tolist(), rows.high.tolist()
    least = np.add.reduceat(cheapest, rows.at[:-1]).tolist()
    most = np.add.reduceat(dearest, rows.at[:-1]).tolist()
    mentioned: dict[int, list[tuple[int, int]]] = {}
    for r in range(rows.number):
        for i in range(int(rows.at[r]), int(rows.at[r + 1])):
            mentioned.setdefault(int(rows.var[i]), []).append((r, i))
    # Of each block: for each of its open rows the column, and what it uses at least and at most.
    Block = dict[int, tuple[int, int, int]]
    blocks: dict[int, Block] = {}

    def closed(step: int, found: dict[int, tuple[int, int, int, int]]) -> Block:
        """Write the entries of a step: row -> (first, second, least, most) inside of the block."""
        block: Block = {}
        for r, (first, second, inside, inside_most) in found.items():
            rest, rest_most = least[r] - inside, most[r] - inside_most
            keep = -1
            if rest != rest_most:
                keep = len(block)
                block[r] = (keep, inside, inside_most)
            elif low[r] <= inside + rest and inside_most + rest <= high[r]:
                continue
            ends = (low[r] - rest_most, high[r] - rest, low[r] - rest, high[r] - rest_most)
            entries[step].append((first, second, keep, *ends))
        return block

    for s in _upwards(plan, parts):
        if not parts[s]:
            variable = int(flat.var[plan.node[plan.node_at[s]]])
            own = {r: (i, -1, int(cheapest[i]), int(dearest[i])) for r, i in mentioned.get(variable, ())}
            blocks[s] = closed(step_at[s], own)
            continue
        block = blocks.pop(parts[s][0])
        for j, t in enumerate(parts[s][1:]):
            other, found = blocks.pop(t), {}
            nothing = (-1, 0, 0)
            for r in {**block, **other}:
                a, b = block.get(r, nothing), other.get(r, nothing)
                found[r] = (a[0], b[0], a[1] + b[1], a[2] + b[2])
            block = closed(step_at[s] + j, found)
        blocks[s] = block


def _upwards(plan: Plan, parts: list[list[int]]) -> list[int]:
    """The scopes, parts before wholes."""
    order, stack = [], [int(plan.scope[-1])]
    while stack:
        s = stack.pop()
        order.append(s)
        stack.extend(parts[s])
    return order[::-1]
