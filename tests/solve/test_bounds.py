"""Output, edge and conditional bounds: the paper's numbers, the error in its Algorithm 2, and enumeration."""

import math

import numpy as np
import pytest

from circuits import running_example
from counts import cases
from enumeration import (
    LEAF,
    PRODUCT,
    SUM,
    algorithm_1,
    algorithm_2,
    edges_of,
    exclusive_sums,
    mixture,
    reduced_problems,
    restricted_optima,
    root_values,
    states_of,
    values_of,
)
from margmap import Variable, bernoulli, circuit_of
from margmap.circuit import BERNOULLI, Parts, assemble
from margmap.solve import conditional_bounds as module
from margmap.solve.conditional_bounds import conditional_bounds
from margmap.solve.edge_bounds import edge_bounds
from margmap.solve.output_bounds import output_bounds
from margmap.solve.query_circuit import rebuild
from margmap.solve.reduce import reduce
from margmap.solve.supports import find_deterministic, find_supports

X, Y = Variable("X"), Variable("Y")


def bounded(reduced):
    flat = reduced.flat
    supports = find_supports(flat, reduced.cardinality)
    return output_bounds(flat, find_deterministic(flat, supports))


def node_bounds(bounds):
    return bounds.value * np.exp2(bounds.exponent)


def counterexample(weight):
    """``weight * N1(X) S1(Y) + (1 - weight) * N2(X) S2(Y)``."""
    first = bernoulli(X, 0.9) * bernoulli(Y, 0.5)
    second = bernoulli(X, 0.1) * bernoulli(Y, 0.1)
    return reduce(circuit_of(weight * first + (1 - weight) * second), ["X", "Y"])


def edge_to(flat, values, states, distribution, literal):
    """The edge to the leaf ``literal`` (variable, value) of the sum whose values over that variable are given."""
    for n, e, c in edges_of(flat):
        if flat.kind[c] == LEAF and (flat.var[c], flat.value[c]) == literal:
            own = [values[n][states[:, literal[0]] == x][0] for x in range(2)]
            if own == pytest.approx(distribution):
                return e
    raise AssertionError("there is no such edge")


class TestRunningExample:
    """Every number of the paper's sections 3.2 and 3.3."""

    reduced = reduce(running_example(), ["X1", "X2"])

    def test_output_bounds(self):
        flat, bounds = self.reduced.flat, bounded(self.reduced)
        m = node_bounds(bounds)
        root = len(m) - 1
        assert flat.kind[root] == SUM
        assert bounds.deterministic[root]
        assert m[root] == pytest.approx(0.558, abs=1e-12)
        inputs = m[flat.child[flat.start[root] : flat.start[root + 1]]]
        assert sorted(inputs) == pytest.approx([0.84, 0.93], abs=1e-12)
        # The two sums below them are the only ones that must add.
        assert (~bounds.deterministic & (flat.kind == SUM)).sum() == 2

    def test_edge_bounds_at_the_root(self):
        flat, bounds = self.reduced.flat, bounded(self.reduced)
        found = (edge_bounds(flat, bounds) * math.exp(bounds.log_upper))[flat.start[-2] :]
        weights = flat.weight[flat.start[-2] :]
        assert dict(zip(weights.round(12), found, strict=True)) == pytest.approx({0.6: 0.558, 0.4: 0.336}, abs=1e-12)

    def test_two_edges_fall(self):
        flat, bounds = self.reduced.flat, bounded(self.reduced)
        keep = edge_bounds(flat, bounds) * math.exp(bounds.log_upper) > 0.256
        assert (~keep).sum() == 2
        # Both lead to X2 = 0, in the two leaf distributions.
        assert all((flat.var[flat.child[e]], flat.value[flat.child[e]]) == (1, 0) for e in np.flatnonzero(~keep))
        small, log_factor = rebuild(flat, keep)
        after = bounded(self.reduced.__class__(**{**vars(self.reduced), "flat": small}))
        assert math.exp(after.log_upper + log_factor) == pytest.approx(0.378, abs=1e-12)
        assert after.deterministic[small.kind == SUM].all()

    def test_the_printed_rule_is_right_here(self):
        """All siblings in this example have the bound 1, so that leaving them out changes nothing."""
        flat, bounds = self.reduced.flat, bounded(self.reduced)
        printed = algorithm_2(flat, bounds.deterministic, siblings=False)
        assert edge_bounds(flat, bounds) * 0.558 == pytest.approx(printed, abs=1e-12)


