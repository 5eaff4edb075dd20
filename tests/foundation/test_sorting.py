"""What kernels use in place of numpy's sorting, selecting and matrix products, in both tiers; and the minimiser."""

import numpy as np
import pytest

from margmap.foundation import jit
from margmap.foundation.matrices import row_products
from margmap.foundation.minimise import minimise
from margmap.foundation.sorting import descending, nth_largest

both_tiers = pytest.mark.parametrize("tier", ["interpret", "compile"])


@both_tiers
def test_descending_is_a_stable_order(tier):
    rng = np.random.default_rng(1)
    with jit.forced(tier):
        for n in (0, 1, 2, 11, 12, 13, 24, 25, 100, 1000):
            for values in (3, 10**6):
                keys = rng.integers(0, values, n).astype(np.float64)
                assert descending(keys).tolist() == sorted(range(n), key=lambda i: -keys[i])
                numbers = keys.astype(np.int32)
                assert descending(-numbers).tolist() == sorted(range(n), key=lambda i: numbers[i])


@both_tiers
def test_nth_largest(tier):
    rng = np.random.default_rng(2)
    with jit.forced(tier):
        for n in (1, 2, 3, 10, 101):
            for values in (2, 1000):
                numbers = rng.integers(0, values, n).astype(np.float64)
                before = numbers.copy()
                assert [nth_largest(numbers, i + 1) for i in range(n)] == sorted(numbers, reverse=True)
                assert np.array_equal(numbers, before)


@both_tiers
def test_row_products(tier):
    rng = np.random.default_rng(3)
    with jit.forced(tier):
        for rows, columns, inner in ((1, 1, 1), (2, 3, 4), (5, 7, 9), (64, 1030, 13), (3, 512, 0), (4, 513, 6)):
            left, right = rng.random((rows, inner)), rng.random((columns, inner))
            expected = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in right] for x in left]
            np.testing.assert_allclose(row_products(left, right), expected, rtol=1e-13)


@pytest.mark.parametrize("seed", range(5))
def test_the_minimum_of_a_convex_function(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    factor, at = rng.normal(size=(n, n)) + 12 * np.eye(n), rng.normal(size=n)

    def objective(x):
        z = factor @ (x - at)
        return float(np.sqrt(1 + z * z).sum()), factor.T @ (z / np.sqrt(1 + z * z))

    found = minimise(objective, np.zeros(n), 500)
    assert objective(found)[0] == pytest.approx(n, rel=1e-6)
    steps = []
    minimise(lambda x: (steps.append(1), objective(x))[1], np.zeros(n), 1)
    assert 1 < len(steps) < 22


def test_a_minimiser_at_the_minimum_stays():
    assert minimise(lambda x: (float(x @ x), 2 * x), np.zeros(3), 10).tolist() == [0, 0, 0]
