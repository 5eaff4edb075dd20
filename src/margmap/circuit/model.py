"""What counts as a model: circuits, networks, and the models of other libraries.

A model of another library is recognised by the package that its class comes from, so that nothing is imported to look.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from margmap.circuit.circuit import Circuit
from margmap.circuit.variable import Named
from margmap.errors import ModelError

if TYPE_CHECKING:
    from margmap.network.network import Network

#: The libraries whose models are understood: the package of their classes, and the module and function that read them.
LIBRARIES: dict[str, tuple[str, str]] = {
    "pgmpy": ("margmap.interop.pgmpy", "from_pgmpy"),
    "problog": ("margmap.interop.problog", "from_problog"),
    "pyagrum": ("margmap.interop.pyagrum", "from_pyagrum"),
    "pyAgrum": ("margmap.interop.pyagrum", "from_pyagrum"),
    "pysdd": ("margmap.interop.pysdd", "from_sdd"),
    "pyjuice": ("margmap.interop.pyjuice", "from_pyjuice"),
    "cirkit": ("margmap.interop.cirkit", "from_cirkit"),
    "spflow": ("margmap.interop.spflow", "from_spflow"),
    "spn": ("margmap.interop.spflow", "from_spflow"),  # SPFlow before version 1
    "deeprob": ("margmap.interop.deeprob", "from_deeprob"),
    "pomegranate": ("margmap.interop.pomegranate", "from_pomegranate"),
}


def as_model(model: object) -> Circuit | Network:
    """The circuit or network that an object is or stands for.

    A :class:`Circuit` and a :class:`Network` are returned as they are. Models of the libraries in ``LIBRARIES`` become
    circuits or networks, with the parameters that they have now. Every function that asks a model takes what this
    takes; to ask many questions, call this once and keep what it returns. Anything else is a :class:`ModelError` that
    says what to do.
    """
    if isinstance(model, Named):
        return cast("Circuit | Network", model)
    read = _reader(model)
    if read is None:
        raise _refused(model)
    return read(model)


def as_circuit(model: object, purpose: str) -> Circuit:
    """The circuit that an object is; ``purpose`` says in the error what needs one."""
    found = as_model(model)
    if not isinstance(found, Circuit):
        raise ModelError(f"{purpose} a circuit, and this is a network: make a circuit of it with margmap.compile")
    return found


def as_network(model: object) -> Network:
    """The network that an object is or stands for."""
    found = as_model(model)
    if isinstance(found, Circuit):
        raise ModelError("this is a circuit already: only a network is compiled")
    return found


def _reader(model: object) -> Callable[[Any], Circuit | Network] | None:
    """What reads a model of another library; None if it comes from none that is known."""
    if isinstance(model, dict) and "model" in model:  # bnlearn keeps a network of pgmpy so
        return _reader(model["model"])
    for base in type(model).__mro__:
        package = base.__module__.partition(".")[0]
        if package in LIBRARIES:
            function = LIBRARIES[package][1]
            read: Callable[[Any], Circuit | Network] = getattr(import_module(LIBRARIES[package][0]), function)
            return read
    return None


def _refused(model: object) -> ModelError:
    kind = type(model)
    named = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(model, str | PathLike):
        shown = repr(str(model))
        hint = "read a file with margmap.load (circuits) or margmap.load_network (networks) first"
        named = f"{named} ({shown if len(shown) <= 60 else shown[:60] + '...'})"
    elif kind.__module__ == "margmap.circuit.formula":
        hint = "make a circuit of a formula with margmap.circuit_of"
    elif hasattr(model, "circuit_"):
        hint = "a fitted estimator has its circuit in .circuit_"
    elif hasattr(model, "to_numpy") or hasattr(model, "__array__") or isinstance(model, list | tuple):
        hint = "rows are data, not a model: learn a circuit from them with margmap.learn.strudel or chow_liu"
    elif isinstance(model, type):
        hint = "this is a class: give one of its objects"
    else:
        hint = f"give a Circuit, a Network or a model of {', '.join(LIBRARIES)}"
    return ModelError(f"an object of type {named} is no model: {hint}")
