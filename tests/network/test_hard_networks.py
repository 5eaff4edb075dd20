"""Networks too wide to compile, in small: every bound and every state against enumeration."""

import contextlib
import importlib.util
import math
import os
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import margmap as mm
from counts import cases
from margmap.foundation import jit
from margmap.foundation.limits import Limits, Stopped
from margmap.network.and_or import LayeredSearch, search_steps
from margmap.network.anytime import Anytime, Incumbent
from margmap.network.block_search import BlockSearch
from margmap.network.conditioning import Conditioning
from margmap.network.cost_shift import CostShift
from margmap.network.local_search import local_search
from margmap.network.log_model import LogModel, log_model, restricted
from margmap.network.mini_bucket import MiniBuckets, decode, literal_bounds, partition, tightened
from margmap.network.network import Network
from margmap.network.order import MIN_FILL, MIN_WEIGHT, graph_of, interpreted_order
from margmap.network.partial_sum import sum_out_cheap
from margmap.network.relevance import Problem
from margmap.network.scoring import GO_ON, Scorer, outline
from margmap.network.wcsp import Toulbar2, cost_of, costs, prepare, written
from margmap.solve import network_map
from margmap.solve.question import ask

toulbar2 = pytest.mark.skipif(importlib.util.find_spec("pytoulbar2") is None, reason="needs pytoulbar2")


def random_model(seed):
    """Tables over 3 to 7 variables of 2 to 4 values, with zeros and in parts that do not hang together."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 8))
    cardinality = rng.integers(2, 5 if n < 6 else 3, n).tolist()
    variables = [mm.Variable(f"v{i}", k) for i, k in enumerate(cardinality)]
    factors = []
    for _ in range(int(rng.integers(2, 2 * n))):
        scope = rng.choice(n, size=int(rng.integers(1, min(4, n + 1))), replace=False).tolist()
        table = rng.gamma(rng.choice([0.3, 1.0, 3.0]), size=[cardinality[v] for v in scope])
        if rng.random() < 0.4:
            table[rng.random(table.shape) < 0.3] = 0.0
        if rng.random() < 0.2:
            table = (table == table.max(axis=-1, keepdims=True)).astype(float)
        factors.append((scope, table * 10.0 ** rng.integers(-3, 4)))
    observed = {i: int(rng.integers(cardinality[i])) for i in range(n) if rng.random() < 0.15}
    free = [i for i in range(n) if i not in observed]
    asked = [i for i in free if rng.random() < 0.6]
    return Network(variables, factors, "markov"), asked, observed


def random_bayes(seed):
    """A Bayesian network of 3 to 7 variables with zeros, deterministic tables and parts that do not hang together."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 8))
    cardinality = rng.integers(2, 5 if n < 6 else 3, n).tolist()
    variables = [mm.Variable(f"v{i}", k) for i, k in enumerate(cardinality)]
    factors = []
    for i in range(n):
        parents = [j for j in range(i) if rng.random() < 0.5][-3:]
        table = rng.gamma(0.5, size=[cardinality[v] for v in (*parents, i)]) + 1e-9
        kind = rng.random()
        if kind < 0.2:
            table = (table == table.max(axis=-1, keepdims=True)).astype(float)
        elif kind < 0.5:
            table[(rng.random(table.shape) < 0.3) & (table < table.max(axis=-1, keepdims=True))] = 0.0
        factors.append(([*parents, i], table / table.sum(axis=-1, keepdims=True)))
    network = Network(variables, factors, "bayes")
    observed = {i: int(rng.integers(cardinality[i])) for i in range(n) if rng.random() < 0.2}
    asked = [i for i in range(n) if i not in observed and rng.random() < 0.6]
    return network, asked, observed


def values_of(network, asked, observed):
    """The value of every state of the query by adding up the whole table of the network."""
    n = len(network.variables)
    table = np.ones([v.cardinality for v in network.variables])
    for scope, factor in network.factors:
        order = sorted(range(len(scope)), key=lambda i: scope[i])
        shape = [network.variables[v].cardinality if v in scope else 1 for v in range(n)]
        table = table * factor.transpose(order).reshape(shape)
    for column, code in observed.items():
        keep = np.zeros(table.shape[column])
        keep[code] = 1
        table = table * keep.reshape([-1 if v == column else 1 for v in range(n)])
    return table.sum(axis=tuple(v for v in range(n) if v not in asked))


def instance(seed):
    """A network, its query and evidence, the values of all states, and its log model; None if nothing is possible."""
    network, asked, observed = random_model(seed)
    values = values_of(network, asked, observed)
    if not values.max() > 0 or not asked:
        return None
    problem = Problem(network, asked, observed)
    return network, asked, observed, values, problem, log_model(problem, set(asked))


def value_at(values, asked, problem, state):
    """The enumerated log value of a state of a log model."""
    codes = {column: int(problem.values[column][state[i]]) for i, column in enumerate(problem.open)} | problem.fixed
    p = values[tuple(codes.get(column, 0) for column in asked)]
    return math.log(p) if p > 0 else -math.inf


