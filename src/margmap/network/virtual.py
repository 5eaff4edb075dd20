"""Weights on the values of a network's variables, as evidence on variables of their own (Pearl's virtual evidence).

A variable X with weights w gets a child Z with p(Z = seen | X = x) = w[x] that is observed to be ``seen``. What comes
out is a network like any other, so that relevance, orders, compiling, elimination and the searches need not know. In
a Markov network the weights are one more factor. The new variables stand after all others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from margmap.circuit import FloatArray, Name, Variable
from margmap.circuit.observation import Between, Weights
from margmap.circuit.variable import all_single
from margmap.foundation.pairs import EPS, LN2
from margmap.network.network import Network

if TYPE_CHECKING:
    from margmap.circuit import Circuit

# Weights that are smaller than this, relative to the largest, are taken apart into two factors.
_SMALLEST = 2.0**-1000


class Conditioned(NamedTuple):
    """A model with evidence in it: p(q, e) of the question is 2**power times p(q, observed) of this model."""

    model: Circuit | Network
    observed: dict[int, Any]
    power: int
    #: How far, relatively, a value of this model can be from the exact one because weights were rounded.
    rounding: float

    @property
    def log_factor(self) -> float:
        """The logarithm of 2**power."""
        return self.power * LN2


def is_soft(observed: Mapping[int, Any]) -> bool:
    """Whether some evidence is not a single value."""
    return not all_single(observed) and any(isinstance(value, Weights | Between) for value in observed.values())


def scaled_weights(weights: Weights) -> tuple[FloatArray, int]:
    """The weights divided by a power of two such that none is above 1, and its exponent; see :func:`power_above`."""
    numbers, power = np.array(weights.values), power_above(weights)
    return (np.ldexp(numbers, -power) if power else numbers), power


def power_above(weights: Weights) -> int:
    """The exponent of a power of two that no weight is above; 0 if all are at most 1."""
    top = max(weights.values)
    return math.frexp(top)[1] if top > 1 else 0


def with_virtual_evidence(network: Network, observed: Mapping[int, Any]) -> Conditioned:
    """The network with the weights in it, and all single values to observe, those of the new variables included."""
    if not is_soft(observed):
        return Conditioned(network, dict(observed), 0, 0.0)
    single = {column: int(value) for column, value in observed.items() if not isinstance(value, Weights)}
    soft = {column: value for column, value in observed.items() if isinstance(value, Weights)}
    factors = [(factor.scope, factor.table) for factor in network.factors]
    if network.kind == "markov":
        factors += [((column,), np.array(value.values)) for column, value in soft.items()]
        return Conditioned(Network(network.variables, factors, "markov"), single, 0, 4 * EPS * len(soft))
    variables, power = list(network.variables), 0
    for column, value in soft.items():
        for numbers, shift in _parts(value):
            power += shift
            variables.append(Variable(_new_name(network, len(variables)), 2))
            factors.append(((column, len(variables) - 1), np.stack((1 - numbers, numbers), axis=1)))
            single[len(variables) - 1] = 1
    # Each table is divided by its rows' sums, which are 1 but for rounding.
    return Conditioned(Network(variables, factors), single, power, 4 * EPS * (len(variables) - len(network.variables)))


def _parts(weights: Weights) -> list[tuple[FloatArray, int]]:
    """Weights of at most 1 whose product, times powers of two, is the weights; one is mostly enough."""
    numbers = np.array(weights.values)
    top = float(numbers.max())
    if (numbers[numbers > 0] / top).min() > _SMALLEST:
        return [scaled_weights(weights)]
    mantissa, exponent = np.frexp(numbers)
    half = exponent // 2
    parts = (np.ldexp(mantissa, half), np.where(numbers > 0, np.ldexp(1.0, exponent - half), 0.0))
    return [scaled_weights(Weights(tuple(part.tolist()))) for part in parts]


def _new_name(network: Network, number: int) -> Name:
    name = f"evidence {number}"
    while name in network.names:
        name += "'"
    return name
