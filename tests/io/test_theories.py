"""Files of Boolean theories against enumeration, and the weights and names that come with them."""

from __future__ import annotations

import math
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
from theories import c2d, d4, models, random_cnf, random_weights, sdd, table

SEEDS = range(60)


def write(folder: Path, form: str, cnf, n: int) -> Path:
    """A theory in a file of one of the three kinds."""
    path = folder / f"theory.{'sdd' if form == 'sdd' else 'nnf'}"
    if form == "sdd":
        text, tree = sdd(cnf, n)
        (folder / "theory.vtree").write_text(tree)
    else:
        text = c2d(cnf, n) if form == "c2d" else d4(cnf)
    path.write_text(text)
    return path


def theory(seed: int, form: str):
    """A random theory that has a model."""
    rng = random.Random(f"{form} {seed}")
    while True:
        n = rng.randint(1, 7)
        cnf = random_cnf(rng, n)
        if models(cnf, n):
            return rng, n, cnf


@pytest.mark.parametrize("form", ["c2d", "d4", "sdd"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_circuit_is_the_weight_of_each_model(tmp_path, form, seed):
    rng, n, cnf = theory(seed, form)
    weights = random_weights(rng, n)
    expected = table(cnf, n, weights)
    circuit = mm.load(write(tmp_path, form, cnf, n), weights=weights)
    assert circuit.names == tuple(range(1, n + 1))
    states = list(product((0, 1), repeat=n))
    found = np.exp(mm.log_likelihood(circuit, states))
    np.testing.assert_allclose(found, [expected.get(state, 0.0) for state in states], rtol=1e-12, atol=0)
    assert circuit.properties.smooth
    assert circuit.properties.decomposable
    total = math.fsum(expected.values())
    assert math.exp(mm.log_marginal(circuit, {})) == pytest.approx(total, rel=1e-12)
    query = rng.sample(range(1, n + 1), rng.randint(1, n))
    sums: dict[tuple[int, ...], float] = {}
    for state, value in expected.items():
        key = tuple(state[v - 1] for v in query)
        sums[key] = sums.get(key, 0.0) + value
    if total > 0:
        result = mm.marginal_map(circuit, query)
        assert math.exp(result.log_prob) == pytest.approx(max(sums.values()), rel=1e-9)
        assert sums[tuple(result.state[v] for v in query)] == pytest.approx(max(sums.values()), rel=1e-9)


@pytest.mark.parametrize("form", ["c2d", "d4", "sdd"])
@pytest.mark.parametrize("seed", range(15))
def test_without_weights_models_are_counted(tmp_path, form, seed):
    _, n, cnf = theory(seed, form)
    # The number of variables is in no file of d4: a name for each says which there are.
    names = [f"x{v}" for v in range(1, n + 1)]
    circuit = mm.load(write(tmp_path, form, cnf, n), names=names)
    assert circuit.names == tuple(names)
    assert math.exp(mm.log_marginal(circuit, {})) == pytest.approx(len(models(cnf, n)), rel=1e-12)


OR = "o 1 0\nt 2 0\n1 2 1 0\n1 2 -1 2 0\n"  # x1 or x2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 0.25\n-1 0.75\n2 3\n-2 5\n", {(0, 1): 0.75 * 3, (1, 0): 0.25 * 5, (1, 1): 0.25 * 3}),
        ("# a comment\n1 0.25 0\n2 0.5 0\n", {(0, 1): 0.75 * 0.5, (1, 0): 0.25 * 0.5, (1, 1): 0.25 * 0.5}),
        ("w 1 0.25\nw -2 0.125 0\n", {(0, 1): 0.75 * 0.875, (1, 0): 0.25 * 0.125, (1, 1): 0.25 * 0.875}),
        (
            "c weighted\np cnf 2 1\nc p weight 1 0.25 0\nc p weight -1 2 0\nc p show 1 0\n1 2 0\n",
            {(0, 1): 2.0, (1, 0): 0.25, (1, 1): 0.25},
        ),
        ("p cnf 2 1\nc weights 0.25 0.75 3 5\n1 2 0\n", {(0, 1): 0.75 * 3, (1, 0): 0.25 * 5, (1, 1): 0.25 * 3}),
    ],
)
def test_files_of_weights(tmp_path, text, expected):
    (tmp_path / "or.nnf").write_text(OR)
    (tmp_path / "weights").write_text(text)
    circuit = mm.load(tmp_path / "or.nnf", weights=tmp_path / "weights")
    for state in product((0, 1), repeat=2):
        assert math.exp(mm.log_likelihood(circuit, [state])[0]) == pytest.approx(expected.get(state, 0.0), rel=1e-14)


