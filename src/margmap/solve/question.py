"""A marginal-MAP question: names resolved to columns and codes, options and limits checked, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from numbers import Real
from typing import Any, NamedTuple

from margmap.circuit import Circuit, Name
from margmap.errors import QueryError
from margmap.foundation.limits import TOLERANCE
from margmap.foundation.wording import did_you_mean
from margmap.inference.soft import conditioned
from margmap.network.network import Network
from margmap.solve.methods import AUTO, METHODS, Method, methods_for
from margmap.solve.rules import Rules, rules_of

# The keywords of marginal_map, for whoever misspells one: what is no keyword is taken for an option of the method.
_KEYWORDS = (
    *("query", "evidence", "method", "time_limit", "k", "gap", "memory_limit", "jobs", "executor", "on_progress"),
    *("constraints", "differ_by", "threads"),
)


class Question(NamedTuple):
    """What is asked of a model; all numbers are those of the model's own variables and values."""

    model: Circuit | Network
    #: The columns of the query variables.
    columns: list[int]
    #: The value of each observed variable: a code, or the number itself for a continuous one.
    observed: dict[int, int | float]
    method: str = AUTO
    #: How many best states.
    k: int = 1
    #: Further options of the method.
    options: Mapping[str, Any] = {}
    #: Processes and executor, if the query is to be shared out over many cores.
    shared: tuple[int, Executor | None] | None = None
    #: For a network, the most edges that its circuit may have.
    max_edges: int | None = None
    #: Evidence that is not a single value is already in ``model``: its values are to be multiplied by the factor with
    #: this logarithm, and can be off by so much, relatively.
    log_factor: float = 0.0
    rounding: float = 0.0
    #: What the answer must satisfy.
    rules: Rules | None = None
    #: In how many variables at least each of the ``k`` answers differs from those before; None: they are just others.
    differ_by: int | None = None


def ask(
    model: Circuit | Network,
    query: Sequence[Name] | None,
    evidence: Any,
    method: str = AUTO,
    k: int = 1,
    options: Mapping[str, Any] | None = None,
    shared: tuple[int, Executor | None] | None = None,
    constraints: Any = None,
    differ_by: int | None = None,
) -> Question:
    """The question that a user's words mean for this model; what cannot be asked is a :class:`QueryError`."""
    options = dict(options or {})
    max_edges = options.pop("max_edges", None) if isinstance(model, Network) else None
    if max_edges is not None and (isinstance(max_edges, bool) or not isinstance(max_edges, int) or max_edges < 1):
        raise QueryError(f"max_edges={max_edges!r}: give a positive whole number")
    check_method(method, k, options, "network" if isinstance(model, Network) else "circuit")
    sharing = [AUTO, *(m.name for m in METHODS.values() if m.shared)] if shared else []
    if shared and (k > 1 or options or method not in sharing):
        raise QueryError(
            f"one query on many cores is for {', '.join(sharing)} without options, and for one state: "
            "leave jobs and executor out"
        )
    observed = model.observed(evidence)
    columns = model.asked(query, observed)
    given = conditioned(model, observed)
    rules = rules_of(model, columns, given.observed, constraints)
    if rules is not None or differ_by is not None:
        check_constrained(method, shared is not None)
    if differ_by is not None and (isinstance(differ_by, bool) or not isinstance(differ_by, int) or differ_by < 1):
        raise QueryError(f"differ_by={differ_by!r}: give the number of variables to differ in, at least 1")
    how, factor = (method, k, options, shared, max_edges), (given.log_factor, given.rounding)
    return Question(given.model, columns, given.observed, *how, *factor, rules=rules, differ_by=differ_by)


def check_limits(
    time_limit: float | None = None, k: int = 1, gap: float = TOLERANCE, memory_limit: int | None = None, jobs: int = 1
) -> None:
    """Refuse limits that cannot be meant, and numbers of states."""
    if time_limit is not None and not (_is_real(time_limit) and time_limit > 0):
        raise QueryError(f"time_limit={time_limit!r}: give a positive number of seconds, or None")
    if not (_is_real(gap) and gap >= 0):
        raise QueryError(f"gap={gap!r}: give a number of at least 0, in nats")
    if memory_limit is not None and not (isinstance(memory_limit, int) and memory_limit > 0):
        raise QueryError(f"memory_limit={memory_limit!r}: give a positive number of bytes, or None")
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise QueryError(f"k={k!r}: give the number of states to find, at least 1")
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise QueryError(f"jobs={jobs!r}: give the number of processes, at least 1")


def check_method(method: str, k: int, options: Mapping[str, Any], takes: str = "circuit") -> None:
    """Refuse a method that does not exist for such a model or does not know its options."""
    if type(method) is str and method == AUTO and not options:
        return
    known: dict[str, Method] = {m.name: m for m in methods_for(takes)}
    if not isinstance(method, str) or (method != AUTO and method not in known):
        near = did_you_mean(method, [AUTO, *known])
        raise QueryError(f"unknown method {method!r}: {near}choose {', '.join([AUTO, *known])}")
    if k > 1 and method != AUTO and not known[method].several:
        several = ", ".join([AUTO, *(m.name for m in known.values() if m.several)])
        raise QueryError(f"method {method!r} finds one state only: for the {k} best use one of {several}")
    taken = () if method == AUTO else known[method].options
    for option in options:
        if option not in taken:
            near = did_you_mean(option, (*taken, *_KEYWORDS))
            raise QueryError(f"method {method!r} has no option {option!r}: {near}it takes {', '.join(taken) or 'none'}")


def check_constrained(method: str, shared: bool = False) -> None:
    """Refuse constraints, and answers that differ, where they cannot be taken into account."""
    able = [AUTO, *(m.name for m in METHODS.values() if m.constrained)]
    if method not in able:
        raise QueryError(f"method {method!r} does not take constraints or differ_by: use one of {', '.join(able)}")
    if shared:
        raise QueryError("one query on many cores is without constraints and differ_by: leave jobs and executor out")


def _is_real(value: object) -> bool:
    return type(value) is float or (isinstance(value, Real) and not isinstance(value, bool))
