"""Imputation against enumeration of all completions, and in the words of the table."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import margmap as mm
from margmap.learn import chow_liu, hclt, imputation, read_table, trees
from rows_for_learning import tangled


def holes(rows: np.ndarray, part: float, seed: int = 0) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random(rows.shape) < part, -1, rows.astype(np.int64))


def completions(circuit: mm.Circuit, row: np.ndarray, asked: list[int]) -> dict[tuple[int, ...], float]:
    """log p of every combination of values of the asked cells; the other missing ones are summed out one by one."""
    missing = [c for c in range(row.size) if row[c] < 0]
    sizes = [range(circuit.variables[c].cardinality) for c in missing]
    total: dict[tuple[int, ...], float] = {}
    for values in itertools.product(*sizes):
        whole = row.copy()
        whole[missing] = values
        key = tuple(int(whole[c]) for c in asked)
        total[key] = total.get(key, 0.0) + math.exp(float(mm.log_likelihood(circuit, whole[None])[0]))
    return {key: math.log(p) if p > 0 else -math.inf for key, p in total.items()}


MODELS = {
    "latent tree": lambda rows: hclt(rows, latent=3, epochs=4),
    "trees": lambda rows: trees(rows, k=3, iterations=4),
    "tree": lambda rows: chow_liu(np.where(rows < 0, 0, rows)),
}


def without_the_kernel_for_trees(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Latent trees are asked as all other circuits are; `test_tree_completion.py` is about the kernel."""
    monkeypatch.setattr(imputation, "_FEW_STATES", few)
    monkeypatch.setattr(imputation, "state_tree", lambda _circuit: None)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("few", [64, 0])  # all combinations evaluated, or every row solved by itself
