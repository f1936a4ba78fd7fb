"""`data`: text to tokens on disk, and how they fill training windows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from ropewalk.api.common import AllowDownload, TextField, WeightsField
from ropewalk.arguments import Length, as_length, as_path
from ropewalk.blocks import Block, Paragraph, Table, cells
from ropewalk.data.documents import Corpus
from ropewalk.data.mixtures import Group, Mixture
from ropewalk.data.packing import Filling, Overflow
from ropewalk.data.published_mixtures import named, shares_of
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import Arrangement, SpecialTokens, Windows, WindowSettings
from ropewalk.errors import InputError, InvalidValue
from ropewalk.lengths import format_length
from ropewalk.models.source import Model, resolve
from ropewalk.options import Advanced, Argument, Option, RunFolder, called, command
from ropewalk.progress import Notice, Progress, log_notice, of_a_call, shown
from ropewalk.training.text import ALONE, TrainingText
from ropewalk.values import Charts, Drawn, Value


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
        told = (
            f"{self.folder}: {self.tokens:,} tokens in {self.documents:,} documents, the longest "
            f"of {longest:,} ({shares})."
        )
        if self.fill is None:
            return told
        fill = self.fill
        return (
            f"{told} The first epoch is {fill.windows:,} windows of {format_length(fill.length)} "
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
        from ropewalk.data.charts import lengths

        by_length = {domain.name: domain.by_length for domain in self.domains}
        return [lengths(by_length, None if self.fill is None else self.fill.length)]


@command(
    "data build",
    "For training",
    example="ropewalk data build path/to/model --corpus books.jsonl -o tokens",
)
def build_data(
    tokenizer: Annotated[Model, Argument("The folder of a tokenizer, or `bundled`.", "MODEL")],
    corpora: Annotated[
        Corpus | Mapping[str, Corpus],
        Option(
            "Text to tokenise: a file, a folder, .jsonl, .parquet, .npy, a data set saved by "
            "`datasets`, hub:NAME for a data set of the Hugging Face hub, or `python` for the "
            "standard library of this Python. If there are several, each needs its domain.",
            "[DOMAIN=]FILE",
            shell=("--corpus",),
        ),
    ],
    folder: Annotated[
        str | Path,
        RunFolder(
            "The folder to build, or whose interrupted build to finish.",
            shell=("--output", "-o"),
            command="data build",
        ),
    ],
    *,
    field: TextField = "text",
    weights: WeightsField = None,
    long_ce: Annotated[
        Length | None,
        Advanced(
            "Weigh each token by LongCE: by how much likelier MODEL finds it with a context of up "
            "to this length than with a short one."
        ),
    ] = None,
    allow_download: AllowDownload = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> DataDescription:
    """Tokenise text into a folder that training maps into memory.

    `tokenizer` is the model whose tokenizer to use. A build that was killed goes on where it was.
    Each corpus is a file, a folder, a data set, a list of texts, or `python`, the standard library
    of the running Python. `field` names what holds a row's text or tokens. Windows are made when
    they are read, so one store serves every length.

    With `long_ce` the model itself is run, and must read that far: its gain from a long context
    weighs each token, by at most 5.
    """
    if weights is not None and long_ce is not None:
        raise InputError(
            "tokens have the weights of their rows or of LongCE; leave one of them out"
        )
    with called("data build", build_data, locals()) as (_, progress):
        source = resolve(tokenizer, allow_download=allow_download)
        named = corpora if isinstance(corpora, Mapping) else {ALONE: corpora}
        far = None if long_ce is None else as_length(long_ce, "long_ce")
        text = TrainingText(named, field, weights, allow_download, long_ce=far)
        return _described(text.tokenised(source, as_path(folder, "folder"), progress, notice))


@command(
    "data describe",
    "For training",
    example="ropewalk data describe tokens --length 32k --plot lengths.png",
    plot="the lengths",
)
def describe_data(
    folder: Annotated[str | Path, Argument("What `data build` wrote.", "DIR")],
    *,
    length: Annotated[
        Length | None, Option("Also show how an epoch fills windows of this length.")
    ] = None,
    layout: Annotated[Arrangement, Option("How documents are placed in a window.")] = "anchor",
    shares: Annotated[
        Mapping[str, float] | str | None,
        Option(
            "Share of a domain in the tokens of an epoch; or the mixture of a paper, "
            "such as prolong-64k.",
            "DOMAIN=SHARE",
            shell=("--share",),
        ),
    ] = None,
    long_share: Annotated[
        float | None,
        Option("Share of the tokens of each domain that long documents get, such as 0.7.", "SHARE"),
    ] = None,
    long_from: Annotated[Length, Option("Length from which a document counts as long.")] = 4096,
    tokens: Annotated[int | None, Option("Tokens of an epoch (default: each token once).")] = None,
    target: Annotated[
        Length | None, Advanced("With `layout` skip: the length that positions reach.")
    ] = None,
    filling: Annotated[
        Filling, Advanced("Longest documents first, or documents in their order.")
    ] = "best_fit",
    overflow: Annotated[
        Overflow, Advanced("What to do with the part of a document that does not fit.")
    ] = "cut",
    check: Annotated[bool, Option("Compare every file with its checksum.")] = False,
    progress: Progress | None = shown,
) -> DataDescription:
    """Show the documents of a token folder, and how they fill training windows.

    `shares` of tokens by domain, or the name of a paper's mixture, and `long_share`, that of
    documents of at least `long_from` tokens in each domain, make documents be read more or less
    often. `check` compares every file with its checksum.
    """
    if isinstance(shares, str):
        named(shares)  # says which there are
    store = TokenStore(as_path(folder, "folder"))
    if check:
        with of_a_call(progress) as progress:
            store.check(progress)
    if length is None:
        asked = (layout, filling, overflow, shares, tokens, long_from, long_share, target)
        if asked != ("anchor", "best_fit", "cut", None, None, 4096, None, None):
            raise InvalidValue(
                "length", length, "is needed with settings of windows", "write '32k'"
            )
        return _described(store)
    long = as_length(long_from, "long_from")
    settings = WindowSettings(
        as_length(length),
        layout,
        target=None if target is None else as_length(target, "target"),
        filling=filling,
        overflow=overflow,
        mixture=Mixture(tokens, shares_of(shares, store.with_text), long, long_share),
    )
    return _described(store, Fill.of(store, settings))


def _read(kind: Group, store: TokenStore, windows: Windows) -> EpochShare:
    own = np.zeros(len(store), dtype=bool)
    own[kind.documents] = True
    drawn = windows.drawn[own[windows.drawn]]
    tokens = int(store.lengths[drawn].sum())
    return EpochShare(kind.name, tokens, tokens / kind.available)


def _described(store: TokenStore, fill: Fill | None = None) -> DataDescription:
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
