"""Good states quickly, without a proof: the approximate methods that come with MaxSPN (Mei, Jiang and Tu, 2018)."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from margmap.circuit import SUM, Circuit, IntArray, LongArray, Name
from margmap.circuit.model import as_model
from margmap.circuit.observation import Observation
from margmap.circuit.properties import require_tractable
from margmap.circuit.variable import single
from margmap.errors import QueryError
from margmap.foundation.html import facts, section, table
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits, Runner, to_the_end
from margmap.foundation.pairs import log_of, log_weight
from margmap.foundation.sorting import descending
from margmap.foundation.wording import did_you_mean
from margmap.inference.queries import log_value
from margmap.inference.soft import conditioned_circuit
from margmap.network.compile import compile as compile_network
from margmap.network.network import Network
from margmap.solve.hill_climb import Incumbents, neighbours
from margmap.solve.lower_bound import extract, extract_below
from margmap.solve.marginals import by_literal, flows, marginals, score
from margmap.solve.output_bounds import output_bounds
from margmap.solve.query_circuit import LEAF, Flat
from margmap.solve.reduce import Reduced, reduce_codes
from margmap.solve.values import evaluate_nodes


@dataclass(frozen=True)
class Approximation:
    """A state and its value. Nothing is known about better ones: :func:`margmap.marginal_map` proves."""

    state: dict[Name, int | str]
    #: log p(q, e) of the state, evaluated on the circuit as given.
    log_prob: float
    #: log p(q | e).
    log_conditional: float
    method: str
    #: Seconds spent on this call, the first run's compilation of kernels not counted.
    seconds: float

    def _repr_html_(self) -> str:
        known = {"log p(q, e)": self.log_prob, "p(q | e)": math.exp(self.log_conditional), "method": self.method}
        state = table(("variable", "value"), self.state.items(), "State, without a proof", most=60)
        return section(facts("Approximate marginal MAP", known), state)


def approximate(
    model: object,
    query: Sequence[Name] | None = None,
    evidence: Mapping[Any, Observation] | None = None,
    method: str = "k_best_tree",
    *,
    max_edges: int | None = None,
    **options: Any,
) -> Approximation:
    """A state of ``query`` that is likely given ``evidence``, with its exact value and no claim that it is the best.

    - ``best_tree``: the largest term of the circuit's polynomial (max-product).
    - ``naive_greedy``: one variable after the other, each time the literal with the largest marginal.
    - ``argmax_product``: at each sum the best of its children's states, judged by the sum as a whole.
    - ``k_best_tree``: the states of the ``k`` largest terms, scored; the best of them.
    - ``beam``: from those, all changes of one variable, the ``k`` best kept, until nothing better is found.

    A network is compiled for this query first, to at most ``max_edges`` edges.
    """
    begun = time.perf_counter()
    if not isinstance(method, str) or method not in APPROXIMATIONS:
        near = did_you_mean(method, APPROXIMATIONS)
        raise QueryError(f"unknown method {method!r}: {near}choose {', '.join(APPROXIMATIONS)}")
    function = APPROXIMATIONS[method]
    known = [name for name in inspect.signature(function).parameters if name == "k"]
    for option, number in options.items():
        if option not in known:
            raise QueryError(f"method {method!r} has no option {option!r}: it takes {', '.join(known) or 'none'}")
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise QueryError(f"{option}={number!r}: give a whole number of at least 1")
    model = as_model(model)
    limits = Limits()
    with limits.not_counting_compilation():
        if isinstance(model, Circuit):
            circuit = model
        else:
            circuit, query, evidence = _compiled(model, query, evidence, max_edges)
        require_tractable(circuit)
        observed = circuit.observed(evidence)
        columns = circuit.asked(query, observed)
        circuit, given = conditioned_circuit(circuit, observed)
        codes, reals = circuit.encoded(given.observed)
        reduced = reduce_codes(circuit, columns, codes, reals)
        state = function(reduced, **options) if columns else np.zeros(0, dtype=np.int32)
        codes[columns] = state
        log_p = log_value(circuit, codes, reals)
    variables = [circuit.variables[c] for c in columns]
    named = {variable.name: variable.label(x) for variable, x in zip(variables, state.tolist(), strict=True)}
    seconds = time.perf_counter() - begun - limits.compiling
    return Approximation(named, log_p + given.log_factor, log_p - reduced.log_scale, method, seconds)


def _compiled(
    network: Network, query: Sequence[Name] | None, evidence: Mapping[Any, Observation] | None, max_edges: int | None
) -> tuple[Circuit, list[Any], dict[Any, Any]]:
    """The circuit for one question, and the question as this circuit understands it."""
    observed = network.observed(evidence)
    asked: list[Any] = [network.variables[column] for column in network.asked(query, observed)]
    known = network.labelled(observed)
    # A circuit has at least one variable, also if nothing is asked or observed.
    included: list[Any] = asked if asked or single(observed) else [*network.variables[:1]]
    circuit = compile_network(network, included, known, max_edges=max_edges)
    return circuit, asked, network.labelled(single(observed))  # the rest is in the circuit


def best_tree(reduced: Reduced, *, run: Runner = to_the_end) -> IntArray:
    """The largest child at every sum, followed from the root down."""
    flat = reduced.flat
    state = np.zeros(reduced.cardinality.size, dtype=np.int32)
    extract(flat, output_bounds(flat, flat.kind == SUM, run).share, state)
    return state


def naive_greedy(reduced: Reduced) -> IntArray:
    """Fix the literal with the largest marginal, and again, until none is left."""
    flat, first = by_literal(reduced.flat, reduced.cardinality)
    state = np.zeros(reduced.cardinality.size, dtype=np.int32)
    _greedy(flat, first, state)
    return state


def argmax_product(reduced: Reduced) -> IntArray:
    """Bottom up, each sum takes over the state of that child which has the largest value at the sum."""
    state = np.zeros(reduced.cardinality.size, dtype=np.int32)
    _argmax_product(reduced.flat, state)
    return state


def k_best_tree(reduced: Reduced, k: int = 10) -> IntArray:
    """The best by value of the states of the ``k`` largest terms."""
    flat, first = by_literal(reduced.flat, reduced.cardinality)
    states = _best_trees(reduced.flat, k, reduced.cardinality.size)
    scores = [score(flat, first, state) for state in states]
    return states[int(np.argmax(scores))]


def beam(reduced: Reduced, k: int = 10, *, check: Callable[[], None] = lambda: None) -> IntArray:
    """Keep the ``k`` best states known; look at all that differ in one variable from one of them, while that helps.

    ``check`` is called now and then: it may raise.
    """
    flat, first = by_literal(reduced.flat, reduced.cardinality)
    bounds = output_bounds(reduced.flat, np.zeros(reduced.num_nodes, np.bool_))
    known = Incumbents(reduced.flat, bounds, reduced.cardinality, Limits(), k)
    for state in _best_trees(reduced.flat, k, reduced.cardinality.size):
        known.keep(state, score(flat, first, state))
    seen: set[bytes] = set()
    while todo := [state for _, state in known.ranked if state.tobytes() not in seen]:
        for state in todo:
            check()
            seen.add(state.tobytes())
            for leaf, log_score in neighbours(reduced.flat, state, k):
                other = state.copy()
                other[reduced.flat.var[int(leaf)]] = reduced.flat.value[int(leaf)]
                known.keep(other, log_score)
    return known.best[0]


#: The methods by name; each takes the reduced circuit and its own options.
APPROXIMATIONS = {
    "best_tree": best_tree,
    "naive_greedy": naive_greedy,
    "argmax_product": argmax_product,
    "beam": beam,
    "k_best_tree": k_best_tree,
}


@kernel
def _greedy(f: Flat, first: LongArray, state: IntArray) -> None:
    nodes = f.kind.size
    value, exponent, flow = np.zeros(nodes), np.zeros(nodes), np.zeros(nodes)
    owner = np.zeros(first[-1], dtype=np.int32)
    for v in range(state.size):
        owner[first[v] : first[v + 1]] = v
    allowed = np.ones(first[-1], dtype=np.int32)
    fixed = np.zeros(state.size, dtype=np.bool_)
    bound = np.zeros(first[-1])
    for _ in range(state.size):
        marginals(f, allowed, False, value, exponent)
        flows(f, value, exponent, flow)
        bound[:] = 0.0
        for n in range(nodes):
            if f.kind[n] == LEAF:
                bound[f.var[n]] += flow[n]
        best = -1
        for x in range(bound.size):
            if not fixed[owner[x]] and (best < 0 or bound[x] > bound[best]):
                best = x
        v = owner[best]
        fixed[v] = True
        state[v] = best - first[v]
        for x in range(first[v], first[v + 1]):
            allowed[x] = 1 if x == best else 0


@kernel
def _argmax_product(f: Flat, state: IntArray) -> None:
    """A sum's candidates differ only below it, so that only the nodes below it are evaluated, once for each."""
    nodes = f.kind.size
    value, exponent = np.zeros(nodes), np.zeros(nodes)
    share = np.zeros(f.child.size)  # 1 for the edge that a sum has chosen
    seen_by = np.full(nodes, -1, dtype=np.int32)
    below, stack = np.zeros(nodes, dtype=np.int32), np.zeros(nodes + 1, dtype=np.int32)
    for n in range(nodes):
        if f.kind[n] != SUM:
            continue
        count, height = 0, 1
        stack[0] = n
        seen_by[n] = n
        while height > 0:
            height -= 1
            m = stack[height]
            below[count] = m
            count += 1
            for e in range(f.start[m], f.start[m + 1]):
                if seen_by[f.child[e]] != n:
                    seen_by[f.child[e]] = n
                    stack[height] = f.child[e]
                    height += 1
        order = below[descending(-below[:count])]
        best, most = f.start[n], -np.inf
        for e in range(f.start[n], f.start[n + 1]):
            extract_below(f, share, state, f.child[e], stack)
            evaluate_nodes(f, order, state, value, exponent)
            log_value = log_of(value[n], exponent[n])
            if log_value > most:
                best, most = e, log_value
        share[best] = 1.0
    extract_below(f, share, state, nodes - 1, stack)


