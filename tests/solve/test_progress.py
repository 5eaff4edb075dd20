"""What ``on_progress`` is told by every method: bounds that hold and close, states that are worth what is said."""

import itertools
import math
import threading

import numpy as np
import pytest

import margmap as mm
from margmap.foundation.notebook import Bar, closed_part, notebook_bar
from margmap.foundation.progress import MOST_MOMENTS, Teller
from margmap.network.network import Network
from margmap.solve.methods import methods_for
from problems import STRUCTURED, hard, make

ON_CIRCUITS = ["auto", *(method.name for method in methods_for("circuit") if method.takes == "circuit")]
ON_NETWORKS = ["auto", *(method.name for method in methods_for("network"))]


def check_story(seen, result, value_of, optimum):
    """Bounds only close, hold at every moment, and the states are worth what is said; the last is the answer."""
    assert seen
    for before, after in itertools.pairwise(seen):
        assert after.seconds >= before.seconds
        assert after.log_lower >= before.log_lower - 1e-9  # the last one, the result, counts its slack and rounding
        assert after.log_upper <= before.log_upper + 1e-9
    for one in seen:
        assert isinstance(one, mm.Progress)
        assert [type(x) for x in one[:3]] == [float] * 3
        assert isinstance(one.doing, str)
        assert one.doing
        assert one.log_lower <= optimum + 1e-9
        assert one.log_upper >= optimum - 1e-12 * (1 + abs(optimum))
        assert (one.state is None) == (one.log_lower == -math.inf)
        if one.state is not None:
            assert value_of(one.state) == pytest.approx(one.log_lower, abs=1e-9)
    assert seen[-1].state == result.state
    assert (seen[-1].log_lower, seen[-1].log_upper) == (result.log_prob, result.log_upper)
    assert [moment[1:] for moment in result.bounds][-1] == (result.log_prob, result.log_upper)


def ask_and_check(sort, seed, method, **options):
    """One generated problem with its story."""
    problem, seen = make(sort, seed), []
    result = mm.marginal_map(
        problem.circuit, problem.query, problem.evidence, method, on_progress=seen.append, **options
    )
    check_story(
        seen, result, lambda state: mm.log_marginal(problem.circuit, {**problem.evidence, **state}), problem.best
    )


@pytest.mark.parametrize("method", ON_CIRCUITS)
@pytest.mark.parametrize("sort", ["dense", "dense, unstructured", "partitions", "latent tree, many values", "coins"])
def test_every_method_tells_a_true_story_of_circuits(method, sort):
    if method == "frontier" and sort not in STRUCTURED:
        pytest.skip("frontier is for structured circuits")
    for seed in range(7000, 7006):
        ask_and_check(sort, seed, method)


@pytest.mark.parametrize("method", ["auto", "frontier", "branch", "brute"])
def test_the_best_of_several_is_told(method):
    for seed in range(7100, 7106):
        ask_and_check("dense", seed, method, k=3)


def chain(rng, length=7):
    """A Bayesian network in which each variable has the two before it as parents."""
    variables = [mm.Variable(f"v{i}", 2 + i % 2, tuple("abc"[: 2 + i % 2])) for i in range(length)]
    factors = []
    for i in range(length):
        scope = [*range(max(0, i - 2), i), i]
        table = rng.random([variables[j].cardinality for j in scope]) + 0.05
        factors.append((scope, table / table.sum(axis=-1, keepdims=True)))
    return Network(variables, factors)


@pytest.mark.parametrize("method", ON_NETWORKS)
def test_every_method_tells_a_true_story_of_networks(method):
    if method == "wcsp":
        pytest.importorskip("pytoulbar2")
    query, evidence = ["v1", "v3", "v6"], {"v4": "b"}
    for seed in range(3):
        network = chain(np.random.default_rng(seed))
        seen = []
        result = mm.marginal_map(network, query, evidence, method, on_progress=seen.append)
        states = [
            {"v1": a, "v3": b, "v6": c}
            for a in network.variables[1].states
            for b in network.variables[3].states
            for c in network.variables[6].states
        ]
        optimum = max(mm.log_marginal(network, {**evidence, **state}) for state in states)
        check_story(seen, result, lambda state, n=network: mm.log_marginal(n, {**evidence, **state}), optimum)


