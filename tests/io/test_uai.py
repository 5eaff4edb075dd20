"""UAI files with their evidence and queries."""

from pathlib import Path

import numpy as np
import pytest

import margmap as mm
from margmap.errors import UnnormalisedWarning
from margmap.foundation import jit
from margmap.io import uai

MARKOV = "MARKOV\n3\n2 2 3\n3\n1 0\n2 1 2\n0\n\n2\n 4.0 1.0\n6\n 1 2 3\n 0 5 6\n1\n 2.5\n"
BAYES = "BAYES 2 2 2 2 1 0 2 0 1 2 .3 .7 4 .1 .9 .5 .5"


def read(text):
    return uai.read(text.split("\n"), Path("x.uai"))


def test_markov_and_bayes():
    markov = read(MARKOV)
    assert (markov.kind, markov.names) == ("markov", (0, 1, 2))
    assert [factor.scope for factor in markov.factors] == [(0,), (1, 2), ()]
    np.testing.assert_array_equal(markov.factors[1].table, [[1, 2, 3], [0, 5, 6]])
    assert mm.log_marginal(mm.compile(markov)) == pytest.approx(np.log(5 * 17 * 2.5), abs=1e-12)
    bayes = read(BAYES)
    assert bayes.kind == "bayes"
    assert bayes.parents(1) == (0,)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("MARKOV", "MARKOF", "expected BAYES or MARKOV, found 'MARKOF'"),
        ("2 2 3\n3", "2 2 0\n3", "number of values of variable 2 is out of range"),
        ("2 1 2", "2 1 3", "a variable of factor 1 is out of range 0 to 2: '3'"),
        ("2 1 2", "2 1 1", "factor 1 has variable 1 twice|needs 4 entries"),
        ("6\n 1", "5\n 1", "factor 1 needs 6 entries, but announces '5'"),
        ("1\n 2.5", "1", "truncated"),
        ("0 5 6", "0 x 6", "an entry of factor 1 is not a number: 'x'"),
        ("0 5 6", "-1 5 6", "factor 1 has a negative number"),
        ("0 5 6", "nan 5 6", "not finite"),
        ("0 5 6", "1_0 5 6", "unexpected character '_'"),
        ("2.5", "2.5 7", "goes on after the last table: '7'"),
        ("\n3\n2 2 3", "\n3000000000\n2 2 3", "the file is truncated"),
    ],
)
def test_bad_files_are_refused(old, new, message):
    assert old in MARKOV
    with pytest.raises(mm.FormatError, match=message):
        read(MARKOV.replace(old, new, 1))


def test_bad_bayes_files_are_refused():
    with pytest.raises(mm.FormatError, match="variable 0 has a second table"):
        read("BAYES 2 2 2 2 1 0 1 0 2 .3 .7 2 .3 .7")
    with pytest.raises(mm.FormatError, match="the network has a cycle: "):
        read("BAYES 2 2 2 2 2 1 0 2 0 1 4 .5 .5 .5 .5 4 .5 .5 .5 .5")


def test_bayes_files_with_other_numbers_are_read_as_markov_with_a_warning():
    text = BAYES.replace(" ", "\n").replace(".1\n.9", ".2\n.9")
    line = text.split("\n").index(".2")  # that of the number of entries, the one before
    message = rf"line {line}: the table of variable 1 given 0=0 sums to 1\.1, not to 1.* MARKOV"
    with pytest.warns(UnnormalisedWarning, match=message):
        network = read(text)
    assert network.kind == "markov"
    assert network.factors[1].table[0].tolist() == [0.2, 0.9]


def test_comments_are_skipped():
    text = "# made by hand\n" + MARKOV.replace("\n", " # more 1 2 3\n", 1)
    assert [f.table.tolist() for f in read(text).factors] == [f.table.tolist() for f in read(MARKOV).factors]


