"""Rows of a batch asked together: to the last bit what each of them gives alone."""

import dataclasses
import math
import random

import numpy as np
import pytest

import margmap as mm
from circuits import SORTS, random_circuit
from counts import cases
from margmap.bench.generators import coin_mixture, flat_latent_tree, latent_tree
from margmap.foundation.limits import to_the_end
from margmap.foundation.pairs import TINY
from margmap.inference.queries import value_pair
from margmap.inference.scaled import scaled
from margmap.solve import batch, rows_together, shape
from margmap.solve.methods.frontier import solve as frontier
from margmap.solve.methods.frontier.scope_tree import make_plan, rounding_of
from margmap.solve.output_bounds import view_of
from margmap.solve.reduce import reduce_codes
from margmap.solve.rows_together import RowsTogether, pays


@pytest.fixture
def always(monkeypatch):
    """All batches of two rows or more are asked together, however small the circuit."""
    monkeypatch.setattr(rows_together, "LEAST_ROWS", 2)
    monkeypatch.setattr(rows_together, "LEAST_EDGES", 0)


def rows_of(circuit, number, rng):
    """Codes of rows: some variables observed, not the same ones in every row."""
    rows = []
    for _ in range(number):
        row = circuit.cardinality.copy()
        for column in range(row.size):
            if row[column] and rng.random() < 0.4:
                row[column] = rng.randrange(row[column])
        rows.append(row)
    return rows


def discrete(seed):
    rng = random.Random(seed)
    return random_circuit(np.random.default_rng(seed), **list(SORTS.values())[seed % len(SORTS)]), rng


def given_by(circuit, rows):
    """The evidence of rows, in which -1 is not observed."""
    return [dict(zip(circuit.names, row, strict=True)) for row in np.where(rows < 0, None, rows)]


def bare(result):
    return dataclasses.replace(result, seconds=0, details={})


def test_reduced_circuits_and_scores_are_those_of_a_row_alone(always):
    compared = 0
    for seed in range(cases(150)):
        circuit, rng = discrete(seed)
        if not pays(circuit, 2):
            continue
        reals = np.full(len(circuit.variables), np.nan)
        together = RowsTogether(circuit)
        chunks = [rows_of(circuit, number, rng) for number in (2, rng.choice([5, 40]))]
        for row in [row for rows in chunks for row in [rows, *rng.sample(rows, len(rows))]]:
            if isinstance(row, list):
                together.expect(row)
                continue
            columns = [c for c in sorted(circuit.mentioned) if row[c] == circuit.cardinality[c] and rng.random() < 0.7]
            try:
                alone = reduce_codes(circuit, columns, row, reals)
            except mm.ImpossibleEvidenceError:
                if columns:
                    with pytest.raises(mm.ImpossibleEvidenceError):
                        together.reduce(columns, row, reals)
                continue
            found = together.reduce(columns, row, reals)
            if found is None:  # nothing is asked for, or numbers are beyond doubles
                continue
            for one, other in zip(found.flat, alone.flat, strict=True):
                assert np.array_equal(one, other)
            assert (found.evidence, found.rounding, found.names) == (alone.evidence, alone.rounding, alone.names)
            s = scaled(circuit)
            for _ in range(2):  # the second state after the first, as where several are asked for
                codes = row.copy()
                for column in columns:
                    codes[column] = rng.randrange(codes[column])
                value, exponent = found.needed.root_with(s, codes, reals)
                assert (value * s.total, exponent + s.total_exponent) == value_pair(circuit, codes, reals)
            again = together.reduce(columns, row, reals)  # scoring has changed nothing
            assert all(np.array_equal(one, other) for one, other in zip(again.flat, alone.flat, strict=True))
            other = chunks[0][0].copy()
            assert together.value_pair(other, reals) == value_pair(circuit, other, reals)
            compared += 1
    assert compared > 200


def same_query(circuit, number, rng):
    """A query, and rows that all have the same variables observed."""
    columns = sorted(circuit.mentioned)
    rng.shuffle(columns)
    asked = 1 + rng.randrange(len(columns))
    seen = columns[asked : asked + rng.randrange(len(columns) + 1)]
    rows = []
    for _ in range(number):
        row = circuit.cardinality.copy()
        row[seen] = [rng.randrange(circuit.cardinality[c]) for c in seen]
        rows.append(row)
    return sorted(columns[:asked]), rows


def families(seed):
    """Circuits whose rows are alike, and others."""
    makers = (
        lambda: latent_tree(seed, variables=4 + seed % 9, states=2 + seed % 7, values=2 + seed % 2),
        lambda: latent_tree(seed, variables=4 + seed % 9, states=2 + seed % 7, concentration=0.05),
        lambda: coin_mixture(seed, components=2 + seed % 5, variables=6 + seed % 5),
        lambda: flat_latent_tree(seed, variables=4 + seed % 5, states=2 + seed % 7),
        lambda: discrete(seed)[0],
    )
    return makers[seed % len(makers)]()


