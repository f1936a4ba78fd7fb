"""The matrix: what each runtime makes of each part of a plan."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import UnknownName, Unsupported
from ropewalk.models.config import Config, load_config, present_plan
from ropewalk.models.source import resolve
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import engines, named, target, targets
from ropewalk.runtimes.features import loadable_by, matrix
from ropewalk.runtimes.reading import Effective
from ropewalk.runtimes.serving import serving
from tests.audit.verified import GOLDEN, PUBLISHED
from tools import runtimes_page

ALL = tuple(targets())
ALL_BUT_LLAMA_CPP = ALL[:3]


def given(model: str, methods: str, **parameters: Any) -> tuple[ContextPlan, Config]:
    config = load_config(GOLDEN / f"{model}.json")
    log_n = parameters.pop("log_n", None)
    plan = extend_plan(
        present_plan(config), 2**17, methods, parameters, from_original=True, log_n=log_n
    )
    return plan, config


def loads(model: str, methods: str, **parameters: Any) -> tuple[str, ...]:
    return loadable_by(*given(model, methods, **parameters))


@pytest.mark.parametrize("methods", ["linear", "ntk", "yarn"])
def test_native_types_load_everywhere(methods: str) -> None:
    assert loads("llama-2-7b", methods) == ALL
    assert loads("qwen2.5-7b-instruct-yarn", methods) == ALL


def test_factors_load_in_llama_cpp_where_its_graph_takes_them_or_llamas_does() -> None:
    assert loads("llama-2-7b", "ntk_mixed") == ALL
    assert loads("qwen2.5-7b-instruct-yarn", "ntk_mixed") == ALL
    assert loads("smollm3-3b", "ntk_mixed") == ALL_BUT_LLAMA_CPP


def test_a_ramp_of_its_own_is_beyond_a_llama_cpp_without_factors() -> None:
    assert loads("smollm3-3b", "yarn") == ALL
    assert loads("smollm3-3b", "yarn", attention_factor=1.0) == ALL
    assert loads("smollm3-3b", "yarn", truncate=False) == ALL_BUT_LLAMA_CPP


def test_interleaved_pairs_have_no_longrope_in_vllm_and_sglang() -> None:
    plan, config = given("command-r", "ntk_mixed")
    assert loadable_by(plan, config) == ("transformers",)
    with pytest.raises(Unsupported, match=r"vllm: factors by pair is refused: .*interleave"):
        targets()["vllm"].expressible(plan, config, approximate=True)


def test_dynamic_scaling_is_for_transformers_and_static_elsewhere() -> None:
    plan, config = given("llama-2-7b", "dynamic_ntk")
    assert loadable_by(plan, config) == ("transformers",)
    with pytest.raises(Unsupported, match="`approximate`"):
        targets()["transformers"].expressible(plan, config, approximate=False)
    as_is = targets()["transformers"].expressible(plan, config, approximate=True)[0]
    assert as_is == plan.approximating(plan)
    static, near = targets()["vllm"].expressible(plan, config, approximate=True)
    assert static.steps() == plan.steps()[-1:]
    assert near == ("dynamic NTK: the longest schedule at every length",)


def test_what_no_config_says_is_only_approximated_anywhere() -> None:
    plan, config = given("llama-2-7b", "ntk", log_n="everywhere")
    (step,) = plan.steps()
    kept = replace(step, schedule=replace(step.schedule, kept_initial_positions=4))
    plan = replace(plan, schedules={"full_attention": (kept,)})
    assert loadable_by(plan, config) == ()
    cells = matrix(plan, config)
    assert {cells["kept initial positions"][runtime].fit for runtime in targets()} == {
        "approximated"
    }
    for runtime in targets():
        nearest, near = targets()[runtime].expressible(plan, config, approximate=True)
        schedule = nearest.longest()
        assert len(near) == 2
        assert schedule.kept_initial_positions == 0
        assert schedule.log_n is None
        mean = kept.schedule.query_scaling(np.arange(2**17)).mean()
        assert schedule.attention_scaling**2 == pytest.approx(mean)


def test_two_lists_are_for_transformers_and_vllm_and_the_long_one_elsewhere() -> None:
    plan, config = given("llama-2-7b", "ntk_mixed")
    plan = runtimes_page.two_lists(plan)
    assert loadable_by(plan, config) == ("transformers", "vllm")
    for runtime in ("transformers", "vllm"):
        assert targets()[runtime].expressible(plan, config, approximate=False) == (plan, ())
    assert (
        targets()["sglang"].expressible(plan, config, approximate=True)[0].steps()
        == plan.steps()[1:]
    )


@pytest.mark.parametrize(
    ("model", "methods", "runtime", "reason"),
    [
        ("stablelm-2-1.6b", "yarn", "sglang", "class for StableLmForCausalLM does not pass"),
        ("gpt-oss-20b", "ntk_mixed", "vllm", "class for GptOssForCausalLM fails on rope type"),
        ("gpt-oss-20b", "llama3", "vllm", "fails on rope type 'llama3', for it looks for beta_"),
        ("deepseek-v3", "linear", "vllm", "it looks for original_max_position_embeddings"),
        ("deepseek-v3", "linear", "sglang", "class for DeepseekV3ForCausalLM makes yarn of every"),
        ("deepseek-v3", "llama3", "vllm", "class for DeepseekV3ForCausalLM makes yarn of every"),
    ],
)
def test_matrix_export_serving_and_verify_agree_on_classes_that_drop_a_scaling(
    model: str, methods: str, runtime: str, reason: str
) -> None:
    plan, config = given(model, methods)
    assert runtime not in loadable_by(plan, config)
    with pytest.raises(Unsupported, match=f"{runtime}: .* is refused: .*{re.escape(reason)}"):
        targets()[runtime].expressible(plan, config, approximate=True)
    (row,) = (row for row in serving(plan, resolve(config)) if row.runtime == runtime)
    assert row.fit == "impossible"
    assert reason in row.reason
    preview = rw.export.preview(config, plan)
    assert preview.refusing(runtime)
    read = named(runtime).read(engines()[runtime].written_config(config, plan))
    assert read.refused or read.at(2**17, "full_attention") != Effective.of(plan.steps()[-1])


def test_growth_that_the_model_was_trained_with_is_not_approximated() -> None:
    config = load_config(PUBLISHED / "ministral-3-8b.json")
    present = present_plan(config)
    longer = extend_plan(present, 2**19, "yarn", from_original=True)
    for plan in (present, longer):
        assert plan.longest().log_n is not None
        cells = matrix(plan, config)["query growth"]
        assert [cells[runtime].fit for runtime in targets()] == ["exact"] * 3 + ["refused"]
        assert targets()["transformers"].expressible(plan, config, approximate=True) == (plan, ())
        written = engines()["vllm"].written_config(config, plan)["text_config"]
        assert written["llama_4_scaling"]["beta"] == 0.1
    added = extend_plan(present, 2**19, "yarn", from_original=True, log_n="beyond")
    assert matrix(added, config)["log-n"]["transformers"].fit == "approximated"


def test_growth_is_refused_where_the_model_class_reads_no_key_of_it() -> None:
    config = load_config(PUBLISHED / "ministral-3-8b.json")
    config["text_config"]["architectures"] = ["LlamaForCausalLM"]
    with pytest.raises(Unsupported, match=r"LlamaForCausalLM reads neither llama_4_scaling_beta"):
        targets()["vllm"].expressible(present_plan(config), config, approximate=True)


def test_vllm_gets_the_growth_of_an_unchanged_config_under_its_own_name() -> None:
    config = load_config(PUBLISHED / "ministral-3-8b.json")
    source = resolve(config)
    rows = {row.runtime: row for row in serving(source.present_plan, source)}
    assert '"llama_4_scaling": {"beta": 0.1' in rows["vllm"].lines[0]
    assert "override" not in rows["sglang"].lines[0]


def test_a_factor_that_an_engines_rope_type_ignores_is_refused() -> None:
    config = load_config(PUBLISHED / "gemma-4-e4b.json")
    linear, ntk = (extend_plan(present_plan(config), 2**18, name) for name in ("linear", "ntk"))
    assert loadable_by(linear, config) == ("transformers",)
    assert loadable_by(ntk, config) == ALL_BUT_LLAMA_CPP
    with pytest.raises(Unsupported, match="rope type 'proportional' ignores the factor, here 2"):
        targets()["vllm"].expressible(linear, config, approximate=True)
    for plan, follows in ((linear, False), (ntk, True)):
        read = named("vllm").read(engines()["vllm"].written_config(config, plan))
        got, wanted = read.at(2**18, "full_attention"), Effective.of(plan.steps()[-1])
        assert got is not None
        close = np.allclose(got.inverse_frequencies, wanted.inverse_frequencies, rtol=1e-6)
        assert close == follows


def test_an_unknown_runtime_is_named() -> None:
    with pytest.raises(UnknownName, match=re.escape("llama.cpp")):
        target("llamacpp")


def test_the_page_of_the_docs_holds_this_matrix() -> None:
    page = Path(__file__).parents[2] / "docs" / "runtimes.md"
    assert runtimes_page.matrix_table() in page.read_text(encoding="utf-8")
