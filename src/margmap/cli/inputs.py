"""What the command line takes: models, lists of variables, evidence, instance files, rows of numbers, options."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from margmap.cli.output import spinner, telling
from margmap.errors import FormatError, QueryError, UnnormalisedWarning
from margmap.foundation.numerals import real_of, whole_of
from margmap.solve.methods import METHODS

if TYPE_CHECKING:
    from margmap.circuit import Circuit, Name
    from margmap.network.network import Network

# How the values of options are read: the type that a signature names, what reads it, and what it is for people.
_TYPES: dict[str, tuple[Callable[[str], Any], str]] = {
    "bool": (lambda text: {"true": True, "false": False}[text.lower()], "true or false"),
    "float": (real_of, "a number"),
    "int": (whole_of, "a whole number"),
}

# The name of a bin, such as [18, 25).
_BIN = re.compile(r"[\[(][^\[\]()=,]*,[^\[\]()=,]*[\])]")


def given(**values: Any) -> dict[str, Any]:
    """The options that were given: those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def load_model(path: Path, format: str | None) -> Circuit | Network:
    """The circuit or the network in a file."""
    with telling(UnnormalisedWarning), spinner(f"Loading {path} ..."):
        from margmap.io import formats

        return formats.load_model(path, format)


def is_network(path: Path, format: str | None) -> bool:
    """Whether a file holds a network, by its name or by the format that was said."""
    with spinner("Starting ..."):
        from margmap.io.formats import is_network_file

        return is_network_file(path, format)


def require_circuit(path: Path, format: str | None) -> None:
    """Refuse a network where a certificate is written or checked."""
    if is_network(path, format):
        raise QueryError(
            "a certificate is about a circuit: compile the network first with `margmap convert NETWORK CIRCUIT.json`"
        )


def question(
    query: list[str] | None, evidence: list[str] | None, instance: Path | None, index: int | None
) -> tuple[list[Name] | None, dict[Name, Any]]:
    """Query (None: all that is not observed) and evidence, from the options or from a file."""
    if instance is not None and (query or evidence):
        raise typer.BadParameter("give either --instance or --query and --evidence, not both")
    if index is not None and instance is None:
        raise typer.BadParameter("--index chooses an entry of --instance: give that too")
    if instance is not None:
        return read_instance(instance, index)
    return parse_names("--query", query), parse_evidence("--evidence", evidence)


def parse_names(option: str, texts: Sequence[str] | None) -> list[Name] | None:
    """Variables from ``--query 3,7 --query x``, as text; a circuit finds a variable named 3 by "3" too."""
    return [_name(option, text, part) for text in texts for part in text.split(",")] if texts else None


def parse_evidence(option: str, texts: Sequence[str] | None) -> dict[Name, Any]:
    """Evidence from ``--evidence 1=0,4=1``, ``age=young|old``, ``age!=old``, ``test=pos:0.7|neg:0.3``, ``x>=3``."""
    from margmap.circuit.observation import read_pair, split

    pairs: list[tuple[Name, Any]] = []
    for text in texts or ():
        for masked in split(_BIN.sub(lambda bin: bin[0].replace(",", "\0"), text), ","):
            part = masked.replace("\0", ",")  # the comma in the name of a bin such as [18, 25) divides nothing
            found = read_pair(part)
            if found is None:
                raise QueryError(
                    f"{option} {text!r}: {part.strip()!r} is not of the form variable=value; write 1=0,4=1, age!=old, "
                    "x>=3, age=young|old or test=pos:0.7|neg:0.3, with quotes around a name that has '=' or ',' in it, "
                    "or use --instance"
                )
            pairs.append((_name(option, text, found[0]), found[1]))
    return _distinct(pairs, option)


def parse_constraints(texts: Sequence[str] | None, instance: Path | None, index: int | None) -> list[str] | None:
    """The texts of ``--constraint`` and of an instance's "constraints", each of which can be read; None if none."""
    from margmap.solve.constraints import parse

    found = list(texts or ())
    if instance is not None:
        found += _instance_constraints(instance, index)
    for text in found:
        parse(text)
    return found or None


