"""Instances: divided in the proportions asked for, possible, the same for the same seed; and their two file formats."""

import json
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
import naive
from circuits import SORTS, fixed, random_circuit
from margmap.bench import instances as bench
from margmap.cli.inputs import read_instance
from margmap.errors import FormatError, QueryError
from margmap.io.formats import BUNDLED


def chain(n, name=lambda i: i):
    """n binary variables that must all be equal: nearly all uniform evidence is impossible."""
    variables = [mm.Variable(name(i)) for i in range(n)]
    parts = []
    for value in (0, 1):
        product = variables[0][value]
        for variable in variables[1:]:
            product = product * variable[value]
        parts.append(product)
    return mm.circuit_of(0.3 * parts[0] + 0.7 * parts[1], variables)


def independent(n):
    variables = [mm.Variable(f"X{i}") for i in range(n)]
    product = mm.bernoulli(variables[0], 0.5)
    for i, variable in enumerate(variables[1:]):
        product = product * mm.bernoulli(variable, (i + 1) / (n + 1))
    return mm.circuit_of(product, variables)


@pytest.mark.parametrize("sort", SORTS)
def test_every_instance_is_possible_and_divided_as_asked(sort):
    rng = np.random.default_rng(7)
    for seed in range(4):
        circuit = random_circuit(rng, **SORTS[sort])
        names = [circuit.names[i] for i in naive.mentioned(circuit)]
        for instance in bench.generate(circuit, [(0.5, 0.3, 0.2)], 3, seed):
            assert len(instance.query) == max(1, int(0.5 * len(names) + 1e-9))
            assert len(instance.evidence) == int(0.3 * len(names) + 1e-9)
            assert set(instance.query) | set(instance.evidence) <= set(names)
            assert not set(instance.query) & set(instance.evidence)
            assert naive.probability(circuit, fixed(circuit, instance.evidence)) > 0
            assert mm.marginal_map(circuit, instance.query, instance.evidence).status == "optimal"


def test_proportions_round_down_and_float_noise_does_not_count():
    (instance,) = bench.generate(independent(100), [(0.29, 0.57, 0.14)], 1)
    assert (len(instance.query), len(instance.evidence)) == (29, 57)
    (small,) = bench.generate(independent(2), [(0.3, 0.3, 0.4)], 1)
    assert (len(small.query), len(small.evidence)) == (1, 0)


def test_seeds_decide_and_order_does_not():
    circuit = independent(20)
    both = bench.generate(circuit, bench.PAPER, 3, seed=5, name="a")
    assert both == bench.generate(circuit, bench.PAPER, 3, seed=5, name="a")
    assert both[3:] == bench.generate(circuit, bench.PAPER[1:], 3, seed=5, name="a")
    assert both[:2] == bench.generate(circuit, bench.PAPER[:1], 2, seed=5, name="a")
    assert len({str(instance) for instance in both}) == 6
    for other in ({"seed": 6, "name": "a"}, {"seed": 5, "name": "b"}):
        assert bench.generate(circuit, bench.PAPER, 3, **other) != both


def test_the_division_and_the_values_are_uniform():
    circuit = independent(10)
    asked, ones, observed = np.zeros(10), 0, 0
    for instance in bench.generate(circuit, [(0.3, 0.3, 0.4)], 1000):
        asked[[circuit.index(name) for name in instance.query]] += 1
        ones += sum(instance.evidence.values())
        observed += len(instance.evidence)
        assert instance.evidence_from == "uniform"
    # Five standard deviations: sqrt(1000 * 0.3 * 0.7) is 14.5, and sqrt(3000) / 2 is 27.
    assert abs(asked - 300).max() < 73
    assert observed == 3000
    assert abs(ones - 1500) < 137


def test_evidence_that_is_nearly_never_possible_comes_from_the_circuit():
    for instance in bench.generate(chain(60), [(0.3, 0.5, 0.2)], 5):
        assert instance.evidence_from == "circuit"
        assert len(set(instance.evidence.values())) == 1


def test_evidence_with_a_continuous_variable_comes_from_the_circuit():
    rng = np.random.default_rng(1)
    circuit = random_circuit(rng, **SORTS["with continuous"])
    found = bench.generate(circuit, [(0.2, 0.8, 0.0)], 5)
    assert {instance.evidence_from for instance in found} == {"circuit", "uniform"}
    for instance in found:
        assert (instance.evidence_from == "circuit") == any(isinstance(x, float) for x in instance.evidence.values())


