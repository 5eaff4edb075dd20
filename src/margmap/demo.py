"""A question that needs marginal MAP, on a model that comes with the package: no files, no network.

The model, made by ``scripts/make_demo_model.py``, describes a patient in twelve variables. Mild colds look much the
same in everybody, flu does not; so the most probable *complete* description (MPE) of an old patient in winter is one of
a mild cold, while the most probable *illness and course*, with everything else summed out, is severe flu.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import as_file, files
from typing import Any

from margmap.circuit import Circuit, Name
from margmap.io import load_circuit
from margmap.queries import log_conditional
from margmap.solve import marginal_map
from margmap.solve.result import Result

MODEL = "clinic.json"
QUERY: tuple[Name, ...] = ("illness", "course")
EVIDENCE: dict[Name, int | float | str] = {"season": "winter", "age": "senior"}


def load_model() -> Circuit:
    """The bundled circuit, twelve variables with named states."""
    with as_file(files("margmap") / "models" / MODEL) as path:
        return load_circuit(path)


@dataclass(frozen=True)
class Comparison:
    """The right answer to the demo's question beside the one that a detour over MPE gives."""

    marginal_map: Result
    mpe: Result
    #: The MPE state's values of the query variables.
    projected: dict[Name, int | str]
    #: log p(projected | evidence), at most that of the marginal MAP state.
    log_projected: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings for ``margmap demo --json``."""
        return {
            "model": MODEL,
            "query": list(QUERY),
            "evidence": dict(EVIDENCE),
            "marginal_map": self.marginal_map.to_dict(),
            "mpe": self.mpe.to_dict(),
            "projected_mpe": {
                "state": {str(name): value for name, value in self.projected.items()},
                "log_conditional": self.log_projected,
            },
        }


def compare(circuit: Circuit) -> Comparison:
    """Answer the question both ways: exact marginal MAP, and MPE cut down to the query variables."""
    best = marginal_map(circuit, QUERY, EVIDENCE)
    complete = marginal_map(circuit, None, EVIDENCE)
    projected = {name: complete.state[name] for name in QUERY}
    return Comparison(best, complete, projected, log_conditional(circuit, projected, EVIDENCE))
