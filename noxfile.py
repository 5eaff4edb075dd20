"""The tests on every Python and on the oldest and the newest dependencies: ``nox --list`` says what there is."""

from __future__ import annotations

from pathlib import Path

import nox

PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["tests"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """The whole suite with the newest dependencies."""
    session.install("--editable", ".[dev]")
    suite(session)


@nox.session(python="3.10")
def oldest(session: nox.Session) -> None:
    """The whole suite with the oldest dependencies that pyproject.toml allows."""
    session.install("--editable", ".[dev]", "--constraint", "packaging/requirements/oldest.txt")
    suite(session)


def suite(session: nox.Session) -> None:
    """Machine code first, as ``make test`` does, kept apart from that of other environments; then the tests."""
    environment = {"NUMBA_CACHE_DIR": str(Path(session.virtualenv.location).resolve() / "machine-code")}
    session.run("margmap", "warmup", env=environment)
    session.run("python", "-m", "pytest", "-n", "2", *session.posargs, env=environment)


@nox.session(python="3.12")
def coverage(session: nox.Session) -> None:
    """The whole suite with branch coverage of the package without its kernels."""
    session.install("--editable", ".[dev]", "coverage[toml]>=7.10")
    session.run("python", "scripts/measure_coverage.py", *session.posargs)
