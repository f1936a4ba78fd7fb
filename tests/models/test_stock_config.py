"""What goes out as a stock config, and what is refused. (test_config.py reads it all back.)"""

from __future__ import annotations

import json

import pytest

from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.models.config import load_config, present_plan
from ropewalk.models.stock_config import rope_parameters, with_plan
from ropewalk.planning.extension import extend_plan
from tests.models.test_config import GOLDEN, llama
from tests.models.tiny import tiny_config


def test_what_stock_keys_cannot_say_is_refused() -> None:
    present = present_plan(llama())
    for method in ("linear", "yarn", "dynamic_ntk", "cope"):
        kept = extend_plan(present, 1024, method, kept_initial_positions=4)
        with pytest.raises(Unsupported, match="kept_initial_positions = 4"):
            rope_parameters(kept, llama())
    with pytest.raises(Unsupported, match="log n"):
        rope_parameters(extend_plan(present, 1024, "ntk", log_n="beyond"), llama())
    ladder = extend_plan(present, 4096, "dynamic_ntk+resonance")
    with pytest.raises(Unsupported, match="steps up to"):
        rope_parameters(ladder, llama())
    with pytest.raises(InvalidValue):
        with_plan(llama(model_type="gemma3_text", head_dim=32), present)


def test_a_length_under_its_familys_own_name_is_not_left_behind() -> None:
    config = {
        "model_type": "dbrx",
        "d_model": 128,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 512,
        "attn_config": {"rope_theta": 5e5, "kv_n_heads": 2},
    }
    plan = extend_plan(present_plan(config), 4096, "ntk")
    assert present_plan(with_plan(config, plan)).target_length == 4096


def test_dynamic_ntk_goes_out_under_its_own_name() -> None:
    plan = extend_plan(present_plan(llama()), 4096, "dynamic_ntk", {"factor": 2.0})
    assert [step.up_to_length for step in plan.steps()] == [512, 1024, 2048, 4096]
    assert rope_parameters(plan, llama())["rope_type"] == "dynamic"
    assert with_plan(llama(), plan)["max_position_embeddings"] == 512


def test_any_factors_go_out_as_longrope_with_equal_lists() -> None:
    plan = extend_plan(present_plan(llama()), 4096, "yarn+resonance")
    setting = rope_parameters(plan, llama())
    assert setting["rope_type"] == "longrope"
    assert setting["short_factor"] == setting["long_factor"]
    scaling = plan.longest().attention_scaling
    assert (
        setting["attention_factor"] == setting["short_mscale"] == setting["long_mscale"] == scaling
    )


def test_deepseeks_softmax_scaling_survives_as_longrope() -> None:
    config = load_config(GOLDEN / "configs" / "deepseek-v3.json")
    plan = extend_plan(present_plan(config), 327680, "linear")
    setting = rope_parameters(plan, config)
    assert setting["rope_type"] == "longrope"
    again = present_plan(with_plan(config, plan)).longest()
    assert again.softmax_scaling == pytest.approx(plan.longest().softmax_scaling, rel=1e-12)
    assert plan.longest().softmax_scaling == pytest.approx(1.8738542070926265)


def test_a_config_is_never_changed_in_place() -> None:
    config = llama(rope_scaling={"type": "linear", "factor": 2.0})
    before = json.dumps(config)
    plan = extend_plan(present_plan(config), 4096, "linear")
    with_plan(config, plan)
    assert json.dumps(config) == before


def test_a_share_of_the_head_is_read_back_as_so_many_dimensions() -> None:
    """30 / 44 · 44 is a little below 30 in floating point."""
    config = llama(model_type="stablelm", hidden_size=88, partial_rotary_factor=0.7)
    present = present_plan(config)
    assert (present.longest().geometry.head_dim, present.longest().geometry.rotary_dim) == (44, 30)
    written = with_plan(config, extend_plan(present, 4096, "linear"))
    assert present_plan(written).longest().geometry == present.longest().geometry


def test_short_and_long_sequences_of_phimoe_have_an_attention_scaling_each() -> None:
    factors = {"short_factor": [1.0] * 16, "long_factor": [4.0] * 16}
    scalings = {"short_mscale": 1.125, "long_mscale": 1.25}
    original = {"original_max_position_embeddings": 128}
    config = llama(
        model_type="phimoe", rope_scaling={"type": "longrope", **factors, **scalings, **original}
    )
    setting = rope_parameters(present_plan(config), config)
    assert (setting["short_mscale"], setting["long_mscale"]) == (1.125, 1.25)


def test_a_layer_type_without_rotation_keeps_its_null() -> None:
    """Of Beam, whose class fails on a flat setting, and without the null."""
    config = tiny_config("beam").to_dict()
    written = with_plan(config, extend_plan(present_plan(config), 64, "yarn"))
    ropes = written["rope_parameters"]
    assert (ropes["full_attention"], ropes["sliding_attention"]["rope_type"]) == (None, "yarn")
