"""A state to start from: Algorithm 4 of Choi, Friedman and Van den Broeck, 2022."""

from __future__ import annotations

import numpy as np

from margmap.circuit import PRODUCT, FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel
from margmap.solve.output_bounds import bounds_of_whole, output_bounds
from margmap.solve.query_circuit import LEAF, Flat
from margmap.solve.supports import Flags


def lower_bound_state(
    flat: Flat,
    deterministic: Flags,
    variables: int,
    rows: IntArray | None = None,
    parts: LongArray | None = None,
) -> IntArray:
    """Algorithm 4: take the maximum at deterministic sums and at every sum above one, follow it down.

    ``rows`` as :func:`~margmap.solve.query_circuit.rows_of` finds them, if they are known.
    """
    state = np.zeros(variables, dtype=np.int32)
    if parts is None:
        _follow(flat, rows, deterministic, state)
        return state
    take_max = _at_or_above(flat, rows, deterministic)
    extract(flat, output_bounds(flat, take_max, rows=rows, parts=parts).share, state)
    return state


@kernel
def _follow(f: Flat, rows: IntArray | None, deterministic: Flags, state: IntArray) -> None:
    """The same for a circuit without parts, in one call."""
    take_max = _at_or_above(f, rows, deterministic)
    extract(f, bounds_of_whole(f, rows, take_max, np.zeros(1, dtype=np.int64))[2], state)


@kernel
def _at_or_above(f: Flat, rows: IntArray | None, deterministic: Flags) -> Flags:
    result: Flags = deterministic.copy()
    for n in range(f.kind.size):
        if rows is not None and 0 <= rows[n] < n:
            result[n] |= result[rows[n]]
            continue
        for e in range(f.start[n], f.start[n + 1]):
            result[n] |= result[f.child[e]]
    return result


@kernel
def extract(f: Flat, share: FloatArray, state: IntArray) -> None:
    """The state that the largest share at every sum leads to."""
    extract_below(f, share, state, f.kind.size - 1, np.zeros(f.kind.size, dtype=np.int32))


@kernel
def extract_below(f: Flat, share: FloatArray, state: IntArray, node: int, stack: IntArray) -> None:
    """The same below one node; the other variables stay as they are."""
    stack[0] = node
    height = 1
    while height > 0:
        height -= 1
        n = stack[height]
        if f.kind[n] == LEAF:
            state[f.var[n]] = f.value[n]
        elif f.kind[n] == PRODUCT:
            for e in range(f.start[n], f.start[n + 1]):
                stack[height] = f.child[e]
                height += 1
        else:
            best = f.start[n]
            for e in range(f.start[n] + 1, f.start[n + 1]):
                if share[e] > share[best]:
                    best = e
            stack[height] = f.child[best]
            height += 1
