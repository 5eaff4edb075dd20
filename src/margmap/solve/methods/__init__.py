"""The exact methods as declared values: what each is called, where it lives, what it takes and what it can do.

``auto``, the command line, ``--help``, batches and the README's table all read :data:`METHODS`. A new method is one
file here with a function ``solve(reduced, limits, **options) -> Outcome``, and one line in the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple, TypeAlias

#: What ``method=`` takes, for type checkers; ``tests`` hold it to :data:`METHODS`.
MethodName: TypeAlias = Literal[
    "auto", "frontier", "branch", "best-first", "iterative", "search", "brute", "elimination", "wcsp", "andor"
]


class Method(NamedTuple):
    """One exact method."""

    name: MethodName
    #: The module whose function ``solve`` it is; imported when first used.
    home: str
    #: What it does, in a few words.
    summary: str
    #: Its options, all of them keywords of ``solve``.
    options: tuple[str, ...] = ()
    #: Whether it finds the k best states (``solve`` then has the keyword ``k``), or one.
    several: bool = False
    #: Whether one query can be shared out over many cores.
    shared: bool = False
    takes: Literal["circuit", "network"] = "circuit"
    #: Whether it takes constraints on the answer (``solve`` then has the keyword ``priced``).
    constrained: bool = False

    @property
    def solve(self) -> Callable[..., Any]:
        """The function itself."""
        function: Callable[..., Any] = import_module(self.home).solve
        return function

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The options with their types and defaults."""
        known = inspect.signature(self.solve).parameters if self.options else {}
        return {name: known[name] for name in self.options}


#: What ``method="auto"`` is called: the method that fits the model is chosen.
AUTO: Final = "auto"

#: The methods by name.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "frontier",
            "margmap.solve.methods.frontier.solve",
            "sweeps over the tree of scopes, for structured-decomposable circuits",
            ("width", "max_width"),
            several=True,
            shared=True,
            constrained=True,
        ),
        Method(
            "iterative",
            "margmap.solve.methods.iter_solve",
            "bound, prune and split, as in the paper, with its edge bounds corrected",
            ("heuristic", "regroup", "climb", "fix", "max_edges", "on_iteration"),
        ),
        Method(
            "branch",
            "margmap.solve.methods.branch_and_bound",
            "depth-first search with the paper's transformations at every node, for circuits of any structure",
            several=True,
            shared=True,
            constrained=True,
        ),
        Method(
            "best-first",
            "margmap.solve.methods.best_first",
            "the steps of branch on the part with the largest bound first, for the smallest gap at any moment",
            several=True,
            constrained=True,
        ),
        Method("search", "margmap.solve.methods.maxspn", "the search of MaxSPN, the paper's baseline", ("order",)),
        Method(
            "brute", "margmap.solve.methods.brute_force", "every state of the query", several=True, constrained=True
        ),
        Method(
            "elimination",
            "margmap.solve.network_map",
            "variable elimination on the network itself, without a circuit",
            takes="network",
        ),
        Method(
            "wcsp",
            "margmap.solve.network_map",
            "sums out what is cheap, then toulbar2 beside mini-bucket bounds, for networks too wide to compile",
            takes="network",
        ),
        Method(
            "andor",
            "margmap.solve.network_map",
            "the same without toulbar2: bounds, values that cannot win removed, AND/OR search",
            takes="network",
        ),
    )
}


def methods_for(takes: str) -> tuple[Method, ...]:
    """The methods for a circuit, or for a network, which can also be made a circuit of."""
    return tuple(method for method in METHODS.values() if method.takes in ("circuit", takes))
