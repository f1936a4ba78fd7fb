"""Mixtures: shares of tokens by domain and length, and what an epoch reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.data.mixtures import IntArray, Mixture, documents_of, groups
from ropewalk.errors import InvalidValue

NAMES = ("code", "prose")


def corpus(seed: int = 0, documents: int = 4000) -> tuple[IntArray, IntArray]:
    """A tenth of it long."""
    random = np.random.default_rng(seed)
    lengths = np.where(
        random.random(documents) < 0.1,
        random.integers(4096, 20_000, documents),
        random.integers(100, 4096, documents),
    )
    return lengths, random.integers(0, 2, documents)


def read(mixture: Mixture, epoch: int = 0, seed: int = 0) -> tuple[IntArray, IntArray, IntArray]:
    """The documents of an epoch, their lengths and their domains."""
    lengths, domains = corpus()
    found = documents_of(groups(lengths, domains, NAMES, mixture), lengths, seed=seed, epoch=epoch)
    return found, lengths[found], domains[found]


def test_an_epoch_without_wishes_is_every_document_once_in_another_order() -> None:
    first, second = read(Mixture())[0], read(Mixture(), epoch=1)[0]
    assert sorted(first) == sorted(second) == list(range(4000))
    assert first.tolist() != second.tolist()
    assert first.tolist() == read(Mixture())[0].tolist()
    assert first.tolist() != read(Mixture(), seed=1)[0].tolist()


def test_domains_get_their_shares_of_tokens() -> None:
    _, lengths, domains = read(Mixture(2_000_000, {"code": 3, "prose": 1}))
    assert lengths.sum() == pytest.approx(2_000_000, abs=40_000)
    assert lengths[domains == 0].sum() / lengths.sum() == pytest.approx(0.75, abs=0.01)


def test_long_documents_are_read_more_often_and_domains_keep_their_shares() -> None:
    _, before, domains_before = read(Mixture())
    _, after, domains = read(Mixture(long_share=0.7))
    for domain in range(2):
        own, natural = after[domains == domain], before[domains_before == domain]
        assert own[own >= 4096].sum() / own.sum() == pytest.approx(0.7, abs=0.01)
        assert own.sum() / after.sum() == pytest.approx(natural.sum() / before.sum(), abs=0.01)


def test_a_domain_of_one_kind_of_length_keeps_all_its_tokens() -> None:
    lengths, domains = np.array([5000, 6000, 100, 200]), np.array([0, 0, 1, 1])
    found = groups(lengths, domains, NAMES, Mixture(long_share=0.5))
    assert [(group.name, group.tokens) for group in found] == [("code", 11_000), ("prose", 300)]


@given(st.integers(1, 9), st.integers(1, 3_000_000))
def test_nothing_is_read_twice_before_all_was_read_once(epochs: int, tokens: int) -> None:
    lengths, domains = corpus(documents=300)
    there = groups(lengths, domains, NAMES, Mixture(tokens))
    read_so_far: Counter[int] = Counter()
    for epoch in range(epochs):
        found = documents_of(there, lengths, seed=1, epoch=epoch)
        read_so_far.update(found.tolist())
    for group in there:
        times = [read_so_far[document] for document in group.documents.tolist()]
        assert max(times) - min(times) <= 1
    slack = 2 * 20_000 * len(there)
    total = sum(int(lengths[document]) * count for document, count in read_so_far.items())
    assert total == pytest.approx(epochs * sum(group.tokens for group in there), abs=slack)


TABLE_9 = {  # up-sampled data mixture: share of sequences, share of tokens, in percent
    "C4": (52.34, 19.53),
    "ArXiv": (1.01, 5.86),
    "GitHub": (3.68, 6.61),
    "StackExchange": (4.56, 1.64),
    "CommonCrawl": (33.40, 58.14),
    "Wikipedia": (4.79, 3.51),
    "Books": (0.21, 4.69),
}


def test_the_shares_of_sequences_of_the_paper_follow_from_its_shares_of_tokens() -> None:
    """Table 9 of the AnchorAttention paper, on documents as long as it says on average."""
    random = np.random.default_rng(0)
    lengths, domains = [], []
    for index, (sequences, tokens) in enumerate(TABLE_9.values()):
        mean = 1000 * tokens / sequences
        own = np.maximum(1, random.gamma(4, mean / 4, 3000)).astype(np.int64)
        lengths.append(own)
        domains.append(np.full(own.size, index))
    length, domain = np.concatenate(lengths), np.concatenate(domains)
    shares = {name: tokens for name, (_, tokens) in TABLE_9.items()}
    there = groups(length, domain, tuple(TABLE_9), Mixture(20_000_000, shares))
    found = documents_of(there, length, seed=0, epoch=0)
    counted = np.bincount(domain[found])
    for index, (sequences, tokens) in enumerate(TABLE_9.values()):
        own = length[found[domain[found] == index]]
        assert 100 * own.sum() / length[found].sum() == pytest.approx(tokens, rel=0.03)
        assert 100 * counted[index] / counted.sum() == pytest.approx(sequences, rel=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokens": 0}, "tokens = 0: must be at least 1"),
        ({"long_share": 1.0}, "long_share = 1.0: must lie between 0 and 1"),
        ({"long_from": 0}, "long_from = 0"),
        ({"shares": {"code": -1.0}}, "shares.code = -1.0"),
        ({"shares": {"code": float("nan")}}, "shares.code = nan"),
        ({"shares": {"code": 0.0}}, "must not all be 0"),
        ({"shares": {"books": 1.0}}, "shares.books = 1.0: there is no text of this domain"),
    ],
)
def test_shares_that_cannot_be_given_are_refused(settings: dict[str, Any], message: str) -> None:
    lengths, domains = corpus()
    with pytest.raises(InvalidValue, match=message):
        groups(lengths, domains, NAMES, Mixture(**settings))
