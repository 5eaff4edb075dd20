"""Run by a test in a Python of its own, in which numba cannot be imported: answers against enumeration."""

import json
import math
import os
import sys
import warnings


class NoNumba:
    """Finds everything but numba and what comes with it."""

    def find_spec(self, name, path=None, target=None):
        """Refuse numba."""
        if name.split(".")[0] in ("numba", "llvmlite", "scipy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, NoNumba())

import numpy as np  # noqa: E402

import margmap as mm  # noqa: E402
import naive  # noqa: E402
from circuits import SORTS, columns, fixed, random_circuit, random_instance  # noqa: E402
from margmap.cli import make_app  # noqa: E402
from margmap.demo import EVIDENCE, QUERY, load_model  # noqa: E402
from margmap.foundation import jit  # noqa: E402

found = {"circuits": 0}
with warnings.catch_warnings(record=True) as heard:
    warnings.simplefilter("default")
    for seed in range(40):
        rng = np.random.default_rng(seed)
        circuit = random_circuit(rng, **SORTS[[*SORTS][seed % len(SORTS)]])
        query, evidence = random_instance(rng, circuit)
        result = mm.marginal_map(circuit, query, evidence)
        best = naive.optimum(circuit, columns(circuit, query), fixed(circuit, evidence))
        found["circuits"] += result.status == "optimal" and abs(result.log_prob - math.log(best)) < 1e-9
    grid = mm.Network([mm.Variable("a"), mm.Variable("b")], [((0,), [0.3, 0.7]), ((0, 1), [[0.9, 0.1], [0.2, 0.8]])])
    found["network"] = mm.marginal_map(grid, ["b"], {"a": 1}).status
    rows = np.random.default_rng(1).integers(0, 2, (60, 4))
    found["learned"] = mm.learn.strudel(rows, iterations=2).properties.smooth
    clinic = load_model()
    jit._state.interpreted = 1.0  # as after a larger question
    found["proof"] = mm.verify(clinic, mm.certify(clinic, QUERY, EVIDENCE)).accepted
found["warnings"] = sum("numba is not installed" in str(one.message) for one in heard)
try:
    sys.stdout, kept = open(os.devnull, "w"), sys.stdout  # noqa: SIM115
    make_app(["warmup"])(["warmup", "--json"], prog_name="margmap")
except SystemExit as end:
    found["command"] = end.code or 0
finally:
    sys.stdout = kept
try:
    os.environ["MARGMAP_TIER"] = "compile"
    jit.chosen_tier()
except mm.MissingExtraError:
    found["tier"] = 2
print(json.dumps(found))
