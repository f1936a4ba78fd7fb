"""Which lengths to read, and how long a model is by what was read: pure functions.

    while (wanted := following(lengths, seen, reference, room)) is not None:
        read documents of wanted.length until there are wanted.documents

A length *works* by the rule of `extend`'s verdict: at most ten points less than at the short length
(evaluation/verdict.py). First each doubling is looked at, from the shortest on, until two in a row
do not work: that is the curve, and it shows a dip that bisecting alone would step over. Then the
lengths between the last that looks right and the first that does not are bisected, and those on
both sides are read until they are decided. The usable length lies between the longest that works
and the shortest that does not; longer ones do not count where a shorter one fails. No torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ropewalk.evaluation.verdict import LOOKS, MARGIN, TO_WORK, Look, Shares, look

LONGEST_REFERENCE = 8192
PART = 16
"""The short length is this part of the claimed one, unless that is longer or leaves no room."""
ROOM, ROOM_OF_SMALL = 2048, 512
"""The tokens that eight facts and their questions need, with as much text around them."""
MOST = LOOKS[-1]
"""The most documents of a length."""
SHARE = 4
"""A run reads at most this part of what the most documents of every length would take."""


class Wanted(NamedTuple):
    """The next documents to read."""

    length: int
    documents: int
    """The number of documents of this length that there should be then."""


class Bracket(NamedTuple):
    """The usable length."""

    works: int
    """The longest that works; the short length if no other does."""
    value: int
    """The longest that looks as if it works, once the curve is made to fall."""
    fails: int | None
    """The shortest that does not work."""


def reference_of(claimed: int, *, small: bool, window: int | None = None) -> int:
    """The short length that others are compared with; `window` is the trained one, if known."""
    least = ROOM_OF_SMALL if small else ROOM
    trained = LONGEST_REFERENCE if window is None else window
    return min(max(claimed // PART, least), LONGEST_REFERENCE, max(trained, least), claimed // 2)


def steps(reference: int, longest: int) -> tuple[int, ...]:
    """The lengths above the short one: two for each doubling, down from the longest."""
    lengths, length = [], longest
    while length > reference:
        lengths += [each for each in (length, 3 * length // 4) if each > reference]
        length //= 2
    return tuple(sorted(lengths))


def sweep_tokens(reference: int, lengths: Sequence[int]) -> int:
    """The tokens of the most documents of every length."""
    return MOST * (reference + sum(lengths))


def curve_tokens(lengths: Sequence[int]) -> int:
    """The tokens of the first look at each doubling, and of a decision on the longest length."""
    first = sum(length for length in lengths if _doubles(length, lengths[-1]))
    return LOOKS[0] * first + (TO_WORK - LOOKS[0]) * lengths[-1]


def following(
    lengths: Sequence[int],
    seen: Mapping[int, Shares],
    reference: Shares,
    room: float = math.inf,
) -> Wanted | None:
    """The next reading, of at most `room` tokens; None once nothing more would be learnt."""
    looks = {length: look(shares, reference) for length, shares in seen.items()}
    read = {n: looks[n].documents if n in looks else 0 for n in lengths}
    ends = {n: next(end for end in LOOKS if end > read[n]) for n in lengths if read[n] < MOST}

    def fits(length: int) -> bool:
        return length in ends and (ends[length] - read[length]) * length <= room

    # First the doublings, until two in a row fail: they show roughly where the curve falls.
    failed = 0
    for length in lengths:
        if failed < 2 and _doubles(length, lengths[-1]):
            if length not in looks:
                return Wanted(length, LOOKS[0]) if fits(length) else None
            failed = failed + 1 if looks[length].verdict == "does not work" else 0
    # Then the gap above the usable length so far is halved, as long as a length in it is unread.
    low, value, high = bounds(0, looks)
    beyond = min((n for n in looks if n > value), default=math.inf)
    gap = [n for n in lengths if value < n < beyond and n not in looks and fits(n)]
    if gap:
        return Wanted(gap[(len(gap) - 1) // 2], LOOKS[0])
    # Last, more documents between the bounds, which may bring them together.
    left = [n for n in lengths if low < n < (high or math.inf) and fits(n)]
    if not left:
        return None

    def order(length: int) -> tuple[bool, bool, int]:
        """The nearest to where the curve falls, if the room may decide it; else the shortest."""
        more = looks[length].more if length in looks else TO_WORK
        decided = more is not None and read[length] + more <= MOST and more * length <= room
        return not decided, decided and length > value, abs(length - value) if decided else length

    length = min(left, key=order)
    return Wanted(length, ends[length])


def bounds(reference: int, looks: Mapping[int, Look]) -> Bracket:
    """The usable length by all lengths that were read."""
    lengths = sorted(looks)
    fails = min((n for n in lengths if looks[n].verdict == "does not work"), default=None)
    before = [n for n in lengths if fails is None or n < fails]
    low = max((n for n in before if looks[n].verdict == "works"), default=reference)
    falling = _falling([(looks[n].difference.value, looks[n].documents) for n in lengths])
    fine = [n for n, each in zip(before, falling, strict=False) if each >= -MARGIN]
    return Bracket(low, max([low, *fine]), fails)


def _doubles(length: int, longest: int) -> bool:
    """True if the longest is this length doubled some times, or that cut to whole tokens."""
    return any(longest >> halvings == length for halvings in range(longest.bit_length()))


def _falling(values: Sequence[tuple[float, int]]) -> list[float]:
    """The nearest sequence of weighted values that never rises (pool adjacent violators)."""
    pools: list[tuple[float, int, int]] = []
    for value, weight in values:
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-1][0] > pools[-2][0]:
            (a, m, i), (b, n, j) = pools.pop(-2), pools.pop()
            pools.append(((a * m + b * n) / (m + n), m + n, i + j))
    return [value for value, _, count in pools for _ in range(count)]