class TestPrintedRule:
    """Algorithm 2 as printed in the paper is no upper bound; docs/erratum.md works the numbers out."""

    def test_it_lies_below_the_truth(self):
        reduced = counterexample(0.5)
        flat, bounds, states = reduced.flat, bounded(reduced), states_of([2, 2])
        values = values_of(flat, states)
        assert dict(zip(map(tuple, states.tolist()), values[-1], strict=True)) == pytest.approx(
            {(0, 0): 0.43, (0, 1): 0.07, (1, 0): 0.27, (1, 1): 0.23}
        )
        assert math.exp(bounds.log_upper) == pytest.approx(0.63)
        edge = edge_to(flat, values, states, [0.1, 0.9], (0, 0))  # N1 -> [X = 0]
        truth = restricted_optima(flat, values)[edge]
        assert truth == pytest.approx(0.43)
        assert algorithm_2(flat, bounds.deterministic, siblings=False)[edge] == pytest.approx(0.23)
        assert algorithm_2(flat, bounds.deterministic, siblings=True)[edge] == pytest.approx(0.43)
        ours = edge_bounds(flat, bounds)[edge] * math.exp(bounds.log_upper)
        assert ours == pytest.approx(0.43)
        assert ours >= truth * (1 - 1e-12)

    def test_pruning_with_it_loses_the_optimum(self):
        """With the incumbent X = 1, Y = 0 (.27) the best state drops to .405, and so does the "upper bound"."""
        reduced = counterexample(0.5)
        flat, bounds, states = reduced.flat, bounded(reduced), states_of([2, 2])
        small, log_factor = rebuild(flat, algorithm_2(flat, bounds.deterministic, siblings=False) > 0.27 * (1 + 1e-12))
        assert root_values(small, states).max() * math.exp(log_factor) == pytest.approx(0.405)
        ours = edge_bounds(flat, bounds) * math.exp(bounds.log_upper)
        small, log_factor = rebuild(flat, ours > 0.27 * (1 + 1e-12))
        assert root_values(small, states).max() * math.exp(log_factor) == pytest.approx(0.43)

    def test_the_loop_then_ends_on_a_wrong_state(self):
        """With .63 and .37 the incumbent .3168 looks proven after one round, and .3312 is better."""
        reduced = counterexample(0.63)
        flat, bounds, states = reduced.flat, bounded(reduced), states_of([2, 2])
        root = root_values(flat, states)
        assert root.tolist() == pytest.approx([0.3312, 0.0315 + 0.0333, 0.3168, 0.2835 + 0.0037])
        printed = algorithm_2(flat, bounds.deterministic, siblings=False)
        small, log_factor = rebuild(flat, printed > 0.3168 * (1 + 1e-12))
        after = algorithm_1(small, exclusive_sums(small))[-1] * math.exp(log_factor)
        assert after == pytest.approx(0.2997)
        assert after < 0.3168 < root.max()

    def test_it_is_wrong_often(self):
        """On generated circuits: how often it lies below the truth, how often a tight incumbent prunes the optimum."""
        below = lost = right = 0
        for reduced in reduced_problems(40_000, 400):
            flat, states = reduced.flat, states_of(reduced.cardinality)
            values, take_max = values_of(flat, states), exclusive_sums(flat)
            truth, best = restricted_optima(flat, values), values[-1].max()
            printed = algorithm_2(flat, take_max, siblings=False)
            below += bool((printed < truth * (1 - 1e-9)).any())
            small, log_factor = rebuild(flat, printed > best * (1 - 1e-9))
            lost += root_values(small, states).max() * math.exp(log_factor) < best * (1 - 1e-9)
            right += bool((algorithm_2(flat, take_max, siblings=True) >= truth * (1 - 1e-9)).all())
        assert below > 40
        assert lost > 15
        assert right == 400


