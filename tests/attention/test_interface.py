"""Whole models, tiny and random, of every family that we name, through transformers' interface."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto import CONFIG_MAPPING

from ropewalk.attention import AttentionLayout, check_apart, interface, register
from ropewalk.errors import InvalidValue, UnknownName, Unsupported
from ropewalk.models.renamed import cache_name, recompute_activations
from tests.models.tiny import COMMON

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {},
    "gemma2": {"attn_logit_softcapping": None, "sliding_window": 4096},
    "phi3": {},
    "olmo2": {},
    "gpt_neox": {},
}
TINY = {**COMMON, "head_dim": 8, "intermediate_size": 48, "max_position_embeddings": 512}
TINY |= {"attention_dropout": 0.0, "hidden_dropout": 0.0}


def tiny(family: str, implementation: str = "ropewalk", /, **changes: Any) -> PreTrainedModel:
    register()
    config = CONFIG_MAPPING[family](**{**TINY, **FAMILIES.get(family, {}), **changes})
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    return model.eval()


def some_tokens(rows: int, length: int) -> Tensor:
    return torch.randint(3, 64, (rows, length), generator=torch.Generator().manual_seed(1))


def row(values: Any) -> Tensor:
    return torch.tensor(values)[None]


def gradients(model: PreTrainedModel) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def train_step(model: PreTrainedModel, tokens: Tensor, **arguments: Any) -> list[Tensor]:
    model.zero_grad()
    loss = model(input_ids=tokens, labels=tokens, use_cache=False, **arguments).loss
    torch.autograd.backward(loss)
    return gradients(model)


def stock(family: str) -> str:
    """What transformers itself would take; gemma2 knows no sdpa, even without its soft cap."""
    return "eager" if family == "gemma2" else "sdpa"


def same(family: str, a: Tensor, b: Tensor) -> None:
    """To the last bit, except where stock is eager attention."""
    if stock(family) == "sdpa":
        assert torch.equal(a, b)
    else:
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


LAYOUTS = {
    "anchor": AttentionLayout.anchor([9, 5, 1, 8]),
    "intra_document_reset": AttentionLayout.intra_document_reset([9, 5, 1, 8]),
    "interleaved": AttentionLayout.interleaved([9, 5, 1, 8], chunks=3, seed=2),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_layout_is_a_dense_mask_in_every_family(family: str, name: str) -> None:
    layout = LAYOUTS[name]
    tokens, positions = some_tokens(2, layout.length), row(layout.positions)
    model = tiny(family).double()
    got = model(input_ids=tokens, position_ids=positions, layout=layout).logits
    got_gradients = train_step(model, tokens, position_ids=positions, layout=layout)
    model.set_attn_implementation("eager")
    blocked = torch.tensor(~layout.mask())[None, None]
    mask = torch.zeros(blocked.shape, dtype=torch.float64).masked_fill(blocked, -torch.inf)
    expected = model(input_ids=tokens, position_ids=positions, attention_mask=mask).logits
    expected_gradients = train_step(model, tokens, position_ids=positions, attention_mask=mask)
    # eager softmax rounds to float32 in between.
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    for a, b in zip(got_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_layout_the_model_is_stock(family: str, padding: str) -> None:
    tokens = some_tokens(2, 20)
    present = torch.ones_like(tokens)
    if padding != "none":
        present[0, :7] = 0
    if padding == "right":
        present = present.flip(1)
    arguments: dict[str, Any] = {} if padding == "none" else {"attention_mask": present}
    ours, theirs = tiny(family), tiny(family, stock(family))
    # At left padding itself, eager and sdpa attention say different things, and nobody listens.
    where = present.bool() if stock(family) == "eager" else torch.ones_like(present).bool()
    logits = [model(input_ids=tokens, **arguments).logits[where] for model in (ours, theirs)]
    same(family, *logits)
    if where.all():
        for a, b in zip(
            train_step(ours, tokens, **arguments),
            train_step(theirs, tokens, **arguments),
            strict=True,
        ):
            same(family, a, b)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("family", FAMILIES)
def test_generation_with_a_cache_is_stock(family: str, cache: str) -> None:
    tokens = some_tokens(2, 10)
    present = torch.ones_like(tokens)
    present[0, :4] = 0
    results = [
        tiny(family, implementation).generate(
            tokens,
            attention_mask=present,
            max_new_tokens=6,
            min_new_tokens=6,
            do_sample=False,
            cache_implementation=cache,
            disable_compile=True,
            return_dict_in_generate=True,
            output_logits=True,
        )
        for implementation in ("ropewalk", stock(family))
    ]
    assert torch.equal(results[0].sequences, results[1].sequences)
    for a, b in zip(results[0].logits, results[1].logits, strict=True):
        same(family, a, b)


def test_restarting_positions_and_sliding_windows_are_stock_too() -> None:
    tokens, positions = some_tokens(1, 24), row([*range(10), *range(14)])
    for changes in ({}, {"sliding_window": 6}):
        ours, stock = tiny("mistral", **changes), tiny("mistral", "sdpa", **changes)
        assert torch.equal(
            ours(input_ids=tokens, position_ids=positions).logits,
            stock(input_ids=tokens, position_ids=positions).logits,
        )


def test_every_row_has_its_own_layout() -> None:
    layouts = [AttentionLayout.anchor([9, 6]), AttentionLayout.intra_document_reset([4, 12])]
    layouts += [layouts[0].cut_to(12).padded_to(16)]
    tokens = some_tokens(3, 16)
    positions = torch.stack([torch.tensor(layout.positions) for layout in layouts])
    model = tiny("llama").double()
    together = model(input_ids=tokens, position_ids=positions, layout=layouts).logits
    for i, layout in enumerate(layouts):
        alone = model(
            input_ids=tokens[i : i + 1], position_ids=positions[i : i + 1], layout=layout
        ).logits
        present = torch.tensor(layout.document_ids) >= -1
        torch.testing.assert_close(together[i][present], alone[0][present], rtol=1e-12, atol=1e-12)


def test_activation_checkpointing_changes_nothing() -> None:
    layout = LAYOUTS["anchor"]
    tokens = some_tokens(1, layout.length)
    arguments = {"position_ids": row(layout.positions), "layout": [layout]}
    model = tiny("llama").train()
    plain = train_step(model, tokens, **arguments)
    recompute_activations(model)
    for a, b in zip(train_step(model, tokens, **arguments), plain, strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
def test_a_compiled_model_computes_the_same() -> None:
    model = tiny("llama")
    compiled: Any = torch.compile(model)
    for layout in (AttentionLayout.anchor([9, 14]), AttentionLayout.anchor([14, 9]), None):
        arguments = {"input_ids": some_tokens(1, 24), "layout": layout, "use_cache": False}
        torch.testing.assert_close(compiled(**arguments).logits, model(**arguments).logits)


def test_values_may_be_narrower_than_keys() -> None:
    """DeepSeek's latent attention: keys of 16, values of 8."""
    layout = LAYOUTS["anchor"]
    tokens, positions = some_tokens(1, layout.length), row(layout.positions)
    model = tiny(
        "deepseek_v3",
        num_key_value_heads=4,
        q_lora_rank=None,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=2,
    ).double()
    got = model(input_ids=tokens, position_ids=positions, layout=layout).logits
    model.set_attn_implementation("sdpa")
    mask = torch.tensor(layout.mask())[None, None]
    expected = model(input_ids=tokens, position_ids=positions, attention_mask=mask).logits
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_a_layout_keeps_the_dense_mask_from_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**arguments: Any) -> None:
        raise AssertionError("somebody asked for the mask")

    monkeypatch.setattr(interface, "sdpa_mask", refuse)
    layout = LAYOUTS["intra_document_reset"]
    model = tiny("mistral", sliding_window=layout.length)
    tokens = some_tokens(1, layout.length)
    model(input_ids=tokens, position_ids=row(layout.positions), layout=layout, use_cache=False)
    with pytest.raises(AssertionError, match="asked for the mask"):
        model(input_ids=tokens, position_ids=row(layout.positions), use_cache=False)


