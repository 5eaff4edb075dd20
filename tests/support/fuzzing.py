"""What the fuzz tests and ``scripts/fuzz.py`` share: every reader, small valid files, ways to spoil them.

A reader keeps its promise on any bytes if it returns a value or raises a ``MargmapError``; :func:`attempt` checks that,
and :func:`use` does with an accepted value what a user would do next.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import random
import re
import tempfile
import textwrap
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from margmap.circuit import Circuit, Variable
from margmap.circuit.vtree import Vtree
from margmap.cli.inputs import read_instance
from margmap.errors import MargmapError, UnnormalisedWarning
from margmap.inference.queries import log_marginal
from margmap.io.evidence_rows import observed_of, read_matrix
from margmap.io.evidence_rows import read_rows as rows_of_evidence
from margmap.io.formats import load, load_network, save
from margmap.io.uai import read_evidence, read_query
from margmap.io.weights import read_names, read_weights
from margmap.learn.table import read_tables
from margmap.network.network import Network
from margmap.plot import read_trace
from margmap.solve.marginal_map import marginal_map

#: What the evidence and query files of the UAI format are read against.
NETWORK = Network(
    [Variable(0), Variable(1, 3), Variable(2)], [([0], [0.5, 0.5]), ([1], [0.2, 0.3, 0.5]), ([0, 2], [[0.1, 0.9]] * 2)]
)


class Reader(NamedTuple):
    """The suffix of a reader's files, the function, and valid files."""

    suffix: str
    read: Callable[[Path], Any]
    seeds: tuple[bytes, ...]


def _text(*texts: str) -> tuple[bytes, ...]:
    return tuple(textwrap.dedent(text).lstrip("\n").encode() for text in texts)


_PSDD = _text(
    """
    c small
    psdd 9
    L 10 0 1
    L 11 0 -1
    T 12 2 3 -0.25
    T 13 2 3 -1.5 -0.25247
    D 20 1 2 10 12 -0.5 11 13 -0.9327521295671886
    """,
    """
    psdd 6
    L 0 0 1
    L 1 0 -1
    T 2 2 2 -0.6931471805599453
    D 3 1 2 0 2 -0.35 1 2 -1.2
    T 4 4 3 -0.1
    D 5 3 1 3 4 0.0
    """,
)


def _batch(path: Path) -> list[dict[int, int]]:
    """What every row of a file of evidence observes."""
    rows = rows_of_evidence(NETWORK, path)
    return [observed_of(NETWORK, rows.columns, cells) for cells in rows.cells]


