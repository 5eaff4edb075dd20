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
from margmap.learn.imputation import Imputed, codes_of, impute
from margmap.learn.latent_tree import learn_hclt
from margmap.learn.strudel_growth import Learned, PickEdge, PickVariable, Prior, learn_strudel
from margmap.learn.table import decode_column

try:
    from sklearn.base import BaseEstimator, DensityMixin, TransformerMixin, clone
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_feature_names_in, check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError(
        "the estimators need scikit-learn 1.6 or newer: pip install 'margmap[learn]'; "
        "margmap.learn.chow_liu, strudel, hclt and margmap.impute work without it"
    ) from error

__all__ = ["HCLT", "ChowLiu", "JointImputer", "Strudel"]

E = TypeVar("E", bound="_Density")


class _OnTables(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What estimators do with tables: frames with names and texts, arrays, sparse matrices, missing cells."""

    #: Whether rows may have missing cells when the estimator is fitted.
    _holes = False

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.positive_only = not self._holes
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._holes
        return tags

    def _checked(self, X: Any, holes: bool, **options: Any) -> Any:
        """What scikit-learn says of rows: a frame as it is, for its names and texts, and anything else as an array."""
        frame = _is_frame(X)
        finite: Any = False if frame else "allow-nan" if holes else True
        formats = ["csr", "csc"]
        texts = isinstance(X, np.ndarray) and X.dtype.kind in "OU"
        options["dtype"] = None if frame or texts else "numeric"
        checked = validate_data(self, X, accept_sparse=formats, ensure_all_finite=finite, **options)
        return X if frame else checked

    def _rows(self, X: Any) -> Any:
        """What a learner takes."""
        texts = isinstance(X, np.ndarray) and X.dtype.kind in "OU"
        return self._checked(X, self._holes, ensure_non_negative=not (_is_frame(X) or self._holes or texts))


class _Density(DensityMixin, _OnTables):  # type: ignore[misc]
    """What all estimators of densities do with a circuit once they have one."""

    circuit_: Circuit

    def score_samples(self, X: Any) -> FloatArray:
        """The log-likelihood of each row; a missing cell is summed out. The less likely, the more of an anomaly."""
        check_is_fitted(self)
        return log_likelihood(self.circuit_, self._codes(X))

    def score(self, X: Any, y: Any = None) -> float:
        """The mean log-likelihood of the rows."""
        return float(self.score_samples(X).mean())

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Rows drawn from the circuit, in the values of the table: a frame if the estimator was fitted on one.

        A number of a column in bins is the median of its bin.
        """
        check_is_fitted(self)
        seed = int(check_random_state(random_state).randint(1 << 31))
        drawn = sample(self.circuit_, n_samples, seed=seed)
        variables = self.circuit_.variables
        if not hasattr(self, "feature_names_in_") and not any(v.encoding or v.states for v in variables):
            return drawn
        columns = [decode_column(v, drawn[:, i], numbers=True) for i, v in enumerate(variables)]
        if not hasattr(self, "feature_names_in_"):
            kinds = {type(x) for column in columns for x in column[:1]}
            return np.column_stack(columns).astype(object if str in kinds else np.float64 if float in kinds else None)
        import pandas

        return pandas.DataFrame({v.name: c.tolist() for v, c in zip(variables, columns, strict=True)})

    @property
    def vtree_(self) -> Vtree:
        """The vtree that the circuit follows."""
        check_is_fitted(self)
        return vtree_of(self.circuit_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "circuit_")

    def _codes(self, X: Any) -> NDArray[Any]:
        """Rows as the codes of the circuit's variables; whatever it was not fitted on is refused."""
        checked = self._checked(X, True, reset=False)
        rows = checked.toarray() if hasattr(checked, "toarray") else checked
        try:
            return codes_of(self.circuit_, rows)
        except DataError as error:
            raise DataError(f"{error} (these are the values that the estimator was fitted on)") from None


def _is_frame(X: Any) -> bool:
    return hasattr(X, "iloc") and hasattr(X, "columns")


def _split(rows: Any, valid: Any, fraction: float, generator: Any) -> tuple[Any, Any]:
    """Training and validation rows: those given, or a part of the rows set aside at random."""
    if not 0 <= fraction < 1:
        raise DataError(f"validation_fraction must be from 0 and less than 1, not {fraction!r}")
    total = rows.shape[0]
    aside = int(total * fraction)
    if valid is not None or aside == 0:
        return rows, valid
    order = generator.permutation(total)
    take = rows.iloc.__getitem__ if hasattr(rows, "iloc") else rows.__getitem__
    return take(np.sort(order[aside:])), take(np.sort(order[:aside]))


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
        generator = check_random_state(self.random_state)
        seed = int(generator.randint(1 << 31))
        rows, X_valid = _split(rows, X_valid, self.validation_fraction, generator)
        options = {name: value for name, value in self.get_params().items() if name not in _OWN_OPTIONS}
        self.learned_: Learned = learn_strudel(rows, X_valid, seed=seed, **options)
        self.circuit_ = self.learned_.circuit
        return self


class HCLT(_Density):
    """:func:`margmap.learn.learn_hclt`, hidden Chow-Liu trees, as an estimator of densities; cells may be missing.

    A part of the rows, ``validation_fraction``, chosen by ``random_state``, decides when to stop, unless ``fit`` is
    given ``X_valid``. ``circuit_`` is the circuit, ``learned_`` tells how the run went.

    >>> from margmap.learn import HCLT
    >>> model = HCLT(latent=2, epochs=5).fit([[0, 0], [1, 1], [float("nan"), 1]])
    >>> model.score_samples([[1, float("nan")]]).shape
    (1,)
    """

    _holes = True

    def __init__(
        self,
        latent: int = 64,
        epochs: int = 30,
        batch: int | None = 128,
        pseudocount: float = 0.1,
        patience: int | None = 6,
        restarts: int = 1,
        leaves: Any = None,
        alpha: float = 1.0,
        time_limit: float | None = None,
        validation_fraction: float = 0.1,
        random_state: Any = 0,
    ) -> None:
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})

    def fit(self, X: Any, y: Any = None, X_valid: Any = None) -> HCLT:
        """Learn the circuit of the rows."""
        generator = check_random_state(self.random_state)
        seed = int(generator.randint(1 << 31))
        rows, X_valid = _split(self._rows(X), X_valid, self.validation_fraction, generator)
        options = {name: value for name, value in self.get_params().items() if name not in _OWN_OPTIONS}
        self.learned_: Learned = learn_hclt(rows, X_valid, seed=seed, **options)
        self.circuit_ = self.learned_.circuit
        return self


