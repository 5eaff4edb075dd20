"""Best first: the steps of ``branch``, always on the part of the problem whose bound is the largest.

Depth first, the bound of the whole stays that of the first value not tried yet until the search comes back to it. Here
all parts that are left wait in a heap, so the bound falls with every step, and the search can be stopped and gone on
with at any moment. Each part is a circuit of its own, as small as pruning has made it.
"""

from __future__ import annotations

import heapq
import itertools
from typing import NamedTuple

import numpy as np

from margmap.circuit import PRODUCT, FloatArray, IntArray
from margmap.foundation.limits import Limits, Status, Stopped
from margmap.foundation.pairs import lowered, raised
from margmap.solve.conditional_bounds import tightest
from margmap.solve.hill_climb import Incumbents
from margmap.solve.methods.branch_and_bound import WORTHWHILE, Found, Search
from margmap.solve.methods.branch_and_bound import solve as depth_first
from margmap.solve.output_bounds import View, floor_of, view_of
from margmap.solve.pick_variable import choose_by_bounds
from margmap.solve.prices import Priced
from margmap.solve.prune import restrict
from margmap.solve.query_circuit import SMALLEST, Flat
from margmap.solve.reduce import Reduced
from margmap.solve.result import Outcome
from margmap.solve.split import split, split_size
from margmap.solve.supports import Flags, possible, undecided

# A part whose root is a product is searched depth first, which takes the factors one by one, for so many seconds at
# least, or for this part of the time that the search has had. If that is not enough, it is branched on like any other.
LEAST_SLICE = 0.05
SLICE = 0.25

# Where nothing can be pruned, a part is split inside of its circuit, as ``iterative`` does it, up to so many edges.
SPLIT_EDGES = 50_000

# The parts that wait may take this part of the memory; then they are searched depth first.
WAITING = 0.5


class Part(NamedTuple):
    """States that are left to look at: those of a circuit, out of which a factor was taken."""

    #: Minus a bound on their log values, so that the largest comes first, and a number that no other part has.
    key: float
    number: int
    flat: Flat
    log_factor: float
    #: Variables that its circuit is split on.
    split: tuple[int, ...] = ()
    #: Whether factors have been searched depth first in vain.
    tried: bool = False

    @property
    def log_upper(self) -> float:
        """No state of this part has a larger log value."""
        return -self.key

    @property
    def room(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in self.flat)


def solve(reduced: Reduced, limits: Limits, *, k: int = 1, priced: Priced | None = None) -> Outcome:
    """Search the whole reduced circuit for its best state; for the ``k`` best, and with constraints, depth first."""
    if k > 1 or priced is not None:
        return depth_first(reduced, limits, k=k, priced=priced)
    bounds = view_of(reduced.flat, 0.0, reduced.cardinality, limits.run).bounds
    incumbents = Incumbents(reduced.flat, bounds, reduced.cardinality, limits)
    search = BestFirst(reduced.flat, 0.0, bounds.log_upper, reduced.cardinality, incumbents)
    status = search.go_on(limits)
    return Outcome([state for _, state in incumbents.ranked], search.log_upper, status, {"search_nodes": search.nodes})


