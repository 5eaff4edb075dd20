"""The PSDD text format: ``psdd N``, then ``L``, ``T`` and ``D`` lines, children first, the root last."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from margmap.circuit import BERNOULLI, INDICATOR, KIND_NAMES, PRODUCT, Circuit, Parts
from margmap.circuit.vtree import derive_vtree
from margmap.errors import FormatError, StructureError
from margmap.io import reading as scan
from margmap.io.writing import discrete_tables, numbers_from_one, refuse_gaussian

#: How far the two probabilities of a T line may be from adding up to 1 (files round to six decimals).
TRUE_SLACK = 1e-4

_L, _T, _D = "L id vtree literal", "T id vtree variable logp", "D id vtree k (prime sub logp)*k"


def read(lines: Sequence[str], path: Path) -> Circuit:
    """The circuit of a psdd file: D becomes a sum of products, T a Bernoulli leaf, L an indicator."""
    first = scan.header(lines, path, "psdd")
    parts = Parts.new()
    node: dict[int, int] = {}
    for number, line in enumerate(lines[first:], first + 1):
        tokens = line.split()
        if not tokens or tokens[0] == "c":
            continue
        tag = tokens[0]
        try:
            if tag == "D":
                if len(tokens) < 4:
                    scan.check_count(tokens, 7, _D, path, number)
                ident, size = int(tokens[1]), int(tokens[3])
                scan.check_size(size, "a decision node", path, number)
                if len(tokens) != 4 + 3 * size:
                    scan.check_count(tokens, 4 + 3 * size, _D, path, number)
                products, weights = [], []
                for i in range(4, len(tokens), 3):
                    weight = float(tokens[i + 2])
                    if not weight <= 0:
                        weight = scan.bad_log_probability(weight, path, number)
                    products.append(parts.product((node[int(tokens[i])], node[int(tokens[i + 1])])))
                    weights.append(weight)
                # A single element of probability 1 is its product.
                made = products[0] if size == 1 and weights[0] == 0 else parts.sum(products, weights)
            elif tag == "T":
                if len(tokens) != 6:
                    scan.check_count(tokens, 5, _T, path, number)
                ident, variable = int(tokens[1]), int(tokens[3])
                if not 0 < variable <= scan.MAX_VARIABLE:
                    raise scan.bad_variable(variable, path, number)
                made = parts.leaf(BERNOULLI, variable, _true_node(tokens[4:], path, number))
            elif tag == "L":
                if len(tokens) != 4:
                    scan.check_count(tokens, 4, _L, path, number)
                ident, literal = int(tokens[1]), int(tokens[3])
                if literal == 0 or abs(literal) > scan.MAX_VARIABLE:
                    raise scan.bad_variable(literal, path, number)
                made = parts.leaf(INDICATOR, abs(literal), (1.0 if literal > 0 else 0.0,))
            else:
                raise scan.unknown_node(tag, "L, T, D, c", path, number)
        except ValueError as error:
            raise scan.bad_number(error, path, number) from None
        except KeyError as error:
            later = _later(lines, number)
            raise scan.missing_child(ident, error.args[0], path, number, later) from None
        if ident in node:
            raise scan.duplicate(ident, path, number)
        node[ident] = made
    if not node:
        raise scan.no_nodes(path, len(lines))
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


def _true_node(tokens: Sequence[str], path: Path, number: int) -> tuple[float, float]:
    log_true = float(tokens[0])
    if not log_true <= 0:
        log_true = scan.bad_log_probability(log_true, path, number)
    if len(tokens) == 1:
        return log_true, scan.log1mexp(log_true)
    log_false = float(tokens[1])
    if not log_false <= 0:
        log_false = scan.bad_log_probability(log_false, path, number)
    if not abs(scan.log_add(log_true, log_false)) < TRUE_SLACK:
        message = (
            f"the two log-probabilities {log_true} (true) and {log_false} (false) of a T node do not add up to "
            "probability 1: drop the second or correct it"
        )
        raise FormatError(message, path=path, line=number)
    return log_true, log_false


def _later(lines: Sequence[str], number: int) -> Iterator[tuple[int, int, list[int]]]:
    for at, line in enumerate(lines[number - 1 :], number):
        tokens = line.split()
        try:
            if len(tokens) > 1 and tokens[0] in ("L", "T", "D"):
                below = tokens[4::3] + tokens[5::3] if tokens[0] == "D" else []
                yield at, int(tokens[1]), [int(token) for token in below]
        except ValueError:
            continue  # the line that is reported comes before this one


class _Writer:
    """Turns circuit nodes into psdd nodes, each when something first needs it."""

    def __init__(self, circuit: Circuit) -> None:
        self.circuit = circuit
        refuse_gaussian(circuit, "psdd")
        for n, variable in zip(range(circuit.num_nodes), circuit.var.tolist(), strict=True):
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

    def lines(self) -> list[str]:
        circuit, start = self.circuit, self.circuit.start.tolist()
        child, weight = circuit.child.tolist(), circuit.log_weight.tolist()
        tables = discrete_tables(circuit)
        # Over one variable a node is its two log-probabilities; over more it is its decision's elements.
        table: list[tuple[float, float]] = [(0.0, 0.0)] * circuit.num_nodes
        elements: list[dict[tuple[int, int], float]] = [{}] * circuit.num_nodes
        for n, kind in enumerate(circuit.kind.tolist()):
            edges = range(start[n], start[n + 1])
            if self.left[self.place[n]] < 0:
                if kind < PRODUCT:
                    table[n] = (tables[n][1], tables[n][0])
                elif kind == PRODUCT:
                    table[n] = table[child[edges[0]]]
                else:
                    table[n] = (-math.inf, -math.inf)
                    for e in edges:
                        pair = table[child[e]]
                        high, low = (scan.log_add(table[n][i], weight[e] + pair[i]) for i in (0, 1))
                        table[n] = (high, low)
            elif kind == PRODUCT and len(edges) == 1:
                elements[n] = elements[child[edges[0]]]
            elif kind == PRODUCT:
                for e in edges:
                    self._need(child[e], table, elements)
                elements[n] = {self._pair([child[e] for e in edges], self.place[n]): 0.0}
            else:
                merged: dict[tuple[int, int], float] = {}
                for e in edges:
                    for pair_ids, w in elements[child[e]].items():
                        merged[pair_ids] = scan.log_add(merged.get(pair_ids, -math.inf), w + weight[e])
                elements[n] = merged
        self._need(circuit.root, table, elements)
        return self.out

    def _need(self, n: int, table: list[tuple[float, float]], elements: list[dict[tuple[int, int], float]]) -> None:
        """Write the psdd node of circuit node ``n`` unless it is there."""
        if self.ident[n] >= 0:
            return
        if elements[n]:
            self.ident[n] = self._decision(self.place[n], elements[n], n)
            return
        at = self.vtree_id[self.place[n]]
        variable = self.number[int(self.vtree.var[self.place[n]])]
        log_true, log_false = (min(x, 0.0) if x <= scan.LOG_SLACK else x for x in table[n])
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
