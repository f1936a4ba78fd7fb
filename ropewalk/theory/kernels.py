"""Compiled loops of the base bound: evaluate one position, follow it across bases, scan them all.

Everything works in β = ln b with exponents sᵢ = 2i/d, so that θᵢ = exp(−sᵢβ). Two precisions share
the work. `scan` looks at every position in float32 and is only ever asked one question, which
positions *may* lie below a threshold; it errs on the side of "may" by `scan_slack`. Whatever it
returns is decided again by `evaluate`, one position at a time, in float64 with a bound on its own
rounding. A certificate therefore never rests on a bare float32 value, and never on a sampled base:
between two bases it rests on `evaluate`'s bound of the second derivative.

**Rounding.** With u = 2⁻⁵³ the computed exponent sᵢβ is off by 2u·sᵢβ, exp and the product with m
add 3u relative, so the angle φᵢ = mθᵢ is off by at most φᵢ(2sᵢβ + 4)u, and by nothing for the
first pair, whose angle is the integer m. cos moves by no more than its angle and adds 2u itself;
summing P terms of size at most 1 adds P²u. The sum of these is the `error` that a witness must
exceed: some 1e-9 at a million positions, against depths near 1. This takes for granted that exp is
within 2u of its value relatively, and cos and sin within 2u absolutely; `python -m benchmarks.libm`
measures how far they are.

The slope Σ sᵢφᵢ sin φᵢ is off by at most δ = u Σ sᵢφᵢ (φᵢ(2sᵢβ + 4) + 2sᵢβ + P + 8): the sine by
its angle and 2u, the product by (2sᵢβ + 6)u, the sum by Pu. Wherever a slope decides, δ is added on
the unfavourable side.

**Between two bases.** With dφᵢ/dβ = −sᵢφᵢ,

    df/dβ = Σ sᵢφᵢ sin φᵢ,        |d²f/dβ²| ≤ Σ (sᵢφᵢ)² + sᵢ²φᵢ,

and the right side falls as β grows. So a value and a slope at β fix a parabola that f cannot
cross on the way up (where the bound at β holds) or down (after a factor exp(2·way)).

**The scan** writes cos((a ± (j+½))θ) by the addition theorem as a product of an anchor's row and a
table of half-integer offsets: one matrix product for the cosines and one for the sines give both
sides of an anchor. Tables are built in float64 by doubling, anchors by rotation with a fresh start
every `ANCHORS_PER_RESTART`; both are rounded to float32 only at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

UNIT_ROUNDOFF = 2.0**-53
UNIT_ROUNDOFF_32 = 2.0**-24

OFFSETS = 512
"""Offsets on each side of an anchor: two tables of 64 pairs × 512 float32 fit the second cache."""
ANCHORS = 4
"""Anchors in flight, so that a loaded table row is used four times."""
BLOCK = 2 * OFFSETS * ANCHORS
ANCHORS_PER_RESTART = 256

FINEST_STEP = 1e-13
"""Relative steps in β below this drown in the rounding of β itself."""

SAFE_SHARE = 0.99
"""The share of f's range of one sign that a step uses; `safe_step` says why it suffices."""

WITNESSES_TRIED = 8
"""More candidates a probe find longer witnesses, but cost more than the longer way saves."""

COVERED, FEASIBLE, UNDECIDED = 0, 1, 2
"""The answers of `probe_base` about the way from the frontier to the probe."""

Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    return cast(Function, njit(cache=True, nogil=True)(function))


def _contracted(function: Function) -> Function:
    """May fuse products and sums, which changes rounding but not its bound."""
    return cast(Function, njit(cache=True, nogil=True, fastmath={"contract"})(function))


class Workspace(NamedTuple):
    """The memory of one thread: the problem (exponents, unrotated pairs) and scratch space."""

    exponents: NDArray[np.float64]
    unrotated: float
    cosines: NDArray[np.float32]
    sines: NDArray[np.float32]
    row: NDArray[np.float64]
    positions: NDArray[np.int64]


