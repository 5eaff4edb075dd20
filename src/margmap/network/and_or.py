"""AND/OR search over the query with mini-bucket bounds, layer by layer, in bounded width.

The query variables are assigned in the opposite of their elimination order, depth first along its pseudo tree, so that
independent parts are searched one after the other. A partial assignment is seen by the rest only through its *context*,
the values of those assigned variables that later tables mention: of two with equal contexts only the better one is kept
(what caching is to AND/OR search: Marinescu, Lee, Dechter and Ihler, "AND/OR search for marginal MAP", JAIR 2018). The
bound of a partial assignment is the sum of the tables that are fixed and of the messages of those that are not
(:mod:`margmap.network.mini_bucket`); with no more than the best state's value it is dropped.

If a layer still has more than ``width`` assignments, the ones with the smaller bounds are left out. What is left is a
beam search and finds a state; the largest bound that was left out, or the value found, bounds all states from above.
Nothing left out is a proof. Doubling the width makes it an anytime search in bounded memory.

Where hidden variables remain, their mini-buckets are part of the tables, and what is maximised is an upper bound of
each state's value. Its maximum bounds the answer, more tightly than the messages alone; the caller scores states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import EPS
from margmap.network.mini_bucket import Bound, MiniBuckets
from margmap.network.scoring import GO_ON


class Found(NamedTuple):
    """What one search of a given width found."""

    #: The state with the largest value by the tables; None if no state came through above the floor.
    state: LongArray | None
    #: No state has a larger value, but for those at most the floor.
    log_upper: float
    #: The most assignments of a layer, and whether some were left out.
    widest: int
    complete: bool
    #: The share of the layers in which some were left out.
    cut: float


class Step(NamedTuple):
    """One variable to assign: where its clusters' tables are, and what is remembered after it."""

    variable: int
    #: Of each of its clusters the first entry of the table and of the message, and its context's steps in the message:
    #: a row a cluster, a column for each variable that was remembered before.
    table: LongArray
    message: LongArray
    steps: LongArray
    #: What is remembered after it: places among what was remembered before, and one past them for the variable itself.
    keep: LongArray


class LayeredSearch:
    """The steps of a search along the order of some mini-buckets, and the bounds that guide it."""

    def __init__(self, steps: Sequence[Step], buckets: MiniBuckets, found: Bound) -> None:
        self.steps, self.buckets, self.found = steps, buckets, found
        links = buckets.links
        roots = [c for c, parent in enumerate(buckets.parts.parent) if parent < 0]
        self.start = float(sum(found.messages[links.sent_at[c]] for c in roots)) + buckets.model.log_constant
        largest = float(np.abs(found.filled[np.isfinite(found.filled)]).max(initial=0.0))
        #: What adding and taking away along one path can lose, beyond the rounding of the bound itself.
        self.rounding = found.rounding + 4 * EPS * (len(links.parent) + 1) * (abs(self.start) + largest)

    def search(self, floor: float, width: int, stop: LongArray = GO_ON) -> Found:
        """Keep at most ``width`` assignments a layer, and those only that may be worth more than ``floor``.

        If ``stop`` is set meanwhile, what is returned means nothing.
        """
        floor = floor - self.rounding
        known = np.zeros((1, 0), dtype=np.int16)
        bounds = np.array([self.start])
        trail: list[tuple[LongArray, LongArray]] = []
        left_out, widest, cut = -np.inf, 1, 0
        for step in self.steps:
            k = self.buckets.model.cardinality[step.variable]
            count, origin, value, bounds = _expand(
                known,
                bounds,
                step.table,
                step.message,
                step.steps,
                step.keep,
                k,
                self.found.filled,
                self.found.messages,
                floor,
                stop,
            )
            if stop[0] != 0:
                return Found(None, np.inf, widest, complete=False, cut=1.0)
            origin, value, bounds = origin[:count], value[:count], bounds[:count]
            if count > width:
                order = np.argpartition(-bounds, width)
                left_out, cut = max(left_out, float(bounds[order[width:]].max())), cut + 1
                kept = np.sort(order[:width])
                origin, value, bounds = origin[kept], value[kept], bounds[kept]
            widest = max(widest, bounds.size)
            if bounds.size == 0:
                log_upper = max(left_out, floor) + self.rounding
                return Found(None, log_upper, widest, left_out == -np.inf, cut / len(self.steps))
            known = np.concatenate([known[origin], value[:, None].astype(np.int16)], axis=1)[:, step.keep]
            trail.append((origin, value))
        best = int(np.argmax(bounds))
        log_upper = max(left_out, float(bounds[best]), floor) + self.rounding
        state = np.zeros(len(self.buckets.model.cardinality), dtype=np.int64)
        at = best
        for step, (origin, value) in zip(reversed(self.steps), reversed(trail), strict=True):
            state[step.variable] = value[at]
            at = int(origin[at])
        return Found(state, log_upper, widest, left_out == -np.inf, cut / max(1, len(self.steps)))


