"""The description of a store of tokens: its documents by domain, and how an epoch fills windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ropewalk.blocks import Block, Paragraph, Table, cells
from ropewalk.chart import Axis, Chart, Guide, Mark, Series
from ropewalk.data.mixtures import Group
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import SpecialTokens, Windows, WindowSettings
from ropewalk.lengths import format_length
from ropewalk.values import Charts, Drawn, Value


def lengths(by_domain: Mapping[str, Sequence[int]], window: int | None) -> Chart:
    """The share of all tokens in documents of 1, 2 to 3, 4 to 7, … tokens, domains stacked."""
    bins = max(map(len, by_domain.values()), default=1)
    tokens = np.array([[*counts, *[0] * (bins - len(counts))] for counts in by_domain.values()])
    shares = 100 * tokens / max(1, tokens.sum())
    first = int(np.argmax(shares.sum(0) > 0.05))  # a few short ones would take half the picture
    below = np.zeros(bins)
    series = []
    for name, share in zip(by_domain, shares, strict=True):
        above = below + share
        marks = tuple(
            Mark(2.0**edge, float(above[i]), float(below[i]), float(above[i]))
            for i in range(first, bins)
            for edge in (i, i + 1)
        )
        series.append(Series(f"{name} ({share.sum():.0f}%)", marks, drawn="band"))
        below = above
    return Chart(
        "",
        Axis("length of the document in tokens", "log2", "length"),
        Axis("share of all tokens (%)"),
        tuple(series),
        () if window is None else (Guide(window, f"window of {format_length(window)}"),),
    )


@dataclass(frozen=True, eq=False)
class Domain(Value):
    """The documents of one domain."""

    name: str
    documents: int
    tokens: int
    mean: float
    longest: int
    by_length: tuple[int, ...]
    """Tokens of documents of 1, 2 to 3, 4 to 7, … tokens."""


@dataclass(frozen=True, eq=False)
class EpochShare(Value):
    """Documents of one kind in an epoch."""

    name: str
    tokens: int
    repeated: float
    """The mean number of times that each is read."""


@dataclass(frozen=True, eq=False)
class Fill(Value):
    """The windows of the first epoch."""

    length: int
    layout: str
    windows: int
    filled: float
    """The share of their places that holds a token of a document."""
    dropped: float
    """The share of the tokens of the documents read that is in no window."""
    whole: float
    """The share of the documents that are in one window from beginning to end."""
    groups: tuple[EpochShare, ...]

    @classmethod
    def of(cls, store: TokenStore, settings: WindowSettings) -> Fill:
        """The windows that a store fills under these settings."""
        # Of a tokenizer that has both; which tokens they are does not matter.
        windows = Windows(store, settings, SpecialTokens(0, 0))
        packing = windows.packing
        return cls(
            settings.length,
            settings.layout,
            len(windows),
            packing.tokens / (len(windows) * settings.length),
            packing.dropped,
            packing.whole,
            tuple(_read(kind, store, windows) for kind in windows.groups),
        )


@dataclass(frozen=True, eq=False)
class DataDescription(Drawn):
    """A store of tokens, and how an epoch of it fills windows."""

    rows_in = "domains"

    folder: str
    tokenizer_sha256: str
    domains: tuple[Domain, ...]
    fill: Fill | None = None

    @property
    def documents(self) -> int:
        return sum(domain.documents for domain in self.domains)

    @property
    def tokens(self) -> int:
        return sum(domain.tokens for domain in self.domains)

    def derived(self) -> dict[str, object]:
        return {"documents": self.documents, "tokens": self.tokens}

    def summary(self) -> str:
        longest = max(domain.longest for domain in self.domains)
        shares = ", ".join(f"{d.name} {d.tokens / self.tokens:.1%}" for d in self.domains)
        text = (
            f"{self.folder}: {self.tokens:,} tokens in {self.documents:,} documents, the longest "
            f"of {longest:,} ({shares})."
        )
        if self.fill is None:
            return text
        fill = self.fill
        return (
            f"{text} The first epoch is {fill.windows:,} windows of {format_length(fill.length)} "
            f"({fill.layout}), {fill.filled:.2%} filled; {1 - fill.whole:.1%} of the "
            f"documents are cut, and {fill.dropped:.2%} of the tokens are dropped."
        )

    def blocks(self) -> Iterator[Block]:
        yield Paragraph(self.summary())
        yield Table(
            "",
            ("domain", "documents", "tokens", "share", "mean length", "longest"),
            tuple(
                cells(
                    domain.name,
                    f"{domain.documents:,}",
                    f"{domain.tokens:,}",
                    f"{domain.tokens / self.tokens:.1%}",
                    f"{domain.mean:,.0f}",
                    f"{domain.longest:,}",
                )
                for domain in self.domains
            ),
        )
        if self.fill is None:
            line = f"ropewalk data describe {self.folder} --length 32k"
            yield Paragraph(f"how it fills windows: {line}")
        else:
            groups = self.fill.groups
            total = sum(group.tokens for group in groups)
            yield Table(
                "",
                ("in the first epoch", "tokens", "share", "each document is read"),
                tuple(
                    cells(
                        group.name,
                        f"{group.tokens:,}",
                        f"{group.tokens / total:.1%}",
                        f"{group.repeated:.2f} times",
                    )
                    for group in groups
                ),
            )
        yield from self.charts()

    def charts(self) -> Charts:
        """Tokens by the length of the documents that they are in, and by domain."""
        by_length = {domain.name: domain.by_length for domain in self.domains}
        return [lengths(by_length, None if self.fill is None else self.fill.length)]


def _read(kind: Group, store: TokenStore, windows: Windows) -> EpochShare:
    mask = np.zeros(len(store), dtype=bool)
    mask[kind.documents] = True
    drawn = windows.drawn[mask[windows.drawn]]
    tokens = int(store.lengths[drawn].sum())
    return EpochShare(kind.name, tokens, tokens / kind.available)


def described(store: TokenStore, fill: Fill | None = None) -> DataDescription:
    domains = []
    for index, name in enumerate(store.domains):
        lengths = store.lengths[store.of_domain == index]
        bins = np.floor(np.log2(np.maximum(lengths, 1))).astype(np.int64)
        domains.append(
            Domain(
                name,
                lengths.size,
                int(lengths.sum()),
                float(lengths.mean()) if lengths.size else 0.0,
                int(lengths.max(initial=0)),
                tuple(np.bincount(bins, lengths).astype(np.int64).tolist()),
            )
        )
    return DataDescription(str(store.folder), store.tokenizer_sha256, tuple(domains), fill)
