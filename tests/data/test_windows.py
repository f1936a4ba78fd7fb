"""Windows: nothing is lost, labels follow documents, and each is a function of its number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from ropewalk.attention.layout import PADDING
from ropewalk.data.corpora import Document
from ropewalk.data.mixtures import Mixture
from ropewalk.data.store import TokenStore, build
from ropewalk.data.windows import (
    ANCHORED,
    IGNORED,
    Arrangement,
    SpecialTokens,
    Window,
    Windows,
    WindowSettings,
)
from ropewalk.errors import InputError, InvalidValue

BOS, EOS, LENGTH = 1, 2, 64
SPECIAL = SpecialTokens(BOS, EOS)
TAGS = {"code": (7, 8, 9), "prose": (6,)}
APART = [name for name in get_args(Arrangement) if name not in ("full", "bookends")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """Documents of 1 to 200 tokens, each token of its own value, so that any can be told."""
    random, taken = np.random.default_rng(0), 10
    encoded: dict[str, list[int]] = {}
    for i, length in enumerate(random.integers(1, 200, 60).tolist()):
        encoded[str(i)] = list(range(taken, taken + length))
        taken += length
    documents = [Document(name, name) for name in encoded]
    return build(
        tmp_path_factory.mktemp("store") / "store",
        {"code": documents[:20], "prose": documents[20:]},
        lambda texts: [encoded[text] for text in texts],
        tokenizer="numbers",
    )


def settings(arrangement: Arrangement = "anchor", **more: Any) -> WindowSettings:
    target = 256 if arrangement == "skip" else None
    return WindowSettings(LENGTH, arrangement, target=target, **more)


def pieces(window: Window) -> Iterator[np.ndarray[Any, Any]]:
    """The places of each document, in its own order."""
    layout = window.layout
    order = layout.order[layout.anchor_length :]
    ids = layout.document_ids[order]
    for document in np.unique(ids):
        yield order[ids == document]


@pytest.mark.parametrize("arrangement", get_args(Arrangement))
@pytest.mark.parametrize("filling", ["best_fit", "greedy"])
def test_an_epoch_holds_every_token_once(
    arrangement: Arrangement, filling: Any, store: TokenStore
) -> None:
    windows = Windows(store, settings(arrangement, filling=filling), SPECIAL)
    seen = []
    for window in windows:
        assert window.tokens.size == window.labels.size == window.layout.length == LENGTH
        seen += window.tokens[window.layout.document_ids != PADDING].tolist()
    text = [token for token in seen if token not in (BOS, EOS)]
    assert sorted(text) == list(range(10, 10 + int(store.lengths.sum())))
    assert seen.count(EOS) == len(store) + len(windows) * (arrangement == "bookends")
    begins = len(windows) if arrangement in (*ANCHORED, "bookends") else 0
    assert seen.count(BOS) == begins
    assert windows.packing.filled > 0.9


@pytest.mark.parametrize("arrangement", APART)
@pytest.mark.parametrize("tags", [None, TAGS])
def test_a_label_is_the_next_token_of_its_own_document(
    arrangement: Arrangement, tags: Any, store: TokenStore
) -> None:
    for window in Windows(store, settings(arrangement, tags=tags), SPECIAL):
        labelled = np.zeros(LENGTH, dtype=bool)
        for places in pieces(window):
            following = window.tokens[places][1:]
            expected = np.where((following >= 6) & (following <= 9), IGNORED, following)
            assert window.labels[places][:-1].tolist() == expected.tolist()
            labelled[places[:-1]] = True
        assert (window.labels[~labelled] == IGNORED).all()


@pytest.mark.parametrize("arrangement", ["full", "bookends"])
def test_where_all_is_one_text_every_next_token_is_a_label(
    arrangement: Arrangement, store: TokenStore
) -> None:
    for window in Windows(store, settings(arrangement), SPECIAL):
        last = int((window.layout.document_ids != PADDING).sum()) - 1
        assert window.labels[:last].tolist() == window.tokens[1 : last + 1].tolist()
        assert (window.labels[last:] == IGNORED).all()
        if arrangement == "bookends":
            assert (window.tokens[0], window.tokens[last]) == (BOS, EOS)


def test_tags_begin_the_documents_of_their_domain(store: TokenStore) -> None:
    windows = Windows(store, settings(tags=TAGS, overflow="drop"), SPECIAL)
    for window in windows:
        for places in pieces(window):
            tokens = window.tokens[places].tolist()
            tag = TAGS["code"] if tokens[0] == 7 else TAGS["prose"]
            assert tuple(tokens[: len(tag)]) == tag
            first = tokens[len(tag)] - 10
            document = int(np.searchsorted(np.cumsum(store.lengths), first, side="right"))
            assert TAGS[store.domains[int(store.of_domain[document])]] == tag


def test_positions_skip_ahead_up_to_the_target_and_no_further(store: TokenStore) -> None:
    reached, skipped = [], 0
    for window in Windows(store, settings("skip"), SPECIAL):
        assert window.layout.positions[0] == 0
        for places in pieces(window):
            positions = window.layout.positions[places]
            assert (np.diff(positions) >= 1).all()
            assert positions[0] >= 1
            skipped += int((np.diff(positions) > 1).sum())
            reached.append(int(positions[-1]))
    assert 200 < max(reached) < 256
    assert skipped > len(reached) / 2


def test_a_window_is_a_function_of_its_number(store: TokenStore) -> None:
    def same(a: Window, b: Window) -> bool:
        return a.tokens.tolist() == b.tokens.tolist() and a.layout == b.layout

    for arrangement in ("anchor", "interleaved", "skip"):
        chosen = settings(arrangement)
        whole = list(Windows(store, chosen, SPECIAL))
        assert same(Windows(store, chosen, SPECIAL)[5], whole[5])
        assert same(Windows(store, chosen, SPECIAL)[-1], whole[-1])
        assert not same(Windows(store, chosen, SPECIAL, epoch=1)[5], whole[5])
        assert not same(Windows(store, replace(chosen, seed=1), SPECIAL)[5], whole[5])
    with pytest.raises(IndexError):
        Windows(store, settings(), SPECIAL)[10_000]


def test_the_longest_documents_are_not_all_read_first(store: TokenStore) -> None:
    windows = Windows(store, settings(overflow="drop"), SPECIAL)
    counts = [window.layout.document_lengths.size for window in windows]
    assert counts != sorted(counts)


def test_the_mixture_decides_what_is_read(store: TokenStore) -> None:
    only = settings(mixture=Mixture(shares={"prose": 1.0}))
    read = set(store.of_domain[Windows(store, only, SPECIAL).drawn].tolist())
    assert read == {store.domains.index("prose")}
    few = settings(mixture=Mixture(tokens=1))
    with pytest.raises(InputError, match="no document to read"):
        Windows(store, few, SPECIAL, epoch=1).drawn  # noqa: B018


def test_a_tokenizer_without_bos_anchors_with_eos_and_without_both_is_refused(
    store: TokenStore,
) -> None:
    assert Windows(store, settings(), SpecialTokens(None, EOS))[0].tokens[0] == EOS
    with pytest.raises(InputError, match="neither BOS nor EOS to be the anchor"):
        Windows(store, settings(), SpecialTokens(None, None))
    with pytest.raises(InputError, match="no EOS to end a window with"):
        Windows(store, settings("bookends"), SpecialTokens(BOS, None))
    for window in Windows(store, settings("intra"), SpecialTokens(None, None)):
        assert not {BOS, EOS} & set(window.tokens[window.layout.document_ids != PADDING].tolist())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"length": 3}, "length = 3: must be at least 4"),
        ({"length": 64, "arrangement": "anchr"}, "arrangement = 'anchr': must be one of full"),
        ({"length": 64, "chunks": 0}, "chunks = 0"),
        ({"length": 64, "seed": -1}, "seed = -1"),
        ({"length": 64, "arrangement": "skip"}, "target = None: goes with"),
        ({"length": 64, "target": 128}, "target = 128: goes with"),
        ({"length": 64, "arrangement": "skip", "target": 32}, "target = 32: is shorter"),
    ],
)
def test_settings_that_fit_no_window_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        WindowSettings(**given)


def test_tags_of_no_domain_are_refused(store: TokenStore) -> None:
    with pytest.raises(InvalidValue, match="must be one of code, prose"):
        Windows(store, settings(tags={"verse": (5,)}), SPECIAL)
