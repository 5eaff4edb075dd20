"""Pictures: ``margmap.plot.circuit``, ``network``, ``answer``, ``bounds``, ``compare``, and ``trace`` of iterations.

Every picture shows itself in a notebook, has a title and a text alternative, and is saved with ``picture.save(path)``.
Circuits and networks are drawn as SVG (or dot) without other programs. Everything else, and PNG and PDF, needs
matplotlib, which is imported when a figure is made; it comes with ``pip install 'margmap[plot]'``. No module here has
the name of a function, which would hide it.
"""

from __future__ import annotations

from margmap.plot.charts import answer, bounds, compare
from margmap.plot.circuits import circuit
from margmap.plot.iterations import FORMATS, read_trace, save, trace, trace_lines
from margmap.plot.networks import network
from margmap.plot.picture import Picture

__all__ = [
    "FORMATS",
    "Picture",
    "answer",
    "bounds",
    "circuit",
    "compare",
    "network",
    "read_trace",
    "save",
    "trace",
    "trace_lines",
]
