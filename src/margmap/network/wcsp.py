"""A maximum over a product of tables as a cost function network, solved exactly by toulbar2.

Where all hidden variables can be summed out first (:mod:`margmap.network.partial_sum`), marginal MAP is the search for
the best state of a product of tables: a weighted constraint satisfaction problem (WCSP) with costs -log. toulbar2
(Cooper et al., "Soft arc consistency revisited", AIJ 2010; Allouche et al., "Anytime hybrid best-first search with tree
decomposition for weighted CSP", CP 2015) proves optima with bounds far stronger than mini-buckets. It comes with the
package ``pytoulbar2`` (the extra ``networks``).

It runs in a process of its own, which is killed at a limit or at Ctrl-C, and whose output is read as it goes: every new
solution and every new bound. Its costs are whole numbers. They are rounded *down* here, so that its bound, turned back,
is an upper bound as it is; states are scored by the caller.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from margmap.circuit import LongArray
from margmap.foundation.pairs import EPS
from margmap.network.log_model import LogModel, largest_finite

#: Costs in all may come to this many units, so that toulbar2's 64-bit numbers do not overflow.
MOST_UNITS = 2.0**58

#: Tables with more entries in all are not written to a file for toulbar2.
MOST_ENTRIES = 4_000_000

_SOLUTION = re.compile(r"^New solution: (\d+) ")
_BOUND = re.compile(r"^(?:Optimality gap|Initial lower and upper bounds|Preprocessing.*bounds): \[(\d+), ?(\d+)\]")


def available() -> bool:
    """Whether toulbar2 can be run here."""
    return importlib.util.find_spec("pytoulbar2") is not None


class Costs(NamedTuple):
    """A model as whole costs: the log of a state is at most ``log_top - unit * cost``."""

    variables: tuple[int, ...]
    tables: tuple[LongArray, ...]
    #: A state that a table rules out has at least this cost.
    forbidden: int
    unit: float
    log_top: float

    def log_upper(self, cost: int) -> float:
        """No state of at least this cost has a larger log value."""
        return self.log_top - cost * self.unit * (1 - 4 * EPS)


def costs(model: LogModel, precision: float) -> Costs:
    """The costs of a model without hidden variables; rounding takes at most ``precision`` nats from each state."""
    if model.hidden:
        raise ValueError("a cost function network has no hidden variables")
    span, log_top = 1.0, model.log_constant
    tops = [float(factor.table.max()) for factor in model.factors]
    for factor, top in zip(model.factors, tops, strict=True):
        span += largest_finite((factor.table - top).reshape(-1))
        log_top += top
    unit = max(precision / (3 * len(tops) + 1), span / MOST_UNITS)
    tables, most = [], 1
    for factor, top in zip(model.factors, tops, strict=True):
        possible = np.isfinite(factor.table)
        cost = np.zeros(factor.table.shape, dtype=np.int64)
        cost[possible] = np.maximum(np.floor((top - factor.table[possible]) / unit) - 1, 0).astype(np.int64)
        most += int(cost.max())
        cost[~possible] = -1
        tables.append(cost)
    for cost in tables:
        cost[cost < 0] = most
    variables = tuple(sorted({v for factor in model.factors for v in factor.scope}))
    rounding = model.rounding + 4 * EPS * (abs(log_top) + sum(abs(top) for top in tops))
    return Costs(variables, tuple(tables), most, unit, log_top + rounding)


def cost_of(model: LogModel, found: Costs, state: LongArray) -> int:
    """The cost of a state."""
    pairs = zip(model.factors, found.tables, strict=True)
    return sum(int(table[tuple(state[v] for v in factor.scope)]) for factor, table in pairs)


def written(model: LogModel, found: Costs, below: int) -> str:
    """The text of a ``.wcsp`` file that asks for a state of a cost under ``below``."""
    place = {v: i for i, v in enumerate(found.variables)}
    sizes = [model.cardinality[v] for v in found.variables]
    lines = [f"margmap {len(sizes)} {max(sizes, default=1)} {len(found.tables)} {below}", _words(sizes)]
    for factor, table in zip(model.factors, found.tables, strict=True):
        index = np.indices(table.shape).reshape(table.ndim, -1)
        rows = np.vstack([index, np.minimum(table, below).reshape(1, -1)]).T
        lines.append(f"{table.ndim} {_words([place[v] for v in factor.scope])} 0 {len(rows)}")
        lines += [_words(row) for row in rows.tolist()]
    return "\n".join(lines) + "\n"


def _words(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


class Prepared(NamedTuple):
    """A problem for toulbar2 as text."""

    model: LogModel
    costs: Costs
    #: Only states of a smaller cost are looked for.
    below: int
    text: str


def prepare(model: LogModel, incumbent: LongArray | None, precision: float) -> Prepared:
    """The search for something better than the incumbent, if there is one, in a model without hidden variables."""
    found = costs(model, precision)
    below = found.forbidden
    if incumbent is not None:
        below = min(below, cost_of(model, found, incumbent))
    return Prepared(model, found, below, written(model, found, below))


class Toulbar2:
    """A running search. :meth:`poll` tells what it has found so far; :meth:`close` ends it, however far it is.

    The process ends with the thread that makes this.
    """

    def __init__(self, prepared: Prepared, room: int = 0) -> None:
        self.model, self.costs, self.below, text = prepared
        #: The best state found here, if any, and whether the search was complete.
        self.state: LongArray | None = None
        self.best = self.below
        self.done = self.below == 0
        self._bound = 0
        self._values_follow = False
        self._lines: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._file: str | None = None
        if not self.done:
            handle, self._file = tempfile.mkstemp(suffix=".wcsp", prefix="margmap-")
            with os.fdopen(handle, "w") as file:
                file.write(text)
            program = str(Path(__file__).with_name("wcsp_child.py"))
            self._process = subprocess.Popen(
                [sys.executable, program, self._file, str(room)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
            self._listener.start()

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.append(line)

    @property
    def running(self) -> bool:
        """Whether the search goes on."""
        return not self.done and self._process is not None and self._process.poll() is None

    @property
    def log_upper(self) -> float:
        """No state, found or not, has a larger log value; that of the incumbent counts among them."""
        return self.costs.log_upper(self.best if self.done else min(self._bound, self.best))

    def poll(self) -> bool:
        """Take in what it has said since; whether that was anything."""
        said = False
        while self._lines:
            line = self._lines.pop(0)
            said = True
            if self._values_follow:
                self._values_follow = False
                self._take(line)
            elif match := _SOLUTION.match(line):
                self.best = min(self.best, int(match[1]))
                self._values_follow = True
            elif match := _BOUND.match(line):
                self._bound = max(self._bound, int(match[1]))
            elif line.startswith("DONE"):
                self.done = True
        return said

    def _take(self, line: str) -> None:
        words = line.split()
        if len(words) != len(self.costs.variables):
            raise ValueError(f"toulbar2 printed {len(words)} values for {len(self.costs.variables)} variables")
        state = np.zeros(len(self.model.cardinality), dtype=np.int64)
        state[list(self.costs.variables)] = [int(word) for word in words]
        self.state = state

    def close(self) -> None:
        """Kill the process if it still runs, and remove its file."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._listener.join()
            if self._process.stdout is not None:
                self._process.stdout.close()
        if self._file is not None and os.path.exists(self._file):
            os.unlink(self._file)
