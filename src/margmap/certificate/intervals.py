"""Numbers rounded to the safe side, with nothing trusted but IEEE addition, multiplication and division.

All numbers here are at least 0. One rounding errs by at most half of ``UNIT``, relatively; a result of k operations is
moved by (k + 2) ``UNIT``, which is more than they and the move itself can have taken. Numbers of any size are *pairs*:
``(m, e)`` is m * 2^e with m in [0.5, 1), or (0, 0).
"""

from __future__ import annotations

import math
from typing import TypeAlias

from margmap.foundation.jit import kernel

Pair: TypeAlias = tuple[float, int]

UNIT = 2.0**-52

#: An upper bound that is not 0 is never less than this, so that no operation on it leaves the range of normal doubles.
TINY = 2.0**-1000

#: Logarithms beyond this are not told apart: as a weight, less is 0 below and this above; more is refused.
MOST_LOG = 700_000.0

# ln 2 = LN2_HIGH + LN2_LOW; the first has 33 bits, so its product with a whole number under 2^20 is exact.
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10

# 1 / sqrt(2 pi), within half a unit.
GAUSS = 0.3989422804014327


@kernel
def raised(x: float, operations: int) -> float:
    """At least the exact value of what was computed as ``x``."""
    return x * (1.0 + (operations + 2) * UNIT)


@kernel
def moved(x: float, operations: int, up: bool) -> float:
    """At least, or at most, the exact value of what was computed as ``x``."""
    return x * (1.0 + (operations + 2) * UNIT) if up else x * (1.0 - (operations + 2) * UNIT)


@kernel
def product_above(a: float, b: float) -> float:
    """a * b before it is raised by one operation; what is too small becomes TINY."""
    return max(a * b, TINY) if a > 0 and b > 0 else 0.0


@kernel
def pair_of(m: float, e: int) -> Pair:
    """m * 2^e as a pair."""
    if m == 0:
        return 0.0, 0
    mantissa, exponent = math.frexp(m)
    return mantissa, e + exponent


@kernel
def times(a: Pair, b: Pair, up: bool) -> Pair:
    """The product, rounded up or down."""
    return pair_of(moved(a[0] * b[0], 1, up), a[1] + b[1])


@kernel
def over(a: Pair, b: Pair, up: bool) -> Pair:
    """The quotient, rounded up or down; b is not 0."""
    return pair_of(moved(a[0] / b[0], 1, up), a[1] - b[1])


@kernel
def plus(a: Pair, b: Pair, up: bool) -> Pair:
    """The sum, rounded up or down."""
    if a[0] == 0:
        return b
    if b[0] == 0:
        return a
    if a[1] < b[1]:
        a, b = b, a
    shift = b[1] - a[1]
    small = math.ldexp(b[0], shift) if shift > -1000 else 0.0  # what is left out here is far under a unit
    return pair_of(moved(a[0] + small, 2, up), a[1])


@kernel
def less(a: Pair, b: Pair) -> bool:
    """Whether a < b, exactly."""
    if a[0] == 0 or b[0] == 0:
        return b[0] > a[0]
    return a[1] < b[1] or (a[1] == b[1] and a[0] < b[0])


@kernel
def plain_above(a: Pair) -> float:
    """A double that is not less, for pairs that are not much above 1."""
    if a[0] == 0:
        return 0.0
    return max(math.ldexp(a[0], max(a[1], -1010)), TINY)


@kernel
def exp_pair(x: float, up: bool) -> Pair:
    """A pair not under, or not over, e^x.

    x = k ln 2 + r with |r| < 0.35 and an error of r under 2^-53; the series of e^r to the power 13 leaves out less than
    2^-57 and rounds by less than 4 * 2^-53 in all. Together that is under 2^-50, and the result is moved by 2^-49.
    """
    if x == -math.inf:
        return 0.0, 0
    if x < -MOST_LOG:
        if not up:
            return 0.0, 0
        x = -MOST_LOG
    k = math.floor(x / 0.6931471805599453 + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    total = 1.0
    for i in range(13, 0, -1):
        total = 1.0 + total * r / i
    return pair_of(moved(total, 6, up), int(k))


@kernel
def gauss_pair(x: float, mean: float, deviation: float, up: bool) -> Pair:
    """The density of a Gaussian."""
    z = (x - mean) / deviation
    half = min(moved(0.5 * (z * z), 5, not up), 2 * MOST_LOG)
    tall = pair_of(moved(GAUSS, 0, up), 0)
    return over(times(tall, exp_pair(-half, up), up), pair_of(deviation, 0), up)


def log_of(a: Pair, up: bool) -> float:
    """A double that is not under, or not over, the natural logarithm: moved until its exponential proves it."""
    if a[0] == 0:
        return -math.inf
    guess = math.log(a[0]) + a[1] * math.log(2.0)
    step = (1.0 + abs(guess)) * UNIT
    while True:
        found = guess + step if up else guess - step
        bound = exp_pair(found, not up)
        if not (less(bound, a) if up else less(a, bound)):
            return found
        step *= 2.0
        if step == math.inf:
            return math.inf if up else -math.inf
