"""What would change the answer of a marginal-MAP query: every value that could be observed, every one that was.

The answer is asked for once, with the few states after it. One pass up and one down with each of these states observed
gives p(state, x = v, e) for every hidden variable x and value v at once. Under x = v no other state has more than the
smaller of two bounds: the last state's p(q, e), since p(q, x = v, e) <= p(q, e), and what these states leave of
p(x = v, e). Where one of them is at least that, it is the answer under x = v; only the rest is solved, on the same
circuit. That the answer does not change is MAP-independence (Kwisthout, *Explainable AI using MAP-independence*, 2021).
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from margmap.circuit import Circuit, FloatArray, Name
from margmap.circuit.evidence import names_of
from margmap.circuit.model import as_model
from margmap.circuit.observation import Observation
from margmap.errors import ImpossibleEvidenceError, QueryError
from margmap.foundation.frames import frame
from margmap.foundation.html import paragraph, section, table
from margmap.foundation.limits import Limits, Stopped
from margmap.foundation.wording import listed
from margmap.inference.networks import kept_circuit
from margmap.inference.queries import log_marginal_of, posterior_tables
from margmap.network.network import Network
from margmap.solve.marginal_map import answer
from margmap.solve.question import Question, ask, check_limits
from margmap.solve.report import moved
from margmap.solve.result import Ranked, Result

#: How many of the best states are compared before anything is solved again.
STATES = 8

#: States of the variables to look at that are decided one by one; the others leave a gap between the bounds.
MOST_LOOKS = 1 << 12

# Two probabilities closer than this, relatively, are not told apart by the bounds: then it is solved.
_MARGIN = 1e-9

# How far, relatively, a state that is not among the best can be above the last of them: the tolerance of the proof.
_PROVEN = 3e-8


class Change(NamedTuple):
    """What the answer becomes if a variable had another observation."""

    variable: Name
    #: The value that would be observed; None for an observed variable without its observation.
    value: int | str | None
    #: p(value | evidence); for an observed variable 1, since it is certain that it was observed.
    probability: float
    #: The best state then; None if it is not known, or if the value is impossible.
    state: dict[Name, int | str] | None
    #: Whether the current answer is still one of the best; None if that is not known.
    survives: bool | None
    #: p(current answer | value, evidence); not a number if that is out of reach.
    current: float


@dataclass(frozen=True)
class Sensitivity:
    """The answer to a query, and what would change it; see :func:`margmap.sensitivity`."""

    answer: Result
    #: All changes, those of the variables that matter most first, and of one variable the likeliest first.
    changes: tuple[Change, ...]
    #: For each variable bounds of the probability that looking at it changes the answer; 1 or 0 for an observed one.
    matters: Mapping[Name, tuple[float, float]]
    #: The variables of ``look_at``, and bounds of the probability that the answer stays the same after looking at them.
    look_at: tuple[Name, ...]
    same_decision: tuple[float, float] | None
    #: Whether all of it is known.
    complete: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, with the keys of the command line's JSON."""
        return {
            "answer": self.answer.to_dict(),
            "changes": [
                {**one._asdict(), "variable": str(one.variable), "current": _number(one.current)}
                | {"state": None if one.state is None else {str(name): x for name, x in one.state.items()}}
                for one in self.changes
            ],
            "matters": {str(name): list(bounds) for name, bounds in self.matters.items()},
            "look_at": list(map(str, self.look_at)),
            "same_decision": None if self.same_decision is None else list(self.same_decision),
            "complete": self.complete,
            "seconds": self.seconds,
        }

    def to_frame(self) -> Any:
        """The changes as a pandas frame, one row each, the variables that matter most first."""
        names = ["variable", "value", "probability", "survives", "current", "matters", "different"]
        return frame(names, self._rows())

    def _rows(self) -> list[tuple[object, ...]]:
        rows: list[tuple[object, ...]] = []
        for one in self.changes:
            matters = _matters([one])[1] if one.value is None else self.matters[one.variable][1]
            known = (one.variable, one.value, one.probability, one.survives, one.current, matters)
            rows.append((*known, self.different(one)))
        return rows

    def _repr_html_(self) -> str:
        words = {True: "yes", False: "no", None: "not known"}
        header = ("variable", "if it were", "probability", "answer stays", "p(answer) then", "matters", "different")
        rows = []
        for one, (name, value, *numbers) in zip(self.changes, self._rows(), strict=True):
            shown = "not observed" if value is None else value
            rows.append((name, shown, numbers[0], words[one.survives], *numbers[2:]))
        changes = table(header, rows, "What would change the answer", most=60, bars={2: 1.0, 5: 1.0})
        same = () if self.same_decision is None else (paragraph(_same_text(self.look_at, self.same_decision)),)
        return section(self.answer._repr_html_(), changes, *same)

    def different(self, change: Change) -> str:
        """What is different in the state of a change, as text; empty if the answer survives."""
        current = self.answer.state
        if change.survives or change.state is None or current is None:
            return ""
        return listed({name: x for name, x in change.state.items() if x != current[name]}, of="in all")


