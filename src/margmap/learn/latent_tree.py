"""Hidden Chow-Liu trees (Liu and Van den Broeck, NeurIPS 2021), learned by expectation maximisation.

Every column has a latent variable; the latent variables form the Chow-Liu tree of the columns. EM runs on mini-batches
with a step that shrinks (stepwise EM, Liang and Klein, NAACL 2009), in single precision, because the noise of a batch
is far above its rounding; on all rows at once it is exact EM in double precision, and never lowers the likelihood of
the rows. Missing cells are summed out in the expectation; the tree is learned from the pairs of cells that are present.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import BINOMIAL, CATEGORICAL, GAUSSIAN, Circuit, FloatArray, LongArray
from margmap.circuit.layers import Layers
from margmap.circuit.leaves import leaf_tables
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits
from margmap.foundation.slices import starts
from margmap.interop.arrays import log_binomial
from margmap.learn.cells import Cells, Leaf, pair_counts, read_cells
from margmap.learn.chow_liu_tree import RootedTree, check_smoothing, information, root_at_centre, spanning_tree
from margmap.learn.latent_passes import Counts, Floats, LevelTree, Scratch, counts_down, level_tree, values_up
from margmap.learn.strudel_growth import Growth, Learned, OnProgress, Reason, check_option
from margmap.learn.tree_reading import Place, read_places

# Rows that one thread takes at once: the products are then below what a BLAS shares out over threads of its own.
_TILE = 64
# A batch is always divided into so many parts, so that the result does not depend on the number of cores.
_PARTS = 2
# The standard deviation of a Gaussian leaf is at least this part of its column's.
_LEAST_DEVIATION = 1e-2
# Batches are so small that an epoch has at least so many steps, but not smaller than this.
_LEAST_STEPS, _SMALLEST_BATCH = 10, 8
# How far the counts move towards those of a batch at the beginning of a run, and of one that goes on from a model.
_FIRST_STEP, _RESUMED_STEP = 0.5, 0.1
# A limit of time is not felt before this part of it is over, so that reading the rows does not change the steps.
_SLACK = 0.05
# What the step is multiplied by when it is too large for the validation rows to become more likely.
_SMALLER = 0.25


class Parameters:
    """The distributions of a latent tree, place by place in the order of its levels; EM changes them in place."""

    def __init__(self, root: FloatArray, pair: Floats, leaf: Floats, mean: FloatArray, deviation: FloatArray) -> None:
        #: p(state) of the root, and ``pair[i, y, z]``: p(state z at place i | state y of its parent).
        self.root, self.pair = root, pair
        #: ``leaf[i, x, z]``: p(value x | state z at place i); the last row, all 1, is that of a missing cell.
        self.leaf = leaf
        #: Of continuous columns, in units of the column's own mean and deviation.
        self.mean, self.deviation = mean, deviation

    def copy(self) -> Parameters:
        """The same numbers in arrays of their own."""
        arrays = (self.root, self.pair, self.leaf, self.mean, self.deviation)
        return Parameters(*(array.copy() for array in arrays))


class Rows:
    """Rows in the order of a tree's places: codes (the last number is missing), and standardised reals."""

    def __init__(self, cells: Cells, tree: LevelTree, centre: FloatArray, spread: FloatArray) -> None:
        missing = max(int(cells.cardinality.max()), 1)
        codes = cells.codes[:, tree.column]
        self.codes = np.where(codes < 0, missing, codes).astype(np.int16)
        self.reals = (cells.reals - centre) / spread
        # The density of a value is that of the standardised one, divided by the spread.
        self.log_scale = -(~np.isnan(cells.reals) * np.log(spread)).sum(axis=1)
        self.number = len(codes)