class Enough(Exception):
    pass


@pytest.mark.parametrize("method", ["auto", "frontier", "iterative", "branch", "search"])
def test_raising_stops_every_method_with_what_is_known(method):
    circuit = hard(26, 12)
    seen = []

    def stop(now):
        seen.append(now)
        if now.seconds > 0.05 and now.state is not None:
            raise Enough("that will do")

    result = mm.marginal_map(circuit, method=method, on_progress=stop, time_limit=60)
    if seen[-1].doing == "done":  # it was quicker than that
        assert result.status == "optimal"
        return
    assert result.status == "interrupted"
    assert result.seconds < 30
    assert result.log_prob >= seen[-1].log_lower - 1e-9
    assert result.log_upper >= result.log_prob
    assert result.details["on_progress"] == "raised Enough: that will do"
    assert len([one for one in seen if one.seconds > 0.05 and one.state is not None]) == 1  # it is not called again


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, mm.QueryError])
@pytest.mark.parametrize("method", ON_NETWORKS)
def test_raising_at_the_first_call_still_gives_a_result(method, error):
    if method == "wcsp":
        pytest.importorskip("pytoulbar2")

    def never(_now):
        raise error("no")

    result = mm.marginal_map(chain(np.random.default_rng(1)), ["v0", "v5"], method=method, on_progress=never)
    assert result.status in ("interrupted", "optimal")
    assert "no" in result.details["on_progress"]


def test_it_is_told_in_the_thread_of_the_call_and_while_nothing_is_new():
    threads = set()
    mm.marginal_map(
        hard(20, 8), method="search", time_limit=0.5, on_progress=lambda _: threads.add(threading.get_ident())
    )
    assert threads == {threading.get_ident()}

    now, seen = [0.0], []
    teller = Teller(seen.append, lambda: now[0])
    teller.know("a", dict, -2.0, -1.0)
    for now[0] in np.arange(0.01, 1.0, 0.01):
        teller.beat()
    assert 9 <= len(seen) <= 11
    other = threading.Thread(target=lambda: teller.beat(0.0))
    other.start()
    other.join()
    assert len(seen) <= 11


def test_many_moments_are_thinned_out():
    now = [0.0]
    teller = Teller(None, lambda: now[0])
    for i in range(3 * MOST_MOMENTS):
        now[0] = float(i)
        teller.know("x", None, -math.inf, -float(i))
    assert len(teller.moments) <= MOST_MOMENTS + 1
    assert teller.moments[0].seconds == 0.0
    assert teller.moments[-1] == (3 * MOST_MOMENTS - 1, -math.inf, -(3.0 * MOST_MOMENTS - 1))
    assert [m.seconds for m in teller.moments] == sorted(m.seconds for m in teller.moments)


def test_only_functions_are_told():
    with pytest.raises(mm.QueryError, match="on_progress=3: give a function"):
        mm.marginal_map(hard(5, 2), on_progress=3)


class Handle:
    def __init__(self, shown):
        self.shown = shown

    def update(self, data, raw):
        assert raw
        self.shown.append(data["text/html"])


def test_a_notebook_shows_a_bar_and_takes_it_away():
    shown = []

    def display(data, raw, display_id):
        shown.append(data["text/html"])
        return Handle(shown)

    bar = Bar(display)
    bar(mm.Progress(0.1, -8.0, -4.0, {"x": 1}, "first state"))
    assert shown == []  # too early
    bar(mm.Progress(1.0, -7.0, -6.0, {"<b>x</b>": 1}, "a <script>"))
    assert 'value="0.7500"' in shown[0]
    assert "-7 &lt;= log p &lt;= -6, gap 1" in shown[0]
    assert "<b>" not in shown[0]
    assert "<script>" not in shown[0]
    bar(mm.Progress(2.0, -6.0, -6.0, {"x": 1}, "done"))
    assert 'value="1.0000"' in shown[1]
    bar.close()
    assert shown[2] == ""
    assert closed_part(mm.Progress(0.0, -math.inf, 0.0, None, ""), math.nan) == 0.0


def test_outside_of_notebooks_there_is_no_bar():
    with notebook_bar(None) as told:
        assert told is None
    with notebook_bar(print) as told:
        assert told is print
