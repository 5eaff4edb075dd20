"""What is compiled ahead: small real questions, one for each of the paths that questions take through the package.

``margmap warmup`` asks all of them, on all cores; the process behind the first answer (:mod:`.foundation.background`)
asks those that most users come by. Whatever machine code they need is in the cache afterwards.
"""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, as_completed, wait
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from margmap import demo
from margmap.circuit import Variable
from margmap.distribute.executors import open_executor
from margmap.foundation import background
from margmap.foundation.jit import all_kept, available, compiled_kernels, forced, listed_calls
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

    clinic = demo.load_model()
    marginal_map(clinic, demo.QUERY, {**demo.EVIDENCE, "fever": {"low", "high"}})
    sensitivity(clinic, demo.QUERY, demo.EVIDENCE)
    explain(clinic, demo.EVIDENCE, [*demo.QUERY])
    _large()
    _in_a_row()


def _in_a_row() -> None:
    """Sessions on a circuit of dense blocks, and on a sparse one that counts as one with many equal nodes."""
    from margmap.solve import session

    digits, seen = session.Session(demo.load_digits()), demo.digit_evidence(demo.held_out()[0].pixels)
    for name in [*seen][:2]:
        digits.marginal_map(demo.digit_query()[:4], {**seen, name: 1 - int(seen[name])})
    before, session.SMALLER = session.SMALLER, 1.0
    try:
        clinic = session.Session(demo.load_model())
        for age in ("senior", "adult", "child", "senior"):  # from the third on with the vectors of those before
            clinic.marginal_map(demo.QUERY, {**demo.EVIDENCE, "age": age})
    finally:
        session.SMALLER = before


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
    for _ in range(3):  # alone, then as one of many, of which the second has less to do
        marginal_map(clinic.remembering(together), demo.QUERY, demo.EVIDENCE)
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


#: The paths by name.
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


def ahead(jobs: int, on_done: Callable[[int, str, int], Any] = lambda _more, _name, _total: None) -> dict[str, Any]:
    """Compile all paths in so many processes; how many kernels, in how many seconds, what failed, where they are.

    The paths share most of their kernels, so that processes which each went a path would wait for one another. The
    paths are interpreted first, which takes seconds and tells which kernels they call with which types. Each kernel is
    then compiled by whichever process is free (:func:`_apart`). In the end the paths are gone once more with machine
    code, which compiles what interpreting did not come by. ``on_done`` is told after each of these steps that one more
    is done, its name, and how many there are.
    """
    if not available():
        return {"kernels": 0, "seconds": 0.0, "failed": [], "numba": False}
    begun = time.monotonic()
    wanted: dict[str, dict[str, bytes]] = {}
    parts: dict[str, dict[str, int]] = {}
    kernels, failed = 0, set()
    with open_executor(jobs) as workers:
        for _, calls in _as_done(workers, calls_of, [(name,) for name in PATHS]):
            for kernel, types, of_kernel, packed in calls or ():
                wanted.setdefault(kernel, {})[types] = packed
                parts[kernel] = of_kernel
        total = len(wanted) + len(PATHS)
        for name, number in _apart(workers, jobs, {name: [*kinds.values()] for name, kinds in wanted.items()}, parts):
            kernels += number or 0  # of what fails alone a path tells whether it matters
            on_done(1, name.rpartition(".")[2], total)
        for name, number in _as_done(workers, compile_path, [(name,) for name in PATHS]):
            kernels += number or 0
            if number is None:
                failed.add(name)
            on_done(1, name, total)
    if not failed:
        background.mark_warm()
    return {"kernels": kernels, "seconds": time.monotonic() - begun, "failed": sorted(failed), "numba": True}


def _as_done(workers: Executor, work: Callable[..., Any], tasks: list[Any]) -> Iterator[tuple[str, Any]]:
    """The first argument of each task and what came of it, None if it failed, in the order in which they end."""
    under_way = {workers.submit(work, *task): str(task[0]) for task in tasks}
    for ended in as_completed(under_way):
        yield under_way[ended], None if ended.exception() else ended.result()


def _apart(
    workers: Executor, jobs: int, kinds: dict[str, list[bytes]], parts: dict[str, dict[str, int]]
) -> Iterator[tuple[str, int | None]]:
    """Compile kernels for all their types, ``jobs`` at a time; the name of each, and how many that took, or None.

    To compile a kernel is to compile all that it calls. Two processes that come to the same one would wait for each
    other, or both compile it; so the next is always one that has little in common with those under way which is not
    compiled yet, and of such the largest.
    """
    left = dict(sorted(kinds.items(), key=lambda one: -len(one[1]) * sum(parts[one[0]].values())))
    under_way: dict[Future[int], str] = {}
    made: set[str] = set()
    while left or under_way:
        while left and len(under_way) < jobs:
            others = set().union(*(parts[name] for name in under_way.values())) - made
            name = min(left, key=lambda name: sum(parts[name][part] for part in others & parts[name].keys()))
            under_way[workers.submit(compile_kernel, name, left.pop(name))] = name
        for ended in wait(under_way, return_when=FIRST_COMPLETED).done:
            name = under_way.pop(ended)
            made.update(parts[name])
            yield name, None if ended.exception() else ended.result()


def calls_of(name: str) -> list[tuple[str, str, dict[str, int], bytes]]:
    """The kernels that a path calls: name, types as text, parts, and types for :func:`compile_kernel`."""
    with listed_calls() as listed, suppress(Exception):  # what goes wrong is seen when the path is gone compiled
        PATHS[name]()
    found = []
    for kernel, types in listed:
        with suppress(pickle.PicklingError, TypeError, AttributeError):
            found.append((kernel.place, str(types), kernel.parts(), pickle.dumps(types)))
    return found


def compile_kernel(name: str, kinds: list[bytes]) -> int:
    """Compile a kernel, given by its module in this package and its name, for these types; how many that took."""
    gc.disable()  # numba makes millions of small objects that live as long as this process
    before = compiled_kernels()
    module, _, function = name.rpartition(".")
    kernel = getattr(import_module(f"margmap.{module}"), function)
    for packed in kinds:
        kernel.dispatcher.compile(pickle.loads(packed))
    return compiled_kernels() - before


def compile_path(name: str) -> int:
    """Go one path compiled; how many kernels were compiled for it. An error if their code could not be kept."""
    gc.disable()
    before = compiled_kernels()
    with forced("compile"):
        PATHS[name]()
    if not all_kept():
        raise OSError("the machine code could not be written")
    return compiled_kernels() - before