def test_rows_with_the_same_variables_observed_are_those_of_a_row_alone(always):
    together_rows, alike = 0, 0
    for seed in range(cases(150)):
        circuit, rng = families(seed), random.Random(seed)
        if not pays(circuit, 2):
            continue
        reals, together = np.full(len(circuit.variables), np.nan), RowsTogether(circuit)
        columns, rows = same_query(circuit, 45, rng)
        for chunk in (rows[:3], rows[3:25], rows[25:]):
            together.expect(chunk)
            for row in chunk:
                try:
                    alone = reduce_codes(circuit, columns, row, reals)
                except mm.ImpossibleEvidenceError:
                    with pytest.raises(mm.ImpossibleEvidenceError):
                        together.reduce(columns, row, reals)
                    continue
                found = together.reduce(columns, row, reals)
                assert found is not None
                for one, other in zip(found.flat, alone.flat, strict=True):
                    assert np.array_equal(one, other)
                assert (found.evidence, found.rounding, found.names) == (alone.evidence, alone.rounding, alone.names)
                together_rows, alike = together_rows + 1, alike + (found.shape is not None)
                if found.shape is None:
                    continue
                plan = found.shape.planned(found.flat, len(columns), to_the_end, lambda: None)
                again = make_plan(alone.flat, len(columns))
                assert (plan is None) == (again is None)
                if plan is None:
                    continue
                for one, other in zip(plan[1], again[1], strict=True):
                    assert np.array_equal(one, other)
                view = found.shape.view(found.flat, found.cardinality, to_the_end)
                whole = view_of(alone.flat, 0.0, alone.cardinality)
                assert np.array_equal(view.supports.can, whole.supports.can)
                for one, other in zip(view.bounds, whole.bounds, strict=True):
                    assert np.array_equal(one, other)
                if plan[0] is found.flat:
                    rounding = found.shape.rounding(*plan, view.bounds.rows)
                    assert rounding == rounding_of(*again, whole.bounds.rows)
    assert together_rows > 1000
    assert alike > together_rows / 4


def circuit_of_pairs(first, second):
    """``0.5 [R=0] (a mixture) + 0.5 [R=1] (another one)``: parts over Q, each with its chances of E."""
    q, r, e = mm.Variable("Q", 2), mm.Variable("R", 2), mm.Variable("E", 3)
    parts = [mm.categorical(q, [0.25, 0.75]), mm.categorical(q, [0.875, 0.125])]

    def mixture(chances):
        one, other = (part * mm.categorical(e, list(chance)) for part, chance in zip(parts, chances, strict=True))
        return 0.5 * one + 0.5 * other

    root = 0.5 * (mm.indicator(r, 0) * mixture(first)) + 0.5 * (mm.indicator(r, 1) * mixture(second))
    return mm.circuit_of(root, variables=[q, r, e])


def reduced_as_alone(circuit, rows):
    """Whether each of some rows of E, asked twice, went by the recipe of the first; all are as they are alone."""
    together, reals, columns = RowsTogether(circuit), np.full(3, np.nan), [0, 1]
    codes = [np.array([2, 2, row], dtype=np.int32) for row in rows]
    together.expect(codes)
    together.reduce(columns, codes[0], reals)
    shared = []
    for row in codes:
        found, alone = together.reduce(columns, row, reals), reduce_codes(circuit, columns, row, reals)
        assert all(np.array_equal(one, other) for one, other in zip(found.flat, alone.flat, strict=True))
        shared.append(found.shape is not None)
    return shared


# Under E = 0 both mixtures are the same, under E = 1 they are not.
EQUAL_IF_0 = [(0.5, 0.25, 0.25), (0.5, 0.25, 0.25)], [(0.5, 0.25, 0.25), (0.5, 0.125, 0.375)]


def test_a_row_in_which_equal_nodes_differ_is_reduced_alone(always):
    assert reduced_as_alone(circuit_of_pairs(*EQUAL_IF_0), [0, 0, 0, 1]) == [True, True, True, False]


def test_a_row_in_which_different_nodes_are_equal_is_reduced_alone(always):
    assert reduced_as_alone(circuit_of_pairs(*EQUAL_IF_0), [1, 1, 1, 0]) == [True, True, True, False]


