"""The command line: every command for people and for programs, its exit codes, and its manners when things go wrong."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app
from margmap.foundation import interrupts as _interrupts
from margmap.solve.result import without_state

CLINIC = str(Path(mm.__file__).parent / "models" / "clinic.json")
SOLVE_KEYS = [
    "status",
    "state",
    "log_prob",
    "log_conditional",
    "log_upper",
    "gap",
    "method",
    "seconds",
    "load_seconds",
]


class Run:
    """What a command left behind: exit code, stdout, stderr."""

    def __init__(self, *args: object, env: dict[str, str] | None = None) -> None:
        result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="margmap", env=env)
        self.code, self.out, self.err, self.exception = result.exit_code, result.stdout, result.stderr, result.exception

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.out, parse_constant=lambda token: pytest.fail(f"{token} is not JSON"))
        assert isinstance(value, dict)
        assert self.err == ""
        return value


def refused(*args: object, naming: Sequence[str] = (), code: int = 2) -> None:
    """The command fails with one plain line on stderr that has all these words, and prints nothing else."""
    run = Run(*args)
    assert run.code == code
    assert run.out == ""
    assert run.err.startswith("margmap: error: ")
    assert run.err.count("\n") == 1
    assert "Traceback" not in run.err
    assert "\x1b" not in run.err
    for word in naming:
        assert word in run.err


def process(*args: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "margmap", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **kwargs)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Two variables that always agree, one of them with an awkward name, and a third one."""
    a, b, c = mm.Variable("a"), mm.Variable("x=1,y"), mm.Variable("c", 3, ("low", "mid", "high"))
    leaf = mm.categorical(c, (0.2, 0.5, 0.3))
    circuit = mm.circuit_of(0.3 * a[1] * b[1] * leaf + 0.7 * a[0] * b[0] * leaf)
    path = tmp_path / "small.json"
    mm.save(circuit, path)
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A discrete and a continuous variable."""
    a, t = mm.Variable("a"), mm.Variable("t", 0)
    path = tmp_path / "mixed.json"
    circuit = mm.circuit_of(0.5 * a[1] * mm.gaussian(t, 1.0, 0.5) + 0.5 * a[0] * mm.gaussian(t, -1.0, 0.5))
    mm.save(circuit, path)
    return path


# The commands.


def test_version_and_help() -> None:
    said = Run("--version").out
    assert said.startswith(f"margmap {mm.__version__}\nPython {platform.python_version()} on ")
    assert f"numpy {np.__version__}" in said
    for flag in ("-h", "--help"):
        run = Run(flag)
        assert run.code == 0
        for command in (
            "info",
            "convert",
            "marginal",
            "likelihood",
            "sample",
            "solve",
            "sensitivity",
            "plot",
            "draw",
            "learn",
            "datasets",
            "demo",
            "explore",
        ):
            assert command in run.out
            assert Run(command, flag).code == 0
    assert "--instance" in Run("solve", "-h").out


def test_version_and_help_load_nothing_heavy() -> None:
    code = (
        "import sys, runpy; sys.argv = ['margmap', {!r}]\n"
        "try: runpy.run_module('margmap', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {{'numpy', 'numba', 'scipy'}} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    for flag in ("--version", "--help"):
        subprocess.run([sys.executable, "-c", code.format(flag)], check=True, capture_output=True, timeout=60)


def test_variables() -> None:
    run = Run("info", CLINIC, "--variables")
    assert run.code == 0
    lines = [re.split(r"\s{2,}", line.strip()) for line in run.out.splitlines()]
    assert lines[0] == ["variable", "kind", "values", "states"]
    known = mm.variables(mm.load(CLINIC))
    assert [line[0] for line in lines[1:]] == [str(name) for name in known.names]
    assert lines[1 + known.names.index("season")][1:] == ["discrete", "4", "winter, spring, summer, autumn"]
    found = json.loads(Run("info", CLINIC, "--variables", "--json").out)["variables"]
    assert [one["name"] for one in found] == list(known.names)
    assert [tuple(one["states"]) for one in found] == [v.states for v in known]


def test_draw(tmp_path: Path) -> None:
    run = Run("draw", CLINIC, "-o", tmp_path / "x.svg", "--json")
    assert run.code == 0
    assert (tmp_path / "x.svg").read_text().startswith("<svg")
    assert "12 variables" in json.loads(run.out)["title"]
    run = Run("draw", CLINIC, "-o", tmp_path / "x.dot", "-q", "season", "-e", "age=senior")
    assert run.code == 0
    assert (tmp_path / "x.dot").read_text().startswith("digraph")
    refused("draw", CLINIC, "-o", tmp_path / "x.pngg", naming=["'.pngg'", "did you mean 'png'", ".dot"])
    refused("draw", CLINIC, "-o", tmp_path / "x.svg", "-q", "saeson", naming=["did you mean 'season'"])
    refused("info", CLINIC[:-6] + "k.json", naming=["there is no such file", "did you mean 'clinic.json'"])


def test_what_a_terminal_shows_of_a_long_question() -> None:
    from margmap.cli.solve import _Live

    live = _Live(60)
    first = live.lines(mm.Progress(0.5, -8.0, -4.0, {"x": 1}, "first state"))
    assert first[0] == "Solving ... 0.5 s, first state"
    assert first[1] == "  [....................] -8 <= log p <= -4, gap 4"
    assert first[2] == "  best so far: x=1"
    later = live.lines(mm.Progress(2.0, -7.0, -6.0, {f"variable{i}": 1 for i in range(99)}, "sweep of width 64"))
    assert later[1] == "  [===============.....] -7 <= log p <= -6, gap 1"
    assert max(map(len, later)) <= 56
    assert later[2].endswith("...")
    none = live.lines(mm.Progress(0.1, -math.inf, 0.0, None, "compiling"))
    assert none[1:] == ["  [....................] log p <= 0, no state yet", "  no state yet"]


def test_info() -> None:
    run = Run("info", CLINIC)
    assert run.code == 0
    rows = dict(line.split(maxsplit=1) for line in run.out.splitlines() if not line.startswith("determinism"))
    assert rows["variables"].strip() == "12"
    assert rows["smooth"].strip() == "yes"
    assert rows["deterministic"].strip() == "not shown"
    assert "determinism is not shown: at node" in run.out


def test_info_json() -> None:
    facts = Run("info", CLINIC, "--json").json
    circuit = mm.load(CLINIC)
    assert isinstance(circuit, mm.Circuit)
    assert (facts["variables"], facts["nodes"], facts["edges"]) == (12, circuit.num_nodes, circuit.num_edges)
    assert facts["sums"] + facts["products"] + sum(facts["leaves"].values()) == facts["nodes"]
    assert facts["depth"] == circuit.depth
    assert facts["properties"] == {
        "smooth": True,
        "decomposable": True,
        "structured": True,
        "deterministic": False,
        "normalised": True,
    }
    assert len(facts["reasons"]) == 1


def test_info_says_when_determinism_is_shown(small: Path) -> None:
    assert ["deterministic", "shown"] in [line.split() for line in Run("info", small).out.splitlines()]


@pytest.mark.parametrize("name", ["out.jpc", "out.jpc.gz", "out.spn", "out.json.gz"])
def test_convert_keeps_the_distribution(name: str, tmp_path: Path) -> None:
    target = tmp_path / name
    run = Run("convert", CLINIC, target)
    assert run.code == 0
    assert str(target) in run.out
    before, after = mm.load(CLINIC), mm.load(target)
    assert isinstance(before, mm.Circuit)
    assert isinstance(after, mm.Circuit)
    rows = mm.sample(before, 20, seed=1)
    assert mm.log_likelihood(after, rows) == pytest.approx(mm.log_likelihood(before, rows))


def test_convert_to_a_vtree_and_by_format(tmp_path: Path) -> None:
    assert Run("convert", CLINIC, tmp_path / "out.vtree").code == 0
    tree = mm.load(tmp_path / "out.vtree")
    assert isinstance(tree, mm.Vtree)
    assert len(tree.variables) == 12
    assert Run("convert", CLINIC, tmp_path / "tree", "--to", "vtree").code == 0
    assert Run("convert", tmp_path / "tree", tmp_path / "again.vtree", "--from", "vtree", "--json").json["nodes"] == 23


def test_convert_a_theory_with_weights_and_names(tmp_path: Path) -> None:
    (tmp_path / "x.nnf").write_text("o 1 0\nt 2 0\n1 2 1 0\n1 2 -1 2 0\n")
    (tmp_path / "weights").write_text("1 0.25\n2 0.5\n")
    (tmp_path / "names").write_text("1 rain\n2 sprinkler\n")
    words = ("--weights", tmp_path / "weights", "--names", tmp_path / "names")
    assert Run("convert", tmp_path / "x.nnf", tmp_path / "x.json", *words).code == 0
    answer = Run("solve", tmp_path / "x.json", "-q", "rain", "--json").json
    assert answer["state"] == {"rain": 0}
    assert math.exp(answer["log_prob"]) == pytest.approx(0.375)
    assert Run("solve", tmp_path / "x.nnf", "-q", "1", "--json").json["state"] == {"1": 1}
    (tmp_path / "x.sdd").write_text("sdd 1\nL 0 0 2\n")
    (tmp_path / "t.vtree").write_text("vtree 3\nL 0 1\nL 2 2\nI 1 0 2\n")
    assert Run("convert", tmp_path / "x.sdd", tmp_path / "y.json", "--vtree", tmp_path / "t.vtree").code == 0
    refused("convert", CLINIC, tmp_path / "y.json", *words, naming=["go with .nnf and .sdd files"])
    refused("convert", tmp_path / "x.nnf", tmp_path / "y.nnf", naming=["nnf files are only read"])
    (tmp_path / "x.uai").write_text("MARKOV 1 2 1 1 0 2 1 1")
    run = Run("convert", tmp_path / "x.uai", tmp_path / "y.json", *words)
    assert run.code == 2
    assert "are for theories" in run.err


def test_convert_smooths_and_normalises(tmp_path: Path) -> None:
    a, b = mm.Variable("a"), mm.Variable("b")
    mm.save(mm.circuit_of(2.0 * a[1] * b[1] + 3.0 * a[0]), tmp_path / "rough.json")
    run = Run("convert", tmp_path / "rough.json", tmp_path / "out.json", "--smooth", "--normalise")
    assert run.code == 0
    circuit = mm.load(tmp_path / "out.json")
    assert isinstance(circuit, mm.Circuit)
    assert circuit.properties.smooth
    assert mm.log_marginal(circuit, {"a": 1}) == pytest.approx(math.log(2 / 8))


def test_marginal(small: Path) -> None:
    run = Run("marginal", small, "--evidence", "a=1", "--target", "c=high", "--posteriors")
    assert run.code == 0
    assert f"log p(e) = {math.log(0.3):.6f}" in run.out
    assert f"log p(t | e) = {math.log(0.3):.6f}" in run.out
    assert "low: 0.2  mid: 0.5  high: 0.3" in run.out


def test_marginal_json(small: Path, mixed: Path) -> None:
    answer = Run("marginal", small, "-e", "a=1", "-e", "c=high", "--json").json
    assert answer == {"log_evidence": pytest.approx(math.log(0.09))}
    answer = Run("marginal", small, "-e", "a=1", "-t", "c=high", "--posteriors", "--json").json
    assert answer["log_conditional"] == pytest.approx(math.log(0.3))
    assert answer["posteriors"]["c"] == pytest.approx({"low": 0.2, "mid": 0.5, "high": 0.3})
    answer = Run("marginal", mixed, "-e", "a=1", "--posteriors", "--json").json
    assert answer["posteriors"] == {"t": pytest.approx({"mean": 1.0, "deviation": 0.5})}


def test_the_log_of_zero_is_null(tmp_path: Path) -> None:
    a, b = mm.Variable("a"), mm.Variable("b")
    mm.save(mm.circuit_of(0.5 * a[1] * b[1] + 0.5 * a[0] * b[0]), tmp_path / "m.json")
    assert Run("marginal", tmp_path / "m.json", "-e", "a=1,b=0", "--json").json == {"log_evidence": None}
    (tmp_path / "rows.csv").write_text("1,0\n1,1\n")
    answer = Run("likelihood", tmp_path / "m.json", tmp_path / "rows.csv", "--per-row", "--json").json
    assert answer["mean_log_likelihood"] is None
    assert answer["log_likelihoods"] == [None, pytest.approx(math.log(0.5))]


def test_sample_and_likelihood(tmp_path: Path) -> None:
    run = Run("sample", CLINIC, "-n", 50, "--seed", 3, "-e", "season=winter")
    assert run.code == 0
    rows = [[int(x) for x in line.split(",")] for line in run.out.splitlines()]
    assert len(rows) == 50
    assert all(len(row) == 12 and row[2] == 0 for row in rows)
    assert Run("sample", CLINIC, "-n", 50, "--seed", 3, "-e", "season=winter").out == run.out
    drawn = Run("sample", CLINIC, "-n", 50, "--seed", 3, "-e", "season=winter", "--json").json
    assert drawn["rows"] == rows
    assert drawn["variables"][2] == "season"

    target = tmp_path / "rows.csv.gz"
    assert "wrote 50 rows" in Run("sample", CLINIC, "-n", 50, "--seed", 3, "-e", "season=winter", "-o", target).out
    with gzip.open(target, "rt") as text:
        assert text.read() == run.out
    answer = Run("likelihood", CLINIC, target, "--per-row", "--json").json
    circuit = mm.load(CLINIC)
    assert isinstance(circuit, mm.Circuit)
    assert answer["log_likelihoods"] == pytest.approx(mm.log_likelihood(circuit, rows).tolist())
    assert answer["mean_log_likelihood"] == pytest.approx(sum(answer["log_likelihoods"]) / 50)
    assert "over 50 rows" in Run("likelihood", CLINIC, target).out
    lines = Run("likelihood", CLINIC, target, "--per-row").out.splitlines()
    assert [float(line) for line in lines] == answer["log_likelihoods"]


def test_continuous_samples_come_back_exactly(mixed: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.csv"
    assert Run("sample", mixed, "-n", 5, "--seed", 1, "-o", target, "--json").json["rows"] == 5
    assert all(line.split(",")[0] in ("0", "1") for line in target.read_text().splitlines())
    circuit = mm.load(mixed)
    assert isinstance(circuit, mm.Circuit)
    direct = mm.log_likelihood(circuit, mm.sample(circuit, 5, seed=1))
    assert Run("likelihood", mixed, target, "--per-row", "--json").json["log_likelihoods"] == direct.tolist()


def test_missing_cells_are_summed_out(small: Path, tmp_path: Path) -> None:
    for name, text in (("empty.csv", "1,,2\n\n-1,nan,0\n"), ("plain.csv", "1,-1,2\r\n-1,nan,0")):
        (tmp_path / name).write_text(text)
        values = Run("likelihood", small, tmp_path / name, "--per-row", "--json").json["log_likelihoods"]
        assert values == pytest.approx([math.log(0.3 * 0.3), math.log(0.2)])


def test_solve() -> None:
    run = Run("solve", CLINIC, "--query", "illness,course", "--evidence", "season=winter,age=senior")
    assert run.code == 0
    assert run.err == ""
    assert ["illness", "flu"] in [line.split() for line in run.out.splitlines()]
    assert ["course", "severe"] in [line.split() for line in run.out.splitlines()]
    assert "proven optimal" in run.out
    assert "MPE" not in run.out


def test_solve_json_has_exactly_these_keys() -> None:
    answer = Run(
        "solve", CLINIC, "-q", "illness", "-q", "course", "-e", "season=winter", "-e", "age=senior", "--json"
    ).json
    assert list(answer) == SOLVE_KEYS
    assert answer["status"] == "optimal"
    assert answer["state"] == {"illness": "flu", "course": "severe"}
    assert 0 <= answer["gap"] <= 1e-9
    # By hand from scripts/make_demo_model.py: p(illness, course) p(winter | illness) p(senior | illness).
    everybody = 0.40 * 0.35 * 0.20 + 0.35 * 0.55 * 0.35 + 0.25 * 0.05 * 0.10
    assert answer["log_conditional"] == pytest.approx(math.log(0.22 * 0.55 * 0.35 / everybody))


def test_solve_without_a_query_is_mpe() -> None:
    run = Run("solve", CLINIC, "-e", "season=winter,age=senior")
    assert run.code == 0
    assert "most probable explanation (MPE)" in run.out
    assert len(Run("solve", CLINIC, "-e", "season=winter,age=senior", "--json").json["state"]) == 10


def test_without_a_query_continuous_variables_must_be_observed(mixed: Path) -> None:
    for command in ("solve", "approximate"):
        refused(command, mixed, naming=["observe the continuous t", "--query"])
        assert list(Run(command, mixed, "-e", "t=1.5", "--json").json["state"]) == ["a"]
        assert list(Run(command, mixed, "-q", "a", "--json").json["state"]) == ["a"]


def test_approximate() -> None:
    run = Run("approximate", CLINIC, "-q", "illness,course", "-e", "season=winter", "-m", "beam", "-k", "3")
    assert run.code == 0
    assert "flu" in run.out
    assert "not proven" in run.out
    answer = Run("approximate", CLINIC, "-q", "illness,course", "-e", "season=winter", "--json").json
    assert list(answer) == ["state", "log_prob", "log_conditional", "method", "seconds"]
    best = Run("solve", CLINIC, "-q", "illness,course", "-e", "season=winter", "--json").json
    assert answer["log_prob"] <= best["log_upper"]
    refused("approximate", CLINIC, "-m", "best", naming=["unknown method 'best'", "k_best_tree"])
    refused("approximate", CLINIC, "-m", "best_tree", "-k", "3", naming=["no option 'k'"])


def test_solve_an_instance(small: Path, tmp_path: Path) -> None:
    one = tmp_path / "one.json"
    one.write_text(json.dumps({"query": ["c"], "evidence": {"x=1,y": 1}}))
    answer = Run("solve", small, "--instance", one, "--json").json
    assert answer["state"] == {"c": "mid"}
    assert answer["log_prob"] == pytest.approx(math.log(0.15))
    many = tmp_path / "many.json"
    many.write_text(json.dumps({"instances": [{"query": ["a"]}, {"evidence": {"a": 1}, "log_optimum": 0}]}))
    assert Run("solve", small, "--instance", many, "--index", 0, "--json").json["state"] == {"a": 0}
    assert Run("solve", small, "--instance", many, "--index", 1, "--json").json["state"] == {"x=1,y": 1, "c": "mid"}


def test_solve_stopped_early_exits_with_3() -> None:
    for extra in ((), ("--json",), ("-v",)):
        run = Run("solve", CLINIC, "--method", "brute", "--time-limit", 1e-9, *extra)
        assert run.code == 3
        # A slow machine, or one on which coverage is measured, has no state yet.
        if "--json" in extra:
            assert run.json["status"] == "time_limit"
            assert run.json["gap"] > 0 if run.json["state"] else run.json["gap"] is None
        elif "no state yet: stopped (time limit)" in run.out:
            continue
        else:
            assert "stopped (time limit): a better state can have at most" in run.out
        assert (run.err != "") == ("-v" in extra)
    wide = Run("solve", CLINIC, "--method", "brute", "--time-limit", 1e-9, "--gap", 100)
    if "no state yet" in wide.out:
        assert wide.code == 3
    else:
        assert wide.code == 0
        assert "within the gap asked for" in wide.out
    assert "no state is better" not in wide.out


def test_long_tables_are_cut(tmp_path: Path) -> None:
    product = mm.bernoulli(mm.Variable(1), 0.1)
    for i in range(2, 61):
        product = product * mm.bernoulli(mm.Variable(i), 0.1)
    mm.save(mm.circuit_of(product), tmp_path / "long.json")
    run = Run("marginal", tmp_path / "long.json", "--posteriors")
    assert "... and 20 more (use --json)" in run.out
    assert len(run.out.splitlines()) == 1 + 1 + 40 + 1


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = Run("demo")
    assert run.code == 0
    assert "marginal MAP" in run.out
    assert "proven optimal" in run.out
    assert re.search(r"marginal MAP +flu, severe +66.6 %  #{27}\n", run.out)
    assert re.search(r"MPE +allergy, mild +3.4 %  #\n", run.out)
    assert "margmap explore" in run.out.splitlines()[-3]
    assert (tmp_path / "margmap-demo.png").read_bytes().startswith(b"\x89PNG")
    answer = Run("demo", "--json", "-o", "other.png").json
    assert (tmp_path / "other.png").exists()
    assert answer["diagnosis"]["projected_mpe"]["state"] == {"illness": "allergy", "course": "mild"}
    assert answer["held_out"]["digits"] == 247
    for digit in answer["digits"]:
        assert digit["marginal_map"]["log_conditional"] > digit["projected_mpe"]["log_conditional"]


def test_evidence_that_is_not_a_single_value(tmp_path: Path) -> None:
    said = "age!=child,fever=none:0.1|low:0.3|high:0.6,cough=dry|wet"
    meant = {"age": ["adult", "senior"], "fever": {"none": 0.1, "low": 0.3, "high": 0.6}, "cough": {"$not": ["none"]}}
    (tmp_path / "i.json").write_text(json.dumps({"query": ["illness"], "evidence": meant}))
    one = Run("solve", CLINIC, "-q", "illness", "-e", said, "--json").json
    other = Run("solve", CLINIC, "--instance", tmp_path / "i.json", "--json").json
    assert one["log_prob"] == other["log_prob"]
    assert one["status"] == "optimal"
    proof = tmp_path / "proof.json"
    written = Run("solve", CLINIC, "-q", "illness", "-e", said, "--certificate", proof)
    assert re.search(r": (1 vector|(?!1 )[\d,]+ vectors), ", written.out)
    checked = Run("verify", CLINIC, proof, "-e", said)
    assert checked.code == 0
    assert "fever=none:0.1|low:0.3|high:0.6" in checked.out
    assert "cough=dry|wet" in checked.out
    assert "log p(e)" in Run("marginal", CLINIC, "-e", said, "--posteriors").out
    assert len(Run("sample", CLINIC, "-e", said, "-n", "5").out.splitlines()) == 5
    (tmp_path / "bad.json").write_text('{"evidence": {"age": [null]}}')
    refused("solve", CLINIC, "--instance", tmp_path / "bad.json", naming=["'age'", "numbers or names"])
    (tmp_path / "bad.json").write_text('{"evidence": {"age": {"$between": 3}}}')
    refused("solve", CLINIC, "--instance", tmp_path / "bad.json", naming=["'age'", "$between"])


def test_sensitivity() -> None:
    asked = ("sensitivity", CLINIC, "-q", "illness", "-e", "season=winter,fever=high", "--look-at", "age,cough")
    told = Run(*asked, "--json").json
    assert told["complete"]
    assert told["answer"]["status"] == "optimal"
    assert {one["variable"] for one in told["changes"]} >= {"season", "fever", "age", "cough", "course"}
    assert told["look_at"] == ["age", "cough"]
    shown = Run(*asked).out
    assert "after looking at age, cough the answer is the same with probability" in shown
    assert "fever were not observed" in shown
    short = Run(*asked, "--rows", "2").out
    assert "rows in all" in short
    refused("sensitivity", CLINIC, "-q", "illness", "--look-at", "illness", naming=["look_at"])


# What can go wrong.


@pytest.mark.parametrize("command", ["info", "marginal", "sample", "solve"])
@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_bad_models_are_refused(command: str, json_flag: tuple[str, ...], tmp_path: Path) -> None:
    refused(command, tmp_path / "none.psdd", *json_flag, naming=["none.psdd", "no such file"])
    (tmp_path / "garbage.psdd").write_bytes(bytes(range(256)))
    refused(command, tmp_path / "garbage.psdd", *json_flag, naming=["garbage.psdd"])
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(Path(CLINIC).read_bytes())[:900])
    refused(command, tmp_path / "cut.json.gz", *json_flag, naming=["truncated"])
    (tmp_path / "model.txt").write_text("psdd 1\n")
    refused(command, tmp_path / "model.txt", *json_flag, naming=[".txt"])
    refused(command, tmp_path, *json_flag, "--format", "psdd", naming=["folder"])
    refused(command, CLINIC, "--format", "nope", *json_flag, naming=["'nope'"])


@pytest.mark.parametrize(
    ("arguments", "naming"),
    [
        (["-q", "nobody"], ["'nobody'", "illness"]),
        (["-q", "illness", "-e", "nobody=1"], ["'nobody'"]),
        (["-q", "illness", "-e", "illness=flu"], ["'illness'", "both queried and observed"]),
        (["-q", "illness,illness"], ["twice"]),
        (["-q", "illness,,age"], ["--query", "missing"]),
        (["-e", "age"], ["--evidence", "variable=value"]),
        (["-e", "age="], ["--evidence", "variable=value"]),
        (["-e", "age=1=2"], ["--evidence", "--instance"]),
        (["-e", "=1"], ["--evidence", "missing"]),
        (["-e", "age=1,age=2"], ["'age'", "twice"]),
        (["-e", "age=old"], ["'old'", "child, adult, senior"]),
        (["-e", "age=1"], ["no state '1'", "child, adult, senior"]),
        (["-m", "magic"], ["'magic'", "brute"]),
        (["--time-limit", "-1"], ["time_limit"]),
        (["--gap", "nan"], ["gap"]),
    ],
)
def test_bad_questions_are_refused(arguments: list[str], naming: list[str]) -> None:
    refused("solve", CLINIC, *arguments, naming=naming)
    refused("solve", CLINIC, *arguments, "--json", naming=naming)


def test_impossible_evidence_is_refused(small: Path, tmp_path: Path) -> None:
    instance = tmp_path / "i.json"
    instance.write_text(json.dumps({"query": ["c"], "evidence": {"a": 0, "x=1,y": 1}}))
    refused("solve", small, "--instance", instance, naming=["probability 0"])
    refused("marginal", small, "-e", "c=3", naming=["low, mid, high"])
    refused("marginal", small, "-e", "a=3", naming=["out of range"])


@pytest.mark.parametrize(
    ("text", "naming"),
    [
        ("query: 3", ["line 1", "not JSON"]),
        ('{"query": ["c"],\n oops}', ["line 2", "not JSON"]),
        ("[1, 2]", ["not an instance"]),
        ("{}", ["not an instance"]),
        ('{"query": "c"}', ['"query" must be a list']),
        ('{"query": [true]}', ['"query" must be a list']),
        ('{"evidence": [1]}', ['"evidence" must be an object']),
        ('{"evidence": {"a": [[1]]}}', ["variable 'a'", "numbers or names"]),
        ('{"evidence": {"a": 1, "a": 0}}', ["'a'", "twice"]),
        ('{"instances": []}', ['"instances" must be a list']),
        ('{"instances": [{"query": ["a"]}, {"query": ["c"]}]}', ["--index 0 to 1"]),
        ('{"instances": [3]}', ["not an instance"]),
    ],
)
def test_bad_instances_are_refused(text: str, naming: list[str], small: Path, tmp_path: Path) -> None:
    instance = tmp_path / "i.json"
    instance.write_text(text)
    refused("solve", small, "--instance", instance, naming=["i.json", *naming])
    refused("solve", small, "--instance", instance, "--json", naming=naming)


def test_index_must_fit(small: Path, tmp_path: Path) -> None:
    instance = tmp_path / "i.json"
    instance.write_text('{"instances": [{"query": ["a"]}]}')
    assert Run("solve", small, "--instance", instance).code == 0
    for index in (1, -1):
        refused("solve", small, "--instance", instance, "--index", index, naming=["out of range"])
    instance.write_text('{"query": ["a"]}')
    refused("solve", small, "--instance", instance, "--index", 0, naming=["--index"])
    refused("solve", small, "--instance", tmp_path / "none.json", naming=["no such file"])


@pytest.mark.parametrize(
    ("text", "naming"),
    [
        ("0,0,1\n0,1\n", ["line 2", "2 values"]),
        ("0,0,1\n\n0,x,1\n", ["line 3", "'x'"]),
        ("a,b,c\n0,0,1\n", ["line 1", "header"]),
        ("0,1_0,1\n", ["line 1", "'1_0'"]),
        ("0 0 1\n", ["line 1"]),
        ("", ["empty"]),
        ("0,0\n", ["3 variables"]),
        ("0,0,9\n", ["'c'", "9"]),
        ("0,0,inf\n", ["'c'", "inf"]),
    ],
)
def test_bad_rows_are_refused(text: str, naming: list[str], small: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text(text)
    refused("likelihood", small, rows, naming=naming)


def test_bad_targets_are_refused(small: Path, tmp_path: Path) -> None:
    refused("convert", small, tmp_path / "out.exe", naming=[".exe"])
    refused("convert", small, tmp_path / "no" / "out.json", naming=["cannot be written"])
    refused("convert", small, tmp_path / "out.psdd", naming=["not binary"])
    refused("convert", CLINIC, tmp_path / "out.json", "--from", "psdd", naming=["psdd"])
    refused("sample", small, "-o", tmp_path / "no" / "rows.csv", naming=["cannot be written"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.json"]


def test_wrong_usage_exits_with_2(small: Path, tmp_path: Path) -> None:
    instance = tmp_path / "i.json"
    instance.write_text('{"query": ["a"]}')
    (tmp_path / "t.vtree").write_text("vtree 1\nL 0 1\n")
    for arguments in (
        ("solve", small, "--instance", instance, "--query", "a"),
        ("solve", small, "--instance", instance, "--evidence", "a=1"),
        ("solve", small, "--index", 0),
        ("solve", small, "--time-limit", "soon"),
        ("solve",),
        ("sample", small, "-n", -1),
        ("convert", tmp_path / "t.vtree", tmp_path / "u.vtree", "--smooth"),
        ("nonsense",),
    ):
        run = Run(*arguments)
        assert run.code == 2
        assert run.out == ""
        assert "Usage" in run.err
        assert "Traceback" not in run.err


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    evil = mm.Variable("a\x1b[31m\nb")
    mm.save(mm.circuit_of(mm.bernoulli(evil, 0.3)), tmp_path / "evil.json")
    for arguments in (("marginal", "--posteriors"), ("solve",)):
        run = Run(arguments[0], tmp_path / "evil.json", *arguments[1:])
        assert run.code == 0
        assert "\x1b" not in run.out
        assert "a\\x1b[31m\\nb" in run.out
    refused("solve", tmp_path / "evil.json", "-q", "\x1b[31mc\n", naming=["unknown variable"])


def test_unexpected_errors_ask_for_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("margmap.io.formats.load_circuit", fail)
    monkeypatch.delenv("MARGMAP_DEBUG", raising=False)
    refused("info", CLINIC, naming=["RuntimeError", "boom", "report", "MARGMAP_DEBUG=1"], code=1)
    run = Run("info", CLINIC, env={"MARGMAP_DEBUG": "1"})
    assert isinstance(run.exception, RuntimeError)


@pytest.mark.parametrize("became", [KeyboardInterrupt, SystemError, mm.FormatError])
def test_ctrl_c_exits_with_130(became: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the exception became on its way up."""

    def interrupt(*_args: object) -> None:
        _interrupts._mode.came = True
        raise became("an error")

    monkeypatch.setattr("margmap.io.formats.load_circuit", interrupt)
    run = Run("info", CLINIC)
    assert (run.code, run.out, run.err) == (130, "", "margmap: interrupted\n")


