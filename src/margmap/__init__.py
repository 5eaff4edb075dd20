"""Exact marginal MAP for probabilistic circuits.

>>> import margmap as mm
>>> circuit = mm.load("plants.psdd.gz")  # doctest: +SKIP
>>> mm.marginal_map(circuit, query=[3, 7], evidence={1: 0})  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from margmap import learn as learn
    from margmap import plot as plot
    from margmap.certificate.certify import certify as certify
    from margmap.certificate.file import Certificate as Certificate
    from margmap.certificate.verify import Verdict as Verdict
    from margmap.certificate.verify import verify as verify
    from margmap.circuit import Circuit as Circuit
    from margmap.circuit import Variable as Variable
    from margmap.circuit.formula import Expression as Expression
    from margmap.circuit.formula import bernoulli as bernoulli
    from margmap.circuit.formula import binomial as binomial
    from margmap.circuit.formula import categorical as categorical
    from margmap.circuit.formula import circuit_of as circuit_of
    from margmap.circuit.formula import gaussian as gaussian
    from margmap.circuit.formula import indicator as indicator
    from margmap.circuit.listing import Variables as Variables
    from margmap.circuit.listing import variables as variables
    from margmap.circuit.model import as_model as as_model
    from margmap.circuit.observation import none_of as none_of
    from margmap.circuit.properties import Properties as Properties
    from margmap.circuit.properties import check as check
    from margmap.circuit.transform import normalise as normalise
    from margmap.circuit.transform import smooth as smooth
    from margmap.circuit.vtree import Vtree as Vtree
    from margmap.circuit.vtree import vtree_of as vtree_of
    from margmap.errors import DataError as DataError
    from margmap.errors import FormatError as FormatError
    from margmap.errors import ImpossibleEvidenceError as ImpossibleEvidenceError
    from margmap.errors import LimitError as LimitError
    from margmap.errors import MargmapError as MargmapError
    from margmap.errors import MissingExtraError as MissingExtraError
    from margmap.errors import ModelError as ModelError
    from margmap.errors import QueryError as QueryError
    from margmap.errors import StructureError as StructureError
    from margmap.foundation.progress import Progress as Progress
    from margmap.inference.queries import Posteriors as Posteriors
    from margmap.inference.queries import log_conditional as log_conditional
    from margmap.inference.queries import log_likelihood as log_likelihood
    from margmap.inference.queries import log_marginal as log_marginal
    from margmap.inference.queries import posteriors as posteriors
    from margmap.inference.queries import sample as sample
    from margmap.interop.cirkit import from_cirkit as from_cirkit
    from margmap.interop.deeprob import from_deeprob as from_deeprob
    from margmap.interop.pgmpy import from_pgmpy as from_pgmpy
    from margmap.interop.pgmpy import to_pgmpy as to_pgmpy
    from margmap.interop.pomegranate import from_pomegranate as from_pomegranate
    from margmap.interop.problog import from_problog as from_problog
    from margmap.interop.pyagrum import from_pyagrum as from_pyagrum
    from margmap.interop.pyjuice import from_pyjuice as from_pyjuice
    from margmap.interop.pysdd import from_sdd as from_sdd
    from margmap.interop.spflow import from_spflow as from_spflow
    from margmap.io.formats import load as load
    from margmap.io.formats import load_circuit as load_circuit
    from margmap.io.formats import load_network as load_network
    from margmap.io.formats import load_vtree as load_vtree
    from margmap.io.formats import save as save
    from margmap.learn.imputation import Imputed as Imputed
    from margmap.learn.imputation import impute as impute
    from margmap.network.compile import compile as compile
    from margmap.network.network import Network as Network
    from margmap.solve import constraints as constraints
    from margmap.solve.approximate import Approximation as Approximation
    from margmap.solve.approximate import approximate as approximate
    from margmap.solve.batch import FailedRow as FailedRow
    from margmap.solve.batch import marginal_map_many as marginal_map_many
    from margmap.solve.decide import Decision as Decision
    from margmap.solve.decide import best_decision as best_decision
    from margmap.solve.explain import Explanation as Explanation
    from margmap.solve.explain import explain as explain
    from margmap.solve.marginal_map import marginal_map as marginal_map
    from margmap.solve.marginal_map import mpe as mpe
    from margmap.solve.reduce import Reduced as Reduced
    from margmap.solve.result import Result as Result
    from margmap.solve.sensitivity import Sensitivity as Sensitivity
    from margmap.solve.sensitivity import sensitivity as sensitivity
    from margmap.solve.session import Session as Session

__version__ = "0.2.0"

# Where each public name lives. They are imported when first used: `import margmap` itself loads nothing heavy.
_HOME = {
    "margmap.solve.batch": "FailedRow marginal_map_many",
    "margmap.interop.pgmpy": "from_pgmpy to_pgmpy",
    "margmap.interop.problog": "from_problog",
    "margmap.interop.pyagrum": "from_pyagrum",
    "margmap.interop.pysdd": "from_sdd",
    "margmap.interop.cirkit": "from_cirkit",
    "margmap.interop.deeprob": "from_deeprob",
    "margmap.interop.pomegranate": "from_pomegranate",
    "margmap.interop.pyjuice": "from_pyjuice",
    "margmap.interop.spflow": "from_spflow",
    "margmap.learn.imputation": "Imputed impute",
    "margmap.network.compile": "compile",
    "margmap.network.network": "Network",
    "margmap.certificate.verify": "Verdict verify",
    "margmap.certificate.file": "Certificate",
    "margmap.certificate.certify": "certify",
    "margmap.circuit.formula": "Expression bernoulli binomial categorical circuit_of gaussian indicator",
    "margmap.circuit": "Circuit Variable",
    "margmap.errors": (
        "DataError FormatError ImpossibleEvidenceError LimitError MargmapError MissingExtraError "
        "ModelError QueryError StructureError"
    ),
    "margmap.circuit.listing": "Variables variables",
    "margmap.circuit.model": "as_model",
    "margmap.circuit.observation": "none_of",
    "margmap.io.formats": "load load_circuit load_network load_vtree save",
    "margmap.inference.queries": "Posteriors log_conditional log_likelihood log_marginal posteriors sample",
    "margmap.solve.reduce": "Reduced",
    "margmap.solve.marginal_map": "marginal_map mpe",
    "margmap.solve.approximate": "Approximation approximate",
    "margmap.solve.result": "Result",
    "margmap.solve.session": "Session",
    "margmap.solve.sensitivity": "Sensitivity sensitivity",
    "margmap.solve.decide": "Decision best_decision",
    "margmap.solve.explain": "Explanation explain",
    "margmap.foundation.progress": "Progress",
    "margmap.circuit.properties": "Properties check",
    "margmap.circuit.transform": "normalise smooth",
    "margmap.circuit.vtree": "Vtree vtree_of",
}
# Modules that are used by their own name, such as `margmap.plot.trace`.
_SUBMODULES = {"constraints": "margmap.solve.constraints", "learn": "margmap.learn", "plot": "margmap.plot"}
_MODULE = {name: module for module, names in _HOME.items() for name in names.split()}
__all__ = sorted(_MODULE)


if not TYPE_CHECKING:  # to a type checker a misspelt name is an error

    def __getattr__(name: str) -> Any:
        if name in _SUBMODULES:
            module = globals()[name] = import_module(_SUBMODULES[name])
            return module
        if name not in _MODULE:
            raise AttributeError(f"module 'margmap' has no attribute {name!r}")
        value = getattr(import_module(_MODULE[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*globals(), *_SUBMODULES, *__all__]