def instances(first, count):
    found = (instance(seed) for seed in range(first, first + count))
    return [one for one in found if one is not None]


def elimination_order(model, rng):
    used = sorted({v for factor in model.factors for v in factor.scope})
    hidden = [v for v in used if v not in model.query]
    query = [v for v in used if v in model.query]
    return [*rng.permutation(hidden).tolist(), *rng.permutation(query).tolist()]


@pytest.mark.parametrize(("tier", "count"), [("compile", 80), ("interpret", 20)])
def test_scores_are_those_of_enumeration_with_any_variables_summed_out_first(tier, count):
    rng = np.random.default_rng(0)
    for _, asked, _, values, problem, model in instances(0, cases(count)):
        for limit in (0, 4, 1 << 20):
            reduced = sum_out_cheap(model, limit)
            if limit == 1 << 20:
                assert not reduced.hidden
            with jit.forced(tier):
                scorer = Scorer(reduced, outline(reduced, 0.0))
                for _ in range(3):
                    state = np.array([rng.integers(k) for k in model.cardinality], dtype=np.int64)
                    expected = value_at(values, asked, problem, state)
                    assert scorer.score(state) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("tier", "count", "shakes"), [("compile", 60, 30), ("interpret", 20, 15)])
def test_local_search_keeps_the_score_of_what_it_returns_and_never_goes_down(tier, count, shakes):
    best = 0
    everything = instances(0, cases(count))
    for _, asked, _, values, problem, model in everything:
        with jit.forced(tier):
            scorer = Scorer(model)
            start = np.zeros(len(model.cardinality), dtype=np.int64)
            before = scorer.score(start)
            state, value = local_search(scorer, start, np.zeros(2, dtype=np.int64), shakes=shakes)
        assert value >= before
        assert value == pytest.approx(value_at(values, asked, problem, state), abs=1e-9)
        best += value >= math.log(values.max()) - 1e-9
    assert best > 0.9 * len(everything)


@pytest.mark.parametrize("rule", [MIN_WEIGHT, MIN_FILL])
def test_an_order_without_machine_code_is_what_eliminating_along_it_makes(rule):
    for _, _, _, _, _, model in instances(0, 60):
        scopes = [factor.scope for factor in model.factors]
        graph = graph_of(model.cardinality, scopes)
        found = interpreted_order(graph, rule)
        if not model.cardinality:
            assert found.variables == ()
            continue
        assert sorted(found.variables) == [*range(len(model.cardinality))]
        tables, sizes, width = [set(scope) for scope in scopes], [], 0
        for v in found.variables:
            joined = {v}.union(*(table for table in tables if v in table))
            tables = [table for table in tables if v not in table] + [joined - {v}]
            sizes.append(model.size(joined))
            width = max(width, len(joined) - 1)
        assert found.width == width
        assert found.log_entries == pytest.approx(math.log(sum(sizes)), abs=1e-9)
        assert found.log_largest == pytest.approx(math.log(max(sizes)), abs=1e-9)
        assert interpreted_order(graph, rule, found.log_largest - 0.01) is None


def test_there_is_a_state_before_machine_code_is_loaded(monkeypatch):
    """Interpreted from beginning to end: the state comes before the orders, with its exact value."""
    monkeypatch.setattr(network_map, "LONG_SECONDS", 1e-9)
    monkeypatch.setattr("margmap.solve.network_map.best_order", lambda *_args, **_options: pytest.fail("an order"))
    for seed in range(20):
        one = instance(seed)
        if one is None or not log_model(Problem(*one[:3]), set(one[1])).factors:
            continue
        network, asked, observed, values, _, _ = one
        names, seen = [network.variables[i].name for i in asked], []
        with jit.forced("interpret"), contextlib.suppress(pytest.fail.Exception):
            known = {network.variables[i].name: x for i, x in observed.items()}
            mm.marginal_map(network, names, known, on_progress=seen.append)
        best = seen[-1]
        if best.state is not None:
            value = values[tuple(int(best.state[name]) for name in names)]
            assert best.log_lower == pytest.approx(math.log(value), abs=1e-9)
        else:  # neither of the two states that it looks at is possible
            assert not values.all()


def test_a_block_that_is_re_optimised_never_loses_and_a_block_of_all_is_the_optimum():
    rng = np.random.default_rng(5)
    for _, asked, _, values, problem, model in instances(8000, 100):
        scorer, blocks = Scorer(model), BlockSearch(model, 1 << 20)
        state = np.array([rng.integers(k) for k in model.cardinality], dtype=np.int64)
        before = scorer.score(state)
        for center in blocks.asked:
            blocks.size = int(rng.integers(1, 4))
            for v, x in blocks.best_of_block(state, blocks.block(center, rng)).items():
                state[v] = x
            after = scorer.score(state)
            assert after >= before - 1e-9
            before = after
        for v, x in blocks.best_of_block(state, blocks.asked).items():
            state[v] = x
        assert value_at(values, asked, problem, state) == pytest.approx(math.log(values.max()), abs=1e-9)
        assert BlockSearch(model, 1).best_of_block(state, blocks.asked) is None or len(blocks.asked) == 0


