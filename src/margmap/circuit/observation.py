"""Evidence that is not a single value: sets, likelihoods, intervals, and how they are written as text and in JSON.

Whatever a user gives becomes one of two things. :class:`Weights` is a number from 0 up for each value of a discrete
variable, which multiplies the model: 0 and 1 for a set of values, any numbers for a likelihood, which is what Pearl
(*Probabilistic Reasoning in Intelligent Systems*, 1988) calls virtual evidence. :class:`Between` is an interval of a
continuous variable. Text is read by :func:`read_written`; its grammar is in ``docs/cli.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from margmap.circuit.evidence import is_missing, plain, shortened
from margmap.errors import QueryError
from margmap.foundation.numerals import number_of

if TYPE_CHECKING:
    from margmap.circuit.variable import Variable

#: Characters that mean something in written evidence unless a quote or a backslash protects them.
SPECIAL = ",|:=<>!.\\\"'"

_OPERATORS = ("!=", ">=", "<=", "=", ">", "<")


@dataclass(frozen=True)
class Weights:
    """What evidence says of each value of a discrete variable: a number from 0 up that multiplies the model."""

    values: tuple[float, ...]

    def times(self, other: Weights) -> Weights:
        """Both pieces of evidence together."""
        return Weights(tuple(a * b for a, b in zip(self.values, other.values, strict=True)))


@dataclass(frozen=True)
class Between:
    """An interval of a continuous variable; an end that is infinite is open."""

    low: float
    high: float


@dataclass(frozen=True)
class NoneOf:
    """Evidence that a variable has none of these values; :func:`none_of` makes it."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Written:
    """Evidence as text of the command line or of a table, read once the variable is known."""

    operator: str
    text: str

    def __str__(self) -> str:
        return self.text if self.operator == "=" else f"{self.operator}{self.text}"


#: What a user may say of one variable.
Observation: TypeAlias = (
    "int | float | str | AbstractSet[Any] | Mapping[Any, float] | tuple[Any, Any] | NoneOf | Weights | Between | "
    "Written | None"
)


def none_of(*values: Any) -> NoneOf:
    """Evidence that a variable has another value than these: ``{"age": mm.none_of("old")}``."""
    if not values:
        raise QueryError("none_of() names no value: give those that are ruled out, such as none_of('old')")
    for value in values:
        if isinstance(value, list | tuple | AbstractSet | Mapping | np.ndarray):
            raise QueryError(f"none_of({shortened(value)}): give values one by one, such as none_of('old', 'young')")
    return NoneOf(values)


def from_json(value: Any) -> Any:
    """Evidence as JSON has it: a list is any of its values, an object a likelihood, ``$not`` or ``$between``."""
    if isinstance(value, list):
        return frozenset(_scalars(value))
    if isinstance(value, dict):
        if list(value) == ["$not"]:
            values = value["$not"] if isinstance(value["$not"], list) else [value["$not"]]
            return none_of(*_scalars(values))
        if list(value) == ["$between"]:
            ends = value["$between"]
            if not isinstance(ends, list):
                raise QueryError('"$between" needs a list of two numbers, null for an open end')
            return tuple(ends)
        return dict(value)
    return value


def _scalars(values: Sequence[Any]) -> Sequence[Any]:
    for value in values:
        if isinstance(value, list | dict) or value is None:
            raise QueryError(f"a list of values has {shortened(value)} in it: write numbers or names of states")
    return values


def soft_evidence(variable: Variable, given: Any) -> Weights | Between | None:
    """What a set, a likelihood or an interval says of a variable; None if what is given is a single value."""
    if isinstance(given, Weights | Between):
        fits = len(given.values) == variable.cardinality if isinstance(given, Weights) else variable.continuous
        if not fits:
            raise QueryError(f"variable {variable.name!r}: {given!r} does not fit it")
        return given
    if isinstance(given, AbstractSet):
        return _any_of(variable, given)
    if isinstance(given, NoneOf):
        return _all_but(variable, given.values)
    if isinstance(given, Mapping):
        return _likelihood(variable, given.items())
    if isinstance(given, tuple):
        return _interval(variable, given)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        _refuse_list(variable, given)
    if isinstance(given, np.ndarray) and given.ndim > 0:
        _refuse_list(variable, given)
    return None


def _refuse_list(variable: Variable, given: Any) -> None:
    raise QueryError(
        f"variable {variable.name!r}: {shortened(given)} can be a set of values or a list of weights: give a set "
        "{'a', 'b'} for any of them, a dict {'a': 0.7, 'b': 0.3} for a likelihood, a tuple (lo, hi) for an interval"
    )


