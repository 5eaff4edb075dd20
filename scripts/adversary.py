"""The standing attack: circuits and networks made to break the solvers, against an oracle that shares no code.

    python scripts/adversary.py --count 300000 --seed 1 --jobs 2 --log campaign.jsonl
    python scripts/adversary.py --count 5000 --kinds gauss bulk          # some kinds only
    python scripts/adversary.py --replay 1:4711                          # one case again, by every method
    python scripts/adversary.py --shrink 1:4711                          # the same, made as small as it fails
    python scripts/adversary.py --table campaign.jsonl                   # the tables of docs/reliability.md

A case is a tree description of its own (`Case`), from which the oracle computes log p(q, e) of every query state and
from which a margmap circuit or network is made for the solvers. Each case runs some of the methods in turn, and every
answer is held against the oracle, see `judge`. Exit code 1 if any check failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import margmap as mm
from margmap.errors import ImpossibleEvidenceError, LimitError, MargmapError, StructureError

LD = np.longdouble
LD_EPS, EPS = float(np.finfo(LD).eps), 2.0**-52

# Exact logs are whole multiples of 2^-BITS.
BITS = 200
ONE = 1 << BITS

#: What an answer may miss its promise by: the tolerance of a proof, and what a finished search may add for rounding.
TOLERANCE, ROUNDED = 1e-9, 1e-8

#: Where the logs on a way through a circuit add up to more than this, the circuit may be refused.
BEYOND = 1e299

#: A call that takes longer than this many seconds is a failure too: the cases are small.
SLOW = 60.0

INDICATOR, BERNOULLI, CATEGORICAL, BINOMIAL, GAUSSIAN, PRODUCT, SUM = range(7)
# Leaves of this description only. BULK: many observed Bernoulli variables at once, ((log p, how many), ...). BLOCK:
# many variables with the same log probabilities (how many, log p(0), log p(1), ...), named by their first.
BULK, BLOCK = 7, 8


# ---------------------------------------------------------------------------------------------------- the description


class Leaf(NamedTuple):
    """A distribution over one variable, parameters as a margmap circuit stores them; or a bulk of observed ones."""

    kind: int
    var: int
    params: tuple[Any, ...]


class Product(NamedTuple):
    """A product of nodes, given by number."""

    children: tuple[int, ...]


class Sum(NamedTuple):
    """A sum of nodes with log weights."""

    children: tuple[int, ...]
    weights: tuple[float, ...]


class Table(NamedTuple):
    """A factor of a network: its variables, and its numbers with the last variable fastest."""

    scope: tuple[int, ...]
    numbers: tuple[float, ...]


class Case(NamedTuple):
    """A question about a circuit (``nodes``, the root last) or a network (``tables``)."""

    kind: str
    shape: str
    #: Number of values of each variable: 0 if continuous.
    cards: tuple[int, ...]
    nodes: tuple[Leaf | Product | Sum, ...]
    tables: tuple[Table, ...]
    #: A block stands here as its first variable: a best state has one value all over it, see `oracle`.
    query: tuple[int, ...]
    evidence: dict[int, float]
    #: The sizes of blocks.
    blocks: dict[int, int] = {}  # noqa: RUF012 - a field of a tuple, never written to


# --------------------------------------------------------------------------------------------------------- the oracle


def fixed(x: float) -> int:
    """A double as a whole multiple of 2^-BITS."""
    mantissa, exponent = math.frexp(x)
    whole, shift = int(mantissa * 9007199254740992.0), exponent - 53 + BITS
    return whole << shift if shift >= 0 else whole >> -shift


def fixed_long(x: Any) -> int:
    """A long double as a whole multiple of 2^-BITS."""
    high = float(x)
    return fixed(high) + fixed(float(x - LD(high)))


def double(i: int) -> float:
    """The double next to such a multiple; infinite if it is too large."""
    try:
        return i / ONE
    except OverflowError:
        return math.inf if i > 0 else -math.inf


def long_double(i: int) -> Any:
    """The long double next to such a multiple, of those that a double comes near to."""
    high = double(i)
    if not math.isfinite(high):
        return LD(high)
    return LD(high) + LD(double(i - fixed(high)))


class Truth(NamedTuple):
    """log p(q, e) of every state of the query as exact multiples of 2^-BITS (None: impossible), and their errors."""

    values: dict[tuple[int, ...], int | None]
    #: log p(e).
    total: int | None
    #: No value is further than this from the exact one, in nats.
    error: float
    #: The sum of the sizes of the logs on the worst way through the circuit; doubles can do as well as eps times it.
    size: float
    #: The same for the worst node, also where it cannot be reached.
    largest: float

    @property
    def ranked(self) -> list[tuple[int, tuple[int, ...]]]:
        """Possible states, best first."""
        return sorted(((v, q) for q, v in self.values.items() if v is not None), reverse=True)


def _leaf_log(leaf: Leaf, x: int | tuple[int, ...]) -> int | None:
    """log p of a value of a discrete leaf, exactly (but for the binomial coefficient's logarithm).

    That of a block is how often each value is there, or the one value that all have.
    """
    if leaf.kind == BLOCK:
        size, *logs = leaf.params
        counts = x if isinstance(x, tuple) else [size if x == y else 0 for y in range(len(logs))]
        if any(n and p == -math.inf for n, p in zip(counts, logs, strict=True)):
            return None
        return sum(n * fixed(p) for n, p in zip(counts, logs, strict=True) if n)
    assert isinstance(x, int)
    if leaf.kind == INDICATOR:
        return 0 if x == leaf.params[0] else None
    if leaf.kind == BERNOULLI:
        log = leaf.params[1 - x]
    elif leaf.kind == CATEGORICAL:
        log = leaf.params[x]
    else:
        trials, yes, no = leaf.params
        if (x and yes == -math.inf) or (x < trials and no == -math.inf):
            return None
        ways = fixed_long(np.log(LD(math.comb(int(trials), x))))
        return ways + (x * fixed(yes) if x else 0) + ((int(trials) - x) * fixed(no) if x < trials else 0)
    return None if log == -math.inf else fixed(log)


def _gaussian_log(leaf: Leaf, x: float) -> int:
    mean, deviation = leaf.params
    # ((x - mean) / deviation)^2 / 2 as a ratio of integers, doubles being such.
    (a, b), (c, d), (e, f) = (v.as_integer_ratio() for v in (float(x), float(mean), float(deviation)))
    top, bottom = (a * d - c * b) * f, b * d * e
    square = (top * top << BITS) // (2 * bottom * bottom)
    return -square - fixed_long(np.log(LD(deviation)) + LD("0.91893853320467274178032973640561763986"))


def _log_sum(terms: list[int]) -> int:
    """log of a sum of exponentials; the rounding is that of one double of at most log(number of terms)."""
    top = max(terms)
    if len(terms) == 1:
        return top
    terms = terms.copy()
    terms.remove(top)
    rest = math.fsum(math.exp(double(t - top)) for t in terms if t - top > -800 * ONE)
    return top + (fixed(math.log1p(rest)) if rest > 0 else 0)


def oracle(case: Case) -> Truth:
    """The truth about a case.

    Of a block only the states with one value all over it are looked at: the circuit is a sum, with positive weights, of
    exponentials of linear functions of how often each value is there. That is convex, so the largest value is attained
    where all variables of the block have the same value.
    """
    if case.tables:
        return _network_truth(case)
    if case.blocks:
        truth = exact_truth(case)
        return truth._replace(total=exact_truth(case._replace(query=())).values[()])
    states = math.prod(case.cards[q] for q in case.query)
    most = max((abs(w) for n in case.nodes if isinstance(n, Sum) for w in n.weights if w > -math.inf), default=0.0)
    for n in case.nodes:
        if isinstance(n, Leaf) and n.kind in (BERNOULLI, CATEGORICAL, BINOMIAL):
            most = max([most, *(abs(p) for p in n.params if p > -math.inf)])
    if states <= 8 or most > 1e5:
        return exact_truth(case)
    return long_double_truth(case)


def _sizes(case: Case) -> tuple[float, float]:
    size: list[float] = []
    for n in case.nodes:
        if isinstance(n, Product):
            size.append(sum(size[c] for c in n.children))
        elif isinstance(n, Sum):
            size.append(
                max(
                    (abs(w) + size[c] for c, w in zip(n.children, n.weights, strict=True) if w > -math.inf), default=0.0
                )
            )
        elif n.kind == BULK:
            size.append(sum(abs(p) * count for p, count in n.params))
        elif n.kind == GAUSSIAN:
            log = _gaussian_log(n, case.evidence[n.var]) if n.var in case.evidence else 0
            # A double z has a relative error of some eps, and z^2 / 2 twice that.
            size.append(abs(double(log)) + 3 * abs(math.log(n.params[1])))
        elif n.kind == BLOCK:
            size.append(n.params[0] * max(abs(p) for p in n.params[1:] if p > -math.inf))
        elif n.kind == INDICATOR:
            size.append(0.0)
        elif n.kind == BINOMIAL:
            size.append(n.params[0] * max(abs(p) for p in n.params[1:] if p > -math.inf) + n.params[0])
        else:
            size.append(max((abs(p) for p in n.params if p > -math.inf), default=0.0))
    return size[-1], max(size)


def _constant(case: Case, leaf: Leaf) -> int | None:
    """The log of a leaf that is not about the query: observed, or summed out."""
    if leaf.kind == BULK:
        return sum(fixed(p) * count for p, count in leaf.params)
    if leaf.kind == GAUSSIAN:
        return _gaussian_log(leaf, case.evidence[leaf.var]) if leaf.var in case.evidence else 0
    if leaf.var in case.evidence:
        return _leaf_log(leaf, int(case.evidence[leaf.var]))
    if leaf.kind == BLOCK:
        return leaf.params[0] * _log_sum([fixed(p) for p in leaf.params[1:] if p > -math.inf])
    logs = [v for x in range(case.cards[leaf.var]) if (v := _leaf_log(leaf, x)) is not None]
    return _log_sum(logs) if logs else None


def exact_truth(case: Case, states: Sequence[tuple[Any, ...]] | None = None) -> Truth:
    """State by state in whole numbers: products are exact whatever their size, a sum rounds once in its logarithm."""
    states = states or list(itertools.product(*(range(case.cards[q]) for q in case.query)))
    place = {q: i for i, q in enumerate(case.query)}
    count = len(states)
    values: list[list[int | None]] = []  # one entry a state, or one for all
    depth: list[int] = []
    for n in case.nodes:
        if isinstance(n, Leaf):
            if n.var in place:
                at = place[n.var]
                table = {x: _leaf_log(n, x) for x in {state[at] for state in states}}
                values.append([table[state[at]] for state in states])
            else:
                values.append([_constant(case, n)])
            depth.append(1)
            continue
        below = [values[c] for c in n.children]
        wide = count if any(len(v) > 1 for v in below) else 1
        rows = list(zip(*(v if len(v) == wide else v * wide for v in below), strict=True))
        if isinstance(n, Product):
            values.append([None if None in row else sum(row) for row in rows])  # type: ignore[arg-type]
            depth.append(sum(depth[c] for c in n.children if depth[c] > 1) + 1)
        else:
            weights = [None if w == -math.inf else fixed(w) for w in n.weights]
            out: list[int | None] = []
            for row in rows:
                terms = [v + w for v, w in zip(row, weights, strict=True) if v is not None and w is not None]
                out.append(_log_sum(terms) if terms else None)
            values.append(out)
            depth.append(max(depth[c] for c in n.children) + len(n.children))
    root = values[-1] if len(values[-1]) == count else values[-1] * count
    finite = [v for v in root if v is not None]
    total = _log_sum(finite) if finite else None
    blurred = 4 * EPS * (depth[-1] + count + sum(case.blocks.values()))
    return Truth(dict(zip(states, root, strict=True)), total, blurred, *_sizes(case))


def long_double_truth(case: Case) -> Truth:
    """All states at once: long doubles relative to an exact offset of each node."""
    place = {q: i for i, q in enumerate(case.query)}
    dims = len(case.query)
    offset: list[int] = []
    value: list[Any] = []  # an array with one axis a query variable, of length 1 where the node is not about it
    span: list[float] = []  # no finite entry is larger
    error: list[float] = []
    alone = np.zeros((1,) * dims, dtype=LD)
    with np.errstate(all="ignore"):
        for n in case.nodes:
            if isinstance(n, Leaf):
                if n.var in place:
                    logs = [_leaf_log(n, x) for x in range(case.cards[n.var])]
                    base = max((v for v in logs if v is not None), default=0)
                    entries = [LD(-np.inf) if v is None else long_double(v - base) for v in logs]
                    shape = [1] * dims
                    shape[place[n.var]] = len(entries)
                    array = np.array(entries, dtype=LD).reshape(shape)
                    reach = max((abs(float(x)) for x in entries if np.isfinite(x)), default=0.0)
                    made = (base, array, reach, LD_EPS * (1 + reach))
                else:
                    constant = _constant(case, n)
                    made = (constant or 0, alone if constant is not None else alone - np.inf, 0.0, 2 * EPS)
            elif isinstance(n, Product):
                array = value[n.children[0]]
                for c in n.children[1:]:
                    array = array + value[c]
                reach = sum(span[c] for c in n.children)
                wrong = sum(error[c] for c in n.children) + LD_EPS * reach * (len(n.children) - 1)
                made = (sum(offset[c] for c in n.children), array, reach, wrong)
            else:
                live = [(c, fixed(w) + offset[c]) for c, w in zip(n.children, n.weights, strict=True) if w > -math.inf]
                if live:
                    base = max(at for _, at in live)
                    shifts = [long_double(at - base) for _, at in live]
                    terms = [value[c] + shift for (c, _), shift in zip(live, shifts, strict=True)]
                    if len(terms) == 1:
                        array = terms[0]
                    else:
                        top = terms[0]
                        for term in terms[1:]:
                            top = np.maximum(top, term)
                        top = np.where(np.isfinite(top), top, LD(0))
                        total = np.exp(terms[0] - top)
                        for term in terms[1:]:
                            total = total + np.exp(term - top)
                        array = top + np.log(total)
                    reach = max(span[c] + float(-shift) for (c, _), shift in zip(live, shifts, strict=True)) + 3.0
                    wrong = max(error[c] for c, _ in live) + LD_EPS * (2 * reach + 4 * len(live))
                    made = (base, array, reach, wrong)
                else:
                    made = (0, alone - np.inf, 0.0, 0.0)
            base, array, reach, wrong = made
            if reach > 1000:
                finite = array[np.isfinite(array)]
                if finite.size:
                    shift = int(np.floor(finite.max()))
                    base, array = base + (shift << BITS), array - LD(shift)
                    reach = float(np.abs(finite - LD(shift)).max())
            offset.append(base)
            value.append(array)
            span.append(reach)
            error.append(wrong)
    shape = tuple(case.cards[q] for q in case.query)
    root = np.broadcast_to(value[-1], shape)
    values: dict[tuple[int, ...], int | None] = {}
    for state in itertools.product(*(range(c) for c in shape)):
        x = root[state]
        values[state] = offset[-1] + fixed_long(x) if np.isfinite(x) else None
    finite = [v for v in values.values() if v is not None]
    total_log = _log_sum(finite) if finite else None
    return Truth(values, total_log, 2 * error[-1] + 2 * EPS * len(values), *_sizes(case))


def _network_truth(case: Case) -> Truth:
    """The full joint table in long doubles, hidden variables summed out of it."""
    n = len(case.cards)
    bayes = case.shape.startswith("bayes")
    joint = np.zeros((1,) * n, dtype=LD)
    size = 1.0
    with np.errstate(all="ignore"):
        for scope, numbers in case.tables:
            table = np.array(numbers, dtype=np.float64).astype(LD).reshape([case.cards[v] for v in scope])
            if bayes:
                table = table / table.sum(axis=-1, keepdims=True)
            logs = np.log(table)
            finite = logs[np.isfinite(logs)]
            size += float(np.abs(finite).max()) + 1.0 if finite.size else 1.0
            order = np.argsort(scope)
            shape = [1] * n
            for v in scope:
                shape[v] = case.cards[v]
            joint = joint + np.transpose(logs, order).reshape(shape)
        joint = np.broadcast_to(joint, case.cards)
        joint = joint[tuple(int(case.evidence[v]) if v in case.evidence else slice(None) for v in range(n))]
        left = [v for v in range(n) if v not in case.evidence]
        hidden = tuple(i for i, v in enumerate(left) if v not in case.query)
        kept = [v for v in left if v in case.query]
        if hidden:
            top = joint.max(axis=hidden, keepdims=True)
            top = np.where(np.isfinite(top), top, LD(0))
            joint = np.squeeze(top, hidden) + np.log(np.exp(joint - top).sum(axis=hidden))
        joint = np.transpose(joint, [kept.index(q) for q in case.query]) if case.query else joint
    values: dict[tuple[int, ...], int | None] = {}
    for state in itertools.product(*(range(case.cards[q]) for q in case.query)):
        x = joint[state]
        values[state] = fixed_long(x) if np.isfinite(x) else None
    finite_values = [v for v in values.values() if v is not None]
    total = _log_sum(finite_values) if finite_values else None
    # A Bayesian network divides its rows by their sums in doubles, once: that much is the reader's, not the solver's.
    blurred = LD_EPS * 8 * size + 2 * EPS * len(values) + (4 * EPS * n if bayes else 0.0)
    return Truth(values, total, blurred, size, size)


# ----------------------------------------------------------------------------------------------------- to the package


def name(v: int) -> str:
    """What a variable is called."""
    return f"v{v}"


def to_circuit(case: Case) -> mm.Circuit:
    """The margmap circuit of a description; a bulk becomes one leaf a variable below a product."""
    kind: list[int] = []
    start, child, weight, var, param_start, param = [0], [], [], [], [0], []
    number: list[int] = []

    def close(node_kind: int, node_var: int) -> None:
        kind.append(node_kind)
        var.append(node_var)
        start.append(len(child))
        param_start.append(len(param))

    for n in case.nodes:
        if isinstance(n, Leaf) and n.kind == BULK:
            first, at = len(kind), n.var
            for log, count in n.params:
                other = math.log(-math.expm1(log)) if log < 0 else -math.inf
                for _ in range(count):
                    param += (log, other)
                    close(BERNOULLI, at)
                    at += 1
            child += range(first, len(kind))
            weight += [0.0] * (len(kind) - first)
            close(PRODUCT, -1)
        elif isinstance(n, Leaf) and n.kind == BLOCK:
            first = len(kind)
            for at in range(n.params[0]):
                param += n.params[1:]
                close(CATEGORICAL, n.var + at)
            child += range(first, len(kind))
            weight += [0.0] * (len(kind) - first)
            close(PRODUCT, -1)
        elif isinstance(n, Leaf):
            param += n.params
            close(n.kind, n.var)
        else:
            child += (number[c] for c in n.children)
            weight += n.weights if isinstance(n, Sum) else [0.0] * len(n.children)
            close(SUM if isinstance(n, Sum) else PRODUCT, -1)
        number.append(len(kind) - 1)
    variables = [mm.Variable(name(v), c) for v, c in enumerate(case.cards)]
    return mm.Circuit(variables, kind, start, child, weight, var, param_start, param)


def asked_for(case: Case) -> list[str]:
    """The names of the query variables."""
    return [name(v) for q in case.query for v in range(q, q + case.blocks.get(q, 1))]


def state_of(case: Case, named: dict[Any, Any]) -> tuple[Any, ...]:
    """A state as the oracle has it: for a block its one value, or how often each value is there."""
    state: list[Any] = []
    for q in case.query:
        given = [named[name(v)] for v in range(q, q + case.blocks.get(q, 1))]
        same = min(given) == max(given)
        state.append(given[0] if same else tuple(given.count(x) for x in range(case.cards[q])))
    return tuple(state)


def to_model(case: Case) -> mm.Circuit | mm.Network:
    """What the solvers are given."""
    if not case.tables:
        return to_circuit(case)
    variables = [mm.Variable(name(v), c) for v, c in enumerate(case.cards)]
    kind: Any = "bayes" if case.shape.startswith("bayes") else "markov"
    return mm.Network(variables, [(t.scope, list(t.numbers)) for t in case.tables], kind)


# -------------------------------------------------------------------------------------------------------- the attacks


class Numbers(NamedTuple):
    """Where a kind of case takes its numbers from: log weights, and log probabilities, which are at most 0."""

    weight: Callable[[random.Random], float]
    log_prob: Callable[[random.Random], float]


def _plain_weight(rng: random.Random) -> float:
    return math.log(rng.uniform(0.05, 1.0))


def _plain_prob(rng: random.Random) -> float:
    return math.log(rng.uniform(0.02, 0.98))


def _extreme_weight(rng: random.Random) -> float:
    return math.log(10.0) * rng.uniform(-300, 300)


def _extreme_prob(rng: random.Random) -> float:
    return rng.choice((rng.uniform(-744, 0), rng.uniform(-40, 0), 0.0, math.log(5e-324 * rng.randint(1, 9))))


def _huge_weight(rng: random.Random) -> float:
    return rng.choice((-1, 1)) * min(
        1.7e308, 10.0 ** rng.choice((rng.uniform(1, 8), rng.uniform(1, 17), rng.uniform(2, 308.2), 308.2))
    )


def _huge_prob(rng: random.Random) -> float:
    return -abs(_huge_weight(rng))


_NUDGES = (0.0, 0.0, 1e-17, 1e-16, 1e-15, 1e-14, 1e-12, 1e-10, 3e-9, 1e-8, 1e-7)


def _tied_weight(rng: random.Random) -> float:
    return math.log(rng.choice((0.5, 0.5, 0.25, 1.0))) + rng.choice((-1, 1)) * rng.choice(_NUDGES)


def _tied_prob(rng: random.Random) -> float:
    return math.log(rng.choice((0.5, 0.5, 0.25))) + rng.choice((-1, 1)) * rng.choice(_NUDGES)


def _gap_weight(rng: random.Random) -> float:
    return rng.choice((0.0, -5.0, -800.0, -300.0, -1500.0, -690.0, rng.uniform(-3000, 0)))


def _sure_prob(rng: random.Random) -> float:
    return -rng.choice((0.0, 1e-17, 1e-16, 1e-12, 1e-10, 1e-9, 30.0, 37.0, 21.0, 740.0))


NUMBERS = {
    "plain": Numbers(_plain_weight, _plain_prob),
    "extreme": Numbers(_extreme_weight, _extreme_prob),
    "huge": Numbers(_huge_weight, _huge_prob),
    "ties": Numbers(_tied_weight, _tied_prob),
    "gaps": Numbers(_gap_weight, _gap_weight),
    "sure": Numbers(lambda rng: _sure_prob(rng), _sure_prob),
}

# How often each kind of case comes, in parts of the whole. The first six differ in their numbers only.
KINDS = {
    "plain": 8,
    "extreme": 16,
    "huge": 8,
    "ties": 12,
    "gaps": 14,
    "sure": 5,
    "chains": 8,
    "bulk": 10,
    "big bulk": 0.15,
    "gauss": 8,
    "leaves": 6,
    "wide": 2,
    "large query": 3,
    "network": 10,
}
SHAPES = ("structured", "deterministic", "crossing", "one mixture")


class _Builder:
    """Builds a circuit from the leaves up: pools of nodes for growing sets of units, merged two by two.

    A unit is a variable, or a bulk of observed ones, with several leaves to choose from. Every node over the same units
    has the same scope, so all sums are smooth; a merge takes disjoint units, so all products are decomposable.
    """

    def __init__(self, rng: random.Random, kind: str, shape: str) -> None:
        self.rng, self.kind, self.shape = rng, kind, shape
        self.nodes: list[Leaf | Product | Sum] = []
        self.cards: list[int] = []
        self.query: list[int] = []
        self.evidence: dict[int, float] = {}
        self.blocks: dict[int, int] = {}
        self.peaks: list[float] = []
        self.contest = rng.choice((0.0, 0.0, 0.3, 1.0))
        self.zeros = rng.random() < 0.3
        self.purity = rng.choice((0.3, 0.7, 1.0))
        self.numbers = NUMBERS.get(kind) or NUMBERS[rng.choice(("plain", "plain", "extreme", "ties", "gaps"))]
        self.indicators: dict[tuple[int, int], int] = {}
        self.pools: dict[frozenset[int], list[int]] = {}

    def add(self, node: Leaf | Product | Sum) -> int:
        self.nodes.append(node)
        self.peaks.append(self.peak(node))
        return len(self.nodes) - 1

    def peak(self, node: Leaf | Product | Sum) -> float:
        """About the largest log value of a node under the evidence."""
        if isinstance(node, Product):
            return sum(self.peaks[c] for c in node.children)
        if isinstance(node, Sum):
            return max(w + self.peaks[c] for c, w in zip(node.children, node.weights, strict=True))
        if node.kind == BULK:
            return math.fsum(p * count for p, count in node.params)
        if node.kind == GAUSSIAN:
            return double(_gaussian_log(node, self.evidence[node.var])) if node.var in self.evidence else 0.0
        if node.kind == BLOCK:
            return float(node.params[0] * max(node.params[1:]))
        if node.var in self.evidence:
            log = _leaf_log(node, int(self.evidence[node.var]))
            return -math.inf if log is None else double(log)
        return 0.0 if node.kind in (INDICATOR, BINOMIAL) else float(max(node.params))

    def weight(self) -> float:
        rng = self.rng
        if self.zeros and rng.random() < 0.1:
            return -math.inf
        return (self.numbers if rng.random() < self.purity else NUMBERS["plain"]).weight(rng)

    def log_prob(self) -> float:
        rng = self.rng
        if self.zeros and rng.random() < 0.08:
            return -math.inf
        return (self.numbers if rng.random() < self.purity else NUMBERS["plain"]).log_prob(rng)

    def sum(self, children: Sequence[int]) -> int:
        weights = [self.weight() for _ in children]
        if self.rng.random() < self.contest:  # all children can win
            even = [self.rng.gauss(0, 6) - self.peaks[c] for c in children]
            if all(abs(x) < 1e290 for x in even):  # which no NaN is
                weights = even
        if self.rng.random() < 0.3:  # as learned circuits are: normalised
            top = max(weights)
            if -math.inf < top < 1e300:
                total = top + math.log(math.fsum(math.exp(w - top) for w in weights))
                weights = [w - total for w in weights]
        return self.add(Sum(tuple(children), tuple(weights)))

    def indicator(self, v: int, x: int) -> int:
        key = (v, x)
        if key not in self.indicators:
            self.indicators[key] = self.add(Leaf(INDICATOR, v, (x,)))
        return self.indicators[key]

    def variable(self, card: int, role: str) -> int:
        """A new variable that is queried, hidden or observed, with its pool of leaves."""
        rng, v = self.rng, len(self.cards)
        self.cards.append(card)
        if role == "query":
            self.query.append(v)
        elif role == "observed":
            self.evidence[v] = rng.randrange(card)
        self.pools[frozenset((v,))] = [self.leaf(v, card) for _ in range(rng.randint(1, 3))]
        return v

    def leaf(self, v: int, card: int) -> int:
        rng = self.rng
        sort = rng.random()
        if sort < 0.15:
            return self.indicator(v, rng.randrange(card))
        if sort < (0.5 if self.kind == "leaves" else 0.05):
            p = 10.0 ** rng.choice((rng.uniform(-300, 0), rng.uniform(-3, -0.01)))
            logs = (math.log(p), math.log1p(-p)) if rng.random() < 0.5 else (math.log1p(-p), math.log(p))
            return self.add(Leaf(BINOMIAL, v, (float(card - 1), *logs)))
        if sort < 0.35 and self.kind == "leaves":  # as a Poisson distribution cut off
            rate = 10.0 ** rng.uniform(-30, 3)
            return self.add(
                Leaf(
                    CATEGORICAL, v, tuple(min(0.0, x * math.log(rate) - math.lgamma(x + 1) - rate) for x in range(card))
                )
            )
        if card == 2 and sort < 0.75:
            if rng.random() < 0.4:
                log = self.log_prob()
                other = math.log(-math.expm1(log)) if -1e300 < log < 0 else 0.0 if log < 0 else -math.inf
                logs2 = (log, other) if rng.random() < 0.5 else (other, log)
            else:
                logs2 = (self.log_prob(), self.log_prob())
            return self.add(Leaf(BERNOULLI, v, tuple(min(0.0, p) for p in logs2)))
        return self.add(Leaf(CATEGORICAL, v, tuple(min(0.0, self.log_prob()) for _ in range(card))))

    def bulk(self, count: int) -> int:
        """Many observed variables, and several leaves that hold all of them."""
        rng, v = self.rng, len(self.cards)
        self.cards += [2] * count
        self.evidence.update(dict.fromkeys(range(v, v + count), 1))
        sort = rng.choice(("near", "near", "far", "tiny"))
        base = rng.choice((rng.uniform(-3, -0.1), rng.uniform(-745, -300), -600.0, rng.uniform(-1e4, -600)))
        pool = []
        for _ in range(rng.randint(1, 3)):
            cut, logs = rng.randint(0, count), []
            for _ in range(2):
                if sort == "near":
                    logs.append(min(-1e-12, base + rng.uniform(-2, 2) * rng.choice((1e-6, 1e-3, 0.5)) / count))
                elif sort == "far":
                    logs.append(rng.uniform(-700, -0.01))
                else:
                    logs.append(-(10.0 ** rng.uniform(-14, 2)))
            pool.append(
                self.add(Leaf(BULK, v, tuple((p, c) for p, c in zip(logs, (cut, count - cut), strict=True) if c)))
            )
        self.pools[frozenset((v,))] = pool
        return v

    def block(self, count: int, card: int) -> int:
        """Many query variables: one leaf spreads its mass over all states, another has it in one."""
        rng, v = self.rng, len(self.cards)
        self.cards += [card] * count
        self.query.append(v)
        self.blocks[v] = count
        pool = []
        for sort in rng.sample(("even", "part", "part", "part", "one", "skew", "tied"), rng.randint(2, 3)):
            if sort == "part":  # the mass of one state is anything between that of all states and that of "even"
                log = -rng.uniform(0.001, 1.0) * math.log(card)
                logs = [math.log(-math.expm1(log) / (card - 1))] * card
                logs[rng.randrange(card)] = log
            elif sort == "even":
                logs = [-math.log(card)] * card
            elif sort == "one":
                low = rng.choice((-math.inf, rng.uniform(-50, -1), -700.0))
                logs = [low] * card
                logs[rng.randrange(card)] = rng.choice((0.0, -1e-3))
            elif sort == "skew":
                logs = [math.log(rng.uniform(0.2, 1.0) / card) for _ in range(card)]
            else:
                logs = [-math.log(card) + rng.choice((-1, 1)) * rng.choice(_NUDGES) for _ in range(card)]
            pool.append(self.add(Leaf(BLOCK, v, (count, *logs))))
        self.pools[frozenset((v,))] = pool
        far = count * math.log(card)
        self.numbers = Numbers(lambda r: r.choice((0.0, 0.0, -far)) + r.gauss(0, 5), self.numbers.log_prob)
        return v

    def gaussian(self) -> int:
        rng, v = self.rng, len(self.cards)
        self.cards.append(0)
        if rng.random() < 0.9:
            far = (1e8, 1e4, 38.0, 1e6, 1e-3, 0.0, 10.0 ** rng.uniform(-5, 12), 10.0 ** rng.uniform(-100, 100))
            self.evidence[v] = rng.choice((-1, 1)) * rng.choice(far)
        pool = []
        spread = rng.choice((1.0, 1.0, 1.0, 10.0 ** rng.uniform(-8, 8), 10.0 ** rng.uniform(-40, 40)))
        for _ in range(rng.randint(2, 3)):
            mean = rng.choice((0.0, 1e-9, 1.0, rng.gauss(0, 1), 10.0 ** rng.uniform(-12, 6)))
            pool.append(self.add(Leaf(GAUSSIAN, v, (mean, spread * rng.choice((1.0, 1.0, 1 + 1e-9, 2.0))))))
        self.pools[frozenset((v,))] = pool
        return v

    def chain(self, node: int, most: int) -> int:
        """A tail of sums and products with one child."""
        rng = self.rng
        back = rng.random() < 0.4
        log = 0.0
        for i in range(rng.randint(1, most)):
            if rng.random() < 0.25:
                node = self.add(Product((node,)))
            else:
                log = -log if back and i % 2 else rng.choice((self.numbers.weight(rng), rng.uniform(-700, 700)))
                node = self.add(Sum((node,), (log,)))
        return node

    def finish(self, node: int) -> int:
        rng = self.rng
        if self.kind == "chains" and rng.random() < 0.5:
            return self.chain(node, rng.choice((3, 6, 30)))
        return self.chain(node, 2) if rng.random() < (0.15 if self.blocks else 0.04) else node

    def merge(self, left: frozenset[int], right: frozenset[int]) -> frozenset[int]:
        """Nodes over both, added to their pool."""
        rng = self.rng
        whole = left | right
        pool = self.pools.setdefault(whole, [])
        made: list[int] = []
        (gate,) = left if len(left) == 1 else (-1,)
        if (
            gate in self.query
            and gate not in self.blocks
            and rng.random() < (0.85 if self.shape == "deterministic" else 0.1)
        ):
            for _ in range(rng.randint(1, 2)):
                parts = [
                    self.add(Product((self.indicator(gate, x), rng.choice(self.pools[right]))))
                    for x in range(self.cards[gate])
                ]
                made.append(self.finish(self.sum(parts)))
        else:
            products = [
                self.finish(self.add(Product((rng.choice(self.pools[left]), rng.choice(self.pools[right])))))
                for _ in range(rng.randint(1, 4))
            ]
            choices = products + pool  # with the sums of another order: a sum below a sum
            if len(choices) == 1 or rng.random() < 0.15:
                made.append(products[0])
            for _ in range(rng.randint(1, 2)):
                if len(choices) > 1:
                    chosen = [rng.choice(choices) for _ in range(rng.randint(2, min(4, len(choices) + 1)))]
                    made.append(self.finish(self.sum(chosen)))
        pool += made
        return whole

    def grow(self, units: list[int]) -> frozenset[int]:
        """Merge all units in some order."""
        rng = self.rng
        sets = [frozenset((u,)) for u in units]
        rng.shuffle(sets)
        while len(sets) > 1:
            if self.shape == "deterministic":
                left, right = sets.pop(0), sets.pop()
            else:
                left = sets.pop(rng.randrange(len(sets)))
                right = sets.pop(rng.randrange(len(sets)))
            sets.append(self.merge(left, right))
        return sets[0]

    def mixture(self, units: list[int]) -> frozenset[int]:
        """One sum of products of leaves."""
        rng = self.rng
        whole = frozenset(units)
        products = []
        for _ in range(rng.randint(2, 7)):
            children = [rng.choice(self.pools[frozenset((u,))]) for u in units]
            rng.shuffle(children)
            products.append(self.finish(self.add(Product(tuple(children)))))
        self.pools[whole] = [self.finish(self.sum(products))]
        return whole


def _small_state_space(rng: random.Random, cards: Sequence[int], most: int) -> list[int]:
    kept: list[int] = []
    for c in cards:
        if math.prod(kept) * c > most:
            break
        kept.append(c)
    return kept or [2]


def make_circuit(rng: random.Random, kind: str) -> Case:
    """A circuit to break the solvers with."""
    shape = rng.choice(SHAPES)
    b = _Builder(rng, kind, shape)
    many = rng.random() < 0.25 or kind == "leaves"
    cards = [rng.choice((2, 3, 4, 5)) if many else 2 for _ in range(rng.randint(1, 7))]
    most = {"huge": 16, "wide": 1024}.get(kind, rng.choice((16, 32, 64, 128)))
    if kind == "wide":
        cards = [2] * rng.randint(8, 10)
    elif kind == "large query":
        cards = cards[:2]
    units = [b.variable(c, "query") for c in _small_state_space(rng, cards, most)]
    units += [b.variable(rng.choice((2, 2, 3)), "hidden") for _ in range(rng.choice((0, 0, 1, 2)))]
    units += [b.variable(rng.choice((2, 2, 3)), "observed") for _ in range(rng.choice((0, 0, 1, 2)))]
    if kind == "large query":
        units += [b.block(rng.choice((60, 150, 300, 600)), rng.choice((2, 3, 6))) for _ in range(rng.choice((1, 1, 2)))]
        if rng.random() < 0.3:
            units.append(b.bulk(rng.choice((3, 30, 100))))
    elif kind == "bulk":
        units += [b.bulk(rng.choice((3, 30, 60, 100, 200))) for _ in range(rng.randint(1, 3))]
    elif kind == "big bulk":
        units.append(b.bulk(rng.choice((2200, 3000, 6000))))
        if rng.random() < 0.5:
            units.append(b.bulk(50))
    elif kind == "gauss":
        units += [b.gaussian() for _ in range(rng.randint(1, 3))]
    if shape == "one mixture":
        root = b.mixture(units)
    else:
        root = b.grow(units)
        if shape == "crossing":
            for _ in range(rng.randint(1, 2)):
                b.grow(units)
    pool = b.pools[root]
    last = pool[-1] if len(pool) == 1 or shape != "crossing" else b.sum(pool)
    if rng.random() < 0.1:
        last = b.chain(last, 3)
    query = b.query
    if rng.random() < 0.02:
        query = []
    elif rng.random() < 0.1 and len(query) > 1:
        query = rng.sample(query, rng.randint(1, len(query)))
    nodes = _reachable(b.nodes, last)
    return Case(kind, shape, tuple(b.cards), nodes, (), tuple(query), b.evidence, b.blocks)


def _reachable(nodes: Sequence[Leaf | Product | Sum], root: int) -> tuple[Leaf | Product | Sum, ...]:
    """What lies below the root, renumbered."""
    keep = {root}
    for i in range(root, -1, -1):
        if i in keep and not isinstance(n := nodes[i], Leaf):
            keep.update(n.children)
    number = {old: new for new, old in enumerate(sorted(keep))}
    made: list[Leaf | Product | Sum] = []
    for i in sorted(keep):
        n = nodes[i]
        made.append(n if isinstance(n, Leaf) else n._replace(children=tuple(number[c] for c in n.children)))
    return tuple(made)


def make_network(rng: random.Random, kind: str) -> Case:
    """A network with tables made to break elimination and compilation."""
    shape = rng.choice(("bayes", "bayes", "bayes, apart", "markov"))
    n = rng.randint(2, 9)
    cards = [rng.choice((2, 2, 2, 3)) for _ in range(n)]
    cards = cards if math.prod(cards) <= 2000 else [2] * n
    sort = rng.choice(("plain", "zeros", "one", "extreme", "sure", "ties", "mixed"))
    tables = []
    if shape == "markov":
        for _ in range(rng.randint(1, 2 * n)):
            scope = tuple(rng.sample(range(n), rng.randint(1, min(3, n))))
            size = math.prod(cards[v] for v in scope)
            tables.append(Table(scope, tuple(_entry(rng, sort) for _ in range(size))))
        bare = set(range(n)) - {v for t in tables for v in t.scope}
        tables += [Table((v,), tuple(_entry(rng, "plain") for _ in range(cards[v]))) for v in sorted(bare)]
    else:
        order = list(range(n))
        rng.shuffle(order)
        for i, v in enumerate(order):
            near = [u for j, u in enumerate(order[:i]) if "apart" not in shape or j % 2 == i % 2]
            parents = rng.sample(near, min(len(near), rng.choice((0, 1, 1, 2, 2, 3))))
            rows = math.prod(cards[p] for p in parents)
            numbers = itertools.chain.from_iterable(_row(rng, sort, cards[v]) for _ in range(rows))
            tables.append(Table((*parents, v), tuple(numbers)))
    roles = [rng.choice("qqqheh") for _ in range(n)]
    query = tuple(v for v in rng.sample(range(n), n) if roles[v] == "q")
    if not query and rng.random() < 0.9:
        query = (rng.randrange(n),)
    evidence: dict[int, float] = {v: rng.randrange(cards[v]) for v in range(n) if roles[v] == "e" and v not in query}
    return Case(kind, shape, tuple(cards), (), tuple(tables), query, evidence)


def _entry(rng: random.Random, sort: str) -> float:
    """A number of a Markov network's table."""
    if sort == "mixed":
        sort = rng.choice(("plain", "zeros", "extreme", "ties"))
    if sort in ("zeros", "one") and rng.random() < 0.4:
        return 0.0
    if sort == "extreme":
        return rng.choice(
            (10.0 ** rng.uniform(-300, 300), 5e-324 * rng.randint(1, 5), 10.0 ** rng.uniform(-30, 30), 1.0)
        )
    if sort == "ties":
        return rng.choice((0.5, 0.25)) * (1 + rng.choice((-1, 1)) * rng.choice(_NUDGES))
    return rng.uniform(0.0, 3.0)


def _row(rng: random.Random, sort: str, card: int) -> list[float]:
    """A distribution that adds up to 1 as well as doubles can."""
    if sort == "mixed":
        sort = rng.choice(("plain", "zeros", "one", "extreme", "sure", "ties"))
    if sort == "one" and rng.random() < 0.7:
        one = rng.randrange(card)
        return [float(x == one) for x in range(card)]
    if sort == "extreme":
        row = [rng.choice((10.0 ** rng.uniform(-300, -1), 5e-324 * rng.randint(1, 5), 0.1)) for _ in range(card)]
    elif sort == "sure":
        row = [rng.choice((1e-10, 1e-12, 1e-16, 3e-10, 1e-20, 1e-9)) for _ in range(card)]
    elif sort == "ties":
        row = [1 / card + rng.choice((-1, 1)) * rng.choice(_NUDGES) for _ in range(card)]
    else:
        row = [rng.uniform(0.01, 1.0) for _ in range(card)]
        if sort == "zeros" and rng.random() < 0.6:
            row[rng.randrange(card)] = 0.0
        total = math.fsum(row)
        row = [p / total for p in row]
    at = rng.randrange(card)
    row[at] = 0.0
    row[at] = max(0.0, 1.0 - math.fsum(row))
    return row


def make_case(seed: int, index: int, kinds: Sequence[str] = ()) -> tuple[Case, random.Random]:
    """Case number ``index`` of a seed, and the generator that goes on to choose how it is asked."""
    rng = random.Random(f"{seed}:{index}")
    chosen = rng.choices(list(KINDS), list(KINDS.values()))[0]
    if kinds and chosen not in kinds:
        chosen = kinds[index % len(kinds)]
    return (make_network if chosen == "network" else make_circuit)(rng, chosen), rng


# ------------------------------------------------------------------------------------------------------ asking, judging


class Asked(NamedTuple):
    """A way to ask: method, keywords of marginal_map, and a name for the tables."""

    label: str
    method: str
    keywords: dict[str, Any]


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "auto": ("auto", {}),
    "frontier": ("frontier", {}),
    "frontier, width 2": ("frontier", {"width": 2}),
    "branch": ("branch", {}),
    "search": ("search", {}),
    "search, certain": ("search", {"order": "certain"}),
    "brute": ("brute", {}),
    "iterative": ("iterative", {}),
    "iterative, Pruned": ("iterative", {"heuristic": "Pruned"}),
    "iterative, plain": ("iterative", {"regroup": False, "climb": False, "fix": False}),
    "auto, k": ("auto", {"k": 0}),
    "frontier, k": ("frontier", {"k": 0}),
    "branch, k": ("branch", {"k": 0}),
    "brute, k": ("brute", {"k": 0}),
}
NETWORK_WAYS = {"elimination": ("elimination", {}), **WAYS}


