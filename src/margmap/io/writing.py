"""What the writers share: the numbers of variables in files, and the nodes of a circuit one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from margmap.circuit import GAUSSIAN, Circuit, Name
from margmap.circuit.leaves import leaf_tables
from margmap.errors import FormatError
from margmap.io.reading import MAX_VARIABLE


def numbers_from_one(names: Sequence[Name]) -> list[int]:
    """The numbers of variables in psdd, jpc and vtree files: their names where all are such numbers, else 1, 2, ..."""
    kept = [name for name in names if isinstance(name, int) and 0 < name <= MAX_VARIABLE]
    return kept if len(kept) == len(names) else list(range(1, len(names) + 1))


class Node(NamedTuple):
    """One node of a circuit, with plain numbers."""

    kind: int
    #: The column of a leaf's variable; -1 for sums and products.
    var: int
    children: list[int]
    log_weights: list[float]
    parameters: list[float]
    #: The log-probability of each value, if it is a discrete leaf.
    table: Sequence[float] = ()


def nodes_of(circuit: Circuit, form: str) -> Iterator[Node]:
    """Every node, children first, for a format that has no continuous leaves: those are refused."""
    found = np.flatnonzero(circuit.kind == GAUSSIAN)
    if found.size:
        node = int(found[0])
        name = circuit.variables[circuit.var[node]].name
        raise FormatError(
            f"node {node} (gaussian over variable {name!r}) cannot be written as {form}: save the circuit as .json "
            "or .mmz"
        )
    start, tables = leaf_tables(circuit)
    values = tables.tolist()
    each = zip(all_nodes(circuit), pairwise(start.tolist()), strict=True)
    return (node._replace(table=values[a:b]) if a < b else node for node, (a, b) in each)


def all_nodes(circuit: Circuit) -> Iterator[Node]:
    """Every node, children first, without tables."""
    child, weight, param = (x.tolist() for x in (circuit.child, circuit.log_weight, circuit.param))
    bounds = (pairwise(x.tolist()) for x in (circuit.start, circuit.param_start))
    for kind, var, (a, b), (c, d) in zip(circuit.kind.tolist(), circuit.var.tolist(), *bounds, strict=True):
        yield Node(kind, var, child[a:b], weight[a:b], param[c:d])
