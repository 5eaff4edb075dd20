"""What stays hard: auto beside every other method after a while, and circuits grown from dna to the paper's size.

    .venv/bin/python benchmarks/hard.py                    # limits of 1 and 10 s, and dna: some minutes on one core
    .venv/bin/python benchmarks/hard.py --longest 60       # also where 10 s are not enough: another quarter of an hour
    .venv/bin/python benchmarks/hard.py --parts dna --circuit FILE.mmz    # the circuit is kept in FILE

Parts: ``families`` (auto's gap beside the smallest that one method has after half of the time) and ``dna`` (a Strudel
circuit grown as published, if ../shared/data is there: 50 % asked for, 20 % observed, at random and at the values of
one sample). Kernels are warm. Evaluations are those of ``scale.py``.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np

import margmap as mm
from margmap.bench.generators import (
    coin_mixture,
    flat_latent_tree,
    latent_tree,
    learned_tree,
    partition_tree,
    tree_ensemble,
)
from margmap.circuit import Name, Value
from margmap.learn import learn_strudel
from scale import DATA, evaluation, target, warm

PARTS = ("families", "dna")
HARD = {
    "20 coins": lambda: coin_mixture(1, components=20),
    "60 coins": lambda: coin_mixture(1, components=60),
    "100 coins": lambda: coin_mixture(1, components=100),
    "crossing scopes": lambda: partition_tree(1),
    "LearnSPN": lambda: learned_tree(1),
    "ensemble": lambda: tree_ensemble(1),
    "flat latent": lambda: flat_latent_tree(1),
}
METHODS = ("frontier", "best-first", "branch", "iterative")
LIMITS = (1.0, 10.0, 60.0)


def families(longest: float, names: list[str]) -> None:
    """Auto's gap beside the best gap that one method has after half of the time."""
    for name in names:
        circuit = HARD[name]()
        for limit in [limit for limit in LIMITS if limit <= longest]:
            alone = {}
            for method in METHODS:
                try:
                    alone[method] = mm.marginal_map(circuit, None, method=method, time_limit=limit / 2).gap
                except mm.StructureError:  # frontier, where scopes cross
                    continue
            auto = mm.marginal_map(circuit, None, time_limit=limit)
            shown = ", ".join(f"{method} {gap:.3f}" for method, gap in alone.items())
            print(f"{name}, {limit:g} s: {auto.method}, {auto.seconds:.2f} s, {auto.status}; alone: {shown}")
            target(f"{name}, {limit:g} s: auto's gap", auto.gap, 1.1 * min(alone.values()) + 0.01)
            if auto.status == "optimal":
                break  # more time changes nothing


def grown(edges: int, path: Path | None) -> mm.Circuit:
    """A circuit grown from dna to at least so many edges, as published; from a file, if there is one."""
    if path is not None and path.exists():
        return mm.load(path)
    train = np.loadtxt(DATA / "debd" / "dna" / "dna.train.data.gz", delimiter=",", dtype=int)
    limit, begun = edges, time.perf_counter()
    while True:
        run = learn_strudel(train, max_edges=limit, tries=1, min_gain=None, prior="uniform")
        if run.circuit.num_edges >= edges or run.reason != "max_edges":
            break
        limit = math.ceil(limit * 1.05 * edges / run.circuit.num_edges)
    print(f"dna: {run.circuit.num_edges:,} edges, grown in {time.perf_counter() - begun:.0f} s")
    if path is not None:
        mm.save(run.circuit, path)
    return run.circuit


def dna(edges: int, seeds: int, path: Path | None) -> None:
    """Queries of a circuit grown from dna."""
    if path is None and not (DATA / "debd" / "dna").is_dir():
        print(f"{DATA / 'debd' / 'dna'} is not there: no circuit is grown from dna")
        return
    circuit = grown(edges, path)
    longest, most, exact = 0.0, 0.0, True
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        order, n = rng.permutation(circuit.names).tolist(), len(circuit.names)
        query, observed = order[: n // 2], order[n // 2 : n // 2 + n // 5]
        sample = dict(zip(circuit.names, mm.sample(circuit, 1, seed=seed)[0].tolist(), strict=True))
        given: dict[str, dict[Name, Value]] = {
            "at random": {name: int(rng.integers(2)) for name in observed},
            "sampled": {name: sample[name] for name in observed},
        }
        for how, evidence in given.items():
            r = min((mm.marginal_map(circuit, query, evidence) for _ in range(2)), key=lambda r: r.seconds)
            evaluations = r.seconds / evaluation(circuit, evidence, 3)
            work = f"{r.details['rounds']} sweeps, widest {r.details['widest']}, {r.details['search_nodes']} parts"
            print(f"dna, seed {seed}, {how}: {r.seconds:.3f} s, {evaluations:.0f} evaluations, {r.status}, {work}")
            longest, most, exact = max(longest, r.seconds), max(most, evaluations), exact and r.status == "optimal"
    print(f"dna: at most {most:.0f} evaluations, {'all exact' if exact else 'NOT all exact'}")
    target("dna: seconds of the longest query", longest, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="limits of 1 s, and a small circuit from dna")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS), metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--families", nargs="*", choices=list(HARD), default=list(HARD), metavar="NAME")
    parser.add_argument("--longest", type=float, metavar="SECONDS", help="the longest limit")
    parser.add_argument("--seeds", type=int, default=5, help="of queries on dna")
    parser.add_argument("--circuit", type=Path, metavar="FILE", help="where the circuit grown from dna is kept")
    given = parser.parse_args()
    warm()
    for method in METHODS:
        mm.marginal_map(latent_tree(0, variables=6, states=3), None, method=method)
    if "families" in given.parts:
        families(given.longest or (1.0 if given.quick else 10.0), given.families)
    if "dna" in given.parts:
        dna(20_000 if given.quick else 552_000, given.seeds, given.circuit)


if __name__ == "__main__":
    main()
