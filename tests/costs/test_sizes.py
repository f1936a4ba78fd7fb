"""Sizes by the config, beside the stock models themselves and published counts."""

from __future__ import annotations

import inspect
import json
import warnings
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, DynamicCache

from ropewalk.costs.sizes import BY_FORMULA, COMPRESSED, Layer, empty_model, sizes_of
from ropewalk.errors import InvalidValue, RopewalkError
from ropewalk.models import catalogue
from ropewalk.models.renamed import cache_name
from tests.training.hybrids import built

PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b-v0.3": 7_248_023_552,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-8b": 8_190_735_360,
}
"""As their model cards or their weight files count them."""


def stock(model_type: str) -> dict[str, Any]:
    """The config that transformers has by default, with four layers."""
    config = CONFIG_MAPPING[model_type]()
    config.num_hidden_layers = 4
    for key in ("layer_types", "mlp_layer_types"):
        if getattr(config, key, None):
            setattr(config, key, getattr(config, key)[:4])
    written: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return {**written, "model_type": model_type}


def counted(config: dict[str, Any]) -> int:
    return sum(weight.numel() for weight in empty_model(config).parameters())


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(BY_FORMULA))
def test_the_formula_counts_what_the_stock_model_has(model_type: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = stock(model_type)
        assert sizes_of(config).weights == pytest.approx(counted(config), rel=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", sorted(BY_FORMULA - {"bitnet", "diffllama", "emu3"}))
def test_the_norms_are_those_of_the_stock_model(model_type: str) -> None:
    """All but those within a feed-forward part, and of attention's output."""
    config = stock(model_type)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = empty_model(config).base_model.layers[0]
    norms = {n: m for n, m in layer.named_modules() if "norm" in type(m).__name__.lower()}
    sizes = sizes_of(config)
    width, own = config["hidden_size"], sizes.layers[0]
    residual = sum("self_attn" not in name for name in norms)
    within = {name.rpartition(".")[2]: norm for name, norm in norms.items() if "self_attn" in name}
    counted = residual * width
    if {"q_norm", "k_norm"} <= set(within):
        counted += own.width + own.keeps // 2
    elif within:
        counted += sum(norm.weight.numel() for norm in within.values())
    assert sizes.normed == counted
    kinds = {type(norm) for norm in norms.values()}
    assert (sizes.norms == "torch") == all(
        "torch.nn" in k.__module__ or "layer_norm(" in inspect.getsource(k.forward) for k in kinds
    )
    source = "".join(inspect.getsource(kind.forward) for kind in kinds)
    in_single = (
        "(self.weight * hidden",
        "1.0 + self.weight.float()",
        "self.weight.to(torch.float32)",
    )
    assert (sizes.norms == "single") == any(way in source for way in in_single)


@pytest.mark.parametrize("model_type", ["llama", "qwen3_moe", "deepseek_v3", "gemma2"])
def test_the_formula_holds_for_what_is_structurally_different(model_type: str) -> None:
    config = stock(model_type)
    assert sizes_of(config).weights == pytest.approx(counted(config), rel=5e-4)


def test_a_stored_config_with_infinity_in_it_is_read() -> None:
    config = json.loads(built("falcon_h1").config.to_json_string())
    assert config["time_step_limit"] == [0.0, {"__float__": "Infinity"}]
    assert sizes_of(config).weights == counted(config)


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_of_the_catalogue_have_their_published_number_of_weights(name: str) -> None:
    entry = catalogue.find(name)
    sizes = sizes_of({**entry.config, **entry.sizes})
    assert sizes.weights == pytest.approx(PUBLISHED[name], rel=2e-4)


SMALL: dict[str, Any] = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 50,
    "intermediate_size": 96, "max_position_embeddings": 64, "head_dim": 16,
}  # fmt: skip
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"num_hidden_layers": 2}),
    ("gemma2", {"num_hidden_layers": 4, "sliding_window": 8}),
    ("mistral", {"num_hidden_layers": 2, "sliding_window": 8}),
    (
        "gemma4_text",
        {
            "num_hidden_layers": 6, "sliding_window": 8, "global_head_dim": 64,
            "attention_k_eq_v": True, "num_global_key_value_heads": 1,
            "vocab_size_per_layer_input": 50, "hidden_size_per_layer_input": 8,
        },
    ),
    (
        "deepseek_v3",
        {
            "num_hidden_layers": 2, "q_lora_rank": 16, "kv_lora_rank": 8, "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 16, "v_head_dim": 16, "first_k_dense_replace": 2,
            "num_key_value_heads": 4,
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model_type", "shared"),
    [
        ("cohere2_moe", {"num_shared_experts": 2, "num_experts": 4, "num_experts_per_tok": 2}),
        ("granitemoeshared", {"shared_intermediate_size": 48, "num_local_experts": 4}),
    ],
)
def test_experts_that_every_token_goes_through_are_counted(
    model_type: str, shared: dict[str, Any]
) -> None:
    config = CONFIG_MAPPING[model_type](**{**SMALL, **shared})
    written = {**json.loads(config.to_json_string(use_diff=False)), "model_type": model_type}
    assert sizes_of(written).weights == pytest.approx(counted(written), rel=5e-3)


@pytest.mark.parametrize(("name", "rate"), COMPRESSED.items())
def test_the_cache_of_compressed_keys_grows_as_in_stock_transformers(name: str, rate: int) -> None:
    sizes = {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 8, "o_groups": 2}
    sizes |= {"q_lora_rank": 16, "o_lora_rank": 16, "n_routed_experts": 4, "head_dim": 32}
    small = {**SMALL, **sizes, "num_hidden_layers": 2, "sliding_window": 16}
    config = CONFIG_MAPPING["deepseek_v4"](**small, layer_types=[name] * 2)
    model = AutoModelForCausalLM.from_config(config).eval()
    kept = []
    for length in (512, 1024):
        with torch.no_grad():
            output = model(torch.zeros(1, length, dtype=torch.long), use_cache=True)
        cache = getattr(output, cache_name(model))
        kept.append(sum(v.numel() for c in cache.layers for v in c.compressed_kv.values()))
    written = {**json.loads(config.to_json_string(use_diff=False)), "model_type": "deepseek_v4"}
    first, second = (sizes_of(written).cache(length) for length in (512, 1024))
    assert second - first == kept[1] - kept[0]
    assert first == kept[0] + 2 * 16 * 32, "and the window, which keeps keys as values too"
    by_rate = {k: v for k, v in written.items() if k not in ("layer_types", "compress_rates")}
    assert sizes_of({**by_rate, "compress_ratios": [rate] * 2}).cache(1024) == second


@pytest.mark.parametrize(("model_type", "values"), KINDS, ids=[kind for kind, _ in KINDS])
def test_the_cache_is_what_stock_transformers_keeps(
    model_type: str, values: dict[str, Any]
) -> None:
    config = CONFIG_MAPPING[model_type](**{**SMALL, **values})
    model = AutoModelForCausalLM.from_config(config).eval()
    length = 32
    cache = DynamicCache(config=config)
    with torch.no_grad():
        model(torch.zeros(1, length, dtype=torch.long), **{cache_name(model): cache})
    kept = sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)
    written = {**json.loads(config.to_json_string(use_diff=False)), "model_type": model_type}
    counted = sizes_of(written).cache(length)
    # With a window, transformers keeps one position less than it sees.
    assert (
        kept
        <= counted
        <= kept + 2 * 2 * 16 * sum(layer.window is not None for layer in sizes_of(written).layers)
    )


