"""Files of knowledge compilers: what dsharp writes, and files in the format of d4 as ddnnife counts them.

d4 itself has no package: its files are written here, by the small compiler of ``tests/io/theories.py``, which also says
what their models are, and ddnnife, which was made for d4's files, reads the same ones.
"""

from __future__ import annotations

import math
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

import howto
import margmap as mm
from real import agree, check_marginal_map, states_of
from theories import d4, models, random_cnf, table

problog = pytest.importorskip("problog", reason="ProbLog, which brings dsharp, is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")


def theory(seed, least=1):
    rng = random.Random(seed)
    while True:
        n = rng.randint(2, 9)
        cnf = random_cnf(rng, n)
        if len(models(cnf, n)) >= least and cnf:
            return rng, n, cnf


def dimacs(cnf, n, weights):
    """A CNF with weights as in the model counting competitions."""
    lines = [f"p cnf {n} {len(cnf)}", *(f"c p weight {lit} {weight!r} 0" for lit, weight in weights.items())]
    return "\n".join((*lines, *(" ".join(map(str, (*clause, 0))) for clause in cnf))) + "\n"


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_dsharp(tmp_path, seed, smooth):
    binary = Path(problog.__file__).parent / "bin" / "linux" / "dsharp"
    if not binary.exists():
        pytest.skip("ProbLog has no dsharp for this system")
    rng, n, cnf = theory(seed)
    weights = {s * v: rng.uniform(0.01, 3) for v in range(1, n + 1) for s in (1, -1)}
    (tmp_path / "x.cnf").write_text(dimacs(cnf, n, weights))
    plain = "\n".join(line for line in dimacs(cnf, n, {}).split("\n"))
    (tmp_path / "plain.cnf").write_text(plain)
    words = [str(binary), "-Fnnf", str(tmp_path / "x.nnf"), *(["-smoothNNF"] if smooth else []), "-disableAllLits"]
    subprocess.run([*words, str(tmp_path / "plain.cnf")], check=True, capture_output=True)
    circuit = mm.load(tmp_path / "x.nnf", weights=tmp_path / "x.cnf")
    assert circuit.names == tuple(range(1, n + 1))
    expected = table(cnf, n, weights)

    def value(rows):
        with np.errstate(divide="ignore"):
            return np.log([expected.get(tuple(row), 0.0) for row in np.asarray(rows).tolist()])

    rows = states_of(circuit)
    agree(circuit, rows, value(rows), 1e-9)
    check_marginal_map(circuit, value, 1e-9, queries=2)


@pytest.mark.parametrize("seed", range(20))
def test_the_format_of_d4(tmp_path, seed):
    ddnnife = pytest.importorskip("ddnnife", reason="ddnnife is not installed")
    rng, n, cnf = theory(f"d4 {seed}")
    path = tmp_path / "x.nnf"
    path.write_text(d4(cnf))
    counted = int(str(ddnnife.Ddnnf.from_file(str(path), n).rc()))
    circuit = mm.load(path, names={v: v for v in range(1, n + 1)})
    assert counted == len(models(cnf, n))
    assert math.exp(mm.log_marginal(circuit, {})) == pytest.approx(counted, rel=1e-12)
    weights = {v: rng.random() for v in range(1, n + 1)}
    both = {**weights, **{-v: 1 - p for v, p in weights.items()}}
    expected = table(cnf, n, both)
    weighted = mm.load(path, weights=weights)

    def value(rows):
        with np.errstate(divide="ignore"):
            return np.log([expected.get(tuple(row), 0.0) for row in np.asarray(rows).tolist()])

    rows = states_of(weighted)
    agree(weighted, rows, value(rows), 1e-9)
    check_marginal_map(weighted, value, 1e-9, queries=2)


def test_howto(tmp_path):
    howto.run("Knowledge compilers: c2d, dsharp, d4", tmp_path)
