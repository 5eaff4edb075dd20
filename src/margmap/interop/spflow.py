"""Circuits from SPFlow: modules of version 1 (``spflow``) and trees of nodes of version 0 (``spn``).

A module of version 1 is an array of nodes [features, channels, repetitions]; ``inputs`` has the modules below. Each is
converted by what its ``log_likelihood`` computes, with node numbers in place of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from margmap.circuit import GAUSSIAN, Circuit, FloatArray, LongArray, Name, Variable
from margmap.circuit.layers import Layers
from margmap.errors import StructureError
from margmap.interop.arrays import (
    Columns,
    children_first,
    class_names,
    finish,
    integers,
    is_a,
    log_binomial,
    log_odds,
    log_softmax,
    numbers,
)
from margmap.interop.chow_liu_leaf import chow_liu_tree

#: The nodes of a module [feature, channel, repetition]; those of a module that splits its features are several arrays.
Nodes: TypeAlias = LongArray
Below: TypeAlias = "list[list[Nodes]]"


def from_spflow(model: Any, variables: Sequence[Name | Variable] | None = None) -> Circuit:
    """The circuit of an SPFlow model of version 1 or 0, with the parameters that it has now.

    Variable i, the column i of SPFlow's data, is named i unless ``variables`` lists names or Variables. Of version 1
    all sums, products, Einsum, Linsum and convolution layers can be read whose weights are not negative, and the leaves
    Bernoulli, Binomial, Categorical, Normal, CLTree, and histograms with a bin of width 1 for each of 0, 1, ...; of
    version 0 the leaves Bernoulli, Categorical, CategoricalDictionary, Gaussian, CLTree and such histograms.
    """
    if any(base.__module__.partition(".")[0] == "spn" for base in type(model).__mro__):
        from margmap.interop.spn_nodes import from_spflow_nodes

        return from_spflow_nodes(model, variables)
    order = children_first(model, _inputs)
    columns, found = Columns(), {}
    for module in order:
        if _is_leaf(module):
            found[id(module)] = _leaf_parameters(module)
            for column in module.scope.query:
                columns.add(column, found[id(module)][0], f"a {type(module).__name__} leaf of SPFlow")
    made = columns.variables(variables, "the SPFlow model")
    layers = Layers()
    nodes: dict[int, list[Nodes]] = {}
    for module in order:
        if _is_leaf(module):
            nodes[id(module)] = [_leaves(layers, module, columns, *found.pop(id(module)))]
        else:
            nodes[id(module)] = _converted(layers, module, [nodes[id(child)] for child in _inputs(module)])
    remedy = "put a Sum with one output channel on top, or build it with one class"
    return finish(layers, made, np.concatenate(nodes[id(model)]), f"this {type(model).__name__} of SPFlow", remedy)


def _is_leaf(module: Any) -> bool:
    return is_a(module, "LeafModule")


def _inputs(module: Any) -> Iterable[Any]:
    """The modules right below."""
    if _is_leaf(module):
        return ()
    for name in ("root_node", "module", "inputs"):  # whole architectures, wrappers, all others
        below = getattr(module, name, None)
        if below is not None:
            return (below,) if hasattr(below, "out_shape") else tuple(below)
    raise StructureError(f"a {type(module).__name__} of SPFlow is no module of a circuit that is known")


def _converted(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    if getattr(module, "root_node", None) is not None or getattr(module, "module", None) is not None:
        return below[0]
    convert = next((_MODULES[known] for known in class_names(module) if known in _MODULES), None)
    if convert is None:
        signed = " (its weights may be negative)" if is_a(module, "SignedSum", "SOCS") else ""
        raise StructureError(
            f"a {type(module).__name__} of SPFlow{signed} cannot be read: known are {', '.join(_MODULES)}, and leaves"
        )
    return convert(layers, module, below)


def _parts(below: Below) -> list[Nodes]:
    """The arrays of all inputs in one list; a split input has several."""
    return [part for parts in below for part in parts]


def _weights(module: Any) -> FloatArray:
    return numbers(module.log_weights, f"a {type(module).__name__} of SPFlow")


def _sum(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    weights = _weights(module)  # [feature, input, output, repetition]
    nodes = below[0][0]
    # Above a Chow-Liu tree there are weights for features that count as 1.
    return [layers.sums(nodes.transpose(0, 2, 1)[:, None], weights[: nodes.shape[0]].transpose(0, 2, 3, 1))]


def _repetition_mixing(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    return [layers.sums(below[0][0], _weights(module))[:, :, None]]


def _elementwise_sum(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    weights = _weights(module)  # [feature, channel, output, input, repetition]
    features, channels, outputs, _, repetitions = weights.shape
    inputs = np.stack([np.broadcast_to(part, (features, channels, part.shape[2])) for part in _parts(below)], axis=-1)
    made = layers.sums(inputs[:, :, None], weights.transpose(0, 1, 2, 4, 3))
    return [made.reshape(features, channels * outputs, repetitions)]


def _product(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    return [layers.products(np.moveaxis(below[0][0], 0, -1))[None]]


def _cat(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    return [np.concatenate(_parts(below), axis=module.dim - 1)]


def _split_consecutive(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    nodes = below[0][0]
    size = nodes.shape[0] // module.num_splits
    return [nodes[i : i + size] for i in range(0, nodes.shape[0], size)]


def _split_interleaved(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    return [below[0][0][i :: module.num_splits] for i in range(module.num_splits)]


def _split_by_index(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    return [below[0][0][list(group)] for group in module.indices]


def _elementwise_product(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    return [layers.products(np.stack(np.broadcast_arrays(*_parts(below)), axis=-1))]


def _outer_product(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    parts = _parts(below)
    grid = np.indices([part.shape[1] for part in parts]).reshape(len(parts), -1)
    return [layers.products(np.stack([part[:, grid[i]] for i, part in enumerate(parts)], axis=-1))]


def _factorize(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    """Products of the inputs that have a 1 in ``indices`` [input, output, repetition], which differ in number."""
    member = integers(module.indices) > 0
    _, outputs, repetitions = member.shape
    nodes = np.broadcast_to(below[0][0], (*below[0][0].shape[:2], repetitions))
    made = np.zeros((outputs, nodes.shape[1], repetitions), dtype=np.int64)
    counts = member.sum(axis=0)
    for count in np.unique(counts):
        if count == 0:
            raise StructureError(f"a {type(module).__name__} of SPFlow has an output without inputs: use less depth")
        output, repetition = np.nonzero(counts == count)
        inputs = np.nonzero(member[:, output, repetition].T)[1].reshape(-1, count)
        children = nodes[inputs[:, None, :], np.arange(nodes.shape[1])[None, :, None], repetition[:, None, None]]
        made[output, :, repetition] = layers.products(children)
    return [made]


def _einsum(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    left, right = _two(module, below)
    weights = _weights(module)  # [feature, output, repetition, left, right]
    features, outputs, repetitions = weights.shape[:3]
    a, b = np.broadcast_arrays(left.transpose(0, 2, 1)[..., :, None], right.transpose(0, 2, 1)[..., None, :])
    products = layers.products(np.stack((a, b), axis=-1)).reshape(features, 1, repetitions, -1)
    return [layers.sums(products, weights.reshape(features, outputs, repetitions, -1))]


def _linsum(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    products = layers.products(np.stack(_two(module, below), axis=-1))
    return [layers.sums(products.transpose(0, 2, 1)[:, None], _weights(module))]


def _two(module: Any, below: Below) -> tuple[Nodes, Nodes]:
    parts = _parts(below)
    if len(parts) != 2:
        raise StructureError(f"a {type(module).__name__} of SPFlow has {len(parts)} inputs, and it multiplies two")
    return parts[0], parts[1]


def _prod_conv(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    """Products of the nodes in a square grid that lie in one patch; patches at the edges may have fewer."""
    nodes = below[0][0]
    side = round(nodes.shape[0] ** 0.5)
    rows, columns = np.divmod(np.arange(nodes.shape[0]), side)
    rows = (rows + module.padding_h) // module.kernel_size_h
    columns = (columns + module.padding_w) // module.kernel_size_w
    high = (side + 2 * module.padding_h) // module.kernel_size_h
    wide = (side + 2 * module.padding_w) // module.kernel_size_w
    patch = np.where((rows < high) & (columns < wide), rows * wide + columns, -1)
    made = np.zeros((high * wide, *nodes.shape[1:]), dtype=np.int64)
    for i in range(high * wide):
        inside = np.flatnonzero(patch == i)
        if inside.size == 0:
            raise StructureError(f"a {type(module).__name__} of SPFlow has an empty patch: use less padding")
        made[i] = layers.products(np.moveaxis(nodes[inside], 0, -1))
    return [made]


def _sum_conv(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    """Sums over the channels of each place in a square grid, with the weights of its place in the kernel."""
    nodes, weights = below[0][0], _weights(module)  # [output, input, row, column, repetition]
    side, size = round(nodes.shape[0] ** 0.5), int(module.kernel_size)
    rows, columns = np.divmod(np.arange(nodes.shape[0]), side)
    if side < size:
        rows, columns = np.zeros_like(rows), np.zeros_like(columns)
    at = weights[:, :, rows % size, columns % size]  # [output, input, feature, repetition]
    return [layers.sums(nodes.transpose(0, 2, 1)[:, None], at.transpose(2, 0, 3, 1))]


def _same(layers: Layers, module: Any, below: Below) -> list[Nodes]:
    return below[0]


_MODULES: dict[str, Callable[[Layers, Any, Below], list[Nodes]]] = {
    "RepetitionMixingLayer": _repetition_mixing,
    "Sum": _sum,
    "ElementwiseSum": _elementwise_sum,
    "Product": _product,
    "ElementwiseProduct": _elementwise_product,
    "OuterProduct": _outer_product,
    "Factorize": _factorize,
    "EinsumLayer": _einsum,
    "LinsumLayer": _linsum,
    "ProdConv": _prod_conv,
    "SumConv": _sum_conv,
    "Cat": _cat,
    "SplitConsecutive": _split_consecutive,
    "SplitInterleaved": _split_interleaved,
    "SplitByIndex": _split_by_index,
    "ConvPc": _same,
}


def _leaf_parameters(module: Any) -> tuple[int, FloatArray]:
    """The number of values of a leaf module's variables (0: continuous), and its parameters [feature, ...]."""
    name = type(module).__name__
    whose = f"a {name} leaf of SPFlow"
    if getattr(module, "parameter_fn", None) is not None or len(getattr(module.scope, "evidence", ())):
        raise StructureError(
            f"{whose} over variables {list(module.scope.query)} is conditional: its parameters are a function of other "
            "variables. Replace it with a leaf of fixed parameters"
        )
    read = next((_LEAVES[known] for known in class_names(module) if known in _LEAVES), None)
    if read is None:
        raise StructureError(
            f"{whose} over variables {list(module.scope.query)} cannot be read: known are {', '.join(_LEAVES)}. "
            "Discretise the variable, or use one of these"
        )
    return read(module, whose)


