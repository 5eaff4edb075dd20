"""Imputation: how often a whole row's missing cells are right, beside scikit-learn's imputers; and rows a second.

    .venv/bin/python benchmarks/imputation.py                                # all tables, rows cut to a few hundred
    .venv/bin/python benchmarks/imputation.py --full --results FILE.jsonl    # as in docs/benchmarks/imputation.md
    .venv/bin/python benchmarks/imputation.py --speed --results FILE.jsonl   # 10,000 rows of 100 columns, two threads
    .venv/bin/python benchmarks/imputation.py --write --results FILE.jsonl   # the tables of the page

One cell in five is masked, in the rows to learn from and in those to fill in. Numbers are in the bins of the table for
all four, because a number counts as right when it is in its bin. Mode is the most frequent value of each column. The
iterative imputer and that of the nearest neighbours see codes (of bins and of classes in their order) and are rounded.
margmap learns latent trees with --latent states, half and a quarter of that, and with the best of these numbers once
more with less and with more smoothing; the likelihood of a tenth of the rows to learn from chooses.
With --full, tables of 100 columns and more have fewer rows, for all imputers: the iterative one takes long on them.
Needs ../shared/data/debd, or the folder that MARGMAP_DATA names, and scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import margmap as mm
from margmap.learn import DATASETS, load_dataset, read_table
from margmap.learn.table import Table

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("MARGMAP_DATA") or ROOT.parent / "shared" / "data" / "debd")
PAGE = ROOT / "docs" / "benchmarks" / "imputation.md"
BINARY = ("nltcs", "msnbc", "kdd", "plants", "jester", "baudio", "bnetflix", "accidents", "tretail", "dna")
MIXED = ("wine", "cancer", "orders")
PART = 0.2
# How many columns make a wide table; how many rows --full fills in and learns from, of others and of wide ones.
WIDE, ROWS, WIDE_ROWS = 100, (1000, 10_000), (500, 4000)


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


def rows_of(name: str, most: int, learned: int, seed: int = 0) -> tuple[Table, Table]:
    """Complete rows to learn from and to fill in, so many of each at most."""
    rng = np.random.default_rng(seed)
    if name in MIXED:
        table = mixed(name)
        order = rng.permutation(len(table))
        cut = len(table) * 2 // 3
        train, test = table.codes[order[:cut]], table.codes[order[cut:]]
        test = np.tile(test, (-(-most // len(test)), 1))  # of a small table each row is masked several times
    else:
        splits = load_dataset(name, DATA)
        table = read_table(splits.train)
        train, test = splits.train.astype(np.int16), splits.test.astype(np.int16)
    return Table(train[:learned].copy(), table.variables), Table(test[:most].copy(), table.variables)


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
    cut = len(train.codes) * 9 // 10
    learn, valid = (Table(part.copy(), train.variables) for part in (train.codes[:cut], train.codes[cut:]))
    sizes = [size for size in (4, 8, 16, 32, 64) if size <= latent] or [latent]
    runs = {(size, 0.1): mm.learn.learn_hclt(learn, valid, latent=size, epochs=epochs) for size in sizes[-3:]}
    best = max(runs, key=lambda key: runs[key].best.valid)[0]
    for smoothing in (0.01, 1.0):
        run = mm.learn.learn_hclt(learn, valid, latent=best, epochs=epochs, pseudocount=smoothing)
        runs[best, smoothing] = run
    filled = mm.impute(max(runs.values(), key=lambda run: run.best.valid).circuit, holed)
    assert set(filled.status) == {"optimal"}
    found["margmap"] = (filled.codes, time.process_time() - begun)
    return found


def compare(name: str, full: bool, latent: int, epochs: int, seed: int) -> dict[str, Any]:
    """How often each imputer has a whole row right, on one table; the seed chooses rows and holes."""
    wide = name in DATASETS and DATASETS[name].variables >= WIDE
    train, test = rows_of(name, *((WIDE_ROWS if wide else ROWS) if full else (200, 2000)), seed)
    holed = masked(test, 2 * seed + 2)
    holes = holed.codes < 0
    some = holes.any(axis=1)
    row: dict[str, Any] = {"imputed": name, "columns": len(test.variables), "rows": int(some.sum())}
    row |= {"learned_from": len(train), "latent": latent, "epochs": epochs, "seed": seed}
    for imputer, (codes, seconds) in fill_all(masked(train, 2 * seed + 1), holed, latent, epochs).items():
        right = (codes == test.codes) | ~holes
        row[imputer] = {
            "whole_rows": float(right.all(axis=1)[some].mean()),
            "cells": float((codes == test.codes)[holes].mean()),
            "processor_seconds": seconds,
        }
    return row


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


IMPUTERS = ("mode", "iterative", "neighbours", "margmap")


def write(rows: list[dict[str, Any]]) -> None:
    head = "| table | columns | learned from | rows | mode | iterative | neighbours | margmap | best |"
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for row in (r for r in rows if "imputed" in r):
        shares = {name: row[name]["whole_rows"] for name in IMPUTERS}
        best = " and ".join(name for name in IMPUTERS if shares[name] == max(shares.values()))
        cells = " | ".join(f"{100 * shares[name]:.1f} %" for name in IMPUTERS)
        facts = f"{row['imputed']} | {row['columns']} | {row['learned_from']:,} | {row['rows']}"
        lines.append(f"| {facts} | {cells} | {best} |")
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
    parser.add_argument(
        "--full", action="store_true", help="1,000 rows of each table, learned from 10,000; less of wide ones"
    )
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