def _same_text(look_at: Sequence[Name], bounds: tuple[float, float]) -> str:
    low, high = bounds
    chance = f"{low:.6g}" if high - low < 1e-6 else f"{low:.6g} to {high:.6g}"
    return f"After looking at {', '.join(map(str, look_at))} the answer stays the same with probability {chance}."


def sensitivity(
    model: object,
    query: Sequence[Name] | None = None,
    evidence: Mapping[Any, Observation] | None = None,
    *,
    look_at: Sequence[Name] | None = None,
    time_limit: float | None = None,
) -> Sensitivity:
    """What would change the most likely state of ``query`` given ``evidence``.

    For every discrete variable that is neither asked for nor observed, and each of its values: the probability of that
    value, the answer if it had been observed, and whether the current answer is still a best one. For every observed
    variable: the answer without it. ``look_at`` names variables that will be looked at together: the probability that
    the answer stays the same after that (the same-decision probability of Darwiche and Choi) is computed exactly if
    they have few states, otherwise bounded.

    Stopped by ``time_limit`` (in seconds), what is known is there: ``survives`` is None elsewhere.
    """
    check_limits(time_limit)
    limits = Limits(time_limit)
    model = as_model(model)
    with limits.catching_interrupts(), limits.not_counting_compilation():
        return _Analysis(model, query, evidence, look_at, limits).run()