def ways(case: Case, rng: random.Random, how_many: int | None) -> list[Asked]:
    """Some ways to ask a case, or all of them."""
    table = NETWORK_WAYS if case.tables else WAYS
    labels = list(table)
    if case.blocks:
        labels = [label for label in labels if not label.endswith(", k") and label != "brute"]
    if how_many is not None:
        labels = rng.sample(labels, how_many)
        if case.tables and "elimination" not in labels and rng.random() < 0.5:
            labels.append("elimination")
    asked = []
    for label in labels:
        method, given = table[label]
        keywords = dict(given)
        if "k" in keywords:
            keywords["k"] = rng.choice((2, 3, 4, 7, 20))
        chance = rng.random()
        if case.blocks:  # not every method comes to an end, but its bounds must hold
            keywords["time_limit"] = 0.02 if method in ("search", "iterative") else 0.1
        elif chance < 0.06:
            keywords["gap"] = rng.choice((0.0, 1e-6, 1e-3, 0.1, 1.0, 5.0))
        elif chance < 0.1:
            keywords["time_limit"] = 10.0 ** rng.uniform(-5, -2.5)
        asked.append(Asked(label, method, keywords))
    return asked


class TooSlow(BaseException):
    """Not an Exception, so that nothing on the way catches it."""


def _too_slow(number: int, frame: object) -> None:
    raise TooSlow


