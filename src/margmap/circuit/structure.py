"""Scopes and structural properties of a circuit, and the two transformations that repair them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import (
    BERNOULLI,
    BINOMIAL,
    CATEGORICAL,
    GAUSSIAN,
    INDICATOR,
    KIND_NAMES,
    PRODUCT,
    SUM,
    Circuit,
    FloatArray,
    IntArray,
    KindArray,
    LongArray,
    Parts,
    assemble,
)
from margmap.circuit.model import as_circuit
from margmap.errors import LimitError, StructureError
from margmap.foundation.jit import kernel

Bits = NDArray[np.uint64]

# A sum is called normalised when its weights add up to 1 within this; files with six decimals pass.
NORMALISED = 1e-5

# The determinism test compares pairs of children; it gives up ("not shown") past this many word operations.
DETERMINISM_BUDGET = 2_000_000_000


# The tables of all leaves may have this many entries (1 GiB), or as many as a large circuit has parameters. A few lines
# of a file can ask for more: an indicator of a variable with a million values has a million entries.
MOST_ENTRIES = 1 << 27

# Smoothing looks at this many nodes for one that covers what a child lacks, before it lists the variables.
_COVER_NODES, _COVER_VARIABLES = 64, 8

_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


class Scopes(NamedTuple):
    """The scope of node ``n`` is row ``id[n]`` of ``bits``; equal scopes have equal ids."""

    id: IntArray
    bits: Bits

    def meeting(self, columns: Sequence[int]) -> NDArray[np.bool_]:
        """Which scopes have some of these variables."""
        flags = np.zeros(64 * self.bits.shape[1], dtype=np.bool_)
        flags[list(columns)] = True
        common = self.bits & np.packbits(flags, bitorder="little").view(np.uint64)
        return np.asarray(common.any(axis=1))

    def variables(self, node: int) -> list[int]:
        """The numbers of the variables below a node."""
        return _members(self.bits[self.id[node]])


class Properties(NamedTuple):
    """What is known of a circuit's structure. ``deterministic`` False means *not shown*, not *refuted*."""

    smooth: bool
    decomposable: bool
    structured: bool
    deterministic: bool
    normalised: bool
    #: One sentence for each property that does not hold, naming a node and a variable.
    reasons: tuple[str, ...] = ()


