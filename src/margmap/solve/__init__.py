"""Marginal MAP: one entry for every method."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from importlib import import_module
from numbers import Real
from typing import Any

import numpy as np

from margmap.circuit import PRODUCT, Circuit, Name, Value
from margmap.circuit.model import as_model
from margmap.circuit.structure import require_tractable
from margmap.errors import QueryError
from margmap.foundation.pairs import log_of, log_parts, raised, two_sum
from margmap.inference.passes import extra_rounding
from margmap.inference.queries import value_pair
from margmap.network.network import Network
from margmap.solve.reduce import Reduced, heaviest_state, reduce_codes, resolve_query
from margmap.solve.result import TOLERANCE, Limits, Outcome, Ranked, Result, Status, Stopped, without_state

__all__ = ["METHODS", "Result", "marginal_map", "mpe"]

Solver = Callable[..., Outcome]

# On a circuit so large that rounding alone can amount to more than the tolerance, a finished search counts up to this.
ROUNDED = 1e-8

# What an evaluation of the circuit takes, roughly; solvers stop so much earlier, since the answer is evaluated last.
SECONDS_PER_EDGE, SECONDS_PER_LEAF = 4e-9, 6e-8

# Past the time limit by this many seconds, the first query of a circuit of more edges than that is given up.
GRACE, LARGE = 0.1, 5_000_000

# `auto` enumerates when a circuit has no structure to use and that takes less than this many edge evaluations.
ENUMERATE_WORK = 2_000_000

#: Name of each method and the module whose ``solve(reduced, limits, ...)`` it is; imported when first used.
METHODS: dict[str, str] = {
    "frontier": "margmap.solve.methods.frontier.solve",
    "iterative": "margmap.solve.methods.iter_solve",
    "branch": "margmap.solve.methods.branch_and_bound",
    "search": "margmap.solve.methods.maxspn",
    "brute": "margmap.solve.methods.brute_force",
}


#: The methods that can share one query out over many cores.
SHARED = ("auto", "frontier", "branch")


def marginal_map(
    model: object,
    query: Sequence[Name] | None = None,
    evidence: Mapping[Name, Value] | None = None,
    method: str = "auto",
    time_limit: float | None = None,
    *,
    k: int = 1,
    gap: float = TOLERANCE,
    memory_limit: int | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
    **options: Any,
) -> Result:
    """The most likely state of ``query`` given ``evidence``, all other variables summed out, and the proof.

    ``model`` is a circuit, a network, or anything else that :func:`margmap.as_model` takes, such as a model of pgmpy.
    ``query=None`` asks for every variable that is not observed: the most probable explanation (MPE, :func:`mpe`), exact
    also where the circuit is not deterministic; continuous variables must then be observed. ``time_limit`` is in
    seconds, ``gap`` in nats: the solver may stop as soon as the bounds are that close. Stopped early, by a limit or by
    Ctrl-C, the result has the best state found and both bounds; its state is None if there was none yet, as while a
    network is planned or compiled. ``k`` asks for that many best states, in ``Result.top``. ``memory_limit`` is in
    bytes: what the process may grow by during this call. What would not fit is not begun; it becomes a gap. Further
    options belong to the method, such as ``heuristic="Pruned"`` of ``iterative``.

    A :class:`~margmap.network.network.Network` is compiled for this query first, within ``max_edges``, or solved by
    ``elimination`` without a circuit where its hidden variables can be summed out first.

    ``jobs`` is for one hard query: past the first second it is shared out over so many processes of this machine, or
    over the workers of ``executor``, anything with the interface of :mod:`concurrent.futures`. The answer is as proven
    as on one core.
    """
    begun = time.perf_counter()
    check_limits(time_limit, k, gap, memory_limit, jobs)
    model = as_model(model)
    if isinstance(model, Network):
        from margmap.network.elimination import network_map

        of_method = {name: x for name, x in options.items() if name != "max_edges"}
        check_method("auto" if method == "elimination" else method, k, of_method)
        given = {"k": k, "gap": gap, "memory_limit": memory_limit, "jobs": jobs, "executor": executor, **options}
        return network_map(model, query, evidence, method, time_limit, **given)
    limits = Limits(time_limit, gap, memory_limit)
    check_method(method, k, options)
    shared = (jobs, executor) if jobs > 1 or executor is not None else None
    if shared and (k > 1 or options or method not in SHARED):
        raise QueryError(
            f"one query on many cores is for {', '.join(SHARED)} without options, and for one state: "
            "leave jobs and executor out"
        )
    with limits.catching_interrupts(), limits.not_counting_compilation():
        try:
            return _solve(model, query, evidence, method, limits, k, shared, options, begun)
        except Stopped as stopped:  # before there was a state
            return without_state(stopped.status, method, time.perf_counter() - begun - limits.compiling)


def mpe(model: object, evidence: Mapping[Name, Value] | None = None, **keywords: Any) -> Result:
    """The most probable explanation: the most likely state of all variables that are not observed, and the proof.

    The same as :func:`marginal_map` without a query, whose keywords it takes (``method``, ``time_limit``, ``k`` ...).
    """
    if "query" in keywords:
        raise QueryError("mpe asks for every variable that is not observed: use marginal_map for a query")
    return marginal_map(model, None, evidence, **keywords)


def _solve(
    circuit: Circuit,
    query: Sequence[Name] | None,
    evidence: Mapping[Name, Value] | None,
    name: str,
    limits: Limits,
    k: int,
    shared: tuple[int, Executor | None] | None,
    options: Mapping[str, Any],
    begun: float,
) -> Result:
    """Check, reduce, solve, score the answer on the circuit as given."""
    observed = circuit.observed(evidence)
    columns = resolve_query(circuit, query, observed)
    codes, reals = circuit.encoded(observed)
    _prepare(circuit, limits)
    limits.reserve((k + 1) * _seconds_of_a_pass(circuit))
    outcome = Outcome([np.zeros(0, dtype=np.int32)], -np.inf, "optimal")
    rounding, p_evidence = circuit.scaled.rounding, None
    try:
        reduced = reduce_codes(circuit, columns, codes, reals, limits.run)
        p_evidence, rounding = reduced.evidence, reduced.rounding
        if columns and shared:
            from margmap.solve import share_query as parallel

            name, outcome = parallel.solve(reduced, limits, name, *shared)
        elif columns:
            name, outcome = _run(name, reduced, limits, k, options)
    except Stopped as stopped:
        outcome = Outcome([], 0.0, stopped.status)
    except MemoryError:  # one table too large for the machine
        outcome = Outcome([], 0.0, "memory_limit")
    if not outcome.states or p_evidence is None:  # stopped before there was one
        state, p_evidence = heaviest_state(circuit, columns, codes, reals)
        outcome = outcome._replace(states=[state])
    top = []
    for state in outcome.states:
        codes[columns] = state
        p = value_pair(circuit, codes, reals)
        labels = [circuit.variables[c].label(x) for c, x in zip(columns, state.tolist(), strict=True)]
        named = {circuit.variables[c].name: label for c, label in zip(columns, labels, strict=True)}
        top.append(Ranked(named, float(log_of(*p)), _log_ratio(p, p_evidence)))
    top.sort(key=lambda ranked: -ranked.log_conditional)
    # The solver's bound, moved up by all that rounding can have taken from it or added to the value of a state.
    lost = 2 * rounding + extra_rounding(circuit.scaled, p_evidence[1])
    others = raised(outcome.log_upper, lost)
    log_upper = max(others, raised(top[0].log_conditional, lost))
    status = _status(outcome.status, others, [ranked.log_conditional for ranked in top], k, limits)
    if status == "optimal" and lost > limits.gap + ROUNDED + 2 * math.ulp(top[0].log_prob):
        status = "precision_limit"  # the state is the best one, but its own value is not known to so many digits
    return Result(
        status=status,
        state=top[0].state,
        log_prob=top[0].log_prob,
        log_conditional=top[0].log_conditional,
        log_upper=max(_log_product(p_evidence, log_upper), top[0].log_prob),
        method=name,
        seconds=time.perf_counter() - begun - limits.compiling,
        top=tuple(top),
        details=outcome.details,
    )


def _status(status: Status, others: float, values: Sequence[float], k: int, limits: Limits) -> Status:
    """What a solver's status amounts to, given its states' log p(q | e) and a bound on that of all other states.

    Compared are conditional probabilities: where log p(e) is large, the last digit of log p(q, e) is more than the
    tolerance.
    """
    away = others - values[-1] if len(values) == k else (-np.inf if others == -np.inf else np.inf)
    if away <= limits.gap or (status == "optimal" and away <= limits.gap + ROUNDED):
        return "optimal"
    # The search may have come to its end with numbers that doubles cannot tell apart.
    return "precision_limit" if status == "optimal" else status


def _log_ratio(a: tuple[float, float], b: tuple[float, float]) -> float:
    """The logarithm of the quotient of two pairs."""
    return float(log_of(a[0] / b[0], a[1] - b[1]))


def _log_product(p: tuple[float, float], log_factor: float) -> float:
    """The smallest double that is not under log ``p`` + ``log_factor``."""
    high, low = log_parts(*p)
    total, lost = two_sum(high, log_factor)
    rest = low + lost
    return float(total) if rest <= 0 else float(np.nextafter(total + rest, np.inf))


def _seconds_of_a_pass(circuit: Circuit) -> float:
    return SECONDS_PER_EDGE * circuit.num_edges + SECONDS_PER_LEAF * int(np.count_nonzero(circuit.kind < PRODUCT))


def _prepare(circuit: Circuit, limits: Limits) -> None:
    """Make what a circuit keeps for all queries, if this is the first one, as long as there is time.

    What was made is kept, so that a query that was stopped here has more time when it is asked again.
    """
    for step in (require_tractable, lambda c: c.scaled):
        if circuit.num_edges > LARGE and limits.late(GRACE):
            raise Stopped("time_limit")
        step(circuit)


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


def check_method(method: str, k: int, options: Mapping[str, Any]) -> None:
    """Refuse a method that does not exist or does not know its options."""
    if not isinstance(method, str) or (method != "auto" and method not in METHODS):
        raise QueryError(f"unknown method {method!r}: choose auto, {', '.join(METHODS)}")
    known = [] if method == "auto" else list(inspect.signature(_solver(method)).parameters)[2:]
    if k > 1 and method != "auto" and "k" not in known:
        raise QueryError(f"method {method!r} finds one state only: for the {k} best use auto, frontier or branch")
    for option in options:
        if option not in known:
            listed = ", ".join(name for name in known if name != "k") or "none"
            raise QueryError(f"method {method!r} has no option {option!r}: it takes {listed}")


def _solver(method: str) -> Solver:
    solver: Solver = import_module(METHODS[method]).solve
    return solver


def _run(method: str, reduced: Reduced, limits: Limits, k: int, options: Mapping[str, Any]) -> tuple[str, Outcome]:
    """Solve with the method asked for, or with the one that fits the circuit; the name says which it was."""
    if method != "auto":
        return method, _solver(method)(reduced, limits, **({"k": k} if k > 1 else {}), **options)
    from margmap.solve.methods.brute_force import count_states
    from margmap.solve.methods.frontier.scope_tree import make_plan
    from margmap.solve.methods.frontier.solve import solve_planned

    planned = make_plan(reduced.flat, reduced.cardinality.size, limits.run, limits.check)
    if planned is not None:
        scopes = planned[1].part_at.size - 1
        why = f"the circuit is structured-decomposable: {scopes} scopes, {reduced.num_edges} edges left"
        return "frontier", solve_planned(reduced, limits, *planned, k=k).because(why)
    states = count_states(reduced.cardinality)
    if states * reduced.num_edges <= ENUMERATE_WORK:
        why = f"two scopes cross, and {states} states are enumerated at once"
        return "brute", _solver("brute")(reduced, limits, k=k).because(why)
    why = f"two scopes of the circuit cross ({reduced.num_edges} edges left), so there is no order to sweep them in"
    return "branch", _solver("branch")(reduced, limits, k=k).because(why)


def _is_real(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