class _Analysis:
    def __init__(
        self,
        model: Circuit | Network,
        query: Sequence[Name] | None,
        evidence: Mapping[Any, Observation] | None,
        look_at: Sequence[Name] | None,
        limits: Limits,
    ) -> None:
        self.begun, self.limits = time.perf_counter(), limits
        circuit = kept_circuit(model, None) if isinstance(model, Network) else model
        #: A circuit of a network has the network's variables.
        self.model: Circuit | Network = circuit or model
        self.evidence = self.model.labelled(model.observed(evidence))
        asked = model.asked(query, model.observed(evidence))
        self.query: list[Any] = [model.variables[column] for column in asked]
        self.question = ask(self.model, self.query, self.evidence, k=STATES)
        self.width = len(model.variables)
        self.columns = self.question.columns
        self.hidden = [
            column
            for column, variable in enumerate(self.question.model.variables[: self.width])
            if column not in self.question.observed and column not in self.columns and self._has_values(column)
        ]
        self.looking = self._looked_at(look_at)
        self.look_at = tuple(model.variables[column].name for column in self.looking)
        self.given_up = False

    def _has_values(self, column: int) -> bool:
        """Whether a variable is discrete and there; a continuous one within an interval has become one value."""
        if self.model.variables[column].continuous:
            return False
        return not isinstance(self.model, Circuit) or column in self.model.mentioned

    def _looked_at(self, names: Sequence[Name] | None) -> list[int]:
        columns = [] if names is None else self.model.query_columns(names_of(names, "look_at"), ())
        for column in columns:
            if column not in self.hidden:
                name = self.model.names[column]
                raise QueryError(f"variable {name!r} of look_at is asked for, observed or continuous: leave it out")
        return columns

    def run(self) -> Sensitivity:
        base = self._best()
        top, rest = list(base.top), 0.0
        result = replace(base, top=base.top[:1])
        if base.state is None:
            return Sensitivity(result, (), {}, self.look_at, None, False, time.perf_counter() - self.begun)
        if base.status != "optimal":
            rest = math.inf
        elif len(top) == STATES:
            rest = self._share(top[-1]) * (1 + _PROVEN)
        self.top, self.rest, self.log_evidence = top, rest, self._log_p({})
        self.codes = [self._state_codes(one) for one in top]
        #: p(q | e) of each state, and for each p(x = v | q, e).
        self.shares = [self._share(one) for one in top]
        self.tables = [self._tables(codes) for codes in self.codes]
        changes = [change for column in self.hidden for change in self._column(column)]
        changes += [self._without(column) for column in self.model.observed(self.evidence)]
        same = self._same_decision() if self.looking else None
        complete = not self.given_up and base.status == "optimal" and all(c.survives is not None for c in changes)
        order, matters = _sorted(changes, self.shares[0])
        seconds = time.perf_counter() - self.begun
        return Sensitivity(result, tuple(order), matters, self.look_at, same, complete, seconds)

    # -- what is asked of the model

    def _best(self) -> Result:
        return moved(self._answer(self.question), self.question)

    def _answer(self, question: Question) -> Result:
        """The answer within the limits, however little of it there is."""
        try:
            return answer(question, self.limits.until(self.limits.deadline))
        except (Stopped, MemoryError) as stopped:
            from margmap.solve.result import without_state

            status = stopped.status if isinstance(stopped, Stopped) else "memory_limit"
            return without_state(status, question.method, 0.0)

    def _solved(self, known: Mapping[int, int]) -> Result | None:
        """The answer with some more variables observed; None if there is no time for it."""
        if self.given_up or self.limits.late(0.0):
            self.given_up = True
            return None
        observed = {**self.question.observed, **known}
        return self._answer(self.question._replace(observed=observed, k=1))

    def _log_p(self, known: Mapping[int, int]) -> float:
        return log_marginal_of(self.question.model, {**self.question.observed, **known})

    def _tables(self, known: Mapping[int, int]) -> dict[int, FloatArray]:
        """p(x = v | known, evidence) of every hidden variable."""
        return posterior_tables(self.question.model, {**self.question.observed, **known})

    def _share(self, one: Ranked) -> float:
        """p(q | e); of a network too wide for its own probability of the evidence, that is computed here."""
        if one.log_conditional == one.log_conditional:
            return math.exp(one.log_conditional)
        return math.exp(one.log_prob - self.question.log_factor - self._log_p({}))

    def _state_codes(self, one: Ranked) -> dict[int, int]:
        variables = self.question.model.variables
        return {c: variables[c].code(x) for c, x in zip(self.columns, one.state.values(), strict=True)}

    # -- the changes

    def _column(self, column: int) -> list[Change]:
        variable = self.model.variables[column]
        joint = np.array([share * table[column] for share, table in zip(self.shares, self.tables, strict=True)])
        total = self._prior()[column]
        return [
            self._change(variable.name, variable.label(x), {column: x}, float(total[x]), joint[:, x])
            for x in range(variable.cardinality)
        ]

    def _prior(self) -> dict[int, FloatArray]:
        if not hasattr(self, "_prior_tables"):
            self._prior_tables = self._tables({})
        return self._prior_tables

    def _change(
        self, name: Name, value: int | str, known: Mapping[int, int], probability: float, joint: FloatArray
    ) -> Change:
        """What the answer is with ``known``, whose probability is given, and that of each state with it."""
        current = float(joint[0]) / probability if probability > 0 else math.nan
        decided = self._decided(probability, joint)
        if decided is not None:
            survives = bool(joint[0] >= joint[decided] * (1 - _MARGIN))
            return Change(name, value, probability, self.top[0 if survives else decided].state, survives, current)
        try:
            solved = self._solved(known)
        except ImpossibleEvidenceError:
            return Change(name, value, 0.0, None, True, math.nan)
        return Change(name, value, probability, *self._compared(solved, known), current)

    def _decided(self, probability: float, joint: FloatArray) -> int | None:
        """The state that is the best one whatever the others are; None if that is not clear."""
        best = int(np.argmax(joint))
        left = probability * (1 + _MARGIN) - float(joint.sum())
        others = min(self.rest, left)
        return best if joint[best] > 0 and joint[best] * (1 - _MARGIN) >= others else None

    def _compared(
        self, solved: Result | None, known: Mapping[int, int]
    ) -> tuple[dict[Name, int | str] | None, bool | None]:
        """The best state, and whether the current answer is as good as it."""
        if solved is None or solved.state is None:
            return None, None
        log_own = self._log_p({**self.codes[0], **known})
        if solved.log_upper - log_own <= _MARGIN:
            return self.top[0].state, True
        if solved.log_prob - log_own > _MARGIN:
            return solved.state, False
        return solved.state, None

    def _without(self, column: int) -> Change:
        """The answer without what was observed of a variable."""
        variable = self.model.variables[column]
        evidence = {v: x for v, x in self.evidence.items() if v != variable}
        question = ask(self.model, self.query, evidence)
        if self.given_up or self.limits.late(0.0):
            self.given_up = True
            return Change(variable.name, None, 1.0, None, None, math.nan)
        solved = self._answer(question)
        if solved.state is None:
            return Change(variable.name, None, 1.0, None, None, math.nan)
        log_own = log_marginal_of(question.model, {**question.observed, **self.codes[0]})
        current = math.exp(log_own - log_marginal_of(question.model, question.observed))
        if solved.log_upper - log_own <= _MARGIN:
            return Change(variable.name, None, 1.0, self.top[0].state, True, current)
        survives = None if solved.log_prob - log_own <= _MARGIN else False
        return Change(variable.name, None, 1.0, solved.state, survives, current)

    # -- looking at several variables

    def _same_decision(self) -> tuple[float, float]:
        """Bounds of the probability that the answer stays the same: the likeliest states of ``look_at`` first."""
        same = different = 0.0
        ties = 0
        heap: list[tuple[float, int, dict[int, int]]] = [(-1.0, 0, {})]
        looks = 0
        while heap and looks < MOST_LOOKS and not (self.given_up or self.limits.late(0.0)):
            weight, _, known = heapq.heappop(heap)
            left = [column for column in self.looking if column not in known]
            looks += 1
            if left:
                table = self._tables(known)[left[0]]
                for x, p in enumerate(table.tolist()):
                    if p > 0:
                        ties += 1
                        heapq.heappush(heap, (weight * p, ties, {**known, left[0]: x}))
                continue
            survives = self._stays(known, -weight)
            same += -weight if survives else 0.0
            different += -weight if survives is False else 0.0
        if not heap and same + different > 1 - 1e-9:
            return same / (same + different), same / (same + different)
        return min(same, 1.0), max(0.0, 1.0 - different)

    def _stays(self, known: Mapping[int, int], probability: float) -> bool | None:
        own = math.exp(self._log_p({**self.codes[0], **known}) - self.log_evidence)
        if own * (1 - _MARGIN) >= min(self.rest_of_all, probability - own):
            return True
        return self._compared(self._solved(known), known)[1]

    @property
    def rest_of_all(self) -> float:
        """No state but the answer has a larger p(q | e)."""
        return self.shares[1] * (1 + _PROVEN) if len(self.shares) > 1 and self.rest < math.inf else math.inf