def _codes(variable: Variable, values: Iterable[Any]) -> set[int]:
    if variable.continuous:
        raise QueryError(
            f"variable {variable.name!r} is continuous: give a number, or an interval (lo, hi), not a set of values"
        )
    codes = set()
    for value in values:
        if is_missing(value):
            raise QueryError(f"variable {variable.name!r}: {value!r} in a set of values is no value")
        codes.add(variable.code(value))
    return codes


def _of_codes(variable: Variable, codes: AbstractSet[int]) -> Weights:
    if not codes:
        raise QueryError(f"variable {variable.name!r}: the evidence leaves no value that it could have")
    return Weights(tuple(1.0 if x in codes else 0.0 for x in range(variable.cardinality)))


def _any_of(variable: Variable, values: AbstractSet[Any]) -> Weights:
    return _of_codes(variable, _codes(variable, values))


def _all_but(variable: Variable, values: Sequence[Any]) -> Weights:
    return _of_codes(variable, set(range(variable.cardinality)) - _codes(variable, values))


def _likelihood(variable: Variable, pairs: Iterable[tuple[Any, Any]]) -> Weights:
    if variable.continuous:
        raise QueryError(f"variable {variable.name!r} is continuous: a likelihood needs a variable with states")
    found: dict[int, float] = {}
    for value, weight in pairs:
        code, number = variable.code(value), plain(weight)
        if code in found:
            raise QueryError(f"variable {variable.name!r}: the likelihood has {variable.label(code)!r} twice")
        if isinstance(number, str):
            number = number_of(number)
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
            raise QueryError(
                f"variable {variable.name!r}: the likelihood of {shortened(value)} is {shortened(weight)}: give a "
                "finite number of at least 0"
            )
        try:
            found[code] = float(number)
        except OverflowError:
            raise QueryError(f"variable {variable.name!r}: the likelihood {shortened(weight)} is too large") from None
    missing = [variable.label(x) for x in range(variable.cardinality) if x not in found]
    if missing:
        raise QueryError(
            f"variable {variable.name!r}: the likelihood says nothing of {', '.join(map(repr, missing[:8]))}: give a "
            "number for each value, 0 for one that is ruled out"
        )
    if not any(found.values()):
        raise QueryError(f"variable {variable.name!r}: the likelihood is 0 for every value, so nothing is possible")
    return Weights(tuple(found[x] for x in range(variable.cardinality)))


def _interval(variable: Variable, given: tuple[Any, ...]) -> Weights | Between:
    if len(given) != 2:
        raise QueryError(f"variable {variable.name!r}: {shortened(given)} is no interval: give (lo, hi)")
    low, high = (_end(variable, end, open_end) for end, open_end in zip(given, (-math.inf, math.inf), strict=True))
    if low > high:
        raise QueryError(f"variable {variable.name!r}: the interval from {low:g} to {high:g} is empty")
    if variable.continuous:
        if low == high:
            raise QueryError(f"variable {variable.name!r}: an interval of one point has probability 0: give the value")
        return Between(low, high)
    return _of_codes(variable, {x for x, number in enumerate(_numbers(variable)) if low <= number <= high})


def _end(variable: Variable, given: Any, open_end: float) -> float:
    if given is None:
        return open_end
    number = plain(given)
    if isinstance(number, str):
        number = number_of(number)
    if isinstance(number, bool) or not isinstance(number, int | float) or number != number:
        raise QueryError(f"variable {variable.name!r}: {shortened(given)} is no end of an interval: give a number")
    try:
        return float(number)
    except OverflowError:
        return math.copysign(math.inf, number)


def _numbers(variable: Variable) -> list[float]:
    """The values of a discrete variable as numbers: their names if these are numbers, or else they have none."""
    if not variable.states:
        return list(map(float, range(variable.cardinality)))
    found = [number_of(state) for state in variable.states]
    numbers = [float(x) for x in found if x is not None and x == x]
    if len(numbers) < len(found):
        raise QueryError(
            f"variable {variable.name!r}: its states are not all numbers, so that there is no interval of them: give a "
            "set of states"
        )
    return numbers


def is_written(text: str) -> bool:
    """Whether a text can say more than one value."""
    return any(character in text for character in "|:\\\"'<>") or ".." in text or text.startswith("!=")


def written_cell(text: str) -> Written:
    """A cell of a table: the text after its operator, if it begins with one."""
    for operator in _OPERATORS:
        if operator != "=" and text.startswith(operator):
            return Written(operator, text[len(operator) :])
    return Written("=", text)


