"""Condition on the evidence and sum out the hidden variables in one pass: what is left is about the query alone.

In the reduced circuit every node is normalised (it sums to 1 over the query states), so its root is p(q | e) and the
constants of the hidden and observed parts are gone into one log scale, log p(e).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from margmap._jit import kernel
from margmap.circuit import PRODUCT, SUM, Circuit, FloatArray, IntArray, KindArray, LongArray, Name, Value
from margmap.errors import ImpossibleEvidenceError, QueryError
from margmap.evaluate import Scaled, edge_share, forward
from margmap.structure import require_tractable

LEAF = 0

# Shares of a sum under this are left out of the reduced circuit; `Reduced.dropped` accounts for them.
NEGLIGIBLE = 1e-300


class Flat(NamedTuple):
    """A circuit of indicators, products and sums with plain (not log) weights, as the solvers' kernels take it.

    Leaf ``n`` is the indicator of query variable ``var[n]`` (a position in the query) having ``value[n]``. Children
    come before parents; the last node is the root.
    """

    kind: KindArray
    start: LongArray
    child: IntArray
    weight: FloatArray
    var: IntArray
    value: IntArray


@dataclass(frozen=True)
class Reduced:
    """A marginal-MAP problem with nothing in it but the query."""

    flat: Flat
    #: Number of values of each query variable.
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
    mentioned = set(circuit.scopes.variables(circuit.root))
    if query is None:
        return [i for i, v in enumerate(circuit.variables) if i in mentioned - observed and not v.continuous]
    if isinstance(query, str | int):
        raise QueryError(f"query={query!r}: give a list of variables, such as query=[{query!r}]")
    columns = [circuit.index(name) for name in query]
    for position, column in enumerate(columns):
        variable = circuit.variables[column]
        if column in columns[:position]:
            raise QueryError(f"variable {variable.name!r} is queried twice")
        if column in observed:
            raise QueryError(f"variable {variable.name!r} is both queried and observed: drop it from one of the two")
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


def reduce_codes(circuit: Circuit, columns: Sequence[int], codes: IntArray, reals: FloatArray) -> Reduced:
    """The same for a query and evidence already turned into columns and codes."""
    position = np.full(len(circuit.variables), -1, dtype=np.int32)
    position[list(columns)] = np.arange(len(columns), dtype=np.int32)
    cardinality = np.array([circuit.variables[c].cardinality for c in columns], dtype=np.int32)
    s = circuit.scaled
    kind, start, child, weight, var, value, log_scale, dropped = _reduce(s, codes, reals, position, cardinality)
    if log_scale == -np.inf:
        raise ImpossibleEvidenceError("the evidence has probability 0: no state of the query is possible under it")
    flat = Flat(kind, start, child, weight, var, value)
    return Reduced(flat, cardinality, float(log_scale) + s.log_total, s.rounding, dropped * NEGLIGIBLE)


@kernel
def _reduce(
    s: Scaled, codes: IntArray, reals: FloatArray, position: IntArray, cardinality: IntArray
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray, float, int]:
    n_old = s.kind.size
    value, log_scale = np.zeros(n_old), np.zeros(n_old)
    forward(s, codes, reals, value, log_scale)

    # What of the circuit the query can still reach, and how much room it will need.
    asked = np.zeros(n_old, dtype=np.bool_)
    for n in range(n_old):
        if s.kind[n] < PRODUCT:
            asked[n] = position[s.var[n]] >= 0
        else:
            for e in range(s.start[n], s.start[n + 1]):
                asked[n] |= asked[s.child[e]]
    live = np.zeros(n_old, dtype=np.bool_)
    live[n_old - 1] = asked[n_old - 1] and value[n_old - 1] > 0
    share = np.zeros(s.child.size)
    room_nodes, room_edges, dropped = 0, 0, 0
    first_leaf = np.zeros(cardinality.size + 1, dtype=np.int64)
    for q in range(cardinality.size):
        first_leaf[q + 1] = first_leaf[q] + cardinality[q]
    for n in range(n_old - 1, -1, -1):
        if not live[n]:
            continue
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

    room_nodes += first_leaf[-1]
    kind = np.zeros(room_nodes, dtype=np.int8)
    start = np.zeros(room_nodes + 1, dtype=np.int64)
    child = np.zeros(room_edges, dtype=np.int32)
    weight = np.zeros(room_edges)
    bits = weight.view(np.uint64)
    var = np.full(room_nodes, -1, dtype=np.int32)
    leaf_value = np.full(room_nodes, -1, dtype=np.int32)
    count = 0

    indicator = np.full(first_leaf[-1], -1, dtype=np.int32)
    number = np.full(n_old, -1, dtype=np.int32)
    seen_at = np.full(room_nodes, -1, dtype=np.int64)  # edge of the current sum that leads to a new node
    size = 64
    while size < 2 * room_nodes:
        size *= 2
    slots = np.full(size, -1, dtype=np.int32)

    for n in range(n_old):
        if not live[n]:
            continue
        begin = start[count]
        end = begin
        if s.kind[n] < PRODUCT:
            q = position[s.var[n]]
            table, total = s.table_start[n], 0.0
            for x in range(cardinality[q]):
                total += s.table[table + x]
            for x in range(cardinality[q]):
                part = s.table[table + x] / total
                if part > 0:
                    leaf = indicator[first_leaf[q] + x]
                    if leaf < 0:
                        leaf = np.int32(count)
                        indicator[first_leaf[q] + x] = leaf
                        var[count], leaf_value[count] = q, x
                        count += 1
                        start[count] = begin
                    child[end], weight[end] = leaf, part
                    end += 1
        elif s.kind[n] == PRODUCT:
            for e in range(s.start[n], s.start[n + 1]):
                if asked[s.child[e]]:
                    child[end], weight[end] = number[s.child[e]], 1.0
                    end += 1
        else:
            for e in range(s.start[n], s.start[n + 1]):
                if share[e] > NEGLIGIBLE:
                    c = number[s.child[e]]
                    if seen_at[c] >= 0:
                        weight[seen_at[c]] += share[e]
                    else:
                        seen_at[c] = end
                        child[end], weight[end] = c, share[e]
                        end += 1
            for e in range(begin, end):
                seen_at[child[e]] = -1
        if end == begin + 1:
            number[n] = child[begin]  # normalised, so a single child is the node itself
            continue
        # Share equal nodes: look the new one up by its children and weights.
        is_kind = np.int8(PRODUCT) if s.kind[n] == PRODUCT else np.int8(SUM)
        h = np.uint64(is_kind) * np.uint64(0x9E3779B97F4A7C15)
        for e in range(begin, end):
            h = (h ^ np.uint64(child[e]) ^ bits[e]) * np.uint64(0xBF58476D1CE4E5B9)
            h ^= h >> np.uint64(29)
        slot = np.int64(h & np.uint64(size - 1))
        found = -1
        while slots[slot] >= 0 and found < 0:
            k = slots[slot]
            if kind[k] == is_kind and start[k + 1] - start[k] == end - begin:
                found = k
                for e in range(end - begin):
                    if child[start[k] + e] != child[begin + e] or weight[start[k] + e] != weight[begin + e]:
                        found = -1
                        break
            slot = (slot + 1) & (size - 1)
        if found >= 0:
            number[n] = found
            continue
        slots[slot] = count
        kind[count] = is_kind
        number[n] = count
        count += 1
        start[count] = end
    root = value[n_old - 1]
    edges = start[count]
    return (
        kind[:count].copy(),
        start[: count + 1].copy(),
        child[:edges].copy(),
        weight[:edges].copy(),
        var[:count].copy(),
        leaf_value[:count].copy(),
        np.log(root) + log_scale[n_old - 1] if root > 0 else -np.inf,
        dropped,
    )
