"""One rule for what a user's value means, by whichever way it comes; and whatever is not clear is refused."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import margmap as mm
from counts import cases
from margmap.circuit.evidence import MISSING_WORDS, is_missing
from margmap.cli import app
from margmap.foundation.numerals import is_plain, number_of, real_of, whole_of
from margmap.network.compile import predict
from margmap.solve.reduce import reduce

ADVERSARIAL = [
    ("5", "4", "3", "2", "1", "0"),
    ("x5", "x4", "x3", "x2", "x1", "x0"),
    ("1", "0"),
    ("True", "False"),
    ("false", "true"),
    ("true", "True", "1"),
    ("1.0", "2.0"),
    ("1", "1.0", "01"),
    ("nan", "NA"),
    ("None", "none"),
    ("-1", "0", "1"),
    ("4_9", "49"),
    ("１０", "10"),
    ("a", " a"),
    ("0.5", "1.5"),
    ("inf", "-inf"),
    (),
]
REFUSED, MISSING = "refused", "missing"


def circuit_of(states):
    """A circuit whose p(x) tells the states of x apart, and y, which is most likely what x is not."""
    x, y = mm.Variable("x", len(states) or 3, states), mm.Variable("y")
    weights = [2.0**-i for i in range(x.cardinality)]
    parts = [w / sum(weights) * x[x.label(i)] * mm.bernoulli(y, 0.2) for i, w in enumerate(weights)]
    return mm.circuit_of(sum(parts[1:], parts[0]), [x, y])


def network_of(states):
    """The same as a network."""
    x, y = mm.Variable("x", len(states) or 3, states), mm.Variable("y")
    weights = np.array([2.0**-i for i in range(x.cardinality)])
    return mm.Network([x, y], [([0], weights / weights.sum()), ([0, 1], [[0.8, 0.2]] * x.cardinality)])


def code_by_rule(states, value):
    """What the documentation says, written down without the code's own functions."""
    if isinstance(value, str):
        if value in states:
            return states.index(value)
        if value.strip() in states:
            return states.index(value.strip())
        word = value.strip()
        if states and word in ("True", "true", "False", "false"):
            value = word in ("True", "true")
        elif not word.isascii() or "_" in word:
            return REFUSED
        else:
            try:
                value = float(word)
            except ValueError:
                return REFUSED
    if isinstance(value, bool):
        found = [i for i, state in enumerate(states) if state in ((("False", "false"), ("True", "true"))[value])]
    elif states:
        found = []
        for i, state in enumerate(states):
            try:
                if state.isascii() and "_" not in state and float(state) == value:
                    found.append(i)
            except ValueError:
                continue
    else:
        found = [i for i in range(3) if i == value]
    return found[0] if len(found) == 1 else REFUSED


def told(model, log_prob):
    """The number of the state of x that an answer about y is given, by its probability."""
    total = sum(2.0**-i for i in range(model.variables[0].cardinality))
    if math.isclose(log_prob, math.log(0.8)):
        return MISSING
    return round(-math.log2(math.exp(log_prob) / 0.8 * total))


def answer(model, evidence, **options):
    try:
        return told(model, mm.marginal_map(model, ["y"], evidence, **options).log_prob)
    except mm.QueryError:
        return REFUSED


def row_answer(model, rows, **options):
    try:
        (found,) = mm.marginal_map_many(model, ["y"], rows, jobs=1, **options)
    except mm.QueryError:
        return REFUSED
    if isinstance(found, mm.FailedRow):
        assert found.kind in ("QueryError", "ImpossibleEvidenceError"), found
        return REFUSED
    return told(model, found.log_prob)


def by_csv(circuit, text, folder):
    path = folder / "rows.csv"
    quoted = '"' + text.replace('"', '""') + '"'
    path.write_text(f"x,y\n{quoted},\n", encoding="utf-8")
    return path


