from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk import scaling
from ropewalk.api.common import as_plan
from ropewalk.errors import InputError, RopewalkError
from ropewalk.lengths import parse_length
from ropewalk.models.load import load
from ropewalk.models.source import resolve
from ropewalk.models.stock_config import with_plan
from ropewalk.theory.table import safe_base
from tests.api.conformance import check_command, check_result, compared
from tests.gguf.gguf_files import header_only

CONFIGS = Path(__file__).parents[1] / "golden" / "configs"
PUBLISHED = Path(__file__).parents[1] / "models" / "published"
LLAMA2 = CONFIGS / "llama-2-7b.json"
LLAMA31 = CONFIGS / "llama-3.1-8b.json"


def test_a_plan_is_told_flat_for_scripts() -> None:
    found = check_result(rw.plan("llama-2-7b", "16k", "yarn"))
    value: dict[str, Any] = found.to_json()
    assert value["model"] == "llama-2-7b"
    assert value["plan_id"] == found.plan.id
    assert value["target_length"] == found.plan.target_length == 16384
    assert value["method"] == "yarn"
    assert value["geometry"]["original_length"] == value["geometry"]["serves"] == 4096
    assert value["attention_scaling"] == pytest.approx(0.1 * np.log(4) + 1)
    assert value["rescale_factors"] == found.plan.longest().rescale_factors.tolist()
    assert value["schedules"] == found.plan.to_json()["schedules"]
    assert found.rope_parameters is not None
    assert found.rope_parameters["rope_type"] == "yarn"
    assert found.rope_parameters["factor"] == 4.0
    assert found.rope_parameters_refused is None
    assert as_plan(found) == found.plan
    assert "4k to 16k by yarn" in found.summary()
    # It states 40k, and was trained at 32k, from which factors count.
    assert "32k to 128k by yarn" in rw.plan("qwen3-8b", "128k", "yarn").summary()


def test_a_config_takes_the_setting_as_it_is_given() -> None:
    """With lists, which a config checks for, and in a copy that its class may complete."""
    from transformers import AutoConfig

    found = rw.plan("bundled", "1k", "longrope", parameters={"factors": [1.0] * 4 + [2.0] * 12})
    assert found.rope_parameters is not None
    assert found.rope_parameters["long_factor"] == [1.0] * 4 + [2.0] * 12
    config = AutoConfig.from_pretrained(resolve("bundled").folder)
    config.rope_parameters = found.rope_parameters.copy()
    config.validate_rope()
    config.rope_parameters["long_factor"].append(3.0)
    assert check_result(found).rope_parameters == found.rope_parameters.copy()


def test_a_parameter_of_a_method_is_named_as_such() -> None:
    """As the command line answers --beta-fast."""
    with pytest.raises(InputError, match=r"write parameters=\{'beta_fast': 16\}"):
        rw.plan("llama-2-7b", "32k", "yarn", beta_fast=16)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unexpected keyword argument 'mehtod'"):
        rw.plan("llama-2-7b", "32k", mehtod="yarn")  # type: ignore[arg-type]


@pytest.mark.parametrize("method", scaling.names())
def test_the_command_prints_what_the_function_returns(method: str) -> None:
    needed: dict[str, Any] = {"longrope": {"factors": [2.0] * 64}}
    given = needed.get(method, {})
    found = rw.plan(LLAMA2, "4k" if method == "resonance" else "8k", method, parameters=given)
    assert found.schedule.method == method
    settings = ["--set", "factors=" + ",".join(["2"] * 64)] if given else []
    target = found.plan.target_length
    check_command(found, "plan", LLAMA2, "--to", target, "--method", method, *settings)


def test_every_option_of_the_command_is_an_argument_of_the_function() -> None:
    found = check_result(
        rw.plan(
            "gemma-3-4b",
            2**18,
            "yarn+resonance",
            parameters={"beta_fast": 16.0, "truncate": False},
            log_n="beyond",
            kept_initial_positions=8,
            layers=["full_attention", "sliding_attention"],
            from_original=True,
        )
    )
    recipe = found.schedule.recipe[0].parameters
    assert (recipe["beta_fast"], recipe["truncate"]) == (16.0, False)
    assert found.to_json()["log_n_form"] == "beyond"
    assert found.rope_parameters is None
    assert found.rope_parameters_refused is not None
    assert "kept_initial_positions = 8" in found.rope_parameters_refused
    assert found.schedule.kept_initial_positions == 8
    check_command(
        found,
        *("plan", "gemma-3-4b", "--to", "256k", "--method", "yarn+resonance", "--log-n", "beyond"),
        *("--set", "beta_fast=16", "--set", "truncate=false", "--from-original"),
        *("--kept-initial-positions", 8),
        *("--layers", "full_attention", "--layers", "sliding_attention"),
    )


