"""What the line scanners share: headers, and errors that name the line and say what to do.

The readers convert first and ask questions later: a line that converts costs no checks beyond its length and its
weights, and only a line that fails is looked at again by the functions here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from margmap.circuit import Circuit, Parts, Variable, assemble, first_repeat
from margmap.errors import FormatError, StructureError
from margmap.foundation.numerals import is_plain

MAX_VARIABLE = 2**31 - 1

#: Logs of probabilities may exceed 0 by this much, from rounding; they count as 0.
LOG_SLACK = 1e-9

_HEADER_WORDS = ("psdd", "jpc", "vtree")


def header(lines: Sequence[str], path: Path, word: str) -> int:
    """The index of the line after the header ``word N``. N itself is wrong in most learned files, so nobody uses it."""
    check_characters(lines, path)
    for index, line in enumerate(lines):
        tokens = line.split()
        if not tokens or tokens[0] == "c":
            continue
        if len(tokens) == 2 and tokens[0] == word and tokens[1].isdigit():
            return index + 1
        other = tokens[0] if tokens[0] in _HEADER_WORDS and tokens[0] != word else None
        hint = f": this is a {other} file, pass format={other!r}" if other else ""
        message = f"expected the header '{word} N', found {shorten(line.strip())!r}{hint}"
        raise FormatError(message, path=path, line=index + 1)
    raise FormatError(f"only comments, the header '{word} N' is missing", path=path, line=len(lines))


def parse_json(lines: Sequence[str], path: Path) -> Any:
    """What a JSON file holds; one that gives a key twice, or a number that JSON does not have, is refused."""

    def refuse_constant(token: str) -> NoReturn:
        raise FormatError(f'{token} is not JSON: write minus infinity as "-inf"', path=path)

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            twice = first_repeat(key for key, _ in pairs)
            raise FormatError(f"{shorten(repr(twice))} is given twice in one object", path=path)
        return result

    try:
        return json.loads("\n".join(lines), parse_constant=refuse_constant, object_pairs_hook=object_of)
    except json.JSONDecodeError as error:
        message = f"not JSON: {error.msg} (column {error.colno}); is the file truncated?"
        raise FormatError(message, path=path, line=error.lineno) from None
    except RecursionError:
        raise FormatError("the JSON is nested too deeply", path=path) from None
    except ValueError as error:
        raise FormatError(f"not JSON that can be read: {error}", path=path) from None


def check_characters(lines: Sequence[str], path: Path, comment: str | None = "c") -> None:
    """Refuse what ``int()`` and ``float()`` would let pass: ``1_000`` and digits of other scripts."""
    for number, line in enumerate(lines, 1):
        if not is_plain(line) and line.split()[:1] != [comment]:
            odd = next(x for x in line if not is_plain(x))
            raise FormatError(f"unexpected character {odd!r}", path=path, line=number)


class Rule(NamedTuple):
    """How the lines of one type of node are written and read. The first word of a line names its type."""

    #: The words of a line, for people.
    syntax: str
    #: Adds the node of a line's words, and returns what others refer to it by.
    read: Callable[[list[str]], Any]
    #: The least and the most words; with ``group``, those before the groups.
    words: tuple[int, int]
    #: How many words each group has, if the last word before them says how many groups follow.
    group: int = 0
    #: Which words refer to children.
    children: tuple[slice, ...] = ()
    #: Whether there may be no group at all.
    empty: bool = False


def node_lines(lines: Sequence[str], path: Path, word: str) -> Iterator[tuple[int, list[str]]]:
    """Number and words of every line after the header ``word N`` that is neither blank nor a comment."""
    first = header(lines, path, word)
    return words_of(lines[first:], first + 1)


def words_of(lines: Iterable[str], first: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Number and words of every line that is neither blank nor a comment; ``first`` is the number of the first."""
    return (each for each in enumerate(map(str.split, lines), first) if each[1] and each[1][0] != "c")


