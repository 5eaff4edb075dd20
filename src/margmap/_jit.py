"""How kernels are compiled: numba, cached on disk, one place for the flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile ``function`` on first use and keep the machine code beside the source (or in numba's user cache)."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


class _CompileListener(event.Listener):
    """Calls ``started`` when a real compilation (not a load from disk) begins and ``ended`` when the last one ends."""

    def __init__(self, started: Callable[[], None], ended: Callable[[], None]) -> None:
        self._started, self._ended, self._depth = started, ended, 0

    def on_start(self, _event: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._started()

    def on_end(self, _event: Any) -> None:
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
