"""The iterative solver: enumeration on hundreds of circuits, MPE, its options, every way to stop it, real circuits."""

import itertools
import json
import math
import os
import signal
import threading

import pytest

import margmap as mm
import naive
from circuits import columns, fixed
from counts import cases
from enumeration import mixture, mixture_optimum, problem
from margmap import marginal_map

OPTIONS = [
    {"heuristic": heuristic, "regroup": regroup, "climb": climb, "fix": fix}
    for heuristic, regroup, climb, fix in itertools.product(
        ("UB", "Pruned"), (True, False), (True, False), (True, False)
    )
]
PLAIN = {"regroup": False, "climb": False, "fix": False}
#: Circuits in the suite for the solver itself, and how many of the 16 settings each is solved with.
CIRCUITS, BLOCK, SETTINGS = cases(750, "MARGMAP_CIRCUITS"), 250, 4
#: Edges enough for a hard circuit to take several seconds, so that something else stops it first.
ROOM = 20_000_000


def check_monotone(trace):
    """The upper bound never rises and the lower bound never falls, within an iteration and from one to the next."""
    shots = [shot for row in trace for shot in (row.pruned, row.split)]
    for before, after in itertools.pairwise(shots):
        assert after.upper <= before.upper
        assert after.lower >= before.lower


@pytest.mark.parametrize("first", range(0, CIRCUITS, BLOCK))
def test_equals_enumeration(first):
    """Each circuit with four of the sixteen settings, so that every setting sees a quarter of them."""
    split = 0
    for seed in range(first, first + BLOCK):
        circuit, query, evidence = problem(seed)
        asked, given = columns(circuit, query), fixed(circuit, evidence)
        ranked = naive.marginal_map(circuit, asked, given)
        score = {q: p for p, q in ranked}
        best = naive.log(ranked[0][0])
        for k in range(SETTINGS):
            options = OPTIONS[(5 * k + seed) % len(OPTIONS)]
            r = marginal_map(circuit, query, evidence, method="iterative", **options)
            where = f"seed {seed}, {options}"
            assert r.status == "optimal", where
            assert abs(r.log_prob - best) <= 1e-9, where
            assert best - 1e-12 <= r.log_upper <= best + 1e-9, where
            labels = (v.states.index(x) if isinstance(x, str) else x for v, x in zip_state(circuit, asked, r.state))
            assert abs(naive.log(score[tuple(labels)]) - r.log_prob) <= 1e-12, where
            check_monotone(r.trace)
            split += any(row.split_variable is not None for row in r.trace)
    assert split > BLOCK / 4


def zip_state(circuit, asked, state):
    return zip((circuit.variables[column] for column in asked), state.values(), strict=True)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
def test_mpe_of_a_circuit_that_is_not_deterministic(options):
    """A mixture of nine components that all overlap: every single-component state is wrong or unproven."""
    for seed in range(3):
        circuit, p = mixture(9, 9, seed=seed, spread=0.3)
        r = marginal_map(circuit, None, method="iterative", **options)
        assert r.status == "optimal"
        assert r.log_prob == pytest.approx(mixture_optimum(p), abs=1e-9)
        assert r.log_prob == pytest.approx(naive.log(naive.marginal_map(circuit, list(range(9)))[0][0]), abs=1e-9)
        assert r.trace


class TestOptions:
    circuit, p = mixture(10, 8, spread=0.3)

    def test_unknown_heuristic(self):
        with pytest.raises(mm.QueryError, match="unknown heuristic 'ub': did you mean 'UB'\\? choose 'UB' or 'Pruned'"):
            marginal_map(self.circuit, None, method="iterative", heuristic="ub")

    def test_unknown_option(self):
        with pytest.raises(
            mm.QueryError, match="has no option 'regrupe': did you mean 'regroup'\\? it takes heuristic, regroup"
        ):
            marginal_map(self.circuit, None, method="iterative", regrupe=False)

    def test_the_printed_rule_is_not_offered(self):
        for name in ("printed", "rule", "edge_rule", "siblings"):
            with pytest.raises(mm.QueryError, match="has no option"):
                marginal_map(self.circuit, None, method="iterative", **{name: True})

    def test_details(self):
        r = marginal_map(self.circuit, None, method="iterative")
        assert r.details["iterations"] == len(r.trace) > 0
        assert r.details["peak_edges"] >= max(max(row.pruned.edges, row.split.edges) for row in r.trace)

    def test_at_most_one_split_a_variable(self):
        for options in OPTIONS:
            trace = marginal_map(self.circuit, None, method="iterative", **options).trace
            variables = [row.split_variable for row in trace if row.split_variable is not None]
            assert len(variables) == len(set(variables)) <= 10

    def test_a_wide_gap_saves_iterations(self):
        exact = marginal_map(self.circuit, None, method="iterative", **PLAIN)
        rough = marginal_map(self.circuit, None, method="iterative", gap=0.5, **PLAIN)
        assert rough.status == "optimal"
        assert rough.gap <= 0.5
        assert len(rough.trace) < len(exact.trace)
        assert rough.log_prob - 1e-12 <= mixture_optimum(self.p) <= rough.log_upper


