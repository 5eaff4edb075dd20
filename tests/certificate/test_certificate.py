"""Certificates: every proof written is accepted, nothing false is, and the checker knows nothing of the solvers."""

import ast
import dataclasses
import gzip
import json
import math
import random
import subprocess
import sys
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import margmap as mm
import naive
from circuits import columns, fixed, running_example
from corruptions import CORRUPTIONS, with_entry
from counts import cases
from hostile_certificates import CASES, count_lines
from margmap.certificate import verify as check
from margmap.certificate.blocks import Cover, Work, blocks_of, tree_of, walk
from margmap.certificate.intervals import exp_pair, gauss_pair, log_of, over, pair_of, plus, times
from margmap.certificate.verify import checked_query
from margmap.circuit import BERNOULLI, BINOMIAL, GAUSSIAN, INDICATOR, PRODUCT, SUM, Parts, Variable, assemble
from margmap.cli import app
from problems import SORTS, STRUCTURED, coins, hard, latent_tree, make, partition_tree

TOLERANCE = 1e-9


def exactly(pair):
    return Fraction(pair[0]) * Fraction(2) ** int(pair[1])


# ---------------------------------------------------------------------------------------------------------- numbers


def test_the_exponential_is_enclosed():
    rng = random.Random(1)
    cases = [0.0, 1.0, -1.0, -745.0, 690_000.0, -690_000.0, 5e-324]
    cases += [rng.uniform(-1, 1) for _ in range(500)] + [rng.uniform(-800, 800) for _ in range(500)]
    cases += [(k + 0.5) * math.log(2) * (1 + rng.gauss(0, 1e-15)) for k in range(-200, 200)]
    with localcontext() as context:
        context.prec = 60
        for x in cases:
            low, high = exp_pair(x, False), exp_pair(x, True)
            exact = Decimal(x).exp()
            assert Decimal(low[0]) * Decimal(2) ** low[1] < exact < Decimal(high[0]) * Decimal(2) ** high[1], x
            assert exactly(high) / exactly(low) - 1 < Fraction(1, 2**47)
    assert exp_pair(-math.inf, True) == (0.0, 0)
    assert exp_pair(-1e300, False)[0] == 0 < exp_pair(-1e300, True)[0]


def test_arithmetic_rounds_to_the_safe_side():
    rng = random.Random(2)
    for _ in range(2000):
        a, b = (pair_of(rng.random(), rng.choice([0, 1, -3, 60, 500, 5000])) for _ in range(2))
        for operation, exact in (
            (times, exactly(a) * exactly(b)),
            (plus, exactly(a) + exactly(b)),
            (over, exactly(a) / exactly(b)),
        ):
            low, high = exactly(operation(a, b, False)), exactly(operation(a, b, True))
            assert low <= exact <= high
            assert high - low <= exact / 2**48


def test_logarithms_and_densities_are_enclosed():
    rng = random.Random(3)
    with localcontext() as context:
        context.prec = 60
        for _ in range(300):
            pair = pair_of(rng.random(), rng.randrange(-100_000, 100_000))
            exact = Decimal(pair[0]).ln() + pair[1] * Decimal(2).ln()
            assert Decimal(log_of(pair, False)) <= exact <= Decimal(log_of(pair, True))
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
        for _ in range(300):
            x, mean, deviation = rng.gauss(0, 3), rng.gauss(0, 1), rng.choice([1e-3, 0.3, 1.0, 50.0])
            z = (Decimal(x) - Decimal(mean)) / Decimal(deviation)
            exact = (-z * z / 2).exp() / (Decimal(deviation) * (2 * pi).sqrt())
            low, high = gauss_pair(x, mean, deviation, False), gauss_pair(x, mean, deviation, True)
            assert Decimal(low[0]) * Decimal(2) ** low[1] <= exact <= Decimal(high[0]) * Decimal(2) ** high[1]


def test_a_density_too_small_for_anything_is_not_zero_above():
    assert gauss_pair(1e300, 0.0, 1e-300, True)[0] > 0 == gauss_pair(1e300, 0.0, 1e-300, False)[0]


# --------------------------------------------------------------------------------------- proofs of generated circuits


def upper_values(upper, state):
    """Every node of an upper circuit in fractions."""
    values = []
    for n in range(upper.kind.size):
        edges = range(upper.start[n], upper.start[n + 1])
        below = [(int(upper.child[e]), Fraction(float(upper.weight[e]))) for e in edges]
        if upper.kind[n] == INDICATOR:
            values.append(dict(below).get(state[upper.var[n]], Fraction(0)))
        elif upper.kind[n] == SUM:
            values.append(sum(weight * values[c] for c, weight in below))
        else:
            values.append(math.prod(values[c] for c, _ in below))
    return values


@pytest.mark.parametrize("sort", SORTS)
def test_the_upper_circuit_is_close_above(sort):
    for seed in range(19_000, 19_000 + cases(3)):
        p = make(sort, seed)
        asked = columns(p.circuit, p.query)
        problem = checked_query(p.circuit, p.query, known(p), p.ranked[0][1])
        exact = naive.marginal_map(p.circuit, asked, fixed(p.circuit, p.evidence), exact=True)
        for value, state in exact[:20]:
            nodes = upper_values(problem.upper, state)
            assert all(v <= Fraction(float(b)) for v, b in zip(nodes, problem.upper.bound, strict=True)), p.name
            assert value <= nodes[-1] * exactly(problem.upper.scale) <= value * (1 + Fraction(1, 10**11)), p.name