def _mmz(name: str) -> tuple[bytes, ...]:
    """The circuits of another format's files in the binary form."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for seed in READERS[name].seeds:
            (Path(folder) / f"x.{name}").write_bytes(seed)
            save(load(Path(folder) / f"x.{name}"), Path(folder) / "x.mmz")
            found.append((Path(folder) / "x.mmz").read_bytes())
        return tuple(found)


_TRACE = (
    "iteration,seconds,pruned_upper,pruned_lower,pruned_edges,split_upper,split_lower,split_edges,variable\n"
    '0,0.1,-1.5,-2.0,10,-1.75,-2.0,20,"x, y"\n1,0.2,-1.75,-2.0,15,-1.9,-1.9,18,7\n'
)

READERS: dict[str, Reader] = {
    "psdd": Reader("psdd", load, _PSDD),
    "jpc": Reader(
        "jpc",
        load,
        _text(
            """
            jpc 9
            L 0 0 1
            L 1 0 -1
            I 2 0 2 2
            C 3 0 2 -1.0 -1.0 -1.3
            B 4 0 3 4 -0.5
            P 5 0 3 0 2 4
            P 6 0 3 1 3 4
            S 7 0 2 5 -0.5 6 -0.9
            """,
            "jpc 3\nL 0 0 1\nL 1 0 -1\nS 2 0 2 0 -0.69 1 -0.69\n",
        ),
    ),
    "spn": Reader(
        "spn",
        load,
        _text(
            """
            (2 3)
            v 0 1
            v 0 0
            v 1 2
            + 0 -0.5 1 -0.9
            * 2 3
            EOF
            """,
            "(2)\nv 0 0\nv 0 1\n+ 0 -0.1 1 -2.3\nEOF\n",
        ),
    ),
    "ac": Reader(
        "ac",
        load,
        _text(
            """
            (2 2)
            v 0 1
            v 0 0
            n 0.25
            n 0.75
            * 0 2
            * 1 3
            + 4 5
            v 1 1
            * 7 6
            EOF
            """
        ),
    ),
    "vtree": Reader(
        "vtree",
        load,
        _text(
            """
            c a tree
            vtree 5
            L 0 4
            L 2 9
            I 1 0 2
            L 4 11
            I 3 1 4
            """
        ),
    ),
    "json": Reader(
        "json",
        load,
        _text(
            """
            {"format": "margmap", "version": 1,
            "variables": [{"name": "a", "cardinality": 3, "states": ["x", "y", "z"]}, {"name": 7}],
            "nodes": [["indicator", 0, 2], ["categorical", 0, [-1.0, -2, "-inf"]], ["sum", [0, 1], [-0.5, -0.75]],
            ["bernoulli", 1, -0.5, -0.9327521295671886], ["product", [2, 3]]]}
            """,
            """
            {"format": "margmap", "version": 1,
            "variables": [{"name": "a=1,\\u001b[31m\\ud800", "cardinality": 4}, {"name": "", "cardinality": 0}],
            "nodes": [["binomial", 0, 3, -0.6931471805599453, -0.6931471805599453], ["gaussian", 1, 2.5, 4.0],
            ["product", [0, 1]], ["indicator", 0, 1], ["product", [1, 3]], ["sum", [2, 4], [-0.1, "-inf"]]]}
            """,
        ),
    ),
    "bif": Reader(
        "bif",
        load_network,
        _text(
            """
            network "n" { property author me ; }
            // a comment
            variable a { type discrete [ 2 ] { yes, no }; property x = 1 ; }
            variable "b c" { type discrete [ 3 ] { "low, or not", mid, high }; }
            /* and
            another */
            probability ( a ) { table 0.25, 0.75 ; }
            probability ( "b c" | a ) { (yes) 0.25, 0.25, 0.5 ; (no) 0.5, 0.5, 0.0 ; }
            """,
            """
            network n {}
            variable a { type discrete[2] {t f}; }
            variable b { type discrete[2] {t f}; }
            probability (a | b) { default 0.5 0.5; (t) 1e-1 9e-1; }
            probability (b) { table 1 0; }
            """,
        ),
    ),
    "uai": Reader(
        "uai",
        load_network,
        _text(
            """
            BAYES
            3
            2 2 3
            3
            1 0
            2 0 1
            2 1 2

            2
            0.25 0.75
            4
            0.5 0.5 1 0
            6
            0.2 0.3 0.5 1e-1 9e-1 0
            """,
            "MARKOV\n2\n2 2\n2\n2 0 1\n0\n4 1.5 0 2 3\n1 0.5\n",
            "BAYES\n2 # nodes\n2 2\n2\n1 0 # rain\n2 0 1 # wet grass\n\n2\n .5 .5\n4 # x\n .5 .5 1 0\n",
        ),
    ),
    "nnf": Reader(
        "nnf",
        load,
        _text(
            """
            nnf 15 17 4
            L -3
            L -2
            L 1
            A 3 2 1 0
            L 3
            O 3 2 4 0
            L -4
            L 4
            A 2 6 5
            A 2 4 7
            L 2
            L -1
            A 2 11 10
            O 4 2 8 9
            A 2 13 12
            """,
            "c small\nnnf 4 2 3\nL 1\nL -1\nA 0\nO 1 2 0 1\n",
        ),
    ),
    "d4": Reader(
        "nnf",
        load,
        _text(
            """
            o 1 0
            o 2 0
            o 3 0
            t 4 0
            f 5 0
            a 6 0
            3 4 -2 3 0
            3 6 2 0
            6 4 5 0
            6 4 -6 0
            2 3 -1 0
            2 4 1 0
            1 2 0
            1 5 0
            """,
            "o 1 0\nt 2 0\n1 2 1 0\n1 2 -1 2 0\n",
        ),
    ),
    "sdd": Reader(
        "sdd",
        load,
        _text(
            """
            c small
            sdd 8
            L 2 0 -1
            L 3 2 2
            L 4 0 1
            F 5
            D 1 1 2 2 3 4 5
            T 7
            L 6 4 -3
            L 8 4 3
            D 0 3 2 1 6 4 7
            """,
            "sdd 5\nL 0 0 1\nL 1 0 -1\nT 2\nL 4 2 2\nD 3 1 2 0 2 1 4\n",
        ),
    ),
    "weights": Reader(
        "txt",
        read_weights,
        _text(
            "1 0.25\n-1 0.75\n2 3\n-2 5\nw 3 0.5 0\n",
            "c x\np cnf 3 1\nc p weight 1 0.25 0\nc p weight -1 2 0\nc p show 1 0\n1 2 0\n",
            "p cnf 2 1\nc weights 0.25 0.75 3 5\n1 2 0\n",
        ),
    ),
    "names": Reader("txt", read_names, _text("1 rain\n2 the sprinkler\nc 3 wet\n", "c 1 a b\nc x\np cnf 2 1\n1 2 0\n")),
    "xmlbif": Reader(
        "xml",
        load_network,
        _text(
            """
            <?xml version="1.0" encoding="UTF-8"?>
            <!DOCTYPE BIF [<!ELEMENT BIF ( NETWORK )*><!ATTLIST BIF VERSION CDATA #REQUIRED>
            <!ATTLIST VARIABLE TYPE (nature|decision|utility) "nature">]>
            <BIF VERSION="0.3"><NETWORK><NAME>x</NAME><PROPERTY>author &lt;nobody&gt;</PROPERTY><!-- a -->
            <VARIABLE TYPE="nature"><NAME>a</NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME></VARIABLE>
            <VARIABLE><NAME>b</NAME><OUTCOME>x&amp;</OUTCOME><OUTCOME>y</OUTCOME><OUTCOME>z</OUTCOME></VARIABLE>
            <DEFINITION><FOR>b</FOR><GIVEN>a</GIVEN><TABLE>0.2 0.3 0.5 <!-- b --> 1e-1 9e-1 0</TABLE></DEFINITION>
            <DEFINITION><FOR>a</FOR><TABLE>0.25 0.75</TABLE></DEFINITION>
            </NETWORK></BIF>
            """,
            """
            <BIF><NETWORK><VARIABLE><NAME>a</NAME><VALUE>1</VALUE><VALUE>2</VALUE></VARIABLE>
            <DEFINITION><FOR>a</FOR><TABLE><![CDATA[0.5 0.5]]></TABLE></DEFINITION></NETWORK></BIF>
            """,
        ),
    ),
    "evid": Reader("evid", lambda path: read_evidence(path, NETWORK), _text("2 0 1 1 2\n", "1\n1 2 0\n", "0\n")),
    "query": Reader("query", lambda path: read_query(path, NETWORK), _text("2 0 2\n", "1\n1\n")),
    "rows": Reader("csv", read_matrix, _text("0,1,2\n1,,0\n", "0.5,-1,nan\n1e3,2,-0.0\n\n", "1,0\n0,1\n1,1\n")),
    "learn": Reader(
        "csv", lambda path: read_tables(read_matrix(path)), _text("0,1,2\n1,1,0\n0,0,0\n", "1,0\n0,1\n255,1.0\n")
    ),
    "batch": Reader("csv", _batch, _text("2,0\n1,0\n,1\n", '"2","0"\n1,nan\n-1,0\n', "1,1,0\n0,,1\n")),
    "instance": Reader(
        "json",
        lambda path: read_instance(path, None),
        _text(
            '{"query": ["a", 7], "evidence": {"b=,": 1, "c": "low", "d": 0.5}}\n',
            '{"instances": [{"query": [1], "evidence": {}}]}\n',
        ),
    ),
    "trace": Reader("csv", read_trace, (_TRACE.encode(),)),
    "gzip": Reader("psdd.gz", load, tuple(gzip.compress(data, mtime=0) for data in _PSDD)),
}

READERS |= {
    "mmz": Reader("mmz", load, _mmz("json")),
}

#: Tokens that are wrong, extreme or special somewhere.
NASTY = [
    *(b"0", b"-0", b"1", b"-1", b"2", b"3", b"63", b"64", b"127", b"128", b"255", b"256", b"1000000000", b"10" * 9),
    *(b"1048575", b"1048576", b"1048577", b"2147483647", b"2147483648", b"-2147483648", b"4294967296", b"1" * 30),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809", b"9" * 400, b"7" * 5000, b"1.0"),
    *(b"0.0", b"-0.0", b"1e999", b"-1e999", b"1e308", b"-1e308", b"1e-320", b"1e-999", b"1e99999999999", b"0x10"),
    *(b"nan", b"NaN", b"inf", b"-inf", b"Infinity", b"-Infinity", b'"-inf"', b"1_0", b"+1", b".5", b"5.", b"1e", b"e5"),
    *(
        b"1,5",
        b"True",
        b"null",
        b"true",
        b"[]",
        b"{}",
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\x1b[2J",
    ),
    *(
        "²".encode(),
        "٣".encode(),
        "\u2028".encode(),
        "\u202e".encode(),
        "😀".encode(),
        b"\x1c",
        b"\x0c",
        b"\x0b",
        b"\r",
    ),
    *(b"\r\n", b"\n\n", b"\t", b'"', b"'", b'""', b"//", b"/*", b"*/", b"\\", b"\\ud800", b"c", b"EOF", b"(", b")"),
    *(b"{", b"}", b"[", b"]", b"|", b";", b",", b"[" * 3000, b'{"a":' * 1200, b"A" * 3000, b"=", b"#", b"%s", b"${x}"),
    *(b'<!DOCTYPE BIF [<!ENTITY e "1">]>', b'<!ENTITY e SYSTEM "x">', b'SYSTEM "x"', b"&e;", b"&#0;", b"%p;", b"<"),
    *(
        b"<![CDATA[",
        b"]]>",
        b"<!--",
        b"-->",
        b"<?x?>",
        b"</BIF>",
        b"<A>" * 900,
        b"xmlns:a='b'",
        b"<!ATTLIST FOR x CDATA 'y'>",
    ),
]

_TOKEN = re.compile(rb'\s+|"[^"]*"|[-+.\w]+|.', re.DOTALL)
_NUMBER = re.compile(rb"[-+]?\d[\d.eE+-]*")


def mutate(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    """The bytes with one to four things changed: bytes, tokens, lines, numbers, or a piece of another file."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        data = rng.choice(_MUTATIONS)(rng, data, others)
    return data[:20_000]


