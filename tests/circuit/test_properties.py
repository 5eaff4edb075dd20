"""Scopes, structural properties, and the transformations that repair them."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given

import naive
from circuits import SORTS, circuits, random_circuit, running_example
from margmap import (
    StructureError,
    Variable,
    bernoulli,
    categorical,
    check,
    circuit_of,
    gaussian,
    log_likelihood,
    log_marginal,
    marginal_map,
    normalise,
    posteriors,
    sample,
    smooth,
)
from margmap.circuit import INDICATOR, PRODUCT, SUM, Parts, assemble, properties
from margmap.circuit.leaves import leaf_tables
from margmap.circuit.transform import log_totals

A, B, C = Variable("a"), Variable("b"), Variable("c")


def children(circuit, n):
    return circuit.child[circuit.start[n] : circuit.start[n + 1]].tolist()


def log_weights(circuit, n):
    return circuit.log_weight[circuit.start[n] : circuit.start[n + 1]].tolist()


def rough():
    """0.5 [a = 1] + 0.5 [b = 1] Bernoulli(c): neither child has the other's variables."""
    return circuit_of(0.5 * A[1] + 0.5 * B[1] * bernoulli(C, 0.2), [A, B, C])


def naively_deterministic(circuit):
    """Whether no state makes two children of any sum nonzero."""
    values = naive.node_values(circuit, naive.states_of(circuit))
    for n in range(circuit.num_nodes):
        if circuit.kind[n] == SUM:
            live = [
                values[c] for c, w in zip(children(circuit, n), log_weights(circuit, n), strict=True) if w > -math.inf
            ]
            if any(sum(v > 0 for v in column) > 1 for column in zip(*live, strict=True)):
                return False
    return True


class TestScopes:
    @given(circuits())
    def test_against_sets(self, c):
        for n, scope in enumerate(naive.scopes(c)):
            assert set(c.scopes.variables(n)) == scope
        distinct = {tuple(c.scopes.variables(n)) for n in range(c.num_nodes)}
        assert len(distinct) == len(c.scopes.bits)

    def test_many_variables_and_many_scopes(self):
        rng = np.random.default_rng(0)
        c = random_circuit(rng, variables=200, structured=False, most=3000)
        assert len(c.scopes.bits) > 500
        for n, scope in enumerate(naive.scopes(c)):
            assert set(c.scopes.variables(n)) == scope
        assert c.properties.smooth
        assert c.properties.decomposable

    def test_read_only(self):
        for array in running_example().scopes:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


