"""Imputation: how often a whole row's missing cells are right, beside scikit-learn's imputers; and rows a second.

    .venv/bin/python benchmarks/imputation.py                                # all tables, rows cut to a few hundred
    .venv/bin/python benchmarks/imputation.py --full --results FILE.jsonl    # as in docs/benchmarks/imputation.md
    .venv/bin/python benchmarks/imputation.py --speed --results FILE.jsonl   # 10,000 rows of 100 columns, two threads
    .venv/bin/python benchmarks/imputation.py --write --results FILE.jsonl   # the tables of the page

One cell in five is masked, in the rows to learn from and in those to fill in. Numbers are in the bins of the table for
all four, because a number counts as right when it is in its bin. Mode is the most frequent value of each column. The
iterative imputer and that of the nearest neighbours see codes (of bins and of classes in their order) and are rounded.
margmap learns latent trees with --latent states, half and a quarter of that, and with the best of these numbers once
more with less and with more smoothing; the likelihood of a tenth of the rows to learn from chooses. Of less than 1,000
rows it learns small latent trees and mixtures of trees, and cross-validated likelihood chooses.
With --full a mixed table is divided five times at random into rows to learn from and rows to fill in.
Needs ../shared/data/debd, or the folder that MARGMAP_DATA names, and scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import margmap as mm
from margmap.learn import load_dataset, read_table
from margmap.learn.table import Table

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("MARGMAP_DATA") or ROOT.parent / "shared" / "data" / "debd")
PAGE = ROOT / "docs" / "benchmarks" / "imputation.md"
BINARY = (
    *("nltcs", "msnbc", "kdd", "plants", "jester", "baudio", "bnetflix", "accidents", "tretail", "pumsb_star", "dna"),
)
MIXED = ("wine", "cancer", "orders")
PART = 0.2
IMPUTERS = ("mode", "iterative", "neighbours", "margmap")
# How many rows --full fills in and learns from, at most.
ROWS = (3000, 10_000)
# How often --full divides a mixed table into rows to learn from and rows to fill in; how many rows are few.
MIXED_SPLITS, FEW = 5, 1000


def mixed(name: str) -> Table:
    """A table with classes, counts and numbers: two of scikit-learn, or one that is made up."""
    if name in ("wine", "cancer"):
        from sklearn.datasets import load_breast_cancer, load_wine

        found = (load_wine if name == "wine" else load_breast_cancer)(as_frame=True)
        frame = found.data.assign(kind=[found.target_names[t] for t in found.target])
        if name == "cancer":  # the means of ten measurements, and the kind
            frame = frame.iloc[:, [*range(10), -1]]
        return read_table(frame, bins=4)
    rng = np.random.default_rng(7)
    rows = 4000
    kind = rng.integers(0, 4, rows)
    country = np.array(["de", "fr", "it", "us"])[np.where(rng.random(rows) < 0.8, kind, rng.integers(0, 4, rows))]
    items = rng.poisson(1 + 2 * kind)
    price = np.exp(rng.normal(2 + 0.5 * kind, 0.3)) * (1 + items)
    express = (price > np.median(price)) ^ (rng.random(rows) < 0.1)
    days = np.where(express, 1, 4) + rng.integers(0, 2, rows)
    returned = np.where((days > 3) & (rng.random(rows) < 0.6), "yes", "no")
    names = ("country", "items", "price", "express", "days", "returned")
    columns = (country, np.minimum(items, 9), price, express, days, returned)
    import pandas

    return read_table(pandas.DataFrame(dict(zip(names, columns, strict=True))), bins=5)


def rows_of(name: str, most: int, learned: int, seed: int) -> tuple[Table, Table, Any]:
    """Complete rows to learn from and to fill in, so many of each at most, and which rows of the table the last are.

    A table that has no split of its own is divided at random; of a small one each row to fill in comes several times.
    """
    if name in MIXED:
        table = mixed(name)
        order = np.random.default_rng(seed).permutation(len(table))
        cut = len(table) * 2 // 3
        which = np.tile(order[cut:], -(-most // (len(table) - cut)))[:most]
        train, test = table.codes[order[:cut]], table.codes[which]
    else:
        splits = load_dataset(name, DATA)
        table = read_table(splits.train)
        train, test = splits.train.astype(np.int16), splits.test.astype(np.int16)
        which = np.arange(min(len(test), most))
    return Table(train[:learned].copy(), table.variables), Table(test[:most].copy(), table.variables), which


def masked(table: Table, seed: int) -> Table:
    holes = np.random.default_rng(seed).random(table.codes.shape) < PART
    return Table(np.where(holes, -1, table.codes).astype(np.int16), table.variables)


def rounded(found: Any, cardinality: Any) -> Any:
    return np.clip(np.rint(found), 0, cardinality - 1).astype(np.int16)


def fill_all(train: Table, holed: Table, latent: int, epochs: int) -> dict[str, tuple[Any, float]]:
    """What each imputer makes of the rows, and the seconds of the processor that it took, learning included."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

    cardinality = np.array([v.cardinality for v in train.variables])
    known, asked = (np.where(t.codes < 0, np.nan, t.codes.astype(float)) for t in (train, holed))
    found: dict[str, tuple[Any, float]] = {}
    others = {
        "mode": SimpleImputer(strategy="most_frequent", keep_empty_features=True),
        "iterative": IterativeImputer(max_iter=10, random_state=0, keep_empty_features=True),
        "neighbours": KNNImputer(n_neighbors=5, keep_empty_features=True),
    }
    for name, imputer in others.items():
        begun = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            codes = rounded(imputer.fit(known).transform(asked), cardinality)
        found[name] = (codes, time.process_time() - begun)
    begun = time.process_time()
    circuit = few_rows_model(train, epochs) if len(train) < FEW else model(train, latent, epochs)
    filled = mm.impute(circuit, holed)
    assert set(filled.status) == {"optimal"}
    found["margmap"] = (filled.codes, time.process_time() - begun)
    return found


