"""margmap's own JSON form, the one that carries everything a circuit has; described in docs/formats.md."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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
    Encoding,
    Parts,
    Variable,
    assemble,
)
from margmap.errors import FormatError, StructureError
from margmap.io import reading as scan
from margmap.io.writing import all_nodes

VERSION = 1

_KINDS = {name: kind for kind, name in enumerate(KIND_NAMES)}
# The first parameter of these leaves is a whole number, and called so in messages.
_WHOLE = {INDICATOR: "value", BINOMIAL: "number of trials"}
_VARIABLE = {"name", "cardinality", "states", "encoding"}
# How many things follow the kind in a node's list.
_FIELDS = {INDICATOR: 2, BERNOULLI: 3, CATEGORICAL: 2, BINOMIAL: 4, GAUSSIAN: 3, PRODUCT: 1, SUM: 2}


def read(lines: Sequence[str], path: Path) -> Circuit:
    """The circuit of a JSON file."""
    data = scan.parse_json(lines, path)
    if not isinstance(data, dict) or data.get("format") != "margmap":
        raise FormatError('not a circuit: expected an object with "format": "margmap"', path=path)
    if data.get("version") != VERSION:
        found = scan.shorten(repr(data.get("version")))
        message = f"version {found} of the format is unknown, this margmap reads version {VERSION}"
        raise FormatError(message, path=path)
    variables, nodes = data.get("variables"), data.get("nodes")
    if not isinstance(variables, list) or not isinstance(nodes, list) or not nodes:
        raise FormatError('"variables" and "nodes" must be lists, the latter not empty', path=path)
    known = [read_variable(entry, position, path) for position, entry in enumerate(variables)]
    return assemble(known, _Reader(nodes, known, path).parts)


def write(circuit: Circuit) -> Iterator[str]:
    """The lines of a JSON file, one for each variable and node."""
    yield f'{{"format": "margmap", "version": {VERSION},'
    yield '"variables": ['
    last = len(circuit.variables) - 1
    for position, variable in enumerate(circuit.variables):
        yield json.dumps(written_variable(variable)) + ("," if position < last else "")
    yield '], "nodes": ['
    for n, node in enumerate(all_nodes(circuit)):
        weights, numbers = ([_dumped(x) for x in xs] for xs in (node.log_weights, node.parameters))
        if node.kind in _WHOLE:
            numbers[0] = int(node.parameters[0])
        fields: list[Any] = [node.var, *([numbers] if node.kind == CATEGORICAL else numbers)]
        if node.kind >= PRODUCT:
            fields = [node.children, weights] if node.kind == SUM else [node.children]
        yield json.dumps([KIND_NAMES[node.kind], *fields], allow_nan=False) + ("," if n < circuit.root else "")
    yield "]}"


def written_variable(variable: Variable) -> dict[str, Any]:
    """The entry of a variable in a list of variables."""
    entry: dict[str, Any] = {"name": variable.name, "cardinality": variable.cardinality}
    if variable.states:
        entry["states"] = list(variable.states)
    if variable.encoding is not None:
        entry["encoding"] = variable.encoding.to_dict()
    return entry


def _dumped(value: float) -> float | str:
    return "-inf" if value == -math.inf else value


def read_variable(entry: object, position: int, path: Path) -> Variable:
    """The variable of an entry in a list of variables."""
    where = f"variable number {position}"
    if not isinstance(entry, dict) or not set(entry) <= _VARIABLE or "name" not in entry:
        message = f'{where}: expected an object with "name" and, if wanted, "cardinality", "states" and "encoding"'
        raise FormatError(message, path=path)
    cardinality, states = entry.get("cardinality", 2), entry.get("states", [])
    if type(cardinality) is not int:
        raise FormatError(f"{where}: its cardinality is not a whole number", path=path)
    if not isinstance(states, list) or not all(isinstance(state, str) for state in states):
        raise FormatError(f"{where}: its states are not a list of strings", path=path)
    try:
        encoding = Encoding.from_dict(entry["encoding"]) if "encoding" in entry else None
        return Variable(entry["name"], cardinality, tuple(states), encoding)
    except StructureError as error:
        raise FormatError(f"{where}: {error}", path=path) from None


class _Reader:
    """Goes through the nodes once; every error names the number of the node."""

    def __init__(self, nodes: Sequence[object], variables: Sequence[Variable], path: Path) -> None:
        self.nodes, self.variables, self.path = nodes, variables, path
        self.parts = Parts.new()
        self.at = 0
        for self.at, node in enumerate(nodes):
            self._node(node)

    def _node(self, node: object) -> None:
        if not isinstance(node, list) or not node or not isinstance(node[0], str) or node[0] not in _KINDS:
            raise self._error(f"expected a list that starts with one of {', '.join(KIND_NAMES)}: unknown node type")
        kind = _KINDS[node[0]]
        fields = node[1:]
        if len(fields) != _FIELDS[kind]:
            what = "too few" if len(fields) < _FIELDS[kind] else "too many"
            raise self._error(f"{what} entries: {node[0]} needs {_FIELDS[kind]}, found {len(fields)}")
        if kind == PRODUCT:
            self.parts.product(self._children(fields[0]))
        elif kind == SUM:
            children, weights = self._children(fields[0]), self._numbers(fields[1])
            if len(weights) != len(children):
                raise self._error(f"{len(children)} children but {len(weights)} log-weights")
            self.parts.sum(children, weights)
        else:
            variable = self._whole(fields[0], len(self.variables), "variable")
            rest = fields[1] if kind == CATEGORICAL else fields[1:]
            first = []
            if kind in _WHOLE:
                first = [float(self._whole(rest.pop(0), self.variables[variable].cardinality, _WHOLE[kind]))]
            self.parts.leaf(kind, variable, [*first, *self._numbers(rest)])

    def _children(self, field: object) -> list[int]:
        if not isinstance(field, list) or not field:
            raise self._error("its children must be a list with at least one number")
        for child in field:
            if type(child) is not int or child < 0:
                raise self._error(f"child {scan.shorten(repr(child))} is not a whole number from 0")
            if child >= self.at:
                raise scan.missing_child(self.at, child, self.path, None, self._later())
        return field

    def _later(self) -> Iterator[tuple[int, int, Sequence[int]]]:
        for at, node in enumerate(self.nodes[self.at :], self.at):
            inner = isinstance(node, list) and len(node) > 1 and node[0] in ("product", "sum")
            children = node[1] if inner and isinstance(node, list) else []
            yield at, at, [child for child in children if type(child) is int] if isinstance(children, list) else []

    def _whole(self, field: object, count: int, what: str) -> int:
        if type(field) is not int:
            raise self._error(f"its {what} {scan.shorten(repr(field))} is not a whole number")
        if not 0 <= field < count:
            raise self._error(f"{what} {field} is out of range 0 to {count - 1}")
        return field

    def _numbers(self, field: object) -> list[float]:
        if not isinstance(field, list):
            raise self._error("expected a list of numbers")
        for value in field:
            if value != "-inf" and not (type(value) in (int, float) and abs(value) < math.inf):
                raise self._error(f'{scan.shorten(repr(value))} is not a finite number or "-inf"')
        try:
            return list(map(float, field))
        except OverflowError:
            raise self._error("a number is out of the range of floats") from None

    def _error(self, message: str) -> FormatError:
        return FormatError(f"node {self.at}: {message}", path=self.path)