def _bernoulli(module: Any, whose: str) -> tuple[int, FloatArray]:
    yes, no = log_odds(numbers(module.logits, whose))
    return 2, np.stack((no, yes), axis=-1)


def _categorical(module: Any, whose: str) -> tuple[int, FloatArray]:
    table = log_softmax(numbers(module.logits, whose))
    return table.shape[-1], table


def _binomial(module: Any, whose: str) -> tuple[int, FloatArray]:
    yes, no = log_odds(numbers(module.logits, whose))
    trials = np.broadcast_to(integers(module.total_count), yes.shape)
    most = int(trials.max())
    table = np.full((*yes.shape, most + 1), -np.inf)
    for n in np.unique(trials).tolist():
        table[trials == n, : n + 1] = log_binomial(n, yes[trials == n], no[trials == n])
    return most + 1, table


def _normal(module: Any, whose: str) -> tuple[int, FloatArray]:
    return 0, np.stack((numbers(module.loc, whose), numbers(module.scale, whose)), axis=-1)


def _histogram(module: Any, whose: str) -> tuple[int, FloatArray]:
    edges = numbers(module.bin_edges, whose)
    inside = np.ceil(edges[:-1])  # the whole number in a bin of width 1
    if not (np.allclose(np.diff(edges), 1.0) and (inside == np.arange(inside.size)).all()):
        raise StructureError(
            f"{whose} over variables {list(module.scope.query)} has other bins than one of width 1 for each of 0, 1, "
            "...: it is a density of a continuous variable. Discretise the variable, or use a Normal leaf"
        )
    table = log_softmax(numbers(module.logits, whose))
    return table.shape[-1], table