class BestFirst:
    """A search for states above ``floor`` that goes on from where it was; the best are offered to ``incumbents``.

    ``log_upper`` bounds the states of the circuit it begins with, of which ``log_factor`` was taken out.
    """

    def __init__(
        self,
        flat: Flat,
        log_factor: float,
        log_upper: float,
        cardinality: IntArray,
        incumbents: Incumbents,
        floor: float = -np.inf,
    ) -> None:
        self._cardinality, self._incumbents, self._given_floor = cardinality, incumbents, floor
        self._numbers = itertools.count()
        self._waiting = [self._part(log_upper, flat, log_factor)]
        self._room = self._waiting[0].room
        # What stands for the part under way if its step is stopped.
        self._under_way = self._waiting[0]
        self._closed = -np.inf
        self._seconds = self._slack = 0.0
        #: Parts looked at so far.
        self.nodes = 0

    @property
    def floor(self) -> float:
        """States up to this log value are of no interest."""
        return max(self._given_floor, self._incumbents.floor)

    @property
    def log_upper(self) -> float:
        """No state has a larger log value: those of parts that wait, and those that were let go."""
        waiting = self._waiting[0].log_upper if self._waiting else -np.inf
        return max(waiting, self._closed, self.floor + self._slack)

    def go_on(self, limits: Limits) -> Status:
        """Look at one part after the other until none can have a better state, or a limit is reached."""
        self._incumbents.limits, self._slack = limits, limits.gap / 2
        begun = limits.clock()
        try:
            while self._waiting and self._waiting[0].log_upper > self.floor + self._slack:
                limits.check()
                self._under_way = heapq.heappop(self._waiting)
                self._room -= self._under_way.room
                try:
                    parts = self._look(self._under_way, limits, self._seconds + limits.clock() - begun)
                except Stopped:
                    self._wait(self._under_way)
                    raise
                for part in parts:
                    self._wait(part)
                if self._incumbents.ranked:
                    limits.tell(f"best first, {self.nodes} nodes", *self._incumbents.best, self.log_upper)
        except Stopped as stop:
            return stop.status
        finally:
            self._seconds += limits.clock() - begun
        return "optimal"

    def _part(
        self, log_upper: float, flat: Flat, log_factor: float, split: tuple[int, ...] = (), tried: bool = False
    ) -> Part:
        return Part(-log_upper, next(self._numbers), flat, log_factor, split, tried)

    def _wait(self, part: Part) -> None:
        heapq.heappush(self._waiting, part)
        self._room += part.room

    def _look(self, part: Part, limits: Limits, seconds: float) -> list[Part]:
        """The parts to look at in place of this one, pruned and then branched on."""
        search, variables, log_upper = Search(self._cardinality, limits), self._cardinality.size, part.log_upper
        self.nodes += 1
        view = search.view(part.flat, part.log_factor)
        while view.flat.num_nodes:
            log_upper = min(log_upper, view.log_upper)
            self._improve(search, view)
            if log_upper <= self.floor + self._slack:
                return []
            asked = undecided(view.supports, variables)
            if not asked.any():
                self._closed = max(self._closed, log_upper)
                return []
            self._under_way = part = self._part(log_upper, view.flat, view.log_factor, part.split, part.tried)
            if self._room > WAITING * limits.memory:
                return self._depth_first(view, log_upper, limits.until(np.inf, silent=True))
            if view.flat.kind[-1] == PRODUCT and not part.tried:
                slice_ = max(LEAST_SLICE, SLICE * seconds)
                return self._depth_first(view, log_upper, limits.until(limits.clock() + slice_, silent=True))
            floor = floor_of(self.floor + self._slack, view.log_upper)
            smaller, relative = search.prune(view, floor)
            log_upper = min(log_upper, raised(tightest(relative, asked), view.log_upper))
            if smaller.flat.num_edges > (1 - WORTHWHILE) * view.flat.num_edges:
                left = undecided(smaller.supports, variables)
                if left.any():
                    if smaller is view and (variable := self._to_split(view, relative, part, left, floor)) >= 0:
                        flat, log_factor = split(view.flat, variable, view.supports, limits.run)
                        part = part._replace(split=(*part.split, variable))
                        view = search.view(flat, raised(view.log_factor, log_factor))
                        continue
                    variable = next(iter(part.split), -1)
                    if variable < 0 or not left[variable]:
                        variable = choose_by_bounds(relative, self._cardinality, left, floor)
                    logs = np.log(np.maximum(relative[variable], SMALLEST)).tolist()
                    log_bounds = [raised(log, view.log_upper) for log in logs]
                    return self._branch(smaller, variable, log_bounds, log_upper, part, limits)
            view = smaller
        return []

    def _to_split(self, view: View, relative: FloatArray, part: Part, left: Flags, floor: float) -> int:
        """The (UB) variable of those that the circuit is not split on yet; -1 if there is none, or no room."""
        free = left.copy()
        free[list(part.split)] = False
        if not free.any():
            return -1
        variable = choose_by_bounds(relative, self._cardinality, free, floor)
        return variable if split_size(view.flat, variable, view.supports) <= SPLIT_EDGES else -1

    def _improve(self, search: Search, view: View) -> None:
        """Algorithm 4 and hill climbing on the circuit of a part."""
        found = search.improve(view, Found(None, -np.inf, -np.inf), self.floor)
        if found.state is not None:
            self._incumbents.offer(found.state, climb=False)

    def _branch(
        self, view: View, variable: int, log_bounds: list[float], log_upper: float, part: Part, limits: Limits
    ) -> list[Part]:
        """A part for each value of a variable, whose bounds are given."""
        others = tuple(other for other in part.split if other != variable)
        self._under_way = self._part(log_upper, view.flat, view.log_factor, part.split, True)
        parts = []
        for x in np.flatnonzero(possible(view.supports, self._cardinality.size)[variable]):
            log_bound = min(log_upper, log_bounds[x])
            if log_bound > self.floor + self._slack:
                flat, log_factor = restrict(view.flat, self._cardinality, [(variable, int(x))], limits.run)
                if flat.num_nodes:
                    parts.append(self._part(log_bound, flat, raised(view.log_factor, log_factor), others))
        return parts

    def _depth_first(self, view: View, log_upper: float, limits: Limits) -> list[Part]:
        """Search a part depth first; the part itself, with a better bound, if that does not come to its end."""
        search = Search(self._cardinality, limits)
        found, status = search.run(view.flat, lowered(self.floor, -view.log_factor))
        self.nodes += search.nodes
        if found.state is not None:
            self._incumbents.offer(found.state, climb=False)
        log_upper = min(log_upper, raised(found.log_upper, view.log_factor))
        if status == "optimal":
            self._closed = max(self._closed, log_upper)
            return []
        return [self._part(log_upper, view.flat, view.log_factor, tried=True)]