def decimal_value(circuit, codes):
    """p of one row (None: summed out) to 60 digits, of the logarithms themselves and not of their exponentials."""
    values = []
    for n, kind in enumerate(circuit.kind):
        edges = range(circuit.start[n], circuit.start[n + 1])
        below = [(values[circuit.child[e]], Decimal(float(circuit.log_weight[e])).exp()) for e in edges]
        if kind == SUM:
            values.append(sum(value * weight for value, weight in below))
        elif kind == PRODUCT:
            values.append(math.prod(value for value, _ in below))
        else:
            assert kind == BERNOULLI
            no, yes = (Decimal(float(circuit.param[circuit.param_start[n] + 1 - x])).exp() for x in (0, 1))
            values.append({None: no + yes, 0: no, 1: yes}[codes[circuit.var[n]]])
    return values[-1]


def test_states_and_upper_circuits_are_enclosed_to_the_last_digit():
    """Many factors, few sums: every operation must be rounded to its side, since no other makes up for it."""
    rng = np.random.default_rng(8)
    with localcontext() as context:
        context.prec = 60
        for _ in range(30):
            circuit = coins(rng, variables=40, components=2)
            evidence = {i: int(rng.integers(2)) for i in range(3, 30)}
            state = tuple(rng.integers(2, size=3).tolist())
            problem = checked_query(circuit, range(3), evidence, state)
            exact = decimal_value(circuit, {**dict.fromkeys(range(40)), **evidence, **dict(enumerate(state))})
            low, high, scale = (
                Decimal(m) * Decimal(2) ** int(e) for m, e in (problem.low, problem.high, problem.upper.scale)
            )
            upper = upper_values(problem.upper, state)[-1]
            assert low < exact < high < low * (1 + Decimal("1e-12"))
            assert exact < scale * upper.numerator / upper.denominator < exact * (1 + Decimal("1e-12"))


@pytest.mark.parametrize("variables", [2, 3, 10, 33])
def test_no_factor_of_the_upper_circuit_is_rounded_down(variables):
    """One state of probability 1, nothing in it inexact: roundings to both sides would end just below."""
    parts = Parts.new()
    parts.product([parts.leaf(INDICATOR, i, [1.0]) for i in range(variables)])
    circuit = assemble([Variable(i) for i in range(variables)], parts)
    problem = checked_query(circuit, range(variables), {}, (1,) * variables)
    assert upper_values(problem.upper, (1,) * variables)[-1] * exactly(problem.upper.scale) >= 1


def keeping_all(name, tree, states, values):
    """What a walk over the blocks goes on with if nothing is dropped, checking the linear bound of each state."""
    place = {}  # of each state's own candidate among all those of a block

    def cover_of(b, candidates):
        pieces = [(at, to) for at, to, _, _ in candidates.above(-1.0)]
        at, to = (np.concatenate(column) for column in zip(*pieces, strict=True))
        number = {pair: i for i, pair in enumerate(zip(at.tolist(), to.tolist(), strict=True))}
        own = [(state[tree.var[b]], 0) for state in states]
        if tree.var[b] < 0:
            own = zip(place[tree.left[b]], place[b - 1], strict=True)
        place[b] = [number[pair] for pair in own]
        found = candidates.evaluate(at, to)
        weight, constant, exponent = candidates.form
        scale = Fraction(2) ** (exponent + candidates.exponent)
        for i, value in zip(place[b], values, strict=True):
            terms = (Fraction(float(w)) * Fraction(float(v)) for w, v in zip(weight, found[i], strict=True))
            assert value <= (Fraction(constant) + sum(terms)) * scale, f"{name}: block {b}"
        return Cover(candidates.exponent, found)

    return cover_of


@pytest.mark.parametrize("sort", SORTS)
def test_the_linear_bound_holds_in_every_block(sort):
    """(D) of docs/certificates.md, with nothing dropped: then it holds for every state and its own candidates."""
    checked = 0
    for seed in range(19_100, 19_100 + cases(3)):
        p = make(sort, seed)
        problem = checked_query(p.circuit, p.query, known(p), p.ranked[0][1])
        if problem.upper.kind.size:
            tree = tree_of(mm.certify(p.circuit, p.query, p.evidence, gap=50.0).tree, len(p.query))
            work = Work(10**10)
            blocks, aligned = blocks_of(problem.upper, tree, 10**6, work)
            states = [state for _, state in p.ranked[:30]]
            values = [upper_values(problem.upper, state)[-1] for state in states]
            walk(blocks, aligned, tree, problem.cardinality, keeping_all(p.name, tree, states, values), work)
            checked += len(blocks)
    assert checked > cases(2)


def known(p):
    """The evidence of a problem as a certificate has it: the number of each value."""
    return {p.circuit.names[column]: value for column, value in p.circuit.observed(p.evidence).items()}


def is_true(problem, query, state, log_lower, log_upper):
    """Whether the claim holds, by enumeration, with a margin that is more than the enumeration's own rounding."""
    order = [problem.query.index(name) for name in query]
    values = {tuple(q[i] for i in order): p for p, q in problem.ranked}
    margin = 1e-11 * (1 + abs(log_lower) + abs(log_upper))
    return (
        naive.log(values[tuple(state)]) >= log_lower - margin and naive.log(problem.ranked[0][0]) <= log_upper + margin
    )


@pytest.mark.parametrize("sort", SORTS)
def test_every_certificate_is_accepted_and_true(sort):
    for seed in range(20_000, 20_000 + cases(15)):
        p = make(sort, seed)
        certificate = mm.certify(p.circuit, p.query, p.evidence)
        verdict = mm.verify(p.circuit, certificate, query=p.query, evidence=p.evidence)
        assert verdict.accepted, f"{p.name}: {verdict.reason}"
        assert verdict.optimal, f"{p.name}: gap {verdict.gap}"
        assert verdict.gap <= TOLERANCE, p.name
        assert is_true(p, certificate.query, certificate.state, verdict.log_prob_low, verdict.log_upper), p.name
        assert verdict.log_prob_low <= certificate.log_lower <= verdict.log_prob_high <= verdict.log_upper + 1e-12, (
            p.name
        )


