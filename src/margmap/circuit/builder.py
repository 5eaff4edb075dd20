"""Circuits node by node: growing lists, and the circuit that they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit.arrays import FloatArray, IntArray, KindArray, LongArray
from margmap.circuit.circuit import Circuit
from margmap.circuit.leaves import PRODUCT, SUM
from margmap.circuit.variable import Variable
from margmap.errors import StructureError
from margmap.foundation.jit import kernel


class Parts(NamedTuple):
    """The growing lists that readers and the builder fill and :func:`assemble` turns into a circuit."""

    kind: list[int]
    start: list[int]
    child: list[int]
    log_weight: list[float]
    var: list[int]
    param_start: list[int]
    param: list[float]

    @classmethod
    def new(cls) -> Parts:
        """No nodes yet."""
        return cls([], [0], [], [], [], [0], [])

    def leaf(self, kind: int, var: int, parameters: Sequence[float]) -> int:
        """Add a leaf and return its number."""
        self.param.extend(parameters)
        return self._close(kind, var)

    def product(self, children: Sequence[int]) -> int:
        """Add a product and return its number."""
        self.child.extend(children)
        self.log_weight.extend([0.0] * len(children))
        return self._close(PRODUCT, -1)

    def sum(self, children: Sequence[int], log_weights: Sequence[float]) -> int:
        """Add a sum and return its number."""
        self.child.extend(children)
        self.log_weight.extend(log_weights)
        return self._close(SUM, -1)

    def _close(self, kind: int, var: int) -> int:
        self.kind.append(kind)
        self.var.append(var)
        self.start.append(len(self.child))
        self.param_start.append(len(self.param))
        return len(self.kind) - 1


class Arrays(NamedTuple):
    """The arrays of a circuit, see :class:`Circuit`, with nodes that its root may not reach."""

    kind: KindArray
    start: LongArray
    child: IntArray
    log_weight: FloatArray
    var: IntArray
    param_start: LongArray
    param: FloatArray


def assemble(variables: Iterable[Variable], parts: Parts, root: int | None = None) -> Circuit:
    """Make a circuit of what lies below ``root`` (the last node by default); other nodes are left out."""
    types = (np.int8, np.int64, np.int32, np.float64, np.int32, np.int64, np.float64)
    arrays = Arrays(*(np.array(part, dtype=dtype) for part, dtype in zip(parts, types, strict=True)))
    kind, start, child = arrays[:3]
    if kind.size == 0:
        raise StructureError("a circuit needs at least one node")
    if child.size and (child.min() < 0 or bool((child >= np.repeat(np.arange(kind.size), np.diff(start))).any())):
        raise StructureError("every child must come before its parent")
    return reached(variables, arrays, kind.size - 1 if root is None else root)


def reached(variables: Iterable[Variable], arrays: Arrays, root: int) -> Circuit:
    """The circuit of the nodes that ``root`` reaches, in arrays where every child comes before its parents."""
    if not 0 <= root < arrays.kind.size:
        raise StructureError(f"there is no node {root} to be the root: there are {arrays.kind.size}")
    keep = _below(arrays.start, arrays.child, root)
    return Circuit(variables, *(arrays if keep.all() else _kept(arrays, keep)))


def without_strays(circuit: Circuit) -> Circuit:
    """The circuit without nodes that its root does not reach."""
    keep = _below(circuit.start, circuit.child, circuit.root)
    if keep.all():
        return circuit
    arrays = Arrays(*(getattr(circuit, name) for name in Arrays._fields))
    return Circuit(circuit.variables, *_kept(arrays, keep))


def sharing_equal(circuit: Circuit) -> Circuit:
    """The circuit with every two nodes made one that are equal to the last bit; itself if there are none.

    Two leaves are equal if their kinds, variables and parameters are; two inner nodes if their kinds, children and
    weights are, in the same order. So all that is computed from what is below a node stays the same to the last bit.
    The nodes that are left stand in the same order.
    """
    arrays = Arrays(*(getattr(circuit, name) for name in Arrays._fields))
    first = _first_equal(*arrays)
    first[-1] = circuit.root  # which stays the last node, even if a node that it does not reach equals it
    keep = first == np.arange(first.size)
    if keep.all():
        return circuit
    return Circuit(circuit.variables, *_kept(arrays._replace(child=first[arrays.child]), keep))


def reordered(circuit: Circuit, order: LongArray) -> Circuit:
    """The same nodes in another order, in which children also come before parents and the root is the last.

    All that is computed from what is below a node stays the same to the last bit.
    """
    kind, start, child, weight, var, param_start, param = (getattr(circuit, name) for name in Arrays._fields)
    number = np.empty(order.size, dtype=np.int32)
    number[order] = np.arange(order.size, dtype=np.int32)
    starts, edges = _in_order(start, order)
    param_starts, params = _in_order(param_start, order)
    arrays = (kind[order], starts, number[child[edges]], weight[edges], var[order], param_starts, param[params])
    return Circuit(circuit.variables, *arrays)


def _in_order(start: LongArray, order: LongArray) -> tuple[LongArray, LongArray]:
    """Where the slices of nodes begin in another order of the nodes, and the places where their entries were."""
    sizes = np.diff(start)[order]
    starts = np.concatenate(([0], np.cumsum(sizes)))
    return starts, np.repeat(start[:-1][order] - starts[:-1], sizes) + np.arange(starts[-1])


def _kept(arrays: Arrays, keep: NDArray[np.bool_]) -> Arrays:
    """Some nodes with what is theirs; all of their children are among them."""
    kind, start, child, weight, var, param_start, param = arrays
    number = np.cumsum(keep) - 1
    edges = np.repeat(keep, np.diff(start))
    params = np.repeat(keep, np.diff(param_start))
    return Arrays(
        kind[keep],
        np.concatenate(([0], np.cumsum(np.diff(start)[keep]))),
        number[child[edges]].astype(np.int32),
        weight[edges],
        var[keep],
        np.concatenate(([0], np.cumsum(np.diff(param_start)[keep]))),
        param[params],
    )


@kernel
def _below(start: LongArray, child: IntArray, root: int) -> NDArray[np.bool_]:
    keep = np.zeros(start.size - 1, dtype=np.bool_)
    keep[root] = True
    for n in range(root, -1, -1):
        if keep[n]:
            for e in range(start[n], start[n + 1]):
                keep[child[e]] = True
    return keep


@kernel
def _first_equal(
    kind: KindArray,
    start: LongArray,
    child: IntArray,
    log_weight: FloatArray,
    var: IntArray,
    param_start: LongArray,
    param: FloatArray,
) -> IntArray:
    """For each node the first that is equal to it, which may be itself."""
    size = 64
    while size < 2 * kind.size:
        size *= 2
    slots = np.full(size, -1, dtype=np.int32)  # a hash table of the first ones
    first = np.empty(kind.size, dtype=np.int32)
    weight, number = log_weight.view(np.uint64), param.view(np.uint64)  # as bits
    odd, fold = np.uint64(0xBF58476D1CE4E5B9), np.uint64(29)
    for n in range(kind.size):
        begin, edges = start[n], start[n + 1] - start[n]
        own, params = param_start[n], param_start[n + 1] - param_start[n]
        h = np.uint64(np.int64(kind[n]) + 8 * (np.int64(var[n]) + 1))
        for i in range(edges):
            h = (h ^ np.uint64(first[child[begin + i]]) ^ weight[begin + i]) * odd
            h ^= h >> fold
        for i in range(params):
            h = (h ^ number[own + i]) * odd
            h ^= h >> fold
        slot = np.int64(h & np.uint64(size - 1))
        while slots[slot] >= 0:
            k = slots[slot]
            if (
                kind[k] == kind[n]
                and var[k] == var[n]
                and start[k + 1] - start[k] == edges
                and param_start[k + 1] - param_start[k] == params
            ):
                same = True
                for i in range(edges):
                    same &= first[child[start[k] + i]] == first[child[begin + i]]
                    same &= weight[start[k] + i] == weight[begin + i]
                for i in range(params):
                    same &= number[param_start[k] + i] == number[own + i]
                if same:
                    break
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = n
        first[n] = slots[slot]
    return first
