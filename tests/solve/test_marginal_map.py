"""The contract of every method: the optimum of enumeration, a proof, and an honest answer when stopped."""

import dataclasses
import functools
import json
import math
import signal
import typing
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings

import naive
from circuits import SORTS, columns, fixed, instances, random_circuit, random_instance, running_example
from counts import cases
from margmap import (
    ImpossibleEvidenceError,
    LimitError,
    QueryError,
    StructureError,
    Variable,
    bernoulli,
    circuit_of,
    gaussian,
    log_marginal,
    marginal_map,
    mpe,
)
from margmap.circuit import BERNOULLI, CATEGORICAL, INDICATOR, Parts, assemble
from margmap.foundation import jit
from margmap.foundation.limits import Limits, Status, Stopped
from margmap.solve.methods import METHODS as ALL_METHODS
from margmap.solve.methods import MethodName, brute_force, methods_for
from margmap.solve.result import Result

METHODS = [method.name for method in methods_for("circuit")]

KEYS = {"status", "state", "log_prob", "log_conditional", "log_upper", "gap", "method", "seconds"}
A, B, G = Variable("a"), Variable("b", 3), Variable("g", 0)

every_method = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(autouse=True, params=["compile", "interpret"])
def tier(request, monkeypatch):
    """The contract holds in machine code and interpreted, where there are fewer circuits, for the sake of time."""
    if request.param == "interpret":
        monkeypatch.setattr(brute_force, "EDGES_BETWEEN_LOOKS", 1 << 14)
    with jit.forced(request.param):
        yield request.param


def log_of_fraction(f):
    """The logarithm to 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return (Decimal(f.numerator) / Decimal(f.denominator)).ln()


def codes_of(circuit, query, state):
    """The state of a result as numbers, in the order of the query."""
    assert list(state) == query
    answer = []
    for i, label in zip(columns(circuit, query), state.values(), strict=True):
        states = circuit.variables[i].states
        assert isinstance(label, str) == bool(states)
        answer.append(states.index(label) if states else label)
    return answer


def fits(circuit, method):
    """`frontier` is for structured circuits; what it does with others is in tests/solve/test_frontier.py."""
    return method != "frontier" or circuit.properties.structured


class Case:
    """A circuit and a question about it, with what enumeration says, which is asked once for all methods."""

    def __init__(self, circuit, query, evidence):
        self.question = circuit, query, evidence

    @functools.cached_property
    def best(self):
        circuit, query, evidence = self.question
        return naive.optimum(circuit, columns(circuit, query), fixed(circuit, evidence))

    @functools.cached_property
    def log_evidence(self):
        circuit, _, evidence = self.question
        return naive.log(naive.probability(circuit, fixed(circuit, evidence)))


@functools.cache
def generated(sort, seed):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, **SORTS[sort])
    return Case(circuit, *random_instance(rng, circuit))


def check_optimal(circuit, query, evidence, method):
    return check_case(Case(circuit, query, evidence), method)


def check_case(case, method):
    circuit, query, evidence = case.question
    given_, asked = fixed(circuit, evidence), columns(circuit, query)
    try:
        r = marginal_map(circuit, query, evidence, method=method)
    except StructureError:
        assert not fits(circuit, method)
        return None
    best = case.best
    state = dict(zip(asked, codes_of(circuit, query, r.state), strict=True))
    own = naive.probability(circuit, {**given_, **state}, exact=True)
    assert r.status == "optimal"
    assert r.log_prob == pytest.approx(naive.log(own), rel=1e-12, abs=1e-12)
    assert float(own / best) == pytest.approx(1, rel=1e-9)
    assert Decimal(r.log_upper) >= log_of_fraction(best)
    assert r.log_prob <= r.log_upper
    assert r.gap == r.log_upper - r.log_prob
    assert r.gap <= 1e-9
    assert r.log_conditional == pytest.approx(r.log_prob - case.log_evidence, rel=1e-9, abs=1e-9)
    assert r.method == method
    assert r.seconds > 0
    return r


@every_method
@pytest.mark.parametrize("sort", SORTS)
def test_equals_enumeration(method, sort, tier):
    for seed in range(cases(100) if tier == "compile" else 2):
        check_case(generated(sort, seed), method)


@every_method
def test_equals_enumeration_shrinking(method, tier):
    @settings(max_examples=cases(40) if tier == "compile" else 5)
    @given(instances())
    def run(instance):
        check_optimal(*instance, method)

    run()


@every_method
def test_equals_enumeration_on_more_variables(method, tier):
    for seed in range(cases(5) if tier == "compile" else 1):
        rng = np.random.default_rng(seed)
        c = random_circuit(rng, variables=10, structured=bool(seed % 2), deterministic=seed % 3 == 0, most=150)
        check_optimal(c, *random_instance(rng, c), method)


@every_method
def test_running_example(method):
    c = running_example()
    r = check_optimal(c, ["X1", "X2"], {}, method)
    assert r.state == {"X1": 1, "X2": 1}
    assert math.exp(r.log_prob) == pytest.approx(0.378)
    r = check_optimal(c, ["X2"], {"X3": 1, "X1": 0}, method)
    assert (r.state, math.exp(r.log_prob)) == ({"X2": 1}, pytest.approx(0.256))
    assert math.exp(r.log_conditional) == pytest.approx(0.8)


@every_method
def test_mpe_where_max_product_is_wrong(method):
    """Two overlapping components: the best state is none of the components' own best."""
    c = circuit_of(
        0.4 * bernoulli(A, 0.9) * bernoulli(Variable("c"), 0.1)
        + 0.6 * bernoulli(A, 0.6) * bernoulli(Variable("c"), 0.4)
    )
    r = check_optimal(c, ["a", "c"], {}, method)
    assert math.exp(r.log_prob) == pytest.approx(0.4 * 0.81 + 0.6 * 0.36)