def cells_of(states):
    """Texts to try: the names, their look-alikes, and numbers."""
    return {
        *states,
        *(s.strip() for s in states),
        "0",
        "1",
        "5",
        "2.0",
        "05",
        "true",
        "True",
        "1_0",
        "１",
        "-1",
        "x",
        " 1 ",
    }


@pytest.mark.parametrize("states", ADVERSARIAL, ids=str)
def test_a_text_means_the_same_by_every_way(states, tmp_path):
    circuit, network = circuit_of(states), network_of(states)
    mm.save(circuit, tmp_path / "model.json")
    for text in sorted(cells_of(states)):
        right = code_by_rule(states, text)
        for model in (circuit, network):
            assert answer(model, {"x": text}) == right, text
        assert answer(network, {"x": text}, method="elimination") == right
        assert answer(circuit, {"x": np.str_(text)}) == right
        try:
            assert told(circuit, mm.log_marginal(circuit, {"x": text}) + math.log(0.8)) == right
        except mm.QueryError:
            assert right == REFUSED
        # A row says the same, but there -1 and words for "missing" that are no names mean that nothing is observed.
        unnamed = text not in states and text.strip() not in states
        is_minus_one = number_of(text.strip()) == -1 and right == REFUSED
        in_row = MISSING if unnamed and (text.strip() in MISSING_WORDS or is_minus_one) else right
        path = by_csv(circuit, text, tmp_path)
        rows = [
            ([{"x": text}], {}),
            ([[text, None]], {}),
            (np.array([[text, ""]]), {}),
            (np.array([[text]], dtype=object), {"columns": ["x"]}),
            (path, {}),
        ]
        for given_, options in rows:
            assert row_answer(circuit, given_, **options) == in_row, (text, given_)
            assert row_answer(network, given_, **options) == in_row, (text, given_)
        instance = tmp_path / "instance.json"
        instance.write_text(json.dumps({"query": ["y"], "evidence": {"x": text}}))
        ways = [["--instance", str(instance)]]
        if not set(text) & set("=,"):
            ways.append(["-q", "y", "-e", f"x={text}"])
        for way in ways:
            run = CliRunner().invoke(app, ["solve", str(tmp_path / "model.json"), *way, "--json"])
            assert run.exit_code == (2 if right == REFUSED else 0), run.output
            if right != REFUSED:
                assert told(circuit, json.loads(run.stdout)["log_prob"]) == right
        if right != REFUSED:
            proof = mm.certify(circuit, ["y"], {"x": text})
            proof.save(tmp_path / "proof.json")
            proof = mm.Certificate.load(tmp_path / "proof.json")
            assert proof.evidence == {"x": right}
            verdict = mm.verify(circuit, proof, query=["y"], evidence={"x": text})
            assert verdict.accepted, verdict.reason
            assert told(circuit, verdict.log_prob_low) == right
            other = next((s for s in states if s != circuit.variables[0].label(right)), None)
            if other is not None:
                assert not mm.verify(circuit, proof, evidence={"x": other}).accepted


@pytest.mark.parametrize("states", ADVERSARIAL, ids=str)
def test_a_csv_file_means_the_same_by_path_and_through_pandas(states, tmp_path):
    pandas = pytest.importorskip("pandas")
    circuit = circuit_of(states)
    for text in sorted({*cells_of(states), "nan", "NA", "null", ""}):
        path = by_csv(circuit, text, tmp_path)
        here = row_answer(circuit, path)
        for options in ({}, {"dtype": str}, {"keep_default_na": False}, {"dtype_backend": "numpy_nullable"}):
            frame = pandas.read_csv(path, **options)
            there = row_answer(circuit, frame)
            # What pandas has made of a text may have become unclear, but never something else.
            assert there in (here, REFUSED), (text, options)
            for one in (frame, frame.iloc[[0]], frame.iloc[0]):
                assert answer(circuit, one) == there
            if text in states and is_plain(text) and text not in MISSING_WORDS and "keep_default_na" not in options:
                expected = code_by_rule(states, frame["x"].tolist()[0])
                assert there == expected