def test_what_is_not_proven_of_the_state_is_not_accepted():
    """Between the two ends of the state's own interval nothing is proven."""
    tried = 0
    for seed in range(20_500, 20_540):
        p = make("latent tree", seed)
        certificate = mm.certify(p.circuit, p.query, p.evidence)
        verdict = mm.verify(p.circuit, certificate)
        middle = (verdict.log_prob_low + verdict.log_prob_high) / 2
        if verdict.log_prob_low < middle < verdict.log_prob_high:
            claim = dataclasses.replace(certificate, log_lower=middle, log_upper=certificate.log_upper + 1e-10)
            assert "not proven" in mm.verify(p.circuit, claim).reason, p.name
            tried += 1
    assert tried > 20


@pytest.mark.parametrize("sort", ["structured", "normalised", "many values", "unstructured", "coins"])
def test_bounds_hold_in_exact_fractions(sort):
    for seed in range(21_000, 21_010):
        p = make(sort, seed)
        verdict = mm.verify(p.circuit, mm.certify(p.circuit, p.query, p.evidence))
        exact = p.exact_best()  # of the weights as doubles, which are within half a unit of those meant
        assert Decimal(verdict.log_prob_low) <= exact + Decimal("1e-13"), p.name
        assert exact <= Decimal(verdict.log_upper) + Decimal("1e-13"), p.name


@pytest.mark.parametrize("sort", ["structured", "laminar", "coins", "partitions"])
def test_a_gap_is_proven_as_asked(sort):
    fewer = 0
    for seed in range(22_000, 22_015):
        p = make(sort, seed)
        tight, loose = (mm.certify(p.circuit, p.query, p.evidence, gap=gap) for gap in (TOLERANCE, 0.5))
        verdict = mm.verify(p.circuit, loose)
        assert verdict.accepted, p.name
        assert verdict.gap <= 0.5, p.name
        assert is_true(p, loose.query, loose.state, verdict.log_prob_low, verdict.log_upper), p.name
        fewer += loose.vectors < tight.vectors
    assert fewer > 0


def test_merged_vectors_still_prove_a_bound():
    for seed in range(23_000, 23_020):
        p = make("coins", seed)
        narrow = mm.certify(p.circuit, p.query, p.evidence, gap=5.0, max_vectors=1)
        verdict = mm.verify(p.circuit, narrow)
        assert verdict.accepted, p.name
        assert is_true(p, narrow.query, narrow.state, verdict.log_prob_low, verdict.log_upper), p.name


@pytest.mark.parametrize(
    ("limit", "value"), [("SUPPORT_ROOM", 0), ("MOST_LOOKS", 0), ("MOST_LOOKS", 5), ("MOST_LOOKS", 40)]
)
def test_without_looking_for_all_children_that_exclude_each_other(monkeypatch, limit, value):
    monkeypatch.setattr(f"margmap.certificate.upper_circuit.{limit}", value)
    for seed in range(23_100, 23_120):
        p = make("deterministic", seed)
        assert mm.verify(p.circuit, mm.certify(p.circuit, p.query, p.evidence)).optimal, p.name


def test_what_is_too_wide_is_not_certified():
    circuit = hard(24, 6)
    with pytest.raises(mm.LimitError, match="gap of"):
        mm.certify(circuit, None, max_vectors=2)
    with pytest.raises(mm.LimitError, match="max_work=10 "):
        mm.certify(circuit, None, max_work=10)
    certificate = mm.certify(circuit, None)
    assert mm.verify(circuit, certificate).accepted
    assert "more than max_work=10 steps" in mm.verify(circuit, certificate, max_work=10).reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gap": -1.0}, "gap="),
        ({"gap": math.nan}, "gap="),
        ({"max_work": None}, "max_work=None: give a whole number"),
        ({"max_work": -1}, "max_work=-1"),
        ({"max_vectors": "many"}, "max_vectors='many'"),
        ({"result": {"X1": 1}}, "result= is what marginal_map answered"),
    ],
)
def test_what_certify_does_not_take(options, message):
    with pytest.raises(mm.QueryError, match=message):
        mm.certify(running_example(), ["X1"], **options)


@pytest.mark.parametrize("gap", [math.inf, 1e300, 1e6])
def test_a_gap_of_any_size_makes_a_file_that_can_be_read(tmp_path, gap):
    circuit = hard(24, 6)
    mm.certify(circuit, None, gap=gap, max_vectors=0).save(tmp_path / "proof.json")
    verdict = mm.verify(circuit, mm.Certificate.load(tmp_path / "proof.json"), tolerance=1e5)
    assert verdict.optimal, verdict.reason


def test_beyond_what_can_be_proven_there_is_no_certificate():
    x = Variable("x")
    circuit = mm.circuit_of(x[0] * 0.5 + x[1] * 0.5, [x])
    for shift in (-4e5, 4e5):
        parts = Parts.new()
        leaf = parts.leaf(BERNOULLI, 0, [-0.5, -1.0])
        for _ in range(2):
            leaf = parts.sum([leaf], [shift])
        with pytest.raises(mm.LimitError, match="beyond 700000 nats"):
            mm.certify(assemble([x], parts), ["x"], result=mm.marginal_map(circuit, ["x"]))


def test_thousands_of_variables_do_not_underflow():
    circuit = latent_tree(0, variables=2000, states=3)
    certificate = mm.certify(circuit, None)
    assert certificate.log_lower < -800  # e^-800 is 0 as a double
    assert mm.verify(circuit, certificate).optimal
    lowered = dataclasses.replace(certificate, log_lower=-1e4, log_upper=certificate.log_upper - 1e-8)
    assert not mm.verify(circuit, lowered).accepted


