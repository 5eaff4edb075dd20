"""What of a network a query can feel: barren variables, impossible values, tables that fall apart.

All of it is done before any table is multiplied, so that the elimination order already profits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from margmap.circuit import FloatArray, LongArray
from margmap.errors import ImpossibleEvidenceError, StructureError
from margmap.foundation.pairs import EPS
from margmap.network.network import Factor, Network

# A table over this many entries is not examined for falling apart.
_LARGE = 1 << 16

#: Two tables that differ by this much, relatively, in every entry are the same but for rounding.
ROUNDING = 4e-15

# Quotients under this begin to lose digits.
_SMALLEST = 2.0**-1000


class NoStateError(StructureError, ImpossibleEvidenceError):
    """The tables of a network rule every state out, whatever is observed: no evidence is possible."""


def ancestors(network: Network, columns: Iterable[int]) -> set[int]:
    """The columns themselves and everything above them in a Bayesian network."""
    found: set[int] = set()
    todo = list(columns)
    while todo:
        column = todo.pop()
        if column not in found:
            found.add(column)
            todo.extend(network.factors[column].scope[:-1])
    return found


def barren(network: Network, query: Iterable[int], observed: Iterable[int]) -> set[int]:
    """Variables whose sum is 1 whatever the others are: neither asked nor seen, nor above one that is."""
    if network.kind != "bayes":
        return set()
    return set(range(len(network.variables))) - ancestors(network, [*query, *observed])


def separated(network: Network, query: Iterable[int], observed: Collection[int]) -> set[int]:
    """Variables that are d-separated from the query by the observed ones; their sum is one number.

    The test is on the moral graph of the ancestors: what no path reaches that avoids the observed variables.
    """
    query = list(query)
    gone = barren(network, query, observed)
    around: dict[int, set[int]] = {}
    for number, factor in enumerate(network.factors):
        if network.kind == "bayes" and number in gone:
            continue
        for v in factor.scope:
            around.setdefault(v, set()).update(factor.scope)
    reached: set[int] = set()
    todo = query
    while todo:
        v = todo.pop()
        if v not in reached and v not in observed:
            reached.add(v)
            todo.extend(around.get(v, ()))
    return set(range(len(network.variables))) - reached - gone - set(observed)


class Problem:
    """The factors that are left for a query, over the values that are still possible."""

    def __init__(
        self,
        network: Network,
        query: Sequence[int] | None,
        observed: Mapping[int, int],
        allowed: Mapping[int, LongArray] | None = None,
    ) -> None:
        """``allowed`` has the values that some columns may still take; it is no evidence, but fewer states."""
        #: Whether anything is observed, so that the probability of it all can be less than 1.
        self.network, self.observed = network, bool(observed)
        #: For each column the numbers of its possible values, in order.
        self.values: list[LongArray] = [np.arange(v.cardinality) for v in network.variables]
        for column, codes in (allowed or {}).items():
            self.values[column] = np.asarray(codes, dtype=np.int64)
        for column, code in observed.items():
            self.values[column] = np.array([code])
        #: Columns that are not there any more, because nothing depends on them.
        self.barren = set() if query is None else barren(network, query, observed)
        factors = [
            factor
            for number, factor in enumerate(network.factors)
            if not (network.kind == "bayes" and number in self.barren)
        ]
        self._restrict(factors)
        #: How far, relatively, any product of the factors and constants can be from that of the network's tables.
        self.rounding = 0.0
        constants: list[float] = []
        #: Factors over columns with at least two values; tables hold the possible values only.
        self.factors: list[Factor] = []
        for scope, table in factors:
            sizes = tuple([self.values[v].size for v in scope])
            if sizes != table.shape:
                table = table[np.ix_(*(self.values[v] for v in scope))]
            if 1 in sizes:
                scope = tuple([v for v, n in zip(scope, sizes, strict=True) if n > 1])
                table = table.reshape([n for n in sizes if n > 1])
            flat = table.reshape(-1)
            highest, lowest = int(flat.argmax()), int(flat.argmin())
            top, least = flat.item(highest), flat.item(lowest)
            # Logs near 0 keep more digits. A conditional table has them; of another one the largest entry is taken out,
            # unless its smallest one would then have digits that a double has no room for.
            if network.kind == "markov" and top > 0 and (least or table[table > 0].min()) / top > _SMALLEST:
                table = table / top
                constants.append(math.log(top))
            self.rounding += 4 * EPS * (1 + abs(math.log(top)) if top > 0 else 1)
            if _stays_whole(flat, table.shape, highest, lowest):
                self.factors.append(Factor(scope, table))
            else:
                self._keep(scope, table, constants)
        #: log of the product of all constants.
        self.log_constant = math.fsum(constants)
        #: Columns with one possible value left, observed or not.
        self.fixed = {
            column: int(values[0])
            for column, values in enumerate(self.values)
            if values.size == 1 and column not in self.barren
        }
        #: Columns to eliminate.
        self.open = [
            column for column, values in enumerate(self.values) if values.size > 1 and column not in self.barren
        ]

    def _restrict(self, factors: Sequence[Factor]) -> None:
        """Take out values that some table rules out, until no table rules out any more."""
        using: dict[int, list[int]] = {}
        for number, factor in enumerate(factors):
            for v in factor.scope:
                using.setdefault(v, []).append(number)
        zeros = {number for number, factor in enumerate(factors) if not factor.table.min() > 0}
        waiting = set(zeros)
        while waiting:
            number = waiting.pop()
            scope, table = factors[number]
            possible = table[np.ix_(*(self.values[v] for v in scope))] > 0
            for axis, v in enumerate(scope):
                left = possible.any(axis=tuple(a for a in range(len(scope)) if a != axis))
                if not left.all():
                    self.values[v] = self.values[v][left]
                    waiting.update(other for other in using[v] if other in zeros and other != number)
                    if self.values[v].size == 0:
                        raise self.impossible()
            if not scope and not possible.any():
                raise self.impossible()

    def _keep(self, scope: tuple[int, ...], table: FloatArray, constants: list[float]) -> None:
        """Add a factor, taken apart where it is a product of one over some variable and one over the others."""
        if not scope:
            if table.flat[0] <= 0:
                raise self.impossible()
            constants.append(math.log(table.flat[0]))
            return
        if table.size <= _LARGE:
            for axis in range(len(scope)):
                others = (*range(axis), *range(axis + 1, table.ndim))
                rows = table.transpose((axis, *others)).reshape(table.shape[axis], -1)
                top = int(np.argmax(rows))
                at, cell = divmod(top, rows.shape[1])
                share = rows[:, cell] / rows[at, cell]
                if len(scope) == 1:
                    if (share == 1).all():
                        self._keep((), np.array(rows[at, cell]), constants)
                        return
                    break
                product = share[:, None] * rows[at][None, :]
                possible = (share[:, None] > 0) & (rows[at] > 0)
                # Near the smallest doubles products have few digits, or none: such a table stays whole.
                exact = np.array_equal(rows > 0, possible) and product[possible].min(initial=1.0) > _SMALLEST
                if exact and bool((np.abs(rows - product) <= ROUNDING * product).all()):
                    self.rounding += 2 * ROUNDING
                    rest = scope[:axis] + scope[axis + 1 :]
                    self._keep((scope[axis],), share, constants)
                    shape = table.shape[:axis] + table.shape[axis + 1 :]
                    self._keep(rest, rows[at].reshape(shape), constants)
                    return
        self.factors.append(Factor(scope, table))

    def impossible(self) -> Exception:
        """The error for a problem without any possible state."""
        if not self.observed:
            return NoStateError("the network gives every state probability 0")
        return ImpossibleEvidenceError("the evidence has probability 0: no state of the query is possible under it")


def _stays_whole(table: FloatArray, shape: Sequence[int], highest: int, lowest: int) -> bool:
    """Whether for each variable one of some entries tells that a table is no product of one over it and another.

    That is soon found out. ``table`` is flat; where its largest and its smallest entry are is known.
    """
    size, top = table.size, table.item(highest)
    if len(shape) < 2 or top <= 0 or size > _LARGE:
        return len(shape) > 1 and top > 0
    some = (lowest, *range(0, size, max(1, size // 7)), size - 1)
    step = size
    for k in shape:
        step //= k
        here = highest // step % k
        for i in some:
            x = i // step % k
            product = table.item(highest + (x - here) * step) / top * table.item(i + (here - x) * step)
            if abs(table.item(i) - product) > ROUNDING * product:
                break
        else:
            return False
    return True
