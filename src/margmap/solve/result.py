"""What a solver and the whole call answer with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from margmap.circuit import IntArray, Name
from margmap.foundation.frames import frame
from margmap.foundation.html import facts, section, table
from margmap.foundation.limits import TOLERANCE, Status
from margmap.foundation.progress import Moment
from margmap.foundation.wording import listed, probability_text, spelled


class Outcome(NamedTuple):
    """A solver's answer on the reduced circuit: codes of the best states, best first, and a log bound of the others."""

    states: Sequence[IntArray]
    #: No state that is not among ``states`` has a larger log p(q | e).
    log_upper: float
    status: Status
    #: What the solver has to tell beyond that: iterations, widest frontier, why this method.
    details: Mapping[str, Any] = {}

    def because(self, why: str) -> Outcome:
        """The same with the reason why this method was chosen."""
        return Outcome(self.states, self.log_upper, self.status, {**self.details, "why": why})


#: The outcome where no variable is asked for: there is one state, of nothing.
NOTHING_ASKED = Outcome([np.zeros(0, dtype=np.int32)], -np.inf, "optimal")


class Ranked(NamedTuple):
    """One of the best states."""

    state: dict[Name, int | str]
    log_prob: float
    log_conditional: float


@dataclass(frozen=True)
class Result:
    """The answer to a marginal-MAP query.

    ``status`` is ``optimal`` exactly when the bounds met within the tolerance asked for: for a single state, when
    ``gap`` (log_upper - log_prob, in nats) is; for the ``k`` best, when no other state can come before the last one.
    (A circuit can be so large that rounding alone may amount to more than that; then a finished search counts up to
    1e-8 nats more.) Otherwise it says why the solver stopped. No state has a log probability above ``log_upper``.

    Stopped before any state was known, as while a network is compiled, ``state`` is None and ``log_prob`` minus
    infinity. So it is if no state satisfies the constraints, or only states of probability 0: then ``status`` is
    ``infeasible``, which is proven too, and :attr:`conflict` has the constraints that cannot hold together, if known.
    """

    status: Status
    state: dict[Name, int | str] | None
    #: log p(q, e) of the state, evaluated on the circuit as given; -inf without a state.
    log_prob: float
    #: log p(q | e); -inf without a state, not a number if log p(e) is out of reach.
    log_conditional: float
    #: No state of the query has a larger log p(q, e); inf if nothing is known.
    log_upper: float
    method: str
    #: Seconds spent on this call, reduction included, the first run's compilation of kernels not.
    seconds: float
    #: The best states in order, as many as were asked for and exist; the first is ``state``.
    top: tuple[Ranked, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Keep plain numbers: those of numpy show in ``repr`` and are not JSON."""
        for name in ("log_prob", "log_conditional", "log_upper", "seconds"):
            value = getattr(self, name)
            if type(value) is not float and value is not None:
                object.__setattr__(self, name, float(value))

    def with_details(self, details: Mapping[str, Any]) -> Result:
        """The same with other details."""
        twin = object.__new__(Result)
        twin.__dict__.update(self.__dict__, details=details)
        return twin

    @property
    def gap(self) -> float:
        """How far, in nats, a better state could at most lie above this one; 0 when proven optimal to the last bit."""
        return max(0.0, self.log_upper - self.log_prob)

    @property
    def trace(self) -> Sequence[Any]:
        """One record an iteration, for the methods that have iterations."""
        trace: Sequence[Any] = self.details.get("trace", ())
        return trace

    @property
    def bounds(self) -> Sequence[Moment]:
        """How both bounds closed: seconds, log_lower and log_upper, each time that one of them moved."""
        bounds: Sequence[Moment] = self.details.get("bounds", ())
        return bounds

    @property
    def conflict(self) -> Sequence[str]:
        """If infeasible: constraints that no state satisfies together, none without need; empty if not known."""
        found: Sequence[str] = self.details.get("conflict", ())
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, with the keys of the command line's JSON; None for a number that JSON lacks."""
        return {
            "status": self.status,
            "state": None if self.state is None else {str(name): value for name, value in self.state.items()},
            "log_prob": _finite(self.log_prob),
            "log_conditional": _finite(self.log_conditional),
            "log_upper": _finite(self.log_upper),
            "gap": _finite(self.gap),
            "method": self.method,
            "seconds": self.seconds,
            **({"why": self.no_state, "conflict": list(self.conflict)} if self.status == "infeasible" else {}),
        }

    def __str__(self) -> str:
        how = f"method {self.method}, {self.seconds:.3g} s"
        if self.state is None:
            return f"{self.no_state}\n{how}"
        best = f"{listed(self.state)}\n{probability_text(self.log_prob, self.log_conditional)}\n{self.proof}\n{how}"
        return best if len(self.top) < 2 else f"{best}\n{self._others()}"

    def _others(self) -> str:
        """The states after the best one, a line each: its probability and what is different from the best."""
        assert self.state is not None
        lines = []
        for rank, one in enumerate(self.top, 1):
            changed = {name: value for name, value in one.state.items() if value != self.state[name]}
            what = listed(changed, of="in all") if changed else "the best state"
            lines.append(f"{rank:>3}. {probability_text(one.log_prob, one.log_conditional)}: {what}")
        return "\n".join([f"the {len(self.top)} best states, by what is different from the best:", *lines])

    def to_frame(self) -> Any:
        """A pandas frame of the best states, a row each: the values of the query, then both probabilities."""
        states = [one for one in self.top if self.state is not None]
        header = [*(self.state or ()), "log p(q, e)", "p(q | e)"]
        rows = [(*one.state.values(), one.log_prob, float(np.exp(one.log_conditional))) for one in states]
        return frame(header, rows, index=range(1, len(rows) + 1))

    def _repr_html_(self) -> str:
        known = {
            "proof": self.proof if self.state is not None else self.no_state,
            "status": spelled(self.status),
            "log p(q, e)": self.log_prob,
            "upper bound": self.log_upper,
            "gap": f"{self.gap:.3g} nats",
            "p(q | e)": "not known" if np.isnan(self.log_conditional) else float(np.exp(self.log_conditional)),
            "method": f"{self.method}, {self.seconds:.3g} s",
        }
        title = "Marginal MAP"
        if self.state is None:
            return facts(title, {name: known[name] for name in ("proof", "status", "upper bound", "method")})
        if len(self.top) < 2:
            return section(facts(title, known), table(("variable", "value"), self.state.items(), "Best state", most=60))
        header = ("variable", *(f"{rank}." for rank in range(1, len(self.top) + 1)))
        chances = ("p(q | e)", *(float(np.exp(one.log_conditional)) for one in self.top))
        rows = [chances, *((name, *(one.state[name] for one in self.top)) for name in self.state)]
        return section(facts(title, known), table(header, rows, f"The {len(self.top)} best states", most=60))

    @property
    def proof(self) -> str:
        """What the bounds say of the state, in one line."""
        if self.gap <= TOLERANCE:
            return f"proven optimal: no state is better (bounds within {TOLERANCE:g} nats)"
        why = "within the gap asked for" if self.status == "optimal" else f"stopped ({spelled(self.status)})"
        return f"{why}: a better state can have at most log p = {self.log_upper:.6f}, {self.gap:.3g} nats more"

    @property
    def no_state(self) -> str:
        """What is known without a state, in one line."""
        if self.status == "infeasible":
            why = self.details.get("why", "no state satisfies all constraints")
            return f"infeasible: {why}" + (f" ({'; '.join(self.conflict)})" if self.conflict else "")
        bound = "" if self.log_upper == np.inf else f"; none has more than log p = {self.log_upper:.6f}"
        return f"no state yet: stopped ({spelled(self.status)}) before one was found{bound}"


def without_state(status: Status, method: str, seconds: float, log_upper: float = np.inf) -> Result:
    """The answer of whoever was stopped before any state was known."""
    return Result(status, None, -np.inf, -np.inf, log_upper, method, seconds)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
