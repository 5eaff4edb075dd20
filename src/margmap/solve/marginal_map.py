"""Marginal MAP, the one entry: resolve, check, reduce, choose, solve, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from margmap.circuit import PRODUCT, Circuit, FloatArray, IntArray, Name
from margmap.circuit.model import as_model
from margmap.circuit.observation import Observation
from margmap.circuit.properties import require_tractable
from margmap.errors import QueryError
from margmap.foundation.background import start as compile_behind
from margmap.foundation.jit import interpreted_calls, tier_since
from margmap.foundation.limits import TOLERANCE, Limits, Status, Stopped
from margmap.foundation.notebook import notebook_bar
from margmap.foundation.progress import OnProgress, Teller
from margmap.foundation.threads import check_threads, using_threads
from margmap.inference.scaled import extra_rounding, require_within_reach, scaled
from margmap.network.network import Network
from margmap.solve.constraints import Constraint
from margmap.solve.methods import AUTO, METHODS, MethodName
from margmap.solve.question import Question, ask, check_limits
from margmap.solve.reduce import Reduced, heaviest_state, reduce_codes
from margmap.solve.report import moved, named, report
from margmap.solve.result import NOTHING_ASKED, Outcome, Result, without_state

# What an evaluation of the circuit takes, roughly; solvers stop so much earlier, since the answer is evaluated last.
SECONDS_PER_EDGE, SECONDS_PER_LEAF = 4e-9, 6e-8

# Past the time limit by this many seconds, the first query of a circuit of more edges than that is given up.
GRACE, LARGE = 0.1, 5_000_000


def marginal_map(
    model: object,
    query: Sequence[Name] | None = None,
    evidence: Mapping[Any, Observation] | None = None,
    method: MethodName = AUTO,
    time_limit: float | None = None,
    *,
    k: int = 1,
    gap: float = TOLERANCE,
    memory_limit: int | None = None,
    jobs: int = 1,
    executor: Executor | None = None,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
    constraints: Sequence[Constraint | str] | None = None,
    differ_by: int | None = None,
    **options: Any,
) -> Result:
    """The most likely state of ``query`` given ``evidence``, all other variables summed out, and the proof.

    ``model`` is a circuit, a network, or anything else that :func:`margmap.as_model` takes, such as a model of pgmpy.
    ``query=None`` asks for every variable that is not observed: the most probable explanation (MPE, :func:`mpe`), exact
    also where the circuit is not deterministic; continuous variables must then be observed. ``time_limit`` is in
    seconds, ``gap`` in nats: the solver may stop as soon as the bounds are that close. Stopped early, by a limit or by
    Ctrl-C, the result has the best state found and both bounds; its state is None if there was none yet. ``k`` asks
    for that many best states, in ``Result.top``. ``memory_limit`` is in bytes: what the process may grow by during this
    call. What would not fit is not begun; it becomes a gap. Further options belong to the method, such as
    ``heuristic="Pruned"`` of ``iterative``.

    A :class:`~margmap.Network` is compiled for this query first, within ``max_edges``, or solved by ``elimination``
    without a circuit where its hidden variables can be summed out first. One that is too wide for both is searched:
    ``wcsp`` (with the extra ``networks``) or ``andor``. ``log_conditional`` is not a number where log p(evidence) is
    out of reach.

    ``on_progress`` is called meanwhile, in this thread, with a :class:`~margmap.Progress`: the state and the bounds so
    far. It is called when one of them is better, and ten times a second in between; the last call has the answer.
    Raising in it, whatever it raises, ends the call, whose result is then ``interrupted`` and has the best state and
    the bounds so far. In a Jupyter notebook a bar shows the same if ``on_progress`` is not given and it takes long.

    ``jobs`` is for one hard query: past the first second it is shared out over so many processes of this machine, or
    over the workers of ``executor``, anything with the interface of :mod:`concurrent.futures`. The answer is as proven
    as on one core.

    ``threads`` are those of this process that a circuit of half a million edges or more may be passed over by: None
    stands for the environment's ``MARGMAP_THREADS``, or for one a core. The answer is the same to the last bit.

    ``constraints`` are what the state must satisfy, made by :mod:`margmap.solve.constraints` (``mm.constraints``);
    bounds and proofs are then about the states that do, and ``log_conditional`` stays log p(q | e). If there is none,
    the status is ``infeasible``.
    ``k=5, differ_by=3`` asks for five states, each the best of those that differ from all before in three variables or
    more; each is proven.
    """
    check_limits(time_limit, k, gap, memory_limit, jobs)
    check_threads(threads)
    if on_progress is not None and not callable(on_progress):
        raise QueryError(f"on_progress={on_progress!r}: give a function that takes a margmap.Progress, or None")
    limits = Limits(time_limit, gap, memory_limit)
    model = as_model(model)
    if executor is not None:
        from margmap.distribute.executors import checked_executor

        executor = checked_executor(executor)
    shared = (jobs, executor) if jobs > 1 or executor is not None else None
    with notebook_bar(on_progress) as told:
        teller = limits.teller = Teller(told, lambda: limits.clock() - limits.begun)
        with limits.catching_interrupts(), limits.not_counting_compilation(), using_threads(threads):
            question = ask(model, query, evidence, method, k, options, shared, constraints, differ_by)
            teller.log_factor, teller.rounding = question.log_factor, 2 * question.rounding
            result, how = _answer_or_nothing(question, limits)
        teller.end(result.state, result.log_prob, result.log_upper)
    limits.teller = None  # which knows these limits: nothing is left for the garbage collector to find
    details = {**result.details, **how, "bounds": tuple(teller.moments)}
    if teller.raised is not None:
        details["on_progress"] = f"raised {type(teller.raised).__name__}: {teller.raised}"
    return result.with_details(details)


def _answer_or_nothing(question: Question, limits: Limits) -> tuple[Result, dict[str, Any]]:
    """The answer, or what is known where a limit was reached before there was a state; and a detail of how."""
    status: Status
    try:
        interpreted = interpreted_calls()
        result = moved(answer(question, limits), question)
        tier = tier_since(interpreted)
        if tier != "compiled":
            compile_behind()
        return result, {"tier": tier}
    except Stopped as stopped:  # before there was a state
        status = stopped.status
    except MemoryError:  # one table too large for the machine
        status = "memory_limit"
    # All that is known without a state is that the probabilities of a Bayesian network are at most 1.
    bayes = isinstance(question.model, Network) and question.model.kind == "bayes"
    log_upper = question.log_factor if bayes else np.inf
    return without_state(status, question.method, limits.clock() - limits.begun, log_upper), {}


def mpe(model: object, evidence: Mapping[Any, Observation] | None = None, **keywords: Any) -> Result:
    """The most probable explanation: the most likely state of all variables that are not observed, and the proof.

    The same as :func:`marginal_map` without a query, whose keywords it takes (``method``, ``time_limit``, ``k`` ...).
    """
    if "query" in keywords:
        raise QueryError("mpe asks for every variable that is not observed: use marginal_map for a query")
    return marginal_map(model, None, evidence, **keywords)


def answer(question: Question, limits: Limits) -> Result:
    """The answer for a model of either kind; :class:`Stopped` if there is no state within the limits."""
    if isinstance(question.model, Network):
        from margmap.solve.network_map import network_map

        return network_map(question, limits)
    return circuit_map(question, limits)


def circuit_map(question: Question, limits: Limits) -> Result:
    """The answer for a circuit: reduce, choose, solve, report."""
    if question.differ_by is not None or question.rules is not None:
        from margmap.solve.constrained import constrained_map

        return constrained_map(question, limits)
    circuit, columns = question.model, question.columns
    assert isinstance(circuit, Circuit)
    codes, reals = circuit.encoded(question.observed)
    prepare(circuit, limits, question.k)
    method, outcome = question.method, NOTHING_ASKED
    rounding, p_evidence, needed = scaled(circuit).rounding, None, None
    try:
        reduced, found = _kept(question, codes, reals, limits)
        p_evidence, rounding, needed = reduced.evidence, reduced.rounding, reduced.needed
        if found is None and limits.teller is not None:
            lost = 2 * rounding + extra_rounding(scaled(circuit), p_evidence[1])
            limits.teller.about(reduced.log_scale, lost, partial(named, question))
        if columns:
            method, outcome = ("frontier", found) if found is not None else _solve(question, reduced, limits)
            if circuit.memory is not None and outcome.states:
                circuit.memory.answered(columns, outcome.states[0])
    except Stopped as stopped:
        outcome = Outcome([], 0.0, stopped.status)
    except MemoryError:  # one table too large for the machine
        outcome = Outcome([], 0.0, "memory_limit")
    if not outcome.states or p_evidence is None:  # stopped before there was one
        state, p_evidence = heaviest_state(circuit, columns, codes, reals)
        outcome = outcome._replace(states=[state])
    return report(question, codes, reals, outcome, p_evidence, rounding, method, limits, needed)


def _kept(question: Question, codes: IntArray, reals: FloatArray, limits: Limits) -> tuple[Reduced, Outcome | None]:
    """The reduced circuit, and the outcome where a session has found it on the way."""
    circuit = question.model
    assert isinstance(circuit, Circuit)
    if circuit.memory is not None and question.method == AUTO and question.k == 1 and not question.shared:
        require_within_reach(circuit, reals)
        kept: tuple[Reduced, Outcome | None] | None = circuit.memory.solve(question.columns, codes, reals, limits)
        if kept is not None:
            return kept
    make = partial(reduce_codes, circuit, question.columns, codes, reals, limits.run)
    reduced = make()
    return (reduced if circuit.memory is not None or question.shared else replace(reduced, again=make)), None


def _solve(question: Question, reduced: Reduced, limits: Limits) -> tuple[str, Outcome]:
    """Solve with the method asked for, or with the one that fits the circuit; the name says which it was."""
    if question.shared:
        from margmap.solve.share_query import share_query

        return share_query(reduced, limits, question.method, *question.shared)
    several = {"k": question.k} if question.k > 1 else {}
    if question.method == AUTO:
        from margmap.solve.choose import choose

        choice = choose(reduced, limits)
        return choice.name, choice.solve(**several).because(choice.why)
    return question.method, METHODS[question.method].solve(reduced, limits, **several, **question.options)


def _seconds_of_a_pass(circuit: Circuit) -> float:
    return SECONDS_PER_EDGE * circuit.num_edges + SECONDS_PER_LEAF * int(np.count_nonzero(circuit.kind < PRODUCT))


def prepare(circuit: Circuit, limits: Limits, k: int = 1) -> None:
    """Make what a circuit keeps for all queries, if this is the first one, as long as there is time.

    What was made is kept, so that a query that was stopped here has more time when it is asked again. The time that the
    evaluation of ``k`` answers takes is set aside.
    """
    for step in (require_tractable, lambda c: scaled(c)):
        if circuit.num_edges > LARGE and limits.late(GRACE):
            raise Stopped("time_limit")
        step(circuit)
    limits.reserve((k + 1) * circuit.kept(_seconds_of_a_pass))
