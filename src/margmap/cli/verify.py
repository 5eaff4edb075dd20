"""What ``solve --certificate`` and ``verify`` do: write a proof of optimality, and check one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margmap.cli.output import complain, print_json, printable, spinner
from margmap.errors import LimitError, MargmapError

if TYPE_CHECKING:
    from margmap.certificate.verify import Verdict
    from margmap.circuit import Circuit, Name, Value
    from margmap.network.network import Network
    from margmap.solve.result import Result

NETWORK = "a certificate is about a circuit: compile the network first with `margmap convert NETWORK CIRCUIT.json`"


def try_certificate(
    path: Path, circuit: Circuit | Network | None, evidence: Mapping[Name, Value], result: Result, gap: float | None
) -> tuple[dict[str, Any], MargmapError | None]:
    """Write the proof of an answer; what was written, and what went wrong: the answer is printed all the same."""
    with spinner("Writing the certificate ..."):
        from margmap.certificate.certify import certify
        from margmap.foundation.limits import TOLERANCE

        begun = time.perf_counter()
        try:
            if result.status != "optimal" or circuit is None:
                raise LimitError("no certificate: the solver stopped before its own proof was complete")
            found = certify(circuit, None, evidence, result=result, gap=TOLERANCE if gap is None else gap)
            found.save(path)
        except MargmapError as error:
            return {"certificate": None}, error
    return {
        "certificate": str(path),
        "certificate_bytes": path.stat().st_size,
        "certificate_vectors": found.vectors,
        "certificate_gap": found.gap,
        "certificate_seconds": time.perf_counter() - begun,
    }, None


def print_certificate(facts: Mapping[str, Any]) -> None:
    """Where the proof is and how large."""
    if facts.get("certificate") is not None:
        print(
            f"wrote {printable(facts['certificate'])}: {facts['certificate_vectors']} vectors, "
            f"{facts['certificate_bytes']} bytes, gap {facts['certificate_gap']:.2g} nats; "
            "check it with `margmap verify`"
        )


def run_verify(
    model: Path,
    path: Path,
    format: str | None,
    query: Sequence[Name] | None,
    evidence: Mapping[Name, Value] | None,
    tolerance: float | None,
    json: bool,
) -> Verdict:
    """Check a certificate and say what it proves."""
    with spinner(f"Loading {model} ..."):
        from margmap.certificate.file import Certificate
        from margmap.certificate.verify import TOLERANCE, verify
        from margmap.io.formats import load_circuit

        certificate = Certificate.load(path)
        circuit = load_circuit(model, format)
    with spinner("Checking ..."):
        begun = time.perf_counter()
        allowed = TOLERANCE if tolerance is None else tolerance
        verdict = verify(circuit, certificate, query=query, evidence=evidence, tolerance=allowed)
        seconds = time.perf_counter() - begun
    if json:
        size = {"vectors": certificate.vectors, "seconds": seconds}
        print_json({**verdict.to_dict(), "query": list(certificate.query), **size})
    elif verdict.accepted:
        seen = {circuit.variables[circuit.own(name)]: value for name, value in certificate.evidence.items()}
        given = {v.name: value if v.continuous else v.label(int(value)) for v, value in seen.items()}
        _print_proven(verdict, given, seconds)
    if not verdict.accepted:
        complain(f"{path}: refused: {verdict.reason}")
    return verdict


def _print_proven(verdict: Verdict, evidence: Mapping[Name, Any], seconds: float) -> None:
    given = f" given {_listed(evidence)}" if evidence else ""
    print(printable(f"accepted: {_listed(verdict.state) or 'no variables'}{given}"))
    print(f"log p(q, e) lies between {verdict.log_prob_low!r} and {verdict.log_prob_high!r}")
    what = (
        f"optimal within {verdict.tolerance:g} nats"
        if verdict.optimal
        else f"not proven to be the best: more than {verdict.tolerance:g} nats are left (--tolerance allows more)"
    )
    print(f"no state is above {verdict.log_upper!r}: a gap of {verdict.gap:.2g} nats, {what} ({seconds:.3g} s)")


def _listed(values: Mapping[Name, Any], most: int = 12) -> str:
    shown = ", ".join(f"{name}={value}" for name, value in list(values.items())[:most])
    return shown + (f", ... ({len(values)} variables)" if len(values) > most else "")
