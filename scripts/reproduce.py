"""Repeat the experiment within an hour on two cores, and say of each claim of the README whether it held here.

    python scripts/reproduce.py                 # `make reproduce` does this
    python scripts/reproduce.py --quick         # three datasets, a few minutes

It learns circuits on the twenty datasets, draws questions as in the paper, runs a stated subset of methods on them (the
whole experiment takes many hours), and writes ``reproduce/README.md`` with the claims and ``reproduce/report.md`` with
tables and figures. Seconds are those of the processor, so that other work on the machine changes little. Interrupted,
it goes on where it was. The datasets are those of ../shared/data/debd, or of the folder that MARGMAP_DATA names.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import margmap as mm
from margmap.bench import instances
from margmap.learn import DATASETS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
import ablation  # noqa: E402 - it is not a package
from paper import DATA, as_by_default  # noqa: E402
from paper import METHODS as ALL  # noqa: E402

PLACE = ROOT / "reproduce"

#: Three of each proportion for each dataset, of the ten that the whole experiment has.
EACH = 3
SEED = 1
#: Seconds for one question; the whole experiment has 60.
SOLVE = 10.0
#: Without the slower of the paper's two heuristics.
METHODS = tuple(method for method in ALL if not method.startswith("Pruned"))
QUICK = ("nltcs", "tretail", "bnetflix")


class Claim(NamedTuple):
    """A sentence of the README, whether it held here, and what was measured."""

    says: str
    held: bool
    measured: str


def main() -> None:
    """Learn, draw, run, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"only {', '.join(QUICK)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes that learn and answer")
    options = parser.parse_args()
    names = list(QUICK) if options.quick else list(DATASETS)
    if not DATA.is_dir():
        sys.exit(f"the datasets are not at {DATA}: set MARGMAP_DATA to the folder that has them")
    PLACE.mkdir(exist_ok=True)
    # Here nothing is timed before its machine code is there.
    os.environ.setdefault("MARGMAP_TIER", "compile")
    began = time.monotonic()
    # Processes of their own, and not forks of this one, which has threads.
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as executor:
        for said in executor.map(prepare, names):
            print(said, flush=True)
    run(names, options.jobs)
    claims = judge(records(names, "runs.jsonl"))
    write(claims, names, time.monotonic() - began)
    print(f"{sum(claim.held for claim in claims)} of {len(claims)} claims held: {PLACE / 'README.md'}")
    sys.exit(0 if all(claim.held for claim in claims) else 1)


def model_of(name: str) -> Path:
    """Where the circuit of a dataset is."""
    return PLACE / "circuits" / f"{name}.psdd.gz"


def prepare(name: str) -> str:
    """Learn the circuit of a dataset and draw its questions, unless they are there; what to print."""
    path = PLACE / "instances" / f"{name}.json"
    if path.exists():
        return f"{name}: there already"
    for folder in (model_of(name).parent, path.parent):
        folder.mkdir(exist_ok=True)
    circuit = as_by_default(name)
    mm.save(circuit, model_of(name))
    drawn = instances.generate(circuit, instances.PAPER, EACH, SEED, name=name)
    model = instances.relative_model(model_of(name), path)
    instances.write(path, instances.InstanceFile(name, model, SEED, drawn))
    return f"{name}: {circuit.num_edges:,} edges, {len(drawn)} questions"


def run(names: list[str], jobs: int) -> None:
    """Every method on every question, each in a process of its own; and the report of all of it."""
    files = [str(PLACE / "instances" / f"{name}.json") for name in names]
    methods = [part for method in METHODS for part in ("--method", method)]
    limits = ["--time-limit", f"{SOLVE:g}", "--memory-limit", "4G", "--jobs", str(jobs), "--computing"]
    command = [sys.executable, "-m", "margmap", "bench"]
    subprocess.run([*command, "run", *files, "-o", str(PLACE / "runs.jsonl"), *methods, *limits], check=True)
    title = "A part of the paper's experiment, repeated here"
    subprocess.run([*command, "report", str(PLACE / "runs.jsonl"), "-o", str(PLACE), "--title", title], check=True)
    printed = next(variant for variant in ablation.VARIANTS if not variant.sound)
    ablation.run(printed, [Path(file) for file in files], PLACE / "printed.jsonl", SOLVE, 2 * EACH, jobs)


