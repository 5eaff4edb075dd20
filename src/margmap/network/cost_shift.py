"""Cost shifting between tables that share a variable, one variable after the other: a bound within a few sweeps.

Every table is bounded alone, by the maximum over its query variables of the power sum over its hidden ones; the sum of
these bounds is a bound on all states. Logs over one variable can be moved from one table to another, or to a table of
that variable alone, without changing the sum of the tables, but not without changing the bound. A sweep goes through
the variables in an order. At a variable v it takes from each table its max-marginal over v, adds them up, and hands the
sum out again in equal shares to the tables that come later in the order, which is sequential tree-reweighted message
passing (TRW-S: Kolmogorov, "Convergent tree-reweighted message passing for energy minimization", PAMI 2006) and for
larger tables its generalisation (SRMP: Kolmogorov, "A new look at reweighted message passing", PAMI 2015). The next
sweep goes back. A hidden variable has a Hoelder weight in each of its tables, all equal, and the sum is handed out to
all of them by weight.

It needs no more than two looks at each entry in a sweep, where :mod:`margmap.network.mini_bucket` needs exponentials
for smooth bounds: with thousands of tables over variables of many values this comes first, removes most values, and
leaves tables to the mini-buckets whose costs are in the right place.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import EPS
from margmap.network.log_model import LogFactor, LogModel, aligned, largest_finite
from margmap.network.partial_sum import absorbed


class Tables(NamedTuple):
    """The tables of two and more variables in flat arrays. An axis of a table is a *slot*."""

    data: FloatArray
    #: Table f begins at ``at[f]`` and has the slots ``slot_at[f]`` to ``slot_at[f + 1]``.
    at: LongArray
    slot_at: LongArray
    #: Of each slot: its variable, how many values that has, and where the logs moved to it begin.
    variable: LongArray
    length: LongArray
    moved_at: LongArray
    #: The slots of variable v are ``of[of_at[v]]`` to ``of[of_at[v + 1] - 1]``; ``table`` is the table of a slot.
    of_at: LongArray
    of: LongArray
    table: LongArray
    #: The Hoelder weight of a hidden variable's slots; 0 for a query variable.
    weight: FloatArray
    #: The variables' own tables: v begins at ``own_at[v]``.
    own: FloatArray
    own_at: LongArray
    #: Of each slot, the share of the sum that a sweep forward or back hands to it.
    share: FloatArray


class CostShift:
    """A model, the logs that were moved so far, and the bound that follows from them."""

    def __init__(self, model: LogModel) -> None:
        self.model = model
        self.larger = [factor for factor in model.factors if len(factor.scope) > 1]
        self.tables = _tables(model, self.larger)
        self.moved = np.zeros(int(self.tables.moved_at[-1]))

    def sweep(self, rounds: int, stop: LongArray) -> None:
        """So many sweeps forward and back; fewer if ``stop`` is set meanwhile."""
        for _ in range(rounds):
            for forward in (True, False):
                if stop[0] != 0:
                    return
                _sweep(self.tables, self.moved, forward, stop)

    def settled(self) -> tuple[FloatArray, float]:
        """What is left to the variables' own tables, and a bound on the rounding.

        A hidden variable has nothing left: what was not moved is put into its last slot.
        """
        tables = self.tables
        own = tables.own.copy()
        lost = _settle(tables, self.moved, own)
        return own, lost * EPS

    def bounds(self) -> tuple[float, dict[int, FloatArray], float]:
        """An upper bound on all states; on those with a value of a query variable, for each; and the rounding in both.

        The tables are bounded one by one, so what each of them loses under a value adds up.
        """
        own, lost = self.settled()
        tables, model = self.tables, self.model
        under = np.zeros_like(own)
        tops, further = _bounds(tables, self.moved, under)
        found: dict[int, FloatArray] = {}
        terms = [model.log_constant, *tops.tolist()]
        for v in model.hidden:
            if tables.of_at[v] == tables.of_at[v + 1]:  # in no other table
                terms.append(float(np.logaddexp.reduce(own[tables.own_at[v] : tables.own_at[v + 1]])))
                further += (model.cardinality[v] + 8) * (1 + abs(terms[-1]))
        for v in model.query:
            single = own[tables.own_at[v] : tables.own_at[v + 1]]
            terms.append(float(single.max()))
            found[v] = single + under[tables.own_at[v] : tables.own_at[v + 1]]
            if terms[-1] > -np.inf:
                found[v] -= terms[-1]
        if -np.inf in terms:  # no state is possible
            return -np.inf, {v: np.full(values.size, -np.inf) for v, values in found.items()}, 0.0
        total = math.fsum(terms)
        rounding = model.rounding + lost + EPS * (further + abs(total))
        log_upper = total + rounding
        return log_upper, {v: values + log_upper + rounding for v, values in found.items()}, rounding

    def state(self) -> LongArray:
        """A state: each variable, in order, by the values of those before it and the max-marginals of the others.

        That is what the costs are ready for after a sweep back.
        """
        return _decode(self.tables, self.moved)

    def shifted(self) -> LogModel:
        """The same model with the costs where they have been moved to."""
        own, lost = self.settled()
        tables = self.tables
        factors = []
        for f, factor in enumerate(self.larger):
            table = factor.table.copy()
            for axis, v in enumerate(factor.scope):
                slot = int(tables.slot_at[f]) + axis
                moved = self.moved[tables.moved_at[slot] : tables.moved_at[slot + 1]]
                table += aligned(LogFactor((v,), moved), {v: axis}, table.ndim)
                lost += EPS * (largest_finite(table.reshape(-1)) + largest_finite(moved))
            factors.append(LogFactor(factor.scope, table))
        for v, _ in enumerate(self.model.cardinality):
            single = own[tables.own_at[v] : tables.own_at[v + 1]]
            if np.any(single != 0):
                factors.append(LogFactor((v,), single))
        kept, further = absorbed(factors)
        model = self.model
        return LogModel(model.cardinality, model.query, kept, model.log_constant, model.rounding + lost + further)


def _tables(model: LogModel, factors: list[LogFactor]) -> Tables:
    """The flat arrays. A variable in one table only hands nothing on: its own table is part of that one's bound."""
    count = len(model.cardinality)
    slots = [(f, v) for f, factor in enumerate(factors) for v in factor.scope]
    of: list[list[int]] = [[] for _ in range(count)]
    for slot, (_, v) in enumerate(slots):
        of[v].append(slot)
    own_at = _offsets(model.cardinality)
    own = np.zeros(int(own_at[-1]))
    for factor in model.factors:
        if len(factor.scope) == 1:
            own[own_at[factor.scope[0]] : own_at[factor.scope[0] + 1]] += factor.table
    share, weight = np.zeros((2, len(slots))), np.zeros(len(slots))
    for v in range(count):
        later = [slot for slot in of[v] if v < max(factors[slots[slot][0]].scope)]
        earlier = [slot for slot in of[v] if v > min(factors[slots[slot][0]].scope)]
        if v in model.query:
            for way, some in enumerate((later, earlier)):
                share[way, some] = 1 / max(len(later), len(earlier), 1)
        else:
            share[:, of[v]] = 1 / max(len(of[v]), 1)
            weight[of[v]] = 1 / max(len(of[v]), 1)
    variable = _long([v for _, v in slots])
    length = _long([model.cardinality[v] for _, v in slots])
    return Tables(
        np.concatenate([factor.table.reshape(-1) for factor in factors] or [np.zeros(0)]),
        _offsets([factor.table.size for factor in factors]),
        _offsets([len(factor.scope) for factor in factors]),
        variable,
        length,
        _offsets(length.tolist()),
        _offsets([len(some) for some in of]),
        _long([slot for some in of for slot in some]),
        _long([f for f, _ in slots]),
        weight,
        own,
        own_at,
        share,
    )


