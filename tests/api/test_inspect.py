from __future__ import annotations

import json
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.models.load import load
from tests.api.conformance import check_command, check_result

GOLDEN = Path(__file__).parents[1] / "golden" / "configs"


def test_the_three_lengths_are_told_apart() -> None:
    found = check_result(rw.inspect("qwen3-8b"))
    geometry = found.to_json()["geometry"]
    assert isinstance(geometry, dict)
    assert geometry["original_length"] == 32768
    assert geometry["serves"] == 40960
    assert geometry["trained_length"] == 32768
    assert found.source.startswith("catalogue: Qwen/Qwen3-8B")
    of_file = rw.inspect(GOLDEN / "llama-3.1-8b.json").to_json()["geometry"]
    assert isinstance(of_file, dict)
    assert of_file["original_length"] == 8192
    assert of_file["serves"] == 131072
    assert of_file["trained_length"] == 131072


@pytest.mark.parametrize("model", ["llama-3.1-8b", "bundled", GOLDEN / "gemma-3-4b.json"])
def test_the_command_prints_what_the_function_returns(model: str | Path) -> None:
    check_command(rw.inspect(str(model)), "inspect", model)


def test_a_loaded_model_and_a_config_object_are_models_too() -> None:
    loaded = load("bundled")
    of_folder = rw.inspect("bundled")
    assert rw.inspect(loaded).plan == of_folder.plan
    assert rw.inspect(loaded.model.config).schedule == of_folder.schedule
    assert rw.inspect(loaded.model).schedule == of_folder.schedule


def test_a_live_model_under_a_plan_shows_the_plan() -> None:
    loaded = load("bundled")
    plan = rw.plan(loaded, "2k", "yarn").plan
    with rw.applied(loaded.model, plan):
        found = rw.inspect(loaded.model)
        assert found.plan == plan
        assert found.schedule.method == "yarn"
    assert rw.inspect(loaded.model).schedule.method == "plain"


def test_pairs_at_rest_do_not_count_as_rotating(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_attention_heads": 4,
        "max_position_embeddings": 128,
        "rope_parameters": {
            "rope_type": "proportional",
            "rope_theta": 1e8,
            "partial_rotary_factor": 0.5,
        },
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    found = rw.inspect(file)
    assert found.schedule.inverse_frequencies.tolist()[4:] == [0.0] * 4
    assert " 4 pairs rotate" in found.summary()
