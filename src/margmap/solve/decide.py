"""The decision with the largest expected utility, as one marginal-MAP query (Cooper, 1988).

A decision's own table is replaced by one that says nothing, so that p(d, e) is the same for every decision d. Each
utility u over some variables becomes a child of these that is seen with a probability from 1/2 to 1, a linear function
of u. Utilities add up: a selector variable chooses one of them, as often as its range is large, and the children of the
others are then seen for certain. So

    p(d, e, all seen) = p(d) p(e) * sum over utilities j of share[j] E[likelihood[j] | d, e],

which is a linear function of the expected utility. (G. F. Cooper, *A method for using belief networks as influence
diagrams*, UAI 1988.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from margmap.circuit import FloatArray, Name, Variable
from margmap.circuit.evidence import names_of, shortened
from margmap.circuit.model import as_network
from margmap.circuit.observation import Observation
from margmap.errors import QueryError
from margmap.foundation import html
from margmap.foundation.limits import Status
from margmap.foundation.wording import spelled
from margmap.inference.queries import log_marginal
from margmap.network.network import Network
from margmap.network.relevance import ancestors
from margmap.solve.marginal_map import marginal_map

# How far, relatively to the range of all utilities, an expected utility can be off because numbers were rounded.
_ROUNDING = 1e-12


class RankedDecision(NamedTuple):
    """One of the best decisions."""

    decision: dict[Name, int | str]
    utility: float


@dataclass(frozen=True)
class Decision:
    """The best decision and its expected utility; no decision has more than ``upper``."""

    status: Status
    #: The value of each decision variable; None if the search was stopped before there was one.
    decision: dict[Name, int | str] | None
    #: Its expected utility, which is also the lower bound of the best one.
    utility: float
    upper: float
    #: The best decisions in order, as many as were asked for and exist.
    top: tuple[RankedDecision, ...]
    seconds: float

    @property
    def gap(self) -> float:
        """How much more, in units of utility, another decision could be worth."""
        return max(0.0, self.upper - self.utility)

    def _repr_html_(self) -> str:
        known = {"status": spelled(self.status), "expected utility": self.utility, "gap": self.gap}
        header = ("rank", *(self.decision or ()), "expected utility")
        rows = [(i, *one.decision.values(), one.utility) for i, one in enumerate(self.top, 1)]
        return html.section(html.facts("Best decision", known), html.table(header, rows, "Decisions", most=60))


class _Utility(NamedTuple):
    scope: tuple[int, ...]
    table: FloatArray

    @property
    def range(self) -> float:
        return float(self.table.max() - self.table.min())


def best_decision(
    network: object,
    decisions: Sequence[Name],
    utilities: Sequence[tuple[Sequence[Name], ArrayLike]],
    evidence: Mapping[Any, Observation] | None = None,
    *,
    k: int = 1,
    time_limit: float | None = None,
) -> Decision:
    """The values of ``decisions`` with the largest expected utility given ``evidence``, and the proof.

    ``network`` is a Bayesian network. What its tables say of the decision variables themselves is ignored: they are
    chosen, all at once, after the evidence was seen. ``utilities`` is a list of pairs of variables and a table of
    numbers, one axis for each of the variables; negative ones are costs, and all are added up. ``k`` asks for so many
    best decisions. Evidence that is an effect of a decision is refused, since it is not known when that is made.
    """
    begun = time.perf_counter()
    network = as_network(network)
    if network.kind != "bayes":
        raise QueryError("best_decision needs a Bayesian network: in a Markov network a decision has no effects")
    chosen = network.query_columns(names_of(decisions, "decisions"), ())
    if not chosen:
        raise QueryError("decisions=[]: name the variables that are to be decided")
    found = _checked(network, utilities)
    free = _undecided(network, chosen)
    _refuse_effects(free, chosen, evidence)
    moving = [one for one in found if one.range > 0]
    scale = 2 * math.fsum(one.range for one in moving)
    least = math.fsum(float(one.table.min()) - one.range for one in found)
    names: list[Any] = [network.variables[column] for column in chosen]
    known = network.labelled(network.observed(evidence))
    asked, seen = (_with_utilities(free, moving, scale), known) if moving else (free, known)
    seen = seen | {asked.variables[column]: 1 for column in range(len(free.variables) + 1, len(asked.variables))}
    result = marginal_map(asked, names, seen, time_limit=time_limit, k=k)
    # p(d, e), which is the same for every decision.
    log_each = log_marginal(free, known) - math.fsum(math.log(v.cardinality) for v in names)

    def utility(log_prob: float) -> float:
        return least + scale * math.exp(min(log_prob - log_each, 0.0)) if moving else least

    top = tuple(RankedDecision(one.state, utility(one.log_prob)) for one in result.top)
    own = top[0].utility if top else least
    upper = max(own, utility(result.log_upper) + _ROUNDING * scale)
    return Decision(result.status, result.state, own, upper, top, time.perf_counter() - begun)


def _checked(network: Network, utilities: Any) -> list[_Utility]:
    what = "utilities is a list of pairs (variables, table), such as [(['repair', 'broken'], [[0, -10], [-3, -3]])]"
    if isinstance(utilities, Mapping | str) or not isinstance(utilities, Sequence) or not utilities:
        raise QueryError(f"utilities={shortened(utilities)}: {what}")
    found = []
    for number, one in enumerate(utilities):
        if not isinstance(one, Sequence) or isinstance(one, str) or len(one) != 2:
            raise QueryError(f"utility {number} is {shortened(one)}: {what}")
        scope = tuple(network.query_columns(names_of(one[0], f"utilities[{number}]"), ()))
        shape = tuple(network.variables[column].cardinality for column in scope)
        try:
            table = np.array(one[1], dtype=np.float64)
        except (TypeError, ValueError):
            raise QueryError(f"utility {number}: its table is not of numbers: {shortened(one[1])}") from None
        if table.shape != shape:
            raise QueryError(f"utility {number}: its table has shape {table.shape}, but its variables need {shape}")
        if not np.isfinite(table).all():
            raise QueryError(f"utility {number}: its table has a number that is not finite")
        if not np.isfinite(float(table.max()) - float(table.min())):
            raise QueryError(f"utility {number}: its numbers are too far apart")
        found.append(_Utility(scope, table))
    return found


def _undecided(network: Network, chosen: Sequence[int]) -> Network:
    """The network with decisions that depend on nothing and are all alike."""
    factors: list[tuple[Sequence[int], ArrayLike]] = [(factor.scope, factor.table) for factor in network.factors]
    for column in chosen:
        values = network.variables[column].cardinality
        factors[column] = ((column,), np.full(values, 1.0 / values))
    return Network(network.variables, factors)


def _refuse_effects(network: Network, chosen: Sequence[int], evidence: Any) -> None:
    for column in network.observed(evidence):
        name = network.names[column]
        if column in chosen:
            raise QueryError(f"variable {name!r} is decided and observed: drop it from one of the two")
        causes = [network.names[d] for d in chosen if d in ancestors(network, [column])]
        if causes:
            raise QueryError(
                f"evidence on {name!r} is an effect of the decision {causes[0]!r}, so it is not known when that is made"
            )


def _with_utilities(network: Network, utilities: Sequence[_Utility], scale: float) -> Network:
    """The network with the selector, and after it a child for each utility."""
    taken = set(map(str, network.names))

    def fresh(name: str) -> str:
        while name in taken:
            name += "'"
        taken.add(name)
        return name

    variables = [*network.variables, Variable(fresh("utility"), len(utilities))]
    selector = len(network.variables)
    factors: list[tuple[Sequence[int], ArrayLike]] = [(factor.scope, factor.table) for factor in network.factors]
    shares = np.array([2 * one.range / scale for one in utilities])
    factors.append(((selector,), shares / shares.sum()))
    for number, (scope, table) in enumerate(utilities):
        spread = float(table.max() - table.min())
        likelihood = np.ones((len(utilities), *table.shape))
        likelihood[number] = 0.5 + 0.5 * ((table - table.min()) / spread)
        variables.append(Variable(fresh(f"utility {number}"), 2))
        both = np.stack((1 - likelihood, likelihood), axis=-1)
        factors.append(((selector, *scope, len(variables) - 1), both))
    return Network(variables, factors)
