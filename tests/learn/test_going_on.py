"""Learning that goes on from a model, and learning that is interrupted: the best so far is what comes out."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import margmap as mm
from margmap.cli import app
from margmap.errors import DataError
from margmap.learn import learn_hclt, learn_mixture, learn_strudel, learn_trees
from margmap.learn.tree_mixture import _read_mixture
from rows_for_learning import MIXED, holes, mixed, tangled


def run(*args: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="margmap")
    return result.exit_code, result.stdout, result.stderr


def likelihood(circuit: mm.Circuit, rows: Any) -> np.ndarray:
    return np.asarray(mm.log_likelihood(circuit, rows))


# -- going on: what is read back is the model that was written


@pytest.mark.parametrize("latent", [1, 2, 5])
@pytest.mark.parametrize("form", ["json", "mmz", "jpc", "none"])
def test_a_latent_tree_is_read_back_as_it_was(form: str, latent: int, tmp_path: Path) -> None:
    rows = holes(tangled(150, 7, 3, seed=latent), 0.2)
    first = learn_hclt(rows, latent=latent, epochs=3).circuit
    if form != "none":
        mm.save(first, tmp_path / f"model.{form}")
        first = mm.load(tmp_path / f"model.{form}")
    again = learn_hclt(rows, epochs=0, batch=None, resume=first)
    np.testing.assert_allclose(likelihood(again.circuit, rows), likelihood(first, rows), rtol=1e-9)
    assert again.last.train == pytest.approx(likelihood(first, rows).mean(), rel=1e-9)
    assert again.circuit.variables == first.variables


def test_leaves_of_all_kinds_are_read_back(tmp_path: Path) -> None:
    rows = mixed(200)
    first = learn_hclt(rows, latent=3, epochs=5, leaves=MIXED).circuit
    mm.save(first, tmp_path / "model.json")
    read = mm.load(tmp_path / "model.json")
    same = learn_hclt(rows[:150], epochs=0, batch=None, resume=read).circuit  # other rows: another centre and spread
    np.testing.assert_allclose(likelihood(same, rows), likelihood(first, rows), rtol=1e-9)
    more = learn_hclt(rows, epochs=5, batch=None, pseudocount=0.0, resume=read)
    assert min(np.diff([now.train for now in more.history])) > -1e-9
    assert more.history[0].train == pytest.approx(likelihood(first, rows).mean())
    assert sorted(set(more.circuit.kind.tolist())) == sorted(set(first.kind.tolist()))


@pytest.mark.parametrize("seed", range(4))
def test_a_latent_tree_goes_on_upwards(seed: int) -> None:
    rows = holes(tangled(600, 8, seed=seed), 0.1 * seed)
    train, valid = rows[:400], rows[400:]
    first = learn_hclt(train, valid, latent=6, epochs=2, seed=seed)
    more = learn_hclt(train, valid, epochs=10, seed=seed, resume=first.circuit)
    assert more.history[0].valid == pytest.approx(first.best.valid, rel=1e-4)
    assert more.best.valid >= first.best.valid - 1e-4
    assert more.best.train > first.best.train + 0.01
    # On all rows at once it is EM that had not been stopped.
    half = learn_hclt(train, latent=4, epochs=4, batch=None, pseudocount=0.0, seed=seed)
    rest = learn_hclt(train, epochs=4, batch=None, pseudocount=0.0, resume=half.circuit)
    whole = learn_hclt(train, latent=4, epochs=8, batch=None, pseudocount=0.0, seed=seed)
    assert rest.last.train == pytest.approx(whole.last.train, rel=1e-9)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("values", [2, 3])
def test_a_mixture_of_trees_goes_on_upwards(k: int, values: int, tmp_path: Path) -> None:
    rows = holes(tangled(300, 7, values, seed=k), 0.15)
    rows[:, 3] = 0  # a column of one value
    first = learn_trees(rows, k=k, iterations=2, strength=0.5)
    mm.save(first.circuit, tmp_path / "model.json")
    circuit = mm.load(tmp_path / "model.json")
    components, log_weight = _read_mixture(circuit)
    assert len(components) == k
    assert np.exp(log_weight).sum() == pytest.approx(1.0)
    more = learn_trees(rows, iterations=8, strength=0.0, tolerance=0.0, resume=circuit)
    trains = [first.last.train, *(now.train for now in more.history)]
    assert min(np.diff(trains)) > -1e-9
    assert trains[-1] > trains[0]
    again, _ = _read_mixture(more.circuit)
    for one, two in zip(components, again, strict=True):
        assert np.array_equal(one.tree.parent, two.tree.parent)


def test_a_circuit_of_another_learner_is_refused() -> None:
    rows = tangled(100, 6, seed=3)
    grown = mm.learn.strudel(rows, iterations=20)
    latent, forest = mm.learn.hclt(rows, latent=3, epochs=1), mm.learn.trees(rows, k=3, iterations=2)
    for circuit in (grown, forest):
        with pytest.raises(DataError, match="is not a latent tree"):
            learn_hclt(rows, resume=circuit)
    for circuit in (grown, latent):
        with pytest.raises(DataError, match="is not a mixture of trees"):
            learn_trees(rows, resume=circuit)


def test_a_tree_without_all_columns_is_refused(tmp_path: Path) -> None:
    rows, path = tangled(100, 4, seed=3), tmp_path / "model.json"
    wider = np.hstack([rows, rows[:, :1]])
    for learn, learned in ((learn_hclt, mm.learn.hclt(rows, latent=2)), (learn_trees, mm.learn.trees(rows, k=2))):
        mm.save(learned, path)
        stored = json.loads(path.read_text())
        stored["variables"].append({"name": 5, "cardinality": 2})
        path.write_text(json.dumps(stored))
        with pytest.raises(DataError, match=r"the circuit to go on from is not a .*tree.* has no column 5"):
            learn(wider, resume=mm.load(path))


# -- interrupted: every learner returns the best circuit so far

LEARNERS: dict[str, Callable[..., Any]] = {
    "strudel": lambda rows, tell: learn_strudel(rows, on_progress=tell, min_gain=None),
    "mixture": lambda rows, tell: learn_mixture(rows, components=3, tolerance=0.0, on_iteration=tell),
    "hclt": lambda rows, tell: learn_hclt(rows, latent=3, epochs=500, on_progress=tell),
    "trees": lambda rows, tell: learn_trees(rows, k=3, tolerance=-1.0, iterations=500, on_progress=tell),
}


@pytest.mark.parametrize("how", ["signal", "exception"])
@pytest.mark.parametrize("name", LEARNERS)
def test_an_interrupted_learner_returns_the_best_so_far(name: str, how: str) -> None:
    rows = tangled(400, 8, seed=5)
    seen: list[float] = []

    def tell(now: Any) -> None:
        seen.append(now.train)
        if len(seen) == 3:
            if how == "exception":
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGINT)

    found = LEARNERS[name](rows, tell)
    assert found.reason == "interrupted"
    assert len(seen) <= 5
    assert found.circuit.properties.smooth
    tolerance = 0.2 if name == "hclt" else 1e-9  # an epoch's figure is of the parameters on the way
    assert likelihood(found.circuit, rows).mean() >= max(seen) - tolerance


@pytest.mark.parametrize("name", LEARNERS)
def test_an_interrupted_command_writes_the_best_so_far_and_goes_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, model = tmp_path / "rows.csv", tmp_path / "model.json"
    words = np.array(["no", "yes"])[tangled(300, 6, seed=7)]
    table.write_text("\n".join(",".join(row) for row in [list("abcdef"), *words.tolist()]) + "\n")
    calls: list[Any] = []

    def interrupt(now: Any, _part: float | None) -> str:
        calls.append(now)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        return ""

    monkeypatch.setattr("margmap.cli.learn.progress", interrupt)
    code, out, err = run("learn", table, "-o", model, "--learner", name, "--json")
    assert code == 3, err
    told = json.loads(out)
    assert told["reason"] == "interrupted"
    first = mm.load(model)
    assert first.variables[0].states == ("no", "yes")
    code, out, err = run("learn", table, "-o", model, "--learner", name, "--resume", model, "--json")
    assert code == 0, err
    assert json.loads(out)["train"] >= told["train"] - 0.02
    assert mm.load(model).variables == first.variables


def test_options_that_the_model_has_are_refused(tmp_path: Path) -> None:
    table, model = tmp_path / "rows.csv", tmp_path / "model.json"
    np.savetxt(table, tangled(60, 4), fmt="%d", delimiter=",")
    assert run("learn", table, "-o", model, "--learner", "hclt", "--latent", 2, "--epochs", 1)[0] == 0
    for option in (("hclt", "--latent", 4), ("trees", "--components", 3)):
        code, _, err = run("learn", table, "-o", model, "--resume", model, "--learner", *option)
        assert code == 2
        assert f"{option[1]} does not go with --resume" in err
    code, _, err = run("learn", table, "-o", model, "--resume", model, "--learner", "trees")
    assert code == 2
    assert "is not a mixture of trees" in err
