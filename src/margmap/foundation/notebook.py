"""A bar in Jupyter notebooks that shows both bounds closing while a question takes long."""

from __future__ import annotations

import math
import sys
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

from margmap.foundation.html import escaped
from margmap.foundation.progress import OnProgress, Progress
from margmap.foundation.wording import listed

#: Seconds before a bar is shown: most questions are answered by then.
SHOWN_AFTER = 0.5


def notebook_bar(on_progress: OnProgress | None) -> AbstractContextManager[OnProgress | None]:
    """Who is told of progress: ``on_progress`` if there is one, a bar in a notebook, elsewhere nobody.

    The bar goes when the block ends: the result says the same.
    """
    display = None if on_progress is not None else _display()
    return nullcontext(on_progress) if display is None else closing(Bar(display))


class Bar:
    """A bar that is filled as far as the gap between the bounds has closed since both were known."""

    def __init__(self, display: Any) -> None:
        self._display, self._handle = display, None
        self._first_gap = math.nan

    def __call__(self, now: Progress) -> None:
        """Show how far it is, once that has taken long enough to be worth it."""
        if math.isnan(self._first_gap) and math.isfinite(now.gap):
            self._first_gap = now.gap
        if now.seconds < SHOWN_AFTER:
            return
        shown = self.html(now)
        if self._handle is None:
            self._handle = self._display({"text/html": shown, "text/plain": ""}, raw=True, display_id=True)
        else:
            self._handle.update({"text/html": shown, "text/plain": ""}, raw=True)

    def close(self) -> None:
        """Take the bar away."""
        if self._handle is not None:
            self._handle.update({"text/html": "", "text/plain": ""}, raw=True)

    def html(self, now: Progress) -> str:
        """The bar, what is being done, and the bounds in words."""
        part = closed_part(now, self._first_gap)
        best = "no state yet" if now.state is None else f"best so far: {listed(now.state, 8)}"
        words = escaped(f"{now.seconds:.1f} s, {now.doing}: {bounds_text(now)}")
        return (
            f'<div><progress value="{part:.4f}" max="1" aria-label="how far the bounds have closed" '
            f'style="width: 16em; vertical-align: middle"></progress> {words}<br><small>{escaped(best)}</small></div>'
        )


def closed_part(now: Progress, first_gap: float) -> float:
    """Which part, from 0 to 1, of the gap that there was first is closed."""
    if not math.isfinite(now.gap) or math.isnan(first_gap):
        return 0.0
    return 1.0 if first_gap <= 0 else min(1.0, max(0.0, 1.0 - now.gap / first_gap))


def bounds_text(now: Progress) -> str:
    """Both bounds in one line, in nats."""
    if now.log_lower == -math.inf:
        return f"log p <= {now.log_upper:.6g}, no state yet" if now.log_upper < math.inf else "no bounds yet"
    return f"{now.log_lower:.6g} <= log p <= {now.log_upper:.6g}, gap {now.gap:.3g}"


def _display() -> Any:
    """IPython's ``display`` if this runs in a notebook's kernel; nothing is imported for it that is not there yet."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if type(shell).__name__ != "ZMQInteractiveShell":
        return None
    from IPython.display import display

    return display