@kernel
def _best_trees(f: Flat, k: int, variables: int) -> list[IntArray]:
    """The states of the ``k`` largest terms of the polynomial, those that are the same once."""
    nodes, edges = f.kind.size, f.child.size
    log_value = np.full((nodes, k), -np.inf)
    size = np.zeros(nodes, dtype=np.int64)
    # Of a sum's r-th best: the edge and the rank there. Of a product, folded edge by edge: the rank in what was folded
    # before, and the rank in the edge's child.
    edge_of, rank_of = np.zeros((nodes, k), dtype=np.int64), np.zeros((nodes, k), dtype=np.int32)
    before, rank = np.zeros((edges, k), dtype=np.int32), np.zeros((edges, k), dtype=np.int32)
    fold, folded = np.zeros(k), np.zeros(k)
    for n in range(nodes):
        begin, end = f.start[n], f.start[n + 1]
        if f.kind[n] == LEAF:
            log_value[n, 0] = 0.0
            size[n] = 1
        elif f.kind[n] == SUM:
            filled = 0
            for e in range(begin, end):
                c = f.child[e]
                for r in range(size[c]):
                    x = log_weight(f.weight[e]) + log_value[c, r]
                    if filled == k and x <= log_value[n, k - 1]:
                        break
                    at = min(filled, k - 1)
                    while at > 0 and log_value[n, at - 1] < x:
                        log_value[n, at], edge_of[n, at] = log_value[n, at - 1], edge_of[n, at - 1]
                        rank_of[n, at] = rank_of[n, at - 1]
                        at -= 1
                    log_value[n, at], edge_of[n, at], rank_of[n, at] = x, e, r
                    filled = min(filled + 1, k)
            size[n] = filled
        else:
            filled = 1
            fold[0] = 0.0
            for e in range(begin, end):
                c = f.child[e]
                new = 0
                for i in range(filled):
                    for r in range(size[c]):
                        if (i + 1) * (r + 1) > k:  # that many pairs are at least as good
                            break
                        x = fold[i] + log_value[c, r]
                        if new == k and x <= folded[k - 1]:
                            break
                        at = min(new, k - 1)
                        while at > 0 and folded[at - 1] < x:
                            folded[at], before[e, at], rank[e, at] = folded[at - 1], before[e, at - 1], rank[e, at - 1]
                            at -= 1
                        folded[at], before[e, at], rank[e, at] = x, i, r
                        new = min(new + 1, k)
                filled = new
                fold[:filled] = folded[:filled]
            size[n] = filled
            log_value[n, :filled] = fold[:filled]
    states = [np.zeros(variables, dtype=np.int32)]
    states.pop()
    stack, ranks = np.zeros(nodes + 1, dtype=np.int32), np.zeros(nodes + 1, dtype=np.int32)
    for r in range(size[nodes - 1]):
        state = np.zeros(variables, dtype=np.int32)
        stack[0], ranks[0] = nodes - 1, r
        height = 1
        while height > 0:
            height -= 1
            n, i = stack[height], ranks[height]
            if f.kind[n] == LEAF:
                state[f.var[n]] = f.value[n]
            elif f.kind[n] == SUM:
                stack[height], ranks[height] = f.child[edge_of[n, i]], rank_of[n, i]
                height += 1
            else:
                for e in range(f.start[n + 1] - 1, f.start[n] - 1, -1):
                    stack[height], ranks[height] = f.child[e], rank[e, i]
                    i = before[e, i]
                    height += 1
        new_state = True
        for other in states:
            if np.array_equal(other, state):
                new_state = False
                break
        if new_state:
            states.append(state)
    return states
