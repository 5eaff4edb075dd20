"""Circuits from cirkit (``libcirkit`` on PyPI): a compiled ``TorchCircuit``, folded or not.

A layer of cirkit is an array of units [folds, units]. Its address book says which folds of which layers are the inputs
of a layer; read with node numbers in place of values, it undoes the folding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from margmap.circuit import BINOMIAL, GAUSSIAN, Circuit, FloatArray, LongArray, Name, Variable
from margmap.circuit.layers import Layers
from margmap.errors import StructureError
from margmap.interop.arrays import Columns, class_names, finish, integers, log_binomial, log_odds, logs, numbers, plain


def from_cirkit(model: Any, variables: Sequence[Name | Variable] | None = None) -> Circuit:
    """The circuit of a cirkit ``TorchCircuit``, with the parameters that it has now.

    Variable i is named i unless ``variables`` lists names or Variables. The inner layers may be sums, Hadamard and
    Kronecker products, and what cirkit fuses them to (CP-T, Tucker, tensor dot); the input layers categorical,
    binomial, embedding and Gaussian. Weights below 0, as squared circuits have them, are refused. A circuit with
    categorical logits is not normalised, in cirkit as here: :func:`margmap.normalise` divides by its total.
    """
    if not hasattr(model, "address_book"):
        raise StructureError(
            f"a {type(model).__name__} of cirkit has no parameters yet: give the TorchCircuit that "
            "cirkit.pipeline.compile makes of it"
        )
    book = list(model.address_book)
    columns, found = Columns(), {}
    for entry in book:
        if entry.module is not None and not entry.in_module_ids:
            layer = entry.module
            found[id(layer)] = _input(layer)
            for column in _columns(layer).tolist():
                columns.add(column, found[id(layer)][0], f"a {type(layer).__name__} of cirkit")
    made = columns.variables(variables, "the cirkit circuit")
    layers = Layers()
    units: list[LongArray] = []  # of every layer, [fold, unit]
    for entry in book:
        layer = entry.module
        if entry.in_module_ids:
            below = np.concatenate([units[i] for i in entry.in_module_ids[0]])
            index = entry.in_fold_idx[0]
            inputs = below[index if isinstance(index, tuple) else integers(index)]  # [fold, input, unit]
            if layer is None:
                remedy = "build it with one output (num_classes = 1), or compile one class of it"
                return finish(layers, made, inputs, f"this {type(model).__name__} of cirkit", remedy)
            units.append(_inner(layers, layer, inputs))
        else:
            units.append(_leaves(layers, layer, columns, found[id(layer)]))
    raise StructureError(f"the address book of this {type(model).__name__} of cirkit has no output")


def _weights(layer: Any) -> FloatArray:
    whose = f"a {type(layer).__name__} of cirkit"
    return logs(numbers(layer.weight(), whose), whose)


def _inner(layers: Layers, layer: Any, inputs: LongArray) -> LongArray:
    """The units of a layer over inputs [fold, input, unit]."""
    add = next((_INNER[known] for known in class_names(layer) if known in _INNER), None)
    if add is None:
        raise StructureError(f"a layer of cirkit is a {type(layer).__name__}: known are {', '.join(_INNER)}")
    return add(layers, layer, inputs)


def _hadamard(layers: Layers, layer: Any, inputs: LongArray) -> LongArray:
    return layers.products(inputs.transpose(0, 2, 1))


def _kronecker(layers: Layers, layer: Any, inputs: LongArray) -> LongArray:
    return layers.products(_pairs(inputs))


def _pairs(inputs: LongArray) -> LongArray:
    """All ways to take one unit of each input, the last input's unit changing fastest: [fold, way, input]."""
    folds, arity, size = inputs.shape
    grid = np.indices((size,) * arity).reshape(arity, -1)
    return np.stack([inputs[:, i, grid[i]] for i in range(arity)], axis=-1).reshape(folds, -1, arity)


def _sum(layers: Layers, layer: Any, inputs: LongArray) -> LongArray:
    return layers.sums(inputs.reshape(inputs.shape[0], 1, -1), _weights(layer))


def _cp_t(layers: Layers, layer: Any, inputs: LongArray) -> LongArray:
    return layers.sums(_hadamard(layers, layer, inputs)[:, None, :], _weights(layer))


def _tucker(layers: Layers, layer: Any, inputs: LongArray) -> LongArray:
    return layers.sums(_kronecker(layers, layer, inputs)[:, None, :], _weights(layer))


