"""Weighted mini-bucket upper bounds of marginal MAP, with iterated cost shifting and weight tightening.

Along an elimination order, hidden variables first, the bucket of a variable has all tables that are left with it. If
their joint table would have more than ``limit`` entries, the bucket is divided into *mini-buckets* (Dechter and Rish,
"Mini-buckets: a general scheme for bounded inference", JACM 2003), each with a table of its own, a *cluster*. A hidden
variable is eliminated from mini-bucket r by the power sum with a weight w_r, and Hoelder's inequality says that

    sum_x prod_r f_r(x)  <=  prod_r ( sum_x f_r(x)^(1/w_r) )^w_r        for positive weights that add up to 1;

for a query variable the weights go to 0 and the power sum becomes the maximum (Liu and Ihler, "Bounding the partition
function using Hoelder's inequality", ICML 2011, and "Variational algorithms for marginal MAP", JMLR 2013). Any weights
give a bound. So does any *cost shift*: logs moved from one mini-bucket to another over variables that both have leave
the product as it is, but not the bound.

**Tightening.** Let F be a cluster's table with the messages of its children, m(s) its message. The derivative of the
bound by the entries of F is a distribution that follows from the root down,

    q(s, x) = q(s) exp((F(s, x) - m(s)) / w),     q(s) = the marginal of the q of the cluster that hears the message,

and the derivative by w is the entropy of x given s under q. So costs are best moved where two mini-buckets a and b of
one variable disagree about what they share, d(s) = w_a w_b / (w_a + w_b) (log q_b(s) - log q_a(s)), a += d, b -= d (the
exact minimum if the two hang together nowhere else), and weight goes to the mini-buckets with little entropy. For
query variables that is done at a small weight, the temperature, which is lowered as time goes on: plain maxima have
ties at which moving costs between two clusters gains nothing although moving more of them would. The reported bound
uses maxima. An entry that is log 0 in one mini-bucket makes the entries of the other impossible that agree with it, so
zeros spread instead of turning into "inf - inf".

Moves are kept apart for each pair of clusters and added to fresh tables when a bound is asked for, so that rounding
does not pile up with the number of rounds; what is left of it is part of the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.minimise import minimise
from margmap.foundation.pairs import EPS
from margmap.network.log_model import LogFactor, LogModel, joined, largest_finite
from margmap.network.scoring import GO_ON


class Cluster(NamedTuple):
    """A mini-bucket: its variable, the other variables of its table (last eliminated first), what is joined in it."""

    variable: int
    context: tuple[int, ...]
    factors: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """The variables of the table; the one to be eliminated is last."""
        return (*self.context, self.variable)


class Clusters(NamedTuple):
    """All mini-buckets along an order, each after those that send it a message."""

    order: tuple[int, ...]
    clusters: tuple[Cluster, ...]
    #: The cluster that hears the message of each; -1 if its context is empty.
    parent: tuple[int, ...]
    #: For each variable of the order, the numbers of its mini-buckets: first and one past the last.
    spans: tuple[tuple[int, int], ...]

    @property
    def split(self) -> int:
        """How many mini-buckets there are beyond one a variable: 0 if the bound is exact."""
        return len(self.clusters) - len(self.order)

    def sizes(self, model: LogModel) -> list[int]:
        """Entries of each table."""
        return [model.size(cluster.axes) for cluster in self.clusters]


def partition(model: LogModel, order: Sequence[int], limit: int) -> Clusters:
    """Divide each bucket along an order so that no table has over ``limit`` entries, but for a factor's own."""
    position = {v: i for i, v in enumerate(order)}
    waiting: list[list[tuple[frozenset[int], int, int]]] = [[] for _ in order]
    for number, factor in enumerate(model.factors):
        waiting[min(position[v] for v in factor.scope)].append((frozenset(factor.scope), number, -1))
    clusters: list[Cluster] = []
    parent: list[int] = []
    spans: list[tuple[int, int]] = []
    for i, v in enumerate(order):
        first = len(clusters)
        groups: list[tuple[set[int], list[int], list[int]]] = []
        for scope, number, child in sorted(waiting[i], key=lambda item: (-len(item[0]), item[1], item[2])):
            best, growth = None, np.inf
            for group in groups:
                size = model.size(group[0] | scope)
                grown = size / model.size(group[0])
                if (size <= limit or scope <= group[0]) and grown < growth:
                    best, growth = group, grown
            if best is None:
                best = (set(), [], [])
                groups.append(best)
            best[0].update(scope)
            if child >= 0:
                best[2].append(child)
            else:
                best[1].append(number)
        for scope_set, factors, children in groups or [({v}, [], [])]:
            context = tuple(sorted(scope_set - {v}, key=lambda u: -position[u]))
            for c in children:
                parent[c] = len(clusters)
            if context:
                waiting[min(position[u] for u in context)].append((frozenset(context), -1, len(clusters)))
            clusters.append(Cluster(v, context, tuple(factors), tuple(children)))
            parent.append(-1)
        spans.append((first, len(clusters)))
    return Clusters(tuple(order), tuple(clusters), tuple(parent), tuple(spans))


