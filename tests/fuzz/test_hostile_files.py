"""Files that claim much, nest deeply, never end or unpack without end: refused, in memory in proportion to the file."""

from __future__ import annotations

import gzip
import os
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzzing import READERS, attempt
from margmap.errors import FormatError, LimitError
from margmap.inference.scaled import scaled
from margmap.io.files import LIMIT_VARIABLE, read_lines, stream_lines
from margmap.io.formats import load, load_circuit

MANY = 5_000
NINES = "9" * 100_000


def network(parents: int, table: str) -> str:
    blocks = [f"variable v{i} {{ type discrete [2] {{ a, b }}; }}" for i in range(parents + 1)]
    given = ", ".join(f"v{i}" for i in range(1, parents + 1))
    return "\n".join([*blocks, f"probability ( v0 | {given} ) {{ {table} }}"])


CLAIMS = [
    ("psdd", "psdd 1\nL 0 0 1\nD 1 1 1000000000 0 0 0\n", "too few numbers"),
    ("psdd", f"psdd 1\nL {NINES} 0 1\n", "too many digits"),
    ("psdd", "psdd 1\nL 0 0 " + "1 " * MANY, "too many numbers"),
    ("psdd", "psdd 1\n" + "\n".join(f"D {i} 0 1 {i + 1} {i + 1} 0" for i in range(MANY)), "defined later, on line 3"),
    ("jpc", "jpc 1\nB 0 0 1 1000000000 -1\n", "out of range"),
    ("jpc", "jpc 1\nI 0 0 1 1000000000\n", "out of range"),
    ("jpc", "jpc 1\nL 0 0 1\nP 1 0 1000000000 0\n", "too few numbers"),
    ("spn", "(1000000000000)\nv 0 0\nEOF\n", "out of range"),
    ("ac", f"(2)\nv 0 0\nn {NINES}\n* 0 1\nEOF\n", "finite"),
    ("vtree", "vtree 1\n" + "\n".join(f"I {i} {i + 1} {i + 2}" for i in range(MANY)), "defined later"),
    ("json", "[" * 200_000, "nested too deeply"),
    ("json", '{"a":' * 200_000, "nested too deeply"),
    ("json", '{"format": "margmap", "version": ' + NINES + "}", "digits"),
    ("json", '{"format": "margmap", "format": "margmap"}', "'format' is given twice"),
    ("json", '{"format": "margmap", "version": ' + "[" * 900 + "]" * 900 + "}", "version"),
    ("bif", "/*" * MANY, "a comment does not end"),
    ("bif", '"' * (2 * MANY + 1), "a quoted name does not end"),
    ("bif", "variable a { type discrete [ ² ] { x }; }", "announces"),
    ("bif", f"variable a {{ type discrete [ {NINES} ] {{ x }}; }}", "announces"),
    ("bif", network(60, "default 0.5, 0.5;"), "too large with 60 parents"),
    ("bif", network(30, "default 0.5, 0.5;"), "defaults up to 'v0' stand for more than"),
    ("bif", network(30, f"({', '.join('a' * 30)}) 0.5, 0.5;"), "1073741823 of 1073741824 rows"),
    ("nnf", "nnf 2 1 1\nL 1\nA 1000000000 0\n", "too few numbers"),
    ("nnf", f"nnf {NINES} 1 1\nL 1\n", "expected the header"),
    ("nnf", "nnf 1 0 2000000000\nL 1\n", "more than 16384 others are free"),
    ("nnf", f"nnf 1 0 1\nL {NINES}\n", "too many digits"),
    ("d4", f"o {NINES} 0\n", "too many digits"),
    ("d4", "".join(f"o {i} 0\n{i} {i + 1} 0\n" for i in range(MANY)), f"node {MANY} is not defined"),
    ("d4", "".join(f"o {i} 0\n" for i in range(MANY)), "a theory has one root"),
    ("sdd", "sdd 1\nL 0 0 1\nD 1 1 1000000000 0 0\n", "too few numbers"),
    ("sdd", "sdd 1\n" + "\n".join(f"D {i} 0 1 {i + 1} {i + 1}" for i in range(MANY)), "defined later"),
    ("weights", f"1 {NINES}\n", "finite numbers"),
    ("weights", f"{NINES} 1\n", "no number of a variable"),
    ("xmlbif", "<BIF>" + "<A>" * 200_000, "no element found"),
    ("xmlbif", "<BIF " + " ".join(f"a{i}='x'" for i in range(MANY)), "unclosed token"),
    ("xmlbif", "<!DOCTYPE BIF [" + "<!ENTITY a 'b'>" * MANY + "]><BIF/>", "declares an entity"),
    ("xmlbif", f"<!DOCTYPE BIF [<!ATTLIST A b CDATA '{'x' * MANY}'>]><BIF>{'<A/>' * MANY}</BIF>", "by default"),
    ("xmlbif", "<!DOCTYPE BIF [<!ELEMENT A " + "(" * MANY + "]><BIF/>", "not XML|no variable"),
    ("uai", "BAYES\n1000000000\n2 2", "only 2 numbers are left"),
    ("uai", "BAYES 1 1000000000000 1 1 0 2 0.5 0.5", "cardinality 1000000000000"),
    ("uai", f"MARKOV 60 {'2 ' * 60} 1 60 {' '.join(map(str, range(60)))} 9 1", "factor 0 would need more than"),
    (
        "uai",
        f"MARKOV 100 {'1 ' * 100} 1 100 {' '.join(map(str, range(100)))} 1 1",
        "100 variables, and 32 are the most",
    ),
    (
        "uai",
        f"MARKOV {MANY} {'1 ' * MANY} 1 {MANY + 1} {' '.join(map(str, range(MANY)))} {MANY - 1} 1 1",
        f"variable {MANY - 1} twice",
    ),
    (
        "uai",
        f"BAYES {MANY} {'1 ' * MANY} {MANY} {' '.join(f'2 {(i + 1) % MANY} {i}' for i in range(MANY))}{' 1 1' * MANY}",
        r"cycle: .* -> \.\.\. -> ",
    ),
    ("uai", "MARKOV 1 2 1000000000 1 0 2 1 1", "1000000000 scopes are announced"),
    ("uai", "MARKOV 1 2 1 1 0 2 1 1\nc ²", "unexpected character"),
    ("query", f"{MANY} " + "0 " * MANY, "queried twice"),
    ("query", NINES, "expected the number"),
    ("evid", "1000000000 0", "fit neither"),
    ("instance", "[" * 200_000, "nested too deeply"),
    ("instance", '{"evidence": {"a": NaN}}', "NaN is not JSON"),
    ("rows", "1," * MANY + "x", "is not a number"),
    ("trace", '"' + "a\n" * 200_000, "line 1: not a trace"),
    ("trace", "a\rb\r", "line 1: not a trace"),
]


