"""Random circuits to measure on: those that are large, and those that stay hard.

Large are dense latent trees. Hard in one way or another are trees of sums whose scopes cross, nearly fair coins, trees
as LearnSPN makes them, ensembles of trees of different structures, and latent trees with flat weights.
"""

from __future__ import annotations

import math

import numpy as np

from margmap.circuit import BERNOULLI, CATEGORICAL, INDICATOR, Circuit, FloatArray, Parts, Variable, assemble
from margmap.circuit.layers import Layers


def latent_tree(
    seed: int, *, variables: int = 150, states: int = 64, values: int = 2, concentration: float = 1.0
) -> Circuit:
    """A random binary tree of latent variables with ``states`` states each over ``variables`` observed ones.

    Every latent variable depends on the one above it through a dense table, every observed one on its own latent
    variable. Written as a circuit, each table is ``states`` sums over the same ``states`` products. The columns of the
    tables are Dirichlet draws: the smaller the ``concentration``, the nearer to deterministic.
    """
    rng = np.random.default_rng(seed)
    layers = Layers()

    def tables(rows: int, columns: int) -> FloatArray:
        drawn = rng.dirichlet(np.full(columns, concentration), rows)
        np.maximum(drawn, 1e-12, out=drawn)
        return np.log(drawn, out=drawn)

    kind = BERNOULLI if values == 2 else CATEGORICAL
    # Of each subtree, one node for every state of the latent variable at its top.
    waiting = [layers.leaves(kind, column, tables(states, values)) for column in range(variables)]
    while len(waiting) > 1:
        first, second = (waiting.pop(int(rng.integers(len(waiting)))) for _ in range(2))
        products = layers.products(np.stack((first, second), axis=-1))
        waiting.append(layers.sums(products, tables(states if waiting else 1, states)))
    return layers.circuit([Variable(i, values) for i in range(variables)], int(waiting[0][0]))


def partition_tree(
    seed: int, *, variables: int = 40, levels: int = 4, children: int = 3, concentration: float = 1.0
) -> Circuit:
    """A tree of sums, each child of which splits its variables in two in a way of its own: scopes cross everywhere.

    At the bottom, after ``levels`` levels of sums, the variables are independent coins, Beta draws; the smaller the
    ``concentration``, the nearer to 0 or 1. No node has two parents.
    """
    rng = np.random.default_rng(seed)
    parts = Parts.new()

    def leaf(column: int) -> int:
        p = float(np.clip(rng.beta(concentration, concentration), 1e-6, 1 - 1e-6))
        return parts.leaf(BERNOULLI, column, [math.log(p), math.log1p(-p)])

    def node(scope: list[int], level: int) -> int:
        if len(scope) == 1:
            return leaf(scope[0])
        if level == 0:
            return parts.product([leaf(column) for column in scope])
        products = []
        for _ in range(children):
            order = rng.permutation(scope).tolist()
            cut = int(rng.integers(len(order) // 3, len(order) - len(order) // 3)) if len(order) > 2 else 1
            products.append(parts.product([node(order[:cut], level - 1), node(order[cut:], level - 1)]))
        return parts.sum(products, np.log(rng.dirichlet(np.ones(children))).tolist())

    return assemble([Variable(i) for i in range(variables)], parts, node(list(range(variables)), levels))


def coin_mixture(seed: int, *, variables: int = 40, components: int = 20, spread: float = 0.1) -> Circuit:
    """A mixture of independent coins, all within ``spread`` of fair: no component stands out.

    Nothing excludes anything, the frontier grows without end, and bounds hardly tell one state from another.
    """
    rng = np.random.default_rng(seed)
    layers = Layers()
    heads = rng.uniform(0.5 - spread, 0.5 + spread, (components, variables))
    leaves = layers.leaves(BERNOULLI, np.arange(variables), np.log(np.stack((heads, 1 - heads), axis=-1)))
    root = layers.sums(layers.products(leaves), np.full(components, -math.log(components)))
    return layers.circuit([Variable(i) for i in range(variables)], int(root))


def flat_latent_tree(seed: int, *, variables: int = 60, states: int = 16, flatness: float = 50.0) -> Circuit:
    """A dense latent tree whose tables are all nearly uniform: no state of a latent variable stands out."""
    return latent_tree(seed, variables=variables, states=states, concentration=flatness)


def learned_tree(seed: int, *, variables: int = 60, clusters: int = 3, levels: int = 4, noise: float = 0.15) -> Circuit:
    """A tree as LearnSPN makes it: rows are clustered, then the variables are split, in turns, with no node shared.

    Each cluster splits its variables in a way of its own. At the bottom the variables are independent coins, which are
    those of the cluster above, changed by ``noise``.
    """
    rng = np.random.default_rng(seed)
    parts = Parts.new()

    def leaves(scope: list[int], heads: FloatArray) -> list[int]:
        return [parts.leaf(BERNOULLI, i, [math.log(heads[i]), math.log1p(-heads[i])]) for i in scope]

    def cluster(scope: list[int], heads: FloatArray, level: int) -> int:
        if level == 0 or len(scope) < 4:
            below = leaves(scope, heads)
            return below[0] if len(below) == 1 else parts.product(below)
        order = rng.permutation(scope).tolist()
        cut = int(rng.integers(len(order) // 3, len(order) - len(order) // 3))
        return parts.product([node(order[:cut], heads, level - 1), node(order[cut:], heads, level - 1)])

    def node(scope: list[int], heads: FloatArray, level: int) -> int:
        if len(scope) == 1:
            return leaves(scope, heads)[0]
        moved = [np.clip(heads + rng.normal(0, noise, variables), 0.02, 0.98) for _ in range(clusters)]
        weights = np.log(rng.dirichlet(np.full(clusters, 2.0))).tolist()
        return parts.sum([cluster(scope, each, level) for each in moved], weights)

    root = node(list(range(variables)), rng.uniform(0.2, 0.8, variables), levels)
    return assemble([Variable(i) for i in range(variables)], parts, root)


def tree_ensemble(seed: int, *, variables: int = 40, trees: int = 10, concentration: float = 1.0) -> Circuit:
    """A mixture of random tree-shaped networks over two-valued variables, each tree of a structure of its own.

    Each variable but the first has a random parent among those before it in the tree's own order, and a table of its
    own; a tree becomes two sums a variable, one for each value of the parent.
    """
    rng = np.random.default_rng(seed)
    parts = Parts.new()
    values = [[parts.leaf(INDICATOR, i, [float(x)]) for x in range(2)] for i in range(variables)]

    def tree() -> int:
        order = rng.permutation(variables).tolist()
        below: dict[int, list[int]] = {i: [] for i in order}
        for place, i in enumerate(order[1:], start=1):
            below[order[int(rng.integers(place))]].append(i)
        made: dict[int, list[int]] = {}  # for each variable its sums, one for each value of its parent
        for i in reversed(order):
            given = [values[i][x] for x in range(2)]
            if below[i]:
                given = [parts.product([values[i][x], *(made[child][x] for child in below[i])]) for x in range(2)]
            tables = np.log(np.maximum(rng.dirichlet(np.full(2, concentration), 2), 1e-6))
            made[i] = [parts.sum(given, row.tolist()) for row in (tables if i != order[0] else tables[:1])]
        return made[order[0]][0]

    roots = [tree() for _ in range(trees)]
    root = parts.sum(roots, np.log(rng.dirichlet(np.full(trees, 2.0))).tolist())
    return assemble([Variable(i) for i in range(variables)], parts, root)
