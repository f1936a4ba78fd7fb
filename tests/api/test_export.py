from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import ropewalk as rw
from ropewalk.agreement import Agreement
from ropewalk.api.export import ExportPreview
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, RopewalkError, UnknownName, Unsupported
from ropewalk.exporting import fresh_process, llama_cpp
from ropewalk.exporting.exported import Exported, Loss, NotTheSame
from ropewalk.gguf import llama_cpp_run
from ropewalk.models.config import BUNDLED_FOLDER, load_config, present_plan
from ropewalk.outputs import write_atomically
from ropewalk.planning.extension import extend_plan
from ropewalk.progress import Status
from tests.api.conformance import check_command, check_result
from tests.exporting.folders import TARGET, answered_here, saved, spoil_exports
from tests.models.tiny import WINDOW

GOLDEN = Path(__file__).parents[1] / "golden" / "configs"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)  # tiny models are fastest on one


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate's program without its process, which is slow to start."""
    monkeypatch.setattr(fresh_process, "run_script", answered_here)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("source"))


def planned(source: str, methods: str = "ntk_mixed", **more: Any) -> ContextPlan:
    return extend_plan(present_plan(source), TARGET, methods, **more)


def test_stock_transformers_turns_by_the_plan(source: str, tmp_path: Path) -> None:
    """Through the real gate; then transformers' own rotary module, asked without ours."""
    plan, out = planned(source), tmp_path / "out"
    write_atomically(tmp_path / "plan.json", plan.dumps())
    stages: list[Status] = []
    made = check_result(
        rw.export(source, tmp_path / "plan.json", out, "transformers", progress=stages.append)
    )
    assert isinstance(made, Exported)
    assert made.agreement is not None
    assert made.agreement.passed
    assert made.agreement.quantity == "logits"
    assert made.agreement.tokens > TARGET
    assert stages[0].detail == "writing"
    assert made.summary().startswith(f"Wrote {out} for transformers; transformers ")

    turned = LlamaRotaryEmbedding(AutoConfig.from_pretrained(out))
    schedule = plan.longest()
    positions = torch.arange(TARGET)[None]
    cos, sin = turned(torch.zeros(1), positions)
    pairs = schedule.geometry.pairs
    angles = np.outer(np.arange(TARGET), schedule.inverse_frequencies)
    scaling = schedule.attention_scaling
    np.testing.assert_allclose(turned.inv_freq, schedule.inverse_frequencies, rtol=1e-6)
    np.testing.assert_allclose(cos[0, :, :pairs], scaling * np.cos(angles), atol=1e-4)
    np.testing.assert_allclose(sin[0, :, :pairs], scaling * np.sin(angles), atol=1e-4)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("runtime", ["transformers", "vllm", "sglang"])
def test_the_command_prints_what_the_function_returns(
    source: str, tmp_path: Path, runtime: str
) -> None:
    plan, out = planned(source, "yarn+resonance"), tmp_path / "out"
    write_atomically(tmp_path / "plan.json", plan.dumps())
    made = check_result(rw.export(source, plan, out, runtime))
    assert made.target == runtime
    assert load_config(out)["rope_parameters"]["rope_type"] == "longrope"
    words = ("export", source, "--plan", tmp_path / "plan.json", "-o", out, "--overwrite")
    check_command(made, *words, "--runtime", runtime)


@pytest.mark.usefixtures("in_process")
def test_the_options_reach_the_folder(source: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    rw.export(source, planned(source, "yarn"), out, "transformers", v4_keys=True)
    config = load_config(out)
    assert "rope_parameters" not in config
    assert config["rope_scaling"]["rope_type"] == "yarn"
    made = rw.export(
        *(source, planned(source, "ntk", log_n="beyond"), out, "vllm"),
        dtype="bfloat16",
        approximate=True,
        overwrite=True,
    )
    assert load_config(out)["dtype"] == "bfloat16"
    assert made.warnings[0].startswith("approximated: log-n")
    assert made.warnings[1].startswith("approximation cost: ")


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("runtime", ["transformers", "vllm", "llama.cpp"])
def test_weights_that_are_no_numbers_are_named(tmp_path: Path, runtime: str) -> None:
    broken = Path(shutil.copytree(BUNDLED_FOLDER, tmp_path / "broken"))
    weights = load_file(broken / "model.safetensors")
    name = "model.layers.1.self_attn.q_proj.weight"
    weights[name][3, 5] = float("nan")
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    told = name if runtime != "llama.cpp" else r"blk\.1\.attn_q\.weight"
    with pytest.raises(RopewalkError, match=told):
        rw.export(broken, planned(str(broken), "yarn"), tmp_path / "out", runtime)
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


@pytest.mark.usefixtures("in_process")
def test_what_fails_the_gate_raises_with_what_was_measured(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil_exports(monkeypatch)
    with pytest.raises(NotTheSame) as caught:
        rw.export(source, planned(source, "yarn"), tmp_path / "out", "transformers")
    assert caught.value.agreement == check_result(caught.value.result).agreement
    assert not caught.value.agreement.passed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not llama_cpp_run.available(), reason="needs the extra gguf")
def test_llama_cpp_compares_log_probabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp, "BEYOND", 40)
    plan = extend_plan(present_plan(rw.load("bundled").model.config), 1024, "ntk_mixed")
    made = check_result(rw.export("bundled", plan, tmp_path / "model.gguf", "llama.cpp"))
    assert made.agreement is not None
    assert made.agreement.passed
    assert made.agreement.quantity == "log-probabilities"
    assert "logits" not in made.summary()
    assert rw.verify(made.path, plan=plan).agreement is not None