def test_the_latents_of_mla_are_all_that_a_server_keeps() -> None:
    entry = catalogue.find("deepseek-v3")
    written = {**entry.config, "vocab_size": 129280, "intermediate_size": 18432}
    assert written.get("kv_lora_rank", 512) == 512
    sizes = sizes_of({**written, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
                      "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 1536,
                      "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
                      "moe_intermediate_size": 2048, "first_k_dense_replace": 3})  # fmt: skip
    assert sizes.layers[0].keeps == 576
    assert sizes.weights == pytest.approx(671e9, rel=0.01)
    assert sizes.active == pytest.approx(37e9, rel=0.03)


def test_pairs_are_those_that_a_window_leaves() -> None:
    for window, length in ((None, 7), (3, 7), (9, 7)):
        layer = Layer("full", 1, window=window, width=1)
        seen = sum(min(i + 1, window or length) for i in range(length))
        assert layer.pairs(length) == seen


def test_a_config_without_sizes_says_which_is_missing() -> None:
    with pytest.raises(InvalidValue, match="vocab_size = None"):
        sizes_of(dict(catalogue.find("llama-7b").config))


LLAMA = {**SMALL, "model_type": "llama", "num_hidden_layers": 2, "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_hidden_layers": 10**6}, "num_hidden_layers = 1000000: is not a model's size"),
        ({"num_key_value_heads": 0}, "num_key_value_heads = 0: is not a model's size"),
        ({"num_key_value_heads": -3}, "num_key_value_heads = -3: is not a model's size"),
        ({"intermediate_size": "big"}, "intermediate_size = 'big': must be a whole number"),
        ({"vocab_size": 2**60}, "vocab_size = .* is not a model's size"),
        (
            {"layer_types": ["full_attention"]},
            "layer_types = .* must list the 2 layers",
        ),
        (
            {"layer_types": "full_attention"},
            "layer_types = .* must list the 2 layers",
        ),
        ({"model_type": "strange"}, "a strange cannot be counted here: transformers has no such"),
        ({"model_type": "qwen2_vl"}, "transformers has no text model of this type"),
        (
            {"model_type": "nemotron", "norm_eps": "1e-5"},
            "'norm_eps': TypeError: .* got str",
        ),
    ],
)
def test_a_config_that_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(RopewalkError, match=message):
        sizes_of({**LLAMA, **values})
