"""What each format means, and that writing and reading give the same distribution."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest

from circuits_for_io import distribution, lines_of, log_value, random_circuit, same
from margmap.circuit import (
    BERNOULLI,
    BINOMIAL,
    CATEGORICAL,
    GAUSSIAN,
    INDICATOR,
    PRODUCT,
    SUM,
    Circuit,
    Parts,
    Variable,
    assemble,
)
from margmap.circuit.vtree import vtree_of
from margmap.errors import FormatError
from margmap.io.formats import load_circuit, load_vtree, save


def read(tmp_path: Path, suffix: str, text: str) -> Circuit:
    path = tmp_path / f"t.{suffix}"
    path.write_text(lines_of(text))
    return load_circuit(path)


def again(circuit: Circuit, tmp_path: Path, suffix: str) -> Circuit:
    path = tmp_path / f"again.{suffix}"
    save(circuit, path)
    return load_circuit(path)


def total(circuit: Circuit) -> float:
    return sum(math.exp(x) for x in distribution(circuit))


@pytest.mark.parametrize("suffix", ["psdd", "psdd.gz"])
@pytest.mark.parametrize("names", ["from_one", "gaps", "text", "zero"])
@pytest.mark.parametrize("seed", range(15))
def test_round_trip_psdd(tmp_path: Path, seed: int, names: str, suffix: str) -> None:
    circuit = random_circuit(seed, binary=True, structured=True, names=names)
    result = again(circuit, tmp_path, suffix)
    assert same(circuit, result)
    expected = circuit.names if names in ("from_one", "gaps") else tuple(range(1, len(circuit.names) + 1))
    assert result.names == expected
    assert same(again(result, tmp_path, suffix), result)


@pytest.mark.parametrize("suffix", ["jpc", "spn", "ac", "json", "jpc.gz", "spn.gz", "ac.gz", "json.gz"])
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("seed", range(15))
def test_round_trip_of_any_discrete_circuit(tmp_path: Path, seed: int, binary: bool, suffix: str) -> None:
    circuit = random_circuit(seed, binary=binary, structured=False, names=("text", "gaps")[seed % 2])
    result = again(circuit, tmp_path, suffix)
    assert same(circuit, result)
    assert abs(total(result) - 1) < 1e-9


def test_psdd_meaning(tmp_path: Path) -> None:
    circuit = read(
        tmp_path,
        "psdd",
        """
        c a comment
        psdd 999999999
        L 7 0 -3
        L 8 0 3
        L 9 0 999999999
        T 30 2 5 -0.25
        T 31 2 5 0
        D 40 1 2 7 30 -inf 8 31 0.0000000001
        """,
    )
    assert circuit.names == (3, 5)  # 999999999 is in no node below the root
    assert circuit.variables[0].cardinality == 2
    assert sorted(circuit.kind.tolist()) == [0, 0, 1, 1, 5, 5, 6]
    assert log_value(circuit, (1, 1)) == 0.0
    assert log_value(circuit, (1, 0)) == -math.inf
    assert log_value(circuit, (0, 1)) == -math.inf


def test_psdd_true_nodes(tmp_path: Path) -> None:
    one = read(tmp_path, "psdd", "psdd 1\nT 0 0 1 -1e-20")
    assert log_value(one, (0,)) == pytest.approx(math.log(1e-20))
    tiny = read(tmp_path, "psdd", "psdd 1\nT 0 0 1 -800")
    assert log_value(tiny, (0,)) == 0.0
    two = read(tmp_path, "psdd", "psdd 1\nT 0 0 1 -0.105361 -2.302585")
    assert two.param.tolist() == [-0.105361, -2.302585]
    assert again(two, tmp_path, "psdd").param.tolist() == two.param.tolist()
    never = read(tmp_path, "psdd", "psdd 1\nT 0 0 1 -inf")
    assert never.param.tolist() == [-math.inf, 0.0]


def test_psdd_single_element(tmp_path: Path) -> None:
    leaves = "psdd 3\nL 0 0 1\nL 1 2 2\n"
    sure = read(tmp_path, "psdd", leaves + "D 2 1 1 0 1 0.0")
    assert sure.kind.tolist() == [INDICATOR, INDICATOR, PRODUCT]
    scaled = read(tmp_path, "psdd", leaves + "D 2 1 1 0 1 -0.5")
    assert scaled.kind.tolist() == [INDICATOR, INDICATOR, PRODUCT, SUM]
    assert same(again(scaled, tmp_path, "psdd"), scaled, 0)


def test_psdd_writer_binarises_and_matches_the_vtree(tmp_path: Path) -> None:
    parts = Parts.new()
    leaves = [parts.leaf(INDICATOR, v, [float(v % 2)]) for v in range(4)]
    parts.product(leaves)
    circuit = assemble([Variable(v + 1) for v in range(4)], parts)
    path = tmp_path / "a.psdd"
    save(circuit, path)
    lines = [line for line in path.read_text().splitlines() if line[0] != "c"]
    assert lines == [
        "psdd 7",
        "L 0 0 -1",
        "L 1 2 2",
        "L 2 4 -3",
        "L 3 6 4",
        "D 4 5 1 2 3 0.0",
        "D 5 3 1 1 4 0.0",
        "D 6 1 1 0 5 0.0",
    ]
    save(vtree_of(circuit), tmp_path / "a.vtree")
    assert "I 1 0 3" in (tmp_path / "a.vtree").read_text()
    assert load_vtree(tmp_path / "a.vtree").in_order().tolist() == vtree_of(circuit).in_order().tolist()


def test_psdd_writer_joins_parts_along_an_odd_vtree(tmp_path: Path) -> None:
    # The first product splits into four, a later one into {0, 2} and {1, 3}: the four must be joined crosswise.
    parts = Parts.new()
    leaves = [parts.leaf(BERNOULLI, v, [math.log(0.1 + v / 5), math.log(0.9 - v / 5)]) for v in range(4)]
    flat = parts.product(leaves)
    even = parts.product([leaves[0], parts.leaf(INDICATOR, 2, [1.0])])
    odd = parts.product([leaves[1], leaves[3]])
    parts.sum([flat, parts.product([odd, even])], [math.log(0.25), math.log(0.75)])
    circuit = assemble([Variable(v + 1) for v in range(4)], parts)
    assert same(again(circuit, tmp_path, "psdd"), circuit)


def test_psdd_nested_sums_stay_small(tmp_path: Path) -> None:
    parts = Parts.new()
    a = parts.leaf(INDICATOR, 0, [1.0])
    b = parts.leaf(INDICATOR, 1, [1.0])
    top = parts.product([a, b])
    for _ in range(60):  # multiplied out without merging these would be 2 ** 60 elements
        top = parts.sum([top, top], [math.log(0.5)] * 2)
    circuit = assemble([Variable(1), Variable(2)], parts)
    assert same(again(circuit, tmp_path, "psdd"), circuit)


def one_sum(weights: list[float], cardinality: int = 2) -> Circuit:
    parts = Parts.new()
    b = parts.leaf(INDICATOR, 1, [0.0])
    products = [parts.product([parts.leaf(INDICATOR, 0, [float(x)]), b]) for x in range(len(weights))]
    parts.sum(products, weights)
    return assemble([Variable(1, cardinality), Variable(2)], parts)


def test_what_psdd_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.psdd"
    with pytest.raises(
        FormatError, match=r"a\.psdd: node 5 .*is above 0\. Call margmap\.normalise.* first, or save .*json"
    ):
        save(one_sum([1.5, 0.0]), path)
    with pytest.raises(FormatError, match=r"variable 1 is not binary\. Save the circuit as \.jpc or \.json instead$"):
        save(one_sum([-1.0, -1.0, -1.0], 3), path)
    parts = Parts.new()
    parts.leaf(CATEGORICAL, 0, [-1.0, -2.0])
    with pytest.raises(FormatError, match=r"node 0 .*do not add up to 1.*normalise"):
        save(assemble([Variable(1)], parts), path)
    parts = Parts.new()
    parts.leaf(GAUSSIAN, 0, [0.0, 1.0])
    with pytest.raises(
        FormatError, match=r"node 0 \(gaussian .*cannot be written as psdd: save the circuit as \.json or \.mmz$"
    ):
        save(assemble([Variable(1, 0)], parts), path)
    crossing = random_circuit(4, binary=True, structured=False)
    with pytest.raises(FormatError, match=r"no PSDD.*crosses.*json"):
        save(crossing, path)
    assert not path.exists()


def test_jpc_meaning(tmp_path: Path) -> None:
    circuit = read(
        tmp_path,
        "jpc",
        """
        c x
        jpc 3
        L 0 5 1
        L 1 5 -1
        I 2 5 4 2
        C 3 5 4 -1.5 -inf -0.25248
        B 4 5 9 3 -0.5
        S 5 5 2 0 -0.25 1 -1.5087
        P 6 5 3 5 3 4
        P 7 5 3 5 2 4
        S 8 5 2 6 0.25 7 -inf
        """,
    )
    assert circuit.names == (1, 4, 9)
    assert [v.cardinality for v in circuit.variables] == [2, 3, 4]
    log_q = math.log(1 - math.exp(-0.5))
    expected = 0.25 + -0.25 + -1.5 + math.log(3) + 2 * -0.5 + log_q
    assert log_value(circuit, (1, 0, 2)) == pytest.approx(expected)
    assert log_value(circuit, (0, 1, 0)) == -math.inf
    assert same(again(circuit, tmp_path, "jpc"), circuit)


def test_jpc_keeps_cardinalities_that_no_leaf_needs(tmp_path: Path) -> None:
    circuit = again(one_sum([-1.0, -0.5, -2.0], 6), tmp_path, "jpc")
    assert circuit.variables[0].cardinality == 6


def test_spn_meaning(tmp_path: Path) -> None:
    circuit = read(tmp_path, "spn", "(2 3 2)\nv 1 2\nv 0 1\nv 0 0\n+ 1 -0.5 2 0.5\n* 0 3\nEOF")
    assert circuit.names == (0, 1, 2)
    assert [v.cardinality for v in circuit.variables] == [2, 3, 2]
    assert log_value(circuit, (0, 2, 0)) == 0.5
    assert log_value(circuit, (1, 2, 1)) == -0.5
    assert log_value(circuit, (1, 1, 1)) == -math.inf


def test_ac_constants_become_weights(tmp_path: Path) -> None:
    circuit = read(
        tmp_path,
        "ac",
        "(2 2)\nn 0.25\nn 3\n* 0 1\nv 0 0\nv 0 1\n* 2 3\n* 4 0\n+ 5 6\n"
        "v 1 1\n* 7 8 1\nn 0\n* 10 9\n+ 11 9 10\n* 12 1\nEOF",
    )
    assert circuit.kind.tolist() == [INDICATOR, INDICATOR, SUM, INDICATOR, PRODUCT, SUM, SUM]
    assert math.exp(log_value(circuit, (0, 1))) == pytest.approx(0.75 * 3 * 3)
    assert math.exp(log_value(circuit, (1, 1))) == pytest.approx(0.25 * 3 * 3)
    assert log_value(circuit, (1, 0)) == -math.inf
    assert circuit.log_weight[-3] == -math.inf


def test_ac_folds_sums_of_constants(tmp_path: Path) -> None:
    circuit = read(tmp_path, "ac", "(2)\nn 0.25\nn 0.5\n+ 0 1\nv 0 1\n* 2 3\nv 0 0\n+ 4 5\nEOF")
    assert circuit.kind.tolist() == [INDICATOR, INDICATOR, SUM]
    assert circuit.log_weight.tolist() == pytest.approx([math.log(0.75), 0.0])


@pytest.mark.parametrize("weights", [[-2000.0, 0.0], [-750.25, -1e-300], [900.0, -math.inf], [3.5, -745.5]])
@pytest.mark.parametrize("suffix", ["jpc", "spn", "ac", "json"])
def test_extreme_weights(tmp_path: Path, weights: list[float], suffix: str) -> None:
    circuit = one_sum(weights)
    assert same(again(circuit, tmp_path, suffix), circuit, 1e-13)


def test_impossible_leaf(tmp_path: Path) -> None:
    parts = Parts.new()
    parts.leaf(CATEGORICAL, 0, [-math.inf, -math.inf])
    circuit = assemble([Variable(0)], parts)
    for suffix in ("jpc", "spn", "ac", "json"):
        assert same(again(circuit, tmp_path, suffix), circuit, 0)


@pytest.mark.parametrize("suffix", ["psdd", "jpc", "spn", "ac"])
def test_gaussian_needs_json(tmp_path: Path, suffix: str) -> None:
    parts = Parts.new()
    parts.product([parts.leaf(INDICATOR, 0, [1.0]), parts.leaf(GAUSSIAN, 1, [0.25, 2.0])])
    circuit = assemble([Variable("d"), Variable("x", 0)], parts)
    with pytest.raises(FormatError, match=r"(node 1 \(gaussian|variable 'x' is continuous).*json"):
        save(circuit, tmp_path / f"a.{suffix}")


def every_leaf() -> Circuit:
    parts = Parts.new()
    leaves = [
        parts.leaf(INDICATOR, 0, [2.0]),
        parts.leaf(BERNOULLI, 1, [-0.1, -2.352168461044891]),
        parts.leaf(CATEGORICAL, 2, [-math.inf, -1.1, -0.1]),
        parts.leaf(BINOMIAL, 3, [4.0, -math.inf, 0.0]),
        parts.leaf(GAUSSIAN, 4, [1 / 3, 1e-5]),
    ]
    product = parts.product(leaves)
    parts.sum([product], [0.1 + 0.2])
    states = ("low", 'mid "x"', "h\u00f6h")
    variables = [Variable("a", 3, states), Variable(-7), Variable("7", 3), Variable(7, 5), Variable("z", 0)]
    return assemble(variables, parts)


@pytest.mark.parametrize("suffix", ["json", "json.gz"])
def test_json_is_exact(tmp_path: Path, suffix: str) -> None:
    circuit = every_leaf()
    result = again(circuit, tmp_path, suffix)
    assert result.variables == circuit.variables
    for name in ("kind", "start", "child", "log_weight", "var", "param_start", "param"):
        assert getattr(result, name).tolist() == getattr(circuit, name).tolist()


def test_json_is_strict_json(tmp_path: Path) -> None:
    save(every_leaf(), tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()

    def refuse(token: str) -> None:
        raise AssertionError(token)

    assert json.loads(text, parse_constant=refuse)["version"] == 1


JSON_ERRORS = [
    ('["indicator", 0, 1', "line 1: not JSON"),
    ("[" * 200_000, "nested too deeply|not JSON"),
    ("[]", '"format": "margmap"'),
    ('{"format": "margmap", "version": 2}', "version 2"),
    ('{"format": "margmap", "version": 1}', "must be lists"),
    ("NODES", "must be lists"),
    ('NODES["what", 1]', "node 0: .*unknown node type"),
    ('NODES{"a": 1}', "node 0: .*unknown node type"),
    ('NODES["indicator", 0]', "node 0: too few"),
    ('NODES["indicator", 0, 1, 2]', "node 0: too many"),
    ('NODES["indicator", 1, 1]', "variable 1 is out of range"),
    ('NODES["indicator", 0, 2]', "value 2 is out of range"),
    ('NODES["indicator", 0, 1.0]', "not a whole number"),
    ('NODES["indicator", true, 1]', "not a whole number"),
    ('NODES["bernoulli", 0, NaN, -1]', "NaN is not JSON"),
    ('NODES["bernoulli", 0, -Infinity, 0]', "Infinity is not JSON"),
    ('NODES["bernoulli", 0, "inf", -1]', "not a finite number"),
    ('NODES["bernoulli", 0, 1e999, -1]', "not a finite number"),
    ('NODES["bernoulli", 0, 0.5, -1]', "not in 0 to 1"),
    ('NODES["gaussian", 0, 1, 1]', "discrete variable"),
    ('NODES["categorical", 0, [0]]', "wrong number of parameters"),
    ('NODES["categorical", 0, 0]', "expected a list"),
    ('NODES["sum", [0], [0]]', "cycle: node 0 is its own child"),
    ('NODES["sum", [1], [0]], ["indicator", 0, 1]', "child 1 of node 0 is defined later: list"),
    ('NODES["sum", [1], [0]], ["product", [0]]', "cycle"),
    ('NODES["sum", [4], [0]]', "dangling"),
    ('NODES["product", []]', "at least one"),
    ('NODES["indicator", 0, 1], ["product", [-1]]', "child -1 is not"),
    ('NODES["indicator", 0, 1], ["sum", [0], [0, 0]]', "1 children but 2 log-weights"),
    ('NODES["indicator", 0, 1], ["sum", [0], [' + "9" * 400 + "]]", "range of floats|not a finite"),
    ('NODES["indicator", 0, 1], ["sum", [0], [' + "9" * 5000 + "]]", "range of floats|not JSON|not a finite"),
]


@pytest.mark.parametrize(("text", "words"), JSON_ERRORS)
def test_bad_json(tmp_path: Path, text: str, words: str) -> None:
    head = '{"format": "margmap", "version": 1, "variables": [{"name": "a"}], "nodes": ['
    path = tmp_path / "bad.json"
    path.write_text(head + text[5:] + "]}" if text.startswith("NODES") else text)
    with pytest.raises(FormatError, match=words) as caught:
        load_circuit(path)
    assert "bad.json" in str(caught.value)


@pytest.mark.parametrize(
    "entry",
    ['{"name": 1.5}', '{"cardinality": 2}', '{"name": "a", "cardinality": -1}', '{"name": "a", "states": ["x"]}']
    + ['{"name": "a", "states": "xy"}', '{"name": "a", "cardinality": "2"}', '{"name": "a", "what": 2}', "3"],
)
def test_bad_json_variable(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(f'{{"format": "margmap", "version": 1, "variables": [{entry}], "nodes": [["indicator", 0, 1]]}}')
    with pytest.raises(FormatError, match=r"bad\.json: variable number 0"):
        load_circuit(path)


def chain(suffix: str, length: int) -> str:
    if suffix == "psdd":
        links = (f"D {i + 2} 0 1 0 {i + 1} -0.1" for i in range(length))
        return "psdd 1\nL 0 0 1\nL 1 1 2\n" + "\n".join(links) + "\n"
    if suffix == "jpc":
        return "jpc 1\nL 0 0 1\n" + "\n".join(f"S {i + 1} 0 1 {i} -0.5" for i in range(length)) + "\n"
    if suffix == "spn":
        return "(2)\nv 0 1\n" + "\n".join(f"+ {i} -0.5" for i in range(length)) + "\nEOF\n"
    if suffix == "ac":
        return "(2)\nv 0 1\nn 0.5\n" + "\n".join(f"* {max(i + 1, 2) if i else 0} 1" for i in range(length)) + "\nEOF\n"
    nodes = ",".join(['["indicator", 0, 1]'] + [f'["sum", [{i}], [-0.5]]' for i in range(length)])
    return f'{{"format": "margmap", "version": 1, "variables": [{{"name": 1}}], "nodes": [{nodes}]}}'


@pytest.mark.parametrize("suffix", ["psdd", "jpc", "spn", "ac", "json"])
def test_a_hundred_thousand_levels(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"deep.{suffix}"
    path.write_text(chain(suffix, 100_000))
    circuit = load_circuit(path)
    if suffix == "ac":
        assert circuit.log_weight[0] == pytest.approx(100_000 * math.log(0.5))
    else:
        assert circuit.num_nodes > 100_000
    if suffix == "json":
        for other in ("jpc", "spn", "ac", "json"):
            save(circuit, tmp_path / f"copy.{other}")
            assert load_circuit(tmp_path / f"copy.{other}").variables[0].cardinality == 2


# The smaller of two probabilities that add up to 1, as a log: doubles next to 0, next to the least, and below them.
SMALL_LOGS = [math.log(x) for x in (0.3, 1e-9, 1e-12, 1e-15, 1.1e-16, 1e-16, 1e-20, 1e-300, 5e-324)] + [-800.0, -1e6]


def coins(pairs: list[tuple[float, float]], trials: int = 1) -> Circuit:
    """A product of independent leaves, each with the logs of p and 1 - p."""
    parts = Parts.new()
    kind = BERNOULLI if trials == 1 else BINOMIAL
    before = () if trials == 1 else (float(trials),)
    leaves = [parts.leaf(kind, v, (*before, *pair)) for v, pair in enumerate(pairs)]
    parts.product(leaves)
    return assemble([Variable(v + 1, trials + 1) for v in range(len(pairs))], parts)


@pytest.mark.parametrize("suffix", ["psdd", "jpc", "spn", "ac", "json"])
@pytest.mark.parametrize("log_small", [*SMALL_LOGS, -math.inf])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("rounded", [False, True])
def test_both_sides_of_an_extreme_probability_survive(
    tmp_path: Path, suffix: str, log_small: float, swapped: bool, rounded: bool
) -> None:
    """``rounded``: log(1 - p) taken of the rounded 1 - p, as whoever made the circuit may have done it."""
    small = math.exp(log_small)
    pair = (log_small, math.log(1 - small) if rounded else math.log1p(-small))
    circuit = coins([pair[::-1] if swapped else pair, (math.log(0.25), math.log(0.75))])
    if suffix == "ac" and log_small == -1e6:
        with pytest.raises(FormatError, match="cannot be written as ac"):
            again(circuit, tmp_path, suffix)
        return
    for x, y in zip(distribution(circuit), distribution(again(circuit, tmp_path, suffix)), strict=True):
        assert x == y or abs(x - y) <= 2e-15 + 4e-16 * abs(x)


@pytest.mark.parametrize("suffix", ["jpc", "spn", "ac", "json"])
@pytest.mark.parametrize("log_small", SMALL_LOGS[:-1])
@pytest.mark.parametrize("swapped", [False, True])
def test_both_sides_of_an_extreme_binomial_survive(
    tmp_path: Path, suffix: str, log_small: float, swapped: bool
) -> None:
    pair = (log_small, math.log(1 - math.exp(log_small)))
    circuit = coins([pair[::-1] if swapped else pair], trials=3)
    for x, y in zip(distribution(circuit), distribution(again(circuit, tmp_path, suffix)), strict=True):
        assert x == y or abs(x - y) <= 4e-15 + 1e-15 * abs(x)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("suffix", ["psdd", "jpc", "spn", "ac", "json"])
def test_extreme_weights_survive(tmp_path: Path, seed: int, suffix: str) -> None:
    """Sums over two products of coins, with parameters of 1e-300 and next to 1 everywhere."""
    rng = random.Random(seed)

    def pair() -> tuple[float, float]:
        p = rng.choice((10.0 ** rng.uniform(-300, -1), 10.0 ** rng.uniform(-18, -12), rng.random()))
        logs = (math.log(p), math.log(1 - p) if rng.random() < 0.5 else math.log1p(-p))
        return logs if rng.random() < 0.5 else logs[::-1]

    parts = Parts.new()
    leaves = [[parts.leaf(BERNOULLI, v, pair()) for _ in range(2)] for v in range(3)]
    inner = [parts.product([leaves[0][i], parts.sum([*leaves[1]], [*pair()])]) for i in (0, 1)]
    lower = parts.sum(inner, [*pair()])
    parts.sum([parts.product([lower, leaves[2][i]]) for i in (0, 1)], [*pair()])
    circuit = assemble([Variable(v + 1) for v in range(3)], parts)
    for x, y in zip(distribution(circuit), distribution(again(circuit, tmp_path, suffix)), strict=True):
        assert x == y or abs(x - y) <= 1e-14 + 2e-15 * abs(x)


@pytest.mark.parametrize("suffix", ["spn", "ac"])
def test_a_continuous_variable_without_leaves_is_refused(tmp_path: Path, suffix: str) -> None:
    parts = Parts.new()
    parts.leaf(INDICATOR, 0, [1.0])
    circuit = assemble([Variable("a"), Variable("heat", 0)], parts)
    with pytest.raises(FormatError, match=rf"a\.{suffix}: variable 'heat' is continuous.*save the circuit as \.json"):
        save(circuit, tmp_path / f"a.{suffix}")
