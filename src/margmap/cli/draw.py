"""``margmap draw``: a picture of a model, and of the answer to a question if one is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from margmap.cli.inputs import given, load_model, question
from margmap.cli.options import Evidence, Format, Index, Instance, Json, MaxEdges, Model, option
from margmap.cli.output import report, spinner

if TYPE_CHECKING:
    from margmap.plot import Picture
    from margmap.solve.result import Result

_QUERY = "Variables to ask for: their best state is found and marked."


def draw(
    model: Model,
    output: Annotated[Path, option("FILE", "The picture to write: .svg, .png, .pdf or .dot.", "--output", "-o")],
    query: Annotated[list[str] | None, option("V,...", _QUERY, "--query", "-q")] = None,
    evidence: Evidence = None,
    instance: Instance = None,
    index: Index = None,
    time_limit: Annotated[float | None, option("S", "Stop looking for the best state after this many seconds.")] = None,
    max_edges: MaxEdges = None,
    format: Format = None,
    json: Json = False,
) -> None:
    """Draw a circuit or a network; with a query also its answer. SVG and dot need no other program."""
    asked, observed = question(query, evidence, instance, index)
    loaded = load_model(model, format)
    with spinner("Drawing ..."):
        from margmap import plot
        from margmap.circuit import Circuit
        from margmap.plot.graph import Drawing
        from margmap.plot.picture import check_format

        check_format(output, Drawing.formats)
        result: Result | None = None
        if asked is not None:
            from margmap.solve.marginal_map import marginal_map

            limit = {} if isinstance(loaded, Circuit) else given(max_edges=max_edges)
            result = marginal_map(loaded, asked, observed, time_limit=time_limit, **limit)
        picture: Picture
        if isinstance(loaded, Circuit):
            picture = plot.circuit(loaded, result, evidence=observed)
        else:
            picture = plot.network(loaded, result, evidence=observed)
        picture.save(output)
    facts = {"model": str(model), "output": str(output), "title": picture.title, "description": picture.description}
    report(json, facts, f"wrote {output}: {picture.title}")
