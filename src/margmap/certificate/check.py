"""The checker of certificates. It shares no code with the solvers; ``docs/certificates.md`` has what it proves.

What it trusts: the reader of the model, Python's integers, and IEEE arithmetic of doubles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from margmap._jit import kernel
from margmap.certificate.blocks import Candidates, Cover, Refused, blocks_of, covering, rescaled, tree_of, walk
from margmap.certificate.fold import Upper, enclose, fold, prepare
from margmap.certificate.numbers import MOST_LOG, TINY, Pair, exp_pair, less, log_of, over
from margmap.circuit import Circuit, FloatArray, IntArray, Name, Value
from margmap.errors import QueryError, StructureError
from margmap.interop import as_circuit

if TYPE_CHECKING:
    from margmap.certificate.format import Certificate

#: Multiplications that a check may take; a certificate that needs more is refused.
MOST_WORK = 10**11

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
    #: Whether the bounds are within the tolerance that the certificate states.
    optimal: bool

    @property
    def gap(self) -> float:
        """How much better, in nats, another state can be at most."""
        return max(0.0, self.log_upper - self.log_prob_low)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, with the keys of the command line's JSON."""
        return {
            "accepted": self.accepted,
            "reason": self.reason,
            "optimal": self.optimal,
            "state": {str(name): value for name, value in self.state.items()},
            "log_prob_low": self.log_prob_low,
            "log_prob_high": self.log_prob_high,
            "log_upper": self.log_upper,
            "gap": self.gap,
        }


class Problem(NamedTuple):
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
    evidence: Mapping[Name, Value] | None = None,
    max_work: int = MOST_WORK,
) -> Verdict:
    """Check that a certificate proves its claim for this circuit, with every rounding on the safe side.

    The claim is about the query and the evidence written in the certificate; where ``query`` or ``evidence`` are given
    it must be about those. A check that would take more than ``max_work`` multiplications is refused.
    """
    circuit = as_circuit(circuit, "a certificate is about")
    state: dict[Name, int | str] = {}
    low, high = -math.inf, math.inf
    try:
        problem = problem_of(circuit, certificate.query, certificate.evidence, certificate.state)
        labels = zip(problem.columns, certificate.state, strict=True)
        state = {circuit.variables[c].name: circuit.variables[c].label(x) for c, x in labels}
        low, high = log_of(problem.low, False), log_of(problem.high, True)
        _check_question(circuit, certificate, query, evidence)
        _check_numbers(certificate)
        if less(problem.low, exp_pair(certificate.log_lower, True)):
            raise Refused(f"the state's log p is not proven to be {certificate.log_lower!r}: it is at least {low!r}")
        _check_upper(problem, certificate, max_work)
    except (Refused, QueryError, StructureError) as error:
        return Verdict(False, str(error), state, low, high, math.inf, False)
    optimal = certificate.log_upper - low <= certificate.tolerance
    return Verdict(True, "", state, low, high, certificate.log_upper, optimal)


def problem_of(
    circuit: Circuit, query: Sequence[Name], evidence: Mapping[Name, Value], state: Sequence[int]
) -> Problem:
    """Fold the evidence and the hidden variables in and evaluate the state."""
    codes, reals = circuit.evidence_codes(evidence)
    columns = circuit.query_columns(list(query), {circuit.index(name) for name in evidence})
    leaves = set(np.unique(circuit.var).tolist())
    for column in columns:
        if circuit.variables[column].continuous or column not in leaves:
            raise QueryError(f"variable {circuit.names[column]!r} cannot be queried: it is continuous or in no leaf")
    arrays = prepare(circuit)
    position = np.full(len(circuit.variables), -1, dtype=np.int32)
    position[columns] = np.arange(len(columns), dtype=np.int32)
    cardinality = circuit.cardinality[columns]
    upper = fold(arrays, codes, reals, position, cardinality)
    for column, code in zip(columns, state, strict=True):
        codes[column] = circuit.variables[column].code(code)
    low, high = enclose(arrays, codes, reals)
    if not (np.isfinite((low[0], high[0], upper.scale[0])).all() and np.isfinite(upper.weight).all()):
        raise StructureError("a parameter of the circuit is beyond what the checker can compute with")
    return Problem(columns, cardinality, upper, low, high)


