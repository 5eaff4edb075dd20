"""The public networks in ../shared: marginals against plain elimination, and the competition's instances."""

import math
import time

import numpy as np
import pytest

import margmap as mm
import plain_elimination as plain
from counts import cases
from margmap.io import uai
from margmap.network.compile import predict

# All networks there with up to 60 variables.
SMALL = ["alarm", "asia", "barley", "cancer", "child", "earthquake", "hailfinder", "insurance"]
SMALL += ["mildew", "sachs", "survey", "water"]


def load(shared, name):
    return mm.load_network(shared / "bif" / f"{name}.bif.gz")


@pytest.mark.parametrize("name", SMALL)
def test_marginals_are_those_of_variable_elimination(shared, name):
    network = load(shared, name)
    cardinality = [v.cardinality for v in network.variables]
    circuit = mm.compile(network)
    rng = np.random.default_rng(1)
    rows = mm.sample(circuit, cases(1), seed=3)
    for row in rows:
        n = len(network.variables)
        seen = rng.permutation(n)[: max(1, n // 8)].tolist()
        evidence = {v: int(row[v]) for v in seen}
        asked = [int(v) for v in rng.permutation([v for v in range(n) if v not in seen])[:3]]
        posterior = mm.posteriors(circuit, network.labelled(evidence))
        total = plain.eliminate(cardinality, network.factors, evidence)
        log_p = mm.log_marginal(circuit, network.labelled(evidence))
        assert log_p == pytest.approx(math.log(total), abs=1e-10)
        for v in asked:
            table = plain.eliminate(cardinality, network.factors, evidence, (v,))
            np.testing.assert_allclose(posterior.array(network.names[v]), table / total, rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["asia", "cancer", "earthquake", "survey", "sachs", "child", "alarm", "insurance"])
def test_marginal_map_is_that_of_enumeration(shared, name):
    network = load(shared, name)
    cardinality = [v.cardinality for v in network.variables]
    circuit = mm.compile(network)
    rng = np.random.default_rng(5)
    for seed in range(4):
        row = mm.sample(circuit, 1, seed=seed)[0]
        n = len(network.variables)
        order = rng.permutation(n).tolist()
        query, seen = order[: min(6, round(0.3 * n) + 1)], order[-max(1, n // 10) :]
        evidence = {v: int(row[v]) for v in seen}
        best = plain.best_states(cardinality, network.factors, query, evidence)[0][0]
        names, given = [network.names[v] for v in query], network.labelled(evidence)
        for model in (circuit, network):
            result = mm.marginal_map(model, names, given)
            assert result.status == "optimal"
            assert result.log_prob == pytest.approx(math.log(best), abs=1e-10)


def instance(shared, name):
    path = shared / "uai_mmap" / f"{name}.uai.gz"
    network = mm.load_network(path)
    return (
        network,
        uai.read_query(path.with_name(f"{name}.uai.query"), network),
        uai.read_evidence(path.with_name(f"{name}.uai.evid"), network),
    )


@pytest.mark.parametrize(("name", "log_prob"), [("Segmentation_13", -49.207298980), ("Segmentation_19", -55.434772782)])
def test_segmentation_is_solved(shared, name, log_prob):
    network, query, evidence = instance(shared, name)
    result = mm.marginal_map(network, query, evidence)
    assert result.status == "optimal"
    assert result.log_prob == pytest.approx(log_prob, abs=1e-8)


@pytest.mark.parametrize("name", ["Grids_29", "wcsp_15", "Promedas_71", "ObjectDetection_11"])
def test_what_is_too_wide_has_a_state_and_bounds(shared, name):
    network, query, evidence = instance(shared, name)

    def enough(progress):
        assert progress.state is None or progress.doing in ("first state", "local search")

    result = mm.marginal_map(network, query, evidence, on_progress=enough)
    assert result.status in ("interrupted", "optimal")
    assert set(result.state) == set(query)
    assert -math.inf < result.log_prob <= result.log_upper < math.inf


def test_predictions_of_large_networks_take_seconds(shared):
    network = load(shared, "munin")
    begun = time.perf_counter()
    plan = predict(network)
    assert time.perf_counter() - begun < 10
    assert plan.entries < 5e7