class Links(NamedTuple):
    """The clusters and how they hang together, in flat arrays for the kernels."""

    #: The tables of the clusters one after the other: cluster c begins at ``at[c]``; messages: at ``sent_at[c]``.
    at: LongArray
    sent_at: LongArray
    #: Cluster c has the axes ``axis_at[c]`` to ``axis_at[c + 1]`` of these lengths, its own variable last.
    axis_at: LongArray
    length: LongArray
    #: The mini-buckets of a variable are the clusters ``span[i]`` to ``span[i + 1]``.
    span: LongArray
    #: The cluster that hears the message of c, or -1, and its axes' steps in that message, from ``heard_at[c]`` on.
    parent: LongArray
    heard_at: LongArray
    heard: LongArray
    #: The children of c are ``child[child_at[c]]`` to ``child[child_at[c + 1] - 1]``.
    child_at: LongArray
    child: LongArray
    #: Cluster c and the next one are mini-buckets of one variable if they share ``shared_at[c]`` to
    #: ``shared_at[c + 1]`` of what moves; their axes' steps in it begin at ``stride_at[2 c]`` and at
    #: ``stride_at[2 c + 1]``.
    shared_at: LongArray
    stride_at: LongArray
    stride: LongArray


def _steps(model: LogModel, scope: Sequence[int]) -> dict[int, int]:
    steps, step = {}, 1
    for v in reversed(scope):
        steps[v] = step
        step *= model.cardinality[v]
    return steps


def links(model: LogModel, parts: Clusters) -> Links:
    """The flat arrays of some clusters."""
    axis_at, length, heard_at, heard, child_at = [0], [], [0], [], [0]
    child: list[int] = []
    shared_at, stride_at, stride = [0], [0], []
    following = {c for first, last in parts.spans for c in range(first, last - 1)}
    for c, cluster in enumerate(parts.clusters):
        length += [model.cardinality[v] for v in cluster.axes]
        axis_at.append(len(length))
        steps = _steps(model, cluster.context)
        if parts.parent[c] >= 0:
            heard += [steps.get(v, 0) for v in parts.clusters[parts.parent[c]].axes]
        heard_at.append(len(heard))
        child += cluster.children
        child_at.append(len(child))
        shared: list[int] = []
        if c in following:
            other = set(parts.clusters[c + 1].axes)
            shared = [v for v in cluster.axes if v in other]
        steps = _steps(model, shared)
        shared_at.append(shared_at[-1] + (model.size(shared) if shared else 0))
        for axes in (cluster.axes, parts.clusters[c + 1].axes if shared else ()):
            stride += [steps.get(v, 0) for v in axes]
            stride_at.append(len(stride))
    sent = [model.size(cluster.context) for cluster in parts.clusters]
    return Links(
        np.concatenate([[0], np.cumsum(parts.sizes(model))]).astype(np.int64),
        np.concatenate([[0], np.cumsum(sent)]).astype(np.int64),
        _long(axis_at),
        _long(length),
        _long([*(first for first, _ in parts.spans), len(parts.clusters)]),
        _long(parts.parent),
        _long(heard_at),
        _long(heard),
        _long(child_at),
        _long(child),
        _long(shared_at),
        _long(stride_at),
        _long(stride),
    )


def _long(values: Sequence[int]) -> LongArray:
    return np.array(values, dtype=np.int64)


