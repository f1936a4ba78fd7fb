"""Faults planted in models of transformers are named; unmodified models and other forms agree."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from torch import multiprocessing, nn
from torch.multiprocessing.spawn import start_processes
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    GPTJConfig,
    GPTJForCausalLM,
    LlamaConfig,
)
from transformers.models.gptj import modeling_gptj

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InvalidValue
from ropewalk.exporting.llama_cpp import export
from ropewalk.models import families
from ropewalk.models.anatomy import INVERSE_FREQUENCIES
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied
from ropewalk.planning.extension import extend_plan
from tests.gguf.gguf_cases import unproven
from tests.gguf.tiny_families import tiny
from tests.models.family_run import PLANS
from tests.models.test_sweep import REFUSED
from tests.models.tiny import FAMILIES, RECENT, thinned, tiny_model
from tests.rotation import ranks
from tests.rotation.planted import FAULTS, LISTS, TARGET, YARN, llama, plan_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_named(fault: str) -> None:
    plant, cause = FAULTS[fault]
    with pytest.raises(rw.GateFailed, match=f"likely cause: {cause}") as caught:
        rw.assert_rotation(plant(), plan_of())
    assert "layer 0 (full_attention) and 1 more, at length 32k" in str(caught.value)


def test_what_a_fault_is_called_says_where_and_by_how_much() -> None:
    found = rw.same_rotation(FAULTS["attention factor dropped"][0](), plan_of())
    [difference] = found.differences
    m = plan_of().longest().attention_scaling
    assert (difference.position, difference.pair, difference.layers) == (0, 0, 2)
    assert difference.error == pytest.approx(m - 1)
    assert not found.same
    assert rw.RotationCheck.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize("edited", [{"head_dim": 128}, {"pair_layout": "interleaved"}])
def test_a_plan_of_other_heads_is_refused(edited: dict[str, Any]) -> None:
    """Its cos and sin are the same, so they would agree."""
    plan, model = plan_of(), llama()
    value: Any = plan.to_json()
    for steps in value["schedules"].values():
        for step in steps:
            step["schedule"]["geometry"] |= edited
    with applied(model, plan), pytest.raises(InvalidValue, match="this model has"):
        rw.same_rotation(model, ContextPlan.from_json(value))


def test_layers_that_are_swapped_are_named() -> None:
    model = tiny_model("gemma3_text")
    plan = present_plan(model.config)
    rotary, (one, other) = model.model.rotary_emb, plan.schedules
    own = {name: getattr(rotary, f"{name}_inv_freq") for name in (one, other)}
    setattr(rotary, f"{one}_inv_freq", own[other])
    setattr(rotary, f"{other}_inv_freq", own[one])
    told = rw.same_rotation(model, plan).summary()
    for mine, foreign in ((one, other), (other, one)):
        assert f"layers swapped: the rotation of {foreign} layers" in told
        assert f"({mine})" in told


def test_the_short_list_in_place_of_the_long_one_is_named() -> None:
    model = llama(LISTS)
    rw.assert_rotation(model, plan_of(LISTS), lengths=(2048, 4096, 4097, TARGET))
    model.model.rotary_emb.config.rope_parameters["long_factor"] = LISTS["short_factor"]
    with pytest.raises(rw.GateFailed, match="list: the factors up to length 4,096"):
        rw.assert_rotation(model, plan_of(LISTS))
    rw.assert_rotation(model, plan_of(LISTS), lengths=(2048,))


def test_reading_leaves_a_dynamic_model_as_it_was() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
    model = llama(rope, max_position_embeddings=256)
    plan = present_plan(model.config)
    ids = torch.arange(40)[None]
    before = model(ids).logits
    rw.assert_rotation(model, plan, lengths=(128, 1024, 512))
    assert torch.equal(model(ids).logits, before)


@pytest.mark.parametrize("family", thinned([*FAMILIES, *RECENT]))
def test_no_family_raises_a_false_alarm(family: str) -> None:
    model = tiny_model(family)
    present = present_plan(model.config)
    rw.assert_rotation(model, present)
    plan = PLANS["random λ"](present)
    with applied(model, plan, check=False):
        rw.assert_rotation(model, plan)
        with pytest.raises(rw.GateFailed):
            rw.assert_rotation(model, present, lengths=(present.target_length,))
    kept = PLANS["n̂ = 8"](present)
    with applied(model, kept, check=False):  # by a rotary module of ours
        rw.assert_rotation(model, kept)


STOCK = json.loads(Path(families.__file__).with_name("stock_defaults.json").read_text("utf-8"))
UNBUILT = {
    **dict.fromkeys(("glm4v_text", "glm_image_text"), "split_with_sizes"),  # sections of no sum
    **dict.fromkeys(("mimi", "pocket_tts_audio_tokenizer"), "no rotary module"),  # two models
}
"""Default configs whose own rotation fails, or is that of several models."""


FAST = (
    "apertus",
    "csm",
    "deepseek_v4",
    "gemma3n_text",
    "glm4v_text",
    "mimi",
    "phi3",
    "qwen2_vl_text",
)


@pytest.mark.parametrize(
    "model_type",
    [
        pytest.param(name, marks=() if name in FAST else pytest.mark.slow)
        for name in sorted(set(STOCK) - set(REFUSED))
    ],
)
def test_no_model_type_of_the_sweep_raises_a_false_alarm(model_type: str) -> None:
    """Its model with real rotary modules, and no weights."""
    config = CONFIG_MAPPING[model_type]()
    auto = AutoModelForCausalLM if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else AutoModel
    try:
        with torch.device("meta"):
            model: Any = auto.from_config(config, trust_remote_code=False)
    except Exception:
        pytest.skip("its default config builds no model")
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if any(map(INVERSE_FREQUENCIES.fullmatch, child._buffers)):
                setattr(parent, name, type(child)(child.config))
    if model_type in UNBUILT:
        with pytest.raises(rw.Unsupported, match=UNBUILT[model_type]):
            rw.same_rotation(model, present_plan(config))
        return
    rw.assert_rotation(model, present_plan(config))


class TestWrapped:
    def test_adapters(self) -> None:
        given = peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
        for plant, same in ((llama, True), (FAULTS["factor lost"][0], False)):
            wrapped = peft.get_peft_model(plant(), given)
            assert rw.same_rotation(wrapped, plan_of()).same is same

    def test_compiled(self) -> None:
        for plant, same in ((llama, True), (FAULTS["factor lost"][0], False)):
            assert rw.same_rotation(torch.compile(plant()), plan_of()).same is same
            model = plant()
            model.compile()
            assert rw.same_rotation(model, plan_of()).same is same

    def test_a_trainer_or_a_wrapper_stands_for_its_model(self) -> None:
        class Holder:
            model = llama()

        rw.assert_rotation(Holder(), plan_of())
        rw.assert_rotation(nn.Sequential(llama()), plan_of())


class TestOtherForms:
    def test_two_live_models(self) -> None:
        """As those of an RL step: the trainer's and the rollout's."""
        rw.assert_rotation(llama(), llama())
        found = rw.same_rotation(llama(), llama({**YARN, "rope_theta": 10000.0}))
        [difference] = found.differences
        assert "base: like the plan with base 500,000 instead of 10,000" in difference.cause

    def test_a_reference_that_follows_no_plan_gives_no_cause(self) -> None:
        odd = FAULTS["another attention factor"][0]()
        [difference] = rw.same_rotation(llama(), odd).differences
        assert difference.cause.startswith("unknown")

    def test_inverse_frequencies(self) -> None:
        plan = plan_of()
        frequencies = torch.tensor(plan.longest().inverse_frequencies)
        found = rw.same_rotation(frequencies, plan)
        assert found.same
        assert found.unread == ("the attention scaling",)
        rw.assert_rotation(frequencies.numpy(), llama())
        rounded = frequencies.bfloat16()
        with pytest.raises(rw.GateFailed, match="rounded to bfloat16"):
            rw.assert_rotation(rounded, plan)
        with pytest.raises(rw.GateFailed, match="rotary dimension: 62"):
            rw.assert_rotation(frequencies[1:], plan)
        for wrong in (torch.ones(2, 2), torch.arange(4)):
            with pytest.raises(
                rw.InputError, match="must be a vector with one real number per pair"
            ):
                rw.same_rotation(wrong, plan)

    def test_folders_and_plans_of_files(self, tmp_path: Path) -> None:
        llama().save_pretrained(tmp_path / "model")
        (tmp_path / "plan.json").write_text(plan_of().dumps(), encoding="utf-8")
        rw.assert_rotation(tmp_path / "model", tmp_path / "plan.json")
        rw.assert_rotation(llama(), str(tmp_path / "model"))

    def test_a_gguf_file_under_llama_cpp(self, tmp_path: Path) -> None:
        """By llama.cpp's rules, which truncate YaRN's ramp."""
        folder = tiny(tmp_path / "llama", "llama")
        plan = extend_plan(present_plan(folder), 64, "yarn")
        unproven(export)(folder, plan, tmp_path / "it.gguf", dtype="F32")
        rw.assert_rotation(tmp_path / "it.gguf", plan)
        assert not rw.same_rotation(tmp_path / "it.gguf", present_plan(folder)).same

    def test_the_plan_in_the_models_own_folder(self, tmp_path: Path) -> None:
        llama().save_pretrained(tmp_path)
        model = AutoModelForCausalLM.from_pretrained(tmp_path)
        with pytest.raises(rw.InputError, match=r"there is no plan.json in the folder"):
            rw.assert_rotation(model)
        (tmp_path / "plan.json").write_text(plan_of().dumps(), encoding="utf-8")
        assert rw.assert_rotation(model).same
        model.model.rotary_emb.attention_scaling = 1.0
        with pytest.raises(rw.GateFailed, match="without its attention factor"):
            rw.assert_rotation(peft.PeftModel(model, peft.LoraConfig(target_modules=["q_proj"])))


class TestNotRead:
    def test_a_model_without_rotation(self) -> None:
        config = BertConfig(
            hidden_size=8, num_attention_heads=1, num_hidden_layers=1, intermediate_size=8
        )
        with pytest.raises(rw.Unsupported, match="BertModel has no rotary module that ropewalk"):
            rw.same_rotation(BertModel(config), plan_of())

    def test_rotation_inside_attention_code(self) -> None:
        config = GPTJConfig(n_embd=16, n_head=2, n_layer=1, rotary_dim=4, vocab_size=8)
        # From transformers 5.24 on it has a module of its own, of a table of sines.
        has_module = hasattr(modeling_gptj, "GPTJRotaryEmbedding")
        said = "rotates in a form that ropewalk cannot read" if has_module else "no rotary module"
        with pytest.raises(rw.Unsupported, match=said):
            rw.same_rotation(GPTJForCausalLM(config), plan_of())

    def test_a_model_without_layers(self) -> None:
        for model in (llama(num_hidden_layers=0), llama()):
            del model.model.layers[:]
            with pytest.raises(rw.Unsupported, match="LlamaForCausalLM has no layers"):
                rw.same_rotation(model, plan_of())

    def test_a_module_of_unknown_form(self) -> None:
        class RotaryEmbedding(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("inv_freq", torch.ones(32), persistent=False)

            def forward(self, x: Any, seq_len: int) -> Any:
                return x

        model = llama()
        model.model.layers[1].self_attn.rotary_emb = RotaryEmbedding()
        named = r"model.layers.1.self_attn.rotary_emb \(RotaryEmbedding\) rotates in a form"
        for compared in ((model, plan_of()), (llama(), model)):
            with pytest.raises(rw.Unsupported, match=named):
                rw.same_rotation(*compared)

    def test_a_model_without_values(self) -> None:
        with torch.device("meta"):
            model = llama()
        with pytest.raises(rw.Unsupported, match="inv_freq is on the meta device: load the model"):
            rw.same_rotation(model, plan_of())

    def test_a_plan_for_other_layers(self) -> None:
        plan = present_plan(tiny_model("gemma3_text").config)
        with pytest.raises(InvalidValue, match="this model has the layer types"):
            rw.assert_rotation(llama(), plan)

    def test_what_is_no_model(self) -> None:
        with pytest.raises(rw.InputError, match="3: has no rotation that ropewalk can read"):
            rw.same_rotation(3, plan_of())
        with pytest.raises(InvalidValue, match="the plan serves sequences up to 32768"):
            rw.assert_rotation(llama(), plan_of(), lengths=(TARGET + 1,))
        with pytest.raises(InvalidValue, match="lengths"):
            rw.assert_rotation(llama(), plan_of(), lengths=(0,))
        with pytest.raises(InvalidValue, match=r"lengths = 64: must be a list; write \[64\]"):
            rw.assert_rotation(llama(), plan_of(), lengths=64)  # type: ignore[arg-type]


def test_an_8b_model_takes_milliseconds() -> None:
    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rope_parameters={**YARN, "original_max_position_embeddings": 8192, "factor": 16.0},
    )
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    plan = present_plan(config)
    taken = []
    for _ in range(10):
        start = time.process_time()
        assert rw.same_rotation(model, plan).same
        taken.append(time.process_time() - start)
    assert min(taken) < 0.01


def test_models_divided_over_two_ranks(tmp_path: Path) -> None:
    """Under FSDP2 and under tensor parallelism: each rank checks what it computes with."""
    multiprocessing.set_forkserver_preload(["tests.training.cases"])
    start_processes(ranks.work, (2, str(tmp_path)), nprocs=2, start_method="forkserver")  # type: ignore[no-untyped-call]
    for rank in range(2):
        told = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(told) == 4
        for name, said in told.items():
            expected = "rotates like plan" if name.startswith("planned") else "without any scaling"
            assert expected in said, name


def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "assert.md").read_text(encoding="utf-8")
    [example] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(example, {})
    assert "no scaling" in capsys.readouterr().out
