"""Arms: one way to compute rotary attention, given as the number format of every step.

    frequencies × positions → angles → tables (cos, sin) → rotation of q and k → product q·k

Formats narrow from left to right in practice, and where they narrow is all that tells one runtime
from another: FlashAttention rotates in float32 and casts q and k; a cos and sin cache in the
model's dtype casts the tables; `model.to(bfloat16)` casts the frequencies. An `Arm` names the
format of each step, so the casts can be measured one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.values import table_in

Format = Literal["float64", "float32", "tf32", "float16", "bfloat16"]

STEPS = ("frequencies", "positions", "angles", "tables", "rotation", "product")


@dataclass(frozen=True)
class Arm:
    """The format of every step. float32 by default, as most code intends."""

    name: str
    frequencies: Format = "float32"
    positions: Format = "float32"
    angles: Format = "float32"
    tables: Format = "float32"
    rotation: Format = "float32"
    product: Format = "float32"
    """q and k are cast to it; their product accumulates in float32, as on a tensor core."""
    model: Format = "float32"
    """All that is no rotary step: embeddings, projections, norms, MLPs."""
    own_tables: bool = False
    """cos and sin are those of the model's own rotary module; the steps before do not count."""

    def keep(self, step: str, format: Format) -> Arm:
        """The same arm with one step in another format."""
        assert step in STEPS
        return replace(self, name=f"{self.name}, {step} in {format}", **{step: format})  # type: ignore[arg-type]


ARMS = {
    name: Arm(name, **row["formats"])
    for name, row in table_in(Path(__file__).with_name("arms.json")).items()
}
EXACT = ARMS["fp64"]
# The bits of a float32 that TF32 drops.
_DROPPED_BITS = 13


def named(name: str) -> Arm:
    if name not in tuple(ARMS):
        raise UnknownName("arm", name, ARMS)
    return ARMS[name]


def check_device(arms: Iterable[Arm], device: torch.device) -> None:
    """Refuse what this device cannot compute."""
    for arm in arms:
        formats = {getattr(arm, field.name) for field in fields(arm)}
        # The rotary steps round to TF32 anywhere; a whole model in TF32 needs the units.
        if arm.model == "tf32" and (
            device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)
        ):
            raise InvalidValue(
                "arm",
                arm.name,
                f"{device} has no TF32 units",
                "run it on an Ampere GPU or later; tf32_angles runs anywhere",
            )
        if "float64" in formats and device.type == "mps":
            raise InvalidValue(
                "arm", arm.name, "mps has no float64", "compute on the CPU (`device`)"
            )


def dtype_of(format: Format) -> torch.dtype:
    """The dtype that holds a format; TF32 values live in float32."""
    dtype: torch.dtype = getattr(torch, "float32" if format == "tf32" else format)
    return dtype


def cast(x: Tensor, format: Format) -> Tensor:
    """A tensor rounded to a format, in the dtype that holds it."""
    if format != "tf32":
        return x.to(dtype_of(format))
    bits = x.float().view(torch.int32)
    odd = (bits >> _DROPPED_BITS) & 1  # so that ties go to even
    half = (1 << (_DROPPED_BITS - 1)) - 1
    return ((bits + half + odd) & -(1 << _DROPPED_BITS)).view(torch.float32)


def wide(format: Format) -> torch.dtype:
    """The dtype that products of a format accumulate in."""
    return torch.float64 if format == "float64" else torch.float32


@contextmanager
def matmul_format(arm: Arm) -> Iterator[None]:
    """TF32 for the arm that means it and for no other, whatever was set before."""
    setting = torch.backends.cuda.matmul
    before = setting.allow_tf32
    setting.allow_tf32 = arm.model == "tf32"
    try:
        yield
    finally:
        setting.allow_tf32 = before


def tables(
    arm: Arm, frequencies_P: Tensor, positions_L: Tensor, attention_scaling: float = 1.0
) -> tuple[Tensor, Tensor]:
    """cos and sin [L, pairs] as an arm has them; the frequencies come in float64."""
    assert frequencies_P.dtype == torch.float64
    wide_angles = wide(arm.angles)
    frequencies = cast(frequencies_P, arm.frequencies).to(wide_angles)
    positions = cast(positions_L, arm.positions).to(wide_angles)
    if arm.angles == "tf32":
        # A matrix product rounds what goes in; what comes out is float32.
        angles_LP = cast(positions, "tf32")[:, None] * cast(frequencies, "tf32")
    else:
        angles_LP = cast(positions[:, None] * frequencies, arm.angles).to(wide_angles)
    dtype = dtype_of(arm.tables)
    return (
        (angles_LP.cos() * attention_scaling).to(dtype),
        (angles_LP.sin() * attention_scaling).to(dtype),
    )


def rotate_pairs(
    x_LP: Tensor, y_LP: Tensor, cos_LP: Tensor, sin_LP: Tensor, format: Format
) -> tuple[Tensor, Tensor]:
    """Both numbers of every pair, turned; every operation rounds to the format."""
    dtype = dtype_of(format)
    x, y, cos, sin = (value.to(dtype) for value in (x_LP, y_LP, cos_LP, sin_LP))
    return x * cos - y * sin, y * cos + x * sin
