"""solve --batch: what it writes, how it ends, and that a run killed at any moment goes on where it was."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app
from margmap.cli.batch import COLUMNS

CLINIC = str(Path(mm.__file__).parent / "models" / "clinic.json")
ROWS = "fever,cough,age\nhigh,dry,adult\n high,dry ,child\n,,-1\nnone,none,senior\nlow,,\n"
EVIDENCE = [
    {"fever": "high", "cough": "dry", "age": "adult"},
    {"fever": "high", "cough": "dry", "age": "child"},
    {},
    {"fever": "none", "cough": "none", "age": "senior"},
    {"fever": "low"},
]
QUERY = ["illness", "course"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text(ROWS)


def solve(*args, model=CLINIC, code=0):
    run = CliRunner().invoke(app, ["solve", model, *map(str, args)], prog_name="margmap")
    assert run.exit_code == code, run.stderr
    return run


def batch(*args, rows="rows.csv", output="out.csv", query="illness,course", code=0, **options):
    return solve("--batch", rows, "-o", output, "-q", query, "-j", 1, *args, code=code, **options)


def table(path="out.csv"):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def timeless(path="out.csv"):
    return [{name: cell for name, cell in row.items() if name != "seconds"} for row in table(path)]


def check(rows, evidences, query=QUERY):
    """The rows of a CSV are the answers that marginal_map gives."""
    assert [int(row["row"]) for row in rows] == list(range(len(evidences)))
    expected = {}
    for row, evidence in zip(rows, evidences, strict=True):
        key = str(evidence)
        if key not in expected:
            expected[key] = mm.marginal_map(mm.load(CLINIC), query, evidence, row["method"])
        right = expected[key]
        assert row["status"] == right.status == "optimal"
        assert {name: row[name] for name in right.state} == right.state
        for name in ("log_prob", "log_conditional", "log_upper", "gap"):
            assert float(row[name]) == getattr(right, name)
        assert row["error"] == ""


def test_answers_as_csv():
    run = batch()
    assert run.stdout == "wrote 5 answers to out.csv: 5 optimal\n"
    assert run.stderr == ""
    with open("out.csv") as file:
        assert file.readline() == ",".join((*COLUMNS, *QUERY)) + "\n"
    check(table(), EVIDENCE)
    assert not Path("out.csv.part").exists()


def test_answers_as_json_lines_and_a_summary_as_json():
    summary = json.loads(batch("--json", output="out.jsonl").stdout)
    assert summary == {"output": "out.jsonl", "rows": 5, "ended": {"optimal": 5}, "interrupted": False}
    circuit = mm.load(CLINIC)
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    for number, (line, evidence) in enumerate(zip(lines, EVIDENCE, strict=True)):
        right = {"row": number, **mm.marginal_map(circuit, QUERY, evidence).to_dict()}
        assert line | {"seconds": 0} == right | {"seconds": 0}


def test_without_a_query_each_row_has_the_most_probable_explanation():
    solve("--batch", "rows.csv", "-o", "out.csv", "-j", 1)
    circuit = mm.load(CLINIC)
    for row, evidence in zip(table(), EVIDENCE, strict=True):
        right = mm.marginal_map(circuit, None, evidence)
        assert {name: row[name] for name in circuit.names if row[name]} == right.state


def test_rows_without_a_header():
    names = mm.load(CLINIC).names
    lines = [",".join(str(evidence.get(name, "")) for name in names) for evidence in EVIDENCE]
    Path("plain.csv").write_text("\n".join(lines))
    for option in ((), ("--no-header",)):
        batch(*option, rows="plain.csv")
        check(table(), EVIDENCE)


def test_failed_rows_are_counted_and_say_why():
    Path("rows.csv").write_text(ROWS + "purple,dry,adult\nhigh\n")
    run = batch(code=3)
    assert run.stdout == "wrote 7 answers to out.csv: 2 failed, 5 optimal\n"
    assert run.stderr == "2 rows failed: the column 'error' says why\n"
    rows = table()
    check(rows[:5], EVIDENCE)
    assert rows[5]["status"] == rows[6]["status"] == "failed"
    assert "no state 'purple'" in rows[5]["error"]
    assert "1 values for 3 columns" in rows[6]["error"]
    assert rows[5]["log_prob"] == rows[5]["illness"] == ""


def test_a_row_that_stops_with_a_gap_makes_the_exit_code_3():
    from problems import hard

    mm.save(hard(), "hard.json")
    Path("one.csv").write_text("0\n-1\n")
    run = solve("--batch", "one.csv", "-o", "out.csv", "-j", 1, "--time-limit", 0.05, model="hard.json", code=3)
    assert "time limit" in run.stdout
    (row,) = table()
    assert row["status"] == "time_limit"
    assert float(row["log_upper"]) > float(row["log_prob"])


def test_a_network_is_compiled_for_the_batch():
    Path("net.uai").write_text("BAYES\n2\n2 2\n2\n1 0\n2 0 1\n\n2\n.3 .7\n4\n.2 .8 .6 .4\n")
    Path("net.csv").write_text("0,\n1,\n,1\n")
    solve("--batch", "net.csv", "-o", "out.csv", "-j", 1, model="net.uai")
    assert [(row["0"], row["1"]) for row in table()] == [("", "1"), ("", "0"), ("1", "")]


@pytest.mark.parametrize(
    "args",
    [
        ["--batch", "rows.csv"],
        ["-o", "out.csv"],
        ["--batch", "rows.csv", "-o", "out.csv", "-e", "fever=low"],
        ["--batch", "rows.csv", "-o", "out.csv", "--top", "2"],
        ["--batch", "rows.csv", "-o", "out.csv", "--jobs", "0"],
    ],
)
def test_wrong_usage(args):
    solve(*args, code=2)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--batch", "none.csv", "-o", "out.csv"], "none.csv: there is no such file"),
        (["--batch", "rows.csv", "-o", "none/out.csv"], "no such folder"),
        (["--batch", ".", "-o", "out.csv"], "folder"),
        (["--batch", "rows.csv", "-o", "out.csv", "-q", "weather"], "unknown variable 'weather'"),
        (["--batch", "rows.csv", "-o", "out.csv", "-m", "magic"], "unknown method"),
        (["--batch", "bad.csv", "-o", "out.csv"], "bad.csv, line 1: the header does not fit"),
        (["--batch", "rows.csv", "-o", "out.csv", "--dask", "here"], "tcp://host:8786"),
        (["--batch", "rows.csv", "-o", "out.csv", "--dask", "tcp://h:1", "-j", "2"], "its own workers"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_output(args, words):
    Path("bad.csv").write_text("fever,humour\nlow,good\n")
    run = solve(*args, code=2)
    assert run.stderr.startswith("margmap: error: ")
    assert run.stderr.count("\n") == 1
    assert words in run.stderr
    assert not Path("out.csv").exists()


def test_a_variable_called_like_a_column_needs_json_lines():
    x = mm.Variable("status")
    mm.save(mm.circuit_of(0.5 * x[0] + 0.5 * x[1], [x]), "model.json")
    Path("one.csv").write_text("status\n\n-1\n")
    run = solve("--batch", "one.csv", "-o", "out.csv", model="model.json", code=2)
    assert ".jsonl" in run.stderr
    solve("--batch", "one.csv", "-o", "out.jsonl", "-j", 1, model="model.json")


# -- started again


def stop_after(number, monkeypatch):
    """Ctrl-C after so many answers."""
    import margmap.solve.batch

    whole = margmap.solve.batch.marginal_map_many

    def stopped(*args, **kwargs):
        for count, answer in enumerate(whole(*args, **kwargs)):
            if count == number:
                raise KeyboardInterrupt
            yield answer

    monkeypatch.setattr(margmap.solve.batch, "marginal_map_many", stopped)
    run = batch(code=3)
    assert run.stdout == f"stopped after {number} of 5 rows: start it again to go on\n"
    assert not Path("out.csv").exists()
    monkeypatch.undo()


def count_rows(monkeypatch):
    """The numbers of the rows that are solved from now on."""
    import margmap.solve.batch

    solved, read = [], margmap.solve.batch._Job._read

    def counted(job, number, data):
        solved.append(number)
        return read(job, number, data)

    monkeypatch.setattr(margmap.solve.batch._Job, "_read", counted)
    return solved


def test_a_part_cut_off_anywhere_is_completed(monkeypatch, tmp_path):
    batch(output="whole.csv")
    stop_after(4, monkeypatch)
    monkeypatch.chdir(tmp_path)
    part = Path("out.csv.part").read_bytes()
    ends = [i + 1 for i, byte in enumerate(part) if byte == ord("\n")]
    assert len(ends) == 5
    for cut in sorted({0, 1, *ends, *(end - 1 for end in ends), *(end + 7 for end in ends[:-1]), ends[1] + 40}):
        Path("out.csv.part").write_bytes(part[:cut])
        solved = count_rows(monkeypatch)
        batch()
        done = max(0, sum(end <= cut for end in ends) - 1)
        assert solved == list(range(done, 5))
        assert timeless() == timeless("whole.csv")
        assert not Path("out.csv.part").exists()


def test_a_damaged_line_and_all_after_it_are_done_again(monkeypatch, tmp_path):
    batch(output="whole.csv")
    stop_after(4, monkeypatch)
    monkeypatch.chdir(tmp_path)
    lines = Path("out.csv.part").read_bytes().splitlines(keepends=True)
    for bad in (b"\0" * 50 + b"\n", b"[]\n", lines[4], b'{"row": 1}\n'):
        Path("out.csv.part").write_bytes(b"".join([*lines[:2], bad, *lines[3:]]))
        solved = count_rows(monkeypatch)
        batch()
        assert solved == [1, 2, 3, 4]
        assert timeless() == timeless("whole.csv")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"query": "illness"}, "query"),
        ({"args": ["--method", "branch"]}, "method"),
        ({"args": ["--gap", "0.1"]}, "options"),
        ({"args": ["--time-limit", "9"]}, "time limit"),
        ({"rows": "other.csv"}, "rows"),
        ({"model": "other.json"}, "model"),
    ],
)
def test_another_job_is_refused(change, name, monkeypatch, tmp_path):
    stop_after(3, monkeypatch)
    monkeypatch.chdir(tmp_path)
    before = Path("out.csv.part").read_bytes()
    Path("other.csv").write_text(ROWS + "low,dry,adult\n")
    Path("other.json").write_text(Path(CLINIC).read_text() + "\n")
    run = batch(*change.pop("args", []), **change, code=2)
    assert f"holds 3 answers of another job (different: {name})" in run.stderr
    assert Path("out.csv.part").read_bytes() == before
    batch()
    check(table(), EVIDENCE)


def test_another_number_of_threads_is_the_same_job(monkeypatch, tmp_path):
    stop_after(3, monkeypatch)
    monkeypatch.chdir(tmp_path)
    solved = count_rows(monkeypatch)
    batch("--threads", "2")
    assert solved == [3, 4]
    check(table(), EVIDENCE)


def test_a_file_that_is_something_else_is_left_alone():
    Path("out.csv.part").write_text("my notes\nof today\n")
    assert "move it away" in batch(code=2).stderr
    assert Path("out.csv.part").read_text() == "my notes\nof today\n"


def test_two_runs_cannot_write_the_same_file():
    fcntl = pytest.importorskip("fcntl")
    with open("out.csv.part", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another run is writing this file" in batch(code=2).stderr
    batch()


@pytest.mark.parametrize("where", [["--jobs", "2"], ["--jobs", "2", "--dask", "local"]], ids=["processes", "dask"])
def test_a_run_that_is_killed_goes_on_and_leaves_no_process(where, as_users_start_it):
    if "--dask" in where:
        pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    head, *lines = ROWS.splitlines()
    Path("many.csv").write_text("\n".join([head, *lines * 10]) + "\n")
    command = [sys.executable, "-m", "margmap", "solve", CLINIC, "--batch", "many.csv", "-o", "out.csv", *where]
    command += ["--method", "brute"]
    with subprocess.Popen(command, start_new_session=True) as run:
        try:
            deadline = time.monotonic() + 120
            while _answers("out.csv.part") == 0:
                assert run.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            run.kill()
    done = _answers("out.csv.part")
    assert 0 < done < 50
    assert not Path("out.csv").exists()
    while _running_in(run.pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    again = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (again.returncode, again.stdout) == (0, "wrote 50 answers to out.csv: 50 optimal\n")
    check(table(), EVIDENCE * 10, None)


def _answers(path):
    try:
        return max(0, Path(path).read_bytes().count(b"\n") - 1)
    except FileNotFoundError:
        return 0


def _running_in(group):
    """The processes of a process group that have not ended; none where the system does not tell."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[2]) == group:
            found.append(int(stat.parent.name))
    return found


def test_ctrl_c_stops_and_the_same_command_goes_on(as_users_start_it):
    head, *lines = ROWS.splitlines()
    Path("many.csv").write_text("\n".join([head, *lines * 400]) + "\n")
    command = [sys.executable, "-m", "margmap", "solve", CLINIC, "--batch", "many.csv", "-o", "out.csv", "--jobs", "2"]
    command += ["--method", "brute"]
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True) as run:
        try:
            while _answers("out.csv.part") == 0:
                assert run.poll() is None
                time.sleep(0.01)
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to all processes
            out, _ = run.communicate(timeout=120)
        finally:
            run.kill()
    done = _answers("out.csv.part")
    assert out == f"stopped after {done} of 2000 rows: start it again to go on\n"
    assert run.returncode == 3
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    check(table(), EVIDENCE * 400, None)


def test_progress_is_shown_on_a_terminal_only(monkeypatch, capsys):
    from margmap.cli.output import bar

    with bar("Solving", 3) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with bar("Solving", 40, 10) as advance:
        advance(30)
    out, err = capsys.readouterr()
    assert out == ""
    assert "40/40" in err