class LatentTree:
    """A latent tree and what is fixed about it: variables, tree, kinds of leaves, smoothing."""

    def __init__(self, cells: Cells, tree: LevelTree, leaves: tuple[Leaf, ...], pseudocount: float) -> None:
        self.variables, self.tree, self.leaves, self.pseudocount = cells.variables, tree, leaves, pseudocount
        self.cardinality = cells.cardinality[tree.column]
        self.most = max(int(cells.cardinality.max()), 1)
        order = {int(column): g for g, column in enumerate(cells.continuous)}
        self.dense_at: LongArray = np.array([order.get(int(c), -1) for c in tree.column], dtype=np.int64)
        self.binomial = np.array([leaves[int(c)] == "binomial" for c in tree.column], dtype=np.bool_)
        with np.errstate(invalid="ignore"):
            self.centre = np.array([np.nanmean(column) for column in cells.reals.T])
            deviation = np.array([np.nanstd(column) for column in cells.reals.T])
        self.spread = np.where(deviation > 0, deviation, 1.0)
        # The share of each value in its column, to which the leaves are smoothed; 0 beyond the column's values.
        counts = np.zeros((tree.size, self.most))
        for i, column in enumerate(tree.column.tolist()):
            if self.dense_at[i] < 0:
                size = int(self.cardinality[i])
                codes = cells.codes[:, column]
                counts[i, :size] = np.bincount(codes[codes >= 0], minlength=size) + 0.5
                counts[i] /= counts[i].sum()
        self.prior = counts

    def rows(self, cells: Cells) -> Rows:
        """Rows as the passes take them."""
        return Rows(cells, self.tree, self.centre, self.spread)

    def begin(self, latent: int, rng: np.random.Generator, dtype: Any) -> Parameters:
        """Random parameters: states that differ, and leaves around the shares of the values in their columns."""
        n = self.tree.size
        pair = np.exp(-2.0 * rng.random((n, latent, latent)))
        pair /= pair.sum(axis=2, keepdims=True)
        leaf = self.prior[:, :, None] * np.exp(rng.standard_normal((n, self.most, latent)))
        total = leaf.sum(axis=1, keepdims=True)
        leaf = np.concatenate((leaf / np.where(total > 0, total, 1.0), np.ones((n, 1, latent))), axis=1)
        g = self.centre.size
        mean, deviation = rng.standard_normal((g, latent)), np.ones((g, latent))
        parameters = Parameters(np.full(latent, 1 / latent), pair.astype(dtype), leaf.astype(dtype), mean, deviation)
        self._to_binomial(parameters)
        return parameters

    def resumed(self, circuit: Circuit, places: Sequence[Place], dtype: Any) -> Parameters:
        """The parameters of a circuit that :meth:`circuit` made, whose columns have the places of this tree.

        Equal states may have become one in a file: every column has as many as the one with the most, and those that
        are not in the circuit have weight 0.
        """
        latent = max(place.leaf.size for place in places)
        p = self.begin(latent, np.random.default_rng(0), dtype)
        start, table = leaf_tables(circuit)
        of_column = {place.column: place for place in places}
        for i, column in enumerate(self.tree.column.tolist()):
            _, _, leaf, log_weight = of_column[column]
            weight = np.exp(log_weight)
            if i == 0:
                p.root = np.zeros(latent)
                p.root[: leaf.size] = weight[0]
            else:
                p.pair[i] = 0.0
                p.pair[i, :, : leaf.size] = 1.0 / leaf.size
                p.pair[i, : weight.shape[0], : leaf.size] = weight
            g = int(self.dense_at[i])
            if g >= 0:
                at = circuit.param_start[leaf]
                p.mean[g, : leaf.size] = (circuit.param[at] - self.centre[g]) / self.spread[g]
                p.deviation[g, : leaf.size] = circuit.param[at + 1] / self.spread[g]
            else:
                size = int(self.cardinality[i])
                p.leaf[i, :size, : leaf.size] = np.exp(table[start[leaf][:, None] + np.arange(size)]).T
        return p

    def counts(self, latent: int, dtype: Any) -> Counts:
        """No counts yet."""
        n, g = self.tree.size, self.centre.size
        value, moment = np.zeros((n, self.most + 1, latent)), np.zeros((g, 3, latent))
        return Counts(np.zeros(latent), np.zeros((n, latent, latent), dtype=dtype), value, moment)

    def expect(self, p: Parameters, rows: Rows, chosen: NDArray[Any], scratch: Scratch, counts: Counts | None) -> float:
        """The log-likelihood of some rows; their expected counts are added."""
        total = 0.0
        for at in range(0, chosen.size, _TILE):
            tile = chosen[at : at + _TILE]
            codes: Any = np.ascontiguousarray(rows.codes[tile].T)
            reals = np.ascontiguousarray(rows.reals[tile].T)
            dense, log_dense = self._densities(p, reals)
            log = values_up(self.tree, p.pair, p.root, p.leaf, codes, dense, self.dense_at, scratch)
            total += float((log + log_dense + rows.log_scale[tile]).sum())
            if counts is not None:
                counts_down(self.tree, p.pair, p.root, codes, reals, self.dense_at, scratch, counts)
        return total

    def maximise(self, p: Parameters, value: FloatArray, moment: FloatArray, root: FloatArray) -> None:
        """The parameters of root and leaves that fit expected counts best; those of pairs are :func:`_blend`'s."""
        weight = self.pseudocount
        total = root.sum() + weight
        if total > 0:
            p.root = (root + weight / root.size) / total
        smoothed = value[:, :-1] + weight * self.prior[:, :, None]
        mass = smoothed.sum(axis=1, keepdims=True)
        p.leaf[:, :-1] = np.where(mass > 0, smoothed / np.where(mass > 0, mass, 1.0), p.leaf[:, :-1])
        self._to_binomial(p)
        if moment.shape[0]:
            # The prior is that of `weight` rows with the mean and the deviation of the column: 0 and 1.
            count = moment[:, 0] + weight
            known = count > 0
            count = np.where(known, count, 1.0)
            mean = moment[:, 1] / count
            variance = np.maximum((moment[:, 2] + weight) / count - mean**2, _LEAST_DEVIATION**2)
            p.mean = np.where(known, mean, p.mean)
            p.deviation = np.where(known, np.sqrt(variance), p.deviation)

    def _to_binomial(self, p: Parameters) -> None:
        """The tables of binomial leaves: the distribution with the mean that the table has."""
        for i in np.flatnonzero(self.binomial).tolist():
            trials = int(self.cardinality[i]) - 1
            yes = self._chance(p, i)
            p.leaf[i, : trials + 1] = np.exp(log_binomial(trials, np.log(yes), np.log1p(-yes))).T

    def _chance(self, p: Parameters, place: int) -> FloatArray:
        """The chance of a success of each state's binomial leaf."""
        trials = int(self.cardinality[place]) - 1
        table = p.leaf[place, : trials + 1].astype(np.float64)
        mean = (np.arange(trials + 1)[:, None] * table).sum(axis=0) / table.sum(axis=0)
        return np.asarray(np.clip(mean / trials, 1e-9, 1 - 1e-9))

    def _densities(self, p: Parameters, reals: FloatArray) -> tuple[Floats, FloatArray | float]:
        """Relative densities of the continuous cells in every state, and the log of what they were divided by."""
        if reals.shape[0] == 0:
            return np.zeros((0, 0, p.root.size), dtype=p.pair.dtype), 0.0
        away = (reals[:, :, None] - p.mean[:, None]) / p.deviation[:, None]
        log = -0.5 * away**2 - np.log(p.deviation)[:, None] - 0.5 * math.log(2 * math.pi)
        log[np.isnan(reals)] = 0.0
        top = log.max(axis=2)
        return np.exp(log - top[:, :, None]).astype(p.pair.dtype), top.sum(axis=0)

    def circuit(self, p: Parameters) -> Circuit:
        """The latent tree as a circuit: a product for each state of a column, sums over the states of its children."""
        tree, layers = self.tree, Layers()
        latent = p.root.size
        above: list[LongArray | None] = [None] * tree.size
        for i in range(tree.size - 1, -1, -1):
            column = int(tree.column[i])
            children = [above[c] for c in range(int(tree.first_child[i]), int(tree.first_child[i + 1]))]
            parts = [self._leaves(layers, p, i, column), *(ids for ids in children if ids is not None)]
            states = layers.products(np.stack(parts, axis=-1))
            weight = (p.pair[i] if i else p.root[None]).astype(np.float64)
            weight /= weight.sum(axis=1, keepdims=True)
            with np.errstate(divide="ignore"):
                above[i] = layers.sums(np.broadcast_to(states, (weight.shape[0], latent)), np.log(weight))
        root = above[0]
        assert root is not None
        return layers.circuit(self.variables, int(root[0]))

    def _leaves(self, layers: Layers, p: Parameters, place: int, column: int) -> LongArray:
        g = int(self.dense_at[place])
        if g >= 0:
            mean = self.centre[g] + self.spread[g] * p.mean[g]
            return layers.leaves(GAUSSIAN, column, np.stack((mean, self.spread[g] * p.deviation[g]), axis=-1))
        if self.binomial[place]:
            yes = self._chance(p, place)
            trials = np.full(yes.size, float(self.cardinality[place] - 1))
            return layers.leaves(BINOMIAL, column, np.stack((trials, np.log(yes), np.log1p(-yes)), axis=-1))
        table = p.leaf[place, : int(self.cardinality[place])].T.astype(np.float64)
        with np.errstate(divide="ignore"):
            return layers.leaves(CATEGORICAL, column, np.log(table / table.sum(axis=1, keepdims=True)))


