"""The command on networks."""

import json
import math

import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app

NET = """network clinic { }
variable flu { type discrete [ 2 ] { yes, no }; }
variable fever { type discrete [ 3 ] { high, mild, none }; }
variable cough { type discrete [ 2 ] { yes, no }; }
probability ( flu ) { table 0.1, 0.9; }
probability ( fever | flu ) { (yes) 0.6, 0.3, 0.1; (no) 0.02, 0.08, 0.9; }
probability ( cough | flu ) { (yes) 0.7, 0.3; (no) 0.2, 0.8; }
"""
UAI = "MARKOV 3 2 2 2 2 2 0 1 2 1 2 4 1 2 3 4 4 5 6 7 8"


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "clinic.bif"
    path.write_text(NET)
    return str(path)


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words], prog_name="margmap")
    assert result.exit_code == code, result.output
    return result


def test_solve_by_names_and_states(net):
    answer = json.loads(run("solve", net, "--query", "flu", "--evidence", "fever=high,cough=yes", "--json").stdout)
    assert answer["state"] == {"flu": "yes"}
    assert answer["status"] == "optimal"
    assert math.exp(answer["log_prob"]) == pytest.approx(0.1 * 0.6 * 0.7)
    frontier = run("solve", net, "-q", "flu", "-e", "fever=high", "--method", "frontier", "--json")
    assert json.loads(frontier.stdout)["method"] == "frontier"
    assert "no state 'hot'" in run("solve", net, "-e", "fever=hot", code=2).stderr


def test_info_tells_the_size_before_any_work(net):
    facts = json.loads(run("info", net, "--json").stdout)
    assert (facts["kind"], facts["variables"], facts["width"]) == ("bayes", 3, 1)
    assert facts["table_entries"] == 12
    assert "table entries" in run("info", net).stdout


def test_other_commands_compile(net, tmp_path):
    answer = json.loads(run("marginal", net, "--evidence", "fever=high", "--posteriors", "--json").stdout)
    assert math.exp(answer["log_evidence"]) == pytest.approx(0.06 + 0.018)
    assert answer["posteriors"]["flu"]["yes"] == pytest.approx(0.06 / 0.078)
    assert len(run("sample", net, "-n", "4", "--seed", "1").stdout.splitlines()) == 4
    target = tmp_path / "clinic.json"
    run("convert", net, target)
    assert mm.load(target).names == ("flu", "fever", "cough")
    run("convert", net, tmp_path / "clinic.vtree")
    run("convert", net, tmp_path / "clinic.jpc")


def test_commands_ask_a_network_directly(net, tmp_path):
    answer = json.loads(run("marginal", net, "-e", "fever=high", "-t", "flu=yes", "--json").stdout)
    assert math.exp(answer["log_conditional"]) == pytest.approx(0.06 / 0.078)
    rows = tmp_path / "rows.csv"
    rows.write_text("0,0,0\n1,,1\n")
    answer = json.loads(run("likelihood", net, rows, "--per-row", "--json").stdout)
    assert answer["log_likelihoods"] == pytest.approx([math.log(0.1 * 0.6 * 0.7), math.log(0.9 * 0.8)])
    drawn = json.loads(run("sample", net, "-n", "3", "-e", "fever=mild", "--json").stdout)
    assert drawn["variables"] == ["flu", "fever", "cough"]
    assert [row[1] for row in drawn["rows"]] == [1, 1, 1]
    found = json.loads(run("approximate", net, "-q", "flu", "-e", "fever=high,cough=yes", "--json").stdout)
    assert found["state"] == {"flu": "yes"}
    assert json.loads(run("solve", net, "--json").stdout)["state"] == {"flu": "no", "fever": "none", "cough": "no"}
    assert "probability 0" in run("marginal", with_zeros(tmp_path), "-e", "1=1", "--posteriors", code=2).stderr


def with_zeros(folder):
    path = folder / "zero.uai"
    path.write_text("BAYES 2 2 2 2 1 0 2 0 1 2 1 0 4 1 0 0.5 0.5")
    return path


def test_max_edges(net):
    for words in (("marginal", net, "--posteriors"), ("sample", net, "-e", "cough=yes"), ("approximate", net)):
        assert "max_edges=2" in run(*words, "--max-edges", "2", code=2).stderr


def test_uai_files(tmp_path):
    path = tmp_path / "x.uai"
    path.write_text(UAI)
    (tmp_path / "x.uai.evid").write_text("1\n1 0 1\n")
    (tmp_path / "x.uai.query").write_text("1 2\n")
    expected = {"2": 1}  # 3 * 6 + 4 * 8 beats 3 * 5 + 4 * 7
    for words in (
        ["--uai-files"],
        ["--evid", f"{path}.evid", "--query-file", f"{path}.query"],
        ["-q", "2", "-e", "0=1"],
    ):
        answer = json.loads(run("solve", path, *words, "--json").stdout)
        assert answer["state"] == expected
        assert math.exp(answer["log_prob"]) == pytest.approx(50)
    run("solve", path, "--uai-files", "--evidence", "0=1", code=2)
    (tmp_path / "x.uai.evid").unlink()
    assert "no such file" in run("solve", path, "--uai-files", code=2).stderr


def test_uai_options_need_a_network():
    from margmap import demo

    model = next(iter((__import__("pathlib").Path(demo.__file__).parent / "models").glob("*.json")))
    run("solve", model, "--uai-files", code=2)
