"""The stage computes what the model computes, on every family, and changes nothing."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from ropewalk.errors import InputError, InvalidValue, UnknownName, Unsupported
from ropewalk.number_formats.arms import ARMS, EXACT, Arm, check_device, named
from ropewalk.number_formats.stage import OpenModel
from tests.models import tiny

# A logit cap or an attention sink that only the model's own attention function knows.
OPAQUE = {"gemma2", "gpt_oss"}
SEEN = sorted(tiny.FAMILIES.keys() - OPAQUE)


@pytest.mark.parametrize("family", SEEN)
def test_reproduces_the_stock_forward_with_the_models_tables_and_with_ours(family: str) -> None:
    model = tiny.tiny_model(family)
    stage = OpenModel(model)
    tokens = tiny.tokens(24)[0]
    with torch.no_grad():
        stock = model(tokens[None], position_ids=torch.arange(5, 29)[None], use_cache=False).logits[
            0
        ]
    for arm in (Arm("own", own_tables=True), ARMS["fp32"]):
        ours = stage.run(tokens, 5, arm, keep=24)
        torch.testing.assert_close(ours, stock, rtol=0, atol=1e-3 * float(stock.abs().max()))


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe"])
def test_a_mixture_of_experts_runs_in_float64(family: str) -> None:
    stage, tokens = OpenModel(tiny.tiny_model(family)), tiny.tokens(24)[0]
    exact = stage.run(tokens, 0, EXACT, keep=24)
    assert exact.dtype == torch.float64
    single = stage.run(tokens, 0, ARMS["fp32"], keep=24)
    torch.testing.assert_close(exact.float(), single, rtol=0, atol=1e-3 * float(single.abs().max()))


def test_weights_that_are_not_numbers_are_told() -> None:
    model = tiny.tiny_model("llama")
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight[0, 0] = torch.nan
    with pytest.raises(InputError, match="NaN or infinite"):
        OpenModel(model)


@pytest.mark.parametrize("family", sorted(OPAQUE))
def test_refuses_attention_that_hides_what_it_does_to_logits(family: str) -> None:
    changes: dict[str, Any] = {"attn_logit_softcapping": 0.5} if family == "gemma2" else {}
    with pytest.raises(Unsupported, match="attention"):
        OpenModel(tiny.tiny_model(family, **changes))


def test_refuses_attention_outside_the_interface() -> None:
    model = tiny.tiny_model("llama")
    for layer in model.model.layers:
        plain = layer.self_attn.forward

        def hidden(*args: Any, plain: Any = plain, **kwargs: Any) -> Any:
            # Whatever implementation is configured, the rotated queries never reach it.
            return torch.zeros_like(kwargs["hidden_states"]), None

        layer.self_attn.forward = hidden
    with pytest.raises(Unsupported, match="cannot be seen"):
        OpenModel(model)


def test_refuses_a_model_without_rope() -> None:
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    with pytest.raises(InputError, match="gpt2"):
        OpenModel(GPT2LMHeadModel(config))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_leaves_the_model_as_it_was(dtype: torch.dtype) -> None:
    model = tiny.tiny_model("llama").to(dtype)
    before = copy.deepcopy(model.state_dict())
    frequencies = model.model.rotary_emb.inv_freq.clone()
    configs = [layer.self_attn.config for layer in model.model.layers]
    names = {name for module in model.modules() for name in module.__dict__}
    tokens = tiny.tokens(20)[0]
    with torch.no_grad():
        answer = model(tokens[None]).logits
    stage = OpenModel(model)
    for arm in ("fp64", "bf16", "bf16_model"):
        stage.run(tokens, 3, ARMS[arm])
    own = stage.given_format
    stage.run(tokens, 3, Arm("own", model=own, rotation=own, product=own, own_tables=True))
    after = model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert torch.equal(model.model.rotary_emb.inv_freq, frequencies)
    assert [layer.self_attn.config for layer in model.model.layers] == configs
    assert {name for module in model.modules() for name in module.__dict__} == names
    assert not any(module._forward_pre_hooks for module in model.modules())
    with torch.no_grad():
        assert torch.equal(model(tokens[None]).logits, answer)


def test_restores_the_model_after_an_error() -> None:
    model = tiny.tiny_model("llama")
    stage = OpenModel(model)
    configs = [layer.self_attn.config for layer in model.model.layers]

    def fail(call: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage.run(tiny.tokens(8)[0], 0, ARMS["fp32"], listener=fail)
    assert [layer.self_attn.config for layer in model.model.layers] == configs
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_arms_are_found_by_name_and_refused_where_they_cannot_run() -> None:
    assert named("bf16").product == "bfloat16"
    with pytest.raises(UnknownName, match="bf16"):
        named("bf61")
    with pytest.raises(InvalidValue, match="tf32_angles"):
        check_device([named("tf32")], torch.device("cpu"))
    with pytest.raises(InvalidValue, match="float64"):
        check_device([named("fp64")], torch.device("mps"))