def test_a_dimacs_file_says_how_many_variables_there_are_and_what_they_are_called(tmp_path):
    (tmp_path / "or.nnf").write_text(OR)
    cnf = tmp_path / "or.cnf"
    cnf.write_text("c 1 rain\nc 2 the sprinkler\nc 2024 was wet\nc no name\np cnf 3 1\nc p weight 3 0.25 0\n1 2 0\n")
    with pytest.raises(mm.FormatError, match=r"or\.cnf, line 3: variable 2024 is out of range 1 to 3"):
        mm.load(tmp_path / "or.nnf", weights=cnf, names=cnf)
    cnf.write_text(cnf.read_text().replace("c 2024 was wet\n", ""))
    circuit = mm.load(tmp_path / "or.nnf", weights=cnf, names=cnf)
    assert circuit.names == ("rain", "the sprinkler", 3)
    assert math.exp(mm.log_marginal(circuit, {3: 1})) == pytest.approx(3 * 0.25)
    assert math.exp(mm.log_marginal(mm.load(tmp_path / "or.nnf", weights={4: (1, 1)}), {})) == pytest.approx(6)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({1: -0.5}, r"or\.nnf: literal 1 has weight -0\.5"),
        ({1: math.nan}, "literal 1 has weight nan"),
        ({1: math.inf}, "literal 1 has weight inf"),
        ({-2: 1.5}, "literal -2 has weight 1.5 and literal 2 has none"),
        ({1: (0.5, 0.5), -1: 0.25}, "literal -1 has two weights, 0.5 and 0.25"),
        ({"rain": 0.5}, "weights of 'rain': that is neither a literal nor the name of a variable; names= says"),
        ({0: 0.5}, "weights of 0"),
        ({1: "much"}, "the weight of 1 is 'much'"),
        ({1: (0.1, 0.2, 0.3)}, "the weight of 1 is"),
        ([0.5], "weights are a dict"),
    ],
)
def test_weights_that_cannot_be(tmp_path, weights, message):
    (tmp_path / "or.nnf").write_text(OR)
    with pytest.raises(mm.FormatError, match=message):
        mm.load(tmp_path / "or.nnf", weights=weights)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0.5\n1 0.25\n", r"weights, line 2: literal 1 has a weight already, on line 1"),
        ("1 -0.5\n", "weights: literal 1 has weight -0.5"),
        ("1 much\n", "line 1: 'much' is not a number"),
        ("x 0.5\n", "line 1: 'x' is no number of a variable"),
        ("0 0.5\n", "line 1: variable 0 is out of range"),
        ("1 0.5 0.5\n", "line 1: expected a literal and its weight"),
        ("c nothing\n", "there are no weights in this file: expected lines 'literal weight'"),
        ("p cnf 2 1\n1 2 0\n", "there are no weights in this file: expected lines 'c p weight"),
        ("p cnf 2 1\nc p weight 3 0.5 0\n", "line 2: literal 3 is out of range: the file has 2 variables"),
        ("p cnf\n1 0.5\n", "line 1: expected 'p cnf variables clauses'"),
        ("٣ 0.5\n", "line 1: '٣' is no number"),
    ],
)
def test_files_of_weights_that_cannot_be(tmp_path, text, message):
    (tmp_path / "or.nnf").write_text(OR)
    (tmp_path / "weights").write_text(text)
    with pytest.raises(mm.FormatError, match=message):
        mm.load(tmp_path / "or.nnf", weights=tmp_path / "weights")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 rain\n1 snow\n", "names, line 2: variable 1 has a name already"),
        ("1 rain\n2 rain\n", "line 2: two variables are called 'rain'"),
        ("1\n", "line 1: variable 1 has no name"),
        ("rain 1\n", "line 1: 'rain' is no number of a variable"),
        ("c\n", "there are no names in this file"),
    ],
)
def test_files_of_names_that_cannot_be(tmp_path, text, message):
    (tmp_path / "or.nnf").write_text(OR)
    (tmp_path / "names").write_text(text)
    with pytest.raises(mm.FormatError, match=message):
        mm.load(tmp_path / "or.nnf", names=tmp_path / "names")


