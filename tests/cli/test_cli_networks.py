"""The command on networks."""

import contextlib
import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app
from margmap.foundation.limits import Stopped
from margmap.io.formats import BUNDLED

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
    (tmp_path / "x.uai.query").rename(tmp_path / "x.uai.map")
    assert json.loads(run("solve", path, "--uai-files", "--json").stdout)["state"] == expected
    run("solve", path, "--uai-files", "--evidence", "0=1", code=2)
    (tmp_path / "x.uai.evid").unlink()
    assert "no such file" in run("solve", path, "--uai-files", code=2).stderr


def test_tables_that_do_not_add_up_to_1_are_one_line(tmp_path):
    path = tmp_path / "x.uai"
    path.write_text("BAYES\n1\n2\n1\n1 0\n2\n.5 1.5\n")
    for words in (("solve", path), ("info", path), ("convert", path, tmp_path / "x.json")):
        (line,) = run(*words).stderr.splitlines()
        assert line.startswith(f"margmap: {path}, line 6: the table of variable 0 sums to 2, not to 1.")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals there")
def test_a_terminal_sees_the_bounds_of_a_hard_network_close(tmp_path):
    """A grid that may not be compiled, with strong couplings: what is shown on the way is written to the terminal."""
    import pty

    rng, size = np.random.default_rng(0), 14
    pairs = [(i, i + 1) for i in range(size * size) if i % size < size - 1]
    pairs += [(i, i + size) for i in range(size * (size - 1))]
    tables = "".join(f"4 {' '.join(map(str, np.exp(rng.normal(size=4) * 2)))}\n" for _ in pairs)
    scopes = "".join(f"2 {u} {v}\n" for u, v in pairs)
    path = tmp_path / "grid.uai"
    path.write_text(f"MARKOV\n{size * size}\n{' 2' * (size * size)}\n{len(pairs)}\n{scopes}{tables}")
    (tmp_path / "grid.uai.evid").write_text("0\n")
    query = list(range(0, size * size, 3))
    (tmp_path / "grid.uai.query").write_text(f"{len(query)} {' '.join(map(str, query))}\n")
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "margmap", "solve", str(path), "--uai-files", "-m", "andor", "--time-limit", "30"]
    shown = b""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=child, env={**os.environ, "TERM": "xterm"}):
        os.close(child)
        with contextlib.suppress(OSError):  # what Linux says when the other end is closed
            while part := os.read(parent, 65536):
                shown += part
    os.close(parent)
    text = shown.decode()
    assert "Solving ..." in text
    assert "<= log p <=" in text  # how many of the steps are seen on the way depends on the clock
    assert "best so far: " in text


def test_uai_options_need_a_network():
    model = BUNDLED["clinic"]
    run("solve", model, "--uai-files", code=2)


def test_a_wrong_name_is_told_before_the_work(net, monkeypatch):
    def work(*_args, **_options):
        pytest.fail("it began to work")

    for place in (
        "margmap.network.compile.compile",
        "margmap.solve.network_map.Problem",
        "margmap.solve.batch.compile_network",
    ):
        monkeypatch.setattr(place, work)
    (Path(net).parent / "rows.csv").write_text("flu,fewer\nyes,high\n")
    out = Path(net).parent / "out.csv"
    for words, message in (
        (["marginal", net, "-e", "fewer=yes"], "fewer"),
        (["marginal", net, "-e", "fever=maybe"], "maybe"),
        (["marginal", net, "-t", "fever=maybe"], "maybe"),
        (["sample", net, "-e", "fever=maybe"], "maybe"),
        (["approximate", net, "-q", "fewer"], "fewer"),
        (["approximate", net, "-e", "fever=maybe"], "maybe"),
        (["solve", net, "-q", "fewer"], "fewer"),
        (["solve", net, "-q", "flu", "-e", "fever=maybe"], "maybe"),
        (["solve", net, "-q", "flu", "--batch", Path(net).parent / "rows.csv", "-o", out, "--jobs", "1"], "fewer"),
    ):
        assert message in run(*words, code=2).stderr
    with pytest.raises(mm.QueryError, match="fewer"):
        mm.marginal_map_many(mm.load_network(net), ["fewer"], [{}], jobs=1)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_rows_without_a_state(net, suffix, monkeypatch):
    def stop(*_args):
        raise Stopped("time_limit")

    monkeypatch.setattr("margmap.solve.network_map.Problem", stop)
    (Path(net).parent / "rows.csv").write_text("flu,fever\nyes,high\nno,none\n")
    out = Path(net).parent / f"out.{suffix}"
    words = ["--method", "elimination", "--time-limit", "1e-9", "--jobs", "1"]
    run("solve", net, "-q", "cough", "--batch", Path(net).parent / "rows.csv", "-o", out, *words, code=3)
    lines = out.read_text().splitlines()
    if suffix == "jsonl":
        for line in lines:
            answer = json.loads(line, parse_constant=lambda token: pytest.fail(f"{token} is not JSON"))
            assert (answer["status"], answer["state"], answer["log_prob"]) == ("time_limit", None, None)
            assert answer["log_upper"] == 0
    else:
        rows = list(csv.DictReader(lines))
        assert [(row["status"], row["log_prob"], row["gap"], row["cough"]) for row in rows] == [
            ("time_limit", "", "", "")
        ] * 2


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_stopped_before_there_is_a_state(net, words, monkeypatch):
    def stop(*_args):
        raise Stopped("time_limit")

    monkeypatch.setattr("margmap.solve.network_map.Problem", stop)
    done = run("solve", net, "-q", "flu", "--time-limit", "3", *words, code=3)
    if words:
        answer = json.loads(done.stdout)
        assert (answer["state"], answer["log_prob"], answer["log_upper"], answer["gap"]) == (None, None, 0.0, None)
    else:
        assert "no state yet: stopped (time limit) before one was found; none has more than log p = 0" in done.stdout