@every_method
def test_paper_edge_bound_counterexample(method):
    """Algorithm 2 as printed prunes the optimum here (X = 0, Y = 0 with .43)."""
    x, y = Variable("x"), Variable("y")
    c = circuit_of(0.5 * bernoulli(x, 0.9) * bernoulli(y, 0.5) + 0.5 * bernoulli(x, 0.1) * bernoulli(y, 0.1))
    r = check_optimal(c, ["x", "y"], {}, method)
    assert r.state == {"x": 0, "y": 0}
    assert math.exp(r.log_prob) == pytest.approx(0.43)


@every_method
def test_no_query_is_mpe(method):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        c = random_circuit(rng, continuous=seed % 2 == 0, variables=5, structured=seed % 3 > 0)
        if not fits(c, method):
            continue
        _, evidence = random_instance(rng, c)
        hidden = [v.name for v in c.variables if not v.cardinality and v.name not in evidence]
        if hidden:
            with pytest.raises(QueryError, match=f"observe the continuous {', '.join(hidden)}, or give the query"):
                marginal_map(c, None, evidence, method=method)
            evidence |= dict.fromkeys(hidden, 0.5)
        query = [v.name for v in c.variables if v.cardinality and v.name not in evidence]
        r = marginal_map(c, evidence=evidence, method=method)
        same = mpe(c, evidence, method=method)
        assert (r.state, r.log_prob) == (same.state, same.log_prob)
        assert r.log_upper == pytest.approx(same.log_upper, abs=1e-9)  # what best-first closes first may differ
        asked = columns(c, query)
        assert list(r.state) == query
        assert r.status == "optimal"
        assert r.log_prob == pytest.approx(naive.log(naive.marginal_map(c, asked, fixed(c, evidence))[0][0]), abs=1e-9)
        state = dict(zip(asked, codes_of(c, query, r.state), strict=True))
        assert naive.log(naive.probability(c, {**fixed(c, evidence), **state})) == pytest.approx(r.log_prob, abs=1e-9)


@every_method
def test_empty_query(method):
    c = running_example()
    r = marginal_map(c, [], {"X1": 1}, method=method)
    assert (r.status, r.state) == ("optimal", {})
    assert r.log_prob == pytest.approx(log_marginal(c, {"X1": 1}), abs=1e-15)
    assert r.log_conditional == pytest.approx(0, abs=1e-12)
    assert r.gap <= 1e-9
    r = marginal_map(c, None, {"X1": 1, "X2": 1, "X3": 1}, method=method)
    assert (r.state, math.exp(r.log_prob)) == ({}, pytest.approx(0.378))


@every_method
def test_single_leaf(method):
    assert check_optimal(circuit_of(B[2]), ["b"], {}, method).state == {"b": 2}
    assert check_optimal(circuit_of(bernoulli(A, 0.3)), ["a"], {}, method).state == {"a": 0}
    assert check_optimal(circuit_of(3 * bernoulli(A, 0.7)), ["a"], {}, method).log_prob == pytest.approx(math.log(2.1))


