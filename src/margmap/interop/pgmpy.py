"""Networks from pgmpy's models, and back: Bayesian networks, Markov networks, factor graphs and junction trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from margmap.circuit import FloatArray, Variable
from margmap.circuit.model import as_network
from margmap.errors import MissingExtraError, StructureError
from margmap.interop.shared import variable_of
from margmap.network.network import Network


def from_pgmpy(model: Any) -> Network:
    """The network of a discrete model of pgmpy, with its names and states.

    A ``DiscreteBayesianNetwork`` (or a subclass, such as ``NaiveBayes``) gives a Bayesian network. A
    ``DiscreteMarkovNetwork``, a ``FactorGraph``, a ``JunctionTree`` and a ``ClusterGraph`` give a Markov network: the
    product of their factors. The dict that bnlearn keeps a model in is taken for the network in it.
    """
    if isinstance(model, Mapping) and "model" in model:
        model = model["model"]
    kind = type(model).__name__
    if hasattr(model, "get_slice_nodes"):
        raise StructureError(f"a {kind} of pgmpy has no end: build a network of some slices")
    directed = hasattr(model, "get_cpds")
    if not directed and not hasattr(model, "get_factors"):
        raise StructureError(f"{kind} is no Bayesian or Markov network of pgmpy")
    tables = list(model.get_cpds() if directed else model.get_factors())
    variables = _variables(tables)
    if directed or not _has_other_nodes(model):
        for node in model.nodes():
            if node not in variables:
                hint = ": fit its parameters first" if directed and not tables else ""
                raise StructureError(f"variable {node!r} has no table in this {kind} of pgmpy{hint}")
        order = list(model.nodes())
    else:
        order = list(variables)
    place = {variable: column for column, variable in enumerate(order)}
    factors: list[tuple[list[int], FloatArray]] = []
    for table in tables:
        scope, values = [place[v] for v in table.variables], np.asarray(table.values, dtype=np.float64)
        if directed:  # pgmpy has the child first
            scope, values = scope[1:] + scope[:1], np.moveaxis(values, 0, -1)
        factors.append((scope, values))
    return Network([variables[v] for v in order], factors, "bayes" if directed else "markov")


def to_pgmpy(network: Any) -> Any:
    """A pgmpy ``DiscreteBayesianNetwork``, or ``DiscreteMarkovNetwork`` for a Markov network, with the same tables.

    States keep their names, and are 0, 1, ... where they have none. pgmpy has no factors without variables: a constant
    factor of a Markov network is multiplied into another factor.
    """
    network = as_network(network)
    try:
        from pgmpy.factors.discrete import DiscreteFactor, TabularCPD
        from pgmpy.models import DiscreteBayesianNetwork, DiscreteMarkovNetwork
    except ImportError:
        raise MissingExtraError("pgmpy is not installed: pip install 'margmap[bn]'") from None
    states = {v.name: list(v.states) if v.states else list(range(v.cardinality)) for v in network.variables}
    if network.kind == "bayes":
        model = DiscreteBayesianNetwork()
        model.add_nodes_from(network.names)
        for factor in network.factors:
            *parents, child = (network.variables[column] for column in factor.scope)
            model.add_edges_from((parent.name, child.name) for parent in parents)
            model.add_cpds(
                TabularCPD(
                    child.name,
                    child.cardinality,
                    factor.table.reshape(-1, child.cardinality).T,
                    [parent.name for parent in parents] or None,
                    [parent.cardinality for parent in parents] or None,
                    state_names={v.name: states[v.name] for v in (child, *parents)},
                )
            )
        return model
    model = DiscreteMarkovNetwork()
    model.add_nodes_from(network.names)
    for names, table in _with_variables(network):
        model.add_edges_from((a, b) for i, a in enumerate(names) for b in names[:i])
        own = {name: states[name] for name in names}
        model.add_factors(DiscreteFactor(names, table.shape, table, state_names=own))
    return model


def _variables(tables: Sequence[Any]) -> dict[Any, Variable]:
    """The variables of all tables; a table that says otherwise than another is refused."""
    given: dict[Any, tuple[str, ...]] = {}
    for table in tables:
        if not hasattr(table, "values") or not hasattr(table, "state_names"):
            raise StructureError(f"{type(table).__name__} is no table: only discrete models can be read")
        for variable, cardinality in zip(table.variables, np.shape(table.values), strict=True):
            states = tuple(map(str, table.state_names.get(variable, range(cardinality))))
            if given.setdefault(variable, states) != states:
                raise StructureError(f"two tables of the model list the states of {variable!r} differently")
    return {variable: variable_of(variable, states) for variable, states in given.items()}


def _has_other_nodes(model: Any) -> bool:
    """Whether the nodes of a model's graph are not just its variables: factors, or cliques."""
    return any(base.__name__ in ("FactorGraph", "ClusterGraph") for base in type(model).__mro__)


def _with_variables(network: Network) -> list[tuple[list[Any], FloatArray]]:
    """The factors of a Markov network, those without variables multiplied into one that has some.

    A variable that no factor has gets a factor of ones.
    """
    constant = float(np.prod([factor.table for factor in network.factors if not factor.scope]))
    found = [([network.names[v] for v in factor.scope], factor.table) for factor in network.factors if factor.scope]
    seen = {v for factor in network.factors for v in factor.scope}
    found += [([v.name], np.ones(v.cardinality)) for column, v in enumerate(network.variables) if column not in seen]
    if constant != 1 and found:
        found[0] = (found[0][0], found[0][1] * constant)
    return found
