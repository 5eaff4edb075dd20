"""Large circuits in pieces, on several threads: the answers are those of one thread, to the last bit, and proven."""

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import margmap as mm
from margmap.bench.generators import latent_tree
from margmap.foundation.threads import at_once, number_of_threads, using_threads
from margmap.inference import pieces
from margmap.inference.passes import forward_dense
from margmap.inference.pieces import pass_up, pieces_of
from margmap.inference.scaled import scaled
from margmap.solve import reduce as reducing
from margmap.solve.hill_climb import change_apart, climb_from, go_on, go_on_by_parts, neighbourhoods
from margmap.solve.output_bounds import view_of
from margmap.solve.query_circuit import rebuild
from margmap.solve.reduce import reduce_codes
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
    here = threading.get_ident()
    with using_threads(1):
        assert at_once([threading.get_ident, threading.get_ident]) == [here, here]


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
