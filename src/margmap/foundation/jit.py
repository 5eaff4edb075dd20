"""How kernels are compiled: numba, cached on disk, one place for the flags."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba
from numba.core import event

from margmap.foundation.interrupts import held

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile ``function`` on first use and keep the machine code beside the source (or in numba's user cache).

    Numba trusts what it kept as long as the function's own file is the same, although the machine code has that of
    other files in it. Its stamp of the file is replaced by one of all that went in.

    Ctrl-C waits while numba looks at a kernel's arguments, compiles it or loads it, and takes effect when that is done.
    """
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    try:
        # What numba's compiled part calls Python for.
        compiled._compile_for_args = _uninterrupted(compiled._compile_for_args)
        compiled.typeof_pyval = _uninterrupted(compiled.typeof_pyval)
        index = compiled._cache._cache_file
        index._source_stamp = _Stamp(index._source_stamp, cast(FunctionType, function))
        index._load_index = _readable(index._load_index)
    except AttributeError:  # another numba, or none at all (NUMBA_DISABLE_JIT): its own stamp must do
        pass
    return cast(F, compiled)


def _uninterrupted(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def uninterrupted(*args: Any, **kwargs: Any) -> Any:
        with held():
            return function(*args, **kwargs)

    return uninterrupted


def _readable(load: Callable[[], dict[Any, Any]]) -> Callable[[], dict[Any, Any]]:
    """An index that cannot be read counts as empty: one that is torn, or that names modules of an older version."""

    @functools.wraps(load)
    def loaded() -> dict[Any, Any]:
        try:
            return load()
        except Exception:
            return {}

    return loaded


class _Stamp:
    """Equal to what a kernel's stamp was saved as if the kernel, and all that it uses, are as they were then.

    Worked out when first compared or saved, because a kernel may call one that is defined after it.
    """

    def __init__(self, own: object, function: FunctionType) -> None:
        self._own, self._function = own, function

    def __eq__(self, other: object) -> bool:
        return self._digest == (other._digest if isinstance(other, _Stamp) else other)

    __hash__ = None  # type: ignore[assignment]  # as long as its value is not known

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self._digest,)

    @cached_property
    def _digest(self) -> str:
        inputs, seen, todo = set(), {self._function}, [self]
        while todo:
            stamp = todo.pop()
            function = stamp._function
            inputs.add((function.__module__, function.__qualname__, repr(stamp._own)))
            for name, value in stamp._globals():
                if isinstance(value, int | float | str):
                    inputs.add((function.__module__, name, repr(value)))
                elif isinstance(value, type) and hasattr(value, "_fields"):
                    inputs.add((function.__module__, name, repr(value._fields)))
                elif (called := _stamp_of(value)) and called._function not in seen:
                    seen.add(called._function)
                    todo.append(called)
        return hashlib.sha256(repr(sorted(inputs)).encode()).hexdigest()

    def _globals(self) -> Iterator[tuple[str, Any]]:
        """Every global that the function mentions, as a name, as a module's name, or as the type of an argument."""
        names = {str(hint) for hint in self._function.__annotations__.values()}
        codes = [self._function.__code__]
        while codes:
            code = codes.pop()
            names.update(code.co_names)
            codes.extend(inner for inner in code.co_consts if isinstance(inner, CodeType))
        known = self._function.__globals__
        places = [known, *(vars(known[name]) for name in names if isinstance(known.get(name), ModuleType))]
        for place in places:
            for name in names & place.keys():
                yield name, place[name]


def _stamp_of(value: object) -> _Stamp | None:
    cache = getattr(value, "_cache", None)
    stamp = getattr(getattr(cache, "_cache_file", None), "_source_stamp", None)
    return stamp if isinstance(stamp, _Stamp) else None


class _CompileListener(event.Listener):
    """Calls ``started`` when a real compilation (not a load from disk) begins and ``ended`` when the last one ends."""

    def __init__(self, started: Callable[[], None], ended: Callable[[], None]) -> None:
        self._started, self._ended, self._depth = started, ended, 0

    def on_start(self, _event: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._started()

    def on_end(self, _event: Any) -> None:
        if self._depth == 0:  # another listener refused the start before this one heard of it
            return
        self._depth -= 1
        if self._depth == 0:
            self._ended()


@contextmanager
def on_compile(started: Callable[[], None], ended: Callable[[], None]) -> Iterator[None]:
    """Report the compilation of kernels inside the block, for a spinner that says why the first run takes longer."""
    listener = _CompileListener(started, ended)
    event.register("numba:compile", listener)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)  # type: ignore[no-untyped-call]
