"""Frontier: exact marginal MAP of structured-decomposable circuits, bottom-up over their scopes.

Two assignments of a scope's variables matter to the rest of the circuit only through the values of a few nodes. One
that is nowhere better than another, or that cannot reach the incumbent, is dropped; what is left at the root is the
answer. A width limit keeps the first sweeps cheap: they find good states and a bound. It grows until the bounds meet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from margmap.circuit import PRODUCT, SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.errors import StructureError
from margmap.foundation.jit import interprets, kernel
from margmap.foundation.limits import Limits, Status, Stopped, quick
from margmap.foundation.pairs import raised
from margmap.solve.conditional_bounds import tightest
from margmap.solve.hill_climb import Incumbents
from margmap.solve.lower_bound import lower_bound_state
from margmap.solve.methods.best_first import BestFirst
from margmap.solve.methods.branch_and_bound import WORTHWHILE, Search
from margmap.solve.methods.frontier.pending import pending_rows
from margmap.solve.methods.frontier.scope_tree import Plan, make_plan, plan_with, room_of_plan, rounding_of
from margmap.solve.methods.frontier.sweep import Swept, sweep
from margmap.solve.methods.frontier.sweep_by_parts import Cut, cut_of, sweep_by_parts
from margmap.solve.output_bounds import View, floor_of, relative_view, view_of
from margmap.solve.prices import Priced
from margmap.solve.query_circuit import Flat
from margmap.solve.reduce import Reduced
from margmap.solve.regroup import regrouped
from margmap.solve.result import Outcome
from margmap.solve.supports import Flags, undecided

FIRST_WIDTH = 64
WIDTH_GROWTH = 8

# Pairs of vectors that a join looks at one by one: so many, and so many more for each vector that it may keep.
PAIRS, PAIRS_OF_ONE = 4096, 16

# A turn of the search beside the sweeps takes so many seconds at least; so does pruning between them.
LEAST_TURN, LEAST_PRUNING = 0.1, 0.05
# Sweeps have so many seconds to themselves before the search gets its first turn, and so many times what the bounds
# took: in a large circuit a sweep that is stopped has cost much. But not more than this part of the time that is left.
FIRST_SWEEPS, FIRST_PASSES, FIRST_PART = 0.1, 100, 0.6
# A turn, as a part of the time so far: of a sweep and of the search, if the search has the better bound, and if not.
SWEEP_TURNS, SEARCH_TURNS = (0.25, 3.0), (1.0, 0.3)
# And of pruning; after a turn that was too short, or that took little away, so many times less.
PRUNING_TURN, PRUNED_LITTLE = 2.0, 16

# The width stays as it is if pruning has left less than this part of the edges.
SMALLER = 0.5

# A sweep of fewer multiplications is over in some milliseconds; only a longer one is done where it can be stopped.
QUICK_WORK = 10_000_000

# Multiplications an edge that a sweep may take before there is a state. It has no floor, so that it drops little.
EAGER_WORK = 12
# There is such a sweep if less than this part of the edges below sums leads to children that exclude each other: latent
# trees have up to 0.24, what is left of deterministic circuits 0.37 or more.
MOST_EXCLUDING = 0.3


class Ready(NamedTuple):
    """What was found together with the plan: the bounds, their rounding, the cut, and when that was begun."""

    view: View
    rounding: float
    cut: Cut | None
    begun: float


class Planned(NamedTuple):
    """A problem, the circuit to sweep for it, and its plan."""

    reduced: Reduced
    flat: Flat
    plan: Plan
    #: None where the bounds are still to be found.
    ready: Ready | None = None


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
    planned = plan_for(reduced, limits, priced)
    if planned is None:
        raise StructureError(NOT_STRUCTURED)
    return solve_planned(planned, limits, k=k, width=width, max_width=max_width, priced=priced)


def plan_for(reduced: Reduced, limits: Limits, priced: Priced | None = None) -> Planned | None:
    """The circuit to sweep and its plan; None if its scopes do not form a tree.

    What a circuit has in common with others of its shape is found once for all of them. The circuit of a problem with
    constraints is ``priced``'s, about which nothing is known beforehand. The arrays of a large reduced circuit that can
    be made again may be written over.
    """
    asked = (reduced.cardinality.size, limits.run, limits.check)
    if priced is not None:
        planned = make_plan(priced.flat, *asked)
    elif reduced.shape is not None:
        planned = reduced.shape.planned(reduced.flat, *asked)
    else:
        # Work that is interpreted may begin anew when it takes long: not over what it has written over.
        if reduced.parts is not None and reduced.again is not None and not interprets():
            reduced, ready = _with_bounds(reduced, reduced.parts, reduced.again, limits)
            if ready is not None:
                return ready
        planned = make_plan(reduced.flat, *asked, reduced.scope)
    return None if planned is None else Planned(reduced, *planned)


def _with_bounds(
    reduced: Reduced, parts: LongArray, again: Callable[[], Reduced], limits: Limits
) -> tuple[Reduced, Planned | None]:
    """The plan of a large circuit, found at the same time as its bounds, which are written over its weights.

    And the reduced circuit, which had to be made again where that was tried and not possible. There is no plan if its
    products skip levels, or if it has few dense blocks.
    """
    flat, scope, rows, begun = reduced.flat, reduced.scope, reduced.rows, limits.clock()
    assert scope is not None
    found: list[tuple[Plan, float, Cut | None]] = []

    def plan(stop: LongArray) -> None:
        fits, plan = plan_with(flat, scope, int(scope.max()) + 1, stop)
        if fits and stop[0] == 0:
            found.append((plan, rounding_of(flat, plan, rows), cut_of(plan, parts)))

    limits.allow(room_of_plan(flat))
    view = relative_view(flat, reduced.cardinality, limits.run, parts, rows, plan)
    if view is None or not found:
        reduced = again()
    if not found:
        return reduced, None
    if view is None:
        view = _lean_view(reduced, limits)
    planned, rounding, cut = found[0]
    return reduced, Planned(reduced, view.flat, planned, Ready(view, rounding, cut, begun))


def solve_planned(
    planned: Planned,
    limits: Limits,
    *,
    k: int = 1,
    width: int = FIRST_WIDTH,
    max_width: int | None = None,
    floor: float = -np.inf,
    priced: Priced | None = None,
) -> Outcome:
    """The same for a circuit that has its plan already; states with a log value up to ``floor`` are of no interest.

    For one state without constraints, what the sweeps find prunes the circuit between them, and when the sweeps have
    had some time to themselves a best-first search of the pruned circuit takes turns with them.
    """
    (reduced, flat, plan, ready), begun = planned, limits.clock()
    cardinality, shape = reduced.cardinality, reduced.shape if flat is reduced.flat else None
    if ready is None:
        view = _first_view(reduced, flat, limits)
        rounding = (rounding_of if shape is None else shape.rounding)(flat, plan, view.bounds.rows)
        cut = None if view.bounds.parts is None or priced is not None else cut_of(plan, view.bounds.parts)
    else:
        view, rounding, cut, begun = ready
    flat, bounds, slack = view.flat, view.bounds, limits.gap / 4
    widest_allowed = FIRST_WIDTH if max_width is None else max_width
    if priced is None:
        incumbents = Incumbents(flat, bounds, cardinality, limits, k, log_factor=view.log_factor)
        pending, log_whole = None, bounds.log_upper if view.log_factor == 0 else view.log_upper
    else:
        incumbents = priced.incumbents(cardinality, limits, k)
        pending = pending_rows(flat, plan, priced.rows, priced.can, priced.toll)
        log_whole = raised(bounds.log_upper, priced.offset)
        rounding += priced.rounding
    log_upper = log_whole  # of the states that are not incumbents
    rounds, widest, search_nodes = 0, 0, 0
    status: Status = "optimal"
    now = limits.clock()
    alone = max(FIRST_SWEEPS, min(FIRST_PASSES * (now - begun), FIRST_PART * (limits.deadline - now)))
    turns = _Turns(incumbents, cardinality, limits, floor, alone) if k == 1 and priced is None else None
    try:
        for state in () if priced is None else priced.states:
            incumbents.offer(state, climb=False)
        # Where sums do not exclude each other a floor drops little, and a state costs more than it saves.
        eager = turns is not None and reduced.start is None and few_exclude(view)
        if not eager:
            _first_states(reduced, view, incumbents, priced, log_upper)
        while log_upper > (floor := max(floor, incumbents.floor)) + slack:
            limits.check()
            if max_width is None and width > widest_allowed:
                widest_allowed = _room(flat, plan, limits)
            if width > widest_allowed:
                # Unless less memory was asked for, what is left of the time is the search's.
                if turns is not None and max_width is None and not limits.holds_memory:
                    log_upper = turns.take(view, log_upper, limits)
                    if turns.proven:
                        break
                    limits.check()
                raise Stopped("memory_limit")
            log_floor = floor + slack - log_whole
            pairs, variables = PAIRS + PAIRS_OF_ONE * width, cardinality.size
            problem = (flat, bounds.block_rows, bounds.share, bounds.least, plan)
            if cut is None:
                work = partial(sweep, *problem, pending, variables, log_floor, width, pairs, k)
            else:
                work = partial(sweep_by_parts, *problem, cut, variables, log_floor, width, pairs, k)
            if eager:
                ended, values, states, upper, wide = _within(work, EAGER_WORK * flat.num_edges, limits)
                eager = ended
                if not ended:
                    _first_states(reduced, view, incumbents, priced, log_upper)
                    continue
            else:
                ended, values, states, upper, wide = work(np.array([0, quick(QUICK_WORK)]))
            if not ended:
                found = limits.run(work) if turns is None else turns.sweep(work)
                if found is None:
                    assert turns is not None
                    log_upper = turns.take(view, log_upper)
                    if turns.proven:
                        break
                    continue
                _, values, states, upper, wide = found
            rounds, widest = rounds + 1, max(widest, int(wide))
            for state in states:
                incumbents.offer(state, climb=False)
            floor = max(floor, incumbents.floor)
            known = values if len(values) >= k and priced is None else values[:0]
            merged, log_upper = after_sweep(upper, known, log_floor, log_whole, floor + slack, log_upper)
            best_state, log_best = incumbents.best
            limits.tell(f"sweep of width {width}", best_state, log_best, max(raised(log_upper, rounding), log_best))
            if not merged:
                if log_upper <= floor + slack + rounding:
                    break  # proven, within rounding
                # All was seen, but in numbers too small for doubles: wider sweeps see no more. The search has pairs.
                search = Search(cardinality, limits)
                whole = reduced.flat if view.log_factor == 0 or reduced.again is None else reduced.again().flat
                found_states, log_upper, status = _search(search, whole, floor, k, log_upper, priced)
                search_nodes += search.nodes
                for state in found_states:
                    incumbents.offer(state, climb=False)
                break
            if eager:
                _first_states(reduced, view, incumbents, priced, log_upper)
                eager = False
            if k == 1 and log_upper > floor + slack and incumbents.ranked:
                incumbents.offer(incumbents.best[0], climb=True)
            floor = max(floor, incumbents.floor)
            edges = flat.num_edges
            if turns is not None and log_upper > floor + slack:
                view, log_upper = turns.prune(view, floor + slack, log_upper)
                if log_upper <= floor + slack:
                    break
                if view.flat is not flat:
                    smaller = make_plan(view.flat, cardinality.size, limits.run, limits.check)
                    assert smaller is not None, "a part of a structured circuit is structured"
                    (flat, plan), cut = smaller, None
                    if flat is not view.flat:
                        view = view_of(flat, view.log_factor, cardinality, limits.run)
                    bounds, log_whole = view.bounds, view.log_upper
                    rounding = max(rounding, rounding_of(flat, plan, bounds.rows))
                if turns.due:
                    log_upper = turns.take(view, log_upper)
                    if turns.proven:
                        break
            if flat.num_edges > SMALLER * edges:
                width *= WIDTH_GROWTH
    except Stopped as stopped:
        status = stopped.status
    best = [state for _, state in incumbents.ranked]
    details = {"rounds": rounds, "widest": widest, "search_nodes": search_nodes + (turns.nodes if turns else 0)}
    log_upper = max(log_upper, max(floor, incumbents.floor) + slack)
    return Outcome(best, raised(log_upper, rounding), status, details)


def _first_view(reduced: Reduced, flat: Flat, limits: Limits) -> View:
    """The bounds of the circuit to be swept."""
    if flat is reduced.flat and reduced.shape is not None:
        return reduced.shape.view(flat, reduced.cardinality, limits.run)
    if flat is not reduced.flat or reduced.parts is None:
        return view_of(flat, 0.0, reduced.cardinality, limits.run)
    return _lean_view(reduced, limits)


def _lean_view(reduced: Reduced, limits: Limits) -> View:
    """The bounds of a large circuit. It has dense blocks, which are not pruned; nothing else looks at supports."""
    given = (reduced.flat, 0.0, reduced.cardinality, limits.run, reduced.parts)
    return view_of(*given, lean=True, known=reduced.rows)


def _first_states(
    reduced: Reduced, view: View, incumbents: Incumbents, priced: Priced | None, log_upper: float
) -> None:
    """Offer the state that a session begins with, or the one that Algorithm 4 gives, and climb."""
    flat, bounds, variables = view.flat, view.bounds, reduced.cardinality.size
    if reduced.start is not None:
        incumbents.offer(reduced.start, climb=True)
    if not incumbents.ranked or reduced.start is None:
        first = lower_bound_state(flat, bounds.deterministic, variables, bounds.rows, bounds.parts)
        incumbents.offer(first, climb=True)
    if priced is not None and incumbents.ranked:
        incumbents.offer(incumbents.best[0], climb=True)
    incumbents.offer_neighbours()
    incumbents.limits.tell("first state", *incumbents.best, max(log_upper, incumbents.best[1]))


def _within(work: Callable[[LongArray], Swept], multiplications: int, limits: Limits) -> Swept:
    """A sweep that ends early after so many multiplications, also where another thread watches the limits."""

    def bounded(stop: LongArray) -> Swept:
        stop[1] = quick(multiplications)
        return work(stop)

    return limits.run(bounded, multiplications // 4)


def few_exclude(view: View) -> bool:
    """Whether few edges below sums lead to children that exclude each other."""
    excluding, edges = _edges_below_sums(view.flat.kind, view.flat.start, view.bounds.deterministic)
    return bool(excluding < MOST_EXCLUDING * edges)


def _edges_below_sums_by_numpy(kind: KindArray, start: LongArray, deterministic: Flags) -> tuple[int, int]:
    edges = np.diff(start)
    return int(edges[deterministic].sum()), int(edges[kind == SUM].sum())


@kernel(interpreted=_edges_below_sums_by_numpy)
def _edges_below_sums(kind: KindArray, start: LongArray, deterministic: Flags) -> tuple[int, int]:
    """How many edges are below deterministic sums, and how many below all sums."""
    excluding, edges = 0, 0
    for n in range(kind.size):
        if kind[n] == SUM:
            edges += start[n + 1] - start[n]
        if deterministic[n]:
            excluding += start[n + 1] - start[n]
    return excluding, edges


def after_sweep(
    upper: float, values: FloatArray, log_floor: float, log_whole: float, least: float, log_upper: float
) -> tuple[bool, float]:
    """Whether a sweep has left anything out that may be above its floor, and the bound on all states after it.

    ``upper`` is the sweep's bound on what it has left out, and ``values`` are those of states for which it has dropped
    others, since these are at least as good. Both are relative to ``log_whole``, the bound of the whole circuit; states
    up to ``least`` are of no interest, and ``log_upper`` is the bound before.
    """
    merged = upper > log_floor
    if values.size:
        upper = max(upper, values[-1])
    return merged, min(log_upper, max(raised(upper, log_whole), least))


class _Turns:
    """What happens between the sweeps: pruning, and the turns of a best-first search on what that leaves.

    Sweeps and search share the best state, and the bound is the smaller one. The search gets longer turns as long as
    its bound is the better one.
    """

    def __init__(
        self, incumbents: Incumbents, cardinality: IntArray, limits: Limits, floor: float, alone: float
    ) -> None:
        self._incumbents, self._cardinality, self._limits, self._floor = incumbents, cardinality, limits, floor
        self._begun, self._alone = limits.clock(), alone
        self._search: BestFirst | None = None
        self._over, self._leads = False, True
        self._failed = 0.0  # seconds of the last sweep that was stopped
        self._pruned_with, self._pruning = -np.inf, PRUNING_TURN
        #: Whether the search came to its end: the best state is optimal, within the search's own slack.
        self.proven = False

    @property
    def nodes(self) -> int:
        """Parts that the search has looked at."""
        return 0 if self._search is None else self._search.nodes

    @property
    def due(self) -> bool:
        """Whether the sweeps have had the time that is theirs alone."""
        return not self._over and self._limits.clock() > self._begun + self._alone

    def _turn(self, part: float, least: float) -> Limits:
        """So much of the time since the beginning, and at least so many seconds."""
        now = self._limits.clock()
        return self._limits.until(now + max(least, part * (now - self._begun)))

    def sweep(self, work: Callable[[LongArray], Swept]) -> Swept | None:
        """A sweep within its turn; None if it was stopped, or if its turn is not much longer than one that was."""
        if self._over:
            return self._limits.run(work)
        turn = self._turn(SWEEP_TURNS[not self._leads], self._alone if self._search is None else LEAST_TURN)
        seconds = turn.deadline - self._limits.clock()
        if seconds < 1.5 * self._failed:
            return None
        try:
            return turn.run(work)
        except Stopped:
            self._limits.check()  # which raises unless only the sweep's turn is over
            self._failed = seconds
            return None

    def prune(self, view: View, log_floor: float, log_upper: float) -> tuple[View, float]:
        """A circuit without what cannot beat the floor, or the same one, and a bound on all states.

        A second time with the same floor takes nothing more away. In dense blocks nothing excludes anything else, and
        pruning takes little away from them.
        """
        if view.bounds.rows is not None or self._pruned_with >= log_floor:
            return view, log_upper
        turn, before = self._turn(self._pruning, LEAST_PRUNING), view.flat.num_edges
        search = Search(self._cardinality, turn)
        try:
            smaller = regrouped(view, self._cardinality, turn.run)
            while True:
                edges, log_whole = smaller.flat.num_edges, smaller.log_upper
                if log_whole <= log_floor:
                    break
                asked = undecided(smaller.supports, self._cardinality.size)
                if not asked.any():
                    break
                smaller, relative = search.prune(smaller, floor_of(log_floor, log_whole))
                log_upper = min(log_upper, max(raised(tightest(relative, asked), log_whole), log_floor))
                view = smaller
                turn.check()
                if smaller.flat.num_edges > (1 - WORTHWHILE) * edges:
                    break
            self._pruned_with = log_floor
        except Stopped:
            self._limits.check()
        if view.flat.num_edges > (1 - WORTHWHILE) * before:
            self._pruning /= PRUNED_LITTLE
        return view, min(log_upper, max(view.log_upper, log_floor))

    def take(self, view: View, log_upper: float, turn: Limits | None = None) -> float:
        """One turn of the search; a bound on all states, the best state goes to the incumbents."""
        if self._over:
            return log_upper
        turn = turn or self._turn(SEARCH_TURNS[not self._leads], LEAST_TURN)
        if self._search is None:
            whole = (view.flat, view.log_factor, min(log_upper, view.log_upper))
            self._search = BestFirst(*whole, self._cardinality, self._incumbents, self._floor)
        status = self._search.go_on(turn)
        self._incumbents.limits = self._limits
        if status == "interrupted":
            raise Stopped(status)
        self._over = status in ("optimal", "memory_limit", "precision_limit")
        self.proven = status == "optimal"
        self._leads = self._search.log_upper <= log_upper
        return min(log_upper, self._search.log_upper)


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
