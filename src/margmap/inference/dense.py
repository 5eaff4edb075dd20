"""Dense blocks: sums next to each other with the same children in the same order, as layered models have them."""

from __future__ import annotations

import numpy as np

from margmap.circuit import SUM, Circuit, IntArray
from margmap.foundation.jit import kernel
from margmap.inference.scaled import Scaled, scaled

#: Sums of fewer edges gain nothing by being looked at together.
LEAST_EDGES = 8


def dense_rows(circuit: Circuit) -> IntArray:
    """For each node the first row of the dense block that it is a row of, or -1; found once for a circuit.

    Rows that have an edge of weight 0, or one so small that it has a power of two beside it, are left out.
    """
    return circuit.kept(_dense_rows)


def _dense_rows(circuit: Circuit) -> IntArray:
    return _first_rows(scaled(circuit))


@kernel
def _first_rows(s: Scaled) -> IntArray:
    first = np.full(s.kind.size, -1, dtype=np.int32)
    head = -1
    for n in range(s.kind.size):
        begin, size = s.start[n], s.start[n + 1] - s.start[n]
        if s.kind[n] != SUM or size < LEAST_EDGES:
            head = -1
            continue
        same = head >= 0 and s.start[head + 1] - s.start[head] == size
        if same:
            for i in range(size):
                if s.child[begin + i] != s.child[s.start[head] + i]:
                    same = False
                    break
        if not same:
            head = n
        plain = True
        for e in range(begin, begin + size):
            plain &= s.shift[e] == 0 and s.weight[e] > 0
        if plain:
            first[n] = head
    return first
