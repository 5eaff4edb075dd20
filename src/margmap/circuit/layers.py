"""Circuits made of whole layers: leaves, products and sums are added many at a time, as arrays.

The models of tensor libraries have millions of edges in a few hundred tensors. Adding their nodes one by one takes
minutes in Python; here a tensor of children becomes nodes in a few calls of numpy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margmap.circuit.arrays import LongArray
from margmap.circuit.builder import Arrays, reached
from margmap.circuit.circuit import Circuit
from margmap.circuit.leaves import CATEGORICAL, PRODUCT, SUM
from margmap.circuit.variable import Variable

S = TypeVar("S", bound=np.generic)


class Layers:
    """Groups of nodes, children before parents, that :meth:`circuit` turns into a circuit.

    Every method takes arrays of any leading shape and returns the numbers of the new nodes in that shape.
    """

    def __init__(self) -> None:
        self.size = 0
        self._kind: list[NDArray[np.int8]] = []
        self._fan_in: list[LongArray] = []
        self._child: list[NDArray[np.int32]] = []
        self._log_weight: list[NDArray[np.float64]] = []
        self._var: list[NDArray[np.int32]] = []
        self._params: list[LongArray] = []
        self._param: list[NDArray[np.float64]] = []

    def leaves(self, kind: int, var: ArrayLike, param: ArrayLike) -> LongArray:
        """Leaves of one kind: ``param`` has the parameters of a leaf in its last axis, ``var`` is broadcast to it."""
        param = np.asarray(param, dtype=np.float64)
        shape = param.shape[:-1]
        count = int(np.prod(shape))
        self._param.append(param.ravel())
        self._params.append(np.full(count, param.shape[-1], dtype=np.int64))
        return self._close(kind, np.broadcast_to(var, shape).astype(np.int32).ravel(), None).reshape(shape)

    def tables(self, var: ArrayLike, log_table: ArrayLike) -> LongArray:
        """Leaves with a table each, the logarithms of any numbers not below 0 in the last axis.

        A leaf's probabilities are at most 1: where a table has larger numbers, a sum above it has their total.
        """
        table = np.array(log_table, dtype=np.float64)
        above = table.max(axis=-1) > 0.0
        large = table[above]
        largest = large.max(axis=-1, keepdims=True, initial=0.0)
        total = largest + np.log(np.exp(large - largest).sum(axis=-1, keepdims=True))
        table[above] = large - total
        ids = self.leaves(CATEGORICAL, var, table)
        if above.any():
            ids[above] = self.sums(ids[above][:, None], total)
        return ids

    def products(self, children: ArrayLike) -> LongArray:
        """Products of the nodes along the last axis; of a single node, that node."""
        children = np.asarray(children)
        if children.shape[-1] == 1:
            return np.array(children[..., 0], dtype=np.int64)
        shape, count = children.shape[:-1], int(np.prod(children.shape[:-1]))
        fan_in = np.full(count, children.shape[-1], dtype=np.int64)
        self._child.append(children.astype(np.int32).ravel())
        self._log_weight.append(np.zeros(children.size))
        return self._close(PRODUCT, None, fan_in).reshape(shape)

    def sums(self, children: ArrayLike, log_weight: ArrayLike) -> LongArray:
        """Sums along the last axis, to which both arrays are broadcast; edges of weight 0 are left out.

        A sum that would have no edge keeps its first, with weight 0.
        """
        weight = np.asarray(log_weight, dtype=np.float64)
        children = np.asarray(children)
        children, weight = np.broadcast_arrays(children, weight)
        shape, count = children.shape[:-1], int(np.prod(children.shape[:-1]))
        if children.shape[-1] == 1 and not weight.any():
            return np.array(children[..., 0], dtype=np.int64)
        keep = weight != -np.inf
        if keep.all():
            fan_in = np.full(count, children.shape[-1], dtype=np.int64)
            self._child.append(children.astype(np.int32).ravel())
            self._log_weight.append(weight.ravel())
        else:
            keep[..., 0] |= ~keep.any(axis=-1)
            fan_in = keep.sum(axis=-1, dtype=np.int64).ravel()
            self._child.append(children[keep].astype(np.int32))
            self._log_weight.append(weight[keep])
        return self._close(SUM, None, fan_in).reshape(shape)

    def circuit(self, variables: Iterable[Variable], root: int) -> Circuit:
        """The circuit of what lies below a node, which may share its arrays with what is kept here."""
        arrays = Arrays(
            _joined(self._kind, np.int8),
            _starts(self._fan_in),
            _joined(self._child, np.int32),
            _joined(self._log_weight, np.float64),
            _joined(self._var, np.int32),
            _starts(self._params),
            _joined(self._param, np.float64),
        )
        return reached(variables, arrays, root)

    def _close(self, kind: int, var: NDArray[np.int32] | None, fan_in: LongArray | None) -> LongArray:
        given = var if var is not None else fan_in
        assert given is not None
        count = given.size
        none = np.zeros(count, dtype=np.int64)
        self._kind.append(np.full(count, kind, dtype=np.int8))
        self._var.append(np.full(count, -1, dtype=np.int32) if var is None else var)
        self._fan_in.append(none if fan_in is None else fan_in)
        if fan_in is not None:
            self._params.append(none)
        self.size += count
        return np.arange(self.size - count, self.size, dtype=np.int64)


def _joined(pieces: list[NDArray[S]], dtype: type[S]) -> NDArray[S]:
    """One array of the pieces, which takes their place: a large circuit is not there twice."""
    if len(pieces) != 1:
        whole = np.empty(sum(piece.size for piece in pieces), dtype=dtype)
        at = 0
        pieces.reverse()
        while pieces:
            piece = pieces.pop()
            whole[at : at + piece.size] = piece
            at += piece.size
        pieces.append(whole)
    return pieces[0]


def _starts(sizes: list[LongArray]) -> LongArray:
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(_joined(sizes, np.int64))))
