"""Mixtures of Chow-Liu trees with different structures, fitted by EM (Meila and Jordan, JMLR 2000).

Each component is a tree of its own over the columns, so the scopes of the circuit cross, and marginal MAP on it is
solved by branch and bound. Missing cells are summed out: a kernel goes up and down the tree of a component for each
row, over the values that are still possible at each column, which is one value where the cell is present. Trees are
learned from the pairs of cells that are present, rows counted by their responsibilities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from margmap.circuit import INDICATOR, SUM, Circuit, FloatArray, IntArray, LongArray
from margmap.circuit.layers import Layers
from margmap.errors import DataError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits
from margmap.foundation.slices import starts
from margmap.learn.cells import Cells, pair_counts, read_cells
from margmap.learn.chow_liu_tree import RootedTree, check_smoothing, information, root_at_centre, spanning_tree
from margmap.learn.mixture_em import clusters
from margmap.learn.strudel_growth import Growth, Learned, OnProgress, Reason, check_option
from margmap.learn.tree_reading import read_places

# The tables of all components may have this many entries.
_MOST_ENTRIES = 1 << 27
# The weight of all rows together in a component's parameters is at least this while its tree is learned.
_LEAST_STRENGTH = 0.1


class Component(NamedTuple):
    """A tree, and p(value x of column v | value y of its parent) in ``table[v, y, x]``; the root's y is 0."""

    tree: RootedTree
    table: FloatArray


def trees(data: Any, valid: Any = None, k: int = 20, **options: Any) -> Circuit:
    """Learn a mixture of ``k`` Chow-Liu trees, with missing cells where the data has them.

    :func:`learn_trees` has the options.

    >>> from margmap.learn import trees
    >>> trees([[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, None, 1]], k=2).properties.smooth
    True
    """
    return learn_trees(data, valid, k, **options).circuit


def learn_trees(
    data: Any,
    valid: Any = None,
    k: int = 20,
    *,
    iterations: int = 50,
    structure_iterations: int = 10,
    tolerance: float = 1e-4,
    strength: float = 5.0,
    alpha: float = 1.0,
    patience: int | None = 5,
    time_limit: float | None = None,
    seed: int = 0,
    resume: Circuit | None = None,
    on_progress: OnProgress | None = None,
) -> Learned:
    """Learn a mixture of ``k`` Chow-Liu trees by EM, and say how it went.

    Components start from clusters of the rows. In the first ``structure_iterations``, or until no tree changes, trees
    and parameters are learned anew from the pairs of cells that are present; then the trees stay, and each iteration is
    exact EM: with ``strength=0`` the likelihood of the rows does not fall. A parameter is (expected count +
    ``strength`` * that of all rows together) over the sum of that; ``alpha`` is added to the counts of pairs of values.
    EM ends after ``iterations``, or when the mean log-likelihood gains less than ``tolerance``; with ``valid`` the
    mixture that was best on those rows is returned, and the run ends after ``patience`` iterations without a better
    one. ``time_limit`` is in seconds; Ctrl-C ends the run in the same way.

    ``resume`` is a mixture of trees that was learned before, also one loaded from a file, to go on from: it has the
    variables and the trees, which stay, so that ``k``, ``structure_iterations`` and ``seed`` say nothing.
    """
    check_smoothing(alpha, strength)
    check_option("k", k, 1)
    for name, count in (("iterations", iterations), ("structure_iterations", structure_iterations)):
        check_option(name, count, 1)
    if time_limit is not None:
        check_option("time_limit", time_limit, 0.0)
    limits = Limits(None if time_limit is None else float(time_limit))
    with limits.not_counting_compilation(), limits.catching_interrupts():
        cells, checked, _ = read_cells(data, valid, variables=None if resume is None else resume.variables)
        if cells.continuous.size:
            column = cells.variables[int(cells.continuous[0])].name
            raise DataError(f"column {column!r} is real numbers, and trees need discrete columns: use bins, or hclt")
        begun = None if resume is None else _read_mixture(resume)
        k = k if begun is None else len(begun[0])
        run = _Run(cells, checked, k, float(strength), float(alpha), limits, on_progress)
        if begun is not None:
            run.components, run.log_weight = begun
        try:
            reason = run.to_the_end(seed, iterations, structure_iterations, tolerance, patience)
        except KeyboardInterrupt:  # of on_progress
            reason = "interrupted"
    return Learned(run.circuit(), reason, run.best, run.history[-1], run.history)


