"""The order in which the frontier visits a structured-decomposable circuit: its scopes as a tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from margmap.circuit import PRODUCT, IntArray, LongArray
from margmap.circuit.scopes import intern_scopes, scope_tree
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.foundation.memory import on_own_pages
from margmap.foundation.pairs import EPS
from margmap.solve.query_circuit import NO_ROWS, Flat, operations

# Nodes that are rewritten between two looks at the clock.
NODES_AT_ONCE = 4096


class Plan(NamedTuple):
    """The nodes of a circuit sorted by scope; scope ``s`` splits into ``part[part_at[s]:part_at[s + 1]]``."""

    #: Scope of each node, and its place among the nodes of that scope.
    scope: IntArray
    place: IntArray
    #: Nodes of scope s: ``node[node_at[s]:node_at[s + 1]]``, children first.
    node_at: LongArray
    node: IntArray
    part_at: LongArray
    part: IntArray
    #: The children of the products, in the order of their scope's parts: ``factor[factor_at[s]:factor_at[s + 1]]`` has
    #: those of the first product of scope s, then of the next one.
    factor_at: LongArray
    factor: IntArray
    #: Nodes of scope s that something outside of it uses: ``out[out_at[s]:out_at[s + 1]]``; column of each, or -1.
    out_at: LongArray
    out: IntArray
    column: IntArray


def make_plan(
    flat: Flat,
    variables: int,
    run: Runner = to_the_end,
    check: Callable[[], None] | None = None,
    scope: IntArray | None = None,
) -> tuple[Flat, Plan] | None:
    """A plan, with the circuit rewritten if its products skip levels of the tree; None if there is no tree.

    ``check`` is called now and then during the rewriting, which is not compiled. ``scope`` has the scope of each node,
    numbered as they first appear, if whoever made the circuit knows them.
    """
    if scope is not None:
        fits, plan = _planned(flat, scope, int(scope.max()) + 1, run)
        if fits:
            return flat, plan
    words = max(1, -(-variables // 64))
    scope, bits = intern_scopes(flat.kind, flat.start, flat.child, flat.var, words, True)
    fits, plan = _planned(flat, scope, bits.shape[0], run)
    if not fits:
        parent = scope_tree(bits)
        if parent is None:
            return None
        flat = _nest(flat, scope, parent, check or (lambda: None))
        scope, bits = intern_scopes(flat.kind, flat.start, flat.child, flat.var, words, True)
        _, plan = _planned(flat, scope, bits.shape[0], run)
    return flat, plan


def _planned(flat: Flat, scope: IntArray, scopes: int, run: Runner) -> tuple[bool, Plan]:
    return run(partial(plan_with, flat, scope, scopes), flat.num_edges, room_of_plan(flat))


def plan_with(flat: Flat, scope: IntArray, scopes: int, stop: LongArray) -> tuple[bool, Plan]:
    """The plan of all nodes, whose scopes are known; False if their products skip levels."""
    nodes = np.arange(flat.num_nodes, dtype=np.int32)
    factor = on_own_pages(flat.num_edges, np.int32, large=False)  # only the edges below products are written to
    return plan_of(flat, nodes, scope, scopes, factor, stop)


def room_of_plan(flat: Flat) -> int:
    """Bytes of a plan."""
    return 4 * flat.num_edges + 24 * flat.num_nodes


def rounding_of(flat: Flat, plan: Plan, rows: IntArray | None = None) -> float:
    """How far, relatively, the bounds that a sweep compares can be under the exact ones.

    Each operation errs by at most half an eps. An outside bound is a sum of products made on the way down, a score one
    more sum over the products of a scope: in each scope on the way no number takes part in more additions and
    multiplications than there are nodes and parts. The entries of vectors, and the largest of them, which stand for
    the scopes beside the way, are values of the circuit: they bring the rounding of one pass up. ``rows`` has the first
    rows of dense blocks, if they are known.
    """
    on_the_way, of_a_pass = _operations(flat, plan, NO_ROWS if rows is None else rows)
    return float(EPS * on_the_way) + float(EPS * of_a_pass)


def _nest(flat: Flat, scope: IntArray, parent: LongArray, check: Callable[[], None]) -> Flat:
    """Where one product splits a scope at once and another step by step, make the first go step by step too."""
    kind, var, value = list(flat.kind), list(flat.var), list(flat.value)
    below: list[list[int]] = []
    weight: list[list[float]] = []
    for n in range(flat.num_nodes):
        if n % NODES_AT_ONCE == 0:
            check()
        below.append(flat.child[flat.start[n] : flat.start[n + 1]].tolist())
        weight.append(flat.weight[flat.start[n] : flat.start[n + 1]].tolist())
    made: dict[tuple[int, ...], int] = {}
    node_scope = scope.tolist()

    def part_of(c: int, whole: int) -> int:
        s: int = node_scope[c]
        while parent[s] != whole:
            s = int(parent[s])
        return s

    todo = [n for n in range(flat.num_nodes) if kind[n] == PRODUCT]
    while todo:
        n = todo.pop()
        if len(todo) % NODES_AT_ONCE == 0:
            check()
        groups: dict[int, list[int]] = {}
        for c in below[n]:
            groups.setdefault(part_of(c, node_scope[n]), []).append(c)
        if len(groups) == len(below[n]):
            continue
        children = []
        for s, members in groups.items():
            if len(members) > 1:
                key = tuple(sorted(members))
                if key not in made:
                    made[key] = len(kind)
                    kind.append(np.int8(PRODUCT))
                    var.append(np.int32(-1))
                    value.append(np.int32(-1))
                    below.append(list(key))
                    weight.append([1.0] * len(key))
                    node_scope.append(s)
                    todo.append(made[key])
                children.append(made[key])
            else:
                children.append(members[0])
        below[n], weight[n] = children, [1.0] * len(children)
    return _sorted(kind, var, value, below, weight, flat.num_nodes - 1, check)


def _sorted(
    kind: list[np.int8],
    var: list[np.int32],
    value: list[np.int32],
    below: list[list[int]],
    weight: list[list[float]],
    root: int,
    check: Callable[[], None],
) -> Flat:
    """The same nodes with children before parents."""
    order: list[int] = []
    place = [-1] * len(kind)
    stack = [(root, 0)]
    while stack:
        n, at = stack.pop()
        if place[n] >= 0:
            continue
        if at < len(below[n]):
            stack.append((n, at + 1))
            if place[below[n][at]] < 0:
                stack.append((below[n][at], 0))
            continue
        place[n] = len(order)
        order.append(n)
        if len(order) % NODES_AT_ONCE == 0:
            check()
    return Flat(
        np.array([kind[n] for n in order], dtype=np.int8),
        np.concatenate(([0], np.cumsum([len(below[n]) for n in order]))).astype(np.int64),
        np.array([place[c] for n in order for c in below[n]], dtype=np.int32),
        np.array([w for n in order for w in weight[n]]),
        np.array([var[n] for n in order], dtype=np.int32),
        np.array([value[n] for n in order], dtype=np.int32),
    )


@kernel
def plan_of(
    f: Flat, nodes: IntArray, scope: IntArray, n_scopes: int, factor: IntArray, stop: LongArray
) -> tuple[bool, Plan]:
    """The plan of some nodes, children first, whose scopes are known; False if their products skip levels.

    ``factor`` is an array with an entry an edge, for the plan.
    """
    kind, start, child = f.kind, f.start, f.child
    n_nodes = kind.size
    place = np.zeros(n_nodes, dtype=np.int32)
    node_at = np.zeros(n_scopes + 1, dtype=np.int64)
    # Of each scope the one that it is a part of, how many parts it has itself, its products and their edges.
    whole, part_at = np.full(n_scopes, -1, dtype=np.int32), np.zeros(n_scopes + 1, dtype=np.int64)
    products, edges = np.zeros(n_scopes, dtype=np.int64), np.zeros(n_scopes, dtype=np.int64)
    column, used = np.full(n_nodes, -1, dtype=np.int32), 1
    column[n_nodes - 1] = 0
    fits = True
    for n in nodes:
        s = scope[n]
        place[n] = node_at[s + 1]
        node_at[s + 1] += 1
        if kind[n] != PRODUCT:
            continue
        if stop[0] != 0:
            break
        products[s] += 1
        edges[s] += start[n + 1] - start[n]
        for e in range(start[n], start[n + 1]):
            c = child[e]
            t = scope[c]
            used += column[c] < 0
            column[c] = 0
            if whole[t] < 0:
                whole[t] = s
                part_at[s + 1] += 1
            elif whole[t] != s:
                fits = False
    factor_at = np.zeros(n_scopes + 1, dtype=np.int64)
    for s in range(n_scopes):
        # The children of a product are parts that have nothing in common, so that none has more of them than there are.
        fits &= edges[s] == products[s] * part_at[s + 1]
        factor_at[s + 1] = factor_at[s] + edges[s]
        node_at[s + 1] += node_at[s]
    for s in range(n_scopes):
        part_at[s + 1] += part_at[s]
    part = np.zeros(part_at[n_scopes], dtype=np.int32)
    part_place = np.zeros(n_scopes, dtype=np.int64)
    filled = part_at.copy()
    for t in range(n_scopes):
        if whole[t] >= 0:
            part_place[t] = filled[whole[t]] - part_at[whole[t]]
            part[filled[whole[t]]] = t
            filled[whole[t]] += 1
    node, out = np.zeros(nodes.size, dtype=np.int32), np.zeros(used, dtype=np.int32)
    if stop[0] == 0:  # otherwise not all of them have a place
        for n in nodes:
            node[node_at[scope[n]] + place[n]] = n
    out_at = np.zeros(n_scopes + 1, dtype=np.int64)
    at = 0
    for s in range(n_scopes):
        if stop[0] != 0:
            break
        first = factor_at[s]
        for i in range(node_at[s], node_at[s + 1]):
            n = node[i]
            if column[n] >= 0:
                column[n], out[at] = at - out_at[s], n
                at += 1
            if fits and kind[n] == PRODUCT:
                for e in range(start[n], start[n + 1]):
                    factor[first + part_place[scope[child[e]]]] = child[e]
                first += start[n + 1] - start[n]
        out_at[s + 1] = at
    given = (factor_at, factor[: factor_at[n_scopes]])
    return fits, Plan(scope, place, node_at, node, part_at, part, *given, out_at, out, column)


@kernel
def _operations(f: Flat, plan: Plan, rows: IntArray) -> tuple[int, float]:
    """What one number goes through on the way down, and in a pass up."""
    return operations_on_the_way(f, plan), operations(f, rows)


@kernel
def operations_on_the_way(f: Flat, plan: Plan) -> int:
    """The largest sum, over the scopes on a way from the root's scope down, of what one number goes through in each."""
    n_scopes = plan.node_at.size - 1
    above = np.zeros(n_scopes, dtype=np.int64)
    worst = 0
    # Children of a node come before it, so going through the nodes backwards visits whole scopes before their parts.
    seen = np.zeros(n_scopes, dtype=np.bool_)
    for n in range(f.kind.size - 1, -1, -1):
        s = plan.scope[n]
        if seen[s]:
            continue
        seen[s] = True
        nodes = plan.node_at[s + 1] - plan.node_at[s]
        parts = plan.part_at[s + 1] - plan.part_at[s]
        here = above[s] + 2 * nodes + parts + 4
        worst = max(worst, here)
        for i in range(plan.part_at[s], plan.part_at[s + 1]):
            above[plan.part[i]] = here
    return worst
