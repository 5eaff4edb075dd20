"""Circuits to write and read, and a plain evaluator that shares no code with the package."""

from __future__ import annotations

import itertools
import math
import random

from margmap.circuit import BERNOULLI, BINOMIAL, CATEGORICAL, INDICATOR, Circuit, Parts, Variable, assemble


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
    """A smooth, decomposable, normalised circuit over four or five variables, with shared nodes and zero weights."""
    rng = random.Random(seed)
    count = rng.randint(4, 5)
    make = {"from_one": lambda i: i + 1, "gaps": lambda i: 3 * i + 2, "text": lambda i: f"x{i}", "zero": lambda i: i}
    variables = [Variable(make[names](i), 2 if binary else rng.choice((1, 2, 3, 4))) for i in range(count)]
    parts = Parts.new()
    splits: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    made: dict[tuple[int, ...], list[int]] = {}

    def weights(k: int) -> list[float]:
        raw = [rng.choice((0.0, rng.random(), rng.random())) for _ in range(k)]
        raw[rng.randrange(k)] += 0.5
        return [math.log(x / sum(raw)) if x else -math.inf for x in raw]

    def leaf(v: int) -> int:
        values = variables[v].cardinality
        kind = rng.choice((INDICATOR, BERNOULLI, CATEGORICAL, BINOMIAL, -1))
        if kind == INDICATOR:
            return parts.leaf(kind, v, [float(rng.randrange(values))])
        if kind == BERNOULLI and values == 2:
            return parts.leaf(kind, v, weights(2))
        if kind == BINOMIAL:
            p = rng.choice((0.0, 1.0, rng.random()))
            logs = [math.log(x) if x else -math.inf for x in (p, 1 - p)]
            return parts.leaf(kind, v, [float(values - 1), *logs])
        if kind == CATEGORICAL:
            return parts.leaf(kind, v, weights(values))
        return parts.sum([parts.leaf(INDICATOR, v, [float(x)]) for x in range(values)], weights(values))

    def split(scope: tuple[int, ...]) -> list[tuple[int, ...]]:
        if structured and scope in splits:
            return splits[scope]
        shuffled = list(scope)
        rng.shuffle(shuffled)
        k = rng.randint(2, min(3, len(scope)))
        pieces = [tuple(sorted(shuffled[i::k])) for i in range(k)]
        return splits.setdefault(scope, pieces) if structured else pieces

    def node(scope: tuple[int, ...]) -> int:
        known = made.setdefault(scope, [])
        if known and rng.random() < 0.3:
            return rng.choice(known)
        if len(scope) == 1:
            result = leaf(scope[0])
        else:
            below = [parts.product([node(s) for s in split(scope)]) for _ in range(rng.randint(1, 3))]
            result = parts.sum(below, weights(len(below)))
            if rng.random() < 0.3:
                result = parts.sum([result, rng.choice(below)], weights(2))
        known.append(result)
        return result

    root = node(tuple(range(count)))
    return assemble(variables, parts, root)


def lines_of(text: str) -> str:
    """A test's file, without the indentation of the test."""
    return "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"
