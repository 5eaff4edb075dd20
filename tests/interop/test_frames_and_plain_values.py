"""What counts as a model, frames in place of arrays, and answers made of plain Python values."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
from circuits import SORTS, random_circuit, random_instance, running_example

SKY, WIND, HEAT = mm.Variable("sky", 3, ("clear", "grey", "rain")), mm.Variable(7), mm.Variable("heat", 0)


def weather():
    """Names and numbers, states with and without names, and a continuous variable."""
    warm = SKY["clear"] * mm.bernoulli(WIND, 0.2) * mm.gaussian(HEAT, 20, 3)
    wet = mm.categorical(SKY, [0.0, 0.4, 0.6]) * mm.bernoulli(WIND, 0.7) * mm.gaussian(HEAT, 10, 4)
    return mm.circuit_of(0.4 * warm + 0.6 * wet, [SKY, WIND, HEAT])


def clinic():
    flu, fever = mm.Variable("flu", 2, ("yes", "no")), mm.Variable("fever", 2, ("yes", "no"))
    return mm.Network([flu, fever], [([0], [0.1, 0.9]), ([0, 1], [[0.8, 0.2], [0.05, 0.95]])])


class Table:
    """What a table of pgmpy looks like from outside."""

    def __init__(self, variables, values, state_names):
        self.variables, self.values, self.state_names = variables, np.array(values), state_names


class FromPgmpy:
    """What a model of pgmpy looks like from outside."""

    __module__ = "pgmpy.models.DiscreteBayesianNetwork"

    def nodes(self):
        return ["flu", "fever"]

    def get_cpds(self):
        states = {"flu": ["yes", "no"], "fever": ["yes", "no"]}
        return [Table(["flu"], [0.1, 0.9], states), Table(["fever", "flu"], [[0.8, 0.05], [0.2, 0.95]], states)]


class Derived(FromPgmpy):
    """A user's own class on top of it."""


def test_a_network_with_the_names_3_and_3_is_asked_by_its_variables():
    number, text = mm.Variable(3), mm.Variable("3")
    network = mm.Network([number, text], [([0], [0.2, 0.8]), ([0, 1], [[0.9, 0.1], [0.3, 0.7]])])
    assert mm.approximate(network, [number], {text: 0}).state == {3: 1}
    assert mm.approximate(network).state == {3: 1, "3": 1}
    assert mm.log_conditional(network, {text: 1}, {number: 0}) == pytest.approx(math.log(0.1))
    with pytest.raises(mm.QueryError, match="can mean"):
        mm.log_marginal(network, {3: 1})


def test_circuits_and_networks_are_themselves():
    circuit, network = running_example(), clinic()
    assert mm.as_model(circuit) is circuit
    assert mm.as_model(network) is network


@pytest.mark.parametrize("model", [FromPgmpy(), Derived()])
def test_every_question_takes_a_model_of_another_library(model):
    network, evidence = clinic(), {"fever": "yes"}
    assert repr(mm.as_model(model)) == repr(network)
    assert mm.marginal_map(model, ["flu"], evidence).state == {"flu": "yes"}
    assert mm.mpe(model, evidence).state == {"flu": "yes"}
    assert [r.state for r in mm.marginal_map_many(model, ["flu"], [evidence], jobs=1)] == [{"flu": "yes"}]
    assert mm.approximate(model, ["flu"], evidence).state == {"flu": "yes"}
    assert mm.log_marginal(model, evidence) == pytest.approx(math.log(0.125))
    assert mm.log_conditional(model, {"flu": "yes"}, evidence) == pytest.approx(math.log(0.64))
    assert mm.posteriors(model, evidence) == {"flu": {"yes": pytest.approx(0.64), "no": pytest.approx(0.36)}}
    assert mm.log_likelihood(model, [[0, 0], [1, -1]]) == pytest.approx(np.log([0.08, 0.9]))
    assert mm.sample(model, 4, evidence, seed=0)[:, 1].tolist() == [0] * 4
    assert mm.compile(model).names == ("flu", "fever")


