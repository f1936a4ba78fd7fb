"""Every family that the export writes does in the real llama.cpp what the planned model does.

A family is found by its file. What a tiny model of one needs besides stands in tiny_families.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration

import ropewalk as rw
from ropewalk.agreement import Agreement
from ropewalk.api.export import export as export_for
from ropewalk.api.verify import verify
from ropewalk.context_plan import FULL_ATTENTION, SLIDING_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.exporting import llama_cpp
from ropewalk.exporting.exported import Exported, NotTheSame
from ropewalk.exporting.llama_cpp import TOLERANCES, export
from ropewalk.gguf import families
from ropewalk.gguf import model as gguf_model
from ropewalk.gguf.architectures import Architecture, architecture
from ropewalk.gguf.families import GGUFFamily, TensorPart, family, family_names
from ropewalk.gguf.flags import flags_of
from ropewalk.gguf.parts import read_model
from ropewalk.gguf.settings import GGUFSetting, check_plan, setting_in
from ropewalk.models.config import BUNDLED_FOLDER, present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.schedule import RotarySchedule
from tests.gguf.gguf_cases import TARGET, TOKENIZER_FILES, edit_json, unproven
from tests.gguf.tiny_families import OTHER_WINDOWS, fields, tiny, weights
from tests.models.tiny import thinned, tiny_config

PLANS = ("linear", "ntk", "yarn")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "BEYOND", 40)


def planned(folder: Path, method: str) -> ContextPlan:
    return extend_plan(present_plan(folder), TARGET, method, from_original=method == "yarn")


def with_factors(folder: Path) -> ContextPlan:
    """A plan of no method's shape for the layers that attend to all."""
    plan = planned(folder, "yarn")
    found = plan.longest()
    jitter = np.exp(np.random.default_rng(0).normal(0, 0.03, found.geometry.pairs))
    found = replace(found, rescale_factors=np.sort(found.rescale_factors * jitter), recipe=())
    return replace(plan, schedules={**plan.schedules, FULL_ATTENTION: (PlanStep(TARGET, found),)})


def proven(exported: Exported) -> Agreement:
    assert exported.agreement is not None
    assert exported.agreement.passed
    return exported.agreement


def test_the_page_names_every_family() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gguf.md").read_text("utf-8")
    rows = "".join(line for line in page.splitlines() if line.startswith("| "))
    assert [kind for kind in family_names() if kind not in rows] == []


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *thinned(family_names(), "yarn"),
        *(("llama", method) for method in PLANS[:2]),
        *(
            pytest.param(kind, method, marks=pytest.mark.slow)
            for kind in family_names()
            for method in PLANS[:2]
            if kind != "llama"
        ),
    ],
)
def test_every_family_computes_every_method_in_llama_cpp(
    kind: str, method: str, tmp_path: Path
) -> None:
    folder, out = tiny(tmp_path / "model", kind), tmp_path / "model.gguf"
    agreement = proven(export(folder, planned(folder, method), out))
    usual = max(TOLERANCES["F32"], family(kind).tolerance)
    assert agreement.tolerance == pytest.approx(usual)
    assert agreement.max_difference < usual / 3
    assert fields(out)["general.architecture"] == family(kind).architectures[0]
    audit = verify(out)
    assert audit.verdict == "OK"
    assert audit.compared


@pytest.mark.parametrize("kind", thinned(family_names()))
def test_factors_by_pair_are_written_where_a_graph_takes_them(kind: str, tmp_path: Path) -> None:
    folder, out = tiny(tmp_path / "model", kind), tmp_path / "model.gguf"
    plan, names = with_factors(folder), family(kind).architectures
    taken = [name for name in names if architecture(name).honours_factors]
    if taken:
        exported = export(folder, plan, out)
        proven(exported)
        assert fields(out)["general.architecture"] == taken[0]
        told = any(f"saved as architecture {taken[0]}" in warning for warning in exported.warnings)
        assert told is (taken[0] != names[0])
        return
    with pytest.raises(Unsupported, match="factors by pair"):
        export(folder, plan, out)
    with pytest.raises(Unsupported, match="approximate"):
        export_for(folder, plan, out, runtime="llama.cpp")
    assert not out.exists()
    exported = export_for(folder, plan, out, runtime="llama.cpp", approximate=True)
    proven(exported)
    assert any(warning.startswith("approximation cost: ") for warning in exported.warnings)


