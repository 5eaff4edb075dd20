"""Chow-Liu trees (Chow and Liu, IEEE Transactions on Information Theory, 1968), and the vtrees they compile along.

The tree is a maximum spanning tree on the mutual information of pairs of columns, found by Prim's algorithm and rooted
at its centre, so that the circuit is not deep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from margmap.circuit import Circuit, FloatArray, IntArray, LongArray
from margmap.circuit.vtree import Vtree
from margmap.errors import DataError
from margmap.foundation.jit import kernel
from margmap.foundation.slices import starts
from margmap.learn.table import CodedRows, Codes, one_hot, read_tables

Join: TypeAlias = Literal["balanced", "right"]

# One-hot columns are multiplied in float32 blocks of this many rows: sums stay exact, and memory small.
_BLOCK = 1 << 14


class RootedTree(NamedTuple):
    """A rooted tree over the columns: ``parent[v]`` is -1 at the root; ``order`` lists parents before children."""

    parent: IntArray
    order: IntArray

    def children(self) -> list[list[int]]:
        """The children of every column, by index."""
        below: list[list[int]] = [[] for _ in self.parent]
        for v, p in enumerate(self.parent.tolist()):
            if p >= 0:
                below[p].append(v)
        return below


def chow_liu(data: Any, *, alpha: float = 1.0, pseudocount: float = 1.0, join: Join = "balanced") -> Circuit:
    """The Chow-Liu tree of the rows as a smooth, deterministic, structured-decomposable circuit.

    ``alpha`` is added to every cell of a pair's table of counts before its mutual information is taken, so that
    p(x, y) = (count + alpha) / (N + 4 alpha) for two binary columns; ``pseudocount`` is spread evenly over the children
    of every sum. ``join``, "balanced" or "right", says how the vtrees of several children are put together.

    >>> from margmap.learn import chow_liu
    >>> chow_liu([[0, 0, 1], [1, 1, 0], [1, 1, 1], [0, 0, 0]])
    Circuit(3 variables, 15 nodes, 19 edges)
    """
    from margmap.learn.decision_circuit import DecisionCircuit

    table, _ = read_tables(data)
    check_smoothing(alpha, pseudocount)
    return DecisionCircuit.from_tree(table, None, learn_tree(table, alpha), pseudocount, join).circuit()


def check_smoothing(alpha: float, pseudocount: float) -> None:
    """Refuse what is not a number of rows."""
    for name, value in (("alpha", alpha), ("pseudocount", pseudocount)):
        if not 0 <= value < np.inf:
            raise DataError(f"{name} must be a number from 0, not {value!r}")


def learn_tree(table: CodedRows, alpha: float = 1.0) -> RootedTree:
    """The maximum spanning tree on mutual information, rooted at its centre; equal edges are taken by index."""
    return root_at_centre(spanning_tree(mutual_information(table.codes, table.cardinality, alpha)))


def mutual_information(codes: Codes, cardinality: LongArray, alpha: float = 1.0) -> FloatArray:
    """The mutual information, in nats, of every pair of columns."""
    first = starts(cardinality)
    joint = np.zeros((int(first[-1]), int(first[-1])))
    for at in range(0, codes.shape[0], _BLOCK):
        hot = one_hot(codes[at : at + _BLOCK], first)
        joint += hot.T @ hot
    return information(joint, first, alpha)


@kernel
def information(joint: FloatArray, first: LongArray, alpha: float) -> FloatArray:
    """The mutual information of every pair of columns.

    ``joint`` has the number of rows with each pair of values; the values of column i are ``first[i]`` to
    ``first[i + 1]``, less one. ``alpha`` is added to every count. Each pair of columns has its own number of
    rows, in which both cells are present.
    """
    n = first.size - 1
    found = np.zeros((n, n))
    row, column = np.zeros(first[n]), np.zeros(first[n])
    for i in range(n):
        for j in range(i):
            a, b = first[i + 1] - first[i], first[j + 1] - first[j]
            total, value = alpha * a * b, 0.0
            for y in range(first[j], first[j + 1]):
                column[y] = a * alpha
            for x in range(first[i], first[i + 1]):
                row[x] = b * alpha
                for y in range(first[j], first[j + 1]):
                    row[x] += joint[x, y]
                    column[y] += joint[x, y]
                    total += joint[x, y]
            for x in range(first[i], first[i + 1]):
                for y in range(first[j], first[j + 1]):
                    p = (joint[x, y] + alpha) / total if total > 0 else 0.0
                    if p > 0:
                        value += p * np.log(p / (row[x] / total * (column[y] / total)))
            found[i, j] = found[j, i] = value
    return found


@kernel
def spanning_tree(weight: FloatArray) -> LongArray:
    """Prim's algorithm on a dense matrix: for every vertex but the first the one it is joined to."""
    n = weight.shape[0]
    joined = np.zeros(n, dtype=np.int64)
    best = weight[0].copy()
    done = np.zeros(n, dtype=np.bool_)
    done[0] = True
    for _ in range(n - 1):
        at = -1
        for v in range(n):
            if not done[v] and (at < 0 or best[v] > best[at]):
                at = v
        done[at] = True
        for v in range(n):
            if not done[v] and weight[at, v] > best[v]:
                best[v] = weight[at, v]
                joined[v] = at
    return joined


def root_at_centre(joined: Sequence[int] | LongArray) -> RootedTree:
    """Root a tree, given as the neighbour that each vertex after the first was joined to, in the middle."""
    n = len(joined)
    near: list[list[int]] = [[] for _ in range(n)]
    for v in range(1, n):
        near[v].append(int(joined[v]))
        near[int(joined[v])].append(v)

    def spread(root: int) -> tuple[list[int], list[int]]:
        parent, order = [-2] * n, [root]
        parent[root] = -1
        for v in order:
            for u in sorted(near[v]):
                if parent[u] == -2:
                    parent[u] = v
                    order.append(u)
        return parent, order

    # The last vertex found from anywhere is an end of a longest path; the centre is half way along it.
    one = spread(0)[1][-1]
    parent, order = spread(one)
    path = [order[-1]]
    while parent[path[-1]] >= 0:
        path.append(parent[path[-1]])
    middle = {path[(len(path) - 1) // 2], path[len(path) // 2]}
    parent, order = spread(min(middle))
    return RootedTree(np.array(parent, dtype=np.int32), np.array(order, dtype=np.int32))


def tree_vtree(table: CodedRows, tree: RootedTree, join: Join = "balanced") -> tuple[Vtree, list[int], list[int]]:
    """The vtree of a tree, and of every column the vtree nodes of its subtree and of its children joined (or -1)."""
    if join not in ("balanced", "right"):
        raise DataError(f"join must be 'balanced' or 'right', not {join!r}")
    nodes: list[tuple[int, int, int]] = []

    def add(left: int, right: int, column: int) -> int:
        nodes.append((left, right, column))
        return len(nodes) - 1

    def joined(parts: list[int]) -> int:
        if len(parts) == 1:
            return parts[0]
        if join == "balanced":
            half = len(parts) // 2
            return add(joined(parts[:half]), joined(parts[half:]), -1)
        whole = parts[-1]
        for part in parts[-2::-1]:
            whole = add(part, whole, -1)
        return whole

    children = tree.children()
    top, rest = [-1] * len(children), [-1] * len(children)
    for v in reversed(tree.order.tolist()):
        leaf = add(-1, -1, v)
        top[v] = leaf
        if children[v]:
            rest[v] = joined([top[u] for u in children[v]])
            top[v] = add(leaf, rest[v], -1)
    return Vtree([v.name for v in table.variables], *zip(*nodes, strict=True)), top, rest