def test_ctrl_c_before_there_is_a_state_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "margmap.solve.marginal_map.marginal_map", lambda *_a, **_k: without_state("interrupted", "auto", 1.0)
    )
    for extra in ((), ("--json",)):
        run = Run("solve", CLINIC, *extra)
        assert (run.code, run.out, run.err) == (130, "", "margmap: interrupted\n")


@pytest.mark.parametrize("reader", ["margmap.io.formats.load_circuit", "margmap.io.formats.load_network"])
def test_the_time_limit_holds_while_the_model_is_read(
    reader: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forever = threading.Event()
    monkeypatch.setattr(reader, lambda *_args: forever.wait(60))
    model = (small,) if reader.endswith("circuit") else (small, "--format", "bif")
    top = ("--top", 3, "-v")
    answer = Run("solve", *model, "-q", "a", "--time-limit", 0.1, "--json")
    assert answer.code == 3
    assert {name: answer.json[name] for name in ("status", "state", "log_prob", "log_upper", "gap")} == {
        "status": "time_limit",
        "state": None,
        "log_prob": None,
        "log_upper": None,
        "gap": None,
    }
    text = Run("solve", *model, "-q", "a", "--time-limit", 0.1, *top)
    assert text.code == 3
    assert "no state yet: stopped (time limit) before one was found" in text.out
    if reader.endswith("circuit"):
        proof = small.with_name("proof.cert")
        proven = Run("solve", *model, "--time-limit", 0.1, "--certificate", proof)
        assert proven.code == 3
        assert "no certificate" in proven.err
        assert not proof.exists()
    forever.set()


def test_reading_counts_against_the_time_limit(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def solve(*args: Any, **_options: Any) -> Any:
        given.append(args[4])
        return without_state("time_limit", "auto", 0.0)

    monkeypatch.setattr("margmap.solve.marginal_map.marginal_map", solve)
    answer = Run("solve", small, "--time-limit", 60, "--json").json
    assert given == [60 - answer["load_seconds"]]


# Real processes.


def test_a_real_process(tmp_path: Path) -> None:
    done = process(
        "solve", CLINIC, "-q", "illness", "-e", "age=senior", "--json", env={**os.environ, "FORCE_COLOR": "1"}
    )
    assert done.returncode == 0
    assert list(json.loads(done.stdout)) == SOLVE_KEYS
    assert done.stderr == ""
    done = process("solve", CLINIC, "-q", "illness", "-e", "age=senior")
    assert "\x1b" not in done.stdout + done.stderr
    done = process("solve", tmp_path / "none.psdd", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"margmap: error: {tmp_path / 'none.psdd'}: there is no such file\n"
    assert process("solve", CLINIC, "--method", "brute", "--time-limit", "1e-9").returncode == 3


@pytest.mark.skipif(sys.platform == "win32", reason="pipes work differently there")
def test_a_reader_that_leaves_early_causes_no_noise() -> None:
    command = [sys.executable, "-m", "margmap", "sample", CLINIC, "-n", "10000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline().count(b",") == 11
        running.stdout.close()
        assert running.stderr.read() == b""
        assert running.wait(timeout=60) == 141


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals there")
def test_a_terminal_sees_what_takes_long(tmp_path: Path) -> None:
    """A cache that lacks some kernels makes numba really compile."""
    import pty

    package = Path(mm.__file__).parent
    for code in package.rglob("__pycache__/*.nb?"):  # as numba names its folders there
        folder = code.parent.parent
        place = tmp_path / f"{folder.name}_{hashlib.sha1(str(folder).encode()).hexdigest()}"
        place.mkdir(exist_ok=True)
        if not code.name.startswith("scaled."):
            shutil.copy2(code, place)
    parent, child = pty.openpty()
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "TERM": "xterm"}
    command = [sys.executable, "-m", "margmap", "marginal", CLINIC, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=child, env=env) as running:
        os.close(child)
        shown = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:  # what Linux says when the other end is closed
                break
            if not part:
                break
            shown += part
        assert running.stdout is not None
        answer = json.loads(running.stdout.read())
        assert running.wait(timeout=60) == 0
    os.close(parent)
    assert answer["log_evidence"] == pytest.approx(0, abs=1e-12)
    assert b"Loading" in shown
    assert b"Compiling kernels (first run only): " in shown


# The iterative method: its options, its trace, its figure, its progress.


@pytest.fixture
def overlapping(tmp_path: Path) -> Path:
    """Three components that all overlap, so that the iterative solver has something to do."""
    variables = [mm.Variable(f"v{i}") for i in range(5)]
    terms = []
    for shift in range(3):
        product = mm.bernoulli(variables[0], 0.6 - 0.05 * shift)
        for i, variable in enumerate(variables[1:], 1):
            product = product * mm.bernoulli(variable, 0.3 + 0.4 * ((i * (shift + 1)) % 3) / 2)
        terms.append(product)
    path = tmp_path / "overlapping.json"
    mm.save(mm.circuit_of(0.3 * terms[0] + 0.4 * terms[1] + 0.3 * terms[2]), path)
    return path


PLAIN = ("--option", "regroup=false", "--option", "climb=false", "--option", "fix=False")


def test_solve_takes_options_of_the_method(overlapping: Path) -> None:
    answers = [
        Run("solve", overlapping, "--method", "iterative", *options, "--json").json
        for options in ((), PLAIN, ("--option", "heuristic=Pruned"), ("--option", " max_edges = 100000 "))
    ]
    best = Run("solve", overlapping, "--method", "brute", "--json").json["log_prob"]
    for answer in answers:
        assert (answer["status"], answer["method"]) == ("optimal", "iterative")
        assert answer["log_prob"] == pytest.approx(best)
    assert Run("solve", overlapping, "-m", "iterative", "--option", "max_edges=1").code == 3


@pytest.mark.parametrize(
    ("arguments", "naming"),
    [
        (["regroup"], ["--option 'regroup'", "NAME=VALUE"]),
        (["=false"], ["NAME=VALUE"]),
        (["regroup="], ["NAME=VALUE"]),
        (["regroup=maybe"], ["regroup=maybe", "true or false"]),
        (["regroup=1"], ["true or false"]),
        (["max_edges=1.5"], ["max_edges=1.5", "whole number"]),
        (["max_edges=many"], ["whole number"]),
        (["max_edges=true"], ["whole number"]),
        (["heuristic=best"], ["'best'", "'UB' or 'Pruned'"]),
        (["colour=red"], ["no option 'colour'", "heuristic, regroup"]),
        (["on_iteration=print"], ["'on_iteration'", "Python only"]),
        (["fix=true", "fix=false"], ["'fix'", "twice"]),
    ],
)
def test_bad_options_are_refused(arguments: list[str], naming: list[str], overlapping: Path) -> None:
    options = [word for argument in arguments for word in ("--option", argument)]
    refused("solve", overlapping, "--method", "iterative", *options, naming=naming)


def test_trace_and_plot(overlapping: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    target = tmp_path / "trace.csv"
    run = Run("solve", overlapping, "-m", "iterative", *PLAIN, "--trace", target)
    assert run.code == 0
    assert run.err == ""
    header, *rows = target.read_text().splitlines()
    assert header.split(",")[0] == "iteration"
    assert "split_upper" in header.split(",")
    assert [row.split(",")[0] for row in rows] == [str(i + 1) for i in range(len(rows))]
    assert len(rows) >= 2

    run = Run("plot", target, "-o", tmp_path / "figure.svg")
    assert run.code == 0
    assert run.out == f"wrote {tmp_path / 'figure.svg'}: {len(rows)} iterations\n"
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")
    answer = Run("plot", target, "--output", tmp_path / "figure.png", "--json").json
    assert answer == {"trace": str(target), "output": str(tmp_path / "figure.png"), "iterations": len(rows)}
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")

    refused("plot", target, "-o", tmp_path / "figure.gif", naming=["figure.gif", "'.gif'", ".png, .svg, .pdf"])
    refused("plot", tmp_path / "none.csv", "-o", tmp_path / "figure.png", naming=["none.csv", "no such file"])
    refused("plot", overlapping, "-o", tmp_path / "figure.png", naming=["not a trace"])
    assert Run("plot", target).code == 2


def test_a_stopped_solver_writes_its_trace_too(overlapping: Path, tmp_path: Path) -> None:
    for compressed in ("trace.csv", "trace.csv.gz"):
        run = Run("solve", overlapping, "-m", "iterative", "--option", "max_edges=1", "--trace", tmp_path / compressed)
        assert run.code == 3
        assert "stopped (memory limit)" in run.out
        assert (tmp_path / compressed).exists()


def test_trace_needs_a_method_with_iterations(overlapping: Path, tmp_path: Path) -> None:
    for method in ("brute", "magic"):
        refused("solve", overlapping, "-m", method, "--trace", tmp_path / "t.csv", naming=[repr(method), "iterative"])
    assert not (tmp_path / "t.csv").exists()


def test_verbose_tells_sizes_and_not_the_whole_trace(overlapping: Path) -> None:
    run = Run("solve", overlapping, "-m", "iterative", "-v")
    assert run.code == 0
    assert "peak_edges: " in run.err
    assert "iterations: " in run.err
    assert "Snapshot" not in run.err


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals there")
def test_a_terminal_sees_the_bounds_close(overlapping: Path) -> None:
    import pty
    import threading

    parent, child = pty.openpty()
    command = [sys.executable, "-m", "margmap", "solve", str(overlapping), "-m", "iterative", *PLAIN, "--json"]
    shown: list[bytes] = []

    def listen() -> None:
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:
                return
            if not part:
                return
            shown.append(part)

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=child, env={**os.environ, "TERM": "xterm"}
    ) as running:
        os.close(child)
        listener = threading.Thread(target=listen)
        listener.start()
        assert running.stdout is not None
        answer = json.loads(running.stdout.read())
        assert running.wait(timeout=60) == 0
        listener.join(timeout=60)
    os.close(parent)
    assert answer["status"] == "optimal"
    text = b"".join(shown).decode()
    assert "Solving ..." in text
    assert "<= log p <=" in text
    assert "best so far: " in text  # which of the steps are seen on the way depends on the clock


def test_solve_for_the_best_few() -> None:
    question = ["-q", "illness,course", "-e", "season=winter,age=senior", "--top", 3]
    answer = Run("solve", CLINIC, *question, "--json").json
    assert set(answer) == {*SOLVE_KEYS, "top"}
    assert [set(one) for one in answer["top"]] == [{"state", "log_prob", "log_conditional"}] * 3
    assert answer["top"][0] == {key: answer[key] for key in ("state", "log_prob", "log_conditional")}
    logs = [one["log_prob"] for one in answer["top"]]
    assert logs == sorted(logs, reverse=True)
    assert len({tuple(one["state"].items()) for one in answer["top"]}) == 3
    run = Run("solve", CLINIC, *question)
    assert run.code == 0
    ranks = [line.split() for line in run.out.splitlines() if line[:1] in tuple("123")]
    assert [row[0] for row in ranks] == ["1", "2", "3"]
    assert [float(row[1]) for row in ranks] == pytest.approx(logs, abs=1e-6)
    other = answer["top"][1]["state"]
    for name, value in other.items():
        assert (f"{name}={value}" in run.out) == (value != answer["state"][name])
    assert [one["state"] for one in Run("solve", CLINIC, *question, "-m", "brute", "--json").json["top"]] == [
        one["state"] for one in answer["top"]
    ]


def test_more_states_than_there_are(small: Path) -> None:
    run = Run("solve", small, "-q", "a", "--top", 9)
    assert run.code == 0
    assert "there are no others: all other states have probability 0" in run.out
    assert len(Run("solve", small, "-q", "a", "--top", 9, "--json").json["top"]) == 2
    stopped = Run("solve", CLINIC, "--top", 3, "-m", "brute", "--time-limit", 1e-9)
    assert stopped.code == 3
    assert "there may be better states than the last of these" in stopped.out


def test_memory_limit(small: Path, tmp_path: Path) -> None:
    for limit in ("500M", "1.5G", "64k", "100", "2 GiB", "7mb"):
        assert Run("solve", small, "--memory-limit", limit, "--json").json["status"] == "optimal"
    for limit in ("", "M", "-5M", "0", "0.1", "lots", "1e9", "5T", "1_0", "nan", "٣"):
        refused("solve", small, f"--memory-limit={limit}", naming=["--memory-limit", "500M"])
    variables = [mm.Variable(i) for i in range(40)]
    mixture = 0.05 * math.prod((mm.bernoulli(v, 0.5) for v in variables[1:]), start=mm.bernoulli(variables[0], 0.5))
    for k in range(19):
        rest = (mm.bernoulli(v, 0.5 + 0.09 * math.sin(7 * k + i * i)) for i, v in enumerate(variables[1:]))
        mixture = mixture + 0.05 * math.prod(rest, start=mm.bernoulli(variables[0], 0.5))
    mm.save(mm.circuit_of(mixture, variables), tmp_path / "wide.json")
    run = Run("solve", tmp_path / "wide.json", "--memory-limit", "100K")
    assert run.code == 3
    assert "stopped (memory limit): a better state can have at most" in run.out


def test_verbose_says_which_method_was_chosen_and_why(small: Path) -> None:
    run = Run("solve", small, "-v")
    assert run.code == 0
    assert run.err.startswith("chose frontier: the circuit is structured-decomposable: ")
    assert "rounds: " in run.err
    assert "why" not in run.err
    assert "chose" not in Run("solve", small, "-v", "-m", "branch").err
    assert Run("solve", small, "-v", "-m", "branch").err.startswith("search_nodes: ")


def test_bad_tops_are_refused(small: Path) -> None:
    refused("solve", small, "--top", 2, "-m", "iterative", naming=["'iterative' finds one state only"])
    for top in (0, -1, "many"):
        run = Run("solve", small, "--top", top)
        assert (run.code, run.out) == (2, "")
        assert "Usage" in run.err


def test_threads(small: Path) -> None:
    alone = Run("solve", small, "--json").json
    for number in ("1", "2"):
        answer = Run("solve", small, "--threads", number, "--json").json
        assert (answer["state"], answer["log_prob"], answer["status"]) == (
            alone["state"],
            alone["log_prob"],
            "optimal",
        )
    assert Run("solve", small, "--threads", "0").code == 2


@pytest.mark.parametrize("where", [["--jobs", "2"], ["--jobs", "1"]])
def test_one_query_on_several_processes(where: list[str]) -> None:
    alone = Run("solve", CLINIC, "-q", "illness,course", "--json").json
    shared = Run("solve", CLINIC, "-q", "illness,course", "--json", *where).json
    assert (shared["status"], shared["state"]) == (alone["status"], alone["state"])
    refused("solve", CLINIC, "-q", "illness", "--top", "2", "--jobs", "2", naming=["one query on many cores"])


def test_one_query_on_a_dask_cluster() -> None:
    pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    alone = Run("solve", CLINIC, "-q", "illness,course", "--json").json
    shared = Run("solve", CLINIC, "-q", "illness,course", "--json", "--dask", "local", "--jobs", "1").json
    assert (shared["status"], shared["state"]) == (alone["status"], alone["state"])
