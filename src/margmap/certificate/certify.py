"""The writer of certificates: one more sweep with the checker's own numbers, after a solver has found the state.

The checker is the authority: the writer asks it for the candidates of each block, keeps what has to be covered and
writes down the smallest bound that all it dropped is under.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from margmap.certificate.blocks import (
    JOIN,
    Candidates,
    Cover,
    Refused,
    TooMuchWork,
    Work,
    blocks_of,
    covering,
    magnitude,
    rescaled,
    tree_of,
    walk,
)
from margmap.certificate.file import Certificate
from margmap.certificate.intervals import MOST_LOG, UNIT, Pair, less, log_of, times
from margmap.certificate.upper_circuit import Upper
from margmap.certificate.verify import checked_count, checked_query, room_for, threshold_of
from margmap.circuit import INDICATOR, PRODUCT, FloatArray, Name
from margmap.circuit.model import as_circuit
from margmap.circuit.observation import Observation
from margmap.errors import LimitError, QueryError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import TOLERANCE
from margmap.solve.marginal_map import marginal_map
from margmap.solve.question import check_limits
from margmap.solve.result import Result

#: Vectors of one block; surplus ones are merged into their maximum, which makes the bound weaker.
MOST_VECTORS = 1 << 12

#: Steps (numbers read, multiplied or compared) that a proof may take; one that takes more is not written.
MOST_WORK = 2 * 10**10

# Vectors worked out in one go, best first.
AT_ONCE = 1 << 12


def certify(
    circuit: object,
    query: Sequence[Name] | None = None,
    evidence: Mapping[Any, Observation] | None = None,
    *,
    result: Result | None = None,
    gap: float = TOLERANCE,
    max_vectors: int = MOST_VECTORS,
    max_work: int = MOST_WORK,
) -> Certificate:
    """A proof that the best state of ``query`` given ``evidence`` is the best, for :func:`margmap.verify` to check.

    ``result`` is what :func:`margmap.marginal_map` answered to the same question, if that is known. The proof is of a
    bound at most ``gap`` nats above the state. If that takes blocks of more than ``max_vectors`` vectors, or more than
    ``max_work`` steps, a LimitError says so.
    """
    circuit = as_circuit(circuit, "a certificate is about")
    work, max_vectors = Work(checked_count("max_work", max_work)), max(1, checked_count("max_vectors", max_vectors))
    check_limits(gap=gap)
    if result is None:
        result = marginal_map(circuit, query, evidence, gap=gap)
    elif not isinstance(result, Result):
        raise QueryError(f"result= is what marginal_map answered, not an object of type {type(result).__name__}")
    if "constraints" in result.details:
        raise QueryError(
            "certificates do not cover constraints or differ_by: the proof would be about all states, of which this "
            "need not be the best"
        )
    if result.state is None:
        raise QueryError("no state to certify: the solver was stopped before it had one")
    gap = min(max(gap, TOLERANCE), MOST_LOG)
    names = list(result.state)
    if query is not None and set(circuit.query_columns(query, ())) != set(map(circuit.own, names)):
        raise QueryError("result= is the answer to another query")
    state = [circuit.variables[circuit.own(name)].code(value) for name, value in result.state.items()]
    known = {circuit.names[column]: value for column, value in circuit.observed(evidence).items()}
    asked = checked_query(circuit, names, known, state)
    upper, log_lower = asked.upper, log_of(asked.low, False)
    tokens: list[int] = []
    covers: list[Cover] = []
    log_upper = log_of(upper.scale, True)
    if upper.kind.size:
        tokens = _tree(upper, len(names))
        writer = _Writer(threshold_of(log_lower + gap / 2, upper), len(tokens), gap, max_vectors, work)
        tree = tree_of(tokens, len(names))
        try:
            blocks, writer.aligned = blocks_of(upper, tree, room_for(upper, 0), work)
            walk(blocks, writer.aligned, tree, asked.cardinality, writer.cover, work)
        except TooMuchWork as error:
            raise LimitError(f"no certificate: {error}") from None
        except Refused as error:
            raise LimitError(f"no certificate: two scopes of the circuit cross, and {error}") from None
        covers = writer.covers
        log_upper = log_of(times(writer.dropped, upper.scale, True), True)
        while less(threshold_of(log_upper, upper), writer.dropped):
            log_upper += (1.0 + abs(log_upper)) * UNIT
    log_upper = max(log_upper, log_lower)
    if not max(abs(log_lower), abs(log_upper)) <= MOST_LOG:
        raise LimitError(f"no certificate: log p(q, e) is beyond {MOST_LOG:g} nats, where nothing can be proven")
    if log_upper - log_lower > gap:
        raise LimitError(
            f"no certificate: what was proven leaves a gap of {log_upper - log_lower:.3g} nats; ask for a larger gap=, "
            f"or allow more than max_vectors={max_vectors}"
        )
    return Certificate(tuple(names), known, tuple(state), log_lower, log_upper, gap, tuple(tokens), tuple(covers))


class _Writer:
    """Makes the cover of one block after the other, and remembers the largest bound of what it dropped."""

    def __init__(self, threshold: Pair, blocks: int, gap: float, max_vectors: int, work: Work) -> None:
        self.threshold, self.max_vectors, self.work = threshold, max_vectors, work
        self.covers = [Cover(0, np.zeros((0, 0)))] * blocks
        self.dropped: Pair = (0.0, 0)
        self.aligned = True
        # Rounding up to d digits costs each block 10^(1 - d), relatively; all together may take an eighth of the gap.
        digits = 1 + math.ceil(math.log10(8 * blocks / min(gap, 1.0)))
        self.digits = digits if digits <= 15 else 0

    def cover(self, b: int, candidates: Candidates) -> Cover:
        """The vectors that the walk goes on with."""
        last = b == len(self.covers) - 1
        found = []
        most = 0.0
        for first, second, bound, dropped in candidates.above(candidates.floor(self.threshold)):
            most = max(most, dropped, float(bound.max(initial=0.0)) if last else 0.0)
            if not last:
                found.append((first, second, bound))
        one = magnitude(most, candidates)
        if less(self.dropped, one):
            self.dropped = one
        if not last:
            at, to, bounds = map(np.concatenate, zip(*found, strict=True))
            order = np.argsort(-bounds, kind="stable")
            if order.size:
                self.covers[b] = self._greedy(candidates, at[order], to[order])
        return self.covers[b]

    def _greedy(self, candidates: Candidates, at: np.ndarray, to: np.ndarray) -> Cover:
        """Best first, what no vector covers yet becomes one."""
        shift = 0
        kept = np.zeros((64, candidates.block.entries))
        surplus = np.zeros(candidates.block.entries)
        count = 0
        for begin in range(0, at.size, AT_ONCE):
            found = candidates.evaluate(at[begin : begin + AT_ONCE], to[begin : begin + AT_ONCE])
            if begin == 0 and self.aligned:
                shift = math.frexp(float(found[0].max()))[1]
            found = rescaled(found, -shift)
            while count + len(found) > len(kept) and len(kept) < self.max_vectors:
                kept = np.concatenate((kept, np.zeros_like(kept)))
            most = min(self.max_vectors, len(kept))
            count, steps = _keep(found, kept, count, most, surplus, self.digits, self.work.remaining)
            self.work.take(steps)
        if surplus.any() and covering(surplus, kept, count, 0, self.work.remaining)[0] < 0:
            kept = np.concatenate((kept[:count], surplus[None, :]))
            count += 1
        return Cover(candidates.exponent + shift, kept[:count].copy())


@kernel
def _keep(
    found: FloatArray, kept: FloatArray, count: int, most: int, surplus: FloatArray, digits: int, left: int
) -> tuple[int, int]:
    """How many vectors are kept now, and how many steps that took; it ends when they are more than ``left``."""
    hint, done = 0, 0
    for r in range(found.shape[0]):
        at, steps = covering(found[r], kept, count, hint, left - done)
        done += steps
        if done > left:
            break
        if at >= 0:
            hint = at
        elif count < most:
            for i in range(found.shape[1]):
                kept[count, i] = _short_above(found[r, i], digits)
            count += 1
        else:
            for i in range(found.shape[1]):
                surplus[i] = max(surplus[i], found[r, i])
    return count, done


@kernel
def _short_above(x: float, digits: int) -> float:
    """A number of few decimal digits that is not less; the number itself where that is hard to have."""
    if digits == 0 or x == 0 or x == 1:
        return x
    places = digits - 1 - math.floor(math.log10(x))
    if not 0 <= places <= 22:
        return x
    scale = 10.0**places
    whole = math.ceil(x * scale)
    short = whole / scale
    return short if short >= x else (whole + 1) / scale


def _tree(upper: Upper, variables: int) -> list[int]:
    """The circuit's own scopes as a binary tree; of scopes that cross, those that more nodes have."""
    masks: list[int] = []
    kind, start, child = upper.kind.tolist(), upper.start.tolist(), upper.child.tolist()
    for n, k in enumerate(kind):
        if k == INDICATOR:
            masks.append(1 << int(upper.var[n]))
        else:
            below = child[start[n] : start[n + 1]] if k == PRODUCT else [child[start[n]]]
            masks.append(reduce(or_, (masks[c] for c in below)))
    return _nested(Counter(masks), variables)


