"""Models of bnlearn itself, the Python package: a dict that holds a network of pgmpy."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import howto
import margmap as mm

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    bnlearn = pytest.importorskip("bnlearn", reason="bnlearn is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


def fitted():
    """A network with fixed structure whose tables are learned from rows."""
    import pandas as pd

    rng = np.random.default_rng(0)
    rain = rng.random(2000) < 0.3
    sprinkler = rng.random(2000) < np.where(rain, 0.1, 0.5)
    wet = rng.random(2000) < np.where(rain | sprinkler, 0.9, 0.1)
    rows = pd.DataFrame({"rain": rain, "sprinkler": sprinkler, "wet": wet}).astype(int)
    dag = bnlearn.make_DAG([("rain", "sprinkler"), ("rain", "wet"), ("sprinkler", "wet")])
    return bnlearn.parameter_learning.fit(dag, rows, methodtype="maximumlikelihood")


def test_a_learned_network():
    model = fitted()
    network = mm.as_model(model)
    circuit = mm.compile(network)
    names = list(network.names)
    total = 0.0
    for state in itertools.product((0, 1), repeat=3):
        evidence = dict(zip(names, state, strict=True))
        expected = 1.0
        for cpd in model["model"].get_cpds():
            expected *= float(cpd.get_value(**{v: evidence[v] for v in cpd.variables}))
        found = np.exp(mm.log_marginal(circuit, evidence))
        assert found == pytest.approx(expected, abs=1e-9)
        total += found
    assert total == pytest.approx(1)
    table = bnlearn.inference.fit(model, variables=["rain", "sprinkler"], evidence={"wet": 1}).df
    best = table.loc[table["p"].idxmax()]
    ours = mm.marginal_map(model, ["rain", "sprinkler"], {"wet": 1})
    assert ours.state == {"rain": int(best["rain"]), "sprinkler": int(best["sprinkler"])}
    assert np.exp(ours.log_conditional) == pytest.approx(float(best["p"]), abs=1e-9)


def test_a_network_of_its_own():
    model = bnlearn.import_DAG("sprinkler")
    assert mm.marginal_map(model, ["Rain"], {"Wet_Grass": 1}).status == "optimal"


def test_a_structure_without_tables():
    dag = bnlearn.import_DAG("sprinkler", CPD=False)
    with pytest.raises(mm.StructureError, match="fit its parameters first"):
        mm.as_model(dag)


def test_howto(tmp_path):
    howto.run("bnlearn", tmp_path)
