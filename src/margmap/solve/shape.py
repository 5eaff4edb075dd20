"""The shape of a reduced circuit: what those that differ in their weights alone have in common."""

from __future__ import annotations

from collections.abc import Callable

from margmap.circuit import IntArray
from margmap.foundation.limits import Runner
from margmap.solve.methods.frontier.scope_tree import Plan, make_plan, rounding_of
from margmap.solve.output_bounds import View, output_bounds, view_of
from margmap.solve.query_circuit import Flat


class Shape:
    """The plan, the supports and the counted roundings of circuits with the same nodes, edges and powers of two.

    None of them depends on a weight, as long as no weight is zero or stands as its logarithm. Each is found when it is
    first asked for, and then kept for all.
    """

    def __init__(self) -> None:
        self._plan: Plan | None = None
        self._view: View | None = None
        self._rounding: float | None = None

    def planned(self, flat: Flat, variables: int, run: Runner, check: Callable[[], None]) -> tuple[Flat, Plan] | None:
        """What :func:`~margmap.solve.methods.frontier.scope_tree.make_plan` gives for a circuit of this shape."""
        if self._plan is not None:
            return flat, self._plan
        found = make_plan(flat, variables, run, check)
        if found is not None and found[0] is flat:  # otherwise it was rewritten, weights and all
            self._plan = found[1]
        return found

    def view(self, flat: Flat, cardinality: IntArray, run: Runner) -> View:
        """What :func:`~margmap.solve.output_bounds.view_of` gives: only the bounds depend on the weights."""
        if self._view is None:
            self._view = view_of(flat, 0.0, cardinality, run)
            return self._view
        known = self._view.bounds
        return self._view._replace(flat=flat, bounds=output_bounds(flat, known.deterministic, run, known.rows))

    def rounding(self, flat: Flat, plan: Plan, rows: IntArray | None) -> float:
        """What :func:`~margmap.solve.methods.frontier.scope_tree.rounding_of` gives."""
        if self._rounding is None:
            self._rounding = rounding_of(flat, plan, rows)
        return self._rounding