def test_names_in_python(tmp_path):
    (tmp_path / "or.nnf").write_text(OR)
    assert mm.load(tmp_path / "or.nnf", names={2: "b"}, weights={"b": 0.5}).names == (1, "b")
    for names, message in (({0: "x"}, "0 is no number"), (7, "names are a dict"), ({1: 1.5}, "a string or an integer")):
        with pytest.raises(mm.FormatError, match=message):
            mm.load(tmp_path / "or.nnf", names=names)
    with pytest.raises(mm.FormatError, match="'a' is there twice"):
        mm.load(tmp_path / "or.nnf", names=["a", "a"])


def test_weights_are_for_theories(tmp_path):
    path = tmp_path / "x.spn"
    path.write_text("(2)\nv 0 0\nv 0 1\n+ 0 -0.1 1 -2.3\nEOF\n")
    with pytest.raises(mm.FormatError, match=r"go with \.nnf and \.sdd files: a spn file has its own"):
        mm.load(path, weights={1: 0.5})
    (tmp_path / "or.nnf").write_text(OR)
    with pytest.raises(mm.FormatError, match="a vtree goes with an SDD"):
        mm.load(tmp_path / "or.nnf", vtree=tmp_path / "or.vtree")
    circuit = mm.load(tmp_path / "or.nnf")
    with pytest.raises(mm.FormatError, match=r"nnf files are only read: save a circuit as one of \.psdd"):
        mm.save(circuit, tmp_path / "again.nnf")
    mm.save(circuit, tmp_path / "again.json")
    assert mm.log_marginal(mm.load(tmp_path / "again.json"), {}) == mm.log_marginal(circuit, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nnf 1 0\nL 1\n", "line 1: expected the header 'nnf nodes edges variables'"),
        ("nnf 2 0 1\nL 1\n", "announces 2 nodes, and there are 1"),
        ("nnf 1 0 1\nL 2\n", "line 2: literal 2 is out of range: there are the variables 1 to 1"),
        ("nnf 1 0 1\nL 0\n", "line 2: literal 0 is out of range"),
        ("nnf 1 0 1\nL x\n", "line 2: 'x' is not a whole number"),
        ("nnf 1 0 1\nX 1\n", "line 2: unknown node type 'X'"),
        ("nnf 1 0 1\nL 1 2\n", "line 2: too many numbers"),
        ("nnf 2 1 1\nL 1\nA 2 0\n", "line 3: too few numbers"),
        ("nnf 2 1 1\nL 1\nA\n", r"line 3: too few numbers: 'A k child\*k' needs 1, found 0"),
        ("nnf 2 1 1\nL 1\nA 1 1\n", "line 3: cycle: node 1 is its own child"),
        ("nnf 2 1 1\nL 1\nA 1 -1\n", "line 3: dangling reference: node 1 has child -1"),
        ("nnf 3 2 1\nL 1\nA 0\nO 0 2 0 1\n", "line 4: a disjunction of true and something else"),
        ("nnf 1 0 1\nO 0 0\n", r"theory\.nnf: the theory has no model"),
        ("nnf 3 2 1\nL 1\nL -1\nA 2 0 1\n", "not decomposable: two children"),
        ("nnf 1 0 0\nA 0\n", "the theory has no variables"),
        ("nnf 0 0 1\n", "no nodes after the header"),
        ("nnf 1 0 1000000000\nL 1\n", "mentions 1 variables, and more than 16384 others are free"),
        ("nnf 1 0 99999999999\nL 1\n", "variable 99999999999 is out of range"),
        ("what is this\n", "neither a d-DNNF of c2d"),
        ("o 1 0\nt 2 0\n1 2 1\n", "line 3: a line of d4 is"),
        ("o 1 0\no 1 0\n", "line 2: duplicate id: node 1"),
        ("o 1 0\n1 2 3 0\n", "line 2: node 2 is not defined"),
        ("o 1 0\nt 2 0\n1 2 x 0\n", "line 3: 'x' is not a whole number"),
        ("o 1 0\nt 2 0\n1 2 0 0\n", "line 3: literal 0 is out of range"),
        ("t 2 0\no 1 0\n2 1 3 0\n", "line 3: node 2 is a constant and has an arc"),
        ("o 1 0\no 2 0\n1 2 3 0\n2 1 4 0\n", "an arc leads to every node: there is a cycle"),
        ("o 3 0\no 1 0\no 2 0\n3 1 5 0\n1 2 3 0\n2 1 4 0\n", "cycle: node 2 is below its own child 1"),
        ("o 1 0\no 2 0\nt 3 0\n1 3 1 0\n2 3 2 0\n", "no arc leads to the nodes 1, 2: a theory has one root"),
        ("o 1 0\nt 2 0\n1 2 0\n1 2 1 0\n", "a disjunction of true and something else"),
        ("o 1 0\nt 2 0\n1 2 1 -1 0\n", "not decomposable: two children"),
        ("f 1 0\n", "the theory has no model"),
    ],
)
def test_files_that_are_no_theory(tmp_path, text, message):
    path = tmp_path / "theory.nnf"
    path.write_text(text)
    with pytest.raises(mm.FormatError, match=message) as caught:
        mm.load(path)
    assert "theory.nnf" in str(caught.value)


