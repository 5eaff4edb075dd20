"""Marginal MAP within constraints: the same walk as without, on the circuit with prices; and answers that differ."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from margmap.circuit import Circuit, IntArray
from margmap.foundation.limits import Limits, Stopped
from margmap.foundation.pairs import raised
from margmap.inference.scaled import extra_rounding, scaled
from margmap.solve.choose import choose
from margmap.solve.marginal_map import prepare
from margmap.solve.methods import AUTO, METHODS
from margmap.solve.prices import charge
from margmap.solve.question import Question
from margmap.solve.reduce import Reduced, reduce_codes
from margmap.solve.report import named, report
from margmap.solve.result import NOTHING_ASKED, Outcome, Ranked, Result, without_state
from margmap.solve.rows import Rows
from margmap.solve.rules import Rules, no_rules


def constrained_map(question: Question, limits: Limits) -> Result:
    """The best state that satisfies the rules, or several that differ; ``infeasible`` if there is none."""
    circuit = question.model
    assert isinstance(circuit, Circuit)
    rules = question.rules or no_rules(circuit, question.columns)
    if rules.broken:
        return _infeasible(question, rules, rules.rows, question.method, limits)
    prepare(circuit, limits, question.k)
    codes, reals = circuit.encoded(question.observed)
    reduced = reduce_codes(circuit, question.columns, codes, reals, limits.run)
    if limits.teller is not None:
        lost = 2 * reduced.rounding + extra_rounding(scaled(circuit), reduced.evidence[1])
        limits.teller.about(reduced.log_scale, lost, partial(named, question))
    if question.differ_by is None or not question.columns:
        return _answer(question, reduced, rules, rules.rows, limits)
    return _diverse(question, reduced, rules, limits)


def _diverse(question: Question, reduced: Reduced, rules: Rules, limits: Limits) -> Result:
    """The best state, the best of those that differ enough from it, and so on; each is proven or the list ends."""
    assert question.differ_by is not None
    one = question._replace(k=1)
    first = result = _answer(one, reduced, rules, rules.rows, limits)
    status, uppers = first.status, []
    top: list[Ranked] = []
    states: list[IntArray] = []
    while result.state is not None:
        top += result.top
        uppers.append(raised(result.log_upper, question.log_factor, 2 * question.rounding))
        status = result.status
        if status != "optimal" or len(top) == question.k:
            break
        variables = [question.model.variables[column] for column in question.columns]
        states.append(np.array([v.code(result.state[v.name]) for v in variables], dtype=np.int32))
        # What bounds the next answer does not bound the first, which is the one to tell of.
        silent = limits.until(np.inf, silent=True)
        result = _answer(one, reduced, rules, rules.differing(states, question.differ_by), silent)
        if result.state is None and result.status != "infeasible":
            status = result.status
    seconds = limits.clock() - limits.begun
    details = {**first.details, "log_uppers": uppers, "differ_by": question.differ_by}
    return replace(first, status=status, top=tuple(top), seconds=seconds, details=details)


def _answer(question: Question, reduced: Reduced, rules: Rules, rows: Rows, limits: Limits) -> Result:
    """The answer within some rows, scored on the circuit as given."""
    circuit = question.model
    assert isinstance(circuit, Circuit)
    method, outcome = question.method, NOTHING_ASKED
    try:
        if question.columns:
            method, outcome = _solve(question, reduced, rows, limits)
    except Stopped as stopped:
        outcome = Outcome([], 0.0, stopped.status)
    except MemoryError:  # one table too large for the machine
        outcome = Outcome([], 0.0, "memory_limit")
    if not outcome.states and outcome.log_upper == -np.inf:
        return _infeasible(question, rules, rows, method, limits)
    outcome = outcome._replace(details={**outcome.details, "constraints": rules.texts})
    if not outcome.states:
        lost = 2 * reduced.rounding + extra_rounding(scaled(circuit), reduced.evidence[1])
        log_upper = raised(min(outcome.log_upper, 0.0), lost, reduced.log_scale)
        known = without_state(outcome.status, method, limits.clock() - limits.begun, log_upper)
        return known.with_details(outcome.details)
    codes, reals = circuit.encoded(question.observed)
    of_evidence = (reduced.evidence, reduced.rounding, method, limits, reduced.needed)
    return report(question, codes, reals, outcome, *of_evidence)


def _solve(question: Question, reduced: Reduced, rows: Rows, limits: Limits) -> tuple[str, Outcome]:
    """Put prices on the rows, then the method asked for, or the one that fits."""
    priced = charge(reduced, rows, limits)
    if priced is None:
        return question.method, Outcome([], -np.inf, "optimal")
    several = {"k": question.k} if question.k > 1 else {}
    if question.method == AUTO:
        choice = choose(reduced, limits, priced)
        return choice.name, choice.solve(**several).because(choice.why)
    solve = METHODS[question.method].solve
    return question.method, solve(reduced, limits, priced=priced, **several, **question.options)


def _infeasible(question: Question, rules: Rules, rows: Rows, method: str, limits: Limits) -> Result:
    seconds = limits.clock() - limits.begun
    details = {"constraints": rules.texts, **rules.why_infeasible(rows)}
    return without_state("infeasible", method, seconds, -np.inf).with_details(details)
