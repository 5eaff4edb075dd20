"""The SPN text format of MaxSPN and Juice: ``(2 2 3)``, then ``v``, ``*`` and ``+`` lines, then ``EOF``.

Nodes have no ids: they are referred to by their position, from 0, the header not counted.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from margmap.circuit import INDICATOR, MAX_CARDINALITY, PRODUCT, Circuit, Parts, Variable, assemble
from margmap.errors import FormatError
from margmap.io import reading as scan
from margmap.io.writing import nodes_of


def read(lines: Sequence[str], path: Path) -> Circuit:
    """The circuit of an spn file, over all variables of its header, named 0, 1, ..."""
    variables = read_header(lines, path)
    parts = Parts.new()
    nodes = scan.Nodes()
    node = nodes.made

    def product(tokens: list[str]) -> int:
        scan.check_size(len(tokens) - 1, "a product")
        return parts.product([node[int(token)] for token in tokens[1:]])

    def add(tokens: list[str]) -> int:
        scan.check_size(len(tokens) // 2, "a sum")
        if len(tokens) % 2 == 0:
            scan.check_count(tokens, len(tokens) + 1, "+ (id logw)...")
        weights = scan.log_weights(tokens[2::2])
        return parts.sum([node[int(token)] for token in tokens[1::2]], weights)

    rules = {
        "v": indicator_rule(variables, parts),
        "*": scan.Rule("* id...", product, (1, sys.maxsize), children=(slice(1, None),)),
        "+": scan.Rule("+ (id logw)...", add, (1, sys.maxsize), children=(slice(1, None, 2),)),
    }
    nodes.read(body(lines, path), lines, path, rules, ("EOF",), ids=False)
    return assemble(variables, parts)


def write(circuit: Circuit) -> Iterator[str]:
    """The lines of an spn file: leaves become indicators and sums over them; a Gaussian leaf is refused."""
    count = 0
    indicators: dict[tuple[int, int], int] = {}
    ident: list[int] = []
    nodes = nodes_of(circuit, "spn")
    yield header_line(circuit)
    for node in nodes:
        if node.kind == PRODUCT:
            yield "* " + " ".join(str(ident[child]) for child in node.children)
        elif node.kind > PRODUCT:
            terms = zip(node.children, node.log_weights, strict=True)
            yield "+ " + " ".join(f"{ident[child]} {weight!r}" for child, weight in terms)
        else:
            leaves = [((node.var, value), log_p) for value, log_p in possible(node.table)]
            for key, _ in leaves:
                if key not in indicators:
                    indicators[key] = count
                    count += 1
                    yield f"v {key[0]} {key[1]}"
            if node.kind == INDICATOR:
                ident.append(indicators[leaves[-1][0]])
                continue
            yield "+ " + " ".join(f"{indicators[key]} {log_p!r}" for key, log_p in leaves)
        ident.append(count)
        count += 1
    yield "EOF"


def read_header(lines: Sequence[str], path: Path) -> list[Variable]:
    """The variables of a header ``(2 2 3)``."""
    scan.check_characters(lines, path)
    text = lines[0].strip()
    if not (text.startswith("(") and text.endswith(")")):
        message = f"expected the numbers of values in parentheses, such as '(2 2 3)', found {scan.shorten(text)!r}"
        raise FormatError(message, path=path, line=1)
    try:
        cardinalities = [int(token) for token in text[1:-1].split()]
    except ValueError as error:
        raise scan.bad_number(error, path, 1) from None
    for position, cardinality in enumerate(cardinalities):
        if not 1 <= cardinality <= MAX_CARDINALITY:
            message = f"variable {position} has {cardinality} values: that is out of range 1 to {MAX_CARDINALITY}"
            raise FormatError(message, path=path, line=1)
    return [Variable(position, cardinality) for position, cardinality in enumerate(cardinalities)]


def body(lines: Sequence[str], path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and words of every node, up to ``EOF``, which must be there."""
    for number, line in enumerate(lines[1:], 2):
        tokens = line.split()
        if tokens == ["EOF"]:
            if number == 2:
                raise scan.no_nodes(path, number)
            rest = next((at for at, text in enumerate(lines[number:], number + 1) if text.strip()), None)
            if rest is not None:
                raise FormatError("text after EOF: are these two files in one?", path=path, line=rest)
            return
        if not tokens:
            if any(text.strip() for text in lines[number:]):
                raise FormatError("blank line: nodes are numbered by line, remove it", path=path, line=number)
            break
        yield number, tokens
    raise FormatError("truncated: the file ends without EOF", path=path, line=len(lines))


def indicator_rule(variables: Sequence[Variable], parts: Parts) -> scan.Rule:
    """The rule of lines ``v variable value``, which adds their leaves to ``parts``."""

    def read(tokens: list[str]) -> int:
        variable, value = int(tokens[1]), int(tokens[2])
        if not 0 <= variable < len(variables):
            raise FormatError(f"variable {variable} is out of range: the header has {len(variables)}, numbered from 0")
        if not 0 <= value < variables[variable].cardinality:
            most = variables[variable].cardinality - 1
            raise FormatError(f"value {value} of variable {variable} is out of range 0 to {most}")
        return parts.leaf(INDICATOR, variable, (float(value),))

    return scan.Rule("v variable value", read, (3, 3))


def header_line(circuit: Circuit) -> str:
    """The header: how many values each variable has."""
    for variable in circuit.variables:
        if variable.continuous:  # and no leaf mentions it
            raise FormatError(
                f"variable {variable.name!r} is continuous, and spn and ac files have none: save the circuit as .json "
                "or .mmz"
            )
    return "(" + " ".join(str(v.cardinality) for v in circuit.variables) + ")"


def possible(table: Sequence[float]) -> list[tuple[int, float]]:
    """The values of a leaf that can happen, with their log-probabilities; one value if none can."""
    return [(value, log_p) for value, log_p in enumerate(table) if log_p > -math.inf] or [(0, -math.inf)]