def _long(values: list[int]) -> LongArray:
    return np.array(values, dtype=np.int64)


def _offsets(sizes: list[int] | tuple[int, ...]) -> LongArray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


@kernel
def _max_marginal(tables: Tables, moved: FloatArray, f: int, target: int, out: FloatArray) -> None:
    """The maximum of table f with what was moved to its other slots, for each value of slot ``target``."""
    first = tables.slot_at[f]
    axes = tables.slot_at[f + 1] - first
    last = first + axes - 1
    k = tables.length[last]
    begin = tables.at[f]
    rows = (tables.at[f + 1] - begin) // k
    index = np.zeros(axes, dtype=np.int64)
    ends = moved[tables.moved_at[last] : tables.moved_at[last + 1]]
    out[:] = -np.inf
    for r in range(rows):
        base = 0.0
        for a in range(axes - 1):
            if first + a != target:
                base += moved[tables.moved_at[first + a] + index[a]]
        row = tables.data[begin + r * k : begin + r * k + k]
        if base == -np.inf:
            pass
        elif target == last:
            for x in range(k):
                value = row[x] + base
                out[x] = value if value > out[x] else out[x]
        else:
            # Four maxima at a time do not wait for each other.
            m0 = m1 = m2 = m3 = -np.inf
            x = 0
            while x + 4 <= k:
                y0, y1 = row[x] + ends[x], row[x + 1] + ends[x + 1]
                y2, y3 = row[x + 2] + ends[x + 2], row[x + 3] + ends[x + 3]
                m0 = y0 if y0 > m0 else m0
                m1 = y1 if y1 > m1 else m1
                m2 = y2 if y2 > m2 else m2
                m3 = y3 if y3 > m3 else m3
                x += 4
            while x < k:
                m0 = max(m0, row[x] + ends[x])
                x += 1
            top = max(max(m0, m1), max(m2, m3)) + base
            at = index[target - first]
            out[at] = max(out[at], top)
        a = axes - 2
        while a >= 0:
            index[a] += 1
            if index[a] < tables.length[first + a]:
                break
            index[a] = 0
            a -= 1


