"""The command ``margmap``.

Whatever needs numpy or numba is imported inside the commands, so that ``--help`` and ``--version`` answer at once.
"""

from __future__ import annotations

import io
import math
import os
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from margmap.cli.base import BAD_INPUT, STOPPED, Format, Json, Model, command_of, interrupted
from margmap.cli.bench import bench
from margmap.cli.inputs import (
    method_parameters,
    parse_bytes,
    parse_evidence,
    parse_names,
    parse_options,
    read_instance,
    read_rows,
)
from margmap.cli.output import (
    complain,
    csv_lines,
    print_json,
    print_result,
    print_table,
    print_top,
    printable,
    progress,
    proof,
    spinner,
)
from margmap.errors import QueryError
from margmap.foundation.interrupts import finish, take_over

if TYPE_CHECKING:
    from margmap.circuit import Circuit, Name, Value
    from margmap.cli.batch import Summary
    from margmap.network.network import Network

__all__ = ["app", "main"]

MaxEdges = Annotated[
    int | None,
    typer.Option("--max-edges", metavar="N", min=1, help="How large a circuit a network may be compiled to."),
]
Evidence = Annotated[
    list[str] | None,
    typer.Option("--evidence", "-e", metavar="V=X,...", help="Observed values, such as 1=0,4=1 or season=winter."),
]

Query = Annotated[
    list[str] | None,
    typer.Option("--query", "-q", metavar="V,...", help="Variables to find the best state of. Without: MPE."),
]
Instance = Annotated[
    Path | None,
    typer.Option(
        "--instance",
        metavar="FILE",
        help='JSON with "query" (a list) and "evidence" (an object), in place of the two options; '
        "the way to write names that contain '=' or ','.",
    ),
]
Index = Annotated[
    int | None, typer.Option("--index", metavar="I", help='Which entry of a list "instances" in it, from 0.')
]

app = typer.Typer(
    name="margmap",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Exact marginal MAP for probabilistic circuits: the most likely state of some variables, and the proof.",
    epilog="Exit codes: 0 optimal or done, 2 bad input or usage, 3 stopped before the proof was complete, 130 Ctrl-C.",
)


def main() -> None:
    """What the command does once it is loaded."""
    take_over()
    for stream in (sys.stdout, sys.stderr):  # names may have characters that this terminal's encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="margmap")
    except SystemExit as end:
        finish(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)


