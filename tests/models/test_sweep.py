"""Every model type of the installed transformers that rotates, read or refused for the true reason.

New model types join by themselves: what they fill in is compared with stock_defaults.json, how they
rotate with their own code.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import CONFIG_MAPPING

from ropewalk.context_plan import SLIDING_ATTENTION
from ropewalk.errors import InputError
from ropewalk.models import families
from ropewalk.models.config import present_plan
from ropewalk.models.families import FAMILIES
from tests.models import stock_defaults, truth

# What the file names is compared with what is installed, so none is left out (and collecting tests
# imports no config class).
STOCK = json.loads(Path(families.__file__).with_name("stock_defaults.json").read_text("utf-8"))
TEXT = sorted(STOCK)

_PLACES = "turns by places in a picture"
REFUSED = {
    "blt": "its four transformers have configs of their own",
    "efficientloftr": _PLACES,
    "eomt_dinov3": _PLACES,
    "ernie4_5_vl_moe_text": "orders frequencies for pictures other than for text",
    "glm4_moe": "hidden_size = 4096: is not divisible by num_attention_heads = 96, and no head_dim",
    "glm4v_moe_text": "hidden_size = 4096: is not divisible by num_attention_heads = 96, and no",
    "granitemoehybrid": "uses no positions where position_embedding_type = None",
    "llama4_vision_model": _PLACES,
    "qwen3_omni_moe_text": "hidden_size = 2048: is not divisible by num_attention_heads = 28",
    "recurrent_gemma": "max_position_embeddings = None: is missing",
    "zamba2": "uses no positions where use_mem_rope = False",
}
"""Default configs that are refused, and why."""

# How each type says which of its layers rotate, by the condition in its code.
CONDITIONS = {
    "self.use_rope": "no_rope_layers",
    "self.is_local_attention": SLIDING_ATTENTION,
    "self.sliding_window is not None": SLIDING_ATTENTION,
    "self.sliding_window is not None or self.force_rope": SLIDING_ATTENTION,
    "self.sliding_window is None or self.is_sliding": "windows_rotate",
    "self.config.use_mem_rope": "rotates_if",
    "alibi is None": "alibi",
}


def reason(config: object) -> str | None:
    """Why a config is not read; None if it is."""
    try:
        present_plan(config)
    except InputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("model_type", TEXT)
def test_every_text_type_is_read_as_its_own_code_rotates(model_type: str) -> None:
    config = CONFIG_MAPPING[model_type]()
    refusal = reason(config)
    assert (model_type in REFUSED) == (refusal is not None), refusal
    if refusal is not None:
        assert REFUSED[model_type] in refusal
        return
    plan = present_plan(config)
    for own in truth.rotations(config):
        steps = plan.schedules[own.layer_type] if own.layer_type else plan.steps(plan.main_layer)
        schedule = steps[0].schedule
        np.testing.assert_allclose(
            schedule.inverse_frequencies, own.inverse_frequencies, rtol=1e-4, atol=0
        )
        assert schedule.attention_scaling == pytest.approx(own.attention_scaling, rel=1e-6)
    geometry = plan.longest(plan.main_layer).geometry
    assert truth.partner_of_first(config) == (1 if geometry.pair_layout == "interleaved" else 4)
    family = FAMILIES[model_type]
    assert family.softmax_mscale == truth.scales_softmax(config)
    assert family.steps_log_n == truth.scales_queries(config)
    layers_that_rest(model_type, config)


@pytest.mark.parametrize("model_type", TEXT)
def test_a_share_is_read_where_the_types_own_code_follows_it(model_type: str) -> None:
    config = CONFIG_MAPPING[model_type]()
    rope, share = config.rope_parameters, {"rope_type": "default", "partial_rotary_factor": 0.5}
    flat = not any(isinstance(value, dict) for value in rope.values())
    latent = "qk_rope_head_dim" in FAMILIES[model_type].defaults  # only that part turns, whole
    if not flat or latent or model_type in REFUSED or rope.get("mrope_section"):
        return
    whole = truth.rotations(config)
    config.rope_parameters = {"rope_theta": rope["rope_theta"], **share}
    turning = [len(own.inverse_frequencies) for own in truth.rotations(config)]
    refusal = reason(config)
    if refusal is not None:
        assert "rotates whole heads" in refusal
        assert turning == [len(own.inverse_frequencies) for own in whole]
        return
    geometry = present_plan(config).longest().geometry
    assert set(turning) == {geometry.turning_pairs}


def layers_that_rest(model_type: str, config: Any) -> None:
    """A type whose code rotates under a condition has that condition in its row."""
    for condition in truth.rests_in_some_layers(config) - {"position_embeddings is not None"}:
        kind, family = CONDITIONS[condition], FAMILIES[model_type]
        if kind == SLIDING_ATTENTION:
            assert family.rotates == SLIDING_ATTENTION
        elif kind == "no_rope_layers":
            assert "no_rope_layers" in config.to_dict()
        elif kind != "alibi":
            assert getattr(family, kind)


def test_what_turns_by_pictures_is_refused_for_that() -> None:
    found = [
        config
        for config in stock_defaults.configs().values()
        if stock_defaults.turns_pictures(config)
    ]
    assert len(found) > 20
    for config in found:
        if config.get_text_config() is config:
            assert "row and column of an image patch" in str(reason(config))


def test_a_model_of_several_parts_is_read_as_the_part_that_reads_text() -> None:
    read = 0
    for model_type in CONFIG_MAPPING:
        try:
            config = CONFIG_MAPPING[model_type]()
            text = config.get_text_config()
        except Exception:  # needs parts, or has several texts
            continue
        if text is config or not getattr(text, "rope_parameters", None):
            continue
        refusal = reason(config)
        assert (refusal is None) == (reason(text) is None), (model_type, refusal)
        if refusal is None:
            assert present_plan(config).schedules == present_plan(text).schedules, model_type
            read += 1
    assert read > 100


def test_the_defaults_are_those_of_the_installed_config_classes() -> None:
    """If this fails, transformers has other model types: write the file again (stock_defaults)."""
    assert stock_defaults.table() == STOCK


SIZES = {
    *("model_type", "hidden_size", "num_attention_heads", "layer_types", "per_layer_config"),
    *("d_model", "n_heads", "decoder_num_attention_heads", "qk_rope_head_dim", "qk_nope_head_dim"),
}


@pytest.mark.parametrize("model_type", sorted(set(TEXT) - set(REFUSED)))
def test_a_config_with_only_its_sizes_is_read_like_the_full_one(model_type: str) -> None:
    full = CONFIG_MAPPING[model_type]().to_dict()
    stated = {key: value for key, value in full.items() if key in SIZES}
    assert present_plan(stated).schedules == present_plan(full).schedules
