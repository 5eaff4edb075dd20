"""Records of runs: JSON lines, one for each finished run, as ``margmap bench run`` appends them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from margmap.errors import FormatError, QueryError
from margmap.foundation.numerals import real_of


class Run(NamedTuple):
    """One method on one instance, as far as a report needs it."""

    dataset: str
    instances: str
    instance: int
    proportions: tuple[float, ...]
    label: str
    status: str
    method: str
    options: Mapping[str, Any]
    edges: int | None
    variables: int | None
    time_limit: float | None
    memory_limit: int | None
    error: str | None
    log_prob: float | None
    log_upper: float | None
    gap: float | None
    seconds: float | None
    computing: bool
    wall_seconds: float | None
    peak_bytes: int | None
    trace: list[dict[str, Any]]
    margmap: str
    host: Mapping[str, Any]

    @property
    def key(self) -> tuple[str, int]:
        """The instance: its file and its number there."""
        return self.instances, self.instance

    @property
    def place(self) -> str:
        """The instance for people: the name of its file, without its folder, and its number there."""
        return f"{PurePath(self.instances).name} #{self.instance}"

    @property
    def solved(self) -> bool:
        """Whether the run ended with a proof."""
        return self.status == "optimal"

    @property
    def ended_badly(self) -> bool:
        """Whether the run failed or was killed."""
        return self.status in ("failed", "killed")

    @property
    def counted(self) -> float:
        """The seconds that averages take: of solving, or the time limit if the run was not solved, whatever ended it.

        Without a limit that is as long as the run lasted.
        """
        if self.solved:
            return self.seconds or 0.0
        lasted = max(self.seconds or 0.0, self.wall_seconds or 0.0)
        return lasted if self.time_limit is None else self.time_limit

    def within(self, seconds: float) -> Run:
        """The run as it would have been with a shorter limit: what was not over by then is unsolved, without bounds."""
        if not self.solved and self.time_limit is not None and self.time_limit < seconds:
            told = f"{self.label} on {self.place} had {self.time_limit:g} s"
            raise QueryError(f"{told}, which does not tell what becomes of it within {seconds:g} s")
        cut = self._replace(time_limit=seconds)
        if self.seconds is not None and (self.seconds <= seconds or self.time_limit == seconds):
            return cut
        return cut._replace(
            status="time_limit", seconds=seconds, log_prob=None, log_upper=None, gap=None, trace=[], error=None
        )


class Records(NamedTuple):
    """The runs of a file, and how many of its lines were torn."""

    runs: list[Run]
    torn: int


def read_records(path: str | os.PathLike[str]) -> Records:
    """The runs of a file. A line that is no JSON is what a killed writer leaves: it is skipped and counted."""
    from margmap.io.files import read_lines

    path = Path(path)
    runs, torn = [], 0
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            torn += 1
            continue
        runs.append(_run(data, path, number))
    if not runs:
        raise FormatError("no record of a finished run in this file", path=path)
    return Records(latest(runs), torn)


def runs_of(records: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Runs from records that are in memory."""
    return latest([_run(record, "records", number) for number, record in enumerate(records, 1)])


def latest(runs: Iterable[Run]) -> list[Run]:
    """The runs without those that were done again later: one for each instance and label."""
    return list({(run.key, run.label): run for run in runs}.values())


# The fields that a record must have, and what they must be; then numbers, numbers that are not infinite, whole numbers.
_NEEDED: dict[str, tuple[type, str]] = {
    "dataset": (str, "text"),
    "instances": (str, "text"),
    "instance": (int, "a whole number"),
    "proportions": (list, "a list of numbers"),
    "label": (str, "text"),
    "status": (str, "text"),
}
_NUMBERS = ("log_prob", "log_upper", "gap")
_FINITE = ("time_limit", "seconds", "wall_seconds")
_WHOLE = ("edges", "variables", "memory_limit", "peak_bytes")


def _run(data: Any, path: object, line: int) -> Run:
    def wrong(what: str) -> FormatError:
        return FormatError(f"not the record of a run: {what}", path=path, line=line)

    def number(field: str, value: Any) -> float | None:
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float, str, type(None))):
                raise ValueError
            # "-inf" is how margmap's JSON has minus infinity.
            given = math.nan if value is None else real_of(value) if isinstance(value, str) else float(value)
        except ValueError:
            raise wrong(f'"{field}" must be a number') from None
        return None if math.isnan(given) or (math.isinf(given) and field not in _NUMBERS) else given

    if not isinstance(data, Mapping):
        raise wrong("expected an object")
    for field, (kind, what) in _NEEDED.items():
        if not isinstance(data.get(field), kind) or isinstance(data[field], bool):
            raise wrong(f'"{field}" must be {what}')
    trace = data.get("trace") or []
    if not isinstance(trace, list) or not all(isinstance(row, dict) for row in trace):
        raise wrong('"trace" must be a list of objects')
    found: dict[str, Any] = {field: data[field] for field in _NEEDED}
    found |= {field: number(field, data.get(field)) for field in (*_NUMBERS, *_FINITE, *_WHOLE)}
    found |= {field: int(found[field]) for field in _WHOLE if found[field] is not None}
    found |= {field: str(data.get(field) or "") for field in ("method", "margmap", "error")}
    for field in ("options", "host"):
        given = data.get(field) or {}
        found[field] = given if isinstance(given, Mapping) else {field: given}
    found["computing"] = data.get("computing") is True
    found["proportions"] = tuple(number("proportions", part) or 0.0 for part in data["proportions"])
    return Run(**found | {"error": found["error"] or None, "trace": trace})
