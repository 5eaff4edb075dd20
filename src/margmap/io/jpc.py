"""The JPC text format of Juice: ``jpc N``, then ``L``, ``P``, ``S`` and newer ``I``, ``B``, ``C`` lines, root last."""

from __future__ import annotations

import math
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
from margmap.io.writing import discrete_tables, numbers_from_one, refuse_gaussian

_SYNTAX = {
    "L": "L id vtree literal",
    "P": "P id vtree k child*k",
    "S": "S id vtree k (child logp)*k",
    "I": "I id vtree variable value",
    "B": "B id vtree variable trials logp",
    "C": "C id vtree variable logp...",
}
_LEAST = {"L": 4, "P": 5, "S": 6, "I": 5, "B": 6, "C": 5}


def read(lines: Sequence[str], path: Path) -> Circuit:
    """The circuit of a jpc file. A variable has as many values as its lines need, two at least."""
    first = scan.header(lines, path, "jpc")
    parts = Parts.new()
    node: dict[int, int] = {}
    values = _Cardinalities(path)
    for number, line in enumerate(lines[first:], first + 1):
        tokens = line.split()
        if not tokens or tokens[0] == "c":
            continue
        tag = tokens[0]
        try:
            if tag not in _SYNTAX:
                raise scan.unknown_node(tag, "L, P, S, I, B, C, c", path, number)
            if len(tokens) < _LEAST[tag]:
                scan.check_count(tokens, _LEAST[tag], _SYNTAX[tag], path, number)
            ident = int(tokens[1])
            if tag == "P":
                _check_fan(tokens, 1, path, number)
                made = parts.product([node[int(token)] for token in tokens[4:]])
            elif tag == "S":
                _check_fan(tokens, 2, path, number)
                weights = list(map(float, tokens[5::2]))
                for weight in weights:
                    if not weight < math.inf:
                        raise scan.bad_log_weight(weight, path, number)
                made = parts.sum([node[int(token)] for token in tokens[4::2]], weights)
            else:
                made = _leaf(tag, tokens, parts, values, path, number)
        except ValueError as error:
            raise scan.bad_number(error, path, number) from None
        except KeyError as error:
            raise scan.missing_child(ident, error.args[0], path, number, _later(lines, number)) from None
        if ident in node:
            raise scan.duplicate(ident, path, number)
        node[ident] = made
    if not node:
        raise scan.no_nodes(path, len(lines))
    return scan.assemble_named(parts, values.number)


def write(circuit: Circuit) -> Iterator[str]:
    """The lines of a jpc file, all with vtree id 0 as Juice writes them; a Gaussian leaf is refused.

    Leaves of binary variables become literals and sums over them, which every reader of the format knows.
    """
    refuse_gaussian(circuit, "jpc")
    body = _body(circuit)
    yield "c margmap: S lines hold child and natural log of the weight in turns"
    yield f"jpc {len(body)}"
    yield from body


def _leaf(tag: str, tokens: Sequence[str], parts: Parts, values: _Cardinalities, path: Path, number: int) -> int:
    variable = int(tokens[3])
    if tag == "L":
        scan.check_count(tokens, 4, _SYNTAX[tag], path, number)
        value, variable = (1, variable) if variable > 0 else (0, -variable)
    if not 0 < variable <= scan.MAX_VARIABLE:
        raise scan.bad_variable(variable, path, number)
    if tag == "L":
        values.at_least(variable, 2, number)
        return parts.leaf(INDICATOR, variable, (float(value),))
    if tag == "C":
        logs = [_log_probability(token, path, number) for token in tokens[4:]]
        values.exactly(variable, len(logs), number)
        return parts.leaf(CATEGORICAL, variable, logs)
    scan.check_count(tokens, _LEAST[tag], _SYNTAX[tag], path, number)
    count = int(tokens[4])
    if not 0 <= count < MAX_CARDINALITY:
        what = "value" if tag == "I" else "number of trials"
        raise FormatError(f"{what} {count} is out of range 0 to {MAX_CARDINALITY - 1}", path=path, line=number)
    if tag == "I":
        values.at_least(variable, max(2, count + 1), number)
        return parts.leaf(INDICATOR, variable, (float(count),))
    values.exactly(variable, count + 1, number)
    log_p = _log_probability(tokens[5], path, number)
    return parts.leaf(BINOMIAL, variable, (float(count), log_p, scan.log1mexp(log_p)))


