"""The checker's own arithmetic, against fractions: what it computes as an upper bound is one."""

import dataclasses
from fractions import Fraction

import numpy as np

import margmap as mm
from margmap.certificate.blocks import Cover, _linear
from margmap.certificate.intervals import product_above
from problems import make


def test_linear_bounds_are_above():
    """Sums of products, raised by their rounding; what is too small for a double is not 0."""
    rng = np.random.default_rng(0)
    close = 0
    for i in range(400):
        size = int(rng.integers(1, 40))
        weight, vector = rng.uniform(0, 1, size), rng.uniform(0, 1, size)
        if i % 4 == 0:
            weight, vector = weight * 1e-170, vector * 1e-170
        constant = float(rng.uniform(0, 1)) if i % 3 == 0 else 0.0
        exact = Fraction(constant) + sum(Fraction(w) * Fraction(v) for w, v in zip(weight, vector, strict=True))
        found = Fraction(float(_linear(vector[None, :], weight, constant)[0]))
        assert found >= exact
        close += found <= exact * (1 + Fraction(1, 10**12))
    assert close > 250
    assert product_above(1e-200, 1e-200) > 0 == product_above(0.0, 1.0)


def test_exponents_need_an_aligned_tree():
    """Where scopes cross, entries of a block have no common scale, so that none may be claimed."""
    refused = 0
    for seed in range(40):
        p = make("partitions", 29_000 + seed)
        certificate = mm.certify(p.circuit, p.query, p.evidence)
        if p.circuit.properties.structured or not mm.verify(p.circuit, certificate).accepted:
            continue
        for b, (exponent, vectors) in enumerate(certificate.covers):
            if vectors.size and exponent == 0:
                covers = list(certificate.covers)
                covers[b] = Cover(-1, 2 * vectors)
                verdict = mm.verify(p.circuit, dataclasses.replace(certificate, covers=tuple(covers)))
                if "has an exponent" in verdict.reason:
                    refused += 1
                    break
    assert refused > 10
