"""The Circuit value: flat, read-only arrays in topological order, children before parents, the root last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import is_
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margmap.circuit.arrays import FloatArray, IntArray, KindArray, LongArray
from margmap.circuit.evidence import shortened
from margmap.circuit.leaves import KIND_NAMES, PRODUCT, SUM, leaf_flaws
from margmap.circuit.variable import Name, Named, Variable, first_repeat, listed, single
from margmap.errors import QueryError, StructureError
from margmap.foundation.html import facts, section
from margmap.foundation.jit import kernel

if TYPE_CHECKING:
    from margmap.circuit.properties import Properties
    from margmap.circuit.scopes import Scopes


class Memory(Protocol):
    """What a circuit in a session remembers: steps of a question that are done again only where something changed."""

    def reduce(self, columns: Sequence[int], codes: IntArray, reals: FloatArray) -> Any:
        """The reduced circuit, see :mod:`margmap.solve.reduce`; None if none is kept for such a query."""

    def solve(self, columns: Sequence[int], codes: IntArray, reals: FloatArray, limits: Any) -> Any:
        """The reduced circuit, and the outcome for one state where it is known; None if nothing is kept."""

    def answered(self, columns: Sequence[int], state: IntArray) -> None:
        """Take note of the answer to a query that was reduced."""

    def value_pair(self, codes: IntArray, reals: FloatArray) -> tuple[float, float]:
        """The value of the circuit under a row, as a pair."""

    def values(self, codes: IntArray, reals: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The relative values of all nodes under a row, as pairs, in arrays of their own."""


S = TypeVar("S", bound=np.generic)
T = TypeVar("T")