def find_scopes(circuit: Circuit) -> Scopes:
    """The scope of every node, each distinct scope stored once."""
    words = max(1, -(-len(circuit.variables) // 64))
    ids, bits = intern_scopes(circuit.kind, circuit.start, circuit.child, circuit.var, words)
    for array in (ids, bits):
        array.setflags(write=False)
    return Scopes(ids, bits)


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
            reasons.append(f"not structured-decomposable: the scope of {_node(circuit, node)} crosses another node's")
    node = _overlapping_sum(circuit)
    if node >= 0:
        reasons.append(f"determinism is not shown: at {_node(circuit, node)} no variable tells some two children apart")
    elif node != -1:
        reasons.append("determinism is not shown: there are too many pairs of children to compare")
    off = _unnormalised_node(circuit)
    if off >= 0:
        reasons.append(f"not normalised: the weights of {_node(circuit, off)} do not add up to 1")
    return Properties(smooth, decomposable, structured, node == -1, off < 0, tuple(reasons))


def require_tractable(circuit: Circuit) -> None:
    """Refuse a circuit that is not smooth and decomposable: no query has an answer on it."""
    for node, variable, product in circuit.violations:
        hint = "the file is broken or not a probabilistic circuit" if product else "call margmap.smooth(circuit) first"
        raise StructureError(f"{_violation(circuit, node, variable, product)}; {hint}")


def smooth(circuit: Circuit) -> Circuit:
    """The same function with every sum over one scope: what a child lacks is multiplied in as a sum over its values."""
    circuit = as_circuit(circuit, "smooth needs")
    scopes = circuit.scopes
    if not any(not product for *_, product in circuit.violations):
        return circuit
    parts = Parts.new()
    number = np.zeros(circuit.num_nodes, dtype=np.int64)
    padding = _Padding(circuit, parts)
    padded: dict[tuple[int, int], int] = {}
    for n in range(circuit.num_nodes):
        below = circuit.child[circuit.start[n] : circuit.start[n + 1]]
        if circuit.kind[n] == SUM:
            children = []
            for c in below:
                key = (int(c), int(scopes.id[n]))
                if scopes.id[c] != scopes.id[n] and key not in padded:
                    padded[key] = parts.product([int(number[c]), *padding.lacking(n, int(c))])
                children.append(padded.get(key, int(number[c])))
            weights = circuit.log_weight[circuit.start[n] : circuit.start[n + 1]]
            number[n] = parts.sum(children, weights.tolist())
        elif circuit.kind[n] == PRODUCT:
            number[n] = parts.product([int(number[c]) for c in below])
        else:
            parameters = circuit.param[circuit.param_start[n] : circuit.param_start[n + 1]]
            number[n] = parts.leaf(int(circuit.kind[n]), int(circuit.var[n]), parameters.tolist())
    return assemble(circuit.variables, parts, int(number[-1]))


class _Padding:
    """Nodes that are 1 everywhere, over a variable or over all that a node has; each is made once and shared.

    Without the latter a chain of n sums, each with a child that lacks all below, would get n * n / 2 new edges.
    """

    def __init__(self, circuit: Circuit, parts: Parts) -> None:
        self.circuit, self.parts, self.scopes = circuit, parts, circuit.scopes
        self.size = scope_sizes(self.scopes.bits)
        self.of_variable: dict[int, int] = {}
        self.of_scope: dict[int, int] = {}

    def lacking(self, node: int, child: int) -> list[int]:
        """Nodes that are 1 everywhere over what a child of a sum lacks."""
        missing = self._bits(node) & ~self._bits(child)
        if self.size[self.scopes.id[node]] - self.size[self.scopes.id[child]] <= _COVER_VARIABLES:
            return [self._variable(v) for v in _members(missing)]
        covers, rest = self._cover(node, missing)
        return [self._scope(n) for n in covers] + [self._variable(v) for v in rest]

    def _variable(self, variable: int) -> int:
        if variable not in self.of_variable:
            v = self.circuit.variables[variable]
            if v.continuous:
                raise StructureError(f"cannot smooth over {v.name!r}: a constant density of a continuous variable")
            values = [self.parts.leaf(INDICATOR, variable, [float(x)]) for x in range(v.cardinality)]
            self.of_variable[variable] = self.parts.sum(values, [0.0] * len(values))
        return self.of_variable[variable]

    def _scope(self, node: int) -> int:
        ids, stack = self.scopes.id, [node]
        while stack:  # no recursion: circuits may be deep
            n = stack[-1]
            if int(ids[n]) in self.of_scope:
                stack.pop()
                continue
            if self.circuit.kind[n] < PRODUCT:
                self.of_scope[int(ids[n])] = self._variable(int(self.circuit.var[n]))
                continue
            covers, rest = self._cover(n, self._bits(n))
            waiting = [c for c in covers if int(ids[c]) not in self.of_scope]
            if waiting:
                stack.extend(waiting)
                continue
            factors = [self.of_scope[int(ids[c])] for c in covers] + [self._variable(v) for v in rest]
            self.of_scope[int(ids[n])] = factors[0] if len(factors) == 1 else self.parts.product(factors)
        return self.of_scope[int(ids[node])]

    def _cover(self, node: int, wanted: Bits) -> tuple[list[int], list[int]]:
        """Nodes below ``node`` with disjoint scopes inside the wanted one, large ones first, and the variables left."""
        covers: list[int] = []
        todo = self._below(node)
        for _ in range(_COVER_NODES):
            if not todo:
                break
            n = todo.pop()
            own = self._bits(n)
            if not (own & ~wanted).any():
                covers.append(n)
                wanted = wanted & ~own
            elif (own & wanted).any():
                todo += self._below(n)
        return covers, _members(wanted)

    def _below(self, node: int) -> list[int]:
        children = self.circuit.child[self.circuit.start[node] : self.circuit.start[node + 1]]
        order = np.argsort(self.size[self.scopes.id[children]], kind="stable")
        return [int(c) for c in children[order]]

    def _bits(self, node: int) -> Bits:
        bits: Bits = self.scopes.bits[self.scopes.id[node]]
        return bits


def normalise(circuit: Circuit) -> Circuit:
    """The circuit divided by its total mass, with the weights of every sum adding up to 1."""
    circuit = as_circuit(circuit, "normalise needs")
    require_tractable(circuit)
    total = log_totals(circuit)
    if total[-1] == -np.inf:
        raise StructureError(f"{_node(circuit, circuit.root)} is zero everywhere: it cannot be normalised")
    param = circuit.param.copy()
    for n in np.flatnonzero(np.isin(circuit.kind, (BERNOULLI, CATEGORICAL))):
        if total[n] > -np.inf:
            param[circuit.param_start[n] : circuit.param_start[n + 1]] -= total[n]
    owner = np.repeat(np.arange(circuit.num_nodes), np.diff(circuit.start))
    live = (circuit.kind[owner] == SUM) & (total[owner] > -np.inf)
    weight = circuit.log_weight.copy()
    below = total[circuit.child]
    shift = np.where(below > -np.inf, below, 0.0)
    weight[live] = (circuit.log_weight + shift)[live] - total[owner][live]
    weight[live & (below == -np.inf)] = -np.inf
    return Circuit(
        circuit.variables,
        circuit.kind,
        circuit.start,
        circuit.child,
        weight,
        circuit.var,
        circuit.param_start,
        param,
    )


def log_totals(circuit: Circuit) -> FloatArray:
    """The log of every node's total mass (sum or integral over all states)."""
    table_start, table = leaf_tables(circuit)
    return _log_totals(circuit.kind, circuit.start, circuit.child, circuit.log_weight, table_start, table)


def leaf_tables(circuit: Circuit) -> tuple[LongArray, FloatArray]:
    """For each discrete leaf the log probability of every value, one slice of one array per leaf."""
    cardinality = np.array([v.cardinality for v in circuit.variables] or [0], dtype=np.int64)
    sizes = np.where(circuit.kind < GAUSSIAN, cardinality[circuit.var], 0)
    start = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(sizes)))
    if start[-1] > max(MOST_ENTRIES, 4 * circuit.param.size):
        node = int(np.argmax(sizes))
        name = circuit.variables[circuit.var[node]].name
        raise LimitError(
            f"the tables of all leaves would have {start[-1]} entries, more than {MOST_ENTRIES}: "
            f"{_node(circuit, node)} alone has {sizes[node]}, one for each value of variable {name!r}"
        )
    table = np.full(int(start[-1]), -np.inf)
    _fill_tables(circuit.kind, circuit.param_start, circuit.param, start, table)
    return start, table


