"""``margmap verify``: check a proof of optimality that ``margmap solve --certificate`` wrote."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from margmap.cli.base import BAD_INPUT, STOPPED
from margmap.cli.inputs import given, parse_evidence, parse_names, require_circuit
from margmap.cli.options import Evidence, Format, Json, Model, argument, option
from margmap.cli.output import complain, report, spinner
from margmap.foundation.wording import listed

if TYPE_CHECKING:
    from margmap.certificate.file import Certificate
    from margmap.certificate.verify import Verdict
    from margmap.circuit import Circuit, Variable
    from margmap.circuit.observation import Weights

_QUERY = "Refuse a certificate about other variables."
_TOLERANCE = "The gap up to which the state counts as optimal; 1e-9 if not given."


def verify(
    model: Model,
    certificate: Annotated[Path, argument("CERT", "What `solve --certificate` wrote.")],
    query: Annotated[list[str] | None, option("V,...", _QUERY, "--query", "-q")] = None,
    evidence: Evidence = None,
    tolerance: Annotated[float | None, option("NATS", _TOLERANCE)] = None,
    format: Format = None,
    json: Json = False,
) -> None:
    """Check a proof without any solver: exit code 0 if the state is optimal, 3 if a gap is left, 2 if it is refused."""
    asked = parse_names("--query", query)
    observed = parse_evidence("--evidence", evidence) if evidence else None
    require_circuit(model, format)
    with spinner(f"Loading {model} ..."):
        from margmap.certificate.file import Certificate
        from margmap.certificate.verify import verify as check
        from margmap.io.formats import load_circuit

        claim = Certificate.load(certificate)
        circuit = load_circuit(model, format)
    with spinner("Checking ..."):
        begun = time.perf_counter()
        verdict = check(circuit, claim, query=asked, evidence=observed, **given(tolerance=tolerance))
        seconds = time.perf_counter() - begun
    facts = {**verdict.to_dict(), "query": list(claim.query), "vectors": claim.vectors, "seconds": seconds}
    if json or verdict.accepted:
        report(json, facts, *(_proven(verdict, circuit, claim, seconds) if verdict.accepted else ()))
    if not verdict.accepted:
        complain(f"{certificate}: refused: {verdict.reason}")
    if not verdict.optimal:
        raise typer.Exit(STOPPED if verdict.accepted else BAD_INPUT)


def _weights(variable: Variable, given: Weights) -> str:
    """A set of values, or a likelihood, as the command line takes it."""
    labels = [str(variable.label(x)) for x in range(len(given.values))]
    if set(given.values) <= {0.0, 1.0}:
        return "|".join(label for label, weight in zip(labels, given.values, strict=True) if weight)
    return "|".join(f"{label}:{weight!r}" for label, weight in zip(labels, given.values, strict=True))


def _proven(verdict: Verdict, circuit: Circuit, claim: Certificate, seconds: float) -> list[str]:
    """What an accepted certificate proves, for people."""
    from margmap.circuit.observation import Weights

    seen = circuit.labelled({circuit.own(name): value for name, value in claim.evidence.items()})
    evidence = {v.name: _weights(v, value) if isinstance(value, Weights) else value for v, value in seen.items()}
    what = f"optimal within {verdict.tolerance:g} nats"
    if not verdict.optimal:
        what = f"not proven to be the best: more than {verdict.tolerance:g} nats are left (--tolerance allows more)"
    return [
        f"accepted: {listed(verdict.state) or 'no variables'}" + (f" given {listed(evidence)}" if evidence else ""),
        f"log p(q, e) lies between {verdict.log_prob_low!r} and {verdict.log_prob_high!r}",
        f"no state is above {verdict.log_upper!r}: a gap of {verdict.gap:.2g} nats, {what} ({seconds:.3g} s)",
    ]
