"""Questions that need marginal MAP, on models that come with the package: no files, no network.

*Clinic*, made by ``scripts/make_demo_model.py``, describes a patient in twelve variables. A mild allergy looks much the
same in everybody, flu does not; so the most probable complete description of a patient with high fever in spring is one
of a mild allergy, while the most probable *illness and course*, with everything else summed out, is severe flu.

*Digits*: handwritten digits of which the upper half is seen. The model, a hidden Chow-Liu tree learned by
``scripts/make_digits_model.py`` with :mod:`margmap.learn`, knows 64 pixels. Asked is the most likely ink in the middle
of the lower half, whatever the pixels on both sides of it are; the most likely *complete* lower half (MPE), cut down to
the middle, is another answer where many lower halves share a middle. The script also answers all digits that were held
out, and :func:`measured` has what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, NamedTuple

from margmap.circuit import Circuit, Name, Value
from margmap.inference.queries import log_conditional
from margmap.io.formats import BUNDLED, load_circuit
from margmap.solve.marginal_map import marginal_map, mpe
from margmap.solve.result import Result

MODEL = "clinic.json"
QUERY: tuple[Name, ...] = ("illness", "course")
EVIDENCE: dict[Name, Value] = {"season": "winter", "age": "senior"}
#: What the demo leads with: here MPE is far off.
FEVER: dict[Name, Value] = {"season": "spring", "fever": "high"}

DIGITS_MODEL = "digits.json.gz"
DIGITS = "digits.txt"
MEASURED = "digits-measured.txt"
#: Pixels in a row, and rows in a digit.
SIDE = 8
#: What is asked for: these columns of the lower half.
MIDDLE = range(2, 6)


def load_model() -> Circuit:
    """The clinic: twelve variables with named states."""
    return load_circuit(BUNDLED["clinic"])


def load_digits() -> Circuit:
    """The digits: 64 pixels, variable 1 the one on the upper left, 8 in a row."""
    return load_circuit(BUNDLED["digits"])


class Digit(NamedTuple):
    """A digit that the learner has not seen: what was meant, and its 64 pixels."""

    label: int
    pixels: tuple[int, ...]


def held_out() -> list[Digit]:
    """Some digits for which the two answers differ."""
    return [Digit(int(line[0]), tuple(map(int, line[2:]))) for line in _lines(DIGITS)]


def measured() -> dict[str, float]:
    """What the script found on all digits that were held out."""
    return {name: float(value) for name, value in (line.split() for line in _lines(MEASURED))}


def _lines(name: str) -> list[str]:
    text = (files("margmap") / "models" / name).read_text(encoding="ascii")
    return [line for line in text.split("\n") if line]


def digit_query() -> list[Name]:
    """The variables asked for: the middle of the lower half."""
    return [SIDE * row + column + 1 for row in range(SIDE // 2, SIDE) for column in MIDDLE]


def digit_evidence(pixels: Sequence[int]) -> dict[Name, Value]:
    """The upper half of a digit."""
    return {i + 1: int(pixels[i]) for i in range(SIDE * SIDE // 2)}


@dataclass(frozen=True)
class Comparison:
    """The right answer to a question beside the one that a detour over MPE gives."""

    query: tuple[Name, ...]
    evidence: dict[Name, Value]
    marginal_map: Result
    mpe: Result
    #: The MPE state's values of the query variables.
    projected: dict[Name, int | str]
    #: log p(projected | evidence), at most that of the marginal MAP state.
    log_projected: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings for ``margmap demo --json``."""
        return {
            "query": list(self.query),
            "evidence": {str(name): value for name, value in self.evidence.items()},
            "marginal_map": self.marginal_map.to_dict(),
            "mpe": self.mpe.to_dict(),
            "projected_mpe": {
                "state": {str(name): value for name, value in self.projected.items()},
                "log_conditional": self.log_projected,
            },
        }


def compare(
    circuit: Circuit, query: Sequence[Name] = QUERY, evidence: Mapping[Name, Value] | None = None, k: int = 1
) -> Comparison:
    """Answer a question both ways, by default that on the clinic: exact marginal MAP, and MPE cut down to the query."""
    known = dict(EVIDENCE if evidence is None else evidence)
    best = marginal_map(circuit, query, known, k=k)
    complete = mpe(circuit, known)
    if best.state is None or complete.state is None:  # without limits only Ctrl-C does that
        raise KeyboardInterrupt
    projected = {name: complete.state[name] for name in best.state}
    return Comparison(tuple(query), known, best, complete, projected, log_conditional(circuit, projected, known))


def complete_digit(circuit: Circuit, digit: Digit) -> Comparison:
    """Answer the question on a digit."""
    return compare(circuit, digit_query(), digit_evidence(digit.pixels))
