"""The Network value: discrete variables and tables, a Bayesian network or a Markov network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from margmap.circuit import FloatArray, Name, Named, Variable, first_repeat
from margmap.circuit.variable import single
from margmap.errors import QueryError, StructureError
from margmap.foundation.html import facts, section

Kind: TypeAlias = Literal["bayes", "markov"]

#: A row of a conditional table may miss 1 by so much for each of its values, because files have six printed decimals,
#: and by twice as much in any case; it is then divided by its sum.
VALUE_SLACK = 0.5e-6


#: A table has at most this many variables (numpy 1 has no more axes), and at most this many numbers.
MAX_SCOPE, MAX_TABLE = 32, 1 << 40


class Factor(NamedTuple):
    """A table over some variables, one axis for each, in the order of ``scope`` (columns of ``Network.variables``)."""

    scope: tuple[int, ...]
    table: FloatArray


class FactorError(StructureError):
    """A table that cannot be right; ``factor`` is its number, so that a reader can name the line."""

    def __init__(self, message: str, factor: int) -> None:
        super().__init__(message)
        self.factor = factor


class NotNormalisedError(FactorError):
    """A conditional table with a row that does not sum to 1."""


class Network(Named):
    """An immutable network of discrete variables: the product of its factors.

    In a Bayesian network (``kind="bayes"``) every variable has one factor, p(variable | parents), with the variable on
    the last axis. A Markov network's factors are any tables of numbers from 0 up, and their product need not sum to 1.
    """

    _what = "network"

    def __init__(
        self, variables: Iterable[Variable], factors: Iterable[tuple[Sequence[int], ArrayLike]], kind: Kind = "bayes"
    ) -> None:
        self.variables = tuple(variables)
        if kind not in ("bayes", "markov"):
            raise StructureError(f"kind={kind!r}: a network is 'bayes' or 'markov'")
        self.kind: Kind = kind
        names: set[Name] = set()
        for variable in self.variables:
            if variable.continuous:
                raise StructureError(f"variable {variable.name!r} is continuous: a network has discrete variables only")
            if variable.name in names:
                raise StructureError(f"variable {variable.name!r} is there twice")
            names.add(variable.name)
        checked = [self._checked(i, tuple(scope), table) for i, (scope, table) in enumerate(factors)]
        if kind == "bayes":
            _require_acyclic(self.variables, checked)
            checked.sort(key=lambda factor: factor.scope[-1])
        self.factors = tuple(checked)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Tables come out of a pickle as they were, read-only."""
        vars(self).update(state)
        for factor in self.factors:
            factor.table.setflags(write=False)

    def __repr__(self) -> str:
        return f"Network({self.kind}, {len(self.variables)} variables, {self.num_parameters} parameters)"

    def _repr_html_(self) -> str:
        from margmap.circuit.listing import Variables

        title = "Bayesian network" if self.kind == "bayes" else "Markov network"
        edges = sum(len(factor.scope) - 1 for factor in self.factors if factor.scope)
        sizes = {"edges": edges} if self.kind == "bayes" else {"factors": len(self.factors)}
        whole = facts(title, {**sizes, "parameters": self.num_parameters})
        return section(whole, Variables(self.variables)._repr_html_())

    @property
    def num_parameters(self) -> int:
        """The number of entries of all tables."""
        return sum(factor.table.size for factor in self.factors)

    def parents(self, name: Name) -> tuple[Name, ...]:
        """The parents of a variable of a Bayesian network, in the order of its table's axes."""
        if self.kind != "bayes":
            raise QueryError("a Markov network has no parents: its factors are not directed")
        return tuple(self.variables[column].name for column in self.factors[self.index(name)].scope[:-1])

    def asked(self, query: Sequence[Name] | None, observed: Mapping[int, Any]) -> list[int]:
        """The columns of the query, refusing what cannot be asked; None asks for all that is not observed."""
        observed = single(observed)
        if query is None:
            return [i for i in range(len(self.variables)) if i not in observed]
        return self.query_columns(query, observed)

    def _checked(self, number: int, scope: tuple[int, ...], given: ArrayLike) -> Factor:
        for column in scope:
            if not 0 <= column < len(self.variables):
                raise FactorError(f"factor {number}: there is no variable number {column}", number)
        names = [self.names[column] for column in scope]
        what = f"factor {number}"
        if self.kind == "bayes" and names:  # a number alone would not be taken for a name
            what = f"the table of {'variable ' if isinstance(names[-1], int) else ''}{names[-1]!r}"
        if self.kind == "bayes" and not scope:
            raise FactorError(f"factor {number} has no variables: a Bayesian network has one table a variable", number)
        if len(set(scope)) != len(scope):
            raise FactorError(f"{what} has variable {first_repeat(names)!r} twice", number)
        if len(scope) > MAX_SCOPE:
            raise FactorError(f"{what} has {len(scope)} variables, and {MAX_SCOPE} are the most", number)
        table = np.array(given, dtype=np.float64)
        shape = tuple(self.variables[column].cardinality for column in scope)
        size = table_size(shape)
        if table.size != size:
            raise FactorError(f"{what} has {table.size} numbers, but its variables need {size}", number)
        table = table.reshape(shape)
        if not np.isfinite(table).all():
            raise FactorError(f"{what} has a number that is not finite", number)
        if (table < 0).any():
            raise FactorError(f"{what} has a negative number, {table.min()}", number)
        if self.kind == "bayes":
            total = table.sum(axis=-1, keepdims=True)
            worst = int(np.argmax(np.abs(total - 1)))
            if abs(total.flat[worst] - 1) > VALUE_SLACK * max(2, shape[-1]):
                row = self._row(scope, worst)
                raise NotNormalisedError(f"{what} {row}sums to {total.flat[worst]:.9g}, not to 1", number)
            table = table / total
        table.setflags(write=False)
        return Factor(scope, table)

    def _row(self, scope: tuple[int, ...], row: int) -> str:
        parents = [self.variables[column] for column in scope[:-1]]
        if not parents:
            return ""
        codes = np.unravel_index(row, [v.cardinality for v in parents])
        return f"given {', '.join(f'{v.name}={v.label(int(x))}' for v, x in zip(parents, codes, strict=True))} "


