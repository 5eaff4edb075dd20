"""scripts/fuzz.py: what it does before the first spoiled file. The readers themselves are in tests/fuzz."""

import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def test_the_warm_up_of_all_readers(monkeypatch):
    """No reader finds files of another one beside its own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import fuzz

    try:
        fuzz._warm_up([])
    finally:
        sys.modules.pop("fuzz", None)
