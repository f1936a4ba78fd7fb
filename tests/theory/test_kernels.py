from __future__ import annotations

import math

import mpmath  # type: ignore[import-untyped]
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.theory import kernels

heads = st.tuples(st.integers(1, 64), st.integers(0, 64))
betas = st.floats(0, 30)


def exact_sum(position: int, beta: float, pairs: int, unrotated: int) -> mpmath.mpf:
    with mpmath.workdps(50):
        angles = [position * mpmath.exp(-mpmath.mpf(i) / pairs * beta) for i in range(pairs)]
        return mpmath.fsum(mpmath.cos(angle) for angle in angles) + unrotated


@given(head=heads, beta=betas, position=st.integers(0, 2**24))
def test_the_rounding_bound_holds(head: tuple[int, int], beta: float, position: int) -> None:
    value, _, _, error, _ = kernels.evaluate(position, beta, kernels.workspace(*head))
    assert abs(value - exact_sum(position, beta, *head)) <= error


@given(head=heads, beta=betas, position=st.integers(0, 2**24))
def test_the_rounding_bound_of_the_slope_holds(
    head: tuple[int, int], beta: float, position: int
) -> None:
    pairs = head[0]
    _, slope, _, _, error = kernels.evaluate(position, beta, kernels.workspace(*head))
    with mpmath.workdps(50):
        exact = mpmath.mpf(0)
        for exponent in (mpmath.mpf(i) / pairs for i in range(pairs)):
            angle = position * mpmath.exp(-exponent * beta)
            exact += exponent * angle * mpmath.sin(angle)
        assert abs(slope - exact) <= error


@given(
    height=st.floats(1e-12, 100),
    closing=st.floats(-1e7, 1e7),
    curvature=st.floats(1e-6, 1e14),
    beta=st.floats(0, 300),
)
def test_a_step_that_is_taken_stays_within_the_true_range(
    height: float, closing: float, curvature: float, beta: float
) -> None:
    """0.99 covers the rounding of root, step and β + step, for every step that is not too fine."""
    step = kernels.safe_step(height, closing, curvature)
    if step < kernels.FINEST_STEP * max(beta, 1.0):
        return
    with mpmath.workdps(50):
        taken = mpmath.mpf(beta + step) - beta
        left = height - closing * taken - mpmath.mpf(curvature) * taken * taken / 2
        assert left > 0


@given(head=heads, beta=betas, position=st.integers(0, 10_000))
def test_slope_and_curvature(head: tuple[int, int], beta: float, position: int) -> None:
    space = kernels.workspace(*head)
    value, slope, curvature, _, _ = kernels.evaluate(position, beta, space)
    exponents = np.arange(head[0]) / head[0]
    phases = position * np.exp(-exponents * beta)
    speeds = exponents * phases
    expected = np.sum(speeds * np.sin(phases))
    assert math.isclose(slope, expected, rel_tol=1e-9, abs_tol=1e-6)
    second = -np.sum(speeds**2 * np.cos(phases)) - np.sum(exponents * speeds * np.sin(phases))
    assert abs(second) <= curvature * (1 + 1e-6) + 1e-9
    step = 1e-2 / (1 + math.sqrt(curvature))
    there = kernels.evaluate(position, beta + step, space)[0]
    assert abs(there - value - slope * step) <= 0.5 * curvature * step * step + 1e-9


@given(
    head=heads,
    beta=betas,
    start=st.integers(0, 10**6),
    count=st.integers(1, 9000),
    slope=st.floats(0, 1e-5),
)
def test_a_scan_misses_nothing(
    head: tuple[int, int], beta: float, start: int, count: int, slope: float
) -> None:
    space = kernels.workspace(*head)
    kernels.fill_tables(beta, space)
    stop = start + count
    found: list[int] = []
    position = start
    while position < stop:
        some, position = kernels.scan(beta, position, stop, slope, space)
        found += space.positions[:some].tolist()
    positions = np.arange(start, stop)
    frequencies = np.exp(-np.arange(head[0]) / head[0] * beta)
    sums = np.cos(np.multiply.outer(positions, frequencies)).sum(axis=1) + head[1]
    below = sums - slope * positions
    assert found == sorted(set(found))
    assert set(positions[below < 0]) <= set(found)
    loose = 2e-3 + slope * 2 * kernels.OFFSETS  # the threshold is that of a whole anchor
    assert set(found) <= set(positions[below < loose])


@given(
    head=heads,
    beta=st.floats(1, 25),
    position=st.integers(1, 20_000),
    up=st.booleans(),
    way=st.floats(1e-4, 0.5),
)
def test_following_stops_before_the_sign_changes(
    head: tuple[int, int], beta: float, position: int, up: bool, way: float
) -> None:
    space = kernels.workspace(*head)
    direction = 1 if up else -1
    sign = 1.0 if kernels.evaluate(position, beta, space)[0] > 0 else -1.0
    end = kernels.follow(sign, direction, position, beta, beta + direction * way, space)
    assert abs(end - beta) <= way + 1e-12
    for point in np.linspace(beta, end, 50):
        assert sign * kernels.evaluate(position, float(point), space)[0] > -1e-9


@given(head=heads, beta=st.floats(4, 25), length=st.integers(2, 3000), cell=st.floats(1e-5, 0.05))
def test_no_base_fails_before_the_first_failure(
    head: tuple[int, int], beta: float, length: int, cell: float
) -> None:
    space = kernels.workspace(*head)
    positions = np.arange(1, length)
    exponents = np.arange(head[0]) / head[0]

    def least(point: float) -> float:
        angles = np.multiply.outer(positions, np.exp(-exponents * point))
        return float(np.cos(angles).sum(axis=1).min()) + head[1]

    if least(beta) < 1e-6:  # it must start where all is well
        return
    for far in (beta + cell, beta - cell):
        edge, position, _ = kernels.first_failure(beta, far, 1, length, space)
        for point in np.linspace(beta, edge, 20):
            assert least(float(point)) > -1e-9
        if position < 0:
            assert edge == far
        else:
            assert abs(kernels.evaluate(position, edge, space)[0]) < 1e-6
