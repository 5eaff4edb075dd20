"""A sweep of a large circuit, whose parts (:mod:`margmap.solve.parts`) are swept at once by several threads.

First the bounds outside of the parts are pushed down from the root, with nothing known of the parts; each part is then
swept alone, and last the scopes above them. The result is the same on any number of threads.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, IntArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.threads import at_once
from margmap.solve.methods.frontier.scope_tree import Plan
from margmap.solve.methods.frontier.sweep import (
    NOTHING_ABOVE,
    STOPPED,
    TO_THE_END,
    Frontier,
    Swept,
    Vectors,
    enter,
    go_up,
    new_frontier,
    new_vectors,
    push,
    read_off,
)
from margmap.solve.query_circuit import Flat

# A part may take this share of the work that the whole sweep may take.
_SHARE = 4


class Cut(NamedTuple):
    """How the scopes of a plan are divided."""

    #: For each part the scopes that it consists of with all that is below them, and how many nodes it has.
    roots: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    #: The other scopes, those of the top, each before its own parts.
    top: LongArray
    #: Which scopes are roots of parts.
    done: NDArray[np.bool_]


def cut_of(plan: Plan, parts: LongArray) -> Cut | None:
    """The cut that follows from the parts of a circuit; None if fewer than two of them have a scope to themselves.

    A scope is a part's if all its nodes are. The indicators, which stand before the parts, are everybody's.
    """
    part_of = _parts_of_scopes(plan.scope, plan.node_at.size - 1, parts).tolist()
    part_at, part = plan.part_at.tolist(), plan.part.tolist()
    roots: list[list[int]] = [[] for _ in parts[1:]]
    top, waiting = [], [int(plan.scope[-1])]
    while waiting:
        s = waiting.pop()
        if part_of[s] >= 0:
            roots[part_of[s]].append(s)
        else:
            top.append(s)
            waiting.extend(part[part_at[s] : part_at[s + 1]])
    used = tuple(tuple(each) for each in roots if each)
    sizes = tuple([size for size, each in zip(np.diff(parts).tolist(), roots, strict=True) if each])
    done = np.zeros(len(part_of), dtype=np.bool_)
    done[[s for each in used for s in each]] = True
    return Cut(used, sizes, np.array(top, dtype=np.int64), done) if len(used) > 1 and top else None


def sweep_by_parts(
    f: Flat,
    rows: IntArray,
    share: FloatArray,
    least: float,
    plan: Plan,
    cut: Cut,
    variables: int,
    log_floor: float,
    most: int,
    pairs: int,
    best_of: int,
    stop: LongArray,
) -> Swept:
    """What :func:`~margmap.solve.methods.frontier.sweep.sweep` does without constraints.

    While a part is swept the values of all nodes elsewhere count as their bounds, so that it may keep vectors that are
    dropped where the other parts are known.
    """
    given, nothing_done = (f, rows, share, least, plan, None), np.zeros(cut.done.size, dtype=np.bool_)
    limits, budget = (log_floor, most, pairs, best_of, stop), int(stop[1])
    frontier = new_frontier(f, plan)
    _push_down(f, rows, share, plan, cut.top, frontier)

    def below(i: int) -> tuple[int, Vectors, float, int, int]:
        kept, exponents, widest, work = new_vectors(), 0.0, 1, np.array([budget // _SHARE])
        for scope in cut.roots[i]:
            # Nothing is known here of the factors of other scopes: each begins at 1.
            end, kept, exponent, wide = go_up(*given, frontier, kept, nothing_done, scope, i, 0.0, *limits, work)
            exponents, widest = exponents + exponent, max(widest, wide)
            if end != TO_THE_END:
                return end, kept, exponents, widest, 0
        return TO_THE_END, kept, exponents, widest, budget // _SHARE - int(work[0])

    found = at_once([partial(below, i) for i in range(len(cut.roots))], cut.sizes)
    ends, widest, left = [one[0] for one in found], max(one[3] for one in found), budget - sum(one[4] for one in found)
    end, exponent = min(ends) if STOPPED in ends else max(ends), sum(one[2] for one in found)
    if end == TO_THE_END and left > 0:
        begun = _together([one[1] for one in found], cut, frontier)
        _forget(plan, cut.top, frontier)
        root, work = int(plan.scope[-1]), np.array([left])
        end, kept, exponent, wide = go_up(*given, frontier, begun, cut.done, root, -1, exponent, *limits, work)
        widest = max(widest, wide)
        if end == TO_THE_END:
            return True, *read_off(f, plan, frontier, kept, exponent, variables, log_floor), int(widest)
    no_values, no_states = np.zeros(0), np.zeros((0, variables), dtype=np.int32)
    if end == NOTHING_ABOVE:
        return True, no_values, no_states, log_floor, int(widest)
    return False, no_values, no_states, np.inf, int(widest)


def _together(kept: list[Vectors], cut: Cut, frontier: Frontier) -> Vectors:
    """The vectors of all parts in one place."""
    entries = np.cumsum([0] + [one.size for one in kept])
    pointers = np.cumsum([0] + [one.pointers for one in kept])
    of_step = np.repeat(frontier.owner, np.diff(frontier.step_at))
    for i, roots in enumerate(cut.roots):
        frontier.vector_at[list(roots)] += entries[i]
        frontier.pointer_at[of_step == i] += pointers[i]
    return Vectors(
        np.concatenate([one.entries[: one.size] for one in kept]),
        np.concatenate([one.left[: one.pointers] for one in kept]),
        np.concatenate([one.right[: one.pointers] for one in kept]),
        np.concatenate([one.merged[: one.pointers] for one in kept]),
        int(entries[-1]),
        int(pointers[-1]),
    )


@kernel
def _parts_of_scopes(scope: IntArray, scopes: int, parts: LongArray) -> LongArray:
    """For each scope the part that all its nodes are in, but for indicators; negative if there is none."""
    part_of, part = np.full(scopes, -2, dtype=np.int64), 0
    for n in range(parts[0], scope.size):
        while part < parts.size - 1 and n >= parts[part + 1]:
            part += 1
        if part == parts.size - 1 or part_of[scope[n]] not in (-2, part):
            part_of[scope[n]] = -1
        else:
            part_of[scope[n]] = part
    return part_of


@kernel
def _push_down(f: Flat, rows: IntArray, share: FloatArray, plan: Plan, top: LongArray, frontier: Frontier) -> None:
    """The outside bounds of the parts' nodes, from the root down through the scopes of the top."""
    frontier.outside[f.kind.size - 1] = 1.0
    for s in top:
        enter(f, rows, share, plan, s, frontier.outside, frontier.total)
        for j in range(plan.part_at[s + 1] - plan.part_at[s]):
            push(f, plan, s, j, frontier.total, frontier.limit, frontier.outside)


@kernel
def _forget(plan: Plan, top: LongArray, frontier: Frontier) -> None:
    """Forget the outside bounds in the top, which are tighter now that the parts are known."""
    for s in top:
        for i in range(plan.node_at[s], plan.node_at[s + 1]):
            frontier.outside[plan.node[i]] = frontier.total[plan.node[i]] = 0.0
    frontier.outside[plan.scope.size - 1] = 1.0
