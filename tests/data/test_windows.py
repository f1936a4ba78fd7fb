"""Windows: nothing is lost, labels follow documents, and each is a function of its number."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from ropewalk.attention.layout import PADDING
from ropewalk.data.corpora import Document, Weighted
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
    _skipping,
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
    shared = arrangement in (*ANCHORED, "bookends")
    assert seen.count(BOS) == (len(windows) if shared else len(store))
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
@pytest.mark.parametrize("tags", [None, TAGS])
def test_labels_end_with_documents_also_where_documents_see_each_other(
    arrangement: Arrangement, tags: Any, store: TokenStore
) -> None:
    for window in Windows(store, settings(arrangement, tags=tags), SPECIAL):
        last = int((window.layout.document_ids != PADDING).sum()) - 1
        assert (window.labels[last:] == IGNORED).all()
        following = window.tokens[1 : last + 1]
        labelled = window.labels[:last] != IGNORED
        assert (window.labels[:last][labelled] == following[labelled]).all()
        assert not ((window.labels >= 6) & (window.labels <= 9)).any()
        # No label: after BOS and a document's end, before a tag or the closing EOS, and where a
        # piece of another document begins.
        for place in np.flatnonzero(~labelled).tolist():
            own, after = int(window.tokens[place]), int(following[place])
            is_cut = after != own + 1
            assert own in (BOS, EOS) or 6 <= after <= 9 or is_cut
        if arrangement == "bookends":
            assert (window.tokens[0], window.tokens[last]) == (BOS, EOS)
            assert window.labels[last - 1] == IGNORED


@pytest.mark.parametrize("arrangement", get_args(Arrangement))
@pytest.mark.parametrize("tags", [None, TAGS])
def test_a_label_weighs_what_its_token_weighs(
    arrangement: Arrangement, tags: Any, tmp_path: Path, store: TokenStore
) -> None:
    """Every third token weighs 3, so the token says its weight; a document's end, as its last."""
    assert Windows(store, settings(arrangement, tags=tags), SPECIAL)[0].weights is None
    begins = np.cumsum(store.lengths) - store.lengths
    documents: list[Document] = []
    for begin, length in zip(begins.tolist(), store.lengths.tolist(), strict=True):
        thirds = range(-begin % 3, length, 3)
        weights = tuple(Weighted(place, place + 1, 3.0) for place in thirds)
        tokens = store.tokens(len(documents))
        documents.append(Document(str(begin), "", tokens, weights))
    weighed = build(
        tmp_path,
        {"code": documents[:20], "prose": documents[20:]},
        lambda texts: [],
        tokenizer="numbers",
    )
    for window in Windows(weighed, settings(arrangement, tags=tags), SPECIAL):
        assert window.weights is not None
        assert (window.weights[window.labels == IGNORED] == 0).all()
        for place in np.flatnonzero(window.labels != IGNORED).tolist():
            label, own = int(window.labels[place]), int(window.tokens[place])
            weight = 3 if ((own if label == EOS else label) - 10) % 3 == 0 else 1
            assert window.weights[place] == weight


@pytest.mark.parametrize("arrangement", ["full", "intra", "reset"])
@pytest.mark.parametrize("tags", [None, TAGS])
def test_every_document_begins_with_bos_where_a_window_does_not(
    arrangement: Arrangement, tags: Any, store: TokenStore
) -> None:
    """BOS, then the tag, which no label has; the first word of an untagged text is predicted."""
    windows = Windows(store, settings(arrangement, tags=tags, overflow="drop"), SPECIAL)
    for window in windows:
        begins = np.flatnonzero(window.tokens == BOS)
        for place in begins.tolist():
            after = window.tokens[place + 1 :]
            assert (after[0] in (6, 7)) if tags else after[0] >= 10
            assert window.labels[place] == (IGNORED if tags else after[0])
        if arrangement == "reset":
            assert (window.layout.positions[begins] == 0).all()
    assert sum(int((window.tokens == BOS).sum()) for window in windows) == len(
        {piece.document for pieces in windows.packing for piece in pieces}
    )
    untold = Windows(store, settings(arrangement), SpecialTokens(None, EOS))
    assert not any((window.tokens == BOS).any() for window in untold)


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