@every_method
def test_ties(method):
    c = circuit_of(bernoulli(A, 0.5) * bernoulli(Variable("c"), 0.5) * bernoulli(Variable("d"), 0.5))
    assert check_optimal(c, ["a", "c", "d"], {}, method).log_prob == pytest.approx(math.log(0.125))


@every_method
def test_names_of_variables_and_states(method):
    sky = Variable("sky", 3, ("clear", "cloudy", "rain"))
    c = circuit_of(0.2 * sky["clear"] * bernoulli(Variable(7), 0.9) + 0.8 * sky["rain"] * bernoulli(Variable(7), 0.4))
    r = check_optimal(c, [7, "sky"], {}, method)
    assert r.state == {7: 0, "sky": "rain"}
    assert [type(x) for x in r.state.values()] == [int, str]
    assert list(marginal_map(c, ["7", "sky"], method=method).state) == [7, "sky"]
    assert marginal_map(c, [7], {"sky": "clear"}, method=method).state == {7: 1}


@every_method
def test_continuous_evidence_and_hidden(method):
    c = circuit_of(0.5 * A[0] * gaussian(G, -1, 1) + 0.5 * A[1] * gaussian(G, 1, 1))
    assert check_optimal(c, ["a"], {"g": -0.2}, method).state == {"a": 0}
    assert check_optimal(c, ["a"], {"g": 0.2}, method).state == {"a": 1}
    assert check_optimal(c, ["a"], {}, method).log_prob == pytest.approx(math.log(0.5))


@every_method
def test_evidence_below_the_smallest_float(method):
    n = 2000
    parts = Parts.new()
    components = []
    for x, p in ((0, 1e-3), (1, 1.01e-3)):
        leaves = [parts.leaf(BERNOULLI, i, [math.log(p), math.log1p(-p)]) for i in range(n)]
        components.append(parts.product([*leaves, parts.leaf(INDICATOR, n, [float(x)])]))
    parts.sum(components, [math.log(0.9), math.log(0.1)])
    c = assemble([Variable(i) for i in range(n + 1)], parts)
    r = marginal_map(c, [n], dict.fromkeys(range(n), 1), method=method)
    assert (r.status, r.state) == ("optimal", {n: 1})
    assert r.log_prob == pytest.approx(math.log(0.1) + n * math.log(1.01e-3), rel=1e-12)
    assert r.log_upper >= r.log_prob


@every_method
def test_weights_below_the_smallest_float(method):
    parts = Parts.new()
    leaves = [parts.leaf(INDICATOR, 0, [float(x)]) for x in range(2)]
    b = [parts.leaf(BERNOULLI, 1, [math.log(p), math.log1p(-p)]) for p in (0.5, 0.2)]
    parts.sum([parts.product(list(pair)) for pair in zip(leaves, b, strict=True)], [0.0, -800.0])
    c = assemble([Variable("a"), Variable("b")], parts)
    r = marginal_map(c, ["b"], {"a": 1}, method=method)
    assert (r.status, r.state) == ("optimal", {"b": 0})
    assert r.log_prob == pytest.approx(-800 + math.log(0.8), rel=1e-12)
    r = marginal_map(c, ["a"], {"b": 1}, method=method)
    assert (r.status, r.state) == ("optimal", {"a": 0})


def wide_circuit(method="brute"):
    """20 binary variables, far from deterministic: a million states, and enough edges to take a while over them."""
    return _wide(method == "frontier")


def wide_optimum(method="brute"):
    """The log p of its best state; naive enumeration would take hours, and `brute` is tested against it above."""
    return _optimum_of(wide_circuit(method))


@functools.cache
def _wide(structured):
    rng = np.random.default_rng(2)
    return random_circuit(rng, variables=20, structured=structured, zeros=False, spread=0.3, most=1500)


@functools.cache
def _optimum_of(circuit):
    with jit.forced("compile"):
        r = marginal_map(circuit, None, method="brute")
    assert r.status == "optimal"
    return r.log_prob