def _show_version(wanted: bool) -> None:
    if wanted:
        from margmap import __version__

        print(f"margmap {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


_command = command_of(app)
app.add_typer(bench)


@_command
def info(model: Model, format: Format = None, json: Json = False) -> None:
    """Show the size of a circuit and its structural properties; of a network, what compiling it would take."""
    network = _load_network(model, format)
    if network is not None:
        _network_info(model, network, json)
        return
    with spinner(f"Loading {model} ..."):
        from margmap.io.formats import load_circuit

        circuit = load_circuit(model, format)
    with spinner("Checking the structure ..."):
        facts = _facts(circuit)
    if json:
        print_json({"model": str(model), **facts})
        return
    leaves = ", ".join(f"{count} {kind}" for kind, count in facts["leaves"].items())
    properties = dict(facts["properties"])
    sizes = [(name, facts[name]) for name in ("variables", "nodes", "edges", "sums", "products")]
    held = [
        (name, "shown" if holds else "not shown") if name == "deterministic" else (name, "yes" if holds else "no")
        for name, holds in properties.items()
    ]
    print_table(("", ""), [*sizes, ("leaves", leaves), ("depth", facts["depth"]), *held])
    for reason in facts["reasons"]:
        print(printable(reason))


@_command
def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The file to read.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write, .gz to compress.")],
    source_format: Annotated[
        str | None, typer.Option("--from", metavar="F", help="The format of IN, where its name does not say it.")
    ] = None,
    target_format: Annotated[
        str | None, typer.Option("--to", metavar="F", help="The format of OUT, where its name does not say it.")
    ] = None,
    smooth: Annotated[bool, typer.Option("--smooth", help="Make the circuit smooth first.")] = False,
    normalise: Annotated[bool, typer.Option("--normalise", help="Make all weights add up to 1 first.")] = False,
    weights: Annotated[
        Path | None, typer.Option("--weights", metavar="FILE", help="Weights of the literals of an .nnf or .sdd file.")
    ] = None,
    names: Annotated[
        Path | None, typer.Option("--names", metavar="FILE", help="What its variables are called: number, name.")
    ] = None,
    vtree: Annotated[Path | None, typer.Option("--vtree", metavar="FILE", help="The vtree of an .sdd file.")] = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Rewrite a circuit in another format, or compile a network. To .vtree, write the vtree that a circuit follows."""
    if _is_network(source, source_format) and (weights or names or vtree):
        raise typer.BadParameter("--weights, --names and --vtree are for theories (.nnf, .sdd)")
    network = _load_network(source, source_format)
    compiled = None if network is None else _compile(network, max_edges)
    with spinner(f"Converting {source} ..."):
        from margmap.circuit import Circuit, transform
        from margmap.circuit.vtree import vtree_of
        from margmap.io.formats import load, save

        value = compiled or load(source, source_format, weights=weights, names=names, vtree=vtree)
        if isinstance(value, Circuit):
            value = transform.smooth(value) if smooth else value
            value = transform.normalise(value) if normalise else value
            if (target_format or _suffix(target)) == "vtree":
                value = vtree_of(value)
        elif smooth or normalise:
            raise typer.BadParameter("--smooth and --normalise need a circuit, and IN is a vtree")
        save(value, target, target_format)
    if json:
        print_json({"source": str(source), "target": str(target), "nodes": value.num_nodes})
    else:
        print(f"wrote {printable(str(target))}: {value!r}")


@_command
def marginal(
    model: Model,
    evidence: Evidence = None,
    target: Annotated[
        list[str] | None, typer.Option("--target", "-t", metavar="V=X,...", help="Also print log p(target | evidence).")
    ] = None,
    posteriors: Annotated[
        bool, typer.Option("--posteriors", help="Also print p(X = x | evidence) for every variable.")
    ] = False,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Compute the log-probability of evidence, and what follows from it for other variables."""
    observed, asked = parse_evidence("--evidence", evidence or []), parse_evidence("--target", target or [])
    loaded = _load(model, format)
    with spinner("Evaluating ..."):
        from margmap.inference import queries

        log_evidence = queries.log_marginal(loaded, observed, max_edges=max_edges)
        log_conditional = queries.log_conditional(loaded, asked, observed, max_edges=max_edges) if asked else None
        tables = dict(queries.posteriors(loaded, observed, max_edges=max_edges)) if posteriors else {}
    if json:
        answer: dict[str, Any] = {"log_evidence": log_evidence}
        if log_conditional is not None:
            answer["log_conditional"] = log_conditional
        print_json(answer | ({"posteriors": tables} if posteriors else {}))
        return
    print(f"log p(e) = {log_evidence:.6f}")
    if log_conditional is not None:
        print(f"log p(t | e) = {log_conditional:.6f}")
    if posteriors:
        rows = [(name, "  ".join(f"{value}: {p:.6g}" for value, p in table.items())) for name, table in tables.items()]
        print_table(("variable", "posterior"), rows)


@_command
def likelihood(
    model: Model,
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS",
            help="Comma-separated numbers, .gz or not: a column for each variable, -1, nan or nothing if missing.",
        ),
    ],
    per_row: Annotated[
        bool, typer.Option("--per-row", help="Print the log-likelihood of each row instead of the mean.")
    ] = False,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Compute the mean log-likelihood of data."""
    loaded = _load(model, format)
    with spinner(f"Reading {rows} ..."):
        matrix = read_rows(rows)
    with spinner("Evaluating ..."):
        from margmap.inference.queries import log_likelihood

        values = log_likelihood(loaded, matrix, max_edges=max_edges)
    mean = float(values.mean())
    if json:
        answer = {"rows": len(values), "mean_log_likelihood": mean}
        print_json(answer | ({"log_likelihoods": values.tolist()} if per_row else {}))
    elif per_row:
        print("\n".join(map(repr, values.tolist())))
    else:
        print(f"mean log-likelihood = {mean:.6f} over {len(values)} rows")


@_command
def sample(
    model: Model,
    number: Annotated[int, typer.Option("-n", metavar="N", min=0, help="How many rows to draw.")] = 1,
    evidence: Evidence = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="For the same rows every time.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write there, not to stdout.")
    ] = None,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Draw rows from p(. | evidence), as comma-separated numbers in the order of the model's variables."""
    observed = parse_evidence("--evidence", evidence or [])
    loaded = _load(model, format)
    with spinner("Sampling ..."):
        from margmap.inference import queries

        drawn = queries.sample(loaded, number, observed, seed, max_edges=max_edges)
    lines = csv_lines(drawn, [not variable.continuous for variable in loaded.variables])
    if output is not None:
        from margmap.io.files import write_lines

        write_lines(output, lines)
    if json:
        rows = {"output": str(output), "rows": number} if output is not None else {"rows": drawn.tolist()}
        print_json({"variables": list(loaded.names), **rows})
    elif output is not None:
        print(f"wrote {number} rows to {printable(str(output))}")
    else:
        for line in lines:
            print(line)