@pytest.mark.parametrize("first", range(0, cases(700), 100))
def test_against_enumeration(first):
    """For 100 circuits each: exclusive sums, every node, every edge, every literal."""
    for reduced in reduced_problems(first * 10, 100):
        flat, states = reduced.flat, states_of(reduced.cardinality)
        values, bounds = values_of(flat, states), bounded(reduced)

        assert (bounds.deterministic == exclusive_sums(flat)).all()
        for n in np.flatnonzero(bounds.deterministic):
            children = flat.child[flat.start[n] : flat.start[n + 1]]
            assert ((values[children] > 0).sum(axis=0) <= 1).all()

        m = node_bounds(bounds)
        assert (abs(m / algorithm_1(flat, bounds.deterministic) - 1) < 1e-12).all()
        assert (m >= values.max(axis=1) * (1 - 1e-12)).all()
        upper = math.exp(bounds.log_upper)
        assert upper == pytest.approx(m[-1], rel=1e-12)
        parent = np.repeat(np.arange(len(m)), np.diff(flat.start))
        share = np.where(flat.kind[parent] == SUM, flat.weight * m[flat.child] / m[parent], 1.0)
        assert (abs(bounds.share - share) <= 1e-12 * share).all()

        ours = edge_bounds(flat, bounds) * upper
        assert (ours >= restricted_optima(flat, values) * (1 - 1e-12)).all()
        assert (ours <= algorithm_2(flat, bounds.deterministic, siblings=True) * (1 + 1e-9)).all()

        asked = np.ones(len(reduced.cardinality), dtype=np.bool_)
        relative = conditional_bounds(flat, bounds, reduced.cardinality, asked)
        tight = conditional_bounds(flat, bounds, reduced.cardinality, asked, tighten=True)
        for v, k in enumerate(reduced.cardinality):
            assert (relative[v, k:] == 0).all()
            for x in range(k):
                exact = values[-1][states[:, v] == x].max()
                assert relative[v, x] * upper >= exact * (1 - 1e-12)
                given = algorithm_1(flat, bounds.deterministic, (v, x))[-1]
                assert abs(relative[v, x] * upper - given) <= 1e-9 * given
                assert tight[v, x] * upper >= exact * (1 - 1e-12)
        assert (tight <= relative * (1 + 1e-12)).all()


def test_tightened_bounds_by_hand():
    """The sum adds .9 X + .9 not X at its best; but X has one value, so .5 * .9 + .5 * .1 is all it can reach."""
    formula = 0.5 * bernoulli(X, 0.9) * bernoulli(Y, 0.6) + 0.5 * bernoulli(X, 0.1) * bernoulli(Y, 0.6)
    reduced = reduce(circuit_of(formula), ["X", "Y"])
    bounds, both = bounded(reduced), np.ones(2, dtype=np.bool_)
    plain = conditional_bounds(reduced.flat, bounds, reduced.cardinality, both) * math.exp(bounds.log_upper)
    tight = conditional_bounds(reduced.flat, bounds, reduced.cardinality, both, tighten=True)
    tight *= math.exp(bounds.log_upper)
    assert plain == pytest.approx(np.array([[0.3, 0.3], [0.36, 0.54]]))
    assert tight == pytest.approx(np.array([[0.3, 0.3], [0.3, 0.3]]))  # the truth: .5 * .6 for either value of X


def test_tightened_bounds_are_often_tighter():
    tighter = 0
    for reduced in reduced_problems(65_000, 200):
        bounds, asked = bounded(reduced), np.ones(len(reduced.cardinality), dtype=np.bool_)
        plain, tight = (
            conditional_bounds(reduced.flat, bounds, reduced.cardinality, asked, tighten=way) for way in (False, True)
        )
        tighter += bool((tight < plain * (1 - 1e-9)).any())
    assert tighter > 20


