"""Boolean theories with weights on their literals, as circuits: weighted model counting seen from here.

A theory in deterministic decomposable negation normal form (d-DNNF; Darwiche, "On the tractable counting of theory
models", 2001) is a circuit already: a conjunction is a product, a disjunction is a sum, a literal is an indicator. What
it lacks is smoothness, and weights. The circuit made here is, at a state x, the product of the weights of the literals
that x makes true if x is a model of the theory, and 0 otherwise; its total is the weighted model count. SDDs, the
d-DNNFs of c2d, dsharp and d4, and the compiled programs of ProbLog all come through this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np

from margmap.circuit import BERNOULLI, INDICATOR, PRODUCT, SUM, Circuit, Name, Parts, Variable, assemble
from margmap.circuit.evidence import plain, shortened
from margmap.circuit.properties import require_tractable
from margmap.circuit.transform import smooth
from margmap.errors import StructureError

#: The two constants among the nodes of a theory; all other nodes are numbers from 0 up.
TRUE, FALSE = -1, -2

#: Variables have the numbers 1 to this.
MAX_VARIABLE = 2**31 - 1

#: At most so many variables may be free, announced but mentioned nowhere: a short file must not make a large circuit.
MAX_FREE = 1 << 14

Node = TypeVar("Node", bound=Hashable)


class Weight(NamedTuple):
    """The weights of a variable's two literals; the weight of value x is at place x."""

    false: float
    true: float


class Theory:
    """A formula in negation normal form that grows from its literals up; constants are folded away as it grows.

    The parts of a conjunction must share no variable, which :func:`weighted` checks. The parts of a disjunction must
    exclude each other; what a knowledge compiler wrote has that, and nobody checks it: models would count twice.
    """

    def __init__(self) -> None:
        self.parts = Parts.new()
        self._literal: dict[int, int] = {}

    def literal(self, literal: int) -> int:
        """The node that is true where the variable of this number is true, or false if the number is negative."""
        if literal not in self._literal:
            self._literal[literal] = self.parts.leaf(INDICATOR, abs(literal), (1.0 if literal > 0 else 0.0,))
        return self._literal[literal]

    def conjoin(self, nodes: Iterable[int]) -> int:
        """The node that is true where all of these are."""
        kept = [node for node in nodes if node != TRUE]
        if FALSE in kept:
            return FALSE
        return TRUE if not kept else kept[0] if len(kept) == 1 else self.parts.product(kept)

    def disjoin(self, nodes: Iterable[int]) -> int:
        """The node that is true where one of these is."""
        kept = [node for node in nodes if node != FALSE]
        if len(kept) > 1 and TRUE in kept:
            raise StructureError(
                "a disjunction of true and something else: its parts do not exclude each other, so this is no d-DNNF"
            )
        return FALSE if not kept else kept[0] if len(kept) == 1 else self.parts.sum(kept, [0.0] * len(kept))


class RootedTheory(NamedTuple):
    """A theory with its root, and the numbers of variables that it is said to have, whether it mentions them or not."""

    theory: Theory
    root: int
    announced: Iterable[int] = ()


def children_first(root: Node, children: Callable[[Node], Sequence[Node]]) -> list[Node]:
    """The nodes below ``root``, each after all its children; a cycle is refused."""
    found: dict[Node, None] = {}
    open_nodes: set[Node] = set()
    stack = [root]
    while stack:  # no recursion: a theory may be deep
        node = stack[-1]
        if node in found:
            stack.pop()
        elif node in open_nodes:
            found[node] = None
            stack.pop()
        else:
            open_nodes.add(node)
            waiting = [child for child in children(node) if child not in found]
            for child in waiting:
                if child in open_nodes:
                    raise StructureError(f"cycle: node {node} is below its own child {child}")
            stack.extend(waiting)
    return list(found)


def literal_weights(pairs: Iterable[tuple[int, float]]) -> dict[int, Weight]:
    """The weights of variables from those of literals.

    If a variable has the weight of one literal only, that is a probability, and the other literal has the rest to 1.
    """
    given: dict[int, float] = {}
    for literal, weight in pairs:
        if not 0 <= weight < math.inf:
            raise StructureError(f"literal {literal} has weight {weight}: weights are finite numbers from 0 up")
        if given.setdefault(literal, weight) != weight:
            raise StructureError(f"literal {literal} has two weights, {given[literal]} and {weight}")
    for literal, weight in list(given.items()):
        if -literal not in given:
            if weight > 1:
                raise StructureError(
                    f"literal {literal} has weight {weight} and literal {-literal} has none: give both weights, or a "
                    "probability from 0 to 1"
                )
            given[-literal] = 1 - weight
    return {literal: Weight(given[-literal], weight) for literal, weight in given.items() if literal > 0}