@kernel
def _blend(
    lo: int, hi: int, kept: Floats, fresh: Floats, more: Floats, pair: Floats, keep: float, take: float, pseudo: float
) -> None:
    """Expected counts of pairs move towards those of a batch (in two parts), and the parameters follow.

    The parts lack the factor that all rows have in common, the parameter itself.
    """
    latent = pair.shape[1]
    for i in range(lo, hi):
        for y in range(latent):
            total = 0.0
            for z in range(latent):
                kept[i, y, z] = keep * kept[i, y, z] + take * pair[i, y, z] * (fresh[i, y, z] + more[i, y, z])
                total += kept[i, y, z]
            if total + pseudo > 0:
                factor, share = 1.0 / (total + pseudo), pseudo / latent
                for z in range(latent):
                    pair[i, y, z] = (kept[i, y, z] + share) * factor


def hclt(data: Any, valid: Any = None, **options: Any) -> Circuit:
    """Learn a hidden Chow-Liu tree, with missing cells where the data has them; :func:`learn_hclt` has the options.

    >>> import numpy as np
    >>> from margmap.learn import hclt
    >>> rows = np.random.default_rng(0).integers(-1, 2, (100, 5))  # -1 is a missing cell
    >>> hclt(rows, latent=4, epochs=2).properties.structured
    True
    """
    return learn_hclt(data, valid, **options).circuit