@_command
def solve(
    model: Model,
    query: Query = None,
    evidence: Evidence = None,
    method: Annotated[str, typer.Option("--method", "-m", metavar="M", help="The solver to use.")] = "auto",
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="S", help="Stop after this many seconds.")
    ] = None,
    gap: Annotated[
        float | None, typer.Option("--gap", metavar="G", help="Stop once the bounds are this close, in nats.")
    ] = None,
    top: Annotated[
        int | None, typer.Option("--top", metavar="K", min=1, help="Find the K best states instead of the best one.")
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option("--memory-limit", metavar="N", help="Bytes that it may grow by, such as 500M (K, M or G)."),
    ] = None,
    instance: Instance = None,
    index: Index = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the method, such as heuristic=Pruned."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE.csv", help="Write one row for each iteration of the method there."),
    ] = None,
    evid: Annotated[
        Path | None, typer.Option("--evid", metavar="FILE.evid", help="Evidence in the UAI competitions' format.")
    ] = None,
    query_file: Annotated[
        Path | None, typer.Option("--query-file", metavar="FILE.query", help="Query in the same format.")
    ] = None,
    uai_files: Annotated[
        bool,
        typer.Option("--uai-files", help="Both from files beside X.uai: X.uai.evid and X.uai.query (or .map)."),
    ] = False,
    batch: Annotated[
        Path | None,
        typer.Option(
            "--batch",
            metavar="ROWS.csv",
            help="Answer each row of evidence: a header of variables or a column for each; empty, nan or -1: missing.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where the answers of --batch go: .csv or .jsonl."),
    ] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether --batch's first line has names, if unclear.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=1,
            help="Processes: for --batch (without: one a core), or to share one hard query out over.",
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="tcp://HOST:8786", help="Work on a Dask cluster; or: local."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="Write a proof that `margmap verify` can check there."),
    ] = None,
    max_edges: MaxEdges = None,
    format: Format = None,
    json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say on stderr what the solver did.")] = False,
) -> None:
    """Find the most likely state of the query variables given the evidence, all others summed out, and prove it."""
    asked, observed = _question(query, evidence, instance, index)
    if batch is None and any(given is not None for given in (output, header)):
        raise typer.BadParameter("--output and --header are for --batch")
    if batch is not None and (
        evidence or top is not None or verbose or any((instance, trace, evid, query_file)) or uai_files
    ):
        raise typer.BadParameter(
            "--batch has its evidence in rows and its answers in a file: it goes with --query, --method, --time-limit, "
            "--gap, --memory-limit and --option"
        )
    if batch is not None and output is None:
        raise typer.BadParameter("--batch needs --output FILE for the answers")
    if certificate is not None and (batch is not None or (top or 1) > 1):
        raise typer.BadParameter("--certificate proves one best state: it does not go with --batch and --top")
    if certificate is not None and _is_network(model, format):
        from margmap.cli.verify import NETWORK

        raise QueryError(NETWORK)
    options = _method_options(method, option or [], trace)
    if gap is not None:
        options["gap"] = gap
    if top is not None:
        options["k"] = top
    if memory_limit is not None:
        options["memory_limit"] = parse_bytes("--memory-limit", memory_limit)
    if (evid is not None or query_file is not None or uai_files) and not _is_network(model, format):
        raise typer.BadParameter("--evid, --query-file and --uai-files are for networks (.uai, .bif)")
    # With --batch the time limit is that of each row.
    circuit, load_seconds = _load_within(None if batch is not None else time_limit, model, format)
    from margmap.network.network import Network

    if isinstance(circuit, Network):
        if max_edges is not None:
            options["max_edges"] = max_edges
        asked, observed = _uai_instance(model, circuit, evid, query_file, uai_files, asked, observed)
    if batch is not None and output is not None and circuit is not None:
        from margmap.cli.batch import solve_batch

        _report_batch(
            solve_batch(
                model, circuit, batch, output, asked, method, time_limit, options, header=header, jobs=jobs, dask=dask
            ),
            output,
            json,
        )
        return
    with spinner("Solving ...") as show:
        from margmap.solve.marginal_map import marginal_map
        from margmap.solve.result import without_state

        if "on_iteration" in method_parameters(method):
            options["on_iteration"] = lambda row: show(progress(row))
        with ExitStack() as workers:
            if dask is not None:
                from margmap.distribute.executors import open_executor

                options["executor"] = workers.enter_context(open_executor(jobs, dask))
            elif jobs is not None:
                options["jobs"] = jobs
            left = None if time_limit is None else max(time_limit - load_seconds, 1e-9)
            if circuit is None:
                result = without_state("time_limit", method, 0.0)
            else:
                result = marginal_map(circuit, asked, observed, method, left, **options)
    if result.state is None and result.status == "interrupted":
        interrupted()
    if trace is not None:
        from margmap.io.files import write_lines
        from margmap.plot import trace_lines

        write_lines(trace, trace_lines(result.trace))
    written: dict[str, Any] = {}
    failure = None
    if certificate is not None:
        from margmap.cli.verify import print_certificate, try_certificate

        written, failure = try_certificate(certificate, circuit, observed, result, gap)
    if json:
        ranked = {} if top is None else {"top": [one._asdict() for one in result.top]}
        print_json({**result.to_dict(), **ranked, **written, "load_seconds": load_seconds})
    else:
        if asked is None:
            print("No query given: the most probable explanation (MPE), all variables that are not observed.")
        print_result(result)
        if top is not None:
            print_top(result, top)
        print(f"method {result.method}, {result.seconds:.3g} s, and {load_seconds:.3g} s to load the model")
        if certificate is not None:
            print_certificate(written)
    if verbose:
        if "why" in result.details:
            print(f"chose {result.method}: {result.details['why']}", file=sys.stderr)
        for key, value in result.details.items():
            if key not in ("trace", "why"):
                print(f"{key}: {printable(str(value))}", file=sys.stderr)
    if failure is not None and result.status == "optimal":
        raise failure
    if failure is not None:
        complain(str(failure))
    if result.status != "optimal":
        raise typer.Exit(STOPPED)


