"""The Python around a question in a session: words that were understood once mean the same again, and nothing else."""

import dataclasses
import signal
import threading
from contextlib import nullcontext

import numpy as np
import pytest

import margmap as mm
from circuits import random_circuit
from margmap.foundation import jit
from margmap.foundation.limits import Limits
from margmap.foundation.notebook import notebook_bar
from margmap.inference.kept_values import KeptValues
from margmap.solve.kept_reduction import KeptReduction
from margmap.solve.question import Question
from margmap.solve.report import named
from margmap.solve.session import Memory

X, Y, Z = mm.Variable(1), mm.Variable("y", 3, ("low", "1", "True")), mm.Variable("z")


def model():
    """A circuit whose variables are named by a number and by texts, and values of one by what looks like others."""
    y = 0.5 * Y["low"] + 0.3 * Y["1"] + 0.2 * Y["True"]
    return mm.circuit_of(
        0.6 * (mm.bernoulli(X, 0.9) * y * mm.bernoulli(Z, 0.3)) + 0.4 * (mm.bernoulli(X, 0.2) * Y["low"] * Z[1]),
        [X, Y, Z],
    )


def large():
    return random_circuit(np.random.default_rng(5), variables=10, most=400)


def said(session, query, evidence=None):
    """What a question is answered with, or what is wrong with it."""
    try:
        result = session.marginal_map(query, evidence)
    except mm.MargmapError as error:
        return type(error), str(error)
    return result.status, list(result.state.items()), result.log_prob


QUERIES = [
    *([1], [True], [1.0], ["1"], [np.int64(1)], [X], [2], "1", 1, {1: 0}, (1,), np.array([1]), [1, "z"], ["z", 1]),
    *([1, "z", 1], ["z", "1"], [1, "z", "y"], [], None, ["nobody"], [1, None]),
]


@pytest.mark.parametrize("first", QUERIES, ids=repr)
def test_a_query_that_is_equal_to_the_last_one_or_has_some_of_its_names_is_understood_anew(first):
    session, fresh = mm.Session(model()), [said(mm.Session(model()), query) for query in QUERIES]
    for query, expected in zip(QUERIES, fresh, strict=True):
        said(session, first)
        assert said(session, query) == expected
    said(session, first)
    assert said(session, iter([1])) == fresh[0]
    assert {type(answer[0]) for answer in fresh} == {str, type}  # some are answered, some are refused


def test_the_last_query_does_not_change_with_the_list_that_it_was_given_as():
    session, query = mm.Session(model()), [1, "z"]
    session.marginal_map(query)
    query[0] = "y"
    assert list(session.marginal_map(query).state) == ["y", "z"]
    query.pop()
    assert list(session.marginal_map(query).state) == ["y"]


def test_whoever_is_given_the_columns_of_a_query_may_change_them():
    circuit, query = model(), ["z", 1]
    for _ in range(3):
        columns = circuit.asked(query, {})
        assert columns == [2, 0]
        columns.clear()


def test_the_last_query_is_refused_where_it_is_observed_now():
    session, query = mm.Session(model()), [1, "z"]
    session.marginal_map(query, {"y": "low"})
    with pytest.raises(mm.QueryError, match="'z' is both queried and observed"):
        session.marginal_map(query, {"z": 1})
    assert list(session.marginal_map(query, {"z": {0: 0.2, 1: 0.9}}).state) == [1, "z"]  # a likelihood leaves it open
    assert list(session.marginal_map(query, {"z": None}).state) == [1, "z"]


VALUES = [
    *(0, 1, 2, -1, 3, True, False, 1.0, 0.0, 0.5, None, float("nan"), object, b"1", ["low"], (0, 1), {0, 1}, {"low"}),
    *("1", "0", "low", " low", "True", "true", "no", "", {"low": 0.5, "1": 0.1, "True": 0}, mm.none_of("low")),
    *(np.int64(1), np.int8(2), np.float64(1), np.bool_(True), np.str_("low"), np.str_("1"), mm.none_of(0)),
]


@pytest.mark.parametrize("variable", [X, Y])
def test_a_value_means_the_same_whatever_was_observed_before(variable):
    """Numbers and names of values that are clear are read at once: as all others are, by the variable's own rule."""
    session, circuit, read_at_once = mm.Session(model()), model(), 0
    column = circuit.index(variable)
    for value in VALUES:
        at_once = circuit._plainly_observed({variable.name: value, "z": 1})
        if at_once is not None:
            assert at_once == {column: variable.value(value), 2: 1}
            assert type(at_once[column]) is int
            read_at_once += 1
        evidence = {variable.name: value}
        assert said(session, ["z"], evidence) == said(mm.Session(model()), ["z"], evidence)
    assert read_at_once == (2 if variable is X else 3)


def test_states_are_told_in_plain_words():
    question = Question(model(), [1, 0], {})
    for state in ([2, 1], np.array([2, 1], dtype=np.int32)):
        told = named(question, state)
        assert told == {"y": "True", 1: 1}
        assert [*map(type, told.values())] == [str, int]
    with pytest.raises(ValueError, match="zip"):
        named(question, [1])