def part(table: Table, rows: Any) -> Table:
    return Table(table.codes[rows].copy(), table.variables)


def model(train: Table, latent: int, epochs: int) -> mm.Circuit:
    """The latent tree that a tenth of the rows likes best: of three sizes, then of three amounts of smoothing."""
    cut = len(train) * 9 // 10
    learn, valid = part(train, slice(None, cut)), part(train, slice(cut, None))
    sizes = [size for size in (4, 8, 16, 32, 64) if size <= latent] or [latent]
    runs = {(size, 0.1): mm.learn.learn_hclt(learn, valid, latent=size, epochs=epochs) for size in sizes[-3:]}
    best = max(runs, key=lambda key: runs[key].best.valid)[0]
    for smoothing in (0.01, 1.0):
        run = mm.learn.learn_hclt(learn, valid, latent=best, epochs=epochs, pseudocount=smoothing)
        runs[best, smoothing] = run
    return max(runs.values(), key=lambda run: run.best.valid).circuit


def few_rows_model(train: Table, epochs: int) -> mm.Circuit:
    """Few rows are too few to set some aside: five parts of them choose in turn, then all are learned from."""
    learners: list[Any] = [
        partial(mm.learn.hclt, latent=latent, pseudocount=smoothing, epochs=epochs)
        for latent in (4, 8, 16)
        for smoothing in (0.1, 1.0)
    ]
    learners += [partial(mm.learn.trees, k=k, strength=strength) for k in (1, 2, 4, 8) for strength in (1.0, 5.0)]
    fold = np.arange(len(train)) % 5

    def held_out(learn: Any) -> float:
        means = (mm.log_likelihood(learn(part(train, fold != f)), train.codes[fold == f]).mean() for f in range(5))
        return float(sum(means))

    return max(learners, key=held_out)(train)


def compare(name: str, full: bool, latent: int, epochs: int, seed: int) -> dict[str, Any]:
    """How often each imputer has a whole row right, on one table; the seed chooses rows and holes."""
    most, learned = ROWS if full else (200, 2000)
    splits = MIXED_SPLITS if name in MIXED and full else 1
    right: dict[str, list[Any]] = {name: [] for name in IMPUTERS}
    cells: dict[str, list[Any]] = {name: [] for name in IMPUTERS}
    seconds = dict.fromkeys(IMPUTERS, 0.0)
    which = []
    for split in range(splits):
        own = seed + 1000 * split
        train, test, rows = rows_of(name, most, learned, own)
        holed = masked(test, 2 * own + 2)
        holes = holed.codes < 0
        some = holes.any(axis=1)
        which.append(rows[some])
        for imputer, (codes, spent) in fill_all(masked(train, 2 * own + 1), holed, latent, epochs).items():
            right[imputer].append(((codes == test.codes) | ~holes).all(axis=1)[some])
            cells[imputer].append((codes == test.codes)[holes])
            seconds[imputer] += spent
    whole = {imputer: np.concatenate(parts).astype(float) for imputer, parts in right.items()}
    row: dict[str, Any] = {"imputed": name, "columns": len(test.variables), "rows": len(whole["mode"])}
    row |= {"learned_from": len(train), "splits": splits, "latent": latent, "epochs": epochs, "seed": seed}
    for imputer in IMPUTERS:
        row[imputer] = {
            "whole_rows": float(whole[imputer].mean()),
            "cells": float(np.concatenate(cells[imputer]).mean()),
            "processor_seconds": seconds[imputer],
        }
        if imputer != "margmap":
            row[imputer]["behind"] = difference(whole["margmap"] - whole[imputer], np.concatenate(which))
    return row


