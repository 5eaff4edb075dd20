"""Limits hold while kernels are interpreted, and work that is too much to interpret is compiled."""

import pytest

import margmap as mm
from margmap.foundation import jit
from problems import hard


def test_an_interpreted_query_stops_at_its_time_limit():
    with jit.forced("interpret"):
        result = mm.marginal_map(hard(), time_limit=0.3)
    assert result.status == "time_limit"
    assert result.state is not None
    assert result.log_upper > result.log_prob
    assert result.details["tier"] == "interpreted"


def test_work_that_turns_out_too_large_is_stopped_and_compiled(monkeypatch):
    circuit = hard(20, 6)
    with jit.forced("compile"):
        expected = mm.marginal_map(circuit)
    monkeypatch.setattr(jit, "PATIENCE", 0.05)
    monkeypatch.setattr(jit, "MOMENT", 1e9)  # nothing but the watch sees how long it takes
    monkeypatch.setattr(jit, "_active", lambda: False)
    monkeypatch.setattr(jit._state, "compiling", False)
    monkeypatch.setattr(jit._state, "interpreted", 0.0)
    with jit.forced("auto"):
        found = mm.marginal_map(circuit)
        assert jit._state.compiling
    assert (found.status, found.state) == (expected.status, expected.state)
    assert found.log_upper == pytest.approx(expected.log_upper, abs=1e-9)