def _read_mixture(circuit: Circuit) -> tuple[list[Component], FloatArray]:
    """The components of a mixture of trees that was learned before, and the logarithms of their weights."""
    first, last = (int(circuit.start[circuit.root + i]) for i in range(2))
    roots = circuit.child[first:last]
    if circuit.kind[circuit.root] == SUM and (circuit.kind[roots] == SUM).any():
        return [_read_component(circuit, root) for root in roots.tolist()], circuit.log_weight[first:last].copy()
    return [_read_component(circuit, circuit.root)], np.zeros(1)


def _read_component(circuit: Circuit, root: int) -> Component:
    what = "a mixture of trees"
    places = read_places(circuit, root, what)
    cardinality = circuit.cardinality
    most = int(cardinality.max())
    parent = np.full(cardinality.size, -1, dtype=np.int32)
    table = np.zeros((cardinality.size, most, most))
    values: list[LongArray] = []
    for column, above, leaf, log_weight in places:
        if (circuit.kind[leaf] != INDICATOR).any():
            raise DataError(f"the circuit to go on from is not {what}: node {int(leaf[0])} is a leaf, but no indicator")
        values.append(circuit.param[circuit.param_start[leaf]].astype(np.int64))
        over = np.zeros(1, dtype=np.int64) if above < 0 else values[above]
        table[column][np.ix_(over, values[-1])] = np.exp(log_weight)
        parent[column] = -1 if above < 0 else places[above].column
    return Component(RootedTree(parent, np.array([place.column for place in places], dtype=np.int32)), table)