@pytest.mark.parametrize("states", ADVERSARIAL, ids=str)
def test_a_number_means_the_name_that_it_is(states):
    circuit, network = circuit_of(states), network_of(states)
    for number in (0, 1, 2, 5, 10, 49, 0.5, 1.5, 2.5, math.inf, True, False):
        right = code_by_rule(states, number)
        as_text = code_by_rule(states, str(number))
        assert REFUSED in (right, as_text) or right == as_text
        kinds = [number]
        if isinstance(number, bool):
            kinds.append(np.bool_(number))
        else:
            kinds += [float(number), np.float64(number), np.float32(number)]
            kinds += [np.int8(number), np.int64(number), np.uint16(number)] if isinstance(number, int) else []
        for value in kinds:
            assert answer(circuit, {"x": value}) == right, value
            assert answer(network, {"x": value}) == right, value
            assert row_answer(circuit, [[value, None]]) == right, value
            assert row_answer(circuit, np.array([[value]]), columns=["x"]) == right, value


STATE = st.one_of(
    st.integers(-3, 12).map(str),
    st.floats(-3, 12).map(lambda x: str(round(x, 1))),
    st.sampled_from(
        ["True", "true", "False", "nan", "NA", "", " ", "1e0", "05", "1_0", "１", "a", " a", "x1", "inf", "+1"]
    ),
    st.text(max_size=3),
)


@settings(max_examples=cases(150), deadline=None)
@given(st.lists(STATE, min_size=2, max_size=6, unique=True).map(tuple), STATE, st.integers(-3, 12), st.floats())
def test_the_rule_on_any_names(states, text, whole, number):
    variable = mm.Variable("x", len(states), states)
    for state in states:  # a name is always itself
        assert variable.code(state) == states.index(state)
        assert mm.Variable("x", len(states), states)[state] is not None
    for value in (text, whole, float(whole), np.int32(whole), number, str(whole), whole > 0):
        right = code_by_rule(states, value)
        try:
            found = variable.code(value)
        except mm.QueryError:
            found = REFUSED
        assert found == right, value


def test_refusals_name_both_readings():
    with pytest.raises(mm.QueryError, match=r"1 can mean the state '1' or the state '1\.0' or the state '01'"):
        mm.Variable("x", 3, ("1", "1.0", "01")).code(1)
    with pytest.raises(mm.QueryError, match="True can mean the state 'true' or the state 'True'"):
        mm.Variable("x", 2, ("true", "True")).code(True)
    with pytest.raises(mm.QueryError, match="nan can mean that it is not observed, or its state 'NA'"):
        mm.log_marginal(circuit_of(("NA", "yes")), {"x": math.nan})
    with pytest.raises(mm.QueryError, match="has no state 5: its states are x5, x4"):
        mm.Variable("x", 2, ("x5", "x4")).code(5)
    many = mm.Variable("x", 100, tuple(f"s{i}" for i in range(100)))
    with pytest.raises(mm.QueryError, match=r"has no state 5: its states are s0, .*s38, \.\.\. s99 \(100 in all\)"):
        many.code(5)


