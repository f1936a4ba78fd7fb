"""Covariance matrix adaptation: a normal distribution that learns which directions pay.

Hansen's CMA-ES with his default constants ("The CMA Evolution Strategy: A Tutorial", 2016): updates
of rank one and of rank μ, no restarts. It sees ranks only, so a score may be infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ropewalk.schedule import FloatArray


class CovarianceAdaptation:
    """Draws points, and moves towards those that it is told are the best."""

    def __init__(
        self,
        mean: FloatArray,
        deviations: FloatArray,
        rng: np.random.Generator,
        population: int | None = None,
    ) -> None:
        """`deviations` are the first standard deviations, one a coordinate."""
        n = len(mean)
        self.population = population or 4 + int(3 * math.log(n))
        self.mean = mean.astype(np.float64)
        self.step = 1.0
        self._rng = rng
        self._covariance = np.diag(deviations**2)

        parents = self.population // 2
        weights = math.log((self.population + 1) / 2) - np.log(np.arange(1, parents + 1))
        self._weights = weights / weights.sum()
        mass = 1 / (self._weights**2).sum()
        self._mass = mass
        self._step_rate = (mass + 2) / (n + mass + 5)
        self._step_damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (n + 1)) - 1) + self._step_rate
        self._path_rate = (4 + mass / n) / (n + 4 + 2 * mass / n)
        self._one_rate = 2 / ((n + 1.3) ** 2 + mass)
        self._many_rate = min(1 - self._one_rate, 2 * (mass - 2 + 1 / mass) / ((n + 2) ** 2 + mass))
        self._expected = math.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
        self._step_path = np.zeros(n)
        self._path = np.zeros(n)
        self._generation = 0
        self._factorise()

    def draw(self) -> FloatArray:
        """[population, n]."""
        normal = self._rng.standard_normal((self.population, len(self.mean)))
        drawn: FloatArray = self.mean + self.step * (normal * self._lengths) @ self._axes.T
        return drawn

    def learn(self, ranked: Sequence[FloatArray]) -> None:
        """Move: `ranked` are the points of a generation, the best first.

        They may be other than those that were drawn, where a constraint moved them.
        """
        n = len(self.mean)
        self._generation += 1
        steps = (np.asarray(ranked)[: len(self._weights)] - self.mean) / self.step
        mean_step = self._weights @ steps
        self.mean = self.mean + self.step * mean_step

        whitened = self._axes @ ((self._axes.T @ mean_step) / self._lengths)
        rate = self._step_rate
        self._step_path *= 1 - rate
        self._step_path += math.sqrt(rate * (2 - rate) * self._mass) * whitened
        length = float(np.linalg.norm(self._step_path))
        # While the step is still growing fast, the path would only count that growth again.
        settled = length / math.sqrt(1 - (1 - rate) ** (2 * self._generation))
        steady = settled < (1.4 + 2 / (n + 1)) * self._expected
        rate = self._path_rate
        self._path *= 1 - rate
        if steady:
            self._path += math.sqrt(rate * (2 - rate) * self._mass) * mean_step

        lost = 0.0 if steady else self._one_rate * rate * (2 - rate)
        self._covariance *= 1 - self._one_rate - self._many_rate + lost
        self._covariance += self._one_rate * np.outer(self._path, self._path)
        self._covariance += self._many_rate * (steps.T * self._weights) @ steps
        grown = self._step_rate / self._step_damping * (length / self._expected - 1)
        self.step *= math.exp(min(1.0, grown))
        self._factorise()

    def _factorise(self) -> None:
        """The covariance as orthogonal axes and the standard deviation along each."""
        symmetric = (self._covariance + self._covariance.T) / 2
        values, self._axes = np.linalg.eigh(symmetric)
        self._lengths = np.sqrt(np.maximum(values, 1e-20))