class Nodes:
    """The nodes of a file, as they are read."""

    def __init__(self) -> None:
        #: What was made of each node, by its id: a rule's function finds the children of its node here.
        self.made: dict[int, Any] = {}
        #: The number of the line that is being read.
        self.line = 0

    def read(
        self,
        body: Iterable[tuple[int, list[str]]],
        lines: Sequence[str],
        path: Path,
        rules: Mapping[str, Rule],
        others: Sequence[str] = ("c",),
        ids: bool = True,
    ) -> None:
        """Read ``body``, the number and the words of each line, by the rules of the types of nodes.

        An id is the second word of a line; without ``ids`` nodes are counted from 0. ``others`` are words that may
        begin a line besides the types of nodes. An error that a rule's function raises without a file is about this
        one, and about the present line.
        """
        known = self.made
        for number, tokens in body:
            self.line = number
            try:
                rule = rules.get(tokens[0])
                if rule is None:
                    raise unknown_node(tokens[0], ", ".join([*rules, *others]))
                syntax, read, (least, most), group, _, empty = rule
                if group and len(tokens) >= least:
                    if (size := int(tokens[least - 1])) < 1 - empty:
                        check_size(size, f"'{syntax}'")
                    least = most = least + group * size
                if not least <= len(tokens) <= most:
                    check_count(tokens, least if len(tokens) < least else most, syntax)
                ident = int(tokens[1]) if ids else len(known)
                made = read(tokens)
                if ident in known:
                    raise duplicate(ident)
            except ValueError as error:
                raise bad_number(error, path, number) from None
            except KeyError as error:
                later = _later(lines, number, rules, None if ids else ident)
                raise missing_child(ident, error.args[0], path, number, later) from None
            except (FormatError, StructureError) as error:
                raise FormatError(str(error), path=path, line=number) from None
            known[ident] = made
        if not known:
            raise no_nodes(path, len(lines))


def _later(
    lines: Sequence[str], number: int, rules: Mapping[str, Rule], position: int | None
) -> Iterator[tuple[int, int, list[int]]]:
    """Line, id and children of every node from line ``number`` on; ``position`` counts them if they have no ids."""
    nodes = ((at, tokens) for at, line in enumerate(lines[number - 1 :], number) if (tokens := line.split()))
    for count, (at, tokens) in enumerate((at, tokens) for at, tokens in nodes if tokens[0] in rules):
        try:
            below = [int(token) for part in rules[tokens[0]].children for token in tokens[part]]
            yield at, int(tokens[1]) if position is None else position + count, below
        except (ValueError, IndexError):
            continue  # the line that is reported comes before this one


def check_count(
    tokens: Sequence[str], expected: int, syntax: str, path: Path | None = None, line: int | None = None
) -> None:
    """Refuse a line that is too short or too long for its ``syntax``."""
    if len(tokens) != expected:
        what, cut = ("too few", "; the line may be truncated") if len(tokens) < expected else ("too many", "")
        message = f"{what} numbers: '{syntax}' needs {expected - 1}, found {len(tokens) - 1}{cut}"
        raise FormatError(message, path=path, line=line)


def check_size(size: int, what: str, path: Path | None = None, line: int | None = None) -> None:
    """Refuse a node without children."""
    if size < 1:
        raise FormatError(f"{what} needs at least one child, not {size}", path=path, line=line)


def bad_number(error: ValueError, path: Path, line: int) -> FormatError:
    """Turn what ``int()`` or ``float()`` said into an error that names the line."""
    text = str(error)
    token = text.partition(": ")[2]
    if text.startswith("Exceeds"):  # Python's own guard against quadratic conversions
        return FormatError("a number has too many digits", path=path, line=line)
    whole = "whole " if "int()" in text else ""
    return FormatError(f"{shorten(token)} is not a {whole}number", path=path, line=line)


def log_probabilities(tokens: Iterable[str]) -> list[float]:
    """The logs of probabilities; one that rounding pushed above 0 is 0, any other that is not at most 0 an error."""
    values = list(map(float, tokens))
    for value in values:
        if not value <= 0:
            return [_at_most_zero(value) for value in values]
    return values


def _at_most_zero(value: float) -> float:
    if value <= LOG_SLACK:
        return min(value, 0.0)
    if math.isnan(value):
        raise FormatError("a log-probability is nan: the file was written after a numeric failure")
    raise FormatError(f"log-probability {value} is above 0: the file must hold natural logs of probabilities")


def log_weights(tokens: Iterable[str]) -> list[float]:
    """The logs of weights, which are finite numbers; a weight may be 0."""
    weights = list(map(float, tokens))
    for weight in weights:
        if not weight < math.inf:
            what = "nan" if math.isnan(weight) else "infinite"
            raise FormatError(f"a log-weight is {what}: weights are natural logs of finite numbers")
    return weights


