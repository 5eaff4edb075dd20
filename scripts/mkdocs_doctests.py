"""Examples in docstrings, lines that begin with ``>>>``, shown as code on the documentation site.

The reader of docstrings that the site uses knows no examples, and Markdown takes ``>>>`` for a quotation. This
extension puts such lines, and the output below them, into a fenced block (``extensions`` in mkdocs.yml).
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*?(?=\n[ \t]*\n|\Z)", flags=re.MULTILINE | re.DOTALL)


class Doctests(griffe.Extension):
    """Fences around the examples of every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """A docstring with its examples in fences.

    >>> print(fenced("One.\\n\\n>>> 1 + 1\\n2"))
    One.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