def test_many_independent_variables():
    rng = np.random.default_rng(0)
    parts = Parts.new()
    rows = [
        [parts.leaf(BERNOULLI, i, [math.log(p), math.log1p(-p)]) for i, p in enumerate(row)]
        for row in rng.uniform(0.2, 0.8, (2, 2000))
    ]
    parts.sum([parts.product(row) for row in rows], [math.log(0.3), math.log(0.7)])
    circuit = assemble([Variable(i) for i in range(2000)], parts)
    certificate = mm.certify(circuit, list(range(0, 2000, 2)), dict.fromkeys(range(1, 2000, 4), 0))
    assert mm.verify(circuit, certificate).optimal


def test_leaves_of_every_kind_as_evidence_hidden_and_queried():
    a, b, g = Variable("a", 5), Variable("b", 5), Variable("g", 0)
    parts = Parts.new()
    tops = []
    for p, mean in ((0.3, -1.0), (0.8, 2.0)):
        yes, no = math.log(p), math.log1p(-p)
        leaves = [parts.leaf(BINOMIAL, column, [4.0, yes, no]) for column in (0, 1)]
        tops.append(parts.product([*leaves, parts.leaf(GAUSSIAN, 2, [mean, 0.7])]))
    parts.sum(tops, [math.log(0.4), math.log(0.6)])
    circuit = assemble([a, b, g], parts)
    for query, evidence in (
        (["a"], {"g": 0.4}),
        (["a", "b"], {}),
        (["b"], {"a": 2, "g": -30.0}),
        (["b", "a"], {"g": 1}),
    ):
        certificate = mm.certify(circuit, query, evidence)
        verdict = mm.verify(circuit, certificate)
        assert verdict.optimal
        assert verdict.log_prob_low <= mm.log_marginal(circuit, {**evidence, **verdict.state}) + 1e-12


def test_empty_query_and_single_variable():
    circuit = running_example()
    nothing = mm.certify(circuit, [], {"X1": 1})
    assert nothing.tree == ()
    verdict = mm.verify(circuit, nothing)
    assert verdict.optimal
    assert verdict.log_prob_low == pytest.approx(math.log(0.6))
    assert not mm.verify(
        circuit, dataclasses.replace(nothing, log_upper=nothing.log_upper - 1e-9, log_lower=-1.0)
    ).accepted
    one = mm.certify(circuit, ["X1"], {"X3": 0})
    assert mm.verify(circuit, one).optimal


def test_evidence_of_probability_zero():
    x, y = Variable("x"), Variable("y")
    circuit = mm.circuit_of(0.5 * x[0] * y[0] + 0.5 * x[1] * y[0], [x, y])
    with pytest.raises(mm.ImpossibleEvidenceError):
        mm.certify(circuit, ["x"], {"y": 1})
    other = dataclasses.replace(mm.certify(circuit, ["x"], {"y": 0}), evidence={"y": 1})
    assert "not proven" in mm.verify(circuit, other).reason


# ------------------------------------------------------------------------------------------------------ nothing false


@pytest.mark.parametrize("corrupt", CORRUPTIONS)
def test_corruptions_are_refused(corrupt):
    rng = np.random.default_rng(4)
    done = 0
    sorts = list(SORTS)
    for seed in range(24_000, 24_000 + cases(60)):
        p = make(sorts[seed % len(sorts)], seed)
        certificate = mm.certify(p.circuit, p.query, p.evidence)
        assert mm.verify(p.circuit, certificate).accepted, p.name
        for _ in range(3):
            corrupted = corrupt(rng, p.circuit, certificate)
            if corrupted is not None:
                verdict = mm.verify(*corrupted)
                assert not verdict.accepted, f"{p.name}: {corrupt.__name__}"
                assert verdict.reason
                assert verdict.log_upper == math.inf
                done += 1
    assert done >= cases(90)  # of 1,000 in all, where thorough


def mutated(rng, circuit, c):
    """Any part of a certificate changed at random, also to what no file can hold."""
    kind = rng.integers(8)
    if kind == 0:
        state = list(c.state)
        i = rng.integers(len(state))
        state[i] = int(rng.integers(circuit.variables[circuit.index(c.query[i])].cardinality))
        return dataclasses.replace(c, state=tuple(state))
    if kind == 1:
        return dataclasses.replace(c, log_upper=c.log_upper + rng.normal() * 10 ** rng.uniform(-12, 1))
    if kind == 2:
        return dataclasses.replace(c, log_lower=c.log_lower + rng.normal() * 10 ** rng.uniform(-12, 1))
    if kind == 3 and len(c.tree) > 1:
        tree = list(c.tree)
        i, j = rng.integers(len(tree), size=2)
        tree[i], tree[j] = tree[j], tree[i]
        return dataclasses.replace(c, tree=tuple(tree))
    if kind == 4 and len(c.query) > 1:
        order = rng.permutation(len(c.query))
        return dataclasses.replace(c, query=tuple(c.query[i] for i in order))
    if kind == 5:
        free = [v.name for v in circuit.variables if v.name not in c.query and v.cardinality]
        if free:
            name = free[rng.integers(len(free))]
            evidence = {k: x for k, x in c.evidence.items() if k != name}
            if name not in c.evidence:
                evidence[name] = 0
            return dataclasses.replace(c, evidence=evidence)
    covers = list(c.covers)
    filled = [b for b, cover in enumerate(covers) if cover.vectors.size]
    if not filled:
        return dataclasses.replace(c, log_upper=c.log_upper - 10 ** rng.uniform(-12, 0))
    b = filled[rng.integers(len(filled))]
    exponent, vectors = covers[b]
    if kind == 6:
        keep = rng.random(len(vectors)) < 0.7
        covers[b] = Cover(exponent + int(rng.integers(-1, 2)), vectors[keep])
        return dataclasses.replace(c, covers=tuple(covers))
    place = b, rng.integers(len(vectors)), rng.integers(vectors.shape[1])
    return with_entry(
        c, place, rng.choice([0.0, 1e-320, 0.5, 1.0, 1e30, 1e308, np.inf, np.nan, vectors[place[1:]] * 0.99])
    )


