"""The command ``margmap``.

Whatever needs numpy or numba is imported inside the commands, so that ``--help`` and ``--version`` answer at once.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer

from margmap.cli.inputs import (
    method_parameters,
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
    printable,
    progress,
    proof,
    spinner,
)
from margmap.errors import MargmapError, QueryError

if TYPE_CHECKING:
    from margmap.circuit import Circuit, FloatArray, Variable

__all__ = ["app", "main"]

#: Exit codes: 0 is for "optimal" or "done", and typer itself uses 2 for wrong usage.
UNEXPECTED, BAD_INPUT, STOPPED, INTERRUPTED, BROKEN_PIPE = 1, 2, 3, 130, 141

P = ParamSpec("P")

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A circuit: .psdd .jpc .spn .ac .json, each also .gz.")]
Format = Annotated[
    str | None, typer.Option("--format", metavar="F", help="The model's format, where its name does not say it.")
]
Evidence = Annotated[
    list[str] | None,
    typer.Option("--evidence", "-e", metavar="V=X,...", help="Observed values, such as 1=0,4=1 or season=winter."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

app = typer.Typer(
    name="margmap",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Exact marginal MAP for probabilistic circuits: the most likely state of some variables, and the proof.",
    epilog="Exit codes: 0 optimal or done, 2 bad input or usage, 3 stopped before the proof was complete.",
)


def main() -> None:
    """Entry point of the command."""
    app(prog_name="margmap")


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


def _command(function: Callable[P, None]) -> Callable[P, None]:
    """Make a function a command whose every failure is one line on stderr and an exit code."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            function(*args, **kwargs)
            sys.stdout.flush()
        except (typer.Exit, typer.BadParameter):
            raise
        except MargmapError as error:
            _fail(error, str(error), BAD_INPUT)
        except KeyboardInterrupt as error:
            raise typer.Exit(INTERRUPTED) from error
        except BrokenPipeError as error:
            # Python flushes stdout once more when it ends; let that go nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from error
        except Exception as error:
            if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt):
                # What Python makes of a Ctrl-C that arrives just as a compiled kernel returns.
                raise typer.Exit(INTERRUPTED) from error
            what = f"unexpected {type(error).__name__}: {error}"
            _fail(error, f"{what}; please report this, with the output under MARGMAP_DEBUG=1", UNEXPECTED)

    return app.command(name=function.__name__)(guarded)


def _fail(error: Exception, message: str, code: int) -> NoReturn:
    if os.environ.get("MARGMAP_DEBUG") == "1":
        raise error
    complain(message)
    raise typer.Exit(code) from error


@_command
def info(model: Model, format: Format = None, json: Json = False) -> None:
    """Show the size of a circuit and its structural properties."""
    circuit = _load(model, format)
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
    json: Json = False,
) -> None:
    """Rewrite a circuit in another format. To .vtree, write the vtree that a structured circuit follows."""
    with spinner(f"Converting {source} ..."):
        from margmap import structure
        from margmap.circuit import Circuit
        from margmap.io import load, save
        from margmap.vtree import vtree_of

        value = load(source, source_format)
        if isinstance(value, Circuit):
            value = structure.smooth(value) if smooth else value
            value = structure.normalise(value) if normalise else value
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
    json: Json = False,
) -> None:
    """Compute the log-probability of evidence, and what follows from it for other variables."""
    observed, asked = parse_evidence("--evidence", evidence or []), parse_evidence("--target", target or [])
    circuit = _load(model, format)
    with spinner("Evaluating ..."):
        from margmap import queries

        log_evidence = queries.log_marginal(circuit, observed)
        log_conditional = queries.log_conditional(circuit, asked, observed) if asked else None
        tables = queries.posteriors(circuit, observed) if posteriors else {}
    described = {name: _describe(circuit.variables[circuit.index(name)], table) for name, table in tables.items()}
    if json:
        answer: dict[str, Any] = {"log_evidence": log_evidence}
        if log_conditional is not None:
            answer["log_conditional"] = log_conditional
        print_json(answer | ({"posteriors": described} if posteriors else {}))
        return
    print(f"log p(e) = {log_evidence:.6f}")
    if log_conditional is not None:
        print(f"log p(t | e) = {log_conditional:.6f}")
    if posteriors:
        rows = [
            (name, "  ".join(f"{value}: {p:.6g}" for value, p in table.items())) for name, table in described.items()
        ]
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
    json: Json = False,
) -> None:
    """Compute the mean log-likelihood of data."""
    circuit = _load(model, format)
    with spinner(f"Reading {rows} ..."):
        matrix = read_rows(rows)
    with spinner("Evaluating ..."):
        from margmap.queries import log_likelihood

        values = log_likelihood(circuit, matrix)
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
    json: Json = False,
) -> None:
    """Draw rows from p(. | evidence), as comma-separated numbers in the order of the model's variables."""
    observed = parse_evidence("--evidence", evidence or [])
    circuit = _load(model, format)
    with spinner("Sampling ..."):
        from margmap import queries

        drawn = queries.sample(circuit, number, observed, seed)
    lines = csv_lines(drawn, [not variable.continuous for variable in circuit.variables])
    if output is not None:
        from margmap.io.files import write_lines

        write_lines(output, lines)
    if json:
        rows = {"output": str(output), "rows": number} if output is not None else {"rows": drawn.tolist()}
        print_json({"variables": list(circuit.names), **rows})
    elif output is not None:
        print(f"wrote {number} rows to {printable(str(output))}")
    else:
        for line in lines:
            print(line)


