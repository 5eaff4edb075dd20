"""Plain enumeration in pure Python, sharing no code with the package: slow, obvious, the yardstick of all tests.

Only the public arrays of a circuit are read. Variables are columns (numbers), a state is a tuple with one entry a
column, None where the column is not enumerated (continuous, or mentioned by no leaf). A continuous variable without a
value is integrated out, which for a Gaussian leaf gives 1. With ``exact=True`` all numbers are fractions, each weight
and leaf probability being the fraction that the float ``math.exp(log)`` is, so that nothing rounds afterwards.
"""

import itertools
import math
from fractions import Fraction

INDICATOR, BERNOULLI, CATEGORICAL, BINOMIAL, GAUSSIAN, PRODUCT, SUM = range(7)


def probability_of_leaf(kind, parameters, x, exact=False):
    """p(x) of one discrete leaf."""
    number = Fraction if exact else float
    if kind == INDICATOR:
        return number(1 if x == parameters[0] else 0)
    if kind == BERNOULLI:
        return number(math.exp(parameters[0] if x == 1 else parameters[1]))
    if kind == CATEGORICAL:
        return number(math.exp(parameters[x]))
    assert kind == BINOMIAL
    trials = int(parameters[0])
    yes, no = number(math.exp(parameters[1])), number(math.exp(parameters[2]))
    return math.comb(trials, x) * yes**x * no ** (trials - x)


def density_of_gaussian(mean, deviation, x):
    z = (x - mean) / deviation
    return math.exp(-z * z / 2) / (deviation * math.sqrt(2 * math.pi))


def mass_of_gaussian(mean, deviation, low, high):
    """The probability between two bounds, each of which may be infinite; on the side where tails do not cancel."""
    below, above = ((x - mean) / (deviation * math.sqrt(2)) for x in (low, high))
    if below > 0:
        return (math.erfc(below) - math.erfc(above)) / 2
    if above < 0:
        return (math.erfc(-above) - math.erfc(-below)) / 2
    return (math.erf(above) + math.erf(-below)) / 2


def mentioned(circuit):
    """The columns that some leaf below the root is about."""
    start, child = circuit.start.tolist(), circuit.child.tolist()
    below, waiting = set(), [len(circuit.kind) - 1]
    while waiting:
        n = waiting.pop()
        if n not in below:
            below.add(n)
            waiting.extend(child[start[n] : start[n + 1]])
    return sorted({int(circuit.var[n]) for n in below if circuit.kind[n] < PRODUCT})


def states_of(circuit, fixed=None):
    """Every joint state of the mentioned discrete variables that agrees with ``fixed`` (column -> value)."""
    fixed = fixed or {}
    choices = [[None]] * len(circuit.variables)
    for column in mentioned(circuit):
        cardinality = circuit.variables[column].cardinality
        if cardinality:
            choices[column] = [fixed[column]] if column in fixed else list(range(cardinality))
    return list(itertools.product(*choices))


def node_values(circuit, states, reals=None, exact=False, moments=None):
    """For each node the list of its values, one for each state. ``reals``: column -> value of a continuous variable.

    A pair in place of a value is an interval.

    ``moments`` (column -> k) puts the k-th moment of a Gaussian in place of its integral.
    """
    reals, moments = reals or {}, moments or {}
    number = Fraction if exact else float
    kind, var = circuit.kind.tolist(), circuit.var.tolist()
    start, child, log_weight = circuit.start.tolist(), circuit.child.tolist(), circuit.log_weight.tolist()
    param_start, param = circuit.param_start.tolist(), circuit.param.tolist()
    values = []
    for n in range(len(kind)):
        edges = range(start[n], start[n + 1])
        if kind[n] == SUM:
            total = [number(0)] * len(states)
            for e in edges:
                w = number(math.exp(log_weight[e]))
                total = [t + w * v for t, v in zip(total, values[child[e]], strict=True)]
            values.append(total)
        elif kind[n] == PRODUCT:
            total = [number(1)] * len(states)
            for e in edges:
                total = [t * v for t, v in zip(total, values[child[e]], strict=True)]
            values.append(total)
        elif kind[n] == GAUSSIAN:
            mean, deviation = param[param_start[n] : param_start[n + 1]]
            if isinstance(reals.get(var[n]), tuple):
                v = mass_of_gaussian(mean, deviation, *reals[var[n]])
            elif var[n] in reals:
                v = density_of_gaussian(mean, deviation, reals[var[n]])
            else:
                v = (1.0, mean, mean * mean + deviation * deviation)[moments.get(var[n], 0)]
            values.append([number(v)] * len(states))
        else:
            parameters = param[param_start[n] : param_start[n + 1]]
            cardinality = circuit.variables[var[n]].cardinality
            table = [probability_of_leaf(kind[n], parameters, x, exact) for x in range(cardinality)]
            values.append([table[state[var[n]]] for state in states])
    return values


