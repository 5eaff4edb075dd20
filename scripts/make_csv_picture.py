"""The picture of docs/howto/from-csv.md: what bins make of numbers, and what their number does to an answer.

The table is that of the diabetes study (442 patients), which ships with scikit-learn. For each number of bins a
Chow-Liu tree is learned on 342 patients; on the other 100 it says how likely the bin of the progression is, given all
other columns. Divided by the width of the bin that is a density, which can be compared between numbers of bins.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_diabetes

import margmap as mm

TARGET = Path(__file__).parent.parent / "docs" / "howto" / "from-csv.svg"
BINS = (2, 3, 4, 6, 8, 12, 16, 24)


def measured(bins: int) -> tuple[float, float]:
    """Mean log density of the progression on held-out patients, and mean probability of the most likely bin."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    order = np.random.default_rng(0).permutation(len(frame))
    train, test = frame.iloc[order[:342]], frame.iloc[order[342:]]
    circuit = mm.learn.chow_liu(mm.learn.read_table(train, bins=bins))
    target = circuit.variables[circuit.index("target")]
    edges = [train["target"].min(), *target.encoding.edges, train["target"].max() + 1]
    densities, best = [], []
    for _, row in test.iterrows():
        evidence = {name: value for name, value in row.items() if name != "target" and known(circuit, name, value)}
        posterior = mm.posteriors(circuit, evidence).array("target")
        code = target.code(row["target"])
        densities.append(np.log(posterior[code] / (edges[code + 1] - edges[code])))
        best.append(posterior.max())
    return float(np.mean(densities)), float(np.mean(best))


def known(circuit: mm.Circuit, name: str, value: float) -> bool:
    """Whether the model has seen this value."""
    try:
        circuit.variables[circuit.index(name)].code(value)
    except mm.QueryError:
        return False
    return True


def main() -> None:
    """Draw it, and print the numbers."""
    frame = load_diabetes(as_frame=True, scaled=False).frame
    edges = mm.learn.read_table(frame).variables[2].encoding.edges
    results = {bins: measured(bins) for bins in BINS}
    for bins, (density, best) in results.items():
        print(f"{bins} bins: mean log density {density:.3f}, most likely bin {best:.2f}")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.5))
    left.hist(frame["bmi"], bins=40, color="#9db8d2")
    for edge in edges:
        left.axvline(edge, color="#c0392b", linewidth=1)
    left.set(title="body mass index: 8 bins of equally many patients", xlabel="bmi", ylabel="patients")
    right.plot(BINS, [results[bins][0] for bins in BINS], "o-", color="#2c5d8f", label="log density of the truth")
    right.set(title="progression, on 100 patients not learned from", xlabel="number of bins", ylabel="mean log density")
    other = right.twinx()
    other.plot(BINS, [results[bins][1] for bins in BINS], "s--", color="#c0392b", label="probability of the best bin")
    other.set_ylabel("probability of the best bin")
    lines = [*right.get_lines(), *other.get_lines()]
    labels = [line.get_label() for line in lines]
    figure.legend(lines, labels, fontsize=8, ncols=2, loc="lower right", frameon=False)  # below, where no curve is
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    matplotlib.rcParams["svg.hashsalt"] = "margmap"
    figure.savefig(TARGET, metadata={"Date": None})


if __name__ == "__main__":
    main()
