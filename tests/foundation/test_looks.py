"""What people see in notebooks and messages: HTML, frames, lists of variables, suggestions, no numbers of numpy."""

import html.parser
import sys

import numpy as np
import pytest

import margmap as mm
from circuits import running_example
from margmap.foundation.html import escaped, facts, table
from margmap.foundation.wording import did_you_mean, many
from margmap.network.network import Network

CHANCES = ["p(q | e)", "0.378", "0.256", "0.222"]
HOSTILE = '<img src=x onerror="alert(1)">&\x1b[31m\u202e'


class Reader(html.parser.HTMLParser):
    """The tags and the cells of some HTML."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.open = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not [name for name, _ in attributes if name.startswith("on")]
        if tag not in ("br", "img"):
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def hostile_network():
    return Network([mm.Variable(HOSTILE, 2, ("<script>", "no"))], [([0], [0.3, 0.7])])


def test_a_table_escapes_everything_and_says_what_it_leaves_out():
    read = Reader(table([HOSTILE, "n"], [(HOSTILE, 0.123456789)] * 30, HOSTILE, most=5, bars={1: 1.0}))
    assert read.tags.count("tr") == 6
    assert "img" not in read.tags
    assert read.cells[:4] == [read.cells[0], "n", read.cells[0], "0.123457"]
    assert read.cells[0].startswith('<img src=x onerror="alert(1)">&\\x1b[31m\\u202e')
    assert "... and 25 more" in table(["a"], [(1,)] * 30, most=5)
    assert "12.3%" in table(["p"], [(0.123,)], bars={0: 1.0})
    assert Reader(facts("t", {"<b>": np.float64(0.5)})).cells == ["<b>", "0.5"]
    assert escaped("a\nb") == "a\\nb"


def test_models_in_a_notebook():
    read = Reader(running_example()._repr_html_())
    assert read.cells[:2] == ["nodes", "19"]
    assert read.cells[read.cells.index("X1") :][:4] == ["X1", "binary", "2", "0, 1"]
    assert "8 indicator, 2 bernoulli" in read.cells
    network = Reader(hostile_network()._repr_html_())
    assert "script" not in network.tags
    assert "img" not in network.tags
    assert "<script>, no" in network.cells


def test_results_in_a_notebook():
    circuit = running_example()
    one = Reader(mm.marginal_map(circuit, ["X1", "X2"])._repr_html_())
    assert "proven optimal: no state is better (bounds within 1e-09 nats)" in one.cells
    assert "0.378" in one.cells
    assert one.cells[-4:] == ["X1", "1", "X2", "1"]
    several = Reader(mm.marginal_map(circuit, ["X1", "X2"], k=3)._repr_html_())
    at = several.cells.index("1.")
    assert several.cells[at : at + 3] == ["1.", "2.", "3."]
    assert several.cells[at + 3 : at + 15] == [
        "p(q | e)",
        "0.378",
        "0.256",
        "0.222",
        *["X1", "1", "0", "1", "X2", "1", "1", "0"],
    ]
    nothing = mm.marginal_map(circuit, time_limit=1e-9)
    Reader(nothing._repr_html_())
    missing = mm.Result("time_limit", None, -np.inf, -np.inf, -3.0, "auto", 1.0)
    assert "no state yet: stopped (time limit) before one was found; none has more than log p = -3.000000" in (
        Reader(missing._repr_html_()).cells
    )
    assert Reader(mm.approximate(circuit)._repr_html_()).cells
    hostile = mm.marginal_map(hostile_network())
    assert "script" not in Reader(hostile._repr_html_()).tags


def test_posteriors_in_a_notebook_and_as_a_frame():
    pandas = pytest.importorskip("pandas")
    found = mm.posteriors(running_example(), {"X1": 1})
    assert Reader(found._repr_html_()).cells[:6] == ["variable", "state", "probability", "X2", "0", "0.37"]
    frame = found.to_frame()
    assert list(frame.columns) == ["variable", "state", "probability"]
    assert frame["probability"].tolist() == [p for states in found.values() for p in states.values()]
    assert isinstance(frame, pandas.DataFrame)


def flu():
    """A network of a cause and two symptoms."""
    cause, fever = mm.Variable("flu", 2, ("no", "yes")), mm.Variable("<fever>", 2, ("no", "yes"))
    tables = [([0], [0.9, 0.1]), ([0, 1], [[0.95, 0.05], [0.2, 0.8]]), ([0, 2], [[0.8, 0.2], [0.3, 0.7]])]
    return Network([cause, fever, mm.Variable("cough")], tables)


def test_sensitivity_decisions_and_explanations_in_a_notebook():
    network = flu()
    found = mm.sensitivity(network, ["flu"], {"cough": 1})
    read = Reader(found._repr_html_())
    assert "<fever>" in read.cells
    assert "fever" not in read.tags
    words = {True: "yes", False: "no"}
    expected = [(str(c.variable), str(c.value or "not observed"), words[c.survives]) for c in found.changes]
    rows = [tuple(read.cells[i : i + 7]) for i in range(len(read.cells) - 7 * len(found.changes), len(read.cells), 7)]
    assert [(row[0], row[1], row[3]) for row in rows] == expected
    explained = Reader(mm.explain(network, {"<fever>": "yes"}, ["flu"])._repr_html_())
    assert "flu=yes" in explained.cells
    pytest.importorskip("pandas", reason="frames need pandas")
    assert len(found.to_frame()) == len(found.changes)
    decided = mm.best_decision(network, ["flu"], [(["flu", "cough"], [[1.0, 0.0], [0.0, 2.0]])])
    assert "optimal" in Reader(decided._repr_html_()).cells
    for one in (found, mm.explain(network, {"<fever>": "yes"}, ["flu"]), decided):
        assert "np." not in repr(one)


def test_results_as_frames():
    pytest.importorskip("pandas")
    result = mm.marginal_map(running_example(), ["X1", "X2"], k=4)
    frame = result.to_frame()
    assert list(frame.columns) == ["X1", "X2", "log p(q, e)", "p(q | e)"]
    assert frame.index.tolist() == [1, 2, 3, 4]
    assert frame[["X1", "X2"]].to_numpy().tolist() == [[1, 1], [0, 1], [1, 0], [0, 0]]
    assert frame["p(q | e)"].tolist() == pytest.approx([0.378, 0.256, 0.222, 0.144])
    nothing = mm.Result("time_limit", None, -np.inf, -np.inf, 0.0, "auto", 1.0)
    assert len(nothing.to_frame()) == 0
    odd = mm.circuit_of(0.4 * mm.Variable("p(q | e)")[0] + 0.6 * mm.Variable("p(q | e)")[1])
    assert list(mm.marginal_map(odd).to_frame().columns) == ["p(q | e)", "log p(q, e)", "p(q | e)"]


def test_without_pandas_frames_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(mm.MissingExtraError, match="pip install pandas"):
        mm.variables(running_example()).to_frame()


def test_print_shows_all_answers():
    text = str(mm.marginal_map(running_example(), ["X1", "X2"], k=3))
    assert text.splitlines()[4:] == [
        "the 3 best states, by what is different from the best:",
        "  1. log p(q, e) = -0.972861, p(q | e) = 0.378: the best state",
        "  2. log p(q, e) = -1.362578, p(q | e) = 0.256: X1=0",
        "  3. log p(q, e) = -1.505078, p(q | e) = 0.222: X2=0",
    ]
    assert len(str(mm.marginal_map(running_example(), ["X1", "X2"])).splitlines()) == 4


def test_no_number_of_numpy_is_shown():
    circuit = running_example()
    rng = np.random.default_rng(0)
    tables = [([0], [0.5, 0.5]), ([0, 1], rng.dirichlet([1, 1], 2)), ([1, 2], rng.dirichlet([1, 1], 2))]
    network = Network([mm.Variable(np.str_(x), np.int64(2)) for x in "abc"], tables)
    seen = []
    shown = [
        circuit,
        network,
        mm.variables(network),
        mm.check(circuit),
        mm.approximate(circuit),
        mm.posteriors(circuit),
        mm.posteriors(network, {"a": np.int64(1)}),
        dict(mm.posteriors(network)),
        mm.log_marginal(circuit, {"X1": 1}),
        mm.log_conditional(circuit, {"X1": 1}, {"X2": 1}),
        mm.certify(circuit, ["X1"]),
        mm.verify(circuit, mm.certify(circuit, ["X1"])),
        list(mm.marginal_map_many(circuit, ["X1"], np.array([[-1, 1, 0]]))),
        seen,
    ]
    for model in (circuit, network):
        for method in ("auto", "frontier", "iterative", "branch", "search", "brute"):
            result = mm.marginal_map(model, method=method, on_progress=seen.append)
            shown += [result, result.details, result.bounds, result.top, result.to_dict(), str(result)]
    for method in ("elimination", "andor"):
        shown += [mm.marginal_map(network, ["a", "b"], method=method).details]
    for one in shown:
        assert "np." not in repr(one), repr(one)
        assert "numpy" not in repr(one), repr(one)


def test_variables_of_any_model():
    pytest.importorskip("pandas")
    season, height = mm.Variable("season", 3, ("spring", "summer", "autumn")), mm.Variable("height", 0)
    long = mm.Variable("long", 20, tuple(f"s{i}" for i in range(20)))
    formula = season["spring"] * mm.gaussian(height, 1.0, 0.5) * long["s1"] * mm.Variable(7, 5)[2]
    found = mm.variables(mm.circuit_of(formula, [season, height, mm.Variable(7, 5), long]))
    assert repr(found).splitlines() == [
        "variable  kind        values  states",
        "season    discrete    3       spring, summer, autumn",
        "height    continuous          real numbers",
        "7         discrete    5       0 to 4",
        "long      discrete    20      s0, s1, s2, s3, s4, s5, s6, s7, ...",
    ]
    assert found.names == ("season", "height", 7, "long")
    assert found["season"] is season
    assert found[1] is height
    assert found["7"].name == 7
    assert len(found[1:]) == 3
    assert season in found
    with pytest.raises(KeyError, match="did you mean 'season'"):
        found["saeson"]
    frame = found.to_frame()
    assert frame["kind"].tolist() == ["discrete", "continuous", "discrete", "discrete"]
    assert frame["states"][0] == ("spring", "summer", "autumn")
    many = mm.variables(Network([mm.Variable(i) for i in range(50)], [([i], [0.5, 0.5]) for i in range(50)]))
    assert repr(many).splitlines()[-1] == "... 50 variables in all"
    assert "... and 10 more" in many._repr_html_()


@pytest.mark.parametrize(
    ("given", "known", "expected"),
    [
        ("HYPOVOLEMA", ["HISTORY", "HYPOVOLEMIA", "LVFAILURE"], "did you mean 'HYPOVOLEMIA'? "),
        ("hypovolemia", ["HYPOVOLEMIA"], "did you mean 'HYPOVOLEMIA'? "),
        ("X9", ["X1", "X2"], ""),
        ("completely", ["different"], ""),
        ("", ["a"], ""),
        ("a", [], ""),
        (12345, [12346, 3], "did you mean 12346? "),
        ("x" * 10000, ["x" * 10001], f"did you mean {'x' * 10001!r}? "),
    ],
)
def test_near_misses(given, known, expected):
    assert did_you_mean(given, known) == expected


def test_near_misses_are_suggested_wherever_names_are_given(tmp_path):
    model = Network([mm.Variable("HYPOVOLEMIA", 2, ("TRUE", "FALSE"))], [([0], [0.2, 0.8])])
    circuit = mm.compile(model)
    mm.save(circuit, tmp_path / "alarm.json")
    mean = "did you mean "
    for message, ask in [
        (f"unknown variable 'HYPOVOLEMA': {mean}'HYPOVOLEMIA'?", lambda: mm.marginal_map(model, ["HYPOVOLEMA"])),
        (f"has no state 'FASLE': {mean}'FALSE'?", lambda: mm.posteriors(circuit, {"HYPOVOLEMIA": "FASLE"})),
        (f"unknown method 'fronteir': {mean}'frontier'?", lambda: mm.marginal_map(circuit, method="fronteir")),
        (f"unknown method 'baem': {mean}'beam'?", lambda: mm.approximate(circuit, method="baem")),
        (f"no option 'timelimit': {mean}'time_limit'?", lambda: mm.marginal_map(circuit, timelimit=1)),
        (
            f"no option 'heuristik': {mean}'heuristic'?",
            lambda: mm.marginal_map(circuit, method="iterative", heuristik="UB"),
        ),
        (
            f"unknown heuristic 'pruned': {mean}'Pruned'?",
            lambda: mm.marginal_map(circuit, method="iterative", heuristic="pruned"),
        ),
        (f"there is no such file: {mean}'alarm.json'?", lambda: mm.load(tmp_path / "alarn.json")),
        (f"unknown suffix '.jsn': {mean}'json'?", lambda: mm.load(tmp_path / "alarm.jsn")),
        (f"unknown format 'jsonn': {mean}'json'?", lambda: mm.load(tmp_path / "alarm.json", "jsonn")),
        (f"no posterior of 'HYPOVOLEMA': {mean}'HYPOVOLEMIA'?", lambda: mm.posteriors(circuit)["HYPOVOLEMA"]),
        (f"there is no dataset 'nltc': {mean}'nltcs'?", lambda: mm.learn.load_dataset("nltc")),
    ]:
        with pytest.raises(mm.MargmapError) as caught:
            ask()
        assert message in str(caught.value)
    with pytest.raises(mm.FormatError, match=r"there is no such file$"):
        mm.load(tmp_path / "nothing" / "alarm.json")


def test_one_thing_is_not_several():
    assert [many(n, "vector") for n in (0, 1, 2, 1200)] == ["0 vectors", "1 vector", "2 vectors", "1,200 vectors"]
