"""`bench run`: nothing finished is lost or done twice, whatever is killed; and every failure has its record."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import margmap as mm
from circuits import random_circuit
from margmap.bench import instances, runs
from margmap.cli import app
from margmap.foundation.memory import computed, resident
from margmap.io.journal import Journal

FRONTIER = runs.Method("frontier", "frontier", {})
PLAIN = runs.Method("plain", "iterative", {"regroup": False, "climb": False, "fix": False})


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Runs are processes, and on such small circuits loading machine code is nearly all of what they do."""
    monkeypatch.setenv("MARGMAP_TIER", "interpret")


@pytest.fixture
def files(tmp_path):
    """Two circuits with four instances each."""
    made = []
    for name in ("one", "two"):
        circuit = random_circuit(np.random.default_rng(len(made) + 5), variables=6, structured=True)
        mm.save(circuit, tmp_path / f"{name}.json.gz")
        drawn = instances.generate(circuit, instances.PAPER, 2, 1, name=name)
        path = tmp_path / f"{name}-instances.json"
        instances.write(path, instances.InstanceFile(name, f"{name}.json.gz", 1, drawn))
        made.append(path)
    return made


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def do(tasks, output, jobs=2, **more):
    with ThreadPoolExecutor(jobs) as executor:
        return runs.run(tasks, output, executor, jobs, **more)


def test_every_run_has_a_record_equal_to_solving_it_here(files, tmp_path):
    output = tmp_path / "runs.jsonl"
    tasks = runs.tasks_of(files, [FRONTIER, PLAIN], 20, 1 << 30, trace=True)
    seen = []
    assert do(tasks, output, on_finished=seen.append) == 16
    assert [progress.done for progress in seen] == list(range(17))
    records = lines(output)
    assert len({record["key"] for record in records}) == 16
    for record in records:
        circuit = mm.load(record["model"])
        one = instances.read(record["instances"]).instances[record["instance"]]
        expected = mm.marginal_map(circuit, one.query, one.evidence)
        assert record["status"] == "optimal"
        assert record["log_prob"] == pytest.approx(expected.log_prob, abs=1e-9)
        assert record["log_upper"] >= record["log_prob"]
        assert record["proportions"] == list(one.proportions)
        assert record["edges"] == circuit.num_edges
        assert set(record["state"]) == {str(v) for v in one.query}
        assert record["wall_seconds"] >= record["seconds"] > 0
        assert record["peak_bytes"] > 1 << 20
        assert record["host"]["cores"] == os.cpu_count()
        assert record["trace"] is None or (record["label"] == "plain" and record["trace"][0]["iteration"] == 1)
    assert any(record["trace"] for record in records)
    assert {record["dataset"] for record in records} == {"one", "two"}


def test_with_computing_seconds_are_those_of_the_processor(files, tmp_path):
    output = tmp_path / "runs.jsonl"
    tasks = runs.tasks_of(files, [FRONTIER], 20, computing=True)
    assert [task.key for task in tasks] == [task.key for task in runs.tasks_of(files, [FRONTIER], 20)]
    assert do(tasks, output) == 8
    for record in lines(output):
        assert record["computing"]
        # Measured by two readings of one clock, the outer one of which begins first and ends last.
        assert 0 < record["seconds"] <= record["cpu_seconds"]


def test_what_another_process_computes_is_known():
    if resident(os.getpid()) == 0:
        pytest.skip("this system does not tell")
    before = time.process_time()
    while time.process_time() < before + 0.2:
        pass
    assert time.process_time() - 0.1 < computed(os.getpid()) < time.process_time() + 0.1
    assert computed(2**30) == 0


