"""Forged certificates: whatever is written into one, the answer is a verdict or a MargmapError, and no false claim
is accepted. Run by hand for more of them:

    PYTHONPATH=tests python tests/certificate/test_forged_certificates.py SEED COUNT
"""

import copy
import dataclasses
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import margmap as mm
import naive
from counts import cases
from margmap.certificate.blocks import Cover
from problems import SORTS, make

#: What a field of a file can be changed to.
JSON_VALUES = [
    *(None, True, False, 0, 1, -1, 2, 5, -2, 10**9, 10**18, 10**19, 10**30, -(10**30), 2**62, 2**63, 2**64, 10**400),
    *(10**4200, 0.0, -0.0, 0.5, 1.5, 1e-320, 5e-324, 1e300, 1e308, -1e308, 700_000, 700_001, -700_001, 1e6),
    *(float("nan"), float("inf"), -float("inf"), "", "x", "0", "1", "\ud800", "\u0000", "a" * 1000),
    *([], {}, [[]], [[[]]], [0], [1, 2], {"a": 1}),
]

#: What one that was never in a file can have besides.
VALUES = [
    *JSON_VALUES,
    *(10**5000, np.int64(1), np.float64(0.5), np.float32(0.5), np.array([1.0]), np.zeros((2, 2)), np.zeros(0)),
    *(np.array(3), object(), b"1", 1j, (), (0,), range(3), {1, 2}, Cover(0, np.zeros((0, 0))), float),
]


def places(data, at=()):
    """The path of every part of a JSON value."""
    yield at
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield from places(data[key], (*at, key))


def forged_file(rng, data):
    """The JSON of a certificate, changed at one to three places."""
    data = copy.deepcopy(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        known = [place for place in places(data) if place]
        if rng.random() < 0.5:
            known = [place for place in known if len(place) <= 2]
        if not known:
            break
        *above, key = rng.choice(known)
        parent = data
        for step in above:
            parent = parent[step]
        old, how = parent[key], rng.random()
        if how < 0.45:
            parent[key] = copy.deepcopy(rng.choice(JSON_VALUES))
        elif how < 0.55:
            del parent[key]
        elif how < 0.65 and isinstance(parent, list):
            parent.insert(key, copy.deepcopy(old))
        elif how < 0.75 and isinstance(parent, list):
            other = rng.randrange(len(parent))
            parent[key], parent[other] = parent[other], old
        elif how < 0.9 and type(old) in (int, float) and abs(old) < 1e300:
            parent[key] = old * rng.choice([0.5, 0.999, 1 - 1e-9, 1 + 1e-9, 2, -1, 1e8, 0])
        else:
            parent[key] = [old]
    return data


def forged_parts(rng, certificate):
    """A certificate with a field, or a part of one, of any type."""
    field = rng.choice([f.name for f in dataclasses.fields(certificate)])
    old, how = getattr(certificate, field), rng.random()
    if how < 0.35 or isinstance(old, float):
        return dataclasses.replace(certificate, **{field: rng.choice(VALUES)})
    if field == "evidence":
        name = rng.choice([10**5000, np.int64(1), None, 1.5, b"1", (), float, "", "x", *certificate.query, *old])
        return dataclasses.replace(certificate, evidence={**old, name: rng.choice(VALUES)})
    items = list(old)
    if items:
        at = rng.randrange(len(items))
        if how < 0.6:
            items[at] = rng.choice(VALUES)
        elif how < 0.7:
            del items[at]
        elif how < 0.8:
            items.insert(at, items[at])
        elif field == "covers":
            exponent, vectors = items[at]
            items[at] = rng.choice(
                [
                    Cover(rng.choice(VALUES), vectors),
                    Cover(exponent, rng.choice(VALUES)),
                    Cover(exponent, vectors.astype(np.float32)),
                    Cover(exponent, vectors.astype(object)),
                    Cover(exponent, np.asfortranarray(vectors)),
                    Cover(exponent, vectors[::-1, ::-1]),
                    Cover(exponent, vectors.ravel()),
                    (exponent, vectors),
                ]
            )
        else:
            other = rng.randrange(len(items))
            items[at], items[other] = items[other], items[at]
    return dataclasses.replace(certificate, **{field: tuple(items) if rng.random() < 0.8 else items})


def forged_claim(rng, certificate, problem):
    """Well formed, and aimed at a false claim: another state, or a lower bound, over a proof that looks right."""
    delta = 10 ** rng.uniform(-9.5, 1.5)
    order = [problem.query.index(name) for name in certificate.query]
    value, best = rng.choice(problem.ranked[:6])
    log = naive.log(value)
    if rng.random() < 0.7 and log > -1e5:
        lower = log - 1e-11 * (1 + abs(log))
        upper = lower + rng.choice([1e-12, 1e-10, 5e-10, 1e-9, delta])
        changes = {"state": tuple(best[i] for i in order), "log_lower": lower, "log_upper": upper}
    else:
        changes = {"log_lower": certificate.log_lower - delta - 2, "log_upper": certificate.log_upper - delta}
    covers, how = list(certificate.covers), rng.random()
    if how < 0.25:
        covers = [Cover(e, v[[rng.random() < 0.8 for _ in v]]) for e, v in covers]
    elif how < 0.45:
        shift = rng.choice([-(10**9), -2000, -1000, -10, -1, 1, 5, 1000, 2000, 10**9])
        covers = [Cover(e + (shift if rng.random() < 0.5 else 0), v) for e, v in covers]
    elif how < 0.6:
        covers = [Cover(e, v * rng.choice([1, 1 - 1e-9, 0.99, 0.5, 1e-10, 1e-200, 0])) for e, v in covers]
    elif how < 0.7:
        covers = [Cover(e, v[:, rng.sample(range(v.shape[1]), v.shape[1])]) for e, v in covers]
    elif how < 0.85 and covers:
        changes["tree"] = other_tree(rng, len(certificate.query))
        level = rng.choice([0.0, 1e-9, 0.5, 1.0, 1.0 + 1e-9, 2.0])
        covers = [
            Cover(rng.choice([0, 0, 0, e]), np.full((rng.choice([0, 1, 1, 3]), max(1, v.shape[1])), level))
            for e, v in covers[:-1]
        ] + [covers[-1]]
    elif covers:
        at = rng.randrange(len(covers))
        covers[at] = Cover(covers[at].exponent, covers[at].vectors[:0])
    return dataclasses.replace(certificate, covers=tuple(covers), **changes)


def other_tree(rng, variables):
    parts = [[v] for v in rng.sample(range(variables), variables)]
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at : at + 2] = [[*parts[at], *parts[at + 1], -1]]
    return tuple(parts[0])


