"""Trees of states read back out of circuits, so that their learners can go on from a model file.

Latent trees and Chow-Liu trees become circuits in the same way: a column has a node for each state, a leaf of the
column times one sum for each child of the column, over the states of the child. A sum over one state, of weight 1, is
that state itself, and a product of one node is that node.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from margmap.circuit import PRODUCT, SUM, Circuit, FloatArray, LongArray
from margmap.errors import DataError


class Place(NamedTuple):
    """A column of the tree, the place of its parent in the list (-1 at the root), and what its states have.

    ``leaf[z]`` is the node of the leaf of state z, ``log_weight[y, z]`` is log p(state z | state y of the parent),
    which at the root has one row.
    """

    column: int
    parent: int
    leaf: LongArray
    log_weight: FloatArray


def read_places(circuit: Circuit, root: int, what: str) -> list[Place]:
    """The columns of the tree below a node, each after its parent: all that the circuit has.

    ``what`` says in an error what the circuit should be.
    """
    scope = circuit.scopes.id
    made: list[Place] = []
    ahead = [(-1, np.array([root]))]
    while ahead:
        parent, sums = ahead.pop()
        states, log_weight = _states(circuit, sums)
        leaf = np.empty(states.size, dtype=np.int64)
        below: list[dict[int, int]] = []
        for z, node in enumerate(states.tolist()):
            leaf[z], others = _own_leaf(circuit, node, what)
            below.append({int(scope[child]): child for child in others})
        column = int(circuit.var[leaf[0]])
        if (circuit.var[leaf] != column).any() or any(set(each) != set(below[0]) for each in below):
            raise DataError(f"the circuit to go on from is not {what}: node {int(states[0])} and its siblings differ")
        made.append(Place(column, parent, leaf, log_weight))
        ahead += [(len(made) - 1, np.array([each[key] for each in below])) for key in below[0]]
    gone = set(range(len(circuit.variables))) - {place.column for place in made}
    if gone:
        name = circuit.names[min(gone)]
        raise DataError(f"the circuit to go on from is not {what}: the tree below node {root} has no column {name!r}")
    return made


def _states(circuit: Circuit, sums: LongArray) -> tuple[LongArray, FloatArray]:
    """The nodes that some sums are over, in the order of their numbers, and the weights that each sum has for them."""
    is_sum = circuit.kind[sums] == SUM
    first, fan_in = circuit.start[sums], np.where(is_sum, circuit.start[sums + 1] - circuit.start[sums], 1)
    edge = np.repeat(first - np.cumsum(fan_in) + fan_in, fan_in) + np.arange(int(fan_in.sum()))
    from_sum = np.repeat(is_sum, fan_in)
    node, weight = np.repeat(sums, fan_in), np.zeros(edge.size)
    node[from_sum], weight[from_sum] = circuit.child[edge[from_sum]], circuit.log_weight[edge[from_sum]]
    states, which = np.unique(node, return_inverse=True)
    table = np.full((sums.size, states.size), -np.inf)
    np.logaddexp.at(table, (np.repeat(np.arange(sums.size), fan_in), which.reshape(-1)), weight)
    return states, table


def _own_leaf(circuit: Circuit, node: int, what: str) -> tuple[int, list[int]]:
    """The leaf of a state's own column, and the other nodes of its product."""
    if circuit.kind[node] == SUM:
        raise DataError(f"the circuit to go on from is not {what}: node {node} is a sum below a sum")
    if circuit.kind[node] != PRODUCT:
        return node, []
    children = circuit.child[circuit.start[node] : circuit.start[node + 1]].tolist()
    leaves = [child for child in children if circuit.var[child] >= 0]
    # A column of one value may stand as a leaf beside that of its parent.
    varied = [child for child in leaves if circuit.variables[int(circuit.var[child])].cardinality != 1]
    if not leaves:
        raise DataError(f"the circuit to go on from is not {what}: node {node}, a product, has no leaf")
    own = (varied or leaves)[0]
    return own, [child for child in children if child != own]
