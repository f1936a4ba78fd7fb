"""Attention layouts: documents that share one window, with or without an anchor.

A training window holds many documents. An `AttentionLayout` gives the position and the document of
each token. These determine the attention mask (`mask`):

    query q sees key k  when  k is not after q,
                              neither is padding,
                              k is in q's document or is part of the anchor,
                              and, in a layer with a sliding window, k's position is within it

Figures 2 and 5 of the AnchorAttention paper are choices of these three values:

    full                    one document that holds everything
    intra-document          one id a document, positions run on
    … with reset            the same ids, positions start again in every document
    anchor                  the first token in no document, seen by all; positions run on
    … with domain tags      every document is its tag, then its text
    interleaved chunks      documents in pieces: ids alternate, order within a document is kept

Engines (engines.py) determine how a layout is computed, and sequence parallelism (ulysses.py)
where. Neither infers a layout from a tensor. This file needs only numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ropewalk.errors import InvalidValue
from ropewalk.values import Members

IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

ANCHOR: Final = -1
"""The document id of anchor tokens: they belong to no document."""
PADDING: Final = -2
"""The document id of padding: it sees nothing, and nothing sees it."""


@dataclass(frozen=True, eq=False)
class AttentionLayout(Members):
    """Positions and documents of one window. Immutable and hashable, compares by content."""

    _optional = ("sliding_window",)

    positions: IntArray
    """The position of each token, for the rotary embedding."""
    document_ids: IntArray
    """0 and up for documents, `ANCHOR` for the anchor, `PADDING` for padding."""
    anchor_length: int = 0
    """The number of tokens at the start of the window that every document sees."""
    sliding_window: int | None = None
    """A query sees positions less than so far before its own (default: all)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "positions", _integers("positions", self.positions))
        object.__setattr__(self, "document_ids", _integers("document_ids", self.document_ids))
        _check_lengths(self.positions, self.document_ids)
        _check_count("anchor_length", self.anchor_length)
        if self.sliding_window is not None:
            _check_count("sliding_window", self.sliding_window, lowest=1)
        _check_document_ids(self.document_ids, self.anchor_length)
        _check_positions(self)

    # The paradigms. Every one takes the documents' lengths; an empty document adds no token.

    @classmethod
    def full(cls, document_lengths: Sequence[int]) -> AttentionLayout:
        """Plain causal attention over the whole window, across the borders of documents."""
        total = int(_document_lengths(document_lengths).sum())
        return cls(np.arange(total), np.zeros(total, dtype=np.int64))

    @classmethod
    def intra_document(cls, document_lengths: Sequence[int]) -> AttentionLayout:
        """Documents do not see each other; positions run on through the window."""
        lengths = _document_lengths(document_lengths)
        return cls(np.arange(lengths.sum()), np.repeat(np.arange(lengths.size), lengths))

    @classmethod
    def intra_document_reset(cls, document_lengths: Sequence[int]) -> AttentionLayout:
        """Documents do not see each other, and each starts at position 0."""
        lengths = _document_lengths(document_lengths)
        starts = np.cumsum(lengths) - lengths
        return cls(
            np.arange(lengths.sum()) - np.repeat(starts, lengths),
            np.repeat(np.arange(lengths.size), lengths),
        )

    @classmethod
    def anchor(
        cls,
        document_lengths: Sequence[int],
        *,
        anchor_length: int = 1,
        tag_lengths: int | Sequence[int] = 0,
    ) -> AttentionLayout:
        """A shared anchor first, then documents that see it and themselves; positions run on.

        `anchor([5, 3])` has 9 tokens. With domain tags, every document that is not empty begins
        with its tag, which only this document sees: `anchor([5, 3], tag_lengths=1)` has 11 tokens.
        """
        lengths = _tagged(_document_lengths(document_lengths), tag_lengths)
        return cls._anchored(np.repeat(np.arange(lengths.size), lengths), anchor_length)

    @classmethod
    def interleaved(
        cls, document_lengths: Sequence[int], *, chunks: int, seed: int, anchor_length: int = 1
    ) -> AttentionLayout:
        """Documents cut at random points into `chunks` pieces, the pieces shuffled.

        The order within a document is kept. `window[layout.order] = tokens` moves tokens from
        document order (the anchor first) to their places in the window. `anchor_length=0`
        interleaves intra-document attention.
        """
        _check_count("chunks", chunks, lowest=1)
        generator = np.random.default_rng(seed)
        lengths = _document_lengths(document_lengths).tolist()
        pieces = [_cut(length, chunks, generator) for length in lengths]
        sizes = np.concatenate([np.zeros(0, dtype=np.int64), *pieces])
        owners = np.repeat(np.arange(len(pieces)), [piece.size for piece in pieces])
        # Shuffling only *whose* piece comes next keeps each document's pieces in their order.
        shuffled = generator.permutation(owners)
        slots = np.argsort(shuffled, kind="stable")
        ids = np.repeat(shuffled, sizes[np.argsort(slots)])
        return cls._anchored(ids, anchor_length)

    @classmethod
    def _anchored(cls, document_ids: IntArray, anchor_length: int) -> AttentionLayout:
        _check_count("anchor_length", anchor_length)
        ids = np.concatenate([np.full(anchor_length, ANCHOR), document_ids])
        return cls(np.arange(ids.size), ids, anchor_length)

    # Fitting documents to a window.

    def padded_to(self, length: int) -> AttentionLayout:
        """This layout with padding after it. Padding has position 0."""
        _check_count("length", length)
        missing = length - self.length
        if missing < 0:
            raise InvalidValue(
                "length", length, f"the layout has {self.length} tokens", "cut it with cut_to"
            )
        if missing == 0:
            return self
        return replace(
            self,
            positions=np.concatenate([self.positions, np.zeros(missing, dtype=np.int64)]),
            document_ids=np.concatenate([self.document_ids, np.full(missing, PADDING)]),
        )

    def cut_to(self, length: int) -> AttentionLayout:
        """The first `length` tokens; a document at the border is cut there."""
        _check_count("length", length, lowest=max(self.anchor_length, 1))
        if length > self.length:
            raise InvalidValue(
                "length", length, f"the layout has {self.length} tokens", "pad it with padded_to"
            )
        if length == self.length:
            return self
        return replace(
            self, positions=self.positions[:length], document_ids=self.document_ids[:length]
        )

    def within(self, sliding_window: int) -> AttentionLayout:
        """This layout in a layer with a sliding window; itself if that hides nothing."""
        if sliding_window >= self.reach():
            return self
        return replace(self, sliding_window=sliding_window)

    # What it means.

    @property
    def length(self) -> int:
        return int(self.document_ids.size)

    def mask(self) -> BoolArray:
        """[query, key]: True where the query sees the key. This is the definition."""
        ids = self.document_ids
        indices = np.arange(self.length)
        causal = indices[:, np.newaxis] >= indices
        same_document = ids[:, np.newaxis] == ids
        present = ids != PADDING
        seen = causal & (same_document | (ids == ANCHOR)) & present[:, np.newaxis] & present
        if self.sliding_window is not None:
            seen &= self.positions[:, np.newaxis] - self.positions < self.sliding_window
        return np.asarray(seen)

    def area(self) -> int:
        """The number of visited pairs; the ideal speed-up is full attention's area over this."""
        near = self.sliding_window or self.reach()

        def pairs(row: IntArray) -> int:
            return int((np.arange(row.size) + 1 - first_seen(row, row, near)).sum())

        # The anchor's own, before each document.
        again = pairs(self.positions[: self.anchor_length])
        return sum(map(pairs, self.sequences)) - again * self.document_lengths.size

    def reach(self) -> int:
        """The furthest that any query may look back, itself included: the least sliding window that
        hides nothing."""
        return max((int(each[-1] - each[0]) + 1 for each in self.sequences), default=0)

    # What engines need: the same window, document by document.

    @cached_property
    def order(self) -> IntArray:
        """The places of the tokens in document order: the anchor first, without padding."""
        by_document = np.argsort(self.document_ids, kind="stable")
        return _read_only(by_document[int((self.document_ids == PADDING).sum()) :])

    @cached_property
    def document_lengths(self) -> IntArray:
        """The tokens of each document in this window, in the order of `order`; none is empty."""
        documents = self.document_ids[self.document_ids >= 0]
        return _read_only(np.unique(documents, return_counts=True)[1].astype(np.int64))

    @cached_property
    def sequences(self) -> tuple[IntArray, ...]:
        """The positions of the anchor, if there is one, and of the anchor with each document."""
        borders = np.cumsum([self.anchor_length, *self.document_lengths])[:-1]
        anchor, *documents = np.split(self.positions[self.order], borders)
        whole = [np.concatenate([anchor, document]) for document in documents]
        return (anchor, *whole) if anchor.size else tuple(whole)

    @cached_property
    def is_packed(self) -> bool:
        """True if the window is in document order, without padding."""
        return bool(np.array_equal(self.order, np.arange(self.length)))

    # As a value.

    @classmethod
    def from_json(cls, value: object, path: str = "layout") -> Self:
        return super().from_json(value, path)

    @cached_property
    def _identity(self) -> tuple[object, ...]:
        arrays = self.positions.tobytes(), self.document_ids.tobytes()
        return *arrays, self.anchor_length, self.sliding_window

    @cached_property
    def _hash(self) -> int:
        return hash(self._identity)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AttentionLayout):
            return NotImplemented
        return self is other or self._identity == other._identity

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        padding = int((self.document_ids == PADDING).sum())
        return (
            f"AttentionLayout({self.length} tokens: {self.anchor_length} of anchor, "
            f"{self.document_lengths.size} documents, {padding} of padding)"
        )


