"""Variables with names and states, and models whose variables are found by their names."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from margmap.circuit.encoding import Encoding
from margmap.circuit.evidence import cell_of, is_observed, names_of, pairs_of, plain, shortened
from margmap.circuit.observation import Between, Weights, Written, is_written, read_written, soft_evidence, written_cell
from margmap.errors import QueryError, StructureError
from margmap.foundation.numerals import number_of, real_of
from margmap.foundation.wording import did_you_mean

if TYPE_CHECKING:
    from margmap.circuit.formula import Expression

Name: TypeAlias = int | str
Value: TypeAlias = int | float | str
T = TypeVar("T")

MAX_CARDINALITY = 1 << 20

# Texts that pandas reads as True and False.
_TRUTH = ("True", "true", "False", "false")


@dataclass(frozen=True, slots=True)
class Variable:
    """A named variable with ``cardinality`` values 0, 1, ... (0: continuous), whose values may have names.

    ``X[1]`` is the indicator of X = 1, and ``X["yes"]`` that of a state called so; see :mod:`margmap.circuit.formula`.
    ``encoding`` says how a column of a table became this variable, if one did.
    """

    name: Name
    cardinality: int = 2
    states: tuple[str, ...] = ()
    encoding: Encoding | None = field(default=None, repr=False)

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
        if self.encoding is not None:
            self._check_encoding(self.encoding)

    def _check_encoding(self, encoding: Encoding) -> None:
        if not isinstance(encoding, Encoding):
            raise StructureError(f"variable {self.name!r}: its encoding is {shortened(encoding)}, not an Encoding")
        if (encoding.kind == "continuous") != self.continuous:
            raise StructureError(
                f"variable {self.name!r}: an encoding of {encoding.kind!r} does not go with {self.cardinality} values"
            )
        if encoding.kind == "bins" and (len(encoding.middles) != self.cardinality or not self.states):
            raise StructureError(
                f"variable {self.name!r}: {len(encoding.middles)} bins for {self.cardinality} values"
                f" with {len(self.states)} names"
            )

    @property
    def bins(self) -> Encoding | None:
        """The encoding of a variable whose values are ranges of numbers; None for others."""
        return self.encoding if self.encoding is not None and self.encoding.kind == "bins" else None

    @property
    def continuous(self) -> bool:
        """Whether the variable takes real values."""
        return self.cardinality == 0

    def code(self, value: Value) -> int:
        """The number of the value that a user calls ``value``.

        Where states have names, ``value`` is one of them: a text is that name, and a number (5, 5.0 or the text "5",
        unless that is a name itself) is the one name that is this number. True and False are the states that are
        called so. Where states have no names, ``value`` is the number itself, which a text may have as well. Where
        states are bins, a number is the bin it falls in, and spaces in the name of a bin do not matter.
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
        if self.bins is not None and not isinstance(given, bool):
            found = self._in_bin(given, value)
        else:
            found = () if given is None else self.called(given)
        if len(found) > 1:
            both = " or ".join(f"the state {self.states[i]!r}" for i in found)
            raise QueryError(f"variable {self.name!r}: {shortened(value)} can mean {both}: give its name as text")
        if not found:
            known = f"its states are {listed(self.states, 40)}" if self.states else "it has no state names"
            near = did_you_mean(plain(value), self.states)
            raise QueryError(f"variable {self.name!r} has no state {shortened(plain(value))}: {near}{known}")
        return found[0]

    def _in_bin(self, number: float | None, value: Any) -> tuple[int, ...]:
        """The bin of a number, or, if it is None, the one that a text names with other spaces."""
        assert self.bins is not None
        if number is None:
            name = "".join(str(value).split())
            return tuple(i for i, state in enumerate(self.states) if "".join(state.split()) == name)
        if not abs(number) < float("inf"):
            raise QueryError(f"variable {self.name!r}: {shortened(value)} is not finite, and falls in no bin")
        return (self.bins.bin_of(number),)

    def value(self, given: Any) -> int | float | Weights | Between | None:
        """What evidence says about this variable: a code, a real number, weights or an interval; None if nothing."""
        if isinstance(given, Written):
            given = read_written(self, given)
        if not is_observed(self, given):
            return None
        if type(given) not in (int, float, str):
            soft = soft_evidence(self, given)
            if soft is not None:
                return soft
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


# Types of names and of single values that are what they look like.
_PLAIN, _SINGLE = frozenset((int, str)), frozenset((int, float))


