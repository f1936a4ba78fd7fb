"""Training windows: tokens, their labels, and the layout of attention.

A window is a function of the store, the settings, and (seed, epoch, index). It does not depend on
workers, ranks or what was read before, so a run can go on anywhere.

    full           documents in a row, all visible (what most pretraining does)
    bookends       the same, between one BOS and one EOS (LongRoPE's chunks)
    intra          each document sees itself; positions run on
    reset          the same, positions start again in each document
    anchor         a first token that all see, then `intra` (AnchorAttention)
    interleaved    `anchor`, with documents in pieces that alternate
    skip           `anchor`, positions skip ahead within documents up to `target` (PoSE)

Where no anchor and no bookend is the first token, each document begins with BOS, if the tokenizer
has one: a model that is asked with BOS in front is trained with it, and layouts differ in nothing
but where it stands. A document's later pieces begin without.

Labels are shifted here, since the next token of a document need not stand next in its window: the
label of a place is the token that follows it in its document. Where none follows (at the end of a
piece, at the anchor, in padding) and where the next one belongs to a domain tag, there is no label.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ropewalk.attention.layout import AttentionLayout
from ropewalk.data.mixtures import Group, Mixture, documents_of, groups
from ropewalk.data.packing import Filling, IntArray, Overflow, Packing, Piece, pack
from ropewalk.data.store import TokenStore
from ropewalk.errors import InputError, InvalidValue
from ropewalk.lengths import MAX_LENGTH
from ropewalk.untrusted import check_between, check_seed, one_of, whole_number
from ropewalk.values import check_member, frozen

Arrangement = Literal["full", "bookends", "intra", "reset", "anchor", "interleaved", "skip"]

IGNORED: Final = -100
"""The label of a place that predicts nothing, as torch's cross entropy has it."""
ANCHORED: Final = ("anchor", "interleaved", "skip")
LEAST: Final = 4  # tokens of a window: the anchor, or BOS and EOS, and something to predict
MOST: Final = 2**26
ORDER_OF_WINDOWS, IN_WINDOW = 3, 4  # as in mixtures.py


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of a tokenizer, None if it has none."""

    bos: int | None
    eos: int | None

    @classmethod
    def of(cls, tokenizer: Any) -> SpecialTokens:
        return cls(tokenizer.bos_token_id, tokenizer.eos_token_id)


@dataclass(frozen=True)
class WindowSettings:
    length: int
    layout: Arrangement = "anchor"
    tags: Mapping[str, Sequence[int]] | None = None
    """Tokens that begin each document, by domain."""
    chunks: int = 2
    """Parts of a document that are interleaved, or between which positions skip."""
    target: int | None = None
    """The length that positions `skip` up to."""
    filling: Filling = "best_fit"
    overflow: Overflow = "cut"
    longest: int | None = None
    """Documents are cut into pieces of at most so many tokens, each a document by itself."""
    mixture: Mixture = field(default_factory=Mixture)
    seed: int = 0

    def __post_init__(self) -> None:
        whole_number(self.length, "length")
        check_between(self.length, LEAST, MOST, "length", "32768 is usual", f"{MOST:,}")
        one_of(self.layout, get_args(Arrangement), "layout")
        if whole_number(self.chunks, "chunks") < 2:
            raise InvalidValue("chunks", self.chunks, "must be at least 2", "2 is usual")
        if (self.layout == "skip") != (self.target is not None):
            raise InvalidValue(
                "target",
                self.target,
                "must be given for the layout `skip`, and for no other",
                "with `skip`, give the length that the model is planned for; else leave it out",
            )
        if self.target is not None and not self.length <= self.target <= MAX_LENGTH:
            raise InvalidValue(
                "target",
                self.target,
                f"must be between {self.length}, a window's length, and {MAX_LENGTH}",
                "give the length that the model is planned for",
            )
        check_seed(self.seed)
        if self.longest is not None and whole_number(self.longest, "longest") < LEAST:
            raise InvalidValue(
                "longest", self.longest, f"must be at least {LEAST}", "leave it out to cut nothing"
            )
        if self.tags is not None:
            tags = {name: _checked_tag(name, tag) for name, tag in self.tags.items()}
            object.__setattr__(self, "tags", frozen(tags))


def _checked_tag(domain: str, tag: object) -> tuple[int, ...]:
    if isinstance(tag, str | bytes) or not isinstance(tag, Sequence):
        raise InvalidValue(f"tags.{domain}", tag, "must be a list of tokens", "write [7, 8]")
    for i, token in enumerate(tag):
        if whole_number(token, f"tags.{domain}[{i}]") < 0:
            raise InvalidValue(f"tags.{domain}[{i}]", token, "is not a token", "give 0 or more")
    return tuple(tag)


class Window(NamedTuple):
    tokens: IntArray
    labels: IntArray
    """`IGNORED` where nothing is predicted."""
    layout: AttentionLayout
    weights: NDArray[np.float32] | None = None
    """The weight of predicting each label in the loss; None if all weigh the same."""


class _Row(NamedTuple):
    """A piece of a document, in its own order."""

    tokens: IntArray
    labels: IntArray
    weights: Any = None
    """The weights of the labels."""


class Windows(Sequence[Window]):
    """The windows of one epoch."""

    def __init__(
        self, store: TokenStore, settings: WindowSettings, special: SpecialTokens, epoch: int = 0
    ) -> None:
        if whole_number(epoch, "epoch") < 0:
            raise InvalidValue("epoch", epoch, "must be 0 or more", "the first epoch is 0")
        self.store, self.settings, self.epoch = store, settings, epoch
        self._special = special
        self._before, self._after = self._surroundings()
        self._beginning = self._beginnings()

    def __reduce__(self) -> tuple[object, ...]:
        """Another process finds out itself which documents go where."""
        return Windows, (self.store, self.settings, self._special, self.epoch)

    def __len__(self) -> int:
        return len(self.packing)

    def __getitem__(self, index: int) -> Window:  # type: ignore[override]
        index = range(len(self))[index]
        random = np.random.default_rng([self.settings.seed, IN_WINDOW, self.epoch, index])
        pieces = self.packing[int(self._order[index])]
        order = self._order_of_pieces(len(pieces), random)
        return self._window([self._read(pieces[i]) for i in order], random)

    @cached_property
    def groups(self) -> list[Group]:
        """The kinds of documents, and how much an epoch reads of each."""
        store = self.store
        return groups(store.lengths, store.of_domain, store.domains, self.settings.mixture)

    @cached_property
    def drawn(self) -> IntArray:
        """The documents of this epoch, in the order in which they are read."""
        return documents_of(
            self.groups, self.store.lengths, seed=self.settings.seed, epoch=self.epoch
        )

    @cached_property
    def packing(self) -> Packing:
        """The packing of the documents in `drawn`, with their beginnings and ends."""
        room = self.settings.length - len(self._before) - len(self._after)
        return pack(
            self._whole_lengths,
            room,
            filling=self.settings.filling,
            overflow=self.settings.overflow,
            longest=self.settings.longest,
        )

    @cached_property
    def _whole_lengths(self) -> IntArray:
        before = np.array([len(tokens) for tokens in self._beginning])
        lengths = self.store.lengths[self.drawn] + before[self.store.of_domain[self.drawn]]
        return np.asarray(lengths + (self._special.eos is not None))

    @cached_property
    def _order(self) -> IntArray:
        """Best fit begins with the longest documents; training should not."""
        random = np.random.default_rng([self.settings.seed, ORDER_OF_WINDOWS, self.epoch])
        return random.permutation(len(self.packing))

    def _order_of_pieces(self, count: int, random: np.random.Generator) -> list[int]:
        if self.settings.filling == "greedy":
            return list(range(count))
        return list(map(int, random.permutation(count)))

    def _read(self, piece: Piece) -> _Row:
        document = int(self.drawn[piece.document])
        begin = self._beginning[int(self.store.of_domain[document])]
        end = () if self._special.eos is None else (self._special.eos,)
        length = int(self.store.lengths[document])
        within = max(0, piece.start - len(begin)), max(0, piece.end - len(begin))
        begun = begin[piece.start : piece.end]
        ended = end if piece.end == len(begin) + length + len(end) else ()
        text = self.store.tokens(document, *within)
        tokens = np.concatenate([np.array(begun, np.int64), text, np.array(ended, np.int64)])
        labels = np.append(tokens[1:], IGNORED)
        labels[: max(0, len(begun) - 1)] = IGNORED  # what follows is of the tag
        if not self.store.weighted:
            return _Row(tokens, labels)
        weights: list[Any] = [np.ones(len(begun)), self.store.weights(document, *within)]
        if ended:  # an answer's end is of the answer
            last = self.store.weights(document, max(0, length - 1))
            weights.append(last if last.size else np.ones(1))
        return _Row(tokens, labels, np.append(np.concatenate(weights)[1:], 0.0))

    def _window(self, documents: list[_Row], random: np.random.Generator) -> Window:
        """In document order first; the layout then places each token."""
        layout = self._layout([each.tokens.size for each in documents], random)

        def laid(rows: Sequence[Any], fill: int) -> Any:
            row = np.concatenate(rows)
            whole = np.full(self.settings.length, fill, dtype=row.dtype)
            whole[layout.order] = row
            return whole

        before, after = (np.array(ids, dtype=np.int64) for ids in (self._before, self._after))
        none_before, none_after = (np.full(ids.size, IGNORED) for ids in (before, after))
        end = self._special.eos if self._special.eos is not None else 0
        tokens = laid([before, *(row.tokens for row in documents), after], end)
        labels = laid([none_before, *(row.labels for row in documents), none_after], IGNORED)
        weights = None
        if self.store.weighted:
            weights = laid([none_before, *(row.weights for row in documents), none_after], 0)
            weights = np.where(labels == IGNORED, 0, weights).astype(np.float32)
        return Window(tokens, labels, layout.padded_to(self.settings.length), weights)

    def _layout(self, lengths: list[int], random: np.random.Generator) -> AttentionLayout:
        match self.settings.layout:
            case "intra":
                return AttentionLayout.intra_document(lengths)
            case "reset":
                return AttentionLayout.intra_document_reset(lengths)
            case "anchor":
                return AttentionLayout.anchor(lengths)
            case "interleaved":
                return AttentionLayout.interleaved(
                    lengths, chunks=self.settings.chunks, seed=int(random.integers(2**32))
                )
            case "skip":
                assert self.settings.target
                return _skipping(lengths, self.settings.chunks, self.settings.target, random)
        extra = len(self._before) + len(self._after)
        return AttentionLayout.full([sum(lengths) + extra])

    def _surroundings(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The tokens before and after the documents of a window."""
        bos, eos = self._special.bos, self._special.eos
        first = bos if bos is not None else eos
        if self.settings.layout in ANCHORED:
            if first is None:
                raise InputError(
                    "the tokenizer has neither BOS nor EOS to be the anchor; choose another "
                    "layout, such as intra (`layout`)"
                )
            return (first,), ()
        if self.settings.layout == "bookends":
            if first is None or eos is None:
                raise InputError(
                    "the tokenizer has no EOS to end a window with; choose another layout, "
                    "such as full (`layout`)"
                )
            return (first,), (eos,)
        return (), ()

    def _beginnings(self) -> list[tuple[int, ...]]:
        """The tokens that begin a document, by domain: BOS, unless its window has it, and a tag."""
        tags = self.settings.tags or {}
        for name in tags:
            check_member(name, self.store.domains, "tags")
        bos = self._special.bos
        first = () if self._before or bos is None else (bos,)
        return [(*first, *tags.get(name, ())) for name in self.store.domains]