def test_names_of_variables_as_numbers_and_as_text(tmp_path):
    three, text = mm.Variable(3), mm.Variable("4")
    circuit = mm.circuit_of(0.5 * three[0] * mm.bernoulli(text, 0.1) + 0.5 * three[1] * mm.bernoulli(text, 0.8))
    for name in (4, "4", 4.0, np.int64(4), text):
        for other in (3, "3", np.float64(3), three):
            assert mm.marginal_map(circuit, [name], {other: 1}).state == {"4": 1}
    both = mm.circuit_of(0.5 * three[0] * mm.bernoulli(mm.Variable("3"), 0.1) + 0.5 * three[1] * mm.Variable("3")[1])
    for ask in (
        lambda: mm.marginal_map(both, [3], {}),
        lambda: mm.marginal_map(both, None, {"3": 1}),
        lambda: list(mm.marginal_map_many(both, ["3"], [[None, None]], jobs=1)),
        lambda: list(mm.marginal_map_many(both, None, [[1]], columns=[3], jobs=1)),
    ):
        with pytest.raises(mm.QueryError, match="can mean the variable 3 or the variable '3'"):
            ask()
    # What a program asks for by itself, and what is asked by the variables, is still clear.
    assert mm.marginal_map(both, [both.variables[1]], {three: 1}).state == {"3": 1}
    assert mm.marginal_map(both, None).state == {3: 1, "3": 1}
    (answer_,) = mm.marginal_map_many(both, None, np.array([[1, -1]]), jobs=1)
    assert answer_.state == {"3": 1}
    assert mm.verify(both, mm.certify(both, None, {three: 1})).accepted
    (tmp_path / "rows.csv").write_text("3\n1\n")
    with pytest.raises(mm.FormatError, match="can mean the variable 3"):
        mm.marginal_map_many(both, None, tmp_path / "rows.csv", header=True)
    network = mm.Network([three, mm.Variable("3"), mm.Variable("y")], [([i], [0.3, 0.7]) for i in range(3)])
    for method in ("auto", "frontier"):
        assert mm.marginal_map(network, None, {"y": 1}, method).state == {3: 1, "3": 1}


# -- what evidence and queries can be


def questions():
    circuit, network = circuit_of(("no", "yes")), network_of(("no", "yes"))
    return [
        lambda query, evidence: mm.marginal_map(circuit, query, evidence),
        lambda query, evidence: mm.marginal_map(network, query, evidence),
        lambda query, evidence: mm.marginal_map(network, query, evidence, method="frontier"),
        lambda query, evidence: mm.approximate(circuit, query, evidence),
        lambda query, evidence: mm.certify(circuit, query, evidence),
        lambda query, evidence: reduce(circuit, query, evidence),
        lambda query, evidence: mm.compile(network, query, evidence),
        lambda query, evidence: predict(network, query, evidence),
        lambda query, evidence: mm.log_marginal(circuit, evidence),
        lambda query, evidence: mm.posteriors(circuit, evidence),
        lambda query, evidence: mm.sample(circuit, 1, evidence),
        lambda query, evidence: mm.log_conditional(circuit, {"y": 1}, evidence),
        lambda query, evidence: mm.log_conditional(circuit, evidence, {"y": 1}),
    ]


ODD = [
    "x",
    b"x",
    "x=1",
    3,
    2.5,
    True,
    math.nan,
    [],
    ["x"],
    [("x", "yes")],
    [{"x": "yes"}],
    ("x", "yes"),
    {"x"},
    frozenset(),
    np.array([1, 0]),
    np.array([[1, 0]]),
    np.array(1),
    np.array({"x": 1}),
    object(),
    len,
    range(2),
    {"x": {}},
    {"x": {"yes": 1}},
    {"x": ["yes"]},
    {"x": np.array(["yes"])},
    {"x": b"yes"},
    {"x": 1j},
    {"x": object()},
    {"x": 10**5000},
    {"x": "9" * 5000},
    {None: 1},
    {("x",): "yes"},
    {frozenset(): 1},
    {math.nan: 1},
    {10**5000: 1},
    {b"x": "yes"},
    {"z": None},
]


@pytest.mark.parametrize("odd", ODD, ids=lambda x: str(type(x).__name__))
def test_evidence_that_is_none_is_a_query_error(odd):
    for ask in questions():
        with pytest.raises(mm.QueryError):
            ask(["y"], odd)


ODD_QUERIES = [
    "y",
    "",
    b"y",
    3,
    2.5,
    True,
    math.nan,
    object(),
    len,
    range(2),
    np.array("y"),
    np.array([["y"]]),
    mm.Variable("y"),
    {},
    {"y": 1},
    {"x", "z"},
    [None],
    [True],
    [math.nan],
    ["z"],
    ["y", "y"],
    [["y"]],
    [{"y"}],
    [{}],
    [object()],
    [b"y"],
    [10**5000],
    ["y", np.array([1])],
]


