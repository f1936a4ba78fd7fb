"""Every known trap is named, in an export that differs from a clean one by one thing."""

from __future__ import annotations

import ast
import inspect
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import ropewalk as rw
from ropewalk.audit import examination
from ropewalk.audit.examination import audit
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InvalidValue, RopewalkError
from ropewalk.models.config import ONE_WINDOW, present_plan
from ropewalk.models.families import FAMILIES
from ropewalk.runtimes import every, traps
from ropewalk.runtimes.traps import config_keys
from ropewalk.schedule import LogN
from tests.audit.corpus import BROKEN, CLEAN, Export
from tests.audit.verified import GOLDEN, verified
from tests.audit.verified import traps as named
from tests.golden.test_golden import NAMES
from tests.models.tiny import model_of, tiny_config, tokens
from tools import config_kinds
from tools.models_table.__main__ import published

PACKAGE = Path(examination.__file__).parent
DOCUMENT = Path(__file__).parents[2] / "docs" / "verify.md"


@pytest.mark.parametrize("beside_its_plan", [True, False])
@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_export_passes_without_a_word(
    name: str, beside_its_plan: bool, tmp_path: Path
) -> None:
    export: Export = CLEAN[name]
    if name == "for SGLang" and not beside_its_plan:
        pytest.skip("its original length stands at the target: only the plan tells")
    plan = export.plan if beside_its_plan else None
    found = audit(export.write(tmp_path), plan=plan, runtimes=export.runtimes)
    assert found.warnings == ()
    assert found.compared


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_export_is_named(name: str, tmp_path: Path) -> None:
    broken = BROKEN[name]
    export = broken.export
    found = audit(
        export.write(tmp_path),
        plan=export.plan if broken.planned else None,
        runtimes=broken.runtimes or export.runtimes,
    )
    assert named(found.warnings) == {broken.trap} | broken.also
    assert found.verdict == "wrong"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "gpt-j-6b"])
def test_published_configs_pass_but_for_their_known_traps(name: str) -> None:
    expected = {
        # Its max_position_embeddings is not raised, and vLLM and SGLang take it for the limit.
        "qwen2.5-7b-instruct-yarn": {"length-limit", "factor-recomputed"},
        # Their trained lengths are known from elsewhere.
        "deepseek-v3": {"assumption"},
        "modernbert-base": {"not-causal"},  # a note: it is meant as an encoder
        "gemma-3-4b": {"assumption", "dropped-on-cpu"},
        "phi-3-mini-128k": {"switches-with-cache", "short-text-taxed", "one-position-lost"},
    }
    assert named(audit(GOLDEN / f"{name}.json").warnings) == expected.get(name, set())


def test_a_model_that_is_asked_for_more_than_it_was_made_for(tmp_path: Path) -> None:
    found = audit(CLEAN["plain"].write(tmp_path), length=8192)
    assert named(found.warnings) == {"not-extended", "tokenizer-limit"}
    assert "nothing in it scales the rotation" in found.warnings[0].what


def test_code_of_its_own_is_named_and_not_run(tmp_path: Path) -> None:
    export = CLEAN["plain"]
    folder = export.write(tmp_path)
    marker = tmp_path / "ran"
    (folder / "modeling.py").write_text(f"open({str(marker)!r}, 'w')", encoding="utf-8")
    auto = {"AutoModelForCausalLM": "modeling.Model", "AutoConfig": "modeling.Config"}
    known = Export(export.plan, {**export.config, "auto_map": auto}, export.tokenizer)
    found = audit(known.write(tmp_path))
    assert named(found.warnings) == {"remote-code"}
    assert not found.wrong
    unknown = Export(export.plan, {**known.config, "model_type": "of_its_own"}, export.tokenizer)
    found = audit(unknown.write(tmp_path))
    assert "never runs" in str(found.runtimes["transformers"].unread)
    assert not marker.exists()


def test_what_no_stock_runtime_says_is_named(tmp_path: Path) -> None:
    export = CLEAN["any λ"]
    schedule = replace(export.plan.longest(), kept_initial_positions=4, log_n=LogN("beyond", 512))
    plan = ContextPlan("more", {FULL_ATTENTION: (PlanStep(export.plan.target_length, schedule),)})
    found = audit(export.write(tmp_path), plan=plan, runtimes=export.runtimes)
    assert named(found.warnings) == {"kept-positions-lost", "log-n-lost"}


