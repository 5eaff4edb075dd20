"""Networks of pyAgrum (``BayesNet``, ``MarkovRandomField``), and files that pyAgrum reads for margmap.

A tensor of pyAgrum lists its variables in ``names``, with the child first in a conditional table, and its ``toarray()``
has the axes in the reverse order, so that the child is on the last axis, as in a network here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from margmap.errors import FormatError, MargmapError, MissingExtraError, ModelError
from margmap.interop.shared import class_of, variable_of
from margmap.network.network import Kind, Network


def from_pyagrum(model: Any) -> Network:
    """The network of a pyAgrum ``BayesNet`` or ``MarkovRandomField``, with its names and the labels of its states."""
    kind: Kind
    if hasattr(model, "utility") or hasattr(model, "isDecisionNode"):
        raise ModelError(
            f"a {class_of(model)} has decisions and utilities: only BayesNet and MarkovRandomField are read"
        )
    if hasattr(model, "BN") and not hasattr(model, "cpt"):
        raise ModelError(f"a {class_of(model)} is an inference engine: give its network, .BN()")
    if hasattr(model, "cpt") and hasattr(model, "nodes"):
        kind, tensors = "bayes", [model.cpt(node) for node in model.nodes()]
    elif hasattr(model, "factors") and hasattr(model, "factor"):
        kind, tensors = "markov", [model.factor(scope) for scope in model.factors()]
    else:
        raise ModelError(f"a {class_of(model)} cannot be read: give a BayesNet or a MarkovRandomField of pyAgrum")
    found = [model.variable(node) for node in model.nodes()]
    variables = [variable_of(v.name(), v.labels()) for v in found]
    place = {v.name(): column for column, v in enumerate(found)}
    factors = []
    for tensor in tensors:
        scope = [place[name] for name in reversed(tensor.names)]
        factors.append((scope, np.asarray(tensor.toarray(), dtype=np.float64)))
    return Network(variables, factors, kind)


def read_with_pyagrum(_lines: Sequence[str], path: Path) -> Network:
    """A network from a file that pyAgrum opens itself: ``.xdsl`` and ``.dsl`` (GeNIe), ``.net`` (Hugin)."""
    try:
        import pyagrum
    except ImportError:
        raise MissingExtraError(
            f"{path}: {path.suffix} files are read by pyAgrum, which is not installed: pip install pyagrum, or save "
            "the network as BIF or XMLBIF"
        ) from None
    if not path.is_file():
        raise FormatError("there is no such file", path=path)
    try:
        return from_pyagrum(pyagrum.loadBN(str(path)))
    except MargmapError as error:
        raise FormatError(str(error), path=path) from error
    except Exception as error:  # whatever pyAgrum raises, which has classes of its own for each kind of trouble
        raise FormatError(f"pyAgrum cannot read it: {type(error).__name__}: {error}", path=path) from error
