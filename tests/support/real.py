"""What the tests with real libraries share: states, likelihoods beside the library's, answers beside enumeration."""

from __future__ import annotations

import itertools

import numpy as np

import margmap as mm


def states_of(model, most=1000, seed=0):
    """All states of the variables, or so many drawn at random, one row each."""
    sizes = [variable.cardinality for variable in model.variables]
    if np.prod([float(size) for size in sizes]) <= most:
        return np.array(list(itertools.product(*map(range, sizes))))
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, size, most) for size in sizes], axis=1)


def agree(model, rows, theirs, tolerance):
    """Log-likelihoods equal the library's, to a relative tolerance of the probability; impossible where they are."""
    ours = mm.log_likelihood(model, rows)
    theirs = np.asarray(theirs, dtype=np.float64).ravel()
    assert ours.shape == theirs.shape
    assert not np.isnan(ours).any()
    possible = np.isfinite(theirs)
    assert (np.isneginf(ours) == ~possible).all()
    assert np.abs(ours[possible] - theirs[possible]).max(initial=0.0) <= tolerance


def best_by_enumeration(log_likelihood, model, query, evidence=None):
    """The best states of the query, and the log of p(q, e), from a table of all states by another program's numbers."""
    evidence = evidence or {}
    names = [variable.name for variable in model.variables]
    rows = np.array(list(itertools.product(*(range(variable.cardinality) for variable in model.variables))))
    p = np.exp(np.asarray(log_likelihood(rows), dtype=np.float64).ravel())
    for name, value in evidence.items():
        p = np.where(rows[:, names.index(name)] == value, p, 0.0)
    totals: dict[tuple[int, ...], float] = {}
    for state, mass in zip(rows[:, [names.index(name) for name in query]].tolist(), p.tolist(), strict=True):
        totals[tuple(state)] = totals.get(tuple(state), 0.0) + mass
    best = max(totals.values())
    return {state for state, mass in totals.items() if mass >= best * (1 - 1e-5)}, float(np.log(best))


def check_marginal_map(model, log_likelihood, tolerance, queries=6, seed=0):
    """Marginal MAP of generated questions is proven, and what enumeration of the library's likelihoods finds."""
    circuit = mm.as_model(model)
    names = [variable.name for variable in circuit.variables]
    rng = np.random.default_rng(seed)
    for _ in range(queries):
        order = rng.permutation(len(names)).tolist()
        asked = order[: int(rng.integers(1, len(names)))]
        observed = order[len(asked) : len(asked) + int(rng.integers(0, 3))]
        query = [names[i] for i in asked]
        row = mm.sample(circuit, 1, seed=int(rng.integers(1 << 30)))[0]
        evidence = {names[i]: int(row[i]) for i in observed}
        result = mm.marginal_map(model, query, evidence)
        states, value = best_by_enumeration(log_likelihood, circuit, query, evidence)
        assert result.status == "optimal"
        assert tuple(result.state[name] for name in query) in states
        assert abs(result.log_prob - value) <= tolerance
