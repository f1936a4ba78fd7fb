"""What vLLM and SGLang read: their names for the attention factor, their rules of length."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.models.config import Config, load_config, present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import engines, targets
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.runtimes.sglang import ONE_POSITION
from tests.exporting.folders import TARGET, proven, saved
from tests.training.hybrids import trainable
from tools.observatory import serving_rotary
from tools.runtimes_page import two_lists

RESULTS = Path(serving_rotary.__file__).with_suffix(".json")
CONFIGS = Path(__file__).parents[1] / "golden" / "configs"


def written(engine: str, methods: str, **parameters: Any) -> tuple[Config, ContextPlan]:
    config = load_config(CONFIGS / "llama-2-7b.json")
    plan = extend_plan(present_plan(config), 2**17, methods, parameters)
    return engines()[engine].written_config(config, plan), plan


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_longrope_says_the_attention_scaling_under_every_name(engine: str) -> None:
    config, plan = written(engine, "yarn+resonance")
    rope, scaling = config["rope_parameters"], plan.longest().attention_scaling
    assert rope["short_factor"] == rope["long_factor"]
    assert rope["short_mscale"] == rope["long_mscale"] == rope["attention_factor"] == scaling
    assert config["max_position_embeddings"] == 2**17


def test_sglang_never_reaches_its_wrong_row() -> None:
    config, _ = written("sglang", "ntk_mixed")
    assert config["rope_parameters"]["original_max_position_embeddings"] == 2**17
    assert config["original_max_position_embeddings"] == 2**17
    config, _ = written("vllm", "ntk_mixed")
    assert config["rope_parameters"]["original_max_position_embeddings"] == 4096


@pytest.mark.parametrize(
    ("parameters", "factor"),
    [
        ({}, 1.0),
        ({"attention_factor": 1.5}, 1.5 / (0.1 * math.log(32) + 1)),
        ({"mscale": 0.8, "mscale_all_dim": 0.4}, 1.0),
    ],
)
def test_sglangs_yarn_multiplies_its_own_factor(
    parameters: dict[str, float], factor: float
) -> None:
    config, _ = written("sglang", "yarn", **parameters)
    assert config["rope_parameters"]["rope_type"] == "yarn"
    assert config["rope_parameters"]["attn_factor"] == pytest.approx(factor, rel=1e-12)


def test_linear_leaves_the_length_that_the_factor_multiplies() -> None:
    config, _ = written("vllm", "linear")
    assert config["max_position_embeddings"] == 4096
    factor = config["rope_parameters"]["factor"]
    assert isinstance(factor, float)
    assert factor * 4096 == 2**17


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_the_folder_is_proven_and_comes_with_its_command(engine: str, tmp_path: Path) -> None:
    source = saved(tmp_path / "source")
    plan = extend_plan(present_plan(source), TARGET, "yarn+resonance")
    made = targets()[engine].write(source, plan, tmp_path / "out")
    assert proven(made).passed
    assert any("not verified" in warning for warning in made.warnings)
    said = shlex.split(made.load)
    assert str(tmp_path / "out") in said
    assert str(TARGET) in said
    # The tokenizer of the source stops at its window, which limits neither engine.
    overrides = json.loads(shlex.split(made.overrides)[-1])
    config = load_config(tmp_path / "out")
    assert overrides["rope_parameters"] == config["rope_parameters"]
    assert overrides["max_position_embeddings"] == TARGET
    assert {**load_config(source), **overrides} == config


@pytest.mark.usefixtures("in_process")
def test_one_folder_serves_short_text_by_its_own_list(tmp_path: Path) -> None:
    source = saved(tmp_path / "source")
    plan = two_lists(extend_plan(present_plan(source), TARGET, "ntk_mixed"))
    made = targets()["vllm"].write(source, plan, tmp_path / "out")
    assert proven(made).passed
    window = plan.steps()[0].up_to_length
    assert any(
        f"--max-model-len {window}, which takes the short list" in said for said in made.warnings
    )
    read = targets()["vllm"].read(load_config(tmp_path / "out"))
    assert read.switches == "by the declared length"
    for step, got in zip(plan.steps(), read.layers["full_attention"], strict=True):
        assert got.up_to_length == step.up_to_length
        assert np.allclose(got.inverse_frequencies, step.schedule.inverse_frequencies, rtol=1e-12)
    with pytest.raises(Unsupported, match="switching by length"):
        targets()["sglang"].write(source, plan, tmp_path / "sglang")


def test_two_lists_with_two_scalings_have_no_folder_that_proves_them(tmp_path: Path) -> None:
    source = saved(tmp_path / "source")
    plan = two_lists(extend_plan(present_plan(source), TARGET, "ntk_mixed"))
    short, long = plan.steps()
    other = replace(long, schedule=replace(long.schedule, attention_scaling=1.2))
    plan = replace(plan, schedules={"full_attention": (short, other)})
    with pytest.raises(Unsupported, match="switching by length"):
        targets()["vllm"].write(source, plan, tmp_path / "out")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("method", ["linear", "yarn", "ntk_mixed"])
def test_olmo3_for_sglang_is_proven_with_the_keys_of_transformers_4(
    method: str, tmp_path: Path
) -> None:
    source = saved(tmp_path / "source", "olmo3")
    plan = extend_plan(present_plan(source), TARGET, method)
    made = targets()["sglang"].write(source, plan, tmp_path / "out")
    assert proven(made).passed
    config = load_config(tmp_path / "out")
    assert config["rope_theta"] == 500000.0
    assert config["rope_scaling"]["rope_type"] in (method, "longrope")
    overrides = json.loads(shlex.split(made.overrides)[-1])
    assert overrides["rope_scaling"] == config["rope_scaling"]
    assert not rw.verify(tmp_path / "out", runtimes=["sglang", "transformers"]).wrong


def test_olmo3_with_another_base_has_no_old_keys_that_both_read(tmp_path: Path) -> None:
    """transformers 5 takes 500,000 for layers with a window, whatever `rope_theta` says."""
    plain = {"rope_type": "default", "rope_theta": 20000.0}
    both = {"full_attention": plain, "sliding_attention": plain}
    source = saved(tmp_path / "source", "olmo3", rope_parameters=both)
    plan = extend_plan(present_plan(source), TARGET, "yarn")
    with pytest.raises(Unsupported, match="v4 keys"):
        targets()["sglang"].write(source, plan, tmp_path / "out")


@pytest.mark.usefixtures("in_process")
def test_qwen3_next_for_sglang_is_proven_with_the_keys_of_transformers_4(tmp_path: Path) -> None:
    source = tmp_path / "source"
    trainable("qwen3_next").save_pretrained(source)
    present = present_plan(source)
    plan = extend_plan(present, 4 * present.target_length, "yarn")
    made = targets()["sglang"].write(str(source), plan, tmp_path / "out")
    assert proven(made).passed
    assert load_config(tmp_path / "out")["rope_scaling"]["rope_type"] == "yarn"
    assert not rw.verify(tmp_path / "out", runtimes=["sglang", "transformers"]).wrong


@pytest.mark.usefixtures("in_process")
def test_an_export_says_what_sglang_loses_on_a_cpu(tmp_path: Path) -> None:
    source = saved(tmp_path / "source", "gemma3_text")
    plan = extend_plan(present_plan(source), TARGET, "linear")
    made = targets()["sglang"].write(source, plan, tmp_path / "out")
    assert any("on a CPU with AMX" in said for said in made.warnings)


def test_the_kept_results_of_the_released_modules_are_whole() -> None:
    """Written by tests/external/serving_rotary.py, which needs the wheels."""
    kept = json.loads(RESULTS.read_text(encoding="utf-8"))
    for engine in ENGINE_NAMES:
        lines = kept[engine]["checks"]
        measured = [line[key] for line in lines for key in ("prefill", "decoding") if key in line]
        assert kept[engine]["verified"] == (max(measured) <= 1)
        assert kept[engine]["worst"] == max(measured)
        assert len(lines) == 32
    assert kept["sglang"]["error_at_original_length"] > 0.1
    beyond = kept["sglang"]["error_beyond_the_table"]
    assert beyond["yarn"] < 1e-3 < 0.1 < beyond["linear"]
    # Servers of the original length, of one more, and of the target, with the same folder.
    assert list(kept["vllm"]["two_lists"]) == ["256", "257", "2048"]
    assert max(kept["vllm"]["two_lists"].values()) <= 1


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("method", ["linear", "ntk", "ntk_mixed", "yarn", "llama3", "two_band"])
def test_queries_grow_by_the_length_that_they_were_trained_with(
    engine: str, method: str, tmp_path: Path
) -> None:
    """Factors by pair need the original length at the target in SGLang, and the growth does not."""
    growing = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "mscale": 1.0}
    growing |= {"mscale_all_dim": 1.0, "original_max_position_embeddings": 8}
    source = saved(
        tmp_path / "source", "ministral3", rope_parameters={**growing, "llama_4_scaling_beta": 0.3}
    )
    present, yarn = present_plan(source), method == "yarn"
    plan = extend_plan(present, 2 * present.target_length, method, from_original=yarn)
    exported = rw.export(source, plan, tmp_path / "out", engine)
    assert proven(exported).passed
    config = load_config(tmp_path / "out")
    assert config["original_max_position_embeddings"] == 8, "by which SGLang counts steps"
    loses = engine == "sglang" and not yarn
    assert (ONE_POSITION in exported.warnings) == loses