def test_a_plan_that_llama_cpp_only_approximates_goes_out_as_the_nearest(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[ContextPlan] = []

    def written(model: str, plan: ContextPlan, out: Path, **_: Any) -> Exported:
        given.append(plan)
        return Exported("llama.cpp", out, None, ("own",))

    monkeypatch.setattr(llama_cpp, "export", written)
    plan = planned(source, "ntk", log_n="beyond")
    with pytest.raises(Unsupported, match="`approximate`"):
        rw.export(source, plan, tmp_path / "out.gguf", "llama.cpp")
    made = rw.export(source, plan, tmp_path / "out.gguf", "llama.cpp", approximate=True)
    assert given[0].longest().log_n is None
    assert made.warnings[0].startswith("approximated: log-n")
    assert "nats per token" in made.warnings[1]
    assert made.warnings[2] == "own"
    assert "not tested here" in made.summary()


@pytest.mark.parametrize(
    ("methods", "runtime", "options", "kind", "complaint"),
    [
        ("linear", "vlm", {}, UnknownName, "did you mean 'vllm'"),
        ("linear", "vllm", {"v4_keys": True}, InputError, "v4_keys"),
        ("linear", "llama.cpp", {"v4_keys": True}, InputError, "v4_keys"),
        ("dynamic_ntk", "vllm", {}, Unsupported, "`approximate`"),
        ("linear", "vllm", {"dtype": "int4"}, UnknownName, "int4"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_written(
    source: str,
    tmp_path: Path,
    methods: str,
    runtime: str,
    options: dict[str, Any],
    kind: type[RopewalkError],
    complaint: str,
) -> None:
    plan = planned(source, methods)
    with pytest.raises(kind, match=complaint):
        rw.export(source, plan, tmp_path / "out", runtime, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "complaint"),
    [("llama-3.1-8b", "holds no weights"), (GOLDEN / "llama-2-7b.json", "is a file")],
)
def test_a_model_without_weights_is_not_exported(
    source: str, tmp_path: Path, model: str | Path, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        rw.export(model, planned(source), tmp_path / "out", "vllm")


def test_a_preview_says_what_each_runtime_makes_of_each_feature(
    source: str, tmp_path: Path
) -> None:
    plan = planned(source, log_n="beyond")
    write_atomically(tmp_path / "plan.json", plan.dumps())
    found = check_result(rw.export.preview(source, plan))
    assert found.plan_id == plan.id
    assert found.matrix["log-n"]["vllm"].fit == "approximated"
    assert found.matrix["factors by pair"]["llama.cpp"].fit == "equivalent"
    loss = found.losses["transformers"]
    assert isinstance(loss, Loss)
    assert 1e-6 < loss.nats < loss.max_logit_difference
    assert set(found.losses) == {"transformers", "vllm", "sglang", "llama.cpp"}
    check_command(found, "export", source, "--plan", tmp_path / "plan.json", "--dry-run")


def test_a_preview_needs_no_weights(source: str) -> None:
    found = check_result(
        rw.export.preview(Path(source) / "config.json", planned(source, "dynamic_ntk"))
    )
    assert isinstance(found, ExportPreview)
    assert found.losses["vllm"] is None
    config = load_config(GOLDEN / "command-r.json")
    plan = extend_plan(present_plan(config), 2**18, "ntk_mixed")
    refused = rw.export.preview(config, plan)
    assert refused.refusing("vllm") == ("factors by pair",)
    assert "transformers follows it" in refused.summary()
    with pytest.raises(InvalidValue, match="create the plan from this model's config"):
        rw.export.preview("llama-3.1-8b", plan)


@pytest.mark.parametrize(
    "edited", [{"base": 2e4}, {"head_dim": 32}, {"pair_layout": "interleaved"}], ids=str
)
def test_a_preview_refuses_a_plan_of_another_model_as_the_export_does(
    source: str, tmp_path: Path, edited: dict[str, Any]
) -> None:
    value = planned(source).to_json()
    value["schedules"]["full_attention"][0]["schedule"]["geometry"] |= edited  # type: ignore[index]
    plan = ContextPlan.from_json(value)
    with pytest.raises(InvalidValue, match="create the plan from this model's config") as shown:
        rw.export.preview(source, plan)
    assert "made for another model: this one has " in str(shown.value)
    for runtime in ("transformers", "vllm", "sglang"):
        with pytest.raises(InvalidValue) as refused:
            rw.export(source, plan, tmp_path / "out", runtime)
        assert str(refused.value) == str(shown.value)


def test_an_export_with_another_base_takes_the_plan_that_it_was_made_with(
    source: str, tmp_path: Path
) -> None:
    """Its config states that base as the model's own, so it looks like another model's."""
    made_with = rw.plan(source, TARGET, "ntk")
    config = json.loads((Path(source) / "config.json").read_text())
    config |= {"rope_parameters": made_with.rope_parameters, "max_position_embeddings": TARGET}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert rw.export.preview(tmp_path, made_with).refusing("llama.cpp") == ()
    with pytest.raises(InvalidValue, match="made for another model: this one has base"):
        rw.export.preview(tmp_path, planned(source))


def test_numbers_that_are_none_are_no_agreement() -> None:
    nan = Agreement("transformers", "logits", float("nan"), 1e-5, WINDOW)
    assert not nan.passed
    text = json.dumps(nan.to_json(), allow_nan=False)
    assert Agreement.from_json(json.loads(text)) == nan
    with pytest.raises(InvalidValue, match="passed"):
        Agreement.from_json({**json.loads(text), "passed": True})
