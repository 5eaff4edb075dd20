"""From records of runs to a report: Markdown with SVG figures, and one HTML page that works offline."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from margmap.bench import analysis
from margmap.bench.analysis import Agreement, Study, rounded
from margmap.bench.document import (
    Code,
    Document,
    Facts,
    Figure,
    Item,
    Section,
    Shown,
    Text,
    markdown_lines,
)
from margmap.bench.figure import short, svg_lines
from margmap.bench.page import page_lines
from margmap.bench.records import Records, Run, read_records, runs_of
from margmap.errors import FormatError, QueryError

MARKDOWN, PAGE = "report.md", "index.html"

#: What a report is, unless it is told.
ABOUT = (
    "Marginal MAP asks for the most probable state of some variables, given others, with the rest summed out. Here "
    "exact methods for it are compared on the same instances: how many each solved within its limits, how long that "
    "took, and whether all came to the same answers."
)

#: The label that is compared with the others unless another is named.
REFERENCE = "frontier"


class Report(NamedTuple):
    """What was written, and what a caller may want to know without reading it."""

    #: Markdown, page and figures.
    written: list[Path]
    runs: int
    instances: int
    #: For each method how many of its runs were solved, and how many there are.
    solved: dict[str, tuple[int, int]]
    #: Pairs of runs that contradict each other, in words: there must be none.
    conflicts: list[str]
    #: Runs that failed or were killed.
    failures: int
    #: Lines of the file that were no records.
    torn: int

    @property
    def disagreements(self) -> int:
        """How many pairs of runs contradict each other."""
        return len(self.conflicts)


def report(
    records: str | os.PathLike[str] | Iterable[Mapping[str, Any]],
    folder: str | os.PathLike[str],
    *,
    reference: str = REFERENCE,
    title: str = "Marginal MAP benchmark",
    about: str = ABOUT,
    methods: Mapping[str, str] | None = None,
    labels: Sequence[str] | None = None,
    example: str | None = None,
    example_instance: int | None = None,
    commands: Sequence[str] = (),
    date: str | None = None,
    tolerance: float = analysis.TOLERANCE,
    within: float | None = None,
) -> Report:
    """Write ``report.md``, ``index.html`` and the figures into a folder, which is made if it is not there.

    ``records`` is a file of ``margmap bench run``, or records in memory. ``reference`` is the label that is compared
    with the next best of the others; if it is ``frontier`` and there is no such run, nothing is. ``about`` is the first
    paragraph, ``methods`` says of a label what it is, in place of what margmap knows. ``labels`` gives the order of the
    methods, ``example`` and ``example_instance`` the dataset and the instance of Figure 2, ``commands`` command lines
    to show. ``within`` cuts all runs to a time limit of so many seconds: what was not over by then counts as unsolved.
    """
    loaded = read_records(records) if isinstance(records, (str, os.PathLike)) else Records(runs_of(records), 0)
    if within is not None:
        loaded = loaded._replace(runs=[run.within(within) for run in loaded.runs])
    if not loaded.runs:
        raise QueryError("there are no runs to report")
    study = Study(loaded.runs, reference, labels)
    if study.reference is None and reference != REFERENCE:
        raise QueryError(f"no run has the label {reference!r}: choose one of {', '.join(study.labels)}")
    if example is not None and example not in study.datasets:
        raise QueryError(f"no run is on the dataset {example!r}: choose one of {', '.join(study.datasets)}")
    found = analysis.agreement(study, tolerance)
    when = date or datetime.now(timezone.utc).strftime("%Y-%m-%d")
    runs = analysis.runs_table(study)
    pictures, *others = _figures(study, example, example_instance)
    document = Document(
        title,
        about,
        f"{when}. {len(study.runs):,} runs: {len(study.labels)} methods, {len(study.by_instance):,} instances, "
        f"{len(study.datasets)} datasets.",
        [
            Section("summary", "Summary", _summary(study, found, tolerance, methods or {})),
            pictures,
            Section("times", "Time and instances solved", _times(study)),
            *others,
            Section("agreement", "Agreement", _agreement(study, found, tolerance)),
            Section("runs-section", "Runs", [Shown(analysis.status_table(study)), Shown(runs, folded=True)]),
            Section("conditions", "Conditions", _conditions(study, loaded.torn, commands)),
        ],
    )
    return Report(
        _write(document, Path(folder)),
        len(study.runs),
        len(study.by_instance),
        _solved(study),
        [f"{one.dataset}, {one.place}: {why}" for one, _, why in found.conflicts],
        sum(run.ended_badly for run in study.runs),
        loaded.torn,
    )


def _solved(study: Study) -> dict[str, tuple[int, int]]:
    runs = {label: study.select(label) for label in study.labels}
    return {label: (sum(run.solved for run in own), len(own)) for label, own in runs.items()}


def _write(document: Document, folder: Path) -> list[Path]:
    from margmap.io.files import write_lines

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FormatError(f"cannot be made a folder: {error.strerror or error}", path=folder) from error
    contents: dict[str, Iterable[str]] = {
        f"{block.plot.name}.svg": svg_lines(block.plot)
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Figure)
    }
    contents |= {MARKDOWN: markdown_lines(document), PAGE: page_lines(document)}
    for name, lines in contents.items():
        write_lines(folder / name, lines)
    return [folder / name for name in (MARKDOWN, PAGE, *(name for name in contents if name.endswith(".svg")))]


def _summary(study: Study, found: Agreement, tolerance: float, methods: Mapping[str, str]) -> list[Item]:
    known = {label: methods.get(label) or _what_it_is(study.select(label)[0]) for label in study.labels}
    times = {
        one.label: f"{study.reference} is {one.words} times as fast on the {one.instances:,} that both were run on. "
        for one in study.compared()
    }
    counts = [
        (label, f"{number:,} of {total:,} solved, with a proof. {times.get(label, '')}{known[label]}".strip())
        for label, (number, total) in _solved(study).items()
    ]
    blocks: list[Item] = [_verdict(found, tolerance)]
    ratios = [one for one in (study.faster(dataset) for dataset in study.datasets) if one is not None]
    if ratios:
        first = sum(one.ratio > 1 for one in ratios)
        middle, least, most = (f([one.ratio for one in ratios]) for f in (statistics.median, min, max))
        blocks.append(
            Text(
                f"{study.reference} is faster than every other method on {first} of {len(ratios)} datasets. It is "
                f"{rounded(least)} to {rounded(most)} times as fast as the next best on each, {rounded(middle)} times "
                "in the median, where an unsolved run counts as its time limit."
            )
        )
    blocks.append(Facts(counts))
    failed = sum(run.ended_badly for run in study.runs)
    if failed:
        blocks.append(Text(f"{failed} runs failed or were killed: they are listed under Agreement.", "bad"))
    return blocks


def _what_it_is(run: Run) -> str:
    """A method in a sentence, with its options."""
    from margmap.solve.methods import METHODS

    options = ", ".join(f"{name}={value}" for name, value in run.options.items())
    known = METHODS.get(run.method)
    said = f"Method {run.method}: {known.summary}" if known else f"Method {run.method}"
    return f"{said}{f' ({options})' if options else ''}."


def _times(study: Study) -> list[Item]:
    blocks: list[Item] = [
        Text(
            "Mean seconds of solving, without loading the circuit, and how many of the runs were solved. As in the "
            "paper's Table 1, an unsolved run counts as its time limit, whatever ended it, and a method that solved "
            "none has a dash. Bold is the smallest mean. Datasets are in the order of their number of variables."
        )
    ]
    if len({len(study.select(label)) for label in study.labels}) > 1:
        blocks.append(
            Text(
                "Not every method was run on every instance: the second number in brackets says on how many. Means of "
                "different instances do not compare; times faster does, and so do the figures above."
            )
        )
    if study.reference is not None and len(study.labels) > 1:
        blocks.append(
            Text(
                "Times faster: the total seconds of the next best method, in brackets, divided by those of "
                f"{study.reference}, on the instances that both were run on. ≥ means that the next best left some "
                f"unsolved, so that the true number is larger; ≤ that {study.reference} did; ≈ that both did."
            )
        )
    blocks += [Shown(analysis.times_table(study, group)) for group in study.groups]
    if len(study.groups) > 1:
        blocks.append(Shown(analysis.times_table(study, None)))
    return blocks


def _figures(study: Study, dataset: str | None, instance: int | None) -> list[Section]:
    plots: list[Item] = [Figure(*one) for one in analysis.cactuses(study)]
    if not plots:
        plots.append(Text("No instance was run with two methods, so there is nothing to compare in a figure."))
    sections = [Section("cactus-section", "Instances solved against time", plots)]
    example = analysis.example_of(study, dataset, instance)
    if example is not None:
        (bounds, data), (sizes, _) = analysis.trace_plots(study, example)
        words = "As in the paper's Figure 2: bounds and circuit size while an iterative method runs."
        if instance is None:
            words += " The instance is one that most of these methods solved, of those the one with most iterations."
        blocks: list[Item] = [Text(words), Figure(bounds, data), Figure(sizes, None)]
        sections.append(Section("example", "One instance, iteration by iteration", blocks))
    elif dataset is not None:
        sections[0].blocks.append(Text(f"No run on {dataset} has a trace, so there is no figure of iterations."))
    return sections


def _verdict(found: Agreement, tolerance: float) -> Text:
    if found.conflicts:
        wrong = f"Error: {len(found.conflicts)} pairs of runs contradict each other. At least one of the two is wrong."
        return Text(wrong, "bad")
    compared = f"{found.instances:,} instances compared, {found.pairs:,} pairs of optima, no disagreement "
    return Text(f"{compared}(more than {short(tolerance)} nats would be one).", "good")


def _agreement(study: Study, found: Agreement, tolerance: float) -> list[Item]:
    blocks: list[Item] = [
        _verdict(found, tolerance),
        Text(
            "Every two runs of an instance are compared: two optima must be equal, and no state that one found may "
            f"lie above the bound that another proved ({found.bounds:,} such comparisons)."
        ),
    ]
    if found.conflicts:
        blocks.append(Shown(analysis.conflict_table(found)))
    failures = analysis.failure_table(study)
    blocks.append(Text("No run failed or was killed.") if failures is None else Shown(failures))
    return blocks


def _conditions(study: Study, torn: int, commands: Sequence[str]) -> list[Item]:
    said = "Seconds are wall-clock time of solving, on the machine below; each run had a process of its own."
    if any(run.computing for run in study.runs):
        said += " Where it says so below they are those of the processor, since the machine had other work."
    blocks: list[Item] = [
        Text(said),
        Facts(analysis.conditions(study)),
    ]
    if torn:
        blocks.append(Text(f"{torn} lines of the file were cut off while they were written, and are left out."))
    if commands:
        blocks.append(Code(list(commands)))
    return blocks
