"""Choosing a format, gzip, broken files, and saving all or nothing."""

from __future__ import annotations

import gzip
import os
import stat
from pathlib import Path

import pytest

from margmap.circuit import GAUSSIAN, INDICATOR, Circuit, Parts, Variable, assemble
from margmap.circuit.vtree import Vtree
from margmap.errors import FormatError
from margmap.io import files
from margmap.io.formats import FORMATS, load, load_circuit, load_vtree, save

PSDD = "psdd 3\nL 0 0 1\nT 1 2 2 -0.5\nD 2 1 1 0 1 0.0\n"
NETWORKS = ("bif", "uai", "xmlbif", "bifxml", "xml", "xdsl", "dsl", "net")
VTREE = "vtree 3\nL 0 1\nL 2 2\nI 1 0 2\n"


@pytest.fixture
def psdd(tmp_path: Path) -> Path:
    path = tmp_path / "a.psdd"
    path.write_text(PSDD)
    return path


def gaussian_circuit() -> Circuit:
    parts = Parts.new()
    parts.product([parts.leaf(INDICATOR, 0, [1.0]), parts.leaf(GAUSSIAN, 1, [0.25, 2.0])])
    return assemble([Variable("d"), Variable("x", 0)], parts)


def test_load_by_suffix_plain_and_gzipped(psdd: Path) -> None:
    packed = psdd.with_name("b.PSDD.gz")
    packed.write_bytes(gzip.compress(PSDD.encode()))
    for path in (psdd, str(psdd), packed):
        circuit = load_circuit(path)
        assert circuit.names == (1, 2)
        assert circuit.num_nodes == 3


def test_gzip_is_known_by_content(tmp_path: Path) -> None:
    unmarked, lying = tmp_path / "a.psdd", tmp_path / "b.psdd.gz"
    unmarked.write_bytes(gzip.compress(PSDD.encode()))
    lying.write_text(PSDD)
    assert load_circuit(unmarked).num_nodes == load_circuit(lying).num_nodes == 3


def test_windows_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.psdd"
    path.write_bytes(b"\xef\xbb\xbf" + PSDD.replace("\n", "\r\n").encode())
    assert load_circuit(path).num_nodes == 3


def test_format_overrides_suffix(tmp_path: Path) -> None:
    path = tmp_path / "circuit.txt"
    path.write_text(PSDD)
    assert load(path, format="psdd").num_nodes == 3
    save(load(path, "psdd"), tmp_path / "again.dat", format="json")
    assert load(tmp_path / "again.dat", format="json").num_nodes == 3
    with pytest.raises(FormatError, match=r"unknown format 'cnf'.*psdd"):
        load(path, format="cnf")


@pytest.mark.parametrize("name", ["circuit.txt", "circuit", "circuit.gz"])
def test_unknown_suffix(tmp_path: Path, name: str) -> None:
    with pytest.raises(FormatError, match=r"circuit.*unknown suffix.*\.psdd.*\.json.*format= in Python, --format"):
        load(tmp_path / name)


def test_kinds_of_content(tmp_path: Path, psdd: Path) -> None:
    path = tmp_path / "v.vtree"
    path.write_text(VTREE)
    assert isinstance(load_vtree(path), Vtree)
    with pytest.raises(FormatError, match="this is a vtree"):
        load_circuit(path)
    with pytest.raises(FormatError, match="this is a circuit"):
        load_vtree(psdd)
    with pytest.raises(FormatError, match="a vtree cannot be written as psdd"):
        save(load_vtree(path), tmp_path / "x.psdd")
    with pytest.raises(FormatError, match="vtree_of"):
        save(load_circuit(psdd), tmp_path / "x.vtree")


def test_only_a_file_of_the_same_kind_is_suggested(tmp_path: Path) -> None:
    for name in ("noxfile.py", "weather.psdd.gz", "weather.json"):
        (tmp_path / name).touch()
    for wrong, meant in (("wether.psdd", "weather.psdd.gz"), ("wether.json", "weather.json")):
        with pytest.raises(FormatError, match=f"there is no such file: did you mean '{meant}'"):
            load(tmp_path / wrong)
    with pytest.raises(FormatError, match=r"did you mean 'weather\.json'"):
        load(tmp_path / "weather.jsn", format="json")
    for wrong in ("nofile.psdd", "nofile.json"):
        with pytest.raises(FormatError, match=r"there is no such file\.?$"):
            load(tmp_path / wrong)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"no\.psdd: there is no such file"):
        load(tmp_path / "no.psdd")
    folder = tmp_path / "folder.psdd"
    folder.mkdir()
    with pytest.raises(FormatError, match="folder, not a file"):
        load(folder)
    with pytest.raises(FormatError, match="folder"):
        save(gaussian_circuit(), folder, format="json")
    with pytest.raises(FormatError, match="cannot be written"):
        save(gaussian_circuit(), tmp_path / "nowhere" / "a.json")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(psdd: Path) -> None:
    psdd.chmod(0)
    with pytest.raises(FormatError, match="no permission"):
        load(psdd)