@_command
def solve(
    model: Model,
    query: Annotated[
        list[str] | None,
        typer.Option("--query", "-q", metavar="V,...", help="Variables to find the best state of. Without: MPE."),
    ] = None,
    evidence: Evidence = None,
    method: Annotated[str, typer.Option("--method", "-m", metavar="M", help="The solver to use.")] = "auto",
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="S", help="Stop after this many seconds.")
    ] = None,
    gap: Annotated[
        float | None, typer.Option("--gap", metavar="G", help="Stop once the bounds are this close, in nats.")
    ] = None,
    instance: Annotated[
        Path | None,
        typer.Option(
            "--instance",
            metavar="FILE",
            help='JSON with "query" (a list) and "evidence" (an object), in place of the two options; '
            "the way to write names that contain '=' or ','.",
        ),
    ] = None,
    index: Annotated[
        int | None, typer.Option("--index", metavar="I", help='Which entry of a list "instances" in it, from 0.')
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the method, such as heuristic=Pruned."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE.csv", help="Write one row for each iteration of the method there."),
    ] = None,
    format: Format = None,
    json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Say on stderr what the solver did.")] = False,
) -> None:
    """Find the most likely state of the query variables given the evidence, all others summed out, and prove it."""
    if instance is not None and (query or evidence):
        raise typer.BadParameter("give either --instance or --query and --evidence, not both")
    if index is not None and instance is None:
        raise typer.BadParameter("--index chooses an entry of --instance: give that too")
    asked = parse_names("--query", query) if query else None
    observed = parse_evidence("--evidence", evidence or [])
    if instance is not None:
        asked, observed = read_instance(instance, index)
    options = _method_options(method, option or [], trace)
    if gap is not None:
        options["gap"] = gap
    circuit, load_seconds = _timed_load(model, format)
    with spinner("Solving ...") as show:
        from margmap.solve import marginal_map

        if "on_iteration" in method_parameters(method):
            options["on_iteration"] = lambda row: show(progress(row))
        result = marginal_map(circuit, asked, observed, method, time_limit, **options)
    if trace is not None:
        from margmap.io.files import write_lines
        from margmap.plot import trace_lines

        write_lines(trace, trace_lines(result.trace))
    if json:
        print_json({**result.to_dict(), "load_seconds": load_seconds})
    else:
        if asked is None:
            print("No query given: the most probable explanation (MPE), all variables that are not observed.")
        print_result(result)
        print(f"method {result.method}, {result.seconds:.3g} s, and {load_seconds:.3g} s to load the model")
    if verbose:
        for key, value in result.details.items():
            if key != "trace":
                print(f"{key}: {printable(str(value))}", file=sys.stderr)
    if result.status != "optimal":
        raise typer.Exit(STOPPED)


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
def demo(json: Json = False) -> None:
    """Show on a bundled model what marginal MAP is for: the exact answer beside the one MPE would suggest."""
    with spinner("Loading ..."):
        from margmap.demo import EVIDENCE, QUERY, compare, load_model

        circuit = load_model()
    with spinner("Solving ..."):
        found = compare(circuit)
    if json:
        print_json(found.to_dict())
        return
    best, rest = found.marginal_map, len(circuit.variables) - len(QUERY) - len(EVIDENCE)
    seen = " and ".join(f"{name} = {value}" for name, value in EVIDENCE.items())
    asked = " and ".join(map(str, QUERY))
    print(f"A patient at the doctor's (an invented model of {len(circuit.variables)} variables).")
    print(f"Known: {seen}. Asked: the most likely {asked}; the other {rest} variables are summed out.\n")
    answers = [
        ("marginal MAP (exact)", best.state, best.log_conditional),
        ("MPE, cut down to these", found.projected, found.log_projected),
    ]
    print_table(
        ("answer", *map(str, QUERY), "probability given what is known"),
        [(title, *state.values(), _percent(log)) for title, state, log in answers],
    )
    print(f"\nmarginal MAP: {proof(best)}.")
    print(
        f"MPE is the one most likely description by all {len(found.mpe.state)} unknown variables "
        f"({_percent(found.mpe.log_conditional)} of the patients).\n"
        "A cold looks much the same in everybody, so its best description is a likely one. Flu shows itself in many\n"
        "ways, each less likely, but there are more flu patients in all: only summing the descriptions up tells."
    )


def _method_options(method: str, texts: list[str], trace: Path | None) -> dict[str, Any]:
    """The options of a method, refused before the model is read if they cannot be right."""
    if not texts and trace is None:
        return {}
    with spinner("Starting ..."):
        if trace is not None and "on_iteration" not in method_parameters(method):
            from margmap.solve import METHODS

            able = ", ".join(name for name in METHODS if "on_iteration" in method_parameters(name))
            raise QueryError(f"--trace: method {method!r} has no iterations to write down; choose --method {able}")
        return parse_options(texts, method)


def _load(path: Path, format: str | None) -> Circuit:
    return _timed_load(path, format)[0]


def _timed_load(path: Path, format: str | None) -> tuple[Circuit, float]:
    """The model and the seconds it took to read, Python's own imports not counted."""
    with spinner(f"Loading {path} ..."):
        from margmap.io import load_circuit

        begun = time.perf_counter()
        return load_circuit(path, format), time.perf_counter() - begun


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


def _describe(variable: Variable, posterior: FloatArray) -> dict[str, float]:
    if variable.continuous:
        return {"mean": float(posterior[0]), "deviation": float(posterior[1])}
    return {str(variable.label(x)): float(p) for x, p in enumerate(posterior)}


def _suffix(path: Path) -> str:
    suffixes = [suffix for suffix in path.suffixes if suffix.lower() != ".gz"]
    return suffixes[-1][1:].lower() if suffixes else ""


def _percent(log: float) -> str:
    return f"{100 * math.exp(log):.1f} %"