def joint(circuit, fixed=None, exact=False, moments=None):
    """All pairs (p(state), state), the columns in ``fixed`` held at their values."""
    fixed = fixed or {}
    reals = {column: x for column, x in fixed.items() if not circuit.variables[column].cardinality}
    states = states_of(circuit, fixed)
    return list(zip(node_values(circuit, states, reals, exact, moments)[-1], states, strict=True))


def add(numbers, exact=False):
    return sum(numbers, Fraction(0)) if exact else math.fsum(numbers)


def probability(circuit, fixed=None, exact=False, moments=None):
    """p(fixed), by adding up all completions."""
    return add((p for p, _ in joint(circuit, fixed, exact, moments)), exact)


def log(p):
    """The logarithm of a float or a fraction, -inf at 0."""
    if p == 0:
        return -math.inf
    if isinstance(p, Fraction):
        return math.log(p.numerator) - math.log(p.denominator)
    return math.log(p)


def log_likelihood(circuit, row):
    """log p of a row with None for missing entries."""
    return log(probability(circuit, {i: x for i, x in enumerate(row) if x is not None}))


def marginal_map(circuit, query, fixed=None, exact=False):
    """All pairs (p(q, e), q), best first; ``q`` is a tuple in the order of the columns ``query``."""
    parts = {}
    for p, state in joint(circuit, fixed, exact):
        parts.setdefault(tuple(state[c] for c in query), []).append(p)
    return sorted(((add(ps, exact), q) for q, ps in parts.items()), key=lambda pair: (-pair[0], pair[1]))


def optimum(circuit, query, fixed=None):
    """The exact max p(q, e) as a fraction. Only states that floats cannot tell from the best are done in fractions."""
    ranked = marginal_map(circuit, query, fixed)
    close = [q for p, q in ranked if p >= ranked[0][0] * (1 - 1e-9)]
    return max(probability(circuit, {**(fixed or {}), **dict(zip(query, q, strict=True))}, exact=True) for q in close)


def posteriors(circuit, fixed=None):
    """p(X = x | e) for each mentioned column that is not fixed; mean and standard deviation if it is continuous."""
    fixed = fixed or {}
    pairs = joint(circuit, fixed)
    total = math.fsum(p for p, _ in pairs)
    answer = {}
    for column in mentioned(circuit):
        cardinality = circuit.variables[column].cardinality
        if column in fixed:
            continue
        if cardinality:
            answer[column] = [math.fsum(p for p, s in pairs if s[column] == x) / total for x in range(cardinality)]
        else:
            mean, square = (probability(circuit, fixed, moments={column: k}) / total for k in (1, 2))
            answer[column] = [mean, math.sqrt(max(0.0, square - mean * mean))]
    return answer


def scopes(circuit):
    """The set of columns below each node."""
    found = []
    for n in range(len(circuit.kind)):
        if circuit.kind[n] < PRODUCT:
            found.append({int(circuit.var[n])})
        else:
            found.append(set().union(*(found[c] for c in circuit.child[circuit.start[n] : circuit.start[n + 1]])))
    return found
