"""What the page asks, in plain data: read and checked, answered step by step, and written as code.

The page speaks of variables by their columns and of values by their codes, so that no name, however odd, can be taken
for another one. Evidence on a column is a code (or a number, for a continuous variable), a list of codes of which one
holds, or an object with one likelihood for each code.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from margmap.circuit import Circuit, Variable
from margmap.errors import LimitError, MargmapError, QueryError
from margmap.foundation.progress import Progress
from margmap.network.network import Network
from margmap.solve.result import Ranked, Result
from margmap.solve.sensitivity import sensitivity
from margmap.solve.session import Session

#: At most this many best states are shown.
MOST_STATES = 50

#: How many variables a command line names; more of them are better in a file.
MOST_NAMES = 40

#: Seconds for what would change the answer among the variables that are summed out.
MOST_SECONDS = 10.0

#: The posteriors of a network that is eliminated for each question may take as much as a circuit of so many edges.
MOST_EDGES = 10_000_000

Event = dict[str, Any]
Model = Circuit | Network


@dataclass(frozen=True)
class Asked:
    """A question of the page."""

    query: tuple[int, ...]
    evidence: Mapping[int, Any]
    k: int

    @staticmethod
    def read(model: Model, data: Any) -> Asked:
        """The question in the data that a page sent; what is wrong with it is a :class:`QueryError`."""
        if not isinstance(data, dict):
            raise QueryError("a question is an object with query and evidence")
        query, evidence, k = data.get("query"), data.get("evidence", {}), data.get("k", 1)
        if not isinstance(query, list) or not isinstance(evidence, dict):
            raise QueryError("a question has a list query and an object evidence")
        if not _is_whole(k) or not 1 <= k <= MOST_STATES:
            raise QueryError(f"k must be a whole number from 1 to {MOST_STATES}")
        columns = [_column(model, column) for column in query]
        return Asked(tuple(columns), {_column(model, key): _evidence(model, key, x) for key, x in evidence.items()}, k)

    def names(self, model: Model) -> list[Any]:
        """The query in the words of the library."""
        return [model.variables[column] for column in self.query]

    def known(self, model: Model) -> dict[Any, Any]:
        """The evidence in the words of the library."""
        return {model.variables[column]: given for column, given in self.evidence.items()}


def describe(model: Model, name: str, grid: tuple[int, int] | None) -> dict[str, Any]:
    """What the page needs to know of a model."""
    mentioned = model.mentioned if isinstance(model, Circuit) else frozenset(range(len(model.variables)))
    variables = [
        {
            "name": str(v.name),
            "states": [str(v.label(x)) for x in range(v.cardinality)],
            "continuous": v.continuous,
            "mentioned": column in mentioned,
        }
        for column, v in enumerate(model.variables)
    ]
    kind = "circuit" if isinstance(model, Circuit) else "network"
    size = repr(model).partition("(")[2].removesuffix(")")
    return {"name": name, "kind": kind, "size": size, "variables": variables, "grid": grid, "forms": _forms(model)}


def answers(
    session: Session, asked: Asked, tell: Callable[[Event], None], stopped: Callable[[], bool], limits: dict[str, Any]
) -> Iterator[Event]:
    """The answer, then all posteriors and the best states: one event each, and the bounds through ``tell``."""
    model = session.model

    def on_progress(progress: Progress) -> None:
        if stopped():
            raise InterruptedError
        tell({"kind": "progress", **_progress(model, asked, progress)})

    limits = {**limits, "on_progress": on_progress}
    steps: list[Callable[[], Event]] = [lambda: _posteriors(session, asked)]
    if asked.query:
        result = session.marginal_map(asked.names(model), asked.known(model), **limits)
        yield {"kind": "answer", **_answer(model, asked, result)}
        if result.state is not None and asked.k > 1:
            # What takes longer comes last: without a circuit these are the posteriors.
            steps.insert(1 if session.compiled else 0, lambda: _several(session, asked, result, limits))
    for step in steps:
        if stopped():
            return
        yield step()


def _posteriors(session: Session, asked: Asked) -> Event:
    """p(x | evidence) of every variable that is not observed; if that is out of reach, why."""
    try:
        found = session.posteriors(asked.known(session.model), max_edges=None if session.compiled else MOST_EDGES)
    except LimitError as error:
        return {"kind": "posteriors", "posteriors": {}, "why": str(error)}
    return {"kind": "posteriors", "posteriors": {session.model.own(name): found.array(name).tolist() for name in found}}


def _several(session: Session, asked: Asked, best: Result, limits: dict[str, Any]) -> Event:
    """The best states; if only one can be found, that one."""
    model, why, result = session.model, "", best
    try:
        result = session.marginal_map(asked.names(model), asked.known(model), k=asked.k, **limits)
    except LimitError as error:
        why = str(error)
    return {
        "kind": "top",
        "status": result.status,
        "top": [_ranked(model, asked, one) for one in result.top],
        "why": why,
    }


def changes(session: Session, asked: Asked, stopped: Callable[[], bool], limits: dict[str, Any]) -> Iterator[Event]:
    """Which single changes of what is known would change the answer: one event for each, then how many were tried.

    Tried are, for each observed variable, every other value and no observation at all; then, for each variable that is
    summed out, every value that it could be observed to have (:func:`margmap.sensitivity`).
    """
    model = session.model
    if not asked.query:
        return
    base = session.marginal_map(asked.names(model), asked.known(model), **limits)
    tried = 0
    for column, given in asked.evidence.items():
        variable = model.variables[column]
        others: list[Any] = [None]
        if not variable.continuous:
            others += [variable.label(x) for x in range(variable.cardinality) if variable.label(x) != given]
        for other in others:
            if stopped():
                return
            evidence = {key: x for key, x in asked.known(model).items() if key is not variable}
            if other is not None:
                evidence[variable] = other
            try:
                result = session.marginal_map(asked.names(model), evidence, **limits)
            except MargmapError:  # that value is impossible beside the rest
                continue
            tried += 1
            if result.state != base.state and result.state is not None:
                proven = result.status == "optimal" and base.status == "optimal"
                state = _codes(model, asked, result.state)
                yield _change(column, None if other is None else variable.code(other), state, proven)
    if stopped():
        return
    seconds = min(MOST_SECONDS, limits.get("time_limit") or MOST_SECONDS)
    found = sensitivity(model, asked.names(model), asked.known(model), time_limit=seconds)
    for one in found.changes:
        if one.value is None:
            continue
        tried += one.survives is not None
        if one.survives is False and one.state is not None:
            column = model.own(one.variable)
            code, state = model.variables[column].code(one.value), _codes(model, asked, one.state)
            yield {**_change(column, code, state, found.complete), "probability": one.probability}
    yield {"kind": "tried", "tried": tried, "complete": found.complete}


def _change(column: int, to: int | None, state: list[int], proven: bool) -> Event:
    """With ``to`` observed of a variable, or nothing, the answer is another state."""
    return {"kind": "change", "column": column, "to": to, "state": state, "proven": proven}


def exported(model: Model, path: str, asked: Asked) -> dict[str, str]:
    """The question as Python code, as a command line, and as the JSON that ``--instance`` reads."""
    query = [v.name for v in asked.names(model)]
    evidence = {v.name: given for v, given in asked.known(model).items()}
    more = f", k={asked.k}" if asked.k > 1 else ""
    python = [
        "import margmap as mm",
        "",
        f"model = mm.load({path!r})",
        f"evidence = {evidence!r}",
        f"result = mm.marginal_map(model, {query!r}, evidence{more})" if query else "",
        "print(result)" if query else "print(mm.posteriors(model, evidence))",
    ]
    instance = json.dumps({"query": query, "evidence": {str(k): _plain(x) for k, x in evidence.items()}}, indent=2)
    return {"python": "\n".join(line for line in python if line or not query) + "\n", "json": instance} | {
        "cli": _command(path, query, evidence, asked.k)
    }


def _command(path: str, query: Sequence[Any], evidence: Mapping[Any, Any], k: int) -> str:
    """The command line for a question; the names and values that it could not tell apart are left to a file."""
    words = ["margmap", "solve" if query else "marginal", path]
    if k > 1 and query:
        words += ["--top", str(k)]
    texts = [*map(str, query), *(str(part) for pair in evidence.items() for part in pair)]
    clear = all(text == text.strip() and text and not set(text) & set("=,|~:{}[]\n\"'\\") for text in texts)
    plain = all(isinstance(x, int | float | str) for x in evidence.values())
    if not clear or not plain or len(texts) > MOST_NAMES:
        return " ".join(map(shlex.quote, [*words, "--instance", "question.json"]))
    if query:
        words += ["--query", ",".join(map(str, query))]
    if evidence:
        words += ["--evidence", ",".join(f"{name}={value}" for name, value in evidence.items())]
    return " ".join(map(shlex.quote, words))


def _column(model: Model, given: Any) -> int:
    column = _whole(given)
    if not isinstance(column, int) or isinstance(column, bool) or not 0 <= column < len(model.variables):
        raise QueryError(f"there is no column {str(given)[:20]!r}")
    return column


def _evidence(model: Model, key: str, given: Any) -> Any:
    """What the library takes for evidence that a page sent."""
    variable = model.variables[_column(model, key)]
    if variable.continuous:
        return variable.real(given)
    if isinstance(given, list):
        return {variable.label(_code(variable, x)) for x in given}
    if isinstance(given, dict):
        weights = {variable.label(_code(variable, _whole(x))): w for x, w in given.items()}
        if not all(isinstance(w, int | float) and not isinstance(w, bool) and w >= 0 for w in weights.values()):
            raise QueryError(f"variable {variable.name!r}: likelihoods are numbers from 0")
        return weights
    return variable.label(_code(variable, given))


def _code(variable: Variable, given: Any) -> int:
    if not _is_whole(given):
        raise QueryError(f"variable {variable.name!r}: a value is given by its number")
    return variable.numbered(given)


def _whole(given: Any) -> Any:
    """The number that a key of a JSON object stands for; anything else as it is."""
    return int(given) if isinstance(given, str) and len(given) < 12 and given.isascii() and given.isdigit() else given


def _is_whole(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _forms(model: Model) -> list[str]:
    """The forms of evidence that this version of the library understands beside a value: sets, likelihoods."""
    known = []
    for variable in model.variables:
        if variable.cardinality < 2:
            continue
        labels = {variable.label(x) for x in range(variable.cardinality)}
        for form, evidence in (("set", labels), ("soft", dict.fromkeys(labels, 0.5))):
            try:
                model.observed({variable: evidence})
                known.append(form)
            except (MargmapError, TypeError):
                pass
        break
    return known


def _progress(model: Model, asked: Asked, progress: Progress) -> dict[str, Any]:
    best = None if progress.state is None else Ranked(dict(progress.state), progress.log_lower, math.nan)
    return {
        "seconds": progress.seconds,
        "lower": _number(progress.log_lower),
        "upper": _number(progress.log_upper),
        "doing": progress.doing,
        "best": None if best is None else _ranked(model, asked, best),
    }


def _answer(model: Model, asked: Asked, result: Result) -> dict[str, Any]:
    numbers = {name: value for name, value in result.to_dict().items() if name != "state"}
    best = None if result.state is None else _ranked(model, asked, result.top[0])
    text = result.no_state if result.state is None else result.proof
    return {**numbers, "best": best, "proof": text, "why": str(result.details.get("why", ""))}


def _codes(model: Model, asked: Asked, state: Mapping[Any, Any]) -> list[int]:
    """A state of the query by the numbers of its values."""
    return [model.variables[column].code(state[model.variables[column].name]) for column in asked.query]


def _ranked(model: Model, asked: Asked, ranked: Ranked) -> dict[str, Any]:
    return {
        "state": _codes(model, asked, ranked.state),
        "log_prob": _number(ranked.log_prob),
        "log_conditional": _number(ranked.log_conditional),
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(given: Any) -> Any:
    return sorted(given, key=str) if isinstance(given, set | frozenset) else given