def test_an_engine_can_be_asked_for() -> None:
    layout = LAYOUTS["anchor"]
    arguments = {"input_ids": some_tokens(1, layout.length), "layout": layout}
    model = tiny("llama")
    by_default = model(**arguments).logits
    torch.testing.assert_close(model(**arguments, engine="reference").logits, by_default)
    with pytest.raises(Unsupported, match=r"cuda only.*engines that can: flex, per_document"):
        model(**arguments, engine="varlen")
    with pytest.raises(UnknownName, match="valid: varlen, flex"):
        model(**arguments, engine="flash")


EVERY_LAYER = ("mistral", "phi3", "starcoder2", "phimoe")
"""Families that slide in every layer, if in any."""
SLIDING = (*EVERY_LAYER, "qwen2", "qwen3", "gemma2", "gemma3_text", "olmo3", "cohere2", "qwen2_moe")


@pytest.mark.parametrize("family", SLIDING)
def test_a_sliding_window_cuts_as_in_stock(family: str) -> None:
    """A document by itself, and documents in one window, each next to itself in stock."""
    options: dict[str, Any] = {"sliding_window": 6, "rope_parameters": None}
    if family in ("phimoe", "qwen2_moe"):  # whose masks alone know the window
        experts = {"num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1}
        options |= {**experts, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
    if family not in EVERY_LAYER:
        options["layer_types"] = ["sliding_attention", "full_attention"]
        options["use_sliding_window"] = True
    model, stock = (tiny(family, own, **options) for own in ("ropewalk", "eager"))
    lengths = [9, 21, 4]
    tokens = some_tokens(1, sum(lengths))

    def logits(layout: AttentionLayout) -> Tensor:
        positions = row(layout.positions)
        given = {"input_ids": tokens, "position_ids": positions, "layout": layout}
        own: Tensor = model(**given, use_cache=False).logits
        torch.testing.assert_close(own, model(**given, engine="reference").logits)
        return own

    torch.testing.assert_close(logits(AttentionLayout.full(lengths)), stock(tokens).logits)
    alone = torch.cat([stock(own).logits for own in torch.split(tokens, lengths, dim=1)], dim=1)
    torch.testing.assert_close(logits(AttentionLayout.intra_document_reset(lengths)), alone)
    whole = tiny(family, **{**options, "sliding_window": 4096})
    assert not torch.allclose(whole(tokens).logits, stock(tokens).logits)


def test_attention_in_chunks_is_refused() -> None:
    model = tiny(
        "llama4_text", attention_chunk_size=4, num_local_experts=2, intermediate_size_mlp=48,
        rope_parameters=None,
    )  # fmt: skip
    with pytest.raises(Unsupported, match="attends within chunks of 4 tokens"):
        model(input_ids=some_tokens(1, 9), layout=AttentionLayout.full([9]), use_cache=False)
    short = {"input_ids": some_tokens(1, 4), "use_cache": False}
    expected = model(**short).logits
    torch.testing.assert_close(model(**short, layout=AttentionLayout.full([4])).logits, expected)


@pytest.mark.parametrize("layout", [None, AttentionLayout.anchor([8])])
def test_a_soft_cap_is_refused_by_name(layout: AttentionLayout | None) -> None:
    model = tiny("gemma2", attn_logit_softcapping=50.0)
    with pytest.raises(Unsupported, match="attn_logit_softcapping"):
        model(input_ids=some_tokens(1, 9), layout=layout)


def test_attention_sinks_are_refused_by_name() -> None:
    model = tiny("gpt_oss", num_local_experts=2, num_experts_per_tok=1, rope_parameters=None)
    with pytest.raises(Unsupported, match="attention sinks"):
        model(input_ids=some_tokens(1, 9), layout=AttentionLayout.anchor([8]))


def test_dropout_is_refused_in_training_only() -> None:
    model = tiny("llama", attention_dropout=0.1)
    arguments = {"input_ids": some_tokens(1, 9), "layout": AttentionLayout.anchor([8])}
    model(**arguments)
    with pytest.raises(Unsupported, match=r"attention dropout = 0.1"):
        model.train()(**arguments)


def test_a_layout_describes_a_whole_window() -> None:
    model = tiny("llama")
    output = model(input_ids=some_tokens(1, 9), layout=AttentionLayout.anchor([8]))
    cache = {cache_name(model): getattr(output, cache_name(model))}
    with pytest.raises(Unsupported, match="only 3 of 12 keys are new"):
        model(input_ids=some_tokens(1, 3), layout=AttentionLayout.full([3]), **cache)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"layout": AttentionLayout.anchor([5])}, InvalidValue, "= 6: the batch has 9 tokens"),
        ({"layout": [AttentionLayout.anchor([8])] * 3}, InvalidValue, r"3 layouts.*has 2 rows"),
        (
            {"layout": AttentionLayout.intra_document_reset([4, 5])},
            InvalidValue,
            r"position_ids\[0, 4\] = 4: the layout says 0",
        ),
        (
            {
                "layout": AttentionLayout.anchor([8]),
                "attention_mask": torch.tensor([[1] * 9, [0] + [1] * 8]),
            },
            InvalidValue,
            r"attention_mask\[1, 0\] = False: the layout says True",
        ),
        (
            {
                "layout": AttentionLayout.anchor([8]),
                "attention_mask": torch.ones(2, 1, 9, 9, dtype=torch.bool),
            },
            Unsupported,
            r"attention_mask of shape \(2, 1, 9, 9\)",
        ),
        ({"engine": "reference"}, Unsupported, "need a layout"),
    ],
)
def test_bad_input_is_refused_with_both_values(
    arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        tiny("llama")(input_ids=some_tokens(2, 9), **arguments)


def test_padding_may_be_given_twice_if_it_agrees() -> None:
    layout = AttentionLayout.anchor([6]).padded_to(9)
    present = torch.tensor([[1] * 7 + [0] * 2])
    arguments = {"input_ids": some_tokens(1, 9), "position_ids": row(layout.positions)}
    model = tiny("llama")
    assert torch.equal(
        model(**arguments, layout=layout, attention_mask=present).logits,
        model(**arguments, layout=layout).logits,
    )


def test_attention_that_looks_both_ways_is_refused() -> None:
    module = nn.Module()
    tensor = torch.zeros(1, 1, 9, 8)
    with pytest.raises(Unsupported, match="both ways"):
        interface.attention(
            module,
            tensor,
            tensor,
            tensor,
            None,
            layout=AttentionLayout.anchor([8]),
            is_causal=False,
        )


# --- documents apart -------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_check_finds_documents_apart(family: str) -> None:
    model = tiny(family).train()
    frozen = model.get_input_embeddings().eval()
    check_apart(model)
    assert model.training
    assert not frozen.training


@pytest.mark.parametrize("family", ["stablelm", "nemotron"])
def test_check_finds_families_that_drop_the_layout(family: str) -> None:
    """They do not hand a forward call's arguments on to their attention."""
    with pytest.raises(Unsupported, match="documents"):
        check_apart(tiny(family))


def test_check_finds_tokens_mixed_outside_attention() -> None:
    model = tiny("llama")
    mixing = nn.Conv1d(32, 32, kernel_size=2, padding=1)
    embed = model.get_input_embeddings().forward

    def mixed(tokens: Tensor) -> Tensor:
        hidden: Tensor = mixing(embed(tokens).transpose(1, 2))
        return hidden[..., : tokens.shape[1]].transpose(1, 2)

    model.get_input_embeddings().forward = mixed
    with pytest.raises(Unsupported, match="documents"):
        check_apart(model)


@pytest.mark.parametrize("family", ["mpt", "bloom"])
def test_check_finds_families_without_the_interface(family: str) -> None:
    register()
    config = CONFIG_MAPPING[family](vocab_size=32, hidden_size=32, n_layer=1, n_head=2)
    model = AutoModelForCausalLM.from_config(config)
    model.set_attn_implementation("ropewalk")
    with pytest.raises(InvalidValue, match="attn_implementation = 'eager'"):
        check_apart(model)


def test_check_needs_our_implementation() -> None:
    with pytest.raises(InvalidValue, match=r"'sdpa'.*set_attn_implementation\('ropewalk'\)"):
        check_apart(tiny("llama", "sdpa"))
