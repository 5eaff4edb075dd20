"""What benchmarks/ablation.py switches off is still there, so that it and `make reproduce` run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_line_that_is_changed_stands_in_the_sources_once():
    """A method that was rewritten has its edits in the script rewritten, too."""
    script = ROOT / "benchmarks" / "ablation.py"
    done = subprocess.run([sys.executable, script, "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "every line to change is there" in done.stdout
