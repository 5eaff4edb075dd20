"""Records of runs: JSON lines, one for each finished run, as ``margmap bench run`` appends them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from margmap.errors import FormatError
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
    def counted(self) -> float:
        """The seconds that averages take: of solving, or the time limit if the run was not solved, whatever ended it.

        Without a limit that is as long as the run lasted.
        """
        if self.solved:
            return self.seconds or 0.0
        lasted = max(self.seconds or 0.0, self.wall_seconds or 0.0)
        return lasted if self.time_limit is None else self.time_limit


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


def torn_end(content: bytes) -> int:
    """Where the whole lines of a file end: what comes after its last line break was cut off."""
    return content.rfind(b"\n") + 1


def runs_of(records: Iterable[Mapping[str, Any]]) -> list[Run]:
    """Runs from records that are in memory."""
    return latest([_run(record, "records", number) for number, record in enumerate(records, 1)])


def latest(runs: Iterable[Run]) -> list[Run]:
    """The runs without those that were done again later: one for each instance and label."""
    return list({(run.key, run.label): run for run in runs}.values())


def _run(data: Any, path: object, line: int) -> Run:
    if not isinstance(data, Mapping):
        raise FormatError("not the record of a run: expected an object", path=path, line=line)

    def need(field: str, kind: type, what: str) -> Any:
        value = data.get(field)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise FormatError(f'not the record of a run: "{field}" must be {what}', path=path, line=line)
        return value

    def number(field: str, value: Any = None) -> float | None:
        value = data.get(field) if value is None else value
        if value is None:
            return None
        try:
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                raise ValueError
            # "-inf" is how margmap's JSON has minus infinity.
            given = real_of(value) if isinstance(value, str) else float(value)
        except ValueError:
            raise FormatError(f'not the record of a run: "{field}" must be a number', path=path, line=line) from None
        return None if math.isnan(given) else given

    def finite(field: str) -> float | None:
        value = number(field)
        return None if value is None or math.isinf(value) else value

    def whole(field: str) -> int | None:
        value = finite(field)
        return None if value is None else int(value)

    def text(field: str) -> str:
        value = data.get(field)
        return "" if value is None else str(value)

    trace = data.get("trace") or []
    if not isinstance(trace, list) or not all(isinstance(row, dict) for row in trace):
        raise FormatError('not the record of a run: "trace" must be a list of objects', path=path, line=line)
    parts = need("proportions", list, "a list of numbers")
    options, host = data.get("options") or {}, data.get("host") or {}
    return Run(
        dataset=need("dataset", str, "text"),
        instances=need("instances", str, "text"),
        instance=need("instance", int, "a whole number"),
        proportions=tuple(number("proportions", part) or 0.0 for part in parts),
        label=need("label", str, "text"),
        status=need("status", str, "text"),
        method=text("method"),
        options=options if isinstance(options, Mapping) else {"options": options},
        edges=whole("edges"),
        variables=whole("variables"),
        time_limit=finite("time_limit"),
        memory_limit=whole("memory_limit"),
        error=text("error") or None,
        log_prob=number("log_prob"),
        log_upper=number("log_upper"),
        gap=number("gap"),
        seconds=finite("seconds"),
        wall_seconds=finite("wall_seconds"),
        peak_bytes=whole("peak_bytes"),
        trace=trace,
        margmap=text("margmap"),
        host=host if isinstance(host, Mapping) else {"host": host},
    )
