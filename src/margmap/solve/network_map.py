"""Marginal MAP on a network: compile it for the query, or eliminate where the hidden variables can go first."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from margmap.circuit import Circuit, LongArray
from margmap.errors import LimitError
from margmap.foundation.limits import Limits, Status, Stopped
from margmap.foundation.pairs import EPS, raised
from margmap.network.compile import (
    ENTRIES_PER_EDGE,
    MAX_EDGES,
    Prediction,
    amount,
    compile_planned,
    plan_of,
    plans,
    too_large,
)
from margmap.network.elimination import bytes_of, eliminate
from margmap.network.network import Network
from margmap.network.relevance import ROUNDING, Problem
from margmap.solve.marginal_map import circuit_map
from margmap.solve.methods import AUTO
from margmap.solve.question import Question
from margmap.solve.report import ROUNDED, named, result_of
from margmap.solve.result import Ranked, Result

#: Tables up to this many entries in all are eliminated without a second thought; and what an entry takes.
QUICK_ENTRIES = 1 << 21
SECONDS_PER_ENTRY = 4e-8

#: How much more than compiling elimination may work through and hold: it keeps one table at a time and no nodes.
MORE_ENTRIES = 4
MAX_BYTES = 6 << 30

# Elimination is preferred to compiling for another order while it costs at most this much more.
_FACTOR = 8


def network_map(question: Question, limits: Limits) -> Result:
    """The answer for a network. Planning, compiling and elimination count against the limits."""
    return _NetworkMap(question, limits).answer()


class _NetworkMap:
    def __init__(self, question: Question, limits: Limits) -> None:
        assert isinstance(question.model, Network)
        self.question, self.limits, self.network = question, limits, question.model
        self.limit = MAX_EDGES if question.max_edges is None else question.max_edges
        #: A network's variables are discrete.
        self.observed = {column: int(value) for column, value in question.observed.items()}
        # With nothing to find the maximum of, there is nothing to eliminate by maxima.
        only = question.method == "elimination" and bool(question.columns)
        self.only_eliminate = only
        self.problem: Problem | None = None

    def answer(self) -> Result:
        question, limits = self.question, self.limits
        plan = fallback = None
        if question.method in (AUTO, "elimination") and question.k == 1 and question.columns:
            free, first = self._plan()
            assert self.problem is not None
            most = ENTRIES_PER_EDGE * self.limit
            room = first.entries <= MORE_ENTRIES * most and bytes_of(first, self.problem) <= MAX_BYTES
            cheap = first.entries <= max(QUICK_ENTRIES, _FACTOR * free.entries)
            too_wide = free.entries > most
            if room and (cheap or too_wide or self.only_eliminate):
                result = self._eliminate(first)
                if result.status == "optimal" or self.only_eliminate or first.entries > most:
                    return result
                free, room = first, False  # the tables span so many digits that logarithms cannot tell states apart
            if self.only_eliminate or too_wide:
                cheaper = min(first, free, key=lambda plan: plan.entries)
                raise LimitError(too_large(cheaper, self.limit, one_query=True))
            plan, fallback = free, first if room else None
        if fallback is None:
            return self._compile(plan, limits)
        # Where elimination would be expensive, the frontier gets as long as it would take.
        until = limits.begun + 1.0 + SECONDS_PER_ENTRY * fallback.entries
        try:
            result = self._compile(plan, limits.until(until))
        except LimitError:
            return self._eliminate(fallback)
        if result.status not in ("optimal", "interrupted"):
            # With no time left, or too many digits, what the frontier found still holds.
            with suppress(LimitError, Stopped):
                return self._eliminate(fallback)
        return result

    def _plan(self) -> tuple[Prediction, Prediction]:
        """Any order, and one with the hidden variables first; a tenth of the time may go into the search for both."""
        seconds = (self.limits.deadline - self.limits.begun) / 20

        def planning(stop: LongArray) -> tuple[Prediction, Prediction | None]:
            self.problem = Problem(self.network, self.question.columns, self.observed)
            return plans(self.problem, set(self.question.columns), seconds=seconds, watch=lambda: _look(stop))

        free, first = self.limits.run(planning, wait=False)
        return free, first or free

    def _eliminate(self, plan: Prediction) -> Result:
        problem, limits = self.problem, self.limits
        assert problem is not None
        limits.allow(bytes_of(plan, problem))
        found = limits.run(lambda stop: eliminate(problem, plan, self.question.columns, _watch(stop)), wait=False)
        log_upper = max(found.log_upper, found.log_prob)
        status: Status = "optimal" if log_upper - found.log_prob <= limits.gap else "precision_limit"
        why = f"the hidden variables can go first: width {plan.width}, {amount(plan.entries)} table entries"
        details = {"why": why, "width": plan.width, "entries": plan.entries, "order": plan.order}
        best = Ranked(named(self.question, found.state), found.log_prob, found.log_prob - found.log_evidence)
        return result_of(status, [best], log_upper, "elimination", limits, details)

    def _compile(self, plan: Prediction | None, limits: Limits) -> Result:
        """Compile for this query and ask the circuit."""
        question, begun = self.question, limits.clock()
        asked, observed = question.columns, self.observed
        included = {*asked, *observed} or {0}
        if plan is not None:
            limits.allow(plan.memory)

        def compiling(stop: LongArray) -> Circuit:
            problem = self.problem or Problem(self.network, asked or list(included - observed.keys()), observed)
            wanted = set(asked) or included - observed.keys()
            chosen = plan or plan_of(problem, wanted, 0, self.limit)
            return compile_planned(problem, chosen, included, self.limit, _watch(stop), one_query=True)

        compiled = self.limits.run(compiling, wait=False)
        spent = limits.clock() - begun
        place = {column: i for i, column in enumerate(sorted(included))}
        inner = replace(
            question,
            model=compiled,
            columns=[place[column] for column in asked],
            observed={place[column]: value for column, value in question.observed.items()},
            method=AUTO if question.method == "elimination" else question.method,
        )
        result = circuit_map(inner, limits)
        rounding = _compile_rounding(self.network)
        return replace(
            result,
            status="precision_limit" if result.status == "optimal" and rounding > ROUNDED else result.status,
            log_upper=raised(result.log_upper, rounding),
            details={**result.details, "compiled": f"{compiled!r} in {spent:.3g} s"},
        )


def _compile_rounding(network: Network) -> float:
    """How far, relatively, a value of a compiled circuit can be from the product of the network's tables.

    Each table becomes logarithms, which are added to others a few times, and may be taken apart into factors.
    """
    logs = 0.0
    for factor in network.factors:
        positive = factor.table[factor.table > 0]
        logs += 1 + (max(abs(np.log(positive.min())), abs(np.log(positive.max()))) if positive.size else 0.0)
    return float(16 * EPS * logs + 2 * ROUNDING * len(network.factors))


def _watch(stop: LongArray) -> Callable[[int, int], None]:
    """Called after every table: whoever waited for the work has given it up if the flag is set."""
    return lambda _done, _total: _look(stop)


def _look(stop: LongArray) -> None:
    if stop[0] != 0:
        raise Stopped("interrupted")
