"""Records of runs for the tests of reports: small circuits really solved, and records made up by hand."""

import numpy as np

import margmap as mm
from circuits import random_circuit
from margmap.bench.instances import generate

LABELS = {
    "brute": ("brute", {}),
    "UB plain": ("iterative", {"heuristic": "UB", "regroup": False, "climb": False, "fix": False}),
    "frontier": ("frontier", {}),
}
HOST = {"processor": "a test", "cores": 2, "memory": 8 << 30, "python": "3"}


def record(dataset="a", instance=0, label="frontier", status="optimal", **other):
    """One record made up by hand: solved in a second unless told otherwise."""
    return {
        "dataset": dataset,
        "model": f"{dataset}.json",
        "edges": 100,
        "variables": 10,
        "instance": instance,
        "instances": f"{dataset}-instances.json",
        "proportions": [0.3, 0.3, 0.4],
        "label": label,
        "method": label,
        "options": {},
        "time_limit": 60.0,
        "memory_limit": 1 << 30,
        "status": status,
        "error": None,
        "state": {},
        "log_prob": -3.0,
        "log_conditional": -1.0,
        "log_upper": -3.0,
        "gap": 0.0,
        "seconds": 1.0,
        "load_seconds": 0.1,
        "cpu_seconds": 1.0,
        "wall_seconds": 2.0,
        "peak_bytes": 50 << 20,
        "trace": None,
        "margmap": "0.1.0",
        "host": HOST,
        **other,
    }


def solved_records(datasets=("one", "tmovie"), number=2):
    """What every method says of instances of small random circuits, with the traces of the iterative one."""
    records = []
    for seed, dataset in enumerate(datasets):
        circuit = random_circuit(np.random.default_rng(seed + 20), variables=10, structured=True, zeros=False, most=400)
        for index, instance in enumerate(generate(circuit, number=number, name=dataset)):
            for label, (method, options) in LABELS.items():
                result = mm.marginal_map(circuit, instance.query, instance.evidence, method, **options)
                answer = {name: value for name, value in result.to_dict().items() if name != "method"}
                trace = [row.to_dict() for row in result.trace] or None
                about = {"edges": circuit.num_edges, "variables": len(circuit.variables), "method": method}
                records.append(
                    record(dataset, index, label, proportions=list(instance.proportions), trace=trace, options=options)
                    | about
                    | answer
                )
    return records
