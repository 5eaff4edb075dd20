"""Frontier: exact marginal MAP of structured-decomposable circuits, bottom-up over their scopes.

Two assignments of a scope's variables matter to the rest of the circuit only through the values of a few nodes. One
that is nowhere better than another, or that cannot reach the incumbent, is dropped; what is left at the root is the
answer. A width limit keeps the first sweeps cheap: they find good states and a bound. It grows until the bounds meet.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from margmap.circuit import PRODUCT, IntArray
from margmap.errors import StructureError
from margmap.foundation.limits import Limits, Status, Stopped, quick
from margmap.foundation.pairs import raised
from margmap.solve.hill_climb import Incumbents
from margmap.solve.lower_bound import lower_bound_state
from margmap.solve.methods.branch_and_bound import Search
from margmap.solve.methods.frontier.pending import pending_rows
from margmap.solve.methods.frontier.scope_tree import Plan, make_plan, rounding_of
from margmap.solve.methods.frontier.sweep import sweep
from margmap.solve.methods.iter_solve import Transformations, in_turns
from margmap.solve.output_bounds import view_of
from margmap.solve.prices import Priced
from margmap.solve.query_circuit import Flat
from margmap.solve.reduce import Reduced
from margmap.solve.result import Outcome

FIRST_WIDTH = 64
WIDTH_GROWTH = 8

# Pairs of vectors that a join looks at one by one: so many, and so many more for each vector that it may keep.
PAIRS, PAIRS_OF_ONE = 4096, 16

# Sweeps this narrow are done before the search of `branch` gets its turn.
BRANCH_FROM = 4096

# A turn of the transformations of `iterative` takes so many seconds at least.
LEAST_TURN = 0.1
# The first sweep that takes longer than this, and longer than all before it, waits for the first turn of those.
FIRST_SWEEP = 0.5

# A sweep of fewer multiplications is over in some milliseconds; only a longer one is done where it can be stopped.
QUICK_WORK = 10_000_000


NOT_STRUCTURED = (
    "method 'frontier' needs a structured-decomposable circuit, and two scopes of this one cross: "
    "use method='branch', or 'auto', which chooses"
)


def solve(
    reduced: Reduced,
    limits: Limits,
    *,
    k: int = 1,
    width: int = FIRST_WIDTH,
    max_width: int | None = None,
    priced: Priced | None = None,
) -> Outcome:
    """Sweeps with frontiers of ``width``, then wider ones, until the ``k`` best states are proven.

    With constraints, ``priced`` is the problem with prices on them.
    """
    flat = reduced.flat if priced is None else priced.flat
    planned = make_plan(flat, reduced.cardinality.size, limits.run, limits.check)
    if planned is None:
        raise StructureError(NOT_STRUCTURED)
    return solve_planned(reduced, limits, *planned, k=k, width=width, max_width=max_width, priced=priced)


def solve_planned(
    reduced: Reduced,
    limits: Limits,
    flat: Flat,
    plan: Plan,
    *,
    k: int = 1,
    width: int = FIRST_WIDTH,
    max_width: int | None = None,
    floor: float = -np.inf,
    priced: Priced | None = None,
    portfolio: bool = False,
) -> Outcome:
    """The same for a circuit that has its plan already; states with a log value up to ``floor`` are of no interest.

    With ``portfolio``, the transformations of ``iterative`` get their turns between wide sweeps.
    """
    cardinality = reduced.cardinality
    parts = reduced.parts if flat is reduced.flat else None
    bounds = view_of(flat, 0.0, cardinality, limits.run, parts).bounds
    slack = limits.gap / 4
    widest_allowed = _room(flat, plan, limits) if max_width is None else max_width
    rounding = rounding_of(flat, plan)
    if priced is None:
        incumbents = Incumbents(flat, bounds, cardinality, limits, k)
        pending, log_whole = None, bounds.log_upper
    else:
        incumbents = priced.incumbents(cardinality, limits, k)
        pending = pending_rows(flat, plan, priced.rows, priced.can, priced.toll)
        log_whole = raised(bounds.log_upper, priced.offset)
        rounding += priced.rounding
    log_upper = log_whole  # of the states that are not incumbents
    rounds, widest, search_nodes = 0, 0, 0
    status: Status = "optimal"
    begun = limits.clock()
    turns = _Turns(reduced, limits, begun) if portfolio and k == 1 and priced is None else None
    try:
        for state in () if priced is None else priced.states:
            incumbents.offer(state, climb=False)
        if reduced.start is not None:
            incumbents.offer(reduced.start, climb=True)
        if not incumbents.ranked or reduced.start is None:
            first = lower_bound_state(flat, bounds.deterministic, cardinality.size, bounds.rows, parts)
            incumbents.offer(first, climb=True)
        if priced is not None and incumbents.ranked:
            incumbents.offer(incumbents.best[0], climb=True)
        incumbents.offer_neighbours()
        limits.tell("first state", *incumbents.best, max(log_upper, incumbents.best[1]))
        while log_upper > (floor := max(floor, incumbents.floor)) + slack:
            limits.check()
            if width > widest_allowed:
                raise Stopped("memory_limit")
            log_floor = floor + slack - log_whole
            pairs, variables = PAIRS + PAIRS_OF_ONE * width, cardinality.size
            problem = (flat, bounds.share, bounds.least, plan, pending, variables)
            work = partial(sweep, *problem, log_floor, width, pairs, k)
            ended, values, states, upper, wide = work(np.array([0, quick(QUICK_WORK)]))
            if not ended:
                try:
                    _, values, states, upper, wide = (limits if turns is None else turns.for_a_sweep()).run(work)
                except Stopped:
                    limits.check()  # which raises unless only the sweep's turn is over
                    if turns is None:
                        raise
                    log_upper = turns.take(incumbents, log_upper)
                    if turns.proven:
                        break
                    continue
            rounds, widest = rounds + 1, max(widest, int(wide))
            for state in states:
                incumbents.offer(state, climb=False)
            floor = max(floor, incumbents.floor)
            merged = upper > log_floor
            if len(values) >= k and priced is None:  # the others were dropped because these are at least as good
                upper = max(upper, values[-1])
            log_upper = min(log_upper, max(raised(upper, log_whole), floor + slack))
            best_state, log_best = incumbents.best
            limits.tell(f"sweep of width {width}", best_state, log_best, max(raised(log_upper, rounding), log_best))
            if not merged:
                if log_upper <= floor + slack + rounding:
                    break  # proven, within rounding
                # All was seen, but in numbers too small for doubles: wider sweeps see no more. The search has pairs.
                search = Search(cardinality, limits)
                found_states, log_upper, status = _search(search, reduced.flat, floor, k, log_upper, priced)
                search_nodes += search.nodes
                for state in found_states:
                    incumbents.offer(state, climb=False)
                break
            if k == 1 and log_upper > floor + slack and incumbents.ranked:
                incumbents.offer(incumbents.best[0], climb=True)
            floor, alone = max(floor, incumbents.floor), k == 1 and priced is None
            if width >= BRANCH_FROM and alone and log_upper > floor + slack:
                # As long as the sweeps took so far, see whether a search comes to an end sooner.
                search = Search(cardinality, limits.until(2 * limits.clock() - begun))
                found, why = search.run(reduced.flat, floor)
                search_nodes += search.nodes
                if found.state is not None:
                    incumbents.offer(found.state, climb=False)
                log_upper = min(log_upper, found.log_upper)
                if why == "optimal":
                    break  # proven, within the search's own slack
                if why in ("interrupted", "memory_limit"):
                    raise Stopped(why)
                if turns is not None:
                    log_upper = turns.take(incumbents, log_upper)
                    if turns.proven:
                        break
            width *= WIDTH_GROWTH
    except Stopped as stopped:
        status = stopped.status
    best = [state for _, state in incumbents.ranked]
    details = {"rounds": rounds, "widest": widest, "search_nodes": search_nodes}
    log_upper = max(log_upper, max(floor, incumbents.floor) + slack)
    return Outcome(best, raised(log_upper, rounding), status, details)


class _Turns:
    """The turns that the transformations of ``iterative`` get, longer ones as long as their bound is the best.

    Both sides share the best state, and the bound is the smaller one.
    """

    def __init__(self, reduced: Reduced, limits: Limits, begun: float) -> None:
        self._reduced, self._limits, self._begun = reduced, limits, begun
        self._run: Transformations | None = None
        self._over = self._leads = False
        #: Whether the transformations came to their end: the best state is optimal, within their own slack.
        self.proven = False

    def _turn(self, part: float, least: float) -> Limits:
        """So much of the time since the beginning, and at least so many seconds."""
        now = self._limits.clock()
        return self._limits.until(now + max(least, part * (now - self._begun)))

    def for_a_sweep(self) -> Limits:
        """The limits of a sweep: its own turn, unless the transformations have had theirs and have not done better."""
        if self._over or not (self._leads or self._run is None):
            return self._limits
        return self._turn(0.5, LEAST_TURN) if self._leads else self._turn(1.0, FIRST_SWEEP)

    def take(self, incumbents: Incumbents, log_upper: float) -> float:
        """One turn of the transformations; a bound on all states, the best state goes to ``incumbents``."""
        if self._over:
            return log_upper
        turn = self._turn(1.0 if self._leads or self._run is None else 0.25, LEAST_TURN)
        try:
            if self._run is None:
                self._run = in_turns(self._reduced, turn)
        except Stopped:
            self._limits.check()
            return log_upper
        if incumbents.ranked:
            self._run.incumbents.offer(incumbents.best[0], climb=False)
        status = self._run.go_on(turn)
        incumbents.offer(self._run.incumbents.best[0], climb=False)
        if status == "interrupted":
            raise Stopped(status)
        self._over = status in ("optimal", "memory_limit", "precision_limit")
        self.proven = status == "optimal"
        self._leads = self._run.log_upper <= log_upper
        return min(log_upper, max(self._run.log_upper, self._run.incumbents.best[1] + self._run.slack))


def _search(
    search: Search, flat: Flat, floor: float, k: int, log_upper: float, priced: Priced | None
) -> tuple[list[IntArray], float, Status]:
    """What the search of ``branch`` finds above the floor: states, a bound on the others, its end."""
    if k > 1 or priced is not None:
        states, others, status = search.run_many(flat, k, priced)
        return states, min(log_upper, others), status
    found, status = search.run(flat, floor)
    return [] if found.state is None else [found.state], min(log_upper, found.log_upper), status


def _room(flat: Flat, plan: Plan, limits: Limits) -> int:
    """The widest frontier whose vectors and pairs fit the memory limit.

    At once there are, for each vector, an entry a product of the scope and two a node used outside (one set growing),
    and 16 pairs it may be joined in.
    """
    products = np.bincount(plan.scope[flat.kind == PRODUCT], minlength=plan.out_at.size - 1)
    entries = int((products + 2 * np.diff(plan.out_at)).max())
    return max(FIRST_WIDTH, int(limits.memory_left()) // (1024 + 8 * entries))