def ask(model: Any, case: Case, way: Asked, seconds: float | None = None) -> tuple[str, Any]:
    """The status, or the name of an error; and the result, or the error. After so many ``seconds`` it is given up."""
    evidence = {name(v): x for v, x in case.evidence.items()}
    try:
        if seconds:
            signal.signal(signal.SIGALRM, _too_slow)
            signal.setitimer(signal.ITIMER_REAL, seconds)
        result = mm.marginal_map(model, asked_for(case), evidence, way.method, **way.keywords)
    except MargmapError as error:
        return type(error).__name__, error
    except TooSlow:
        return "slow", None
    except Exception as error:
        return "crash", error
    finally:
        if seconds:
            signal.setitimer(signal.ITIMER_REAL, 0)
    return result.status, result


def judge(case: Case, truth: Truth, way: Asked, status: str, result: Any) -> str:
    """What is wrong with an answer; nothing if it keeps its promises.

    - ``optimal``: no state exceeds the one given by more than the gap asked for (1e-9) + 1e-8, which a finished search
      may add for rounding. For the k best, none that is left out exceeds the last by more, and there are fewer than k
      only if there are no more possible states.
    - Always: no state has more than ``log_upper``, but for the oracle's own error. ``log_prob`` of every state given is
      right within 1e-9 + 8 eps times the sizes of all logs on the worst way through the circuit, which doubles need.
    - An error is a MargmapError, and that the evidence is impossible is said only when it is.
    """
    if status == "slow":
        return f"longer than {SLOW} s"
    if status == "crash":
        return f"raised {type(result).__name__}: {result}"
    best = truth.ranked
    # Past this size an answer, or a sum on the way to it, need not be a double: any honest error will do.
    beyond = truth.largest > BEYOND or (bool(best) and not math.isfinite(double(best[0][0])))
    if isinstance(result, MargmapError):
        return _judge_error(case, way, result, bool(best), beyond)
    if not best and result.state is None and status in ("time_limit", "memory_limit"):
        return ""  # stopped before it was known
    if not best:
        return f"{status} with log_prob {result.log_prob} where the evidence is impossible"
    values, error = truth.values, truth.error
    allowed = TOLERANCE + 8 * EPS * truth.size + error
    if result.log_upper is not None:
        if math.isnan(result.log_upper):
            return "log_upper is not a number"
        if result.log_upper < math.inf and math.isfinite(double(best[0][0])):
            short = math.inf if result.log_upper == -math.inf else double(best[0][0] - fixed(result.log_upper))
            if short > error:
                return f"log_upper {result.log_upper!r} is {short:.3g} under the optimum"
    if result.state is None:
        return "optimal without a state" if status == "optimal" else ""
    top = result.top or ()
    given = [state_of(case, ranked.state) for ranked in top]
    if not top or result.state != top[0].state:
        return "state is not the first of top"
    if any(state not in values for state in given):
        values = {**values, **exact_truth(case, given).values}
    if len(set(given)) != len(given):
        return "a state is there twice"
    for state, ranked in zip(given, top, strict=True):
        value = values[state]
        if value is None:
            return f"{status} with an impossible state {state}"
        if not math.isfinite(ranked.log_prob):
            if not math.isfinite(double(value)):
                continue
            return f"log_prob {ranked.log_prob} of a possible state"
        off = abs(double(value - fixed(ranked.log_prob)))
        if off > allowed:
            return f"log_prob {ranked.log_prob!r} is off by {off:.3g}, {allowed:.3g} allowed"
        given_e = double(value - truth.total) if truth.total is not None else 0.0
        if math.isfinite(ranked.log_conditional) and abs(ranked.log_conditional - given_e) > 2 * allowed:
            return f"log_conditional {ranked.log_conditional!r} where {given_e!r} is right"
    if status != "optimal":
        return ""
    k = way.keywords.get("k", 1)
    slack = max(way.keywords.get("gap", TOLERANCE), TOLERANCE) + ROUNDED + 2 * error
    if len(top) < min(k, len(best)):
        return f"optimal with {len(top)} states where {min(k, len(best))} exist"
    last = min(values[state] for state in given)  # type: ignore[type-var]
    better = next((v for v, q in best if q not in set(given)), None)
    if better is not None and double(better - last) > slack:
        return f"optimal, but a state that is not given has {double(better - last):.3g} more"
    return ""


