"""What the readers of several libraries need: variables from names and states of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from margmap.circuit import Name, Variable
from margmap.circuit.evidence import plain


def variable_of(name: Any, states: Sequence[Any]) -> Variable:
    """A variable with these states; states that are called 0, 1, ... in this order need no names."""
    given = plain(name)
    own: Name = given if isinstance(given, int | str) and not isinstance(given, bool) else str(name)
    names = tuple(map(str, states))
    return Variable(own, len(names), () if names == tuple(map(str, range(len(names)))) else names)


def class_of(model: object) -> str:
    """How an error names the class of an object."""
    return f"{type(model).__module__.partition('.')[0]}.{type(model).__qualname__}"