class Bound(NamedTuple):
    """What one pass along the order found."""

    #: An upper bound, rounding counted; inf if the pass was stopped.
    log_upper: float
    #: The tables of the clusters with all that moved, without and with the messages of their children.
    tables: FloatArray
    filled: FloatArray
    messages: FloatArray
    #: What rounding can amount to; it is part of the bound.
    rounding: float


class _StoppedTightening(Exception):
    """The stop flag was set."""


class MiniBuckets:
    """The clusters of a model, the logs moved between them and the weights so far, and the bounds that follow."""

    def __init__(self, model: LogModel, parts: Clusters, shares: FloatArray | None = None) -> None:
        """``shares`` are what the weights of a hidden variable's mini-buckets are in proportion to, if known."""
        self.model, self.parts = model, parts
        self.links = links(model, self.parts)
        self.tables = cluster_tables(model, self.parts)
        self.filled = np.empty_like(self.tables)
        sent = int(self.links.sent_at[-1])
        self.messages, self.above = np.zeros(sent), np.zeros(sent)
        #: What moved: to the first cluster of each pair and to the second.
        self.moved = np.zeros((2, int(self.links.shared_at[-1])))
        self.hidden = np.array([cluster.variable not in model.query for cluster in self.parts.clusters])
        self.weights = np.zeros(len(self.parts.clusters))
        for first, last in self.parts.spans:
            if self.hidden[first]:  # by how much was joined
                joins = [len(cluster.factors) + len(cluster.children) for cluster in parts.clusters[first:last]]
                share = np.maximum(np.array(joins, dtype=np.float64) if shares is None else shares[first:last], 1e-3)
                self.weights[first:last] = share / share.sum()
        # The smoothed bound of the last tightening, and where it was.
        self._lowest: tuple[float, FloatArray] = (np.inf, np.zeros(0))
        self._clear_zeros()

    def _clear_zeros(self) -> None:
        """Let what is impossible in one mini-bucket be so in the others of its variable."""
        if not np.isinf(self.tables).any() or self.exact:
            return
        maxima = np.zeros(len(self.parts.clusters))
        for _ in range(2):
            _forward(self.links, self.tables, self.filled, self.messages, maxima, GO_ON)
            _max_down(self.links, self.filled, self.messages, self.above)
            _spread_zeros(self.links, self.tables, self.filled, self.messages, self.above, self.moved)

    @property
    def exact(self) -> bool:
        """Whether no bucket was divided, so that the bound is the value."""
        return self.parts.split == 0

    def tighten(self, rounds: int, temperature: float, stop: LongArray) -> float:
        """Move costs and weights by so many steps of L-BFGS, query variables at a temperature; the smooth bound."""
        if self.exact:
            return np.inf
        base = cluster_tables(self.model, self.parts)
        fixed = np.where(np.isfinite(self.moved), 0.0, -np.inf)
        _settle(self.links, base, fixed)
        shared = int(self.links.shared_at[-1])
        spans = [(first, last) for first, last in self.parts.spans if self.hidden[first] and last - first > 1]

        def unpacked(x: FloatArray) -> tuple[FloatArray, FloatArray]:
            moved = np.stack([x[:shared], -x[:shared]])
            weights = np.where(self.hidden, self.weights, temperature)
            for first, last in spans:
                share = np.exp(x[shared + first : shared + last])
                weights[first:last] = np.maximum(share / share.sum(), 1e-4)
                weights[first:last] /= weights[first:last].sum()
            return moved, weights

        def objective(x: FloatArray) -> tuple[float, FloatArray]:
            if stop[0] != 0:
                raise _StoppedTightening
            moved, weights = unpacked(x)
            self.tables[:] = base
            _settle(self.links, self.tables, moved)
            total, _ = _forward(self.links, self.tables, self.filled, self.messages, weights, stop)
            slope, weight_slope = np.zeros(shared), np.zeros(weights.size)
            arrays = (self.filled, self.messages, self.above, weights, self.hidden, slope, weight_slope)
            _down(self.links, *arrays, stop)
            if stop[0] != 0:
                raise _StoppedTightening
            if total < self._lowest[0]:
                self._lowest = (total, x.copy())
            return total, np.concatenate([slope, weight_slope])

        finite = np.where(np.isfinite(self.moved[0]), self.moved[0], 0.0)
        begin = np.concatenate([finite, np.log(np.where(self.hidden, np.maximum(self.weights, 1e-4), 1.0))])
        self._lowest = (np.inf, begin)
        with suppress(_StoppedTightening):
            minimise(objective, begin, rounds)
        moved, weights = unpacked(self._lowest[1])
        self.moved = moved + fixed
        self.weights = np.where(self.hidden, weights, 0.0)
        return self._lowest[0] + self.model.log_constant

    def bound(self, stop: LongArray) -> Bound:
        """Eliminate along the order: power sums over hidden variables, maxima over the query."""
        model, parts = self.model, self.parts
        tables = cluster_tables(model, parts)
        lost = model.rounding
        for cluster in parts.clusters:
            sizes = [largest_finite(model.factors[f].table.reshape(-1)) for f in cluster.factors]
            lost += EPS * len(sizes) * sum(sizes)
        lost += _settle(self.links, tables, self.moved)
        filled, messages = np.empty_like(tables), np.empty_like(self.messages)
        total, further = _forward(self.links, tables, filled, messages, self.weights, stop)
        if stop[0] != 0:
            return Bound(np.inf, tables, filled, messages, np.inf)
        rounding = lost + further + 2 * EPS * abs(model.log_constant)
        return Bound(model.log_constant + total + rounding, tables, filled, messages, rounding)


