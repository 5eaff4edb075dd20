"""What the command line takes besides models: lists of variables, evidence, instance files, rows of numbers."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from margmap.errors import FormatError, QueryError
from margmap.foundation.numerals import real_of, whole_of

if TYPE_CHECKING:
    from margmap.circuit import FloatArray, Name, Value


def parse_names(option: str, texts: Sequence[str]) -> list[Name]:
    """Variables from ``--query 3,7 --query x``, as text; a circuit finds a variable named 3 by "3" too."""
    return [_name(option, text, part) for text in texts for part in text.split(",")]


def parse_evidence(option: str, texts: Sequence[str]) -> dict[Name, Value]:
    """Values from ``--evidence 1=0,4=1``."""
    pairs: list[tuple[str, Value]] = []
    for text in texts:
        for part in text.split(","):
            name, equals, value = part.partition("=")
            if not equals or not value.strip() or "=" in value:
                raise QueryError(
                    f"{option} {text!r}: {part.strip()!r} is not of the form variable=value; write 1=0,4=1, "
                    "or use --instance where a name has '=' or ',' in it"
                )
            pairs.append((_name(option, text, name), value))
    return dict(_distinct(pairs, option))


def parse_bytes(option: str, text: str) -> int:
    """A number of bytes from ``500M`` or ``1.5G``; K, M and G are powers of 1024."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(?:([KMG])I?)?B?", text.strip(), re.ASCII | re.IGNORECASE)
    number = int(float(match[1]) * 1024 ** " KMG".index((match[2] or " ").upper())) if match else 0
    if number < 1:
        raise QueryError(f"{option} {text!r}: write a positive number of bytes, such as 500M or 2G")
    return number


def parse_options(texts: Sequence[str], method: str) -> dict[str, Any]:
    """Options of a method from ``--option heuristic=Pruned --option regroup=false``, of the type the method takes."""
    parameters = method_parameters(method)
    pairs: list[tuple[str, Any]] = []
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals or not value:
            raise QueryError(f"--option {text!r} is not of the form NAME=VALUE, such as regroup=false")
        annotation = str(parameters[name].annotation) if name in parameters else ""
        if "Callable" in annotation:
            raise QueryError(f"--option {name!r} is a function: it can be given in Python only")
        pairs.append((name, _option(name, value, annotation)))
    return dict(_distinct(pairs, "--option"))


def method_parameters(method: str) -> dict[str, inspect.Parameter]:
    """What a method can be told, by name; nothing for `auto` and for names that are no method's."""
    from margmap.solve.methods import METHODS

    return METHODS[method].parameters if method in METHODS else {}


def read_instance(path: Path, index: int | None) -> tuple[list[Name] | None, dict[Name, Value]]:
    """The query (None: everything not observed) and the evidence of an instance file."""
    from margmap.io.files import read_lines
    from margmap.io.reading import parse_json

    instance = _choose(parse_json(read_lines(path), path), index, path)
    if not isinstance(instance, dict) or not {"query", "evidence"} & set(instance):
        raise FormatError('not an instance: expected {"query": [...], "evidence": {...}}', path=path)
    query, evidence = instance.get("query"), instance.get("evidence", {})
    if query is not None and not (isinstance(query, list) and all(type(name) in (int, str) for name in query)):
        raise FormatError('"query" must be a list of variables', path=path)
    if not isinstance(evidence, dict) or any(isinstance(x, list | dict) for x in evidence.values()):
        raise FormatError('"evidence" must be an object from variables to numbers or state names', path=path)
    return query, dict(evidence.items())


def read_rows(path: Path) -> FloatArray:
    """A matrix from a file of comma-separated numbers, gzipped or not; an empty cell is a missing value.

    So is an empty line where there is one column; where there are several it is no row.
    """
    import numpy as np

    from margmap.io.files import read_lines

    lines = read_lines(path)
    if not lines[-1]:  # the end of the last line begins no other
        del lines[-1]
    try:
        rows: FloatArray = np.loadtxt(lines, delimiter=",", ndmin=2, comments=None)
    except ValueError:
        rows = np.zeros((0, 0))
    if rows.shape[1] < 2 and len(rows) < len(lines):
        rows = np.array(_scan_rows(lines, path))  # slower, but allows empty cells and knows the line of an error
    return rows


def _scan_rows(lines: Sequence[str], path: Path) -> list[list[float]]:
    rows: list[list[float]] = []
    one = not any("," in line for line in lines)
    for number, line in enumerate(lines, 1):
        if not line.strip() and not one:
            continue
        row = [_cell(cell.strip(), path, number) for cell in line.split(",")]
        if rows and len(row) != len(rows[0]):
            raise FormatError(f"{len(row)} values, but the lines before have {len(rows[0])}", path=path, line=number)
        rows.append(row)
    return rows


def _cell(text: str, path: Path, line: int) -> float:
    try:
        return real_of(text) if text else math.nan
    except ValueError:
        shown = text if len(text) <= 40 else text[:40] + "..."
        raise FormatError(
            f"{shown!r} is not a number: rows are comma-separated numbers without a header", path=path, line=line
        ) from None


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


def _option(name: str, text: str, annotation: str) -> bool | int | float | str:
    """A value of the type that the method's own signature names."""
    types = set(re.findall(r"\w+", annotation))
    if "bool" in types:
        if text.lower() not in ("true", "false"):
            raise QueryError(f"--option {name}={text}: write true or false")
        return text.lower() == "true"
    number: Callable[[str], float] | None = real_of if "float" in types else whole_of if "int" in types else None
    if number is None:
        return text
    try:
        return number(text)
    except ValueError:
        what = "a whole number" if number is whole_of else "a number"
        raise QueryError(f"--option {name}={text}: write {what}") from None


def _name(option: str, text: str, part: str) -> str:
    if not part.strip():
        raise QueryError(f"{option} {text!r}: a variable's name is missing")
    return part.strip()


def _distinct(pairs: Sequence[tuple[Any, Any]], where: str) -> Sequence[tuple[Any, Any]]:
    seen: set[Any] = set()
    for name, _ in pairs:
        if name in seen:
            raise QueryError(f"{where}: {name!r} is given twice")
        seen.add(name)
    return pairs
