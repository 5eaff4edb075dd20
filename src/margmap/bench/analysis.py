"""From runs to what a report shows: the paper's Table 1 and Figure 2, a cactus plot, and whether methods agree."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple, TypeVar

from margmap.bench.figure import STYLES, Axis, Plot, Series, short
from margmap.bench.records import Run

#: Two proven optima of an instance that differ by more nats than this contradict each other.
TOLERANCE = 1e-6

#: The dataset of the paper's Figure 2, EachMovie, under its usual name.
EXAMPLE = "tmovie"

# More points than this in a line of Figure 2 are thinned out, more rows than that in the table beside it.
_MOST_POINTS, _MOST_ROWS = 4000, 200

# An axis of logarithms has no place for a run of no time at all.
_LEAST_SECONDS = 1e-4

K = TypeVar("K")


class Cell(NamedTuple):
    """Text, what it is sorted by (None comes last), something less important after it, and whether it is the best."""

    text: str
    value: float | str | None = None
    note: str = ""
    strong: bool = False


class Column(NamedTuple):
    """A heading; numbers are aligned to the right."""

    text: str
    number: bool = True


def _columns(*texts: str) -> list[Column]:
    """Headings; those of numbers begin with #."""
    return [Column(text.removeprefix("#"), text.startswith("#")) for text in texts]


class Table(NamedTuple):
    """Rows under headings; the first column names the row, ``foot`` stays below when rows are sorted."""

    name: str
    caption: str
    columns: list[Column]
    rows: list[list[Cell]]
    foot: list[list[Cell]] = []  # noqa: RUF012 - never changed


class Example(NamedTuple):
    """The instance that Figure 2 shows, and its runs that have a trace."""

    dataset: str
    instance: int
    proportions: tuple[float, ...]
    runs: list[Run]


class Conflict(NamedTuple):
    """Two runs of an instance that cannot both be right."""

    first: Run
    second: Run
    why: str


class Agreement(NamedTuple):
    """What was compared: instances with two optima or more, pairs of optima, pairs of a state and a bound."""

    instances: int
    pairs: int
    bounds: int
    conflicts: list[Conflict]


class Faster(NamedTuple):
    """How many times faster the reference is than the next best method on the instances that both were run on."""

    #: The other method; the next best, where there is one for several.
    label: str
    ratio: float
    #: Nothing, or "≥" (the next best left some unsolved), "≤" (the reference did), "≈" (both did).
    sign: str
    instances: int

    @property
    def text(self) -> str:
        """Such as "≥ 12.3"."""
        return f"{self.sign} {rounded(self.ratio)}".strip()

    @property
    def words(self) -> str:
        """Such as "at least 12.3"."""
        said = {"": "", "≥": "at least ", "≤": "at most ", "≈": "about "}
        return f"{said[self.sign]}{rounded(self.ratio)}"


def grouped(runs: Iterable[Run], key: Callable[[Run], K]) -> dict[K, list[Run]]:
    """The runs by a key, in their order."""
    found: dict[K, list[Run]] = {}
    for run in runs:
        found.setdefault(key(run), []).append(run)
    return found


