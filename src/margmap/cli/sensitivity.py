"""``margmap sensitivity``: what would change the answer of a query."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer

from margmap.cli.base import STOPPED
from margmap.cli.inputs import load_model, parse_names, question
from margmap.cli.options import Evidence, Format, Index, Instance, Json, Model, Query, option
from margmap.cli.output import print_json, print_state, print_table, spinner

if TYPE_CHECKING:
    from margmap.solve.sensitivity import Change, Sensitivity

_LOOK_AT = "Variables that will be looked at: how likely does the answer stay the same?"
_ROWS = "Print so many rows; --json has all."


def sensitivity(
    model: Model,
    query: Query = None,
    evidence: Evidence = None,
    look_at: Annotated[list[str] | None, option("V,...", _LOOK_AT)] = None,
    time_limit: Annotated[float | None, option("S", "Stop after this many seconds.")] = None,
    instance: Instance = None,
    index: Index = None,
    rows: Annotated[int, option("N", _ROWS, min=1)] = 40,
    format: Format = None,
    json: Json = False,
) -> None:
    """Say for each variable what the answer would be with another observation, and whether it would change."""
    asked, observed = question(query, evidence, instance, index)
    loaded = load_model(model, format)
    with spinner("Solving ..."):
        from margmap.solve import sensitivity as solver

        found = solver.sensitivity(
            loaded, asked, observed, look_at=parse_names("--look-at", look_at), time_limit=time_limit
        )
    if json:
        print_json(found.to_dict())
    else:
        _print(found, rows)
    if not found.complete:
        raise typer.Exit(STOPPED)


def _print(found: Sensitivity, most: int) -> None:
    if found.answer.state is None:
        print(found.answer.no_state)
        return
    print_state(found.answer.state, found.answer.log_prob, found.answer.log_conditional)
    print(found.answer.proof)
    print_table(("if", "probability", "p(answer)", "then the answer"), [_row(found, c) for c in found.changes[:most]])
    if len(found.changes) > most:
        print(f"... {len(found.changes)} rows in all: --rows or --json")
    if found.same_decision is not None:
        low, high = found.same_decision
        share = f"{low:.6g}" if math.isclose(low, high) else f"{low:.6g} to {high:.6g}"
        print(f"after looking at {', '.join(map(str, found.look_at))} the answer is the same with probability {share}")
    if not found.complete:
        print("not everything is known: stopped, or too many states to look at")


def _row(found: Sensitivity, change: Change) -> tuple[str, str, str, str]:
    what = f"{change.variable}={change.value}" if change.value is not None else f"{change.variable} were not observed"
    then = "is not known" if change.survives is None else "stays" if change.survives else found.different(change)
    if change.probability == 0:
        then = "(impossible)"
    probability = "" if change.value is None else f"{change.probability:.6g}"
    return what, probability, "" if math.isnan(change.current) else f"{change.current:.6g}", then
