"""Every way a file can be wrong: the message names the file, the line and the trouble."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fuzzing import READERS
from margmap.circuit import Circuit
from margmap.circuit.vtree import Vtree
from margmap.errors import FormatError, MargmapError
from margmap.io.formats import load

CASES = {
    "psdd": [
        ("psdd\nL 0 0 1", 1, "expected the header 'psdd N'"),
        ("L 0 0 1", 1, "expected the header"),
        ("jpc 3\nL 0 0 1", 1, "this is a jpc file, pass format='jpc'"),
        ("psdd x\nL 0 0 1", 1, "expected the header"),
        ("c only", 2, "only comments"),
        ("psdd 3\nc nothing", 3, "no nodes"),
        ("psdd 1\nL 0 0", 2, "too few numbers.*truncated"),
        ("psdd 1\nL 0 0 1 1", 2, "too many numbers"),
        ("psdd 1\nT 0 0 1", 2, "too few"),
        ("psdd 1\nT 0 0 1 -1 -1 -1", 2, "too many"),
        ("psdd 1\nL 0 0 1\nL 1 1 2\nD 2 2 2 0 1 -1", 4, "too few"),
        ("psdd 1\nL 0 0 1\nL 1 1 2\nD 2 2", 4, "too few"),
        ("psdd 1\nL 0 0 1\nL 1 1 2\nD 2 2 1 0 1 -1 0", 4, "too many"),
        ("psdd 1\nL 0 0 1\nD 2 2 0", 3, "too few|at least one child"),
        ("psdd 1\nL 0 0 1\nD 2 2 -1 0 0 0", 3, "at least one child"),
        ("psdd 1\nX 0 0 1", 2, "unknown node type 'X'.*L, T, D"),
        ("psdd 1\nL 0 0 one", 2, "'one' is not a whole number"),
        ("psdd 1\nL 0 0 1.5", 2, "'1.5' is not a whole number"),
        ("psdd 1\nT 0 0 1 half", 2, "'half' is not a number"),
        ("psdd 1\nL 0 0 " + "9" * 5000, 2, "too many digits|out of range"),
        ("psdd 1\nL 0 0 1\nD 5 1 1 0 7 0\nL 7 2 2", 3, "child 7 of node 5 is defined later, on line 4"),
        ("psdd 1\nL 0 0 1\nD 5 1 1 0 7 0\nD 7 1 1 0 5 0", 3, "cycle: node 5 has child 7"),
        ("psdd 1\nL 0 0 1\nD 5 1 1 0 5 0", 3, "cycle: node 5 is its own child"),
        ("psdd 1\nL 0 0 1\nD 5 1 1 0 9 0", 3, "dangling.*child 9.*never defines"),
        ("psdd 1\nL 0 0 1\nL 0 0 2", 3, "duplicate id: node 0"),
        ("psdd 1\nT 0 0 1 nan", 2, "nan"),
        ("psdd 1\nT 0 0 1 inf", 2, "above 0"),
        ("psdd 1\nT 0 0 1 0.5", 2, "above 0"),
        ("psdd 1\nT 0 0 1 -0.7 -0.9", 2, "do not add up"),
        ("psdd 1\nT 0 0 1 -0.7 nan", 2, "nan"),
        ("psdd 1\nL 0 0 1\nL 1 1 2\nD 2 2 1 0 1 nan", 4, "nan"),
        ("psdd 1\nL 0 0 1\nL 1 1 2\nD 2 2 1 0 1 inf", 4, "above 0"),
        ("psdd 1\nL 0 0 0", 2, "variable 0 is out of range"),
        ("psdd 1\nL 0 0 2147483648", 2, "variable 2147483648 is out of range"),
        ("psdd 1\nT 0 0 -1 -1", 2, "variable -1 is out of range"),
    ],
    "jpc": [
        ("psdd 1\nL 0 0 1", 1, "this is a psdd file"),
        ("jpc 1", 2, "no nodes"),
        ("jpc 1\nP 0 0", 2, "too few"),
        ("jpc 1\nL 0 0 1\nP 1 0 2 0", 3, "too few"),
        ("jpc 1\nL 0 0 1\nP 1 0 1 0 0", 3, "too many"),
        ("jpc 1\nL 0 0 1\nS 1 0 1 0 -1 0", 3, "too many"),
        ("jpc 1\nL 0 0 1\nS 1 0 0 0 0", 3, "at least one child"),
        ("jpc 1\nQ 0 0 1", 2, "unknown node type 'Q'"),
        ("jpc 1\nL 0 0 1 2", 2, "too many"),
        ("jpc 1\nS 0 0 1 1 0\nL 1 0 1", 2, "defined later, on line 3"),
        ("jpc 1\nS 0 0 1 1 0\nP 1 0 1 0", 2, "cycle"),
        ("jpc 1\nP 3 0 1 3", 2, "its own child"),
        ("jpc 1\nP 3 0 1 4", 2, "dangling"),
        ("jpc 1\nL 0 0 1\nL 0 0 -1", 3, "duplicate id"),
        ("jpc 1\nL 0 0 1\nS 1 0 1 0 nan", 3, "log-weight is nan"),
        ("jpc 1\nL 0 0 1\nS 1 0 1 0 inf", 3, "infinite"),
        ("jpc 1\nL 0 0 0", 2, "out of range"),
        ("jpc 1\nI 0 0 1 -1", 2, "value -1 is out of range"),
        ("jpc 1\nI 0 0 1 999999999", 2, "value 999999999 is out of range"),
        ("jpc 1\nI 0 0 99999999999 0", 2, "variable 99999999999 is out of range"),
        ("jpc 1\nB 0 0 1 999999999 -1", 2, "number of trials.*out of range"),
        ("jpc 1\nB 0 0 1 3 0.2", 2, "above 0"),
        ("jpc 1\nC 0 0 1 -1 nan", 2, "nan"),
        ("jpc 1\nC 0 0 1 -1 -1 -1\nC 1 0 1 -1 -1", 3, r"variable 1 has 3 values \(line 2\)"),
        ("jpc 1\nC 0 0 1 -1 -1 -1\nB 1 0 1 3 -1", 3, "the lines must agree"),
        ("jpc 1\nC 0 0 1 -1 -1 -1\nI 1 0 1 3", 3, "the lines must agree"),
        ("jpc 1\nI 0 0 1 3\nC 1 0 1 -1 -1 -1", 3, "the lines must agree"),
    ],
    "spn": [
        ("2 2\nv 0 1\nEOF", 1, "in parentheses"),
        ("(2 two)\nv 0 1\nEOF", 1, "'two' is not a whole number"),
        ("(2 0)\nv 0 1\nEOF", 1, "variable 1 has 0 values"),
        ("(2 9999999999)\nv 0 1\nEOF", 1, "out of range"),
        ("(2)\nEOF", 2, "no nodes"),
        ("(2)\nv 0 1", 3, "truncated.*EOF"),
        ("(2)\nv 0 1\nEO", 3, "unknown node type 'EO'"),
        ("(2)\nv 0 1\nEOF\nv 0 1", 4, "after EOF"),
        ("(2)\nv 0 1\n\nv 0 0\nEOF", 3, "blank line"),
        ("(2)\nv 0\nEOF", 2, "too few"),
        ("(2)\nv 0 1 1\nEOF", 2, "too many"),
        ("(2)\nv 1 0\nEOF", 2, "variable 1 is out of range"),
        ("(2)\nv 0 2\nEOF", 2, "value 2 of variable 0 is out of range 0 to 1"),
        ("(2)\nv 0 1\n+ 0\nEOF", 3, "too few"),
        ("(2)\nv 0 1\n+\nEOF", 3, "at least one child"),
        ("(2)\nv 0 1\n*\nEOF", 3, "at least one child"),
        ("(2)\nv 0 1\n+ 0 nan\nEOF", 3, "nan"),
        ("(2)\nv 0 1\n+ 0 inf\nEOF", 3, "infinite"),
        ("(2)\nv 0 1\n* -1\nEOF", 3, "child -1"),
        ("(2)\nv 0 1\n* 1\nEOF", 3, "cycle: node 1 is its own child"),
        ("(2)\nv 0 1\n* 2\n* 0\nEOF", 3, "defined later, on line 4"),
        ("(2)\nv 0 1\n* 2\n* 1\nEOF", 3, "cycle"),
        ("(2)\nv 0 1\n* 9\nEOF", 3, "dangling"),
        ("(2)\nv 0 1\nn 3\nEOF", 3, "unknown node type 'n'"),
    ],
    "ac": [
        ("(2)\nv 0 1", 3, "truncated"),
        ("(2)\nn -1\nEOF", 2, "not negative"),
        ("(2)\nn nan\nEOF", 2, "finite"),
        ("(2)\nn inf\nEOF", 2, "finite"),
        ("(2)\nn\nEOF", 2, "too few"),
        ("(2)\nn 0.5\nEOF", 2, "root is a constant"),
        ("(2)\nn 0.5\nn 2\n* 0 1\nEOF", 4, "root is a constant"),
        ("(2)\nn 0.5\nv 0 0\n+ 0 1\nEOF", 4, "not smooth"),
        ("(2)\nv 0 1\n+ 3\nn 1\nn 1\nEOF", 3, "defined later, on line 5"),
        ("(2)\nv 0 x\nEOF", 2, "'x' is not a whole number"),
        ("(2)\nw 0 1\nEOF", 2, "unknown node type 'w'"),
    ],
    "vtree": [
        ("vtree\nL 0 1", 1, "expected the header"),
        ("vtree 1", 2, "no nodes"),
        ("vtree 1\nL 0", 2, "too few"),
        ("vtree 1\nL 0 1 2", 2, "too many"),
        ("vtree 1\nL 0 0", 2, "variable 0 is out of range"),
        ("vtree 1\nL 0 1\nL 1 1\nI 2 0 1", 3, "variable 1 has a leaf already, on line 2"),
        ("vtree 1\nL 0 1\nL 0 2\nI 2 0 1", 3, "duplicate id"),
        ("vtree 1\nL 0 1\nI 2 0 1\nL 1 2", 3, "defined later, on line 4"),
        ("vtree 1\nL 0 1\nI 2 0 2", 3, "its own child"),
        ("vtree 1\nL 0 1\nI 2 0 7", 3, "dangling"),
        ("vtree 1\nL 0 1\nI 2 0 0", 3, "not a tree"),
        ("vtree 1\nL 0 1\nL 1 2\nI 2 0 1\nL 3 3\nI 4 0 3", 6, "node 0 has a parent already, node 2"),
        ("vtree 1\nL 0 1\nL 1 2", 4, "node 0 has no parent"),
        ("vtree 1\nD 0 1", 2, "unknown node type 'D'"),
    ],
}


@pytest.mark.parametrize(
    ("suffix", "text", "line", "words"), [(suffix, *case) for suffix, cases in CASES.items() for case in cases]
)
def test_bad_input(tmp_path: Path, suffix: str, text: str, line: int, words: str) -> None:
    path = tmp_path / f"bad.{suffix}"
    path.write_text(text + "\n")
    with pytest.raises(FormatError, match=words) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert caught.value.line == line
    assert caught.value.path == path


#: A valid file of every format, those that the fuzz driver begins with.
VALID = {suffix: READERS[suffix].seeds[0] for suffix in ("psdd", "jpc", "spn", "ac", "vtree", "json")}


@pytest.mark.parametrize("suffix", list(VALID))
def test_every_truncation_and_many_flips(tmp_path: Path, suffix: str) -> None:
    data = VALID[suffix]
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(data)
    assert isinstance(load(path), Circuit | Vtree)
    rng = random.Random(5)
    variants = [data[:end] for end in range(len(data))]
    for _ in range(400):
        flipped = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            flipped[rng.randrange(len(data))] = rng.choice([rng.randrange(256), *b"0123456789- .\nLTDPSICBvn*+c"])
        variants.append(bytes(flipped))
    accepted = 0
    messages = []
    for variant in variants:
        path.write_bytes(variant)
        try:
            assert isinstance(load(path), Circuit | Vtree)
            accepted += 1
        except MargmapError as error:
            messages.append(str(error))
    assert accepted < len(variants)
    assert all(path.name in message for message in messages)


@pytest.mark.parametrize("suffix", ["spn", "ac"])
def test_truncated_before_eof_is_always_noticed(tmp_path: Path, suffix: str) -> None:
    data = VALID[suffix]
    path = tmp_path / f"a.{suffix}"
    for end in range(len(data) - 1):
        path.write_bytes(data[:end])
        with pytest.raises(FormatError):
            load(path)
