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


def test_rows(shared, name):
    with gzip.open(shared / "debd" / name / f"{name}.test.data.gz", "rt") as lines:
        return np.array([line.split(",") for line in lines if line.strip()], dtype=np.int8)


test_rows.__test__ = False


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
    mean = mm.log_likelihood(psdd(name), test_rows(shared, name)).mean()
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
    rows = test_rows(shared, name)[:20].copy()
    rows[rng.random(rows.shape) < 0.4] = -1
    found = mm.log_likelihood(c, rows)
    for row, value in zip(rows, found):
        evidence = {name: int(x) for name, x in zip(c.names, row) if x >= 0}
        assert mm.log_marginal(c, evidence) == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("name", ["nltcs", "plants"])
def test_posteriors_are_ratios_of_marginals(shared, psdd, name):
    c = psdd(name)
    row = test_rows(shared, name)[3]
    evidence = {v: int(x) for v, x in zip(c.names[: len(row) // 2], row)}
    found = mm.posteriors(c, evidence)
    for v in c.names[len(row) // 2 :][:5]:
        expected = [np.exp(mm.log_conditional(c, {v: x}, evidence)) for x in (0, 1)]
        assert found[v] == pytest.approx(expected, rel=1e-9)


class TestMnist:
    @pytest.fixture(scope="class")
    def both(self, shared):
        return [mm.load(shared / "other" / f"mnist_cats8_181.{form}.gz") for form in ("jpc", "spn")]

    def columns(self, both):
        """Where each variable of the first file stands in the second."""
        names = [str(name) for name in both[1].names]
        return [names.index(str(name)) for name in both[0].names]

    def test_same_variables(self, both):
        assert sorted(map(str, both[0].names)) == sorted(map(str, both[1].names))
        assert len(both[0].names) == 784

    @pytest.mark.parametrize("sort", ["random", "sampled", "half missing"])
    def test_agree(self, both, sort):
        rng = np.random.default_rng(1)
        rows = rng.integers(2, size=(20, 784)) if sort == "random" else mm.sample(both[0], 20, seed=1)
        if sort == "half missing":
            rows = np.where(rng.random(rows.shape) < 0.5, -1, rows)
        other = np.full_like(rows, -1)
        other[:, self.columns(both)] = rows
        found = mm.log_likelihood(both[0], rows)
        assert np.isfinite(found).all()
        assert found == pytest.approx(mm.log_likelihood(both[1], other), rel=1e-5)

    def test_one_in_all(self, both):
        assert mm.log_marginal(both[0]) == pytest.approx(0, abs=1e-3)
        assert mm.log_marginal(both[1]) == pytest.approx(0, abs=1e-3)
