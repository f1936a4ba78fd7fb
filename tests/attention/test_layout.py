"""The mask is checked against the definition in words, pair by pair."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.attention import AttentionLayout
from ropewalk.attention.layout import ANCHOR, PADDING
from ropewalk.errors import InvalidValue
from tests.attention.layouts import layouts

Layout = AttentionLayout


def seen(layout: Layout) -> str:
    """The mask as text: a row a query."""
    return "\n".join("".join("#" if cell else "." for cell in row) for row in layout.mask())


def drawn(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


def test_full_is_causal_across_documents() -> None:
    layout = Layout.full([2, 2])
    assert layout.positions.tolist() == [0, 1, 2, 3]
    assert seen(layout) == drawn("#...\n##..\n###.\n####")


def test_intra_document_keeps_positions_running() -> None:
    layout = Layout.intra_document([2, 0, 3])
    assert layout.positions.tolist() == [0, 1, 2, 3, 4]
    assert layout.document_ids.tolist() == [0, 0, 2, 2, 2]
    assert seen(layout) == drawn("#....\n##...\n..#..\n..##.\n..###")


def test_reset_differs_in_positions_alone() -> None:
    reset, running = Layout.intra_document_reset([2, 0, 3]), Layout.intra_document([2, 0, 3])
    assert reset.positions.tolist() == [0, 1, 0, 1, 2]
    assert seen(reset) == seen(running)


def test_the_anchor_is_the_first_token_and_everybody_sees_it() -> None:
    layout = Layout.anchor([5, 3])
    assert layout.length == 9
    assert layout.positions.tolist() == list(range(9))
    assert layout.document_ids.tolist() == [ANCHOR, 0, 0, 0, 0, 0, 1, 1, 1]
    assert seen(Layout.anchor([2, 2])) == drawn("#....\n##...\n###..\n#..#.\n#..##")


def test_a_document_of_one_token_sees_the_anchor_and_itself() -> None:
    assert seen(Layout.anchor([1, 1])) == drawn("#..\n##.\n#.#")


def test_an_anchor_of_several_tokens_is_causal_in_itself() -> None:
    assert seen(Layout.anchor([1, 1], anchor_length=2)) == drawn("#...\n##..\n###.\n##.#")


def test_tags_belong_to_their_documents() -> None:
    one_each = Layout.anchor([5, 0, 3], tag_lengths=1)
    assert one_each.length == 1 + 6 + 0 + 4
    assert one_each == Layout.anchor([6, 0, 4])
    assert Layout.anchor([5, 3], tag_lengths=[2, 0]) == Layout.anchor([7, 3])


def test_padding_sees_nothing_and_is_not_seen() -> None:
    layout = Layout.anchor([2]).padded_to(5)
    assert layout.positions.tolist() == [0, 1, 2, 0, 0]
    assert layout.document_ids.tolist() == [ANCHOR, 0, 0, PADDING, PADDING]
    assert seen(layout) == drawn("#....\n##...\n###..\n.....\n.....")
    assert Layout.anchor([2]).padded_to(3) == Layout.anchor([2])


def test_a_window_that_cuts_a_document_keeps_what_is_before_the_border() -> None:
    assert Layout.anchor([4, 4]).cut_to(7) == Layout.anchor([4, 2])
    assert Layout.anchor([4, 4]).cut_to(4) == Layout.anchor([3])


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 6), st.integers(0, 99))
def test_interleaving_shuffles_chunks_and_keeps_documents_in_order(
    lengths: list[int], chunks: int, seed: int
) -> None:
    layout = Layout.interleaved(lengths, chunks=chunks, seed=seed)
    assert layout == Layout.interleaved(lengths, chunks=chunks, seed=seed)
    # Number every token within its document, put them in place, and read every document back.
    within = np.concatenate([[0], *(np.arange(length) for length in lengths)])
    window = np.empty(layout.length, dtype=np.int64)
    window[layout.order] = within
    for document, length in enumerate(lengths):
        mine = layout.document_ids == document
        assert window[mine].tolist() == list(range(length))
        pieces = int(mine[0]) + int((np.diff(mine.astype(int)) == 1).sum())
        assert pieces <= min(chunks, length)


def test_interleaving_does_mix_documents() -> None:
    layout = Layout.interleaved([50, 50], chunks=5, seed=0)
    assert (np.diff(layout.document_ids[1:]) != 0).sum() > 1
    assert not layout.is_packed


@given(layouts(max_tokens=200))
def test_the_mask_says_what_the_definition_says(layout: Layout) -> None:
    mask = layout.mask()
    ids = layout.document_ids
    for query in range(layout.length):
        for key in range(layout.length):
            present = ids[query] != PADDING and ids[key] != PADDING
            allowed = ids[key] == ids[query] or key < layout.anchor_length
            near = layout.positions[query] - layout.positions[key] < (layout.sliding_window or 1e9)
            assert mask[query, key] == (key <= query and present and allowed and near)


@given(layouts())
def test_area_and_reach_are_those_of_the_mask(layout: Layout) -> None:
    query, key = np.nonzero(layout.mask())
    assert layout.area() == query.size
    back = (layout.positions[query] - layout.positions[key]).max(initial=-1) + 1
    assert back == min(layout.reach(), layout.sliding_window or layout.reach())
    assert layout.within(layout.reach()) is layout


@given(layouts())
def test_order_reads_document_by_document(layout: Layout) -> None:
    ids = layout.document_ids[layout.order]
    assert (ids[: layout.anchor_length] == ANCHOR).all()
    assert (np.diff(ids[layout.anchor_length :]) >= 0).all()
    counts = np.bincount(ids[layout.anchor_length :])
    assert layout.document_lengths.tolist() == counts[counts > 0].tolist()
    assert layout.is_packed == (layout.order.tolist() == list(range(layout.length)))


@given(layouts())
def test_layouts_are_values(layout: Layout) -> None:
    twin = Layout.from_json(json.loads(json.dumps(layout.to_json())))
    assert twin == layout
    assert hash(twin) == hash(layout)
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert layout != layout.padded_to(layout.length + 1)
    with pytest.raises(ValueError, match="read-only"):
        layout.positions[0] = 1


def test_a_layout_does_not_share_the_arrays_it_was_made_from() -> None:
    ids = np.zeros(3, dtype=np.int64)
    layout = Layout(np.arange(3), ids)
    ids[2] = 1
    assert layout.document_ids.tolist() == [0, 0, 0]


def raw(positions: Any, document_ids: Any, anchor_length: Any = 0) -> Layout:
    return Layout(positions, document_ids, anchor_length)


BAD: list[tuple[Callable[[], Layout], str]] = [
    (lambda: raw(np.arange(3), np.zeros(4, dtype=int)), "3 values.*4 document_ids"),
    (lambda: raw([], []), "at least one token"),
    (lambda: raw([0], [PADDING]), "not padding"),
    (lambda: raw([0, 1], [0, -7]), r"document_ids\[1\] = -7"),
    (lambda: raw([0, 1], [0, ANCHOR], 0), r"document_ids\[1\] = -1"),
    (lambda: raw([0, 1], [0, 0], 1), "anchor_length = 1.*has 0 tokens"),
    (lambda: raw([0, 1], [ANCHOR, 0], 3), "anchor_length = 3.*has 1 tokens"),
    (lambda: raw([0, 1], [0, 0], -1), "anchor_length = -1"),
    (lambda: raw([0, 2, 1], [0, 0, 0]), r"positions\[2\] = 1: must be above 2"),
    (lambda: raw([3, 9, 3], [0, 1, 0]), r"positions\[2\] = 3: must be above 3"),
    (lambda: raw([0, -1], [0, 1]), r"positions\[1\] = -1"),
    (lambda: raw([5, 5], [ANCHOR, 0], 1), r"positions\[1\] = 5: must be above 5"),
    (lambda: raw([0.0, 1.0], [0, 0]), "float64 of shape"),
    (lambda: raw([[0, 1]], [0, 0]), r"shape \(1, 2\)"),
    (lambda: raw(torch.arange(2, device="meta"), [0, 0]), "in host memory"),
    (lambda: Layout.full([3, -1]), r"document_lengths\[1\] = -1"),
    (lambda: Layout.full([0]), "at least one token"),
    (lambda: Layout.anchor([5, 3], tag_lengths=[1]), "1 tags.*2 documents"),
    (lambda: Layout.anchor([5, 3], tag_lengths=[1, -2]), r"tag_lengths\[1\] = -2"),
    (lambda: Layout.anchor([5], anchor_length=-1), "anchor_length = -1"),
    (lambda: Layout.interleaved([5], chunks=0, seed=0), "chunks = 0"),
    (lambda: Layout.anchor([5, 3]).padded_to(4), "length = 4.*has 9 tokens"),
    (lambda: Layout.anchor([5, 3]).cut_to(20), "length = 20.*has 9 tokens"),
    (lambda: Layout.anchor([5], anchor_length=2).cut_to(1), "length = 1"),
    (lambda: Layout.from_json({"positions": [0]}), "layout.document_ids"),
    (
        lambda: Layout.from_json({"positions": [0.5], "document_ids": [0], "anchor_length": 0}),
        r"layout.positions\[0\] = 0.5",
    ),
]


@pytest.mark.parametrize(("make", "says"), BAD)
def test_a_refusal_names_both_values(make: Callable[[], Layout], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        make()


def test_a_layout_needs_no_torch() -> None:
    code = """
import sys
from ropewalk.attention import AttentionLayout
AttentionLayout.anchor([5, 3]).mask()
assert "torch" not in sys.modules and "transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_of_the_package_are_refused_as_python_does() -> None:
    import ropewalk.attention

    with pytest.raises(AttributeError, match="no_such_thing"):
        ropewalk.attention.no_such_thing  # noqa: B018
