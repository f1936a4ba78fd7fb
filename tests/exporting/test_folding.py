"""Folding: the same logits without an attention factor, or a refusal by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ropewalk.audit.examination import audit
from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import GateFailed, Unsupported
from ropewalk.exporting import folding
from ropewalk.exporting.exported import NotTheSame
from ropewalk.exporting.folding import fold
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import targets
from ropewalk.schedule import RotarySchedule
from tests.exporting.folders import TARGET, proven, saved
from tests.models.tiny import WINDOW

STOCK = targets()["transformers"]


def planned(tmp_path: Path, family: str, **changes: Any) -> tuple[Checkpoint, ContextPlan]:
    source = saved(tmp_path / family, family, **changes)
    present = present_plan(source)
    plan = extend_plan(present, TARGET, "yarn", layer_types=tuple(present.schedules))
    return Checkpoint.open(source), plan


def test_queries_grow_by_the_square_and_nothing_else_does(tmp_path: Path) -> None:
    checkpoint, plan = planned(tmp_path, "qwen2")  # whose projections have biases
    scaling = plan.longest().attention_scaling
    folded = fold(checkpoint, plan)
    assert folded.plan.longest().attention_scaling == 1
    grown = set()
    for name, _, _ in checkpoint.stored():
        tensor = checkpoint.tensor(name)
        after = folded.rewrite(name, tensor)
        if not torch.equal(after, tensor):
            torch.testing.assert_close(after, tensor * scaling**2)
            grown.add(name)
    assert grown == {
        f"model.layers.{i}.self_attn.q_proj.{part}" for i in (0, 1) for part in ("weight", "bias")
    }


def test_one_factor_for_all_lengths(tmp_path: Path) -> None:
    checkpoint, plan = planned(tmp_path, "llama")
    (long,) = plan.steps()
    short = PlanStep(WINDOW, RotarySchedule.plain(long.schedule.geometry))
    with pytest.raises(Unsupported, match=r"attention scalings 1, 1\.13"):
        fold(checkpoint, replace(plan, schedules={"full_attention": (short, long)}))


@pytest.mark.parametrize(
    ("family", "changes", "complaint"),
    [
        ("qwen3", {}, "q_norm.* normalises queries"),
        ("gpt_neox", {}, "8 of 16 dimensions turn"),
        ("smollm3", {}, "do not rotate"),
        ("phi3", {}, "no separate query projection"),
        ("olmo3", {}, "full_attention, sliding_attention have separate schedules"),
        ("deepseek_v3", {}, "8 of 16 dimensions turn"),
        ("llama", {"clip_qkv": 8.0}, r"folding: .* clips queries .* \(clip_qkv\)"),
    ],
)
def test_what_stands_in_the_way_is_named(
    tmp_path: Path, family: str, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Unsupported, match=complaint):
        fold(*planned(tmp_path, family, **changes))


def test_a_folded_folder_carries_the_plan_that_its_config_says(tmp_path: Path) -> None:
    checkpoint, plan = planned(tmp_path, "llama")
    exported = STOCK.write(
        str(checkpoint.folder), plan, tmp_path / "out", fold=True, dtype="float32"
    )
    assert proven(exported).passed  # beside the plan as it was given
    carried = ContextPlan.read(exported.path / "plan.json")
    assert carried.longest() == replace(plan.longest(), attention_scaling=1.0)
    found = audit(exported.path, plan=carried, runtimes=["transformers"], run=False)
    assert found.verdict_in("transformers") == "OK"


@pytest.mark.usefixtures("in_process")
def test_folded_biases_are_proven_for_the_engines_too(tmp_path: Path) -> None:
    checkpoint, plan = planned(tmp_path, "qwen2")
    exported = targets()["vllm"].write(str(checkpoint.folder), plan, tmp_path / "out", fold=True)
    assert proven(exported).passed
    assert exported.overrides == ""


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_wrong_fold_does_not_pass(
    dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved(tmp_path / "source", dtype=dtype)
    plan = extend_plan(present_plan(source), TARGET, "yarn")
    right = folding._without_attention_scaling

    def wrong(plan: ContextPlan) -> tuple[ContextPlan, float]:
        folded, constant = right(plan)
        return folded, 2 * constant

    monkeypatch.setattr(folding, "_without_attention_scaling", wrong)
    with pytest.raises(NotTheSame):
        STOCK.write(source, plan, tmp_path / "out", fold=True)
    assert not (tmp_path / "out").exists()


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
    plan = extend_plan(present_plan(source), TARGET, "yarn")
    exported = STOCK.write(source, plan, tmp_path / "out", fold=True, dtype=dtype)
    # cos and sin with and without m are rounded to float32 apart; bfloat16 would be 1e-3 off.
    assert proven(exported).max_difference < 1e-5
    found = [each.partition("are rounded to ") for each in exported.warnings]
    assert [rest for _, separator, rest in found if separator] == told


@pytest.mark.usefixtures("in_process")
def test_weights_that_are_not_the_product_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint, plan = planned(tmp_path, "llama")
    monkeypatch.setattr(folding.Folded, "rewrite", lambda self, name, tensor: tensor.round())
    with pytest.raises(GateFailed, match=r"q_proj\.weight is not what its factor makes of it"):
        STOCK.write(str(checkpoint.folder), plan, tmp_path / "out", fold=True)
