"""Condition on the evidence and sum out the hidden variables in one pass: what is left is about the query alone.

In the reduced circuit every node is normalised (it sums to 1 over the query states), so its root is p(q | e) and the
constants of the hidden and observed parts are gone into one log scale, log p(e).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from margmap._jit import kernel
from margmap.circuit import PRODUCT, SUM, Circuit, FloatArray, IntArray, KindArray, LongArray, Name, Value, listed
from margmap.errors import ImpossibleEvidenceError, QueryError
from margmap.evaluate import Scaled, edge_share, forward
from margmap.flat import Flat, Runner, rebuild, to_the_end
from margmap.structure import require_tractable

# Shares of a sum or a leaf under this are left out of the reduced circuit; `Reduced.dropped` accounts for them.
NEGLIGIBLE = 1e-300


@dataclass(frozen=True)
class Reduced:
    """A marginal-MAP problem with nothing in it but the query."""

    flat: Flat
    #: Name and number of values of each query variable.
    names: tuple[Name, ...]
    cardinality: IntArray
    #: log p(e); the root of ``flat`` is p(q | e).
    log_scale: float
    #: Relative rounding error of any value computed on ``flat``, counted from the circuit it came from.
    rounding: float
    #: No state's p(q | e) loses more than this to shares too small to keep.
    dropped: float

    @property
    def num_nodes(self) -> int:
        """Nodes of the reduced circuit."""
        return int(self.flat.kind.size)

    @property
    def num_edges(self) -> int:
        """Edges of the reduced circuit."""
        return int(self.flat.child.size)


def resolve_query(circuit: Circuit, query: Sequence[Name] | None, evidence: Mapping[Name, Value]) -> list[int]:
    """The columns of the query variables, refusing what cannot be asked; None asks for all that is not observed."""
    observed = {circuit.index(name) for name in evidence}
    mentioned = circuit.mentioned
    if query is None:
        columns = sorted(mentioned - observed)
        continuous = [circuit.variables[i].name for i in columns if circuit.variables[i].continuous]
        if continuous:
            raise QueryError(
                "without a query every variable is asked for that is not observed, and only discrete ones can be: "
                f"observe the continuous {listed(continuous)}, or give the query (query=[...], --query), which sums "
                "all other variables out"
            )
        return columns
    columns = circuit.query_columns(query, observed)
    for column in columns:
        variable = circuit.variables[column]
        if variable.continuous:
            raise QueryError(f"variable {variable.name!r} is continuous: only discrete variables can be queried")
        if column not in mentioned:
            raise QueryError(f"variable {variable.name!r} is queried, but no leaf of the circuit mentions it")
    return columns


def reduce(circuit: Circuit, query: Sequence[Name] | None, evidence: Mapping[Name, Value] | None = None) -> Reduced:
    """The circuit over the query variables that is left of ``circuit`` under ``evidence``."""
    require_tractable(circuit)
    evidence = evidence or {}
    columns = resolve_query(circuit, query, evidence)
    codes, reals = circuit.evidence_codes(evidence)
    return reduce_codes(circuit, columns, codes, reals)


def reduce_codes(
    circuit: Circuit, columns: Sequence[int], codes: IntArray, reals: FloatArray, run: Runner = to_the_end
) -> Reduced:
    """The same for a query and evidence already turned into columns and codes."""
    s, position, cardinality = circuit.scaled, _positions(circuit, columns), circuit.cardinality[list(columns)]
    asked = circuit.scopes.meeting(columns)
    work = partial(_reduce, s, codes, reals, position, cardinality, circuit.scopes.id, asked)
    room = 32 * circuit.num_edges + 48 * circuit.num_nodes
    kind, start, child, weight, var, value, log_scale, dropped = run(work, 4 * circuit.num_edges, room)
    if log_scale == -np.inf:
        raise _impossible()
    flat, _ = rebuild(Flat(kind, start, child, weight, var, value), np.ones(child.size, dtype=np.bool_), run)
    names = tuple(circuit.variables[c].name for c in columns)
    return Reduced(flat, names, cardinality, float(log_scale) + s.log_total, s.rounding, dropped * NEGLIGIBLE)


def heaviest_state(
    circuit: Circuit, columns: Sequence[int], codes: IntArray, reals: FloatArray
) -> tuple[IntArray, float]:
    """Some possible state of the query, and log p(e), from one pass: at every sum follow the largest share.

    For a solver that was stopped before it had a state: the reduction takes several times as long.
    """
    s, position = circuit.scaled, _positions(circuit, columns)
    state = np.zeros(len(columns), dtype=np.int32)
    asked = circuit.scopes.meeting(columns)
    log_scale = _follow(s, codes, reals, position, circuit.cardinality[list(columns)], circuit.scopes.id, asked, state)
    if log_scale == -np.inf:
        raise _impossible()
    return state, float(log_scale) + s.log_total


def _positions(circuit: Circuit, columns: Sequence[int]) -> IntArray:
    """The place in the query of each variable of the circuit; -1 where it is not asked for."""
    position = np.full(len(circuit.variables), -1, dtype=np.int32)
    position[list(columns)] = np.arange(len(columns), dtype=np.int32)
    return position


def _impossible() -> ImpossibleEvidenceError:
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
) -> float:
    value, log_scale = np.empty(s.kind.size), np.empty(s.kind.size)
    forward(s, codes, reals, value, log_scale)
    root = s.kind.size - 1
    if value[root] <= 0:
        return -np.inf
    stack = np.empty(s.kind.size, dtype=np.int32)
    height = 0
    if asked_scope[scope[root]]:
        stack[0], height = root, 1
    while height > 0:
        height -= 1
        n = stack[height]
        if s.kind[n] < PRODUCT:
            q, table = position[s.var[n]], s.table_start[n]
            state[q] = np.argmax(s.log_table[table : table + cardinality[q]])
        elif s.kind[n] == PRODUCT:
            for e in range(s.start[n], s.start[n + 1]):
                if asked_scope[scope[s.child[e]]]:
                    stack[height] = s.child[e]
                    height += 1
        else:
            best, most = s.start[n], -1.0
            for e in range(s.start[n], s.start[n + 1]):
                share = edge_share(s, n, e, value, log_scale)
                if share > most:
                    best, most = e, share
            stack[height] = s.child[best]
            height += 1
    return float(np.log(value[root]) + log_scale[root])


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
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray, float, int]:
    n_old = s.kind.size
    value, log_scale = np.empty(n_old), np.empty(n_old)
    forward(s, codes, reals, value, log_scale)

    # What of the circuit the query can still reach, and how much room it will need.
    asked = np.empty(n_old, dtype=np.bool_)
    for n in range(n_old):
        asked[n] = asked_scope[scope[n]]
    live = np.zeros(n_old, dtype=np.bool_)
    live[n_old - 1] = asked[n_old - 1] and value[n_old - 1] > 0
    share = np.empty(s.child.size)  # filled below live sums only
    room_nodes, room_edges, dropped = 0, 0, 0
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
                share[e] = edge_share(s, n, e, value, log_scale)
                if share[e] > NEGLIGIBLE:
                    live[c] = True
                    room_edges += 1
                elif value[c] > 0 and s.log_weight[e] > -np.inf:
                    dropped += 1

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
            table, total = s.table_start[n], 0.0
            for x in range(cardinality[q]):
                total += s.table[table + x]
            for x in range(cardinality[q]):
                part = s.table[table + x] / total
                if part > NEGLIGIBLE:
                    child[end], weight[end] = first_leaf[q] + x, part
                    end += 1
                elif s.log_table[table + x] > -np.inf:
                    dropped += 1
            kind[count] = SUM
        elif s.kind[n] == PRODUCT:
            for e in range(s.start[n], s.start[n + 1]):
                if asked[s.child[e]]:
                    child[end] = number[s.child[e]]
                    end += 1
            kind[count] = PRODUCT
        else:
            for e in range(s.start[n], s.start[n + 1]):
                if share[e] > NEGLIGIBLE:
                    child[end], weight[end] = number[s.child[e]], share[e]
                    end += 1
            kind[count] = SUM
        number[n] = count
        count += 1
        start[count] = end
    root = value[n_old - 1]
    return (
        kind,
        start,
        child[:end].copy(),
        weight[:end].copy(),
        var,
        leaf_value,
        np.log(root) + log_scale[n_old - 1] if root > 0 else -np.inf,
        dropped,
    )
