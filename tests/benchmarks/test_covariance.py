"""Covariance adaptation on functions whose minimum is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.covariance import CovarianceAdaptation
from ropewalk.schedule import FloatArray


def minimum(function: Callable[[FloatArray], float], n: int, draws: int) -> float:
    cma = CovarianceAdaptation(np.full(n, 2.0), np.ones(n), np.random.default_rng(0))
    best = np.inf
    for _ in range(draws // cma.population):
        points = cma.draw()
        scores = np.array([function(point) for point in points])
        best = min(best, float(scores.min()))
        cma.learn([points[i] for i in scores.argsort()])
    return best


def ellipsoid(point: FloatArray) -> float:
    return float((10.0 ** (6 * np.arange(len(point)) / (len(point) - 1)) * point**2).sum())


def turned(point: FloatArray) -> float:
    """An ellipsoid whose axes are no coordinates: only a covariance can learn it."""
    axes, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(len(point),) * 2))
    return ellipsoid(axes @ point)


@pytest.mark.parametrize("function", [ellipsoid, turned])
def test_it_learns_a_badly_scaled_bowl_in_any_direction(
    function: Callable[[FloatArray], float],
) -> None:
    assert minimum(function, 5, 4000) < 1e-8


def test_it_follows_a_bent_valley() -> None:
    def rosenbrock(point: FloatArray) -> float:
        return float((100 * (point[1:] - point[:-1] ** 2) ** 2 + (1 - point[:-1]) ** 2).sum())

    assert minimum(rosenbrock, 3, 3000) < 1e-8


def test_infinite_scores_are_only_last() -> None:
    assert (
        minimum(lambda point: np.inf if point[0] < 0 else float((point**2).sum()), 4, 3000) < 1e-3
    )


def test_the_first_draws_have_the_given_deviations() -> None:
    deviations = np.array([0.1, 1.0, 10.0])
    cma = CovarianceAdaptation(np.zeros(3), deviations, np.random.default_rng(0), population=4000)
    np.testing.assert_allclose(cma.draw().std(axis=0), deviations, rtol=0.05)