class TestStops:
    """Each stop has a state, honest bounds and its reason."""

    circuit, p = mixture(16, 40)
    optimum = mixture_optimum(p)

    def check(self, r, circuit, optimum=None):
        assert set(r.state) == set(circuit.names)
        assert r.log_prob == pytest.approx(mm.log_marginal(circuit, r.state), rel=1e-12)
        assert math.isfinite(r.log_upper)
        assert r.log_prob <= r.log_upper
        assert r.gap > 1e-9
        check_monotone(r.trace)
        if optimum is not None:
            assert r.log_prob - 1e-12 <= optimum <= r.log_upper

    @pytest.mark.parametrize("heuristic", ["UB", "Pruned"])
    @pytest.mark.parametrize("time_limit", [1e-6, 0.05])
    def test_time_limit(self, heuristic, time_limit):
        r = marginal_map(
            self.circuit, None, method="iterative", time_limit=time_limit, max_edges=ROOM, heuristic=heuristic
        )
        assert r.status == "time_limit"
        self.check(r, self.circuit, self.optimum)
        assert r.seconds < 5

    @pytest.mark.parametrize("max_edges", [1, 3000, 50_000])
    def test_edge_limit(self, max_edges):
        r = marginal_map(self.circuit, None, method="iterative", max_edges=max_edges)
        assert r.status == "memory_limit"
        self.check(r, self.circuit, self.optimum)
        assert all(row.split.edges <= max(max_edges, 680) for row in r.trace)

    def test_more_room_a_smaller_gap(self):
        gaps = [marginal_map(self.circuit, None, method="iterative", max_edges=m).gap for m in (1, 3000, 50_000)]
        assert gaps == sorted(gaps, reverse=True)
        assert gaps[0] > gaps[-1]

    @pytest.mark.skipif(os.name == "nt", reason="signals work differently there")
    def test_ctrl_c(self):
        circuit, _ = mixture(40, 60)
        stray = []
        before = signal.signal(signal.SIGINT, lambda *_: stray.append(True))
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            r = marginal_map(circuit, None, method="iterative", time_limit=60, max_edges=ROOM)
            assert not timer.is_alive()
        finally:
            timer.cancel()
            signal.signal(signal.SIGINT, before)
        assert stray == []
        assert r.status == "interrupted"
        assert r.seconds < 10
        self.check(r, circuit)


#: All four instances of each, and of `ad` the two that take the least time.
SOLVED = {
    **dict.fromkeys(("nltcs", "msnbc", "kdd", "plants", "tretail", "pumsb_star", "bnetflix", "baudio"), range(4)),
    **dict.fromkeys(("book", "c20ng", "cwebkb"), range(4)),
    "ad": (0, 2),
}


@pytest.mark.parametrize("name", SOLVED)
def test_shared_instances(shared, name):
    path = shared / "mmap_instances" / f"{name}.json"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    data = json.loads(path.read_text())
    circuit = mm.load(shared / data["circuit"])
    for index in SOLVED[name]:
        instance = data["instances"][index]
        evidence = {int(v): x for v, x in instance["evidence"].items()}
        r = marginal_map(circuit, instance["query"], evidence, method="iterative", time_limit=120)
        assert r.status == "optimal"
        assert r.gap <= 1e-9
        assert r.log_prob == pytest.approx(instance["log_optimum"], rel=1e-9)
        check_monotone(r.trace)
