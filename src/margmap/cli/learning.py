"""What the commands ``learn`` and ``datasets`` do."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margmap.cli.inputs import read_rows
from margmap.cli.output import print_table, spinner
from margmap.errors import FormatError, NoSplitWarning, QueryError

if TYPE_CHECKING:
    from margmap.circuit import Circuit
    from margmap.learn.strudel_growth import Learned, Progress
    from margmap.learn.table import Codes

_BAR = 20


def read_data(data: Path, valid: Path | None, folder: Path | None) -> tuple[Any, Any]:
    """Training and validation rows: of files, or of one of the twenty datasets where there is no file of its name."""
    with spinner(f"Reading {data} ..."):
        from margmap.learn.datasets import DATASETS, load_dataset

        if str(data) in DATASETS and not data.is_file():
            splits = load_dataset(str(data), folder)
            return splits.train, splits.valid if valid is None else read_rows(valid)
        return read_rows(data), None if valid is None else read_rows(valid)


def check_output(output: Path, train: Any) -> None:
    """Refuse before the work what cannot be written after it."""
    from margmap.circuit import Circuit
    from margmap.io.formats import formats_of

    suffixes = [suffix for suffix in output.suffixes if suffix.lower() != ".gz"]
    suffix = suffixes[-1][1:].lower() if suffixes else ""
    known = formats_of(Circuit)
    if suffix not in known:
        raise FormatError(f"the name says no format: end it in {', '.join('.' + name for name in known)}", path=output)
    if suffix == "psdd" and train.max() > 1:
        raise FormatError("psdd is for binary variables, and the data has larger values: write .json", path=output)
    if not output.parent.is_dir():
        raise FormatError("there is no such folder", path=output.parent)


def run(
    train: Any, valid: Any, resume: Path | None, time_limit: float | None, max_edges: int | None, **options: Any
) -> Learned:
    """Learn with a line of progress on a terminal."""
    with spinner("Learning ...") as show:
        from margmap.learn.strudel_growth import learn_strudel

        start: Circuit | None = None
        if resume is not None:
            from margmap.io.formats import load_circuit

            start = load_circuit(resume)
        iterations: int | None = options.get("iterations")

        def report(now: Progress) -> None:
            parts = [
                now.seconds / time_limit if time_limit else 0.0,
                now.edges / max_edges if max_edges else 0.0,
                now.iteration / iterations if iterations else 0.0,
            ]
            show(progress(now, max(parts) if time_limit or max_edges or iterations else None))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSplitWarning)
            found = learn_strudel(
                train, valid, resume=start, time_limit=time_limit, max_edges=max_edges, on_progress=report, **options
            )
    if found.warning is not None:
        print(f"margmap: {found.warning}", file=sys.stderr)
    return found


def progress(now: Progress, part: float | None) -> str:
    """One line: how far it is, if there is a limit to tell by, then iteration, log-likelihoods and size."""
    bar = ""
    if part is not None:
        full = min(_BAR, int(_BAR * part))
        bar = f"{'#' * full}{'.' * (_BAR - full)} "
    valid = "" if math.isnan(now.valid) else f", valid {now.valid:.4f}"
    return f"{bar}iteration {now.iteration}: train {now.train:.4f}{valid}, {now.edges} edges, {now.seconds:.0f} s"


def mix(train: Any, valid: Any, learned: Learned, components: int, seed: int) -> Circuit:
    """A mixture on the structure that was learned."""
    with spinner("Fitting the mixture ...") as show:
        from margmap.learn.mixture_em import learn_mixture

        return learn_mixture(
            train,
            valid,
            components,
            structure=learned.circuit,
            seed=seed,
            on_iteration=lambda r: show(f"EM iteration {r.iteration}: train {r.train:.4f}, valid {r.valid:.4f}"),
        ).circuit


def mean_likelihood(circuit: Circuit, rows: Codes | None) -> float:
    """The mean log-likelihood of rows; NaN if there are none."""
    from margmap.inference.queries import log_likelihood

    return math.nan if rows is None else float(log_likelihood(circuit, rows).mean())


def listing(folder: Path | None) -> list[dict[str, Any]]:
    """The twenty datasets; with a folder also whether they are there."""
    from margmap.learn.datasets import DATASETS, present

    return [
        {
            "name": d.name,
            "variables": d.variables,
            **dict(zip(("train", "valid", "test"), d.rows, strict=True)),
            **({} if folder is None else {"present": present(d.name, folder)}),
        }
        for d in DATASETS.values()
    ]


def fetch(names: list[str], folder: Path | None, get: Callable[[str], bytes] | None = None) -> list[Path]:
    """Download datasets, all twenty for ``all``."""
    from margmap.learn.datasets import DATASETS, data_folder, download, find

    place = data_folder(folder)
    wanted = list(DATASETS) if names == ["all"] else [find(name).name for name in names]
    if not wanted:
        raise QueryError("name the datasets to download, or all")
    written = []
    for name in wanted:
        with spinner(f"Downloading {name} ..."):
            written += download(name, place, get)
    return written


def print_listing(rows: list[dict[str, Any]]) -> None:
    """The listing as a table."""
    header = ("dataset", "variables", "train", "valid", "test", *(["here"] if "present" in rows[0] else []))
    cells = []
    for row in rows:
        values = dict(row)
        if "present" in values:
            values["present"] = "yes" if values["present"] else "no"
        cells.append(tuple(values.values()))
    print_table(header, cells)