def _bytes(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        if changed:
            changed[rng.randrange(len(changed))] = rng.choice((rng.randrange(256), rng.choice(b'0123456789-+.eE \n,"')))
    return bytes(changed)


def _cut(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    a, b = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return rng.choice((data[:a], data[a:], data[:a] + data[b:], data[:b] + data[a:]))


def _raw(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    noise = rng.randbytes(rng.randint(0, 40))
    at = rng.randint(0, len(data))
    return noise if rng.random() < 0.1 else data[:at] + noise + data[at:]


def _tokens(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    tokens = _TOKEN.findall(data)
    if not tokens:
        return rng.choice(NASTY)
    i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    action = rng.randrange(5)
    if action == 0:
        tokens[i], tokens[j] = tokens[j], tokens[i]
    elif action == 1:
        del tokens[i : i + rng.randint(1, 3)]
    elif action == 2:
        tokens[i:i] = tokens[j : j + rng.randint(1, 4)]
    elif action == 3:
        tokens[i] = rng.choice(NASTY)
    else:
        tokens[i] = tokens[j]
    return b"".join(tokens)


def _numbers(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return data
    a, b = rng.choice(found).span()
    new = rng.choice(found)[0] if rng.random() < 0.4 else rng.choice((str(rng.randint(-3, 30)).encode(), *NASTY))
    return data[:a] + new + data[b:]


def _lines(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    lines = data.split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    action = rng.randrange(4)
    if action == 0:
        lines[i], lines[j] = lines[j], lines[i]
    elif action == 1:
        del lines[i]
    elif action == 2:
        lines.insert(i, lines[j])
    else:
        lines[i] = (lines[i] + b" ") * rng.choice((2, 3, 200))
    return rng.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r")).join(lines)


def _splice(rng: random.Random, data: bytes, others: tuple[bytes, ...]) -> bytes:
    other = rng.choice(others)
    return data[: rng.randint(0, len(data))] + other[rng.randint(0, len(other)) :]


_MUTATIONS = (_bytes, _cut, _raw, _tokens, _tokens, _tokens, _numbers, _numbers, _numbers, _lines, _splice)


def fresh_input(rng: random.Random, name: str) -> bytes:
    """A new input for a reader, a spoiled valid file; now and then of another reader, or gzipped."""
    reader = READERS[name]
    others = reader.seeds if rng.random() < 0.9 else READERS[rng.choice(list(READERS))].seeds
    if name == "gzip":
        outer = rng.random() < 0.5
        data = rng.choice(reader.seeds) if outer else gzip.decompress(rng.choice(reader.seeds))
        data = mutate(rng, data, others)
        return data if outer else gzip.compress(data, rng.choice((0, 1, 9)), mtime=0)
    if name == "mmz" and rng.random() < 0.6:
        data = _spoiled_mmz(rng, rng.choice(reader.seeds))
        return mutate(rng, data, others) if rng.random() < 0.1 else data
    data = mutate(rng, rng.choice(reader.seeds), others)
    return gzip.compress(data, 1, mtime=0) if rng.random() < 0.02 else data


def _spoiled_mmz(rng: random.Random, data: bytes) -> bytes:
    """The members of a zip archive changed, with the sizes and checksums that then fit, and put together again."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["header.json"])
    for _ in range(rng.choice((0, 1, 1, 2))):
        name = rng.choice(list(header["arrays"]))
        entry, whole = header["arrays"][name], members[f"{name}.npy"]
        kind = np.dtype(entry["type"])
        array = np.frombuffer(whole[len(whole) - entry["count"] * kind.itemsize :], kind).copy()
        for _ in range(rng.randint(0, 3)):
            if array.size:
                extremes = (
                    0,
                    1,
                    -1,
                    2,
                    5,
                    127,
                    1 << 31,
                    (1 << 63) - 1,
                    -(1 << 63),
                    math.inf,
                    -math.inf,
                    math.nan,
                    -0.5,
                )
                value = rng.choice((*extremes, array[rng.randrange(array.size)]))
                with np.errstate(all="ignore"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    array[rng.randrange(array.size)] = np.array([value]).astype(kind)[0]
        if rng.random() < 0.2:
            array = np.concatenate((array, array[: rng.randint(0, 3)]))[rng.randint(0, 1) :]
        out = io.BytesIO()
        np.lib.format.write_array(out, array)
        members[f"{name}.npy"] = out.getvalue()
        if rng.random() < 0.9:
            entry["count"], entry["crc32"] = array.size, zlib.crc32(array.tobytes())
    text = json.dumps(header).encode()
    members["header.json"] = mutate(rng, text, (text,)) if rng.random() < 0.4 else text
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members.items():
            if rng.random() > 0.02:
                archive.writestr(name, content)
    return out.getvalue()


class Broken(AssertionError):
    """A reader did something that it must not do."""


def attempt(name: str, path: Path) -> tuple[Any, MargmapError | None]:
    """What a reader makes of a file: a value, or an error of margmap's that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnnormalisedWarning)  # of tables that do not add up to 1: a right answer
            return READERS[name].read(path), None
    except MargmapError as error:
        text = str(error)
        # Some errors are about a row of numbers, whatever file that came from.
        if name not in ("learn", "batch") and path.name not in text:
            raise Broken(f"{name}: the error does not name the file: {text[:200]}") from error
        text.encode("utf-8", "backslashreplace")
        return None, error
    except Exception as error:
        raise Broken(f"{name}: {type(error).__name__}: {str(error)[:200]}") from error


def use(value: Any, folder: Path) -> list[str]:
    """Check, save, read again, evaluate and solve what was read; returns which steps were refused."""
    refused: list[str] = []

    def step(what: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except MargmapError:
            refused.append(what)
            return None
        except Exception as error:
            raise Broken(f"{what}: {type(error).__name__}: {str(error)[:200]}") from error

    if isinstance(value, Vtree):
        save(value, folder / "again.vtree")
        if load(folder / "again.vtree").num_nodes != value.num_nodes:
            raise Broken("a vtree changed when it was written and read")
    if isinstance(value, Circuit):
        step("check", lambda: value.properties)
        for suffix in ("json", "mmz", "jpc", "spn", "ac", "psdd"):
            path = folder / f"again.{suffix}"
            if step(f"save {suffix}", lambda path=path: save(value, path) or True):
                again = load(path)
                if suffix in ("json", "mmz") and (again.variables, again.num_edges) != (
                    value.variables,
                    value.num_edges,
                ):
                    raise Broken("a circuit changed when it was written and read")
        total = step("log_marginal", lambda: log_marginal(value, {}))
        if total is not None and math.isnan(total):
            raise Broken("log_marginal: nan")
    if isinstance(value, Circuit | Network):
        result = step("marginal_map", lambda: marginal_map(value, None, {}, time_limit=1.0))
        if result is not None and not result.log_prob <= result.log_upper + 1e-9:
            raise Broken(f"marginal_map: {result.log_prob} is above its bound {result.log_upper}")
    return refused
