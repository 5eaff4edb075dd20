"""The paper's experiment: circuits, instances and the command that runs them.

    .venv/bin/python benchmarks/paper.py circuits   # learn the twenty circuits again, some minutes
    .venv/bin/python benchmarks/paper.py check      # are they the circuits of the records? minutes
    .venv/bin/python benchmarks/paper.py instances  # draw the instances again (they are in the repository)
    .venv/bin/python benchmarks/paper.py run        # every method on every instance: hours; goes on where it stopped
    .venv/bin/python benchmarks/paper.py again      # some solved runs once more: are seconds here as in the records?
    .venv/bin/python benchmarks/paper.py report     # the tables, figures and the page in docs/benchmarks/paper

With ``--computing`` a run's limit and seconds are those of the processor, for a machine that has other work; its record
says so. What has a record already is not run again. With ``--large`` all this is done for circuits as large as the
paper's largest, in docs/benchmarks/paper/large.

Needs ../shared/data/debd, or the folder that MARGMAP_DATA names. A circuit that is there is not learned again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import margmap as mm
from margmap.bench import instances, runs
from margmap.bench.report import report as write_report
from margmap.circuit import Circuit
from margmap.io.files import write_lines
from margmap.learn import DATASETS, learn_strudel, load_dataset

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("MARGMAP_DATA") or ROOT.parent / "shared" / "data" / "debd")
PLACE = ROOT / "docs" / "benchmarks" / "paper"
SEED = 1
MEMORY = 4 << 30
#: Runs of each method that are done again to compare their seconds.
AGAIN = 5
#: What ``benchmarks/keep.py again -- benchmarks/paper.py again --computing`` wrote.
AGAIN_RECORD = ROOT / "docs" / "benchmarks" / "records" / "again.txt"
#: Nats by which the optima of a circuit that was learned again may differ from those of the records.
SAME = 1e-8

# The instance of Figure 2, EachMovie as in the paper: solved by all three iterative methods.
EXAMPLE = ("tmovie", 10)

# The sizes of the paper's smallest and largest circuit; it does not say which dataset has which.
FEWEST_EDGES, MOST_EDGES = 3_177, 745_815
PUBLISHED: dict[str, Any] = {"tries": 1, "min_gain": None, "prior": "uniform"}

PLAIN = "regroup=false,climb=false,fix=false"
METHODS = (
    "frontier",
    "UB regroup=iterative:heuristic=UB",
    f"UB=iterative:heuristic=UB,{PLAIN}",
    f"Pruned=iterative:heuristic=Pruned,{PLAIN}",
    "MaxSPN=search",
)

#: What the methods are, for someone who has not read the paper.
ABOUT = {
    "frontier": "The method of margmap that is taken by default: one sweep over the scopes of the circuit, which keeps "
    "for each scope the assignments that can still win. It is not in the paper.",
    "UB regroup": "The paper's solver with three additions of margmap: regrouping of sums, hill climbing, and values "
    "that cannot win removed before each split.",
    "UB": "The paper's solver as it is: bound, prune and split the circuit until the bounds meet. The variable to "
    "split on is the one that lowers the upper bound most. The edge bounds are the corrected ones.",
    "Pruned": "The paper's solver again, but it splits on the variable for which most edges have been pruned.",
    "MaxSPN": "The paper's baseline, a depth-first search over the states with forward checking (Mei, Jiang and Tu, "
    "2018), written again for margmap.",
}

PAPER = (
    "Choi, Friedman and Van den Broeck, “Solving Marginal MAP Exactly by Probabilistic Circuit Transformations” "
    "(AISTATS 2022)"
)


def as_by_default(name: str) -> Circuit:
    """Our learner; Strudel as published where that ends below the paper's smallest circuit."""
    train, valid, _ = load_dataset(name, DATA)
    found = learn_strudel(train, valid)
    if found.circuit.num_edges < FEWEST_EDGES:
        found = learn_strudel(train, valid, patience=500, **PUBLISHED)
    return found.circuit


