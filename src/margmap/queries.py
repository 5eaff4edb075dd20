"""Questions with one answer: likelihoods, marginals, posteriors, samples. The hard one is in :mod:`margmap.solve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margmap._jit import kernel
from margmap.circuit import GAUSSIAN, PRODUCT, SUM, Circuit, FloatArray, IntArray, LongArray, Name, Value
from margmap.errors import ImpossibleEvidenceError, QueryError
from margmap.evaluate import Scaled, edge_share, flows, forward, log_values, require_within_reach
from margmap.pairs import log_of, moved
from margmap.structure import require_tractable

Evidence = Mapping[Name, Value]


def log_likelihood(circuit: Circuit, rows: ArrayLike) -> FloatArray:
    """The log probability (density) of each row; a missing entry, -1 or NaN, is summed out.

    One column a variable, in the order of ``circuit.variables``.
    """
    require_tractable(circuit)
    codes, reals = _encode(circuit, rows)
    if reals.shape[1] > 0:
        for extreme in (np.fmin, np.fmax):
            require_within_reach(circuit, extreme.reduce(reals, axis=1))
    out = np.empty(codes.shape[1])
    log_values(circuit.scaled, codes, reals, out)
    return out


def log_marginal(circuit: Circuit, evidence: Evidence | None = None) -> float:
    """log p(evidence), every other variable summed out; -inf where the evidence is impossible."""
    require_tractable(circuit)
    codes, reals = circuit.evidence_codes(evidence)
    return log_value(circuit, codes, reals)


def log_conditional(circuit: Circuit, target: Evidence, evidence: Evidence | None = None) -> float:
    """log p(target | evidence)."""
    require_tractable(circuit)
    asked, observed = circuit.observed(target), circuit.observed(evidence)
    for column in asked:
        if column in observed:
            name = circuit.names[column]
            raise QueryError(f"variable {name!r} is both asked for and observed: drop it from one of the two")
    given = log_value(circuit, *circuit.encoded(observed))
    if given == -np.inf:
        raise _impossible()
    return log_value(circuit, *circuit.encoded(observed | asked)) - given


def posteriors(circuit: Circuit, evidence: Evidence | None = None) -> dict[Name, FloatArray]:
    """p(X = x | evidence) for every variable and value, from one pass up and one down.

    A continuous variable gets its posterior mean and standard deviation; an observed one is left out.
    """
    require_tractable(circuit)
    observed = circuit.observed(evidence)
    codes, reals = circuit.encoded(observed)
    s = circuit.scaled
    value, exponent = _forward(circuit, codes, reals)
    flow = flows(s, value, exponent)
    first = np.zeros(len(circuit.variables) + 1, dtype=np.int64)
    np.cumsum([v.cardinality or 2 for v in circuit.variables], out=first[1:])
    mass = _leaf_posteriors(s, flow, first)
    mentioned = circuit.mentioned
    answer: dict[Name, FloatArray] = {}
    for i, variable in enumerate(circuit.variables):
        if i in observed or i not in mentioned:
            continue
        part = mass[first[i] : first[i + 1]]
        if variable.continuous:
            part = np.array([part[0], np.sqrt(part[1])])
        answer[variable.name] = part
    return answer


def sample(circuit: Circuit, n: int, evidence: Evidence | None = None, seed: int | None = None) -> NDArray[Any]:
    """``n`` independent rows from p(. | evidence): integers, or floats where the circuit has continuous variables."""
    require_tractable(circuit)
    if n < 0:
        raise QueryError(f"cannot draw {n} samples")
    codes, reals = circuit.evidence_codes(evidence)
    value, exponent = _forward(circuit, codes, reals)
    rng = np.random.default_rng(seed)
    drawn, real = np.tile(codes, (n, 1)), np.tile(reals, (n, 1))
    # A variable no leaf mentions has no distribution to draw from; its column says "missing".
    drawn[:, [v.cardinality == c for v, c in zip(circuit.variables, codes, strict=True)]] = -1
    _sample(circuit.scaled, value, exponent, int(rng.integers(1 << 62)), codes, drawn, real)
    continuous = np.array([v.continuous for v in circuit.variables], dtype=np.bool_)
    return np.where(continuous, real, drawn) if continuous.any() else drawn


def log_value(circuit: Circuit, codes: IntArray, reals: FloatArray) -> float:
    """log p of one row of codes, as :meth:`Circuit.evidence_codes` makes them."""
    return float(log_of(*value_pair(circuit, codes, reals)))


def value_pair(circuit: Circuit, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
    """p of one row of codes as a pair, see :mod:`margmap.pairs`."""
    require_within_reach(circuit, reals)
    s = circuit.scaled
    value, exponent = np.empty(circuit.num_nodes), np.empty(circuit.num_nodes)
    forward(s, codes, reals, value, exponent)
    return float(value[-1] * s.total), float(exponent[-1] + s.total_exponent)


def _impossible() -> ImpossibleEvidenceError:
    return ImpossibleEvidenceError("the evidence has probability 0: nothing can be conditioned on it")


def _forward(circuit: Circuit, codes: IntArray, reals: FloatArray) -> tuple[FloatArray, FloatArray]:
    require_within_reach(circuit, reals)
    value, exponent = np.empty(circuit.num_nodes), np.empty(circuit.num_nodes)
    forward(circuit.scaled, codes, reals, value, exponent)
    if value[-1] <= 0:
        raise _impossible()
    return value, exponent


def _encode(circuit: Circuit, rows: ArrayLike) -> tuple[IntArray, FloatArray]:
    """Rows as columns of codes and of reals, with every entry checked."""
    given = np.asarray(rows)
    if given.dtype == object or given.dtype.kind not in "biuf":
        raise QueryError("rows must be numbers: values from 0, -1 or NaN where missing")
    data = np.atleast_2d(given)
    if data.ndim != 2 or data.shape[1] != len(circuit.variables):
        raise QueryError(
            f"rows have shape {data.shape}, but the circuit has {len(circuit.variables)} variables: one column each"
        )
    cardinality = np.array([v.cardinality for v in circuit.variables], dtype=np.int32)
    codes = np.tile(cardinality[:, None], (1, data.shape[0]))
    reals = np.full((len(cardinality), data.shape[0] if (cardinality == 0).any() else 0), np.nan)
    for i, variable in enumerate(circuit.variables):
        column = data[:, i]
        if variable.continuous:
            reals[i] = column
            if np.isinf(reals[i]).any():
                raise _bad_entry(variable.name, np.isinf(reals[i]), column, "is not finite")
            continue
        missing = (column == -1) | (np.isnan(column) if data.dtype.kind == "f" else False)
        bad = ~missing & ~((column >= 0) & (column < variable.cardinality) & (column == np.floor(column)))
        if bad.any():
            raise _bad_entry(variable.name, bad, column, f"is not a value from 0 to {variable.cardinality - 1}")
        codes[i, ~missing] = column[~missing]
    return codes, reals


def _bad_entry(name: Name, bad: NDArray[np.bool_], column: NDArray[Any], why: str) -> QueryError:
    row = int(np.flatnonzero(bad)[0])
    return QueryError(f"row index {row} (counted from 0), variable {name!r}: {column[row]} {why}")


@kernel
def _leaf_posteriors(s: Scaled, flow: FloatArray, first: LongArray) -> FloatArray:
    """For each variable the probability of every value; for a continuous one its mean and variance.

    The means of a variable's leaves are taken relative to that of its first leaf, and squares relative to the mean of
    all: nothing large is subtracted from something large.
    """
    mass = np.zeros(first[-1])
    origin, weight, shift = np.full(first.size - 1, np.nan), np.zeros(first.size - 1), np.zeros(first.size - 1)
    for n in range(s.kind.size):
        if flow[n] > 0 and s.kind[n] == GAUSSIAN:
            v, mean = s.var[n], s.table[s.table_start[n]]
            if np.isnan(origin[v]):
                origin[v] = mean
            weight[v] += flow[n]
            shift[v] += flow[n] * (mean - origin[v])
    for v in range(weight.size):
        if weight[v] > 0:
            shift[v] /= weight[v]
            mass[first[v]] = origin[v] + shift[v]
    for n in range(s.kind.size):
        if flow[n] == 0 or s.kind[n] >= PRODUCT:
            continue
        v = s.var[n]
        t, at = s.table_start[n], first[v]
        if s.kind[n] == GAUSSIAN:
            away, deviation = s.table[t] - origin[v] - shift[v], s.table[t + 1]
            mass[at + 1] += flow[n] / weight[v] * (away * away + deviation * deviation)
        else:
            last = s.table_start[n + 1] - 1
            for x in range(last - t):
                mass[at + x] += moved(flow[n] * s.table[t + x] / s.table[last], s.table_shift[t + x])
    return mass


@kernel
def _sample(
    s: Scaled,
    value: FloatArray,
    exponent: FloatArray,
    seed: int,
    codes: IntArray,
    drawn: NDArray[np.int32],
    real: FloatArray,
) -> None:
    np.random.seed(seed % 4294967296)  # noqa: NPY002 - the kernel's own generator, not numpy's global one
    stack = np.zeros(s.kind.size, dtype=np.int32)
    for row in range(drawn.shape[0]):
        stack[0] = s.kind.size - 1
        height = 1
        while height > 0:
            height -= 1
            n = stack[height]
            if s.kind[n] == PRODUCT:
                for e in range(s.start[n], s.start[n + 1]):
                    stack[height] = s.child[e]
                    height += 1
            elif s.kind[n] == SUM:
                left = np.random.random()  # noqa: NPY002
                chosen = -1
                for e in range(s.start[n], s.start[n + 1]):
                    part = edge_share(s, n, e, value, exponent)
                    if part > 0:
                        chosen = s.child[e]
                        left -= part
                        if left < 0:
                            break
                stack[height] = chosen
                height += 1
            elif s.kind[n] == GAUSSIAN:
                if np.isnan(real[row, s.var[n]]):
                    t = s.table_start[n]
                    real[row, s.var[n]] = s.table[t] + s.table[t + 1] * np.random.standard_normal()  # noqa: NPY002
            elif codes[s.var[n]] == s.table_start[n + 1] - s.table_start[n] - 1:
                t, last = s.table_start[n], s.table_start[n + 1] - 1
                left = np.random.random() * s.table[last]  # noqa: NPY002
                for x in range(last - t):
                    part = moved(s.table[t + x], s.table_shift[t + x])
                    if part > 0:
                        drawn[row, s.var[n]] = x
                        left -= part
                        if left < 0:
                            break