def test_sliding_layers_change_only_when_named() -> None:
    kept = rw.plan("gemma-3-4b", "256k", "linear")
    assert kept.layers == ("full_attention",)
    assert {*kept.plan.longest("sliding_attention").rescale_factors} == {1.0}
    named = check_result(rw.plan("gemma-3-4b", "256k", "linear", layers=["sliding_attention"]))
    assert {*named.schedule.rescale_factors} == {2.0}
    with pytest.raises(InputError, match="no rotating layers of type chunked, only full_attention"):
        rw.plan("gemma-3-4b", "256k", "base_change", layers=["chunked"])


def test_base_change_takes_the_safe_base_unless_one_is_given() -> None:
    safe = rw.plan(LLAMA2, "8k", "base_change").schedule.geometric_base
    assert safe is not None
    assert 1 <= safe / safe_base(128, 8192).value < 1.01
    given = rw.plan(LLAMA2, "8k", "base_change", parameters={"base": 20000.0})
    assert given.schedule.rescale_factors[32] == pytest.approx(2**0.5)
    kept = rw.plan(LLAMA31, "8k", "base_change", from_original=True)
    assert kept.schedule.rescale_factors == pytest.approx(np.ones(64))


def test_without_a_method_it_is_the_first_of_the_comparison() -> None:
    found = check_result(compared("bundled", 2048))
    assert found.plan == found.best.plan
    with pytest.raises(RopewalkError, match="must be the best candidate's"):
        replace(found, plan=found.candidates[1].plan)
    with pytest.raises(InputError, match="belong to a method"):
        rw.plan("bundled", 2048, parameters={"base": 1e6})
    with pytest.raises(InputError, match="belong to a method"):
        rw.plan("bundled", 2048, log_n="beyond")


def test_a_loaded_model_and_its_config_are_planned_like_their_folder() -> None:
    loaded = load("bundled")
    of_folder = rw.plan("bundled", "4k", "yarn")
    for model in (loaded, loaded.model.config, loaded.model):
        found = check_result(rw.plan(model, "4k", "yarn"))
        assert found.plan.schedules == of_folder.plan.schedules
        assert found.rope_parameters == of_folder.rope_parameters


