"""Circuits, vtrees and formulas with tens of thousands of levels go through everything: nothing calls itself.

``MARGMAP_THOROUGH`` asks for 100,000 levels; the formats are tested with so many in any case (tests/io).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
from counts import THOROUGH
from margmap.circuit import BERNOULLI, INDICATOR, Circuit, Parts, Variable, assemble
from margmap.circuit.transform import normalise, smooth
from margmap.circuit.vtree import vtree_of
from margmap.inference.queries import log_marginal, posteriors, sample
from margmap.io.formats import load_circuit, save
from margmap.solve.reduce import reduce

LEVELS = 100_000 if THOROUGH > 1 else 20_000
A, B = Variable("a"), Variable("b")


def one_child_sums() -> Circuit:
    """p(a = 1) = 0.3 below sums and products with one child each."""
    parts = Parts.new()
    top = parts.leaf(BERNOULLI, 0, [math.log(0.3), math.log(0.7)])
    for _ in range(LEVELS // 2):
        top = parts.product([parts.sum([top], [0.0])])
    return assemble([A], parts)


def mixtures() -> Circuit:
    """Each level mixes the one below with one of the four states in turn, the last ones of them counting most."""
    parts = Parts.new()
    leaf = [[parts.leaf(INDICATOR, v, [float(x)]) for x in (0, 1)] for v in (0, 1)]
    states = [parts.product([leaf[0][x], leaf[1][y]]) for x in (0, 1) for y in (0, 1)]
    top = states[0]
    for level in range(LEVELS):
        top = parts.sum([top, states[level % 4]], [math.log(0.9), math.log(0.1)])
    return assemble([A, B], parts)


# The last level that adds a state has share 0.1, the one four levels before it 0.1 * 0.9 ** 4, and so on.
SHARE = [0.1 * 0.9 ** ((LEVELS - 1 - i) % 4) / (1 - 0.9**4) for i in range(4)]
ANSWERS: list[tuple[Callable[[], Circuit], dict[str, int], float]] = [
    (one_child_sums, {"a": 0}, math.log(0.7)),
    (mixtures, {"a": 1, "b": 1}, math.log(SHARE[3])),
]


@pytest.mark.parametrize(("make", "state", "log_prob"), ANSWERS)
def test_everything_on_deep_circuits(
    make: Callable[[], Circuit], state: dict[str, int], log_prob: float, tmp_path: Path
) -> None:
    circuit = make()
    assert circuit.depth >= LEVELS
    assert circuit.properties.structured
    assert smooth(circuit) is circuit
    assert vtree_of(circuit).num_nodes == 2 * len(circuit.variables) - 1
    assert normalise(circuit).num_nodes == circuit.num_nodes
    assert log_marginal(circuit, {}) == pytest.approx(0.0, abs=1e-6)
    assert len(posteriors(circuit, {})) == len(circuit.variables)
    assert sample(circuit, 2, {}, 1).shape == (2, len(circuit.variables))
    assert reduce(circuit, None).cardinality.tolist() == [2] * len(circuit.variables)
    for method in ("auto", "frontier", "branch", "iterative", "brute"):
        result = mm.marginal_map(circuit, None, {}, method=method)
        assert (result.status, dict(result.state)) == ("optimal", state), method
        assert result.log_prob == pytest.approx(log_prob, abs=1e-6)
    for suffix in ("json", "jpc", "spn", "ac", "psdd"):
        path = tmp_path / f"deep.{suffix}"
        save(circuit, path)
        again = load_circuit(path)
        assert log_marginal(again, dict(zip(again.names, state.values(), strict=True))) == pytest.approx(
            log_prob, abs=1e-6
        )


def test_smoothing_a_deep_chain_is_not_quadratic() -> None:
    """At every level a child lacks everything below: what is multiplied in is shared with the level below."""
    parts = Parts.new()
    size = 1000
    top = parts.leaf(BERNOULLI, 0, [math.log(0.3), math.log(0.7)])
    for v in range(1, size):
        one, zero = (parts.leaf(INDICATOR, v, [x]) for x in (1.0, 0.0))
        top = parts.sum([parts.sum([parts.product([one, top])], [0.0]), zero], [math.log(0.4), math.log(0.6)])
    circuit = assemble([Variable(v) for v in range(size)], parts)
    made = smooth(circuit)
    assert made.num_edges < 15 * size
    assert made.properties[:3] == (True, True, True)
    rng = np.random.default_rng(5)
    row = {v: int(rng.integers(2)) for v in range(size)}
    row[size - 1] = 1
    row[size - 2] = 0
    # The second level from the top has value 0.6 there, whatever the variables below it are.
    assert log_marginal(made, row) == pytest.approx(math.log(0.4 * 0.6))


def rough_circuit(rng: random.Random, size: int) -> Circuit:
    """Sums whose children have different scopes, over products of what lies below."""
    parts = Parts.new()

    def node(scope: list[int]) -> int:
        if len(scope) == 1:
            return parts.leaf(BERNOULLI, scope[0], [math.log(0.25), math.log(0.75)])
        children = []
        for _ in range(rng.randint(1, 3)):
            some = rng.sample(scope, rng.randint(1, len(scope)))
            cut = rng.randint(0, len(some) - 1)
            pieces = [piece for piece in (some[:cut], some[cut:]) if piece]
            children.append(parts.product([node(piece) for piece in pieces]) if len(pieces) > 1 else node(pieces[0]))
        return parts.sum(children, [math.log(rng.uniform(0.1, 1)) for _ in children])

    node(list(range(size)))
    return assemble([Variable(v) for v in range(size)], parts)


def test_smoothing_with_shared_nodes_is_the_same_function(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(8)
    rows = np.array(list(itertools.product((0, 1), repeat=7)))
    shared = 0
    for _ in range(60):
        circuit = rough_circuit(rng, 7)
        monkeypatch.setattr("margmap.circuit.transform._COVER_VARIABLES", 100)
        plain = smooth(circuit)
        monkeypatch.setattr("margmap.circuit.transform._COVER_VARIABLES", 0)
        made = smooth(circuit)
        assert made.properties[:2] == (True, True)
        assert mm.log_likelihood(made, rows) == pytest.approx(mm.log_likelihood(plain, rows), abs=1e-12)
        shared += made.num_nodes != plain.num_nodes
    assert shared > 10


def test_deep_formulas() -> None:
    formula = 0.5 * A[0] + 0.5 * A[1]
    for level in range(LEVELS):
        formula = 0.9 * formula + 0.1 * A[level % 2]
    circuit = mm.circuit_of(formula * B[1])
    assert circuit.depth == LEVELS + 2
    assert log_marginal(circuit, {"b": 1}) == pytest.approx(0.0, abs=1e-6)
