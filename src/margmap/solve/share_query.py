"""One hard query on many cores: subproblems in which some query variables are fixed, shared out by their bounds.

A subproblem is worked on for a slice of time with the value of the best state known anywhere as the one to beat. What
is left of it then is smaller: the open nodes of the search, or one subproblem for each value of a variable. The
coordinator keeps what is left, largest bound first, and drops what cannot beat the best state. Nothing is lost when a
worker dies: its subproblems are sent again.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from margmap.circuit import IntArray
from margmap.distribute.executors import Kept, Processes, WorkerDied, answer_of, submit, workers_of
from margmap.errors import MargmapError, StructureError
from margmap.foundation.limits import WATCH_SECONDS, Limits, Status, Stopped
from margmap.foundation.pairs import lowered, raised
from margmap.solve.conditional_bounds import conditional_bounds
from margmap.solve.methods.branch_and_bound import Search
from margmap.solve.methods.frontier.scope_tree import make_plan
from margmap.solve.methods.frontier.solve import NOT_STRUCTURED, Planned, plan_for, solve_planned
from margmap.solve.output_bounds import floor_of, view_of
from margmap.solve.pick_variable import choose_by_bounds
from margmap.solve.prune import restrict
from margmap.solve.query_circuit import SMALLEST, Flat
from margmap.solve.reduce import Reduced
from margmap.solve.result import Outcome
from margmap.solve.supports import possible, undecided
from margmap.solve.values import log_value as log_value_of

#: Seconds on one core before the query is shared out: most are done by then.
FIRST_SECONDS = 1.0

#: Seconds that a worker spends on what it is sent; twice as long each time that something comes back unsolved.
SLICE_SECONDS = 0.5
LONGEST_SLICE = 16.0

#: The same for the first tasks: there are soon enough subproblems for all workers.
SHORT_SECONDS = 0.1

#: For each million edges, all of these are so many times as long: a large circuit takes long to bound at all.
LONGER = 8.0

#: The most subproblems that travel together.
TOGETHER = 64

#: Subproblems that are under way when a worker dies for the third time are left open.
MOST_DEATHS = 3


class Part(NamedTuple):
    """A subproblem: the states with these values of some query variables; none of them has a larger log value."""

    fixed: tuple[tuple[int, int], ...]
    log_upper: float
    #: How often it, or what it is a part of, came back unsolved or never.
    tries: int = 0
    deaths: int = 0


class Answer(NamedTuple):
    """What a worker made of some subproblems."""

    #: The best state above what was to beat, and its log value.
    state: IntArray | None
    log_value: float
    #: A bound on all states but those that are left.
    log_upper: float
    left: list[Part]
    #: Seconds of computing that it took.
    seconds: float = 0.0


def share_query(
    reduced: Reduced, limits: Limits, method: str, jobs: int, executor: Executor | None
) -> tuple[str, Outcome]:
    """First alone, then with ``jobs`` processes or an executor; the name of the method used, and the outcome."""
    structured = method != "branch" and plan_for(reduced, limits) is not None
    if method == "frontier" and not structured:
        raise StructureError(NOT_STRUCTURED)
    name = "frontier" if structured else "branch"
    work = Work(reduced, structured, limits.gap, limits.memory if limits.holds_memory else None)
    alone = limits.until(limits.clock() + FIRST_SECONDS * work.patience)
    coordinator = _Coordinator(work, limits, work.attempt([Part((), 0.0)], -np.inf, alone))
    if not coordinator.heap:
        return name, coordinator.outcome("optimal")
    if executor is not None:
        return name, coordinator.run(executor)
    processes = Processes(jobs)
    try:
        return name, coordinator.run(processes)
    finally:
        processes.kill()  # whatever they are still at cannot matter any more


class Work(NamedTuple):
    """What a worker is sent once."""

    reduced: Reduced
    structured: bool
    gap: float
    memory_limit: int | None

    @property
    def patience(self) -> float:
        """How many times as long as usual a slice of time is for this circuit."""
        return 1.0 + LONGER * self.reduced.num_edges / 1e6

    def attempt(self, parts: Sequence[Part], floor: float, limits: Limits) -> Answer:
        """Work on subproblems one by one, for states with a log value above ``floor``, until the limits are reached."""
        best, closed, left = None, -np.inf, []
        for i, part in enumerate(parts):
            if part.log_upper <= floor + self.gap / 2:
                closed = max(closed, part.log_upper)
                continue
            begun = False
            try:
                if i:
                    limits.check()
                begun = True
                state, log_upper, more = self._attempt(part, floor, limits)
            except Stopped:
                left += [part._replace(tries=part.tries + begun), *parts[i + 1 :]]
                break
            left += more
            closed = max(closed, log_upper)
            log_value = -np.inf if state is None else float(log_value_of(self.reduced.flat, state))
            if log_value > floor:
                best, floor = state, log_value
        return Answer(best, floor, closed, left)

    def _attempt(self, part: Part, floor: float, limits: Limits) -> tuple[IntArray | None, float, list[Part]]:
        """A state, if one above the floor was found, a bound on all states but those left, and what is left."""
        cardinality = self.reduced.cardinality
        flat, log_factor = self.reduced.flat, 0.0
        if part.fixed:
            flat, log_factor = restrict(flat, cardinality, part.fixed, limits.run)
        if flat.num_nodes == 0:
            return None, -np.inf, []
        floor = lowered(floor, -log_factor)
        if not self.structured:
            found, _ = Search(cardinality, limits).run(flat, floor)
            more = [
                Part((*part.fixed, *inner.fixed), min(part.log_upper, raised(inner.log_upper, log_factor)), part.tries)
                for inner in found.left
            ]
            if len(more) == 1 and more[0].fixed == part.fixed:
                more = [more[0]._replace(tries=part.tries + 1)]
            closed = max(floor, found.log_value) + self.gap / 2 if more else found.log_upper
            return found.state, min(part.log_upper, raised(closed, log_factor)), more
        planned = make_plan(flat, cardinality.size, limits.run, limits.check)
        if planned is None:
            raise AssertionError("a part of a structured circuit is structured")
        smaller = Reduced(flat, self.reduced.names, cardinality, (1.0, 0.0), 0.0)
        outcome = solve_planned(Planned(smaller, *planned), limits, floor=floor)
        state = outcome.states[0] if outcome.states else None
        log_upper = min(part.log_upper, raised(outcome.log_upper, log_factor))
        if outcome.status == "optimal":
            return state, log_upper, []
        return state, -np.inf, _split(flat, log_factor, part._replace(log_upper=log_upper), floor, cardinality)


def _split(flat: Flat, log_factor: float, part: Part, floor: float, cardinality: IntArray) -> list[Part]:
    """A subproblem for each value of the variable that the bounds choose; itself if every variable is decided."""
    view = view_of(flat, 0.0, cardinality)
    asked = undecided(view.supports, cardinality.size)
    tries = part.tries + 1
    if not asked.any():
        return [part._replace(tries=tries)]
    relative = conditional_bounds(flat, view.bounds, cardinality, asked, tighten=True)
    variable = choose_by_bounds(relative, cardinality, asked, floor_of(floor, view.log_upper))
    log_bounds = np.log(np.maximum(relative[variable], SMALLEST)) + raised(view.log_upper, log_factor)
    return [
        Part((*part.fixed, (variable, int(x))), min(part.log_upper, float(log_bounds[x])), tries)
        for x in np.flatnonzero(possible(view.supports, cardinality.size)[variable])
    ]


#: In a worker, the problems it has been sent, the newest last; in the process of the coordinator, also its own.
_works = Kept(Work)


def _work(token: str, packed: bytes | None, parts: Sequence[Part], floor: float, seconds: float) -> Answer | None:
    """Work on some subproblems in a worker; None if the worker does not have the problem yet."""
    work = _works.find(token, packed)
    if work is None:
        return None
    limits, begun = Limits(seconds, work.gap, work.memory_limit), time.process_time()
    with limits.not_counting_compilation():
        answer = work.attempt(parts, floor, limits)
    return answer._replace(seconds=time.process_time() - begun)


class _Coordinator:
    """The subproblems that are open, largest bound first, and the best state so far."""

    def __init__(self, work: Work, limits: Limits, first: Answer) -> None:
        self.work, self.limits, self.token = work, limits, uuid4().hex
        self.numbers = itertools.count()
        self.heap: list[tuple[float, int, Part]] = []
        self.state: IntArray | None = None
        self.best, self.closed = -np.inf, -np.inf
        self.done: SimpleQueue[tuple[int, Future[Any]]] = SimpleQueue()
        self.under_way: dict[int, tuple[Sequence[Part], Future[Any]]] = {}
        self.lost: list[Part] = []
        self.workers = self.tasks = self.deaths = 0
        self.seconds = 0.0
        self.heard = False
        self.packed: bytes | None = None
        self.take(first)

    @property
    def threshold(self) -> float:
        """What the bound of a subproblem must exceed to be of interest."""
        return self.best + self.limits.gap / 2

    def run(self, executor: Executor) -> Outcome:
        """Share the subproblems out until none is left that could have a better state."""
        _works[self.token] = self.work
        self.workers = workers_of(executor)
        status: Status = "optimal"
        try:
            while True:
                self.limits.check()
                self.tell()
                self.fill(executor)
                if not self.open_parts():
                    break
                alone = bool(self.heap) and not self.heard
                try:
                    back = self.done.get(timeout=0.0 if alone else WATCH_SECONDS)
                except Empty:
                    if alone:
                        self.help()
                    continue
                self.receive(executor, *back)
        except Stopped as stopped:
            status = stopped.status
        finally:
            _works.pop(self.token, None)
            for _, future in self.under_way.values():
                future.cancel()
        if status == "optimal" and any(part.log_upper > self.threshold for part in self.lost):
            status = "memory_limit"  # what kills every worker that tries it
        return self.outcome(status)

    def help(self) -> None:
        """Work here as long as the first worker has not begun."""
        part = heapq.heappop(self.heap)[2]
        until = self.limits.clock() + SHORT_SECONDS * self.work.patience
        self.take(self.work.attempt([part], self.best, self.limits.until(until, silent=True)))

    def tell(self) -> None:
        """Report the best state, and the largest bound of what is open, to whoever is told of progress."""
        if self.limits.teller is not None:
            doing = f"{len(self.heap)} subproblems waiting, {len(self.under_way)} sent to {self.workers} workers"
            self.limits.tell(doing, self.state, self.best, self.log_upper())

    def log_upper(self) -> float:
        """No state has a larger log value."""
        left = [*self.open_parts(), *self.lost]
        return min(max(self.closed, self.threshold, *(part.log_upper for part in left), -np.inf), 0.0)

    def outcome(self, status: Status) -> Outcome:
        details = {
            "tasks": self.tasks,
            "workers": self.workers,
            "worker_seconds": self.seconds,
            "worker_deaths": self.deaths,
            "open": len(self.open_parts()) + len(self.lost),
        }
        return Outcome([] if self.state is None else [self.state], self.log_upper(), status, details)

    def open_parts(self) -> list[Part]:
        """All subproblems, waiting or under way, that may have a better state."""
        parts = [part for _, _, part in self.heap]
        parts += [part for some, _ in self.under_way.values() for part in some]
        return [part for part in parts if part.log_upper > self.threshold]

    # -- to the workers

    def fill(self, executor: Executor) -> None:
        """Send as much as the workers can do with, and one more task, so that none waits."""
        while self.heap and len(self.under_way) <= self.workers:
            size = min(TOGETHER, max(1, len(self.heap) // (2 * self.workers)))
            parts = [heapq.heappop(self.heap)[2] for _ in range(size)]
            parts = [part for part in parts if part.log_upper > self.threshold]
            if not parts:
                self.heap.clear()  # none of the others has a larger bound
                return
            self.send(executor, parts)

    def send(self, executor: Executor, parts: Sequence[Part], packed: bytes | None = None) -> None:
        number = self.tasks
        self.tasks += 1
        seconds = min(SLICE_SECONDS * 2.0 ** max(part.tries for part in parts), LONGEST_SLICE)
        if number < 4 * self.workers:
            seconds = SHORT_SECONDS
        seconds = min(seconds * self.work.patience, max(self.limits.deadline - self.limits.clock(), 1e-3))
        future = submit(executor, _work, self.token, packed, parts, self.best, seconds)
        self.under_way[number] = (parts, future)
        future.add_done_callback(lambda future: self.done.put((number, future)))

    # -- and back

    def receive(self, executor: Executor, number: int, future: Future[Any]) -> None:
        """What a worker sent: an answer, the wish for the problem, or nothing because it died."""
        parts, _ = self.under_way.pop(number)
        try:
            answer = answer_of(future)
        except WorkerDied:
            self.died(parts)
            return
        self.heard = True
        if answer is None:
            self.packed = self.packed or pickle.dumps(tuple(self.work), protocol=pickle.HIGHEST_PROTOCOL)
            self.send(executor, parts, self.packed)
        else:
            self.take(answer)

    def take(self, answer: Answer) -> None:
        self.closed = max(self.closed, answer.log_upper)
        self.seconds += answer.seconds
        if answer.state is not None and answer.log_value > self.best:
            self.state, self.best = answer.state, answer.log_value
        for part in answer.left:
            self.push(part)

    def push(self, part: Part) -> None:
        if part.log_upper > self.threshold:
            heapq.heappush(self.heap, (-part.log_upper, next(self.numbers), part))

    def died(self, parts: Sequence[Part]) -> None:
        """Try subproblems again whose worker died, those that went together apart; or leave them open."""
        self.deaths += 1
        for part in parts:
            part = part._replace(deaths=part.deaths + 1, tries=part.tries + 1)
            if part.deaths < MOST_DEATHS:
                self.push(part)
            elif not self.heard:
                raise MargmapError("all worker processes die before they do anything: see what they print")
            else:
                self.lost.append(part)
