"""Evidence that is not a single value, put into the model: afterwards every query is one with single values only.

In a circuit the weights of a variable multiply its leaves: each becomes a table, and nothing else changes, since a
smooth and decomposable circuit has exactly one leaf of a variable in each of its terms. An interval makes a leaf of a
continuous variable one number, the Gaussian's mass in it. Networks are in :mod:`margmap.network.virtual`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from margmap.circuit import BINOMIAL, CATEGORICAL, GAUSSIAN, Circuit, FloatArray, LongArray, Variable
from margmap.circuit.leaves import leaf_tables
from margmap.circuit.observation import Between, Weights
from margmap.errors import QueryError
from margmap.foundation.pairs import EPS, LN2
from margmap.inference.scaled import MOST_DEVIATIONS
from margmap.inference.truncated import log_mass_error, log_masses
from margmap.network.network import Network
from margmap.network.virtual import Conditioned, is_soft, power_above, with_virtual_evidence

# What a circuit with other leaves has in common with it.
_STRUCTURE = ("scopes", "violations", "depth", "mentioned")


def conditioned(model: Circuit | Network, observed: Mapping[int, Any]) -> Conditioned:
    """The model with all evidence in it that is not a single value, and the single values that are left."""
    if not is_soft(observed):
        return Conditioned(model, dict(observed), 0, 0.0)
    if isinstance(model, Network):
        return with_virtual_evidence(model, observed)
    return _weighted_circuit(model, observed)


def conditioned_circuit(circuit: Circuit, observed: Mapping[int, Any]) -> tuple[Circuit, Conditioned]:
    """The same for a circuit, and the circuit itself."""
    found = conditioned(circuit, observed)
    assert isinstance(found.model, Circuit)
    return found.model, found


def _weighted_circuit(circuit: Circuit, observed: Mapping[int, Any]) -> Conditioned:
    variables = list(circuit.variables)
    kind, sizes = circuit.kind.copy(), np.diff(circuit.param_start)
    tables: dict[int, FloatArray] = {}  # the new parameters of the leaves that change
    power, rounding = 0, 0.0
    log_start, log_table = leaf_tables(circuit)
    for column, value in observed.items():
        leaves = np.flatnonzero((circuit.var == column) & (circuit.kind < GAUSSIAN + 1))
        if isinstance(value, Weights):
            power += power_above(value)
            found, lost = _weighted_tables(circuit, leaves, value, log_start, log_table)
            tables.update(zip(leaves.tolist(), found, strict=True))
            rounding += lost
        elif isinstance(value, Between):
            variables[column] = Variable(variables[column].name, 1)
            masses = _interval_masses(circuit, leaves, value)
            tables.update(zip(leaves.tolist(), masses[:, None], strict=True))
            rounding += max((log_mass_error(x) for x in masses.tolist() if x > -math.inf), default=0.0)
    changed = np.array(sorted(tables), dtype=np.int64)
    kind[changed] = CATEGORICAL
    sizes[changed] = [tables[leaf].size for leaf in changed.tolist()]
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
    param = np.empty(int(start[-1]))
    same = np.ones(kind.size, dtype=np.bool_)
    same[changed] = False
    param[np.repeat(same, sizes)] = circuit.param[np.repeat(same, np.diff(circuit.param_start))]
    if changed.size:
        param[np.repeat(~same, sizes)] = np.concatenate([tables[leaf] for leaf in changed.tolist()])
    result = Circuit(variables, kind, circuit.start, circuit.child, circuit.log_weight, circuit.var, start, param)
    for name in _STRUCTURE:  # found once for the circuit as given
        result.__dict__[name] = getattr(circuit, name)
    single = {column: value for column, value in observed.items() if not isinstance(value, Weights | Between)}
    return Conditioned(result, single, power, rounding)


def _weighted_tables(
    circuit: Circuit, leaves: LongArray, given: Weights, log_start: LongArray, log_table: FloatArray
) -> tuple[FloatArray, float]:
    """The logarithms of some leaves of one variable with the weights in them, and how far these can be off.

    The weights are divided by a power of two such that no leaf has a probability above 1.
    """
    weights = np.array(given.values)
    with np.errstate(divide="ignore"):
        logs = np.log(weights) - power_above(given) * LN2
    found = log_table[log_start[leaves][:, None] + np.arange(weights.size)] + logs
    finite, known = found[np.isfinite(found)], logs[np.isfinite(logs)]
    lost = 0.0
    if not ((weights == 0) | (weights == 1)).all() and finite.size:
        lost = 4 * EPS * float(np.abs(known).max() + 2 * power_above(given) + np.abs(finite).max())
    trials = weights.size - 1
    if (circuit.kind[leaves] == BINOMIAL).any() and finite.size:  # as it is counted where the leaf is not changed
        lost += 16 * EPS * (float(np.abs(finite).max()) + trials * math.log(trials + 1.0))
    return found, lost


def _interval_masses(circuit: Circuit, leaves: LongArray, interval: Between) -> FloatArray:
    mean, deviation = circuit.param[circuit.param_start[leaves]], circuit.param[circuit.param_start[leaves] + 1]
    for end, side in ((interval.low, 1.0), (interval.high, -1.0)):
        if math.isfinite(end):
            with np.errstate(over="ignore"):
                far = ~(side * (end - mean) / deviation < MOST_DEVIATIONS)
            if far.any():
                leaf = int(leaves[np.flatnonzero(far)[0]])
                raise QueryError(
                    f"variable {circuit.variables[circuit.var[leaf]].name!r}: {end:g} is more than {MOST_DEVIATIONS:g} "
                    f"standard deviations away from the Gaussian of node {leaf}, so the logarithm of the interval's "
                    "mass is beyond the range of numbers"
                )
    return log_masses(mean, deviation, interval.low, interval.high)
