"""The cache of compiled kernels: nothing stale, nothing compiled twice."""

import os
import subprocess
import sys

import pytest

from margmap.foundation import jit

CALLEE = """
from typing import NamedTuple
from margmap.foundation.jit import kernel

FACTOR = {factor}

class Pair(NamedTuple):
    {first}: float
    {second}: float

@kernel
def inner(x):
    return x + {plus}
"""

CALLER = """
import margmap.foundation.jit
import pack.callee
from pack.callee import FACTOR, Pair
from margmap.foundation.jit import kernel

@kernel
def outer(x: int, pair: Pair) -> float:
    return middle(x) * FACTOR + pair.left

@kernel
def through_the_module(x):
    return pack.callee.inner(x)

@kernel
def middle(x):  # defined after the one that calls it
    return pack.callee.inner(x) if x > 0 else middle(x + 1)
"""

MAIN = """
from pack.caller import outer, through_the_module
from pack.callee import Pair
result = outer(1, Pair(100.0, 200.0)), through_the_module(1)
hits = sum(sum(k.stats.cache_hits.values()) for k in (outer, through_the_module))
print(*result, hits)
"""


@pytest.fixture
def run(tmp_path):
    """Write the two modules, with the callee as given, and run them in a new process."""
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "caller.py").write_text(CALLER)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)

    def run_with(factor=10, plus=1, first="left", second="right"):
        text = CALLEE.format(factor=factor, plus=plus, first=first, second=second)
        (package / "callee.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-c", MAIN], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
        )
        outer, module, hits = done.stdout.split()
        return float(outer), int(module), int(hits)

    return run_with


def test_a_changed_callee_in_another_file_is_seen(run):
    assert run() == (120, 2, 0)
    assert run() == (120, 2, 2), "and what did not change is not compiled again"
    assert run(plus=2) == (130, 3, 0)
    assert run(plus=2, factor=5) == (115, 3, 1), "the one that does not use the factor is as it was"
    assert run(plus=2, factor=5, first="right", second="left")[:2] == (215, 3)


def test_a_numba_with_other_internals_falls_back_to_its_own_stamp(monkeypatch):
    class Dispatcher:
        """Has none of the private names."""

    made = Dispatcher()
    monkeypatch.setattr(jit._numba(), "njit", lambda **_: lambda _: made)
    assert jit.kernel(lambda x: x).dispatcher is made


def test_a_cache_that_cannot_be_read_counts_as_empty(run, tmp_path):
    assert run() == (120, 2, 0)
    indexes = sorted((tmp_path / "pack" / "__pycache__").glob("*.nbi"))
    assert len(indexes) >= 2
    for index, content in zip(indexes, [b"", b"\x80"] * len(indexes), strict=False):
        index.write_bytes(content)
    assert run() == (120, 2, 0)
    for index in indexes:
        index.write_bytes(index.read_bytes().replace(b"pack.callee", b"gone.callee"))
    assert run()[:2] == (120, 2)
    assert run() == (120, 2, 2), "and it is written anew"
