"""``margmap solve``: the best state and its proof, for one question or, with ``--batch``, for a file of them."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from margmap.cli.base import STOPPED, interrupted
from margmap.cli.inputs import (
    given,
    is_network,
    parse_bytes,
    parse_constraints,
    parse_options,
    question,
    require_circuit,
)
from margmap.cli.options import Dask, Evidence, Format, Index, Instance, Json, MaxEdges, Model, Query, flag, option
from margmap.cli.output import (
    complain,
    filled_bar,
    print_json,
    print_state,
    print_table,
    printable,
    report,
    spinner,
    telling,
)
from margmap.errors import LimitError, MargmapError, QueryError, UnnormalisedWarning
from margmap.foundation.wording import counted, listed, many
from margmap.solve.methods import AUTO, METHODS, MethodName

if TYPE_CHECKING:
    from margmap.circuit import Circuit, Name, Value
    from margmap.cli.batch import Summary
    from margmap.foundation.progress import Progress
    from margmap.network.network import Network
    from margmap.solve.result import Result

_BATCH = "Answer each row of evidence: a header of variables or a column for each; empty, nan or -1: missing."
_HEADER = "Whether --batch's first line has names, if unclear."
_ID = "The column of --batch's rows that says which row it is; it is copied to the answers."
_CARRY = "Columns of --batch's rows to copy to the answers; or: all."
_THREADS = "Threads that pass over a circuit of half a million edges or more (without: MARGMAP_THREADS, or one a core)."
_JOBS = "Processes: for --batch (without: one a core), or to share one hard query out over."
_MEMORY = "Bytes that it may grow by, such as 500M (K, M or G)."
_METHOD = f"The solver to use: {AUTO}, {', '.join(METHODS)}."
_CONSTRAINT = "What the state must satisfy, such as 'at most 2 of pump=broken, valve=stuck'; may be repeated."
_DIFFER = "With --top: each state differs from all before in so many variables or more."
_OPTION = "An option of the method, such as heuristic=Pruned."
_TRACE = "Write one row for each iteration of the method there."
# How a search ends that has come to its end.
ENDED = ("optimal", "infeasible")
# The methods that tell after each iteration how far they are.
_ITERATIVE = [name for name, method in METHODS.items() if "on_iteration" in method.options]
_NOT_WITH_BATCH = (
    "--batch has its evidence in rows and its answers in a file: it goes with --query, --method, --time-limit, "
    "--gap, --memory-limit, --constraint and --option"
)
_CERTIFICATE = (
    "wrote {certificate}: {vectors}, {certificate_bytes} bytes, gap {certificate_gap:.2g} nats; "
    "check it with `margmap verify`"
)


def solve(
    model: Model,
    query: Query = None,
    evidence: Evidence = None,
    method: Annotated[str, option("M", _METHOD, "--method", "-m")] = AUTO,
    time_limit: Annotated[float | None, option("S", "Stop after this many seconds.")] = None,
    gap: Annotated[float | None, option("G", "Stop once the bounds are this close, in nats.")] = None,
    top: Annotated[int | None, option("K", "Find the K best states instead of the best one.", min=1)] = None,
    constraint: Annotated[list[str] | None, option("RULE", _CONSTRAINT, "--constraint", "-c")] = None,
    differ_by: Annotated[int | None, option("N", _DIFFER, min=1)] = None,
    memory_limit: Annotated[str | None, option("N", _MEMORY)] = None,
    instance: Instance = None,
    index: Index = None,
    method_options: Annotated[list[str] | None, option("NAME=VALUE", _OPTION, "--option")] = None,
    trace: Annotated[Path | None, option("FILE.csv", _TRACE)] = None,
    evid: Annotated[Path | None, option("FILE.evid", "Evidence in the UAI competitions' format.")] = None,
    query_file: Annotated[Path | None, option("FILE.query", "Query in the same format.")] = None,
    uai_files: Annotated[
        bool, flag("--uai-files", "Both from files beside X.uai: X.uai.evid and X.uai.query (or .map).")
    ] = False,
    batch: Annotated[Path | None, option("ROWS.csv", _BATCH)] = None,
    output: Annotated[
        Path | None, option("FILE", "Where the answers of --batch go: .csv or .jsonl.", "--output", "-o")
    ] = None,
    header: Annotated[bool | None, flag("--header/--no-header", _HEADER)] = None,
    id: Annotated[str | None, option("COLUMN", _ID)] = None,
    carry: Annotated[list[str] | None, option("C,...", _CARRY)] = None,
    truth: Annotated[
        bool, flag("--truth", "Compare the answers of --batch with the rows' columns of the query.")
    ] = False,
    jobs: Annotated[int | None, option("N", _JOBS, "--jobs", "-j", min=1)] = None,
    threads: Annotated[int | None, option("N", _THREADS, min=1)] = None,
    dask: Dask = None,
    certificate: Annotated[Path | None, option("FILE", "Write a proof that `margmap verify` can check there.")] = None,
    max_edges: MaxEdges = None,
    format: Format = None,
    json: Json = False,
    verbose: Annotated[bool, flag("--verbose -v", "Say on stderr what the solver did.")] = False,
) -> None:
    """Find the most likely state of the query variables given the evidence, all others summed out, and prove it."""
    asked, observed = question(query, evidence, instance, index)
    in_files = evid is not None or query_file is not None or uai_files
    if batch is None and (output is not None or header is not None or id is not None or carry or truth):
        raise typer.BadParameter("--output, --header, --id, --carry and --truth are for --batch")
    if truth and asked is None:
        raise typer.BadParameter("--truth compares the columns of a query: give --query too")
    if batch is not None and (evidence or top is not None or verbose or instance or trace or in_files):
        raise typer.BadParameter(_NOT_WITH_BATCH)
    if batch is not None and output is None:
        raise typer.BadParameter("--batch needs --output FILE for the answers")
    rules = parse_constraints(constraint, instance, index)
    if differ_by is not None and top is None:
        raise typer.BadParameter("--differ-by is about several states: give --top too")
    if certificate is not None and (batch is not None or (top or 1) > 1):
        raise typer.BadParameter("--certificate proves one best state: it does not go with --batch and --top")
    if certificate is not None and rules is not None:
        raise typer.BadParameter("--certificate does not cover constraints: leave one of the two out")
    if certificate is not None:
        require_circuit(model, format)
    options = _options_of(method, method_options or [], trace)
    options |= given(gap=gap, k=top, memory_limit=parse_bytes("--memory-limit", memory_limit))
    options |= given(constraints=rules, differ_by=differ_by, threads=threads)
    if in_files and not is_network(model, format):
        raise typer.BadParameter("--evid, --query-file and --uai-files are for networks (.uai, .bif)")
    # With --batch the time limit is that of each row.
    loaded, load_seconds = _load_within(None if batch is not None else time_limit, model, format)
    from margmap.network.network import Network

    if isinstance(loaded, Network):
        options |= given(max_edges=max_edges)
        files = _beside(model, evid, query_file) if uai_files else (evid, query_file)
        asked, observed = _from_files(loaded, *files, asked, observed)
    if batch is not None and output is not None and loaded is not None:
        from margmap.cli.batch import Job, solve_batch
        from margmap.cli.batch_rows import Extras
        from margmap.cli.table_options import parse_columns

        job = Job(model, batch, asked, cast(MethodName, method), time_limit, header, options)
        extras = Extras(id, parse_columns("--carry", carry) or (), truth)
        _report_batch(solve_batch(loaded, job, output, jobs, dask, extras), output, json)
        return
    seconds = None if time_limit is None else max(time_limit - load_seconds, 1e-9)
    result = _solve_one(loaded, (asked, observed, method, seconds), options, jobs, dask)
    if trace is not None:
        from margmap.io.files import write_lines
        from margmap.plot import trace_lines

        write_lines(trace, trace_lines(result.trace))
    proven, failure = ({}, None) if certificate is None else _certify(certificate, loaded, observed, result, gap)
    if json:
        ranked = {} if top is None else {"top": [one._asdict() for one in result.top]}
        print_json({**result.to_dict(), **ranked, **proven, "load_seconds": load_seconds})
    else:
        if asked is None:
            print("No query given: the most probable explanation (MPE), all variables that are not observed.")
        _print_result(result, top)
        print(f"method {result.method}, {result.seconds:.3g} s, and {load_seconds:.3g} s to load the model")
        if proven.get("certificate") is not None:
            vectors = many(proven["certificate_vectors"], "vector")
            path = printable(proven["certificate"])
            print(_CERTIFICATE.format_map(proven | {"certificate": path, "vectors": vectors}))
    if verbose:
        _print_details(result)
    if failure is not None and result.status == "optimal":
        raise failure
    if failure is not None:
        complain(str(failure))
    if result.status not in ENDED:
        raise typer.Exit(STOPPED)


def _options_of(method: str, texts: list[str], trace: Path | None) -> dict[str, Any]:
    """The options of a method, refused before the model is read if they cannot be right."""
    if trace is not None and method not in _ITERATIVE:
        able = ", ".join(_ITERATIVE)
        raise QueryError(f"--trace: method {method!r} has no iterations to write down; choose --method {able}")
    with spinner("Starting ..."):
        return parse_options(texts, method)


def _load_within(time_limit: float | None, path: Path, format: str | None) -> tuple[Circuit | Network | None, float]:
    """The model and the seconds it took to read, Python's own imports not counted; None if there was no time for it."""
    with telling(UnnormalisedWarning), spinner(f"Loading {path} ..."):
        from margmap.foundation.limits import Limits, Stopped
        from margmap.io import formats
        from margmap.solve.marginal_map import GRACE
        from margmap.solve.question import check_limits

        if is_network(path, format):
            import margmap.solve.network_map  # noqa: F401 - not while the clock runs

        check_limits(time_limit)
        begun = time.perf_counter()
        model: Circuit | Network | None = None
        if time_limit is None:
            model = formats.load_model(path, format)
        else:
            limits = Limits(time_limit + GRACE)
            with suppress(Stopped), limits.not_counting_compilation():
                model = limits.run(lambda _stop: formats.load_model(path, format), wait=False)
        return model, time.perf_counter() - begun


