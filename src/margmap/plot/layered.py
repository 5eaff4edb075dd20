"""A layered drawing of a directed graph without cycles, such as a circuit or a Bayesian network.

The method of Sugiyama, Tagawa and Toda (1981): every node gets a layer below those of its parents; edges over several
layers get a bend in each layer between; the order within the layers is changed until few edges cross; then every node
moves to the middle of its neighbours, as far as its own neighbours in the layer allow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

#: How often the layers are put in order, and how often the nodes move; both settle long before.
ORDER_SWEEPS, MOVE_SWEEPS = 24, 80

#: How much more than a node a bend pulls, so that long edges are straight.
BEND_WEIGHT = 16.0

Point = tuple[float, float]


class Layout(NamedTuple):
    """Where everything is: the middle of each node, the points that each edge goes through, and the size of it all."""

    nodes: list[Point]
    edges: list[list[Point]]
    width: float
    height: float


def layers_of(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each node: below all its parents, and a node without parents just above its highest child."""
    parents: list[list[int]] = [[] for _ in range(count)]
    children: list[list[int]] = [[] for _ in range(count)]
    for above, below in edges:
        parents[below].append(above)
        children[above].append(below)
    layer = [0] * count
    missing = [len(some) for some in parents]
    ready = [node for node in range(count) if not missing[node]]
    order: list[int] = []
    while ready:
        node = ready.pop()
        order.append(node)
        for child in children[node]:
            layer[child] = max(layer[child], layer[node] + 1)
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    for node in reversed(order):
        if not parents[node] and children[node]:
            layer[node] = min(layer[child] for child in children[node]) - 1
    return layer


def layered(
    sizes: Sequence[tuple[float, float]],
    edges: Sequence[tuple[int, int]],
    gap: tuple[float, float],
    layer: Sequence[int] | None = None,
) -> Layout:
    """Places for nodes of these widths and heights, ``gap`` apart; edges lead down."""
    count = len(sizes)
    at = list(layers_of(count, edges) if layer is None else layer)
    chains, links = _with_bends(at, edges)
    widths = [size[0] for size in sizes] + [6.0] * (len(at) - count)
    order = _ordered(at, links)
    x = _moved(order, links, widths, gap[0], count)
    left = min((x[node] - widths[node] / 2 for node in range(len(at))), default=0.0)
    heights = [max((sizes[node][1] for node in row if node < count), default=0.0) for row in order]
    y, top = [], 0.0
    for height in heights:
        y.append(top + height / 2)
        top += height + gap[1]
    places = [(x[node] - left, y[at[node]]) for node in range(len(at))]
    width = max((places[node][0] + widths[node] / 2 for node in range(len(at))), default=0.0)
    ways = []
    for chain in chains:
        way = [places[chain[0]]]
        for bend in chain[1:-1]:  # straight through the whole layer, so that no node is touched
            across, half = places[bend][0], heights[at[bend]] / 2 + gap[1] / 8
            way += [(across, y[at[bend]] - half), (across, y[at[bend]] + half)]
        ways.append([*way, places[chain[-1]]])
    return Layout(places[:count], ways, width, max(top - gap[1], 0.0))


