"""The AC text format of Libra: as spn, but with constants ``n value`` and sums without weights.

Weights are constants inside products there. Reading carries every node as a constant times a circuit node, so that
constants move up until a sum takes them as weights; writing does the reverse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from margmap.circuit import INDICATOR, PRODUCT, Circuit, Parts, assemble
from margmap.errors import FormatError
from margmap.io import reading as scan
from margmap.io.spn import body, header_line, possible, read_children, read_header, read_indicator
from margmap.io.writing import discrete_tables, refuse_gaussian

# exp() of more than this, or less than its negative, leaves the range of normal floats.
_LARGEST_LOG = 700.0
# A weight beyond the floats is written as a product of up to this many constants.
_MOST_PIECES = 1000


class _Term(NamedTuple):
    """exp(log_factor) times a node, or just the factor if there is no node."""

    log_factor: float
    node: int | None


def read(lines: Sequence[str], path: Path) -> Circuit:
    """The circuit of an ac file, over all variables of its header, named 0, 1, ..."""
    variables = read_header(lines, path)
    parts = Parts.new()
    terms: list[_Term] = []
    number = 1
    for number, tokens in body(lines, path):
        tag = tokens[0]
        try:
            if tag == "v":
                term = _Term(0.0, read_indicator(tokens, variables, parts, path, number))
            elif tag == "n":
                scan.check_count(tokens, 2, "n value", path, number)
                term = _Term(_constant(tokens[1], path, number), None)
            elif tag in ("*", "+"):
                what = "a product" if tag == "*" else "a sum"
                scan.check_size(len(tokens) - 1, what, path, number)
                below = [terms[child] for child in read_children(tokens[1:], lines, path, number, _children)]
                term = _multiply(below, parts) if tag == "*" else _add(below, parts, path, number)
            else:
                raise scan.unknown_node(tag, "v, n, *, +, EOF", path, number)
        except ValueError as error:
            raise scan.bad_number(error, path, number) from None
        terms.append(term)
    root = terms[-1]
    if root.node is None:
        raise FormatError("the root is a constant: there is no distribution in this file", path=path, line=number)
    # A factor is left over only if no sum above could take it.
    top = root.node if root.log_factor == 0 else parts.sum([root.node], [root.log_factor])
    return assemble(variables, parts, top)


def write(circuit: Circuit) -> Iterator[str]:
    """The lines of an ac file: leaves become indicators, weights become constants; a Gaussian leaf is refused."""
    refuse_gaussian(circuit, "ac")
    yield header_line(circuit)
    yield from _body(circuit)
    yield "EOF"


def _constant(token: str, path: Path, number: int) -> float:
    value = float(token)
    if not 0 <= value < math.inf:
        message = f"constant {value}: it must be a finite number, not negative (and not a log)"
        raise FormatError(message, path=path, line=number)
    return math.log(value) if value > 0 else -math.inf


def _multiply(terms: Sequence[_Term], parts: Parts) -> _Term:
    factor = sum(term.log_factor for term in terms)
    nodes = [term.node for term in terms if term.node is not None]
    if len(nodes) < 2:
        return _Term(factor, nodes[0] if nodes else None)
    return _Term(factor, parts.product(nodes))


def _add(terms: Sequence[_Term], parts: Parts, path: Path, number: int) -> _Term:
    constant = -math.inf
    children: list[int] = []
    weights: list[float] = []
    for term in terms:
        if term.node is None:
            constant = scan.log_add(constant, term.log_factor)
        else:
            children.append(term.node)
            weights.append(term.log_factor)
    if not children:
        return _Term(constant, None)
    if constant > -math.inf:
        message = "a sum adds a constant to a function of variables: the circuit is not smooth and cannot be read"
        raise FormatError(message, path=path, line=number)
    if len(children) == 1:
        return _Term(weights[0], children[0])
    return _Term(0.0, parts.sum(children, weights))


def _children(tokens: Sequence[str]) -> Sequence[str]:
    return tokens[1:] if tokens[0] in ("*", "+") else ()


def _body(circuit: Circuit) -> list[str]:
    out: list[str] = []
    shared: dict[str, int] = {}
    ident: list[int] = []
    tables = discrete_tables(circuit)
    child, weight, start = circuit.child.tolist(), circuit.log_weight.tolist(), circuit.start.tolist()

    def line(text: str) -> int:
        out.append(text)
        return len(out) - 1

    def once(text: str) -> int:
        if text not in shared:
            shared[text] = line(text)
        return shared[text]

    def weighted(node: int, log_weight: float) -> int:
        if log_weight == 0:
            return node
        if log_weight == -math.inf:
            return line(f"* {once('n 0.0')} {node}")
        pieces = max(1, math.ceil(abs(log_weight) / _LARGEST_LOG))
        if pieces > _MOST_PIECES:
            raise FormatError(f"the log-weight {log_weight!r} cannot be written as ac: save the circuit as .json")
        factor = once(f"n {math.exp(log_weight / pieces)!r}")
        return line("* " + f"{factor} " * pieces + str(node))

    for n, (kind, var) in enumerate(zip(circuit.kind.tolist(), circuit.var.tolist(), strict=True)):
        edges = range(start[n], start[n + 1])
        if kind == INDICATOR:
            ident.append(once(f"v {var} {int(circuit.param[circuit.param_start[n]])}"))
        elif kind < PRODUCT:
            terms = [weighted(once(f"v {var} {value}"), log_p) for value, log_p in possible(tables[n])]
            ident.append(line("+ " + " ".join(map(str, terms))))
        elif kind == PRODUCT:
            ident.append(line("* " + " ".join(str(ident[child[e]]) for e in edges)))
        else:
            terms = [weighted(ident[child[e]], weight[e]) for e in edges]
            ident.append(line("+ " + " ".join(map(str, terms))))
    return out