@pytest.mark.parametrize("odd", ODD_QUERIES, ids=lambda x: str(type(x).__name__))
def test_a_query_that_is_none_is_a_query_error(odd):
    for ask in questions()[:8]:
        with pytest.raises(mm.QueryError):
            ask(odd, {"x": "yes"})


def test_queries_in_every_clear_form():
    pandas = pytest.importorskip("pandas")
    circuit = circuit_of(("no", "yes"))
    for query in (["y"], ("y",), {"y"}, iter(["y"]), np.array(["y"]), pandas.Index(["y"]), pandas.Series(["y"])):
        assert list(mm.marginal_map(circuit, query, {"x": "yes"}).state) == ["y"]
    for query in ({"y"}, iter(["y"]), np.array(["y"]), pandas.Index(["y"])):
        assert [list(a.state) for a in mm.marginal_map_many(circuit, query, [{}, {}], jobs=1)] == [["y"], ["y"]]
    for query, words in (
        ("y", "one text is the name of one variable"),
        (3, "type int"),
        (2.5, "type float"),
        ({}, "dict"),
    ):
        with pytest.raises(mm.QueryError, match=words):
            mm.marginal_map_many(circuit, query, [{}])


NOTHING = [None, math.nan, np.float32("nan"), np.datetime64("NaT", "s"), np.timedelta64("NaT", "s")]


@pytest.mark.parametrize("nothing", NOTHING, ids=repr)
def test_none_and_nan_are_not_observed(nothing):
    circuit, network = circuit_of(("no", "yes")), network_of(("no", "yes"))
    assert is_missing(nothing)
    for model in (circuit, network):
        found = mm.marginal_map(model, ["y"], {"x": nothing})
        assert found.log_prob == pytest.approx(mm.marginal_map(model, ["y"]).log_prob)
        assert list(mm.marginal_map(model, None, {"x": nothing}).state) == ["x", "y"]
        assert list(mm.marginal_map(model, ["x"], {"x": nothing}).state) == ["x"]
        assert row_answer(model, [{"x": nothing}]) == row_answer(model, [[nothing, None]]) == MISSING
    assert mm.log_marginal(circuit, {"x": nothing}) == pytest.approx(0)
    assert set(mm.posteriors(circuit, {"x": nothing})) == {"x", "y"}
    assert mm.log_conditional(circuit, {"y": 1}, {"y": nothing}) == pytest.approx(math.log(0.2))
    assert mm.certify(circuit, ["y"], {"x": nothing}).evidence == {}
    continuous = mm.circuit_of(mm.gaussian(mm.Variable("g", 0), 0, 1) * mm.bernoulli(mm.Variable("y"), 0.2))
    assert mm.log_marginal(continuous, {"g": nothing}) == pytest.approx(0)


def test_pandas_evidence():
    pandas = pytest.importorskip("pandas")
    circuit, network = circuit_of(("no", "yes")), network_of(("no", "yes"))
    for nothing in (pandas.NA, pandas.NaT):
        assert mm.log_marginal(circuit, {"x": nothing}) == pytest.approx(0)
    frame = pandas.DataFrame({"x": ["yes", None, "no"], "y": [1, 0, -1]})
    for ask in questions():
        for evidence in (frame, frame[:0], frame["x"], frame.to_numpy()):
            with pytest.raises(mm.QueryError):
                ask(["y"], evidence)
    with pytest.raises(mm.QueryError, match=r"a frame of 3 rows.*marginal_map_many"):
        mm.marginal_map(circuit, ["y"], frame)
    with pytest.raises(mm.QueryError, match="marginal_map_many"):
        mm.marginal_map(circuit, ["y"], frame.to_numpy())
    with pytest.raises(mm.QueryError, match="one Series"):
        mm.marginal_map_many(circuit, ["y"], frame.iloc[0])
    for model in (circuit, network):
        many = mm.marginal_map_many(model, None, frame, jobs=1)
        for row, right in enumerate(many):
            for one in (frame.iloc[row], frame.iloc[[row]]):
                assert mm.marginal_map(model, None, one).state == right.state
        series = [frame.iloc[row] for row in range(3)]
        assert [a.state for a in mm.marginal_map_many(model, None, series, jobs=1)] == [{}, {"x": "no"}, {"y": 0}]
    for function in (mm.log_marginal, mm.posteriors, lambda c, e: mm.sample(c, 3, e, seed=1)):
        left, right = function(circuit, frame.iloc[[1]]), function(circuit, {"y": 0})
        assert str(left) == str(right)
    twice = pandas.DataFrame([["yes", "no"]], columns=["x", "x"])
    with pytest.raises(mm.QueryError, match="twice"):
        mm.marginal_map(circuit, ["y"], twice)
    five = circuit_of(("5", "4", "3", "2", "1", "0"))
    floats = pandas.DataFrame({"x": [5, None, 0]})  # which pandas makes 5.0 and 0.0
    assert [told(five, a.log_prob) for a in mm.marginal_map_many(five, ["y"], floats, jobs=1)] == [0, MISSING, 5]