def given_weights(weights: Mapping[Any, Any], names: Mapping[int, Name]) -> dict[int, Weight]:
    """What a user said of weights in Python.

    A key is a variable's name or number, or the negative of its number for the literal that it is false. A value is the
    weight of the literal (if it stands alone, a probability), or a pair: the weight of 0, the weight of 1.
    """
    if not isinstance(weights, Mapping):
        raise StructureError(f"weights are a dict from literals or names to numbers, not {shortened(weights)}")
    number = {name: v for v, name in names.items()}
    pairs: list[tuple[int, float]] = []
    for given, value in weights.items():
        key = plain(given)
        literal = number.get(key, key)
        if isinstance(literal, bool) or not isinstance(literal, int) or not 0 < abs(literal) <= MAX_VARIABLE:
            known = "" if isinstance(key, int) else "; names= says which variable has which name"
            raise StructureError(f"weights of {key!r}: that is neither a literal nor the name of a variable{known}")
        try:
            if isinstance(value, Sequence) and not isinstance(value, str):
                false, true = map(float, value)
                pairs += [(literal, true), (-literal, false)]
            else:
                pairs.append((literal, float(value)))
        except (TypeError, ValueError):
            raise StructureError(
                f"the weight of {key!r} is {value!r}: give a number, or the weights of 0 and of 1"
            ) from None
    return literal_weights(pairs)


def given_names(names: Mapping[Any, Any] | Sequence[Any]) -> dict[int, Name]:
    """The names of variables by their numbers, from a dict or from a list of the names of 1, 2, ..."""
    if isinstance(names, str) or not isinstance(names, Mapping | Sequence):
        raise StructureError(f"names are a dict from numbers to names or a list of names, not {shortened(names)}")
    found: dict[int, Name] = {}
    for given, name in names.items() if isinstance(names, Mapping) else enumerate(names, 1):
        number = plain(given)
        if isinstance(number, bool) or not isinstance(number, int) or not 0 < number <= MAX_VARIABLE:
            raise StructureError(f"names of variables: {shortened(given)} is no number of a variable")
        found[number] = Variable(name).name  # which refuses what is no name
    return found


def weighted(
    rooted: RootedTheory, weights: Mapping[int, Weight] | None = None, names: Mapping[int, Name] | None = None
) -> Circuit:
    """The circuit of a theory.

    Its variables are those that the theory mentions below its root, those with weights or names, and those announced,
    in the order of their numbers; a variable without a name is called by its number, and one without weights has the
    weights 1 and 1.
    """
    theory, root, announced = rooted
    weights, names = weights or {}, names or {}
    if root == FALSE:
        raise StructureError("the theory has no model: it is false everywhere")
    parts = theory.parts
    mentioned = _mentioned(parts, root)
    known = mentioned | set(weights) | set(names)
    numbers = sorted(known.union(islice(announced, len(known) + MAX_FREE + 1)))
    if not numbers:
        raise StructureError("the theory has no variables")
    if len(numbers) - len(mentioned) > MAX_FREE:
        raise StructureError(
            f"the theory mentions {len(mentioned)} variables, and more than {MAX_FREE} others are free"
        )
    free = [theory.disjoin([theory.literal(v), theory.literal(-v)]) for v in numbers if v not in mentioned]
    top = theory.conjoin([root, *free])
    column = {v: i for i, v in enumerate(numbers)}
    columns = [column.get(v, -1) for v in parts.var]  # a variable that lies not below the root goes with its leaves
    circuit = assemble([Variable(names.get(v, v)) for v in numbers], parts._replace(var=columns), top)
    smoothed = smooth(circuit)
    require_tractable(smoothed)
    return _weigh(smoothed, [weights.get(v, Weight(1.0, 1.0)) for v in numbers])


def _mentioned(parts: Parts, root: int) -> set[int]:
    """The variables below a node."""
    if root == TRUE:
        return set()
    below = np.zeros(len(parts.kind), dtype=np.bool_)
    below[root] = True
    for node in range(root, -1, -1):
        if below[node]:
            below[parts.child[parts.start[node] : parts.start[node + 1]]] = True
    return {v for v, there in zip(parts.var, below.tolist(), strict=True) if there and v >= 0}


def _weigh(circuit: Circuit, weights: Sequence[Weight]) -> Circuit:
    """The smooth circuit of indicators with the weight of every literal in its leaf.

    A leaf has logs of probabilities, so that weights above 1 are divided by the larger of the two: every model has one
    literal of each variable, and the product of what was divided by is the weight of a sum above the root.
    """
    scale = np.array([max(1.0, *weight) for weight in weights])
    with np.errstate(divide="ignore"):
        logs = np.log(np.array(weights, dtype=np.float64) / scale[:, None])
    if not logs.any() and (scale == 1).all():
        return circuit
    leaf = circuit.kind < PRODUCT
    value = circuit.param.astype(np.int64)  # every leaf is an indicator, so that its value is its only parameter
    own = logs[circuit.var[leaf], value]
    plain = own == 0
    size = np.zeros(circuit.num_nodes, dtype=np.int64)
    size[leaf] = np.where(plain, 1, 2)
    param_start = np.concatenate(([0], np.cumsum(size)))
    param = np.full(param_start[-1], -np.inf)
    first = param_start[:-1][leaf]
    param[first[plain]] = value[plain]
    param[(first + 1 - value)[~plain]] = own[~plain]  # a Bernoulli leaf has log p(1), then log p(0)
    kind = circuit.kind.copy()
    kind[leaf] = np.where(plain, INDICATOR, BERNOULLI)
    start, child, weight, var = circuit.start, circuit.child, circuit.log_weight, circuit.var
    total = float(np.log(scale).sum())
    if total > 0:
        kind, var = np.append(kind, SUM), np.append(var, -1)
        start, child = np.append(start, start[-1] + 1), np.append(child, circuit.root)
        weight, param_start = np.append(weight, total), np.append(param_start, param_start[-1])
    return Circuit(circuit.variables, kind, start, child, weight, var, param_start, param)
