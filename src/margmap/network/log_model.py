"""Log tables over numbered variables, some to be maximised and the others to be summed: what hard queries work on.

A :class:`~margmap.network.relevance.Problem` speaks of a network's columns and of possible values among others. Here
its variables are numbered from 0, their values too, and tables are natural logarithms whose largest entry is 0, so that
they keep their digits. ``rounding`` bounds, in nats, what the log of any product, sum or maximum of the tables can be
away from that of the network's own tables.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from margmap.circuit import FloatArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import EPS
from margmap.network.network import Factor
from margmap.network.relevance import Problem

# So many entries of tables are turned into logarithms together.
_TOGETHER = 1 << 14


class LogFactor(NamedTuple):
    """A table of logarithms with one axis for each variable of ``scope``."""

    scope: tuple[int, ...]
    table: FloatArray


@dataclass(frozen=True)
class LogModel:
    """The sum of log tables and a constant; variables in ``query`` are maximised, the others summed out."""

    #: How many values each variable has.
    cardinality: tuple[int, ...]
    #: Numbers of the variables to be maximised.
    query: frozenset[int]
    factors: tuple[LogFactor, ...]
    log_constant: float
    rounding: float
    #: The share of the rounding that the entries of the tables brought with them; with fewer entries it is less.
    entry_rounding: float = 0.0

    @property
    def hidden(self) -> list[int]:
        """Variables to be summed out, those only that a table mentions."""
        used = {v for factor in self.factors for v in factor.scope}
        return sorted(used - self.query)

    @property
    def entries(self) -> int:
        """Numbers in all tables."""
        return sum(factor.table.size for factor in self.factors)

    def size(self, scope: Iterable[int]) -> int:
        """How many entries a table over these variables has."""
        total = 1
        for v in scope:
            total *= self.cardinality[v]
        return total


def log_model(problem: Problem, asked: Collection[int]) -> LogModel:
    """The open variables of a problem in the order of ``problem.open``, and its tables."""
    number = {column: i for i, column in enumerate(problem.open)}
    factors: list[LogFactor] = []
    constants = [problem.log_constant]
    entries = 0.0
    # Tables are small and many: some thousand entries at a time.
    waiting: list[Factor] = []
    room = 0
    for i, factor in enumerate(problem.factors):
        waiting.append(factor)
        room += factor.table.size
        if room < _TOGETHER and i + 1 < len(problem.factors):
            continue
        sizes = [one.table.size for one in waiting]
        at = np.cumsum([0, *sizes])
        with np.errstate(divide="ignore"):
            logs = np.log(np.concatenate([one.table.reshape(-1) for one in waiting]))
        tops = np.maximum.reduceat(logs, at[:-1])
        logs -= np.repeat(tops, sizes)
        constants += tops.tolist()
        lowest = np.minimum.reduceat(np.where(np.isinf(logs), 0.0, logs), at[:-1])
        entries += _entry_rounding(-lowest)
        for one, first, last in zip(waiting, at[:-1].tolist(), at[1:].tolist(), strict=True):
            table = logs[first:last].reshape(one.table.shape)
            factors.append(LogFactor(tuple([number[v] for v in one.scope]), table))
        waiting, room = [], 0
    # A hidden variable that no table mentions is still summed over.
    mentioned = {v for factor in problem.factors for v in factor.scope}
    alone = [column for column in problem.open if column not in asked and column not in mentioned]
    constants += [math.log(problem.values[column].size) for column in alone]
    constant = math.fsum(constants)
    return LogModel(
        tuple(int(problem.values[column].size) for column in problem.open),
        frozenset(number[column] for column in problem.open if column in asked),
        tuple(factors),
        constant,
        problem.rounding + entries + EPS * (abs(constant) + len(factors)),
        entries,
    )


def _entry_rounding(largest: FloatArray) -> float:
    """How far the sum of one logarithm of each table can be from the exact one; ``largest`` has each one's largest."""
    return float((2 * EPS * (1 + largest)).sum())