def test_started_again_only_what_is_missing_is_run(files, tmp_path):
    output = tmp_path / "runs.jsonl"
    tasks = runs.tasks_of(files, [FRONTIER], 20)
    do(tasks, output)
    whole = output.read_bytes()
    assert do(tasks, output) == 0
    assert output.read_bytes() == whole
    cut = whole.index(b"\n", len(whole) // 2) + 20  # a line in the middle of being written
    output.write_bytes(whole[:cut])
    kept = whole[: whole.rindex(b"\n", 0, cut) + 1]
    done = do(tasks, output)
    assert done == 8 - kept.count(b"\n")
    assert output.read_bytes().startswith(kept)
    assert sorted(record["key"] for record in lines(output)) == sorted(task.key for task in tasks)


def test_another_model_method_or_limit_is_another_run(files, tmp_path):
    keys = {task.key for task in runs.tasks_of(files, [FRONTIER, PLAIN], 20)}
    assert len(keys) == 16
    assert not keys & {task.key for task in runs.tasks_of(files, [FRONTIER, PLAIN], 21)}
    assert not keys & {task.key for task in runs.tasks_of(files, [runs.Method("x", "branch", {})], 20)}
    again = {task.key for task in runs.tasks_of(files, [FRONTIER, PLAIN], 20)}
    assert keys == again
    mm.save(random_circuit(np.random.default_rng(99), variables=6, structured=True), tmp_path / "one.json.gz")
    assert len(keys & {task.key for task in runs.tasks_of(files, [FRONTIER, PLAIN], 20)}) == 8


def test_all_circuits_have_their_first_instance_done_before_any_has_its_second(files):
    tasks = runs.tasks_of(files, [FRONTIER, PLAIN], 20)
    assert {(task.dataset, task.instance) for task in tasks[:8]} == {(d, i) for d in ("one", "two") for i in (0, 2)}


def test_a_failed_run_is_recorded_with_its_reason(files, tmp_path):
    output = tmp_path / "runs.jsonl"
    tasks = runs.tasks_of(files[:1], [FRONTIER], 20)
    Path(tasks[0].model).write_text("not a circuit")
    assert do(tasks, output) == 4
    for record in lines(output):
        assert record["status"] == "failed"
        assert "one.json.gz" in record["error"]
        assert record["log_prob"] is None
    assert do(tasks, output) == 0  # it would fail again


@pytest.mark.parametrize("victim", ["run", "starter"])
def test_a_killed_process_is_recorded_and_the_others_go_on(files, tmp_path, victim, monkeypatch):
    tasks = runs.tasks_of(files, [FRONTIER], 20)
    real = runs._Watch.begin

    def begin(watch):
        real(watch)
        if not killed:
            parent = Path(f"/proc/{watch.pid}/stat").read_text().rsplit(")", 1)[1].split()[1]
            killed.append(watch.pid if victim == "run" else int(parent))
            os.kill(killed[0], signal.SIGKILL)

    if not Path("/proc/self/stat").exists():
        pytest.skip("needs /proc to find the process")
    killed = []
    monkeypatch.setattr(runs._Watch, "begin", begin)
    monkeypatch.setattr("margmap.bench.runs.WATCH_SECONDS", 0.01)
    assert do(tasks, tmp_path / "runs.jsonl") == 8
    ended = [(record["status"], record["error"]) for record in lines(tmp_path / "runs.jsonl")]
    bad = [entry for entry in ended if entry[0] != "optimal"]
    # A small run may be done before the signal reaches it, but then it is a whole one.
    assert len(bad) <= 1
    assert all(status == "killed" and "SIGKILL" in error for status, error in bad)


@pytest.mark.parametrize("computing", [False, True])
def test_a_run_that_does_not_stop_is_killed(computing, files, tmp_path, monkeypatch):
    """A grace of less than nothing: every run is over its time before it begins."""
    monkeypatch.setattr(runs, "GRACE_SECONDS", -1e9)
    monkeypatch.setattr(runs, "GRACE_PART", -1e9)
    monkeypatch.setattr(runs, "WATCH_SECONDS", 0.0001)
    hard = tmp_path / "hard.json.gz"
    circuit = random_circuit(np.random.default_rng(1), variables=6, structured=True)
    mm.save(circuit, hard)
    record = runs.run_one(runs.tasks_of(files[:1], [FRONTIER], 5, computing=computing)[0]._asdict())
    runs._end_all()
    assert record["computing"] is computing
    assert record["status"] in ("killed", "optimal")
    if record["status"] == "killed":
        assert "time limit of 5 s" in record["error"]


def test_a_run_that_grows_too_large_is_killed(files, monkeypatch):
    monkeypatch.setattr(runs, "GRACE_BYTES", 0)
    monkeypatch.setattr(runs, "WATCH_SECONDS", 0.0001)
    if resident(os.getpid()) == 0:
        pytest.skip("this system does not tell how large a process is")
    record = runs.run_one(runs.tasks_of(files[:1], [FRONTIER], 5, 1 << 20)[0]._asdict())
    runs._end_all()
    assert record["status"] == "killed"
    assert "memory limit of 1048576 bytes" in record["error"]


def test_bad_input_is_refused_before_anything_runs(files, tmp_path):
    output = tmp_path / "runs.jsonl"
    with pytest.raises(mm.QueryError, match="same label"):
        runs.tasks_of(files, [FRONTIER, FRONTIER])
    with pytest.raises(mm.QueryError, match="no method"):
        runs.tasks_of(files, [])
    (tmp_path / "one.json.gz").unlink()
    with pytest.raises(mm.FormatError, match=r"its model 'one\.json\.gz' cannot be read"):
        runs.tasks_of(files, [FRONTIER])
    output.write_text('{"something": "else"}\n')
    with pytest.raises(mm.FormatError, match="line 1"):
        do(runs.tasks_of(files[1:], [FRONTIER]), output)
    assert output.read_text() == '{"something": "else"}\n'


def test_two_at_once_into_one_file_are_refused(files, tmp_path):
    pytest.importorskip("fcntl")
    output = tmp_path / "runs.jsonl"
    with Journal(output), pytest.raises(mm.MargmapError, match="another run is writing this file"):
        do(runs.tasks_of(files, [FRONTIER]), output)


def command(files, output, *more):
    methods = ["--method", "frontier", "--method", "plain=iterative:regroup=false", "--time-limit", "20"]
    return ["bench", "run", *map(str, files), "-o", str(output), *methods, *more]


def test_sigkill_at_any_moment_loses_nothing_and_repeats_nothing(files, tmp_path):
    output = tmp_path / "runs.jsonl"
    kills = 0
    rng = np.random.default_rng(7)
    for _ in range(30):
        process = subprocess.Popen(
            [sys.executable, "-m", "margmap", *command(files, output, "--jobs", "2")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        before = output.read_bytes() if output.exists() else b""
        # Wait until some lines are new, and then a little: the moment falls anywhere between two of them.
        more = int(rng.integers(0, 9))
        while process.poll() is None and _count(output) < before.count(b"\n") + more:
            time.sleep(0.002)
        time.sleep(float(rng.uniform(0, 0.02)))
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert errors == b"", errors
        kills += process.returncode == -signal.SIGKILL
        after = output.read_bytes() if output.exists() else b""
        assert after.startswith(before[: before.rfind(b"\n") + 1])  # nothing that was there is gone
        if after.count(b"\n") == 16:
            break
    else:
        pytest.fail("never came to an end")
    assert kills > 1
    records = lines(output)
    assert len(records) == 16
    assert sorted(r["key"] for r in records) == sorted(
        t.key for t in runs.tasks_of(files, [FRONTIER, runs.Method("plain", "iterative", {"regroup": False})], 20)
    )
    assert {r["status"] for r in records} == {"optimal"}


def _count(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_ctrl_c_stops_it_and_the_next_start_goes_on(files, tmp_path):
    output = tmp_path / "runs.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "margmap", *command(files, output, "--json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None and _count(output) < 3:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate()
    assert "Traceback" not in errors
    if process.returncode == 0:
        assert _count(output) == 16  # it was too quick
    else:
        assert process.returncode == 3
        assert json.loads(out)["stopped"] is True
    result = CliRunner().invoke(app, command(files, output, "--json"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["stopped"] is False
    assert len({record["key"] for record in lines(output)}) == len(lines(output)) == 16


def test_generate_run_report_from_the_command_line(tmp_path):
    models = []
    for seed, name in enumerate(("first", "second")):
        models.append(tmp_path / f"{name}.json")
        mm.save(random_circuit(np.random.default_rng(seed), variables=7, structured=True), models[-1])
    runner = CliRunner()
    drawn = [*map(str, models), "-o", str(tmp_path / "drawn"), "-n", "2", "--proportions", "40/30/30", "--csv"]
    result = runner.invoke(app, ["bench", "generate", *drawn, "--json"])
    assert result.exit_code == 0, result.output
    written = [entry["path"] for entry in json.loads(result.output)["written"]]
    assert [Path(path).name for path in written] == ["first.json", "second.json"]
    assert (tmp_path / "drawn" / "first.csv").exists()
    result = runner.invoke(app, command(written, tmp_path / "runs.jsonl", "--jobs", "2", "--trace"))
    assert result.exit_code == 0, result.output
    assert "8 runs done now (8 optimal)" in result.output
    result = runner.invoke(
        app, ["bench", "report", str(tmp_path / "runs.jsonl"), "-o", str(tmp_path / "report"), "--json"]
    )
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    assert answer["disagreements"] == 0
    names = {Path(path).name for path in answer["written"]}
    assert {"report.md", "index.html"} <= names
    assert all(Path(path).exists() for path in answer["written"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "generate", "MODEL", "-o", "OUT", "--proportions", "half"], "give three percentages"),
        (["bench", "run", "FILE", "-o", "OUT", "--method", "best"], "unknown method 'best'"),
        (["bench", "run", "FILE", "-o", "OUT", "--method", "=frontier"], "label before '=' is empty"),
        (["bench", "run", "FILE", "-o", "OUT", "--method", "iterative:speed=3"], "no option 'speed'"),
        (["bench", "run", "NONE", "-o", "OUT"], "NONE"),
        (["bench", "report", "NONE", "-o", "OUT"], "NONE"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(files, tmp_path, arguments, message):
    places = {"MODEL": tmp_path / "one.json.gz", "FILE": files[0], "OUT": tmp_path / "out", "NONE": tmp_path / "NONE"}
    result = CliRunner().invoke(app, [str(places.get(part, part)) for part in arguments])
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_on_a_dask_cluster(files, tmp_path, dask_cluster):
    output = tmp_path / "runs.jsonl"
    tasks = runs.tasks_of(files, [FRONTIER], 20)
    assert runs.run(tasks, output, dask_cluster, 2) == 8
    assert {record["status"] for record in lines(output)} == {"optimal"}
    assert sorted(record["key"] for record in lines(output)) == sorted(task.key for task in tasks)


def test_runs_do_not_load_machine_code_while_the_clock_runs(monkeypatch):
    """Machine code is loaded by the first task's warm-up; whoever sets the tier is obeyed."""
    monkeypatch.delenv("MARGMAP_TIER", raising=False)
    assert runs.child_environment()["MARGMAP_TIER"] == "compile"
    assert runs.child_environment()["NUMBA_NUM_THREADS"] == "1"
    monkeypatch.setenv("MARGMAP_TIER", "interpret")
    assert runs.child_environment()["MARGMAP_TIER"] == "interpret"
    monkeypatch.delenv("MARGMAP_TIER")
    monkeypatch.setattr(runs.jit, "available", lambda: False)
    assert "MARGMAP_TIER" not in runs.child_environment()