class _Run:
    """A run of EM: components, their weights, responsibilities, and the best mixture so far."""

    def __init__(
        self,
        cells: Cells,
        valid: Cells | None,
        k: int,
        strength: float,
        alpha: float,
        limits: Limits,
        report: OnProgress | None,
    ) -> None:
        self.cells, self.valid, self.k = cells, valid, k
        self.strength, self.alpha, self.limits, self.report = strength, alpha, limits, report
        self.cardinality = cells.cardinality
        self.first = starts(self.cardinality)
        most = int(self.cardinality.max())
        if k * self.cardinality.size * most * most > _MOST_ENTRIES:
            raise DataError(
                f"{k} trees over {self.cardinality.size} columns of up to {most} values have too large tables: "
                "use fewer trees, or fewer bins"
            )
        self.joint = pair_counts(cells.codes, self.cardinality)
        self.components: list[Component] = []
        self.log_weight: FloatArray = np.full(k, -np.log(k))
        self.history: list[Growth] = []
        self.best: Growth
        self.kept: tuple[list[Component], FloatArray]

    def to_the_end(
        self, seed: int, iterations: int, structure_iterations: int, tolerance: float, patience: int | None
    ) -> Reason:
        """Iterate until something ends the run, and say what."""
        structured = not self.components
        share = self.beginning(seed) if structured else self.responsibilities(self.cells)[0]
        for number in range(1, iterations + 1):
            before, fixed = self.components, not structured
            self.components = [self.component(c, share[:, c], structured) for c in range(self.k)]
            if structured:
                same = before and all(
                    np.array_equal(a.tree.parent, b.tree.parent) for a, b in zip(before, self.components, strict=True)
                )
                structured = not same and number < structure_iterations
            mass = share.sum(axis=0) + self.strength / self.k
            with np.errstate(divide="ignore"):
                self.log_weight = np.log(mass / mass.sum())
            share, train = self.responsibilities(self.cells)
            self.look(number, train)
            gained = train - self.history[-2].train if number > 1 else np.inf
            if self.limits.interrupted:
                return "interrupted"
            if self.limits.late(0.0):
                return "time_limit"
            if self.valid is not None and patience is not None and number - self.best.iteration >= patience:
                return "patience"
            if fixed and gained < tolerance:
                return "exhausted"
        return "iterations"

    def beginning(self, seed: int) -> FloatArray:
        """Rows shared out over clusters; for this only, a missing cell is the most frequent value of its column."""
        diagonal = np.diag(self.joint)
        mode = [int(np.argmax(diagonal[a:b])) for a, b in zip(self.first[:-1], self.first[1:], strict=True)]
        filled = np.where(self.cells.codes < 0, mode, self.cells.codes)
        labels = clusters(filled, self.cardinality, self.k, np.random.default_rng(seed))
        return np.asarray(np.eye(self.k)[labels])

    def component(self, number: int, share: FloatArray, structured: bool) -> Component:
        """What fits the rows best, each counted by its share."""
        if structured:
            joint = pair_counts(self.cells.codes, self.cardinality, share)
            tree = root_at_centre(spanning_tree(information(joint, self.first, self.alpha)))
            # Never quite without smoothing: two values may be in a row only where one of their cells is missing.
            strength = max(self.strength, _LEAST_STRENGTH)
            return Component(tree, self.smoothed(tree, self.gathered(tree, joint), strength))
        tree, table = self.components[number]
        counts = np.zeros_like(table)
        _count(self.cells.codes, self.cardinality, tree.order, tree.parent, table, share, counts)
        return Component(tree, self.smoothed(tree, counts, self.strength))

    def gathered(self, tree: RootedTree, joint: FloatArray) -> FloatArray:
        """The counts of a tree's pairs of columns, out of those of all pairs."""
        most = int(self.cardinality.max())
        counts = np.zeros((self.cardinality.size, most, most))
        for v, p in enumerate(tree.parent.tolist()):
            size, at = int(self.cardinality[v]), int(self.first[v])
            if p < 0:
                counts[v, 0, :size] = np.diag(joint)[at : at + size]
            else:
                own = joint[self.first[p] : self.first[p + 1], at : at + size]
                counts[v, : own.shape[0], :size] = own
        return counts

    def smoothed(self, tree: RootedTree, counts: FloatArray, strength: float) -> FloatArray:
        """Parameters: counts and, weighted by ``strength``, the shares among all rows; even where nothing is known."""
        valid = np.arange(counts.shape[2]) < self.cardinality[:, None]
        even = np.where(valid, 1.0 / self.cardinality[:, None], 0.0)[:, None]
        shared = self.gathered(tree, self.joint) + even
        shared /= shared.sum(axis=2, keepdims=True)
        raised = counts + strength * shared
        mass = raised.sum(axis=2, keepdims=True)
        return np.ascontiguousarray(np.where(mass > 0, raised / np.where(mass > 0, mass, 1.0), even))

    def responsibilities(self, cells: Cells) -> tuple[FloatArray, float]:
        """The posterior of the components for each row, and the mean log-likelihood."""
        log = np.empty((self.k, len(cells.codes)))
        for c, (tree, table) in enumerate(self.components):
            _log_values(cells.codes, self.cardinality, tree.order, tree.parent, table, log[c])
        log += self.log_weight[:, None]
        top = log.max(axis=0)
        top[~np.isfinite(top)] = 0.0
        share = np.exp(log - top)
        mass = share.sum(axis=0)
        with np.errstate(divide="ignore"):
            mean = float((np.log(mass) + top).mean())
        return np.ascontiguousarray((share / np.where(mass > 0, mass, 1.0)).T), mean

    def look(self, number: int, train: float) -> None:
        """Compare with the best mixture so far."""
        value = np.nan if self.valid is None else self.responsibilities(self.valid)[1]
        edges = self.k * int((self.cardinality**2).sum())
        now = Growth(number, train, value, edges, self.limits.clock() - self.limits.begun)
        self.history.append(now)
        if number == 1 or self.valid is None or value > self.best.valid:
            self.best, self.kept = now, (self.components, self.log_weight)
        if self.report is not None:
            self.report(now)

    def circuit(self) -> Circuit:
        """The best mixture: one sum over trees that share their indicators."""
        layers = Layers()
        columns = range(self.cardinality.size)
        value = [layers.leaves(INDICATOR, v, np.arange(self.cardinality[v])[:, None]) for v in columns]
        components, log_weight = self.kept
        roots = [self._root(layers, value, component) for component in components]
        top = layers.sums(np.array(roots), log_weight)
        return layers.circuit(self.cells.variables, int(top))

    def _root(self, layers: Layers, value: list[LongArray], component: Component) -> int:
        tree, table = component
        children = tree.children()
        above: dict[int, LongArray] = {}
        for v in reversed(tree.order.tolist()):
            states = layers.products(np.stack([value[v], *(above.pop(c) for c in children[v])], axis=-1))
            p = int(tree.parent[v])
            rows = table[v, : int(self.cardinality[p]) if p >= 0 else 1, : int(self.cardinality[v])]
            with np.errstate(divide="ignore"):
                above[v] = layers.sums(np.broadcast_to(states, rows.shape), np.log(rows))
        return int(above[int(tree.order[0])][0])


