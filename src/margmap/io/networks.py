"""What the readers of networks share: tables become a network, and an error names the line of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from margmap.circuit import Variable
from margmap.errors import FormatError, StructureError
from margmap.network.network import FactorError, Kind, Network


def network_of(
    variables: Sequence[Variable], factors: Iterable[Any], kind: Kind, path: Path, line_of: Callable[[int], int]
) -> Network:
    """A network of a file; ``line_of`` says where the table of a number is, for an error about that table."""
    try:
        return Network(variables, factors, kind)
    except StructureError as error:
        line = line_of(error.factor) if isinstance(error, FactorError) else None
        raise FormatError(str(error), path=path, line=line) from error