class Study:
    """All runs of a report, sorted out once."""

    def __init__(self, runs: Sequence[Run], reference: str | None = None, labels: Sequence[str] | None = None) -> None:
        self.runs = list(runs)
        seen = list(dict.fromkeys(run.label for run in self.runs))
        #: None if no run has this label.
        self.reference = reference if reference in seen else None
        first = [label for label in (*(labels or ()), self.reference) if label in seen]
        #: The methods in the order of their columns: as asked for, or else the reference and then as they come.
        self.labels = list(dict.fromkeys([*first, *seen]))
        #: The reference first, so that it looks the same in every report.
        self.style = {label: at for at, label in enumerate(sorted(self.labels, key=lambda one: one != self.reference))}
        self.groups = sorted({run.proportions for run in self.runs})
        of_dataset = grouped(self.runs, lambda run: run.dataset)
        self.size = {name: max(run.edges or 0 for run in own) for name, own in of_dataset.items()}
        self.variables = {name: max(run.variables or 0 for run in own) for name, own in of_dataset.items()}
        #: By number of variables, as in the paper, then by size.
        self.datasets = sorted(of_dataset, key=lambda name: (self.variables[name], self.size[name], name))
        self._by = grouped(self.runs, lambda run: (run.dataset, run.proportions, run.label))
        self.by_instance = grouped(self.runs, lambda run: run.key)

    def select(self, label: str, dataset: str | None = None, proportions: tuple[float, ...] | None = None) -> list[Run]:
        """The runs of a method, of one dataset or of all, of one division of the variables or of all."""
        datasets = self.datasets if dataset is None else [dataset]
        groups = self.groups if proportions is None else [proportions]
        return [run for name in datasets for group in groups for run in self._by.get((name, group, label), ())]

    def together(self, labels: Iterable[str]) -> set[tuple[str, int]]:
        """The instances that all of these methods were run on."""
        ran = [{run.key for run in self.select(label)} for label in labels]
        return set.intersection(*ran) if ran else set()

    def faster(self, dataset: str | None = None, proportions: tuple[float, ...] | None = None) -> Faster | None:
        """How the reference compares with the next best, the one with the least total time, unsolved at the limit."""
        return min(self.compared(dataset, proportions), key=lambda one: one.ratio, default=None)

    def compared(self, dataset: str | None = None, proportions: tuple[float, ...] | None = None) -> list[Faster]:
        """How the reference compares with each other method on the instances that both were run on."""
        if self.reference is None:
            return []
        own = {run.key: run for run in self.select(self.reference, dataset, proportions)}
        found: list[Faster] = []
        for label in self.labels:
            others = [run for run in self.select(label, dataset, proportions) if run.key in own]
            if label == self.reference or not others:
                continue
            mine = [own[run.key] for run in others]
            ours, theirs = sum(run.counted for run in mine), sum(run.counted for run in others)
            open_here, open_there = (not all(run.solved for run in part) for part in (mine, others))
            sign = {(False, False): "", (False, True): "≥", (True, False): "≤", (True, True): "≈"}
            ratio = theirs / ours if ours > 0 else math.inf
            found.append(Faster(label, ratio, sign[open_here, open_there], len(others)))
        return found


def proportions_text(proportions: Iterable[float]) -> str:
    """Such as 30/30/40 %."""
    return "/".join(f"{100 * part:.3g}" for part in proportions) + " %"


def rounded(value: float) -> str:
    """Three digits, more before the point."""
    if not math.isfinite(value):
        return "∞" if value > 0 else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}".rstrip(".")


