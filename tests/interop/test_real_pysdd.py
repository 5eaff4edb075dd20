"""Sentential decision diagrams of PySDD itself, against its weighted model counts and its models."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import howto
import margmap as mm
from real import agree, check_marginal_map, states_of

sdd = pytest.importorskip("pysdd.sdd", reason="PySDD is not installed")


def compiled(rng, n, kind):
    """A random theory that has a model, and its manager."""
    while True:
        manager = sdd.SddManager.from_vtree(sdd.Vtree(var_count=n, vtree_type=kind))
        node = manager.true()
        for _ in range(rng.randint(0, n + 2)):
            clause = manager.false()
            for _ in range(rng.randint(1, 3)):
                clause = clause | manager.literal(rng.choice((1, -1)) * rng.randint(1, n))
            node = node & clause
        if not node.is_false():
            node.ref()
            return manager, node


def weights_for(rng, n):
    return {s * v: rng.choice((1.0, rng.random(), rng.uniform(0, 20))) for v in range(1, n + 1) for s in (1, -1)}


def log_weights_of(node, manager, weights, n):
    """What the circuit must be, from the models that PySDD lists."""
    models = {tuple(model[v] for v in range(1, n + 1)) for model in node.models(manager.vtree())}

    def value(rows):
        return [
            sum(math.log(weights[v if x else -v]) for v, x in enumerate(row, 1)) if tuple(row) in models else -math.inf
            for row in np.asarray(rows).tolist()
        ]

    return value


@pytest.mark.parametrize("kind", ["balanced", "right", "left", "vertical", "random"])
@pytest.mark.parametrize("seed", range(8))
def test_models_and_counts(tmp_path, kind, seed):
    rng = random.Random(f"{kind} {seed}")
    n = rng.randint(1, 9)
    manager, node = compiled(rng, n, kind)
    weights = weights_for(rng, n)
    logs = seed % 2 == 0
    counter = node.wmc(log_mode=logs)
    for literal, weight in weights.items():
        counter.set_literal_weight(manager.literal(literal), math.log(weight) if logs else weight)
    total = counter.propagate()
    expected = log_weights_of(node, manager, weights, n)
    node.save(str(tmp_path / "x.sdd").encode())
    manager.vtree().save(str(tmp_path / "x.vtree").encode())
    for circuit in (
        mm.as_model(counter),
        mm.from_sdd(node, weights),
        mm.load(tmp_path / "x.sdd", weights=weights),
    ):
        assert circuit.names == tuple(range(1, n + 1))
        assert mm.log_marginal(circuit, {}) == pytest.approx(total if logs else math.log(total), abs=1e-9)
        rows = states_of(circuit)
        agree(circuit, rows, expected(rows), 1e-9)
    if n > 1:
        check_marginal_map(counter, expected, 1e-9)


def test_without_weights_models_are_counted():
    _, node = compiled(random.Random(5), 8, "balanced")
    assert math.exp(mm.log_marginal(node, {})) == pytest.approx(node.global_model_count())


def test_a_larger_theory():
    n = 60
    manager = sdd.SddManager.from_vtree(sdd.Vtree(var_count=n, vtree_type="balanced"))
    node = manager.true()
    for v in range(1, n - 1):
        node = node & (manager.literal(v) | manager.literal(-(v + 1)) | manager.literal(v + 2))
    node.ref()
    counter = node.wmc(log_mode=True)
    rng = random.Random(1)
    for v in range(1, n + 1):
        p = rng.random()
        counter.set_literal_weight(manager.literal(v), math.log(p))
        counter.set_literal_weight(manager.literal(-v), math.log1p(-p))
    assert mm.log_marginal(counter, {}) == pytest.approx(counter.propagate(), abs=1e-9)
    result = mm.marginal_map(counter, list(range(1, 20)), {30: 1}, time_limit=60)
    assert result.status == "optimal"


def test_howto(tmp_path):
    howto.run("PySDD", tmp_path)
