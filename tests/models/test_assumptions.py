"""What a config leaves open is stated in a sentence, or refused where no reading is safe."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.models import catalogue
from ropewalk.models.assumptions import assumptions
from ropewalk.models.config import present_plan
from ropewalk.models.families import ENCODERS, FAMILIES, WITHOUT_ROPE
from ropewalk.models.source import resolve
from tests.gguf.gguf_files import header_only
from tests.models import test_config, tiny

LINEAR = {"rope_type": "linear", "factor": 8.0}
YARN = {"rope_type": "yarn", "factor": 4.0}


def llama(**values: Any) -> dict[str, Any]:
    return test_config.llama(**{"rope_theta": 1e4, **values})


def stated(config: dict[str, Any]) -> dict[str, str]:
    return {found.name: found.text for found in assumptions(config)}


@pytest.mark.parametrize(
    ("values", "name", "text"),
    [
        (
            {"rope_scaling": {**YARN, "factor": 2.0}, "rope_parameters": YARN},
            "scaling-conflict",
            "rope_scaling and rope_parameters differ in factor; rope_scaling is followed",
        ),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
            "theta-conflict",
            "rope_theta is 10000.0, and rope_parameters states 500000.0; the base in rope_param",
        ),
        ({"rotary_emb_base": 5e5}, "two-names", "rope_theta is 10000.0 and rotary_emb_base is 5"),
        ({"rope_scaling": {**YARN, "type": "linear"}}, "two-names", "rope_type 'yarn' and type"),
        (
            {
                "model_type": "stablelm", "partial_rotary_factor": 0.5,
                "rope_parameters": {"partial_rotary_factor": 0.25},
            },
            "two-names",
            "partial_rotary_factor is 0.5, and rope_parameters states 0.25; the second",
        ),
        (
            {
                "original_max_position_embeddings": 256,
                "rope_scaling": {**YARN, "original_max_position_embeddings": 128},
            },
            "two-original-lengths",
            "original_max_position_embeddings is 256, and rope_scaling states 128; the second",
        ),
        (
            {"model_type": "olmo3"},
            "theta-of-windows",
            "transformers 5 turns those with a sliding window by 500000",
        ),
        (
            {"model_type": "gpt_neox", "rope_theta": 5e5},
            "key-not-read",
            "is not read by the class of model type 'gpt_neox', whose base is 10000",
        ),
        ({"rope_interleave": True}, "layout-conflict", "rope_interleave = true is followed, altho"),
        ({"use_dynamic_ntk": True}, "key-not-read", "use_dynamic_ntk = true is not followed"),
        ({"use_logn_attn": True}, "key-not-read", "use_logn_attn = true is not followed"),
        ({"seq_length": 128}, "key-not-read", "max_position_embeddings = 512 is taken for the len"),
        ({"rope_ratio": 500}, "key-not-read", "rope_ratio = 500 is not read"),
        ({"model_type": "qwenny"}, "unknown-model-type", "model_type 'qwenny' is not known"),
        ({"model_type": "nomic_bert"}, "encoder", "is an encoder, which predicts no next token"),
        ({"is_causal": False}, "encoder", "this llama is an encoder, which predicts no next token"),
        ({"use_bidirectional_attention": True}, "encoder", "this llama is an encoder"),
        ({"model_type": None}, "unknown-model-type", "no model_type is stated"),
        ({"model_type": "x" * 5000}, "unknown-model-type", "xxx...xxx"),
    ],
)  # fmt: skip
def test_what_is_assumed_is_stated_with_the_keys_of_the_file(
    values: dict[str, Any], name: str, text: str, tmp_path: Path
) -> None:
    config = llama(**values)
    found = stated(config)
    assert set(found) == {name}
    assert text in found[name]
    assert len(found[name]) < 400
    present_plan(config)  # it is read all the same
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    assert resolve(tmp_path).assumptions == (f"{file}: {found[name]}",)


def test_the_top_level_and_text_config_may_contradict_each_other() -> None:
    found = stated({"rope_theta": 5e5, "text_config": llama()})
    assert found == {
        "two-levels": "rope_theta is 500000.0 at the top level and 10000.0 in text_config; "
        "text_config is followed"
    }


def test_a_scaling_at_the_top_level_alone_is_ignored_in_words() -> None:
    config = {"rope_scaling": LINEAR, "text_config": llama()}
    assert stated(config) == {
        "two-levels": "rope_scaling is stated at the top level, where transformers does not read "
        "it, and not in text_config; it is ignored"
    }
    assert present_plan(config) == present_plan({"text_config": llama()})


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"rope_scaling": None, "rope_parameters": YARN},
        {"rope_scaling": {"type": "yarn", "factor": 4.0}, "rope_parameters": YARN},
        {"rope_scaling": YARN, "rope_parameters": {**YARN, "rope_theta": 1e4}},
        {"use_dynamic_ntk": False, "use_logn_attn": False, "seq_length": 512},
        {"rope_interleave": False},
        {"text_config": llama(), "hidden_size": 1024},
    ],
)
def test_what_is_plain_is_not_warned_of(values: dict[str, Any]) -> None:
    assert stated(llama(**values)) == {}


@pytest.mark.parametrize(
    ("kind", "layout"), [("deepseek_v3", "half"), ("cohere", "interleaved"), ("llama", "half")]
)
def test_null_means_no_only_to_a_class_that_reads_the_key(kind: str, layout: str) -> None:
    config = llama(model_type=kind, qk_rope_head_dim=16, rope_interleave=None)
    assert present_plan(config).longest().geometry.pair_layout == layout


def test_the_classes_that_read_how_pairs_lie_are_followed_without_a_word() -> None:
    reads = {kind for kind, own in FAMILIES.items() if "rope_interleave" in own.defaults}
    assert reads > {"deepseek_v3", "youtu", "glm4_moe_lite"}
    for kind in reads:
        own = {"model_type": kind, "qk_rope_head_dim": 16, "rope_interleave": True}
        assert "layout-conflict" not in stated(llama(**own))


def test_linear_scaling_over_one_length_is_read_as_the_engines_do_and_said() -> None:
    """LLaMA-2-7B-32K states the scaled length, Vicuna the one before scaling."""
    path = Path(__file__).parent / "published" / "llama2-7b-32k.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    assert present_plan(config).target_length == 2**18
    text = stated(config)["length-open"]
    assert "= 32768 is taken for the length before scaling" in text
    assert text.endswith("add original_max_position_embeddings = 4096 to rope_scaling")
    followed = {**config["rope_scaling"], "original_max_position_embeddings": 4096}
    config["rope_scaling"] = followed
    assert stated(config) == {}
    plan = present_plan(config)
    assert plan.target_length == 2**15
    assert plan.longest().geometry.original_length == 4096
    vicuna = {**config, "max_position_embeddings": 4096, "rope_scaling": {**LINEAR, "factor": 4.0}}
    assert stated(vicuna) == {}, "nothing was pretrained at 1,024"


def test_encoders_are_the_types_that_stock_classes_run_on_masked_text_alone() -> None:
    from transformers.models.auto import modeling_auto as auto

    masked, causal = auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    assert set(FAMILIES) & set(masked) - set(causal) == ENCODERS


def test_known_models_need_no_assumption() -> None:
    assert resolve("bundled").assumptions == ()
    for name in catalogue.names():
        said = [text for text in resolve(name).assumptions if "the catalogue says" not in text]
        assert said == [], name
    for family in tiny.FAMILIES:
        assert assumptions(tiny.tiny_config(family).to_dict()) == (), family


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"model_type": "gpt2"}, "uses absolute positions, not a rotary embedding"),
        ({"model_type": "mamba"}, "uses no positions"),
        ({"hidden_size": 4097, "num_attention_heads": 32}, "hidden_size = 4097: is not divisible"),
        ({"is_causal": 1}, "is_causal = 1: must be true or false"),
        ({"rope_interleave": "no"}, "rope_interleave = 'no': must be true or false"),
        ({"partial_rotary_factor": 0.3}, "partial_rotary_factor = 0.3: makes 9 dimensions"),
        ({"partial_rotary_factor": 2}, "partial_rotary_factor = 2.0: must be above 0"),
        ({"head_dim": 10**9}, "head_dim = 1000000000: must lie between 1 and 8192"),
        ({"rope_theta": 0}, r"config.json: rope_theta = 0.0: must be above 1"),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 0.5}},
            "config.json: rope_parameters.rope_theta = 0.5: must be above 1",
        ),
        ({"max_position_embeddings": 0}, "max_position_embeddings = 0: must lie between 1"),
        (
            {"rope_scaling": {**YARN, "original_max_position_embeddings": -1}},
            "rope_scaling.original_max_position_embeddings = -1",
        ),
        ({"rope_scaling": {**YARN, "factor": 1e308}}, r"rope_scaling.factor = 1e\+308"),
        ({"rope_scaling": {"type": "linear", "factor": 1e12}}, "rope_scaling.factor = 1000000000"),
        ({"rope_scaling": {**YARN, "beta_fast": 0.5}}, "rope_scaling.beta_fast = 0.5"),
        ({"rope_scaling": {**YARN, "attention_factor": 1e9}}, "rope_scaling.attention_factor = 1"),
        (
            {"rope_scaling": {"type": "longrope", "factor": 4.0, "long_factor": [1.0] * 16,
                              "short_factor": [2.0] * 16, "original_max_position_embeddings": 1}},
            "rope_scaling.original_max_position_embeddings = 1: leaves longrope's",
        ),
        ({"rope_scaling": {"type": "z" * 5000}}, "rope type 'zzz"),
        ({"rope_scaling": {"z" * 5000: 1}}, "rope setting 'zzz"),
    ],
)  # fmt: skip
def test_no_safe_reading_is_an_error_that_names_file_and_key(
    values: dict[str, Any], text: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(llama(**values)))
    source = resolve(tmp_path)
    with pytest.raises(InputError, match=text) as caught:
        source.present_plan, source.assumptions  # noqa: B018
    assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: ")
    assert len(str(caught.value)) < 600


def test_keys_of_a_nested_config_are_named_with_their_path() -> None:
    config = {"text_config": llama(rope_parameters={**YARN, "factor": 0.5, "rope_theta": 1e4})}
    with pytest.raises(InvalidValue, match=r"config.text_config.rope_parameters.factor = 0.5"):
        present_plan(config)


@pytest.mark.parametrize("model_type", [name for name in WITHOUT_ROPE if name in CONFIG_MAPPING])
def test_models_without_rope_do_not_rotate_in_transformers(model_type: str) -> None:
    assert model_type not in FAMILIES
    package = CONFIG_MAPPING[model_type].__module__.rpartition(".")[0]
    spec = importlib.util.find_spec(f"{package}.modeling_{package.rpartition('.')[2]}")
    assert spec is not None
    assert spec.origin is not None
    code = Path(spec.origin).read_text(encoding="utf-8").lower()
    # Jamba's file holds a function that rotates, which nothing calls.
    assert not any(word in code for word in ("rotaryembedding", "rotary_emb(", "inv_freq"))


def test_a_gguf_file_states_its_base_or_it_is_assumed(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", drop=["rope.freq_base"])
    assert resolve(path).assumptions == (
        f"{path}: no rope.freq_base is stated; the base is taken to be 10000, as in llama.cpp",
    )
    path = header_only(tmp_path / "b.gguf", keys={"context_length": 512, "rope.freq_base": 5e5})
    assert resolve(path).assumptions == ()
    path = header_only(tmp_path / "c.gguf", architecture="gpt2", keys={"context_length": 512})
    with pytest.raises(Unsupported, match="absolute positions"):
        resolve(path).present_plan  # noqa: B018
