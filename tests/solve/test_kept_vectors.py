"""Vectors that a session keeps from one question to the next, against enumeration: long walks, little room, floors."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

import margmap as mm
import naive
from circuits import random_circuit
from counts import cases
from margmap.circuit import CATEGORICAL, Parts, assemble
from margmap.foundation import jit
from margmap.foundation.pairs import UP
from margmap.solve.methods.frontier import kept_vectors as kv
from margmap.solve.methods.frontier.kept import KeptFrontier

#: Sorts of structured circuits, whose products fit a tree of scopes.
STRUCTURED = {
    "plain": {"variables": 8, "most": 90},
    "deterministic": {"variables": 8, "deterministic": True, "most": 90},
    "several values": {"variables": 6, "values": (2, 3, 4)},
    "several values, deterministic": {"variables": 6, "values": (2, 3, 4), "deterministic": True},
    "extreme weights": {"variables": 7, "spread": 12.0},
    "normalised": {"variables": 8, "normalised": True, "zeros": False, "most": 120},
    "many variables": {"variables": 10, "most": 250, "asked": (5, 6, 7)},
    "many variables, deterministic": {"variables": 10, "most": 250, "deterministic": True, "asked": (5, 6, 7)},
    "wide": {"wide": True, "variables": 10, "nodes": 9, "asked": (5, 6, 7)},
    "wide, extreme weights": {"wide": True, "variables": 9, "spread": 4.0, "asked": (4, 5, 6)},
    "wide, several values": {"wide": True, "variables": 6, "values": 4, "spread": 2.0},
    "wide, of many parts": {"wide": True, "variables": 9, "nodes": 7, "most_parts": 4, "asked": (5, 6)},
}


class Table:
    """The joint distribution of a circuit without continuous variables, enumerated once."""

    def __init__(self, circuit):
        self.circuit, self.names = circuit, [v.name for v in circuit.variables]
        self.joint = np.zeros([v.cardinality for v in circuit.variables])
        for p, state in naive.joint(circuit):
            self.joint[tuple(x or 0 for x in state)] = p

    def best(self, query, known):
        """The probability of the best state of the query together with the evidence."""
        at = [known.get(v.name, slice(None)) for v in self.circuit.variables]
        at = [v.states.index(x) if isinstance(x, str) else x for v, x in zip(self.circuit.variables, at, strict=True)]
        left = [name for name in self.names if name not in known]
        hidden = tuple(i for i, name in enumerate(left) if name not in query)
        return float(self.joint[tuple(at)].sum(axis=hidden).max())

    def of(self, query, state, known):
        """The probability of one state of the query together with the evidence."""
        return self.best(query, {**known, **state})


def walk(rng, circuit, query, number):
    """Evidence that changes one variable at a time, often back to what it was, and now and then a few at once."""
    others, known, before = [v for v in circuit.variables if v.name not in query], {}, {}
    for _ in range(number):
        last = dict(known)
        if rng.random() < 0.25:
            known = dict(before)
        for _ in range(1 if rng.random() < 0.85 else 3):
            v = others[rng.integers(len(others))]
            if v.name in known and rng.random() < 0.3:
                del known[v.name]
            else:
                known[v.name] = v.label(int(rng.integers(v.cardinality)))
        before = last
        yield dict(known)


def wide_circuit(rng, variables, values=2, spread=1.0, nodes=6, most_parts=2, zeros=True):
    """A tree of scopes with several sums each, over two to four products of nodes of their parts."""
    parts = Parts.new()

    def shares(size):
        logs = rng.normal(0, spread, size)
        logs[rng.random(size) < 0.1 * zeros] = -np.inf
        logs[rng.integers(size)] = 0.0
        return logs - np.logaddexp.reduce(logs)

    scopes = [
        [parts.leaf(CATEGORICAL, v, shares(values).tolist()) for _ in range(int(rng.integers(2, 5)))]
        for v in range(variables)
    ]
    while len(scopes) > 1:
        size = min(len(scopes), int(rng.integers(2, most_parts + 1)))
        below = [scopes.pop(int(rng.integers(len(scopes)))) for _ in range(size)]
        made = []
        for _ in range(nodes if scopes else 1):
            k = int(rng.integers(2, 5))
            products = [parts.product([some[rng.integers(len(some))] for some in below]) for _ in range(k)]
            made.append(parts.sum(products, shares(k).tolist()))
        scopes.append(made)
    return assemble([mm.Variable(f"X{i}", values) for i in range(variables)], parts)


def problem(rng, asked=(3, 4), wide=False, **options):
    """A circuit, its table, and some of its variables as a query."""
    circuit = wide_circuit(rng, **options) if wide else random_circuit(rng, **options)
    names = [circuit.variables[i].name for i in rng.permutation(len(circuit.variables))]
    return circuit, Table(circuit), names[: int(rng.choice(asked))]


def scopes_reached(flat, scope):
    """How many scopes the nodes below the root have."""
    found, waiting = set(), [flat.kind.size - 1]
    while waiting:
        n = waiting.pop()
        if n not in found:
            found.add(n)
            waiting.extend(flat.child[flat.start[n] : flat.start[n + 1]].tolist())
    return len({int(scope[n]) for n in found})


@pytest.fixture
def seen(monkeypatch):
    """Questions, what ``best`` found, and sweeps: how each ended, how many scopes it went over, how many there are."""
    noted, sweep, best = SimpleNamespace(sweeps=[], found=[], asked=0), kv.sweep_again, kv.KeptVectors.best
    solve = KeptFrontier.solve

    def watched_solve(*arguments):
        noted.asked += 1
        return solve(*arguments)

    def watched(flat, share, scope, *more):
        ended = sweep(flat, share, scope, *more)
        noted.sweeps.append((int(ended[0]), int(ended[3]), scopes_reached(flat, scope)))
        return ended

    def watched_best(*arguments):
        noted.found.append(best(*arguments))
        return noted.found[-1]

    monkeypatch.setattr(kv, "sweep_again", watched)
    monkeypatch.setattr(kv.KeptVectors, "best", watched_best)
    monkeypatch.setattr(KeptFrontier, "solve", watched_solve)
    noted.ends = lambda: [end for end, _, _ in noted.sweeps]
    noted.answers = lambda: [one for one in noted.found if one is not None]
    noted.hits = lambda: [one for one in noted.sweeps if one[0] == kv.FOUND and one[1] < one[2]]
    return noted


def vectors_of(session):
    """What a session keeps of the vectors of its only query."""
    (one,) = session._memory._reductions.values()
    return one.kept._frontier._vectors


def ask(session, table, query, known):
    """A question whose answer is that of enumeration, if there is one."""
    best = table.best(query, known)
    if best == 0:
        with pytest.raises(mm.ImpossibleEvidenceError):
            session.marginal_map(query, known)
        return None
    result = session.marginal_map(query, known)
    assert result.status == "optimal"
    assert result.log_prob == pytest.approx(math.log(best), rel=1e-11, abs=1e-11)
    assert math.log(table.of(query, result.state, known)) == pytest.approx(math.log(best), rel=1e-11, abs=1e-11)
    assert math.log(best) - 1e-12 * (1 + abs(math.log(best))) <= result.log_upper <= result.log_prob + 1e-8
    return result


def ask_on_a_walk(rng, circuit, table, query, number):
    """Questions in a row, each compared with enumeration; the session."""
    session = mm.Session(circuit)
    for known in walk(rng, circuit, query, number):
        ask(session, table, query, known)
    return session


def ask_of_many(circuits, number, seed=0, sorts=STRUCTURED):
    """Walks on so many circuits of each sort."""
    for i, options in enumerate(sorts.values()):
        rng = np.random.default_rng([seed, i])
        for _ in range(circuits):
            ask_on_a_walk(rng, *problem(rng, **options), number)


@pytest.mark.parametrize("sort", STRUCTURED)
def test_long_walks_against_enumeration(sort, seen):
    ask_of_many(cases(14 if "many" in sort else 20), 60, sorts={sort: STRUCTURED[sort]})
    assert len(seen.found) > 600
    assert len(seen.found) > 0.95 * seen.asked
    assert len(seen.answers()) > 0.9 * len(seen.found)
    assert len(seen.hits()) > 0.8 * len(seen.answers())


@pytest.mark.parametrize("room", [1.0, 1.5, 3.0, 20.0])
def test_floors_just_under_the_answers(room, seen, monkeypatch):
    """Where floors are low, few of the vectors that are dropped would have been needed."""
    monkeypatch.setattr(kv, "ROOM", room)
    monkeypatch.setattr(kv, "BELOW", (1e-9, 0.05, 0.5, 3.0, 30.0))
    ask_of_many(cases(5), 60, seed=99)
    assert len(seen.answers()) > 0.9 * len(seen.found)
    assert len(seen.hits()) > 0.6 * len(seen.answers())


@pytest.mark.parametrize("room", [1.0, 50.0])
@pytest.mark.parametrize("below", [(-5.0, -1.0, 0.0, 0.5), (-0.001, 12.0), (0.0, 1e-9, 30.0), (40.0,)])
def test_whatever_the_floor_and_the_room(room, below, seen, monkeypatch):
    """Floors above every answer, at one, and far below all of them; vectors for this question alone, and for others."""
    monkeypatch.setattr(kv, "ROOM", room)
    monkeypatch.setattr(kv, "BELOW", below)
    ask_of_many(2, 40, seed=1)
    assert len(seen.answers()) > 200
    assert len(seen.hits()) > 100
    # Vectors that are made for larger bounds prove answers below the floor as well.
    assert (kv.NONE_ABOVE in seen.ends()) == (below[0] == -5 or (room == 1 and below[0] <= 0))


@pytest.fixture
def sizes(monkeypatch):
    """Sizes that some arrays of ``KeptVectors`` have in place of their own."""
    given, begin = {}, kv.KeptVectors.__init__

    def made(self, *arguments):
        begin(self, *arguments)
        self._sizes.update(given)

    monkeypatch.setattr(kv.KeptVectors, "__init__", made)
    return given


@pytest.mark.parametrize(
    ("kind", "arrays"),
    [
        (kv._COLUMNS, ["form", "bound"]),
        (kv._ENTRIES, ["entry"]),
        (kv._VECTORS, ["assignment"]),
        (kv._ASSIGNMENTS, ["left", "right"]),
    ],
    ids=["columns", "entries", "vectors", "assignments"],
)
def test_little_room(kind, arrays, seen, sizes):
    """There is room for the vectors of a question or two, and not for those of many: then all are forgotten."""
    for i in range(12):
        rng = np.random.default_rng([2, i])
        sort = ("wide", "wide, extreme weights", "wide, several values")[i % 3]
        circuit, table, query = problem(rng, **{**STRUCTURED[sort], "zeros": False})
        sizes.clear()
        used = vectors_of(ask_on_a_walk(rng, circuit, table, query, 30))._kept.used[kind]
        sizes.update(dict.fromkeys(arrays, int(0.8 * used)))
        ask_on_a_walk(rng, circuit, table, query, 60)
    ends = seen.ends()
    assert ends.count(kv.NO_ROOM) > 10
    after = [seen.sweeps[i + 1 :][:12] for i, end in enumerate(ends) if end == kv.NO_ROOM]
    again = [any(end == kv.FOUND and went < of for end, went, of in some) for some in after]
    assert sum(again) > len(again) / 2


@pytest.mark.parametrize("name", ["form", "entry", "assignment", "left"])
def test_no_room_at_all(name, seen, sizes):
    """Not even for the vectors of one scope: questions go the way of all others, and that for a while."""
    sizes.update(dict.fromkeys({"form": ("form", "bound"), "left": ("left", "right")}.get(name, (name,)), 1))
    rng = np.random.default_rng(3)
    circuit, table, query = problem(rng, variables=8, most=90, zeros=False)
    session = ask_on_a_walk(rng, circuit, table, query, 70)
    assert seen.answers() == []
    assert set(seen.ends()) == {kv.NO_ROOM}
    assert len(seen.sweeps) <= 3 * (1 + len(seen.found) // (kv.PAUSE + 1))
    assert len(seen.found) > kv.PAUSE + 5
    assert 0 <= vectors_of(session)._pause <= kv.PAUSE


def test_questions_that_take_long_go_another_way_for_a_while(seen, monkeypatch):
    monkeypatch.setattr(kv, "MOST_WORK", 10)
    rng = np.random.default_rng(4)
    circuit, table, query = problem(rng, variables=8, most=90, zeros=False)
    pauses, session = [], mm.Session(circuit)
    for known in walk(rng, circuit, query, 80):
        before = len(seen.sweeps)
        ask(session, table, query, known)
        pauses.append((vectors_of(session)._pause, len(seen.sweeps) > before))
    tried = [i for i, (_, swept) in enumerate(pauses) if swept]
    assert len(tried) >= 2
    assert kv.UNFIT in seen.ends()
    assert seen.answers() == []
    for i, (pause, swept) in enumerate(pauses[tried[0] :]):
        assert pause == kv.PAUSE - i % (kv.PAUSE + 1)
        assert swept == (pause == kv.PAUSE)
    monkeypatch.setattr(kv, "MOST_WORK", 3_000_000)
    for known in walk(rng, circuit, query, 2 * kv.PAUSE):
        ask(session, table, query, known)
    assert len(seen.hits()) > 5


@pytest.mark.parametrize(("name", "most"), [("MOST", 2), ("MOST_PAIRS", 3), ("LARGEST", 0.5)])
def test_questions_with_many_vectors_go_another_way(name, most, seen, monkeypatch):
    """Interpreted, since limits are constants of the machine code."""
    monkeypatch.setattr(kv, "PAUSE", 3)
    for kernel in (kv._vectors_of, kv._list_nodes):
        known = kernel.interpreted.__globals__
        if name in known:
            monkeypatch.setitem(known, name, most)
    rng = np.random.default_rng(5)
    with jit.forced("interpret"):
        for sort in ("plain", "several values", "wide"):
            for _ in range(2):
                ask_on_a_walk(rng, *problem(rng, **STRUCTURED[sort]), 16)
    assert kv.UNFIT in seen.ends()


def test_the_count_of_sweeps_begins_anew(seen):
    rng = np.random.default_rng(6)
    for left in (-1, 0, 1, 5):
        circuit, table, query = problem(rng, variables=8, most=90, zeros=False)
        session = ask_on_a_walk(rng, circuit, table, query, 20)
        vectors = vectors_of(session)
        used = vectors._kept.used
        used[kv._SWEEPS] = kv._MOST_SWEEPS - left
        for known in walk(rng, circuit, query, 30):
            ask(session, table, query, known)
            assert vectors._kept.used[kv._SWEEPS] < 2**31
        assert vectors._kept.used is not used
        assert 0 < vectors._kept.used[kv._SWEEPS] <= 100
    assert len(seen.hits()) > 120


def test_the_store_is_emptied_with_its_vectors(seen, monkeypatch):
    monkeypatch.setattr("margmap.solve.kept_reduction.LEAST_EDGES", 1)
    emptied, empty = [], KeptFrontier.empty

    def watched(self):
        emptied.append(hasattr(self, "count") and self._vectors._kept is not None)
        empty(self)

    monkeypatch.setattr(KeptFrontier, "empty", watched)
    for most in (1, 2):
        monkeypatch.setattr("margmap.solve.kept_reduction.MOST_TIMES", most)
        ask_of_many(2, 60, seed=7 + most)
    assert sum(emptied) > 20
    assert len(seen.hits()) > 100


def test_interrupted_in_a_sweep(seen, monkeypatch):
    """What a sweep has half done is forgotten with all the rest."""
    sweep = kv.sweep_again  # which is watched
    rng = np.random.default_rng(11)
    for options in (STRUCTURED["plain"], STRUCTURED["wide"]):
        circuit, table, query = problem(rng, **{**options, "zeros": False})
        session = mm.Session(circuit)
        for i, known in enumerate(walk(rng, circuit, query, 60)):
            if i % 7 == 6:

                def interrupted(*arguments):
                    sweep(*arguments[:-1], 200)  # it ends somewhere on the way
                    raise KeyboardInterrupt

                with monkeypatch.context() as patched:
                    patched.setattr(kv, "sweep_again", interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        session.marginal_map(query, known)
            ask(session, table, query, known)
    assert kv.UNFIT in seen.ends()
    assert len(seen.hits()) > 50


def test_a_vector_is_taken_again_only_for_bounds_that_it_is_good_for():
    """A scope with two columns, forms 5 and 9, whose vectors are good for outside bounds of 8 and 4 times the floor."""
    kept, desk = kv.KeptVectors(2, 16)._fitting(16, 16)
    kept.columns[1], kept.column_at[1] = 2, 3
    kept.form[3:5], kept.bound[3:5] = (5, 9), (8.0, 4.0)
    desk.column[5], desk.column[9] = 0, 1
    outside, floor = np.zeros(16), 0.25

    def good(columns, bounds, room=64.0, scope=1):
        outside[columns] = bounds
        out = np.array([0, *columns], dtype=np.int32)
        return kv._good_for.interpreted(kept, desk.column, scope, out, 1, out.size, outside, floor, room)

    assert good([5, 9], [0.5, 0.25]) == 4.0  # 8 times a quarter is 2, which is four times a half
    assert good([9, 5], [0.125, 0.5]) == 4.0
    assert good([5, 9], [0.25, 0.5]) == 2.0
    assert good([5, 9], [0.5, 0.25], room=3.0) == 3.0
    assert good([5], [0.0], room=7.0) == 7.0
    assert good([9], [1.0]) == 1.0  # exactly the bound
    assert good([5, 9], [2.0, 1.0]) == 1.0
    assert good([9], [1.0], room=1.0) == 1.0
    assert good([9], [UP]) > 0  # one rounding more, which is counted
    for columns, bounds in (([9], [1.0 + 1e-12]), ([5, 9], [2.0 + 1e-12, 1.0]), ([5, 9], [0.5, 1.5]), ([5], [4.0])):
        assert good(columns, bounds) == good(columns, bounds, room=1.0) == 0.0
    assert good([5], [math.inf]) == 0.0
    # Columns that are not kept: another form, one whose column is another one's now, one beyond those that are kept.
    assert good([7], [1e-9]) == good([5, 7], [0.5, 1e-9]) == 0.0
    desk.column[7] = 1
    assert good([7], [1e-9]) == good([5, 7], [0.5, 1e-9]) == 0.0
    kept.form[5], kept.bound[5], desk.column[8] = 8, 100.0, 2
    assert good([8], [1e-9]) == 0.0
    assert good([5], [0.5], scope=0) == 0.0  # nothing is kept of that scope
    kept.columns[1] = 0
    assert good([5], [0.5]) == 0.0


def test_interpreted(seen):
    """The same states and values as in machine code."""
    for sort in ("plain", "several values, deterministic", "many variables", "wide"):
        tiers = []
        for tier in ("compile", "interpret"):
            rng = np.random.default_rng(8)
            circuit, table, query = problem(rng, **{**STRUCTURED[sort], "zeros": False})
            session = mm.Session(circuit)
            with jit.forced(tier):
                tiers.append([ask(session, table, query, known) for known in walk(rng, circuit, query, 15)])
        assert any(seen.hits())
        for first, second in zip(*tiers, strict=True):
            assert first.state == second.state
            assert first.log_prob == pytest.approx(second.log_prob, rel=1e-12)
            assert first.log_upper == pytest.approx(second.log_upper, rel=1e-12, abs=1e-12)
            assert first.details["why"] == second.details["why"]


def test_the_room_that_is_taken_is_what_was_foretold(seen, monkeypatch):
    told, solve, bytes_for = [], KeptFrontier.solve, kv.KeptVectors.bytes_for

    def watched(self, store, *more):
        outcome = solve(self, store, *more)
        vectors = self._vectors
        held = 0 if vectors._kept is None else sum(a.nbytes for part in (vectors._kept, vectors._desk) for a in part)
        assert held == vectors.nbytes <= bytes_for(vectors, store.kind.size, store.child.size)
        assert self.nbytes <= self.bytes_for(store)
        told.append(held)
        return outcome

    monkeypatch.setattr(KeptFrontier, "solve", watched)
    ask_of_many(2, 30, seed=9)
    rng = np.random.default_rng(9)
    ask_on_a_walk(rng, *problem(rng, asked=(6,), variables=12, most=1500, zeros=False), 40)
    assert len(set(told)) > 5
    assert len(seen.hits()) > 100


def test_what_needs_more_memory_than_there_is_keeps_no_vectors(seen):
    rng = np.random.default_rng(10)
    circuit, table, query = problem(rng, variables=8, most=90, zeros=False)
    session = mm.Session(circuit, memory=200_000)
    for known in walk(rng, circuit, query, 20):
        ask(session, table, query, known)
        assert session.nbytes <= 200_000
    assert seen.found == []
