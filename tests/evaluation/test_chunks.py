"""Reading in chunks changes nothing but memory."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ropewalk.attention import cached, varlen
from ropewalk.attention.interface import DeferredMask
from ropewalk.errors import Unsupported
from ropewalk.evaluation import chunks
from ropewalk.evaluation.chunks import Reader
from ropewalk.evaluation.scoring import Scorer
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied
from ropewalk.planning.extension import extend_plan
from tests.evaluation import tiny
from tests.models import tiny as tiny_models
from tests.models.tiny import VOCABULARY, WINDOW, model_of, tiny_config

# Plain, a window in every layer, layer types, sinks without a kernel, latent attention, soft caps.
FAMILIES = ("llama", "mistral", "gemma3_text", "gpt_oss", "deepseek_v3", "gemma2", "phi3")
LENGTH = 50
every_family = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "AT_ONCE", 8)
    monkeypatch.setattr(chunks, "LARGEST", 7)
    monkeypatch.setattr(chunks, "SMALLEST", 7)


def _model(family: str) -> Any:
    return model_of(tiny_config(family)).eval()


def _tokens(*lengths: int, seed: int = 1) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.integers(3, VOCABULARY, size=length) for length in lengths]


@every_family
def test_scores_are_those_of_one_forward(family: str) -> None:
    model, sequences, starts = _model(family), _tokens(LENGTH, 31), [1, 20]
    scorer = Scorer(model, in_chunks=True)
    forwards: list[int] = []
    hook = model.base_model.register_forward_hook(lambda *_: forwards.append(1))
    found = scorer.score(sequences, starts)
    hook.remove()
    assert len(forwards) >= LENGTH // 7 + 31 // 7
    for ours, whole in zip(found, Scorer(model).score(sequences, starts), strict=True):
        np.testing.assert_allclose(ours.losses, whole.losses, atol=1e-5)
        np.testing.assert_array_equal(ours.chosen, whole.chosen)


def _greedily(model: Any, prompt: Any, count: int) -> list[int]:
    """A full forward without a cache for each token."""
    sequence = list(prompt)
    for _ in range(count):
        with torch.inference_mode():
            logits = model(torch.tensor([sequence]), use_cache=False).logits[0, -1]
        sequence.append(int(logits.argmax()))
    return sequence[len(prompt) :]


@every_family
def test_writing_after_chunks_is_greedy(family: str) -> None:
    model, prompts = _model(family), _tokens(LENGTH, LENGTH)
    written = Scorer(model).write(prompts, 6)
    for prompt, tokens in zip(prompts, written, strict=True):
        assert tokens.tolist() == _greedily(model, prompt, 6)


@every_family
def test_questions_on_one_context_are_answered_as_each_alone(family: str) -> None:
    """Twice the same question among them: an answer leaves nothing behind for the next."""
    model, [context] = _model(family), _tokens(LENGTH)
    ends = _tokens(9, 3, seed=2)
    prompts = [np.concatenate([context, end]) for end in (*ends, ends[0])]
    scorer = Scorer(model)
    expected = [_greedily(model, prompt, 4) for prompt in prompts]
    for shared in (LENGTH, LENGTH - 10, 0):
        written = scorer.write_on(shared, prompts, 4, lambda tokens: False)
        assert [tokens.tolist() for tokens in written] == expected


@pytest.mark.parametrize("method", ["yarn", "log_n"])
def test_a_plan_holds_one_schedule_for_the_declared_length(method: str) -> None:
    """The first chunk is as short as a step of its own serves, and must not follow that."""
    model = _model("llama")
    present = present_plan(model.config)
    if method == "log_n":
        plan = extend_plan(present, 4 * WINDOW, "ntk", log_n="everywhere")
    else:
        plan = extend_plan(present, 4 * WINDOW, method)
        plan = plan.with_steps(plan.main_layer, (*present.steps(), *plan.steps()))
    [prompt] = _tokens(LENGTH)
    with applied(model, plan, length=LENGTH + 6):
        expected = _greedily(model, prompt, 6)
        assert Scorer(model).write([prompt], 6)[0].tolist() == expected
    assert _greedily(model, prompt, 6) != expected


def _kernel(
    query: Any, key: Any, value: Any, queries: Any, keys: Any, *longest: int, **options: Any
) -> Any:
    """The semantics of torch's kernel for variable lengths, which runs on CUDA alone."""
    left, right = options["window_size"]
    outputs = []
    for (q0, q1), (k0, k1) in zip(pairwise(queries.tolist()), pairwise(keys.tolist()), strict=True):
        ahead = torch.arange(k1 - k0) - torch.arange(q1 - q0)[:, None] - (k1 - k0 - (q1 - q0))
        mask = (ahead <= right) & ((ahead >= -left) if left >= 0 else torch.tensor(True))
        asked, held, values = (
            x.transpose(0, 1)[None] for x in (query[q0:q1], key[k0:k1], value[k0:k1])
        )
        attended = torch.nn.functional.scaled_dot_product_attention(
            asked, held, values, attn_mask=mask, scale=options["scale"], enable_gqa=True
        )
        outputs.append(attended[0].transpose(0, 1))
    return torch.cat(outputs)