def test_whatever_is_accepted_is_true():
    rng = np.random.default_rng(5)
    accepted = refused = 0
    sorts = list(STRUCTURED) + ["unstructured", "partitions"]
    for seed in range(25_000, 25_110):
        p = make(sorts[seed % len(sorts)], seed)
        certificate = mm.certify(p.circuit, p.query, p.evidence, gap=float(rng.choice([1e-9, 0.3])))
        for _ in range(12):
            changed = mutated(rng, p.circuit, certificate)
            verdict = mm.verify(p.circuit, changed)
            if not verdict.accepted:
                refused += 1
                continue
            accepted += 1
            asked = p
            if changed.evidence != certificate.evidence:
                observed = {p.circuit.index(name): x for name, x in changed.evidence.items()}
                asked = p._replace(
                    ranked=naive.marginal_map(p.circuit, [p.circuit.index(n) for n in p.query], observed)
                )
            assert is_true(asked, changed.query, changed.state, changed.log_lower, changed.log_upper), p.name
    assert accepted > 80 < refused


def listing_everything(problem, certificate):
    """The certificate with the vectors of all candidates in every block."""
    asked = checked_query(problem.circuit, certificate.query, certificate.evidence, certificate.state)
    tree = tree_of(certificate.tree, len(certificate.query))
    work = Work(10**10)
    blocks, aligned = blocks_of(asked.upper, tree, 10**6, work)
    covers = {}

    def cover_of(b, candidates):
        pieces = [candidates.evaluate(at, to) for at, to, _, _ in candidates.above(-1.0)]
        covers[b] = Cover(candidates.exponent, np.concatenate(pieces))
        return covers[b]

    walk(blocks, aligned, tree, asked.cardinality, cover_of, work)
    return dataclasses.replace(certificate, covers=tuple(covers[b] for b in range(len(blocks))))


def test_a_state_above_the_bound_may_not_be_listed():
    """Vectors that cover all there is prove no bound: whatever arrives at the last block is a state above it."""
    refused = 0
    for sort in ("structured", "coins", "unstructured"):
        for seed in range(26_000, 26_006):
            p = make(sort, seed)
            certificate = mm.certify(p.circuit, p.query, p.evidence, gap=50.0)
            upper = certificate.log_upper - certificate.gap - 1.0
            claimed = dataclasses.replace(listing_everything(p, certificate), log_lower=upper - 1.0, log_upper=upper)
            verdict = mm.verify(p.circuit, claimed)
            assert not verdict.accepted, p.name
            refused += "a state above the bound is left" in verdict.reason
    assert refused > 9


def test_vectors_of_another_width_are_refused():
    circuit = hard(8, 4)
    certificate = mm.certify(circuit, None)
    filled = [b for b, cover in enumerate(certificate.covers) if cover.vectors.size]
    for b in filled[:3]:
        exponent, vectors = certificate.covers[b]
        for other in (vectors[:, :-1], vectors[:, :0], np.repeat(vectors, 2, axis=1)):
            covers = list(certificate.covers)
            covers[b] = Cover(exponent, other)
            verdict = mm.verify(circuit, dataclasses.replace(certificate, covers=tuple(covers)))
            assert f"block {b} has 4 entries, its vectors have {other.shape[1]}" in verdict.reason


@pytest.mark.parametrize("circuit", [hard(12, 5), partition_tree(1, variables=9, levels=2)])
def test_pairs_that_are_looked_at_piece_by_piece(monkeypatch, circuit):
    """A proof that is written in pieces is one for a checker that sees all pairs at once, and the other way round."""
    whole = mm.certify(circuit, None)
    assert max(len(cover.vectors) for cover in whole.covers) >= 8
    for size in (1, 7, 60):
        with monkeypatch.context() as changed:
            changed.setattr("margmap.certificate.blocks.NUMBERS_AT_ONCE", size)
            pieces = mm.certify(circuit, None)
            assert mm.verify(circuit, whole).optimal
            assert mm.verify(circuit, pieces).optimal
        assert mm.verify(circuit, pieces).optimal
        assert pieces.log_upper == pytest.approx(whole.log_upper, abs=1e-10)


def test_another_circuit_query_or_evidence():
    p, q = make("latent tree", 1), make("latent tree", 2)
    certificate = mm.certify(p.circuit, list(range(7)))
    assert not mm.verify(q.circuit, certificate).accepted
    part = mm.certify(p.circuit, [0, 1, 2], {3: 1})
    assert not mm.verify(p.circuit, dataclasses.replace(part, evidence={3: 0})).accepted
    assert not mm.verify(p.circuit, dataclasses.replace(part, evidence={})).accepted
    assert not mm.verify(p.circuit, dataclasses.replace(part, query=(0, 1, 4))).accepted
    assert "another query" in mm.verify(p.circuit, part, query=[0, 1]).reason
    assert "other evidence" in mm.verify(p.circuit, part, evidence={3: 0}).reason
    assert mm.verify(p.circuit, part, query=[2, 1, 0], evidence={3: 1}).accepted
    assert "unknown variable" in mm.verify(p.circuit, dataclasses.replace(part, query=(0, 1, "no"))).reason


