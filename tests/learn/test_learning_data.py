"""What the learners take and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import margmap as mm
from margmap.learn import chow_liu, learn_mixture, strudel
from margmap.learn.table import read_tables
from rows_for_learning import tangled

LEARNERS = [chow_liu, strudel, lambda data, valid=None: learn_mixture(data, valid, 2).circuit]


@pytest.mark.parametrize("learn", LEARNERS)
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((0, 3)), "0 rows and 3 columns"),
        (np.zeros((3, 0)), "3 rows and 0 columns"),
        ([], "must be a matrix"),
        ([0, 1, 1], "an array of 1 dimensions"),
        ([[0, 1], [1]], "same length|different lengths"),
        ([[0.0, np.nan], [1.0, 1.0]], "row 0 .*column named 2: the value is missing"),
        ([[0.0, np.nan]], "column 2: all its entries are missing"),
        ([[0, 1], [0, -1]], "column named 2, row 1 .*negative"),
        ([[0.0, np.inf]], "not finite"),
        ([["a", 1], [2, 3]], "row 1 .*is a number, but the entries before are text"),
        ([[0, 1 + 2j]], "neither numbers nor text|must be numbers"),
    ],
)
def test_bad_data(learn, data: object, message: str) -> None:
    with np.errstate(all="raise"), pytest.raises(mm.DataError, match=message):
        learn(data)


def test_bad_data_is_a_value_error_too() -> None:
    with pytest.raises(ValueError, match="empty"):
        chow_liu(np.zeros((0, 2)))


def test_mismatched_validation_data() -> None:
    rows = tangled(20, 4)
    with pytest.raises(mm.DataError, match="3 columns and the data 4"):
        strudel(rows, rows[:, :3])
    with pytest.raises(mm.DataError, match="negative"):
        strudel(rows, rows - 1.0)


def test_values_are_those_of_both_tables() -> None:
    table, valid = read_tables([[0, 1], [1, 0]], [[0, 3]])
    assert [v.cardinality for v in table.variables] == [2, 4]
    assert valid is not None
    circuit = strudel([[0, 1], [1, 0]], [[0, 3]])
    assert np.isfinite(mm.log_likelihood(circuit, [[0, 3], [1, 2]])).all()


def test_kinds_of_matrices_give_the_same_circuit() -> None:
    rows = tangled(60, 5, seed=1)
    expected = strudel(rows, iterations=5)
    for kind in (rows.tolist(), rows.astype(float), rows.astype(bool), np.asfortranarray(rows), rows.astype(object)):
        assert np.array_equal(strudel(kind, iterations=5).log_weight, expected.log_weight)
    for kind in (sparse.csr_matrix(rows), sparse.coo_array(rows)):
        assert np.array_equal(strudel(kind, iterations=5).log_weight, expected.log_weight)
    with pytest.raises(mm.DataError, match="negative"):
        chow_liu(sparse.csr_matrix(np.array([[0, -1]])))


def test_all_of_256_values() -> None:
    rows = np.column_stack([np.arange(256), np.arange(256) % 3])
    circuit = chow_liu(rows)
    assert [v.cardinality for v in circuit.variables] == [256, 3]
    assert circuit.properties[:5] == (True,) * 5
    assert strudel(rows, min_gain=None, iterations=2).properties[:5] == (True,) * 5


def test_frames_have_names_and_texts() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "rain": [0, 1, 1, 0, 1, 0],
            "wind": pandas.Categorical(["low", "high", "high", "low", "low", "low"], ["low", "high", "storm"]),
            "mood": ["good", "bad", "bad", "good", "good", "good"],
            7: [True, False, True, False, True, True],
        }
    )
    circuit = strudel(frame, frame.iloc[:3])
    assert circuit.names == ("rain", "wind", "mood", 7)
    assert circuit.variables[1].states == ("low", "high", "storm")
    assert circuit.variables[2].states == ("bad", "good")
    assert mm.log_conditional(circuit, {"mood": "bad"}, {"wind": "high"}) > np.log(0.5)
    swapped = frame.rename(columns={"rain": "sun"})
    with pytest.raises(mm.DataError, match="'rain' in the data and 'sun' in the validation data"):
        strudel(frame, swapped)
    missing = frame.astype({"rain": float})
    missing.loc[2, "rain"] = np.nan
    with pytest.raises(mm.DataError, match=r"row 2 .*column rain: the value is missing"):
        chow_liu(missing)
    twice = frame.set_axis(["a", "b", "c", "a"], axis=1)
    with pytest.raises(mm.DataError, match="two columns called 'a'"):
        chow_liu(twice)
    many = pandas.DataFrame({"a": [str(i) for i in range(300)]})
    with pytest.raises(mm.DataError, match=r"column a: 300 different values.*no column is left"):
        chow_liu(many)
    with pytest.raises(mm.DataError, match="no columns"):
        chow_liu(pandas.DataFrame())
    lists = pandas.DataFrame({"a": [[1], [2]]})
    with pytest.raises(mm.DataError, match="neither numbers nor text"):
        chow_liu(lists)


def test_texts_of_both_tables_are_numbered_together() -> None:
    pandas = pytest.importorskip("pandas")
    train = pandas.DataFrame({"a": ["x", "y", "x"], "b": ["u", "u", "u"]})
    valid = pandas.DataFrame({"a": ["z", "x", "z"], "b": ["u", "w", "v"]})
    table, checked = read_tables(train, valid)
    a, b = table.variables
    assert a.states == ("x", "y", "z")
    assert b.states == ("u", "v", "w")
    assert checked is not None
    assert [a.states[i] for i in checked[:, 0]] == ["z", "x", "z"]
    assert [b.states[i] for i in checked[:, 1]] == ["u", "w", "v"]
    assert [b.states[i] for i in table.codes[:, 1]] == ["u", "u", "u"]
    with pytest.raises(mm.DataError, match="has text in the data and numbers in the validation data"):
        read_tables(train, pandas.DataFrame({"a": [0, 1], "b": ["u", "u"]}))
