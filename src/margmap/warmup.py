"""What is compiled ahead: small real questions, one for each of the paths that questions take through the package.

``margmap warmup`` asks all of them, on all cores; the process behind the first answer (:mod:`.foundation.background`)
asks those that most users come by. Whatever machine code they need is in the cache afterwards.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from margmap import demo
from margmap.circuit import Variable
from margmap.foundation import background
from margmap.foundation.jit import all_kept, available, compiled_kernels
from margmap.inference import queries
from margmap.network.network import Network
from margmap.solve.approximate import APPROXIMATIONS, approximate
from margmap.solve.marginal_map import marginal_map, mpe
from margmap.solve.methods import methods_for


def _circuits() -> None:
    """Marginal MAP as most ask for it."""
    digits = demo.load_digits()
    seen = demo.digit_evidence(demo.held_out()[0].pixels)
    marginal_map(digits, demo.digit_query()[:4], seen, k=3)
    marginal_map(demo.load_model(), demo.QUERY, demo.EVIDENCE)
    mpe(demo.load_model())


def _queries() -> None:
    """Likelihoods, marginals and samples."""
    clinic = demo.load_model()
    queries.log_marginal(clinic, demo.EVIDENCE)
    queries.posteriors(clinic, demo.EVIDENCE)
    rows = queries.sample(demo.load_digits(), 3, seed=1)
    queries.log_likelihood(demo.load_digits(), rows)


def _networks() -> None:
    """Networks that are eliminated, and networks that are compiled."""
    network = _grid(3)
    names = list(network.names)
    marginal_map(network, names[:2], {names[-1]: 0})
    marginal_map(network, names[4:6], {names[0]: 1}, method="frontier")
    marginal_map(network, names[4:6], method="elimination")


def _hard_networks() -> None:
    """Networks too wide to compile, with the search that needs nothing else installed."""
    network = _grid(4)
    names = list(network.names)
    marginal_map(network, names[::2], {names[5]: 1}, method="andor", time_limit=5.0)


def _methods() -> None:
    """Every other method for circuits."""
    for method in methods_for("circuit"):
        marginal_map(demo.load_model(), demo.QUERY, demo.EVIDENCE, method=method.name)
        if method.several:
            marginal_map(demo.load_model(), demo.QUERY, demo.EVIDENCE, method=method.name, k=3)
    for approximation in APPROXIMATIONS:
        approximate(demo.load_model(), demo.QUERY, demo.EVIDENCE, method=approximation)


def _certificates() -> None:
    """Proofs and their verification."""
    from margmap.certificate.certify import certify
    from margmap.certificate.verify import verify

    clinic = demo.load_model()
    verify(clinic, certify(clinic, demo.QUERY, demo.EVIDENCE))


def _learning() -> None:
    """Circuits from data."""
    from margmap import learn

    rows = queries.sample(demo.load_digits(), 200, seed=1)[:, :8]
    learn.chow_liu(rows)
    learn.strudel(rows[:150], rows[150:], iterations=3)
    learn.mixture(rows[:150], rows[150:], components=2, iterations=3)


def _constraints() -> None:
    """States that satisfy constraints."""
    for k in (1, 3):
        marginal_map(demo.load_model(), demo.QUERY, demo.EVIDENCE, constraints=["illness in cold, allergy"], k=k)


def _asking() -> None:
    """Evidence that is not one value, sensitivity, explanations, and many questions in a row."""
    from margmap.solve.explain import explain
    from margmap.solve.sensitivity import sensitivity
    from margmap.solve.session import Session

    clinic = demo.load_model()
    marginal_map(clinic, demo.QUERY, {**demo.EVIDENCE, "fever": {"low", "high"}})
    sensitivity(clinic, demo.QUERY, demo.EVIDENCE)
    explain(clinic, demo.EVIDENCE, [*demo.QUERY])
    _large()
    digits, seen = Session(demo.load_digits()), demo.digit_evidence(demo.held_out()[0].pixels)
    for name in [*seen][:2]:
        digits.marginal_map(demo.digit_query()[:4], {**seen, name: 1 - int(seen[name])})


def _large() -> None:
    """Circuits in pieces, and rows of a batch together, on circuits that are small enough to be quick."""
    from margmap.inference import pieces
    from margmap.solve.rows_together import RowsTogether

    before, pieces.LEAST_EDGES = pieces.LEAST_EDGES, 0
    try:
        mpe(demo.load_digits())
    finally:
        pieces.LEAST_EDGES = before
    clinic = demo.load_model()
    codes, reals = clinic.evidence_codes(demo.EVIDENCE)
    columns, together = clinic.query_columns(demo.QUERY, ()), RowsTogether(clinic)
    together.expect([codes])
    together.reduce(columns, codes, reals)
    codes = codes.copy()
    codes[columns] = 0
    together.value_pair(codes, reals)


def _tables() -> None:
    """Tables with holes: latent trees, mixtures of trees, and filling the holes."""
    from margmap import learn
    from margmap.learn.imputation import impute

    rows = queries.sample(demo.load_digits(), 200, seed=1)[:, :8].astype(float)
    rows[::5, 2] = np.nan
    for learned in (
        learn.hclt(rows[:150], rows[150:], latent=4, epochs=2),
        learn.trees(rows[:150], rows[150:], k=2),
    ):
        impute(learned, rows[:20])


def _grid(side: int) -> Network:
    """A Bayesian network whose variables form a grid, each with those above it and to its left as parents."""
    rng = np.random.default_rng(1)
    variables = [Variable(f"x{i}", 2) for i in range(side * side)]
    factors = []
    for i in range(side * side):
        parents = [i - 1] * (i % side > 0) + [i - side] * (i >= side)
        first = rng.random([2] * len(parents))
        factors.append(((*parents, i), np.stack([first, 1 - first], axis=-1)))
    return Network(variables, factors)


#: The paths by name. The longest is first, then those that have kernels of their own: the others have kernels of the
#: first as well, and would wait for it while it compiles them.
PATHS: dict[str, Callable[[], None]] = {
    "circuits": _circuits,
    "learning": _learning,
    "hard networks": _hard_networks,
    "tables": _tables,
    "certificates": _certificates,
    "constraints": _constraints,
    "asking": _asking,
    "methods": _methods,
    "networks": _networks,
    "queries": _queries,
}

#: What is compiled behind the first answer.
DEFAULT = ("circuits", "networks", "queries")


def behind() -> None:
    """Compile the default paths; leave the mark if the disk took it. Who starts the process gives it the lock."""
    if background.is_warm():
        return
    for name in DEFAULT:
        with suppress(Exception):  # what goes wrong here goes wrong where somebody sees it
            PATHS[name]()
    if all_kept():
        background.mark_warm()


def ahead(jobs: int, on_done: Callable[[str], Any] = lambda _name: None) -> dict[str, Any]:
    """Compile all paths in so many processes; how many kernels, in how many seconds, what failed, where they are."""
    if not available():
        return {"kernels": 0, "seconds": 0.0, "failed": [], "numba": False}
    begun = time.monotonic()
    kernels, failed = 0, []
    for name, number in _in_processes([*PATHS], jobs):
        kernels += number or 0
        if number is None:
            failed.append(name)
        on_done(name)
    if not failed:
        background.mark_warm()
    return {"kernels": kernels, "seconds": time.monotonic() - begun, "failed": failed, "numba": True}


def _in_processes(names: list[str], jobs: int) -> Iterator[tuple[str, int | None]]:
    """Each path in a process of its own; its name and how many kernels it compiled, or None, as they end."""
    code = "import sys, margmap.warmup; margmap.warmup.compile_path(sys.argv[1])"
    environment = {**os.environ, "MARGMAP_TIER": "compile", "MARGMAP_BACKGROUND": "0", "NUMBA_NUM_THREADS": "1"}
    running: list[tuple[str, subprocess.Popen[bytes], Any]] = []
    try:
        while names or running:
            while names and len(running) < jobs:
                said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
                command = [sys.executable, "-c", code, names[0]]
                process = subprocess.Popen(
                    command, cwd=Path(__file__).parents[1], env=environment, stdin=subprocess.DEVNULL, stdout=said
                )
                running.append((names.pop(0), process, said))
            time.sleep(0.05)
            for one in [one for one in running if one[1].poll() is not None]:
                running.remove(one)
                name, process, said = one
                with said:
                    said.seek(0)
                    lines = said.read().split()
                yield name, int(lines[-1]) if process.returncode == 0 and lines else None
    finally:
        for _, process, said in running:
            process.kill()
            process.wait()
            said.close()


def compile_path(name: str) -> None:
    """Go one path and print how many kernels were compiled for it; a failure if their code could not be kept."""
    gc.disable()  # numba makes millions of small objects that live as long as this process
    PATHS[name]()
    print(compiled_kernels())
    if not all_kept():
        raise SystemExit(1)
