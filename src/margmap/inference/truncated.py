"""Gaussians between two bounds: the logarithm of their mass, their moments, and samples, exact far out in the tails.

By symmetry an interval on one side of the mean begins at a >= 0 standard deviations, and its density there is that of
the mean's times exp(-a t - t * t / 2) for t from 0 to the interval's length h. Moments of that are integrals of
a smooth function without cancellation: Gauss-Legendre quadrature on panels over which the exponent changes by little,
up to where nothing is left. An interval with the mean inside is two such parts. Samples are by rejection (Robert,
*Simulation of truncated normal variables*, 1995).
"""

from __future__ import annotations

import math

import numpy as np

from margmap.circuit import FloatArray
from margmap.foundation.jit import kernel
from margmap.foundation.pairs import EPS

_PANELS, _POINTS = 40, 16
_AT, _WEIGHT = np.polynomial.legendre.leggauss(_POINTS)

# What lies further down than exp(-_DEPTH) does not show in a double.
_DEPTH = 48.0
_LOG_ROOT_TWO_PI = 0.9189385332046727


def log_masses(mean: FloatArray, deviation: FloatArray, low: float, high: float) -> FloatArray:
    """The logarithm of the mass of each Gaussian between the two bounds, either of which may be infinite."""
    return _log_masses(mean, deviation, low, high, _AT, _WEIGHT)


def log_mass_error(log_mass: float) -> float:
    """How far such a logarithm can be off: its bound in deviations is rounded, and enters as a square."""
    return 64 * EPS * (1.0 + abs(log_mass))


def moments(mean: FloatArray, deviation: FloatArray, low: float, high: float) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of each Gaussian between the two bounds."""
    return _moments(mean, deviation, low, high, _AT, _WEIGHT)


def draw(mean: FloatArray, deviation: FloatArray, low: float, high: float, seed: int) -> FloatArray:
    """A value between the two bounds from each of the Gaussians."""
    return _draw(mean, deviation, low, high, seed, _AT, _WEIGHT)


@kernel
def _one_sided(a: float, h: float, at: FloatArray, weight: FloatArray) -> tuple[float, float, float]:
    """The integrals of 1, t and t * t, each times exp(-a t - t * t / 2), from 0 to h; a >= 0."""
    length = min(h, 2 * _DEPTH / (a + math.sqrt(a * a + 2 * _DEPTH)))
    width = length / _PANELS
    zeroth, first, second = 0.0, 0.0, 0.0
    for panel in range(_PANELS):
        for i in range(at.size):
            t = width * (panel + 0.5 * (1.0 + at[i]))
            part = 0.5 * width * weight[i] * math.exp(-t * (a + 0.5 * t))
            zeroth += part
            first += part * t
            second += part * t * t
    return zeroth, first, second


@kernel
def _bounds(mean: float, deviation: float, low: float, high: float) -> tuple[float, float, float]:
    """The bounds in deviations from the mean, and the length of the interval in the same unit."""
    return (low - mean) / deviation, (high - mean) / deviation, (high - low) / deviation


@kernel
def _log_masses(
    mean: FloatArray, deviation: FloatArray, low: float, high: float, at: FloatArray, weight: FloatArray
) -> FloatArray:
    out = np.empty(mean.size)
    for i in range(mean.size):
        a, b, h = _bounds(mean[i], deviation[i], low, high)
        if a < 0 < b:
            total = _one_sided(0.0, -a, at, weight)[0] + _one_sided(0.0, b, at, weight)[0]
            out[i] = min(math.log(total) - _LOG_ROOT_TWO_PI, 0.0)
        else:
            near = a if a >= 0 else -b
            total = _one_sided(near, h, at, weight)[0]
            out[i] = math.log(total) - 0.5 * near * near - _LOG_ROOT_TWO_PI if total > 0 else -np.inf
    return out


@kernel
def _moments(
    mean: FloatArray, deviation: FloatArray, low: float, high: float, at: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    out, variance = np.empty(mean.size), np.empty(mean.size)
    for i in range(mean.size):
        a, b, h = _bounds(mean[i], deviation[i], low, high)
        if a < 0 < b:
            left, right = _one_sided(0.0, -a, at, weight), _one_sided(0.0, b, at, weight)
            total = left[0] + right[0]
            middle = (right[1] - left[1]) / total
            out[i] = mean[i] + deviation[i] * middle
            square = (left[2] + right[2]) / total - middle * middle
        else:
            part = _one_sided(a if a >= 0 else -b, h, at, weight)
            away = part[1] / part[0]
            out[i] = low + deviation[i] * away if a >= 0 else high - deviation[i] * away
            square = part[2] / part[0] - away * away
        variance[i] = max(square, 0.0) * deviation[i] * deviation[i]
    return out, variance


@kernel
def _draw_one_sided(a: float, h: float) -> float:
    """A value from 0 to h with a density like exp(-a t - t * t / 2)."""
    flat = h * (a + 0.5 * h) < 2.0
    rate = 0.5 * (a + math.sqrt(a * a + 4.0))
    while True:
        u = np.random.random()  # noqa: NPY002
        t = u * h if flat else -math.log(1.0 - u) / rate
        log_chance = -t * (a + 0.5 * t) if flat else -0.5 * (t - (rate - a)) ** 2
        if t <= h and np.random.random() < math.exp(log_chance):  # noqa: NPY002
            return t


@kernel
def _draw(
    mean: FloatArray, deviation: FloatArray, low: float, high: float, seed: int, at: FloatArray, weight: FloatArray
) -> FloatArray:
    np.random.seed(seed % 4294967296)  # noqa: NPY002 - the kernel's own generator, not numpy's global one
    out = np.empty(mean.size)
    for i in range(mean.size):
        a, b, h = _bounds(mean[i], deviation[i], low, high)
        if a < 0 < b:
            left, right = _one_sided(0.0, -a, at, weight)[0], _one_sided(0.0, b, at, weight)[0]
            if np.random.random() * (left + right) < left:  # noqa: NPY002
                out[i] = mean[i] - deviation[i] * _draw_one_sided(0.0, -a)
            else:
                out[i] = mean[i] + deviation[i] * _draw_one_sided(0.0, b)
        elif a >= 0:
            out[i] = low + deviation[i] * _draw_one_sided(a, h)
        else:
            out[i] = high - deviation[i] * _draw_one_sided(-b, h)
        out[i] = min(max(out[i], low), high)
    return out
