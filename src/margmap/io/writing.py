"""What the writers share: the numbers of variables in files and the tables of discrete leaves."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from margmap.circuit import GAUSSIAN, Circuit, Name
from margmap.errors import FormatError
from margmap.io.reading import MAX_VARIABLE


def numbers_from_one(names: Sequence[Name]) -> list[int]:
    """The numbers of variables in psdd, jpc and vtree files: their names where all are such numbers, else 1, 2, ..."""
    kept = [name for name in names if isinstance(name, int) and 0 < name <= MAX_VARIABLE]
    return kept if len(kept) == len(names) else list(range(1, len(names) + 1))


def refuse_gaussian(circuit: Circuit, form: str) -> None:
    """Refuse continuous leaves in a format that has none."""
    found = np.flatnonzero(circuit.kind == GAUSSIAN)
    if found.size:
        node = int(found[0])
        name = circuit.variables[circuit.var[node]].name
        raise FormatError(
            f"node {node} (gaussian over variable {name!r}) cannot be written as {form}: save the circuit as .json "
            "or .mmz"
        )


def discrete_tables(circuit: Circuit) -> list[list[float]]:
    """For every node the log-probabilities of its values if it is a discrete leaf, else nothing."""
    from margmap.circuit.leaves import leaf_tables

    start, table = leaf_tables(circuit)
    values, bounds = table.tolist(), start.tolist()
    return [values[a:b] for a, b in pairwise(bounds)]
