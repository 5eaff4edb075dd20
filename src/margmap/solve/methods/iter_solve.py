"""The paper's solver, with its edge bounds corrected: bound, prune, split, until the bounds meet.

Choi, Friedman, Van den Broeck, "Solving Marginal MAP Exactly by Probabilistic Circuit Transformations", AISTATS 2022,
Algorithms 1 to 4. What the paper does not have, regrouping, hill climbing and the fixing of variables, can be switched
off one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from margmap.circuit import SUM, LongArray, Name
from margmap.circuit.arrays import Bits
from margmap.errors import QueryError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits, Status, Stopped
from margmap.foundation.pairs import raised
from margmap.foundation.wording import did_you_mean
from margmap.solve.conditional_bounds import conditional_bounds
from margmap.solve.edge_bounds import edge_bounds
from margmap.solve.hill_climb import Incumbents
from margmap.solve.lower_bound import lower_bound_state
from margmap.solve.output_bounds import View, floor_of, view_of
from margmap.solve.pick_variable import choose_by_bounds
from margmap.solve.prune import hopeless, keep_without
from margmap.solve.query_circuit import Flat, rebuild
from margmap.solve.reduce import Reduced
from margmap.solve.regroup import regrouped
from margmap.solve.result import Outcome
from margmap.solve.split import split, split_size
from margmap.solve.supports import Flags, undecided

# What an edge costs in all the arrays that exist at once while a circuit is split and bounded.
BYTES_PER_EDGE = 200


class Snapshot(NamedTuple):
    """The circuit and both bounds (logs of p(q, e)) at one moment; ``maxes`` are the deterministic sums."""

    nodes: int
    edges: int
    sums: int
    maxes: int
    upper: float
    lower: float


class Iteration(NamedTuple):
    """One round of pruning and splitting, with the columns of the authors' logs."""

    iteration: int
    prune_seconds: float
    split_seconds: float
    total_seconds: float
    prune_rounds: int
    pruned: Snapshot
    #: None if the bounds met before a split was needed.
    split_variable: Name | None
    split: Snapshot

    def to_dict(self) -> dict[str, int | float | Name | None]:
        """One flat row, as in a CSV file."""
        plain = {name: value for name, value in self._asdict().items() if not isinstance(value, Snapshot)}
        for when, shot in (("pruned", self.pruned), ("split", self.split)):
            plain.update({f"{when}_{name}": value for name, value in shot._asdict().items()})
        return plain


def solve(
    reduced: Reduced,
    limits: Limits,
    *,
    heuristic: Literal["UB", "Pruned"] = "UB",
    regroup: bool = True,
    climb: bool = True,
    fix: bool = True,
    max_edges: int | None = None,
    on_iteration: Callable[[Iteration], None] | None = None,
) -> Outcome:
    """Iter-Solve (Algorithm 3). ``regroup=False, climb=False, fix=False`` is the plain algorithm of the paper."""
    if heuristic not in ("UB", "Pruned"):
        near = did_you_mean(heuristic, ("UB", "Pruned"))
        raise QueryError(f"unknown heuristic {heuristic!r}: {near}choose 'UB' or 'Pruned'")
    most = limits.memory // BYTES_PER_EDGE if max_edges is None else max_edges
    return Transformations(reduced, limits, heuristic, regroup, climb, fix, most, on_iteration).solve()


