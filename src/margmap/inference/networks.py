"""Likelihoods, marginals, posteriors and samples of a network.

A network whose circuit is small is compiled once and kept. A larger one is eliminated for each question, with the
evidence put in first. The messages of all buckets are kept, and one pass back down gives what is conditioned on them:

    p(x | s, evidence) = W[s, x] / m[s],        p(s, x | evidence) = p(s | evidence) p(x | s, evidence),

where p(s | evidence) is a sum over the table of the bucket that the message went to, since that table is over s too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from weakref import WeakKeyDictionary

import numpy as np

from margmap.circuit import Circuit, FloatArray, IntArray, LongArray
from margmap.errors import ImpossibleEvidenceError, LimitError
from margmap.network.compile import (
    ENTRIES_PER_EDGE,
    bucket_table,
    checked_limit,
    log_tables,
    plans,
    predict,
    sum_out,
    too_large,
)
from margmap.network.compile import compile as compile_network
from margmap.network.network import Network
from margmap.network.relevance import Problem

#: A network with at most this many table entries is compiled once and kept, and at most so many networks at a time.
KEPT_ENTRIES = 1 << 20
KEPT_NETWORKS = 8

# The circuit of each network asked lately, None if it is too large to keep. A network that is gone takes its own along.
_kept: WeakKeyDictionary[Network, Circuit | None] = WeakKeyDictionary()
_lock = Lock()


def kept_circuit(network: Network, max_edges: int | None) -> Circuit | None:
    """The circuit for all questions if it is small, made when first asked for."""
    limit = checked_limit(max_edges)
    with _lock:
        if network in _kept:
            circuit = _kept[network]
            return circuit if circuit is None or circuit.num_edges <= limit else None
    plan = predict(network)
    small = plan.entries <= KEPT_ENTRIES
    circuit = compile_network(network, plan=plan) if small and network.variables else None
    with _lock:
        while len(_kept) >= KEPT_NETWORKS:
            _kept.pop(next(iter(_kept)), None)
        _kept[network] = circuit
    return circuit if circuit is None or circuit.num_edges <= limit else None


def log_evidence(network: Network, observed: Mapping[int, int], max_edges: int | None = None) -> float:
    """log p(observed), -inf if it is impossible; without any, the log of the sum over all states."""
    try:
        return _Tree(network, [], observed, max_edges).log_total
    except ImpossibleEvidenceError:
        return -np.inf


def posterior_arrays(
    network: Network, observed: Mapping[int, int], max_edges: int | None = None
) -> dict[int, FloatArray]:
    """p(value | observed) of every column that is not observed."""
    return _Tree(network, None, observed, max_edges).posteriors()


def draw(
    network: Network, n: int, observed: Mapping[int, int], rng: np.random.Generator, max_edges: int | None = None
) -> IntArray:
    """``n`` rows from p(. | observed). A Bayesian network without evidence is drawn from the top down, however wide."""
    if network.kind == "markov" or observed:
        return _Tree(network, None, observed, max_edges).draw(n, rng)
    drawn = np.zeros((n, len(network.variables)), dtype=np.int32)
    for column in _parents_first(network):
        *parents, _ = network.factors[column].scope
        drawn[:, column] = _choose(network.factors[column].table, drawn[:, parents], rng)
    return drawn


def log_products(network: Network, codes: IntArray) -> FloatArray:
    """The log of the product of all factors at each complete state, a column of ``codes``."""
    total = np.zeros(codes.shape[1])
    with np.errstate(divide="ignore"):
        for factor in network.factors:
            total += np.log(factor.table[tuple(codes[list(factor.scope)])])
    return total


class _Tree:
    """The buckets of a network under evidence, eliminated, with the message of each."""

    def __init__(
        self, network: Network, query: Sequence[int] | None, observed: Mapping[int, int], max_edges: int | None
    ) -> None:
        limit = checked_limit(max_edges)
        self.network, self.observed = network, observed
        self.problem = Problem(network, query, observed)
        self.plan = plan = plans(self.problem, set())[0]
        if plan.entries > ENTRIES_PER_EDGE * limit:
            raise LimitError(too_large(plan, limit, one_query=True, hint="observe more variables"))
        self.logs = log_tables(self.problem)
        #: For each bucket its sum over the variable, one entry for each state of the context.
        self.messages: dict[int, FloatArray] = {}
        #: log p(observed).
        self.log_total = float(self.problem.log_constant)
        for i, bucket in enumerate(plan.buckets):
            rows = self._table(i)
            message = sum_out(rows, True).reshape(self._shape(bucket.context))
            top = float(message.max())
            if top == -np.inf:
                raise self.problem.impossible()
            self.log_total += top
            message -= top
            self.messages[i] = message

    def posteriors(self) -> dict[int, FloatArray]:
        """p(value | observed) of every column that is not observed."""
        found: dict[int, FloatArray] = {}
        above: dict[int, FloatArray] = {}  # p(context | observed)
        for i in reversed(range(len(self.plan.buckets))):
            bucket = self.plan.buckets[i]
            table = self._conditional(i)
            table *= above.pop(i).reshape(-1, 1) if bucket.context else 1.0
            found[bucket.variable] = table.sum(axis=0)
            axes = (*bucket.context, bucket.variable)
            belief = table.reshape(self._shape(axes))
            for c in bucket.children:
                context = self.plan.buckets[c].context  # its variables are in the same order as here
                if context:
                    above[c] = belief.sum(axis=tuple(a for a, v in enumerate(axes) if v not in context))
        answer: dict[int, FloatArray] = {}
        for column, variable in enumerate(self.network.variables):
            if column not in self.observed:
                answer[column] = np.zeros(variable.cardinality)
                values = self.problem.values[column]
                answer[column][values] = found[column] / found[column].sum() if column in found else 1.0
        return answer

    def draw(self, n: int, rng: np.random.Generator) -> IntArray:
        """Rows from p(. | observed): each variable given those eliminated after it."""
        at: dict[int, LongArray] = {}  # numbers of possible values
        for i in reversed(range(len(self.plan.buckets))):
            bucket = self.plan.buckets[i]
            table = self._conditional(i).reshape(self._shape((*bucket.context, bucket.variable)))
            given = np.array([at[v] for v in bucket.context], dtype=np.int64).reshape(len(bucket.context), n).T
            at[bucket.variable] = _choose(table, given, rng)
        drawn = np.zeros((n, len(self.network.variables)), dtype=np.int32)
        for column, values in enumerate(self.problem.values):
            drawn[:, column] = values[at[column]] if column in at else values[0]
        return drawn

    def _table(self, i: int) -> FloatArray:
        """log W of a bucket, a row for each state of the context."""
        table = bucket_table(self.problem, self.plan.buckets, self.plan.buckets[i], self.logs, self.messages)
        return table.reshape(-1, table.shape[-1])

    def _conditional(self, i: int) -> FloatArray:
        """p(value | context, observed); rows of contexts that are impossible are 0."""
        rows = self._table(i)
        sum_out(rows, False)
        return np.exp(rows)

    def _shape(self, columns: Sequence[int]) -> list[int]:
        return [self.problem.values[v].size for v in columns]


def _choose(table: FloatArray, given: LongArray | IntArray, rng: np.random.Generator) -> LongArray:
    """For each row of ``given`` a value drawn from the row of the table that it names."""
    number = (
        np.ravel_multi_index(tuple(given.T), table.shape[:-1]) if given.shape[1] else np.zeros(len(given), np.int64)
    )
    chances = table.reshape(-1, table.shape[-1])[number]
    up_to = np.cumsum(chances, axis=1)
    chosen = (up_to <= (rng.random(len(given)) * up_to[:, -1])[:, None]).sum(axis=1)
    last = chances.shape[1] - 1 - np.argmax(chances[:, ::-1] > 0, axis=1)  # rounding must not go past what is possible
    return np.asarray(np.minimum(chosen, last), dtype=np.int64)


def _parents_first(network: Network) -> list[int]:
    """The columns of a Bayesian network, each after its parents."""
    order: dict[int, None] = {}
    todo = list(range(len(network.variables)))
    while todo:
        missing = [v for v in network.factors[todo[-1]].scope[:-1] if v not in order]
        if missing:
            todo.extend(missing)
        else:
            order.setdefault(todo.pop())
    return list(order)