@pytest.mark.parametrize(("name", "text", "words"), CLAIMS, ids=[f"{n}-{w[:30]}" for n, _, w in CLAIMS])
def test_claims_cost_nothing(tmp_path: Path, name: str, text: str, words: str) -> None:
    path = tmp_path / f"x.{READERS[name].suffix}"
    path.write_text(text, encoding="utf-8")
    attempt(name, path)  # so that nothing is imported or compiled under the watch
    tracemalloc.start()
    try:
        _, error = attempt(name, path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    with pytest.raises(type(error), match=words):
        raise error or AssertionError("accepted")
    assert len(str(error)) < 1000 + len(str(path))
    assert peak < 2_000_000 + 150 * len(text)


def test_tables_of_leaves_have_a_limit(tmp_path: Path) -> None:
    """A line of twenty bytes can ask for a table of a million entries; a thousand of them are refused before that."""
    path = tmp_path / "x.jpc"
    leaves = "".join(f"I {i} 0 {i + 1} 1048575\n" for i in range(1000))
    path.write_text(f"jpc 1\n{leaves}P 5000 0 1000 {' '.join(map(str, range(1000)))}\n")
    circuit = load_circuit(path)
    with pytest.raises(LimitError, match=r"1048576000 entries.*variable 1$"):
        _ = scaled(circuit)


@pytest.fixture
def bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sixteen lines of 1 MiB in some 16 KiB, with the free part as small as a test needs it."""
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    monkeypatch.setattr("margmap.io.files._ANY_RATIO", 3 << 20)
    path = tmp_path / "bomb.psdd.gz"
    path.write_bytes(gzip.compress((b"c " + b"a" * ((1 << 20) - 3) + b"\n") * 16))
    return path


@pytest.mark.parametrize("read", [read_lines, lambda path: [None for _ in stream_lines(path)]])
def test_a_bomb_is_refused_long_before_it_is_unpacked(bomb: Path, read: Callable[[Path], object]) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=f"200 times its size.*limit=.*{LIMIT_VARIABLE}"):
            read(bomb)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 9 << 20


def test_one_line_without_end(bomb: Path) -> None:
    bomb.write_bytes(gzip.compress(b"c" * (16 << 20)))
    with pytest.raises(FormatError, match="200 times its size"):
        next(stream_lines(bomb))


def test_limits_can_be_raised_and_lowered(bomb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LIMIT_VARIABLE, str(1 << 30))
    assert [len(line) for line in stream_lines(bomb)] == [(1 << 20) - 1] * 16
    assert len(read_lines(bomb)) == 17
    monkeypatch.setenv(LIMIT_VARIABLE, "1000000")
    for read in (read_lines, lambda path: list(stream_lines(path))):
        with pytest.raises(FormatError, match="unpacks to more than 1000000 bytes"):
            read(bomb)
    monkeypatch.setenv(LIMIT_VARIABLE, "much")
    with pytest.raises(FormatError, match=f"{LIMIT_VARIABLE}='much' is not a number of bytes"):
        read_lines(bomb)
    assert len(read_lines(bomb, 1 << 30)) == 17


PSDD = b"psdd 3\nL 0 0 1\nT 1 2 2 -0.5\nD 2 1 1 0 1 0.0\n"


def test_gzip_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.psdd.gz"
    whole = gzip.compress(PSDD)
    path.write_bytes(gzip.compress(PSDD[:20]) + gzip.compress(PSDD[20:]) + bytes(100))
    assert load_circuit(path).num_nodes == 3  # members follow each other, and zeros at the end are padding
    path.write_bytes(whole + b"garbage")
    with pytest.raises(FormatError, match="damaged"):
        load(path)
    for end in range(2, len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(FormatError, match=r"a\.psdd\.gz: "):
            load(path)
    path.write_bytes(gzip.compress(whole))  # packed twice
    with pytest.raises(FormatError, match=r"a\.psdd\.gz"):
        load(path)
    path.write_bytes(zlib.compress(PSDD))
    with pytest.raises(FormatError, match=r"a\.psdd\.gz"):
        load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_pipes_can_be_read(tmp_path: Path) -> None:
    for data in (PSDD, gzip.compress(PSDD)):
        pipe = tmp_path / "pipe.psdd"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_bytes, args=(data,))
        writer.start()
        assert load_circuit(pipe).num_nodes == 3
        writer.join()
        pipe.unlink()


def test_a_device_without_end(tmp_path: Path) -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("there is no /dev/zero")
    with pytest.raises(FormatError, match="line 1: a binary file"):
        load("/dev/zero", "psdd")


@pytest.mark.parametrize("name", ["a\0b.psdd", "x" * 5000 + ".json"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(FormatError):
        load(tmp_path / name)
    path = tmp_path / "a.psdd"
    path.write_bytes(PSDD)
    from margmap.io.formats import save

    with pytest.raises(FormatError):
        save(load(path), tmp_path / name, "json")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(tmp_path: Path, encoding: str, ends: str) -> None:
    path = tmp_path / "a.psdd"
    path.write_bytes(f"c caf\u00e9{ends}".encode(encoding) + PSDD.decode().replace("\n", ends).encode(encoding))
    if encoding == "utf-8-sig" and ends != "\r":
        path.write_bytes(PSDD.decode().replace("\n", ends).encode(encoding))
        assert load_circuit(path).num_nodes == 3
    else:
        with pytest.raises(FormatError, match=r"a\.psdd"):
            load(path)
