"""Structural properties of a circuit: smooth, decomposable, structured, deterministic, normalised."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from margmap.circuit.arrays import Bits, FloatArray, IntArray, KindArray, LongArray
from margmap.circuit.circuit import Circuit
from margmap.circuit.leaves import GAUSSIAN, PRODUCT, SUM, leaf_tables, node_name
from margmap.circuit.model import as_circuit
from margmap.circuit.scopes import members, nested
from margmap.errors import StructureError
from margmap.foundation.bits import overlap, unite
from margmap.foundation.jit import kernel

# A sum is called normalised when its weights add up to 1 within this; files with six decimals pass.
NORMALISED = 1e-5

# The determinism test compares pairs of children; it gives up ("not shown") past this many word operations.
DETERMINISM_BUDGET = 2_000_000_000


class Properties(NamedTuple):
    """What is known of a circuit's structure. ``deterministic`` False means *not shown*, not *refuted*."""

    smooth: bool
    decomposable: bool
    structured: bool
    deterministic: bool
    normalised: bool
    #: One sentence for each property that does not hold, naming a node and a variable.
    reasons: tuple[str, ...] = ()


def check(circuit: Circuit) -> Properties:
    """All structural properties at once; :attr:`Circuit.properties` keeps the answer.

    ``structured`` means that the scopes of all nodes are pairwise nested or disjoint, so that one vtree fits the whole
    circuit. ``deterministic`` is shown when any two children of a sum exclude each other on some variable.
    """
    circuit = as_circuit(circuit, "check looks at")
    reasons = []
    smooth, decomposable = True, True
    for node, variable, product in circuit.violations:
        reasons.append(_violation(circuit, node, variable, product))
        smooth, decomposable = smooth and product, decomposable and not product
    structured = decomposable and smooth
    if structured:
        node = _crossing(circuit)
        structured = node < 0
        if not structured:
            reasons.append(
                f"not structured-decomposable: the scope of {node_name(circuit, node)} crosses another node's"
            )
    node = _overlapping_sum(circuit)
    if node >= 0:
        reasons.append(
            f"determinism is not shown: at {node_name(circuit, node)} no variable tells some two children apart"
        )
    elif node != -1:
        reasons.append("determinism is not shown: there are too many pairs of children to compare")
    off = _unnormalisednode_name(circuit)
    if off >= 0:
        reasons.append(f"not normalised: the weights of {node_name(circuit, off)} do not add up to 1")
    return Properties(smooth, decomposable, structured, node == -1, off < 0, tuple(reasons))


def require_tractable(circuit: Circuit) -> None:
    """Refuse a circuit that is not smooth and decomposable: no query has an answer on it."""
    for node, variable, product in circuit.violations:
        hint = "the file is broken or not a probabilistic circuit" if product else "call margmap.smooth(circuit) first"
        raise StructureError(f"{_violation(circuit, node, variable, product)}; {hint}")


def _violation(circuit: Circuit, node: int, variable: int, product: bool) -> str:
    name = circuit.variables[variable].name
    if product:
        return f"not decomposable: two children of {node_name(circuit, node)} share variable {name!r}"
    return f"not smooth: some child of {node_name(circuit, node)} lacks variable {name!r}"


def find_violations(circuit: Circuit) -> tuple[tuple[int, int, bool], ...]:
    """The first sum that is not smooth and the first product that is not decomposable, if any."""
    scopes = circuit.scopes
    rough, shared = _first_violations(circuit.kind, circuit.start, circuit.child, scopes.id, scopes.bits)
    found = []
    if rough >= 0:
        below = scopes.bits[scopes.id[circuit.child[circuit.start[rough] : circuit.start[rough + 1]]]]
        lacking = np.bitwise_or.reduce(below, axis=0) & ~np.bitwise_and.reduce(below, axis=0)
        found.append((int(rough), members(lacking)[0], False))
    if shared >= 0:
        seen = np.zeros(scopes.bits.shape[1], dtype=np.uint64)
        for c in circuit.child[circuit.start[shared] : circuit.start[shared + 1]]:
            twice = seen & scopes.bits[scopes.id[c]]
            if twice.any():
                found.append((int(shared), members(twice)[0], True))
                break
            seen |= scopes.bits[scopes.id[c]]
    return tuple(found)


def _crossing(circuit: Circuit) -> int:
    """A node whose scope crosses another's, or -1 if all scopes are nested or disjoint."""
    bad = nested(circuit.scopes.bits)[1]
    return int(np.flatnonzero(circuit.scopes.id == bad)[0]) if bad >= 0 else -1


