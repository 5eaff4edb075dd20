"""Sentential decision diagrams of PySDD: ``SddNode``, and ``WmcManager`` with the weights of its literals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from margmap.circuit import Circuit, Name
from margmap.circuit.logic import (
    FALSE,
    TRUE,
    RootedTheory,
    Theory,
    Weight,
    children_first,
    given_names,
    given_weights,
    weighted,
)
from margmap.errors import ModelError
from margmap.interop.shared import class_of


def from_sdd(
    model: Any, weights: Mapping[Any, Any] | None = None, names: Mapping[int, Name] | Sequence[Name] | None = None
) -> Circuit:
    """The circuit of an ``SddNode`` or ``WmcManager`` of PySDD, over all variables of its manager.

    ``weights`` has the weight of a literal by its number (``{1: 0.3, -1: 0.7}``), or for a variable's name or number a
    probability or the pair of the weights of 0 and 1; a ``WmcManager`` brings its own. What has no weight has 1: then
    models are counted. ``names`` says what variables are called; otherwise they are called by their numbers.
    """
    node = model
    if hasattr(model, "literal_weight") and hasattr(model, "node"):
        node = model.node
    if not hasattr(node, "elements") or not hasattr(node, "is_decision"):
        raise ModelError(f"a {class_of(model)} cannot be read: give an SddNode or a WmcManager of PySDD")
    if getattr(node, "garbage_collected", False) is True:
        raise ModelError(f"this {class_of(node)} was garbage collected by its manager: call its ref() before")
    count = int(node.manager.var_count())
    named = {} if names is None else given_names(names)
    given = {} if weights is None else given_weights(weights, named)
    if node is not model:
        if weights is not None:
            raise ModelError("a WmcManager has weights of its own: give its node, or leave out weights=")
        given = _weights_of(model, count)
    return weighted(_theory(node, count), given, named)


def _weights_of(counter: Any, count: int) -> dict[int, Weight]:
    """The weights of a ``WmcManager``, which may have them as logs."""
    logs = counter.zero_weight == -math.inf
    found = {}
    for v in range(1, count + 1):
        pair = [float(counter.literal_weight(literal)) for literal in (-v, v)]
        found[v] = Weight(*(math.exp(weight) if logs else weight for weight in pair))
    return found


def _theory(root: Any, count: int) -> RootedTheory:
    """The theory of an SDD, each node of which is looked at once."""
    node_of = {root.id: root}
    elements: dict[int, list[tuple[int, int]]] = {}

    def children(ident: int) -> list[int]:
        node = node_of[ident]
        pairs = node.elements() if node.is_decision() else []
        elements[ident] = [(prime.id, sub.id) for prime, sub in pairs]
        node_of.update((part.id, part) for pair in pairs for part in pair)
        return [ident for pair in elements[ident] for ident in pair]

    theory = Theory()
    value: dict[int, int] = {}
    for ident in children_first(root.id, children):
        node = node_of[ident]
        if node.is_decision():
            pairs = elements[ident]
            value[ident] = theory.disjoin(theory.conjoin((value[prime], value[sub])) for prime, sub in pairs)
        elif node.is_literal():
            value[ident] = theory.literal(int(node.literal))
        else:
            value[ident] = TRUE if node.is_true() else FALSE
    return RootedTheory(theory, value[root.id], range(1, count + 1))