Sets = Callable[..., GGUFSetting]
NO_YARN: Mapping[str, Any] = {"yarn": 1.0, "factors": None}
FORGOTTEN: Sequence[Mapping[str, Any]] = (NO_YARN, {"attention": 1.15})


def without(honest: Sets, forgotten: Mapping[str, Any]) -> Sets:
    """Settings with a fault."""

    def forgetful(own: Architecture, schedule: RotarySchedule, **how: Any) -> GGUFSetting:
        return replace(honest(own, schedule, **how), **forgotten)

    return forgetful


@pytest.mark.parametrize("kind", thinned(family_names()))
@pytest.mark.parametrize(
    "forgotten",
    [NO_YARN, pytest.param({"base": 5e3}, marks=pytest.mark.slow)],
    ids=["yarn", "base"],
)
def test_a_forgotten_setting_is_noticed_in_every_family(
    kind: str, forgotten: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(families, "setting_in", without(setting_in, forgotten))
    folder = tiny(tmp_path / "model", kind)
    with pytest.raises(NotTheSame, match=r"in llama\.cpp .* differ"):
        export(folder, planned(folder, "yarn"), tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gemma3_text", {"num_hidden_layers": 3, "layer_types": OTHER_WINDOWS}),
        ("gemma3_text", {"num_hidden_layers": 2, "layer_types": [FULL_ATTENTION] * 2}),
        ("gemma3_text", {"final_logit_softcapping": 5.0}),
        ("gpt_oss", {"num_hidden_layers": 3, "layer_types": OTHER_WINDOWS[::-1]}),
        ("gpt_oss", {"num_local_experts": 6, "num_experts_per_tok": 3}),
        ("mixtral", {"num_local_experts": 3, "num_experts_per_tok": 1}),
        ("mixtral", {"tie_word_embeddings": True}),
    ],
    ids=lambda value: str(value),
)
def test_other_shapes_of_a_family(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    folder = tiny(tmp_path / "model", kind, **changes)
    proven(export(folder, planned(folder, "yarn"), tmp_path / "model.gguf"))


@pytest.mark.parametrize(
    ("kind", "changes", "complaint"),
    [
        ("smollm3", {"no_rope_layers": [1, 0, 1, 1]}, "leaves every fourth layer without rotation"),
        ("gemma3_text", {"query_pre_attn_scalar": 32}, "query_pre_attn_scalar = 32"),
        ("gemma3_text", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "is an encoder"),
        ("gemma3_text", {"hidden_activation": "silu"}, "hidden_act = 'silu'"),
        ("gpt_oss", {"swiglu_limit": 5.0}, "swiglu_limit = 5"),
        (
            "gpt_oss",
            {"layer_types": [FULL_ATTENTION] * 2},
            "needs a sliding window in at least one layer",
        ),
        ("mixtral", {"sliding_window": 12}, "sliding_window = 12"),
    ],
)
def test_what_a_graph_would_compute_otherwise_is_refused(
    kind: str, changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    folder = tiny(tmp_path / "model", kind, **changes)
    with pytest.raises(Unsupported, match=complaint):
        export(folder, planned(folder, "linear"), tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


def test_layers_with_a_window_keep_their_own_base_and_nothing_else(tmp_path: Path) -> None:
    folder, out = tiny(tmp_path / "model", "gemma3_text"), tmp_path / "model.gguf"
    plan = planned(folder, "ntk")
    windowed = plan.longest(SLIDING_ATTENTION)
    export(folder, plan, out)
    assert fields(out)["gemma3.rope.freq_base_swa"] == pytest.approx(windowed.geometry.base)
    for other in (
        replace(windowed, attention_scaling=1.2),
        replace(windowed, rescale_factors=2 * windowed.rescale_factors),
    ):
        schedules = {**plan.schedules, SLIDING_ATTENTION: (PlanStep(TARGET, other),)}
        with pytest.raises(Unsupported, match="a separate base"):
            export(folder, replace(plan, schedules=schedules), out, overwrite=True)
    sharper = replace(plan.longest(), attention_scaling=1.2)
    schedules = {**plan.schedules, FULL_ATTENTION: (PlanStep(TARGET, sharper),)}
    with pytest.raises(Unsupported, match="sliding window"):
        export(folder, replace(plan, schedules=schedules), out, overwrite=True)


def test_experts_stand_together_in_the_order_of_the_checkpoint(tmp_path: Path) -> None:
    folder, out = tiny(tmp_path / "model", "mixtral", num_local_experts=12), tmp_path / "m.gguf"
    unproven(export)(folder, planned(folder, "ntk"), out)
    source, written = load_file(folder / "model.safetensors"), weights(out)
    for name, own in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
        experts = [
            source[f"model.layers.1.block_sparse_moe.experts.{i}.{own}.weight"] for i in range(12)
        ]
        assert torch.equal(written[f"blk.1.ffn_{name}_exps.weight"], torch.stack(experts))
    assert fields(out)["general.size_label"].startswith("12x")


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "model", "mixtral")
    edit_json(folder / "config.json", num_local_experts=5)
    with pytest.raises(InputError, match=r"holds 4 experts for blk\.0.*its config states 5"):
        unproven(export)(folder, planned(folder, "ntk"), tmp_path / "model.gguf")


def test_what_apertus_learned_of_its_activation_is_in_the_metadata(tmp_path: Path) -> None:
    folder, out = tiny(tmp_path / "model", "apertus"), tmp_path / "model.gguf"
    unproven(export)(folder, planned(folder, "ntk"), out)
    source = load_file(folder / "model.safetensors")
    for name in ("alpha_n", "alpha_p", "beta", "eps"):
        learned = [float(source[f"model.layers.{i}.mlp.act_fn.{name}"]) for i in range(2)]
        assert fields(out)[f"xielu.{name}"] == pytest.approx(learned)


def packed(folder: Path) -> Path:
    """The experts of a gpt-oss in MXFP4, as it is published."""
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values = torch.cat((values, -values))
    stored: dict[str, torch.Tensor] = {}
    for name, weight in load_file(folder / "model.safetensors").items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            stored[name] = weight.bfloat16()
            continue
        blocks = weight.transpose(-1, -2).reshape(*weight.mT.shape[:-1], -1, 32)
        exponents = torch.ceil(torch.log2(blocks.abs().amax(-1) / 6))
        nearest = blocks / torch.exp2(exponents)[..., None]
        codes = (nearest[..., None] - values).abs().argmin(-1).byte()
        stored[f"{name}_blocks"] = codes[..., 0::2] | codes[..., 1::2] << 4
        stored[f"{name}_scales"] = (exponents + 127).byte()
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    edit_json(
        folder / "config.json",
        quantization_config={
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                *("model.layers.*.self_attn", "model.layers.*.mlp.router"),
                *("model.embed_tokens", "lm_head"),
            ],
        },
    )
    return folder


def test_packed_experts_stay_as_they_are(tmp_path: Path) -> None:
    folder = packed(tiny(tmp_path / "model", "gpt_oss", intermediate_size=64))
    out = tmp_path / "model.gguf"
    exported = export_for(folder, planned(folder, "yarn"), out, runtime="llama.cpp", dtype="BF16")
    assert proven(exported).tokens > 40
    kinds = {tensor.name: tensor.tensor_type.name for tensor in GGUFReader(out).tensors}
    assert kinds["blk.0.ffn_down_exps.weight"] == "MXFP4"
    assert kinds["blk.0.attn_q.weight"] == "BF16"
    assert kinds["blk.0.ffn_up_exps.bias"] == "F32"
    own = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).state_dict()
    written = weights(out)
    for layer in range(2):
        both = own[f"model.layers.{layer}.mlp.experts.gate_up_proj"].transpose(-1, -2)
        down = own[f"model.layers.{layer}.mlp.experts.down_proj"].transpose(-1, -2)
        assert torch.equal(written[f"blk.{layer}.ffn_gate_exps.weight"], both[:, 0::2])
        assert torch.equal(written[f"blk.{layer}.ffn_up_exps.weight"], both[:, 1::2])
        assert torch.equal(written[f"blk.{layer}.ffn_down_exps.weight"], down)