def variable_number(value: int) -> int:
    """A variable's number, refused if it is not in 1 to MAX_VARIABLE."""
    if not 0 < value <= MAX_VARIABLE:
        raise bad_variable(value)
    return value


def bad_variable(value: int, path: Path | None = None, line: int | None = None) -> FormatError:
    """The error for a variable number outside 1 to MAX_VARIABLE."""
    return FormatError(f"variable {shorten(str(value))} is out of range 1 to {MAX_VARIABLE}", path=path, line=line)


def unknown_node(tag: str, known: str, path: Path | None = None, line: int | None = None) -> FormatError:
    """The error for a line whose first word is none of the format's."""
    return FormatError(f"unknown node type {shorten(tag)!r}: expected one of {known}", path=path, line=line)


def duplicate(node: int, path: Path | None = None, line: int | None = None) -> FormatError:
    """The error for an id that is defined twice."""
    return FormatError(f"duplicate id: node {node} is defined a second time", path=path, line=line)


def no_nodes(path: Path, line: int) -> FormatError:
    """The error for a file that ends after its header."""
    return FormatError("no nodes after the header: the file is truncated or empty", path=path, line=line)


def missing_child(
    node: int, child: int, path: Path, line: int | None, later: Iterable[tuple[int, int, Sequence[int]]]
) -> FormatError:
    """Why ``child`` is unknown at ``node``; ``later`` holds (line, id, children) from the line of ``node`` on."""
    defined: dict[int, tuple[int, Sequence[int]]] = {}
    for number, ident, children in later:
        defined.setdefault(ident, (number, children))
    if child == node:
        message = f"cycle: node {node} is its own child"
    elif child not in defined:
        message = f"dangling reference: node {node} has child {child}, which the file never defines; is it truncated?"
    elif _depends(child, node, defined):
        message = f"cycle: node {node} has child {child}, which in turn depends on {node}"
    else:
        where = "" if line is None else f", on line {defined[child][0]}"
        message = f"child {child} of node {node} is defined later{where}: list children before their parents"
    return FormatError(message, path=path, line=line)


def _depends(start: int, goal: int, defined: Mapping[int, tuple[int, Sequence[int]]]) -> bool:
    seen, stack = {start}, [start]
    while stack:
        node = stack.pop()
        if node == goal:
            return True
        fresh = [c for c in defined[node][1] if c in defined and c not in seen] if node in defined else []
        seen.update(fresh)
        stack.extend(fresh)
    return False


def shorten(text: str, most: int = 40) -> str:
    """Enough of a text to recognise it in a message."""
    return text if len(text) <= most else text[:most] + "..."


def log1mexp(log_p: float) -> float:
    """log(1 - p) from log p, exact to rounding at both ends."""
    if log_p >= 0:
        return -math.inf
    return math.log(-math.expm1(log_p)) if log_p > -0.6931471805599453 else math.log1p(-math.exp(log_p))


def one_number(log_p: float, log_q: float) -> float | None:
    """The log of p from which both p and q = 1 - p can be read to their last digits; None if one number cannot say it.

    Next to 1, the log of p itself may have lost all digits of q; the smaller of the two knows better.
    """
    for log in (log_p, log1mexp(log_q)):
        if _same_log(log, log_p) and _same_log(log1mexp(log), log_q):
            return log
    return None


def _same_log(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= 1e-15 * max(1.0, abs(b))


def log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    high, low = (a, b) if a > b else (b, a)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def assemble_named(parts: Parts, cardinality: Mapping[int, int]) -> Circuit:
    """A circuit from parts whose ``var`` holds names; its variables are those below the root, in order."""
    var = np.array(parts.var, dtype=np.int64)
    leaf = var >= 0
    names, column = np.unique(var[leaf], return_inverse=True)
    var[leaf] = column
    variables = [Variable(name, cardinality.get(name, 2)) for name in names.tolist()]
    circuit = assemble(variables, parts._replace(var=var.tolist()))
    used = np.unique(circuit.var[circuit.var >= 0])
    if used.size == len(variables):
        return circuit
    kept = np.where(circuit.var >= 0, np.searchsorted(used, circuit.var), -1)
    return Circuit(
        [variables[v] for v in used],
        circuit.kind,
        circuit.start,
        circuit.child,
        circuit.log_weight,
        kept.astype(np.int32),
        circuit.param_start,
        circuit.param,
    )
