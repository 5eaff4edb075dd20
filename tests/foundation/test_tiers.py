"""The two tiers of kernels: the same answers, the right choice, and a package that works without numba."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
from circuits import SORTS, random_circuit, random_instance
from counts import cases
from margmap.demo import EVIDENCE, QUERY, load_model
from margmap.errors import MargmapError, MissingExtraError
from margmap.foundation import background, jit
from margmap.foundation.jit import kernel
from margmap.solve.methods import methods_for

#: Generated circuits of the comparison; MARGMAP_TIER_CASES=2000 was run when the tiers were made.
CASES = cases(60, "MARGMAP_TIER_CASES")

HERE = Path(__file__).parent


@kernel
def hashed(numbers):
    h = np.uint64(0x9E3779B97F4A7C15)
    for x in numbers:
        h = mixed(h ^ np.uint64(x))
    return h


@kernel
def mixed(h):
    return (h * np.uint64(0xBF58476D1CE4E5B9)) ^ (h >> np.uint64(29))


@kernel
def edge_cases(x, numbers):
    return math.log(x), math.exp(1000 * (1 - x)), math.ldexp(1.0, numbers[0]), 1.0 / numbers[0], numbers[0]


@kernel
def halves(n):
    return n if n % 2 == 1 else halves(n // 2)


@kernel
def drawn(seed):
    np.random.seed(seed)  # noqa: NPY002
    return np.random.random(), np.random.random()  # noqa: NPY002


@kernel(work=lambda _n: math.inf)
def endless(n):
    return n + 1


def in_both(function, *args):
    """What a kernel gives in each tier."""
    found = []
    for tier in ("interpret", "compile"):
        with jit.forced(tier):
            found.append(function(*args))
    return found


def test_kernels_that_call_kernels_give_the_same_and_warn_of_nothing():
    interpreted, compiled = in_both(hashed, np.arange(50, dtype=np.int64))
    assert interpreted == compiled
    assert type(interpreted) is type(compiled) is int
    assert in_both(halves, 48) == [3, 3]


def test_what_python_would_raise_for():
    interpreted, compiled = in_both(edge_cases, 0.0, np.array([2000], dtype=np.int32))
    assert interpreted == compiled == (-math.inf, math.inf, math.inf, 1 / 2000, 2000)
    assert [type(x) for x in interpreted] == [type(x) for x in compiled]
    interpreted, compiled = in_both(edge_cases, -1.0, np.array([0], dtype=np.int32))
    assert math.isnan(interpreted[0])
    assert math.isnan(compiled[0])
    assert interpreted[1:] == compiled[1:] == (math.inf, 1.0, math.inf, 0)


def test_random_numbers_are_the_same_and_leave_those_of_the_user_alone():
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    interpreted, compiled = in_both(drawn, 5)
    assert interpreted == compiled
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def same(a, b):
    assert (a.status, a.state) == (b.status, b.state)
    for name in ("log_prob", "log_conditional", "log_upper"):
        assert getattr(a, name) == pytest.approx(getattr(b, name), rel=1e-12, abs=2e-9)
    assert [one.state for one in a.top] == [one.state for one in b.top]


def test_generated_circuits_have_the_same_answers_in_both_tiers():
    methods = ["auto", *(method.name for method in methods_for("circuit"))]
    for seed in range(CASES):
        rng = np.random.default_rng(seed)
        circuit = random_circuit(rng, **SORTS[[*SORTS][seed % len(SORTS)]])
        query, evidence = random_instance(rng, circuit)
        method = methods[seed // len(SORTS) % len(methods)]
        with jit.forced("interpret"):
            try:
                interpreted = mm.marginal_map(circuit, query, evidence, method=method)
            except mm.StructureError:  # `frontier`, and scopes that cross
                method = "auto"
                interpreted = mm.marginal_map(circuit, query, evidence)
        with jit.forced("compile"):
            compiled = mm.marginal_map(circuit, query, evidence, method=method)
        same(interpreted, compiled)
        assert (interpreted.details["tier"], compiled.details["tier"]) == ("interpreted", "compiled")


def test_queries_and_samples_are_the_same_in_both_tiers():
    clinic = load_model()

    def asked():
        chances = mm.posteriors(clinic, EVIDENCE)
        drawn = mm.sample(clinic, 5, seed=3)
        return mm.log_marginal(clinic, EVIDENCE), [chances[name] for name in QUERY], np.asarray(drawn).tolist()

    with jit.forced("interpret"):
        interpreted = asked()
    with jit.forced("compile"):
        compiled = asked()
    assert interpreted[0] == pytest.approx(compiled[0], rel=1e-14)
    assert repr(interpreted[2]) == repr(compiled[2])


def test_predicted_work_decides(monkeypatch):
    monkeypatch.setattr(jit._state, "interpreted", 0.0)
    monkeypatch.setattr(jit._state, "compiling", False)
    monkeypatch.setattr(jit, "_active", lambda: False)
    monkeypatch.setattr(background, "is_warm", lambda: False)
    monkeypatch.setattr(background, "is_under_way", lambda: False)
    with jit.forced("auto"):
        calls = jit.interpreted_calls()
        assert halves(6) == 3
        assert jit.interpreted_calls() == calls + 1
        assert endless(1) == 2
        assert jit.interpreted_calls() == calls + 1, "so much work is compiled at once"
        monkeypatch.setattr(jit._state, "interpreted", jit.PATIENCE + 1)
        assert halves(6) == 3
        assert jit.interpreted_calls() == calls + 1, "and everything is when patience is at its end"


def test_what_another_process_has_compiled_is_used(monkeypatch):
    monkeypatch.setattr(jit._state, "compiling", False)
    monkeypatch.setattr(jit._state, "interpreted", jit.MOMENT + jit.START)
    monkeypatch.setattr(jit, "_active", lambda: False)
    monkeypatch.setattr(background, "is_warm", lambda: True)
    with jit.forced("compile"):
        halves(6)
    with jit.forced("auto"):
        calls = jit.interpreted_calls()
        assert halves(6) == 3
        assert jit.interpreted_calls() == calls
        assert halves(6.0) == 3, "but for other types there is no code, and none is made for so little"
        assert jit.interpreted_calls() == calls + 1


def test_a_tier_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("MARGMAP_TIER", "fast")
    with pytest.raises(MargmapError, match="MARGMAP_TIER=fast: set it to auto, interpret or compile"):
        jit.chosen_tier()
    monkeypatch.setenv("MARGMAP_TIER", "compile")
    monkeypatch.setattr(jit, "available", lambda: False)
    with pytest.raises(MissingExtraError, match="needs numba"):
        jit.chosen_tier()


def run(code, *options, **environment):
    """A new Python with the default tier; what it prints."""
    kept = {key: value for key, value in os.environ.items() if key not in ("MARGMAP_TIER", "NUMBA_DISABLE_JIT")}
    done = subprocess.run(
        [sys.executable, *options, "-W", "error", "-c", code],
        env={**kept, "MARGMAP_BACKGROUND": "0", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_tiny_question_does_not_import_numba():
    code = (
        "import json, sys; from margmap.demo import *; r = marginal_map(load_model(), QUERY, EVIDENCE)\n"
        "print(json.dumps([r.status, r.details['tier'], 'numba' in sys.modules, 'scipy' in sys.modules]))"
    )
    assert json.loads(run(code)) == ["optimal", "interpreted", False, False]


def test_without_numba_the_package_works_and_says_so_once():
    found = json.loads(run((HERE / "without_numba.py").read_text(), PYTHONPATH=os.pathsep.join(sys.path)))
    assert found.pop("warnings") == 1
    assert found == {"circuits": 40, "network": "optimal", "learned": True, "proof": True, "command": 0, "tier": 2}
