"""Spoiled files and raw bytes for every reader, and the corpus of inputs that once were trouble.

``scripts/fuzz.py`` does the same by the hundred thousand.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzzing import READERS, attempt, fresh_input, use

CORPUS = Path(__file__).parent / "corpus"
QUICK = settings(derandomize=True, database=None, deadline=None, max_examples=150)
EVERY_READER = pytest.mark.parametrize("name", list(READERS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def file_of(folder: Path, name: str, data: bytes) -> Path:
    # A name of its own: beside input.sdd, input.vtree would be its vtree.
    path = folder / f"{name}.{READERS[name].suffix}"
    path.write_bytes(data)
    return path


@EVERY_READER
def test_valid_files_are_read_and_usable(name: str, folder: Path) -> None:
    for seed in READERS[name].seeds:
        value, error = attempt(name, file_of(folder, name, seed))
        assert error is None
        use(value, folder)


@EVERY_READER
@QUICK
@given(seed=st.integers(0, 2**32))
def test_spoiled_files(name: str, folder: Path, seed: int) -> None:
    attempt(name, file_of(folder, name, fresh_input(random.Random(seed), name)))


@EVERY_READER
@QUICK
@given(data=st.binary(max_size=200))
def test_raw_bytes(name: str, folder: Path, data: bytes) -> None:
    attempt(name, file_of(folder, name, data))


@pytest.mark.parametrize(
    "name", ["psdd", "jpc", "spn", "ac", "vtree", "json", "mmz", "nnf", "d4", "sdd", "bif", "uai", "xmlbif"]
)
def test_what_is_accepted_can_be_used(name: str, folder: Path) -> None:
    rng = random.Random(f"use {name}")
    used = 0
    while used < 12:
        value, error = attempt(name, file_of(folder, name, fresh_input(rng, name)))
        if error is None:
            use(value, folder)
            used += 1


@pytest.mark.parametrize(
    ("name", "file"),
    [(folder.name, file.name) for folder in sorted(CORPUS.iterdir()) for file in sorted(folder.iterdir())],
)
def test_corpus(name: str, file: str, folder: Path) -> None:
    value, error = attempt(name, file_of(folder, name, (CORPUS / name / file).read_bytes()))
    if error is None:
        use(value, folder)


def test_every_reader_has_a_corpus() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(READERS)
