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

from ropewalk.errors import Unsupported
from ropewalk.export.checkpoint import Checkpoint, Rewrite
from ropewalk.models.config import ConfigReader
from ropewalk.plan import ContextPlan

_QUERY = re.compile(r"(?:.*\.)?layers\.(\d+)\.self_attn\.q_proj\.(?:weight|bias)")
# What rescales or cuts queries after their projection, so that a factor before it is lost.
_NORMS = re.compile(r".*\.(?:q_norm|q_layernorm|query_layernorm|qk_norm)\b.*")


@dataclass(frozen=True)
class Folded:
    """The plan without its attention scalings, and the weights that make up for them."""

    plan: ContextPlan
    rewrite: Rewrite


def fold(checkpoint: Checkpoint, plan: ContextPlan) -> Folded:
    """Take every attention scaling of the plan into the query weights, or refuse by name."""
    reader = ConfigReader(checkpoint.config)
    factors = {name: _constant(plan, name) for name in plan.schedules}
    names = [name for name, _, _ in checkpoint.stored()]
    _refuse(checkpoint, reader, plan, names)
    layer_types = reader.get("layer_types")

    def factor(name: str) -> float:
        found = _QUERY.fullmatch(name)
        if found is None:
            return 1.0
        if len(factors) == 1:
            return next(iter(factors.values()))
        return factors[layer_types[int(found[1])]]

    def rewrite(name: str, tensor: Tensor) -> Tensor:
        scale = factor(name)
        return tensor if scale == 1 else (tensor.double() * scale).to(tensor.dtype)

    schedules = {
        name: tuple(
            replace(step, schedule=replace(step.schedule, attention_scaling=1.0)) for step in steps
        )
        for name, steps in plan.schedules.items()
    }
    return Folded(replace(plan, schedules=schedules), rewrite)


def _constant(plan: ContextPlan, layer_type: str) -> float:
    scalings = {step.schedule.attention_scaling for step in plan.steps(layer_type)}
    if len(scalings) > 1:
        raise Unsupported(
            f"folding: {layer_type} has the attention scalings "
            f"{', '.join(f'{m:g}' for m in sorted(scalings))} by length, and weights have one"
        )
    return scalings.pop() ** 2


def _refuse(
    checkpoint: Checkpoint, reader: ConfigReader, plan: ContextPlan, names: list[str]
) -> None:
    """Name what keeps a factor in the weights from being the factor of cos and sin."""
    for layer_type, steps in plan.schedules.items():
        geometry = steps[-1].schedule.geometry
        if geometry.rotary_dim < geometry.head_dim:
            raise Unsupported(
                f"folding: {layer_type} turns {geometry.rotary_dim} of {geometry.head_dim} "
                "dimensions, and query weights would scale the others too"
            )
    norms = [name for name in names if _NORMS.fullmatch(name)]
    if norms:
        raise Unsupported(f"folding: {norms[0]} normalises queries after their projection")
    if reader.get("clip_qkv"):
        raise Unsupported("folding: this model clips queries after their projection (clip_qkv)")
    rotating = reader.get("no_rope_layers")  # despite its name, 1 means RoPE
    if isinstance(rotating, list) and not all(rotating):
        raise Unsupported(
            "folding: some layers of this model do not rotate, and the scaling is not theirs"
        )
    types = reader.get("layer_types")
    covered = isinstance(types, list) and set(types) <= set(plan.schedules)
    if len(plan.schedules) > 1 and not covered:
        raise Unsupported("folding: the config does not say which layer is of which type")
    if not any(_QUERY.fullmatch(name) for name in names):
        raise Unsupported(
            f"folding: {checkpoint.folder} has no query projection of its own "
            "(layers.*.self_attn.q_proj), such as where queries, keys and values are one matrix"
        )
