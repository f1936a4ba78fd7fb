"""Packing: every token where it should be, and best fit compared with its plain definition."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.data.packing import Filling, Overflow, Packing, Piece, pack
from ropewalk.errors import InvalidValue

LENGTHS = st.lists(st.integers(0, 200), max_size=40)
CAPACITIES = st.integers(1, 150)
FILLINGS = st.sampled_from(get_args(Filling))
OVERFLOWS = st.sampled_from(get_args(Overflow))


def by_document(packing: Packing) -> dict[int, list[Piece]]:
    found: dict[int, list[Piece]] = {}
    for pieces in packing:
        for piece in pieces:
            found.setdefault(piece.document, []).append(piece)
    return found


@given(LENGTHS, CAPACITIES, FILLINGS)
def test_cutting_keeps_every_token_once(
    lengths: list[int], capacity: int, filling: Filling
) -> None:
    packing = pack(lengths, capacity, filling=filling)
    pieces = by_document(packing)
    assert sorted(pieces) == [i for i, length in enumerate(lengths) if length]
    for document, own in pieces.items():
        ends = [0, *(piece.end for piece in sorted(own, key=lambda piece: piece.start))]
        assert [piece.start for piece in sorted(own, key=lambda piece: piece.start)] == ends[:-1]
        assert ends[-1] == lengths[document]
    assert packing.dropped == 0.0


@given(LENGTHS, CAPACITIES, FILLINGS, OVERFLOWS)
def test_no_window_is_empty_or_overfull(
    lengths: list[int], capacity: int, filling: Filling, overflow: Overflow
) -> None:
    packing = pack(lengths, capacity, filling=filling, overflow=overflow)
    held = [sum(piece.end - piece.start for piece in pieces) for pieces in packing]
    assert all(0 < tokens <= capacity for tokens in held)
    assert all(piece.start < piece.end for pieces in packing for piece in pieces)
    assert packing.tokens == sum(held)
    if held:
        assert packing.filled == pytest.approx(sum(held) / (len(held) * capacity))


@given(LENGTHS, CAPACITIES, FILLINGS)
def test_dropping_keeps_the_beginning_of_every_document_in_one_piece(
    lengths: list[int], capacity: int, filling: Filling
) -> None:
    packing = pack(lengths, capacity, filling=filling, overflow="drop")
    pieces = by_document(packing)
    assert all(own[0].start == 0 and len(own) == 1 for own in pieces.values())
    if filling == "best_fit":  # nothing is dropped but what no window has room for
        assert {i: own[0].end for i, own in pieces.items()} == {
            i: min(length, capacity) for i, length in enumerate(lengths) if length
        }


@given(LENGTHS, CAPACITIES)
def test_a_greedy_window_is_full_before_the_next_begins(lengths: list[int], capacity: int) -> None:
    packing = pack(lengths, capacity, filling="greedy")
    assert len(packing) == -(-sum(lengths) // capacity)
    read = [piece for pieces in packing for piece in pieces]
    assert read == sorted(read)


def plainly(lengths: list[int], capacity: int) -> list[int]:
    """The room that best-fit decreasing leaves in each window, one document after the other."""
    rooms = [0 for length in lengths for _ in range(length // capacity)]
    for rest in sorted((length % capacity for length in lengths), reverse=True):
        if not rest:
            break
        fits = [room for room in rooms if room >= rest]
        room = min(fits) if fits else capacity
        if fits:
            rooms.remove(room)
        rooms.append(room - rest)
    return sorted(rooms)


@given(LENGTHS, CAPACITIES)
def test_best_fit_leaves_the_room_that_its_definition_leaves(
    lengths: list[int], capacity: int
) -> None:
    packing = pack(lengths, capacity)
    rooms = [capacity - sum(p.end - p.start for p in pieces) for pieces in packing]
    assert sorted(rooms) == plainly(lengths, capacity)


def test_best_fit_at_the_size_of_real_windows() -> None:
    random = np.random.default_rng(0)
    lengths = np.minimum(random.lognormal(6, 1.5, 3000).astype(int) + 1, 40_000).tolist()
    packing = pack(lengths, 8191)
    rooms = [8191 - sum(p.end - p.start for p in pieces) for pieces in packing]
    assert sorted(rooms) == plainly(lengths, 8191)
    assert packing.filled > 0.99
    greedy = pack(lengths, 8191, filling="greedy")
    assert greedy.filled > packing.filled * 0.99
    assert greedy.whole < packing.whole


def test_a_window_is_read_like_an_item_of_a_list() -> None:
    packing = pack([3, 9, 2], 5)
    assert list(packing) == [packing[i] for i in range(len(packing))]
    assert packing[-1] == packing[len(packing) - 1]
    assert packing[0] == (Piece(1, 0, 5),)
    with pytest.raises(IndexError):
        packing[len(packing)]


def test_no_documents_are_no_windows() -> None:
    for lengths in ([], [0, 0]):
        packing = pack(lengths, 5)
        assert (len(packing), packing.tokens, packing.filled, packing.dropped) == (0, 0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[1]], 5), r"lengths = 'an array of int64 of shape \(1, 1\)"),
        (([1.5], 5), r"lengths = 'an array of float64"),
        (([3, -1], 5), r"lengths\[1\] = -1: must be 0 or more"),
        (([3], 0), r"capacity = 0: must be at least 1"),
        (([3], "5"), r"capacity = '5': must be a whole number"),
    ],
)
def test_what_cannot_be_packed_is_refused(arguments: tuple[Any, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        pack(*arguments)


def test_unknown_ways_are_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidValue, match="must be one of best_fit, greedy"):
        pack([1], 5, filling="worst_fit")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="must be one of cut, drop"):
        pack([1], 5, overflow="keep")  # type: ignore[arg-type]