def parse_bytes(option: str, text: str | None) -> int | None:
    """A number of bytes from ``500M`` or ``1.5G``; K, M and G are powers of 1024."""
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(?:([KMG])I?)?B?", text.strip(), re.ASCII | re.IGNORECASE)
    number = int(float(match[1]) * 1024 ** " KMG".index((match[2] or " ").upper())) if match else 0
    if number < 1:
        raise QueryError(f"{option} {text!r}: write a positive number of bytes, such as 500M or 2G")
    return number


def parse_options(texts: Sequence[str], method: str) -> dict[str, Any]:
    """Options of a method from ``--option heuristic=Pruned --option regroup=false``, of the type the method takes."""
    parameters = METHODS[method].parameters if texts and method in METHODS else {}
    pairs: list[tuple[str, Any]] = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals or not value:
            raise QueryError(f"--option {text!r} is not of the form NAME=VALUE, such as regroup=false")
        annotation = str(parameters[name].annotation) if name in parameters else ""
        if "Callable" in annotation:
            raise QueryError(f"--option {name!r} is a function: it can be given in Python only")
        pairs.append((name, _option(name, value, annotation)))
    return _distinct(pairs, "--option")


def read_instance(path: Path, index: int | None) -> tuple[list[Name] | None, dict[Name, Any]]:
    """The query (None: everything not observed) and the evidence of an instance file."""
    from margmap.circuit.observation import from_json
    from margmap.io.files import read_lines
    from margmap.io.reading import parse_json

    instance = _choose(parse_json(read_lines(path), path), index, path)
    if not isinstance(instance, dict) or not {"query", "evidence"} & set(instance):
        raise FormatError('not an instance: expected {"query": [...], "evidence": {...}}', path=path)
    query, evidence = instance.get("query"), instance.get("evidence", {})
    if query is not None and not (isinstance(query, list) and all(type(name) in (int, str) for name in query)):
        raise FormatError('"query" must be a list of variables', path=path)
    if not isinstance(evidence, dict):
        raise FormatError('"evidence" must be an object from variables to numbers or state names', path=path)
    found: dict[Name, Any] = {}
    for name, value in evidence.items():
        try:
            found[name] = from_json(value)
        except QueryError as error:
            raise FormatError(f'"evidence", variable {name!r}: {error}', path=path) from None
    return query, found


def _instance_constraints(path: Path, index: int | None) -> list[str]:
    """What stands under "constraints" in an instance file."""
    from margmap.io.files import read_lines
    from margmap.io.reading import parse_json

    instance = _choose(parse_json(read_lines(path), path), index, path)
    found = instance.get("constraints", []) if isinstance(instance, dict) else []
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise FormatError('"constraints" must be a list of texts, such as "at most 2 of a=1, b=1"', path=path)
    return found


def _choose(data: Any, index: int | None, path: Path) -> Any:
    if not isinstance(data, dict) or "instances" not in data:
        if index is not None:
            raise FormatError('--index was given, but the file has no list "instances"', path=path)
        return data
    instances = data["instances"]
    if not isinstance(instances, list) or not instances:
        raise FormatError('"instances" must be a list with at least one entry', path=path)
    if index is None and len(instances) > 1:
        raise FormatError(
            f"holds {len(instances)} instances: choose one with --index 0 to {len(instances) - 1}", path=path
        )
    if index is not None and not 0 <= index < len(instances):
        raise FormatError(f"--index {index} is out of range 0 to {len(instances) - 1}", path=path)
    return instances[index or 0]


def _option(name: str, text: str, annotation: str) -> Any:
    """A value of the type that the method's own signature names."""
    types = re.findall(r"\w+", annotation)
    for kind, (read, what) in _TYPES.items():
        if kind in types:
            try:
                return read(text)
            except (ValueError, KeyError):
                raise QueryError(f"--option {name}={text}: write {what}") from None
    return text


def _name(option: str, text: str, part: str) -> str:
    if not part.strip():
        raise QueryError(f"{option} {text!r}: a variable's name is missing")
    return part.strip()


def _distinct(pairs: Sequence[tuple[Any, Any]], where: str) -> dict[Any, Any]:
    """The pairs as a dictionary; a name that is given twice is refused."""
    result: dict[Any, Any] = {}
    for name, value in pairs:
        if name in result:
            raise QueryError(f"{where}: {name!r} is given twice")
        result[name] = value
    return result