def test_mini_buckets_bound_from_above_however_they_are_divided_and_tightened():
    rng = np.random.default_rng(1)
    tight = 0
    everything = instances(1000, cases(50))
    for _, asked, _, values, problem, model in everything:
        best = math.log(values.max())
        order = elimination_order(model, rng)
        buckets = MiniBuckets(model, partition(model, order, int(rng.choice([1, 4, 16, 1 << 20]))))
        for temperature in (None, 1.0, 0.1, 0.01):
            if temperature is not None:
                buckets.tighten(15, temperature, GO_ON)
            found = buckets.bound(GO_ON)
            assert found.log_upper >= best - 1e-12 * (1 + abs(best))
            if buckets.exact:
                assert found.log_upper == pytest.approx(best, abs=1e-8)
                state = decode(model, buckets.parts, found.filled)
                assert value_at(values, asked, problem, state) == pytest.approx(best, abs=1e-9)
            assert_bounded_under_each_value(literal_bounds(buckets, found), values, asked, problem)
        tight += found.log_upper <= best + 1e-3
    assert tight > 0.6 * len(everything)


def test_larger_mini_buckets_begin_where_smaller_ones_have_ended():
    rng = np.random.default_rng(3)
    worse, compared = 0, 0
    for _, asked, _, values, problem, model in instances(1500, 100):
        best = math.log(values.max())
        order = elimination_order(model, rng)
        before, last = None, math.inf
        for limit in (4, 16, 64, 1 << 20):
            parts = partition(model, order, limit)
            buckets = MiniBuckets(model, parts, None if before is None else before.shares(parts))
            found = buckets.bound(GO_ON)
            assert found.log_upper >= best - 1e-12 * (1 + abs(best))
            if before is not None:
                worse, compared = worse + (found.log_upper > last + 1e-9), compared + 1
            buckets.tighten(10, 0.1, GO_ON)
            found = buckets.bound(GO_ON)
            assert found.log_upper >= best - 1e-12 * (1 + abs(best))
            assert_bounded_under_each_value(literal_bounds(buckets, found), values, asked, problem)
            last, before = found.log_upper, tightened(buckets, found)
            model = before.model
            state = np.array([rng.integers(k) for k in model.cardinality], dtype=np.int64)
            assert Scorer(model).score(state) == pytest.approx(value_at(values, asked, problem, state), abs=1e-9)
        assert buckets.exact
        assert found.log_upper == pytest.approx(best, abs=1e-8)
    assert worse < 0.1 * compared  # messages may be put elsewhere, which is rare


def assert_bounded_under_each_value(literals, values, asked, problem):
    for i, bounds in literals.items():
        axis = asked.index(problem.open[i])
        under = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).max(axis=1)
        under = under[problem.values[problem.open[i]]]
        with np.errstate(divide="ignore"):
            assert (bounds >= np.log(under) - 1e-9).all()


def test_cost_shifting_bounds_from_above_and_changes_no_score():
    rng = np.random.default_rng(4)
    tighter = 0
    everything = instances(7000, cases(80))
    for _, asked, _, values, problem, model in everything:
        best = math.log(values.max())
        shift = CostShift(model)
        first = shift.bounds()[0]
        for rounds in (0, 1, 5):
            shift.sweep(rounds, GO_ON)
            log_upper, literals, _ = shift.bounds()
            assert log_upper >= best - 1e-12 * (1 + abs(best))
            assert_bounded_under_each_value(literals, values, asked, problem)
            assert value_at(values, asked, problem, shift.state()) <= best + 1e-9
        tighter += log_upper < first - 1e-6
        scorer = Scorer(shift.shifted())
        for _ in range(3):
            state = np.array([rng.integers(k) for k in model.cardinality], dtype=np.int64)
            assert scorer.score(state) == pytest.approx(value_at(values, asked, problem, state), abs=1e-9)
    assert tighter > 0.5 * len(everything)