@pytest.mark.parametrize("text", ["# the query\n2 0 2", "2 # two\n0 2 # these"])
def test_comments_in_queries(tmp_path, text):
    path = tmp_path / "a.query"
    path.write_text(text)
    assert uai.read_query(path, read(MARKOV)) == [0, 2]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", {}),
        ("1 0", {}),
        ("1\n0\n", {}),
        ("2 0 1 2 2", {0: 1, 2: 2}),
        ("1\n2 0 1 2 2", {0: 1, 2: 2}),
        ("1 2 1", {2: 1}),
        ("1 1 2 1", {2: 1}),
    ],
)
def test_evidence_with_and_without_the_number_of_samples(tmp_path, text, expected):
    path = tmp_path / "x.uai.evid"
    path.write_text(text)
    assert uai.read_evidence(path, read(MARKOV)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 0 1", "fit neither"),
        ("2 1 0 1 1 1 1", "several samples"),
        ("1 7 0", "out of range 0 to 2: '7'"),
        ("1 2 3", "out of range 0 to 2: '3'"),
        ("2 1 0 1 1", "observed twice"),
        ("x", "whole number"),
    ],
)
def test_bad_evidence_is_refused(tmp_path, text, message):
    path = tmp_path / "x.uai.evid"
    path.write_text(text)
    with pytest.raises(mm.FormatError, match=message):
        uai.read_evidence(path, read(MARKOV))


def test_queries(tmp_path):
    path = tmp_path / "x.uai.query"
    path.write_text("2 2 0\n")
    assert uai.read_query(path, read(MARKOV)) == [2, 0]
    for text, message in (("3 0 1", "announces 3"), ("1 3", "out of range"), ("2 1 1", "queried twice")):
        path.write_text(text)
        with pytest.raises(mm.FormatError, match=message):
            uai.read_query(path, read(MARKOV))


@pytest.mark.parametrize("tier", ["interpret", "compile"])
def test_numbers_are_read_to_the_last_bit(tier):
    with jit.forced(tier):
        check_numbers()


def check_numbers():
    rng = np.random.default_rng(0)
    texts = [repr(float(x)) for x in rng.random(300) * 10.0 ** rng.integers(-30, 30, 300)]
    texts += [f"{x:.6g}" for x in rng.random(300)] + [f"{x:.3e}" for x in rng.random(300)]
    texts += [
        "0",
        "0.0",
        "1.",
        ".5",
        "1E3",
        "1e+2",
        "5e-324",
        "123456789012345",
        "0.000000000000001",
        "00012.50",
        "0e999",
    ]
    for text in texts:
        read_back = read(f"MARKOV 1 1 1 1 0 1 {text}").factors[0].table[0]
        assert read_back == float(text), text
    together = read(f"MARKOV 1 {len(texts)} 1 1 0 {len(texts)} {' '.join(texts)}").factors[0].table
    assert together.tolist() == list(map(float, texts))


NAMED = """BAYES
3 # how many
2 2 3
3
1 0   # rain
2 0 1   # sprinkler
2 1 2   # wet größer

2
 .3 .7
4 # of the sprinkler
 .1 .9
 .5 .5 # given rain
6
 .2 .3 .5
 .6 .3 .1
"""


def test_names_in_the_comments_of_scopes():
    network = read(NAMED)
    assert network.names == ("rain", "sprinkler", "wet größer")
    assert network.parents("wet größer") == ("sprinkler",)
    np.testing.assert_allclose(network.factors[2].table, [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    plain = read("\n".join(line.partition("#")[0] for line in NAMED.split("\n")))
    assert plain.names == (0, 1, 2)
    for mine, other in zip(network.factors, plain.factors, strict=True):
        np.testing.assert_array_equal(mine.table, other.table)


@pytest.mark.parametrize(
    ("old", "new"),
    [("# sprinkler", ""), ("# sprinkler", "#"), ("# sprinkler", "# rain"), ("1 0   # rain\n2 0 1", "1 0 2 0 1")],
)
def test_comments_that_name_not_every_variable_are_no_names(old, new):
    assert read(NAMED.replace(old, new)).names == (0, 1, 2)


def test_comments_in_markov_files_are_no_names():
    text = MARKOV.replace("1 0\n2 1 2\n0\n", "1 0 # {0}\n2 1 2 # {1, 2}\n0 # {}\n")
    assert read(text).names == (0, 1, 2)
    with pytest.raises(mm.FormatError, match=r"x\.uai, line 13: an entry of factor 1 is not a number: 'x'"):
        read(text.replace("0 5 6", "0 x 6 # here"))


def test_files_beside_a_model(tmp_path):
    for name in ("x.uai", "x.uai.gz"):
        evidence, query = uai.files_beside(tmp_path / name)
        assert (evidence.name, query.name) == ("x.uai.evid", "x.uai.query")
    (tmp_path / "x.uai.map").write_text("1 2\n")
    assert uai.files_beside(tmp_path / "x.uai.gz")[1].name == "x.uai.map"
    (tmp_path / "x.uai.query").write_text("1 2\n")
    assert uai.files_beside(tmp_path / "x.uai")[1].name == "x.uai.query"
