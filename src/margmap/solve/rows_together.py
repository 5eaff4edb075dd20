"""Rows of a batch together: the values under the evidence of many rows in one pass over the circuit.

The reduction of a row begins with a pass over the whole circuit, and its answer is scored by another one. What a row
needs of them is often small: under its evidence most nodes of a deterministic circuit are zero. So the pass is done for
many rows at once, each number of the circuit being read once for all of them. The rest of a row's work then goes over
the nodes that its root needs, and no others: they are copied into its reduced circuit, and computed again under its
answer. What comes out is the same to the last bit as for a row alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from margmap.circuit import PRODUCT, SUM, Circuit, FloatArray, IntArray
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits
from margmap.foundation.pairs import TINY
from margmap.inference.pieces import pass_up
from margmap.inference.scaled import Scaled, is_dense, scaled
from margmap.solve.query_circuit import Flat
from margmap.solve.reduce import Reduced, asked_of, impossible, of_root
from margmap.solve.reduce_sparse import Asked, Needed, smallest_form
from margmap.solve.rows_alike import Alike

#: Rows of one pass.
ROWS_AT_ONCE = 16

#: Fewer rows, or rows of a smaller circuit, are not worth it; nor are the values of more nodes worth their room.
LEAST_ROWS, LEAST_EDGES, MOST_NODES = 4, 2_000, 1_000_000

#: So many queries are remembered; what is known of those that were asked longest ago is forgotten.
MOST_QUERIES = 64

#: So often in all, rows of a query may turn out not to be alike before that is not tried any more.
MOST_FAILURES = 4


def pays(circuit: Circuit, rows: int) -> bool:
    """Whether so many rows of a circuit are better asked together.

    Not where most edges are in dense blocks, since their matrices read a row of weights once for many edges already,
    nor where numbers need powers of two beside them.
    """
    if rows < LEAST_ROWS or circuit.num_edges < LEAST_EDGES or circuit.num_nodes > MOST_NODES:
        return False
    return not is_dense(circuit) and scaled(circuit).plain


class RowsTogether:
    """What a circuit remembers while the rows of a batch are asked one after the other, in one thread."""

    def __init__(self, circuit: Circuit) -> None:
        self._circuit = circuit
        self._codes = np.zeros((0, len(circuit.variables)), dtype=np.int32)
        self._place: dict[bytes, int] = {}
        self._queries: dict[tuple[int, ...], Asked] = {}
        # Only nodes above a variable that differs among the rows seen so far are computed more than once.
        self._first: IntArray | None = None
        self._differs = np.zeros(len(circuit.variables), dtype=np.bool_)
        self._above = np.zeros(0, dtype=np.int32)
        self._values = np.empty((circuit.num_nodes, ROWS_AT_ONCE))
        self._by_row = np.empty((ROWS_AT_ONCE, circuit.num_nodes))
        # The least value of each row among nodes that are the same for all; rows of the block with one too small.
        self._least = np.ones(ROWS_AT_ONCE)
        self._block, self._small = -1, np.zeros(ROWS_AT_ONCE, dtype=np.bool_)
        # The last query, whose rows are reduced together if they are alike; how often rows of a query were not.
        self._query: tuple[int, ...] = ()
        self._alike: Alike | None = None
        self._failures: dict[tuple[int, ...], int] = {}
        self._followed = False

    def expect(self, rows: Sequence[IntArray]) -> None:
        """The codes of the rows that will be asked about next."""
        self._codes = np.array(rows, dtype=np.int32)
        self._place = {row.tobytes(): i for i, row in enumerate(self._codes)}
        self._block = -1
        first = self._codes[0] if self._first is None else self._first
        differs = self._differs | (self._codes != first).any(axis=0)
        if self._first is None or (differs != self._differs).any():
            self._first, self._differs = first, differs
            scopes = self._circuit.scopes
            above = np.take(scopes.meeting(np.flatnonzero(differs).tolist()), scopes.id)
            self._above = np.flatnonzero(above).astype(np.int32)
            if self._alike is not None:
                self._alike.about(above)
            self._least = self._pass(np.flatnonzero(~above).astype(np.int32), 0)

    def _pass(self, nodes: IntArray, block: int) -> FloatArray:
        """The values of some nodes under the rows of a block; the least of each row that is not zero."""
        first = block * ROWS_AT_ONCE
        rows = np.minimum(np.arange(first, first + ROWS_AT_ONCE), len(self._codes) - 1)
        least: FloatArray = _values_of_rows(scaled(self._circuit), nodes, self._codes[rows].T.copy(), self._values)
        return least

    def reduce(self, columns: Sequence[int], codes: IntArray, reals: FloatArray) -> Reduced | None:
        """What :func:`~margmap.solve.reduce.reduce_codes` gives; None for a row that needs powers of two."""
        row = self._place.get(codes.tobytes(), -1)
        if row < 0 or not columns:
            return None
        if row // ROWS_AT_ONCE != self._block:
            self._block, self._followed = row // ROWS_AT_ONCE, False
            self._small = np.minimum(self._least, self._pass(self._above, self._block)) < TINY
            _turned(self._values, self._by_row)
        at = row % ROWS_AT_ONCE
        if self._small[at]:
            return None
        value = self._by_row[at].copy()  # which scoring a state changes
        if value[-1] == 0:
            raise impossible()
        asked, exponent = self._asked(tuple(columns)), np.zeros(value.size)
        alike = self._alike_of(tuple(columns), asked, value, exponent)
        if alike is not None and not alike.unfit[at]:
            flat, log_factor = alike.circuit(at)
            root, nodes, shape = (flat, log_factor, float(value[-1]), 0.0), alike.nodes, alike.shape
        else:
            smallest, nodes = smallest_form(scaled(self._circuit), value, exponent, asked, np.zeros(1, dtype=np.int64))
            root, shape = (Flat(*smallest[:6]), float(smallest[6]), float(value[-1]), 0.0), None
        found = of_root(self._circuit, columns, asked.cardinality, *root, Needed(nodes, value, exponent))
        return found if shape is None else replace(found, shape=shape)

    def _asked(self, query: tuple[int, ...]) -> Asked:
        """What kernels know of a query."""
        asked = self._queries.pop(query, None) or asked_of(self._circuit, query)
        self._queries[query] = asked  # the last of all
        if len(self._queries) > MOST_QUERIES:
            oldest = next(iter(self._queries))
            del self._queries[oldest]
            self._failures.pop(oldest, None)
        return asked

    def _alike_of(self, query: tuple[int, ...], asked: Asked, value: FloatArray, exponent: FloatArray) -> Alike | None:
        """The circuits of the rows of the block, if enough of them are alike; ``value`` is that of one of them.

        The first row of a query is reduced by itself, since it may be the only one.
        """
        if query != self._query:
            self._query, self._alike = query, None
            return None
        if self._failures.get(query, 0) >= MOST_FAILURES:
            return None
        if self._alike is None:
            self._alike = Alike(scaled(self._circuit), value, exponent, asked, ROWS_AT_ONCE)
            above = np.zeros(self._circuit.num_nodes, dtype=np.bool_)
            above[self._above] = True
            self._alike.about(above)
            self._followed = False
        if not self._followed:
            self._followed = True
            if self._alike.usable:
                self._alike.follow(scaled(self._circuit), self._values)
            rows = min(ROWS_AT_ONCE, len(self._codes) - self._block * ROWS_AT_ONCE)
            if not self._alike.usable or 2 * np.count_nonzero(self._alike.unfit[:rows]) > rows:
                self._failures[query] = self._failures.get(query, 0) + 1
                self._alike = None  # the row that it was made from may be the odd one
        return self._alike

    def solve(self, columns: Sequence[int], codes: IntArray, reals: FloatArray, limits: Limits) -> None:
        """Nothing is solved here."""

    def answered(self, columns: Sequence[int], state: IntArray) -> None:
        """Nothing is remembered of an answer."""

    def value_pair(self, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
        """The value of the circuit under a row, as a pair; rows that were reduced here are scored without this."""
        s, (value, exponent) = scaled(self._circuit), self.values(codes, reals)
        return float(value[-1] * s.total), float(exponent[-1] + s.total_exponent)

    def values(self, codes: IntArray, reals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The relative values of all nodes under a row, as pairs."""
        value, exponent = np.empty(self._circuit.num_nodes), np.empty(self._circuit.num_nodes)
        pass_up(self._circuit, codes, reals, value, exponent)
        return value, exponent


