"""Constraints on the answer: what a state of the query must satisfy, whatever its probability.

A literal is a pair ``(variable, value)``. The functions here make constraints from names; ``marginal_map``, ``mpe`` and
batches take a list of them as ``constraints=``:

>>> import margmap as mm
>>> two_faults = mm.constraints.at_most(2, [("pump", "broken"), ("valve", "stuck"), ("fuse", "blown")])
>>> print(two_faults)
at most 2 of pump=broken, valve=stuck, fuse=blown

``str`` of a constraint is the text that ``--constraint`` and instance files take, and :func:`parse` reads it. What the
variables and values mean is looked up when a model is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

from margmap.errors import QueryError

__all__ = [
    "Constraint",
    "allowed",
    "at_least",
    "at_most",
    "budget",
    "clause",
    "equal",
    "exactly",
    "implies",
    "mutex",
    "ordered",
    "parse",
]


class Term(NamedTuple):
    """What a literal adds to a sum; ``holds`` is False for the opposite: the variable has another value."""

    variable: Any
    value: Any
    cost: Fraction = Fraction(1)
    holds: bool = True


@dataclass(frozen=True)
class Constraint:
    """One condition: a sum over terms that lies between two ends, or two variables that are compared by their values.

    Made by the functions of this module.
    """

    #: How it is written.
    text: str
    terms: tuple[Term, ...] = ()
    #: None where there is no such end.
    low: Fraction | None = None
    high: Fraction | None = None
    #: Two variables of the same states: equal, or the first not after the second.
    compared: tuple[Any, Any] | None = None
    is_equal: bool = False

    def __str__(self) -> str:
        return self.text


def allowed(variable: Any, values: Iterable[Any]) -> Constraint:
    """The variable has one of these values."""
    values = _list_of(values, "values", "['young', 'old']")
    terms = tuple(Term(variable, value) for value in values)
    return Constraint(f"{_quoted(variable)} in {', '.join(map(_quoted, values))}", terms, low=Fraction(1))


def at_most(k: int, literals: Iterable[tuple[Any, Any]]) -> Constraint:
    """No more than ``k`` of the literals hold."""
    terms = _terms(literals)
    return Constraint(f"at most {_whole(k)} of {_listed(terms)}", terms, high=Fraction(k))


def at_least(k: int, literals: Iterable[tuple[Any, Any]]) -> Constraint:
    """``k`` of the literals hold, or more."""
    terms = _terms(literals)
    return Constraint(f"at least {_whole(k)} of {_listed(terms)}", terms, low=Fraction(k))


def exactly(k: int, literals: Iterable[tuple[Any, Any]]) -> Constraint:
    """``k`` of the literals hold, no more and no fewer."""
    terms = _terms(literals)
    return Constraint(f"exactly {_whole(k)} of {_listed(terms)}", terms, Fraction(k), Fraction(k))


def budget(costs: Mapping[tuple[Any, Any], Any], limit: Any) -> Constraint:
    """The costs of the literals that hold add up to no more than ``limit``; costs are numbers of at least 0.

    A float counts as the decimal number that it is written as: 0.1 is one tenth.
    """
    if not isinstance(costs, Mapping):
        raise QueryError("budget: give a mapping from literals to costs, such as {('pump', 'on'): 3}")
    most = _number(limit, "the limit of a budget")
    terms = _terms(costs, [_number(cost, f"the cost of {literal!r}") for literal, cost in costs.items()])
    shown = ", ".join(f"{_literal(term)} {term.cost}" for term in terms)
    return Constraint(f"budget {most}: {shown}", terms, high=most)


def clause(literals: Iterable[tuple[Any, Any]]) -> Constraint:
    """At least one of the literals holds."""
    terms = _terms(literals)
    return Constraint(f"any of {_listed(terms)}", terms, low=Fraction(1))


def implies(a: tuple[Any, Any], b: tuple[Any, Any]) -> Constraint:
    """If the first literal holds, so does the second."""
    (if_,), (then,) = _terms([a]), _terms([b])
    text = f"if {_literal(if_)} then {_literal(then)}"
    return Constraint(text, (if_._replace(holds=False), then), low=Fraction(1))


def mutex(literals: Iterable[tuple[Any, Any]]) -> Constraint:
    """No two of the literals hold together."""
    terms = _terms(literals)
    return Constraint(f"mutex {_listed(terms)}", terms, high=Fraction(1))


def equal(a: Any, b: Any) -> Constraint:
    """Two variables of the same states have the same value."""
    return Constraint(f"equal {_quoted(a)}, {_quoted(b)}", compared=(a, b), is_equal=True)


def ordered(a: Any, b: Any) -> Constraint:
    """Of two variables of the same states, the value of the first does not come after that of the second."""
    return Constraint(f"ordered {_quoted(a)}, {_quoted(b)}", compared=(a, b))


def _list_of(values: Iterable[Any], what: str, such: str) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable) or not (found := list(values)):
        raise QueryError(f"a constraint needs a list of {what}, such as {such}, not {values!r}")
    return found


def _terms(literals: Iterable[tuple[Any, Any]], costs: list[Fraction] | None = None) -> tuple[Term, ...]:
    found = list(literals) if isinstance(literals, Mapping) else _list_of(literals, "literals", "[('pump', 'broken')]")
    for literal in found:
        if not (isinstance(literal, tuple | list) and len(literal) == 2):
            raise QueryError(f"a literal is a pair such as ('pump', 'broken'), not {literal!r}")
    units = costs or [Fraction(1)] * len(found)
    return tuple(Term(variable, value, cost) for (variable, value), cost in zip(found, units, strict=True))


def _whole(k: object) -> int:
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        raise QueryError(f"a constraint counts {k!r} literals: give a whole number of at least 0")
    return k


def _number(value: Any, what: str) -> Fraction:
    """A number of at least 0, exactly; a float is the decimal number that it is written as."""
    try:
        number = Fraction(repr(value) if isinstance(value, float) else value)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        number = Fraction(-1)
    if number < 0 or isinstance(value, bool):
        raise QueryError(f"{what} is {value!r}: give a number of at least 0")
    return number


# -- the text of a constraint

_PLAIN = re.compile(r"[^\s,=:\"'\\]+")
_TOKEN = re.compile(r"""\s*(?:([,=:])|((?:[^\s,=:"'\\]|\\.|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')+))""", re.DOTALL)
_WORDS = ("at", "exactly", "budget", "any", "if", "mutex", "equal", "ordered")


def _quoted(name: Any) -> str:
    """A name or value as the grammar writes it."""
    text = str(getattr(name, "name", name))
    if _PLAIN.fullmatch(text) and text not in ("in", "then", "of", *_WORDS):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _literal(term: Term) -> str:
    return f"{_quoted(term.variable)}={_quoted(term.value)}"


def _listed(terms: Iterable[Term]) -> str:
    return ", ".join(map(_literal, terms))


def parse(text: str) -> Constraint:
    """The constraint that a text means; a :class:`QueryError` says at which character it cannot be read.

    The forms are ``at most 2 of a=1, b=1``, ``at least ...``, ``exactly ...``, ``budget 10: a=1 3, b=1 2.5``,
    ``any of a=1, b=0``, ``if a=1 then b=0``, ``mutex a=1, b=1``, ``a in x, y``, ``equal a, b`` and ``ordered a, b``.
    Quotes or a backslash protect spaces and ``, = :`` in names, and names that are words of these forms.
    """
    if not isinstance(text, str):
        raise QueryError(f"a constraint is made by margmap.constraints or written as text, not {text!r}")
    return _Parser(text).constraint()


class _Token(NamedTuple):
    at: int
    #: As it stands, and without quotes and backslashes.
    raw: str
    text: str


class _Parser:
    """Reads one constraint, token by token."""

    def __init__(self, text: str) -> None:
        self.text, self.next = text, 0
        self.tokens: list[_Token] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                self.fail(
                    at, f"{text[at]!r} is not closed" if text[at] in "\"'" else f"{text[at]!r} has no meaning here"
                )
            raw = match[1] or match[2]
            self.tokens.append(_Token(match.end() - len(raw), raw, _unquoted(raw)))
            at = match.end()

    def constraint(self) -> Constraint:
        first = self.tokens[0].raw if self.tokens else ""
        second = self.tokens[1].raw if len(self.tokens) > 1 else ""
        result = self.named(first) if first in _WORDS and second not in ("in", "=") else self.values()
        if self.next < len(self.tokens):
            self.fail(self.tokens[self.next].at, "the constraint should end here")
        return result

    def named(self, first: str) -> Constraint:
        """A form that begins with one of its own words."""
        self.next = 1
        if first == "at":
            most = self.word("most", "least") == "most"
            return (at_most if most else at_least)(self.count(), self.literals())
        if first == "exactly":
            return exactly(self.count(), self.literals())
        if first == "any":
            self.word("of")
            return clause(self.literals())
        if first == "mutex":
            return mutex(self.literals())
        if first == "if":
            condition = self.literal()
            self.word("then")
            return implies(condition, self.literal())
        if first == "budget":
            limit = self.amount()
            self.word(":")
            costs: dict[tuple[str, str], Fraction] = {}
            for literal, cost in self.several(lambda: (self.literal(), self.amount())):
                if literal in costs:
                    self.fail(self.tokens[self.next - 1].at, f"{literal[0]}={literal[1]} has a cost already")
                costs[literal] = cost
            return budget(costs, limit)
        a = self.name("a variable")
        self.word(",")
        return (equal if first == "equal" else ordered)(a, self.name("a variable"))

    def values(self) -> Constraint:
        """``variable in value, value``."""
        variable = self.name("a form such as 'at most 2 of a=1, b=1', or a variable")
        self.word("in")
        return allowed(variable, self.several(lambda: self.name("a value")))

    def count(self) -> int:
        token = self.take("a whole number")
        if not re.fullmatch(r"[0-9]{1,9}", token.raw):
            self.fail(token.at, "a whole number should be here")
        self.word("of")
        return int(token.raw)

    def amount(self) -> Fraction:
        token = self.take("a number")
        if not re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?(/[1-9][0-9]{0,17})?", token.raw) or (
            "." in token.raw and "/" in token.raw
        ):
            self.fail(token.at, "a number of at least 0 should be here, such as 3, 2.5 or 1/3")
        return Fraction(token.raw)

    def literals(self) -> list[tuple[str, str]]:
        return self.several(self.literal)

    def literal(self) -> tuple[str, str]:
        variable = self.name("a literal such as pump=broken")
        self.word("=")
        return variable, self.name("a value")

    def several(self, read: Any) -> list[Any]:
        found = [read()]
        while self.next < len(self.tokens) and self.tokens[self.next].raw == ",":
            self.next += 1
            found.append(read())
        return found

    def name(self, what: str) -> str:
        token = self.take(what)
        if token.raw in (",", "=", ":"):
            self.fail(token.at, f"{what} should be here")
        return token.text

    def word(self, *words: str) -> str:
        what = " or ".join(map(repr, words))
        token = self.take(what)
        if token.raw not in words:
            self.fail(token.at, f"{what} should be here")
        return token.raw

    def take(self, what: str) -> _Token:
        if self.next >= len(self.tokens):
            self.fail(len(self.text.rstrip()), f"it ends where {what} should be")
        self.next += 1
        return self.tokens[self.next - 1]

    def fail(self, at: int, problem: str) -> NoReturn:
        """Point at a character: with its number, from 1, and with a mark in the text."""
        marked = f"{self.text[:at]}>>>{self.text[at:]}"
        raise QueryError(f"constraint {self.text!r}, character {at + 1}: {problem} ({marked})")


def _unquoted(raw: str) -> str:
    """A token without its quotes and backslashes."""
    found, quote, i = [], "", 0
    while i < len(raw):
        char = raw[i]
        if char == "\\":
            i += 1
            found.append(raw[i])
        elif char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        else:
            found.append(char)
        i += 1
    return "".join(found)