def threshold_of(log_upper: float, upper: Upper) -> Pair:
    """What the upper circuit must stay under for the bound to hold, rounded down."""
    return over(exp_pair(log_upper, False), upper.scale, False)


def room_for(upper: Upper, numbers: int) -> int:
    """How many entries the blocks of a certificate may have in all."""
    return 1_000_000 + 10 * (upper.child.size + numbers)


def _check_question(
    circuit: Circuit, certificate: Certificate, query: Sequence[Name] | None, evidence: Mapping[Name, Value] | None
) -> None:
    if query is not None and {circuit.index(name) for name in query} != set(map(circuit.index, certificate.query)):
        raise Refused("the certificate is about another query")
    if evidence is not None:
        (codes, reals), (other_codes, other_reals) = map(circuit.evidence_codes, (evidence, certificate.evidence))
        if not (np.array_equal(codes, other_codes) and np.array_equal(reals, other_reals, equal_nan=True)):
            raise Refused("the certificate is about other evidence")


def _check_numbers(certificate: Certificate) -> None:
    if max(abs(certificate.log_lower), abs(certificate.log_upper)) > MOST_LOG:
        raise Refused(f"a bound is beyond {MOST_LOG:g} nats: nothing can be proven of such numbers")
    if not certificate.log_lower <= certificate.log_upper:
        raise Refused("log_lower is above log_upper")
    if len(certificate.covers) != len(certificate.tree) or len(certificate.state) != len(certificate.query):
        raise Refused("the parts of the certificate do not fit together")


def _check_upper(problem: Problem, certificate: Certificate, max_work: int) -> None:
    upper = problem.upper
    if upper.kind.size == 0:
        if less(exp_pair(certificate.log_upper, False), upper.scale):
            raise Refused(f"log p(e) is not under {certificate.log_upper!r}")
        return
    threshold = threshold_of(certificate.log_upper, upper)
    tree = tree_of(certificate.tree, len(problem.columns))
    blocks, aligned = blocks_of(upper, tree, room_for(upper, certificate.numbers))
    left = max_work

    def listed(b: int, candidates: Candidates) -> Cover:
        nonlocal left
        left -= candidates.work
        if left < 0:
            raise Refused(f"block {b}: the check takes more than {max_work} multiplications")
        exponent, vectors = certificate.covers[b]
        if len(vectors) and vectors.shape[1] != blocks[b].entries:
            raise Refused(f"block {b} has {blocks[b].entries} entries, its vectors have {vectors.shape[1]}")
        if len(vectors) and b == len(blocks) - 1:
            raise Refused("the last block lists a vector: a state above the bound is left")
        if exponent != 0 and not aligned:
            raise Refused(f"block {b} has an exponent, but the tree does not fit the circuit")
        if not vectors.max(initial=0.0) <= LARGEST:
            raise Refused(f"block {b}: a number is above {LARGEST:g}")
        vectors = np.where(vectors > 0, np.maximum(vectors, TINY), 0.0)
        for first, second, _, _ in candidates.above(candidates.floor(threshold)):
            left -= first.size * (blocks[b].child.size + blocks[b].kind.size)
            found = rescaled(candidates.evaluate(first, second), candidates.exponent - exponent)
            bad, compared = _first_uncovered(found, vectors, max(left, 0))
            left -= compared
            if left < 0:
                raise Refused(f"block {b}: the check takes more than {max_work} multiplications")
            if bad >= 0:
                what = (
                    f"vectors {first[bad]} and {second[bad]} of its parts" if tree.var[b] < 0 else f"value {first[bad]}"
                )
                raise Refused(f"block {b}: {what} may belong to a state above the bound, and no vector covers them")
        return Cover(exponent, vectors)

    walk(blocks, aligned, tree, problem.cardinality, listed)


@kernel
def _first_uncovered(found: FloatArray, vectors: FloatArray, most: int) -> tuple[int, int]:
    """The first row that no vector covers, and about how many numbers were compared; stops after ``most``."""
    hint, compared = 0, 0
    for r in range(found.shape[0]):
        at = covering(found[r], vectors, vectors.shape[0], hint)
        if at < 0:
            return r, compared
        compared += 2 * at + found.shape[1]
        if compared > most:
            return -1, compared
        hint = at
    return -1, compared
