"""Strudel (Dang, Vergari and Van den Broeck, PGM 2020): a circuit grown from a Chow-Liu tree, split by split.

Here is the run: its options, when it stops, which circuit it keeps. :mod:`margmap.learn.strudel_split` has the step.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from margmap.circuit import Circuit, LongArray
from margmap.errors import DataError, NoSplitWarning
from margmap.foundation.limits import Limits, Stopped
from margmap.learn.chow_liu_tree import Join, check_smoothing
from margmap.learn.decision_circuit import SPLITS, DecisionCircuit
from margmap.learn.strudel_split import EXHAUSTED, NO_ROOM, Rule, fill_queue, split_next

PickEdge: TypeAlias = Literal["eFLOW", "random"]
PickVariable: TypeAlias = Literal["vMI", "random"]
Prior: TypeAlias = Literal["parent", "uniform"]
Reason: TypeAlias = Literal["exhausted", "patience", "iterations", "max_edges", "time_limit", "interrupted"]

# How long a kernel should run before Python looks at the clock and for Ctrl-C, in seconds.
_SLICE = 0.2
# The validation rows are looked at whenever the circuit has grown by about one part in so many.
_GRAIN = 100

_NO_END = 1 << 60

# What some options may be, and what others must not be under; a number with a point may be any number, not only whole.
_CHOICES = {"pick_edge": ("eFLOW", "random"), "pick_variable": ("vMI", "random"), "prior": ("parent", "uniform")}
_LIMITS = {"time_limit": 0.0, "max_edges": 1, "iterations": 0, "patience": 0}
_LEAST = {**_LIMITS, "seed": 0, "tries": 1, "min_rows": 2, "depth": 0, "strength": 0.0}


class Growth(NamedTuple):
    """How far a run is: splits, mean log-likelihoods (of validation rows NaN if there are none), edges, seconds.

    The seconds are without the compilation of kernels.
    The edges are counted as the learner counts them; the circuit has fewer, because it shares equal products.
    """

    iteration: int
    train: float
    valid: float
    edges: int
    seconds: float


#: Told how far a run is whenever the circuit is compared with the best so far.
OnProgress: TypeAlias = Callable[[Growth], None]


@dataclass(frozen=True)
class Learned:
    """The best circuit of a run, where in the run it was found, and why the run ended."""

    circuit: Circuit
    reason: Reason
    #: At the circuit that is returned.
    best: Growth
    #: At the end.
    last: Growth
    history: list[Growth] = field(repr=False)

    @property
    def warning(self) -> str | None:
        """What must be said of a run that was stopped before anything was learned; mostly nothing."""
        if self.last.iteration > 0 or self.reason not in ("time_limit", "max_edges", "interrupted"):
            return None
        return (
            f"stopped ({self.reason.replace('_', ' ')}) before the first split: the circuit is what the run began "
            "with, the Chow-Liu tree of the rows or the circuit to go on from"
        )


def strudel(data: Any, valid: Any = None, **options: Any) -> Circuit:
    """Learn a smooth, deterministic, structured-decomposable circuit: of all it grew through, the best on ``valid``.

    :func:`learn_strudel` has all options, and also tells how the run went.

    >>> import numpy as np
    >>> from margmap.learn import strudel
    >>> rows = np.random.default_rng(0).integers(0, 2, (200, 5))
    >>> strudel(rows, iterations=3).properties.deterministic
    True
    """
    return learn_strudel(data, valid, **options).circuit


def learn_strudel(
    data: Any,
    valid: Any = None,
    *,
    time_limit: float | None = None,
    max_edges: int | None = None,
    iterations: int | None = None,
    patience: int | None = 1000,
    seed: int = 0,
    pick_edge: PickEdge = "eFLOW",
    pick_variable: PickVariable = "vMI",
    tries: int = 8,
    min_gain: float | None = 0.0,
    min_rows: int = 2,
    depth: int = 1,
    alpha: float = 1.0,
    pseudocount: float = 1.0,
    prior: Prior = "parent",
    strength: float = 10.0,
    join: Join = "balanced",
    resume: Circuit | None = None,
    on_progress: OnProgress | None = None,
) -> Learned:
    """Grow a circuit from the Chow-Liu tree of the rows, or from ``resume``, and say how it went.

    It stops when nothing is left to split, after ``iterations`` splits, ``time_limit`` seconds, at ``max_edges`` edges,
    or when the validation rows have not become more likely for ``patience`` splits. With ``valid`` the circuit that was
    best on those rows is returned, without it the last one. Ctrl-C ends the run in the same way. The time limit does
    not count the compilation of kernels, once on a machine. A limit or Ctrl-C that stops the run before its first
    split is told by a :class:`NoSplitWarning`.

    The edge, of a sum to a product, with most rows is split next (``pick_edge="eFLOW"``). Of its variables the
    ``tries`` with the largest sums of mutual information with the others (``pick_variable="vMI"``) are tried, and the
    one taken that makes the rows most likely, the parameters of all copies integrated out; the edge is left alone if
    none gains more than ``min_gain`` nats. ``"random"`` in place of either is for comparison. Nodes up to ``depth``
    below the split get copies of their own.

    Parameters are (count + s * prior) / (count of the node + s). With ``prior="uniform"`` the prior is even and s is
    ``pseudocount``; with ``"parent"`` that holds for the nodes of the tree, while a copy has the parameters of what it
    was copied from as its prior, and s = ``strength``.

    ``tries=1, min_gain=None, prior="uniform"`` is Strudel as published.
    """
    rule = _rule(locals())
    limits = Limits(None if time_limit is None else float(time_limit))
    with limits.not_counting_compilation():
        grown = DecisionCircuit.begin(data, valid, resume, alpha, join, pseudocount=pseudocount, inherit=rule.inherit)
        run = _Run(grown, rule, limits, on_progress)
        grown.reserve(0, 0, grown.arrays.owner.size + 1)
        grown.arrays.random[0] = (seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % (1 << 64) or 1
        fill_queue(grown.arrays, rule)
    with limits.catching_interrupts(), limits.not_counting_compilation():
        try:
            reason = run.to_the_end(
                _NO_END if iterations is None else iterations,
                _NO_END if max_edges is None else max_edges,
                _NO_END if patience is None else patience,
            )
        except (KeyboardInterrupt, Stopped):  # of on_progress, or Ctrl-C before a kernel that is not compiled yet
            reason = "interrupted"
    learned = run.learned(reason)
    if learned.warning is not None:
        warnings.warn(learned.warning, NoSplitWarning, stacklevel=2)
    return learned


class _Run:
    """A run: the circuit that grows, and the best circuit so far on the validation rows, if there are such rows."""

    def __init__(self, grown: DecisionCircuit, rule: Rule, limits: Limits, report: OnProgress | None) -> None:
        self.grown, self.rule, self.limits, self.report = grown, rule, limits, report
        self.best = self.last = self.now()
        self.kept = grown.compact()
        self.history = [self.best]
        self.next_look = 1

    def to_the_end(self, iterations: int, max_edges: int, patience: int) -> Reason:
        """Split until one of the limits is reached, and say which."""
        needed: LongArray = np.zeros(3, dtype=np.int64)
        batch = 1
        while True:
            done = self.last.iteration
            most = min(batch, max(1, self.next_look - done), iterations - done)
            started = self.limits.clock()
            code = split_next(self.grown.arrays, self.rule, most, max_edges, needed)
            spent = self.limits.clock() - started
            if code == NO_ROOM:
                self.grown.reserve(*needed.tolist())
            if spent < _SLICE / 2:
                batch = min(2 * batch, 1 << 12)
            elif spent > _SLICE:
                batch = max(1, batch // 2)
            now = self.now()
            reasons: dict[Reason, bool] = {
                "interrupted": self.limits.interrupted,
                "exhausted": code == EXHAUSTED,
                "iterations": now.iteration >= iterations,
                "max_edges": now.edges >= max_edges,
                "time_limit": self.limits.late(0.0),
            }
            reason = next((reason for reason, holds in reasons.items() if holds), None)
            looked = self.look(now, final=reason is not None)
            if reason is not None:
                return reason
            if looked and now.iteration - self.best.iteration > patience:
                return "patience"

    def now(self) -> Growth:
        train, valid = self.grown.mean_log_likelihoods
        splits = int(self.grown.arrays.size[SPLITS])
        return Growth(splits, train, valid, self.grown.edges, self.limits.clock() - self.limits.begun)

    def look(self, now: Growth, *, final: bool) -> bool:
        """Compare with the best, if it is time to: a copy costs as much as the circuit is large."""
        self.last = now
        if now.iteration < self.next_look and not final:
            return False
        self.next_look = now.iteration + 1 + now.edges // (30 * _GRAIN)
        self.history.append(now)
        if self.report is not None:
            self.report(now)
        if now.valid > self.best.valid:
            self.best, self.kept = now, self.grown.compact()
        return self.grown.validates

    def learned(self, reason: Reason) -> Learned:
        """Between two calls of the kernel the structure is whole, so that the last circuit can always be had."""
        if not self.grown.validates:
            self.best, self.kept = self.last, self.grown.compact()
        return Learned(self.grown.circuit(self.kept), reason, self.best, self.last, self.history)


def _rule(given: Mapping[str, Any]) -> Rule:
    """The options of :func:`learn_strudel`, checked, and those among them that kernels need."""
    check_smoothing(given["alpha"], given["pseudocount"])
    for name, known in _CHOICES.items():
        if given[name] not in known:
            raise DataError(f"{name} must be {known[0]!r} or {known[1]!r}, not {given[name]!r}")
    for name, least in _LEAST.items():
        if given[name] is not None or name not in _LIMITS:
            check_option(name, given[name], least)
    inherit = given["prior"] == "parent"
    return Rule(
        random_edge=given["pick_edge"] == "random",
        random_variable=given["pick_variable"] == "random",
        tries=given["tries"],
        depth=given["depth"],
        alpha=float(given["alpha"]),
        strength=float(given["strength" if inherit else "pseudocount"]),
        inherit=inherit,
        least_rows=given["min_rows"],
        least_gain=-math.inf if given["min_gain"] is None else float(given["min_gain"]),
    )


def check_option(name: str, value: float | None, least: float) -> None:
    """Refuse what is not a number from ``least``: any number if that has a point, otherwise a whole one."""
    real = isinstance(least, float)
    try:
        number = float(value) if real else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{name} must be {'a number' if real else 'an integer'}, not {value!r}") from None
    if not least <= number < math.inf:
        raise DataError(f"{name} must be at least {least:g}, not {value!r}")