def test_two_end_points_are_tighter_where_paths_differ():
    """Never looser is tested above; on circuits with shared nodes it is often really tighter."""
    tighter = 0
    for reduced in reduced_problems(60_000, 200):
        bounds = bounded(reduced)
        ours = edge_bounds(reduced.flat, bounds) * math.exp(bounds.log_upper)
        tighter += bool((ours < algorithm_2(reduced.flat, bounds.deterministic, siblings=True) * (1 - 1e-9)).any())
    assert tighter > 20


def test_an_edge_bound_by_hand_below_two_products():
    """Root = .5 A(X) B(Y) + .5 [X=0] B'(Y): the loss at A reaches the root times .5 and B's bound."""
    formula = 0.5 * bernoulli(X, 0.8) * bernoulli(Y, 0.7) + 0.5 * X[0] * bernoulli(Y, 0.4)
    reduced = reduce(circuit_of(formula), ["X", "Y"])
    flat, bounds, states = reduced.flat, bounded(reduced), states_of([2, 2])
    assert math.exp(bounds.log_upper) == pytest.approx(0.5 * 0.8 * 0.7 + 0.5 * 0.6)
    edge = edge_to(flat, values_of(flat, states), states, [0.2, 0.8], (0, 0))
    found = edge_bounds(flat, bounds)[edge] * math.exp(bounds.log_upper)
    assert found == pytest.approx(0.5 * 0.2 * 0.7 + 0.5 * 0.6)


class TestConditionalBounds:
    def test_only_what_is_asked(self):
        for reduced in reduced_problems(70_000, 60):
            bounds = bounded(reduced)
            n = len(reduced.cardinality)
            full = conditional_bounds(reduced.flat, bounds, reduced.cardinality, np.ones(n, dtype=np.bool_))
            asked = np.arange(n) % 2 == 0
            some = conditional_bounds(reduced.flat, bounds, reduced.cardinality, asked)
            assert (some[asked] == full[asked]).all()
            assert (some[~asked] == 0).all()

    @pytest.mark.parametrize("room", [1, 7, 40])
    def test_several_passes_give_the_same(self, room, monkeypatch):
        for reduced in reduced_problems(80_000, 30):
            bounds, asked = bounded(reduced), np.ones(len(reduced.cardinality), dtype=np.bool_)
            full = conditional_bounds(reduced.flat, bounds, reduced.cardinality, asked)
            with monkeypatch.context() as patch:
                patch.setattr(module, "CONDITIONAL_ROOM", room)
                assert (conditional_bounds(reduced.flat, bounds, reduced.cardinality, asked) == full).all()

    def test_more_variables_than_a_word_has_bits(self):
        circuit, p = mixture(150, 3, spread=0.4)
        reduced = reduce(circuit, None)
        bounds = bounded(reduced)
        found = conditional_bounds(reduced.flat, bounds, reduced.cardinality, np.ones(150, dtype=np.bool_))
        best = np.maximum(p, 1 - p)
        for v in (0, 63, 64, 127, 128, 149):
            for x, given in ((0, 1 - p), (1, p)):
                exact = (best.prod(axis=1) * given[:, v] / best[:, v]).sum() / best.prod(axis=1).sum()
                assert found[v, x] == pytest.approx(exact, rel=1e-9)


def test_bounds_below_the_smallest_float():
    parts = Parts.new()
    parts.product([parts.leaf(BERNOULLI, i, [math.log(0.4), math.log(0.6)]) for i in range(3000)])
    reduced = reduce(assemble([Variable(i) for i in range(3000)], parts), None)
    bounds = bounded(reduced)
    assert bounds.log_upper == pytest.approx(3000 * math.log(0.6), rel=1e-12)
    assert reduced.flat.kind[-1] == PRODUCT
    relative = conditional_bounds(reduced.flat, bounds, reduced.cardinality, np.ones(3000, dtype=np.bool_))
    assert relative == pytest.approx(np.tile([1, 2 / 3], (3000, 1)))
    # Each variable costs at most its own loss: 1 for the better value, 2/3 for the other.
    leaf = reduced.flat.child
    expected = np.where(reduced.flat.value[leaf] == 1, 2 / 3, 1.0)
    assert edge_bounds(reduced.flat, bounds) == pytest.approx(expected)
