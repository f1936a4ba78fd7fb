"""Layers that mix tokens outside attention keep documents apart, or the model is refused."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import DynamicCache

from ropewalk.attention.layout import AttentionLayout
from ropewalk.data.windows import Arrangement
from ropewalk.errors import Unsupported
from ropewalk.models.renamed import cache_name
from ropewalk.training.mixers import ByDocument, _knows_boundaries, apart, keep_apart
from tests.models.tiny import tiny_model
from tests.training import tiny
from tests.training.hybrids import DEAF, HYBRIDS, built, trainable

pytestmark = pytest.mark.filterwarnings("ignore")  # of kernels that are not installed

LENGTHS = (13, 1, 9, 20)
_LAYOUTS = {
    "intra": AttentionLayout.intra_document(LENGTHS),
    "reset": AttentionLayout.intra_document_reset(LENGTHS),
    "anchor": AttentionLayout.anchor(LENGTHS),
    "interleaved": AttentionLayout.interleaved(LENGTHS, chunks=3, seed=1),
}


def tokens_of(layout: AttentionLayout, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(3, 64, (1, layout.length)))


def places(layout: AttentionLayout, document: int) -> np.ndarray[Any, Any]:
    """Of a document's tokens, behind the anchor."""
    return np.flatnonzero((layout.document_ids == document) | (layout.document_ids == -1))


def losses(model: Any, ids: Tensor, layout: AttentionLayout) -> list[Tensor]:
    """The loss of each document, from one forward of the window."""
    positions = torch.from_numpy(layout.positions.copy())[None]
    logits = model(input_ids=ids, position_ids=positions, layout=layout).logits[0]
    return [
        cross_entropy(logits[own[:-1]], ids[0][own[1:]], reduction="sum")
        for own in (places(layout, number) for number in range(len(LENGTHS)))
    ]


@pytest.mark.parametrize("family", HYBRIDS)
def test_parts_that_mix_are_found_and_documents_lose_what_they_lose_alone(family: str) -> None:
    """Alone: each document read by the stock model, that knows no layout, behind its anchor."""
    model, stock = built(family), built(family)
    assert keep_apart(model) == HYBRIDS[family]["mixers"]
    assert keep_apart(model) == apart(model) == HYBRIDS[family]["mixers"]  # a second time too
    for name, layout in _LAYOUTS.items():
        ids = tokens_of(layout)
        packed = losses(model, ids, layout)
        for number, loss in enumerate(packed):
            own = places(layout, number)
            # Without a mask, transformers takes a jump in positions for a new document.
            logits = stock(
                input_ids=ids[:, own],
                position_ids=torch.from_numpy(layout.positions[own])[None],
                attention_mask=torch.ones(1, len(own), dtype=torch.long),
                use_cache=False,
            ).logits[0]
            alone = cross_entropy(logits[:-1], ids[0][own[1:]], reduction="sum")
            assert loss.item() == pytest.approx(alone.item(), abs=1e-5 * len(own)), (name, number)


@pytest.mark.parametrize("family", [*HYBRIDS, "qwen3_next without experts"])
@pytest.mark.parametrize("arrangement", _LAYOUTS)
def test_a_document_changes_nothing_of_another(family: str, arrangement: str) -> None:
    """Neither loss nor gradients, to the bit; but where experts share a matrix product, which
    rounds by all their tokens."""
    layout = _LAYOUTS[arrangement]
    name, *dense = family.split(" without ")
    model = built(name, **({"mlp_only_layers": [0, 1, 2, 3]} if dense else {}))
    assert keep_apart(model) == HYBRIDS[name]["mixers"]
    ids = tokens_of(layout)
    others = ids.clone()
    changed = layout.document_ids == 0
    others[0][changed] = tokens_of(layout, seed=1)[0][changed]

    def seen(given: Tensor) -> tuple[Tensor, list[Tensor]]:
        model.zero_grad()
        loss = losses(model, given, layout)[2]
        torch.autograd.backward(loss)
        return loss.detach(), [
            own.grad.clone() for own in model.parameters() if own.grad is not None
        ]

    (one, gradients), (other, same) = seen(ids), seen(others)
    near = 1e-6 if family == "qwen3_next" else 0.0
    torch.testing.assert_close(one, other, rtol=near, atol=near)
    torch.testing.assert_close(gradients, same, rtol=near, atol=near)
    first, changed_first = (losses(model, given, layout)[0] for given in (ids, others))
    assert abs(first - changed_first) > 0.1  # of itself it does change


