"""Certificates of the shared instances: what they cost beside the solver, how large they are, and what is refused.

    .venv/bin/python benchmarks/certificates.py
    .venv/bin/python benchmarks/certificates.py --corruptions 1000

Kernels are warm. "solve" is one mm.marginal_map, "certify" the writer alone (the answer is known), "verify" the checker
alone (circuit and certificate are loaded). All times are CPU time, the best of a few runs. Needs ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

import margmap as mm
from margmap.io.formats import load_circuit

DATA = Path(__file__).parent.parent.parent / "shared" / "data"

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corruptions", type=int, default=0, metavar="N", help="also try so many false certificates")
    asked = parser.parse_args().corruptions
    paths = sorted((DATA / "mmap_instances").glob("*.json"))
    if not paths:
        print(f"{DATA / 'mmap_instances'} is not there: nothing to measure")
        return
    warm_up()
    print(
        f"{'instance':<14}{'query':>6}{'solve ms':>10}{'certify ms':>12}{'verify ms':>11}{'verify/solve':>14}"
        f"{'vectors':>9}{'numbers':>9}{'bytes':>9}{'gap':>10}"
    )
    rng = np.random.default_rng(0)
    refused: Counter[str] = Counter()
    solved, certified, verified, sizes = [], [], [], []
    for done, path in enumerate(paths):
        data = json.loads(path.read_text())
        circuit = load_circuit(DATA / data["circuit"])
        for number, instance in enumerate(data["instances"]):
            evidence = {int(name): value for name, value in instance["evidence"].items()}
            query = instance["query"]
            solve, result = best_of(2, partial(mm.marginal_map, circuit, query, evidence))
            certify, certificate = best_of(1, partial(mm.certify, circuit, query, evidence, result=result))
            verify, verdict = best_of(2, partial(mm.verify, circuit, certificate, query=query, evidence=evidence))
            assert verdict.optimal, f"{path.stem} {number}: {verdict.reason}"
            assert verdict.log_prob_low - 1e-9 <= instance["log_optimum"] <= verdict.log_upper + 1e-9
            size = size_of(certificate)
            print(
                f"{path.stem + ' ' + str(number):<14}{len(query):>6}{solve * 1e3:>10.1f}{certify * 1e3:>12.1f}"
                f"{verify * 1e3:>11.1f}{verify / solve:>14.1f}{certificate.vectors:>9}{certificate.numbers:>9}{size:>9}"
                f"{verdict.gap:>10.1e}",
                flush=True,
            )
            solved.append(solve)
            certified.append(certify)
            verified.append(verify)
            sizes.append(size / max(1, certificate.numbers))
            left = 4 * (len(paths) - done) - number
            refused += try_corruptions(rng, circuit, certificate, -(-(asked - refused.total()) // left))
    print(f"{len(solved)} of {len(solved)} certificates accepted, all optimal")
    for what, seconds in (("solve", solved), ("certify", certified), ("verify", verified)):
        print(
            f"{what:<10}total {sum(seconds):7.2f} s, median {statistics.median(seconds) * 1e3:7.1f} ms, "
            f"largest {max(seconds) * 1e3:7.1f} ms"
        )
    print(
        f"verify over solve: {sum(verified) / sum(solved):.1f} in total; bytes a number: {statistics.median(sizes):.1f}"
    )
    if asked:
        print(f"{refused.total()} corruptions, all refused: {dict(refused)}")


def try_corruptions(
    rng: np.random.Generator, circuit: mm.Circuit, certificate: mm.Certificate, times: int
) -> Counter[str]:
    """Corrupt in every way in turn; how often in each."""
    sys.path.append(str(Path(__file__).parent.parent / "tests" / "certificate"))
    from corruptions import CORRUPTIONS

    counted: Counter[str] = Counter()
    turn = 0
    while counted.total() < times:
        corrupt = CORRUPTIONS[turn % len(CORRUPTIONS)]
        turn += 1
        corrupted = corrupt(rng, circuit, certificate)
        if corrupted is not None:
            verdict = mm.verify(*corrupted)
            assert not verdict.accepted, f"{corrupt.__name__} was accepted"
            counted[corrupt.__name__] += 1
    return counted


def best_of(times: int, work: Callable[[], T]) -> tuple[float, T]:
    seconds = []
    for _ in range(times):
        begun = time.process_time()
        found = work()
        seconds.append(time.process_time() - begun)
    return min(seconds), found


def size_of(certificate: mm.Certificate) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proof.json"
        certificate.save(path)
        return path.stat().st_size


def warm_up() -> None:
    """Compile, or load, every kernel before the clock runs."""
    x, y = mm.Variable("x"), mm.Variable("y")
    circuit = mm.circuit_of(0.5 * x[0] * y[0] + 0.3 * x[1] * y[0] + 0.2 * mm.bernoulli(x, 0.4) * y[1], [x, y])
    mm.verify(circuit, mm.certify(circuit, ["x", "y"]))
    mm.log_marginal(circuit, {"x": 1})


if __name__ == "__main__":
    main()
