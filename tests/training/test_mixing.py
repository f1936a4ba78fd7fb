"""Models whose layers mix tokens outside attention are refused before the first step, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ropewalk.errors import Unsupported
from ropewalk.training.mixing import check_mixing
from tests.models.tiny import tiny_model
from tests.training import tiny

_COMMON = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "pad_token_id": 0}
_HEADS = {**_COMMON, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
MIXING: dict[str, tuple[dict[str, Any], str]] = {
    "qwen3_next": (
        {
            **_HEADS,
            "num_hidden_layers": 4,
            "layer_types": ["linear_attention"] * 3 + ["full_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
        },
        "model.layers.0.linear_attn, model.layers.1.linear_attn, model.layers.2.linear_attn",
    ),
    "lfm2": (
        {**_HEADS, "num_hidden_layers": 3, "full_attn_idxs": [2]},
        "model.layers.0.conv, model.layers.1.conv",
    ),
    "falcon_h1": (
        {
            **_HEADS,
            "num_hidden_layers": 2,
            "mamba_d_ssm": 32,
            "mamba_n_heads": 4,
            "mamba_d_head": 8,
            "mamba_d_state": 8,
            "mamba_n_groups": 1,
            "mamba_chunk_size": 8,
        },
        "model.layers.0.mamba, model.layers.1.mamba",
    ),
    "mamba": (
        {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8},
        "backbone.layers.0.mixer, backbone.layers.1.mixer",
    ),
}


def built(family: str, settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **settings))


@pytest.mark.parametrize("family", MIXING)
@pytest.mark.filterwarnings("ignore")  # of kernels that are not installed
def test_layers_that_mix_tokens_are_named(family: str) -> None:
    settings, names = MIXING[family]
    with pytest.raises(Unsupported, match="mixes tokens outside attention") as refused:
        check_mixing(built(family, settings))
    assert f": {names}; train it outside" in str(refused.value)


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen3", "phimoe", "granite"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_others_pass(family: str, dtype: torch.dtype) -> None:
    """Also where experts share a matrix product, which rounds by all their tokens."""
    check_mixing(tiny_model(family).to(dtype))


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_refuses_before_it_begins(store: Path, tmp_path: Path) -> None:
    model = built("lfm2", MIXING["lfm2"][0])
    with pytest.raises(Unsupported, match=r"model\.layers\.0\.conv"):
        tiny.trainer(tmp_path / "out", tiny.stream(store), 1, model=model)
    assert not (tmp_path / "out").exists()