@kernel
def _up(
    codes: IntArray,
    cardinality: LongArray,
    order: IntArray,
    parent: IntArray,
    table: FloatArray,
    value: FloatArray,
    message: FloatArray,
) -> float:
    """The log-likelihood of one row; normalised values and messages are left behind."""
    log = 0.0
    for v in order:
        if codes[v] >= 0:
            value[v, codes[v]] = 1.0
        else:
            for x in range(cardinality[v]):
                value[v, x] = 1.0
    for at in range(order.size - 1, -1, -1):
        v = order[at]
        lo, hi = (codes[v], codes[v] + 1) if codes[v] >= 0 else (0, cardinality[v])
        total = 0.0
        for x in range(lo, hi):
            total += value[v, x]
        if total <= 0.0:
            return -np.inf
        log += np.log(total)
        for x in range(lo, hi):
            value[v, x] /= total
        p = parent[v]
        if p < 0:
            mass = 0.0
            for x in range(lo, hi):
                mass += table[v, 0, x] * value[v, x]
            return float(log + np.log(mass))
        first, last = (codes[p], codes[p] + 1) if codes[p] >= 0 else (0, cardinality[p])
        for y in range(first, last):
            mass = 0.0
            for x in range(lo, hi):
                mass += table[v, y, x] * value[v, x]
            message[v, y] = mass
            value[p, y] *= mass
    return log


@kernel
def _log_values(
    codes: IntArray, cardinality: LongArray, order: IntArray, parent: IntArray, table: FloatArray, out: FloatArray
) -> None:
    value, message = np.zeros(table.shape[:2]), np.zeros(table.shape[:2])
    for row in range(codes.shape[0]):
        out[row] = _up(codes[row], cardinality, order, parent, table, value, message)


@kernel
def _count(
    codes: IntArray,
    cardinality: LongArray,
    order: IntArray,
    parent: IntArray,
    table: FloatArray,
    share: FloatArray,
    counts: FloatArray,
) -> None:
    """Add the expected counts of pairs of values of each column and its parent, rows counted by their share."""
    value, message, posterior = np.zeros(table.shape[:2]), np.zeros(table.shape[:2]), np.zeros(table.shape[:2])
    for row in range(codes.shape[0]):
        if share[row] <= 0.0:
            continue
        code = codes[row]
        if _up(code, cardinality, order, parent, table, value, message) == -np.inf:
            continue
        for v in order:
            lo, hi = (code[v], code[v] + 1) if code[v] >= 0 else (0, cardinality[v])
            p = parent[v]
            if p < 0:
                total = 0.0
                for x in range(lo, hi):
                    total += table[v, 0, x] * value[v, x]
                for x in range(lo, hi):
                    posterior[v, x] = table[v, 0, x] * value[v, x] / total
                    counts[v, 0, x] += share[row] * posterior[v, x]
                continue
            first, last = (code[p], code[p] + 1) if code[p] >= 0 else (0, cardinality[p])
            for x in range(lo, hi):
                posterior[v, x] = 0.0
            for y in range(first, last):
                if posterior[p, y] > 0.0:
                    factor = posterior[p, y] / message[v, y]
                    for x in range(lo, hi):
                        both = factor * table[v, y, x] * value[v, x]
                        posterior[v, x] += both
                        counts[v, y, x] += share[row] * both
