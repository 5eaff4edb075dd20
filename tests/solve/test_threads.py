"""Large circuits in pieces, on several threads: the answers are those of one thread, to the last bit, and proven."""

import dataclasses
import itertools
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

import margmap as mm
from margmap.bench.generators import latent_tree
from margmap.circuit.scopes import intern_scopes, members, number_by_appearance
from margmap.foundation import threads
from margmap.foundation.cores import usable_cores
from margmap.foundation.limits import Limits
from margmap.foundation.threads import at_once, number_of_threads, using_threads
from margmap.inference import pieces
from margmap.inference.passes import forward_dense
from margmap.inference.pieces import pass_up, pieces_of
from margmap.inference.scaled import scaled
from margmap.solve import query_circuit
from margmap.solve import reduce as reducing
from margmap.solve.hill_climb import change_apart, climb_from, go_on, go_on_by_parts, neighbourhoods
from margmap.solve.methods.frontier import solve as solving
from margmap.solve.methods.frontier.scope_tree import make_plan, plan_with, rounding_of
from margmap.solve.methods.frontier.sweep_by_parts import cut_of, sweep_by_parts
from margmap.solve.output_bounds import relative_view, view_of
from margmap.solve.parts import upwards
from margmap.solve.query_circuit import rebuild, rows_of
from margmap.solve.reduce import reduce_codes
from margmap.solve.supports import deterministic_if_plain, find_deterministic, find_supports
from margmap.solve.values import log_value


@pytest.fixture
def small_pieces(monkeypatch):
    """All circuits are large enough for pieces, and for a large top."""
    monkeypatch.setattr(pieces, "LEAST_EDGES", 0)
    monkeypatch.setattr(pieces, "PIECES", 3)
    monkeypatch.setattr(pieces, "MOST_TOP", 1.0)


def trees(number, least=0):
    for seed in range(least, least + number):
        rng = np.random.default_rng(seed)
        variables, concentration = 7 + seed % 9, (1.0, 0.02)[seed % 2]
        states, values = 8 + seed % 3, 2 + seed % 2
        circuit = latent_tree(seed, variables=variables, states=states, values=values, concentration=concentration)
        order = rng.permutation(variables).tolist()
        asked = 1 + int(rng.integers(variables - 1))
        given = {i: int(rng.integers(values)) for i in order[asked : asked + int(rng.integers(variables))]}
        yield circuit, order[:asked], given


def bare(result):
    return dataclasses.replace(result, seconds=0, details={})


def test_pieces_are_closed_and_whole(small_pieces):
    found = 0
    for circuit, _, _ in trees(40):
        cut = pieces_of(circuit)
        if cut is None:
            continue
        found += 1
        assert sorted(np.concatenate((*cut.below, cut.top)).tolist()) == list(range(circuit.num_nodes))
        seen = set()
        for nodes in cut.below:
            inside = set(nodes.tolist())
            assert (np.diff(nodes) > 0).all()
            for n in nodes.tolist():
                assert inside.issuperset(circuit.child[circuit.start[n] : circuit.start[n + 1]].tolist())
            variables = {int(v) for v in circuit.var[nodes] if v >= 0}
            assert not variables & seen
            seen |= variables
    assert found > 20


def test_small_circuits_and_crossing_scopes_have_no_pieces(monkeypatch):
    circuit = latent_tree(0, variables=8, states=8)
    assert pieces_of(circuit) is None
    monkeypatch.setattr(pieces, "LEAST_EDGES", 0)
    assert pieces_of(latent_tree(0, variables=100, states=8)) is not None
    assert pieces_of(circuit) is None  # most of it would be in the top
    x, y = mm.Variable("x"), mm.Variable("y")
    assert pieces_of(mm.circuit_of(mm.bernoulli(x, 0.5) * mm.bernoulli(y, 0.25))) is None  # one piece at most