EAGER = ("gemma2", "gpt_oss")
"""Families that transformers runs without torch's kernel, for caps and sinks."""
AT_ONCE = ("qwen3_5_text", "lfm2", "llama4_text")


@pytest.mark.parametrize("size", [1, 7, 16])
@pytest.mark.parametrize("grouped", [True, False])  # torch 2.11 lets no heads share in its kernel
@pytest.mark.parametrize(
    "family", sorted({*tiny_models.FAMILIES, *tiny_models.RECENT} - {*AT_ONCE})
)
def test_without_a_mask_scores_are_those_of_one_forward(
    family: str, grouped: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path of a GPU, with a stand-in for the kernel that a CPU lacks."""
    monkeypatch.setattr(varlen, "varlen_attn", _kernel)
    monkeypatch.setattr(varlen, "shares_heads", lambda: grouped)
    monkeypatch.setattr(cached, "obstacle", lambda *_, **__: None)
    monkeypatch.setattr(chunks, "AT_ONCE", size)
    model = _model(family)
    scorer = Scorer(model, in_chunks=True)
    [whole] = Scorer(model).score(_tokens(LENGTH), [1])
    [ours] = scorer.score(_tokens(LENGTH), [1])
    np.testing.assert_allclose(ours.losses, whole.losses, rtol=1e-5)
    reader = Reader(model)
    assert reader.continues
    assert (reader._attention == chunks.WITHOUT_MASK) == (family not in EAGER)
    prompts = _tokens(LENGTH, LENGTH)
    for prompt, written in zip(prompts, scorer.write(prompts, 3), strict=True):
        assert written.tolist() == _greedily(model, prompt, 3)


@pytest.mark.parametrize(
    ("mask", "given", "told"),
    [
        ({}, {"softcap": 30.0}, "softcap"),
        ({"attention_mask": torch.ones(1, 6)}, {}, "padding"),
        ({"local_size": 4}, {}, "within chunks"),
    ],
)
def test_what_the_kernel_would_lose_is_refused(
    mask: Any, given: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cached, "obstacle", lambda *_, **__: None)
    layer: Any = torch.nn.Identity()
    layer.config = SimpleNamespace(attention_chunk_size=4)
    query, key, value = (torch.zeros(1, 2, length, 8) for length in (3, 6, 6))
    with pytest.raises(Unsupported, match=told):
        chunks.attend_without_mask(layer, query, key, value, DeferredMask(mask), **given)


def test_a_row_ends_for_itself() -> None:
    model, prompts = _model("llama"), _tokens(20, 20)
    whole = Scorer(model).write(prompts, 9)
    end = whole[0][3]

    def ended(tokens: Any) -> bool:
        return bool(tokens[-1] == end)

    together = Scorer(model).write(prompts, 9, ended)
    for i, prompt in enumerate(prompts):
        [alone] = Scorer(model).write([prompt], 9, ended)
        np.testing.assert_array_equal(together[i], alone)
    first = whole[0].tolist().index(end)
    np.testing.assert_array_equal(together[0], whole[0][: first + 1])


def test_memory_is_set_aside_once_and_masks_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.model()
    reader = Reader(model)
    cache = reader.cache(LENGTH)
    tokens = torch.from_numpy(_tokens(LENGTH)[0])[None]
    places: set[tuple[int, ...]] = set()
    masked: list[Any] = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def spy(query: Any, key: Any, *args: Any, **kwargs: Any) -> Any:
        masked.append((kwargs.get("attn_mask"), query.shape[2], key.shape[2]))
        return attention(query, key, *args, **kwargs)

    monkeypatch.setattr(chunks, "scaled_dot_product_attention", spy)
    with torch.no_grad():
        for _ in reader.chunks(tokens, cache):
            places.add(tuple(layer.keys.data_ptr() for layer in cache.layers))
    assert len(places) == 1
    assert {queries for _, queries, _ in masked} <= set(range(1, 8))
    assert all(mask.shape == (1, 1, queries, keys) for mask, queries, keys in masked)
    lengths = [keys for _, _, keys in masked]
    assert max(lengths) == LENGTH - 1, "the last token is alone in its chunk, and needs no mask"
    assert all(a <= b for a, b in pairwise(lengths))


@pytest.mark.parametrize(
    ("total", "size"), [(8, 8), (2**17, 512), (2**15, 2048), (2**20, 64), (2**30, 16)]
)
def test_chunks_shrink_as_the_text_grows(
    total: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "LARGEST", 2048)
    monkeypatch.setattr(chunks, "SMALLEST", 16)
    assert Reader(tiny.model())._size(total) == size


def test_a_model_that_cannot_go_on_is_read_at_once() -> None:
    """Linear attention would begin anew with each chunk, and say nothing."""
    model, sequences = _model("qwen3_5_text"), _tokens(LENGTH)
    scorer = Scorer(model, in_chunks=True)
    assert not Reader(model).continues
    [ours], [whole] = (s.score(sequences, [1]) for s in (scorer, Scorer(model)))
    np.testing.assert_array_equal(ours.losses, whole.losses)
    assert scorer.write(sequences, 4)[0].tolist() == _greedily(model, sequences[0], 4)
    with pytest.raises(Unsupported, match="shared_context"):
        scorer.write_on(3, sequences, 4, lambda tokens: False)
