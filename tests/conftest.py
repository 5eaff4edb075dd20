"""Shared fixtures, and hypothesis without deadlines: kernels compile on their first call."""

import functools
import os
from pathlib import Path

import pytest
import typer.testing
from hypothesis import HealthCheck, settings

# Tests run compiled kernels, but for those that choose otherwise; and no process compiles behind them.
os.environ.setdefault("MARGMAP_TIER", "compile")
os.environ["MARGMAP_BACKGROUND"] = "0"

# Typer's runner reads the signatures of all commands anew in every call, which takes longer than most commands.
typer.testing._get_command = functools.cache(typer.testing._get_command)

settings.register_profile(
    "margmap", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("margmap")


@pytest.fixture(scope="session")
def shared():
    """The folder of public circuits and data next to the repository."""
    path = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no shared data at {path}")
    return path


def pytest_collection_modifyitems(items):
    """Tests of a Dask cluster come last: it takes a twelfth of a core while it has nothing to do, until the end."""
    items.sort(key=lambda item: "dask_cluster" in item.nodeid or "dask_cluster" in getattr(item, "fixturenames", ()))


@pytest.fixture
def as_users_start_it(monkeypatch):
    """Processes that the test starts choose their tier themselves: a small question does without numba."""
    monkeypatch.setenv("MARGMAP_TIER", "auto")


@pytest.fixture(scope="session")
def dask_cluster():
    """The executor of a local Dask cluster with two workers."""
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    from margmap.distribute.executors import open_executor

    with open_executor(2, "local") as executor:
        yield executor
