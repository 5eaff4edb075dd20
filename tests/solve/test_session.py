"""Questions in a row: the same answers as from scratch, whatever was asked before, and with however much room."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import numpy as np
import pytest

import margmap as mm
import naive
import plain_elimination as plain
from circuits import SORTS, columns, fixed, random_circuit, random_instance, without_sharing
from margmap.bench.generators import latent_tree
from margmap.circuit import SUM
from margmap.inference.kept_values import NONE
from margmap.inference.pieces import pass_up
from margmap.inference.queries import value_pair
from margmap.inference.scaled import is_dense, scaled
from margmap.solve import session as sessions
from margmap.solve.forms import build
from margmap.solve.kept_reduction import WANTED, KeptReduction
from margmap.solve.methods.frontier.kept import KeptFrontier, first_nodes
from margmap.solve.reduce import reduce, reduce_codes


def walked(flat):
    """The nodes of a reduced circuit in the order of a walk from the root, children first."""
    place, nodes = {}, []

    def visit(n):
        if n in place:
            return
        edges = slice(flat.start[n], flat.start[n + 1])
        below = flat.child[edges].tolist()
        for c in below:
            visit(c)
        place[n] = len(nodes)
        label = (int(flat.kind[n]), int(flat.var[n]), int(flat.value[n]))
        nodes.append((*label, tuple(place[c] for c in below), tuple(flat.weight[edges].tolist())))

    visit(flat.num_nodes - 1)
    return nodes


def steps(rng, circuit, query, evidence, number):
    """Evidence that changes one variable at a time: another value, none, or a variable more; not always possible."""
    known = dict(evidence)
    others = [v for v in circuit.variables if v.name not in query]
    for _ in range(number if others else 1):
        if others:
            v = others[rng.integers(len(others))]
            if v.name in known and rng.random() < 0.4:
                del known[v.name]
            elif v.continuous:
                known[v.name] = float(rng.normal(0, 1.5))
            else:
                known[v.name] = v.label(int(rng.integers(v.cardinality)))
        yield dict(known)


@pytest.mark.parametrize("sort", SORTS)
def test_the_reduction_is_that_from_scratch(sort):
    rng, compared = np.random.default_rng(7), 0
    for _ in range(12):
        circuit = random_circuit(rng, **SORTS[sort])
        query, evidence = random_instance(rng, circuit)
        kept = KeptReduction(circuit, columns(circuit, query))
        for known in steps(rng, circuit, query, evidence, 12):
            codes, reals = circuit.evidence_codes(known)
            try:
                expected = reduce(circuit, query, known)
            except mm.ImpossibleEvidenceError:
                with pytest.raises(mm.ImpossibleEvidenceError):
                    kept.reduce(codes, reals)
                continue
            found = kept.reduce(codes, reals)
            assert walked(found.flat) == walked(expected.flat)
            assert (found.evidence, found.rounding) == (expected.evidence, expected.rounding)
            assert (found.names, found.cardinality.tolist()) == (expected.names, expected.cardinality.tolist())
            compared += 1
    assert compared >= 12


@pytest.mark.parametrize("sort", SORTS)
def test_states_are_scored_to_the_last_bit(sort):
    """As by a pass over all nodes, one state after the other, under evidence that changes."""
    rng, compared = np.random.default_rng(9), 0
    for _ in range(8):
        circuit = random_circuit(rng, **SORTS[sort])
        query, evidence = random_instance(rng, circuit)
        asked = columns(circuit, query)
        kept = KeptReduction(circuit, asked)
        for known in steps(rng, circuit, query, evidence, 6):
            codes, reals = circuit.evidence_codes(known)
            try:
                kept.reduce(codes, reals)
            except mm.ImpossibleEvidenceError:
                continue
            for _ in range(3):
                state = np.array([rng.integers(circuit.cardinality[c]) for c in asked], dtype=np.int32)
                compared += scored_as_by_a_pass(kept, state, codes, reals) > 0
    assert compared >= 8


def scored_as_by_a_pass(kept, state, codes, reals):
    """The relative value of a state, which is to the last bit that of a pass over all nodes."""
    row, s = codes.copy(), scaled(kept.circuit)
    row[kept.columns] = state
    value, exponent = kept._scored(state, codes, reals).root_with(s, row, reals)
    assert (value * s.total, exponent + s.total_exponent) == value_pair(kept.circuit, row, reals)
    return value


@pytest.mark.parametrize("sort", SORTS)
def test_answers_against_enumeration(sort):
    rng = np.random.default_rng(11)
    for _ in range(6):
        circuit = random_circuit(rng, **SORTS[sort])
        session = mm.Session(circuit)
        for _ in range(2):
            query, evidence = random_instance(rng, circuit)
            for known in steps(rng, circuit, query, evidence, 5):
                answers_as_enumeration_and_from_scratch(session, circuit, query, known, k=2)


def answers_as_enumeration_and_from_scratch(session, circuit, query, known, **keywords):
    """Whether there is an answer; it is that of enumeration, with the numbers of a query from scratch."""
    ranked = naive.marginal_map(circuit, columns(circuit, query), fixed(circuit, known))
    if not ranked or ranked[0][0] == 0:
        with pytest.raises(mm.ImpossibleEvidenceError):
            session.marginal_map(query, known)
        return False
    result = session.marginal_map(query, known, **keywords)
    assert result.status == "optimal"
    assert result.log_prob == pytest.approx(naive.log(ranked[0][0]), rel=1e-9, abs=1e-9)
    assert result.log_prob == mm.marginal_map(circuit, query, known, **keywords).log_prob
    assert dict(session.posteriors(known)) == dict(mm.posteriors(circuit, known))
    return True


@pytest.mark.parametrize("tiny", [1e-2, 1e-40])
def test_states_far_below_the_evidence_are_scored_to_the_last_bit(tiny):
    """Without evidence no value needs a power of two; under a state some do, and then only in one part."""
    names, y = [mm.Variable(f"x{i}") for i in range(12)], mm.Variable("y")
    first, second = mm.bernoulli(names[0], tiny), mm.bernoulli(names[0], 0.5)
    for one in names[1:]:
        first, second = first * mm.bernoulli(one, tiny), second * mm.bernoulli(one, 0.5)
    mixed = mm.circuit_of(0.5 * first * mm.bernoulli(y, 0.5) + 1e-30 * second * mm.bernoulli(y, 0.2))
    asked = [mixed.names.index(v.name) for v in names]
    kept, rng = KeptReduction(mixed, asked), np.random.default_rng(0)
    for observed in ({}, {"y": 1}, {"y": 0}, {}):
        codes, reals = mixed.evidence_codes(observed)
        kept.reduce(codes, reals)
        assert kept.values.powers[0] == np.count_nonzero(kept.values.exponent) == 0
        for ones in (1.0, 0.0, 0.5, 0.9):
            state = (rng.random(12) < ones).astype(np.int32)
            scored_as_by_a_pass(kept, state, codes, reals)


def test_powers_of_two_of_an_earlier_state_are_forgotten():
    """One part needs a power under some states and none under others, and so does the other part."""

    def part(letter):
        names = [mm.Variable(f"{letter}{i}") for i in range(12)]
        first, second = mm.bernoulli(names[0], 1e-40), mm.bernoulli(names[0], 1e-39)
        for one in names[1:]:
            first, second = first * mm.bernoulli(one, 1e-40), second * mm.bernoulli(one, 1e-39)
        return 0.5 * first + 0.5 * second

    both = mm.circuit_of(part("a") * part("b"))
    kept, (codes, reals) = KeptReduction(both, list(range(24))), both.evidence_codes({})
    kept.reduce(codes, reals)
    for a, b in ((0, 1), (0, 0), (1, 0), (0, 0), (1, 1), (0, 1)):
        state = np.array([{"a": a, "b": b}[name[0]] for name in both.names], dtype=np.int32)
        scored_as_by_a_pass(kept, state, codes, reals)


@pytest.mark.parametrize("sort", ["structured", "deterministic", "many values", "with continuous", "extreme weights"])
def test_equal_nodes_are_asked_once(sort):
    """The same answers as enumeration has, and the same numbers as from scratch, of a circuit that shares nothing."""
    rng, smaller = np.random.default_rng(12), 0
    for _ in range(5):
        circuit = without_sharing(random_circuit(rng, **SORTS[sort]))
        query, evidence = random_instance(rng, circuit)
        session = mm.Session(circuit)
        for known in steps(rng, circuit, query, evidence, 6):
            if answers_as_enumeration_and_from_scratch(session, circuit, query, known):
                smaller += session._memory._asked is not session._circuit
    assert smaller > 0


@pytest.fixture
def sweeps(monkeypatch):
    """The outcomes of the sweeps over kept forms; None where one sweep did not prove the answer."""
    found, solve = [], KeptFrontier.solve

    def watched(*arguments):
        found.append(solve(*arguments))
        return found[-1]

    monkeypatch.setattr(KeptFrontier, "solve", watched)
    return found


def ask_in_a_row(rng, circuit, query, evidence, number):
    """Single answers of a session under evidence that changes step by step, compared with enumeration."""
    session = mm.Session(circuit)
    for known in steps(rng, circuit, query, evidence, number):
        ranked = naive.marginal_map(circuit, columns(circuit, query), fixed(circuit, known))
        if not ranked or ranked[0][0] == 0:
            with pytest.raises(mm.ImpossibleEvidenceError):
                session.marginal_map(query, known)
            continue
        result = session.marginal_map(query, known)
        best = naive.log(ranked[0][0])
        assert result.status == "optimal"
        assert result.log_prob == pytest.approx(best, rel=1e-9, abs=1e-9)
        assert result.log_upper >= best - 1e-12 * (1 + abs(best))
        assert mm.log_marginal(circuit, {**known, **result.state}) == pytest.approx(result.log_prob, rel=1e-12)


@pytest.mark.parametrize("sort", SORTS)
def test_single_answers_against_enumeration(sort, sweeps):
    rng = np.random.default_rng(12)
    for _ in range(8):
        circuit = random_circuit(rng, **SORTS[sort])
        ask_in_a_row(rng, circuit, *random_instance(rng, circuit), 8)
    assert sweeps


def test_single_answers_on_dense_blocks(sweeps, monkeypatch):
    for seed in range(6):
        monkeypatch.setattr("margmap.solve.kept_reduction.LEAST_EDGES", (1, 100_000)[seed % 2])
        monkeypatch.setattr("margmap.solve.kept_reduction.MOST_TIMES", (1, 3)[seed % 2])
        monkeypatch.setattr("margmap.solve.methods.frontier.kept.FIRST_WIDTH", 1 if seed > 3 else 64)
        rng, concentration = np.random.default_rng(seed), (1.0, 0.02)[seed % 2]
        circuit = latent_tree(seed, variables=7, states=8 + seed % 3, values=2 + seed % 2, concentration=concentration)
        order = rng.permutation(7).tolist()
        ask_in_a_row(rng, circuit, order[: 2 + seed % 3], {order[-1]: 0}, 12)
    proven = [outcome for outcome in sweeps if outcome is not None]
    assert len(sweeps) / 2 < len(proven) < len(sweeps)  # a sweep that keeps one vector proves little
    assert any(outcome.details["rounds"] for outcome in proven)


def test_a_kept_answer_within_limits(sweeps):
    """A session that is stopped in its sweep still has a state and a bound that holds."""
    circuit = latent_tree(3, variables=8, states=9)
    session = mm.Session(circuit)
    session.marginal_map([0, 1, 2, 3], {5: 0})
    result = session.marginal_map([0, 1, 2, 3], {5: 1}, time_limit=1e-9)
    best = mm.marginal_map(circuit, [0, 1, 2, 3], {5: 1})
    assert result.log_prob <= best.log_prob + 1e-12 <= result.log_upper + 1e-9
    assert session.marginal_map([0, 1, 2, 3], {5: 1}).log_prob == pytest.approx(best.log_prob, abs=1e-12)
    assert sweeps[-1] is not None


@pytest.mark.parametrize("kept", [True, False])
def test_networks(kept, monkeypatch):
    if not kept:
        monkeypatch.setattr(sessions, "kept_circuit", lambda network, limit: None)
    compared = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        kind = "bayes" if seed % 3 else "markov"
        cardinality, factors = plain.random_network(rng, 6, kind=kind, zeros=0.2)
        network = mm.Network([mm.Variable(f"v{i}", c) for i, c in enumerate(cardinality)], factors, kind)
        session = mm.Session(network)
        query = [f"v{i}" for i in rng.permutation(6)[:3]]
        for known in steps(rng, network, query, {}, 5):
            try:
                expected = mm.marginal_map(network, query, known)
            except mm.MargmapError as error:
                with pytest.raises(type(error)):
                    session.marginal_map(query, known)
                continue
            found = session.marginal_map(query, known)
            assert (found.status, expected.status) == ("optimal", "optimal")
            assert found.log_prob == pytest.approx(expected.log_prob, rel=1e-9, abs=1e-9)
            assert found.log_upper >= expected.log_prob - 1e-9
            assert session.mpe(known).log_prob == pytest.approx(mm.mpe(network, known).log_prob, rel=1e-9, abs=1e-9)
            for name, values in mm.posteriors(network, known).items():
                assert session.posteriors(known)[name] == pytest.approx(values)
            compared += 1
    assert compared > 30


def test_many_threads():
    rng = np.random.default_rng(3)
    circuit = random_circuit(rng, variables=10, most=400)
    names = list(circuit.names)
    session = mm.Session(circuit)
    questions = []
    for _ in range(60):
        order = rng.permutation(10)
        questions.append(
            ([names[i] for i in sorted(order[:3])], {names[order[4]]: circuit.variables[order[4]].label(0)})
        )
    questions = [one for one in questions if mm.log_marginal(circuit, one[1]) > -np.inf] * 3
    expected = [mm.marginal_map(circuit, *one).log_prob for one in questions]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: session.marginal_map(*one).log_prob, questions))
        shown = list(pool.map(lambda one: dict(session.posteriors(one[1])), questions))
    assert found == expected
    assert shown == [dict(mm.posteriors(circuit, one[1])) for one in questions]


def test_memory_is_bounded():
    rng = np.random.default_rng(5)
    circuit = random_circuit(rng, variables=10, most=400)
    names = list(circuit.names)
    most = 6 * KeptReduction.bytes_of(circuit) + 300_000
    session, unbounded = mm.Session(circuit, memory=most), mm.Session(circuit)
    for query in itertools.islice(itertools.combinations(names, 3), 40):
        for one in (session, unbounded, mm.Session(circuit, memory=0)):
            assert one.marginal_map(query).log_prob == mm.marginal_map(circuit, query).log_prob
        assert 0 < session.nbytes <= most
    assert unbounded.nbytes > most


def test_the_store_is_emptied(monkeypatch):
    monkeypatch.setattr("margmap.solve.kept_reduction.LEAST_EDGES", 1)
    monkeypatch.setattr("margmap.solve.kept_reduction.MOST_TIMES", 1)
    rng = np.random.default_rng(6)
    circuit = random_circuit(rng, variables=8, most=200)
    query = list(circuit.names)[:3]
    kept = KeptReduction(circuit, columns(circuit, query))
    for known in steps(rng, circuit, query, {}, 40):
        if mm.log_marginal(circuit, known) == -np.inf:
            continue
        codes, reals = circuit.evidence_codes(known)
        expected = reduce_codes(circuit, columns(circuit, query), codes, reals)
        assert walked(kept.reduce(codes, reals).flat) == walked(expected.flat)
        assert kept.count <= 3 * circuit.num_nodes


@pytest.mark.parametrize("half_done", [False, True])
@pytest.mark.parametrize("step", ["kept_values._bring", "kept_reduction._new_forms", "kept_reduction._reached"])
def test_interrupted_on_the_way(step, half_done, monkeypatch):
    rng = np.random.default_rng(8)
    circuit = random_circuit(rng, variables=8, most=200)
    query = list(circuit.names)[:3]
    kept = KeptReduction(circuit, columns(circuit, query))
    place = f"margmap.{'inference' if 'values' in step else 'solve'}.{step}"
    module, name = place.rsplit(".", 1)
    work = getattr(import_module(module), name)

    def interrupted(*arguments):
        if half_done:
            work(*arguments)
        raise KeyboardInterrupt

    asked = [{}, *steps(rng, circuit, query, {}, 12)]
    asked = [known for known in asked if mm.log_marginal(circuit, known) > -np.inf]
    kept.reduce(*circuit.evidence_codes(asked[-1]))
    for known in asked:
        row = circuit.evidence_codes(known)
        expected = walked(reduce_codes(circuit, columns(circuit, query), *row).flat)
        with monkeypatch.context() as patched:
            patched.setattr(place, interrupted)
            with pytest.raises(KeyboardInterrupt):
                kept.reduce(*row)
        for _ in range(2):
            assert walked(kept.reduce(*row).flat) == expected
    assert len(asked) > 5


def test_interrupted_while_nodes_are_marked_as_wanted(monkeypatch):
    """What is then marked has no form; the store has no room for any, so that the first call only marks."""
    rng = np.random.default_rng(9)
    circuit = random_circuit(rng, variables=8, most=200)
    kept = KeptReduction(circuit, [0, 1, 2])
    row = circuit.evidence_codes({})
    grow = kept._grow

    def interrupted(nodes, edges):
        if edges > 0:
            raise KeyboardInterrupt
        grow(nodes, edges)

    with monkeypatch.context() as patched:
        patched.setattr(kept, "_grow", interrupted)
        with pytest.raises(KeyboardInterrupt):
            kept.reduce(*row)
    assert (kept.forms.number == WANTED).any()
    assert walked(kept.reduce(*row).flat) == walked(reduce_codes(circuit, [0, 1, 2], *row).flat)


def lost_forms(circuit, before, forms, values):
    """Which nodes lose the form that they had: by hand, from the values before and after."""
    changed = (before[0] != values.value) | (before[1] != values.exponent)
    lost = np.zeros(circuit.num_nodes, dtype=bool)
    for n in range(circuit.num_nodes):
        below = circuit.child[circuit.start[n] : circuit.start[n + 1]]
        if forms[n] != NONE:
            lost[n] = lost[below].any() or (circuit.kind[n] == SUM and changed[below].any())
    return lost


def sparse_and_dense():
    """Circuits and queries; the last ones are of dense blocks."""
    for sort in SORTS:
        rng = np.random.default_rng(13)
        for _ in range(4):
            circuit = random_circuit(rng, **SORTS[sort])
            yield circuit, random_instance(rng, circuit)[0]
    for seed in range(4):
        yield latent_tree(seed, variables=7, states=8 + seed, values=2 + seed % 2), [0, 2, 5][: 1 + seed]


def test_forms_are_lost_where_something_changed_and_nowhere_else():
    """And those that stay are what a reduction from scratch makes, with the same factor."""
    compared = {True: [0, 0], False: [0, 0]}
    for circuit, query in sparse_and_dense():
        rng, asked = np.random.default_rng(14), columns(circuit, query)
        kept = KeptReduction(circuit, asked)
        for known in steps(rng, circuit, query, {}, 12):
            row = circuit.evidence_codes(known)
            forms, values = kept.forms.number, kept.values
            if values._row is None:
                if mm.log_marginal(circuit, known) > -np.inf:
                    kept.reduce(*row)
                continue
            before, had = (values.value.copy(), values.exponent.copy()), forms.copy()
            assert values.update(*row, forms) is False
            value, exponent = np.empty(circuit.num_nodes), np.empty(circuit.num_nodes)
            pass_up(circuit, *row, value, exponent)
            assert np.array_equal(values.value, value)
            assert np.array_equal(values.exponent, exponent)
            lost = lost_forms(circuit, before, had, values)
            assert np.array_equal(forms, np.where(lost, NONE, had))
            assert not values._marks.any()
            if value[-1] == 0:
                continue
            fresh = KeptReduction(circuit, asked)
            expected = walked(fresh.reduce(*row).flat)
            both = np.flatnonzero((forms != NONE) & (fresh.forms.number != NONE))
            for n in both[:: max(1, len(both) // 20)]:
                one, other = (walked(first_nodes(k.store, k.forms.number[n] + 1)) for k in (kept, fresh))
                assert one == other
                assert kept.forms.factor[n] == fresh.forms.factor[n]
            assert walked(kept.reduce(*row).flat) == expected
            counts = compared[is_dense(circuit)]
            counts[0] += np.count_nonzero(lost)
            counts[1] += len(both)
    assert min(min(counts) for counts in compared.values()) > 100


@pytest.mark.parametrize("tiny", [1e-60, 1e-90, 1e-200])
def test_values_need_powers_of_two_under_some_evidence(tiny):
    """Forms with and without looking at powers, in turns, are those from scratch."""
    names = [mm.Variable(f"x{i}") for i in range(10)]

    def part(p):
        product = mm.bernoulli(names[0], p)
        for one in names[1:]:
            product = product * (mm.bernoulli(one, p) if p < 0.1 else 0.5 * mm.bernoulli(one, p) + 0.5 * one[1])
        return product

    circuit = mm.circuit_of(0.5 * part(tiny) + 0.25 * part(2 * tiny) + 0.25 * tiny**1.5 * part(0.5))
    asked, rng, powers = [0, 4, 9], np.random.default_rng(15), []
    kept = KeptReduction(circuit, asked)
    for known in [{}, *steps(rng, circuit, ["x0", "x4", "x9"], {}, 60)] * 2:
        row = circuit.evidence_codes(known)
        expected = reduce_codes(circuit, asked, *row)
        found = kept.reduce(*row)
        assert walked(found.flat) == walked(expected.flat)
        assert (found.evidence, found.rounding) == (expected.evidence, expected.rounding)
        powers.append(int(kept.values.powers[0]))
        assert powers[-1] == np.count_nonzero(kept.values.exponent)
    assert 0 in powers
    assert any(powers)


def test_a_power_of_two_that_arises_among_new_forms_is_not_overlooked():
    """``build`` is told that there are none so far. One arises, since a value is far larger than what is below it."""
    x, y, z = (mm.Variable(name) for name in "xyz")
    some = 0.5 * mm.bernoulli(x, 0.3) + 0.5 * mm.bernoulli(x, 0.6)
    first, second = some * mm.bernoulli(y, 0.2), mm.bernoulli(x, 0.4) * mm.bernoulli(y, 0.7)
    circuit = mm.circuit_of((0.25 * first + 0.75 * second) * mm.bernoulli(z, 0.5))
    made = []
    for without in (False, True):
        kept = KeptReduction(circuit, [0, 1])
        kept.values.update(*circuit.evidence_codes({}))
        s, value, exponent = scaled(circuit), kept.values.value.copy(), kept.values.exponent
        assert s.plain
        assert not exponent.any()
        lowest = next(n for n in range(circuit.num_nodes) if circuit.kind[n] == SUM)
        value[lowest] *= 2.0**300
        kept._grow(100, 400)
        order = np.flatnonzero(kept.query.asked).astype(np.int32)
        never, room = np.zeros(1, dtype=np.int64), kept.store.child.size
        given = (s, None, order, value, exponent, kept.query, kept.forms, kept.store, kept.count, room, 8, never)
        count = build(*given, without)
        made.append((kept.forms, walked(first_nodes(kept.store, count))))
    assert made[0][0].exponent[lowest] < -290
    assert (made[0][0].exponent < -290).sum() > 1
    assert made[0][1] == made[1][1]
    for one, other in zip(made[0][0], made[1][0], strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("sort", SORTS)
def test_nodes_that_are_needed_together_stand_side_by_side(sort):
    """Children first, by scope, the root last; and all values, reductions and answers are the same."""
    rng, answered = np.random.default_rng(16), 0
    for _ in range(6):
        circuit = random_circuit(rng, **SORTS[sort])
        query, evidence = random_instance(rng, circuit)
        found = sessions._side_by_side(circuit, *circuit.evidence_codes(evidence))
        parent = np.repeat(np.arange(found.num_nodes), np.diff(found.start))
        assert (found.child < parent).all()
        assert sorted(found.kind) == sorted(circuit.kind)
        scope = found.scopes.id
        assert np.count_nonzero(np.diff(scope)) == len(set(scope)) - 1
        for known in steps(rng, circuit, query, evidence, 5):
            row = circuit.evidence_codes(known)
            assert value_pair(found, *row) == value_pair(circuit, *row)
            if mm.log_marginal(circuit, known) == -np.inf:
                continue
            one, other = (reduce(c, query, known) for c in (found, circuit))
            assert walked(one.flat) == walked(other.flat)
            first, second = (mm.marginal_map(c, query, known) for c in (found, circuit))
            assert (first.log_prob, first.status) == (second.log_prob, second.status)
            answered += 1
    assert answered > 10


def test_what_is_needed_stands_first():
    """Of the nodes of a scope that are as far from its lowest ones; needed is what the root has its value from."""
    rng, mixed = np.random.default_rng(17), 0
    for _ in range(20):
        circuit = random_circuit(rng, variables=7, most=120)
        _, evidence = random_instance(rng, circuit)
        found = sessions._side_by_side(circuit, *circuit.evidence_codes(evidence))
        value, exponent = np.empty(found.num_nodes), np.empty(found.num_nodes)
        pass_up(found, *found.evidence_codes(evidence), value, exponent)
        needed, level = {found.root}, [0] * found.num_nodes
        for n in reversed(range(found.num_nodes)):
            for e in range(found.start[n], found.start[n + 1]):
                if n in needed and value[found.child[e]] > 0 and found.log_weight[e] > -np.inf:
                    needed.add(int(found.child[e]))
        scope = found.scopes.id
        for n in range(found.num_nodes):
            below = found.child[found.start[n] : found.start[n + 1]].tolist()
            level[n] = max([level[c] + 1 for c in below if scope[c] == scope[n]], default=0)
        for n in range(1, found.num_nodes):
            if (scope[n], level[n]) == (scope[n - 1], level[n - 1]):
                assert n - 1 in needed or n not in needed
                mixed += n - 1 in needed and n not in needed
    assert mixed > 10


def test_what_cannot_be_asked():
    circuit = random_circuit(np.random.default_rng(1))
    session = mm.Session(circuit)
    with pytest.raises(mm.QueryError, match="unknown variable"):
        session.marginal_map(["nobody"])
    with pytest.raises(mm.QueryError, match="use marginal_map for a query"):
        session.mpe(query=[])
    with pytest.raises(mm.QueryError, match="number of bytes"):
        mm.Session(circuit, memory=-1)
    assert "Circuit" in repr(session)