def test_evidence_from_rows():
    circuit = chain(8)
    rows = np.array([[0, 1] * 4, [1] * 8, [0] * 8, [-1] * 8])
    found = bench.generate(circuit, [(0.25, 0.5, 0.25)], 20, rows=rows)
    assert {instance.evidence_from for instance in found} == {"row 1", "row 2"}
    for instance in found:
        assert set(instance.evidence.values()) == {int(instance.evidence_from == "row 1")}
    assert found == bench.generate(circuit, [(0.25, 0.5, 0.25)], 20, rows=rows.astype(float))
    as_bool = bench.generate(circuit, [(0.25, 0.5, 0.25)], 2, rows=rows[1:3] == 1)
    assert {type(value) for instance in as_bool for value in instance.evidence.values()} == {int}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": 0}, "at least one"),
        ({"proportions": [(0.5, 0.2, 0.2)]}, "add up to 1"),
        ({"proportions": [(0.5, 0.5)]}, "three numbers"),
        ({"proportions": [(0.0, 0.5, 0.5)]}, "a query variable is needed"),
        ({"proportions": [(1.5, -1.0, 0.5)]}, "three numbers"),
        ({"proportions": [(float("nan"), 0.5, 0.5)]}, "three numbers"),
        ({"rows": [[0, 1]]}, "one column of numbers each"),
        ({"rows": [[-1] * 8]}, "columns in the circuit's order"),
        ({"rows": [[2] * 8]}, "out of range"),
        ({"rows": [["a"] * 8]}, "one column of numbers each"),
    ],
)
def test_bad_requests(options, message):
    with pytest.raises(QueryError, match=message):
        bench.generate(chain(8), **options)


def test_names_that_a_file_cannot_tell_apart_are_refused():
    with pytest.raises(QueryError, match="same name as text"):
        bench.generate(chain(2, name=lambda i: [3, "3"][i]))


def test_files_come_back_and_solve_reads_them(tmp_path):
    circuit = random_circuit(np.random.default_rng(3), values=(2, 3), variables=8)
    model = tmp_path / "models" / "one.json"
    model.parent.mkdir()
    mm.save(circuit, model)
    path = tmp_path / "instances" / "one.json"
    path.parent.mkdir()
    given = bench.InstanceFile('o"ne', bench.relative_model(model, path), 4, bench.generate(circuit, seed=4))
    bench.write(path, given)
    back = bench.read(path)
    assert back.model == "../models/one.json"
    assert back.model_path(path).samefile(model)
    assert (back.dataset, back.seed, len(back.instances)) == ('o"ne', 4, 20)
    for index, (was, instance) in enumerate(zip(given.instances, back.instances, strict=True)):
        assert instance.query == was.query
        assert instance.evidence == {str(name): value for name, value in was.evidence.items()}
        assert instance[2:] == was[2:]
        assert read_instance(path, index) == (instance.query, instance.evidence)
    assert bench.write(tmp_path / "again.json", back) is None
    assert bench.read(tmp_path / "again.json") == back