def _judge_error(case: Case, way: Asked, error: MargmapError, possible: bool, beyond: bool) -> str:
    if isinstance(error, ImpossibleEvidenceError):
        return f"ImpossibleEvidenceError, but the evidence is possible: {error}" if possible else ""
    if not possible and isinstance(error, StructureError) and case.tables:
        return ""  # a Markov network without any possible state is refused as a whole
    if beyond:
        return ""
    if isinstance(error, StructureError) and way.method == "frontier" and case.shape in ("crossing", "bayes, apart"):
        return ""
    if isinstance(error, StructureError) and way.method == "frontier" and case.tables:
        return ""
    if isinstance(error, LimitError) and ("time_limit" in way.keywords or way.method == "elimination"):
        return ""
    return f"{type(error).__name__}: {error}"


def judge_queries(case: Case, truth: Truth, model: Any) -> str:
    """The same for log_marginal and posteriors."""
    evidence = {name(v): x for v, x in case.evidence.items()}
    allowed = TOLERANCE + 8 * EPS * truth.size + truth.error
    try:
        log = mm.log_marginal(model, evidence)
    except StructureError as error:
        return "" if truth.largest > BEYOND else f"log_marginal: StructureError: {error}"
    except Exception as error:
        return f"log_marginal raised {type(error).__name__}: {error}"
    if truth.total is None:
        if log != -math.inf:
            return f"log_marginal {log!r} of impossible evidence"
    elif math.isfinite(double(truth.total)):
        off = abs(double(truth.total - fixed(log))) if math.isfinite(log) else math.inf
        if off > allowed:
            return f"log_marginal {log!r} is off by {off:.3g}, {allowed:.3g} allowed"
    try:
        found: Any = mm.posteriors(model, evidence)
    except ImpossibleEvidenceError:
        return "" if truth.total is None else "posteriors: ImpossibleEvidenceError, but the evidence is possible"
    except Exception as error:
        return f"posteriors raised {type(error).__name__}: {error}"
    if truth.total is None:
        return "posteriors given impossible evidence"
    if allowed > 0.1 or case.blocks:
        return ""
    for i, q in enumerate(case.query):
        right = [0.0] * case.cards[q]
        for state, value in truth.values.items():
            if value is not None:
                right[state[i]] += math.exp(double(value - truth.total))
        got = found.array(name(q)) if hasattr(found, "array") else found[name(q)]
        for x, (a, b) in enumerate(zip(got, right, strict=True)):
            if not abs(a - b) <= 3 * allowed:
                return f"posterior of {name(q)}={x} is {a!r} where {b!r} is right"
    return ""