def test_the_reduced_circuit_is_the_one_made_whole(small_pieces, monkeypatch):
    """After both are put into one order by rebuilding, which shares what only the top could have shared."""
    compared = 0
    for circuit, query, given in trees(120):
        codes, reals = circuit.evidence_codes(given)
        value, exponent = np.empty((2, circuit.num_nodes)), np.empty((2, circuit.num_nodes))
        pass_up(circuit, codes, reals, value[0], exponent[0])
        forward_dense(scaled(circuit), codes, reals, value[1], exponent[1])
        assert np.array_equal(value[0], value[1])
        assert np.array_equal(exponent[0], exponent[1])
        found = reduce_codes(circuit, query, codes, reals)
        with monkeypatch.context() as patch:
            patch.setattr(reducing, "pieces_of", lambda _circuit: None)
            expected = reduce_codes(circuit, query, codes, reals)
        compared += found.parts is not None
        assert (found.evidence, found.rounding) == (expected.evidence, expected.rounding)
        for state in np.random.default_rng(0).integers(0, expected.cardinality, (5, expected.cardinality.size)):
            one, other = (log_value(r.flat, state.astype(np.int32)) for r in (found, expected))
            assert one == pytest.approx(other, rel=1e-12)
        assert found.num_nodes >= expected.num_nodes
        again, _ = rebuild(found.flat, np.ones(found.num_edges, dtype=np.bool_))
        assert (again.num_nodes, again.num_edges) == (expected.num_nodes, expected.num_edges)
    assert compared > 60


def test_pieces_without_equal_forms_fill_their_ranges(small_pieces, monkeypatch):
    """Then nothing has to be moved; where some are equal, the gaps are closed."""
    moved = []
    monkeypatch.setattr(reducing, "_close", lambda *given, close=reducing._close: moved.append(1) or close(*given))
    for seed in range(5):
        circuit = latent_tree(seed, variables=24, states=8)
        for query, given in ((range(24), {}), (range(3, 20), {0: 1, 1: 0, 21: 1})):
            reduced = reduce_codes(circuit, list(query), *circuit.evidence_codes(given))
            assert reduced.parts is not None
            assert np.diff(reduced.parts).min() > 0
    assert not moved
    for circuit, query, given in trees(20):
        reduce_codes(circuit, query, *circuit.evidence_codes(given))
    assert moved