@pytest.mark.parametrize(
    ("change", "trap", "wrong"),
    [
        ({"is_causal": False}, "not-causal", True),
        ({"is_causal": None}, "refused", True),
        ({"is_causal": False, "architectures": ["LlamaModel"]}, "not-causal", False),
        ({"num_hidden_layers": 0}, "refused", True),
        ({"num_attention_heads": 0, "head_dim": 16}, "refused", True),
        ({"num_key_value_heads": 0}, "refused", True),
        ({"num_key_value_heads": 3}, "refused", True),
        ({"tie_word_embeddings": "no"}, "refused", True),
        ({"rms_norm_eps": "1e-06"}, "refused", True),
        ({"num_key_value_heads": "4"}, "refused", True),
        ({"hidden_act": ["silu"]}, "refused", True),
        ({"hidden_act": "yarn"}, "refused", True),
        ({"dtype": 7}, "refused", True),
        ({"dtype": "bf16"}, "refused", True),
        ({"eos_token_id": [2, "3"]}, "refused", True),
        ({"intermediate_size": "64"}, "refused", True),
        ({"pad_token_id": [0]}, "refused", True),
        ({"id2label": "no"}, "refused", True),
        ({"rms_norm_eps": 1}, "refused", True),
        ({"hidden_act": None}, "refused", True),
        ({"rms_norm_eps": 0.5}, "refused", True),
        ({"attention_bias": None}, "refused", True),
        ({"intermediate_size": -64}, "refused", True),
        ({"layer_types": ["full_attention"]}, "refused", True),
        ({"layer_types": ["linear"] * 2}, "refused", True),
    ],
)
def test_a_config_of_no_model_that_writes(
    change: dict[str, object], trap: str, wrong: bool, tmp_path: Path
) -> None:
    """Its rotation is right, in every runtime."""
    export = CLEAN["plain"]
    architectures = {"architectures": ["LlamaForCausalLM"]}
    broken = Export(export.plan, {**export.config, **architectures, **change}, export.tokenizer)
    found = audit(broken.write(tmp_path), plan=export.plan, runtimes=export.runtimes, run=False)
    (finding,) = found.warnings
    assert (finding.trap, finding.wrong) == (trap, wrong)
    assert all(map(finding.concerns, found.runtimes))
    assert next(iter(change)) in f"{finding.what} {finding.remedy}"


@pytest.mark.parametrize(
    "change",
    [
        {"id2label": {"a": "x"}},
        {"num_labels": "x"},
        {"initializer_range": 1.5},
        {"model_type": "granite", "attention_multiplier": 0.0},
        {"is_encoder_decoder": True, "architectures": ["LlamaForCausalLM"]},
    ],
)
def test_values_that_the_class_of_every_runtime_refuses(
    change: dict[str, object], tmp_path: Path
) -> None:
    """vLLM and SGLang load configs by transformers' classes."""
    found = verified(tmp_path, {**CLEAN["plain"].config, **change}, "vllm", "sglang")
    assert named(found.wrong) == {"refused"}


@pytest.mark.parametrize(
    "content",
    [
        *("[1]", '"x"', "{", '{"repetition_penalty": 0}', '{"cache_implementation": "x"}'),
        '{"max_new_tokens": -1}',
        *('{"bad_words_ids": []}', '{"eos_token_id": "x"}', '{"top_p": 2}'),
    ],
)
def test_a_generation_config_with_which_nothing_is_written_is_wrong(
    content: str, tmp_path: Path
) -> None:
    config = CLEAN["plain"].config
    (tmp_path / "generation_config.json").write_text(content)
    assert named(verified(tmp_path, config, "transformers").wrong) == {"refused"}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 2], "top_p": 0.9}')
    assert not named(verified(tmp_path, config, "transformers").wrong)


@pytest.mark.parametrize(
    ("change", "trap"),
    [
        ({"return_dict": False}, "refused"),
        ({"sliding_window": 4}, "window-missing"),
        ({"attention_chunk_size": 4}, "window-missing"),
    ],
)
def test_keys_under_which_transformers_alone_fails(
    change: dict[str, object], trap: str, tmp_path: Path
) -> None:
    """Its class for llama has none of these, and its cache reads the last two."""
    export = CLEAN["plain"]
    found = verified(tmp_path, {**export.config, **change}, "transformers", "vllm", "sglang")
    (finding,) = found.wrong
    assert (finding.trap, finding.runtimes) == (trap, ("transformers",))


