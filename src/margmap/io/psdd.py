"""The PSDD text format: ``psdd N``, then ``L``, ``T`` and ``D`` lines, children first, the root last."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from margmap.circuit import BERNOULLI, INDICATOR, KIND_NAMES, PRODUCT, Circuit, Parts
from margmap.circuit.vtree import derive_vtree
from margmap.errors import FormatError, StructureError
from margmap.io import reading as scan
from margmap.io.writing import Node, nodes_of, numbers_from_one

#: How far the two probabilities of a T line may be from adding up to 1 (files round to six decimals).
TRUE_SLACK = 1e-4


def read(lines: Sequence[str], path: Path) -> Circuit:
    """The circuit of a psdd file: D becomes a sum of products, T a Bernoulli leaf, L an indicator."""
    parts = Parts.new()
    nodes = scan.Nodes()
    node = nodes.made

    def literal(tokens: list[str]) -> int:
        value = int(tokens[3])
        return parts.leaf(INDICATOR, scan.variable_number(abs(value)), (float(value > 0),))

    def true(tokens: list[str]) -> int:
        return parts.leaf(BERNOULLI, scan.variable_number(int(tokens[3])), _true_node(tokens[4:]))

    def decision(tokens: list[str]) -> int:
        weights, each = scan.log_probabilities(tokens[6::3]), range(4, len(tokens), 3)
        products = [parts.product((node[int(tokens[i])], node[int(tokens[i + 1])])) for i in each]
        # A single element of probability 1 is its product.
        return products[0] if len(weights) == 1 and weights[0] == 0 else parts.sum(products, weights)

    elements = (slice(4, None, 3), slice(5, None, 3))
    rules = {
        "L": scan.Rule("L id vtree literal", literal, (4, 4)),
        "T": scan.Rule("T id vtree variable logp", true, (5, 6)),
        "D": scan.Rule("D id vtree k (prime sub logp)*k", decision, (4, 4), group=3, children=elements),
    }
    nodes.read(scan.node_lines(lines, path, "psdd"), lines, path, rules)
    return scan.assemble_named(parts, {})


def write(circuit: Circuit) -> Iterator[str]:
    """The lines of a psdd file; a circuit that is not binary and structured is refused.

    The vtree ids are those that writing ``vtree_of(circuit)`` gives. A product of several parts becomes nested
    decisions along that vtree, a sum below a sum is multiplied out, and everything over one variable becomes L or T.
    """
    yield "c margmap: natural logs; the vtree ids are those of margmap.vtree_of(circuit)"
    body = _Writer(circuit).lines()
    yield f"psdd {len(body)}"
    yield from body


def _true_node(tokens: Sequence[str]) -> tuple[float, float]:
    """The log-probabilities of true and of false, of which the second may be missing."""
    log_true, *rest = scan.log_probabilities(tokens)
    if not rest:
        return log_true, scan.log1mexp(log_true)
    if not abs(scan.log_add(log_true, rest[0])) < TRUE_SLACK:
        raise FormatError(
            f"the two log-probabilities {log_true} (true) and {rest[0]} (false) of a T node do not add up to "
            "probability 1: drop the second or correct it"
        )
    return log_true, rest[0]


class _Writer:
    """Turns circuit nodes into psdd nodes, each when something first needs it."""

    def __init__(self, circuit: Circuit) -> None:
        self.circuit = circuit
        self.nodes = nodes_of(circuit, "psdd")
        for n, variable in enumerate(circuit.var.tolist()):
            if variable >= 0 and circuit.variables[variable].cardinality != 2:
                raise self._refuse(n, f"variable {circuit.variables[variable].name!r} is not binary")
        try:
            self.vtree, of_scope = derive_vtree(circuit)
        except StructureError as error:
            raise FormatError(f"this circuit is no PSDD: {error}. Save it as .jpc or .json instead") from error
        self.place: list[int] = of_scope[circuit.scopes.id].tolist()
        self.vtree_id: list[int] = self.vtree.in_order().tolist()
        self.left: list[int] = self.vtree.left.tolist()
        self.parent = [-1] * self.vtree.num_nodes
        self.sibling = [-1] * self.vtree.num_nodes
        for n, (a, b) in enumerate(zip(self.left, self.vtree.right.tolist(), strict=True)):
            if a >= 0:
                self.parent[a] = self.parent[b] = n
                self.sibling[a], self.sibling[b] = b, a
        self.number = numbers_from_one(self.vtree.variables)
        self.out: list[str] = []
        self.ident = [-1] * circuit.num_nodes
        # Over one variable a node is its two log-probabilities; over more it is its decision's elements.
        self.table: list[tuple[float, float]] = [(0.0, 0.0)] * circuit.num_nodes
        self.elements: list[dict[tuple[int, int], float]] = [{}] * circuit.num_nodes

    def lines(self) -> list[str]:
        for n, node in enumerate(self.nodes):
            if self.left[self.place[n]] < 0:
                self.table[n] = self._over_one_variable(node)
            elif node.kind == PRODUCT and len(node.children) == 1:
                self.elements[n] = self.elements[node.children[0]]
            elif node.kind == PRODUCT:
                for child in node.children:
                    self._need(child)
                self.elements[n] = {self._pair(node.children, self.place[n]): 0.0}
            else:
                merged: dict[tuple[int, int], float] = {}
                for child, weight in zip(node.children, node.log_weights, strict=True):
                    for pair, w in self.elements[child].items():
                        merged[pair] = scan.log_add(merged.get(pair, -math.inf), w + weight)
                self.elements[n] = merged
        self._need(self.circuit.root)
        return self.out

    def _over_one_variable(self, node: Node) -> tuple[float, float]:
        """The log-probabilities of true and false."""
        if node.kind < PRODUCT:
            return node.table[1], node.table[0]
        if node.kind == PRODUCT:
            return self.table[node.children[0]]
        high = low = -math.inf
        for child, weight in zip(node.children, node.log_weights, strict=True):
            high = scan.log_add(high, weight + self.table[child][0])
            low = scan.log_add(low, weight + self.table[child][1])
        return high, low

    def _need(self, n: int) -> None:
        """Write the psdd node of circuit node ``n`` unless it is there."""
        if self.ident[n] >= 0:
            return
        if self.elements[n]:
            self.ident[n] = self._decision(self.place[n], self.elements[n], n)
            return
        at = self.vtree_id[self.place[n]]
        variable = self.number[int(self.vtree.var[self.place[n]])]
        log_true, log_false = (min(x, 0.0) if x <= scan.LOG_SLACK else x for x in self.table[n])
        total = scan.log_add(log_true, log_false)
        if self.circuit.kind[n] != BERNOULLI and {log_true, log_false} == {0.0, -math.inf}:
            self.ident[n] = self._line(f"L {{}} {at} {variable if log_true == 0 else -variable}")
        elif abs(total) < TRUE_SLACK and max(log_true, log_false) <= 0:
            one = scan.one_number(log_true, log_false)
            logs = f"{log_true!r} {log_false!r}" if one is None else repr(one)
            self.ident[n] = self._line(f"T {{}} {at} {variable} {logs}")
        else:
            raise self._refuse(n, "its two probabilities do not add up to 1", normalise=True)

    def _pair(self, nodes: Sequence[int], place: int) -> tuple[int, int]:
        """The prime and sub of a product at a vtree node, its parts joined along the vtree."""
        ready = {self.place[n]: self.ident[n] for n in nodes}
        waiting = list(ready)
        while True:
            part = waiting.pop()
            other = self.sibling[part]
            if other not in ready:
                continue  # the sibling will find this part when it is complete
            above = self.parent[part]
            prime, sub = (part, other) if self.left[above] == part else (other, part)
            pair = (ready[prime], ready[sub])
            if above == place:
                return pair
            ready[above] = self._decision(above, {pair: 0.0}, -1)
            waiting.append(above)

    def _decision(self, place: int, elements: dict[tuple[int, int], float], n: int) -> int:
        for weight in elements.values():
            if not weight <= scan.LOG_SLACK:
                raise self._refuse(n, f"log-weight {weight!r} is above 0", normalise=True)
        text = " ".join(f"{prime} {sub} {min(w, 0.0)!r}" for (prime, sub), w in elements.items())
        return self._line(f"D {{}} {self.vtree_id[place]} {len(elements)} {text}")

    def _line(self, text: str) -> int:
        self.out.append(text.format(len(self.out)))
        return len(self.out) - 1

    def _refuse(self, n: int, why: str, *, normalise: bool = False) -> FormatError:
        kind = KIND_NAMES[self.circuit.kind[n]]
        remedy = "Call margmap.normalise(circuit) first, or save" if normalise else "Save"
        return FormatError(
            f"node {n} ({kind}) cannot be written as psdd: {why}. {remedy} the circuit as .jpc or .json instead"
        )
