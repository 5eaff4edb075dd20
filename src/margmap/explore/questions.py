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
from margmap.solve.session import Session

#: At most this many best states are shown.
MOST_STATES = 50

#: How many variables a command line names; more of them are better in a file.
MOST_NAMES = 40

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
    """The answer, then all posteriors, then the best states: one event each, and the bounds through ``tell``."""
    model, evidence = session.model, asked.known(session.model)

    def on_progress(progress: Progress) -> None:
        if stopped():
            raise InterruptedError
        tell({"kind": "progress", **_progress(model, asked, progress)})

    limits = {**limits, "on_progress": on_progress}
    result = None
    if asked.query:
        result = session.marginal_map(asked.names(model), evidence, **limits)
        yield {"kind": "answer", **_answer(model, asked, result)}
    if stopped():
        return
    try:
        found = session.posteriors(evidence)
        arrays = {model.own(name): found.array(name).tolist() for name in found}
        yield {"kind": "posteriors", "posteriors": arrays}
    except LimitError as error:  # too wide to sum out, though the search may still have answered
        yield {"kind": "posteriors", "posteriors": {}, "why": str(error)}
    if stopped() or result is None or result.state is None or asked.k == 1:
        return
    try:
        several = session.marginal_map(asked.names(model), evidence, k=asked.k, **limits)
    except LimitError as error:
        yield {"kind": "top", "top": [_ranked(model, asked, one) for one in result.top], "why": str(error)}
        return
    yield {
        "kind": "top",
        "status": several.status,
        "top": [_ranked(model, asked, one) for one in several.top],
    }


def changes(session: Session, asked: Asked, stopped: Callable[[], bool], limits: dict[str, Any]) -> Iterator[Event]:
    """Which single changes of the evidence would change the answer: one event for each, then what was tried.

    Tried are, for each observed variable, every other value and no observation at all.
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
                yield {
                    "kind": "change",
                    "column": column,
                    "to": None if other is None else variable.code(other),
                    "proven": result.status == "optimal" and base.status == "optimal",
                    **_ranked(model, asked, result.top[0]),
                }
    yield {"kind": "tried", "tried": tried}


def exported(model: Model, path: str, asked: Asked) -> dict[str, str]:
    """The question as Python code, as a command line, and as the JSON that ``--instance`` reads."""
    query = [v.name for v in asked.names(model)]
    evidence = {v.name: given for v, given in asked.known(model).items()}
    load = "load_network" if isinstance(model, Network) else "load"
    more = f", k={asked.k}" if asked.k > 1 else ""
    python = [
        "import margmap as mm",
        "",
        f"model = mm.{load}({path!r})",
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
        words += ["-k", str(k)]
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
        some = {variable.label(0), variable.label(1)}
        for form, evidence in (("set", some), ("soft", dict.fromkeys(some, 0.5))):
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


def _ranked(model: Model, asked: Asked, ranked: Ranked) -> dict[str, Any]:
    codes = [model.variables[column].code(x) for column, x in zip(asked.query, ranked.state.values(), strict=True)]
    return {
        "state": codes,
        "log_prob": _number(ranked.log_prob),
        "log_conditional": _number(ranked.log_conditional),
    }


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(given: Any) -> Any:
    return sorted(given, key=str) if isinstance(given, set | frozenset) else given
