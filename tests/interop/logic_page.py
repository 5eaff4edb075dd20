"""The blocks of the how-to for libraries of logic and of networks."""

from __future__ import annotations

from pathlib import Path

import howto

_OWN = Path(__file__).resolve().parents[2] / "docs" / "howto" / "other-libraries-logic.md"


def run(section: str, folder: Path, monkeypatch) -> None:
    """Run the blocks of a section, from the page of its own where there still is one."""
    if _OWN.exists():
        monkeypatch.setattr(howto, "PAGE", _OWN)
    howto.run(section, folder)
