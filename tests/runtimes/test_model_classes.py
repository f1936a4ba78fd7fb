"""What model classes hand to their rotary modules is followed everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.errors import Unsupported
from ropewalk.models.config import Config, load_config, present_plan
from ropewalk.models.stock_config import stock_config
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import engines, named, targets
from ropewalk.runtimes.features import WHOLE_BASE, loadable_by, matrix
from ropewalk.runtimes.model_classes import TABLE, model_class
from ropewalk.runtimes.reading import RotaryReading, by_rules
from tests.audit.verified import PUBLISHED, traps, verified

TARGET = 32768


def small(family: str, **more: Any) -> Config:
    return {
        "model_type": family,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "max_position_embeddings": 4096,
        "rope_theta": 1e4,
        **more,
    }


def planned(config: Config, method: str, **parameters: Any) -> rw.ContextPlan:
    return extend_plan(present_plan(config), TARGET, method, parameters)


LISTS = {name: [1.0] * 32 for name in ("short_factor", "long_factor")}
LONGROPE = {"rope_type": "longrope", **LISTS, "original_max_position_embeddings": 2048}
BY_LAYER = {"rope_type": "default", "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("qwen3", {"partial_rotary_factor": [0.5]}),
        ("phimoe", {"rope_scaling": {**LONGROPE, "long_mscale": "x"}}),
        (
            "gemma4_text",
            {
                "rope_theta": None,
                "layer_types": ["sliding_attention", "full_attention"],
                "rope_parameters": {
                    "sliding_attention": BY_LAYER,
                    "full_attention": {**BY_LAYER, "rope_type": "proportional", "factor": [2]},
                },
            },
        ),
        (
            "llama",
            {
                "max_position_embeddings": 10**308,
                "rope_scaling": {"rope_type": "linear", "factor": 1000.0},
            },
        ),
    ],
)
def test_what_is_no_number_makes_an_engine_unknown(family: str, more: Config) -> None:
    for engine in ("vllm", "sglang"):
        reading = named(engine).known_reading(small(family, **more))
        assert reading.unread or reading.refused


@pytest.mark.parametrize(
    ("key", "value"), [("factor", None), ("beta_slow", None), ("truncate", None), ("factor", ...)]
)
def test_an_engine_computes_with_null_where_transformers_takes_a_default(
    key: str, value: object
) -> None:
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 2048}
    config = small("llama", rope_scaling={**yarn, "attention_factor": None})
    setting, engines = config["rope_scaling"], ["vllm", "sglang", "vllm-2025"]
    for engine in engines:
        assert named(engine).known_reading(config).layers
    setting[key] = value
    if value is ...:
        del setting[key]
    if key == "truncate":  # which vLLM of 2025 did not read
        assert named(engines.pop()).known_reading(config).layers
    for engine in engines:
        assert f"needs a value for {key}" in str(named(engine).known_reading(config).refused)


@pytest.mark.parametrize(("name", "wide"), [("qwen2.5-vl-7b", True), ("qwen3.5-9b", False)])
def test_yarn_under_m_rope_is_laid_for_four_times_the_length(name: str, wide: bool) -> None:
    """As tools/faults/vllm_mrope_yarn.py reproduces it."""
    source = PUBLISHED / f"{name}.json"
    config, planned_now = load_config(source), rw.plan(source, "1m", "yarn")
    fits = {row.runtime: row.fit for row in planned_now.serving}
    assert fits["vllm"] == ("impossible" if wide else "exact")
    plan = planned_now.plan
    vllm = engines()["vllm"]
    found = vllm.judge(vllm.written_config(config, plan), plan)
    assert found.follows is not wide
    assert not wide or "4 times the original length" in str(found)


def test_a_factor_of_the_fast_pairs_is_not_taken_for_one() -> None:
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 2048}
    for value, unread in ((1, False), (0.0, True)):
        config = small("llama", rope_scaling={**yarn, "extrapolation_factor": value})
        assert bool(named("sglang").known_reading(config).unread) is unread
        assert not named("vllm").known_reading(config).unread  # it does not read the key


@pytest.mark.parametrize(
    ("family", "method", "engine", "trap"),
    [
        *(
            (family, "yarn", "sglang", "factors-dropped")
            for family in (
                *("gemma", "gemma2", "mixtral", "granitemoe", "olmo", "phi", "stablelm"),
                *("starcoder2", "persimmon"),
            )
        ),
        ("gpt_oss", "llama3", "vllm", "refused"),
        ("gpt_oss", "linear", "vllm", "refused"),
        ("deepseek_v3", "llama3", "vllm", "frequencies-differ"),
        ("deepseek_v3", "llama3", "sglang", "frequencies-differ"),
        ("deepseek_v3", "linear", "vllm", "refused"),
        ("deepseek_v3", "linear", "sglang", "frequencies-differ"),
        ("llama", "yarn", "sglang", ""),
        ("gpt_oss", "yarn", "vllm", ""),
        ("deepseek_v3", "yarn", "vllm", ""),
        ("deepseek_v3", "yarn", "sglang", ""),
    ],
)
def test_what_a_class_loses_is_refused_before_and_found_afterwards(
    family: str, method: str, engine: str, trap: str, tmp_path: Path
) -> None:
    latent = {"qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "kv_lora_rank": 32}
    config = small(family, **(latent if family == "deepseek_v3" else {}))
    if family == "gpt_oss":
        config["rope_scaling"] = {"rope_type": "default"}
    plan = planned(config, method)
    assert (engine in loadable_by(plan, config)) == (not trap)
    found = verified(tmp_path, engines()[engine].written_config(config, plan), engine, plan=plan)
    named = {name for name in traps(found.wrong) if not name.startswith("attention-factor")}
    assert named == ({trap} if trap else set())
    if trap:
        served = model_class(config, engine)
        assert all(str(served) in f.what for f in found.wrong)
        assert served.version in str(served)
        with pytest.raises(Unsupported, match="is refused"):
            targets()[engine].expressible(plan, config, approximate=True)


@pytest.mark.parametrize(
    ("family", "method", "trap"),
    [
        ("stablelm", "yarn", "theta-lost"),
        ("stablelm", "ntk", "theta-lost"),
        ("falcon_h1", "linear", "factors-dropped"),
        ("falcon_h1", "ntk", ""),
    ],
)
def test_what_the_converter_to_gguf_leaves_out_is_found(
    family: str, method: str, trap: str, tmp_path: Path
) -> None:
    config = small(family, rope_theta=5e5)
    plan = planned(config, method)
    written_ = engines()["vllm"].written_config(config, plan)
    named = traps(verified(tmp_path, written_, "llama.cpp", plan=plan).wrong)
    named = {name for name in named if not name.startswith(("attention-factor", "length"))}
    assert named == ({trap} if trap else set())


def test_a_class_that_turns_whole_heads_is_named(tmp_path: Path) -> None:
    """SGLang's rotary module is told by the class how much of a head turns."""
    for family, told in (("mellum", True), ("glm4", False), ("phi", False), ("stablelm", False)):
        config = small(family, head_dim=64, partial_rotary_factor=0.5)
        plan = planned(config, "ntk")
        assert ("sglang" in loadable_by(plan, config)) == (not told), family
        assert "vllm" in loadable_by(plan, config)
        written_ = engines()["sglang"].written_config(config, plan)
        found = verified(tmp_path, written_, "sglang", plan=plan)
        assert traps(found.wrong) == ({"frequencies-differ"} if told else set())
        assert all("rotates whole heads" in f.what for f in found.wrong)


