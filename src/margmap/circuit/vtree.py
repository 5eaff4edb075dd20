"""Vtrees: binary trees over variables that say how a structured circuit splits its scopes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from margmap.circuit import PRODUCT, Circuit, IntArray, Name
from margmap.circuit.model import as_circuit
from margmap.errors import StructureError


class Vtree:
    """An immutable vtree in flat arrays, children before parents, the root last.

    Node ``i`` is a leaf for ``variables[var[i]]`` if ``left[i]`` is -1, and else has the two children ``left[i]`` and
    ``right[i]`` and ``var[i] == -1``. Every variable has exactly one leaf.
    """

    def __init__(
        self,
        variables: Sequence[Name],
        left: Sequence[int] | IntArray,
        right: Sequence[int] | IntArray,
        var: Sequence[int] | IntArray,
    ) -> None:
        self.variables = tuple(variables)
        self.left = _frozen(left)
        self.right = _frozen(right)
        self.var = _frozen(var)
        self._validate()

    def __repr__(self) -> str:
        return f"Vtree({len(self.variables)} variables, {self.num_nodes} nodes)"

    @property
    def num_nodes(self) -> int:
        """The number of nodes, leaves included."""
        return int(self.left.size)

    def in_order(self) -> IntArray:
        """The position of every node when all are visited left child, node, right child: their ids in files."""
        position = np.zeros(self.num_nodes, dtype=np.int32)
        stack: list[int] = []
        count, node = 0, self.num_nodes - 1
        left, right = self.left.tolist(), self.right.tolist()
        while node >= 0 or stack:
            while node >= 0:
                stack.append(node)
                node = left[node]
            node = stack.pop()
            position[node] = count
            count += 1
            node = right[node]
        position.setflags(write=False)
        return position

    def _validate(self) -> None:
        n = self.num_nodes
        if n == 0 or not self.right.size == self.var.size == n:
            raise StructureError("the arrays of a vtree do not fit together")
        if len(set(self.variables)) != len(self.variables):
            raise StructureError("a variable is in the vtree twice")
        leaf, node = self.left < 0, np.arange(n)
        inner = ~leaf
        if (leaf != (self.right < 0)).any() or (leaf != (self.var >= 0)).any():
            raise StructureError("a vtree node has either two children or a variable")
        children = np.concatenate((self.left[inner], self.right[inner]))
        if (children >= np.concatenate((node[inner], node[inner]))).any():
            raise StructureError("every child must come before its parent in a vtree")
        parents = np.bincount(children, minlength=n)
        if parents[-1] != 0 or (parents[:-1] != 1).any():
            raise StructureError("every node of a vtree but the root, the last one, needs exactly one parent")
        if not np.array_equal(np.sort(self.var[leaf]), np.arange(len(self.variables))):
            raise StructureError("every variable of a vtree needs exactly one leaf")


def vtree_of(circuit: Circuit) -> Vtree:
    """The vtree that a smooth, structured-decomposable circuit follows, over the variables below its root.

    The distinct scopes of such a circuit form a tree. The parts of a scope stand in the order in which the first
    product over that scope lists them; more than two parts are joined from the right, ``a, b, c`` as ``(a, (b, c))``.
    """
    return derive_vtree(as_circuit(circuit, "a vtree is that of"))[0]


def derive_vtree(circuit: Circuit) -> tuple[Vtree, IntArray]:
    """:func:`vtree_of`, and the vtree node of every scope id of the circuit."""
    from margmap.circuit.properties import require_tractable
    from margmap.circuit.scopes import scope_sizes

    require_tractable(circuit)
    scopes = circuit.scopes
    size = scope_sizes(scopes.bits)
    first_split = _first_splits(circuit, len(size))
    used = np.flatnonzero(np.unpackbits(scopes.bits[scopes.id[-1]].view(np.uint8), bitorder="little"))
    column = {int(v): i for i, v in enumerate(used)}

    left: list[int] = []
    right: list[int] = []
    var: list[int] = []
    vnode = np.full(len(size), -1, dtype=np.int32)
    weight: list[int] = []  # of a vtree node: its number of variables
    top: list[int] = []  # union-find: the largest vtree node so far that holds this one

    def add(a: int, b: int, variable: int) -> int:
        left.append(a)
        right.append(b)
        var.append(variable)
        weight.append(1 if a < 0 else weight[a] + weight[b])
        top.append(len(top))
        return len(top) - 1

    def find(node: int) -> int:
        while top[node] != node:
            top[node] = top[top[node]]
            node = top[node]
        return node

    # Small scopes first, so that a scope's parts are complete when it joins them. Parts are disjoint and cover the
    # scope; they hold more variables than it has exactly if one of them sticks out, that is, crosses it.
    for scope in np.argsort(size, kind="stable").tolist():
        node = first_split[scope]
        if size[scope] == 1:
            word = int(np.flatnonzero(scopes.bits[scope])[0])
            only = 64 * word + int(scopes.bits[scope, word]).bit_length() - 1
            if only not in column:
                raise StructureError(f"variable {circuit.variables[only].name!r} is not below the root")
            vnode[scope] = add(-1, -1, column[only])
            continue
        below = circuit.child[circuit.start[node] : circuit.start[node + 1]]
        parts = list(dict.fromkeys(find(int(vnode[scopes.id[c]])) for c in below))
        if sum(weight[p] for p in parts) != size[scope]:
            raise StructureError(
                f"not structured-decomposable: the scope of node {node} (product) crosses that of another node, "
                "so no vtree fits the circuit"
            )
        joined = parts.pop()
        while parts:
            other = parts.pop()
            above = add(other, joined, -1)
            top[other] = top[joined] = above
            joined = above
        vnode[scope] = joined
    names = [circuit.variables[v].name for v in used]
    return Vtree(names, left, right, var), vnode


def _first_splits(circuit: Circuit, num_scopes: int) -> list[int]:
    """For every scope the first product over it with several children, -1 if there is none."""
    split = np.flatnonzero((circuit.kind == PRODUCT) & (np.diff(circuit.start) > 1))
    ids, index = np.unique(circuit.scopes.id[split], return_index=True)
    first = np.full(num_scopes, -1, dtype=np.int64)
    first[ids] = split[index]
    return [int(n) for n in first]


def _frozen(values: Sequence[int] | IntArray) -> IntArray:
    result = np.array(values, dtype=np.int32)
    result.setflags(write=False)
    return result
