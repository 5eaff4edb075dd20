"""Chow-Liu trees as leaves of other libraries' circuits: a tree of variables, each with a table given its parent.

A tree becomes a circuit by passing messages from its leaves to its root (Chow and Liu, "Approximating discrete
probability distributions with dependence trees", 1968): for each variable and each value of its parent, a sum over the
values of the variable, each times the messages of the variable's children.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from margmap.circuit import INDICATOR, FloatArray, LongArray
from margmap.circuit.layers import Layers
from margmap.errors import StructureError
from margmap.interop.arrays import Columns


def chow_liu_tree(
    layers: Layers, columns: Columns, scope: Sequence[int], parents: Sequence[int], log_table: FloatArray
) -> LongArray:
    """The nodes of trees over the same variables and edges.

    ``parents`` has for each variable of the scope the position of its parent in it, -1 for the root; ``log_table`` is
    [variable, ..., value, value of the parent], for the root the same for all values of a parent.
    """
    depth: dict[int, int] = {}
    order: list[int] = []
    for i in range(len(scope)):
        path = [i]
        while parents[path[-1]] != -1 and parents[path[-1]] not in depth:
            path.append(parents[path[-1]])
            if len(path) > len(scope):
                raise StructureError(f"the tree over variables {list(scope)} has a cycle")
        for j in reversed(path):
            if j not in depth:
                depth[j] = 0 if parents[j] == -1 else depth[parents[j]] + 1
                order.append(j)
    if sum(parent == -1 for parent in parents) != 1:
        raise StructureError(f"the tree over variables {list(scope)} does not have one root: fit it first")
    values, shape = log_table.shape[-2], log_table.shape[1:-2]
    messages: list[list[LongArray]] = [[] for _ in scope]
    for i in reversed(order):  # parents come before children in it
        leaf = layers.leaves(INDICATOR, columns.place[scope[i]], np.arange(values, dtype=np.float64)[:, None])
        parts = [np.broadcast_to(leaf, (*shape, values)), *messages[i]]
        below = layers.products(np.stack(parts, axis=-1))  # [..., value]
        if parents[i] == -1:
            return layers.sums(below, log_table[i][..., 0])
        messages[parents[i]].append(layers.sums(below[..., None, :], np.swapaxes(log_table[i], -1, -2)))
    raise StructureError(f"the tree over variables {list(scope)} has no root")
