"""Marginal MAP: one entry for every method."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from margmap.circuit import Circuit, Name, Value
from margmap.errors import QueryError
from margmap.queries import log_value
from margmap.reduce import Reduced, reduce_codes, resolve_query
from margmap.solve.result import TOLERANCE, Limits, Outcome, Result
from margmap.structure import require_tractable

__all__ = ["METHODS", "Result", "marginal_map"]

Solver = Callable[..., Outcome]

#: Name of each method and the module whose ``solve(reduced, limits, ...)`` it is; imported when first used.
METHODS: dict[str, str] = {
    "iterative": "margmap.solve.iterative",
    "brute": "margmap.solve.brute",
}


def marginal_map(
    circuit: Circuit,
    query: Sequence[Name] | None,
    evidence: Mapping[Name, Value] | None = None,
    method: str = "auto",
    time_limit: float | None = None,
    *,
    gap: float = TOLERANCE,
    **options: Any,
) -> Result:
    """The most likely state of ``query`` given ``evidence``, all other variables summed out, and the proof.

    ``query=None`` asks for every variable that is not observed: the most probable explanation (MPE), exact also where
    the circuit is not deterministic. ``time_limit`` is in seconds, ``gap`` in nats: the solver may stop as soon as the
    bounds are that close. Stopped early, by a limit or by Ctrl-C, the result has the best state found and both bounds.
    Further options belong to the method, such as ``heuristic="Pruned"`` of ``iterative``.
    """
    begun = time.perf_counter()
    if time_limit is not None and not time_limit > 0:
        raise QueryError(f"time_limit={time_limit!r}: give a positive number of seconds, or None")
    if not gap >= 0:
        raise QueryError(f"gap={gap!r}: give a number of at least 0, in nats")
    limits = Limits(time_limit, gap)
    name, solver = _solver(method, options)
    require_tractable(circuit)
    evidence = evidence or {}
    columns = resolve_query(circuit, query, evidence)
    codes, reals = circuit.evidence_codes(evidence)
    reduced = reduce_codes(circuit, columns, codes, reals)
    if columns:
        with limits.catching_interrupts():
            outcome = solver(reduced, limits, **options)
    else:
        outcome = Outcome(np.zeros(0, dtype=np.int32), 0.0, "optimal")
    codes[columns] = outcome.state
    log_prob = log_value(circuit, codes, reals)
    log_upper = _safe_upper(reduced, outcome.log_upper, log_prob)
    return Result(
        status="optimal" if log_upper - log_prob <= limits.gap else outcome.status,
        state={
            circuit.variables[c].name: circuit.variables[c].label(int(x))
            for c, x in zip(columns, outcome.state, strict=True)
        },
        log_prob=log_prob,
        log_conditional=log_prob - reduced.log_scale,
        log_upper=log_upper,
        method=name,
        seconds=time.perf_counter() - begun,
        details=outcome.details,
    )


def _solver(method: str, options: Mapping[str, Any]) -> tuple[str, Solver]:
    name = "brute" if method == "auto" else method
    if name not in METHODS:
        raise QueryError(f"unknown method {method!r}: choose auto, {', '.join(METHODS)}")
    solver: Solver = import_module(METHODS[name]).solve
    known = list(inspect.signature(solver).parameters)[2:]
    for option in options:
        if option not in known:
            raise QueryError(
                f"method {name!r} has no option {option!r}: it takes {', '.join(known) if known else 'none'}"
            )
    return name, solver


def _safe_upper(reduced: Reduced, log_upper: float, log_prob: float) -> float:
    """log p(q, e) that no state exceeds: the solver's bound, moved up by all that rounding can have taken from it."""
    bound = np.logaddexp(log_upper, np.log(reduced.dropped)) if reduced.dropped > 0 else log_upper
    return max(log_prob, float(bound) + reduced.log_scale + 2 * reduced.rounding)
