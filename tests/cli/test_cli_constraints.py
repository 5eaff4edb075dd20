"""``solve --constraint`` and ``--differ-by``: answers, conflicts, exit codes, instance files and batches."""

import json

import pytest
from typer.testing import CliRunner

from margmap.cli import app


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "coins.json"
    import margmap as mm

    coins = [mm.bernoulli(mm.Variable(name, 2, ("off", "on")), 0.9) for name in "abcd"]
    mm.save(mm.circuit_of(coins[0] * coins[1] * coins[2] * coins[3]), path)
    return str(path)


def run(*words, code=0):
    result = CliRunner().invoke(app, ["solve", *words], prog_name="margmap")
    assert result.exit_code == code, result.output + str(result.exception)
    return result


def test_constraints_hold(model):
    found = json.loads(run(model, "-c", "at most 2 of a=on, b=on, c=on", "--constraint", "equal a, b", "--json").stdout)
    assert found["status"] == "optimal"
    assert found["state"] == {"a": "on", "b": "on", "c": "off", "d": "on"}


def test_infeasible_is_an_answer(model):
    rules = ["-c", "a in on", "-c", "b in off", "-c", "equal a, b"]
    found = json.loads(run(model, *rules, "--json").stdout)
    assert (found["status"], found["state"], found["log_prob"], found["log_upper"]) == ("infeasible", None, None, None)
    assert found["conflict"] == ["a in on", "b in off", "equal a, b"]
    assert "infeasible: no state satisfies all constraints (a in on; b in off; equal a, b)" in run(model, *rules).stdout


def test_errors_are_one_line_that_points(model):
    wrong = run(model, "-c", "at most x of a=on", code=2)
    assert "character 9" in wrong.stderr
    assert len(wrong.stderr.splitlines()) == 1
    assert "unknown variable 'z'" in run(model, "-c", "any of z=1", code=2).stderr
    assert "does not take constraints" in run(model, "-c", "any of a=on", "-m", "iterative", code=2).stderr
    assert "constraints" in run(model, "-c", "any of a=on", "--certificate", "proof.json", code=2).stderr
    assert "--top" in run(model, "--differ-by", "2", code=2).stderr


def test_answers_that_differ(model):
    found = json.loads(run(model, "--top", "3", "--differ-by", "2", "--json").stdout)
    states = [one["state"] for one in found["top"]]
    assert len(states) == 3
    assert all(sum(a[x] != b[x] for x in a) >= 2 for i, a in enumerate(states) for b in states[:i])
    shown = run(model, "--top", "9", "--differ-by", "4").stdout
    assert "there are no others: all other states are not allowed, or have probability 0" in shown


def test_instances_have_constraints(model, tmp_path):
    path = tmp_path / "instance.json"
    path.write_text(json.dumps({"evidence": {"a": "on"}, "constraints": ["mutex a=on, b=on, c=on, d=on"]}))
    found = json.loads(run(model, "--instance", str(path), "--json").stdout)
    assert found["state"] == {"b": "off", "c": "off", "d": "off"}
    path.write_text(json.dumps({"evidence": {}, "constraints": "mutex a=on"}))
    assert "must be a list of texts" in run(model, "--instance", str(path), code=2).stderr


def test_batches_have_constraints(model, tmp_path):
    rows, out = tmp_path / "rows.csv", tmp_path / "out.jsonl"
    rows.write_text("a,b\non,\non,on\n")
    run(model, "--batch", str(rows), "-o", str(out), "-j", "1", "-c", "mutex a=on, b=on", "-c", "any of c=off")
    first, second = map(json.loads, out.read_text().splitlines())
    assert first["state"] == {"b": "off", "c": "off", "d": "on"}
    assert (second["status"], second["conflict"]) == ("infeasible", ["mutex a=on, b=on"])
