"""Prune-Edge: a circuit without the edges and literals whose bounds say that no state above the floor uses them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from margmap.circuit import FloatArray, IntArray
from margmap.foundation.limits import Runner, to_the_end
from margmap.solve.query_circuit import Flat, rebuild
from margmap.solve.supports import Flags


def hopeless(relative: FloatArray, cardinality: IntArray, asked: Flags, floor: float) -> Flags:
    """The literals of the variables asked for whose conditional bounds do not exceed the floor."""
    inside = np.arange(relative.shape[1]) < cardinality[:, None]
    result: Flags = (relative <= floor) & inside & asked[:, None]
    return result


def keep_without(flat: Flat, hopeless: Flags) -> Flags:
    """The edges to keep when the literals marked in ``hopeless`` (by variable and value) are set to zero."""
    leaf = flat.var >= 0
    dead = np.zeros(flat.num_nodes, dtype=np.bool_)
    dead[leaf] = hopeless[flat.var[leaf], flat.value[leaf]]
    keep: Flags = ~dead[flat.child]
    return keep


def restrict(
    flat: Flat, cardinality: IntArray, fixed: Iterable[tuple[int, int]], run: Runner = to_the_end
) -> tuple[Flat, float]:
    """The circuit with some variables fixed to values, and the log of a factor taken out of it."""
    others = np.zeros((cardinality.size, int(cardinality.max())), dtype=np.bool_)
    for variable, value in fixed:
        others[variable] = True
        others[variable, value] = False
    return rebuild(flat, keep_without(flat, others), run)
