"""Write the model of `margmap demo`: twelve variables of a patient at a doctor's, invented for the purpose.

    .venv/bin/python scripts/make_demo_model.py [FILE]

The numbers are made up. They are chosen so that colds and allergies look much the same in everybody while flu shows
itself in many ways: then the single most likely complete description of an old patient in winter is one of a mild cold,
although severe flu is far more likely once all its descriptions are added up. The script is deterministic: it always
gives the same file.
"""

from __future__ import annotations

import operator
import sys
from functools import reduce
from pathlib import Path

import margmap as mm

TARGET = Path(__file__).parent.parent / "src" / "margmap" / "models" / "clinic.json"

STATES = {
    "illness": ("cold", "flu", "allergy"),
    "course": ("mild", "severe"),
    "season": ("winter", "spring", "summer", "autumn"),
    "age": ("child", "adult", "senior"),
    "fever": ("none", "low", "high"),
    "cough": ("none", "dry", "wet"),
    "fatigue": ("none", "some", "strong"),
    "sneezing": ("no", "yes"),
    "headache": ("no", "yes"),
    "sore throat": ("no", "yes"),
    "itchy eyes": ("no", "yes"),
    "appetite": ("normal", "low"),
}
V = {name: mm.Variable(name, len(states), states) for name, states in STATES.items()}

# p(illness, course), and what depends on the illness alone.
CASES = {
    ("cold", "mild"): 0.34,
    ("cold", "severe"): 0.06,
    ("flu", "mild"): 0.13,
    ("flu", "severe"): 0.22,
    ("allergy", "mild"): 0.20,
    ("allergy", "severe"): 0.05,
}
SEASON = {
    "cold": (0.35, 0.20, 0.10, 0.35),
    "flu": (0.55, 0.20, 0.05, 0.20),
    "allergy": (0.05, 0.55, 0.30, 0.10),
}
AGE = {"cold": (0.40, 0.40, 0.20), "flu": (0.30, 0.35, 0.35), "allergy": (0.25, 0.65, 0.10)}

# How an illness shows itself: a mixture of profiles, each a row of independent symptoms. Which profile a patient has is
# not a variable of the model, so the circuit is not deterministic.
SYMPTOMS = ("fever", "cough", "fatigue", "sneezing", "headache", "sore throat", "itchy eyes", "appetite")
PROFILES = {
    ("cold", "mild"): [
        (0.7, ((0.85, 0.14, 0.01), (0.30, 0.45, 0.25), (0.50, 0.45, 0.05), 0.80, 0.30, 0.60, 0.10, 0.20)),
        (0.3, ((0.60, 0.38, 0.02), (0.15, 0.25, 0.60), (0.30, 0.60, 0.10), 0.50, 0.40, 0.40, 0.05, 0.30)),
    ],
    ("cold", "severe"): [
        (1.0, ((0.35, 0.50, 0.15), (0.10, 0.25, 0.65), (0.10, 0.50, 0.40), 0.60, 0.60, 0.70, 0.10, 0.55)),
    ],
    ("flu", "mild"): [
        (0.5, ((0.20, 0.50, 0.30), (0.35, 0.45, 0.20), (0.15, 0.55, 0.30), 0.40, 0.55, 0.50, 0.10, 0.50)),
        (0.5, ((0.35, 0.45, 0.20), (0.40, 0.30, 0.30), (0.20, 0.50, 0.30), 0.45, 0.45, 0.40, 0.15, 0.45)),
    ],
    ("flu", "severe"): [
        (0.4, ((0.10, 0.35, 0.55), (0.25, 0.50, 0.25), (0.05, 0.35, 0.60), 0.40, 0.65, 0.50, 0.15, 0.65)),
        (0.3, ((0.15, 0.45, 0.40), (0.20, 0.30, 0.50), (0.10, 0.45, 0.45), 0.50, 0.50, 0.60, 0.20, 0.50)),
        (0.3, ((0.20, 0.30, 0.50), (0.45, 0.35, 0.20), (0.10, 0.40, 0.50), 0.35, 0.60, 0.35, 0.15, 0.60)),
    ],
    ("allergy", "mild"): [
        (1.0, ((0.97, 0.02, 0.01), (0.90, 0.09, 0.01), (0.85, 0.13, 0.02), 0.95, 0.08, 0.06, 0.94, 0.04)),
    ],
    ("allergy", "severe"): [
        (1.0, ((0.90, 0.08, 0.02), (0.40, 0.55, 0.05), (0.40, 0.50, 0.10), 0.98, 0.40, 0.30, 0.97, 0.20)),
    ],
}


def symptoms(case: tuple[str, str]) -> mm.Expression:
    """The mixture of a case's profiles."""
    return reduce(operator.add, (weight * _product(SYMPTOMS, row) for weight, row in PROFILES[case]))


def clinic() -> mm.Circuit:
    """The whole model."""
    terms = []
    for (illness, course), weight in CASES.items():
        who = V["illness"][illness] * V["course"][course]
        background = _product(("season", "age"), (SEASON[illness], AGE[illness]))
        terms.append(weight * (who * background * symptoms((illness, course))))
    return mm.circuit_of(reduce(operator.add, terms), list(V.values()))


def _product(names: tuple[str, ...], row: tuple[float | tuple[float, ...], ...]) -> mm.Expression:
    leaves = [
        mm.bernoulli(V[name], p) if isinstance(p, float) else mm.categorical(V[name], p)
        for name, p in zip(names, row, strict=True)
    ]
    return reduce(operator.mul, leaves)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    mm.save(clinic(), target)
    print(f"wrote {target}")
