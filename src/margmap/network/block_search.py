"""Local search by blocks: some query variables at a time get their best values together, all others as they are.

A block is a query variable and those near it, as many as can be eliminated exactly: with the rest of the query fixed,
the hidden variables that hang together with the block are summed out and the block's own are maximised, hidden ones
first, in tables of at most ``limit`` entries. That leaves optima which no change of one variable leaves. Blocks grow
while they stay cheap and shrink where they do not. (Large neighbourhood search; for marginal MAP with exact elimination
inside. A block of one variable is a step of :mod:`margmap.network.local_search`.)
"""

from __future__ import annotations

import math

import numpy as np

from margmap.circuit import LongArray
from margmap.network.log_model import LogFactor, LogModel
from margmap.network.mini_bucket import MiniBuckets, decode, partition
from margmap.network.order import find_order
from margmap.network.scoring import GO_ON

#: Tables of a block have at most this many entries.
BLOCK_ENTRIES = 1 << 15

# Variables in the first blocks, and at most.
_FIRST_SIZE, _MOST_SIZE = 8, 256

# A gain under this, in nats, may be rounding.
_GAIN = 1e-9


class BlockSearch:
    """The neighbourhoods of a model."""

    def __init__(self, model: LogModel, limit: int = BLOCK_ENTRIES) -> None:
        self.model, self.limit = model, limit
        self.using: list[list[int]] = [[] for _ in model.cardinality]
        for number, factor in enumerate(model.factors):
            for v in factor.scope:
                self.using[v].append(number)
        self.size = _FIRST_SIZE
        self.asked = [v for v in sorted(model.query) if self.using[v] and model.cardinality[v] > 1]

    def search(self, state: LongArray, stop: LongArray, *, blocks: int, seed: int = 0) -> LongArray:
        """The state with so many blocks re-optimised one after the other; fewer if ``stop`` is set meanwhile."""
        rng = np.random.default_rng(seed)
        state = state.copy()
        for _ in range(blocks if len(self.asked) > 1 else 0):
            if stop[0] != 0:
                break
            center = self.asked[int(rng.integers(len(self.asked)))]
            best = self.best_of_block(state, self.block(center, rng))
            if best is None:
                self.size = max(2, self.size // 2)
            else:
                self.size = min(_MOST_SIZE, self.size + 1)
                for v, x in best.items():
                    state[v] = x
        return state

    def block(self, center: int, rng: np.random.Generator) -> list[int]:
        """A query variable and those that are reached from it first, in random order where that is open."""
        model = self.model
        found, seen, waiting = [center], {center}, [center]
        while waiting and len(found) < self.size:
            v = waiting.pop(0)
            numbers = self.using[v]
            for i in rng.permutation(len(numbers)):
                for u in model.factors[numbers[i]].scope:
                    if u in seen:
                        continue
                    seen.add(u)
                    waiting.append(u)
                    if u in model.query and len(found) < self.size:
                        found.append(u)
        return found

    def best_of_block(self, state: LongArray, block: list[int]) -> dict[int, int] | None:
        """The best values of a block with the rest of the query at ``state``; None if that takes too large tables."""
        part = self._part(state, set(block))
        used = sorted({v for factor in part.factors for v in factor.scope})
        if not used:
            return {}
        place = {v: i for i, v in enumerate(used)}
        scopes = [[place[v] for v in factor.scope] for factor in part.factors]
        hidden = part.hidden
        last = [place[v] for v in used if v in part.query] if hidden else []
        found = find_order([part.cardinality[v] for v in used], scopes, last, tries=0, seconds=0.0)
        if found.log_largest > math.log(self.limit) + 1e-9:
            return None
        buckets = MiniBuckets(part, partition(part, [used[i] for i in found.variables], 2 * self.limit))
        bound = buckets.bound(GO_ON)
        if not buckets.exact:
            return None
        best = decode(part, buckets.parts, bound.filled)
        return {v: int(best[v]) for v in block if v in place}

    def _part(self, state: LongArray, block: set[int]) -> LogModel:
        """The tables that a block has to do with, directly or through hidden variables, the other values put in."""
        model = self.model
        numbers: set[int] = set()
        waiting, seen = list(block), set(block)
        while waiting:
            for number in self.using[waiting.pop()]:
                if number in numbers:
                    continue
                numbers.add(number)
                for u in model.factors[number].scope:
                    if u not in model.query and u not in seen:
                        seen.add(u)
                        waiting.append(u)
        factors = []
        for number in sorted(numbers):
            scope, table = model.factors[number]
            known = tuple(slice(None) if v in seen else int(state[v]) for v in scope)
            left = tuple(v for v in scope if v in seen)
            if left:
                factors.append(LogFactor(left, np.ascontiguousarray(table[known])))
        return LogModel(model.cardinality, model.query, tuple(factors), 0.0, 0.0)