def _beside(model: Path, evid: Path | None, query_file: Path | None) -> tuple[Path, Path]:
    """The files of evidence and query beside that of a network, unless others are named."""
    from margmap.io.uai import files_beside

    found = files_beside(model)
    return evid or found[0], query_file or found[1]


def _from_files(
    network: Network,
    evid: Path | None,
    query_file: Path | None,
    asked: list[Name] | None,
    observed: dict[Name, Value],
) -> tuple[list[Name] | None, dict[Name, Value]]:
    """Query and evidence, from the competition's files where those are named."""
    from margmap.io import uai

    if (evid is not None and observed) or (query_file is not None and asked is not None):
        raise typer.BadParameter("the query, or the evidence, is given twice: as an option and as a file")
    if evid is not None:
        observed = network.labelled(uai.read_evidence(evid, network))
    if query_file is not None:
        asked = [network.names[v] for v in uai.read_query(query_file, network)]
    return asked, observed


def _solve_one(
    model: Circuit | Network | None, asked: tuple[Any, ...], options: dict[str, Any], jobs: int | None, dask: str | None
) -> Result:
    """The answer to ``asked``: query, evidence, method, seconds; with a line of progress on a terminal."""
    with spinner("Solving ...") as show, ExitStack() as workers:
        from margmap.solve.marginal_map import marginal_map
        from margmap.solve.result import without_state

        if model is None:
            return without_state("time_limit", asked[2], 0.0)
        live = _Live(shutil.get_terminal_size().columns)
        options["on_progress"] = lambda now: show(*live.lines(now))
        if dask is not None:
            from margmap.distribute.executors import open_executor

            options["executor"] = workers.enter_context(open_executor(jobs, dask))
        elif jobs is not None:
            options["jobs"] = jobs
        result = marginal_map(model, *asked, **options)
    if result.state is None and result.status == "interrupted":
        interrupted()
    return result


