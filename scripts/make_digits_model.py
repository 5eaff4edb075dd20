"""Make src/margmap/models/digits.json.gz, digits.txt and digits-measured.txt: the digits of the demo.

    .venv/bin/python scripts/make_digits_model.py

The rows are the 1,797 handwritten digits that come with scikit-learn (the test set of the UCI dataset "Optical
Recognition of Handwritten Digits"), 8 by 8 pixels, ink where a pixel is at least 8 of 16. The model is a hidden
Chow-Liu tree that margmap.learn learns on most of them. Then *all* digits that the learner has not seen are completed
by marginal MAP, by MPE and pixel by pixel; digits-measured.txt has the sums, and digits.txt a few digits for which
marginal MAP and MPE differ. Needs the extra "learn".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn import datasets

import margmap as mm
from margmap.demo import Comparison, Digit, complete_digit

MODELS = Path(__file__).parent.parent / "src" / "margmap" / "models"
TRAIN, VALID = 1300, 250
SHOWN = 4
LATENT = 24


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The rows, one column a pixel, and what they are, in an order that does not depend on that of the file."""
    bunch = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    return (bunch.data[order] >= 8).astype(np.uint8), bunch.target[order]


def differing(found: list[tuple[Digit, Comparison]]) -> list[Digit]:
    """Digits, no two of a kind, for which MPE answers otherwise, those first where it is the least likely."""
    behind = [
        (answer.marginal_map.log_conditional - answer.log_projected, digit)
        for digit, answer in found
        if answer.projected != answer.marginal_map.state
    ]
    chosen: dict[int, Digit] = {}
    for _, digit in sorted(behind, reverse=True):
        chosen.setdefault(digit.label, digit)
    return list(chosen.values())[:SHOWN]


def tally(circuit: mm.Circuit, found: list[tuple[Digit, Comparison]]) -> dict[str, float]:
    """Over all digits: how likely the answers are, how often they differ, and what of them is right."""
    sums: dict[str, float] = {"digits": len(found), "pixels": sum(len(answer.query) for _, answer in found)}
    sums["differ"] = sum(answer.projected != answer.marginal_map.state for _, answer in found)
    sums["proven"] = sum(answer.marginal_map.status == answer.mpe.status == "optimal" for _, answer in found)
    sums["map_probability"] = float(np.mean(np.exp([answer.marginal_map.log_conditional for _, answer in found])))
    sums["mpe_probability"] = float(np.mean(np.exp([answer.log_projected for _, answer in found])))
    for name in ("map", "mpe", "single"):
        right = []
        for digit, answer in found:
            if name == "single":
                alone = mm.posteriors(circuit, answer.evidence)
                state = {asked: max(alone[asked], key=alone[asked].__getitem__) for asked in answer.query}
            else:
                state = dict((answer.marginal_map.state or {}) if name == "map" else answer.projected)
            right.append(sum(state[asked] == digit.pixels[int(asked) - 1] for asked in answer.query))
        sums[f"{name}_pixels_right"] = sum(right)
        sums[f"{name}_digits_right"] = sum(count == len(found[0][1].query) for count in right)
    return sums


def main() -> None:
    """Learn, answer, write."""
    rows, labels = digits()
    train, valid, test = rows[:TRAIN], rows[TRAIN : TRAIN + VALID], rows[TRAIN + VALID :]
    learned = mm.learn.learn_hclt(train, valid, latent=LATENT, epochs=40)
    print(f"{learned.circuit}, ended by {learned.reason}")
    mm.save(learned.circuit, MODELS / "digits.json.gz")
    circuit = mm.load_circuit(MODELS / "digits.json.gz")
    for name, part in (("train", train), ("valid", valid), ("test", test)):
        tree = mm.log_likelihood(mm.learn.chow_liu(train), part).mean()
        print(f"{name}: {mm.log_likelihood(circuit, part).mean():.3f} (Chow-Liu {tree:.3f})")
    unseen = [Digit(int(label), tuple(row.tolist())) for row, label in zip(test, labels[TRAIN + VALID :], strict=True)]
    found = [(digit, complete_digit(circuit, digit)) for digit in unseen]
    sums = tally(circuit, found)
    sums["test_log_likelihood"] = float(mm.log_likelihood(circuit, test).mean())
    lines = [f"{name} {value:.6g}\n" for name, value in sums.items()]
    (MODELS / "digits-measured.txt").write_text("".join(lines))
    print("".join(lines), end="")
    shown = differing(found)
    (MODELS / "digits.txt").write_text("".join(f"{d.label} {''.join(map(str, d.pixels))}\n" for d in shown))
    print(f"wrote digits.json.gz, digits-measured.txt and {len(shown)} digits to digits.txt in {MODELS}")


if __name__ == "__main__":
    main()
