"""``margmap learn``: a circuit from rows of data."""

from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from margmap.cli.base import STOPPED
from margmap.cli.options import DataFolder, Json, argument, option
from margmap.cli.output import filled_bar, report, spinner
from margmap.errors import FormatError, NoSplitWarning

if TYPE_CHECKING:
    from margmap.circuit import Circuit
    from margmap.learn import Growth, Learned

_DATA = "Comma-separated whole numbers from 0, .gz or not, without a header; or the name of a dataset."


def learn(
    data: Annotated[Path, argument("DATA", _DATA)],
    output: Annotated[Path, option("MODEL", "The circuit to write, such as model.psdd.", "--output", "-o")],
    valid: Annotated[Path | None, option("FILE", "Rows that decide which circuit is the best.")] = None,
    time_limit: Annotated[float | None, option("S", "Stop after this many seconds.", min=0)] = None,
    max_edges: Annotated[int | None, option("N", "Stop when the circuit is this large.", min=1)] = None,
    iterations: Annotated[int | None, option("N", "Stop after this many splits.", min=0)] = None,
    patience: Annotated[int, option("N", "Stop after this many splits that did not help.", min=0)] = 1000,
    tries: Annotated[int, option("N", "How many variables to try for each split.", min=1)] = 8,
    components: Annotated[int, option("K", "Then fit a mixture of K on the structure.", min=1)] = 1,
    seed: Annotated[int, option("S", "For random choices.", min=0)] = 0,
    resume: Annotated[Path | None, option("MODEL", "Go on from a circuit that was learned before.")] = None,
    folder: DataFolder = None,
    json: Json = False,
) -> None:
    """Learn a circuit from rows (Strudel). Ctrl-C ends early and writes the best circuit so far."""
    train, checked = _read_data(data, valid, folder)
    _check_output(output, train)
    limits = {"time_limit": time_limit, "max_edges": max_edges, "iterations": iterations}
    found = _run(train, checked, resume, limits, patience=patience, tries=tries, seed=seed)
    circuit, train_mean, valid_mean = found.circuit, found.best.train, found.best.valid
    if components > 1 and found.reason != "interrupted":
        circuit = _mix(train, checked, found, components, seed)
        train_mean, valid_mean = (_mean_likelihood(circuit, rows) for rows in (train, checked))
    with spinner(f"Writing {output} ..."):
        from margmap.io.formats import save

        save(circuit, output)
    facts = {
        "output": str(output),
        "reason": found.reason,
        "iterations": found.last.iteration,
        "best_iteration": found.best.iteration,
        "train": train_mean,
        "valid": valid_mean,
        "nodes": circuit.num_nodes,
        "edges": circuit.num_edges,
        "seconds": found.last.seconds,
    }
    report(
        json,
        facts,
        f"wrote {output}: {circuit!r}",
        f"mean log-likelihood: train {train_mean:.6f}" + _valid(valid_mean, ".6f"),
        f"ended by {found.reason.replace('_', ' ')} after {found.last.iteration} splits, "
        f"{found.last.seconds:.3g} s; the circuit is that after {found.best.iteration}",
    )
    if found.reason == "interrupted":
        raise typer.Exit(STOPPED)


def progress(now: Growth, part: float | None) -> str:
    """One line: how far it is, if there is a limit to tell by, then iteration, log-likelihoods and size."""
    bar = "" if part is None else filled_bar(part, 20, "#.") + " "
    numbers = f"train {now.train:.4f}{_valid(now.valid, '.4f')}, {now.edges} edges, {now.seconds:.0f} s"
    return f"{bar}iteration {now.iteration}: {numbers}"


def _valid(mean: float, digits: str) -> str:
    return "" if math.isnan(mean) else f", valid {mean:{digits}}"


def _read_data(data: Path, valid: Path | None, folder: Path | None) -> tuple[Any, Any]:
    """Training and validation rows: of files, or of one of the twenty datasets where there is no file of its name."""
    with spinner(f"Reading {data} ..."):
        from margmap.io.evidence_rows import read_matrix
        from margmap.learn.datasets import DATASETS, load_dataset

        checked = None if valid is None else read_matrix(valid)
        if str(data) not in DATASETS or data.is_file():
            return read_matrix(data), checked
        splits = load_dataset(str(data), folder)
        return splits.train, splits.valid if checked is None else checked


def _check_output(output: Path, train: Any) -> None:
    """Refuse before the work what cannot be written after it."""
    from margmap.circuit import Circuit
    from margmap.io.formats import format_name, formats_of

    known = formats_of(Circuit)
    if format_name(output) not in known:
        raise FormatError(f"the name says no format: end it in {', '.join('.' + name for name in known)}", path=output)
    if format_name(output) == "psdd" and train.max() > 1:
        raise FormatError("psdd is for binary variables, and the data has larger values: write .json", path=output)
    if not output.parent.is_dir():
        raise FormatError("there is no such folder", path=output.parent)


def _run(train: Any, valid: Any, resume: Path | None, limits: dict[str, Any], **options: Any) -> Learned:
    """Learn with a line of progress on a terminal."""
    with spinner("Learning ...") as show:
        from margmap.io.formats import load_circuit
        from margmap.learn import learn_strudel

        start = None if resume is None else load_circuit(resume)

        def tell(now: Growth) -> None:
            reached = {"time_limit": now.seconds, "max_edges": now.edges, "iterations": now.iteration}
            show(progress(now, max((reached[name] / most for name, most in limits.items() if most), default=None)))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSplitWarning)
            found = learn_strudel(train, valid, resume=start, on_growth=tell, **limits, **options)
    if found.warning is not None:
        print(f"margmap: {found.warning}", file=sys.stderr)
    return found


def _mix(train: Any, valid: Any, learned: Learned, components: int, seed: int) -> Circuit:
    """A mixture on the structure that was learned."""
    with spinner("Fitting the mixture ...") as show:
        from margmap.learn import learn_mixture

        def tell(now: Any) -> None:
            show(f"EM iteration {now.iteration}: train {now.train:.4f}, valid {now.valid:.4f}")

        options: dict[str, Any] = {"structure": learned.circuit, "seed": seed, "on_iteration": tell}
        return learn_mixture(train, valid, components, **options).circuit


def _mean_likelihood(circuit: Circuit, rows: Any) -> float:
    """The mean log-likelihood of rows; NaN if there are none."""
    from margmap.inference.queries import log_likelihood

    return math.nan if rows is None else float(log_likelihood(circuit, rows).mean())