@pytest.mark.parametrize(
    ("family", "method", "engine", "trap"),
    [
        *(("exaone_moe", method, "sglang", "theta-lost") for method in ("ntk", "linear", "llama3")),
        ("exaone4", "ntk", "sglang", "theta-lost"),
        ("exaone_moe", "ntk", "vllm", ""),  # which reads the setting
        ("granitemoehybrid", "ntk", "sglang", ""),  # whose own config keeps what is written twice
        ("qwen3", "ntk", "sglang", ""),
    ],
)
def test_a_base_that_is_read_next_to_the_setting_only(
    family: str, method: str, engine: str, trap: str, tmp_path: Path
) -> None:
    """transformers 5 moves rope_theta into the setting, and such a class gets its own default."""
    config = small(family, position_embedding_type="rope")
    plan = planned(config, method)
    assert (engine in loadable_by(plan, config)) == (not trap)
    written_ = engines()[engine].written_config(config, plan)
    assert ("rope_theta" in written_) == (family == "granitemoehybrid")
    found = verified(tmp_path, written_, engine, plan=plan)
    if trap:
        assert "reads rope_theta next to the rope setting only: it is 1e+06" in found.wrong[0].what
        with pytest.raises(Unsupported, match="is refused"):
            targets()[engine].expressible(plan, config, approximate=True)
    else:
        assert not found.wrong
    written_.pop("rope_theta", None)  # as a folder of transformers 5 is, which others exported
    found = verified(tmp_path, written_, engine, plan=plan)
    assert bool(found.wrong) == (bool(trap) or family == "granitemoehybrid")