class Tightened(NamedTuple):
    """A model with its costs where mini-buckets have moved them: a table for each cluster.

    Larger mini-buckets of it, or those of a part of its states, begin where these have ended.
    """

    model: LogModel
    #: Of each table the variable that its mini-bucket eliminates, and the weight of that.
    variable: tuple[int, ...]
    weights: FloatArray

    def shares(self, parts: Clusters, sources: Sequence[int] | None = None) -> FloatArray:
        """What the weights of other clusters are in proportion to: mini-buckets that are joined add up their weights.

        By Hoelder's inequality that is never worse. ``sources`` are the numbers here of the tables that are joined
        there, if they are not the same.
        """
        shares = np.zeros(len(parts.clusters))
        for c, cluster in enumerate(parts.clusters):
            numbers = cluster.factors if sources is None else [sources[f] for f in cluster.factors]
            shares[c] = self.weights[[f for f in numbers if self.variable[f] == cluster.variable]].sum()
        return shares


def tightened(buckets: MiniBuckets, found: Bound) -> Tightened:
    """The model of some mini-buckets with the costs and weights with which they found a bound."""
    model, at, clusters = buckets.model, buckets.links.at, buckets.parts.clusters
    factors = tuple(
        LogFactor(one.axes, found.tables[at[c] : at[c + 1]].reshape([model.cardinality[v] for v in one.axes]))
        for c, one in enumerate(clusters)
    )
    moved = LogModel(model.cardinality, model.query, factors, model.log_constant, found.rounding)
    return Tightened(moved, tuple(one.variable for one in clusters), buckets.weights.copy())


def cluster_tables(model: LogModel, parts: Clusters) -> FloatArray:
    """The joined factors of each cluster, one table after the other."""
    tables = [
        joined([model.factors[number] for number in cluster.factors], cluster.axes, model.cardinality).reshape(-1)
        for cluster in parts.clusters
    ]
    return np.concatenate(tables or [np.zeros(0)])


def decode(model: LogModel, parts: Clusters, filled: FloatArray) -> LongArray:
    """A state read off the messages: from the last variable of the order to the first, the value with the best bound.

    Hidden variables get a value too, the most likely one by the same tables.
    """
    at = np.concatenate([[0], np.cumsum(parts.sizes(model))])
    state = np.zeros(len(model.cardinality), dtype=np.int64)
    for i in reversed(range(len(parts.order))):
        v = parts.order[i]
        total = np.zeros(model.cardinality[v])
        for c in range(*parts.spans[i]):
            cluster = parts.clusters[c]
            table = filled[at[c] : at[c + 1]].reshape([model.cardinality[u] for u in cluster.axes])
            total = total + table[tuple(state[u] for u in cluster.context)]
        state[v] = int(np.argmax(total))
    return state


