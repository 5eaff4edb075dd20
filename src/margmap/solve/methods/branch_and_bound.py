"""Branch: depth-first search with the paper's transformations at every node, for circuits of any structure.

At each node the circuit is regrouped, bounded, stripped of literals and edges that cannot win, and rebuilt smaller,
until that no longer pays; factors of a product are solved one by one; otherwise the search branches on one variable.
Unlike the split at the root, each branch has a circuit of its own, smaller with every step down, and chooses its own
next variable.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import NamedTuple, TypeAlias

import numpy as np

from margmap.circuit import PRODUCT, FloatArray, IntArray
from margmap.foundation.limits import Limits, Status, Stopped
from margmap.foundation.pairs import log_of, lowered, raised
from margmap.solve.conditional_bounds import conditional_bounds
from margmap.solve.edge_bounds import edge_bounds
from margmap.solve.hill_climb import Incumbents
from margmap.solve.lower_bound import lower_bound_state
from margmap.solve.output_bounds import View, floor_of, output_bounds, view_of
from margmap.solve.pick_variable import choose_by_bounds
from margmap.solve.prices import Priced
from margmap.solve.prune import hopeless, keep_without, restrict
from margmap.solve.query_circuit import SMALLEST, Flat, rebuild
from margmap.solve.reduce import Reduced
from margmap.solve.regroup import regrouped
from margmap.solve.result import Outcome
from margmap.solve.rows import Rows, propagate
from margmap.solve.supports import possible, undecided

# A state this many nats below what is to beat is worth climbing from.
PROMISING = 1.0

# Another round of pruning is worth it if the last one took at least this part of the edges away.
WORTHWHILE = 0.05


class Open(NamedTuple):
    """What a search that was stopped has left: states with these values (by variable), and a bound on them."""

    fixed: tuple[tuple[int, int], ...]
    log_upper: float


class Found(NamedTuple):
    """The best state of a subproblem, if any beats the threshold it was given, and a bound on all of its states."""

    state: IntArray | None
    log_value: float
    log_upper: float
    #: If the search was stopped: all states that may be better than the best one are in one of these.
    left: tuple[Open, ...] = ()

    def stopped(self, log_upper: float) -> Found:
        """The same if nothing is known of the states that are left but a bound."""
        return self._replace(log_upper=log_upper, left=(Open((), log_upper),))


class _Problem(NamedTuple):
    """Find the best state of ``flat`` if its log value is above ``threshold``; it may be missed by ``slack`` nats."""

    flat: Flat
    threshold: float
    slack: float
    #: What is known before the search: no state has a larger log value.
    log_upper: float
    #: For whoever is told of progress: the log of what a value is to be multiplied by to be one of the whole circuit.
    #: None inside of a factor, whose states are only parts of states.
    log_scale: float | None = None
    #: A bound on the states of the whole circuit that are outside of this problem and still open.
    log_outside: float = -np.inf


_Search: TypeAlias = Generator[_Problem, Found, Found]


def solve(reduced: Reduced, limits: Limits, *, k: int = 1, priced: Priced | None = None) -> Outcome:
    """Search the whole reduced circuit for its best state, or for its ``k`` best; ``priced`` has the constraints."""
    search = Search(reduced.cardinality, limits)
    if k > 1 or priced is not None:
        states, log_upper, status = search.run_many(reduced.flat, k, priced)
    else:
        found, status = search.run(reduced.flat, -np.inf)
        # The first node of the search finds a state, unless it is stopped before that.
        states, log_upper = [] if found.state is None else [found.state], found.log_upper
    return Outcome(states, log_upper, status, {"search_nodes": search.nodes})


class Search:
    """Depth-first branch and bound; :meth:`run` can be stopped at any moment and still returns sound bounds."""

    def __init__(self, cardinality: IntArray, limits: Limits) -> None:
        self._cardinality = cardinality
        self._limits = limits
        self._status: Status = "optimal"
        #: Search nodes visited so far.
        self.nodes = 0

    def run(self, flat: Flat, threshold: float) -> tuple[Found, Status]:
        """The best state with a log value above ``threshold``; an upper bound on all states, and why it stopped."""
        # An explicit stack of generators instead of recursion: the search may be as deep as there are variables.
        stack = [self._solve(_Problem(flat, threshold, self._limits.gap / 2, 0.0, 0.0))]
        answer: Found | None = None
        while True:
            try:
                problem = stack[-1].send(answer) if answer is not None else next(stack[-1])
                stack.append(self._solve(problem))
                answer = None
            except StopIteration as end:
                stack.pop()
                answer = end.value
                if not stack:
                    return answer, self._status

    def run_many(self, flat: Flat, most: int, priced: Priced | None = None) -> tuple[list[IntArray], float, Status]:
        """The ``most`` best states, a bound on all others, and why it stopped.

        Every node is closed by the last of the best so far. Products are not taken apart: the best states of the whole
        need not be made of the best of each factor. With constraints (``priced``) the circuit is that with prices on
        them, and at every node the literals go that they leave no room for.
        """
        whole = self.view(flat, 0.0) if priced is None else self.view(priced.flat, priced.offset)
        if priced is None:
            loose = output_bounds(flat, np.zeros(flat.num_nodes, np.bool_))
            incumbents = Incumbents(flat, loose, self._cardinality, self._limits, most)
        else:
            incumbents = priced.incumbents(self._cardinality, self._limits, most)
        rows = None if priced is None else priced.rows
        slack = self._limits.gap / 2
        log_upper = -np.inf
        with suppress(Stopped):
            for state in () if priced is None else priced.states:
                incumbents.offer(state, climb=True)
            incumbents.offer(self._first(whole), climb=True)
        todo = [(whole.log_upper, whole)]
        while todo:
            log_bound, view = todo.pop()
            highest = max(log_bound, log_upper, *(bound for bound, _ in todo), -np.inf)
            self._tell(*incumbents.best, max(highest, incumbents.best[1] + slack))
            if self._status != "optimal" or self._stopped():
                log_upper = max(log_upper, log_bound)
                continue
            if log_bound <= incumbents.floor + slack:
                continue
            self.nodes += 1
            with suppress(Stopped):
                incumbents.offer(self._first(view), climb=True)
                incumbents.offer_neighbours()
            try:
                todo += self._below(view, incumbents, slack, rows)
            except Stopped as stop:
                self._status = stop.status
                log_upper = max(log_upper, log_bound)
        states = [state for _, state in incumbents.ranked]
        return states, max(log_upper, incumbents.floor + slack), self._status

    def _below(self, view: View, incumbents: Incumbents, slack: float, rows: Rows | None) -> list[tuple[float, View]]:
        """The circuits to look at in place of this one, best last, with their bounds; none if it is decided."""
        floor = floor_of(incumbents.floor + slack, view.log_upper)
        view, relative = self.prune(view, floor)
        if rows is not None and view.flat.num_nodes:
            can = possible(view.supports, self._cardinality.size)
            left = propagate(rows, can)
            if left is None:
                return []
            if not (left == can).all():
                flat, log_factor = rebuild(view.flat, keep_without(view.flat, ~left), self._limits.run)
                smaller = self.view(flat, raised(view.log_factor, log_factor))
                return [(smaller.log_upper, smaller)] if flat.num_nodes else []
        asked = undecided(view.supports, self._cardinality.size) if view.flat.num_nodes else np.zeros(0, np.bool_)
        if not asked.any():
            if view.flat.num_nodes:
                incumbents.offer(_only_state(view.flat, self._cardinality.size), climb=False)
            return []
        variable = choose_by_bounds(relative, self._cardinality, asked, floor)
        children = []
        can = possible(view.supports, self._cardinality.size)
        for x in np.argsort(relative[variable], kind="stable"):
            if can[variable, x]:
                part, log_factor = restrict(view.flat, self._cardinality, [(variable, int(x))], self._limits.run)
                child = self.view(part, raised(view.log_factor, log_factor))
                children.append((child.log_upper, child))
        return children

    def _solve(self, problem: _Problem) -> _Search:
        self.nodes += 1
        slack, threshold, log_upper = problem.slack, problem.threshold, problem.log_upper
        best = Found(None, -np.inf, threshold + slack)
        try:
            view = self.view(problem.flat, 0.0)
            while True:
                log_upper = view.log_upper
                if log_upper > threshold + slack:
                    best = self.improve(view, best, threshold)
                    threshold = max(threshold, best.log_value)
                self._tell_of(problem, best, max(log_upper, threshold + slack))
                if log_upper <= threshold + slack:
                    return best._replace(log_upper=threshold + slack)
                if not undecided(view.supports, self._cardinality.size).any():
                    return best._replace(log_upper=log_upper)
                if self._stopped():
                    return best.stopped(log_upper)
                if view.flat.kind[-1] == PRODUCT:
                    return (yield from self._factors(problem, view, best, threshold))
                edges = view.flat.num_edges
                smaller, relative = self.prune(view, floor_of(threshold + slack, log_upper))
                shrunk = smaller.flat.num_edges <= (1 - WORTHWHILE) * edges
                if not shrunk and undecided(smaller.supports, self._cardinality.size).any():
                    log_bounds = np.log(np.maximum(relative, SMALLEST)) + log_upper
                    return (yield from self._branch(problem, smaller, relative, log_bounds, best, threshold))
                view = smaller
        except Stopped as stop:  # in the middle of a step: what was known before it
            self._status = stop.status
            return best.stopped(max(log_upper, threshold + slack))

    def view(self, flat: Flat, log_factor: float) -> View:
        """The circuit regrouped and bounded."""
        run = self._limits.run
        return regrouped(view_of(flat, log_factor, self._cardinality, run), self._cardinality, run)

    def _first(self, view: View) -> IntArray:
        """Algorithm 4."""
        bounds = view.bounds
        return lower_bound_state(view.flat, bounds.deterministic, self._cardinality.size, bounds.rows)

    def improve(self, view: View, best: Found, threshold: float) -> Found:
        """Algorithm 4 and hill climbing on this circuit."""
        incumbents = Incumbents(view.flat, view.bounds, self._cardinality, self._limits)
        with suppress(Stopped):  # the state found by then is kept; the caller looks at the limits next
            first = self._first(view)
            incumbents.offer(first, climb=False)
            if incumbents.best[1] + view.log_factor > threshold - PROMISING:
                incumbents.offer(first, climb=True)
        state, log_value = incumbents.best
        log_value += view.log_factor
        return best._replace(state=state, log_value=log_value) if log_value > threshold else best

    def prune(self, view: View, floor: float) -> tuple[View, FloatArray]:
        """Without the literals and edges that cannot rise above the floor; also the bounds of all literals."""
        asked, run = undecided(view.supports, self._cardinality.size), self._limits.run
        relative = conditional_bounds(view.flat, view.bounds, self._cardinality, asked, run, tighten=True)
        keep = keep_without(view.flat, hopeless(relative, self._cardinality, asked, floor))
        keep &= edge_bounds(view.flat, view.bounds, run) > floor
        if keep.all():
            return view, relative
        flat, log_factor = rebuild(view.flat, keep, run)
        return self.view(flat, raised(view.log_factor, log_factor)), relative

    def _factors(self, problem: _Problem, view: View, best: Found, threshold: float) -> _Search:
        """The root is a product: its factors share no variable, so the best state is made of their best states."""
        flat, bounds, slack = view.flat, view.bounds, problem.slack
        children = sorted(flat.child[flat.start[-2] : flat.start[-1]].tolist())
        log_bound = [raised(log_of(bounds.value[c], bounds.exponent[c])) for c in children]
        whole = np.ones(flat.num_edges, dtype=np.bool_)
        parts = [rebuild(_upto(flat, c), whole[: flat.start[c + 1]], self._limits.run) for c in children]
        sizes = [np.unique(part.var[part.var >= 0]).size for part, _ in parts]
        state = np.zeros(self._cardinality.size, dtype=np.int32)
        done = view.log_factor
        for i, (part, log_factor) in enumerate(parts):
            around = raised(done, *log_bound[i + 1 :], log_factor)
            mine = slack * sizes[i] / sum(sizes)
            found = yield _Problem(part, lowered(threshold, -around), mine, raised(log_bound[i], -log_factor))
            if self._status != "optimal":
                return best.stopped(max(raised(around, found.log_upper), threshold + slack))
            if found.state is None:
                return best._replace(log_upper=threshold + slack)
            own = part.var[part.var >= 0]
            state[own] = found.state[own]
            done = raised(done, log_factor, found.log_value)
            self._tell_of(problem, best, max(raised(done, *log_bound[i + 1 :]), threshold) + slack)
        return Found(state, done, done + slack)

    def _branch(
        self, problem: _Problem, view: View, relative: FloatArray, log_bounds: FloatArray, best: Found, threshold: float
    ) -> _Search:
        """Branch on one variable, its better values first; both sorts of bounds are by variable and value."""
        slack = problem.slack
        asked = undecided(view.supports, self._cardinality.size)
        floor = floor_of(threshold + slack, view.log_upper)
        variable = choose_by_bounds(relative, self._cardinality, asked, floor)
        can = possible(view.supports, self._cardinality.size)
        values = [x for x in np.argsort(-relative[variable], kind="stable") if can[variable, x]]
        left: list[Open] = []
        for i, x in enumerate(values):
            if log_bounds[variable, x] <= threshold + slack:
                break
            try:
                flat, log_factor = restrict(view.flat, self._cardinality, [(variable, int(x))], self._limits.run)
            except Stopped as stop:
                self._status = stop.status
                left = [Open(((variable, int(y)),), float(log_bounds[variable, y])) for y in values[i:]]
                break
            log_factor = raised(log_factor, view.log_factor)
            log_bound = raised(float(log_bounds[variable, x]), -log_factor)
            below = _Problem(flat, lowered(threshold, -log_factor), slack, log_bound)
            if problem.log_scale is not None:
                later = max((float(log_bounds[variable, y]) for y in values[i + 1 :]), default=-np.inf)
                outside = max(problem.log_outside, raised(later, problem.log_scale))
                below = below._replace(log_scale=raised(log_factor, problem.log_scale), log_outside=outside)
            found = yield below
            if found.state is not None:
                threshold = max(threshold, raised(found.log_value, log_factor))
                best = Found(found.state, threshold, threshold)
                self._tell_of(problem, best, np.inf)
            if self._status != "optimal":
                here = (variable, int(x))
                left = [Open((here, *inner.fixed), raised(inner.log_upper, log_factor)) for inner in found.left]
                left += [Open(((variable, int(y)),), float(log_bounds[variable, y])) for y in values[i + 1 :]]
                break
        left = [part for part in left if part.log_upper > threshold + slack]
        log_upper = max((part.log_upper for part in left), default=-np.inf)
        return best._replace(log_upper=max(log_upper, threshold + slack), left=tuple(left))

    def _tell_of(self, problem: _Problem, best: Found, log_upper: float) -> None:
        """Report what is known of a subproblem as something about the whole circuit, if it is."""
        if problem.log_scale is not None:
            log_value = best.log_value + problem.log_scale
            highest = max(raised(log_upper, problem.log_scale), problem.log_outside)
            self._tell(best.state, log_value, max(highest, log_value))

    def _tell(self, state: IntArray | None, log_value: float, log_upper: float) -> None:
        """Whoever is told may want no more: the search then ends where it looks at its limits next."""
        with suppress(Stopped):
            self._limits.tell(f"branch and bound, {self.nodes} nodes", state, log_value, log_upper)

    def _stopped(self) -> bool:
        try:
            self._limits.check()
        except Stopped as stop:
            self._status = stop.status
        return self._status != "optimal"


def _only_state(flat: Flat, variables: int) -> IntArray:
    """The state of a circuit in which every variable is decided."""
    state = np.zeros(variables, dtype=np.int32)
    leaf = flat.var >= 0
    state[flat.var[leaf]] = flat.value[leaf]
    return state


def _upto(flat: Flat, node: int) -> Flat:
    """The circuit up to a node, which becomes its root; what that does not use is still in it."""
    edges = int(flat.start[node + 1])
    return Flat(
        flat.kind[: node + 1],
        flat.start[: node + 2],
        flat.child[:edges],
        flat.weight[:edges],
        flat.var[: node + 1],
        flat.value[: node + 1],
    )
