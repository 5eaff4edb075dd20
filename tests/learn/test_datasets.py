"""The twenty datasets: found in a folder, checked, downloaded."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
from margmap.learn import DATASETS, datasets, load_dataset

CONTENT = {"train": b"0,1\n1,1\n0,0\n", "valid": b"1,0\n", "test": b"0,0\n1,1\n"}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """A twenty-first dataset of a few bytes."""
    sums = tuple(hashlib.sha256(content).hexdigest() for content in CONTENT.values())
    monkeypatch.setitem(DATASETS, "tiny", datasets.Dataset("tiny", 2, (3, 1, 2), sums))
    return "tiny"


def fetch(address: str) -> bytes:
    return CONTENT[address.split(".")[-2]]


def test_there_are_twenty() -> None:
    assert len(DATASETS) == 20
    assert all(name == entry.name for name, entry in DATASETS.items())
    assert {len(s) for entry in DATASETS.values() for s in entry.sha256} == {64}
    assert DATASETS["ad"].variables == 1556


def test_the_shared_files_are_the_public_ones(shared) -> None:
    for name in ("nltcs", "ad"):
        entry = DATASETS[name]
        splits = load_dataset(name, shared / "debd")
        assert tuple(len(rows) for rows in splits) == entry.rows
        assert splits.train.shape[1] == entry.variables
        assert splits.train.max() == 1


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("own_folder", [True, False])
def test_layouts(tiny: str, packed: bool, own_folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / tiny if own_folder else tmp_path
    place.mkdir(exist_ok=True)
    for split, content in CONTENT.items():
        path = place / f"{tiny}.{split}.data{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(content) if packed else content.replace(b"\n", b"\r\n"))
    assert load_dataset(tiny, tmp_path).train.tolist() == [[0, 1], [1, 1], [0, 0]]
    monkeypatch.setenv("MARGMAP_DATA", str(tmp_path))
    assert load_dataset(tiny).valid.tolist() == [[1, 0]]
    assert datasets.present(tiny, tmp_path)


def test_download_writes_checked_files_once(tiny: str, tmp_path: Path) -> None:
    written = datasets.download(tiny, tmp_path, fetch)
    assert [path.name for path in written] == [f"tiny.{split}.data.gz" for split in CONTENT]
    assert load_dataset(tiny, tmp_path).test.tolist() == [[0, 0], [1, 1]]
    assert datasets.download(tiny, tmp_path, fetch) == []


def test_a_wrong_checksum_is_not_kept(tiny: str, tmp_path: Path) -> None:
    with pytest.raises(mm.DataError, match="checksum"):
        datasets.download(tiny, tmp_path, lambda address: fetch(address) + b"0,0\n")
    assert not list(tmp_path.rglob("*.gz"))
    datasets.download(tiny, tmp_path, fetch)
    path = tmp_path / tiny / "tiny.test.data.gz"
    path.write_bytes(gzip.compress(b"0,1\n1,1\n"))
    with pytest.raises(mm.FormatError, match="checksum differs"):
        load_dataset(tiny, tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(mm.FormatError, match="cannot be read"):
        load_dataset(tiny, tmp_path)


def test_without_a_network_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(mm.DataError, match=r"no network.*copy the files.*--data DIR or set MARGMAP_DATA"):
        datasets.download("nltcs", tmp_path)


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARGMAP_DATA", raising=False)
    with pytest.raises(mm.DataError, match="no folder of datasets"):
        load_dataset("nltcs")
    with pytest.raises(mm.DataError, match=r"no .*nltcs\.train\.data.*margmap datasets --download nltcs"):
        load_dataset("nltcs", tmp_path)
    with pytest.raises(mm.DataError, match="no dataset 'mnist': the twenty are"):
        load_dataset("mnist", tmp_path)


@pytest.mark.parametrize("content", [b"0,1\n2,1\n", b"0;1\n1;1\n", b"0,1\n1\n", b"0,1,1\n"])
def test_other_contents_are_refused(content: bytes) -> None:
    with pytest.raises(mm.DataError, match="not rows of"):
        datasets.parse_binary(content, 2)
    assert np.array_equal(datasets.parse_binary(b"0,1\n1,0", 2), [[0, 1], [1, 0]])
