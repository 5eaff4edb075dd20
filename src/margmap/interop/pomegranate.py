"""Networks from pomegranate 1: a ``BayesianNetwork`` of categorical tables, or a ``FactorGraph``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from margmap.circuit import FloatArray, Name, Variable
from margmap.errors import StructureError
from margmap.interop.arrays import Columns, class_names, numbers
from margmap.network.network import Network


def from_pomegranate(model: Any, variables: Sequence[Name | Variable] | None = None) -> Network:
    """The network of a pomegranate ``BayesianNetwork`` or ``FactorGraph``.

    Column i is named i unless ``variables`` lists names or Variables. pomegranate keeps its tables in single precision:
    the rows of a Bayesian network are divided by their sums here.
    """
    if hasattr(model, "distributions") and hasattr(model, "_parents"):
        parents = [tuple(map(int, above)) for above in model._parents]
        scopes = [(*above, child) for child, above in enumerate(parents)]
        return _network(model, model.distributions, scopes, "bayes", variables)
    if hasattr(model, "factors") and hasattr(model, "_factor_edges"):
        scopes = [tuple(map(int, edges)) for edges in model._factor_edges]
        scopes += [(column,) for column in range(len(model.marginals))]
        return _network(model, [*model.factors, *model.marginals], scopes, "markov", variables)
    raise StructureError(
        f"a {type(model).__name__} of pomegranate is no network: only a BayesianNetwork or a FactorGraph can be read"
    )


def _network(
    model: Any,
    distributions: Any,
    scopes: list[tuple[int, ...]],
    kind: str,
    variables: Sequence[Name | Variable] | None,
) -> Network:
    distributions = list(distributions)
    what = f"this {type(model).__name__} of pomegranate"
    if not distributions or len(distributions) != len(scopes):
        raise StructureError(f"{what} has no distributions: fit it first")
    columns, factors = Columns(), []
    for distribution, scope in zip(distributions, scopes, strict=True):
        table = _table(distribution, scope)
        for column, size in zip(scope, table.shape, strict=True):
            columns.add(column, size, f"a {type(distribution).__name__} of pomegranate")
        factors.append((scope, table))
    made = columns.variables(variables, what)
    for scope, table in factors:
        for column, size in zip(scope, table.shape, strict=True):
            if columns.size[column] != size:
                raise StructureError(f"two tables of {what} have different numbers of values for column {column}")
    return Network(made, factors, "bayes" if kind == "bayes" else "markov")


def _table(distribution: Any, scope: tuple[int, ...]) -> FloatArray:
    """The table of a distribution over the columns of a scope, the child last."""
    name = type(distribution).__name__
    whose = f"a {name} of pomegranate"
    kind = next((known for known in class_names(distribution) if known in _TABLES), None)
    if kind is None:
        raise StructureError(f"{whose} over columns {list(scope)} is no table: known are {', '.join(_TABLES)}")
    given = distribution.probs
    if given is None:
        raise StructureError(f"{whose} over columns {list(scope)} has no probabilities: fit the model first")
    if kind == "ConditionalCategorical":  # one table for each dimension of the child, of which there is one
        given = next(iter(given))
    table = numbers(given, whose)
    if kind == "Categorical" and table.ndim == 2 and table.shape[0] == 1:
        table = table[0]
    if table.ndim != len(scope):
        raise StructureError(f"{whose} has a table of {table.ndim} axes, and {len(scope)} variables")
    return table


_TABLES = ("Categorical", "ConditionalCategorical", "JointCategorical")