def test_the_default_that_hides_a_setting_does_no_harm_where_it_is_the_setting() -> None:
    config = small("exaone4", rope_theta=1e6)
    assert "sglang" in loadable_by(planned(config, "yarn"), config)
    assert "sglang" not in loadable_by(planned(config, "ntk"), config)


@pytest.mark.parametrize(
    ("family", "stated", "right"),
    [("stablelm", 0.25, True), ("stablelm", 0.5, False), ("phi", 0.25, False)],
)
def test_the_share_that_is_read_next_to_the_setting_only(
    family: str, stated: float, right: bool, tmp_path: Path
) -> None:
    """The table holds for the versions of transformers that SGLang asks for, and names them."""
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    assert table["sglang"]["transformers"] == "==5.19.0"
    config = small(family, partial_rotary_factor=stated)
    plan = planned(config, "ntk")
    written_ = engines()["sglang"].written_config(config, plan)
    assert written_["partial_rotary_factor"] == stated
    for complete in (True, False):
        if not complete:
            del written_["partial_rotary_factor"]
        found = verified(tmp_path, written_, "sglang", plan=plan)
        assert bool(found.wrong) == (not complete and not right)


def test_a_class_that_drops_the_scaling_on_a_cpu_is_noted(tmp_path: Path) -> None:
    cases = (
        ("gemma3_text", "linear", True),
        ("gemma3_text", "ntk", False),
        ("gemma2", "ntk", False),
        ("llama", "linear", False),
    )
    for family, method, noted in cases:
        config = small(family)
        plan = planned(config, method)
        cells = [cells["sglang"].how for cells in matrix(plan, config).values()]
        assert any("CPU with AMX" in how for how in cells) == noted
        written_ = engines()["sglang"].written_config(config, plan)
        found = verified(tmp_path, written_, "sglang", plan=plan)
        assert ("dropped-on-cpu" in traps(found.warnings)) == noted
        assert not found.wrong


@pytest.mark.parametrize(
    ("family", "engine", "follows"),
    [
        *((family, "vllm", True) for family in ("glm", "helium", "youtu")),
        *((family, "sglang", True) for family in ("ernie4_5", "glm", "youtu", "axk1", "helium")),
        ("ernie4_5", "vllm", False),  # a class of its own, with the engine's rotary module
        ("cohere", "sglang", False),
    ],
)
def test_the_engines_longrope_is_of_their_own_classes_alone(
    family: str, engine: str, follows: bool
) -> None:
    config = small(family)
    plan = planned(config, "ntk_mixed")
    assert (engine in loadable_by(plan, config)) == follows
    cell = matrix(plan, config)["factors by pair"][engine]
    assert ("half-split" in cell.how) == (not follows)


