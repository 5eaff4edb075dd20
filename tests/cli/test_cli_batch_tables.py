"""`solve --batch` on tables as people have them: an id, columns of the query, columns to carry along, labels."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app
from margmap.learn.table import read_table


def run(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="margmap")
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model that was learned from a table, and new rows with all of the table's columns and an id."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["person,city,age,member,grade"]
    for i in range(150):
        age = int(rng.integers(18, 80))
        member = rng.random() < (0.9 if age > 40 else 0.2)
        lines.append(f"p{i},{['Bern', 'Rome'][int(member)] if i % 5 else 'Oslo'},{age},{member},{rng.integers(1, 4)}")
    Path("table.csv").write_text("\n".join(lines) + "\n")
    table = read_table("table.csv", columns=["city", "age", "member", "grade"], bins={"age": [41, 60]})
    mm.save(mm.learn.chow_liu(table), "model.json")
    Path("new.csv").write_text(
        'person,grade,age,city,member\na,1,NA,Bern,True\nb,,25.5,NA,False\nc,3,"[60, inf)",Paris,?\nd,2,70,Rome,True\n'
    )
    return tmp_path


def answers() -> list[dict[str, str]]:
    with open("out.csv", newline="") as file:
        return list(csv.DictReader(file))


EVIDENCE = [{"grade": 1}, {"age": 25.5}, {"grade": 3, "age": 60}, {"grade": 2, "age": 70}]
SOLVE = ("solve", "model.json", "--batch", "new.csv", "-o", "out.csv", "-j", 1, "-q", "city,member")


def test_columns_of_the_query_are_no_evidence(folder: Path) -> None:
    code, _, err = run(*SOLVE)
    assert code == 0, err
    assert err == "margmap: columns that the model does not have: person\n"
    circuit = mm.load("model.json")
    for row, evidence in zip(answers(), EVIDENCE, strict=True):
        right = mm.marginal_map(circuit, ["city", "member"], evidence)
        assert {name: row[name] for name in right.state} == right.state
        assert float(row["log_prob"]) == right.log_prob
        assert "person" not in row


def test_id_carried_columns_and_truth(folder: Path) -> None:
    code, out, err = run(*SOLVE, "--id", "person", "--carry", "age,grade", "--truth", "--json")
    assert code == 0, err
    assert err == ""
    rows = answers()
    assert list(rows[0])[:2] == ["person", "row"]
    assert list(rows[0])[-5:] == ["grade", "age", "truth:city", "truth:member", "correct"]
    assert [row["person"] for row in rows] == ["a", "b", "c", "d"]
    assert [row["age"] for row in rows] == ["NA", "25.5", "[60, inf)", "70"]
    given = [
        {"city": "Bern", "member": "True"},
        {"member": "False"},
        {"city": "Paris"},
        {"city": "Rome", "member": "True"},
    ]
    right = [all(row[name] == value for name, value in truth.items()) for row, truth in zip(rows, given, strict=True)]
    assert [row["correct"] for row in rows] == [str(x) for x in right]
    assert not right[2]  # a value that the model never saw
    told = json.loads(out)["truth"]
    assert told["compared"] == 4
    assert told["correct"] == sum(right) / 4
    members = [row["member"] == truth["member"] for row, truth in zip(rows, given, strict=True) if "member" in truth]
    assert told["by_variable"]["member"] == sum(members) / 3


def test_json_lines_and_all_columns(folder: Path) -> None:
    code, out, _ = run(*SOLVE[:5], "out.jsonl", *SOLVE[6:], "--carry", "all", "--truth")
    assert code == 0
    assert "as in the rows: " in out
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert lines[0]["carried"] == {"person": "a", "grade": "1", "age": "NA"}
    assert lines[1]["truth"] == {"city": "NA", "member": "False"}
    assert lines[3]["correct"] == (lines[3]["state"] == {"city": "Rome", "member": "True"})


def test_ragged_rows_fail_alone(folder: Path) -> None:
    Path("new.csv").write_text("person,grade,age,city,member\na,1,30,Rome\nb,1,30,Rome,True\n")
    code, _, _ = run(*SOLVE, "--id", "person", "--truth")
    assert code == 3
    one, two = answers()
    assert one["status"] == "failed"
    assert "4 values for 5 columns" in one["error"]
    assert two["status"] == "optimal"


def test_what_is_refused(folder: Path) -> None:
    for args, words in [
        (("--id", "name"), "no column 'name'"),
        (("--carry", "name"), "no column 'name'"),
    ]:
        code, _, err = run(*SOLVE, *args)
        assert code == 2
        assert words in err
    Path("new.csv").write_text("person,grade,age\na,1,30\n")
    code, _, err = run(*SOLVE, "--truth")
    assert code == 2
    assert "no column of the query" in err
    assert run(*SOLVE[:-2], "--truth")[0] == 2
    assert run("solve", "model.json", "-q", "city", "--id", "x")[0] == 2
    Path("new.csv").write_text("status,grade,age\na,1,30\n")
    code, _, err = run(*SOLVE, "--id", "status")
    assert code == 2
    assert ".jsonl" in err