@pytest.mark.parametrize(
    ("kind", "changes", "complaint"),
    [
        ("apertus", {"model.layers.1.mlp.act_fn.alpha_n": None}, "holds no .*alpha_n"),
        ("apertus", {"model.layers.1.mlp.act_fn.alpha_n": torch.ones(3)}, "3 numbers in place of"),
        ("mixtral", {"model.layers.1.block_sparse_moe.gate.weight": None}, "layer 1 lacks"),
        (
            "mixtral",
            {"model.layers.0.block_sparse_moe.experts.2.w1.weight": torch.ones(2, 64)},
            "has the shape",
        ),
        ("mixtral", {"model.norm.weight": torch.ones(64).byte()}, "is stored as"),
    ],
    ids=["missing", "three", "no router", "another shape", "no weight"],
)
def test_damaged_weights_are_refused_in_one_line(
    kind: str, changes: dict[str, torch.Tensor | None], complaint: str, tmp_path: Path
) -> None:
    folder = tiny(tmp_path / "model", kind)
    plan, path = planned(folder, "ntk"), folder / "model.safetensors"
    content = {**load_file(path), **changes}
    save_file(
        {name: value for name, value in content.items() if value is not None},
        path,
        metadata={"format": "pt"},
    )
    with pytest.raises(InputError, match=complaint):
        unproven(export)(folder, plan, tmp_path / "model.gguf")
    assert not (tmp_path / "model.gguf").exists()