def test_circuits_that_are_not_circuits_are_refused():
    parts = Parts.new()
    x, y = parts.leaf(INDICATOR, 0, [1.0]), parts.leaf(INDICATOR, 1, [1.0])
    parts.sum([x, y], [0.0, 0.0])
    rough = assemble([Variable("x"), Variable("y")], parts)
    fine = mm.certify(mm.smooth(rough), ["x"])
    assert "not smooth" in mm.verify(rough, fine).reason
    parts = Parts.new()
    x = parts.leaf(BERNOULLI, 0, [-0.5, -1.0])
    parts.product([x, x])
    square = assemble([Variable("x"), Variable("y")], parts)
    assert "not decomposable" in mm.verify(square, dataclasses.replace(fine, query=("x",))).reason


def with_unreachable_leaf():
    """Variable y is only in a leaf that the root, a leaf of x, does not reach."""
    logs = [math.log(0.5), math.log(0.5), math.log(0.25), math.log(0.75)]
    return mm.Circuit([Variable("x"), Variable("y")], [1, 1], [0, 0, 0], [], [], [1, 0], [0, 2, 4], logs)


def test_a_variable_that_only_an_unreachable_leaf_mentions():
    circuit = with_unreachable_leaf()
    fine = mm.certify(circuit, ["x"])
    assert fine.state == (0,)
    assert mm.verify(circuit, fine).optimal
    assert mm.verify(circuit, mm.certify(circuit, ["x"], {"y": 1})).optimal
    for query, tree in ((("y",), (0,)), (("x", "y"), (0, 1, -1)), (("y", "x"), (0, 1, -1))):
        with pytest.raises(mm.QueryError, match="'y'"):
            mm.certify(circuit, query)
        forged = dataclasses.replace(
            fine, query=query, state=(0,) * len(query), tree=tree, covers=(Cover(0, np.zeros((0, 0))),) * len(tree)
        )
        verdict = mm.verify(circuit, forged)
        assert not verdict.accepted
        assert "'y' cannot be queried" in verdict.reason


def test_leaves_that_do_not_fit_into_memory_are_refused():
    parts = Parts.new()
    parts.product([parts.leaf(INDICATOR, i, [0.0]) for i in range(1000)])
    circuit = assemble([Variable(i, 1 << 20) for i in range(1000)], parts)
    certificate = dataclasses.replace(mm.certify(with_unreachable_leaf(), ["x"]), query=(0,))
    assert "1048577000 values" in mm.verify(circuit, certificate).reason


@pytest.mark.parametrize(
    ("argument", "value"),
    [("tolerance", -1.0), ("tolerance", math.nan), ("tolerance", "1"), ("max_work", 0.5), ("max_work", None)],
)
def test_what_verify_does_not_take(argument, value):
    circuit = running_example()
    certificate = mm.certify(circuit, ["X1"])
    with pytest.raises(mm.QueryError, match=f"{argument}="):
        mm.verify(circuit, certificate, **{argument: value})
    with pytest.raises(mm.QueryError, match=r"Certificate\.load"):
        mm.verify(circuit, "proof.json")


# --------------------------------------------------------------------------------------------- tolerance and work


def test_the_tolerance_is_the_word_of_whoever_checks():
    p = make("latent tree", 25_500)
    certificate = mm.certify(p.circuit, p.query, p.evidence)
    assert check.TOLERANCE == TOLERANCE
    assert mm.verify(p.circuit, certificate).optimal
    loose = dataclasses.replace(certificate, log_upper=certificate.log_upper + 5.0, tolerance=1e6)
    verdict = mm.verify(p.circuit, loose)
    assert verdict.accepted
    assert not verdict.optimal
    assert verdict.gap == pytest.approx(5.0)
    assert not mm.verify(p.circuit, loose, tolerance=4.9).optimal
    allowed = mm.verify(p.circuit, loose, tolerance=5.1)
    assert allowed.optimal
    assert allowed.to_dict()["tolerance"] == 5.1
    # The certificate's own word does not make it less, either.
    assert mm.verify(p.circuit, dataclasses.replace(loose, tolerance=0.0), tolerance=5.1).optimal


