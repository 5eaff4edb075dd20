"""``margmap approximate``: a likely state, without a proof."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from margmap.cli.inputs import given, load_model, question
from margmap.cli.options import Evidence, Format, Index, Instance, Json, MaxEdges, Model, Query, option
from margmap.cli.output import print_json, print_state, spinner

_METHOD = "best_tree, naive_greedy, argmax_product, beam or k_best_tree."


def approximate(
    model: Model,
    query: Query = None,
    evidence: Evidence = None,
    method: Annotated[str, option("M", _METHOD, "--method", "-m")] = "k_best_tree",
    k: Annotated[int | None, option("K", "How many states beam and k_best_tree look at.", "-k", min=1)] = None,
    instance: Instance = None,
    index: Index = None,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Find a likely state of the query variables quickly, without a proof that it is the most likely one."""
    asked, observed = question(query, evidence, instance, index)
    loaded = load_model(model, format)
    with spinner("Looking for a good state ..."):
        from margmap.solve.approximate import approximate as find

        found = find(loaded, asked, observed, method, max_edges=max_edges, **given(k=k))
    if json:
        print_json(asdict(found))
        return
    print_state(found.state, found.log_prob, found.log_conditional)
    print("not proven: a better state may exist; `margmap solve` finds the best")
    print(f"method {found.method}, {found.seconds:.3g} s")
