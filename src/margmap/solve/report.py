"""The report: states scored on the model as given, the bound moved up by all rounding, the status, the result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from margmap.circuit import Circuit, FloatArray, IntArray, Name
from margmap.foundation.limits import Limits, Status
from margmap.foundation.pairs import log_of, log_parts, raised, two_sum
from margmap.inference.queries import value_pair
from margmap.inference.scaled import extra_rounding, scaled
from margmap.solve.question import Question
from margmap.solve.reduce_sparse import Known, Needed
from margmap.solve.result import Outcome, Ranked, Result

# On a circuit so large that rounding alone can amount to more than the tolerance, a finished search counts up to this.
ROUNDED = 1e-8

Pair = tuple[float, float]


def named(question: Question, state: Iterable[int]) -> dict[Name, int | str]:
    """A state of the query in the user's words."""
    names, states = question.model.names, question.model.states
    values = zip(question.columns, map(int, state), strict=True)
    return {names[c]: states[c][x] if states[c] else x for c, x in values}


def result_of(
    status: Status,
    top: Sequence[Ranked],
    log_upper: float,
    method: str,
    limits: Limits,
    details: Mapping[str, Any],
) -> Result:
    """The result with these states, best first."""
    best = top[0]
    log_upper = max(log_upper, best.log_prob)
    seconds = limits.clock() - limits.begun
    return Result(status, *best, log_upper, method, seconds, tuple(top), details)


def report(
    question: Question,
    codes: IntArray,
    reals: FloatArray,
    outcome: Outcome,
    p_evidence: Pair,
    rounding: float,
    method: str,
    limits: Limits,
    needed: Needed | Known | None = None,
) -> Result:
    """What a method's outcome on the reduced circuit amounts to on the circuit as given.

    ``p_evidence`` is p(e) as a pair, and ``rounding`` is how far, relatively, the reduced circuit can be off. A state
    is scored from what is ``needed`` of the values under the evidence, if the reduction has kept them.
    """
    circuit, top = question.model, []
    assert isinstance(circuit, Circuit)
    for state in outcome.states:
        codes[question.columns] = state
        p = value_pair(circuit, codes, reals) if needed is None else _scored(circuit, codes, reals, needed)
        top.append(Ranked(named(question, state.tolist()), float(log_of(*p)), _log_ratio(p, p_evidence)))
    top.sort(key=lambda ranked: -ranked.log_conditional)
    # The solver's bound, moved up by all that rounding can have taken from it or added to the value of a state.
    lost = 2 * rounding + extra_rounding(scaled(circuit), p_evidence[1])
    others = raised(outcome.log_upper, lost)
    log_upper = max(others, raised(top[0].log_conditional, lost))
    status = _status(outcome.status, others, [ranked.log_conditional for ranked in top], question.k, limits)
    if status == "optimal" and lost > limits.gap + ROUNDED + 2 * math.ulp(top[0].log_prob):
        status = "precision_limit"  # the state is the best one, but its own value is not known to so many digits
    return result_of(status, top, _log_product(p_evidence, log_upper), method, limits, outcome.details)


def _scored(circuit: Circuit, codes: IntArray, reals: FloatArray, needed: Needed | Known) -> Pair:
    """What :func:`~margmap.inference.queries.value_pair` gives, for the evidence that the circuit was reduced under."""
    s = scaled(circuit)
    value, exponent = needed.root_with(s, codes, reals)
    return value * s.total, exponent + s.total_exponent


def moved(result: Result, question: Question) -> Result:
    """The result for the model as given, where evidence that is not a single value was put into it."""
    factor, lost = question.log_factor, 2 * question.rounding
    if factor == 0 and lost == 0:
        return result
    top = tuple(one._replace(log_prob=one.log_prob + factor) for one in result.top)
    log_upper = raised(result.log_upper, factor, lost) if math.isfinite(result.log_upper) else result.log_upper
    limited = result.status == "optimal" and lost > ROUNDED
    return replace(
        result,
        status="precision_limit" if limited else result.status,
        log_prob=result.log_prob + factor,
        log_upper=max(log_upper, result.log_prob + factor),
        top=top,
    )


def _status(status: Status, others: float, values: Sequence[float], k: int, limits: Limits) -> Status:
    """What a solver's status amounts to, given its states' log p(q | e) and a bound on that of all other states.

    Compared are conditional probabilities: where log p(e) is large, the last digit of log p(q, e) is more than the
    tolerance.
    """
    away = others - values[-1] if len(values) == k else (-np.inf if others == -np.inf else np.inf)
    if away <= limits.gap or (status == "optimal" and away <= limits.gap + ROUNDED):
        return "optimal"
    # The search may have come to its end with numbers that doubles cannot tell apart.
    return "precision_limit" if status == "optimal" else status


def _log_ratio(a: Pair, b: Pair) -> float:
    """The logarithm of the quotient of two pairs."""
    return float(log_of(a[0] / b[0], a[1] - b[1]))


def _log_product(p: Pair, log_factor: float) -> float:
    """The smallest double that is not under log ``p`` + ``log_factor``."""
    high, low = log_parts(*p)
    total, lost = two_sum(high, log_factor)
    rest = low + lost
    return float(total) if rest <= 0 else math.nextafter(total + rest, math.inf)
