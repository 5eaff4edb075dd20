"""Questions in a row about one model: what did not change since the last one is not computed again.

A session's circuit has a :class:`Memory`. The steps of a question that pass over the whole circuit ask it first: the
reduction (:mod:`margmap.solve.kept_reduction`), the value of the answer and the values that posteriors are made of
(:mod:`margmap.inference.kept_values`). Each costs in proportion to the part of the circuit above what changed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Lock
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import PRODUCT, Circuit, FloatArray, IntArray, KindArray, LongArray, Name
from margmap.circuit.builder import reordered, sharing_equal
from margmap.circuit.model import as_model
from margmap.circuit.observation import Observation
from margmap.circuit.scopes import scope_sizes
from margmap.errors import MargmapError, QueryError
from margmap.foundation.jit import kernel
from margmap.foundation.limits import Limits
from margmap.foundation.pairs import raised
from margmap.inference.kept_values import KeptValues, bytes_of_parents
from margmap.inference.networks import kept_circuit
from margmap.inference.pieces import pass_up
from margmap.inference.queries import Posteriors, posteriors
from margmap.inference.scaled import is_dense, scaled
from margmap.network.network import Network
from margmap.solve.kept_reduction import KeptReduction
from margmap.solve.marginal_map import marginal_map
from margmap.solve.methods import AUTO, MethodName
from margmap.solve.network_map import compile_rounding
from margmap.solve.question import check_limits
from margmap.solve.reduce import Reduced
from margmap.solve.report import ROUNDED
from margmap.solve.result import Outcome, Result

T = TypeVar("T")

#: Bytes that a session may keep.
MEMORY = 256 << 20

#: A circuit that is smaller by this factor, because equal nodes are one, is worth a copy.
SMALLER = 0.8

#: Seconds that the circuit of all questions about a network gets, before the network is compiled for this one.
QUICK_SECONDS = 0.25


class Session:
    """Questions in a row about one model, each of which uses what the ones before have computed.

    The methods take what the functions of the same names take, without the model, and give the same answers. Repeating
    a query with evidence that differs in a few variables costs in proportion to the part of the circuit above these
    variables. A session may be used from many threads at once. It keeps at most ``memory`` bytes beside the model: what
    was asked longest ago is forgotten first, and what would not fit is computed from scratch each time.
    """

    def __init__(self, model: object, *, memory: int = MEMORY) -> None:
        if isinstance(memory, bool) or not isinstance(memory, int) or memory < 0:
            raise QueryError(f"memory={memory!r}: give a number of bytes from 0")
        #: The circuit or the network that the questions are about.
        self.model: Circuit | Network = as_model(model)
        circuit = self.model if isinstance(self.model, Circuit) else kept_circuit(self.model, None)
        self._memory = None if circuit is None else Memory(circuit, memory)
        self._circuit = None
        if circuit is not None and self._memory is not None:
            self._circuit = circuit.remembering(self._memory)

    def __repr__(self) -> str:
        return f"Session({self.model!r})"

    @property
    def compiled(self) -> bool:
        """Whether questions are asked of one circuit; False for a network that is too wide for one that is kept."""
        return self._circuit is not None

    @property
    def nbytes(self) -> int:
        """Bytes that are kept now, beside the model."""
        return 0 if self._memory is None else self._memory.nbytes

    def marginal_map(
        self,
        query: Sequence[Name] | None = None,
        evidence: Mapping[Any, Observation] | None = None,
        method: MethodName = AUTO,
        time_limit: float | None = None,
        **keywords: Any,
    ) -> Result:
        """What :func:`margmap.marginal_map` answers, with the same arguments."""
        if self._circuit is None:
            return marginal_map(self.model, query, evidence, method, time_limit, **keywords)
        if isinstance(self.model, Circuit):
            return marginal_map(self._circuit, query, evidence, method, time_limit, **keywords)
        begun = perf_counter()
        if method == AUTO and not keywords.keys() - {"k", "gap", "memory_limit", "on_progress", "threads"}:
            quick = self._asked_of_circuit(query, evidence, time_limit, **keywords)
            if quick is not None:
                return quick
        if time_limit is not None:
            check_limits(time_limit)
            time_limit = max(time_limit / 2, time_limit - (perf_counter() - begun))
        return marginal_map(self.model, query, evidence, method, time_limit, **keywords)

    def mpe(self, evidence: Mapping[Any, Observation] | None = None, **keywords: Any) -> Result:
        """What :func:`margmap.mpe` answers, with the same arguments."""
        if "query" in keywords:
            raise QueryError("mpe asks for every variable that is not observed: use marginal_map for a query")
        return self.marginal_map(None, evidence, **keywords)

    def posteriors(
        self, evidence: Mapping[Any, Observation] | None = None, *, max_edges: int | None = None
    ) -> Posteriors:
        """What :func:`margmap.posteriors` answers, with the same arguments."""
        if self._circuit is not None and max_edges is None:
            return posteriors(self._circuit, evidence)
        return posteriors(self.model, evidence, max_edges=max_edges)

    def _asked_of_circuit(self, query: Any, evidence: Any, time_limit: float | None, **keywords: Any) -> Result | None:
        """The answer that the circuit of a network proves at once; None if it does not."""
        assert isinstance(self.model, Network)
        seconds = QUICK_SECONDS if time_limit is None else min(QUICK_SECONDS, time_limit / 2)
        with suppress(MargmapError):  # which the network itself words in its own way
            result = marginal_map(self._circuit, query, evidence, AUTO, seconds, **keywords)
            rounding = compile_rounding(self.model)
            if result.status == "interrupted" or (result.status == "optimal" and rounding <= ROUNDED):
                return replace(result, log_upper=raised(result.log_upper, rounding))
        return None


class Memory:
    """What the circuit of a session remembers. Whoever finds something in use by another thread begins from scratch."""

    def __init__(self, circuit: Circuit, most_bytes: int) -> None:
        # Beside all that is forgotten when there is too much, the circuit keeps the parents of its nodes.
        self._circuit, self._most, self._always = circuit, most_bytes - bytes_of_parents(circuit), 0
        self._lock = Lock()
        # What questions are asked of, once there was one: often a smaller circuit with the same values.
        self._asked: Circuit | None = None
        self._keeps_reductions = False
        self._reductions: OrderedDict[tuple[int, ...], _Reduction] = OrderedDict()
        # The values under the last answer, and under the last evidence that posteriors were asked for.
        self._scored, self._seen = _Shared(circuit, self._forget_some), _Shared(circuit, self._forget_some)
        self._keeps_values = 4 * KeptValues.bytes_of(circuit) <= self._most

    @property
    def nbytes(self) -> int:
        """Bytes that are kept now."""
        kept = self._forgettable
        return kept + self._always + bytes_of_parents(self._circuit) if kept else 0

    @property
    def _forgettable(self) -> int:
        with self._lock:
            kept = sum([one.kept.nbytes for one in self._reductions.values()])
        return kept + self._scored.nbytes + self._seen.nbytes

    def reduce(self, columns: Sequence[int], codes: IntArray, reals: FloatArray) -> Reduced | None:
        """The reduction from the one before for the same query."""
        return self._with_reduction(columns, codes, reals, lambda kept: kept.reduce(codes, reals))

    def solve(
        self, columns: Sequence[int], codes: IntArray, reals: FloatArray, limits: Limits
    ) -> tuple[Reduced, Outcome | None] | None:
        """The same, and the answer if what is kept of the question before proves it."""
        return self._with_reduction(columns, codes, reals, lambda kept: kept.solve(codes, reals, limits, self._most))

    def _with_reduction(
        self, columns: Sequence[int], codes: IntArray, reals: FloatArray, work: Callable[[KeptReduction], T]
    ) -> T | None:
        """Do work on what is kept for a query, unless there is no room or another thread has it."""
        key = tuple(columns)
        with self._lock:
            circuit = self._asked or self._asked_of(codes, reals)
            if not columns or not self._keeps_reductions:
                return None
            if key not in self._reductions:
                self._reductions[key] = _Reduction(KeptReduction(circuit, columns))
            self._reductions.move_to_end(key)
            one = self._reductions[key]
        if not one.lock.acquire(blocking=False):
            return None
        try:
            return work(one.kept)
        finally:
            one.lock.release()
            if one.weighs_other_than_before():
                self._forget_some()

    def _asked_of(self, codes: IntArray, reals: FloatArray) -> Circuit:
        """Find the circuit that questions are asked of; the first one is about this row."""
        smaller = None
        if 4 * _bytes_of_copy(self._circuit) <= self._most and not is_dense(self._circuit):
            smaller = _smaller(self._circuit)
        if smaller is not None:
            smaller = _side_by_side(smaller, codes, reals)
            self._always = _bytes_of_copy(smaller)
            self._most -= self._always
        self._asked = smaller or self._circuit
        self._keeps_reductions = 2 * KeptReduction.bytes_of(self._asked) <= self._most
        return self._asked

    def answered(self, columns: Sequence[int], state: IntArray) -> None:
        """Remember a query's answer, which is a good state to begin with when it is asked again."""
        with self._lock:
            one = self._reductions.get(tuple(columns))
            if one is not None:
                one.kept.answer = state

    def value_pair(self, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
        """The value of a row from that of the row before."""
        s = scaled(self._circuit)
        with self._scored.taken(self._keeps_values) as kept:
            if kept is not None:
                kept.update(codes, reals)
                return float(kept.value[-1] * s.total), float(kept.exponent[-1] + s.total_exponent)
        value, exponent = self._pass(codes, reals)
        return float(value[-1] * s.total), float(exponent[-1] + s.total_exponent)

    def values(self, codes: IntArray, reals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The values of all nodes from those of the row before."""
        with self._seen.taken(self._keeps_values) as kept:
            if kept is not None:
                kept.update(codes, reals)
                return kept.value.copy(), kept.exponent.copy()
        return self._pass(codes, reals)

    def _pass(self, codes: IntArray, reals: FloatArray) -> tuple[FloatArray, FloatArray]:
        value, exponent = np.empty(self._circuit.num_nodes), np.empty(self._circuit.num_nodes)
        pass_up(self._circuit, codes, reals, value, exponent)
        return value, exponent

    def _forget_some(self) -> None:
        """Forget the reductions used longest ago as long as there is too much."""
        while self._reductions and self._forgettable > self._most:
            with self._lock:
                self._reductions.popitem(last=False)


def _smaller(circuit: Circuit) -> Circuit | None:
    """The circuit with equal nodes made one, if it is so much smaller that a copy is worth it.

    Its values and reductions are the same to the last bit.
    """
    found = sharing_equal(circuit)
    return found if found.num_nodes + found.num_edges <= SMALLER * (circuit.num_nodes + circuit.num_edges) else None


def _side_by_side(circuit: Circuit, codes: IntArray, reals: FloatArray) -> Circuit:
    """The circuit with its nodes in an order in which those stand together that are needed at the same time.

    A changed value changes nodes of the scopes that it is in; and most nodes that the root needs under one row it needs
    under the next one. So nodes stand together by scope, and in a scope first those that are needed under this row:
    what a question looks at then fits a cache of the processor. Within a scope, parents still come after children.
    """
    value, exponent = np.empty(circuit.num_nodes), np.empty(circuit.num_nodes)
    pass_up(circuit, codes, reals, value, exponent)
    scopes, s = circuit.scopes, scaled(circuit)
    level, needed = _levels_and_needed(s.kind, s.start, s.child, s.weight, scopes.id, value)
    return reordered(circuit, np.lexsort((~needed, level, scopes.id, scope_sizes(scopes.bits)[scopes.id])))


@kernel
def _levels_and_needed(
    kind: KindArray, start: LongArray, child: IntArray, weight: FloatArray, scope: IntArray, value: FloatArray
) -> tuple[LongArray, NDArray[np.bool_]]:
    """How far each node is above the lowest nodes of its scope, and whether the root needs it for its value."""
    level, needed = np.zeros(kind.size, dtype=np.int64), np.zeros(kind.size, dtype=np.bool_)
    for n in range(kind.size):
        for e in range(start[n], start[n + 1]):
            if scope[child[e]] == scope[n]:
                level[n] = max(level[n], level[child[e]] + 1)
    needed[kind.size - 1] = True
    for n in range(kind.size - 1, -1, -1):
        for e in range(start[n], start[n + 1]):
            if needed[n] and value[child[e]] > 0 and (kind[n] == PRODUCT or weight[e] > 0):
                needed[child[e]] = True
    return level, needed


def _bytes_of_copy(circuit: Circuit) -> int:
    """The room that a circuit takes with its relative numbers, its scopes and the parents of its nodes, about."""
    return 48 * circuit.num_nodes + 28 * circuit.num_edges + bytes_of_parents(circuit)


class _Reduction:
    """What is kept for a query, for one thread at a time."""

    def __init__(self, kept: KeptReduction) -> None:
        self.kept, self.lock, self._weighed = kept, Lock(), 0

    def weighs_other_than_before(self) -> bool:
        """Whether it takes another number of bytes than when this was last asked."""
        before, self._weighed = self._weighed, self.kept.nbytes
        return self._weighed != before


class _Shared:
    """Values for one thread at a time, made when first used; ``made`` is told then."""

    def __init__(self, circuit: Circuit, made: Callable[[], None]) -> None:
        self._circuit, self._made, self._lock = circuit, made, Lock()
        self._values: KeptValues | None = None

    @contextmanager
    def taken(self, wanted: bool) -> Iterator[KeptValues | None]:
        """The values; None if they are not wanted or another thread has them."""
        if not wanted or not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            if self._values is None:
                self._values = KeptValues(self._circuit)
                self._made()
            yield self._values
        finally:
            self._lock.release()

    @property
    def nbytes(self) -> int:
        return 0 if self._values is None else KeptValues.bytes_of(self._circuit)
