"""Weights of literals and names of variables, for theories that have neither in their files.

A file of weights has one line a literal, ``literal weight``, as d4 reads it; ``w literal weight`` counts too, and a 0
may end a line. In a DIMACS file, one with a line ``p cnf variables clauses``, weights are the comments ``c p weight
literal weight 0`` of the model counting competitions, or one comment ``c weights``, as miniC2D and PySDD read it, with
the weights of 1, -1, 2, -2, ...; its clauses are skipped, and its number of variables counts.

A file of names has one line a variable, ``number name``; in a DIMACS file the comments ``c number name`` are the names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from margmap.circuit import Circuit, Name
from margmap.circuit.logic import (
    MAX_VARIABLE,
    RootedTheory,
    Weight,
    given_names,
    given_weights,
    literal_weights,
    weighted,
)
from margmap.errors import FormatError, StructureError
from margmap.foundation.numerals import real_of, whole_of
from margmap.io import reading as scan
from margmap.io.files import place_of, read_lines

#: Weights in Python (see :func:`margmap.circuit.logic.given_weights`) or the path of a file of them.
Weights: TypeAlias = "Mapping[Any, Any] | str | PathLike[str]"
#: Names of variables by number, or the names of 1, 2, ..., or the path of a file of them.
Names: TypeAlias = "Mapping[int, Name] | Sequence[Name] | str | PathLike[str]"


class WeightFile(NamedTuple):
    """What a file says about weights: those of variables, and how many variables it announces."""

    weights: dict[int, Weight]
    variables: int


def circuit_of_theory(rooted: RootedTheory, weights: Weights | None = None, names: Names | None = None) -> Circuit:
    """The circuit of a theory with weights and names, each given in Python or as a file."""
    named: dict[int, Name] = {}
    if names is not None:
        named = read_names(place_of(names)) if isinstance(names, str | PathLike) else given_names(names)
    if isinstance(weights, str | PathLike):
        found = read_weights(place_of(weights))
        announced = rooted.announced or range(1, found.variables + 1)
        return weighted(rooted._replace(announced=announced), found.weights, named)
    return weighted(rooted, {} if weights is None else given_weights(weights, named), named)


def read_weights(path: Path) -> WeightFile:
    """The weights of a file."""
    lines = read_lines(path)
    variables = _dimacs(lines, path)
    pairs: list[tuple[int, float]] = []
    line_of: dict[int, int] = {}
    for number, literal, weight in _weight_lines(lines, variables is not None, path):
        if variables is not None and abs(literal) > variables:
            message = f"literal {literal} is out of range: the file has {variables} variables"
            raise FormatError(message, path=path, line=number)
        if literal in line_of:
            message = f"literal {literal} has a weight already, on line {line_of[literal]}"
            raise FormatError(message, path=path, line=number)
        line_of[literal] = number
        pairs.append((literal, weight))
    if not pairs:
        hint = "lines 'c p weight literal weight 0'" if variables is not None else "lines 'literal weight'"
        raise FormatError(f"there are no weights in this file: expected {hint}", path=path)
    try:
        return WeightFile(literal_weights(pairs), variables or 0)
    except StructureError as error:
        raise FormatError(str(error), path=path) from error


def read_names(path: Path) -> dict[int, Name]:
    """The names of a file, by the numbers of the variables."""
    lines = read_lines(path)
    variables = _dimacs(lines, path)
    names: dict[int, Name] = {}
    taken: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        words = line.split(maxsplit=2 if variables is not None else 1)
        if variables is not None:  # a comment of a DIMACS file can be anything
            if len(words) < 3 or words[0] != "c" or not words[1].isascii() or not words[1].isdigit():
                continue
            words = words[1:]
        if not words or words[0] in ("c", "#"):
            continue
        variable = _variable(words[0], MAX_VARIABLE if variables is None else variables, path, number)
        if len(words) < 2:
            raise FormatError(f"variable {variable} has no name: a line is 'number name'", path=path, line=number)
        name = words[1].strip()
        if variable in names or name in taken:
            what = (
                f"variable {variable} has a name already" if variable in names else f"two variables are called {name!r}"
            )
            raise FormatError(what, path=path, line=number)
        names[variable] = name
        taken[name] = variable
    if not names:
        raise FormatError("there are no names in this file: a line is 'number name'", path=path)
    return names


def _weight_lines(lines: Sequence[str], dimacs: bool, path: Path) -> Iterator[tuple[int, int, float]]:
    """Line, literal and weight of all that a file says."""
    for number, line in enumerate(lines, 1):
        tokens = line.split()
        if tokens[:3] == ["c", "p", "weight"]:
            yield number, *_pair(tokens[3:], path, number)
        elif tokens[:2] == ["c", "weights"]:
            for i, token in enumerate(tokens[2:]):
                yield number, (i // 2 + 1) * (1 if i % 2 == 0 else -1), _real(token, path, number)
        elif tokens[:1] == ["w"]:
            yield number, *_pair(tokens[1:], path, number)
        elif tokens and tokens[0] not in ("c", "p", "#") and not dimacs:
            yield number, *_pair(tokens, path, number)


def _dimacs(lines: Sequence[str], path: Path) -> int | None:
    """The number of variables that a line ``p cnf variables clauses`` announces; None if there is none."""
    for number, line in enumerate(lines, 1):
        tokens = line.split()
        if tokens[:1] == ["p"]:
            if len(tokens) < 3:
                raise FormatError("expected 'p cnf variables clauses'", path=path, line=number)
            return _variable(tokens[2], MAX_VARIABLE, path, number)
    return None


def _pair(tokens: Sequence[str], path: Path, line: int) -> tuple[int, float]:
    if len(tokens) != 2 and not (len(tokens) == 3 and tokens[2] == "0"):
        message = f"expected a literal and its weight, found {scan.shorten(' '.join(tokens))!r}"
        raise FormatError(message, path=path, line=line)
    negated = tokens[0].startswith("-")
    variable = _variable(tokens[0][negated:], MAX_VARIABLE, path, line)
    return -variable if negated else variable, _real(tokens[1], path, line)


def _variable(token: str, most: int, path: Path, line: int) -> int:
    try:
        variable = whole_of(token)
    except ValueError:
        raise FormatError(f"{scan.shorten(token)!r} is no number of a variable", path=path, line=line) from None
    if not 0 < variable <= most:
        raise FormatError(f"variable {scan.shorten(token)} is out of range 1 to {most}", path=path, line=line)
    return variable


def _real(token: str, path: Path, line: int) -> float:
    try:
        return real_of(token)
    except ValueError:
        raise FormatError(f"{scan.shorten(token)!r} is not a number", path=path, line=line) from None