def records(names: list[str], file: str) -> list[dict[str, Any]]:
    """What was run on these datasets."""
    lines = (PLACE / file).read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["dataset"] in names]


def judge(runs: list[dict[str, Any]]) -> list[Claim]:
    """Every claim of the README that can be measured here."""
    checks: list[Callable[[list[dict[str, Any]]], Claim]] = [
        every_question_is_proven,
        no_two_methods_disagree,
        frontier_is_fastest,
        about_a_few_evaluations,
        the_published_bound_is_none,
        the_published_rule_ends_on_wrong_answers,
        mpe_is_another_answer,
        a_joint_table_does_not_fit,
    ]
    return [check(runs) for check in checks]


def every_question_is_proven(runs: list[dict[str, Any]]) -> Claim:
    """Frontier answers every question of the experiment with a proof."""
    ours = [run for run in runs if run["label"] == "frontier"]
    proven = sum(run["status"] == "optimal" for run in ours)
    worst = max(run["seconds"] for run in ours)
    return Claim(
        "frontier proves its answer on every question of the paper's experiment",
        proven == len(ours) > 0,
        f"{proven} of {len(ours)}, the slowest in {worst:.3f} s",
    )


def no_two_methods_disagree(runs: list[dict[str, Any]]) -> Claim:
    """Proven optima of one question are equal, whatever the method."""
    found: dict[tuple[str, int], list[float]] = {}
    for run in runs:
        if run["status"] == "optimal":
            found.setdefault((run["dataset"], run["instance"]), []).append(run["log_prob"])
    apart = max((max(values) - min(values) for values in found.values()), default=math.inf)
    pairs = sum(len(values) * (len(values) - 1) // 2 for values in found.values())
    return Claim("no two methods disagree", apart <= 1e-6, f"{pairs:,} pairs of optima, at most {apart:.1e} nats apart")


def frontier_is_fastest(runs: list[dict[str, Any]]) -> Claim:
    """Total time of each method on the questions that all were run on; unsolved counts as the limit."""
    totals: dict[str, float] = {}
    solved: dict[str, int] = {}
    for run in runs:
        done = run["status"] == "optimal"
        totals[run["label"]] = totals.get(run["label"], 0.0) + (run["seconds"] if done else SOLVE)
        solved[run["label"]] = solved.get(run["label"], 0) + done
    ours = totals.pop("frontier")
    shown = ", ".join(f"{label} {total:.1f} s ({solved[label]} solved)" for label, total in sorted(totals.items()))
    return Claim("frontier is faster than every other method", ours < min(totals.values()), f"{ours:.1f} s; {shown}")


def about_a_few_evaluations(runs: list[dict[str, Any]]) -> Claim:
    """The time of an answer over that of one evaluation of the circuit, on the questions of the experiment."""
    ratios = []
    for name in sorted({run["dataset"] for run in runs}):
        circuit = mm.load_circuit(model_of(name))
        for instance in instances.read(PLACE / "instances" / f"{name}.json").instances[:2]:
            evidence = dict(instance.evidence)
            state = mm.marginal_map(circuit, list(instance.query), evidence).state
            assert state is not None
            everything = {**evidence, **state}
            once = min(timed(lambda c=circuit, e=everything: mm.log_marginal(c, e)) for _ in range(5))
            asked = list(instance.query)
            whole = min(timed(lambda c=circuit, q=asked, e=evidence: mm.marginal_map(c, q, e)) for _ in range(5))
            ratios.append(whole / once)
    median = statistics.median(ratios)
    return Claim(
        "an exact answer takes about as long as a few evaluations of the circuit (held: at most ten in the median)",
        median <= 10,
        f"median {median:.1f}, worst {max(ratios):.1f} over {len(ratios)} questions",
    )


def the_published_bound_is_none(_runs: list[dict[str, Any]]) -> Claim:
    """The counterexample of docs/erratum.md: numbers of the printed rule against the value of a state."""
    x, y = mm.Variable("X"), mm.Variable("Y")
    first, second = mm.bernoulli(x, 0.9) * mm.bernoulli(y, 0.5), mm.bernoulli(x, 0.1) * mm.bernoulli(y, 0.1)
    circuit = mm.circuit_of(0.5 * first + 0.5 * second, [x, y])
    value = math.exp(mm.log_marginal(circuit, {"X": 0, "Y": 0}))
    root = 0.5 * 0.9 * 0.5 + 0.5 * 0.9 * 0.9
    printed, corrected = root + 0.5 * (0.1 - 0.9), root + 0.5 * 0.5 * (0.1 - 0.9)
    return Claim(
        "the edge bound as published can be below the value of a state that uses the edge",
        printed < value <= corrected + 1e-12,
        f"printed {printed:.2f}, the state has {value:.2f}, corrected {corrected:.2f}",
    )


def the_published_rule_ends_on_wrong_answers(runs: list[dict[str, Any]]) -> Claim:
    """The paper's solver with the rule as printed, on the questions of the experiment."""
    best = {(run["dataset"], run["instance"]): run["log_prob"] for run in runs if run["label"] == "frontier"}
    found = records(sorted({run["dataset"] for run in runs}), "printed.jsonl")
    called = [run for run in found if run["status"] == "optimal"]
    below = [best[run["dataset"], run["instance"]] - run["log_prob"] for run in called]
    wrong = [nats for nats in below if nats > ablation.WRONG]
    return Claim(
        "with the published rule the paper's solver calls answers optimal that are not",
        bool(wrong),
        f"{len(wrong)} of {len(called)}" + (f", by up to {max(wrong):.2g} nats" if wrong else ""),
    )


def mpe_is_another_answer(_runs: list[dict[str, Any]]) -> Claim:
    """The clinic: what MPE suggests beside what marginal MAP proves."""
    clinic = mm.load_circuit("clinic")
    evidence = {"season": "spring", "fever": "high"}
    best = mm.marginal_map(clinic, ["illness", "course"], evidence)
    complete = mm.mpe(clinic, evidence).state
    assert complete is not None
    suggested = {name: complete[name] for name in ("illness", "course")}
    share = math.exp(mm.log_conditional(clinic, suggested, evidence))
    return Claim(
        "in the clinic, MPE suggests an illness of 3 percent where another one has 67 percent",
        round(share, 2) == 0.03 and round(math.exp(best.log_conditional), 2) == 0.67,
        f"{suggested}: {share:.3f}; {best.state}: {math.exp(best.log_conditional):.3f}",
    )


def a_joint_table_does_not_fit(_runs: list[dict[str, Any]]) -> Claim:
    """What a table over two dozen variables of alarm takes, and that margmap needs none."""
    says = "a table over the first 24 variables of alarm takes 43 GiB, and margmap answers without it"
    path = DATA.parent / "bif" / "alarm.bif.gz"
    if not path.exists():
        return Claim(says, False, f"{path} is not there")
    network = mm.load_network(path)
    query = list(network.names)[:24]
    table = math.prod(v.cardinality for v in network.variables if v.name in query) * 8 / 2**30
    result = mm.marginal_map(network, query)
    return Claim(
        says,
        result.status == "optimal" and round(table) == 43,
        f"{result.seconds:.3f} s; the table would take {table:.1f} GiB",
    )


def timed(work: Callable[[], object]) -> float:
    """Seconds of the processor that one call takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def write(claims: list[Claim], names: list[str], seconds: float) -> None:
    """The page with the claims."""
    lines = [
        "# Did the claims hold here?",
        "",
        f"Made by `scripts/reproduce.py` with margmap {mm.__version__} in {seconds / 60:.0f} minutes: {len(names)}",
        f"datasets, {2 * EACH} questions each, at most {SOLVE:g} s of the processor a question and method.",
        "[The report](report.md) has tables and figures.",
        "",
        "| claim | held here | measured |",
        "|---|---|---|",
        *(f"| {claim.says} | {'yes' if claim.held else '**no**'} | {claim.measured} |" for claim in claims),
    ]
    (PLACE / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
