"""Strudel: what it keeps while it grows, what it returns, and when it stops."""

from __future__ import annotations

import math
import signal
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import event

import margmap as mm
from margmap.learn import chow_liu, learn_strudel, strudel
from margmap.learn import strudel_growth as growing
from margmap.learn.chow_liu_tree import learn_tree
from margmap.learn.decision_circuit import LIVE_ELEMENTS, SINGLES, DecisionCircuit
from margmap.learn.strudel_split import Rule, fill_queue, split_next
from margmap.learn.table import read_tables
from rows_for_learning import closed_form, tangled

PLAIN = {"tries": 1, "min_gain": None, "prior": "uniform"}


def slices(grown: DecisionCircuit) -> dict[int, tuple[list[int], list[int]]]:
    """The rows of every element of a live node."""
    d, found = grown.arrays, {}
    s = grown.compact()
    place = np.repeat(s.place, np.diff(s.start))
    for e, v in zip(s.element.tolist(), place.tolist(), strict=True):
        train, valid = (d.rows[v, d.at[part, e] : d.at[part, e] + d.n[part, e]] for part in range(2))
        found[e] = (sorted(train.tolist()), sorted(valid.tolist()))
    return found


@given(
    seed=st.integers(0, 1000),
    values=st.integers(2, 3),
    depth=st.integers(0, 3),
    inherit=st.booleans(),
    random=st.booleans(),
    splits=st.integers(1, 40),
)
@settings(max_examples=25)
def test_what_is_kept_equals_a_new_count_of_everything(
    seed: int, values: int, depth: int, inherit: bool, random: bool, splits: int
) -> None:
    rows = tangled(70, 6, values, seed)
    table, valid = read_tables(rows[:50], rows[50:])
    grown = DecisionCircuit.from_tree(table, valid, learn_tree(table), 0.8, "balanced", inherit)
    grown.reserve(50_000, 50_000, 100_000)
    grown.arrays.random[0] = seed + 1
    d = grown.arrays
    rule = Rule(random, random, 2, depth, 1.0, 3.0, inherit, 2, -np.inf)
    fill_queue(d, rule)
    split_next(d, rule, splits, 1 << 40, np.zeros(3, dtype=np.int64))
    kept, tally, size = slices(grown), d.tally.copy(), d.size.copy()
    assert not d.mark.any()
    refs = d.refs[: int(size[0])].copy()

    grown.assign_rows()
    assert slices(grown) == kept
    assert d.tally == pytest.approx(tally, abs=1e-9)
    s = grown.compact()
    sizes = np.diff(s.start)
    inner = d.left[s.place] >= 0
    counted = np.zeros(refs.size, dtype=np.int64)
    pair = np.repeat(inner, sizes)
    np.add.at(counted, s.prime[pair], 1)
    np.add.at(counted, s.sub[pair], 1)
    counted[grown.root] += 1
    counted[d.literal[: refs.size] >= 0] += 1
    assert counted[s.node].tolist() == refs[s.node].tolist()
    assert int(size[LIVE_ELEMENTS]) == int(sizes[inner].sum())
    assert int(size[SINGLES]) == int((inner & (sizes == 1)).sum())

    circuit = grown.circuit()
    assert circuit.properties[:5] == (True,) * 5
    assert mm.log_marginal(circuit) == pytest.approx(0, abs=1e-9)
    train, validation = grown.mean_log_likelihoods
    assert mm.log_likelihood(circuit, rows[:50]).mean() == pytest.approx(train)
    assert mm.log_likelihood(circuit, rows[50:]).mean() == pytest.approx(validation)
    assert circuit.num_edges <= grown.edges


@pytest.mark.parametrize("values", [2, 3])
def test_parameters_are_closed_form_of_the_counts(values: int) -> None:
    rows = tangled(60, 6, values, seed=4)
    circuit = strudel(rows, iterations=12, pseudocount=0.9, **PLAIN)
    assert circuit.num_edges > chow_liu(rows).num_edges
    weights, params = closed_form(circuit, rows, 0.9)
    below_sum = np.repeat(circuit.kind, np.diff(circuit.start)) == 6
    assert np.exp(circuit.log_weight[below_sum]) == pytest.approx(weights[below_sum])
    # Products are shared between sums; a leaf with one parent sum still has the counts of its own rows only.
    leaf = np.repeat(np.isin(circuit.kind, (1, 2)), np.diff(circuit.param_start))
    assert np.exp(circuit.param[leaf]) == pytest.approx(params[leaf])


@pytest.mark.parametrize("options", [{}, PLAIN, {"pick_edge": "random", "pick_variable": "random", "min_gain": None}])
def test_a_run_improves_and_is_what_it_says(options: dict[str, object]) -> None:
    rows = tangled(1500, 12, seed=7)
    train, valid = rows[:1200], rows[1200:]
    run = learn_strudel(train, valid, patience=100, iterations=400, **options)
    assert run.circuit.properties[:5] == (True,) * 5
    for progress, data in ((run.best.train, train), (run.best.valid, valid)):
        assert mm.log_likelihood(run.circuit, data).mean() == pytest.approx(progress, abs=1e-9)
    assert run.best.valid == max(p.valid for p in run.history)
    assert run.best.valid > mm.log_likelihood(chow_liu(train), valid).mean() + 0.05
    assert run.circuit.num_edges <= run.best.edges