class Transformations:
    """A run of Iter-Solve: ``log_upper`` bounds all states, ``incumbents`` has the best one so far."""

    def __init__(
        self,
        reduced: Reduced,
        limits: Limits,
        heuristic: str,
        regroup: bool,
        climb: bool,
        fix: bool,
        max_edges: int,
        on_iteration: Callable[[Iteration], None] | None,
    ) -> None:
        self.reduced, self.limits, self.heuristic = reduced, limits, heuristic
        self.regroup, self.climb, self.fix = regroup, climb, fix
        self.max_edges, self.on_iteration = max_edges, on_iteration
        self.begun = limits.clock()
        # States that beat the incumbent by less than this may be lost; the upper bound reported allows for them.
        self.slack = limits.gap / 2
        self.trace: list[Iteration] = []
        self.log_upper = 0.0
        self.peak_edges = reduced.num_edges
        self.free = np.ones(reduced.cardinality.size, dtype=np.bool_)
        # Bound, edges and incumbent when every variable had been split on.
        self.last_round: tuple[float, int, float] | None = None
        self.pruned_of = np.zeros(reduced.cardinality.size, dtype=np.int64)
        self.first = self._bound(reduced.flat, 0.0)
        self.incumbents = Incumbents(reduced.flat, self.first.bounds, reduced.cardinality, limits)
        self.view: View | None = None

    def go_on(self, limits: Limits) -> Status:
        """Iterate until the bounds meet or a limit is reached."""
        self.limits = self.incumbents.limits = limits
        try:
            if self.view is None:
                self._improve(self.first)
                self.view = self._regrouped(self.first)
            while not self._closed(self.view):
                self.view = self._iterate(self.view)
        except Stopped as stop:
            return stop.status
        return "optimal"

    def solve(self) -> Outcome:
        """Iterate, and say what came of it."""
        status = self.go_on(self.limits)
        state, log_lower = self.incumbents.best
        details = {"iterations": len(self.trace), "peak_edges": self.peak_edges, "trace": tuple(self.trace)}
        return Outcome([state], max(self.log_upper, log_lower + self.slack), status, details)

    def _iterate(self, view: View) -> View:
        at = self.limits.clock()
        view, rounds = self._prune(view)
        self.view = view  # which is not lost if the split is stopped
        pruned_at = self.limits.clock()
        pruned = self._sizes(view)
        if self._closed(view):
            self._record(at, pruned_at, rounds, pruned, -1, pruned)
            return view
        variable, view = self._pick(view)
        if self._closed(view):
            self._record(at, pruned_at, rounds, pruned, -1, self._sizes(view))
            return view
        self.limits.check()
        if split_size(view.flat, variable, view.supports) > self.max_edges:
            raise Stopped("memory_limit")
        flat, log_factor = split(view.flat, variable, view.supports, self.limits.run)
        self.free[variable] = False
        view = self._regrouped(self._bound(flat, raised(view.log_factor, log_factor)))
        self._improve(view)
        self._closed(view)
        self._record(at, pruned_at, rounds, pruned, variable, self._sizes(view))
        return view

    def _prune(self, view: View) -> tuple[View, int]:
        """Prune-Edge until nothing falls."""
        rounds = 0
        while not self._closed(view):
            keep = edge_bounds(view.flat, view.bounds, self.limits.run) > self._threshold(view)
            if keep.all():
                break
            self.limits.check()
            rounds += 1
            if self.heuristic == "Pruned":
                deterministic, supports = view.bounds.deterministic, view.supports
                _count_pruned(view.flat, keep, deterministic, supports.can, supports.words, self.pruned_of)
            view = self._smaller(view, keep)
            self._improve(view)
        return view, rounds

    def _pick(self, view: View) -> tuple[int, View]:
        """The variable to split on; with UB, variables are fixed on the way if their other values cannot win."""
        cardinality = self.reduced.cardinality
        if self.heuristic == "Pruned":
            free = self._open(view)
            return (int(np.argmax(np.where(free, self.pruned_of, -1))) if free.any() else -1), view
        asked = self._open(view)
        if not asked.any():
            return -1, view
        relative = conditional_bounds(view.flat, view.bounds, cardinality, asked, self.limits.run)
        if self.fix:
            # The tightened bounds fix more; for the choice those that the split will really have do better.
            tight = conditional_bounds(view.flat, view.bounds, cardinality, asked, self.limits.run, tighten=True)
            fallen = hopeless(tight, cardinality, asked, self._threshold(view))
            keep = keep_without(view.flat, fallen)
            if not keep.all():
                view = self._smaller(view, keep)
                if self._closed(view):
                    return -1, view
                relative = np.where(fallen, 0.0, relative)
        free = self._open(view)
        return (choose_by_bounds(relative, cardinality, free, self._threshold(view)) if free.any() else -1), view

    def _open(self, view: View) -> Flags:
        """The variables to split on: those that were not yet, or all that are undecided once each of them was.

        If a whole round of splits has changed nothing, the bound is that of a state, but doubles cannot tell.
        """
        can = undecided(view.supports, self.reduced.cardinality.size)
        free: Flags = self.free & can
        if free.any():
            return free
        self._improve(view)
        if self._closed(view):
            return free
        known = (view.log_upper, view.flat.num_edges, self.incumbents.best[1])
        if not can.any() or known == self.last_round:
            raise Stopped("precision_limit")
        self.last_round = known
        self.free[:] = True
        return can

    def _smaller(self, view: View, keep: Flags) -> View:
        flat, log_factor = rebuild(view.flat, keep, self.limits.run)
        return self._regrouped(self._bound(flat, raised(view.log_factor, log_factor)))

    def _bound(self, flat: Flat, log_factor: float) -> View:
        self.peak_edges = max(self.peak_edges, flat.num_edges)
        return view_of(flat, log_factor, self.reduced.cardinality, self.limits.run)

    def _regrouped(self, view: View) -> View:
        if self.regroup:
            view = regrouped(view, self.reduced.cardinality, self.limits.run)
            self.peak_edges = max(self.peak_edges, view.flat.num_edges)
        return view

    def _improve(self, view: View) -> None:
        if view.flat.num_nodes:
            bounds, variables = view.bounds, self.reduced.cardinality.size
            state = lower_bound_state(view.flat, bounds.deterministic, variables, bounds.rows)
            self.incumbents.offer(state, self.climb)

    def _closed(self, view: View) -> bool:
        """Whether nothing left can beat the incumbent; keeps the upper bound up to date."""
        state, log_value = self.incumbents.best
        lower = log_value + self.slack
        self.log_upper = min(self.log_upper, max(view.log_upper, lower))
        self.limits.tell(
            f"iteration {len(self.trace) + 1}, {view.flat.num_edges} edges", state, log_value, self.log_upper
        )
        return view.log_upper <= lower

    def _threshold(self, view: View) -> float:
        return floor_of(self.incumbents.best[1] + self.slack, view.log_upper)

    def _sizes(self, view: View) -> Snapshot:
        sums = int((view.flat.kind == SUM).sum())
        maxes = int(view.bounds.deterministic.sum())
        scale = self.reduced.log_scale
        return Snapshot(
            view.flat.num_nodes,
            view.flat.num_edges,
            sums - maxes,
            maxes,
            self.log_upper + scale,
            self.incumbents.best[1] + scale,
        )

    def _record(
        self,
        begun: float,
        pruned_at: float,
        rounds: int,
        pruned: Snapshot,
        variable: int,
        after: Snapshot,
    ) -> None:
        now = self.limits.clock()
        name = self.reduced.names[variable] if variable >= 0 else None
        times = (pruned_at - begun, now - pruned_at, now - self.begun)
        row = Iteration(len(self.trace) + 1, *times, rounds, pruned, name, after)
        self.trace.append(row)
        if self.on_iteration:
            self.on_iteration(row)


@kernel
def _count_pruned(f: Flat, keep: Flags, deterministic: Flags, can: Bits, words: int, count: LongArray) -> None:
    """For the (Pruned) heuristic: each edge that falls below a sum counts for the variables that decide that sum."""
    once, twice = np.zeros(can.shape[1], dtype=np.uint64), np.zeros(can.shape[1], dtype=np.uint64)
    for n in range(f.kind.size):
        if not deterministic[n]:
            continue
        fallen = 0
        for e in range(f.start[n], f.start[n + 1]):
            fallen += not keep[e]
        if fallen == 0:
            continue
        once[:] = 0
        twice[:] = 0
        for e in range(f.start[n], f.start[n + 1]):
            for w in range(can.shape[1]):
                twice[w] |= once[w] & can[f.child[e], w]
                once[w] |= can[f.child[e], w]
        for v in range(count.size):
            scope, clash = np.uint64(0), np.uint64(0)
            for g in range(v >> 6, can.shape[1], words):
                scope |= once[g]
                clash |= twice[g]
            if (scope & ~clash) >> np.uint64(v & 63) & np.uint64(1):
                count[v] += fallen
