"""Marginal MAP on a network: compile it for the query, eliminate where the hidden variables can go first, or search.

Where neither fits, and for the first answer where either takes long, :mod:`margmap.network.anytime` has a state at once
and bounds that close: stopped early, the result has both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from margmap.circuit import Circuit, LongArray
from margmap.errors import ImpossibleEvidenceError, LimitError, MissingExtraError
from margmap.foundation.cores import usable_cores
from margmap.foundation.interrupts import abandon
from margmap.foundation.jit import interprets, working_beside
from margmap.foundation.limits import Limits, Status, Stopped
from margmap.foundation.pairs import EPS, lowered, raised
from margmap.inference.scaled import extra_rounding, scaled
from margmap.network.anytime import CHEAP_ENTRIES, Anytime, Below, Incumbent
from margmap.network.compile import (
    ENTRIES_PER_EDGE,
    HOPELESS,
    MAX_EDGES,
    Prediction,
    amount,
    compile_planned,
    plan_of,
    plans,
    problem_graph,
)
from margmap.network.elimination import Eliminated, Elimination, bytes_of
from margmap.network.log_model import log_model
from margmap.network.network import Network
from margmap.network.order import MIN_WEIGHT, SECONDS, TRIES, Graph, best_order, interpreted_order
from margmap.network.relevance import ROUNDING, Problem
from margmap.solve.marginal_map import circuit_map
from margmap.solve.methods import AUTO
from margmap.solve.methods.frontier.solve import plan_for, solve_planned
from margmap.solve.question import Question
from margmap.solve.reduce import reduce_codes
from margmap.solve.report import ROUNDED, named, result_of
from margmap.solve.result import Ranked, Result, without_state

#: Tables up to this many entries in all are eliminated without a second thought; and what an entry takes.
QUICK_ENTRIES = 1 << 21
SECONDS_PER_ENTRY = 2e-8

#: What compiling an entry takes, roughly.
COMPILE_SECONDS_PER_ENTRY = 1.5e-7

#: How much more than compiling elimination may work through and hold: it keeps one table at a time and no nodes.
MORE_ENTRIES = 4
MAX_BYTES = 6 << 30

#: What takes longer than this many seconds has a state and a bound made first, in this share of the time it will take;
#: in the larger one if all hidden variables are cheap, since the search is likely to prove the answer then.
LONG_SECONDS, FIRST_SHARE, LIKELY_SHARE = 2.0, 0.08, 0.5

#: With this many seconds left or more, the search runs beside the circuit's solver once that has worked for so many; at
#: the end it is waited for so long.
LONG_LIMIT, BESIDE_SECONDS, JOIN_SECONDS = 20.0, 4.0, 0.1

#: A part of the states is compiled by itself if its tables have at most this many entries.
BELOW_ENTRIES = 1 << 18

#: What takes long is worth looking for better orders for up to so many seconds, with as many tries as they allow.
ORDER_SECONDS, MANY_TRIES = 10.0, 100_000

#: Seconds for a first state before better orders are looked for.
FIRST_STATE_SECONDS = 2.0

#: Before machine code is loaded, which takes a second, a first state is scored if that takes at most so many entries.
ENTRIES_AT_ONCE = 1 << 25

#: Seconds past a limit, or the share of it, for a state where there was none yet.
GRACE_SECONDS, GRACE_SHARE = 0.1, 0.04

#: The methods that need neither a circuit nor all tables at once.
SEARCHES = ("wcsp", "andor")

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
        self.only_eliminate = question.method == "elimination" and bool(question.columns)
        self.problem: Problem | None = None
        #: Constraints are for circuits: compile, whatever it takes.
        self.constrained = question.rules is not None or question.differ_by is not None
        #: The best state and the bound so far, for whoever is stopped before having one.
        self.found = Incumbent()
        self.search: Anytime | None = None

    def answer(self) -> Result:
        """The answer of the route that fits; stopped on the way, what is known."""
        if self.constrained:
            try:
                return self._by_tables()
            except LimitError as error:
                raise LimitError(f"{error}; constraints and differ_by need the network's circuit") from None
        if self.question.method in SEARCHES and self.question.columns:
            return self._search(self.question.method)
        try:
            result = self._by_tables()
        except Stopped as stopped:
            if self.question.columns:
                self._last_resort()
            return self._known(stopped.status, self.question.method)
        except LimitError as error:
            raise LimitError(f"{error}; {self._instead()}" if self.question.columns else str(error)) from None
        if result.status == "optimal" or self.found.state is None:
            return result
        return self._merged(result)

    def _instead(self) -> str:
        """What a network that is refused can be asked."""
        if self.question.k > 1:
            return "for one state (k=1) no circuit is needed: a network of any width is searched, with bounds"
        return f"without method={self.question.method!r} (auto) no circuit is needed: the network is searched"

    def _by_tables(self) -> Result:
        question, limits = self.question, self.limits
        plan = fallback = None
        if question.method in (AUTO, "elimination") and question.k == 1 and question.columns and not self.constrained:
            free, first = self._plan()
            assert self.problem is not None
            most = ENTRIES_PER_EDGE * self.limit
            room = first.entries <= MORE_ENTRIES * most and bytes_of(first, self.problem) <= MAX_BYTES
            cheap = first.entries <= max(QUICK_ENTRIES, _FACTOR * free.entries)
            too_wide = free.entries > most
            if too_wide and not room:
                return self._search(AUTO)
            self._begin(first if room and (cheap or too_wide or self.only_eliminate) else free)
            if self.found.proven(limits.gap):
                return self._known("optimal", AUTO)
            if room and (cheap or too_wide or self.only_eliminate):
                result = self._eliminate(first)
                if result.status == "optimal" or self.only_eliminate or first.entries > most:
                    return result
                free, room = first, False  # the tables span so many digits that logarithms cannot tell states apart
            if self.only_eliminate or too_wide:
                return self._search(AUTO)
            plan, fallback = free, first if room else None
        if fallback is None:
            return self._compile_and_search(plan) if plan is not None else self._compile(plan, limits)
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

    def _compile_and_search(self, plan: Prediction) -> Result:
        """The circuit's solver; where it takes long, the search over the network in a thread beside it.

        The one is better at states, the other at bounds: the answer has the better of both. Compiled code lets go of
        Python's lock, so that the two have a core each if there are two.
        """
        limits = self.limits
        if limits.deadline - limits.clock() < LONG_LIMIT:
            return self._compile(plan, limits)
        if COMPILE_SECONDS_PER_ENTRY * plan.entries > LONG_SECONDS:
            self._share_of(FIRST_STATE_SECONDS, lambda search: search.first_state())
        ended, failed = threading.Event(), list[BaseException]()
        mine = limits.until(np.inf, silent=True)

        def searching() -> None:
            if ended.wait(BESIDE_SECONDS):
                return
            try:
                with working_beside():
                    search = self._anytime(AUTO)
                    self.found.tell = lambda doing: None  # that is for the other thread
                    search.limits, search.whole = mine, partial(self._solve_part, most=plan.entries)
                    search.run()
            except (Stopped, MemoryError):
                pass
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=searching, daemon=True)
        thread.start()
        try:
            exchange = _Exchange(self)
            result = self._compile(plan, limits.until(np.inf, look=exchange), exchange)
        finally:
            ended.set()
            mine.deadline = -np.inf
            thread.join(JOIN_SECONDS)
            if thread.is_alive():
                abandon(thread)
        if failed:
            raise failed[0]
        return result

    def exchange(self, told: tuple[float, float]) -> tuple[float, float]:
        """In the thread of the circuit's solver: tell what the search has found, and send it the circuit's state."""
        found, search, teller = self.found, self.search, self.limits.teller
        now = (found.log_lower, found.log_upper)
        if now != told and found.state is not None:
            with found.lock:
                self._tell("search beside the circuit's solver")
        if found.proven(self.limits.gap):
            raise Stopped("time_limit")  # the circuit's solver need not go on
        if search is not None and teller is not None and teller.log_lower - teller.log_factor > found.log_lower + 1e-9:
            variables, state = self.network.variables, teller.state
            if state is not None and search.mail is None:
                codes = {c: variables[c].code(state[variables[c].name]) for c in self.question.columns}
                search.mail = self._numbers(codes)
        return now

    def _numbers(self, codes: Mapping[int, int]) -> LongArray:
        """A state, given by the codes of its columns, in the numbers of the log model."""
        problem = self.problem
        assert problem is not None
        state = np.zeros(len(problem.open), dtype=np.int64)
        for i, column in enumerate(problem.open):
            if column in codes:
                place = int(np.searchsorted(problem.values[column], codes[column]))
                state[i] = min(place, problem.values[column].size - 1)
        return state

    def _solve_part(self, values: Sequence[LongArray], floor: float, limits: Limits, most: int) -> Below | None:
        """The best state of a part above a floor, by elimination or by compile and frontier; None if that is too large.

        ``values`` are those left to each variable of the log model, ``most`` the table entries that are worth it.
        """
        question, whole, rounding = self.question, self.problem, compile_rounding(self.network)
        assert whole is not None
        asked = question.columns
        allowed = {c: whole.values[c][left] for c, left in zip(whole.open, values, strict=True) if c in set(asked)}
        included = {*asked, *self.observed}

        def compiling(stop: LongArray) -> Circuit | Eliminated | None:
            problem = Problem(self.network, asked, self.observed, allowed)
            free, first = plans(problem, set(asked), seconds=0.0, watch=lambda: _look(stop))
            if first is not None and first.entries <= min(most, _FACTOR * free.entries):
                return Elimination(problem, first, asked).maximum(_watch(stop))
            if free.entries > most:
                return None
            return compile_planned(problem, free, included, self.limit, _watch(stop), one_query=True)

        try:
            made = limits.run(compiling, wait=False)
        except ImpossibleEvidenceError:
            return Below(-np.inf, None, exact=True)
        except LimitError:
            return None
        if made is None:
            return None
        if isinstance(made, Eliminated):
            return Below(made.log_upper, self._numbers(dict(zip(asked, made.state, strict=True))), exact=True)
        place = {column: i for i, column in enumerate(sorted(included))}
        codes, reals = made.encoded({place[column]: value for column, value in self.observed.items()})
        reduced = reduce_codes(made, [place[column] for column in asked], codes, reals, limits.run)
        planned = plan_for(reduced, limits)
        if planned is None:
            return None
        lost = 2 * reduced.rounding + extra_rounding(scaled(made), reduced.evidence[1]) + rounding
        above = lowered(floor, -reduced.log_scale, -lost) if floor > -np.inf else floor
        outcome = solve_planned(planned, limits, floor=above)
        state = None
        if outcome.states:
            state = self._numbers(dict(zip(asked, outcome.states[0].tolist(), strict=True)))
        log_upper = raised(outcome.log_upper, reduced.log_scale, lost)
        return Below(log_upper, state, exact=outcome.status == "optimal")

    # Search: a state and bounds without a circuit.

    def _anytime(self, method: str, limits: Limits | None = None) -> Anytime:
        """The search over the query, which goes on where it was stopped; making it counts against the limits."""
        if self.search is None:
            limits = limits or self.limits
            if self.problem is None:
                make = partial(Problem, self.network, self.question.columns, self.observed)
                self.problem = limits.run(lambda _stop: make(), wait=False)
            logs = partial(log_model, self.problem, set(self.question.columns))
            model = limits.run(lambda _stop: logs(), wait=False)
            self.found.tell = self._tell
            extra = {"wcsp": True, "andor": False}.get(method)
            self.search = Anytime(model, self.limits, self.found, use_toulbar2=extra)
            self.search.one_core = usable_cores() == 1
            self.search.below = partial(self._solve_part, most=BELOW_ENTRIES)
        return self.search

    def _search(self, method: str) -> Result:
        """Search until the bounds meet or a limit is reached."""
        if method == "wcsp":
            from margmap.network.wcsp import available

            if not available():
                raise MissingExtraError("method 'wcsp' needs toulbar2: pip install 'margmap[networks]'")
        status: Status = "memory_limit"  # with no time limit, only room can be missing
        try:
            self._anytime(method).run()
        except Stopped as stopped:
            status = stopped.status
        except MemoryError:
            status = "memory_limit"
        if self.found.state is None:
            self._last_resort()
        return self._known(status, method)

    def _begin(self, plan: Prediction) -> None:
        """A state and a bound before what takes long, as far as its share of the time allows."""
        seconds = SECONDS_PER_ENTRY * plan.entries
        if seconds < LONG_SECONDS:
            return
        likely = not self._anytime(AUTO).summed(CHEAP_ENTRIES).hidden
        share = LIKELY_SHARE if likely else FIRST_SHARE
        self._share_of(max(0.5, share * seconds), lambda search: search.run())

    def _share_of(self, seconds: float, work: Callable[[Anytime], None]) -> None:
        """Let the search work for so many seconds at most."""
        limits, search = self.limits, self._anytime(AUTO)
        search.limits = limits.until(limits.clock() + seconds)
        try:
            work(search)
        except Stopped:
            limits.check()
        except MemoryError:
            pass
        finally:
            search.limits = limits

    def _last_resort(self) -> None:
        """Stopped before there was a state: one that is soon found and scored, past the limit by little."""
        limits = self.limits
        seconds = limits.deadline - limits.begun
        grace = Limits(max(GRACE_SECONDS, GRACE_SHARE * seconds) if seconds < np.inf else GRACE_SECONDS)
        with suppress(Stopped, MemoryError), grace.not_counting_compilation():
            search = self._anytime(AUTO, grace)  # it may be slow to make: then there is no state
            search.limits = grace
            search.first_state(soon=True)

    def _codes(self, state: LongArray) -> list[int]:
        """A state of the log model as codes of the query's columns."""
        problem = self.problem
        assert problem is not None
        known = {column: int(problem.values[column][state[i]]) for i, column in enumerate(problem.open)}
        known |= problem.fixed
        return [known.get(column, 0) for column in self.question.columns]

    def _log_evidence(self) -> float:
        """log p(e) where it is known without work: 0 if nothing is observed in a Bayesian network. Otherwise nan."""
        return 0.0 if self.network.kind == "bayes" and not self.observed else np.nan

    def _known(self, status: Status, method: str) -> Result:
        """The result with what the search knows now."""
        limits = self.limits
        with self.found.lock:
            found = replace(self.found)
        trivial = 0.0 if self.network.kind == "bayes" else np.inf
        if found.state is None or found.log_lower == -np.inf:
            return without_state(status, method, limits.clock() - limits.begun, min(found.log_upper, trivial))
        log_upper = max(min(found.log_upper, trivial), found.log_lower + found.rounding)
        if self.question.k > 1:
            pass  # one state is known, and that does not prove the others
        elif log_upper - found.log_lower <= limits.gap:
            status = "optimal"
        elif found.log_upper - found.log_lower <= limits.gap or status == "optimal":
            status = "precision_limit"
        best = Ranked(
            named(self.question, self._codes(found.state)), found.log_lower, found.log_lower - self._log_evidence()
        )
        notes = dict(found.notes)
        if self.question.shared:
            notes["jobs"] = "the search over a network runs in one process, beside that of toulbar2"
        used = "wcsp" if found.notes.get("toulbar2") else "andor"
        name = used if method == AUTO else method
        return result_of(status, [best], log_upper, name, limits, notes)

    def _merged(self, result: Result) -> Result:
        """The better state and the lower bound of what a route ended with and of what the search knew before."""
        mine = self._known(result.status, result.method)
        if mine.log_prob > result.log_prob:
            result = replace(mine, method=result.method, log_upper=min(mine.log_upper, result.log_upper))
        else:
            log_upper = max(result.log_prob, min(mine.log_upper, result.log_upper))
            result = replace(result, log_upper=log_upper, details={**result.details, "search": dict(self.found.notes)})
        proven = result.log_upper - result.log_prob <= self.limits.gap
        return replace(result, status="optimal") if proven else result

    def _tell(self, doing: str) -> None:
        """What the search knows now, to whoever is told of it."""
        found, teller = self.found, self.limits.teller
        if teller is None or teller.raised is not None:  # it was told to stop: a last state is kept, not told
            return
        codes = None if found.state is None else self._codes(found.state)
        state = None if codes is None else partial(named, self.question, codes)
        teller.know(doing, state, found.log_lower, found.log_upper)
        self.limits.tell(doing)  # which stops the search if the one who was told wants no more

    def _say(self, doing: str) -> None:
        """What is being done, where nothing is known of the answer meanwhile."""
        if self.limits.teller is not None:
            self.limits.teller.know(doing, None, -np.inf, 0.0 if self.network.kind == "bayes" else np.inf)
        self.limits.tell(doing)

    def _plan(self) -> tuple[Prediction, Prediction]:
        """Any order, and one with the hidden variables first; a tenth of the time may go into the search for both.

        One order of each kind, by the rule that is quickest, says whether it is worth looking for better ones. If
        neither is soon gone through, a first state comes before that.
        """
        self._say("looking for an elimination order")
        asked = set(self.question.columns)
        share = (self.limits.deadline - self.limits.begun) / 20
        graph = self.limits.run(lambda _stop: self._graph(), wait=False)
        if self.limits.teller is not None:
            self.found.lower(self._simple_bound(), "")
            self._tell("looking for an elimination order")

        def guess(stop: LongArray) -> float:
            """Entries of the better kind of order by the rule that is quickest."""
            assert self.problem is not None
            last = [i for i, column in enumerate(self.problem.open) if column in asked]
            watch = partial(_look, stop)
            orders = [best_order(graph, some, tries=0, rules=(MIN_WEIGHT,), watch=watch) for some in ((), last)]
            return float(np.exp(min(700.0, *(order.log_entries for order in orders))))

        def best(seconds: float, tries: int) -> tuple[Prediction, Prediction]:
            def planning(stop: LongArray) -> tuple[Prediction, Prediction | None]:
                assert self.problem is not None
                watch = partial(_look, stop)
                return plans(self.problem, asked, seconds=seconds, watch=watch, tries=tries, graph=graph)

            free, first = self.limits.run(planning, wait=False)
            return free, first or free

        hopeless = HOPELESS * ENTRIES_PER_EDGE * self.limit
        light = partial(interpreted_order, graph, MIN_WEIGHT, np.log(LONG_SECONDS / SECONDS_PER_ENTRY))
        if interprets() and self.limits.run(lambda _stop: light(), wait=False) is None:
            self._share_of(np.inf, lambda search: search.state_at_once(ENTRIES_AT_ONCE))
        entries = self.limits.run(guess, wait=False)
        if SECONDS_PER_ENTRY * entries < LONG_SECONDS:
            return best(min(share, SECONDS), TRIES)
        if entries > hopeless:  # better orders take long to find, and may not help
            self._share_of(FIRST_STATE_SECONDS, lambda search: search.first_state())
        free, first = best(0.0, TRIES)
        least, seconds, tries = min(free.entries, first.entries), min(share, SECONDS), TRIES
        if SECONDS_PER_ENTRY * least >= LONG_SECONDS:
            self._share_of(FIRST_STATE_SECONDS, lambda search: search.first_state())
            seconds, tries = min(share, ORDER_SECONDS), MANY_TRIES
        return best(seconds, tries) if least <= hopeless else (free, first)

    def _simple_bound(self) -> float:
        """The bound that needs no work: the largest entry of each table, times the values of the hidden variables."""
        problem, asked = self.problem, set(self.question.columns)
        assert problem is not None
        hidden = [np.log(problem.values[column].size) for column in problem.open if column not in asked]
        tops = [np.log(factor.table.max()) for factor in problem.factors]
        return raised(problem.log_constant, float(sum(tops)), float(sum(hidden)), problem.rounding + 1e-9)

    def _graph(self) -> Graph:
        if self.problem is None:
            self.problem = Problem(self.network, self.question.columns, self.observed)
        return problem_graph(self.problem)

    def _eliminate(self, plan: Prediction) -> Result:
        problem, limits = self.problem, self.limits
        assert problem is not None
        limits.allow(bytes_of(plan, problem))
        self._say(f"eliminating, {amount(plan.entries)} table entries")
        work = limits.run(lambda _stop: Elimination(problem, plan, self.question.columns), wait=False)
        found = limits.run(lambda stop: work.maximum(_watch(stop)), wait=False)
        log_evidence = self._log_evidence()
        log_upper = max(found.log_upper, found.log_prob)
        if np.isnan(log_evidence):  # at a limit the state is kept, without its share of the evidence
            if limits.teller is not None:  # that takes as long again
                state = partial(named, self.question, found.state)
                limits.teller.know("eliminating for the evidence's share", state, found.log_prob, log_upper)
            with suppress(Stopped):
                log_evidence = limits.run(lambda stop: work.log_evidence(_watch(stop)), wait=False)
        status: Status = "optimal" if log_upper - found.log_prob <= limits.gap else "precision_limit"
        why = f"the hidden variables can go first: width {plan.width}, {amount(plan.entries)} table entries"
        details = {"why": why, "width": plan.width, "entries": plan.entries, "order": plan.order}
        best = Ranked(named(self.question, found.state), found.log_prob, found.log_prob - log_evidence)
        return result_of(status, [best], log_upper, "elimination", limits, details)

    def _compile(self, plan: Prediction | None, limits: Limits, look: Callable[[], None] = lambda: None) -> Result:
        """Compile for this query and ask the circuit; ``look`` is called now and then while it is compiled."""
        question, begun = self.question, limits.clock()
        asked, observed = question.columns, self.observed
        included = {*asked, *observed} or {0}
        if plan is not None:
            limits.allow(plan.memory)

        def compiling(stop: LongArray) -> Circuit:
            wanted = asked or list(included - observed.keys())
            problem = self.problem or Problem(self.network, wanted, observed)
            chosen = plan or plan_of(problem, set(wanted), 0, self.limit)
            return compile_planned(problem, chosen, included, self.limit, _watch(stop), one_query=True)

        self._say("compiling the network for this question")
        compiled = self.limits.run(compiling, wait=False, look=look)
        rounding = compile_rounding(self.network)
        if limits.teller is not None:
            limits.teller.rounding = 2 * question.rounding + rounding
        spent = limits.clock() - begun
        place = {column: i for i, column in enumerate(sorted(included))}
        inner = question._replace(
            model=compiled,
            columns=[place[column] for column in asked],
            observed={place[column]: value for column, value in question.observed.items()},
            method=AUTO if question.method == "elimination" else question.method,
        )
        result = circuit_map(inner, limits)
        return replace(
            result,
            status="precision_limit" if result.status == "optimal" and rounding > ROUNDED else result.status,
            log_upper=raised(result.log_upper, rounding),
            details={**result.details, "compiled": f"{compiled!r} in {spent:.3g} s"},
        )


class _Exchange:
    """What the circuit's solver does with every look at the clock while a search runs beside it."""

    def __init__(self, work: _NetworkMap) -> None:
        self.work, self.told = work, (-np.inf, np.inf)

    def __call__(self) -> None:
        self.told = self.work.exchange(self.told)


def compile_rounding(network: Network) -> float:
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