def run_case(
    seed: int, index: int, kinds: Sequence[str] = (), how_many: int | None = None, watched: bool = False
) -> tuple[Case, list[tuple[str, str, str]]]:
    """One case: the label, the status and what is wrong of every way it was asked.

    ``watched``: no call can take for ever; for the main thread of a process on a system with signals.
    """
    case, rng = make_case(seed, index, kinds)
    truth = oracle(case)
    try:
        model = to_model(case)
    except Exception as error:
        return case, [("make", "crash", f"{type(error).__name__}: {error}")]
    answers = []
    for way in ways(case, rng, how_many):
        status, result = ask(model, case, way, SLOW if watched else None)
        answers.append((way.label, status, judge(case, truth, way, status, result)))
    if (how_many is None or rng.random() < 0.2) and (not case.tables or hasattr(mm, "Posteriors")):
        wrong = judge_queries(case, truth, model)
        answers.append(("marginals", "answered", wrong))
    return case, answers


# -------------------------------------------------------------------------------------------------------- the campaign

COLUMNS = ("asked", "optimal", "stopped", "precision", "refused", "impossible", "failures")


def column(status: str) -> str:
    """The column of the table that a status counts in."""
    if status in ("optimal", "answered"):
        return "optimal"
    if status == "precision_limit":
        return "precision"
    if status in ("time_limit", "memory_limit", "interrupted"):
        return "stopped"
    return "impossible" if status == "ImpossibleEvidenceError" else "refused"


