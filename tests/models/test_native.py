"""The three lengths, against what publishers document: a row a model, by its config alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.models.assumptions import assumptions
from ropewalk.models.config import ConfigReader, load_config, present_plan
from ropewalk.models.native import Stated, three_lengths
from ropewalk.models.source import resolve
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import extend_plan, within_trained

PUBLISHED = Path(__file__).parent / "published"
GOLDEN = Path(__file__).parents[1] / "golden" / "configs"
K = 1024
HEADS = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 36}


def config(model_type: str, length: int, **values: Any) -> dict[str, Any]:
    values.setdefault("rope_theta", 1e6)
    return {"model_type": model_type, **HEADS, "max_position_embeddings": length, **values}


def yarn(factor: float, original: int, **values: Any) -> dict[str, Any]:
    own = {"type": "yarn", "factor": factor, "original_max_position_embeddings": original}
    return {"rope_scaling": {**own, **values}}


# reference, trained, served
FILES = {
    "apertus-8b": (8 * K, 64 * K, 64 * K),
    "chatglm3-6b-32k": (32 * K, 32 * K, 32 * K),
    "command-r": (8 * K, 8 * K, 8 * K),
    "dbrx": (32 * K, 32 * K, 32 * K),
    "deepseek-v3": (4 * K, 128 * K, 160 * K),
    "deepseek-v3.2": (4 * K, 128 * K, 160 * K),
    "devstral": (128 * K, 128 * K, 128 * K),
    "ernie-4.5-0.3b": (128 * K, 128 * K, 128 * K),
    "ernie-4.5-21b": (128 * K, 128 * K, 128 * K),
    "exaone-4-1.2b": (8 * K, 64 * K, 64 * K),
    "falcon-7b": (2 * K, 2 * K, 2 * K),
    "falcon-h1-7b": (256 * K, 256 * K, 256 * K),
    "gemma-3-4b": (32 * K, 128 * K, 128 * K),
    "gemma-3n-e2b": (32 * K, 32 * K, 32 * K),
    "gemma-4-26b-a4b": (256 * K, 256 * K, 256 * K),
    "gemma-4-e4b": (128 * K, 128 * K, 128 * K),
    "glm-4-9b-chat-1m": (1024 * K, 1024 * K, 1024 * K),
    "glm-4.6": (202752, 202752, 202752),
    "gpt-oss-20b": (4 * K, 128 * K, 128 * K),
    "grok-1": (8 * K, 8 * K, 8 * K),
    "hunyuan-7b": (256 * K, 256 * K, 32 * K),
    # Its last rung is longer: the base grows with the text.
    "internlm2.5-1m": (256 * K, 256 * K, 256 * K),
    "kimi-k2": (4 * K, 128 * K, 128 * K),
    "lfm2-1.2b": (32 * K, 32 * K, 128000),
    "llama-2-7b": (4 * K, 4 * K, 4 * K),
    "llama-3.1-8b": (8 * K, 128 * K, 128 * K),
    "llama-4-scout": (8 * K, 256 * K, 10240 * K),
    "llama2-7b-32k": (32 * K, 256 * K, 256 * K),
    "minicpm4-8b": (32 * K, 32 * K, 32 * K),
    "minimax-m2": (192 * K, 192 * K, 192 * K),
    "ministral-3-8b": (16 * K, 256 * K, 256 * K),
    "ministral-3-8b-v": (16 * K, 256 * K, 256 * K),
    "mistral-7b-v0.3": (32 * K, 32 * K, 32 * K),
    "mistral-nemo": (128 * K, 128 * K, 1024000),
    "mistral-small-3.2": (128 * K, 128 * K, 128 * K),
    "mistral-small-3.2-v": (128 * K, 128 * K, 128 * K),
    "modernbert-base": (8 * K, 8 * K, 8 * K),
    "nemotron-nano-8b-1m": (8 * K, 1024 * K, 1024 * K),
    "olmo-3-7b": (8 * K, 64 * K, 64 * K),
    "phi-3-mini-128k": (4 * K, 128 * K, 128 * K),
    "phi-3.5-moe": (4 * K, 128 * K, 128 * K),
    "pythia-1.4b": (2 * K, 2 * K, 2 * K),
    "qwen-7b": (8 * K, 8 * K, 32 * K),
    "qwen2.5-7b-instruct-yarn": (32 * K, 128 * K, 128 * K),
    "qwen2.5-vl-7b": (32 * K, 32 * K, 128000),
    "qwen3-8b-yarn": (32 * K, 128 * K, 128 * K),
    "qwen3-next-80b": (256 * K, 256 * K, 256 * K),
    "qwen3.5-9b": (256 * K, 256 * K, 256 * K),
    "smollm3-3b": (64 * K, 64 * K, 64 * K),
    "stablelm-2-1.6b": (4 * K, 4 * K, 4 * K),
}
REFUSED = {"baichuan2-13b", "granite-4.0-h", "mpt-7b", "nemotron-h", "qwen2.5-7b-1m", "gpt-j-6b"}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
ROWS = {
    "Qwen3": (config("qwen3", 40960), (32 * K, 32 * K, 40 * K)),
    "Qwen3, mixture": (config("qwen3_moe", 40960), (32 * K, 32 * K, 40 * K)),
    "Qwen3 base": (config("qwen3", 32768), (32 * K, 32 * K, 32 * K)),
    "Qwen3-2507, Qwen3-Coder": (config("qwen3_moe", 262144), (256 * K, 256 * K, 256 * K)),
    "Qwen3-VL": (
        {"model_type": "qwen3_vl", "text_config": config("qwen3_vl_text", 262144)},
        (256 * K, 256 * K, 256 * K),
    ),
    "Qwen3 in InternVL": (
        {"model_type": "internvl_chat", "llm_config": config("qwen3", 40960)},
        (32 * K, 32 * K, 40 * K),
    ),
    "Qwen2.5-Instruct": (config("qwen2", 32768), (32 * K, 32 * K, 32 * K)),
    "Qwen2.5 base, Qwen2 base, QwenLong": (config("qwen2", 131072), (128 * K, 128 * K, 128 * K)),
    "Qwen2.5-1M without its chunks": (config("qwen2", 1010000), (256 * K, 256 * K, 1010000)),
    "QwQ": (config("qwen2", 40960), (32 * K, 32 * K, 40 * K)),
    "Yarn-Llama-2": (config("llama", 65536, **yarn(16, 4096)), (4 * K, 64 * K, 64 * K)),
    "Yarn-Mistral-7b-64k": (
        config("mistral", 32768, **yarn(8, 8192), max_sequence_length=131072),
        (8 * K, 64 * K, 64 * K),
    ),
    "Yarn-Mistral-7b-128k": (
        config("mistral", 32768, **yarn(16, 8192), max_sequence_length=131072),
        (8 * K, 128 * K, 128 * K),
    ),
    "Llama 3.2": (
        config(
            "llama",
            131072,
            rope_scaling={**LLAMA3, "factor": 32.0, "original_max_position_embeddings": 8192},
        ),
        (8 * K, 128 * K, 128 * K),
    ),
    "Mistral Nemo, first revision": (config("mistral", 128000), (128 * K, 128 * K, 128000)),
    "GLM-4.5": (config("glm4_moe", 131072), (128 * K, 128 * K, 128 * K)),
    "Seed-OSS": (config("seed_oss", 524288), (512 * K, 512 * K, 512 * K)),
    "MiniCPM5": (config("llama", 131072), (128 * K, 128 * K, 128 * K)),
    "Yi-200K": (config("llama", 200000), (200000, 200000, 200000)),
    "InternLM2.5": (
        config("internlm2", 32768, rope_scaling={"type": "dynamic", "factor": 2.0}),
        (32 * K, 32 * K, 32 * K),
    ),
    "a length beside the rope settings": (
        config("llama", 131072, original_max_position_embeddings=32768),
        (32 * K, 32 * K, 128 * K),
    ),
    "vicuna-16k": (
        config("llama", 4096, rope_scaling={"type": "linear", "factor": 4.0},
               max_sequence_length=16384),
        (4 * K, 16 * K, 16 * K),
    ),
    "an old limit that was left in": (
        config("llama", 16384, max_sequence_length=2048), (16 * K, 16 * K, 16 * K)),
    "Qwen3 with a scaling is no mark": (
        config("qwen3", 40960, rope_scaling={"type": "linear", "factor": 2.0}),
        (40 * K, 80 * K, 80 * K),
    ),
    "Llama at 40960 is no mark": (config("llama", 40960), (40 * K, 40 * K, 40 * K)),
}  # fmt: skip


@pytest.mark.parametrize("name", [*FILES, *ROWS])
def test_the_three_lengths_are_those_that_publishers_document(name: str) -> None:
    expected = FILES[name] if name in FILES else ROWS[name][1]
    path = next((d / f"{name}.json" for d in (PUBLISHED, GOLDEN) if (d / f"{name}.json").is_file()),
                None)  # fmt: skip
    own = load_config(path) if path else ROWS[name][0]
    found = ConfigReader(own).lengths()
    assert (found.reference, found.trained, found.served) == expected
    if found.guess:
        assert any(each.name == "length-guessed" for each in assumptions(own))
    plan = present_plan(own)
    geometry = plan.longest(plan.main_layer).geometry
    assert geometry.original_length == found.reference


def test_each_published_config_has_a_row() -> None:
    files = {path.stem for folder in (PUBLISHED, GOLDEN) for path in folder.glob("*.json")}
    assert files == {*FILES, *REFUSED}


def test_a_guess_names_its_key_and_is_replaced_by_a_stated_length(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config("qwen3", 40960)))
    source = resolve(path)
    (text,) = source.assumptions
    assert "max_position_embeddings is 40960" in text
    assert "32768" in text
    stated = source.with_trained_length(40960)
    assert stated.assumptions == ()
    assert stated.present_plan.longest().geometry.original_length == 40960
    assert stated.trained_length == 40960


def test_what_may_be_a_fine_tuned_model_keeps_its_length_with_a_warning() -> None:
    (found,) = assumptions(config("qwen2", 131072))
    assert found.name == "length-open"
    assert "131072" in found.text
    assert "32768" in found.text
    assert assumptions(config("qwen2", 131072), trained=32768) == ()


def test_a_catalogue_name_tells_both_answers() -> None:
    source = resolve("qwen2.5-7b")
    (text,) = source.assumptions
    assert "trained at 32768" in text
    assert "131072" in text
    assert source.trained_length == source.present_plan.longest().geometry.original_length == 32768
    assert source.present_plan.target_length == 131072
    assert resolve("qwen3-8b").assumptions == ()


def test_lengths_that_contradict_each_other_are_named_with_their_order() -> None:
    above = config("llama", 8192, **yarn(4, 32768))
    (found,) = assumptions(above)
    assert found.name == "lengths-conflict"
    assert "rope_scaling.original_max_position_embeddings is 32768" in found.text
    assert "keys of the config" in found.text
    (found,) = assumptions(ROWS["Yarn-Mistral-7b-64k"][0])
    assert "max_sequence_length is 131072" in found.text
    assert assumptions(ROWS["Yarn-Mistral-7b-128k"][0]) == ()
    with pytest.raises(InvalidValue, match=r"trained_length = 4096: is below 8192"):
        resolve(GOLDEN / "llama-3.1-8b.json").with_trained_length(4096).present_plan  # noqa: B018


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3"])
def test_a_sequence_longer_than_the_factor_reaches_is_a_contradiction(kind: str) -> None:
    """With an original length and without one, the factor is followed; dynamic NTK has no end."""
    scaling = {"type": kind, "factor": 8.0}
    for more in ({}, {"original_max_position_embeddings": 4 * K}):
        own = config("llama", 4 * K, max_sequence_length=64 * K, rope_scaling={**scaling, **more})
        lengths = ConfigReader(own).lengths()
        assert (lengths.reference, lengths.trained, lengths.served) == (4 * K, 32 * K, 32 * K)
        assert "max_sequence_length is 65536, while" in lengths.conflict
        assert "the factor 8 lead to 32768; the second is followed" in lengths.conflict
    own = config("llama", 4 * K, max_sequence_length=64 * K, rope_scaling={"type": "dynamic"})
    lengths = three_lengths(Stated("llama", "dynamic", 4 * K, config=own))
    assert (lengths.trained, lengths.conflict) == (64 * K, "")


@pytest.mark.parametrize("value", [0, -1, "long", 1.5, True, [1], 2**50])
def test_a_damaged_length_is_named(value: object) -> None:
    with pytest.raises(InvalidValue, match="max_sequence_length"):
        present_plan(config("llama", 4096, max_sequence_length=value))


def test_dual_chunks_state_the_native_length_and_stay_refused() -> None:
    chunks = {"original_max_position_embeddings": 262144}
    own = config("qwen2", 1010000, dual_chunk_attention_config=chunks)
    found = three_lengths(Stated("qwen2", "default", 1010000, config=own))
    assert (found.reference, found.trained, found.served) == (256 * K, 256 * K, 1010000)
    with pytest.raises(Unsupported, match="dual chunk attention"):
        present_plan(own)


@pytest.mark.parametrize(
    ("length", "values"),
    [
        (8 * K, {"original_max_position_embeddings": 64 * K}),
        (64 * K, {"original_max_position_embeddings": 64 * K}),
        (8 * K, {"max_sequence_length": 64 * K}),
        (64 * K, {}),
    ],
)
@pytest.mark.parametrize("target", [16 * K, 48 * K])
def test_a_shorter_plan_does_not_shorten_the_length_of_pretraining(
    length: int, values: dict[str, Any], target: int
) -> None:
    own = config("llama", length, **values)
    plan = within_trained(present_plan(own), target, [FULL_ATTENTION])
    written = with_plan(own, plan)
    assert written["max_position_embeddings"] == target
    assert ConfigReader(written).lengths().reference == 64 * K
    assert present_plan(written).schedules == plan.schedules


def test_two_lists_are_cut_where_the_target_lies() -> None:
    present = present_plan(load_config(GOLDEN / "phi-3-mini-128k.json"))
    for target, steps in ((65536, 2), (4096, 1), (2048, 1)):
        found = extend_plan(present, target, "linear").steps()
        assert ([step.up_to_length for step in found][-1], len(found)) == (target, steps)