def table_size(cardinalities: Iterable[int]) -> int:
    """How many numbers a table over such variables has; MAX_TABLE + 1 if that is too many."""
    size = 1
    for cardinality in cardinalities:
        size *= cardinality
        if size > MAX_TABLE:
            return MAX_TABLE + 1
    return size


def _require_acyclic(variables: Sequence[Variable], factors: Sequence[Factor]) -> None:
    """One table for each variable, and no way from a variable back to itself."""
    of: dict[int, int] = {}
    for number, factor in enumerate(factors):
        child = factor.scope[-1]
        if child in of:
            raise FactorError(f"variable {variables[child].name!r} has a second table", number)
        of[child] = number
    for column, variable in enumerate(variables):
        if column not in of:
            raise StructureError(f"variable {variable.name!r} has no table")
    below: list[list[int]] = [[] for _ in variables]
    missing = [0] * len(variables)
    for factor in factors:
        missing[factor.scope[-1]] = len(factor.scope) - 1
        for parent in factor.scope[:-1]:
            below[parent].append(factor.scope[-1])
    ready = [column for column, count in enumerate(missing) if count == 0]
    while ready:
        for child in below[ready.pop()]:
            missing[child] -= 1
            if missing[child] == 0:
                ready.append(child)
    left = {column for column, count in enumerate(missing) if count > 0}
    if left:
        # Every variable that is left has a parent that is left, so going up from any of them ends in a circle.
        trail, seen = [min(left)], set()
        while trail[-1] not in seen:
            seen.add(trail[-1])
            trail.append(next(p for p in factors[of[trail[-1]]].scope[:-1] if p in left))
        circle = trail[trail.index(trail[-1]) :][::-1]
        names = [str(variables[column].name) for column in circle]
        shown = " -> ".join(names if len(names) <= 12 else [*names[:6], "...", *names[-5:]])
        raise FactorError(f"the network has a cycle: {shown}", of[circle[0]])
