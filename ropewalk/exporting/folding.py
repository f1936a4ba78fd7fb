"""A constant scaling of attention, folded into the weights of the query projection.

cos and sin multiplied by m make every rotated logit m² times as large; so do query weights (and
biases) multiplied by m². Where every dimension of a head turns and nothing stands between the
projection and the rotation, the two are the same, and a model with folded weights needs no runtime
that knows of attention factors. The same parity gate stands behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from torch import Tensor

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import Unsupported
from ropewalk.exporting.writing import Rewrite
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import ConfigReader

_QUERY = re.compile(r"(?:.*\.)?layers\.\d+\.self_attn\.q_proj\.(?:weight|bias)")
# What rescales or cuts queries after their projection, so that a factor before it is lost.
_NORMS = re.compile(r".*\.(?:q_norm|q_layernorm|query_layernorm|qk_norm)\b.*")


@dataclass(frozen=True)
class Folded:
    """The plan without its attention scaling, and the weights that make up for them."""

    plan: ContextPlan
    rewrite: Rewrite


def fold(checkpoint: Checkpoint, plan: ContextPlan) -> Folded:
    """Take the attention scaling of the plan into the query weights, or refuse by name."""
    _refuse(checkpoint, plan)
    steps = plan.steps()
    scalings = sorted({step.schedule.attention_scaling for step in steps})
    if len(scalings) > 1:
        raise Unsupported(
            f"folding: this plan has the attention scalings "
            f"{', '.join(f'{m:g}' for m in scalings)} by length, and weights have one"
        )
    factor = scalings[0] ** 2

    def rewrite(name: str, tensor: Tensor) -> Tensor:
        if factor == 1 or not _QUERY.fullmatch(name):
            return tensor
        return (tensor.double() * factor).to(tensor.dtype)

    unscaled = tuple(
        replace(step, schedule=replace(step.schedule, attention_scaling=1.0)) for step in steps
    )
    return Folded(replace(plan, schedules={FULL_ATTENTION: unscaled}), rewrite)


def _refuse(checkpoint: Checkpoint, plan: ContextPlan) -> None:
    """Name what keeps a factor in the weights from being the factor of cos and sin."""
    reader = ConfigReader(checkpoint.config)
    names = [name for name, _, _ in checkpoint.stored()]
    if set(plan.schedules) != {FULL_ATTENTION}:
        raise Unsupported(
            f"folding: {', '.join(sorted(plan.schedules))} have separate schedules, and layers "
            "without one may not rotate at all"
        )
    geometry = plan.longest().geometry
    if geometry.rotary_dim < geometry.head_dim:
        raise Unsupported(
            f"folding: {geometry.rotary_dim} of {geometry.head_dim} dimensions turn, and query "
            "weights would scale the others too"
        )
    norms = [name for name in names if _NORMS.fullmatch(name)]
    if norms:
        raise Unsupported(f"folding: {norms[0]} normalises queries after their projection")
    if reader.get("clip_qkv"):
        raise Unsupported("folding: this model clips queries after their projection (clip_qkv)")
    rotating = reader.get("no_rope_layers")  # despite its name, 1 means RoPE
    if isinstance(rotating, list) and not all(rotating):
        raise Unsupported(
            "folding: some layers of this model do not rotate, so the scaling does not apply to "
            "them"
        )
    if not any(_QUERY.fullmatch(name) for name in names):
        raise Unsupported(
            f"folding: {checkpoint.folder} has no separate query projection "
            "(layers.*.self_attn.q_proj), such as where queries, keys and values are one matrix"
        )
