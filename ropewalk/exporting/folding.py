"""An attention scaling, and query scales, folded into the weights of the query projection.

cos and sin multiplied by m make every rotated logit m² times as large; so do query weights (and
biases) multiplied by m². Where every dimension of a head turns and nothing stands between the
projection and the rotation, the two are the same, and a model with folded weights needs no runtime
that knows of attention factors. A scale of a pair multiplies the two rows of the projection that
give this pair, so it asks for less: parts of a head or layers that do not turn stay as they are.

The same parity gate stands behind it. Weights times a factor are rounded once more, which would
change logits by as much as the gate allows. So each is first compared with the exact product, up to
its rounding; then the planned model computes with weights that are rounded in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep, check_unscaled
from ropewalk.errors import GateFailed, InvalidValue, Unsupported
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import ConfigReader
from ropewalk.models.heads import QUERY_NORMS, HeadLayout
from ropewalk.query_scales import FOLDED
from ropewalk.schedule import FloatArray

_QUERY = re.compile(r"(?:.*\.)?layers\.(?P<layer>\d+)\.self_attn\.q_proj\.(?P<part>weight|bias)")
_NORMS = re.compile(rf".*\.(?:{'|'.join(QUERY_NORMS)})\b.*")


@dataclass(frozen=True, eq=False)
class Folded:
    """The plan without what its weights make up for, and these weights."""

    plan: ContextPlan
    constant: float
    """What multiplies all query weights: m²."""
    rows: Mapping[int, Tensor]
    """What multiplies each row of the query projection, by layer."""
    told: tuple[str, ...] = ()
    """What was done to the weights, for whoever uses them."""

    def rewrite(self, name: str, tensor: Tensor) -> Tensor:
        """A tensor of the checkpoint as it is written."""
        factor = self._factor(name, tensor)
        return tensor if factor is None else (tensor.double() * factor).to(tensor.dtype)

    def round_alike(self, name: str, exact: Tensor, stored: torch.dtype) -> Tensor:
        """A float64 weight that, times its factor, is exactly the one written."""
        factor = self._factor(name, exact)
        if factor is None:
            return exact
        written = self.rewrite(name, exact.to(stored)).double()
        kind = torch.finfo(stored)
        allowed = kind.eps * ((exact * factor).abs() + kind.smallest_normal)
        if not bool(((written - exact * factor).abs() <= allowed).all()):
            raise GateFailed("export", [f"{name} is not what its factors make of it"])
        return written / factor

    def _factor(self, name: str, tensor: Tensor) -> Tensor | None:
        """What multiplies a tensor; None where that changes nothing."""
        found = _QUERY.fullmatch(name)
        if found is None:
            return None
        rows = self.rows.get(int(found["layer"]))
        if rows is None:
            rows = torch.ones(len(tensor), dtype=torch.float64)
        factor = self.constant * (rows if found["part"] == "bias" else rows[:, None])
        return None if bool((factor == 1).all()) else factor


def fold(checkpoint: Checkpoint, plan: ContextPlan, *, attention: bool = True) -> Folded:
    """Take query scales, and with `attention` m², into the query weights, or refuse by name."""
    if plan.query_scales is not None:
        check_unscaled(checkpoint.folder, plan.query_scales)
    folded, constant = plan, 1.0
    if attention:
        _refuse_attention(checkpoint, plan)
        folded, constant = _without_attention_scaling(plan)
    projections = _query_projections(checkpoint, "query scales" if plan.query_scales else "folding")
    if plan.query_scales is None:
        return Folded(folded, constant, {})
    rows = {
        index: _row_factors(plan, index, scales, projections.get(index))
        for index, scales in plan.query_scales.layers.items()
    }
    provenance = {**folded.provenance, FOLDED: plan.query_scales.name}
    told = (f"tuning of weights: {plan.query_scales}, multiply the query weights",)
    return Folded(replace(folded, query_scales=None, provenance=provenance), constant, rows, told)


def _without_attention_scaling(plan: ContextPlan) -> tuple[ContextPlan, float]:
    """The plan with an attention scaling of 1, and the m² that makes up for it."""
    steps = plan.steps()
    scalings = sorted({step.schedule.attention_scaling for step in steps})
    if len(scalings) > 1:
        raise Unsupported(
            f"folding: this plan has the attention scalings "
            f"{', '.join(f'{m:g}' for m in scalings)} by length, and weights have one"
        )
    unscaled = tuple(map(_unscaled, steps))
    return replace(plan, schedules={FULL_ATTENTION: unscaled}), scalings[0] ** 2


def _unscaled(step: PlanStep) -> PlanStep:
    return replace(step, schedule=replace(step.schedule, attention_scaling=1.0))


def _row_factors(plan: ContextPlan, index: int, scales: FloatArray, rows: int | None) -> Tensor:
    """What the scales of a layer multiply each row of its query projection by."""
    heads, pairs = scales.shape
    if rows is None:
        raise Unsupported(
            f"query scales: the checkpoint has no query projection of its own for layer {index} "
            f"(layers.{index}.self_attn.q_proj)"
        )
    fitting = {
        HeadLayout(
            heads,
            geometry.head_dim,
            first=0,
            pairs=pairs,
            order="halves" if geometry.pair_layout == "half" else "neighbours",
        )
        for geometry in (steps[-1].schedule.geometry for steps in plan.schedules.values())
        if geometry.pairs == pairs and heads * geometry.head_dim == rows
    }
    if not fitting:
        sizes = {steps[-1].schedule.geometry.head_dim for steps in plan.schedules.values()}
        raise InvalidValue(
            f"plan.query_scales.layers.{index}",
            f"{heads} × {pairs} scales",
            f"the query projection of this layer has {rows} rows, which are not {heads} heads of "
            f"{' or '.join(map(str, sorted(sizes)))}",
            "create the scales for this model",
        )
    if len(fitting) > 1:
        raise Unsupported(f"query scales: layer {index} fits more than one geometry of the plan")
    return fitting.pop().by_dimension(torch.tensor(scales)).flatten()


def _query_projections(checkpoint: Checkpoint, subject: str) -> dict[int, int]:
    """The rows of each layer's query projection; refused where a factor in it would be lost."""
    projections: dict[int, int] = {}
    for name, _, shape in checkpoint.stored():
        if _NORMS.fullmatch(name):
            raise Unsupported(f"{subject}: {name} normalises queries after their projection")
        found = _QUERY.fullmatch(name)
        if found is None or found["part"] == "bias":
            continue
        index = int(found["layer"])
        if index in projections:
            raise Unsupported(
                f"{subject}: {checkpoint.folder} holds two query projections for layer {index}, "
                f"one of them {name}"
            )
        projections[index] = shape[0]
    if ConfigReader(checkpoint.config).get("clip_qkv"):
        raise Unsupported(f"{subject}: this model clips queries after their projection (clip_qkv)")
    if not projections:
        raise Unsupported(
            f"{subject}: {checkpoint.folder} has no separate query projection "
            "(layers.*.self_attn.q_proj), such as where queries, keys and values are one matrix"
        )
    return projections


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