@kernel
def _reduced(
    tables: Tables, moved: FloatArray, f: int, target: int, out: FloatArray, room: FloatArray, lengths: LongArray
) -> None:
    """The same with hidden variables among the others: power sums over those, then the maximum over the query.

    ``room`` is as large as the table, ``lengths`` has an entry for each axis. Without a target (-1) everything is taken
    in, and ``out`` has one entry.
    """
    first = tables.slot_at[f]
    axes = tables.slot_at[f + 1] - first
    size = tables.at[f + 1] - tables.at[f]
    for i in range(size):
        room[i] = tables.data[tables.at[f] + i]
    inner = size
    for a in range(axes):
        k = tables.length[first + a]
        lengths[a] = k
        inner //= k
        if first + a != target:
            for o in range(size // (k * inner)):
                for x in range(k):
                    change = moved[tables.moved_at[first + a] + x]
                    begin = (o * k + x) * inner
                    for i in range(begin, begin + inner):
                        room[i] += change
    for hidden_first in (True, False):
        for a in range(axes):
            slot = first + a
            weight = tables.weight[slot]
            if slot == target or (weight > 0) != hidden_first:
                continue
            k = lengths[a]
            inner = 1
            for b in range(a + 1, axes):
                inner *= lengths[b]
            outer = size // (k * inner)
            for o in range(outer):
                for i in range(inner):
                    begin = o * k * inner + i
                    top = room[begin]
                    for x in range(1, k):
                        top = max(top, room[begin + x * inner])
                    if weight > 0 and top > -np.inf:
                        total = 0.0
                        for x in range(k):
                            total += np.exp((room[begin + x * inner] - top) / weight)
                        top += weight * np.log(total)
                    room[o * inner + i] = top
            size = outer * inner
            lengths[a] = 1
    for x in range(size):
        out[x] = room[x]


@kernel
def _summed(tables: Tables, f: int, target: int) -> bool:
    """Whether a table has a hidden variable other than that of slot ``target``."""
    count = 0
    for slot in range(tables.slot_at[f], tables.slot_at[f + 1]):
        count += slot != target and tables.weight[slot] > 0
    return count > 0


@kernel
def _largest(tables: Tables) -> tuple[int, int, int]:
    """The largest number of entries of a table, of its axes, and of slots of a variable times its values."""
    entries, axes, marginals = 1, 1, 1
    for f in range(tables.at.size - 1):
        entries = max(entries, tables.at[f + 1] - tables.at[f])
        axes = max(axes, tables.slot_at[f + 1] - tables.slot_at[f])
    for v in range(tables.of_at.size - 1):
        k = tables.own_at[v + 1] - tables.own_at[v]
        marginals = max(marginals, (tables.of_at[v + 1] - tables.of_at[v]) * k)
    return entries, axes, marginals


@kernel
def _marginal(
    tables: Tables, moved: FloatArray, slot: int, out: FloatArray, room: FloatArray, lengths: LongArray
) -> None:
    f = tables.table[slot]
    if _summed(tables, f, slot):
        _reduced(tables, moved, f, slot, out, room, lengths)
    else:
        _max_marginal(tables, moved, f, slot, out)


@kernel
def _sweep(tables: Tables, moved: FloatArray, forward: bool, stop: LongArray) -> None:
    """Go through the variables once, first to last or back, and hand out the sum of the marginals of each."""
    entries, axes, most = _largest(tables)
    room, lengths, marginals = np.empty(entries), np.empty(axes, dtype=np.int64), np.empty(most)
    count = tables.of_at.size - 1
    way = 0 if forward else 1
    for i in range(count):
        if stop[0] != 0:
            return
        v = i if forward else count - 1 - i
        first, slots = tables.of_at[v], tables.of_at[v + 1] - tables.of_at[v]
        k = tables.own_at[v + 1] - tables.own_at[v]
        total = tables.own[tables.own_at[v] : tables.own_at[v + 1]].copy()
        for j in range(slots):
            out = marginals[j * k : (j + 1) * k]
            _marginal(tables, moved, tables.of[first + j], out, room, lengths)
            for x in range(k):
                total[x] += out[x]
        for j in range(slots):
            slot = tables.of[first + j]
            for x in range(k):
                # A value that is impossible in one table is so in all.
                value = -np.inf
                if total[x] > -np.inf:
                    value = tables.share[way, slot] * total[x] - marginals[j * k + x]
                moved[tables.moved_at[slot] + x] = value


@kernel
def _settle(tables: Tables, moved: FloatArray, own: FloatArray) -> float:
    """Take from the variables' own tables what was moved; a bound on the rounding, in units."""
    lost = 0.0
    for v in range(tables.of_at.size - 1):
        first, end = tables.of_at[v], tables.of_at[v + 1]
        begin = tables.own_at[v]
        k = tables.own_at[v + 1] - begin
        if end == first:
            continue
        hidden = tables.weight[tables.of[first]] > 0
        largest = 0.0
        for x in range(k):
            rest = own[begin + x]
            size = abs(rest) if rest > -np.inf else 0.0
            dead = rest == -np.inf
            for j in range(first, end):
                value = moved[tables.moved_at[tables.of[j]] + x]
                if value == -np.inf:
                    dead = True
                else:
                    rest -= value
                    size += abs(value)
            if dead:
                rest = -np.inf
            if hidden:
                moved[tables.moved_at[tables.of[end - 1]] + x] += rest
                rest = 0.0
            own[begin + x] = rest
            largest = max(largest, size)
        lost += (end - first + 2) * largest
    return lost


@kernel
def _bounds(tables: Tables, moved: FloatArray, under: FloatArray) -> tuple[FloatArray, float]:
    """The bound of each table, what its marginals lack to it for each value of its query variables, the rounding."""
    entries, axes, most = _largest(tables)
    room, lengths, out = np.empty(entries), np.empty(axes, dtype=np.int64), np.empty(most)
    tops = np.empty(tables.at.size - 1)
    lost = 0.0
    for f in range(tables.at.size - 1):
        size, steps = 0.0, 8.0
        for i in range(tables.at[f], tables.at[f + 1]):
            if tables.data[i] > -np.inf:
                size = max(size, abs(tables.data[i]))
        top = -np.inf
        asked = False
        for slot in range(tables.slot_at[f], tables.slot_at[f + 1]):
            k = tables.length[slot]
            begin = tables.moved_at[slot]
            most_moved = 0.0
            for x in range(k):
                if moved[begin + x] > -np.inf:
                    most_moved = max(most_moved, abs(moved[begin + x]))
            size += most_moved
            steps += 2.0
            if tables.weight[slot] > 0:
                steps += k + 8.0
                size += np.log(k)
                continue
            _marginal(tables, moved, slot, out[:k], room, lengths)
            best = -np.inf
            for x in range(k):
                out[x] += moved[begin + x]
                best = max(best, out[x])
            top = best if not asked else min(top, best)
            asked = True
            own = tables.own_at[tables.variable[slot]]
            for x in range(k):
                under[own + x] += out[x] - best if out[x] > -np.inf else -np.inf
        if not asked:
            _reduced(tables, moved, f, -1, out, room, lengths)
            top = out[0]
        tops[f] = top
        lost += steps * (size + 1.0)
    return tops, lost


@kernel
def _decode(tables: Tables, moved: FloatArray) -> LongArray:
    """The best value of each variable in turn, the tables of those before it at their values."""
    entries, axes, most = _largest(tables)
    room, lengths, out = np.empty(entries), np.empty(axes, dtype=np.int64), np.empty(most)
    count = tables.of_at.size - 1
    state: NDArray[np.int64] = np.zeros(count, dtype=np.int64)
    for v in range(count):
        k = tables.own_at[v + 1] - tables.own_at[v]
        total = tables.own[tables.own_at[v] : tables.own_at[v + 1]].copy()
        for j in range(tables.of_at[v], tables.of_at[v + 1]):
            slot = tables.of[j]
            f = tables.table[slot]
            place, step, before = tables.at[f], 1, True
            own_step = 1
            for other in range(tables.slot_at[f + 1] - 1, tables.slot_at[f] - 1, -1):
                u = tables.variable[other]
                if other == slot:
                    own_step = step
                elif u < v:
                    place += state[u] * step
                else:
                    before = False
                step *= tables.length[other]
            if before:
                for x in range(k):
                    total[x] += tables.data[place + x * own_step]
            else:
                _marginal(tables, moved, slot, out[:k], room, lengths)
                for x in range(k):
                    total[x] += out[x]
        best = 0
        for x in range(1, k):
            if total[x] > total[best]:
                best = x
        state[v] = best
    return state
