"""The values of a circuit's nodes under a row of evidence that changes little by little.

Kept from one row to the next are all values. Where the next row differs in a few variables, their leaves are computed
again, and from there on what is above a node whose value is another one now. What did not change is not looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import GAUSSIAN, PRODUCT, SUM, Circuit, FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import STEP, TINY
from margmap.inference.dense import block_values, last_row
from margmap.inference.passes import leaf_value, sum_of_pairs
from margmap.inference.pieces import pass_up
from margmap.inference.scaled import Scaled, is_dense, scaled

#: Of a node without a form; and what marks say of a node's children: that some have another value, or another form.
NONE, VALUE, FORM = -1, 1, 2


class Parents(NamedTuple):
    """What is above each node, as kernels take it.

    Rows of a dense block that stand one after the other (``rows``, see :mod:`margmap.inference.dense`; empty in a
    circuit with few of them) have the same children, so that only the first of them counts as their parent.
    """

    #: The parents of node n are ``node[at[n]:at[n + 1]]``, those of variable v's leaves ``leaf[leaf_at[v]: ...]``.
    at: LongArray
    node: IntArray
    leaf_at: LongArray
    leaf: IntArray
    rows: IntArray

    @property
    def blocks(self) -> IntArray | None:
        """The rows of dense blocks; None, for which kernels have machine code of its own, in a circuit with few."""
        return self.rows if self.rows.size else None


def bytes_of_parents(circuit: Circuit) -> int:
    """The room that they take at most."""
    return 4 * circuit.num_edges + 12 * circuit.num_nodes + 8 * len(circuit.variables)


def parents(circuit: Circuit) -> Parents:
    """What is above each node; found once for a circuit."""
    return circuit.kept(_parents)


def _parents(circuit: Circuit) -> Parents:
    rows = scaled(circuit).rows if is_dense(circuit) else np.empty(0, dtype=np.int32)
    at, node = _turned(circuit.start, circuit.child, rows)
    leaves = np.flatnonzero(circuit.kind < PRODUCT)
    variable = circuit.var[leaves]
    leaf_at = np.concatenate(([0], np.cumsum(np.bincount(variable, minlength=len(circuit.variables)))))
    return Parents(at, node, leaf_at, leaves[np.argsort(variable, kind="stable")].astype(np.int32), rows)


class KeptValues:
    """The relative value of every node (see :mod:`margmap.inference.scaled`) under the row it was last brought to.

    Whoever uses one from several threads takes care that one of them at a time does.
    """

    def __init__(self, circuit: Circuit) -> None:
        self.circuit = circuit
        self.value, self.exponent = np.empty(circuit.num_nodes), np.empty(circuit.num_nodes)
        # Flags of nodes that are still to be looked at; nowhere set between two updates.
        self._marks = np.zeros(-(-circuit.num_nodes // 8) * 8, dtype=np.uint8)  # which are looked at eight at a time
        #: How many nodes have an exponent other than 0: as long as there are none, exponents need not be looked at.
        self.powers = np.zeros(1, dtype=np.int64)
        self._row: tuple[IntArray, FloatArray] | None = None

    @staticmethod
    def bytes_of(circuit: Circuit) -> int:
        """The room that it takes."""
        return 17 * circuit.num_nodes

    def update(self, codes: IntArray, reals: FloatArray, forms: IntArray | None = None) -> bool:
        """Bring the values to a row; whether it began anew.

        ``forms`` has, for each node, the number of something that depends on the shares that the children of sums have
        and on the same of the children, or NONE. It becomes NONE where it changes, unless this begins anew.
        """
        before, self._row = self._row, None  # whoever is interrupted on the way begins anew
        s = scaled(self.circuit)
        if before is None:
            pass_up(self.circuit, codes, reals, self.value, self.exponent)
            self.powers[0] = np.count_nonzero(self.exponent)
        else:
            above = parents(self.circuit)
            known = (self.value, self.exponent, self.powers, self._marks, forms)
            _bring(s, above.blocks, above, before[0], before[1], codes, reals, *known)
        self._row = (codes.copy(), reals.copy()) if before is None else before  # which is the same row now
        return before is None

    def forget(self) -> None:
        """Begin anew with the next row."""
        self._row = None
        self._marks.fill(0)


@kernel
def _bring(
    s: Scaled,
    rows: IntArray | None,
    parents: Parents,
    last_codes: IntArray,
    last_reals: FloatArray,
    codes: IntArray,
    reals: FloatArray,
    value: FloatArray,
    exponent: FloatArray,
    powers: LongArray,
    marks: NDArray[np.uint8],
    forms: IntArray | None,
) -> None:
    """Compute what is above the variables in which a row differs from the last one again, as far as values change.

    The last row becomes this one. ``powers[0]`` is how many exponents are not 0. ``rows`` are those of the parents, or
    None. ``forms`` are those of :meth:`KeptValues.update`: that of a sum is lost where a child has another value, and
    that of any node where a child has lost its own. A node's mark says what of its children changed.
    """
    kind, start, child, weight, shift = s.kind, s.start, s.child, s.weight, s.shift
    var, table_start, table, table_shift = s.var, s.table_start, s.table, s.table_shift
    above_at, above, words = parents.at, parents.node, marks.view(np.uint64)
    n, leaf_at, leaf = kind.size, parents.leaf_at, parents.leaf
    for x in range(codes.size):
        same = reals[x] == last_reals[x] or (np.isnan(reals[x]) and np.isnan(last_reals[x]))
        if same and codes[x] == last_codes[x]:
            continue
        last_codes[x], last_reals[x] = codes[x], reals[x]
        for i in range(leaf_at[x], leaf_at[x + 1]):
            marks[leaf[i]] = VALUE
            n = min(n, leaf[i])
    while True:
        # The next node that is marked. This is no function of its own: numba counts who holds an array at every call.
        while n & 7 != 0 and marks[n] == 0:
            n += 1
        if n & 7 == 0:
            word = n >> 3
            while word < words.size and words[word] == 0:
                word += 1
            n = word << 3
            if n >= kind.size:
                return
            while marks[n] == 0:
                n += 1
        mark, end, done = marks[n], n + 1, (marks[n] & VALUE) == 0
        marks[n] = 0
        if rows is not None and rows[n] >= 0:
            end = last_row(rows, n)
        if forms is not None and ((mark & FORM) != 0 or kind[n] == SUM):
            for k in range(n, end):
                if forms[k] != NONE:
                    forms[k] = NONE
                    for j in range(above_at[k], above_at[k + 1]):
                        marks[above[j]] |= FORM
        if rows is not None and rows[n] >= 0 and not done:
            values, exponents = value[n:end].copy(), exponent[n:end].copy()
            done = block_values(start, child, weight, n, end, value, exponent)
            for k in range(n, end):
                if done and (value[k] != values[k - n] or exponent[k] != exponents[k - n]):
                    powers[0] += np.int64(exponent[k] != 0) - np.int64(exponents[k - n] != 0)
                    for j in range(above_at[k], above_at[k + 1]):
                        marks[above[j]] |= VALUE
        for k in range(n, n if done else end):
            v, power, plain, no_powers = 1.0, 0.0, True, s.plain and powers[0] == 0
            if kind[k] == GAUSSIAN:
                v, power = leaf_value(s, k, codes, reals)
            elif kind[k] < PRODUCT:
                x = table_start[k] + codes[var[k]]
                v, power = table[x], table_shift[x]
            elif kind[k] == PRODUCT:
                for e in range(start[k], start[k + 1]):
                    v *= value[child[e]]
                    if not no_powers:
                        power += exponent[child[e]]
                    if v < TINY:
                        if v == 0:
                            power = 0.0
                            break
                        v /= TINY
                        power -= STEP
            else:
                v = 0.0
                for e in range(start[k], start[k + 1]):
                    plain &= no_powers or (exponent[child[e]] == 0 and shift[e] == 0)
                    v += weight[e] * value[child[e]]
                if not plain:
                    v, power = sum_of_pairs(s, k, value, exponent)
                if 0 < v < TINY:
                    v /= TINY
                    power -= STEP
            if v != value[k] or power != (0.0 if no_powers else exponent[k]):
                value[k] = v
                if not no_powers or power != 0:
                    powers[0] += np.int64(power != 0) - np.int64(exponent[k] != 0)
                    exponent[k] = power
                for j in range(above_at[k], above_at[k + 1]):
                    marks[above[j]] |= VALUE
        n = end


@kernel
def _turned(start: LongArray, child: IntArray, rows: IntArray) -> tuple[LongArray, IntArray]:
    """Where the parents of each node begin, and the parents."""
    at = np.zeros(start.size + 1, dtype=np.int64)
    for n in range(start.size - 1):
        if rows.size == 0 or n == 0 or rows[n] < 0 or rows[n] != rows[n - 1]:
            for e in range(start[n], start[n + 1]):
                at[child[e] + 2] += 1
    for n in range(start.size):
        at[n + 1] += at[n]
    node = np.empty(at[start.size], dtype=np.int32)
    for n in range(start.size - 1):
        if rows.size == 0 or n == 0 or rows[n] < 0 or rows[n] != rows[n - 1]:
            for e in range(start[n], start[n + 1]):
                node[at[child[e] + 1]] = n
                at[child[e] + 1] += 1
    return at[:-1].copy(), node