def _node(circuit: Circuit, node: int) -> str:
    return f"node {node} ({KIND_NAMES[circuit.kind[node]]})"


def _violation(circuit: Circuit, node: int, variable: int, product: bool) -> str:
    name = circuit.variables[variable].name
    if product:
        return f"not decomposable: two children of {_node(circuit, node)} share variable {name!r}"
    return f"not smooth: some child of {_node(circuit, node)} lacks variable {name!r}"


def find_violations(circuit: Circuit) -> tuple[tuple[int, int, bool], ...]:
    """The first sum that is not smooth and the first product that is not decomposable, if any."""
    scopes = circuit.scopes
    rough, shared = _first_violations(circuit.kind, circuit.start, circuit.child, scopes.id, scopes.bits)
    found = []
    if rough >= 0:
        below = scopes.bits[scopes.id[circuit.child[circuit.start[rough] : circuit.start[rough + 1]]]]
        lacking = np.bitwise_or.reduce(below, axis=0) & ~np.bitwise_and.reduce(below, axis=0)
        found.append((int(rough), _members(lacking)[0], False))
    if shared >= 0:
        seen = np.zeros(scopes.bits.shape[1], dtype=np.uint64)
        for c in circuit.child[circuit.start[shared] : circuit.start[shared + 1]]:
            twice = seen & scopes.bits[scopes.id[c]]
            if twice.any():
                found.append((int(shared), _members(twice)[0], True))
                break
            seen |= scopes.bits[scopes.id[c]]
    return tuple(found)


def scope_tree(bits: Bits) -> LongArray | None:
    """For each scope the smallest one that contains it (-1 at the top); None if two scopes cross."""
    parent, bad = _scope_tree(bits)
    return parent if bad < 0 else None


