"""The paper's experiment: circuits, instances and the command that runs them.

    .venv/bin/python benchmarks/paper.py circuits   # learn the twenty circuits again, some minutes
    .venv/bin/python benchmarks/paper.py instances  # draw the instances again (they are in the repository)
    .venv/bin/python benchmarks/paper.py run        # every method on every instance: hours; goes on where it stopped
    .venv/bin/python benchmarks/paper.py report     # the tables, figures and the page in docs/benchmarks/paper

Needs ../shared/data/debd, or the folder that MARGMAP_DATA names. A circuit that is there is not learned again.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import margmap as mm
from margmap.bench import instances
from margmap.io.files import write_lines
from margmap.learn import DATASETS, learn_strudel, load_dataset

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("MARGMAP_DATA") or ROOT.parent / "shared" / "data" / "debd")
PLACE = ROOT / "docs" / "benchmarks" / "paper"
SEED = 1

# The instance of Figure 2, EachMovie as in the paper: solved by all three iterative methods.
EXAMPLE = ("tmovie", 10)

# The size of the paper's smallest circuit. Where our learner ends below it, Strudel is run as it was published.
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


def run_command(files: list[str], output: str, jobs: int, time_limit: float) -> list[str]:
    methods = [part for method in METHODS for part in ("--method", method)]
    limits = ["--time-limit", f"{time_limit:g}", "--memory-limit", "4G", "--jobs", str(jobs), "--trace"]
    return ["bench", "run", *files, "-o", output, *methods, *limits]


def run(names: list[str], jobs: int, time_limit: float) -> None:
    files = [str(PLACE / "instances" / f"{name}.json") for name in names]
    command = run_command(files, str(PLACE / "runs.jsonl"), jobs, time_limit)
    subprocess.run([sys.executable, "-m", "margmap", *command], check=True)


def report(time_limit: float) -> None:
    """The report, from records without what is large: states, and traces of all but the example."""
    records = PLACE / "runs.jsonl"
    lines = [_compact(json.loads(line)) for line in records.read_text().splitlines()]
    columns = [method.split("=", 1)[0] for method in reversed(METHODS)]
    lines.sort(key=lambda record: columns.index(record["label"]))
    write_lines(records, [json.dumps(record) for record in lines])
    again = shlex.join(["margmap", *run_command(["FILES"], "runs.jsonl", 1, time_limit)])
    shown = [
        "python benchmarks/paper.py circuits",
        "python benchmarks/paper.py instances",
        again.replace("FILES", "instances/*.json"),
    ]
    commands = [part for text in shown for part in ("--command", text)]
    title = "The paper's experiment, repeated"
    command = ["bench", "report", str(records), "-o", str(PLACE), "--title", title, *commands]
    subprocess.run([sys.executable, "-m", "margmap", *command], check=True)


def _compact(record: dict[str, Any]) -> dict[str, Any]:
    record["state"] = None
    if (record["dataset"], record["instance"]) != EXAMPLE:
        record["trace"] = None
    for name, folder in (("model", "circuits"), ("instances", "instances")):
        record[name] = f"{folder}/{Path(record[name]).name}"
    return record


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
        report(options.time_limit)


if __name__ == "__main__":
    main()
