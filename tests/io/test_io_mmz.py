"""The binary form: what is written is read bit for bit, mapped into memory, and hostile files are refused."""

from __future__ import annotations

import json
import os
import struct
import threading
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import margmap as mm
from circuits_for_io import random_circuit
from margmap.circuit import GAUSSIAN, INDICATOR, Circuit, Parts, Variable, assemble
from margmap.errors import FormatError
from margmap.io.files import LIMIT_VARIABLE
from margmap.io.mmz import ARRAYS, HEADER


def odd_circuit() -> Circuit:
    """Names and states of every sort, a continuous variable, a weight of 0, and one without leaves."""
    variables = [
        Variable("a=1,\x1b[31m\ud800", 3, ("x", "", "é")),
        Variable(7, 2),
        Variable("", 0),
        Variable("unused", 1 << 20),
    ]
    parts = Parts.new()
    leaves = [parts.leaf(INDICATOR, 0, [2.0]), parts.leaf(INDICATOR, 1, [0.0]), parts.leaf(GAUSSIAN, 2, [1.5, 0.25])]
    first = parts.product(leaves)
    other = parts.product([parts.leaf(INDICATOR, 0, [1.0]), leaves[1], leaves[2]])
    return assemble(variables, parts, parts.sum([first, other], [-0.1, -np.inf]))


def equal(a: Circuit, b: Circuit) -> bool:
    return a.variables == b.variables and all(
        getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in ARRAYS
    )


CIRCUITS = [odd_circuit(), *(random_circuit(seed, binary=seed % 2 == 0, structured=False) for seed in range(8))]


@pytest.mark.parametrize("suffix", ["mmz", "mmz.gz"])
@pytest.mark.parametrize("circuit", CIRCUITS)
def test_what_is_written_is_read_to_the_last_bit(tmp_path: Path, circuit: Circuit, suffix: str) -> None:
    path = tmp_path / f"x.{suffix}"
    mm.save(circuit, path)
    assert equal(mm.load(path), circuit)
    before = path.read_bytes()
    mm.save(mm.load(path), path)
    assert path.read_bytes() == before


def test_arrays_lie_in_the_file_aligned_and_cannot_be_changed(tmp_path: Path) -> None:
    path = tmp_path / "x.mmz"
    mm.save(random_circuit(1, binary=False, structured=False), path)
    circuit = mm.load(path)
    for name in ARRAYS:
        array = getattr(circuit, name)
        assert array.ctypes.data % 64 == 0
        assert not array.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.setflags(write=True)


def test_a_new_file_in_its_place_leaves_the_circuit_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.mmz"
    mm.save(CIRCUITS[1], path)
    circuit = mm.load(path)
    mm.save(CIRCUITS[2], path)
    assert equal(circuit, CIRCUITS[1])
    assert equal(mm.load(path), CIRCUITS[2])


def test_numpy_opens_it_and_what_numpy_writes_is_read(tmp_path: Path) -> None:
    path, other = tmp_path / "x.mmz", tmp_path / "y.npz"
    circuit = CIRCUITS[3]
    mm.save(circuit, path)
    with np.load(path) as arrays:
        assert set(ARRAYS) <= {name.removesuffix(".npy") for name in arrays.files}
        assert arrays["child"].tolist() == circuit.child.tolist()
        header = bytes(arrays[HEADER])
        for save in (np.savez, np.savez_compressed):
            save(other, **{name: arrays[name] for name in ARRAYS})
            with zipfile.ZipFile(other, "a") as archive:
                archive.writestr(HEADER, header)
            assert equal(mm.load(other, "mmz"), circuit)


def test_asking_it_is_asking_the_circuit(tmp_path: Path) -> None:
    circuit = random_circuit(5, binary=False, structured=True)
    mm.save(circuit, tmp_path / "x.mmz")
    again = mm.load(tmp_path / "x.mmz")
    assert mm.marginal_map(again, list(circuit.names[:2])).state == mm.marginal_map(circuit, circuit.names[:2]).state
    assert mm.log_marginal(again) == mm.log_marginal(circuit)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_read(tmp_path: Path) -> None:
    mm.save(CIRCUITS[1], tmp_path / "x.mmz")
    data = (tmp_path / "x.mmz").read_bytes()
    pipe = tmp_path / "pipe.mmz"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(data,))
    writer.start()
    assert equal(mm.load(pipe), CIRCUITS[1])
    writer.join()


def rebuilt(path: Path, change: Callable[[dict[str, bytes], dict[str, Any]], object], **options: Any) -> Path:
    """The file of a circuit with its members and its header changed, and put together again."""
    mm.save(CIRCUITS[3], path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members.pop(HEADER))
    change(members, header)
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr(HEADER, json.dumps(header))
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def replace_array(name: str, values: Any) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    def change(members: dict[str, bytes], header: dict[str, Any]) -> None:
        from margmap.io.mmz import _prefix

        array = np.asarray(values, dtype=ARRAYS[name])
        members[f"{name}.npy"] = _prefix(array.dtype, array.size) + array.tobytes()
        header["arrays"][name].update(count=array.size, crc32=zlib.crc32(array.tobytes()))

    return change


def grow(name: str) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    return lambda members, header: members.update({name: members[name] + b"\0"})


def set_header(*keys: str, value: Any) -> Callable[[dict[str, bytes], dict[str, Any]], None]:
    def change(members: dict[str, bytes], header: dict[str, Any]) -> None:
        entry = header
        for key in keys[:-1]:
            entry = entry[key]
        entry[keys[-1]] = value

    return change


