"""Marginal MAP on networks that are too wide to compile: a state at once, bounds that close, and a proof if they meet.

The parts, in the order in which they are used:

1. the hidden variables that are cheap are summed out (:mod:`margmap.network.partial_sum`);
2. a first state by local search with the hidden variables maximised, where a change costs next to nothing, then with
   exact scores, of single variables and of blocks (:mod:`margmap.network.scoring`, :mod:`margmap.network.local_search`,
   :mod:`margmap.network.block_search`);
3. if no hidden variable is left, toulbar2 searches for something better beside all that follows
   (:mod:`margmap.network.wcsp`);
4. costs are shifted between tables that share a variable (:mod:`margmap.network.cost_shift`), a bound at once; then
   weighted mini-buckets bound from above, tightened at lower and lower temperatures and with larger and larger tables
   (:mod:`margmap.network.mini_bucket`); a state is read off each bound;
5. with these bounds the query is searched, layer by layer (:mod:`margmap.network.and_or`) and by conditioning on some
   of its variables, where the parts are bounded anew (:mod:`margmap.network.conditioning`);
6. values of query variables whose bound does not beat the best state are removed, and it starts again at 1 with smaller
   tables: what could not be summed out before often can be now. If all tables fit, the bound is the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np

from margmap.circuit import FloatArray, LongArray
from margmap.foundation.interrupts import abandon
from margmap.foundation.limits import Limits, Stopped
from margmap.network.and_or import LayeredSearch, Step, search_steps
from margmap.network.block_search import BlockSearch
from margmap.network.conditioning import Conditioning, Examined
from margmap.network.cost_shift import CostShift
from margmap.network.local_search import local_search
from margmap.network.log_model import LogModel, restricted
from margmap.network.mini_bucket import MiniBuckets, Tightened, decode, literal_bounds, partition, tightened
from margmap.network.order import ALL_RULES, MIN_WEIGHT, best_order, graph_of
from margmap.network.partial_sum import sum_out_cheap
from margmap.network.scoring import Outline, Scorer, outline
from margmap.network.wcsp import MOST_ENTRIES, Toulbar2, available, prepare

#: Hidden variables are summed out first while their tables have at most this many entries.
CHEAP_ENTRIES = 1 << 17

#: Mini-buckets begin with tables of this many entries, and grow by this factor as long as time and memory are left.
#: Where the tables in all do not grow by a factor, the next size is taken at once.
FIRST_LIMIT, GROWTH, MOST_LIMIT, LEAST_GROWTH = 1 << 9, 8, 1 << 24, 2

#: The share of the memory limit that the tables of mini-buckets may take in all; they are held three times.
BYTES_PER_ENTRY = 64

#: Seconds of local search for a first state with all variables maximised; and later on from every new state.
FIRST_SECONDS = 0.25

#: Past a limit a state is scored at once if that takes at most so many entries, and the tables have a share of them.
QUICK_ENTRIES, SMALL_SHARE = 1 << 20, 1 / 16

#: The first state is scored with all hidden variables as they are if that takes at most so many entries; the others
#: after those were summed out that make tables of at most so many entries, one or the other, if that is cheaper.
FIRST_ENTRIES, SCORED_AFTER = 1 << 25, (1 << 10, CHEAP_ENTRIES)

#: Assignments a layer of AND/OR search at first and at most; seconds after which a bound's search is not widened, and
#: after how many times as many it is given up. Nor is it widened if more than this share of the layers is too wide.
#: Before the last temperature it is made only if the bounds are at most so many nats apart.
FIRST_WIDTH, MOST_WIDTH, LAYER_SECONDS, LAYER_PATIENCE, LAYER_CUT = 64, 1 << 18, 1.0, 1.5, 0.5
LAYER_GAP = 3.0

#: The search for a state of nonzero probability: rules of its order, and its widths.
BEAMS = (((MIN_WEIGHT,), (16, 256)), (ALL_RULES, (16, 256, 4096)))

#: Bounds at this temperature or a lower one are good enough to search by.
COLD = 0.05

#: Conditioning works on tables of at most this many entries in all, unless there are no smaller ones; after each size
#: of mini-buckets for this share of the seconds that they took, but if a part takes longer than this only in the end.
CONDITION_ENTRIES, CONDITION_SHARE, PART_SECONDS = 1 << 17, 1.0, 0.3

#: Seconds that the solver below has for one part; the solver of the whole is asked again when the log of the number of
#: states has fallen to this share.
BELOW_SECONDS, SMALLER = 0.5, 0.8

#: Sweeps of cost shifting between two looks at its bound; it ends when they gain less than this share of the gap, or
#: after so many seconds.
SWEEPS, SHIFT_GAIN, SHIFT_SECONDS = 2, 0.02, 5.0

#: Costs are shifted on the model as it was given first if summing out has made its tables this many times larger.
LARGER = 8

#: It starts again once the log of the number of states has fallen by this share of what is left.
PRUNED = 0.2

# Temperatures of tightening, relatively to the spread of the tables, and the steps at each. Larger tables begin with
# the costs where the smaller ones have left them, and with the temperature of this number.
_TEMPERATURES = (0.5, 0.15, 0.05, 0.015, 0.005)
_STEPS, _WARM = 30, 2

# How often the other process and the clock are looked at.
_WATCH_SECONDS = 0.02

# Seconds that toulbar2 has to itself before mini-buckets are begun beside it; on one core the share of the time that is
# left, and the most seconds.
_ALONE_SECONDS, _ALONE_SHARE, _ALONE_MOST = 2.0, 0.7, 60.0

T = TypeVar("T")


@dataclass
class Incumbent:
    """The best state so far and the bound on all, both of them shared by whatever looks for better ones."""

    #: An entry for each variable of the model as it was given; those of hidden variables mean nothing.
    state: LongArray | None = None
    log_lower: float = -np.inf
    log_upper: float = np.inf
    #: What rounding can have done to the score of any state; to that of the best one, where that was looked at.
    any_rounding: float = 0.0
    own_rounding: float | None = None
    tell: Callable[[str], None] = lambda doing: None
    notes: dict[str, Any] = field(default_factory=dict)
    #: Held while the state and its value change, where the search is in another thread.
    lock: threading.Lock = field(default_factory=threading.Lock)

    def offer(self, state: LongArray, log_value: float, doing: str) -> bool:
        """Take a state if it is better."""
        if log_value <= self.log_lower and self.state is not None:
            return False
        with self.lock:
            self.state, self.log_lower, self.own_rounding = state.copy(), log_value, None
        self.tell(doing)
        return True

    @property
    def rounding(self) -> float:
        """What rounding can have done to the score of the best state."""
        return self.any_rounding if self.own_rounding is None else self.own_rounding

    def lower(self, log_upper: float, doing: str) -> None:
        """Take a bound on all states if it is tighter."""
        if log_upper < self.log_upper:
            self.log_upper = log_upper
            self.tell(doing)

    def proven(self, gap: float) -> bool:
        """Whether nothing can be better by more than ``gap``."""
        return self.state is not None and self.log_upper - self.log_lower <= gap


class Below(NamedTuple):
    """What a solver with tables of its own has found out about a part of the states."""

    #: No state of the part has a larger value, but for those at most the floor.
    log_upper: float
    #: The best state it found, in the numbers of the model, and whether the part need not be looked at again.
    state: LongArray | None
    exact: bool


#: Solves a part, given by the values that are left, for states above a floor; None if that is out of reach.
SolveBelow: TypeAlias = Callable[[Sequence[LongArray], float, Limits], Below | None]


class _Enough(Exception):
    """The bounds have met, or the other process has finished."""


class Anytime:
    """One query: the model, what is known so far, and the steps in turn."""

    def __init__(self, model: LogModel, limits: Limits, found: Incumbent, *, use_toulbar2: bool | None = None) -> None:
        self.model, self.limits, self.found = model, limits, found
        self.use_toulbar2 = available() if use_toulbar2 is None else use_toulbar2
        #: For each variable the values that may still be in a better state.
        self.values = [np.arange(k) for k in model.cardinality]
        self.scorer: Scorer | None = None
        self.other: Toulbar2 | None = None
        #: Whether the other process runs on the same core as this one.
        self.one_core = False
        #: Mini-buckets begin with this many entries: with those that were gone through without enough values falling.
        self._first_limit = FIRST_LIMIT
        #: Whether there was a first state with all that makes it better.
        self._begun = False
        self._summed: dict[int, LogModel] = {}
        self._blocks: BlockSearch | None = None
        self._left: threading.Thread | None = None
        #: Solves parts that are small by itself, if there is such a solver; how often it was asked, and closed one.
        self.below: SolveBelow | None = None
        self._asked, self._closed = 0, 0
        #: A state that was found elsewhere meanwhile, to be scored here.
        self.mail: LongArray | None = None
        #: The same for all states that are left, and the log of their number when it was last asked.
        self.whole: SolveBelow | None = None
        self._whole_size = float(sum(np.log(model.cardinality[v]) for v in model.query))

    def summed(self, limit: int) -> LogModel:
        """The model without the hidden variables that are cheap by this limit; made once."""
        if limit not in self._summed:
            self._summed[limit] = sum_out_cheap(self.model, limit, self.limits.check)
        return self._summed[limit]

    def run(self) -> None:
        """Work until the bounds meet, nothing is left to try, or a limit raises ``Stopped``."""
        try:
            self.first_state()
            rounds = 0
            while not self.found.proven(self.limits.gap):
                reduced = self._reduce()
                self._begin_toulbar2(reduced)
                if not self._bound_and_prune(reduced, rounds):
                    break
                rounds += 1
                self._end_toulbar2()
                self._solve_whole()
            self._wait_for_toulbar2()
        except _Enough:
            pass
        finally:
            self._end_toulbar2()

    # States.

    def first_state(self, *, soon: bool = False) -> None:
        """A state with its value, unless there is one, and the bound that needs no work: that of each table alone.

        ``soon`` leaves out what only makes it better.
        """
        model = self.model
        if self._begun and self.found.state is not None:
            return
        summed = sum(np.log(model.cardinality[v]) for v in model.hidden)
        tops = sum(float(factor.table.max()) for factor in model.factors)
        self.found.lower(model.log_constant + tops + summed + model.rounding + 1e-9, "the tables' maxima")
        if soon:
            self.state_at_once(QUICK_ENTRIES, past_limits=True)
        everything = LogModel(
            model.cardinality, frozenset(range(len(model.cardinality))), model.factors, model.log_constant, 0.0
        )
        complete = self._apart(lambda: Scorer(everything, outline(everything)))
        state, _ = self._for(
            FIRST_SECONDS / (10 if soon else 3),
            lambda stop: local_search(complete, self._start(), stop, shakes=self._shakes),
        )
        if not soon or self.scorer is None:
            self._keep(self._make_scorer((0,), FIRST_ENTRIES) or self._make_scorer((0, *SCORED_AFTER)))
        self._score(state, "first state")
        if self.found.log_lower == -np.inf:  # where findings have causes, all absent is often possible
            self._score(np.zeros_like(state), "first state")
        self._begun = True
        if soon:
            return
        if self._scorer.model is model:  # there is a state; is there a cheaper way to score the others?
            cheaper = self._make_scorer(SCORED_AFTER, self._scorer.work // 2)
            if cheaper is not None:
                self._keep(cheaper)
        if self.found.log_lower == -np.inf:
            self._possible(everything)
        self._search(self._current(), 2 * FIRST_SECONDS)

    def state_at_once(self, most: int, *, past_limits: bool = False) -> None:
        """The state that the tables of single variables suggest, if it is scored by at most so many entries.

        If that is impossible, the state of all first values. With ``past_limits`` there is no look at the clock.
        """
        score = partial(self._score_at_once, most)
        found = score() if past_limits else self._apart(score)
        if found is not None:
            scorer, state, value = found
            self._keep(scorer)
            self.found.offer(state, value, "first state")

    def _score_at_once(self, most: int) -> tuple[Scorer, LongArray, float] | None:
        model = self.model
        if self.scorer is not None or model.entries + len(model.factors) > SMALL_SHARE * most:
            return None
        plan = outline(model, 0.0)
        if plan.work(model) > most:
            return None
        scorer, state = Scorer(model, plan), self._start()
        value = scorer.score(state)
        if value == -np.inf:
            state = np.zeros_like(state)
            value = scorer.score(state)
        return scorer, state, value

    def _solve_whole(self) -> None:
        """If many values have fallen since it was last asked, the solver of the whole has half of the time left."""
        left = float(sum(np.log(self.values[v].size) for v in self.model.query))
        seconds = (self.limits.deadline - self.limits.clock()) / 2
        if self.whole is None or left > SMALLER * self._whole_size or not seconds < np.inf:
            return
        self._whole_size = left
        limits, doing = (
            self.limits.until(self.limits.clock() + seconds, silent=True),
            "compiled without values that fell",
        )
        try:
            found = self.whole(self.values, self.found.log_lower, limits)
        except Stopped:
            self.limits.check()
            return
        if found is None:
            return
        if found.state is not None:
            self._score(found.state, doing)
        self.found.lower(max(found.log_upper, self.found.log_lower + self.found.rounding), doing)

    def _possible(self, everything: LogModel) -> None:
        """A state of nonzero probability where local search found none: a beam along small mini-buckets.

        The hidden variables have values in it too; zeros spread between the tables before, so that few ways end.
        """
        for rules, widths in BEAMS:
            order = self._order(everything, 0.0, rules)
            parts = self._apart(partial(partition, everything, order, FIRST_LIMIT))
            buckets = self._apart(partial(MiniBuckets, everything, parts))
            found = self._run(buckets.bound)
            search = LayeredSearch(self._apart(partial(search_steps, buckets)), buckets, found)
            for width in widths:
                result = self._run(partial(search.search, -np.inf, width))
                if result.state is not None and self._score(result.state, "first possible state"):
                    return

    def _keep(self, scorer: Scorer) -> None:
        self.scorer = scorer
        # The best state may have its score from the one before.
        self.found.any_rounding = max(self.found.any_rounding, scorer.rounding + scorer.model.rounding)

    def _start(self) -> LongArray:
        """The most likely values by the tables of single variables, and the first ones otherwise."""
        state = np.zeros(len(self.model.cardinality), dtype=np.int64)
        for factor in self.model.factors:
            if len(factor.scope) == 1:
                state[factor.scope[0]] = int(np.argmax(factor.table))
        return state

    @property
    def _scorer(self) -> Scorer:
        assert self.scorer is not None
        return self.scorer

    @overload
    def _make_scorer(self, limits: Sequence[int]) -> Scorer: ...

    @overload
    def _make_scorer(self, limits: Sequence[int], most: int) -> Scorer | None: ...

    def _make_scorer(self, limits: Sequence[int], most: int | None = None) -> Scorer | None:
        """Scores are cheapest with the hidden variables as they are, or with some of them summed out first.

        None if even the cheapest of these takes more than ``most`` entries, or more room than there is.
        """
        best: tuple[int, LogModel, Outline] | None = None
        for limit in limits:
            model = self.summed(limit) if limit else self.model
            plan = self._apart(partial(outline, model, 0.05 if len(limits) > 1 else 0.02))
            work = plan.work(model) + sum(len(factor.scope) for factor in model.factors)
            if best is None or work < best[0]:
                best = work, model, plan
            if not model.hidden:
                break
        assert best is not None
        work, model, plan = best
        room = plan.room(model) <= self.limits.memory_left()
        if most is None and not room:
            raise MemoryError
        if most is not None and (work > most or not room):
            return None
        return self._apart(lambda: Scorer(model, plan))

    def _search(self, state: LongArray, seconds: float) -> None:
        """Local search with exact scores for some seconds."""
        scorer = self._scorer
        best, value = self._for(
            seconds, lambda stop: local_search(scorer, state, stop, shakes=self._shakes, seed=self._seed())
        )
        if value == -np.inf:
            value = self._run(lambda stop: scorer.score(best, stop))
        self.found.offer(best, value, "local search")
        self._search_blocks(seconds)

    def _search_blocks(self, seconds: float) -> None:
        """Local search by blocks for some seconds, as long as there are tables that it fits."""
        if self._blocks is None:
            self._blocks = self._apart(partial(BlockSearch, self.summed(CHEAP_ENTRIES)))
        search, state = self._blocks, self._current()
        if search.size <= 2 or self.found.log_lower == -np.inf:  # nothing but single variables fits
            return
        work = partial(search.search, state, blocks=self._shakes, seed=self._seed())
        best = self._run(work, until=self.limits.clock() + seconds)
        if not np.array_equal(best, state):
            self._score(best, "local search by blocks")

    @property
    def _shakes(self) -> int:
        """So many that a small model is done with soon."""
        return 100 + 50 * len(self.model.cardinality)

    def _seed(self) -> int:
        self.found.notes["searches"] = self.found.notes.get("searches", 0) + 1
        return int(self.found.notes["searches"])

    def _score(self, state: LongArray, doing: str) -> bool:
        value = self._run(lambda stop: self._scorer.score(state, stop))
        return self.found.offer(state, value, doing)

    # Bounds.

    def _reduce(self) -> LogModel:
        """The model over the values that are left, the cheap hidden variables summed out."""
        self._fallen = 0.0
        #: Those over which the model in hand is.
        self._outer = list(self.values)
        kept = {v: values for v, values in enumerate(self.values) if values.size < self.model.cardinality[v]}
        if kept:
            smaller = self._apart(lambda: restricted(self.model, kept))
            reduced = sum_out_cheap(smaller, CHEAP_ENTRIES, self.limits.check)
        else:
            reduced = self.summed(CHEAP_ENTRIES)
        self.found.notes["hidden left"] = len(reduced.hidden)
        self.found.notes["values left"] = int(sum(self.values[v].size for v in self.model.query))
        return reduced

    def _bound_and_prune(self, reduced: LogModel, rounds: int) -> bool:
        """Bounds at growing table sizes until values fall or the bounds meet; whether any value fell."""
        if rounds == 0 and reduced.entries > LARGER * self.model.entries and self._shift(self.model) is None:
            return True  # a first bound is much cheaper on the tables as they were
        shifted = self._shift(reduced)
        if shifted is None:
            return True
        reduced = shifted
        order = self._order(reduced)
        spread = _spread(reduced)
        limit, last = self._first_limit, -1
        before: Tightened | None = None
        conditioning: Conditioning | None = None
        while True:
            begun = self.limits.clock()
            parts = self._apart(partial(partition, reduced, order, limit))
            entries = sum(parts.sizes(reduced))
            if entries < LEAST_GROWTH * last and limit < MOST_LIMIT:
                limit *= GROWTH
                continue
            if entries * BYTES_PER_ENTRY > min(self.limits.memory_left(), self.limits.memory) and last >= 0:
                self._condition(conditioning, np.inf)
                return False
            last = entries
            buckets = self._apart(
                partial(MiniBuckets, reduced, parts, None if before is None else before.shares(parts))
            )
            steps: tuple[Step, ...] = () if buckets.exact else self._apart(partial(search_steps, buckets))
            colder = () if buckets.exact else _TEMPERATURES[0 if before is None else _WARM :]
            for temperature in (0.0, *colder):
                if temperature > 0:
                    self._run(partial(buckets.tighten, _STEPS, temperature * spread))
                found = self._run(buckets.bound)
                doing = f"mini-buckets of at most {limit} entries"
                self.found.lower(found.log_upper, doing)
                state = self._whole(self._apart(partial(decode, reduced, parts, found.filled)))
                if self._score(state, doing) and not buckets.exact:
                    self._search(state, FIRST_SECONDS)
                self._enough()
                if not buckets.exact and self._prune(self._apart(partial(literal_bounds, buckets, found))):
                    return True
                last_chance = (temperature,) == colder[-1:]
                close = temperature <= COLD and self.found.log_upper - self.found.log_lower <= LAYER_GAP
                if not buckets.exact and temperature > 0 and (close or last_chance):
                    self._layers(LayeredSearch(steps, buckets, found), LAYER_SECONDS * (2 if last_chance else 1))
            if buckets.exact:
                return False
            if conditioning is None or entries <= CONDITION_ENTRIES:
                make = partial(Conditioning, buckets, found, limit, spread, conditioning)
                conditioning = self._apart(make)
            if limit >= MOST_LIMIT:
                self._condition(conditioning, np.inf)
                return False
            self._condition(conditioning, CONDITION_SHARE * (self.limits.clock() - begun))
            self._first_limit = limit
            limit *= GROWTH
            before = self._apart(partial(tightened, buckets, found))
            reduced = before.model
            self._search(self._current(), 2 * FIRST_SECONDS)

    def _shift(self, reduced: LogModel) -> LogModel | None:
        """The model with its costs where they bound well; None if so many values fell that it starts again."""
        if not reduced.factors or not any(len(factor.scope) > 1 for factor in reduced.factors):
            return reduced
        shift = self._apart(partial(CostShift, reduced))
        begun, before = self.limits.clock(), np.inf
        while True:
            self._run(partial(shift.sweep, SWEEPS))
            log_upper, literals, _ = self._apart(shift.bounds)
            self.found.lower(log_upper, "cost shifting")
            state = self._whole(self._apart(shift.state))
            if self._score(state, "cost shifting"):
                self._search(state, FIRST_SECONDS)
            self._enough()
            if self._prune(literals):
                return None
            gained, gap = before - log_upper, log_upper - self.found.log_lower
            if gained < SHIFT_GAIN * gap or self.limits.clock() - begun > SHIFT_SECONDS:
                return self._apart(shift.shifted)
            before = log_upper

    def _layers(self, search: LayeredSearch, seconds: float) -> None:
        """Search along the order with these bounds: wider and wider as long as that is soon done."""
        width = FIRST_WIDTH
        begun = self.limits.clock()
        while True:
            floor = self.found.log_lower
            result = self._run(partial(search.search, floor, width), begun + LAYER_PATIENCE * seconds)
            doing = f"AND/OR search of width {width}"
            self.found.notes["widest"] = max(result.widest, self.found.notes.get("widest", 0))
            self.found.lower(max(result.log_upper, floor + self.found.rounding), doing)
            if result.state is not None:
                state = self._whole(result.state)
                if self._score(state, doing):
                    self._search(state, FIRST_SECONDS)
            self._enough()
            if result.complete or width >= MOST_WIDTH or self.limits.clock() - begun > seconds:
                return
            if width > FIRST_WIDTH and result.cut > LAYER_CUT:  # a much larger width would not do either
                return
            width *= 8

    def _condition(self, search: Conditioning | None, seconds: float) -> None:
        """Look at open parts of the states for some seconds, or until there are none."""
        if search is None or (search.slow and seconds < np.inf):
            return
        until = self.limits.clock() + seconds
        while (begun := self.limits.clock()) < until:
            floor = self.found.log_lower + self.limits.gap / 2
            part = search.take(floor)
            seen = None if part is None else self._run(partial(search.examine, part, floor), until)
            if part is not None and seen is None:  # out of time
                search.slow = self.limits.clock() - begun > PART_SECONDS
                return
            if seen is not None:
                self.found.notes["parts"] = self.found.notes.get("parts", 0) + 1
                if seen.state is not None:
                    state = self._whole(seen.state)
                    if self._score(state, "conditioning"):
                        self._search(state, FIRST_SECONDS)
                if seen.alone:  # its score is at most the best state's
                    seen = seen._replace(log_upper=min(seen.log_upper, self.found.log_lower + self.found.any_rounding))
                search.put(self._solved_below(seen))
            least = max(floor, self.found.log_lower + self.found.rounding)
            self.found.lower(max(search.log_upper, search.closed, least), "conditioning")
            self._enough()
            search.slow = self.limits.clock() - begun > PART_SECONDS
            if part is None or (search.slow and seconds < np.inf):
                return

    def _solved_below(self, seen: Examined) -> Examined:
        """A part that is still open, handed to the solver below if its tables are small: closed, or with its bound.

        Where that has closed none so far, it is asked ever more rarely.
        """
        if self.below is None or not seen.children:
            return seen
        self._asked += 1
        if self._closed == 0 and self._asked & (self._asked - 1):
            return seen
        values = [
            self._outer[v][np.unique(np.concatenate([part.values[v] for part in seen.children]))]
            for v in range(len(self.model.cardinality))
        ]
        floor = self.found.log_lower
        until = self.limits.until(self.limits.clock() + BELOW_SECONDS, silent=True)
        try:
            below = self.below(values, floor, until)
        except Stopped:
            self.limits.check()
            return seen
        if below is None:
            return seen
        if below.state is not None:
            self._score(below.state, "compiled part")
        if below.exact or below.log_upper <= floor:
            self._closed += 1
            self.found.notes["parts solved below"] = self._closed
            return Examined(max(below.log_upper, floor), None, True, ())
        parts = tuple(part._replace(log_upper=min(part.log_upper, below.log_upper)) for part in seen.children)
        return seen._replace(children=parts)

    def _order(self, model: LogModel, seconds: float = 0.5, rules: Sequence[int] = ALL_RULES) -> list[int]:
        """An elimination order, hidden variables first, looked for in so many seconds."""
        used = sorted({v for factor in model.factors for v in factor.scope})
        place = {v: i for i, v in enumerate(used)}
        scopes = [[place[v] for v in factor.scope] for factor in model.factors]
        cardinality = [model.cardinality[v] for v in used]
        last = [place[v] for v in used if v in model.query] if model.hidden else []
        graph = self._apart(partial(graph_of, cardinality, scopes))
        found = self._apart(partial(best_order, graph, last, seconds=seconds, rules=rules))
        return [used[i] for i in found.variables]

    def _prune(self, literals: Mapping[int, FloatArray]) -> bool:
        """Remove the values that cannot be in a better state; whether enough fell to start again."""
        if self.found.log_lower == -np.inf:
            return False
        before = sum(np.log(self.values[v].size) for v in self.model.query)
        for v, bounds in literals.items():
            keep = bounds > self.found.log_lower - self.found.rounding
            if np.intersect1d(self.values[v], self._outer[v][keep]).size == 0:  # nothing is better than the incumbent
                self.found.lower(self.found.log_lower + self.found.rounding, "no value is left")
                raise _Enough
            self.values[v] = np.intersect1d(self.values[v], self._outer[v][keep])
        after = sum(np.log(self.values[v].size) for v in self.model.query)
        self._fallen += float(before - after)
        return self._fallen > PRUNED * max(1.0, float(after))

    def _whole(self, state: LongArray) -> LongArray:
        """A state over the values that are left as one over all values."""
        return np.array([int(values[min(x, values.size - 1)]) for values, x in zip(self._outer, state, strict=True)])

    def _current(self) -> LongArray:
        assert self.found.state is not None
        return self.found.state

    # toulbar2 beside it.

    def _begin_toulbar2(self, reduced: LogModel) -> None:
        if not self.use_toulbar2 or reduced.hidden or not reduced.factors or reduced.entries > MOST_ENTRIES:
            return
        incumbent = None
        if self.found.log_lower > -np.inf:
            codes = [np.searchsorted(values, x) for values, x in zip(self._outer, self._current(), strict=True)]
            if all(c < v.size and v[c] == x for c, v, x in zip(codes, self._outer, self._current(), strict=True)):
                incumbent = np.array(codes, dtype=np.int64)
        room = int(self.limits.memory_left()) if self.limits.memory_left() < self.limits.memory else 0
        self.other = Toulbar2(self._apart(partial(prepare, reduced, incumbent, self.limits.gap / 8)), room)
        self.found.notes["toulbar2"] = True
        seconds = _ALONE_SECONDS
        if self.one_core:  # beside it, each would have half of that
            seconds = min(_ALONE_MOST, max(seconds, _ALONE_SHARE * (self.limits.deadline - self.limits.clock())))
        until = self.limits.clock() + seconds
        while self.other.running and self.limits.clock() < until:
            self._pause()
        self._enough()

    def _pause(self) -> None:
        threading.Event().wait(_WATCH_SECONDS)
        self.limits.check()
        self._hear()

    def _hear(self) -> None:
        """Take in what toulbar2 has found."""
        other = self.other
        if other is None or not (other.poll() or other.done):
            return
        if other.state is not None:
            state, other.state = self._whole(other.state), None
            self._wait()
            self.found.offer(state, self._scorer.score(state), "toulbar2")
        # Values that were removed cannot be in a state above the incumbent, so the bound holds for all.
        self.found.lower(max(other.log_upper, self.found.log_lower + self.found.rounding), "toulbar2")

    def _wait_for_toulbar2(self) -> None:
        while self.other is not None and self.other.running:
            self._pause()
            self._enough()
        self._hear()

    def _end_toulbar2(self) -> None:
        if self.other is not None:
            self.other.close()
            self.other = None

    # Running things beside each other.

    def _enough(self) -> None:
        self._hear()
        if self.mail is not None:
            state, self.mail = self.mail, None
            self._score(state, "compiled circuit")
        self._look_at_rounding()
        if self.found.proven(self.limits.gap) or (self.other is not None and self.other.done):
            raise _Enough

    def _look_at_rounding(self) -> None:
        """If the bounds are apart by rounding alone, count that of the best state and not that of any."""
        found = self.found
        apart = found.log_upper - found.log_lower
        if found.state is None or found.own_rounding is not None or apart > self.limits.gap + 2 * found.any_rounding:
            return
        if found.any_rounding > self.limits.gap:
            alone = restricted(self.model, {v: [int(found.state[v])] for v in self.model.query})
            scorer = self._apart(lambda: Scorer(alone, outline(alone, 0.0)))
            found.own_rounding = min(found.any_rounding, scorer.rounding + alone.rounding)

    def _for(self, seconds: float, work: Callable[[LongArray], tuple[LongArray, float]]) -> tuple[LongArray, float]:
        """Local search until it ends or so many seconds have passed."""
        return self._run(work, until=self.limits.clock() + seconds)

    def _apart(self, work: Callable[[], T]) -> T:
        """Make something that does not look at the clock; at a limit its end is not waited for."""
        return self.limits.run(lambda _stop: work(), wait=False)

    def _run(self, work: Callable[[LongArray], T], until: float = np.inf) -> T:
        """Run work in a thread, which is told to stop by its flag at a limit, or when toulbar2 is done.

        At a limit its end is not waited for here but before anything else is run, since it may work on the same arrays.
        """
        self._wait()
        stop = np.zeros(2, dtype=np.int64)
        result: list[T] = []
        failed: list[BaseException] = []

        def body() -> None:
            try:
                result.append(work(stop))
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=copy_context().run, args=(body,), daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_WATCH_SECONDS)
                if not thread.is_alive():
                    break
                self.limits.check()
                if self.limits.clock() >= until:
                    stop[0] = 1
                if self.other is not None and not self.other.running:
                    self.other.poll()
                    if self.other.done:
                        stop[0] = 1
                        thread.join()
                        self._enough()
        finally:
            stop[0] = 1
            if thread.is_alive():
                self._left = thread
                abandon(thread)
        if failed:
            raise failed[0]
        return result[0]

    def _wait(self) -> None:
        """Wait for the end of work that was told to stop at a limit."""
        if self._left is not None:
            self._left.join()
            self._left = None


def _spread(model: LogModel) -> float:
    """A typical distance between the logs in a table: the unit of temperature."""
    ranges = []
    for factor in model.factors:
        finite = factor.table[np.isfinite(factor.table)]
        if finite.size > 1:
            ranges.append(float(finite.max() - finite.min()))
    return float(np.clip(np.median(ranges) / 4, 0.1, 100.0)) if ranges else 1.0
