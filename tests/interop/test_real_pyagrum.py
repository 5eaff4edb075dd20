"""Networks of pyAgrum itself, in memory and in the files that it writes."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest

import howto
import margmap as mm
from real import agree, check_marginal_map, states_of

with warnings.catch_warnings():  # SWIG's types warn when they are made, and crash later where that is an error
    warnings.simplefilter("ignore")
    gum = pytest.importorskip("pyagrum", reason="pyAgrum is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

SHAPES = ["a->b{lo|mid|hi}<-c[3]<-e[4];f[2]->b;b->d;g[1,3]->d;h{u|w}->d", "a;b[3];c->d"]


def networks():
    for seed, shape in enumerate(SHAPES):
        gum.initRandom(seed + 1)
        yield gum.fastBN(shape)
    for seed in range(4):
        gum.initRandom(seed + 10)
        yield gum.randomBN(n=6, ratio_arc=1.5, domain_size=3)


def log_joint(model, network):
    """The log-likelihoods of rows in the order of margmap's variables, by pyAgrum."""

    def value(rows):
        found = []
        for row in np.asarray(rows).tolist():
            state = gum.Instantiation()
            for variable in network.variables:
                state.add(model.variable(variable.name))
            for variable, x in zip(network.variables, row, strict=True):
                state.chgVal(variable.name, x)
            p = model.jointProbability(state)
            found.append(math.log(p) if p > 0 else -math.inf)
        return found

    return value


@pytest.mark.parametrize("number", range(6))
def test_bayesian_and_markov_networks(number):
    model = list(networks())[number]
    network = mm.as_model(model)
    expected = log_joint(model, network)
    rows = states_of(network, 100)
    agree(mm.compile(network), rows, expected(rows), 1e-9)
    field = mm.as_model(gum.MarkovRandomField.fromBN(model))
    assert (field.kind, field.names) == ("markov", network.names)
    agree(mm.compile(field), rows, expected(rows), 1e-9)
    engine = gum.LazyPropagation(model)
    engine.makeInference()
    circuit = mm.compile(network)
    for variable in network.variables:
        found = [
            math.exp(mm.log_marginal(circuit, {variable.name: variable.label(x)})) for x in range(variable.cardinality)
        ]
        np.testing.assert_allclose(found, engine.posterior(str(variable.name)).toarray(), atol=1e-9)
    if math.prod(v.cardinality for v in network.variables) <= 800:
        check_marginal_map(circuit, expected, 1e-9, queries=3)


@pytest.mark.parametrize("suffix", ["bif", "bifxml", "xmlbif", "net", "xdsl", "dsl"])
@pytest.mark.parametrize("number", [0, 1, 3])
def test_files(tmp_path, suffix, number):
    model = list(networks())[number]
    network = mm.as_model(model)
    written = tmp_path / f"x.{'bifxml' if suffix == 'xmlbif' else suffix}"
    gum.saveBN(model, str(written))
    path = written.rename(tmp_path / f"y.{suffix}") if suffix == "xmlbif" else written
    again = mm.load_network(path)
    assert set(again.names) == set(network.names)
    circuit, other = mm.compile(network), mm.compile(again)
    for row in states_of(network, 15):
        evidence = {v.name: str(v.label(int(x))) for v, x in zip(network.variables, row, strict=True)}
        assert mm.log_marginal(other, evidence) == pytest.approx(mm.log_marginal(circuit, evidence), abs=1e-4)


def test_names_in_uai_files(tmp_path):
    gum.initRandom(3)
    model = gum.fastBN("a[2]->b[3]->c[2];b->d[4]")
    gum.saveBN(model, str(tmp_path / "x.uai"))
    network = mm.load_network(tmp_path / "x.uai")
    assert network.names == ("a", "b", "c", "d")
    rows = states_of(network)
    agree(mm.compile(network), rows, log_joint(model, network)(rows), 1e-4)


def test_uai_files_of_pyagrum_have_the_parents_of_a_variable_in_another_order(tmp_path):
    """Its tables of two and more parents have the first parent fastest, where UAI has the last; see the how-to."""
    gum.initRandom(4)
    model = gum.fastBN("a[2]->b[2]<-c[2]")
    gum.saveBN(model, str(tmp_path / "x.uai"))
    table = mm.load_network(tmp_path / "x.uai").factors[1].table
    ours = mm.as_model(model).factors[1]
    assert [mm.as_model(model).names[v] for v in ours.scope] == ["c", "a", "b"]
    np.testing.assert_allclose(table, ours.table, atol=1e-5)  # as if its scope were c, a, b; the file says a, c, b


def test_what_cannot_be_read(tmp_path):
    diagram = gum.InfluenceDiagram()
    with pytest.raises(mm.ModelError, match=r"pyagrum\.InfluenceDiagram has decisions"):
        mm.as_model(diagram)
    model = gum.fastBN("a->b")
    with pytest.raises(mm.ModelError, match=r"LazyPropagation is an inference engine"):
        mm.as_model(gum.LazyPropagation(model))
    for suffix in ("net", "dsl", "xdsl"):
        path = tmp_path / f"x.{suffix}"
        path.write_text("this is nothing {")
        with pytest.raises(mm.FormatError, match=rf"x\.{suffix}: pyAgrum cannot read it"):
            mm.load_network(path)


def test_the_best_state_beside_that_of_enumeration():
    for model in itertools.islice(networks(), 3):
        network = mm.as_model(model)
        engine = gum.LazyPropagation(model)
        _, log_posterior = engine.mpeLog2Posterior()
        assert mm.mpe(network).log_prob == pytest.approx(log_posterior * math.log(2), abs=1e-9)


def test_howto(tmp_path):
    howto.run("pyAgrum", tmp_path)
