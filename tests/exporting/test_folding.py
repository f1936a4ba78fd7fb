"""Folding: the same logits without an attention factor, or a refusal by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ropewalk.audit.examination import audit
from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.errors import Unsupported
from ropewalk.exporting.folding import fold
from ropewalk.exporting.transformers import export
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import present_plan
from ropewalk.planning.extension import extend_plan
from ropewalk.schedule import RotarySchedule
from tests.exporting.folders import TARGET, saved
from tests.models.tiny import WINDOW


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
    ],
)
def test_what_stands_in_the_way_is_named(
    tmp_path: Path, family: str, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Unsupported, match=complaint):
        fold(*planned(tmp_path, family, **changes))


def test_a_folded_folder_carries_the_plan_that_its_config_says(tmp_path: Path) -> None:
    checkpoint, plan = planned(tmp_path, "llama")
    exported = export(str(checkpoint.folder), plan, tmp_path / "out", fold=True, dtype="float32")
    assert exported.parity is not None
    assert exported.parity.passed  # beside the plan as it was given
    carried = ContextPlan.read(exported.path / "plan.json")
    assert carried.longest() == replace(plan.longest(), attention_scaling=1.0)
    found = audit(exported.path, plan=carried, runtimes=["transformers"], run=False)
    assert found.verdict_in("transformers") == "well"
