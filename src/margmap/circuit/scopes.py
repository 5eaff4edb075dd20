"""Scopes: which variables lie below each node, each distinct set of them once; and how scopes nest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit.arrays import Bits, IntArray, KindArray, LongArray
from margmap.circuit.circuit import Circuit
from margmap.circuit.leaves import PRODUCT, SUM
from margmap.foundation.bits import same_bits, slot_of, unite
from margmap.foundation.jit import kernel

_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


class Scopes(NamedTuple):
    """The scope of node ``n`` is row ``id[n]`` of ``bits``; equal scopes have equal ids."""

    id: IntArray
    bits: Bits

    def meeting(self, columns: Sequence[int]) -> NDArray[np.bool_]:
        """Which scopes have some of these variables."""
        return np.asarray(self._common(columns).any(axis=1))

    def within(self, columns: Sequence[int]) -> IntArray:
        """For each scope the first that has the same of these variables."""
        return _same_scopes(self._common(columns))

    def _common(self, columns: Sequence[int]) -> Bits:
        flags = np.zeros(64 * self.bits.shape[1], dtype=np.bool_)
        flags[list(columns)] = True
        common: Bits = self.bits & np.packbits(flags, bitorder="little").view(np.uint64)
        return common

    def variables(self, node: int) -> list[int]:
        """The numbers of the variables below a node."""
        return members(self.bits[self.id[node]])


def find_scopes(circuit: Circuit) -> Scopes:
    """The scope of every node, each distinct scope stored once."""
    words = max(1, -(-len(circuit.variables) // 64))
    ids, bits = intern_scopes(circuit.kind, circuit.start, circuit.child, circuit.var, words, False)
    for array in (ids, bits):
        array.setflags(write=False)
    return Scopes(ids, bits)


def scope_tree(bits: Bits) -> LongArray | None:
    """For each scope the smallest one that contains it (-1 at the top); None if two scopes cross."""
    parent, bad = nested(bits)
    return parent if bad < 0 else None


def nested(bits: Bits) -> tuple[LongArray, int]:
    """The same, and a scope that crosses another, or -1."""
    size = scope_sizes(bits)
    parent, bad = _nest_scopes(bits, np.argsort(size, kind="stable"), size, 64 * bits.shape[1])
    return parent, int(bad)


def members(bits: Bits) -> list[int]:
    """The numbers of the bits that are set."""
    return [int(i) for i in np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))]


def scope_sizes(bits: Bits) -> LongArray:
    """How many variables each scope has."""
    rows = max(1, (1 << 17) // bits.shape[1])  # a few at a time: all at once can need gigabytes
    blocks = [bits[first : first + rows].view(np.uint8) for first in range(0, len(bits), rows)]
    return np.concatenate([_ONES[block].sum(axis=1, dtype=np.int64) for block in blocks])


@kernel
def intern_scopes(
    kind: KindArray, start: LongArray, child: IntArray, var: IntArray, words: int, smooth: bool
) -> tuple[IntArray, Bits]:
    """Scopes bottom-up, interned in a hash table so that memory grows with the number of distinct ones.

    Where the circuit is known to be ``smooth``, a sum has the scope of its first child, and the others are not read.
    A node whose children have the scopes that those of the last new scope had, one by one, has that scope too.
    """
    n = kind.size
    last = -1
    ids = np.zeros(n, dtype=np.int32)
    bits = np.zeros((64, words), dtype=np.uint64)
    count = 0
    size = 256
    slots = np.full(size, -1, dtype=np.int32)
    scratch = np.zeros(words, dtype=np.uint64)
    for i in range(n):
        if kind[i] >= PRODUCT:
            same = True
            first = ids[child[start[i]]]
            for e in range(start[i] + 1, start[i] + 1 if smooth and kind[i] == SUM else start[i + 1]):
                if ids[child[e]] != first:
                    same = False
                    break
            if same:
                ids[i] = first
                continue
            if last >= 0 and start[i + 1] - start[i] == start[last + 1] - start[last]:
                same = True
                for e in range(start[i + 1] - start[i]):
                    if ids[child[start[i] + e]] != ids[child[start[last] + e]]:
                        same = False
                        break
                if same:
                    ids[i] = ids[last]
                    continue
            last = i
        scratch[:] = 0
        if kind[i] < PRODUCT:
            scratch[var[i] >> 6] |= np.uint64(1) << np.uint64(var[i] & 63)
        for e in range(start[i], start[i + 1]):
            unite(scratch, bits[ids[child[e]]])
        slot = slot_of(scratch, size)
        while True:
            row = slots[slot]
            if row < 0 or same_bits(bits[row], scratch):
                break
            slot = (slot + 1) & (size - 1)
        if row < 0:
            if count == bits.shape[0]:
                larger = np.zeros((2 * count, words), dtype=np.uint64)
                larger[:count] = bits
                bits = larger
            bits[count] = scratch
            slots[slot] = count
            row = np.int32(count)
            count += 1
            if 2 * count > size:
                size *= 2
                slots = np.full(size, -1, dtype=np.int32)
                for r in range(count):
                    slot = slot_of(bits[r], size)
                    while slots[slot] >= 0:
                        slot = (slot + 1) & (size - 1)
                    slots[slot] = r
        ids[i] = row
    return ids, bits[:count].copy()


@kernel
def _same_scopes(bits: Bits) -> IntArray:
    """For each row of bits the first row that is equal."""
    size = 64
    while size < 2 * bits.shape[0]:
        size *= 2
    same, slots = np.empty(bits.shape[0], dtype=np.int32), np.full(size, -1, dtype=np.int32)
    for s in range(bits.shape[0]):
        slot = slot_of(bits[s], size)
        while slots[slot] >= 0 and not same_bits(bits[slots[slot]], bits[s]):
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = s
        same[s] = slots[slot]
    return same


@kernel
def number_by_appearance(ids: IntArray, most: int) -> int:
    """Number the scopes of nodes anew, in place, in the order of the nodes; how many there are.

    All numbers before are under ``most``.
    """
    count, number = 0, np.full(most, -1, dtype=np.int32)
    for i in range(ids.size):
        if number[ids[i]] < 0:
            number[ids[i]] = count
            count += 1
        ids[i] = number[ids[i]]
    return count


@kernel
def _nest_scopes(bits: Bits, order: LongArray, size: LongArray, variables: int) -> tuple[LongArray, int]:
    """Scopes in order of size: those seen inside a scope must lie in it whole. Also returns a crossing scope or -1."""
    parent = np.full(bits.shape[0], -1, dtype=np.int64)
    top = np.full(variables, -1, dtype=np.int64)  # for each variable the largest scope so far that has it
    inside = np.zeros(bits.shape[0], dtype=np.int64)  # how many variables of an earlier scope lie in this one
    stamp = np.full(bits.shape[0], -1, dtype=np.int64)
    members = np.zeros(variables, dtype=np.int64)
    for s in order:
        count = 0
        for w in range(bits.shape[1]):
            word, v = bits[s, w], 64 * w
            while word:
                if word & np.uint64(1):
                    members[count] = v
                    count += 1
                word >>= np.uint64(1)
                v += 1
        for v in members[:count]:
            t = top[v]
            if t >= 0:
                inside[t] = inside[t] + 1 if stamp[t] == s else 1
                stamp[t] = s
        for v in members[:count]:
            if top[v] >= 0 and inside[top[v]] != size[top[v]]:
                return parent, int(s)
        for v in members[:count]:
            if top[v] >= 0:
                parent[top[v]] = s
            top[v] = s
    return parent, -1
