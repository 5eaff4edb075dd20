"""The checker of certificates. It shares no code with the solvers; ``docs/certificates.md`` has what it proves.

What it trusts: the reader of the model, Python's integers, and IEEE arithmetic of doubles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from margmap.certificate.blocks import (
    ITEM,
    Candidates,
    Cover,
    Refused,
    Work,
    blocks_of,
    covering,
    rescaled,
    tree_of,
    walk,
)
from margmap.certificate.file import Certificate, flaw_of
from margmap.certificate.intervals import MOST_LOG, TINY, Pair, exp_pair, less, log_of, over
from margmap.certificate.upper_circuit import Upper, enclose, fold, prepare, weighted
from margmap.circuit import Circuit, FloatArray, IntArray, Name
from margmap.circuit.model import as_circuit
from margmap.circuit.observation import Between, Observation, Weights
from margmap.errors import QueryError, StructureError
from margmap.foundation.jit import kernel

#: Steps that a check may take: numbers read, multiplied or compared. A certificate that needs more is refused.
MOST_WORK = 10**11

#: A state is called optimal if the bounds are this close, in nats, unless whoever checks allows more.
TOLERANCE = 1e-9

#: Numbers of a vector beyond this are refused, so that nothing computed from them overflows.
LARGEST = 2.0**100


@dataclass(frozen=True)
class Verdict:
    """Whether a certificate proves what it claims, and what was proven."""

    accepted: bool
    #: Where the proof fails; empty if it is accepted.
    reason: str
    #: The state, by the names of its variables and values.
    state: Mapping[Name, int | str]
    #: log p(q, e) of the state lies between these two, whether the rest is accepted or not.
    log_prob_low: float
    log_prob_high: float
    #: No state has a larger log p(q, e); infinite unless accepted.
    log_upper: float
    #: Whether the gap is within ``tolerance``: the word of whoever checks, not of the certificate.
    optimal: bool
    tolerance: float
    #: What the check took: numbers read, multiplied or compared, the passes over the circuit not counted.
    steps: int

    @property
    def gap(self) -> float:
        """How much better, in nats, another state can be at most."""
        return max(0.0, self.log_upper - self.log_prob_low)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, with the keys of the command line's JSON."""
        state = {str(name): value for name, value in self.state.items()}
        first = ("accepted", "reason", "optimal", "state", "log_prob_low", "log_prob_high", "log_upper", "gap")
        return {name: getattr(self, name) for name in (*first, "tolerance", "steps")} | {"state": state}


class CheckedQuery(NamedTuple):
    """A query on a circuit, as the checker sees it."""

    columns: list[int]
    cardinality: IntArray
    upper: Upper
    #: Bounds of the state's own value.
    low: Pair
    high: Pair


def verify(
    circuit: Circuit,
    certificate: Certificate,
    *,
    query: Sequence[Name] | None = None,
    evidence: Mapping[Any, Observation] | None = None,
    tolerance: float = TOLERANCE,
    max_work: int = MOST_WORK,
) -> Verdict:
    """Check that a certificate proves its claim for this circuit, with every rounding on the safe side.

    The claim is about the query and the evidence written in the certificate; where ``query`` or ``evidence`` are given
    it must be about those. A claim that is proven is ``accepted``; the state is ``optimal`` if the gap that was proven
    is at most ``tolerance`` nats. A check that would take more than ``max_work`` steps is refused.
    """
    circuit = as_circuit(circuit, "a certificate is about")
    if not isinstance(certificate, Certificate):
        raise QueryError(
            f"an object of type {type(certificate).__name__} is no certificate: Certificate.load reads one"
        )
    if not (isinstance(tolerance, int | float) and 0 <= tolerance < math.inf):
        raise QueryError(f"tolerance={tolerance!r}: give a number of at least 0, in nats")
    work = Work(checked_count("max_work", max_work))
    state: dict[Name, int | str] = {}
    low, high = -math.inf, math.inf
    try:
        if flaw := flaw_of(certificate):
            raise Refused(flaw)
        asked = checked_query(circuit, certificate.query, certificate.evidence, certificate.state)
        labels = zip(asked.columns, certificate.state, strict=True)
        state = {circuit.variables[c].name: circuit.variables[c].label(x) for c, x in labels}
        low, high = log_of(asked.low, False), log_of(asked.high, True)
        _check_question(circuit, certificate, query, evidence)
        if not max(abs(certificate.log_lower), abs(certificate.log_upper)) <= MOST_LOG:
            raise Refused(f"a bound is beyond {MOST_LOG:g} nats: nothing can be proven of such numbers")
        if not certificate.log_lower <= certificate.log_upper:
            raise Refused("log_lower is above log_upper")
        if less(asked.low, exp_pair(float(certificate.log_lower), True)):
            raise Refused(f"the state's log p is not proven to be {certificate.log_lower!r}: it is at least {low!r}")
        log_upper = float(certificate.log_upper)
        _check_upper(asked, certificate, log_upper, work)
    except (Refused, QueryError, StructureError) as error:
        return Verdict(False, str(error), state, low, high, math.inf, False, tolerance, work.done)
    optimal = log_upper - low <= tolerance
    return Verdict(True, "", state, low, high, log_upper, optimal, tolerance, work.done)


