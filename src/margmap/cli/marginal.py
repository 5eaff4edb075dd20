"""``margmap marginal``: probabilities of evidence, of a target given it, and of every other variable."""

from __future__ import annotations

from typing import Annotated, Any

from margmap.cli.inputs import load_model, parse_evidence
from margmap.cli.options import Evidence, Format, Json, MaxEdges, Model, flag, option
from margmap.cli.output import print_json, print_table, spinner


def marginal(
    model: Model,
    evidence: Evidence = None,
    target: Annotated[
        list[str] | None, option("V=X,...", "Also print log p(target | evidence).", "--target", "-t")
    ] = None,
    posteriors: Annotated[bool, flag("--posteriors", "Also print p(X = x | evidence) for every variable.")] = False,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Compute the log-probability of evidence, and what follows from it for other variables."""
    observed, asked = parse_evidence("--evidence", evidence), parse_evidence("--target", target)
    loaded = load_model(model, format)
    with spinner("Evaluating ..."):
        from margmap.inference import queries

        answer: dict[str, Any] = {"log_evidence": queries.log_marginal(loaded, observed, max_edges=max_edges)}
        if asked:
            answer["log_conditional"] = queries.log_conditional(loaded, asked, observed, max_edges=max_edges)
        if posteriors:
            answer["posteriors"] = dict(queries.posteriors(loaded, observed, max_edges=max_edges))
    if json:
        print_json(answer)
        return
    print(f"log p(e) = {answer['log_evidence']:.6f}")
    if asked:
        print(f"log p(t | e) = {answer['log_conditional']:.6f}")
    if posteriors:
        tables = answer["posteriors"].items()
        rows = [(name, "  ".join(f"{value}: {p:.6g}" for value, p in table.items())) for name, table in tables]
        print_table(("variable", "posterior"), rows)
