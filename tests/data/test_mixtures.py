"""Mixtures: shares of tokens by domain and length, and what an epoch reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.data.mixtures import Mixture, _next, documents_of, groups
from ropewalk.data.packing import IntArray
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


def test_a_share_of_long_documents_needs_some_of_both_kinds() -> None:
    for lengths in ([100, 200], [5000, 6000]):
        with pytest.raises(InvalidValue, match="on one side of 4096 tokens"):
            groups(np.array(lengths), np.array([0, 1]), NAMES, Mixture(long_share=0.5))


def test_domains_without_a_share_divide_the_rest() -> None:
    lengths, domains = np.full(60, 100), np.repeat([0, 1, 2], [10, 20, 30])
    names = ("books", "code", "prose")
    found = groups(lengths, domains, names, Mixture(1000, {"books": 0.5}))
    assert [(group.name, group.tokens) for group in found] == [
        ("books", 500), ("code", 200), ("prose", 300)
    ]  # fmt: skip
    found = groups(lengths, domains, names, Mixture(1000, {"books": 3, "code": 1, "prose": 0}))
    assert [(group.name, group.tokens) for group in found] == [("books", 750), ("code", 250)]


def test_each_time_through_a_group_has_an_order_of_its_own() -> None:
    lengths = np.full(50, 10)
    there = groups(lengths, np.zeros(50, dtype=np.int64), ("all",), Mixture())
    laps = [_next(there[0], lengths, (0,), epoch).tolist() for epoch in range(3)]
    assert all(sorted(lap) == list(range(50)) for lap in laps)
    assert len({tuple(lap) for lap in laps}) == 3


@given(st.integers(1, 9), st.integers(60_000, 3_000_000))
def test_no_document_is_read_much_more_often_than_another(epochs: int, tokens: int) -> None:
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


TABLE_9 = {  # share of sequences and of tokens in percent: SlimPajama-128K, then up-sampled
    "C4": (55.32, 26.50, 52.34, 19.53),
    "ArXiv": (0.30, 4.64, 1.01, 5.86),
    "GitHub": (3.65, 5.05, 3.68, 6.61),
    "StackExchange": (5.06, 3.18, 4.56, 1.64),
    "CommonCrawl": (31.01, 53.42, 33.40, 58.14),
    "Wikipedia": (4.59, 3.34, 4.79, 3.51),
    "Books": (0.06, 3.88, 0.21, 4.69),
}


def test_the_mixture_of_the_paper_is_drawn_from_its_ratios() -> None:
    """Table 9 of the AnchorAttention paper.

    Documents are made with the numbers and the mean lengths of the original mixture. With the
    up-sampled shares of tokens, the shares of sequences follow from these lengths alone; the
    paper's also changed the lengths within domains, so they are compared with what follows.
    """
    random = np.random.default_rng(0)
    lengths, domains, means = [], [], []
    for index, (sequences, tokens, _, _) in enumerate(TABLE_9.values()):
        mean = 1000 * tokens / sequences
        own = np.maximum(1, random.gamma(4, mean / 4, int(sequences * 1000))).astype(np.int64)
        lengths.append(own)
        domains.append(np.full(own.size, index))
        means.append(own.mean())
    length, domain = np.concatenate(lengths), np.concatenate(domains)
    natural = np.bincount(domain, length) / length.sum()
    original = np.array([tokens for _, tokens, _, _ in TABLE_9.values()])
    np.testing.assert_allclose(100 * natural, original, rtol=0.1)
    shares = {name: tokens for name, (_, _, _, tokens) in TABLE_9.items()}
    there = groups(length, domain, tuple(TABLE_9), Mixture(300_000_000, shares))
    found = documents_of(there, length, seed=0, epoch=0)
    drawn = np.bincount(domain[found], length[found]) / length[found].sum()
    np.testing.assert_allclose(100 * drawn, list(shares.values()), rtol=0.01)
    expected = np.array(list(shares.values())) / means
    counted = np.bincount(domain[found]) / found.size
    np.testing.assert_allclose(counted, expected / expected.sum(), rtol=0.1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokens": 0}, "tokens = 0: must lie between 1 and"),
        ({"long_share": 1.0}, "long_share = 1.0: must lie between 0 and 1"),
        ({"long_from": 0}, "long_from = 0"),
        ({"shares": {"code": -1.0}}, "shares.code = -1.0"),
        ({"shares": {"code": float("nan")}}, "shares.code = nan: must be"),
        ({"shares": {"code": 0.0}}, "at least one must be above 0"),
        ({"shares": {"books": 1.0}}, "shares.books = 1.0: the corpus has no text of this domain"),
        ({"shares": {"code": 2.0}}, "leaves nothing for prose"),
        ({"shares": ["code"]}, "must be shares by domain"),
        ({"shares": {"code": "x"}}, "shares.code = 'x': must be a number"),
        ({"tokens": "5"}, "tokens = '5': must be a whole number"),
        ({"tokens": 1.5}, "tokens = 1.5: must be a whole number"),
        ({"long_share": "x"}, "long_share = 'x': must be a number"),
        ({"tokens": 10**14}, "would read each document of code"),
        ({"tokens": 10}, "a share as long as its longest document"),
    ],
)
def test_shares_that_cannot_be_given_are_refused(settings: dict[str, Any], message: str) -> None:
    lengths, domains = corpus()
    with pytest.raises(InvalidValue, match=message):
        groups(lengths, domains, NAMES, Mixture(**settings))


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_a_domain_alone_has_no_other_share_than_all(share: float) -> None:
    lengths, domains = np.array([5, 7]), np.zeros(2, dtype=np.int64)
    with pytest.raises(InvalidValue, match="must be 1, since the corpus has no other domain"):
        groups(lengths, domains, ("text",), Mixture(shares={"text": share}))
    assert groups(lengths, domains, ("text",), Mixture(shares={"text": 1.0}))
