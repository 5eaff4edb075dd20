"""The UAI competitions' format: ``BAYES`` and ``MARKOV`` networks, their evidence and query files.

Variables have no names in it: they are the integers from 0. In a ``BAYES`` file the last variable of each scope is the
child. Tables have the last variable fastest. A factor without variables is a constant. What follows a ``#`` is a
comment; where every scope of a ``BAYES`` file has one, as pyAgrum writes them, it is the name of the child. A ``BAYES``
file whose tables do not sum to 1, as in the planning benchmarks, is read as ``MARKOV`` with a warning.
"""

from __future__ import annotations

import sys
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import FloatArray, Variable, first_repeat
from margmap.errors import FormatError, StructureError, UnnormalisedWarning
from margmap.foundation.jit import kernel
from margmap.foundation.numerals import number_of
from margmap.io.files import read_lines
from margmap.io.networks import network_of
from margmap.io.reading import check_characters, shorten
from margmap.network.network import MAX_TABLE, Kind, Network, NotNormalisedError, table_size


def read(lines: Sequence[str], path: Path) -> Network:
    """The network that the lines of a UAI file describe."""
    tokens = _Tokens(lines, path)
    word = tokens.word("BAYES or MARKOV").upper()
    if word not in ("BAYES", "MARKOV"):
        tokens.fail("expected BAYES or MARKOV, found", 0)
    kind: Kind = "bayes" if word == "BAYES" else "markov"
    count = tokens.whole("the number of variables", 1)
    tokens.need(count, "cardinalities")
    variables = []
    for name in range(count):
        try:
            variables.append(Variable(name, tokens.whole(f"the number of values of variable {name}", 1)))
        except StructureError as error:
            raise FormatError(str(error), path=path, line=tokens.line(tokens.at - 1)) from error
    factors = tokens.whole("the number of factors", 0)
    tokens.need(factors, "scopes")
    scopes: list[tuple[int, ...]] = []
    sizes: list[int] = []
    where: list[int] = []
    comments: list[str | None] = []
    for number in range(factors):
        where.append(tokens.at)
        size = tokens.whole(f"the number of variables of factor {number}", 0)
        tokens.need(size, f"variables of factor {number}")
        scopes.append(tuple(tokens.whole(f"a variable of factor {number}", 0, count - 1) for _ in range(size)))
        comments.append(tokens.comment())
        sizes.append(table_size(variables[v].cardinality for v in scopes[-1]))
        if sizes[-1] > MAX_TABLE:
            tokens.fail(f"factor {number} would need more than {MAX_TABLE} entries with its variables:", where[-1])
    at = tokens.at
    tables = tokens.tables(sizes) or _tables(tokens, sizes, where)
    if kind == "bayes":
        variables = _named(variables, scopes, comments)
    found = list(zip(scopes, tables, strict=True))

    def line_of(factor: int) -> int:
        if where[-1] < at:  # those were the scopes: now where each table begins
            tokens.at = at
            _tables(tokens, sizes, where)
        return tokens.line(where[factor])

    try:
        return network_of(variables, found, kind, path, line_of)
    except FormatError as error:
        if not isinstance(error.__cause__, NotNormalisedError):
            raise
        warnings.warn(
            f"{error}. The file says BAYES, but its tables are not conditional probabilities: it is read as a Markov "
            "network, whose values are not normalised. Write MARKOV in its first line to say so",
            UnnormalisedWarning,
            stacklevel=2,
        )
        return Network(variables, found, "markov")


def _named(
    variables: list[Variable], scopes: Sequence[tuple[int, ...]], comments: Sequence[str | None]
) -> list[Variable]:
    """The variables with the comments of their scopes for names, if all have one and no two have the same."""
    name_of = {scope[-1]: name for scope, name in zip(scopes, comments, strict=True) if scope and name}
    if len(set(name_of.values())) < len(variables):
        return variables
    return [Variable(name_of[column], variable.cardinality) for column, variable in enumerate(variables)]


def _tables(tokens: _Tokens, sizes: Sequence[int], where: list[int]) -> list[FloatArray]:
    """The tables one by one, for a file that has something wrong in them; notes where each begins."""
    tables = []
    for number, expected in enumerate(sizes):
        where[number] = tokens.at
        size = tokens.whole(f"the number of entries of factor {number}", 0)
        if size != expected:
            tokens.fail(f"the table of factor {number} needs {expected} entries, but announces", tokens.at - 1)
        tokens.need(size, f"entries of factor {number}")
        tables.append(tokens.reals(size, f"an entry of factor {number}"))
    tokens.fill(tokens.at + 1)
    if tokens.at < len(tokens.tokens):
        tokens.fail("the file goes on after the last table:", tokens.at)
    return tables


