"""Windows to the batch of a forward call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropewalk.attention.ulysses import stretch
from ropewalk.data.windows import IGNORED, Window
from ropewalk.errors import Unsupported


@dataclass(frozen=True)
class WindowCollator:
    """Makes a batch of windows, for `data_collator`.

    The labels of windows are shifted already. transformers takes such labels as `shift_labels`, and
    wants `labels` too before it computes a loss. With `ranks`, tensors are this rank's stretch of
    each window, while layouts are whole: the engines see all of a window (attention/ulysses.py).
    Only a trainer whose loss takes `weights` may be given windows with weights.
    """

    ranks: int = 1
    rank: int = 0
    weighted: bool = False

    def __call__(self, windows: Sequence[Window]) -> dict[str, Any]:
        labels = self._stacked([window.labels for window in windows], IGNORED)
        layouts = [window.layout for window in windows]
        weights = [window.weights for window in windows if window.weights is not None]
        batch: dict[str, Any] = {}
        if weights:
            if not self.weighted:
                raise Unsupported(
                    "these windows have weights, which the loss of this trainer would leave out; "
                    "train with RopewalkTrainer, or build the tokens without weights"
                )
            batch["weights"] = self._stacked(weights, 0)
        return batch | {
            "input_ids": self._stacked([window.tokens for window in windows], 0),
            "position_ids": self._stacked([layout.positions for layout in layouts], 0),
            "labels": labels,
            "shift_labels": labels,
            "layout": layouts,
        }

    def _stacked(self, rows: list[Any], fill: int) -> Tensor:
        whole = torch.from_numpy(np.stack(rows))
        return stretch(whole, self.ranks, self.rank, fill=fill)