@pytest.mark.filterwarnings("ignore")
def test_models_of_pgmpy_itself():
    models = pytest.importorskip("pgmpy.models", reason="the extra `bn` is not installed")
    from pgmpy.factors.discrete import DiscreteFactor, TabularCPD

    flu = TabularCPD("flu", 2, [[0.1], [0.9]], state_names={"flu": ["yes", "no"]})
    states = {"flu": ["yes", "no"], "fever": ["yes", "no"]}
    fever = TabularCPD("fever", 2, [[0.8, 0.05], [0.2, 0.95]], ["flu"], [2], state_names=states)
    bayes = models.DiscreteBayesianNetwork([("flu", "fever")])
    with pytest.raises(mm.StructureError, match="variable 'flu' has no table in this DiscreteBayesianNetwork"):
        mm.marginal_map(bayes)
    bayes.add_cpds(flu, fever)
    assert mm.mpe(bayes, {"fever": "yes"}).state == {"flu": "yes"}
    assert mm.posteriors(bayes, {"fever": "yes"})["flu"]["yes"] == pytest.approx(0.64)
    table = DiscreteFactor(["a", "b"], [2, 2], [1, 2, 3, 5])
    markov = models.DiscreteMarkovNetwork([("a", "b")])
    markov.add_factors(table)
    graph = models.FactorGraph()
    graph.add_nodes_from(["a", "b", table])
    graph.add_edges_from([("a", table), ("b", table)])
    graph.add_factors(table)
    for model in (markov, graph):
        assert mm.mpe(model).state == {"a": 1, "b": 1}
        assert mm.log_marginal(model) == pytest.approx(math.log(11))
    slices = models.DynamicBayesianNetwork([(("a", 0), ("a", 1))])
    with pytest.raises(mm.StructureError, match="DynamicBayesianNetwork of pgmpy has no end"):
        mm.marginal_map(slices)


ASK = {
    "as_model": mm.as_model,
    "marginal_map": mm.marginal_map,
    "mpe": mm.mpe,
    "marginal_map_many": lambda m: mm.marginal_map_many(m, None, []),
    "approximate": mm.approximate,
    "posteriors": mm.posteriors,
    "log_marginal": mm.log_marginal,
    "log_conditional": lambda m: mm.log_conditional(m, {}),
    "log_likelihood": lambda m: mm.log_likelihood(m, [[0, 0, 0]]),
    "sample": lambda m: mm.sample(m, 1),
    "compile": mm.compile,
    "certify": mm.certify,
    "verify": lambda m: mm.verify(m, mm.certify(running_example())),
    "check": mm.check,
    "smooth": mm.smooth,
    "normalise": mm.normalise,
    "vtree_of": mm.vtree_of,
    "save": lambda m: mm.save(m, "model.json"),
}


class Fitted:
    circuit_ = None


@pytest.mark.parametrize("ask", ASK)
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("alarm.bif", r"type str \('alarm.bif'\) is no model: read a file with margmap.load"),
        (Path("x.psdd"), "read a file with margmap.load"),
        (np.zeros((2, 3)), "type numpy.ndarray is no model: .*learn a circuit"),
        ([[0, 1]], "learn a circuit"),
        (None, "type NoneType is no model: give a Circuit, a Network or a model of pgmpy"),
        (SKY["clear"], "margmap.circuit_of"),
        (Fitted(), r"has its circuit in .circuit_"),
        (mm.Circuit, "this is a class"),
    ],
)
def test_what_is_no_model_is_refused_with_what_to_do(ask, model, message):
    with pytest.raises(mm.ModelError, match=message):
        ASK[ask](model)