def checked_query(
    circuit: Circuit, query: Sequence[Name], evidence: Mapping[Name, int | float | Weights], state: Sequence[int]
) -> CheckedQuery:
    """Fold the evidence and the hidden variables in and evaluate the state; values are numbers, as a certificate's."""
    given = _observed(circuit, evidence)
    soft = {column: value.values for column, value in given.items() if isinstance(value, Weights)}
    observed = {column: value for column, value in given.items() if not isinstance(value, Weights)}
    codes, reals = circuit.encoded(observed)
    columns = circuit.query_columns([circuit.variables[circuit.own(name)] for name in query], observed)
    arrays, scope = prepare(circuit)
    arrays = weighted(arrays, soft)
    for column in columns:
        if circuit.variables[column].continuous or column not in scope:
            raise QueryError(f"variable {circuit.names[column]!r} cannot be queried: it is continuous or in no leaf")
    position = np.full(len(circuit.variables), -1, dtype=np.int32)
    position[columns] = np.arange(len(columns), dtype=np.int32)
    cardinality = circuit.cardinality[columns]
    upper = fold(arrays, codes, reals, position, cardinality)
    for column, code in zip(columns, state, strict=True):
        codes[column] = circuit.variables[column].numbered(code)
    low, high = enclose(arrays, codes, reals)
    if not (np.isfinite((low[0], high[0], upper.scale[0])).all() and np.isfinite(upper.weight).all()):
        raise StructureError("a parameter of the circuit is beyond what the checker can compute with")
    return CheckedQuery(columns, cardinality, upper, low, high)


def checked_count(name: str, value: int) -> int:
    """The value of an argument that is a whole number."""
    if not isinstance(value, int | np.integer) or value < 0:
        raise QueryError(f"{name}={value!r}: give a whole number of at least 0")
    return int(value)


def threshold_of(log_upper: float, upper: Upper) -> Pair:
    """What the upper circuit must stay under for the bound to hold, rounded down."""
    return over(exp_pair(log_upper, False), upper.scale, False)


def room_for(upper: Upper, numbers: int) -> int:
    """How many entries the blocks of a certificate may have in all."""
    return 1_000_000 + 10 * (upper.child.size + numbers)


def _observed(circuit: Circuit, evidence: Mapping[Name, Any]) -> dict[int, Any]:
    """The evidence of a certificate, by column: numbers of values, values of continuous variables, and weights."""
    found: dict[int, Any] = {}
    for name, value in evidence.items():
        column = circuit.own(name)
        variable = circuit.variables[column]
        if column in found:
            raise QueryError(f"variable {variable.name!r} is observed twice")
        if isinstance(value, Between):
            raise QueryError(
                f"variable {variable.name!r}: a certificate does not cover evidence that is an interval, only single "
                "values, sets and likelihoods"
            )
        if isinstance(value, Weights):
            if variable.cardinality != len(value.values):
                raise QueryError(f"variable {variable.name!r} has {len(value.values)} weights, not one for each value")
            found[column] = value
        else:
            found[column] = variable.real(value) if variable.continuous else variable.numbered(value)
    return found


def _check_question(
    circuit: Circuit,
    certificate: Certificate,
    query: Sequence[Name] | None,
    evidence: Mapping[Any, Observation] | None,
) -> None:
    if query is not None and set(circuit.query_columns(query, ())) != set(map(circuit.own, certificate.query)):
        raise Refused("the certificate is about another query")
    if evidence is not None and circuit.observed(evidence) != _observed(circuit, certificate.evidence):
        raise Refused("the certificate is about other evidence")


def _check_upper(asked: CheckedQuery, certificate: Certificate, log_upper: float, work: Work) -> None:
    upper = asked.upper
    if upper.kind.size == 0:
        if less(exp_pair(log_upper, False), upper.scale):
            raise Refused(f"log p(e) is not under {log_upper!r}")
        return
    threshold = threshold_of(log_upper, upper)
    work.take(ITEM * len(certificate.tree))
    tree = tree_of(certificate.tree, len(asked.columns))
    blocks, aligned = blocks_of(upper, tree, room_for(upper, certificate.numbers), work)

    def listed(b: int, candidates: Candidates) -> Cover:
        exponent, vectors = certificate.covers[b]
        if len(vectors) and vectors.shape[1] != blocks[b].entries:
            raise Refused(f"block {b} has {blocks[b].entries} entries, its vectors have {vectors.shape[1]}")
        if len(vectors) and b == len(blocks) - 1:
            raise Refused("the last block lists a vector: a state above the bound is left")
        if exponent != 0 and not aligned:
            raise Refused(f"block {b} has an exponent, but the tree does not fit the circuit")
        if not vectors.max(initial=0.0) <= LARGEST:
            raise Refused(f"block {b}: a number is above {LARGEST:g}")
        work.take(vectors.size)
        vectors = np.where(vectors > 0, np.maximum(vectors, TINY), 0.0)
        for first, second, _, _ in candidates.above(candidates.floor(threshold)):
            found = rescaled(candidates.evaluate(first, second), candidates.exponent - exponent)
            bad, steps = _first_uncovered(found, vectors, work.remaining)
            work.take(steps)
            if bad >= 0:
                what = (
                    f"vectors {first[bad]} and {second[bad]} of its parts" if tree.var[b] < 0 else f"value {first[bad]}"
                )
                raise Refused(f"block {b}: {what} may belong to a state above the bound, and no vector covers them")
        return Cover(exponent, vectors)

    walk(blocks, aligned, tree, asked.cardinality, listed, work)


@kernel
def _first_uncovered(found: FloatArray, vectors: FloatArray, most: int) -> tuple[int, int]:
    """The first row that no vector covers, -1 if there is none, and how many steps were done.

    The answer means nothing if that is more than ``most``: the search ends there.
    """
    hint, done = 0, 0
    for r in range(found.shape[0]):
        at, steps = covering(found[r], vectors, vectors.shape[0], hint, most - done)
        done += steps
        if at < 0 or done > most:
            return r, done
        hint = at
    return -1, done
