"""What only search does: two orders, stages, and sound bounds when it is stopped at any node."""

import json
import math

import numpy as np
import pytest

import margmap as mm
from counts import cases
from margmap.circuit import BERNOULLI, Parts, Variable, assemble
from margmap.foundation.limits import Stopped
from margmap.solve.methods import maxspn as search
from problems import SORTS, check_bounds, check_optimal, coins, hard, make


def bad_start(reduced, **_options):
    """The last value of every variable, good or not."""
    return (reduced.cardinality - 1).astype(np.int32)


@pytest.mark.parametrize(("order", "plain"), [("balanced", -450.0), ("certain", math.inf)])
@pytest.mark.parametrize("sort", SORTS)
def test_equals_enumeration_from_a_bad_start(sort, order, plain, monkeypatch):
    monkeypatch.setattr(search, "beam", bad_start)
    monkeypatch.setattr(search, "STAGE_EDGES", 0)
    monkeypatch.setattr(search, "PLAIN_FLOOR", plain)
    for seed in range(5000, 5000 + cases(16)):
        p = make(sort, seed)
        check_optimal(p, mm.marginal_map(p.circuit, p.query, p.evidence, "search", order=order))


def test_stopped_at_every_node_the_bounds_hold(monkeypatch):
    monkeypatch.setattr(search, "beam", bad_start)
    monkeypatch.setattr(search, "STAGE_EDGES", 0)
    real, stops = search._search, 0
    for sort in ("partitions", "dense", "many values, unstructured", "coins", "latent tree"):
        for seed in range(5100, 5106):
            p = make(sort, seed)
            for nodes in range(40):

                def stopped(*arguments, nodes=nodes):
                    real(*arguments[:-1], np.array([0, nodes]))
                    raise Stopped("time_limit")

                monkeypatch.setattr(search, "_search", stopped)
                r = mm.marginal_map(p.circuit, p.query, p.evidence, "search")
                check_bounds(p, r)
                if r.gap <= 1e-9:
                    break
                assert r.status == "time_limit"
                stops += 1
    assert stops > 100


def test_a_mixture_too_hard_to_finish_has_a_state_and_both_bounds():
    r = mm.marginal_map(hard(), None, method="search", time_limit=0.3)
    assert r.status == "time_limit"
    assert -math.inf < r.log_prob < r.log_upper < 0
    assert r.log_prob == pytest.approx(mm.log_marginal(hard(), r.state), rel=1e-12)
    assert r.details["search_nodes"] > 100


def test_values_below_the_smallest_float():
    """Three thousand mixed coins: the best state has log p of about -1,500, far below what a double holds."""
    rng = np.random.default_rng(3)
    parts, sums, best = Parts.new(), [], 0.0
    for i, row in enumerate(rng.uniform(0.55, 0.65, (3000, 2))):
        a, b = (parts.leaf(BERNOULLI, i, [math.log(p), math.log1p(-p)]) for p in row)
        sums.append(parts.sum([a, b], [-math.log(2)] * 2))
        best += math.log(row.mean())
    c = assemble([Variable(i) for i in range(3000)], parts, parts.product(sums))
    r = mm.marginal_map(c, None, method="search", time_limit=0.5)
    assert r.status == "time_limit"  # marginals bound such a product too loosely
    assert set(r.state.values()) == {1}
    assert r.log_prob == pytest.approx(best, rel=1e-12)
    assert best < -1000
    assert r.log_upper > best


def test_a_gap_that_was_asked_for_ends_it_sooner():
    c = coins(np.random.default_rng(5), 14, 8, spread=0.2)
    exact = mm.marginal_map(c, None, method="search")
    r = mm.marginal_map(c, None, method="search", gap=0.5)
    assert (exact.status, r.status) == ("optimal", "optimal")
    assert 1e-9 < r.gap <= 0.5
    assert r.details["search_nodes"] < exact.details["search_nodes"]


def test_an_order_that_there_is_not():
    with pytest.raises(mm.QueryError, match="choose balanced or certain"):
        mm.marginal_map(coins(np.random.default_rng(1)), None, method="search", order="best")


@pytest.mark.parametrize("name", ["nltcs", "msnbc", "kdd", "plants", "tretail", "bnetflix"])
def test_the_reference_on_shared_instances(shared, name):
    """Where it finishes within seconds; the others are in docs/benchmarks/paper."""
    circuit = mm.load(shared / "psdd" / f"{name}.psdd.gz")
    instances = json.loads((shared / "mmap_instances" / f"{name}.json").read_text())["instances"]
    solved = 0
    for one in instances:
        evidence = {int(v): x for v, x in one["evidence"].items()}
        r = mm.marginal_map(circuit, one["query"], evidence, "search", time_limit=2)
        assert r.log_upper >= one["log_optimum"] - 1e-9
        if r.status == "optimal":
            solved += 1
            assert r.log_prob == pytest.approx(one["log_optimum"], abs=1e-6)
    assert solved >= 2
