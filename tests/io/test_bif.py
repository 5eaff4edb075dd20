"""BIF files, as they are and as they should not be."""

from pathlib import Path

import numpy as np
import pytest

import margmap as mm
from margmap.io import bif

RAIN = """
// A comment, then a block of them
/* network fake { } */
network "the \tweather" { property made by = hand { ; }
variable rain { type discrete[2] { "heavy rain", no }; property position = (1, 2); }
variable  "wet grass"{
  type discrete [ 3 ] { a/b, <=5 , "c" } ; // state names may look odd
}
variable sprinkler { property x = "a;b"; type discrete [2] {on off}; }
probability ( rain ) { table 2e-1, .8; }
probability("wet grass"|rain,sprinkler) {
  (no, on) 0.1 0.2 0.7;
  (no, off) 0.3, 0.3, 0.4;   /* rows
  in any order */
  default 0.5, 0.25, 0.25;
  property checked;
}
probability ( sprinkler | rain ) { table 0.9, 0.2, 0.1, 0.8; }
"""


def read(text):
    return bif.read(text.replace("made by = hand { ;", "made by = hand;").split("\n"), Path("net.bif"))


def test_names_states_and_tables_survive_odd_writing():
    network = read(RAIN)
    assert network.names == ("rain", "wet grass", "sprinkler")
    assert network.variables[0].states == ("heavy rain", "no")
    assert network.variables[1].states == ("a/b", "<=5", "c")
    assert network.parents("wet grass") == ("rain", "sprinkler")
    assert network.kind == "bayes"
    grass = network.factors[1].table
    np.testing.assert_allclose(grass[1, 0], [0.1, 0.2, 0.7])
    np.testing.assert_allclose(grass[0, 1], [0.5, 0.25, 0.25])
    # In `table` the child varies slowest: p(on | heavy rain) = 0.9, p(on | no) = 0.2.
    np.testing.assert_allclose(network.factors[2].table, [[0.9, 0.1], [0.2, 0.8]])


def test_rows_are_divided_by_their_sum_when_printed_digits_miss_one():
    network = read(RAIN.replace("(no, off) 0.3, 0.3, 0.4", "(no, off) 0.3333333, 0.3333333, 0.3333333"))
    np.testing.assert_allclose(network.factors[1].table[1, 1], [1 / 3] * 3, rtol=0, atol=1e-16)


TINY = """network t { }
variable A { type discrete [ 2 ] { yes, no }; }
variable B { type discrete [ 2 ] { yes, no }; }
probability ( A ) { table 0.3, 0.7; }
probability ( B | A ) {
  (yes) 0.1, 0.9;
  (no) 0.2, 0.8;
}
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("( A ) {", "( A | B ) {", 4, "table of 'A' has 2 numbers, but needs 4"),
        ("table 0.3, 0.7", "table 0.3, 0.7, 0.0", 4, "has 3 numbers, but needs 2"),
        ("(no) 0.2, 0.8;", "(no) 0.2, 0.8, 0;", 7, "a row of 'B' has 3 numbers, but needs 2"),
        ("(no) 0.2, 0.8;", "(no) 0.2, 0.80001;", 5, r"table of 'B' given A=no sums to 1.00001, not to 1"),
        ("(no) 0.2, 0.8;", "", 5, r"1 of 2 rows of 'B' are missing, such as \(no\)"),
        ("(no) 0.2, 0.8;", "(yes) 0.2, 0.8;", 7, "a row of 'B' is there twice"),
        ("(no) 0.2, 0.8;", "(maybe) 0.2, 0.8;", 7, r"'A' has no state 'maybe' \(it has yes, no\)"),
        ("(no) 0.2, 0.8;", "(no, no) 0.2, 0.8;", 7, "names 2 states for 1 parents"),
        ("(no) 0.2, 0.8;", "(no) 0.2, x;", 7, "no number: 'x'"),
        ("(no) 0.2, 0.8;", "(no) -0.2, 1.2;", 7, "-0.2 is no probability"),
        ("(no) 0.2, 0.8;", "(no) nan, 0.8;", 7, "nan is no probability"),
        ("(no) 0.2, 0.8;", "(no) 0.2, 0_8;", 7, "no number: '0_8'"),
        ("(no) 0.2, 0.8;", "(no) 0.2, 0.8", 7, "does not end in ';'|no number|needs 2"),
        ("table 0.3, 0.7;", "", 4, "the table of 'A' is missing"),
        ("probability ( A ) { table 0.3, 0.7; }", "", None, "variable 'A' has no table"),
        ("probability ( A )", "probability ( B )", 5, "variable 'B' has a second table"),
        ("variable B", "variable A", 3, "variable 'A' is defined a second time"),
        ("( B | A )", "( B | C )", 5, "variable 'C' is not defined"),
        (
            "[ 2 ] { yes, no }; }\nvariable B",
            "[ 3 ] { yes, no }; }\nvariable B",
            2,
            "2 states, but announces '3'",
        ),
        ("{ yes, no }; }\nvariable B", "{ yes, yes }; }\nvariable B", 2, "its state names are not distinct"),
        ("type discrete [ 2 ] { yes, no }; }\nvariable B", "}\nvariable B", 2, "'A' has no 'type discrete' line"),
        ("type discrete [ 2 ]", "type continuous [ 2 ]", 2, "'A' is not discrete"),
        ("network t", "netwerk t", 1, "expected 'network', 'variable' or 'probability', found 'netwerk'"),
        ("(no) 0.2, 0.8;\n}", "(no) 0.2, 0.8;", 5, "does not end in '}'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(old, new, line, message):
    assert old in TINY
    with pytest.raises(mm.FormatError, match=message) as caught:
        read(TINY.replace(old, new, 1))
    assert caught.value.line == line
    assert "net.bif" in str(caught.value)


def test_a_cycle_is_spelled_out():
    text = TINY.replace("probability ( A ) { table 0.3, 0.7; }", "probability ( A | B ) { table 0.3, 0.7, 0.7, 0.3; }")
    with pytest.raises(mm.FormatError, match=r"cycle: (A -> B -> A|B -> A -> B)") as caught:
        read(text)
    assert caught.value.line in (4, 5)


def test_truncated_files_are_refused_wherever_they_end():
    for cut in range(1, len(TINY) - 3, 7):
        with pytest.raises(mm.FormatError):
            read(TINY[:cut])


def test_load_network_reads_by_suffix_and_gzip(tmp_path):
    import gzip

    (tmp_path / "t.bif.gz").write_bytes(gzip.compress(TINY.encode()))
    (tmp_path / "t.txt").write_text(TINY)
    assert mm.load_network(tmp_path / "t.bif.gz").names == ("A", "B")
    assert mm.load_network(tmp_path / "t.txt", "bif").names == ("A", "B")
    with pytest.raises(mm.FormatError, match="not a network"):
        mm.load_network(tmp_path / "t.txt")
    assert mm.load(tmp_path / "t.bif.gz").names == ("A", "B")
    with pytest.raises(mm.FormatError, match="not a circuit: read it with load"):
        mm.load_circuit(tmp_path / "t.bif.gz")
    with pytest.raises(mm.FormatError, match="no such file"):
        mm.load_network(tmp_path / "none.bif")
