"""Models of deeprob-kit itself, which computes in single precision."""

from __future__ import annotations

import numpy as np
import pytest

import howto
import margmap as mm
from real import agree, check_marginal_map, states_of

pytest.importorskip("deeprob.spn.structure", reason="deeprob-kit is not installed")

from deeprob.spn.algorithms.inference import log_likelihood, mpe
from deeprob.spn.learning.wrappers import learn_estimator
from deeprob.spn.structure.cltree import BinaryCLT
from deeprob.spn.structure.leaf import Bernoulli, Categorical, Gaussian, Isotonic
from deeprob.spn.structure.node import Product, Sum, assign_ids

pytestmark = pytest.mark.filterwarnings("ignore")


def data(values=2, count=6, rows=600):
    rng = np.random.default_rng(0)
    made = rng.integers(0, values, (rows, count))
    made[:, 1] = (made[:, 0] + (rng.random(rows) < 0.2)) % values
    made[:, 4] = (made[:, 3] + (rng.random(rows) < 0.1)) % values
    return made.astype(np.float32)


def likelihood(model, rows):
    return log_likelihood(model, np.asarray(rows, dtype=np.float32)).ravel()


def bernoulli(**given):
    options = {"min_rows_slice": 64, "random_state": 1, "verbose": False, **given}
    return learn_estimator(data(), [Bernoulli] * 6, [[0, 1]] * 6, **options)


def categorical():
    domains = [[0, 1, 2]] * 5
    return learn_estimator(data(3, 5), [Categorical] * 5, domains, min_rows_slice=64, random_state=1, verbose=False)


def trees():
    """A mixture of two Chow-Liu trees over all variables."""
    rows = data()
    leaves = [BinaryCLT(list(range(6)), root=root) for root in (0, 4)]
    leaves[0].fit(rows[:300], [[0, 1]] * 6, alpha=0.1)
    leaves[1].fit(rows[200:], [[0, 1]] * 6, alpha=0.5)
    return assign_ids(Sum(children=leaves, weights=[0.25, 0.75]))


MODELS = {
    "bernoulli": bernoulli,
    "chow-liu leaves": lambda: bernoulli(learn_leaf="binary-clt"),
    "categorical": categorical,
    "trees": trees,
}


@pytest.mark.parametrize("name", MODELS)
def test_likelihoods_and_answers(name):
    model = MODELS[name]()
    circuit = mm.from_deeprob(model)
    rows = states_of(circuit)
    agree(circuit, rows, likelihood(model, rows), 1e-4)
    check_marginal_map(model, lambda rows: likelihood(model, rows), 1e-4)


def test_its_own_mpe_is_never_better():
    model = trees()
    best = mm.mpe(model)
    theirs = mpe(model, np.full((1, 6), np.nan, dtype=np.float32))
    ours = np.array([[best.state[i] for i in range(6)]])
    values = likelihood(model, np.concatenate((ours, theirs)))
    assert values[0] >= values[1] - 1e-5
    print(f"deeprob-kit's mpe() has log-likelihood {values[1]:.6f}, the most probable state {values[0]:.6f}")


def test_what_cannot_be_read_is_named():
    with pytest.raises(mm.MargmapError, match=r"Isotonic leaf of deeprob-kit over variables \[0\] cannot be read"):
        mm.as_model(Isotonic(0, [0.5, 0.5], [0.0, 1.0, 2.0]))
    with pytest.raises(mm.MargmapError, match="has no parameters: learn or set them first"):
        mm.as_model(BinaryCLT([0, 1]))
    mixed = Product(children=[Gaussian(0), Bernoulli(1)])
    assert mm.marginal_map(mixed, [1], {0: 0.5}).status == "optimal"
    with pytest.raises(mm.MargmapError, match="continuous"):
        mm.marginal_map(mixed, [0])


def test_the_how_to_runs(tmp_path):
    howto.run("deeprob-kit", tmp_path)
