"""The scikit-learn estimators."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import margmap as mm
from rows_for_learning import tangled

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from margmap.learn import ChowLiu, Strudel, chow_liu


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([ChowLiu(), Strudel(iterations=5)])
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


@pytest.mark.parametrize("estimator", [ChowLiu(), Strudel(iterations=10)])
def test_fit_score_and_sample(estimator) -> None:
    rows = tangled(200, 5, seed=1)
    assert estimator.fit(rows) is estimator
    circuit = estimator.circuit_
    assert circuit.properties[:5] == (True,) * 5
    assert estimator.score_samples(rows) == pytest.approx(mm.log_likelihood(circuit, rows))
    assert estimator.score(rows) == pytest.approx(mm.log_likelihood(circuit, rows).mean())
    assert estimator.score(sparse.csr_matrix(rows)) == pytest.approx(estimator.score(rows))
    drawn = estimator.sample(50, random_state=3)
    assert drawn.shape == (50, 5)
    assert np.array_equal(drawn, estimator.sample(50, random_state=3))
    assert set(estimator.vtree_.variables) == set(circuit.names)
    with pytest.raises(mm.DataError, match="fitted on"):
        estimator.score(rows + 1)


def test_the_estimator_is_the_function() -> None:
    rows = tangled(100, 5, seed=2)
    assert np.array_equal(ChowLiu(alpha=0.5).fit(rows).circuit_.log_weight, chow_liu(rows, alpha=0.5).log_weight)


def test_validation_rows_are_split_off_or_given() -> None:
    rows = tangled(300, 6, seed=3)
    split = Strudel(random_state=1).fit(rows)
    assert np.isfinite(split.learned_.best.valid)
    assert np.isnan(Strudel(validation_fraction=0).fit(rows).learned_.best.valid)
    given = Strudel().fit(rows[:200], X_valid=rows[200:])
    assert given.learned_.best.valid == pytest.approx(given.score(rows[200:]))
    with pytest.raises(mm.DataError, match="validation_fraction"):
        Strudel(validation_fraction=1.0).fit(rows)


def test_inside_scikit_learn() -> None:
    rows = tangled(150, 4, seed=4)
    assert cross_val_score(ChowLiu(), rows, cv=3).shape == (3,)
    search = GridSearchCV(Strudel(iterations=5), {"strength": [1.0, 10.0]}, cv=2).fit(rows)
    assert search.best_params_["strength"] in (1.0, 10.0)


def test_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"rain": [0, 1, 1, 0] * 5, "mood": ["good", "bad", "bad", "good"] * 5})
    for estimator in (ChowLiu(), Strudel(iterations=3)):
        estimator.fit(frame)
        assert estimator.circuit_.names == ("rain", "mood")
        assert list(estimator.feature_names_in_) == ["rain", "mood"]
        assert np.exp(estimator.score_samples(frame)).sum() > 5
        with pytest.raises(mm.QueryError, match="no state 'so so'"):
            estimator.score(frame.assign(mood="so so"))


def test_without_scikit_learn_only_the_estimators_are_missing() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import margmap as mm\n"
        "mm.learn.chow_liu([[0, 1]])\n"
        "try:\n    mm.learn.Strudel\nexcept mm.MissingExtraError as error:\n    print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'margmap[learn]'" in run.stdout
