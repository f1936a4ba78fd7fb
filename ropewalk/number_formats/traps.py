"""Finds the known trap that a rotary module has fallen into, from what it returns.

A trap is a cast that nobody asked for: frequencies rounded by `model.to(bfloat16)`, positions
carried in bf16, angles computed under autocast, cos and sin kept in the model's dtype. Each leaves
its own fingerprint in cos and sin. So no name, no attribute and no source is looked at: the module
is asked for its tables, every combination of known casts predicts what it should return, and the
simplest combination that predicts it is what happened.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from ropewalk.models.anatomy import Anatomy
from ropewalk.number_formats.arms import EXACT, Arm, Format, dtype_of, matmul_format, tables
from ropewalk.number_formats.results import Gain
from ropewalk.number_formats.shifts import SCORED, mean_loss
from ropewalk.number_formats.stage import AttentionCall, OpenModel, own_tables, prepared
from ropewalk.values import table_in

_EXACT_TABLES = Arm("", frequencies="float64", angles="float64", tables="float64")
CASTS = ("frequencies", "positions", "angles", "tables")
_NARROW: tuple[Format, ...] = ("bfloat16", "float16")

_TOLD = table_in(Path(__file__).with_name("casts.json"))
"""By cast, what it is and the remedy."""


@dataclass(frozen=True)
class Trap:
    """One cast that one way of loading the model brings."""

    path: str
    """The way in which the model was loaded."""
    step: str
    """One of CASTS, or `unknown`."""
    format: str
    error: float
    """The mean distance of (cos, sin) from those of float64 angles, with all casts of the path."""
    arm: Arm
    """All casts of this path, as an arm to measure."""

    @property
    def name(self) -> str:
        return str(_TOLD[self.step]["name"]).format(format=self.format)

    @property
    def remedy(self) -> str:
        return str(_TOLD[self.step]["remedy"])

    @property
    def remedied(self) -> Arm:
        """The same path without this cast."""
        if self.step == "unknown":
            return replace(Arm("remedied"), product=self.arm.product)
        return self.arm.keep(self.step, "float32")


def find_traps(stage: OpenModel) -> list[Trap]:
    """The traps of the model as it was given, and those that casting it would bring."""
    native = stage.given_format
    traps = _inspect(stage, "as given", stage.anatomy, native)
    if native == "float32":
        # What happens to this very module on the two ways that people take to bf16.
        traps += _inspect(stage, "loaded with dtype=bfloat16", stage.anatomy, "bfloat16")
        traps += _inspect(stage, "cast by .to(bfloat16)", _cast(stage.anatomy), "bfloat16")
    return traps


def _cast(anatomy: Anatomy) -> Anatomy:
    rotaries = tuple(
        replace(rotary, module=copy.deepcopy(rotary.module).to(torch.bfloat16))
        for rotary in anatomy.rotaries
    )
    return replace(anatomy, rotaries=rotaries)


def _inspect(stage: OpenModel, path: str, anatomy: Anatomy, format: Format) -> list[Trap]:
    product: Format = format if format in _NARROW else "bfloat16"
    traps: dict[tuple[str, str], Trap] = {}
    for layer_type in {layer.layer_type: None for layer in anatomy.layers}:
        schedule = stage.schedule(layer_type)
        positions = _telling_positions(stage.plan.target_length).to(stage.device)
        seen = own_tables(anatomy, layer_type, positions, dtype_of(format))
        frequencies, scaling = stage.frequencies(layer_type), schedule.attention_scaling
        truth = tables(_EXACT_TABLES, frequencies, positions, scaling)
        error = _distance(seen, truth)
        arm, predicted = _explain(seen, frequencies, positions, scaling)
        arm = replace(arm, name=path, product=product)
        casts = [(step, str(getattr(arm, step))) for step in CASTS]
        casts = [(step, dtype) for step, dtype in casts if dtype in (*_NARROW, "tf32")]
        # Float32 angles are off by up to position · 2⁻²³: that much is nobody's trap.
        if predicted > 1e-4 * scaling:
            casts = [("unknown", "")]
            arm = replace(Arm(path), own_tables=True, model=stage.given_format, product=product)
        for step, dtype in casts:
            traps.setdefault((step, dtype), Trap(path, step, dtype, error, arm))
    return list(traps.values())


def gain_of(stage: OpenModel, trap: Trap, tokens: Tensor) -> Gain:
    """A trap, measured with and without its remedy on the model's own text."""
    some = tokens[:256]
    farthest = max(0, stage.plan.target_length - len(some))
    scored = min(SCORED, len(tokens) - 1)
    arms = [replace(arm, model="float32") for arm in (trap.arm, trap.remedied)]
    logits = [stage.run(tokens, 0, arm, keep=scored + 1).cpu() for arm in arms]
    return Gain(
        *(trap.path, trap.name, trap.remedy, trap.error),
        *(logit_error(stage, some, arm, farthest) for arm in arms),
        *(mean_loss(each, tokens[-scored:]) for each in logits),
    )


def logit_error(stage: OpenModel, tokens: Tensor, arm: Arm, shift: int) -> float:
    """The root mean square error of logits against float64 angles, from equal queries and keys."""
    calls: list[AttentionCall] = []
    stage.run(tokens, 0, EXACT, listener=calls.append)
    positions = torch.arange(shift, shift + len(tokens), device=stage.device)
    squares, count = 0.0, 0
    for call in calls:
        ours, exact = (
            replace(
                call,
                rotated_query=prepared(call.query, call.layout, table, each),
                rotated_key=prepared(call.key, call.layout, table, each),
            )
            for each in (arm, EXACT)
            for table in [stage.tables(each, call.layer_type, positions)]
        )
        with matmul_format(arm):
            for start, end in call.rows():
                difference = ours.logits(start, end).double() - exact.logits(start, end)
                difference[..., start:].tril_()
                squares += float(difference.square().sum())
        heads, length = call.query.shape[:2]
        count += heads * length * (length + 1) // 2
    return math.sqrt(squares / count)


def _telling_positions(window: int) -> Tensor:
    """Positions that bf16 can hold and positions that it cannot, up to the model's window."""
    end = max(1024, min(window, 8192))
    near = range(64)
    far = (2**k + i for k in range(8, end.bit_length()) for i in range(-4, 5))
    return torch.tensor(sorted({*near, *far}))


def _explain(
    seen: tuple[Tensor, Tensor], frequencies: Tensor, positions: Tensor, scaling: float
) -> tuple[Arm, float]:
    """The fewest casts that predict these tables about as well as any."""
    candidates = [
        Arm(""),
        _EXACT_TABLES,
        Arm("", angles="tf32"),
        *(
            Arm("", **dict.fromkeys(steps, format))  # type: ignore[arg-type]
            for count in range(1, len(CASTS) + 1)
            for steps in combinations(CASTS, count)
            for format in _NARROW
        ),
        *(Arm("", angles="tf32", tables=format) for format in _NARROW),
    ]
    errors = [_distance(seen, tables(arm, frequencies, positions, scaling)) for arm in candidates]
    enough = 2 * min(errors) + 1e-5 * scaling
    index = next(i for i, error in enumerate(errors) if error <= enough)
    return candidates[index], errors[index]


def _distance(ours: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]) -> float:
    cos, sin = (a.double() - b.double() for a, b in zip(ours, theirs, strict=True))
    return float(torch.hypot(cos, sin).mean())