def learn_hclt(
    data: Any,
    valid: Any = None,
    *,
    latent: int = 64,
    epochs: int = 30,
    batch: int | None = 128,
    pseudocount: float = 0.1,
    patience: int | None = 6,
    restarts: int = 1,
    leaves: Mapping[Any, Leaf] | None = None,
    alpha: float = 1.0,
    time_limit: float | None = None,
    seed: int = 0,
    resume: Circuit | None = None,
    on_progress: OnProgress | None = None,
) -> Learned:
    """Learn a hidden Chow-Liu tree with ``latent`` states for each column, and say how it went.

    ``data`` is a table, an array or a frame; -1 among codes and NaN are missing cells. A column has categorical leaves
    unless ``leaves`` says ``"binomial"`` (values 0 to n) or ``"gaussian"`` (real numbers) under its name or number.

    EM goes over the rows ``epochs`` times in batches of ``batch`` rows (less where there are less than ten times as
    many), in single precision, with a step that shrinks evenly to the weight of a batch among all rows;
    ``batch=None`` takes all rows at once, which is exact EM in double precision: with ``pseudocount=0`` the mean
    log-likelihood of the rows never falls, otherwise it is that and the logarithm of the prior. The prior is
    ``pseudocount`` rows for each state: spread evenly over the states of a child, and over values as the column has
    them. With ``valid`` the parameters that were best on those rows are returned; after half of ``patience`` epochs
    without a better one the run goes on from them with a smaller step, and after ``patience`` it ends. Of ``restarts``
    random beginnings, each two epochs long, the most likely one goes on.
    ``alpha`` is added to the counts of pairs of values when the tree is learned.

    ``resume`` is a latent tree that was learned before, also one loaded from a file, to go on from: it has the
    variables, the tree, the kinds of leaves and the states, so that ``latent``, ``leaves``, ``restarts`` and ``alpha``
    say nothing. The run begins with one step on all rows, then small steps.

    ``time_limit`` is in seconds; Ctrl-C ends the run in the same way, with the best parameters so far. The same seed
    gives the same circuit on the same machine, whatever the number of its cores, unless a limit stops the run.
    """
    _check_options(latent, epochs, batch, pseudocount, patience, restarts, time_limit, alpha)
    limits = Limits(None if time_limit is None else float(time_limit))
    with limits.not_counting_compilation(), limits.catching_interrupts():
        cells, checked, kinds = read_cells(data, valid, leaves, None if resume is None else resume.variables)
        places = None if resume is None else read_places(resume, resume.root, "a latent tree, as hclt learns")
        if resume is None or places is None:
            tree = level_tree(learn_cells_tree(cells, alpha).parent)
        else:
            tree, kinds = _resumed_tree(resume, places)
            latent = max(place.leaf.size for place in places)
        model = LatentTree(cells, tree, kinds, float(pseudocount))
        with ThreadPoolExecutor(_PARTS) as threads:
            run = _Run(model, cells, checked, latent, batch, threads, limits, on_progress)
            begun = None if resume is None or places is None else model.resumed(resume, places, run.dtype)
            try:
                reason = run.to_the_end(np.random.default_rng(seed), epochs, patience, restarts, begun)
            except KeyboardInterrupt:  # of on_progress
                reason = "interrupted"
    best, last = run.best, run.history[-1]
    return Learned(model.circuit(run.kept), reason, best, last, run.history)


