"""Sentential decision diagrams (Darwiche 2011), as the SDD library and PySDD save them.

``sdd N``; ``F id`` (false), ``T id`` (true), ``L id vtree literal``, ``D id vtree k (prime sub)*k``; children first,
the root last. A decision is the disjunction of its elements, prime and sub, whose primes exclude each other. Which
variables there are is in the vtree that goes with it; the weights of literals come from elsewhere, see
:mod:`margmap.io.weights`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from margmap.circuit.logic import FALSE, MAX_VARIABLE, TRUE, RootedTheory, Theory
from margmap.errors import FormatError, StructureError
from margmap.io import reading as scan

_L, _D = "L id vtree literal", "D id vtree k (prime sub)*k"


def read(lines: Sequence[str], path: Path) -> RootedTheory:
    """The theory of an SDD file."""
    first = scan.header(lines, path, "sdd")
    theory = Theory()
    node: dict[int, int] = {}
    last = FALSE
    for number, line in enumerate(lines[first:], first + 1):
        tokens = line.split()
        if not tokens or tokens[0] == "c":
            continue
        tag = tokens[0]
        ident = 0
        try:
            if tag in ("T", "F"):
                scan.check_count(tokens, 2, f"{tag} id", path, number)
                ident, last = int(tokens[1]), TRUE if tag == "T" else FALSE
            elif tag == "L":
                scan.check_count(tokens, 4, _L, path, number)
                ident, literal = int(tokens[1]), int(tokens[3])
                if not 0 < abs(literal) <= MAX_VARIABLE:
                    raise scan.bad_variable(literal, path, number)
                last = theory.literal(literal)
            elif tag == "D":
                if len(tokens) < 4:
                    scan.check_count(tokens, 6, _D, path, number)
                ident, size = int(tokens[1]), int(tokens[3])
                scan.check_size(size, "a decision node", path, number)
                scan.check_count(tokens, 4 + 2 * size, _D, path, number)
                below = [node[int(token)] for token in tokens[4:]]
                last = theory.disjoin(map(theory.conjoin, zip(below[::2], below[1::2], strict=True)))
            else:
                raise scan.unknown_node(tag, "F, T, L, D, c", path, number)
        except ValueError as error:
            raise scan.bad_number(error, path, number) from None
        except KeyError as error:
            raise scan.missing_child(ident, error.args[0], path, number, _later(lines, number)) from None
        except StructureError as error:
            raise FormatError(str(error), path=path, line=number) from error
        if ident in node:
            raise scan.duplicate(ident, path, number)
        node[ident] = last
    if not node:
        raise scan.no_nodes(path, len(lines))
    return RootedTheory(theory, last)


def _later(lines: Sequence[str], number: int) -> Iterator[tuple[int, int, list[int]]]:
    for at, line in enumerate(lines[number - 1 :], number):
        tokens = line.split()
        try:
            if len(tokens) > 1 and tokens[0] in ("F", "T", "L", "D"):
                yield at, int(tokens[1]), [int(token) for token in tokens[4:]] if tokens[0] == "D" else []
        except ValueError:
            continue  # the line that is reported comes before this one