def as_published(name: str) -> Circuit:
    """Strudel as published, until it has as many edges as the paper's largest circuit or there is nothing to split."""
    train = load_dataset(name, DATA).train
    limit = int(1.55 * MOST_EDGES)
    while True:  # the learner counts the edges of its own form, which are about half as many again
        found = learn_strudel(train, max_edges=limit, **PUBLISHED)
        if found.circuit.num_edges >= MOST_EDGES or found.reason != "max_edges":
            return found.circuit
        limit = int(limit * 1.02 * MOST_EDGES / found.circuit.num_edges)


class Experiment(NamedTuple):
    """Where the files of an experiment are, and how it is done."""

    #: Circuits, instances, records and report are here.
    place: Path
    suffix: str
    learn: Callable[[str], Circuit]
    methods: tuple[str, ...]
    time_limit: float
    option: str
    title: str
    about: str

    def model(self, name: str) -> Path:
        """The circuit of a dataset."""
        return self.place / "circuits" / f"{name}.{self.suffix}"

    def instances(self, name: str) -> Path:
        """The instances of a dataset."""
        return self.place / "instances" / f"{name}.json"

    @property
    def records(self) -> Path:
        """What was run."""
        return self.place / "runs.jsonl"


FIRST = Experiment(
    PLACE,
    "psdd.gz",
    as_by_default,
    METHODS,
    60.0,
    "",
    "Marginal MAP on learned circuits: the paper's experiment, repeated",
    f"Marginal MAP asks for the most probable state of some variables, given others, with the rest summed out. {PAPER} "
    "compare exact solvers on circuits learned from twenty datasets. This report repeats their experiment with "
    "margmap: 20 instances for each dataset, 400 in all, half of them with 30\u00a0% of the variables in the query and "
    "half with 50\u00a0%.",
)
LARGE = Experiment(
    PLACE / "large",
    "mmz",
    as_published,
    ("frontier", f"UB=iterative:heuristic=UB,{PLAIN}"),
    5.0,
    "--large",
    "Marginal MAP on circuits of the paper's largest size",
    f"Marginal MAP asks for the most probable state of some variables, given others, with the rest summed out. {PAPER} "
    f"compare exact solvers on circuits of {FEWEST_EDGES:,} to {MOST_EDGES:,} edges. Here every circuit is at least as "
    "large as their largest one, but for nltcs and msnbc, where nothing was left to split: Strudel, the learner of the "
    "paper, was run as it was published until it was there. (The paper does not say which dataset has which size.) The "
    "400 questions are those of the report on smaller circuits, 20 for each of twenty datasets.",
)


def moved(task: runs.Task) -> runs.Task:
    """The run with paths relative to the folder of its records, from where it must be started."""
    return task._replace(model=f"circuits/{Path(task.model).name}", instances=f"instances/{Path(task.instances).name}")


def learn_circuits(experiment: Experiment, names: list[str]) -> None:
    (experiment.place / "circuits").mkdir(parents=True, exist_ok=True)
    for name in names:
        path = experiment.model(name)
        if path.exists():
            continue
        begun = time.perf_counter()
        circuit = experiment.learn(name)
        mm.save(circuit, path)
        print(f"{name}: {circuit!r}, {time.perf_counter() - begun:.1f} s", flush=True)


