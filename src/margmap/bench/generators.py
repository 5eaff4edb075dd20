"""Random circuits to measure on: dense latent trees, trees of sums whose scopes cross, nearly fair coins."""

from __future__ import annotations

import math

import numpy as np

from margmap.circuit import BERNOULLI, CATEGORICAL, Circuit, FloatArray, Parts, Variable, assemble
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
