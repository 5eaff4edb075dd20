"""Numbers beyond the range of doubles: a value times a power of two.

A *pair* ``(value, exponent)`` stands for ``value * 2**exponent``. The value is 0 or at least ``TINY``; the exponent is
a whole number kept in a double, 0 wherever a plain double would do. Moving digits from the value to the exponent is a
multiplication by a power of two, so it rounds nothing, and exponents up to 2**53 add up without rounding either. A
product of a million small probabilities loses no more digits than its million multiplications take.

A *weight* of a reduced circuit is one double: the weight itself if it is at least ``TINY``; for a smaller one its
logarithm to base 2, which is negative.
"""

from __future__ import annotations

import math

import numpy as np

from margmap.foundation.jit import kernel

#: The smallest value of a pair and the smallest weight that stands for itself. The product of two is still a double.
TINY = 2.0**-500
STEP = 500.0

#: The distance from 1 to the next double: one operation errs by at most half of it, relatively.
EPS = float(np.finfo(np.float64).eps)

#: A number that was rounded a few times, multiplied by this, is at least what it would be without rounding.
UP = 1.0 + 4 * EPS

#: Above this, whole numbers in doubles no longer add up without rounding.
EXACT = 2.0**53

# The logarithm of 2 as the sum of two doubles.
LN2, LN2_REST = 0.6931471805599453, 2.3190468138462996e-17

# Logarithms up to this are turned into pairs without loss; beyond, only to the precision of a double.
LARGEST_LOG = 2.0**60


@kernel
def two_sum(a: float, b: float) -> tuple[float, float]:
    """``a + b`` as a rounded sum and what the rounding took (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@kernel
def two_product(a: float, b: float) -> tuple[float, float]:
    """``a * b`` as a rounded product and what the rounding took (Dekker); for factors far from overflow."""
    x, y = 134217729.0 * a, 134217729.0 * b
    a_high, b_high = x - (x - a), y - (y - b)
    a_low, b_low = a - a_high, b - b_high
    product = a * b
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@kernel
def normal(value: float, exponent: float) -> tuple[float, float]:
    """The same number with a value from 1/2 to 1; zero has exponent 0."""
    if value == 0:
        return 0.0, 0.0
    mantissa, shift = math.frexp(value)
    return mantissa, exponent + shift


@kernel
def from_log(high: float, low: float) -> tuple[float, float]:
    """``exp(high + low)`` as a pair with a value from 1/2 to 1; ``low`` has digits that ``high`` has no room for."""
    if high == -np.inf:
        return 0.0, 0.0
    exponent = np.rint(high / LN2)
    if abs(high) > LARGEST_LOG:
        return 0.5, exponent + 1.0
    product, lost = two_product(exponent, LN2)
    rest = ((high - product) - lost) - exponent * LN2_REST + low
    return normal(math.exp(rest), exponent)


@kernel
def log_parts(value: float, exponent: float) -> tuple[float, float]:
    """The natural logarithm of a pair as a double and the digits that it has no room for."""
    if value <= 0:
        return -np.inf, 0.0
    mantissa, exponent = normal(value, exponent)
    if abs(exponent) > LARGEST_LOG:
        return exponent * LN2, 0.0
    product, lost = two_product(exponent, LN2)
    high, low = two_sum(product, math.log(mantissa))
    return two_sum(high, low + lost + exponent * LN2_REST)


@kernel
def log_of(value: float, exponent: float) -> float:
    """The natural logarithm of a pair, to the nearest double or the next."""
    return log_parts(value, exponent)[0]


@kernel
def moved(value: float, shift: float) -> float:
    """``value * 2**shift``; 0 where that is too small for a double, very large where it is too large."""
    if shift == 0:
        return value
    if shift > 0:
        return float(value * 2.0 ** min(shift, 1000.0))
    return math.ldexp(value, int(shift)) if shift > -1600 else 0.0


@kernel
def plus(value: float, exponent: float, other: float, other_exponent: float) -> tuple[float, float]:
    """The sum of two pairs whose values are at most some 2**400."""
    if value == 0:
        return other, other_exponent
    if other == 0:
        return value, exponent
    if value < TINY:
        value, exponent = value / TINY, exponent - STEP
    if other < TINY:
        other, other_exponent = other / TINY, other_exponent - STEP
    if exponent >= other_exponent:
        return value + moved(other, other_exponent - exponent), exponent
    return other + moved(value, exponent - other_exponent), other_exponent


@kernel
def decoded(weight: float) -> tuple[float, float]:
    """A weight as a pair."""
    if weight >= 0:
        return weight, 0.0
    exponent = np.ceil(weight)
    return 2.0 ** (weight - exponent), exponent


@kernel
def encoded(value: float, exponent: float) -> float:
    """A pair as a weight that is not less than it."""
    if exponent == 0 and (value >= TINY or value == 0):
        return value
    if value == 0:
        return 0.0
    mantissa, exponent = normal(value, exponent)
    if exponent > -STEP:
        return moved(mantissa, exponent)
    log2 = math.log2(mantissa) + exponent
    return min(log2 + 2 * EPS * abs(log2), -STEP)


@kernel
def log_weight(weight: float) -> float:
    """The natural logarithm of a weight; -inf for 0."""
    if weight > 0:
        return math.log(weight)
    return weight * LN2 if weight < 0 else -np.inf


def raised(*terms: float) -> float:
    """The sum of some logarithms, rounded up."""
    total = sum(terms)
    return total + EPS * sum(map(abs, terms)) * len(terms) if math.isfinite(total) else total


def lowered(*terms: float) -> float:
    """The sum of some logarithms, rounded down."""
    return -raised(*(-x for x in terms))
