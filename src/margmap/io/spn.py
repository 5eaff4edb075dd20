"""The SPN text format of MaxSPN and Juice: ``(2 2 3)``, then ``v``, ``*`` and ``+`` lines, then ``EOF``.

Nodes have no ids: they are referred to by their position, from 0, the header not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from margmap.circuit import INDICATOR, MAX_CARDINALITY, PRODUCT, Circuit, Parts, Variable, assemble
from margmap.errors import FormatError
from margmap.io import reading as scan
from margmap.io.writing import discrete_tables, refuse_gaussian


def read(lines: Sequence[str], path: Path) -> Circuit:
    """The circuit of an spn file, over all variables of its header, named 0, 1, ..."""
    variables = read_header(lines, path)
    parts = Parts.new()
    for number, tokens in body(lines, path):
        tag = tokens[0]
        try:
            if tag == "v":
                read_indicator(tokens, variables, parts, path, number)
            elif tag == "*":
                scan.check_size(len(tokens) - 1, "a product", path, number)
                parts.product(read_children(tokens[1:], lines, path, number, spn_children))
            elif tag == "+":
                scan.check_size(len(tokens) // 2, "a sum", path, number)
                if len(tokens) % 2 == 0:
                    scan.check_count(tokens, len(tokens) + 1, "+ (id logw)...", path, number)
                weights = list(map(float, tokens[2::2]))
                for weight in weights:
                    if not weight < math.inf:
                        raise scan.bad_log_weight(weight, path, number)
                parts.sum(read_children(tokens[1::2], lines, path, number, spn_children), weights)
            else:
                raise scan.unknown_node(tag, "v, *, +, EOF", path, number)
        except ValueError as error:
            raise scan.bad_number(error, path, number) from None
    return assemble(variables, parts)


def write(circuit: Circuit) -> Iterator[str]:
    """The lines of an spn file: leaves become indicators and sums over them; a Gaussian leaf is refused."""
    refuse_gaussian(circuit, "spn")
    count = 0
    indicators: dict[tuple[int, int], int] = {}
    ident: list[int] = []
    tables = discrete_tables(circuit)
    child, weight, start = circuit.child.tolist(), circuit.log_weight.tolist(), circuit.start.tolist()
    yield header_line(circuit)
    for n, (kind, var) in enumerate(zip(circuit.kind.tolist(), circuit.var.tolist(), strict=True)):
        if kind < PRODUCT:
            terms = []
            for value, log_p in possible(tables[n]):
                if (var, value) not in indicators:
                    indicators[var, value] = count
                    count += 1
                    yield f"v {var} {value}"
                terms.append(f"{indicators[var, value]} {log_p!r}")
            if kind == INDICATOR:
                ident.append(indicators[var, value])
                continue
            yield "+ " + " ".join(terms)
        else:
            edges = range(start[n], start[n + 1])
            if kind == PRODUCT:
                yield "* " + " ".join(str(ident[child[e]]) for e in edges)
            else:
                yield "+ " + " ".join(f"{ident[child[e]]} {weight[e]!r}" for e in edges)
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


def read_indicator(tokens: Sequence[str], variables: Sequence[Variable], parts: Parts, path: Path, number: int) -> int:
    """Add the leaf of a line ``v variable value``."""
    if len(tokens) != 3:
        scan.check_count(tokens, 3, "v variable value", path, number)
    variable, value = int(tokens[1]), int(tokens[2])
    if not 0 <= variable < len(variables):
        message = f"variable {variable} is out of range: the header has {len(variables)}, numbered from 0"
        raise FormatError(message, path=path, line=number)
    if not 0 <= value < variables[variable].cardinality:
        most = variables[variable].cardinality - 1
        raise FormatError(f"value {value} of variable {variable} is out of range 0 to {most}", path=path, line=number)
    return parts.leaf(INDICATOR, variable, (float(value),))


def read_children(
    tokens: Sequence[str],
    lines: Sequence[str],
    path: Path,
    number: int,
    children_of: Callable[[Sequence[str]], Sequence[str]],
) -> list[int]:
    """The positions of a node's children, all of them before its own."""
    own = number - 2
    children = list(map(int, tokens))
    if min(children) < 0:
        raise FormatError(f"child {min(children)}: nodes are numbered from 0", path=path, line=number)
    if max(children) >= own:
        missing = next(child for child in children if child >= own)
        raise scan.missing_child(own, missing, path, number, _later(lines, number, children_of))
    return children


def spn_children(tokens: Sequence[str]) -> Sequence[str]:
    """The words of a line that refer to children."""
    return tokens[1:] if tokens[0] == "*" else tokens[1::2] if tokens[0] == "+" else ()


def _later(
    lines: Sequence[str], number: int, children_of: Callable[[Sequence[str]], Sequence[str]]
) -> Iterator[tuple[int, int, list[int]]]:
    for at, line in enumerate(lines[number - 1 :], number):
        tokens = line.split()
        if not tokens or tokens == ["EOF"]:
            return
        try:
            yield at, at - 2, [int(token) for token in children_of(tokens)]
        except ValueError:
            yield at, at - 2, []


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
