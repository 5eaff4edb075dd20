"""Bayesian networks and the UAI competition's instances: compile, solve, and the same queries with pgmpy.

    .venv/bin/python benchmarks/bayesnet.py networks [NAME ...]   # compile each, then 5 queries of 30%, 10% evidence
    .venv/bin/python benchmarks/bayesnet.py uai [NAME ...]        # every marginal-MAP instance
    .venv/bin/python benchmarks/bayesnet.py pgmpy [NAME ...]      # side by side with pgmpy, same queries
    .venv/bin/python benchmarks/bayesnet.py hard [NAME ...]       # link and diabetes, or others: 60 s for each query

Each model is done in a process of its own, with a limit of 8 GB and a time limit, so that its peak memory is its own
and nothing can take the machine down. Prints tables in Markdown. Needs ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
MEMORY = 8 << 30
QUERIES = 5
HARD_SECONDS = 60.0
# Beyond this many bytes for the table over the query, which pgmpy's map_query builds, it is not even started.
PGMPY_TABLE = 2 << 30
COMPARED = ("asia", "cancer", "sachs", "child", "insurance", "alarm", "hailfinder", "water", "mildew", "pigs", "munin3")


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def queries(
    network: Any, count: int = QUERIES, share: float = 0.3, known: float = 0.1, seed: int = 7
) -> list[tuple[list[str], dict[str, str | int]]]:
    """30% of the variables queried, 10% observed at values drawn from the network itself, unless told otherwise."""
    rng = np.random.default_rng(seed)
    n = len(network.variables)
    order, done = [], set()
    while len(order) < n:
        for v in range(n):
            if v not in done and all(p in done for p in network.factors[v].scope[:-1]):
                order.append(v)
                done.add(v)
    made = []
    for _ in range(count):
        row = [0] * n
        for v in order:
            scope, table = network.factors[v]
            chances = table[tuple(row[p] for p in scope[:-1])]
            row[v] = int(rng.choice(chances.size, p=chances))
        mixed = rng.permutation(n).tolist()
        asked, seen = max(1, round(share * n)), max(1, round(known * n))
        states = {v: network.variables[v].states for v in mixed[asked : asked + seen]}
        evidence = {network.names[v]: names[row[v]] if names else row[v] for v, names in states.items()}
        made.append(([network.names[v] for v in mixed[:asked]], evidence))
    return made


def compile_and_ask(name: str) -> dict[str, Any]:
    import margmap as mm
    from margmap.network.compile import predict

    warm_up(mm)
    begun = time.perf_counter()
    network = mm.load_network(DATA / "bif" / f"{name}.bif.gz")
    row: dict[str, Any] = {"variables": len(network.variables), "load": time.perf_counter() - begun}
    asked = queries(network)
    plan = predict(network)
    row |= {"width": plan.width, "entries": plan.entries}
    direct = []
    for query, evidence in asked:
        begun = time.perf_counter()
        try:
            result = mm.marginal_map(network, query, evidence, time_limit=10)
            direct.append((time.perf_counter() - begun, result.status, result.log_prob, result.method))
        except mm.LimitError as error:
            direct.append((time.perf_counter() - begun, str(error)[:60], None, ""))
    row["direct"] = direct
    row["direct_memory"] = peak()
    begun = time.perf_counter()
    try:
        circuit = mm.compile(network)
    except mm.LimitError as error:
        return row | {"refused": str(error), "seconds": time.perf_counter() - begun, "memory": peak()}
    row |= {"seconds": time.perf_counter() - begun, "edges": circuit.num_edges}
    solved = []
    mm.marginal_map(circuit, *asked[0], time_limit=0.5)  # builds what the circuit keeps for all queries
    for query, evidence in asked:
        begun = time.perf_counter()
        result = mm.marginal_map(circuit, query, evidence, time_limit=5)
        solved.append((time.perf_counter() - begun, result.status, result.log_prob, result.gap))
    for (_, status, first, _), (_, other, second, _) in zip(direct, solved, strict=True):
        if status == other == "optimal":
            assert math.isclose(first, second, abs_tol=1e-8), (name, first, second)
    return row | {"solved": solved, "memory": peak()}


def compared(network: Any) -> list[tuple[list[str], dict[str, str | int]]]:
    """Three queries of 30% and two of 65%: 24 of the 37 variables of alarm."""
    return [*queries(network, 3), *queries(network, 2, 0.65)]


def warm_up(mm: Any) -> None:
    rng = np.random.default_rng(0)
    variables = [mm.Variable(i) for i in range(12)]
    factors = [([0], [0.5, 0.5]), ([0, 1], rng.dirichlet([1, 1], 2))]
    factors += [([i - 2, i - 1, i], rng.dirichlet([1, 1], 4)) for i in range(2, 12)]
    network = mm.Network(variables, factors)
    for model in (network, mm.compile(network)):
        for method in ("auto", "frontier"):
            mm.marginal_map(model, [1, 5, 8], {3: 1}, method=method)


def uai_instance(name: str) -> dict[str, Any]:
    import margmap as mm
    from margmap.io import uai

    warm_up(mm)
    path = DATA / "uai_mmap" / f"{name}.uai.gz"
    begun = time.perf_counter()
    network = mm.load_network(path)
    query = uai.read_query(path.with_name(f"{name}.uai.query"), network)
    evidence = uai.read_evidence(path.with_name(f"{name}.uai.evid"), network)
    row = {"variables": len(network.variables), "query": len(query), "load": time.perf_counter() - begun}
    begun = time.perf_counter()
    try:
        result = mm.marginal_map(network, query, evidence)
        row |= {"status": result.status, "log_prob": result.log_prob, "gap": result.gap, "method": result.method}
        row |= {"why": result.details.get("why", "")}
    except mm.LimitError as error:
        row |= {"status": "refused", "why": str(error)}
    return row | {"seconds": time.perf_counter() - begun, "memory": peak()}


def answers(name: str, asked: Callable[[Any], Iterable[Any]], seconds: float) -> Iterator[tuple[Any, float]]:
    """The answers of margmap to queries on a network, within a limit each, and the seconds they took."""
    import margmap as mm

    warm_up(mm)
    network = mm.load_network(DATA / "bif" / f"{name}.bif.gz")
    for query, evidence in asked(network):
        begun = time.perf_counter()
        result = mm.marginal_map(network, query, evidence, time_limit=seconds)
        yield result, time.perf_counter() - begun


def ask_hard(name: str) -> list[Any]:
    """The same five queries as for all networks, with 60 s for each."""
    return [
        (result.status, result.log_prob, result.log_upper, result.gap, result.method, seconds)
        for result, seconds in answers(name, queries, HARD_SECONDS)
    ]


def ask_margmap(name: str) -> list[Any]:
    return [(result.status, seconds, result.log_prob, peak()) for result, seconds in answers(name, compared, 60)]


def ask_pgmpy(name: str) -> list[Any]:
    """The same queries; a table that cannot fit is not asked for."""
    import logging
    import warnings

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    import margmap as mm

    path = DATA / "bif" / f"{name}.bif.gz"
    network = mm.load_network(path)
    import gzip

    begun = time.perf_counter()
    model = BIFReader(string=gzip.decompress(path.read_bytes()).decode()).get_model()
    engine = VariableElimination(model)
    print(json.dumps(["loaded", time.perf_counter() - begun, None, peak()]), flush=True)
    for query, evidence in compared(network):
        size = 8 * math.prod(network.variables[network.index(v)].cardinality for v in query)
        if size > PGMPY_TABLE:
            print(json.dumps([f"not started: its table needs {bytes_of(size)}", None, None, peak()]), flush=True)
            continue
        begun = time.perf_counter()
        try:
            found = engine.map_query(variables=query, evidence=evidence, show_progress=False)
            seconds = time.perf_counter() - begun
            state = {v: found[v] for v in query}
            full = {**state, **evidence}
            log_prob = mm.marginal_map(network, [], full).log_prob
            print(json.dumps(["ok", seconds, log_prob, peak()]), flush=True)
        except (MemoryError, ValueError) as error:
            what = f"{type(error).__name__}: {str(error)[:60]}"
            print(json.dumps([what, time.perf_counter() - begun, None, peak()]), flush=True)
    return []


def bytes_of(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size < 1e15 else f"10^{math.log10(size) - math.log10(2**30):.0f} GiB"


WORK = {
    "networks": compile_and_ask,
    "uai": uai_instance,
    "margmap": ask_margmap,
    "pgmpy": ask_pgmpy,
    "hard": ask_hard,
}


def in_process(work: str, name: str, timeout: float) -> tuple[list[Any], str]:
    """The lines of JSON that a worker printed, and how it ended if not well."""
    command = [sys.executable, __file__, "--worker", work, name]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        out, why = ended.stdout, "" if ended.returncode == 0 else (ended.stderr.strip().splitlines() or ["killed"])[-1]
    except subprocess.TimeoutExpired as error:
        out, why = (error.stdout or b"").decode(), f"stopped after {timeout:.0f} s"
    return [json.loads(line) for line in out.splitlines() if line.startswith(("[", "{"))], why


def networks(names: list[str]) -> None:
    names = names or sorted(p.name[:-7] for p in (DATA / "bif").glob("*.bif.gz"))
    print(
        "| network | variables | width | table entries | edges | compile s | GB "
        "| compiled: proven, median s, max s | straight from the network: proven, median s, max s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        found, why = in_process("networks", name, 600)
        if not found:
            print(f"| {name} | {why} |", flush=True)
            continue
        row = found[0]
        edges = f"{row['edges']:,}" if "edges" in row else "refused"
        print(
            f"| {name} | {row['variables']} | {row['width']} | {row['entries']:,} | {edges} | {row['seconds']:.2f} "
            f"| {row['memory']:.2f} | {summary(row.get('solved', []))} | {summary(row['direct'])} |",
            flush=True,
        )


def summary(rows: list[Any]) -> str:
    if not rows:
        return "-"
    seconds = sorted(row[0] for row in rows)
    proven = sum(row[1] == "optimal" for row in rows)
    return f"{proven} of {len(rows)}, {seconds[len(seconds) // 2]:.3f}, {seconds[-1]:.3f}"


def uai(names: list[str]) -> None:
    names = names or sorted(p.name[:-7] for p in (DATA / "uai_mmap").glob("*.uai.gz"))
    print("| instance | variables | query | answer | seconds | GB |\n|---|---|---|---|---|---|")
    for name in names:
        found, why = in_process("uai", name, 300)
        if not found:
            print(f"| {name} | {why} |", flush=True)
            continue
        row = found[0]
        answer = row["why"].split(" predicted")[0]
        if row["status"] != "refused":
            answer = f"{row['status']}, log p = {row['log_prob']:.6f}, gap {row['gap']:.1g}, {row['method']}"
        print(
            f"| {name} | {row['variables']} | {row['query']} | {answer} | {row['seconds']:.2f} | {row['memory']:.2f} |",
            flush=True,
        )


def hard(names: list[str]) -> None:
    print("| network | query | status | state | bound | gap | method | seconds |\n|---|---|---|---|---|---|---|---|")
    for name in names or ["link", "diabetes"]:
        found, why = in_process("hard", name, QUERIES * (HARD_SECONDS + 30))
        if not found:
            print(f"| {name} | {why} |", flush=True)
            continue
        for i, (status, log_prob, log_upper, gap, method, seconds) in enumerate(found[0]):
            shown = f"{log_prob:.6f} | {log_upper:.6f} | {gap:.3g} | {method} | {seconds:.1f}"
            print(f"| {name} | {i} | {status} | {shown} |", flush=True)


def side_by_side(names: list[str]) -> None:
    try:
        import pgmpy
    except ImportError:
        print("pgmpy is not installed: pip install 'margmap[bn]' for the comparison")
        return
    names = names or list(COMPARED)
    print(f"pgmpy {pgmpy.__version__}\n")
    print("| network | queried | margmap s | GB | pgmpy s | GB | same optimum |\n|---|---|---|---|---|---|---|")
    for name in names:
        ours = in_process("margmap", name, 300)[0][0]
        theirs, why = in_process("pgmpy", name, 120)
        theirs = theirs[1:] + [[why or "no answer", None, None, None]] * (len(ours) - len(theirs) + 1)
        for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
            same = "" if b[2] is None else "yes" if math.isclose(a[2], b[2], abs_tol=1e-8) else f"no: {b[2] - a[2]:.3g}"
            seconds = f"{b[1]:.3f}" if b[0] == "ok" else b[0]
            memory = "" if b[3] is None else f"{b[3]:.2f}"
            mark = "" if a[0] == "optimal" else f" ({a[0]})"
            share = "30%" if i < 3 else "65%"
            print(f"| {name} | {share} | {a[1]:.3f}{mark} | {a[3]:.2f} | {seconds} | {memory} | {same} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("networks", "uai", "pgmpy", "hard"), default="networks")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    if sys.argv[1:2] == ["--worker"]:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        found = WORK[sys.argv[2]](sys.argv[3])
        if found:
            print(json.dumps(found))
        return
    given = parser.parse_args()
    if not DATA.is_dir():
        print(f"no shared data at {DATA}: nothing to do")
        return
    {"networks": networks, "uai": uai, "pgmpy": side_by_side, "hard": hard}[given.what](given.names)


if __name__ == "__main__":
    main()
