"""Random Boolean theories, their models by enumeration, and a small knowledge compiler that writes them to files.

The compiler branches on variables and splits what falls apart (a decision-DNNF); nothing of it is margmap's.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import product
from typing import Any

Clauses = frozenset[frozenset[int]]


def random_cnf(rng: random.Random, n: int) -> Clauses:
    """Clauses of one to three literals over the variables 1 to n."""
    clauses = set()
    for _ in range(rng.randint(0, 2 * n)):
        variables = rng.sample(range(1, n + 1), rng.randint(1, min(n, 3)))
        clauses.add(frozenset(v * rng.choice((1, -1)) for v in variables))
    return frozenset(clauses)


def models(cnf: Clauses, n: int) -> list[tuple[int, ...]]:
    """The states that make every clause true."""
    return [
        state
        for state in product((0, 1), repeat=n)
        if all(any(state[abs(lit) - 1] == (lit > 0) for lit in clause) for clause in cnf)
    ]


def random_weights(rng: random.Random, n: int) -> dict[int, float]:
    """A weight for every literal: probabilities, zeros, ones and numbers above 1."""
    return {s * v: rng.choice((0.0, 1.0, rng.random(), rng.uniform(0, 30))) for v in range(1, n + 1) for s in (1, -1)}


def table(cnf: Clauses, n: int, weights: dict[int, float]) -> dict[tuple[int, ...], float]:
    """What the circuit must be: at every model the product of its literals' weights."""
    found = {}
    for state in models(cnf, n):
        value = 1.0
        for v, x in enumerate(state, 1):
            value *= weights.get(v if x else -v, 1.0)
        found[state] = value
    return found


def compiled(cnf: Clauses) -> tuple[Any, ...]:
    """Nested tuples: ("lit", l), ("and", ...), ("or", variable, ...); true is ("and",) and false is ("or", 0)."""
    if frozenset() in cnf:
        return ("or", 0)
    if not cnf:
        return ("and",)
    units = {next(iter(clause)) for clause in cnf if len(clause) == 1}
    if any(-lit in units for lit in units):
        return ("or", 0)
    if units:
        rest = compiled(_given(cnf, units))
        return ("and", *(("lit", lit) for lit in sorted(units)), rest)
    parts = _components(cnf)
    if len(parts) > 1:
        return ("and", *map(compiled, parts))
    variable = min(abs(lit) for clause in cnf for lit in clause)
    branches = (("and", ("lit", lit), compiled(_given(cnf, [lit]))) for lit in (variable, -variable))
    return ("or", variable, *branches)


def c2d(cnf: Clauses, n: int) -> str:
    """The compiled theory as c2d writes it, equal nodes shared."""
    lines: dict[str, int] = {}
    edges = 0

    def add(node: tuple[Any, ...]) -> int:
        nonlocal edges
        if node[0] == "lit":
            text = f"L {node[1]}"
        else:
            below = [add(child) for child in node[1:] if isinstance(child, tuple)]
            edges += len(below)
            numbers = "".join(f" {child}" for child in below)
            text = f"A {len(below)}{numbers}" if node[0] == "and" else f"O {node[1]} {len(below)}{numbers}"
        return lines.setdefault(text, len(lines))

    root = add(compiled(cnf))
    if root != len(lines) - 1:  # the root is the last node, but it was there before
        lines[f"A 1 {root}"] = len(lines)
    return f"nnf {len(lines)} {edges} {n}\n" + "\n".join(lines) + "\n"


def d4(cnf: Clauses) -> str:
    """The same as d4 writes it: literals on the arcs, the nodes before them, the root first."""
    kinds: list[str] = []
    arcs: list[str] = []
    number: dict[tuple[Any, ...], int] = {}

    def add(node: tuple[Any, ...]) -> int:
        if node not in number:
            number[node] = len(number) + 1
            constant = {("and",): "t", ("or", 0): "f"}.get(node)
            kinds.append(f"{constant or node[0][0]} {number[node]} 0")
            if constant is None:
                for child in node[1:]:
                    if isinstance(child, tuple):
                        literals, below = _stripped(child)
                        arcs.append(" ".join(map(str, (number[node], add(below), *literals, 0))))
        return number[node]

    top = compiled(cnf)
    add(("or", 0, top) if top[0] == "lit" else top)
    return "\n".join((*kinds, *arcs)) + "\n"


def sdd(cnf: Clauses, n: int) -> tuple[str, str]:
    """An SDD for the right-linear vtree of 1, 2, ..., n, which is a decision diagram, and that vtree."""
    lines: list[str] = []
    made: dict[Any, int] = {}

    def line(key: Any, text: str) -> int:
        if key not in made:
            made[key] = len(made)
            lines.append(text.format(made[key]))
        return made[key]

    def add(clauses: Clauses, variable: int) -> int:
        if frozenset() in clauses:
            return line("F", "F {}")
        if not clauses:
            return line("T", "T {}")
        yes, no = add(_given(clauses, [variable]), variable + 1), add(_given(clauses, [-variable]), variable + 1)
        if yes == no:
            return yes
        literals = [line(lit, f"L {{}} {2 * variable - 2} {lit}") for lit in (variable, -variable)]
        if variable == n:
            return literals[0] if lines[yes].startswith("T") else literals[1]
        pairs = f"{literals[0]} {yes} {literals[1]} {no}"
        return line((variable, yes, no), f"D {{}} {2 * variable - 1} 2 {pairs}")

    root = add(cnf, 1)
    # The root goes last; nothing depends on it, because it is the last of its own nodes.
    body = "\n".join((*(text for i, text in enumerate(lines) if i != root), lines[root]))
    tree = [f"L {2 * v - 2} {v}" for v in range(1, n + 1)]
    tree += [f"I {2 * v - 1} {2 * v - 2} {2 * v + 1 if v < n - 1 else 2 * v}" for v in range(n - 1, 0, -1)]
    return f"c made up\nsdd {len(lines)}\n{body}\n", f"vtree {2 * n - 1}\n" + "\n".join(tree) + "\n"


def _stripped(node: tuple[Any, ...]) -> tuple[list[int], tuple[Any, ...]]:
    """The literals of a conjunction, for the arc, and what is left of it."""
    if node[0] == "lit":
        return [node[1]], ("and",)
    if node[0] == "or":
        return [], node
    literals = [child[1] for child in node[1:] if child[0] == "lit"]
    rest = [child for child in node[1:] if child[0] != "lit"]
    return literals, rest[0] if len(rest) == 1 else ("and", *rest)


def _given(cnf: Clauses, literals: Iterable[int]) -> Clauses:
    true = set(literals)
    return frozenset(
        frozenset(lit for lit in clause if -lit not in true) for clause in cnf if not any(lit in true for lit in clause)
    )


def _components(cnf: Clauses) -> list[Clauses]:
    groups: list[tuple[set[int], set[frozenset[int]]]] = []
    for clause in cnf:
        variables, members = {abs(lit) for lit in clause}, {clause}
        for group in [group for group in groups if group[0] & variables]:
            groups.remove(group)
            variables |= group[0]
            members |= group[1]
        groups.append((variables, members))
    return [frozenset(members) for _, members in sorted(groups, key=lambda group: min(group[0]))]
