"""A small part of ``scripts/adversary.py``: its oracle, its judge, cases of every kind, and cases that once failed."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

import margmap as mm
import naive
from margmap.errors import ImpossibleEvidenceError


def _load() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "adversary.py"
    spec = importlib.util.spec_from_file_location("adversary", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["adversary"] = module
    spec.loader.exec_module(module)
    return module


adversary = _load()
Leaf, Product, Sum, Table, Asked = adversary.Leaf, adversary.Product, adversary.Sum, adversary.Table, adversary.Asked
INDICATOR, BERNOULLI, CATEGORICAL, GAUSSIAN = 0, 1, 2, 4
QUICK = [kind for kind in adversary.KINDS if kind not in ("big bulk", "large query", "network")]


# --- the oracle, the judge


@pytest.mark.parametrize("kind", [kind for kind in QUICK if kind != "huge"])
def test_both_oracles_agree(kind: str) -> None:
    for index in range(6):
        case, _ = adversary.make_case(11, index, [kind])
        exact, quick = adversary.exact_truth(case), adversary.long_double_truth(case)
        assert exact.values.keys() == quick.values.keys()
        for state, value in exact.values.items():
            other = quick.values[state]
            assert (value is None) == (other is None)
            if value is not None:
                assert abs(adversary.double(value - other)) <= exact.error + quick.error


@pytest.mark.parametrize("kind", ["plain", "ties", "leaves"])
def test_the_oracle_agrees_with_fractions(kind: str) -> None:
    for index in range(4):
        case, _ = adversary.make_case(12, index, [kind])
        truth, circuit = adversary.oracle(case), adversary.to_circuit(case)
        fixed = {v: int(x) for v, x in case.evidence.items()}
        for p, state in naive.marginal_map(circuit, list(case.query), fixed, exact=True):
            value = truth.values[state]
            assert (value is None) == (p == 0)
            if value is not None:  # naive rounds each weight once
                assert abs(adversary.double(value) - naive.log(p)) < 1e-11


def test_the_oracle_agrees_with_fractions_on_networks() -> None:
    for index in range(12):
        case, _ = adversary.make_case(13, index, ["network"])
        truth = adversary.oracle(case)
        sums = dict.fromkeys(truth.values, Fraction(0))
        for at in range(math.prod(case.cards)):
            full = []
            for card in reversed(case.cards):
                at, x = divmod(at, card)
                full.append(x)
            full.reverse()
            if all(full[v] == x for v, x in case.evidence.items()):
                sums[tuple(full[q] for q in case.query)] += _joint(case, full)
        for state, p in sums.items():
            value = truth.values[state]
            assert (value is None) == (p == 0)
            if value is not None:
                assert abs(adversary.double(value) - naive.log(p)) < 1e-11


def _joint(case: object, full: list[int]) -> Fraction:
    product = Fraction(1)
    for scope, numbers in case.tables:
        row, last = 0, case.cards[scope[-1]]
        for v in scope:
            row = row * case.cards[v] + full[v]
        total = Fraction(1)
        if case.shape.startswith("bayes"):
            total = sum(map(Fraction, numbers[row - full[scope[-1]] : row - full[scope[-1]] + last]), Fraction(0))
        product *= Fraction(numbers[row]) / total
    return product


def test_a_block_is_best_with_one_value_all_over_it() -> None:
    blocks = [
        Leaf(adversary.BLOCK, 0, (4, math.log(0.3), math.log(0.7))),
        Leaf(adversary.BLOCK, 0, (4, math.log(0.9), math.log(0.1))),
        Sum((0, 1), (math.log(0.55), math.log(0.45))),
    ]
    case = adversary.Case("large query", "one mixture", (2,) * 4, tuple(blocks), (), (0,), {}, {0: 4})
    best = adversary.oracle(case).ranked[0]
    ranked = naive.marginal_map(adversary.to_circuit(case), [0, 1, 2, 3], exact=True)
    assert math.isclose(adversary.double(best[0]), naive.log(ranked[0][0]), rel_tol=1e-14)
    assert ranked[0][1] == (best[1][0],) * 4
    mixed = adversary.state_of(case, {"v0": 0, "v1": 1, "v2": 0, "v3": 0})
    value = adversary.exact_truth(case, [mixed]).values[mixed]
    assert math.isclose(adversary.double(value), naive.log({q: p for p, q in ranked}[0, 1, 0, 0]), rel_tol=1e-14)


def _three_states(k: int = 1) -> tuple[object, object, object, object]:
    """A case with three states, the truth, a way to ask and the answer that is right."""
    leaf = Leaf(CATEGORICAL, 0, (math.log(0.5), math.log(0.3), math.log(0.2)))
    case = adversary.Case("plain", "structured", (3,), (leaf,), (), (0,), {})
    way = Asked("brute", "brute", {"k": k})
    return case, adversary.oracle(case), way, adversary.ask(adversary.to_model(case), case, way)[1]


def _wrong(k: int = 1, **changes: object) -> str:
    case, truth, way, result = _three_states(k)
    changed = replace(result, **{name: change(result) for name, change in changes.items()})
    return adversary.judge(case, truth, way, changed.status, changed)


def test_the_judge_sees_every_broken_promise() -> None:
    assert _wrong() == ""
    assert _wrong(k=3) == ""
    assert "under the optimum" in _wrong(log_upper=lambda r: r.log_prob - 1e-12)
    assert "not a number" in _wrong(log_upper=lambda r: math.nan)
    top = _three_states(3)[3].top
    assert "0.511 more" in _wrong(state=lambda r: {"v0": 1}, top=lambda r: top[1:2])
    assert "off by" in _wrong(top=lambda r: (r.top[0]._replace(log_prob=r.log_prob - 1e-8),))
    assert "log_conditional" in _wrong(top=lambda r: (r.top[0]._replace(log_conditional=-1.0),))
    assert "2 states where 3 exist" in _wrong(k=3, top=lambda r: r.top[:2])
    assert "0.405 more" in _wrong(k=2, top=lambda r: (r.top[0], top[2]))
    assert "twice" in _wrong(k=2, top=lambda r: (r.top[0], r.top[0]))
    assert "first of top" in _wrong(state=lambda r: {"v0": 2})
    stopped = {"status": lambda r: "time_limit", "log_upper": lambda r: 0.0}
    assert _wrong(k=3, top=lambda r: r.top[:2], **stopped) == ""
    assert "under the optimum" in _wrong(status=lambda r: "time_limit", log_upper=lambda r: -0.7)
    case, truth, way, _ = _three_states()
    assert "possible" in adversary.judge(case, truth, way, "ImpossibleEvidenceError", ImpossibleEvidenceError("no"))
    assert "ValueError" in adversary.judge(case, truth, way, "crash", ValueError("oops"))
    nothing = truth._replace(values=dict.fromkeys(truth.values), total=None)
    assert adversary.judge(case, nothing, way, "ImpossibleEvidenceError", ImpossibleEvidenceError("no")) == ""


# --- the attack


@pytest.mark.parametrize("kind", adversary.KINDS)
def test_no_promise_is_broken(kind: str) -> None:
    count, ways = {"big bulk": (1, 4), "large query": (5, 3), "network": (12, 4)}.get(kind, (15, 4))
    for index in range(count):
        _, answers = adversary.run_case(2026, index, [kind], ways)
        for label, status, wrong in answers:
            assert not wrong, f"--kinds '{kind}' --replay 2026:{index}, {label}, {status}: {wrong}"


def _circuit(cards: list[int], query: list[int], evidence: dict[int, float], *nodes: object) -> object:
    return adversary.Case("plain", "one mixture", tuple(cards), tuple(nodes), (), tuple(query), evidence)


FOUND = {
    # Entries of a Markov table that vanish beside its largest one.
    "table over its largest entry": adversary.Case(
        "network",
        "markov",
        (2, 2, 2),
        (),
        (Table((2, 0), (2e-323, 5e73, 9e-297, 1.0)), Table((1, 0), (1e291, 1e-323, 1.0, 1.0))),
        (0,),
        {1: 0},
    ),
    # The states that count lie under 1e-300 of the best, and their values are products.
    "k-th state": _circuit(
        [2] * 4,
        [0, 1, 2, 3],
        {},
        Leaf(CATEGORICAL, 0, (0.0, 0.0)),
        Leaf(BERNOULLI, 1, (-300.0, -690.0)),
        Leaf(CATEGORICAL, 2, (-800.0, -460.0)),
        Leaf(BERNOULLI, 3, (0.0, -5.0)),
        Product((0, 3, 2, 1)),
    ),
    "far tail": _circuit(
        [0],
        [],
        {0: -1e6},
        Leaf(GAUSSIAN, 0, (0.42967243120103327, 4.2711446809503704e-20)),
        Leaf(GAUSSIAN, 0, (0.8424995035058852, 4.2711446809503704e-20)),
        Sum((1, 0), (0.0, -1500.0)),
    ),
    "one state, far out": _circuit(
        [2, 0],
        [0],
        {1: 1e6},
        Leaf(INDICATOR, 0, (0,)),
        Leaf(GAUSSIAN, 1, (0.28814645081425816, 7.035125836652958e-08)),
        Leaf(GAUSSIAN, 1, (1.0, 1.4070251673305916e-07)),
        Product((2, 0)),
        Product((1, 0)),
        Sum((4,), (97.0,)),
        Sum((3, 5), (0.0, 610.0)),
    ),
    # Logs whose sum rounds downwards, and no query: the bound must be rounded upwards.
    "offsets that round": _circuit(
        [2, 2],
        [],
        {1: 0},
        Leaf(BERNOULLI, 0, (math.log(0.3), math.log(0.6))),
        Sum((0,), (-534.9,)),
        Sum((1,), (365.3,)),
        Sum((2,), (-38.9,)),
        Leaf(BERNOULLI, 1, (-650.3, -600.1)),
        Product((3, 4)),
    ),
    # Two unit Gaussians that only the 17th digit of their exponents tells apart.
    "two tails": _circuit(
        [2, 0],
        [0],
        {1: 1e8},
        Leaf(INDICATOR, 0, (0,)),
        Leaf(INDICATOR, 0, (1,)),
        Leaf(GAUSSIAN, 1, (0.0, 1.0)),
        Leaf(GAUSSIAN, 1, (1e-9, 1.0)),
        Product((0, 2)),
        Product((1, 3)),
        Sum((4, 5), (0.05, 0.0)),
    ),
    "three states far apart": _circuit([3], [0], {}, Leaf(CATEGORICAL, 0, (0.0, -5.0, -800.0))),
    "nested huge weights": _circuit(
        [2], [0], {}, Leaf(BERNOULLI, 0, (-0.1, -3.0)), Sum((0,), (1.7e308,)), Sum((1,), (-1.7e308,)), Sum((2,), (1e3,))
    ),
    # 1,200 query variables: the weight of the second term, its share of the mass, times its largest value underflows.
    "share that vanishes": adversary.Case(
        "large query",
        "one mixture",
        (2,) * 1200,
        (
            Leaf(adversary.BLOCK, 0, (600, -0.4659061073097604, -0.9876959889331447)),
            Leaf(adversary.BLOCK, 0, (600, -math.log(2), -math.log(2))),
            Leaf(adversary.BLOCK, 600, (600, -17.42255447408261, 0.0)),
            Leaf(adversary.BLOCK, 600, (600, -math.log(2), -math.log(2))),
            Product((3, 1)),
            Product((2, 0)),
            Sum((4, 5), (843.4718579521096, 280.0)),
        ),
        (),
        (0, 600),
        {},
        {0: 600, 600: 600},
    ),
    # 1,202 query variables in two blocks: values of states under 1e-150 of their mass on both ways.
    "blocks": adversary.Case(
        "large query",
        "one mixture",
        (2, 2) + (2,) * 600 + (3,) * 600,
        (
            Leaf(CATEGORICAL, 0, (-0.8289199309382406, -0.07753829030837299)),
            Leaf(BERNOULLI, 1, (-0.5413665137308055, -0.872160127416663)),
            Leaf(CATEGORICAL, 1, (-3.312592362321143, -0.7969478090325345)),
            Leaf(adversary.BLOCK, 2, (600, -0.929662646231461, -0.5020093300906581)),
            Leaf(adversary.BLOCK, 2, (600, -0.6931471805599453, -0.6931471805599453)),
            Leaf(adversary.BLOCK, 602, (600, -1.1006554927263141, -1.094538362112088, -1.1006554927263141)),
            Leaf(adversary.BLOCK, 602, (600, -2.538490539949481, -2.538490539949481, -0.17194090752256838)),
            Product((6, 4, 2, 0)),
            Product((1, 0, 4, 6)),
            Product((5, 1, 3, 0)),
            Sum((7, 8, 9), (522.7337069060895, 527.914213480151, 954.5368027921035)),
        ),
        (),
        (0, 1, 2, 602),
        {},
        {2: 600, 602: 600},
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_the_attack_found_is_mended(name: str) -> None:
    case = FOUND[name]
    truth, model = adversary.oracle(case), adversary.to_model(case)
    for label, (method, given) in (adversary.NETWORK_WAYS if case.tables else adversary.WAYS).items():
        if case.blocks and (method == "brute" or "k" in given):
            continue
        more = {"k": 7} if "k" in given else {"time_limit": 1.0} if case.blocks else {}
        way = Asked(label, method, {**given, **more})
        status, result = adversary.ask(model, case, way)
        wrong = adversary.judge(case, truth, way, status, result)
        assert not wrong, f"{label}, {status}: {wrong}"
    if not case.tables:
        assert adversary.judge_queries(case, truth, model) == ""


def test_a_log_gives_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages: list[dict[str, object]] = []
    adversary.work(5, range(30), ["plain"], type("At", (), {}), messages.append)
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(message) + "\n" for message in messages))
    table = adversary.tables(adversary.read_log([log]))
    assert "| plain | 30 | " in table
    assert "| **all** | 30 | " in table
    asked = sum(
        int(row.split("|")[2]) for row in table.split("| Method |")[1].splitlines()[2:] if "**" not in row and row
    )
    assert asked == sum(value for m in messages for key, value in m["counts"].items() if key == "kind|plain|asked")


def test_cases_come_back_by_their_numbers() -> None:
    first, again = (adversary.make_case(7, 3)[0] for _ in range(2))
    assert first == again
    assert first != adversary.make_case(7, 4)[0]
    assert isinstance(adversary.to_model(first), mm.Circuit | mm.Network)


def test_hill_climbing_takes_back_a_step_that_does_not_gain() -> None:
    """Derivatives beyond doubles made it leave the best state, and the iterative solver split on and on."""
    case, _ = adversary.make_case(2026, 69514)
    model, names = adversary.to_model(case), adversary.asked_for(case)
    evidence = {adversary.name(v): x for v, x in case.evidence.items()}
    for heuristic in ("UB", "Pruned"):
        r = mm.marginal_map(model, names, evidence, "iterative", time_limit=20, heuristic=heuristic)
        assert r.status == "optimal"
        assert not adversary.judge(
            case, adversary.oracle(case), adversary.Asked("iterative", "iterative", {}), r.status, r
        )