@every_method
@pytest.mark.parametrize("time_limit", [1e-6, 0.02])
def test_time_limit(method, time_limit):
    c = wide_circuit(method)
    r = marginal_map(c, None, method=method, time_limit=time_limit)
    assert r.status in typing.get_args(Status)
    assert (r.status == "optimal") == (r.gap <= 1e-9)
    assert set(r.state) == set(c.names)
    assert r.log_prob == pytest.approx(log_marginal(c, r.state), rel=1e-12)
    assert r.log_prob <= r.log_upper
    assert math.isfinite(r.log_upper)
    assert r.log_prob - 1e-9 <= wide_optimum(method) <= r.log_upper
    assert r.seconds < 30


def test_time_limit_stops_enumeration():
    r = marginal_map(wide_circuit(), None, method="brute", time_limit=1e-6)
    assert r.status == "time_limit"
    assert r.gap > 1e-9
    assert r.log_prob <= wide_optimum() <= r.log_upper


@every_method
@pytest.mark.parametrize("stop", ["time_limit", "interrupted"])
def test_stopped_early_the_state_is_possible(method, stop, tier, monkeypatch):
    """The first half of all states, in the order of enumeration, has probability 0."""
    if stop == "interrupted":
        monkeypatch.setattr(Limits, "check", interrupted)
    rest = [Variable(i) for i in range(16 if tier == "compile" else 11)]
    c = circuit_of(math.prod((bernoulli(v, 0.3) for v in rest), start=A[1]), [A, *rest])
    r = marginal_map(c, None, method=method, time_limit=1e-6 if stop == "time_limit" else None)
    assert r.status in ("optimal", stop)
    assert r.state["a"] == 1
    assert -math.inf < r.log_prob <= r.log_upper
    assert r.log_upper >= len(rest) * math.log(0.7)


def interrupted(_limits):
    raise Stopped("interrupted")


@functools.cache
def far_below_its_bound(*mixture):
    """2500 variables, each with the same mixture of overlapping parts: (weight, probabilities of three values).

    Each halves a state's value relative to its bound, or worse, so that the relative value is far below any float.
    """
    parts = Parts.new()
    mixtures = []
    for i in range(2500):
        leaves = [parts.leaf(CATEGORICAL, i, [math.log(p) if p else -math.inf for p in ps]) for _, ps in mixture]
        mixtures.append(parts.sum(leaves, [math.log(w) for w, _ in mixture]))
    parts.product(mixtures)
    return assemble([Variable(i, 3) for i in range(2500)], parts)


@pytest.mark.parametrize(
    ("method", "options"),
    [(m, {}) for m in METHODS if m != "brute"] + [("iterative", {"climb": False}), ("iterative", {"regroup": False})],
)
@pytest.mark.parametrize("p", [0.1, 0.45])
def test_a_state_whose_value_underflows_is_kept(method, options, p, monkeypatch):
    monkeypatch.setattr(Limits, "check", interrupted)
    c = far_below_its_bound((0.5, (0, p, 1 - p)), (0.5, (0, 1 - p, p)))
    assert marginal_map(c, None, method=method, **options).log_prob > -math.inf


@pytest.mark.parametrize("method", ["auto", "frontier", "branch", "iterative"])
def test_what_underflows_is_not_taken_for_proven(method):
    """The state with the heaviest part everywhere is not the best one: two parts agree on another value."""
    c = far_below_its_bound((0.34, (0.98, 0.01, 0.01)), (0.33, (0, 0.6, 0.4)), (0.33, (0.001, 0.599, 0.4)))
    best = 2500 * math.log(0.34 * 0.01 + 0.33 * 0.6 + 0.33 * 0.599)
    r = marginal_map(c, None, method=method, time_limit=1)
    assert r.log_upper >= best
    assert r.status != "optimal" or r.log_prob == pytest.approx(best, rel=1e-12)


@every_method
def test_a_leaf_value_below_the_smallest_float(method):
    parts = Parts.new()
    b = [parts.leaf(CATEGORICAL, 1, [0.0, low]) for low in (-800.0, -799.0)]
    leaves = [parts.leaf(INDICATOR, 0, [float(x)]) for x in range(2)]
    parts.sum([parts.product(list(pair)) for pair in zip(leaves, b, strict=True)], [math.log(0.6), math.log(0.4)])
    c = assemble([Variable("a"), Variable("b")], parts)
    r = marginal_map(c, ["a"], {"b": 1}, method=method)
    assert (r.status, r.state) == ("optimal", {"a": 1})
    assert r.log_prob == pytest.approx(math.log(0.4) - 799, rel=1e-14)
    r = marginal_map(c, ["a", "b"], method=method)
    assert (r.status, r.state) == ("optimal", {"a": 0, "b": 0})
    assert r.log_upper >= math.log(0.6)


