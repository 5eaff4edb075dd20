"""Circuits from libraries whose sum-product networks are graphs of node objects: SPFlow 0 (``spn``) and deeprob-kit.

A node has ``children``, a sum ``weights`` beside them, and a leaf a ``scope`` of columns; the class of a leaf says what
its parameters are called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from margmap.circuit import GAUSSIAN, MAX_CARDINALITY, Circuit, FloatArray, Name, Variable
from margmap.circuit.layers import Layers
from margmap.errors import StructureError
from margmap.interop.arrays import Columns, children_first, class_names, finish, integers, is_a, logs, numbers
from margmap.interop.chow_liu_leaf import chow_liu_tree


class Leaf(NamedTuple):
    """What a leaf says: the number of values of its columns (0: continuous) and its parameters.

    Those are a log table, or a mean and a deviation; with ``parents``, the log tables of a Chow-Liu tree.
    """

    cardinality: int
    parameters: FloatArray
    parents: Sequence[int] | None = None


def from_spflow_nodes(root: Any, variables: Sequence[Name | Variable] | None = None) -> Circuit:
    """The circuit of a graph of SPFlow 0: sums, products, and leaves of the kinds that :func:`spflow_leaf` knows."""
    return from_nodes(root, variables, "SPFlow", spflow_leaf)


def from_nodes(
    root: Any, variables: Sequence[Name | Variable] | None, library: str, read: Callable[[Any, str], Leaf]
) -> Circuit:
    """The circuit of a graph of node objects; ``read`` says what a leaf is."""
    order = children_first(root, _below)
    columns, found = Columns(), {}
    for node in order:
        if not is_a(node, "Sum", "Product"):
            found[id(node)] = _read(node, library, read)
            for column in node.scope:
                columns.add(column, found[id(node)].cardinality, f"a {type(node).__name__} leaf of {library}")
    made = columns.variables(variables, f"this {type(root).__name__} of {library}")
    layers, number = Layers(), {}
    for node in order:
        if id(node) in found:
            number[id(node)] = _leaf(layers, columns, [int(v) for v in node.scope], found.pop(id(node)))
            continue
        children = np.array([number[id(child)] for child in _below(node)], dtype=np.int64)
        whose = f"a {type(node).__name__} of {library}"
        if children.size == 0:
            raise StructureError(f"{whose} over variables {list(node.scope)} has no children")
        if is_a(node, "Sum"):
            weights = np.zeros(0) if node.weights is None else numbers(node.weights, whose)
            if weights.shape != children.shape:
                raise StructureError(f"{whose} has {children.size} children and {weights.size} weights: learn it first")
            number[id(node)] = int(layers.sums(children, logs(weights, whose)))
        else:
            number[id(node)] = int(layers.products(children))
    roots = np.array([number[id(root)]], dtype=np.int64)
    return finish(layers, made, roots, f"this {type(root).__name__} of {library}", "give one node")


def _below(node: Any) -> Iterable[Any]:
    return node.children if is_a(node, "Sum", "Product") else ()


def _read(node: Any, library: str, read: Callable[[Any, str], Leaf]) -> Leaf:
    whose = f"a {type(node).__name__} leaf of {library}"
    if not hasattr(node, "scope"):
        raise StructureError(f"a {type(node).__name__} of {library} is no node of a sum-product network")
    return read(node, f"{whose} over variables {[int(v) for v in node.scope]}")


def _leaf(layers: Layers, columns: Columns, scope: list[int], leaf: Leaf) -> int:
    if leaf.parents is not None:
        return int(chow_liu_tree(layers, columns, scope, leaf.parents, leaf.parameters))
    place = columns.place[scope[0]]
    if leaf.cardinality == 0:
        return int(layers.leaves(GAUSSIAN, place, leaf.parameters))
    return int(layers.tables(place, columns.padded(scope[0], leaf.parameters)))


def spflow_leaf(node: Any, whose: str) -> Leaf:
    """A leaf of SPFlow 0: Bernoulli, Categorical, CategoricalDictionary, Gaussian, Chow-Liu tree, or a histogram."""
    kind = _known(node, whose, ("Bernoulli", "CategoricalDictionary", "Categorical", "Gaussian", "Histogram", "CLTree"))
    if kind == "Bernoulli":
        return Leaf(2, logs(np.array([1.0 - _given(node.p, whose), float(node.p)]), whose))
    if kind == "Categorical":
        table = logs(numbers(_given(node.p, whose), whose), whose)
        return Leaf(table.size, table)
    if kind == "CategoricalDictionary":
        return by_value(list(_given(node.p, whose)), list(node.p.values()), whose)
    if kind == "Gaussian":
        return Leaf(0, np.array([float(_given(node.mean, whose)), float(node.stdev)]))
    if kind == "CLTree":
        return Leaf(2, numbers(node.log_factors, whose), integers(node.tree).tolist())
    return by_value(*_bins(numbers(node.breaks, whose), numbers(node.densities, whose), whose), whose)


def _known(node: Any, whose: str, kinds: Sequence[str]) -> str:
    kind = next((name for name in class_names(node) if name in kinds), None)
    if kind is None:
        raise StructureError(
            f"{whose} cannot be read: known are {', '.join(kinds)}. Discretise the variable, or use one of these"
        )
    return kind


def _given(parameter: Any, whose: str) -> Any:
    if parameter is None:
        raise StructureError(f"{whose} has no parameters: learn or set them first")
    return parameter


def by_value(values: Sequence[Any], probabilities: Any, whose: str) -> Leaf:
    """A table whose entries are listed with the values that they are for."""
    codes = np.array([float(value) for value in values])
    if codes.size == 0 or (codes != np.floor(codes)).any() or (codes < 0).any():
        raise StructureError(f"{whose} has values other than 0, 1, 2, ...: number the values of the column")
    size = int(codes.max()) + 1
    if size > MAX_CARDINALITY:
        raise StructureError(f"{whose} has the value {size - 1}, and {MAX_CARDINALITY} values are the most")
    table = np.full(size, -np.inf)
    table[codes.astype(np.int64)] = logs(numbers(probabilities, whose), whose)
    return Leaf(size, table)


def _bins(breaks: FloatArray, densities: FloatArray, whose: str) -> tuple[list[float], FloatArray]:
    """The whole numbers that the bins of a histogram stand for, and their probabilities."""
    first = np.ceil(breaks[:-1])
    if not np.allclose(np.diff(breaks), 1.0) or not np.allclose(np.diff(first), 1.0):
        raise StructureError(
            f"{whose} has other bins than one of width 1 for each whole number: it is a density of a continuous "
            "variable. Discretise the variable, or use a Gaussian"
        )
    return first.tolist(), densities


def deeprob_leaf(node: Any, whose: str) -> Leaf:
    """A leaf of deeprob-kit: Bernoulli, Categorical, Gaussian, or a binary Chow-Liu tree."""
    kind = _known(node, whose, ("Bernoulli", "Categorical", "Gaussian", "BinaryCLT"))
    if kind == "Bernoulli":
        return Leaf(2, logs(np.array([1.0 - float(node.p), float(node.p)]), whose))
    if kind == "Categorical":
        return by_value(_given(node.categories, whose).tolist(), node.probabilities, whose)
    if kind == "Gaussian":
        return Leaf(0, np.array([float(node.mean), float(node.stddev)]))
    # Its tables are [variable, value of the parent, value].
    tables = np.swapaxes(numbers(_given(node.params, whose), whose), 1, 2)
    return Leaf(2, tables, integers(_given(node.tree, whose)).tolist())