def test_broken_gzip(tmp_path: Path) -> None:
    packed = gzip.compress((PSDD * 50).encode())
    path = tmp_path / "a.psdd.gz"
    path.write_bytes(packed[:-12])
    with pytest.raises(FormatError, match=r"a\.psdd\.gz.*ends early"):
        load(path)
    path.write_bytes(packed[:12] + bytes(40) + packed[12:])
    with pytest.raises(FormatError, match=r"a\.psdd\.gz.*damaged"):
        load(path)


def test_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.psdd.gz"
    path.write_bytes(gzip.compress(b"c\n" * 3_000_000))
    with pytest.raises(FormatError, match=r"more than 1000000 bytes.*limit="):
        load(path, limit=1_000_000)


@pytest.mark.parametrize("suffix", ["psdd", "jpc", "spn", "ac", "vtree", "json"])
def test_garbage(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    for content, words in [
        (b"", "the file is empty"),
        (b" \n\n", "the file is empty"),
        (b"\nab\0\1", "line 2: a binary file"),
        (b"\n\n\xff\xfe", "line 3: not UTF-8"),
        (b"hello world\n", "a." + suffix),
    ]:
        path.write_bytes(content)
        with pytest.raises(FormatError, match=words):
            load(path)


@pytest.mark.parametrize("text", ["psdd 1\nL 0 0 1_0\n", "psdd 1\nL 0 0 \u0661\n"])
def test_odd_digits(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.psdd"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError, match="line 2: unexpected character"):
        load(path)
    path.write_text("c caf\u00e9 under_score\npsdd 1\nL 0 0 1\n", encoding="utf-8")
    assert load(path, "psdd").num_nodes == 1


@pytest.mark.parametrize("name", ["a.psdd", "a.jpc.gz", "a.spn", "a.ac.gz"])
def test_failed_save_leaves_the_old_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("precious")
    with pytest.raises(FormatError, match=r"a\..*json"):
        save(gaussian_circuit(), path)
    assert path.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_any_failure_while_writing_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(FormatError, match="No space left"):
        save(gaussian_circuit(), tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


def test_saved_gzip_is_reproducible_and_keeps_the_mode(tmp_path: Path) -> None:
    a, b = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    b.write_text("old")
    b.chmod(0o600)
    save(gaussian_circuit(), a)
    save(gaussian_circuit(), b)
    assert a.read_bytes() == b.read_bytes()
    assert a.read_bytes()[:2] == b"\x1f\x8b"
    assert stat.S_IMODE(b.stat().st_mode) == 0o600
    save(gaussian_circuit(), tmp_path / "c.json")
    assert (tmp_path / "c.json").read_bytes() == gzip.decompress(a.read_bytes())


def test_formats_are_listed() -> None:
    assert tuple(FORMATS) == ("psdd", "jpc", "spn", "ac", "vtree", "json", "nnf", "sdd", "mmz", *NETWORKS)


def test_models_that_come_with_the_package_have_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert {"illness", "course"} <= set(load("clinic").names)
    assert len(load_circuit("digits").names) == 64
    with pytest.raises(FormatError, match=r"clinik: there is no such file, .* come with margmap are clinic, digits"):
        load("clinik")
    with pytest.raises(FormatError, match="unknown suffix"):
        load(tmp_path / "clinic")  # a name alone stands for a model, a path does not
    (tmp_path / "clinic").write_text("mine")
    with pytest.raises(FormatError, match="unknown suffix"):
        load("clinic")


def test_a_packed_file_that_fails_is_closed(tmp_path, monkeypatch):
    """Otherwise Python 3.13 complains when it is collected: there is no file any more to write its end to."""
    made, packer = [], files._packer
    monkeypatch.setattr(files, "_packer", lambda raw: made.append(packer(raw)) or made[-1])

    def lines():
        yield "first"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        files.write_lines(tmp_path / "x.gz", lines())
    assert [out.closed for out in made] == [True]
    assert list(tmp_path.iterdir()) == []