@pytest.mark.parametrize(
    ("kind", "changes", "complaint"),
    [
        ("gpt_oss", {"sliding_window": -1}, "sliding_window = -1"),
        ("gemma3_text", {"sliding_window": None}, "sliding_window = None"),
        ("mixtral", {"num_local_experts": "many"}, r"rejects its config\.json"),
    ],
)
def test_a_damaged_config_is_refused_in_one_line(
    kind: str, changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    folder = tiny(tmp_path / "model", kind)
    plan = planned(folder, "ntk")
    edit_json(folder / "config.json", **changes)
    with pytest.raises(InputError, match=complaint):
        unproven(export)(folder, plan, tmp_path / "model.gguf")


def test_what_the_export_refuses_is_no_line_of_a_plan(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "model", "gpt_oss")
    edit_json(folder / "config.json", swiglu_limit=5.0)
    row = next(row for row in rw.plan(folder, "4k", "ntk").serving if row.runtime == "ollama")
    assert row.fit == "impossible"
    assert "swiglu_limit = 5" in row.reason


def test_a_model_that_reads_pictures_is_refused_by_plan_and_export(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "model", "llama")
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": text}))
    found = rw.plan(folder, "4k", "ntk")
    row = next(row for row in found.serving if row.runtime == "ollama")
    assert row.fit == "impossible"
    assert "model type 'llava': the export to GGUF does not write the language model" in row.reason
    with pytest.raises(InputError, match="does not write the language model inside it"):
        unproven(export)(folder, found.plan, tmp_path / "model.gguf")


def test_one_tensor_in_two_forms_is_refused(tmp_path: Path) -> None:
    folder = tiny(tmp_path / "model", "gemma3_text")
    path = folder / "model.safetensors"
    content = load_file(path)
    again = {"language_model.model.norm.weight": content["model.norm.weight"].clone()}
    save_file({**content, **again}, path, metadata={"format": "pt"})
    with pytest.raises(InputError, match="which become the same tensor"):
        unproven(export)(folder, planned(folder, "ntk"), tmp_path / "model.gguf")


def test_damaged_packs_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = packed(tiny(tmp_path / "model", "gpt_oss", intermediate_size=64))
    path, plan = folder / "model.safetensors", planned(folder, "ntk")
    whole = load_file(path)
    scales = "model.layers.0.mlp.experts.down_proj_scales"
    blocks = scales.replace("scales", "blocks")
    for changes, complaint in (
        ({scales: None}, "without model.layers.0.mlp.experts.down_proj_scales"),
        ({blocks: whole[blocks][..., :3].contiguous()}, "has the shape"),
        ({blocks: whole[blocks].flatten()}, "has the shape"),
    ):
        content = {name: value for name, value in {**whole, **changes}.items() if value is not None}
        save_file(content, path, metadata={"format": "pt"})
        with pytest.raises(InputError, match=complaint):
            unproven(export)(folder, plan, tmp_path / "model.gguf")


def test_a_gemma_that_reads_pictures_is_written_as_the_language_model(tmp_path: Path) -> None:
    sizes = {"vocab_size": 1056, "hidden_size": 64, "intermediate_size": 64}
    rope = {
        FULL_ATTENTION: {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6},
        SLIDING_ATTENTION: {"rope_type": "default", "rope_theta": 1e4},
    }
    own = {"max_position_embeddings": 32, "layer_types": OTHER_WINDOWS, "rope_parameters": rope}
    text = tiny_config("gemma3_text", **sizes, **own)
    eye = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    eye |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    torch.manual_seed(0)
    model = Gemma3ForConditionalGeneration(
        Gemma3Config(
            text_config=text.to_dict(),
            vision_config=eye,
            mm_tokens_per_image=1,
            image_token_index=1050,
            boi_token_index=1051,
            eoi_token_index=1052,
        )
    )
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3 if weight.dim() > 1 else 0.1)
    folder, out = tmp_path / "model", tmp_path / "model.gguf"
    model.save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copyfile(BUNDLED_FOLDER / name, folder / name)
    for method in PLANS:  # on top of the linear scaling that its layers have already
        exported = export_for(
            folder, planned(folder, method), out, runtime="llama.cpp", overwrite=True
        )
        proven(exported)
        assert any("only the language model is written" in told for told in exported.warnings)
    assert not any("vision" in name or name.startswith("v.") for name in weights(out))


