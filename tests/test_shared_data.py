"""Public circuits and data in ``../shared/data``: log-likelihoods that others have published or computed."""

import gzip

import numpy as np
import pytest

import margmap as mm

#: Mean test log-likelihood of the learned PSDD on each dataset, as many decimals as are known.
MEANS = {
    "nltcs": "-6.045",
    "msnbc": "-6.052",
    "kdd": "-2.158",
    "plants": "-13.354",
    "baudio": "-41.594",
    "bnetflix": "-58.152",
    "tretail": "-10.917",
    "pumsb_star": "-25.128",
    "book": "-35.668",
    "cwebkb": "-159.97",
    "c20ng": "-160.93",
    "ad": "-16.769",
}


def rows_of(shared, name):
    with gzip.open(shared / "debd" / name / f"{name}.test.data.gz", "rt") as lines:
        return np.array([line.split(",") for line in lines if line.strip()], dtype=np.int8)


@pytest.fixture(scope="module")
def psdd(shared):
    """Load a PSDD once."""
    loaded = {}

    def load(name):
        if name not in loaded:
            loaded[name] = mm.load(shared / "psdd" / f"{name}.psdd.gz")
        return loaded[name]

    return load


@pytest.mark.parametrize("name", MEANS)
def test_mean_log_likelihood(shared, psdd, name):
    mean = mm.log_likelihood(psdd(name), rows_of(shared, name)).mean()
    decimals = len(MEANS[name].split(".")[1])
    assert f"{mean:.{decimals}f}" == MEANS[name]


@pytest.mark.parametrize("name", ["nltcs", "plants", "ad"])
def test_properties_of_a_psdd(psdd, name):
    p = psdd(name).properties
    assert p.smooth
    assert p.decomposable
    assert p.structured
    assert p.normalised
    assert mm.log_marginal(psdd(name)) == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("name", ["nltcs", "plants", "c20ng"])
def test_log_marginal_is_log_likelihood_with_missing_entries(shared, psdd, name):
    c = psdd(name)
    rng = np.random.default_rng(0)
    rows = rows_of(shared, name)[:20].copy()
    rows[rng.random(rows.shape) < 0.4] = -1
    found = mm.log_likelihood(c, rows)
    for row, value in zip(rows, found, strict=True):
        evidence = {name: int(x) for name, x in zip(c.names, row, strict=True) if x >= 0}
        assert mm.log_marginal(c, evidence) == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("name", ["nltcs", "plants"])
def test_posteriors_are_ratios_of_marginals(shared, psdd, name):
    c = psdd(name)
    row = rows_of(shared, name)[3]
    evidence = {v: int(x) for v, x in zip(c.names[: len(row) // 2], row[: len(row) // 2], strict=True)}
    found = mm.posteriors(c, evidence)
    for v in c.names[len(row) // 2 :][:5]:
        expected = [np.exp(mm.log_conditional(c, {v: x}, evidence)) for x in (0, 1)]
        assert found.array(v) == pytest.approx(expected, rel=1e-9)


@pytest.fixture(scope="module")
def mnist(shared):
    """One circuit in two formats. The first numbers the pixels from 1, the second from 0; columns are in that order."""
    first, second = (mm.load(shared / "other" / f"mnist_cats8_181.{form}.gz") for form in ("jpc", "spn"))
    assert first.names == tuple(range(1, 785))
    assert second.names == tuple(range(784))
    return first, second


@pytest.mark.parametrize("sort", ["random", "sampled", "half missing"])
def test_mnist_files_agree(mnist, sort):
    first, second = mnist
    rng = np.random.default_rng(1)
    rows = rng.integers(2, size=(20, 784)) if sort == "random" else mm.sample(first, 20, seed=1)
    if sort == "half missing":
        rows = np.where(rng.random(rows.shape) < 0.5, -1, rows)
    found = mm.log_likelihood(first, rows)
    assert np.isfinite(found).all()
    assert len(set(found)) == 20
    assert found == pytest.approx(mm.log_likelihood(second, rows), rel=1e-5)


def test_mnist_files_sum_to_one(mnist):
    for circuit in mnist:
        assert mm.log_marginal(circuit) == pytest.approx(0, abs=1e-3)
