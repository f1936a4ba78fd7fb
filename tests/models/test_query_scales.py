"""Query scales in a live model: the same as scaled query weights, and taken out again."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import GateFailed, InvalidValue, Unsupported
from ropewalk.models import queries
from ropewalk.models.anatomy import anatomy_of
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied, install, uninstall
from ropewalk.models.verify import verify
from ropewalk.planning.extension import extend_plan
from ropewalk.query_scales import QueryScales
from ropewalk.schedule import FloatArray, LogN
from tests.models.family_run import TARGET
from tests.models.tiny import FAMILIES, thinned, tiny_model, tokens

IDS = tokens(20, rows=2)
SCALED = {
    "llama": {},
    "qwen2": {},
    "cohere": {"use_qk_norm": False},
    "stablelm": {"qk_layernorm": False},
    "gemma2": {},
    "smollm3": {},
}
"""Families whose queries go straight from a projection to the rotation, of each head layout."""


def planned(model: Any) -> ContextPlan:
    present = present_plan(model.config)
    return extend_plan(present, TARGET, "yarn", layer_types=tuple(present.schedules))


def scaled(model: Any, plan: ContextPlan, make: Callable[..., FloatArray]) -> ContextPlan:
    """The plan with scales for each layer that rotates."""
    heads = model.config.num_attention_heads
    layers = {
        layer.index: make((heads, plan.longest(layer.layer_type).geometry.pairs))
        for layer in anatomy_of(model).layers
    }
    return replace(plan, query_scales=QueryScales(layers))


def random(shape: tuple[int, int]) -> FloatArray:
    return np.exp(np.random.default_rng(shape[0]).normal(size=shape) / 2)


def some_plan(model: Any) -> ContextPlan:
    return scaled(model, planned(model), random)


@torch.no_grad()
def logits(model: Any) -> Tensor:
    result: Tensor = model(IDS).logits
    return result


def with_scaled_weights(model: Any, plan: ContextPlan) -> Any:
    """A copy with each row of its query projections multiplied, one by one."""
    assert plan.query_scales is not None
    other = copy.deepcopy(model)
    for index, scales in plan.query_scales.layers.items():
        projection = other.model.layers[index].self_attn.q_proj
        geometry = plan.longest(plan.main_layer).geometry
        for head, own in enumerate(scales):
            for pair, scale in enumerate(own):
                rows = (pair, pair + geometry.pairs)
                if geometry.pair_layout == "interleaved":
                    rows = (2 * pair, 2 * pair + 1)
                for row in rows:
                    for part in projection.parameters():
                        with torch.no_grad():
                            part[head * geometry.head_dim + row] *= scale
    return other


@pytest.mark.parametrize("family", SCALED)
def test_scales_are_scaled_query_weights(family: str) -> None:
    model = tiny_model(family, **SCALED[family]).double()
    plan = some_plan(model)
    assert plan.query_scales is not None
    folded = with_scaled_weights(model, plan)
    with applied(folded, replace(plan, query_scales=None), check=False):
        expected = logits(folded)
    with applied(model, plan, check=False):
        found = logits(model)
    rounding = 1e-6 if family == "cohere" else 1e-12  # Cohere turns in float32
    torch.testing.assert_close(found, expected, rtol=0, atol=rounding * float(expected.std()))
    with applied(model, replace(plan, query_scales=None), check=False):
        assert float((logits(model) - found).abs().max()) > 0.1 * float(expected.std())


@pytest.mark.parametrize("family", thinned(FAMILIES))
def test_every_family_takes_scales_and_gives_them_back(family: str) -> None:
    model = tiny_model(family)
    weights = copy.deepcopy(model.state_dict())
    stock, plan = logits(model), planned(model)
    random_scales, ones = some_plan(model), scaled(model, plan, np.ones)
    with applied(model, plan, check=False):
        unscaled = logits(model)
        with applied(model, random_scales):  # which verifies that they took effect
            assert not torch.equal(logits(model), unscaled)
        assert torch.equal(logits(model), unscaled)
        with applied(model, ones, check=False):
            assert torch.equal(logits(model), unscaled)
    assert torch.equal(logits(model), stock)
    assert all(torch.equal(own, weights[name]) for name, own in model.state_dict().items())


def test_scales_go_along_with_log_n_and_half_precision() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        model = tiny_model("llama").to(dtype)
        plan = some_plan(model)
        (step,) = plan.steps()
        log_n = replace(step.schedule, log_n=LogN("beyond", 8), softmax_scaling=1.2)
        both = replace(plan, schedules={FULL_ATTENTION: (replace(step, schedule=log_n),)})
        assert both.query_scales is plan.query_scales
        install(model, both)
        install(model, plan)
        notes = verify(model, plan).notes
        assert notes == (f"{plan.query_scales}: compared with the queries of these layers",)
        uninstall(model)


def test_a_layer_without_scales_is_not_touched() -> None:
    model = tiny_model("llama")
    plan = some_plan(model)
    assert plan.query_scales is not None
    first = replace(plan, query_scales=QueryScales({0: plan.query_scales.layers[0]}))
    with applied(model, first):
        configs = [layer.self_attn.config for layer in model.model.layers]
    assert configs[0] is not model.config
    assert configs[1] is model.config


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ({2: (4, 8)}, "layers.2 = '4 query heads of 8 pairs': layer 2 of this model has no"),
        ({0: (2, 8)}, "layers.0 = '2 query heads of 8 pairs': this layer has 4 query heads of 8"),
    ],
)
def test_scales_of_another_model_are_refused(
    layers: dict[int, tuple[int, int]], message: str
) -> None:
    model = tiny_model("llama")
    stock = logits(model)
    scales = QueryScales({index: np.full(shape, 2.0) for index, shape in layers.items()})
    plan = replace(planned(model), query_scales=scales)
    with pytest.raises(InvalidValue, match=rf"^plan\.query_scales\.{message}"):
        install(model, plan)
    assert torch.equal(logits(model), stock)
    assert verify(model, plan).problems


def test_a_model_whose_queries_cannot_be_reached_is_refused() -> None:
    model = tiny_model("llama")
    plan = some_plan(model)
    for layer in model.model.layers:
        layer.self_attn.config = copy.copy(model.config)
        layer.self_attn.forward = partial(_around_the_interface, layer.self_attn)
    with pytest.raises(Unsupported, match="do not use transformers' attention interface"):
        install(model, plan, check=False)


def _around_the_interface(module: Any, hidden_states: Tensor, **_: Any) -> tuple[Tensor, None]:
    return hidden_states, None


class TestVerify:
    def test_a_stock_model_without_the_scales_is_named(self) -> None:
        model = tiny_model("llama", max_position_embeddings=TARGET)
        plan = scaled(model, present_plan(model.config), random)
        found = verify(model, plan)
        assert found.problems == (
            f"full_attention at length {TARGET}: the plan's query scales do not multiply the "
            "queries, in 2 of 2 layers",
        )
        folded = with_scaled_weights(model, plan)
        assert verify(folded, replace(plan, query_scales=None)).passed
        assert not verify(folded, plan).passed

    def test_other_scales_are_noticed(self) -> None:
        model = tiny_model("llama")
        plan = some_plan(model)
        ones = scaled(model, planned(model), np.ones)
        install(model, ones)
        assert verify(model, ones).unchanged == ("query scales of 1 change nothing",)
        slightly = scaled(
            model, planned(model), lambda shape: random(shape) * np.linspace(1, 1.001, shape[1])
        )
        install(model, slightly)
        problems = " ".join(verify(model, plan).problems)
        assert "logits at position" in problems

    def test_scales_forgotten_on_the_way_are_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = tiny_model("llama")
        monkeypatch.setattr(queries.QueryFactors, "scaled", lambda self, query: query)
        with pytest.raises(GateFailed, match="query scales do not multiply the queries"):
            install(model, some_plan(model))
        assert "_ropewalk" not in model.__dict__
