"""Test log-likelihoods of Chow-Liu and Strudel circuits on the twenty datasets, beside those of LearnPSDD's circuits.

    .venv/bin/python benchmarks/learn.py                             # two small datasets, some seconds
    .venv/bin/python benchmarks/learn.py --all --results FILE.jsonl  # all twenty, about half an hour
    .venv/bin/python benchmarks/learn.py --sizes --results FILE.jsonl  # how large circuits can get
    .venv/bin/python benchmarks/learn.py --write --results FILE.jsonl  # the tables of docs/benchmarks/learning.md

Needs ../shared/data/debd, or the folder that MARGMAP_DATA names. Results are appended to FILE one by one; a dataset
that is in it already is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import margmap as mm
from margmap.circuit import PRODUCT, SUM, Circuit
from margmap.learn import DATASETS, chow_liu, learn_strudel, load_dataset

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("MARGMAP_DATA") or ROOT.parent / "shared" / "data" / "debd")
PAGE = ROOT / "docs" / "benchmarks" / "learning.md"

# Mean test log-likelihoods of the circuits in Circuit-Model-Zoo, an older learner's (../shared/design/strudel.md).
LEARN_PSDD = {
    "nltcs": -6.045, "msnbc": -6.052, "kdd": -2.158, "plants": -13.354, "baudio": -41.594, "jester": -54.430,
    "bnetflix": -58.152, "accidents": -29.248, "tretail": -10.917, "pumsb_star": -25.128, "msweb": -10.136,
    "book": -35.668, "cwebkb": -159.97, "cr52": -92.381, "c20ng": -160.93, "bbc": -258.05, "ad": -16.769,
}  # fmt: skip
SIZES = ("baudio", "plants", "tretail", "c20ng")


def parameters(circuit: Circuit) -> int:
    """Weights below sums, and probabilities in leaves."""
    owner = np.repeat(circuit.kind, np.diff(circuit.start))
    leaf = (circuit.kind > 0) & (circuit.kind < PRODUCT)
    return int((owner == SUM).sum() + np.diff(circuit.param_start)[leaf].sum())


def facts(circuit: Circuit) -> dict[str, int]:
    return {"nodes": circuit.num_nodes, "edges": circuit.num_edges, "parameters": parameters(circuit)}


def mean(circuit: Circuit, rows: Any) -> float:
    return float(mm.log_likelihood(circuit, rows).mean())


def learn(name: str, seconds: float, tries: int) -> dict[str, Any]:
    train, valid, test = load_dataset(name, DATA)
    begun = time.perf_counter()
    tree = chow_liu(train)
    tree_seconds = time.perf_counter() - begun
    begun, used = time.perf_counter(), time.process_time()
    run = learn_strudel(train, valid, time_limit=seconds, tries=tries)
    spent, used = time.perf_counter() - begun, time.process_time() - used
    held = run.circuit.properties
    return {
        "dataset": name,
        "chow_liu": mean(tree, test),
        "chow_liu_seconds": tree_seconds,
        "strudel": mean(run.circuit, test),
        "valid": run.best.valid,
        "train": run.best.train,
        **facts(run.circuit),
        "seconds": spent,
        "processor_seconds": used,
        "seconds_to_best": run.best.seconds,
        "iterations": run.last.iteration,
        "reason": run.reason,
        "tries": tries,
        "properties": [held.smooth, held.deterministic, held.structured, held.normalised],
    }


def large(name: str, edges: int) -> dict[str, Any]:
    """Strudel as published, without a validation set, until the circuit itself has the edges asked for."""
    train = load_dataset(name, DATA).train
    begun = time.perf_counter()
    limit = edges
    while True:
        run = learn_strudel(train, max_edges=limit, tries=1, min_gain=None, prior="uniform")
        if run.circuit.num_edges >= edges or run.reason != "max_edges":
            break
        limit = int(limit * 1.1 * edges / run.circuit.num_edges)
    return {
        "size_of": name,
        **facts(run.circuit),
        "iterations": run.last.iteration,
        "seconds": run.last.seconds,
        "total_seconds": time.perf_counter() - begun,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def read(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def verdict(row: dict[str, Any]) -> str:
    target = LEARN_PSDD.get(row["dataset"])
    falls = []
    if row["strudel"] <= row["chow_liu"]:
        falls.append("not better than Chow-Liu")
    if target is not None and row["strudel"] < target * 1.01:
        falls.append("more than 1 % below LearnPSDD")
    return "; ".join(falls) or "yes"


def tables(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """The two tables of the page."""
    first = [
        "| dataset | variables | Chow-Liu | Strudel | LearnPSDD | holds | nodes | edges | parameters "
        "| seconds of the processor | ended by |",
        "|---|--:|--:|--:|--:|---|--:|--:|--:|--:|---|",
    ]
    for row in sorted((r for r in rows if "dataset" in r), key=lambda r: list(DATASETS).index(r["dataset"])):
        name, target = row["dataset"], LEARN_PSDD.get(row["dataset"])
        first.append(
            f"| {name} | {DATASETS[name].variables} | {row['chow_liu']:.3f} | {row['strudel']:.3f} "
            f"| {'' if target is None else f'{target:.3f}'} | {verdict(row)} | {row['nodes']:,} | {row['edges']:,} "
            f"| {row['parameters']:,} | {row['processor_seconds']:.0f} | {row['reason'].replace('_', ' ')} |"
        )
    second = ["| dataset | edges | nodes | splits | seconds | peak memory |", "|---|--:|--:|--:|--:|--:|"]
    second += [
        f"| {r['size_of']} | {r['edges']:,} | {r['nodes']:,} | {r['iterations']:,} | {r['seconds']:.1f} "
        f"| {r['peak_mb']:.0f} MB |"
        for r in rows
        if "size_of" in r
    ]
    return "\n".join(first), "\n".join(second)


def write(rows: list[dict[str, Any]]) -> None:
    """Put the tables between their marks on the page."""
    text = PAGE.read_text(encoding="utf-8")
    for mark, table in zip(("twenty", "sizes"), tables(rows), strict=True):
        before, rest = text.split(f"<!-- {mark} -->\n", 1)
        text = f"{before}<!-- {mark} -->\n{table}\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="datasets; by default nltcs and msnbc")
    parser.add_argument("--all", action="store_true", help="all twenty")
    parser.add_argument("--sizes", action="store_true", help="grow circuits past 500,000 edges instead")
    parser.add_argument("--write", action="store_true", help="write the tables into the page and run nothing")
    parser.add_argument("--time-limit", type=float, default=90.0, help="seconds for each dataset")
    parser.add_argument("--tries", type=int, default=16)
    parser.add_argument("--results", type=Path, help="append results there, one JSON object a line")
    given = parser.parse_args()
    if given.write:
        write(read(given.results))
        return
    if not DATA.is_dir():
        sys.exit(f"{DATA} is not there: these figures need the twenty datasets")
    learn_strudel(np.eye(8, dtype=np.uint8), np.eye(8, dtype=np.uint8), iterations=3)  # compiles
    done = {row.get("size_of" if given.sizes else "dataset") for row in read(given.results)}
    by_size = sorted(DATASETS, key=lambda name: DATASETS[name].variables * DATASETS[name].rows[0])
    names = given.names or (SIZES if given.sizes else by_size if given.all else ("nltcs", "msnbc"))
    for name in names:
        if name in done:
            continue
        row = large(name, 500_000) if given.sizes else learn(name, given.time_limit, given.tries)
        print(json.dumps(row), flush=True)
        if given.results is not None:
            with given.results.open("a") as out:
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