def work(
    seed: int, indices: Iterable[int], kinds: Sequence[str], at: Any, send: Callable[[dict[str, Any]], None]
) -> None:
    """Run cases, report every failure at once and the counts of every thousand."""
    warnings.filterwarnings("error", module="margmap")  # a warning from within is a failure
    counts: Counter[str] = Counter()
    for done, index in enumerate(indices, 1):
        at.value = index
        try:
            case, answers = run_case(seed, index, kinds, 3, watched=True)
        except Exception:  # the oracle's own fault
            send(
                {
                    "type": "failure",
                    "case": f"{seed}:{index}",
                    "kind": "?",
                    "way": "oracle",
                    "wrong": traceback.format_exc(),
                }
            )
            continue
        counts[f"kind|{case.kind}|cases"] += 1
        counts[f"shape|{case.shape}|cases"] += 1
        for label, status, wrong in answers:
            for row in (f"kind|{case.kind}", f"shape|{case.shape}", f"way|{label}"):
                counts[f"{row}|asked"] += 1
                counts[f"{row}|{column(status)}"] += 1
                counts[f"{row}|failures"] += bool(wrong)
            if wrong:
                send(
                    {
                        "type": "failure",
                        "case": f"{seed}:{index}",
                        "kind": case.kind,
                        "shape": case.shape,
                        "way": label,
                        "status": status,
                        "wrong": wrong,
                        "replay": f"python scripts/adversary.py --replay {seed}:{index}"
                        + (f" --kinds {' '.join(repr(k) for k in kinds)}" if kinds else ""),
                    }
                )
        if done % 1000 == 0:
            send({"type": "progress", "case": f"{seed}:{index}", "counts": dict(counts)})
            counts.clear()
    send({"type": "progress", "case": f"{seed}:end", "counts": dict(counts)})


