"""Likelihoods, marginals, posteriors and samples of networks, against enumeration of the product of all factors."""

import gc
import itertools
import math
import weakref

import numpy as np
import pytest

import margmap as mm
import plain_elimination as plain
from margmap.inference import networks as inference


def joint_of(cardinality, factors):
    """The product of all factors as one table."""
    table = np.zeros(cardinality)
    for state in itertools.product(*(range(c) for c in cardinality)):
        table[state] = math.prod(float(np.asarray(t)[tuple(state[v] for v in scope)]) for scope, t in factors)
    return table


def instance(seed, n=6):
    """A network with its joint table, and evidence that may be impossible."""
    rng = np.random.default_rng(seed)
    kind = "bayes" if seed % 3 else "markov"
    while True:
        cardinality, factors = plain.random_network(rng, n, kind=kind, zeros=0.25)
        joint = joint_of(cardinality, factors)
        if joint.sum() > 0:
            break
    names = [i if i % 2 else f"v{i}" for i in range(n)]
    states = [tuple(f"s{x}" for x in range(c)) if i % 3 == 0 else () for i, c in enumerate(cardinality)]
    variables = [mm.Variable(*parts) for parts in zip(names, cardinality, states, strict=True)]
    seen = rng.permutation(n)[: int(rng.integers(0, 4))].tolist()
    return mm.Network(variables, factors, kind), joint, {v: int(rng.integers(cardinality[v])) for v in seen}


def named(network, codes):
    return {network.names[v]: network.variables[v].label(x) for v, x in codes.items()}


def conditioned(joint, codes):
    """The joint table with everything but the evidence set to 0."""
    table = np.zeros_like(joint)
    at = tuple(codes.get(v, slice(None)) for v in range(joint.ndim))
    table[at] = joint[at]
    return table


def marginal(table, v):
    return table.sum(axis=tuple(a for a in range(table.ndim) if a != v))


@pytest.fixture(params=["kept circuit", "elimination"])
def way(request, monkeypatch):
    """Both ways to answer, whatever the size."""
    if request.param == "elimination":
        monkeypatch.setattr(inference, "KEPT_ENTRIES", -1)
    return request.param


@pytest.mark.parametrize("block", range(10))
def test_marginals_and_posteriors_are_those_of_enumeration(way, block):
    impossible = 0
    for seed in range(20 * block, 20 * block + 20):
        network, joint, codes = instance(seed)
        evidence, table = named(network, codes), conditioned(joint, codes)
        total = table.sum()
        if total == 0:
            impossible += 1
            assert mm.log_marginal(network, evidence) == -math.inf
            for ask in (mm.posteriors, lambda n, e: mm.sample(n, 1, e), lambda n, e: mm.log_conditional(n, {}, e)):
                with pytest.raises(mm.ImpossibleEvidenceError):
                    ask(network, evidence)
            continue
        assert mm.log_marginal(network, evidence) == pytest.approx(math.log(total), abs=1e-11)
        found = mm.posteriors(network, evidence)
        assert list(found) == [name for v, name in enumerate(network.names) if v not in codes]
        for v, variable in enumerate(network.variables):
            if v not in codes:
                expected = marginal(table, v) / total
                np.testing.assert_allclose(found.array(variable.name), expected, rtol=1e-10, atol=1e-300)
                assert found[variable.name] == {
                    variable.label(x): pytest.approx(float(p), rel=1e-10) for x, p in enumerate(expected)
                }
                for x, p in enumerate(expected):
                    log_p = mm.log_conditional(network, {variable.name: variable.label(x)}, evidence)
                    assert log_p == (-math.inf if p == 0 else pytest.approx(math.log(p), abs=1e-10))
    assert impossible < 20


