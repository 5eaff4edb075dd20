"""Tables: every kind of column, every kind of source, what is refused, and the way there and back."""

from __future__ import annotations

import dataclasses
import gzip
import json
import signal
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from typer.testing import CliRunner

import margmap as mm
from margmap.circuit import Encoding, Variable
from margmap.circuit.encoding import bin_names
from margmap.cli import app
from margmap.errors import DroppedColumnWarning, LostNamesWarning
from margmap.learn.column_kinds import quantile_edges, shortest_between
from margmap.learn.table import Table, decode, encode, read_both, read_table, read_tables

HEADER = "city,age,score,member,grade,when,id,gone\n"


def made(rows: int = 120, seed: int = 0) -> list[list[object]]:
    """Rows of a table with a column of each kind, some cells missing."""
    rng = np.random.default_rng(seed)
    out: list[list[object]] = []
    for i in range(rows):
        city = ["Bern", "Oslo", "Rome"][rng.integers(3)]
        age = int(rng.integers(18, 80))
        score = "NA" if i % 10 == 3 else round(float(rng.normal(age / 10, 1.0)), 2)
        out.append(
            [city, age, score, age > 40, [1, 2, 5][rng.integers(3)], f"2020-{1 + i % 12:02}-{1 + i % 28:02}", i, ""]
        )
    return out


def text_of(rows: list[list[object]], delimiter: str = ",") -> str:
    return "".join(delimiter.join(map(str, row)) + "\n" for row in rows)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_text(HEADER + text_of(made()))
    return tmp_path / "table.csv"


def quiet(source: object, **options: object) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedColumnWarning)
        return read_table(source, **options)


def run(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="margmap")
    return result.exit_code, result.stdout, result.stderr


