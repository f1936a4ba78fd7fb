from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    DeepseekV3Config,
    GPTNeoXConfig,
    LlamaConfig,
    Qwen3Config,
)

from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.errors import InputError, Unsupported
from ropewalk.models.variances import measure_variances
from tests.models.tiny import SMALL


def _model(config: Any) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def _sequences(count: int = 3) -> list[Any]:
    random = np.random.default_rng(5)
    return [random.integers(0, 97, size=40 + i) for i in range(count)]


@pytest.mark.parametrize(
    ("config", "pairs"),
    [(LlamaConfig, (2, 8)), (CohereConfig, (8, 2))],
    ids=["halves", "neighbours"],
)
def test_they_are_those_of_the_projections(config: Any, pairs: tuple[int, int]) -> None:
    """In these families, queries and keys before rotation are what the projections give."""
    model = _model(config(**SMALL))
    heard: dict[str, list[Any]] = {"q_proj": [], "k_proj": []}
    for name, outputs in heard.items():
        projection = getattr(model.model.layers[1].self_attn, name)
        projection.register_forward_hook(lambda *a, outputs=outputs: outputs.append(a[2][0]))
    with torch.inference_mode():
        for sequence in _sequences():
            model(torch.from_numpy(sequence)[None])
    expected = {
        name: torch.cat(outputs)
        .double()
        .numpy()
        .var(axis=0)
        .reshape(-1, *pairs)
        .sum(axis=1 + pairs.index(2))
        for name, outputs in heard.items()
    }
    measured = measure_variances(model, _sequences())
    np.testing.assert_allclose(measured.query[1], expected["q_proj"], rtol=1e-5)
    np.testing.assert_allclose(measured.key[1], expected["k_proj"], rtol=1e-5)
    assert measured.tokens == 40 + 41 + 42


def _silence(attention: Any, kind: str) -> None:
    """Take pair 3 out of the queries of every head."""
    if kind == "qwen3":
        attention.q_norm.weight[[3, 11]] = 0
    elif kind == "gpt_neox":  # query, key and value of a head stand together; 8 of 16 rotate
        rows = [head * 48 + dimension for head in (0, 1) for dimension in (3, 7)]
        attention.query_key_value.weight[rows] = 0
        attention.query_key_value.bias[rows] = 0
    elif kind == "cohere":  # neighbours are pairs
        attention.q_proj.weight[[6, 7, 22, 23]] = 0
    else:
        attention.q_proj.weight[[3, 11, 19, 27]] = 0


@pytest.mark.parametrize(
    "config",
    [
        LlamaConfig(**SMALL),
        Qwen3Config(**SMALL, head_dim=16),
        CohereConfig(**SMALL),
        GPTNeoXConfig(**SMALL, rotary_pct=0.5),
    ],
    ids=lambda config: config.model_type,
)
def test_a_pair_without_variance_is_found_in_every_layout(config: Any) -> None:
    model = _model(config)
    with torch.no_grad():
        for name, module in model.named_modules():
            if name.endswith(("self_attn", ".attention")):
                _silence(module, config.model_type)
    weights = measure_variances(model, _sequences()).query_weights(FULL_ATTENTION)
    assert weights.shape == (8,)
    assert weights[3] == 0
    assert (np.delete(weights, 3) > 0).all()


def test_measuring_leaves_a_model_as_it_was() -> None:
    model = _model(LlamaConfig(**SMALL))
    tokens = torch.from_numpy(_sequences()[0])[None]
    with torch.inference_mode():
        before = model(tokens).logits
        measure_variances(model, _sequences())
        assert torch.equal(model(tokens).logits, before)


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InputError, match="no text"):
        measure_variances(_model(LlamaConfig(**SMALL)), [])
    latent = DeepseekV3Config(
        **{**SMALL, "num_key_value_heads": 2},
        moe_intermediate_size=16,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=1,
        topk_group=1,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=2,
    )
    with pytest.raises(Unsupported, match="latent attention"):
        measure_variances(_model(latent), _sequences())