class _Live:
    """What a terminal shows of a question that takes long: both bounds closing, the time, and the best state so far."""

    def __init__(self, width: int) -> None:
        self.width, self.first_gap = width, math.nan

    def lines(self, now: Progress) -> list[str]:
        """Three lines that fit the terminal."""
        from margmap.foundation.notebook import bounds_text, closed_part

        if math.isnan(self.first_gap) and math.isfinite(now.gap):
            self.first_gap = now.gap
        part = closed_part(now, self.first_gap)
        best = "no state yet" if now.state is None else f"best so far: {listed(now.state, 40)}"
        closing = f"[{filled_bar(part, 20, '=.')}] {bounds_text(now)}"
        lines = [f"Solving ... {now.seconds:.1f} s, {now.doing}", f"  {closing}", f"  {best}"]
        room = max(20, self.width - 4)
        return [line if len(line) <= room else f"{line[: room - 3]}..." for line in lines]


def _certify(
    path: Path, circuit: Circuit | Network | None, evidence: Mapping[Name, Value], result: Result, gap: float | None
) -> tuple[dict[str, Any], MargmapError | None]:
    """Write the proof of an answer; what was written, and what went wrong: the answer is printed all the same."""
    with spinner("Writing the certificate ..."):
        from margmap.certificate.certify import certify

        begun = time.perf_counter()
        try:
            if result.status != "optimal" or circuit is None:
                raise LimitError("no certificate: the solver stopped before its own proof was complete")
            found = certify(circuit, None, evidence, result=result, **given(gap=gap))
            found.save(path)
        except MargmapError as error:
            return {"certificate": None}, error
    return {
        "certificate": str(path),
        "certificate_bytes": path.stat().st_size,
        "certificate_vectors": found.vectors,
        "certificate_gap": found.gap,
        "certificate_seconds": time.perf_counter() - begun,
    }, None