def _sorted(changes: Sequence[Change], current: float) -> tuple[list[Change], dict[Name, tuple[float, float]]]:
    """The changes of what matters most first, and how much each variable matters.

    A variable with a set or a likelihood as evidence has both sorts of changes; its values are what matters then.
    """
    groups: dict[tuple[Name, bool], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.variable, change.value is None), []).append(change)
    order = sorted(groups, key=lambda key: (-_matters(groups[key])[1], -_spread(groups[key], current), str(key[0])))
    matters: dict[Name, tuple[float, float]] = {}
    for name, without in order:
        if not without or (name, False) not in groups:
            matters[name] = _matters(groups[name, without])
    return [one for key in order for one in sorted(groups[key], key=lambda c: -c.probability)], matters


def _matters(changes: Sequence[Change]) -> tuple[float, float]:
    """Bounds of the probability that the answer changes; the larger is 1 where nothing is known."""
    sure = math.fsum(c.probability for c in changes if c.survives is False)
    open_ = math.fsum(c.probability for c in changes if c.survives is None)
    return min(sure, 1.0), min(sure + open_, 1.0)


def _spread(changes: Sequence[Change], current: float) -> float:
    """By how much the probability of the current answer moves, on average."""
    return math.fsum(c.probability * abs(c.current - current) for c in changes if c.current == c.current)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
