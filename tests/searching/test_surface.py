"""What a surface makes of looks at few documents."""

from __future__ import annotations

import numpy as np
import pytest

from ropewalk.schedule import FloatArray
from ropewalk.searching.surface import SHAPES, Surface

DOCUMENTS = 12
QUIET, LOUD = min(shape.noise for shape in SHAPES), max(shape.noise for shape in SHAPES)


def valley(points: FloatArray) -> FloatArray:
    """Something smooth with its lowest point at 0.5."""
    depth: FloatArray = 0.1 * ((points - 0.5) ** 2).sum(axis=1)
    return depth


def looked_at(
    count: int, *, seed: int = 0, mood: float = 0.0, share: float = 1.0
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Points, what was seen of the valley there, and the documents' offsets."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, 2))
    offsets = rng.normal(0, 2, DOCUMENTS)
    offsets -= offsets.mean()
    losses = valley(points)[:, None] + offsets + rng.normal(0, 1, (count, DOCUMENTS)) * mood
    for row in losses[1:]:  # the first point is seen on all
        row[rng.permutation(DOCUMENTS)[round(share * DOCUMENTS) :]] = np.nan
    return points, losses, offsets


def test_it_goes_through_quiet_looks_and_between_them() -> None:
    points, losses, _ = looked_at(60)
    surface = Surface(points, losses)
    assert surface.shape.noise == QUIET
    near = np.random.default_rng(1).uniform(-0.5, 1, (50, 2))
    np.testing.assert_allclose(surface.mean(near), valley(near), atol=0.01)


def test_it_sees_the_valley_through_documents_that_are_hard_for_all() -> None:
    points, losses, offsets = looked_at(80, share=0.25)
    surface = Surface(points, losses)
    for _ in range(3):  # each takes the offsets of the one before it
        surface = Surface(points, losses, surface.shape, surface.offsets)
    np.testing.assert_allclose(surface.offsets, offsets, atol=0.2)
    means = np.nanmean(losses, axis=1)
    lowest = valley(points).argsort()[:60]  # below the ceiling
    known = surface.mean(points)
    assert np.corrcoef(known[lowest], valley(points)[lowest])[0, 1] > 0.98
    assert np.corrcoef(means[lowest], valley(points)[lowest])[0, 1] < 0.5  # what luck says


def test_more_moods_are_more_noise_and_are_averaged_away() -> None:
    points, losses, _ = looked_at(150, mood=0.3, share=0.25)
    surface = Surface(points, losses)
    assert surface.shape.noise > QUIET
    near = np.random.default_rng(1).uniform(0, 1, (200, 2))
    error = surface.mean(near) - valley(near)
    # A look at three documents is wrong by 0.3 / √3.
    assert np.sqrt(np.mean((error - error.mean()) ** 2)) < 0.3 / np.sqrt(3) / 3


def test_noise_alone_is_flat() -> None:
    rng = np.random.default_rng(0)
    surface = Surface(rng.normal(size=(100, 3)), rng.normal(size=(100, DOCUMENTS)))
    assert surface.shape.noise == LOUD
    assert np.std(surface.mean(rng.normal(size=(100, 3)))) < 0.15


def test_what_is_drawn_agrees_where_it_is_known_and_differs_elsewhere() -> None:
    points, losses, _ = looked_at(60)
    surface = Surface(points, losses)
    asked = np.concatenate([points[valley(points).argsort()[:5]], np.full((1, 2), 40.0)])
    drawn = surface.drawn(asked, 4000, np.random.default_rng(0))
    assert drawn.shape == (6, 4000)
    deviations = drawn.std(axis=1)
    assert deviations[:-1].max() < 0.1 * deviations[-1]
    np.testing.assert_allclose(drawn.mean(axis=1), surface.mean(asked), atol=deviations[-1] / 20)


def test_failures_are_as_bad_as_the_worst_and_do_not_bend_the_rest() -> None:
    points, losses, _ = looked_at(60)
    lost = int(valley(points).argmax())
    losses[lost] = np.inf
    surface = Surface(points, losses)
    assert np.isfinite(surface.mean(points)).all()
    assert surface.mean(points)[lost] >= np.quantile(surface.mean(points), 0.7)
    np.testing.assert_allclose(surface.mean(np.full((1, 2), 0.5)), 0, atol=0.02)


@pytest.mark.parametrize("count", [1, 4])
def test_where_all_fail_it_is_flat(count: int) -> None:
    points = np.random.default_rng(0).normal(size=(count, 2))
    surface = Surface(points, np.full((count, DOCUMENTS), np.inf))
    np.testing.assert_allclose(surface.mean(points), 0, atol=1e-9)


def test_a_shape_that_is_given_is_taken() -> None:
    rough = Surface(*looked_at(100, mood=1.0)[:2])
    points, losses, _ = looked_at(60)
    assert Surface(points, losses, rough.shape).shape == rough.shape
    assert Surface(points, losses).shape != rough.shape