def _skipping(
    lengths: Sequence[int], chunks: int, target: int, random: np.random.Generator
) -> AttentionLayout:
    """Each document starts above the anchor, and skips ahead between its chunks.

    The places where it skips and the places that it reaches are uniform, so over many windows
    every position up to the target, and every distance, is trained.
    """
    positions = [np.zeros(1, dtype=np.int64)]
    for length in lengths:
        cuts = np.sort(random.choice(length, size=min(chunks, length) - 1, replace=False))
        skipped = np.sort(random.integers(0, target - length, size=cuts.size))
        ahead = np.zeros(length, dtype=np.int64)
        for cut, skip in zip(cuts.tolist(), skipped.tolist(), strict=True):
            ahead[cut:] = skip
        positions.append(1 + np.arange(length) + ahead)
    ids = np.repeat(np.arange(-1, len(lengths)), [1, *lengths])
    return AttentionLayout(np.concatenate(positions), ids, 1)


class WindowStream(Sequence[Window]):
    """The first `count` windows. The i-th does not depend on how many are read, or by whom."""

    def __init__(self, epoch: Callable[[int], Windows], count: int) -> None:
        self._epoch, self._count = epoch, count
        self._ends: list[int] = []
        """The number of windows up to the end of each epoch seen so far."""
        self._current: Windows | None = None

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Window:  # type: ignore[override]
        epoch, place = self.place(range(self._count)[index])
        return self._windows(epoch)[place]

    def place(self, index: int) -> tuple[int, int]:
        """The epoch of a window, and its place there."""
        while not self._ends or self._ends[-1] <= index:
            before = self._ends[-1] if self._ends else 0
            count = len(self._windows(len(self._ends)))
            if count == 0:
                raise InputError(
                    f"epoch {len(self._ends)} has no windows; build the tokens from more text"
                )
            self._ends.append(before + count)
        epoch = bisect_right(self._ends, index)
        return epoch, index - (self._ends[epoch - 1] if epoch else 0)

    def _windows(self, epoch: int) -> Windows:
        if self._current is None or self._current.epoch != epoch:
            self._current = self._epoch(epoch)
        return self._current

    def __getstate__(self) -> dict[str, Any]:
        """Another process finds out itself which documents go where."""
        return {**self.__dict__, "_current": None}


class MixedWindows(Sequence[Window]):
    """So many steps, each of `batch` windows of one kind. The first are long.

    Steps and not windows take turns, because which ones make a step must not depend on the number
    of ranks or on how many windows fit at once, and the windows of a batch follow one schedule.
    """

    def __init__(
        self, long: Sequence[Window], short: Sequence[Window], batch: int, steps: int
    ) -> None:
        self._by_turns, self._batch, self._steps = (long, short), batch, steps

    def __len__(self) -> int:
        return self._steps * self._batch

    def __getitem__(self, index: int) -> Window:  # type: ignore[override]
        step, place = divmod(range(len(self))[index], self._batch)
        turn, pair = step % 2, step // 2
        return self._by_turns[turn][pair * self._batch + place]


def long_steps(steps: int) -> int:
    """The number of steps, of the first `steps`, with long windows."""
    return (steps + 1) // 2