@_command
def verify(
    model: Model,
    certificate: Annotated[Path, typer.Argument(metavar="CERT", help="What `solve --certificate` wrote.")],
    query: Annotated[
        list[str] | None,
        typer.Option("--query", "-q", metavar="V,...", help="Refuse a certificate about other variables."),
    ] = None,
    evidence: Evidence = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            "--tolerance", metavar="NATS", help="The gap up to which the state counts as optimal; 1e-9 if not given."
        ),
    ] = None,
    format: Format = None,
    json: Json = False,
) -> None:
    """Check a proof without any solver: exit code 0 if the state is optimal, 3 if a gap is left, 2 if it is refused."""
    from margmap.cli.verify import NETWORK, run_verify

    asked = parse_names("--query", query) if query else None
    observed = parse_evidence("--evidence", evidence) if evidence else None
    if _is_network(model, format):
        raise QueryError(NETWORK)
    verdict = run_verify(model, certificate, format, asked, observed, tolerance, json)
    if not verdict.optimal:
        raise typer.Exit(STOPPED if verdict.accepted else BAD_INPUT)


@_command
def approximate(
    model: Model,
    query: Query = None,
    evidence: Evidence = None,
    method: Annotated[
        str,
        typer.Option(
            "--method", "-m", metavar="M", help="best_tree, naive_greedy, argmax_product, beam or k_best_tree."
        ),
    ] = "k_best_tree",
    k: Annotated[
        int | None, typer.Option("-k", metavar="K", min=1, help="How many states beam and k_best_tree look at.")
    ] = None,
    instance: Instance = None,
    index: Index = None,
    format: Format = None,
    max_edges: MaxEdges = None,
    json: Json = False,
) -> None:
    """Find a likely state of the query variables quickly, without a proof that it is the most likely one."""
    asked, observed = _question(query, evidence, instance, index)
    loaded = _load(model, format)
    with spinner("Looking for a good state ..."):
        from margmap.solve.approximate import approximate as find

        found = find(loaded, asked, observed, method, max_edges=max_edges, **({} if k is None else {"k": k}))
    if json:
        state = {str(name): value for name, value in found.state.items()}
        print_json({**asdict(found), "state": state})
        return
    print_table(("variable", "value"), list(found.state.items()))
    print(f"log p(q, e) = {found.log_prob:.6f}, p(q | e) = {math.exp(found.log_conditional):.6g}")
    print("not proven: a better state may exist; `margmap solve` finds the best")
    print(f"method {found.method}, {found.seconds:.3g} s")


