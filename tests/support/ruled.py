"""Random constraints, each beside a plain Python function that says whether a state satisfies it."""

from fractions import Fraction

import margmap as mm

c = mm.constraints


def random_constraints(rng, circuit, query, most=4):
    """From one to ``most`` constraints over the query, and the test of a state (name -> label) that they amount to."""
    variables = {v.name: v for v in circuit.variables if v.name in query}
    found = [_one(rng, variables) for _ in range(int(rng.integers(1, most + 1)))]
    return [constraint for constraint, _ in found], lambda state: all(holds(state) for _, holds in found)


def _literals(rng, variables, least=1):
    every = [(name, v.label(x)) for name, v in variables.items() for x in range(v.cardinality)]
    count = int(rng.integers(min(least, len(every)), min(len(every), 6) + 1))
    return [every[i] for i in rng.choice(len(every), count, replace=False)]


def _pair(rng, variables):
    """Two variables of the same states, or None."""
    names = list(variables)
    pairs = [
        (a, b)
        for a in names
        for b in names
        if a != b
        and variables[a].cardinality == variables[b].cardinality
        and variables[a].states == variables[b].states
    ]
    return pairs[rng.integers(len(pairs))] if pairs else None


def _one(rng, variables):
    kind = rng.choice(
        ["allowed", "most", "least", "exactly", "budget", "clause", "implies", "mutex", "equal", "ordered"]
    )
    literals = _literals(rng, variables)
    k = int(rng.integers(0, len(literals) + 1))

    def count(state):
        return sum(state[name] == value for name, value in literals)

    if kind == "allowed":
        name = literals[0][0]
        labels = [variables[name].label(x) for x in range(variables[name].cardinality)]
        chosen = [label for label in labels if rng.random() < 0.6] or labels[:1]
        return c.allowed(name, chosen), lambda state: state[name] in chosen
    if kind == "most":
        return c.at_most(k, literals), lambda state: count(state) <= k
    if kind == "least":
        return c.at_least(k, literals), lambda state: count(state) >= k
    if kind == "exactly":
        return c.exactly(k, literals), lambda state: count(state) == k
    if kind == "clause":
        return c.clause(literals), lambda state: count(state) >= 1
    if kind == "mutex":
        return c.mutex(literals), lambda state: count(state) <= 1
    if kind == "budget":
        choices = [0, 1, 2, 5, 0.25, 1.5, Fraction(1, 3), Fraction(7, 6)]
        costs = {literal: choices[rng.integers(len(choices))] for literal in literals}
        exact = {literal: Fraction(str(x)) if isinstance(x, float) else Fraction(x) for literal, x in costs.items()}
        limit = Fraction(int(rng.integers(0, 9)), 3)
        spent = lambda state: sum(x for (name, value), x in exact.items() if state[name] == value)  # noqa: E731
        return c.budget(costs, limit), lambda state: spent(state) <= limit
    if kind == "implies":
        (a, x), (b, y) = literals[0], _literals(rng, variables)[0]
        return c.implies((a, x), (b, y)), lambda state: state[a] != x or state[b] == y
    pair = _pair(rng, variables)
    if pair is None:
        return c.at_most(k, literals), lambda state: count(state) <= k
    a, b = pair
    if kind == "equal":
        return c.equal(a, b), lambda state: state[a] == state[b]
    order = [variables[a].label(x) for x in range(variables[a].cardinality)]
    return c.ordered(a, b), lambda state: order.index(state[a]) <= order.index(state[b])