def _overlapping_sum(circuit: Circuit) -> int:
    """A sum with two children not shown to exclude each other; -1 if there is none, -2 if the test gave up."""
    table_start, table = leaf_tables(circuit)
    cardinality = np.array([v.cardinality for v in circuit.variables] or [0], dtype=np.int64)
    first_bit = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(cardinality)))
    words = int(first_bit[-1]) // 64 + 1
    if circuit.num_nodes * words > DETERMINISM_BUDGET // 8:
        return -2
    return int(
        _first_overlap(
            circuit.kind,
            circuit.start,
            circuit.child,
            circuit.log_weight,
            circuit.var,
            table_start,
            table,
            first_bit,
            words,
            DETERMINISM_BUDGET,
        )
    )


def _unnormalisednode_name(circuit: Circuit) -> int:
    owner = np.repeat(np.arange(circuit.num_nodes), np.diff(circuit.start))
    weights = np.where(circuit.kind[owner] == SUM, np.exp(np.minimum(circuit.log_weight, 700.0)), 0.0)
    mass = np.bincount(owner, weights, minlength=circuit.num_nodes).astype(np.float64)  # integers if there are no edges
    table_start, table = leaf_tables(circuit)
    leaf = np.repeat(np.arange(circuit.num_nodes), np.diff(table_start))
    mass += np.bincount(leaf, np.exp(table), minlength=circuit.num_nodes)
    bad = np.flatnonzero((np.abs(mass - 1) > NORMALISED) & (circuit.kind != PRODUCT) & (circuit.kind != GAUSSIAN))
    return int(bad[0]) if bad.size else -1


@kernel
def _first_violations(kind: KindArray, start: LongArray, child: IntArray, ids: IntArray, bits: Bits) -> tuple[int, int]:
    rough, shared = -1, -1
    seen = np.zeros(bits.shape[1], dtype=np.uint64)
    for i in range(kind.size):
        if kind[i] == SUM and rough < 0:
            for e in range(start[i], start[i + 1]):
                if ids[child[e]] != ids[i]:
                    rough = i
        elif kind[i] == PRODUCT and shared < 0:
            seen[:] = 0
            for e in range(start[i], start[i + 1]):
                if overlap(seen, bits[ids[child[e]]]):
                    shared = i
                    break
                unite(seen, bits[ids[child[e]]])
    return rough, shared


@kernel
def _first_overlap(
    kind: KindArray,
    start: LongArray,
    child: IntArray,
    log_weight: FloatArray,
    var: IntArray,
    table_start: LongArray,
    table: FloatArray,
    first_bit: LongArray,
    words: int,
    budget: int,
) -> int:
    """Carry at each node the values each variable can take; children exclude each other if they share none of one."""
    n = kind.size
    can = np.zeros((n, words), dtype=np.uint64)  # bit of (variable, value): possible somewhere below this node
    spent = 0
    for i in range(n):
        if kind[i] < GAUSSIAN:
            for x in range(table_start[i + 1] - table_start[i]):
                if table[table_start[i] + x] > -np.inf:
                    bit = first_bit[var[i]] + x
                    can[i, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
        for e in range(start[i], start[i + 1]):
            if log_weight[e] > -np.inf:
                for w in range(words):
                    can[i, w] |= can[child[e], w]
        if kind[i] == SUM:
            for e in range(start[i], start[i + 1]):
                for f in range(start[i], e):
                    if log_weight[e] == -np.inf or log_weight[f] == -np.inf:
                        continue
                    spent += words
                    if spent > budget:
                        return -2
                    if not _exclude(can, first_bit, child[e], child[f]):
                        return i
    return -1


@kernel
def _exclude(can: Bits, first_bit: LongArray, a: int, b: int) -> bool:
    """Whether some variable has values below both nodes, but none in common."""
    v = 0
    for w in range(can.shape[1]):
        if can[a, w] == can[b, w]:
            continue
        while first_bit[v + 1] <= 64 * w:
            v += 1
        u = v
        while u + 1 < first_bit.size and first_bit[u] < 64 * (w + 1):
            left, right, both = False, False, False
            for bit in range(first_bit[u], first_bit[u + 1]):
                one = np.uint64(1) << np.uint64(bit & 63)
                in_a, in_b = (can[a, bit >> 6] & one) != 0, (can[b, bit >> 6] & one) != 0
                left, right, both = left or in_a, right or in_b, both or (in_a and in_b)
            if left and right and not both:
                return True
            u += 1
    return False
