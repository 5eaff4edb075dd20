"""The vtree text format: ``vtree N``, then ``L id variable`` and ``I id left right``, children first, the root last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from margmap.circuit.vtree import Vtree
from margmap.errors import FormatError
from margmap.io import reading as scan
from margmap.io.writing import numbers_from_one

_L, _I = "L id variable", "I id left right"


def read(lines: Sequence[str], path: Path) -> Vtree:
    """The vtree of a file, its variables named by their numbers."""
    first = scan.header(lines, path, "vtree")
    left: list[int] = []
    right: list[int] = []
    name: list[int] = []  # -1 at inner nodes
    node: dict[int, int] = {}
    parent: dict[int, int] = {}  # of ids
    leaf: dict[int, int] = {}  # of variables: the line
    for number, line in enumerate(lines[first:], first + 1):
        tokens = line.split()
        if not tokens or tokens[0] == "c":
            continue
        try:
            if tokens[0] == "L":
                scan.check_count(tokens, 3, _L, path, number)
                ident, variable = int(tokens[1]), int(tokens[2])
                if not 0 < variable <= scan.MAX_VARIABLE:
                    raise scan.bad_variable(variable, path, number)
                if variable in leaf:
                    message = f"variable {variable} has a leaf already, on line {leaf[variable]}"
                    raise FormatError(message, path=path, line=number)
                leaf[variable] = number
                a, b = -1, -1
            elif tokens[0] == "I":
                scan.check_count(tokens, 4, _I, path, number)
                ident, variable = int(tokens[1]), -1
                for child in (int(tokens[2]), int(tokens[3])):
                    if child in parent:
                        message = f"node {child} has a parent already, node {parent[child]}: this is not a tree"
                        raise FormatError(message, path=path, line=number)
                    if child in node:
                        parent[child] = ident
                a, b = node[int(tokens[2])], node[int(tokens[3])]
            else:
                raise scan.unknown_node(tokens[0], "L, I, c", path, number)
        except ValueError as error:
            raise scan.bad_number(error, path, number) from None
        except KeyError as error:
            raise scan.missing_child(ident, error.args[0], path, number, _later(lines, number)) from None
        if ident in node:
            raise scan.duplicate(ident, path, number)
        node[ident] = len(left)
        left.append(a)
        right.append(b)
        name.append(variable)
    if not node:
        raise scan.no_nodes(path, len(lines))
    orphan = next((ident for ident in list(node)[:-1] if ident not in parent), None)
    if orphan is not None:
        message = f"node {orphan} has no parent and is not the last node, the root: the file is truncated or no tree"
        raise FormatError(message, path=path, line=len(lines))
    names = sorted(leaf)
    column = {variable: position for position, variable in enumerate(names)}
    return Vtree(names, left, right, [column.get(variable, -1) for variable in name])


def write(vtree: Vtree) -> Iterator[str]:
    """The lines of a vtree file, nodes numbered in order (left, node, right) from 0 as the SDD tools do."""
    ident = vtree.in_order().tolist()
    number = numbers_from_one(vtree.variables)
    yield "c margmap: ids are in-order positions; children before parents"
    yield f"vtree {vtree.num_nodes}"
    left, right, var = vtree.left.tolist(), vtree.right.tolist(), vtree.var.tolist()
    for n in range(vtree.num_nodes):
        if left[n] < 0:
            yield f"L {ident[n]} {number[var[n]]}"
        else:
            yield f"I {ident[n]} {ident[left[n]]} {ident[right[n]]}"


def _later(lines: Sequence[str], number: int) -> Iterator[tuple[int, int, list[int]]]:
    for at, line in enumerate(lines[number - 1 :], number):
        tokens = line.split()
        try:
            if len(tokens) > 1 and tokens[0] in ("L", "I"):
                yield at, int(tokens[1]), [int(token) for token in tokens[2:]] if tokens[0] == "I" else []
        except ValueError:
            continue  # the line that is reported comes before this one
