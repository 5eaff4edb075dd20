"""Pieces of a large circuit: parts that do not depend on each other, and the rest, the top, which depends on them.

What lies below a scope of a structured-decomposable circuit is closed: the children of its nodes lie below the same
scope. So the tree of scopes is cut such that the nodes below the cut fall into pieces of about equal size, with
disjoint variables. A pass up does the pieces first, at once if there are threads for it, and then the top; a pass down
does them the other way round. The cut depends on the circuit alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from margmap.circuit import Circuit, FloatArray, IntArray, LongArray
from margmap.circuit.scopes import scope_tree
from margmap.foundation.threads import at_once
from margmap.inference.passes import forward, forward_dense, forward_nodes
from margmap.inference.scaled import is_dense, scaled

#: A circuit with fewer edges is quicker done whole than the threads are told of it.
LEAST_EDGES = 500_000

#: So many pieces, or fewer: enough for a balance among some threads, and each is worth telling a thread of it.
PIECES = 8

#: With a larger part of the edges in the top there is no use in pieces.
MOST_TOP = 0.5


class Pieces(NamedTuple):
    """The nodes of each piece, children first, and those of the top."""

    below: tuple[IntArray, ...]
    top: IntArray

    def up(self, work: Callable[[IntArray], None]) -> None:
        """Do work on all nodes, children first."""
        at_once([partial(work, nodes) for nodes in self.below], [nodes.size for nodes in self.below])
        work(self.top)


def pieces_of(circuit: Circuit) -> Pieces | None:
    """The pieces of a circuit, found once; None if it is small, its scopes cross, or most of it would be in the top."""
    return None if circuit.num_edges < LEAST_EDGES else circuit.kept(_pieces_of)


def _pieces_of(circuit: Circuit) -> Pieces | None:
    scope, bits = circuit.scopes
    parent = scope_tree(bits)
    if parent is None:
        return None
    own: FloatArray = np.bincount(scope, np.diff(circuit.start), len(bits)).astype(np.float64)
    piece = _cut(parent, own)
    if own[piece < 0].sum() > MOST_TOP * circuit.num_edges or piece.max() < 1:
        return None
    of_node = np.take(piece, scope)
    order = np.argsort(of_node, kind="stable").astype(np.int32)
    ends = np.searchsorted(of_node[order], np.arange(-1, piece.max() + 2))
    parts = [order[begin:end] for begin, end in pairwise(ends.tolist())]
    return Pieces(tuple(parts[1:]), parts[0])


def _cut(parent: LongArray, own: FloatArray) -> LongArray:
    """The piece of each scope, -1 for the top: the largest subtree is cut open until none is more than a fair share.

    Smaller ones would balance better, but leave more in the top, which one thread does while the others wait.
    """
    size = own.copy()
    below: list[list[int]] = [[] for _ in own]
    order = _parts_first(parent)
    for s in order:
        if parent[s] >= 0:
            size[parent[s]] += size[s]
            below[parent[s]].append(s)
    fair = size.max() / PIECES
    heap = [(-size[s], s) for s in order if parent[s] < 0]
    heapify(heap)
    roots: list[int] = []
    while heap:
        negative, s = heappop(heap)
        if -negative > fair and below[s]:
            for part in below[s]:
                heappush(heap, (-size[part], part))
        else:
            roots.append(s)
    # Largest first, each to the piece that has least so far.
    piece = np.full(own.size, -1, dtype=np.int64)
    filled = [(0.0, i) for i in range(PIECES)]
    for s in roots:
        had, i = heappop(filled)
        heappush(filled, (had + size[s], i))
        piece[s] = i
    used = np.unique(piece[piece >= 0])
    piece[piece >= 0] = np.searchsorted(used, piece[piece >= 0])
    for s in reversed(order):
        if piece[s] < 0 and parent[s] >= 0:
            piece[s] = piece[parent[s]]
    return piece


def _parts_first(parent: LongArray) -> list[int]:
    """The scopes of a tree, each before the one that contains it."""
    depth = np.zeros(parent.size, dtype=np.int64)
    at = parent.copy()
    while (at >= 0).any():
        depth[at >= 0] += 1
        at = np.where(at >= 0, parent[at], -1)
    return [int(s) for s in np.argsort(-depth, kind="stable")]


def pass_up(circuit: Circuit, codes: IntArray, reals: FloatArray, value: FloatArray, exponent: FloatArray) -> None:
    """The relative value of every node under one row, as pairs, in the way that is quicker for the circuit."""
    s, pieces = scaled(circuit), pieces_of(circuit)
    if pieces is None:
        (forward_dense if is_dense(circuit) else forward)(s, codes, reals, value, exponent)
        return
    rows = s.rows if is_dense(circuit) else None
    pieces.up(lambda nodes: forward_nodes(s, rows, nodes, codes, reals, value, exponent))
