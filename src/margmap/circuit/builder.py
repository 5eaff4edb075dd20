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
