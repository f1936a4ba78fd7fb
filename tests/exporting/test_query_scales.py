"""Query scales in an export: folded into the weights, proven by the gate, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ropewalk.api.export import export
from ropewalk.api.verify import verify
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import GateFailed, InvalidValue, Unsupported
from ropewalk.exporting import folding, llama_cpp, transformers, vllm
from ropewalk.exporting.folding import fold
from ropewalk.exporting.parity import NotTheSame, Parity
from ropewalk.gguf.carried import PLAN
from ropewalk.gguf.header import read_header
from ropewalk.models.anatomy import anatomy_of
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied, install
from ropewalk.models.load import read_model
from ropewalk.models.stock_config import with_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.query_scales import FOLDED, QueryScales
from ropewalk.schedule import FloatArray
from tests.exporting.folders import TARGET, saved
from tests.gguf.gguf_cases import named_plan, tiny_folder
from tests.models.tiny import tokens

FAMILIES: Mapping[str, dict[str, Any]] = {
    "llama": {},  # two query heads a key head
    "qwen2": {},  # biases
    "cohere": {"use_qk_norm": False},  # interleaved pairs
    "stablelm": {"qk_layernorm": False},  # half of a head does not turn
    "smollm3": {},  # one layer does not turn
    "gemma2": {},  # layers of two types
}


def scaled(source: str | Path, plan: ContextPlan) -> ContextPlan:
    model = read_model(Path(source), torch.float32)
    heads, random = model.config.num_attention_heads, np.random.default_rng(0)
    layers: dict[int, FloatArray] = {
        layer.index: np.exp(
            random.normal(size=(heads, plan.longest(layer.layer_type).geometry.pairs)) / 2
        )
        for layer in anatomy_of(model).layers
    }
    return replace(plan, query_scales=QueryScales(layers))


def planned(source: str | Path) -> ContextPlan:
    present = present_plan(source)
    layers = tuple(present.schedules)
    return scaled(source, extend_plan(present, TARGET, "yarn", layer_types=layers))


@pytest.fixture
def llama(tmp_path: Path) -> tuple[str, ContextPlan]:
    source = saved(tmp_path / "llama")
    return source, planned(source)


def proven(parity: Parity | None) -> Parity:
    assert parity is not None
    return parity


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("family", FAMILIES)
def test_stock_transformers_computes_the_planned_model(family: str, tmp_path: Path) -> None:
    source = saved(tmp_path / family, family, **FAMILIES[family])
    plan = planned(source)
    exported = transformers.export(source, plan, tmp_path / "out")
    assert proven(exported.parity).max_difference < (1e-6 if family == "cohere" else 1e-11)
    assert exported.warnings[0].startswith(f"tuning of weights: {plan.query_scales}, ")
    carried = ContextPlan.read(tmp_path / "out" / "plan.json")
    assert carried.schedules == plan.schedules
    assert carried.query_scales is None
    assert plan.query_scales is not None
    assert carried.provenance[FOLDED] == plan.query_scales.name


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_served_folder_has_the_scales_and_no_command_for_the_source(
    engine: str, tmp_path: Path
) -> None:
    source = saved(tmp_path / "qwen2", "qwen2")
    exported = vllm.export(source, planned(source), tmp_path / "out", engine=engine)
    assert proven(exported.parity).passed
    assert exported.overrides == ""


@pytest.mark.usefixtures("in_process")
def test_what_an_export_carries_is_what_its_model_should_follow(
    llama: tuple[str, ContextPlan], tmp_path: Path
) -> None:
    source, plan = llama
    transformers.export(source, plan, tmp_path / "out")
    carried = ContextPlan.read(tmp_path / "out" / "plan.json")
    ids, logits = tokens(TARGET), []
    for place, own in ((source, plan), (tmp_path / "out", carried)):
        model = read_model(Path(place), torch.float64).eval()
        with torch.no_grad(), applied(model, own, check=False):
            logits.append(model(ids).logits)
    torch.testing.assert_close(*logits, rtol=0, atol=1e-5)
    # Whichever plan it is compared with, and the source, whose weights hold no scales, is not well.
    for compared in (None, plan, tmp_path / "out" / "plan.json"):
        found = verify(tmp_path / "out", plan=compared, runtimes=["transformers"], run=False)
        assert found.verdict_in("transformers") == "well"
        assert not any("query scales" in told for told in found.not_established)
    found = verify(source, plan=plan, runtimes=["transformers"], run=False)
    told = f"weights: no plan here says that they hold the {plan.query_scales}; give the folder"
    assert any(line.startswith(told) for line in found.not_established)


@pytest.mark.usefixtures("in_process")
def test_scales_and_attention_scaling_go_into_the_same_weights(
    llama: tuple[str, ContextPlan], tmp_path: Path
) -> None:
    source, plan = llama
    assert plan.longest().attention_scaling > 1
    both = fold(Checkpoint.open(source), plan)
    scales = fold(Checkpoint.open(source), plan, attention=False)
    assert both.plan.longest().attention_scaling == 1
    assert scales.plan.longest() == plan.longest()
    name, query = "model.layers.1.self_attn.q_proj.weight", torch.randn(64, 32).double()
    factor = plan.longest().attention_scaling ** 2
    torch.testing.assert_close(both.rewrite(name, query), scales.rewrite(name, query) * factor)
    key = "model.layers.1.self_attn.k_proj.weight"
    assert both.rewrite(key, query) is query
    assert proven(transformers.export(source, plan, tmp_path / "out", fold=True).parity).passed


def test_scales_of_one_leave_every_weight_as_it_is(llama: tuple[str, ContextPlan]) -> None:
    source, plan = llama
    assert plan.query_scales is not None
    ones = QueryScales({i: np.ones_like(own) for i, own in plan.query_scales.layers.items()})
    checkpoint = Checkpoint.open(source)
    folded = fold(checkpoint, replace(plan, query_scales=ones), attention=False)
    for name, _, _ in checkpoint.stored():
        tensor = checkpoint.tensor(name)
        assert torch.equal(folded.rewrite(name, tensor), tensor)


def shifted(rows: Tensor, index: int) -> Tensor:
    """The scales of the neighbouring pair."""
    return rows.roll(1)


def forgotten(rows: Tensor, index: int) -> Tensor:
    """The last layer as it was."""
    return rows if index == 0 else torch.ones_like(rows)


def spoil(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Tensor, int], Tensor]) -> None:
    right = folding._row_factors

    def wrong(plan: ContextPlan, index: int, scales: FloatArray, rows: int | None) -> Tensor:
        return fault(right(plan, index, scales, rows), index)

    monkeypatch.setattr(folding, "_row_factors", wrong)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("fault", "dtype"),
    [(shifted, torch.float32), (forgotten, torch.float32), (shifted, torch.bfloat16)],
)
def test_a_wrong_fold_does_not_pass(
    fault: Callable[[Tensor, int], Tensor],
    dtype: torch.dtype,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = saved(tmp_path / "source", dtype=dtype)
    spoil(monkeypatch, fault)
    with pytest.raises(NotTheSame):
        transformers.export(source, planned(source), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("family", "changes", "complaint"),
    [
        ("qwen3", {}, r"query scales: .*q_norm.* normalises queries after"),
        ("gemma3_text", {}, r"query scales: .*q_norm.* normalises queries after"),
        ("phi3", {}, "query scales: .* has no separate query projection"),
        ("gpt_neox", {}, "query scales: .* has no separate query projection"),
        ("deepseek_v3", {}, "query scales: .* has no separate query projection"),
        ("llama", {"clip_qkv": 8.0}, r"query scales: .* clips queries .* \(clip_qkv\)"),
    ],
)
def test_what_keeps_scales_out_of_the_weights_is_named(
    family: str, changes: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    source = saved(tmp_path / "source", family, **changes)
    with pytest.raises(Unsupported, match=complaint):
        transformers.export(source, planned(source), tmp_path / "out")


@pytest.mark.parametrize(
    ("layers", "complaint"),
    [
        ({5: (4, 8)}, r"no query projection of its own for layer 5"),
        ({0: (3, 8)}, r"layers\.0 = '3 × 8 scales': .* has 64 rows, which are not 3 heads of 16"),
    ],
)
def test_scales_of_another_model_are_refused(
    layers: dict[int, tuple[int, int]], complaint: str, llama: tuple[str, ContextPlan]
) -> None:
    source, plan = llama
    scales = QueryScales({index: np.ones(shape) for index, shape in layers.items()})
    with pytest.raises((Unsupported, InvalidValue), match=complaint):
        fold(Checkpoint.open(source), replace(plan, query_scales=scales), attention=False)


@pytest.mark.usefixtures("in_process")
def test_scales_multiply_queries_once(llama: tuple[str, ContextPlan], tmp_path: Path) -> None:
    source, plan = llama
    transformers.export(source, plan, tmp_path / "out")
    folded = read_model(tmp_path / "out", torch.float32)
    with pytest.raises(Unsupported, match=r"out hold those of this plan already"):
        install(folded, plan)
    with pytest.raises(Unsupported, match=r"out hold those of this plan already"):
        fold(Checkpoint.open(str(tmp_path / "out")), plan)
    install(folded, replace(plan, query_scales=None))
    assert plan.query_scales is not None
    others = {index: 2 * own for index, own in plan.query_scales.layers.items()}
    install(folded, replace(plan, query_scales=QueryScales(others)))


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("dtype", "told"),
    [
        ("auto", ["bfloat16 once more: each by up to 0.39%"]),
        ("float16", ["float16 once more: each by up to 0.05%"]),
        ("float32", []),
    ],
)
def test_the_rounding_of_folded_weights_is_told_and_not_taken_for_an_error(
    dtype: str, told: list[str], tmp_path: Path
) -> None:
    source = saved(tmp_path / "source", dtype=torch.bfloat16)
    exported = transformers.export(source, planned(source), tmp_path / "out", dtype=dtype)
    assert proven(exported.parity).max_difference < 1e-11
    found = [each.partition("are rounded to ") for each in exported.warnings]
    assert [rest for _, separator, rest in found if separator] == told


@pytest.mark.usefixtures("in_process")
def test_weights_that_are_not_the_product_are_noticed(
    llama: tuple[str, ContextPlan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding.Folded, "rewrite", lambda self, name, tensor: tensor.round())
    with pytest.raises(GateFailed, match=r"q_proj\.weight is not what its factors make of it"):
        transformers.export(*llama, tmp_path / "out")


def test_a_preview_shows_the_tuning_of_weights_and_a_config_alone_is_refused(
    llama: tuple[str, ContextPlan],
) -> None:
    source, plan = llama
    shown = export.preview(source, plan).matrix["query scales"]
    assert {str(cell) for cell in shown.values()} == {
        "equivalent (tuning of weights: they multiply the query weights)"
    }
    with pytest.raises(Unsupported, match="no stock config can scale queries by head and pair"):
        with_plan(json.loads(Path(source, "config.json").read_text()), plan)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "BEYOND", 40)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("family", "name"), [("llama", "searched"), ("qwen2", "searched"), ("qwen2", "ntk")]
)
def test_llama_cpp_computes_the_planned_model(family: str, name: str, tmp_path: Path) -> None:
    """Its own architecture for Qwen2 turns halves; `llama`, also for Qwen2, neighbours."""
    folder, out = tiny_folder(tmp_path / "model", family), tmp_path / "model.gguf"
    plan = scaled(folder, named_plan(name, folder))
    exported = llama_cpp.export(folder, plan, out)
    assert proven(exported.parity).passed
    assert exported.warnings[0].startswith(f"tuning of weights: {plan.query_scales}, ")
    carried = ContextPlan.loads(str(read_header(out).values[PLAN]))
    assert carried.query_scales is None
    assert carried.schedules == plan.schedules
    found = verify(out, plan=plan, run=False)
    assert any(str(check).startswith("weights: hold the 64 query") for check in found.checks)


@pytest.mark.usefixtures("quick")
def test_llama_cpp_notices_a_wrong_fold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_folder(tmp_path / "model", num_key_value_heads=1)
    plan = scaled(folder, named_plan("searched", folder))
    spoil(monkeypatch, shifted)
    with pytest.raises(NotTheSame):
        llama_cpp.export(folder, plan, tmp_path / "wrong.gguf")