def test_codes_and_numbers_of_evidence_are_arrays_of_their_own():
    a, b = mm.Variable("a"), mm.Variable("b", 0)
    circuit = mm.circuit_of(mm.bernoulli(a, 0.5) * mm.gaussian(b, 0.0, 1.0), [a, b])
    codes, reals = circuit.encoded({0: 1, 1: 2.5})
    assert codes.tolist() == [1, 0]
    assert np.isnan(reals[0])
    assert reals[1] == 2.5
    codes[:], reals[:] = 7, 7.0
    codes, reals = circuit.encoded({})
    assert codes.tolist() == [2, 0]
    assert np.isnan(reals).all()


def test_a_result_with_other_details_is_the_same_otherwise():
    result = mm.marginal_map(model(), ["z"])
    other = result.with_details({"why": "so"})
    assert other == dataclasses.replace(result, details={"why": "so"})
    assert other.details == {"why": "so"} != result.details
    with pytest.raises(dataclasses.FrozenInstanceError):
        other.details = {}


class TestBytes:
    """A session adds up what it keeps where that changed, and only there."""

    def test_nothing_is_added_up_where_nothing_grew(self, monkeypatch):
        weighed, whole = [], Memory._forget_some
        monkeypatch.setattr(Memory, "_forget_some", lambda memory: (weighed.append(memory), whole(memory)))
        circuit = large()
        session, (name, *query) = mm.Session(circuit), list(circuit.names)[:4]
        for value in (0, 1, 0, 1):
            session.marginal_map(query, {name: value})
        assert weighed
        weighed.clear()
        for value in (0, 1, 0, 1):
            session.marginal_map(query, {name: value})
        assert not weighed

    def test_values_that_are_made_later_count(self):
        """As those of posteriors, after which no question may come that would look at what is kept."""
        circuit = large()
        session, values = mm.Session(circuit), KeptValues.bytes_of(circuit)
        for name in circuit.names[:3]:
            session.marginal_map([name])
        kept = session.nbytes
        session = mm.Session(circuit, memory=kept + values // 2)
        for name in circuit.names[:3]:
            session.marginal_map([name])
        assert session.nbytes == kept
        assert dict(session.posteriors({})) == dict(mm.posteriors(circuit, {}))
        assert session.nbytes < kept  # one of the questions was forgotten, which takes more than the values

    def test_no_reduction_is_made_that_would_not_stay(self):
        circuit = large()
        room = KeptReduction.bytes_of(circuit)
        for memory, stays in ((room, False), (4 * room + 1_000_000, True)):
            session = mm.Session(circuit, memory=memory)
            assert session.marginal_map([circuit.names[0]]).status == "optimal"
            assert bool(session._memory._reductions) is stays


class TestBlocks:
    """What lasts as long as a question is as it was before, however the question ends."""

    @pytest.mark.parametrize("nested", [False, True])
    @pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN, signal.SIG_DFL, lambda *_: None])
    def test_the_handler_of_ctrl_c(self, handler, nested):
        session, outer = mm.Session(model()), Limits()
        before = signal.signal(signal.SIGINT, handler)
        try:
            with outer.catching_interrupts() if nested else nullcontext():
                expected = signal.getsignal(signal.SIGINT)
                assert (expected is handler) is not nested
                session.marginal_map(["z"])
                assert signal.getsignal(signal.SIGINT) is expected
                with pytest.raises(mm.QueryError):
                    session.marginal_map(["nobody"])
                assert signal.getsignal(signal.SIGINT) is expected
            assert signal.getsignal(signal.SIGINT) is handler
        finally:
            signal.signal(signal.SIGINT, before)

    def test_inside_limits_hear_it_and_only_in_the_main_thread(self):
        limits, before, seen = Limits(), signal.getsignal(signal.SIGINT), []
        with limits.catching_interrupts():
            assert signal.getsignal(signal.SIGINT) is not before
            signal.raise_signal(signal.SIGINT)
        assert limits.interrupted
        assert signal.getsignal(signal.SIGINT) is before

        def elsewhere():
            with Limits().catching_interrupts():
                seen.append(signal.getsignal(signal.SIGINT))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert seen == [before]

    def test_nobody_listens_to_compilation_afterwards(self):
        before = [*jit._listeners.registered]
        with pytest.raises(mm.QueryError):
            mm.Session(model()).marginal_map(["nobody"])
        mm.Session(model()).marginal_map(["z"])
        assert jit._listeners.registered == before
        with Limits().not_counting_compilation():
            assert len(jit._listeners.registered) == len(before) + 1

    def test_the_bar_of_a_notebook_is_taken_away(self, monkeypatch):
        gone = []
        monkeypatch.setattr("margmap.foundation.notebook._display", lambda: print)
        monkeypatch.setattr("margmap.foundation.notebook.Bar.close", lambda bar: gone.append(bar))
        with pytest.raises(mm.QueryError):
            mm.Session(model()).marginal_map(["nobody"])
        assert len(gone) == 1
        with notebook_bar(None) as bar:
            assert len(gone) == 1
        assert gone[1] is bar
        with notebook_bar(print) as told:  # whoever wants to be told needs no bar
            assert told is print
        assert len(gone) == 2