def test_the_heuristics_beat_random_choices() -> None:
    rows = tangled(2000, 14, seed=11)
    train, valid, test = rows[:1400], rows[1400:1700], rows[1700:]

    def mean(**options: object) -> float:
        return float(mm.log_likelihood(strudel(train, valid, iterations=60, **options), test).mean())

    chosen = mean(tries=1, min_gain=None)
    assert chosen > mean(tries=1, min_gain=None, pick_edge="random", pick_variable="random", seed=1)
    assert mean() > chosen


def test_the_seed_decides() -> None:
    rows = tangled(300, 8, seed=3)
    options = {"iterations": 20, "pick_edge": "random", "pick_variable": "random", "min_gain": None}
    one, again, other = (strudel(rows, seed=seed, **options) for seed in (1, 1, 2))
    for name in ("kind", "start", "child", "log_weight", "var", "param"):
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert one.num_nodes != other.num_nodes or not np.array_equal(one.log_weight, other.log_weight)


def test_the_number_of_kernel_calls_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tangled(300, 8, seed=3)
    one = strudel(rows[:200], rows[200:], patience=100, **PLAIN)
    monkeypatch.setattr(growing, "_SLICE", 0.0)
    two = strudel(rows[:200], rows[200:], patience=100, **PLAIN)
    assert np.array_equal(one.child, two.child)
    assert np.array_equal(one.log_weight, two.log_weight)


def test_every_way_to_stop() -> None:
    rows = tangled(400, 10, seed=5)
    train, valid = rows[:300], rows[300:]
    assert learn_strudel(train, iterations=7, min_gain=None).last.iteration == 7
    assert learn_strudel(train, iterations=7, min_gain=None).reason == "iterations"
    assert learn_strudel(train, iterations=0).circuit.num_edges == chow_liu(train).num_edges
    with pytest.warns(mm.learn.NoSplitWarning):
        assert learn_strudel(train, time_limit=0.0).reason == "time_limit"
    full = learn_strudel(train, max_edges=500, **PLAIN)
    assert full.reason == "max_edges"
    assert 500 <= full.last.edges < 900
    few = learn_strudel(train, valid, patience=30, prior="uniform", pseudocount=0.01, tries=1, min_gain=None)
    assert few.reason == "patience"
    assert few.last.iteration > few.best.iteration + 30
    assert few.last.valid < few.best.valid
    assert learn_strudel(rows[:30], patience=None).reason == "exhausted"


