"""Circuits written as formulas: leaves, ``*``, ``+`` and numeric weights.

>>> from margmap import Variable, bernoulli, circuit_of
>>> rain, wet = Variable("rain"), Variable("wet")
>>> circuit = circuit_of(0.2 * rain[1] * bernoulli(wet, 0.9) + 0.8 * rain[0] * bernoulli(wet, 0.1))
>>> circuit.num_nodes
7

An expression that is used twice is one shared node. ``a + b + c`` and ``a * b * c`` are one node with three children.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import cast

from margmap.circuit import (
    BERNOULLI,
    BINOMIAL,
    CATEGORICAL,
    GAUSSIAN,
    INDICATOR,
    Circuit,
    Parts,
    Value,
    Variable,
    assemble,
)
from margmap.errors import StructureError


class Expression:
    """A formula that :func:`circuit_of` turns into a circuit."""

    __slots__ = ()
    __array_ufunc__ = None  # numpy leaves its scalars' * and + to us

    def __mul__(self, other: object) -> Expression:
        return _multiply(self, other)

    __rmul__ = __mul__

    def __add__(self, other: object) -> Expression:
        return _add(self, other)

    def __radd__(self, other: object) -> Expression:
        return self if isinstance(other, int) and other == 0 else _add(other, self)  # so that sum([...]) works


@dataclass(frozen=True, slots=True, eq=False)
class _Leaf(Expression):
    kind: int
    variable: Variable
    parameters: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Product(Expression):
    factors: tuple[Expression, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Sum(Expression):
    terms: tuple[tuple[float, Expression], ...]  # each with the log of its weight


@dataclass(frozen=True, slots=True, eq=False)
class _Weighted(Expression):
    log_weight: float
    expression: Expression


def indicator(variable: Variable, value: Value) -> Expression:
    """1 where the variable has this value, 0 elsewhere; ``variable[value]`` for short."""
    return _Leaf(INDICATOR, variable, (float(variable.code(value)),))


def bernoulli(variable: Variable, p: float) -> Expression:
    """Value 1 with probability ``p``, value 0 otherwise."""
    _probability(variable, p)
    return _Leaf(BERNOULLI, variable, (_log(p), _log1m(p)))


def categorical(variable: Variable, probabilities: Sequence[float]) -> Expression:
    """Value ``i`` with probability ``probabilities[i]``."""
    for p in probabilities:
        _probability(variable, p)
    if abs(math.fsum(probabilities) - 1) > 1e-6:
        raise StructureError(f"variable {variable.name!r}: probabilities sum to {math.fsum(probabilities)}, not to 1")
    return _Leaf(CATEGORICAL, variable, tuple(_log(p) for p in probabilities))


def binomial(variable: Variable, trials: int, p: float) -> Expression:
    """The number of successes in ``trials`` tries of probability ``p``; the variable has ``trials + 1`` values."""
    _probability(variable, p)
    return _Leaf(BINOMIAL, variable, (float(trials), _log(p), _log1m(p)))


def gaussian(variable: Variable, mean: float, deviation: float) -> Expression:
    """The normal density of a continuous variable."""
    return _Leaf(GAUSSIAN, variable, (float(mean), float(deviation)))


def circuit_of(expression: Expression, variables: Sequence[Variable] | None = None) -> Circuit:
    """The circuit of an expression; variables in order of appearance unless listed."""
    if not isinstance(expression, Expression):
        raise StructureError(f"circuit_of takes an expression such as 0.3 * X[0] + 0.7 * X[1], not {expression!r}")
    parts = Parts.new()
    column: dict[Variable, int] = {v: i for i, v in enumerate(variables or ())}
    number: dict[int, int] = {}
    top = _one_node(expression)
    stack: list[Expression] = [top]
    while stack:  # no recursion: expressions may be deep
        e = stack[-1]
        if id(e) in number:
            stack.pop()
            continue
        below = [] if isinstance(e, _Leaf) else [child for _, child in _children(e)]
        waiting = [child for child in below if id(child) not in number]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        stack.pop()
        if isinstance(e, _Leaf):
            if variables is None:
                column.setdefault(e.variable, len(column))
            elif e.variable not in column:
                raise StructureError(f"variable {e.variable.name!r} is used but not listed")
            number[id(e)] = parts.leaf(e.kind, column[e.variable], e.parameters)
        elif isinstance(e, _Product):
            number[id(e)] = parts.product([number[id(c)] for c in below])
        else:
            number[id(e)] = parts.sum([number[id(c)] for c in below], [w for w, _ in _children(e)])
    return assemble(column, parts)


def _children(e: Expression) -> tuple[tuple[float, Expression], ...]:
    if isinstance(e, _Product):
        return tuple((0.0, factor) for factor in e.factors)
    assert isinstance(e, _Sum)
    return e.terms


def _one_node(e: Expression) -> Expression:
    return _Sum(_terms(e)) if isinstance(e, _Weighted) else e


def _terms(e: Expression) -> tuple[tuple[float, Expression], ...]:
    if isinstance(e, _Sum):
        return e.terms
    if isinstance(e, _Weighted):
        return ((e.log_weight, e.expression),)
    return ((0.0, e),)


def _add(left: object, right: object) -> Expression:
    if not isinstance(left, Expression) or not isinstance(right, Expression):
        raise TypeError("a constant cannot be added to a circuit; multiply it with an expression instead")
    return _Sum(_terms(left) + _terms(right))


def _multiply(left: Expression, right: object) -> Expression:
    if isinstance(right, Real) and not isinstance(right, bool):
        weight = cast(float, right)
        if not 0 <= weight < math.inf:
            raise StructureError(f"weight {right} is not a finite number of at least 0")
        if isinstance(left, _Weighted):
            return _Weighted(left.log_weight + _log(weight), left.expression)
        return _Weighted(_log(weight), left)
    if not isinstance(right, Expression):
        raise TypeError(f"a circuit can be multiplied with a number or a circuit, not with {right!r}")
    log_weight, weighted = 0.0, False
    factors: list[Expression] = []
    for e in (left, right):
        if isinstance(e, _Weighted):
            log_weight, weighted = log_weight + e.log_weight, True
            e = e.expression
        factors.extend(e.factors if isinstance(e, _Product) else (e,))
    product = _Product(tuple(factors))
    return _Weighted(log_weight, product) if weighted else product


def _probability(variable: Variable, p: float) -> None:
    if not 0 <= p <= 1:
        raise StructureError(f"variable {variable.name!r}: {p} is not a probability")


def _log(p: float) -> float:
    return math.log(p) if p > 0 else -math.inf


def _log1m(p: float) -> float:
    return math.log1p(-p) if p < 1 else -math.inf