def check(experiment: Experiment, names: list[str]) -> None:
    """Whether circuits that were learned again are those of the records: as many edges, and the same optima.

    The last digits of parameters may differ from one machine to another, and with them the files and the keys by which
    runs are known. Where edges and optima are the same, the records get the keys of the files that are there.
    """
    records = [json.loads(line) for line in experiment.records.read_text().splitlines()]
    frontier = {(r["dataset"], r["instance"]): r for r in records if r["label"] == "frontier"}
    keys: dict[tuple[str, int, str], str] = {}
    worst, equal, compared = 0.0, 0, 0
    for name in names:
        circuit = mm.load_circuit(experiment.model(name))
        for number, instance in enumerate(instances.read(experiment.instances(name)).instances):
            if (record := frontier.get((name, number))) is None or record["status"] != "optimal":
                continue
            if record["edges"] != circuit.num_edges:
                sys.exit(f"{name}: {circuit.num_edges} edges, and {record['edges']} in the records")
            found = mm.marginal_map(circuit, instance.query, instance.evidence, "frontier").log_prob
            worst, equal = max(worst, abs(found - record["log_prob"])), equal + (found == record["log_prob"])
            compared += 1
        if worst > SAME:
            sys.exit(f"{name}: an optimum is {worst:.3g} nats from the one in the records")
        methods = [runs.Method(r["label"], r["method"], r["options"]) for r in _one_of_each(records, name)]
        for task in runs.tasks_of([experiment.instances(name)], methods, experiment.time_limit, MEMORY):
            keys[task.dataset, task.instance, task.label] = task.key
        print(f"{name}: {circuit.num_edges:,} edges, so far at most {worst:.2g} nats apart", flush=True)
    new = 0
    for record in records:
        if (key := keys.get((record["dataset"], record["instance"], record["label"]))) not in (None, record["key"]):
            record["key"], new = key, new + 1
    write_lines(experiment.records, [json.dumps(record) for record in records])
    print(f"{compared} optima within {worst:.2g} nats of the records, {equal} equal to the last bit; {new} new keys")


