"""``margmap bench generate``: instances for circuits, drawn at random."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from margmap.cli.options import Json, argument, flag, option
from margmap.cli.output import report, spinner
from margmap.errors import QueryError
from margmap.foundation.numerals import real_of

if TYPE_CHECKING:
    from margmap.bench.instances import Proportions

_PROPORTIONS = """Percent of the variables queried, observed and hidden; may be repeated. \
Without: the paper's 30/30/40 and 50/20/30."""
_CSV = "Also write the format of the paper's authors (binary variables)."


def generate(
    models: Annotated[list[Path], argument("MODEL...", "Circuits to draw instances for.")],
    output: Annotated[Path, option("DIR", "The folder to write them to.", "--output", "-o")],
    proportions: Annotated[list[str] | None, option("Q/E/H", _PROPORTIONS)] = None,
    number: Annotated[int, option("N", "How many of each.", "--number", "-n", min=1)] = 10,
    seed: Annotated[int, option("S", "For the same instances every time.", min=0)] = 1,
    rows: Annotated[Path | None, option("ROWS.csv", "Take the evidence from rows of data.")] = None,
    csv: Annotated[bool, flag("--csv", _CSV)] = False,
    json: Json = False,
) -> None:
    """Draw instances: the variables divided at random, evidence of nonzero probability. One file for each circuit."""
    from margmap.bench import instances
    from margmap.io.evidence_rows import read_matrix
    from margmap.io.files import make_folder
    from margmap.io.formats import load_circuit

    parts = [_proportions(text) for text in proportions] if proportions else list(instances.PAPER)
    names = [model.name.split(".")[0] or model.name for model in models]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise QueryError(f"two models are called {twice!r}: their instances would go to the same file")
    data = None if rows is None else read_matrix(rows)
    make_folder(output)
    written = []
    for name, model in zip(names, models, strict=True):
        with spinner(f"Drawing instances for {model} ..."):
            circuit = load_circuit(model)
            drawn = instances.generate(circuit, parts, number, seed, data, name)
            path = output / f"{name}.json"
            if csv:
                instances.write_csv(path.with_suffix(".csv"), drawn, circuit.variables)
            instances.write(path, instances.InstanceFile(name, instances.relative_model(model, path), seed, drawn))
        written.append({"path": str(path), "dataset": name, "instances": len(drawn)})
    report(json, {"written": written}, *(f"wrote {one['path']}: {one['instances']} instances" for one in written))


def _proportions(text: str) -> Proportions:
    try:
        query, evidence, hidden = (real_of(part) / 100 for part in text.split("/"))
    except ValueError:
        raise QueryError(f"--proportions {text!r}: give three percentages, such as 30/30/40") from None
    return query, evidence, hidden