def test_a_gguf_file_is_planned_from_its_header(tmp_path: Path) -> None:
    path = header_only(tmp_path / "small.gguf", keys={"context_length": 512})
    found = check_result(rw.plan(path, "4k", "yarn"))
    assert found.source == f"GGUF file: {path}"
    assert found.present == rw.inspect(path).plan
    assert found.schedule.attention_scaling == pytest.approx(0.1 * np.log(8) + 1)
    assert found.rope_parameters is None
    assert found.rope_parameters_refused is None
    assert [row.runtime for row in found.serving] == ["llama.cpp", "ollama"]
    assert "llama.cpp: exact (" in found.summary()
    check_command(found, "plan", path, "--to", "4k", "--method", "yarn")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("llama-2-7b", "12x", "yarn"), "to = '12x'"),
        (("llama-2-7b", 0, "yarn"), "to = 0"),
        (("llama-2-7b", 8192.0, "yarn"), "must be a length"),
        (("llama-2-7b", "8k", "vendor"), "no documented extension is known"),
        (("qwen3-8b", "100k", "vendor"), "yarn with factor 2 for 64k; yarn with factor 4 for 128k"),
        (("smollm3-3b", "64k", "vendor"), "needs no extension"),
        (("llama-2-7b", "2k", "yarn"), "must be at least 4096, the length that the model already"),
        (("llama-2-7b", "2k"), "must be at least 4096"),
        (("qwen2.5-7b", "64k", "yarn"), "must be at least 131072"),
        (("llama-2-7b", "8k", "vend"), r"did you mean 'vendor'\?\); valid: .*, vendor$"),
        (("llama-2-7b", "8k", "yran"), "did you mean 'yarn'"),
        (("llama-2-7b", "8k", "longrope"), "pass factors"),
        (("nothing-like-it", "8k", "yarn"), "no known model of that name"),
    ],
)
def test_bad_input_is_named(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(InputError, match=text) as caught:
        rw.plan(*arguments)
    assert "\n" not in str(caught.value)


def test_after_training_is_refused_for_a_method_that_it_changes_nothing_of() -> None:
    with pytest.raises(InputError, match="for yarn alone it changes nothing; leave it out"):
        rw.plan("llama-2-7b", "16k", "yarn", after_training=True)
    said: list[str] = []
    rw.plan("llama-2-7b", "16k", "linear", notice=said.append)
    rw.plan("llama-2-7b", "16k", "linear", after_training=True, notice=said.append)
    assert len(said) == 1, "the warning of a method that fails without training"


def test_a_plan_that_only_states_a_longer_length_says_so(tmp_path: Path) -> None:
    # No pair of its full attention meets a new angle. Smaller heads are judged in less time.
    content = json.loads((CONFIGS / "gemma-4-26b-a4b.json").read_text())
    content["text_config"]["global_head_dim"] = 32
    gemma = tmp_path / "config.json"
    gemma.write_text(json.dumps(content))
    found = compared(gemma, "512k")
    assert found.best.method == "base_change"
    assert found.best.measured == (), "others gained by a base that changed"
    assert found.changes_nothing.startswith(
        f"This plan changes nothing in {found.model} but the stated length: its base is safe "
        "for 512k by the bound, and no pair meets a new angle there. Whether it works there"
    )
    assert found.changes_nothing in found.summary()
    # Nothing changes here either, but by the user's choice, and theory has an objection.
    base = {"base": 5e5}
    kept = check_result(rw.plan("llama-3-8b", "16k", "base_change", parameters=base))
    assert "29 of 64 pairs meet angles new to them" in kept.summary()
    assert not kept.nothing_to_change, "the length is another"
    assert not rw.plan("llama-3-8b", "16k", "ntk").changes_nothing
    assert not rw.plan("llama-3-8b", "8k").changes_nothing


def test_a_length_that_the_model_serves_already_is_its_own_plan() -> None:
    found = check_result(rw.plan("granite-3.1-8b", "128k", "yarn"))
    assert found.nothing_to_change
    assert found.plan == found.present == rw.plan("granite-3.1-8b", "128k").plan
    assert found.summary() == "granite-3.1-8b serves 128k already: nothing needs to change."
    anew = rw.plan("llama-3.1-8b", "128k", "yarn", notice=lambda _: None)
    assert anew.schedule.rescale_factors.max() == 16, "from its plain frequencies of 8k"
    assert anew.serves_already.endswith("this plan changes how it rotates.")
    changed = rw.plan("granite-3.1-8b", "128k", "yarn", parameters={"attention_factor": 1.2})
    assert not changed.nothing_to_change
    assert changed.schedule.attention_scaling == 1.2
    assert rw.plan("llama-3.1-8b", "128k", from_original=True).plan != found.plan
    two_lists = rw.plan(CONFIGS / "phi-3-mini-128k.json", "128k", "linear")
    assert not two_lists.nothing_to_change, "the short factors would be gone"


def test_a_length_that_is_only_stated_is_planned_from_the_trained_one() -> None:
    found = rw.plan("qwen2.5-7b", "128k", "yarn")
    assert found.present.target_length == found.plan.target_length == 131072
    assert found.schedule.rescale_factors.max() == 4.0
    assert not found.nothing_to_change


@pytest.mark.parametrize(
    ("name", "target", "factor"),
    [("qwen3-8b", 131072, 4.0), ("qwen3-8b", 65536, 2.0), ("qwen3-30b-a3b", 131072, 4.0)],
)
@pytest.mark.parametrize("method", ["yarn", "vendor"])
def test_qwen3_is_extended_as_documented(
    name: str, target: int, factor: float, method: str
) -> None:
    bare = resolve(name).config
    for model in (name, bare, {"model_type": "internvl_chat", "llm_config": bare}):
        if method == "vendor" and isinstance(model, dict) and "llm_config" in model:
            continue
        found = rw.plan(model, target, method)
        written = with_plan(bare, found.plan)
        rope = written["rope_parameters"]
        assert written["max_position_embeddings"] == target
        assert (rope["rope_type"], rope["factor"]) == ("yarn", factor)
        assert rope["original_max_position_embeddings"] == 32768
        assert found.schedule.attention_scaling == pytest.approx(0.1 * np.log(factor) + 1)


@pytest.mark.parametrize("target", ["64k", "100000"])
@pytest.mark.parametrize("method", [None, "yarn", "linear", "base_change", "dynamic_ntk"])
def test_a_target_that_was_trained_and_is_not_stated_changes_lengths_only(
    target: str, method: str | None
) -> None:
    found = rw.plan(PUBLISHED / "hunyuan-7b.json", target, method, notice=lambda text: None)
    assert found.plan.target_length == parse_length(target)
    assert found.plan.rotates_like(found.present)
    assert "nothing but the stated length" in found.summary()


@pytest.mark.parametrize("method", ["yarn", "base_change", "yarn+resonance", "ntk_mixed"])
def test_where_methods_do_not_go_on_the_plan_starts_from_the_plain_frequencies(method: str) -> None:
    said: list[str] = []
    found = rw.plan(LLAMA31, "256k", method, notice=said.append)
    plain = rw.plan(LLAMA31, "256k", method, from_original=True, notice=lambda text: None)
    if method == "ntk_mixed":
        assert found.schedule.method == "llama3+ntk_mixed"
        assert not any("plain frequencies" in text for text in said)
        return
    assert found.plan == plain.plan
    (text,) = [text for text in said if "plain frequencies of 8k" in text]
    assert text.startswith("warning: ")
    assert "that training is not carried over" in text


def test_a_documented_scaling_was_not_trained_so_nothing_is_lost() -> None:
    said: list[str] = []
    found = rw.plan(PUBLISHED / "qwen3-8b-yarn.json", "256k", "yarn", notice=said.append)
    assert found.schedule.rescale_factors.max() == 8.0
    assert any("plain frequencies of 32k" in text for text in said)
    assert not any("not carried over" in text for text in said)


def test_factors_from_a_search_are_not_left_without_being_asked() -> None:
    with pytest.raises(RopewalkError, match="from_original"):
        rw.plan(CONFIGS / "phi-3-mini-128k.json", "256k", "yarn")


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        (PUBLISHED / "kimi-k2.json", {"beta_fast": 1.0, "mscale_all_dim": 1.0}),
        (PUBLISHED / "nemotron-nano-8b-1m.json", {"attention_factor": 1.0}),
        (CONFIGS / "gpt-oss-20b.json", {"truncate": False}),
        # OLMo's stated factor is what follows from 8, so it does not stay for 32.
        (CONFIGS / "olmo-3-7b.json", {"attention_factor": None}),
        (CONFIGS / "deepseek-v3.json", {"scale_softmax": True, "mscale": 1.0}),
    ],
)
def test_deliberate_oddities_of_a_model_are_kept(model: Path, kept: dict[str, object]) -> None:
    found = rw.plan(model, "2M", "yarn", notice=lambda text: None)
    (recipe,) = found.schedule.recipe
    assert {key: recipe.parameters[key] for key in kept} == kept
    assert found.schedule.length == 2**21


