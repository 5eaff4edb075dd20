"""The values of a circuit's nodes under a row of evidence that changes little by little.

Kept from one row to the next are all values; where the next row differs in a few variables, only nodes with one of them
in their scope can have another value, and of those only what has a child with another value is computed again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Circuit, FloatArray, IntArray
from margmap.foundation.jit import kernel
from margmap.inference.passes import forward_nodes
from margmap.inference.pieces import pass_up
from margmap.inference.scaled import is_dense, scaled


class NodesAbove:
    """For each variable the nodes with it in their scope, children first; those asked for lately are kept."""

    def __init__(self, circuit: Circuit, most_bytes: int) -> None:
        self._circuit, self._most, self._size = circuit, most_bytes, 0
        self._kept: OrderedDict[int, IntArray] = OrderedDict()
        self._lock = Lock()

    def of(self, columns: Sequence[int]) -> IntArray:
        """The nodes above some of these variables."""
        if len(columns) != 1:
            return self._find(columns)
        column = columns[0]
        with self._lock:
            if column in self._kept:
                self._kept.move_to_end(column)
                return self._kept[column]
        nodes = self._find(columns)
        with self._lock:
            if column not in self._kept:
                self._kept[column] = nodes
                self._size += nodes.nbytes
            while self._size > self._most:
                self._size -= self._kept.popitem(last=False)[1].nbytes
        return nodes

    @property
    def nbytes(self) -> int:
        """Bytes of what is kept."""
        return self._size

    def _find(self, columns: Sequence[int]) -> IntArray:
        scopes = self._circuit.scopes
        nodes: IntArray = _nodes_of(scopes.id, scopes.meeting(columns))
        return nodes


class KeptValues:
    """The relative value of every node (see :mod:`margmap.inference.scaled`) under the row it was last brought to.

    Whoever uses one from several threads takes care that one of them at a time does.
    """

    def __init__(self, circuit: Circuit, above: NodesAbove) -> None:
        self.circuit, self.above = circuit, above
        self.value, self.exponent = np.empty(circuit.num_nodes), np.empty(circuit.num_nodes)
        #: Which nodes have another value than under the row before; nowhere set between two updates.
        self.changed = np.zeros(circuit.num_nodes, dtype=np.bool_)
        self._row: tuple[IntArray, FloatArray] | None = None

    @staticmethod
    def bytes_of(circuit: Circuit) -> int:
        """The room that it takes."""
        return 17 * circuit.num_nodes

    def update(self, codes: IntArray, reals: FloatArray) -> IntArray | None:
        """Bring the values to a row; the nodes that may have changed, with flags in ``changed``, or None for all.

        Whoever has seen the flags calls :meth:`seen`.
        """
        before, self._row = self._row, None  # whoever is interrupted on the way begins anew
        s = scaled(self.circuit)
        if before is None:
            pass_up(self.circuit, codes, reals, self.value, self.exponent)
            nodes = None
        else:
            same = (codes == before[0]) & ((reals == before[1]) | (np.isnan(reals) & np.isnan(before[1])))
            columns = np.flatnonzero(~same).tolist()
            nodes = self.above.of(columns) if columns else np.zeros(0, dtype=np.int32)
            if nodes.size:
                rows = s.rows if is_dense(self.circuit) else None
                forward_nodes(s, rows, nodes, codes, reals, self.value, self.exponent, self.changed)
        self._row = codes.copy(), reals.copy()
        return nodes

    def seen(self, nodes: IntArray | None) -> None:
        """Take the flags away."""
        if nodes is not None:
            _clear(self.changed, nodes)

    def forget(self) -> None:
        """Begin anew with the next row."""
        self._row = None
        self.changed.fill(False)


@kernel
def _nodes_of(scope: IntArray, wanted: NDArray[np.bool_]) -> IntArray:
    """The nodes whose scopes are wanted."""
    nodes, count = np.empty(scope.size, dtype=np.int32), 0
    for n in range(scope.size):
        nodes[count] = n
        count += wanted[scope[n]]
    return np.copy(nodes[:count])


@kernel
def _clear(flags: NDArray[np.bool_], nodes: IntArray) -> None:
    for n in nodes:
        flags[n] = False
