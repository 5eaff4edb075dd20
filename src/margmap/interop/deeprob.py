"""Circuits from deeprob-kit: graphs of ``Sum``, ``Product`` and leaf nodes of ``deeprob.spn.structure``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from margmap.circuit import Circuit, Name, Variable
from margmap.errors import StructureError
from margmap.interop.spn_nodes import deeprob_leaf, from_nodes


def from_deeprob(model: Any, variables: Sequence[Name | Variable] | None = None) -> Circuit:
    """The circuit of a deeprob-kit network, with the parameters that it has now.

    Column i is named i unless ``variables`` lists names or Variables. Leaves may be Bernoulli, Categorical, Gaussian
    and BinaryCLT. deeprob-kit keeps weights and computes likelihoods in single precision.
    """
    if not hasattr(model, "children") or not hasattr(model, "scope"):
        raise StructureError(
            f"a {type(model).__name__} of deeprob-kit is no node of deeprob.spn.structure: give the root node that "
            "deeprob.spn.learning.learn_spn or learn_estimator returns"
        )
    return from_nodes(model, variables, "deeprob-kit", deeprob_leaf)