def test_conditioning_bounds_every_part_and_ends_with_the_optimum(monkeypatch):
    rng = np.random.default_rng(6)
    divided = 0
    everything = instances(9000, cases(60))
    for number, (_, asked, _, values, problem, model) in enumerate(everything):
        monkeypatch.setattr("margmap.network.conditioning.MOST_PARTS", int(rng.choice([1, 1 << 13])))
        best = math.log(values.max())
        limit = int(rng.choice([1, 4]))
        buckets = MiniBuckets(model, partition(model, elimination_order(model, rng), limit))
        if rng.random() < 0.5:
            buckets.tighten(5, 0.5, GO_ON)
        search, scorer = Conditioning(buckets, buckets.bound(GO_ON), limit, 1.0), Scorer(model)
        floor = value_at(values, asked, problem, np.zeros(len(model.cardinality), dtype=np.int64))
        lower = floor = floor if rng.random() < 0.5 else -math.inf
        while (part := search.take(floor)) is not None:
            under = values[np.ix_(*(places(problem, column, part.values) for column in asked))].max()
            under = math.log(under) if under > 0 else -math.inf
            assert part.log_upper >= under - 1e-9
            seen = search.examine(part, floor, GO_ON)
            if seen.alone:
                seen = seen._replace(log_upper=scorer.score(seen.state))
            search.put(seen)
            if seen.state is not None:
                lower = max(lower, scorer.score(seen.state))
            if seen.exact:
                assert max(floor, scorer.score(seen.state)) >= under - 1e-8
            floor = lower
            assert max(search.log_upper, search.closed, lower) >= best - 1e-9
            if rng.random() < 0.1:  # go on with other tables
                search = Conditioning(buckets, buckets.bound(GO_ON), 2 * limit, 1.0, search)
        assert lower == pytest.approx(best, abs=1e-8), number
        assert max(search.closed, lower) == pytest.approx(best, abs=1e-8), number
        divided += search.examined > 1
    assert divided > 0.1 * len(everything)


def places(problem, column, values):
    """The codes of a column that a part leaves."""
    if column in problem.open:
        return problem.values[column][values[problem.open.index(column)]]
    return np.array([problem.fixed.get(column, 0)])


def test_a_part_that_is_eliminated_or_compiled_by_itself_has_the_value_of_enumeration(monkeypatch):
    rng = np.random.default_rng(7)
    kinds = {"none": 0, "above": 0, "below": 0}
    for network, asked, observed, values, problem, model in instances(11_000, 120):
        # Half of them by elimination, half by compile and frontier.
        monkeypatch.setattr("margmap.solve.network_map._FACTOR", int(rng.choice([0, 8])))
        names = [network.variables[i].name for i in asked]
        question = ask(network, names, {network.variables[i].name: x for i, x in observed.items()})
        work = network_map._NetworkMap(question, Limits())
        work._anytime("andor")
        left = [np.sort(rng.choice(k, size=rng.integers(1, k + 1), replace=False)) for k in model.cardinality]
        inside = values[np.ix_(*(places(problem, column, left) for column in asked))].max()
        best = math.log(inside) if inside > 0 else -math.inf
        floor = float(rng.choice([-math.inf, best - 0.1, best + 0.1])) if inside > 0 else -math.inf
        found = work._solve_part(left, floor, Limits(), 1 << 18)
        assert found.exact
        if inside == 0:
            assert found.log_upper == -math.inf
            kinds["none"] += 1
        elif best > floor:
            assert found.log_upper == pytest.approx(best, abs=1e-8)
            assert value_at(values, asked, problem, found.state) == pytest.approx(best, abs=1e-8)
            kinds["above"] += 1
        else:
            assert best - 1e-9 <= max(found.log_upper, floor)
            kinds["below"] += 1
        assert work._solve_part(left, floor, Limits(), -1) is None or inside == 0
    assert min(kinds.values()) > 0


@pytest.mark.parametrize("below", [0, 1 << 18])
def test_conditioning_alone_proves_what_nothing_else_may(monkeypatch, below):
    networks = [(grid(4, seed), list(range(0, 16, 2))) for seed in range(4)]
    expected = [mm.marginal_map(network, query).log_prob for network, query in networks]
    only_conditioning(monkeypatch, below)
    details = []
    for (network, query), value in zip(networks, expected, strict=True):
        result = mm.marginal_map(network, query, method="andor")
        assert result.status == "optimal"
        assert result.log_prob == pytest.approx(value, abs=1e-8)
        details.append(result.details)
    assert any(one.get("parts", 0) > (1 if below == 0 else 0) for one in details)
    assert any("parts solved below" in one for one in details) == (below > 0)


def only_conditioning(monkeypatch, below=1 << 18):
    """Tables so small that all is divided, no tightening, no search by layers, no value removed from the whole."""
    for name, value in {"CHEAP_ENTRIES": 2, "FIRST_LIMIT": 2, "MOST_LIMIT": 2, "FIRST_SECONDS": 0.002}.items():
        monkeypatch.setattr(f"margmap.network.anytime.{name}", value)
    monkeypatch.setattr("margmap.network.anytime._TEMPERATURES", ())
    monkeypatch.setattr("margmap.network.conditioning.TEMPERATURES", ())
    monkeypatch.setattr("margmap.network.anytime.Anytime._shift", lambda _, reduced: reduced)
    monkeypatch.setattr("margmap.network.anytime.Anytime._layers", lambda *_: None)
    monkeypatch.setattr("margmap.network.anytime.Anytime._prune", lambda *_: False)
    monkeypatch.setattr("margmap.solve.network_map.BELOW_ENTRIES", below)


