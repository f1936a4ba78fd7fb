"""Which documents an epoch reads: a share of tokens for each domain, and more of the long ones.

Documents stand in groups, one for each domain, or two where long documents get a share of their
own. A group is read as an endless stream: all of its documents in a random order, then all in
another order, and so on. Epoch after epoch takes the next tokens of each stream, as many as the
group's share says, so no document is read a second time before every other one of its group has
been read.

The documents of an epoch are a function of lengths, domains and settings, and of (seed, epoch): no
worker and no rank can change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ropewalk.errors import InvalidValue

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Mixture:
    """Shares of tokens. Without any, an epoch is every document once."""

    tokens: int | None = None
    """In an epoch; as many as there are where nothing is said."""
    shares: Mapping[str, float] | None = None
    """By domain; those of the documents where nothing is said."""
    long_from: int = 4096
    long_share: float | None = None
    """The share that documents of at least `long_from` tokens get of the tokens of each domain
    which has both kinds. So long documents are read more often, and domains keep their shares."""

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens < 1:
            raise InvalidValue("tokens", self.tokens, "must be at least 1", "count an epoch's")
        if self.long_from < 1:
            raise InvalidValue("long_from", self.long_from, "must be at least 1", "4096 is usual")
        if self.long_share is not None and not 0 < self.long_share < 1:
            raise InvalidValue(
                "long_share", self.long_share, "must lie between 0 and 1", "0.7 is seven tenths"
            )
        for name, share in (self.shares or {}).items():
            if not isfinite(share) or share < 0:
                raise InvalidValue(
                    f"shares.{name}", share, "must be a number of 0 or more", "0.5 is half"
                )
        if self.shares is not None and not sum(self.shares.values()) > 0:
            raise InvalidValue(
                "shares", dict(self.shares), "must not all be 0", "leave shares away"
            )


class Group(NamedTuple):
    """Documents of one kind, and how many of their tokens an epoch reads."""

    name: str
    documents: IntArray
    tokens: int
    """Of an epoch."""
    available: int
    """Of all its documents."""

    @property
    def repeated(self) -> float:
        """How many times an epoch reads each document, on average."""
        return self.tokens / self.available


def groups(
    lengths: IntArray, domains: IntArray, names: tuple[str, ...], mixture: Mixture
) -> list[Group]:
    """What an epoch reads of what; `domains` holds an index of `names` for every document."""
    total = int(lengths.sum())
    by_domain = np.bincount(domains, lengths, minlength=len(names))
    shares = mixture.shares
    if shares is None:
        shares = dict(zip(names, by_domain / max(total, 1), strict=True))
    _check_names(shares, names, by_domain)
    wanted = mixture.tokens or total
    return [
        group
        for index, name in enumerate(names)
        for group in _of_domain(
            name,
            np.flatnonzero((domains == index) & (lengths > 0)),
            lengths,
            wanted * shares.get(name, 0.0) / sum(shares.values()),
            mixture,
        )
    ]


def _of_domain(
    name: str, documents: IntArray, lengths: IntArray, tokens: float, mixture: Mixture
) -> Iterator[Group]:
    is_long = lengths[documents] >= mixture.long_from
    parts = [(name, documents, 1.0)]
    if mixture.long_share is not None and is_long.any() and not is_long.all():
        parts = [
            (f"{name}, long", documents[is_long], mixture.long_share),
            (f"{name}, short", documents[~is_long], 1 - mixture.long_share),
        ]
    for label, own, share in parts:
        wanted = round(tokens * share)
        if wanted and own.size:
            yield Group(label, own, wanted, int(lengths[own].sum()))


def _check_names(
    shares: Mapping[str, float], names: tuple[str, ...], by_domain: NDArray[np.number]
) -> None:
    there = [name for name, tokens in zip(names, by_domain, strict=True) if tokens]
    for name, share in shares.items():
        if share and name not in there:
            raise InvalidValue(
                f"shares.{name}",
                share,
                "there is no text of this domain",
                f"choose from {', '.join(there) or 'none'}",
            )


def documents_of(groups: list[Group], lengths: IntArray, *, seed: int, epoch: int) -> IntArray:
    """The documents of an epoch in the order in which they are read, some perhaps several times."""
    drawn = [_next(group, lengths, (seed, number), epoch) for number, group in enumerate(groups)]
    together = np.concatenate([np.zeros(0, dtype=np.int64), *drawn])
    return np.random.default_rng([seed, len(groups), epoch]).permutation(together)


def _next(group: Group, lengths: IntArray, seed: tuple[int, int], epoch: int) -> IntArray:
    """The documents that begin in this epoch's part of the group's stream."""
    begin, end = epoch * group.tokens, (epoch + 1) * group.tokens
    found = []
    for lap in range(begin // group.available, (end - 1) // group.available + 1):
        order = np.random.default_rng([*seed, lap]).permutation(group.documents)
        starts = lap * group.available + np.cumsum(lengths[order]) - lengths[order]
        found.append(order[(starts >= begin) & (starts < end)])
    return np.concatenate(found)
