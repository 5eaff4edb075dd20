"""``margmap score``: how likely each row of a table is, the least likely first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from margmap.cli.inputs import given, load_model
from margmap.cli.options import Format, Json, MaxEdges, Model, argument, flag, option
from margmap.cli.output import print_table, report, spinner
from margmap.cli.table_options import ROWS, UNKNOWN, Delimiter, Header, Missing

_LEAST = "How many of the least likely rows to show."


def score(
    model: Model,
    rows: Annotated[Path, argument("ROWS", ROWS)],
    least: Annotated[int, option("N", _LEAST, min=0)] = 10,
    output: Annotated[Path | None, option("FILE", "Write the score of each row there.", "--output", "-o")] = None,
    unknown: Annotated[bool, flag("--unknown-missing", UNKNOWN)] = False,
    missing: Missing = None,
    header: Header = None,
    delimiter: Delimiter = None,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Score rows by their log-likelihood, missing cells summed out: the least likely rows are the odd ones."""
    loaded = load_model(model, format)
    with spinner(f"Reading {rows} ..."):
        from margmap.learn.table import encode

        reading = given(header=header, delimiter=delimiter, missing=missing)
        codes = encode(loaded, rows, "missing" if unknown else "error", **reading)
    with spinner("Evaluating ..."):
        import numpy as np

        from margmap.inference.queries import log_likelihood
        from margmap.io.files import write_lines

        found = log_likelihood(loaded, codes, max_edges=max_edges)
        order = np.argsort(found, kind="stable")[:least].tolist()
    mean = float(found.mean())
    facts: dict[str, Any] = {"rows": len(found), "mean_log_likelihood": mean, "least_likely": order}
    if output is not None:
        write_lines(output, ["log_likelihood", *map(repr, found.tolist())])
        facts["output"] = str(output)
    else:
        facts["log_likelihoods"] = found.tolist()
    wrote = [f"wrote {output}"] if output is not None else []
    report(json, facts, f"mean log-likelihood = {mean:.6f} over {len(found)} rows", *wrote)
    if not json and order:
        print_table(("row (from 0)", "log-likelihood"), [(row, f"{found[row]:.6f}") for row in order])