def test_infinity_as_transformers_saves_it_is_a_number_with_a_point(tmp_path: Path) -> None:
    config = json.loads(tiny_config("falcon_h1").to_json_string(use_diff=False))
    assert {"__float__": "Infinity"} in config["time_step_limit"]
    assert not named(verified(tmp_path, config, "transformers").wrong)
    config["rms_norm_eps"] = {"__float__": "Infinity"}
    assert named(verified(tmp_path, config, "transformers").wrong) == {"refused"}


@pytest.mark.parametrize("kind", [None, False, "", []])
def test_a_rope_type_that_is_no_text_is_not_taken_for_plain_rope(
    kind: object, tmp_path: Path
) -> None:
    rope = {"rope_type": kind, "rope_theta": 1e4}
    found = verified(tmp_path, {**CLEAN["plain"].config, "rope_parameters": rope}, "vllm")
    assert "refused" in named(found.wrong)


@pytest.mark.parametrize(
    ("family", "change"),
    [
        ("deepseek_v3", {"num_experts_per_tok": 5}),
        ("deepseek_v3", {"n_group": 3}),
        ("deepseek_v3", {"topk_group": 2}),
        ("deepseek_v2", {"topk_method": "GREEDY"}),
        ("mixtral", {"num_experts_per_tok": 9}),
        ("ministral3", {"rope_parameters": {"original_max_position_embeddings": None}}),
        ("cohere", {"logit_scale": None}),
        ("cohere", {"layer_norm_eps": None}),
        ("deepseek_v3", {"topk_group": ...}),
        ("llama", {"layer_types": ["full_attention", "linear_attention"]}),
    ],
)
def test_a_computation_that_fails_in_transformers_is_refused(
    family: str, change: dict[str, Any], tmp_path: Path
) -> None:
    config = tiny_config(family).to_dict()
    assert not named(verified(tmp_path, config, "transformers").wrong)
    for key, value in change.items():
        config[key] = {**config[key], **value} if isinstance(value, dict) else value
        if value is ...:  # what the class fills in does not fit the rest
            del config[key]
    with pytest.raises((RuntimeError, TypeError, UnboundLocalError, AttributeError)):
        model_of(CONFIG_MAPPING[family](**config))(tokens(8))
    assert named(verified(tmp_path, config, "transformers").wrong) == {"refused"}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("yarn", "partial_rotary_factor", None),
        ("llama3", "factor", ...),
        ("longrope", "long_mscale", ...),
        ("longrope", "short_mscale", [1.0]),
    ],
)
def test_a_rope_setting_that_no_class_loads_is_refused_by_engines_too(
    kind: str, key: str, value: object, tmp_path: Path
) -> None:
    """They load configs by transformers' classes, though their own rotary modules have defaults."""
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": 1e4, "factor": 4.0}
    more: dict[str, dict[str, Any]] = {
        "llama3": {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
        "longrope": {
            **dict.fromkeys(("short_factor", "long_factor"), [2.0] * 8),
            **dict.fromkeys(("short_mscale", "long_mscale"), 1.0),
        },
    }
    rope |= more.get(kind, {})
    rope["original_max_position_embeddings"] = 16
    family = "phimoe" if kind == "longrope" else "llama"
    config = tiny_config(family, max_position_embeddings=64).to_dict() | {"rope_parameters": rope}
    assert "refused" not in named(verified(tmp_path, config, "vllm").wrong)
    rope.pop(key, None)
    rope |= {} if value is ... else {key: value}
    assert "refused" in named(verified(tmp_path, config, "vllm").wrong)
    with pytest.raises((KeyError, TypeError, StrictDataclassClassValidationError)):
        model_of(CONFIG_MAPPING[family](**config))


@pytest.mark.parametrize("runtime", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("family", "changed"),
    [
        ("deepseek_v3", {"head_dim": 7}),
        ("phi3", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": None}}),
    ],
)
def test_a_config_that_transformers_class_refuses_is_refused_by_engines_too(
    family: str, changed: dict[str, Any], runtime: str, tmp_path: Path
) -> None:
    config = tiny_config(family).to_dict()
    assert not verified(tmp_path, config, runtime).wrong
    verified(tmp_path, config | changed, runtime)  # which may import nothing heavy
    assert "refused" in named(rw.verify(tmp_path, runtimes=[runtime]).wrong)
    with pytest.raises(StrictDataclassClassValidationError):
        CONFIG_MAPPING[family](**config | changed)


@pytest.mark.parametrize(
    "rope",
    [{"llama_4_scaling_beta": 0.6}, {"llama_4_scaling_beta": [0.3]}, {"llama_4_scaling_beta": 0}],
)
def test_a_growth_of_queries_other_than_the_plan_is_named(
    rope: dict[str, Any], tmp_path: Path
) -> None:
    config = tiny_config("ministral3").to_dict()
    plan = present_plan(config)
    assert verified(tmp_path, config, "transformers", plan=plan).verdict != "wrong"
    config["rope_parameters"] |= rope
    found = verified(tmp_path, config, "transformers", plan=plan).wrong
    assert named(found) == {"position-scaling-lost"}


def test_a_share_that_makes_a_head_of_millions_of_pairs_takes_no_memory(tmp_path: Path) -> None:
    config = CLEAN["plain"].config
    rope = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1e9}
    config = {**config, "model_type": "stablelm", "rope_parameters": rope}
    found = verified(tmp_path, config, "transformers")
    assert "more than" in str(found.runtimes["transformers"].refused)


def test_heads_that_the_class_counts_factors_without_are_named(tmp_path: Path) -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 1.0}
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    config = {
        **CONFIG_MAPPING["phi3"](hidden_size=32, num_attention_heads=4).to_dict(),
        "head_dim": 16,
        "rope_parameters": {**rope, **factors},
        "max_position_embeddings": 64,
        "original_max_position_embeddings": 16,
    }
    found = verified(tmp_path, config, "vllm")
    assert named(found.wrong) == {"refused"}
    assert "counts factors by hidden_size" in found.wrong[0].what
    with pytest.raises(Exception, match="must have length 4"):
        CONFIG_MAPPING["phi3"](**config)