def test_a_base_cut_to_a_whole_number_is_an_approximation_that_the_class_follows() -> None:
    config = small("mixtral")
    plan = planned(config, "ntk")
    assert matrix(plan, config)["another base"]["sglang"].how == WHOLE_BASE
    with pytest.raises(Unsupported, match="only approximate"):
        targets()["sglang"].expressible(plan, config, approximate=False)
    followed, near = targets()["sglang"].expressible(plan, config, approximate=True)
    assert near == (f"another base: {WHOLE_BASE}",)
    written_ = engines()["sglang"].written_config(config, followed)
    base = written_["rope_parameters"]["rope_theta"]
    assert base == int(base)
    reading = named("sglang").read(written_)
    (step,) = reading.layers["full_attention"]
    wanted = followed.longest().inverse_frequencies
    assert step.inverse_frequencies == pytest.approx(wanted, rel=1e-12)
    assert step.inverse_frequencies != pytest.approx(plan.longest().inverse_frequencies, rel=1e-7)
    assert targets()["vllm"].expressible(plan, config, approximate=False) == (plan, ())


def test_what_the_sources_do_not_say_is_called_unknown() -> None:
    config = small("llama", architectures=["LagunaForCausalLM"])
    plan = planned(config, "yarn")
    assert model_class(config, "vllm").scaling == "unknown"
    assert matrix(plan, config)["YaRN"]["vllm"].fit == "unknown"
    assert "vllm" not in loadable_by(plan, config)
    (said,) = targets()["vllm"].unknowns(plan, config)
    assert "LagunaForCausalLM" in said
    rows = {row.runtime: row for row in rw.plan(config, TARGET, "yarn").serving}
    assert (rows["vllm"].fit, rows["transformers"].fit) == ("unknown", "exact")
    assert said in rows["vllm"].reason
    base = planned(config, "ntk")  # it has no scaling to lose
    assert matrix(base, config)["another base"]["vllm"].fit == "exact"


def test_an_architecture_without_a_class_is_served_by_transformers() -> None:
    config = small("smollm3")
    plan = planned(config, "ntk_mixed")
    assert model_class(config, "vllm").scaling == "transformers"
    assert {"vllm", "sglang"} <= set(loadable_by(plan, config))
    reading = named("sglang").read(engines()["sglang"].written_config(config, plan))
    (step,) = reading.layers["full_attention"]
    wanted = plan.longest().inverse_frequencies
    assert step.inverse_frequencies == pytest.approx(wanted, rel=1e-12)


def test_the_language_model_inside_another_decides() -> None:
    outer = {"model_type": "mistral3", "text_config": small("mistral")}
    assert model_class(outer, "vllm").architecture == "MistralForCausalLM"
    outer = {"model_type": "gemma3", "text_config": small("gemma3_text")}
    assert model_class(outer, "vllm").architecture == "Gemma3ForCausalLM"
    assert model_class(outer, "vllm").by_layer


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_dbrx_takes_its_base_from_attn_config_alone(engine: str, tmp_path: Path) -> None:
    config = load_config(PUBLISHED / "dbrx.json")
    present = present_plan(config)
    targets()[engine].expressible(present, config, approximate=False)
    for method in ("ntk", "linear"):
        plan = extend_plan(present, 2 * TARGET, method)
        with pytest.raises(Unsupported, match=r"base from attn_config\.rope_theta, and"):
            targets()[engine].expressible(plan, config, approximate=True)
    plan = extend_plan(present, 2 * TARGET, "ntk")
    (wrong,) = verified(tmp_path, engines()[engine].written_config(config, plan), engine).wrong
    assert wrong.trap == "theta-lost"
    assert "attn_config.rope_theta" in wrong.what
    assert "write the base into attn_config.rope_theta" in wrong.remedy
    del config["attn_config"]["rope_theta"]
    read = named(engine).read({**config, "rope_parameters": {"rope_theta": 5e5}})
    assert "looks for attn_config.rope_theta" in str(read.refused)


def test_dbrx_has_one_length_under_two_names() -> None:
    config = load_config(PUBLISHED / "dbrx.json")
    for change, length in (({}, 32768), ({"max_position_embeddings": 65536}, 65536)):
        for engine in ("vllm", "sglang"):
            assert named(engine).read({**config, **change}).limit == length