@_command
def plot(
    trace: Annotated[Path, typer.Argument(metavar="TRACE.csv", help="What `solve --trace` wrote.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The figure to write: .png, .svg or .pdf.")
    ],
    json: Json = False,
) -> None:
    """Draw the bounds and the size of the circuit in each iteration of a solver."""
    with spinner("Drawing ..."):
        from margmap import plot as figures

        rows = figures.read_trace(trace)
        figures.save(rows, output)
    if json:
        print_json({"trace": str(trace), "output": str(output), "iterations": len(rows)})
    else:
        print(f"wrote {printable(str(output))}: {len(rows)} iterations")


@_command
def learn(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Comma-separated whole numbers from 0, .gz or not, without a header; or the name of a dataset.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="MODEL", help="The circuit to write, such as model.psdd.")
    ],
    valid: Annotated[
        Path | None, typer.Option("--valid", metavar="FILE", help="Rows that decide which circuit is the best.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="S", min=0, help="Stop after this many seconds.")
    ] = None,
    max_edges: Annotated[
        int | None, typer.Option("--max-edges", metavar="N", min=1, help="Stop when the circuit is this large.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", metavar="N", min=0, help="Stop after this many splits.")
    ] = None,
    patience: Annotated[
        int, typer.Option("--patience", metavar="N", min=0, help="Stop after this many splits that did not help.")
    ] = 1000,
    tries: Annotated[
        int, typer.Option("--tries", metavar="N", min=1, help="How many variables to try for each split.")
    ] = 8,
    components: Annotated[
        int, typer.Option("--components", metavar="K", min=1, help="Then fit a mixture of K on the structure.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="For random choices.")] = 0,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="MODEL", help="Go on from a circuit that was learned before.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The folder of the datasets, or set MARGMAP_DATA.")
    ] = None,
    json: Json = False,
) -> None:
    """Learn a circuit from rows (Strudel). Ctrl-C ends early and writes the best circuit so far."""
    from margmap.cli import learning

    train, checked = learning.read_data(data, valid, folder)
    learning.check_output(output, train)
    found = learning.run(
        train, checked, resume, time_limit, max_edges, iterations=iterations, patience=patience, tries=tries, seed=seed
    )
    circuit, train_mean, valid_mean = found.circuit, found.best.train, found.best.valid
    if components > 1 and found.reason != "interrupted":
        circuit = learning.mix(train, checked, found, components, seed)
        train_mean, valid_mean = (learning.mean_likelihood(circuit, rows) for rows in (train, checked))
    with spinner(f"Writing {output} ..."):
        from margmap.io.formats import save

        save(circuit, output)
    if json:
        print_json(
            {
                "output": str(output),
                "reason": found.reason,
                "iterations": found.last.iteration,
                "best_iteration": found.best.iteration,
                "train": train_mean,
                "valid": valid_mean,
                "nodes": circuit.num_nodes,
                "edges": circuit.num_edges,
                "seconds": found.last.seconds,
            }
        )
    else:
        checked_text = "" if math.isnan(valid_mean) else f", valid {valid_mean:.6f}"
        print(f"wrote {printable(str(output))}: {circuit!r}")
        print(f"mean log-likelihood: train {train_mean:.6f}{checked_text}")
        print(
            f"ended by {found.reason.replace('_', ' ')} after {found.last.iteration} splits, "
            f"{found.last.seconds:.3g} s; the circuit is that after {found.best.iteration}"
        )
    if found.reason == "interrupted":
        raise typer.Exit(STOPPED)


@_command
def datasets(
    download: Annotated[
        list[str] | None,
        typer.Option("--download", metavar="NAME", help="Get a dataset that is not there, or all; may be repeated."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The folder of the datasets, or set MARGMAP_DATA.")
    ] = None,
    json: Json = False,
) -> None:
    """List the twenty datasets that learners are compared on, and which of them are in a folder; or download them."""
    from margmap.cli import learning

    written = learning.fetch(download, folder) if download else []
    place = folder or (Path(os.environ["MARGMAP_DATA"]) if os.environ.get("MARGMAP_DATA") else None)
    rows = learning.listing(place)
    if json:
        answer: dict[str, Any] = {"folder": None if place is None else str(place), "datasets": rows}
        print_json(answer | ({"written": [str(path) for path in written]} if download else {}))
        return
    for path in written:
        print(f"wrote {printable(str(path))}")
    learning.print_listing(rows)
    if place is None:
        print("Give --data DIR or set MARGMAP_DATA to see which are there; --download NAME gets one.")


@_command
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.png", help="Where to write the picture.")
    ] = Path("margmap-demo.png"),
    json: Json = False,
) -> None:
    """Complete half-hidden digits on a bundled model: exact marginal MAP beside what MPE would suggest."""
    with spinner("Loading ..."):
        from margmap import demo as digits

        circuit, shown = digits.load_digits(), digits.held_out()
    with spinner("Solving ..."):
        found = [digits.complete_digit(circuit, digit) for digit in shown]
    pictures = [digits.panels(digit, answer) for digit, answer in zip(shown, found, strict=True)]
    digits.write_picture(pictures, output)
    if json:
        rows = [{"label": d.label, **answer.to_dict()} for d, answer in zip(shown, found, strict=True)]
        print_json({"model": digits.DIGITS_MODEL, "picture": str(output), "digits": rows})
        return
    asked, seen = len(found[0].query), len(found[0].evidence)
    print(f"Handwritten digits, of which the upper half is seen (a learned model of {len(circuit.variables)} pixels).")
    print(
        f"Asked: the most likely ink in the middle of the lower half ({asked} pixels); "
        f"the {len(circuit.variables) - asked - seen} beside it are summed out."
    )
    for picture, answer in zip(pictures[:3], found, strict=False):
        print("\n" + "\n".join(digits.text(picture)))
        best, other = answer.marginal_map, answer.log_projected
        print(
            f"probability of the middle given the upper half: marginal MAP {_percent(best.log_conditional)}, "
            f"MPE's {_percent(other)}"
        )
        print(f"marginal MAP: {proof(best)}")
    print(
        "\nMPE is the single most likely lower half; its middle need not be the most likely one, which collects the\n"
        "probability of every lower half that it is part of: only summing up tells."
    )
    print(f"All {len(shown)} digits: {printable(str(output))}")


