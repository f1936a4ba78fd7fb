"""An attention scaling folded into the weights of the query projection.

cos and sin multiplied by m make every rotated logit m² times as large; so do query weights (and
biases) multiplied by m². Where every dimension of a head turns and nothing stands between the
projection and the rotation, the two are the same, and a model with folded weights needs no runtime
that knows of attention factors.

The same agreement gate stands behind it. Weights times a factor are rounded once more, which would
change logits by as much as the gate allows. So each is first compared with the exact product, up to
its rounding; then the planned model computes with weights that are rounded in the same way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import GateFailed, Unsupported
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import ConfigReader

_QUERY = re.compile(r"(?:.*\.)?layers\.(?P<layer>\d+)\.self_attn\.q_proj\.(?P<part>weight|bias)")
_NORMS = re.compile(r".*\.(?:q_norm|q_layernorm|query_layernorm|qk_norm)\b.*")
"""The norms of queries in attention layers, in which a factor of the projection is lost."""


@dataclass(frozen=True, eq=False)
class Folded:
    """The plan without the parts that its weights make up for, and these weights."""

    plan: ContextPlan
    constant: float
    """The factor of all query weights: m²."""

    def rewrite(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor of the checkpoint as it is written."""
        if not self._changes(name):
            return tensor
        return (tensor.double() * self.constant).to(tensor.dtype)

    def round_alike(self, name: str, exact: Tensor, stored: torch.dtype) -> Tensor:
        """A float64 weight that, times its factor, is exactly the one written."""
        if not self._changes(name):
            return exact
        written = self.rewrite(name, exact.to(stored)).double()
        kind = torch.finfo(stored)
        allowed = kind.eps * ((exact * self.constant).abs() + kind.smallest_normal)
        if not bool(((written - exact * self.constant).abs() <= allowed).all()):
            raise GateFailed("export", [f"{name} is not what its factor makes of it"])
        return written / self.constant

    def _changes(self, name: str) -> bool:
        return self.constant != 1 and _QUERY.fullmatch(name) is not None


def fold(checkpoint: Checkpoint, plan: ContextPlan) -> Folded:
    """Take m² into the query weights, or refuse by name."""
    _refuse_attention(checkpoint, plan)
    folded, constant = _without_attention_scaling(plan)
    _check_projections(checkpoint)
    return Folded(folded, constant)


def _without_attention_scaling(plan: ContextPlan) -> tuple[ContextPlan, float]:
    """The plan with an attention scaling of 1, and the m² that makes up for it."""
    steps = plan.steps()
    scalings = sorted({step.schedule.attention_scaling for step in steps})
    if len(scalings) > 1:
        raise Unsupported(
            "folding: this plan has the attention scalings "
            f"{', '.join(f'{m:g}' for m in scalings)} by length, and weights can hold only one"
        )
    unscaled = tuple(
        replace(step, schedule=replace(step.schedule, attention_scaling=1.0)) for step in steps
    )
    return replace(plan, schedules={FULL_ATTENTION: unscaled}), scalings[0] ** 2


def _check_projections(checkpoint: Checkpoint) -> None:
    """Refuse query projections in which a factor in the weights would be lost."""
    layers = set()
    for name, *_ in checkpoint.stored():
        if _NORMS.fullmatch(name):
            raise Unsupported(f"folding: {name} normalises queries after their projection")
        found = _QUERY.fullmatch(name)
        if found is None or found["part"] == "bias":
            continue
        if found["layer"] in layers:
            raise Unsupported(
                f"folding: {checkpoint.folder} holds two query projections for layer "
                f"{found['layer']}, one of them {name}"
            )
        layers.add(found["layer"])
    if ConfigReader(checkpoint.config).get("clip_qkv"):
        raise Unsupported("folding: this model clips queries after their projection (clip_qkv)")
    if not layers:
        raise Unsupported(
            f"folding: {checkpoint.folder} has no separate query projection "
            "(layers.*.self_attn.q_proj), such as where queries, keys and values are one matrix"
        )


def _refuse_attention(checkpoint: Checkpoint, plan: ContextPlan) -> None:
    """Name what keeps one factor in the weights from being the factor of cos and sin."""
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
    rotating = ConfigReader(checkpoint.config).get("no_rope_layers")  # 1 means RoPE, not none
    if isinstance(rotating, list) and not all(rotating):
        raise Unsupported(
            "folding: some layers of this model do not rotate, so the scaling does not apply to "
            "them"
        )