def check_truth(problem, certificate, verdict):
    """That an accepted claim holds, by enumeration, up to the enumeration's own rounding."""
    circuit = problem.circuit
    asked = [circuit.index(name) for name in certificate.query]
    observed = {circuit.index(name): x for name, x in certificate.evidence.items()}
    observed = {c: x if circuit.variables[c].continuous else int(x) for c, x in observed.items()}
    ranked = naive.marginal_map(circuit, asked, observed)
    best, mine = naive.log(ranked[0][0]), naive.log({q: p for p, q in ranked}[tuple(map(int, certificate.state))])
    margin = 1e-11 * (1 + abs(best))
    assert certificate.log_lower <= mine + margin, problem.name
    assert best <= certificate.log_upper + margin, problem.name
    assert verdict.log_prob_low - margin <= mine <= verdict.log_prob_high + margin, problem.name
    assert not verdict.optimal or mine >= best - verdict.tolerance - margin, problem.name


def attack(seed, count, path):
    """So many forgeries, and what became of them."""
    rng, sorts, outcomes = random.Random(seed), list(SORTS), Counter()
    for number in range(-(-count // 60)):
        at = 1_000_000 * seed + number
        problem = make(sorts[at % len(sorts)], at)
        certificate = mm.certify(problem.circuit, problem.query, problem.evidence, gap=rng.choice([1e-9, 1e-9, 0.3]))
        certificate.save(path)
        data = json.loads(path.read_text())
        for _ in range(60):
            how = rng.choice(["file", "parts", "claim"])
            if how == "file":
                path.write_text(json.dumps(forged_file(rng, data)))
                try:
                    forged = mm.Certificate.load(path)
                except mm.FormatError:
                    outcomes[how, "no certificate"] += 1
                    continue
            else:
                forged = forged_parts(rng, certificate) if how == "parts" else forged_claim(rng, certificate, problem)
            verdict = mm.verify(problem.circuit, forged)
            json.dumps(verdict.to_dict())
            if verdict.accepted:
                check_truth(problem, forged, verdict)
            outcomes[how, "optimal" if verdict.optimal else "accepted" if verdict.accepted else "refused"] += 1
    return outcomes


@pytest.mark.parametrize("seed", range(1, 5))
def test_a_forged_certificate_proves_nothing_false(tmp_path, seed):
    outcomes = attack(seed, cases(300), tmp_path / "proof.json")
    assert outcomes["file", "no certificate"] > cases(30)
    assert outcomes["parts", "refused"] > cases(45)
    assert outcomes["claim", "refused"] > cases(45)
    assert sum(outcomes[how, "optimal"] for how in ("file", "parts", "claim")) > cases(6)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for outcome, times in sorted(attack(int(sys.argv[1]), int(sys.argv[2]), Path(folder) / "c.json").items()):
            print(*outcome, times)