def literal_bounds(buckets: MiniBuckets, found: Bound) -> dict[int, FloatArray]:
    """For each query variable an upper bound under each of its values, rounding counted.

    A pass back with maxima gives, for each cluster of a query variable, the best value of its tree under each entry. A
    tree is at most what the strictest of its clusters says, and what the trees lack to their maxima under a value adds
    up, since the bound is the sum of those.
    """
    model, parts, at, sent = buckets.model, buckets.parts, buckets.links.at, buckets.links.sent_at
    above = np.zeros_like(found.messages)
    _max_down(buckets.links, found.filled, found.messages, above)
    root = list(range(len(parts.clusters)))
    for c in reversed(root):
        root[c] = c if parts.parent[c] < 0 else root[parts.parent[c]]
    lacking: dict[int, dict[int, FloatArray]] = {}
    for c, cluster in enumerate(parts.clusters):
        if buckets.hidden[c]:
            continue
        shape = [model.cardinality[v] for v in cluster.axes]
        with np.errstate(invalid="ignore"):
            table = found.filled[at[c] : at[c + 1]].reshape(shape) + above[sent[c] : sent[c + 1]].reshape(
                [*shape[:-1], 1]
            )
        table = np.where(np.isnan(table), -np.inf, table) - found.messages[sent[root[c]]]
        for axis, v in enumerate(cluster.axes):
            best = np.minimum(table.max(axis=tuple(a for a in range(table.ndim) if a != axis)), 0.0)
            trees = lacking.setdefault(v, {})
            trees[root[c]] = np.minimum(trees[root[c]], best) if root[c] in trees else best
    # The same rounding once more for another order of additions, and once for the differences.
    whole = found.log_upper + 2 * found.rounding
    return {v: np.asarray(whole + sum(trees.values()), dtype=np.float64) for v, trees in lacking.items()}


@kernel
def _advance(length: LongArray, strides: LongArray, index: LongArray) -> int:
    """Go on to the next entry of all axes but the last, the last of them fastest; by how much the place changes."""
    change = 0
    i = length.size - 2
    while i >= 0:
        index[i] += 1
        if index[i] < length[i]:
            change += strides[i]
            break
        index[i] = 0
        change -= strides[i] * (length[i] - 1)
        i -= 1
    return change


