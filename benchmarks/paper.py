"""The paper's experiment: circuits, instances and the command that runs them.

    .venv/bin/python benchmarks/paper.py circuits   # learn the twenty circuits again, some minutes
    .venv/bin/python benchmarks/paper.py instances  # draw the instances again (they are in the repository)
    .venv/bin/python benchmarks/paper.py run        # every method on every instance: hours; goes on where it stopped
    .venv/bin/python benchmarks/paper.py report     # the tables, figures and the page in docs/benchmarks/paper

Needs ../shared/data/debd, or the folder that MARGMAP_DATA names. A circuit that is there is not learned again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import margmap as mm
from margmap.bench import instances
from margmap.learn import DATASETS, learn_strudel, load_dataset

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("MARGMAP_DATA") or ROOT.parent / "shared" / "data" / "debd")
PLACE = ROOT / "docs" / "benchmarks" / "paper"
SEED = 1

# The smallest circuit of the paper. Where the learner's own test of a split ends below it, it is left out, as published.
FEWEST_EDGES = 3_177
PUBLISHED = {"tries": 1, "min_gain": None, "prior": "uniform", "patience": 500}

PLAIN = "regroup=false,climb=false,fix=false"
METHODS = (
    "frontier",
    "UB regroup=iterative:heuristic=UB",
    f"UB=iterative:heuristic=UB,{PLAIN}",
    f"Pruned=iterative:heuristic=Pruned,{PLAIN}",
    "MaxSPN=search",
)


def model_of(name: str) -> Path:
    return PLACE / "circuits" / f"{name}.psdd.gz"


def learn_circuits(names: list[str]) -> None:
    (PLACE / "circuits").mkdir(parents=True, exist_ok=True)
    for name in names:
        path = model_of(name)
        if path.exists():
            continue
        train, valid, _ = load_dataset(name, DATA)
        begun = time.perf_counter()
        found = learn_strudel(train, valid)
        if found.circuit.num_edges < FEWEST_EDGES:
            found = learn_strudel(train, valid, **PUBLISHED)
        mm.save(found.circuit, path)
        print(f"{name}: {found.circuit!r}, {time.perf_counter() - begun:.1f} s", flush=True)


def draw_instances(names: list[str]) -> None:
    (PLACE / "instances").mkdir(parents=True, exist_ok=True)
    for name in names:
        path = PLACE / "instances" / f"{name}.json"
        circuit = mm.load(model_of(name))
        drawn = instances.generate(circuit, instances.PAPER, 10, SEED, name=name)
        model = instances.relative_model(model_of(name), path)
        instances.write(path, instances.InstanceFile(name, model, SEED, drawn))
        print(f"{name}: {len(drawn)} instances", flush=True)


def run(names: list[str], jobs: int, time_limit: float) -> None:
    files = [str(PLACE / "instances" / f"{name}.json") for name in names]
    methods = [part for method in METHODS for part in ("--method", method)]
    command = ["bench", "run", *files, "-o", str(PLACE / "runs.jsonl"), *methods]
    limits = ["--time-limit", str(time_limit), "--memory-limit", "4G", "--jobs", str(jobs), "--trace"]
    subprocess.run([sys.executable, "-m", "margmap", *command, *limits], check=True)


def report() -> None:
    command = ["bench", "report", str(PLACE / "runs.jsonl"), "-o", str(PLACE)]
    subprocess.run([sys.executable, "-m", "margmap", *command], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("circuits", "instances", "run", "report"))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these datasets only")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=60)
    options = parser.parse_args()
    names = options.only or list(DATASETS)
    if options.step == "circuits":
        learn_circuits(names)
    elif options.step == "instances":
        draw_instances(names)
    elif options.step == "run":
        run(names, options.jobs, options.time_limit)
    else:
        report()


if __name__ == "__main__":
    main()