def read_written(variable: Variable, given: Written) -> Any:
    """Written evidence as Python would have it: a name, a set, a likelihood, an interval."""
    text = given.text.strip()
    if not text:
        raise QueryError(f"variable {variable.name!r}: {str(given)!r} has no value")
    if given.operator == "=" and text in variable.states:
        return text
    if given.operator == "!=":
        return none_of(*(_name(variable, part, given) for part in split(text, "|")))
    if given.operator != "=":
        return _one_sided(variable, given)
    parts = split(text, "|")
    pairs = [_weighted(variable, part) for part in parts]
    if all(weight is None for _, weight in pairs):
        if len(parts) > 1:
            return frozenset(_name(variable, part, given) for part in parts)
        ends = split(text, "..")
        if len(ends) == 2 and unprotected(text) not in variable.states:
            return tuple(unprotected(end) or None for end in ends)
        return _name(variable, text, given)
    if any(weight is None for _, weight in pairs):
        raise QueryError(
            f"variable {variable.name!r}: {str(given)!r} gives a weight to some values only: write young|old for any "
            "of them, pos:0.7|neg:0.3 for a likelihood"
        )
    found: dict[str, float] = {}
    for value, weight in pairs:
        if value in found:
            raise QueryError(f"variable {variable.name!r}: {str(given)!r} has {value!r} twice")
        found[value] = weight  # type: ignore[assignment]
    return found


def _name(variable: Variable, part: str, given: Written) -> str:
    name = part.strip() if part.strip() in variable.states else unprotected(part)
    if not name:
        raise QueryError(f"variable {variable.name!r}: a value is missing in {str(given)!r}")
    return name


def _weighted(variable: Variable, part: str) -> tuple[str, str | None]:
    """A value and the weight after its last colon, if it has one."""
    if part.strip() in variable.states or unprotected(part) in variable.states:
        return part, None
    pieces = split(part, ":")
    if len(pieces) == 1:
        return part, None
    return unprotected(part[: len(part) - len(pieces[-1]) - 1]), pieces[-1].strip()


def _one_sided(variable: Variable, given: Written) -> Any:
    number = number_of(unprotected(given.text))
    if number is None or number != number:
        raise QueryError(f"variable {variable.name!r}: {str(given)!r}: {given.operator} needs a number")
    if variable.continuous or given.operator in (">=", "<="):
        return (number, None) if given.operator[0] == ">" else (None, number)
    codes = [x for x, own in enumerate(_numbers(variable)) if (own > number if given.operator == ">" else own < number)]
    return _of_codes(variable, set(codes))


def protected(text: str) -> list[bool]:
    """For each character whether a quote or a backslash takes its special meaning away, these themselves included.

    A quote counts where a name or a value begins, and only if it is closed; a backslash counts before a special
    character.
    """
    marks = [False] * len(text)
    at, fresh = 0, True
    while at < len(text):
        character = text[at]
        if character == "\\" and at + 1 < len(text) and text[at + 1] in SPECIAL:
            marks[at] = marks[at + 1] = True
            at, fresh = at + 2, False
        elif character in "\"'" and fresh and (end := text.find(character, at + 1)) > 0:
            marks[at : end + 1] = [True] * (end + 1 - at)
            at, fresh = end + 1, False
        else:
            fresh = character in ",|:=<>" or (fresh and character.isspace())
            at += 1
    return marks


def split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators that nothing protects, as they are written."""
    marks, parts, begin, at = protected(text), [], 0, 0
    while at < len(text):
        if not marks[at] and text.startswith(separator, at):
            parts.append(text[begin:at])
            at = begin = at + len(separator)
        else:
            at += 1
    return [*parts, text[begin:]]


def unprotected(text: str) -> str:
    """A text without the quotes and backslashes that protect it, and without spaces around it."""
    text = text.strip()
    if len(text) >= 2 and text[0] in "\"'" and text.find(text[0], 1) == len(text) - 1:
        return text[1:-1]
    marks, out, at = protected(text), [], 0
    while at < len(text):
        if marks[at] and text[at] == "\\":
            at += 1
        out.append(text[at])
        at += 1
    return "".join(out)


def read_pair(text: str) -> tuple[str, Written | str] | None:
    """Variable and evidence of one piece such as ``age!=old``; None if it has no operator or no value."""
    marks = protected(text)
    found = [(at, op) for at in range(len(text)) if not marks[at] for op in _OPERATORS if text.startswith(op, at)]
    if not found:
        return None
    # The first = decides, since < and > may be part of a name; ! < or > before it belong to it.
    at, operator = next(((at, op) for at, op in found if "=" in op), found[0])
    name, value = text[:at], text[at + len(operator) :]
    rest = protected(value)
    if not value.strip() or any(x == "=" and not mark for x, mark in zip(value, rest, strict=True)):
        return None
    simple = operator == "=" and not is_written(value)
    return unprotected(name), value if simple else Written(operator, value)