def test_the_trained_length_is_an_argument_and_refuses_what_contradicts_the_config() -> None:
    said: list[str] = []
    bare = resolve("qwen3-8b").config
    with pytest.raises(InputError, match="40960"):
        rw.plan(bare, "128k", "yarn", strict=True)
    found = rw.plan(bare, "128k", "yarn", trained_length="40k", strict=True, notice=said.append)
    assert said == []
    assert found.schedule.rescale_factors.max() == 3.2
    with pytest.raises(InputError, match=r"trained_length = 4096: is below 8192"):
        rw.plan(LLAMA31, "256k", trained_length="4k")
    with pytest.raises(InputError, match="trained_length = '12x'"):
        rw.plan(LLAMA31, "256k", trained_length="12x")


@pytest.mark.parametrize("to", ["4k", "16k"])
def test_a_plan_without_positions_says_that_it_needs_training(to: str, tmp_path: Path) -> None:
    told: list[str] = []
    found = rw.plan(LLAMA2, to, "drope", notice=told.append)
    [warning] = told
    assert "drope needs training" in warning
    assert "at its original length of 4k" in warning
    assert "no positions" in found.summary()
    assert found.rope_parameters is not None
    factors: Any = found.rope_parameters["long_factor"]
    assert set(factors) == {1e12}
    config = json.loads(LLAMA2.read_text()) | {
        "rope_parameters": found.rope_parameters,
        "max_position_embeddings": found.plan.target_length,
    }
    config.pop("rope_scaling", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "no positions" in rw.inspect(tmp_path).summary()
    told.clear()
    rw.plan(tmp_path, "32k", "drope", notice=told.append)
    assert not [each for each in told if "needs training" in each]


def test_a_plan_that_comes_out_as_the_present_one_leaves_no_training_behind() -> None:
    said: list[str] = []
    found = rw.plan("deepseek-v3", "160k", "yarn", notice=said.append)
    assert found.plan == found.present
    assert not [text for text in said if "starts from the plain" in text]
    rw.plan("deepseek-v3", "320k", "yarn", notice=said.append)
    assert [text for text in said if "starts from the plain" in text]
