"""One query on many cores: the same optimum, as proven, whatever happens to tasks and workers."""

import itertools
import math
import os
import signal
import threading
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

import margmap as mm
from counts import cases
from margmap.distribute.executors import Kept, Processes
from margmap.foundation.limits import Limits, Stopped
from margmap.solve import share_query as parallel
from problems import SORTS, STRUCTURED, check_bounds, check_optimal, coins, hard, make


class Here(Executor):
    """Calls at once, in this process; after the first, "a worker dies" every so often, or knows nothing yet."""

    def __init__(self, seed=0, deaths=0.0, forgetful=0.0):
        self.rng = np.random.default_rng(seed)
        self.deaths, self.forgetful = deaths, forgetful
        self.calls = self.died = self.packed = 0

    def submit(self, fn, /, *args):
        self.calls += 1
        future = Future()
        if self.calls > 1 and self.rng.random() < self.deaths:
            self.died += 1
            future.set_exception(BrokenExecutor("the worker is gone"))
            return future
        if self.rng.random() < self.forgetful:
            known, parallel._works = parallel._works, Kept(parallel.Work)
            self.packed += args[1] is not None
            future.set_result(fn(*args))
            parallel._works = known
        else:
            future.set_result(fn(*args))
        return future


def several(sort, seeds, times):
    """Each problem several times, with a number that is always another."""
    for seed in seeds:
        p = make(sort, seed)
        for i in range(times):
            yield p, 100 * seed + i


@pytest.fixture
def cut_short(monkeypatch):
    """Nothing is done alone, and workers are stopped at random moments: subproblems of subproblems come back."""
    rng = np.random.default_rng(0)

    class Short(Limits):
        def check(self):
            if rng.random() < 0.4:
                raise Stopped(("time_limit", "memory_limit")[int(rng.integers(2))])

    monkeypatch.setattr(parallel, "Limits", Short)
    monkeypatch.setattr(parallel, "FIRST_SECONDS", -1.0)


@pytest.mark.parametrize("sort", SORTS)
def test_equals_enumeration(sort, cut_short):
    shared = 0
    for p, number in several(sort, range(7000, 7000 + cases(6)), 6):
        executor = Here(number)
        method = "branch" if sort in STRUCTURED and number % 2 else "auto"
        r = mm.marginal_map(p.circuit, p.query, p.evidence, method, executor=executor)
        check_optimal(p, r)
        if sort in STRUCTURED:
            assert r.method == ("frontier" if method == "auto" else "branch")
        shared += executor.calls > 1
    if "deterministic" not in sort:  # there the first bound is that of a state, and nothing is left to share
        assert shared > (5 if sort in ("coins", "dense", "dense, unstructured", "partitions") else 0)


@pytest.mark.parametrize("sort", ["coins", "dense", "latent tree, many values", "partitions", "dense, unstructured"])
def test_dead_and_new_workers(sort, cut_short):
    died = packed = 0
    for p, number in several(sort, range(7100, 7100 + cases(6)), 4):
        executor = Here(number, deaths=0.2, forgetful=0.5)
        method = "branch" if sort in STRUCTURED and number % 2 else "auto"  # one sweep may be enough for a small one
        r = mm.marginal_map(p.circuit, p.query, p.evidence, method, executor=executor)
        check_bounds(p, r)
        assert r.status in ("optimal", "memory_limit")  # what died three times is left open
        if r.status == "optimal":
            check_optimal(p, r)
        assert r.details["worker_deaths"] <= executor.died
        died, packed = died + executor.died, packed + executor.packed
    assert died > 0
    assert packed > 0


def test_what_kills_every_worker_is_left_open_and_bounded(cut_short):
    class Poisoned(Here):
        def submit(self, fn, /, *args):
            if self.calls and any((0, 1) in part.fixed for part in args[2]):
                future = Future()
                future.set_exception(BrokenExecutor("the worker is gone"))
                return future
            return super().submit(fn, *args)

    left_open = 0
    for p, number in several("coins", range(7200, 7215), 4):
        r = mm.marginal_map(p.circuit, p.query, p.evidence, executor=Poisoned(number))
        check_bounds(p, r)
        assert (r.status == "optimal") == (r.gap <= 1e-9)
        left_open += r.status == "memory_limit"
    assert left_open > 0


def test_workers_that_never_answer():
    class Dead(Here):
        def submit(self, fn, /, *args):
            self.calls += 1
            return super().submit(fn, *args)

    with pytest.raises(mm.MargmapError, match="all worker processes die before they do anything"):
        mm.marginal_map(hard(), None, executor=Dead(deaths=1.0), time_limit=30)


def test_stopped_at_every_moment_the_bounds_hold(cut_short, monkeypatch):
    stops = 0
    for sort in ("coins", "partitions", "dense, unstructured", "latent tree"):
        for seed in range(7300, 7306):
            p = make(sort, seed)
            for moment in range(1, 40):
                asked = itertools.count(1)

                def check(_limits, asked=asked, moment=moment):
                    if next(asked) >= moment:
                        raise Stopped("interrupted")

                monkeypatch.setattr(Limits, "check", check)
                r = mm.marginal_map(p.circuit, p.query, p.evidence, executor=Here(seed))
                check_bounds(p, r)
                assert r.status in ("optimal", "interrupted")
                if r.status == "optimal":
                    break
                stops += 1
    assert stops > 50