def test_every_kind_of_column(path: Path) -> None:
    with pytest.warns(DroppedColumnWarning) as told:
        table = read_table(path, bins=4)
    assert [str(one.message).split(" is left")[0] for one in told] == ["column when", "column id", "column gone"]
    assert [each.name for each in table.dropped] == ["when", "id", "gone"]
    assert table.names == ("city", "age", "score", "member", "grade")
    assert [encoding.kind for encoding in table.encoding] == ["states", "bins", "bins", "states", "codes"]
    city, age, score, member, grade = table.variables
    assert city.states == ("Bern", "Oslo", "Rome")
    assert member.states == ("False", "True")
    assert grade.states == ("1", "2", "5")  # 3 and 4 never occur
    rows = made()
    for i, row in enumerate(rows):
        codes = table.codes[i].tolist()
        assert city.states[codes[0]] == row[0]
        edges = (-np.inf, *age.encoding.edges, np.inf)
        assert edges[codes[1]] <= row[1] < edges[codes[1] + 1]
        assert codes[2] == (-1 if row[2] == "NA" else sum(float(row[2]) >= edge for edge in score.encoding.edges))
        assert member.states[codes[3]] == str(row[3])
        assert grade.states[codes[4]] == str(row[4])
    assert table.missing.sum() == 12
    counts = np.bincount(table.codes[:, 1])
    assert counts.min() > 20  # quarters of 120 rows, but for equal numbers
    middle = age.encoding.middles[2]
    inside = [row[1] for row in rows if age.code(row[1]) == 2]
    assert sorted(inside)[len(inside) // 2 - 1] <= middle <= sorted(inside)[len(inside) // 2]


def test_all_sources_give_the_same(path: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    expected = quiet(path)
    with gzip.open(tmp_path / "packed.csv.gz", "wt") as file:
        file.write(path.read_text())
    (tmp_path / "semicolons.csv").write_text(path.read_text().replace(",", ";"))
    (tmp_path / "tabs.tsv").write_text(path.read_text().replace(",", "\t"))
    sources: list[object] = [tmp_path / "packed.csv.gz", str(tmp_path / "semicolons.csv"), tmp_path / "tabs.tsv"]
    frame = pandas.read_csv(path)
    sources += [frame, frame.convert_dtypes()]
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "table.parquet")
    frame.convert_dtypes().to_parquet(tmp_path / "nullable.pq", compression="gzip")
    sources += [tmp_path / "table.parquet", str(tmp_path / "nullable.pq")]
    for source in sources:
        table = quiet(source)
        assert table.names == expected.names
        assert np.array_equal(table.codes, expected.codes)
        for one, two in zip(table.variables, expected.variables, strict=True):
            assert (one.states, one.encoding.kind, one.encoding.edges) == (
                two.states,
                two.encoding.kind,
                two.encoding.edges,
            )


@pytest.mark.parametrize("gone", ["pandas", "pyarrow"])
def test_parquet_needs_an_extra(gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, gone, None)
    with pytest.raises(mm.MissingExtraError, match=r"pip install 'margmap\[tables\]'"):
        read_table(tmp_path / "x.parquet")


def test_a_text_among_many_numbers_is_missing_if_unknown_values_are(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n" + "\n".join(str(i / 7) for i in range(40_000)) + "\nodd\n3.25\n")
    with pytest.raises(mm.DataError, match=r"row 40000 .*'odd' is no number"):
        read_table(path)
    known = read_table([[float(i) / 7] for i in range(100)], bins=4)
    found = encode([dataclasses.replace(known.variables[0], name="a")], path, "missing")
    assert found[-2:, 0].tolist() == [-1, 0]
    assert (found[:-2, 0] >= 0).all()


def test_numbers_with_commas_are_no_identifiers(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("price;a\n" + "".join(f"{i},{i:02};{i % 2}\n" for i in range(40)))
    with pytest.warns(DroppedColumnWarning, match="price is left out: numbers with commas, such as 0,00: write a dec"):
        assert read_table(path).names == ("a",)


def test_a_cell_may_have_two_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\r\n"x\r\ny",1\r\nxy,2\r\n')
    assert read_table(path).variables[0].states == ("x\r\ny", "xy")


def test_columns_of_no_use_in_data_and_validation_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dates, identifiers of more texts than are kept, and columns without entries, in one of the two or in both."""
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr("margmap.learn.raw_columns._MANY_TEXTS", 30)
    when = pandas.to_datetime(["2024-01-01", "2024-02-01"] * 20)
    frame = pandas.DataFrame(
        {"when": when, "id": [f"C{i}" for i in range(40)], "a": ["x", "y"] * 20, "n": [1.5, 2.5] * 20}
    )
    none = frame.assign(when=None, a=None, n=np.nan)
    for data, valid in ((frame, frame), (frame, none), (none, frame)):
        valid = valid.assign(id=[f"D{i}" for i in range(40)])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedColumnWarning)
            table, more = read_both(data, valid, bins=2)
        assert table.names == ("a", "n")
        assert [each.name for each in table.dropped] == ["when", "id"]
        for codes, source in ((table.codes, data), (more, valid)):
            assert codes.shape == (40, 2)
            assert np.array_equal(codes[:, 0], [-1] * 40 if source.a.isna().all() else [0, 1] * 20)
            assert np.array_equal(codes[:, 1], [-1] * 40 if source.a.isna().all() else [0, 1] * 20)
    for column in (pandas.DataFrame({"a": when}), pandas.DataFrame({"a": [1.5, 2.5] * 20})):
        with pytest.raises(
            mm.DataError, match=r"column a has text in the data and (dates|numbers) in the validation data"
        ):
            read_both(frame[["a"]], column)
    many, few = tmp_path / "many.csv", tmp_path / "few.csv"
    many.write_text("id,a\n" + "".join(f"C{i},{i % 2}\n" for i in range(60)))
    few.write_text("id,a\n" + "".join(f"C{i},{i % 2}\n" for i in range(100, 110)))
    (tmp_path / "more.csv").write_text(many.read_text().replace("C", "D"))
    for data, valid in ((many, tmp_path / "more.csv"), (many, few), (few, many)):
        with pytest.warns(DroppedColumnWarning, match="an identifier"):
            table, more = read_both(data, valid)
        assert table.names == ("a",)
        assert len(table) + len(more) in (70, 120)


def test_a_header_is_seen_and_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for text, names in [
        ("a,b\n1,2\n2,1\n", ("a", "b")),
        ("1,2\n2,1\n", (1, 2)),
        ("x,1\ny,2\n", (1, 2)),
        ("city,name\nRome,Ann\nRome,Bob\n", ("city", "name")),
        ("red,red\nred,blue\nblue,red\n", (1, 2)),
        (",b\n0,x\n1,y\n", ("column 1", "b")),
        ("a,b,\n1,2,\n2,1,\n", ("a", "b")),  # every line ends with a delimiter
        ("a,,b\n1,,2\n2,x,1\n", (1, 2, 3)),
    ]:
        path.write_text(text)
        assert quiet(path).names == names
    path.write_text("2019,2020\n1,2\n2,1\n")
    assert quiet(path).names == (1, 2)
    assert quiet(path, header=True).names == ("2019", "2020")
    path.write_text("a,b\nx,1\ny,2\n")
    assert quiet(path, header=False, columns=[1]).variables[0].states == ("a", "x", "y")


def test_arrays_and_lines_without_names_count_from_0(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).integers(0, 3, (40, 3))
    table = read_table(rows)
    assert [v.cardinality for v in table.variables] == [3, 3, 3]
    assert all(v.encoding is None and not v.states for v in table.variables)
    assert np.array_equal(table.codes, rows)
    np.savetxt(tmp_path / "rows.csv", rows, fmt="%d", delimiter=",")
    for source in (sparse.csr_matrix(rows), rows.tolist(), rows.astype(float), tmp_path / "rows.csv"):
        assert np.array_equal(read_table(source).codes, rows)
        assert read_table(source).variables == table.variables
    holes = np.where(rows == 2, np.nan, rows)
    assert np.array_equal(read_table(holes).codes, np.where(rows == 2, -1, rows))
    assert np.array_equal(read_table(rows, missing=2).codes, np.where(rows == 2, -1, rows))
    real = np.random.default_rng(1).normal(size=(40, 2))
    assert [v.encoding.kind for v in read_table(real).variables] == ["bins", "bins"]
    kept = read_table(np.column_stack([real, rows]), continuous=[1])
    assert [e.kind for e in kept.encoding] == ["continuous", "bins", "codes", "codes", "codes"]
    assert np.array_equal(kept.codes[:, 0], real[:, 0])
    assert kept.variables[0].continuous


def test_bins_can_be_chosen(path: Path) -> None:
    table = quiet(path, bins={"age": [25, 65], "score": 3, "grade": 2})
    assert table.variables[1].states == ("(-inf, 25)", "[25, 65)", "[65, inf)")
    assert table.variables[2].cardinality == 3
    assert table.encoding[4].kind == "bins"
    codes = quiet(path, bins={"age": None}).variables[1]
    assert codes.encoding.kind == "codes"
    assert codes.states == tuple(map(str, sorted({row[1] for row in made()})))
    for bins, message in [
        ({"aeg": 3}, "names the column 'aeg'"),
        ({"age": [3, 2]}, "rise"),
        ({"age": 1}, "from 2 to 256"),
        ({"age": "many"}, "number of bins"),
        ({"city": 3}, "it has texts such as"),
        (True, "number of bins"),
    ]:
        with pytest.raises(mm.DataError, match=message):
            quiet(path, bins=bins)


def test_bins_hold_equally_many_and_have_short_names() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        numbers = np.sort(rng.choice([rng.normal(0, 10.0 ** rng.integers(-3, 6), 200), rng.integers(0, 30, 200) * 1.0]))
        bins = int(rng.integers(2, 12))
        edges = quantile_edges(numbers, bins)
        assert edges == sorted(set(edges))
        place = np.searchsorted(edges, numbers, side="right")
        runs = max(np.unique(numbers, return_counts=True)[1])
        assert np.bincount(place, minlength=len(edges) + 1).min() > 0
        assert np.bincount(place).max() <= 200 / bins + 2 * runs + 1
        below, above = np.sort(rng.normal(size=2))
        assert below < shortest_between(below, above) <= above
    assert quantile_edges(np.arange(100) * 1.0, 4) == [25.0, 50.0, 75.0]
    assert quantile_edges(np.array([3.0] * 10), 4) == []
    assert quantile_edges(np.array([0.0] * 90 + [1.5] * 10), 4) == [1.0]
    assert bin_names([18, 25.5]) == ("(-inf, 18)", "[18, 25.5)", "[25.5, inf)")


def test_evidence_is_given_as_the_table_has_it(path: Path) -> None:
    table = quiet(path, bins={"age": [25, 65]})
    age, grade = table.variables[1], table.variables[4]
    for value, code in [(18, 0), (24.9, 0), (25, 1), ("64", 1), (65.0, 2), (-1, 0), (1e9, 2), ("[25, 65)", 1)]:
        assert age.code(value) == code
        assert age.value(value) == code
    assert age.code("[25,65)") == age.code(" [ 25 , 65 ) ") == 1
    for wrong in ("[25, 66)", "young", float("inf"), True):
        with pytest.raises(mm.QueryError):
            age.code(wrong)
    assert [grade.code(x) for x in (1, "2", 5.0)] == [0, 1, 2]
    with pytest.raises(mm.QueryError, match="no state 3"):
        grade.code(3)


def test_intervals_of_bins_begin_and_end_at_edges(path: Path) -> None:
    circuit = mm.learn.chow_liu(quiet(path, bins={"age": [25, 45, 65]}, columns=["city", "age", "member"]))

    def total(*bins: int) -> float:
        return float(
            np.log(sum(np.exp(mm.log_marginal(circuit, {"age": circuit.variables[1].states[x]})) for x in bins))
        )

    for given, bins in [((25, None), (1, 2, 3)), ((None, 24), (0,)), ((25, 64), (1, 2)), ((24.5, 44.2), (1,))]:
        assert mm.log_marginal(circuit, {"age": given}) == pytest.approx(total(*bins))
    for wrong in ((26, None), (None, 25), (25, 65)):
        with pytest.raises(mm.QueryError, match="within the bin"):
            mm.log_marginal(circuit, {"age": wrong})
    mm.save(circuit, path.with_suffix(".json"))
    for text, bins in [("age>=45", (2, 3)), ("age<45", (0, 1)), ("age>44", (2, 3)), ("age=25..44", (1,))]:
        code, out, err = run("marginal", path.with_suffix(".json"), "-e", text, "--json")
        assert code == 0, err
        assert json.loads(out)["log_evidence"] == pytest.approx(total(*bins))
    real = mm.learn.chow_liu(quiet(path, bins={"age": [25, 45]}, columns=["age", "member"]))
    assert np.isfinite(mm.log_marginal(real, {"age": (45, None)}))


def test_a_number_of_a_bin_that_is_minus_one_is_observed() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    frame = pandas.DataFrame({"t": rng.normal(0, 5, 60), "x": rng.integers(0, 2, 60)})
    circuit = mm.learn.chow_liu(frame)
    row = pandas.DataFrame({"t": [-1.0], "x": [1]})
    assert mm.log_likelihood(circuit, row)[0] == pytest.approx(mm.log_marginal(circuit, {"t": -1.0, "x": 1}))
    assert mm.log_likelihood(circuit, row)[0] < mm.log_marginal(circuit, {"x": 1})


def test_there_and_back(path: Path) -> None:
    table = quiet(path, bins=3)
    values = decode(table, table.codes)
    rows = made()
    for given, row, codes in zip(values.tolist(), rows, table.codes.tolist(), strict=True):
        assert given[0] == row[0]
        assert given[3] == str(row[3])
        assert given[4] == row[4]
        assert given[2] is None if row[2] == "NA" else table.variables[2].code(row[2]) == codes[2]
    middles = decode(table, table.codes, numbers=True)
    assert {type(x) for x in middles[:, 1]} == {int}
    pandas = pytest.importorskip("pandas")
    for again in (values, middles):
        frame = pandas.DataFrame(again, columns=table.names)
        assert np.array_equal(encode(table, frame), table.codes)
    shuffled = pandas.read_csv(path)[["grade", "score", "id", "city", "member", "age"]]
    assert np.array_equal(encode(table, shuffled), table.codes)


def test_values_never_seen(path: Path, tmp_path: Path) -> None:
    table = quiet(path)
    new = tmp_path / "new.csv"
    new.write_text("grade,city,age,score,member\n3,Paris,200,?,True\n5,Rome,30,1.5,False\n")
    with pytest.raises(mm.DataError, match=r"row 0 .*column city: .*no state 'Paris'"):
        encode(table, new)
    codes = encode(table, new, unknown="missing")
    assert codes[0].tolist() == [-1, table.variables[1].cardinality - 1, -1, 1, -1]
    assert (codes[1] >= 0).all()
    new.write_text("grade,town,age,score,member\n1,Rome,30,1,True\n")
    with pytest.raises(mm.DataError, match="no column 'city'"):
        encode(table, new)
    assert encode(table, new, unknown="missing")[0, 0] == -1
    new.write_text("a,b\n1,2\n2,1\n")
    with pytest.raises(mm.DataError, match="no column"):
        encode(table, new, unknown="missing")
    with pytest.raises(mm.DataError, match="unknown="):
        encode(table, path, unknown="perhaps")


def test_missing_words(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n1,a\n-999,none\nNA,?\n,b\nnan,a\n2,b\n")
    table = read_table(path, missing=["-999", "none"])
    assert table.codes.tolist() == [[0, 0], [-1, -1], [-1, -1], [-1, 1], [-1, 0], [1, 1]]
    circuit = mm.learn.chow_liu(read_table([[1, "a"], [2, "b"]], missing=["-999", "none"]))
    assert circuit.variables[1].encoding.missing == ("?", "-999", "none")
    answers = list(mm.marginal_map_many(circuit, [1], [[None, "none"], [None, "?"], [None, "b"]], jobs=1))
    assert [answer.status for answer in answers] == ["optimal"] * 3
    assert answers[0].log_conditional == pytest.approx(answers[1].log_conditional)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,a\n1,2,3\n", "two columns called 'a'"),
        ("a,b\n1,2\n1\n", "line 3: 1 values, but the lines before have 2"),
        ("a,b\n1,2\n1,2,3\n", "line 3: 3 values"),
        ("", "empty"),
        ("a,b\n", "no rows"),
        ("a,b\n1,inf\n2,3\n", "not finite"),
        ('a,b\n1,"x\n', "not a table of cells|no rows"),
        ("a\n\n\n\n", "no column is left|no rows"),
    ],
)
def test_bad_files(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(mm.MargmapError, match=message) as raised:
        quiet(path, header=True)
    assert "bad.csv" in str(raised.value)


def test_wrong_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1;2\n2;1\n")
    with pytest.raises(mm.FormatError, match="the delimiter is ';', perhaps, not ','"):
        read_table(path, delimiter=",")
    assert read_table(path).names == read_table(path, delimiter=";").names == ("a", "b")
    with pytest.raises(mm.DataError, match="one character"):
        read_table(path, delimiter="; ")


def test_mixed_types(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{i % 3},{i % 2}\n" for i in range(30)) + "many,1\n")
    assert read_table(path).variables[0].states == ("0", "1", "2", "many")  # all are texts
    path.write_text("x\n" + "".join(f"{i / 7:.4f}\n" for i in range(20_000)) + "oops\n")
    with pytest.raises(mm.DataError, match=r"row 20000 .*column x: 'oops' is no number"):
        read_table(path)
    assert read_table(path, missing="oops").codes[-1, 0] == -1
    frame = pandas.DataFrame({"x": [1, "a", 2.5]})
    with pytest.raises(mm.DataError, match=r"column x, row 1 .*'a' is text, but the entries before are a number"):
        read_table(frame)
    with pytest.raises(mm.DataError, match=r"has text in the data and numbers in the validation data"):
        read_tables(pandas.DataFrame({"a": ["x", "y"]}), pandas.DataFrame({"a": [1, 2]}))


def test_one_value_only(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c,d\n" + "x,7,1.5,0\nx,7,1.5,1\n" * 10)
    table = read_table(path)
    assert [v.cardinality for v in table.variables] == [1, 1, 1, 2]
    learners = (
        mm.learn.chow_liu,
        mm.learn.strudel,
        lambda data: mm.learn.mixture(data, components=2),
        lambda data: mm.learn.hclt(data, latent=2, epochs=2),
        lambda data: mm.learn.trees(data, k=2, iterations=2),
    )
    for learn in learners:
        circuit = learn(path)
        assert circuit.properties.smooth
        assert mm.log_marginal(circuit, {"a": "x", "b": 7, "c": 1.5}) == pytest.approx(0.0)
        assert mm.marginal_map(circuit, ["a", "d"]).state["a"] == "x"


def test_leading_zeros_are_texts_and_too_many_texts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("code,x\n" + "".join(f"{i % 4:03},{i % 2}\n" for i in range(40)))
    assert read_table(path).variables[0].states == ("000", "001", "002", "003")
    path.write_text("word,x\n" + "".join(f"w{i % 300},{i % 2}\n" for i in range(1200)))
    with pytest.raises(mm.DataError, match="column word: 300 different values, and 256 are the most"):
        read_table(path)
    path.write_text("word,x\n" + "".join(f"w{i},{i % 2}\n" for i in range(1200)))
    with pytest.raises(mm.DataError, match="an identifier"):
        read_table(path, columns=["word", "x"])  # asked for by its name, so not left out in silence


def test_a_long_file_is_read_in_blocks(tmp_path: Path) -> None:
    """Numbers that outgrow their texts, texts that are too many to keep, and blocks that join."""
    rng = np.random.default_rng(5)
    rows = 120_000
    numbers, words = np.round(rng.normal(size=rows), 6), rng.integers(0, 5, rows)
    with (tmp_path / "long.csv").open("w") as file:
        file.write("number,word,name\n")
        file.writelines(
            f"{x},w{w},n{i}\n" for i, (x, w) in enumerate(zip(numbers.tolist(), words.tolist(), strict=True))
        )
    table = quiet(tmp_path / "long.csv")
    assert [each.name for each in table.dropped] == ["name"]
    assert np.array_equal(table.codes[:, 1], words)
    assert np.array_equal(table.codes[:, 0], np.searchsorted(table.encoding[0].edges, numbers, side="right"))
    assert np.abs(np.bincount(table.codes[:, 0]) - rows / 8).max() < 100


# -- in files


@pytest.mark.parametrize("suffix", ["json", "json.gz", "mmz"])
def test_the_encoding_is_in_the_file(suffix: str, path: Path, tmp_path: Path) -> None:
    table = quiet(path, missing="gone", columns=["city", "age", "member", "grade"])
    circuit = mm.learn.chow_liu(table)
    target = tmp_path / f"model.{suffix}"
    mm.save(circuit, target)
    loaded = mm.load(target)
    assert loaded.variables == circuit.variables
    assert [v.encoding for v in loaded.variables] == [v.encoding for v in table.variables]
    assert mm.marginal_map(loaded, ["city"], {"age": 33.5, "grade": 5, "member": True}).status == "optimal"
    assert np.array_equal(encode(loaded, path), table.codes)


@pytest.mark.parametrize("suffix", ["jpc", "spn", "ac"])
def test_what_a_format_loses_is_told(suffix: str, path: Path, tmp_path: Path) -> None:
    circuit = mm.learn.chow_liu(quiet(path, columns=["city", "age", "member", "grade"]))
    with pytest.warns(LostNamesWarning, match=rf"model.{suffix}: {suffix} files number .* save as .json or .mmz"):
        mm.save(circuit, tmp_path / f"model.{suffix}")
    mm.save(mm.learn.chow_liu([[0, 1], [1, 0]]), tmp_path / f"plain.{suffix}")  # has nothing to lose
    mm.save(circuit, tmp_path / "model.json")
    code, _, err = run("convert", tmp_path / "model.json", tmp_path / f"again.{suffix}")
    assert code == 0
    assert "margmap: " in err
    assert "save as .json or .mmz" in err


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "bins"},
        {"kind": "states", "edges": [1.0]},
        {"kind": "bins", "edges": [2.0, 1.0], "middles": [0, 1, 2]},
        {"kind": "bins", "edges": ["a"], "middles": [0, 1]},
        {"kind": "bins", "edges": [1.0], "middles": [0, 1, 2]},
        {"kind": "bins", "edges": [10**400], "middles": [0, 1]},
        {"kind": "continuous"},
        {"kind": "other"},
        {"entries": "text"},
        {"kind": "states", "entries": ["text"]},
        {"kind": "states", "missing": [1]},
        {"kind": "states", "more": 1},
        [],
        None,
    ],
)
def test_a_damaged_encoding_is_refused(entry: object, tmp_path: Path) -> None:
    variable = {"name": "x", "cardinality": 2, "states": ["a", "b"], "encoding": entry}
    nodes = [["bernoulli", 0, -0.7, -0.7]]
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"format": "margmap", "version": 1, "variables": [variable], "nodes": nodes}))
    with pytest.raises(mm.FormatError, match="variable number 0"):
        mm.load(path)


def test_an_encoding_must_fit_its_variable() -> None:
    with pytest.raises(mm.StructureError, match="does not go with"):
        Variable("x", 2, (), Encoding("continuous", "float"))
    with pytest.raises(mm.StructureError, match="3 bins for 2 values"):
        Variable("x", 2, ("a", "b"), Encoding("bins", "float", (1.0, 2.0), (0.0, 1.5, 3.0)))
    with pytest.raises(mm.StructureError, match="not an Encoding"):
        Variable("x", 2, (), "bins")


# -- on the command line


def test_describe(path: Path) -> None:
    code, out, err = run("learn", path, "--describe", "--bins", "age=25/65,score=3", "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["rows"] == 120
    assert [(c["name"], c["kind"], c["missing"]) for c in facts["columns"]] == [
        ("city", "states", 0),
        ("age", "bins", 0),
        ("score", "bins", 12),
        ("member", "states", 0),
        ("grade", "codes", 0),
    ]
    assert facts["columns"][1]["edges"] == [25.0, 65.0]
    assert all(sum(c["counts"]) + c["missing"] == 120 for c in facts["columns"])
    assert [each["name"] for each in facts["dropped"]] == ["when", "id", "gone"]
    assert "margmap: column when is left out" in err
    code, out, _ = run("learn", path, "--describe")
    assert code == 0
    assert "left out: id (120 different whole numbers" in out
    for args, words in [
        ((), "--describe"),
        (("--describe", "--bins", "age=x"), "--bins age=x"),
        (("--describe", "--bins", "3,age=4"), "one number for all"),
        (("--describe", "--columns", "town"), "no column 'town'"),
        (("-o", path.with_suffix(".json"), "-l", "magic"), "no learner 'magic'"),
        (
            ("-o", path.with_suffix(".json"), "-l", "chow-liu", "--columns", "city,age", "--tries", 3),
            "--tries does not",
        ),
    ]:
        code, _, err = run("learn", path, *args)
        assert code == 2
        assert words in err


def test_learn_ask_and_go_on(path: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    options = ("--columns", "city,age,member,grade", "--bins", "age=25/65")
    for learner in ("chow-liu", "mixture", "strudel"):
        more = ("--components", 2) if learner == "mixture" else ()
        code, out, err = run("learn", path, "-o", model, *options, "-l", learner, *more, "--json")
        assert code == 0, err
        assert json.loads(out)["learner"] == learner
        circuit = mm.load(model)
        assert circuit.variables[1].states == ("(-inf, 25)", "[25, 65)", "[65, inf)")
        shown = json.loads(run("solve", model, "-q", "city,member", "-e", "age=[25, 65),grade=5", "--json")[1])
        assert shown["state"] == mm.marginal_map(circuit, ["city", "member"], {"age": 30, "grade": "5"}).state
        if learner != "chow-liu":
            before = json.loads(out)["train"]
            code, out, err = run("learn", path, "-o", model, "-l", learner, "--resume", model, "--json")
            assert code == 0, err
            assert json.loads(out)["train"] >= before - 1e-3
            assert mm.load(model).variables == circuit.variables
    code, _, err = run("learn", path, "-o", model, "-l", "chow-liu", "--resume", model)
    assert code == 2
    assert "--resume does not go with the learner chow-liu" in err


def test_a_mixture_ends_early_with_the_best_so_far(path: Path) -> None:
    table = quiet(path, columns=["city", "age", "member", "grade"])
    whole = mm.learn.learn_mixture(table, components=3, tolerance=0.0, iterations=5)
    assert whole.reason == "iterations"
    assert mm.learn.learn_mixture(table, components=3, time_limit=0.0).reason == "time_limit"

    def stop(now: object) -> None:
        if len(seen) == 2:
            signal.raise_signal(signal.SIGINT)
        seen.append(now)

    seen: list[object] = []
    stopped = mm.learn.learn_mixture(table, components=3, tolerance=0.0, iterations=50, on_iteration=stop)
    assert stopped.reason == "interrupted"
    assert len(stopped.history) == 3
    assert stopped.circuit.properties.smooth
    again = mm.learn.learn_mixture(table, resume=stopped.circuit, tolerance=0.0, iterations=2)
    assert len(again.weights) == 3
    assert again.history[-1].train == pytest.approx(whole.history[5].train, abs=1e-9)  # as if it had not stopped