def campaign(options: argparse.Namespace) -> int:
    """All cases on several processes, one that dies being replaced; the number of failures."""
    log = options.log.open("a") if options.log else None
    counts: Counter[str] = Counter()
    failures = 0
    begun = time.time()

    def take(message: dict[str, Any]) -> None:
        nonlocal failures
        if log:
            log.write(json.dumps(message) + "\n")
            log.flush()
        if message["type"] == "failure":
            failures += 1
            if failures <= options.show:
                print(f"{message['case']} {message['kind']}, {message['way']}: {message['wrong']}", flush=True)
        elif message["type"] == "progress":
            counts.update(message["counts"])
            cases = sum(n for key, n in counts.items() if key.startswith("kind|") and key.endswith("|cases"))
            rate = cases / max(1e-9, time.time() - begun)
            print(f"{cases} cases, {failures} failures, {rate:.0f} a second", file=sys.stderr, flush=True)

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    take(
        {
            "type": "run",
            "seed": options.seed,
            "count": options.count,
            "commit": commit.stdout.strip(),
            "kinds": options.kinds,
        }
    )
    run_case(0, 0)  # compiles the kernels before the processes are made
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    last = options.first + options.count
    crew = []
    for w in range(options.jobs):
        at = context.Value("q", -1)
        indices = range(options.first + w, last, options.jobs)
        crew.append([_start(context, options, indices, at, queue), at])
    while crew:
        try:
            take(queue.get(timeout=0.5))
            continue
        except Exception as empty:
            if type(empty).__name__ != "Empty":
                raise
        for member in list(crew):
            process, at = member
            if process.is_alive():
                continue
            process.join()
            crew.remove(member)
            if process.exitcode:
                wrong = f"the process died with exit code {process.exitcode}"
                take({"type": "failure", "case": f"{options.seed}:{at.value}", "kind": "?", "way": "?", "wrong": wrong})
                rest = range(at.value + options.jobs, last, options.jobs)
                crew.append([_start(context, options, rest, at, queue), at])
    while not queue.empty():
        take(queue.get())
    take({"type": "end", "seconds": round(time.time() - begun), "failures": failures})
    print(tables(counts))
    return failures


def _start(context: Any, options: argparse.Namespace, indices: Iterable[int], at: Any, queue: Any) -> Any:
    process = context.Process(target=work, args=(options.seed, indices, options.kinds, at, queue.put))
    process.start()
    return process


def read_log(paths: Iterable[Path]) -> Counter[str]:
    """The counts of logs, added up; what is about a whole run under ``run|``."""
    counts: Counter[str] = Counter()
    for path in paths:
        with path.open() as lines:
            for line in lines:
                message = json.loads(line)
                if message["type"] == "progress":
                    counts.update(message["counts"])
                elif message["type"] == "failure" and message["way"] not in (*NETWORK_WAYS, "marginals"):
                    counts["run|failures"] += 1  # a process that died, or the oracle's own fault
                elif message["type"] == "run":
                    counts[f"run|commit {message['commit']}, seed {message['seed']}"] += 1
    return counts