OLMO3: Config = {
    **small("olmo3", architectures=["Olmo3ForCausalLM"], sliding_window=1024, rope_theta=5e5),
    "layer_types": ["sliding_attention", "full_attention"],
}
QWEN3_NEXT = small(
    "qwen3_next", architectures=["Qwen3NextForCausalLM"], head_dim=64, partial_rotary_factor=0.25,
    num_hidden_layers=4,
)  # fmt: skip
LONGCAT = small(
    "longcat_flash", architectures=["LongcatFlashForCausalLM"], qk_rope_head_dim=64,
    qk_nope_head_dim=64, num_layers=2,
)  # fmt: skip


def differs(read: RotaryReading, plan: rw.ContextPlan) -> float:
    """The largest difference of an angle or a scaling, in parts."""
    return max(
        float(np.abs(got.inverse_frequencies / schedule.inverse_frequencies - 1).max())
        + abs(got.attention_scaling / schedule.attention_scaling - 1)
        for name, steps in plan.schedules.items()
        for got, schedule in [(read.layers[name][-1], steps[-1].schedule)]
    )


@pytest.mark.parametrize(
    ("config", "method"),
    [
        *((OLMO3, method) for method in ("linear", "yarn", "llama3", "ntk_mixed")),
        *((QWEN3_NEXT, method) for method in ("linear", "ntk", "yarn", "llama3", "ntk_mixed")),
        (LONGCAT, "yarn"),
    ],
)
def test_a_config_class_that_erases_rope_parameters_gets_the_old_keys(
    config: Config, method: str, tmp_path: Path
) -> None:
    """OLMo 3, Qwen3-Next and LongCat-Flash in SGLang 0.5.23; stock transformers reads both."""
    plan = planned(config, method)
    targets()["sglang"].expressible(plan, config, approximate=False)
    exported = engines()["sglang"].written_config(config, plan)
    assert "rope_parameters" not in exported
    read = named("sglang").read(exported)
    assert (read.refused, read.notes) == (None, ())
    assert differs(read, plan) < 1e-12
    assert read.limit == TARGET
    assert not verified(tmp_path / "ours", exported, "sglang", plan=plan).wrong
    assert differs(by_rules("any", exported, lambda r, rope: r.steps(rope), "never"), plan) < 1e-12
    today = stock_config(config, plan)
    assert not named("vllm").read(today).refused
    read = named("sglang").read(today)
    if read.refused is None and method != "ntk":
        assert "erases rope_parameters" in read.notes[0]
    found = verified(tmp_path / "today", today, "sglang", plan=plan).wrong
    assert traps(found)
    assert all("--runtime sglang" in each.remedy + each.what for each in found)


def test_a_model_saved_by_transformers_5_is_misread_too(tmp_path: Path) -> None:
    (wrong, *_) = verified(tmp_path, stock_config(OLMO3, present_plan(OLMO3)), "sglang").wrong
    assert wrong.trap == "theta-lost"
    assert "erases rope_parameters" in wrong.what
    assert not verified(tmp_path, OLMO3, "sglang").wrong


def test_what_the_old_keys_cannot_say_is_refused_for_sglang() -> None:
    """One base turns all layers of OLMo 3; LongCat-Flash fails where there is no scaling."""
    for config, why in ((OLMO3, "has one base"), (LONGCAT, "looks for a setting with a scaling")):
        plan = planned(config, "ntk")
        with pytest.raises(Unsupported, match=why):
            targets()["sglang"].expressible(plan, config, approximate=True)
        targets()["vllm"].expressible(plan, config, approximate=False)


@pytest.mark.parametrize(
    "config",
    [
        load_config(PUBLISHED / "ministral-3-8b.json"),  # it states an original length
        small("modernbert-decoder", global_rope_theta=160000.0, local_rope_theta=10000.0),
    ],
    ids=["ministral3", "modernbert-decoder"],
)
def test_linear_is_long_enough_where_sglang_does_not_see_its_factor(
    config: Config, tmp_path: Path
) -> None:
    plan = extend_plan(
        present_plan(config), 4 * present_plan(config).target_length, "linear", from_original=True
    )
    for engine in ("vllm", "sglang"):
        folder = engines()[engine].written_config(config, plan)
        assert named(engine).read(folder).limit == plan.target_length
        assert not verified(tmp_path / engine, folder, engine, plan=plan).wrong
