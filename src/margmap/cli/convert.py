"""``margmap convert``: a circuit in another format, a network as a circuit, the vtree of a circuit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from margmap.cli.inputs import is_network
from margmap.cli.options import Json, MaxEdges, argument, flag, option
from margmap.cli.output import filled_bar, report, spinner, telling
from margmap.errors import LostNamesWarning, UnnormalisedWarning

if TYPE_CHECKING:
    from margmap.circuit import Circuit


def convert(
    source: Annotated[Path, argument("IN", "The file to read.")],
    target: Annotated[Path, argument("OUT", "The file to write, .gz to compress.")],
    source_format: Annotated[
        str | None, option("F", "The format of IN, where its name does not say it.", "--from")
    ] = None,
    target_format: Annotated[
        str | None, option("F", "The format of OUT, where its name does not say it.", "--to")
    ] = None,
    smooth: Annotated[bool, flag("--smooth", "Make the circuit smooth first.")] = False,
    normalise: Annotated[bool, flag("--normalise", "Make all weights add up to 1 first.")] = False,
    weights: Annotated[Path | None, option("FILE", "Weights of the literals of an .nnf or .sdd file.")] = None,
    names: Annotated[Path | None, option("FILE", "What its variables are called: number, name.")] = None,
    vtree: Annotated[Path | None, option("FILE", "The vtree of an .sdd file.")] = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Rewrite a circuit in another format, or compile a network. To .vtree, write the vtree that a circuit follows."""
    if is_network(source, source_format) and (weights or names or vtree):
        raise typer.BadParameter("--weights, --names and --vtree are for theories (.nnf, .sdd)")
    compiled = _compile(source, source_format, max_edges) if is_network(source, source_format) else None
    with spinner(f"Converting {source} ..."):
        from margmap.circuit import Circuit, transform
        from margmap.circuit.vtree import vtree_of
        from margmap.io.formats import format_name, load, save

        value = compiled or load(source, source_format, weights=weights, names=names, vtree=vtree)
        if isinstance(value, Circuit):
            value = transform.smooth(value) if smooth else value
            value = transform.normalise(value) if normalise else value
            value = vtree_of(value) if format_name(target, target_format) == "vtree" else value
        elif smooth or normalise:
            raise typer.BadParameter("--smooth and --normalise need a circuit, and IN is a vtree")
        with telling(LostNamesWarning):
            save(value, target, target_format)
    facts = {"source": str(source), "target": str(target), "nodes": value.num_nodes}
    report(json, facts, f"wrote {target}: {value!r}")


def _compile(source: Path, format: str | None, max_edges: int | None) -> Circuit:
    with telling(UnnormalisedWarning), spinner(f"Loading {source} ...") as show:
        from margmap.io.formats import load_network
        from margmap.network.compile import compile

        def tell(done: int, total: int) -> None:
            part = done / max(total, 1)
            show(f"Compiling the network [{filled_bar(part, 30, '= ')}] {100 * part:.0f} %")

        return compile(load_network(source, format), max_edges=max_edges, on_table=tell)
