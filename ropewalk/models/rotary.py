"""A rotary module of ours, for plans that a model's own cannot follow.

It keeps initial positions unscaled, chooses among the steps of a plan by the current length, and
computes its angles in float64, so that they are exact to the last bit of the dtype that it returns
(a stock module's float32 angles are off by up to position · 2⁻²³).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ropewalk.context_plan import PlanStep
from ropewalk.models.anatomy import Arrangement, arrange


class _Steps(NamedTuple):
    """The N schedules of one layer type as float64 tensors."""

    ends: Tensor
    """The longest sequence of every step but the last, which serves all above too."""
    frequencies: Tensor
    """[N, pairs]"""
    plain: Tensor
    """[pairs]"""
    scaling: Tensor
    """[N, 1], as kept is."""
    kept: Tensor

    @classmethod
    def of(cls, steps: Sequence[PlanStep]) -> _Steps:
        schedules = [step.schedule for step in steps]

        def column(values: list[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float64)[:, None]

        return cls(
            ends=torch.tensor([step.up_to_length for step in steps[:-1]]),
            frequencies=torch.from_numpy(np.stack([s.inverse_frequencies for s in schedules])),
            plain=torch.from_numpy(schedules[0].geometry.plain_frequencies.copy()),
            scaling=column([s.attention_scaling for s in schedules]),
            kept=column([float(s.kept_initial_positions) for s in schedules]),
        )

    def to(self, device: torch.device) -> _Steps:
        return _Steps(*(value.to(device) for value in self))

    def cos_sin(self, positions_BL: Tensor, last_B: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin by pair, in float64; each row of the batch by its own last position."""
        step_B = torch.bucketize(last_B + 1, self.ends)
        scaling_B11 = self.scaling[step_B][..., None]
        positions_BL1 = positions_BL.to(torch.float64)[..., None]
        angles_BLP = torch.where(
            positions_BL1 < self.kept[step_B][..., None],
            positions_BL1 * self.plain,
            positions_BL1 * self.frequencies[step_B][:, None],
        )
        return angles_BLP.cos() * scaling_B11, angles_BLP.sin() * scaling_B11


class PlannedRotary(nn.Module):
    """Replaces a model's rotary module and follows steps of a plan."""

    def __init__(
        self,
        arrangement: Arrangement,
        keeps_float32: bool,
        *,
        recompose: Callable[[Tensor], Tensor] | None = None,
        as_complex: bool = False,
    ) -> None:
        super().__init__()
        self.recompose = recompose
        self.as_complex = as_complex
        self.config: object = None
        """The config of the stock module, for models that look into it."""
        self.arrangement = arrangement
        self.keeps_float32 = keeps_float32
        # Neither buffers nor parameters: `model.to(bfloat16)` must not round frequencies.
        self._steps: dict[str, _Steps] = {}

    @property
    def layer_types(self) -> tuple[str, ...]:
        return tuple(self._steps)

    def follow(self, steps: Mapping[str, Sequence[PlanStep]]) -> None:
        self._steps = {layer_type: _Steps.of(each) for layer_type, each in steps.items()}

    @torch.no_grad()
    def forward(
        self, x: Tensor, position_ids: Tensor, layer_type: str | None = None
    ) -> tuple[Tensor, Tensor] | Tensor:
        layer_type = layer_type or next(iter(self._steps))
        device = position_ids.device
        if device.type == "mps":  # has no float64
            device = torch.device("cpu")
        steps = self._steps[layer_type]
        if steps.plain.device != device:
            steps = self._steps[layer_type] = steps.to(device)
        dtype = torch.float32 if self.keeps_float32 else x.dtype
        cos, sin = (
            value.to(device=x.device, dtype=dtype)
            for value in self._arranged(steps, position_ids.to(device))
        )
        return torch.complex(cos, sin) if self.as_complex else (cos, sin)

    def _arranged(self, steps: _Steps, positions: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin as the stock module lays them out, of one or several axes of positions."""
        if positions.ndim == 2:
            cos, sin = steps.cos_sin(positions, positions.amax(dim=-1))
            return arrange(cos, self.arrangement), arrange(sin, self.arrangement)
        assert self.recompose is not None, "positions of several axes, and nothing to join them"
        last_B = positions.amax(dim=(0, -1))
        by_axis = [steps.cos_sin(positions_BL, last_B) for positions_BL in positions]
        cos, sin = (torch.stack(values) for values in zip(*by_axis, strict=True))
        return self.recompose(cos), self.recompose(sin)
