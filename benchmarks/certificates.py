"""Certificates of the shared instances: what they cost beside the solver, how large they are.

    .venv/bin/python benchmarks/certificates.py

Kernels are warm. "solve" is one mm.marginal_map, "certify" the writer alone (the answer is known), "verify" the checker
alone (circuit and certificate are loaded). All times are CPU time, the best of a few runs. Needs ../shared/data.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import margmap as mm
from margmap.io.formats import load_circuit

DATA = Path(__file__).parent.parent.parent / "shared" / "data"

T = TypeVar("T")


def main() -> None:
    paths = sorted((DATA / "mmap_instances").glob("*.json"))
    if not paths:
        print(f"{DATA / 'mmap_instances'} is not there: nothing to measure")
        return
    warm_up()
    print(
        f"{'instance':<14}{'query':>6}{'solve ms':>10}{'certify ms':>12}{'verify ms':>11}{'verify/solve':>14}"
        f"{'vectors':>9}{'numbers':>9}{'bytes':>9}{'gap':>10}"
    )
    solved, certified, verified, sizes, numbers, vectors, gaps = [], [], [], [], [], [], []
    for path in paths:
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
            sizes.append(size)
            numbers.append(max(1, certificate.numbers))
            vectors.append(certificate.vectors)
            gaps.append(verdict.gap)
    print(f"{len(solved)} of {len(solved)} certificates accepted, all optimal")
    for what, seconds in (("solve", solved), ("certify", certified), ("verify", verified)):
        print(
            f"{what:<10}total {sum(seconds):7.2f} s, median {statistics.median(seconds) * 1e3:7.1f} ms, "
            f"largest {max(seconds) * 1e3:7.1f} ms"
        )
    each = statistics.median(size / number for size, number in zip(sizes, numbers, strict=True))
    print(f"verify over solve: {sum(verified) / sum(solved):.1f} in total; bytes a number: {each:.1f}")
    print(
        f"{min(vectors)} to {max(vectors)} vectors, {min(sizes) / 1e3:.1f} to {max(sizes) / 1e3:.0f} kB, "
        f"gaps of at most {max(gaps):.1e} nats"
    )


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
