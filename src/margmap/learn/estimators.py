"""The learners as scikit-learn estimators. scikit-learn comes with ``pip install 'margmap[learn]'``."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from margmap.circuit import Circuit, FloatArray
from margmap.circuit.vtree import Vtree, vtree_of
from margmap.errors import DataError, MissingExtraError
from margmap.inference.queries import log_likelihood, sample
from margmap.learn.chow_liu_tree import Join, chow_liu
from margmap.learn.strudel_growth import Learned, PickEdge, PickVariable, Prior, learn_strudel

try:
    from sklearn.base import BaseEstimator, DensityMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError(
        "the estimators need scikit-learn 1.6 or newer: pip install 'margmap[learn]'; "
        "margmap.learn.chow_liu and margmap.learn.strudel work without it"
    ) from error

__all__ = ["ChowLiu", "Strudel"]

E = TypeVar("E", bound="_Density")


class _Density(DensityMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What both estimators do with a circuit once they have one."""

    circuit_: Circuit

    def score_samples(self, X: Any) -> FloatArray:
        """The log-likelihood of each row."""
        check_is_fitted(self)
        return log_likelihood(self.circuit_, self._codes(X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> NDArray[np.int32]:
        """Rows drawn from the circuit."""
        check_is_fitted(self)
        seed = int(check_random_state(random_state).randint(1 << 31))
        return sample(self.circuit_, n_samples, seed=seed)

    @property
    def vtree_(self) -> Vtree:
        """The vtree that the circuit follows."""
        check_is_fitted(self)
        return vtree_of(self.circuit_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "circuit_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.positive_only = True
        tags.input_tags.sparse = True
        return tags

    def _checked(self, X: Any, **options: Any) -> Any:
        """What scikit-learn says of rows, which may be a frame with names and texts."""
        frame = _is_frame(X)
        dtype = None if frame else "numeric"
        formats = ["csr", "csc"]
        return validate_data(self, X, dtype=dtype, accept_sparse=formats, ensure_all_finite=not frame, **options)

    def _rows(self, X: Any) -> Any:
        """What a learner takes: a frame as it is, for its names and texts, and anything else as a checked array."""
        checked = self._checked(X, ensure_non_negative=not _is_frame(X))
        return X if _is_frame(X) else checked

    def _codes(self, X: Any) -> NDArray[Any]:
        """Rows of numbers from 0, checked against the variables of the circuit."""
        checked = self._checked(X, reset=False)
        rows = checked.toarray() if hasattr(checked, "toarray") else checked
        if _is_frame(X):
            columns = ((v, X.iloc[:, i]) for i, v in enumerate(self.circuit_.variables))
            rows = np.column_stack([list(map(v.code, column)) if v.states else column for v, column in columns])
        cardinality = self.circuit_.cardinality
        bad = ~((rows >= 0) & (rows < cardinality) & (rows == np.floor(rows)))
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise DataError(
                f"row {row}, column {column} (counted from 0): {rows[row, column]} is not a value from 0 to "
                f"{int(cardinality[column]) - 1}, which the estimator was fitted on"
            )
        return np.asarray(rows)


def _is_frame(X: Any) -> bool:
    return hasattr(X, "iloc") and hasattr(X, "columns")


class ChowLiu(_Density):
    """:func:`margmap.learn.chow_liu` as an estimator of densities; ``circuit_`` is the circuit.

    >>> from margmap.learn import ChowLiu
    >>> ChowLiu().fit([[0, 0], [1, 1], [1, 1]]).circuit_.names
    (1, 2)
    """

    def __init__(self, alpha: float = 1.0, pseudocount: float = 1.0, join: Join = "balanced") -> None:
        self.alpha, self.pseudocount, self.join = alpha, pseudocount, join

    def fit(self, X: Any, y: Any = None) -> ChowLiu:
        """Learn the circuit of the rows."""
        self.circuit_ = chow_liu(self._rows(X), **self.get_params())
        return self


# The options of the estimator that are not options of the learner.
_OWN_OPTIONS = ("validation_fraction", "random_state")


class Strudel(_Density):
    """:func:`margmap.learn.learn_strudel` as an estimator of densities.

    A part of the rows, ``validation_fraction``, chosen by ``random_state``, decides when to stop, unless ``fit`` is
    given ``X_valid``. ``circuit_`` is the circuit, ``learned_`` tells how the run went.
    """

    def __init__(
        self,
        time_limit: float | None = None,
        max_edges: int | None = None,
        iterations: int | None = None,
        patience: int | None = 1000,
        validation_fraction: float = 0.1,
        pick_edge: PickEdge = "eFLOW",
        pick_variable: PickVariable = "vMI",
        tries: int = 8,
        min_gain: float | None = 0.0,
        depth: int = 1,
        alpha: float = 1.0,
        pseudocount: float = 1.0,
        prior: Prior = "parent",
        strength: float = 10.0,
        random_state: Any = 0,
    ) -> None:
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})

    def fit(self, X: Any, y: Any = None, X_valid: Any = None) -> Strudel:
        """Learn the circuit of the rows."""
        rows = self._rows(X)
        if not 0 <= self.validation_fraction < 1:
            raise DataError(f"validation_fraction must be from 0 and less than 1, not {self.validation_fraction!r}")
        generator = check_random_state(self.random_state)
        seed = int(generator.randint(1 << 31))
        total = rows.shape[0]
        aside = int(total * self.validation_fraction)
        if X_valid is None and aside > 0:
            order = generator.permutation(total)
            take = rows.iloc.__getitem__ if hasattr(rows, "iloc") else rows.__getitem__
            rows, X_valid = take(np.sort(order[aside:])), take(np.sort(order[:aside]))
        options = {name: value for name, value in self.get_params().items() if name not in _OWN_OPTIONS}
        self.learned_: Learned = learn_strudel(rows, X_valid, seed=seed, **options)
        self.circuit_ = self.learned_.circuit
        return self
