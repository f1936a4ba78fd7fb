"""M-RoPE: positions of several axes over one schedule."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING

from ropewalk.context_plan import PlanStep
from ropewalk.models.config import present_plan
from ropewalk.models.rotary import PlannedRotary
from tests.examples import examples
from tests.models import truth
from tests.models.tiny import model_of, tiny_config, tokens

# Types whose rotary modules take one row of positions for each axis.
SEVERAL_AXES = ("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "qwen3_5_text")
LENGTH = 12
positions = st.lists(st.integers(0, 100_000), min_size=LENGTH, max_size=LENGTH)


def modules(model_type: str) -> tuple[Any, PlannedRotary]:
    """The stock rotary module of a type, and ours in its place."""
    config = CONFIG_MAPPING[model_type]()
    stock = truth.rotary_class(config)(config)
    ours = PlannedRotary("halves", True, recompose=stock.recomposition_frequencies)
    schedule = present_plan(config).longest()
    ours.follow({"full_attention": (PlanStep(2**20, schedule),)})
    return stock, ours


@pytest.mark.parametrize("model_type", SEVERAL_AXES)
@examples(15)
@given(at=positions)
def test_positions_of_text_reduce_to_plain_rotation(model_type: str, at: list[int]) -> None:
    """The law of M-RoPE: three equal axes turn as one, so a plan for text holds."""
    stock, ours = modules(model_type)
    x = torch.zeros(1, dtype=torch.float64)
    one = torch.tensor([at])
    for several, single in zip(ours(x, one.expand(3, 1, -1)), ours(x, one), strict=True):
        assert torch.equal(several, single)
    for several, single in zip(stock(x, one.expand(3, 1, -1)), ours(x, one), strict=True):
        # float32 angles of the stock module are off by up to position · 2⁻²³
        assert float((several - single).abs().max()) < 1e-6 + max(at) * 2.0**-22


@pytest.mark.parametrize("model_type", SEVERAL_AXES)
@examples(15)
@given(time=positions, height=positions, width=positions)
def test_each_pair_takes_the_axis_that_it_takes_in_the_stock_module(
    model_type: str, time: list[int], height: list[int], width: list[int]
) -> None:
    stock, ours = modules(model_type)
    x = torch.zeros(1, dtype=torch.float64)
    axes = torch.tensor([[time], [height], [width]])
    for theirs, own in zip(stock(x, axes), ours(x, axes), strict=True):
        assert float((theirs - own).abs().max()) < 1e-6 + float(axes.max()) * 2.0**-22


def test_queries_of_ministral_3_grow_in_steps() -> None:
    """The schedule's growth is what the model's own attention multiplies its queries by."""
    config = tiny_config("ministral3")
    module = truth.modelling(config)
    log_n = present_plan(config).longest().log_n
    assert log_n is not None
    assert log_n.form == "steps"
    at = torch.arange(40)
    theirs = module.get_llama_4_attn_scale(at[None], log_n.growth, log_n.length).flatten()
    assert torch.allclose(torch.tensor(log_n.scaling(at)).float(), theirs)
    mean = float(torch.tensor(log_n.scaling(at)).mean())
    assert log_n.mean_scaling(40) == pytest.approx(mean, rel=1e-12)


def test_a_model_without_its_growth_gives_other_logits() -> None:
    """What the schedule says of queries is real: without it the model speaks otherwise."""
    model = model_of(tiny_config("ministral3"))
    still = {**tiny_config("ministral3").rope_parameters, "llama_4_scaling_beta": 0.0}
    other = model_of(tiny_config("ministral3", rope_parameters=still))
    ids = tokens(40)
    with torch.no_grad():
        assert not torch.allclose(model(ids).logits, other(ids).logits, rtol=0.01)
