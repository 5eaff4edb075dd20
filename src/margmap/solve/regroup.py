"""Regroup: inside a sum that must add, let the groups of children that exclude each other take the maximum.

``n = a + b + c`` with a and c exclusive becomes ``n = (a | c) + b``. The function stays the same; Algorithm 1 gets
tighter.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from margmap.circuit import SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.circuit.arrays import Bits
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Runner, to_the_end
from margmap.foundation.pairs import UP, decoded, encoded, raised
from margmap.foundation.sorting import descending
from margmap.solve.output_bounds import View, view_of
from margmap.solve.query_circuit import Flat, rebuild, trimmed
from margmap.solve.supports import Flags, Supports, exclude

# Comparing all pairs of children is quadratic; past this many children a sum is left as it is.
MOST_CHILDREN = 4096


def regroup(flat: Flat, supports: Supports, deterministic: Flags, run: Runner = to_the_end) -> tuple[Flat, float]:
    """The same function with the children of every adding sum covered by exclusive groups, heaviest first."""
    work = partial(_regroup, flat, supports.can, supports.words, deterministic)
    room = 90 * flat.num_edges + 50 * flat.num_nodes
    result = Flat(*run(work, supports.can.shape[1] * flat.num_edges, room))
    return rebuild(result, np.ones(result.num_edges, dtype=np.bool_), run)


def regrouped(view: View, cardinality: IntArray, run: Runner = to_the_end) -> View:
    """A bounded circuit, regrouped and bounded again."""
    if view.flat.num_nodes == 0:
        return view
    flat, log_factor = regroup(view.flat, view.supports, view.bounds.deterministic, run)
    return view_of(flat, raised(view.log_factor, log_factor), cardinality, run)


@kernel
def _regroup(
    f: Flat, can: Bits, words: int, deterministic: Flags, stop: LongArray
) -> tuple[KindArray, LongArray, IntArray, FloatArray, IntArray, IntArray]:
    n_old = f.kind.size
    parents = np.zeros(n_old, dtype=np.int64)
    for e in range(f.child.size):
        parents[f.child[e]] += 1
    # An adding sum used once, by an adding sum, is written into it. Exclusive ones stay whole: that keeps the bound.
    inline = np.zeros(n_old, dtype=np.bool_)
    for n in range(n_old):
        if f.kind[n] == SUM:
            for e in range(f.start[n], f.start[n + 1]):
                c = f.child[e]
                if f.kind[c] == SUM and parents[c] == 1 and not deterministic[n] and not deterministic[c]:
                    inline[c] = True

    room_nodes, room_edges = n_old + f.child.size, 2 * f.child.size
    kind = np.zeros(room_nodes, dtype=np.int8)
    start = np.zeros(room_nodes + 1, dtype=np.int64)
    child = np.zeros(room_edges, dtype=np.int32)
    weight = np.ones(room_edges)
    var = np.full(room_nodes, -1, dtype=np.int32)
    value = np.full(room_nodes, -1, dtype=np.int32)
    number = np.full(n_old, -1, dtype=np.int32)
    count, end = 0, 0
    item, item_weight = np.zeros(f.child.size, dtype=np.int32), np.zeros(f.child.size)
    stack, stack_weight = np.zeros(n_old, dtype=np.int32), np.zeros(n_old)
    group = np.zeros(f.child.size, dtype=np.int64)
    last_member, previous = np.zeros(f.child.size, dtype=np.int64), np.zeros(f.child.size, dtype=np.int64)
    for n in range(n_old):
        if stop[0] != 0:
            break
        if inline[n]:
            continue
        if f.kind[n] != SUM:
            for e in range(f.start[n], f.start[n + 1]):
                child[end] = number[f.child[e]]
                end += 1
            kind[count], var[count], value[count] = f.kind[n], f.var[n], f.value[n]
            number[n] = count
            count += 1
            start[count] = end
            continue
        # All terms of this sum, nested ones multiplied out.
        items, height = 0, 1
        stack[0], stack_weight[0] = n, 1.0
        while height > 0:
            height -= 1
            top, factor = stack[height], stack_weight[height]
            for e in range(f.start[top], f.start[top + 1]):
                c = f.child[e]
                if inline[c]:
                    stack[height], stack_weight[height] = c, _times(factor, f.weight[e])
                    height += 1
                else:
                    item[items], item_weight[items] = c, _times(factor, f.weight[e])
                    items += 1
        groups = 1 if deterministic[n] else items
        if groups > 2 and items <= MOST_CHILDREN:  # two that do not exclude each other stay as they are
            order = descending(item_weight[:items])
            groups = 0
            for i in order:
                if stop[0] != 0:
                    return trimmed(kind, start, child, weight, var, value, count, end)
                group[i] = groups
                for g in range(groups):
                    j = last_member[g]
                    while j >= 0 and exclude(can, words, item[i], item[j]):
                        j = previous[j]
                    if j < 0:
                        group[i] = g
                        break
                previous[i] = last_member[group[i]] if group[i] < groups else -1
                last_member[group[i]] = i
                groups = max(groups, group[i] + 1)
        if groups == 1 or groups == items:
            for i in range(items):
                child[end], weight[end] = number[item[i]], item_weight[i]
                end += 1
            kind[count] = SUM
            number[n] = count
            count += 1
            start[count] = end
            continue
        # One exclusive sum for each group of several, then the sum of the groups.
        members = np.zeros(groups, dtype=np.int64)
        node = np.zeros(groups, dtype=np.int32)
        for i in range(items):
            members[group[i]] += 1
        for g in range(groups):
            if members[g] > 1:
                for i in range(items):
                    if group[i] == g:
                        child[end], weight[end] = number[item[i]], item_weight[i]
                        end += 1
                kind[count] = SUM
                node[g] = count
                count += 1
                start[count] = end
        for i in range(items):
            if members[group[i]] == 1:
                child[end], weight[end] = number[item[i]], item_weight[i]
                end += 1
        for g in range(groups):
            if members[g] > 1:
                child[end] = node[g]
                end += 1
        kind[count] = SUM
        number[n] = count
        count += 1
        start[count] = end
    return trimmed(kind, start, child, weight, var, value, count, end)


@kernel
def _times(a: float, b: float) -> float:
    """The product of two weights, rounded up."""
    if a == 1:
        return b
    value, exponent = decoded(a)
    other, other_exponent = decoded(b)
    return encoded(value * other * UP, exponent + other_exponent)