@every_method
def test_a_wider_gap_is_enough_if_asked_for(method):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        c = random_circuit(rng, variables=8, structured=bool(seed % 2))
        if not fits(c, method):
            continue
        query, evidence = random_instance(rng, c)
        r = marginal_map(c, query, evidence, method=method, gap=0.7)
        best = naive.optimum(c, columns(c, query), fixed(c, evidence))
        assert r.status == "optimal"
        assert r.gap <= 0.7
        assert Decimal(r.log_upper) >= log_of_fraction(best)
        assert r.log_prob >= naive.log(best) - 0.7 - 1e-9


@every_method
def test_ctrl_c_returns_what_is_known(method, monkeypatch):
    """Ctrl-C arrives while the solver works: at the first moment it looks at its limits."""
    check, before, asked = Limits.check, signal.getsignal(signal.SIGINT), []

    def check_with_ctrl_c(self):
        if not asked:
            signal.raise_signal(signal.SIGINT)
        asked.append(self)
        check(self)

    monkeypatch.setattr(Limits, "check", check_with_ctrl_c)
    c = wide_circuit(method)
    r = marginal_map(c, None, method=method)
    assert asked
    assert r.status == "interrupted"
    assert r.log_prob == pytest.approx(log_marginal(c, r.state), rel=1e-12)
    monkeypatch.undo()
    assert r.log_prob <= wide_optimum(method) <= r.log_upper
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_twice_is_not_swallowed(monkeypatch):
    def impatient(self):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(Limits, "check", impatient)
    with pytest.raises(KeyboardInterrupt):
        marginal_map(wide_circuit(), None, method="brute")
    assert signal.getsignal(signal.SIGINT) is before


@every_method
def test_works_outside_the_main_thread(method):
    with ThreadPoolExecutor(1) as pool:
        r = pool.submit(marginal_map, running_example(), ["X1", "X2"], method=method).result()
    assert r.state == {"X1": 1, "X2": 1}


def test_brute_refuses_too_many_states():
    parts = Parts.new()
    parts.product([parts.leaf(BERNOULLI, i, [math.log(0.3), math.log(0.7)]) for i in range(25)])
    c = assemble([Variable(i) for i in range(25)], parts)
    message = r"method 'brute' would enumerate 3.36e\+07 states; it is refused above 2\^24 = 16777216"
    with pytest.raises(LimitError, match=message):
        marginal_map(c, None, method="brute")
    assert marginal_map(c, list(range(10)), method="brute").status == "optimal"


@pytest.mark.parametrize("method", ["auto", *METHODS])
class TestRefused:
    @pytest.mark.parametrize(
        ("query", "evidence", "message"),
        [
            (["X1"], {"X1": 0}, "variable 'X1' is both queried and observed: drop it from one of the two"),
            (["X1", "X1"], {}, "variable 'X1' is queried twice"),
            (["Y"], {}, "unknown variable 'Y': the circuit has X1, X2, X3"),
            (["X1"], {"Y": 0}, "unknown variable 'Y': the circuit has X1, X2, X3"),
            (["X1"], {"X2": 5}, "variable 'X2': value 5 is out of range 0 to 1"),
            (["X1"], {"X2": "on"}, "variable 'X2' has no state 'on'"),
            ("X1", {}, r"query='X1': .*give a list of variables"),
            (["X1"], {"X2": [0]}, r"variable 'X2': \[0\] can be a set of values or a list of weights"),
        ],
    )
    def test_bad_question(self, method, query, evidence, message):
        with pytest.raises(QueryError, match=message):
            marginal_map(running_example(), query, evidence, method=method)

    def test_continuous_query(self, method):
        c = circuit_of(bernoulli(A, 0.3) * gaussian(G, 0, 1))
        with pytest.raises(QueryError, match="variable 'g' is continuous"):
            marginal_map(c, ["g"], method=method)

    @pytest.mark.parametrize("query", [["X1"], [], None])
    def test_impossible_evidence(self, method, query):
        with pytest.raises(ImpossibleEvidenceError, match="the evidence has probability 0"):
            marginal_map(running_example(), query, {"X2": 1, "X3": 0}, method=method)

    def test_a_circuit_that_is_zero_everywhere(self, method):
        with pytest.raises(ImpossibleEvidenceError):
            marginal_map(circuit_of(0 * A[0] + 0 * A[1]), ["a"], method=method)

    @pytest.mark.parametrize("time_limit", [0, -1, math.nan, "5", [1], True, 1j])
    def test_bad_time_limit(self, method, time_limit):
        with pytest.raises(QueryError, match=r"time_limit=.*positive number of seconds"):
            marginal_map(running_example(), ["X1"], method=method, time_limit=time_limit)

    @pytest.mark.parametrize("gap", [-1, math.nan, "0.1", None, True, 1j])
    def test_bad_gap(self, method, gap):
        with pytest.raises(QueryError, match=r"gap=.*at least 0"):
            marginal_map(running_example(), ["X1"], method=method, gap=gap)


