"""The interchange format for Bayesian networks (BIF 0.15), as the bnlearn repository and pgmpy write it.

The text is cut into tokens by one regular expression; a token's line is only worked out for an error. Names and states
may be quoted, commas between numbers and states may be missing, comments are ``//`` and ``/* */``, and properties are
skipped. In ``table`` the child varies slowest and the last parent fastest; in rows such as ``(yes, no) 0.1, 0.9;`` the
states are the parents', in the order in which the block names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np

from margmap.circuit import FloatArray, Name, Variable
from margmap.errors import FormatError, StructureError
from margmap.foundation.numerals import is_plain, number_of
from margmap.io.networks import network_of
from margmap.io.reading import shorten
from margmap.network.network import MAX_SCOPE, MAX_TABLE, Network, table_size

_TOKEN = re.compile(
    r"""(?://[^\n]*|/\*.*?\*/|\s)+
    | ( "[^"]*" | [{}()\[\],;|] | (?:[^\s{}()\[\],;|"/]|/(?![/*]))+ | /\*.* | ".* )""",
    re.VERBOSE | re.DOTALL,
)
#: Defaults may stand for this many entries in all: a short file must not need much memory.
MAX_SPREAD = 1 << 22

_PUNCTUATION = frozenset("{}()[],;|")


def read(lines: Sequence[str], path: Path) -> Network:
    """The network that the lines of a BIF file describe."""
    return _Reader("\n".join(lines), path).network()


class _Reader:
    def __init__(self, text: str, path: Path) -> None:
        self.text, self.path = text, path
        self.tokens: list[str] = [token for token in _TOKEN.findall(text) if token]
        last = self.tokens[-1] if self.tokens else ""
        if last.startswith("/*") or last.count('"') == 1:
            what = "a comment does not end in '*/'" if last[0] == "/" else "a quoted name does not end"
            self.fail(f"{what}:", len(self.tokens) - 1)
        self.at = 0
        self.spread = 0  # how many entries of tables came from defaults
        self.variables: list[Variable] = []
        self.column: dict[str, int] = {}

    def network(self) -> Network:
        waiting: list[int] = []
        while self.at < len(self.tokens):
            begun = self.at
            word = self.tokens[begun].lower()
            self.at += 1
            if word == "network":
                while self.tokens[self.at : self.at + 1] not in ([], ["{"]):
                    self.at += 1
                self.expect("{", "after the network's name")
                while not self.accept("}"):
                    self.property("expected 'property' or '}', found")
            elif word == "variable":
                self.variable()
            elif word == "probability":
                waiting.append(begun)
                self.at = self.end("}", "this block does not end in '}': is the file truncated?", begun)
            elif word != ";":
                self.fail("expected 'network', 'variable' or 'probability', found", begun)
        if not self.variables:
            raise FormatError("there is no variable in this file", path=self.path)
        # A block may come before the variables that it names.
        factors = [self.probability(begun + 1) for begun in waiting]
        return network_of(self.variables, factors, "bayes", self.path, lambda factor: self.line(waiting[factor]))

    def variable(self) -> None:
        begun = self.at
        name = self.name("a variable's name")
        if name in self.column:
            self.fail(f"variable {name!r} is defined a second time:", begun)
        self.expect("{", f"after 'variable {name}'")
        states: list[str] | None = None
        while not self.accept("}"):
            if states is not None or not self.accept("type"):
                self.property("expected 'type discrete', 'property' or '}', found")
                continue
            if not self.accept("discrete"):
                self.fail(f"variable {name!r} is not discrete:", self.at)
            number = None
            if self.accept("["):
                number, where = self.name("the number of states"), self.at - 1
                self.expect("]", "after the number of states")
            self.expect("{", f"before the states of {name!r}")
            states = self.names_until("}")
            self.expect(";", f"after the states of {name!r}")
            if number is not None and number.lstrip("0") != str(len(states)).lstrip("0"):
                self.fail(f"variable {name!r} lists {len(states)} states, but announces", where)
        if not states:
            what = "no 'type discrete' line" if states is None else "no states"
            self.fail(f"variable {name!r} has {what}:", begun)
        try:
            self.variables.append(Variable(name, len(states), tuple(states)))
        except StructureError as error:
            raise FormatError(str(error), path=self.path, line=self.line(begun)) from error
        self.column[name] = len(self.column)

    def probability(self, begun: int) -> tuple[tuple[int, ...], FloatArray]:
        """The scope and the table of the block whose word ``probability`` is before token ``begun``."""
        self.at = begun
        self.expect("(", "after 'probability'")
        child = self.known()
        parents: list[int] = []
        if self.accept("|"):
            while self.peek() != ")":
                parents.append(self.known())
                self.accept(",")
        self.expect(")", "after the parents")
        self.expect("{", "before the table")
        name, width = self.variables[child].name, self.variables[child].cardinality
        shape = [self.variables[p].cardinality for p in parents]
        size = table_size(shape)
        if size * width > MAX_TABLE or len(parents) >= MAX_SCOPE:
            limits = f"{MAX_SCOPE} variables and {MAX_TABLE} numbers are the most"
            self.fail(f"the table of {name!r} is too large with {len(parents)} parents, {limits}:", begun)
        codes = [{state: i for i, state in enumerate(self.variables[p].states)} for p in parents]
        rows: dict[int, list[float]] = {}
        default: list[float] | None = None
        table: FloatArray | None = None
        while not self.accept("}"):
            where = self.at
            if self.accept("("):
                row = self.row(self.names_until(")"), parents, codes, name, where)
                if row in rows:
                    self.fail(f"a row of {name!r} is there twice:", where)
                rows[row] = self.numbers(width, f"a row of {name!r}")
            elif table is None and self.accept("table"):
                flat = self.numbers(size * width, f"the table of {name!r}")
                table = np.array(flat).reshape(width, size).T
            elif default is None and self.accept("default"):
                default = self.numbers(width, f"the default of {name!r}")
            else:
                expected = "expected a row, 'table', 'default', 'property' or '}', found"
                self.property(f"in the table of {name!r}, {expected}")
        if table is not None and (rows or default is not None):
            self.fail(f"{name!r} has both a table and rows:", begun)
        if table is None:
            missing = size - len(rows)
            if not rows and default is None:
                self.fail(f"the table of {name!r} is missing:", begun)
            if missing and default is None:
                gone = np.unravel_index(next(row for row in range(size) if row not in rows), shape)
                shown = ", ".join(self.variables[p].states[int(x)] for p, x in zip(parents, gone, strict=True))
                self.fail(f"{missing} of {size} rows of {name!r} are missing, such as ({shown}):", begun)
            self.spread += missing * width
            if self.spread > MAX_SPREAD:
                self.fail(f"the defaults up to {name!r} stand for more than {MAX_SPREAD} entries of tables:", begun)
            table = np.tile(default or [0.0] * width, (size, 1))
            for row, numbers in rows.items():
                table[row] = numbers
        return (*parents, child), table

    def row(self, states: list[str], parents: list[int], codes: list[dict[str, int]], name: Name, where: int) -> int:
        """The number of the row that these states of the parents name."""
        if len(states) != len(parents):
            self.fail(f"a row of {name!r} names {len(states)} states for {len(parents)} parents:", where)
        row = 0
        for state, code, parent in zip(states, codes, parents, strict=True):
            if state not in code:
                known = shorten(", ".join(code), 400)
                self.fail(f"{self.variables[parent].name!r} has no state {state!r} (it has {known}):", where)
            row = row * len(code) + code[state]
        return row

    def numbers(self, count: int, what: str) -> list[float]:
        begun = self.at
        end = self.end(";", f"{what} does not end in ';':", begun)
        part = [token for token in self.tokens[begun : end - 1] if token != ","]
        try:
            found = list(map(float, part))
        except ValueError:
            found = []
        if len(found) != len(part) or not is_plain("".join(part)):
            self.fail_at(f"{what} has something that is no number:", lambda token: number_of(token) is None)
        if len(found) != count:
            self.fail(f"{what} has {len(found)} numbers, but needs {count}:", begun)
        for x in found:
            if not 0 <= x <= 1 + 1e-6:
                self.fail_at(f"{what}: {x} is no probability:", lambda token: not 0 <= float(token) <= 1)
        self.at = end
        return found

    def known(self) -> int:
        name = self.name("a variable's name")
        if name not in self.column:
            self.fail(f"variable {name!r} is not defined:", self.at - 1)
        return self.column[name]

    def name(self, what: str) -> str:
        token = self.peek()
        if token in _PUNCTUATION:
            self.fail(f"expected {what}, found", self.at)
        self.at += 1
        return token[1:-1] if token[0] == '"' and len(token) > 1 else token

    def names_until(self, end: str) -> list[str]:
        found = []
        while not self.accept(end):
            found.append(self.name(f"a state or {end!r}"))
            self.accept(",")
        return found

    def property(self, otherwise: str) -> None:
        if self.peek().lower() != "property":
            self.fail(otherwise, self.at)
        self.at = self.end(";", "a property does not end in ';':", self.at)

    def end(self, token: str, otherwise: str, begun: int) -> int:
        """Where the first token after ``token`` is, looking from ``begun`` on."""
        try:
            return self.tokens.index(token, begun) + 1
        except ValueError:
            self.fail(otherwise, begun)

    def peek(self) -> str:
        if self.at >= len(self.tokens):
            raise FormatError("the file ends inside a block: it is truncated", path=self.path, line=self.line(self.at))
        return self.tokens[self.at]

    def accept(self, token: str) -> bool:
        """Pass over the next token if it is this one, in small or large letters."""
        found = self.peek().lower() == token
        self.at += found
        return found

    def expect(self, token: str, where: str) -> None:
        if not self.accept(token):
            self.fail(f"expected {token!r} {where}, found", self.at)

    def line(self, index: int) -> int:
        """The line of a token, by cutting the text up once more."""
        matches = (match for match in _TOKEN.finditer(self.text) if match[1])
        match = next(islice(matches, index, None), None)
        return self.text.count("\n", 0, len(self.text) if match is None else match.start()) + 1

    def fail_at(self, message: str, wrong: Callable[[str], bool]) -> NoReturn:
        """Refuse the first of the tokens ahead that is wrong; commas do not count."""
        ahead = range(self.at, len(self.tokens))
        self.fail(message, next(i for i in ahead if self.tokens[i] != "," and wrong(self.tokens[i])))

    def fail(self, message: str, index: int) -> NoReturn:
        token = shorten(self.tokens[index]) if index < len(self.tokens) else "the end of the file"
        raise FormatError(f"{message} {token!r}", path=self.path, line=self.line(index))