@pytest.mark.parametrize("family", HYBRIDS)
@pytest.mark.parametrize("arrangement", ["full", "bookends"])
def test_windows_of_full_and_bookends_lose_what_the_stock_model_does(
    family: str, arrangement: Arrangement, store: Path
) -> None:
    """As training reads them: documents see each other through states too."""
    model, stock = built(family), built(family)
    keep_apart(model)
    window = tiny.stream(store, arrangement)[3]
    ids, positions = (
        torch.from_numpy(own.copy())[None] for own in (window.tokens, window.layout.positions)
    )
    made = model(input_ids=ids, position_ids=positions, layout=window.layout).logits[0]
    expected = stock(input_ids=ids).logits[0]
    torch.testing.assert_close(made, expected, rtol=0, atol=2e-5)
    labels = torch.from_numpy(window.labels.copy())
    ours, theirs = (cross_entropy(own, labels) for own in (made, expected))
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-6)


@pytest.mark.parametrize("family", HYBRIDS)
def test_no_class_is_believed_that_its_fallback_keeps_boundaries(family: str) -> None:
    """On a CPU, some raise where they are given any, and some take them and do nothing."""
    model = built(family)
    keep_apart(model)
    for name in apart(model):
        assert not vars(model.get_submodule(name))["forward"]._boundaries, name


def test_kinds_that_mix_are_found_one_behind_another() -> None:
    """What the second is given differs already, until the first keeps documents apart."""
    model = built("lfm2")
    second = model.model.layers[1].conv
    second.__class__ = type("OtherConvolution", (type(second),), {})
    assert keep_apart(model) == HYBRIDS["lfm2"]["mixers"]


@pytest.mark.parametrize("family", HYBRIDS)
def test_full_windows_are_those_of_the_stock_model(family: str) -> None:
    """Also in a batch, and with the cache that transformers makes by itself."""
    model, stock = built(family), built(family)
    keep_apart(model)
    layout = AttentionLayout.full(LENGTHS)
    ids = torch.cat([tokens_of(layout), tokens_of(layout, seed=1)])
    expected = stock(input_ids=ids).logits
    made = model(input_ids=ids, layout=[layout, layout], use_cache=True).logits
    torch.testing.assert_close(made, expected, rtol=0, atol=2e-5)
    torch.testing.assert_close(model(input_ids=ids).logits, expected, rtol=0, atol=2e-5)


def test_rows_of_a_batch_follow_their_own_layouts_and_padding_is_left_out() -> None:
    model = built("lfm2")
    keep_apart(model)
    layouts = [_LAYOUTS["anchor"].padded_to(60), AttentionLayout.full([60])]
    ids = torch.cat([tokens_of(layout) for layout in layouts])
    positions = torch.stack([torch.from_numpy(own.positions.copy()) for own in layouts])
    together = model(input_ids=ids, position_ids=positions, layout=layouts).logits
    for row, layout in enumerate(layouts):
        alone = model(input_ids=ids[[row]], position_ids=positions[[row]], layout=layout).logits
        here = layout.document_ids >= 0
        torch.testing.assert_close(together[row][here], alone[0][here], rtol=0, atol=1e-5)
    others = ids.clone()
    others[0, 50:] = 7  # padding
    assert torch.equal(
        model(input_ids=others, position_ids=positions, layout=layouts).logits[0, :44],
        together[0, :44],
    )