def search_steps(buckets: MiniBuckets) -> tuple[Step, ...]:
    """The query variables depth first from the end of the order, and what must be remembered after each."""
    parts, links, model = buckets.parts, buckets.links, buckets.model
    clusters: dict[int, list[int]] = {}
    for c, cluster in enumerate(parts.clusters):
        if not buckets.hidden[c]:
            clusters.setdefault(cluster.variable, []).append(c)
    sequence = _depth_first(
        [v for v in parts.order if v in clusters],
        {v: {u for c in numbers for u in parts.clusters[c].context} for v, numbers in clusters.items()},
    )
    later: list[set[int]] = [set() for _ in sequence]
    needed: set[int] = set()
    for i in reversed(range(len(sequence))):
        later[i] = set(needed)
        needed.update(u for c in clusters[sequence[i]] for u in parts.clusters[c].context)
    steps: list[Step] = []
    remembered: list[int] = []
    for v, after in zip(sequence, later, strict=True):
        rows = []
        for c in clusters[v]:
            context = parts.clusters[c].context
            size, of = 1, {}
            for u in reversed(context):
                of[u] = size
                size *= model.cardinality[u]
            rows.append([of.get(u, 0) for u in remembered])
        now = [*remembered, v]
        keep = [place for place, u in enumerate(now) if u in after]
        numbers = clusters[v]
        steps.append(
            Step(
                v,
                links.at[numbers],
                links.sent_at[numbers],
                np.array(rows, dtype=np.int64).reshape(len(numbers), len(remembered)),
                np.array(keep, dtype=np.int64),
            )
        )
        remembered = [now[place] for place in keep]
    return tuple(steps)


def _depth_first(order: list[int], contexts: dict[int, set[int]]) -> list[int]:
    """The variables from the root of the pseudo tree down, one subtree after the other.

    The parent of a variable is the first of its context to be eliminated after it, where contexts are filled in: those
    of a variable's children but for itself are part of its own.
    """
    position = {v: i for i, v in enumerate(order)}
    filled = {v: set(contexts[v]) for v in order}
    children: dict[int, list[int]] = {}
    roots: list[int] = []
    for v in order:
        if filled[v]:
            parent = min(filled[v], key=lambda u: position[u])
            filled[parent] |= filled[v] - {parent}
            children.setdefault(parent, []).append(v)
        else:
            roots.append(v)
    sequence: list[int] = []
    stack = roots
    while stack:
        v = stack.pop()
        sequence.append(v)
        stack.extend(children.get(v, []))
    return sequence


@kernel
def _expand(
    known: NDArray[np.int16],
    bounds: FloatArray,
    table: LongArray,
    message: LongArray,
    steps: LongArray,
    keep: LongArray,
    k: int,
    filled: FloatArray,
    messages: FloatArray,
    floor: float,
    stop: LongArray,
) -> tuple[int, LongArray, LongArray, FloatArray]:
    """All assignments with one variable more whose bound is above the floor, the best one of each context.

    ``known`` has a row for each assignment: the values that are remembered. The others are those of :class:`Step`, for
    a variable of ``k`` values. Returned are their number and for each the row it came from, its value and its bound.
    """
    n, width = known.shape
    clusters = table.size
    room = 1024
    origin, value = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    found = np.empty(room)
    size = 2 * room
    slots = np.full(size, -1, dtype=np.int64)
    count = 0
    place = np.empty(clusters, dtype=np.int64)
    for r in range(n):
        if stop[0] != 0:
            break
        base = bounds[r]
        for c in range(clusters):
            at = 0
            for j in range(width):
                at += steps[c, j] * known[r, j]
            place[c] = table[c] + at * k
            base -= messages[message[c] + at]
        for x in range(k):
            total = base
            for c in range(clusters):
                total += filled[place[c] + x]
            if not total > floor:
                continue
            h = np.uint64(1469598103934665603)
            for j in range(keep.size):
                y = x if keep[j] == width else known[r, keep[j]]
                h = (h ^ np.uint64(y + 1)) * np.uint64(1099511628211)
            h ^= h >> np.uint64(29)
            slot = np.int64(h & np.uint64(size - 1))
            while slots[slot] >= 0:
                other = slots[slot]
                same = True
                for j in range(keep.size):
                    y = x if keep[j] == width else known[r, keep[j]]
                    z = value[other] if keep[j] == width else known[origin[other], keep[j]]
                    if y != z:
                        same = False
                        break
                if same:
                    break
                slot = (slot + 1) & (size - 1)
            if slots[slot] >= 0:
                other = slots[slot]
                if total > found[other]:
                    origin[other], value[other], found[other] = r, x, total
                continue
            if count == room:
                room *= 2
                size = 2 * room
                longer = np.empty(room, dtype=np.int64)
                longer[:count] = origin
                origin = longer
                longer = np.empty(room, dtype=np.int64)
                longer[:count] = value
                value = longer
                wider = np.empty(room)
                wider[:count] = found
                found = wider
                slots = np.full(size, -1, dtype=np.int64)
                for i in range(count):
                    g = np.uint64(1469598103934665603)
                    for j in range(keep.size):
                        y = value[i] if keep[j] == width else known[origin[i], keep[j]]
                        g = (g ^ np.uint64(y + 1)) * np.uint64(1099511628211)
                    g ^= g >> np.uint64(29)
                    free = np.int64(g & np.uint64(size - 1))
                    while slots[free] >= 0:
                        free = (free + 1) & (size - 1)
                    slots[free] = i
                slot = np.int64(h & np.uint64(size - 1))
                while slots[slot] >= 0:
                    slot = (slot + 1) & (size - 1)
            slots[slot] = count
            origin[count], value[count], found[count] = r, x, total
            count += 1
    return count, origin, value, found
