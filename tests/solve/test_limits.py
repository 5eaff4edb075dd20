"""Limits hold inside of long kernels, against the process, and at real Ctrl-Cs; the bounds are sound whatever stops."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
import naive
from circuits import columns, fixed
from margmap.foundation import limits as limits_module
from margmap.foundation.limits import Limits, Stopped
from margmap.foundation.memory import resident
from margmap.foundation.pairs import log_of
from margmap.network import elimination
from margmap.solve import network_map
from margmap.solve.conditional_bounds import conditional_bounds
from margmap.solve.edge_bounds import edge_bounds
from margmap.solve.methods import methods_for
from margmap.solve.output_bounds import output_bounds, view_of
from margmap.solve.query_circuit import Flat, rebuild
from margmap.solve.reduce import heaviest_state, reduce, reduce_codes
from margmap.solve.regroup import regroup
from margmap.solve.split import split
from margmap.solve.supports import find_supports
from problems import STRUCTURED, check_bounds, check_optimal, coins, hard, latent_tree, make

METHODS = [method.name for method in methods_for("circuit")]

MEGABYTE = 1 << 20
MOMENTS = (1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 22, 30, 45, 70)


def stop_at(monkeypatch, moment, status):
    """Stop the solver when it looks at its limits for the so-manieth time; every kernel counts as a long one."""
    monkeypatch.setattr(limits_module, "QUICK_EDGES", 0)
    left = [moment]

    def check(_limits):
        left[0] -= 1
        if left[0] <= 0:
            raise Stopped(status)

    monkeypatch.setattr(Limits, "check", check)


def test_limits_may_count_what_is_computed_instead_of_what_passes(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(limits_module, "_seconds", limits_module._seconds)  # as it was, afterwards
    monkeypatch.setattr(limits_module.time, "process_time", lambda: now[0])
    limits_module.count_computing()
    limits = Limits(1.0)
    now[0] = 100.9
    limits.check()
    assert limits.clock() - limits.begun == pytest.approx(0.9)
    now[0] = 101.1
    with pytest.raises(Stopped, match="time_limit"):
        limits.check()


@pytest.mark.parametrize("method", METHODS)
def test_stopped_inside_of_any_kernel_the_bounds_hold(method, monkeypatch):
    stops = 0
    for sort in ("coins", "dense", "latent tree, many values", "partitions", "dense, unstructured"):
        if method == "frontier" and sort not in STRUCTURED:
            continue
        p = make(sort, 5000)
        for moment in MOMENTS:
            stop_at(monkeypatch, moment, "memory_limit")
            r = mm.marginal_map(p.circuit, p.query, p.evidence, method)
            check_bounds(p, r)
            if r.status == "optimal":
                check_optimal(p, r)
                break
            assert r.status == "memory_limit"
            stops += 1
    assert stops > 8


@pytest.mark.parametrize("method", ["frontier", "branch", "brute"])
def test_stopped_inside_of_any_kernel_the_k_best(method, monkeypatch):
    for sort in ("coins", "dense"):
        p = make(sort, 5001)
        for moment in MOMENTS:
            stop_at(monkeypatch, moment, "interrupted")
            r = mm.marginal_map(p.circuit, p.query, p.evidence, method, k=3)
            check_bounds(p, r)
            assert r.status in ("optimal", "interrupted")


def test_stopped_before_there_is_a_state(monkeypatch):
    """One pass over the circuit as given has a possible state, and p(e) bounds all states."""
    for sort in ("coins", "with continuous", "many values, unstructured", "laminar"):
        for seed in range(5100, 5110):
            p = make(sort, seed)
            stop_at(monkeypatch, 1, "time_limit")
            r = mm.marginal_map(p.circuit, p.query, p.evidence)
            check_bounds(p, r)
            assert r.log_prob > -math.inf
            log_evidence = naive.log(naive.probability(p.circuit, fixed(p.circuit, p.evidence)))
            assert r.log_upper == pytest.approx(max(r.log_prob, log_evidence), abs=1e-9)
            codes, reals = p.circuit.evidence_codes(p.evidence)
            state, p_evidence = heaviest_state(p.circuit, columns(p.circuit, p.query), codes, reals)
            assert tuple(state.tolist()) == p.codes(r.state)
            assert log_of(*p_evidence) == pytest.approx(log_evidence, abs=1e-9)


def test_impossible_evidence_is_refused_also_when_stopped(monkeypatch):
    a = mm.Variable("a")
    c = mm.circuit_of(mm.bernoulli(a, 0.3) * mm.Variable("b")[0])
    stop_at(monkeypatch, 1, "time_limit")
    with pytest.raises(mm.ImpossibleEvidenceError):
        mm.marginal_map(c, ["a"], {"b": 1})


def test_a_kernel_whose_flag_is_set_does_nothing():
    circuit = latent_tree(0, variables=12, states=8)
    reduced = reduce(circuit, None)
    flat, cardinality = reduced.flat, reduced.cardinality

    def flagged(work, edges, room=0):
        return work(np.array([1, 0]))

    view = view_of(flat, 0.0, cardinality)
    bounds, everything = view.bounds, np.ones(flat.num_edges, dtype=np.bool_)
    assert view.supports.can.any()
    assert not find_supports(flat, cardinality, flagged).can.any()
    assert (output_bounds(flat, bounds.deterministic, flagged).value == 1).all()
    assert not edge_bounds(flat, bounds, flagged).any()
    asked = np.ones(cardinality.size, dtype=np.bool_)
    assert conditional_bounds(flat, bounds, cardinality, asked).all()
    assert not conditional_bounds(flat, bounds, cardinality, asked, flagged).any()
    empty: list[Flat] = [
        rebuild(flat, everything, flagged)[0],
        regroup(flat, view.supports, bounds.deterministic, flagged)[0],
        split(flat, 0, view.supports, flagged)[0],
        reduce_codes(circuit, list(range(12)), *circuit.evidence_codes({}), flagged).flat,
    ]
    assert [part.num_edges for part in empty] == [0, 0, 0, 0]


class TestMemory:
    def growth(self, work):
        """What the work returns, and the largest growth of the process seen meanwhile, in bytes."""
        before, most, done = resident(), [0], threading.Event()

        def watch():
            while not done.wait(0.002):
                most[0] = max(most[0], resident() - before)

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            answer = work()
        finally:
            done.set()
            thread.join()
        return answer, most[0]

    @pytest.mark.parametrize("method", ["frontier", "iterative", "branch"])
    def test_the_process_grows_by_no_more(self, method):
        big = latent_tree(0, variables=60, states=64, concentration=0.5) if method != "frontier" else hard()
        ask = partial(mm.marginal_map, big, None, method=method, time_limit=3)
        ask(memory_limit=MEGABYTE)  # kernels are loaded, and the circuit has what it keeps
        r, most = self.growth(partial(ask, memory_limit=60 * MEGABYTE))
        assert most <= 90 * MEGABYTE
        assert r.log_prob == pytest.approx(mm.log_marginal(big, r.state), rel=1e-12)
        assert r.log_prob <= r.log_upper
        assert r.status in ("memory_limit", "time_limit", "optimal")
        assert (r.status == "optimal") == (r.gap <= 1e-9)

    def test_what_would_not_fit_is_not_begun(self):
        big = latent_tree(0, variables=60, states=64)
        mm.marginal_map(big, None, time_limit=0.01)
        r, most = self.growth(partial(mm.marginal_map, big, None, method="branch", memory_limit=2 * MEGABYTE))
        assert r.status == "memory_limit"
        assert set(r.details) == {"bounds", "tier"}  # not even reduced
        assert most <= 30 * MEGABYTE
        assert -math.inf < r.log_prob <= r.log_upper

    def test_allow(self):
        limits = Limits(memory_limit=50 * MEGABYTE)
        limits.allow(40 * MEGABYTE)
        with pytest.raises(Stopped, match="memory_limit"):
            limits.allow(51 * MEGABYTE)
        with pytest.raises(Stopped, match="memory_limit"):
            limits.run(lambda stop: None, 10, 51 * MEGABYTE)
        with pytest.raises(Stopped, match="memory_limit"):
            limits.until(math.inf).run(lambda stop: None, 10, 51 * MEGABYTE)
        Limits().allow(60 * MEGABYTE)  # nothing was asked for
        with pytest.raises(Stopped, match="memory_limit"):
            Limits().allow(1 << 50)  # but no machine has that much

    def test_check_sees_the_process_grow(self):
        limits = Limits(memory_limit=20 * MEGABYTE)
        limits.check()
        held = np.ones(400 * MEGABYTE // 8)  # far more than whatever else the process may give back meanwhile
        time.sleep(2 * limits_module.MEMORY_SECONDS)
        with pytest.raises(Stopped, match="memory_limit"):
            limits.check()
        del held

    def test_where_the_system_does_not_tell(self, monkeypatch):
        def missing(*_args):
            raise FileNotFoundError

        monkeypatch.setattr("builtins.open", missing)
        most = resident()
        monkeypatch.undo()
        assert most >= 0.5 * resident() > MEGABYTE


def test_run_gives_back_errors_and_results():
    limits = Limits()
    assert limits.run(lambda stop: int(stop[0]) + 7) == 7

    def failing(_stop):
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        limits.run(failing)
    with pytest.raises(ValueError, match="inside"):
        limits.run(failing, 1)


def test_run_sets_the_flag_when_time_is_over():
    seen = []

    def slow(stop):
        while stop[0] == 0:
            time.sleep(0.001)
        seen.append(True)

    with pytest.raises(Stopped, match="time_limit"):
        Limits(0.05).run(slow)
    assert seen == [True]  # its end was waited for
    limits = Limits(0.05)
    limits.reserve(10.0)
    assert 0 < limits.deadline - limits.clock() <= 0.025
    assert not limits.late(0.1)


CHILD = """
    import json, sys
    sys.path[:0] = {path!r}
    from problems import hard, coins
    import numpy as np
    import margmap as mm
    circuits = {{"brute": coins(np.random.default_rng(1), 24, 300, 0.3)}}
    for method in {methods!r}:
        circuit = circuits.get(method, hard())
        mm.marginal_map(circuit, None, method=method, time_limit=0.3)
        print("begins", flush=True)
        try:
            r = mm.marginal_map(circuit, None, method=method)
            print(json.dumps([method, r.status, r.log_prob, r.log_upper]), flush=True)
        except KeyboardInterrupt:
            print(json.dumps([method, "KeyboardInterrupt", 0, 0]), flush=True)
