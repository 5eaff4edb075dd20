"""Ways to make a certificate false: each is a function from a circuit and its certificate to a pair to be refused.

Only changes that matter are made: a checker of mathematics must accept a certificate that is changed and still true.
"""

import dataclasses

import numpy as np

import margmap as mm
from margmap.certificate.blocks import Cover, Work, blocks_of, rescaled, tree_of, walk
from margmap.certificate.verify import checked_query, threshold_of
from margmap.circuit import SUM
from margmap.inference.passes import edge_share, flows, forward
from margmap.inference.scaled import scaled


def tight_places(circuit, certificate):
    """Numbers that the proof needs: (block, vector, entry) where a candidate that nothing else covers is as large."""
    problem = checked_query(circuit, certificate.query, certificate.evidence, certificate.state)
    tree = tree_of(certificate.tree, len(certificate.query))
    work = Work(10**12)
    blocks, aligned = blocks_of(problem.upper, tree, 10**6, work)
    found = []

    def cover_of(b, candidates):
        cover = certificate.covers[b]
        floor = candidates.floor(threshold_of(certificate.log_upper, problem.upper))
        for first, second, _, _ in candidates.above(floor):
            for row in rescaled(candidates.evaluate(first, second), candidates.exponent - cover.exponent):
                over = np.flatnonzero((row <= cover.vectors).all(axis=1))
                assert over.size
                if over.size == 1:
                    vector = cover.vectors[over[0]]
                    tight = np.flatnonzero((row > 0) & (row >= vector * (1 - 1e-10)))
                    found.extend((b, int(over[0]), int(i)) for i in tight)
        return cover

    walk(blocks, aligned, tree, problem.cardinality, cover_of, work)
    return found


def with_entry(certificate, place, value):
    b, r, i = place
    vectors = certificate.covers[b].vectors.copy()
    vectors[r, i] = value
    covers = list(certificate.covers)
    covers[b] = Cover(covers[b].exponent, vectors)
    return dataclasses.replace(certificate, covers=tuple(covers))


def with_weight(circuit, edge, change):
    weight = circuit.log_weight.copy()
    weight[edge] += change
    return mm.Circuit(
        circuit.variables,
        circuit.kind,
        circuit.start,
        circuit.child,
        weight,
        circuit.var,
        circuit.param_start,
        circuit.param,
    )


def raised_value(rng, circuit, certificate):
    delta = 10 ** rng.uniform(-9, 1)
    upper = max(certificate.log_upper, certificate.log_lower + delta)
    return circuit, dataclasses.replace(certificate, log_lower=certificate.log_lower + delta, log_upper=upper)


def lowered_bound(rng, circuit, certificate):
    # The state's own claim is lowered too, so that only the proof of the bound can tell.
    delta = certificate.gap + 10 ** rng.uniform(-9, 1)
    lower = certificate.log_lower - delta - 1.0
    return circuit, dataclasses.replace(certificate, log_lower=lower, log_upper=certificate.log_upper - delta)


def lowered_entry(rng, circuit, certificate):
    places = tight_places(circuit, certificate)
    if not places:
        return None
    place = places[rng.integers(len(places))]
    value = certificate.covers[place[0]].vectors[place[1], place[2]]
    return circuit, with_entry(certificate, place, value * (1 - 10 ** rng.uniform(-8, 0)))


def changed_weight(rng, circuit, certificate):
    """A weight through which a hundredth of the state's probability or more comes, changed by far more than the gap."""
    edges = used_edges(circuit, certificate)
    if edges.size == 0:
        return None
    change = rng.choice([-1, 1]) * (100 * certificate.gap + 10 ** rng.uniform(-5, 0.5))
    return with_weight(circuit, edges[rng.integers(edges.size)], change), certificate


def used_edges(circuit, certificate):
    """The edges below sums with a share of at least 0.01 in the probability of the state."""
    observed = {**certificate.evidence, **dict(zip(certificate.query, certificate.state, strict=True))}
    codes, reals = circuit.encoded({circuit.index(name): value for name, value in observed.items()})
    s = scaled(circuit)
    value, exponent = np.zeros(circuit.num_nodes), np.zeros(circuit.num_nodes)
    forward(s, codes, reals, value, exponent)
    flow = flows(s, value, exponent)
    owner = np.repeat(np.arange(circuit.num_nodes), np.diff(circuit.start))
    edges = np.flatnonzero((circuit.kind[owner] == SUM) & (flow[owner] > 0.01) & (value[circuit.child] > 0))
    shares = np.array([edge_share(s, owner[e], e, value, exponent) for e in edges])
    return edges[shares * flow[owner[edges]] > 0.01] if edges.size else edges


CORRUPTIONS = [raised_value, lowered_bound, lowered_entry, changed_weight]