def test_a_cache_carries_no_document_into_another() -> None:
    """transformers makes one in every forward, unless it is told otherwise."""
    model, layout = built("falcon_h1"), _LAYOUTS["reset"]
    keep_apart(model)
    ids, positions = tokens_of(layout), torch.from_numpy(layout.positions.copy())[None]
    given = {"input_ids": ids, "position_ids": positions, "layout": layout}
    cached = model(**given, **{cache_name(model): DynamicCache(config=model.config)}).logits
    assert torch.equal(cached, model(**given, use_cache=False).logits)


@pytest.mark.parametrize("recomputed", [False, True])
def test_a_hybrid_trains_as_its_documents_do_alone(
    store: Path, tmp_path: Path, recomputed: bool
) -> None:
    model = trainable("lfm2")
    trained = tiny.trainer(
        tmp_path, tiny.stream(store), 2, model=model, gradient_checkpointing=recomputed
    )
    trained.train()
    found = tiny.course(trained)
    windows = [tiny.stream(store)[place] for place in range(tiny.PER_STEP)]
    targets = sum(int((window.labels != -100).sum()) for window in windows)
    alone = tiny.alone(windows, trainable("lfm2"))
    assert found.losses[0] == pytest.approx(alone / targets, abs=1e-5)
    assert found.losses[1] != found.losses[0]


@pytest.mark.parametrize("family", DEAF)
def test_layers_that_are_not_told_the_layout_are_refused_by_name(family: str) -> None:
    with pytest.raises(Unsupported, match="mixes tokens") as refused:
        keep_apart(built(family))
    assert f": {DEAF[family]['mixers']}; these parts ignore" in str(refused.value)


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen3", "phimoe", "granite"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_others_are_left_as_they_are(family: str, dtype: torch.dtype) -> None:
    """Also where experts share a matrix product, which rounds by all their tokens."""
    assert keep_apart(tiny_model(family).to(dtype)) == []


def test_the_trainer_refuses_before_it_begins(store: Path, tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"model\.layers\.0\.mamba"):
        tiny.trainer(tmp_path / "out", tiny.stream(store), 1, model=built("jamba"))
    assert not (tmp_path / "out").exists()


class _Averages(nn.Module):
    """A mixer of running means, which keeps packed sequences apart as the kernels do, or says it
    does: it may ignore boundaries, take them wrongly, or raise."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner, self.kind, self.calls = nn.Linear(8, 8), kind, 0

    def forward(self, rows: Tensor, cu_seq_lens_q: Any = None, seq_idx: Any = None) -> Tensor:
        self.calls += 1
        if cu_seq_lens_q is not None and self.kind == "raises":
            raise ValueError("not without its kernel")
        ends = [0, rows.shape[1]]
        if cu_seq_lens_q is not None and self.kind != "ignores":
            ends = cu_seq_lens_q.tolist()
            assert (np.diff(ends) == np.bincount(seq_idx[0].numpy())).all()
        if cu_seq_lens_q is not None and self.kind == "shifts":
            ends = [0, *(end + 1 for end in ends[1:-1]), ends[-1]]
        pieces = [rows[:, a:b] for a, b in pairwise(ends)]
        counts = [torch.arange(1, own.shape[1] + 1)[None, :, None] for own in pieces]
        means = [own.cumsum(1) / count for own, count in zip(pieces, counts, strict=True)]
        made: Tensor = self.inner(torch.cat(means, 1))
        return made


@pytest.mark.parametrize("kind", ["honours", "ignores", "raises", "shifts"])
def test_a_kernels_own_boundaries_are_used_where_they_are_proven(kind: str) -> None:
    part = _Averages(kind)
    assert _knows_boundaries(part) == (kind == "honours")
    rows, layout = torch.randn(1, 44, 8), _LAYOUTS["interleaved"]
    slow = ByDocument(part.forward)(rows, layout=layout)
    before = part.calls
    if kind == "honours":
        fast = ByDocument(part.forward, boundaries=True)(rows, layout=layout)
        torch.testing.assert_close(fast, slow)
        assert part.calls == before + 1


def test_ranks_cannot_share_a_window_of_such_a_model() -> None:
    part = ByDocument(nn.Identity())
    with pytest.raises(Unsupported, match="share a window"):
        part(torch.zeros(1, 22, 8), layout=_LAYOUTS["anchor"])