class Circuit(Named):
    """An immutable probabilistic circuit.

    Node ``i`` has kind ``kind[i]``, children ``child[start[i]:start[i + 1]]`` (all smaller than ``i``) with
    ``log_weight`` beside them (0 on product edges), and, if it is a leaf, the variable number ``var[i]`` and the
    parameters ``param[param_start[i]:param_start[i + 1]]``. The last node is the root. Use :func:`assemble` or the
    expressions of :mod:`margmap.circuit.formula` to make one.
    """

    #: What a :class:`margmap.Session` keeps of the questions before; None for a circuit that is not in one.
    memory: Memory | None = None

    def __init__(
        self,
        variables: Iterable[Variable],
        kind: ArrayLike,
        start: ArrayLike,
        child: ArrayLike,
        log_weight: ArrayLike,
        var: ArrayLike,
        param_start: ArrayLike,
        param: ArrayLike,
    ) -> None:
        self._kept: dict[Any, Any] = {}
        self._asked: tuple[tuple[Any, ...], tuple[int, ...]] = (), ()
        self.variables = _variables(variables)
        self.kind = _frozen("kind", kind, np.int8)
        self.start = _frozen("start", start, np.int64)
        self.child = _frozen("child", child, np.int32)
        self.log_weight = _frozen("log_weight", log_weight, np.float64)
        self.var = _frozen("var", var, np.int32)
        self.param_start = _frozen("param_start", param_start, np.int64)
        self.param = _frozen("param", param, np.float64)
        _validate(self)

    def __reduce__(self) -> tuple[type[Circuit], tuple[object, ...]]:
        # For processes and clusters. What is computed from the arrays stays behind, and they arrive read-only again.
        arrays = (self.kind, self.start, self.child, self.log_weight, self.var, self.param_start, self.param)
        return Circuit, (self.variables, *arrays)

    def __repr__(self) -> str:
        return f"Circuit({len(self.variables)} variables, {self.num_nodes} nodes, {self.num_edges} edges)"

    def _repr_html_(self) -> str:
        from margmap.circuit.listing import Variables

        count = np.bincount(self.kind, minlength=len(KIND_NAMES)).tolist()
        leaves = ", ".join(f"{count[kind]} {KIND_NAMES[kind]}" for kind in range(PRODUCT) if count[kind])
        sizes = {"nodes": self.num_nodes, "edges": self.num_edges, "sums": count[SUM], "products": count[PRODUCT]}
        return section(facts("Circuit", {**sizes, "leaves": leaves}), Variables(self.variables)._repr_html_())

    @property
    def num_nodes(self) -> int:
        """The number of nodes, leaves included."""
        return int(self.kind.size)

    @property
    def num_edges(self) -> int:
        """The number of edges, below sums and products alike."""
        return int(self.child.size)

    @property
    def root(self) -> int:
        """The number of the root node."""
        return self.num_nodes - 1

    @cached_property
    def depth(self) -> int:
        """The number of edges on the longest path from the root to a leaf."""
        return int(_depth(self.start, self.child))

    @cached_property
    def cardinality(self) -> IntArray:
        """The number of values of each variable; 0 where it is continuous."""
        return _frozen("cardinality", [v.cardinality for v in self.variables], np.int32)

    @cached_property
    def _discrete(self) -> frozenset[int]:
        return frozenset(np.flatnonzero(self.cardinality).tolist())

    @cached_property
    def _no_reals(self) -> FloatArray:
        return _frozen("reals", np.full(len(self.variables), np.nan), np.float64)

    @cached_property
    def mentioned(self) -> frozenset[int]:
        """The columns of the variables that some leaf mentions."""
        return frozenset(self.scopes.variables(self.root))

    @cached_property
    def violations(self) -> tuple[tuple[int, int, bool], ...]:
        """Node and variable of the first sum that is not smooth and the first product (True) not decomposable."""
        from margmap.circuit.properties import find_violations

        return find_violations(self)

    @cached_property
    def scopes(self) -> Scopes:
        """Which variables lie below each node."""
        from margmap.circuit.scopes import find_scopes

        return find_scopes(self)

    @cached_property
    def properties(self) -> Properties:
        """The structural properties, see :func:`margmap.check`."""
        from margmap.circuit.properties import check

        return check(self)

    def kept(self, make: Callable[[Circuit], T]) -> T:
        """What ``make`` makes of this circuit; made once, and kept as long as the circuit."""
        kept = self._kept
        if make not in kept:
            kept[make] = make(self)
        result: T = kept[make]
        return result

    def remembering(self, memory: Memory) -> Circuit:
        """The same circuit, with all that is kept of it, and with a memory of questions."""
        twin = object.__new__(Circuit)
        twin.__dict__.update(self.__dict__, memory=memory)
        return twin

    def evidence_codes(self, evidence: Any) -> tuple[IntArray, FloatArray]:
        """One row of codes (cardinality where nothing is observed) and one of real values (NaN likewise)."""
        return self.encoded(self.observed(evidence))

    def encoded(self, observed: Mapping[int, int | float]) -> tuple[IntArray, FloatArray]:
        """The same of what :meth:`observed` found."""
        codes, reals, discrete = self.cardinality.copy(), self._no_reals.copy(), self._discrete
        for column, value in observed.items():
            if column in discrete:
                codes[column] = value
            else:
                reals[column] = value
        return codes, reals

    def asked(self, query: Iterable[Name | Variable] | None, observed: Mapping[int, object]) -> list[int]:
        """The columns of the query variables, refusing what cannot be asked; None asks for all that is not observed.

        A variable with weights only, a set of values or a likelihood, can be asked for.
        """
        observed = single(observed)
        if query is None:
            columns = sorted(self.mentioned - observed.keys())
            continuous = [self.variables[i].name for i in columns if self.variables[i].continuous]
            if continuous:
                raise QueryError(
                    "without a query every variable is asked for that is not observed, and only discrete ones can be: "
                    f"observe the continuous {listed(continuous)}, or give the query (query=[...], --query), which "
                    "sums all other variables out"
                )
            return columns
        known = self._last_asked(query)
        if known is not None and observed.keys().isdisjoint(known):
            return [*known]
        columns = self.query_columns(query, observed)
        for column in columns:
            variable = self.variables[column]
            if variable.continuous:
                raise QueryError(f"variable {variable.name!r} is continuous: only discrete variables can be queried")
            if column not in self.mentioned:
                raise QueryError(f"variable {variable.name!r} is queried, but no leaf of the circuit mentions it")
        if type(query) in (list, tuple):
            self._asked = (*query,), (*columns,)
        return columns

    def _last_asked(self, query: Any) -> tuple[int, ...] | None:
        """The columns of the last query that could be asked, if this is the same: the very names, in their order.

        Names that are only equal may mean something else, as True and 1 do.
        """
        names, columns = self._asked
        same = type(query) in (list, tuple) and len(query) == len(names) and all(map(is_, query, names))
        return columns if same else None


def _variables(given: Iterable[Variable]) -> tuple[Variable, ...]:
    try:
        variables = tuple(given)
    except TypeError:
        variables = None
    if variables is None or not all(isinstance(v, Variable) for v in variables):
        raise StructureError(f"variables must be a list of Variable, not {shortened(given)}")
    return variables


