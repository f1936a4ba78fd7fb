"""The assignment of documents' parts to windows: a function of the documents' lengths alone.

Two ways of filling windows, and two of treating what does not fit:

    best_fit    the longest documents first, each into the fullest window that has room for it
    greedy      documents in their order, each directly after the one before it

    cut         what lies past the end of a window goes into another one: no token is lost
    drop        it is left out: no document begins in its middle

Best fit keeps documents whole where they fit into a window at all. Greedy with `cut` is a stream of
text that is cut every so many tokens: no window but the last has room left, and most of them begin
in the middle of a document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropewalk.errors import InvalidValue
from ropewalk.untrusted import whole_number
from ropewalk.values import check_member

IntArray = NDArray[np.int64]
Filling = Literal["best_fit", "greedy"]
Overflow = Literal["cut", "drop"]

WORD: Final = 64  # bits


class Piece(NamedTuple):
    """Tokens `start` to `end` (not included) of a document."""

    document: int
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Packing(Sequence[tuple[Piece, ...]]):
    """The pieces of every window, in their order."""

    capacity: int
    """The tokens of documents that a window has room for."""
    lengths: IntArray
    """The lengths of all documents."""
    windows: IntArray
    """The window of each piece, rising."""
    documents: IntArray
    starts: IntArray
    ends: IntArray

    def __len__(self) -> int:
        return len(self._borders) - 1

    def __getitem__(self, index: int) -> tuple[Piece, ...]:  # type: ignore[override]
        index = range(len(self))[index]  # counts from the end, and refuses, as a list does
        span = slice(self._borders[index], self._borders[index + 1])
        columns = (self.documents[span], self.starts[span], self.ends[span])
        return tuple(map(Piece, *(column.tolist() for column in columns)))

    def __iter__(self) -> Iterator[tuple[Piece, ...]]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def _borders(self) -> IntArray:
        count = int(self.windows[-1]) + 1 if self.windows.size else 0
        return np.searchsorted(self.windows, np.arange(count + 1)).astype(np.int64)

    @property
    def tokens(self) -> int:
        """The tokens in windows."""
        return int((self.ends - self.starts).sum())

    @property
    def filled(self) -> float:
        """The share of all windows' room that holds a token."""
        return self.tokens / (len(self) * self.capacity) if len(self) else 0.0

    @property
    def dropped(self) -> float:
        """The share of the documents' tokens that is in no window."""
        total = int(self.lengths.sum())
        return 1 - self.tokens / total if total else 0.0

    @property
    def whole(self) -> float:
        """The share of the documents with tokens that are in one window, uncut."""
        pieces = np.bincount(self.documents, minlength=self.lengths.size)
        kept = np.bincount(
            self.documents, self.ends - self.starts, minlength=self.lengths.size
        ).astype(np.int64)
        there = self.lengths > 0
        good = (pieces == 1) & (kept == self.lengths) & there
        return float(good.sum() / there.sum()) if there.any() else 0.0


def pack(
    lengths: ArrayLike,
    capacity: int,
    *,
    filling: Filling = "best_fit",
    overflow: Overflow = "cut",
    longest: int | None = None,
) -> Packing:
    """Fill windows that have room for `capacity` tokens with documents of these lengths.

    Documents without a token are in no window. Those of more than `longest` tokens count as several
    of so many; with `drop`, as their first tokens.
    """
    sizes = _checked(lengths)
    if whole_number(capacity, "capacity") < 1:
        raise InvalidValue("capacity", capacity, "must be at least 1", "give a window's length")
    check_member(filling, get_args(Filling), "filling")
    check_member(overflow, get_args(Overflow), "overflow")
    fill = _best_fit if filling == "best_fit" else _greedy
    owners, offsets, pieces = _pieces(sizes, longest or max(1, int(sizes.max(initial=0))), overflow)
    windows, documents, starts, ends = fill(pieces, capacity, overflow)
    starts, ends = starts + offsets[documents], ends + offsets[documents]
    documents = owners[documents]
    order = np.argsort(windows, kind="stable")
    return Packing(capacity, sizes, windows[order], documents[order], starts[order], ends[order])


