"""The JPC text format of Juice: ``jpc N``, then ``L``, ``P``, ``S`` and newer ``I``, ``B``, ``C`` lines, root last."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from margmap.circuit import (
    BINOMIAL,
    CATEGORICAL,
    INDICATOR,
    MAX_CARDINALITY,
    PRODUCT,
    Circuit,
    Parts,
)
from margmap.errors import FormatError
from margmap.io import reading as scan
from margmap.io.writing import Node, nodes_of, numbers_from_one


def read(lines: Sequence[str], path: Path) -> Circuit:
    """The circuit of a jpc file. A variable has as many values as its lines need, two at least."""
    parts = Parts.new()
    nodes = scan.Nodes()
    node = nodes.made
    values = _Cardinalities(nodes)

    def product(tokens: list[str]) -> int:
        return parts.product([node[int(token)] for token in tokens[4:]])

    def add(tokens: list[str]) -> int:
        weights = scan.log_weights(tokens[5::2])
        return parts.sum([node[int(token)] for token in tokens[4::2]], weights)

    def literal(tokens: list[str]) -> int:
        value = int(tokens[3])
        variable = scan.variable_number(abs(value))
        values.at_least(variable, 2)
        return parts.leaf(INDICATOR, variable, (float(value > 0),))

    def indicator(tokens: list[str]) -> int:
        variable, value = scan.variable_number(int(tokens[3])), _count(tokens[4], "value")
        values.at_least(variable, max(2, value + 1))
        return parts.leaf(INDICATOR, variable, (float(value),))

    def binomial(tokens: list[str]) -> int:
        variable, trials = scan.variable_number(int(tokens[3])), _count(tokens[4], "number of trials")
        values.exactly(variable, trials + 1)
        (log_p,) = scan.log_probabilities(tokens[5:])
        return parts.leaf(BINOMIAL, variable, (float(trials), log_p, scan.log1mexp(log_p)))

    def categorical(tokens: list[str]) -> int:
        variable, logs = scan.variable_number(int(tokens[3])), scan.log_probabilities(tokens[4:])
        values.exactly(variable, len(logs))
        return parts.leaf(CATEGORICAL, variable, logs)

    rules = {
        "L": scan.Rule("L id vtree literal", literal, (4, 4)),
        "P": scan.Rule("P id vtree k child*k", product, (4, 4), 1, (slice(4, None),)),
        "S": scan.Rule("S id vtree k (child logp)*k", add, (4, 4), 2, (slice(4, None, 2),)),
        "I": scan.Rule("I id vtree variable value", indicator, (5, 5)),
        "B": scan.Rule("B id vtree variable trials logp", binomial, (6, 6)),
        "C": scan.Rule("C id vtree variable logp...", categorical, (5, sys.maxsize)),
    }
    nodes.read(scan.node_lines(lines, path, "jpc"), lines, path, rules)
    return scan.assemble_named(parts, values.number)


def write(circuit: Circuit) -> Iterator[str]:
    """The lines of a jpc file, all with vtree id 0 as Juice writes them; a Gaussian leaf is refused.

    Leaves of binary variables become literals and sums over them, which every reader of the format knows.
    """
    body = _body(circuit)
    yield "c margmap: S lines hold child and natural log of the weight in turns"
    yield f"jpc {len(body)}"
    yield from body


def _count(token: str, what: str) -> int:
    count = int(token)
    if not 0 <= count < MAX_CARDINALITY:
        raise FormatError(f"{what} {count} is out of range 0 to {MAX_CARDINALITY - 1}")
    return count


class _Cardinalities:
    """How many values each variable needs, and the line that fixed it where one did."""

    def __init__(self, nodes: scan.Nodes) -> None:
        self.nodes = nodes
        self.number: dict[int, int] = {}
        self.fixed: dict[int, int] = {}

    def at_least(self, variable: int, needed: int) -> None:
        have = self.number.get(variable, 0)
        if needed > have:
            if variable in self.fixed:
                raise self._conflict(variable, have, f"a value numbered {needed - 1}")
            self.number[variable] = needed

    def exactly(self, variable: int, needed: int) -> None:
        have = self.number.get(variable, needed)
        if have > needed or (variable in self.fixed and have != needed):
            raise self._conflict(variable, have, f"{needed} values")
        if needed > MAX_CARDINALITY:
            raise FormatError(f"variable {variable} has more than {MAX_CARDINALITY} values")
        self.number[variable] = needed
        self.fixed.setdefault(variable, self.nodes.line)

    def _conflict(self, variable: int, have: int, wanted: str) -> FormatError:
        where = f" (line {self.fixed[variable]})" if variable in self.fixed else ""
        return FormatError(
            f"variable {variable} has {have} values{where}, but this line needs {wanted}: the lines must agree"
        )


def _body(circuit: Circuit) -> list[str]:
    names = numbers_from_one(circuit.names)
    out: list[str] = []
    literals: dict[int, int] = {}

    def line(text: str) -> int:
        out.append(text.format(len(out)))
        return len(out) - 1

    def literal(value: int) -> int:
        if value not in literals:
            literals[value] = line(f"L {{}} 0 {value}")
        return literals[value]

    def leaf(node: Node) -> int:
        name, table, param = names[node.var], node.table, node.parameters
        if len(table) == 2 and node.kind == INDICATOR:
            return literal(name if param[0] else -name)
        if len(table) == 2:
            return line(f"S {{}} 0 2 {literal(name)} {table[1]!r} {literal(-name)} {table[0]!r}")
        if node.kind == INDICATOR and len(table) > 2:
            return line(f"I {{}} 0 {name} {int(param[0])}")
        if node.kind == BINOMIAL and (one := scan.one_number(param[1], param[2])) is not None:
            return line(f"B {{}} 0 {name} {int(param[0])} {one!r}")
        return line(f"C {{}} 0 {name} " + " ".join(map(repr, table)))

    nodes = nodes_of(circuit, "jpc")
    # A line that nothing refers to: readers learn from it that the variable has this many values.
    for name, variable in zip(names, circuit.variables, strict=True):
        if variable.cardinality > 2:
            line(f"I {{}} 0 {name} {variable.cardinality - 1}")
    ident: list[int] = []
    for node in nodes:
        below = [str(ident[child]) for child in node.children]
        if node.kind < PRODUCT:
            ident.append(leaf(node))
        elif node.kind == PRODUCT:
            ident.append(line(f"P {{}} 0 {len(below)} " + " ".join(below)))
        else:
            terms = (f"{child} {weight!r}" for child, weight in zip(below, node.log_weights, strict=True))
            ident.append(line(f"S {{}} 0 {len(below)} " + " ".join(terms)))
    return out