def test_threads(cut_short):
    with ThreadPoolExecutor(3) as executor:
        for sort in ("coins", "partitions", "many values, unstructured"):
            for seed in range(7400, 7420):
                p = make(sort, seed)
                check_optimal(p, mm.marginal_map(p.circuit, p.query, p.evidence, executor=executor))


def test_a_wider_gap_is_enough_if_asked_for(cut_short):
    for seed in range(7500, 7530):
        p = make("coins", seed)
        r = mm.marginal_map(p.circuit, p.query, p.evidence, executor=Here(seed), gap=0.3)
        check_bounds(p, r)
        assert r.status == "optimal"
        assert r.gap <= 0.3


def test_time_limit_and_ctrl_c():
    r = mm.marginal_map(hard(), None, time_limit=1.6, executor=Here())
    assert r.status == "time_limit"
    assert r.details["tasks"] > 0
    assert -math.inf < r.log_prob < r.log_upper < 0
    alone = mm.marginal_map(hard(), None, time_limit=0.2)
    assert r.log_upper <= alone.log_upper + 1e-9
    with ThreadPoolExecutor(1) as executor:
        timer = threading.Timer(1.5, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        r = mm.marginal_map(hard(), None, executor=executor)
        timer.join()
    assert r.status == "interrupted"
    assert -math.inf < r.log_prob < r.log_upper < 0


class TestProcesses:
    def test_same_answer_and_dead_workers(self, monkeypatch):
        """Real processes; one of them is killed as soon as it works."""
        monkeypatch.setattr(parallel, "FIRST_SECONDS", 0.01)
        monkeypatch.setattr(parallel, "SHORT_SECONDS", 0.02)
        c = coins(np.random.default_rng(3), 20, 10, 0.15)
        expected = mm.marginal_map(c, None, method="branch")
        assert expected.status == "optimal"
        for _ in range(5):  # on a busy machine all may be done before the process is dead
            r = self.solve_while_one_is_killed(c, monkeypatch)
            assert (r.status, r.state) == ("optimal", expected.state)
            assert r.log_prob == expected.log_prob
            assert r.log_prob <= r.log_upper <= r.log_prob + 1e-9
            if r.details["worker_deaths"] > 0:
                return
        pytest.fail("no worker died while there was work")

    def solve_while_one_is_killed(self, circuit, monkeypatch):
        processes = Processes(2)
        try:
            answered, over, submit = threading.Event(), threading.Event(), processes.submit

            def noting(*args):
                future = submit(*args)
                future.add_done_callback(lambda _: answered.set())
                return future

            def kill():
                if answered.wait(20) and not over.is_set():
                    os.kill(next(iter(processes._pool._processes)), signal.SIGKILL)

            monkeypatch.setattr(processes, "submit", noting)
            thread = threading.Thread(target=kill)
            thread.start()
            r = mm.marginal_map(circuit, None, method="branch", executor=processes)
            over.set()
            answered.set()
            thread.join()
        finally:
            processes.kill()
        return r

    def test_jobs(self, monkeypatch):
        monkeypatch.setattr(parallel, "FIRST_SECONDS", 0.02)
        c = coins(np.random.default_rng(4), 20, 10, 0.15)
        expected = mm.marginal_map(c, None)
        r = mm.marginal_map(c, None, jobs=2)  # on a busy machine it may be done before the processes are there
        assert (r.status, r.state) == ("optimal", expected.state)
        assert r.log_prob <= r.log_upper <= r.log_prob + 1e-9

    def test_a_query_that_is_done_at_once_starts_none(self, monkeypatch):
        monkeypatch.setattr(parallel, "Processes", None)
        r = mm.marginal_map(coins(np.random.default_rng(0), 8, 3), None, jobs=2)
        assert (r.status, r.details["tasks"]) == ("optimal", 0)


@pytest.mark.parametrize("jobs", [0, -1, True, 1.5, "2"])
def test_bad_jobs(jobs):
    with pytest.raises(mm.QueryError, match=r"jobs=.*number of processes"):
        mm.marginal_map(coins(np.random.default_rng(0)), None, jobs=jobs)


@pytest.mark.parametrize("options", [{"k": 2}, {"method": "brute"}, {"method": "frontier", "width": 8}])
def test_what_one_core_does_alone(options):
    with pytest.raises(mm.QueryError, match="one query on many cores is for auto, frontier, branch"):
        mm.marginal_map(coins(np.random.default_rng(0)), None, jobs=2, **options)


def test_frontier_on_a_circuit_whose_scopes_cross():
    p = next(p for p in (make("partitions", seed) for seed in range(20)) if not p.circuit.properties.structured)
    with pytest.raises(mm.StructureError, match="two scopes of this one cross"):
        mm.marginal_map(p.circuit, None, method="frontier", jobs=2)


def test_an_executor_that_is_none_is_refused():
    with pytest.raises(mm.QueryError, match="executor='local' cannot be given work"):
        mm.marginal_map(mm.load("clinic"), ["illness"], executor="local")