def _print_result(result: Result, top: int | None) -> None:
    """The best state, what is proven of it, and the states after it, each by what it has different."""
    if result.state is None:
        print(result.no_state)
        return
    print_state(result.state, result.log_prob, result.log_conditional)
    print(result.proof)
    if top is None:
        return
    best, rows = result.state, []
    for rank, one in enumerate(result.top, 1):
        changed = {name: value for name, value in one.state.items() if value != best[name]}
        rows.append((rank, f"{one.log_prob:.6f}", f"{math.exp(one.log_conditional):.6g}", listed(changed, of="in all")))
    print_table(("rank", "log p(q, e)", "p(q | e)", "different from the best in"), rows)
    if result.status != "optimal":
        print("there may be better states than the last of these")
    elif len(rows) < top:
        barred = "are not allowed, or " if "constraints" in result.details else ""
        print(f"there are no others: all other states {barred}have probability 0")


def _print_details(result: Result) -> None:
    """On stderr: why this method was chosen, and what the solver has to tell."""
    if "why" in result.details:
        print(f"chose {result.method}: {result.details['why']}", file=sys.stderr)
    for key, value in result.details.items():
        if key not in ("trace", "why", "bounds"):
            print(f"{key}: {printable(str(value))}", file=sys.stderr)


def _report_batch(summary: Summary, output: Path, json: bool) -> None:
    text = f"wrote {summary.rows} answers to {output}: {counted(summary.ended) or 'no rows'}"
    if summary.interrupted:
        text = f"stopped after {sum(summary.ended.values())} of {summary.rows} rows: start it again to go on"
    lines, facts = [text], {name: value for name, value in summary._asdict().items() if value is not None}
    if summary.truth is not None and summary.truth["compared"]:
        each = listed({name: f"{x:.1%}" for name, x in summary.truth["by_variable"].items() if x is not None})
        share, number = summary.truth["correct"], summary.truth["compared"]
        lines.append(f"as in the rows: {share:.1%} of {number} answers in all variables; each: {each}")
    report(json, {"output": str(output), **facts}, *lines)
    if failed := summary.ended.get("failed"):
        print(f"{failed} rows failed: the column 'error' says why", file=sys.stderr)
    if summary.interrupted or any(status not in ENDED for status in summary.ended):
        raise typer.Exit(STOPPED)