@pytest.mark.parametrize(("all_dim", "wrong"), [(1.0, False), (0.5, True)])
def test_a_key_left_over_that_would_change_nothing_is_no_fault(
    tmp_path: Path, all_dim: float, wrong: bool
) -> None:
    """Hunyuan-A13B's config has both scales of DeepSeek's YaRN, alike, in a type without them."""
    rope = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}
    export = CLEAN["plain"]
    config = {**export.config, "rope_theta": 1e4, "model_type": "hunyuan_v1_dense"}
    config.pop("rope_parameters", None)
    config["rope_scaling"] = {**rope, "mscale": 1.0, "mscale_all_dim": all_dim}
    found = verified(tmp_path, config, "transformers")
    [finding] = [own for own in found.warnings if "mscale_all_dim" in own.what]
    assert (finding.trap, finding.wrong) == ("ignored-key", wrong)


def test_a_plan_that_sharpens_all_logits_is_not_followed_by_a_config_without(
    tmp_path: Path,
) -> None:
    export = CLEAN["any λ"]
    schedule = replace(export.plan.longest(), softmax_scaling=4.0)
    plan = ContextPlan("more", {FULL_ATTENTION: (PlanStep(export.plan.target_length, schedule),)})
    found = audit(export.write(tmp_path), plan=plan, runtimes=export.runtimes, run=False)
    assert found.verdict == "wrong"
    assert named(found.warnings) == {"softmax-scaling-differs"}


@pytest.mark.parametrize("edited", [{"head_dim": 128}, {"pair_layout": "interleaved"}])
def test_a_plan_of_other_heads_is_refused(edited: dict[str, object], tmp_path: Path) -> None:
    """Its frequencies are the same, and would pass."""
    export = CLEAN["any λ"]
    value: Any = export.plan.to_json()
    value["schedules"][FULL_ATTENTION][0]["schedule"]["geometry"] |= edited
    with pytest.raises(InvalidValue, match="this model has"):
        audit(export.write(tmp_path), plan=ContextPlan.from_json(value), run=False)


