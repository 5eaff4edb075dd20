"""XMLBIF files: what is read, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import margmap as mm

DTD = """<!DOCTYPE BIF [
<!ELEMENT BIF ( NETWORK )*>
<!ATTLIST BIF VERSION CDATA #REQUIRED>
<!ELEMENT NETWORK ( NAME, ( PROPERTY | VARIABLE | DEFINITION )* )>
<!ELEMENT VARIABLE ( NAME, ( OUTCOME | PROPERTY )* ) >
<!ATTLIST VARIABLE TYPE (nature|decision|utility) "nature">
<!ELEMENT TABLE (#PCDATA)>
]>
"""
BODY = """<BIF VERSION="0.3"><NETWORK><NAME>x</NAME><PROPERTY>author nobody</PROPERTY>
<!-- variables -->
<VARIABLE TYPE="nature"><NAME> a </NAME><OUTCOME>yes</OUTCOME><OUTCOME>no</OUTCOME>
<PROPERTY>position = (1, 2)</PROPERTY></VARIABLE>
<VARIABLE><NAME>b &amp; c</NAME><OUTCOME>lo</OUTCOME><OUTCOME>mid</OUTCOME><OUTCOME>hi</OUTCOME></VARIABLE>
<VARIABLE TYPE="nature"><NAME>d</NAME><OUTCOME>0</OUTCOME><OUTCOME>1</OUTCOME></VARIABLE>
<DEFINITION><FOR>d</FOR><GIVEN>a</GIVEN><GIVEN>b &amp; c</GIVEN><TABLE>
0.1 0.9 <!-- yes, lo --> 0.2 0.8
0.3 0.7
0.4 0.6 0.5 0.5 0.6 0.4 </TABLE></DEFINITION>
<DEFINITION><FOR>a</FOR><TABLE>0.3 0.7</TABLE></DEFINITION>
<DEFINITION><FOR>b &amp; c</FOR><GIVEN>a</GIVEN><TABLE>0.2 0.3 0.5 0.6 0.3 0.1</TABLE></DEFINITION>
</NETWORK></BIF>
"""
HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'


@pytest.mark.parametrize("suffix", ["xmlbif", "bifxml", "xml", "xml.gz"])
@pytest.mark.parametrize("head", ["", HEAD, HEAD + DTD, HEAD.replace("UTF-8", "US-ASCII")])
def test_a_network(tmp_path, suffix, head):
    import gzip

    path = tmp_path / f"x.{suffix}"
    path.write_bytes((gzip.compress if suffix.endswith("gz") else bytes)((head + BODY).encode()))
    network = mm.load_network(path)
    assert [(v.name, v.states) for v in network.variables] == [
        ("a", ("yes", "no")),
        ("b & c", ("lo", "mid", "hi")),
        ("d", ("0", "1")),
    ]
    assert network.parents("d") == ("a", "b & c")
    np.testing.assert_array_equal(network.factors[2].table[..., 1], [[0.9, 0.8, 0.7], [0.6, 0.5, 0.4]])
    np.testing.assert_allclose(network.factors[1].table, [[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
    found = mm.log_marginal(mm.compile(network), {"a": "no", "b & c": "mid", "d": 1})
    assert np.exp(found) == pytest.approx(0.7 * 0.3 * 0.5)


def test_rows_of_six_printed_decimals_need_not_add_up_to_1_exactly(tmp_path):
    path = tmp_path / "x.xml"
    states = "".join(f"<OUTCOME>s{i}</OUTCOME>" for i in range(7))
    table = " ".join(["0.142857"] * 7)  # 0.999999
    one = f"<VARIABLE><NAME>a</NAME>{states}</VARIABLE><DEFINITION><FOR>a</FOR><TABLE>{table}</TABLE></DEFINITION>"
    path.write_text(f"<BIF><NETWORK>{one}</NETWORK></BIF>")
    np.testing.assert_allclose(mm.load_network(path).factors[0].table, np.full(7, 1 / 7), rtol=1e-15)
    path.write_text(f"<BIF><NETWORK>{one}</NETWORK></BIF>".replace("0.142857 0.142857", "0.142857 0.14286", 1))
    mm.load_network(path)  # 1.000002: within 3.5e-6 of 1
    path.write_text(f"<BIF><NETWORK>{one}</NETWORK></BIF>".replace("0.142857 0.142857", "0.142857 0.142862", 1))
    with pytest.raises(mm.FormatError, match=r"the table of 'a' sums to 1\.000004, not to 1"):
        mm.load_network(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<BIF VERSION", '<!DOCTYPE BIF SYSTEM "http://example.org/bif.dtd"><BIF VERSION', "refers to another file"),
        ("<BIF VERSION", '<!DOCTYPE BIF PUBLIC "x" "y"><BIF VERSION', "refers to another file"),
        ("<BIF VERSION", '<!DOCTYPE BIF [<!ENTITY e "0.3 0.7">]><BIF VERSION', "declares an entity"),
        ("<BIF VERSION", '<!DOCTYPE BIF [<!ENTITY e SYSTEM "/etc/passwd">]><BIF VERSION', "declares an entity"),
        ("<BIF VERSION", '<!DOCTYPE BIF [<!ENTITY % e "x">]><BIF VERSION', "declares an entity"),
        ("<BIF VERSION", '<!DOCTYPE BIF [<!NOTATION n SYSTEM "x">]><BIF VERSION', "declares a notation"),
        ("<BIF VERSION", "<!DOCTYPE BIF [%other;]><BIF VERSION", "refers to an entity"),
        ("<BIF V", '<!DOCTYPE BIF [%o; <!ENTITY e "0.3 0.7">]><BIF V', "refers to an entity"),
        (
            "<BIF VERSION",
            f'<!DOCTYPE BIF [<!ATTLIST FOR x CDATA "{"y" * 2000}">]><BIF VERSION',
            "attributes by default",
        ),
        ("0.3 0.7</TABLE>", "&e;</TABLE>", "line 11: not XML that can be read: undefined entity"),
        ("0.3 0.7</TABLE>", "0.3 0.7", "not XML that can be read: mismatched tag"),
        ("</NETWORK></BIF>", "", "not XML that can be read: no element found"),
        ("BIF", "SMILE", "line 1: this is no XMLBIF: expected the element BIF, found 'SMILE'"),
        ("0.3 0.7</TABLE>", "0.3 x</TABLE>", "line 11: the table of 'a' has something that is no number: 'x'"),
        ("0.3 0.7</TABLE>", "0.3 ٣</TABLE>", "line 11: the table of 'a' has something that is no number"),
        ("0.3 0.7</TABLE>", "0.3</TABLE>", "line 11: the table of 'a' has 1 numbers, but needs 2"),
        ("0.3 0.7</TABLE>", "0.3 0.6</TABLE>", "line 11: the table of 'a' sums to 0.9, not to 1"),
        ("0.3 0.7</TABLE>", "-0.3 1.3</TABLE>", "line 11: the table of 'a' has a negative number"),
        ("0.3 0.7</TABLE>", "nan 0.7</TABLE>", "line 11: the table of 'a' has a number that is not finite"),
        ("<TABLE>0.3 0.7</TABLE>", "", "line 11: the definition of 'a' has 0 tables"),
        ("<TABLE>0.3 0.7", "<TABLE><ROW/>0.3 0.7", "line 11: TABLE holds text, not the element 'ROW'"),
        ("<FOR>a</FOR>", "", "line 11: a definition is for 0 variables"),
        ("<FOR>a</FOR>", "<FOR>z</FOR>", "line 11: variable 'z' is not defined"),
        ("<FOR>d</FOR>", "<FOR>a</FOR>", "line 7: the table of 'a' has variable 'a' twice"),
        ("<NAME>d</NAME>", "<NAME>a</NAME>", "line 6: variable 'a' is defined a second time"),
        ("<NAME>d</NAME>", "", "line 6: a variable has 0 names"),
        ("<OUTCOME>0</OUTCOME><OUTCOME>1</OUTCOME>", "", "line 6: variable 'd' has no outcomes"),
        ("<OUTCOME>1</OUTCOME>", "<OUTCOME>0</OUTCOME>", "line 6: variable 'd': its state names are not distinct"),
        ('TYPE="nature"><NAME>d', 'TYPE="utility"><NAME>d', "line 6: variable 'd' is of type 'utility'"),
        ("<FOR>a</FOR>", "<FOR>a</FOR><GIVEN>d</GIVEN>", "needs 4"),
        ("<NETWORK>", "<NETWORK/><NETWORK>", "a second network"),
    ],
)
def test_what_is_refused(tmp_path, old, new, message):
    path = tmp_path / "x.xml"
    assert old in BODY
    path.write_text(BODY.replace(old, new))
    with pytest.raises(mm.FormatError, match=message) as caught:
        mm.load_network(path)
    assert "x.xml" in str(caught.value)


def test_other_encodings_are_refused(tmp_path):
    path = tmp_path / "x.xml"
    path.write_text(HEAD.replace("UTF-8", "ISO-8859-1") + BODY)
    with pytest.raises(mm.FormatError, match="the encoding 'ISO-8859-1' is not read"):
        mm.load_network(path)
    path.write_text(f"<BIF><NETWORK>{''.join(f'<A{i}>' for i in range(50_000))}")
    with pytest.raises(mm.FormatError, match="no element found"):  # however deep
        mm.load_network(path)
    path.write_text("<BIF><NETWORK></NETWORK></BIF>")
    with pytest.raises(mm.FormatError, match="no variable"):
        mm.load_network(path)


@pytest.mark.filterwarnings("ignore")
def test_what_pgmpy_writes(tmp_path):
    pytest.importorskip("pgmpy")
    from pgmpy.readwrite import XMLBIFWriter

    rng = np.random.default_rng(1)
    a, b, c = (
        mm.Variable("a", 2, ("yes", "no")),
        mm.Variable("b", 3, ("x", "y", "z")),
        mm.Variable("c", 4, tuple("pqrs")),
    )
    tables = [rng.dirichlet([1.0] * 2), rng.dirichlet([1.0] * 3, size=2), rng.dirichlet([1.0] * 4, size=(2, 3))]
    network = mm.Network([a, b, c], [([0], tables[0]), ([0, 1], tables[1]), ([0, 1, 2], tables[2])])
    XMLBIFWriter(mm.to_pgmpy(network)).write_xmlbif(str(tmp_path / "x.xml"))
    again = mm.load_network(tmp_path / "x.xml")
    assert {v.name: v.states for v in again.variables} == {v.name: v.states for v in network.variables}
    for state in mm.sample(mm.compile(network), 20, seed=1):
        evidence = {v.name: v.label(int(x)) for v, x in zip(network.variables, state, strict=True)}
        found = mm.log_marginal(mm.compile(again), evidence)
        assert found == pytest.approx(mm.log_marginal(mm.compile(network), evidence), abs=1e-9)