def first_seen(queries: IntArray, keys: IntArray, sliding_window: int) -> IntArray:
    """The first of rising positions that each of others sees."""
    return np.searchsorted(keys, queries - sliding_window, side="right")


def _read_only(array: IntArray) -> IntArray:
    array.flags.writeable = False
    return array


def _integers(key: str, value: ArrayLike) -> IntArray:
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor that is not in this host's memory
        raise InvalidValue(
            key,
            getattr(value, "device", value),
            "must be in host memory, whatever device the tensors are on",
            "give a list or a numpy array of whole numbers",
        ) from None
    if array.size == 0:
        array = array.astype(np.int64)  # an empty list has no type of its own
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InvalidValue(
            key,
            f"{array.dtype} of shape {array.shape}",
            "must be one row of whole numbers",
            "give one integer per token",
        )
    return _read_only(array.astype(np.int64))  # a copy: nobody else holds it


def _check_count(key: str, value: object, lowest: int = 0) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < lowest:
        raise InvalidValue(
            key, value, f"must be a whole number, {lowest} or more", "count in tokens"
        )


def _document_lengths(lengths: Sequence[int]) -> IntArray:
    array = _integers("document_lengths", lengths)
    if (array < 0).any():
        i = int(np.argmax(array < 0))
        raise InvalidValue(
            f"document_lengths[{i}]", int(array[i]), "must be 0 or more", "count its tokens"
        )
    return array