def test_restricting_values_leaves_the_scores_of_those_that_remain():
    rng = np.random.default_rng(2)
    for *_, model in instances(300, 60):
        values = {
            v: sorted(rng.choice(k, size=rng.integers(1, k + 1), replace=False))
            for v, k in enumerate(model.cardinality)
            if v in model.query
        }
        scorer, smaller = Scorer(model), Scorer(restricted(model, values))
        state = np.array([rng.integers(len(values[v])) if v in values else 0 for v in range(len(model.cardinality))])
        whole = np.array([values[v][x] if v in values else x for v, x in enumerate(state)])
        assert smaller.score(state) == pytest.approx(scorer.score(whole), abs=1e-9)


def test_costs_are_rounded_down_and_by_little():
    for _, asked, _, values, problem, model in instances(400, 80):
        reduced = sum_out_cheap(model, 1 << 20)
        found = costs(reduced, 1e-9)
        state = np.zeros(len(model.cardinality), dtype=np.int64)
        value = value_at(values, asked, problem, state)
        cost = cost_of(reduced, found, state)
        if value == -math.inf:
            assert cost >= found.forbidden
        else:
            assert value - 1e-12 <= found.log_upper(cost) <= value + 3e-9 + 1e-12 * abs(value)
        assert written(reduced, found, found.forbidden).startswith("margmap ")


@toulbar2
def test_toulbar2_proves_what_is_left_and_takes_a_state_to_beat():
    for _, asked, _, values, problem, model in instances(500, 12):
        best = math.log(values.max())
        reduced = sum_out_cheap(model, 1 << 20)
        if not reduced.factors:
            continue
        for incumbent in (None, np.zeros(len(model.cardinality), dtype=np.int64)):
            search = Toulbar2(prepare(reduced, incumbent, 1e-9))
            try:
                for _ in range(3000):
                    search.poll()
                    if search.done:
                        break
                    time.sleep(0.01)
            finally:
                search.close()
            assert search.log_upper == pytest.approx(best, abs=1e-8)
            assert search.log_upper >= best - 1e-12
            if search.state is not None:
                assert value_at(values, asked, problem, search.state) == pytest.approx(best, abs=1e-8)
            else:
                assert value_at(values, asked, problem, incumbent) == pytest.approx(best, abs=1e-8)


def run(model, *, seconds=None, memory=None, extra=False, limits=None):
    found = Incumbent()
    limits = Limits(seconds, memory_limit=memory) if limits is None else limits
    with contextlib.suppress(Stopped):
        Anytime(model, limits, found, use_toulbar2=extra).run()
    return found


def test_the_whole_search_brackets_the_optimum_and_proves_it(monkeypatch):
    # Tables so small that everything is divided.
    monkeypatch.setattr("margmap.network.anytime.CHEAP_ENTRIES", 4)
    monkeypatch.setattr("margmap.network.anytime.FIRST_LIMIT", 2)
    monkeypatch.setattr("margmap.network.anytime.FIRST_SECONDS", 0.01)
    for _, asked, _, values, problem, model in instances(2000, 60):
        best = math.log(values.max())
        found = run(model)
        assert found.log_lower == pytest.approx(best, abs=1e-8)
        assert found.log_upper == pytest.approx(best, abs=1e-8)
        assert value_at(values, asked, problem, found.state) == pytest.approx(found.log_lower, abs=1e-9)


class AfterChecks(Limits):
    """Stops the solver at its n-th look at the clock."""

    def __init__(self, n):
        super().__init__()
        self.left = n

    def check(self):
        self.left -= 1
        if self.left < 0:
            raise Stopped("time_limit")


def test_stopped_anywhere_the_bounds_hold(monkeypatch):
    monkeypatch.setattr("margmap.network.anytime.CHEAP_ENTRIES", 4)
    monkeypatch.setattr("margmap.network.anytime.FIRST_LIMIT", 2)
    monkeypatch.setattr("margmap.network.anytime.FIRST_SECONDS", 0.01)
    for n, (_, asked, _, values, problem, model) in enumerate(instances(3000, 60)):
        best = math.log(values.max())
        found = run(model, limits=AfterChecks(n))
        assert found.log_lower <= best + 1e-9
        assert found.log_upper >= best - 1e-9
        if found.state is not None and found.log_lower > -math.inf:
            assert value_at(values, asked, problem, found.state) == pytest.approx(found.log_lower, abs=1e-9)