def workspace(rotary_pairs: int, unrotated_pairs: int) -> Workspace:
    """Memory for one thread; the rows of the tables are padded to a multiple of four pairs."""
    padded = -(-rotary_pairs // 4) * 4
    return Workspace(
        exponents=np.arange(rotary_pairs) / rotary_pairs,
        unrotated=float(unrotated_pairs),
        cosines=np.zeros((padded, OFFSETS), np.float32),
        sines=np.zeros((padded, OFFSETS), np.float32),
        row=np.empty((2, OFFSETS)),
        positions=np.empty(2 * BLOCK, np.int64),
    )


@_compiled
def evaluate(
    position: int, beta: float, space: Workspace
) -> tuple[float, float, float, float, float]:
    """f at one position: value, d/dβ, a bound of |d²/dβ²| for every larger β, and the bounds of the
    rounding of value and slope."""
    value = space.unrotated
    slope = 0.0
    curvature = 0.0
    error = 0.0
    slope_error = 0.0
    pairs = space.exponents.shape[0]
    for i in range(pairs):
        exponent = space.exponents[i]
        phase = position * math.exp(-exponent * beta)
        speed = exponent * phase
        value += math.cos(phase)
        slope += math.sin(phase) * speed
        curvature += speed * speed + exponent * speed
        if exponent > 0.0:
            turned = phase * (2.0 * exponent * beta + 4.0)
            error += turned
            slope_error += speed * (turned + 2.0 * exponent * beta + pairs + 8.0)
    terms = pairs + space.unrotated
    error = (error + 2.0 * pairs + (pairs + 1.0) * terms) * UNIT_ROUNDOFF
    return value, slope, curvature * (1.0 + 1e-9), error, slope_error * UNIT_ROUNDOFF


@_compiled
def safe_step(height: float, closing: float, curvature: float) -> float:
    """A step over which a function stays positive that starts at `height` and falls at `closing`.

    The rounding of root and step is a few u, that of β + step at most u(β + step), and no step
    below `FINEST_STEP`·max(β, 1) is taken. So of a true range T the way taken is at most
    0.99 T (1 + 8u)(1 + 1.2e-3) < T.
    """
    if curvature == 0.0:  # a single pair, which turns alike for every base
        return math.inf
    root = math.sqrt(closing * closing + 2.0 * curvature * height)
    step = 2.0 * height / (closing + root) if closing > 0.0 else (root - closing) / curvature
    return SAFE_SHARE * step


@_compiled
def follow(
    sign: float, direction: int, position: int, start: float, stop: float, space: Workspace
) -> float:
    """The β to which sign·f(position, ·) is certainly positive, going from `start` to `stop`."""
    beta = start
    while True:
        value, slope, curvature, error, slope_error = evaluate(position, beta, space)
        height = sign * value - error
        if height <= 0.0 or beta == stop:
            return beta
        way = abs(stop - beta)
        reach = way
        if direction < 0:
            reach = min(way, 0.05)
            curvature *= math.exp(2.0 * reach)
        closing = -sign * direction * slope + slope_error
        step = min(reach, safe_step(height, closing, curvature))
        if step == way:
            beta = stop
        elif step < FINEST_STEP * max(beta, 1.0):
            return beta
        else:
            beta += direction * step


@_compiled
def scan_slack(pairs: int) -> float:
    """Bounds the error of the sums in `scan`, since |cos·cos| + |sin·sin| ≤ 1 a pair.

    Two of the six units pay for the float64 error of the anchors, which is far smaller.
    """
    return (pairs + 6.0) * pairs * UNIT_ROUNDOFF_32


@_compiled
def fill_tables(beta: float, space: Workspace) -> None:
    """cos and sin of (j + ½)θ for every pair and offset, by doubling in float64."""
    row_cos, row_sin = space.row[0], space.row[1]
    for i in range(space.exponents.shape[0]):
        theta = math.exp(-space.exponents[i] * beta)
        row_cos[0] = math.cos(0.5 * theta)
        row_sin[0] = math.sin(0.5 * theta)
        filled = 1
        while filled < OFFSETS:
            turn_cos = math.cos(filled * theta)
            turn_sin = math.sin(filled * theta)
            for j in range(filled):
                row_cos[filled + j] = row_cos[j] * turn_cos - row_sin[j] * turn_sin
                row_sin[filled + j] = row_sin[j] * turn_cos + row_cos[j] * turn_sin
            filled *= 2
        for j in range(OFFSETS):
            space.cosines[i, j] = row_cos[j]
            space.sines[i, j] = row_sin[j]


@_contracted
def multiply(
    rows: NDArray[np.float32], table: NDArray[np.float32], product: NDArray[np.float32]
) -> None:
    """product = rows @ table for ANCHORS rows, four pairs at a time to spare loads and stores."""
    p0, p1, p2, p3 = product[0], product[1], product[2], product[3]
    for j in range(OFFSETS):
        p0[j] = p1[j] = p2[j] = p3[j] = 0.0
    for i in range(0, table.shape[0], 4):
        t0, t1, t2, t3 = table[i], table[i + 1], table[i + 2], table[i + 3]
        a0, a1, a2, a3 = rows[0, i], rows[0, i + 1], rows[0, i + 2], rows[0, i + 3]
        b0, b1, b2, b3 = rows[1, i], rows[1, i + 1], rows[1, i + 2], rows[1, i + 3]
        c0, c1, c2, c3 = rows[2, i], rows[2, i + 1], rows[2, i + 2], rows[2, i + 3]
        d0, d1, d2, d3 = rows[3, i], rows[3, i + 1], rows[3, i + 2], rows[3, i + 3]
        for j in range(OFFSETS):
            w0, w1, w2, w3 = t0[j], t1[j], t2[j], t3[j]
            p0[j] += a0 * w0 + a1 * w1 + a2 * w2 + a3 * w3
            p1[j] += b0 * w0 + b1 * w1 + b2 * w2 + b3 * w3
            p2[j] += c0 * w0 + c1 * w1 + c2 * w2 + c3 * w3
            p3[j] += d0 * w0 + d1 * w1 + d2 * w2 + d3 * w3


@_compiled
def scan(
    beta: float, start: int, stop: int, per_position: float, space: Workspace
) -> tuple[int, int]:
    """Lists in `space.positions` those of [start, stop) where f may be below per_position·m.

    Stops after the first block that has any; returns how many, and where to go on. The tables must
    have been filled for this β.
    """
    pairs = space.exponents.shape[0]
    padded = space.cosines.shape[0]
    even = np.empty((ANCHORS, OFFSETS), np.float32)
    odd = np.empty((ANCHORS, OFFSETS), np.float32)
    row_cos = np.zeros((ANCHORS, padded), np.float32)
    row_sin = np.zeros((ANCHORS, padded), np.float32)
    frequencies = np.exp(-space.exponents * beta)
    turn_cos, turn_sin = np.cos(2 * OFFSETS * frequencies), np.sin(2 * OFFSETS * frequencies)
    now_cos, now_sin = np.empty(pairs), np.empty(pairs)

    slack = scan_slack(pairs)
    count = 0
    anchored = 0
    position = start
    while position < stop and count == 0:
        for a in range(ANCHORS):
            if anchored % ANCHORS_PER_RESTART == 0:
                # An anchor lies midway between two positions, since offsets are half-integers.
                centre = position + (2 * a + 1) * OFFSETS - 0.5
                for i in range(pairs):
                    now_cos[i] = math.cos(centre * frequencies[i])
                    now_sin[i] = math.sin(centre * frequencies[i])
            anchored += 1
            for i in range(pairs):
                row_cos[a, i] = now_cos[i]
                row_sin[a, i] = now_sin[i]
                next_cos = now_cos[i] * turn_cos[i] - now_sin[i] * turn_sin[i]
                now_sin[i] = now_sin[i] * turn_cos[i] + now_cos[i] * turn_sin[i]
                now_cos[i] = next_cos
        multiply(row_cos, space.cosines, even)
        multiply(row_sin, space.sines, odd)
        for a in range(ANCHORS):
            first = position + 2 * a * OFFSETS
            last = first + 2 * OFFSETS - 1
            limit = per_position * last + slack - space.unrotated
            threshold = np.float32(
                limit + 2.0 * UNIT_ROUNDOFF_32 * abs(limit)
            )  # never rounded down
            low = 0
            for j in range(OFFSETS):
                low += int(even[a, j] - abs(odd[a, j]) < threshold)
            if low == 0:
                continue
            for place in range(2 * OFFSETS):
                if place < OFFSETS:
                    j = OFFSETS - 1 - place
                    value = even[a, j] + odd[a, j]
                else:
                    j = place - OFFSETS
                    value = even[a, j] - odd[a, j]
                if value < threshold and first + place < stop:
                    space.positions[count] = first + place
                    count += 1
        position += BLOCK
    return count, position


@_compiled
def probe_base(
    probe: float, frontier: float, length: int, hint: int, space: Workspace
) -> tuple[int, float, int]:
    """Tries to show that every base from `frontier` to `probe` and beyond fails below `length`.

    Returns (COVERED, β, witness): the witness is negative from the frontier to β > probe;
    (FEASIBLE, probe, -1): no position below `length` is negative at the probe;
    (UNDECIDED, probe, -1): there are witnesses at the probe, but none reaches back to the frontier,
    or some value is within its rounding error of zero.
    Positions are searched upwards from half of `hint`, the last witness, then from the start:
    small positions move slowly with β, so their intervals are the longest.
    """
    fill_tables(probe, space)
    best, witness = frontier, -1
    feasible = True
    begin = hint // 2 // BLOCK * BLOCK
    for part in range(2):
        position, end = (begin, length) if part == 0 else (0, begin)
        while position < end:
            count, position = scan(probe, position, end, 0.0, space)
            tried = 0
            for k in range(count):
                candidate = space.positions[k]
                value, slope, curvature, error, _ = evaluate(candidate, probe, space)
                feasible = feasible and value >= error
                depth = -value - error
                if depth <= 0.0:
                    continue
                tried += 1
                # The true reach is seldom above twice the first safe step.
                if probe + 2.0 * safe_step(depth, slope, curvature) > best:
                    reach = follow(-1.0, 1, candidate, probe, math.inf, space)
                    if (
                        reach > best
                        and follow(-1.0, -1, candidate, probe, frontier, space) == frontier
                    ):
                        best, witness = reach, candidate
                if tried >= WITNESSES_TRIED and witness >= 0:
                    break
            if witness >= 0:
                return COVERED, best, witness
    return (FEASIBLE if feasible else UNDECIDED), probe, -1


@_compiled
def first_failure(
    near: float, far: float, start: int, stop: int, space: Workspace
) -> tuple[float, int, int]:
    """Goes from base `near` to base `far` (up or down) as long as all of [start, stop) is ≥ 0.

    Returns (β, position, doubtful): no base from `near` to β fails; `position` is the one whose f
    reaches zero at β, or -1 if β is `far`; `doubtful` counts positions that the float32 scan at the
    middle could not settle for the whole cell.
    """
    direction = 1 if far > near else -1
    low, high = min(near, far), max(near, far)
    middle = 0.5 * (low + high)
    reach = (high - low) * (0.5 + 1e-9)
    fall = 0.0  # |df/dβ| ≤ m·fall: every sine at its worst, every frequency at its highest
    for exponent in space.exponents:
        fall += exponent * math.exp(-exponent * low)
    fall *= reach * (1.0 + 1e-9)

    fill_tables(middle, space)
    edge, culprit, doubtful = far, -1, 0
    position = start
    while position < stop:
        count, position = scan(middle, position, stop, fall, space)
        doubtful += count
        for k in range(count):
            candidate = space.positions[k]
            value, slope, curvature, error, slope_error = evaluate(candidate, middle, space)
            curvature *= math.exp(2.0 * reach)
            if value - error > reach * (abs(slope) + slope_error + 0.5 * curvature * reach):
                continue
            zero = follow(1.0, direction, candidate, near, edge, space)
            if (edge - zero) * direction > 0.0:
                edge, culprit = zero, candidate
    return edge, culprit, doubtful


@_compiled
def lowest_position(beta: float, start: int, stop: int, space: Workspace) -> int:
    """The first position of [start, stop) that is certainly negative at β, or -1."""
    fill_tables(beta, space)
    position = start
    while position < stop:
        count, position = scan(beta, position, stop, 0.0, space)
        for k in range(count):
            value, _, _, error, _ = evaluate(space.positions[k], beta, space)
            if value < -error:
                return int(space.positions[k])
    return -1
