"""A step of training on fake tensors, next to the formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ropewalk.costs import fake
from ropewalk.costs.estimates import Work, step
from ropewalk.costs.machines import machine
from ropewalk.costs.sizes import sizes_of
from ropewalk.errors import Unsupported

WITHIN = 0.15
LLAMA = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 2000,
    "max_position_embeddings": 8192, "rope_theta": 10000.0, "tie_word_embeddings": False,
}  # fmt: skip
FAMILIES = {
    "qwen3": {**LLAMA, "model_type": "qwen3"},
    "a large vocabulary": {**LLAMA, "vocab_size": 64_000},
    "tied": {**LLAMA, "tie_word_embeddings": True, "vocab_size": 32_000},
    "phi3": {**LLAMA, "model_type": "phi3", "pad_token_id": 0},
    "norms of queries and keys, in float32": {**LLAMA, "model_type": "olmo2"},
    "four norms": {**LLAMA, "model_type": "gemma2", "query_pre_attn_scalar": 64},
}


def apart(config: dict[str, Any], ranks: int, *, recompute: bool) -> float:
    """The formula over what fake tensors took, less one."""
    sizes, length = sizes_of(config), 4096
    parts = fake.measured_step(config, sizes, length, ranks, recompute=recompute)
    work = Work(sizes, length, machine(f"{ranks}xh100"), length)
    way = step(work, ranks, 1, recompute=recompute, lora=False, window=length)
    return sum(way.parts.values()) / sum(parts.values()) - 1


def test_a_step_takes_what_the_formula_says() -> None:
    assert abs(apart(LLAMA, 4, recompute=False)) < WITHIN


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_so_do_steps_of_other_models(name: str) -> None:
    assert abs(apart(FAMILIES[name], 8, recompute=False)) < WITHIN


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_the_formula_lies_above_a_recomputed_step(name: str) -> None:
    """It adds the loss and a layer at work, which are there one after the other; the peaks of real
    processes (benchmarks/cost.py) agree with the sum."""
    assert 0 < apart(FAMILIES[name], 8, recompute=True) < 0.25


@pytest.mark.slow
def test_ranks_divide_what_is_sharded() -> None:
    sizes = sizes_of(LLAMA)
    two, four = (fake.measured_step(LLAMA, sizes, 4096, ranks, recompute=False) for ranks in (2, 4))
    assert two["weights"] == pytest.approx(4 * sizes.weights / 2, rel=0.01)
    assert two["weights"] == pytest.approx(2 * four["weights"], rel=0.01)
    assert two["optimizer"] == 2 * four["optimizer"]


def test_one_device_and_an_untested_torch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = sizes_of(LLAMA)
    with pytest.raises(Unsupported, match="several devices"):
        fake.measured_step(LLAMA, sizes, 256, 1, recompute=False)
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.raises(Unsupported, match=r"not with 2\.99\.0"):
        fake.measured_step(LLAMA, sizes, 256, 2, recompute=False)
