"""Blocks of query variables, what a circuit sees of each, and the walk over them that writer and checker share.

The blocks are those of a binary tree over the query variables. A product that is not wholly inside a block sees it as
one number, the product of those of its children that are: an *entry* of the block. ``docs/certificates.md`` has the
proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from margmap.certificate.intervals import TINY, UNIT, Pair, pair_of, product_above, raised
from margmap.certificate.upper_circuit import Upper
from margmap.circuit import INDICATOR, PRODUCT, SUM, FloatArray, IntArray, KindArray, LongArray
from margmap.foundation.jit import kernel
from margmap.foundation.matrices import row_products

#: Join the last two blocks: the only token of a tree that is not a variable.
JOIN = -1

# Numbers worked out in one go, for as many pairs of vectors as that allows.
NUMBERS_AT_ONCE = 1 << 20
LANES = 32

# What a thing that is done in Python counts as, in steps of compiled code: an item of a list, and a visit of a block.
ITEM, VISIT = 100, 10_000


class Refused(Exception):
    """The certificate does not prove its claim; the message says where it fails."""


class TooMuchWork(Refused):
    """What was to be done is more than was allowed."""


class Work:
    """Counts what is done in steps: one number read, multiplied or compared. Whoever works takes from it first."""

    def __init__(self, most: int) -> None:
        self.most, self.done = most, 0

    @property
    def remaining(self) -> int:
        """How many steps may still be done, as a number that kernels can take."""
        return max(0, min(self.most - self.done, 1 << 62))

    def take(self, steps: int) -> None:
        """Count steps that are about to be done, or that a kernel which was told what is left has done."""
        self.done += steps
        if self.done > self.most:
            raise TooMuchWork(f"it takes more than max_work={self.most} steps")


class BlockTree(NamedTuple):
    """Blocks in postorder: the parts of block b are ``left[b]`` and b - 1, or its one variable is ``var[b]``."""

    left: list[int]
    parent: list[int]
    var: list[int]


class Block(NamedTuple):
    """How the numbers of a block follow from those of its two parts. The last ``entries`` slots are its entries.

    A product is left entry times right entry (-1: none) times the slots in ``child``; a sum is over slots; an
    indicator has values of the block's variable in ``child``.
    """

    kind: KindArray
    left: IntArray
    right: IntArray
    start: LongArray
    child: IntArray
    weight: FloatArray
    bound: FloatArray
    entries: int


class Cover(NamedTuple):
    """Vectors over the entries of a block, all times 2^exponent."""

    exponent: int
    vectors: FloatArray


class LinearBound(NamedTuple):
    """A bound that is linear in the entries of a block: (constant + weight · entries) * 2^exponent."""

    weight: FloatArray
    constant: float
    exponent: int


def tree_of(tokens: Sequence[int], variables: int) -> BlockTree:
    """The tree that is written as variables and JOINs, each after what it joins."""
    left, var = [-1] * len(tokens), [-1] * len(tokens)
    parent = [-1] * len(tokens)
    open_blocks: list[int] = []
    seen = set()
    for number, token in enumerate(tokens):
        if token == JOIN:
            if len(open_blocks) < 2:
                raise Refused(f"the tree's token {number} joins two blocks where there are none")
            last, left[number] = open_blocks.pop(), open_blocks.pop()
            parent[left[number]] = parent[last] = number
        else:
            if not 0 <= token < variables or token in seen:
                raise Refused(f"the tree's token {number}, {token}, is no variable of the query, or is there twice")
            seen.add(token)
            var[number] = token
        open_blocks.append(number)
    if len(open_blocks) != 1 or len(seen) != variables:
        raise Refused(f"the tree is not one tree over all {variables} variables of the query")
    return BlockTree(left, parent, var)


def blocks_of(upper: Upper, tree: BlockTree, room: int, work: Work) -> tuple[list[Block], bool]:
    """The blocks, and whether the circuit is aligned with the tree: each product splits where its block does.

    A tree that does not fit the circuit makes many entries; more than ``room`` in all are refused.
    """
    work.take(ITEM * (upper.kind.size + upper.child.size + len(tree.var)))
    kind, bound = upper.kind.tolist(), upper.bound.tolist()
    start, child, weight = upper.start.tolist(), upper.child.tolist(), upper.weight.tolist()
    entries = _Entries(tree, bound, room, work)
    nodes: list[list[int]] = [[] for _ in tree.var]
    split: dict[int, _Factors] = {}
    block_of = {v: b for b, v in enumerate(tree.var)}
    for n, k in enumerate(kind):
        if k == INDICATOR:
            b = block_of[int(upper.var[n])]
        elif k == SUM:
            b = entries.home[child[start[n]]]
        else:
            b, split[n] = entries.factorise(child[start[n] : start[n + 1]])
        entries.home.append(b)
        nodes[b].append(n)
    entries.number(len(tree.var) - 1, (-1, -1, (len(kind) - 1,)))
    place = [0] * len(kind)
    made: list[Block] = []
    for here, factored, limits in zip(nodes, entries.known, entries.bound, strict=True):
        rows: list[_Row] = []
        for slot, n in enumerate(here):
            place[n] = slot
            below, weights = child[start[n] : start[n + 1]], weight[start[n] : start[n + 1]]
            if kind[n] == PRODUCT:
                rows.append(_product(split[n], place, bound[n]))
            else:
                slots = below if kind[n] == INDICATOR else [place[c] for c in below]
                rows.append((kind[n], -1, -1, slots, weights, bound[n]))
        rows += [_product(factors, place, limit) for factors, limit in zip(factored, limits, strict=True)]
        made.append(_block(rows, len(factored)))
    return made, all(map(_is_aligned, chain(split.values(), *entries.known)))


# An entry of the left part, one of the right part (-1: none), and nodes that have variables of both.
_Factors: TypeAlias = tuple[int, int, tuple[int, ...]]

# A slot of a block: its kind, left, right, children, weights and bound.
_Row: TypeAlias = tuple[int, int, int, list[int], list[float], float]


class _Entries:
    """The entries of all blocks, each known once, made bottom-up from the products that see them."""

    def __init__(self, tree: BlockTree, node_bound: list[float], room: int, work: Work) -> None:
        self.home: list[int] = []  # the smallest block around each node
        self.known: list[dict[_Factors, int]] = [{} for _ in tree.var]
        self.bound: list[list[float]] = [[] for _ in tree.var]
        self._tree, self._node_bound, self._room, self._work = tree, node_bound, room, work

    def factorise(self, children: list[int]) -> tuple[int, _Factors]:
        """The block at which the last children of a product come together, and what comes together there."""
        waiting: dict[int, tuple[list[int], list[int]]] = {}  # block: its left and right entry, its nodes
        for c in children:
            waiting.setdefault(self.home[c], ([-1, -1], []))[1].append(c)
        order = sorted(waiting)
        while True:
            b = heappop(order)
            (left, right), here = waiting.pop(b)
            if not order:
                return b, (left, right, tuple(here))
            above = self._tree.parent[b]
            if above not in waiting:
                waiting[above] = ([-1, -1], [])
                heappush(order, above)
            waiting[above][0][self._tree.left[above] != b] = self.number(b, (left, right, tuple(here)))

    def number(self, b: int, factors: _Factors) -> int:
        """The number of an entry, which is made if it is not known."""
        self._work.take(ITEM)
        self._room -= 1
        if self._room < 0:
            raise Refused("the tree does not fit the circuit: its blocks have too many entries")
        found = self.known[b].setdefault(factors, len(self.known[b]))
        if found == len(self.bound[b]):
            left, right, here = factors
            limits = [self._node_bound[n] for n in here]
            limits += [self.bound[part][at] for part, at in ((self._tree.left[b], left), (b - 1, right)) if at >= 0]
            self.bound[b].append(raised(math.prod(limits), len(limits)))
        return found


def _is_aligned(factors: _Factors) -> bool:
    """Whether a product, or an entry, splits where its block does, or is one node of the block."""
    left, right, here = factors
    return (left >= 0) == (right >= 0) and len(here) == (left < 0)


def _product(factors: _Factors, place: list[int], bound: float) -> _Row:
    left, right, here = factors
    return PRODUCT, left, right, [place[n] for n in here], [1.0] * len(here), bound


def _block(rows: list[_Row], entries: int) -> Block:
    kind, left, right, child, weight, bound = zip(*rows, strict=True)
    return Block(
        np.array(kind, dtype=np.int8),
        np.array(left, dtype=np.int32),
        np.array(right, dtype=np.int32),
        np.cumsum([0, *map(len, child)], dtype=np.int64),
        np.array([*chain(*child)], dtype=np.int32),
        np.array([*chain(*weight)], dtype=np.float64),
        np.array(bound, dtype=np.float64),
        entries,
    )


class Candidates:
    """What the restrictions of states to one block can look like: all values, or all pairs of the parts' vectors."""

    def __init__(
        self, block: Block, aligned: bool, form: LinearBound, parts: Sequence[Cover], values: int, work: Work
    ) -> None:
        self.block, self.form, self._work = block, form, work
        #: All candidates are times 2^exponent.
        self.exponent = sum(part.exponent for part in parts)
        nothing = np.zeros((values, 0))
        self._first, self._second = (parts[0].vectors, parts[1].vectors) if parts else (nothing, np.zeros((1, 0)))
        self._bilinear = aligned and bool(parts)
        self._steps = _steps_of(block)

    def floor(self, threshold: Pair) -> float:
        """The threshold on the scale of the candidates' bounds; 0 if it is too small for that scale."""
        shift = threshold[1] - self.form.exponent - self.exponent
        return math.ldexp(threshold[0], min(shift, 1000)) if shift > -990 else 0.0

    def above(self, floor: float) -> Iterator[tuple[IntArray, IntArray, FloatArray, float]]:
        """Pairs whose bound is above the floor, their bounds, and the largest bound that is not; piece by piece."""
        columns = max(1, min(len(self._second), NUMBERS_AT_ONCE // self.block.entries))
        rows = max(1, NUMBERS_AT_ONCE // (columns * self.block.entries))
        self._work.take(self.block.kind.size + self.block.child.size)
        weight = _backward(self.block, self.form.weight)
        for begin in range(0, len(self._first), rows):
            first = mixed = self._first[begin : begin + rows]
            if self._bilinear:
                self._work.take(len(first) * (self.block.kind.size + self._second.shape[1]))
                mixed = _mixed(self.block, weight, first, self._second.shape[1])
            for column in range(0, len(self._second), columns):
                second = self._second[column : column + columns]
                if self._bilinear:
                    self._work.take(len(first) * len(second) * (second.shape[1] + 1))
                    bounds = _pair_bounds(mixed, second, self.block.kind.size)
                else:
                    size = len(first) * len(second)
                    self._work.take(size * (self.block.entries + 1))
                    pair = np.arange(size, dtype=np.int32)
                    found = self.evaluate(begin + pair // len(second), column + pair % len(second))
                    bounds = _linear(found, self.form.weight, self.form.constant).reshape(len(first), -1)
                over = ~(bounds <= floor)
                at, to = (index.astype(np.int32) for index in np.nonzero(over))
                dropped = float(bounds[~over].max()) if at.size < bounds.size else 0.0
                yield at + begin, to + column, bounds[over], dropped

    def evaluate(self, first: IntArray, second: IntArray) -> FloatArray:
        """Upper bounds of the block's entries, a row for each pair."""
        self._work.take(first.size * self._steps)
        return _evaluate(self.block, self._first, self._second, first, second)


#: Given a block's number and its candidates, the cover that the walk goes on with.
CoverOf = Callable[[int, Candidates], Cover]


def walk(
    blocks: Sequence[Block], aligned: bool, tree: BlockTree, cardinality: IntArray, cover_of: CoverOf, work: Work
) -> None:
    """Visit the blocks depth first, left part first, with the linear bound that holds when a block is entered.

    The bound of a part is made from that of its block when the walk goes down into it: with the plain bounds of the
    other part if that is still to come, with the largest entries of its cover if it has one. The walk ends at the first
    block that needs no vector: then no state is above the threshold.
    """
    forms: list[LinearBound | None] = [None] * len(blocks)
    covers: list[Cover | None] = [None] * len(blocks)
    forms[-1] = LinearBound(np.ones(1), 0.0, 0)
    stack = [(len(blocks) - 1, 0)]
    while stack:
        b, turn = stack.pop()
        form = forms[b]
        assert form is not None
        parts = [] if tree.var[b] >= 0 else [tree.left[b], b - 1]
        if turn < len(parts):
            other = parts[1 - turn]
            cover = covers[other]
            work.take(VISIT + blocks[b].kind.size + blocks[b].child.size + blocks[other].entries)
            if cover is None:
                limit, shift = blocks[other].bound[-blocks[other].entries :], 0
            else:
                work.take(cover.vectors.size)
                limit, shift = cover.vectors.max(axis=0), cover.exponent
            forms[parts[turn]] = _pushed(blocks[b], form, turn == 0, limit, blocks[parts[turn]].entries, shift)
            stack += [(b, turn + 1), (parts[turn], 0)]
            continue
        done = [cover for part in parts if (cover := covers[part]) is not None]
        values = int(cardinality[tree.var[b]]) if not parts else 0
        work.take(VISIT + blocks[b].kind.size)
        found = cover_of(b, Candidates(blocks[b], aligned, form, done, values, work))
        if len(found.vectors) == 0:
            return
        covers[b] = found
        for part in parts:
            covers[part] = forms[part] = None


def _pushed(block: Block, form: LinearBound, to_left: bool, limit: FloatArray, entries: int, shift: int) -> LinearBound:
    weight, constant = _push(block, form.weight, to_left, limit, entries)
    constant = raised(constant + form.constant, 1)
    top = math.frexp(max(float(weight.max()), constant))[1]
    with np.errstate(under="ignore"):
        scaled = np.where(weight > 0, np.maximum(np.ldexp(weight, -top), TINY), 0.0)
    constant = max(math.ldexp(constant, -top), TINY) if constant > 0 else 0.0
    return LinearBound(scaled, constant, form.exponent + top + shift)


def magnitude(bound: float, candidates: Candidates) -> Pair:
    """A bound of candidates as a pair."""
    return pair_of(bound, candidates.form.exponent + candidates.exponent)


def rescaled(vectors: FloatArray, shift: int) -> FloatArray:
    """Vectors times 2^shift, never less."""
    with np.errstate(under="ignore", over="ignore"):
        return np.where(vectors > 0, np.maximum(np.ldexp(vectors, max(min(shift, 4000), -4000)), TINY), 0.0)


def _steps_of(block: Block) -> int:
    """How many steps it takes to evaluate one candidate: a search at an indicator, a visit of every factor or term."""
    size = np.diff(block.start)
    searches = np.where(block.kind == INDICATOR, np.frexp(size)[1], size).sum()
    parts = np.count_nonzero(block.left >= 0) + np.count_nonzero(block.right >= 0)
    return int(searches) + int(parts) + 2 * block.kind.size + block.entries


@kernel
def _backward(b: Block, entry_weight: FloatArray) -> FloatArray:
    """The linear bound in terms of a block's products, for aligned blocks: sums pass their weights on."""
    weight = np.zeros(b.kind.size)
    weight[b.kind.size - b.entries :] = entry_weight
    for s in range(b.kind.size - 1, -1, -1):
        if b.kind[s] != INDICATOR:
            for e in range(b.start[s], b.start[s + 1]):
                weight[b.child[e]] = raised(weight[b.child[e]] + product_above(b.weight[e], weight[s]), 2)
    return weight


@kernel
def _push(
    b: Block, entry_weight: FloatArray, to_left: bool, limit: FloatArray, entries: int
) -> tuple[FloatArray, float]:
    """The linear bound in the entries of one part, those of the other being at most ``limit``.

    A product hands its bound to one factor and takes the others at their bounds: its entry in this part, or else its
    first slot of this block, which has variables of the part too. With neither it adds to the constant.
    """
    weight = np.zeros(b.kind.size)
    weight[b.kind.size - b.entries :] = entry_weight
    result, constant = np.zeros(entries), 0.0
    for s in range(b.kind.size - 1, -1, -1):
        if weight[s] == 0 or b.kind[s] == INDICATOR:
            continue
        if b.kind[s] == SUM:
            for e in range(b.start[s], b.start[s + 1]):
                weight[b.child[e]] = raised(weight[b.child[e]] + product_above(b.weight[e], weight[s]), 2)
            continue
        mine, others = (b.left[s], b.right[s]) if to_left else (b.right[s], b.left[s])
        value = weight[s]
        if others >= 0:
            value = product_above(value, limit[others])
        for e in range(b.start[s] + (mine < 0), b.start[s + 1]):
            value = product_above(value, b.bound[b.child[e]])
        value = raised(value, 2 + b.start[s + 1] - b.start[s])
        if mine >= 0:
            result[mine] = raised(result[mine] + value, 1)
        elif b.start[s + 1] > b.start[s]:
            c = b.child[b.start[s]]
            weight[c] = raised(weight[c] + value, 1)
        else:
            constant = raised(constant + value, 1)
    return result, constant


@kernel
def _mixed(b: Block, weight: FloatArray, first: FloatArray, entries: int) -> FloatArray:
    """The linear bound in the ``entries`` of the right part, for each vector of the left part; not raised yet."""
    mixed = np.zeros((first.shape[0], entries))
    for s in range(b.kind.size):
        if b.kind[s] == PRODUCT and b.left[s] >= 0:
            for r in range(first.shape[0]):
                mixed[r, b.right[s]] += product_above(weight[s], first[r, b.left[s]])
    return mixed


@kernel
def _pair_bounds(mixed: FloatArray, second: FloatArray, slots: int) -> FloatArray:
    """Bounds of all pairs at once: one matrix product, raised by what its roundings and those before it can be."""
    bounds = row_products(mixed, second)
    up = 1.0 + (2 * slots + 2 * second.shape[1] + 4) * UNIT
    for r in range(bounds.shape[0]):
        for q in range(bounds.shape[1]):
            bounds[r, q] = bounds[r, q] * up + second.shape[1] * TINY
    return bounds


@kernel
def _linear(vectors: FloatArray, weight: FloatArray, constant: float) -> FloatArray:
    """The linear bound ``constant`` + ``weight`` · entries of every vector, raised by its roundings."""
    result = np.zeros(vectors.shape[0])
    for r in range(vectors.shape[0]):
        total = constant
        for i in range(weight.size):
            total += product_above(weight[i], vectors[r, i])
        result[r] = raised(total, 2 * weight.size)
    return result


@kernel
def _evaluate(b: Block, first: FloatArray, second: FloatArray, at: IntArray, to: IntArray) -> FloatArray:
    """Upper bounds of a block's entries, a row for every pair, LANES pairs at a time.

    Pair k is vector ``at[k]`` of ``first``, those of the left part, with vector ``to[k]`` of ``second``, those of the
    right part; in a block of one variable ``at[k]`` is its value.
    """
    slots = b.kind.size
    result = np.zeros((at.size, b.entries))
    value = np.zeros((slots, LANES))
    for begin in range(0, at.size, LANES):
        lanes = min(LANES, at.size - begin)
        for s in range(slots):
            size = b.start[s + 1] - b.start[s]
            if b.kind[s] == INDICATOR:
                known = b.child[b.start[s] : b.start[s + 1]]
                for k in range(lanes):
                    i = np.searchsorted(known, at[begin + k])
                    there = i < size and known[i] == at[begin + k]
                    value[s, k] = b.weight[b.start[s] + i] if there else 0.0
                continue
            if b.kind[s] == SUM:
                for k in range(lanes):
                    value[s, k] = 0.0
                for e in range(b.start[s], b.start[s + 1]):
                    for k in range(lanes):
                        value[s, k] += product_above(b.weight[e], value[b.child[e], k])
                operations = 2 * size
            else:
                operations = size - 1
                for k in range(lanes):
                    value[s, k] = 1.0
                if b.left[s] >= 0:
                    operations += 1
                    for k in range(lanes):
                        value[s, k] = first[at[begin + k], b.left[s]]
                if b.right[s] >= 0:
                    operations += 1
                    for k in range(lanes):
                        value[s, k] = product_above(value[s, k], second[to[begin + k], b.right[s]])
                for e in range(b.start[s], b.start[s + 1]):
                    for k in range(lanes):
                        value[s, k] = product_above(value[s, k], value[b.child[e], k])
            if operations > 0:
                for k in range(lanes):
                    value[s, k] = raised(value[s, k], operations)
        for i in range(b.entries):
            for k in range(lanes):
                result[begin + k, i] = value[slots - b.entries + i, k]
    return result


@kernel
def covering(vector: FloatArray, vectors: FloatArray, count: int, hint: int, most: int) -> tuple[int, int]:
    """One of the first ``count`` vectors that is nowhere less, or -1, and how many steps were done.

    The one hinted at is tried first. The search ends without an answer when it has done more than ``most`` steps.
    """
    steps = 0
    for at in range(-1, count):
        r = at if at >= 0 else hint
        if r >= count:
            continue
        larger = True
        steps += 1
        for i in range(vector.size):
            steps += 1
            if not vector[i] <= vectors[r, i]:
                larger = False
                break
        if larger:
            return r, steps
        if steps > most:
            break
    return -1, steps
