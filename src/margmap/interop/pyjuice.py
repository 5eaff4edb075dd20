"""Circuits from pyjuice: a compiled ``TensorCircuit`` or the ``CircuitNodes`` that it was made of.

pyjuice (Liu, Ahmed and Van den Broeck, "Scaling Tractable Probabilistic Circuits: A Systems Perspective", ICML 2024)
has vectors of nodes, in blocks of ``block_size``: sums connect blocks of theirs with blocks of their children, products
blocks or single nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from margmap.circuit import GAUSSIAN, Circuit, FloatArray, LongArray, Name, Variable
from margmap.circuit.layers import Layers
from margmap.errors import StructureError
from margmap.interop.arrays import Columns, children_first, class_names, finish, integers, is_a, logs, numbers


def from_pyjuice(model: Any, variables: Sequence[Name | Variable] | None = None) -> Circuit:
    """The circuit of a pyjuice model, compiled or not, with the parameters that it has now.

    Variable i is named i unless ``variables`` lists names or Variables. Leaves may be Bernoulli, Categorical,
    MaskedCategorical, DiscreteLogistic, Indicator, Literal and Gaussian; pyjuice keeps parameters in single precision.
    """
    if hasattr(model, "root_ns"):
        model.update_parameters()  # what was learned goes from the device back to the nodes
        model = model.root_ns
    if not hasattr(model, "is_input"):
        raise StructureError(
            f"a {type(model).__name__} of pyjuice is no circuit: give the CircuitNodes of its root or what "
            "pyjuice.compile returns"
        )
    order = children_first(model, lambda ns: ns.chs)
    columns, found = Columns(), {}
    for ns in order:
        if ns.is_input():
            found[id(ns)] = _leaves(ns)
            columns.add(*found[id(ns)][:2], f"a leaf with {type(ns.dist).__name__} of pyjuice")
    made = columns.variables(variables, "the pyjuice model")
    layers, ids = Layers(), {}
    for ns in order:
        if ns.is_input():
            column, _, parameters = found.pop(id(ns))
            if columns.size[column] == 0:
                ids[id(ns)] = layers.leaves(GAUSSIAN, columns.place[column], parameters)
            else:
                ids[id(ns)] = layers.tables(columns.place[column], columns.padded(column, parameters))
        else:
            add = _products if ns.is_prod() else _sums
            ids[id(ns)] = add(layers, ns, [ids[id(child)] for child in ns.chs])
    remedy = "give the nodes of a single sum, for instance pyjuice.summate(nodes, num_node_blocks = 1, block_size = 1)"
    return finish(layers, made, ids[id(model)], f"the root {type(model).__name__} of pyjuice", remedy)


def _sums(layers: Layers, ns: Any, below: list[LongArray]) -> LongArray:
    """Sums by blocks: edge e joins all nodes of block ``edge_ids[0, e]`` with all of block ``edge_ids[1, e]`` below."""
    if hasattr(ns, "external_params"):
        raise StructureError(
            f"{type(ns).__name__} of pyjuice takes its parameters from outside with each row, so that it is no fixed "
            "circuit: build the model with plain sums"
        )
    given = ns.get_source_ns().get_params()
    if given is None:
        raise StructureError(f"a {type(ns).__name__} of pyjuice has no parameters: call init_parameters() on the root")
    size, width = ns.block_size, ns.chs[0].block_size
    parent, child = integers(ns.edge_ids)
    weight = logs(numbers(given, "a sum of pyjuice"), "a sum of pyjuice").reshape(parent.size, size, width)
    children = np.concatenate([part.ravel() for part in below]).reshape(-1, width)
    order = np.argsort(parent, kind="stable")
    blocks = np.bincount(parent, minlength=ns.num_node_blocks)
    first = np.cumsum(blocks) - blocks
    ids = np.zeros((ns.num_node_blocks, size), dtype=np.int64)
    for count in np.unique(blocks):  # rows with as many blocks of children at once
        rows = np.flatnonzero(blocks == count)
        edges = order[first[rows][:, None] + np.arange(count)]  # [row, block of children]
        weights = weight[edges].transpose(0, 2, 1, 3).reshape(rows.size, size, count * width)
        ids[rows] = layers.sums(children[child[edges]].reshape(rows.size, 1, count * width), weights)
    return ids.ravel()


def _products(layers: Layers, ns: Any, below: list[LongArray]) -> LongArray:
    """Products of node ``edge_ids[i, j]`` of the j-th child, or by blocks of such nodes."""
    edges = integers(ns.edge_ids)
    if edges.shape[0] != ns.num_nodes:
        size = ns.block_size
        edges = (edges[:, None, :] * size + np.arange(size)[None, :, None]).reshape(ns.num_nodes, -1)
    return layers.products(np.stack([part.ravel()[edges[:, j]] for j, part in enumerate(below)], axis=-1))


def _leaves(ns: Any) -> tuple[int, int, FloatArray]:
    """The column of input nodes, its number of values, and their log tables (or means and deviations)."""
    dist, scope = ns.dist, [int(v) for v in ns.scope.to_list()]
    name = type(dist).__name__
    if len(scope) != 1:
        raise StructureError(f"a leaf with {name} of pyjuice is over {len(scope)} variables, and leaves have one")
    read = next((_DISTRIBUTIONS[known] for known in class_names(dist) if known in _DISTRIBUTIONS), None)
    if read is None:
        why = ", which takes evidence from outside with each row" if is_a(dist, *_FROM_OUTSIDE) else ""
        raise StructureError(
            f"a leaf over variable {scope[0]} has the distribution {name} of pyjuice{why}: known are "
            f"{', '.join(_DISTRIBUTIONS)}"
        )
    given = ns.get_source_ns().get_params()
    if given is None and name != "Literal":
        raise StructureError(
            f"a leaf over variable {scope[0]} ({name} of pyjuice) has no parameters: call init_parameters() on the root"
        )
    flat = np.zeros(0) if given is None else numbers(given, f"a leaf with {name} of pyjuice")
    cardinality, parameters = read(dist, flat, ns.num_nodes)
    return scope[0], cardinality, parameters


def _bernoulli(dist: Any, flat: FloatArray, count: int) -> tuple[int, FloatArray]:
    return 2, logs(np.stack((1.0 - flat, flat), axis=-1), "a Bernoulli leaf of pyjuice")


def _categorical(dist: Any, flat: FloatArray, count: int) -> tuple[int, FloatArray]:
    return dist.num_cats, logs(flat.reshape(count, dist.num_cats), "a Categorical leaf of pyjuice")


def _masked(dist: Any, flat: FloatArray, count: int) -> tuple[int, FloatArray]:
    size, table = dist.num_cats, flat.reshape(count, -1)
    values = np.arange(size)
    if dist.mask_mode == "full_mask":
        allowed = table[:, size : 2 * size] >= 0.5
    else:
        allowed = (values >= table[:, size, None]) & (values < table[:, size + 1, None])
        if dist.mask_mode == "rev_range":
            allowed = ~allowed
    return size, logs(np.where(allowed, table[:, :size], 0.0), "a MaskedCategorical leaf of pyjuice")


def _discrete_logistic(dist: Any, flat: FloatArray, count: int) -> tuple[int, FloatArray]:
    """Intervals of a logistic distribution; the first and the last go to infinity. pyjuice stops at log p = -1000."""
    mean, scale = flat.reshape(count, 2).T
    low, high = map(float, dist.val_range)
    ends = low + (high - low) / dist.num_cats * np.arange(1, dist.num_cats)
    z = (ends - mean[:, None]) / scale[:, None]
    a = np.concatenate((np.full((count, 1), -np.inf), z), axis=1)
    b = np.concatenate((z, np.full((count, 1), np.inf)), axis=1)
    # Both ends on the side where the distribution function is small, so that the difference keeps its digits.
    flip = a > 0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    with np.errstate(divide="ignore", over="ignore"):
        mass = 1 / (1 + np.exp(-b)) - 1 / (1 + np.exp(-a))
        return dist.num_cats, np.maximum(np.log(mass), -1000.0)


def _indicator(dist: Any, flat: FloatArray, count: int) -> tuple[int, FloatArray]:
    size = int(max(dist.num_states, flat.max() + 1))
    return size, np.where(np.arange(size) == flat.reshape(count, 1), 0.0, -np.inf)


def _literal(dist: Any, flat: FloatArray, count: int) -> tuple[int, FloatArray]:
    size = max(2, dist.lit + 1)
    return size, np.tile(np.where(np.arange(size) == dist.lit, 0.0, -np.inf), (count, 1))


def _gaussian(dist: Any, flat: FloatArray, count: int) -> tuple[int, FloatArray]:
    return 0, flat.reshape(count, 2)


_DISTRIBUTIONS: dict[str, Callable[[Any, FloatArray, int], tuple[int, FloatArray]]] = {
    "Bernoulli": _bernoulli,
    "Categorical": _categorical,
    "MaskedCategorical": _masked,
    "DiscreteLogistic": _discrete_logistic,
    "Indicator": _indicator,
    "Literal": _literal,
    "Gaussian": _gaussian,
}
_FROM_OUTSIDE = (
    *("External", "ExternProductCategorical", "LatentSoftEvidence", "SoftEvidenceCategorical"),
    "SoftEvidenceIndicator",
)
