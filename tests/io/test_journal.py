"""Journals: what is written lasts, what was torn is cut off, and only one process writes."""

import errno

import pytest

import margmap as mm
from margmap.io.journal import Journal


def test_lines_last_and_are_added_to(tmp_path):
    path = tmp_path / "a.jsonl"
    with Journal(path) as journal:
        journal.append('{"é": 1}', "2")
        assert path.read_text("utf-8") == '{"é": 1}\n2\n'
    with Journal(path) as journal:
        assert [*journal.lines()] == ['{"é": 1}\n'.encode(), b"2\n"]
        journal.append("3")
        journal.append()
    assert path.read_bytes().endswith(b"2\n3\n")


@pytest.mark.parametrize("torn", [b"", b"x", b'{"a": "\xc3', b"\r"])
def test_a_torn_end_is_cut_off(tmp_path, torn):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\n22\n" + torn)
    with Journal(path) as journal:
        assert [*journal.lines()] == [b"1\n", b"22\n"]
        journal.append("3")
        assert path.read_bytes() == b"1\n22\n3\n"
        journal.cut(2)
        journal.append("4")
    assert path.read_bytes() == b"1\n4\n"


def test_one_process_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    path = tmp_path / "a.jsonl"
    with Journal(path), pytest.raises(mm.FormatError, match=r"a\.jsonl: another run is writing this file"):
        Journal(path)
    Journal(path).close()


def test_what_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(mm.FormatError, match="cannot be written"):
        Journal(tmp_path / "no" / "a.jsonl")


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    def full(_fd, _content):
        raise OSError(errno.ENOSPC, "No space left on device")

    with Journal(tmp_path / "a.jsonl") as journal:
        monkeypatch.setattr("os.write", full)
        with pytest.raises(mm.FormatError, match="cannot be written: No space left"):
            journal.append("x")
