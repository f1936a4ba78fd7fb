"""A search's estimate of candidates that it has not scored: a Gaussian process.

Scores near each other are alike, over distances that the scores themselves tell. Every look is at a
few documents only, and wrong by noise: some documents are hard for every candidate (an offset, that
is taken off), and each has moods of its own (which only more looks average away). So the surface
goes smoothly between the looks, closer to what was looked at more often, and says for any two
points how sure it is of them: enough to draw surfaces that might be the true one.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), chapter 2; length and noise
by their likelihood (chapter 5).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ropewalk.schedule import FloatArray

IntArray = NDArray[np.int64]


class Shape(NamedTuple):
    """The kind of surface."""

    length: float
    """The distance over which scores are alike."""
    noise: float
    """The variance of a look at one document, over that of the surface."""


SHAPES = tuple(
    Shape(length, noise) for length in (0.5, 1.0, 2.0, 4.0) for noise in (0.003, 0.05, 0.5, 4.0)
)
CEILING = 0.75
"""The share of candidates that the surface tells apart: all that are worse are as bad as that one.

A search need not know by how much hopeless candidates differ, and a surface that must reach them is
too steep elsewhere."""


class Surface:
    """A surface through the looks that were taken."""

    def __init__(
        self,
        points: FloatArray,
        losses: FloatArray,
        shape: Shape | None = None,
        offsets: FloatArray | None = None,
    ) -> None:
        """`losses` are [points, documents], nan if nobody looked and infinite if it failed.

        The likeliest shape is taken, if none is given. `offsets` are those of a surface through
        fewer looks, where there was one.
        """
        self._points = points
        looks = (~np.isnan(losses)).sum(axis=1)
        if offsets is None:
            offsets = _first_offsets(losses)
        scores = _scores(losses - offsets)
        self.shape = shape or _likeliest(points, looks, scores)
        alike = _alike(points, points, self.shape.length)
        noise = np.diag(self.shape.noise / looks)
        self._inverse = np.linalg.inv(alike + noise).astype(np.float64)
        level, weights, _ = self._through(scores)
        self.offsets: FloatArray = _offsets(offsets, losses, level + alike @ weights, scores)
        """The excess difficulty of each document."""
        self._level, self._weights, self._amplitude = self._through(_scores(losses - self.offsets))

    def mean(self, points: FloatArray) -> FloatArray:
        """The expected surface."""
        cross = _alike(points, self._points, self.shape.length)
        expected: FloatArray = self._level + cross @ self._weights
        return expected

    def drawn(self, points: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
        """[points, count]: surfaces that agree with what was seen, at these points."""
        cross = _alike(points, self._points, self.shape.length)
        covariance = _alike(points, points, self.shape.length) - cross @ self._inverse @ cross.T
        # Points that nearly meet make the matrix singular but for this.
        root = np.linalg.cholesky(covariance + 1e-6 * np.eye(len(points)))
        normal = self._amplitude * rng.standard_normal((len(points), count))
        surfaces: FloatArray = (self._level + cross @ self._weights)[:, None] + root @ normal
        return surfaces

    def _through(self, scores: FloatArray) -> tuple[float, FloatArray, float]:
        """The likeliest level and amplitude, and weights by which the surface leaves the level."""
        summed = self._inverse.sum(axis=0)
        level = float(summed @ scores / summed.sum())
        weights: FloatArray = self._inverse @ (scores - level)
        variance = float((scores - level) @ weights) / len(scores)
        return level, weights, math.sqrt(max(variance, 1e-20))


def _likeliest(points: FloatArray, looks: IntArray, scores: FloatArray) -> Shape:
    """The shape under which these scores are the least surprising."""

    def likelihood(shape: Shape) -> float:
        covariance = _alike(points, points, shape.length) + np.diag(shape.noise / looks)
        root = np.linalg.cholesky(covariance)
        ones, white = np.linalg.solve(root, np.stack([np.ones(len(scores)), scores], axis=1)).T
        rest = white - ones * (ones @ white) / (ones @ ones)
        variance = max(float(rest @ rest) / len(scores), 1e-20)
        return -0.5 * len(scores) * math.log(variance) - float(np.log(np.diag(root)).sum())

    return max(SHAPES, key=likelihood)


def _alike(one: FloatArray, other: FloatArray, length: float) -> FloatArray:
    """Matérn's covariance of order 5/2, which is twice differentiable."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    far = np.sqrt(5 * np.maximum(squares, 0)) / length
    alike: FloatArray = (1 + far + far**2 / 3) * np.exp(-far)
    return alike


def _scores(losses: FloatArray) -> FloatArray:
    """The mean loss of each row, none above the ceiling."""
    means = np.nanmean(losses, axis=1)
    finite = np.sort(means[np.isfinite(means)])
    if len(finite) == 0:
        return np.zeros(len(means))
    scores: FloatArray = np.minimum(means, finite[min(int(CEILING * len(means)), len(finite) - 1)])
    return scores


def _first_offsets(losses: FloatArray) -> FloatArray:
    """The offsets by the points that were seen on every document, while there is no surface."""
    whole = losses[np.isfinite(losses).all(axis=1)]
    summed = (whole - whole.mean(axis=1, keepdims=True)).sum(axis=0)
    offsets: FloatArray = summed / max(1, len(whole))
    return offsets


def _offsets(
    offsets: FloatArray, losses: FloatArray, expected: FloatArray, scores: FloatArray
) -> FloatArray:
    """The excess of each document's loss over the surface, 0 on average.

    A document that few saw keeps some of its former offset.
    """
    rest = losses - offsets - expected[:, None]
    rest = np.where(np.isfinite(rest) & (scores < scores.max())[:, None], rest, np.nan)
    seen = (~np.isnan(rest)).sum(axis=0)
    moved: FloatArray = offsets + np.nansum(rest, axis=0) / (seen + 1)
    moved -= moved.mean()
    return moved