def test_generated_networks_against_enumeration_at_all_limits(monkeypatch):
    """Set MARGMAP_NETWORKS=5000 for as many; some of them go to toulbar2, which starts a process for each."""
    monkeypatch.setattr("margmap.network.anytime.FIRST_SECONDS", 0.01)
    if os.environ.get("MARGMAP_CONDITIONING"):  # the same by conditioning and nothing else
        only_conditioning(monkeypatch)
    count, proven = cases(60, "MARGMAP_NETWORKS"), 0
    for seed in range(100_000, 100_000 + count):
        rng = np.random.default_rng(seed)
        network, asked, observed = (random_model if rng.random() < 0.5 else random_bayes)(seed)
        values = values_of(network, asked, observed)
        if not asked or not values.max() > 0:
            continue
        best = math.log(values.max())
        # Now and then tables so small that everything is divided; a limit that is soon reached; toulbar2.
        cheap, first = int(rng.choice([4, 1 << 17])), int(rng.choice([2, 1 << 9]))
        if not os.environ.get("MARGMAP_CONDITIONING"):
            monkeypatch.setattr("margmap.network.anytime.CHEAP_ENTRIES", cheap)
            monkeypatch.setattr("margmap.network.anytime.FIRST_LIMIT", first)
        extra = importlib.util.find_spec("pytoulbar2") is not None and seed % 20 == 0
        method = "wcsp" if extra else str(rng.choice(["auto", "andor"]))
        limit = rng.choice([None, None, 1e-4, 0.01])
        gap = float(rng.choice([0.0, 0.0, 0.5]))
        names = [network.variables[i].name for i in asked]
        known = {network.variables[i].name: x for i, x in observed.items()}
        options = {"max_edges": 1} if method == "auto" and rng.random() < 0.7 else {}
        memory = 1 << 30 if rng.random() < 0.2 else None
        result = mm.marginal_map(network, names, known, method, limit, gap=gap, memory_limit=memory, **options)
        assert result.log_upper >= best - 1e-9, seed
        if result.state is not None:
            value = values[tuple(int(result.state[name]) for name in names)]
            assert result.log_prob == pytest.approx(math.log(value) if value > 0 else -math.inf, abs=1e-8), seed
        assert limit is not None or result.status in ("optimal", "precision_limit"), seed
        if result.status == "optimal":
            assert result.log_prob >= best - max(gap, 1e-9) - 1e-9, seed
            proven += 1
    assert proven > 0.3 * count


@pytest.mark.parametrize("method", ["andor", pytest.param("wcsp", marks=toulbar2)])
def test_marginal_map_by_search(method):
    for seed in range(4000, 4012):
        one = instance(seed)
        if one is None:
            continue
        network, asked, observed, values, _, _ = one
        names = [network.variables[i].name for i in asked]
        known = {network.variables[i].name: x for i, x in observed.items()}
        result = mm.marginal_map(network, names, known, method)
        assert result.status == "optimal"
        assert result.log_prob == pytest.approx(math.log(values.max()), abs=1e-8)
        codes = tuple(int(result.state[name]) for name in names)
        assert values[codes] == pytest.approx(values.max(), rel=1e-8)


def grid(size, seed=0):
    """A grid of binary variables with strong couplings, wider than the limits below allow."""
    rng = np.random.default_rng(seed)
    variables = [mm.Variable(i, 2) for i in range(size * size)]
    factors = []
    for i in range(size):
        for j in range(size):
            for di, dj in ((0, 1), (1, 0)):
                if i + di < size and j + dj < size:
                    factors.append(([i * size + j, (i + di) * size + j + dj], np.exp(rng.normal(size=(2, 2)) * 2)))
    return Network(variables, factors, "markov")


@pytest.mark.parametrize("method", ["auto", "andor", pytest.param("wcsp", marks=toulbar2)])
def test_every_form_of_evidence_is_searched_with(method):
    rng = np.random.default_rng(3)
    pairs = [(i, j) for i in range(7) for j in range(i + 1, 7) if rng.random() < 0.7]
    factors = [(pair, rng.random((3, 3)) + 0.01) for pair in pairs]
    network = Network([mm.Variable(f"v{i}", 3) for i in range(7)], factors, "markov")
    forms = {
        "a value": ({"v5": 1}, 5, [0, 1, 0]),
        "a set": ({"v5": {0, 1}}, 5, [1, 1, 0]),
        "all but one": ({"v5": mm.none_of(1)}, 5, [1, 0, 1]),
        "likelihoods": ({"v5": {0: 0.2, 1: 0.7, 2: 0.1}}, 5, [0.2, 0.7, 0.1]),
        "a set on the query": ({"v1": {0, 2}}, 1, [1, 0, 1]),
    }
    for name, (evidence, column, shares) in forms.items():
        values = np.ones([3] * 7)
        for scope, table in [*factors, ((column,), np.array(shares, dtype=np.float64))]:
            values = values * table.reshape([3 if v in scope else 1 for v in range(7)])
        values = values.sum(axis=(3, 4, 5, 6))
        options = {"max_edges": 1} if method == "auto" else {}
        result = mm.marginal_map(network, ["v0", "v1", "v2"], evidence, method, **options)
        assert result.status == "optimal", name
        assert result.log_prob == pytest.approx(math.log(values.max()), abs=1e-9), name
        assert tuple(result.state.values()) == np.unravel_index(int(values.argmax()), values.shape), name


def test_what_does_not_fit_is_searched_instead_of_refused():
    network = grid(6)
    query = list(range(0, 36, 2))
    expected = mm.marginal_map(network, query)
    result = mm.marginal_map(network, query, max_edges=1)
    assert result.method in ("wcsp", "andor")
    assert result.status == "optimal"
    assert result.log_prob == pytest.approx(expected.log_prob, abs=1e-8)


