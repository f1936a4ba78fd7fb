"""Configs in and out, held against transformers itself."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING, modeling_rope_utils
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION
from ropewalk.errors import InputError, Unsupported
from ropewalk.models import catalogue
from ropewalk.models.assumptions import assumptions
from ropewalk.models.config import load_config, present_plan, rope_types
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.schedule import RotarySchedule
from tests.examples import examples

GOLDEN = Path(__file__).parent.parent / "golden"
CHECKED = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text", "phi3", "gpt_neox", "olmo3")
LAYERED = ("gemma3_text", "olmo3")
TINY: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def tiny(model_type: str, rope: dict[str, Any] | None = None, **values: Any) -> Any:
    """A tiny config of a family, its rope setting on the layers with full attention."""
    if rope is not None and model_type in LAYERED:
        sliding = {"rope_type": "default", "rope_theta": 10000.0}
        values["rope_parameters"] = {FULL_ATTENTION: rope, SLIDING_ATTENTION: sliding}
    elif rope is not None:
        values["rope_parameters"] = rope
    if model_type in LAYERED:
        values["layer_types"] = [SLIDING_ATTENTION, FULL_ATTENTION]
    if model_type == "gemma3_text":
        values.setdefault("head_dim", 32)
    if model_type == "qwen3":
        values.setdefault("head_dim", 64)
    return CONFIG_MAPPING[model_type](**{**TINY, **values})


def rotary_module(config: Any) -> Any:
    """The rotary embedding that transformers builds for a config."""
    folder = config.model_type.removesuffix("_text")
    modeling = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    names = [name for name in vars(modeling) if name.endswith("RotaryEmbedding")]
    text = [name for name in names if "Vision" not in name]
    return getattr(modeling, text[0])(config)


def stock(config: Any, *, length: int | None = None) -> tuple[np.ndarray, float]:
    """Inverse frequencies and attention factor of the full-attention layers, by transformers."""
    layer = FULL_ATTENTION if config.model_type in LAYERED else None
    rope = config.rope_parameters[layer] if layer else config.rope_parameters
    if rope["rope_type"] == "default":
        module = rotary_module(config)
        name = f"{layer}_inv_freq" if layer else "inv_freq"
        return getattr(module, name).double().numpy(), 1.0
    function = ROPE_INIT_FUNCTIONS[rope["rope_type"]]
    arguments = {} if length is None else {"seq_len": length}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_rope_utils, "torch", DoubleTorch())
        frequencies, attention = function(config, layer_type=layer, **arguments)
    return frequencies.numpy(), float(attention)


class DoubleTorch:
    """torch, but what is computed in float32 is computed in float64.

    The formulas are compared, not their rounding: a steep ramp in float32 costs more than 1e-6.
    """

    float = float32 = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def assert_same(
    schedule: RotarySchedule, expected: tuple[np.ndarray, float], *, rtol: float = 1e-6
) -> None:
    frequencies, attention = expected
    np.testing.assert_allclose(schedule.inverse_frequencies, frequencies, rtol=rtol, atol=0)
    assert schedule.attention_scaling == pytest.approx(attention, rel=1e-12)


bases = st.floats(100, 1e7)
originals = st.sampled_from([128, 2048, 4096, 8192, 32768])
factors = st.floats(1.0, 64.0)


@st.composite
def ropes(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """A rope setting of any type that both know, and the length that goes beside it."""
    kind = draw(st.sampled_from(["default", "linear", "yarn", "llama3", "longrope"]))
    original, factor = draw(originals), draw(factors)
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": draw(bases)}
    if kind in ("default", "linear"):
        return {**rope, **({"factor": factor} if kind == "linear" else {})}, original
    rope |= {"factor": factor, "original_max_position_embeddings": original}
    if kind == "yarn":
        rope["beta_slow"] = draw(st.floats(0.5, 4))
        rope["beta_fast"] = draw(st.floats(4, 64))
        rope["truncate"] = draw(st.booleans())
        scaling = draw(st.sampled_from(["none", "given", "mscale"]))
        if scaling == "given":
            rope["attention_factor"] = draw(st.floats(0.5, 2))
        if scaling == "mscale":
            rope["mscale"] = draw(st.floats(0.5, 2))
            rope["mscale_all_dim"] = draw(st.floats(0.5, 2))
    if kind == "llama3":
        rope["low_freq_factor"] = draw(st.floats(0.5, 2))
        rope["high_freq_factor"] = draw(st.floats(3, 8))
    return rope, max(original + 1, round(original * factor))


def with_lists(config: dict[str, Any], pairs: int, draw: Any) -> None:
    lists = st.lists(st.floats(0.5, 80), min_size=pairs, max_size=pairs)
    config["long_factor"] = draw(lists)
    config["short_factor"] = draw(st.sampled_from([None])) or draw(lists)
    if draw(st.booleans()):
        config["attention_factor"] = draw(st.floats(0.5, 2))


@pytest.mark.parametrize("model_type", CHECKED)
@examples(25)
@given(data=st.data())
def test_every_rope_type_is_read_as_transformers_reads_it(
    model_type: str, data: st.DataObject
) -> None:
    rope, length = data.draw(ropes())
    if model_type == "phi3":
        rope["rope_type"] = "longrope" if len(rope) > 3 else "default"
        rope = {k: v for k, v in rope.items() if not k.startswith(("beta", "low", "high", "msc"))}
        rope.pop("truncate", None)
        rope.pop("factor", None)
    pairs = present_plan(tiny(model_type)).longest().geometry.pairs
    if rope["rope_type"] == "longrope":
        with_lists(rope, pairs, data.draw)
    values: dict[str, Any] = {"max_position_embeddings": length}
    if model_type == "phi3":
        values["original_max_position_embeddings"] = rope.get(
            "original_max_position_embeddings", length
        )
    config = tiny(model_type, rope, **values)
    plan = present_plan(config)

    # Default and longrope insist on float32, but have no ramp that would amplify its rounding.
    rtol = 1e-6 if rope["rope_type"] in ("default", "longrope") else 1e-12
    assert_same(plan.longest(), stock(config, length=plan.target_length + 1), rtol=rtol)
    if rope["rope_type"] == "longrope":
        assert_same(plan.schedule(1), stock(config, length=1))
    # Written and read again it is the same, through our own form and through transformers' object.
    written = with_plan(config, plan)
    assert present_plan(written).schedules == plan.schedules
    again = CONFIG_MAPPING[model_type].from_dict(written)
    assert present_plan(json.loads(again.to_json_string())).schedules == plan.schedules


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "gpt_neox"])
@examples(15)
@given(base=bases, factor=st.floats(1, 8), growth=st.floats(1, 16))
def test_dynamic_is_a_ladder_that_stands_on_transformers_values(
    model_type: str, base: float, factor: float, growth: float
) -> None:
    rope = {"rope_type": "dynamic", "rope_theta": base, "factor": factor}
    config = tiny(model_type, rope, max_position_embeddings=2048)
    plan = present_plan(config)
    for step in plan.steps():
        assert_same(step.schedule, stock(config, length=step.up_to_length), rtol=1e-12)
    assert plan.steps()[0].up_to_length == 2048
    assert present_plan(with_plan(config, plan)).schedules == plan.schedules


@pytest.mark.parametrize("model_type", ["llama", "ministral3", "phi3"])
def test_of_two_original_lengths_the_one_inside_counts_except_for_phi3(model_type: str) -> None:
    config = tiny(model_type, max_position_embeddings=2048).to_dict()
    factors = [2.0] * (present_plan(config).longest().geometry.rotary_dim // 2)
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "factor": 4.0,
        "short_factor": factors,
        "long_factor": factors,
        "original_max_position_embeddings": 512,
    }
    stated = {**config, "rope_parameters": rope, "original_max_position_embeddings": 1024}
    [told] = [text for name, text in assumptions(stated) if name == "two-original-lengths"]
    read = CONFIG_MAPPING[model_type].from_dict(stated)
    original = present_plan(stated).longest().geometry.original_length
    assert original == read.rope_parameters["original_max_position_embeddings"]
    assert original == (1024 if model_type == "phi3" else 512)
    assert ("the first is followed" in told) == (model_type == "phi3")


@pytest.mark.parametrize("model_type", CHECKED)
@pytest.mark.parametrize("method", ["linear", "ntk", "ntk_mixed", "yarn", "llama3", "two_band"])
def test_a_written_plan_is_what_the_model_then_does(model_type: str, method: str) -> None:
    config = tiny(model_type, max_position_embeddings=512)
    if model_type == "phi3":
        config.original_max_position_embeddings = 512
    plan = extend_plan(present_plan(config), 4096, method)
    written = CONFIG_MAPPING[model_type].from_dict(with_plan(config, plan))
    assert_same(plan.longest(), stock(written))
    module = rotary_module(written)
    name = f"{FULL_ATTENTION}_inv_freq" if model_type in LAYERED else "inv_freq"
    built = getattr(module, name).double().numpy()
    np.testing.assert_allclose(built, plan.longest().inverse_frequencies, rtol=1e-6)


def test_sliding_layers_keep_their_schedule_unless_named() -> None:
    present = present_plan(tiny("gemma3_text", max_position_embeddings=1024))
    kept = extend_plan(present, 8192, "linear")
    assert kept.longest(SLIDING_ATTENTION) == present.longest(SLIDING_ATTENTION)
    assert kept.steps(SLIDING_ATTENTION)[-1].up_to_length == 8192
    both = extend_plan(present, 8192, "linear", layer_types=[FULL_ATTENTION, SLIDING_ATTENTION])
    assert (both.longest(SLIDING_ATTENTION).rescale_factors == 8).all()


def expected_schedules(name: str) -> dict[str, list[dict[str, Any]]]:
    value = json.loads((GOLDEN / "expected" / f"{name}.json").read_text())
    layers: dict[str, list[dict[str, Any]]] = value.get("layer_types", {})
    return layers


READ = [p.stem for p in sorted((GOLDEN / "configs").glob("*.json")) if expected_schedules(p.stem)]
REFUSED = {"gpt-j-6b": "rotates by a base of 10000"}


@pytest.mark.parametrize("name", [name for name in READ if name not in REFUSED])
def test_published_configs_are_read_as_computed_by_hand(name: str) -> None:
    plan = present_plan(GOLDEN / "configs" / f"{name}.json")
    for layer, expected in expected_schedules(name).items():
        # One setting may serve layer types that the model tells apart otherwise (gpt-oss).
        steps = plan.schedules.get(layer) or plan.steps(FULL_ATTENTION)
        assert len(steps) == len(expected)
        for step, value in zip(steps, expected, strict=True):
            schedule, geometry = step.schedule, step.schedule.geometry
            assert geometry.base == value["base"]
            assert geometry.head_dim == value["head_dim"]
            assert geometry.rotary_dim == value["rotary_dim"]
            assert geometry.original_length == value["original_length"]
            assert geometry.pair_layout == value["pair_layout"]
            assert schedule.length == value["trained_length"]
            assert step.up_to_length == value["served_length"]
            assert schedule.attention_scaling == pytest.approx(
                value["attention_scaling"], rel=1e-12
            )
            assert schedule.softmax_scaling == pytest.approx(value["softmax_scaling"], rel=1e-12)
            np.testing.assert_allclose(
                schedule.inverse_frequencies, value["inverse_frequencies"], rtol=1e-12
            )


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_what_cannot_be_read_is_refused_by_name(name: str, reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        present_plan(GOLDEN / "configs" / f"{name}.json")


@pytest.mark.parametrize("name", catalogue.names())
def test_every_known_model_is_read_and_written_back(name: str) -> None:
    config = catalogue.find(name).config
    plan = present_plan(config)
    assert present_plan(with_plan(config, plan)).schedules == plan.schedules


def llama(**values: Any) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 2,
        "max_position_embeddings": 512,
        **values,
    }


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            {"model_type": "qwen3_next", "num_hidden_layers": 2,
             "layer_types": ["linear_attention"] * 2},
            "layer_types: none of the 2 layers of this model rotates",
        ),
        *(
            (
                {"model_type": model_type, "rope_parameters": {"rope_type": "default"}},
                f"is a single setting, and models of type '{model_type}' need one for each",
            )
            for model_type in ("gemma3_text", "gemma4_text", "modernbert", "olmo3", "lfm3")
        ),
        (
            llama(rope_parameters={"full_attention": {"rope_type": "linear", "factor": 2.0}}),
            "models of type 'llama' read a single one; write that of 'full_attention' alone",
        ),
        *(
            (
                {"model_type": model_type, "rope_scaling": {"type": "linear", "factor": 2.0}},
                "rope_scaling.type = 'linear': is not read for models of type",
            )
            for model_type in ("gemma3_text", "olmo3")
        ),
        (llama(rope_scaling={"type": "axial"}), "rope type 'axial'"),
        (llama(rope_parameters={"rope_type": "yarn", "factor": 0.5}), "factor = 0.5"),
        (llama(rope_parameters={"rope_type": "yarn"}), "factor = None"),
        (llama(rope_parameters={"mrope_section": [1, 2]}), r"= \[1, 2\]: must sum to 16"),
        (llama(rope_parameters=[1]), "must be an object"),
        (llama(model_type="smollm3", no_rope_layers=2), "no_rope_layers = 2: must be a list"),
        (llama(layer_types=2), "layer_types = 2: must be a list"),
        (llama(layer_types=["a", ["b"]]), r"layer_types\[1\] = \['b'\]: must be a string"),
        (llama(rope_theta="much"), "rope_theta = 'much'"),
        (llama(rope_theta=1), "config.rope_theta = 1.0"),  # named without a file
        (llama(num_attention_heads=0), "num_attention_heads = 0"),
        (llama(alibi=True), "ALiBi"),
        ({"model_type": "any", "rope_theta": 1e4, "max_position_embeddings": 8}, "_heads = None"),
        (llama(rope_scaling={"type": "su", "factor": 2.0, "long_factor": [1.0]}), "1 values"),
        (
            llama(rope_scaling={"type": "su", "factor": 2.0, "long_factor": [1.0] * 16,
                                "short_factor": [1.0] * 15}),
            "short_factor = '15 values'",
        ),
        (
            llama(rope_scaling={"type": "su", "factor": 2.0, "long_factor": [-1.0] * 16,
                                "short_factor": [1.0] * 16}),
            r"long_factor\[0\] = -1.0",
        ),
        (llama(rope_scaling={"type": "yarn", "factor": 2.0, "truncate": "no"}), "truncate = 'no'"),
    ],
)  # fmt: skip
def test_bad_configs_are_refused_with_the_reason(config: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        present_plan(config)


def test_config_sources(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(llama()))
    assert load_config(tmp_path) == load_config(tmp_path / "config.json") == llama()
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InputError, match="holds no JSON object"):
        load_config(tmp_path / "list.json")
    with pytest.raises(InputError, match="no such file"):
        load_config(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is not a config"):
        load_config(3)


def test_plans_never_name_layers_that_do_not_rotate() -> None:
    present = present_plan(CONFIG_MAPPING["cohere2"]())
    assert set(present.schedules) == {SLIDING_ATTENTION}
    assert extend_plan(present, 65536, "yarn").longest(SLIDING_ATTENTION).method == "yarn"
    with pytest.raises(Unsupported, match="no rotating layers of type full_attention"):
        extend_plan(present, 65536, "yarn", layer_types=["full_attention"])


@pytest.mark.parametrize(
    ("model_type", "told"),
    [
        ("gptj", "by a base of 10000 that stands in its code"),
        ("codegen", "by a base of 10000 that stands in its code"),
        ("roformer", "by a table of sines"),
        ("esm", "in proteins, where position_embedding_type = 'rotary'"),
        ("wav2vec2-conformer", "in speech, by rotary_embedding_base"),
    ],
)
def test_a_type_that_rotates_in_its_own_code_is_not_said_to_have_no_rope(
    model_type: str, told: str
) -> None:
    config = {"model_type": model_type, "rope_theta": 1e4, "hidden_size": 64}
    with pytest.raises(Unsupported, match=f"rotates {told}.*ropewalk does not extend that"):
        present_plan({**config, "num_attention_heads": 4, "max_position_embeddings": 64})


def test_a_wrapper_states_only_what_differs_from_the_class_of_its_text_part() -> None:
    """As the published LLaVA 1.5: Llama's class says 4096 wide, in 32 heads."""
    inner = {"model_type": "llama", "max_position_embeddings": 4096}
    for outer in ("llava", "vipllava", "llava_next", "video_llava"):
        geometry = present_plan({"model_type": outer, "text_config": inner}).longest().geometry
        assert (geometry.head_dim, geometry.original_length) == (128, 4096)
    mistral = {"model_type": "mistral", "hidden_size": 8192, "rope_theta": 1e4}
    assert present_plan(mistral).longest().geometry.head_dim == 256


def test_each_rope_type_is_one_file() -> None:
    files = {path.stem for path in Path(rope_types.__file__).parent.glob("[a-z]*.py")}
    assert files == {*rope_types.ROPE_TYPES, "ntk_alpha"}


def test_the_heads_of_zamba2_are_those_of_both_inputs_together() -> None:
    """Its own configs state `kv_channels` too, which its class does not read."""
    config = CONFIG_MAPPING["zamba2"](use_mem_rope=True)
    assert (config.kv_channels, config.attention_head_dim) == (80, 160)
    plan = present_plan(config)
    assert plan.longest(plan.main_layer).geometry.head_dim == 160
    assert assumptions(config.to_dict()) == ()
