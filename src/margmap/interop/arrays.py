"""What the converters of other libraries share: numbers out of tensors, columns as variables, walks over objects.

Nothing here imports such a library. A tensor is whatever has ``detach().cpu()`` or is an array, and a class is known by
its name and those of its bases, so that a user's own subclass is recognised.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Circuit, FloatArray, LongArray, Name, Variable
from margmap.circuit.layers import Layers
from margmap.errors import StructureError


def plain(tensor: Any) -> NDArray[Any]:
    """The array of a tensor, which may be on any device, or of what numpy takes for one."""
    return np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)


def numbers(tensor: Any, whose: str) -> FloatArray:
    """The numbers of a tensor or array in double precision; complex ones and those that are not numbers are refused."""
    array = plain(tensor)
    if array.dtype.kind not in "biuf":
        raise StructureError(f"{whose} has parameters of type {array.dtype}: only real numbers can be read")
    array = array.astype(np.float64)
    if np.isnan(array).any():
        raise StructureError(f"{whose} has a parameter that is not a number (NaN): train or set its parameters first")
    return array


def integers(tensor: Any) -> LongArray:
    """The whole numbers of a tensor or array."""
    return plain(tensor).astype(np.int64)


def logs(values: FloatArray, whose: str) -> FloatArray:
    """The logarithms of weights or probabilities; a negative one is refused."""
    if (values < 0).any():
        raise StructureError(
            f"{whose} has a negative weight ({values.min():g}): only circuits whose weights are not below 0 can be "
            "asked (squared circuits and other sums with signs are not probabilistic circuits in this sense)"
        )
    if np.isinf(values).any():
        raise StructureError(f"{whose} has an infinite weight")
    with np.errstate(divide="ignore"):
        return np.log(values)


def log_odds(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The logarithms of p and of 1 - p, where ``logits`` is log p / (1 - p)."""
    return -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)


def log_softmax(logits: FloatArray) -> FloatArray:
    """Logarithms that are shifted so that their exponentials add up to 1 along the last axis."""
    top = logits.max(axis=-1, keepdims=True)
    return np.asarray(logits - top - np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)))


def log_binomial(trials: int, yes: FloatArray, no: FloatArray) -> FloatArray:
    """The log probabilities of 0 to ``trials`` successes, of which one has log probability ``yes``, else ``no``."""
    count = np.arange(trials + 1)
    factorial = np.array([math.lgamma(n + 1) for n in range(trials + 1)])
    ways = factorial[trials] - factorial - factorial[::-1]
    with np.errstate(invalid="ignore"):  # 0 times -inf: no failure, where failure is impossible
        ups, downs = count * yes[..., None], (trials - count) * no[..., None]
    return np.asarray(ways + np.where(count == 0, 0.0, ups) + np.where(count == trials, 0.0, downs))


def class_names(thing: object) -> tuple[str, ...]:
    """The names of an object's class and of its bases, the class first."""
    return tuple(base.__name__ for base in type(thing).__mro__)


def is_a(thing: object, *names: str) -> bool:
    """Whether an object's class or one of its bases has one of these names."""
    return any(name in names for name in class_names(thing))


def children_first(root: Any, children: Callable[[Any], Iterable[Any]]) -> list[Any]:
    """Every object that the root reaches, once, children before parents; a cycle is refused. There is no recursion."""
    order: list[Any] = []
    done: dict[int, bool] = {}  # False while the objects below are visited
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        thing, left = stack.pop()
        if left:
            done[id(thing)] = True
            order.append(thing)
        elif id(thing) not in done:
            done[id(thing)] = False
            stack.append((thing, True))
            for child in children(thing):
                if done.get(id(child)) is False:
                    raise StructureError(
                        f"a {type(child).__name__} lies below itself: a circuit has no cycles, so build the model anew"
                    )
                if id(child) not in done:
                    stack.append((child, False))
    return order


class Columns:
    """The variables of a model by the numbers of their columns, each with as many values as the largest leaf needs."""

    def __init__(self) -> None:
        self.size: dict[int, int] = {}
        self.place: dict[int, int] = {}

    def add(self, column: int, cardinality: int, whose: str) -> None:
        """A leaf over a column with so many values; 0 is a continuous leaf."""
        column = int(column)
        known = self.size.get(column, cardinality)
        if (known == 0) != (cardinality == 0):
            raise StructureError(
                f"{whose} over variable {column} and another leaf over it disagree: one is discrete and one continuous"
            )
        self.size[column] = max(known, cardinality)

    def variables(self, given: Sequence[Name | Variable] | None, what: str) -> list[Variable]:
        """The variables in the order of their columns; ``given`` has a name or a Variable for each column."""
        columns = sorted(self.size)
        self.place = {column: i for i, column in enumerate(columns)}
        if not columns:
            raise StructureError(f"{what} has no leaves over variables")
        if given is None:
            return [Variable(column, self.size[column]) for column in columns]
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) <= columns[-1]:
            raise StructureError(
                f"variables must be a list of names (or Variables), one for each of {columns[-1] + 1} columns"
            )
        made = []
        for column in columns:
            named = given[column]
            if not isinstance(named, Variable):
                named = Variable(named, self.size[column])
            elif named.cardinality != self.size[column]:
                raise StructureError(
                    f"variable {named.name!r} is given with {named.cardinality} values, and {what} has "
                    f"{self.size[column]} for column {column}"
                )
            made.append(named)
        return made

    def padded(self, column: int, log_table: FloatArray) -> FloatArray:
        """Tables with as many entries as the column has values: the rest is impossible."""
        missing = self.size[column] - log_table.shape[-1]
        if missing == 0:
            return log_table
        empty = np.full((*log_table.shape[:-1], missing), -np.inf)
        return np.concatenate((log_table, empty), axis=-1)


def finish(layers: Layers, variables: Sequence[Variable], roots: NDArray[np.int64], what: str, remedy: str) -> Circuit:
    """The circuit of the one root that a model has; several are refused with what to do."""
    if roots.size != 1:
        raise StructureError(f"{what} has {roots.size} roots, and a circuit has one: {remedy}")
    return layers.circuit(variables, int(roots.ravel()[0]))