HOSTILE = [
    (set_header("version", value=2), "version 2 of the format is unknown"),
    (set_header("format", value="other"), "not a circuit"),
    (set_header("variables", value={}), "no list of"),
    (set_header("variables", value=[{"cardinality": 2}]), "variable number 0"),
    (set_header("arrays", value=[]), "has no"),
    (set_header("arrays", "child", value=None), "has no"),
    (set_header("arrays", "child", "count", value=10**30), "no array of 10000"),
    (set_header("arrays", "child", "count", value=-1), "no array of -1"),
    (set_header("arrays", "child", "count", value=True), "has no"),
    (set_header("arrays", "child", "crc32", value=1), "checksum of the array 'child' is wrong"),
    (set_header("arrays", "child", "type", value="|O"), "'|O', and '<i4' is expected"),
    (grow("child.npy"), "no array of"),
    (lambda members, header: members.pop("param.npy"), "there is no 'param.npy'"),
    (replace_array("child", [2**31 - 1]), "do not fit together"),
    (replace_array("kind", []), "needs at least one node"),
    (replace_array("kind", [9] * CIRCUITS[3].num_nodes), "does not exist"),
    (replace_array("child", CIRCUITS[3].child - 10**6), "a child must come before"),
    (replace_array("log_weight", CIRCUITS[3].log_weight * np.nan), "not a number"),
    (replace_array("start", CIRCUITS[3].start[::-1]), "do not fit together"),
    (replace_array("start", [-(2**62), *CIRCUITS[3].start[1:]]), "do not fit together"),
    (replace_array("start", [0, 2**63 - 1, -2, *CIRCUITS[3].start[3:]]), "do not fit together"),
    (replace_array("var", np.where(CIRCUITS[3].var == -1, 127, CIRCUITS[3].var)), "has no variable of its own"),
]


@pytest.mark.parametrize(("change", "words"), HOSTILE, ids=[words for _, words in HOSTILE])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_hostile_files_are_refused(tmp_path: Path, change: Any, words: str, method: int) -> None:
    path = rebuilt(tmp_path / "x.mmz", change, compression=method)
    with pytest.raises(FormatError, match=rf"x\.mmz: .*{words.replace('|', chr(92) + '|')}"):
        mm.load(path)


def test_every_cut_and_every_flipped_byte_is_an_error_or_the_same_circuit(tmp_path: Path) -> None:
    path = tmp_path / "x.mmz"
    mm.save(CIRCUITS[1], path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for end in [*range(40), *rng.integers(40, len(whole), 100).tolist()]:
        path.write_bytes(whole[:end])
        with pytest.raises(FormatError, match=r"x\.mmz"):
            mm.load(path)
    harmless = 0
    for at in rng.integers(0, len(whole), 400).tolist():
        changed = bytearray(whole)
        changed[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        try:
            found = mm.load(path)
        except FormatError:
            continue
        assert equal(found, CIRCUITS[1])
        harmless += 1
    assert harmless < 400  # padding and dates may change, numbers may not


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LIMIT_VARIABLE, raising=False)
    monkeypatch.setattr("margmap.io.mmz._ANY_RATIO", 1 << 16)
    path = rebuilt(tmp_path / "x.mmz", replace_array("param", np.zeros(1 << 17)), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(FormatError, match=f"200 times its size.*{LIMIT_VARIABLE}"):
        mm.load(path)
    with pytest.raises(FormatError, match="do not fit together"):
        mm.load(path, limit=1 << 30)
    with pytest.raises(FormatError, match="more than 100000 bytes"):
        mm.load(path, limit=100_000)
    mm.save(CIRCUITS[1], path)
    with pytest.raises(FormatError, match="it holds more than 1000 bytes"):
        mm.load(path, limit=1000)


def test_other_zips_methods_and_members_that_are_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "x.mmz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "x")
    with pytest.raises(FormatError, match=r"there is no 'header\.json'"):
        mm.load(path)
    rebuilt(path, lambda members, header: None, compression=zipfile.ZIP_BZIP2)
    with pytest.raises(FormatError, match="compressed in another way"):
        mm.load(path)
    mm.save(CIRCUITS[1], path)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("kind.npy", b"")
    with pytest.raises(FormatError, match="there twice"):
        mm.load(path)


def test_a_directory_that_points_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "x.mmz"
    mm.save(CIRCUITS[1], path)
    data = bytearray(path.read_bytes())
    end = data.rfind(b"PK\5\6")
    (at,) = struct.unpack_from("<L", data, end + 16)
    for offset in (0xFFFFFFF0, len(data), 1):
        changed = bytearray(data)
        struct.pack_into("<L", changed, at + 42, offset)
        path.write_bytes(changed)
        with pytest.raises(FormatError, match=r"x\.mmz"):
            mm.load(path)


@pytest.mark.parametrize("data", [b"", b"PK", b"PK\3\4", b"PK\5\6" + bytes(18), b"psdd 1\n", b"\x80\x05" + bytes(40)])
def test_files_of_another_kind(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.mmz"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"x\.mmz"):
        mm.load(path)


@pytest.mark.parametrize("suffix", ["jpc", "psdd", "json", "mmz"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_pickle_is_never_opened_and_the_way_to_convert_it_is_said(tmp_path: Path, suffix: str, packed: bool) -> None:
    import gzip
    import pickle

    class Code:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    path = tmp_path / f"model.{suffix}"
    for protocol in range(2, 6):
        data = pickle.dumps([{"type": "Input", "num_node_blocks": 2, "dist": Code()}], protocol)
        path.write_bytes(gzip.compress(data) if packed else data)
        words = r"Python pickle.*margmap\.from_pyjuice\(pyjuice\.load\(.*\)\); margmap\.save\(circuit, .*model\.mmz"
        with pytest.raises(FormatError, match=words):
            mm.load(path)
    assert not (tmp_path / "ran").exists()