def test_where_positions_skip_and_how_far_is_spread_over_all_there_is() -> None:
    random, cuts, ends = np.random.default_rng(0), [], []
    for _ in range(2000):
        positions = _skipping([40], 2, 256, random).positions[1:]
        steps = np.flatnonzero(np.diff(positions) > 1)
        cuts += steps.tolist()
        ends.append(int(positions[-1]))
    assert len(set(cuts)) == 39
    assert max(np.bincount(cuts)) < 2.5 * len(cuts) / 39
    tenths = np.histogram(ends, bins=10, range=(40, 256))[0]
    assert tenths.min() > 120
    assert tenths.max() < 280
    assert max(ends) == 255


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
    with pytest.raises(InvalidValue, match="epoch = -1"):
        Windows(store, settings(), SPECIAL, epoch=-1)


def test_best_fit_decides_neither_the_order_of_windows_nor_that_within_them(
    store: TokenStore,
) -> None:
    windows = Windows(store, settings(overflow="drop"), SPECIAL)
    packed = [sorted(int(windows.drawn[p.document]) for p in pieces) for pieces in windows.packing]
    read, within = [], []
    for window in windows:
        firsts = [int(window.tokens[places[0]]) - 10 for places in pieces(window)]
        ends = np.cumsum(store.lengths)
        documents = [int(np.searchsorted(ends, first, side="right")) for first in firsts]
        read.append(sorted(documents))
        within.append([int(store.lengths[document]) for document in documents])
    assert sorted(read) == sorted(packed)
    assert read != packed
    assert any(lengths != sorted(lengths, reverse=True) for lengths in within)


def test_interleaved_documents_alternate(store: TokenStore) -> None:
    alternate = 0
    for window in Windows(store, settings("interleaved"), SPECIAL):
        for places in pieces(window):
            alternate += bool((np.diff(places) > 1).any())
    assert alternate > 10


def test_windows_go_to_other_processes(store: TokenStore) -> None:
    windows = Windows(store, settings(tags=TAGS), SPECIAL)
    before = windows[3]
    sent = pickle.dumps(windows)
    assert len(sent) < 2000
    again = pickle.loads(sent)[3]
    assert again.tokens.tolist() == before.tokens.tolist()
    assert again.layout == before.layout
    assert pickle.loads(sent).settings == settings(tags=TAGS)


def test_the_mixture_decides_what_is_read(store: TokenStore) -> None:
    only = settings(mixture=Mixture(shares={"prose": 1.0}))
    read = set(store.of_domain[Windows(store, only, SPECIAL).drawn].tolist())
    assert read == {store.domains.index("prose")}
    with pytest.raises(InvalidValue):
        Windows(store, settings(mixture=Mixture(tokens=1)), SPECIAL).drawn  # noqa: B018


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
        ({"length": 3}, "length = 3: must lie between 4 and"),
        ({"length": 2**40}, "length = 1099511627776: must lie between 4 and"),
        ({"length": 64, "tags": {"code": 5}}, "tags.code = 5: must be a list of tokens"),
        ({"length": 64, "tags": {"code": "abc"}}, "tags.code = 'abc': must be a list"),
        ({"length": 64, "tags": {"code": (-5,)}}, "tags.code\\[0\\] = -5: is not a token"),
        ({"length": 64, "layout": "anchr"}, "layout = 'anchr': is not one of the"),
        ({"length": 64, "chunks": 1}, "chunks = 1: must be at least 2"),
        ({"length": 64, "seed": -1}, "seed = -1"),
        ({"length": 64, "layout": "skip"}, "target = None: must be given for"),
        ({"length": 64, "target": 128}, "target = 128: must be given for"),
        ({"length": 64, "layout": "skip", "target": 32}, "target = 32: must be between 64"),
    ],
)
def test_settings_that_fit_no_window_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        WindowSettings(**given)


def test_tags_of_no_domain_are_refused(store: TokenStore) -> None:
    with pytest.raises(InvalidValue, match="must be one of code, prose"):
        Windows(store, settings(tags={"verse": (5,)}), SPECIAL)
