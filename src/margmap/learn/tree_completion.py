"""The most likely completion of rows on a tree of latent variables, exactly, many rows in one kernel.

A latent tree, as :mod:`margmap.learn.latent_tree` learns, is small and dense, so that a row's question need not go
through the general solver. For a row, with places the columns of the tree, leaves first:

1. Values up with every asked cell at its best value in each state by itself (an upper bound of what each state can
   say), and with every asked cell summed out (the evidence). Weights down give what the rest of the row can make of
   each state at most, and with sums the posterior of every asked cell, whose best values are a first completion.
2. From the leaves to the root, every place has a set of vectors, what each state says under a combination of values of
   the asked cells below. A vector goes if another is at least as large in every state, or if the upper bound of the
   rest makes no more of it than the first completion has. The best vector at the root is the answer.

This is what the method `frontier` of the solver does, for one shape of circuit. Comparisons are in doubles of a
relative error below 1e-11, which is far within the tolerance of an answer that is called optimal. Rows whose sets
become too large, or whose numbers become too small, are left to the solver.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import GAUSSIAN, Circuit, FloatArray, IntArray, LongArray
from margmap.circuit.leaves import leaf_tables
from margmap.errors import DataError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import TOLERANCE
from margmap.foundation.sorting import descending
from margmap.inference.scaled import scaled
from margmap.learn.latent_passes import LevelTree, level_tree
from margmap.learn.tree_reading import read_places

# Trees of more numbers than that are left to the solver.
_MOST_WEIGHTS = 1 << 26
# Vectors that a row may have in all, combinations that are formed at once, and entries that say where they are from.
_MOST_VECTORS, _MOST_AT_ONCE, _MOST_LINKS = 1 << 12, 1 << 12, 1 << 16
# Rows that a thread takes at once.
_ROWS = 128
# Rounds of making a first completion better.
_ROUNDS = 4
# Within these what is lost below the least double, 1e-308, is far below the rounding of an answer: the largest number
# of a place before it is scaled, what the rest makes of a state, and what the root says.
_SMALLEST_SCALE, _MOST_REST, _LEAST_MASS = 1e-150, 1e60, 1e-60
# A bound must be below the value of a completion by more than rounding, to count.
_SURELY_LESS = 1.0 - 1e-11


class StateTree(NamedTuple):
    """A tree of latent variables in the order of its levels, as matrices for the kernel.

    ``up[i, z, y]`` and ``down[i, y, z]`` are p(state z at place i | state y of its parent), ``leaf[i, x, z]`` is
    p(value x | state z); places of continuous columns have the means and deviations of their states instead.
    """

    tree: LevelTree
    root: FloatArray
    up: FloatArray
    down: FloatArray
    leaf: FloatArray
    size: LongArray
    continuous: LongArray
    mean: FloatArray
    deviation: FloatArray


def state_tree(circuit: Circuit) -> StateTree | None:
    """The tree that a circuit is, or None if it is none, or too large, or not evaluated exactly enough."""
    return circuit.kept(_state_tree)


def _state_tree(circuit: Circuit) -> StateTree | None:
    n = len(circuit.variables)
    if 4 * scaled(circuit).rounding >= TOLERANCE or len(circuit.mentioned) != n:
        return None
    try:
        places = read_places(circuit, circuit.root, "a tree")
    except DataError:
        return None
    latent = max(place.leaf.size for place in places)
    most = int(circuit.cardinality.max(initial=1))
    if n * latent * max(latent, most) > _MOST_WEIGHTS:
        return None
    parent = np.full(n, -1, dtype=np.int32)
    for place in places:
        parent[place.column] = places[place.parent].column if place.parent >= 0 else -1
    tree, of_column = level_tree(parent), {place.column: place for place in places}
    start, table = leaf_tables(circuit)
    root, down = np.zeros(latent), np.zeros((n, latent, latent))
    leaf = np.zeros((n, max(most, 1), latent))
    continuous = np.array([c for c in tree.column.tolist() if circuit.variables[c].continuous], dtype=np.int64)
    mean, deviation = np.zeros((continuous.size, latent)), np.ones((continuous.size, latent))
    for i, column in enumerate(tree.column.tolist()):
        _, _, leaves, log_weight = of_column[column]
        weight, states = np.exp(log_weight), leaves.size
        if i == 0:
            root[:states] = weight[0]
        else:
            down[i, : weight.shape[0], :states] = weight
        at = circuit.param_start[leaves]
        if circuit.kind[leaves[0]] == GAUSSIAN:
            g = int(np.flatnonzero(continuous == column)[0])
            mean[g, :states], deviation[g, :states] = circuit.param[at], circuit.param[at + 1]
        else:
            size = circuit.variables[column].cardinality
            leaf[i, :size, :states] = np.exp(table[start[leaves][:, None] + np.arange(size)]).T
    size_at = np.array([circuit.variables[c].cardinality for c in tree.column.tolist()], dtype=np.int64)
    up = np.ascontiguousarray(down.transpose(0, 2, 1))
    return StateTree(tree, root, up, down, leaf, size_at, continuous, mean, deviation)


class Completions(NamedTuple):
    """For each row: whether it was solved, the values of its asked cells, log p with them and with them summed out."""

    solved: NDArray[np.bool_]
    codes: IntArray
    log_prob: FloatArray
    log_evidence: FloatArray


def complete(given: StateTree, codes: NDArray[Any], asked: NDArray[np.bool_], jobs: int = 1) -> Completions:
    """The most likely values of the asked cells of rows; what is missing elsewhere is summed out.

    ``codes`` are rows as :func:`margmap.learn.encode` makes them: -1 (NaN among real numbers) is missing.
    """
    rows = len(codes)
    found = Completions(
        np.zeros(rows, dtype=np.bool_), np.full(codes.shape, -1, dtype=np.int32), np.zeros(rows), np.zeros(rows)
    )
    parts = [slice(at, min(at + _ROWS, rows)) for at in range(0, rows, _ROWS)]
    if jobs == 1 or len(parts) == 1:
        for part in parts:
            _complete(given, codes, asked, part, found)
        return found
    with ThreadPoolExecutor(jobs) as threads:
        for future in [threads.submit(_complete, given, codes, asked, part, found) for part in parts]:
            future.result()
    return found


def _complete(given: StateTree, codes: NDArray[Any], asked: NDArray[np.bool_], part: slice, out: Completions) -> None:
    """Some rows, in the places of the tree: -1 is summed out, -2 is asked, -3 is a real number that is observed."""
    column = given.tree.column
    rows = codes[part]
    plain = np.where(np.isnan(rows), -1, rows).astype(np.int32) if rows.dtype.kind == "f" else rows.astype(np.int32)
    plain = np.where(asked[part], -2, plain)
    dense, log_dense = np.zeros((given.continuous.size, len(rows), given.root.size)), np.zeros(len(rows))
    number_at = np.full(column.size, -1, dtype=np.int64)
    for g, c in enumerate(given.continuous.tolist()):
        number_at[np.flatnonzero(column == c)[0]] = g
        values = rows[:, c].astype(np.float64)
        away = (values[:, None] - given.mean[g]) / given.deviation[g]
        log = -0.5 * away**2 - np.log(given.deviation[g]) - 0.5 * np.log(2 * np.pi)
        known = ~np.isnan(values)
        top = np.where(known, log.max(axis=1), 0.0)
        dense[g] = np.where(known[:, None], np.exp(log - top[:, None]), 1.0)
        log_dense += top
        plain[:, c] = np.where(known, -3, -1)
    at_place = np.ascontiguousarray(plain[:, column])
    answer = np.empty_like(at_place)
    solved, value, evidence = out.solved[part], out.log_prob[part], out.log_evidence[part]
    tree = given.tree
    _complete_rows(
        tree.first_child, given.root, given.up, given.down, given.leaf, given.size, dense, number_at,
        at_place, answer, solved, value, evidence,
    )  # fmt: skip
    value += log_dense
    evidence += log_dense
    out.codes[part][:, column] = answer


def _steps(first_child: LongArray, root: FloatArray, up: FloatArray, *others: Any) -> float:
    """How many steps the kernel takes, roughly: some passes over the weights for each row."""
    return 20.0 * up.size * len(others[5])


@kernel(work=_steps)
def _complete_rows(
    first_child: LongArray,
    root: FloatArray,
    up: FloatArray,
    down: FloatArray,
    leaf: FloatArray,
    size: LongArray,
    dense: FloatArray,
    number_at: LongArray,
    codes: IntArray,
    answer: IntArray,
    solved: NDArray[np.bool_],
    log_prob: FloatArray,
    log_evidence: FloatArray,
) -> None:
    """Complete each row, all of which use the same room."""
    n, latent = codes.shape[1], root.size
    total = np.zeros((n, latent))
    for i in range(n):
        for x in range(size[i]):
            for z in range(latent):
                total[i, z] += leaf[i, x, z]
    says, message, rest, value = (  # of the leaf, to the parent, of all else to the place, of the place
        np.empty((n, latent)), np.empty((n, latent)), np.empty((n, latent)), np.empty((n, latent))
    )  # fmt: skip
    scale, suffix, trial_code = np.empty(n), np.empty((n + 1, latent)), np.empty(n, dtype=np.int32)
    room = (
        np.empty((_MOST_AT_ONCE, latent)), np.empty(_MOST_AT_ONCE, dtype=np.int64),
        np.empty((_MOST_AT_ONCE, latent)), np.empty((_MOST_AT_ONCE, 2), dtype=np.int64), np.empty(_MOST_AT_ONCE),
    )  # fmt: skip
    sets = (
        np.empty((_MOST_VECTORS, latent)), np.empty(_MOST_VECTORS, dtype=np.int64), np.zeros((n, 2), dtype=np.int64),
        np.empty((_MOST_LINKS, 2), dtype=np.int64),
    )  # fmt: skip
    for r in range(codes.shape[0]):
        code, best = codes[r], answer[r]
        solved[r] = False
        _leaves(code, leaf, total, size, dense[:, r], number_at, False, says)
        log_evidence[r] = _values_up(first_child, root, up, says, message, value, scale)
        if log_evidence[r] == -np.inf:
            continue
        if not _weights_down(first_child, root, down, says, message, scale, suffix, rest):
            continue
        _modes(code, leaf, size, first_child, message, rest, best)
        first = -np.inf
        trial_code[:] = best
        for _ in range(_ROUNDS):  # each cell at its best given the others, as long as that gains
            _leaves(trial_code, leaf, total, size, dense[:, r], number_at, False, says)
            log = _values_up(first_child, root, up, says, message, value, scale)
            if not log > first:
                break
            first = log
            best[:] = trial_code
            if not _weights_down(first_child, root, down, says, message, scale, suffix, rest):
                break
            _modes(code, leaf, size, first_child, message, rest, trial_code)
        _leaves(code, leaf, total, size, dense[:, r], number_at, True, says)
        log = _values_up(first_child, root, up, says, message, value, scale)
        if log == -np.inf or not _weights_down(first_child, root, down, says, message, scale, suffix, rest):
            continue
        shift = 0.0
        for i in range(n):
            shift += np.log(scale[i])
        found = _sweep(
            first_child, up, leaf, size, code, says, message, rest, scale, np.exp(first - shift), suffix, room, sets,
            best,
        )  # fmt: skip
        if found >= 0.0:
            solved[r] = True
            log_prob[r] = max(first, shift + np.log(found)) if found > 0.0 else first


@kernel
def _leaves(
    code: IntArray,
    leaf: FloatArray,
    total: FloatArray,
    size: LongArray,
    dense: FloatArray,
    number_at: LongArray,
    best: bool,
    says: FloatArray,
) -> None:
    """What the leaf of each place says: of an asked cell the largest value in each state, or their sum."""
    for i in range(code.size):
        for z in range(says.shape[1]):
            if number_at[i] >= 0:
                says[i, z] = dense[number_at[i], z]
            elif code[i] >= 0:
                says[i, z] = leaf[i, code[i], z]
            else:
                says[i, z] = total[i, z]
        if best and code[i] == -2:
            for z in range(says.shape[1]):
                says[i, z] = leaf[i, 0, z]
            for x in range(1, size[i]):
                for z in range(says.shape[1]):
                    says[i, z] = max(says[i, z], leaf[i, x, z])


@kernel
def _values_up(
    first_child: LongArray,
    root: FloatArray,
    up: FloatArray,
    says: FloatArray,
    message: FloatArray,
    value: FloatArray,
    scale: FloatArray,
) -> float:
    """The log of what the root says; minus infinity if that is 0 or numbers are too small."""
    n, latent = says.shape
    log = 0.0
    for i in range(n - 1, -1, -1):
        for z in range(latent):
            value[i, z] = says[i, z]
        for c in range(first_child[i], first_child[i + 1]):
            for z in range(latent):
                value[i, z] *= message[c, z]
        largest = 0.0
        for z in range(latent):
            largest = max(largest, value[i, z])
        if not largest > _SMALLEST_SCALE:
            return -np.inf
        scale[i] = largest
        log += np.log(largest)
        for z in range(latent):
            value[i, z] /= largest
        if i > 0:
            _through(up[i], value[i], message[i])
    mass = 0.0
    for z in range(latent):
        mass += root[z] * value[0, z]
    return float(log + np.log(mass)) if mass > _LEAST_MASS else -np.inf


@kernel
def _through(weight: FloatArray, given: FloatArray, out: FloatArray) -> None:
    """A vector times a matrix, row by row of the matrix."""
    latent = given.size
    for y in range(latent):
        out[y] = 0.0
    for z in range(latent):
        factor = given[z]
        if factor != 0.0:
            row = weight[z]
            for y in range(latent):
                out[y] += factor * row[y]


@kernel
def _weights_down(
    first_child: LongArray,
    root: FloatArray,
    down: FloatArray,
    says: FloatArray,
    message: FloatArray,
    scale: FloatArray,
    suffix: FloatArray,
    rest: FloatArray,
) -> bool:
    """What all else makes of each state of each place: their products add up to what the root says, everywhere."""
    n, latent = says.shape
    before = np.empty(latent)
    for z in range(latent):
        rest[0, z] = root[z]
    for i in range(n):
        lo, hi = first_child[i], first_child[i + 1]
        for z in range(latent):
            if rest[i, z] > _MOST_REST:
                return False
            before[z] = rest[i, z] * says[i, z] / scale[i]
        _suffixes(lo, hi, message, suffix)
        for c in range(lo, hi):
            for z in range(latent):
                suffix[c - lo, z] = before[z] * suffix[c - lo + 1, z]
            _through(down[c], suffix[c - lo], rest[c])
            for z in range(latent):
                before[z] *= message[c, z]
    return True


@kernel
def _suffixes(lo: int, hi: int, message: FloatArray, suffix: FloatArray) -> None:
    """``suffix[k]`` is the product of the messages of all children from the k-th."""
    latent = message.shape[1]
    for z in range(latent):
        suffix[hi - lo, z] = 1.0
    for c in range(hi - 1, lo - 1, -1):
        for z in range(latent):
            suffix[c - lo, z] = suffix[c - lo + 1, z] * message[c, z]


@kernel
def _modes(
    code: IntArray,
    leaf: FloatArray,
    size: LongArray,
    first_child: LongArray,
    message: FloatArray,
    rest: FloatArray,
    out: IntArray,
) -> None:
    """The best value of each asked cell by itself, given what is in the messages; other cells as they are."""
    latent = rest.shape[1]
    context = np.empty(latent)
    for i in range(code.size):
        out[i] = code[i]
        if code[i] != -2:
            continue
        for z in range(latent):
            context[z] = rest[i, z]
        for c in range(first_child[i], first_child[i + 1]):
            for z in range(latent):
                context[z] *= message[c, z]
        top = -1.0
        for x in range(size[i]):
            mass = 0.0
            for z in range(latent):
                mass += context[z] * leaf[i, x, z]
            if mass > top:
                top, out[i] = mass, x


@kernel
def _sweep(
    first_child: LongArray,
    up: FloatArray,
    leaf: FloatArray,
    size: LongArray,
    code: IntArray,
    says: FloatArray,
    message: FloatArray,
    rest: FloatArray,
    scale: FloatArray,
    least: float,
    suffix: FloatArray,
    room: tuple[FloatArray, LongArray, FloatArray, LongArray, FloatArray],
    sets: tuple[FloatArray, LongArray, LongArray, LongArray],
    best: IntArray,
) -> float:
    """The sets of vectors from the leaves to the root; the best value there, or -1 if that takes too much.

    A vector of a place is in the unit in which the upper bound of the place has 1 as its largest number. ``least`` is
    what the best completion so far has in the root's unit; ``best`` becomes the one that is found.
    """
    now, now_id, trial, trial_link, key = room
    vector, vector_id, where, link = sets
    n, latent = says.shape
    used = links = 0
    weight = np.empty(latent)
    if least < _LEAST_MASS:
        return -1.0
    enough = least * _SURELY_LESS
    for i in range(n - 1, -1, -1):
        lo, hi = first_child[i], first_child[i + 1]
        asked = code[i] == -2
        below = False
        for c in range(lo, hi):
            below |= where[c, 1] > where[c, 0]
        where[i, 0] = where[i, 1] = used
        if not asked and not below:
            continue
        # The leaf and all children without a choice below, then the others one by one.
        count = size[i] if asked else 1
        if count > _MOST_AT_ONCE or links + count > _MOST_LINKS:
            return -1.0
        for x in range(count):
            for z in range(latent):
                trial[x, z] = (leaf[i, x, z] if asked else says[i, z]) / scale[i]
            trial_link[x, 0], trial_link[x, 1] = (-2 - i, x) if asked else (-1, -1)
        _suffixes(lo, hi, message, suffix)
        c = lo
        while True:
            while c < hi and where[c, 1] == where[c, 0]:
                for k in range(count):
                    for z in range(latent):
                        trial[k, z] *= message[c, z]
                c += 1
            for z in range(latent):
                weight[z] = rest[i, z] * suffix[c - lo, z]
            count, links = _prune(count, trial, trial_link, key, weight, enough, now, now_id, links, link)
            if count == 0 or c == hi:
                break
            many = where[c, 1] - where[c, 0]
            if count * many > _MOST_AT_ONCE or links + count * many > _MOST_LINKS:
                return -1.0
            for k in range(count):
                for j in range(many):
                    at = k * many + j
                    other = vector[where[c, 0] + j]
                    for z in range(latent):
                        trial[at, z] = now[k, z] * other[z]
                    trial_link[at, 0], trial_link[at, 1] = now_id[k], vector_id[where[c, 0] + j]
            count *= many
            c += 1
        if count == 0:
            return 0.0  # nothing is better than the best so far
        if i == 0:
            return _best_of(key[0], now_id[0], link, best)
        if used + count > _MOST_VECTORS:
            return -1.0
        for k in range(count):
            _through(up[i], now[k], vector[used])
            if not _dominated(vector, where[i, 0], used, vector[used]):
                vector_id[used] = now_id[k]
                used += 1
        where[i, 1] = used
    return 0.0  # nothing is asked


@kernel
def _prune(
    count: int,
    trial: FloatArray,
    trial_link: LongArray,
    key: FloatArray,
    weight: FloatArray,
    enough: float,
    now: FloatArray,
    now_id: LongArray,
    links: int,
    link: LongArray,
) -> tuple[int, int]:
    """Keep what can still be best and is not dominated, the most promising first; ``key`` has their bounds then."""
    latent = weight.size
    bound = np.empty(count)
    for k in range(count):
        bound[k] = 0.0
        for z in range(latent):
            bound[k] += weight[z] * trial[k, z]
    kept = 0
    for k in descending(bound):
        if bound[k] < enough:
            break
        if _dominated(now, 0, kept, trial[k]):
            continue
        key[kept] = bound[k]
        for z in range(latent):
            now[kept, z] = trial[k, z]
        a, b = trial_link[k, 0], trial_link[k, 1]
        if a == -1 or b == -1:
            now_id[kept] = max(a, b)
        else:
            link[links, 0], link[links, 1] = a, b
            now_id[kept] = links
            links += 1
        kept += 1
    return kept, links


@kernel
def _dominated(kept: FloatArray, lo: int, hi: int, given: FloatArray) -> bool:
    """Whether one of the vectors that are kept is nowhere less."""
    for k in range(lo, hi):
        less = False
        for z in range(given.size):
            if kept[k, z] < given[z]:
                less = True
                break
        if not less:
            return True
    return False


@kernel
def _best_of(value: float, entry: int, link: LongArray, best: IntArray) -> float:
    """Write the values of the asked cells behind a vector."""
    stack = [entry]
    while len(stack) > 0:
        e = stack.pop()
        if e < 0:
            continue
        a, b = link[e, 0], link[e, 1]
        if a <= -2:
            best[-2 - a] = b
        else:
            stack.append(a)
            stack.append(b)
    return value
