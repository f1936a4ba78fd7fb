"""Folding: the same logits without an attention factor, or a refusal by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from ropewalk.errors import Unsupported
from ropewalk.export.checkpoint import Checkpoint
from ropewalk.export.folding import fold
from ropewalk.extension import extend_plan
from ropewalk.models.config import present_plan
from ropewalk.plan import ContextPlan
from tests.export.folders import TARGET, saved


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
    for name, tensor in checkpoint.tensors():
        after = folded.rewrite(name, tensor)
        if not torch.equal(after, tensor):
            torch.testing.assert_close(after, tensor * scaling**2)
            grown.add(name)
    assert grown == {
        f"model.layers.{i}.self_attn.q_proj.{part}" for i in (0, 1) for part in ("weight", "bias")
    }


def test_layers_of_several_types_have_their_own_factor(tmp_path: Path) -> None:
    """gpt_oss has layer types, but one setting; olmo3 has two, and a query norm in both."""
    checkpoint, plan = planned(tmp_path, "gpt_oss")
    folded = fold(checkpoint, plan)
    name = "model.layers.1.self_attn.q_proj.weight"
    tensor = dict(checkpoint.tensors())[name]
    assert not torch.equal(folded.rewrite(name, tensor), tensor)


@pytest.mark.parametrize(
    ("family", "changes", "complaint"),
    [
        ("qwen3", {}, "q_norm.* normalises queries"),
        ("gpt_neox", {}, "turns 8 of 16 dimensions"),
        ("smollm3", {}, "do not rotate"),
        ("phi3", {}, "no query projection of its own"),
        ("olmo3", {}, "normalises queries"),
        ("deepseek_v3", {}, "turns 8 of 16"),
    ],
)
def test_what_stands_in_the_way_is_named(
    tmp_path: Path, family: str, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(Unsupported, match=complaint):
        fold(*planned(tmp_path, family, **changes))