GOOD = {"query": ["a"], "evidence": {"b": 1}, "proportions": [0.5, 0.3, 0.2], "evidence_from": "uniform"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "line 1.*not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"model": "x", "seed": NaN}', "NaN is not JSON"),
        ('{"model": "x", "model": "y"}', "'model' is given twice"),
        ([], "not a file of instances"),
        ({"dataset": "x", "instances": [GOOD]}, '"model"'),
        ({"model": "x", "instances": [GOOD]}, '"dataset"'),
        ({"dataset": "", "model": "x", "instances": [GOOD]}, '"dataset"'),
        ({"dataset": "x", "model": "x", "seed": "1", "instances": [GOOD]}, '"seed"'),
        ({"dataset": "x", "model": "x"}, '"instances"'),
        ({"dataset": "x", "model": "x", "instances": []}, '"instances"'),
        ([3], "instance 1: expected"),
        ([{**GOOD, "query": "a"}], 'instance 1: "query"'),
        ([{**GOOD, "query": []}], 'instance 1: "query"'),
        ([{**GOOD, "query": [True]}], 'instance 1: "query"'),
        ([{**GOOD, "query": ["a", "a"]}], "instance 1: a variable is queried twice"),
        ([{**GOOD, "query": ["b"]}], "instance 1: a variable is queried twice"),
        ([{**GOOD, "evidence": {"b": None}}], 'instance 1: "evidence"'),
        ([{**GOOD, "evidence_from": 3}], 'instance 1: "evidence_from"'),
        ([{**GOOD, "proportions": None}], 'instance 1: "proportions"'),
        ([{**GOOD, "proportions": [1, 1, 1]}], "instance 1: proportions"),
    ],
)
def test_bad_files(tmp_path, data, message):
    path = tmp_path / "bad.json"
    if isinstance(data, list) and data:
        data = {"dataset": "x", "model": "x", "instances": [GOOD, *data]}
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    with pytest.raises(FormatError, match=f"(?s)bad.json.*{message}"):
        bench.read(path)


@pytest.mark.parametrize("marks", [bench.JUICE, bench.MAXSPN])
def test_csv_comes_back(tmp_path, marks):
    circuit = independent(10)
    given = bench.generate(circuit, bench.PAPER, 3)
    path = tmp_path / "x.csv"
    bench.write_csv(path, given, circuit.variables, marks)
    lines = path.read_text().splitlines()
    assert len(lines) == 6
    assert [lines[0].split(",").count(cell) for cell in marks] == [3, 4]
    back = bench.read_csv(path, circuit.variables, marks)
    assert [instance[:3] for instance in back] == [instance[:3] for instance in given]
    other = bench.MAXSPN if marks == bench.JUICE else bench.JUICE
    swapped = bench.read_csv(path, circuit.variables, other)
    assert [len(instance.query) for instance in swapped] == [4, 4, 4, 3, 3, 3]


def test_csv_keeps_state_names(tmp_path):
    a, b = mm.Variable("a", 2, ("no", "yes")), mm.Variable("b")
    instance = bench.Instance(["b"], {"a": "yes"}, (0.5, 0.5, 0.0), "uniform")
    bench.write_csv(tmp_path / "x.csv", [instance], [a, b])
    assert (tmp_path / "x.csv").read_text() == "true,*\n"
    assert bench.read_csv(tmp_path / "x.csv", [a, b], bench.JUICE) == [instance._replace(evidence_from="line 1")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("true,*\n\ntrue\n", "line 3: 1 fields, but the circuit has 2"),
        ("true,*\n1,*\n", "line 2: variable 'a': '1' is none of"),
        ("true,?\n", "line 1: no variable is marked"),
        ("", "empty"),
    ],
)
def test_bad_csv(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(FormatError, match=f"bad.csv.*{message}"):
        bench.read_csv(path, [mm.Variable("a"), mm.Variable("b")], bench.JUICE)


def test_csv_is_for_binary_variables_of_the_circuit(tmp_path):
    path = tmp_path / "x.csv"
    for variable, message in ((mm.Variable("c", 3), "has 3 values"), (mm.Variable("c", 0), "is continuous")):
        with pytest.raises(FormatError, match=f"variable 'c' {message}"):
            bench.write_csv(path, [], [mm.Variable("a"), variable])
    with pytest.raises(FormatError, match="'z' is not a variable"):
        bench.write_csv(path, [bench.Instance(["z"], {}, (1, 0, 0), "uniform")], [mm.Variable("a")])
    assert not path.exists()


def test_a_bundled_model_keeps_its_name_and_is_found(tmp_path, monkeypatch):
    """Wherever the file of instances is; a file of that name beside it comes first."""
    monkeypatch.chdir(tmp_path)
    assert bench.relative_model("clinic", "instances/clinic.json") == "clinic"
    file = bench.InstanceFile("clinic", "clinic", 1, [])
    assert file.model_path("instances/clinic.json") == BUNDLED["clinic"]
    assert bench.InstanceFile("x", "x.psdd", 1, []).model_path("instances/x.json") == Path("instances/x.psdd")
    Path("instances").mkdir()
    Path("instances/clinic").touch()
    assert file.model_path("instances/clinic.json") == Path("instances/clinic")
