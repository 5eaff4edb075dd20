"""``margmap likelihood``: how likely rows of data are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from margmap.cli.inputs import load_model
from margmap.cli.options import Format, Json, MaxEdges, Model, argument, flag
from margmap.cli.output import report, spinner

_ROWS = "Comma-separated numbers, .gz or not: a column for each variable, -1, nan or nothing if missing."


def likelihood(
    model: Model,
    rows: Annotated[Path, argument("ROWS", _ROWS)],
    per_row: Annotated[bool, flag("--per-row", "Print the log-likelihood of each row instead of the mean.")] = False,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Compute the mean log-likelihood of data."""
    loaded = load_model(model, format)
    with spinner(f"Reading {rows} ..."):
        from margmap.io.evidence_rows import read_matrix

        matrix = read_matrix(rows)
    with spinner("Evaluating ..."):
        from margmap.inference.queries import log_likelihood

        found = log_likelihood(loaded, matrix, max_edges=max_edges)
    mean, values = float(found.mean()), found.tolist()
    facts: dict[str, Any] = {"rows": len(values), "mean_log_likelihood": mean}
    if per_row:
        report(json, {**facts, "log_likelihoods": values}, *map(repr, values))
    else:
        report(json, facts, f"mean log-likelihood = {mean:.6f} over {len(values)} rows")