def test_compilation_does_not_count_against_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is compiled for longer than the limit, as on a new machine: the run goes on after it."""
    rows, real, times = tangled(400, 10, seed=5), growing.split_next, []

    def compiled_first(*args: object) -> object:
        if not times:
            with event.trigger_event("numba:compile"):
                time.sleep(0.6)
        times.append(time.perf_counter())
        return real(*args)

    learn_strudel(rows, iterations=1, min_gain=None)  # whatever there really is to compile
    monkeypatch.setattr(growing, "split_next", compiled_first)
    run = learn_strudel(rows, time_limit=0.5, iterations=3, min_gain=None)
    assert (run.reason, run.last.iteration) == ("iterations", 3)
    assert run.last.seconds < 0.5


@pytest.mark.parametrize("reason", ["time_limit", "interrupted", "max_edges"])
def test_a_stop_before_the_first_split_is_told(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_args: object) -> int:
        if reason == "interrupted":
            raise KeyboardInterrupt
        return -1

    monkeypatch.setattr(growing, "split_next", nothing)
    rows = tangled(100, 5, seed=5)
    limits = {"time_limit": {"time_limit": 0.0}, "interrupted": {}, "max_edges": {"max_edges": 1}}[reason]
    with pytest.warns(mm.learn.NoSplitWarning, match=rf"stopped \({reason.replace('_', ' ')}\) before the first split"):
        run = learn_strudel(rows, **limits)
    assert run.reason == reason
    assert run.circuit.num_edges == chow_liu(rows).num_edges
    with pytest.warns(mm.learn.NoSplitWarning):
        strudel(rows, **limits)


def test_ctrl_c_ends_after_the_kernel_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, real = tangled(400, 10, seed=5), growing.split_next
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def grow(*args: object) -> object:
        code = real(*args)
        if args[0].size[growing.SPLITS] >= 5:
            signal.raise_signal(signal.SIGINT)
        return code

    monkeypatch.setattr(growing, "split_next", grow)
    try:
        run = learn_strudel(rows, min_gain=None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.reason == "interrupted"
    assert run.last.iteration >= 5
    assert run.circuit.properties[:5] == (True,) * 5


def test_ctrl_c_returns_the_best_so_far() -> None:
    rows = tangled(400, 10, seed=5)
    seen = []

    def stop(now: growing.Growth) -> None:
        seen.append(now)
        if now.iteration >= 5:
            raise KeyboardInterrupt

    run = learn_strudel(rows[:300], rows[300:], on_progress=stop, min_gain=None)
    assert run.reason == "interrupted"
    assert run.circuit.properties[:5] == (True,) * 5
    assert mm.log_likelihood(run.circuit, rows[300:]).mean() == pytest.approx(run.best.valid)
    alone = learn_strudel(rows[:300], on_progress=stop, min_gain=None)
    assert mm.log_likelihood(alone.circuit, rows[:300]).mean() == pytest.approx(alone.last.train)


@pytest.mark.parametrize("suffix", ["psdd", "json", "jpc.gz"])
def test_resume_from_a_file_goes_on_where_it_was(suffix: str, tmp_path) -> None:
    rows = tangled(400, 9, seed=6)
    first = learn_strudel(rows, iterations=15, **PLAIN)
    mm.save(first.circuit, tmp_path / f"model.{suffix}")
    loaded = mm.load(tmp_path / f"model.{suffix}")
    same = learn_strudel(rows, resume=loaded, iterations=0, **PLAIN)
    assert same.last.train == pytest.approx(first.last.train)
    assert same.circuit.num_edges == first.circuit.num_edges
    more = learn_strudel(rows, resume=loaded, iterations=15, **PLAIN)
    assert more.last.train > first.last.train
    assert more.circuit.properties[:5] == (True,) * 5


def test_resume_refuses_what_it_cannot_take_up() -> None:
    rows = tangled(50, 3, seed=6)
    x, y, z = (mm.Variable(i) for i in (1, 2, 3))
    flat = mm.circuit_of(mm.bernoulli(x, 0.5) * mm.bernoulli(y, 0.5) * mm.bernoulli(z, 0.5))
    with pytest.raises(mm.StructureError, match="can be continued"):
        strudel(rows, resume=flat)
    with pytest.raises(mm.DataError, match="3 columns, but the circuit 2"):
        strudel(rows, resume=chow_liu(rows[:, :2]))
    with pytest.raises(mm.DataError, match="out of range 0 to 1"):
        strudel(rows + 1, resume=chow_liu(rows))
    a, b = x[1] * y[1], x[0] * y[0]
    narrow = mm.circuit_of(0.5 * a + 0.5 * b)
    with pytest.raises(mm.DataError, match="probability 0"):
        strudel([[1, 1], [0, 1]], resume=narrow)


def test_small_and_odd_data() -> None:
    for rows in ([[1]], [[0, 1, 1]], [[0, 1]] * 5, [[0, 0], [0, 1], [0, 1]], np.zeros((4, 3), dtype=bool)):
        circuit = strudel(rows, min_gain=None)
        assert circuit.properties[:5] == (True,) * 5
        assert mm.log_marginal(circuit) == pytest.approx(0, abs=1e-12)
    circuit = strudel(tangled(60, 4, 4), min_gain=None, iterations=10)
    assert circuit.properties[:5] == (True,) * 5


def test_pseudocount_zero_keeps_a_likelihood() -> None:
    rows = tangled(200, 6, seed=9)
    run = learn_strudel(rows[:150], rows[150:], pseudocount=0.0, prior="uniform", min_gain=None, tries=1, iterations=30)
    assert math.isfinite(run.best.valid)
    assert mm.log_likelihood(run.circuit, rows[:150]).mean() == pytest.approx(run.best.train)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"tries": 0}, "tries must be at least 1"),
        ({"tries": 1.5}, "tries must be an integer"),
        ({"time_limit": -1.0}, "time_limit must be at least 0"),
        ({"max_edges": 0}, "max_edges must be at least 1"),
        ({"seed": None}, "seed must be an integer"),
        ({"depth": -1}, "depth must be at least 0"),
        ({"pick_edge": "eFlow"}, "pick_edge must be 'eFLOW' or 'random'"),
        ({"prior": "flat"}, "prior must be 'parent' or 'uniform'"),
        ({"strength": float("inf")}, "strength must be at least 0"),
    ],
)
def test_bad_options(option: dict[str, object], message: str) -> None:
    with pytest.raises(mm.DataError, match=message):
        strudel([[0, 1], [1, 0]], **option)


def test_on_a_slice_of_a_public_dataset(shared) -> None:
    train, valid, test = mm.learn.load_dataset("nltcs", shared / "debd")
    run = learn_strudel(train[:4000], valid, tries=4)
    assert run.circuit.properties[:5] == (True,) * 5
    assert mm.log_likelihood(run.circuit, test).mean() > -6.15
    assert mm.log_likelihood(chow_liu(train), test).mean() == pytest.approx(-6.7591, abs=1e-3)


def test_resume_from_the_circuit_of_another_learner(shared) -> None:
    train, valid, test = mm.learn.load_dataset("nltcs", shared / "debd")
    other = mm.load(shared / "psdd" / "nltcs.psdd.gz", "psdd")
    run = learn_strudel(train, valid, resume=other, iterations=5)
    assert run.circuit.properties[:5] == (True,) * 5
    assert mm.log_likelihood(run.circuit, test).mean() == pytest.approx(mm.log_likelihood(other, test).mean(), abs=0.01)