class _Cardinalities:
    """How many values each variable needs, and the line that fixed it where one did."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number: dict[int, int] = {}
        self.fixed: dict[int, int] = {}

    def at_least(self, variable: int, needed: int, line: int) -> None:
        have = self.number.get(variable, 0)
        if needed > have:
            if variable in self.fixed:
                raise self._conflict(variable, have, f"a value numbered {needed - 1}", line)
            self.number[variable] = needed

    def exactly(self, variable: int, needed: int, line: int) -> None:
        have = self.number.get(variable, needed)
        if have > needed or (variable in self.fixed and have != needed):
            raise self._conflict(variable, have, f"{needed} values", line)
        if needed > MAX_CARDINALITY:
            raise FormatError(f"variable {variable} has more than {MAX_CARDINALITY} values", path=self.path, line=line)
        self.number[variable] = needed
        self.fixed.setdefault(variable, line)

    def _conflict(self, variable: int, have: int, wanted: str, line: int) -> FormatError:
        where = f" (line {self.fixed[variable]})" if variable in self.fixed else ""
        message = f"variable {variable} has {have} values{where}, but this line needs {wanted}: the lines must agree"
        return FormatError(message, path=self.path, line=line)


def _log_probability(token: str, path: Path, number: int) -> float:
    value = float(token)
    return value if value <= 0 else scan.bad_log_probability(value, path, number)


def _check_fan(tokens: Sequence[str], each: int, path: Path, number: int) -> None:
    size = int(tokens[3])
    scan.check_size(size, "a sum or product", path, number)
    if len(tokens) != 4 + each * size:
        scan.check_count(tokens, 4 + each * size, _SYNTAX[tokens[0]], path, number)


def _later(lines: Sequence[str], number: int) -> Iterator[tuple[int, int, list[int]]]:
    for at, line in enumerate(lines[number - 1 :], number):
        tokens = line.split()
        try:
            if len(tokens) > 1 and tokens[0] in _SYNTAX:
                below = tokens[4:] if tokens[0] == "P" else tokens[4::2] if tokens[0] == "S" else []
                yield at, int(tokens[1]), [int(token) for token in below]
        except ValueError:
            continue  # the line that is reported comes before this one


def _body(circuit: Circuit) -> list[str]:
    names = numbers_from_one(circuit.names)
    tables = discrete_tables(circuit)
    child, weight, start = circuit.child.tolist(), circuit.log_weight.tolist(), circuit.start.tolist()
    out: list[str] = []
    literals: dict[int, int] = {}

    def line(text: str) -> int:
        out.append(text.format(len(out)))
        return len(out) - 1

    def literal(value: int) -> int:
        if value not in literals:
            literals[value] = line(f"L {{}} 0 {value}")
        return literals[value]

    # A line that nothing refers to: readers learn from it that the variable has this many values.
    for name, variable in zip(names, circuit.variables, strict=True):
        if variable.cardinality > 2:
            line(f"I {{}} 0 {name} {variable.cardinality - 1}")

    ident: list[int] = []
    for n, kind in enumerate(circuit.kind.tolist()):
        edges = range(start[n], start[n + 1])
        if kind == PRODUCT:
            ident.append(line(f"P {{}} 0 {len(edges)} " + " ".join(str(ident[child[e]]) for e in edges)))
        elif kind > PRODUCT:
            terms = " ".join(f"{ident[child[e]]} {weight[e]!r}" for e in edges)
            ident.append(line(f"S {{}} 0 {len(edges)} {terms}"))
        else:
            name, table = names[circuit.var[n]], tables[n]
            param = circuit.param[circuit.param_start[n] : circuit.param_start[n + 1]].tolist()
            if len(table) == 2 and kind == INDICATOR:
                ident.append(literal(name if param[0] else -name))
            elif len(table) == 2:
                terms = f"{literal(name)} {table[1]!r} {literal(-name)} {table[0]!r}"
                ident.append(line(f"S {{}} 0 2 {terms}"))
            elif kind == INDICATOR and len(table) > 2:
                ident.append(line(f"I {{}} 0 {name} {int(param[0])}"))
            elif kind == BINOMIAL and (one := scan.one_number(param[1], param[2])) is not None:
                ident.append(line(f"B {{}} 0 {name} {int(param[0])} {one!r}"))
            else:
                ident.append(line(f"C {{}} 0 {name} " + " ".join(map(repr, table))))
    return out