def tables(counts: Counter[str], before: Counter[str] | None = None) -> str:
    """Markdown: what was asked and how it ended, by kind, by shape and by method.

    ``before`` has the counts of a run on older code: its failures get a column of their own.
    """
    text = [_headline(counts, "Recorded")]
    if before:
        text.append(_headline(before, "Before the repairs"))
    for group, title, order in (
        ("kind", "Kind", list(KINDS)),
        ("shape", "Shape", [*SHAPES, "bayes", "bayes, apart", "markov"]),
        ("way", "Method", [*NETWORK_WAYS, "marginals"]),
    ):
        columns = COLUMNS if group == "way" else ("cases", *COLUMNS)
        rows = [row for row in order if counts[f"{group}|{row}|asked"]]
        found = (lambda row, group=group: [before[f"{group}|{row}|failures"]]) if before else (lambda row: [])
        cells = {row: [*(counts[f"{group}|{row}|{c}"] for c in columns), *found(row)] for row in rows}
        cells["**all**"] = [sum(column) for column in zip(*cells.values(), strict=True)]
        heads = [*columns, *(["failures before"] if before else [])]
        text.append(f"\n| {title} | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
        text += (f"| {row} | " + " | ".join(f"{n:,}" for n in numbers) + " |" for row, numbers in cells.items())
    return "\n".join(text)


def _headline(counts: Counter[str], what: str) -> str:
    totals: Counter[str] = Counter()
    for key, n in counts.items():
        group, last = key.partition("|")[0], key.rpartition("|")[2]
        totals[f"{group} {last}"] += n
    runs = "; ".join(key.partition("|")[2] for key in sorted(counts) if key.startswith("run|commit"))
    failures = totals["kind failures"] + counts["run|failures"]
    asked = f"{totals['kind cases']:,} cases, {totals['kind asked']:,} calls"
    return f"{what} ({runs or 'now'}): {asked}, {failures:,} failures.\n"


# ------------------------------------------------------------------------------------------------------ looking closely


def show(case: Case) -> str:
    """The description as text."""
    lines = [f"{case.kind}, {case.shape}: query {case.query}"]
    shown = {v: x for v, x in case.evidence.items() if v < 40}
    lines.append(f"values {case.cards[:40]}{' ...' if len(case.cards) > 40 else ''}, evidence {shown}")
    lines += [f"  {i}: {n}" for i, n in enumerate(case.nodes or case.tables)]
    return "\n".join(lines)


def report(case: Case, asked: Iterable[Asked]) -> list[str]:
    """Ask a case in every way given, and print what came out; the labels of the ways that failed."""
    truth, model, failed = oracle(case), to_model(case), []
    best = truth.ranked
    print(f"the oracle: error {truth.error:.3g}, size of the logs {truth.size:.3g}, {len(best)} possible states")
    for value, state in best[:8]:
        print(f"  {state}: {double(value)!r} ({double(value - best[0][0]):.6g} from the best)")
    for way in asked:
        status, result = ask(model, case, way, 5.0)
        wrong = judge(case, truth, way, status, result)
        answer = result
        if isinstance(result, mm.Result):
            states = [state_of(case, ranked.state) for ranked in result.top]
            answer = f"{states} {result.log_prob!r} <= {result.log_upper!r}"
        print(f"{'WRONG' if wrong else 'right'} {way.label} {way.keywords}: {status} {answer} {wrong}")
        if wrong:
            failed.append(way.label)
    if not case.tables:
        wrong = judge_queries(case, truth, model)
        print(f"marginals: {wrong or 'right'}")
        if wrong:
            failed.append("marginals")
    return failed


def smaller(case: Case) -> Iterator[Case]:
    """Cases with something less."""
    if case.tables:
        for v in [v for v in case.query if len(case.query) > 1]:
            yield case._replace(query=tuple(q for q in case.query if q != v))
        if not case.shape.startswith("bayes"):
            for i, table in enumerate(case.tables):
                ones = table._replace(numbers=(1.0,) * len(table.numbers))
                for j, x in enumerate(table.numbers):
                    for rounder in (1.0, float(f"{x:.1g}")):
                        if x not in (0.0, 1.0, rounder):
                            numbers = (*table.numbers[:j], rounder, *table.numbers[j + 1 :])
                            yield case._replace(
                                tables=(*case.tables[:i], table._replace(numbers=numbers), *case.tables[i + 1 :])
                            )
                if len(case.tables) > 1 and table != ones:
                    yield case._replace(tables=(*case.tables[:i], ones, *case.tables[i + 1 :]))
                rest = case.tables[:i] + case.tables[i + 1 :]
                if {v for t in rest for v in t.scope} == {v for t in case.tables for v in t.scope}:
                    yield case._replace(tables=rest)
        return
    for i, n in enumerate(case.nodes):
        if isinstance(n, Leaf):
            if n.kind in (BULK, BLOCK):
                continue
            for j, p in enumerate(n.params):
                if n.kind in (BERNOULLI, CATEGORICAL) and p not in (0.0, -math.inf) and p != float(f"{p:.2g}"):
                    for rounder in (0.0, -math.inf, float(f"{p:.2g}")):
                        params = (*n.params[:j], rounder, *n.params[j + 1 :])
                        yield case._replace(nodes=(*case.nodes[:i], n._replace(params=params), *case.nodes[i + 1 :]))
            continue
        if len(n.children) > 1 and isinstance(n, Sum):
            for j in range(len(n.children)):
                less = Sum(n.children[:j] + n.children[j + 1 :], n.weights[:j] + n.weights[j + 1 :])
                yield _again(case, (*case.nodes[:i], less, *case.nodes[i + 1 :]))
        if len(n.children) == 1:
            bypass = [
                m
                if isinstance(m, Leaf)
                else m._replace(children=tuple(n.children[0] if c == i else c for c in m.children))
                for m in case.nodes
            ]
            yield _again(case, bypass) if i < len(case.nodes) - 1 else _again(case, case.nodes[:-1], n.children[0])
        if isinstance(n, Sum):
            for j, w in enumerate(n.weights):
                if w not in (0.0, -math.inf) and w != float(f"{w:.2g}"):
                    for rounder in (0.0, float(f"{w:.2g}")):
                        weights = (*n.weights[:j], rounder, *n.weights[j + 1 :])
                        yield case._replace(nodes=(*case.nodes[:i], n._replace(weights=weights), *case.nodes[i + 1 :]))
    # A variable goes altogether: its leaves leave the products they are in.
    for v in sorted({n.var for n in case.nodes if isinstance(n, Leaf)}):
        gone = {i for i, n in enumerate(case.nodes) if isinstance(n, Leaf) and n.var == v}
        made: list[Leaf | Product | Sum] = []
        for n in case.nodes:
            if isinstance(n, Product) and set(n.children) - gone:
                n = Product(tuple(c for c in n.children if c not in gone))
            made.append(n)
        bare = any(isinstance(n, Sum) and gone & set(n.children) for n in made)
        query = tuple(q for q in case.query if q != v)
        if not bare and not any(isinstance(n, Product) and gone & set(n.children) for n in made):
            yield _again(case._replace(query=query), made)


def _again(case: Case, nodes: Sequence[Leaf | Product | Sum], root: int | None = None) -> Case:
    kept = _reachable(nodes, len(nodes) - 1 if root is None else root)
    used: set[int] = set()
    for n in kept:
        if isinstance(n, Leaf):
            size = sum(c for _, c in n.params) if n.kind == BULK else 1
            used |= set(range(n.var, n.var + size))
    return case._replace(
        nodes=kept,
        query=tuple(q for q in case.query if q in used),
        evidence={v: x for v, x in case.evidence.items() if v in used},
    )


def shrink(case: Case, way: Asked) -> Case:
    """The smallest case found that still fails in this way, and with the same sort of failure."""

    def wrong(candidate: Case) -> str:
        try:
            truth, model = oracle(candidate), to_model(candidate)
        except Exception:
            return ""
        if way.method == "marginals":
            found = judge_queries(candidate, truth, model)
        else:
            found = judge(candidate, truth, way, *ask(model, candidate, way, 5.0))
        return " ".join(found.split()[:2])

    what = wrong(case)
    shrunk = bool(what)
    while shrunk:
        shrunk = False
        for candidate in smaller(case):
            if wrong(candidate) == what:
                case, shrunk = candidate, True
                break
    return case


def main() -> int:
    """Run what was asked for; 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--kinds", nargs="*", default=[], choices=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--log", type=Path, help="append JSON lines: one a failure, one a thousand cases")
    parser.add_argument("--show", type=int, default=30, help="how many failures to print")
    parser.add_argument("--replay", metavar="SEED:INDEX", help="ask one case in every way and show it")
    parser.add_argument("--shrink", metavar="SEED:INDEX", help="the same, made as small as it still fails")
    parser.add_argument("--ways", type=int, default=1, help="shrink for so many of the ways that fail")
    parser.add_argument("--table", type=Path, nargs="+", metavar="LOG", help="print the tables of logs")
    parser.add_argument("--found", type=Path, nargs="+", metavar="LOG", help="with --table: logs of older code")
    options = parser.parse_args()
    if options.table:
        print(tables(read_log(options.table), read_log(options.found) if options.found else None))
        return 0
    if options.replay or options.shrink:
        seed, index = map(int, (options.replay or options.shrink).split(":"))
        case, rng = make_case(seed, index, options.kinds)
        state = rng.getstate()
        first = ways(case, rng, 3)
        rng.setstate(state)
        asked = first + ways(case, rng, None)
        unasked = Asked("marginals", "marginals", {})
        print(show(case))
        failed = report(case, asked)
        if options.shrink:
            for label in list(dict.fromkeys(failed))[: options.ways]:
                way = next((w for w in asked if w.label == label), unasked)
                small = shrink(case, way)
                print(f"\n== {label}, made small ==\n{show(small)}")
                report(small, [] if way is unasked else [way])
        return 1 if failed else 0
    return 1 if campaign(options) else 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
