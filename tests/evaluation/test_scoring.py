from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM, CohereConfig, Gemma2Config, GraniteConfig

from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.evaluation import scoring
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.scoring import Scorer, end_tokens
from tests.evaluation import tiny
from tests.models.tiny import SMALL


def _sequences(*lengths: int) -> list[Any]:
    random = np.random.default_rng(3)
    return [random.integers(0, 97, size=length) for length in lengths]


def _naive(model: Any, sequence: Any, start: int) -> tuple[Any, Any]:
    """One row, all its logits at once, by the model's own forward."""
    tokens = torch.from_numpy(sequence)[None]
    with torch.inference_mode():
        logits = model(tokens).logits[0, start - 1 : -1].double()
    target = tokens[0, start:]
    losses = torch.nn.functional.cross_entropy(logits, target, reduction="none")
    return losses.numpy(), (logits.argmax(-1) == target).numpy()


@pytest.mark.parametrize("at_once", [1, 300, scoring.LOGITS_AT_ONCE])
def test_scores_are_those_of_the_models_own_logits(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "LOGITS_AT_ONCE", at_once)
    model = tiny.model()
    sequences, starts = _sequences(40, 37, 12), [1, 20, 11]
    for sequence, start, score in zip(
        sequences, starts, Scorer(model).score(sequences, starts), strict=True
    ):
        losses, right = _naive(model, sequence, start)
        np.testing.assert_allclose(score.losses, losses, atol=1e-4)
        np.testing.assert_array_equal(score.chosen == sequence[start:], right)


@pytest.mark.parametrize(
    "config",
    [
        Gemma2Config(**SMALL, head_dim=16, final_logit_softcapping=2.0),
        CohereConfig(**SMALL, logit_scale=0.25),
        GraniteConfig(**SMALL, logits_scaling=4.0),
    ],
    ids=lambda config: config.model_type,
)
def test_families_that_change_their_logits_after_the_head(config: Any) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    [sequence] = _sequences(30)
    [score] = Scorer(model).score([sequence], [1])
    np.testing.assert_allclose(score.losses, _naive(model, sequence, 1)[0], atol=1e-4)


def test_a_family_that_does_something_unknown_is_refused_by_name() -> None:
    class Odd(type(tiny.model())):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output = super().forward(*args, **kwargs)
            output.logits = output.logits * 1.5
            return output

    model = Odd(tiny.model().config).eval()
    with pytest.raises(Unsupported, match=r"Odd .*after the head"):
        Scorer(model)


def test_a_model_without_a_head_is_refused() -> None:
    with pytest.raises(Unsupported, match="no language-model head"):
        Scorer(tiny.model().model)


def test_writing_is_greedy_and_cached_decoding_changes_nothing() -> None:
    model = tiny.model()
    prompts = _sequences(20, 20)
    written = Scorer(model).write(prompts, 6)
    for prompt, tokens in zip(prompts, written, strict=True):
        sequence = list(prompt)
        for token in tokens:
            with torch.inference_mode():
                logits = model(torch.tensor([sequence]), use_cache=False).logits[0, -1]
            assert token == int(logits.argmax())
            sequence.append(int(token))


def test_of_logits_that_are_no_numbers_come_no_scores_and_no_answer() -> None:
    """The most likely token of NaN would be the first one."""
    model = tiny.model(rms_norm_eps=1e-4)  # not the one that other tests share
    scorer = Scorer(model)
    with torch.no_grad():  # finite weights, whose products are not
        model.model.norm.weight.fill_(3e38)
    for ask in (lambda: scorer.score(_sequences(20), [5]), lambda: scorer.write(_sequences(20), 3)):
        with pytest.raises(RopewalkError, match=r"NaN.* at a length of 20"):
            ask()


def test_what_is_written_greedily_is_right_by_teacher_forcing() -> None:
    scorer = Scorer(tiny.model())
    prompts = _sequences(20, 20)
    for prompt, tokens in zip(prompts, scorer.write(prompts, 6), strict=True):
        other = tokens.copy()
        other[3] = (other[3] + 1) % 97
        right, wrong = scorer.score(
            [np.concatenate([prompt, tokens]), np.concatenate([prompt, other])], [20, 20]
        )
        np.testing.assert_array_equal(right.chosen, tokens)
        np.testing.assert_array_equal(wrong.chosen[:4], tokens[:4])


def test_no_mask_and_no_whole_logits_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attention kernel gets its causal flag instead of a mask, and the head only some rows."""
    model = tiny.model()
    scorer = Scorer(model)
    masks, rows = [], []
    attention = torch.nn.functional.scaled_dot_product_attention

    def spy(*args: Any, **kwargs: Any) -> Any:
        masks.append((kwargs.get("attn_mask"), kwargs.get("is_causal")))
        return attention(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
    scorer.logits_at_once = 7 * len(tiny.tokenizer())
    hook = model.lm_head.register_forward_hook(lambda *a: rows.append(a[2].shape[0]))
    try:
        scorer.score(_sequences(50, 48), [1, 1])
    finally:
        hook.remove()
    assert masks == [(None, True)] * 2
    assert max(rows) <= 7
    assert sum(rows) == 49 + 47


def test_the_host_waits_as_often_for_many_parts_of_logits_as_for_one() -> None:
    waited = []

    class Waits(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            waits[0] += getattr(func, "__name__", "") in ("cpu", "item", "__bool__", "__float__")
            return func(*args, **(kwargs or {}))

    scorer = Scorer(tiny.model())
    for rows in (1, 100):
        scorer.logits_at_once, waits = rows * len(tiny.tokenizer()), [0]
        with Waits():
            scorer.score(_sequences(50), [1])
        waited += waits
    assert waited[0] == waited[1]


def test_a_model_may_have_several_end_tokens() -> None:
    """Chat models have; only the tokenizer's was known, so answers ran on."""
    model = tiny.model(rms_norm_eps=1e-4)
    assert end_tokens(model) == []
    model.generation_config.eos_token_id = [65, 66]
    encoder = Encoder(tiny.tokenizer(), ends=end_tokens(model))
    assert encoder.until_end(np.array([9, 66, 8, 65])).tolist() == [9]
    model.generation_config.eos_token_id = 7
    assert end_tokens(model) == [7]
