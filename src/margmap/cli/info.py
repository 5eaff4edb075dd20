"""``margmap info``: what a model is, before anything is asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from margmap.cli.inputs import load_model
from margmap.cli.options import Format, Json, Model, flag
from margmap.cli.output import print_json, print_table, printable, spinner

if TYPE_CHECKING:
    from margmap.circuit import Circuit
    from margmap.network.network import Network


def info(
    model: Model,
    variables: Annotated[bool, flag("--variables", "List the variables instead: names, kinds, states.")] = False,
    format: Format = None,
    json: Json = False,
) -> None:
    """Show the size of a circuit and its structural properties; of a network, what compiling it would take."""
    loaded = load_model(model, format)
    from margmap.circuit import Circuit

    if variables:
        _list_variables(loaded, model, json)
        return
    facts = _of_circuit(loaded) if isinstance(loaded, Circuit) else _of_network(loaded)
    if json:
        print_json({"model": str(model), **facts})
        return
    reasons = facts.pop("reasons", ())
    print_table(("", ""), [row for name, value in facts.items() for row in _rows(name, value)])
    for reason in reasons:
        print(printable(reason))


def _list_variables(loaded: Circuit | Network, path: Path, json: bool) -> None:
    from margmap.circuit.listing import kind_of, rows_of

    if json:
        listed = [
            {"name": v.name, "kind": kind_of(v), "values": v.cardinality, "states": list(v.states)}
            for v in loaded.variables
        ]
        print_json({"model": str(path), "variables": listed})
    else:
        print_table(("variable", "kind", "values", "states"), rows_of(loaded.variables), most=None)


def _rows(name: str, value: Any) -> list[tuple[str, object]]:
    """The lines of the table for one fact."""
    if name == "leaves":
        return [(name, ", ".join(f"{count} {kind}" for kind, count in value.items()))]
    if name != "properties":
        return [(name.replace("_", " "), value)]
    words = {"deterministic": ("not shown", "shown")}  # a circuit may be deterministic without our seeing it
    return [(each, words.get(each, ("no", "yes"))[holds]) for each, holds in value.items()]


def _of_circuit(circuit: Circuit) -> dict[str, Any]:
    with spinner("Checking the structure ..."):
        from margmap.circuit import KIND_NAMES, PRODUCT, SUM

        number = [int((circuit.kind == kind).sum()) for kind in range(len(KIND_NAMES))]
        properties = circuit.properties._asdict()
    return {
        "variables": len(circuit.variables),
        "nodes": circuit.num_nodes,
        "edges": circuit.num_edges,
        "sums": number[SUM],
        "products": number[PRODUCT],
        "leaves": {KIND_NAMES[kind]: number[kind] for kind in range(PRODUCT) if number[kind]},
        "depth": circuit.depth,
        "reasons": list(properties.pop("reasons")),
        "properties": properties,
    }


def _of_network(network: Network) -> dict[str, Any]:
    with spinner("Looking for an elimination order ..."):
        from margmap.network.compile import predict

        plan = predict(network)
    return {
        "kind": network.kind,
        "variables": len(network.variables),
        "factors": len(network.factors),
        "parameters": network.num_parameters,
        "width": plan.width,
        "table_entries": plan.entries,
        "largest_table": plan.largest,
        "most_edges": plan.edges,
        "order": plan.order,
    }
