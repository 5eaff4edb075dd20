"""Vtrees: the value, its file, and the derivation from a circuit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from circuits_for_io import random_circuit
from margmap.circuit import INDICATOR, Circuit, Parts, Variable, assemble
from margmap.circuit.vtree import Vtree, derive_vtree, vtree_of
from margmap.errors import StructureError
from margmap.io.formats import load_vtree, save


def nested(vtree: Vtree) -> object:
    shape: list[object] = []
    for left, right, var in zip(vtree.left, vtree.right, vtree.var, strict=True):
        shape.append(vtree.variables[var] if left < 0 else (shape[left], shape[right]))
    return shape[-1]


def flat_product(order: list[int]) -> Circuit:
    parts = Parts.new()
    parts.product([parts.leaf(INDICATOR, v, [1.0]) for v in order])
    return assemble([Variable(f"x{v}") for v in range(len(order))], parts)


def test_parts_are_joined_from_the_right() -> None:
    assert nested(vtree_of(flat_product([2, 0, 3, 1]))) == ("x2", ("x0", ("x3", "x1")))


def test_a_finer_scope_groups_the_parts() -> None:
    parts = Parts.new()
    leaves = [parts.leaf(INDICATOR, v, [1.0]) for v in range(4)]
    flat = parts.product([leaves[3], leaves[0], leaves[1], leaves[2]])
    pair = parts.product([leaves[2], leaves[0]])
    parts.sum([flat, parts.product([pair, leaves[1], leaves[3]])], [-1.0, -0.5])
    circuit = assemble([Variable(v) for v in "abcd"], parts)
    assert nested(vtree_of(circuit)) == ("d", (("c", "a"), "b"))


@pytest.mark.parametrize("seed", range(20))
def test_every_scope_is_a_vtree_node(seed: int) -> None:
    circuit = random_circuit(seed, binary=True, structured=True)
    vtree, place = derive_vtree(circuit)
    below: list[frozenset[int]] = []
    for left, right, var in zip(vtree.left, vtree.right, vtree.var, strict=True):
        below.append(frozenset([int(var)]) if left < 0 else below[left] | below[right])
    for n in range(circuit.num_nodes):
        assert below[place[circuit.scopes.id[n]]] == set(circuit.scopes.variables(n))
    assert vtree.variables == circuit.names


def test_only_variables_below_the_root() -> None:
    parts = Parts.new()
    parts.product([parts.leaf(INDICATOR, 2, [1.0]), parts.leaf(INDICATOR, 0, [1.0])])
    vtree = vtree_of(assemble([Variable(v) for v in "abc"], parts))
    assert vtree.variables == ("a", "c")
    assert nested(vtree) == ("c", "a")


def test_crossing_scopes_are_refused() -> None:
    parts = Parts.new()
    a, b, c = (parts.leaf(INDICATOR, v, [1.0]) for v in range(3))
    one = parts.product([parts.product([a, b]), c])
    two = parts.product([a, parts.product([b, c])])
    parts.sum([one, two], [-1.0, -1.0])
    circuit = assemble([Variable(v) for v in "abc"], parts)
    with pytest.raises(StructureError, match=r"not structured-decomposable: the scope of node \d+"):
        vtree_of(circuit)


def test_shared_variable_is_refused() -> None:
    parts = Parts.new()
    a = parts.leaf(INDICATOR, 0, [1.0])
    parts.product([a, a])
    with pytest.raises(StructureError, match="decomposable"):
        vtree_of(assemble([Variable("a")], parts))


@pytest.mark.parametrize("suffix", ["vtree", "vtree.gz"])
def test_round_trip(tmp_path: Path, suffix: str) -> None:
    vtree = Vtree((3, 8, 20), [-1, -1, 0, -1, 3], [-1, -1, 1, -1, 2], [2, 0, -1, 1, -1])
    assert nested(vtree) == (8, (20, 3))
    path = tmp_path / f"a.{suffix}"
    save(vtree, path)
    result = load_vtree(path)
    assert nested(result) == nested(vtree)
    assert result.variables == (3, 8, 20)
    assert vtree.in_order().tolist() == [2, 4, 3, 0, 1]


def test_names_become_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.vtree"
    save(vtree_of(flat_product([2, 0, 1])), path)
    assert nested(load_vtree(path)) == (3, (1, 2))


def test_a_hundred_thousand_levels(tmp_path: Path) -> None:
    n = 100_000
    left = [-1] * n + [*range(n - 1)]
    right = [-1] * n + [n - 1, *range(n, 2 * n - 2)]
    vtree = Vtree(range(1, n + 1), left, right, [*range(n)] + [-1] * (n - 1))
    path = tmp_path / "deep.vtree"
    save(vtree, path)
    assert np.array_equal(load_vtree(path).in_order(), vtree.in_order())


def test_deep_circuit() -> None:
    parts = Parts.new()
    top = parts.leaf(INDICATOR, 0, [1.0])
    for v in range(1, 3000):
        top = parts.product([parts.leaf(INDICATOR, v, [1.0]), top])
    for _ in range(100_000):
        top = parts.sum([top], [-0.1])
    vtree = vtree_of(assemble([Variable(v) for v in range(3000)], parts))
    assert vtree.num_nodes == 5999


@pytest.mark.parametrize(
    ("variables", "left", "right", "var"),
    [
        ((), [], [], []),
        ((1, 2), [-1], [-1], [0]),
        ((1, 1), [-1, -1, 0], [-1, -1, 1], [0, 1, -1]),
        ((1,), [-1, 0], [-1, 0], [0, -1]),
        ((1, 2), [-1, -1], [-1, -1], [0, 1]),
        ((1, 2), [2, -1, -1], [1, -1, -1], [-1, 0, 1]),
        ((1, 2), [-1, -1, 0], [-1, -1, -1], [0, 1, -1]),
    ],
)
def test_arrays_that_are_no_tree(variables: tuple[int, ...], left: list[int], right: list[int], var: list[int]) -> None:
    with pytest.raises(StructureError):
        Vtree(variables, left, right, var)