def amount(number: int) -> str:
    """Bytes for people."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number} B"


def times_table(study: Study, proportions: tuple[float, ...] | None) -> Table:
    """Table 1 for one division of the variables, or for all together: mean seconds and number solved.

    The reference and how much faster it is come first, so that they are seen on a narrow screen.
    """
    compared = study.reference is not None and len(study.labels) > 1
    labels = sorted(study.labels, key=lambda label: label != study.reference)
    faster = [Column("times faster")] if compared else []
    methods = [*map(Column, labels[:1]), *faster, *map(Column, labels[1:])]
    columns = [Column("dataset", number=False), *methods, *_columns("#variables", "#edges")]

    def results(dataset: str | None) -> list[Cell]:
        means = _means([study.select(label, dataset, proportions) for label in labels])
        ratio = _faster(study.faster(dataset, proportions)) if compared else []
        return [*means[:1], *ratio, *means[1:]]

    ran = {run.dataset for run in study.runs if proportions in (None, run.proportions)}
    rows = [
        [_cell(name), *results(name), _plain(study.variables[name]), _plain(study.size[name])]
        for name in study.datasets
        if name in ran
    ]
    foot = [Cell("all"), *results(None), Cell(""), Cell("")]
    what = "all instances" if proportions is None else f"query/evidence/hidden {proportions_text(proportions)}"
    name = "times-all" if proportions is None else f"times-{study.groups.index(proportions) + 1}"
    return Table(name, f"Mean seconds and number solved, {what}", columns, rows, [foot])


def status_table(study: Study) -> Table:
    """What became of the runs of each method."""
    known = ["optimal", "time_limit", "memory_limit", "precision_limit", "interrupted", "failed", "killed"]
    found = {run.status for run in study.runs}
    statuses = [status for status in known if status in found] + sorted(found - set(known))
    columns = [*_columns("method", "#runs"), *(Column(status.replace("_", " ")) for status in statuses)]
    columns += _columns("#median s, solved", "#slowest s, solved", "#largest process")
    rows = []
    for label in study.labels:
        runs = study.select(label)
        seconds = [run.counted for run in runs if run.solved]
        peak = max((run.peak_bytes for run in runs if run.peak_bytes is not None), default=None)
        times = [statistics.median(seconds) if seconds else None, max(seconds, default=None)]
        ended = [sum(run.status == status for run in runs) for status in statuses]
        numbers = [_plain(len(runs)), *map(_plain, ended), *(_cell(time, rounded) for time in times)]
        rows.append([_cell(label), *numbers, _cell(peak, amount)])
    return Table("statuses", "How the runs ended", columns, rows)


def runs_table(study: Study) -> Table:
    """Every run."""
    columns = _columns("dataset", "#instance", "proportions", "method", "status", "#seconds", "#log p(q, e)", "#gap")
    columns += _columns("#process")
    order = {name: at for at, name in enumerate(study.datasets)}
    column_of = {label: at for at, label in enumerate(study.labels)}
    rows = [
        [
            _cell(run.dataset),
            _plain(run.instance),
            *map(_cell, (proportions_text(run.proportions), run.label, run.status.replace("_", " "))),
            _cell(run.seconds, rounded),
            _plain(run.log_prob, ".6f"),
            _plain(run.gap, ".2g"),
            _cell(run.peak_bytes, amount),
        ]
        for run in sorted(study.runs, key=lambda run: (order[run.dataset], *run.key, column_of[run.label]))
    ]
    return Table("runs", "Every run", columns, rows)


def agreement(study: Study, tolerance: float = TOLERANCE) -> Agreement:
    """Compare all runs of each instance: optima with optima, and found states with proven bounds."""
    instances = pairs = bounds = 0
    conflicts: list[Conflict] = []
    for runs in study.by_instance.values():
        proven = sum(run.solved and run.log_prob is not None for run in runs)
        instances += proven > 1
        pairs += math.comb(proven, 2)
        for one, other in combinations(runs, 2):
            for found, bounding in ((one, other), (other, one)):
                bounds += found.log_prob is not None and bounding.log_upper is not None
            why = _conflict(one, other, tolerance)
            if why:
                conflicts.append(Conflict(one, other, why))
    return Agreement(instances, pairs, bounds, conflicts)


def conflict_table(found: Agreement) -> Table:
    """The pairs of runs that contradict each other."""
    columns = _columns("dataset", "instance", "method", "other method", "what is wrong")
    rows = [
        [_cell(one.dataset), _place(one), *map(_cell, (one.label, other.label, why))]
        for one, other, why in found.conflicts
    ]
    return Table("conflicts", "Runs that contradict each other", columns, rows)


def failure_table(study: Study) -> Table | None:
    """The runs that failed or were killed, None if there is none."""
    columns = _columns("dataset", "instance", "method", "status", "error")
    rows = [
        [_cell(run.dataset), _place(run), *map(_cell, (run.label, run.status, run.error or "–"))]
        for run in study.runs
        if run.ended_badly
    ]
    return Table("failures", "Runs that failed or were killed", columns, rows) if rows else None


def cactuses(study: Study) -> list[tuple[Plot, Table]]:
    """Cactus plots, each of methods on the same instances: of all methods, and of those that were run on more."""
    everywhere = study.together(study.labels)
    most = max(len(study.select(label)) for label in study.labels)
    widely = [label for label in study.labels if len(study.select(label)) == most]
    groups = [(study.labels, everywhere), (widely, study.together(widely))]
    # A group of one method, or of no instance, compares nothing.
    shown = [(labels, keys) for labels, keys in groups if keys and (len(labels) > 1 or len(study.labels) == 1)]
    if len(shown) > 1 and shown[0][1] == shown[1][1]:
        shown = shown[:1]
    names = ("cactus", "cactus-more")
    return [cactus(study, labels, keys, name) for (labels, keys), name in zip(shown, names, strict=False)]


def cactus(study: Study, labels: Sequence[str], keys: set[tuple[str, int]], name: str) -> tuple[Plot, Table]:
    """How many of these instances each of these methods has solved after a time, and the same as a table."""
    total = len(keys)
    series, counts = [], []
    solved: dict[str, list[float]] = {}
    ran = {label: [run for run in study.select(label) if run.key in keys] for label in labels}
    last = max((run.counted for own in ran.values() for run in own), default=1.0)
    for label, style in ((label, study.style[label]) for label in labels):
        times = sorted(max(run.counted, _LEAST_SECONDS) for run in ran[label] if run.solved)
        solved[label] = times
        points = [(seconds, float(n)) for n, seconds in enumerate(times, 1)]
        if points and last > times[-1]:
            points.append((last, points[-1][1]))
        series.append(Series(label, points, style, style + style // STYLES, step=True))
        counts.append(f"{label} {len(times)}")
    fewer = total < len(study.by_instance)
    methods = "all methods" if len(labels) == len(study.labels) else "all of these methods"
    which = f"the {total:,} instances that {methods} were run on" if fewer else f"the {total:,} instances"
    words = (
        f"How many of {which} each method had solved after a time: further up and to the left is better. "
        f"At the end: {', '.join(counts)}."
    )
    title = f"Instances solved against time, {total:,} instances"
    plot = Plot(name, title, words, Axis("seconds", log=True), Axis("instances solved"), series)
    marks = [10.0**power for power in range(-3, 5) if 10.0**power < last] + [last]
    columns = [Column("within seconds"), *map(Column, labels)]
    rows = [
        [Cell(short(mark), mark), *(_plain(sum(t <= mark for t in solved[label])) for label in labels)]
        for mark in marks
    ]
    return plot, Table(f"{name}-data", f"Instances solved within a time, of {total:,}", columns, rows)


def example_of(study: Study, dataset: str | None = None, instance: int | None = None) -> Example | None:
    """The instance for Figure 2: one that most methods with a trace solved, and of these the one with most iterations.

    Without ``dataset`` it is of :data:`EXAMPLE` if that has traces, or else of any dataset. None if there is no trace.
    """
    wanted = (run for run in study.runs if dataset in (None, run.dataset) and instance in (None, run.instance))
    traced = grouped((run for run in wanted if run.trace), lambda run: run.key)
    candidates = [runs for runs in traced.values() if dataset or runs[0].dataset == EXAMPLE] or list(traced.values())
    if not candidates:
        return None
    best = max(candidates, key=lambda runs: (sum(run.solved for run in runs), max(len(run.trace) for run in runs)))
    order = {label: at for at, label in enumerate(study.labels)}
    first = best[0]
    return Example(first.dataset, first.instance, first.proportions, sorted(best, key=lambda run: order[run.label]))


def trace_plots(study: Study, example: Example) -> list[tuple[Plot, Table]]:
    """Figure 2: both bounds, and the size of the circuit, after pruning and after splitting in each iteration."""
    where = f"{example.dataset}, instance {example.instance} ({proportions_text(example.proportions)})"
    bounds: list[Series] = []
    sizes: list[Series] = []
    words: list[str] = []
    rows: list[list[Cell]] = []
    for run in example.runs:
        steps = _steps(run)
        at = study.style[run.label]
        for column, name, dash in ((1, "upper", 0), (2, "lower", 2)):
            points = [(step[0], step[column]) for step in steps if math.isfinite(step[column])]
            bounds.append(Series(f"{run.label}, {name}", _thinned(points, _MOST_POINTS), at, dash))
        edges_of = _thinned([(step[0], max(step[3], 1.0)) for step in steps], _MOST_POINTS)
        sizes.append(Series(run.label, edges_of, at, at + at // STYLES))
        how = "until the bounds met" if run.solved else f"and stopped ({run.status.replace('_', ' ')})"
        first, most, last = steps[0][3], max(step[3] for step in steps), steps[-1][3]
        ends = f"from {first:,.0f} edges, at most {most:,.0f}, at the end {last:,.0f}"
        words.append(f"{run.label} took {len(run.trace)} iterations {how}, {ends}")
        rows += [
            [_cell(run.label), _plain(x, "g"), _plain(upper, ".6f"), _plain(lower, ".6f"), _plain(edges)]
            for x, upper, lower, edges in _thinned(steps, _MOST_ROWS)
        ]
    told = "; ".join(words) + "."
    columns = _columns("method", "#iteration", "#upper bound", "#lower bound", "#edges")
    data = Table("trace-data", f"Bounds and size per iteration, {where}", columns, rows)
    halves = any("pruned_edges" in run.trace[0] for run in example.runs)
    step_axis = Axis("iteration (pruned at its number, split half a step on)" if halves else "iteration")
    largest, smallest = (f(y for one in sizes for _, y in one.points) for f in (max, min))
    edges = Axis("edges of the circuit, at least 1", log=largest > 30 * smallest)
    shown = f"Upper and lower bound of log p(q, e) in each iteration on {where}. {told}"
    sized = f"Number of edges of the circuit in each iteration on {where}. {told}"
    return [
        (Plot("bounds", f"Bounds per iteration: {where}", shown, step_axis, Axis("log p(q, e)"), bounds), data),
        (Plot("sizes", f"Circuit size per iteration: {where}", sized, step_axis, edges, sizes), data),
    ]


def conditions(study: Study) -> list[tuple[str, str]]:
    """Machines, versions, limits and methods, as pairs of a name and what it is."""
    found: list[tuple[str, str]] = []

    def every(name: str, text: Callable[[Run], str]) -> None:
        found.extend((name, value) for value in dict.fromkeys(text(run) for run in study.runs) if value)

    every("machine", lambda run: ", ".join(f"{key} {_host(key, value)}" for key, value in run.host.items()))
    every("margmap", lambda run: run.margmap)
    every("time limit", lambda run: "none" if run.time_limit is None else f"{run.time_limit:g} s")
    if computing := Counter(run.label for run in study.runs if run.computing):
        which = ", ".join(f"{label} {number}" for label, number in computing.items())
        found.append(("seconds", f"of the processor in {computing.total()} of {len(study.runs)} runs ({which})"))
    every("memory limit", lambda run: "none" if run.memory_limit is None else amount(run.memory_limit))
    for label in study.labels:
        run = study.select(label)[0]
        options = ", ".join(f"{name}={value}" for name, value in run.options.items())
        found.append((f"method {label}", f"{run.method}{f' with {options}' if options else ''}"))
    return found


def _host(key: str, value: object) -> str:
    return amount(value) if isinstance(value, int) and "memory" in key else str(value)


def _conflict(one: Run, other: Run, tolerance: float) -> str:
    """Why two runs of an instance cannot both be right, or nothing."""
    if one.solved and other.solved and one.log_prob is not None and other.log_prob is not None:
        apart = abs(one.log_prob - other.log_prob)
        if apart > tolerance:
            return f"both optimal, {one.log_prob:.9f} and {other.log_prob:.9f}: {apart:.3g} nats apart"
    for found, bounding in ((one, other), (other, one)):
        if found.log_prob is None or bounding.log_upper is None:
            continue
        if (above := found.log_prob - bounding.log_upper) > tolerance:
            return (
                f"{found.label} has a state at {found.log_prob:.9f}, {above:.3g} nats above what {bounding.label} "
                f"says is the upper bound, {bounding.log_upper:.9f}"
            )
    return ""


def _steps(run: Run) -> list[tuple[float, float, float, float]]:
    """Iteration, upper bound, lower bound, edges: two for each row of :meth:`Iteration.to_dict`, else one."""

    def number(row: dict[str, Any], name: str) -> float:
        try:
            return float(row[name])
        except (KeyError, TypeError, ValueError):
            return math.nan

    steps: list[tuple[float, float, float, float]] = []
    for at, row in enumerate(run.trace, 1):
        iteration = number(row, "iteration")
        begin = iteration if math.isfinite(iteration) else float(at)
        if "pruned_edges" in row:
            for half, when in ((0.0, "pruned"), (0.5, "split")):
                upper, lower, edges = (number(row, f"{when}_{name}") for name in ("upper", "lower", "edges"))
                steps.append((begin + half, upper, lower, edges))
        else:
            steps.append((begin, number(row, "log_upper"), number(row, "log_lower"), number(row, "edges")))
    return [(x, upper, lower, edges if math.isfinite(edges) else 0.0) for x, upper, lower, edges in steps]


def _thinned(points: list[Any], most: int) -> list[Any]:
    kept = points[:: max(1, -(-len(points) // most))]
    return kept if kept[-1:] == points[-1:] else [*kept, points[-1]]


def _means(columns: Sequence[Sequence[Run]]) -> list[Cell]:
    """For each method the mean of the seconds and how many were solved; the smallest mean is strong."""
    means = [statistics.fmean(run.counted for run in runs) if runs else None for runs in columns]
    solved = [sum(run.solved for run in runs) for runs in columns]
    best = min((mean for mean, n in zip(means, solved, strict=True) if mean is not None and n), default=None)
    cells = []
    for runs, mean, n in zip(columns, means, solved, strict=True):
        text = "–" if mean is None or n == 0 else rounded(mean)
        cells.append(Cell(text, mean, f"({n}/{len(runs)})" if runs else "", n > 0 and mean == best))
    return cells


def _faster(found: Faster | None) -> list[Cell]:
    return [Cell("–") if found is None else Cell(found.text, found.ratio, f"({found.label})")]


def _place(run: Run) -> Cell:
    return Cell(run.place, f"{run.instances} {run.instance:06d}")


def _cell(value: float | str | None, show: Callable[[Any], str] = str) -> Cell:
    """A value as ``show`` writes it, a dash if there is none."""
    return Cell("–") if value is None else Cell(show(value), value)


def _plain(value: float | None, form: str = ",.0f") -> Cell:
    return Cell("–") if value is None or not math.isfinite(value) else Cell(f"{value:{form}}", value)
