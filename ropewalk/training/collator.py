"""Windows to the batch of a forward call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ropewalk.attention.ulysses import stretch
from ropewalk.data.windows import IGNORED, Window


@dataclass(frozen=True)
class WindowCollator:
    """Makes a batch of windows, for `data_collator`.

    The labels of windows are shifted already. transformers takes such labels as `shift_labels`, and
    wants `labels` too before it computes a loss. With `ranks`, tensors are this rank's stretch of
    each window, while layouts are whole: the engines see all of a window (attention/ulysses.py).
    """

    ranks: int = 1
    rank: int = 0

    def __call__(self, windows: Sequence[Window]) -> dict[str, Any]:
        labels = self._stacked([window.labels for window in windows], IGNORED)
        layouts = [window.layout for window in windows]
        return {
            "input_ids": self._stacked([window.tokens for window in windows], 0),
            "position_ids": self._stacked([layout.positions for layout in layouts], 0),
            "labels": labels,
            "shift_labels": labels,
            "layout": layouts,
        }

    def _stacked(self, rows: list[NDArray[np.int64]], fill: int) -> Tensor:
        whole = torch.from_numpy(np.stack(rows))
        return stretch(whole, self.ranks, self.rank, fill=fill)
