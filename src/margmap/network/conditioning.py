"""Conditioning on query variables: branch and bound over parts of the query's states, each bounded anew.

A *part* has for each query variable the values that are left to it. With fewer values tables are smaller, mini-buckets
that had to be divided fit together again, and where the rest is small enough the bound of a part is the value of its
best state: so conditioning on a few variables often makes the rest exact where the whole is out of reach. The bounds
that :mod:`margmap.network.and_or` searches by are those of one pass for all parts; here every part has its own,

1. restricted from the tables of the whole *as they were tightened*, with the costs where they have been moved to and
   with the weights that were found (two mini-buckets that fit together again add up their weights, which by Hoelder's
   inequality is never worse), so that a part begins where the whole has ended;
2. tightened further by some steps, if that bound still beats the best state;
3. with the values removed that cannot be in a better state, which may be all.

What is left is divided by the values of one variable. Parts are taken in two ways by turns, the one with the largest
bound, which brings the bound on all states down (best first), and the best child of the last one, which soon has a
state (depth first); beyond a number of open parts the search is depth first only, so that its memory is bounded. At any
time the largest bound of an open part, or the best state's value, bounds all states (Marinescu, Lee, Dechter and Ihler,
"AND/OR search for marginal MAP", JAIR 2018, on interleaving the two; theirs has static bounds).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from margmap.circuit import FloatArray, LongArray
from margmap.network.log_model import LogModel, restricted
from margmap.network.mini_bucket import Bound, MiniBuckets, decode, literal_bounds, partition, tightened

#: Open parts beyond this number are searched depth first.
MOST_PARTS = 1 << 13

#: Steps of tightening at each of these temperatures, which are in units of the tables' spread.
STEPS, TEMPERATURES = 6, (0.01,)

#: A part whose values fell by this share of the log of their number is bounded again at once.
FELL = 0.1


class Part(NamedTuple):
    """Some of the states: the values that are left to each variable, and a bound on them all."""

    log_upper: float
    values: tuple[LongArray, ...]


class Examined(NamedTuple):
    """What is known of a part after a look at it."""

    log_upper: float
    #: A state of it, read off its bound; whether that is the best one of the part.
    state: LongArray | None
    exact: bool
    #: The parts that it falls into, the one with the largest bound first; none if it is closed.
    children: tuple[Part, ...]
    #: Whether that state is the only one above the floor, so that its value is the bound.
    alone: bool = False


class Conditioning:
    """The tables of a model as mini-buckets have tightened them, and the parts of its states that are open."""

    def __init__(
        self, buckets: MiniBuckets, found: Bound, limit: int, spread: float, before: Conditioning | None = None
    ) -> None:
        """``before`` is a search with smaller tables of the same model, whose open parts are taken over."""
        self.limit, self.spread, self.order = limit, spread, buckets.parts.order
        self.whole = tightened(buckets, found)
        self.model = self.whole.model
        self._number = itertools.count()
        self._open: list[tuple[float, int, Part]] = []
        self._next: Part | None = None
        self._turn = 0
        #: How many parts were looked at; the largest bound of those whose best state is known.
        self.examined, self.closed = 0, -np.inf
        #: Whether the last part took too long for more of them to be worth it now.
        self.slow = False
        if before is None:
            self._push(Part(found.log_upper, tuple(np.arange(k) for k in self.model.cardinality)))
            return
        self.examined, self.closed = before.examined, before.closed
        for part in [one for _, _, one in before._open] + ([] if before._next is None else [before._next]):
            self._push(part._replace(log_upper=min(part.log_upper, found.log_upper)))

    def _push(self, part: Part) -> None:
        heapq.heappush(self._open, (-part.log_upper, next(self._number), part))

    @property
    def log_upper(self) -> float:
        """No state of an open part has a larger value; -inf if there is none."""
        best = -self._open[0][0] if self._open else -np.inf
        return best if self._next is None else max(best, self._next.log_upper)

    def take(self, floor: float) -> Part | None:
        """The next part to look at, of those whose bound is above ``floor``; None if there is none.

        It stays among the open ones until it is put back examined.
        """
        self._turn += 1
        deep = self._next is not None and (self._turn % 2 == 1 or len(self._open) >= MOST_PARTS)
        if self._next is not None and (not deep or self._next.log_upper <= floor):
            self._push(self._next)
            self._next = None
        if self._next is None:
            while self._open and self._open[0][2].log_upper <= floor:
                heapq.heappop(self._open)
            if not self._open:
                return None
            self._next = heapq.heappop(self._open)[2]
        return self._next

    def put(self, found: Examined) -> None:
        """In place of the part that was taken last, those that it falls into."""
        self.examined += 1
        if found.exact:
            self.closed = max(self.closed, found.log_upper)
        self._next = found.children[0] if found.children else None
        for part in found.children[1:]:
            self._push(part)

    def examine(self, part: Part, floor: float, stop: LongArray) -> Examined | None:
        """Bound a part, remove what cannot be above ``floor``, and divide the rest; None if stopped meanwhile."""
        values, log_upper = list(part.values), part.log_upper
        while True:
            smaller = restricted(self.model, self._fewer(values))
            if smaller.log_constant == -np.inf:
                return Examined(-np.inf, None, False, ())
            buckets = self._buckets(smaller)
            found = buckets.bound(stop)
            if stop[0] != 0:
                return None
            log_upper = min(log_upper, found.log_upper)
            state = self._state(buckets, found, values)
            if buckets.exact:
                return Examined(log_upper, state, True, ())
            for temperature in TEMPERATURES:
                if log_upper <= floor:
                    break
                buckets.tighten(STEPS, temperature * self.spread, stop)
                found = buckets.bound(stop)
                if stop[0] != 0:
                    return None
                log_upper = min(log_upper, found.log_upper)
            if log_upper <= floor:
                return Examined(log_upper, state, False, ())
            state = self._state(buckets, found, values)
            literals = literal_bounds(buckets, found)
            before = sum(np.log(values[v].size) for v in literals)
            for v, bounds in literals.items():
                values[v] = values[v][bounds > floor]
                if values[v].size == 0:
                    return Examined(min(log_upper, floor), state, False, ())
                literals[v] = bounds[bounds > floor]
            after = sum(np.log(values[v].size) for v in literals)
            if after == 0:  # one state is left, which can be scored
                return Examined(log_upper, np.array([left[0] for left in values]), True, (), alone=True)
            if before - after < FELL * before:
                return Examined(log_upper, state, False, self._divided(values, literals, log_upper, floor))

    def _fewer(self, values: Sequence[LongArray]) -> dict[int, LongArray]:
        """The variables that have lost values, and those they have left."""
        return {v: left for v, left in enumerate(values) if left.size < self.model.cardinality[v]}

    def _buckets(self, smaller: LogModel) -> MiniBuckets:
        """The mini-buckets of a part along the order of the whole, with the weights found there."""
        cardinality = smaller.cardinality
        sources = [f for f, factor in enumerate(self.model.factors) if any(cardinality[v] > 1 for v in factor.scope)]
        used = {v for factor in smaller.factors for v in factor.scope}
        parts = partition(smaller, [v for v in self.order if v in used], self.limit)
        return MiniBuckets(smaller, parts, self.whole.shares(parts, sources))

    def _state(self, buckets: MiniBuckets, found: Bound, values: Sequence[LongArray]) -> LongArray:
        """The state that a bound suggests, in the numbers of the whole."""
        state = decode(buckets.model, buckets.parts, found.filled)
        return np.array([left[min(int(x), left.size - 1)] for left, x in zip(values, state, strict=True)])

    def _divided(
        self, values: Sequence[LongArray], literals: dict[int, FloatArray], log_upper: float, floor: float
    ) -> tuple[Part, ...]:
        """A part for each value of the variable that promises most.

        That is the one where the bounds of the best value and of the second are both far below that of the part: their
        product is compared, as in branch and bound for integer programs.
        """
        least = 0.01 * (log_upper - floor if floor > -np.inf else 1.0)
        best, chosen = -np.inf, -1
        for v, bounds in literals.items():
            if values[v].size < 2:
                continue
            second, first = np.partition(bounds, -2)[-2:]
            promise = (max(log_upper - first, 0.0) + least) * (max(log_upper - second, 0.0) + least)
            if promise / values[v].size > best:
                best, chosen = promise / values[v].size, v
        parts = []
        for x, bound in zip(values[chosen], literals[chosen], strict=True):
            rest = tuple(np.array([x]) if v == chosen else left for v, left in enumerate(values))
            parts.append(Part(min(log_upper, float(bound)), rest))
        return tuple(sorted(parts, key=lambda one: -one.log_upper))
