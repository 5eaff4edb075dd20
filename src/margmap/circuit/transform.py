"""The two transformations that repair a circuit: smoothing and normalising."""

from __future__ import annotations

import numpy as np

from margmap.circuit.arrays import Bits, FloatArray, IntArray, KindArray, LongArray
from margmap.circuit.builder import Parts, assemble
from margmap.circuit.circuit import Circuit
from margmap.circuit.leaves import (
    BERNOULLI,
    CATEGORICAL,
    GAUSSIAN,
    INDICATOR,
    PRODUCT,
    SUM,
    leaf_tables,
    node_name,
)
from margmap.circuit.model import as_circuit
from margmap.circuit.properties import require_tractable
from margmap.circuit.scopes import members, scope_sizes
from margmap.errors import StructureError
from margmap.foundation.jit import kernel

# Smoothing looks at this many nodes for one that covers what a child lacks, before it lists the variables.
_COVER_NODES, _COVER_VARIABLES = 64, 8


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
            return [self._variable(v) for v in members(missing)]
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
        return covers, members(wanted)

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
        raise StructureError(f"{node_name(circuit, circuit.root)} is zero everywhere: it cannot be normalised")
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
