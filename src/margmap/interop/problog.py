"""Programs of ProbLog, compiled to d-DNNF by ProbLog itself.

A d-DNNF of ProbLog has an atom for every probabilistic fact, and for every choice of an annotated disjunction, that
matters for the program's queries and evidence; one for each query and each piece of evidence that is derived; and more
without a name. The circuit is over those with names. The others follow from them, so that nothing has to be summed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from margmap.circuit import Circuit
from margmap.circuit.logic import FALSE, TRUE, RootedTheory, Theory, Weight, weighted
from margmap.errors import MissingExtraError, ModelError
from margmap.interop.shared import class_of

_NOT = "\\+"


def from_problog(model: Any) -> Circuit:
    """The circuit of a ProbLog program (as text too), ground formula or ``DDNNF``, over what has a name in it.

    These are the facts and choices that matter, the queries and the evidence, called as ProbLog prints them, with the
    values 0 and 1. The circuit is p(state, evidence): the program's evidence is fixed in it, and its total is the
    probability of that.
    """
    formula = _compiled(model)
    evidence: dict[int, bool] = {}
    for name, node in formula.evidence():
        if node is None:
            raise ModelError(f"the evidence {name} of this program is impossible")
        if evidence.setdefault(abs(node), node >= 0) != (node >= 0):
            raise ModelError(f"the program has evidence for {name} and against it")
    weights = _weights(formula, model)
    called = _names(formula, weights)
    number = {name: v for v, (name, _) in enumerate(chain.from_iterable(called.values()), 1)}
    if not number:
        raise ModelError(f"{_what(model)} has no query and no evidence: add query(...) to the program")
    theory = Theory()

    def literal(node: int) -> int:
        """An atom or its negation as the conjunction of all that it is called."""
        atom, true = abs(node), node > 0
        if evidence.get(atom, true) != true:
            return FALSE
        if atom not in called:
            return FALSE if weights.get(atom, (1.0, 1.0))[true] == 0 else TRUE
        return theory.conjoin(theory.literal(number[n] if sign == true else -number[n]) for n, sign in called[atom])

    value: dict[int, int] = {}
    root = TRUE
    for node, what, kind in formula:  # children first, the root last
        if kind == "atom":
            value[node] = root = literal(node)
            continue
        below = [literal(child) if child < 0 else value[child] for child in what.children]
        value[node] = root = theory.conjoin(below) if kind == "conj" else theory.disjoin(below)
    fixed = [theory.literal(number[n] if sign else -number[n]) for n, sign in called.get(0, ())]
    own = {}
    for atom, names in called.items():
        if atom in weights:  # the weights of an atom go to the first of its names
            name, sign = names[0]
            own[number[name]] = weights[atom] if sign else Weight(*reversed(weights[atom]))
    return weighted(RootedTheory(theory, theory.conjoin([root, *fixed])), own, {v: name for name, v in number.items()})


def _compiled(model: Any) -> Any:
    """The d-DNNF of a program."""
    if any(base.__name__ == "DDNNF" for base in type(model).__mro__):
        return model
    try:
        from problog.ddnnf_formula import DDNNF
        from problog.errors import ProbLogError
        from problog.program import PrologString
    except ImportError:
        raise MissingExtraError("ProbLog compiles programs and is not installed: pip install problog") from None
    try:
        return DDNNF.create_from(PrologString(model) if isinstance(model, str) else model)
    except (ProbLogError, AttributeError, TypeError) as error:
        hint = "give a program, a ground formula or a DDNNF of ProbLog"
        raise ModelError(f"ProbLog cannot compile {_what(model)} ({error}): {hint}") from error


def _weights(formula: Any, model: Any) -> dict[int, Weight]:
    """The weights of every atom, with those of annotated disjunctions as ProbLog counts them."""
    from problog.evaluator import SemiringProbability

    try:
        found = formula.extract_weights(SemiringProbability())
        weights = {int(atom): Weight(float(false), float(true)) for atom, (true, false) in found.items()}
    except Exception as error:  # ProbLog raises what float() and its own terms do
        raise ModelError(
            f"{_what(model)} has a weight that is no probability ({error}): densities, decisions (?::) and "
            "parameters to learn (t(_)::) cannot be read"
        ) from error
    for atom, weight in weights.items():
        if not all(w >= 0 for w in weight):
            raise ModelError(f"atom {atom} of {_what(model)} has a negative weight: {min(weight)}")
    return weights


def _what(model: Any) -> str:
    """How an error calls the model."""
    return "this program" if isinstance(model, str) else f"this {class_of(model)}"


def _names(formula: Any, weights: dict[int, Weight]) -> dict[int, list[tuple[str, bool]]]:
    """What each atom is called, with False where the name is that of its negation; at 0 what is always so or never.

    Facts and choices without a name are called by their number; "none of these", which an annotated disjunction with
    probabilities below 1 in all has, is a choice as well.
    """
    chance = {node for node, weight in formula.get_weights().items() if weight is not True}
    chance |= {node for node, weight in weights.items() if not {0.0, 1.0}.issuperset(weight)}
    labels: Iterable[tuple[Any, int | None, str]] = formula.get_names_with_label()
    ranked = sorted(labels, key=lambda label: label[2] == formula.LABEL_NAMED)  # queries and evidence first
    found: dict[int, list[tuple[str, bool]]] = {}
    taken: set[str] = set()
    for term, node, label in ranked:
        atom, sign = (0, False) if node is None else (abs(node), node >= 0)
        name = str(term)
        while name.startswith(_NOT):
            name, sign = name[len(_NOT) :].strip(), not sign
        if (label != formula.LABEL_NAMED or atom in chance) and name not in taken:
            taken.add(name)
            found.setdefault(atom, []).append((name, sign))
    for atom in chance - set(found):
        found[atom] = [(f"atom {atom}", True)]
    return found