def joined(parts: Sequence[LogFactor], axes: Sequence[int], cardinality: Sequence[int]) -> FloatArray:
    """The sum of log tables as one table over ``axes``, which has every variable of theirs."""
    place = {v: i for i, v in enumerate(axes)}
    table = np.zeros([cardinality[v] for v in axes])
    for part in sorted(parts, key=lambda part: part.table.size):
        table += aligned(part, place, len(axes))
    return table


def aligned(part: LogFactor, place: Mapping[int, int], axes: int) -> FloatArray:
    """A table with its axes in the order of ``place`` and axes of length 1 where it lacks a variable."""
    by_place = sorted(range(len(part.scope)), key=lambda i: place[part.scope[i]])
    shape = [1] * axes
    for i in by_place:
        shape[place[part.scope[i]]] = part.table.shape[i]
    return np.asarray(part.table.transpose(by_place).reshape(shape), dtype=np.float64)


def error_of(parts: Sequence[LogFactor], values: int) -> float:
    """A bound on what adding up the parts and summing over so many values can lose, in nats."""
    size = sum(largest_finite(part.table.reshape(-1)) for part in parts) + float(np.log(values))
    return EPS * (len(parts) + 4 + values) * (1 + size)


def conditioned(model: LogModel, known: Mapping[int, int]) -> LogModel:
    """The model with some variables at known values; they are in no table any more."""
    factors, constant, rounding = [], model.log_constant, model.rounding
    for factor in model.factors:
        if not any(v in known for v in factor.scope):
            factors.append(factor)
            continue
        table = np.asarray(factor.table[tuple(known.get(v, slice(None)) for v in factor.scope)])
        scope = tuple(v for v in factor.scope if v not in known)
        if scope:
            factors.append(LogFactor(scope, table))
        else:
            constant += float(table)
            rounding += EPS * abs(constant) if constant > -np.inf else 0.0
    return LogModel(model.cardinality, model.query, tuple(factors), constant, rounding)


def restricted(model: LogModel, values: Mapping[int, Sequence[int] | LongArray]) -> LogModel:
    """The model with fewer values for some variables: value i is then the i-th of those that are left.

    A variable with one value left is in no table any more.
    """
    cardinality = tuple(len(values[v]) if v in values else model.cardinality[v] for v in range(len(model.cardinality)))
    factors, constants, largest = [], [model.log_constant], list[float]()
    for factor in model.factors:
        table = factor.table
        for axis, v in enumerate(factor.scope):
            if v in values:
                table = np.take(table, np.asarray(values[v], dtype=np.int64), axis=axis)
        if model.entry_rounding > 0:
            largest.append(largest_finite(table.reshape(-1)))
        scope = tuple(v for v in factor.scope if cardinality[v] > 1)
        if scope:
            factors.append(LogFactor(scope, table.reshape([cardinality[v] for v in scope])))
        else:
            constants.append(float(table.reshape(-1)[0]))
    constant = -np.inf if -np.inf in constants else math.fsum(constants)
    entries = _entry_rounding(np.array(largest))
    rounding = model.rounding - model.entry_rounding + entries
    rounding += EPS * abs(constant) if constant > -np.inf else 0.0
    return LogModel(cardinality, model.query, tuple(factors), constant, rounding, entries)


def components(model: LogModel, apart: Collection[int] = ()) -> list[list[int]]:
    """Numbers of the factors, grouped by what is connected through variables that are not ``apart``."""
    of: dict[int, int] = {}
    groups: dict[int, list[int]] = {}
    root = list(range(len(model.factors)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for i, factor in enumerate(model.factors):
        for v in factor.scope:
            if v in apart:
                continue
            if v in of:
                root[find(i)] = find(of[v])
            else:
                of[v] = i
    for i in range(len(model.factors)):
        groups.setdefault(find(i), []).append(i)
    return list(groups.values())


@kernel
def largest_finite(values: FloatArray) -> float:
    """The largest absolute value of those that are finite."""
    largest = 0.0
    for x in values:
        if x > -np.inf:
            largest = max(largest, abs(x))
    return largest
