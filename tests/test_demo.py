"""The bundled model and the question that `margmap demo` asks of it."""

from __future__ import annotations

import itertools
import math
import runpy
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
from margmap import demo

SCRIPT = Path(__file__).parent.parent / "scripts" / "make_demo_model.py"


def test_the_model_is_what_the_script_makes() -> None:
    bundled, made = demo.load_model(), runpy.run_path(str(SCRIPT))["clinic"]()
    assert bundled.variables == made.variables
    for name in ("kind", "start", "child", "var", "param_start"):
        assert np.array_equal(getattr(bundled, name), getattr(made, name))
    for name in ("log_weight", "param"):
        assert getattr(bundled, name) == pytest.approx(getattr(made, name), rel=1e-12)


def test_the_model_is_a_distribution() -> None:
    circuit = demo.load_model()
    assert mm.log_marginal(circuit) == pytest.approx(0, abs=1e-12)
    properties = circuit.properties
    assert properties.smooth
    assert properties.decomposable
    assert properties.normalised


def test_mpe_gives_another_answer_than_marginal_map() -> None:
    circuit = demo.load_model()
    found = demo.compare(circuit)
    assert found.marginal_map.status == found.mpe.status == "optimal"
    assert found.marginal_map.state == {"illness": "flu", "course": "severe"}
    assert found.projected == {"illness": "cold", "course": "mild"}
    assert math.exp(found.marginal_map.log_conditional) == pytest.approx(0.438, abs=1e-3)
    assert math.exp(found.log_projected) == pytest.approx(0.246, abs=1e-3)


def test_both_answers_are_right_by_enumeration() -> None:
    circuit = demo.load_model()
    found = demo.compare(circuit)
    asked = [circuit.variables[circuit.index(name)] for name in demo.QUERY]
    marginals = {
        states: mm.log_conditional(circuit, dict(zip(demo.QUERY, states, strict=True)), demo.EVIDENCE)
        for states in itertools.product(*(variable.states for variable in asked))
    }
    assert sum(map(math.exp, marginals.values())) == pytest.approx(1)
    assert max(marginals, key=lambda states: marginals[states]) == tuple(found.marginal_map.state.values())
    assert found.marginal_map.log_conditional == pytest.approx(max(marginals.values()))

    observed = {circuit.index(name): value for name, value in demo.EVIDENCE.items()}
    values = [
        [variable.code(observed[i])] if i in observed else range(variable.cardinality)
        for i, variable in enumerate(circuit.variables)
    ]
    rows = np.array(list(itertools.product(*values)))
    assert found.mpe.log_prob == pytest.approx(float(mm.log_likelihood(circuit, rows).max()))