def test_arcs_may_come_before_their_nodes_and_constants_without_use_are_no_roots(tmp_path):
    path = tmp_path / "theory.nnf"
    path.write_text("c d4\n1 2 -1 2 0\n1 2 1 0\nf 7 0\nt 2 0\no 1 0\n")
    assert math.exp(mm.log_marginal(mm.load(path), {})) == pytest.approx(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sdd 1\nL 0 0 0\n", "line 2: variable 0 is out of range"),
        ("sdd 1\nX 0\n", "line 2: unknown node type 'X'"),
        ("sdd 1\n", "no nodes after the header"),
        ("psdd 1\nL 0 0 1\n", "this is a psdd file"),
        ("sdd 2\nT 0\nT 0\n", "line 3: duplicate id: node 0"),
        ("sdd 2\nL 0 0 1\nD 1 1 1 0 5\n", "line 3: dangling reference: node 1 has child 5"),
        ("sdd 2\nL 0 0 1\nD 1 1 0\n", r"line 3: 'D id vtree k \(prime sub\)\*k' needs at least one child, not 0"),
        ("sdd 2\nL 0 0 1\nD 1 1 2 0 0\n", "line 3: too few numbers"),
        ("sdd 2\nL 0 0 1\nD 1\n", "line 3: too few numbers"),
        ("sdd 1\nF 0\n", "the theory has no model"),
        ("sdd 1\nL 0 0 1.5\n", "line 2: '1.5' is not a whole number"),
    ],
)
def test_files_that_are_no_sdd(tmp_path, text, message):
    path = tmp_path / "x.sdd"
    path.write_text(text)
    with pytest.raises(mm.FormatError, match=message):
        mm.load(path)


def test_the_vtree_of_an_sdd_says_which_variables_there_are(tmp_path):
    path = tmp_path / "x.sdd"
    path.write_text("sdd 1\nL 0 0 2\n")
    assert mm.load(path).names == (2,)
    (tmp_path / "other.vtree").write_text("vtree 5\nL 0 1\nL 2 2\nI 1 0 2\nL 4 3\nI 3 1 4\n")
    vtree = mm.load(tmp_path / "other.vtree")
    for given in (vtree, tmp_path / "other.vtree", str(tmp_path / "other.vtree")):
        circuit = mm.load(path, vtree=given, weights={1: (2, 3)})
        assert circuit.names == (1, 2, 3)
        assert math.exp(mm.log_marginal(circuit, {})) == pytest.approx(10)
    (tmp_path / "x.vtree").write_text("vtree 1\nL 0 7\n")
    with pytest.raises(mm.FormatError, match=r"x\.sdd: variable 2 is not in the .*x\.vtree"):
        mm.load(path)
    named = mm.vtree_of(mm.circuit_of(mm.Variable("a")[1] * mm.Variable("b")[1]))
    with pytest.raises(mm.FormatError, match="other names than 1, 2"):
        mm.load(path, vtree=named)
