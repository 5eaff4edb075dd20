"""Circuits learned from data: trees, Strudel, latent trees, mixtures; imputation; and scikit-learn estimators.

>>> import margmap as mm
>>> circuit = mm.learn.strudel(rows, valid=more_rows)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from margmap.errors import NoSplitWarning as NoSplitWarning
    from margmap.learn.chow_liu_tree import chow_liu as chow_liu
    from margmap.learn.datasets import DATASETS as DATASETS
    from margmap.learn.datasets import load_dataset as load_dataset
    from margmap.learn.estimators import HCLT as HCLT
    from margmap.learn.estimators import ChowLiu as ChowLiu
    from margmap.learn.estimators import JointImputer as JointImputer
    from margmap.learn.estimators import Strudel as Strudel
    from margmap.learn.latent_tree import hclt as hclt
    from margmap.learn.latent_tree import learn_hclt as learn_hclt
    from margmap.learn.mixture_em import Mixture as Mixture
    from margmap.learn.mixture_em import learn_mixture as learn_mixture
    from margmap.learn.mixture_em import mixture as mixture
    from margmap.learn.strudel_growth import Growth as Growth
    from margmap.learn.strudel_growth import Learned as Learned
    from margmap.learn.strudel_growth import learn_strudel as learn_strudel
    from margmap.learn.strudel_growth import strudel as strudel
    from margmap.learn.table import Table as Table
    from margmap.learn.table import decode as decode
    from margmap.learn.table import encode as encode
    from margmap.learn.table import read_table as read_table
    from margmap.learn.tree_mixture import learn_trees as learn_trees
    from margmap.learn.tree_mixture import trees as trees

# Where each public name lives; no module has the name of a function, which would hide it.
_HOME = {
    "mixture_em": "Mixture learn_mixture mixture",
    "estimators": "HCLT ChowLiu JointImputer Strudel",
    "datasets": "DATASETS load_dataset",
    "strudel_growth": "Learned NoSplitWarning Growth learn_strudel strudel",
    "chow_liu_tree": "chow_liu",
    "latent_tree": "hclt learn_hclt",
    "tree_mixture": "learn_trees trees",
    "table": "Table decode encode read_table",
}
_MODULE = {name: module for module, names in _HOME.items() for name in names.split()}
__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'margmap.learn' has no attribute {name!r}")
    value = getattr(import_module(f"margmap.learn.{_MODULE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
