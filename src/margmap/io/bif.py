"""The interchange format for Bayesian networks (BIF 0.15), as the bnlearn repository and pgmpy write it.

The text is cut into tokens by one regular expression; a token's line is only worked out for an error. Names and states
may be quoted, commas between numbers and states may be missing, comments are ``//`` and ``/* */``, and properties are
skipped. In ``table`` the child varies slowest and the last parent fastest; in rows such as ``(yes, no) 0.1, 0.9;`` the
states are the parents', in the order in which the block names them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np

from margmap.circuit import FloatArray, Variable
from margmap.errors import FormatError, StructureError
from margmap.foundation.numerals import is_plain, number_of
from margmap.io.reading import shorten
from margmap.network.network import MAX_SCOPE, MAX_TABLE, FactorError, Network, table_size

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
        self.code: list[dict[str, int]] = []

    def network(self) -> Network:
        blocks: list[tuple[int, tuple[tuple[int, ...], FloatArray]]] = []
        waiting: list[int] = []
        while self.at < len(self.tokens):
            begun = self.at
            word = self.tokens[self.at].lower()
            self.at += 1
            if word == "network":
                while self.tokens[self.at : self.at + 1] not in ([], ["{"]):
                    self.at += 1
                self.expect("{", "after the network's name")
                self.skip_properties()
            elif word == "variable":
                self.variable()
            elif word == "probability":
                waiting.append(begun)
                self.at = self.end_of_block(begun)
            elif word != ";":
                self.fail("expected 'network', 'variable' or 'probability', found", begun)
        if not self.variables:
            raise FormatError("there is no variable in this file", path=self.path)
        for begun in waiting:  # a block may come before the variables that it names
            self.at = begun + 1
            blocks.append((begun, self.probability()))
        try:
            return Network(self.variables, [factor for _, factor in blocks])
        except FactorError as error:
            raise FormatError(str(error), path=self.path, line=self.line(blocks[error.factor][0])) from error
        except StructureError as error:
            raise FormatError(str(error), path=self.path) from error

    def variable(self) -> None:
        begun = self.at
        name = self.name("a variable's name")
        if name in self.column:
            self.fail(f"variable {name!r} is defined a second time:", begun)
        self.expect("{", f"after 'variable {name}'")
        states: list[str] | None = None
        while self.peek() != "}":
            if self.peek().lower() != "type" or states is not None:
                self.property("expected 'type discrete', 'property' or '}', found")
                continue
            self.at += 1
            if self.peek().lower() != "discrete":
                self.fail(f"variable {name!r} is not discrete:", self.at)
            self.at += 1
            number = None
            if self.peek() == "[":
                self.at += 1
                number, where = self.name("the number of states"), self.at - 1
                self.expect("]", "after the number of states")
            self.expect("{", f"before the states of {name!r}")
            states = self.names_until("}")
            self.expect(";", f"after the states of {name!r}")
            if number is not None and number.lstrip("0") != str(len(states)).lstrip("0"):
                self.fail(f"variable {name!r} lists {len(states)} states, but announces", where)
        self.at += 1
        if states is None:
            self.fail(f"variable {name!r} has no 'type discrete' line:", begun)
        try:
            self.variables.append(Variable(name, len(states), tuple(states)))
        except StructureError as error:
            raise FormatError(str(error), path=self.path, line=self.line(begun)) from error
        if not states:
            self.fail(f"variable {name!r} has no states:", begun)
        self.column[name] = len(self.column)
        self.code.append({state: i for i, state in enumerate(states)})

    def probability(self) -> tuple[tuple[int, ...], FloatArray]:
        begun = self.at
        self.expect("(", "after 'probability'")
        child = self.known()
        parents: list[int] = []
        if self.peek() == "|":
            self.at += 1
            while self.peek() != ")":
                parents.append(self.known())
                if self.peek() == ",":
                    self.at += 1
        self.expect(")", "after the parents")
        self.expect("{", "before the table")
        name = self.variables[child].name
        shape = [self.variables[p].cardinality for p in parents]
        width = self.variables[child].cardinality
        size = table_size(shape)
        if size * width > MAX_TABLE or len(parents) >= MAX_SCOPE:
            limits = f"{MAX_SCOPE} variables and {MAX_TABLE} numbers are the most"
            self.fail(f"the table of {name!r} is too large with {len(parents)} parents, {limits}:", begun)
        codes = [self.code[p] for p in parents]
        rows: dict[int, list[float]] = {}
        default: list[float] | None = None
        table: FloatArray | None = None
        while self.peek() != "}":
            word = self.peek()
            if word == "(":
                where = self.at
                self.at += 1
                states = self.names_until(")")
                if len(states) != len(parents):
                    self.fail(f"a row of {name!r} names {len(states)} states for {len(parents)} parents:", where)
                row = 0
                for state, code, parent, cardinality in zip(states, codes, parents, shape, strict=True):
                    if state not in code:
                        known = shorten(", ".join(code), 400)
                        self.fail(f"{self.variables[parent].name!r} has no state {state!r} (it has {known}):", where)
                    row = row * cardinality + code[state]
                if row in rows:
                    self.fail(f"a row of {name!r} is there twice:", where)
                rows[row] = self.numbers(width, f"a row of {name!r}")
            elif word.lower() == "table" and table is None:
                self.at += 1
                flat = self.numbers(size * width, f"the table of {name!r}")
                table = np.array(flat).reshape(width, size).T
            elif word.lower() == "default" and default is None:
                self.at += 1
                default = self.numbers(width, f"the default of {name!r}")
            else:
                self.property(
                    f"in the table of {name!r}, expected a row, 'table', 'default', 'property' or '}}', found"
                )
        self.at += 1
        if table is not None and (rows or default is not None):
            self.fail(f"{name!r} has both a table and rows:", begun)
        if table is None:
            if not rows and default is None:
                self.fail(f"the table of {name!r} is missing:", begun)
            if len(rows) < size and default is None:
                gone = next(row for row in range(size) if row not in rows)
                at = np.unravel_index(gone, shape) if shape else ()
                shown = ", ".join(self.variables[p].states[int(x)] for p, x in zip(parents, at, strict=True))
                self.fail(f"{size - len(rows)} of {size} rows of {name!r} are missing, such as ({shown}):", begun)
            self.spread += (size - len(rows)) * width
            if self.spread > MAX_SPREAD:
                self.fail(f"the defaults up to {name!r} stand for more than {MAX_SPREAD} entries of tables:", begun)
            table = np.empty((size, width))
            if default is not None:
                table[:] = default
            for row, numbers in rows.items():
                table[row] = numbers
        return (*parents, child), table

    def numbers(self, count: int, what: str) -> list[float]:
        begun = self.at
        try:
            end = self.tokens.index(";", begun)
        except ValueError:
            self.fail(f"{what} does not end in ';':", begun)
        part = self.tokens[begun:end]
        if "," in part:
            part = [token for token in part if token != ","]
        try:
            found = list(map(float, part))
        except ValueError:
            found = []
        if len(found) != len(part) or not is_plain("".join(part)):
            place = next(i for i in range(begun, end) if self.tokens[i] != "," and number_of(self.tokens[i]) is None)
            self.fail(f"{what} has something that is no number:", place)
        if len(found) != count:
            self.fail(f"{what} has {len(found)} numbers, but needs {count}:", begun)
        if not all(0 <= x <= 1 + 1e-6 for x in found):
            bad = next(x for x in found if not 0 <= x <= 1 + 1e-6)
            place = next(i for i in range(begun, end) if self.tokens[i] != "," and not 0 <= float(self.tokens[i]) <= 1)
            self.fail(f"{what}: {bad} is no probability:", place)
        self.at = end + 1
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
        while self.peek() != end:
            found.append(self.name(f"a state or {end!r}"))
            if self.peek() == ",":
                self.at += 1
        self.at += 1
        return found

    def skip_properties(self) -> None:
        while self.peek() != "}":
            self.property("expected 'property' or '}', found")
        self.at += 1

    def property(self, otherwise: str) -> None:
        if self.peek().lower() != "property":
            self.fail(otherwise, self.at)
        begun = self.at
        try:
            self.at = self.tokens.index(";", begun) + 1
        except ValueError:
            self.fail("a property does not end in ';':", begun)

    def end_of_block(self, begun: int) -> int:
        try:
            return self.tokens.index("}", begun) + 1
        except ValueError:
            self.fail("this block does not end in '}': is the file truncated?", begun)

    def peek(self) -> str:
        if self.at >= len(self.tokens):
            raise FormatError("the file ends inside a block: it is truncated", path=self.path, line=self.line(self.at))
        return self.tokens[self.at]

    def expect(self, token: str, where: str) -> None:
        if self.peek() != token:
            self.fail(f"expected {token!r} {where}, found", self.at)
        self.at += 1

    def line(self, index: int) -> int:
        """The line of a token, by cutting the text up once more."""
        matches = (match for match in _TOKEN.finditer(self.text) if match[1])
        match = next(islice(matches, index, None), None)
        return self.text.count("\n", 0, len(self.text) if match is None else match.start()) + 1

    def fail(self, message: str, index: int) -> NoReturn:
        token = shorten(self.tokens[index]) if index < len(self.tokens) else "the end of the file"
        raise FormatError(f"{message} {token!r}", path=self.path, line=self.line(index))