def learn_cells_tree(cells: Cells, alpha: float, weight: FloatArray | None = None) -> RootedTree:
    """The Chow-Liu tree of rows with missing cells: mutual information on the pairs of cells that are present."""
    codes, cardinality = cells.binned()
    joint = pair_counts(codes, cardinality, weight)
    return root_at_centre(spanning_tree(information(joint, starts(cardinality), alpha)))


def _resumed_tree(circuit: Circuit, places: Sequence[Place]) -> tuple[LevelTree, tuple[Leaf, ...]]:
    """The tree of a circuit to go on from, and the kinds of its leaves."""
    parent = np.full(len(circuit.variables), -1, dtype=np.int32)
    kinds: list[Leaf] = ["categorical"] * parent.size
    for place in places:
        parent[place.column] = places[place.parent].column if place.parent >= 0 else -1
        kind = int(circuit.kind[place.leaf[0]])
        kinds[place.column] = "gaussian" if kind == GAUSSIAN else "binomial" if kind == BINOMIAL else "categorical"
    return level_tree(parent), tuple(kinds)


class _Run:
    """A run of EM: the parameters, the counts behind them, and the best parameters so far."""

    def __init__(
        self,
        model: LatentTree,
        cells: Cells,
        valid: Cells | None,
        latent: int,
        batch: int | None,
        threads: ThreadPoolExecutor,
        limits: Limits,
        report: OnProgress | None,
    ) -> None:
        self.model, self.threads, self.limits, self.report = model, threads, limits, report
        self.rows = model.rows(cells)
        self.valid = None if valid is None else model.rows(valid)
        self.exact = batch is None
        # Few rows still make some steps for each time that they are gone over.
        most = max(_SMALLEST_BATCH, self.rows.number // _LEAST_STEPS)
        self.batch = self.rows.number if batch is None else min(batch, most, self.rows.number)
        self.dtype: Any = np.float64 if self.exact else np.float32
        self.latent = latent
        self.scratch = [Scratch(model.tree, latent, _TILE, self.dtype) for _ in range(_PARTS)]
        self.counts = [model.counts(latent, self.dtype) for _ in range(_PARTS)]
        self.edges = model.tree.size * latent * latent
        self.first_step, self.factor = _FIRST_STEP, 1.0
        self.p: Parameters
        self.kept: Parameters
        self.best: Growth
        self.counts_then: Counts | None = None
        self.kept_counts: Counts | None = None
        self.history: list[Growth] = []

    def to_the_end(
        self, rng: np.random.Generator, epochs: int, patience: int | None, restarts: int, begun: Parameters | None
    ) -> Reason:
        """Go over the rows, from given parameters or random ones, until something ends the run, and say what."""
        beginnings = []
        for _ in range(restarts if restarts > 1 and begun is None else 0):
            self.start(rng)
            _, train = self.epoch(rng, 0.0, 0.1), self.epoch(rng, 0.1, 0.2)
            beginnings.append((self.mean(self.valid) if self.valid is not None else train, self.p, self.kept_counts))
            if self.stopped() is not None:
                break
        if beginnings:
            _, self.p, self.kept_counts = max(beginnings, key=lambda entry: entry[0])
        elif begun is not None:
            self.p, self.first_step = begun, _RESUMED_STEP
        else:
            self.start(rng)
        self.keep(Growth(0, self.mean(self.rows), self.mean(self.valid), self.edges, self.seconds()))
        self.history.append(self.best)
        if begun is not None and not self.exact and epochs > 0:
            self.step(np.arange(self.rows.number), 1.0)  # the counts behind the given parameters, and better ones
        for number in range(1, epochs + 1):
            train = self.epoch(rng, (number - 1) / epochs, number / epochs)
            now = Growth(number, train, self.mean(self.valid), self.edges, self.seconds())
            self.history.append(now)
            if self.valid is None or now.valid > self.best.valid:
                self.keep(now)
            if self.report is not None:
                self.report(now)
            reason = self.stopped()
            if reason is not None:
                return reason
            if self.valid is not None and patience is not None:
                if number - self.best.iteration >= patience:
                    return "patience"
                if number - self.best.iteration == patience // 2 and not self.exact:
                    self.go_back()
        return "iterations"

    def keep(self, now: Growth) -> None:
        """These are the best parameters so far; without validation rows the last ones are."""
        self.best, self.kept = now, self.p
        if self.valid is not None:
            counts = self.kept_counts
            self.kept = self.p.copy()
            self.counts_then = None if counts is None else Counts(*(array.copy() for array in counts))

    def go_back(self) -> None:
        """Steps this large help the validation rows no more: from the best parameters so far on with smaller ones."""
        self.p = self.kept.copy()
        self.kept_counts = None if self.counts_then is None else Counts(*(array.copy() for array in self.counts_then))
        self.factor *= _SMALLER

    def start(self, rng: np.random.Generator) -> None:
        """Random parameters, and no counts behind them."""
        self.p = self.model.begin(self.latent, rng, self.dtype)
        self.kept_counts = None

    def seconds(self) -> float:
        return self.limits.clock() - self.limits.begun

    def stopped(self) -> Reason | None:
        if self.limits.interrupted:
            return "interrupted"
        return "time_limit" if self.limits.late(0.0) else None

    def epoch(self, rng: np.random.Generator, begun: float, ended: float) -> float:
        """Go over all rows once, and return their mean log-likelihood on the way; less of them if it is stopped."""
        order = rng.permutation(self.rows.number)
        # No batch is larger than was said: half of one then is one tile, and no tile has a row or two only.
        total, done, batches = 0.0, 0, -(-self.rows.number // self.batch)
        for number, part in enumerate(np.array_split(order, batches)):
            progress = begun + (ended - begun) * number / batches
            if np.isfinite(self.limits.deadline):  # the step must be small when the time is over
                share = self.seconds() / max(self.limits.deadline - self.limits.begun, 1e-9)
                if share > max(progress, _SLACK):
                    progress = min(1.0, share)
            # From half of a batch to as much as all rows weigh, in even steps.
            last = min(self.first_step, self.batch / self.rows.number)
            size = max(last, self.factor * (self.first_step + (last - self.first_step) * progress))
            total += self.step(part, 1.0 if self.exact else size)
            done += part.size
            if self.stopped() is not None:
                break
        return total / done

    def step(self, chosen: NDArray[Any], size: float) -> float:
        """Expect on some rows, then move the parameters; the log-likelihood of the rows before that."""
        parts = np.array_split(chosen, _PARTS)
        for counts in self.counts:
            for array in counts:
                array.fill(0.0)
        work = zip(parts, self.scratch, self.counts, strict=True)
        futures = [self.threads.submit(self.model.expect, self.p, self.rows, *one) for one in work]
        total = sum(future.result() for future in futures)
        scale = self.rows.number / chosen.size
        one, two = self.counts
        fresh = [scale * (getattr(one, name) + getattr(two, name)) for name in ("root", "value", "moment")]
        if self.kept_counts is None:
            self.kept_counts = self.model.counts(self.latent, self.dtype)
            size = 1.0
        kept = self.kept_counts
        for old, new in zip((kept.root, kept.value, kept.moment), fresh, strict=True):
            old *= 1.0 - size
            old += size * new
        n = self.model.tree.size
        middle = (n + 1) // 2
        arrays = (kept.pair, one.pair, two.pair, self.p.pair, 1.0 - size, size * scale, self.model.pseudocount)
        for future in [self.threads.submit(_blend, lo, hi, *arrays) for lo, hi in ((1, middle), (middle, n))]:
            future.result()
        self.model.maximise(self.p, kept.value, kept.moment, kept.root)
        return total

    def mean(self, rows: Rows | None) -> float:
        """The mean log-likelihood of rows; NaN if there are none."""
        if rows is None:
            return math.nan
        parts = np.array_split(np.arange(rows.number), _PARTS)
        work = zip(parts, self.scratch, strict=True)
        futures = [self.threads.submit(self.model.expect, self.p, rows, *one, None) for one in work]
        return sum(future.result() for future in futures) / rows.number


def _check_options(
    latent: int,
    epochs: int,
    batch: int | None,
    pseudocount: float,
    patience: int | None,
    restarts: int,
    time_limit: float | None,
    alpha: float,
) -> None:
    check_smoothing(alpha, pseudocount)
    for name, value, least in (("latent", latent, 1), ("epochs", epochs, 0), ("restarts", restarts, 1)):
        check_option(name, value, least)
    for name, optional, lowest in (("batch", batch, 1), ("patience", patience, 1), ("time_limit", time_limit, 0.0)):
        if optional is not None:
            check_option(name, optional, lowest)