def test_it_is_the_best_of_all_completions(kind: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_kernel_for_trees(few, monkeypatch)
    rows = holes(tangled(250, 6, 3, seed=3), 0.35)
    circuit = MODELS[kind](rows)
    some = np.vstack([rows[:25], rows[:3]])  # the last three are asked once
    found = mm.impute(circuit, some)
    assert found.table.dtype == some.dtype
    assert set(found.status) == {"optimal"}
    assert not found.errors
    for before, after, log_prob, given in zip(some, found.table, found.log_prob, found.log_conditional, strict=True):
        asked = [c for c in range(6) if before[c] < 0]
        assert (after[before >= 0] == before[before >= 0]).all()
        possible = completions(circuit, before, asked)
        assert log_prob == pytest.approx(max(possible.values()), abs=1e-9)
        assert possible[tuple(after[asked].tolist())] == pytest.approx(log_prob, abs=1e-9)
        mass = math.log(sum(math.exp(x) for x in possible.values()))
        assert given == pytest.approx(log_prob - mass, abs=1e-9)


@pytest.mark.parametrize("few", [64, 0])
def test_chosen_columns_with_the_others_summed_out(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_kernel_for_trees(few, monkeypatch)
    rows = holes(tangled(250, 6, seed=4), 0.4)
    circuit = hclt(rows, latent=3, epochs=4)
    found = mm.impute(circuit, rows[:25], columns=[2, "5"])
    assert ((found.table >= 0) | ~np.isin(np.arange(6), (1, 4))).all()
    for before, after, log_prob in zip(rows, found.table, found.log_prob, strict=False):
        untouched = [0, 2, 3, 5]
        assert (after[untouched] == before[untouched]).all()
        asked = [c for c in (1, 4) if before[c] < 0]
        possible = completions(circuit, before, asked)
        assert log_prob == pytest.approx(max(possible.values()), abs=1e-9)
        assert possible[tuple(after[asked].tolist())] == pytest.approx(log_prob, abs=1e-9)


def test_processes_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    without_the_kernel_for_trees(0, monkeypatch)
    rows = holes(tangled(60, 6, 3, seed=5), 0.4)
    circuit = hclt(rows, latent=3, epochs=3)
    one, two = mm.impute(circuit, rows), mm.impute(circuit, rows, jobs=2)
    assert np.array_equal(one.table, two.table)
    assert np.array_equal(one.log_prob, two.log_prob)
    assert one.status == two.status


def test_rows_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = chow_liu([[0, 0, 0], [1, 1, 1], [1, 1, 0]], pseudocount=0.0)
    rows = [[0, 1, -1], [-1, 1, -1], [0, 1, 0]]
    for few in (64, 0):
        monkeypatch.setattr(imputation, "_FEW_STATES", few)
        found = mm.impute(circuit, rows)
        assert found.status == ("failed", "optimal", "failed")
        assert found.table.tolist()[0] == [0, 1, -1]
        assert found.log_prob[0] == -np.inf
        assert set(found.errors) == {0, 2}
        assert "probability 0" in found.errors[0]


def test_real_numbers_become_their_mean() -> None:
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 400)
    rows = np.column_stack([kind, rng.normal(np.where(kind == 1, 10.0, -10.0), 1.0)])
    circuit = hclt(rows, latent=2, epochs=20, leaves={2: "gaussian"})
    found = mm.impute(circuit, [[1, np.nan], [np.nan, -9.0], [np.nan, np.nan]])
    assert found.table[0, 1] == pytest.approx(10.0, abs=0.5)
    assert found.table[1].tolist() == [0, -9.0]
    assert abs(found.table[2, 1]) == pytest.approx(10.0, abs=0.5)
    assert set(found.status) == {"optimal"}
    only = mm.impute(circuit, [[np.nan, np.nan]], columns=[1])
    assert np.isnan(only.table[0, 1])
    assert only.table[0, 0] in (0, 1)


def test_frames_keep_their_values_types_and_index() -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    tall = rng.random(300) < 0.5
    frame = pandas.DataFrame(
        {
            "size": pandas.Categorical(np.where(tall, "tall", "small"), ["small", "tall"]),
            "metres": np.where(tall, 1.9, 1.5) + rng.normal(0, 0.05, 300),
            "shoes": np.where(tall, 45, 37),
            "note": "anything",
        },
        index=range(1000, 1300),
    )
    circuit = hclt(read_table(frame, columns=["size", "metres", "shoes"]), latent=3, epochs=10)
    asked = frame.iloc[:20].copy()
    asked.loc[asked.index[0], "size"] = None
    asked["shoes"] = asked["shoes"].astype("float64")
    asked.loc[asked.index[1], ["metres", "shoes"]] = np.nan
    found = mm.impute(circuit, asked)
    assert list(found.table.columns) == list(frame.columns)
    assert (found.table.index == asked.index).all()
    assert found.table["size"].dtype == frame["size"].dtype
    assert found.table["size"].tolist() == frame["size"].iloc[:20].tolist()
    assert found.table["shoes"].tolist() == frame["shoes"].iloc[:20].tolist()
    assert found.table["metres"].iloc[1] == pytest.approx(frame["metres"].iloc[1], abs=0.2)
    assert found.table["metres"].iloc[2:].tolist() == frame["metres"].iloc[2:20].tolist()
    again = mm.impute(circuit, asked[["shoes", "size"]], unknown="missing")
    assert again.table["metres"].between(1.3, 2.1).all()
    with pytest.raises(mm.DataError, match="metres"):
        mm.impute(circuit, asked[["shoes", "size"]])


def test_frames_are_filled_in_as_their_own_entries_are_written(tmp_path) -> None:
    """A model of a file knows truth values as texts, and the labels of categories are texts for any model."""
    pandas = pytest.importorskip("pandas")
    file = tmp_path / "data.csv"
    file.write_text("on,grade,code\n" + "True,1,5\nFalse,2,6\n" * 30)
    circuit = hclt(file, latent=2, epochs=10)
    grade = pandas.Categorical([1, None, 1], [1])
    asked = pandas.DataFrame({"on": [True, False, None], "grade": grade, "code": [None, "6", "5"]})
    filled = mm.impute(circuit, asked).table
    assert filled["on"].tolist() == [True, False, True]
    assert filled["grade"].astype(str).tolist() == ["1", "2", "1"]
    assert list(filled["grade"].cat.categories) == [1, 2]
    assert filled["code"].tolist() == ["5", "6", "5"]


def test_tables_files_and_lists(tmp_path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("a,b\n" + "x,1\ny,7\n" * 30)
    circuit = hclt(file, latent=2, epochs=10)
    holed = tmp_path / "holes.csv"
    holed.write_text("b,a\n1,\n?,y\n")
    found = mm.impute(circuit, holed)
    assert found.table == [["x", 1], ["y", 7]]
    assert mm.impute(circuit, [["x", None], [None, 7]]).table.tolist() == [["x", 1], ["y", 7]]
    table = read_table(holed, variables=circuit)
    assert mm.impute(circuit, table).table.codes.tolist() == [[0, 0], [1, 1]]


def test_what_it_refuses() -> None:
    circuit = chow_liu([[0, 0], [1, 1]])
    with pytest.raises(mm.QueryError, match="unknown variable 7"):
        mm.impute(circuit, [[0, -1]], columns=[7])
    with pytest.raises(mm.QueryError, match="jobs"):
        mm.impute(circuit, [[0, -1]], jobs=0)
    with pytest.raises(mm.DataError):
        mm.impute(circuit, [[0, 5]])
    with pytest.raises(mm.DataError, match="columns"):
        mm.impute(circuit, [[0, 1, 1]])