def _report_batch(summary: Summary, output: Path, json: bool) -> None:
    if json:
        print_json({"output": str(output), **summary._asdict()})
    elif summary.interrupted:
        print(f"stopped after {summary.done} of {summary.rows} rows: start it again to go on")
    else:
        print(f"wrote {summary.rows} answers to {printable(str(output))}: {summary}")
    if failed := summary.ended.get("failed"):
        print(f"{failed} rows failed: the column 'error' says why", file=sys.stderr)
    if summary.interrupted or any(status != "optimal" for status in summary.ended):
        raise typer.Exit(STOPPED)


def _question(
    query: list[str] | None, evidence: list[str] | None, instance: Path | None, index: int | None
) -> tuple[list[Name] | None, dict[Name, Value]]:
    """Query (None: all that is not observed) and evidence, from the options or from a file."""
    if instance is not None and (query or evidence):
        raise typer.BadParameter("give either --instance or --query and --evidence, not both")
    if index is not None and instance is None:
        raise typer.BadParameter("--index chooses an entry of --instance: give that too")
    if instance is not None:
        return read_instance(instance, index)
    return parse_names("--query", query) if query else None, parse_evidence("--evidence", evidence or [])


def _method_options(method: str, texts: list[str], trace: Path | None) -> dict[str, Any]:
    """The options of a method, refused before the model is read if they cannot be right."""
    if not texts and trace is None:
        return {}
    with spinner("Starting ..."):
        if trace is not None and "on_iteration" not in method_parameters(method):
            from margmap.solve.methods import METHODS

            able = ", ".join(name for name in METHODS if "on_iteration" in method_parameters(name))
            raise QueryError(f"--trace: method {method!r} has no iterations to write down; choose --method {able}")
        return parse_options(texts, method)


