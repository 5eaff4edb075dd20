"""The Circuit value: flat, read-only arrays in topological order, children before parents, the root last."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from margmap.circuit.evidence import cell_of, is_observed, names_of, pairs_of, plain, shortened
from margmap.errors import QueryError, StructureError
from margmap.foundation.jit import kernel
from margmap.foundation.numerals import number_of, real_of

if TYPE_CHECKING:
    from margmap.circuit.formula import Expression
    from margmap.circuit.structure import Properties, Scopes
    from margmap.inference.passes import Scaled

Name: TypeAlias = int | str
Value: TypeAlias = int | float | str
IntArray: TypeAlias = NDArray[np.int32]
LongArray: TypeAlias = NDArray[np.int64]
FloatArray: TypeAlias = NDArray[np.float64]
KindArray: TypeAlias = NDArray[np.int8]
S = TypeVar("S", bound=np.generic)
T = TypeVar("T")

# Node kinds. Everything below PRODUCT is a leaf. Parameters of each leaf, in `Circuit.param`:
INDICATOR = 0  # value
BERNOULLI = 1  # log p(1), log p(0)
CATEGORICAL = 2  # log p(0), log p(1), ...
BINOMIAL = 3  # number of trials, log p, log (1 - p)
GAUSSIAN = 4  # mean, standard deviation
PRODUCT = 5
SUM = 6
KIND_NAMES = ("indicator", "bernoulli", "categorical", "binomial", "gaussian", "product", "sum")

MAX_CARDINALITY = 1 << 20

# Texts that pandas reads as True and False.
_TRUTH = ("True", "true", "False", "false")


@dataclass(frozen=True, slots=True)
class Variable:
    """A named variable with ``cardinality`` values 0, 1, ... (0: continuous), whose values may have names.

    ``X[1]`` is the indicator of X = 1, and ``X["yes"]`` that of a state called so; see :mod:`margmap.circuit.formula`.
    """

    name: Name
    cardinality: int = 2
    states: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Texts and numbers of numpy become plain ones, so that no answer has them.
        name = int(self.name) if isinstance(self.name, np.integer) else self.name
        object.__setattr__(self, "name", str(name) if isinstance(name, str) else name)
        if isinstance(self.cardinality, np.integer):
            object.__setattr__(self, "cardinality", int(self.cardinality))
        if isinstance(self.states, str) or not isinstance(self.states, Iterable):
            raise StructureError(f"variable {self.name!r}: states must be a list of names, not {self.states!r}")
        object.__setattr__(self, "states", tuple(map(str, self.states)))
        if isinstance(self.name, bool) or not isinstance(self.name, int | str):
            raise StructureError(f"a variable's name is a string or an integer, not {self.name!r}")
        if isinstance(self.cardinality, bool) or not isinstance(self.cardinality, int):
            raise StructureError(f"variable {self.name!r}: cardinality {self.cardinality!r} is not a whole number")
        if not 0 <= self.cardinality <= MAX_CARDINALITY:
            raise StructureError(
                f"variable {self.name!r}: cardinality {self.cardinality} is not in 0 (continuous) to {MAX_CARDINALITY}"
            )
        if self.states and len(self.states) != self.cardinality:
            raise StructureError(
                f"variable {self.name!r}: {len(self.states)} state names for {self.cardinality} values"
            )
        if len(set(self.states)) != len(self.states):
            raise StructureError(f"variable {self.name!r}: its state names are not distinct")

    @property
    def continuous(self) -> bool:
        """Whether the variable takes real values."""
        return self.cardinality == 0

    def code(self, value: Value) -> int:
        """The number of the value that a user calls ``value``.

        Where states have names, ``value`` is one of them: a text is that name, and a number (5, 5.0 or the text "5",
        unless that is a name itself) is the one name that is this number. True and False are the states that are
        called so. Where states have no names, ``value`` is the number itself, which a text may have as well.
        """
        if self.continuous:
            raise QueryError(f"variable {self.name!r} is continuous: its values have no numbers")
        given = plain(value)
        if isinstance(given, str):
            for text in (given, given.strip()):
                if text in self.states:
                    return self.states.index(text)
            word = given.strip()
            given = word.lower() == "true" if word in _TRUTH and self.states else number_of(word)
        elif not isinstance(given, int | float):
            raise QueryError(f"variable {self.name!r}: {shortened(value)} is neither a number nor the name of a state")
        if given is not None and not self.states:
            if isinstance(given, bool):
                raise QueryError(f"variable {self.name!r}: {given} is no number: write 0 to {self.cardinality - 1}")
            return self.numbered(given)
        found = () if given is None else self.called(given)
        if len(found) > 1:
            both = " or ".join(f"the state {self.states[i]!r}" for i in found)
            raise QueryError(f"variable {self.name!r}: {shortened(value)} can mean {both}: give its name as text")
        if not found:
            known = f"its states are {listed(self.states, 40)}" if self.states else "it has no state names"
            raise QueryError(f"variable {self.name!r} has no state {shortened(plain(value))}: {known}")
        return found[0]

    def value(self, given: Any) -> int | float | None:
        """What evidence says about this variable: a code, or a real number; None if nothing."""
        if not is_observed(self, given):
            return None
        return self.real(given) if self.continuous else self.code(given)

    def called(self, value: float) -> tuple[int, ...]:
        """The states whose names are this number; True and False are the names ``True`` and ``true`` and so on."""
        if isinstance(value, bool):
            return tuple(i for i, state in enumerate(self.states) if state in (str(value), str(value).lower()))
        return _by_number(self.states).get(value, ())

    def numbered(self, number: float) -> int:
        """A number of a value as programs write it, checked."""
        if not isinstance(number, int) and not number.is_integer():
            raise QueryError(f"variable {self.name!r}: value {number!r} is not an integer")
        if not 0 <= number < self.cardinality:
            raise QueryError(
                f"variable {self.name!r}: value {shortened(int(number))} is out of range 0 to {self.cardinality - 1}"
            )
        return int(number)

    def real(self, value: Value) -> float:
        """The value of a continuous variable, given as a number or as text."""
        given = plain(value)
        try:
            number = real_of(given) if isinstance(given, str) else None
            if isinstance(given, int | float) and not isinstance(given, bool):
                number = float(given)
        except (ValueError, OverflowError):
            number = None
        if number is None:
            raise QueryError(f"variable {self.name!r} is continuous: {shortened(value)} is not a number")
        if not np.isfinite(number):
            raise QueryError(f"variable {self.name!r}: evidence {value!r} is not finite")
        return number

    def label(self, code: int) -> int | str:
        """What a user calls the value with this number: its state name if it has one."""
        return self.states[code] if self.states else int(code)

    def __getitem__(self, value: Value) -> Expression:
        from margmap.circuit.formula import indicator

        return indicator(self, value)


class Named:
    """What a circuit and a network share: variables that are found by their names."""

    variables: tuple[Variable, ...]
    _what = "circuit"

    @cached_property
    def names(self) -> tuple[Name, ...]:
        """The names of the variables, in column order."""
        return tuple(variable.name for variable in self.variables)

    @cached_property
    def _by_text(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for i, name in enumerate(self.names):
            found.setdefault(str(name), []).append(i)
        return found

    @cached_property
    def _by_name(self) -> dict[Name, int]:
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def _clear(self) -> dict[Name, int]:
        """The columns of the names that can mean nothing else, as they are and as text."""
        alone = {i for columns in self._by_text.values() if len(columns) == 1 for i in columns}
        return {key: i for i in alone for key in (self.names[i], str(self.names[i]))}

    def index(self, name: Name | Variable) -> int:
        """The column of a variable. 3 and "3" are the same name; a model that has both is asked by the Variable."""
        if type(name) in (int, str) and name in self._clear:
            return self._clear[name]
        if isinstance(name, Variable):
            found = [self._by_name[name.name]] if name.name in self._by_name else []
        else:
            key = plain(name)
            texts = set()
            if isinstance(key, str):
                texts.add(str.__str__(key))
            elif isinstance(key, int | float) and not isinstance(key, bool):
                texts.add(shortened(key, 5000))
            if isinstance(key, float) and key.is_integer():  # pandas makes 3.0 of 3 in labels too
                texts.add(str(int(key)))
            found = sorted(column for text in texts for column in self._by_text.get(text, ()))
        if not found:
            raise QueryError(f"unknown variable {shortened(name)}: the {self._what} has {listed(self.names)}")
        if len(found) > 1:
            both = " or ".join(f"the variable {self.names[column]!r}" for column in found)
            raise QueryError(
                f"variable {name!r} can mean {both}: give the Variable itself, such as variables[{found[0]}] of the "
                f"{self._what}, or rename one of the two"
            )
        return found[0]

    def own(self, name: Name) -> int:
        """The column of a name that a program wrote: the very name if there is one, otherwise as :meth:`index`."""
        return self._by_name[name] if name in self._by_name else self.index(name)

    def query_columns(self, query: Iterable[Name | Variable], observed: Container[int]) -> list[int]:
        """The columns of the query variables, each asked for once and none of them observed."""
        columns = [self.index(name) for name in names_of(query)]
        seen: set[int] = set()
        for column in columns:
            if column in seen:
                raise QueryError(f"variable {self.names[column]!r} is queried twice")
            seen.add(column)
            if column in observed:
                name = self.names[column]
                raise QueryError(f"variable {name!r} is both queried and observed: drop it from one of the two")
        return columns

    def observed(self, evidence: Any, *, table: bool = False) -> dict[int, Any]:
        """What evidence says, in any form that :mod:`margmap.circuit.evidence` knows, by the columns of its variables.

        A discrete variable has the number of its value, a continuous one its value. All evidence goes through here.
        ``table`` says that it is a row of a table, where -1 and some texts mean that nothing is observed.
        """
        found: dict[int, Any] = {}
        seen: set[int] = set()
        pairs, cells = pairs_of(evidence)
        for name, given in pairs:
            column = self.index(name)
            variable = self.variables[column]
            if column in seen:
                raise QueryError(f"variable {variable.name!r} is observed twice, under its name and the name as text")
            seen.add(column)
            value = variable.value(cell_of(variable, given) if table or cells else given)
            if value is not None:
                found[column] = value
        return found

    def labelled(self, observed: Mapping[int, int | float]) -> dict[Any, Value]:
        """What :meth:`observed` found, as evidence that means the same in every model with these variables."""
        variables = {self.variables[column]: value for column, value in observed.items()}
        return {v: value if v.continuous else v.label(int(value)) for v, value in variables.items()}


class Circuit(Named):
    """An immutable probabilistic circuit.

    Node ``i`` has kind ``kind[i]``, children ``child[start[i]:start[i + 1]]`` (all smaller than ``i``) with
    ``log_weight`` beside them (0 on product edges), and, if it is a leaf, the variable number ``var[i]`` and the
    parameters ``param[param_start[i]:param_start[i + 1]]``. The last node is the root. Use :func:`assemble` or the
    expressions of :mod:`margmap.circuit.formula` to make one.
    """

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
    def mentioned(self) -> frozenset[int]:
        """The columns of the variables that some leaf mentions."""
        return frozenset(self.scopes.variables(self.root))

    @cached_property
    def violations(self) -> tuple[tuple[int, int, bool], ...]:
        """Node and variable of the first sum that is not smooth and the first product (True) not decomposable."""
        from margmap.circuit.structure import find_violations

        return find_violations(self)

    @cached_property
    def scopes(self) -> Scopes:
        """Which variables lie below each node."""
        from margmap.circuit.structure import find_scopes

        return find_scopes(self)

    @cached_property
    def properties(self) -> Properties:
        """The structural properties, see :func:`margmap.check`."""
        from margmap.circuit.structure import check

        return check(self)

    @cached_property
    def scaled(self) -> Scaled:
        """The same circuit in relative numbers, which the compiled passes run on."""
        from margmap.inference.passes import scale

        return scale(self)

    def evidence_codes(self, evidence: Any) -> tuple[IntArray, FloatArray]:
        """One row of codes (cardinality where nothing is observed) and one of real values (NaN likewise)."""
        return self.encoded(self.observed(evidence))

    def encoded(self, observed: Mapping[int, int | float]) -> tuple[IntArray, FloatArray]:
        """The same of what :meth:`observed` found."""
        codes = self.cardinality.copy()
        reals = np.full(len(self.variables), np.nan)
        for column, value in observed.items():
            if self.variables[column].continuous:
                reals[column] = value
            else:
                codes[column] = value
        return codes, reals

    def asked(self, query: Iterable[Name | Variable] | None, observed: Mapping[int, object]) -> list[int]:
        """The columns of the query variables, refusing what cannot be asked; None asks for all that is not observed."""
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
        columns = self.query_columns(query, observed)
        for column in columns:
            variable = self.variables[column]
            if variable.continuous:
                raise QueryError(f"variable {variable.name!r} is continuous: only discrete variables can be queried")
            if column not in self.mentioned:
                raise QueryError(f"variable {variable.name!r} is queried, but no leaf of the circuit mentions it")
        return columns


class Parts(NamedTuple):
    """The growing lists that readers and the builder fill and :func:`assemble` turns into a circuit."""

    kind: list[int]
    start: list[int]
    child: list[int]
    log_weight: list[float]
    var: list[int]
    param_start: list[int]
    param: list[float]

    @classmethod
    def new(cls) -> Parts:
        """No nodes yet."""
        return cls([], [0], [], [], [], [0], [])

    def leaf(self, kind: int, var: int, parameters: Sequence[float]) -> int:
        """Add a leaf and return its number."""
        self.param.extend(parameters)
        return self._close(kind, var)

    def product(self, children: Sequence[int]) -> int:
        """Add a product and return its number."""
        self.child.extend(children)
        self.log_weight.extend([0.0] * len(children))
        return self._close(PRODUCT, -1)

    def sum(self, children: Sequence[int], log_weights: Sequence[float]) -> int:
        """Add a sum and return its number."""
        self.child.extend(children)
        self.log_weight.extend(log_weights)
        return self._close(SUM, -1)

    def _close(self, kind: int, var: int) -> int:
        self.kind.append(kind)
        self.var.append(var)
        self.start.append(len(self.child))
        self.param_start.append(len(self.param))
        return len(self.kind) - 1


def assemble(variables: Iterable[Variable], parts: Parts, root: int | None = None) -> Circuit:
    """Make a circuit of what lies below ``root`` (the last node by default); other nodes are left out."""
    kind = np.array(parts.kind, dtype=np.int8)
    start = np.array(parts.start, dtype=np.int64)
    child = np.array(parts.child, dtype=np.int32)
    if kind.size == 0:
        raise StructureError("a circuit needs at least one node")
    if child.size and (child.min() < 0 or bool((child >= np.repeat(np.arange(kind.size), np.diff(start))).any())):
        raise StructureError("every child must come before its parent")
    keep = _below(start, child, kind.size - 1 if root is None else root)
    weight = np.array(parts.log_weight, dtype=np.float64)
    var = np.array(parts.var, dtype=np.int32)
    param_start = np.array(parts.param_start, dtype=np.int64)
    param = np.array(parts.param, dtype=np.float64)
    if not keep.all():
        number = np.cumsum(keep) - 1
        edges = np.repeat(keep, np.diff(start))
        params = np.repeat(keep, np.diff(param_start))
        start = np.concatenate(([0], np.cumsum(np.diff(start)[keep])))
        param_start = np.concatenate(([0], np.cumsum(np.diff(param_start)[keep])))
        kind, var, child, weight, param = kind[keep], var[keep], number[child[edges]], weight[edges], param[params]
    return Circuit(variables, kind, start, child, weight, var, param_start, param)


def _variables(given: Iterable[Variable]) -> tuple[Variable, ...]:
    try:
        variables = tuple(given)
    except TypeError:
        variables = None
    if variables is None or not all(isinstance(v, Variable) for v in variables):
        raise StructureError(f"variables must be a list of Variable, not {shortened(given)}")
    return variables


def _frozen(name: str, given: ArrayLike, dtype: type[S]) -> NDArray[S]:
    """A read-only copy in the right type, with the same numbers in it."""
    whole = issubclass(dtype, np.integer)
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):  # lists of different lengths
        array = np.zeros((), dtype=np.object_)
    fits = array.ndim == 1 and array.dtype.kind in "biuf"
    if fits:
        with np.errstate(invalid="ignore", over="ignore"):
            result = np.array(array, dtype=dtype, order="C")
        fits = not whole or array.dtype == dtype or bool((result == array).all())
    if not fits:
        what = "integers that fit its type" if whole else "numbers"
        raise StructureError(f"{name} must be a list or an array of {what}, not {shortened(given)}")
    result.setflags(write=False)
    return result


@lru_cache(maxsize=4096)
def _by_number(states: tuple[str, ...]) -> dict[int | float, tuple[int, ...]]:
    """The states whose names are numbers, by that number."""
    found: dict[int | float, tuple[int, ...]] = {}
    for i, state in enumerate(states):
        number = number_of(state)
        if number is not None and number == number:
            found[number] = (*found.get(number, ()), i)
    return found


def first_repeat(items: Iterable[T]) -> T:
    """The first of the items that was there before; there must be one."""
    seen: set[T] = set()
    return next(item for item in items if item in seen or seen.add(item))  # type: ignore[func-returns-value]


def listed(names: Sequence[Name], most: int = 8) -> str:
    """Names in a sentence, those in the middle left out if there are many."""
    if not names:
        return "no variables"
    if len(names) <= most:
        return ", ".join(map(str, names))
    return f"{', '.join(map(str, names[: most - 1]))}, ... {names[-1]} ({len(names)} in all)"


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
        if array[0] != 0 or array[-1] != size or (np.diff(array) < 0).any():
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
    owner = np.repeat(np.arange(n), fan_in)
    refuse((c.child < 0) | (c.child >= owner), "a child must come before its parent", edges=True)
    refuse(np.isnan(c.log_weight), "a weight is not a number", edges=True)
    refuse(c.log_weight == np.inf, "a weight is infinite", edges=True)
    refuse((c.kind[owner] == PRODUCT) & (c.log_weight != 0), "an edge below a product has a weight", edges=True)
    refuse(leaf & ((c.var < 0) | (c.var >= len(c.variables))), "its variable does not exist")
    cardinality = np.array([v.cardinality for v in c.variables] or [0])[np.where(leaf, c.var, 0)]
    refuse((leaf & (c.kind != GAUSSIAN) & (cardinality == 0)), "a continuous variable needs a Gaussian leaf")
    refuse((c.kind == GAUSSIAN) & (cardinality != 0), "a discrete variable cannot have a Gaussian leaf")
    refuse((c.kind == BERNOULLI) & (cardinality != 2), "a Bernoulli leaf needs a variable with two values")
    expected = np.select(
        [c.kind == INDICATOR, c.kind == BERNOULLI, c.kind == CATEGORICAL, c.kind == BINOMIAL, c.kind == GAUSSIAN],
        [1, 2, cardinality, 3, 2],
        default=0,
    )
    refuse(np.diff(c.param_start) != expected, "it has the wrong number of parameters")
    first = np.append(c.param, 0.0)[c.param_start[:-1]]
    refuse(
        (c.kind == INDICATOR) & ~((first >= 0) & (first < cardinality) & (first == np.floor(first))),
        "its value is out of range",
    )
    refuse((c.kind == BINOMIAL) & (first != cardinality - 1), "n trials need a variable with n + 1 values")
    kinds = np.repeat(c.kind, np.diff(c.param_start))
    who = np.repeat(np.arange(n), np.diff(c.param_start))
    trials = (kinds == BINOMIAL) & (c.param_start[who] == np.arange(who.size))
    logs = np.isin(kinds, (BERNOULLI, CATEGORICAL, BINOMIAL)) & ~trials
    bad_log = logs & ~(c.param <= 1e-9)
    bad_gauss = (kinds == GAUSSIAN) & ~np.isfinite(c.param)
    for bad, why in ((bad_log, "a probability is not in 0 to 1"), (bad_gauss, "a parameter is not finite")):
        nodes = np.zeros(n, dtype=np.bool_)
        nodes[who[bad]] = True
        refuse(nodes, why)
    second, third = (np.append(c.param, (0.0, 0.0, 0.0))[c.param_start[:-1] + i] for i in (1, 2))
    chances = np.exp(np.where(c.kind == BINOMIAL, (second, third), -np.inf)).sum(axis=0)
    refuse((c.kind == BINOMIAL) & ~(np.abs(chances - 1) <= 1e-6), "p and 1 - p do not add up to 1")
    refuse((c.kind == GAUSSIAN) & ~(second > 0), "the standard deviation must be positive")


@kernel
def _depth(start: LongArray, child: IntArray) -> int:
    level = np.zeros(start.size - 1, dtype=np.int64)
    for n in range(start.size - 1):
        for e in range(start[n], start[n + 1]):
            level[n] = max(level[n], level[child[e]] + 1)
    return int(level[-1])


@kernel
def _below(start: LongArray, child: IntArray, root: int) -> NDArray[np.bool_]:
    keep = np.zeros(start.size - 1, dtype=np.bool_)
    keep[root] = True
    for n in range(root, -1, -1):
        if keep[n]:
            for e in range(start[n], start[n + 1]):
                keep[child[e]] = True
    return keep
