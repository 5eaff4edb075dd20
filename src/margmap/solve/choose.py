"""Auto: which method fits a reduced circuit, and why."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from margmap.foundation.limits import Limits
from margmap.solve.methods import METHODS
from margmap.solve.methods.brute_force import count_states
from margmap.solve.methods.frontier.solve import plan_for, solve_planned
from margmap.solve.prices import Priced
from margmap.solve.reduce import Reduced
from margmap.solve.result import Outcome

# `auto` enumerates when a circuit has no structure to use and that takes less than this many edge evaluations.
ENUMERATE_WORK = 2_000_000


class Choice(NamedTuple):
    """A method, as a function of the number of states to find."""

    name: str
    solve: Callable[..., Outcome]
    why: str


def choose(reduced: Reduced, limits: Limits, priced: Priced | None = None) -> Choice:
    """Frontier where the scopes form a tree; otherwise enumeration where that is quick, or branch and bound.

    ``priced`` is the problem with its constraints, where it has some: all three methods take them.
    """
    planned = plan_for(reduced, limits, priced)
    edges = (reduced if priced is None else priced).flat.num_edges
    if planned is not None:
        why = f"the circuit is structured-decomposable: {planned.plan.part_at.size - 1} scopes, {edges} edges left"
        return Choice("frontier", partial(solve_planned, planned, limits, priced=priced), why)
    states = count_states(reduced.cardinality)
    if states * edges <= ENUMERATE_WORK:
        name, why = "brute", f"two scopes cross, and {states} states are enumerated at once"
    else:
        name = "best-first"
        why = f"two scopes of the circuit cross ({edges} edges left), so there is no order to sweep them in"
    return Choice(name, partial(METHODS[name].solve, reduced, limits, priced=priced), why)