def files_beside(path: Path) -> tuple[Path, Path]:
    """The files of evidence and query beside a model: ``X.uai.evid`` and ``X.uai.query`` or ``X.uai.map``."""
    name = path.name[:-3] if path.name.lower().endswith(".gz") else path.name
    query, other = (path.with_name(f"{name}.{suffix}") for suffix in ("query", "map"))
    return path.with_name(f"{name}.evid"), other if other.is_file() and not query.is_file() else query


def read_evidence(path: Path, network: Network) -> dict[int, int]:
    """The evidence of a ``.evid`` file: ``k var value ...``, or the same after a 1, the number of samples.

    Which of the two it is follows from the number of integers: ``k`` announces 2 k more, and only one reading can fit.
    """
    tokens = _Tokens(read_lines(path), path).all()
    numbers = [tokens.whole("a number of the evidence", 0) for _ in range(len(tokens.tokens))]
    plain = len(numbers) >= 1 and len(numbers) == 1 + 2 * numbers[0]
    sampled = len(numbers) >= 2 and numbers[0] == 1 and len(numbers) == 2 + 2 * numbers[1]
    if not plain and not sampled:
        raise FormatError(
            f"{len(numbers)} numbers fit neither 'k var value ...' nor '1 k var value ...': is the file truncated, or "
            "does it have several samples? Keep the one to use",
            path=path,
            line=1,
        )
    first = 1 if plain else 2
    found: dict[int, int] = {}
    for i in range(first, len(numbers), 2):
        column, value = numbers[i], numbers[i + 1]
        if column >= len(network.variables):
            tokens.fail(f"a variable is out of range 0 to {len(network.variables) - 1}:", i)
        if column in found:
            tokens.fail(f"variable {column} is observed twice:", i)
        if value >= network.variables[column].cardinality:
            most = network.variables[column].cardinality - 1
            tokens.fail(f"variable {column}: a value is out of range 0 to {most}:", i + 1)
        found[column] = value
    return found


def read_query(path: Path, network: Network) -> list[int]:
    """The variables of a ``.query`` file: ``k var ...``."""
    tokens = _Tokens(read_lines(path), path).all()
    count = tokens.whole("the number of query variables", 0)
    if len(tokens.tokens) != 1 + count:
        raise FormatError(f"announces {count} variables, but lists {len(tokens.tokens) - 1}", path=path, line=1)
    found = [tokens.whole("a query variable", 0, len(network.variables) - 1) for _ in range(count)]
    if len(set(found)) != len(found):
        raise FormatError(f"variable {first_repeat(found)} is queried twice", path=path)
    return found


