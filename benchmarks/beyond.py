"""Beyond the paper's circuits: exact marginal MAP on models of five other kinds, each learned from five datasets.

    .venv/bin/python benchmarks/beyond.py models   # learn them and draw the questions, some minutes
    .venv/bin/python benchmarks/beyond.py run      # every method on every question; goes on where it stopped
    .venv/bin/python benchmarks/beyond.py report   # docs/benchmarks/paper/beyond.md, from the records

Needs ../shared/data/debd, or the folder that MARGMAP_DATA names. A model that is there is not learned again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import margmap as mm
from margmap.bench import instances, runs
from margmap.circuit import BERNOULLI, Circuit, Parts, Variable, assemble
from margmap.learn import learn_hclt, learn_mixture, learn_strudel, learn_trees, load_dataset
from paper import DATA, PLACE, SEED, moved

HERE = PLACE / "beyond"
PAGE = PLACE / "beyond.md"
#: Rows that are learned from at most.
ROWS = 5000
NAMES = ("nltcs", "plants", "baudio", "dna", "msweb")
#: Seconds and bytes of a run, questions of each proportion.
SECONDS, BYTES, EACH = 5.0, 4 << 30, 1
#: Query, evidence, hidden; without hidden variables the question is MPE.
MPE = ((0.7, 0.3, 0.0), (0.5, 0.5, 0.0))
METHODS = ("auto", "frontier", "branch", "iterative")


class Kind(NamedTuple):
    """A kind of model."""

    title: str
    about: str
    proportions: tuple[instances.Proportions, ...] = instances.PAPER


KINDS = {
    "spn": Kind(
        "LearnSPN-style trees",
        "rows are clustered and columns divided into independent groups in turns, as LearnSPN does; no node is shared, "
        "and each cluster divides its columns in a way of its own, so that scopes cross",
    ),
    "trees": Kind(
        "Ensembles of trees",
        "`learn_trees`, a mixture of five Chow-Liu trees, each of a structure of its own: scopes cross",
    ),
    "mixture": Kind(
        "Mixtures of Strudel circuits", "`learn_mixture`, four components on the structure of a small Strudel circuit"
    ),
    "hclt": Kind("Latent trees", "`learn_hclt` with 16 latent states for each column"),
    "mpe": Kind(
        "MPE on circuits that are not deterministic",
        "the latent trees again, asked for the most probable state of all variables that are not observed",
        MPE,
    ),
}


def learned_spn(rows: NDArray[np.int8], seed: int = 0, least: int = 60, threshold: float = 8.0) -> Circuit:
    """A tree as LearnSPN makes it: independent groups of columns (G-test), or else two clusters of the rows."""
    rng = np.random.default_rng(seed)
    parts = Parts.new()

    def leaf(column: int, values: NDArray[np.int8]) -> int:
        heads = (values.sum() + 1.0) / (values.size + 2.0)
        return parts.leaf(BERNOULLI, column, [float(np.log(heads)), float(np.log1p(-heads))])

    def independent(at: NDArray[np.int64], columns: list[int]) -> list[list[int]]:
        x = rows[np.ix_(at, columns)].astype(np.float64)
        ones, n = x.T @ x, float(len(at))
        p = x.sum(0)
        g = np.zeros_like(ones)
        for a, observed in (
            ((p, p), ones),
            ((p, n - p), p[:, None] - ones),
            ((n - p, p), p[None] - ones),
            ((n - p, n - p), n - p[:, None] - p[None] + ones),
        ):
            expected = np.outer(*a) / n
            with np.errstate(divide="ignore", invalid="ignore"):
                g += np.where(observed > 0, observed * np.log(observed / expected), 0.0)
        linked = 2 * g > threshold
        left, groups = set(range(len(columns))), []
        while left:
            group, todo = set(), [left.pop()]
            while todo:
                i = todo.pop()
                group.add(i)
                near = {j for j in left if linked[i, j]}
                left -= near
                todo += sorted(near)
            groups.append([columns[i] for i in sorted(group)])
        return groups

    def node(at: NDArray[np.int64], columns: list[int], split: bool) -> int:
        if len(columns) == 1:
            return leaf(columns[0], rows[at, columns[0]])
        if len(at) < least:
            return parts.product([leaf(i, rows[at, i]) for i in columns])
        groups = independent(at, columns) if split else [columns]
        if len(groups) > 1:
            return parts.product([node(at, group, False) for group in groups])
        x = rows[np.ix_(at, columns)].astype(np.float64)
        centres = x[rng.choice(len(at), 2, replace=False)]
        for _ in range(10):
            second = ((x - centres[0]) ** 2).sum(1) > ((x - centres[1]) ** 2).sum(1)
            if second.all() or not second.any():
                break
            centres = np.stack([x[~second].mean(0), x[second].mean(0)])
        if second.all() or not second.any():
            return parts.product([leaf(i, rows[at, i]) for i in columns])
        share = np.log([(~second).mean(), second.mean()])
        return parts.sum([node(at[~second], columns, True), node(at[second], columns, True)], share.tolist())

    width = rows.shape[1]
    root = node(np.arange(len(rows)), list(range(width)), True)
    return assemble([Variable(i) for i in range(width)], parts, root)


def learn(kind: str, name: str) -> Circuit:
    """A model of a kind."""
    train, valid, _ = load_dataset(name, DATA)
    if kind == "spn":
        return learned_spn(np.asarray(train[:ROWS], dtype=np.int8))
    if kind == "trees":
        return learn_trees(train[:ROWS], valid, 5, iterations=10).circuit
    if kind == "mixture":
        structure = learn_strudel(train[:ROWS], max_edges=5000).circuit
        return learn_mixture(train[:ROWS], valid, 4, structure=structure, iterations=10).circuit
    return learn_hclt(train[:ROWS], valid, latent=16, epochs=3).circuit


def models() -> None:
    """Learn what is not there, and draw its questions."""
    for folder in ("circuits", "instances"):
        (HERE / folder).mkdir(parents=True, exist_ok=True)
    for kind, about in KINDS.items():
        for name in NAMES:
            title = f"{kind}-{name}"
            path = HERE / "instances" / f"{title}.json"
            model = HERE / "circuits" / f"{'hclt' if kind == 'mpe' else kind}-{name}.mmz"
            if path.exists() and model.exists():
                continue
            begun = time.perf_counter()
            if not model.exists():
                mm.save(learn(kind, name), model)
            circuit = mm.load_circuit(model)
            drawn = instances.generate(circuit, about.proportions, EACH, SEED, name=title)
            file = instances.InstanceFile(title, instances.relative_model(model, path), SEED, drawn)
            instances.write(path, file)
            print(f"{title}: {circuit!r}, {time.perf_counter() - begun:.1f} s", flush=True)


def run(only: list[str] | None) -> None:
    """Do what has no record yet, on the models that are there."""
    files = [HERE / "instances" / f"{kind}-{name}.json" for kind in KINDS for name in NAMES]
    files = [file for file in files if file.exists()]
    methods = [runs.Method(name, name, {}) for name in METHODS if only is None or name in only]
    tasks = [moved(task) for task in runs.tasks_of(files, methods, SECONDS, BYTES, computing=True)]
    os.chdir(HERE)
    with ThreadPoolExecutor(1) as executor:
        done = runs.run(tasks, HERE / "runs.jsonl", executor, 1)
    print(f"{done} of {len(tasks)} runs done now")


def cell(records: list[dict[str, Any]]) -> str:
    """How many were solved, and in how many seconds of the processor on average."""
    if not records:
        return "not run"
    if all(r["status"] == "failed" and "structured" in (r["error"] or "") for r in records):
        return "does not apply"
    solved = [r["seconds"] for r in records if r["status"] == "optimal"]
    gaps = [r["gap"] for r in records if r["status"] != "optimal" and isinstance(r["gap"], float)]
    text = f"{len(solved)}/{len(records)}"
    if solved:
        text += f", {statistics.fmean(solved):#.2g} s"
    if gaps:
        text += f", gap {max(gaps):#.2g}"
    return text


def report() -> None:
    """The page, from the records."""
    records = [json.loads(line) for line in (HERE / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    limit = f"{SECONDS:g}"
    lines = [
        "# Beyond the paper's circuits",
        "",
        "[The paper's experiment](report.md) has circuits of one kind: deterministic, structured, learned by Strudel. "
        "Here exact marginal MAP is asked of models of other kinds, each learned from the first rows, at most "
        f"{ROWS:,}, of five datasets, with a question of each of the paper's two proportions. `auto` is what "
        "margmap takes by default; it chooses among the others and lets two take turns where one finds it hard.",
        "",
        f"A cell says how many questions were solved with a proof within {limit} s of the processor, the mean seconds "
        "of those, and the largest gap in nats that was left where there was no proof. *Does not apply*: frontier "
        "needs scopes that do not cross. Made by `benchmarks/beyond.py report` from `beyond/runs.jsonl`.",
    ]
    for kind, about in KINDS.items():
        own = [r for r in records if r["dataset"].startswith(f"{kind}-")]
        if not own:
            continue
        lines += ["", f"## {about.title}", "", f"{about.about[0].upper()}{about.about[1:]}.".replace("`L", "`l"), ""]
        lines += [f"| dataset | edges | {' | '.join(METHODS)} |", f"|:--|--:|{'--:|' * len(METHODS)}"]
        for name in NAMES:
            at = [r for r in own if r["dataset"] == f"{kind}-{name}"]
            if at:
                cells = [cell([r for r in at if r["label"] == method]) for method in METHODS]
                edges = max(r["edges"] or 0 for r in at)
                lines.append(f"| {name} | {edges:,} | {' | '.join(cells)} |")
        cells = [cell([r for r in own if r["label"] == method]) for method in METHODS]
        lines.append(f"| **all** | | {' | '.join(cells)} |")
        if missing := [name for name in NAMES if all(r["dataset"] != f"{kind}-{name}" for r in own)]:
            lines += ["", f"Not run yet: {', '.join(missing)}."]
    asked = {r["dataset"].split("-", 1)[0] for r in records}
    if left := [about.title.lower() for kind, about in KINDS.items() if kind not in asked]:
        lines += ["", "## Not run yet", "", f"{'; '.join(left)}.".capitalize()]
    best: dict[tuple[str, int], list[float]] = {}
    for r in records:
        if r["status"] == "optimal":
            best.setdefault((r["dataset"], r["instance"]), []).append(r["log_prob"])
    pairs = sum(len(v) * (len(v) - 1) // 2 for v in best.values())
    apart = max((max(v) - min(v) for v in best.values()), default=0.0)
    lines += [
        "",
        "## Agreement",
        "",
        f"{pairs} pairs of proven optima of the same question by two methods; they are at most {apart:.1g} nats apart.",
        "",
        "## To repeat",
        "",
        "```sh",
        *(f"python benchmarks/beyond.py {step}" for step in ("models", "run", "report")),
        "```",
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(PAGE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("models", "run", "report"))
    parser.add_argument("--only", nargs="+", choices=METHODS, help="these methods only")
    options = parser.parse_args()
    if options.step == "models":
        models()
    elif options.step == "run":
        run(options.only)
    else:
        report()


if __name__ == "__main__":
    main()