@kernel
def _add(links: Links, tables: FloatArray, c: int, strides: LongArray, change: FloatArray) -> float:
    """Add to the table of cluster ``c`` a smaller one, in which its axes have these steps; the largest finite entry."""
    a0 = links.axis_at[c]
    axes = links.axis_at[c + 1] - a0
    k = links.length[a0 + axes - 1]
    last = strides[axes - 1]
    index = np.zeros(axes, dtype=np.int64)
    place = 0
    largest = 0.0
    begin = links.at[c]
    for r in range((links.at[c + 1] - begin) // k):
        row = begin + r * k
        for x in range(k):
            value = tables[row + x] + change[place + x * last]
            tables[row + x] = value
            if value > -np.inf:
                largest = max(largest, abs(value))
        place += _advance(links.length[a0 : a0 + axes], strides, index)
    return largest


@kernel
def _send(links: Links, filled: FloatArray, c: int, weight: float, messages: FloatArray) -> float:
    """The power sum over the variable of cluster ``c``, its maximum for weight 0; the largest finite message."""
    k = links.length[links.axis_at[c + 1] - 1]
    begin, target = links.at[c], links.sent_at[c]
    largest = 0.0
    for r in range((links.at[c + 1] - begin) // k):
        row = begin + r * k
        top = filled[row]
        for x in range(1, k):
            top = max(top, filled[row + x])
        if weight > 0 and top > -np.inf:
            total = 0.0
            for x in range(k):
                total += np.exp((filled[row + x] - top) / weight)
            top += weight * np.log(total)
        messages[target + r] = top
        if top > -np.inf:
            largest = max(largest, abs(top))
    return largest


@kernel
def _fill(links: Links, tables: FloatArray, filled: FloatArray, messages: FloatArray, c: int) -> float:
    """The table of cluster ``c`` with its children's messages; a bound on the rounding, in units."""
    for i in range(links.at[c], links.at[c + 1]):
        filled[i] = tables[i]
    lost = 0.0
    for j in range(links.child_at[c], links.child_at[c + 1]):
        u = links.child[j]
        strides = links.heard[links.heard_at[u] : links.heard_at[u + 1]]
        lost += _add(links, filled, c, strides, messages[links.sent_at[u] : links.sent_at[u + 1]])
    return lost


@kernel
def _sum_onto(links: Links, table: FloatArray, c: int, strides: LongArray, out: FloatArray) -> None:
    """Sums of a table of cluster ``c`` over the axes without steps; entry 0 of ``table`` is its first."""
    a0 = links.axis_at[c]
    axes = links.axis_at[c + 1] - a0
    k = links.length[a0 + axes - 1]
    last = strides[axes - 1]
    index = np.zeros(axes, dtype=np.int64)
    place = 0
    out[:] = 0.0
    for r in range(table.size // k):
        if last == 0:
            total = 0.0
            for x in range(k):
                total += table[r * k + x]
            out[place] += total
        else:
            for x in range(k):
                out[place + x * last] += table[r * k + x]
        place += _advance(links.length[a0 : a0 + axes], strides, index)


@kernel
def _spread_zeros(
    links: Links, tables: FloatArray, filled: FloatArray, messages: FloatArray, above: FloatArray, moved: FloatArray
) -> None:
    """What one of two mini-buckets makes impossible is impossible in the other.

    ``filled`` and ``messages`` are those of a pass along the order, ``above`` what :func:`_max_down` found from them.
    """
    most = 1
    for c in range(links.parent.size):
        k = links.length[links.axis_at[c + 1] - 1]
        for r in range(links.sent_at[c + 1] - links.sent_at[c]):
            dead = above[links.sent_at[c] + r] == -np.inf
            for x in range(k):
                i = links.at[c] + r * k + x
                filled[i] = 1.0 if filled[i] > -np.inf and not dead else 0.0
        most = max(most, links.shared_at[c + 1] - links.shared_at[c])
    a, b = np.empty(most), np.empty(most)
    for c in range(links.parent.size):
        first, last = links.shared_at[c], links.shared_at[c + 1]
        size = last - first
        if size == 0:
            continue
        s0 = links.stride[links.stride_at[2 * c] : links.stride_at[2 * c + 1]]
        s1 = links.stride[links.stride_at[2 * c + 1] : links.stride_at[2 * c + 2]]
        _sum_onto(links, filled[links.at[c] : links.at[c + 1]], c, s0, a[:size])
        _sum_onto(links, filled[links.at[c + 1] : links.at[c + 2]], c + 1, s1, b[:size])
        for s in range(size):
            left = -np.inf if b[s] == 0.0 else 0.0
            b[s] = -np.inf if a[s] == 0.0 else 0.0
            a[s] = left
            moved[0, first + s] += left
            moved[1, first + s] += b[s]
        _add(links, tables, c, s0, a[:size])
        _add(links, tables, c + 1, s1, b[:size])


@kernel
def _down(
    links: Links,
    filled: FloatArray,
    messages: FloatArray,
    above: FloatArray,
    weights: FloatArray,
    hidden: NDArray[np.bool_],
    slope: FloatArray,
    weight_slope: FloatArray,
    stop: LongArray,
) -> None:
    """The pass back: q of every cluster in place of its table, and the derivatives by what moved and by the weights.

    ``above`` is q of each cluster's context. What is too small for a double counts as 0.
    """
    most = 1
    for c in range(links.parent.size):
        most = max(most, links.shared_at[c + 1] - links.shared_at[c])
    a, b = np.empty(most), np.empty(most)
    for i in range(links.span.size - 2, -1, -1):
        if stop[0] != 0:
            return
        first, last = links.span[i], links.span[i + 1]
        tighten = hidden[first] and last - first > 1
        for c in range(first, last):
            if links.parent[c] < 0:
                above[links.sent_at[c]] = 1.0
            k = links.length[links.axis_at[c + 1] - 1]
            inverse = 1.0 / weights[c]
            entropy = 0.0
            for r in range(links.sent_at[c + 1] - links.sent_at[c]):
                m, q = messages[links.sent_at[c] + r], above[links.sent_at[c] + r]
                row = links.at[c] + r * k
                if q < 1e-30 or m == -np.inf:
                    for x in range(k):
                        filled[row + x] = 0.0
                    continue
                for x in range(k):
                    t = (filled[row + x] - m) * inverse
                    p = q * np.exp(t)
                    if tighten and p > 0:
                        entropy -= p * t
                    filled[row + x] = p
            weight_slope[c] = entropy
            table = filled[links.at[c] : links.at[c + 1]]
            for j in range(links.child_at[c], links.child_at[c + 1]):
                u = links.child[j]
                strides = links.heard[links.heard_at[u] : links.heard_at[u + 1]]
                _sum_onto(links, table, c, strides, above[links.sent_at[u] : links.sent_at[u + 1]])
        for c in range(first, last - 1):
            begin, end = links.shared_at[c], links.shared_at[c + 1]
            size = end - begin
            s0 = links.stride[links.stride_at[2 * c] : links.stride_at[2 * c + 1]]
            s1 = links.stride[links.stride_at[2 * c + 1] : links.stride_at[2 * c + 2]]
            _sum_onto(links, filled[links.at[c] : links.at[c + 1]], c, s0, a[:size])
            _sum_onto(links, filled[links.at[c + 1] : links.at[c + 2]], c + 1, s1, b[:size])
            for s in range(size):
                slope[begin + s] = a[s] - b[s]
        if tighten:
            mean = 0.0
            for c in range(first, last):
                mean += weights[c] * weight_slope[c]
            for c in range(first, last):
                weight_slope[c] = weights[c] * (weight_slope[c] - mean)


@kernel
def _settle(links: Links, tables: FloatArray, moved: FloatArray) -> float:
    """Add all that moved to fresh tables; a bound on the rounding."""
    lost = 0.0
    for c in range(links.parent.size):
        first, last = links.shared_at[c], links.shared_at[c + 1]
        if last > first:
            s0 = links.stride[links.stride_at[2 * c] : links.stride_at[2 * c + 1]]
            s1 = links.stride[links.stride_at[2 * c + 1] : links.stride_at[2 * c + 2]]
            lost += _add(links, tables, c, s0, moved[0, first:last])
            lost += _add(links, tables, c + 1, s1, moved[1, first:last])
    return lost * EPS


@kernel
def _forward(
    links: Links, tables: FloatArray, filled: FloatArray, messages: FloatArray, weights: FloatArray, stop: LongArray
) -> tuple[float, float]:
    """One pass along the order: the bound without the constant, and how far rounding can have moved it.

    A power sum of k entries errs by some k + 4 units of its largest term; weights that add up to 1 but for rounding
    change a bound by as much as the logs they multiply.
    """
    total, lost = 0.0, 0.0
    for c in range(links.parent.size):
        if stop[0] != 0:
            return 0.0, 0.0
        k = links.length[links.axis_at[c + 1] - 1]
        lost += _fill(links, tables, filled, messages, c)
        largest = _send(links, filled, c, weights[c], messages)
        if weights[c] > 0:
            lost += (k + 8) * (largest + np.log(k) + 1.0)
        if links.parent[c] < 0:
            total += messages[links.sent_at[c]]
            lost += abs(total) if total > -np.inf else 0.0
    return total, lost * EPS


@kernel
def _max_down(links: Links, filled: FloatArray, messages: FloatArray, above: FloatArray) -> None:
    """For each cluster and state of its context the best value of all that is above, without the cluster's message."""
    for c in range(links.parent.size - 1, -1, -1):
        a0 = links.axis_at[c]
        axes = links.axis_at[c + 1] - a0
        k = links.length[a0 + axes - 1]
        index = np.zeros(axes, dtype=np.int64)
        begin, sent = links.at[c], links.sent_at[c]
        for j in range(links.child_at[c], links.child_at[c + 1]):
            u = links.child[j]
            first, last = links.sent_at[u], links.sent_at[u + 1]
            steps = links.heard[links.heard_at[u] : links.heard_at[u + 1]]
            above[first:last] = -np.inf
            index[:] = 0
            place = first
            for r in range((links.at[c + 1] - begin) // k):
                for x in range(k):
                    at = place + x * steps[axes - 1]
                    above[at] = max(above[at], filled[begin + r * k + x] + above[sent + r])
                place += _advance(links.length[a0 : a0 + axes], steps, index)
            for s in range(first, last):
                above[s] = above[s] - messages[s] if messages[s] > -np.inf else -np.inf