@kernel
def _values_of_rows(s: Scaled, nodes: IntArray, codes: IntArray, value: FloatArray) -> FloatArray:
    """The values of some nodes, children first, under several rows, which are columns of ``codes`` and of ``value``.

    Returned is the least value of each row that is not zero.
    """
    rows = value.shape[1]
    least = np.ones(rows)
    for n in nodes:
        if s.kind[n] == SUM:
            for j in range(rows):
                value[n, j] = 0.0
            for e in range(s.start[n], s.start[n + 1]):
                w, c = s.weight[e], s.child[e]
                for j in range(rows):
                    value[n, j] += w * value[c, j]
        elif s.kind[n] == PRODUCT:
            for j in range(rows):
                value[n, j] = 1.0
            for e in range(s.start[n], s.start[n + 1]):
                c = s.child[e]
                for j in range(rows):
                    value[n, j] *= value[c, j]
                    least[j] = min(least[j], value[n, j] if value[n, j] > 0 else 1.0)
        else:
            for j in range(rows):
                value[n, j] = s.table[s.table_start[n] + codes[s.var[n], j]]
        if s.kind[n] == SUM:
            for j in range(rows):
                least[j] = min(least[j], value[n, j] if value[n, j] > 0 else 1.0)
    return least


@kernel
def _turned(values: FloatArray, by_row: FloatArray) -> None:
    """The values of a row one after the other, since it will be looked at by itself."""
    for n in range(values.shape[0]):
        for j in range(values.shape[1]):
            by_row[j, n] = values[n, j]
