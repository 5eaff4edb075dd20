"""The blocks of docs/howto/other-libraries.md, which run with the real libraries and not in ``make test``."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "other-libraries.md"


def blocks(section: str) -> list[str]:
    """The Python blocks under a heading of the page."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"there is no section {section!r}"
    made = re.findall(r"^```python\n(.*?)^```$", found[1], re.MULTILINE | re.DOTALL)
    assert made, f"the section {section!r} has no Python block"
    return made


def run(section: str, folder: Path) -> None:
    """Run the blocks of a section one after another, in one namespace and a folder of their own."""
    import os

    before = os.getcwd()
    os.chdir(folder)
    try:
        namespace: dict[str, object] = {"__name__": "example"}
        for code in blocks(section):
            exec(compile(code, f"other-libraries.md, {section}", "exec"), namespace)
    finally:
        os.chdir(before)
