"""Iterated local search over the states of a query, each scored exactly.

Climb: go through the query variables in random order and take the best value of each while that gains anything (what
depends on a variable that changed is looked at again). At the top, shake: give a few neighbouring variables other
values, climb again, and go back if that ended lower. States that have probability 0 are compared by how many of their
terms are 0, so that a search may begin at one. (Park and Darwiche, "Complexity results and approximation strategies
for MAP explanations", JAIR 2004, use such a search with scores by elimination.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, LongArray
from margmap.foundation.jit import kernel
from margmap.network.scoring import Layout, Scorer, accept, evaluate, mark

# A gain under this, in nats, may be rounding.
_GAIN = 1e-9


def local_search(
    scorer: Scorer, state: LongArray, stop: LongArray, *, shakes: int, seed: int = 0
) -> tuple[LongArray, float]:
    """The best state found from ``state`` on with so many shakes, and its score; less if ``stop`` is set meanwhile."""
    value = scorer.score(state, stop)
    if stop[0] != 0:
        return state.copy(), -np.inf
    query = np.array([v for v in sorted(scorer.model.query) if scorer.model.cardinality[v] > 1], dtype=np.int64)
    if query.size == 0:
        return state.copy(), value
    best = _search(
        scorer.plan, scorer.state, query, scorer.dirty, scorer.which, scorer.value, shakes, seed % (1 << 31), stop
    )
    return best, scorer.kept if stop[0] == 0 else -np.inf


@kernel
def _try(
    plan: Layout,
    state: LongArray,
    variable: int,
    dirty: NDArray[np.bool_],
    which: LongArray,
    value: FloatArray,
    stop: LongArray,
) -> bool:
    """Give a variable its best value with all others as they are; whether that is a gain, and was kept."""
    old = state[variable]
    best, fewest, gain = old, 0, _GAIN
    last = old
    for x in range(plan.cardinality[variable]):
        if x == old:
            continue
        state[variable] = x
        mark(plan, variable, dirty)
        impossible, change = evaluate(plan, state, dirty, which, value, stop)
        dirty[:] = False
        if stop[0] != 0:
            state[variable] = old
            return False
        last = x
        if impossible < fewest or (impossible == fewest and change > gain):
            best, fewest, gain = x, impossible, change
    state[variable] = best
    if best == old:
        return False
    mark(plan, variable, dirty)
    if last != best:
        evaluate(plan, state, dirty, which, value, stop)
        if stop[0] != 0:
            state[variable] = old
            dirty[:] = False
            return False
    return True


@kernel
def _climb(
    plan: Layout,
    state: LongArray,
    query: LongArray,
    active: NDArray[np.bool_],
    dirty: NDArray[np.bool_],
    which: LongArray,
    value: FloatArray,
    stop: LongArray,
) -> None:
    """Improve one active variable after the other until none can be."""
    gained = True
    while gained and stop[0] == 0:
        gained = False
        for i in range(query.size - 1, 0, -1):
            j = np.random.randint(0, i + 1)  # noqa: NPY002 - the kernel's own generator
            query[i], query[j] = query[j], query[i]
        for v in query:
            if not active[v]:
                continue
            active[v] = False
            if _try(plan, state, v, dirty, which, value, stop):
                gained = True
                _wake(plan, dirty, active)
                accept(dirty, which)
            if stop[0] != 0:
                return


@kernel
def _wake(plan: Layout, dirty: NDArray[np.bool_], active: NDArray[np.bool_]) -> None:
    """The variables that a dirty bucket mentions are worth another look."""
    for b in range(dirty.size):
        if dirty[b]:
            for p in range(plan.part_at[b], plan.part_at[b + 1]):
                for j in range(plan.known_at[p], plan.known_at[p + 1]):
                    active[plan.known[j]] = True


@kernel
def _total(which: LongArray, value: FloatArray) -> tuple[int, float]:
    impossible, total = 0, 0.0
    for b in range(which.size):
        x = value[which[b], b]
        if x == -np.inf:
            impossible += 1
        else:
            total += x
    return impossible, total


@kernel
def _search(
    plan: Layout,
    state: LongArray,
    query: LongArray,
    dirty: NDArray[np.bool_],
    which: LongArray,
    value: FloatArray,
    shakes: int,
    seed: int,
    stop: LongArray,
) -> LongArray:
    """Climb, then shake and climb again; ``state`` and what is kept end at the best one found."""
    np.random.seed(seed)  # noqa: NPY002
    active = np.zeros(state.size, dtype=np.bool_)
    active[query] = True
    _climb(plan, state, query, active, dirty, which, value, stop)
    best: LongArray = state.copy()
    fewest, highest = _total(which, value)
    for _ in range(shakes):
        if stop[0] != 0:
            return best
        # A variable and some of those that share a bucket with it.
        near = np.zeros(state.size, dtype=np.bool_)
        v = query[np.random.randint(0, query.size)]  # noqa: NPY002
        mark(plan, v, dirty)
        _wake(plan, dirty, near)
        dirty[:] = False
        many = np.random.randint(1, 6)  # noqa: NPY002
        chance = many / (1.0 + np.sum(near))
        for u in range(state.size):
            if u == v or (near[u] and np.random.random() < chance):  # noqa: NPY002
                k = plan.cardinality[u]
                if k > 1:
                    state[u] = (state[u] + np.random.randint(1, k)) % k  # noqa: NPY002
                    mark(plan, u, dirty)
                    active[u] = True
        evaluate(plan, state, dirty, which, value, stop)
        _wake(plan, dirty, active)
        active[v] = False
        accept(dirty, which)
        _climb(plan, state, query, active, dirty, which, value, stop)
        if stop[0] != 0:
            return best
        impossible, total = _total(which, value)
        if impossible < fewest or (impossible == fewest and total >= highest):
            fewest, highest = impossible, total
            best[:] = state
        else:
            for u in query:
                if state[u] != best[u]:
                    state[u] = best[u]
                    mark(plan, u, dirty)
            evaluate(plan, state, dirty, which, value, stop)
            accept(dirty, which)
    return best