def test_progress_tells_bounds_that_close_and_may_stop_it():
    network = grid(5)
    query = list(range(0, 25, 2))
    seen = []
    result = mm.marginal_map(network, query, max_edges=1, on_progress=seen.append)
    assert all(isinstance(one, mm.Progress) for one in seen)
    lower, upper = [one.log_lower for one in seen], [one.log_upper for one in seen]
    assert lower == sorted(lower)
    assert upper == sorted(upper, reverse=True)
    assert seen[-1].log_lower == result.log_prob
    assert set(seen[-1].state) == set(query)
    first = next(one for one in result.details["bounds"] if one.log_upper < math.inf)
    assert first.log_lower == -math.inf  # a bound comes before any state: the largest entries, and all hidden states
    tops = sum(math.log(factor.table.max()) for factor in network.factors)
    assert first.log_upper == pytest.approx(tops + 12 * math.log(2), abs=1e-6)

    def enough(_progress):
        raise RuntimeError

    stopped = mm.marginal_map(network, query, max_edges=1, on_progress=enough)
    assert stopped.status == "interrupted"
    assert stopped.state is not None
    assert stopped.log_prob <= result.log_prob + 1e-9 <= stopped.log_upper + 2e-9


def test_what_needs_a_circuit_is_refused_with_what_would_help():
    network = grid(6)
    query = list(range(0, 36, 2))
    with pytest.raises(mm.LimitError, match=r"table entries predicted.*most of the large tables have.*k=1"):
        mm.marginal_map(network, query, k=3, max_edges=1)
    with pytest.raises(mm.LimitError, match=r"without method='frontier' \(auto\)"):
        mm.marginal_map(network, query, method="frontier", max_edges=1)
    with pytest.raises(mm.LimitError) as error:
        mm.marginal_map(grid(40), list(range(0, 1600, 2)), k=2)
    assert "raise max_edges" not in str(error.value)


@pytest.mark.parametrize("side", [1, 5])
def test_stopped_before_there_are_several_states_one_is_there_with_bounds(monkeypatch, side):
    def stopped(*_):
        raise Stopped("time_limit")

    network, query = grid(side), list(range(0, side * side, 2))
    expected = mm.marginal_map(network, query)
    monkeypatch.setattr(network_map, "plan_of", stopped)
    result = mm.marginal_map(network, query, k=2)
    assert (result.status, len(result.top)) == ("time_limit", 1)  # also where the one is known to be the best
    assert result.log_prob <= expected.log_prob + 1e-8 <= result.log_upper + 2e-8


def test_jobs_on_a_network_that_is_searched_say_so():
    result = mm.marginal_map(grid(5), list(range(0, 25, 2)), max_edges=1, jobs=2)
    assert result.status == "optimal"
    assert "one process" in result.details["jobs"]


def test_a_search_beside_the_circuits_solver_proves_what_that_does_not(monkeypatch):
    network, query = grid(6), list(range(0, 36, 2))
    expected = mm.marginal_map(network, query)
    for name in ("LONG_LIMIT", "BESIDE_SECONDS", "QUICK_ENTRIES", "_FACTOR", "MAX_BYTES"):
        monkeypatch.setattr(f"margmap.solve.network_map.{name}", 0)

    def slow(question, limits):
        """The circuit's solver, which is told to wait until something stops it, after its first state."""
        result = circuit_map(question, limits)
        limits.tell("waiting", None, -math.inf, math.inf)
        with contextlib.suppress(Stopped):
            while True:
                time.sleep(0.01)
                limits.check()
        return replace(result, status="time_limit", log_upper=math.inf)

    circuit_map = network_map.circuit_map
    monkeypatch.setattr(network_map, "circuit_map", slow)
    seen = []
    result = mm.marginal_map(network, query, time_limit=120, on_progress=seen.append)
    assert result.status == "optimal"
    assert result.log_prob == pytest.approx(expected.log_prob, abs=1e-8)
    assert seen[-1].log_upper == result.log_upper
    assert result.seconds < 100


def test_a_search_beside_the_circuits_solver_ends_with_it(monkeypatch):
    network, query = grid(6), list(range(0, 36, 2))
    expected = mm.marginal_map(network, query)
    for name in ("LONG_LIMIT", "BESIDE_SECONDS", "QUICK_ENTRIES", "_FACTOR", "MAX_BYTES"):
        monkeypatch.setattr(f"margmap.solve.network_map.{name}", 0)
    for limit in (None, 60, 0.05, 0.01):
        result = mm.marginal_map(network, query, time_limit=limit)
        assert result.log_prob <= expected.log_prob + 1e-8 <= result.log_upper + 2e-8
        assert limit in (0.05, 0.01) or result.status == "optimal"


