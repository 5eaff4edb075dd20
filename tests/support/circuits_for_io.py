"""Circuits to write and read, and a plain evaluator that shares no code with the package."""

from __future__ import annotations

import itertools
import math

import numpy as np

import circuits
from margmap.circuit import Circuit


def log_value(circuit: Circuit, state: tuple[int, ...]) -> float:
    values: list[float] = []
    for n in range(circuit.num_nodes):
        kind = circuit.kind[n]
        edges = range(circuit.start[n], circuit.start[n + 1])
        p = [float(x) for x in circuit.param[circuit.param_start[n] : circuit.param_start[n + 1]]]
        x = state[circuit.var[n]]
        if kind == 0:
            values.append(0.0 if x == p[0] else -math.inf)
        elif kind == 1:
            values.append(p[0] if x == 1 else p[1])
        elif kind == 2:
            values.append(p[x])
        elif kind == 3:
            trials = int(p[0])
            some = x * p[1] if x else 0.0
            others = (trials - x) * p[2] if x < trials else 0.0
            values.append(math.log(math.comb(trials, x)) + some + others)
        elif kind == 4:
            values.append(-0.5 * ((x - p[0]) / p[1]) ** 2 - math.log(p[1] * math.sqrt(2 * math.pi)))
        elif kind == 5:
            values.append(sum(values[circuit.child[e]] for e in edges))
        else:
            terms = [float(circuit.log_weight[e]) + values[circuit.child[e]] for e in edges]
            top = max(terms)
            values.append(top if top == -math.inf else top + math.log(sum(math.exp(t - top) for t in terms)))
    return values[-1]


def distribution(circuit: Circuit) -> list[float]:
    states = itertools.product(*(range(max(1, v.cardinality)) for v in circuit.variables))
    return [log_value(circuit, state) for state in states]


def same(a: Circuit, b: Circuit, tolerance: float = 1e-11) -> bool:
    if [v.cardinality for v in a.variables] != [v.cardinality for v in b.variables]:
        return False
    pairs = zip(distribution(a), distribution(b), strict=True)
    return all(x == y or abs(x - y) <= tolerance * max(1.0, abs(x)) for x, y in pairs)


def random_circuit(seed: int, *, binary: bool, structured: bool, names: str = "from_one") -> Circuit:
    """A normalised circuit over four or five variables, with names as files have them."""
    rng = np.random.default_rng(seed)
    name = {"from_one": lambda i: i + 1, "gaps": lambda i: 3 * i + 2, "text": lambda i: f"x{i}", "zero": lambda i: i}
    return circuits.random_circuit(
        rng,
        names=[name[names](i) for i in range(int(rng.integers(4, 6)))],
        values=(2,) if binary else (1, 2, 3, 4),
        structured=structured,
        normalised=True,
    )


def lines_of(text: str) -> str:
    """A test's file, without the indentation of the test."""
    return "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"