@pytest.mark.parametrize("case", CASES)
def test_what_is_counted_is_what_is_done(case):
    """A hostile certificate is refused in time proportional to its size and the limit, by a count of executed lines."""
    circuit, certificate = case()
    size = certificate.numbers + circuit.num_nodes + circuit.num_edges
    verdict, whole = count_lines(circuit, certificate, 10**9)
    assert "max_work" not in verdict.reason
    assert whole <= 4 * verdict.steps
    for max_work in (verdict.steps // 3, verdict.steps // 10):
        stopped, done = count_lines(circuit, certificate, max_work)
        assert f"more than max_work={max_work} steps" in stopped.reason
        assert done <= 4 * (max_work + size)


# ------------------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["proof.json", "proof.json.gz"])
def test_files_hold_everything(tmp_path, name):
    for seed in range(5):
        p = make("with continuous", 26_000 + seed)
        certificate = mm.certify(p.circuit, p.query, p.evidence)
        certificate.save(tmp_path / name)
        read = mm.Certificate.load(tmp_path / name)
        assert mm.verify(p.circuit, read) == mm.verify(p.circuit, certificate)
        assert (read.query, read.evidence, read.tree) == (certificate.query, certificate.evidence, certificate.tree)
        assert all(
            a.exponent == b.exponent and (np.array_equal(a.vectors, b.vectors) or a.vectors.size == b.vectors.size == 0)
            for a, b in zip(read.covers, certificate.covers, strict=True)
        )


def test_any_text_is_a_certificate_or_a_format_error(tmp_path):
    rng = np.random.default_rng(6)
    p = make("latent tree", 27_000)
    path = tmp_path / "proof.json"
    certificate = mm.certify(p.circuit, p.query, p.evidence)
    certificate.save(path)
    good = path.read_bytes()
    pieces = [b"[", b"]", b"{", b",", b"null", b"1e999", b"-1", b'"x"', b"NaN", b"9" * 400, b"true", b"0.5", b"\xff"]
    read = 0
    for _ in range(500):
        data = bytearray(good)
        at = int(rng.integers(len(data)))
        if rng.random() < 0.5:
            data[at : at + 1] = b"%d" % rng.integers(10)
        else:
            data[at : at + int(rng.integers(0, 4))] = pieces[rng.integers(len(pieces))]
        path.write_bytes(bytes(data[: int(rng.integers(len(data)))] if rng.random() < 0.1 else data))
        try:
            found = mm.Certificate.load(path)
        except mm.FormatError:
            continue
        read += 1
        verdict = mm.verify(p.circuit, found)
        if verdict.accepted and found.query == certificate.query and found.evidence == certificate.evidence:
            assert is_true(p, found.query, found.state, found.log_lower, found.log_upper)
    assert read > 20


def test_a_packed_certificate_does_not_unpack_to_much_more(tmp_path):
    path = tmp_path / "proof.json.gz"
    rows = b",".join([b"[1]"] * 1_000_000)
    path.write_bytes(gzip.compress(b'{"format": "margmap certificate", "covers": [[0, [' + rows + b"]]]}"))
    with pytest.raises(mm.FormatError, match="200 times its size"):
        mm.Certificate.load(path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "margmap", "not a certificate"),
        ("version", 2, '"version" must be 1'),
        ("version", True, '"version" must be 1'),
        ("query", "ab", '"query" must be a list'),
        ("query", [1.5, 2], '"query": a variable is'),
        ("state", [0], '"state" has 1 values'),
        ("state", [0, "1"], '"state" has something'),
        ("evidence", {"a": 1}, '"evidence" must be a list'),
        ("evidence", [["a"]], '"evidence" must be a list of pairs'),
        ("evidence", [["a", 1], ["a", 1]], "twice"),
        ("log_lower", "x", '"log_lower" must be a finite number'),
        ("log_upper", None, '"log_upper" must be a finite number'),
        ("tolerance", 10**400, '"tolerance" must be a finite'),
        ("tree", [0], '"covers" has'),
        ("tree", [0.0, 1, -1], '"tree" has something'),
        ("covers", [[0, []], [0, [[1], [1, 2]]], [0, []]], '"covers", block 1'),
        ("covers", [[0, []], [0, [["1"]]], [0, []]], '"covers", block 1'),
        ("covers", [[0, []], [0, [[-1.0]]], [0, []]], "negative"),
        ("covers", [[10**12, []], [0, []], [0, []]], "exponent"),
        ("covers", [[0, 3], [0, []], [0, []]], "expected"),
        ("covers", [[0, [[10**400]]], [0, []], [0, []]], "range"),
    ],
)
def test_a_format_error_names_the_field(tmp_path, field, value, message):
    path = tmp_path / "proof.json"
    mm.certify(running_example(), ["X1", "X2"]).save(path)
    data = json.loads(path.read_text())
    data[field] = value
    path.write_text(json.dumps(data))
    with pytest.raises(mm.FormatError, match=message):
        mm.Certificate.load(path)


def test_trees_that_are_none_are_refused():
    circuit = running_example()
    certificate = mm.certify(circuit, ["X1", "X2"])
    for tree in (
        (0, 1),
        (0, -1, 1),
        (0, 0, -1),
        (0, 5, -1),
        (0, 1, -1, -1),
        (-1, 0, 1),
        (-2, 1, -1),
        (0,),
        (),
        (0, 0, -1, 1, -1),
    ):
        covers = (Cover(0, np.zeros((0, 0))),) * len(tree)
        verdict = mm.verify(circuit, dataclasses.replace(certificate, tree=tree, covers=covers))
        assert "tree" in verdict.reason, tree


# ------------------------------------------------------------------------------------------------------ independence


FORBIDDEN = (
    "solve",
    "inference",
    "circuit.scopes",
    "circuit.properties",
    "circuit.transform",
    "network",
    "interop",
    "learn",
)


def test_the_checker_imports_no_solver_code():
    folder = Path(mm.__file__).parent / "certificate"
    for name in ("intervals", "upper_circuit", "blocks", "verify", "file"):
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                assert not any(module.startswith(f"margmap.{other}") for other in FORBIDDEN), f"{name} imports {module}"