@pytest.mark.parametrize("ask", ["certify", "verify", "check", "smooth", "normalise", "vtree_of", "save"])
@pytest.mark.parametrize("network", [clinic(), FromPgmpy()])
def test_what_needs_a_circuit_says_how_to_get_one(ask, network):
    with pytest.raises(mm.ModelError, match=r"a circuit, and this is a network: .*margmap.compile"):
        ASK[ask](network)


def test_a_frame_is_no_model_and_a_circuit_is_compiled_already():
    pandas = pytest.importorskip("pandas")
    for rows in (pandas.DataFrame({"a": [1]}), pandas.Series([1])):
        with pytest.raises(mm.ModelError, match="learn a circuit"):
            mm.posteriors(rows)
    with pytest.raises(mm.ModelError, match="a circuit already"):
        mm.compile(running_example())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: mm.sample(running_example(), 2.5),
        lambda: mm.sample(running_example(), "3"),
        lambda: mm.sample(running_example(), True),
        lambda: mm.sample(running_example(), 1, seed=-1),
        lambda: mm.sample(running_example(), 1, seed="x"),
        lambda: mm.log_likelihood(running_example(), [[0, 1, 1], [0]]),
        lambda: mm.log_likelihood(running_example(), None),
        lambda: mm.marginal_map(running_example(), method=[]),
        lambda: mm.marginal_map(clinic(), method="elimination", magic=1),
        lambda: mm.mpe(running_example(), query=["X1"]),
        lambda: mm.mpe(running_example(), magic=1),
        lambda: mm.approximate(running_example(), method=[]),
        lambda: mm.save(running_example(), None),
        lambda: mm.load(None),
        lambda: mm.load_network(3),
        lambda: mm.Variable("a", "b"),
        lambda: mm.Variable("a", 2.0),
        lambda: mm.Variable("a", 2, 3),
        lambda: mm.Variable("a", 2, "xy"),
        lambda: mm.posteriors(running_example())["X9"],
        lambda: mm.posteriors(running_example(), {"X1": 1}).array("X1"),
    ],
)
def test_wrong_arguments_are_errors_of_margmap(wrong):
    with pytest.raises(mm.MargmapError):
        wrong()


class TestPosteriors:
    def test_a_mapping_of_plain_values(self):
        found = mm.posteriors(weather(), {"heat": 12.5})
        assert list(found) == ["sky", 7]
        assert len(found) == 2
        assert "heat" not in found
        assert "sky" in found
        assert set(found["sky"]) == {"clear", "grey", "rain"}
        assert math.fsum(found["sky"].values()) == pytest.approx(1)
        assert found[7] == found["7"] == {0: pytest.approx(1 - found[7][1]), 1: found[7][1]}
        assert found.get("nothing") is None
        assert found.array("sky").tolist() == list(found["sky"].values())
        assert json.loads(json.dumps(dict(found)))["sky"] == found["sky"]
        assert repr(found) == f"Posteriors({dict(found)!r})"
        assert found == dict(found)

    def test_a_continuous_variable_has_mean_and_deviation(self):
        found = mm.posteriors(weather(), {"sky": "rain"})
        assert found["heat"] == {"mean": pytest.approx(10), "deviation": pytest.approx(4)}
        assert found.array("heat") == pytest.approx([10, 4])

    def test_nobody_can_change_it(self):
        found = mm.posteriors(weather())
        with pytest.raises(TypeError):
            found["sky"] = {}
        found["sky"]["clear"] = 7.0
        assert found["sky"]["clear"] < 1
        with pytest.raises(ValueError, match="read-only"):
            found.array("sky")[0] = 1

    def test_a_variable_it_does_not_have(self):
        found = mm.posteriors(weather(), {"sky": "rain"})
        for name in ("sky", "moon", None, 3.5, ["sky"]):
            with pytest.raises(KeyError) as caught:
                found[name]
            assert isinstance(caught.value, mm.QueryError)
            assert str(caught.value) == f"no posterior of {name!r}: it is observed, or no variable of the model"

    def test_many_variables_are_not_all_shown(self):
        formula = mm.bernoulli(mm.Variable(0), 0.5)
        for i in range(1, 50):
            formula = formula * mm.bernoulli(mm.Variable(i), 0.5)
        shown = repr(mm.posteriors(mm.circuit_of(formula)))
        assert shown.endswith("11: {0: 0.5, 1: 0.5}, ... 50 variables})")