def _scope_tree(bits: Bits) -> tuple[LongArray, int]:
    size = scope_sizes(bits)
    parent, bad = _nest_scopes(bits, np.argsort(size, kind="stable"), size, 64 * bits.shape[1])
    return parent, int(bad)


def _crossing(circuit: Circuit) -> int:
    """A node whose scope crosses another's, or -1 if all scopes are nested or disjoint."""
    bad = _scope_tree(circuit.scopes.bits)[1]
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


def _unnormalised_node(circuit: Circuit) -> int:
    owner = np.repeat(np.arange(circuit.num_nodes), np.diff(circuit.start))
    weights = np.where(circuit.kind[owner] == SUM, np.exp(np.minimum(circuit.log_weight, 700.0)), 0.0)
    mass = np.bincount(owner, weights, minlength=circuit.num_nodes).astype(np.float64)  # integers if there are no edges
    table_start, table = leaf_tables(circuit)
    leaf = np.repeat(np.arange(circuit.num_nodes), np.diff(table_start))
    mass += np.bincount(leaf, np.exp(table), minlength=circuit.num_nodes)
    bad = np.flatnonzero((np.abs(mass - 1) > NORMALISED) & (circuit.kind != PRODUCT) & (circuit.kind != GAUSSIAN))
    return int(bad[0]) if bad.size else -1


def _members(bits: Bits) -> list[int]:
    return [int(i) for i in np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))]


