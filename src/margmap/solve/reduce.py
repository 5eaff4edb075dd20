"""Condition on the evidence and sum out the hidden variables in one pass: what is left is about the query alone.

In the reduced circuit every node is normalised (it sums to 1 over the query states), so its root is p(q | e) and the
constants of the hidden and observed parts are gone into one log scale, log p(e).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, SUM, Circuit, FloatArray, IntArray, KindArray, LongArray, Name
from margmap.circuit.observation import Observation
from margmap.circuit.properties import require_tractable
from margmap.errors import ImpossibleEvidenceError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.foundation.pairs import EPS, EXACT, encoded, log_of, moved
from margmap.inference.passes import edge_share, forward, share_weight
from margmap.inference.scaled import Scaled, require_within_reach, scaled
from margmap.inference.soft import conditioned_circuit
from margmap.solve.query_circuit import Flat, rebuild


@dataclass(frozen=True)
class Reduced:
    """A marginal-MAP problem with nothing in it but the query."""

    flat: Flat
    #: Name and number of values of each query variable.
    names: tuple[Name, ...]
    cardinality: IntArray
    #: p(e) as a pair; the root of ``flat`` is p(q | e).
    evidence: tuple[float, float]
    #: How far, relatively, the root of ``flat`` can be under p(q | e).
    rounding: float

    @property
    def log_scale(self) -> float:
        """log p(e)."""
        return float(log_of(*self.evidence))

    @property
    def num_nodes(self) -> int:
        """Nodes of the reduced circuit."""
        return int(self.flat.kind.size)

    @property
    def num_edges(self) -> int:
        """Edges of the reduced circuit."""
        return int(self.flat.child.size)


def reduce(
    circuit: Circuit, query: Sequence[Name] | None, evidence: Mapping[Any, Observation] | None = None
) -> Reduced:
    """The circuit over the query variables that is left of ``circuit`` under ``evidence``."""
    require_tractable(circuit)
    observed = circuit.observed(evidence)
    columns = circuit.asked(query, observed)
    circuit, given = conditioned_circuit(circuit, observed)
    reduced = reduce_codes(circuit, columns, *circuit.encoded(given.observed))
    value, exponent = reduced.evidence
    return replace(reduced, evidence=(value, exponent + given.power), rounding=reduced.rounding + given.rounding)


def reduce_codes(
    circuit: Circuit, columns: Sequence[int], codes: IntArray, reals: FloatArray, run: Runner = to_the_end
) -> Reduced:
    """The same for a query and evidence already turned into columns and codes."""
    require_within_reach(circuit, reals)
    if circuit.memory is not None:
        kept: Reduced | None = circuit.memory.reduce(columns, codes, reals, run)
        if kept is not None:
            return kept
    s, position, cardinality = scaled(circuit), positions(circuit, columns), circuit.cardinality[list(columns)]
    asked = circuit.scopes.meeting(columns)
    work = partial(_reduce, s, codes, reals, position, cardinality, circuit.scopes.id, asked)
    room = 32 * circuit.num_edges + 48 * circuit.num_nodes
    kind, start, child, weight, var, code, value, exponent = run(work, 4 * circuit.num_edges, room)
    if value == 0:
        raise impossible()
    whole = Flat(kind, start, child, weight, var, code)
    # The root sums to 1, so that the factor taken out of it is 1 but for rounding.
    flat, log_factor = rebuild(whole, np.ones(whole.num_edges, dtype=np.bool_), run)
    names = tuple(circuit.variables[c].name for c in columns)
    evidence = (value * s.total, exponent + s.total_exponent)
    return Reduced(flat, names, cardinality, evidence, s.rounding + abs(log_factor))


def heaviest_state(
    circuit: Circuit, columns: Sequence[int], codes: IntArray, reals: FloatArray
) -> tuple[IntArray, tuple[float, float]]:
    """Some possible state of the query, and p(e) as a pair, from one pass: at every sum follow the largest share.

    For a solver that was stopped before it had a state: the reduction takes several times as long.
    """
    s, position = scaled(circuit), positions(circuit, columns)
    state = np.zeros(len(columns), dtype=np.int32)
    asked = circuit.scopes.meeting(columns)
    cardinality = circuit.cardinality[list(columns)]
    value, exponent = _follow(s, codes, reals, position, cardinality, circuit.scopes.id, asked, state)
    if value == 0:
        raise impossible()
    return state, (value * s.total, exponent + s.total_exponent)


def positions(circuit: Circuit, columns: Sequence[int]) -> IntArray:
    """The place in the query of each variable of the circuit; -1 where it is not asked for."""
    position = np.full(len(circuit.variables), -1, dtype=np.int32)
    position[list(columns)] = np.arange(len(columns), dtype=np.int32)
    return position


def impossible() -> ImpossibleEvidenceError:
    """What is raised where p(e) is 0."""
    return ImpossibleEvidenceError("the evidence has probability 0: no state of the query is possible under it")


@kernel
def _follow(
    s: Scaled,
    codes: IntArray,
    reals: FloatArray,
    position: IntArray,
    cardinality: IntArray,
    scope: IntArray,
    asked_scope: NDArray[np.bool_],
    state: IntArray,
) -> tuple[float, float]:
    value, exponent = np.empty(s.kind.size), np.empty(s.kind.size)
    forward(s, codes, reals, value, exponent)
    root = s.kind.size - 1
    if value[root] <= 0:
        return 0.0, 0.0
    stack = np.empty(s.kind.size, dtype=np.int32)
    height = 0
    if asked_scope[scope[root]]:
        stack[0], height = root, 1
    while height > 0:
        height -= 1
        n = stack[height]
        if s.kind[n] < PRODUCT:
            q, table = position[s.var[n]], s.table_start[n]
            for x in range(cardinality[q]):
                best = table + state[q]
                share, power = s.table[table + x], s.table_shift[table + x]
                if share > 0 and (s.table[best] == 0 or moved(share, power - s.table_shift[best]) > s.table[best]):
                    state[q] = x
        elif s.kind[n] == PRODUCT:
            for e in range(s.start[n], s.start[n + 1]):
                if asked_scope[scope[s.child[e]]]:
                    stack[height] = s.child[e]
                    height += 1
        else:
            best, most = s.start[n], -1.0
            for e in range(s.start[n], s.start[n + 1]):
                share = edge_share(s, n, e, value, exponent)
                if share > most:
                    best, most = e, share
            stack[height] = s.child[best]
            height += 1
    return value[root], exponent[root]


@kernel
def leaf_share(s: Scaled, n: int, x: int, cardinality: int) -> float:
    """The part that a value has of the total of a leaf of the query, as a weight that is not less than it."""
    table = s.table_start[n]
    total, power = s.table[table + cardinality], s.table_shift[table + cardinality]
    shift = s.table_shift[table + x] - power
    if abs(shift) > EXACT:
        shift += 8 * EPS * abs(shift)
    return min(encoded(s.table[table + x] / total, shift), 1.0)


@kernel
def _reduce(
    s: Scaled,
    codes: IntArray,
    reals: FloatArray,
    position: IntArray,
    cardinality: IntArray,
    scope: IntArray,
    asked_scope: NDArray[np.bool_],
    stop: LongArray,
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray, float, float]:
    n_old = s.kind.size
    value, exponent = np.empty(n_old), np.empty(n_old)
    forward(s, codes, reals, value, exponent)

    # What of the circuit the query can still reach, and how much room it will need.
    asked = np.empty(n_old, dtype=np.bool_)
    for n in range(n_old):
        asked[n] = asked_scope[scope[n]]
    live = np.zeros(n_old, dtype=np.bool_)
    live[n_old - 1] = asked[n_old - 1] and value[n_old - 1] > 0
    share = np.empty(s.child.size)  # filled below live sums only
    room_nodes, room_edges = 0, 0
    first_leaf = np.zeros(cardinality.size + 1, dtype=np.int64)
    for q in range(cardinality.size):
        first_leaf[q + 1] = first_leaf[q] + cardinality[q]
    for n in range(n_old - 1, -1, -1):
        if not live[n]:
            continue
        if stop[0] != 0:
            break
        room_nodes += 1
        if s.kind[n] < PRODUCT:
            room_edges += cardinality[position[s.var[n]]]
            continue
        for e in range(s.start[n], s.start[n + 1]):
            c = s.child[e]
            if s.kind[n] == PRODUCT:
                live[c] |= asked[c]
                room_edges += 1
            else:
                share[e] = share_weight(s, n, e, value, exponent)
                if share[e] != 0:
                    live[c] = True
                    room_edges += 1

    # The indicators come first, then one node for each that is left, still with all its detours.
    room_nodes += first_leaf[-1]
    kind = np.zeros(room_nodes, dtype=np.int8)
    start = np.zeros(room_nodes + 1, dtype=np.int64)
    child = np.zeros(room_edges, dtype=np.int32)
    weight = np.ones(room_edges)
    var = np.full(room_nodes, -1, dtype=np.int32)
    leaf_value = np.full(room_nodes, -1, dtype=np.int32)
    for q in range(cardinality.size):
        for x in range(cardinality[q]):
            var[first_leaf[q] + x], leaf_value[first_leaf[q] + x] = q, x
    count, end = first_leaf[-1], 0
    number = np.full(n_old, -1, dtype=np.int32)
    for n in range(n_old):
        if stop[0] != 0:
            break
        if not live[n]:
            continue
        if s.kind[n] < PRODUCT:
            q = position[s.var[n]]
            for x in range(cardinality[q]):
                part = leaf_share(s, n, x, cardinality[q])
                if part != 0:
                    child[end], weight[end] = first_leaf[q] + x, part
                    end += 1
            kind[count] = SUM
        elif s.kind[n] == PRODUCT:
            for e in range(s.start[n], s.start[n + 1]):
                if asked[s.child[e]]:
                    child[end] = number[s.child[e]]
                    end += 1
            kind[count] = PRODUCT
        else:
            for e in range(s.start[n], s.start[n + 1]):
                if share[e] != 0:
                    child[end], weight[end] = number[s.child[e]], share[e]
                    end += 1
            kind[count] = SUM
        number[n] = count
        count += 1
        start[count] = end
    root = n_old - 1
    return kind, start, child[:end].copy(), weight[:end].copy(), var, leaf_value, value[root], exponent[root]
