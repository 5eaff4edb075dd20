"""The AC text format of Libra: as spn, but with constants ``n value`` and sums without weights.

Weights are constants inside products there. Reading carries every node as a constant times a circuit node, so that
constants move up until a sum takes them as weights; writing does the reverse.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from margmap.circuit import INDICATOR, PRODUCT, Circuit, Parts, assemble
from margmap.errors import FormatError
from margmap.io import reading as scan
from margmap.io.spn import body, header_line, indicator_rule, possible, read_header
from margmap.io.writing import nodes_of

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
    nodes = scan.Nodes()
    terms = nodes.made
    indicator = indicator_rule(variables, parts)

    def combined(combine: Callable[[Sequence[_Term], Parts], _Term], what: str) -> scan.Rule:
        def read(tokens: list[str]) -> _Term:
            scan.check_size(len(tokens) - 1, what)
            return combine([terms[int(token)] for token in tokens[1:]], parts)

        return scan.Rule(f"{what} id...", read, (1, sys.maxsize), children=(slice(1, None),))

    rules = {
        "v": indicator._replace(read=lambda tokens: _Term(0.0, indicator.read(tokens))),
        "n": scan.Rule("n value", lambda tokens: _Term(_constant(tokens[1]), None), (2, 2)),
        "*": combined(_multiply, "a product"),
        "+": combined(_add, "a sum"),
    }
    nodes.read(body(lines, path), lines, path, rules, ("EOF",), ids=False)
    root: _Term = terms[len(terms) - 1]
    if root.node is None:
        what = "the root is a constant: there is no distribution in this file"
        raise FormatError(what, path=path, line=nodes.line)
    # A factor is left over only if no sum above could take it.
    top = root.node if root.log_factor == 0 else parts.sum([root.node], [root.log_factor])
    return assemble(variables, parts, top)


def write(circuit: Circuit) -> Iterator[str]:
    """The lines of an ac file: leaves become indicators, weights become constants; a Gaussian leaf is refused."""
    yield header_line(circuit)
    yield from _body(circuit)
    yield "EOF"


def _constant(token: str) -> float:
    value = float(token)
    if not 0 <= value < math.inf:
        raise FormatError(f"constant {value}: it must be a finite number, not negative (and not a log)")
    return math.log(value) if value > 0 else -math.inf


def _multiply(terms: Sequence[_Term], parts: Parts) -> _Term:
    factor = sum(term.log_factor for term in terms)
    nodes = [term.node for term in terms if term.node is not None]
    if len(nodes) < 2:
        return _Term(factor, nodes[0] if nodes else None)
    return _Term(factor, parts.product(nodes))


def _add(terms: Sequence[_Term], parts: Parts) -> _Term:
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
        raise FormatError(
            "a sum adds a constant to a function of variables: the circuit is not smooth and cannot be read"
        )
    if len(children) == 1:
        return _Term(weights[0], children[0])
    return _Term(0.0, parts.sum(children, weights))


def _body(circuit: Circuit) -> list[str]:
    out: list[str] = []
    shared: dict[str, int] = {}
    ident: list[int] = []

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

    for node in nodes_of(circuit, "ac"):
        if node.kind == INDICATOR:
            ident.append(once(f"v {node.var} {int(node.parameters[0])}"))
            continue
        terms = [ident[child] for child in node.children]
        if node.kind < PRODUCT:
            terms = [weighted(once(f"v {node.var} {value}"), log_p) for value, log_p in possible(node.table)]
        elif node.kind > PRODUCT:
            terms = list(map(weighted, terms, node.log_weights))
        ident.append(line(("* " if node.kind == PRODUCT else "+ ") + " ".join(map(str, terms))))
    return out
