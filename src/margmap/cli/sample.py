"""``margmap sample``: rows drawn from a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from margmap.cli.inputs import load_model, parse_evidence
from margmap.cli.options import Evidence, Format, Json, MaxEdges, Model, option
from margmap.cli.output import print_json, report, spinner


def sample(
    model: Model,
    number: Annotated[int, option("N", "How many rows to draw.", "-n", min=0)] = 1,
    evidence: Evidence = None,
    seed: Annotated[int | None, option("S", "For the same rows every time.", min=0)] = None,
    output: Annotated[Path | None, option("FILE", "Write there, not to stdout.", "--output", "-o")] = None,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Draw rows from p(. | evidence), as comma-separated numbers in the order of the model's variables."""
    observed = parse_evidence("--evidence", evidence)
    loaded = load_model(model, format)
    with spinner("Sampling ..."):
        from margmap.inference import queries
        from margmap.io.files import write_lines

        drawn = queries.sample(loaded, number, observed, seed, max_edges=max_edges)
    kinds = [float if variable.continuous else int for variable in loaded.variables]
    lines = (",".join(repr(kind(x)) for kind, x in zip(kinds, row, strict=True)) for row in drawn)
    names = {"variables": list(loaded.names)}
    if output is not None:
        write_lines(output, lines)
        report(json, {**names, "output": str(output), "rows": number}, f"wrote {number} rows to {output}")
    elif json:
        print_json({**names, "rows": drawn.tolist()})
    else:
        for line in lines:
            print(line)
