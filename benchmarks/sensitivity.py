"""What `sensitivity` takes for all variables and values, beside one query from scratch for each value.

    python benchmarks/sensitivity.py

On alarm and on a circuit that was learned from audio (100 variables); at most half of that is the aim.
"""

import time
from pathlib import Path

import numpy as np

import margmap as mm

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


def measured(name, fresh, query, evidence):
    """Seconds of one query on a model that has just been made, of all of them, and of the analysis."""
    mm.sensitivity(fresh(), query, evidence)  # compiles the kernels
    once = []
    for _ in range(5):
        model = fresh()
        begun = time.perf_counter()
        mm.marginal_map(model, query, evidence)
        once.append(time.perf_counter() - begun)
    model = fresh()
    begun = time.perf_counter()
    found = mm.sensitivity(model, query, evidence)
    all_of_it = time.perf_counter() - begun
    begun = time.perf_counter()
    mm.sensitivity(model, query, evidence)
    again = time.perf_counter() - begun
    values = len(found.changes)
    one = float(np.median(once))
    print(
        f"{name}: {values} values, one query {1e3 * one:.2f} ms, sensitivity {all_of_it:.3f} s ({again:.3f} s again), "
        f"{all_of_it / (values * one):.3f} of a query for each value; complete: {found.complete}"
    )


def main():
    alarm = SHARED / "bif" / "alarm.bif.gz"
    measured("alarm", lambda: mm.load_network(alarm), ["HYPOVOLEMIA", "LVFAILURE"], {"HRBP": "HIGH", "BP": "LOW"})
    learned = mm.load_circuit(SHARED / "psdd" / "baudio.psdd.gz")
    names = list(learned.names)

    def fresh():
        arrays = (learned.kind, learned.start, learned.child, learned.log_weight, learned.var)
        return mm.Circuit(learned.variables, *arrays, learned.param_start, learned.param)

    for size in (5, 20, 40):
        evidence = {name: i % 2 for i, name in enumerate(names[50:60])}
        measured(f"audio, {size} of 100 asked, {learned.num_edges} edges", fresh, names[:size], evidence)


if __name__ == "__main__":
    main()
