"""The commands `learn` and `datasets`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app
from margmap.cli.learn import progress
from margmap.learn import DATASETS, Growth
from rows_for_learning import tangled


def run(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="margmap")
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, np.ndarray]:
    rows = tangled(400, 8, seed=1)
    for name, part in (("train.csv", rows[:300]), ("valid.csv.gz", rows[300:])):
        np.savetxt(tmp_path / name, part, fmt="%d", delimiter=",")
    return tmp_path / "train.csv", tmp_path / "valid.csv.gz", rows


def test_learn_writes_what_it_says(files, tmp_path: Path) -> None:
    train, valid, rows = files
    code, out, _ = run("learn", train, "-o", tmp_path / "model.psdd", "--valid", valid, "--json")
    assert code == 0
    answer = json.loads(out)
    circuit = mm.load(tmp_path / "model.psdd", "psdd")
    assert circuit.properties[:5] == (True,) * 5
    assert answer["reason"] == "exhausted"
    assert mm.log_likelihood(circuit, rows[:300]).mean() == pytest.approx(answer["train"])
    assert mm.log_likelihood(circuit, rows[300:]).mean() == pytest.approx(answer["valid"])
    code, out, _ = run("learn", train, "-o", tmp_path / "model.json.gz", "--iterations", 3)
    assert code == 0
    assert "ended by iterations after 3 splits" in out
    assert "valid" not in out


def test_learn_goes_on_from_a_file(files, tmp_path: Path) -> None:
    train, _, _ = files
    model = tmp_path / "model.psdd"
    first = json.loads(run("learn", train, "-o", model, "--iterations", 3, "--json")[1])
    second = json.loads(run("learn", train, "-o", model, "--resume", model, "--iterations", 5, "--json")[1])
    assert second["train"] > first["train"]
    assert second["edges"] > first["edges"]


def test_learn_a_mixture(files, tmp_path: Path) -> None:
    train, valid, rows = files
    args = ("learn", train, "--valid", valid, "--components", 3, "--json")
    code, out, _ = run(*args, "-o", tmp_path / "model.jpc")
    assert code == 0
    circuit = mm.load(tmp_path / "model.jpc", "jpc")
    assert mm.log_likelihood(circuit, rows[300:]).mean() == pytest.approx(json.loads(out)["valid"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0,1\n1\n", "line 2: 1 values, but the lines before have 2"),
        ("0,1\n1,x\n1,y\n", "write .json"),
        ("0,1\n1,-1\n", "negative"),
        ("0,1\n1,2\n0,0\n", "write .json"),
        ("a,a\n1,0\n", "two columns called 'a'"),
        ("", "empty"),
    ],
)
def test_bad_rows(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(content)
    code, _, err = run("learn", tmp_path / "rows.csv", "-o", tmp_path / "model.psdd")
    assert code == 2
    assert message in err
    assert not (tmp_path / "model.psdd").exists()


def test_bad_outputs_are_refused_before_the_work(files, tmp_path: Path) -> None:
    train, _, _ = files
    for output, message in (("model", "no format"), ("model.vtree", "no format"), ("no/model.psdd", "folder")):
        code, _, err = run("learn", train, "-o", tmp_path / output)
        assert code == 2
        assert message in err
    (tmp_path / "narrow.csv").write_text("0,1\n1,0\n")
    code, _, err = run("learn", train, "-o", tmp_path / "model.psdd", "--valid", tmp_path / "narrow.csv")
    assert code == 2
    assert "2 columns and the data 8" in err


def test_a_stop_before_the_first_split_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("margmap.learn.strudel_growth.split_next", lambda *_args: -1)
    np.savetxt(tmp_path / "rows.csv", tangled(100, 5, seed=2), fmt="%d", delimiter=",")
    code, out, err = run("learn", tmp_path / "rows.csv", "-o", tmp_path / "model.json", "--time-limit", 0, "--json")
    assert code == 0
    assert json.loads(out)["reason"] == "time_limit"
    assert err.startswith("margmap: stopped (time limit) before the first split")
    assert err.count("\n") == 1


def test_ctrl_c_writes_the_best_circuit_so_far(tmp_path: Path) -> None:
    rows = tangled(6000, 60, seed=2)
    np.savetxt(tmp_path / "rows.csv", rows, fmt="%d", delimiter=",")
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import margmap.learn.strudel_growth as g; real = g._Run.look\n"
        "def look(*a, **k):\n    print('go', flush=True); return real(*a, **k)\n"
        "g._Run.look = look\n"
        "from margmap.cli import main; main()"
    )
    args = ["learn", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "model.json"), "--tries", "60"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "ended by interrupted" in out
    assert mm.load(tmp_path / "model.json", "json").properties.smooth


def test_datasets_are_listed_and_learned_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MARGMAP_DATA", raising=False)
    code, out, _ = run("datasets")
    assert code == 0
    assert all(name in out for name in DATASETS)
    answer = json.loads(run("datasets", "--data", tmp_path, "--json")[1])
    assert [row["present"] for row in answer["datasets"]] == [False] * 20
    code, _, err = run("learn", "nltcs", "-o", tmp_path / "model.psdd", "--data", tmp_path)
    assert code == 2
    assert "margmap datasets --download nltcs" in err
    code, _, err = run("datasets", "--download", "mnist", "--data", tmp_path)
    assert code == 2
    assert "the twenty are" in err


def test_datasets_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("margmap.learn.datasets.download", lambda name, folder: [folder / name])
    code, out, _ = run("datasets", "--download", "nltcs", "--download", "ad", "--data", tmp_path)
    assert code == 0
    assert f"wrote {tmp_path / 'nltcs'}" in out.replace("\n", "")
    assert len(json.loads(run("datasets", "--download", "all", "--data", tmp_path, "--json")[1])["written"]) == 20


def test_learn_from_a_dataset_of_the_twenty(shared, tmp_path: Path) -> None:
    args = ("learn", "nltcs", "-o", tmp_path / "model.psdd", "--data", shared / "debd", "--iterations", 5, "--json")
    code, out, _ = run(*args)
    assert code == 0
    assert json.loads(out)["valid"] > -6.75


def test_the_line_of_progress() -> None:
    now = Growth(12, -5.5, float("nan"), 345, 1.4)
    assert progress(now, None) == "iteration 12: train -5.5000, 345 edges, 1 s"
    assert progress(now._replace(valid=-6.0), 0.5).startswith("##########.......... iteration 12: train -5.5000, va")
    assert progress(now, 2.0).startswith("#" * 20 + " ")
