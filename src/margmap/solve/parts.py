"""Parts of a reduced circuit: ranges of nodes that do not depend on each other, and the top, which depends on them.

They come from the pieces that a large circuit is reduced in (:mod:`margmap.inference.pieces`). ``parts`` has the end of
the indicators and then the end of each part, in the order of the nodes; what comes after the last end is the top.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TypeVar, cast

from margmap.circuit import LongArray
from margmap.foundation.threads import at_once

T = TypeVar("T")


def upwards(
    parts: LongArray | None,
    nodes: int,
    work: Callable[[int, int], T],
    beside: Callable[[], None] | None = None,
) -> list[T]:
    """Do work on all nodes, each range of them after those that it depends on.

    ``beside`` is done at the same time as the parts: what goes over all nodes and would keep the other threads waiting.
    """
    if parts is None:
        return [work(0, nodes)]
    first, last = int(parts[0]), int(parts[-1])
    return [work(0, first), *_parts_at_once(parts, work, beside), work(last, nodes)]


def downwards(parts: LongArray, nodes: int, work: Callable[[int, int], T]) -> None:
    """Do work on all nodes, each range of them after those that depend on it."""
    work(int(parts[-1]), nodes)
    _parts_at_once(parts, work)
    work(0, int(parts[0]))


def _parts_at_once(
    parts: LongArray, work: Callable[[int, int], T], beside: Callable[[], None] | None = None
) -> list[T]:
    ranges = list(pairwise(parts.tolist()))
    calls, sizes = [partial(work, *one) for one in ranges], [end - begin for begin, end in ranges]
    if beside is None:
        return at_once(calls, sizes)
    both: list[Callable[[], T | None]] = [*calls, beside]
    return cast(list[T], at_once(both, [*sizes, sum(sizes)])[:-1])