def _load(path: Path, format: str | None) -> Circuit | Network:
    """The circuit or the network in a file."""
    network = _load_network(path, format)
    if network is not None:
        return network
    with spinner(f"Loading {path} ..."):
        from margmap.io.formats import load_circuit

        return load_circuit(path, format)


def _load_within(time_limit: float | None, path: Path, format: str | None) -> tuple[Circuit | Network | None, float]:
    """The model and the seconds it took to read, Python's own imports not counted; None if there was no time for it."""
    with spinner(f"Loading {path} ..."):
        from margmap.foundation.limits import Limits, Stopped
        from margmap.io import formats
        from margmap.solve.marginal_map import GRACE
        from margmap.solve.question import check_limits

        def read() -> Circuit | Network:
            return (formats.load_network if _is_network(path, format) else formats.load_circuit)(path, format)

        check_limits(time_limit)
        begun = time.perf_counter()
        model: Circuit | Network | None = None
        if time_limit is None:
            model = read()
        else:
            limits = Limits(time_limit + GRACE)
            with suppress(Stopped), limits.not_counting_compilation():
                model = limits.run(lambda _stop: read(), wait=False)
        return model, time.perf_counter() - begun


def _is_network(path: Path, format: str | None) -> bool:
    from margmap.io.formats import is_network_file

    return is_network_file(path, format)


def _load_network(path: Path, format: str | None) -> Network | None:
    """The network in a file, or None if its name says that it holds something else."""
    if not _is_network(path, format):
        return None
    with spinner(f"Loading {path} ..."):
        from margmap.io.formats import load_network

        return load_network(path, format)


def _compile(network: Network, max_edges: int | None) -> Circuit:
    with spinner("Compiling the network ...") as show:
        from margmap.network.compile import compile

        def report(done: int, total: int) -> None:
            filled = 30 * done // max(total, 1)
            show(f"Compiling the network [{'=' * filled}{' ' * (30 - filled)}] {100 * done // max(total, 1)} %")

        return compile(network, max_edges=max_edges, on_progress=report)


def _network_info(model: Path, network: Network, json: bool) -> None:
    with spinner("Looking for an elimination order ..."):
        from margmap.network.compile import predict

        plan = predict(network)
    facts = {
        "kind": network.kind,
        "variables": len(network.variables),
        "factors": len(network.factors),
        "parameters": network.num_parameters,
        "width": plan.width,
        "table_entries": plan.entries,
        "largest_table": plan.largest,
        "most_edges": plan.edges,
        "order": plan.order,
    }
    if json:
        print_json({"model": str(model), **facts})
    else:
        print_table(("", ""), [(name.replace("_", " "), value) for name, value in facts.items()])


def _uai_instance(
    model: Path,
    network: Network,
    evid: Path | None,
    query_file: Path | None,
    beside: bool,
    asked: list[Name] | None,
    observed: dict[Name, Value],
) -> tuple[list[Name] | None, dict[Name, Value]]:
    """Query and evidence, from the competition's files where those are named."""
    from margmap.io import uai

    if beside:
        found = uai.files_beside(model)
        evid, query_file = evid or found[0], query_file or found[1]
    if (evid is not None and observed) or (query_file is not None and asked is not None):
        raise typer.BadParameter("the query, or the evidence, is given twice: as an option and as a file")
    if evid is not None:
        observed = network.labelled(uai.read_evidence(evid, network))
    if query_file is not None:
        asked = [network.names[v] for v in uai.read_query(query_file, network)]
    return asked, observed


def _facts(circuit: Circuit) -> dict[str, Any]:
    from margmap.circuit import KIND_NAMES, PRODUCT, SUM

    number = {kind: int((circuit.kind == kind).sum()) for kind in range(len(KIND_NAMES))}
    properties = circuit.properties._asdict()
    reasons = properties.pop("reasons")
    return {
        "variables": len(circuit.variables),
        "nodes": circuit.num_nodes,
        "edges": circuit.num_edges,
        "sums": number[SUM],
        "products": number[PRODUCT],
        "leaves": {KIND_NAMES[kind]: number[kind] for kind in range(PRODUCT) if number[kind]},
        "depth": circuit.depth,
        "properties": properties,
        "reasons": list(reasons),
    }


def _suffix(path: Path) -> str:
    suffixes = [suffix for suffix in path.suffixes if suffix.lower() != ".gz"]
    return suffixes[-1][1:].lower() if suffixes else ""


def _percent(log: float) -> str:
    return f"{100 * math.exp(log):.1f} %"