@pytest.mark.parametrize("block", range(5))
def test_log_likelihood_is_that_of_enumeration(way, block):
    for seed in range(20 * block, 20 * block + 20):
        network, joint, _ = instance(seed, 5)
        rng = np.random.default_rng(seed)
        rows = np.array([[rng.integers(-1, v.cardinality) for v in network.variables] for _ in range(6)])
        rows[:2] = np.maximum(rows[:2], 0)  # complete
        expected = [conditioned(joint, {v: x for v, x in enumerate(row) if x >= 0}).sum() for row in rows.tolist()]
        np.testing.assert_allclose(np.exp(mm.log_likelihood(network, rows)), expected, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("seed", range(12))
def test_samples_have_the_frequencies_of_the_network(seed):
    network, joint, codes = instance(seed, 4)
    table = conditioned(joint, codes)
    if table.sum() == 0:
        codes, table = {}, joint
    table, n = table / table.sum(), 6000
    drawn = mm.sample(network, n, named(network, codes), seed=seed)
    assert drawn.shape == (n, 4)
    assert drawn.dtype == np.int32
    seen = np.zeros(table.shape)
    np.add.at(seen, tuple(drawn.T), 1)
    assert (seen[table == 0] == 0).all()
    assert (np.abs(seen - n * table) <= 5 * np.sqrt(n * table * (1 - table)) + 3).all()
    assert drawn.tolist() == mm.sample(network, n, named(network, codes), seed=seed).tolist()
    assert mm.sample(network, 0, named(network, codes)).shape == (0, 4)


@pytest.mark.parametrize("seed", range(30))
def test_approximate_and_mpe(seed):
    network, joint, codes = instance(seed, 5)
    table = conditioned(joint, codes)
    if table.sum() == 0:
        with pytest.raises(mm.ImpossibleEvidenceError):
            mm.approximate(network, None, named(network, codes))
        return
    evidence = named(network, codes)
    best = mm.mpe(network, evidence)
    assert best.status == "optimal"
    assert math.exp(best.log_prob) == pytest.approx(table.max(), rel=1e-10)
    query = [v for v in range(5) if v not in codes][:2]
    for asked in (None, [network.names[v] for v in query], []):
        found = mm.approximate(network, asked, evidence)
        state = {network.index(name): network.variables[network.index(name)].code(x) for name, x in found.state.items()}
        assert list(state) == ([v for v in range(5) if v not in codes] if asked is None else query[: len(asked)])
        assert math.exp(found.log_prob) == pytest.approx(conditioned(table, state).sum(), rel=1e-10)
        assert found.log_conditional == pytest.approx(found.log_prob - math.log(table.sum()), abs=1e-10)


def grid(side):
    """A Bayesian network that is wide."""
    factors = []
    for v in range(side * side):
        parents = [u for u, there in ((v - 1, v % side), (v - side, v >= side)) if there]
        factors.append(([*parents, v], np.broadcast_to([0.3, 0.7], [2] * (len(parents) + 1)).copy()))
        factors[-1][1][..., 0] += 0.01 * np.arange(2 ** len(parents)).reshape([2] * len(parents))
        factors[-1][1][..., 1] = 1 - factors[-1][1][..., 0]
    return mm.Network([mm.Variable(v) for v in range(side * side)], factors)


def test_what_a_network_too_wide_still_answers_and_what_it_refuses():
    network, last = grid(16), 255
    rows = mm.sample(network, 50, seed=1)
    assert mm.log_likelihood(network, rows).shape == (50,)
    assert mm.log_marginal(network) == 0
    assert math.exp(mm.log_marginal(network, {0: 1})) == pytest.approx(0.7)
    assert mm.log_marginal(network, {3: 1, 0: 0}) < 0  # only what is above 3 matters
    for ask in (
        lambda: mm.posteriors(network, {last: 1}, max_edges=1000),
        lambda: mm.log_marginal(network, {last: 1}, max_edges=1000),
        lambda: mm.sample(network, 1, {last: 1}, max_edges=1000),
    ):
        with pytest.raises(mm.LimitError, match=r"too wide: .*; observe more variables"):
            ask()
    rows[0, 5] = -1
    with pytest.raises(mm.LimitError, match="rows with missing entries need a circuit"):
        mm.log_likelihood(network, rows, max_edges=1000)
    with pytest.raises(mm.LimitError, match="too wide"):
        mm.approximate(network, [0], {last: 1}, max_edges=1000)
    with pytest.raises(mm.QueryError, match="max_edges=0"):
        mm.posteriors(network, max_edges=0)


def test_a_circuit_is_compiled_once_and_goes_with_its_network(monkeypatch):
    compiled = []
    original = inference.compile_network
    monkeypatch.setattr(inference, "compile_network", lambda n, **more: compiled.append(0) or original(n, **more))
    network, *_ = instance(1)
    for _ in range(3):
        mm.posteriors(network)
        mm.log_marginal(network)
        mm.log_conditional(network, {})
    assert len(compiled) == 1
    kept = weakref.ref(inference._kept[network])
    others = [instance(seed)[0] for seed in range(2, 2 + inference.KEPT_NETWORKS)]
    for other in others:
        mm.log_marginal(other)
    assert len(inference._kept) <= inference.KEPT_NETWORKS
    assert network not in inference._kept
    mm.log_marginal(network)
    assert len(compiled) == 2 + len(others)
    kept = weakref.ref(inference._kept[network])
    del network
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("name", ["alarm", "hailfinder", "insurance", "water", "child"])
def test_real_networks(shared, way, name):
    network = mm.load_network(shared / "bif" / f"{name}.bif.gz")
    cardinality = [v.cardinality for v in network.variables]
    rows = mm.sample(network, 3, seed=5)
    for row in rows.tolist():
        codes = {v: row[v] for v in range(0, len(row), 7)}
        found = mm.posteriors(network, named(network, codes))
        total = plain.eliminate(cardinality, network.factors, codes)
        assert mm.log_marginal(network, named(network, codes)) == pytest.approx(math.log(total), abs=1e-10)
        for v in (1, 2, len(row) - 1):
            if v not in codes:
                table = plain.eliminate(cardinality, network.factors, codes, (v,))
                np.testing.assert_allclose(found.array(network.names[v]), table / total, atol=1e-11)


def test_a_network_that_no_circuit_fits_has_posteriors(shared):
    """The circuit of link passes 67 million edges; its tables do not."""
    network = mm.load_network(shared / "bif" / "link.bif.gz")
    seen = dict(zip(network.names, mm.sample(network, 1, seed=1)[0].tolist(), strict=True))
    evidence = {name: seen[name] for name in network.names[::3]}
    codes = {network.index(name): x for name, x in evidence.items()}
    evidence = named(network, codes)
    found = mm.posteriors(network, evidence)
    assert len(found) == len(network.variables) - len(evidence)
    log_evidence = mm.log_marginal(network, evidence)
    for name in list(found)[:200:40]:
        for state, p in found[name].items():
            expected = math.exp(mm.log_marginal(network, {**evidence, name: state}) - log_evidence)
            assert p == pytest.approx(expected, abs=1e-10)


def test_a_network_whose_tables_rule_every_state_out_has_no_mass():
    a, b = mm.Variable("a"), mm.Variable("b")
    network = mm.Network([a, b], [((0, 1), [[0.0, 1.0], [0.0, 0.0]]), ((1,), [1.0, 0.0])], kind="markov")
    assert mm.log_marginal(network) == -np.inf
    assert mm.log_marginal(network, {"a": 1}) == -np.inf
    with pytest.raises(mm.StructureError, match="every state probability 0"):
        mm.marginal_map(network, ["a"])