class _Tokens:
    """The words of a file, cut up as far as they are asked for: the tables are most of it, and read in one go."""

    def __init__(self, lines: Sequence[str], path: Path) -> None:
        self.comments: dict[int, str] = {}
        if any("#" in line for line in lines):
            parts = [line.partition("#") for line in lines]
            self.comments = {i: comment.strip() for i, (_, _, comment) in enumerate(parts) if comment.strip()}
            lines = [text for text, _, _ in parts]
        check_characters(lines, path, comment=None)
        self.lines, self.path = lines, path
        self.tokens: list[str] = []
        self._ends: list[int] = []  # how many words there are up to the end of each line
        self.at = self._next_line = 0

    def fill(self, count: int) -> None:
        """Cut up lines until there are so many words, or no lines."""
        while len(self.tokens) < count and self._next_line < len(self.lines):
            self.tokens += self.lines[self._next_line].split()
            self._ends.append(len(self.tokens))
            self._next_line += 1

    def all(self) -> _Tokens:
        """The same with every line cut up."""
        self.fill(sys.maxsize)
        return self

    def tables(self, sizes: Sequence[int]) -> list[FloatArray] | None:
        """All tables at once if they are as they should be, each after its number of entries; otherwise None."""
        text = " ".join([*self.tokens[self.at :], *self.lines[self._next_line :]])
        room = sum(sizes) + len(sizes)
        if room > len(text):
            return None
        count, numbers = _parse(np.frombuffer(text.encode("ascii"), dtype=np.uint8), np.empty(room))
        try:
            numbers = numbers[:count] if count >= 0 else np.fromiter(map(float, text.split()), np.float64)
        except ValueError:
            return None
        if numbers.size != room or not np.isfinite(numbers).all() or (numbers < 0).any():
            return None
        ends = np.cumsum(np.array(sizes, dtype=np.int64) + 1)
        if not np.array_equal(numbers[ends - np.array(sizes, dtype=np.int64) - 1], sizes):
            return None
        return [numbers[end - size : end] for end, size in zip(ends.tolist(), sizes, strict=True)]

    def word(self, what: str) -> str:
        self.fill(self.at + 1)
        if self.at >= len(self.tokens):
            raise FormatError(f"the file ends before {what}: it is truncated", path=self.path, line=len(self.lines))
        self.at += 1
        return self.tokens[self.at - 1]

    def comment(self) -> str | None:
        """The comment on the line of the word that was read last."""
        return self.comments.get(bisect_right(self._ends, self.at - 1)) if self.comments else None

    def need(self, count: int, what: str) -> None:
        """Refuse a count that the rest of the file cannot hold, before anything is made that large."""
        self.fill(self.at + count)
        left = len(self.tokens) - self.at
        if count > left:
            raise FormatError(
                f"{count} {what} are announced, but only {left} numbers are left: the file is truncated",
                path=self.path,
                line=self.line(self.at - 1),
            )

    def whole(self, what: str, least: int, most: int | None = None) -> int:
        token = self.word(what)
        if not token.isdigit() or len(token) > 18:
            self.fail(f"expected {what}, a whole number from {least}, found", self.at - 1)
        number = int(token)
        if number < least or (most is not None and number > most):
            self.fail(f"{what} is out of range {least} to {'...' if most is None else most}:", self.at - 1)
        return number

    def reals(self, count: int, what: str) -> FloatArray:
        part = self.tokens[self.at : self.at + count]
        for i, token in enumerate(part, self.at):
            if number_of(token) is None:
                self.fail(f"{what} is not a number:", i)
        self.at += count
        return np.array(part, dtype=np.float64)

    def line(self, index: int) -> int:
        seen = 0
        for number, line in enumerate(self.lines, 1):
            seen += len(line.split())
            if seen > index:
                return number
        return len(self.lines)

    def fail(self, message: str, index: int) -> NoReturn:
        raise FormatError(f"{message} {shorten(self.tokens[index])!r}", path=self.path, line=self.line(index))


@kernel(work=lambda text, _numbers: text.size / 5, interpreted=lambda _text, numbers: (-1, numbers))
def _parse(text: NDArray[np.uint8], numbers: FloatArray) -> tuple[int, FloatArray]:
    """The numbers of a text if all are plain, and how many; -1 if one needs more care than this, or is interpreted.

    A number of up to 15 digits times or over a power of ten up to 10^22 is rounded once, so the result is exact.
    """
    powers = np.empty(23)
    powers[0] = 1.0
    for i in range(1, 23):
        powers[i] = powers[i - 1] * 10.0
    count, i = 0, 0
    while i < text.size:
        if text[i] <= 32:
            i += 1
            continue
        mantissa, digits, exponent, seen, point = 0, 0, 0, False, False
        while i < text.size and text[i] > 32:
            c = text[i]
            if 48 <= c <= 57:
                seen = True
                mantissa = 10 * mantissa + np.int64(c) - 48
                digits += mantissa > 0
                exponent -= point
                if digits > 15:
                    return -1, numbers
            elif c == 46 and not point:  # .
                point = True
            else:
                break
            i += 1
        if not seen:
            return -1, numbers
        if i < text.size and (text[i] == 101 or text[i] == 69):  # e, E
            i += 1
            minus = i < text.size and text[i] == 45
            if i < text.size and (text[i] == 45 or text[i] == 43):
                i += 1
            power, seen = 0, False
            while i < text.size and 48 <= text[i] <= 57 and power < 10000:
                power = 10 * power + np.int64(text[i]) - 48
                seen = True
                i += 1
            if not seen:
                return -1, numbers
            exponent += -power if minus else power
        if (i < text.size and text[i] > 32) or count == numbers.size:
            return -1, numbers
        if mantissa == 0:
            numbers[count] = 0.0
        elif -22 <= exponent <= 22:
            numbers[count] = mantissa / powers[-exponent] if exponent < 0 else mantissa * powers[exponent]
        else:
            return -1, numbers
        count += 1
    return count, numbers
