"""Models of SPFlow 0 itself, which computes in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import howto
import margmap as mm
from real import agree, check_marginal_map, states_of

pytest.importorskip("spn.structure.Base", reason="spflow 0 is not installed")

from spn.algorithms.Inference import log_likelihood
from spn.algorithms.LearningWrappers import learn_mspn, learn_parametric
from spn.algorithms.MPE import mpe
from spn.structure.Base import Context, Product, Sum, assign_ids
from spn.structure.leaves.cltree.CLTree import create_cltree_leaf
from spn.structure.leaves.cltree.Inference import add_cltree_inference_support
from spn.structure.leaves.parametric.Parametric import (
    Bernoulli,
    Categorical,
    CategoricalDictionary,
    Gaussian,
    Poisson,
)
from spn.structure.StatisticalTypes import MetaType

pytestmark = pytest.mark.filterwarnings("ignore")


def data(values=3, count=5, rows=600, seed=0):
    rng = np.random.default_rng(seed)
    np.random.seed(seed)  # noqa: NPY002 (SPFlow draws from it)
    made = rng.integers(0, values, (rows, count))
    made[:, 1] = (made[:, 0] + (rng.random(rows) < 0.2)) % values
    made[:, 3] = (made[:, 2] + (rng.random(rows) < 0.1)) % values
    return made.astype(float)


def likelihood(model, rows):
    return log_likelihood(model, np.asarray(rows, dtype=float)).ravel()


def histograms():
    rows = data()
    return learn_mspn(rows, Context(meta_types=[MetaType.DISCRETE] * 5).add_domains(rows), min_instances_slice=60)


def parametric():
    rows = data()
    rows[:, 4] %= 2
    context = Context(parametric_types=[Categorical] * 4 + [Bernoulli]).add_domains(rows)
    return learn_parametric(rows, context, min_instances_slice=200)


def by_hand():
    root = 0.4 * (Categorical([0.2, 0.3, 0.5], scope=0) * Bernoulli(0.7, scope=1)) + 0.6 * (
        Categorical([0.6, 0.3, 0.1], scope=0) * Bernoulli(0.1, scope=1)
    )
    other = 0.5 * (CategoricalDictionary({0: 0.25, 3: 0.75}, scope=2) * Bernoulli(0.2, scope=3)) + 0.5 * (
        CategoricalDictionary({1: 0.5, 2: 0.5}, scope=2) * Bernoulli(0.9, scope=3)
    )
    return root * other


@pytest.mark.parametrize("make", [histograms, parametric])
def test_likelihoods_and_answers(make):
    model = make()
    circuit = mm.from_spflow(model)
    rows = states_of(circuit)
    theirs = likelihood(model, rows)
    theirs[theirs < -1e300] = -np.inf  # what SPFlow says of a certain leaf that is contradicted
    agree(circuit, rows, theirs, 1e-9)
    check_marginal_map(model, lambda rows: likelihood(model, rows), 1e-8)


def test_by_hand():
    model = by_hand()
    circuit = mm.as_model(model)
    assert [variable.cardinality for variable in circuit.variables] == [3, 2, 4, 2]
    rows = states_of(circuit)
    agree(circuit, rows, likelihood(model, rows), 1e-9)


def test_chow_liu_leaves():
    rows = data(2)
    add_cltree_inference_support()
    context = Context(meta_types=[MetaType.BINARY] * 5).add_domains(rows)
    leaf = create_cltree_leaf(rows[:, [4, 0, 1, 3]].astype(int), context, [4, 0, 1, 3])
    model = Product([leaf, Bernoulli(0.3, scope=2)])
    model.scope = [0, 1, 2, 3, 4]
    assign_ids(model)
    circuit = mm.as_model(model)
    rows = states_of(circuit)
    agree(circuit, rows, log_likelihood(model, rows).ravel(), 1e-9)


def test_its_own_mpe_is_never_better():
    model = parametric()
    best = mm.mpe(model)
    theirs = mpe(model, np.full((1, 5), np.nan))
    ours = np.array([[best.state[i] for i in range(5)]])
    values = likelihood(model, np.concatenate((ours, theirs)))
    assert values[0] >= values[1] - 1e-12
    print(f"SPFlow's mpe() has log-likelihood {values[1]:.6f}, the most probable state {values[0]:.6f}")


def test_what_cannot_be_read_is_named():
    with pytest.raises(mm.MargmapError, match=r"Poisson leaf of SPFlow over variables \[0\] cannot be read"):
        mm.as_model(Poisson(2.0, scope=0))
    mixed = Sum([0.5, 0.5], [Gaussian(0.0, 1.0, scope=0), Bernoulli(0.5, scope=0)])
    mixed.scope = [0]
    with pytest.raises(mm.MargmapError, match="one is discrete and one continuous"):
        mm.as_model(mixed)
    loop = Sum([0.5, 0.5], [Bernoulli(0.5, scope=0), Bernoulli(0.1, scope=0)])
    loop.scope = [0]
    loop.children.append(loop)
    with pytest.raises(mm.MargmapError, match="a Sum lies below itself"):
        mm.as_model(loop)
    signed = Sum([1.5, -0.5], [Bernoulli(0.5, scope=0), Bernoulli(0.1, scope=0)])
    signed.scope = [0]
    with pytest.raises(mm.MargmapError, match="a Sum of SPFlow has a negative weight"):
        mm.as_model(signed)


def test_the_how_to_runs(tmp_path):
    howto.run("SPFlow 0", tmp_path)
