"""Make src/margmap/models/digits.psdd.gz and digits.txt: the model of the demo, and the digits that it completes.

    .venv/bin/python scripts/make_digits_model.py

The rows are the 1,797 handwritten digits that come with scikit-learn (the test set of the UCI dataset "Optical
Recognition of Handwritten Digits"), 8 by 8 pixels, ink where a pixel is at least 8 of 16. The model is learned by
margmap.learn on most of them; the digits in digits.txt are of the part that the learner has not seen. Needs the extra
"learn".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn import datasets

import margmap as mm
from margmap.demo import Digit, complete_digit
from margmap.demo import load_digits as load_model
from margmap.learn import chow_liu, learn_strudel

MODELS = Path(__file__).parent.parent / "src" / "margmap" / "models"
TRAIN, VALID = 1300, 250
SHOWN = 6


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The rows, one column a pixel, and what they are, in an order that does not depend on that of the file."""
    bunch = datasets.load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    return (bunch.data[order] >= 8).astype(np.uint8), bunch.target[order]


def differing(circuit: mm.Circuit, rows: np.ndarray, labels: np.ndarray) -> list[Digit]:
    """Held-out digits, no two of a kind, for which MPE answers otherwise, those first where it is the least likely."""
    found = []
    for row, label in zip(rows, labels, strict=True):
        digit = Digit(int(label), tuple(row.tolist()))
        answer = complete_digit(circuit, digit)
        if answer.projected != answer.marginal_map.state:
            found.append((answer.marginal_map.log_conditional - answer.log_projected, digit))
    chosen: dict[int, Digit] = {}
    for _, digit in sorted(found, reverse=True):
        chosen.setdefault(digit.label, digit)
    return list(chosen.values())[:SHOWN]


def main() -> None:
    """Learn, choose, write."""
    rows, labels = digits()
    train, valid, test = rows[:TRAIN], rows[TRAIN : TRAIN + VALID], rows[TRAIN + VALID :]
    learned = learn_strudel(train, valid, tries=16, depth=2)
    circuit = learned.circuit
    print(f"{circuit}, ended by {learned.reason} after {learned.last.seconds:.1f} s")
    for name, part in (("train", train), ("valid", valid), ("test", test)):
        tree = mm.log_likelihood(chow_liu(train), part).mean()
        print(f"{name}: {mm.log_likelihood(circuit, part).mean():.3f} (Chow-Liu {tree:.3f})")
    mm.save(circuit, MODELS / "digits.psdd.gz")
    shown = differing(load_model(), test, labels[TRAIN + VALID :])
    lines = [f"{digit.label} {''.join(map(str, digit.pixels))}\n" for digit in shown]
    (MODELS / "digits.txt").write_text("".join(lines))
    print(f"wrote {MODELS / 'digits.psdd.gz'} and {len(shown)} digits to digits.txt")


if __name__ == "__main__":
    main()
