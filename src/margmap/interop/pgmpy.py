"""Networks from pgmpy's models, and XMLBIF files through its reader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from margmap.circuit import Name, Variable
from margmap.errors import FormatError, MissingExtraError, StructureError
from margmap.network.network import Network


def from_pgmpy(model: Any) -> Network:
    """The network of a pgmpy ``DiscreteBayesianNetwork`` or ``DiscreteMarkovNetwork``, with its names and states."""
    if hasattr(model, "get_slice_nodes"):
        raise StructureError(f"a {type(model).__name__} of pgmpy has no end: build a network of some slices")
    if hasattr(model, "get_cpds"):
        tables, kind = list(model.get_cpds()), "bayes"
    elif hasattr(model, "get_factors"):
        tables, kind = list(model.get_factors()), "markov"
    else:
        raise StructureError(f"{type(model).__name__} is no Bayesian or Markov network of pgmpy")
    nodes = list((model.get_variable_nodes if hasattr(model, "get_variable_nodes") else model.nodes)())
    given: dict[Any, tuple[str, ...]] = {}
    size: dict[Any, int] = {}
    for table in tables:
        if not hasattr(table, "values") or not hasattr(table, "state_names"):
            raise StructureError(f"{type(table).__name__} is no table: only discrete models can be read")
        for variable, cardinality in zip(table.variables, np.shape(table.values), strict=True):
            states = tuple(map(str, table.state_names.get(variable, range(cardinality))))
            if given.setdefault(variable, states) != states:
                raise StructureError(f"two tables of the model list the states of {variable!r} differently")
            size[variable] = cardinality
    for variable in nodes:
        if variable not in size:
            raise StructureError(f"variable {variable!r} has no table in this {type(model).__name__} of pgmpy")
    variables = []
    for variable in nodes:
        name: Name = variable if isinstance(variable, int | str) and not isinstance(variable, bool) else str(variable)
        plain = given[variable] == tuple(map(str, range(size[variable])))
        variables.append(Variable(name, size[variable], () if plain else given[variable]))
    place = {variable: i for i, variable in enumerate(nodes)}
    factors = []
    for table in tables:
        scope, values = [place[v] for v in table.variables], np.asarray(table.values, dtype=np.float64)
        if kind == "bayes":  # pgmpy has the child first
            scope, values = scope[1:] + scope[:1], np.moveaxis(values, 0, -1)
        factors.append((scope, values))
    return Network(variables, factors, "bayes" if kind == "bayes" else "markov")


def read_xmlbif(_lines: Sequence[str], path: Path) -> Network:
    """A network from an XMLBIF file, which pgmpy opens itself."""
    try:
        from pgmpy.readwrite import XMLBIFReader
    except ImportError:
        raise MissingExtraError(
            "XMLBIF files are read by pgmpy, which is not installed: pip install 'margmap[bn]'"
        ) from None
    if not path.is_file():
        raise FormatError("there is no such file", path=path)
    try:
        return from_pgmpy(XMLBIFReader(str(path)).get_model())
    except StructureError as error:
        raise FormatError(str(error), path=path) from error
    except Exception as error:
        raise FormatError(f"pgmpy cannot read it: {type(error).__name__}: {error}", path=path) from error