def test_classes_without_windows_by_layer_are_those_that_do_not_read_layer_types() -> None:
    def reads(config: type) -> bool:
        files = map(inspect.getfile, (config, MODEL_FOR_CAUSAL_LM_MAPPING[config]))
        return any(re.search(r"\blayer_types\b", Path(file).read_text()) for file in files)

    types = (kind for kind in FAMILIES if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert {k for k in types if not reads(CONFIG_MAPPING[k])} == config_keys._WINDOWLESS


def test_windows_of_all_layers_and_of_none_are_those_of_the_classes() -> None:
    """By whether the model's source takes one mask by the window, and whether it takes any."""
    one, none = {}, {}
    for kind in (k for k in FAMILIES if k in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        config = CONFIG_MAPPING[kind]
        code = Path(inspect.getfile(MODEL_FOR_CAUSAL_LM_MAPPING[config])).read_text()
        window = getattr(config, "sliding_window", None)
        if "config.sliding_window is None" in code:
            one[kind] = window
        if "sliding_window" in config.__dataclass_fields__ and "create_sliding_window" not in code:
            none[kind] = window
    assert (one, none) == (ONE_WINDOW, config_keys.UNMASKED)


def test_a_window_that_only_the_cache_follows_is_wrong(tmp_path: Path) -> None:
    """transformers decodes a Moshi by a cache that is cut, and reads a prompt whole."""
    config = CONFIG_MAPPING["moshi"](max_position_embeddings=512).to_dict()
    for window, trap in ((512, set()), (64, {"window-missing"})):
        found = verified(tmp_path, {**config, "sliding_window": window}, "transformers")
        assert named(found.wrong) == trap


def test_the_kinds_of_values_are_those_of_the_classes() -> None:
    assert json.loads(config_keys.KINDS.read_text(encoding="utf-8")) == config_kinds.table()


def test_published_configs_and_the_defaults_of_classes_have_kinds_that_are_taken() -> None:
    defaults = (CONFIG_MAPPING[kind]().to_dict() for kind in {*FAMILIES} & {*CONFIG_MAPPING})
    judged = 0
    for config in (*(config for _, config, *_ in published()), *defaults):
        with suppress(RopewalkError):  # those that do not rotate, or by other rules
            found = every()["vllm"].judge(config, present_plan(config), own_plan=True)
            rules = "must (not )?be|is no|unknown to transformers|items, and|lacks|expert"
            assert not [f.what for f in found.wrong if re.search(rules, f.what)]
            judged += 1
    assert judged > 250


def test_a_null_that_erases_the_rope_settings_is_named_by_every_command(tmp_path: Path) -> None:
    config = {**CONFIG_MAPPING["gemma4_text"]().to_dict(), "rope_scaling": None, "rope_theta": 1e4}
    del config["rope_parameters"]
    found = verified(tmp_path / "it", config, "transformers", "vllm")
    assert named(found.wrong) == {"refused"}
    assert "remove rope_scaling" in found.wrong[0].remedy
    for runtime in ("transformers", "vllm", "sglang"):
        assert every()[runtime].judge(config, present_plan(config), own_plan=True).wrong


def test_classes_that_null_erases_are_those_that_do_not_convert_it() -> None:
    def converts(kind: str) -> bool:
        own = getattr(CONFIG_MAPPING[kind], "convert_rope_params_to_dict", None)
        return own is None or bool(re.search('"rope_scaling"|super', inspect.getsource(own)))

    assert {k for k in {*FAMILIES} & {*CONFIG_MAPPING} if not converts(k)} == config_keys._ERASED


def test_no_runtime_is_named_where_models_are_examined() -> None:
    """All is asked through the class of a runtime, so a new one is asked too."""
    for file in PACKAGE.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not texts & {*every()}, file.name
        assert not names & {"STOCK", "LLAMA_CPP", "OLLAMA"}, file.name


def test_every_trap_stands_in_the_document_and_no_other() -> None:
    table = DOCUMENT.read_text(encoding="utf-8").split("## The traps")[1]
    documented = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in _names(row)}
    files = [*PACKAGE.rglob("*.py"), *Path(traps.__file__).parents[1].rglob("*.py")]
    assert documented == set().union(*map(_found_in, files))
    assert {broken.trap for broken in BROKEN.values()} <= documented


def _found_in(path: Path) -> set[str]:
    """The names that a file gives to findings."""
    written = path.read_text(encoding="utf-8")
    by_name = re.findall(r'(?:Finding|_failed|fault)\(\s*"([a-z-]+)"', written)
    returned = re.findall(r'return \(?\s*"([a-z]+-[a-z-]+)"', written)
    return {*by_name, *returned}


def _names(cell: str) -> list[str]:
    return re.findall(r"`([a-z-]+)`", cell)


def test_a_plan_for_a_model_whose_layers_all_rest_is_not_followed(tmp_path: Path) -> None:
    """SmolLM3's list has 1 for a layer that rotates, which its name makes easy to invert."""
    config = tiny_config("smollm3").to_dict()
    plan = present_plan(config)
    config["no_rope_layers"] = [0] * config["num_hidden_layers"]
    found = verified(tmp_path, config, "transformers", "vllm", plan=plan)
    assert named(found.wrong) == {"frequencies-differ"}