def _nested(number: Mapping[int, int], variables: int) -> list[int]:
    """Postorder of a tree whose inner nodes are scopes that do not cross; parts are joined from left to right."""
    family = {1 << v for v in range(variables)} | {(1 << variables) - 1}
    ordered = sorted((m for m in number if m not in family), key=lambda m: (m.bit_count(), -number[m], m))
    parent_of = list(range(variables))  # the last scope taken that has each variable
    chosen: list[int] = [1 << v for v in range(variables)]
    parts: dict[int, list[int]] = {}
    for mask in [*ordered, (1 << variables) - 1]:
        below: list[int] = []
        rest = mask
        while rest:
            v = (rest & -rest).bit_length() - 1
            top = chosen[parent_of[v]]
            if top & ~mask:
                break  # it crosses a scope taken before
            below.append(parent_of[v])
            rest &= ~top
        if rest or len(below) < 2:
            continue
        parts[len(chosen)] = below
        for v in _variables(mask):
            parent_of[v] = len(chosen)
        chosen.append(mask)
    tokens: list[int] = []
    stack = [parent_of[0]]
    while stack:
        top = stack.pop()
        if top == JOIN or top < variables:
            tokens.append(top)
            continue
        first, *others = parts[top]
        stack += [x for part in reversed(others) for x in (JOIN, part)]
        stack.append(first)
    return tokens


def _variables(mask: int) -> list[int]:
    return [i for i, bit in enumerate(bin(mask)[:1:-1]) if bit == "1"]
