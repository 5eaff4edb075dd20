"""The rules of a question: its constraints looked up in the model, as rows over the query; and what breaks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from margmap.circuit import Circuit, IntArray
from margmap.errors import QueryError
from margmap.network.network import Network
from margmap.solve.constraints import Constraint, parse
from margmap.solve.rows import UNLIMITED, Rows, all_values, conflict, rows_of, some_state

#: Up to so many constraints, a smallest set of those in conflict is looked for.
MOST_IN_CONFLICT = 64


@dataclass(frozen=True)
class Rules:
    """The constraints of one question."""

    #: As they were written, and the rows of each; rows are over positions in the query.
    texts: tuple[str, ...]
    rows: Rows
    cardinality: IntArray
    #: Constraints that the evidence alone violates.
    broken: tuple[str, ...] = ()

    def differing(self, states: Sequence[IntArray], least: int) -> Rows:
        """The rows, and for each of the states that at least so many variables differ from it."""
        parts = []
        for state in states:
            costs = {v: [int(x != state[v]) for x in range(n)] for v, n in enumerate(self.cardinality.tolist())}
            parts.append((costs, least, UNLIMITED))
        return self.rows.join(rows_of(parts, self.cardinality))

    def why_infeasible(self, rows: Rows) -> dict[str, Any]:
        """What to tell of a query without an answer: the constraints in conflict, as far as that is soon known."""
        if self.broken:
            return {"conflict": list(self.broken), "why": "the evidence violates a constraint"}
        can, groups = all_values(self.cardinality), [[r] for r in range(rows.number)]
        if rows.number == len(self.texts) <= MOST_IN_CONFLICT:
            found = conflict(rows, groups, can)
            if found is not None:
                return {"conflict": [self.texts[i] for i in found], "why": "no state satisfies all constraints"}
        known = some_state(rows, can)
        if known is False:
            return {"why": "no state satisfies all constraints"}
        if known is True:
            return {"why": "no state that satisfies all constraints has a probability above 0"}
        return {"why": "there are states that satisfy all constraints, but all of them have probability 0"}


def rules_of(
    model: Circuit | Network, columns: Sequence[int], observed: Mapping[int, Any], constraints: Any
) -> Rules | None:
    """The constraints in terms of the query; None if there are none."""
    if constraints is None:
        return None
    if isinstance(constraints, str | Constraint | Mapping) or not hasattr(constraints, "__iter__"):
        raise QueryError(
            f"constraints={constraints!r}: give a list of constraints, such as mm.constraints.at_most(...)"
        )
    listed = [c if isinstance(c, Constraint) else parse(c) for c in constraints]
    if not listed:
        return None
    reader = _Reader(model, columns, observed)
    parts, broken = [], []
    for constraint in listed:
        costs, low, high = reader.row(constraint)
        if not costs and not low <= 0 <= high:
            broken.append(constraint.text)
        # A row of no open variables is decided; it keeps its place with one that costs nothing.
        parts.append((costs or {0: [0]}, low if costs else 0, high if costs else UNLIMITED))
    cardinality = np.array([model.variables[column].cardinality for column in columns], dtype=np.int32)
    if not columns:
        parts = []
    return Rules(tuple(c.text for c in listed), rows_of(parts, cardinality), cardinality, tuple(broken))


def no_rules(model: Circuit | Network, columns: Sequence[int]) -> Rules:
    """The rules of a question without constraints, to which states to differ from can be added."""
    cardinality = np.array([model.variables[column].cardinality for column in columns], dtype=np.int32)
    return Rules((), rows_of([], cardinality), cardinality)


class _Reader:
    """Looks names up and turns constraints into rows."""

    def __init__(self, model: Circuit | Network, columns: Sequence[int], observed: Mapping[int, Any]) -> None:
        self.model, self.observed = model, observed
        self.place = {column: i for i, column in enumerate(columns)}

    def row(self, constraint: Constraint) -> tuple[dict[int, list[int]], int, int]:
        """Costs by place in the query, both ends; what is observed is moved to the ends."""
        try:
            costs, low, high = self.costs(constraint)
        except QueryError as error:
            raise QueryError(f"constraint {constraint.text!r}: {error}") from None
        unit = lcm(1, *(cost.denominator for by_value in costs.values() for cost in by_value))
        unit = lcm(unit, *(end.denominator for end in (low, high) if end is not None))
        known = sum((by_value[self.observed[c]] for c, by_value in costs.items() if c in self.observed), Fraction(0))
        ends = [
            0 if low is None else int((low - known) * unit),
            UNLIMITED if high is None else int((high - known) * unit),
        ]
        if max(map(abs, ends)) > UNLIMITED:
            raise QueryError(f"constraint {constraint.text!r}: its numbers are too large for one another: round them")
        rows = {self.place[c]: [int(x * unit) for x in costs[c]] for c in costs if c in self.place}
        return rows, ends[0], ends[1]

    def costs(self, constraint: Constraint) -> tuple[dict[int, list[Fraction]], Fraction | None, Fraction | None]:
        """The costs of all values, by column."""
        if constraint.compared is not None:
            return self.comparison(*constraint.compared, constraint.is_equal)
        costs: dict[int, list[Fraction]] = {}
        seen = set()
        for term in constraint.terms:
            column = self.column(term.variable)
            variable = self.model.variables[column]
            code = variable.code(term.value)
            if (column, code, term.holds) in seen:
                raise QueryError(f"variable {variable.name!r} is there twice with the value {variable.label(code)!r}")
            seen.add((column, code, term.holds))
            by_value = costs.setdefault(column, [Fraction(0)] * variable.cardinality)
            for x in range(variable.cardinality):
                if (x == code) == term.holds:
                    by_value[x] += term.cost
        return costs, constraint.low, constraint.high

    def comparison(
        self, a: Any, b: Any, is_equal: bool
    ) -> tuple[dict[int, list[Fraction]], Fraction | None, Fraction | None]:
        """The number of a's value and what b's lacks to the largest: their sum is at most, or exactly, the largest."""
        first, second = self.column(a), self.column(b)
        one, other = self.model.variables[first], self.model.variables[second]
        if first == second:
            raise QueryError(f"variable {one.name!r} is compared with itself")
        if one.cardinality != other.cardinality or one.states != other.states:
            raise QueryError(f"variables {one.name!r} and {other.name!r} do not have the same states")
        largest = one.cardinality - 1
        costs = {
            first: [Fraction(x) for x in range(largest + 1)],
            second: [Fraction(largest - x) for x in range(largest + 1)],
        }
        return costs, Fraction(largest) if is_equal else None, Fraction(largest)

    def column(self, name: Any) -> int:
        column = self.model.index(name)
        if column not in self.place and not isinstance(self.observed.get(column), int):
            name = self.model.names[column]
            raise QueryError(f"variable {name!r} is neither queried nor observed: constraints are about the answer")
        return column
