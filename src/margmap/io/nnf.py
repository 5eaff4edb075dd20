"""d-DNNF files, as the knowledge compilers c2d, dsharp and miniC2D write them, and as d4 does.

c2d: ``nnf nodes edges variables``, then one line a node, numbered from 0, children first, the root last: ``L literal``,
``A k child*k`` (and; ``A 0`` is true), ``O j k child*k`` (or; ``O 0 0`` is false), where j is the variable by which the
children of the or exclude each other, 0 if there is none.

d4: ``o id 0`` (or), ``a id 0`` (and), ``t id 0`` (true), ``f id 0`` (false), and arcs ``parent child literal... 0``;
the literals on an arc are true together with the child. The root is the node that no arc leads to. How many variables
there are is not in the file.

A theory has no probabilities: the weights of its literals come from elsewhere, see :mod:`margmap.io.weights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from margmap.circuit.logic import FALSE, MAX_VARIABLE, TRUE, RootedTheory, Theory, children_first
from margmap.errors import FormatError, StructureError
from margmap.io import reading as scan

_D4_KINDS = ("o", "a", "t", "f")


def read(lines: Sequence[str], path: Path) -> RootedTheory:
    """The theory of a d-DNNF file, in the form of c2d or of d4."""
    scan.check_characters(lines, path)
    first = next((tokens[0] for tokens in map(str.split, lines) if tokens and tokens[0] != "c"), "")
    if first == "nnf":
        return _read_c2d(lines, path)
    if first in _D4_KINDS or first.isdigit():
        return _read_d4(lines, path)
    raise FormatError(
        "neither a d-DNNF of c2d (which begins with 'nnf nodes edges variables') nor one of d4 (which begins with a "
        f"node such as 'o 1 0'): found {scan.shorten(first)!r}",
        path=path,
    )


def _read_c2d(lines: Sequence[str], path: Path) -> RootedTheory:
    body = scan.words_of(lines)
    number, tokens = next(body)
    if len(tokens) != 4 or not all(token.isdigit() and len(token) <= 18 for token in tokens[1:]):
        raise FormatError("expected the header 'nnf nodes edges variables'", path=path, line=number)
    announced, variables = int(tokens[1]), int(tokens[3])
    if variables > MAX_VARIABLE:
        raise scan.bad_variable(variables, path, number)
    theory, nodes = Theory(), scan.Nodes()
    node = nodes.made
    below = {"A": slice(2, None), "O": slice(3, None)}

    def children(tokens: list[str]) -> list[int]:
        return [node[int(token)] for token in tokens[below[tokens[0]]]]

    rules = {
        "L": scan.Rule("L literal", lambda tokens: theory.literal(_literal(tokens[1], variables)), (2, 2)),
        "A": scan.Rule("A k child*k", lambda x: theory.conjoin(children(x)), (2, 2), 1, (below["A"],), empty=True),
        "O": scan.Rule("O j k child*k", lambda x: theory.disjoin(children(x)), (3, 3), 1, (below["O"],), empty=True),
    }
    nodes.read(body, lines, path, rules, ids=False)
    if len(node) != announced:
        what = f"the header announces {announced} nodes, and there are {len(node)}: the file is truncated or damaged"
        raise FormatError(what, path=path, line=len(lines))
    return RootedTheory(theory, node[len(node) - 1], range(1, variables + 1))


def _literal(token: str, most: int, path: Path | None = None, line: int | None = None) -> int:
    literal = int(token)
    if not 0 < abs(literal) <= most:
        what = f"literal {scan.shorten(token)} is out of range: there are the variables 1 to {most}"
        raise FormatError(what, path=path, line=line)
    return literal


def _read_d4(lines: Sequence[str], path: Path) -> RootedTheory:
    kind: dict[int, str] = {}
    arcs: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    arc_line: dict[int, int] = {}
    targets: set[int] = set()
    for number, tokens in scan.words_of(lines):
        if tokens[-1] != "0" or len(tokens) < 3:
            message = "a line of d4 is 'o id 0' (or a, t, f) or 'parent child literal... 0': is this one truncated?"
            raise FormatError(message, path=path, line=number)
        try:
            if tokens[0] in _D4_KINDS:
                scan.check_count(tokens, 3, f"{tokens[0]} id 0", path, number)
                node = int(tokens[1])
                if node in kind:
                    raise scan.duplicate(node, path, number)
                kind[node] = tokens[0]
                continue
            parent, child = int(tokens[0]), int(tokens[1])
            literals = tuple(_literal(token, MAX_VARIABLE, path, number) for token in tokens[2:-1])
        except ValueError as error:
            raise scan.bad_number(error, path, number) from None
        arcs.setdefault(parent, []).append((child, literals))
        arc_line.setdefault(parent, number)
        arc_line.setdefault(child, number)
        targets.add(child)
        if kind.get(parent) in ("t", "f"):
            raise FormatError(f"node {parent} is a constant and has an arc", path=path, line=number)
    for node in sorted(targets | set(arcs)):
        if node not in kind:
            message = f"node {node} is not defined: a line such as 'o {node} 0' is missing; is the file truncated?"
            raise FormatError(message, path=path, line=arc_line[node])
    root = _root(kind, targets, path)
    theory = Theory()
    value: dict[int, int] = {}
    try:
        for node in children_first(root, lambda node: [child for child, _ in arcs.get(node, ())]):
            below = (theory.conjoin([*map(theory.literal, lits), value[c]]) for c, lits in arcs.get(node, ()))
            if kind[node] in ("o", "a"):
                value[node] = theory.disjoin(below) if kind[node] == "o" else theory.conjoin(below)
            else:
                value[node] = TRUE if kind[node] == "t" else FALSE
    except StructureError as error:
        raise FormatError(str(error), path=path) from error
    return RootedTheory(theory, value[root])


def _root(kind: dict[int, str], targets: set[int], path: Path) -> int:
    """The node that no arc leads to; constants that nothing uses do not count."""
    if not kind:
        raise scan.no_nodes(path, 1)
    roots = [node for node in kind if node not in targets]
    inner = [node for node in roots if kind[node] in ("o", "a")] or roots
    if not inner:
        raise FormatError("an arc leads to every node: there is a cycle, and no root", path=path)
    if len(inner) > 1:
        shown = ", ".join(map(str, inner[:8]))
        raise FormatError(
            f"no arc leads to the nodes {shown}: a theory has one root; is the file truncated?", path=path
        )
    return inner[0]
