"""Edge bounds: an upper bound of the root over all states that use an edge (Algorithm 2 of the paper, corrected).

The paper is Choi, Friedman and Van den Broeck, 2022. The rule printed there is wrong; ``docs/algorithms.md`` has a
counterexample, the rule used here and its proof.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from margmap.circuit import SUM, FloatArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.foundation.pairs import EPS, UP
from margmap.solve.output_bounds import Bounds
from margmap.solve.query_circuit import Flat
from margmap.solve.supports import Flags


def edge_bounds(flat: Flat, bounds: Bounds, run: Runner = to_the_end) -> FloatArray:
    """Algorithm 2 with the two-end-point rule: for each edge, a bound of the root over all states that use it.

    Relative to the root's output bound. The rule printed in the paper is wrong, see ``docs/algorithms.md``.
    """
    work = partial(_edge_bounds, flat, bounds.deterministic, bounds.share)
    return run(work, flat.num_edges, 16 * flat.num_nodes + 8 * flat.num_edges)


@kernel
def _edge_bounds(f: Flat, deterministic: Flags, share: FloatArray, stop: LongArray) -> FloatArray:
    """``high``: the root's bound when the node has its own; ``low``: when it is 0; each the largest over all paths.

    Differences of nearly equal numbers lose digits, so that each result is raised by what it can have lost.
    """
    n_nodes = f.kind.size
    high, low = np.zeros(n_nodes), np.zeros(n_nodes)
    high[n_nodes - 1] = 1.0
    result = np.zeros(f.child.size)
    for n in range(n_nodes - 1, -1, -1):
        if stop[0] != 0:
            break
        for e in range(f.start[n], f.start[n + 1]):
            edge_high, edge_low = high[n], low[n]
            if f.kind[n] == SUM:
                if deterministic[n]:
                    edge_high = min((low[n] + share[e] * (high[n] - low[n])) * UP, high[n])
                else:
                    edge_low = min((high[n] - share[e] * (high[n] - low[n])) + 8 * EPS * high[n], high[n])
            result[e] = edge_high
            c = f.child[e]
            high[c] = max(high[c], edge_high)
            low[c] = max(low[c], edge_low)
    return result
