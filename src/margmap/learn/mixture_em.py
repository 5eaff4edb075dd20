"""Mixtures whose components share one deterministic structure, each with its own parameters, fitted by EM.

Which elements a row goes through depends on the structure only. So a component's log-likelihood of a row is the sum of
its log-parameters at these elements, and the expected counts are the responsibilities added up there: no pass over the
circuit is needed in an iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import INDICATOR, SUM, Circuit, FloatArray, IntArray
from margmap.circuit.builder import Arrays, reached
from margmap.errors import DataError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits
from margmap.foundation.slices import starts
from margmap.inference.queries import log_likelihood
from margmap.learn.chow_liu_tree import check_smoothing
from margmap.learn.decision_circuit import NONE, TRAINING, VALIDATION, Compact, DecisionCircuit
from margmap.learn.table import Codes, one_hot

_KMEANS_ROUNDS = 30


class Round(NamedTuple):
    """Mean log-likelihoods after an iteration of EM (of validation rows NaN if there are none)."""

    iteration: int
    train: float
    valid: float


@dataclass(frozen=True)
class Mixture:
    """The circuit, the weights of its components, and how EM went."""

    circuit: Circuit
    weights: FloatArray
    history: list[Round] = field(repr=False)
    #: Why EM ended: "converged", "iterations", "time_limit" or "interrupted".
    reason: str = "converged"


def mixture(data: Any, valid: Any = None, components: int = 5, **options: Any) -> Circuit:
    """A mixture of circuits that share a structure, as one circuit; :func:`learn_mixture` has the options.

    >>> from margmap.learn import mixture
    >>> mixture([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]], components=2).properties.smooth
    True
    """
    return learn_mixture(data, valid, components, **options).circuit


def learn_mixture(
    data: Any,
    valid: Any = None,
    components: int = 5,
    *,
    structure: Circuit | None = None,
    resume: Circuit | None = None,
    iterations: int = 100,
    time_limit: float | None = None,
    tolerance: float = 1e-5,
    pseudocount: float = 1.0,
    strength: float = 10.0,
    seed: int = 0,
    on_iteration: Callable[[Round], None] | None = None,
) -> Mixture:
    """Fit a mixture of ``components`` on the structure of a circuit of :func:`strudel`, or else on the Chow-Liu tree.

    Components start from clusters of the rows (k-means). Their parameters are (expected count + strength * theta) over
    the sum of that, with theta the parameters of a single component. EM ends after ``iterations``, or when what it
    climbs, likelihood and prior, gains less than ``tolerance`` nats for each row; with ``valid`` the mixture that was
    best on those rows is returned. ``time_limit``, in seconds, and Ctrl-C end it too, with the best mixture so far.
    ``resume`` is a mixture to go on from: it has the structure and the components.
    """
    check_smoothing(strength, pseudocount)
    if components < 1 or iterations < 0:
        raise DataError(f"a mixture needs at least 1 component and 0 iterations, not {components} and {iterations}")
    limits = Limits(None if time_limit is None else float(time_limit))
    parts = [] if resume is None else _components(resume)
    whole = DecisionCircuit.begin(data, valid, parts[0][0] if parts else structure, pseudocount=pseudocount)
    table, s = whole.table, whole.compact()
    inside, valid_inside = _elements(whole, s, TRAINING), _elements(whole, s, VALIDATION)
    shared = np.exp(s.log_parameters())
    owner = np.repeat(np.arange(s.node.size), np.diff(s.start))
    if parts:
        components = len(parts)
        share = _responsibilities(parts, table.codes)
    else:
        labels = clusters(table.codes, table.cardinality, components, np.random.default_rng(seed))
        share = np.eye(components)[labels]

    history: list[Round] = []
    best: tuple[float, FloatArray, FloatArray] | None = None
    before, reason = -np.inf, "iterations"
    with limits.catching_interrupts():
        for iteration in range(iterations + 1):
            log, log_weight = _maximise(share, inside, owner, shared, strength, pseudocount)
            share, train = _expect(log, log_weight, inside)
            prior = strength * _weighted(shared[:, None], log) + pseudocount / components * _weighted(1.0, log_weight)
            climbed, before = train + prior / len(table.codes) - before, train + prior / len(table.codes)
            value = _expect(log, log_weight, valid_inside)[1] if whole.validates else np.nan
            history.append(Round(iteration, train, value))
            if best is None or not whole.validates or value > best[0]:
                best = (value, log, log_weight)
            interrupted = False
            if on_iteration is not None:
                try:
                    on_iteration(history[-1])
                except KeyboardInterrupt:
                    interrupted = True
            ended = {
                "interrupted": interrupted or limits.interrupted,
                "converged": climbed < tolerance,
                "time_limit": limits.late(0.0),
            }
            if any(ended.values()):
                reason = next(name for name, holds in ended.items() if holds)
                break
    assert best is not None
    _, log, log_weight = best
    return Mixture(_assemble(whole, s, log, log_weight), np.exp(log_weight), history, reason)


def _components(circuit: Circuit) -> list[tuple[Circuit, float]]:
    """The components of a mixture, with the logs of their weights; a circuit that is none is its only component."""
    first, last = (int(circuit.start[circuit.root + i]) for i in range(2))
    children = circuit.child[first:last].tolist()
    copies = all(circuit.kind[child] == SUM for child in children)
    if circuit.kind[circuit.root] != SUM or len(children) < 2 or not copies:
        return [(circuit, 0.0)]
    arrays = Arrays(*(getattr(circuit, name) for name in Arrays._fields))
    weights = circuit.log_weight[first:last].tolist()
    return [(reached(circuit.variables, arrays, child), w) for child, w in zip(children, weights, strict=True)]


def _responsibilities(parts: list[tuple[Circuit, float]], codes: Codes) -> FloatArray:
    """How much each row belongs to each component."""
    value = np.column_stack([log_likelihood(circuit, codes) + weight for circuit, weight in parts])
    top = value.max(axis=1, keepdims=True)
    value = np.exp(value - np.where(np.isfinite(top), top, 0.0))
    share: FloatArray = value / np.maximum(value.sum(axis=1, keepdims=True), 1e-300)
    return share


def _maximise(
    share: FloatArray, inside: IntArray, owner: NDArray[np.int64], shared: FloatArray, strength: float, pc: float
) -> tuple[FloatArray, FloatArray]:
    components = share.shape[1]
    count = np.zeros((shared.size, components))
    _add(inside, share, count, True)
    total = np.zeros((int(owner[-1]) + 1, components))
    np.add.at(total, owner, count)
    mass = total[owner] + strength
    with np.errstate(divide="ignore", invalid="ignore"):
        theta = np.where(mass > 0, (count + strength * shared[:, None]) / mass, shared[:, None])
        log: FloatArray = np.log(theta)
        rows = share.sum(axis=0)
        log_weight: FloatArray = np.log((rows + pc / components) / (rows.sum() + pc))
    return np.ascontiguousarray(log), log_weight


def _weighted(weight: FloatArray | float, log: FloatArray) -> float:
    """The sum of weighted logs, 0 times the log of 0 being 0."""
    return float((weight * np.where(log > -np.inf, log, 0.0)).sum())


def _expect(log: FloatArray, log_weight: FloatArray, inside: IntArray) -> tuple[FloatArray, float]:
    """Responsibilities, and the mean log-likelihood."""
    value = np.tile(log_weight, (inside.shape[1], 1))
    _add(inside, log, value, False)
    top = value.max(axis=1, keepdims=True)
    top[~np.isfinite(top)] = 0.0
    value = np.exp(value - top)
    mass = value.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        mean = float((np.log(mass) + top).mean())
    return value / np.where(mass > 0, mass, 1.0), mean


def _elements(whole: DecisionCircuit, s: Compact, part: int) -> IntArray:
    """For every vtree node and row the number, in the copy, of the element that the row goes through; or -1."""
    d, first = whole.arrays, whole.rows[part]
    found = np.full((d.left.size, whole.rows[part + 1] - first), NONE, dtype=np.int32)
    places = np.repeat(s.place, np.diff(s.start)).tolist()
    slices = zip(places, d.at[part, s.element].tolist(), d.n[part, s.element].tolist(), strict=True)
    for e, (place, at, n) in enumerate(slices):
        found[place, d.rows[place, at : at + n] - first] = e
    return found


def _assemble(whole: DecisionCircuit, s: Compact, log: FloatArray, log_weight: FloatArray) -> Circuit:
    """One sum over copies of the circuit, which share the indicators only."""
    copies = [whole.circuit(s, np.ascontiguousarray(column)) for column in log.T]
    one, k = copies[0], len(copies)
    if k == 1:
        return one
    indicator = one.kind == INDICATOR
    shared, own = np.flatnonzero(indicator), np.flatnonzero(~indicator)
    given = np.repeat(indicator, np.diff(one.param_start))
    # The shared nodes come first, then the others of each copy.
    number = np.empty((k, one.num_nodes), dtype=np.int64)
    number[:, shared] = np.arange(shared.size)
    number[:, own] = shared.size + np.arange(k * own.size).reshape(k, own.size)

    def of_nodes(values: NDArray[Any], root: int) -> NDArray[Any]:
        return np.concatenate((values[shared], np.tile(values[own], k), [root]))

    return Circuit(
        one.variables,
        of_nodes(one.kind, SUM),
        starts(of_nodes(np.diff(one.start), k)),
        np.concatenate((number[:, one.child].ravel(), number[:, one.root])),
        np.concatenate([*(copy.log_weight for copy in copies), log_weight]),
        of_nodes(one.var, NONE),
        starts(of_nodes(np.diff(one.param_start), 0)),
        np.concatenate([one.param[given], *(copy.param[~given] for copy in copies)]),
    )


def clusters(codes: Codes, cardinality: NDArray[np.int64], k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """k-means on the rows, values as unit vectors, started as k-means++ does."""
    hot = one_hot(codes, starts(cardinality))
    n, variables = codes.shape
    centre = [hot[int(rng.integers(n))]]
    # The squared distance of two rows is twice the number of columns in which they differ.
    gap = 2.0 * (variables - hot @ centre[0]).astype(np.float64)
    while len(centre) < k:
        total = gap.sum()
        new = hot[int(rng.choice(n, p=gap / total)) if total > 0 else int(rng.integers(n))]
        centre.append(new)
        gap = np.minimum(gap, 2.0 * (variables - hot @ new))
    centres = np.array(centre)
    labels = np.zeros(n, dtype=np.int64)
    for _ in range(_KMEANS_ROUNDS):
        distance = (centres**2).sum(axis=1) - 2 * hot @ centres.T
        new_labels = distance.argmin(axis=1)
        number = np.bincount(new_labels, minlength=k)
        sums = np.zeros(centres.shape, dtype=np.float64)
        np.add.at(sums, new_labels, hot)
        centres = np.where(number[:, None] > 0, sums / np.maximum(number, 1)[:, None], centres).astype(np.float32)
        if np.array_equal(new_labels, labels):
            break
        labels = new_labels
    return labels


@kernel
def _add(inside: IntArray, source: FloatArray, target: FloatArray, to_elements: bool) -> None:
    """Add for every vtree node and row the ``source`` of the row to the ``target`` of its element, or the reverse.

    ``inside[place, r]`` is the element of row r at a vtree node, or -1. Columns of both are the components.
    """
    for place in range(inside.shape[0]):
        for r in range(inside.shape[1]):
            e = inside[place, r]
            if e >= 0:
                to, of = (e, r) if to_elements else (r, e)
                for c in range(source.shape[1]):
                    target[to, c] += source[of, c]
