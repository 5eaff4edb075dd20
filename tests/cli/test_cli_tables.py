"""The commands that use a model of a table: impute, score, sample."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app


def run(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="margmap")
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Summer is warm and without coats."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("tables")
    lines = ["season;degrees;coats"]
    for _ in range(300):
        warm = rng.random() < 0.5
        lines.append(f"{'summer' if warm else 'winter'};{(22 if warm else 2) + rng.normal():.2f};{0 if warm else 3}")
    (folder / "data.csv").write_text("\n".join(lines))
    mm.save(mm.learn.hclt(folder / "data.csv", latent=3, epochs=15), folder / "model.json")
    return folder / "model.json"


def table(path: Path, delimiter: str = ",") -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file, delimiter=delimiter))


def test_impute_writes_the_table_with_new_cells(model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text('id,coats,season,degrees\na,,"summer",\nb,3,?,1.50\n"c,d",0,summer,21\n')
    out = tmp_path / "out.csv"
    code, text, _ = run("impute", model, rows, "-o", out)
    assert code == 0
    assert "3 cells of 3 rows filled in (3 optimal)" in text
    header, a, b, c = table(out)
    assert header == ["id", "coats", "season", "degrees"]
    assert a[:3] == ["a", "0", "summer"]
    assert 18 < float(a[3]) < 26
    assert b == ["b", "3", "winter", "1.50"]
    assert c == ["c,d", "0", "summer", "21"]


def test_impute_chosen_columns_with_scores_and_unknown_values(model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("season;coats\nspring;0\nwinter;\n")
    out = tmp_path / "out.csv"
    code, _, error = run("impute", model, rows, "-o", out)
    assert code == 2
    assert "no column 'degrees'" in error
    options = ("--columns", "season,coats", "--unknown-missing", "--scores", "--json")
    code, text, _ = run("impute", model, rows, "-o", out, *options)
    assert code == 0
    assert json.loads(text)["status"] == {"optimal": 2}
    header, one, two = table(out, ";")
    assert header == ["season", "coats", "degrees", "log_prob", "log_conditional", "status"]
    assert one[:3] == ["summer", "0", ""]  # spring is a value that the model does not know
    assert two[:3] == ["winter", "3", ""]
    assert float(two[3]) <= float(two[4]) <= 0
    assert two[5] == "optimal"


def test_impute_takes_the_words_for_missing_that_the_model_was_learned_with(tmp_path: Path) -> None:
    data, rows, out = (tmp_path / name for name in ("data.csv", "rows.csv", "out.csv"))
    data.write_text("a,b\n" + "x,1\ny,2\nx,gone\n" * 30)
    run("learn", data, "-o", tmp_path / "m.json", "--missing", "gone", "--latent", 2, "--epochs", 5)
    rows.write_text("b|a\n1|gone\ngone|y\n-|x\n")
    code, _, error = run("impute", tmp_path / "m.json", rows, "-o", out)
    assert code == 2
    assert f"{rows}, row 2" in error
    assert "--unknown-missing" in error
    code, text, error = run("impute", tmp_path / "m.json", rows, "-o", out, "--missing", "-")
    assert code == 0, error
    assert "3 cells of 3 rows" in text
    assert table(out, "|") == [["b", "a"], ["1", "x"], ["2", "y"], ["1", "x"]]
    rows.write_text("x;1\ny;\n")
    code, _, error = run("impute", tmp_path / "m.json", rows, "-o", out, "--no-header", "--delimiter", ";")
    assert code == 0, error
    assert table(out, ";") == [["x", "1"], ["y", "2"]]
    code, text, _ = run("score", tmp_path / "m.json", rows, "--no-header", "--delimiter", ";", "--json")
    assert json.loads(text)["rows"] == 2


def test_a_column_that_is_not_there_is_an_error_unless_it_is_to_be_filled_in(model: Path, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.csv.gz", tmp_path / "out.csv.gz"
    with gzip.open(rows, "wt") as file:
        file.write("season,coats\nsummer,0\nwinter,3\n")
    code, _, error = run("impute", model, rows, "-o", out)
    assert code == 2
    assert "no column 'degrees': it has season, coats; unknown='missing' (--unknown-missing)" in " ".join(error.split())
    code, _, _ = run("impute", model, rows, "-o", out, "--unknown-missing", "--jobs", 2)
    assert code == 0
    with gzip.open(out, "rt") as file:
        header, warm, cold = csv.reader(file)
    assert header == ["season", "coats", "degrees"]
    assert float(warm[2]) > 18
    assert float(cold[2]) < 6


def test_parquet_in_and_out(model: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        {
            "id": ["a", "b", "c"],
            "season": pandas.Categorical(["summer", None, "summer"]),  # winter is none of its categories
            "degrees": [None, 1.5, 21.0],
            "coats": pandas.array([0, 3, None], dtype="Int64"),
        }
    )
    rows, out = tmp_path / "rows.parquet", tmp_path / "out.parquet"
    for compression in ("snappy", "gzip"):
        frame.to_parquet(rows, compression=compression)
        code, text, error = run("impute", model, rows, "-o", out, "--scores")
        assert code == 0, error
        assert "3 cells of 3 rows filled in (3 optimal)" in text
        filled = pandas.read_parquet(out)
        assert list(filled.columns) == [*frame.columns, "log_prob", "log_conditional", "status"]
        assert filled["season"].tolist() == ["summer", "winter", "summer"]
        assert list(filled["season"].cat.categories) == ["summer", "winter"]
        assert filled["coats"].dtype == "Int64"
        assert filled["coats"].tolist() == [0, 3, 0]
        assert 18 < filled["degrees"][0] < 26
    code, text, _ = run("score", model, rows, "--json")
    assert json.loads(text)["rows"] == 3
    code, text, _ = run("learn", rows, "--describe", "--json")
    assert [column["missing"] for column in json.loads(text)["columns"]] == [0, 1, 1, 1]
    out.unlink()
    (tmp_path / "junk.parquet").write_bytes(b"PAR1 and no more")
    for given, written, said in (
        (rows, "out.csv", "let both names end alike"),
        (tmp_path / "none.parquet", "out.parquet", "there is no such file"),
        (tmp_path / "junk.parquet", "out.parquet", "not a Parquet file that can be read"),
        (rows, "nowhere/out.parquet", "there is no such folder"),
    ):
        code, _, error = run("impute", model, given, "-o", tmp_path / written)
        assert code == 2
        assert said in " ".join(error.split())
        assert not (tmp_path / written).exists()


def test_score_finds_the_odd_row(model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("season,degrees,coats\nsummer,22,0\nwinter,,3\nsummer,1.0,3\n")
    code, text, _ = run("score", model, rows, "--json")
    assert code == 0
    found = json.loads(text)
    assert found["least_likely"][0] == 2
    assert found["rows"] == 3
    assert found["mean_log_likelihood"] == pytest.approx(np.mean(found["log_likelihoods"]))
    out = tmp_path / "scores.csv"
    code, text, _ = run("score", model, rows, "--least", 1, "-o", out)
    assert code == 0
    assert f"wrote {out}" in text
    assert [float(cell) for (cell,) in table(out)[1:]] == pytest.approx(found["log_likelihoods"])


def test_sample_speaks_the_values_of_the_table(model: Path) -> None:
    code, text, _ = run("sample", model, "-n", 20, "--seed", 1)
    assert code == 0
    lines = list(csv.reader(text.splitlines()))
    assert lines[0] == ["season", "degrees", "coats"]
    assert {line[0] for line in lines[1:]} == {"summer", "winter"}
    assert {line[2] for line in lines[1:]} == {"0", "3"}
    assert all(line[1][0] in "[(" for line in lines[1:])
    code, text, _ = run("sample", model, "-n", 5, "--seed", 1, "--codes")
    assert len(text.splitlines()) == 5
    assert set(text) <= set("0123456789,\n")


# What is wrong with a table, the options, the exit code, and what is said or (of a right result) written.
BAD = {
    "duplicate names": ("a,b,a\n1,2,3\n", (), 2, "two columns called 'a'"),
    "a column without entries": (
        "a,b,c\n" + "0,,1\n1,NA,0\n" * 5,
        (),
        0,
        "column b is left out: all its entries are missing",
    ),
    "no column with entries": ("a,b\n,\nNA,?\n", ("--header",), 2, "no column is left"),
    "one value only": ("a,b\n" + "x,0\nx,1\n" * 5, (), 0, ""),
    "mixed types": ("a,b\n" + "1.5,0\n2.25,1\n" * 10_000 + "oops,1\n", ("--bins", "a=2"), 2, "column a"),
    "wrong delimiter": ("a;b\n1;2\n2;1\n", ("--delimiter", ","), 2, "the delimiter is ';', perhaps"),
    "seldom delimiter": ("a b\n1 2\n2 1\n", (), 2, "say delimiter=' ' (--delimiter), otherwise delimiter=','"),
    "ragged lines": ("a,b\n1,2\n1\n", (), 2, "line 3: 1 values, but the lines before have 2"),
    "a quote that is not closed": ('a,b\n1,"x\n2,y\n', (), 2, ""),
    "no rows": ("a,b\n", ("--header",), 2, "no rows"),
    "infinite numbers": ("a,b\n1,inf\n2,3\n", ("--header",), 2, "not finite"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("learner", ["chow-liu", "hclt"])
def test_bad_tables_are_errors_or_right_results(what: str, learner: str, tmp_path: Path) -> None:
    content, options, expected, said = BAD[what]
    table, written = tmp_path / "table.csv", tmp_path / "model.json"
    table.write_text(content)
    more = ("--latent", 2, "--epochs", 1) if learner == "hclt" else ()
    code, _, error = run("learn", table, "-o", written, "--learner", learner, *options, *more)
    assert code == expected, error
    assert said in " ".join(error.split())
    assert written.exists() == (expected == 0)
    if expected == 0:
        circuit = mm.load(written)
        assert circuit.properties.normalised
        assert "b" in circuit.names or what == "a column without entries"
    else:
        assert error.startswith("margmap: error: ")
        assert error.count("\n") <= 3


def test_a_file_that_cannot_be_written_is_refused_before_the_table_is_read(tmp_path: Path) -> None:
    for output, said in (("model.foo", "the name says no format"), ("nowhere/model.json", "no such folder")):
        code, _, error = run("learn", tmp_path / "none.csv", "-o", tmp_path / output)
        assert code == 2
        assert said in error


def test_words_among_numbers_are_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i % 5},{'xyz'[i % 3]}\n" for i in range(30)) + "not said,x\n")
    code, text, _ = run("learn", tmp_path / "t.csv", "--describe")
    assert code == 0
    assert text.splitlines()[-1] == "a has numbers and not said: if that stands for missing, say --missing 'not said'"
    code, text, _ = run("learn", tmp_path / "t.csv", "--describe", "--missing", "not said")
    assert "stands for missing" not in text
    assert "codes" in text


def test_texts_with_spaces_are_one_column_if_so_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("full name\nNew York\nNew York\nSan Jose\n")
    code, text, _ = run("learn", tmp_path / "t.csv", "--describe", "--json", "--delimiter", ",")
    assert code == 0
    assert json.loads(text)["columns"][0]["values"] == ["New York", "San Jose"]
    code, text, _ = run("learn", tmp_path / "t.csv", "--describe", "--json", "--delimiter", " ")
    assert [column["name"] for column in json.loads(text)["columns"]] == ["full", "name"]


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "1,2\n", "season,degrees,coats\nsummer,2\n"])
@pytest.mark.parametrize("command", ["impute", "score"])
def test_files_that_do_not_fit(model: Path, tmp_path: Path, content: str, command: str) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(content)
    output = ("-o", tmp_path / "out.csv") if command == "impute" else ()
    code, _, error = run(command, model, rows, *output)
    assert code == 2
    assert error.startswith("margmap: error: ")
    assert not (tmp_path / "out.csv").exists()
