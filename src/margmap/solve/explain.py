"""The most relevant explanation of evidence: the partial assignment with the largest generalised Bayes factor.

For an assignment x of some of the candidates, GBF(x; e) = p(e | x) / p(e | not x). (C. Yuan, H. Lim and T.-C. Lu, *Most
relevant explanation in Bayesian networks*, JAIR 2011.) With a = p(x, e) and b = p(x) that is

    a (1 - b) / (b (p(e) - a)),

and both come from one circuit. An assignment y that extends x has p(e | not y) >= p(e) - p(y, e) >= p(e) - a, and
p(e | y) <= r(x), the largest ratio of the circuit's value with the evidence to that without it, over all states that
agree with x: at a product the ratios of its children multiply, at a sum the ratio is at most that of its best child
(a mediant), and a leaf that does not agree with x takes no part. So GBF(y) <= r(x) / (p(e) - a): the bound of a branch
and bound over assignments, the largest bound first, each extended only by later candidates.

Factors can be infinite: where p(not x | e) = 0 and p(not x) > 0. Such assignments come first, among them those of fewer
variables, and of equally many the one with the larger p(e | x). An assignment that is certain without evidence explains
nothing and has factor 1; one that is impossible has none. Of finite factors that are equal, the smaller assignment is
better.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from margmap.circuit import GAUSSIAN, PRODUCT, SUM, Circuit, FloatArray, IntArray, Name
from margmap.circuit.evidence import names_of
from margmap.circuit.leaves import leaf_tables
from margmap.circuit.model import as_model
from margmap.circuit.observation import Between, Observation, Weights
from margmap.circuit.properties import require_tractable
from margmap.errors import ImpossibleEvidenceError, QueryError
from margmap.foundation.html import facts, section, table
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits, Status
from margmap.foundation.pairs import log_of
from margmap.foundation.wording import listed, spelled
from margmap.inference.networks import kept_circuit
from margmap.inference.passes import leaf_value, log_values
from margmap.inference.scaled import Scaled, scaled
from margmap.inference.soft import conditioned_circuit
from margmap.network.compile import compile as compile_network
from margmap.network.network import Network
from margmap.solve.question import check_limits

#: Assignments that are extended before the clock is looked at and bounds are told.
_AT_ONCE = 64

# Two log factors closer than this are the same: then the smaller assignment is better.
_SAME = 1e-9


class RankedExplanation(NamedTuple):
    """One of the best explanations."""

    state: dict[Name, int | str]
    #: log GBF, which may be infinite.
    log_factor: float
    #: p(x | e) and p(x).
    posterior: float
    prior: float


@dataclass(frozen=True)
class Explanation:
    """The most relevant explanation; no other has a larger log factor than ``log_upper``."""

    status: Status
    state: dict[Name, int | str] | None
    log_factor: float
    log_upper: float
    top: tuple[RankedExplanation, ...]
    #: How many assignments were looked at.
    looked_at: int
    seconds: float

    @property
    def factor(self) -> float:
        """The generalised Bayes factor itself; infinite if it is too large for a float."""
        return math.exp(self.log_factor) if self.log_factor < 700 else math.inf

    def _repr_html_(self) -> str:
        known = {"status": spelled(self.status), "Bayes factor": self.factor, "looked at": self.looked_at}
        rows = [(i, listed(one.state), one.log_factor) for i, one in enumerate(self.top, 1)]
        header = ("rank", "explanation", "log of the Bayes factor")
        return section(facts("Most relevant explanation", known), table(header, rows, "Explanations", most=60))


def explain(
    model: object,
    evidence: Mapping[Any, Observation] | None = None,
    candidates: Sequence[Name] | None = None,
    max_size: int | None = None,
    *,
    k: int = 1,
    time_limit: float | None = None,
) -> Explanation:
    """Which values of some of the ``candidates`` explain the evidence best, by the generalised Bayes factor.

    Without ``candidates`` all discrete variables that are not observed are. ``max_size`` is the most variables that an
    explanation may have; ``k`` asks for so many best ones. Stopped by ``time_limit`` (in seconds), the best so far is
    there with a bound of all others.
    """
    check_limits(time_limit, k)
    if max_size is not None and (isinstance(max_size, bool) or not isinstance(max_size, int) or max_size < 1):
        raise QueryError(f"max_size={max_size!r}: give a whole number of at least 1, or None")
    limits = Limits(time_limit)
    with limits.catching_interrupts(), limits.not_counting_compilation():
        return _Search(as_model(model), evidence, candidates, max_size, k, limits).run()


class _Node(NamedTuple):
    """An assignment, as places among the candidates and values, and p(not x | e) and p(not x)."""

    assigned: tuple[tuple[int, int], ...]
    not_posterior: float
    not_prior: float


class _Search:
    def __init__(
        self,
        model: Circuit | Network,
        evidence: Mapping[Any, Observation] | None,
        candidates: Sequence[Name] | None,
        max_size: int | None,
        k: int,
        limits: Limits,
    ) -> None:
        self.begun, self.k, self.limits = time.perf_counter(), k, limits
        if isinstance(model, Network):
            model = kept_circuit(model, None) or compile_network(model)
        require_tractable(model)
        observed = model.observed(evidence)
        if not observed:
            raise QueryError("there is no evidence to explain: give some")
        columns = self._columns(model, candidates, observed)
        self.columns, self.model = columns, model
        self.max_size = len(columns) if max_size is None else min(max_size, len(columns))
        #: Without the evidence, and with it.
        circuit, conditioned = conditioned_circuit(model, observed)
        self.plain, self.with_evidence = scaled(model), scaled(circuit)
        self.codes, self.reals = model.encoded({})
        self.seen_codes, self.seen_reals = circuit.encoded(conditioned.observed)
        self.power = conditioned.log_factor
        self.leaf_ratio = _leaf_ratios(model, circuit, observed, conditioned.observed)
        log_joint, log_prior = self._logs([()])
        #: The logarithms of the total mass, and of p(e).
        self.log_all, self.log_evidence = float(log_prior[0]), float(log_joint[0])
        if self.log_evidence == -math.inf:
            raise ImpossibleEvidenceError("the evidence has probability 0: nothing explains it")
        self.top: list[tuple[tuple[float, int, float], tuple[tuple[int, int], ...], float, float, float]] = []
        self.looked_at = 0

    @staticmethod
    def _columns(model: Circuit, candidates: Sequence[Name] | None, observed: Mapping[int, Any]) -> list[int]:
        if candidates is None:
            return [c for c in sorted(model.mentioned) if c not in observed and not model.variables[c].continuous]
        columns = model.query_columns(names_of(candidates, "candidates"), observed)
        for column in columns:
            if model.variables[column].continuous or column not in model.mentioned:
                raise QueryError(f"variable {model.names[column]!r} cannot explain: it is continuous or in no leaf")
        if not columns:
            raise QueryError("candidates=[]: name the variables that may explain the evidence")
        return columns

    def run(self) -> Explanation:
        heap: list[tuple[float, int, _Node]] = [(-math.inf, 0, _Node((), 0.0, 0.0))]
        count, status = 0, "optimal"
        while heap and -heap[0][0] > self._floor():
            if self.limits.interrupted or self.limits.late(0.0):
                status = "interrupted" if self.limits.interrupted else "time_limit"
                break
            # Some at once, since many rows are evaluated faster than one by one.
            popped = [heapq.heappop(heap) for _ in range(min(_AT_ONCE, len(heap)))]
            parents = [node for bound, _, node in popped if self._worth(node.assigned, -bound)]
            children = [child for parent in parents for child in self._extended(parent.assigned)]
            if not children:
                continue
            posterior, prior = (np.exp(np.minimum(logs, 0.0)) for logs in self._relative(children))
            not_posterior, not_prior = self._complements(parents, posterior, prior)
            log_ratio = self._ratios(children)
            self.looked_at += len(children)
            for i, child in enumerate(children):
                if prior[i] == 0:
                    continue
                node = _Node(child, float(not_posterior[i]), float(not_prior[i]))
                self._keep(node, float(posterior[i]), float(prior[i]))
                bound = self._bound(node, float(log_ratio[i]))
                if posterior[i] > 0 and self._worth(child, bound):
                    count += 1
                    heapq.heappush(heap, (-bound, count, node))
        top = tuple(self._ranked(*one[1:]) for one in self.top)
        best = top[0].log_factor if top else -math.inf
        log_upper = max(best, -heap[0][0]) if status != "optimal" else best
        state = top[0].state if top else None
        done: Status = status  # type: ignore[assignment]
        return Explanation(done, state, best, log_upper, top, self.looked_at, time.perf_counter() - self.begun)

    def _complements(
        self, parents: Sequence[_Node], posterior: FloatArray, prior: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """p(not x | e) and p(not x) of the extensions of some assignments, as sums without a difference.

        Whatever is not x is not its parent, or is its parent with another value of the last candidate.
        """
        out = np.empty_like(posterior), np.empty_like(prior)
        at = 0
        for parent in parents:
            for place in range(_first(parent.assigned), len(self.columns)):
                size = self.model.variables[self.columns[place]].cardinality
                for found, base, numbers in zip(out, parent[1:], (posterior, prior), strict=True):
                    part = numbers[at : at + size]
                    before, behind = np.zeros(size), np.zeros(size)
                    before[1:], behind[:-1] = np.cumsum(part)[:-1], np.cumsum(part[::-1])[::-1][1:]
                    found[at : at + size] = base + before + behind
                at += size
        return out

    def _extended(self, parent: tuple[tuple[int, int], ...]) -> list[tuple[tuple[int, int], ...]]:
        """The assignments with one later candidate more."""
        return [
            (*parent, (place, x))
            for place in range(_first(parent), len(self.columns))
            for x in range(self.model.variables[self.columns[place]].cardinality)
        ]

    def _rows(self, children: Sequence[tuple[tuple[int, int], ...]], codes: IntArray) -> IntArray:
        rows = np.repeat(codes[:, None], len(children), axis=1)
        for i, child in enumerate(children):
            for place, x in child:
                rows[self.columns[place], i] = x
        return rows

    def _logs(self, children: Sequence[tuple[tuple[int, int], ...]]) -> tuple[FloatArray, FloatArray]:
        """log p(x, e) and log p(x) of some assignments, before they are divided by the total mass."""
        found = []
        for s, codes, reals in (
            (self.with_evidence, self.seen_codes, self.seen_reals),
            (self.plain, self.codes, self.reals),
        ):
            out = np.empty(len(children))
            log_values(s, self._rows(children, codes), np.repeat(reals[:, None], len(children), axis=1), out)
            found.append(out)
        return found[0] + self.power, found[1]

    def _relative(self, children: Sequence[tuple[tuple[int, int], ...]]) -> tuple[FloatArray, FloatArray]:
        """log p(x | e) and log p(x) of some assignments."""
        log_joint, log_prior = self._logs(children)
        return log_joint - self.log_evidence, log_prior - self.log_all

    def _ratios(self, children: Sequence[tuple[tuple[int, int], ...]]) -> FloatArray:
        """For each assignment the logarithm of the largest p(e | y) of those that extend it."""
        assigned = self._rows(children, np.full(len(self.codes), -1, dtype=np.int32))
        return _largest_ratios(self.plain, self.leaf_ratio, assigned)

    def _bound(self, node: _Node, log_ratio: float) -> float:
        """A bound on the log factor of every assignment that extends one."""
        if node.not_posterior == 0:
            return math.inf
        return log_ratio - (self.log_evidence - self.log_all + math.log(node.not_posterior)) + _SAME

    def _keep(self, node: _Node, posterior: float, prior: float) -> None:
        log_factor = _log_factor(node, posterior, prior)
        rank = (-_rounded(log_factor), len(node.assigned), prior if log_factor == math.inf else 0.0)
        if len(self.top) == self.k and rank >= self.top[-1][0]:
            return
        self.top.append((rank, node.assigned, log_factor, posterior, prior))
        self.top.sort(key=lambda one: one[:2])
        del self.top[self.k :]

    def _floor(self) -> float:
        """What a bound must be above to matter: infinite factors are still compared among themselves."""
        if len(self.top) < self.k:
            return -math.inf
        log_factor = self.top[-1][2]
        return math.nextafter(math.inf, 0) if log_factor == math.inf else log_factor

    def _worth(self, parent: tuple[tuple[int, int], ...], bound: float) -> bool:
        """Whether an assignment that extends this one can be among the best."""
        if len(parent) >= self.max_size or not bound > self._floor():
            return False
        last = self.top[-1] if len(self.top) == self.k else None
        return last is None or last[2] < math.inf or len(parent) < len(last[1])

    def _ranked(
        self, child: tuple[tuple[int, int], ...], log_factor: float, posterior: float, prior: float
    ) -> RankedExplanation:
        variables = [self.model.variables[self.columns[place]] for place, _ in child]
        state = {v.name: v.label(x) for v, (_, x) in zip(variables, child, strict=True)}
        return RankedExplanation(state, log_factor, posterior, prior)


def _first(assigned: tuple[tuple[int, int], ...]) -> int:
    """The place of the first candidate that an assignment may be extended by."""
    return assigned[-1][0] + 1 if assigned else 0


def _rounded(value: float) -> float:
    """Equal numbers for what differs by rounding only."""
    return value if math.isinf(value) else round(value / _SAME) * _SAME


def _log_factor(node: _Node, posterior: float, prior: float) -> float:
    """log GBF, from p(x | e) and p(x) and what they leave."""
    if node.not_prior == 0:
        return 0.0
    if posterior == 0:
        return -math.inf
    if node.not_posterior == 0:
        return math.inf
    return math.log(posterior) - math.log(prior) + math.log(node.not_prior) - math.log(node.not_posterior)


def _leaf_ratios(
    model: Circuit, circuit: Circuit, observed: Mapping[int, Any], single: Mapping[int, Any]
) -> FloatArray:
    """For each leaf the logarithm of its value with the evidence over that without; 0 for all other nodes."""
    ratio = _single_ratios(scaled(model), *model.encoded(single), *model.encoded({}))
    log_start, log_table = leaf_tables(model)
    for column, value in observed.items():
        leaves = np.flatnonzero((model.kind < PRODUCT) & (model.var == column))
        if isinstance(value, Between):
            ratio[leaves] = circuit.param[circuit.param_start[leaves]]
        elif isinstance(value, Weights):
            with np.errstate(divide="ignore", invalid="ignore"):
                table = log_table[log_start[leaves][:, None] + np.arange(len(value.values))]
                both = np.logaddexp.reduce(table + np.log(np.array(value.values)), axis=1)
                found = both - np.logaddexp.reduce(table, axis=1)
            ratio[leaves] = np.where(np.isnan(found), -np.inf, found)
    return ratio


@kernel
def _single_ratios(
    s: Scaled, codes: IntArray, reals: FloatArray, no_codes: IntArray, no_reals: FloatArray
) -> FloatArray:
    ratio = np.zeros(s.kind.size)
    for n in range(s.kind.size):
        if s.kind[n] < PRODUCT:
            seen, power = leaf_value(s, n, codes, reals)
            mass, mass_power = leaf_value(s, n, no_codes, no_reals)
            ratio[n] = log_of(seen / mass, power - mass_power) if mass > 0 else -np.inf
    return ratio


@kernel
def _largest_ratios(s: Scaled, leaf_ratio: FloatArray, assigned: IntArray) -> FloatArray:
    """The bound r(x) of each column of ``assigned``, which has -1 for variables without a value."""
    out, ratio = np.empty(assigned.shape[1]), np.empty(s.kind.size)
    for row in range(assigned.shape[1]):
        for n in range(s.kind.size):
            if s.kind[n] == PRODUCT:
                ratio[n] = 0.0
                for e in range(s.start[n], s.start[n + 1]):
                    ratio[n] += ratio[s.child[e]]
            elif s.kind[n] == SUM:
                ratio[n] = -np.inf
                for e in range(s.start[n], s.start[n + 1]):
                    if s.weight[e] > 0:
                        ratio[n] = max(ratio[n], ratio[s.child[e]])
            else:
                x = assigned[s.var[n], row]
                impossible = x >= 0 and s.kind[n] != GAUSSIAN and s.table[s.table_start[n] + x] == 0
                ratio[n] = -np.inf if impossible else leaf_ratio[n]
        out[row] = ratio[s.kind.size - 1]
    return out
