"""Search: the exact search of MaxSPN (Mei, Jiang and Tu, 2018), the baseline of the paper's table.

Depth first over the query variables. The bound of a partial assignment is its marginal; one pass up and one down give
that of every further literal. Values that cannot beat the best state known are struck out, which lowers the marginals
again, until nothing falls (forward checking). The next variable and the order of its values follow from those bounds
(ordering). When less than half of the circuit is left alive, it is rebuilt without the rest and without the variables
that are decided, for everything below (stage).
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from margmap.circuit import SUM, FloatArray, IntArray, LongArray
from margmap.errors import QueryError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits, Status, Stopped
from margmap.foundation.pairs import UP, encoded, log_of, normal
from margmap.solve.approximate import beam, best_tree
from margmap.solve.marginals import by_literal, flows, marginals, score
from margmap.solve.query_circuit import LEAF, Flat, rebuild_kernel, rounding_of, trimmed
from margmap.solve.reduce import Reduced
from margmap.solve.result import Outcome
from margmap.solve.supports import Flags

# Below this, relative to the root, plain products could underflow; then every node carries a scale of its own.
PLAIN_FLOOR = -450.0

# Beam search is for circuits of at most this many edges; on larger ones the search begins with the best tree.
BEAM_EDGES = 200_000

# A circuit with fewer edges is not worth rebuilding.
STAGE_EDGES = 100


def solve(reduced: Reduced, limits: Limits, *, order: Literal["balanced", "certain"] = "balanced") -> Outcome:
    """Search all states, starting with the one that beam search finds; ``order`` says which variable is next.

    ``"balanced"`` takes the one whose best value has the smallest bound, so that the bounds fall fastest;
    ``"certain"`` the one whose best value has the largest, so that the first dive is greedy.
    """
    if order not in ("certain", "balanced"):
        raise QueryError(f"order={order!r}: choose balanced or certain")
    flat, first = by_literal(reduced.flat, reduced.cardinality)
    state = best_tree(reduced, run=limits.run)
    known = np.array([score(flat, first, state), 0.0, 0.0])
    status: Status = "optimal"
    try:
        limits.check()
        if reduced.num_edges <= BEAM_EDGES:
            state = beam(reduced, check=limits.check)
            known[0] = score(flat, first, state)
        # What is struck out may be above the best state by the slack; its bound may be too low by the rounding of a
        # pass up and one down.
        slack, rounding = limits.gap / 2, 4 * rounding_of(flat)
        how = (slack, rounding, order == "balanced", STAGE_EDGES, PLAIN_FLOOR)
        limits.tell("beam search", state, float(known[0]), 0.0)

        told = float(known[0])

        def look() -> None:
            """Tell what the search has found. It may be writing the state down just now, so that it is scored."""
            nonlocal told
            better, told = known[0] > told, float(known[0])
            now = state.copy()
            log_value = score(flat, first, now) if better else -np.inf
            limits.tell(f"search, {int(known[2])} nodes", now, log_value, float(known[1]))

        limits.run(lambda stop: _search(flat, first, state, known, *how, stop), look=look)
    except Stopped as stopped:
        status = stopped.status
    return Outcome([state], float(known[1]), status, {"search_nodes": int(known[2])})


@kernel(work=lambda *_: np.inf)
def _search(
    f: Flat,
    first: LongArray,
    best: IntArray,
    known: FloatArray,
    slack: float,
    rounding: float,
    balanced: bool,
    stage_edges: int,
    plain_floor: float,
    stop: LongArray,
) -> None:
    """Improve ``best`` to the optimum; bounds are compared after they are raised by ``rounding``.

    ``known`` has its log value, an upper bound of all log values and the number of search nodes; both are kept up to
    date, so that they hold when the first of ``stop`` is set, or after as many search nodes as the second says.
    """
    variables, literals = best.size, first[-1]
    owner = np.zeros(literals, dtype=np.int32)
    for v in range(variables):
        owner[first[v] : first[v + 1]] = v
    allowed = np.ones(literals, dtype=np.int32)
    left = first[1:] - first[:-1]
    struck, height = np.zeros(literals, dtype=np.int32), 0
    value, exponent, flow = np.zeros(f.kind.size), np.zeros(f.kind.size), np.zeros(f.kind.size)
    bound = np.zeros(literals)

    # The path: a variable at each level, its values from the best on, their bounds, and how far they have been tried.
    path, mark, stages = np.zeros(variables, np.int32), np.zeros(variables, np.int64), np.zeros(variables, np.int64)
    ranked, ranked_bound = np.zeros(literals, np.int32), np.zeros(literals)
    tried, count = np.zeros(variables, np.int64), np.zeros(variables, np.int64)
    depth = 0
    circuits = [f]
    factors = [0.0]
    log_bound = 0.0
    while True:
        known[2] += 1
        # Forward checking.
        alive = True
        live_edges = 0
        while alive:
            if stop[0] != 0 or known[2] > stop[1]:
                for d in range(depth):
                    for i in range(tried[d], count[d]):
                        log_bound = max(log_bound, ranked_bound[first[path[d]] + i])
                known[1] = max(log_bound, known[0] + slack)
                return
            circuit, factor = circuits[-1], factors[-1]
            root = circuit.kind.size - 1
            marginals(circuit, allowed, known[0] + slack - factor > plain_floor, value, exponent)
            if value[root] <= 0:
                alive = False
                break
            log_bound = min(log_bound, log_of(value[root], exponent[root]) + factor + rounding)
            if log_bound <= known[0] + slack:
                alive = False
                break
            live_edges = flows(circuit, value, exponent, flow)
            cut = np.exp(min(known[0] + slack - rounding - log_bound, 0.0))
            bound[:] = 0.0
            for n in range(circuit.kind.size):
                if circuit.kind[n] == LEAF:
                    bound[circuit.var[n]] += flow[n]
            fallen = False
            for x in range(literals):
                v = owner[x]
                if allowed[x] != 0 and left[v] > 1 and bound[x] <= cut:
                    allowed[x] = 0
                    left[v] -= 1
                    struck[height] = x
                    height += 1
                    fallen = True
            if not fallen:
                break
        if alive:
            chosen = -1
            top = 0.0
            for v in range(variables):
                if left[v] > 1:
                    largest = 0.0
                    for x in range(first[v], first[v + 1]):
                        if allowed[x] != 0:
                            largest = max(largest, bound[x])
                    if chosen < 0 or (largest < top if balanced else largest > top):
                        chosen, top = v, largest
            if chosen < 0:
                _read(allowed, first, best, known, f)
            else:
                if 2 * live_edges < circuits[-1].child.size and circuits[-1].child.size > stage_edges:
                    smaller, log_factor = _stage(circuits[-1], owner, left, value, exponent, flow)
                    circuits.append(smaller)
                    factors.append(factors[-1] + log_factor)
                begin = first[chosen]
                size = 0
                for x in range(begin, first[chosen + 1]):
                    if allowed[x] != 0:
                        at = size
                        while at > 0 and bound[ranked[begin + at - 1]] < bound[x]:
                            ranked[begin + at] = ranked[begin + at - 1]
                            at -= 1
                        ranked[begin + at] = x
                        size += 1
                for i in range(size):
                    ranked_bound[begin + i] = log_bound + np.log(bound[ranked[begin + i]]) + rounding
                path[depth], mark[depth], stages[depth] = chosen, height, len(circuits)
                tried[depth], count[depth] = 0, size
                depth += 1
        # The next value to try: of the last variable that has one left which can still win.
        while depth > 0:
            v = path[depth - 1]
            while height > mark[depth - 1]:
                height -= 1
                allowed[struck[height]] = 1
                left[owner[struck[height]]] += 1
            i = tried[depth - 1]
            if i < count[depth - 1] and ranked_bound[first[v] + i] > known[0] + slack:
                break
            depth -= 1
        if depth == 0:
            known[1] = known[0] + slack
            return
        while len(circuits) > stages[depth - 1]:
            circuits.pop()
            factors.pop()
        # No state is better than the best of the values that are left to try on the path, the next one included.
        log_upper = known[0] + slack
        for d in range(depth):
            if tried[d] < count[d]:
                log_upper = max(log_upper, ranked_bound[first[path[d]] + tried[d]])
        known[1] = min(known[1], log_upper)
        v, i = path[depth - 1], tried[depth - 1]
        tried[depth - 1] += 1
        log_bound = ranked_bound[first[v] + i]
        for x in range(first[v], first[v + 1]):
            if allowed[x] != 0 and x != ranked[first[v] + i]:
                allowed[x] = 0
                left[v] -= 1
                struck[height] = x
                height += 1


@kernel
def _read(allowed: IntArray, first: LongArray, best: IntArray, known: FloatArray, f: Flat) -> None:
    """Take the only state that is left, if it is better than the best."""
    state = np.zeros(best.size, dtype=np.int32)
    for v in range(best.size):
        for x in range(first[v], first[v + 1]):
            if allowed[x] != 0:
                state[v] = x - first[v]
    log_value = score(f, first, state)
    if log_value > known[0]:
        known[0] = log_value
        best[:] = state


@kernel
def _stage(
    f: Flat, owner: IntArray, left: LongArray, value: FloatArray, exponent: FloatArray, flow: FloatArray
) -> tuple[Flat, float]:
    """The part of the circuit that is alive, the variables with one value left folded into weights."""
    nodes, edges = 0, 0
    constant: Flags = np.zeros(f.kind.size, dtype=np.bool_)
    for n in range(f.kind.size):
        if flow[n] == 0:
            continue
        if f.kind[n] == LEAF:
            constant[n] = left[owner[f.var[n]]] == 1
        else:
            constant[n] = True
            for e in range(f.start[n], f.start[n + 1]):
                constant[n] &= flow[f.child[e]] == 0 or constant[f.child[e]]
        nodes += 2
        edges += f.start[n + 1] - f.start[n] + 1
    kind = np.zeros(nodes, dtype=np.int8)
    start = np.zeros(nodes + 1, dtype=np.int64)
    child = np.zeros(edges, dtype=np.int32)
    weight = np.ones(edges)
    var = np.full(nodes, -1, dtype=np.int32)
    ones = np.full(nodes, -1, dtype=np.int32)
    number = np.full(f.kind.size, -1, dtype=np.int32)
    count, end = 0, 0
    for n in range(f.kind.size):
        if flow[n] == 0 or constant[n]:
            continue
        kind[count] = f.kind[n]
        if f.kind[n] == LEAF:
            var[count], ones[count] = f.var[n], 1
        elif f.kind[n] == SUM:
            for e in range(f.start[n], f.start[n + 1]):
                if flow[f.child[e]] > 0 and number[f.child[e]] >= 0:
                    child[end], weight[end] = number[f.child[e]], f.weight[e]
                    end += 1
        else:
            # A product's constants become the weight of a sum with one child above it.
            folded, power = 1.0, 0.0
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                if constant[c] and (value[c] != 1 or exponent[c] != 0):
                    folded, power = normal(folded * value[c] * UP, power + exponent[c])
                elif not constant[c]:
                    child[end] = number[c]
                    end += 1
            if folded != 1 or power != 0:
                start[count + 1] = end
                child[end], weight[end] = count, encoded(folded, power)
                end += 1
                count += 1
                kind[count] = SUM
        number[n] = count
        count += 1
        start[count] = end
    whole = Flat(*trimmed(kind, start, child, weight, var, ones, count, end))
    kind, start, child, weight, var, ones, log_factor = rebuild_kernel(whole, np.ones(end, dtype=np.bool_))
    return Flat(kind, start, child, weight, var, ones), log_factor
