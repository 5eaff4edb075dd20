"""Certificates of the shared instances, changed in every way that the tests know: each must be refused.

    .venv/bin/python scripts/corrupt_certificates.py -n 1000

Needs ../shared/data. It ends with an error that names the change if one is accepted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

import margmap as mm
from margmap.io.formats import load_circuit

FOLDER = Path(__file__).resolve().parents[1]
DATA = FOLDER.parent / "shared" / "data"


def main() -> None:
    """Spread the corruptions over all instances and print how often each was refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=1000, help="so many false certificates")
    asked = parser.parse_args().n
    sys.path.append(str(FOLDER / "tests" / "support"))
    from corruptions import CORRUPTIONS

    instances = [
        (data["circuit"], instance)
        for path in sorted((DATA / "mmap_instances").glob("*.json"))
        for data in [json.loads(path.read_text())]
        for instance in data["instances"]
    ]
    if not instances:
        print(f"{DATA / 'mmap_instances'} is not there: nothing to try")
        return
    rng = np.random.default_rng(0)
    refused: Counter[str] = Counter()
    for number, (name, instance) in enumerate(instances):
        circuit = load_circuit(DATA / name)
        evidence = {int(variable): value for variable, value in instance["evidence"].items()}
        certificate = mm.certify(circuit, instance["query"], evidence)
        due = asked * (number + 1) // len(instances)
        for corrupt in itertools.cycle(CORRUPTIONS):
            if refused.total() >= due:
                break
            corrupted = corrupt(rng, circuit, certificate)
            if corrupted is not None:
                if mm.verify(*corrupted).accepted:
                    raise SystemExit(f"{corrupt.__name__} was accepted: {name}, instance {number}")
                refused[corrupt.__name__] += 1
    print(f"{refused.total()} corruptions, all refused: {dict(refused)}")


if __name__ == "__main__":
    main()