def test_minus_one_is_refused_in_evidence_and_missing_in_a_row():
    circuit = circuit_of(())
    with pytest.raises(mm.QueryError, match="value -1 is out of range"):
        mm.marginal_map(circuit, ["y"], {"x": -1})
    for cell in (-1, -1.0, "-1", "-1.0", np.int8(-1)):
        assert row_answer(circuit, [{"x": cell}]) == MISSING
    assert row_answer(circuit_of(("-1", "0", "1")), [{"x": -1}]) == 0


# -- files of one column


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("x\n1\n\n2\n", {}, [1, MISSING, 2]),
        ("x\n\n\n0", {}, [MISSING, MISSING, 0]),
        ("x\r\n1\r\n\r\n2\r\n", {}, [1, MISSING, 2]),
        ("x\n1\n2\n\n", {}, [1, 2, MISSING]),
        ('x\n1\n""\n  \n2\n', {}, [1, MISSING, MISSING, 2]),
        ("1\n\n2\n", {"columns": ["x"]}, [1, MISSING, 2]),
        ("\n1\n\n2", {"columns": ["x"]}, [MISSING, 1, MISSING, 2]),
        ("\n\nx\n1\n\n2\n", {}, [1, MISSING, 2]),
        ("x,y\n1,\n\n2,\n  \n,\n", {}, [1, 2, MISSING]),
        ("\n1,-1\n\n2,-1\n", {}, [1, 2]),
    ],
)
def test_empty_lines(text, options, expected, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(text.encode())
    circuit = circuit_of(())
    answers = list(mm.marginal_map_many(circuit, ["y"], path, jobs=1, **options))
    assert [told(circuit, a.log_prob) for a in answers] == expected
    if not options:
        mm.save(circuit, tmp_path / "model.json")
        command = ["solve", tmp_path / "model.json", "-q", "y", "--batch", path, "-o", tmp_path / "out.jsonl", "-j", 1]
        run = CliRunner().invoke(app, [str(part) for part in command])
        assert run.exit_code == 0, run.output
        lines = (tmp_path / "out.jsonl").read_text().splitlines()
        assert [told(circuit, json.loads(line)["log_prob"]) for line in lines] == expected


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0\n\n1\n", [0, None, 1]),
        ("\n0\n1", [None, 0, 1]),
        ("0\n1\n\n", [0, 1, None]),
        ("0\r\n\r\n1\r\n", [0, None, 1]),
        ("0\nnan\n1\n", [0, None, 1]),
    ],
)
def test_empty_lines_of_numbers(text, values, tmp_path):
    x = mm.Variable("x")
    mm.save(mm.circuit_of(mm.bernoulli(x, 0.2)), tmp_path / "model.json")
    (tmp_path / "rows.csv").write_bytes(text.encode())
    command = ["likelihood", tmp_path / "model.json", tmp_path / "rows.csv", "--per-row", "--json"]
    run = CliRunner().invoke(app, [str(part) for part in command])
    expected = [{0: math.log(0.8), 1: math.log(0.2), None: 0.0}[value] for value in values]
    assert json.loads(run.stdout)["log_likelihoods"] == pytest.approx(expected, abs=1e-12)


