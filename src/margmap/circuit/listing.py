"""What can be asked of a model: its variables with their kinds and states, as text, as HTML and as a frame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from margmap.circuit.model import as_model
from margmap.circuit.variable import Name, Variable
from margmap.foundation.frames import frame
from margmap.foundation.html import table
from margmap.foundation.wording import did_you_mean

#: States that are shown of one variable, and variables that are shown as text.
MOST_STATES, MOST_VARIABLES = 8, 40

_HEADER = ("variable", "kind", "values", "states")


def kind_of(variable: Variable) -> str:
    """``binary``, ``discrete`` (any other number of values) or ``continuous``."""
    if variable.continuous:
        return "continuous"
    return "binary" if variable.cardinality == 2 else "discrete"


def states_text(variable: Variable, most: int = MOST_STATES) -> str:
    """The names of a variable's states, or the numbers that stand for them."""
    if variable.continuous:
        return "real numbers"
    if not variable.states:
        return "0, 1" if variable.cardinality == 2 else f"0 to {variable.cardinality - 1}"
    more = ", ..." if len(variable.states) > most else ""
    return ", ".join(variable.states[:most]) + more


def rows_of(listed: Sequence[Variable]) -> list[tuple[Name, str, int | str, str]]:
    """A row of the table for each variable: name, kind, number of values, states."""
    return [(v.name, kind_of(v), v.cardinality or "", states_text(v)) for v in listed]


class Variables(Sequence[Variable]):
    """The variables of a model, in the order of its columns; found by number or by name."""

    def __init__(self, listed: Sequence[Variable]) -> None:
        self._listed = tuple(listed)

    @overload
    def __getitem__(self, key: int | str) -> Variable: ...
    @overload
    def __getitem__(self, key: slice) -> Variables: ...
    def __getitem__(self, key: int | str | slice) -> Variable | Variables:
        """The variable at a place, or of a name given as text; a slice is a shorter list."""
        if isinstance(key, slice):
            return Variables(self._listed[key])
        if not isinstance(key, str):
            return self._listed[key]
        for variable in self._listed:
            if str(variable.name) == key:
                return variable
        raise KeyError(f"unknown variable {key!r}: {did_you_mean(key, self.names)}".rstrip(": "))

    def __len__(self) -> int:
        return len(self._listed)

    def __iter__(self) -> Iterator[Variable]:
        return iter(self._listed)

    @property
    def names(self) -> tuple[Name, ...]:
        """The names alone."""
        return tuple(variable.name for variable in self._listed)

    def __repr__(self) -> str:
        rows = [_HEADER, *rows_of(self._listed[:MOST_VARIABLES])]
        widths = [max(len(str(row[i])) for row in rows) for i in range(3)]
        lines = ["  ".join([*(str(row[i]).ljust(widths[i]) for i in range(3)), str(row[3])]) for row in rows]
        if len(self) > MOST_VARIABLES:
            lines.append(f"... {len(self)} variables in all")
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        return table(_HEADER, rows_of(self._listed), f"{len(self)} variables", most=MOST_VARIABLES)

    def to_frame(self) -> Any:
        """A pandas frame: name, kind, number of values (0: continuous) and the tuple of state names."""
        header = ["variable", "kind", "values", "states"]
        return frame(header, [(v.name, kind_of(v), v.cardinality, v.states) for v in self._listed])


def variables(model: object) -> Variables:
    """The variables of a circuit, a network, or anything else that :func:`margmap.as_model` takes.

    >>> import margmap as mm
    >>> x = mm.Variable("season", 2, ("summer", "winter"))
    >>> mm.variables(mm.circuit_of(0.3 * x["winter"] + 0.7 * x["summer"]))
    variable  kind    values  states
    season    binary  2       summer, winter
    """
    return Variables(as_model(model).variables)