def test_checking_loads_no_solver_code():
    code = """
import sys, math
import numpy as np
from margmap.certificate.blocks import Cover
from margmap.certificate.verify import verify
from margmap.certificate.file import Certificate
from margmap.circuit import BERNOULLI, Parts, Variable, assemble
parts = Parts.new()
parts.leaf(BERNOULLI, 0, [math.log(0.75), math.log(0.25)])
circuit = assemble([Variable("x")], parts)
claim = Certificate(query=("x",), evidence={}, state=(1,), log_lower=math.log(0.75) - 1e-12, tree=(0,),
    log_upper=math.log(0.75) + 1e-12, tolerance=1e-9, covers=(Cover(0, np.zeros((0, 0))),))
assert verify(circuit, claim).optimal
print(*[name for name in sys.modules if name.startswith("margmap")])
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "margmap.certificate.verify" in out
    assert not [name for name in out if name.startswith(tuple(f"margmap.{other}" for other in FORBIDDEN))]


# ------------------------------------------------------------------------------------------------------ command line


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], prog_name="margmap")


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.json"
    mm.save(make("latent tree", 28_000).circuit, path)
    return path


def test_solve_and_verify(tmp_path, model):
    proof = tmp_path / "proof.json.gz"
    solved = run("solve", model, "-q", "0,1,2", "-e", "4=1", "--certificate", proof)
    assert solved.exit_code == 0, solved.stderr
    assert f"wrote {proof}" in solved.stdout
    checked = run("verify", model, proof, "-q", "2,1,0", "-e", "4=1")
    assert checked.exit_code == 0, checked.stderr
    assert "accepted" in checked.stdout
    assert "optimal within 1e-09 nats" in checked.stdout
    as_json = json.loads(run("verify", model, proof, "--json").stdout)
    assert as_json["accepted"]
    assert as_json["optimal"]
    answer = json.loads(run("solve", model, "-q", "0,1,2", "-e", "4=1", "--certificate", proof, "--json").stdout)
    assert answer["certificate"] == str(proof)
    assert answer["certificate_bytes"] == proof.stat().st_size
    assert as_json["log_prob_low"] <= answer["log_prob"] <= as_json["log_upper"]


def test_a_gap_that_is_left_is_not_called_optimal(tmp_path, model):
    proof = tmp_path / "proof.json"
    assert run("solve", model, "-q", "0,1,2", "--certificate", proof).exit_code == 0
    data = json.loads(proof.read_text())
    proof.write_text(json.dumps({**data, "log_upper": data["log_upper"] + 3, "tolerance": 1e6}))
    checked = run("verify", model, proof)
    assert checked.exit_code == 3
    assert checked.stdout.startswith("accepted")
    assert "optimal" not in checked.stdout
    assert "not proven to be the best: more than 1e-09 nats are left" in checked.stdout
    as_json = json.loads(run("verify", model, proof, "--json").stdout)
    assert (as_json["accepted"], as_json["optimal"], as_json["tolerance"]) == (True, False, 1e-9)
    allowed = run("verify", model, proof, "--tolerance", "4")
    assert allowed.exit_code == 0
    assert "optimal within 4 nats" in allowed.stdout
    assert run("verify", model, proof, "--tolerance", "-1").exit_code == 2
    assert run("verify", model, proof, "--tolerance", "nan").exit_code == 2


def test_refusals_have_exit_code_2(tmp_path, model):
    proof = tmp_path / "proof.json"
    assert run("solve", model, "-q", "0,1,2", "--certificate", proof).exit_code == 0
    other = run("verify", model, proof, "-q", "0,1")
    assert other.exit_code == 2
    assert "refused: the certificate is about another query" in other.stderr
    assert len(other.stderr.strip().splitlines()) == 1
    data = json.loads(proof.read_text())
    proof.write_text(json.dumps({**data, "log_lower": data["log_lower"] + 1e-6, "log_upper": data["log_upper"] + 1e-6}))
    refused = run("verify", model, proof, "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["accepted"] is False
    proof.write_text("{")
    assert run("verify", model, proof).exit_code == 2
    assert run("verify", model, tmp_path / "nothing.json").exit_code == 2


def test_what_has_no_certificate(tmp_path, model):
    proof = tmp_path / "proof.json"
    for arguments in (("--top", "3"), ("--batch", model, "-o", tmp_path / "out.csv")):
        assert run("solve", model, "--certificate", proof, *arguments).exit_code == 2
    network = tmp_path / "net.uai"
    network.write_text("BAYES\n1\n2\n1\n1 0\n2\n0.4 0.6\n")
    for arguments in (("solve", network, "--certificate", proof), ("verify", network, proof)):
        refused = run(*arguments)
        assert refused.exit_code == 2
        assert "margmap convert" in refused.stderr
    with pytest.raises(mm.ModelError, match="a certificate is about a circuit, and this is a network"):
        mm.certify(mm.load_network(network), None)
    with pytest.raises(mm.ModelError, match="about a circuit"):
        mm.verify(mm.load_network(network), mm.certify(running_example(), ["X1"]))
    with pytest.raises(mm.QueryError, match="another query"):
        mm.certify(running_example(), ["X1"], result=mm.marginal_map(running_example(), ["X2"]))
    assert not proof.exists()
    wide = tmp_path / "wide.json"
    mm.save(hard(), wide)
    stopped = run("solve", wide, "--certificate", proof, "--time-limit", "0.3")
    assert stopped.exit_code == 3
    assert "no certificate" in stopped.stderr
    assert not proof.exists()
    nowhere = run("solve", model, "--certificate", tmp_path / "no" / "proof.json", "--json")
    assert nowhere.exit_code == 2
    assert json.loads(nowhere.stdout)["certificate"] is None


def test_crossing_scopes_have_certificates_too():
    circuit = partition_tree(0, variables=14, levels=2)
    certificate = mm.certify(circuit, None)
    assert certificate.vectors > 50
    assert mm.verify(circuit, certificate).optimal


# --------------------------------------------------------------------------------------------------- shared instances


@pytest.mark.parametrize(
    "name",
    ["nltcs", "msnbc", "tretail", "kdd", "bnetflix", "book", "c20ng", "cwebkb", "ad", "plants", "baudio", "pumsb_star"],
)
def test_shared_instances(shared, name):
    data = json.loads((shared / "mmap_instances" / f"{name}.json").read_text())
    circuit = mm.load(shared / data["circuit"])
    rng = np.random.default_rng(7)
    assert len(data["instances"]) == 4
    for number, instance in enumerate(data["instances"][: cases(2)]):
        evidence = {int(v): x for v, x in instance["evidence"].items()}
        certificate = mm.certify(circuit, instance["query"], evidence)
        verdict = mm.verify(circuit, certificate, query=instance["query"], evidence=evidence)
        assert verdict.accepted, verdict.reason
        assert verdict.optimal
        assert verdict.log_prob_low - 1e-9 <= instance["log_optimum"] <= verdict.log_upper + 1e-9
        corrupted = CORRUPTIONS[number](rng, circuit, certificate)
        assert corrupted is None or not mm.verify(*corrupted).accepted