def _frozen(name: str, given: ArrayLike, dtype: type[S]) -> NDArray[S]:
    """A read-only copy in the right type, with the same numbers in it; what nobody can change is not copied."""
    whole = issubclass(dtype, np.integer)
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):  # lists of different lengths
        array = np.zeros((), dtype=np.object_)
    fits = array.ndim == 1 and array.dtype.kind in "biuf"
    if fits and array.dtype == dtype and _unchangeable(array):
        return array
    if fits:
        with np.errstate(invalid="ignore", over="ignore"):
            result = np.array(array, dtype=dtype, order="C")
        fits = not whole or array.dtype == dtype or bool((result == array).all())
    if not fits:
        what = "integers that fit its type" if whole else "numbers"
        raise StructureError(f"{name} must be a list or an array of {what}, not {shortened(given)}")
    result.setflags(write=False)
    return result


def _unchangeable(array: NDArray[Any]) -> bool:
    """Whether an array lies in memory that no program can write to: bytes, or a file that is mapped to be read."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable or not base.flags.c_contiguous or not base.flags.aligned:
            return False
        base = base.base
    return base is not None and memoryview(base).readonly


def _validate(c: Circuit) -> None:
    """Refuse arrays that do not describe a circuit, naming the first offending node."""
    n, m = c.kind.size, c.child.size
    if len(set(c.names)) != len(c.names):
        raise StructureError(f"variable {first_repeat(c.names)!r} is there twice")
    if n == 0:
        raise StructureError("a circuit needs at least one node")
    for array, size in ((c.start, n + 1), (c.param_start, n + 1), (c.var, n), (c.log_weight, m)):
        if array.size != size:
            raise StructureError("the arrays of a circuit do not fit together")
    for array, size in ((c.start, m), (c.param_start, c.param.size)):
        # Numbers outside 0 to the size are refused first: the difference of two could be too large for its type.
        inside = bool(((array >= 0) & (array <= size)).all())
        if not inside or array[0] != 0 or array[-1] != size or (np.diff(array) < 0).any():
            raise StructureError("the arrays of a circuit do not fit together")

    def refuse(bad: NDArray[np.bool_], why: str, *, edges: bool = False) -> None:
        if bad.any():
            node = int(np.flatnonzero(bad)[0])
            node = int(np.searchsorted(c.start, node, side="right")) - 1 if edges else node
            kind = KIND_NAMES[c.kind[node]] if 0 <= c.kind[node] <= SUM else "unknown"
            over = f" over variable {c.variables[c.var[node]].name!r}" if 0 <= c.var[node] < len(c.variables) else ""
            raise StructureError(f"node {node} ({kind}{over}): {why}")

    refuse((c.kind < 0) | (c.kind > SUM), "this kind of node does not exist")
    leaf, fan_in = c.kind < PRODUCT, np.diff(c.start)
    refuse(leaf & (fan_in > 0), "a leaf has no children")
    refuse(~leaf & (fan_in == 0), "a sum or product needs at least one child")
    if _bad_edges(c.kind, c.start, c.child, c.log_weight):  # which are found by what takes more memory
        owner = np.repeat(np.arange(n), fan_in)
        refuse((c.child < 0) | (c.child >= owner), "a child must come before its parent", edges=True)
        refuse(np.isnan(c.log_weight), "a weight is not a number", edges=True)
        refuse(c.log_weight == np.inf, "a weight is infinite", edges=True)
        refuse((c.kind[owner] == PRODUCT) & (c.log_weight != 0), "an edge below a product has a weight", edges=True)
    refuse(~leaf & (c.var != -1), "a sum or product has no variable of its own: its var is -1")
    refuse(leaf & ((c.var < 0) | (c.var >= len(c.variables))), "its variable does not exist")
    cardinality = np.array([v.cardinality for v in c.variables] or [0])[np.where(leaf, c.var, 0)]
    for bad, why in leaf_flaws(c.kind, cardinality, c.param_start, c.param):
        refuse(bad, why)


@kernel
def _bad_edges(kind: KindArray, start: LongArray, child: IntArray, log_weight: FloatArray) -> bool:
    """Whether some edge leads to a node that is not earlier, or has a weight that it must not have."""
    for n in range(kind.size):
        for e in range(start[n], start[n + 1]):
            if child[e] < 0 or child[e] >= n or not log_weight[e] < np.inf:
                return True
            if kind[n] == PRODUCT and log_weight[e] != 0:
                return True
    return False


@kernel
def _depth(start: LongArray, child: IntArray) -> int:
    level = np.zeros(start.size - 1, dtype=np.int64)
    for n in range(start.size - 1):
        for e in range(start[n], start[n + 1]):
            level[n] = max(level[n], level[child[e]] + 1)
    return int(level[-1])
