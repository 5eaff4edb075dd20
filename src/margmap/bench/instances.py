"""Instances as in the paper: the variables divided at random into query, evidence and hidden, with possible evidence.

**Seeding.** Every instance has a generator of its own, ``numpy.random.default_rng(n)``, where n is the SHA-256 of the
text ``seed|name|query|evidence|hidden|number`` read as a big-endian number; the proportions are written as Python
prints floats, ``name`` is that of the dataset, ``number`` counts the instances of these proportions from 0. So an
instance does not depend on the order in which circuits are taken, nor on how many instances or proportions are asked
for.

The generator first permutes the variables that the circuit mentions (in the circuit's order). The query takes the first
discrete ones, the evidence the next of what is left, and the rest is hidden. How many: the proportion of the number of
variables, rounded down, at least one query variable. Then the evidence is drawn.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from margmap.errors import FormatError, QueryError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from margmap.circuit import Circuit, Name, Value, Variable

#: How much of the variables is query, evidence and hidden; the three add up to 1.
Proportions: TypeAlias = tuple[float, float, float]

#: The paper's two.
PAPER: tuple[Proportions, ...] = ((0.3, 0.3, 0.4), (0.5, 0.2, 0.3))

#: Impossible evidence is drawn again this many times, of a circuit; rows are tried this many.
TRIES = 100


class Instance(NamedTuple):
    """One question, and how it was made."""

    query: list[Name]
    evidence: dict[Name, Value]
    proportions: Proportions
    #: Where the values of the evidence are from: "uniform", "circuit" (a sample), or "row 17" (counted from 0).
    evidence_from: str


class InstanceFile(NamedTuple):
    """The instances of one circuit; ``model`` is its path, relative to the folder of the file if it is not absolute."""

    dataset: str
    model: str
    seed: int | None
    instances: list[Instance]

    def model_path(self, path: str | os.PathLike[str]) -> Path:
        """Where the circuit is if this is what the file ``path`` holds."""
        from margmap.io.formats import model_file

        beside = Path(path).parent / self.model
        own = model_file(Path(self.model))  # the package's, if this is the name of one of its models
        return beside if beside.exists() or own == Path(self.model) else own


class Marks(NamedTuple):
    """What stands for a query variable and for a hidden one in a CSV file of instances."""

    query: str
    hidden: str


#: The marks of the paper's authors (Juice), and those of MaxSPN, which has them the other way round.
JUICE, MAXSPN = Marks("*", "?"), Marks("?", "*")

_VALUES = ("false", "true")


def generate(
    circuit: Circuit,
    proportions: Sequence[Proportions] = PAPER,
    number: int = 10,
    seed: int = 1,
    rows: ArrayLike | None = None,
    name: str = "",
) -> list[Instance]:
    """``number`` instances for each of the proportions, all with evidence of nonzero probability.

    Values of the evidence are uniform. They are drawn again while their probability is zero; if it still is after
    :data:`TRIES` times, or if a continuous variable is among them, they come from one sample of the circuit. With
    ``rows`` (one column a variable, -1 or NaN where missing) they are those of a random row that has them all.
    """
    import numpy as np

    if number < 1:
        raise QueryError(f"{number} instances: ask for at least one")
    if len({str(variable) for variable in circuit.names}) < len(circuit.names):
        raise QueryError("two variables have the same name as text, 3 and '3' say: an instance file cannot tell them")
    data = None
    if rows is not None:
        data = np.atleast_2d(np.asarray(rows))
        if data.ndim != 2 or data.shape[1] != len(circuit.names) or data.dtype.kind not in "biuf":
            raise QueryError(
                f"rows have shape {data.shape}, but the circuit has {len(circuit.names)} variables: "
                "one column of numbers each"
            )
        data = data.astype(np.int8) if data.dtype.kind == "b" else data
    return [
        _draw(circuit, _checked(part), np.random.default_rng(_entropy(seed, name, part, index)), data)
        for part in proportions
        for index in range(number)
    ]


def relative_model(model: str | os.PathLike[str], path: str | os.PathLike[str]) -> str:
    """The path of a circuit as the instance file ``path`` should have it: the two can be moved together.

    A model that comes with the package keeps its name.
    """
    from margmap.io.formats import model_file

    if model_file(Path(model)) != Path(model):
        return os.fspath(model)
    return Path(os.path.relpath(model, Path(path).parent)).as_posix()


def write(path: str | os.PathLike[str], file: InstanceFile) -> None:
    """Write a file that ``margmap solve --instance`` and ``margmap bench run`` read, one line an instance."""
    from margmap.io.files import write_lines

    write_lines(Path(path), _lines(file))


def read(path: str | os.PathLike[str]) -> InstanceFile:
    """Read what :func:`write` wrote."""
    from margmap.io.files import read_lines
    from margmap.io.reading import parse_json

    path = Path(path)
    data = parse_json(read_lines(path), path)
    if not isinstance(data, dict):
        raise FormatError('not a file of instances: expected {"model": ..., "instances": [...]}', path=path)
    seed, entries = data.get("seed"), data.get("instances")
    for field in ("dataset", "model"):
        if not isinstance(data.get(field), str) or not data[field]:
            raise FormatError(f'"{field}" must be text, and not empty', path=path)
    if seed is not None and type(seed) is not int:
        raise FormatError('"seed" must be a whole number', path=path)
    if not isinstance(entries, list) or not entries:
        raise FormatError('"instances" must be a list with at least one entry', path=path)
    instances = [_instance(entry, index, path) for index, entry in enumerate(entries)]
    return InstanceFile(data["dataset"], data["model"], seed, instances)


def write_csv(
    path: str | os.PathLike[str], instances: Sequence[Instance], variables: Sequence[Variable], marks: Marks = JUICE
) -> None:
    """Write the CSV of the paper's authors: a line an instance, a field a variable, in the order of ``variables``.

    An observed variable has ``true`` or ``false``, so all must be binary.
    """
    from margmap.io.files import write_lines

    path = Path(path)
    _require_binary(variables, path)
    known = {str(variable.name): variable for variable in variables}
    lines = []
    for index, instance in enumerate(instances):
        evidence = {str(name): value for name, value in instance.evidence.items()}
        query = {str(name) for name in instance.query}
        if unknown := (query | set(evidence)) - set(known):
            raise FormatError(f"instance {index}: {min(unknown)!r} is not a variable of the circuit", path=path)
        cells = dict.fromkeys(query, marks.query)
        cells |= {name: _VALUES[known[name].code(value)] for name, value in evidence.items()}
        lines.append(",".join(cells.get(str(variable.name), marks.hidden) for variable in variables))
    write_lines(path, lines)


def read_csv(path: str | os.PathLike[str], variables: Sequence[Variable], marks: Marks) -> list[Instance]:
    """Read such a CSV. ``marks`` says whose it is, :data:`JUICE` or :data:`MAXSPN`: the file itself does not tell."""
    from margmap.io.files import read_lines

    path = Path(path)
    _require_binary(variables, path)
    instances = []
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        cells = [cell.strip().lower() for cell in line.split(",")]
        if len(cells) != len(variables):
            raise FormatError(
                f"{len(cells)} fields, but the circuit has {len(variables)} variables", path=path, line=number
            )
        query: list[Name] = []
        evidence: dict[Name, Value] = {}
        for variable, cell in zip(variables, cells, strict=True):
            if cell in _VALUES:
                evidence[variable.name] = variable.label(_VALUES.index(cell))
            elif cell == marks.query:
                query.append(variable.name)
            elif cell != marks.hidden:
                expected = f"true, false, {marks.query} (query) or {marks.hidden} (hidden)"
                raise FormatError(
                    f"variable {variable.name!r}: {cell[:40]!r} is none of {expected}", path=path, line=number
                )
        if not query:
            raise FormatError(f"no variable is marked {marks.query} (query)", path=path, line=number)
        hidden = len(cells) - len(query) - len(evidence)
        parts = len(query) / len(cells), len(evidence) / len(cells), hidden / len(cells)
        instances.append(Instance(query, evidence, parts, f"line {number}"))
    return instances


def _require_binary(variables: Sequence[Variable], path: Path) -> None:
    for variable in variables:
        if variable.cardinality != 2:
            what = "is continuous" if variable.continuous else f"has {variable.cardinality} values"
            raise FormatError(
                f"variable {variable.name!r} {what}, but this CSV knows true and false only: use JSON", path=path
            )


def _entropy(seed: int, name: str, proportions: Proportions, number: int) -> int:
    text = "|".join([str(seed), name, *(repr(float(p)) for p in proportions), str(number)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def _checked(proportions: Sequence[float]) -> Proportions:
    parts = tuple(float(p) for p in proportions)
    if len(parts) != 3 or not all(p >= 0 for p in parts) or not math.isclose(sum(parts), 1, abs_tol=1e-9):
        raise QueryError(f"proportions {parts}: give query, evidence and hidden, three numbers that add up to 1")
    if parts[0] == 0:
        raise QueryError(f"proportions {parts}: a query variable is needed")
    return parts[0], parts[1], parts[2]


def _draw(circuit: Circuit, proportions: Proportions, rng: np.random.Generator, rows: NDArray[Any] | None) -> Instance:
    mentioned = sorted(circuit.mentioned)
    order = [mentioned[i] for i in rng.permutation(len(mentioned)).tolist()]
    # 0.29 of 100 is 29, though the product of the floats is a little less.
    asked, observed = (math.floor(part * len(order) + 1e-9) for part in proportions[:2])
    query = [column for column in order if not circuit.variables[column].continuous][: max(asked, 1)]
    if len(query) < max(asked, 1):
        raise QueryError(
            f"{max(asked, 1)} query variables are wanted, but only {len(query)} are discrete: "
            "ask for a smaller proportion"
        )
    taken = set(query)
    columns = sorted([column for column in order if column not in taken][:observed])
    values, source = _evidence(circuit, columns, rng, rows)
    variables = [circuit.variables[column] for column in columns]
    evidence = {
        variable.name: float(value) if variable.continuous else variable.label(int(value))
        for variable, value in zip(variables, values, strict=True)
    }
    return Instance([circuit.names[column] for column in sorted(query)], evidence, proportions, source)


def _evidence(
    circuit: Circuit, columns: list[int], rng: np.random.Generator, rows: NDArray[Any] | None
) -> tuple[list[float], str]:
    """Values for the columns, of nonzero probability together, and where they are from."""
    from margmap.inference.queries import log_value, sample

    variables = [circuit.variables[column] for column in columns]

    def possible(values: Sequence[float]) -> bool:
        codes = [v.real(x) if v.continuous else v.numbered(x) for v, x in zip(variables, values, strict=True)]
        return log_value(circuit, *circuit.encoded(dict(zip(columns, codes, strict=True)))) > -math.inf

    if rows is not None:
        for row in rng.permutation(rows.shape[0])[:TRIES].tolist():
            values = rows[row, columns].tolist()
            pairs = zip(variables, values, strict=True)
            if all(x == x and (x != -1 or v.continuous) for v, x in pairs) and possible(values):
                return values, f"row {row}"
        raise QueryError(
            f"none of {min(rows.shape[0], TRIES)} random rows has a value for every evidence variable and a "
            "probability above zero in the circuit: are the columns in the circuit's order?"
        )
    if not any(variable.continuous for variable in variables):
        limits = [variable.cardinality for variable in variables]
        for _ in range(TRIES):
            values = rng.integers(limits).tolist() if limits else []
            if possible(values):
                return values, "uniform"
    return sample(circuit, 1, seed=int(rng.integers(1 << 62)))[0, columns].tolist(), "circuit"


def _lines(file: InstanceFile) -> Iterator[str]:
    head = {"dataset": file.dataset, "model": file.model, "seed": file.seed}
    yield json.dumps(head)[:-1] + ', "instances": ['
    last = len(file.instances) - 1
    for index, instance in enumerate(file.instances):
        yield json.dumps(instance._asdict(), allow_nan=False) + ("," if index < last else "")
    yield "]}"


def _instance(entry: object, index: int, path: Path) -> Instance:
    def wrong(message: str) -> FormatError:
        return FormatError(f"instance {index}: {message}", path=path)

    if not isinstance(entry, dict):
        raise wrong('expected {"query": [...], "evidence": {...}, ...}')
    query, evidence, source = entry.get("query"), entry.get("evidence"), entry.get("evidence_from", "given")
    parts = entry.get("proportions")
    if not isinstance(query, list) or not query or not all(type(name) in (int, str) for name in query):
        raise wrong('"query" must be a list of variables, and not empty')
    if not isinstance(evidence, dict) or not all(type(value) in (int, float, str) for value in evidence.values()):
        raise wrong('"evidence" must be an object from variables to numbers or state names')
    names = {str(name) for name in query}
    if len(names) < len(query) or names & set(evidence):
        raise wrong("a variable is queried twice, or queried and observed")
    if not isinstance(source, str):
        raise wrong('"evidence_from" must be text')
    if not isinstance(parts, list) or not all(type(part) in (int, float) for part in parts):
        raise wrong('"proportions" must be three numbers')
    try:
        return Instance(query, evidence, _checked(parts), source)
    except QueryError as error:
        raise wrong(str(error)) from None