def _cut(length: int, chunks: int, generator: np.random.Generator) -> IntArray:
    """The sizes of a document's pieces; one of n tokens cannot be in more than n pieces."""
    if length == 0:
        return np.zeros(0, dtype=np.int64)
    cuts = generator.choice(length - 1, size=min(chunks, length) - 1, replace=False) + 1
    borders = np.array([0, *np.sort(cuts), length], dtype=np.int64)
    return np.asarray(borders[1:] - borders[:-1])


def _tagged(lengths: IntArray, tag_lengths: int | Sequence[int]) -> IntArray:
    if isinstance(tag_lengths, int):
        _check_count("tag_lengths", tag_lengths)
        tags = np.full(lengths.size, tag_lengths, dtype=np.int64)
    else:
        tags = _integers("tag_lengths", tag_lengths)
        for i, tag in enumerate(tags.tolist()):
            _check_count(f"tag_lengths[{i}]", tag)
    if tags.size != lengths.size:
        raise InvalidValue(
            "tag_lengths",
            f"{tags.size} tags",
            f"there are {lengths.size} documents",
            "give one length for all, or one per document",
        )
    return np.where(lengths > 0, lengths + tags, 0)


def _check_lengths(positions: IntArray, document_ids: IntArray) -> None:
    if positions.size != document_ids.size:
        raise InvalidValue(
            "positions",
            f"{positions.size} values",
            f"there are {document_ids.size} document_ids",
            "give one of each for every token",
        )
    if (document_ids == PADDING).all():
        raise InvalidValue(
            "document_ids",
            document_ids.tolist(),
            "a layout has at least one token that is not padding",
            "leave out empty windows",
        )


def _check_document_ids(document_ids: IntArray, anchor_length: int) -> None:
    anchored = document_ids == ANCHOR
    if anchor_length > document_ids.size or not (anchored[:anchor_length]).all():
        raise InvalidValue(
            "anchor_length",
            anchor_length,
            f"the window has {int(anchored.sum())} tokens with document id {ANCHOR}",
            f"set the first anchor_length entries of document_ids, and no others, to {ANCHOR}",
        )
    stray = (document_ids < PADDING) | anchored
    stray[:anchor_length] = False
    if stray.any():
        i = int(np.argmax(stray))
        raise InvalidValue(
            f"document_ids[{i}]",
            int(document_ids[i]),
            f"after an anchor of {anchor_length} tokens only documents (0 and up) and padding "
            f"({PADDING}) may follow",
            f"give it the number of its document, or {PADDING}",
        )


def _check_positions(layout: AttentionLayout) -> None:
    """Positions rise within a document, and the anchor's lie before every document's.

    So being earlier in the window and being at an earlier position are the same thing for any two
    tokens that see each other, and causal means what the model was pretrained with.
    """
    positions = layout.positions
    if (positions < 0).any():
        i = int(np.argmax(positions < 0))
        raise InvalidValue(
            f"positions[{i}]", int(positions[i]), "must be 0 or more", "positions count from 0"
        )
    # Within a document, in the order in which its tokens are read.
    order = layout.order
    ids, previous = layout.document_ids[order], np.roll(order, 1)
    same = ids == layout.document_ids[previous]
    same[:1] = False
    falls = same & (positions[order] <= positions[previous])
    if falls.any():
        i, before = int(order[np.argmax(falls)]), int(previous[np.argmax(falls)])
        raise InvalidValue(
            f"positions[{i}]",
            int(positions[i]),
            f"must be above {int(positions[before])}, the position of the token before it in "
            "the same document",
            "give positions in the order of the tokens",
        )
    # All documents read the anchor, so it is the past of each.
    anchor, documents = np.split(order, [layout.anchor_length])
    early = documents[positions[documents] <= positions[anchor].max(initial=-1)]
    if early.size:
        i = int(early[0])
        raise InvalidValue(
            f"positions[{i}]",
            int(positions[i]),
            f"must be above {int(positions[anchor].max())}, the position of the anchor",
            "the anchor comes before every document: start documents after it",
        )