@pytest.mark.parametrize("factors", [2, 5])
def test_a_row_with_values_beyond_doubles_is_reduced_alone(factors, always):
    """Of three rows one is so unlikely that its values need powers of two; a product may lose all digits at once."""
    variables = [mm.Variable(f"X{i}", 2) for i in range(factors + 1)]
    small = float(TINY) ** 0.75
    leaves = [mm.categorical(v, [1 - small, small]) for v in variables[:factors]]
    parts = [mm.categorical(variables[-1], [0.3, 0.7]), mm.categorical(variables[-1], [0.8, 0.2])]
    one, other = (math.prod(leaves, start=part) for part in parts)
    circuit = mm.circuit_of(0.4 * one + 0.6 * other, variables=variables)
    rows = [np.array([x] * factors + [2], dtype=np.int32) for x in (0, 1)]
    reals = np.full(factors + 1, np.nan)
    together = RowsTogether(circuit)
    together.expect(rows)
    assert together.reduce([factors], rows[1], reals) is None
    assert together.reduce([factors], rows[0], reals) is not None
    found = list(
        mm.marginal_map_many(circuit, [f"X{factors}"], np.array([[0] * factors + [-1], [1] * factors + [-1]]), jobs=1)
    )
    assert [a.status for a in found] == ["optimal", "optimal"]
    assert found[1].log_prob == mm.marginal_map(circuit, [f"X{factors}"], {f"X{i}": 1 for i in range(factors)}).log_prob


def test_a_batch_gives_what_its_rows_give_alone(always, monkeypatch):
    used = []
    monkeypatch.setattr(batch, "RowsTogether", lambda circuit: used.append(1) or RowsTogether(circuit))
    for seed in range(60):
        circuit, rng = discrete(seed)
        rows = np.array(rows_of(circuit, 20, rng))
        rows[rows == circuit.cardinality] = -1
        found = list(mm.marginal_map_many(circuit, None, rows, jobs=1, k=2))
        for number, (answer, given) in enumerate(zip(found, given_by(circuit, rows), strict=True)):
            if isinstance(answer, mm.FailedRow):
                with pytest.raises(mm.MargmapError) as caught:
                    mm.marginal_map(circuit, None, given, k=2)
                assert answer == mm.FailedRow(number, str(caught.value), caught.type.__name__)
            else:
                alone = mm.marginal_map(circuit, None, given, k=2)
                assert bare(answer) == bare(alone)
    assert len(used) > 40


@pytest.mark.parametrize("method", ["auto", "frontier"])
def test_rows_that_are_alike_have_one_plan(method, always, monkeypatch):
    """Also where the method was asked for by its name."""
    made = []

    def planned(*args):
        made.append(1)
        return make_plan(*args)

    monkeypatch.setattr(shape, "make_plan", planned)
    monkeypatch.setattr(frontier, "make_plan", planned)
    circuit, rng = flat_latent_tree(1, variables=12, states=3), np.random.default_rng(1)
    query, rows = circuit.names[:4], np.full((40, 12), -1)
    rows[:, 4:] = rng.integers(2, size=(40, 8))
    rows = np.unique(rows, axis=0)
    found = list(mm.marginal_map_many(circuit, query, rows, jobs=1, method=method))
    in_batch = len(made)
    alone = [mm.marginal_map(circuit, query, given, method=method) for given in given_by(circuit, rows)]
    assert [bare(answer) for answer in found] == [bare(answer) for answer in alone]
    assert len(made) - in_batch >= len(rows) > 10  # one a row
    assert in_batch <= 3  # the first row's, which is reduced by itself, and that of all others


def test_queries_that_were_asked_long_ago_are_forgotten(monkeypatch):
    """A batch in which every row has its own query does not keep all of them; the answers are the same."""
    monkeypatch.setattr(rows_together, "MOST_QUERIES", 3)
    circuit = coin_mixture(2, variables=9, components=4)
    row = circuit.cardinality.copy()
    together, reals = RowsTogether(circuit), np.full(row.size, np.nan)
    together.expect([row])
    for columns in [[i, (i + j) % 9] for j in (1, 2, 3) for i in range(9)]:
        for _ in range(2):  # the second one is asked of what is remembered
            found, alone = together.reduce(columns, row, reals), reduce_codes(circuit, columns, row, reals)
            assert all(np.array_equal(one, other) for one, other in zip(found.flat, alone.flat, strict=True))
        assert len(together._queries) <= 3
        assert together._failures.keys() <= together._queries.keys()
        assert tuple(columns) in together._queries


def test_what_does_not_pay_is_asked_alone():
    circuit, _ = discrete(0)
    assert not pays(circuit, 1000)  # small
    gaussian = mm.circuit_of(mm.gaussian(mm.Variable("X", 0), 0.0, 1.0))
    assert not scaled(gaussian).plain
