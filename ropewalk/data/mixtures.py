"""The documents that an epoch reads: a share of tokens for each domain, and more of the long ones.

Documents form groups: one for each domain, or two where long documents get a share of their own. A
group is read as an endless stream: all of its documents in a random order, then all of them in
another order, and so on. Each epoch takes the next tokens of every stream, as many as the group's
share says. So after any number of epochs, how often documents of a group were read never differs by
two or more. Within an epoch, the order is random.

The documents of an epoch are a function of lengths, domains and settings, and of (seed, epoch): no
worker and no rank can change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ropewalk.data.packing import IntArray
from ropewalk.errors import InvalidValue
from ropewalk.untrusted import check_between, real_number, whole_number
from ropewalk.values import frozen

MOST_TOKENS = 10**15
MOST_SHARE = 10**6
MOST_LAPS = 1000
"""The most times that an epoch may read each document of a group."""

# A number after the seed keeps random streams apart; windows.py has more of them.
LAP_OF_GROUP, ORDER_OF_EPOCH = 1, 2


@dataclass(frozen=True)
class Mixture:
    """Shares of tokens. By default, an epoch is every document once."""

    tokens: int | None = None
    """The tokens of an epoch; by default, all."""
    shares: Mapping[str, float] | None = None
    """By domain. Domains without one divide what is left of 1, in proportion to their tokens. If
    all have one, only the ratios count."""
    long_from: int = 4096
    long_share: float | None = None
    """The share that documents of at least `long_from` tokens get of the tokens of each domain
    which has both kinds. So long documents are read more often, and domains keep their shares."""

    def __post_init__(self) -> None:
        for key in ("tokens", "long_from"):
            if (value := getattr(self, key)) is not None:
                count, most = whole_number(value, key), f"{MOST_TOKENS:,}"
                check_between(count, 1, MOST_TOKENS, key, "give a number of tokens", most)
        if self.long_share is not None and not 0 < real_number(self.long_share, "long_share") < 1:
            raise InvalidValue(
                "long_share", self.long_share, "must lie between 0 and 1", "0.7 is seven tenths"
            )
        if self.shares is not None:
            self._check_shares(self.shares)
            object.__setattr__(self, "shares", frozen(self.shares))

    def _check_shares(self, shares: object) -> None:
        if not isinstance(shares, Mapping):
            raise InvalidValue(
                "shares", shares, "must be shares by domain", "write {'books': 0.5, 'code': 0.5}"
            )
        for name, share in shares.items():
            key, half = f"shares.{name}", "0.5 is half of all tokens"
            check_between(real_number(share, key), 0, MOST_SHARE, key, half, f"{MOST_SHARE:,}")
        if not sum(shares.values()):
            raise InvalidValue(
                "shares",
                dict(shares),
                "at least one must be above 0",
                "omit shares to keep those of the corpus",
            )


class Group(NamedTuple):
    """Documents of one kind, and how many of their tokens an epoch reads."""

    name: str
    documents: IntArray
    tokens: int
    """The tokens that an epoch reads."""
    available: int
    """The tokens of all its documents."""

    @property
    def repeated(self) -> float:
        """The number of times that an epoch reads each document, on average."""
        return self.tokens / self.available


def groups(
    lengths: IntArray, domains: IntArray, names: tuple[str, ...], mixture: Mixture
) -> list[Group]:
    """The groups of an epoch; `domains` holds an index of `names` for every document."""
    # The tokens of an epoch are divided among domains, then within each by length.
    total = int(lengths.sum())
    tokens = np.bincount(domains, lengths, len(names)).tolist()
    shares = _shares(mixture, dict(zip(names, tokens, strict=True)))
    wanted = mixture.tokens or total
    result = [
        group
        for index, name in enumerate(names)
        for group in _of_domain(
            name,
            np.flatnonzero((domains == index) & (lengths > 0)),
            lengths,
            wanted * shares[name],
            mixture,
        )
    ]
    # An epoch must be able to follow the mixture, and may not repeat documents too often.
    if mixture.long_share is not None and len(set(lengths >= mixture.long_from)) == 1:
        raise InvalidValue(
            "long_share",
            mixture.long_share,
            f"all documents are on one side of {mixture.long_from} tokens",
            "leave it out, or give another long_from",
        )
    for group in result:
        if group.repeated > MOST_LAPS:
            raise InvalidValue(
                "tokens",
                wanted,
                f"would read each document of {group.name} {group.repeated:,.0f} times in an epoch",
                f"give fewer tokens, or more text of {group.name}",
            )
    if not any(group.tokens >= lengths[group.documents].max() for group in result):
        raise InvalidValue(
            "tokens",
            wanted,
            "gives no domain a share as long as its longest document",
            "give more tokens",
        )
    return result


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
    for label, members, share in parts:
        wanted = round(tokens * share)
        if wanted and members.size:
            yield Group(label, members, wanted, int(lengths[members].sum()))


def check_domains(shares: Mapping[str, float], there: Sequence[str]) -> None:
    """Refuse shares that the domains of a corpus cannot have."""
    for name, share in shares.items():
        if share and name not in there:
            raise InvalidValue(
                f"shares.{name}",
                share,
                "the corpus has no text of this domain",
                f"choose from {', '.join(there)}",
            )
        if len(there) == 1 and name in there and share != 1:
            raise InvalidValue(
                f"shares.{name}",
                share,
                "must be 1, since the corpus has no other domain",
                "leave it out, or add text of another domain",
            )


def _shares(mixture: Mixture, tokens: Mapping[str, float]) -> dict[str, float]:
    """The share of every domain, which add up to 1."""
    total = sum(tokens.values())
    if mixture.shares is None:
        return {name: count / max(total, 1) for name, count in tokens.items()}
    named = dict(mixture.shares)
    check_domains(named, [name for name, count in tokens.items() if count])
    others = {name: count for name, count in tokens.items() if count and name not in named}
    claimed = sum(named.values())
    if not others:
        return {name: named.get(name, 0.0) / claimed for name in tokens}
    if claimed > 1:
        raise InvalidValue(
            "shares",
            named,
            f"add up to {claimed:g}, which leaves nothing for {', '.join(others)}",
            "give shares that add up to 1 at most, or one for each domain",
        )
    rest = {name: (1 - claimed) * count / sum(others.values()) for name, count in others.items()}
    return {name: named.get(name, rest.get(name, 0.0)) for name in tokens}


def documents_of(groups: list[Group], lengths: IntArray, *, seed: int, epoch: int) -> IntArray:
    """The documents of an epoch in random order, some perhaps several times."""
    drawn = [
        _next(group, lengths, (seed, LAP_OF_GROUP, number), epoch)
        for number, group in enumerate(groups)
    ]
    together = np.concatenate([np.zeros(0, dtype=np.int64), *drawn])
    return np.random.default_rng([seed, ORDER_OF_EPOCH, epoch]).permutation(together)


def _next(group: Group, lengths: IntArray, seed: tuple[int, ...], epoch: int) -> IntArray:
    """The documents that begin in this epoch's part of the group's stream."""
    begin, end = epoch * group.tokens, (epoch + 1) * group.tokens
    laps = []
    for lap in range(begin // group.available, (end - 1) // group.available + 1):
        order = np.random.default_rng([*seed, lap]).permutation(group.documents)
        starts = lap * group.available + np.cumsum(lengths[order]) - lengths[order]
        laps.append(order[(starts >= begin) & (starts < end)])
    return np.concatenate(laps)