def _pieces(
    lengths: IntArray, longest: int, overflow: Overflow
) -> tuple[IntArray, IntArray, IntArray]:
    """The document of each piece of at most so many tokens, its start, and its length."""
    counts = np.maximum(1, -(-lengths // longest))
    if overflow == "drop":
        counts = np.ones_like(counts)
    owners = np.repeat(np.arange(lengths.size), counts)
    offsets = (np.arange(owners.size) - np.repeat(np.cumsum(counts) - counts, counts)) * longest
    return owners, offsets, np.minimum(lengths[owners] - offsets, longest)


def _checked(lengths: ArrayLike) -> IntArray:
    array = np.asarray(lengths)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InvalidValue(
            "lengths", f"an array of {array.dtype} of shape {array.shape}",
            "must be one whole number for each document", "count the tokens of each document",
        )  # fmt: skip
    if array.size and array.min() < 0:
        at = int(np.argmin(array))
        raise InvalidValue(f"lengths[{at}]", int(array[at]), "must be 0 or more", "count tokens")
    counts = array.astype(np.int64)
    counts.flags.writeable = False
    return counts


_Columns = tuple[IntArray, IntArray, IntArray, IntArray]


def _greedy(lengths: IntArray, capacity: int, overflow: Overflow) -> _Columns:
    """Documents laid out behind each other, on a tape that is cut every `capacity` tokens."""
    documents = np.flatnonzero(lengths)
    if overflow == "cut":
        laid = lengths[documents]
        begin = np.cumsum(laid) - laid
    else:
        begin = _next_windows(lengths[documents], capacity)
        laid = np.minimum(lengths[documents], capacity - begin % capacity)
    first, last = begin // capacity, (begin + laid - 1) // capacity
    pieces = last - first + 1
    documents, base = np.repeat(documents, pieces), np.repeat(begin, pieces)
    windows = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces - first, pieces)
    starts = np.maximum(windows * capacity - base, 0)
    ends = np.minimum((windows + 1) * capacity - base, np.repeat(laid, pieces))
    return windows, documents, starts, ends


def _next_windows(lengths: IntArray, capacity: int) -> IntArray:
    """The beginning of each document if a window's last document loses what does not fit."""
    begin = np.zeros(lengths.size, dtype=np.int64)
    laid = np.concatenate([[0], np.cumsum(lengths)])
    at, start = 0, 0  # the next document, and the beginning of its window
    while at < lengths.size:
        # All that begin before the window's end: the last of them may lie across it.
        end = min(int(np.searchsorted(laid, laid[at] + capacity)), lengths.size)
        begin[at:end] = start + laid[at:end] - laid[at]
        at, start = end, start + capacity
    return begin


def _best_fit(lengths: IntArray, capacity: int, overflow: Overflow) -> _Columns:
    """Best-fit decreasing. A document longer than a window begins with full windows of its own."""
    full = lengths // capacity
    if overflow == "drop":
        full = np.minimum(full, 1)
    owners = np.repeat(np.arange(lengths.size), full)
    nth = np.arange(owners.size) - np.repeat(np.cumsum(full) - full, full)
    rest = lengths - full * capacity
    if overflow == "drop":
        rest[lengths >= capacity] = 0
    placed, windows = _placed(rest, capacity, owners.size)
    starts = np.concatenate([nth * capacity, (full * capacity)[placed]])
    ends = np.concatenate([(nth + 1) * capacity, (full * capacity + rest)[placed]])
    return (
        np.concatenate([np.arange(owners.size), windows]),
        np.concatenate([owners, placed]),
        starts,
        ends,
    )


def _placed(lengths: IntArray, capacity: int, first: int) -> tuple[IntArray, IntArray]:
    """Documents shorter than a window, longest first, and the window of each.

    Those of one length are placed together: the fullest window with room takes as many as fit,
    after which it has no room for another one. So the work grows with the number of windows and of
    different lengths, not with that of documents.
    """
    order = np.argsort(-lengths, kind="stable")
    order = order[: int(np.count_nonzero(lengths))]
    values, counts = np.unique(-lengths[order], return_counts=True)
    room = _Room(capacity)
    windows: list[int] = []  # of each run
    runs: list[int] = []  # how many documents
    opened = first
    for length, count in zip((-values).tolist(), counts.tolist(), strict=True):
        while count:
            left = room.least(length)
            if left is None:
                left, window = capacity, opened
                opened += 1
            else:
                window = room.take(left)
            run = min(count, left // length)
            windows.append(window)
            runs.append(run)
            room.add(left - run * length, window)
            count -= run
    return order, np.repeat(np.array(windows, dtype=np.int64), np.array(runs, dtype=np.int64))


class _Room:
    """Windows by the tokens that they have room for, which finds the least sufficient room fast.

    A bit a room says whether some window has it, and a bit for every 64 of these whether one is
    set.
    """

    def __init__(self, capacity: int) -> None:
        self._windows: dict[int, list[int]] = {}
        self._words = [0] * (capacity // WORD + 1)
        self._summary = 0

    def least(self, length: int) -> int | None:
        at, bit = divmod(length, WORD)
        word = self._words[at] >> bit << bit
        if not word:
            above = self._summary >> (at + 1) << (at + 1)
            if not above:
                return None
            at = _lowest(above)
            word = self._words[at]
        return at * WORD + _lowest(word)

    def take(self, room: int) -> int:
        """One of the windows with this room."""
        windows = self._windows[room]
        window = windows.pop()
        if not windows:
            at, bit = divmod(room, WORD)
            self._words[at] &= ~(1 << bit)
            if not self._words[at]:
                self._summary &= ~(1 << at)
        return window

    def add(self, room: int, window: int) -> None:
        if not room:
            return
        self._windows.setdefault(room, []).append(window)
        at, bit = divmod(room, WORD)
        self._words[at] |= 1 << bit
        self._summary |= 1 << at


def _lowest(bits: int) -> int:
    """The place of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