class Observed(dict[int, Any]):
    """What :meth:`Named.observed` found, as evidence for the same model: it is not looked at again."""


class Named:
    """What a circuit and a network share: variables that are found by their names."""

    variables: tuple[Variable, ...]
    _what = "circuit"

    @cached_property
    def names(self) -> tuple[Name, ...]:
        """The names of the variables, in column order."""
        return tuple(variable.name for variable in self.variables)

    @cached_property
    def states(self) -> tuple[tuple[str, ...], ...]:
        """The names of the values of each variable; empty where they have none."""
        return tuple(variable.states for variable in self.variables)

    @cached_property
    def _codes(self) -> tuple[dict[str, int], ...]:
        """The numbers of the values of each variable by their names."""
        return tuple({state: code for code, state in enumerate(states)} for states in self.states)

    @cached_property
    def plain_numbers(self) -> tuple[int, ...]:
        """The number of values of each variable whose values are plain numbers; 0 where they have names or bins."""
        return tuple(0 if v.states or v.encoding is not None else v.cardinality for v in self.variables)

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
        if type(name) in _PLAIN and name in self._clear:
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
            near = did_you_mean(name.name if isinstance(name, Variable) else name, self.names)
            raise QueryError(f"unknown variable {shortened(name)}: {near}the {self._what} has {listed(self.names)}")
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
        clear, index = self._clear, self.index
        columns = [clear[n] if type(n) in _PLAIN and n in clear else index(n) for n in names_of(query)]
        seen = set(columns)
        if len(seen) == len(columns) and not any(column in observed for column in columns):
            return columns
        seen = set()
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

        A discrete variable has the number of its value, a continuous one its value; evidence that is not a single value
        is :class:`~margmap.circuit.observation.Weights` or :class:`~margmap.circuit.observation.Between`. All evidence
        goes through here. ``table`` says that it is a row of a table, where -1 and some texts mean that nothing is
        observed, and a text can be written evidence such as ``young|old``.
        """
        if isinstance(evidence, Observed):
            return evidence
        at_once = None if table else self._plainly_observed(evidence)
        if at_once is not None:
            return at_once
        found: dict[int, Any] = {}
        seen: set[int] = set()
        pairs, cells = pairs_of(evidence)
        for name, given in pairs:
            column = self.index(name)
            variable = self.variables[column]
            if column in seen:
                raise QueryError(f"variable {variable.name!r} is observed twice, under its name and the name as text")
            seen.add(column)
            value = variable.value(_cell(variable, given) if table or cells else given)
            if value is not None:
                found[column] = value
        return found

    def _plainly_observed(self, evidence: Any) -> dict[int, Any] | None:
        """The same where every name is clear and every value a number or the very name of a value; otherwise None."""
        if type(evidence) is not dict:
            return None
        clear, sizes, codes = self._clear, self.plain_numbers, self._codes
        found: dict[int, Any] = {}
        for name, value in evidence.items():
            if type(name) not in _PLAIN or (column := clear.get(name, -1)) < 0:
                return None
            if type(value) is int and 0 <= value < sizes[column]:
                found[column] = value
            elif type(value) is str and value in codes[column]:
                found[column] = codes[column][value]
            else:
                return None
        return found if len(found) == len(evidence) else None

    def labelled(self, observed: Mapping[int, Any]) -> dict[Any, Any]:
        """What :meth:`observed` found, as evidence that means the same in every model with these variables."""
        variables = {self.variables[column]: value for column, value in observed.items()}
        soft = Weights | Between
        return {
            v: value if v.continuous or isinstance(value, soft) else v.label(int(value))
            for v, value in variables.items()
        }


def _cell(variable: Variable, cell: Any) -> Any:
    """What a cell of a table says, written evidence included; the name of a state is that state."""
    found = cell_of(variable, cell)
    if isinstance(found, str) and is_written(found) and found not in variable.states:
        return written_cell(found.strip())
    return found


def single(observed: Mapping[int, Any]) -> Mapping[int, Any]:
    """Without the variables whose values are still open, because there are only weights for them."""
    if all_single(observed):
        return observed
    return {column: value for column, value in observed.items() if not isinstance(value, Weights)}


def all_single(observed: Mapping[int, Any]) -> bool:
    """Whether all evidence is single values: a number for each variable."""
    return _SINGLE.issuperset(map(type, observed.values()))


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
