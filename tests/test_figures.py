"""Figures that are quoted in prose are those of the files that scripts wrote."""

import json
import math
import re
from pathlib import Path

import margmap as mm

ROOT = Path(__file__).parent.parent


def records(name):
    lines = (ROOT / "docs" / "benchmarks" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def plain(name):
    """The text of a page without line breaks and marks of emphasis."""
    return re.sub(r"\s+", " ", (ROOT / name).read_text(encoding="utf-8").replace("*", ""))


def solved(runs, label):
    ours = [run for run in runs if run["label"] == label]
    return sum(run["status"] == "optimal" for run in ours), len(ours), ours


def test_the_paper_experiment():
    runs = records("paper/runs.jsonl")
    ours, all_of_them, frontier = solved(runs, "frontier")
    original, as_many, _ = solved(runs, "UB")
    mean = sum(run["seconds"] for run in frontier) / len(frontier)
    assert all_of_them == as_many
    said = plain("paper/paper.md")
    assert f"solves {ours} of {all_of_them} questions, in {1e3 * mean:.0f} milliseconds on average" in said
    assert f"the corrected original solves {original} within a minute each" in said


def test_hard_networks():
    runs = [run for run in records("networks.jsonl") if run["method"] == "auto" and run["limit"] <= 60]
    names = {run["name"] for run in runs}
    proven = len({run["name"] for run in runs if run["status"] == "optimal"})
    assert f"{proven} are proven within 60 s" in plain("docs/benchmarks/bayesnet.md")
    assert f"In all {proven} of the {len(names)} instances are proven within 60 s" in plain("CHANGELOG.md")


def test_the_clinic():
    """Three percent and sixty-seven percent, wherever they are quoted."""
    clinic, evidence = mm.load("clinic"), {"season": "spring", "fever": "high"}
    best = mm.marginal_map(clinic, ["illness", "course"], evidence)
    complete = mm.mpe(clinic, evidence).state
    suggested = {name: complete[name] for name in ("illness", "course")}
    shares = [100 * math.exp(x) for x in (mm.log_conditional(clinic, suggested, evidence), best.log_conditional)]
    small, large = (f"{share:.0f} percent" for share in shares)
    for page in ("paper/paper.md", "docs/why-not-mpe.md"):
        assert small in plain(page), page
        assert large in plain(page), page
    assert large in plain("docs/tour.md")