# -- numbers


ODD_NUMBERS = ["4_9", "1_0", "１０", "٣", "1٫5", "৪", "1e1_0", "²", "½", "−1"]


@pytest.mark.parametrize("text", ODD_NUMBERS)
def test_ascii_digits_only(text, tmp_path):
    assert number_of(text) is None
    for read in (whole_of, real_of):
        with pytest.raises(ValueError, match=r"invalid literal|could not convert"):
            read(text)
    continuous = mm.circuit_of(mm.gaussian(mm.Variable("g", 0), 0, 1) * mm.bernoulli(mm.Variable("y"), 0.2))
    circuit = mm.circuit_of(mm.categorical(mm.Variable("x", 60), [1 / 60] * 60))
    for model, name in ((continuous, "g"), (circuit, "x")):
        with pytest.raises(mm.QueryError):
            mm.log_marginal(model, {name: text})
    model = tmp_path / "model.json"
    mm.save(circuit, model)

    def refused(*args):
        run = CliRunner().invoke(app, [str(arg) for arg in args])
        assert run.exit_code == 2, run.output

    refused("solve", model, "--top", text)
    refused("solve", model, "--time-limit", text)
    refused("solve", model, "--gap", text)
    refused("solve", model, "--memory-limit", text)
    refused("solve", model, "-m", "iterative", "--option", f"depth={text}")
    refused("sample", model, "-n", text)
    refused("sample", model, "--seed", text)
    refused("bench", "generate", model, "-o", tmp_path, "--proportions", f"{text}/30/40")
    refused("bench", "generate", model, "-o", tmp_path, "-n", text)
    (tmp_path / "bad.bif").write_text(
        "variable a { type discrete [2] { x, y }; }\nprobability ( a ) { table 0." + text + ", 0.5; }\n"
    )
    with pytest.raises(mm.FormatError):
        mm.load_network(tmp_path / "bad.bif")
    (tmp_path / "trace.csv").write_text(f"iteration,seconds\n{text},1\n")
    with pytest.raises(mm.FormatError):
        mm.plot.read_trace(tmp_path / "trace.csv")
    for data in (np.array([[text, 1], ["0", 0]], dtype=object), [[text, "1"], ["0", "0"]]):
        assert text in mm.learn.chow_liu(data).variables[0].states  # a text, and no number


@given(
    st.one_of(st.text(max_size=6), st.from_regex(r"[-+ ]?[0-9_]{1,4}(\.[0-9]{0,3})?(e-?[0-9]{1,2})?", fullmatch=True))
)
def test_numbers_are_those_of_python_but_for_digits(text):
    plain = all(ord(letter) < 128 and letter != "_" for letter in text)
    for ours, theirs in ((whole_of, int), (real_of, float)):
        try:
            right = theirs(text) if plain else None
        except ValueError:
            right = None
        try:
            found = ours(text)
        except ValueError:
            found = None
        assert found == right or (found != found and right != right)


def test_every_pair_of_adversarial_names_has_no_silent_swap(tmp_path):
    """The same cell as text, as pandas would have it, and as a number: no two different states, ever."""
    for states in ADVERSARIAL:
        variable = mm.Variable("x", len(states) or 3, states)
        for text in cells_of(states):
            meanings = set()
            number = number_of(text.strip())
            for value in [text, text.strip()] + ([] if number is None else [number, float(number)]):
                try:
                    meanings.add(variable.code(value))
                except mm.QueryError:
                    continue
            exact = {states.index(t) for t in (text, text.strip()) if t in states}
            assert len(meanings) <= max(1, len(exact)), (states, text, list(itertools.islice(meanings, 3)))