def difference(gain: Any, which: Any) -> list[float]:
    """The mean of paired differences and its standard error; rows of the table that come several times count as one."""
    mean = float(gain.mean())
    sums = np.bincount(which, weights=gain - mean)
    return [mean, float(np.sqrt((sums**2).sum()) / gain.size)]


def speed(latent: int, jobs: int, number: int) -> dict[str, Any]:
    """Rows of baudio, 100 columns, one cell in five missing, each row with a pattern of its own."""
    splits = load_dataset("baudio", DATA)
    circuit = mm.learn.hclt(splits.train, splits.valid, latent=latent, epochs=10)
    rows = np.vstack([splits.train, splits.test])[:number].astype(np.int64)
    rows[np.random.default_rng(0).random(rows.shape) < PART] = -1
    mm.impute(circuit, rows[:10])
    begun, busy = time.perf_counter(), time.process_time()
    found = mm.impute(circuit, rows, jobs=jobs)
    spent = time.perf_counter() - begun
    own = time.process_time() - busy
    return {
        "speed": "baudio",
        "latent": latent,
        "edges": circuit.num_edges,
        "rows": number,
        "jobs": jobs,
        "seconds": spent,
        "rows_per_second": number / spent,
        "processor_seconds_here": own,
        "optimal": found.status.count("optimal"),
    }


def write(rows: list[dict[str, Any]]) -> None:
    head = (
        "| table | columns | learned from | rows | mode | iterative | neighbours | margmap | ahead of the best other |"
    )
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for row in (r for r in rows if "imputed" in r):
        others = [name for name in IMPUTERS if name != "margmap"]
        mean, error = row[max(others, key=lambda name: row[name]["whole_rows"])]["behind"]
        said = "yes" if mean > 2 * error else "no" if mean < -2 * error else "within noise"
        cells = " | ".join(f"{100 * row[name]['whole_rows']:.1f} %" for name in IMPUTERS)
        facts = f"{row['imputed']} | {row['columns']} | {row['learned_from']:,} | {row['rows']:,}"
        lines.append(f"| {facts} | {cells} | {said}: {100 * mean:+.1f} ± {100 * error:.1f} |")
    fast = [
        "| states | edges | rows | threads | seconds | rows a second | of the processor, a row | optimal |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    fast += [
        f"| {r['latent']} | {r['edges']:,} | {r['rows']:,} | {r['jobs']} | {r['seconds']:.1f} "
        f"| {r['rows_per_second']:.0f} | {1000 * r['processor_seconds_here'] / r['rows']:.2f} ms | {r['optimal']:,} |"
        for r in rows
        if "speed" in r
    ]
    text = PAGE.read_text(encoding="utf-8")
    for mark, table in (("imputed", lines), ("speed", fast)):
        before, rest = text.split(f"<!-- {mark} -->\n", 1)
        made = "\n".join(table)
        text = f"{before}<!-- {mark} -->\n{made}\n<!-- end -->{rest.split('<!-- end -->', 1)[1]}"
    PAGE.write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"tables; by default {', '.join((*BINARY, *MIXED))}")
    parser.add_argument("--full", action="store_true", help="3,000 rows of each table, learned from 10,000")
    parser.add_argument("--speed", action="store_true", help="measure rows a second instead")
    parser.add_argument("--write", action="store_true", help="write the tables into the page and run nothing")
    parser.add_argument("--latent", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the rows and of the holes")
    parser.add_argument("--rows", type=int, default=10_000, help="of --speed")
    parser.add_argument("--results", type=Path, help="append results there, one JSON object a line")
    given = parser.parse_args()
    if given.write:
        write([json.loads(line) for line in given.results.read_text().splitlines()])
        return

    def tell(row: dict[str, Any]) -> None:
        print(json.dumps(row), flush=True)
        if given.results is not None:
            with given.results.open("a") as out:
                out.write(json.dumps(row) + "\n")

    if given.speed:
        tell(speed(given.latent, given.jobs, given.rows))
        return
    for name in given.names or (*BINARY, *MIXED):
        tell(compare(name, given.full, given.latent, given.epochs, given.seed))


if __name__ == "__main__":
    main()