def with_gate_for_up(own: GGUFFamily) -> GGUFFamily:
    """The family with a fault: in one layer the two projections change places."""
    other = {"gate_proj": "up_proj", "up_proj": "gate_proj", "w1": "w3", "w3": "w1"}

    def parts(source: str) -> tuple[TensorPart, ...]:
        found = own.parts(source)
        if ".1." not in source:
            return found
        return tuple(
            replace(part, name=".".join(other.get(word, word) for word in part.name.split(".")))
            for part in found
        )

    return replace(own, parts=parts)


@pytest.mark.parametrize("dtype", [pytest.param("F16", marks=pytest.mark.slow), "BF16", "Q8_0"])
@pytest.mark.parametrize(
    "kind", ["gpt_oss", pytest.param("llama", marks=pytest.mark.slow), "mixtral"]
)
def test_rounding_excuses_no_fault(
    kind: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = tiny(tmp_path / "model", kind), tmp_path / "model.gguf"
    plan = planned(folder, "yarn")
    agreement = proven(export(folder, plan, out, dtype=dtype))
    assert agreement.median_difference is not None
    assert agreement.median_tolerance is not None
    assert "half of them within" in str(agreement)
    own, honest = family(kind), setting_in
    for place in (families, gguf_model, llama_cpp):
        monkeypatch.setattr(place, "family", lambda *_: with_gate_for_up(own))
    with pytest.raises(NotTheSame) as caught:
        export(folder, plan, out, dtype=dtype, overwrite=True)
    wrong = caught.value.agreement
    assert wrong.median_difference is not None
    assert wrong.median_difference > 1.5 * (wrong.median_tolerance or 0)
    monkeypatch.undo()
    monkeypatch.setattr(llama_cpp, "BEYOND", 40)
    for forgotten in FORGOTTEN[:1] if dtype == "Q8_0" else FORGOTTEN:
        monkeypatch.setattr(families, "setting_in", without(honest, forgotten))
        with pytest.raises(NotTheSame):
            export(folder, plan, out, dtype=dtype, overwrite=True)


@pytest.mark.parametrize("forgotten", FORGOTTEN, ids=str)
def test_packed_weights_excuse_no_fault(
    forgotten: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = packed(tiny(tmp_path / "model", "gpt_oss", intermediate_size=64))
    monkeypatch.setattr(families, "setting_in", without(setting_in, forgotten))
    with pytest.raises(NotTheSame):
        export(folder, planned(folder, "yarn"), tmp_path / "model.gguf")


def test_a_plan_of_a_file_with_windows_serves_its_folder_and_the_reverse(tmp_path: Path) -> None:
    """The layers with a window keep their base in both, and are in both plans."""
    folder, file = tiny(tmp_path / "model", "gemma3_text"), tmp_path / "model.gguf"
    unproven(export)(folder, present_plan(folder), file)
    header = read_model(file)
    of_folder, of_file = (rw.plan(each, TARGET, "yarn").plan for each in (folder, file))
    assert set(of_file.schedules) == {FULL_ATTENTION, SLIDING_ATTENTION}
    assert of_file.rotates_like(of_folder)
    settings = [flags_of(header, check_plan(header, plan), TARGET) for plan in (of_file, of_folder)]
    assert settings[0] == settings[1]
    again = tmp_path / "again.gguf"
    unproven(export)(folder, of_file, again)
    assert fields(again)["gemma3.rope.scaling.type"] == "yarn"
    scaled = of_folder.longest(SLIDING_ATTENTION)
    scaled = replace(scaled, rescale_factors=2.0 * scaled.rescale_factors, recipe=())
    other = of_folder.with_steps(SLIDING_ATTENTION, (PlanStep(TARGET, scaled),))
    with pytest.raises(InvalidValue, match="a base of their own, which keep it"):
        check_plan(header, other)