def _with_bends(at: list[int], edges: Sequence[tuple[int, int]]) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Add a node to ``at`` for each layer that an edge passes; the nodes along each edge, and all short edges."""
    chains: list[list[int]] = []
    links: list[tuple[int, int]] = []
    for above, below in edges:
        chain = [above]
        for between in range(at[above] + 1, at[below]):
            at.append(between)
            chain.append(len(at) - 1)
        chain.append(below)
        chains.append(chain)
        links += pairwise(chain)
    return chains, links


def _ordered(at: Sequence[int], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The nodes of each layer from left to right, so that few edges cross."""
    above: list[list[int]] = [[] for _ in at]
    below: list[list[int]] = [[] for _ in at]
    for one, other in links:
        below[one].append(other)
        above[other].append(one)
    rows: list[list[int]] = [[] for _ in range(max(at, default=-1) + 1)]
    seen = [False] * len(at)
    for first in sorted(range(len(at)), key=lambda node: at[node]):  # depth first: what belongs together comes together
        stack = [first]
        while stack:
            node = stack.pop()
            if not seen[node]:
                seen[node] = True
                rows[at[node]].append(node)
                stack += reversed(below[node])
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(ORDER_SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        neighbours = above if down else below
        place = {node: i for row in rows for i, node in enumerate(row)}
        for row in rows if down else reversed(rows):
            key = {
                node: sum(place[other] for other in neighbours[node]) / len(neighbours[node])
                if neighbours[node]
                else float(place[node])
                for node in row
            }
            row.sort(key=lambda node: key[node])
            place.update({node: i for i, node in enumerate(row)})
        _exchange(rows, above, below)
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _exchange(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Exchange neighbours within a layer where that makes fewer edges cross."""
    place = {node: i for row in rows for i, node in enumerate(row)}

    def crossed(left: int, right: int) -> int:
        total = 0
        for neighbours in (above, below):
            for one in neighbours[left]:
                total += sum(place[one] > place[other] for other in neighbours[right])
        return total

    for row in rows:
        for i in range(len(row) - 1):
            left, right = row[i], row[i + 1]
            if crossed(left, right) > crossed(right, left):
                row[i], row[i + 1] = right, left
                place[left], place[right] = i + 1, i


def _crossings(rows: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """How many pairs of edges cross."""
    total = 0
    place = {node: i for row in rows for i, node in enumerate(row)}
    for row in rows:
        ends = [place[other] for node in row for other in sorted(below[node], key=lambda n: place[n])]
        sorted_ends: list[int] = []
        for end in ends:
            at = bisect_right(sorted_ends, end)
            total += len(sorted_ends) - at
            sorted_ends.insert(at, end)
    return total


def _moved(
    order: Sequence[Sequence[int]], links: Sequence[tuple[int, int]], widths: Sequence[float], gap: float, real: int
) -> list[float]:
    """The x of each node: near the middle of its neighbours, in the order given and ``gap`` apart."""
    neighbours: list[tuple[list[int], list[int]]] = [([], []) for _ in widths]
    for one, other in links:
        neighbours[one][1].append(other)
        neighbours[other][0].append(one)
    x = [0.0] * len(widths)
    for row in order:
        at = 0.0
        for node in row:
            x[node] = at + widths[node] / 2
            at += widths[node] + gap
    widest = max((x[row[-1]] + widths[row[-1]] / 2 for row in order if row), default=0.0)
    for row in order:
        shift = (widest - x[row[-1]] - widths[row[-1]] / 2) / 2 if row else 0.0
        for node in row:
            x[node] += shift
    for sweep in range(MOVE_SWEEPS):
        for row in order if sweep % 2 == 0 else list(reversed(order)):
            wanted, weights = [], []
            for node in row:
                # Later sweeps look both ways, so that neither parents nor children alone decide. The last one goes up,
                # and puts parents in the middle of their children.
                both = MOVE_SWEEPS // 2 <= sweep < MOVE_SWEEPS - 1
                near = [*neighbours[node][0], *neighbours[node][1]] if both else neighbours[node][sweep % 2]
                pulls = [BEND_WEIGHT if node >= real and other >= real else 1.0 for other in near]
                total = sum(pulls)
                wanted.append(sum(p * x[n] for p, n in zip(pulls, near, strict=True)) / total if near else x[node])
                weights.append(max(total, 0.1))
            for node, place in zip(row, _spread(row, wanted, weights, widths, gap), strict=True):
                x[node] = place
    return x


def _spread(
    row: Sequence[int], wanted: Sequence[float], weights: Sequence[float], widths: Sequence[float], gap: float
) -> list[float]:
    """The places nearest to those wanted (in weighted squares) that keep the order and the distances."""
    offsets, at = [], 0.0
    for i, node in enumerate(row):
        if i:
            at += (widths[row[i - 1]] + widths[node]) / 2 + gap
        offsets.append(at)
    # Without the offsets the places must not fall: neighbours that do are pooled at their mean.
    pools: list[tuple[float, float, int]] = []
    for place, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, total, size = place - offset, weight, 1
        while pools and pools[-1][0] >= mean:
            other, more, members = pools.pop()
            mean = (mean * total + other * more) / (total + more)
            total, size = total + more, size + members
        pools.append((mean, total, size))
    flat = [mean for mean, _, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(flat, offsets, strict=True)]