def test_unknown_method_lists_the_known_ones():
    with pytest.raises(QueryError) as caught:
        marginal_map(running_example(), ["X1"], method="magic")
    assert str(caught.value).startswith("unknown method 'magic': choose auto, ")
    for name in METHODS:
        assert name in str(caught.value)


@pytest.mark.parametrize("method", ["auto", *METHODS])
def test_unknown_option(method):
    with pytest.raises(QueryError, match=r"method '.*' has no option 'magic': it takes"):
        marginal_map(running_example(), ["X1"], method=method, magic=1)


def test_auto_names_the_method_it_chose():
    for seed in range(30):
        rng = np.random.default_rng(seed)
        c = random_circuit(rng, structured=bool(seed % 2))
        query, evidence = random_instance(rng, c)
        r = marginal_map(c, query, evidence)
        assert r.method in METHODS
        best = naive.marginal_map(c, columns(c, query), fixed(c, evidence))[0][0]
        assert r.log_prob == pytest.approx(naive.log(best), abs=1e-9)


@every_method
def test_same_question_same_answer(method):
    rng = np.random.default_rng(7)
    c = random_circuit(rng, variables=8, structured=method == "frontier")
    first, second = (marginal_map(c, None, method=method) for _ in range(2))
    assert (first.state, first.log_prob, first.log_upper) == (second.state, second.log_prob, second.log_upper)


@every_method
class TestResult:
    def result(self, method):
        return marginal_map(running_example(), ["X1", "X2"], method=method)

    def test_to_dict(self, method):
        d = self.result(method).to_dict()
        assert set(d) == KEYS
        assert json.loads(json.dumps(d, allow_nan=False)) == d
        assert d["state"] == {"X1": 1, "X2": 1}
        assert (d["status"], d["method"]) == ("optimal", method)

    def test_to_dict_with_integer_names(self, method):
        d = marginal_map(circuit_of(Variable(3)[1] * Variable(4)[0]), [4, 3], method=method).to_dict()
        assert d["state"] == {"4": 0, "3": 1}

    def test_text(self, method):
        lines = str(self.result(method)).splitlines()
        assert lines[0] == "X1=1, X2=1"
        assert lines[1] == "log p(q, e) = -0.972861, p(q | e) = 0.378"
        assert lines[2] == "proven optimal: no state is better (bounds within 1e-09 nats)"
        assert lines[3].startswith(f"method {method}, ")

    def test_frozen(self, method):
        r = self.result(method)
        with pytest.raises(dataclasses.FrozenInstanceError):
            r.status = "time_limit"
        with pytest.raises(dataclasses.FrozenInstanceError):
            del r.state


def test_text_of_a_stopped_result():
    state = {f"v{i}": 0 for i in range(20)}
    r = Result("time_limit", state, -10.0, -9.0, -8.5, "brute", 1.25)
    lines = str(r).splitlines()
    assert lines[0].startswith("v0=0, v1=0")
    assert lines[0].endswith("v11=0, ... (20 variables)")
    assert lines[2] == "stopped (time limit): a better state can have at most log p = -8.500000, 1.5 nats more"
    assert r.gap == 1.5
    assert r.trace == ()
    wide = Result("optimal", {"a": 1}, -10.0, -9.0, -9.5, "brute", 1.25)
    assert "within the gap asked for: a better state can have at most log p = -9.500000, 0.5 nats more" in str(wide)


def test_type_checkers_know_the_methods():
    assert sorted(typing.get_args(MethodName)) == sorted(["auto", *ALL_METHODS])