def test_time_counts_while_the_search_beside_the_circuits_solver_compiles(monkeypatch):
    """Compilation that is waited for is not counted; here the circuit's solver goes on meanwhile."""
    network, query = grid(6), list(range(0, 36, 2))
    for name in ("LONG_LIMIT", "BESIDE_SECONDS", "QUICK_ENTRIES", "_FACTOR", "MAX_BYTES"):
        monkeypatch.setattr(f"margmap.solve.network_map.{name}", 0)
    compiling, compiled = threading.Event(), threading.Event()

    def compiles(search):
        def work(_stop):
            jit._listeners.start()
            compiling.set()
            time.sleep(0.05)
            jit._listeners.end()
            compiled.set()

        search._run(work)

    def waiting(question, limits):
        assert compiling.wait(60)
        counted, passed = -limits.clock(), -time.perf_counter()
        assert compiled.wait(60)
        passed += time.perf_counter()
        moved.append((counted + limits.clock(), passed))
        return circuit_map(question, limits)

    moved, circuit_map = [], network_map.circuit_map
    monkeypatch.setattr(network_map, "circuit_map", waiting)
    monkeypatch.setattr("margmap.network.anytime.Anytime.run", compiles)
    mm.marginal_map(network, query, time_limit=120)
    counted, passed = moved[0]
    assert counted >= passed


def test_stopped_after_the_maximum_elimination_keeps_the_state(monkeypatch):
    def stopped(*_):
        raise Stopped("time_limit")

    network, query = grid(4), list(range(0, 16, 2))
    expected = mm.marginal_map(network, query)
    monkeypatch.setattr("margmap.network.elimination.Elimination.log_evidence", stopped)
    seen = []
    result = mm.marginal_map(network, query, method="elimination", on_progress=seen.append)
    assert seen[-1].doing == "eliminating for the evidence's share"  # by then it was told
    assert (seen[-1].state, seen[-1].log_upper) == (result.state, result.log_upper)
    assert result.status == "optimal"
    assert result.state == expected.state
    assert math.isnan(result.log_conditional)


def test_a_beam_finds_a_possible_state():
    # Neighbours differ, but for the last pair, and a third of the values are ruled out: few states are possible.
    n = 14
    variables = [mm.Variable(i, 3) for i in range(n)]
    differ = 1.0 - np.eye(3)
    factors = [([i, i + 1], differ) for i in range(n - 1)] + [([0], np.array([0.0, 1.0, 0.5])), ([0, n - 1], np.eye(3))]
    problem = Problem(Network(variables, factors, "markov"), list(range(n - 3)), {})
    model = log_model(problem, set(range(n - 3)))
    found = Incumbent()
    search = Anytime(model, Limits(), found, use_toulbar2=False)
    search._keep(search._make_scorer((0,)))
    search._score(np.zeros(len(model.cardinality), dtype=np.int64), "impossible")
    assert found.log_lower == -math.inf
    everything = LogModel(model.cardinality, frozenset(range(len(model.cardinality))), model.factors, 0.0, 0.0)
    search._possible(everything)
    assert found.log_lower > -math.inf


def test_certificates_are_about_circuits():
    with pytest.raises(mm.MargmapError, match="compile"):
        mm.certify(grid(3), [0, 1])


def test_without_the_extra_wcsp_says_what_to_install(monkeypatch):
    monkeypatch.setattr("margmap.network.wcsp.available", lambda: False)
    with pytest.raises(mm.MissingExtraError, match="networks"):
        mm.marginal_map(grid(3), [0, 1], method="wcsp")


@toulbar2
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_stopped_search_leaves_no_process_behind():
    model = log_model(Problem(grid(12), list(range(144)), {}), set(range(144)))
    search = Toulbar2(prepare(model, None, 1e-9))
    process = search._process.pid
    file = search._file
    search.close()
    assert not os.path.exists(f"/proc/{process}")
    assert not os.path.exists(file)


def test_a_model_without_query_variables_has_its_sum_as_bound():
    model = LogModel((2, 3), frozenset(), log_model(Problem(grid(2), [0], {}), {0}).factors[:0], 1.5, 0.0)
    assert sum_out_cheap(model, 100).log_constant == 1.5


def test_layered_search_bounds_at_any_width_and_proves_at_full_width():
    rng = np.random.default_rng(3)
    beams = 0
    for _, asked, _, values, problem, model in instances(5000, cases(60)):
        best = math.log(values.max())
        buckets = MiniBuckets(model, partition(model, elimination_order(model, rng), int(rng.choice([1, 4, 16]))))
        buckets.tighten(10, 0.3, GO_ON)
        search = LayeredSearch(search_steps(buckets), buckets, buckets.bound(GO_ON))
        for floor in (-math.inf, best - 1.0, best):
            for width in (1, 3, 1 << 20):
                found = search.search(floor, width)
                assert max(found.log_upper, floor) >= best - 1e-9
                beams += not found.complete
                if found.complete and found.state is not None and not model.hidden:
                    assert found.log_upper == pytest.approx(best, abs=1e-8)
                    assert value_at(values, asked, problem, found.state) == pytest.approx(best, abs=1e-8)
    assert beams > cases(7)
