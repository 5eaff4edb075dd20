"""Pictures of networks: the graph, in every node the posterior of its variable as bars, evidence and answer marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from margmap.circuit import Name, Variable
from margmap.circuit.model import as_model
from margmap.circuit.observation import Observation
from margmap.errors import LimitError, ModelError
from margmap.foundation.wording import listed
from margmap.inference.queries import posteriors as posteriors_of
from margmap.network.network import Network
from margmap.plot.graph import Bar, Drawing, Edge, Graph, Node
from margmap.plot.scene import shortened_to

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from margmap.solve.result import Result

#: Variables on one picture: beyond that, those nearest to the question; and bars in a node.
MOST_VARIABLES, MOST_BARS = 60, 5

_TEXT = 18


def network(
    model: object,
    result: Result | None = None,
    *,
    evidence: Mapping[Any, Observation] | None = None,
    posteriors: bool = True,
    ax: Axes | None = None,
) -> Drawing:
    """Draw a network: its graph, and in every node p(state | evidence) as bars.

    ``result`` is the answer of :func:`margmap.marginal_map` to a question with this ``evidence``: the variables asked
    for and the states of the answer are marked. Of a large network the variables nearest to evidence and query are
    drawn. ``posteriors=False`` leaves the bars out, and so does a network too wide for them. ``ax`` is where to draw
    instead of a new figure.
    """
    drawn = as_model(model)
    if not isinstance(drawn, Network):
        raise ModelError("what is drawn here is a network, and this is a circuit: use margmap.plot.circuit")
    given = drawn.observed(evidence)
    observed = {column: int(code) for column, code in given.items() if isinstance(code, int | np.integer)}
    uncertain = given.keys() - observed.keys()  # sets and likelihoods: the variable is observed, its state is not
    answer = {
        drawn.index(name): value for name, value in ((result.state if result is not None else None) or {}).items()
    }
    shown = _nearest(drawn, {*given, *answer})
    chances: Mapping[Name, Mapping[Any, float]] = {}
    note = ""
    if posteriors:
        try:
            chances = posteriors_of(drawn, evidence)
        except LimitError:
            note = "too wide for posteriors"
    nodes = [_node(drawn.variables[c], observed.get(c), answer.get(c), chances) for c in shown]
    nodes = [node._replace(look="observed") if c in uncertain else node for c, node in zip(shown, nodes, strict=True)]
    place = {column: i for i, column in enumerate(shown)}
    edges = [Edge(place[a], place[b]) for a, b in _links(drawn) if a in place and b in place]
    layers = None if drawn.kind == "bayes" else _levels(len(shown), edges)
    if layers is not None:  # edges of a Markov network have no direction: they lead down here, or to the right
        edges = [e if layers[e.above] < layers[e.below] else Edge(e.below, e.above) for e in edges]
    known: dict[Name, Any] = {drawn.names[c]: drawn.variables[c].label(x) for c, x in observed.items()}
    known |= dict.fromkeys((drawn.names[c] for c in sorted(uncertain)), "uncertain")
    return Drawing(_graph(drawn, nodes, edges, layers, (known, result), bool(chances), note), ax)


def _graph(
    drawn: Network,
    nodes: Sequence[Node],
    edges: Sequence[Edge],
    layers: Sequence[int] | None,
    asked: tuple[Mapping[Name, Any], Result | None],
    bars: bool,
    note: str,
) -> Graph:
    """The picture with its title, its words and its legend."""
    known, result = asked
    found = (result.state if result is not None else None) or {}
    kind = "Bayesian" if drawn.kind == "bayes" else "Markov"
    count = f"{len(nodes)} of {len(drawn.variables)}" if len(nodes) < len(drawn.variables) else str(len(nodes))
    parts = ["bars: probability of each state in percent" + (" given the evidence" if known else "")] if bars else []
    if len(nodes) < len(drawn.variables):
        parts.append("those nearest to the question" if known or found else "around the one with most neighbours")
    parts += [note] if note else []
    legend = [("observed", "observed")] if known else []
    legend += [("asked", "asked for"), ("bar", "state of the answer")] if found else []
    words = f"A drawing of a {kind} network: {count} variables and {len(edges)} edges."
    words += f" Observed: {listed(known)}." if known else ""
    words += f" The answer: {listed(found)}." if found else ""
    title = f"{kind} network of {count} variables"
    return Graph(title, "; ".join(parts), words, nodes, edges, legend, arrows=drawn.kind == "bayes", layers=layers)


def _node(variable: Variable, seen: int | None, found: Any, chances: Mapping[Name, Mapping[Any, float]]) -> Node:
    name = shortened_to(str(variable.name), _TEXT)
    look = "observed" if seen is not None else "asked" if found is not None else "plain"
    if seen is not None:
        state = shortened_to(str(variable.label(seen)), _TEXT)
        return Node(name, look, bars=(Bar(state, 1.0, "100", True),), hint=f"{variable.name}={variable.label(seen)}")
    if variable.name not in chances:
        label = name if found is None else shortened_to(f"{name}={found}", 2 * _TEXT)
        return Node(label, look, hint=str(variable.name))
    ranked = list(chances[variable.name].items())
    if len(ranked) > MOST_BARS:  # the likeliest, and that of the answer
        likely = sorted(ranked, key=lambda pair: -pair[1])
        kept = {state for state, _ in likely[: MOST_BARS - 1]} | {found}
        ranked = [pair for pair in ranked if pair[0] in kept]
    bars = [Bar(shortened_to(str(x), 12), p, _percent(p), x == found) for x, p in ranked]
    rest = 1.0 - sum(p for _, p in ranked)
    if len(ranked) < variable.cardinality:
        bars.append(Bar(f"{variable.cardinality - len(ranked)} others", rest, _percent(rest)))
    words = ", ".join(f"{bar.label} {bar.number} %" for bar in bars)
    return Node(name, look, bars=tuple(bars), hint=f"{variable.name}: {words}")


def _percent(p: float) -> str:
    return f"{100 * p:.1f}" if p < 0.9995 else "100"


def _links(drawn: Network) -> list[tuple[int, int]]:
    """Parents with their children; in a Markov network all pairs of variables in one table."""
    found: dict[tuple[int, int], None] = {}
    for factor in drawn.factors:
        if drawn.kind == "bayes":
            found.update({(parent, factor.scope[-1]): None for parent in factor.scope[:-1]})
        else:
            found.update({(a, b): None for i, a in enumerate(factor.scope) for b in factor.scope[i + 1 :]})
    return list(found)


def _nearest(drawn: Network, around: set[int]) -> list[int]:
    """All variables of a small network; of a large one those nearest to some, or to the one with most neighbours."""
    if len(drawn.variables) <= MOST_VARIABLES:
        return list(range(len(drawn.variables)))
    neighbours: list[set[int]] = [set() for _ in drawn.variables]
    for a, b in _links(drawn):
        neighbours[a].add(b)
        neighbours[b].add(a)
    first = sorted(around) or [max(range(len(neighbours)), key=lambda c: len(neighbours[c]))]
    found = dict.fromkeys(first[:MOST_VARIABLES])
    todo = list(found)
    while todo and len(found) < MOST_VARIABLES:
        for other in sorted(neighbours[todo.pop(0)]):
            if other not in found and len(found) < MOST_VARIABLES:
                found[other] = None
                todo.append(other)
    return sorted(found)


def _levels(count: int, edges: Sequence[Edge]) -> list[int]:
    """Layers for a graph without directions; neighbours lie in different ones, below the one that was reached first."""
    neighbours: list[list[int]] = [[] for _ in range(count)]
    for edge in edges:
        neighbours[edge.above].append(edge.below)
        neighbours[edge.below].append(edge.above)
    level = [-1] * count
    for first in range(count):
        if level[first] >= 0:
            continue
        level[first] = 0
        todo = [first]
        while todo:
            node = todo.pop(0)
            for other in neighbours[node]:
                if level[other] < 0:
                    taken = {level[n] for n in neighbours[other] if level[n] >= 0}
                    level[other] = next(i for i in range(level[node] + 1, count + 1) if i not in taken)
                    todo.append(other)
    used = {old: new for new, old in enumerate(sorted(set(level)))}
    return [used[old] for old in level]