class TestProperties:
    @given(circuits())
    def test_structured_means_nested_or_disjoint(self, c):
        scopes = {frozenset(s) for s in naive.scopes(c)}
        nested = all(a <= b or b <= a or not a & b for a, b in itertools.combinations(scopes, 2))
        p = check(c)
        assert p.smooth
        assert p.decomposable
        assert p.structured == nested
        assert any("structured" in r for r in p.reasons) == (not nested)

    def test_structured_on_larger_circuits(self):
        for seed in range(10):
            rng = np.random.default_rng(seed)
            assert random_circuit(rng, variables=90, most=800).properties.structured
            c = random_circuit(rng, variables=90, most=800, structured=False)
            assert not c.properties.structured

    @given(circuits(continuous=False))
    def test_deterministic_is_never_claimed_wrongly(self, c):
        if check(c).deterministic:
            assert naively_deterministic(c)

    @given(circuits(deterministic=True, zeros=False))
    def test_deterministic_by_construction_is_shown(self, c):
        p = check(c)
        assert p.deterministic
        assert not any("determinism" in r for r in p.reasons)

    def test_not_deterministic(self):
        p = check(circuit_of(0.5 * bernoulli(A, 0.5) + 0.5 * A[1]))
        assert not p.deterministic
        assert "determinism is not shown: at node 2 (sum) no variable tells some two children apart" in p.reasons

    @pytest.mark.parametrize("budget", [1, 100])
    def test_a_determinism_test_that_gives_up_names_no_node(self, budget, monkeypatch):
        """With the smaller budget it does not begin, with the larger one it stops between two pairs."""
        monkeypatch.setattr(properties, "DETERMINISM_BUDGET", budget)
        v = Variable("v", 20)
        p = check(circuit_of(sum(0.05 * v[x] for x in range(20))))
        assert not p.deterministic
        assert p.reasons == ("determinism is not shown: there are too many pairs of children to compare",)

    @pytest.mark.parametrize("wide", [2, 64, 100])
    @pytest.mark.parametrize("before", [0, 31, 32, 70])
    def test_deterministic_wherever_the_variable_lies(self, wide, before):
        variables = [Variable(i) for i in range(before)]
        v = Variable("v", wide)
        some = [bernoulli(x, 0.5) for x in variables]
        low = categorical(v, [2 / wide if x < wide // 2 else 0 for x in range(wide)])
        high = categorical(v, [2 / wide if x >= wide // 2 else 0 for x in range(wide)])
        both = categorical(v, [1 / wide] * wide)

        def mixture(left, right):
            for x in some:
                left, right = left * x, right * x
            return circuit_of(0.5 * left + 0.5 * right, [*variables, v])

        assert check(mixture(low, high)).deterministic
        assert not check(mixture(low, both)).deterministic
        assert not check(mixture(high, high)).deterministic

    def test_a_zero_weight_leaves_a_child_out_of_determinism(self):
        assert check(circuit_of(0.5 * A[0] + 0.5 * A[1] + 0 * bernoulli(A, 0.5))).deterministic

    @given(circuits(normalised=True, zeros=False))
    def test_normalised_by_construction(self, c):
        assert check(c).normalised
        assert naive.probability(c) == pytest.approx(1, rel=1e-9)

    @pytest.mark.parametrize("formula", [0.5 * A[0] + 0.6 * A[1], 0 * A[0], 0.999 * bernoulli(A, 0.3)])
    def test_not_normalised(self, formula):
        p = check(circuit_of(formula))
        assert not p.normalised
        assert any(r.startswith("not normalised: the weights of node ") for r in p.reasons)

    def test_not_smooth(self):
        p = check(rough())
        assert (p.smooth, p.decomposable, p.structured) == (False, True, False)
        assert p.reasons[0] == "not smooth: some child of node 4 (sum) lacks variable 'a'"

    def test_not_decomposable(self):
        c = circuit_of(A[1] * B[0] * bernoulli(B, 0.5))
        p = check(c)
        assert (p.smooth, p.decomposable, p.structured) == (True, False, False)
        assert p.reasons[0] == "not decomposable: two children of node 3 (product) share variable 'b'"

    def test_running_example(self):
        p = running_example().properties
        assert p == (True, True, True, True, True, ())


QUERIES = {
    "log_likelihood": lambda c: log_likelihood(c, [[0, 0, 0]]),
    "log_marginal": lambda c: log_marginal(c),
    "posteriors": lambda c: posteriors(c),
    "sample": lambda c: sample(c, 1),
    "marginal_map": lambda c: marginal_map(c, None),
    "normalise": lambda c: normalise(c),
}


class TestRefusedByEveryQuery:
    @pytest.mark.parametrize("query", QUERIES)
    def test_not_smooth(self, query):
        message = r"not smooth: some child of node 4 \(sum\) lacks variable 'a'; call margmap.smooth\(circuit\) first"
        with pytest.raises(StructureError, match=message):
            QUERIES[query](rough())

    @pytest.mark.parametrize("query", QUERIES)
    def test_not_decomposable(self, query):
        c = circuit_of(A[1] * B[0] * bernoulli(B, 0.5), [A, B, C])
        with pytest.raises(StructureError, match=r"two children of node 3 \(product\) share variable 'b'; the file is"):
            QUERIES[query](c)


class TestSmooth:
    def test_by_hand(self):
        c = smooth(rough())
        assert c.properties.smooth
        assert c.properties.decomposable
        for state in itertools.product(range(2), repeat=3):
            a, b, x = state
            expected = 0.5 * a + 0.5 * b * (0.2 if x else 0.8)
            assert math.exp(log_marginal(c, dict(zip("abc", state, strict=True)))) == pytest.approx(expected, abs=1e-15)

    def test_a_smooth_circuit_is_returned_as_it_is(self):
        c = running_example()
        assert smooth(c) is c

    def test_what_is_missing_is_shared(self):
        c = smooth(circuit_of(0.3 * A[1] + 0.3 * A[0] + 0.4 * A[0] * B[1], [A, B]))
        assert (c.kind == SUM).sum() == 2
        assert (c.kind == INDICATOR).sum() == 6

    def test_random_rough_circuits(self):
        for seed in range(200):
            c = self.random_rough(np.random.default_rng(seed))
            s = smooth(c)
            assert s.properties.smooth
            assert s.properties.decomposable
            states = naive.states_of(c)
            assert naive.node_values(s, states)[-1] == pytest.approx(naive.node_values(c, states)[-1], rel=1e-12)

    @staticmethod
    def random_rough(rng):
        parts = Parts.new()
        variables = [Variable(i, int(rng.integers(1, 4))) for i in range(5)]
        nodes = []
        for i, v in enumerate(variables):
            nodes += [(parts.leaf(INDICATOR, i, [float(x)]), {i}) for x in range(v.cardinality)]
        for _ in range(12):
            a, b = (nodes[i] for i in rng.integers(len(nodes), size=2))
            if a[1] & b[1] or rng.random() < 0.4:
                weights = rng.normal(size=2).tolist()
                nodes.append((parts.sum([a[0], b[0]], weights), a[1] | b[1]))
            else:
                nodes.append((parts.product([a[0], b[0]]), a[1] | b[1]))
        # Sums below products can share variables only if the scopes overlap, which is excluded above.
        a, b, c = (nodes[i] for i in rng.integers(len(nodes), size=3))
        root = parts.sum([a[0], b[0], c[0]], [0.0, -1.0, -2.0])
        return assemble(variables, parts, root)

    def test_a_continuous_variable_cannot_be_smoothed_over(self):
        g = Variable("g", 0)
        with pytest.raises(StructureError, match="cannot smooth over 'g'"):
            smooth(circuit_of(0.5 * A[1] + 0.5 * A[0] * gaussian(g, 0, 1)))


class TestNormalise:
    @given(circuits(normalised=False))
    def test_same_distribution_and_normalised(self, c):
        n = normalise(c)
        # A node that is zero everywhere has no normal form; all others do.
        total = log_totals(c)
        for i in range(n.num_nodes):
            if n.kind[i] == SUM and total[i] > -math.inf:
                assert np.exp(log_weights(n, i)).sum() == pytest.approx(1, rel=1e-9)
        if np.isfinite(total).all():
            assert n.properties.normalised
        states = naive.states_of(c)
        before, after = naive.node_values(c, states)[-1], naive.node_values(n, states)[-1]
        assert after == pytest.approx([x / math.fsum(before) for x in before], rel=1e-9)
        assert math.fsum(after) == pytest.approx(1, rel=1e-9)

    def test_huge_and_tiny_weights(self):
        parts = Parts.new()
        leaves = [parts.leaf(INDICATOR, 0, [float(x)]) for x in range(3)]
        parts.sum(leaves, [5000.0, 5000.0 + math.log(3), -5000.0])
        n = normalise(assemble([Variable("a", 3)], parts))
        assert np.exp(n.log_weight[:2]) == pytest.approx([0.25, 0.75])
        assert n.log_weight[2] == pytest.approx(-10000 - math.log(4))

    def test_zero_everywhere(self):
        with pytest.raises(StructureError, match=r"node 1 \(sum\) is zero everywhere: it cannot be normalised"):
            normalise(circuit_of(0 * A[1]))


class TestTables:
    @given(circuits())
    def test_leaf_tables(self, c):
        start, table = leaf_tables(c)
        for n in range(c.num_nodes):
            v = c.variables[c.var[n]]
            if c.kind[n] >= PRODUCT or v.continuous:
                assert start[n] == start[n + 1]
                continue
            parameters = c.param[c.param_start[n] : c.param_start[n + 1]].tolist()
            expected = [naive.probability_of_leaf(c.kind[n], parameters, x) for x in range(v.cardinality)]
            assert np.exp(table[start[n] : start[n + 1]]) == pytest.approx(expected, rel=1e-12)

    def test_binomial_with_many_trials(self):
        parts = Parts.new()
        parts.leaf(3, 0, [500.0, math.log(0.3), math.log(0.7)])
        _, table = leaf_tables(assemble([Variable("n", 501)], parts))
        exact = [
            math.lgamma(501) - math.lgamma(x + 1) - math.lgamma(501 - x) + x * math.log(0.3) + (500 - x) * math.log(0.7)
            for x in range(501)
        ]
        assert table == pytest.approx(exact, rel=1e-10)

    @pytest.mark.parametrize("sort", SORTS)
    def test_log_totals(self, sort):
        for seed in range(20):
            c = random_circuit(np.random.default_rng(seed), **SORTS[sort])
            scopes, total = naive.scopes(c), log_totals(c)
            states = naive.states_of(c)
            for n, values in enumerate(naive.node_values(c, states)):
                # Every state of the node's own scope is there once for each state of the other variables.
                others = math.prod(v.cardinality or 1 for i, v in enumerate(c.variables) if i not in scopes[n])
                assert math.exp(total[n]) == pytest.approx(math.fsum(values) / others, rel=1e-9, abs=1e-300)