"""


def interrupt(methods, times):
    """The answers of a process that gets real Ctrl-Cs, one or two to each question."""
    here = Path(__file__).resolve().parent
    script = textwrap.dedent(CHILD).format(path=[str(here.parent / "support"), str(here.parent)], methods=methods)
    answers = []
    env = {**os.environ, "MARGMAP_TIER": "compile"}  # so that there is a bound after a moment
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=env) as process:
        killer = threading.Timer(120, process.kill)
        killer.start()
        for _ in methods:
            assert process.stdout.readline() == "begins\n"
            time.sleep(0.4)
            process.send_signal(signal.SIGINT)
            if times == 2:
                process.send_signal(signal.SIGINT)  # may melt into the first, so again, until it has ended
                time.sleep(0.05)
                process.send_signal(signal.SIGINT)
            answers.append(json.loads(process.stdout.readline()))
        killer.cancel()
    return answers


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to send")
class TestCtrlC:
    def test_once_returns_what_is_known(self):
        methods = [method for method in METHODS if method != "search"]
        for method, status, log_prob, log_upper in interrupt(methods, 1):
            assert status == "interrupted", method
            assert -math.inf < log_prob <= log_upper < 0

    def test_twice_stops(self):
        answers = interrupt(["frontier", "branch"], 2)
        # Where the solver came to its end between the two, the first has its answer, as it should.
        assert {status for _, status, _, _ in answers} <= {"KeyboardInterrupt", "interrupted"}
        assert len(answers) == 2

    def test_twice_while_a_kernel_runs(self):
        """The kernel is told to stop, its thread ends, and KeyboardInterrupt arrives."""
        ended = []

        def kernel(stop):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.1)
            signal.raise_signal(signal.SIGINT)
            while stop[0] == 0:
                time.sleep(0.001)
            ended.append(True)

        limits = Limits()
        limits.check = lambda: None  # so that the first one does not end it
        with pytest.raises(KeyboardInterrupt), limits.catching_interrupts():
            limits.run(kernel)
        assert ended == [True]


def test_a_circuit_that_is_not_ready_in_time_has_no_state(monkeypatch):
    monkeypatch.setattr("margmap.solve.marginal_map.LARGE", 0)
    monkeypatch.setattr("margmap.solve.marginal_map.GRACE", 0.0)
    r = mm.marginal_map(hard(), None, time_limit=1e-9)
    assert (r.status, r.state, r.log_prob, r.log_upper) == ("time_limit", None, -math.inf, math.inf)
    assert str(r).startswith("no state yet: stopped (time limit) before one was found\n")


def test_a_wrong_name_is_told_before_the_work(monkeypatch):
    monkeypatch.setattr(
        "margmap.solve.marginal_map.require_tractable", lambda _circuit: pytest.fail("it began to work")
    )
    with pytest.raises(mm.QueryError, match="unknown variable 'nobody'"):
        mm.marginal_map(hard(), ["nobody"])
    with pytest.raises(mm.QueryError, match="unknown variable 'nobody'"):
        mm.marginal_map(hard(), None, {"nobody": 1})


class TestNetworks:
    def network(self):
        rng = np.random.default_rng(0)
        variables = [mm.Variable(i) for i in range(14)]
        factors = [([0], [0.5, 0.5]), ([0, 1], rng.dirichlet([1, 1], 2))]
        factors += [([i - 2, i - 1, i], rng.dirichlet([1, 1], 4)) for i in range(2, 14)]
        return mm.Network(variables, factors)

    @pytest.mark.parametrize("method", ["auto", "elimination", "frontier"])
    def test_before_there_is_a_state(self, method, monkeypatch):
        for status in ("time_limit", "memory_limit", "interrupted"):
            monkeypatch.setattr(Limits, "check", lambda _limits, status=status: (_ for _ in ()).throw(Stopped(status)))
            r = mm.marginal_map(self.network(), [3, 7], {1: 0}, method, time_limit=5)
            assert (r.status, r.state, r.top, r.log_prob, r.log_upper) == (status, None, (), -math.inf, 0.0)
            assert json.loads(json.dumps(r.to_dict(), allow_nan=False))["gap"] is None
            assert f"no state yet: stopped ({status.replace('_', ' ')})" in str(r)

    @pytest.mark.parametrize("step", ["Problem", "plans", "compile_planned", "log_tables"])
    def test_no_step_is_waited_for(self, step, monkeypatch):
        """Each step takes for ever, and the time limit ends it: it is given up, however slow it is to notice.

        Once the problem is known, there is a state all the same, which the search finds past the limit.
        """
        best = mm.marginal_map(self.network(), [3, 7], {1: 0}).log_prob
        module = elimination if step == "log_tables" else network_map
        forever, waited_for, real = threading.Event(), threading.Event(), getattr(module, step)

        def slow(*args, **options):
            forever.wait(60)
            waited_for.set()
            return real(*args, **options)

        monkeypatch.setattr(module, step, slow)
        r = mm.marginal_map(
            self.network(), [3, 7], {1: 0}, "frontier" if step == "compile_planned" else "auto", time_limit=0.3
        )
        assert not waited_for.is_set()
        forever.set()
        assert r.status == "time_limit"
        assert (r.state is None) == (step == "Problem")
        assert r.log_prob <= best + 1e-9
        assert r.log_upper >= best - 1e-9

    def test_memory(self, monkeypatch):
        monkeypatch.setattr(limits_module, "QUICK_BYTES", 0)
        monkeypatch.setattr(limits_module, "resident", lambda: 0)  # the system may take memory back meanwhile
        best = mm.marginal_map(self.network(), [3, 7], {1: 0}).log_prob
        r = mm.marginal_map(self.network(), [3, 7], {1: 0}, memory_limit=10)
        assert r.status == "memory_limit"
        assert r.state is not None, "one state needs next to no memory"
        assert r.log_prob <= best + 1e-9
        assert r.log_upper >= best - 1e-9

    @pytest.mark.parametrize("method", ["auto", "elimination", "frontier", "branch"])
    def test_generous_limits_change_nothing(self, method):
        expected = mm.marginal_map(self.network(), [3, 7, 9], {1: 0})
        r = mm.marginal_map(self.network(), [3, 7, 9], {1: 0}, method, time_limit=60, memory_limit=1 << 30)
        assert (r.status, r.state) == ("optimal", expected.state)
        assert r.log_prob == pytest.approx(expected.log_prob, rel=1e-12)
        assert 0 < r.seconds < 60


@pytest.mark.parametrize("method", METHODS)
def test_gap(method):
    """A gap that was asked for is enough, is kept, and the bound holds."""
    for seed in range(5200, 5210):
        p = make("coins", seed)
        for gap in (0.0, 0.05, 0.5, 3.0):
            r = mm.marginal_map(p.circuit, p.query, p.evidence, method, gap=gap)
            check_bounds(p, r)
            assert r.status == "optimal"
            assert r.gap <= max(gap, 1e-9)
    c = coins(np.random.default_rng(5), 12, 8, spread=0.2)
    exact = mm.marginal_map(c, None, method=method)
    assert mm.marginal_map(c, None, method=method, gap=10.0).log_prob <= exact.log_upper
