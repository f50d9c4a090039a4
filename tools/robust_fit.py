"""Robust least squares for a few parameters: the Levenberg-Marquardt method with Huber's loss [Huber 1964]."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

DERIVATIVE_STEP = 1e-4
"""Step of the numerical derivative. It suits parameters of order one, such as logarithms."""
MAX_STEP = 0.5
"""Largest change of a parameter in one step."""


def minimize(residuals: Callable[[Vector], Vector], start: Vector, delta: float = 0.1, rounds: int = 300) -> Vector:
    """Return the parameters with the smallest Huber loss that was found.

    The loss of a residual is quadratic up to `delta` and linear beyond, which limits the effect of outliers.
    """
    best: Vector = np.array(start, dtype=float)
    damping = 1e-2
    now = residuals(best)
    for _ in range(rounds):
        slope = np.stack(
            [(residuals(best + DERIVATIVE_STEP * unit) - now) / DERIVATIVE_STEP for unit in np.eye(len(best))], axis=1
        )
        weight = np.minimum(1, delta / np.maximum(np.abs(now), 1e-12))
        curvature, gradient = slope.T @ (weight[:, None] * slope), slope.T @ (weight * now)
        loss = _huber(now, delta)
        while damping < 1e9:
            step = np.linalg.solve(curvature + damping * np.diag(np.diag(curvature) + 1e-9), -gradient)
            tried = best + np.clip(step, -MAX_STEP, MAX_STEP)
            then = residuals(tried)
            if _huber(then, delta) < loss:
                break
            damping *= 4
        else:
            return best
        best, now, damping = tried, then, max(damping / 5, 1e-9)
        if loss - _huber(now, delta) < 1e-10 * loss:
            return best
    return best


def _huber(residuals: Vector, delta: float) -> float:
    size = np.abs(residuals)
    return float(np.sum(np.where(size < delta, 0.5 * size**2, delta * (size - 0.5 * delta))))