def _chow_liu(module: Any, whose: str) -> tuple[int, FloatArray]:
    if (integers(module.parents) == -1).sum() != 1:
        raise StructureError(f"{whose} has no tree yet: fit it first")
    return int(module.K), numbers(module.log_cpt, whose)


_LEAVES: dict[str, Callable[[Any, str], tuple[int, FloatArray]]] = {
    "Bernoulli": _bernoulli,
    "Binomial": _binomial,
    "Categorical": _categorical,
    "Histogram": _histogram,
    "Normal": _normal,
    "CLTree": _chow_liu,
}


def _leaves(layers: Layers, module: Any, columns: Columns, size: int, parameters: FloatArray) -> Nodes:
    query = [int(v) for v in module.scope.query]
    if is_a(module, "CLTree"):
        # SPFlow gives the tree's value to the first feature and 1 to the others, which are left out here.
        return chow_liu_tree(layers, columns, query, integers(module.parents).tolist(), parameters)[None]
    parameters = parameters.reshape(*tuple(module.out_shape), -1)  # [feature, channel, repetition, ...]
    place = np.array([columns.place[column] for column in query])[:, None, None]
    if size == 0:
        return layers.leaves(GAUSSIAN, place, parameters)
    if len({columns.size[column] for column in query}) == 1:
        return layers.tables(place, columns.padded(query[0], parameters))
    return np.stack([layers.tables(place[i], columns.padded(v, parameters[i])) for i, v in enumerate(query)])
