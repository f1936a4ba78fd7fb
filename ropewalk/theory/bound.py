"""The base that a length needs: certified infimum, safe base, and the islands between them.

With d/2 pairs, θᵢ = b^(−2i/d), a query prefers similar keys to random ones at distance m exactly
when f_b(m) = Σ cos(mθᵢ) ≥ 0 (Men et al. 2024, Theorem 1). A base *works* for length L when that
holds at m = 0 … L−1. It *fails* at a *witness*: a position m with f_b(m) < 0. Pairs that do not
rotate add 1 each. The domain is b ≥ 1. (Smaller bases may work too: b = (2π)⁻² makes the second of
two pairs turn by 2πm, so f = 1 + cos m.) The set of working bases is no half-line: it is a scatter
of islands, then everything. So two numbers matter,

    infimum      the lowest end of the working bases: no base from 1 to it works
    safe base    the smallest base above which every base works

and both are found with a proof, in β = ln b, from one tool: a value of f and its slope at one β,
with a bound of the second derivative, settle the sign of f for a stretch of β (kernels.py).
`ASSUMPTIONS` lists what the proof takes for granted. The code computes in β throughout, and turns
it into a base b only in results, rounded to the safe side by `_base_below` or `_base_above`.

**Infimum: a walk upwards on witnesses.** It starts at b = 1; all bases from there to the frontier
are known to fail. A probe, a β a little above, is scanned for positions with f < 0. If one of them
is negative all the way from the frontier to the probe and on to some β, it is a witness for all of
these bases, and that β is the new frontier. The next probe is placed half as far ahead as the last
witness reached. If there is no negative position, the base at the probe works, and the probe is
moved down until it lies within `WIDTH` of the frontier: the infimum is between them, as every base
from 1 to the frontier has a witness and the probe has none. A witness for a length is one for every
longer length, so the walk never turns back: reaching the infimum of one length, it goes on from
there for the next.

**Safe base: a sweep downwards.** Above some β every cosine can be bounded below by a monotone
function, so all bases work (`_all_work_above`). From there, cells of β are certified for all
positions at once, as wide as the float32 scan can settle for all but a few positions; those few are
followed one by one. The first cell that fails gives the position whose last zero is the largest.
Positions are swept in blocks of rising length, each only down to the largest zero so far: one pass
serves all lengths.

What neither can decide in double precision (a value within rounding of zero) is never counted as
proof: an infimum then comes with a wider interval, and a safe base errs upwards.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.lengths import format_length
from ropewalk.schedule import MAX_DIM, FloatArray
from ropewalk.untrusted import check_between

if TYPE_CHECKING:
    from ropewalk.theory.kernels import Workspace

WIDTH = 2e-10
"""Relative width of a certified infimum, a fifth of what is promised."""
MAX_BOUND_LENGTH = 16 * 1024**2
MAX_CERTIFIED_SAFE_LENGTH = 512 * 1024
"""The sweep costs the square of the length: seconds at 128k, about a minute here."""
ASSUMPTIONS = (
    "double precision rounds to nearest, as IEEE 754 says",
    "exp is within 2^-52 of its value relatively, cos and sin within 2^-52 absolutely "
    "(measured by python -m benchmarks.libm)",
)
"""The assumptions of the proofs."""
SAMPLING_STEP = 2e-4
"""Relative distance of the bases that are tried if a safe base is only estimated."""

_MAX_BETA = 300.0
"""e^300 = 1e130: no base that anybody asks about, and exp(β) and its square are still numbers."""
_EXP_SLACK = 1e-14
"""More than exp(β) may be off, which `ASSUMPTIONS` puts at 2^-52."""
_FIRST_GAP = 1e-3
"""The first distance from the frontier to a probe; the walk then adapts it."""
_FIRST_CELL, _WIDEST_CELL = 1e-2, 0.1
"""Widths of cells of the sweep, in β; they adapt from the first on (`_next_cell`)."""
_DOUBTFUL_SHARE = 3e-4
"""The share of positions that the float32 scan of a cell may leave open: to follow one costs as
much as to scan a few thousand."""

Progress = Callable[[float], None]


def silent(done: float) -> None:
    """Report to nobody."""


@dataclass(frozen=True)
class Infimum:
    """No base from 1 to `low` works, the base `high` does: proven, so no `Interval` of
    estimates."""

    length: int
    low: float
    high: float
    witness: int | None
    """A position that is negative for the bases just below `low`; None if `low` is 1."""

    @property
    def value(self) -> float:
        """The lower end: where the last witness turns positive, followed down to rounding."""
        return self.low


@dataclass(frozen=True)
class SafeBase:
    """Every base above `value` works: proven if certified, else on a grid of tried bases."""

    length: int
    value: float
    certified: bool
    witness: int | None
    """A position that turns negative just below `value`; None if every base from 1 on works."""
    resolution: float | None = None
    """Relative distance of the tried bases, if it is an estimate."""


@dataclass(frozen=True)
class Islands:
    """The bases that work between the infimum and the safe base."""

    length: int
    edges: tuple[tuple[float, float], ...]
    """(lowest, highest) of each island, ascending; all bases above `safe` work too."""
    safe: float


def infima(
    head_dim: int,
    lengths: Sequence[int],
    *,
    rotary_dim: int | None = None,
    progress: Progress = silent,
) -> list[Infimum]:
    """The certified infimum for each length, in the order given; one walk serves them all."""
    from ropewalk.theory import kernels

    rotary_dim = rotary_dim_of(head_dim, lengths, rotary_dim)
    space = kernels.workspace(rotary_dim // 2, (head_dim - rotary_dim) // 2)
    results: dict[int, Infimum] = {}
    frontier, witness = 0.0, -1
    report = _scaled(progress, 1 / math.log(100 * max(lengths)))
    # Ascending: what fails for a length fails for all longer ones, so the walk never starts over.
    for length in sorted(set(lengths)):
        frontier, upper, witness = _walk(frontier, length, witness, space, report)
        results[length] = Infimum(
            length,
            max(1.0, _base_below(frontier)),
            _base_above(upper),
            witness if frontier > 0 else None,
        )
    progress(1.0)
    return [results[length] for length in lengths]


def _base_below(beta: float) -> float:
    """A base that is at most exp(β)."""
    return math.exp(beta) * (1 - _EXP_SLACK)


def _base_above(beta: float) -> float:
    """A base that is at least exp(β)."""
    return math.exp(beta) * (1 + _EXP_SLACK)


def _walk(
    frontier: float, length: int, witness: int, space: Workspace, report: Progress
) -> tuple[float, float, int]:
    """Walk up from a frontier to the first β that works: (frontier, probe, last witness)."""
    from ropewalk.theory import kernels

    gap = _FIRST_GAP
    start = frontier  # the next witness must be negative from here to the probe
    stuck = False  # True once a stretch was too narrow for double precision
    while True:
        probe = start + gap
        if probe > _MAX_BETA:
            raise Unsupported(
                f"no base for length {length} can be confirmed in double precision: the sum of "
                f"{space.exponents.size} cosines comes too close to zero"
            )
        verdict, reach, position = kernels.probe_base(probe, start, length, max(witness, 0), space)
        if verdict == kernels.FEASIBLE:  # the probe works: close the interval from above
            if gap <= WIDTH or stuck:
                return frontier, probe, witness
            gap = WIDTH
        elif verdict == kernels.COVERED:  # a witness for everything up to `reach`
            gap = 0.5 * (reach - start)
            start = reach
            if not stuck:
                frontier, witness = reach, position
            report(frontier)
        elif stuck or gap < 4 * kernels.FINEST_STEP * max(start, 1.0):
            # Rounding hides the signs of this stretch. The frontier stays below it, and the next
            # base that works ends the interval: wider than it should be, but true.
            stuck = True
            start, gap = probe, 2 * gap
        else:  # the probe fails, but at no one position all the way from `start`: look closer
            gap *= 0.25


def safe_bases(
    head_dim: int,
    lengths: Sequence[int],
    *,
    rotary_dim: int | None = None,
    certify_to: int = MAX_CERTIFIED_SAFE_LENGTH,
    progress: Progress = silent,
) -> list[SafeBase]:
    """The safe base for each length, in the order given; certified for lengths to `certify_to`."""
    rotary_dim = rotary_dim_of(head_dim, lengths, rotary_dim)
    pairs = rotary_dim // 2, (head_dim - rotary_dim) // 2
    results: dict[int, SafeBase] = {}
    safe, witness, first = 0.0, -1, 1
    for length in sorted(set(lengths)):
        for block in _blocks(first, length):
            # A sweep costs the square of the length, and so does the part of it that is done.
            done = block[0] ** 2 / max(lengths) ** 2
            share = (block[1] ** 2 - block[0] ** 2) / max(lengths) ** 2
            report = _scaled(progress, share, done)
            beta, position = _sweep_block(block, safe, pairs, block[1] <= certify_to, report)
            if position >= 0:
                safe, witness = beta, position
        # The next length sweeps only the positions that are new to it.
        first = length
        certified = length <= certify_to
        results[length] = SafeBase(
            length,
            _base_above(safe),
            certified,
            witness if witness >= 0 else None,
            None if certified else SAMPLING_STEP,
        )
    progress(1.0)
    return [results[length] for length in lengths]


def _scaled(progress: Progress, scale: float, offset: float = 0.0) -> Progress:
    """A part of a longer progress, which never reaches the end: its caller announces that."""
    return lambda done: progress(min(0.99, offset + scale * done))


def _blocks(first: int, end: int) -> Iterator[tuple[int, int]]:
    """[first, end) in pieces that at most double, since small positions allow wider cells."""
    while first < end:
        last = min(end, max(2 * first, 1024))
        yield first, last
        first = last


def _sweep_block(
    block: tuple[int, int],
    safe: float,
    pairs: tuple[int, int],
    certified: bool,
    progress: Progress,
) -> tuple[float, int]:
    """The largest β at which a position of the block turns negative, and the position.

    (safe, -1) if none does above `safe`, the largest β so far.
    """
    first, last = block
    # The threads share the β down to which they need to go. A late update costs time, not truth.
    floor = np.array([safe])
    top = _all_work_above(last - 1, *pairs)
    # Each thread sweeps a part of the positions; below 4,096 a thread costs more than it saves.
    workers = max(1, min(os.cpu_count() or 1, (last - first) // 4096))
    cuts = [first + (last - first) * i // workers for i in range(workers + 1)]
    stop: list[bool] = []
    with ThreadPoolExecutor(workers) as pool:
        running: list[Future[tuple[float, int]]] = []
        for i in range(workers):
            report = progress if i == 0 else silent
            running.append(
                pool.submit(_sweep, top, floor, cuts[i : i + 2], pairs, certified, stop, report)
            )
        try:
            wait(running)
        finally:
            stop.append(True)  # so that an interrupt ends all threads
    failing = [future.result() for future in running]
    return max((each for each in failing if each[1] >= 0), default=(safe, -1))


def _sweep(
    top: float,
    floor: FloatArray,
    positions: Sequence[int],
    pairs: tuple[int, int],
    certified: bool,
    stop: Sequence[bool],
    progress: Progress,
) -> tuple[float, int]:
    """Go down from the β `top` to the floor, or to a failing position, which is returned.

    Certified, cell by cell; else by bases `SAMPLING_STEP` apart, which finds one that surely fails.
    """
    from ropewalk.theory import kernels

    space = kernels.workspace(*pairs)
    first, last = positions
    beta, cell = top, _FIRST_CELL
    while beta > floor[0] and not stop:
        if certified:
            low = max(beta - cell, float(floor[0]))
            beta, position, doubtful = kernels.first_failure(beta, low, first, last, space)
            cell = _next_cell(cell, doubtful, last - first)
        elif (position := kernels.lowest_position(beta, first, last, space)) >= 0:
            beta = kernels.follow(-1.0, 1, position, beta, math.inf, space)
        else:
            beta -= SAMPLING_STEP
        if position >= 0:
            floor[0] = max(floor[0], beta)
            return beta, position
        progress((top - beta) / (top - float(floor[0]) + 1e-9))
    return beta, -1


def _next_cell(cell: float, doubtful: int, positions: int) -> float:
    """The width of the next cell: wider while the float32 scan settles nearly all positions."""
    return (
        min(_WIDEST_CELL, 1.25 * cell)
        if doubtful < max(8, _DOUBTFUL_SHARE * positions)
        else 0.8 * cell
    )


def _all_work_above(position: int, rotary_pairs: int, unrotated_pairs: int) -> float:
    """A β above which every base works for all positions up to this one.

    cos φ ≥ cos φ₀ as long as φ ≤ φ₀ ≤ π, and ≥ −1 anyway; the sum of these bounds grows with β and
    falls with the position, so one bisection at the last position serves all.

    A head of two pairs has no such β, since the bounds add up to −1 + 1. It gets `_MAX_BETA`, and
    all bases beyond work too: f ≥ 1 + cos m − (mθ)²/2 with mθ < 2²⁴·exp(−150), and no whole number
    below 2²⁴ is nearer than 1e-8 to a multiple of π, so 1 + cos m > 1e-17.

    If at least as many pairs are unrotated as rotate, every base works: each cosine is at least −1,
    and the first one, of a whole number of radians, above it.
    """
    if unrotated_pairs >= rotary_pairs:
        return 0.0
    exponents = np.arange(rotary_pairs) / rotary_pairs
    low, high = 0.0, _MAX_BETA
    while high - low > 1e-3:  # any β above is right, and a closer one would save nothing
        middle = 0.5 * (low + high)
        phases = position * np.exp(-exponents * middle)
        # Above zero by more than the rounding of a sum of 4,096 cosines.
        if np.cos(np.minimum(phases, np.pi)).sum() + unrotated_pairs > 1e-6:
            high = middle
        else:
            low = middle
    return high


def islands(
    head_dim: int,
    length: int,
    *,
    rotary_dim: int | None = None,
    safe: SafeBase | None = None,
    progress: Progress = silent,
) -> Islands:
    """Every island of working bases between the infimum and the safe base, edges certified.

    An edge works, and the next failing base is at most the width of a certified infimum away. The
    certified safe base is computed unless it is given.
    """
    from ropewalk.theory import kernels

    rotary_dim = rotary_dim_of(head_dim, [length], rotary_dim)
    check_islands_length([length])
    space = kernels.workspace(rotary_dim // 2, (head_dim - rotary_dim) // 2)
    if safe is None:
        safe = safe_bases(head_dim, [length], rotary_dim=rotary_dim, certify_to=length)[0]
    end = math.log(safe.value)
    report = _scaled(progress, 1 / end) if end > 0 else silent
    edges: list[tuple[float, float]] = []
    frontier, witness = 0.0, -1
    while True:
        # Over failing bases to the lower edge of an island, if one is left below the safe base.
        _, low, witness = _walk(frontier, length, witness, space, report)
        if low >= end - 2 * WIDTH:
            break
        # Over the island, cell by cell, to the first base that fails.
        high, cell = low, 1e-4
        while high < end:
            high, position, doubtful = kernels.first_failure(high, high + cell, 1, length, space)
            if position >= 0:
                break
            cell = _next_cell(cell, doubtful, length)
        if high >= end:
            break
        edges.append((_base_above(low), _base_below(high)))  # the inner ends: all between work
        frontier = high + WIDTH
    progress(1.0)
    return Islands(length, tuple(edges), safe.value)


def check_islands_length(lengths: Sequence[int]) -> None:
    """Refuse a length whose list of islands would take hours."""
    for length in lengths:
        if length > MAX_CERTIFIED_SAFE_LENGTH:
            raise InvalidValue(
                "length",
                length,
                f"must be at most {format_length(MAX_CERTIFIED_SAFE_LENGTH)} for a list of islands",
                "a longer list takes hours; ask only for the infimum and the safe base",
            )


def rotary_dim_of(head_dim: int, lengths: Sequence[int], rotary_dim: int | None = None) -> int:
    """The number of dimensions that rotate (default: all); refuses heads and lengths out of
    range."""
    if head_dim > MAX_DIM:
        raise InvalidValue(
            "head_dim", head_dim, f"must be at most {MAX_DIM}", "the usual size is 128"
        )
    if head_dim < 4 or head_dim % 2:
        raise InvalidValue(
            "head_dim",
            head_dim,
            "must be even and at least 4: a single pair turns negative whatever the base",
            "the usual size is 128",
        )
    if rotary_dim is None:
        rotary_dim = head_dim
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > head_dim:
        raise InvalidValue(
            "rotary_dim", rotary_dim, "must be even and at most head_dim", "omit it to rotate all"
        )
    for length in lengths:
        remedy = "a bound needs two positions, and beyond 16M a scan of one base takes too long"
        most = format_length(MAX_BOUND_LENGTH)
        check_between(length, 2, MAX_BOUND_LENGTH, "length", remedy, most)
    return rotary_dim
