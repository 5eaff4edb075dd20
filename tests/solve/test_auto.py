"""The default: which method it takes and says so, all shared instances, MNIST."""

import itertools
import json
import math
import typing

import numpy as np
import pytest

import margmap as mm
from margmap.foundation.limits import Status, Stopped
from margmap.solve.methods.frontier import solve as frontier
from planted import MARGINS, mislead, near_tie
from problems import SORTS, STRUCTURED, UNSTRUCTURED, check_optimal, hard, make, partition_tree

INSTANCES = [
    "ad", "baudio", "bnetflix", "book", "c20ng", "cwebkb", "kdd", "msnbc", "nltcs", "plants", "pumsb_star", "tretail",
]  # fmt: skip


@pytest.mark.parametrize("sort", SORTS)
def test_takes_every_circuit_and_says_how(sort):
    methods = set()
    for seed in range(8000, 8030):
        p = make(sort, seed)
        r = mm.marginal_map(p.circuit, p.query, p.evidence)
        check_optimal(p, r)
        methods.add(r.method)
        if r.method == "frontier":
            assert "structured-decomposable" in r.details["why"]
        else:
            assert sort in UNSTRUCTURED, p.name
            assert r.method in ("best-first", "brute")
            assert "cross" in r.details["why"]
            with pytest.raises(mm.StructureError):
                mm.marginal_map(p.circuit, p.query, p.evidence, "frontier")
    assert "frontier" in methods


def test_best_first_where_scopes_cross_and_states_are_many():
    c = partition_tree(0, variables=30, levels=2, children=3)
    r = mm.marginal_map(c, None, time_limit=20)
    assert r.method == "best-first"
    assert r.details["why"].startswith("two scopes of the circuit cross (")
    assert r.details["search_nodes"] > 0
    few = mm.marginal_map(c, [3, 1, 4], {5: 1})
    assert (few.method, few.status) == ("brute", "optimal")
    assert "8 states are enumerated" in few.details["why"]
    assert few.log_prob == pytest.approx(mm.marginal_map(c, [3, 1, 4], {5: 1}, "branch").log_prob, abs=1e-9)


@pytest.mark.parametrize("sort", STRUCTURED)
def test_sweeps_pruning_and_search_take_turns(monkeypatch, sort):
    """From a planted state, with narrow sweeps and turns of two looks at the clock: what is proven is true."""
    turns, pruned = [], []
    take, prune = frontier._Turns.take, frontier._Turns.prune

    def short(self, _part, _least):
        looks = itertools.count()

        def look():
            if next(looks) >= 2:
                raise Stopped("time_limit")

        return self._limits.until(math.inf, look=look)

    def one_turn(self, view, log_upper, turn=None):
        bound = take(self, view, log_upper, turn)
        assert bound <= log_upper
        turns.append(bound < log_upper)
        return bound

    def one_pruning(self, view, log_floor, log_upper):
        smaller, bound = prune(self, view, log_floor, log_upper)
        assert bound <= log_upper
        pruned.append(smaller.flat.num_edges < view.flat.num_edges)
        return smaller, bound

    monkeypatch.setattr(frontier, "FIRST_SWEEPS", 0.0)
    monkeypatch.setattr(frontier, "FIRST_PASSES", 0)
    monkeypatch.setattr(frontier, "QUICK_WORK", 10)
    monkeypatch.setattr(frontier._Turns, "_turn", short)
    monkeypatch.setattr(frontier._Turns, "take", one_turn)
    monkeypatch.setattr(frontier._Turns, "prune", one_pruning)
    monkeypatch.setattr(frontier.solve_planned, "__kwdefaults__", {**frontier.solve_planned.__kwdefaults__, "width": 1})
    for seed in range(8100, 8112):
        if (found := near_tie(sort, seed, MARGINS[seed % 4])) is not None:
            mislead(monkeypatch, found[1])
            check_optimal(found[0], mm.marginal_map(found[0].circuit, found[0].query, found[0].evidence))
    if sort in ("coins", "dense", "latent tree"):
        assert any(turns)
        assert any(pruned)


def test_no_option_of_a_method_is_taken():
    with pytest.raises(mm.QueryError, match="method 'auto' has no option 'width'"):
        mm.marginal_map(hard(), None, width=3)


@pytest.mark.parametrize("limit", [{"time_limit": 1e-6}, {"time_limit": 0.05}, {"memory_limit": 1}, {"gap": 10.0}])
def test_limits_reach_whatever_is_chosen(limit):
    for c in (hard(), partition_tree(0, variables=30, levels=2, children=4)):
        r = mm.marginal_map(c, None, **({"time_limit": 0.3} | limit))
        assert r.status in typing.get_args(Status)
        assert r.log_prob == pytest.approx(mm.log_marginal(c, r.state), rel=1e-12)
        assert -math.inf < r.log_prob <= r.log_upper < math.inf
        assert (r.status == "optimal") == (r.gap <= limit.get("gap", 1e-9))


@pytest.mark.parametrize("name", INSTANCES)
def test_shared_instances(shared, name):
    data = json.loads((shared / "mmap_instances" / f"{name}.json").read_text())
    c = mm.load(shared / data["circuit"])
    assert len(data["instances"]) == 4
    for instance in data["instances"]:
        evidence = {int(v): x for v, x in instance["evidence"].items()}
        r = mm.marginal_map(c, instance["query"], evidence)
        assert (r.status, r.method) == ("optimal", "frontier")
        assert r.log_prob == pytest.approx(instance["log_optimum"], rel=1e-9)
        assert r.log_upper >= r.log_prob
        assert mm.log_marginal(c, evidence | r.state) == pytest.approx(r.log_prob, rel=1e-12)


@pytest.fixture(scope="module")
def mnist(shared):
    return mm.load(shared / "other" / "mnist_cats8_181.jpc.gz")


@pytest.mark.parametrize("sort", ["30/30/40", "50/20/30", "50/0/50", "100/0/0"])
def test_mnist(mnist, sort):
    asked, observed, _ = (round(784 * int(percent) / 100) for percent in sort.split("/"))
    image = mm.sample(mnist, 1, seed=4)[0]
    order = np.random.default_rng(4).permutation(784)
    names = [mnist.names[i] for i in order]
    query = names[:asked]
    evidence = {mnist.names[i]: int(image[i]) for i in order[asked : asked + observed]}
    r = mm.marginal_map(mnist, query, evidence)
    assert (r.status, r.method) == ("optimal", "frontier")
    assert set(r.state) == set(query)
    assert r.log_prob == pytest.approx(mm.log_marginal(mnist, evidence | r.state), rel=1e-12)
    # The sampled image, and every state one flip away, are no better.
    assert r.log_prob >= mm.log_marginal(mnist, evidence | {mnist.names[i]: int(image[i]) for i in order[:asked]})
    rows = np.full((asked, 784), -1)
    for v, x in (evidence | r.state).items():
        rows[:, v - 1] = x
    flipped = np.array(query) - 1
    rows[np.arange(asked), flipped] = 1 - rows[0, flipped]
    assert mm.log_likelihood(mnist, rows).max() <= r.log_upper
    # A search of its own kind agrees, or at least its bounds do not exclude the answer.
    other = mm.marginal_map(mnist, query, evidence, "branch", time_limit=0.5)
    assert other.log_prob <= r.log_upper
    assert r.log_prob <= other.log_upper
    if other.status == "optimal":
        assert other.log_prob == pytest.approx(r.log_prob, rel=1e-9)