def test_the_reduction_knows_the_rows_and_scopes_of_its_nodes(small_pieces, monkeypatch):
    """They are those that are found in the circuit itself, and so are the plan and the bounds that rest on them."""
    monkeypatch.setattr(query_circuit, "mostly_blocks", lambda start, rows: True)
    compared = 0
    for circuit, query, given in trees(80, least=900):
        reduced = reduce_codes(circuit, query, *circuit.evidence_codes(given))
        if reduced.parts is None:
            assert reduced.rows is reduced.scope is None
            continue
        flat, compared = reduced.flat, compared + 1
        words = -(-len(query) // 64)
        assert np.array_equal(reduced.scope, intern_scopes(flat.kind, flat.start, flat.child, flat.var, words, True)[0])
        assert np.array_equal(reduced.rows, rows_of(flat, reduced.parts))
        assert rows_of(flat, reduced.parts, reduced.rows) is reduced.rows
        one, other = make_plan(flat, len(query)), make_plan(flat, len(query), scope=reduced.scope)
        assert all(np.array_equal(a, b) for a, b in zip(one[1], other[1], strict=True))
    assert compared > 40


def test_scopes_are_numbered_as_they_appear():
    ids = np.array([4, 4, 2, 0, 2, 4, 5], dtype=np.int32)
    assert number_by_appearance(ids, 6) == 4
    assert ids.tolist() == [0, 0, 1, 2, 1, 0, 3]
    circuit = latent_tree(1, variables=70, states=2)  # more than a word
    sets = [frozenset(members(bits)) & {0, 1, 5, 66} for bits in circuit.scopes.bits]
    assert [sets.index(one) for one in sets] == circuit.scopes.within([66, 0, 5, 1]).tolist()


def large(number, least):
    """Reduced circuits with parts and dense blocks, few enough variables to enumerate."""
    for circuit, query, given in trees(number, least):
        reduced = reduce_codes(circuit, query[:9], *circuit.evidence_codes(given))
        if reduced.parts is not None and view_of(reduced.flat, 0.0, reduced.cardinality).bounds.rows is not None:
            yield reduced


def test_a_sweep_by_parts_loses_nothing_above_its_bound(small_pieces):
    """Widths and numbers of pairs so small that every limit is reached, floors just below the best, the k best."""
    compared, merged, rng = 0, 0, np.random.default_rng(0)
    for reduced in large(60, least=500):
        planned = make_plan(reduced.flat, reduced.cardinality.size)
        assert planned is not None
        if (cut := cut_of(planned[1], reduced.parts)) is None or planned[0] is not reduced.flat:
            continue
        bounds = view_of(*(reduced.flat, 0.0, reduced.cardinality), parts=reduced.parts).bounds
        states = itertools.product(*(range(c) for c in reduced.cardinality.tolist()))
        logs = [log_value(reduced.flat, np.array(state, dtype=np.int32)) for state in states]
        truth = np.sort(logs)[::-1] - bounds.log_upper
        arguments = (reduced.flat, bounds.block_rows, bounds.share, bounds.least, planned[1], cut)
        compared += 1
        for most, pairs, best_of in ((1, 1, 1), (2, 1, 1), (3, 2, 3), (1 << 20, 1 << 20, 1), (1 << 20, 1 << 20, 3)):
            for away in (np.inf, 1e-7, rng.exponential(1.0)):
                log_floor = truth[best_of - 1] - away
                given = (*arguments, reduced.cardinality.size, log_floor, most, pairs, best_of, np.array([0, 1 << 60]))
                with using_threads(1 + compared % 3):
                    ended, values, found, upper, _ = sweep_by_parts(*given)
                assert ended
                for rank in range(best_of):
                    reached = max(upper, values[rank] if rank < len(values) else -np.inf)
                    assert reached >= truth[rank] - 1e-11
                for value, state in zip(values, found, strict=True):
                    assert log_value(reduced.flat, state) - bounds.log_upper == pytest.approx(value, abs=1e-10)
                merged += upper > log_floor
    assert compared > 15
    assert merged > 15


def test_a_sweep_by_parts_stops(small_pieces):
    for reduced in large(60, least=500):
        flat, plan = make_plan(reduced.flat, reduced.cardinality.size)
        if (cut := cut_of(plan, reduced.parts)) is not None:
            break
    bounds = view_of(flat, 0.0, reduced.cardinality, parts=reduced.parts).bounds
    problem = (flat, bounds.block_rows, bounds.share, bounds.least, plan, cut)
    limits = (reduced.cardinality.size, -np.inf, 64, 999, 1)
    assert not sweep_by_parts(*problem, *limits, np.array([1, 1 << 60]))[0]  # another thread has said so
    assert not sweep_by_parts(*problem, *limits, np.array([0, 8]))[0]  # too much work
    above = sweep_by_parts(*problem, reduced.cardinality.size, 1.0, *limits[2:], np.array([0, 1 << 60]))
    assert above[0]
    assert (len(above[1]), above[3]) == (0, 1.0)  # nothing is above this floor


def test_bounds_in_the_place_of_the_weights(small_pieces):
    compared, small = 0, 0
    for number, reduced in enumerate(large(60, least=600)):
        flat, cardinality, parts = reduced.flat, reduced.cardinality, reduced.parts
        if number % 4 == 0:  # weights whose shares are too small
            flat = flat._replace(weight=np.where(np.arange(flat.num_edges) % 50 == 49, 1e-200, flat.weight))
        whole = view_of(flat, 0.0, cardinality, parts=parts)
        copy = flat._replace(weight=flat.weight.copy())
        view = relative_view(copy, cardinality, lambda work, *_: work(np.zeros(2, dtype=np.int64)), parts)
        if not whole.bounds.faithful:
            assert view is None
            small += 1
            continue
        assert np.array_equal(view.flat.weight, whole.bounds.share)
        assert np.array_equal(view.bounds.deterministic, whole.bounds.deterministic)
        assert (view.log_factor, view.bounds.least) == (whole.bounds.log_upper, whole.bounds.least)
        again = view_of(view.flat, view.log_factor, cardinality)  # the bounds of what is left are 1
        np.testing.assert_allclose(again.bounds.value, 1.0, rtol=1e-11)
        state = np.zeros(cardinality.size, dtype=np.int32)
        value = log_value(view.flat, state) + view.log_factor
        assert value == pytest.approx(log_value(flat, state), rel=1e-12)
        compared += 1
    assert compared > 20
    assert small > 5


@pytest.mark.parametrize("planned", [True, False])
def test_a_reduced_circuit_that_was_written_over_in_vain_is_made_again(small_pieces, monkeypatch, planned):
    def in_vain(flat, cardinality, run, parts, known, beside):
        flat.weight.fill(np.nan)
        if planned:
            beside(np.zeros(2, dtype=np.int64))

    for circuit, query, given in trees(12, least=700):
        expected = mm.marginal_map(circuit, query, given)
        with monkeypatch.context() as patch:
            patch.setattr(solving, "relative_view", in_vain)
            found = mm.marginal_map(circuit, query, given)
        assert (found.status, found.state, found.log_prob) == ("optimal", expected.state, expected.log_prob)
        assert found.log_upper == pytest.approx(expected.log_upper, abs=1e-9)


def test_a_plan_beside_the_bounds_is_the_one_made_alone(small_pieces):
    """And the bounds, their rounding and the cut are the same; if supports are needed for the bounds as well."""
    compared, limits = 0, Limits(None)
    for circuit, query, given in trees(60, least=1000):
        make = partial(reduce_codes, circuit, query, *circuit.evidence_codes(given))
        alone, reduced = make(), make()
        if reduced.parts is None or rows_of(alone.flat, alone.parts, alone.rows) is None:
            continue
        found = solving.plan_for(dataclasses.replace(reduced, again=make), limits)
        flat, plan = make_plan(alone.flat, alone.cardinality.size, scope=alone.scope)
        if found.ready is None:
            continue
        assert found.flat is found.ready.view.flat
        assert all(np.array_equal(one, other) for one, other in zip(found.plan, plan, strict=True))
        assert found.ready.rounding == rounding_of(flat, plan, alone.rows)
        cut = cut_of(plan, alone.parts)
        assert (found.ready.cut is None) == (cut is None)
        if cut is not None:
            assert all(np.array_equal(one, other) for one, other in zip(found.ready.cut[2:], cut[2:], strict=True))
            assert found.ready.cut[:2] == cut[:2]
        compared += found.ready.view.log_factor != 0
    assert compared > 15


def test_a_circuit_that_is_rewritten_for_its_plan_is_made_again(small_pieces, monkeypatch):
    """Its bounds are then written over its weights already."""
    again, shares = [], []

    def skips_levels(*given):
        return False, plan_with(*given)[1]

    def seen(reduced, *given):
        shares.append(reduced.flat)
        return with_bounds(reduced, *given)

    with_bounds = solving._with_bounds
    for circuit, query, given in trees(12, least=1100):
        expected = mm.marginal_map(circuit, query, given)
        with monkeypatch.context() as patch:
            patch.setattr(solving, "plan_with", skips_levels)
            patch.setattr(solving, "_with_bounds", seen)
            patch.setattr(solving, "make_plan", lambda flat, *rest: again.append(flat) or make_plan(flat, *rest))
            found = mm.marginal_map(circuit, query, given)
        assert (found.status, found.state, found.log_prob) == ("optimal", expected.state, expected.log_prob)
        assert found.log_upper == pytest.approx(expected.log_upper, abs=1e-9)
    assert len(shares) > 6
    assert all(one is not other for one, other in itertools.product(shares, again))


def test_work_beside_the_parts_is_done_with_them():
    done = []
    parts, work = np.array([2, 5, 9]), lambda begin, end: done.append((begin, end)) or end
    assert upwards(parts, 11, work, lambda: done.append("beside")) == [2, 5, 9, 11]
    assert done[0] == (0, 2)
    assert done[-1] == (9, 11)
    assert set(done[1:-1]) == {(2, 5), (5, 9), "beside"}


def test_which_sums_are_deterministic_is_told_without_supports(small_pieces):
    told = 0
    for circuit, query, given in trees(80, least=800):
        reduced = reduce_codes(circuit, query, *circuit.evidence_codes(given))
        found = deterministic_if_plain(reduced.flat, reduced.cardinality, parts=reduced.parts)
        supports = find_supports(reduced.flat, reduced.cardinality)
        if found is not None:
            assert np.array_equal(found, find_deterministic(reduced.flat, supports))
            told += 1
    assert told > 40
    x, y = mm.Variable("x", 4), mm.Variable("y")
    low, high = (0.5 * mm.indicator(x, a) + 0.5 * mm.indicator(x, a + 1) for a in (0, 2))  # exclude each other
    circuit = mm.circuit_of(0.5 * low * mm.bernoulli(y, 0.25) + 0.5 * high * mm.bernoulli(y, 0.75))
    reduced = reduce_codes(circuit, [0, 1], *circuit.evidence_codes({}))
    assert deterministic_if_plain(reduced.flat, reduced.cardinality) is None
    assert find_deterministic(reduced.flat, find_supports(reduced.flat, reduced.cardinality))[-1]


def test_answers_are_the_same_on_any_number_of_threads(small_pieces, monkeypatch):
    for circuit, query, given in trees(60, least=200):
        one, two, four = (mm.marginal_map(circuit, query, given, threads=number) for number in (1, 2, 4))
        assert bare(one) == bare(two) == bare(four)
        with monkeypatch.context() as patch:
            patch.setattr(reducing, "pieces_of", lambda _circuit: None)
            whole = mm.marginal_map(circuit, query, given)
        assert one.status == whole.status == "optimal"
        assert one.log_prob == pytest.approx(whole.log_prob, rel=1e-12)
        assert mm.marginal_map(circuit, None, given, threads=2).status == "optimal"


def test_queries_from_several_threads_at_once(small_pieces):
    """Each of them shares its work with the same helpers."""
    asked = list(trees(12, least=300))
    expected = [bare(mm.marginal_map(*each, threads=1)) for each in asked]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(4):
            found = list(pool.map(lambda each: bare(mm.marginal_map(*each, threads=3)), asked))
            assert found == expected


def test_work_is_shared_and_its_errors_come_back(monkeypatch):
    monkeypatch.setattr("margmap.foundation.threads.interprets", lambda: False)
    both = threading.Barrier(2, timeout=20)
    with using_threads(2):
        assert number_of_threads() == 2
        assert at_once([lambda: both.wait() >= 0, lambda: both.wait() >= 0]) == [True, True]  # two at the same time
        assert at_once([lambda i=i: time.sleep(0.001 * (5 - i)) or i for i in range(5)]) == list(range(5))
        with pytest.raises(ZeroDivisionError):
            at_once([lambda: 1 / 0, lambda: 1])
        begun = []
        assert at_once([lambda i=i: begun.append(i) or time.sleep(0.02) or i for i in range(4)], [1, 5, 2, 7]) == [
            *range(4)
        ]
        assert sorted(begun[:2]) == [1, 3]  # the largest first
    here = threading.get_ident()
    with using_threads(1):
        assert at_once([threading.get_ident, threading.get_ident]) == [here, here]


def test_a_helper_that_has_not_begun_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(threads, "interprets", lambda: False)
    late, found, seen = [], [], []

    class Late:
        def begin(self, task, cores):
            late.append(task)

    monkeypatch.setattr(threads._helpers, "one", Late)
    calls = [lambda i=i: seen.append(i) or i for i in range(4)]

    def ask():
        with using_threads(2):
            found.append(at_once(calls))

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(20)
    assert found == [[0, 1, 2, 3]]
    late[0].do(threads._Helper())
    assert seen == [0, 1, 2, 3]  # it does nothing when it comes


def test_the_helper_used_last_is_the_next_one(monkeypatch):
    monkeypatch.setattr(threads, "interprets", lambda: False)
    monkeypatch.setattr(threads, "_helpers", threads._Helpers())
    both, helpers = threading.Barrier(2, timeout=20), set()

    def one():
        both.wait()
        return threading.get_ident()

    with using_threads(2):
        for _ in range(50):
            helpers |= set(at_once([one, one]))
    assert helpers - {threading.get_ident()} != set()
    assert len(helpers) == 2
    assert threads._helpers.made == 1


def test_there_are_no_more_helpers_than_cores(monkeypatch):
    monkeypatch.setattr(threads, "interprets", lambda: False)
    monkeypatch.setattr(threads, "_helpers", threads._Helpers())
    with using_threads(1000):
        assert at_once([lambda i=i: time.sleep(0.001) or i for i in range(300)]) == list(range(300))
    assert threads._helpers.made <= max(usable_cores(), os.cpu_count())
    threads._helpers.begin_anew()  # as in a process that was forked
    assert (len(threads._helpers.idle), threads._helpers.made) == (0, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="where a thread runs can be told on Linux only")
def test_helpers_leave_the_core_of_who_asks_them(monkeypatch):
    monkeypatch.setattr(threads, "interprets", lambda: False)
    usable, both = os.sched_getaffinity(0), threading.Barrier(2, timeout=20)

    def cores():
        both.wait()
        return threading.get_ident(), os.sched_getaffinity(0)

    for core in (min(usable), max(usable), -1):
        monkeypatch.setattr(threads, "_core_asked", lambda core=core: lambda: core)
        with using_threads(2):
            found = dict(at_once([cores, cores]))
        assert found.pop(threading.get_ident()) == usable
        assert list(found.values()) == [usable - {core} or usable]
    assert os.sched_getaffinity(0) == usable
    monkeypatch.undo()
    assert threads._core_asked()() in os.sched_getaffinity(0)


def test_how_many_threads(monkeypatch):
    monkeypatch.setenv("MARGMAP_THREADS", "3")
    assert number_of_threads() == 3
    with using_threads(5):
        assert number_of_threads() == 5
        with using_threads(None):
            assert number_of_threads() == 5
    for wrong in ("0", "many", "-1"):
        monkeypatch.setenv("MARGMAP_THREADS", wrong)
        with pytest.raises(mm.QueryError, match="MARGMAP_THREADS"):
            number_of_threads()
    monkeypatch.setenv("MARGMAP_THREADS", "")
    assert number_of_threads() >= 1
    for given in (0, True, "two", 1.5):
        with pytest.raises(mm.QueryError, match="threads"):
            mm.marginal_map(latent_tree(0, variables=3, states=2), [0], threads=given)
        with pytest.raises(mm.QueryError, match="threads"):
            mm.marginal_map_many(latent_tree(0, variables=3, states=2), [0], [{}], threads=given)


def test_a_limit_reaches_the_pieces(small_pieces, monkeypatch):
    """A query that is stopped at once still has a state and both bounds."""
    circuit, query, given = next(iter(trees(1, least=7)))
    answer = mm.marginal_map(circuit, query, given, time_limit=1e-9, threads=2)
    assert answer.state is not None
    assert answer.log_prob <= answer.log_upper


def test_climbing_by_parts_is_climbing(small_pieces):
    climbed = 0
    for circuit, query, given in trees(60, least=400):
        reduced = reduce_codes(circuit, query, *circuit.evidence_codes(given))
        if reduced.parts is None:
            continue
        bounds = view_of(reduced.flat, 0.0, reduced.cardinality, parts=reduced.parts).bounds
        whole = view_of(reduced.flat, 0.0, reduced.cardinality).bounds
        assert np.array_equal(bounds.share, whole.share)
        assert (bounds.log_upper, bounds.least, bounds.faithful) == (whole.log_upper, whole.least, whole.faithful)
        if bounds.rows is None:
            continue
        groups = np.full(reduced.cardinality.size, -1, dtype=np.int32)
        states = np.random.default_rng(0).integers(
            0, reduced.cardinality, (3, reduced.cardinality.size), dtype=np.int32
        )
        for state in states:
            one, other = (climb_from(state, reduced.num_nodes, groups) for _ in range(2))
            for first in (True, False):
                begun = go_on(reduced.flat, bounds.rows, one, 2, first)
                assert begun == go_on_by_parts(reduced.flat, bounds.rows, reduced.parts, other, 2, first)
                assert np.array_equal(one.state, other.state)
                assert one.phase[1] == other.phase[1]
            climbed += 1
    assert climbed > 60


def test_neighbours_are_changed_one_at_a_time():
    """Of a pair that meets in a product only the better one; a variable that meets nobody is a group of its own."""
    groups = np.array([7, 7, 9, 11, 9], dtype=np.int32)
    gain, value = np.array([1.2, 1.5, 1.1, 2.0, 1.1]), np.array([1, 0, 1, -1, 0], dtype=np.int32)
    state = np.full(5, 5, dtype=np.int32)
    assert change_apart(groups, gain, value, state) == 2
    assert state.tolist() == [5, 0, 1, 5, 5]
    circuit = latent_tree(0, variables=4, states=8)
    groups = neighbourhoods(reduce_codes(circuit, [0, 1, 2, 3], *circuit.evidence_codes({})).flat, 4)
    assert len(set(groups.tolist())) == 2  # two pairs of leaves below the root
