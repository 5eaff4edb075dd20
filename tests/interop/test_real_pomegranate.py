"""Networks of pomegranate itself, which computes in single precision."""

from __future__ import annotations

import numpy as np
import pytest

import howto
import margmap as mm
from real import agree, check_marginal_map, states_of

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("pomegranate.bayesian_network", reason="pomegranate is not installed")

from pomegranate.bayesian_network import BayesianNetwork  # noqa: E402
from pomegranate.distributions import Categorical, ConditionalCategorical, JointCategorical, Normal  # noqa: E402
from pomegranate.factor_graph import FactorGraph  # noqa: E402
from pomegranate.gmm import GeneralMixtureModel  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def likelihood(model, rows):
    with torch.no_grad():
        return model.log_probability(torch.as_tensor(np.asarray(rows))).double().numpy()


def learned(algorithm):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (500, 5))
    rows[:, 1] = (rows[:, 0] + (rng.random(500) < 0.2)) % 3
    rows[:, 3] = (rows[:, 1] + (rng.random(500) < 0.3)) % 3
    return BayesianNetwork(algorithm=algorithm, pseudocount=1.0).fit(torch.tensor(rows))


def table(*shape, rng):
    made = rng.random(shape) + 0.05
    return torch.tensor(made / made.sum(axis=-1, keepdims=True), dtype=torch.float32)


def by_hand():
    """Two parents, with numbers of values that differ, and edges that were not added in the order of the columns."""
    rng = np.random.default_rng(3)
    a = Categorical(table(1, 2, rng=rng))
    b = Categorical(table(1, 3, rng=rng))
    c = ConditionalCategorical([table(3, 2, 4, rng=rng)])  # parents b and a, in this order
    d = ConditionalCategorical([table(4, 2, rng=rng)])
    return BayesianNetwork([a, b, c, d], [(b, c), (a, c), (c, d)])


def factor_graph():
    rng = np.random.default_rng(4)
    marginals = [Categorical(table(1, size, rng=rng)) for size in (2, 3, 2)]
    joints = [
        JointCategorical(torch.tensor(rng.dirichlet(np.ones(6)).reshape(shape), dtype=torch.float32))
        for shape in ((2, 3), (3, 2))
    ]
    edges = [(marginals[0], joints[0]), (marginals[1], joints[0]), (marginals[1], joints[1]), (marginals[2], joints[1])]
    return FactorGraph(joints, marginals, edges)


MODELS = {
    "chow-liu": lambda: learned("chow-liu"),
    "exact": lambda: learned("exact"),
    "by hand": by_hand,
    "factor graph": factor_graph,
}


@pytest.mark.parametrize("name", MODELS)
def test_likelihoods_and_answers(name):
    model = MODELS[name]()
    network = mm.from_pomegranate(model)
    rows = states_of(network)
    agree(network, rows, likelihood(model, rows), 1e-4)
    check_marginal_map(network, lambda rows: likelihood(model, rows), 1e-4)


def test_its_own_prediction_is_by_variable():
    model = by_hand()
    best = mm.mpe(model)
    blank = torch.masked.MaskedTensor(torch.zeros(1, 4, dtype=torch.int64), mask=torch.zeros(1, 4, dtype=torch.bool))
    theirs = model.predict(blank).numpy()
    ours = np.array([[best.state[i] for i in range(4)]])
    values = likelihood(model, np.concatenate((ours, theirs)))
    assert values[0] >= values[1] - 1e-5
    print(f"pomegranate's predict() has log-likelihood {values[1]:.6f}, the most probable state {values[0]:.6f}")


def test_what_cannot_be_read_is_named():
    with pytest.raises(mm.MargmapError, match="a GeneralMixtureModel of pomegranate is no network"):
        mm.as_model(GeneralMixtureModel([Normal(), Normal()]))
    with pytest.raises(mm.MargmapError, match="this BayesianNetwork of pomegranate has no distributions: fit it first"):
        mm.as_model(BayesianNetwork(algorithm="chow-liu"))


def test_the_how_to_runs(tmp_path):
    howto.run("pomegranate", tmp_path)