def _one_of_each(records: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """A record of every method on a dataset."""
    return list({record["label"]: record for record in records if record["dataset"] == name}.values())


def draw_instances(experiment: Experiment, names: list[str]) -> None:
    (experiment.place / "instances").mkdir(parents=True, exist_ok=True)
    for name in names:
        path = experiment.instances(name)
        circuit = mm.load_circuit(experiment.model(name))
        drawn = instances.generate(circuit, instances.PAPER, 10, SEED, name=name)
        model = instances.relative_model(experiment.model(name), path)
        instances.write(path, instances.InstanceFile(name, model, SEED, drawn))
        print(f"{name}: {len(drawn)} instances", flush=True)


def run_command(experiment: Experiment, files: list[str], output: str, jobs: int) -> list[str]:
    methods = [part for method in experiment.methods for part in ("--method", method)]
    limits = ["--time-limit", f"{experiment.time_limit:g}", "--memory-limit", f"{MEMORY >> 30}G"]
    return ["bench", "run", *files, "-o", output, *methods, *limits, "--jobs", str(jobs), "--trace"]


def run(experiment: Experiment, names: list[str], labels: list[str] | None, jobs: int, computing: bool) -> None:
    methods = tuple(method for method in experiment.methods if labels is None or method.split("=", 1)[0] in labels)
    files = [str(experiment.instances(name)) for name in names]
    command = run_command(experiment._replace(methods=methods), files, str(experiment.records), jobs)
    command += ["--computing"] if computing else []
    subprocess.run([sys.executable, "-m", "margmap", *command], check=True)


def again(experiment: Experiment, names: list[str], computing: bool) -> None:
    """Some runs that took a while and were solved, once more: their seconds beside those of the records."""
    records = [json.loads(line) for line in experiment.records.read_text().splitlines()]
    by_label: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        long = record["status"] == "optimal" and 0.5 <= record["seconds"] <= 20 and not record.get("computing")
        if long and record["dataset"] in names:
            by_label.setdefault(record["label"], []).append(record)
    ratios = []
    for label, found in by_label.items():
        found.sort(key=lambda record: record["seconds"])
        chosen = found[:: max(1, len(found) // AGAIN)][:AGAIN]
        method = runs.Method(label, found[0]["method"], found[0]["options"])
        for record in chosen:
            file = experiment.instances(record["dataset"])
            tasks = runs.tasks_of([file], [method], experiment.time_limit, MEMORY, computing=computing)
            (task,) = (task for task in tasks if task.instance == record["instance"])
            done = runs.run_one(task._asdict())
            ratios.append(done["seconds"] / record["seconds"])
            where = f"{label:<11}{record['dataset']:<11}{record['instance']:>3}"
            print(f"{where} recorded {record['seconds']:7.3f} s, again {done['seconds']:7.3f} s", flush=True)
    print(f"{len(ratios)} runs, again over recorded: median {statistics.median(ratios):.2f}, ", end="")
    print(f"{min(ratios):.2f} to {max(ratios):.2f}")


def report(experiment: Experiment) -> None:
    """The report, from records without what is large: states, and traces of all but the example."""
    labels = [method.split("=", 1)[0] for method in experiment.methods]
    records = compacted(experiment.records, labels)
    place = experiment.place.relative_to(ROOT).as_posix()
    again = shlex.join(["margmap", *run_command(experiment, ["FILES"], f"{place}/runs.jsonl", 1)])
    commands = [
        "# in a clone of the repository, after `make demo` has made .venv, with the datasets in $MARGMAP_DATA:",
        f".venv/bin/python benchmarks/paper.py circuits {experiment.option}".strip(),
        f".venv/bin/python benchmarks/paper.py instances {experiment.option}".strip(),
        again.replace("FILES", f"{place}/instances/*.json").replace("margmap", ".venv/bin/margmap", 1),
        f".venv/bin/python benchmarks/paper.py report {experiment.option}".strip(),
    ]
    found = write_report(
        records,
        experiment.place,
        title=experiment.title,
        about=experiment.about,
        methods={label: ABOUT[label] + on_a_busy_machine(records, label) for label in labels},
        labels=labels,
        commands=commands,
    )
    print(*found.written, sep="\n")
    if found.disagreements:
        sys.exit(f"{found.disagreements} disagreements: see the report")


def on_a_busy_machine(records: list[dict[str, Any]], label: str) -> str:
    """What to know of the runs of a method that count seconds of the processor: how much slower they look."""
    computing = sum(record["label"] == label and record.get("computing", False) for record in records)
    if not computing or not AGAIN_RECORD.exists():
        return ""
    lines = re.findall(r"^(.+?) +\S+ +\d+ recorded +(\S+) s, again +(\S+) s$", AGAIN_RECORD.read_text(), re.MULTILINE)
    ratios = [float(again) / float(before) for name, before, again in lines if name == label]
    if not ratios:
        return ""
    return (
        f" {computing} of its runs count seconds of the processor on a machine that had other work, where "
        f"{len(ratios)} of its runs took {statistics.median(ratios):.1f} times as long as on a quiet one in the median."
    )


def compacted(file: Path, labels: list[str]) -> list[dict[str, Any]]:
    """The records of a file, in the order of the methods, without what is large; and so they are in the file then."""
    records = [_compact(json.loads(line)) for line in file.read_text().splitlines()]
    records.sort(key=lambda record: labels.index(record["label"]))
    write_lines(file, [json.dumps(record) for record in records])
    return records


def _compact(record: dict[str, Any]) -> dict[str, Any]:
    example = (record["dataset"], record["instance"]) == EXAMPLE
    gone = {"state", "model", "load_seconds", *([] if example else ["trace"])}
    record["instances"] = f"instances/{Path(record['instances']).name}"
    return {name: value for name, value in record.items() if name not in gone and value is not None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("circuits", "check", "instances", "run", "again", "report"))
    parser.add_argument("--large", action="store_true", help="circuits of the size of the paper's largest")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these datasets only")
    parser.add_argument("--methods", nargs="+", metavar="LABEL", help="run these methods only")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--computing", action="store_true", help="seconds of the processor")
    options = parser.parse_args()
    names = options.only or list(DATASETS)
    experiment = LARGE if options.large else FIRST
    if options.step == "circuits":
        learn_circuits(experiment, names)
    elif options.step == "check":
        check(experiment, names)
    elif options.step == "instances":
        draw_instances(experiment, names)
    elif options.step == "run":
        run(experiment, names, options.methods, options.jobs, options.computing)
    elif options.step == "again":
        again(experiment, names, options.computing)
    else:
        report(experiment)


if __name__ == "__main__":
    main()
