"""Pictures of circuits: every node of a small one, a summary by scope of a large one.

With a question the picture is that of the paper's Figure 1 (Choi, Friedman and Van den Broeck, 2022): the circuit with
the evidence put in and the hidden variables summed out, the sums that take the maximum (Q-deterministic ones) marked,
the part that the answer uses highlighted, and at every edge the bound on all states that use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from margmap.circuit import (
    BERNOULLI,
    BINOMIAL,
    CATEGORICAL,
    GAUSSIAN,
    INDICATOR,
    KIND_NAMES,
    PRODUCT,
    SUM,
    Circuit,
    IntArray,
    Name,
)
from margmap.circuit.model import as_circuit
from margmap.circuit.observation import Observation
from margmap.foundation.wording import listed
from margmap.plot.graph import Drawing, Edge, Graph, Node
from margmap.plot.scene import shortened_to
from margmap.solve.edge_bounds import edge_bounds
from margmap.solve.output_bounds import view_of
from margmap.solve.query_circuit import LEAF, Flat
from margmap.solve.reduce import Reduced, reduce

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from margmap.solve.result import Result

#: A circuit with more nodes or edges than this is summed up by scope; one with more scopes, by their sizes.
MOST_NODES, MOST_EDGES, MOST_SCOPES = 64, 110, 40

#: Edges that get labels: more would cover each other.
MOST_LABELS = 60

_TEXT = 22


def circuit(
    model: object,
    result: Result | None = None,
    *,
    query: Sequence[Name] | None = None,
    evidence: Mapping[Any, Observation] | None = None,
    ax: Axes | None = None,
) -> Drawing:
    """Draw a circuit, layer by layer; with a question, what the solver sees of it.

    ``result`` is the answer of :func:`margmap.marginal_map` to a question with this ``evidence``: the part of the
    circuit that its state uses is highlighted. ``query`` alone shows the bounds without an answer. A circuit of many
    nodes is summed up: its scopes, with the nodes over each. ``ax`` is where to draw instead of a new figure.
    """
    drawn = as_circuit(model, "what is drawn is")
    if query is None and result is not None and result.state is not None:
        query = list(result.state)
    if query is None:
        graph = _plain(drawn) if _small(drawn.num_nodes, drawn.num_edges) else _summary(drawn)
        return Drawing(graph, ax)
    reduced = reduce(drawn, query, evidence)
    state = None
    if result is not None and result.state is not None:
        columns = [drawn.index(name) for name in query]
        state = np.array([drawn.variables[c].code(result.state[drawn.names[c]]) for c in columns], dtype=np.int32)
    if not _small(reduced.num_nodes, reduced.num_edges):
        return Drawing(_summary(drawn), ax)
    labels = [drawn.variables[drawn.index(name)] for name in query]
    return Drawing(_asked(reduced, labels, evidence or {}, state), ax)


def _small(nodes: int, edges: int) -> bool:
    return nodes <= MOST_NODES and edges <= MOST_EDGES


def _plain(c: Circuit) -> Graph:
    """Every node of the circuit as it is, with the weights of its sums."""
    nodes, edges = [], []
    labelled = c.num_edges <= MOST_LABELS
    for n in range(c.num_nodes):
        kind = int(c.kind[n])
        if kind == SUM:
            nodes.append(Node("+", "sum", True, hint=f"sum, node {n}"))
        elif kind == PRODUCT:
            nodes.append(Node("×", "product", True, hint=f"product, node {n}"))
        else:
            nodes.append(Node(shortened_to(_leaf_text(c, n), _TEXT), "leaf", hint=_leaf_text(c, n, 200)))
        for e in range(int(c.start[n]), int(c.start[n + 1])):
            weight = _number(float(np.exp(c.log_weight[e]))) if kind == SUM and labelled else ""
            edges.append(Edge(n, int(c.child[e]), weight))
    count = Counter("sums" if k == SUM else "products" if k == PRODUCT else "leaves" for k in c.kind.tolist())
    sizes = _counted(count)
    title = f"Circuit over {len(c.variables)} variables"
    what = f"{sizes}; the numbers at edges are weights" if labelled else sizes
    legend = [("sum", "sum"), ("product", "product"), ("leaf", "leaf")]
    words = f"A layered drawing, the root on top: {sizes}, {c.num_edges} edges, over {_some(c.names)}."
    return Graph(title, what, words, nodes, edges, legend)


def _leaf_text(c: Circuit, n: int, most: int = 3) -> str:
    """A leaf in a few words: ``X=1`` for an indicator, otherwise its distribution."""
    variable = c.variables[int(c.var[n])]
    numbers = c.param[int(c.param_start[n]) : int(c.param_start[n + 1])]
    kind = int(c.kind[n])
    if kind == INDICATOR:
        return f"{variable.name}={variable.label(int(numbers[0]))}"
    if kind == GAUSSIAN:
        return f"{variable.name} ~ N({_number(float(numbers[0]))}, {_number(float(numbers[1]))})"
    if kind in (BERNOULLI, CATEGORICAL):
        chances = [f"{variable.label(x)}: {_number(float(np.exp(p)))}" for x, p in enumerate(numbers)]
        if kind == BERNOULLI:
            return f"{variable.name}={variable.label(1)}: {_number(float(np.exp(numbers[0])))}"
        more = ", ..." if len(chances) > most else ""
        return f"{variable.name} ({', '.join(chances[:most])}{more})"
    what = "binomial" if kind == BINOMIAL else KIND_NAMES[kind]
    return f"{variable.name} ({what})"


def _asked(reduced: Reduced, variables: Sequence[Any], evidence: Mapping[Any, Any], state: IntArray | None) -> Graph:
    """What a solver sees: the reduced circuit with its bounds, and what the answer uses."""
    flat = reduced.flat
    view = view_of(flat, 0.0, reduced.cardinality)
    scale = reduced.log_scale
    bound = np.exp(np.log(np.maximum(edge_bounds(flat, view.bounds), 1e-300)) + view.log_upper + scale)
    used = np.zeros(flat.num_nodes, dtype=np.bool_) if state is None else _used(flat, state)
    labelled = flat.num_edges <= MOST_LABELS
    nodes, edges = [], []
    for n in range(flat.num_nodes):
        strong = bool(used[n])
        if flat.kind[n] == LEAF:
            variable = variables[int(flat.var[n])]
            whole = f"{variable.name}={variable.label(int(flat.value[n]))}"
            nodes.append(Node(shortened_to(whole, _TEXT), "leaf", hint=whole, strong=strong))
        elif flat.kind[n] == PRODUCT:
            nodes.append(Node("×", "product", True, hint=f"product, node {n}", strong=strong))
        else:
            takes_max = bool(view.bounds.deterministic[n])
            label, look, what = ("max", "max", "Q-deterministic sum") if takes_max else ("+", "sum", "sum")
            nodes.append(Node(label, look, True, hint=f"{what}, node {n}", strong=strong))
        for e in range(int(flat.start[n]), int(flat.start[n + 1])):
            child = int(flat.child[e])
            label = _number(float(bound[e])) if labelled else ""
            edges.append(Edge(n, child, label, bool(used[n] and used[child])))
    maxes = int(view.bounds.deterministic.sum())
    given = f" given {listed(evidence, 4)}" if evidence else ""
    title = f"Circuit for the query {_some([v.name for v in variables])}"
    upper = f"no state has more than p(q, e) = {_number(float(np.exp(view.log_upper + scale)))}"
    what = f"{given.strip()}{'; ' if given else ''}{upper}"
    what += "; at edges: the most that a state using them can have" if labelled else ""
    legend = [("max", "Q-deterministic sum: takes the maximum"), ("sum", "other sum"), ("product", "product")]
    legend.append(("leaf", "value of a query variable"))
    words = f"A layered drawing of what is left for the query{given}: {flat.num_nodes} nodes, {flat.num_edges} edges, "
    words += f"{maxes} Q-deterministic sums. The upper bound of all states is {np.exp(view.log_upper + scale):.6g}."
    if state is not None:
        legend.append(("strong", "used by the answer"))
        answer = {v.name: v.label(int(x)) for v, x in zip(variables, state, strict=True)}
        words += f" Highlighted is what the answer uses: {listed(answer)}."
    return Graph(title, what, words, nodes, edges, legend)


def _used(flat: Flat, state: IntArray) -> Any:
    """The nodes of the q-subcircuit of a state: those that are not zero under it and that the root reaches."""
    alive = np.zeros(flat.num_nodes, dtype=np.bool_)
    for n in range(flat.num_nodes):
        children = flat.child[flat.start[n] : flat.start[n + 1]]
        if flat.kind[n] == LEAF:
            alive[n] = state[flat.var[n]] == flat.value[n]
        else:
            alive[n] = alive[children].all() if flat.kind[n] == PRODUCT else alive[children].any()
    used = np.zeros(flat.num_nodes, dtype=np.bool_)
    used[-1:] = alive[-1:]
    for n in range(flat.num_nodes - 1, -1, -1):
        if used[n]:
            children = flat.child[flat.start[n] : flat.start[n + 1]]
            used[children] |= alive[children]
    return used


def _summary(c: Circuit) -> Graph:
    """A large circuit: a box for each scope with the nodes over it; if there are many scopes, one for each size."""
    scope = c.scopes.id.astype(np.int64)
    # Scopes by the nodes over them; the first node of each says which variables it has.
    first: dict[int, int] = {}
    count: dict[int, Counter[str]] = {}
    for n, s in enumerate(scope.tolist()):
        first.setdefault(s, n)
        kind = "sums" if c.kind[n] == SUM else "products" if c.kind[n] == PRODUCT else "leaves"
        count.setdefault(s, Counter())[kind] += 1
    members = {s: sorted(c.scopes.variables(n)) for s, n in first.items()}
    grouped = len(members) > MOST_SCOPES
    group = {s: _size_class(len(v)) if grouped else s for s, v in members.items()}
    keys = sorted(set(group.values()), key=lambda g: -max(len(members[s]) for s in members if group[s] == g))
    place = {key: i for i, key in enumerate(keys)}
    nodes = []
    for key in keys:
        inside = [s for s in members if group[s] == key]
        total: Counter[str] = sum((count[s] for s in inside), Counter())
        sizes = _counted(total)
        if grouped:
            lengths = sorted({len(members[s]) for s in inside})
            over = f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else str(lengths[0])
            plural = ("s" if len(inside) > 1 else "", "" if over == "1" else "s")
            what = f"{len(inside)} scope{plural[0]} of {over} variable{plural[1]}: {sizes}"
        else:
            what = f"{_some([c.names[v] for v in members[inside[0]]], 3)}: {sizes}"
        nodes.append(Node(shortened_to(what, 64), "plain", hint=what))
    owner = np.repeat(np.arange(c.num_nodes), np.diff(c.start))
    pairs = np.unique(np.stack([scope[owner], scope[c.child]]), axis=1).T.tolist()
    linked = {(place[group[a]], place[group[b]]) for a, b in pairs if group[a] != group[b]}
    if grouped:  # one below the other
        linked = {(i, i + 1) for i in range(len(keys) - 1)}
    title = f"Circuit over {len(c.variables)} variables, summed up by scope"
    what = f"{c.num_nodes:,} nodes, {c.num_edges:,} edges, {len(members):,} scopes"
    words = f"A summary of a large circuit: {what}. " + " ".join(f"{node.hint}." for node in nodes[:12])
    return Graph(title, what, words, nodes, [Edge(a, b) for a, b in sorted(linked)])


def _counted(count: Mapping[str, int]) -> str:
    """How many nodes there are of each kind, such as ``1 sum, 2 products``."""
    one = {"sums": "sum", "products": "product", "leaves": "leaf"}
    return ", ".join(f"{count[k]:,} {one[k] if count[k] == 1 else k}" for k in one if count.get(k))


def _size_class(size: int) -> int:
    """Scopes of 1, 2, 3 to 4, 5 to 8, ... variables go together."""
    return (size - 1).bit_length()


def _number(value: float) -> str:
    """A number at an edge: three digits."""
    return f"{value:.3g}"


def _some(names: Sequence[Any], most: int = 5) -> str:
    shown = ", ".join(shortened_to(str(name), 16) for name in names[:most])
    return shown + (f", ... ({len(names)})" if len(names) > most else "")