class TestFrames:
    @pytest.fixture
    def pandas(self):
        return pytest.importorskip("pandas")

    def test_samples_with_names_of_states(self, pandas):
        rows = mm.sample(weather(), 200, seed=3)
        frame = mm.sample(weather(), 200, seed=3, as_frame=True)
        assert list(frame.columns) == ["sky", 7, "heat"]
        assert frame["sky"].tolist() == [SKY.states[x] for x in rows[:, 0].astype(int)]
        assert list(frame["sky"].cat.categories) == list(SKY.states)
        assert frame[7].tolist() == rows[:, 1].tolist()
        assert frame[7].dtype == np.int64
        assert frame["heat"].tolist() == rows[:, 2].tolist()
        unmentioned = mm.circuit_of(mm.bernoulli(WIND, 0.5), [SKY, mm.Variable("z"), WIND])
        frame = mm.sample(unmentioned, 3, {"7": 1}, as_frame=True)
        assert frame.isna().sum().tolist() == [3, 3, 0]
        assert mm.sample(clinic(), 0, as_frame=True).shape == (0, 2)

    def test_samples_of_a_network(self, pandas):
        frame = mm.sample(clinic(), 50, seed=1, as_frame=True)
        assert set(frame["flu"]) <= {"yes", "no"}
        assert (
            mm.log_likelihood(clinic(), frame).tolist()
            == mm.log_likelihood(clinic(), mm.sample(clinic(), 50, seed=1)).tolist()
        )

    def test_without_pandas(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(mm.MissingExtraError, match="needs pandas"):
            mm.sample(weather(), 1, as_frame=True)

    def test_likelihood_by_the_names_of_columns(self, pandas):
        c = weather()
        frame = mm.sample(c, 100, seed=3, as_frame=True)
        expected = mm.log_likelihood(c, mm.sample(c, 100, seed=3))
        assert mm.log_likelihood(c, frame).tolist() == expected.tolist()
        assert mm.log_likelihood(c, frame[["heat", "sky", 7]]).tolist() == expected.tolist()
        assert mm.log_likelihood(c, frame.astype({"sky": object})).tolist() == expected.tolist()
        assert mm.log_likelihood(c, frame.iloc[4]).tolist() == [expected[4]]
        assert mm.log_likelihood(c, frame.iloc[:0]).shape == (0,)
        only = mm.log_likelihood(c, frame[["sky"]])
        for log_p, sky in zip(only.tolist(), frame["sky"], strict=True):
            assert log_p == pytest.approx(mm.log_marginal(c, {"sky": sky}))

    def test_missing_entries(self, pandas):
        c = weather()
        cells = {"sky": ["rain", None, "clear"], 7: [1, 0, None], "heat": [None, 12.0, 8.5]}
        found = mm.log_likelihood(c, pandas.DataFrame(cells))
        for row, log_p in enumerate(found.tolist()):
            evidence = {name: column[row] for name, column in cells.items() if column[row] is not None}
            assert log_p == pytest.approx(mm.log_marginal(c, evidence), rel=1e-12)
        cells = {"sky": [pandas.NA, "rain"], "heat": [float("nan"), "11.5"]}
        expected = [mm.log_marginal(c), mm.log_marginal(c, {"sky": "rain", "heat": 11.5})]
        assert mm.log_likelihood(c, pandas.DataFrame(cells)) == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("cells", "message"),
        [
            ({"moon": ["full"]}, "unknown variable 'moon'"),
            ({"sky": ["rain", "snow"]}, r"row index 1 \(counted from 0\): variable 'sky' has no state 'snow'"),
            ({"heat": ["hot"]}, "row index 0 .*variable 'heat' is continuous: 'hot' is not a number"),
            ({"heat": [math.inf]}, "row index 0 .*variable 'heat': evidence inf is not finite"),
            ({7: [5]}, "row index 0 .*variable 7: value 5 is out of range"),
            ({7: [[1]]}, r"row index 0 .*variable 7: \[1\]"),
        ],
    )
    def test_wrong_entries_are_named(self, pandas, cells, message):
        with pytest.raises(mm.QueryError, match=message):
            mm.log_likelihood(weather(), pandas.DataFrame(cells))