def _tensor_dot(layers: Layers, layer: Any, inputs: LongArray) -> LongArray:
    """Units [j, q] of the one input give units [q, k], the sums over j with weights [k, j]."""
    weight = _weights(layer)  # [fold, k, j]
    folds = inputs.shape[0]
    units = inputs.reshape(folds, weight.shape[2], -1).transpose(0, 2, 1)  # [fold, q, j]
    return layers.sums(units[:, :, None, :], weight[:, None, :, :]).reshape(folds, -1)


_INNER: dict[str, Callable[[Layers, Any, LongArray], LongArray]] = {
    "TorchSumLayer": _sum,
    "TorchHadamardLayer": _hadamard,
    "TorchKroneckerLayer": _kronecker,
    "TorchCPTLayer": _cp_t,
    "TorchTuckerLayer": _tucker,
    "TorchTensorDotLayer": _tensor_dot,
}


def _columns(layer: Any) -> LongArray:
    """The variable of each fold of an input layer."""
    return integers(layer.scope_idx)[:, 0]


def _leaves(layers: Layers, layer: Any, columns: Columns, found: tuple[int, int, FloatArray]) -> LongArray:
    size, kind, parameters = found
    folds = _columns(layer).tolist()
    place = np.array([columns.place[column] for column in folds])[:, None]
    if kind == GAUSSIAN:
        return layers.leaves(GAUSSIAN, place, parameters)
    if kind == BINOMIAL:
        if all(columns.size[column] == size for column in folds):
            return layers.leaves(BINOMIAL, place, parameters)
        parameters = log_binomial(size - 1, parameters[..., 1], parameters[..., 2])
    return np.concatenate(
        [layers.tables(place[i], columns.padded(column, parameters[i]))[None] for i, column in enumerate(folds)]
        if len({columns.size[column] for column in folds}) > 1
        else [layers.tables(place, columns.padded(folds[0], parameters))]
    )


def _input(layer: Any) -> tuple[int, int, FloatArray]:
    """The number of values of an input layer's variables, the kind of its leaves, and their parameters [fold, unit]."""
    name = type(layer).__name__
    whose = f"a {name} of cirkit"
    read = next((_INPUT[known] for known in class_names(layer) if known in _INPUT), None)
    if read is None:
        hint = ""
        if any("Constant" in known or "Evidence" in known for known in class_names(layer)):
            hint = (
                ". It is what is left of observed or integrated variables: give the circuit before that, and the "
                "evidence to margmap.marginal_map"
            )
        raise StructureError(f"an input layer of cirkit is a {name}: known are {', '.join(_INPUT)}{hint}")
    if integers(layer.scope_idx).shape[1] != 1:
        raise StructureError(f"{whose} is over several variables, and leaves have one")
    return read(layer, whose)


def _categorical(layer: Any, whose: str) -> tuple[int, int, FloatArray]:
    table = logs(numbers(layer.probs(), whose), whose) if layer.logits is None else numbers(layer.logits(), whose)
    return table.shape[-1], -1, table


def _embedding(layer: Any, whose: str) -> tuple[int, int, FloatArray]:
    table = logs(numbers(layer.weight(), whose), whose)
    return table.shape[-1], -1, table


def _binomial(layer: Any, whose: str) -> tuple[int, int, FloatArray]:
    if layer.logits is None:
        # torch keeps the probability of a trial this far away from 0 and 1.
        given = plain(layer.probs())
        nearest = float(np.finfo(given.dtype).eps)
        p = np.clip(numbers(given, whose), nearest, 1.0 - nearest)
        yes, no = logs(p, whose), logs(1.0 - p, whose)
    else:
        yes, no = log_odds(numbers(layer.logits(), whose))
    trials = int(layer.total_count)
    return trials + 1, BINOMIAL, np.stack((np.full(yes.shape, float(trials)), yes, no), axis=-1)


def _gaussian(layer: Any, whose: str) -> tuple[int, int, FloatArray]:
    if layer.log_partition is not None:
        raise StructureError(f"{whose} has a log-partition of its own, as products of circuits have: it is no density")
    return 0, GAUSSIAN, np.stack((numbers(layer.mean(), whose), numbers(layer.stddev(), whose)), axis=-1)


_INPUT: dict[str, Callable[[Any, str], tuple[int, int, FloatArray]]] = {
    "TorchCategoricalLayer": _categorical,
    "TorchEmbeddingLayer": _embedding,
    "TorchBinomialLayer": _binomial,
    "TorchGaussianLayer": _gaussian,
}
