"""What a solver tells while it works, and who keeps it: the best state, both bounds, and how they closed over time."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

#: Seconds between two calls of ``on_progress`` while nothing is new; and, at least, while only the upper bound moves.
BEAT_SECONDS, PAUSE_SECONDS = 0.1, 0.02

#: So many moments are kept of how the bounds closed; beyond that, every second one is dropped.
MOST_MOMENTS = 4096


class Progress(NamedTuple):
    """The best state and the bounds so far; see ``on_progress`` of :func:`margmap.marginal_map`."""

    #: Seconds since the call began.
    seconds: float
    #: The log probability of the state, and a bound that no state exceeds.
    log_lower: float
    log_upper: float
    #: The best state found so far, None before there is one.
    state: Mapping[int | str, int | str] | None
    #: What is being done, in a few words.
    doing: str

    @property
    def gap(self) -> float:
        """How far, in nats, a better state could at most lie above the best one; infinite before there is one."""
        return max(0.0, self.log_upper - self.log_lower) if self.log_lower > -math.inf else math.inf


OnProgress: TypeAlias = Callable[[Progress], None]


class Moment(NamedTuple):
    """Both bounds at one time."""

    #: Seconds since the call began.
    seconds: float
    log_lower: float
    log_upper: float


class _Scale(NamedTuple):
    """What turns the numbers of a reduced circuit, which are about log p(q | e), into those of the model."""

    log_evidence: float
    #: How far, in nats, rounding can have lowered a bound.
    rounding: float
    named: Callable[[Any], Mapping[int | str, int | str]]


class Teller:
    """The best state and both bounds of one call, and the one who is told of them.

    ``on_progress`` is called in the thread that made this: at once when there is a better state, soon when the upper
    bound has fallen, and at least every BEAT_SECONDS as long as a solver looks at its limits. When it raises, it is not
    called again, and the limits that have this teller stop the solver as ``interrupted``.
    """

    def __init__(self, on_progress: OnProgress | None, seconds: Callable[[], float]) -> None:
        self._on_progress, self._seconds = on_progress, seconds
        self._thread = threading.get_ident()
        self.log_lower, self.log_upper = -math.inf, math.inf
        #: What is being done, in a few words.
        self.doing = "starting"
        #: What ``on_progress`` raised.
        self.raised: BaseException | None = None
        #: What making the model that is worked on can have lost, relatively.
        self.rounding = 0.0
        #: The logarithm of what its values are to be multiplied by: some evidence is put into it beforehand.
        self.log_factor = 0.0
        self.moments: list[Moment] = []
        self._scale: _Scale | None = None
        self._state: Callable[[], Mapping[int | str, int | str]] | None = None
        self._named: Mapping[int | str, int | str] | None = None
        self._told_at, self._told = -math.inf, (-math.inf, math.inf)
        self._latest = 0.0

    @property
    def state(self) -> Mapping[int | str, int | str] | None:
        """The best state so far, in the user's words."""
        if self._state is not None and self._named is None:
            self._named = self._state()
        return self._named

    def about(
        self, log_evidence: float, rounding: float, named: Callable[[Any], Mapping[int | str, int | str]]
    ) -> None:
        """From now on, solvers report on a circuit of p(q | e), whose states ``named`` puts into the user's words."""
        self._scale = _Scale(log_evidence, rounding, named)

    def hear(self, doing: str, state: Any, log_lower: float, log_upper: float) -> None:
        """What a solver on such a circuit knows: a state with its log value, a bound on all states.

        Both are moved apart by what rounding can have done to them: what is told holds for the model.
        """
        if self._scale is None:
            return
        scale = self._scale
        lower, upper = log_lower + scale.log_evidence, log_upper + scale.log_evidence
        lost = scale.rounding + self.rounding + 8e-16 * abs(scale.log_evidence)
        if math.isfinite(lower):
            lower -= lost + 8e-16 * abs(log_lower)
        if math.isfinite(upper):
            upper += lost + 8e-16 * abs(log_upper)
        kept = state.copy() if state is not None and lower + self.log_factor > self.log_lower else None
        self.know(doing, None if kept is None else lambda: scale.named(kept), lower, upper)

    def know(
        self,
        doing: str,
        state: Callable[[], Mapping[int | str, int | str]] | None = None,
        log_lower: float = -math.inf,
        log_upper: float = math.inf,
    ) -> None:
        """Take what is better than before, in the numbers of the model that is worked on, and tell it."""
        self.doing = doing
        if self.log_factor != 0:
            log_lower, log_upper = log_lower + self.log_factor, log_upper + self.log_factor + self.rounding
        if state is not None and log_lower > self.log_lower:
            self.log_lower, self._state, self._named = float(log_lower), state, None
        self.log_upper = max(min(self.log_upper, float(log_upper)), self.log_lower)
        if not self.moments or self.moments[-1][1:] != (self.log_lower, self.log_upper):
            self.moments.append(Moment(self._now(), self.log_lower, self.log_upper))
            if len(self.moments) > MOST_MOMENTS:
                del self.moments[1:-1:2]
        better = self.log_lower > self._told[0]
        self.beat(0.0 if better else PAUSE_SECONDS if self._told[1] > self.log_upper else BEAT_SECONDS)

    def _now(self) -> float:
        """Seconds since the call began. They never run backwards, as the clock does after kernels were compiled."""
        self._latest = max(self._latest, self._seconds())
        return self._latest

    def beat(self, after: float = BEAT_SECONDS) -> None:
        """Tell what is known, unless that was done less than ``after`` seconds ago."""
        if self._on_progress is None or self.raised is not None or threading.get_ident() != self._thread:
            return
        seconds = self._now()
        if seconds < self._told_at + after:
            return
        self._told_at, self._told = seconds, (self.log_lower, self.log_upper)
        try:
            self._on_progress(Progress(seconds, self.log_lower, self.log_upper, self.state, self.doing))
        except (Exception, KeyboardInterrupt) as error:
            self.raised = error

    def end(self, state: Mapping[int | str, int | str] | None, log_prob: float, log_upper: float) -> None:
        """The call is over with this answer; it is the last that is told."""
        self.log_lower, self.log_upper, self._named = log_prob, log_upper, state
        self._state = None
        if not self.moments or self.moments[-1][1:] != (log_prob, log_upper):
            self.moments.append(Moment(self._now(), log_prob, log_upper))
        self.doing = "done"
        if self._told_at == -math.inf or self._told != (log_prob, log_upper):
            self.beat(0.0)