class JointImputer(TransformerMixin, _OnTables):  # type: ignore[misc]
    """:func:`margmap.impute` as a transformer: missing cells become their most likely combination, row by row.

    ``estimator`` learns the circuit; without one it is ``HCLT(latent=16)``. ``columns``, ``jobs`` and ``time_limit``
    are those of :func:`margmap.impute`. ``estimator_`` is the fitted estimator. :meth:`impute` also has the probability
    and the status of each row.

    >>> from margmap.learn import JointImputer
    >>> JointImputer().fit([[0, 0], [1, 1], [0, 0], [1, 1]]).transform([[float("nan"), 1.0]]).tolist()
    [[1.0, 1.0]]
    """

    _holes = True

    def __init__(
        self,
        estimator: Any = None,
        columns: Any = None,
        jobs: int = 1,
        time_limit: float | None = None,
    ) -> None:
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})

    def fit(self, X: Any, y: Any = None) -> JointImputer:
        """Learn the circuit of the rows."""
        rows = self._rows(X)
        self.estimator_ = (HCLT(latent=16) if self.estimator is None else clone(self.estimator)).fit(rows)
        return self

    def transform(self, X: Any) -> Any:
        """The rows with their missing cells filled in: a frame for a frame, otherwise an array."""
        return self.impute(X).table

    def impute(self, X: Any) -> Imputed:
        """The same with the probability and the status of each row."""
        check_is_fitted(self)
        checked = self._checked(X, True, reset=False)
        rows = checked.toarray() if hasattr(checked, "toarray") else checked
        options: dict[str, Any] = {"jobs": self.jobs, "time_limit": self.time_limit, "unknown": "missing"}
        return impute(self.estimator_.circuit_, rows, self.columns, **options)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the columns, which are those of the rows that the imputer was fitted on."""
        check_is_fitted(self)
        return _check_feature_names_in(self, input_features)  # type: ignore[no-any-return]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")
