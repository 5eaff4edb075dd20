"""Minimising a smooth function without constraints: L-BFGS (Liu and Nocedal, 1989) with a weak Wolfe line search.

The line search is that of Lewis and Overton (2013): double the step until the interval is closed, then cut it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# A step must lower the function by this part of what the slope promises, and take away this part of the slope.
_DECREASE, _CURVATURE = 1e-3, 0.9
_MOST_TRIES = 20

# Rounds end when the function falls by no more than this, relatively, or when no slope is steeper than this.
_FALL, _SLOPE = 2e-9, 1e-5


def minimise(
    objective: Callable[[FloatArray], tuple[float, FloatArray]], begin: FloatArray, rounds: int, memory: int = 6
) -> FloatArray:
    """Where ``objective``, which gives a value and its gradient, is lowest after ``rounds`` steps from ``begin``.

    ``memory`` is how many of the last steps the curvature is taken from.
    """
    x, (value, gradient) = begin, objective(begin)
    steps: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=memory)
    for _ in range(rounds):
        if gradient.size == 0 or np.abs(gradient).max() <= _SLOPE:
            break
        direction = -_times_inverse_hessian(gradient, steps)
        slope = float(direction @ gradient)
        if not slope < 0:  # rounding: begin again with the steepest descent
            steps.clear()
            direction, slope = -gradient, -float(gradient @ gradient)
        first = 1.0 if steps else min(1.0, 1.0 / float(np.linalg.norm(gradient)))
        found = _line_search(objective, x, value, direction, slope, first)
        if found is None:
            break
        new, new_value, new_gradient = found
        step, turn = new - x, new_gradient - gradient
        if float(step @ turn) > 1e-16 * float(turn @ turn):
            steps.append((step, turn))
        fall = (value - new_value) / max(abs(value), abs(new_value), 1.0)
        x, value, gradient = new, new_value, new_gradient
        if fall <= _FALL:
            break
    return x


def _times_inverse_hessian(gradient: FloatArray, steps: deque[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """The gradient times the inverse of the Hessian that the last steps suggest (the two-loop recursion)."""
    result: FloatArray = gradient.copy()
    shares = []
    for step, turn in reversed(steps):
        share = float(step @ result) / float(step @ turn)
        result -= share * turn
        shares.append(share)
    if steps:
        step, turn = steps[-1]
        result *= float(step @ turn) / float(turn @ turn)
    for (step, turn), share in zip(steps, reversed(shares), strict=True):
        result += (share - float(turn @ result) / float(step @ turn)) * step
    return result


def _line_search(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    x: FloatArray,
    value: float,
    direction: FloatArray,
    slope: float,
    length: float,
) -> tuple[FloatArray, float, FloatArray] | None:
    """A point on the way, its value and gradient, that is lower and flatter enough; None if none is lower."""
    low, high = 0.0, np.inf
    best: tuple[FloatArray, float, FloatArray] | None = None
    for _ in range(_MOST_TRIES):
        new = x + length * direction
        new_value, gradient = objective(new)
        if not new_value <= value + _DECREASE * length * slope:
            high = length
            # The lowest point of the parabola through what is known, well inside of the interval.
            bend = new_value - value - slope * length
            guess = -slope * length * length / (2 * bend) if np.isfinite(bend) and bend > 0 else low
            length = float(np.clip(guess, low + 0.1 * (high - low), low + 0.5 * (high - low)))
            continue
        best = new, new_value, gradient
        if float(gradient @ direction) >= _CURVATURE * slope:
            break
        low = length
        length = 2 * low if high == np.inf else (low + high) / 2
    return best
