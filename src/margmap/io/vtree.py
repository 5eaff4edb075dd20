"""The vtree text format: ``vtree N``, then ``L id variable`` and ``I id left right``, children first, the root last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from margmap.circuit.vtree import Vtree
from margmap.errors import FormatError
from margmap.io import reading as scan
from margmap.io.writing import numbers_from_one


def read(lines: Sequence[str], path: Path) -> Vtree:
    """The vtree of a file, its variables named by their numbers."""
    left: list[int] = []
    right: list[int] = []
    name: list[int] = []  # -1 at inner nodes
    nodes = scan.Nodes()
    node = nodes.made
    parent: dict[int, int] = {}  # of ids
    leaf_line: dict[int, int] = {}  # of variables

    def add(a: int, b: int, variable: int) -> int:
        left.append(a)
        right.append(b)
        name.append(variable)
        return len(left) - 1

    def leaf(tokens: list[str]) -> int:
        variable = scan.variable_number(int(tokens[2]))
        if variable in leaf_line:
            raise FormatError(f"variable {variable} has a leaf already, on line {leaf_line[variable]}")
        leaf_line[variable] = nodes.line
        return add(-1, -1, variable)

    def inner(tokens: list[str]) -> int:
        ident, *below = map(int, tokens[1:])
        for child in below:
            if child in parent:
                raise FormatError(f"node {child} has a parent already, node {parent[child]}: this is not a tree")
            if child in node:
                parent[child] = ident
        return add(node[below[0]], node[below[1]], -1)

    rules = {
        "L": scan.Rule("L id variable", leaf, (3, 3)),
        "I": scan.Rule("I id left right", inner, (4, 4), children=(slice(2, None),)),
    }
    nodes.read(scan.node_lines(lines, path, "vtree"), lines, path, rules)
    orphan = next((ident for ident in list(node)[:-1] if ident not in parent), None)
    if orphan is not None:
        message = f"node {orphan} has no parent and is not the last node, the root: the file is truncated or no tree"
        raise FormatError(message, path=path, line=len(lines))
    names = sorted(leaf_line)
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