def scope_sizes(bits: Bits) -> LongArray:
    """How many variables each scope has."""
    rows = max(1, (1 << 17) // bits.shape[1])  # a few at a time: all at once can need gigabytes
    blocks = [bits[first : first + rows].view(np.uint8) for first in range(0, len(bits), rows)]
    return np.concatenate([_ONES[block].sum(axis=1, dtype=np.int64) for block in blocks])


@kernel
def _slot(words: Bits, size: int) -> int:
    """The place of a bitset in a hash table of ``size`` (a power of two) slots."""
    h = np.uint64(0x9E3779B97F4A7C15)
    for word in words:
        h = (h ^ word) * np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(29)
    return int(np.int64(h & np.uint64(size - 1)))


@kernel
def intern_scopes(
    kind: KindArray, start: LongArray, child: IntArray, var: IntArray, words: int
) -> tuple[IntArray, Bits]:
    """Scopes bottom-up, interned in a hash table so that memory grows with the number of distinct ones."""
    n = kind.size
    ids = np.zeros(n, dtype=np.int32)
    bits = np.zeros((64, words), dtype=np.uint64)
    count = 0
    size = 256
    slots = np.full(size, -1, dtype=np.int32)
    scratch = np.zeros(words, dtype=np.uint64)
    for i in range(n):
        if kind[i] >= PRODUCT:
            same = True
            first = ids[child[start[i]]]
            for e in range(start[i] + 1, start[i + 1]):
                if ids[child[e]] != first:
                    same = False
                    break
            if same:
                ids[i] = first
                continue
        scratch[:] = 0
        if kind[i] < PRODUCT:
            scratch[var[i] >> 6] |= np.uint64(1) << np.uint64(var[i] & 63)
        for e in range(start[i], start[i + 1]):
            row = ids[child[e]]
            for w in range(words):
                scratch[w] |= bits[row, w]
        slot = _slot(scratch, size)
        while True:
            row = slots[slot]
            if row < 0:
                break
            equal = True
            for w in range(words):
                if bits[row, w] != scratch[w]:
                    equal = False
                    break
            if equal:
                break
            slot = (slot + 1) & (size - 1)
        if row < 0:
            if count == bits.shape[0]:
                larger = np.zeros((2 * count, words), dtype=np.uint64)
                larger[:count] = bits
                bits = larger
            bits[count] = scratch
            slots[slot] = count
            row = np.int32(count)
            count += 1
            if 2 * count > size:
                size *= 2
                slots = np.full(size, -1, dtype=np.int32)
                for r in range(count):
                    slot = _slot(bits[r], size)
                    while slots[slot] >= 0:
                        slot = (slot + 1) & (size - 1)
                    slots[slot] = r
        ids[i] = row
    return ids, bits[:count].copy()


@kernel
def _first_violations(kind: KindArray, start: LongArray, child: IntArray, ids: IntArray, bits: Bits) -> tuple[int, int]:
    rough, shared = -1, -1
    words = bits.shape[1]
    for i in range(kind.size):
        if kind[i] == SUM and rough < 0:
            for e in range(start[i], start[i + 1]):
                if ids[child[e]] != ids[i]:
                    rough = i
        elif kind[i] == PRODUCT and shared < 0:
            for w in range(words):
                seen = np.uint64(0)
                for e in range(start[i], start[i + 1]):
                    scope = bits[ids[child[e]], w]
                    if seen & scope:
                        shared = i
                    seen |= scope
    return rough, shared


@kernel
def _nest_scopes(bits: Bits, order: LongArray, size: LongArray, variables: int) -> tuple[LongArray, int]:
    """Scopes in order of size: those seen inside a scope must lie in it whole. Also returns a crossing scope or -1."""
    parent = np.full(bits.shape[0], -1, dtype=np.int64)
    top = np.full(variables, -1, dtype=np.int64)  # for each variable the largest scope so far that has it
    inside = np.zeros(bits.shape[0], dtype=np.int64)  # how many variables of an earlier scope lie in this one
    stamp = np.full(bits.shape[0], -1, dtype=np.int64)
    members = np.zeros(variables, dtype=np.int64)
    for s in order:
        count = 0
        for w in range(bits.shape[1]):
            word, v = bits[s, w], 64 * w
            while word:
                if word & np.uint64(1):
                    members[count] = v
                    count += 1
                word >>= np.uint64(1)
                v += 1
        for v in members[:count]:
            t = top[v]
            if t >= 0:
                inside[t] = inside[t] + 1 if stamp[t] == s else 1
                stamp[t] = s
        for v in members[:count]:
            if top[v] >= 0 and inside[top[v]] != size[top[v]]:
                return parent, int(s)
        for v in members[:count]:
            if top[v] >= 0:
                parent[top[v]] = s
            top[v] = s
    return parent, -1


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


@kernel
def _fill_tables(
    kind: KindArray, param_start: LongArray, param: FloatArray, start: LongArray, table: FloatArray
) -> None:
    for i in range(kind.size):
        p, t, size = param_start[i], start[i], start[i + 1] - start[i]
        if kind[i] == INDICATOR:
            table[t + int(param[p])] = 0.0
        elif kind[i] == BERNOULLI:
            table[t] = param[p + 1]
            table[t + 1] = param[p]
        elif kind[i] == CATEGORICAL:
            for x in range(size):
                table[t + x] = param[p + x]
        elif kind[i] == BINOMIAL:
            trials = size - 1
            log_choose = 0.0
            for x in range(size):
                if x > 0:
                    log_choose += np.log((trials - x + 1) / x)
                value = log_choose
                if x > 0:
                    value += x * param[p + 1]
                if x < trials:
                    value += (trials - x) * param[p + 2]
                table[t + x] = value


@kernel
def _log_totals(
    kind: KindArray,
    start: LongArray,
    child: IntArray,
    log_weight: FloatArray,
    table_start: LongArray,
    table: FloatArray,
) -> FloatArray:
    total = np.zeros(kind.size)
    for i in range(kind.size):
        if kind[i] == PRODUCT:
            for e in range(start[i], start[i + 1]):
                total[i] += total[child[e]]
        elif kind[i] == SUM or kind[i] < GAUSSIAN:
            top = -np.inf
            if kind[i] == SUM:
                for e in range(start[i], start[i + 1]):
                    top = max(top, log_weight[e] + total[child[e]])
            else:
                for t in range(table_start[i], table_start[i + 1]):
                    top = max(top, table[t])
            if top > -np.inf:
                mass = 0.0
                if kind[i] == SUM:
                    for e in range(start[i], start[i + 1]):
                        mass += np.exp(log_weight[e] + total[child[e]] - top)
                else:
                    for t in range(table_start[i], table_start[i + 1]):
                        mass += np.exp(table[t] - top)
                total[i] = top + np.log(mass)
            else:
                total[i] = -np.inf
    return total