PLAIN = (bool, int, float, str, type(None))


def not_plain(value, where):
    """Places in a result, however deep, that are not made of Python's own types."""
    if type(value) in PLAIN:
        return []
    if dataclasses.is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
        parts += [(name, getattr(value, name)) for name in ("gap",) if hasattr(value, name)]
    elif hasattr(value, "items"):
        parts = [pair for key, entry in value.items() for pair in (("key", key), (str(key), entry))]
    elif isinstance(value, tuple | list):
        parts = list(zip(getattr(value, "_fields", range(len(value))), value, strict=True))
    else:
        return [f"{where}: {type(value).__name__}"]
    return [found for name, part in parts for found in not_plain(part, f"{where}.{name}")]


def results_of(model, query, evidence):
    """What every public function with an answer says, but for those that answer with an array."""
    network = isinstance(model, mm.Network)
    methods = ["auto", "iterative", "branch", "search", "brute"]
    methods += ["frontier", "elimination"] if network else ["frontier"] if model.properties.structured else []
    for method in methods:
        yield method, mm.marginal_map(model, query, evidence, method, time_limit=5)
    yield "top", mm.marginal_map(model, query, evidence, k=3)
    yield "stopped", mm.marginal_map(model, query, evidence, "branch", gap=5.0)
    yield "nothing asked", mm.marginal_map(model, [], evidence)
    yield "many", list(mm.marginal_map_many(model, query, [evidence, {"nobody": 1}], jobs=1))
    yield "log_marginal", mm.log_marginal(model, evidence)
    yield "log_conditional", mm.log_conditional(model, {}, evidence)
    yield "posteriors", mm.posteriors(model, evidence)
    for method in ("best_tree", "naive_greedy", "argmax_product", "k_best_tree", "beam"):
        yield method, mm.approximate(model, query, evidence, method)
    if not network:
        certificate = mm.certify(model, query, evidence)
        yield "certificate", dataclasses.replace(certificate, covers=())
        yield "verdict", mm.verify(model, certificate)
        yield "properties", mm.check(model)


def test_answers_are_plain_python_values():
    leaks = []
    cases = [(clinic(), ["flu"], {"fever": np.str_("yes")}), (FromPgmpy(), ["flu"], {"fever": "yes"})]
    for sort in SORTS:
        rng = np.random.default_rng(5)
        circuit = random_circuit(rng, **SORTS[sort])
        cases.append((circuit, *random_instance(rng, circuit)))
    named = mm.Variable(np.str_("a"), np.int64(2), (np.str_("x"), np.str_("y")))
    cases.append((mm.circuit_of(mm.bernoulli(named, 0.3) * mm.bernoulli(mm.Variable(np.int64(3)), 0.2)), ["a", 3], {}))
    for model, query, evidence in cases:
        for name, result in results_of(mm.as_model(model), query, evidence):
            leaks += not_plain(result, name)
            assert "np." not in repr(result), name
    assert leaks == []


def test_looking_at_an_object_imports_no_library():
    code = """if True:
        import sys, margmap as mm
        try:
            mm.as_model(3)
        except mm.ModelError:
            print({"pgmpy", "pandas"} & {*sys.modules})"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
