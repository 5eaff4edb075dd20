"""Sentential decision diagrams (Darwiche 2011), as the SDD library and PySDD save them.

``sdd N``; ``F id`` (false), ``T id`` (true), ``L id vtree literal``, ``D id vtree k (prime sub)*k``; children first,
the root last. A decision is the disjunction of its elements, prime and sub, whose primes exclude each other. Which
variables there are is in the vtree that goes with it; the weights of literals come from elsewhere, see
:mod:`margmap.io.weights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from margmap.circuit.logic import FALSE, MAX_VARIABLE, TRUE, RootedTheory, Theory
from margmap.io import reading as scan


def read(lines: Sequence[str], path: Path) -> RootedTheory:
    """The theory of an SDD file."""
    theory, nodes = Theory(), scan.Nodes()
    node = nodes.made

    def literal(tokens: list[str]) -> int:
        value = int(tokens[3])
        if not 0 < abs(value) <= MAX_VARIABLE:
            raise scan.bad_variable(value)
        return theory.literal(value)

    def decision(tokens: list[str]) -> int:
        below = [node[int(token)] for token in tokens[4:]]
        return theory.disjoin(map(theory.conjoin, zip(below[::2], below[1::2], strict=True)))

    rules = {
        "F": scan.Rule("F id", lambda _: FALSE, (2, 2)),
        "T": scan.Rule("T id", lambda _: TRUE, (2, 2)),
        "L": scan.Rule("L id vtree literal", literal, (4, 4)),
        "D": scan.Rule("D id vtree k (prime sub)*k", decision, (4, 4), group=2, children=(slice(4, None),)),
    }
    nodes.read(scan.node_lines(lines, path, "sdd"), lines, path, rules)
    return RootedTheory(theory, node[next(reversed(node))])
